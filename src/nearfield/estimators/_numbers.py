"""What a regression learned, in the units of its target, and its left-out rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.estimators._predictions import NumberPredictions
from nearfield.families import Observations
from nearfield.fitting import Fit
from nearfield.model_file import pack_scaling, unpack_scaling
from nearfield.moments import Moments
from nearfield.scaling import Scaling


class LeftOutPredictions(NamedTuple):
    """Predictions of the training rows from the others, in the units of the target.

    Attributes
    ----------
    mean : ndarray of shape (n,) or (n, P)
        What is predicted of each training row from the others.
    std : ndarray of shape (n,) or (n, P)
        The standard deviation of that prediction.
    residual : ndarray of shape (n,) or (n, P)
        What was observed less the mean; NaN where an output of a row is missing.
    """

    mean: np.ndarray
    std: np.ndarray
    residual: np.ndarray


class LearnedNumbers(NumberPredictions):
    """For an estimator of one real target, or of several."""

    def _adopt(self, fit: Fit) -> None:
        super()._adopt(fit)
        p, target = fit.predictor.model.parameters, self._target
        self.n_outputs_ = target.scale.size
        self.target_mean_, self.target_std_ = _plain(target.centre), _plain(target.scale)
        self.mixing_ = p["mixing"] * target.scale[:, None] if "mixing" in p else None
        slopes = fit.predictor.model.mean.slopes_of_all(p, len(fit.inputs.scale))
        self.mean_slopes_ = None if slopes is None else self._slopes(slopes, fit.inputs)

    def _always_learned(self, fit: Fit) -> dict[str, Any]:
        model, unit = fit.predictor.model, self._target.scale
        scale, noise = np.sqrt(model.scale2) * unit, np.sqrt(model.noise) * unit
        scale, noise = (values if unit.ndim else float(values[0]) for values in (scale, noise))
        return {"kernel_scale_": scale, "noise_std_": noise, "df_": np.inf}

    def _slopes(self, slopes: np.ndarray, inputs: Scaling) -> np.ndarray:
        """Slopes of a linear mean in the units of the data: (d,), or (P, d)."""
        found = slopes * np.atleast_1d(self._target.scale)[:, None] / inputs.scale
        return found if self._target.scale.ndim else found[0]

    def _baseline(self) -> dict[str, Any]:
        """What a prediction that ignores the inputs is made of, from the training rows."""
        model, observed = self._fit.predictor.model, self._fit.predictor.rows.observed
        y = np.where(observed.get("present", True), self._target.undo(observed["y"]), np.nan)
        return model.family.baseline(y, {}, model.family.weight(observed))

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"column": self._column}, pack_scaling("target", self._target)

    def _unpack_target(self, fields: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        family = fit.predictor.model.family
        self._column = fields.get("column") is True
        self._target = unpack_scaling(arrays, "target", (family.latents,) if family.kind == "numbers" else ())

    # --- left-out rows ----------------------------------------------------------------------------------------------

    @property
    def loo_(self) -> LeftOutPredictions:
        """Left-out mean, std and residual of each training row, in the units of the target."""
        check_is_fitted(self)
        found: LeftOutPredictions = self._left_out(self._compute_loo)
        return found

    def _compute_loo(self) -> LeftOutPredictions:
        target, predictor = self._target, self._fit.predictor
        predicted, observed = predictor.left_out(), predictor.rows.observations.observed
        mean, y = target.undo(predicted.loc), target.undo(self._family.values(observed))
        std = predicted.scale * target.scale * predictor.head.unit_std
        return LeftOutPredictions(*(self._shaped(part[self._places]) for part in (mean, std, y - mean)))

    def _values(self, moments: Moments, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._target.undo(moments.mean))

    def _log_scores(self, predicted: Any, left_out: Observations) -> np.ndarray:
        """Of several outputs the mean over those that are there."""
        y = self._family.values(left_out.observed)
        there = np.isfinite(y)
        scores = self._head.distribution(predicted.loc, predicted.scale).logpdf(np.where(there, y, 0.0))
        if y.ndim == 1:
            return np.asarray(scores)
        return np.asarray(np.where(there, scores, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1))


def _plain(value: np.ndarray) -> Any:
    """A float, or the array where there are several outputs."""
    return float(value) if value.ndim == 0 else value
