"""The head of a regression: Student-t errors whose scale follows the neighbourhood.

The trained Gaussian process has one noise level for all rows, which data with varying noise do not obey. `quad` tells
how rough a neighbourhood is, over all k neighbours and over the nearest few. The head turns the moments of a row into a
Student-t predictive

    y ~ t_nu(mean, s^2)     s^2 = (c1 variance + c2 noise) R^g R_near^h exp(e1 m + e2 m^2) + floor^2
    R = (2a + quad) / (2a + used)   R_near: the nearest few alone   m = mean, kept in the range of left-out means

with eight scalars fitted by the likelihood of a few thousand left-out rows. The mean, hence the RMSE, is untouched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from scipy.special import digamma, gammaln

from nearfield import metrics
from nearfield.sweep import Swept

SMALLEST_DF = 2.1  # below 2 a Student-t has no standard deviation
LARGEST_DF = 1e6  # a normal distribution for all purposes
_FEWEST_NARROWED = 20  # rows; fewer do not tell that error bars may be narrower than the model says


class Predicted(NamedTuple):
    """Predictions (b,) in standardised units: centre, scale of an observation and scale of the latent function."""

    loc: np.ndarray
    scale: np.ndarray
    latent_scale: np.ndarray


@dataclass(frozen=True)
class Head:
    """The predictive distribution's scalars, in standardised units; the defaults are the Gaussian of the paper."""

    latent_factor: float = 1.0  # c1
    noise_factor: float = 1.0  # c2
    prior_strength: float = 1.0  # a
    roughness: float = 0.0  # g
    near_roughness: float = 0.0  # h
    slope: float = 0.0  # e1
    bend: float = 0.0  # e2
    lowest: float = 0.0  # range of m
    highest: float = 0.0
    df: float = math.inf  # nu
    floor: float = 0.0

    def predicted(self, swept: Swept, noise: np.ndarray | float) -> Predicted:
        """Predictions (b,) from the moments of rows and their noise variance."""
        return Predicted(swept.mean, *self.scales(swept, noise))

    def scales(self, swept: Swept, noise: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Scale s (b,) of an observation and of the latent function."""
        log_far, log_near = _log_roughness(swept, self.prior_strength)
        m = np.clip(swept.mean, self.lowest, self.highest)
        factor = np.exp(self.roughness * log_far + self.near_roughness * log_near + (self.slope + self.bend * m) * m)
        latent = self.latent_factor * swept.variance * factor
        return np.sqrt(latent + self.noise_factor * noise * factor + self.floor**2), np.sqrt(latent)

    def distribution(self, loc: np.ndarray, scale: np.ndarray) -> metrics.Predictive:
        """A frozen scipy.stats distribution over rows."""
        return scipy.stats.norm(loc, scale) if math.isinf(self.df) else scipy.stats.t(self.df, loc, scale)


_GAUSSIAN = Head()


def _log_roughness(swept: Swept, a: float) -> tuple[np.ndarray, np.ndarray]:
    """log R and log R_near (b,)."""
    return (
        np.log((2 * a + swept.quad) / (2 * a + swept.used)),
        np.log((2 * a + swept.near_quad) / (2 * a + swept.near_used)),
    )


@dataclass(frozen=True)
class LeftOut:
    """Left-out rows: moments for several k, targets (b,), noise variances (b,) and how often each counts (b,)."""

    ks: np.ndarray
    swept: Swept
    y: np.ndarray
    noise: np.ndarray
    weights: np.ndarray

    def at(self, k: int) -> LeftOut:
        """The same rows with the moments of a single k."""
        return replace(self, ks=np.array([k]), swept=self.swept.at(int(np.searchsorted(self.ks, k))))

    def predict(self, head: Head) -> metrics.Predictive:
        """The head's predictive distributions, for rows of a single k."""
        return head.distribution(self.swept.mean, head.scales(self.swept, self.noise)[0])

    def log_score(self, head: Head) -> float:
        """Mean log density, for rows of a single k."""
        return float(np.average(self.predict(head).logpdf(self.y), weights=self.weights))

    def crps(self, head: Head) -> float:
        """Mean CRPS, for rows of a single k."""
        return float(np.average(metrics.crps_rows(self.y, self.predict(head)), weights=self.weights))

    def rmse(self) -> float:
        """Root mean squared error, for rows of a single k."""
        return float(np.sqrt(np.average((self.y - self.swept.mean) ** 2, weights=self.weights)))


def target_floor(y: np.ndarray) -> float:
    """Least scale for standardised targets y (n,): a fiftieth of the usual gap between two distinct values.

    Without it a target of few distinct values invites scales so small that the density is infinite.
    """
    gaps = np.diff(np.unique(y))
    return max(1e-4, 0.02 * float(np.median(gaps))) if gaps.size else 1e-4


def fit_head(rows: LeftOut, floor: float, plain: Head = _GAUSSIAN) -> Head:
    """The Student-t head for left-out rows of a single k, or what is left of it where it would do harm.

    The likelihood gives the shape; the scale is then set to cover 90 % of these rows. A head is kept only if neither
    its CRPS nor its coverage is worse on them than with the `plain` head of the trained model; otherwise a plain
    Student-t is tried, and the plain head itself is the last resort.
    """
    limits = _harm(rows, plain)
    for varying in (True, False):
        head = _cover(rows, _maximise(rows, floor, varying))
        if all(a <= b for a, b in zip(_harm(rows, head), limits, strict=True)):
            return head
    return plain


def _harm(rows: LeftOut, head: Head) -> tuple[float, ...]:
    """What a head may not make worse: the CRPS, the miss of the 90 % coverage, and the mean miss over three levels."""
    dist = rows.predict(head)
    misses = [
        abs(float(np.average(metrics.covered(rows.y, dist, level), weights=rows.weights)) - level)
        for level in metrics.LEVELS
    ]
    return rows.crps(head), misses[1], float(np.mean(misses))


def _cover(rows: LeftOut, head: Head, level: float = 0.9) -> Head:
    """The head with c1 and c2 multiplied so that the central interval of that level covers that share of the rows.

    Row n is covered once the factor reaches (residual^2 / q^2 - floor^2) / (s^2 - floor^2), with q the quantile of the
    standard t; so the wanted factor is the quantile of these, taken between two neighbouring ones.
    """
    scale, _ = replace(head, floor=0.0).scales(rows.swept, rows.noise)
    quantile = scipy.stats.t.ppf((1 + level) / 2, head.df)
    residual = rows.y - rows.swept.mean
    needed = ((residual / quantile) ** 2 - head.floor**2) / np.maximum(scale**2, 1e-300)
    order = np.argsort(needed, kind="stable")
    share = np.cumsum(rows.weights[order]) / rows.weights.sum()
    last = int(np.argmin(np.abs(share - level)))
    inside = needed[order[last]]
    factor = 0.5 * (inside + needed[order[last + 1]]) if last + 1 < len(order) else 1.1 * inside
    least = 1e-4 if rows.weights.sum() >= _FEWEST_NARROWED else 1.0
    factor = float(np.clip(factor, least, 1e4))
    return replace(head, latent_factor=head.latent_factor * factor, noise_factor=head.noise_factor * factor)


# log c1, log c2, log a, log(nu - SMALLEST_DF), g, h, e1, e2
_START = np.array([0.0, 0.0, 0.0, math.log(6.0), 0.5, 0.0, 0.0, 0.0])
_LIMITS = ((-7.0, 7.0), (-7.0, 7.0), (-5.0, 8.0), (-6.0, math.log(LARGEST_DF)), (-1, 3), (-1, 3), (-2, 2), (-1, 1))
_VARYING = slice(4, 8)  # those that make the scale differ between rows of equal variance


def _maximise(rows: LeftOut, floor: float, varying: bool) -> Head:
    """Maximum likelihood with a weak prior around `_START`, which matters for a handful of rows only."""
    limits, start = list(_LIMITS), _START.copy()
    if not varying:
        limits[_VARYING], start[_VARYING] = [(0.0, 0.0)] * 4, 0.0
    span = (float(rows.swept.mean.min()), float(rows.swept.mean.max()))
    best = scipy.optimize.minimize(
        _negative_log_posterior, start, args=(rows, floor), jac=True, method="L-BFGS-B", bounds=limits
    )
    c1, c2, a, excess = np.exp(best.x[:4]).tolist()
    g, h, e1, e2 = best.x[_VARYING].tolist()
    return Head(c1, c2, a, g, h, e1, e2, *span, SMALLEST_DF + excess, floor)


def _negative_log_posterior(theta: np.ndarray, rows: LeftOut, floor: float) -> tuple[float, np.ndarray]:
    """Mean negative log density of the rows plus the prior, and its gradient by theta (see `_START`)."""
    c1, c2, a, excess = np.exp(theta[:4])
    g, h, e1, e2 = theta[_VARYING]
    swept, m = rows.swept, rows.swept.mean
    df = SMALLEST_DF + excess
    log_far, log_near = _log_roughness(swept, a)
    factor = np.exp(g * log_far + h * log_near + (e1 + e2 * m) * m)
    latent, noise = c1 * swept.variance * factor, c2 * rows.noise * factor
    squared = latent + noise + floor**2
    ratio = (rows.y - m) ** 2 / (df * squared)
    tail, log_tail = ratio / (1 + ratio), np.log1p(ratio)
    log_density = (
        gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * math.pi * squared) - (df + 1) / 2 * log_tail
    )  # fmt: skip
    by_squared = ((df + 1) * tail - 1) / (2 * squared)
    by_factor = by_squared * (latent + noise)  # by the logarithm of the factor
    by_df = 0.5 * (digamma((df + 1) / 2) - digamma(df / 2) - 1 / df - log_tail + (df + 1) / df * tail)
    far_by_a = 1 / (2 * a + swept.quad) - 1 / (2 * a + swept.used)
    near_by_a = 1 / (2 * a + swept.near_quad) - 1 / (2 * a + swept.near_used)
    gradients = np.stack(
        [
            by_squared * latent,
            by_squared * noise,
            by_factor * 2 * a * (g * far_by_a + h * near_by_a),
            by_df * excess,
            by_factor * log_far,
            by_factor * log_near,
            by_factor * m,
            by_factor * m * m,
        ]
    )
    total = rows.weights.sum()
    value = (0.125 * np.sum((theta - _START) ** 2) - np.sum(rows.weights * log_density)) / total
    return float(value), (0.25 * (theta - _START) - gradients @ rows.weights) / total


@dataclass(frozen=True)
class RegressionMethod:
    """How heads of a regression are fitted and judged; see `calibration.Method`.

    plain: the head that the trained model itself implies; calibrated: whether to fit one; floor: the least scale;
    unit: a standard deviation of the target in its own units; robust: whether outliers are no errors of ours.
    """

    plain: Head
    calibrated: bool
    floor: float
    unit: float
    robust: bool = False
    slack: float = 0.0

    def fit(self, rows: LeftOut) -> Head:
        return fit_head(rows, self.floor, self.plain) if self.calibrated else self.plain

    def accuracy(self, rows: LeftOut, head: Head) -> float:
        """The log density for the plain predictive. For the calibrated one -(log CRPS + log RMSE) / 2: a flexible head
        can raise the density of discrete targets while the predictions get worse. The robust one is the CRPS of all but
        the tenth of the rows that are predicted worst."""
        if not self.calibrated:
            return rows.log_score(head)
        if self.robust:
            each = metrics.crps_rows(rows.y, rows.predict(head))
            usual = each <= np.quantile(each, 0.9)
            return -math.log(max(float(np.average(each[usual], weights=rows.weights[usual])), 1e-12))
        return -0.5 * math.log(max(rows.crps(head), 1e-12) * max(rows.rmse(), 1e-12))

    def describe(self, rows: LeftOut, head: Head) -> str:
        """Relative to the target's standard deviation, the unit that all data share (or its robust counterpart)."""
        kept = " (the plain predictive: none was better calibrated)" if self.kept_plain(head) else ""
        if self.robust:
            return f"CRPS {rows.crps(head):.2%} of the target's median deviation{kept}"
        return f"RMSE {rows.rmse():.2%} and CRPS {rows.crps(head):.2%} of the target's standard deviation{kept}"

    def kept_plain(self, head: Head) -> bool:
        """Whether calibration was asked for and did not help."""
        return self.calibrated and head == self.plain

    def scores(self, rows: LeftOut, head: Head) -> dict[str, float]:
        dist = rows.predict(head)
        shares = {
            f"coverage_{100 * level:.0f}": float(np.average(metrics.covered(rows.y, dist, level), weights=rows.weights))
            for level in metrics.LEVELS
        }
        nll = math.log(self.unit) - rows.log_score(head)
        return {"rmse": rows.rmse() * self.unit, "nll": nll, "crps": rows.crps(head) * self.unit, **shares}
