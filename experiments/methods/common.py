"""What several methods share: the Matern-5/2 kernel, k-means inducing points, the learning rates of the paper, and the
choice of a tuning parameter on validation rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.cluster import KMeans

from experiments.methods.protocol import Array, Prediction, Settings, check_deadline

C = TypeVar("C")

LEARNING_RATE = 0.03
"""Adam's at the start, appendix "General training details"; divided by 5 after 25, 50 and 75 % of the steps."""


def configured(full: C, quick: C, settings: Settings) -> C:
    """The configuration that `settings` asks for, with its options put in."""
    return replace(quick if settings.quick else full, **settings.options)  # type: ignore[type-var]


def matern52(x: torch.Tensor, z: torch.Tensor, log_lengths: torch.Tensor, log_scale: torch.Tensor) -> torch.Tensor:
    """Kernel matrix (..., n, m) of x (..., n, d) and z (..., m, d); log_scale is that of the kernel's variance."""
    centre = z.detach().mean(-2, keepdim=True)
    x, z = (x - centre) / log_lengths.exp(), (z - centre) / log_lengths.exp()
    squared = x.square().sum(-1)[..., :, None] + z.square().sum(-1)[..., None, :] - 2 * x @ z.mT
    return log_scale.exp() * _Matern52.apply(squared)


class _Matern52(torch.autograd.Function):
    """(1 + r + r^2 / 3) exp(-r) with r^2 = 5 `squared`, and its slope -5/6 (1 + r) exp(-r), in one pass."""

    @staticmethod
    def forward(ctx: Any, squared: torch.Tensor) -> torch.Tensor:
        squared = squared.contiguous()
        value, slope = torch.empty_like(squared), torch.empty_like(squared)
        _matern52_profile(*(t.detach().numpy().reshape(-1) for t in (squared, value, slope)))
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx: Any, by_value: torch.Tensor) -> torch.Tensor:
        return by_value * ctx.saved_tensors[0]


@njit(nogil=True, cache=True)
def _matern52_profile(squared, value, slope):  # type: ignore[no-untyped-def]
    for i in range(len(squared)):
        r = np.sqrt(5 * max(squared[i], 0.0))
        e = np.exp(-r)
        value[i] = (1 + r + r * r / 3) * e
        slope[i] = -5 / 6 * (1 + r) * e


def adam(parameters: Iterable[torch.Tensor], steps: int, rate: float = LEARNING_RATE) -> tuple[Any, Any]:
    """Optimiser and schedule with the paper's learning rates."""
    optimiser = torch.optim.Adam(parameters, lr=rate)
    milestones = [steps // 4, steps // 2, 3 * steps // 4]
    return optimiser, torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, gamma=0.2)


def natural_rate(step: int) -> float:
    """Part of the way that q(u) goes in step 0, 1, ...; Robbins and Monro."""
    return float((step + 2.0) ** -0.6)


def minibatches(n: int, size: int, steps: int, seed: int) -> Iterator[torch.Tensor]:
    """Row numbers of `steps` mini-batches: one permutation after the other, without its incomplete end."""
    generator = torch.Generator().manual_seed(seed)
    size = min(size, n)
    rows = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(rows) < size:
            rows = torch.randperm(n, generator=generator)
        yield rows[:size]
        rows = rows[size:]


def inducing_points(X: Array, count: int, seed: int) -> Array:
    """k-means centres (M, d) of X (n, d), with M = `count` or as many as there are distinct rows."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= count:
        return distinct
    rows = np.random.default_rng(seed).permutation(len(distinct))[: max(20_000, 10 * count)]
    means = KMeans(count, init="random", n_init=1, max_iter=20, random_state=seed)
    return means.fit(distinct[np.sort(rows)]).cluster_centers_


def best_on_validation(
    candidates: Iterable[C],
    fit: Callable[[C], Callable[[Array], Prediction]],
    X_val: Array,
    y_val: NDArray,
    deadline: float | None,
) -> tuple[C, Callable[[Array], Prediction]]:
    """The candidate whose fit gives the lowest NLL of the validation rows, and its predict; one needs no rows."""
    candidates = list(candidates)
    best, best_nll = None, np.inf
    for candidate in candidates:
        check_deadline(deadline)
        predict = fit(candidate)
        nll = predict(X_val).nll(y_val) if len(candidates) > 1 else 0.0
        if best is None or nll < best_nll:
            best, best_nll = (candidate, predict), nll
    if best is None:
        raise ValueError("no candidates to choose from")
    return best


def logistic_normal(mean: Array, variance: Array, nodes: int = 32) -> Array:
    """Probability of class 1, the integral of the logistic function over N(mean, variance), (m,)."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    f = mean[:, None] + np.sqrt(variance)[:, None] * x
    return expit(f) @ (w / w.sum())


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices that cover range(n)."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
