"""Several outputs: each way to model them, beside the best of the four methods in the paper's multivariate table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import paper_tables
from experiments.accuracy.table import Table, Wanted, chosen, fitted, metric, seconds

DATA = ("fw_baxter", "fw_kuka", "baxter_rand", "coads", "sarcos_test")
DEFAULT = "lmc"
PAPER = paper_tables.load("multivariate")


def lines(wanted: Wanted) -> Iterator[Sequence[str]]:
    settings: dict[str, Any] = dict(wanted.settings)
    kinds = [settings.pop("outputs")] if "outputs" in settings else [DEFAULT, "independent", "shared"]
    for name in wanted.data or ():
        for number, kind in enumerate(kinds):
            fits = fitted("loo-k-calibrated", name, replace(wanted, settings=settings), outputs=kind)
            yield (
                "" if number else f"{name} ({fits[0]['rows']['outputs']})",
                _kind(kind, fits),
                metric(fits, "rmse"),
                "" if number else _best("rmse", name, wanted),
                metric(fits, "nll", 3),
                "" if number else _best("nll", name, wanted),
                metric(fits, "crps"),
                metric(fits, "coverage_90", 3),
                chosen(fits, "k"),
                seconds(fits),
            )


def _kind(kind: str, fits: Sequence[Mapping[str, Any]]) -> str:
    """The name of a kind of model; a mixed one may have been refused by left-out rows."""
    if kind != DEFAULT:
        return kind
    apart = sum(not fit["chosen"]["mixed"] for fit in fits)
    where = "" if apart == len(fits) else f" in {apart} of {len(fits)} fits"
    return f"{DEFAULT} (default)" + (f": outputs apart{where}" if apart else "")


def _best(metric: str, name: str, wanted: Wanted) -> str:
    """Of the paper, for the same rows split alike."""
    best = None if wanted.by or name in paper_tables.OTHER_DATA else PAPER.best(metric, name)
    return "" if best is None else f"{best[0]:.3f}"


TABLE = Table(
    "outputs",
    "RMSE, NLL, CRPS and coverage, averages over the outputs; --by traj keeps trajectories whole, which shows what a "
    "robot meets that moves in a new way; --set outputs=lmc prints that kind alone",
    (
        "data set (outputs)", "`outputs=`", "RMSE", "paper's best", "NLL", "paper's best", "CRPS",
        "90 % interval covers", "k", "fit, s",
    ),
    lines,
    DATA,
    takes=frozenset({"rows", "by", "set"}),
)  # fmt: skip
