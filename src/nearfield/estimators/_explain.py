"""Explained predictions: which training rows they come from, and what they would be without each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nearfield.conditional.deletions import Without
from nearfield.deletions import Deleted, deletions, moves_edge, without_exactly
from nearfield.estimators._base import GPEstimator
from nearfield.moments import Moments
from nearfield.validation import is_int

Values = Callable[[Moments, np.ndarray], np.ndarray]
"""What is predicted (b, V) from moments (b, C) of the rows of X with these numbers (b,)."""


class Explanation(NamedTuple):
    """For each of n rows the m training rows that change its prediction most, those of the largest change first.

    Attributes
    ----------
    prediction : ndarray of shape (n,)
        What is explained: the mean in the units of the target, the probability of the most probable class, or the
        expected count.
    neighbours : ndarray of shape (n, m)
        Numbers of training rows in the order in which they were given to `fit` and `update`, from 0; the first one of
        equal rows; -1 where there are fewer neighbours than m.
    weights : ndarray of shape (n, m)
        Kriging weights: how much the neighbour's target, less the mean there, counts in the mean of the latent
        function; of classes with latent functions of their own, in that of the most probable one. NaN for none.
    changes : ndarray of shape (n, m)
        What the prediction would be without that neighbour, and all copies of it, less what it is; the next nearest row
        then takes its place. NaN for none. In a continuous neighbourhood each would also move its edge: the 2 m that
        matter most with the edge where it is are predicted without, anew, and the first m of them listed.
    rest : ndarray of shape (n,)
        One less the weights of all neighbours, also of those not listed: the share of a constant mean.
    """

    prediction: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray
    changes: np.ndarray
    rest: np.ndarray


class ExplainedPredictions(GPEstimator):
    """For all estimators; `_values` says what is predicted."""

    def explain(self, X: Any, n_neighbours: int = 5) -> Explanation:
        """Explain predictions by the training rows that matter most to them.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        n_neighbours : int, default=5
            How many training rows for each. Hyper-parameters stay as they are when a row is thought away.

        Returns
        -------
        Explanation
            Which rows these are, their weights, and what predictions would be without each.
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
        predictor, inputs = self._fit.predictor, self._fit.inputs
        for block, deleted in deletions(predictor, X, inputs, entire=True):
            rows = np.arange(block.start, block.stop)
            changes = _changes(deleted, deleted.without, values, rows)
            listed = _largest(changes[:, : deleted.near], 2 * int(n_neighbours))
            changes = np.take_along_axis(changes, listed, axis=1)
            if moves_edge(predictor):
                ids = np.take_along_axis(deleted.ids, listed, axis=1)
                changes = _changes(deleted, without_exactly(predictor, X[block], inputs, ids), values, rows)
            _fill(Explanation(*(part[block] for part in found)), deleted, values, rows, numbers, listed, changes)
        return found

    def _first_numbers(self) -> np.ndarray:
        """Numbers (n,) of the first given row that each row of the fit stands for."""
        rows = self._fit.predictor.rows
        found = np.empty(len(rows), dtype=np.int64)
        found[rows.observations.row[self._places][::-1]] = self._row_numbers()[0][::-1]  # the first stays
        return found


def _explained_value(deleted: Deleted, values: Values, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is explained at each of the rows of X with these numbers (b,), and which of the values it is (b,)."""
    own = values(_moments(deleted.mean, deleted.variance, deleted.quad, deleted.ids.shape[1]), rows)
    which = own.argmax(axis=1)
    return own[np.arange(len(own)), which], which


def _changes(deleted: Deleted, without: Without, values: Values, rows: np.ndarray) -> np.ndarray:
    """By how much (b, c) what is explained changes without each of c rows."""
    prediction, which = _explained_value(deleted, values, rows)
    b, latents, c = without.mean.shape
    mean, variance, quad = (part.transpose(0, 2, 1).reshape(b * c, latents) for part in without)
    each = values(_moments(mean, variance, quad, deleted.ids.shape[1]), np.repeat(rows, c)).reshape(b, c, -1)
    return np.asarray(each[np.arange(b), :, which] - prediction[:, None])


def _largest(changes: np.ndarray, most: int) -> np.ndarray:
    """Places (b, c) of the largest changes (b, m), the largest first, at most so many."""
    return np.argsort(-np.abs(changes), axis=1, kind="stable")[:, :most]


def _fill(
    out: Explanation,
    deleted: Deleted,
    values: Values,
    rows: np.ndarray,
    numbers: np.ndarray,
    listed: np.ndarray,
    changes: np.ndarray,
) -> None:
    """Write the explanation of a block, the rows of X with these numbers (b,), to its place.

    listed: (b, c) places of the neighbours that matter most; changes: (b, c) without each of these.
    """
    out.prediction[:], which = _explained_value(deleted, values, rows)
    weights = deleted.weights[np.arange(len(rows)), np.minimum(which, deleted.weights.shape[1] - 1)]
    out.rest[:] = 1 - weights.sum(axis=1)
    order = _largest(changes, out.weights.shape[1])
    listed = np.take_along_axis(listed, order, axis=1)
    first = slice(0, order.shape[1])
    out.neighbours[:, first] = numbers[np.take_along_axis(deleted.ids, listed, axis=1)]
    out.weights[:, first] = np.take_along_axis(weights, listed, axis=1)
    out.changes[:, first] = np.take_along_axis(changes, order, axis=1)


def _moments(mean: np.ndarray, variance: np.ndarray, quad: np.ndarray, size: int) -> Moments:
    """Heads take means and variances for what is explained; the rest tells of error bars alone."""
    sizes = np.full((len(mean), 1), float(size))
    return Moments(mean, variance, quad, sizes, quad, sizes)
