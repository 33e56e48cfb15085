"""What rows that were predicted unseen tell: scores, calibration, residuals, surprises, classes, counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats

from nearfield.diagnostics import Evaluated, Labelled, Predicted
from nearfield.diagnostics import coverage as cover
from nearfield.diagnostics import residuals as off
from nearfield.diagnostics.chance import holm, independent, mean_p, share_band, share_p
from nearfield.diagnostics.frequencies import rootogram
from nearfield.diagnostics.labels import confusion, curves, reliability
from nearfield.diagnostics.predicted import LEVEL, target_names, target_units
from nearfield.diagnostics.slices import Slice, column_slices, column_values, shown, slices_of, used_columns
from nearfield.report import sentences as say

_PIT_BINS = 20
_MOST_COLUMNS = 4  # over which residuals are shown
_WORST = 10
_POINTS = 400
_CURVES = 8  # classes with curves of their own
_CONFUSED = 20  # classes that a confusion matrix has at most


def evaluation(model: Any, rows: Evaluated, top: Sequence[str]) -> dict[str, Any]:
    """All of it, for rows of one kind; `top` are the columns that matter, the most important first."""
    found: dict[str, Any] = {
        "rows": rows.rows, "n": len(rows), "total": rows.total, "unseen": rows.unseen,
        "targets": [_target(model, rows, name, top) for name in rows.targets],
    }  # fmt: skip
    if rows.labelled is not None:
        found["classes"] = _classes(model, rows)
    return found


def _target(model: Any, rows: Evaluated, name: str, top: Sequence[str]) -> dict[str, Any]:
    own, constant, places = rows.targets[name], rows.constant[name], rows.places[name]
    features = rows.features[places]
    gain, _, p = mean_p(constant.crps - own.crps, own.weights, own.units)
    found: dict[str, Any] = {
        "name": name, "unit": dict(zip(target_names(model), target_units(model), strict=True)).get(name, ""),
        "n": len(own), "rows": rows.rows,
        "scores": {"model": own.scores(), "constant": constant.scores()},
        "gain": {"crps": gain, "p": p},
        "calibration": _calibration(model, own, constant, features),
        "residuals": _residuals(model, own, features, top),
        "worst": _worst(model, rows, name),
        "rootogram": _rootogram(own) if own.counts else None,
    }  # fmt: skip
    found["says"] = say.of_target(found)
    return found


# --- calibration ------------------------------------------------------------------------------------------------------


def _calibration(model: Any, own: Predicted, constant: Predicted, features: np.ndarray) -> dict[str, Any]:
    n = independent(own.weights, own.units)
    shares = cover.coverage(own)
    low, high = share_band(np.array(cover.LEVELS), n)
    bin_low, bin_high = share_band(np.array([1 / _PIT_BINS]), n)
    inside = float(cover.coverage(own, [LEVEL])[0])
    slices = column_slices(model.encoder_, features)
    judged = cover.by_slices(own, slices)
    _widened(own, judged, slices)
    judged.sort(key=lambda entry: (entry["p"], -abs(entry["coverage"] - LEVEL)))
    return {
        "independent": n,
        "pit": {"shares": cover.pit_histogram(own, _PIT_BINS), "low": bin_low[0], "high": bin_high[0]},
        "coverage": {"levels": list(cover.LEVELS), "shares": shares, "low": low, "high": high},
        "level": LEVEL,
        "inside": inside,
        "inside_p": share_p(inside, LEVEL, n),
        "factor": None if own.counts else cover.needed_factor(own),
        **cover.verdict(own),
        "widths": _widths(own, constant),
        "slices": judged,
        "slab": _slab(model, own, features),
    }


def _widths(own: Predicted, constant: Predicted) -> dict[str, Any]:
    """Sharpness: how wide 90 % intervals are."""
    probabilities = [0.05, 0.25, 0.5, 0.75, 0.95]
    counts, edges = np.histogram(own.width, bins=np.histogram_bin_edges(_trimmed(own.width), 24))
    return {
        "probabilities": probabilities, "quantiles": np.quantile(own.width, probabilities),
        "constant": float(np.median(constant.width)), "edges": edges, "counts": counts,
    }  # fmt: skip


def _trimmed(values: np.ndarray) -> np.ndarray:
    """Without the largest hundredth, which would squeeze all others into one bin."""
    return np.minimum(values, np.quantile(values, 0.99))


def _widened(own: Predicted, judged: list[dict[str, Any]], slices: list[Slice]) -> None:
    """Of slices that stand out, by how much their intervals would have to be wider."""
    rows = {(part.column, part.label): part.rows for part in slices}
    for entry in judged:
        part = rows[entry["column"], entry["slice"]]
        entry["factor"] = None
        if entry["p"] < 0.05 and not own.counts:
            needed = off.surprise(own)[part]
            entry["factor"] = float(np.quantile(needed, LEVEL, method="inverted_cdf"))


def _slab(model: Any, own: Predicted, features: np.ndarray) -> dict[str, Any] | None:
    found = cover.worst_slab(own, features)
    if found is None:
        return None
    names, weights = model.encoder_.feature_names, found.direction
    most = [int(e) for e in np.argsort(-np.abs(weights))[:3] if weights[e] != 0]
    return {
        "coverage": found.coverage, "rows": found.rows, "p": found.p, "apart": found.apart,
        "low": found.low, "high": found.high,
        "direction": [{"feature": names[e], "weight": float(weights[e])} for e in most],
    }  # fmt: skip


# --- residuals and surprises ------------------------------------------------------------------------------------------


def _residuals(model: Any, own: Predicted, features: np.ndarray, top: Sequence[str]) -> dict[str, Any]:
    encoder, rng = model.encoder_, np.random.default_rng(0)
    some = np.sort(rng.permutation(len(own))[:_POINTS])
    found: dict[str, Any] = {
        "prediction": {
            "bins": off.by_values(own, own.mean),
            "points": {"x": own.mean[some], "residual": own.residual[some]},
        },
        "columns": [],
    }
    numbers = {encoder.rules_[number].name: number for number in used_columns(encoder)}
    for name in top[:_MOST_COLUMNS]:
        number = numbers[name]
        rule = encoder.rules_[number]
        values, missing = column_values(encoder, number, features)
        parts = slices_of(encoder, number, features)
        few = rule.kind == "text" or len(np.unique(values)) <= 8
        if few or missing.all():
            found["columns"].append(
                {"column": name, "label": rule.label, "bins": off.by_slices(own, parts), "points": None, "date": False}
            )
            continue
        known = np.flatnonzero(~missing)
        told = off.Off(own.residual[known], own.std[known], own.weights[known], _some(own.units, known))
        drawn = np.intersect1d(some, known)
        points = {"x": values[drawn], "residual": own.residual[drawn]}
        bins = off.by_values(told, values[known])
        for entry in bins:
            ends = [shown(rule, entry[end]) for end in ("low", "high")]
            entry["range"] = " to ".join(dict.fromkeys(ends))
        means = "mean of the target by " if rule.kind == "means" else ""
        found["columns"].append(
            {"column": means + name, "label": means + rule.label, "bins": bins, "points": points,
             "date": rule.kind == "date"}
        )  # fmt: skip
    return found


def _some(units: np.ndarray | None, which: np.ndarray) -> np.ndarray | None:
    return None if units is None else units[which]


def _worst(model: Any, rows: Evaluated, name: str) -> list[dict[str, Any]]:
    """The rows that surprise most, with the training rows next to them."""
    own, places = rows.targets[name], rows.places[name]
    surprise = off.surprise(own)
    most = np.argsort(-surprise, kind="stable")[:_WORST]
    near = off.nearest_rows(model, rows, places[most])
    numbers, values = off.neighbour_values(model, near)
    if values.ndim == 3:  # of several outputs this one
        values = values[:, :, list(rows.targets).index(name)]
    first = 1 if "_described" in model.__dict__ else 0
    lower, upper = own.ends
    return [
        {
            "row": int(rows.numbers[places[i]]) + first, "observed": own.y[i], "predicted": own.mean[i],
            "lower": lower[i], "upper": upper[i], "surprise": surprise[i],
            "neighbours": [
                {"row": int(number) + first, "observed": value}
                for number, value in zip(numbers[rank], values[rank], strict=True) if number >= 0
            ],
        }
        for rank, i in enumerate(most.tolist())
    ]  # fmt: skip


def _rootogram(own: Predicted) -> dict[str, Any]:
    found = rootogram(own)
    none = np.asarray(own.dist.cdf(np.zeros(len(own))))
    seen, expected = float(own.weights @ (own.y == 0)), float(own.weights @ none)
    spread = float(np.sqrt((own.weights**2) @ (none * (1 - none))))
    p = 2 * float(scipy.stats.norm.sf(abs(seen - expected) / spread)) if spread > 0 else 1.0
    return {**found._asdict(), "zeros": {"observed": seen, "expected": expected, "p": p}}


# --- classes ----------------------------------------------------------------------------------------------------------


def _classes(model: Any, rows: Evaluated) -> dict[str, Any]:
    own, constant = rows.labelled, rows.constant_labelled
    assert own is not None
    assert constant is not None
    labels = [str(label) for label in model.classes_.tolist()]
    order = np.argsort(-np.bincount(own.labels, own.weights, len(labels)), kind="stable")
    gain, _, p = mean_p(np.log(_least(own)) - np.log(_least(constant)), own.weights, own.units)
    matrix = confusion(own)
    shown = np.sort(order[:_CONFUSED])
    found: dict[str, Any] = {
        "labels": labels, "n": len(own), "rows": rows.rows, "unseen": rows.unseen,
        "scores": {"model": own.scores(), "constant": constant.scores()},
        "gain": {"nll": gain, "p": p},
        "reliability": reliability(own),
        "of_class": [
            {"label": labels[c], "bins": reliability(own, c)} for c in (order[:6].tolist() if len(labels) > 2 else [1])
        ],
        "confusion": {"labels": [labels[c] for c in shown], "rows": matrix[np.ix_(shown, shown)]},
        "curves": _curves(own, labels, order[:_CURVES].tolist() if len(labels) > 2 else [1]),
        "slices": _right_by_slices(model, own, rows.features),
        "worst": _worst_labels(model, rows, own, labels),
    }  # fmt: skip
    found["says"] = say.of_classes(found)
    return found


def _curves(own: Labelled, labels: list[str], which: list[int]) -> list[dict[str, Any]]:
    drawn = [(labels[c], curves(own, c)) for c in which]
    return [{"label": label, **curve._asdict()} for label, curve in drawn if curve is not None]


def _least(rows: Labelled) -> np.ndarray:
    return np.maximum(rows.of_label, 1e-15)


def _right_by_slices(model: Any, own: Labelled, features: np.ndarray) -> list[dict[str, Any]]:
    """Whether the share of rows that are right is what the probabilities say, slice by slice."""
    stated = own.p.max(axis=1)
    found: list[dict[str, Any]] = []
    for part in column_slices(model.encoder_, features):
        weights, units = own.weights[part.rows], _some(own.units, part.rows)
        if independent(weights, units) < 30:
            continue
        right, promised = (float(np.average(v[part.rows], weights=weights)) for v in (own.right, stated))
        n = independent(weights, units)
        found.append(
            {"column": part.column, "slice": part.label, "rows": int(part.rows.sum()), "right": right,
             "stated": promised, "error": float(np.sqrt(promised * (1 - promised) / n)),
             "p": share_p(right, promised, n)}
        )  # fmt: skip
    for entry, p in zip(found, holm([entry["p"] for entry in found]), strict=True):
        entry["p"] = p
    return sorted(found, key=lambda entry: (entry["p"], -abs(entry["right"] - entry["stated"])))


def _worst_labels(model: Any, rows: Evaluated, own: Labelled, labels: list[str]) -> list[dict[str, Any]]:
    most = np.argsort(own.of_label, kind="stable")[:_WORST]
    numbers, values = off.neighbour_values(model, off.nearest_rows(model, rows, most))
    first = 1 if "_described" in model.__dict__ else 0
    return [
        {
            "row": int(rows.numbers[i]) + first, "observed": labels[own.labels[i]], "probability": own.of_label[i],
            "predicted": labels[int(own.p[i].argmax())], "predicted_probability": own.p[i].max(),
            "neighbours": [
                {"row": int(number) + first, "observed": labels[int(value)]}
                for number, value in zip(numbers[rank], values[rank], strict=True) if number >= 0
            ],
        }
        for rank, i in enumerate(most.tolist())
    ]  # fmt: skip
