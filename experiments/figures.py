"""The figures of the report, as SVG that takes its colours from the page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.content import Figure
from experiments.synthetic import UNWARPED, WARPINGS

# Okabe and Ito's colours, which the colour-blind can tell apart; markers differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a")
MARKERS = "osD^vPX"
_MOST_DECADES = 3.1  # of a logarithmic axis with three numbers in each
_INK, _GRID = "#010203", "#040506"  # replaced by colours of the page
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": _INK, "axes.labelcolor": _INK, "text.color": _INK,
    "xtick.color": _INK, "ytick.color": _INK, "axes.grid": True, "grid.color": _GRID, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "legend.frameon": False, "axes.titlesize": 10, "axes.titleweight": "bold",
}  # fmt: skip

Result = Mapping[str, Any]
Series = Mapping[str, tuple[Any, Any]]
"""Name: x and y."""


def lines(axes: Axes, series: Series, markers: str = MARKERS) -> None:
    """One line with its own colour and marker for each series."""
    for i, (name, (x, y)) in enumerate(series.items()):
        marker = markers[i % len(markers)] if markers else ""
        axes.plot(x, y, label=name, linewidth=1.6, color=COLOURS[i % len(COLOURS)], marker=marker, markersize=4.5)


def _ours_first(entry: str) -> tuple[bool, str]:
    """Order of the lines, so that the same method has the same colour in every figure."""
    return not entry.startswith("loo"), entry


def _mean(values: Iterable[float | None]) -> float:
    """Of those that are finite; nan, which is not drawn, if none is."""
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else float("nan")


def _log_ticks(axis: Any, base: int = 10) -> None:
    """Plain numbers at 1, 2, 5, 10, ..., if that is too many at 1, 10, 100, ..., or at the powers of two."""
    low, high = axis.get_view_interval()
    fine = base == 10 and high / low < 10**_MOST_DECADES
    axis.set_major_locator(LogLocator(base, subs=(1.0, 2.0, 5.0) if fine else (1.0,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def misspecification(results: Iterable[Result]) -> Figure | None:
    """Log likelihood and RMSE over gamma, one column for each warping; means over the splits.

    The unwarped data are the first point of every column.
    """
    points: dict[str, dict[str, dict[float, list[Result]]]] = {}
    results = list(results)
    there = {result["data"].rsplit("-", 1)[0] for result in results if result["data"] != UNWARPED}
    for result in results:
        own, gamma = result["data"].rsplit("-", 1)
        for warping in there if result["data"] == UNWARPED else [own]:
            by_gamma = points.setdefault(warping, {}).setdefault(result["entry"], {})
            by_gamma.setdefault(float(gamma), []).append(result)
    if not points:
        return None

    def series(warping: str, metric: str, sign: float) -> dict[str, tuple[list[float], list[float]]]:
        found = {}
        for entry, by_gamma in sorted(points[warping].items(), key=lambda item: _ours_first(item[0])):
            gammas = sorted(by_gamma)
            means = [_mean(r["metrics"][metric] for r in by_gamma[g]) for g in gammas]
            found[entry] = (gammas, [sign * mean for mean in means])
        return found

    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(2, len(points), figsize=(3.3 * len(points), 4.6), sharex=True, squeeze=False)
        for (top, bottom), warping in zip(grid.T, sorted(points, key=list(WARPINGS).index), strict=True):
            lines(top, series(warping, "nll", -1.0))
            lines(bottom, series(warping, "rmse", 1.0))
            top.set_title(warping)
            bottom.set_xlabel("γ")
        grid[0, 0].set_ylabel("test log likelihood")
        grid[1, 0].set_ylabel("test RMSE")
        grid[0, -1].legend()
        return _drawn(figure, "misspecification", "Test log likelihood and RMSE as the data become less stationary")


def curves(results: Iterable[Result], maxima: Mapping[str, Mapping[str, float]]) -> Figure | None:
    """Objectives over kernel scale and noise, maximum at zero; the paper's maxima as triangles. A row a data set."""
    found = {result["data"]: result["curves"] for result in results if "curves" in result}
    if not found:
        return None
    labels = {"kernel_scale": "kernel scale σ_K", "noise_std": "noise σ_obs"}
    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(len(found), 2, figsize=(9.6, 3.2 * len(found)), squeeze=False)
        for row, (data, objectives) in zip(grid, found.items(), strict=True):
            for axes, parameter in zip(row, labels, strict=True):
                _objectives(axes, {name: pair[parameter] for name, pair in objectives.items()}, maxima[parameter])
                axes.set(xscale="log", xlabel=labels[parameter], ylim=(-1.0, 0.06), title=data)
                _log_ticks(axes.xaxis)
            row[0].set_ylabel("objective per row, shifted")
        grid[0, 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        title = "Objectives along one hyper-parameter; triangles: where the paper's objectives are largest"
        return _drawn(figure, "curves", title)


def _objectives(axes: Axes, curves: Mapping[str, Mapping[str, Sequence[float]]], maxima: Mapping[str, float]) -> None:
    lines(axes, {name: (c["values"], np.array(c["objective"]) - max(c["objective"])) for name, c in curves.items()}, "")
    for i, name in enumerate(curves):
        if name in maxima:
            axes.plot(maxima[name], 0.03, marker="v", color=COLOURS[i], clip_on=False, markersize=6)


def k_dependence(results: Iterable[Result]) -> Figure | None:
    """Change of log likelihood and RMSE since the smallest k, means over the splits."""
    by_data: dict[str, list[Result]] = {}
    for result in results:
        if "by_k" in result:
            by_data.setdefault(result["data"], []).append(result)
    if not by_data:
        return None

    def series(metric: str, sign: float) -> dict[str, tuple[list[int], list[float]]]:
        found = {}
        for data, runs in by_data.items():
            ks = sorted(set.intersection(*({int(k) for k in run["by_k"]} for run in runs)))
            means = [_mean(run["by_k"][str(k)][metric] for run in runs) for k in ks]
            found[data] = (ks, [sign * (mean - means[0]) for mean in means])
        return found

    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(1, 2, figsize=(9.6, 3.4))
        for axes, (metric, sign, label) in zip(
            grid, (("nll", -1.0, "change of log likelihood"), ("rmse", 1.0, "change of RMSE")), strict=True
        ):
            lines(axes, series(metric, sign))
            axes.set_xscale("log", base=2)
            _log_ticks(axes.xaxis, 2)
            axes.set(xlabel="neighbours k", ylabel=label)
        grid[0].legend()
        return _drawn(figure, "k_dependence", "Test scores over the number of neighbours, relative to k = 8")


def runtime(results: Iterable[Result]) -> Figure | None:
    """Seconds per step over rows, both logarithmic."""
    points: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        points.setdefault(result["entry"], []).append((result["rows"]["train"], result["metrics"]["seconds_per_step"]))
    if not points:
        return None
    order = sorted(points, key=_ours_first)
    series: Any = {name: tuple(zip(*sorted(points[name]), strict=True)) for name in order}
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 3.6))
        lines(axes, series)
        axes.set(xscale="log", yscale="log", xlabel="training rows N", ylabel="seconds per step")
        _log_ticks(axes.yaxis)
        axes.legend()
        return _drawn(figure, "runtime", "Seconds per training step over the number of rows")


def _drawn(figure: Any, name: str, title: str) -> Figure:
    """SVG text that can stand inside of a page: no prologue, colours that follow it, ids of its own."""
    figure.tight_layout()
    buffer = io.StringIO()
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None}
        )
    plt.close(figure)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(_INK, "var(--ink, #222)").replace(_GRID, "var(--line, #ddd)")
    svg = re.sub(r'\bid="([a-z0-9.]+_\d+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    return Figure(name, title, svg)
