"""What the command line writes and prints of a fitted model: predictions, scores and a description.

One class for each kind of target, all with the same four methods; `report_on` chooses.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy import stats

from nearfield.counts import CountDistribution
from nearfield.encoding import TableEncoder
from nearfield.metrics import ClassScores, CountScores, Scores
from nearfield.target import Target

Given = Mapping[str, np.ndarray]
"""exposure or trials (n,), by name, where the model has them."""

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

    def predictions(
        self, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
    ) -> dict[str, Any]:
        """Columns by name, one row for each of x (m, d)."""

    def score(self, x: np.ndarray, y: np.ndarray, given: Given) -> None:
        """Add rows x (m, d) with targets y (m,) to the scores."""

    def result(self) -> dict[str, Any]:
        """Number of rows scored, scores of the model and of a constant prediction; {} if there were no rows."""

    def description(self) -> dict[str, Any]:
        """What the model learned, beside what all models have."""


class NumberReport:
    """Numbers: the predictive distribution is continuous."""

    scores_of: ClassVar[type[Any]] = Scores

    def __init__(self, model: Any, target: Target) -> None:
        self.model, self.target = model, target
        self.scores, self.baseline = self.scores_of(), self.scores_of()

    def predictions(
        self, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
    ) -> dict[str, Any]:
        if coverage is None:
            coverage = inspect.signature(self.model.predict_interval).parameters["coverage"].default
        dist = self.model.predict_dist(x, **given)  # once: the neighbours are most of the work
        lower, upper = dist.interval(coverage)
        found = {"mean": dist.mean(), "std": dist.std(), "lower": self._ends(lower), "upper": self._ends(upper)}
        return found | {f"q{level:g}": self._ends(dist.ppf(level)) for level in levels}

    def score(self, x: np.ndarray, y: np.ndarray, given: Given) -> None:
        self.scores += self.scores_of.of(y, self.model.predict_dist(x, **given))
        self.baseline += self.scores_of.of(y, self._constant(len(y), given))

    def result(self) -> dict[str, Any]:
        if self.scores.n == 0:
            return {}
        return {"rows": self.scores.n, "model": self.scores.as_dict(), "constant": self.baseline.as_dict()}

    def description(self) -> dict[str, Any]:
        model = self.model
        noise = "noise_std" if model.likelihood == "gaussian" else "noise_scale"  # heavy tails may have no std
        return {
            "likelihood": model.likelihood,
            noise: model.noise_std_,
            "kernel_scale": model.kernel_scale_,
            "target_mean": self._moments["mean"],
            "target_std": self._moments["std"],
        }

    def _ends(self, values: np.ndarray) -> np.ndarray:
        return values

    @property
    def _moments(self) -> dict[str, float]:
        return self.target.constant or {"mean": self.model.target_mean_, "std": self.model.target_std_}

    def _constant(self, n: int, given: Given) -> Any:
        return stats.norm(self._moments["mean"], self._moments["std"])


class CountReport(NumberReport):
    """Counts: quantiles are whole numbers, and there may be an exposure or trials."""

    scores_of = CountScores

    def description(self) -> dict[str, Any]:
        given = {"exposure": self.target.exposure, "trials": self.target.trials, "dispersion": self.model.dispersion_}
        present = {name: value for name, value in given.items() if value is not None}
        return {"likelihood": self.model.likelihood, **present}

    def _ends(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.int64)

    def _constant(self, n: int, given: Given) -> CountDistribution:
        known = self.target.constant
        if "trials" in given:
            log_odds = np.log(known["share"]) - np.log1p(-known["share"])
            return CountDistribution.binomial(np.full(n, log_odds), 0.0, given["trials"])
        mean = known["rate"] * given.get("exposure", np.ones(n))
        return CountDistribution.negative_binomial(np.log(mean / known["dispersion"]), 0.0, known["dispersion"])


class ClassReport:
    """Classes: a label and a probability for each. Labels that training did not have are errors without an NLL."""

    def __init__(self, model: Any, target: Target) -> None:
        self.model, self.target = model, target
        self.scores, self.baseline, self.unseen = ClassScores(), ClassScores(), 0
        self._labels: list[Any] = model.classes_.tolist()
        self._place = {label: place for place, label in enumerate(self._labels)}

    def predictions(
        self, x: np.ndarray, given: Given, coverage: float | None, levels: Sequence[float]
    ) -> dict[str, Any]:
        p = self.model.predict_proba(x)
        names = probability_names(self._labels)
        predicted = [self._labels[place] for place in p.argmax(axis=1)]
        return {"prediction": predicted} | {name: p[:, place] for place, name in enumerate(names)}

    def score(self, x: np.ndarray, y: np.ndarray, given: Given) -> None:
        place = np.array([self._place.get(label, -1) for label in y.tolist()])
        seen = place >= 0
        self.unseen += int((~seen).sum())
        if seen.any():
            p = self.model.predict_proba(x[seen])
            self.scores += ClassScores.of(place[seen], p)
            constant = np.broadcast_to(self.model.class_shares_, p.shape)
            self.baseline += ClassScores.of(place[seen], constant)

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
            "auxiliary": self.model.auxiliary,
            "class_kernels": self.model.class_kernels,
            "classes": [
                {"label": label, "count": count, "share": share}
                for label, count, share in zip(self._labels, counts, shares, strict=True)
            ],
        }


def report_on(model: Any, target: Target) -> Report:
    """The report of the kind that the target is of."""
    kinds: dict[str, type[NumberReport] | type[ClassReport]] = {
        "regression": NumberReport,
        "classification": ClassReport,
        "counts": CountReport,
        "binomial": CountReport,
    }
    return kinds[target.task](model, target)


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
    lines.append(f"{'':<18}{'model':>12}{'constant':>12}")
    labels = {name: label for name, label in _SCORES.items() if name in result["model"]}
    labels |= {name: f"inside {name[9:]} %" for name in result["model"] if name.startswith("coverage_")}
    for name, label in labels.items():
        model, constant = result["model"][name], result["constant"][name]
        spec = ".3f" if name.startswith("coverage_") else ".5g"
        lines.append(f"{label:<18}{model:>12{spec}}{constant:>12{spec}}")
    return "\n".join(lines)


def describe(path: Path, model: Any, encoder: TableEncoder) -> dict[str, Any]:
    """All that `nearfield info` tells."""
    from nearfield.persistence import FORMAT_VERSION

    relevances = model.feature_relevance_.values()  # in the order of the features, whatever they are called
    features = [
        {"name": name, "relevance": float(relevance), "length_scale": float(length)}
        for name, relevance, length in zip(encoder.feature_names, relevances, model.length_scales_, strict=True)
    ]
    return {
        "file": str(path),
        "file_version": FORMAT_VERSION,
        "task": encoder.target.task,
        "estimator": type(model).__name__,
        "kernel": model.kernel,
        "k": model.k_,
        "predictive": model.summary_.predictive,
        "rows": model.n_rows_,
        "target": encoder.target.name,
        **report_on(model, encoder.target).description(),
        "features": sorted(features, key=lambda feature: -feature["relevance"]),
        "summary": model.summary_.as_dict(),
    }


def description_table(described: dict[str, Any], model: Any) -> str:
    """The same for people to read."""
    plain = {name: value for name, value in described.items() if name not in ("features", "summary", "classes")}
    shown = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in plain.items()}
    lines = [f"{name.replace('_', ' '):<14}{value}" for name, value in shown.items()]
    if "classes" in described:
        rows = [(str(c["label"]), f"{c['count']:,.10g}", f"{c['share']:.4f}") for c in described["classes"]]
        lines += ["", *_columns(("class", "rows", "share"), rows)]
    rows = [(f["name"], f"{f['relevance']:.4g}", f"{f['length_scale']:.4g}") for f in described["features"]]
    lines += ["", str(model.summary_), "", *_columns(("feature", "relevance", "length scale"), rows)]
    return "\n".join(lines)


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with the first column to the left and the others to the right."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    return [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in (head, *rows)
    ]
