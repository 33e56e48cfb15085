"""Explained predictions: which training rows they come from, and what they would be without each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nearfield.deletions import Deleted, deletions
from nearfield.estimators._base import GPEstimator
from nearfield.moments import Moments
from nearfield.validation import is_int

Values = Callable[[Moments, np.ndarray], np.ndarray]
"""What is predicted (b, V) from moments (b, C) of the rows of X with these numbers (b,)."""


class Explanation(NamedTuple):
    """For each of n rows the m training rows that change its prediction most, those of the largest |change| first.

    prediction: (n,) what is explained: the mean in the units of the target, the probability of the most probable class,
        or the expected count.
    neighbours: (n, m) numbers of training rows in the order in which they were given to `fit` and `update`, from 0; the
        first one of equal rows; -1 where there are fewer neighbours than m.
    weights: (n, m) kriging weights: how much the neighbour's target, less the mean there, counts in the mean of the
        latent function; of classes with latent functions of their own, in that of the most probable one. NaN for none.
    changes: (n, m) what the prediction would be without that neighbour, and all copies of it, less what it is; the next
        nearest row then takes its place, but not in a continuous neighbourhood, whose edge stays. NaN for none.
    rest: (n,) one less the weights of all neighbours, also of those not listed: the share of a constant mean.
    """

    prediction: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray
    changes: np.ndarray
    rest: np.ndarray


class ExplainedPredictions(GPEstimator):
    """For all estimators; `_values` says what is predicted."""

    def explain(self, X: Any, n_neighbours: int = 5) -> Explanation:
        """The training rows that matter most to the prediction of each row of X (n, d), and how: see `Explanation`.

        n_neighbours : how many, m. Hyper-parameters stay as they are when a row is thought away.
        """
        return self._explained(self._inputs(X), n_neighbours, self._values)

    def _values(self, moments: Moments, rows: np.ndarray) -> np.ndarray:
        """What is predicted (b, V) from moments (b, C); of several numbers, the largest is explained."""
        raise NotImplementedError

    def _explained(self, X: np.ndarray, n_neighbours: int, values: Values) -> Explanation:
        if not (is_int(n_neighbours) and n_neighbours >= 1):
            raise ValueError(f"n_neighbours is {n_neighbours!r}: expected a whole number of at least 1.")
        if self._family.kind == "numbers":
            raise ValueError(
                f"the model has {self._family.latents} outputs: predictions of one are explained. Fit one model for "
                "each output."
            )
        shape = (len(X), int(n_neighbours))
        found = Explanation(
            np.empty(len(X)), np.full(shape, -1, dtype=np.int64), np.full(shape, np.nan), np.full(shape, np.nan),
            np.empty(len(X)),
        )  # fmt: skip
        numbers = self._first_numbers()
        for block, deleted in deletions(self._fit.predictor, X, self._fit.inputs, entire=True):
            rows = np.arange(block.start, block.stop)
            _fill(Explanation(*(part[block] for part in found)), deleted, values, rows, numbers)
        return found

    def _first_numbers(self) -> np.ndarray:
        """Numbers (n,) of the first given row that each row of the fit stands for."""
        row = self._fit.predictor.rows.observations.row[self._places]
        return np.asarray(self._row_numbers()[0][np.unique(row, return_index=True)[1]])


def _fill(out: Explanation, deleted: Deleted, values: Values, rows: np.ndarray, numbers: np.ndarray) -> None:
    """Write the explanation of a block, the rows of X with these numbers (b,), to its place."""
    b, latents, m = deleted.weights.shape
    own = values(_moments(deleted.mean, deleted.variance, deleted.quad, m), rows)
    which = own.argmax(axis=1)
    mean, variance, quad = (part.transpose(0, 2, 1).reshape(b * m, latents) for part in deleted.without)
    without = values(_moments(mean, variance, quad, m), np.repeat(rows, m)).reshape(b, m, -1)
    each = np.arange(b)
    out.prediction[:] = own[each, which]
    changes = without[each, :, which] - out.prediction[:, None]
    weights = deleted.weights[each, np.minimum(which, latents - 1)]
    out.rest[:] = 1 - weights.sum(axis=1)
    order = np.argsort(-np.abs(changes[:, : deleted.near]), axis=1, kind="stable")[:, : out.weights.shape[1]]
    listed = slice(0, order.shape[1])
    out.neighbours[:, listed] = numbers[np.take_along_axis(deleted.ids, order, axis=1)]
    out.weights[:, listed] = np.take_along_axis(weights, order, axis=1)
    out.changes[:, listed] = np.take_along_axis(changes, order, axis=1)


def _moments(mean: np.ndarray, variance: np.ndarray, quad: np.ndarray, size: int) -> Moments:
    """Heads take means and variances for what is explained; the rest tells of error bars alone."""
    sizes = np.full((len(mean), 1), float(size))
    return Moments(mean, variance, quad, sizes, quad, sizes)
