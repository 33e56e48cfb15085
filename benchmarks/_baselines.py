"""The yardstick of a training step: the same in plain PyTorch autograd, written the way its own users would.

Other methods to compare with are in `experiments/methods`. Shapes: b rows in a mini-batch, k neighbours, d inputs.
"""

from __future__ import annotations

import torch


def natural_step(query, neighbours, targets, y, log_lengthscales, log_variance, log_noise):
    """One LOO-k mini-batch in plain PyTorch autograd: the mean negative log density of `y`, after `.backward()`.

    query (b, d), neighbours (b, k, d), targets (b, k), y (b,); log_lengthscales (d,), log_variance () of the Matern 5/2
    kernel and log_noise () of the noise variance are leaves with requires_grad, and their .grad is added to.
    """
    lengthscales, variance, noise = log_lengthscales.exp(), log_variance.exp(), log_noise.exp()
    z = (neighbours - query.unsqueeze(1)) / lengthscales
    K = variance * _matern52(_squared_distances(z))
    K = K + noise * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    c = variance * _matern52(z.square().sum(-1))
    L = torch.linalg.cholesky(K)
    a, b = torch.linalg.solve_triangular(L, torch.stack([targets, c], dim=-1), upper=False).unbind(-1)
    mean = (a * b).sum(-1)
    var = variance + noise - b.square().sum(-1)
    loss = -torch.distributions.Normal(mean, var.sqrt()).log_prob(y).mean()
    loss.backward()
    return loss.detach()


def _squared_distances(z):
    """All pairs within each row's neighbourhood, (b, k, d) -> (b, k, k), by one batched matrix product."""
    norms = z.square().sum(-1)
    return norms.unsqueeze(-1) + norms.unsqueeze(-2) - 2 * z @ z.mT


def _matern52(squared):
    """Matern 5/2 of squared scaled distances; the clamp keeps the slope of the root finite where rows coincide."""
    r = 5**0.5 * squared.clamp_min(1e-20).sqrt()
    return (1 + r + r.square() / 3) * (-r).exp()
