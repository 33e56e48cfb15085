"""What `sample_weight` means: weights are relative, and only their ratios matter.

r = weight / least weight above zero. Where all r are whole numbers, they are counts: a row of weight r is that row r
times. Otherwise, or where counts would be MOST_COUNTED on average or more, so that they can hardly be counts (weights
that were rounded to two decimals, 0.01, 0.73, .., have whole ratios too), weights are scaled to a mean of 1. Either way
a constant factor on all weights changes nothing.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

MOST_COUNTED = 5.0
_WHOLE = 1e-9  # relative distance from a whole number that is rounding
_LEAST = 1e-100  # of the largest weight; what is below does not count at all
_TOLD = 2.0  # a unit that is larger, or smaller than its inverse, is told


class WeightsWarning(UserWarning):
    """Weights were scaled by so much that they may have been meant otherwise."""


class Weighting(NamedTuple):
    """The given weight that counts as one, and whether weights are counts."""

    unit: float = 1.0
    counts: bool = True

    @classmethod
    def of(cls, given: np.ndarray) -> Weighting:
        """That of given weights (n,), of which some are above zero."""
        some = given[counting(given)]
        least = float(some.min())
        ratios = some / least
        if ratios.mean() < MOST_COUNTED and (np.abs(ratios - np.rint(ratios)) <= _WHOLE * ratios).all():
            return cls(least, True)
        largest = float(some.max())
        return cls(largest * float((some / largest).mean()), False)

    def applied(self, given: np.ndarray) -> np.ndarray:
        """Weights (n,) from given ones; counts are whole numbers to the bit."""
        weights = given / self.unit
        if not self.counts:
            return weights
        whole = np.rint(weights)
        return np.where(np.abs(weights - whole) <= 2 * _WHOLE * weights, whole, weights)


def counting(given: np.ndarray) -> np.ndarray:
    """Which (n,) of given weights (n,) count at all."""
    return given > _LEAST * given.max()


def warn_of_weights(given: np.ndarray, weighting: Weighting) -> None:
    """Say it if weights (n,) are all the same but 1, or were scaled by a large factor."""
    some, unit = given[counting(given)], weighting.unit
    equal = weighting.counts and weighting.applied(some).max() == 1
    if unit == 1 or (not equal and 1 / _TOLD <= unit <= _TOLD):
        return
    if equal:
        what = f"sample_weight is {some[0]:g} for every row, which is the same as 1"
    elif weighting.counts:
        what = f"sample_weight was divided by its least value, {some.min():g}: a row of weight {some.max():g} counts "
        what += f"{weighting.applied(some).max():g} times"
    else:
        what = f"sample_weight sums to {some.sum():g} and was scaled to sum to {some.size:,}, the number of rows"
    warnings.warn(
        f"{what}: weights are relative, and a constant factor on them changes nothing. To say that a row was observed "
        "several times, give it as many rows; to say how precise rows are, use noise_variance (GPRegressor).",
        WeightsWarning,
        stacklevel=5,
    )
