"""How the objectives depend on the kernel scale and on the noise: Sec. "Objective function comparison".

A GP is trained by the exact MLL on 2,000 rows of Bike; then one hyper-parameter is varied and all others stay. Each
objective is a function of (kernel scale, noise), both standard deviations, and is divided by the number of rows:

    MLL        log N(y | mean, s^2 R + v^2 1)                                                               # Eq. (mll)
    LOO-inf    the mean of log p(y_n | y_-n), from the same eigenvectors                                    # Eq. (cvN)
    LOO-k      the same from the k nearest rows                                                             # Eq. (cvk)
    SVGP       the ELBO with M = 100 k-means inducing points, at the best q(u)

The paper retrains q(u) for each value. For Gaussian noise its optimum is known, and the ELBO there is Titsias' bound
log N(y | mean, Q + v^2 1) - tr(s^2 R - Q) / (2 v^2) with Q = K_NM K_MM^-1 K_MN: it is computed, not trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from experiments.data import Array, load
from experiments.methods.common import inducing_points, matern52
from experiments.nested import Kernel, moments, neighbours
from experiments.scoring import build
from experiments.task import LEAKLESS, Payload, Task

ROWS, QUICK_ROWS = 2000, 500
NEAREST = 128
INDUCING = 100
LEAKING = (15, 16)  # columns of Bike: riders that are not registered, and riders that are
SCALES, NOISES = np.geomspace(1e-2, 1e2, 41), np.geomspace(1e-4, 1e1, 51)

Objective = Callable[[float, float], float]
"""Of (kernel scale, noise)."""


@dataclass(frozen=True)
class Curve:
    """An objective along one hyper-parameter, and where it is largest; an end of `values` if it still grows there."""

    values: Array
    objective: Array
    largest_at: float


def run(task: Task) -> Payload:
    """All four curves from one fit."""
    X, y = sample(*_loaded(task), QUICK_ROWS if task.quick else ROWS, task.split)
    method = build(task, "regression")
    began = time.monotonic()
    method.fit(X, y, X[:0], y[:0], seed=task.split, deadline=task.ends())
    theta: Array = method.parameters  # type: ignore[attr-defined]
    best = Kernel(np.exp(theta[:-3]), float(np.exp(theta[-3] / 2)), float(np.exp(theta[-2] / 2)), float(theta[-1]))
    curves = {name: both_curves(objective, best) for name, objective in objectives(X, y, best, task.split).items()}
    return {
        "rows": {"train": len(X), "columns": X.shape[1]},
        "seconds": {"fit": time.monotonic() - began},
        "metrics": {},
        "chosen": {**method.chosen, "kernel_scale": best.scale, "noise_std": best.noise, "lengths": best.lengths},
        "curves": {
            name: {parameter: vars(curve) for parameter, curve in pair.items()} for name, pair in curves.items()
        },
    }


def _loaded(task: Task) -> tuple[Array, Array]:
    """The whole table, NAME-leakless without the two columns of Bike that sum to the exponential of its target."""
    X, y = load(task.data.removesuffix(LEAKLESS), task.openml)
    return (np.delete(X, LEAKING, axis=1) if task.data.endswith(LEAKLESS) else X), y


def sample(X: Array, y: Array, n: int, seed: int) -> tuple[Array, Array]:
    """n random rows, every column to mean zero and scale one, constant columns left out.

    The target is centred but keeps its unit, for Bike the logarithm of a count: the paper's noise goes with that.
    """
    rows = np.random.default_rng(seed).permutation(len(X))[:n]
    X, y = X[rows], y[rows]
    X = X[:, np.ptp(X, axis=0) > 0]
    return (X - X.mean(0)) / X.std(0), y - y.mean()


def objectives(X: Array, y: Array, best: Kernel, seed: int) -> dict[str, Objective]:
    """The four objectives, everything but scale and noise fixed at `best`."""
    R = correlation(X, X, best.lengths)
    spectrum, U = np.linalg.eigh(R)
    spectrum, z = np.maximum(spectrum, 0.0), U.T @ (y - best.mean)
    k = min(NEAREST, len(X) - 1)
    ids = neighbours(X, best.lengths, k)
    Z = inducing_points(X, INDUCING, seed)
    R_mm, R_nm = correlation(Z, Z, best.lengths), correlation(X, Z, best.lengths)

    def mll(scale: float, noise: float) -> float:
        e = scale**2 * spectrum + noise**2
        return float(-np.mean(z**2 / e + np.log(e)) / 2 - np.log(2 * np.pi) / 2)

    def loo(scale: float, noise: float) -> float:
        e = scale**2 * spectrum + noise**2
        precision, alpha = U**2 @ (1 / e), U @ (z / e)
        return float(np.mean(np.log(precision) - alpha**2 / precision) / 2 - np.log(2 * np.pi) / 2)

    def loo_k(scale: float, noise: float) -> float:
        mean, variance = moments(replace(best, scale=scale, noise=noise), X, y, ids, X)
        return float(norm.logpdf(y, mean[:, -1], np.sqrt(variance[:, -1])).mean())

    def svgp(scale: float, noise: float) -> float:
        return collapsed_bound(scale**2 * R_mm, scale**2 * R_nm, scale**2, noise**2, y - best.mean)

    return {"LOO-inf": loo, f"LOO-{NEAREST}": loo_k, "MLL": mll, "SVGP": svgp}


def correlation(X: Array, Z: Array, lengths: Array) -> Array:
    """Matern-5/2 correlations (n, m)."""
    zero = torch.zeros((), dtype=torch.float64)
    return matern52(torch.as_tensor(X), torch.as_tensor(Z), torch.as_tensor(np.log(lengths)), zero).numpy()


def collapsed_bound(K_mm: Array, K_nm: Array, variance: float, noise: float, residual: Array) -> float:
    """Titsias' bound per row: the ELBO of inducing points with the best q(u). `noise` is a variance."""
    n, m = K_nm.shape
    L = np.linalg.cholesky(K_mm + 1e-8 * variance * np.eye(m))
    A = np.linalg.solve(L, K_nm.T) / np.sqrt(noise)  # (m, n), Q = noise A'A
    L_B = np.linalg.cholesky(np.eye(m) + A @ A.T)
    c = np.linalg.solve(L_B, A @ residual) / np.sqrt(noise)
    log_det = n * np.log(noise) + 2 * np.log(np.diag(L_B)).sum()
    quadratic = residual @ residual / noise - c @ c
    trace = n * variance / noise - np.sum(A**2)
    return float(-(log_det + quadratic + trace) / n - np.log(2 * np.pi)) / 2


def both_curves(objective: Objective, best: Kernel) -> dict[str, Curve]:
    """Along the kernel scale, and along the noise."""
    return {
        "kernel_scale": curve(lambda scale: objective(scale, best.noise), SCALES),
        "noise_std": curve(lambda noise: objective(best.scale, noise), NOISES),
    }


def curve(function: Callable[[float], float], values: Array) -> Curve:
    """Values of the function, and its maximum, sought in the logarithm around the largest of them."""
    along = np.array([function(v) for v in values])
    top = int(along.argmax())
    if top in (0, len(values) - 1):
        return Curve(values, along, float(values[top]))
    found = minimize_scalar(
        lambda u: -function(np.exp(u)),
        bounds=np.log(values[[top - 1, top + 1]]),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return Curve(values, along, float(np.exp(found.x)))
