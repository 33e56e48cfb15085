"""The model: a constant mean, a kernel, a likelihood; all hyper-parameters in one place, and the rows they speak of.

Everything here is in standardised units: inputs have mean zero and variance one on the training rows, and so has a
target with Gaussian or Student-t noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from nearfield._types import KernelParameters, Moments, Neighbourhood
from nearfield.conditional import condition, condition_nested
from nearfield.conditional.coregional import condition_outputs, condition_outputs_nested
from nearfield.conditional.joint import joint_log_density
from nearfield.kernels import Kernel, log_shapes
from nearfield.likelihoods import Likelihood, Observations, Sites

# Bounds of the hyper-parameters, one line each: far outside of what data can tell apart, so that nothing runs away.
# A likelihood adds its own.
BOUNDS: dict[str, tuple[float, float]] = {
    "log_lengths": (math.log(1e-4), math.log(1e3)),
    "log_scale": (math.log(1e-3), math.log(1e2)),
    "mixing": (-1e2, 1e2),
    "log_shape": (math.log(1e-2), math.log(1e3)),
    "mean": (-30.0, 30.0),
}


def take(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """values[ids], ids of any shape, without the threads that torch's own indexing starts for the smallest call."""
    return values.index_select(0, ids.reshape(-1)).reshape(*ids.shape, *values.shape[1:])


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that may be neighbours: inputs (n, d), the likelihood's statistics (n, S) and auxiliaries (n, A).

    `observations` are what can be left out of them; `auxiliary` alone changes while training. Rows of the same group
    (n,), where there are groups, are left out together.
    """

    inputs: torch.Tensor
    stats: torch.Tensor
    auxiliary: torch.Tensor
    observations: Observations
    groups: torch.Tensor | None = None

    @classmethod
    def of(
        cls, likelihood: Likelihood, inputs: np.ndarray, stats: np.ndarray, groups: np.ndarray | None = None
    ) -> Rows:
        """Rows about which nothing is known yet."""
        x, s = (torch.from_numpy(np.ascontiguousarray(a, dtype=np.float64)) for a in (inputs, stats))
        together = None if groups is None else torch.from_numpy(np.ascontiguousarray(groups, dtype=np.int64))
        return cls(x, s, likelihood.initial_auxiliary(s), likelihood.observations(s), together)

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(eq=False)
class Model:
    """Hyper-parameters as torch leaves, and the latent moments that follow from them.

    With a mixing matrix (C, Q) the C latent functions are mixtures of Q independent ones, each with a kernel of its
    own: the linear model of coregionalisation. It takes the place of the kernel scales.
    """

    kernel: Kernel
    likelihood: Likelihood
    log_lengths: torch.Tensor  # (d,), or (C, d): one kernel for each latent function; (Q, d) with a mixing matrix
    log_scale: torch.Tensor  # of the shape likelihood.scales
    log_shape: torch.Tensor  # (p,)
    mean: torch.Tensor  # latents
    noise_model: dict[str, torch.Tensor] = field(default_factory=dict)  # the likelihood's parameters
    engine: str = "fused"
    mixing: torch.Tensor | None = None  # (C, Q)

    @classmethod
    def initial(
        cls,
        kernel: Kernel,
        d: int,
        likelihood: Likelihood,
        mean: np.ndarray | float = 0.0,
        dtype: torch.dtype = torch.float64,
        engine: str = "fused",
        own_kernels: bool = False,
        mixing: np.ndarray | None = None,
    ) -> Model:
        """Length scales of the order of the distance between two standardised rows, and a tenth of noise."""

        def leaf(value: float | np.ndarray) -> torch.Tensor:
            return torch.tensor(value, dtype=dtype, requires_grad=True)

        latents = likelihood.latents
        kernels = latents if own_kernels else () if mixing is None else (mixing.shape[1],)
        lengths = np.full((*kernels, d), 0.5 * math.log(d))
        if mixing is not None:  # more latent functions than outputs: finer ones
            lengths -= math.log(3) * (np.arange(mixing.shape[1]) // len(mixing))[:, None]
        noise_model = {
            name: leaf(np.full(latents if p.each else (), p.initial)) for name, p in likelihood.parameters.items()
        }
        scale = math.log(likelihood.initial_scale)
        start = leaf(np.broadcast_to(mean, latents).copy())
        return cls(
            kernel, likelihood, leaf(lengths), leaf(np.full(likelihood.scales, scale)), leaf(log_shapes(kernel)), start,
            noise_model, engine, None if mixing is None else leaf(mixing),
        )  # fmt: skip

    def hyperparameters(self) -> dict[str, torch.Tensor]:
        """All learned tensors by name."""
        unused = "mixing" if self.mixing is None else "log_scale"
        return {name: getattr(self, name) for name in BOUNDS if name != unused} | self.noise_model

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Bounds of all learned tensors by name."""
        every = BOUNDS | {name: (p.low, p.high) for name, p in self.likelihood.parameters.items()}
        return {name: every[name] for name in self.hyperparameters()}

    def project(self) -> None:
        """Put every hyper-parameter back inside its bounds."""
        with torch.no_grad():
            for name, value in self.hyperparameters().items():
                value.clamp_(*self.bounds()[name])

    @property
    def lengths(self) -> np.ndarray:
        """Length scales (d,) under which neighbours are searched: with several kernels, their geometric mean.

        With a mixing matrix, 1 / length^2 is the mean over kernels, each counting as much as it adds to the variance.
        """
        log_lengths = self.log_lengths.detach()
        if self.mixing is not None:
            shares = self.mixing.detach().square().sum(0)
            precision = (shares @ (-2 * log_lengths).exp()) / shares.sum()
            return precision.rsqrt().cpu().numpy()
        return (log_lengths if log_lengths.ndim == 1 else log_lengths.mean(0)).exp().cpu().numpy()

    @property
    def outputs(self) -> int:
        """Rows that each neighbour adds to a matrix: more than one where latent functions depend on each other."""
        return 1 if self.mixing is None else len(self.mixing)

    @property
    def noise(self) -> torch.Tensor | None:
        """Noise variance of one observation (of a Student-t: its squared scale), where the likelihood has one."""
        return self.likelihood.noise(self.noise_model, self._scale2)

    @property
    def scales(self) -> torch.Tensor:
        """Standard deviations of the latent functions before anything is observed."""
        return self._scale2.sqrt()

    @property
    def _scale2(self) -> torch.Tensor:
        return (2 * self.log_scale).exp() if self.mixing is None else self.mixing.square().sum(1)

    def latent(
        self,
        rows: Rows,
        query: torch.Tensor,
        ids: torch.Tensor,
        left_out: Observations | None = None,
        rng: np.random.Generator | None = None,
    ) -> Moments:
        """Moments (b,) + latents of the latent function at query (b, d), given the neighbours ids (b, k).

        Differentiable. left_out: the observations that the query stands for. A row of several observations is among the
        neighbours of each of them, without the one left out. rng: while training, for likelihoods that sample.
        """
        sites = self._sites(rows, ids, left_out, rng)
        return self._moments(query, rows, ids, sites, None)

    def joint(self, rows: Rows, ids: torch.Tensor) -> torch.Tensor:
        """Joint log density (b,) of the targets of the rows ids (b, k), -1 for none; differentiable."""
        sites = self._sites(rows, ids, None, None)
        parameters = KernelParameters(self.log_lengths, self.log_scale, self.log_shape)
        return joint_log_density(self.kernel, parameters, rows.inputs, ids, sites.targets - self.mean, sites.noises)

    def latent_nested(
        self,
        rows: Rows,
        query: torch.Tensor,
        ids: torch.Tensor,
        ks: np.ndarray,
        left_out: Observations | None = None,
    ) -> Moments:
        """The same (b, q) + latents, given the first ks (q,) neighbours; without gradients."""
        with torch.no_grad():
            return self._moments(query, rows, ids, self._sites(rows, ids, left_out, None), ks)

    def posterior(self, moments: Moments, rows: Rows, left_out: Observations) -> Moments:
        """Moments with the left-out observations put back: the product with their own sites."""
        with torch.no_grad():
            auxiliary = take(rows.auxiliary, left_out.row)[:, None]
            sites = self.likelihood.sites(left_out.stats[:, None], auxiliary, self.noise_model, self._scale2)
            targets, noises = sites.targets[:, 0], sites.noises[:, 0]
            gain = moments.variance / (moments.variance + noises)
            return replace(
                moments, mean=moments.mean + gain * (targets - moments.mean), variance=moments.variance * (1 - gain)
            )

    def _sites(
        self, rows: Rows, ids: torch.Tensor, left_out: Observations | None, rng: np.random.Generator | None
    ) -> Sites:
        """Sites of the neighbours (b, k), the left-out observations taken away."""
        places = ids.clamp_min(0)
        stats = take(rows.stats, places)
        if left_out is not None:
            stats = self._without(stats, ids, left_out)
        return self.likelihood.sites(stats, take(rows.auxiliary, places), self.noise_model, self._scale2, rng)

    def _without(self, stats: torch.Tensor, ids: torch.Tensor, left_out: Observations) -> torch.Tensor:
        """Statistics (b, k, S) of the neighbours without the observation left out, or the part of it that counts."""
        own = ((ids == left_out.row[:, None]).to(stats.dtype) * left_out.weights.clamp_max(1.0)[:, None])[..., None]
        columns = list(self.likelihood.additive) or list(range(stats.shape[-1]))
        rest = stats.clone()
        rest[..., columns] = (stats[..., columns] - own * left_out.stats[:, None, columns]).clamp_min(0)
        return rest

    def _moments(
        self, query: torch.Tensor, rows: Rows, ids: torch.Tensor, sites: Sites, ks: np.ndarray | None
    ) -> Moments:
        targets = sites.targets - self.mean
        if self.mixing is not None:
            return self._mixed(self.mixing, query, rows, ids, Sites(targets, sites.noises), ks)
        if self.log_lengths.ndim == 2:  # a kernel for each latent function
            parts = [
                self._condition(
                    self.log_lengths[c], self.log_scale[c], query, rows, ids, targets[..., c],
                    self._noise_of(sites, c), ks,
                )
                for c in range(len(self.log_lengths))
            ]  # fmt: skip
            mean, variance, quad = (
                torch.stack([getattr(p, name) for p in parts], -1) for name in ("mean", "variance", "quad")
            )
            return Moments(mean + self.mean, variance, quad, sum(p.jittered for p in parts))
        shared = sites.noises.shape[-1] == 1 and sites.targets.ndim == 3
        log_scale = torch.zeros((), dtype=targets.dtype) if shared else self.log_scale.expand(sites.noises.shape[2:])
        m = self._condition(self.log_lengths, log_scale, query, rows, ids, targets, sites.noises, ks)
        if not shared:
            return replace(m, mean=m.mean + self.mean)
        variance = (m.variance * self._scale2).expand_as(m.mean)
        return Moments(m.mean + self.mean, variance, m.quad / self._scale2, m.jittered)

    def _mixed(
        self,
        mixing: torch.Tensor,
        query: torch.Tensor,
        rows: Rows,
        ids: torch.Tensor,
        sites: Sites,
        ks: np.ndarray | None,
    ) -> Moments:
        neighbourhood = Neighbourhood(query, rows.inputs, ids, *sites)
        given = (self.kernel, self.log_lengths, mixing, self.log_shape, neighbourhood, self.engine)
        m = condition_outputs(*given) if ks is None else condition_outputs_nested(*given, ks=ks)
        variance = m.covariance.diagonal(dim1=-2, dim2=-1)
        return Moments(m.mean + self.mean, variance, m.quad, m.jittered, m.covariance)

    def _noise_of(self, sites: Sites, c: int) -> torch.Tensor:
        """Noises (b, k) of one latent function, in the units of its targets."""
        shared = sites.noises.shape[-1] == 1
        return sites.noises[..., 0] * self._scale2[c] if shared else sites.noises[..., c]

    def _condition(
        self,
        log_lengths: torch.Tensor,
        log_scale: torch.Tensor,
        query: torch.Tensor,
        rows: Rows,
        ids: torch.Tensor,
        targets: torch.Tensor,
        noises: torch.Tensor,
        ks: np.ndarray | None,
    ) -> Moments:
        parameters = KernelParameters(log_lengths, log_scale, self.log_shape)
        neighbourhood = Neighbourhood(query, rows.inputs, ids, targets, noises)
        if ks is None:
            return condition(self.kernel, parameters, neighbourhood, self.engine)
        return condition_nested(self.kernel, parameters, neighbourhood, self.engine, ks=ks)
