"""Training objectives: plain functions of the moments."""

from __future__ import annotations

import math

import torch

from nearfield._types import Moments


def loo_scores(moments: Moments, y: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """log p(y_n | neighbours) (b,), the terms of Eq. (9), eqn:cvk, for left-out targets y (b,); noise () or (b,)."""
    variance = moments.variance + noise
    doubled = torch.addcdiv(torch.log(variance), (y - moments.mean).square(), variance)  # log v + (y - m)^2 / v
    return -0.5 * (doubled + math.log(2 * math.pi))


def loo_objective(scores: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What training minimises: minus the weighted mean of the scores (b,)."""
    return torch.dot(scores, weights / -weights.sum())
