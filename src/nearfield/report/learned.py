"""What the model learned: which columns matter and how, training, neighbours, maps, outputs together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nearfield.diagnostics import Evaluated
from nearfield.diagnostics.effects import effect, has_exact_errors
from nearfield.diagnostics.neighbours import scores_by_k
from nearfield.diagnostics.places import ground_aspect, map_columns, map_grid, map_labels, variogram
from nearfield.diagnostics.predicted import affordable, target_names, target_units
from nearfield.diagnostics.slices import used_columns
from nearfield.report import sentences as say

_EFFECTS = 6  # columns whose effect is shown
_EFFECT_ROWS, _FEWEST_EFFECT_ROWS = 40, 12  # over which an effect is averaged
_EFFECT_WORK = 4e8  # operations for each of its values, see `affordable`
_TOGETHER = 1000  # neighbours of all of these rows, whose joint distribution makes error bars
_WHOLE_WORK = 1e8  # squared rows, where predictions come from all of them, for each value
_RANGE_ROWS = 2000  # from which the values are taken
_MOST_OUTPUTS = 3
_POINTS = 800
_FAR = 0.02  # support below which a map is empty


def importance(model: Any) -> dict[str, Any]:
    """What left-out rows lose in mean log score when a column is shuffled, the most important first."""
    losses = model.feature_importances_
    columns = [{"column": rule.name, "loss": float(losses[i])} for i, rule in enumerate(model.encoder_.rules_)]
    columns.sort(key=lambda entry: -entry["loss"])
    found: dict[str, Any] = {"columns": columns}
    found["says"] = say.of_importance(found)
    return found


def effects(model: Any, rows: Evaluated, top: Sequence[str]) -> list[dict[str, Any]]:
    """Effects of the columns that matter most."""
    encoder = model.encoder_
    numbers = {encoder.rules_[number].name: number for number in used_columns(encoder)}
    most = affordable(model, _EFFECT_ROWS, _FEWEST_EFFECT_ROWS, _EFFECT_WORK)
    predictor = model._fit.predictor
    whole = predictor.sweeper.whole(predictor.k) and not has_exact_errors(model)
    limit = int(_WHOLE_WORK / model.k_**2) if whole else _TOGETHER // model.k_
    most = min(most, max(limit, _FEWEST_EFFECT_ROWS))
    drawn = rows.features[np.random.default_rng(0).permutation(len(rows))]
    found = []
    for name in top[:_EFFECTS]:
        own = effect(model, numbers[name], drawn[:most], among=drawn[:_RANGE_ROWS])
        for v, label, unit in _shown_outputs(model, own.mean):
            told = {
                "column": name, "label": own.label, "output": label, "unit": unit,
                "values": own.values, "labels": own.labels, "ordered": own.ordered,
                "date": own.date,
                "mean": own.mean[:, v], "low": own.low[:, v], "high": own.high[:, v], "exact": own.exact,
            }  # fmt: skip
            found.append({**told, "says": say.of_effect(told)})
    return found


def _shown_outputs(model: Any, mean: np.ndarray) -> list[tuple[int, str, str]]:
    """Outputs with their names and units; of classes the one that the column moves most."""
    if model._family.kind != "label":
        names = target_names(model)
        if model._family.kind == "count":
            given = " and ".join(f"{name} 1" for name in model._given_names)
            names = [f"{names[0]}, with {given}" if given else names[0]]
        return list(zip(range(_MOST_OUTPUTS), names, target_units(model), strict=False))
    v = mean.shape[1] - 1 if mean.shape[1] == 2 else int(np.ptp(mean, axis=0).argmax())
    return [(v, f"P({model.classes_[v]})", "")]


def training(model: Any) -> dict[str, Any]:
    """How training went, scores by k, smoothness, and how columns are bent."""
    names, summary = model._mapped_names(), model.summary_
    by_k = scores_by_k(model)
    lengths = np.atleast_2d(model.length_scales_.T).reshape(len(names), -1)
    relevance = list(model.feature_relevance_.values())
    found: dict[str, Any] = {
        "steps": summary.steps,
        "most_steps": summary.most_steps,
        "seconds": summary.seconds,
        "recoveries": {"jittered": summary.jittered, "rejected": summary.rejected},
        "refreshes": [{"refresh": int(name), "score": score} for name, score in summary.refreshes.items()],
        "k": model.k_,
        "by_k": [{"k": k, **scores} for k, scores in by_k.items()],
        "smoothness": model.smoothness_,
        "features": [
            {"name": name, "relevance": float(relevance[e]), "length_scale": float(lengths[e, 0]),
             "straight": float(model.bends_[e, 0]), "normal": float(model.bends_[e, 1]),
             "uniform": float(model.bends_[e, 2])}
            for e, name in enumerate(names)
        ],
        "noise": _plain(getattr(model, "noise_std_", None)),
    }  # fmt: skip
    found["features"].sort(key=lambda entry: -entry["relevance"])
    found["says"] = say.of_training(found, summary.k_reason)
    return found


def _plain(value: Any) -> Any:
    return None if value is None else np.asarray(value).tolist()


def maps(model: Any, rows: Evaluated) -> dict[str, Any] | None:
    """A map of predictions, and of residuals; None where there are no places, or several outputs."""
    if map_columns(model) is None or model._family.kind == "numbers":
        return None
    grid, kind = map_grid(model), model._family.kind
    name = target_names(model)[0] if kind != "label" else f"P({model.classes_[-1]})"
    empty = grid.support < _FAR
    found: dict[str, Any] = {
        "columns": map_labels(model), "x": grid.x, "y": grid.y, "what": name, "kind": kind,
        "mean": np.where(empty, np.nan, grid.mean), "std": np.where(empty, np.nan, grid.std),
        "others": grid.others, "aspect": ground_aspect(model) if model._chart is not None else None,
        "residuals": None, "variogram": None,
    }  # fmt: skip
    if rows.targets:
        own = next(iter(rows.targets.values()))
        some = np.random.default_rng(0).permutation(len(own))[:_POINTS]
        at = rows.features[some][:, list(map_columns(model) or ())]
        found["residuals"] = {"x": at[:, 0], "y": at[:, 1], "residual": own.residual[some]}
    if model._chart is not None and kind == "number":
        told = variogram(model)
        unit = "degrees of a great circle" if model._chart.one_scale else "the units of the coordinates"
        found["variogram"] = {**told._asdict(), "unit": unit, "variance": float(model._target.scale) ** 2}
    found["says"] = say.of_map(found)
    return found


def correlations(model: Any, rows: Evaluated) -> dict[str, Any] | None:
    """Of several outputs: between targets, and between what is left of them."""
    if len(rows.targets) < 2:
        return None
    n, names = len(rows), list(rows.targets)
    y, z = np.full((2, n, len(names)), np.nan)
    for p, name in enumerate(names):
        own, at = rows.targets[name], rows.places[name]
        y[at, p], z[at, p] = own.y, own.residual / own.std
    found: dict[str, Any] = {
        "names": names, "rows": rows.rows, "n": n, "targets": _correlation(y), "residuals": _correlation(z),
        "outputs": getattr(model, "outputs", ""),
    }  # fmt: skip
    found["says"] = say.of_outputs(found)
    return found


def _correlation(values: np.ndarray) -> np.ndarray:
    """Correlations (P, P) of columns (n, P), of the rows that both have."""
    P = values.shape[1]
    found = np.eye(P)
    for a in range(P):
        for b in range(a):
            both = np.isfinite(values[:, a]) & np.isfinite(values[:, b])
            x, y = values[both, a], values[both, b]
            varies = both.sum() > 2 and np.ptp(x) > 0 and np.ptp(y) > 0
            found[a, b] = found[b, a] = float(np.corrcoef(x, y)[0, 1]) if varies else np.nan
    return found
