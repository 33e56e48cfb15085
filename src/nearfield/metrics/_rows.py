"""Observed values, predictions and weights of rows, checked, and what scores are made of."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import poch

LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals that `Scores` counts."""

BINS = 15
"""Bins of the calibration error."""

LEAST_PROBABILITY = 1e-15
_PARAMETERS = {"norm": ("loc", "scale"), "t": ("df", "loc", "scale")}

Array = NDArray[np.float64]


class Predictive(Protocol):
    """What is used of a frozen `scipy.stats` distribution."""

    dist: Any
    args: tuple[Any, ...]
    kwds: dict[str, Any]

    def logpdf(self, x: Array) -> Array: ...

    def cdf(self, x: Array) -> Array: ...


class Parameters(NamedTuple):
    """Degrees of freedom (infinite for a normal), centre and scale, each () or (n,)."""

    df: Array
    loc: Array
    scale: Array


def crps_of(y: Array, p: Parameters, cdf: Array, logpdf: Array) -> Array:
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


def is_inside(cdf: Array, level: float) -> NDArray[np.bool_]:
    """Whether each row lies in its central interval, from its distribution function, (n,)."""
    return np.abs(cdf - 0.5) <= level / 2


def checked_values(y: ArrayLike) -> Array:
    y = np.asarray(y, dtype=np.float64)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y has shape {y.shape}; one dimension with at least one row is expected.")
    missing = int(np.sum(~np.isfinite(y)))
    if missing:
        raise ValueError(
            f"y has {missing} missing or infinite values of {y.size}; leave those rows out before scoring."
        )
    return y


def checked_weights(y: Array, weights: ArrayLike | None) -> Array:
    if weights is None:
        return np.ones(y.size)
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != y.shape or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"weights has shape {weights.shape}; a finite number >= 0 for each row {y.shape} is expected.")
    return weights


def total_of(weights: Array) -> float:
    """How many rows there are, as a whole number if it is one."""
    total = float(np.sum(weights))
    return int(total) if total.is_integer() else total


def checked_probabilities(y: Array, probabilities: ArrayLike) -> Array:
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


def parameters_of(y: Array, dist: Predictive) -> Parameters:
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
    p = Parameters(*(np.asarray(given[key], dtype=np.float64) for key in Parameters._fields))
    check_shape(y, np.broadcast_shapes(p.df.shape, p.loc.shape, p.scale.shape))
    if not (np.isfinite(p.loc).all() and np.isfinite(p.scale).all() and (p.scale > 0).all() and (p.df > 1).all()):
        raise ValueError("The predicted distribution needs finite loc, finite scale > 0 and df > 1 in every row.")
    return p


def check_shape(y: Array, shape: tuple[int, ...]) -> None:
    if shape not in ((), y.shape):
        raise ValueError(
            f"y has shape {y.shape}, the prediction {shape}; one prediction for each row of y is expected."
        )
