"""Maps and the variogram of a report, from its dict."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.colours import DIVERGING, SEQUENTIAL, SPREAD
from nearfield.diagnostics.slices import short
from nearfield.report.svg import Axis, Figure, Mark, Table, coloured, hexes, picture

_TABLED = 10  # cells along each side of the table behind a map
_TIMES = 2.5  # the largest semivariance of rows that is drawn of the model


def of_map(told: dict[str, Any]) -> list[Figure]:
    """Mean, standard deviation, residuals and variogram, as far as there are any."""
    what = told["what"]
    found = [_picture(told, "mean", what, f"Map of {what}", SEQUENTIAL)]
    if told["kind"] != "label":
        found.append(_picture(told, "std", f"std of {what}", f"Map of the standard deviation of {what}", SPREAD))
    if told["residuals"]:
        found.append(_residuals(told))
    if told["variogram"]:
        found.append(_variogram(told["variogram"], what))
    return found


def _axes(told: dict[str, Any]) -> tuple[Axis, Axis]:
    ends = []
    for key in ("x", "y"):
        half = (told[key][1] - told[key][0]) / 2
        ends.append((told[key][0] - half, told[key][-1] + half))
    return Axis(told["columns"][0], *ends[0]), Axis(told["columns"][1], *ends[1])


def _range(values: np.ndarray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0, 1.0
    low, high = np.quantile(known, [0.01, 0.99]).tolist()
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bar(name: str, low: float, high: float) -> tuple[str, float, float]:
    shades = np.linspace(high, low, 64)[:, None]
    return picture(coloured(shades, low, high, name)), low, high


def _picture(told: dict[str, Any], key: str, label: str, title: str, colours: str) -> Figure:
    values = np.array(told[key], dtype=np.float64)
    low, high = _range(values)
    x, y = _axes(told)
    image = picture(coloured(values[::-1], low, high, colours))
    some = [np.unique(np.linspace(0, n - 1, _TABLED).round().astype(int)) for n in values.shape]
    rows = [
        [short(told["y"][i]), *(short(values[i, j]) if np.isfinite(values[i, j]) else "" for j in some[1])]
        for i in some[0][::-1]
    ]
    return Figure(
        f"map-{key}", title,
        f"A map over {x.label} and {y.label}; {label} runs from {short(low)} to {short(high)}.", x, y,
        [Mark("image", [x.low, x.high], [y.low, y.high], image=image)],
        Table([f"{y.label} \\ {x.label}", *(short(told["x"][j]) for j in some[1])], rows),
        note="Empty where no training row tells anything. Beyond the colour bar colours stay the same.",
        bar=_bar(colours, low, high), aspect=told["aspect"],
    )  # fmt: skip


def _residuals(told: dict[str, Any]) -> Figure:
    own = told["residuals"]
    residual = np.asarray(own["residual"], dtype=np.float64)
    most = float(np.quantile(np.abs(residual), 0.97)) or 1.0
    order = np.argsort(np.abs(residual), kind="stable")  # the largest on top
    x, y = _axes(told)
    at = [np.asarray(own[key], dtype=np.float64)[order] for key in ("x", "y")]
    strength = np.clip(0.2 + np.abs(residual[order]) / most, 0.0, 1.0).tolist()
    shades = hexes(residual[order], -most, most, DIVERGING)
    largest = order[::-1][:20]
    rows = [[short(own["x"][i]), short(own["y"][i]), short(residual[i])] for i in largest.tolist()]
    return Figure(
        "map-residual", "Map of left-out residuals",
        f"{len(residual)} left-out rows over {x.label} and {y.label}, coloured by what was observed less "
        f"predicted; most are between {short(-most)} and {short(most)}.", x, y,
        [Mark("points", at[0].tolist(), at[1].tolist(), low=strength, role="shaded", colours=shades)],
        Table([x.label, y.label, "residual"], rows), note="The table has the largest.",
        bar=_bar(DIVERGING, -most, most), aspect=told["aspect"],
    )  # fmt: skip


def _variogram(own: dict[str, Any], what: str) -> Figure:
    model, rows = np.asarray(own["model"], dtype=np.float64), np.asarray(own["empirical"], dtype=np.float64)
    top = min(float(model.max()), _TIMES * float(rows.max())) if rows.size else float(model.max())
    lines = [
        [short(a), short(b), f"{c:,}", short(np.interp(a, own["model_lags"], model))]
        for a, b, c in zip(own["lags"], own["empirical"], own["pairs"], strict=True)
    ]
    return Figure(
        "variogram", "Variogram: how rows differ by their distance",
        f"Semivariance of {what} over distance, of {len(rows)} classes of pairs of training rows and of the model.",
        Axis(f"distance in {own['unit']}", 0.0, 1.02 * float(own["model_lags"][-1])),
        Axis("semivariance", 0.0, 1.05 * max(top, float(rows.max(initial=0.0)))),
        [
            Mark("rule", [], [own["variance"]], role="ref", label="variance of the target"),
            Mark("line", own["model_lags"], own["model"], label="model"),
            Mark("points", own["lags"], own["empirical"], role="two", label="training rows"),
        ],
        Table(["distance", "rows", "pairs", "model"], lines),
        note="The model's is for rows that differ in their place alone, and beyond the reach of its neighbours it "
        "matters to no prediction.",
        height=270,
    )  # fmt: skip
