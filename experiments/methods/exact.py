"""Exact GP regression by dense algebra: Matern-5/2 ARD, constant mean, trained by the MLL or by leave-one-out.

With K = k(X, X) + noise 1, P = K^-1 and alpha = P (y - mean), over n rows:

    MLL   log p(y | X) = -(y - mean)' alpha / 2 - log det K / 2 - n log(2 pi) / 2                    # Eq. (mll)
    LOO   sum_i log p(y_i | y_-i) = sum_i log(P_ii) / 2 - alpha_i^2 / (2 P_ii) - log(2 pi) / 2       # Eq. (cvN)

Their gradients in K are dense matrices G, written out below; the kernel's own gradient is then taken by autograd, block
of rows by block of rows, so that memory stays at three n x n matrices. L-BFGS, first on a subset, then on all rows.
The paper trains its MLL column with Adam and conjugate gradients (Wang et al. 2019); this is a maximum of the exact
objective instead. `chosen` says whether the search converged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from experiments.methods.common import blocks, configured, matern52
from experiments.methods.protocol import Array, Prediction, Settings, TooLarge, check_deadline

LARGEST = 10_000
"""Rows; one evaluation of the objective takes about a minute there."""

LOG_NOISE_BOUNDS = (np.log(1e-6), np.log(10.0))
LOG_LENGTH_BOUNDS = (np.log(1e-2), np.log(1e3))
LOG_SCALE_BOUNDS = (np.log(1e-2), np.log(1e3))
_BLOCK = 512


@dataclass(frozen=True)
class Config:
    subset: int = 1000
    subset_evaluations: int = 100
    evaluations: int = 60


FULL = Config()
QUICK = Config(subset=800, subset_evaluations=100, evaluations=5)


def build_mll(settings: Settings) -> ExactGP:
    return ExactGP("mll", configured(FULL, QUICK, settings))


def build_loo(settings: Settings) -> ExactGP:
    return ExactGP("loo", configured(FULL, QUICK, settings))


def objective(objective: str, parameters: Array, X: Array, y: Array) -> tuple[float, Array]:
    """Value per row of "mll" or "loo", and its gradient.

    parameters (d + 3,): log lengths (d,), log kernel variance, log noise variance, mean. X (n, d), y (n,).
    """
    x, theta = torch.as_tensor(X), torch.as_tensor(parameters)
    L = torch.linalg.cholesky(_covariance(x, theta))
    residual = torch.as_tensor(y) - theta[-1]
    P = torch.cholesky_inverse(L)
    alpha = P @ residual
    n = len(x)
    if objective == "mll":
        value = -residual @ alpha / 2 - L.diagonal().log().sum()
        G = (torch.outer(alpha, alpha) - P) / 2
        mean_slope = alpha.sum()
    elif objective == "loo":
        p = P.diagonal()
        value = (p.log() / 2 - alpha.square() / (2 * p)).sum()
        by_p, by_alpha = 1 / (2 * p) + (alpha / p).square() / 2, -alpha / p
        w = P @ by_alpha
        # dP = -P dK P and d alpha = -P dK alpha
        G = -(P * by_p) @ P - (torch.outer(w, alpha) + torch.outer(alpha, w)) / 2
        mean_slope = -w.sum()
    else:
        raise ValueError(f"objective is {objective!r}; expected 'mll' or 'loo'")
    slope = _kernel_slope(x, theta, G)
    slope[-2] = G.diagonal().sum() * theta[-2].exp()
    slope[-1] = mean_slope
    return float(value) / n - np.log(2 * np.pi) / 2, (slope / n).numpy()


def _covariance(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
    """K (n, n) with the noise."""
    K = torch.empty(len(x), len(x), dtype=x.dtype)
    for rows in blocks(len(x), _BLOCK):
        K[rows] = matern52(x[rows], x, theta[:-3], theta[-3])
    K.diagonal().copy_(theta[-3].exp() + theta[-2].exp())
    return K


def _kernel_slope(x: torch.Tensor, theta: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    """Gradient (d + 3,) of sum_ij G_ij k(x_i, x_j) in the lengths and the kernel's variance; zero elsewhere."""
    theta = theta.clone().requires_grad_()
    for rows in blocks(len(x), _BLOCK):
        (G[rows] * matern52(x[rows], x, theta[:-3], theta[-3])).sum().backward()
    return theta.grad  # type: ignore[return-value]


class ExactGP:
    """See the module; `parameters` (d + 3,) as in `objective` once fitted."""

    def __init__(self, name: str, config: Config) -> None:
        self.name, self.config = name, config
        self.chosen: dict[str, Any] = {}
        self.parameters: Array

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        if len(X) > LARGEST:
            raise TooLarge(f"an exact GP takes at most {LARGEST} rows here, these are {len(X)}")
        n, d = X.shape
        self.chosen = {"failed_factorisations": 0}
        start = np.r_[np.full(d, np.log(np.sqrt(d))), 0.0, np.log(0.1), 0.0]
        rows = np.random.default_rng(seed).permutation(n)[: self.config.subset]
        theta = self._optimise(start, X[rows], y[rows], self.config.subset_evaluations, deadline)
        if n > len(rows):
            theta = self._optimise(theta, X, y, self.config.evaluations, deadline)
        self._condition(theta, X, y)

    def _optimise(self, start: Array, X: Array, y: Array, evaluations: int, deadline: float | None) -> Array:
        bounds = [LOG_LENGTH_BOUNDS] * X.shape[1] + [LOG_SCALE_BOUNDS, LOG_NOISE_BOUNDS, (None, None)]

        def loss(theta: Array) -> tuple[float, Array]:
            check_deadline(deadline)
            try:
                value, slope = objective(self.name, theta, X, y)
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # a step too far: the search turns back
                self.chosen["failed_factorisations"] += 1
                return 1e10, np.zeros_like(theta)
            return -value, -slope

        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": evaluations})
        self.chosen |= {"evaluations": int(found.nfev), "converged": bool(found.success)}
        return found.x

    def _condition(self, theta: Array, X: Array, y: Array) -> None:
        self.parameters = theta
        self._x, self._theta = torch.as_tensor(X), torch.as_tensor(theta)
        self._L = torch.linalg.cholesky(_covariance(self._x, self._theta))
        residual = (torch.as_tensor(y) - self._theta[-1])[:, None]
        self._alpha = torch.cholesky_solve(residual, self._L)[:, 0]

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        theta = self._theta
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for rows in blocks(len(X), 1024):
            check_deadline(deadline)
            c = matern52(self._x, torch.as_tensor(X[rows]), theta[:-3], theta[-3])
            b = torch.linalg.solve_triangular(self._L, c, upper=False)
            mean[rows] = (theta[-1] + self._alpha @ c).numpy()  # Eq. (gppredmean)
            variance[rows] = (theta[-3].exp() - b.square().sum(0)).clamp_min(0).numpy()  # Eq. (gppredvar)
        return Prediction.normal(mean, np.sqrt(variance + float(theta[-2].exp())))
