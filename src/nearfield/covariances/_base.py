"""What covariances have in common: their parameters, and moments with slopes as they come out of the closed form."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearfield._types import Neighbourhood
from nearfield.conditional.whole import Whole
from nearfield.families import Parameter, Parameters
from nearfield.kernels import KERNELS, Kernel, log_shapes, mixture
from nearfield.warps import Metric, Warps, bend_slopes, feature_lengths, log_shares

if TYPE_CHECKING:
    from nearfield.covariances._together import Together

# One line for each learned array: where it starts, and bounds far outside of what data can tell apart.
# Smooth functions run off along a valley: with Matern 5/2 only scale over length^5 matters there.
LENGTH = Parameter(0.0, math.log(1e-4), math.log(1e6))
SCALE = Parameter(0.0, math.log(1e-4), math.log(1e6))
BENDS = Parameter(-2.0, -8.0, 8.0)
MIXING = Parameter(0.0, -1e2, 1e2)


class CovarianceSlopes(NamedTuple):
    """By the parameters of the covariance, and by the targets (b, k, C) and noises (b, k, R) of the neighbours."""

    parameters: dict[str, np.ndarray]
    targets: np.ndarray
    noises: np.ndarray


class KernelWeights(NamedTuple):
    """Slopes of mean and variance of the latent functions `own` by the correlations of a row with its neighbours.

    These are of a kernel with log length scales (d,); mean and variance: (b or 1, c, k) and (b, c or 1, k).
    """

    log_lengths: np.ndarray
    own: slice
    mean: np.ndarray
    variance: np.ndarray


class NoiseWeights(NamedTuple):
    """Slopes of mean, variance and quad (b, C, k) by the relative noise of each neighbour, the same for all targets.

    quad: None where no formula is known.
    """

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray | None


class Centred(ABC):
    """Moments of the latent functions less their means: mean, variance and quad (b, q, C); covariance (b, q, C, C)
    where they depend on each other; jittered: rows that needed extra jitter."""

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    covariance: np.ndarray | None = None
    jittered: int

    @abstractmethod
    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> CovarianceSlopes:
        """What slopes by mean and variance (b, C) become; for a single k that was differentiated."""

    @abstractmethod
    def kernel_weights(self) -> list[KernelWeights]:
        """Slopes by the correlations with the neighbours, one entry a kernel; for a single k that was differentiated.

        mean = alpha' c and variance = 1 - beta' K beta: by c they are alpha and -2 beta.
        """

    @abstractmethod
    def noise_weights(self) -> NoiseWeights:
        """Slopes by the noises, the diagonal of K: -alpha beta, beta^2 and -alpha^2."""


class Kernels(NamedTuple):
    """Latent functions, from first to last, of a kernel of scale one or of mixtures of some: what they have in common.

    log_lengths: (Q, d). mixing: (P, Q), of mixed ones; (1, 1), of ones, where they do not depend on each other.
    """

    first: int
    last: int
    log_lengths: np.ndarray
    mixing: np.ndarray


class Covariance(ABC):
    """How C latent functions vary over d inputs."""

    def __init__(self, kernel: Kernel, latents: int, warps: Warps, scales: int, shrinks: bool = True) -> None:
        """shrinks: whether a prior pulls length scales together, and bends."""
        self.kernel, self.latents, self.warps, self.scales = kernel, latents, warps, scales
        self.d, self.shrinks = warps.d, shrinks

    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """What is learned."""

    @abstractmethod
    def initial(self, scale: float) -> dict[str, np.ndarray]:
        """Where it starts: length scales of the order of the distance between two standardised rows."""

    @abstractmethod
    def after(self, shared: Parameters) -> dict[str, np.ndarray]:
        """Where it starts once a `Shared` covariance of all latent functions has been learned."""

    def search_lengths(self, parameters: Parameters) -> np.ndarray:
        """Length scales (d,) under which neighbours are searched: with several kernels, their geometric mean."""
        return np.exp(np.atleast_2d(parameters["log_lengths"]).mean(axis=0))

    def coordinates(self, parameters: Parameters, inputs: np.ndarray) -> np.ndarray:
        """Standardised inputs (n, d) as the kernel sees them, before the length scales: with columns bent."""
        return self.warps.coordinates(inputs, parameters["bends"]) if len(self.warps) else inputs

    def with_warps(self, warps: Warps) -> Covariance:
        """The same with other maps of the columns that bend."""
        other = copy.copy(self)
        other.warps = warps
        return other

    def metric(self, parameters: Parameters) -> Metric:
        """Where neighbours are searched."""
        return Metric.of(self.search_lengths(parameters), self.warps, parameters.get("bends"))

    def coordinate_slopes(self, parameters: Parameters, inputs: np.ndarray) -> np.ndarray:
        """Slopes (n, d) of coordinates by the inputs (n, d), each by its own."""
        return self.warps.slopes(inputs, parameters["bends"]) if len(self.warps) else np.ones(inputs.shape)

    def shares(self, parameters: Parameters) -> np.ndarray:
        """Shares (d, 3) of each column as it is, of its normal score and of its uniform score."""
        found = np.tile([1.0, 0.0, 0.0], (self.d, 1))
        if len(self.warps):
            found[self.warps.columns] = np.exp(log_shares(parameters["bends"]))
        return found

    def smoothness(self, parameters: Parameters) -> dict[str, float] | None:
        """Shares of Matern 1/2, 3/2 and 5/2 where they are learned."""
        if self.kernel is not KERNELS["auto"]:
            return None
        return dict(zip(("matern12", "matern32", "matern52"), mixture(parameters["log_shape"]), strict=True))

    def lengths(self, parameters: Parameters, features: bool) -> np.ndarray:
        """Log length scales (.., d) of coordinates, or those of features (.., d + 2 w)."""
        log_lengths = parameters["log_lengths"]
        return feature_lengths(self.warps, log_lengths, parameters["bends"]) if features else log_lengths

    def length_slopes(self, parameters: Parameters, by: np.ndarray) -> dict[str, np.ndarray]:
        """Slopes by the parameters from those by the log length scales of features."""
        if not len(self.warps):
            return {"log_lengths": by}
        by_lengths, by_bends = bend_slopes(self.warps, parameters["bends"], by)
        return {"log_lengths": by_lengths, "bends": by_bends}

    def scale2(self, parameters: Parameters) -> np.ndarray:
        """Prior variances (S,) of the latent functions."""
        return np.exp(2 * parameters["log_scale"])

    def scale_slopes(self, parameters: Parameters, by_log_scale: np.ndarray) -> dict[str, np.ndarray]:
        """Slopes by the parameters from those by half the logarithm of the prior variances (S,)."""
        return {"log_scale": by_log_scale}

    @property
    def matrix_rows(self) -> int:
        """Rows that each neighbour adds to a matrix: more than one where latent functions depend on each other."""
        return 1

    @abstractmethod
    def condition(
        self, parameters: Parameters, neighbourhood: Neighbourhood, ks: np.ndarray | None, differentiate: bool
    ) -> Centred:
        """Moments given the first ks (q,) neighbours, or all k."""

    def together(
        self,
        parameters: Parameters,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        differentiate: bool,
        earlier: Together | None = None,
    ) -> Together:
        """All rows (n, d), with targets (n, C) and noises (n, R), factorised together; where `matrix_rows` is one.

        earlier: the first of them with the same parameters, which are then extended.
        """
        raise NotImplementedError(f"{type(self).__name__} has no closed form of all rows at once.")

    @abstractmethod
    def kernels(self, parameters: Parameters) -> list[Kernels]:
        """The kernels, in the order of the latent functions that each is of; those of coordinates, not of features."""

    def _shared(self, kernels: tuple[int, ...]) -> dict[str, Parameter]:
        low, high = (math.log(bound) for bound in self.kernel.bounds)
        bends = {"bends": BENDS._replace(shape=(len(self.warps), 2))} if len(self.warps) else {}
        return {
            "log_lengths": LENGTH._replace(shape=(*kernels, self.d)),
            "log_shape": Parameter(0.0, low, high, (len(self.kernel.shapes),)),
            **bends,
        }

    def _start(self, shared: Parameters | None = None) -> dict[str, np.ndarray]:
        """Where shapes and bends start: as they are described, or where another covariance has them."""
        bends = {"bends": np.full((len(self.warps), 2), BENDS.initial)} if len(self.warps) else {}
        start = {"log_shape": log_shapes(self.kernel), **bends}
        return start if shared is None else {name: shared[name] for name in start}

    def _whole(
        self,
        parameters: Parameters,
        log_lengths: np.ndarray,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        differentiate: bool,
        earlier: Whole | None,
    ) -> Whole:
        """Rows factorised together under one kernel, with log length scales (d,)."""
        shape, given = parameters["log_shape"], (targets, noises)
        if differentiate and len(self.warps):
            log_lengths = feature_lengths(self.warps, log_lengths, parameters["bends"])
            features, owners = self.warps.features(inputs), self.warps.owners
            return Whole(self.kernel, log_lengths, shape, features, *given, owners, differentiate=True)
        points = self.coordinates(parameters, inputs)
        return Whole(self.kernel, log_lengths, shape, points, *given, differentiate=differentiate, earlier=earlier)


def summed(by: np.ndarray, size: int) -> np.ndarray:
    """Slopes (C,) summed to (1,) where all share one number."""
    return by if len(by) == size else by.sum(keepdims=True)


def noise_weights(alpha: np.ndarray, beta: np.ndarray, scale2: np.ndarray) -> NoiseWeights:
    """For alpha (b, C, k) and beta (b, R, k) of kernels of scale one and their scales (S,)."""
    variance = np.broadcast_to(beta**2 * scale2[:, None], alpha.shape)
    return NoiseWeights(-alpha * beta, variance, -(alpha**2) / scale2[:, None])
