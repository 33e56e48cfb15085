"""Data that the experiments make: draws from a GP prior, warped inputs, noisy replicates, enlarged tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]

LENGTH_SCALE = 0.5  # of the prior, appendix "Model mis-specification"
NOISE_STD = 0.1
DIMENSIONS = 4
TWIN_VARIANCE = 1e-4  # appendix "Degenerate data regime"


def stretched_below(x: Array, gamma: float) -> Array:
    """x for x >= 0, (1 + gamma) x for x < 0; Sec. "Model mis-specification"."""
    return np.where(x < 0, (1 + gamma) * x, x)


def bent_above(x: Array, gamma: float) -> Array:
    """x for x <= 0, x^(1 + gamma) for x > 0; Fig. "appwarped", top."""
    return np.where(x > 0, np.maximum(x, 0) ** (1 + gamma), x)


def cubic(x: Array, gamma: float) -> Array:
    """x + gamma x^3; Fig. "appwarped", bottom."""
    return x + gamma * x**3


WARPINGS: dict[str, Callable[[Array, float], Array]] = {
    "stretched-below": stretched_below,
    "bent-above": bent_above,
    "cubic": cubic,
}
"""Each acts on every coordinate by itself; gamma = 0 is the identity."""

UNWARPED = "unwarped-0"
"""Name of the data with gamma = 0, the same for all warpings."""


def prior_draw(n: int, seed: int) -> tuple[Array, Array]:
    """Inputs (n, 4) uniform in [-1, 1]^4 and noisy targets (n,) of a function drawn from a GP with an RBF kernel.

    The paper does not say the scale of its kernel; here it is one.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, DIMENSIONS))
    K = cdist(X / LENGTH_SCALE, X / LENGTH_SCALE, "sqeuclidean")
    np.exp(-K / 2, out=K)
    K[np.diag_indices(n)] += 1e-8  # an RBF matrix of thousands of rows is singular to the last digit
    f = np.linalg.cholesky(K) @ rng.standard_normal(n)
    return X, f + NOISE_STD * rng.standard_normal(n)


def with_twins(X: Array, y: Array, seed: int, variance: float = TWIN_VARIANCE) -> tuple[Array, Array]:
    """The rows, then a replicate of each with noise of that variance in every input and in the target."""
    rng = np.random.default_rng([seed, 1])
    std = np.sqrt(variance)
    X_twin, y_twin = X + std * rng.standard_normal(X.shape), y + std * rng.standard_normal(y.shape)
    return np.concatenate([X, X_twin]), np.concatenate([y, y_twin])


def enlarged(X: Array, y: Array, n: int, seed: int, std: float = 0.1) -> tuple[Array, Array]:
    """n rows of standardised X (m, d) and y (m,): each once, then at random with noise in inputs and targets.

    Appendix "Runtime performance"; how much noise the paper adds it does not say.
    """
    rng = np.random.default_rng(seed)
    first = rng.permutation(len(X))[:n]
    more = rng.integers(len(X), size=max(n - len(X), 0))
    rows = np.concatenate([first, more])
    noise = np.where(np.arange(len(rows)) < len(first), 0.0, std)
    X_more = X[rows] + noise[:, None] * rng.standard_normal((len(rows), X.shape[1]))
    return X_more, y[rows] + noise * rng.standard_normal(len(rows))


def smooth_table(n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Standardised inputs (n, d) and a smooth target of the first five of them, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, 0]) + np.cos(2 * X[:, 1]) + X[:, 2] * X[:, 3] / 2 + 0.1 * X[:, 4]
    return X, (y - y.mean()) / y.std() + NOISE_STD * rng.standard_normal(n)
