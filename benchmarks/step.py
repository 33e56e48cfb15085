"""One training step, forward and gradient: ours against plain PyTorch autograd and against a bare batched Cholesky.

    python benchmarks/step.py

B = 128 rows, float64, Matern 5/2. Prints, for each k and D: how many times faster than autograd our step is, what share
of a bare `torch.linalg.cholesky` of the same (B, k, k) batch it needs, and its share of the machine's matrix product
rate, counting the k^3 / 3 operations of the factorisation alone. A step is the closed form, the Gaussian log density
of the left-out targets with its slopes, and the slopes by all hyper-parameters.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from _baselines import natural_step
from _timing import gemm_rate, interleaved

from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.kernels import find_kernel
from nearfield.neighbours import neighbour_table

BATCH = 128
KERNEL, NO_SHAPE = find_kernel("matern52"), np.empty(0)


def our_step(query, rows, ids, targets, y, log_lengths, log_variance, log_noise):
    """Mean negative log density of `y` (b,), and its gradient by log length scales (d,), log variance and log noise."""
    scale2, relative = math.exp(log_variance), math.exp(log_noise - log_variance)
    neighbourhood = Neighbourhood(query, rows, ids, targets, np.full(targets.shape, relative))
    m = condition(KERNEL, log_lengths, NO_SHAPE, neighbourhood, differentiate=True)
    b = len(y)
    variance = (scale2 / b) * (m.variance[:, 0] + relative)  # divided by b: so are the slopes below
    residual = (y[:, None] - m.mean[:, 0]) / b
    ratio = residual / variance
    loss = 0.5 * (float(np.log((2 * math.pi * b) * variance).sum()) / b + float((residual * ratio).sum()))
    by_mean, by_variance = -ratio / b, 0.5 * (1 / variance - b * ratio * ratio) / b**2
    s = m.slopes(by_mean, scale2 * by_variance)
    by_noise = relative * (float(s.noises.sum()) + scale2 * float(by_variance.sum()))
    by_scale = b * float((by_variance * variance).sum()) - by_noise
    return loss, s.log_lengths, by_scale, by_noise


def case(k: int, d: int, n: int = 5000):
    """The three contestants on the same mini-batch, after a check that loss and gradients agree."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(X).sum(1) + 0.1 * rng.standard_normal(n)
    own = np.arange(BATCH)
    length = math.sqrt(d)
    ids = neighbour_table(X / length, X[own] / length, k, own).ids
    query, targets, observed, log_lengths = X[own], y[ids][..., None], y[own], np.full(d, math.log(length))
    theirs = [
        torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (log_lengths, 0.0, math.log(0.1))
    ]
    tensors = [torch.from_numpy(x) for x in (query, X[ids], y[ids], observed)]

    def ours():
        return our_step(query, X, ids, targets, observed, log_lengths, 0.0, math.log(0.1))

    def autograd():
        for leaf in theirs:
            leaf.grad = None
        return natural_step(*tensors, *theirs)

    loss, *slopes = ours()
    assert abs(loss - float(autograd())) < 1e-10
    for mine, leaf in zip(slopes, theirs, strict=True):
        np.testing.assert_allclose(mine, leaf.grad.numpy(), rtol=1e-6, atol=1e-12)
    matrix = torch.randn(BATCH, k, k, dtype=torch.float64)
    matrix = matrix @ matrix.mT + k * torch.eye(k, dtype=torch.float64)
    return {"ours": ours, "autograd": autograd, "cholesky": lambda: torch.linalg.cholesky(matrix)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--k", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--columns", type=int, nargs="+", default=[8, 25])
    args = parser.parse_args()
    repeats, rate = args.repeats, gemm_rate()
    print(f"float64 matrix product: {rate:.0f} GF/s on {torch.get_num_threads()} threads")
    print(f"medians (best) of {repeats} turns\n")
    print("|  D |   k | ours, ms | autograd, ms | times faster | Cholesky, ms | share of Cholesky | share of gemm |")
    print("|---:|----:|---------:|-------------:|-------------:|-------------:|------------------:|--------------:|")
    for d in args.columns:
        for k in args.k:
            t = interleaved(case(k, d), repeats, calls=20 if k < 128 else 3)
            o, a, c = t["ours"], t["autograd"], t["cholesky"]
            flops = BATCH * k**3 / 3
            cells = [
                f"{d:2}",
                f"{k:3}",
                f"{1e3 * o.median:.2f} ({1e3 * o.best:.2f})",
                f"{1e3 * a.median:.1f} ({1e3 * a.best:.1f})",
                f"{a.median / o.median:.1f} ({a.best / o.best:.1f})",
                f"{1e3 * c.median:.2f} ({1e3 * c.best:.2f})",
                f"{o.median / c.median:.2f} ({o.best / c.best:.2f})",
                f"{flops / o.median / rate / 1e9:.0%}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
