"""Bayesian optimisation of Branin (2 columns) and Hartmann 6: beside scikit-learn's GP, regret and time.

    python benchmarks/bayesian_optimisation.py [--seeds 3] [--evaluations 40 80]

Both begin with the same Latin hypercube, and then evaluate where the expected improvement of a noise-free function is
the largest: L-BFGS-B from the best of the same random points. Ours has `predict_gradient`, and `update` after each
evaluation; scikit-learn's has differences, and a factorisation after each. Both learn hyper-parameters anew after every
fifth evaluation. Told are the simple regret, the best value found less the minimum, as mean over seeds, and seconds
without those of the function.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from scipy.stats import norm, qmc
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from nearfield import GPRegressor

REFIT, CANDIDATES, STARTS = 5, 500, 4


class Problem(NamedTuple):
    """A function (n, d) -> (n,) on the unit cube, its minimum, and how many evaluations there are, the first given."""

    function: Callable[[np.ndarray], np.ndarray]
    d: int
    minimum: float
    first: int
    evaluations: int


def branin(U: np.ndarray) -> np.ndarray:
    x, y = 15 * U[:, 0] - 5, 15 * U[:, 1]
    bowl = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return bowl**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(U: np.ndarray) -> np.ndarray:
    return -np.exp(-(_A * (U[:, None] - _P) ** 2).sum(axis=-1)) @ _ALPHA


PROBLEMS = {
    "branin": Problem(branin, 2, 0.39788735772973816, 10, 40),
    "hartmann6": Problem(hartmann6, 6, -3.322368011391339, 20, 80),
}


class Ours:
    """Slopes in closed form, `update` after each evaluation."""

    def __init__(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        self.seed = seed
        self.learn(X, y)

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        self.model = GPRegressor(random_state=self.seed, verbose=False).fit(X, y)

    def append(self, X: np.ndarray, y: np.ndarray) -> None:
        self.model.update(X[-1:], y[-1:])

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, std = self.model.predict(X, return_std=True, uncertainty="latent")
        return mean, std

    def loss(self, x: np.ndarray, best: float) -> tuple[float, np.ndarray]:
        (mean,), (std,) = self.predict(x[None])
        slopes = self.model.predict_gradient(x[None], uncertainty="latent")
        value, by_mean, by_std = (float(part) for part in log_improvement(mean, std, best))
        return -value, -(by_mean * slopes.mean[0] + by_std * slopes.std[0])

    jac = True


class Theirs:
    """scikit-learn's GP: Matern 5/2 with a length scale a column; differences of expected improvement."""

    def __init__(self, X: np.ndarray, y: np.ndarray, seed: int) -> None:
        d = X.shape[1]
        kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.full(d, 0.5), (1e-2, 1e2), 2.5) + WhiteKernel(
            1e-6, (1e-10, 1)
        )
        self.start, self.seed = kernel, seed
        self.learn(X, y)

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        own = GaussianProcessRegressor(self.start, n_restarts_optimizer=1, normalize_y=True, random_state=self.seed)
        self.model = own.fit(X, y)

    def append(self, X: np.ndarray, y: np.ndarray) -> None:
        self.model = GaussianProcessRegressor(self.model.kernel_, optimizer=None, normalize_y=True).fit(X, y)

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, std = self.model.predict(X, return_std=True)
        return mean, std

    def loss(self, x: np.ndarray, best: float) -> float:
        (mean,), (std,) = self.predict(x[None])
        return -float(log_improvement(mean, std, best)[0])

    jac = None


def log_improvement(mean: Any, std: Any, best: float) -> tuple[Any, Any, Any]:
    """Logarithm of the expected improvement over `best`, and its slopes by mean and std."""
    std = np.maximum(std, 1e-12)
    z = (best - mean) / std
    near = np.maximum(z, -6.0)
    far = np.minimum(z, -6.0)
    density, share = norm.pdf(near), norm.cdf(near)
    rest = 1 / (3 + far**2)  # of phi(z) + z Phi(z) over phi(z), far out
    inside = z > -6
    unit = np.where(inside, density + near * share, rest)
    log_unit = np.log(unit) + np.where(inside, 0.0, norm.logpdf(far))
    by_mean = -np.where(inside, share, (1 - rest) / -far) / (std * unit)
    return np.log(std) + log_unit, by_mean, np.where(inside, density, 1.0) / (std * unit)


def next_point(surrogate: Any, best: float, d: int, rng: np.random.Generator) -> np.ndarray:
    """Where the expected improvement is the largest (d,)."""
    some = rng.random((CANDIDATES, d))
    values = log_improvement(*surrogate.predict(some), best)[0]
    found = []
    for start in some[np.argsort(-values)[:STARTS]]:
        answer = scipy.optimize.minimize(
            surrogate.loss, start, args=(best,), jac=surrogate.jac, method="L-BFGS-B", bounds=[(0, 1)] * d,
            options={"maxiter": 50},
        )  # fmt: skip
        found.append((answer.fun, answer.x))
    return min(found, key=lambda pair: pair[0])[1]


def optimised(kind: Any, problem: Problem, seed: int) -> tuple[list[float], float]:
    """Simple regret after each evaluation, and seconds."""
    rng = np.random.default_rng(seed)
    X = qmc.LatinHypercube(problem.d, seed=seed).random(problem.first)
    y = problem.function(X)
    began = time.perf_counter()
    surrogate = kind(X, y, seed)
    while len(y) < problem.evaluations:
        x = next_point(surrogate, y.min(), problem.d, rng)
        if np.abs(X - x).max(axis=1).min() < 1e-9:  # known already
            x = rng.random(problem.d)
        X, y = np.vstack([X, x]), np.append(y, problem.function(x[None]))
        (surrogate.learn if (len(y) - problem.first) % REFIT == 0 else surrogate.append)(X, y)
    seconds = time.perf_counter() - began
    return (np.minimum.accumulate(y) - problem.minimum).tolist(), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--evaluations", type=int, nargs=2, metavar=("BRANIN", "HARTMANN"))
    parser.add_argument("--only", choices=list(PROBLEMS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    Ours(np.random.default_rng(0).random((20, 2)), np.arange(20.0), 0)  # compiled, or read from the cache
    print("| function | evaluations | surrogate | regret half-way | regret | worst seed | seconds |")
    print("|---|---|---|---|---|---|---|")
    for (name, problem), most in zip(PROBLEMS.items(), given.evaluations or (40, 80), strict=True):
        if given.only not in (None, name):
            continue
        problem = problem._replace(evaluations=most)
        for label, kind in (("nearfield", Ours), ("scikit-learn", Theirs)):
            runs = [optimised(kind, problem, seed) for seed in range(given.seeds)]
            regrets, seconds = np.array([run[0] for run in runs]), np.mean([run[1] for run in runs])
            half = regrets[:, (problem.first + most) // 2 - 1].mean()
            last = regrets[:, -1]
            print(
                f"| {name} | {most} | {label} | {half:.2e} | {last.mean():.2e} | {last.max():.2e} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
