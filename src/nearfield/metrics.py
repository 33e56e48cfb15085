"""Scores of predictive distributions: how far off the means are, and whether the error bars can be trusted.

A prediction is a frozen `scipy.stats.norm(loc, scale)` or `scipy.stats.t(df, loc, scale)`, one entry a row. With F the
predictive distribution function, f its density and y the observed value, averaged over n rows:

    rmse        sqrt(mean (y - loc)^2)
    nll         mean of -log f(y)
    crps        mean of the integral over x of (F(x) - 1[x >= y])^2, in the units of y
    coverage    share of rows with y inside the central interval of a given probability

Lower is better for the first three; coverage should equal the probability asked for. Of a `CountPredictive`, f is the
probability of the count, the integral a sum over counts, loc the mean; see `CountScores` for its coverage.

Predicted classes are probabilities p (n, K), one row a row, with y the number of the class seen, 0 to K - 1:

    nll                  mean of -log p_y, with p_y floored at 1e-15 so that one sure and wrong row is not infinite
    error                share of rows whose most probable class is not y (of equals, the first)
    brier                mean of the sum over classes c of (p_c - 1[c = y])^2, between 0 and 2
    calibration_error    sum over bins of |share of rows that are right - mean of max p| x share of rows in the bin; the
                         bins are 15 of equal width in max p, the probability of the most probable class

`Scores`, `CountScores` and `ClassScores` add up blocks of rows, so a table of any length is scored in constant memory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import poch

from nearfield.counts import CountPredictive

LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals that `Scores` counts."""

BINS = 15
"""Bins of the calibration error."""

_LEAST_PROBABILITY = 1e-15
_PARAMETERS = {"norm": ("loc", "scale"), "t": ("df", "loc", "scale")}

Array = NDArray[np.float64]


class Predictive(Protocol):
    """What is used of a frozen `scipy.stats` distribution."""

    dist: Any
    args: tuple[Any, ...]
    kwds: dict[str, Any]

    def logpdf(self, x: Array) -> Array: ...

    def cdf(self, x: Array) -> Array: ...


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error of `mean` (n,) against `y` (n,)."""
    y = _observed(y)
    mean = np.asarray(mean, dtype=np.float64)
    _check_shape(y, mean.shape)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def nll(y: ArrayLike, dist: Predictive) -> float:
    """Mean negative log density of `y` (n,) under `dist` (n,)."""
    y = _observed(y)
    _parameters(y, dist)
    return float(np.mean(-dist.logpdf(y)))


def crps(y: ArrayLike, dist: Predictive) -> float:
    """Mean continuous ranked probability score of `y` (n,) under `dist` (n,)."""
    return float(np.mean(crps_rows(y, dist)))


def crps_rows(y: ArrayLike, dist: Predictive) -> Array:
    """Continuous ranked probability score of each row (n,)."""
    y = _observed(y)
    parameters = _parameters(y, dist)
    return _crps_rows(y, parameters, dist.cdf(y), dist.logpdf(y))


def coverage(y: ArrayLike, dist: Predictive, level: float) -> float:
    """Share of `y` (n,) inside the central interval of probability `level` of `dist` (n,), ends included."""
    return float(np.mean(covered(y, dist, level)))


def covered(y: ArrayLike, dist: Predictive, level: float) -> NDArray[np.bool_]:
    """Whether each row (n,) lies inside its central interval of probability `level`, ends included."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; a probability between 0 and 1 is expected, for example 0.9.")
    y = _observed(y)
    _parameters(y, dist)
    return _inside(dist.cdf(y), level)


def crps_and_covered(y: ArrayLike, dist: Predictive) -> tuple[Array, list[NDArray[np.bool_]]]:
    """What `crps_rows` gives, and `covered` for each of LEVELS, with the distribution function taken once."""
    y = _observed(y)
    parameters, below = _parameters(y, dist), dist.cdf(y)
    return _crps_rows(y, parameters, below, dist.logpdf(y)), [_inside(below, level) for level in LEVELS]


def class_nll(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean negative log probability of the classes `y` (n,) under `probabilities` (n, K), floored at 1e-15."""
    return ClassScores.of(y, probabilities).as_dict()["nll"]


def error(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Share of rows whose most probable class by `probabilities` (n, K) is not `y` (n,)."""
    return ClassScores.of(y, probabilities).as_dict()["error"]


def brier(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean squared distance of `probabilities` (n, K) from those that are 1 for the class `y` (n,) and else 0."""
    return ClassScores.of(y, probabilities).as_dict()["brier"]


def calibration_error(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Expected calibration error of the most probable class: `y` (n,), `probabilities` (n, K), 15 equal bins."""
    return ClassScores.of(y, probabilities).as_dict()["calibration_error"]


_Sum = TypeVar("_Sum", bound="_Sums")


@dataclass(frozen=True)
class _Sums:
    """Sums over rows, and how many there are; blocks of rows are joined with `+`, field by field."""

    n: float = 0

    def __add__(self: _Sum, other: _Sum) -> _Sum:
        added: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            a, b = getattr(self, name), getattr(other, name)
            added[name] = tuple(x + y for x, y in zip(a, b, strict=True)) if isinstance(a, tuple) else a + b
        return type(self)(**added)

    def _check(self) -> None:
        if self.n == 0:
            name = type(self).__name__
            raise ValueError(f"No rows were scored: add at least one block with {name}.of(y, prediction).")


@dataclass(frozen=True)
class _NumberSums(_Sums):
    """What the scores of real numbers and those of counts have in common."""

    squared_error: float = 0.0
    nll: float = 0.0
    crps: float = 0.0
    inside: tuple[float, ...] = (0,) * len(LEVELS)

    def as_dict(self) -> dict[str, float]:
        """n, rmse, nll, crps, coverage_50, coverage_90 and coverage_95: averages over the rows seen so far."""
        self._check()
        covered = {f"coverage_{level * 100:.0f}": c / self.n for level, c in zip(LEVELS, self.inside, strict=True)}
        return {
            "n": self.n,
            "rmse": float(np.sqrt(self.squared_error / self.n)),
            "nll": self.nll / self.n,
            "crps": self.crps / self.n,
            **covered,
        }


@dataclass(frozen=True)
class Scores(_NumberSums):
    """Sums over rows from which all scores follow; blocks of rows are joined with `+`.

    >>> total = sum((Scores.of(y, dist) for y, dist in blocks), start=Scores())  # doctest: +SKIP
    >>> total.as_dict()  # doctest: +SKIP
    """

    @classmethod
    def of(cls, y: ArrayLike, dist: Predictive) -> Scores:
        """Scores of one block: observed `y` (n,), predicted `dist` (n,)."""
        y = _observed(y)
        parameters = _parameters(y, dist)
        cdf, logpdf = dist.cdf(y), dist.logpdf(y)
        return cls(
            n=y.size,
            squared_error=float(np.sum((y - parameters.loc) ** 2)),
            nll=float(np.sum(-logpdf)),
            crps=float(np.sum(_crps_rows(y, parameters, cdf, logpdf))),
            inside=tuple(int(np.sum(_inside(cdf, level))) for level in LEVELS),
        )


@dataclass(frozen=True)
class CountScores(_NumberSums):
    """Scores of counts, added up and named as `Scores` are.

    The central interval of probability q runs from the quantile (1 - q) / 2 to the quantile (1 + q) / 2, ends included.
    Counts being whole, it holds at least the probability q: coverage above q is no fault, coverage below q is.
    """

    @classmethod
    def of(cls, y: ArrayLike, dist: CountPredictive, weights: ArrayLike | None = None) -> CountScores:
        """Scores of one block: observed counts `y` (n,), predicted `dist` (n,), how often each row counts (n,)."""
        y = _observed(y)
        if not isinstance(dist, CountPredictive):
            raise ValueError(
                f"Got a prediction of kind {type(dist).__name__!r}; a CountDistribution is expected, or another with "
                "the methods of nearfield.counts.CountPredictive."
            )
        _check_shape(y, (len(dist),))
        weights = _weights(y, weights)
        crps = dist.crps_rows(y)  # refuses what is no count
        below, up_to = dist.cdf(y - 1), dist.cdf(y)
        # y >= ppf(q) if and only if cdf(y) >= q, and y <= ppf(q) if and only if cdf(y - 1) < q
        inside = ((up_to >= (1 - level) / 2) & (below < (1 + level) / 2) for level in LEVELS)
        return cls(
            n=_total(weights),
            squared_error=float(weights @ (y - dist.mean()) ** 2),
            nll=float(weights @ -dist.logpmf(y)),
            crps=float(weights @ crps),
            inside=tuple(float(weights @ rows) for rows in inside),
        )


@dataclass(frozen=True)
class ClassScores(_Sums):
    """Scores of predicted classes; blocks of rows are joined with `+`.

    `gaps` are the sums of 1[right] - max p over the rows of each bin, from which the calibration error follows.
    """

    nll: float = 0.0
    wrong: float = 0.0
    brier: float = 0.0
    gaps: tuple[float, ...] = (0.0,) * BINS

    @classmethod
    def of(cls, y: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> ClassScores:
        """Scores of one block: classes `y` (n,), their `probabilities` (n, K), how often each row counts (n,)."""
        y = _observed(y)
        p = _probabilities(y, probabilities)
        weights = _weights(y, weights)
        of_y = p[np.arange(y.size), y.astype(np.intp)]
        top, right = p.max(axis=1), p.argmax(axis=1) == y
        bins = np.minimum((top * BINS).astype(np.intp), BINS - 1)
        return cls(
            n=_total(weights),
            nll=float(weights @ -np.log(np.maximum(of_y, _LEAST_PROBABILITY))),
            wrong=float(weights @ ~right),
            # sum of (p_c - 1[c = y])^2 = sum of p_c^2 - 2 p_y + 1
            brier=float(weights @ (np.sum(p**2, axis=1) - 2 * of_y + 1)),
            gaps=tuple(np.bincount(bins, weights * (right - top), minlength=BINS).tolist()),
        )

    def as_dict(self) -> dict[str, float]:
        """n, nll, error, brier and calibration_error: averages over the rows seen so far."""
        self._check()
        return {
            "n": self.n,
            "nll": self.nll / self.n,
            "error": self.wrong / self.n,
            "brier": self.brier / self.n,
            "calibration_error": float(np.sum(np.abs(self.gaps))) / self.n,
        }


class _Parameters(NamedTuple):
    """Degrees of freedom (infinite for a normal), centre and scale, each () or (n,)."""

    df: Array
    loc: Array
    scale: Array


def _crps_rows(y: Array, p: _Parameters, cdf: Array, logpdf: Array) -> Array:
    """CRPS of each row from its distribution function and log density, (n,).

    Jordan, Krueger and Lerch, Evaluating Probabilistic Forecasts with scoringRules, 2019, appendix A: for a standard t
    with z = (y - loc) / scale,

        crps = z (2 F(z) - 1) + 2 f(z) (df + z^2) / (df - 1) - 2 sqrt(df) / (df - 1) B(1/2, df - 1/2) / B(1/2, df/2)^2

    The ratio of Beta functions is written in rising factorials (x)_{1/2} = Gamma(x + 1/2) / Gamma(x), which lose no
    digits when df is large. The normal is the same formula: at df = 1e12 the two agree to rounding.
    """
    df = np.minimum(p.df, 1e12)
    z = (y - p.loc) / p.scale
    density = p.scale * np.exp(logpdf)
    spread = 2 * np.sqrt(df / np.pi) / (df - 1) * poch(df / 2, 0.5) ** 2 / poch(df - 0.5, 0.5)
    return p.scale * (z * (2 * cdf - 1) + 2 * density * (df + z**2) / (df - 1) - spread)


def _inside(cdf: Array, level: float) -> NDArray[np.bool_]:
    """Whether each row lies in its central interval, from its distribution function, (n,)."""
    return np.abs(cdf - 0.5) <= level / 2


def _observed(y: ArrayLike) -> Array:
    y = np.asarray(y, dtype=np.float64)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y has shape {y.shape}; one dimension with at least one row is expected.")
    missing = int(np.sum(~np.isfinite(y)))
    if missing:
        raise ValueError(
            f"y has {missing} missing or infinite values of {y.size}; leave those rows out before scoring."
        )
    return y


def _weights(y: Array, weights: ArrayLike | None) -> Array:
    if weights is None:
        return np.ones(y.size)
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != y.shape or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"weights has shape {weights.shape}; a finite number >= 0 for each row {y.shape} is expected.")
    return weights


def _total(weights: Array) -> float:
    """How many rows there are, as a whole number if it is one."""
    total = float(np.sum(weights))
    return int(total) if total.is_integer() else total


def _probabilities(y: Array, probabilities: ArrayLike) -> Array:
    """`probabilities` (n, K), checked against the classes `y` (n,)."""
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] != y.size or p.shape[1] < 2:
        raise ValueError(
            f"y has shape {y.shape}, the probabilities {p.shape}; ({y.size}, K) is expected, a column for each of two "
            "or more classes. With the probability p of the second of two, pass np.column_stack([1 - p, p])."
        )
    if not ((p >= 0).all() and (np.abs(p.sum(axis=1) - 1) < 1e-6).all()):
        raise ValueError("The probabilities should be 0 or more and sum to 1 in every row; normalise them first.")
    if not ((y >= 0) & (y < p.shape[1]) & (y == np.floor(y))).all():
        raise ValueError(
            f"y runs from {y.min():g} to {y.max():g}; the numbers of the columns, 0 to {p.shape[1] - 1}, are expected."
        )
    return p


def _parameters(y: Array, dist: Predictive) -> _Parameters:
    """The parameters of `dist`, checked against `y` (n,)."""
    name = getattr(getattr(dist, "dist", None), "name", type(dist).__name__)
    if name not in _PARAMETERS:
        raise ValueError(
            f"Got a prediction of kind {name!r}; scipy.stats.norm(loc, scale) or t(df, loc, scale) is expected."
        )
    given = {
        "df": np.inf,
        "loc": 0.0,
        "scale": 1.0,
        **dict(zip(_PARAMETERS[name], dist.args, strict=False)),
        **dist.kwds,
    }
    p = _Parameters(*(np.asarray(given[key], dtype=np.float64) for key in _Parameters._fields))
    _check_shape(y, np.broadcast_shapes(p.df.shape, p.loc.shape, p.scale.shape))
    if not (np.isfinite(p.loc).all() and np.isfinite(p.scale).all() and (p.scale > 0).all() and (p.df > 1).all()):
        raise ValueError("The predicted distribution needs finite loc, finite scale > 0 and df > 1 in every row.")
    return p


def _check_shape(y: Array, shape: tuple[int, ...]) -> None:
    if shape not in ((), y.shape):
        raise ValueError(
            f"y has shape {y.shape}, the prediction {shape}; one prediction for each row of y is expected."
        )
