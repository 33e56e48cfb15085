"""Intervals with a guarantee: what `predict_interval` gives with method="jackknife+" and "minmax".

They are those of hard neighbourhoods, whether predictions are continuous or not: the guarantee is for any rule that
treats all rows alike, and with this one predictions without single rows are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.conformal import METHODS, Errors
from nearfield.deletions import deletions
from nearfield.estimators._base import GPEstimator

INTERVALS = ("predictive", *METHODS)


class GuaranteedIntervals(GPEstimator):
    """For an estimator of one real target, with left-out residuals `loo_` in its units."""

    loo_: Any

    def _guaranteed(self, X: Any, coverage: float, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends (n,) in the units of the target."""
        X = self._inputs(X)
        predictor, target = self._fit.predictor.hard, self._target
        if predictor.model.family.latents > 1:
            raise ValueError(
                f"method is {method!r}: intervals with a guarantee are for one output, and the model has "
                f"{predictor.model.family.latents}. Fit one model for each output, or use method='predictive'."
            )
        if predictor.rows.hidden is not None:
            rows = predictor.rows
            given = {"groups=": rows.groups, "leave_out='past'": rows.times, "buffer=": rows.buffer}
            asked = " and ".join(name for name, of in given.items() if of is not None)
            raise ValueError(
                f"method is {method!r}: its guarantee is for rows that are left out one by one, and the model was "
                f"fitted with {asked}, so that rows are left out together with others. Use method='predictive', whose "
                f"calibration follows them, or fit without {asked}."
            )
        errors: Errors = self._left_out(self._errors, "_left_out_errors")
        lower, upper = np.empty(len(X)), np.empty(len(X))
        for block, deleted in deletions(predictor, X, self._fit.inputs, entire=False):
            moved = (deleted.without.mean[:, 0] - deleted.mean) * target.scale
            mean = target.undo(deleted.mean[:, 0])
            lower[block], upper[block] = METHODS[method](errors, coverage, mean, deleted.ids, moved)
        return lower, upper

    def _errors(self) -> Errors:
        """Left-out absolute residuals of the observations, of which there is one at each row."""
        predictor = self._fit.predictor
        observations = predictor.rows.observations
        if predictor.taper is not None:
            y, centre = self._family.values(observations.observed), predictor.hard.left_out().loc
            return Errors.of(np.abs(np.ravel(y - centre)) * float(self._target.scale), observations.weights)
        first = np.unique(self._places, return_index=True)[1]  # the first given row of each observation
        return Errors.of(np.abs(np.ravel(self.loo_.residual)[first]), observations.weights)
