"""Training objectives: plain functions of the scores of left-out observations."""

from __future__ import annotations

import numpy as np
import torch


def loo_objective(scores: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What training minimises: minus the weighted mean of the scores (b,), the log predictive of Eq. (9), eqn:cvk."""
    return torch.dot(scores, weights / -weights.sum())


OBJECTIVES = ("loo", "mll", "vecchia")
"""Leave-one-out from the k nearest neighbours (LOO-k); the joint density of a row and its neighbours (MLL-k); each row
given its nearest neighbours among those before it in an order (Vecchia)."""

ORDERINGS = ("random", "pca")


def ordering(name: str, inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rank (n,) of each row of inputs (n, d) in the order that Vecchia's objective follows.

    A random order lets every row have near neighbours at all distances; the paper goes along the first principal
    component.
    """
    if name == "random":
        order = rng.permutation(len(inputs))
    else:
        centred = inputs - inputs.mean(axis=0)
        direction = np.linalg.svd(centred.T @ centred)[0][:, 0]
        order = np.argsort(centred @ direction, kind="stable")
    rank = np.empty(len(inputs), dtype=np.int64)
    rank[order] = np.arange(len(inputs))
    return rank


def length_prior(log_lengths: torch.Tensor, spread: float) -> torch.Tensor:
    """Minus the log density of a Cauchy prior of that spread around the mean of the log length scales (d,) or (C, d).

    Most columns then share one length scale, unless the data tell that some matter more or less. One term for the whole
    data set: divided by the number of observations it goes with the mean of the scores.
    """
    centre = log_lengths.mean(-1, keepdim=True).detach()
    return torch.log1p(((log_lengths - centre) / spread).square()).sum()
