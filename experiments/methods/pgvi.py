"""PGVI (Wenzel et al. 2019): binary GP classification by inducing points, Polya-Gamma variables and natural gradients.

With y in {-1, 1}, u = L v at the inducing points Z (M, d), K_ZZ = L L', q(v) = N(m, S), and for row n

    a_n = L^-1 k(Z, x_n)        f_n ~ N(a_n'm, k(x_n, x_n) - a_n'a_n + a_n'S a_n)
    c_n^2 = E f_n^2             w_n = tanh(c_n / 2) / (2 c_n)

where PG(1, c_n) is the best q(omega_n) and w_n its mean, the bound is

    sum_n [y_n E f_n / 2 - w_n E f_n^2 / 2 + w_n c_n^2 / 2 - log(2 cosh(c_n / 2))] - beta KL(q(v) | N(0, 1))

The q(v) that is best for given w has the natural parameters

    S^-1 = 1 + sum_n w_n a_n a_n' / beta          S^-1 m = sum_n y_n a_n / (2 beta)

and a step of natural gradient goes a part of the way there, with the sums estimated from a mini-batch. Kernel and Z
follow the gradient of the bound, by Adam. Departures from Wenzel et al.: u is whitened, so q(v) stays sensible
when the kernel moves and the KL divergence does not depend on it; beta as in the paper's comparison, where the largest
is trained first, for `steps`, and each smaller one starts from the last, for `more_steps` of smaller size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.methods.common import (
    LEARNING_RATE,
    adam,
    best_on_validation,
    blocks,
    configured,
    inducing_points,
    logistic_normal,
    matern52,
    minibatches,
    natural_rate,
)
from experiments.methods.protocol import Array, Prediction, Settings, check_deadline

_JITTER = 1e-6  # times the kernel's variance


@dataclass(frozen=True)
class Config:
    inducing: int = 512  # the paper: 1024
    betas: tuple[float, ...] = (0.1, 0.3, 0.5, 1.0)  # paragraph "Binary classification"
    steps: int = 500
    more_steps: int = 100
    batch: int = 512
    learn_inducing: bool = True


FULL = Config()
QUICK = Config(inducing=256, betas=(0.5,), steps=400)


def build(settings: Settings) -> PGVI:
    return PGVI(configured(FULL, QUICK, settings))


class SparsePolyaGamma(torch.nn.Module):
    """Kernel, inducing points and q(v) by its natural parameters; rows x (b, d), y (b,) in {-1, 1}, n rows in all."""

    def __init__(self, Z: Array, beta: float, learn_inducing: bool = True) -> None:
        super().__init__()
        M, d = Z.shape
        self.beta = beta
        self.Z = torch.nn.Parameter(torch.as_tensor(Z, dtype=torch.float64), requires_grad=learn_inducing)
        self.log_lengths = torch.nn.Parameter(torch.full((d,), np.log(d) / 2, dtype=torch.float64))
        self.log_scale = torch.nn.Parameter(torch.tensor(np.log(4.0)))
        self.precision = torch.eye(M, dtype=torch.float64)  # S^-1
        self.shift = torch.zeros(M, dtype=torch.float64)  # S^-1 m
        self.moments()

    def moments(self) -> None:
        """Mean (M,) of q(v) and the Cholesky factor (M, M) of its precision, from the natural parameters."""
        self.factor = torch.linalg.cholesky(self.precision)
        self.mean = torch.cholesky_solve(self.shift[:, None], self.factor)[:, 0]

    def latent(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """a (M, b), and mean and variance (b,) of f."""
        scale = self.log_scale.exp()
        K = matern52(self.Z, self.Z, self.log_lengths, self.log_scale)
        L = torch.linalg.cholesky(K + _JITTER * scale * torch.eye(len(K), dtype=K.dtype))
        a = torch.linalg.solve_triangular(L, matern52(self.Z, x, self.log_lengths, self.log_scale), upper=False)
        spread = torch.linalg.solve_triangular(self.factor, a, upper=False).square().sum(0)
        return a, self.mean @ a, scale - a.square().sum(0) + spread

    def fit_term(self, mean: torch.Tensor, variance: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The bound without the KL divergence, (b,); at the best w its terms in w cancel, in the gradient too."""
        c = _root(mean, variance)
        return y * mean / 2 - c / 2 - torch.nn.functional.softplus(-c)  # log(2 cosh(c / 2)) = c / 2 + softplus(-c)

    def kl(self) -> torch.Tensor:
        """KL(q(v) | N(0, 1))."""
        inverse = torch.linalg.solve_triangular(
            self.factor, torch.eye(len(self.mean), dtype=torch.float64), upper=False
        )
        log_det = 2 * self.factor.diagonal().log().sum()
        return (inverse.square().sum() + self.mean.square().sum() - len(self.mean) + log_det) / 2

    def natural_step(
        self, a: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, y: torch.Tensor, n: int, rate: float
    ) -> None:
        """q(v) goes the part `rate` of the way to its optimum as this mini-batch shows it."""
        c = _root(mean, variance)
        w = torch.tanh(c / 2) / (2 * c)
        weight = n / (len(y) * self.beta)
        best_precision = weight * (a * w) @ a.mT
        best_precision.diagonal().add_(1.0)
        self.precision = torch.lerp(self.precision, best_precision, rate)
        self.shift = torch.lerp(self.shift, weight * a @ y / 2, rate)
        self.moments()


def _root(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """c (b,), away from zero."""
    return (mean.square() + variance).clamp_min(1e-12).sqrt()


def train(
    config: Config,
    beta: float,
    Z: Array,
    X: Array,
    y: NDArray,
    seed: int,
    deadline: float | None,
    start: SparsePolyaGamma | None = None,
) -> SparsePolyaGamma:
    """Fitted to X (n, d) and labels y (n,) in {0, 1}; a copy of `start` is trained on, if given."""
    gp = copy.deepcopy(start) if start else SparsePolyaGamma(Z, beta, config.learn_inducing)
    gp.beta = beta
    x, sign = torch.as_tensor(X), torch.as_tensor(2.0 * y - 1)
    steps, rate = (config.more_steps, LEARNING_RATE / 5) if start else (config.steps, LEARNING_RATE)
    optimiser, schedule = adam([p for p in gp.parameters() if p.requires_grad], steps, rate)
    for step, rows in enumerate(minibatches(len(x), config.batch, steps, seed)):
        check_deadline(deadline)
        optimiser.zero_grad()
        a, mean, variance = gp.latent(x[rows])
        (-gp.fit_term(mean, variance, sign[rows]).mean()).backward()
        with torch.no_grad():
            gp.natural_step(a, mean, variance, sign[rows], len(x), rate=natural_rate(step))
        optimiser.step()
        schedule.step()
    return gp


def predict(gp: SparsePolyaGamma, X: Array, deadline: float | None) -> Prediction:
    """Probabilities (m, 2) at X (m, d): the logistic function over q(f)."""
    p = np.empty(len(X))
    for rows in blocks(len(X), 2048):
        check_deadline(deadline)
        with torch.no_grad():
            _, mean, variance = gp.latent(torch.as_tensor(X[rows]))
            p[rows] = logistic_normal(mean.numpy(), variance.clamp_min(0).numpy())
    return Prediction.classes(np.c_[1 - p, p])


class PGVI:
    """See the module."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.chosen: dict[str, Any] = {}

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        Z = inducing_points(X, self.config.inducing, seed)
        fitted: dict[float, SparsePolyaGamma] = {}
        last: SparsePolyaGamma | None = None

        def fit_one(beta: float) -> Callable[[Array], Prediction]:
            nonlocal last
            last = fitted[beta] = train(self.config, beta, Z, X, y, seed, deadline, last)
            return lambda x: predict(fitted[beta], x, deadline)

        beta, _ = best_on_validation(sorted(self.config.betas, reverse=True), fit_one, X_val, y_val, deadline)
        self._gp = fitted[beta]
        self.chosen = {"beta_reg": beta, "inducing": len(Z), "steps": self.config.steps}

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        return predict(self._gp, X, deadline)
