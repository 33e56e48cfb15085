"""All that a report tells, as plain numbers and text in one dict, which JSON knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield import __version__
from nearfield._threads import one_blas_thread
from nearfield.diagnostics import Evaluated, left_out, predicted_rows
from nearfield.diagnostics.predicted import target_names, user_features
from nearfield.diagnostics.slices import column_values, shown, used_columns
from nearfield.report.boosting import NAME, boosted_scores
from nearfield.report.evaluation import evaluation
from nearfield.report.learned import correlations, effects, importance, maps, training
from nearfield.report.sentences import in_short

FORMAT = 1
"""Version of the dict; grows when the meaning of a field changes."""

_KINDS = {
    "number": "number",
    "flag": "true or false",
    "date": "date",
    "duration": "duration",
    "text": "text",
    "means": "text of many levels",
    "unused": "left out",
}


def report_data(
    model: Any, X: Any = None, y: Any = None, *, compare: Sequence[str] = (), name: str = "", **given: Any
) -> dict[str, Any]:
    """What `model.report` tells, as a dict of plain numbers and text.

    Left-out training rows are evaluated, up to a few thousand, and the test rows X with targets y where they are given.
    compare : what to score beside the model, of "boosting". given : exposure or trials of the test rows. name : what
    the model is called.
    """
    check_is_fitted(model)
    _check_compared(compare)
    if (X is None) != (y is None):
        missing = "y" if y is None else "X"
        raise ValueError(f"{missing} is missing: pass both test rows and their targets, or neither.")
    with one_blas_thread():  # heads have a handful of parameters
        return _told(model, X, y, compare, name, given)


def _check_compared(compare: Sequence[str]) -> None:
    if isinstance(compare, str) or any(one != NAME for one in compare):
        raise ValueError(f"compare is {compare!r}: expected a list with nothing or {NAME!r} in it.")


def _told(model: Any, X: Any, y: Any, compare: Sequence[str], name: str, given: dict[str, Any]) -> dict[str, Any]:
    evaluated = [] if X is None else [predicted_rows(model, X, y, **given)]
    evaluated.append(left_out(model))
    first = evaluated[0]
    mattering = importance(model)
    top = [entry["column"] for entry in mattering["columns"] if entry["loss"] > 0]
    found: dict[str, Any] = {
        "format": FORMAT,
        "version": __version__,
        "name": name or ", ".join(target_names(model)),
        "model": described(model),
        "data": table(model, evaluated[-1]),
        "evaluations": [evaluation(model, rows, top) for rows in evaluated],
        "importance": mattering,
        "effects": effects(model, first, top),
        "training": training(model),
        "map": maps(model, evaluated[-1]),
        "outputs": correlations(model, first),
    }
    for rows, told in zip(evaluated, found["evaluations"], strict=True):
        if NAME in compare:
            boosted_scores(model, rows, told)
    found["says"] = in_short(found)
    plain: dict[str, Any] = plain_values(found)
    return plain


def described(model: Any) -> dict[str, Any]:
    """What the model is."""
    summary = model.summary_
    return {
        "estimator": type(model).__name__,
        "kind": model._family.kind,
        "targets": target_names(model),
        "likelihood": summary.likelihood,
        "kernel": summary.kernel,
        "mean": summary.mean,
        "predictive": summary.predictive,
        "continuous": bool(summary.neighbourhoods),
        "k": model.k_,
        "k_reason": summary.k_reason,
        "rows": model.n_rows_,
        "leaving": summary.leaving,
        "counted_from": first_number(model),
        "summary": str(summary).splitlines(),
    }


def first_number(model: Any) -> int:
    """Rows are counted from 1 where a table of the command line was read, else from 0."""
    return 1 if "_described" in model.__dict__ else 0


def table(model: Any, evaluated: Evaluated) -> dict[str, Any]:
    """What each column of the training table is, and what it became."""
    encoder = model.encoder_
    rows = model._fit.predictor.rows.inputs
    features = evaluated.features
    if len(rows) <= 200_000:
        features = user_features(model, rows)
    used = set(used_columns(encoder))
    columns = []
    for number, rule in enumerate(encoder.rules_):
        entry: dict[str, Any] = {"name": rule.name, "kind": _KINDS[rule.kind], "became": _became(rule)}
        if number in used:
            values, missing = column_values(encoder, number, features)
            entry["missing"] = float(missing.mean())
            if rule.kind in ("text", "means"):
                entry["levels"] = len(rule.levels)
            known = values[~missing]
            if rule.kind not in ("text", "means") and known.size:
                quantiles = np.quantile(known, [0.0, 0.5, 1.0]).tolist()
                entry |= dict(zip(("low", "median", "high"), (shown(rule, v) for v in quantiles), strict=True))
        columns.append(entry)
    return {"rows": model.n_rows_, "columns": columns, "features": len(encoder.feature_names)}


def _became(rule: Any) -> str:
    if rule.kind == "unused":
        return "not used: it had no values"
    if rule.kind == "text":
        return f"{len(rule.features)} features, one for each level"
    if rule.kind == "means":
        return "the mean of the target and the count at each level"
    extra = [f"sine and cosine of the {', '.join(rule.cycles)}"] if rule.cycles else []
    extra += ["gaps filled with the median and marked"] if rule.indicator else []
    return "; ".join(["one feature", *extra])


def plain_values(value: Any) -> Any:
    """Without numpy's types, and with None for what is no finite number: as JSON knows it."""
    if isinstance(value, dict):
        return {str(key): plain_values(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(own) for own in value]
    if isinstance(value, np.ndarray):
        return plain_values(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)
