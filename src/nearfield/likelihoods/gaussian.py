"""Gaussian noise, of the same level for all rows plus what is known of each."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import torch

from nearfield.likelihoods._base import GIVEN, NOISE_FLOOR, TARGET, WEIGHT, Hyper, Parameter, Sites, Weighted


class Noisy(Weighted):
    """Real targets with a learned noise level (a variance, or the squared scale of heavy tails) and what is known."""

    def check(self, stats: np.ndarray) -> None:
        targets, weights, known = stats[:, TARGET], stats[:, WEIGHT], stats[:, GIVEN]
        if not (np.isfinite(targets).all() and (weights > 0).all() and np.isfinite(known).all() and (known >= 0).all()):
            raise ValueError(
                "finite targets, positive weights and known noise variances of at least zero are expected."
            )

    def noise(self, hyper: Hyper, scale2: torch.Tensor) -> torch.Tensor:
        return hyper["log_noise"].exp() + NOISE_FLOOR * scale2

    def known_noise(self, stats: torch.Tensor) -> torch.Tensor:
        return stats[..., GIVEN]


class Gaussian(Noisy):
    """y = f + noise. The sites are the observations themselves. `given` is a known noise variance."""

    name = "gaussian"
    parameters = MappingProxyType(
        {"log_noise": Parameter(math.log(0.1), math.log(1e-9), math.log(10.0))}
    )  # of the variance

    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        targets, weights, known = stats.unbind(-1)
        return Sites(targets, (self.noise(hyper, scale2) + known) / weights)

    def log_predictive(
        self, mean: torch.Tensor, variance: torch.Tensor, stats: torch.Tensor, hyper: Hyper
    ) -> torch.Tensor:
        """The terms of Eq. (9), eqn:cvk."""
        total = variance + hyper["log_noise"].exp() + stats[:, GIVEN]
        doubled = torch.addcdiv(torch.log(total), (stats[:, TARGET] - mean).square(), total)  # log v + (y - m)^2 / v
        return -0.5 * (doubled + math.log(2 * math.pi))
