"""Where predictions rest on rows: `support`, for all estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.estimators._base import GPEstimator


class Supported(GPEstimator):
    """The method `support`."""

    def support(self, X: Any) -> np.ndarray:
        """Say how much the training rows tell about each row, from 0, nothing, to 1.

        1 - variance / prior variance of the latent function: the share of what could be anything that the rows around
        have settled. Close to 1 amid many rows, 0 far away from all of them, where a prediction is no more than the
        mean and error bars are as wide as the target's spread; where noise is strong, it takes more rows. Of real
        targets the prior variance counts as that of the target at most. Beyond the lowest and highest training value of
        a column it falls to 0 within the difference of these two, whatever was learned of the column.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        ndarray of shape (n,) or (n, P)
            The support; of several outputs, which may be missing in different rows, for each; of classes the mean over
            latent functions.
        """
        check_is_fitted(self)
        found = self._fit.predictor.support(self._inputs(X), self._fit.inputs)
        return found if self._family.kind == "numbers" else np.asarray(found.mean(axis=1))
