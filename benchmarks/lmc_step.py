"""One training step of several outputs against one of a single output with as large a matrix, in one process.

    python benchmarks/lmc_step.py [--repeats 30]

Closed form and gradient, B = 128 rows, D = 21, float64, Matern 5/2. The first line is the claim: P = 7
outputs that mix Q = 7 latent functions, with k = 32 neighbours, take no more than 1.5 times as long as one output with
k = 224. Both factorise matrices of 224 x 224.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
from _timing import interleaved

from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.conditional.coregional import condition_outputs
from nearfield.kernels import find_kernel
from nearfield.neighbours import neighbour_table

BATCH, COLUMNS, ROWS = 128, 21, 5000
KERNEL, NO_SHAPE = find_kernel("matern52"), np.empty(0)

Pass = Callable[[bool], object]
"""Of whether the gradient of the sum of all moments is wanted too."""


def neighbourhood(rng: np.random.Generator, P: int, k: int) -> Neighbourhood:
    """The first rows with their neighbours; targets (b, k, P), noises (b, k, P)."""
    X = rng.standard_normal((ROWS, COLUMNS))
    Y = np.sin(X[:, :P]) + 0.1 * rng.standard_normal((ROWS, P))
    ids = neighbour_table(X, X[:BATCH], k, np.arange(BATCH)).ids
    return Neighbourhood(X[:BATCH], X, ids, Y[ids], np.full((BATCH, k, P), 0.1))


def several(P: int, Q: int, k: int) -> Pass:
    """The closed form of P outputs."""
    rng = np.random.default_rng(0)
    n = neighbourhood(rng, P, k)
    lengths, mixing = rng.normal(1.5, 0.2, (Q, COLUMNS)), rng.standard_normal((P, Q)) / np.sqrt(Q)

    def run(differentiate: bool) -> object:
        m = condition_outputs(KERNEL, lengths, NO_SHAPE, mixing, n, differentiate=differentiate)
        return m.slopes(np.ones((BATCH, P)), np.ones((BATCH, P, P))) if differentiate else m

    return run


def single(k: int) -> Pass:
    """The closed form of one output."""
    rng = np.random.default_rng(0)
    n = neighbourhood(rng, 1, k)
    lengths = rng.normal(1.5, 0.2, COLUMNS)

    def run(differentiate: bool) -> object:
        m = condition(KERNEL, lengths, NO_SHAPE, n, differentiate=differentiate)
        return m.slopes(np.ones((BATCH, 1)), np.ones((BATCH, 1))) if differentiate else m

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    print(f"best of {repeats} turns; in brackets the forward pass without the gradient\n")
    print("|  P |  Q |   k | P outputs, ms | one output, ms | ratio |\n|---:|---:|----:|---:|---:|---:|")
    for P, Q, k in ((7, 7, 32), (7, 3, 32), (3, 3, 75), (2, 2, 112), (16, 4, 14)):
        passes = {"several": several(P, Q, k), "single": single(P * k)}
        step = {f"{name} step": partial(run, True) for name, run in passes.items()}
        forward = {name: partial(run, False) for name, run in passes.items()}
        t = {name: 1e3 * seconds.best for name, seconds in interleaved({**step, **forward}, repeats, calls=3).items()}
        cells = [f"{t[name + ' step']:.1f} ({t[name]:.1f})" for name in forward]
        ratio = t["several step"] / t["single step"]
        print(f"| {P:2} | {Q:2} | {k:3} | {cells[0]} | {cells[1]} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
