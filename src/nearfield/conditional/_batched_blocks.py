"""The closed form of several outputs in torch, on any device: the reference for `_blocks`.

Here the matrix and its gradient dK are dense, (b, k P, k P), with observations in the order (neighbour, output).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from nearfield._types import Problem
from nearfield.conditional.batched import _factorise, _Geometry, _geometry
from nearfield.kernels import Kernel


class OutputProblem(NamedTuple):
    """What an engine of several outputs works on: torch tensors here, numpy arrays in `_blocks`."""

    query: Any  # (b, d)
    rows: Any  # (n, d)
    lengths: Any  # (Q, d) length scales
    mixing: Any  # (P, Q)
    log_shape: Any  # (p,)
    ids: Any  # (b, k)
    targets: Any  # (b, k, P)
    noises: Any  # (b, k, P)


class OutputGradient(NamedTuple):
    """What either engine makes of the gradients by mean and covariance."""

    log_lengths: Any  # (Q, d)
    mixing: Any  # (P, Q)
    log_shape: Any  # (p,)
    targets: Any  # (b, k, P)
    noises: Any  # (b, k, P)


class BatchedOutputs(NamedTuple):
    """As in `_blocks`, in torch."""

    mean: torch.Tensor  # (b, q, P)
    covariance: torch.Tensor  # (b, q, P, P)
    quad: torch.Tensor  # (b, q, P)
    alpha: torch.Tensor  # (b, k, P)
    beta: torch.Tensor  # (b, k, P, P), the last for the outputs of the query
    jittered: int


def _latent(kernel: Kernel, p: OutputProblem, q: int) -> _Geometry:
    return _geometry(kernel, Problem(p.query, p.rows, p.lengths[q], None, p.log_shape, p.ids, p.targets, p.noises))


def run(kernel: Kernel, problem: OutputProblem, ks: torch.Tensor) -> BatchedOutputs:
    """The closed form given the first ks (q,) neighbours."""
    (b, k, outputs), w = problem.targets.shape, problem.mixing
    latents = [_latent(kernel, problem, q) for q in range(w.shape[1])]
    valid = problem.ids >= 0
    both = valid[:, :, None] & valid[:, None, :]
    pair = torch.stack([torch.where(both, g.pair.value, 0) for g in latents], 1)  # (b, Q, k, k)
    near = torch.stack([torch.where(valid, g.near.value, 0) for g in latents], 1)
    tiles = torch.einsum("pq,sq->qps", w, w)
    matrix = torch.einsum("qps,bqij->bipjs", tiles, pair).reshape(b, k * outputs, k * outputs)
    ridge = torch.where(valid[:, :, None], problem.noises, 1)  # missing neighbours: the identity
    matrix = matrix + torch.diag_embed(ridge.reshape(b, -1))
    cross = torch.einsum("qps,bqi->bips", tiles, near).reshape(b, k * outputs, outputs)
    targets = torch.where(valid[:, :, None], problem.targets, 0).reshape(b, k * outputs, 1)
    prior = w @ w.mT
    factors, retries = _factorise(matrix[:, None], prior.diagonal().max().reshape(1))
    factor = factors[:, 0]
    forward = torch.linalg.solve_triangular(factor, torch.cat([cross, targets], -1), upper=False)
    back = torch.linalg.solve_triangular(factor.mT, forward, upper=True)
    forward, back = (x.reshape(b, k, outputs, outputs + 1) for x in (forward, back))
    v, u = forward[..., :-1], forward[..., -1]  # B = L^-1 [c_1 .. c_P], a = L^-1 t

    def total(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.new_zeros(b, 1, *x.shape[2:]), x.cumsum(1)], 1)[:, ks.clamp(max=k)]

    covariance = prior - total(torch.einsum("bips,bipt->bist", v, v))
    covariance.diagonal(dim1=-2, dim2=-1).clamp_(min=0)
    own = factor.reshape(b, k, outputs, k, outputs).diagonal(dim1=1, dim2=3)  # (b, P, P, k): the blocks L_ii
    innovations = torch.einsum("bpri,bir->bip", own, u)
    quad = innovations.square() / own.square().sum(2).mT
    return BatchedOutputs(
        total(torch.einsum("bips,bip->bis", v, u)), covariance, total(quad), back[..., -1], back[..., :-1], retries
    )


def gradient(
    kernel: Kernel, problem: OutputProblem, result: BatchedOutputs, grads: tuple[torch.Tensor, torch.Tensor]
) -> OutputGradient:
    """Gradients from those by the mean (b, P) and the covariance (b, P, P), symmetric; builds the kernels again."""
    alpha, beta, w = result.alpha, result.beta, problem.mixing
    g_mean, g_covariance = grads
    g_alpha = g_mean[:, None, None, :] * alpha[..., None]
    g_beta = torch.einsum("bst,bipt->bips", g_covariance, beta)
    left, d_cross = g_beta - g_alpha, g_alpha - 2 * g_beta
    d_matrix = torch.einsum("bips,bjrs->bipjr", left, beta)  # dK = (this + its transpose) / 2
    by_lengths, by_mixing = [], []
    by_shape = torch.zeros_like(problem.log_shape)
    for q in range(w.shape[1]):
        g, w_q = _latent(kernel, problem, q), w[:, q]
        by_pair = torch.einsum("bipjr,p,r->bij", d_matrix, w_q, w_q)
        by_near = torch.einsum("bips,p,s->bi", d_cross, w_q, w_q)
        squares = torch.einsum("bij,bijd->d", by_pair * g.pair.slope, g.pairs.square())
        squares = squares + torch.einsum("bi,bid->d", by_near * g.near.slope, g.cross.square())
        by_lengths.append(-2 * squares)
        if g.pair.shape_slope is not None and g.near.shape_slope is not None:
            by_shape = by_shape + (by_pair * g.pair.shape_slope).sum() + (by_near * g.near.shape_slope).sum()
        by_mixing.append(
            torch.einsum("bipjr,bij,r->p", d_matrix, g.pair.value, w_q)
            + torch.einsum("bjrip,bij,r->p", d_matrix, g.pair.value, w_q)
            + torch.einsum("bips,bi,s->p", d_cross, g.near.value, w_q)
            + torch.einsum("bips,bi,p->s", d_cross, g.near.value, w_q)
            + 2 * g_covariance.sum(0) @ w_q
        )
    by_targets = torch.einsum("bips,bs->bip", beta, g_mean)
    return OutputGradient(
        torch.stack(by_lengths), torch.stack(by_mixing, 1), by_shape, by_targets, (left * beta).sum(-1)
    )
