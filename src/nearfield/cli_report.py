"""What the command line writes and prints of a fitted model: predictions, scores and a description.

One class for each kind of target, all with the same four methods; `report_on` chooses.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from nearfield.cli_table_report import column_lines
from nearfield.columns import Features
from nearfield.families import Family
from nearfield.heads.outputs import joint_scores
from nearfield.reading import TableReader
from nearfield.target import Target, Targets, shown_labels

Given = Mapping[str, np.ndarray]
"""What rows have beside the inputs (n,), by name: an exposure, trials; for numbers a known noise variance."""

_SCORES = {
    "rmse": "RMSE",
    "nll": "NLL",
    "crps": "CRPS",
    "error": "error",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


class Report(Protocol):
    """What is written and printed of one kind of model."""

    model: Any

    def predictions(
        self, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
    ) -> dict[str, Any]:
        """Columns by name, one row for each of x (m, d)."""

    def score(self, x: np.ndarray, y: np.ndarray, given: Given) -> None:
        """Add rows x (m, d) with targets y (m,), or (m, P), to the scores."""

    def result(self) -> dict[str, Any]:
        """Number of rows scored, scores of the model and of a constant prediction; {} if there were no rows."""

    def description(self) -> dict[str, Any]:
        """What the model learned, beside what all models have."""


class NumberReport:
    """Numbers and counts: each has a predictive distribution, and counts an exposure or trials, where they have."""

    def __init__(self, model: Any, target: Target) -> None:
        self.model, self.target, self.family = model, target, family_of(model)
        self.scores, self.baseline = (_sums(self.family)() for _ in range(2))
        self._constant = model._baseline()

    def predictions(
        self, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
    ) -> dict[str, Any]:
        found = _summaries(self.model, x, given, coverage, levels)
        whole = self.family.kind == "count"  # quantiles of counts are counts
        return {
            name: values.astype(np.int64) if whole and name not in ("mean", "std") else values
            for name, values in found.items()
        }

    def score(self, x: np.ndarray, y: np.ndarray, given: Given) -> None:
        sums = _sums(self.family)
        self.scores += sums.of(y, self.model.predict_dist(Features(x), **given))
        self.baseline += sums.of(y, self.family.baseline_distribution(self._constant, len(y), given))

    def result(self) -> dict[str, Any]:
        if self.scores.n == 0:
            return {}
        return {"rows": self.scores.n, "model": self.scores.as_dict(), "constant": self.baseline.as_dict()}

    def description(self) -> dict[str, Any]:
        moments = {f"target_{name}": value for name, value in self._constant.items() if self.family.kind == "number"}
        every = {**self.target.given, **self.model._learned, **moments}
        present = {name: value for name, value in every.items() if value is not None}
        return {"target": self.target.name, "likelihood": self.family.name, **present}


class OutputsReport:
    """Several numbers: everything for each of them, an average, and how well they are predicted together."""

    def __init__(self, model: Any, target: Targets) -> None:
        self.model, self.target, self.family = model, target, family_of(model)
        self.rows, self.joint = 0, 0.0
        self.scores, self.baseline = ([_sums(self.family)() for _ in target.parts] for _ in range(2))
        self._constant = model._baseline()

    def predictions(
        self, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
    ) -> dict[str, Any]:
        found = _summaries(self.model, x, given, coverage, levels)
        return {
            f"{target}_{name}": values[:, p]
            for p, target in enumerate(self.target.names)
            for name, values in found.items()
        }

    def score(self, x: np.ndarray, y: np.ndarray, given: Given) -> None:
        dist, correlation = self.model._joint(Features(x), given.get("noise_variance"))  # one sweep
        constant = self.family.baseline_distribution(self._constant, len(y), given)
        for p, there in enumerate(~np.isnan(y).T):
            if there.any():
                for sums, joint in ((self.scores, dist), (self.baseline, constant)):
                    marginal = joint.dist(*(np.broadcast_to(values, y.shape)[there, p] for values in joint.args))
                    sums[p] += _sums(self.family).of(y[there, p], marginal)
        self.joint -= float(joint_scores(y, dist, correlation).sum())
        self.rows += len(y)

    def result(self) -> dict[str, Any]:
        if self.rows == 0:
            return {}
        each = {"model": self.scores, "constant": self.baseline}
        return {
            "rows": self.rows,
            "targets": {
                target: {
                    "rows": int(self.scores[p].n),
                    **{name: scores[p].as_dict() if scores[p].n else None for name, scores in each.items()},
                }
                for p, target in enumerate(self.target.names)
            },
            "average": {name: _average(scores) for name, scores in each.items()},
            "joint_nll": self.joint / self.rows,
            "constant_joint_nll": sum(baseline.nll for baseline in self.baseline) / self.rows,
        }

    def description(self) -> dict[str, Any]:
        model = self.model
        P = len(self.target.parts)
        learned = {name: np.broadcast_to(values, P).tolist() for name, values in model._learned.items()}
        return {
            "likelihood": model.likelihood,
            "outputs": model.outputs,
            "targets": [
                {
                    "name": name,
                    **{what: values[p] for what, values in {**self._constant, **learned}.items()},
                }
                for p, name in enumerate(self.target.names)
            ],
        }


class ClassReport:
    """Classes: a label and a probability for each. Labels that training did not have are errors without an NLL."""

    def __init__(self, model: Any, target: Target) -> None:
        self.model, self.target, self.family = model, target, family_of(model)
        self.scores, self.baseline = (_sums(self.family)() for _ in range(2))
        self.unseen = 0
        self._constant = model._baseline()
        labels, self._labels = shown_labels(model.classes_)
        self._place = {label: place for place, label in enumerate(labels)}

    def predictions(
        self, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
    ) -> dict[str, Any]:
        p = self.model.predict_proba(Features(x))
        names = probability_names(self._labels)
        predicted = [self._labels[place] for place in p.argmax(axis=1)]
        return {"prediction": predicted} | {name: p[:, place] for place, name in enumerate(names)}

    def score(self, x: np.ndarray, y: np.ndarray, given: Given) -> None:
        place = np.array([self._place.get(label, -1) for label in y.tolist()])
        seen = place >= 0
        self.unseen += int((~seen).sum())
        if seen.any():
            sums, n = _sums(self.family), int(seen.sum())
            self.scores += sums.of(place[seen], self.model.predict_proba(Features(x[seen])))
            self.baseline += sums.of(place[seen], self.family.baseline_distribution(self._constant, n, given))

    def result(self) -> dict[str, Any]:
        if self.scores.n == 0:
            return {"unseen": self.unseen} if self.unseen else {}
        rows = int(self.scores.n) + self.unseen
        both = {"model": self.scores.as_dict(), "constant": self.baseline.as_dict()}
        for name, scores in (("model", self.scores), ("constant", self.baseline)):
            both[name]["error"] = (scores.wrong + self.unseen) / rows
        return {"rows": rows, "unseen": self.unseen, **both}

    def description(self) -> dict[str, Any]:
        counts, shares = self.model.class_counts_.tolist(), self.model.class_shares_.tolist()
        return {
            "rows": round(sum(counts)),  # the model keeps rows with equal inputs as one
            "target": self.target.name,
            "auxiliary": self.model.auxiliary,
            "class_kernels": self.model.class_kernels,
            **self.model._learned,
            "classes": [
                {"label": label, "count": count, "share": share}
                for label, count, share in zip(self._labels, counts, shares, strict=True)
            ],
        }


REPORTS: dict[str, type[Any]] = {
    "number": NumberReport,
    "count": NumberReport,
    "numbers": OutputsReport,
    "label": ClassReport,
}
"""By what a family predicts."""


def report_on(model: Any, target: Target | Targets) -> Report:
    """The report of the kind that the target is of."""
    made: Report = REPORTS[target.predicts](model, target)
    return made


def family_of(model: Any) -> Family:
    """The family that was fitted."""
    family: Family = model._fit.predictor.model.family
    return family


def _sums(family: Family) -> Any:
    """What adds up the scores of its predictions."""
    return family.scores


def probability_names(labels: Sequence[Any]) -> list[str]:
    """A column name p_<label> for each label: no blanks, separators or quotes in it, and no name twice."""
    names: list[str] = []
    for label in labels:
        text = str(label).lower() if isinstance(label, bool) else str(label)
        name = "p_" + (re.sub(r"[\s\x00-\x1f,;\"'`]+", "_", text).strip("_") or "class")
        number = 1
        while (name if number == 1 else f"{name}_{number}") in names:
            number += 1
        names.append(name if number == 1 else f"{name}_{number}")
    return names


def _summaries(
    model: Any, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
) -> dict[str, np.ndarray]:
    """Mean, std, ends of the interval and quantiles of the predictions for x (m, d): (m,) each, or (m, P)."""
    if coverage is None:
        coverage = inspect.signature(model.predict_interval).parameters["coverage"].default
    dist = model.predict_dist(Features(x), **given)  # once: the neighbours are most of the work
    lower, upper = dist.interval(coverage)
    found = {"mean": dist.mean(), "std": dist.std(), "lower": lower, "upper": upper}
    return found | {f"q{level:g}": dist.ppf(level) for level in levels}


def explanations(model: Any, x: np.ndarray, given: Given, n_neighbours: int) -> dict[str, Any]:
    """Columns with the training rows that matter most to each of x (m, d): the first row of their table is 1."""
    found = model.explain(Features(x), n_neighbours, **given)
    columns: dict[str, Any] = {}
    for place in range(n_neighbours):
        parts = (part[:, place].tolist() for part in (found.neighbours + 1, found.weights, found.changes))
        there = found.neighbours[:, place] >= 0
        for name, values in zip(("neighbour", "weight", "change"), parts, strict=True):
            columns[f"{name}_{place + 1}"] = [value if own else None for value, own in zip(values, there, strict=True)]
    return columns


def _average(scores: Sequence[Any]) -> dict[str, float]:
    """The mean of each score over the targets that were there."""
    each = [target.as_dict() for target in scores if target.n]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0] if name != "n"}


# ------------------------------------------------------------------------------------------------------- text


def score_table(result: dict[str, Any]) -> str:
    """Scores for people to read."""
    skipped = f" ({result['skipped']:,} more without a target were skipped)" if result["skipped"] else ""
    lines = [f"{result['rows']:,} rows{skipped}"]
    if result.get("unseen"):
        lines.append(
            f"{result['unseen']:,} of them have labels that training did not have: "
            "they count as errors and are left out of the other scores"
        )
    for name, part in result.get("targets", {}).items():
        scored = _score_lines(part["model"], part["constant"]) if part["rows"] else []
        lines += ["", f"target {name!r}: {part['rows']:,} rows", *scored]
    if "targets" not in result:
        return "\n".join([*lines, *_score_lines(result["model"], result["constant"])])
    average = result["average"]
    lines += ["", "average over targets", *_score_lines(average["model"], average["constant"])]
    return "\n".join([*lines, "", _score_line("joint NLL", result["joint_nll"], result["constant_joint_nll"], ".5g")])


def _score_lines(model: Mapping[str, float], constant: Mapping[str, float]) -> list[str]:
    """A heading and a line for each score."""
    labels = {name: label for name, label in _SCORES.items() if name in model}
    labels |= {name: f"inside {name[9:]} %" for name in model if name.startswith("coverage_")}
    specs = {name: ".3f" if name.startswith("coverage_") else ".5g" for name in labels}
    scores = [_score_line(label, model[name], constant[name], specs[name]) for name, label in labels.items()]
    return [f"{'':<18}{'model':>12}{'constant':>12}", *scores]


def _score_line(label: str, model: float, constant: float, spec: str) -> str:
    return f"{label:<18}{model:>12{spec}}{constant:>12{spec}}"


_SHARES = ("as_it_is", "normal_score", "uniform_score")


def describe(model: Any, reader: TableReader) -> dict[str, Any]:
    """What `nearfield info` tells of a model."""
    relevances = model.feature_relevance_.values()  # in the order of the features, whatever they are called
    lengths = model.length_scales_.T.tolist()  # (d,), or (d, Q) of several kernels
    key = "length_scale" if model.length_scales_.ndim == 1 else "length_scales"
    features = [
        {"name": name, "relevance": float(relevance), key: length, "bent": dict(zip(_SHARES, shares, strict=True))}
        for name, relevance, length, shares in zip(
            model._mapped_names(), relevances, lengths, model.bends_.tolist(), strict=True
        )
    ]
    return {
        "task": reader.target.task,
        "estimator": type(model).__name__,
        "kernel": model.summary_.kernel,
        **({} if model.smoothness_ is None else {"smoothness": model.smoothness_}),
        "k": model.k_,
        "predictive": model.summary_.predictive,
        "rows": model.n_rows_,
        "columns": column_lines(model.encoder_),
        **report_on(model, reader.target).description(),
        "features": sorted(features, key=lambda feature: -feature["relevance"]),
        "summary": model.summary_.as_dict(),
    }


def description_table(described: dict[str, Any], model: Any) -> str:
    """The same for people to read; what is as usual is left to the JSON."""
    plain = {
        name: value for name, value in described.items()
        if not isinstance(value, list | dict) and (name, value) not in _USUAL
    }  # fmt: skip
    shown = {_WORDS.get(name, name.replace("_", " ")): value for name, value in plain.items()}
    width = max(map(len, shown)) + 2
    lines = [f"{name:<{width}}{_shown(value)}" for name, value in shown.items()]
    if "targets" in described:
        lines += ["", *_table("target", described["targets"], [*described["targets"][0]][1:])]
    if "classes" in described:
        rows = [(str(c["label"]), f"{c['count']:,.10g}", f"{c['share']:.4f}") for c in described["classes"]]
        lines += ["", *_columns(("class", "rows", "share"), rows)]
    one_kernel = "length_scale" in described["features"][0]
    numbers = ("relevance", "length_scale") if one_kernel else ("relevance",)
    lines += ["", *described["columns"]]
    lines += ["", str(model.summary_), "", *_table("feature", described["features"], numbers)]
    lines += ["", _RELEVANCE + (f" {_LENGTH}" if one_kernel else "")]
    return "\n".join(lines)


_USUAL = (("kernel", "auto"), ("predictive", "calibrated"), ("auxiliary", "tied"), ("class_kernels", "shared"))
_WORDS = {
    "k": "rows behind a prediction",
    "rows": "training rows",
    "noise_std": "noise of a measurement (std)",
    "noise_scale": "noise of a measurement (scale)",
    "kernel_scale": "how far the function varies (std)",
    "df": "degrees of freedom of the noise",
    "target_mean": "mean of the target",
    "target_std": "std of the target",
}
_RELEVANCE = "The more relevant a feature, the more predictions depend on it."
_LENGTH = "Rows that differ by less than its length scale have much the same target."


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _table(what: str, entries: Sequence[Mapping[str, Any]], numbers: Sequence[str]) -> list[str]:
    """Lines with the name and some numbers of each entry."""
    rows = [(entry["name"], *(f"{entry[number]:.4g}" for number in numbers)) for entry in entries]
    return _columns((what, *(number.replace("_", " ") for number in numbers)), rows)


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with the first column to the left and the others to the right."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    return [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in (head, *rows)
    ]
