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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfield.metrics._rows import (
    BINS,
    LEVELS,
    Array,
    Predictive,
    check_shape,
    checked_values,
    crps_of,
    is_inside,
    parameters_of,
)
from nearfield.metrics._sums import ClassScores, CountScores, Scores

__all__ = [
    "BINS",
    "LEVELS",
    "ClassScores",
    "CountScores",
    "Predictive",
    "Scores",
    "brier",
    "calibration_error",
    "class_nll",
    "coverage",
    "covered",
    "crps",
    "crps_and_covered",
    "crps_rows",
    "error",
    "nll",
    "rmse",
]


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Compute the root mean squared error.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    mean : array-like of shape (n,)
        Predicted means.

    Returns
    -------
    float
        The error, in the units of y.
    """
    y = checked_values(y)
    mean = np.asarray(mean, dtype=np.float64)
    check_shape(y, mean.shape)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def nll(y: ArrayLike, dist: Predictive) -> float:
    """Compute the mean negative log density of what was observed.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    dist : distribution
        What `predict_dist` gave for these rows.

    Returns
    -------
    float
        The mean; lower is better.
    """
    y = checked_values(y)
    parameters_of(y, dist)
    return float(np.mean(-dist.logpdf(y)))


def crps(y: ArrayLike, dist: Predictive) -> float:
    """Compute the mean continuous ranked probability score.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    dist : distribution
        What `predict_dist` gave for these rows.

    Returns
    -------
    float
        The mean, in the units of y; lower is better.
    """
    return float(np.mean(crps_rows(y, dist)))


def crps_rows(y: ArrayLike, dist: Predictive) -> Array:
    """Compute the continuous ranked probability score of each row.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    dist : distribution
        What `predict_dist` gave for these rows.

    Returns
    -------
    ndarray of shape (n,)
        The scores, in the units of y.
    """
    y = checked_values(y)
    parameters = parameters_of(y, dist)
    return crps_of(y, parameters, dist.cdf(y), dist.logpdf(y))


def coverage(y: ArrayLike, dist: Predictive, level: float) -> float:
    """Compute the share of rows inside of central intervals, ends included.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    dist : distribution
        What `predict_dist` gave for these rows.
    level : float
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    float
        The share, which should be close to `level`.
    """
    return float(np.mean(covered(y, dist, level)))


def covered(y: ArrayLike, dist: Predictive, level: float) -> NDArray[np.bool_]:
    """Tell which rows lie inside of their central intervals, ends included.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    dist : distribution
        What `predict_dist` gave for these rows.
    level : float
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    ndarray of bool of shape (n,)
        Whether each row does.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; a probability between 0 and 1 is expected, for example 0.9.")
    y = checked_values(y)
    parameters_of(y, dist)
    return is_inside(dist.cdf(y), level)


def crps_and_covered(y: ArrayLike, dist: Predictive) -> tuple[Array, list[NDArray[np.bool_]]]:
    """Compute what `crps_rows` gives, and `covered` for 50, 90 and 95 %, at the cost of one.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    dist : distribution
        What `predict_dist` gave for these rows.

    Returns
    -------
    scores : ndarray of shape (n,)
        The continuous ranked probability score of each row.
    inside : list of ndarray of bool
        For each of the three levels, which rows lie inside of their intervals.
    """
    y = checked_values(y)
    parameters, below = parameters_of(y, dist), dist.cdf(y)
    return crps_of(y, parameters, below, dist.logpdf(y)), [is_inside(below, level) for level in LEVELS]


def class_nll(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Compute the mean negative log probability of the classes that were seen.

    Parameters
    ----------
    y : array-like of int of shape (n,)
        Numbers of the classes that were seen, from 0 to K - 1.
    probabilities : array-like of shape (n, K)
        What `predict_proba` gave for these rows.

    Returns
    -------
    float
        The mean; lower is better. Probabilities are floored at 1e-15, so that one sure and wrong row is not infinite.
    """
    return ClassScores.of(y, probabilities).as_dict()["nll"]


def error(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Compute the share of rows whose most probable class was not seen.

    Parameters
    ----------
    y : array-like of int of shape (n,)
        Numbers of the classes that were seen, from 0 to K - 1.
    probabilities : array-like of shape (n, K)
        What `predict_proba` gave for these rows.

    Returns
    -------
    float
        The share.
    """
    return ClassScores.of(y, probabilities).as_dict()["error"]


def brier(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Compute the Brier score: the mean squared distance from probabilities that are 1 for the class that was seen.

    Parameters
    ----------
    y : array-like of int of shape (n,)
        Numbers of the classes that were seen, from 0 to K - 1.
    probabilities : array-like of shape (n, K)
        What `predict_proba` gave for these rows.

    Returns
    -------
    float
        The score, between 0 and 2; lower is better.
    """
    return ClassScores.of(y, probabilities).as_dict()["brier"]


def calibration_error(y: ArrayLike, probabilities: ArrayLike) -> float:
    """Compute the expected calibration error of the most probable class.

    Parameters
    ----------
    y : array-like of int of shape (n,)
        Numbers of the classes that were seen, from 0 to K - 1.
    probabilities : array-like of shape (n, K)
        What `predict_proba` gave for these rows.

    Returns
    -------
    float
        The mean difference between its probability and how often it was right, in 15 equal bins.
    """
    return ClassScores.of(y, probabilities).as_dict()["calibration_error"]
