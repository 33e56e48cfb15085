"""Which deviations are beyond chance: numbers of independent rows, tests of shares and means, many tests at once."""

from __future__ import annotations

import numpy as np
import scipy.stats

SURE = 0.05
"""Probability of a false alarm, over all statements of one kind together."""


def independent(weights: np.ndarray, units: np.ndarray | None = None) -> float:
    """How many equally weighted rows say as much as these: (sum of W)^2 / sum of W^2 (Kish).

    W are the weights (b,), of rows that share their fate summed over each unit: as if a unit were one row.
    """
    own = weights if units is None else np.bincount(np.unique(units, return_inverse=True)[1], weights)
    total = float(own.sum())
    return total**2 / float((own**2).sum()) if total else 0.0


def share_p(share: float, expected: float, n: float) -> float:
    """Probability that a share of n independent rows is as far from the expected one, if that is true: exact binomial.

    For parts of rows, as counts have them, it is an upper bound or so: these vary less.
    """
    rows = round(n)
    if rows < 1:
        return 1.0
    return float(scipy.stats.binomtest(min(round(share * rows), rows), rows, expected).pvalue)


def share_band(expected: np.ndarray, n: float, sure: float = SURE) -> tuple[np.ndarray, np.ndarray]:
    """Ends between which a share of n independent rows is with probability 1 - sure, for each expected share."""
    rows = max(round(n), 1)
    low, high = scipy.stats.binom.interval(1 - sure, rows, np.asarray(expected, dtype=np.float64))
    return np.asarray(low) / rows, np.asarray(high) / rows


def mean_p(values: np.ndarray, weights: np.ndarray, units: np.ndarray | None = None) -> tuple[float, float, float]:
    """Weighted mean of values (b,), its standard error, and the probability of such a mean if the true one is zero."""
    n = independent(weights, units)
    mean = float(np.average(values, weights=weights))
    if n < 2:
        return mean, float("inf"), 1.0
    variance = float(np.average((values - mean) ** 2, weights=weights)) * n / (n - 1)
    error = float(np.sqrt(variance / n))
    if error == 0:
        return mean, 0.0, 1.0 if mean == 0 else 0.0
    return mean, error, float(2 * scipy.stats.t.sf(abs(mean) / error, n - 1))


def holm(p: list[float]) -> list[float]:
    """p values for all statements together: those below a bound hold at once with that probability (Holm, 1979)."""
    order = np.argsort(p, kind="stable")
    found, largest = np.ones(len(p)), 0.0
    for rank, place in enumerate(order.tolist()):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        found[place] = largest
    return found.tolist()
