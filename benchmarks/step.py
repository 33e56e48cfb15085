"""One training step, forward and gradient: ours against plain PyTorch autograd and against a bare batched Cholesky.

    python benchmarks/step.py

B = 128 rows, float64, Matern 5/2. Prints, for each k and D: how many times faster than autograd our step is, what share
of a bare `torch.linalg.cholesky` of the same (B, k, k) batch it needs, and its share of the machine's matrix product
rate, counting the k^3 / 3 operations of the factorisation alone.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from _baselines import natural_step
from _timing import gemm_rate, interleaved

from nearfield._types import KernelParameters, Neighbourhood
from nearfield.conditional import condition
from nearfield.kernels import find_kernel
from nearfield.likelihoods.gaussian import Gaussian
from nearfield.neighbours import neighbour_table
from nearfield.objectives import loo_objective

BATCH = 128


def case(k: int, d: int, n: int = 5000):
    """The three contestants on the same mini-batch, after a check that loss and gradients agree."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(X).sum(1) + 0.1 * rng.standard_normal(n)
    own = np.arange(BATCH)
    length = math.sqrt(d)
    ids = torch.from_numpy(neighbour_table(X / length, X[own] / length, k, own).ids)
    inputs, outputs, batch = torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(own)
    query, observed, weights = inputs[batch], outputs[batch], torch.ones(BATCH, dtype=torch.float64)
    likelihood, stats = Gaussian(), torch.stack([observed, weights, torch.zeros_like(observed)], dim=1)
    neighbours, targets = inputs[ids], outputs[ids]
    kernel, no_shape = find_kernel("matern52"), torch.empty(0, dtype=torch.float64)

    def parameters() -> list[torch.Tensor]:
        """Log length scales (d,), log kernel variance () and log noise variance ()."""
        values = (np.full(d, math.log(length)), 0.0, math.log(0.1))
        return [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]

    us, theirs = parameters(), parameters()

    def ours():
        for leaf in us:
            leaf.grad = None
        log_lengths, log_variance, log_noise = us
        noise = log_noise.exp()
        neighbourhood = Neighbourhood(query, inputs, ids, targets, noise.expand(BATCH, k))
        moments = condition(kernel, KernelParameters(log_lengths, 0.5 * log_variance, no_shape), neighbourhood)
        scores = likelihood.log_predictive(moments.mean, moments.variance, stats, {"log_noise": log_noise})
        loss = loo_objective(scores, weights)
        loss.backward()
        return loss

    def autograd():
        for leaf in theirs:
            leaf.grad = None
        return natural_step(query, neighbours, targets, observed, *theirs)

    assert abs(float(ours().detach()) - float(autograd())) < 1e-10
    for mine, other in zip(us, theirs, strict=True):
        assert torch.allclose(mine.grad, other.grad, rtol=1e-6, atol=1e-12)
    matrix = torch.randn(BATCH, k, k, dtype=torch.float64)
    matrix = matrix @ matrix.mT + k * torch.eye(k, dtype=torch.float64)
    return {"ours": ours, "autograd": autograd, "cholesky": lambda: torch.linalg.cholesky(matrix)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    rate = gemm_rate()
    print(f"float64 matrix product: {rate:.0f} GF/s on {torch.get_num_threads()} threads")
    print(f"medians (best) of {repeats} turns\n")
    print("|  D |   k | ours, ms | autograd, ms | times faster | Cholesky, ms | share of Cholesky | share of gemm |")
    print("|---:|----:|---------:|-------------:|-------------:|-------------:|------------------:|--------------:|")
    for d in (8, 25):
        for k in (32, 64, 128, 256):
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
