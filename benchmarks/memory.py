"""Peak resident memory: fitting britain_magnetic (480,681 x 3), and predicting more and more rows.

    python benchmarks/memory.py

Each figure is the peak of a fresh process, libraries and data included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _data import load
from _timing import peak_rss_mb

from experiments.process import DONE, run_limited
from nearfield import GPRegressor
from nearfield.datasets import robot_arm


def fit_all(name: str) -> dict[str, float]:
    """Default fit on all rows of a data set."""
    X, y = load(name)
    before = peak_rss_mb()
    began = time.perf_counter()
    model = GPRegressor(random_state=0).fit(X, y)
    seconds = time.perf_counter() - began
    return {"before": before, "peak": peak_rss_mb(), "seconds": seconds, "k": model.k_, "rows": len(y)}


def predict_rows(n: int) -> dict[str, float]:
    """A small model, then n new rows; what predicting adds to the peak beyond its inputs and outputs."""
    model = GPRegressor(k=64, max_steps=50, random_state=0).fit(*robot_arm(3000))
    X = np.random.default_rng(0).standard_normal((n, 8))
    model.predict(X[:5000], return_std=True)
    before = peak_rss_mb()
    model.predict(X, return_std=True)
    return {"added": peak_rss_mb() - before, "data": n * 8 * 8 / 2**20}


def alone(function: Callable[[Any], dict[str, float]], argument: Any) -> dict[str, Any]:
    """What the function returns in a process of its own."""
    found = run_limited(function, argument, limit=1800.0)
    if found["status"] != DONE:
        raise SystemExit(f"{function.__name__}({argument!r}) {found['status']}: {found.get('message', '')}")
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    r = alone(fit_all, "britain_magnetic")
    print(f"fit of britain_magnetic, {r['rows']:,} rows: {r['seconds']:.0f} s, k = {r['k']}")
    print(f"  peak {r['peak']:.0f} MB, of which libraries and data {r['before']:.0f} MB", flush=True)
    for n in (10_000, 100_000, 400_000):
        r = alone(predict_rows, n)
        added, data = r["added"], r["data"]
        print(f"predict {n:,} rows: {added:.0f} MB added to the peak; the inputs are {data:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
