"""The head of a regression: Student-t errors whose scale follows the neighbourhood.

The trained Gaussian process has one noise level for all rows, which data with varying noise do not obey. `quad` tells
how rough a neighbourhood is, over all k neighbours and over the nearest few. The head turns the moments of a row into a
Student-t predictive

    y ~ t_nu(mean, s^2)     s^2 = (c1 variance + c2 noise) R^g R_near^h exp(e1 m + e2 m^2) + floor^2
    R = (2a + quad) / (2a + size)   R_near: the nearest few alone   m = mean, kept in the range of left-out means

with eight scalars fitted by the likelihood of a few thousand left-out rows. The mean, hence the RMSE, is untouched.

Left-out rows show errors of the function and noise together. The latent variance is

    M + (s^2 - M) tau^2 / (tau^2 + noise)     M = max(L, min(variance, (L + s^2) / 2))     L = c1 variance R^g ..

M is at least the model's own, as far as half of the rest: calm surroundings tell of less noise, not of less bias of a
smoother that was made for more of it. Noise below tau, a thousandth of the target's spread, cannot be told from errors
of the function. Where less is known than at any left-out row, `unknown` goes from 0 to 1, and with it s^2 goes to the
square of the target's spread, if it is below.

Where outliers are no errors of ours, they widen intervals of observations, which have to cover them, and say nothing of
the function. With l the factor on variance and noise that the middle half of the left-out residuals asks for, the
latent variance is then max(l, 1) variance + l noise tau^2 / (tau^2 + noise), and the degrees of freedom are those that
were learned in training (`latent_only`, `latent_df`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from scipy.special import digamma, gammaln

from nearfield import metrics
from nearfield.heads._scalars import scalars
from nearfield.heads._units import LEVEL, widening
from nearfield.moments import Moments, far_away, unknown_variance
from nearfield.persistence import ModelFileError

_BLOCK = 2**16  # rows at a time
SMALLEST_DF = 2.1  # below 2 a Student-t has no standard deviation
LARGEST_DF = 1e6  # a normal distribution for all purposes
_FEWEST_TOLD = 40  # rows; fewer do not tell that error bars may be narrower than the model says, or how they vary
_FAR_TOO_FEW = 0.04  # share of the rows that 90 % intervals of the trained model may cover less than they should
_RESOLVED = 1e-3  # tau: of the target's spread
_MIDDLE = 0.5  # of the left-out residuals: outliers are elsewhere
_OF_FLOOR = 10.0  # times the least noise that a model can have: what is not much above it is no noise either. Sites of
# outliers have theirs beside the noise that was learned: errors of the function as large as it are all that it may hide


class Predicted(NamedTuple):
    """Predictions (b,) in standardised units: centre, scale of an observation and scale of the latent function."""

    loc: np.ndarray
    scale: np.ndarray
    latent_scale: np.ndarray


@dataclass(frozen=True)
class RegressionHead:
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
    unresolved: float = 0.0  # tau^2; 0: latent variances are c1 variance R^g .., as in earlier versions
    spread: float = 0.0  # of the target; 0: predictions are no wider where nothing is known
    known: float = 0.0  # largest variance of a left-out row
    latent_only: float = 0.0  # what the middle half asks for where outliers are no errors of ours; 0: as above
    latent_df: float = 0.0  # and degrees of freedom of the latent function

    def predicted(self, moments: Moments, noise: np.ndarray) -> Predicted:
        """Predictions (b,) from the moments (b, 1) of rows and their noise variances, (1,) or (b, 1)."""
        return self.of_latent(moments.latent(0), noise[..., 0])

    def of_latent(self, moments: Moments, noise: np.ndarray | float) -> Predicted:
        """Predictions (b,) from moments (b,) of one latent function."""
        return Predicted(moments.mean, *self.scales(moments, noise))

    def scales(self, moments: Moments, noise: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Scale s (b,) of an observation and of the latent function."""
        log_far, log_near = _log_roughness(moments, self.prior_strength)
        m = np.clip(moments.mean, self.lowest, self.highest)
        factor = np.exp(self.roughness * log_far + self.near_roughness * log_near + (self.slope + self.bend * m) * m)
        latent = self.latent_factor * moments.variance * factor
        squared = latent + self.noise_factor * noise * factor + self.floor**2
        if self.latent_only > 0:
            share = self.unresolved / (self.unresolved + noise)
            latent = max(self.latent_only, 1.0) * moments.variance + self.latent_only * share * noise
        elif self.unresolved > 0:
            share = self.unresolved / (self.unresolved + noise)
            latent = np.maximum(latent, np.minimum(moments.variance, (latent + squared) / 2))
            latent = latent + share * (squared - latent)
        if self.spread > 0:
            more = self.unknown(moments) * np.maximum(self.spread**2 - squared, 0.0)
            latent, squared = latent + more, squared + more
        return np.sqrt(squared), np.sqrt(latent)

    def unknown(self, moments: Moments) -> np.ndarray:
        """From 0 (b,), where no less is known than at some left-out row, to 1, where nothing is."""
        most = unknown_variance(moments, self.spread**2)
        room = np.where(most > self.known, most - self.known, np.inf)
        found = np.clip((moments.variance - self.known) / room, 0.0, 1.0) ** 2
        return found if moments.outside is None else 1 - (1 - found) * (1 - far_away(moments.outside))

    def distribution(self, loc: np.ndarray, scale: np.ndarray) -> metrics.Predictive:
        """A frozen scipy.stats distribution over rows."""
        return scipy.stats.norm(loc, scale) if math.isinf(self.df) else scipy.stats.t(self.df, loc, scale)

    @property
    def of_function(self) -> RegressionHead:
        """The head whose distributions those of the latent function are: with degrees of freedom of its own."""
        return replace(self, df=self.latent_df) if self.latent_only > 0 else self

    @property
    def unit_std(self) -> float:
        """Standard deviation of a prediction of scale one; scipy's own squares the scale, which may overflow."""
        return 1 / math.sqrt(1 - 2 / self.df)

    def packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The scalars, for a file: an infinite df is null there; and no arrays."""
        return {**asdict(self), "df": None if math.isinf(self.df) else self.df}, {}

    @classmethod
    def unpacked(cls, stored: Mapping[str, Any]) -> RegressionHead:
        """The head that `packed` took apart, or a ModelFileError; what a file lacks has its default."""
        values = scalars(stored, asdict(cls()), infinite="df")
        positive = all(values[name] > 0 for name in ("latent_factor", "noise_factor", "prior_strength"))
        least_zero = all(values[name] >= 0 for name in ("floor", "unresolved", "spread", "known", "latent_only"))
        smallest = min(values["df"], values["latent_df"] if values["latent_only"] > 0 else math.inf)
        if not positive or not least_zero or smallest < SMALLEST_DF:
            raise ModelFileError(f"its head has scalars that are out of range: {dict(stored)}")
        return cls(**values)


_GAUSSIAN = RegressionHead()


def _log_roughness(moments: Moments, a: float) -> tuple[np.ndarray, np.ndarray]:
    """log R and log R_near (b,)."""
    return (
        np.log((2 * a + moments.quad) / (2 * a + moments.size)),
        np.log((2 * a + moments.near_quad) / (2 * a + moments.near_size)),
    )


@dataclass(frozen=True)
class LeftOutNumbers:
    """Left-out rows: moments for several k, targets (b,), noise variances (b,) and how often each counts (b,)."""

    ks: np.ndarray
    moments: Moments
    y: np.ndarray
    noise: np.ndarray
    weights: np.ndarray

    def at(self, k: int) -> LeftOutNumbers:
        """The same rows with the moments of a single k."""
        return replace(self, ks=np.array([k]), moments=self.moments.at(int(np.searchsorted(self.ks, k))))

    def predict(self, head: RegressionHead) -> metrics.Predictive:
        """The head's predictive distributions, for rows of a single k."""
        return head.distribution(self.moments.mean, head.scales(self.moments, self.noise)[0])

    def log_score(self, head: RegressionHead) -> float:
        """Mean log density, for rows of a single k."""
        return float(np.average(self.predict(head).logpdf(self.y), weights=self.weights))

    def crps(self, head: RegressionHead) -> float:
        """Mean CRPS, for rows of a single k."""
        return float(np.average(metrics.crps_rows(self.y, self.predict(head)), weights=self.weights))

    def rmse(self) -> float:
        """Root mean squared error, for rows of a single k."""
        return float(np.sqrt(np.average((self.y - self.moments.mean) ** 2, weights=self.weights)))


def target_floor(y: np.ndarray) -> float:
    """Least scale for standardised targets y (n,): a fiftieth of the usual gap between two distinct values.

    Without it a target of few distinct values invites scales so small that the density is infinite.
    """
    gaps = np.sort(y)
    for start in range(0, len(y) - 1, _BLOCK):  # in place, with one number more than there are gaps
        part = np.diff(gaps[start : start + _BLOCK + 1])
        gaps[start : start + len(part)] = part
    gaps = gaps[:-1]
    there = gaps > 0
    gaps = gaps if there.all() else gaps[there]
    return max(1e-4, 0.02 * float(np.median(gaps, overwrite_input=True))) if gaps.size else 1e-4


def fit_head(rows: LeftOutNumbers, floor: float, plain: RegressionHead = _GAUSSIAN) -> RegressionHead:
    """The Student-t head for left-out rows of a single k, or what is left of it where it would do harm.

    The likelihood gives the shape; the scale is then set to cover 90 % of rows like these. A head is kept only if
    neither its CRPS nor its coverage is worse on them than with the `plain` head of the trained model; otherwise a
    plain Student-t is tried. The plain head itself is the last resort, of few rows as wide as these ask for; unless it
    covers far too few: error bars that hold are worth a worse CRPS.
    """
    total = float(rows.weights.sum())
    if total < _FEWEST_TOLD:
        plain = _cover_few(rows, plain)
    limits = _harm(rows, plain)
    for varying in (True, False) if total >= _FEWEST_TOLD else (False,):
        head = _maximise(rows, floor, varying)
        head = _cover(rows, head) if total >= _FEWEST_TOLD else _cover_few(rows, head)
        if all(a <= b for a, b in zip(_harm(rows, head), limits, strict=True)):
            return head
    covered = np.average(metrics.covered(rows.y, rows.predict(plain), 0.9), weights=rows.weights)
    return head if covered < fresh_level(0.9, total) - _FAR_TOO_FEW else plain


def fresh_level(level: float, total: float) -> float:
    """The share of `total` left-out rows that intervals must cover to cover the share `level` of fresh ones; 1 at most.

    A fresh row is as likely to be the one with the largest error as any of the left-out rows: Vovk et al. (2005).
    """
    return min(level * (total + 1) / total, 1.0)


def _harm(rows: LeftOutNumbers, head: RegressionHead) -> tuple[float, ...]:
    """What a head may not make worse: the CRPS, the miss of the 90 % coverage, and the mean miss over three levels."""
    crps, inside = metrics.crps_and_covered(rows.y, rows.predict(head))
    shares = [float(np.average(own, weights=rows.weights)) for own in inside]
    levels = [fresh_level(level, rows.weights.sum()) for level in metrics.LEVELS]
    misses = [abs(share - level) for share, level in zip(shares, levels, strict=True)]
    return float(np.average(crps, weights=rows.weights)), misses[1], float(np.mean(misses))


def _cover(rows: LeftOutNumbers, head: RegressionHead, level: float = 0.9) -> RegressionHead:
    """The head with c1 and c2 multiplied so that the central interval of that level covers that share of fresh rows.

    Row n is covered once the factor reaches (residual^2 / q^2 - floor^2) / (s^2 - floor^2), with q the quantile of the
    standard t; so the wanted factor is the quantile of these, taken between two neighbouring ones.
    """
    factor = float(np.clip(_enough(_needed(rows, head, level), rows.weights, level), 1e-4, 1e4))
    return replace(head, latent_factor=head.latent_factor * factor, noise_factor=head.noise_factor * factor)


def _needed(rows: LeftOutNumbers, head: RegressionHead, level: float) -> np.ndarray:
    """Factors (b,) on c1 and c2 from which on the central interval of that level covers each row; see `_cover`."""
    scale, _ = replace(head, floor=0.0).scales(rows.moments, rows.noise)
    quantile = scipy.stats.t.ppf((1 + level) / 2, head.df)
    residual = rows.y - rows.moments.mean
    return np.asarray(((residual / quantile) ** 2 - head.floor**2) / np.maximum(scale**2, 1e-300))


def _cover_few(rows: LeftOutNumbers, head: RegressionHead, level: float = 0.9) -> RegressionHead:
    """The same for few rows: the floor is raised, if it must be.

    They do not tell where a model that may have followed chance is right: one row that it is too sure of would make all
    intervals many times as wide. Fewer than nine rows cannot show what covers 90 %: the largest error is exceeded too
    often, and the squares of errors count as much more as rows are fewer.
    """
    scale, _ = head.scales(rows.moments, rows.noise)
    quantile = scipy.stats.t.ppf((1 + level) / 2, head.df)
    more = max(level / (1 - level) / float(rows.weights.sum()), 1.0)
    needed = more * ((rows.y - rows.moments.mean) / quantile) ** 2 - scale**2
    raised = max(_enough(needed, rows.weights, level), 0.0)
    return replace(head, floor=math.sqrt(head.floor**2 + raised))


def _enough(needed: np.ndarray, weights: np.ndarray, level: float) -> float:
    """What covers the share `level` of fresh rows, from what each left-out row (b,) needs to be covered."""
    order = np.argsort(needed, kind="stable")
    total = float(weights.sum())
    share = np.cumsum(weights[order]) / total
    last = int(np.argmin(np.abs(share - fresh_level(level, total))))
    inside = float(needed[order[last]])
    return 0.5 * (inside + float(needed[order[last + 1]])) if last + 1 < len(order) else max(1.1 * inside, inside)


# log c1, log c2, log a, log(nu - SMALLEST_DF), g, h, e1, e2
_START = np.array([0.0, 0.0, 0.0, math.log(6.0), 0.5, 0.0, 0.0, 0.0])
_SHARES = 0.2  # of the prior on log(c1 / c2): residuals hardly tell how much of them is noise, the trained model does
_LIMITS = ((-7.0, 7.0), (-7.0, 7.0), (-5.0, 8.0), (-6.0, math.log(LARGEST_DF)), (-1, 3), (-1, 3), (-2, 2), (-1, 1))
_VARYING = slice(4, 8)  # those that make the scale differ between rows of equal variance


def _maximise(rows: LeftOutNumbers, floor: float, varying: bool) -> RegressionHead:
    """Maximum likelihood with a weak prior around `_START`, which matters for a handful of rows only."""
    limits, start = list(_LIMITS), _START.copy()
    if not varying:
        limits[_VARYING], start[_VARYING] = [(0.0, 0.0)] * 4, 0.0
    span = (float(rows.moments.mean.min()), float(rows.moments.mean.max()))
    best = scipy.optimize.minimize(
        _negative_log_posterior, start, args=(rows, floor), jac=True, method="L-BFGS-B", bounds=limits
    )
    c1, c2, a, excess = np.exp(best.x[:4]).tolist()
    g, h, e1, e2 = best.x[_VARYING].tolist()
    return RegressionHead(c1, c2, a, g, h, e1, e2, *span, SMALLEST_DF + excess, floor)


def _negative_log_posterior(theta: np.ndarray, rows: LeftOutNumbers, floor: float) -> tuple[float, np.ndarray]:
    """Mean negative log density of the rows plus the prior, and its gradient by theta (see `_START`)."""
    c1, c2, a, excess = np.exp(theta[:4])
    g, h, e1, e2 = theta[_VARYING]
    moments, m = rows.moments, rows.moments.mean
    df = SMALLEST_DF + excess
    log_far, log_near = _log_roughness(moments, a)
    factor = np.exp(g * log_far + h * log_near + (e1 + e2 * m) * m)
    latent, noise = c1 * moments.variance * factor, c2 * rows.noise * factor
    squared = latent + noise + floor**2
    ratio = (rows.y - m) ** 2 / (df * squared)
    tail, log_tail = ratio / (1 + ratio), np.log1p(ratio)
    log_density = (
        gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * math.pi * squared) - (df + 1) / 2 * log_tail
    )  # fmt: skip
    by_squared = ((df + 1) * tail - 1) / (2 * squared)
    by_factor = by_squared * (latent + noise)  # by the logarithm of the factor
    by_df = 0.5 * (digamma((df + 1) / 2) - digamma(df / 2) - 1 / df - log_tail + (df + 1) / df * tail)
    far_by_a = 1 / (2 * a + moments.quad) - 1 / (2 * a + moments.size)
    near_by_a = 1 / (2 * a + moments.near_quad) - 1 / (2 * a + moments.near_size)
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
    shifted = (theta[0] - theta[1]) / _SHARES
    value = (0.125 * np.sum((theta - _START) ** 2) + 0.5 * shifted**2 - np.sum(rows.weights * log_density)) / total
    by_prior = 0.25 * (theta - _START)
    by_prior[:2] += np.array([shifted, -shifted]) / _SHARES
    return float(value), (by_prior - gradients @ rows.weights) / total


KEPT_PLAIN = "error bars are those of the trained model, as corrections by left-out rows would not be better"


@dataclass(frozen=True)
class RegressionCalibrator:
    """How heads of a regression are fitted and judged; see `families.Calibrator`.

    plain: the head that the trained model itself implies; calibrated: whether to fit one; floor: the least scale;
    unit: a standard deviation of the target in its own units; robust: whether outliers are no errors of ours;
    noise_floor: least noise variance of the model, relative to the prior variance.
    """

    plain: RegressionHead
    calibrated: bool
    floor: float
    unit: float
    robust: bool = False
    slack: float = 0.0
    noise_floor: float = 0.0

    def fit(self, rows: LeftOutNumbers) -> RegressionHead:
        return fit_head(rows, self.floor, self.plain) if self.calibrated else self.plain

    def accuracy(self, rows: LeftOutNumbers, head: RegressionHead) -> float:
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

    def beyond_noise(self, rows: LeftOutNumbers, head: RegressionHead) -> tuple[np.ndarray, float] | None:
        """Of outliers squared errors say nothing; the plain predictive is judged by its density alone."""
        if self.robust or not self.calibrated:
            return None
        latent = np.average(head.scales(rows.moments, rows.noise)[1] ** 2, weights=rows.weights)
        return (rows.y - rows.moments.mean) ** 2, float(latent)

    def describe(self, rows: LeftOutNumbers, head: RegressionHead) -> str:
        """Relative to the target's standard deviation, the unit that all data share (or its robust counterpart)."""
        if self.robust:
            return f"CRPS {rows.crps(head):.2%} of the target's median deviation"
        return f"RMSE {rows.rmse():.2%} and CRPS {rows.crps(head):.2%} of the target's standard deviation"

    def remark(self, head: RegressionHead) -> str:
        return KEPT_PLAIN if self.kept_plain(head) else ""

    def finish(self, rows: LeftOutNumbers, head: RegressionHead) -> RegressionHead:
        """The head as it goes on where left-out rows do not lead: to the latent function, and far away.

        The plain predictive that was asked for is left as the model says.
        """
        if not self.calibrated:
            return head
        prior = 0.0 if rows.moments.prior is None else float(rows.moments.prior)
        varies = bool((rows.y != rows.y[0]).any())
        if self.robust:
            asked = _enough(_needed(rows, replace(self.plain, floor=0.0), _MIDDLE), rows.weights, _MIDDLE)
            head = replace(head, latent_only=float(np.clip(asked, 1e-4, 1e4)), latent_df=self.plain.df)
        return replace(
            head,
            unresolved=_RESOLVED**2 + (1.0 if self.robust else _OF_FLOOR) * self.noise_floor * prior,
            spread=1.0 if varies else 0.0,
            known=float(rows.moments.variance.max()),
        )

    def covering(self, rows: LeftOutNumbers, head: RegressionHead, units: np.ndarray) -> RegressionHead:
        """Wider, as few units ask for."""
        if not self.calibrated:
            return head
        factor = widening(_needed(rows, head, LEVEL), rows.weights, units)
        return replace(head, latent_factor=head.latent_factor * factor, noise_factor=head.noise_factor * factor)

    def kept_plain(self, head: RegressionHead) -> bool:
        """Whether calibration was asked for and did not help."""
        return self.calibrated and head == self.plain

    def scores(self, rows: LeftOutNumbers, head: RegressionHead) -> dict[str, float]:
        crps, inside = metrics.crps_and_covered(rows.y, rows.predict(head))
        shares = {
            f"coverage_{100 * level:.0f}": float(np.average(own, weights=rows.weights))
            for level, own in zip(metrics.LEVELS, inside, strict=True)
        }
        nll = math.log(self.unit) - rows.log_score(head)
        mean = float(np.average(crps, weights=rows.weights))
        return {"rmse": rows.rmse() * self.unit, "nll": nll, "crps": mean * self.unit, **shares}
