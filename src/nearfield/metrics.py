"""Scores of predictive distributions: how far off the means are, and whether the error bars can be trusted.

A prediction is a frozen `scipy.stats.norm(loc, scale)` or `scipy.stats.t(df, loc, scale)`, one entry a row. With F the
predictive distribution function, f its density and y the observed value, averaged over n rows:

    rmse        sqrt(mean (y - loc)^2)
    nll         mean of -log f(y)
    crps        mean of the integral over x of (F(x) - 1[x >= y])^2, in the units of y
    coverage    share of rows with y inside the central interval of a given probability

Lower is better for the first three; coverage should equal the probability asked for. `Scores` adds up blocks of rows,
so a table of any length can be scored in constant memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import poch

LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals that `Scores` counts."""

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


@dataclass(frozen=True)
class Scores:
    """Sums over rows from which all scores follow; blocks of rows are joined with `+`.

    >>> total = sum((Scores.of(y, dist) for y, dist in blocks), start=Scores())  # doctest: +SKIP
    >>> total.as_dict()  # doctest: +SKIP
    """

    n: int = 0
    squared_error: float = 0.0
    nll: float = 0.0
    crps: float = 0.0
    inside: tuple[int, ...] = (0,) * len(LEVELS)

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

    def __add__(self, other: Scores) -> Scores:
        return Scores(
            n=self.n + other.n,
            squared_error=self.squared_error + other.squared_error,
            nll=self.nll + other.nll,
            crps=self.crps + other.crps,
            inside=tuple(a + b for a, b in zip(self.inside, other.inside, strict=True)),
        )

    def as_dict(self) -> dict[str, float]:
        """n, rmse, nll, crps, coverage_50, coverage_90 and coverage_95: averages over the rows seen so far."""
        if self.n == 0:
            raise ValueError("No rows were scored: add at least one block with Scores.of(y, dist).")
        covered = {f"coverage_{level * 100:.0f}": c / self.n for level, c in zip(LEVELS, self.inside, strict=True)}
        return {
            "n": self.n,
            "rmse": float(np.sqrt(self.squared_error / self.n)),
            "nll": self.nll / self.n,
            "crps": self.crps / self.n,
            **covered,
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
