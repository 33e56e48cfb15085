"""Counts: binomial and negative binomial, by Polya-Gamma augmentation (app. "Other likelihoods" of the paper).

Both have the form e^(a psi) / (1 + e^psi)^b up to a constant, with psi = f + offset: a Gaussian site for f of precision
b E[omega], omega ~ PG(1, c), and target (a - b/2) / (b E[omega]) - offset; c^2 = E[psi^2] given all rows.

    binomial             a = successes    b = trials               psi = f
    negative binomial    a = count        b = count + dispersion   psi = f + log exposure - log dispersion

so that exp(f) is the expected count per unit of exposure.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch

from nearfield.counts import posterior_nodes
from nearfield.likelihoods._base import GIVEN, TARGET, WEIGHT, Hyper, Parameter, Sites, Weighted
from nearfield.polya_gamma import mean_weight


class _Shape(NamedTuple):
    """a, b and the offset of each row."""

    a: torch.Tensor
    b: torch.Tensor
    offset: torch.Tensor


class LogisticCounts(Weighted):
    """What both counts have in common; `_shape` is all that differs, and the constant of the density."""

    auxiliaries = 1

    def _shape(self, stats: torch.Tensor, hyper: Hyper) -> _Shape:
        raise NotImplementedError

    def _log_constant(self, stats: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        raise NotImplementedError

    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        a, b, offset = self._shape(stats, hyper)
        noises = 1 / (b * mean_weight(auxiliary[..., 0]))
        return Sites((a - b / 2) * noises - offset, noises / stats[..., WEIGHT])

    def refreshed(self, stats: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        psi = mean + self._shape(stats, hyper).offset
        return (psi.square() + variance).sqrt()[:, None]

    def log_predictive(
        self, mean: torch.Tensor, variance: torch.Tensor, stats: torch.Tensor, hyper: Hyper
    ) -> torch.Tensor:
        """By nodes around the mode of the integrand, which may be far narrower than the latent function's density."""
        a, b, offset = self._shape(stats, hyper)
        variance = variance.clamp_min(1e-12)
        fixed = (x.detach().numpy() for x in torch.broadcast_tensors(mean + offset, variance, a, b))
        psi, log_weights = (torch.from_numpy(x) for x in _nodes(*fixed))  # (b, q), held fixed
        log_prior = -0.5 * (
            (psi - (mean + offset)[:, None]).square() / variance[:, None]
            + torch.log(2 * math.pi * variance)[:, None]
        )  # fmt: skip
        log_likelihood = a[:, None] * psi - b[:, None] * torch.nn.functional.softplus(psi)
        return torch.logsumexp(log_prior + log_likelihood + log_weights, -1) + self._log_constant(stats, hyper)


class Binomial(LogisticCounts):
    """Successes out of `given` trials, with probability sigmoid(f)."""

    name = "binomial"

    def check(self, stats: np.ndarray) -> None:
        _check_counts(stats[:, TARGET], "the number of successes")
        trials = stats[:, GIVEN]
        _check_counts(trials, "the number of trials")
        if (trials < 1).any() or (stats[:, TARGET] > trials).any():
            raise ValueError(
                f"{int(((trials < 1) | (stats[:, TARGET] > trials)).sum())} rows have no trials or more successes than "
                "trials: pass trials= with at least one, and at least as many as successes, for each row."
            )

    def initial_mean(self, stats: np.ndarray) -> np.ndarray:
        successes, trials = stats[:, TARGET].sum() + 0.5, stats[:, GIVEN].sum() + 1
        return np.array(math.log(successes / (trials - successes)))

    def _shape(self, stats: torch.Tensor, hyper: Hyper) -> _Shape:
        return _Shape(stats[..., TARGET], stats[..., GIVEN], torch.zeros((), dtype=stats.dtype))

    def _log_constant(self, stats: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        y, n = stats[:, TARGET], stats[:, GIVEN]
        return torch.lgamma(n + 1) - torch.lgamma(y + 1) - torch.lgamma(n - y + 1)


class NegativeBinomial(LogisticCounts):
    """Counts of expectation exp(f) times the exposure, variance mu + mu^2 / dispersion. `given` is the log exposure."""

    name = "negative_binomial"
    parameters = MappingProxyType({"log_dispersion": Parameter(0.0, math.log(1e-3), math.log(1e4))})

    def check(self, stats: np.ndarray) -> None:
        _check_counts(stats[:, TARGET], "the target")
        if not np.isfinite(stats[:, GIVEN]).all():
            raise ValueError("exposure must be finite and above zero for each row.")

    def initial_mean(self, stats: np.ndarray) -> np.ndarray:
        exposure = np.exp(stats[:, GIVEN] - stats[:, GIVEN].max())
        rate = (stats[:, TARGET].sum() + 0.5) / exposure.sum()
        return np.array(math.log(rate) - stats[:, GIVEN].max())

    def _shape(self, stats: torch.Tensor, hyper: Hyper) -> _Shape:
        y, log_dispersion = stats[..., TARGET], hyper["log_dispersion"]
        return _Shape(y, y + log_dispersion.exp(), stats[..., GIVEN] - log_dispersion)

    def _log_constant(self, stats: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        y, dispersion = stats[:, TARGET], hyper["log_dispersion"].exp()
        return torch.lgamma(y + dispersion) - torch.lgamma(dispersion) - torch.lgamma(y + 1)


def _check_counts(values: np.ndarray, what: str) -> None:
    wrong = ~(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))
    if wrong.any():
        raise ValueError(
            f"{what} has {int(wrong.sum())} values that are no counts (for example {values[wrong][0]:g}): whole "
            "numbers of at least zero are expected."
        )


def _nodes(mean: np.ndarray, variance: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n, q) and log weights (n, q) that integrate e^(a psi) / (1 + e^psi)^b N(psi; mean, variance) over psi."""
    std = np.sqrt(variance)
    z, log_weights = posterior_nodes(a, b - a, mean, std)
    return mean[:, None] + std[:, None] * z, log_weights + np.log(std)[:, None]
