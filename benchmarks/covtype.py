"""Covtype in full, seven classes, 435,759 training rows: time and memory of a default fit, and speed of prediction.

    python benchmarks/covtype.py [--seed 0]

Prediction is reported in rows a second and as a ratio to one torch.linalg.cholesky of the same blocks (k x k matrices,
one for each row), timed in the same process. Its accuracy: `python -m experiments table classes --datasets covtype`.
"""

from __future__ import annotations

import argparse
import time

import torch
from _data import load, split
from _timing import best_of, peak_rss_mb

from nearfield import GPClassifier

ROWS = 1024  # of the bare factorisation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    parts = split(*load("covtype"), args.seed)
    began = time.perf_counter()
    model = GPClassifier(random_state=args.seed).fit(parts.X, parts.y)
    fitted = time.perf_counter() - began
    print(model.summary_)
    began = time.perf_counter()
    model.predict_proba(parts.X_test)
    predicted = (time.perf_counter() - began) / len(parts.X_test)
    peak, k = peak_rss_mb() / 1024, model.k_
    factor = torch.randn(ROWS, k, k, dtype=torch.float64)
    matrices = factor @ factor.mT + k * torch.eye(k, dtype=torch.float64)
    bare = best_of(lambda: torch.linalg.cholesky(matrices)) / ROWS
    print(f"{len(parts.X):,} training rows: fit {fitted:.0f} s, peak memory {peak:.2f} GB")
    print(
        f"prediction {1 / predicted:,.0f} rows a second: {predicted / bare:.1f} times a bare Cholesky of the "
        f"{k} x {k} blocks"
    )


if __name__ == "__main__":
    main()
