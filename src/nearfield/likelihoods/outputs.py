"""Several real outputs with Gaussian noise, any of which may be missing in a row.

The statistics of a row are its targets (P), how often it counts (1) and the known noise variances of its targets (P). A
missing target is one whose known noise variance is `MISSING`: it says nothing, whichever value stands in its place.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from nearfield.conditional.coregional import MISSING
from nearfield.likelihoods._base import NOISE_FLOOR, Hyper, Likelihood, Observations, Sites
from nearfield.likelihoods.gaussian import Gaussian


class GaussianOutputs(Likelihood):
    """y_p = f_p + noise for P outputs.

    alike: whether all outputs have the same kernel scale and noise level. Where nothing is missing and no noise is
    known, they then share the noises, and one factorisation serves them all.
    """

    name = "gaussian_outputs"

    def __init__(self, outputs: int, alike: bool = False) -> None:
        self.outputs, self.alike = outputs, alike
        self.latents = (outputs,)
        self.additive = (outputs,)
        self.width = 2 * outputs + 1
        self.parameters = {"log_noise": Gaussian.parameters["log_noise"]._replace(each=not alike)}

    @property
    def scales(self) -> tuple[int, ...]:
        return (1,) if self.alike else self.latents

    def split(self, stats: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Targets (..., P), weights (..., 1) and known noise variances (..., P)."""
        p = self.outputs
        return stats[..., :p], stats[..., p : p + 1], stats[..., p + 1 :]

    def present(self, stats: torch.Tensor) -> torch.Tensor:
        """Which targets (..., P) are there."""
        return self.split(stats)[2] < MISSING / 2

    def check(self, stats: np.ndarray) -> None:
        sound = stats.ndim == 2 and stats.shape[1] == self.width and bool(np.isfinite(stats).all())
        if not (sound and (stats[:, self.outputs] > 0).all() and (stats[:, self.outputs + 1 :] >= 0).all()):
            raise ValueError(
                "finite targets, positive weights and known noise variances of at least zero are expected."
            )

    def counts(self, stats: torch.Tensor) -> torch.Tensor:
        return self.split(stats)[1][..., 0]

    def seen(self, stats: torch.Tensor) -> torch.Tensor:
        return self.split(stats)[1] * self.present(stats)

    def observations(self, stats: torch.Tensor) -> Observations:
        single = stats.clone()
        single[:, self.outputs] = 1
        return Observations(torch.arange(len(stats)), single, self.counts(stats))

    def noise(self, hyper: Hyper, scale2: torch.Tensor) -> torch.Tensor:
        return hyper["log_noise"].exp() + NOISE_FLOOR * scale2

    def known_noise(self, stats: torch.Tensor) -> torch.Tensor:
        """Without the marks of missing targets."""
        return torch.where(self.present(stats), self.split(stats)[2], 0.0)

    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        targets, weights, known = self.split(stats)
        noise = self.noise(hyper, scale2)
        if self.alike and not bool(known.any()):
            return Sites(targets, noise / scale2 / weights)
        return Sites(targets, (noise + known) / weights)

    def log_predictive(
        self, mean: torch.Tensor, variance: torch.Tensor, stats: torch.Tensor, hyper: Hyper
    ) -> torch.Tensor:
        """Mean over outputs of the marginal log densities; missing outputs add nothing."""
        targets, _, known = self.split(stats)
        total = variance + hyper["log_noise"].exp() + known
        each = -0.5 * (torch.log(total) + (targets - mean).square() / total + math.log(2 * math.pi))
        return torch.where(self.present(stats), each, 0.0).sum(-1) / self.outputs


def statistics(targets: np.ndarray, weights: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Statistics (n, 2 P + 1) from targets (n, P), NaN where missing, weights (n,) and known noise variances (n, P)."""
    missing = np.isnan(targets)
    return np.concatenate(
        [np.where(missing, 0.0, targets), weights[:, None], np.where(missing, MISSING, known)], axis=1
    )
