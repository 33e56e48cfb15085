"""Intervals and sets with a guarantee: order statistics of left-out errors.

Barber, Candes, Ramdas and Tibshirani (2021), "Predictive inference with the jackknife+". With errors R_i of the n
observations, each left out, and predictions m_i(x) of a new row without observation i, at coverage 1 - alpha:

    jackknife+   from the floor(alpha (n + 1))-th smallest of m_i(x) - R_i
                 to the ceil((1 - alpha) (n + 1))-th smallest of m_i(x) + R_i
    minmax       from min m_i(x) - q to max m_i(x) + q, q the ceil((1 - alpha) (n + 1))-th smallest R_i

If training and new rows are exchangeable, and the fit does not depend on the order of rows, the first covers with a
probability of at least 1 - 2 alpha (1 - alpha or so in practice), the second of at least 1 - alpha. m_i differs from m
for the neighbours of x alone, so the R_i are sorted once, and only those of neighbours are moved for each row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_ROUNDING = 1e-9  # what a sum of weights may be off


class Errors(NamedTuple):
    """Errors (u,) in the order of observations, how many each of them counts for (u,), and both in ascending order.

    total: how many these are; upto: (u,) how many are no larger than each of the ascending ones.
    """

    values: np.ndarray
    counts: np.ndarray
    ascending: np.ndarray
    upto: np.ndarray
    total: float

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray) -> Errors:
        """Whole weights are numbers of observations; others say how much each counts among as many as there are."""
        whole = np.abs(weights - np.round(weights)).max() < _ROUNDING and weights.min() >= 1 - _ROUNDING
        counts = np.round(weights) if whole else weights * (len(weights) / weights.sum())
        order = np.argsort(values, kind="stable")
        upto = np.cumsum(counts[order])
        return cls(values, counts, values[order], upto, float(upto[-1]))

    def rank(self, coverage: float) -> float:
        """Which of them, counted from the smallest, is the quantile: ceil(coverage (n + 1))."""
        return math.ceil(coverage * (self.total + 1) - _ROUNDING)

    def quantile(self, coverage: float) -> float:
        """The error that so many are no larger than; infinite where there are too few to say."""
        return float(self._at(np.array(self.rank(coverage))))

    def moved_quantile(self, coverage: float, which: np.ndarray, by: np.ndarray) -> np.ndarray:
        """The same (b,) where the errors `which` (b, m) are larger by (b, m).

        The count of values up to z is that of the sorted errors and, at the 2 m places where an error leaves or comes
        back, one less or more. Between two such places it follows the sorted errors, so the first z that reaches the
        rank is looked up in each gap, and the smallest that lies in its own gap is the answer.
        """
        left = self.values[which]
        places = np.concatenate([left, left + by], axis=1)
        counts = self.counts[which]
        steps = np.concatenate([-counts, counts], axis=1)
        order = np.argsort(places, axis=1, kind="stable")
        places, steps = (np.take_along_axis(part, order, axis=1) for part in (places, steps))
        edge = np.full((len(places), 1), np.inf)
        begin, end = np.concatenate([-edge, places], axis=1), np.concatenate([places, edge], axis=1)
        change = np.concatenate([np.zeros(edge.shape), np.cumsum(steps, axis=1)], axis=1)
        first = np.maximum(begin, self._at(self.rank(coverage) - change))
        return np.where(first < end, first, np.inf).min(axis=1)

    def _at(self, rank: np.ndarray) -> np.ndarray:
        """The smallest error up to which there are so many; infinite where there never are."""
        place = np.searchsorted(self.upto, rank - _ROUNDING * max(self.total, 1.0))
        found = self.ascending[np.minimum(place, len(self.ascending) - 1)]
        return np.where(rank <= _ROUNDING, -np.inf, np.where(place < len(self.ascending), found, np.inf))


def jackknife_plus(
    errors: Errors, coverage: float, mean: np.ndarray, which: np.ndarray, moved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends (b,) for predictions (b,), which move by (b, m) without the observations `which` (b, m)."""
    return (
        mean - errors.moved_quantile(coverage, which, -moved),
        mean + errors.moved_quantile(coverage, which, moved),
    )  # fmt: skip


def minmax(
    errors: Errors, coverage: float, mean: np.ndarray, which: np.ndarray, moved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same from the smallest to the largest prediction without one observation."""
    lowest, highest = moved.min(axis=1), moved.max(axis=1)
    if which.shape[1] < len(errors.values):  # without any of the others nothing moves
        lowest, highest = np.minimum(lowest, 0.0), np.maximum(highest, 0.0)
    q = errors.quantile(coverage)
    return mean + lowest - q, mean + highest + q


METHODS = {"jackknife+": jackknife_plus, "minmax": minmax}
