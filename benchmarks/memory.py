"""Peak resident memory: fitting britain_magnetic (480,681 x 3), and predicting more and more rows.

    python benchmarks/memory.py

Each figure is the peak of a fresh process, libraries and data included.
"""

from __future__ import annotations

import time

import numpy as np
from _baselines import run_isolated
from _data import load
from _timing import peak_rss_mb

from nearfield import GPRegressor
from nearfield.datasets import robot_arm


def fit_all(name: str) -> dict[str, float]:
    """Default fit on all rows of a data set."""
    X, y = load(name)
    before = peak_rss_mb()
    began = time.perf_counter()
    model = GPRegressor(random_state=0).fit(X, y)
    return {"before": before, "seconds": time.perf_counter() - began, "k": model.k_, "rows": len(y)}


def predict_rows(n: int) -> dict[str, float]:
    """A small model, then n new rows; what predicting adds to the peak beyond its inputs and outputs."""
    model = GPRegressor(k=64, max_steps=50, random_state=0).fit(*robot_arm(3000))
    X = np.random.default_rng(0).standard_normal((n, 8))
    model.predict(X[:5000], return_std=True)
    before = peak_rss_mb()
    model.predict(X, return_std=True)
    return {"added": peak_rss_mb() - before, "data": n * 8 * 8 / 2**20}


def main() -> None:
    r = run_isolated(fit_all, ("britain_magnetic",), timeout=1800)
    print(f"fit of britain_magnetic, {r.result['rows']:,.0f} rows: {r.result['seconds']:.0f} s, k = {r.result['k']}")
    print(f"  peak {r.peak_mb:.0f} MB, of which libraries and data {r.result['before']:.0f} MB")
    for n in (10_000, 100_000, 400_000):
        r = run_isolated(predict_rows, (n,))
        added, data = r.result["added"], r.result["data"]
        print(f"predict {n:,} rows: {added:.0f} MB added to the peak; the inputs are {data:.0f} MB")


if __name__ == "__main__":
    main()
