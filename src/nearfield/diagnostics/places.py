"""Maps: the empirical variogram of the rows beside that of the model, and predictions on a grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.spatial

from nearfield.columns import Features
from nearfield.coordinates import DEGREE
from nearfield.diagnostics.predicted import user_features
from nearfield.rules import with_unit
from nearfield.variogram import largest_lag

_ALL_PAIRS = 1500  # rows of which all pairs are taken
_NEAR_ROWS, _NEAR = 4000, 12  # rows whose nearest are taken, too: short lags are rare among the others
_WORK, _WHOLE_WORK = 6e10, 6e9


class Variogram(NamedTuple):
    """Half of the mean squared difference of pairs of rows (l,), by lag; how many; and the model's own."""

    lags: np.ndarray
    empirical: np.ndarray
    pairs: np.ndarray
    model_lags: np.ndarray
    model: np.ndarray


def variogram(model: Any, bins: int = 15, max_lag: float | None = None, seed: int = 0) -> Variogram:
    """Of a model of one real target with coordinates. max_lag: by default a third of the largest."""
    if getattr(model, "_chart", None) is None or model._family.kind != "number":
        raise ValueError(
            "a variogram is that of one real target at places: fit a GPRegressor with coordinates=, and one output."
        )
    fit = model._fit
    rows, inputs = fit.predictor.rows, fit.inputs
    largest = largest_lag(inputs, rows.inputs)
    reach = largest / 3 if max_lag is None else float(max_lag)
    if not 0 < reach <= inputs.chart.most_lag:
        raise ValueError(f"max_lag is {max_lag!r}: expected a distance above 0, of at most {inputs.chart.most_lag:g}.")
    own = list(inputs.chart.places)
    places = rows.inputs[rows.observations.row][:, own] * inputs.scale[own]
    y = np.asarray(model._target.undo(model._family.values(rows.observations.observed)))
    lags, squares = _pairs(places, y, np.random.default_rng(seed))
    if inputs.chart.one_scale:  # places on the globe, whose straight distance is a chord
        lags = 2 * np.arcsin(np.clip(lags * DEGREE / 2, 0, 1)) / DEGREE
    return Variogram(*binned(lags, squares, reach, bins), *_of_model(model, reach))


def binned(lags: np.ndarray, squares: np.ndarray, reach: float, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean lag, semivariance and number of pairs in bins up to `reach` that have any, from squared differences."""
    inside = (lags > 0) & (lags <= reach)
    place = np.minimum((lags[inside] / reach * bins).astype(np.int64), bins - 1)
    pairs = np.bincount(place, minlength=bins)
    there = pairs > 0
    mean_lag = np.bincount(place, lags[inside], bins)[there] / pairs[there]
    return mean_lag, np.bincount(place, squares[inside], bins)[there] / pairs[there] / 2, pairs[there]


def _pairs(places: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Straight distances and squared differences of pairs of rows, at places (n, p)."""
    n = len(y)
    some = rng.permutation(n)[:_ALL_PAIRS]
    i, j = (some[part] for part in np.triu_indices(len(some), 1))
    if n > _ALL_PAIRS:
        first = rng.permutation(n)[:_NEAR_ROWS]
        near = scipy.spatial.KDTree(places).query(places[first], _NEAR + 1)[1][:, 1:]
        i, j = np.append(i, np.repeat(first, near.shape[1])), np.append(j, near.ravel())
    return np.linalg.norm(places[i] - places[j], axis=1), (y[i] - y[j]) ** 2


def _of_model(model: Any, reach: float) -> tuple[np.ndarray, np.ndarray]:
    lags = np.concatenate([[1e-6 * reach], np.linspace(0, reach, 61)[1:]])
    return lags, model.variogram(lags)


class Grid(NamedTuple):
    """Predictions on a grid of two columns: x (g,), y (h,); mean, std and support (h, g)."""

    columns: tuple[str, str]
    x: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    support: np.ndarray
    others: dict[str, float]  # what other columns are held at, by the names of features


def map_columns(model: Any) -> tuple[int, int] | None:
    """The features that make a map: the first two coordinates, or else the only two columns, if both are numbers."""
    chart = model._chart
    if chart is not None:
        return int(chart.columns[0]), int(chart.columns[1])
    rules = model.encoder_.rules_
    plain = len(rules) == 2 and all(rule.kind == "number" and not rule.indicator for rule in rules)
    return (0, 1) if plain else None


def map_labels(model: Any) -> tuple[str, str]:
    """Names of these for the axes of a map, with their units."""
    encoder, chart, found = model.encoder_, model._chart, map_columns(model)
    assert found is not None
    if chart is not None and chart.one_scale:
        first, second = (with_unit(encoder.feature_names[e], "degrees") for e in found)
    else:
        first, second = (encoder.rules_[encoder.owners[e]].label for e in found)
    return first, second


def map_grid(model: Any, size: int | None = None, label: int | None = None) -> Grid:
    """Predictions over the box around the training rows, other columns at their medians.

    Of classes the probability of class number `label`, by default of the last; of counts what is expected for one unit.
    """
    columns = map_columns(model)
    if columns is None:
        raise ValueError(
            "a map needs two columns that are places: fit with coordinates=, or with two columns of numbers alone."
        )
    if model._family.kind == "numbers":
        raise ValueError("a map is that of one target: fit one model for each.")
    features = user_features(model, model._fit.predictor.rows.inputs)
    size = _affordable_size(model) if size is None else size
    spans = [features[:, column] for column in columns]
    x, y = (np.linspace(float(span.min()), float(span.max()), size) for span in spans)
    at = np.repeat(np.median(features, axis=0)[None], size * size, axis=0)
    at[:, columns[0]], at[:, columns[1]] = np.tile(x, size), np.repeat(y, size)
    mean, std = _predicted(model, at, label)
    names = model.encoder_.feature_names
    others = {names[e]: float(at[0, e]) for e in range(at.shape[1]) if e not in columns}
    shape = (size, size)
    support = model.support(Features(at)).reshape(shape)
    return Grid((names[columns[0]], names[columns[1]]), x, y, mean.reshape(shape), std.reshape(shape), support, others)


def _affordable_size(model: Any) -> int:
    """Cells along a side, so that all take some seconds."""
    predictor = model._fit.predictor
    whole = predictor.sweeper.whole(predictor.k)  # one factorisation serves all
    predictions = _WHOLE_WORK / model.k_**2 if whole else _WORK / (model.k_**3 / 3 + 1)
    return int(np.clip(np.sqrt(predictions), 24, 64))


def _predicted(model: Any, at: np.ndarray, label: int | None) -> tuple[np.ndarray, np.ndarray]:
    family, rows = model._family, Features(at)
    if family.kind == "label":
        p = model.predict_proba(rows)[:, -1 if label is None else label]
        return p, np.sqrt(p * (1 - p))
    if family.kind == "count":
        mean, std = model.predict(rows, return_std=True, **{name: 1 for name in family.given})
        return np.asarray(mean), np.asarray(std)
    mean, std = model.predict(rows, return_std=True, uncertainty="latent")
    return np.ravel(mean), np.ravel(std)


def ground_aspect(model: Any) -> float:
    """How long a unit of the second coordinate is on the ground, relative to the first: of degrees, in the middle."""
    if not model._chart.one_scale:
        return 1.0
    fit = model._fit
    middle = np.median(fit.inputs.undo(fit.predictor.rows.inputs)[:, model._chart.columns[1]])
    return float(1 / max(np.cos(DEGREE * middle), 0.1))
