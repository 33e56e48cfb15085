"""Figures of a report, from its dict: each with a description in words and the numbers behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.diagnostics.slices import short
from nearfield.report.sentences import percent, where
from nearfield.report.svg import Axis, Figure, Mark, Table, padded
from nearfield.rules import with_unit

_MOST_BARS = 15
_MOST_SLICES = 14
_LETTERS, _BELOW = 33, 14  # of labels beside a figure, and below it
_SURE = 1.96
_FEWEST = 5  # rows of a point of a reliability curve


def of_target(told: dict[str, Any], name: str) -> dict[str, list[Figure]]:
    """Figures of a target by part: calibration, residuals, rootogram."""
    said = told["says"]
    own, residuals, unit = told["calibration"], told["residuals"], told["unit"]
    found = {
        "calibration": [_pit(own, name), _coverage(own, name), _widths(own, name, unit)],
        "slices": [_slices(own, name)] if own["slices"] else [],
        "residuals": [_residual(residuals["prediction"], with_unit("prediction", unit), f"{name}-prediction", unit)],
    }
    found["residuals"] += [
        _residual(entry, entry["label"], f"{name}-column-{i}", unit) for i, entry in enumerate(residuals["columns"])
    ]
    if told["rootogram"] is not None:
        found["rootogram"] = [_rootogram(told["rootogram"], said["rootogram"], name)]
    return found


def _pit(own: dict[str, Any], name: str) -> Figure:
    shares = np.asarray(own["pit"]["shares"], dtype=np.float64)
    bins = len(shares)
    edges = [i / bins for i in range(bins + 1)]
    low, high = bins * own["pit"]["low"], bins * own["pit"]["high"]
    y = Axis("relative frequency", 0.0, 1.08 * max(float(bins * shares.max()), high))
    marks = [
        Mark("bars", edges[:-1], (bins * shares).tolist(), high=edges[1:], label="rows"),
        Mark("band", [0.0, 1.0], low=[low, low], high=[high, high], role="ref", label="95 % if calibrated"),
        Mark("rule", [], [1.0], role="ref"),
    ]
    rows = [[f"{a:.2f} to {b:.2f}", percent(s)] for a, b, s in zip(edges[:-1], edges[1:], shares.tolist(), strict=True)]
    return Figure(
        f"pit-{name}", "Probability below what was observed (PIT)",
        f"Histogram of {bins} bars between 0 and 1, from {short(bins * shares.min())} to {short(bins * shares.max())}, "
        "where 1 is expected.",
        Axis("probability below what was observed", 0.0, 1.0), y, marks,
        Table(["probability", f"share of rows; {percent(1 / bins, 0)} expected"], rows),
        note="Flat if predictions are calibrated; high at the ends if they are too narrow, in the middle if too wide.",
    )  # fmt: skip


def _coverage(own: dict[str, Any], name: str) -> Figure:
    told = own["coverage"]
    marks = [
        Mark("band", told["levels"], low=told["low"], high=told["high"], role="ref", label="95 % if calibrated"),
        Mark("line", [0, 1], [0, 1], role="ref"),
        Mark("line", told["levels"], told["shares"], label="rows"),
        Mark("points", told["levels"], told["shares"]),
    ]
    both = zip(told["levels"], told["shares"], strict=True)
    return Figure(
        f"coverage-{name}", "Coverage of intervals",
        f"Share of rows inside of intervals over the share that these promise; 90 % intervals hold "
        f"{percent(own['inside'])}.",
        Axis("promised", 0.0, 1.0), Axis("held", 0.0, 1.0), marks,
        Table(["promised", "held"], [[percent(a, 0), percent(b)] for a, b in both]),
        note="On the diagonal if intervals hold what they promise.",
    )  # fmt: skip


def _widths(own: dict[str, Any], name: str, unit: str) -> Figure:
    told = own["widths"]
    edges, counts = told["edges"], [float(count) for count in told["counts"]]
    low, high = padded(edges if edges[0] > 0.5 * edges[-1] else [*edges, 0.0], share=0.03)
    marks = [Mark("bars", edges[:-1], counts, high=edges[1:], label="rows")]
    if told["constant"] <= 3 * high:
        high = max(high, 1.05 * told["constant"])
        marks.append(Mark("rule", [told["constant"]], role="two", label="constant prediction"))
    rows = [[percent(p, 0), short(q)] for p, q in zip(told["probabilities"], told["quantiles"], strict=True)]
    return Figure(
        f"widths-{name}", "Sharpness: widths of 90 % intervals",
        f"Histogram of the widths of 90 % intervals; their median is {short(told['quantiles'][2])}.",
        Axis(with_unit("width", unit), max(low, 0.0), high), Axis("rows", *padded(counts, zero=True)), marks,
        Table(["share of intervals narrower", "than"], [*rows, ["a constant prediction", short(told["constant"])]]),
        note="The narrower the better, as long as they hold.",
    )  # fmt: skip


def _slices(own: dict[str, Any], name: str) -> Figure:
    slices = own["slices"][:_MOST_SLICES]
    names = [_cut(f"{e['column']} = {e['slice']}") for e in slices]
    shares, n = np.array([e["coverage"] for e in slices]), np.array([e["independent"] for e in slices])
    error = _SURE * np.sqrt(np.maximum(own["level"] * (1 - own["level"]), shares * (1 - shares)) / n)
    heights = [float(len(slices) - i) for i in range(len(slices))]
    off = [i for i, e in enumerate(slices) if e["p"] < 0.05]
    on = [i for i in range(len(slices)) if i not in off]
    marks = [Mark("rule", [own["level"]], role="ref", label="promised")]
    for which, role, label in ((on, "one", "within chance"), (off, "two", "beyond chance")):
        if which:
            x, y = [float(shares[i]) for i in which], [heights[i] for i in which]
            ends = ([float(shares[i] - error[i]) for i in which], [float(min(shares[i] + error[i], 1)) for i in which])
            marks += [Mark("across", x, y, *ends, role=role), Mark("points", x, y, role=role, label=label)]
    low = float(max(0.0, min((shares - error).min(), own["level"]) - 0.02))
    rows = [[e["column"], e["slice"], f"{e['rows']:,}", percent(e["coverage"]), _p(e["p"])] for e in own["slices"][:60]]
    return Figure(
        f"slices-{name}", "Coverage of 90 % intervals by slices of the columns",
        f"The {len(slices)} slices that differ most of {len(own['slices'])}; the first is {names[0]} with "
        f"{percent(slices[0]['coverage'])}.",
        Axis("share of rows inside", low, 1.005),
        Axis("", 0.3, len(slices) + 0.7, list(zip(heights, names, strict=True))), marks,
        Table(["column", "slice", "rows", "inside", "chance of as much by luck"], rows),
        note="Those that differ most come first. Chance is counted for all slices together.",
        height=64 + 17 * len(slices),
    )  # fmt: skip


def _p(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"


def _cut(text: str, most: int = _LETTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _residual(told: dict[str, Any], label: str, name: str, unit: str) -> Figure:
    bins, points = told["bins"], told.get("points")
    levels = bool(bins) and "slice" in bins[0]
    centres = [float(i) if levels else entry["centre"] for i, entry in enumerate(bins)]
    means = [entry["residual"] for entry in bins]
    errors = [
        _SURE * entry["error"] if entry["error"] is not None and np.isfinite(entry["error"]) else 0.0 for entry in bins
    ]
    low, high = ([m - s * e for m, e in zip(means, errors, strict=True)] for s in (1, -1))
    marks = [Mark("rule", [], [0.0], role="ref")]
    spread: Any = [*low, *high, 0.0]
    if points:
        residual = np.asarray(points["residual"], dtype=np.float64)
        spread = [*spread, *np.quantile(residual, [0.01, 0.99]).tolist()] if residual.size else spread
        marks.insert(0, Mark("points", points["x"], points["residual"], role="faint", label="rows"))
    marks += [] if levels else [Mark("line", centres, means, role="two")]
    marks += [
        Mark("errors", centres, low=low, high=high, role="two"),
        Mark("points", centres, means, role="two", label="mean, 95 % bars"),
    ]
    ticks = [(float(i), _cut(entry["slice"], _BELOW)) for i, entry in enumerate(bins)] if levels else None
    ends = (-0.6, len(bins) - 0.4) if levels else padded([*centres, *(points["x"] if points else [])])
    rows = [
        [where(e), f"{e['rows']:,}", short(e["residual"]), short(2 * (e["error"] or 0)), short(e["rmse"]), _p(e["p"])]
        for e in bins
    ]
    return Figure(
        f"residual-{name}", f"Residuals over {label}",
        f"Residuals, observed less predicted, over {label}; their mean in {len(bins)} bins runs from "
        f"{short(min(means))} to {short(max(means))}.",
        Axis(label, *ends, ticks, date=told.get("date", False), levels=levels),
        Axis(with_unit("observed − predicted", unit), *padded(spread)), marks,
        Table([label, "rows", "mean residual", "±", "root mean square", "chance of as much by luck"], rows),
    )  # fmt: skip


def _rootogram(told: dict[str, Any], said: list[str], name: str) -> Figure:
    observed, expected = (np.sqrt(np.maximum(np.asarray(told[k], dtype=float), 0)) for k in ("observed", "expected"))
    n = len(observed)
    names = [short(a) if a == b else f"{short(a)}–{short(b)}" for a, b in zip(told["low"], told["high"], strict=True)]
    names[-1] = f"{short(told['low'][-1])}+"
    edges = [float(i) for i in range(n + 1)]
    some = max(1, n // 7)
    marks = [
        Mark(
            "bars", edges[:-1], expected.tolist(), low=(expected - observed).tolist(), high=edges[1:], label="observed"
        ),
        Mark("line", [i + 0.5 for i in edges[:-1]], expected.tolist(), role="two", label="expected"),
        Mark("points", [i + 0.5 for i in edges[:-1]], expected.tolist(), role="two"),
        Mark("rule", [], [0.0], role="ref"),
    ]
    rows = [[a, short(b), short(c)] for a, b, c in zip(names, told["observed"], told["expected"], strict=True)]
    return Figure(
        f"rootogram-{name}", "How often each count is seen (rootogram)",
        "Bars of observed numbers of rows hang from those that are expected, on a scale of square roots; where they do "
        "not end at zero there are too few or too many.",
        Axis("count", -0.1, n + 0.1, [(i + 0.5, names[i]) for i in range(0, n, some)]),
        Axis("√ rows", *padded([*(expected - observed), *expected], share=0.06)), marks,
        Table(["count", "rows observed", "rows expected"], rows), says=said,
        note="Bars hang from what is expected: where they end above zero fewer were observed, below it more.",
    )  # fmt: skip


# --- classes ----------------------------------------------------------------------------------------------------------


def of_classes(told: dict[str, Any], name: str) -> dict[str, list[Figure]]:
    """Figures of classes by part."""
    found = {"reliability": [_reliability(told["reliability"], "the most probable class", f"{name}-top")]}
    found["reliability"] += [
        _reliability(entry["bins"], f"class {entry['label']}", f"{name}-{i}")
        for i, entry in enumerate(told["of_class"])
    ]
    found["confusion"] = [_confusion(told["confusion"], name)]
    found["curves"] = [_curves(told["curves"], name, roc) for roc in (True, False)] if told["curves"] else []
    return found


def _reliability(bins: list[dict[str, Any]], label: str, name: str) -> Figure:
    shown = [entry for entry in bins if entry["rows"] >= _FEWEST] or bins
    x, y = ([entry[key] for entry in shown] for key in ("predicted", "observed"))
    error = [_SURE * np.sqrt(max(p * (1 - p), 1e-4) / max(e["independent"], 1)) for p, e in zip(x, shown, strict=True)]
    low, high = ([float(np.clip(p + s * e, 0, 1)) for p, e in zip(x, error, strict=True)] for s in (-1, 1))
    marks = [
        Mark("band", x, low=low, high=high, role="ref", label="95 % if calibrated"),
        Mark("line", [0, 1], [0, 1], role="ref"),
        Mark("line", x, y, label="rows"),
        Mark("points", x, y),
    ]
    rows = [[percent(e["predicted"]), percent(e["observed"]), f"{e['rows']:,}", _p(e["p"])] for e in bins]
    return Figure(
        f"reliability-{name}", f"Reliability: {label}",
        f"Observed share over predicted probability of {label}, in {len(bins)} bins; on the diagonal if they agree.",
        Axis("predicted probability", 0.0, 1.0), Axis("observed share", 0.0, 1.0), marks,
        Table(["predicted", "observed", "rows", "chance of as much by luck"], rows),
    )  # fmt: skip


def _confusion(told: dict[str, Any], name: str) -> Figure:
    matrix, labels = np.array(told["rows"], dtype=np.float64), told["labels"]
    K = len(labels)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-300)
    pairs = [(a, b) for a in range(K) for b in range(K)]
    texts = [short(matrix[a, b]) if K <= 10 else "" for a, b in pairs]
    ticks_x = [(float(b), _cut(labels[b], _BELOW)) for b in range(K)]
    ticks_y = [(float(K - 1 - a), _cut(labels[a], _BELOW)) for a in range(K)]
    marks = [
        Mark("cells", [float(b) for _, b in pairs], [float(K - 1 - a) for a, _ in pairs],
             high=[float(shares[a, b]) for a, b in pairs], colours=texts)
    ]  # fmt: skip
    rows = [[labels[a], *(short(v) for v in matrix[a].tolist())] for a in range(K)]
    return Figure(
        f"confusion-{name}", "Confusion matrix",
        "Numbers of rows by class, in rows, and by predicted class, in columns; "
        f"{percent(np.trace(matrix) / matrix.sum())} are on the diagonal.",
        Axis("predicted", -0.5, K - 0.5, ticks_x, levels=True), Axis("observed", -0.5, K - 0.5, ticks_y), marks,
        Table(["observed \\ predicted", *labels], rows),
        note="The stronger the colour, the larger the share of its class.",
        height=_square(64), left=64,
    )  # fmt: skip


def _square(left: int) -> int:
    """The height of a figure whose box is as high as it is wide, or a little less."""
    return min(360 - left - 12, 260) + 56


_ROLES = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def _curves(told: list[dict[str, Any]], name: str, roc: bool) -> Figure:
    x, y, area = ("false_positive", "true_positive", "auc") if roc else ("recall", "precision", "average_precision")
    marks = [
        Mark("line", entry[x], entry[y], role=role, label=f"{_cut(entry['label'], 12)} {entry[area]:.3f}")
        for entry, role in zip(told, _ROLES, strict=False)
    ]
    marks += [Mark("line", [0, 1], [0, 1], role="ref")] if roc else []
    title = "ROC curve" if roc else "Precision and recall"
    labels = ("false alarms", "found") if roc else ("found (recall)", "right of those named (precision)")
    what = "area under the curve" if roc else "average precision"
    return Figure(
        f"{'roc' if roc else 'precision'}-{name}", title,
        f"{title} of {len(told)} classes, each against all others; {what} of {told[0]['label']}: {told[0][area]:.3f}.",
        Axis(labels[0], 0.0, 1.0), Axis(labels[1], 0.0, 1.01), marks,
        Table(["class", what], [[entry["label"], f"{entry[area]:.4f}"] for entry in told]),
        note=f"Numbers are the {what}.", height=270,
    )  # fmt: skip


# --- what the model learned -------------------------------------------------------------------------------------------


def of_importance(told: dict[str, Any]) -> Figure:
    """Losses of left-out rows, a lying bar each."""
    shown = [entry for entry in told["columns"] if entry["loss"] > 0][:_MOST_BARS] or told["columns"][:1]
    heights = [float(len(shown) - i) for i in range(len(shown))]
    names = [_cut(entry["column"]) for entry in shown]
    losses = [entry["loss"] for entry in shown]
    return Figure(
        "importance", "How much each column matters",
        f"What left-out rows lose in mean log score when a column is shuffled; most for {names[0]}, {losses[0]:.3g}.",
        Axis("loss in log score", 0.0, 1.05 * max(losses[0], 1e-9)),
        Axis("", 0.3, len(shown) + 0.7, list(zip(heights, names, strict=True))), [Mark("lying", losses, heights)],
        Table(["column", "loss in log score"], [[e["column"], f"{e['loss']:.4g}"] for e in told["columns"]]),
        note="Of two columns that tell the same, either can do the other's work: both then seem to matter little.",
        height=64 + 20 * len(shown),
    )  # fmt: skip


def of_effect(told: dict[str, Any], number: int) -> Figure:
    """The effect of a column with its error bars."""
    values, mean = told["values"], told["mean"]
    if told["ordered"]:
        marks = [Mark("band", values, low=told["low"], high=told["high"]), Mark("line", values, mean)]
        marks += [Mark("points", values, mean)] if len(values) <= 6 else []
        ends, ticks = padded(values, share=0.03), None
    else:
        marks = [Mark("errors", values, low=told["low"], high=told["high"]), Mark("points", values, mean)]
        ends = (-0.6, len(values) - 0.4)
        ticks = [(v, _cut(s, _BELOW)) for v, s in zip(values, told["labels"], strict=True)]
    rows = [[a, *map(short, rest)] for a, *rest in zip(told["labels"], mean, told["low"], told["high"], strict=True)]
    return Figure(
        f"effect-{number}", f"{told['column']} and {told['output']}",
        f"Mean prediction of {told['output']} when {told['column']} is set to each of {len(values)} values, from "
        f"{short(min(mean))} to {short(max(mean))}.",
        Axis(told["label"], *ends, ticks, date=told["date"], levels=not told["ordered"]),
        Axis(with_unit(told["output"], told["unit"]), *padded([*told["low"], *told["high"]])), marks,
        Table([told["column"], "mean", "low", "high"], rows), says=told["says"],
    )  # fmt: skip


def of_training(told: dict[str, Any]) -> list[Figure]:
    """Scores over refreshes and over k, and how columns are bent."""
    found = []
    if len(told["refreshes"]) > 1:
        found.append(_refreshes(told["refreshes"]))
    if len(told["by_k"]) > 1:
        found.append(_by_k(told))
    found.append(_bends(told))
    return found


def _refreshes(told: list[dict[str, Any]]) -> Figure:
    x, y = ([entry[key] for entry in told] for key in ("refresh", "score"))
    return Figure(
        "refreshes", "Left-out score while training",
        f"Mean left-out log density in {len(x)} refreshes of training, from {short(y[0])} to {short(y[-1])}.",
        Axis("refresh", min(x) - 0.3, max(x) + 0.3, _whole(x)), Axis("mean log density", *padded(y)),
        [Mark("line", x, y), Mark("points", x, y)],
        Table(["refresh", "mean log density"], [[a, short(b)] for a, b in zip(x, y, strict=True)]),
        note="Of a standardised target, of the rows that were visited; the neighbours are found anew at each.",
    )  # fmt: skip


def _whole(x: list[int]) -> list[tuple[float, str]]:
    return [(float(v), str(v)) for v in x[:: max(1, len(x) // 8)]]


def _by_k(told: dict[str, Any]) -> Figure:
    score = "crps" if "crps" in told["by_k"][0] else "nll"
    ks, y = [entry["k"] for entry in told["by_k"]], [entry[score] for entry in told["by_k"]]
    x = np.log2(ks).tolist()
    names = [name for name in told["by_k"][0] if name != "k"]
    marks = [Mark("line", x, y), Mark("points", x, y)]
    used = min(told["k"], max(ks))
    marks.append(Mark("rule", [float(np.log2(used))], role="two", label=f"in use: {told['k']}"))
    rows = [[entry["k"], *(short(entry[name]) for name in names)] for entry in told["by_k"]]
    return Figure(
        "by-k", "Left-out score by number of neighbours",
        f"Left-out {score.upper()} with {ks[0]} to {ks[-1]} neighbours, between {short(min(y))} and {short(max(y))}.",
        Axis("neighbours k", *padded(x), [(a, str(k)) for a, k in zip(x, ks, strict=True)]),
        Axis(f"{score.upper()} (less is better)", *padded(y)), marks, Table(["k", *names], rows),
    )  # fmt: skip


def _bends(told: dict[str, Any]) -> Figure:
    shown = [entry for entry in told["features"] if entry["relevance"] > 0][:_MOST_BARS] or told["features"][:1]
    heights = [float(len(shown) - i) for i in range(len(shown))]
    names, x = [_cut(entry["name"]) for entry in shown], [entry["relevance"] for entry in shown]
    rows = [
        [e["name"], short(e["relevance"]), short(e["length_scale"]), percent(e["straight"], 0), percent(e["normal"], 0),
         percent(e["uniform"], 0)]
        for e in told["features"]
    ]  # fmt: skip
    return Figure(
        "relevance", "How finely features are looked at",
        f"One over the length scale of each feature, standardised; largest for {names[0]}.",
        Axis("1 / length scale", 0.0, 1.05 * max(max(x), 1e-12)),
        Axis("", 0.3, len(shown) + 0.7, list(zip(heights, names, strict=True))), [Mark("lying", x, heights)],
        Table(["feature", "1 / length scale", "length scale", "straight", "normal score", "uniform score"], rows),
        note="The table also has the warps: which shares of a feature are bent towards scores of its ranks.",
        height=64 + 20 * len(shown),
    )  # fmt: skip


def of_outputs(told: dict[str, Any]) -> list[Figure]:
    """Correlations of targets, and of what is left of them."""
    return [
        _correlation(
            np.array(told["targets"], dtype=np.float64), told["names"], "targets", "Correlations of the targets"
        ),
        _correlation(
            np.array(told["residuals"], dtype=np.float64), told["names"], "left", "Correlations of what is left of them"
        ),
    ]


def _correlation(matrix: np.ndarray, names: list[str], name: str, title: str) -> Figure:
    P = len(names)
    pairs = [(a, b) for a in range(P) for b in range(P)]
    strength = np.abs(np.nan_to_num(matrix))
    marks = []
    for role, sign in (("one", 1), ("two", -1)):
        own = [(a, b) for a, b in pairs if (matrix[a, b] >= 0) == (sign > 0)]
        texts = [f"{matrix[a, b]:.2f}".replace("-", "−") if P <= 8 else "" for a, b in own]
        marks.append(
            Mark("cells", [float(b) for _, b in own], [float(P - 1 - a) for a, _ in own],
                 high=[float(strength[a, b]) for a, b in own], colours=texts, role=role)
        )  # fmt: skip
    labels = [_cut(own, _BELOW) for own in names]
    rows = [[names[a], *(short(v) for v in matrix[a].tolist())] for a in range(P)]
    return Figure(
        f"correlation-{name}", title, f"Matrix of correlations between {P} targets.",
        Axis("", -0.5, P - 0.5, [(float(i), labels[i]) for i in range(P)], levels=True),
        Axis("", -0.5, P - 0.5, [(float(P - 1 - i), labels[i]) for i in range(P)]), marks,
        Table(["", *names], rows), height=_square(64), left=64,
    )  # fmt: skip
