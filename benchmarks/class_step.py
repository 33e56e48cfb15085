"""One training step of K classes against K steps of two classes, in one process.

    python benchmarks/class_step.py [--repeats 30]

Whole steps: closed form and gradient (fused engine), probabilities, Adam, refreshed auxiliaries. b = 128 rows, D = 25.
The claim: no more than K times the step of two classes.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from nearfield import training
from nearfield.kernels import find_kernel
from nearfield.likelihoods.classes import Bernoulli, OneAgainstAll
from nearfield.model import Model, Rows
from nearfield.sweep import Sweeper

BATCH, COLUMNS, ROWS = 128, 25, 5000


def prepared(classes: int, auxiliary: str, k: int):
    """A function that takes one step."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    scores = X[:, :classes] + 0.5 * rng.standard_normal((ROWS, classes))
    likelihood = Bernoulli(2, auxiliary) if classes == 2 else OneAgainstAll(classes, auxiliary)
    rows = Rows.of(likelihood, X, np.eye(classes)[scores.argmax(axis=1)])
    model = Model.initial(find_kernel("matern52"), COLUMNS, likelihood)
    run = training.start(model, rows, rng)
    which = np.arange(BATCH)
    batch, ids = torch.from_numpy(which), torch.from_numpy(Sweeper(model, rows).left_out_ids(which, k))
    return lambda: training._step(run, batch, ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| auxiliary | k | K | two classes, ms | K classes, ms | ratio | ratio / K |\n|---|---|---|---|---|---|---|")
    for auxiliary in ("tied", "conjugate"):
        for k in (32, 64, 128):
            for classes in (3, 7, 18):
                steps = prepared(2, auxiliary, k), prepared(classes, auxiliary, k)
                times: tuple[list[float], list[float]] = ([], [])
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
