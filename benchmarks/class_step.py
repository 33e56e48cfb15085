"""One training step of K classes against K steps of two classes, in one process.

    python benchmarks/class_step.py [--repeats 30]

Whole steps: closed form, probabilities, the slopes of both, Adam, updated site state. b = 128 rows, D = 25; BLAS has
one thread, as in a fit. The claim: no more than K times the step of two classes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from nearfield import training
from nearfield._threads import one_blas_thread
from nearfield.covariances import Shared
from nearfield.families.classes import Bernoulli, OneAgainstAll
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.objectives import LEAVE_ONE_OUT
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.warps import Warps

BATCH, COLUMNS, ROWS = 128, 25, 5000


def prepared(classes: int, auxiliary: str, k: int) -> Callable[[], object]:
    """A function that takes one step."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    scores = X[:, :classes] + 0.5 * rng.standard_normal((ROWS, classes))
    family = Bernoulli(2, auxiliary) if classes == 2 else OneAgainstAll(classes, auxiliary)
    rows = Rows.of(family, X, family.observe(scores.argmax(axis=1), np.ones(ROWS)))
    covariance = Shared(find_kernel("matern52"), family.latents, Warps.none(COLUMNS), family.kernel_scales)
    model = Model.initial(family, covariance, MEANS["constant"], family.initial_mean(rows.observed))
    run = training.Run(model, rows, LEAVE_ONE_OUT, rng)
    which = np.arange(BATCH)
    ids, left_out = Sweeper(model, rows).left_out_ids(which, k), rows.observations.take(which)
    return lambda: training._step(run, left_out, left_out.weights, ids, rate=0.03, total=float(ROWS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    print("| auxiliary | k | K | two classes, ms | K classes, ms | ratio | ratio / K |\n|---|---|---|---|---|---|---|")
    for auxiliary in ("tied", "conjugate"):
        for k in (32, 64, 128):
            for classes in (3, 7, 18):
                steps = prepared(2, auxiliary, k), prepared(classes, auxiliary, k)
                times: tuple[list[float], list[float]] = ([], [])
                with one_blas_thread():
                    for repeat in range(args.repeats + 3):
                        for step, seen in zip(steps, times, strict=True):
                            began = time.perf_counter()
                            step()
                            if repeat >= 3:
                                seen.append(time.perf_counter() - began)
                two, many = (float(np.median(seen)) * 1e3 for seen in times)
                ratio = many / two
                print(
                    f"| {auxiliary} | {k} | {classes} | {two:.2f} | {many:.2f} | {ratio:.2f} | {ratio / classes:.2f} |"
                )


if __name__ == "__main__":
    main()
