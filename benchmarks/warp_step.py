"""One training step with a metric that is learned against one without, in one process.

    python benchmarks/warp_step.py [--repeats 15]

Whole steps of one real output: closed form, score, the slopes of both, Adam. b = 128 rows, all columns skewed; BLAS has
one thread, as in a fit. The claim: bent columns cost no more than 1.4 times a step with the same kernel without.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from _timing import interleaved

from nearfield import training
from nearfield._threads import one_blas_thread
from nearfield.covariances import Shared
from nearfield.families.gaussian import Gaussian
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.objectives import LEAVE_ONE_OUT
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.warps import Warps

BATCH, ROWS = 128, 20_000


def prepared(kernel: str, warped: bool, d: int, k: int) -> Callable[[], object]:
    """A function that takes one step."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.standard_normal((ROWS, d)))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    family = Gaussian()
    rows = Rows.of(family, X, family.observe(np.sin(X[:, 0]) + 0.1 * rng.standard_normal(ROWS), np.ones(ROWS)))
    warps = Warps.of(X, np.ones(ROWS), np.full(d, warped))
    model = Model.initial(family, Shared(find_kernel(kernel), 1, warps, 1), MEANS["constant"])
    which = rng.choice(ROWS, BATCH, replace=False)
    ids, left_out = Sweeper(model, rows).left_out_ids(which, k), rows.observations.take(which)
    run = training.Run(model, rows.featured(warps, np.arange(ROWS)[None]), LEAVE_ONE_OUT, rng)
    return lambda: training._step(run, left_out, left_out.weights, ids, rate=1e-6, total=float(ROWS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    print("| D | k | Matern 5/2, ms | auto / Matern 5/2 | bent / auto | bent / Matern 5/2 |")
    print("|---|---|---|---|---|---|")
    for d in (8, 25, 57):
        for k in (32, 64, 128, 256):
            steps = {
                "plain": prepared("matern52", False, d, k),
                "auto": prepared("auto", False, d, k),
                "bent": prepared("auto", True, d, k),
            }
            with one_blas_thread():
                found = interleaved(steps, args.repeats)
            plain, auto, bent = (found[name].median for name in steps)
            print(f"| {d} | {k} | {1e3 * plain:.2f} | {auto / plain:.2f} | {bent / auto:.2f} | {bent / plain:.2f} |")


if __name__ == "__main__":
    main()
