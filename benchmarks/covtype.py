"""Covtype in full, seven classes, 435,759 training rows: time and memory of a default fit, NLL, and prediction speed.

    python benchmarks/covtype.py [--seed 0]

Prediction is reported in rows a second and as a ratio to one torch.linalg.cholesky of the same blocks (k x k matrices,
one for each row), timed in the same process.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch
from _classes import load, paper, split

from nearfield import GPClassifier
from nearfield.metrics import ClassScores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    X, y, X_test, y_test = split(*load("covtype"), args.seed)
    began = time.perf_counter()
    model = GPClassifier(random_state=args.seed).fit(X, y)
    fitted = time.perf_counter() - began
    print(model.summary_)
    began = time.perf_counter()
    p = model.predict_proba(X_test)
    predicted = time.perf_counter() - began
    scores, figures = ClassScores.of(y_test, p).as_dict(), paper("covtype")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows, k = 1024, model.k_
    factor = torch.randn(rows, k, k, dtype=torch.float64)
    matrices = factor @ factor.mT + k * torch.eye(k, dtype=torch.float64)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        torch.linalg.cholesky(matrices)
        times.append((time.perf_counter() - began) / rows)
    print(f"{len(X):,} training rows: fit {fitted:.0f} s, peak memory {peak:.2f} GB")
    print(f"NLL {scores['nll']:.4f} (paper: LOO-k {figures.nll['LOO-k'][0]:.3f}), error {scores['error']:.4f}")
    print(
        f"prediction {len(X_test) / predicted:,.0f} rows a second: {predicted / len(X_test) / min(times):.1f} times "
        f"a bare Cholesky of the {k} x {k} blocks"
    )


if __name__ == "__main__":
    main()
