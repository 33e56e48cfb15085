"""Error bars of a regression where left-out rows are not independent of each other: few units tell little.

A scale that covers 90 % of n independent left-out residuals covers 90 % n / (n + 1) of a new one on average, which is
why conformal intervals take the quantile at 90 % (n + 1) / n. Rows of a unit, such as a group, are covered or missed
together. So n is the number of independent rows that would tell the share of covered ones as precisely as the units do:

    n = p (1 - p) / (standard error of p, between units)^2

It is the number of units if all rows of a unit share their fate, and that of rows if units do not matter.
"""

from __future__ import annotations

import numpy as np

LEVEL = 0.9
_FEWEST = 2.0  # independent rows, however much units differ
_MOST = 1e4  # factor


def independent_rows(inside: np.ndarray, weights: np.ndarray, units: np.ndarray) -> float:
    """n above, from which rows (b,) are covered, how often they count (b,) and the numbers of their units (b,)."""
    share = float(np.average(inside, weights=weights))
    place = np.unique(units, return_inverse=True)[1].reshape(-1)
    count = int(place.max()) + 1
    if count < 2 or not 0 < share < 1:
        return max(float(count), _FEWEST)
    off = np.bincount(place, weights * (inside - share)) / weights.sum()
    squared = float(off @ off) * count / (count - 1)
    return max(share * (1 - share) / max(squared, 1e-300), _FEWEST)


def widening(needed: np.ndarray, weights: np.ndarray, units: np.ndarray) -> float:
    """The factor, at least 1, on variances with which 90 % of rows of a new unit are covered.

    needed (b,): the factors from which on left-out rows are covered by the interval of 90 %.
    """
    level = min(LEVEL * (1 + 1 / independent_rows(needed <= 1, weights, units)), 1.0)
    order = np.argsort(needed, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    last = min(int(np.searchsorted(share, level - 1e-12)), len(order) - 1)
    return float(np.clip(needed[order[last]], 1.0, _MOST))
