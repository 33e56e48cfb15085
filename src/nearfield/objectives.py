"""Training objectives: plain functions of the scores of left-out observations."""

from __future__ import annotations

import torch


def loo_objective(scores: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What training minimises: minus the weighted mean of the scores (b,), the log predictive of Eq. (9), eqn:cvk."""
    return torch.dot(scores, weights / -weights.sum())
