"""SWSGP (Tran et al. 2021): each row depends only on its H nearest inducing points, of up to 10,000; regression.

Inducing points Z (M, d) carry independent q(u_j) = N(m_j, s_j^2). Row n sees those in I_n, its H nearest under the
kernel's length scales, found anew in every step. Which of them are seen is itself a latent variable, drawn by drawing a
row, so the KL divergence is a mean over rows, and only that of I_n enters for row n:

    1/n sum_n  E_q [log N(y_n | f_n, noise)] - KL(q(u_I_n) | p(u_I_n)) / n,    f_n | u_I_n from the prior

With H = M it is SVGP with a mean-field q(u). The prior is not whitened: its Cholesky factor would mix all M points.
Gradients through K (H, H) are written out, for a third of autograd's work; b rows in a mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.methods.common import (
    adam,
    best_on_validation,
    blocks,
    configured,
    inducing_points,
    matern52,
    minibatches,
)
from experiments.methods.protocol import Array, Prediction, Settings, check_deadline

_JITTER = 1e-5  # times the kernel's variance
_LEAST_NOISE = 1e-6


@dataclass(frozen=True)
class Config:
    inducing: int = 10_000
    nearest: tuple[int, ...] = (32,)  # the paper varies k up to 256, whose cost grows with the cube
    steps: int = 2500  # the paper: 6400, with a smaller rate
    batch: int = 128
    rate: float = 0.1


FULL = Config()
QUICK = Config(inducing=2000, steps=600)


def build(settings: Settings) -> SWSGP:
    return SWSGP(configured(FULL, QUICK, settings))


class _Local(torch.autograd.Function):
    """K (b, H, H), c (b, H), m (b, H), v = s^2 (b, H) -> mean m'Pc, variance -c'Pc + sum_j v_j (Pc)_j^2, KL; (b,) each.

    P = K^-1; m and the mean are without the prior's mean, the variance without the prior's k(x, x).
    """

    @staticmethod
    def forward(ctx: Any, K: torch.Tensor, c: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        L = torch.linalg.cholesky(K)
        P = torch.cholesky_inverse(L)
        b, a = (P @ torch.stack([c, m], -1)).unbind(-1)
        p = P.diagonal(dim1=-2, dim2=-1)
        mean, variance = (m * b).sum(-1), (v * b.square() - c * b).sum(-1)
        log_det = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        kl = ((p * v + m * a - 1 - v.log()).sum(-1) + log_det) / 2
        ctx.save_for_backward(P, a, b, v)
        return mean, variance, kl

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> Any:
        P, a, b, v = ctx.saved_tensors
        by_mean, by_variance, by_kl = (slope[:, None] for slope in slopes)
        t = (P @ (v * b)[..., None])[..., 0]
        by_c = by_mean * a + by_variance * 2 * (t - b)
        by_m = by_mean * b + by_kl * a
        by_v = by_variance * b.square() + by_kl * (P.diagonal(dim1=-2, dim2=-1) - 1 / v) / 2
        # dP = -P dK P throughout; the terms of rank one as left (b, H, 3) times right (b, H, 3)
        left = torch.stack([-by_mean * b, by_variance * (b - 2 * t), -by_kl * a / 2], -1)
        right = torch.stack([a, b, a], -1)
        by_K = (by_kl[..., None] / 2) * (P - (P * v[:, None, :]) @ P) + left @ right.mT
        return (by_K + by_K.mT) / 2, by_c, by_m, by_v


class Parameters(torch.nn.Module):
    """All that is learned: inducing points, at first at Z (M, d), q(u), at first like a prior without correlations."""

    def __init__(self, Z: Array) -> None:
        super().__init__()

        def learned(values: Any) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.as_tensor(values, dtype=torch.float64))

        d = Z.shape[1]
        self.Z, self.m, self.log_s = learned(Z), learned(np.zeros(len(Z))), learned(np.zeros(len(Z)))
        self.log_lengths, self.log_scale = learned(np.full(d, np.log(d) / 2)), learned(0.0)
        self.log_noise, self.mean = learned(np.log(0.1)), learned(0.0)

    def noise(self) -> torch.Tensor:
        return self.log_noise.exp() + _LEAST_NOISE

    def nearest(self, x: torch.Tensor, H: int) -> torch.Tensor:
        """Numbers (b, H) of the inducing points nearest to x (b, d)."""
        if len(self.Z) == H:
            return torch.arange(H).expand(len(x), H)
        with torch.no_grad():
            lengths = self.log_lengths.exp()
            return torch.cdist(x / lengths, self.Z / lengths).topk(H, largest=False, sorted=False).indices

    def latent(self, x: torch.Tensor, H: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Mean and variance of f and the KL divergence, (b,) each, of rows x (b, d)."""
        near = self.nearest(x, H)
        z = self.Z[near]
        K = matern52(z, z, self.log_lengths, self.log_scale)
        K = K + _JITTER * self.log_scale.exp() * torch.eye(H, dtype=K.dtype)
        c = matern52(z, x[:, None, :], self.log_lengths, self.log_scale)[..., 0]
        mean, variance, kl = _Local.apply(K, c, self.m[near] - self.mean, (2 * self.log_s[near]).exp())
        return self.mean + mean, self.log_scale.exp() + variance, kl

    def objective(self, x: torch.Tensor, y: torch.Tensor, n: int, H: int) -> torch.Tensor:
        """The bound per row, of a mini-batch x (b, d), y (b,) out of n rows."""
        mean, variance, kl = self.latent(x, H)
        noise = self.noise()
        fit = -((y - mean).square() + variance) / (2 * noise) - (2 * torch.pi * noise).log() / 2
        return (fit - kl / n).mean()


class SWSGP:
    """See the module."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.chosen: dict[str, Any] = {}

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        Z = inducing_points(X, self.config.inducing, seed)
        fitted: dict[int, Parameters] = {}

        def fit_one(H: int) -> Callable[[Array], Prediction]:
            fitted[H] = self._train(min(H, len(Z)), Z, X, y, seed, deadline)
            return lambda x: _predict(fitted[H], min(H, len(Z)), x, deadline)

        H, _ = best_on_validation(self.config.nearest, fit_one, X_val, y_val, deadline)
        self._parameters, self._nearest = fitted[H], min(H, len(Z))
        self.chosen = {"nearest": H, "inducing": len(Z), "steps": self.config.steps}

    def _train(self, H: int, Z: Array, X: Array, y: Array, seed: int, deadline: float | None) -> Parameters:
        parameters = Parameters(Z)
        x, target = torch.as_tensor(X), torch.as_tensor(y)
        optimiser, schedule = adam(parameters.parameters(), self.config.steps, self.config.rate)
        for rows in minibatches(len(x), self.config.batch, self.config.steps, seed):
            check_deadline(deadline)
            optimiser.zero_grad()
            (-parameters.objective(x[rows], target[rows], len(x), H)).backward()
            optimiser.step()
            schedule.step()
        return parameters

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        return _predict(self._parameters, self._nearest, X, deadline)


def _predict(parameters: Parameters, H: int, X: Array, deadline: float | None) -> Prediction:
    mean, variance = np.empty(len(X)), np.empty(len(X))
    for rows in blocks(len(X), 512):
        check_deadline(deadline)
        with torch.no_grad():
            f, v, _ = parameters.latent(torch.as_tensor(X[rows]), H)
            mean[rows], variance[rows] = f.numpy(), v.clamp_min(0).numpy() + float(parameters.noise())
    return Prediction.normal(mean, np.sqrt(variance))
