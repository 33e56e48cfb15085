"""Student-t noise: heavy tails, so that outliers do not bend the fit.

A Student-t is a mixture of Gaussians: y ~ N(f, s^2 / lambda), lambda ~ Gamma(nu/2, nu/2). Given the moments of f the
best Gamma for a row has E[lambda] = (nu + 1) / (nu + e / s^2), e = E[(y - f)^2], so an outlier gets a large
pseudo-noise. The auxiliary of a row is e, not E[lambda]: while s^2 falls in training, rows that are not visited for
long would otherwise become ever more certain, outliers among them.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import torch

from nearfield.likelihoods._base import GIVEN, NOISE_FLOOR, TARGET, Hyper, Parameter, Sites
from nearfield.likelihoods.gaussian import Noisy

_OUTLIER = 0.05  # E[lambda] of a row ten scales off, with four degrees of freedom
_LEAST = 1e-12  # squared residual: auxiliaries are above zero
_NODES = 64  # of the trapezoidal rule over log lambda; its error falls exponentially


class StudentT(Noisy):
    """y = f + Student-t noise of learned scale and degrees of freedom. `given` is a known (Gaussian) noise variance."""

    name = "student_t"
    parameters = MappingProxyType(
        {
            "log_noise": Parameter(math.log(0.05), math.log(1e-9), math.log(10.0)),  # of the squared scale
            "log_df": Parameter(math.log(6.0), math.log(4.0), math.log(1e6)),
        }
    )
    auxiliaries = 1

    def initial_auxiliary(self, stats: torch.Tensor) -> torch.Tensor:
        """As if f were zero everywhere: what is far out counts for little."""
        return stats[:, TARGET : TARGET + 1].square().clamp_min(_LEAST)

    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        targets, weights, known = stats.unbind(-1)
        df, noise = hyper["log_df"].exp(), hyper["log_noise"].exp()
        widened = (df * noise + auxiliary[..., 0]) / (df + 1)  # s^2 / E[lambda]
        return Sites(targets, (widened + NOISE_FLOOR * scale2 + known) / weights)

    def refreshed(self, stats: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        return ((stats[:, TARGET] - mean).square() + variance).clamp_min(_LEAST)[:, None]

    def trust(self, auxiliary: torch.Tensor, hyper: Hyper) -> torch.Tensor | None:
        """Nothing is learned from how badly an outlier is predicted: its score would only widen the noise."""
        df, noise = (hyper[name].detach().exp() for name in ("log_df", "log_noise"))
        return ((df + 1) / (df + auxiliary[:, 0] / noise) > _OUTLIER).to(auxiliary.dtype)

    def log_predictive(
        self, mean: torch.Tensor, variance: torch.Tensor, stats: torch.Tensor, hyper: Hyper
    ) -> torch.Tensor:
        """log of the integral over lambda of Gamma(lambda; nu/2, nu/2) N(y; mean, variance + s^2 / lambda)."""
        half = hyper["log_df"].exp() / 2
        variance = variance + stats[:, GIVEN]
        residual2 = (stats[:, TARGET] - mean).square()
        with torch.no_grad():
            log_lambda, step = _log_lambda_grid(half, variance, hyper["log_noise"].exp(), residual2)
        log_prior = half * half.log() - torch.lgamma(half) + half * (log_lambda - log_lambda.exp())  # in log lambda
        total = variance[:, None] + hyper["log_noise"].exp() * torch.exp(-log_lambda)
        log_normal = -0.5 * (torch.log(total) + residual2[:, None] / total + math.log(2 * math.pi))
        return torch.logsumexp(log_prior + log_normal, -1) + torch.log(step)


def _log_lambda_grid(
    half: torch.Tensor, variance: torch.Tensor, noise: torch.Tensor, residual2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Equally spaced log lambda (b, q) around the mode of each row's integrand, and their distance (b,).

    An outlier of r scales moves the mode to about -2 log r. To its left the integrand falls like lambda^half at least,
    to its right like a normal density and faster.
    """

    def slope(u: torch.Tensor) -> torch.Tensor:
        spread = noise * torch.exp(-u)
        total = variance + spread
        return half * (1 - torch.exp(u)) + 0.5 * spread / total * (1 - residual2 / total)

    low, high = torch.full_like(variance, -1500.0), torch.full_like(variance, 10.0)
    for _ in range(60):
        middle = (low + high) / 2
        rising = torch.nan_to_num(slope(middle), nan=1.0) > 0
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    bend = (slope(low - 1e-4) - slope(low + 1e-4)) / 2e-4
    width = 1 / torch.sqrt(torch.nan_to_num(bend, nan=0.0).clamp_min(1e-3))
    left, right = torch.maximum(10 * width, 25 / half), 8 * width
    steps = torch.linspace(0, 1, _NODES, dtype=variance.dtype)
    return (low - left)[:, None] + (left + right)[:, None] * steps, (left + right) / (_NODES - 1)
