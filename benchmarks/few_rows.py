"""Error bars where rows are few for the number of columns: left-out scores beside those of new rows.

    python benchmarks/few_rows.py

Targets are sin(2 x_0) + x_1 with noise of standard deviation 1; the other columns do not matter. RMSE of the training
rows that were left out and of 1,000 new ones, and the share of the new ones inside the 90 % interval; means over seeds.
"""

from __future__ import annotations

import warnings

import numpy as np

from nearfield import GPRegressor

SHAPES = ((60, 5), (200, 5), (200, 20), (500, 20), (500, 50), (1000, 50), (2000, 100))
SEEDS, NEW_ROWS = 3, 1000


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


def main() -> None:
    print("| rows | columns | left-out RMSE | RMSE of new rows | 90 % interval covers |\n|---|---|---|---|---|")
    for n, d in SHAPES:
        left_out, new, covered = np.mean([scores(n, d, seed) for seed in range(SEEDS)], axis=0)
        print(f"| {n} | {d} | {left_out:.3f} | {new:.3f} | {covered:.3f} |", flush=True)


if __name__ == "__main__":
    main()
