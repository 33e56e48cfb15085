"""Counts: binomial and negative binomial (app. "Other likelihoods" of the paper).

Both have the form e^(a psi) / (1 + e^psi)^b up to a constant, with psi = f + offset:

    binomial             a = successes    b = trials               psi = f
    negative binomial    a = count        b = count + dispersion   psi = f + log exposure - log dispersion

so that exp(f) is the expected count per unit of exposure. Two kinds of Gaussian sites for f:

    curvature    precision W = b s (1 - s), target m + (a - b s) / W, with s = sigmoid(psi) at the mean m of f given all
                 rows: the second derivative of the log likelihood there.
    conjugate    the paper's Polya-Gamma augmentation: precision b E[omega], omega ~ PG(1, c), c^2 = E[psi^2], target
                 (a - b/2) / (b E[omega]) - offset. Its precision is a bound that is far too large where s is near 0 or
                 1, as it is for counts much larger than the dispersion (10^4 times for counts of 10^6): such sites only
                 repeat what they were before, and noise is taken for signal.
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

AUXILIARY = ("curvature", "conjugate")
_LEAST_PRECISION = 1e-6  # of a site
_LONGEST_STEP = 4.0  # of a precise target from the mean: Newton's may go astray far from the mode


class _Shape(NamedTuple):
    """a, b and the offset of each row."""

    a: torch.Tensor
    b: torch.Tensor
    offset: torch.Tensor


class LogisticCounts(Weighted):
    """What both counts have in common; `_shape` is all that differs, and the constant of the density."""

    auxiliaries = 1

    def __init__(self, auxiliary: str = "curvature") -> None:
        self.auxiliary = auxiliary

    def initial_auxiliary(self, stats: torch.Tensor) -> torch.Tensor:
        """From each row alone: its own log odds, half a count on either side."""
        hyper = {name: torch.tensor(p.initial, dtype=stats.dtype) for name, p in self.parameters.items()}
        a, b, offset = self._shape(stats, hyper)
        psi = torch.log((a + 0.5) / (b - a + 0.5))
        return (psi - offset if self.auxiliary == "curvature" else psi.abs())[:, None]

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
        if self.auxiliary == "conjugate":
            noises = 1 / (b * mean_weight(auxiliary[..., 0]))
            return Sites((a - b / 2) * noises - offset, noises / stats[..., WEIGHT])
        mean = auxiliary[..., 0]
        share = torch.sigmoid(mean + offset)
        noises = 1 / (b * share * (1 - share)).clamp_min(_LEAST_PRECISION)
        longest = _LONGEST_STEP + noises
        step = torch.maximum(torch.minimum((a - b * share) * noises, longest), -longest)
        return Sites(mean + step, noises / stats[..., WEIGHT])

    def refreshed(self, stats: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        if self.auxiliary == "curvature":
            return mean[:, None]
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
        weights = stats[:, WEIGHT]
        successes, trials = weights @ stats[:, TARGET] + 0.5, weights @ stats[:, GIVEN] + 1
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
        rate = (stats[:, WEIGHT] @ stats[:, TARGET] + 0.5) / (stats[:, WEIGHT] @ exposure)
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
