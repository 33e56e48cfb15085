"""Scores of scikit-learn's boosted trees on the same rows and features, for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold, KFold
from threadpoolctl import threadpool_limits

from nearfield.diagnostics import Evaluated, Labelled, Predicted

_FOLDS = 5
_MOST_ROWS = 20_000
NAME = "boosting"


def boosted_scores(model: Any, rows: Evaluated, told: dict[str, Any]) -> None:
    """Write scores beside those of the model into an evaluation; where rows see only some others, a note instead."""
    training = model._fit.predictor.rows
    if not training.in_blocks:
        told["note"] = "Boosting is not compared: rows were left out by their time or within a buffer."
        return
    with threadpool_limits(1, user_api="openmp"):  # of small trees, threads spend their time on waiting
        _write_scores(model, rows, told)


def _write_scores(model: Any, rows: Evaluated, told: dict[str, Any]) -> None:
    training = model._fit.predictor.rows
    family, observations = model._family, training.observations
    if family.kind == "count" and family.given and model._given_names:
        told["note"] = "Boosting is not compared: it knows no exposure or trials."
        return
    features = model._fit.inputs.undo(training.inputs[observations.row])
    values = np.asarray(family.values(observations.observed))
    values = values if model._target is None else np.asarray(model._target.undo(values))
    groups = None if training.groups is None else training.groups[observations.row]
    if family.kind == "label":
        assert rows.labelled is not None
        p = _probabilities(features, values.astype(np.int64), groups, rows, len(model.classes_))
        scores = Labelled(rows.labelled.labels, p, rows.labelled.weights).scores()
        told["classes"]["scores"][NAME] = scores
        return
    for place, (name, own) in enumerate(rows.targets.items()):
        y = values if values.ndim == 1 else values[:, place]
        loss = "poisson" if family.kind == "count" else "squared_error"
        known = np.isfinite(y)
        mean, error = _means(features, y, known, groups, rows, rows.places[name], loss)
        scores = Predicted.of(own.y, scipy.stats.norm(mean, np.full(len(mean), error)), own.weights).scores()
        if family.kind == "count":
            scores = {"rmse": scores["rmse"]}
        told["targets"][place]["scores"][NAME] = scores


def _means(
    features: np.ndarray, y: np.ndarray, known: np.ndarray, groups: np.ndarray | None, rows: Evaluated,
    places: np.ndarray, loss: str,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """Predictions of the evaluated rows, and the root mean squared error of rows out of their fold."""
    machine = HistGradientBoostingRegressor(loss=loss, random_state=0)
    used = np.flatnonzero(known)
    folded = np.full(len(y), np.nan)
    for train, test in _split(len(used), None if groups is None else groups[used]):
        fitted = clone(machine).fit(features[used[train]], y[used[train]])
        folded[used[test]] = fitted.predict(features[used[test]])
    error = max(float(np.sqrt(np.mean((y[used] - folded[used]) ** 2))), np.finfo(float).tiny)
    if rows.observations is not None:
        return folded[rows.observations[places]], error
    some = used[np.random.default_rng(0).permutation(len(used))[:_MOST_ROWS]]
    return machine.fit(features[some], y[some]).predict(rows.features[places]), error


def _probabilities(
    features: np.ndarray, labels: np.ndarray, groups: np.ndarray | None, rows: Evaluated, classes: int
) -> np.ndarray:
    machine = HistGradientBoostingClassifier(random_state=0)
    if rows.observations is None:
        some = np.random.default_rng(0).permutation(len(labels))[:_MOST_ROWS]
        return _filled(machine.fit(features[some], labels[some]), rows.features, classes)
    found = np.zeros((len(labels), classes))
    for train, test in _split(len(labels), groups):
        found[test] = _filled(clone(machine).fit(features[train], labels[train]), features[test], classes)
    return found[rows.observations]


def _filled(fitted: Any, X: np.ndarray, classes: int) -> np.ndarray:
    """Probabilities (n, K) with a zero for classes that were not among the rows."""
    found = np.zeros((len(X), classes))
    found[:, fitted.classes_] = fitted.predict_proba(X)
    return found


def _split(n: int, groups: np.ndarray | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds in which groups stay together; of many rows each machine is trained on some."""
    folds = min(_FOLDS, n if groups is None else len(np.unique(groups)))
    kinds = KFold(folds, shuffle=True, random_state=0) if groups is None else GroupKFold(folds)
    rng = np.random.default_rng(0)
    return [(rng.permutation(train)[:_MOST_ROWS], test) for train, test in kinds.split(np.zeros(n), groups=groups)]
