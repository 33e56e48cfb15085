"""Covariances of the latent functions: one kernel for all, one for each, or mixtures of some.

Each knows its parameters, the length scales under which neighbours are searched, the prior variances of the latent
functions, and how the closed form is applied. Noise variances come in relative to these prior variances.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.conditional.coregional import condition_outputs
from nearfield.conditional.whole import Given, Whole
from nearfield.families import Parameter, Parameters
from nearfield.kernels import KERNELS, Kernel, log_shapes, mixture
from nearfield.warps import Metric, Warps, bend_slopes, feature_lengths, log_shares

# One line for each learned array: where it starts, and bounds far outside of what data can tell apart.
# Smooth functions run off along a valley: with Matern 5/2 only scale over length^5 matters there.
_LENGTH = Parameter(0.0, math.log(1e-4), math.log(1e6))
_SCALE = Parameter(0.0, math.log(1e-4), math.log(1e6))
_BENDS = Parameter(-2.0, -8.0, 8.0)
_MIXING = Parameter(0.0, -1e2, 1e2)


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
        bends = {"bends": _BENDS._replace(shape=(len(self.warps), 2))} if len(self.warps) else {}
        return {
            "log_lengths": _LENGTH._replace(shape=(*kernels, self.d)),
            "log_shape": Parameter(0.0, low, high, (len(self.kernel.shapes),)),
            **bends,
        }

    def _start(self, shared: Parameters | None = None) -> dict[str, np.ndarray]:
        """Where shapes and bends start: as they are described, or where another covariance has them."""
        bends = {"bends": np.full((len(self.warps), 2), _BENDS.initial)} if len(self.warps) else {}
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


def _summed(by: np.ndarray, size: int) -> np.ndarray:
    """Slopes (C,) summed to (1,) where all share one number."""
    return by if len(by) == size else by.sum(keepdims=True)


class Together:
    """Latent functions less their means, given all rows at once: see `conditional/whole.py`.

    parts: what the latent functions, or each of them, is factorised with; in the order of the latent functions.
    """

    def __init__(self, own: Covariance, values: Parameters, parts: list[Whole]) -> None:
        self.own, self.values = own, values
        self.scale2, self.parts = own.scale2(values), parts
        self.jittered = sum(part.jittered for part in parts)
        self.quad = np.concatenate([part.quad for part in parts]) / self.scale2
        ends = np.cumsum([0, *(part.latents for part in parts)]).tolist()
        self._own = [slice(*ends[i : i + 2]) for i in range(len(parts))]

    def left_out(self, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and quad (n, C) at every row, left out alone or with its group (n,)."""
        return self._scaled([part.left_out(groups) for part in self.parts])

    def predict(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and quad (b, C) at new rows (b, d)."""
        points = self.own.coordinates(self.values, query)
        return self._scaled([part.predict(points) for part in self.parts])

    def _scaled(self, found: list[Given]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean, quad = (np.concatenate([getattr(one, name) for one in found], 1) for name in ("mean", "quad"))
        variances = [np.broadcast_to(one.variance, one.mean.shape) for one in found]
        return mean, np.concatenate(variances, 1) * self.scale2, quad / self.scale2

    def kernel_weights(self, query: np.ndarray) -> list[KernelWeights]:
        """Slopes of the moments at new rows (b, d) by their correlations with all rows, one entry a kernel."""
        points, found = self.own.coordinates(self.values, query), []
        for lengths, part, own in zip(np.atleast_2d(self.values["log_lengths"]), self.parts, self._own, strict=True):
            alpha, beta = part.weights(points)
            scale2 = self.scale2[own if len(self.scale2) > 1 else slice(None)]
            found.append(KernelWeights(lengths, own, alpha[None], -2 * beta * scale2[:, None]))
        return found

    def log_density(self) -> float:
        """Of all targets jointly; of one latent function."""
        (part,), n = self.parts, len(self.parts[0])
        return -0.5 * float(self.quad[0] + part.log_det[0] + n * math.log(2 * math.pi * self.scale2[0]))

    def slopes(
        self,
        by_mean: np.ndarray,
        by_variance: np.ndarray,
        variance: np.ndarray,
        by_density: float,
        groups: np.ndarray | None,
    ) -> CovarianceSlopes:
        """What slopes by mean and variance (n, C) of rows left out become, and that by the log density."""
        by_unit = by_variance * self.scale2
        found = []
        for part, own in zip(self.parts, self._own, strict=True):
            apart = by_unit[:, own] if len(part.log_det) == part.latents else by_unit[:, own].sum(1, keepdims=True)
            by_log_det = np.full(len(part.log_det), -0.5 * by_density)
            by_quad = np.full(part.latents, -0.5 * by_density) / self.scale2[own]
            found.append(part.slopes(by_mean[:, own], apart, by_log_det, by_quad, groups))
        by_scale = _summed(2 * (by_variance * variance).sum(axis=0), len(self.scale2))
        if by_density:
            by_scale = by_scale + by_density * (self.quad - len(self.parts[0]))
        lengths = [by.log_lengths for by in found]
        stacked = np.stack(lengths) if self.values["log_lengths"].ndim == 2 else lengths[0]
        parameters = {
            **self.own.length_slopes(self.values, stacked),
            "log_shape": np.sum([by.log_shape for by in found], axis=0),
            "log_scale": by_scale,
        }
        targets, noises = (np.concatenate([getattr(by, name) for by in found], -1) for name in ("targets", "noises"))
        return CovarianceSlopes(parameters, targets, noises)


class Shared(Covariance):
    """One kernel for all latent functions, with S = 1 or C scales."""

    def parameters(self) -> dict[str, Parameter]:
        return {**self._shared(()), "log_scale": _SCALE._replace(shape=(self.scales,))}

    def initial(self, scale: float) -> dict[str, np.ndarray]:
        lengths, scales = np.full(self.d, 0.5 * math.log(self.d)), np.full(self.scales, math.log(scale))
        return {"log_lengths": lengths, **self._start(), "log_scale": scales}

    def after(self, shared: Parameters) -> dict[str, np.ndarray]:
        return {name: shared[name] for name in self.parameters()}

    def kernels(self, parameters: Parameters) -> list[Kernels]:
        return [Kernels(0, self.latents, parameters["log_lengths"][None], np.ones((1, 1)))]

    def condition(
        self, parameters: Parameters, neighbourhood: Neighbourhood, ks: np.ndarray | None, differentiate: bool
    ) -> Centred:
        return _SharedCentred(self, parameters, neighbourhood, ks, differentiate)

    def together(
        self,
        parameters: Parameters,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        differentiate: bool,
        earlier: Together | None = None,
    ) -> Together:
        before = None if earlier is None else earlier.parts[0]
        lengths = parameters["log_lengths"]
        whole = self._whole(parameters, lengths, inputs, targets, noises, differentiate, before)
        return Together(self, parameters, [whole])


class _SharedCentred(Centred):
    def __init__(self, own: Shared, parameters: Parameters, near: Neighbourhood, ks: Any, differentiate: bool) -> None:
        lengths = own.lengths(parameters, bool(near.owners.size))
        found = condition(own.kernel, lengths, parameters["log_shape"], near, ks, differentiate=differentiate)
        self.own, self.values = own, parameters
        self.scale2, self.found = own.scale2(parameters), found
        self.mean, self.jittered = found.mean, found.jittered
        self.variance = np.broadcast_to(found.variance * self.scale2, found.mean.shape)
        self.quad = found.quad / self.scale2

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> CovarianceSlopes:
        shared = self.found.variance.shape[-1] == 1
        by_unit = by_variance * self.scale2  # by the variance of a kernel of scale one
        by = self.found.slopes(by_mean, by_unit.sum(axis=1, keepdims=True) if shared else by_unit)
        by_scale = _summed(2 * (by_variance * self.variance[:, 0]).sum(axis=0), len(self.scale2))
        lengths = self.own.length_slopes(self.values, by.log_lengths)
        parameters = {**lengths, "log_shape": by.log_shape, "log_scale": by_scale}
        return CovarianceSlopes(parameters, by.targets, by.noises)

    def kernel_weights(self) -> list[KernelWeights]:
        alpha, beta = self.found.weights
        return [KernelWeights(self.values["log_lengths"], slice(None), alpha, -2 * beta * self.scale2[:, None])]

    def noise_weights(self) -> NoiseWeights:
        return _noise_weights(*self.found.weights, self.scale2)


def _noise_weights(alpha: np.ndarray, beta: np.ndarray, scale2: np.ndarray) -> NoiseWeights:
    """For alpha (b, C, k) and beta (b, R, k) of kernels of scale one and their scales (S,)."""
    variance = np.broadcast_to(beta**2 * scale2[:, None], alpha.shape)
    return NoiseWeights(-alpha * beta, variance, -(alpha**2) / scale2[:, None])


class PerLatent(Covariance):
    """A kernel for each latent function."""

    def parameters(self) -> dict[str, Parameter]:
        return {**self._shared((self.latents,)), "log_scale": _SCALE._replace(shape=(self.scales,))}

    def initial(self, scale: float) -> dict[str, np.ndarray]:
        lengths = np.full((self.latents, self.d), 0.5 * math.log(self.d))
        scales = np.full(self.scales, math.log(scale))
        return {"log_lengths": lengths, **self._start(), "log_scale": scales}

    def after(self, shared: Parameters) -> dict[str, np.ndarray]:
        lengths = np.tile(shared["log_lengths"], (self.latents, 1))
        scales = np.broadcast_to(shared["log_scale"], (self.scales,)).copy()
        return {"log_lengths": lengths, **self._start(shared), "log_scale": scales}

    def kernels(self, parameters: Parameters) -> list[Kernels]:
        each = enumerate(parameters["log_lengths"])
        return [Kernels(c, c + 1, lengths[None], np.ones((1, 1))) for c, lengths in each]

    def condition(
        self, parameters: Parameters, neighbourhood: Neighbourhood, ks: np.ndarray | None, differentiate: bool
    ) -> Centred:
        return _PerLatentCentred(self, parameters, neighbourhood, ks, differentiate)

    def together(
        self,
        parameters: Parameters,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        differentiate: bool,
        earlier: Together | None = None,
    ) -> Together:
        parts = []
        for c, lengths in enumerate(parameters["log_lengths"]):
            r = min(c, noises.shape[1] - 1)
            own = (targets[:, c : c + 1], noises[:, r : r + 1])
            before = None if earlier is None else earlier.parts[c]
            parts.append(self._whole(parameters, lengths, inputs, *own, differentiate, before))
        return Together(self, parameters, parts)


class _PerLatentCentred(Centred):
    def __init__(
        self, own: PerLatent, parameters: Parameters, near: Neighbourhood, ks: Any, differentiate: bool
    ) -> None:
        self.own, self.values = own, parameters
        self.scale2, self.noises = own.scale2(parameters), near.noises.shape[-1]
        parts, every = [], own.lengths(parameters, bool(near.owners.size))
        for c in range(own.latents):
            r = min(c, self.noises - 1)
            targets = np.ascontiguousarray(near.targets[..., c : c + 1])
            noises = np.ascontiguousarray(near.noises[..., r : r + 1])
            alone = replace(near, targets=targets, noises=noises)
            shape = parameters["log_shape"]
            parts.append(condition(own.kernel, every[c], shape, alone, ks, differentiate=differentiate))
        self.parts, self.jittered = parts, sum(part.jittered for part in parts)
        self.mean = np.concatenate([part.mean for part in parts], axis=-1)
        self.variance = np.concatenate([part.variance for part in parts], axis=-1) * self.scale2
        self.quad = np.concatenate([part.quad for part in parts], axis=-1) / self.scale2

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> CovarianceSlopes:
        by_unit = by_variance * self.scale2
        parts = [
            part.slopes(np.ascontiguousarray(by_mean[:, c : c + 1]), np.ascontiguousarray(by_unit[:, c : c + 1]))
            for c, part in enumerate(self.parts)
        ]
        by_scale = _summed(2 * (by_variance * self.variance[:, 0]).sum(axis=0), len(self.scale2))
        parameters = {
            **self.own.length_slopes(self.values, np.stack([by.log_lengths for by in parts])),
            "log_shape": np.sum([by.log_shape for by in parts], axis=0),
            "log_scale": by_scale,
        }
        targets, noises = (np.concatenate([getattr(by, name) for by in parts], -1) for name in ("targets", "noises"))
        noises = noises if self.noises > 1 else noises.sum(axis=-1, keepdims=True)
        return CovarianceSlopes(parameters, targets, noises)

    def kernel_weights(self) -> list[KernelWeights]:
        found, scale2 = [], np.broadcast_to(self.scale2, len(self.parts))
        for c, (lengths, part) in enumerate(zip(self.values["log_lengths"], self.parts, strict=True)):
            alpha, beta = part.weights
            found.append(KernelWeights(lengths, slice(c, c + 1), alpha, -2 * beta * scale2[c]))
        return found

    def noise_weights(self) -> NoiseWeights:
        every = zip(*(part.weights for part in self.parts), strict=True)
        alpha, beta = (np.concatenate(parts, axis=1) for parts in every)
        return _noise_weights(alpha, beta, self.scale2)


class Mixed(Covariance):
    """Latent functions f = W g that are mixtures of Q independent ones, each with a kernel of its own and scale one.

    The linear model of coregionalisation. The mixing matrix W (C, Q) takes the place of the kernel scales.
    """

    def __init__(self, kernel: Kernel, latents: int, warps: Warps, mixing: np.ndarray, shrinks: bool = True) -> None:
        super().__init__(kernel, latents, warps, latents, shrinks)
        self.start = mixing

    @property
    def matrix_rows(self) -> int:
        return self.latents

    def parameters(self) -> dict[str, Parameter]:
        return {**self._shared(self.start.shape[1:]), "mixing": _MIXING._replace(shape=self.start.shape)}

    def initial(self, scale: float) -> dict[str, np.ndarray]:
        lengths = self._finer(np.full(self.d, 0.5 * math.log(self.d)))
        return {"log_lengths": lengths, **self._start(), "mixing": self.start.copy()}

    def after(self, shared: Parameters) -> dict[str, np.ndarray]:
        mixing = self.start * np.exp(shared["log_scale"])
        return {"log_lengths": self._finer(shared["log_lengths"]), **self._start(shared), "mixing": mixing}

    def _finer(self, log_lengths: np.ndarray) -> np.ndarray:
        """Length scales (Q, d) from one kernel's (d,): more latent functions than outputs are finer ones."""
        q = np.arange(self.start.shape[1])[:, None]
        return log_lengths - math.log(3) * (q // self.latents)

    def search_lengths(self, parameters: Parameters) -> np.ndarray:
        """1 / length^2 is the mean over kernels, each counting as much as it adds to the variance."""
        shares = np.sum(parameters["mixing"] ** 2, axis=0)
        return 1 / np.sqrt((shares @ np.exp(-2 * parameters["log_lengths"])) / shares.sum())

    def scale2(self, parameters: Parameters) -> np.ndarray:
        return np.sum(parameters["mixing"] ** 2, axis=1)

    def scale_slopes(self, parameters: Parameters, by_log_scale: np.ndarray) -> dict[str, np.ndarray]:
        w = parameters["mixing"]
        return {"mixing": (by_log_scale / self.scale2(parameters))[:, None] * w}

    def kernels(self, parameters: Parameters) -> list[Kernels]:
        return [Kernels(0, self.latents, parameters["log_lengths"], parameters["mixing"])]

    def condition(
        self, parameters: Parameters, neighbourhood: Neighbourhood, ks: np.ndarray | None, differentiate: bool
    ) -> Centred:
        return _MixedCentred(self, parameters, neighbourhood, ks, differentiate)


class _MixedCentred(Centred):
    def __init__(self, own: Mixed, parameters: Parameters, near: Neighbourhood, ks: Any, differentiate: bool) -> None:
        self.own, self.parameters, self.relative = own, parameters, near.noises
        self.scale2 = own.scale2(parameters)
        near = replace(near, noises=near.noises * self.scale2)
        lengths = own.lengths(parameters, bool(near.owners.size))
        self.found = condition_outputs(
            own.kernel, lengths, parameters["log_shape"], parameters["mixing"], near, ks, differentiate=differentiate
        )
        self.mean, self.quad, self.jittered = self.found.mean, self.found.quad, self.found.jittered
        self.covariance = self.found.covariance
        self.variance = np.diagonal(self.found.covariance, axis1=-2, axis2=-1)

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> CovarianceSlopes:
        by = self.found.slopes(by_mean, by_variance)
        observed = np.isfinite(self.relative)
        by_scale2 = np.sum(by.noises * np.where(observed, self.relative, 0.0), axis=(0, 1))
        more = self.own.scale_slopes(self.parameters, 2 * self.scale2 * by_scale2)
        lengths = self.own.length_slopes(self.parameters, by.log_lengths)
        parameters = {**lengths, "log_shape": by.log_shape, "mixing": by.mixing + more["mixing"]}
        return CovarianceSlopes(parameters, by.targets, by.noises * self.scale2)

    def kernel_weights(self) -> list[KernelWeights]:
        """By k_q: the outputs of all neighbours mixed as W has them, W_sq sum_p W_pq alpha_p and the same of beta_s."""
        (alpha, beta), mixing = self.found.weights, self.parameters["mixing"]
        found = []
        for q, lengths in enumerate(self.parameters["log_lengths"]):
            w = mixing[:, q]
            mean = w[:, None] * np.einsum("p,bpk->bk", w, alpha)[:, None]
            variance = -2 * w[:, None] * np.einsum("p,bpsk->bsk", w, beta)
            found.append(KernelWeights(lengths, slice(None), mean, variance))
        return found

    def noise_weights(self) -> NoiseWeights:
        alpha, beta = self.found.weights
        mean = -np.einsum("p,bpk,bpsk->bsk", self.scale2, alpha, beta)
        return NoiseWeights(mean, np.einsum("p,bpsk->bsk", self.scale2, beta**2), None)
