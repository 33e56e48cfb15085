"""Student-t noise: heavy tails, so that outliers do not bend the fit.

A Student-t is a mixture of Gaussians: y ~ N(f, s^2 / lambda), lambda ~ Gamma(nu/2, nu/2). Given the moments of f the
best Gamma for a row has E[lambda] = (nu + 1) / (nu + E[(y - f)^2] / s^2), so an outlier gets a large pseudo-noise.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import torch

from nearfield.likelihoods._base import GIVEN, NOISE_FLOOR, TARGET, Hyper, Parameter, Sites, Weighted
from nearfield.likelihoods.gaussian import check_noisy

_NODES = 48  # of the trapezoidal rule over log lambda; its error falls exponentially
_SPREAD = 12.0  # standard deviations of log lambda, to the left; a third to the right, where the density falls faster


class StudentT(Weighted):
    """y = f + Student-t noise of learned scale and degrees of freedom. `given` is a known (Gaussian) noise variance."""

    name = "student_t"
    parameters = MappingProxyType(
        {
            "log_noise": Parameter(math.log(0.05), math.log(1e-9), math.log(10.0)),  # of the squared scale
            "log_df": Parameter(math.log(4.0), math.log(1.0), math.log(1e6)),
        }
    )
    auxiliaries = 1

    def check(self, stats: np.ndarray) -> None:
        check_noisy(stats)

    def initial_auxiliary(self, stats: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(stats), 1, dtype=stats.dtype)

    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        targets, weights, known = stats.unbind(-1)
        return Sites(targets, (hyper["log_noise"].exp() / auxiliary[..., 0] + NOISE_FLOOR * scale2 + known) / weights)

    def refreshed(self, stats: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        df, noise = hyper["log_df"].exp(), hyper["log_noise"].exp()
        squared = (stats[:, TARGET] - mean).square() + variance
        return ((df + 1) / (df + squared / noise))[:, None]

    def log_predictive(
        self, mean: torch.Tensor, variance: torch.Tensor, stats: torch.Tensor, hyper: Hyper
    ) -> torch.Tensor:
        """log of the integral over lambda of Gamma(lambda; nu/2, nu/2) N(y; mean, variance + s^2 / lambda)."""
        half = hyper["log_df"].exp() / 2
        log_lambda, log_step = _log_lambda_grid(float(half.detach()), mean.dtype)
        log_prior = half * half.log() - torch.lgamma(half) + half * (log_lambda - log_lambda.exp())  # in log lambda
        total = (variance + stats[:, GIVEN])[:, None] + hyper["log_noise"].exp() * torch.exp(-log_lambda)
        residual2 = (stats[:, TARGET] - mean).square()[:, None]
        log_normal = -0.5 * (torch.log(total) + residual2 / total + math.log(2 * math.pi))
        return torch.logsumexp(log_prior + log_normal, -1) + log_step


def _log_lambda_grid(half: float, dtype: torch.dtype) -> tuple[torch.Tensor, float]:
    """Equally spaced log lambda (q,) that cover Gamma(half, half), and the log of their distance."""
    deviation = math.sqrt(1 / half + 1 / (2 * half * half))  # about that of log lambda, from above
    low, high = -_SPREAD * deviation, _SPREAD / 3 * deviation
    grid = torch.linspace(low, high, _NODES, dtype=dtype)
    return grid, math.log((high - low) / (_NODES - 1))
