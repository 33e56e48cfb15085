"""Predictive distributions over counts: a count y given a latent f, with f normal.

The latent value of a row is f ~ N(m, s^2). Given f, the count is

    negative binomial   Gamma(y + r) / (Gamma(r) y!) sigmoid(f)^y sigmoid(-f)^r     mean r e^f, dispersion r
    binomial            n! / (y! (n - y)!)           sigmoid(f)^y sigmoid(-f)^(n-y)   mean n sigmoid(f), trials n

Both are C sigmoid(f)^y sigmoid(-f)^c with c = r or n - y, and in both P(y <= x | f) = P(L <= -f) where L is the logit
of a Beta(c(x), x + 1) variable. Hence, with p_L the density of L,

    pmf(y) = integral of N(f; m, s^2) C sigmoid(f)^y sigmoid(-f)^c df
    cdf(x) = P(f + L <= 0) = P(L <= -m) + integral of p_L(l) (Phi(-(l + m) / s) - 1[l < -m]) dl

Fixed nodes in f would fail where the latent spread s is large against the width of the likelihood: each would leave a
spike. Here both integrals are taken by Gauss-Legendre nodes between the points that matter to the row at hand: the
mode, the kink at l = -m, and where the integrand has fallen by a factor exp(-22) at least. All pieces are log-concave.
Whatever is computed of a row comes from that row alone, to the last bit, in whatever company.

Counts above 2^53, the last whole number known to float64, are not told apart: quantiles and scores stop there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from nearfield.count_kinds import (
    LARGEST_COUNT,
    Array,
    Binomial,
    NegativeBinomial,
    below_zero,
    blocks_of,
    latent_of,
    shown,
    whole,
)
from nearfield.marginals import gauss_legendre, logistic

_CRPS_NODES, _CRPS_WEIGHTS = gauss_legendre(24)
_SHORT = 64  # the CRPS of a row with at most so many likely counts is summed count by count
_HEAD = 16  # and otherwise only so many next to 0 (and to the number of trials)


@runtime_checkable
class CountPredictive(Protocol):
    """What is used of predictive distributions over counts, one a row: those here, or a family's own."""

    def __len__(self) -> int: ...

    def logpmf(self, y: ArrayLike) -> Array:
        """log P(count = y) (n,)."""
        ...

    def cdf(self, x: ArrayLike) -> Array:
        """P(count <= x) (n,)."""
        ...

    def ppf(self, q: ArrayLike) -> Array:
        """The smallest counts (n,) with cdf >= q."""
        ...

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Ends (n,) of the central intervals that hold at least that probability."""
        ...

    def mean(self) -> Array: ...

    def std(self) -> Array: ...

    def crps_rows(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score (n,) of the counts y (n,); a ValueError for what is no count."""
        ...


@dataclass(frozen=True)
class CountDistribution:
    """Counts of n rows, with the methods of a frozen distribution of `scipy.stats`.

    Arguments broadcast against the rows, which are the last axis: `ppf(0.9)` is (n,), `ppf([[0.1], [0.9]])` is (2, n).

    Parameters
    ----------
    latent_mean : ndarray of shape (n,)
        Mean of the latent function.
    latent_std : ndarray of shape (n,)
        Its standard deviation.
    family : object
        Counts given the latent function.
    """

    latent_mean: Array
    latent_std: Array
    family: NegativeBinomial | Binomial

    @classmethod
    def negative_binomial(cls, mean: ArrayLike, variance: ArrayLike, dispersion: ArrayLike) -> CountDistribution:
        """Make one of counts without an upper limit.

        Parameters
        ----------
        mean : array-like of shape (n,)
            Mean of the latent function; an exposure adds its logarithm.
        variance : array-like of shape (n,)
            Variance of the latent function.
        dispersion : float or array-like of shape (n,)
            Given the latent function, the variance of a count is mu + mu^2 / dispersion.

        Returns
        -------
        CountDistribution
            The distribution.
        """
        mean, std = latent_of(mean, variance)
        r = np.asarray(dispersion, dtype=np.float64)
        if r.shape not in ((), mean.shape) or not (np.isfinite(r) & (r > 0)).all():
            raise ValueError(f"dispersion is {shown(r)}; one finite number above 0 is expected, or one for each row.")
        return cls(mean, std, NegativeBinomial(np.broadcast_to(r, mean.shape)))

    @classmethod
    def binomial(cls, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike) -> CountDistribution:
        """Make one of successes out of so many trials.

        Parameters
        ----------
        mean : array-like of shape (n,)
            Mean of the latent function.
        variance : array-like of shape (n,)
            Variance of the latent function.
        trials : int or array-like of shape (n,)
            How many trials there are.

        Returns
        -------
        CountDistribution
            The distribution.
        """
        mean, std = latent_of(mean, variance)
        n = np.asarray(trials, dtype=np.float64)
        if n.shape not in ((), mean.shape) or not ((n >= 0) & (n <= LARGEST_COUNT) & (n == np.floor(n))).all():
            raise ValueError(f"trials is {shown(n)}; a whole number of 0 or more is expected, or one for each row.")
        return cls(mean, std, Binomial(np.broadcast_to(n, mean.shape)))

    def __len__(self) -> int:
        return self.latent_mean.size

    def logpmf(self, y: ArrayLike) -> Array:
        """Compute log probabilities.

        Parameters
        ----------
        y : array-like
            Counts, which broadcast against the rows.

        Returns
        -------
        ndarray
            The logarithm of the probability of y; -inf where y is not a possible count.
        """
        return self._over_points(lambda rows, at: rows._logpmf(at), y)

    def pmf(self, y: ArrayLike) -> Array:
        """Compute probabilities.

        Parameters
        ----------
        y : array-like
            Counts, which broadcast against the rows.

        Returns
        -------
        ndarray
            The probability of y.
        """
        return np.exp(self.logpmf(y))

    def cdf(self, x: ArrayLike) -> Array:
        """Compute probabilities of no more than so many.

        Parameters
        ----------
        x : array-like
            Numbers, which broadcast against the rows.

        Returns
        -------
        ndarray
            P(count <= x).
        """
        return self._over_points(lambda rows, at: rows._tail(np.floor(at), np.zeros(at.shape, dtype=bool)), x)

    def ppf(self, q: ArrayLike) -> Array:
        """Compute quantiles.

        Parameters
        ----------
        q : float or array-like
            Probabilities between 0 and 1, which broadcast against the rows.

        Returns
        -------
        ndarray
            The smallest count x with cdf(x) >= q; -1 for q = 0, as in scipy.
        """
        q = np.asarray(q, dtype=np.float64)
        if not ((q >= 0) & (q <= 1)).all():
            raise ValueError(f"q is {shown(q)}; probabilities between 0 and 1 are expected.")
        found = self._over_points(lambda rows, p: rows._quantile(p, upper=False), q)
        return np.where(q == 0, -1.0, np.where(q == 1, self.family.supremum, found))

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Compute central intervals, ends included.

        Parameters
        ----------
        confidence : float
            Probability that an interval holds at least.

        Returns
        -------
        lower : ndarray of shape (n,)
            Lower ends.
        upper : ndarray of shape (n,)
            Upper ends.
        """
        return self.ppf((1 - confidence) / 2), self.ppf((1 + confidence) / 2)

    def median(self) -> Array:
        """Compute medians.

        Returns
        -------
        ndarray of shape (n,)
            The quantile at one half.
        """
        return self.ppf(0.5)

    def mean(self) -> Array:
        """Compute expected counts.

        Returns
        -------
        ndarray of shape (n,)
            Means, at most 1e150.
        """
        return self._moments()[0]

    def std(self) -> Array:
        """Compute standard deviations.

        Returns
        -------
        ndarray of shape (n,)
            Standard deviations, at most 1e150.
        """
        return self._moments()[1]

    def var(self) -> Array:
        """Compute variances.

        Returns
        -------
        ndarray of shape (n,)
            The squares of `std`.
        """
        return self.std() ** 2

    def rvs(
        self, size: tuple[int, ...] | None = None, random_state: int | np.random.Generator | None = None
    ) -> NDArray[np.int64]:
        """Draw counts.

        Parameters
        ----------
        size : tuple of int, default=None
            Shape of the draws, whose last axis is n; None for one draw of each row.
        random_state : int, Generator or None, default=None
            Seed or generator.

        Returns
        -------
        ndarray of int of shape (n,) or size
            The draws.
        """
        rng = np.random.default_rng(random_state)
        return self.given_normals(rng.standard_normal(self.latent_mean.shape if size is None else size), rng)

    def given_normals(self, z: Array, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw counts whose latent functions are given.

        Parameters
        ----------
        z : ndarray of shape (.., n)
            Latent functions, in standard deviations above their mean.
        rng : Generator
            Where the rest of chance comes from.

        Returns
        -------
        ndarray of int of shape (.., n)
            The draws.
        """
        return self.family.draw(self.latent_mean + self.latent_std * z, rng)

    def crps_rows(self, y: ArrayLike) -> Array:
        """Compute the continuous ranked probability score of each row.

        Parameters
        ----------
        y : array-like of shape (n,)
            Observed counts.

        Returns
        -------
        ndarray of shape (n,)
            Sums over counts x of (cdf(x) - 1[x >= y])^2.
        """
        y = np.asarray(y, dtype=np.float64)
        if y.shape != self.latent_mean.shape:
            raise ValueError(f"y has shape {y.shape}; one count for each of the {len(self)} rows is expected.")
        if not ((y >= 0) & (y <= self._largest) & (y == np.floor(y))).all():
            raise ValueError("y has impossible counts; whole numbers from 0, to the trials if binomial, are expected.")
        found = np.empty(y.shape)
        for rows in blocks_of(y.size):
            found[rows] = self._take(rows)._crps_rows(y[rows])
        return found

    @property
    def _largest(self) -> Array:
        return np.minimum(self.family.supremum, LARGEST_COUNT)

    def _take(self, rows: NDArray[np.intp]) -> CountDistribution:
        return CountDistribution(self.latent_mean[rows], self.latent_std[rows], self.family.take(rows))

    def _over_points(self, function: Callable[[CountDistribution, Array], Array], x: ArrayLike) -> Array:
        """`function` of a distribution of p rows and (p,) arguments, for every argument, in blocks."""
        x = np.asarray(x, dtype=np.float64)
        x = np.broadcast_to(x, np.broadcast_shapes(x.shape, self.latent_mean.shape))
        if x.shape[-1] != len(self):
            raise ValueError(f"The argument has shape {x.shape}; its last axis should be the {len(self)} rows.")
        found = np.empty(x.size)
        for points in blocks_of(x.size):
            found[points] = function(self._take(points % len(self)), x.flat[points])
        return found.reshape(x.shape)

    def _moments(self) -> tuple[Array, Array]:
        parts = [self._take(rows) for rows in blocks_of(len(self))]
        means, stds = zip(*(part.family.moments(part.latent_mean, part.latent_std) for part in parts), strict=True)
        return np.concatenate(means), np.concatenate(stds)

    def _logpmf(self, y: Array) -> Array:
        possible = (y >= 0) & (y <= self.family.supremum) & (y == np.floor(y)) & np.isfinite(y)
        y = np.where(possible, y, 0.0)
        integral = logistic(self.latent_mean, self.latent_std**2, y, y + self.family.failures(y))
        log_pmf = self.family.log_coefficient(y) + integral.value
        return np.where(possible, np.minimum(log_pmf, 0.0), -np.inf)

    def _tail(self, x: Array, upper: NDArray[np.bool_]) -> Array:
        """P(count > x) where `upper`, P(count <= x) elsewhere; x (p,) may lie between whole numbers."""
        inside = (x > -1) & (x < self.family.supremum)
        x_inside = np.where(inside, x, 0.0)
        a, b = np.where(inside, self.family.failures(x_inside), 1.0), np.minimum(x_inside, LARGEST_COUNT) + 1
        # P(f + L > 0) = P(-f - L < 0), and -L is the logit of Beta(b, a)
        a, b, mean = np.where(upper, [b, a, -self.latent_mean], [a, b, self.latent_mean])
        below = below_zero(a, b, mean, self.latent_std)
        return np.where(inside, below, (x > -1) ^ upper)

    def _quantile(self, q: Array, upper: bool, slack: float = 0.0) -> Array:
        """The smallest count with cdf >= q, or if `upper` with 1 - cdf <= q; (p,).

        The secant method on the normal score of the cdf, which is nearly straight in the coordinate of the count, with
        every fourth step a bisection. A count whose normal score is within `slack` of the target will do.
        """
        sign = -1 if upper else 1
        target = np.clip(sign * ndtri(q), -40, 40)
        low, high = np.full(q.shape, -1.0), self._largest
        v = self.family.start(self.latent_mean, self.latent_std, np.clip(target, -6, 6))
        v_last, z_last = np.full((2, q.size), np.nan)
        active = np.flatnonzero(high - low > 1)
        for step in itertools.count():
            if not active.size:
                break
            dist = self._take(active)
            x = np.clip(np.ceil(dist.family.count(v[active])), low[active] + 1, high[active] - 1)
            p = dist._tail(x, np.full(x.shape, upper))
            z, v_x = sign * ndtri(p), dist.family.coordinate(x)
            enough = (p <= q[active]) if upper else (p >= q[active])
            close = np.abs(z - target[active]) < slack
            high[active] = np.where(enough | close, x, high[active])
            low[active] = np.where(close, x - 1, np.where(enough, low[active], x))

            with np.errstate(invalid="ignore", divide="ignore"):
                slope = (v_x - v_last[active]) / (z - z_last[active])
                if step == 0:
                    slope = np.sqrt(dist.latent_std**2 + 1 / dist.family.failures(x) + 1 / (x + 1))
                guess = v_x + slope * (target[active] - z)
            middle = (dist.family.coordinate(low[active]) + dist.family.coordinate(high[active])) / 2
            v[active] = np.where(np.isfinite(guess) & (slope > 0) & (step % 4 != 3), guess, middle)
            v_last[active], z_last[active] = v_x, z
            active = active[high[active] - low[active] > 1]
        return high

    def _crps_rows(self, y: Array) -> Array:
        """Sum of g(x) = (cdf(x) - 1[x >= y])^2 over counts x, (n,).

        Beyond the likely counts g is 0 or 1. Few likely counts are summed one by one. Of many, only those near the ends
        are; in between, the sum is an integral over x, cut at y - 1/2, where the slope of g jumps: by Euler and
        Maclaurin this takes away pmf(y) / 12.
        """
        low = self._quantile(np.full(y.size, 1e-5), upper=False, slack=0.3)
        high = np.maximum(self._quantile(np.full(y.size, 1e-6), upper=True, slack=0.3), low)
        total = np.maximum(low - y, 0.0) + np.maximum(y - 1 - high, 0.0)

        many = high - low >= _SHORT  # of these, the counts first, ..., last are integrated
        first = np.where(many, np.maximum(low, _HEAD), high + 1)
        last = np.where(many, np.minimum(high, self._largest - _HEAD), high)
        rows, x = (np.hstack(ends) for ends in zip(whole(low, first - 1), whole(last + 1, high), strict=True))
        points = [(rows, x, np.ones(x.size))]

        long = np.flatnonzero(many)
        dist, y_long, first, last = self._take(long), y[long], first[long], last[long]
        kink = np.clip(y_long, first, last + 1) - 0.5
        for start, end in ((first - 0.5, kink), (kink, last + 0.5)):
            rows, x, weights = dist._nodes(start, end)
            points.append((long[rows], x, weights))
        jumps = (y_long > first) & (y_long <= last)
        total[long] -= np.where(jumps, np.exp(dist._logpmf(y_long)) / 12, 0.0)

        rows, x, weights = (np.hstack(parts) for parts in zip(*points, strict=True))
        g = np.empty(x.size)
        for part in blocks_of(x.size):
            g[part] = self._take(rows[part])._tail(x[part], upper=x[part] > y[rows[part]] - 0.5) ** 2
        return total + np.bincount(rows, weights * g, minlength=y.size)

    def _nodes(self, start: Array, end: Array) -> tuple[NDArray[np.intp], Array, Array]:
        """Rows, counts and weights of an integral over counts from `start` to `end` (n,), flat (n * 24,)."""
        rows = np.repeat(np.arange(start.size), _CRPS_NODES.size)
        family = self.family.take(rows)
        v_start, v_end = self.family.coordinate(start), self.family.coordinate(end)
        v = (v_start[:, None] + (v_end - v_start)[:, None] * _CRPS_NODES).ravel()
        x = np.clip(family.count(v), start[rows], end[rows])
        weights = ((v_end - v_start)[:, None] * _CRPS_WEIGHTS).ravel() * family.stretch(x)
        return rows, x, weights
