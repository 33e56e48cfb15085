"""The closed form of several outputs that share latent functions: the linear model of coregionalisation.

P outputs are mixtures of Q latent functions, f_p = sum_q W[p, q] g_q, each with a kernel k_q of scale one and length
scales of its own. The observations of one row x are those of its neighbours, in the order (neighbour, output):

    K = sum_q (W_q W_q') k_q(X_S, X_S) + diag(v) = L L'     c_s = cov(f_s(x), f(X_S))     C0 = W W'
    a = L^-1 t     B = L^-1 [c_1 .. c_P]     mean = B' a     covariance = C0 - B' B

With L_ii the diagonal block of neighbour i, e_i = L_ii a_i is what its outputs add to the neighbours before it, with
variances s_ip = (L_ii L_ii')_pp; quad_p = sum_i e_ip^2 / s_ip. Where W is diagonal, mean, variances and quad are those
of P models apart.

With alpha = K^-1 t, beta_s = K^-1 c_s and incoming gradients g (P,) and G (P, P), made symmetric, dK is of rank 2P:

    v_s = sum_t G_st beta_t - g_s alpha     dK = sum_s (beta_s v_s' + v_s beta_s') / 2     d C0 = G
    dc_s = g_s alpha - 2 sum_t G_st beta_t     dt = sum_s g_s beta_s     d noises = diag(dK)

An output that was not observed has target 0 and a noise variance of MISSING.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nearfield._types import Neighbourhood
from nearfield.conditional import _batched_blocks, _blocks
from nearfield.conditional._batched_blocks import OutputGradient, OutputProblem
from nearfield.conditional._engines import check_ascending, check_engine, run_engine, tensor
from nearfield.kernels import Kernel

MISSING = 1e30  # noise variance of an output that was not observed; its square is not needed, so float32 holds it


@dataclass(frozen=True)
class OutputMoments:
    """Mean (b, P), covariance (b, P, P) and quad (b, P) of the outputs; (b, q, ..) for q numbers of neighbours.

    jittered: how many rows needed extra jitter before their matrix could be factorised.
    """

    mean: torch.Tensor
    covariance: torch.Tensor
    quad: torch.Tensor
    jittered: int = 0


def condition_outputs(
    kernel: Kernel,
    log_lengths: torch.Tensor,
    mixing: torch.Tensor,
    log_shape: torch.Tensor,
    neighbourhood: Neighbourhood,
    engine: str = "fused",
) -> OutputMoments:
    """Moments of each row given its neighbours; log_lengths (Q, d), mixing (P, Q), targets and noises (b, k, P).

    Mean and covariance are differentiable by all of these and by log_shape (p,), quad is not.
    """
    n = neighbourhood
    mean, covariance, quad, jittered = _Condition.apply(
        log_lengths,
        mixing,
        log_shape,
        n.targets,
        n.noises,
        n.query,
        n.rows,
        n.ids,
        kernel,
        check_engine(engine, n.query),
    )
    return OutputMoments(mean, covariance, quad, int(jittered))


def condition_outputs_nested(
    kernel: Kernel,
    log_lengths: torch.Tensor,
    mixing: torch.Tensor,
    log_shape: torch.Tensor,
    neighbourhood: Neighbourhood,
    engine: str = "fused",
    *,
    ks: np.ndarray,
) -> OutputMoments:
    """Moments (b, q, ..): entry i is given the first ks[i] neighbours, or all of a row that has fewer; no gradient.

    ks: (q,) ascending numbers of neighbours. One factorisation serves all.
    """
    n, ks = neighbourhood, np.asarray(ks)
    check_ascending(ks)
    with torch.no_grad():
        problem = _problem(log_lengths, mixing, log_shape, n.targets, n.noises, n.query, n.rows, n.ids)
        _, result = run_engine(_blocks, _batched_blocks, kernel, problem, check_engine(engine, n.query), ks)
    mean, covariance, quad = (tensor(x) for x in result[:3])
    return OutputMoments(mean, covariance, quad, result.jittered)


def _problem(
    log_lengths: torch.Tensor,
    mixing: torch.Tensor,
    log_shape: torch.Tensor,
    targets: torch.Tensor,
    noises: torch.Tensor,
    query: torch.Tensor,
    rows: torch.Tensor,
    ids: torch.Tensor,
) -> OutputProblem:
    expected = (*ids.shape, len(mixing))
    if targets.shape != expected or noises.shape != expected:
        raise ValueError(
            f"targets {tuple(targets.shape)} and noises {tuple(noises.shape)} do not fit neighbours "
            f"{tuple(ids.shape)} and mixing {tuple(mixing.shape)}: expected (b, k, P), (b, k, P), (b, k) and (P, Q)."
        )
    d = query.shape[-1]
    if log_lengths.shape != (mixing.shape[1], d) or rows.shape[1] != d or query.shape != (len(ids), d):
        raise ValueError(
            f"log length scales {tuple(log_lengths.shape)}, query {tuple(query.shape)} and rows {tuple(rows.shape)} "
            f"do not fit mixing {tuple(mixing.shape)}: expected (Q, d), (b, d), (n, d) and (P, Q)."
        )
    rows, lengths, mixing, log_shape, targets, noises = (
        x.to(query.dtype) for x in (rows, log_lengths.exp(), mixing, log_shape, targets, noises)
    )
    return OutputProblem(query, rows, lengths, mixing, log_shape, ids, targets, noises)


class _Condition(torch.autograd.Function):
    """Joins the engines to torch. Forward keeps alpha and beta: O(b k P (P + 1)) numbers."""

    @staticmethod
    def forward(
        ctx: Any,
        log_lengths: torch.Tensor,
        mixing: torch.Tensor,
        log_shape: torch.Tensor,
        targets: torch.Tensor,
        noises: torch.Tensor,
        query: torch.Tensor,
        rows: torch.Tensor,
        ids: torch.Tensor,
        kernel: Kernel,
        engine: str,
    ) -> Any:
        problem = _problem(log_lengths, mixing, log_shape, targets, noises, query, rows, ids)
        every, differentiate = np.array([ids.shape[1]]), any(ctx.needs_input_grad)
        ctx.problem, ctx.result = run_engine(_blocks, _batched_blocks, kernel, problem, engine, every, differentiate)
        ctx.kernel = kernel
        mean, covariance, quad = (tensor(x[:, 0]) for x in ctx.result[:3])
        ctx.mark_non_differentiable(quad)
        return mean, covariance, quad, ctx.result.jittered

    @staticmethod
    def backward(ctx: Any, *incoming: Any) -> Any:
        g_mean, g_covariance = incoming[0], (incoming[1] + incoming[1].mT) / 2
        by: OutputGradient
        if isinstance(ctx.result, _batched_blocks.BatchedOutputs):
            by = _batched_blocks.gradient(ctx.kernel, ctx.problem, ctx.result, (g_mean, g_covariance))
        else:
            arrays = np.ascontiguousarray(g_mean.numpy()), np.ascontiguousarray(g_covariance.numpy())
            by = _blocks.gradient(ctx.problem, ctx.result, arrays)
        return *(tensor(x) for x in by), *(None,) * 5
