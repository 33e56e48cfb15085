"""Numbers: the paper's univariate data sets, beside its LOO-k and the best of its eight methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments import paper_tables
from experiments.accuracy.table import Table, Wanted, chosen, fitted, metric
from experiments.catalogue import EXPERIMENTS

PAPER = paper_tables.load("univariate")


def lines(wanted: Wanted) -> Iterator[Sequence[str]]:
    for name in wanted.data or ():
        plain, default = (fitted(method, name, wanted) for method in ("loo-k", "loo-k-calibrated"))
        yield (
            name,
            metric(default, "rmse"),
            " / ".join(filter(None, (_ours("rmse", name), _best("rmse", name)))),
            metric(plain, "nll", 3),
            _ours("nll", name),
            metric(default, "nll", 3),
            _best("nll", name),
            metric(default, "crps"),
            _best("crps", name),
            metric(default, "coverage_90", 3),
            chosen(default, "k"),
        )


def _ours(metric: str, name: str) -> str:
    """The paper's figure for LOO-k; nothing for other data than the paper's."""
    figure = PAPER.figure(metric, name, "LOO-k")
    return "" if figure is None else f"{figure[0]:.3f}"


def _best(metric: str, name: str) -> str:
    best = PAPER.best(metric, name)
    return "" if best is None else f"{best[0]:.3f} ({best[1]})"


TABLE = Table(
    "univariate",
    "RMSE, NLL, CRPS and coverage with a calibrated predictive, the default, and NLL with the plain Gaussian one and "
    "the plain metric, the paper's",
    (
        "data set", "RMSE", "paper's LOO-k / best", "NLL, plain", "paper's LOO-k", "NLL, default", "paper's best",
        "CRPS, default", "paper's best", "90 % interval covers", "k (default)",
    ),
    lines,
    EXPERIMENTS["univariate"].data,
    takes=frozenset({"rows", "set"}),
)  # fmt: skip
