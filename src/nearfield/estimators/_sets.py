"""Sets of classes that hold the right one with a wanted probability."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.conformal import Errors
from nearfield.estimators._base import GPEstimator


class PredictionSets(GPEstimator):
    """For an estimator of classes, with left-out log probabilities `loo_` of the labels."""

    loo_: Any
    class_weight_: np.ndarray

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities (n, K)."""
        raise NotImplementedError

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Predict sets of classes that hold the right one with a wanted probability; never none.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        coverage : float, default=0.9
            That probability.

        Returns
        -------
        ndarray of bool of shape (n, K)
            Which classes are in the set of each row, columns in the order of `classes_`.

        Notes
        -----
        Conformal sets: a class is in if its probability is no less than that of the labels of all but the share 1 -
        coverage of the training rows, each left out, with the quantile ceil(coverage (n + 1)) of a finite sample. If
        training and new rows are exchangeable, the right class is in the set with a probability of about `coverage`,
        also where the probabilities are off. It is on average over all rows, not for each class or input, and
        approximate as far as a single training row changes the probabilities of others and the hyper-parameters. With
        fewer than 1 / (1 - coverage) - 1 training rows every class is in. The most probable class always is.
        """
        check_is_fitted(self)
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is {coverage!r}: expected a number between 0 and 1, for example 0.9.")
        log_p = self.predict_log_proba(X)
        errors: Errors = self._left_out(self._surprises, "_left_out_errors")
        inside = -log_p <= errors.quantile(coverage)
        inside[np.arange(len(log_p)), log_p.argmax(axis=1)] = True
        return inside

    def _surprises(self) -> Errors:
        """-log p of left-out labels. Weights of classes say what a mistake costs, not how often a class was seen."""
        observations = self._fit.predictor.rows.observations
        first = np.unique(self._places, return_index=True)[1]  # the first given row of each observation
        times = observations.weights / self.class_weight_[self._family.values(observations.observed)]
        return Errors.of(-self.loo_.log_score[first], times)
