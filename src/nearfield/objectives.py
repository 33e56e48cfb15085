"""Training objectives: plain functions of the scores of left-out observations."""

from __future__ import annotations

import torch


def loo_objective(scores: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What training minimises: minus the weighted mean of the scores (b,), the log predictive of Eq. (9), eqn:cvk."""
    return torch.dot(scores, weights / -weights.sum())


def length_prior(log_lengths: torch.Tensor, spread: float) -> torch.Tensor:
    """Minus the log density of a Cauchy prior of that spread around the mean of the log length scales (d,) or (C, d).

    Most columns then share one length scale, unless the data tell that some matter more or less. One term for the whole
    data set: divided by the number of observations it goes with the mean of the scores.
    """
    centre = log_lengths.mean(-1, keepdim=True).detach()
    return torch.log1p(((log_lengths - centre) / spread).square()).sum()
