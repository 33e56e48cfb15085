"""Outliers: targets of some training rows replaced by numbers 20 standard deviations off; the test rows are clean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from experiments.accuracy.table import Table, Wanted
from experiments.data import Array, Split, load, split
from experiments.scoring import fit_and_score
from experiments.task import Entry, Task

OUTLIERS, SIGMAS = 0.05, 20.0  # share of the rows, and how far off


def spoiled(y: Array, seed: int) -> Array:
    """Standardised targets (n,), some of them replaced by outliers of either sign."""
    rng = np.random.default_rng(seed)
    y = y.copy()
    bad = rng.choice(len(y), int(OUTLIERS * len(y)), replace=False)
    y[bad] = SIGMAS * rng.choice([-1.0, 1.0], len(bad))
    return y


def lines(wanted: Wanted) -> Iterator[Sequence[str]]:
    for name in wanted.data or ():
        table = load(name, wanted.openml)
        for seed in wanted.seeds or ():
            clean = split(*table, seed)
            bad = replace(clean, y=spoiled(clean.y, seed))
            first = _rmse(name, clean, "gaussian", seed)
            plain, robust = (_rmse(name, bad, likelihood, seed) for likelihood in ("gaussian", "student_t"))
            yield str(seed), f"{first:.4f}", f"{plain:.4f}", f"{robust:.4f}", f"{robust / first:.3f}"


def _rmse(data: str, parts: Split, likelihood: str, seed: int) -> float:
    entry = Entry(likelihood, "loo-k-calibrated", options={"likelihood": likelihood})
    rmse: float = fit_and_score(Task("", entry, data, seed), parts)["metrics"]["rmse"]
    return rmse


TABLE = Table(
    "outliers",
    f"RMSE of clean test rows: {OUTLIERS:.0%} of the training targets are {SIGMAS:g} standard deviations off",
    ("seed", "clean, Gaussian", "outliers, Gaussian", "outliers, Student-t", "ratio to clean"),
    lines,
    ("kin40k",),
)
