"""Classes: the paper's data sets of two and of more, beside its LOO-k and the best of its methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments import paper_tables
from experiments.accuracy.table import Table, Wanted, cell, chosen, fitted, metric, seconds
from experiments.catalogue import EXPERIMENTS

TWO, MORE = EXPERIMENTS["binary"].data, EXPERIMENTS["multiclass"].data
LEFT_OUT = ("higgs_18k",)  # a tenth of the paper's rows


def lines(wanted: Wanted) -> Iterator[Sequence[str]]:
    for name in wanted.data or ():
        fits = fitted("loo-k-tied", name, wanted)
        yield (
            name,
            metric(fits, "nll"),
            _paper("nll", name),
            metric(fits, "error"),
            _paper("error", name),
            metric(fits, "brier"),
            metric(fits, "calibration_error"),
            cell(fit["chosen"]["left_out"]["nll"] for fit in fits),
            chosen(fits, "k"),
            chosen(fits, "steps"),
            seconds(fits),
        )


def _paper(metric: str, name: str) -> str:
    """LOO-k, of the NLL with its standard error, and the best; nothing for other data than the paper's."""
    paper = paper_tables.load("binary" if name in TWO else "multiclass")
    ours, best = paper.figure(metric, name, "LOO-k"), paper.best(metric, name)
    if ours is None or best is None:
        return ""
    error = f" ± {ours[1]:.3f}" if metric == "nll" and ours[1] is not None else ""
    return f"{ours[0]:.3f}{error} / {best[0]:.3f}"


TABLE = Table(
    "classes",
    "NLL, error, Brier score and calibration error, and the NLL of left-out training rows; --set auxiliary=conjugate "
    "and the like for other settings of GPClassifier",
    (
        "data set", "NLL", "paper's LOO-k / best", "error", "paper's LOO-k / best", "Brier score", "calibration error",
        "left-out NLL", "k", "steps", "fit, s",
    ),
    lines,
    tuple(name for name in (*TWO, *MORE) if name not in LEFT_OUT),
    takes=frozenset({"rows", "set"}),
)  # fmt: skip
