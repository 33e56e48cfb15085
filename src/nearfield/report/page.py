"""The sections of a report in their order, each with sentences, tables and figures, as writers of files take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearfield.diagnostics.slices import short
from nearfield.report import figures as draw
from nearfield.report.map_figures import of_map
from nearfield.report.sentences import percent
from nearfield.report.svg import Figure

_MOST_TARGETS = 4  # with sections of their own

SCORES = {
    "rmse": "root mean squared error",
    "nll": "negative log score (NLL)",
    "crps": "CRPS",
    "coverage_50": "inside of 50 % intervals",
    "coverage_90": "inside of 90 % intervals",
    "coverage_95": "inside of 95 % intervals",
    "error": "share of wrong rows",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}
"""Names of scores, in the order in which they are shown."""


@dataclass(frozen=True)
class Listed:
    """A table that is shown as such."""

    title: str
    columns: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Part:
    """Part of a section: a heading, sentences, tables and figures."""

    title: str = ""
    says: list[str] = field(default_factory=list)
    tables: list[Listed] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """A section of the page, with a name for links to it."""

    name: str
    title: str
    parts: list[Part]


def sections(data: dict[str, Any]) -> list[Section]:
    """All sections that the data fill."""
    found = [_data(data)]
    found += _evaluation(data, 0)
    found.append(_matters(data))
    if data["outputs"]:
        told = data["outputs"]
        found.append(
            Section("outputs", "How the targets go together", [Part("", told["says"], [], draw.of_outputs(told))])
        )
    if data["map"]:
        found.append(Section("map", "On the map", [Part("", data["map"]["says"], [], of_map(data["map"]))]))
    found.append(_fit(data))
    for number in range(1, len(data["evaluations"])):
        found += _evaluation(data, number)
    return found


def _evaluation(data: dict[str, Any], number: int) -> list[Section]:
    told, found = data["evaluations"][number], []
    of_rows = f" ({told['rows']})" if len(data["evaluations"]) > 1 else ""
    if len(told["targets"]) > _MOST_TARGETS:
        found.append(_all_scores(told, number, of_rows))
    for place, target in enumerate(_least_explained(told["targets"])):
        own = of_rows if len(told["targets"]) == 1 else f" · {target['name']}{of_rows}"
        found += _target(target, own, f"{number}-{place}", told)
    return found + (_classes(told, of_rows, str(number)) if "classes" in told else [])


def _least_explained(targets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The targets that have sections of their own: all, or those with the largest errors beside a constant's."""
    if len(targets) <= _MOST_TARGETS:
        return targets

    def share(told: dict[str, Any]) -> float:
        constant = told["scores"]["constant"]["crps"]
        return float(-told["scores"]["model"]["crps"] / constant) if constant else 0.0

    return sorted(targets, key=share)[:_MOST_TARGETS]


def _all_scores(told: dict[str, Any], number: int, of_rows: str) -> Section:
    rows = [
        [
            one["name"], short(one["scores"]["model"]["rmse"]), short(one["scores"]["constant"]["rmse"]),
            short(one["scores"]["model"]["crps"]), percent(one["scores"]["model"]["coverage_90"]),
        ]
        for one in told["targets"]
    ]  # fmt: skip
    columns = ["target", "root mean squared error", "of a constant", "CRPS", "inside of 90 % intervals"]
    says = [f"Those {_MOST_TARGETS} of {len(rows)} targets that are explained least have sections of their own below."]
    return Section(f"all-{number}", f"Scores of all targets{of_rows}", [Part("", says, [Listed("", columns, rows)])])


def _notes(told: Mapping[str, Any], scores: Mapping[str, Any]) -> list[str]:
    """Which rows these are, and what they are compared with."""
    total, found = told["total"], [told["note"]] if told.get("note") else []
    if told["n"] < total - told["unseen"]:
        found.append(f"These are {told['n']:,} of {total:,} {told['rows']}, drawn at random.")
    if "crps" in scores.get("boosting", {}):
        found.append("Boosting predicts no error bars: a normal distribution with the error of rows out of their fold.")
    return found


def _data(data: dict[str, Any]) -> Section:
    model, table = data["model"], data["data"]
    rows = [
        [
            column["name"], column["kind"], _span(column), percent(column["missing"]) if column.get("missing") else "",
            column["became"],
        ]
        for column in table["columns"]
    ]  # fmt: skip
    targets = ", ".join(model["targets"])
    many = len(table["columns"])
    says = [
        f"{table['rows']:,} rows, {many} column{'s' if many != 1 else ''} as {table['features']} "
        f"feature{'s' if table['features'] != 1 else ''}; the target is {targets}.",
        f"{model['estimator']}, {model['likelihood'].replace('_', ' ')} likelihood, kernel {model['kernel']}, "
        f"{model['mean']} mean, {model['predictive']} predictive"
        + (", continuous neighbourhoods." if model["continuous"] else "."),
    ]
    says += [f"Rows were left out as follows: {model['leaving']}."] if model["leaving"] else []
    columns = Listed("", ["column", "holds", "values", "missing", "became"], rows)
    return Section("data", "The data and the model", [Part("", says, [columns])])


def _span(column: Mapping[str, Any]) -> str:
    if "levels" in column:
        return f"{column['levels']:,} levels"
    if "low" not in column:
        return ""
    return f"{column['low']} to {column['high']}, median {column['median']}"


def _scores(scores: Mapping[str, Mapping[str, float]]) -> Listed:
    names = [name for name in SCORES if name in scores["model"]]
    shown: dict[str, Callable[[float], str]] = {
        name: percent if name.startswith("coverage_") or name == "error" else _score for name in names
    }
    rows = [
        [SCORES[name], *(shown[name](own[name]) if own.get(name) is not None else "" for own in scores.values())]
        for name in names
    ]
    return Listed("", ["", *scores], rows)


def _score(value: float) -> str:
    return short(value if abs(value) > 1e-12 else 0.0)  # what is left of sums that cancel


def _target(told: dict[str, Any], own: str, name: str, evaluation: Mapping[str, Any]) -> list[Section]:
    said, drawings = told["says"], draw.of_target(told, name)
    rows = [
        [
            entry["row"], short(entry["observed"]), short(entry["predicted"]),
            f"{short(entry['lower'])} to {short(entry['upper'])}",
            "; ".join(f"{near['row']}: {short(near['observed'])}" for near in entry["neighbours"]),
        ]
        for entry in told["worst"]
    ]  # fmt: skip
    surprises = Listed(
        "", ["row", "observed", "predicted", "90 % interval", "nearest training rows, and what they have"], rows
    )
    scores = [*said["scores"], *_notes(evaluation, told["scores"])]
    more = [Part("Counts", said["rootogram"], [], drawings["rootogram"])] if "rootogram" in drawings else []
    return [
        Section(f"scores-{name}", f"Scores{own}", [Part("", scores, [_scores(told["scores"])])]),
        Section(
            f"calibration-{name}", f"Do the error bars hold?{own}",
            [Part("", said["calibration"], [], drawings["calibration"] + drawings["slices"]), *more],
        ),
        Section(
            f"errors-{name}", f"Where is it wrong?{own}",
            [Part("", said["residuals"], [], drawings["residuals"]),
             Part("The ten rows that surprise most", said["worst"], [surprises])],
        ),
    ]  # fmt: skip


def _classes(told: dict[str, Any], own: str, name: str) -> list[Section]:
    classes = told["classes"]
    said, drawings = classes["says"], draw.of_classes(classes, name)
    rows = [
        [
            entry["row"], entry["observed"], f"{short(entry['probability'])}",
            f"{entry['predicted']} ({short(entry['predicted_probability'])})",
            "; ".join(f"{near['row']}: {near['observed']}" for near in entry["neighbours"]),
        ]
        for entry in classes["worst"]
    ]  # fmt: skip
    surprises = Listed(
        "", ["row", "observed", "its probability", "predicted", "nearest training rows, and what they have"], rows
    )
    slices = [
        [e["column"], e["slice"], f"{e['rows']:,}", percent(e["right"]), percent(e["stated"]), draw._p(e["p"])]
        for e in classes["slices"][:10]
    ]
    columns = ["column", "slice", "rows", "right", "promised", "chance of as much by luck"]
    sliced = [Listed("", columns, slices)] if slices else []
    scores = [*said["scores"], *_notes(told, classes["scores"])]
    return [
        Section(f"scores-{name}", f"Scores{own}", [Part("", scores, [_scores(classes["scores"])])]),
        Section(
            f"calibration-{name}", f"Do the probabilities hold?{own}",
            [Part("", said["reliability"], [], drawings["reliability"]),
             Part("By slices of the columns", said["slices"], sliced)],
        ),
        Section(
            f"errors-{name}", f"Where is it wrong?{own}",
            [Part("", [*said["confusion"], *said["curves"]], [], drawings["confusion"] + drawings["curves"]),
             Part("The ten rows that surprise most", said["worst"], [surprises])],
        ),
    ]  # fmt: skip


def _matters(data: dict[str, Any]) -> Section:
    effects = [draw.of_effect(told, number) for number, told in enumerate(data["effects"])]
    bars = (
        "the function's, two standard deviations to each side"
        if all(told["exact"] for told in data["effects"])
        else "an upper bound on two standard deviations of the function, as if rows shared their errors"
    )
    said = [
        "What is predicted on average over some rows when a column is set to each of some values. Error bars are "
        f"{bars}. Where columns go together, some of these rows are unlike any that were seen."
    ]
    parts = [Part("", data["importance"]["says"], [], [draw.of_importance(data["importance"])])]
    parts += [Part("Partial effects", said, [], effects)] if effects else []
    return Section("matters", "What matters?", parts)


def _fit(data: dict[str, Any]) -> Section:
    told = data["training"]
    return Section("fit", "How it was fitted", [Part("", told["says"], [], draw.of_training(told))])
