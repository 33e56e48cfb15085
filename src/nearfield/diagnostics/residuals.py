"""Where predictions are wrong: residuals by bins of something, and the rows that surprise most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from nearfield.diagnostics.chance import holm, mean_p
from nearfield.diagnostics.predicted import Evaluated, Predicted
from nearfield.diagnostics.slices import Slice

_BINS = 10


class Residuals(Protocol):
    """What bins are made of: `Predicted`, or `Off`; (b,) each."""

    @property
    def residual(self) -> np.ndarray: ...

    @property
    def std(self) -> np.ndarray: ...

    @property
    def weights(self) -> np.ndarray: ...

    @property
    def units(self) -> np.ndarray | None: ...


class Off(NamedTuple):
    """Residuals and standard deviations (b,) of some rows."""

    residual: np.ndarray
    std: np.ndarray
    weights: np.ndarray
    units: np.ndarray | None = None


def by_values(rows: Residuals, values: np.ndarray, bins: int = _BINS) -> list[dict[str, Any]]:
    """Mean residual in bins of values (b,) that have about as many rows each, with p values for all together."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1), method="nearest"))
    if len(edges) == 1:
        edges = np.repeat(edges, 2)
    parts = []
    for i, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        part = ((values >= low) if i == 0 else (values > low)) & (values <= high)
        if part.any():
            centre = float(np.average(values[part]))
            parts.append({"low": low, "high": high, "centre": centre, **_told(rows, part)})
    return _together(parts)


def by_slices(rows: Residuals, slices: Sequence[Slice]) -> list[dict[str, Any]]:
    """The same in slices of the rows."""
    return _together([{"column": s.column, "slice": s.label, **_told(rows, s.rows)} for s in slices])


def _told(rows: Residuals, part: np.ndarray) -> dict[str, Any]:
    units = None if rows.units is None else rows.units[part]
    residual, weights = rows.residual[part], rows.weights[part]
    mean, error, p = mean_p(residual, weights, units)
    rms = float(np.sqrt(np.average(residual**2, weights=weights)))
    stated = float(np.sqrt(np.average(rows.std[part] ** 2, weights=weights)))
    return {"rows": int(part.sum()), "residual": mean, "error": error, "rmse": rms, "stated": stated, "p": p}


def _together(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for part, p in zip(parts, holm([part["p"] for part in parts]), strict=True):
        part["p"] = p
    return parts


def surprise(rows: Predicted) -> np.ndarray:
    """How far (b,) what was observed lies from the middle of its interval, in halves of its width."""
    lower, upper = rows.ends
    width = np.maximum(upper - lower, np.finfo(float).tiny)
    if rows.counts:
        width = np.maximum(width, 1.0)
    return np.abs(rows.y - (lower + upper) / 2) / (width / 2)


def nearest_rows(model: Any, evaluated: Evaluated, places: np.ndarray, most: int = 3) -> np.ndarray:
    """Numbers (b, most) of the rows of the fit that are nearest to the evaluated rows `places` (b,), -1 for none."""
    fit = model._fit
    sweeper = fit.predictor.sweeper
    if evaluated.observations is not None:
        ids = sweeper.left_out_ids(evaluated.observations[places], most)
    else:
        ids = sweeper.new_ids(fit.inputs.apply(evaluated.features[places]), most)
    found = np.full((len(places), most), -1, dtype=np.int64)
    found[:, : ids.shape[1]] = ids[:, :most]
    return found


def neighbour_values(model: Any, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the given rows, and targets, that rows of the fit `ids` stand for: those of the first observation."""
    rows, family = model._fit.predictor.rows, model._family
    first = np.unique(rows.observations.row, return_index=True)[1]
    values = np.asarray(family.values(rows.observations.observed))
    if model._target is not None:
        values = model._target.undo(values)
    numbers = np.asarray(model._first_numbers())
    safe = np.maximum(ids, 0)
    return np.where(ids >= 0, numbers[safe], -1), values[first][safe]
