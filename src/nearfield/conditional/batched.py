"""The closed form in torch, on any device: the reference for the fused engine, and the path for accelerators."""

from __future__ import annotations

from typing import NamedTuple

import torch

from nearfield._types import Problem
from nearfield.kernels import Kernel, Profile

_JITTER = {torch.float64: 1e-10, torch.float32: 1e-5}  # first retry, relative to the kernel's variance


class BatchedResult(NamedTuple):
    """As in `fused`, in torch."""

    mean: torch.Tensor  # (b, q, C)
    variance: torch.Tensor  # (b, q, R)
    quad: torch.Tensor  # (b, q, C)
    alpha: torch.Tensor  # (b, k, C)
    beta: torch.Tensor  # (b, k, R)
    jittered: int


class _Geometry(NamedTuple):
    pairs: torch.Tensor  # (b, k, k, d) differences between neighbours, scaled
    cross: torch.Tensor  # (b, k, d) differences to the query, scaled
    pair: Profile
    near: Profile
    valid: torch.Tensor  # (b, k)


def _geometry(kernel: Kernel, p: Problem) -> _Geometry:
    cross = (p.rows[p.ids.clamp_min(0)] - p.query[:, None, :]) / p.lengths
    pairs = cross[:, :, None, :] - cross[:, None, :, :]
    pair = kernel.profile(pairs.square().sum(-1), p.log_shape)
    near = kernel.profile(cross.square().sum(-1), p.log_shape)
    return _Geometry(pairs, cross, pair, near, p.ids >= 0)


def _factorise(matrix: torch.Tensor, scale2: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Cholesky factors (b, R, k, k); those that fail are tried again with ten times more jitter. Counts such rows."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    jitter, retried = _JITTER[matrix.dtype], int((info > 0).any(-1).sum())
    unit = scale2[:, None, None] * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    units = unit.expand(matrix.shape)
    while bool((failed := info > 0).any()) and jitter < 1e3:
        factor[failed], info[failed] = torch.linalg.cholesky_ex(matrix[failed] + jitter * units[failed])
        jitter *= 10
    factor[info > 0] = torch.nan  # not finite
    return factor, retried


def run(kernel: Kernel, problem: Problem, ks: torch.Tensor) -> BatchedResult:
    """The closed form given the first ks (q,) neighbours."""
    g = _geometry(kernel, problem)
    (b, k, latents), factors = problem.targets.shape, problem.noises.shape[-1]
    scale2 = problem.scale.square()
    both = (g.valid[:, :, None] & g.valid[:, None, :])[:, None]
    matrix = torch.where(both, scale2[:, None, None] * g.pair.value[:, None], 0)  # (b, R, k, k)
    ridge = torch.where(g.valid[:, :, None], problem.noises, 1)  # missing neighbours: the identity
    matrix = matrix + torch.diag_embed(ridge.mT)
    cross = torch.where(g.valid[:, :, None], scale2 * g.near.value[:, :, None], 0)
    targets = torch.where(g.valid[:, :, None], problem.targets, 0)
    sides = torch.cat([cross.mT[..., None], targets.reshape(b, k, factors, latents // factors).transpose(1, 2)], -1)
    factor, retries = _factorise(matrix, scale2)
    forward = torch.linalg.solve_triangular(factor, sides, upper=False)  # (b, R, k, 1 + C / R): b = L^-1 c, a = L^-1 t
    back = torch.linalg.solve_triangular(factor.mT, forward, upper=True)
    (v, u), (beta, alpha) = ((x[..., 0].mT, x[..., 1:].transpose(1, 2).reshape(b, k, latents)) for x in (forward, back))

    def total(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x.cumsum(1), (0, 0, 1, 0))[:, ks.clamp(max=k)]

    return BatchedResult(total(u * v), (scale2 - total(v * v)).clamp_min(0), total(u * u), alpha, beta, retries)


class Gradient(NamedTuple):
    """By log length scales and log shapes (d + p,), log kernel scales (R,), targets (b, k, C) and noises (b, k, R)."""

    kernel: torch.Tensor
    log_scale: torch.Tensor
    targets: torch.Tensor
    noises: torch.Tensor


def gradient(kernel: Kernel, problem: Problem, result: BatchedResult, grads: tuple[torch.Tensor, ...]) -> Gradient:
    """Gradients from those by the moments, (b, C), (b, R) and (b, C); builds the kernel again."""
    g = _geometry(kernel, problem)
    alpha, beta, scale2 = result.alpha, result.beta, problem.scale.square()
    g_mean, g_variance, g_quad = (x[:, None] for x in grads)

    def shared(x: torch.Tensor) -> torch.Tensor:
        """Summed over the latent functions that have the same noises: (b, k, C) to (b, k, R)."""
        return x if x.shape[-1] == len(scale2) else x.sum(-1, keepdim=True)

    # dK = -g_m (alpha beta' + beta alpha')/2 + g_v beta beta' - g_q alpha alpha', summed over the latent functions
    g_alpha = shared(g_mean * alpha)
    left = g_variance * beta - g_alpha
    by_noises = left * beta - shared(g_quad * alpha.square())
    # contracted with symmetric matrices only, so it need not be symmetric
    d_matrix = (scale2 * left) @ beta.mT - (scale2 * g_quad * alpha) @ alpha.mT
    d_cross = (scale2 * (g_alpha - 2 * g_variance * beta)).sum(-1)
    by_kernel = -2 * (
        torch.einsum("bij,bijd->d", d_matrix * g.pair.slope, g.pairs.square())
        + torch.einsum("bi,bid->d", d_cross * g.near.slope, g.cross.square())
    )
    if g.pair.shape_slope is not None and g.near.shape_slope is not None:
        by_shape = (d_matrix * g.pair.shape_slope).sum() + (d_cross * g.near.shape_slope).sum()
        by_kernel = torch.cat([by_kernel, by_shape.reshape(1)])
    # scaling kernel and noises together scales variance by s and quad by 1/s; undo the noises' share
    moved = g_variance * result.variance - shared(g_quad * result.quad)
    by_log_scale = 2 * (moved.sum((0, 1)) - (by_noises * problem.noises).sum((0, 1)))
    return Gradient(by_kernel, by_log_scale, g_mean * beta + 2 * g_quad * alpha, by_noises)
