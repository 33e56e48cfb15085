"""Slopes of predictions by the columns of X, in the units of the user."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.columns import Features
from nearfield.encoding import columns_of
from nearfield.gradients import gradient
from nearfield.validation import check_choice

_SLOPED = ("number", "flag")  # kinds of columns whose values are a feature as they are


class PredictionGradient(NamedTuple):
    """Slopes of predictions by the columns of X.

    Attributes
    ----------
    mean : ndarray of shape (n, d) or (n, P, d)
        Slopes of the mean.
    std : ndarray of shape (n, d) or (n, P, d)
        Slopes of the standard deviation.
    """

    mean: np.ndarray
    std: np.ndarray


class GradientMixin:
    """`predict_gradient`, for estimators of real targets."""

    def predict_gradient(
        self: Any, X: Any, uncertainty: str = "observation", noise_variance: Any = None
    ) -> PredictionGradient:
        """Predict slopes of mean and standard deviation by each column of X.

        In units of the target by units of the column, where the neighbours of a row stay the same; if neighbourhoods
        are continuous (`continuous_`), everywhere. NaN for columns that are no numbers (text, dates, durations) and in
        cells that are missing. Where a prediction has a kink (at a training row, if the kernel has a share of Matern
        1/2; at a knot of a column that is bent; where neighbours of a continuous neighbourhood change places) the slope
        is one between those of both sides, or that of one of them; where the latent std is zero, its slope is.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        uncertainty : {"observation", "latent"}, default="observation"
            Whose standard deviation: that of a new measurement, noise included, or of the noise-free function.
        noise_variance : float or array-like, default=None
            Known noise variances of these rows, as for `predict`: with more noise the standard deviation has less
            slope.

        Returns
        -------
        PredictionGradient
            `mean` and `std`, (n, d) each, of several outputs (n, P, d).
        """
        check_is_fitted(self)
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        features = self._inputs(X)
        columns, known = self._sloped_columns(X)
        noise = self._known_noise(noise_variance, len(features), uncertainty)
        found = gradient(self._fit.predictor, features, self._fit.inputs, noise)
        unit = np.asarray(self._target.scale)[..., None]
        std = found.scale if uncertainty == "observation" else found.latent_scale
        std = std * np.asarray(self._head_of(uncertainty).unit_std)[..., None]
        parts = (part * unit for part in (found.loc, std))
        return PredictionGradient(*(self._shaped(_by_columns(part, columns, known)) for part in parts))

    def _sloped_columns(self: Any, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """The feature (d,) that each column of X is, -1 for none; and which cells (n, d) hold a value, None for all."""
        own = self.encoder_
        features = len(own.feature_names)
        if isinstance(X, Features) or np.shape(X)[1:] == (features,) != (self.n_features_in_,):
            return np.arange(features), None  # rows that were encoded before
        first = np.searchsorted(own.owners, np.arange(len(own.rules_)))
        columns = np.array([f if rule.kind in _SLOPED else -1 for f, rule in zip(first, own.rules_, strict=True)])
        table = columns_of(self, X, reset=False)
        known = np.ones((len(table), len(columns)), dtype=bool)
        for place, rule in enumerate(own.rules_):
            if columns[place] >= 0:
                known[:, place] = ~np.isnan(table.read(rule.name, rule.kind, rule.form))
        return columns, known


def _by_columns(slopes: np.ndarray, columns: np.ndarray, known: np.ndarray | None) -> np.ndarray:
    """Slopes (n, .., d) by columns from those by features (n, .., m)."""
    found = np.where(columns >= 0, slopes[..., columns], np.nan)
    if known is None:
        return found
    return np.where(known if slopes.ndim == 2 else known[:, None], found, np.nan)
