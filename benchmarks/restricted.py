"""What leaving rows out in large groups costs: search and fit with groups over the same without.

    python benchmarks/restricted.py [--repeats 3] [--no-fit]

Rows are walks: 20,000 rows of 21 columns in 10 trajectories, and 100,000 of 2 in 100. Both are measured in turns, by
the time of the processor. A fit with groups learns another task: how many steps that takes is printed beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nearfield import GPRegressor
from nearfield.neighbours import Hidden, build_index

_QUERIES = 6400  # as many as a refresh of training asks for


def walks(n: int, d: int, groups: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (n, d) along trajectories, a target (n,) and the number of the trajectory (n,)."""
    rng = np.random.default_rng(seed)
    steps = 0.05 * rng.standard_normal((groups, n // groups, d))
    steps[:, 0] = rng.standard_normal((groups, d))
    X = steps.cumsum(axis=1).reshape(-1, d)
    y = np.sin(X @ rng.standard_normal(d) / np.sqrt(d)) + 0.1 * rng.standard_normal(len(X))
    return X, y, np.repeat(np.arange(groups), n // groups)


def _seconds(*tasks) -> tuple[list[float], list[Any]]:
    """Processor time of each task, in turn, and what they return."""
    seconds, found = [], []
    for task in tasks:
        began = time.process_time()
        found.append(task())
        seconds.append(time.process_time() - began)
    return seconds, found


def _tasks(n: int, d: int, groups: int, fits: bool) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """What is measured, by name: without groups and with them."""
    X, y, labels = walks(n, d, groups)
    which = np.sort(np.random.default_rng(1).choice(n, _QUERIES, replace=False))

    def searches(k: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
        return (
            lambda: build_index(X).query(X[which], k, which),
            lambda: build_index(X, hidden=Hidden(groups=labels)).query(X[which], k, which),
        )

    found = {f"build and search, k = {k}": searches(k) for k in (64, 256)}
    if fits:
        found["fit"] = (
            lambda: GPRegressor(random_state=0, verbose=False).fit(X, y),
            lambda: GPRegressor(random_state=0, verbose=False).fit(X, y, groups=labels),
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-fit", action="store_true", help="search alone")
    args = parser.parse_args()
    print(
        "| rows | columns | groups | what | without, s | with groups, s | ratio | steps |\n"
        "|---:|---:|---:|---|---:|---:|---:|---:|"
    )
    for n, d, groups in ((20_000, 21, 10), (100_000, 2, 100)):
        for name, pair in _tasks(n, d, groups, not args.no_fit).items():
            if name != "fit":
                _seconds(*pair)  # compiles
            turns = [_seconds(*pair) for _ in range(1 if name == "fit" else args.repeats)]
            best = np.min([seconds for seconds, _ in turns], axis=0)
            steps = " and ".join(str(model.summary_.steps) for model in turns[0][1]) if name == "fit" else ""
            times = f"{best[0]:.3g} | {best[1]:.3g} | {best[1] / best[0]:.2f}"
            print(f"| {n:,} | {d} | {groups} | {name} | {times} | {steps} |", flush=True)


if __name__ == "__main__":
    main()
