"""The model: a constant mean, a kernel, a noise level; all hyper-parameters in one place, and the rows they speak of.

Everything here is in standardised units: inputs and target have mean zero and variance one on the training rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from nearfield._types import KernelParameters, Moments, Neighbourhood
from nearfield.conditional import condition, condition_nested
from nearfield.kernels import Kernel, log_shapes

NOISE_FLOOR = 1e-8  # least noise variance, relative to the kernel's variance: keeps every matrix positive definite

# Bounds of the hyper-parameters, one line each: far outside of what data can tell apart, so that nothing runs away.
BOUNDS: dict[str, tuple[float, float]] = {
    "log_lengths": (math.log(1e-4), math.log(1e3)),
    "log_scale": (math.log(1e-3), math.log(1e2)),
    "log_shape": (math.log(1e-2), math.log(1e3)),
    "log_noise": (math.log(1e-9), math.log(10.0)),  # of the variance
    "mean": (-10.0, 10.0),
}


def take(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """values[ids], ids of any shape, without the threads that torch's own indexing starts for the smallest call."""
    return values.index_select(0, ids.reshape(-1)).reshape(*ids.shape, *values.shape[1:])


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that may be neighbours: inputs (n, d), targets, how often each counts and known noise variances (n,)."""

    inputs: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    known_noise: torch.Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def counts(self, ids: torch.Tensor, own: torch.Tensor | None) -> torch.Tensor:
        """How often each neighbour (b, k) counts; the left-out rows' `own` numbers (b,) count once less."""
        counts = take(self.weights, ids.clamp_min(0))
        return counts if own is None else counts - (ids == own[:, None]).to(counts.dtype)


@dataclass(eq=False)
class Model:
    """Hyper-parameters as torch leaves, and the latent moments that follow from them."""

    kernel: Kernel
    log_lengths: torch.Tensor  # (d,)
    log_scale: torch.Tensor  # ()
    log_shape: torch.Tensor  # (p,)
    log_noise: torch.Tensor  # () log noise variance
    mean: torch.Tensor  # ()
    engine: str = "fused"

    @classmethod
    def initial(cls, kernel: Kernel, d: int, dtype: torch.dtype = torch.float64, engine: str = "fused") -> Model:
        """Length scales of the order of the distance between two standardised rows, and a tenth of noise."""

        def leaf(value: float | np.ndarray) -> torch.Tensor:
            return torch.tensor(value, dtype=dtype, requires_grad=True)

        return cls(
            kernel, leaf(np.full(d, 0.5 * math.log(d))), leaf(0.0), leaf(log_shapes(kernel)), leaf(math.log(0.1)),
            leaf(0.0), engine,
        )  # fmt: skip

    def hyperparameters(self) -> dict[str, torch.Tensor]:
        """All learned tensors by name."""
        return {name: getattr(self, name) for name in BOUNDS}

    def project(self) -> None:
        """Put every hyper-parameter back inside its bounds."""
        with torch.no_grad():
            for name, (low, high) in BOUNDS.items():
                getattr(self, name).clamp_(low, high)

    @property
    def lengths(self) -> np.ndarray:
        """Length scales (d,)."""
        return self.log_lengths.detach().exp().cpu().numpy()

    @property
    def noise(self) -> torch.Tensor:
        """Noise variance of one observation, with its floor."""
        return self.log_noise.exp() + NOISE_FLOOR * (2 * self.log_scale).exp()

    def latent(self, rows: Rows, query: torch.Tensor, ids: torch.Tensor, own: torch.Tensor | None = None) -> Moments:
        """Moments (b,) of the latent function at query (b, d), given the neighbours ids (b, k); differentiable.

        own: (b,) row numbers of the query when these are training rows left out. A row that counts w > 1 times and is
        among its own neighbours stands there for its w - 1 other copies.
        """
        places = ids.clamp_min(0)
        noises = (self.noise + take(rows.known_noise, places)) / rows.counts(ids, own)
        neighbourhood = Neighbourhood(query, rows.inputs, ids, take(rows.targets, places) - self.mean, noises)
        moments = condition(self.kernel, self._parameters, neighbourhood, self.engine)
        return Moments(moments.mean + self.mean, moments.variance, moments.quad, moments.jittered)

    def latent_nested(self, rows: Rows, query: torch.Tensor, ids: torch.Tensor, counts: np.ndarray) -> Moments:
        """The same (b, k), given the first 1, 2, .. k neighbours, which count (b, k) times; without gradients.

        In numpy, because the arrays are large and torch would use OpenMP for them, in which a forked process hangs.
        """
        places = np.maximum(ids.numpy(), 0)
        mean, noise = float(self.mean.detach()), float(self.noise.detach())
        noises = (noise + rows.known_noise.numpy()[places]) / np.maximum(counts, 1e-300)  # none where there is no row
        targets = rows.targets.numpy()[places] - mean
        neighbourhood = Neighbourhood(query, rows.inputs, ids, torch.from_numpy(targets), torch.from_numpy(noises))
        m = condition_nested(self.kernel, self._parameters, neighbourhood, self.engine)
        return Moments(torch.from_numpy(m.mean.numpy() + mean), m.variance, m.quad, m.jittered)

    @property
    def _parameters(self) -> KernelParameters:
        return KernelParameters(self.log_lengths, self.log_scale, self.log_shape)
