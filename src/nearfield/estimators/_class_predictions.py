"""What a classification predicts and knows of its labels: probabilities, scores, and how often each was seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from nearfield.estimators._class_weights import is_weight, packed_weights, unpacked_weights
from nearfield.estimators._explain import ExplainedPredictions
from nearfield.estimators._joint import JointClasses
from nearfield.estimators._sets import PredictionSets
from nearfield.estimators._targets import target_labels
from nearfield.families import Observations
from nearfield.fitting import Fit
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require

_LEAST = 1e-300  # probability, before its logarithm is taken


class LeftOutClasses(NamedTuple):
    """Predictions of the training rows from the others.

    Attributes
    ----------
    probability : ndarray of shape (n, K)
        Probabilities of the classes.
    log_score : ndarray of shape (n,)
        The logarithm of that of the row's own label.
    """

    probability: np.ndarray
    log_score: np.ndarray


class ClassPredictions(JointClasses, PredictionSets, ExplainedPredictions):
    """Predictions of labels."""

    class_weight: Any

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict probabilities of the classes.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        ndarray of shape (n, K)
            Probabilities, in the order of `classes_`; rows sum to one.
        """
        X = self._inputs(X)
        predicted, _ = self._fit.predictor.predict(X, self._fit.inputs)
        return np.asarray(predicted.p)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Predict logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        ndarray of shape (n, K)
            Logarithms, in the order of `classes_`.
        """
        return np.log(np.maximum(self.predict_proba(X), _LEAST))

    def decision_function(self, X: Any) -> np.ndarray:
        """Predict log odds.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            Those of the second of two classes; of more classes, those of each against the others.
        """
        p = self.predict_proba(X)
        if p.shape[1] == 2:
            low, high = np.log(np.maximum(p, _LEAST)).T
            return np.asarray(high - low)
        return np.log(np.maximum(p, _LEAST)) - np.log(np.maximum(1 - p, np.finfo(float).eps / 2))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable labels.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def log_score(self, X: Any, y: Any) -> float:
        """Score the probabilities by the mean log probability of what was observed.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        y : array-like of shape (n,)
            Observed labels, which must be among `classes_`.

        Returns
        -------
        float
            Mean log probability; higher is better.
        """
        log_p = self.predict_log_proba(X)
        labels = self._labels(y)
        if len(labels) != len(log_p):
            raise ValueError(f"y has {len(labels)} labels: expected {len(log_p)}, one for each row of X.")
        return float(log_p[np.arange(len(labels)), labels].mean())

    @property
    def loo_(self) -> LeftOutClasses:
        """Left-out probabilities of each training row, and the log probability of its label."""
        check_is_fitted(self)
        found: LeftOutClasses = self._left_out(self._compute_loo)
        return found

    def _compute_loo(self) -> LeftOutClasses:
        predictor = self._fit.predictor
        predicted = predictor.left_out()
        scores = self._log_scores(predicted, predictor.rows.observations)
        return LeftOutClasses(predicted.p[self._places], scores[self._places])

    def _values(self, moments: Moments, rows: np.ndarray) -> np.ndarray:
        predictor = self._fit.predictor
        return np.asarray(predictor.head.predicted(moments, predictor.model.noise).p)

    def _log_scores(self, predicted: Any, left_out: Observations) -> np.ndarray:
        seen = predicted.p[np.arange(len(predicted.p)), self._family.values(left_out.observed)]
        return np.log(np.maximum(seen, _LEAST))

    # --- labels -----------------------------------------------------------------------------------------------------

    def _labels(self, y: Any) -> np.ndarray:
        """Positions (n,) in `classes_` of labels y (n,)."""
        y = column_or_1d(target_labels(y))
        known = {label: place for place, label in enumerate(self.classes_.tolist())}
        places = np.array([known.get(label, -1) for label in y.tolist()], dtype=np.int64)
        if (places < 0).any():
            raise ValueError(
                f"the label {y[places < 0].tolist()[0]!r} was not among the classes of the fit "
                f"({', '.join(map(repr, self.classes_.tolist()[:10]))}): fit again to learn new classes."
            )
        return places

    @property
    def class_counts_(self) -> np.ndarray:
        """How often each class was seen, (K,)."""
        check_is_fitted(self)
        found: np.ndarray = self._left_out(self._counted_classes, "_class_counts")
        return found

    @property
    def class_shares_(self) -> np.ndarray:
        """In which share of the rows each class was seen, (K,)."""
        counts = self.class_counts_
        return counts / counts.sum()

    def _counted_classes(self) -> np.ndarray:
        seen = self._fit.predictor.rows.observations
        labels = self._family.values(seen.observed)
        counted = np.bincount(labels, seen.weights, minlength=self._family.classes)
        return np.asarray(counted / self.class_weight_)

    def _baseline(self) -> dict[str, Any]:
        """What a prediction that ignores the inputs is made of, from the training rows."""
        predictor = self._fit.predictor
        seen = predictor.rows.observations
        return predictor.model.family.baseline(seen.observed["counts"].argmax(axis=1), {}, seen.weights)

    # --- one safe file ----------------------------------------------------------------------------------------------

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        kind = "O" if self.classes_.dtype.kind in "OUS" else self.classes_.dtype.str
        plain = self.classes_.astype("int64") if self.classes_.dtype.kind in "Mm" else self.classes_
        labels = [label.decode() if isinstance(label, bytes) else label for label in plain.tolist()]
        return {"classes": labels, "kind": kind, "weights": self.class_weight_.tolist()}, {}

    def _packed(self, extra: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        header, arrays = super()._packed(extra)
        header["sections"]["estimator"]["parameters"]["class_weight"] = packed_weights(self.class_weight)
        return header, arrays

    def _unpack_target(self, fields: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        labels, kind = require(fields, "classes", list), require(fields, "kind", str)
        if len(labels) != fit.predictor.model.family.classes or not all(
            isinstance(label, str | int | float | bool) for label in labels
        ):
            raise ModelFileError(f"its {len(labels)} labels do not fit its classes")
        self.classes_ = _classes(labels, kind)
        self.class_weight = unpacked_weights(self.class_weight)
        weights = fields.get("weights", [1.0] * len(labels))
        if not (isinstance(weights, list) and len(weights) == len(labels) and all(map(is_weight, weights))):
            raise ModelFileError(f"its weights of classes are not {len(labels)} numbers above zero")
        self.class_weight_ = np.array(weights, dtype=np.float64)
        self._target = None


def _classes(labels: list[Any], kind: str) -> np.ndarray:
    """Labels (K,) of a file as an array of that kind, ascending; dates and times are numbers in the file."""
    try:
        dtype = np.dtype(kind)
        if dtype.kind in "Mm":
            classes = np.array(labels, dtype=np.int64).astype(dtype)
            sound = classes.astype(np.int64).tolist() == labels
        else:
            classes = np.array(labels, dtype=dtype) if dtype.kind in "Obiuf" else np.array([])
            sound = classes.tolist() == labels
        sound = sound and bool((classes[:-1] < classes[1:]).all())
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise ModelFileError(f"its labels are not of the kind {kind!r}, or not in ascending order")
    return classes
