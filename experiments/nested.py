"""Predictions for every k from one factorisation, in plain torch, with the hyper-parameters of a fitted model.

With neighbours in order of distance, K = k(X_S, X_S) + noise 1 = L L', a = L^-1 t and b = L^-1 c, the factor of the
first j neighbours is the corner of L, so that the running sums of a * b and b * b are mean and k(x, x) - variance for
each j. The package does the same inside; experiments use its public API only, hence this second, slower one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from experiments.data import Array
from experiments.methods.common import blocks, matern52

_BLOCK_ENTRIES = 2**19  # of the matrices of a block of rows; larger ones leave the cache


@dataclass(frozen=True)
class Kernel:
    """Hyper-parameters of a Matern-5/2 GP: lengths (d,), standard deviations of kernel and noise, constant mean."""

    lengths: Array
    scale: float
    noise: float
    mean: float = 0.0


def neighbours(X: Array, lengths: Array, k: int, queries: Array | None = None) -> np.ndarray:
    """Row numbers (m, k) of the nearest rows of X (n, d); without queries of each row of X, itself left out."""
    scaled = X / lengths
    search = NearestNeighbors(n_neighbors=k).fit(scaled)
    if queries is not None:
        return search.kneighbors(queries / lengths, return_distance=False)
    return search.kneighbors(return_distance=False)


def moments(kernel: Kernel, X: Array, y: Array, ids: np.ndarray, queries: Array) -> tuple[Array, Array]:
    """Means and variances of new observations (m, k) at queries (m, d), from their first 1, 2, ... k neighbours."""
    m, k = ids.shape
    mean, variance = np.empty((m, k)), np.empty((m, k))
    log_lengths = torch.as_tensor(np.log(kernel.lengths))
    log_variance = torch.tensor(2 * np.log(kernel.scale), dtype=torch.float64)
    x, t, q = torch.as_tensor(X), torch.as_tensor(y - kernel.mean), torch.as_tensor(queries)
    for rows in blocks(m, max(1, _BLOCK_ENTRIES // k**2)):
        near = torch.as_tensor(ids[rows])
        K = matern52(x[near], x[near], log_lengths, log_variance)
        K.diagonal(dim1=-2, dim2=-1).add_(kernel.noise**2)
        c = matern52(x[near], q[rows][:, None], log_lengths, log_variance)
        right = torch.cat([t[near][..., None], c], dim=-1)
        a, b = torch.linalg.solve_triangular(torch.linalg.cholesky(K), right, upper=False).unbind(-1)
        mean[rows] = kernel.mean + (a * b).cumsum(-1).numpy()
        variance[rows] = kernel.scale**2 - b.square().cumsum(-1).numpy()
    return mean, np.maximum(variance, 0.0) + kernel.noise**2
