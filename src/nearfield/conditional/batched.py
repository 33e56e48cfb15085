"""The closed form in torch, on any device: the reference for the fused engine, and the path for accelerators."""

from __future__ import annotations

from typing import NamedTuple

import torch

from nearfield._types import Problem
from nearfield.kernels import Kernel, Profile

_JITTER = {torch.float64: 1e-10, torch.float32: 1e-5}  # first retry, relative to the kernel's variance


class BatchedResult(NamedTuple):
    """As in `fused`, in torch; the Jacobian is left to `gradient`."""

    mean: torch.Tensor
    variance: torch.Tensor
    quad: torch.Tensor
    alpha: torch.Tensor  # (b, k)
    beta: torch.Tensor  # (b, k)
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
    """Cholesky factors (b, k, k); rows that fail are tried again with ten times more jitter."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    jitter, retried = _JITTER[matrix.dtype], int((info > 0).sum())
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    while bool((failed := info > 0).any()) and jitter < 1e3:
        factor[failed], info[failed] = torch.linalg.cholesky_ex(matrix[failed] + jitter * scale2 * eye)
        jitter *= 10
    factor[info > 0] = torch.nan  # not finite
    return factor, retried


def run(kernel: Kernel, problem: Problem, *, nested: bool = False) -> BatchedResult:
    """The closed form for (b, k) neighbours; moments are (b,), or (b, k) when nested."""
    g = _geometry(kernel, problem)
    scale2 = problem.scale * problem.scale
    both = g.valid[:, :, None] & g.valid[:, None, :]
    matrix = torch.where(both, scale2 * g.pair.value, 0)
    matrix = matrix + torch.diag_embed(torch.where(g.valid, problem.noises, 1))  # missing neighbours: the identity
    sides = torch.stack([torch.where(g.valid, problem.targets, 0), torch.where(g.valid, scale2 * g.near.value, 0)], -1)
    factor, retries = _factorise(matrix, scale2)
    forward = torch.linalg.solve_triangular(factor, sides, upper=False)  # (b, k, 2): a = L^-1 t, b = L^-1 c
    back = torch.linalg.solve_triangular(factor.mT, forward, upper=True)
    a, b = forward.unbind(-1)
    total = torch.cumsum if nested else torch.sum
    return BatchedResult(
        total(a * b, -1),
        (scale2 - total(b * b, -1)).clamp_min(0),
        total(a * a, -1),
        back[..., 0],
        back[..., 1],
        retries,
    )


class Gradient(NamedTuple):
    """By log length scales and log shapes (d + p,), log kernel scale (), targets (b, k) and noises (b, k)."""

    kernel: torch.Tensor
    log_scale: torch.Tensor
    targets: torch.Tensor
    noises: torch.Tensor


def gradient(kernel: Kernel, problem: Problem, result: BatchedResult, grads: tuple[torch.Tensor, ...]) -> Gradient:
    """Gradients from those by the moments, (b,) each; builds the kernel again."""
    g = _geometry(kernel, problem)
    alpha, beta = result.alpha, result.beta
    g_mean, g_variance, g_quad = (x[:, None] for x in grads)
    scale2 = problem.scale * problem.scale
    # dK = -g_m (alpha beta' + beta alpha')/2 + g_v beta beta' - g_q alpha alpha', of rank three
    left = torch.stack([-g_mean * alpha, g_variance * beta, -g_quad * alpha], dim=-1)
    right = torch.stack([beta, beta, alpha], dim=-1)
    d_matrix = scale2 * (left @ right.mT)  # contracted with symmetric matrices only, so it need not be symmetric
    d_cross = scale2 * (g_mean * alpha - 2 * g_variance * beta)
    by_kernel = -2 * (
        torch.einsum("bij,bijd->d", d_matrix * g.pair.slope, g.pairs.square())
        + torch.einsum("bi,bid->d", d_cross * g.near.slope, g.cross.square())
    )
    if g.pair.shape_slope is not None and g.near.shape_slope is not None:
        by_shape = (d_matrix * g.pair.shape_slope).sum() + (d_cross * g.near.shape_slope).sum()
        by_kernel = torch.cat([by_kernel, by_shape.reshape(1)])
    by_noises = (left * right).sum(-1)
    # scaling kernel and noises together scales variance by s and quad by 1/s; undo the noises' share
    by_log_scale = 2 * (
        (grads[1] * result.variance - grads[2] * result.quad).sum() - (by_noises * problem.noises).sum()
    )
    return Gradient(by_kernel, by_log_scale, g_mean * beta + 2 * g_quad * alpha, by_noises)
