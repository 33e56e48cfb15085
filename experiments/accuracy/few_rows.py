"""Error bars where rows are few for the number of columns: left-out scores beside those of new rows.

Targets are sin(2 x_0) + x_1 with noise of standard deviation 1; the other columns do not matter.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.accuracy.table import SEEDS, Table, Wanted
from nearfield import GPRegressor

SHAPES = ((60, 5), (200, 5), (200, 20), (500, 20), (500, 50), (1000, 50), (2000, 100))
NEW_ROWS = 1000


def scores(n: int, d: int, seed: int) -> tuple[float, float, float]:
    """RMSE of left-out rows, RMSE of new rows, share of the new rows that the interval covers."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + NEW_ROWS, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + rng.standard_normal(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few rows
        model = GPRegressor(random_state=seed).fit(X[:n], y[:n])
    low, high = model.predict_interval(X[n:], coverage=0.9)
    rmse = float(np.sqrt(np.mean((model.predict(X[n:]) - y[n:]) ** 2)))
    return model.summary_.left_out["rmse"], rmse, float(np.mean((low <= y[n:]) & (y[n:] <= high)))


def lines(wanted: Wanted) -> Iterator[Sequence[str]]:
    for n, d in SHAPES:
        means = np.mean([scores(n, d, seed) for seed in wanted.seeds or SEEDS], axis=0)
        yield str(n), str(d), *(f"{mean:.3f}" for mean in means)


TABLE = Table(
    "few-rows",
    "RMSE of left-out training rows and of new ones, and the share of new ones inside the 90 % interval",
    ("rows", "columns", "left-out RMSE", "RMSE of new rows", "90 % interval covers"),
    lines,
)
