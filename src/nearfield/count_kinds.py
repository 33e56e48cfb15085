"""Two kinds of counts given their latent function, and the probability that they are no more than so many.

`counts.py` says what is computed, and how.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, expit

from nearfield._compiled import compiled
from nearfield._simd import exp_nonpositive
from nearfield.marginals import NODES, REACH, TINY, WEIGHTS, beta_reaches
from nearfield.polya_gamma import erfcx_positive

Array = NDArray[np.float64]

LARGEST_COUNT = 2.0**53
_BLOCK = 4096  # points integrated at once
_LARGEST_MOMENT = 1e150  # of the mean and the standard deviation, so that the variance is finite


@dataclass(frozen=True)
class NegativeBinomial:
    """Dispersion r (n,). The coordinate of a count is its logarithm."""

    dispersion: Array

    def take(self, rows: NDArray[np.intp]) -> NegativeBinomial:
        return NegativeBinomial(self.dispersion[rows])

    @property
    def supremum(self) -> Array:
        return np.full(self.dispersion.shape, np.inf)

    def failures(self, x: Array) -> Array:
        """Power c of sigmoid(-f)."""
        return self.dispersion

    def log_coefficient(self, y: Array) -> Array:
        """log C = log Gamma(y + r) - log Gamma(r) - log y!"""
        return -betaln(self.dispersion, y + 1) - np.log(y + self.dispersion)

    def coordinate(self, x: Array) -> Array:
        return np.log(x + 2)

    def count(self, v: Array) -> Array:
        return np.exp(np.minimum(v, 37.0)) - 2

    def stretch(self, x: Array) -> Array:
        """Counts for each unit of the coordinate."""
        return x + 2

    def start(self, mean: Array, std: Array, z: Array) -> Array:
        """Rough coordinate of the quantile whose normal score is z."""
        centre = mean + np.log(self.dispersion)
        width = std**2 + np.minimum(1 / self.dispersion, 4.0) + np.exp(-np.maximum(centre, 0.0))
        return np.logaddexp(centre + z * np.sqrt(width), np.log(2.0))

    def moments(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the count, those of a log-normal rate and the noise around it."""
        log_mean = np.log(self.dispersion) + mean + std**2 / 2
        # Var y = E mu + E[mu^2] (1 + 1/r) - (E mu)^2 and E[mu^2] = (E mu)^2 exp(s^2)
        wide = np.minimum(std**2, 600.0)
        relative = np.exp(-np.clip(log_mean, -600.0, None)) + np.expm1(wide) + np.exp(wide) / self.dispersion
        mean, std = np.exp(np.minimum([log_mean, log_mean + np.log(relative) / 2], np.log(_LARGEST_MOMENT)))
        return mean, std

    def draw(self, f: Array, rng: np.random.Generator) -> NDArray[np.int64]:
        log_rate = f + np.log(np.maximum(rng.gamma(self.dispersion, size=f.shape), TINY))
        return rng.poisson(np.exp(np.minimum(log_rate, np.log(LARGEST_COUNT))))


@dataclass(frozen=True)
class Binomial:
    """Trials n (n,). The coordinate of a count is its logit, so that both ends are stretched."""

    trials: Array

    def take(self, rows: NDArray[np.intp]) -> Binomial:
        return Binomial(self.trials[rows])

    @property
    def supremum(self) -> Array:
        return self.trials

    def failures(self, x: Array) -> Array:
        return self.trials - x

    def log_coefficient(self, y: Array) -> Array:
        return -betaln(self.trials - y + 1, y + 1) - np.log1p(self.trials)

    def coordinate(self, x: Array) -> Array:
        return np.log(x + 2) - np.log(self.trials - x + 1)

    def count(self, v: Array) -> Array:
        return (self.trials + 3) * expit(v) - 2

    def stretch(self, x: Array) -> Array:
        return (x + 2) * (self.trials - x + 1) / (self.trials + 3)

    def start(self, mean: Array, std: Array, z: Array) -> Array:
        return mean + z * np.sqrt(std**2 + 4 / np.maximum(self.trials, 1.0))

    def moments(self, mean: Array, std: Array) -> tuple[Array, Array]:
        n, one, two = self.trials, np.ones_like(mean), np.full_like(mean, 2.0)
        first = below_zero(one, one, -mean, std)  # E sigmoid(f), one success in one trial
        second = below_zero(two, one, -mean, std)  # E sigmoid(f)^2, two in two
        noise, spread = np.maximum(first - second, 0.0), np.maximum(second - first**2, 0.0)
        return n * first, np.sqrt(n * noise + n**2 * spread)

    def draw(self, f: Array, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.binomial(self.trials.astype(np.int64), expit(f))


def below_zero(a: Array, b: Array, mean: Array, std: Array) -> Array:
    """P(f + L <= 0) for f ~ N(mean, std^2) and L the logit of a Beta(a, b) variable; all (p,)."""
    far = mean < -20  # P(L <= -mean), from the other end where sigmoid(-mean) is too near to 1
    step = betainc(np.where(far, b, a), np.where(far, a, b), expit(np.where(far, mean, -mean)))
    found = np.where(far, 1 - step, step)
    log_peak = -a * np.log1p(b / a) - b * np.log1p(a / b) - betaln(a, b)
    _add_spread(a, b, mean, std, log_peak, found)
    return np.clip(found, 0.0, 1.0)


@compiled(error_model="numpy")
def _add_spread(a: Array, b: Array, mean: Array, std: Array, log_peak: Array, found: Array) -> None:
    """Add to `found` the integral of p_L(l) (Phi(-(l + mean) / std) - 1[l < -mean]); all (p,).

    log_peak is the largest log density of L.
    """
    falls = np.empty(NODES.size)
    for i in range(a.size):
        power, kink = a[i] + b[i], -mean[i]
        mode = math.log(a[i]) - math.log(b[i])
        left, right = beta_reaches(a[i], b[i])
        low = max(mode - left, kink - REACH * std[i])
        high = max(min(mode + right, kink + REACH * std[i]), low)
        # the log density falls alike with a, b and the sign exchanged; the smaller share has more digits
        share, sign = min(a[i], b[i]) / power, 1.0 if a[i] < b[i] else -1.0
        peak = 0.5 * math.exp(log_peak[i])
        start = low
        for end in (min(max(min(mode, kink), low), high), min(max(max(mode, kink), low), high), high):
            if not end > start:
                continue
            for k in range(NODES.size):
                d = min((start + (end - start) * NODES[k] - mode) * sign, 700.0)
                falls[k] = power * (math.log1p(share * math.expm1(d)) - share * d)
            total = 0.0
            for k in range(NODES.size):
                z = (start + (end - start) * NODES[k] - kink) / std[i]
                # Phi(-|z|) = exp(-z^2 / 2) erfcx(|z| / sqrt(2)) / 2
                tail = exp_nonpositive(min(-falls[k] - 0.5 * z * z, 0.0))
                falls[k] = WEIGHTS[k] * math.copysign(tail * erfcx_positive(abs(z) * math.sqrt(0.5)), z)
            for k in range(NODES.size):
                total += falls[k]
            found[i] += (end - start) * peak * total
            start = end


def latent_of(mean: ArrayLike, variance: ArrayLike) -> tuple[Array, Array]:
    """Mean and standard deviation (n,) of a latent function, checked."""
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    if mean.ndim != 1 or mean.size == 0 or variance.shape not in ((), mean.shape):
        raise ValueError(f"The latent mean and variance are {mean.shape} and {variance.shape}; both (n,) are expected.")
    if not (np.isfinite(mean).all() and np.isfinite(variance).all() and (variance >= 0).all()):
        raise ValueError("The latent distribution needs a finite mean and a finite variance >= 0 in every row.")
    # a variance of 0 is taken as 1e-30, which no count can tell from it
    return mean, np.broadcast_to(np.sqrt(np.maximum(variance, 1e-30)), mean.shape)


def shown(value: Array) -> str:
    """A number, or the range of several, for messages."""
    return str(value) if value.ndim == 0 else f"of shape {value.shape}, from {value.min()} to {value.max()}"


def whole(first: Array, last: Array) -> tuple[NDArray[np.intp], Array]:
    """Row and value of all whole numbers from `first` to `last` (n,), none where last < first; flat."""
    lengths = np.maximum(last - first + 1, 0).astype(np.intp)
    rows = np.repeat(np.arange(first.size), lengths)
    offsets = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return rows, first[rows] + offsets


def blocks_of(size: int) -> Iterator[NDArray[np.intp]]:
    """Numbers of so many points, block by block."""
    return (np.arange(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK))
