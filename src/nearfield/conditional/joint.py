"""The joint density of a row and its neighbours: what MLL-k maximises, against the conditional one of LOO-k.

    log p(t) = -1/2 t' K^-1 t - 1/2 log |K| - k/2 log 2 pi
    d log p / d K = (alpha alpha' - K^-1) / 2     alpha = K^-1 t

Unlike the conditional, its gradient is of full rank: the inverse is needed. It serves as a baseline, in torch, some
rows at a time.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from nearfield._types import KernelParameters
from nearfield.conditional.batched import _factorise
from nearfield.kernels import Kernel

_CHUNK_NUMBERS = 2**20  # of a matrix (b, k, k) held at a time


def joint_log_density(
    kernel: Kernel,
    parameters: KernelParameters,
    rows: torch.Tensor,
    ids: torch.Tensor,
    targets: torch.Tensor,
    noises: torch.Tensor,
) -> torch.Tensor:
    """log density (b,) of the targets (b, k) of the rows ids (b, k), -1 for none, with noise variances (b, k).

    rows: (n, d) inputs. Differentiable by the parameters, targets and noises.
    """
    p = parameters
    density: torch.Tensor = _Joint.apply(
        p.log_lengths, p.log_scale, p.log_shape, targets, noises, rows, ids, kernel
    )  # fmt: skip
    return density


class _Joint(torch.autograd.Function):
    """Keeps the derivatives of each row's density, which are known once it is."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> torch.Tensor:
        log_lengths, log_scale, log_shape, targets, noises, rows, ids, kernel = given
        size = max(1, _CHUNK_NUMBERS // max(1, ids.shape[1] ** 2))
        lengths, scale2 = log_lengths.exp(), (2 * log_scale).exp()
        parts = [
            _chunk(
                kernel, lengths, scale2, log_shape, targets[i : i + size], noises[i : i + size], rows, ids[i : i + size]
            )
            for i in range(0, len(ids), size)
        ]
        density, *derivatives = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        ctx.save_for_backward(*derivatives)
        return density

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: torch.Tensor) -> Any:
        by_lengths, by_scale, by_shape, by_targets, by_noises = ctx.saved_tensors
        g = incoming[:, None]
        return (
            incoming @ by_lengths,
            incoming @ by_scale,
            incoming @ by_shape,
            g * by_targets,
            g * by_noises,
            *(None,) * 3,
        )


def _chunk(
    kernel: Kernel,
    lengths: torch.Tensor,
    scale2: torch.Tensor,
    log_shape: torch.Tensor,
    targets: torch.Tensor,
    noises: torch.Tensor,
    rows: torch.Tensor,
    ids: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Densities (b,) and derivatives by log lengths (b, d), log scale (b,), log shapes (b, p), targets and noises."""
    valid = ids >= 0
    both = valid[:, :, None] & valid[:, None, :]
    x = rows[ids.clamp_min(0)] / lengths
    columns = range(x.shape[-1])

    def squares(e: int) -> torch.Tensor:
        return (x[:, :, None, e] - x[:, None, :, e]).square()

    profile = kernel.profile(sum((squares(e) for e in columns), torch.zeros(())), log_shape)
    matrix = torch.where(both, scale2 * profile.value, 0) + torch.diag_embed(torch.where(valid, noises, 1.0))
    factor, _ = _factorise(matrix[:, None], scale2.reshape(1))
    factor = factor[:, 0]
    t = torch.where(valid, targets, 0.0)
    alpha = torch.cholesky_solve(t[..., None], factor)[..., 0]
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    density = -0.5 * ((alpha * t).sum(-1) + log_det + valid.sum(-1).to(t.dtype) * math.log(2 * math.pi))
    by_matrix = 0.5 * (alpha[:, :, None] * alpha[:, None, :] - torch.cholesky_inverse(factor))
    by_matrix = torch.where(both, by_matrix, 0)
    weighted = -2 * scale2 * by_matrix * profile.slope
    by_lengths = torch.stack([(weighted * squares(e)).sum((1, 2)) for e in columns], -1)
    by_scale = 2 * scale2 * (by_matrix * profile.value).sum((1, 2))
    by_shape = by_lengths[:, :0]
    if profile.shape_slope is not None:
        by_shape = (scale2 * by_matrix * profile.shape_slope).sum((1, 2))[:, None]
    return density, by_lengths, by_scale, by_shape, -alpha, by_matrix.diagonal(dim1=-2, dim2=-1)
