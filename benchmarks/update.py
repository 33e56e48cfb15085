"""What appending rows costs in time: `update` with one row, a hundred and a tenth of all, over a fit.

    python benchmarks/update.py [--datasets kin40k,spambase] [--seed 0]

What it costs in accuracy: `python -m experiments table update`.
"""

from __future__ import annotations

import argparse
import copy
import time

from _data import load, split

from nearfield import GPClassifier, GPRegressor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default="kin40k,spambase")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(
        f"best of {args.repeats}\n\n| data set | fitted rows | fit, s | appended rows | update, s | share of the fit |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name in args.datasets.split(","):
        parts = split(*load(name), args.seed)
        cut = len(parts.y) * 9 // 10
        kind = GPClassifier if parts.classes else GPRegressor
        kind(max_steps=1).fit(parts.X[:1000], parts.y[:1000])  # compiles, or reads the compiled code from its cache
        began = time.perf_counter()
        model = kind(random_state=args.seed).fit(parts.X[:cut], parts.y[:cut])
        fitted = time.perf_counter() - began
        most = len(parts.y) - cut
        for count in (1, min(100, most), most):
            rows = slice(cut, cut + count)
            seconds = min(_update(model, parts.X[rows], parts.y[rows]) for _ in range(args.repeats))
            print(
                f"| {name} | {cut:,} | {fitted:.1f} | {count:,} | {seconds:.3f} | {seconds / fitted:.1%} |", flush=True
            )


def _update(model, X, y) -> float:
    """Seconds; the model stays as it is."""
    model = copy.deepcopy(model)
    began = time.perf_counter()
    model.update(X, y)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
