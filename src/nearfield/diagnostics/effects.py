"""Partial effects: what is predicted on average over rows when one column is set to each of some values.

    effect(v) = mean over rows i of f(x_i with the column at v)

Error bars are those of the noise-free function, from the model: two standard deviations to each side. Of one real
target they are exact for moderate k: those of that mean under the joint distribution of f at these rows. Of others f is
moved by two of its standard deviations at all rows at once, as if they shared their errors: an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearfield.columns import Features
from nearfield.diagnostics.slices import column_values, level_name, own_features, shown
from nearfield.encoding import TableEncoder
from nearfield.rules import Rule

_POINTS = 17
_EXACT_K = 128  # neighbours up to which a joint distribution takes a moment
_MOST_LEVELS = 12
_BARS = 2.0  # standard deviations to each side
_RANGE = (0.02, 0.98)  # quantiles between which numbers are set


@dataclass(frozen=True, eq=False)
class Effect:
    """Values (g,) of a column, of text their places, with labels; mean and ends of error bars (g, V).

    V: outputs, or classes. exact: whether the bars are, see above.
    """

    column: str
    label: str  # with its unit
    values: np.ndarray
    labels: list[str]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    exact: bool
    ordered: bool  # numbers, not levels
    date: bool = False  # numbers are days since 1970


def effect(
    model: Any, column: int, features: np.ndarray, points: int = _POINTS, among: np.ndarray | None = None
) -> Effect:
    """The effect of a column over rows with features (b, m), of which a few dozen are enough.

    among: features (c, m) of rows, more of them, from which the values are taken that the column is set to.
    """
    encoder: TableEncoder = model.encoder_
    rule = encoder.rules_[column]
    values, labels, written = grid(encoder, column, features if among is None else among, points)
    own, (b, m) = own_features(encoder, column), features.shape
    at = np.repeat(features[None], len(values), axis=0)  # (g, b, m)
    at[:, :, own] = written[:, None, :]
    exact = has_exact_errors(model)
    if exact:
        mean, std = _exact(model, at)
        low, high = mean - _BARS * std, mean + _BARS * std
    else:
        mean, low, high = bounded(model, at.reshape(-1, m), len(values), b)
    ordered, date = rule.kind not in ("text", "means"), rule.kind == "date"
    return Effect(rule.name, rule.label, values, labels, mean, low, high, exact, ordered, date)


def has_exact_errors(model: Any) -> bool:
    """Whether error bars are those of the mean over rows, by their joint distribution."""
    return bool(model._family.kind == "number" and not model._several_outputs and model.k_ <= _EXACT_K)


def grid(
    encoder: TableEncoder, column: int, features: np.ndarray, points: int
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Values (g,) to set a column to, their labels, and the features (g, f) that it becomes."""
    rule, own = encoder.rules_[column], own_features(encoder, column)
    found, missing = column_values(encoder, column, features)
    if rule.kind in ("text", "means"):
        levels = _levels(rule, found)
        written = np.zeros((len(levels), len(own)))
        rule.write(levels, written)
        return (
            np.arange(len(levels), dtype=np.float64),
            [level_name(rule, number) for number in levels.tolist()],
            written,
        )
    known = found[~missing]
    distinct = np.unique(known) if known.size else np.array([rule.median])
    if len(distinct) <= points:
        values = distinct
    else:
        low, high = np.quantile(known, _RANGE)
        values = np.linspace(low, high, points)
        if np.median(known) - low < 0.1 * (high - low):  # skewed: more points where the rows are
            values = np.unique(np.quantile(known, np.linspace(*_RANGE, points)))
    written = np.zeros((len(values), len(own)))
    rule.write(values, written)
    return values, [shown(rule, value) for value in values.tolist()], written


def _levels(rule: Rule, found: np.ndarray) -> np.ndarray:
    """Numbers of the most frequent levels."""
    if rule.kind == "means":
        return np.argsort(-np.asarray(rule.log_counts), kind="stable")[:_MOST_LEVELS]
    numbers, counts = np.unique(found[found >= 0], return_counts=True)
    return numbers[np.argsort(-counts, kind="stable")][:_MOST_LEVELS].astype(np.int64)


def _exact(model: Any, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (g, 1) of the mean over rows, inputs (g, b, m)."""
    mean, std = np.empty((2, len(at), 1))
    for place, rows in enumerate(at):
        centre, covariance = model.predict(Features(rows), return_cov=True, uncertainty="latent")
        mean[place], std[place] = centre.mean(), np.sqrt(max(float(covariance.mean()), 0.0))
    return mean, std


def bounded(
    model: Any, X: np.ndarray, g: int, b: int, outputs: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and ends (g, V) where the latent functions are moved at all rows at once; X (g * b, m).

    outputs: those whose ends are wanted, all by default; the ends of others are the mean.
    """
    predictor = model._fit.predictor
    moments = predictor.moments(X, model._fit.inputs)
    latents = moments.mean.shape[1]
    values = _values(model, moments, len(X))
    spread = np.sqrt(moments.variance)
    low, high = values.copy(), values.copy()
    V = values.shape[1]
    for v in range(V) if outputs is None else outputs:
        latent = min(v, latents - 1)
        by = np.zeros_like(moments.mean)
        by[:, latent] = spread[:, min(latent, spread.shape[1] - 1)]
        ends = [
            _values(model, replace(moments, mean=moments.mean + sign * _BARS * by), len(X))[:, v] for sign in (-1, 1)
        ]
        low[:, v], high[:, v] = np.minimum(*ends), np.maximum(*ends)
    shape = (g, b, V)
    mean, least, most = (part.reshape(shape).mean(axis=1) for part in (values, low, high))
    return mean, least, most


def _values(model: Any, moments: Any, n: int) -> np.ndarray:
    """What is predicted (n, V) from moments: numbers, probabilities, counts for one unit of exposure or one trial."""
    predictor, family = model._fit.predictor, model._family
    predicted = predictor.head.predicted(moments, predictor.model.noise)
    if family.kind == "label":
        return np.asarray(predicted.p)
    if family.kind == "count":
        given = family.given_arrays(n, **{name: 1 for name in family.given})
        return np.asarray(model._distribution(predicted, given).mean())[:, None]
    return np.asarray(model._target.undo(predicted.loc)).reshape(n, -1)
