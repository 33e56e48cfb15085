"""The closed form: mean, variance and quad of each row given its neighbours, and their gradient.

For one row x with neighbours S, targets t and noise variances v (docs/notation.md):

    K = k(X_S, X_S) + diag(v) = L L'     c = k(X_S, x)     a = L^-1 t     b = L^-1 c
    mean = a.b     variance = k(x, x) - b.b     quad = a.a

With alpha = L^-T a, beta = L^-T b and incoming gradients (g_m, g_v, g_q) the gradient is of rank three:

    dK = -g_m (alpha beta' + beta alpha')/2 + g_v beta beta' - g_q alpha alpha'
    dc = g_m alpha - 2 g_v beta     dt = g_m beta + 2 g_q alpha     dv = diag(dK)     d k(x, x) = g_v

so nothing of size k x k is kept between forward and backward, and nothing is factorised twice.

C latent functions may share the neighbours and the length scales. Where they share the noises too (R = 1), L and beta
are the same for all, and g_m alpha and g_q alpha alpha' stand for sums over them. Where each has noises and a kernel
scale of its own (R = C), each has its own L, and they share the correlations k / scale^2 and their slopes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nearfield._types import KernelParameters, Moments, Neighbourhood, Problem
from nearfield.conditional import batched, fused
from nearfield.conditional._engines import ENGINES, check_ascending, check_engine, run_engine, tensor
from nearfield.kernels import Kernel

__all__ = ["ENGINES", "condition", "condition_nested"]


def condition(
    kernel: Kernel, parameters: KernelParameters, neighbourhood: Neighbourhood, engine: str = "fused"
) -> Moments:
    """Moments of each row given its neighbours, differentiable by the parameters, targets and noises.

    All (b,) for targets (b, k); for targets (b, k, C), mean and quad are (b, C) and the variance is (b, R).
    """
    n = neighbourhood
    mean, variance, quad, jittered = _Condition.apply(
        parameters.log_lengths, parameters.log_scale, parameters.log_shape, n.targets, n.noises,
        n.query, n.rows, n.ids, kernel, check_engine(engine, n.query),
    )  # fmt: skip
    return Moments(mean, variance, quad, int(jittered))


def condition_nested(
    kernel: Kernel,
    parameters: KernelParameters,
    neighbourhood: Neighbourhood,
    engine: str = "fused",
    *,
    ks: np.ndarray | None = None,
) -> Moments:
    """Moments (b, q): entry i is given the first ks[i] neighbours, or all of a row that has fewer; no gradient.

    ks: (q,) ascending numbers of neighbours; every number 1, 2, .. k if not given. One factorisation serves all. For
    targets (b, k, C), mean and quad are (b, q, C) and the variance is (b, q, R).
    """
    n = neighbourhood
    ks = np.arange(1, n.ids.shape[1] + 1) if ks is None else np.asarray(ks)
    check_ascending(ks)
    with torch.no_grad():
        p = parameters
        problem = _problem(p.log_lengths, p.log_scale, p.log_shape, n.targets, n.noises, n.query, n.rows, n.ids)
        _, result = run_engine(fused, batched, kernel, problem, check_engine(engine, n.query), ks)
    mean, variance, quad = (tensor(x if n.targets.dim() == 3 else x[..., 0]) for x in result[:3])
    return Moments(mean, variance, quad, result.jittered)


def _problem(
    log_lengths: torch.Tensor,
    log_scale: torch.Tensor,
    log_shape: torch.Tensor,
    targets: torch.Tensor,
    noises: torch.Tensor,
    query: torch.Tensor,
    rows: torch.Tensor,
    ids: torch.Tensor,
) -> Problem:
    """With targets (b, k, C), noises (b, k, R) and scale (R,), whichever shapes came."""
    t, v, scale = targets, noises, log_scale.exp()
    t, v = t.unsqueeze(-1) if t.dim() == 2 else t, v.unsqueeze(-1) if v.dim() == 2 else v
    scale = scale.expand(v.shape[-1]) if scale.dim() == 0 else scale
    if t.shape[:-1] != ids.shape or v.shape not in (t.shape, (*ids.shape, 1)) or scale.shape != v.shape[-1:]:
        raise ValueError(
            f"targets {tuple(targets.shape)}, noises {tuple(noises.shape)} and log kernel scale "
            f"{tuple(log_scale.shape)} do not fit neighbours {tuple(ids.shape)}: expected (b, k) or (b, k, C), (b, k) "
            "or (b, k, R) with R = 1 or C, and () or (R,)."
        )
    return Problem(query, rows, log_lengths.exp(), scale, log_shape, ids, t, v)


class _Condition(torch.autograd.Function):
    """Joins the engines to torch. Forward keeps alpha and beta: O(b k (C + R)) numbers."""

    @staticmethod
    def forward(
        ctx: Any,
        log_lengths: torch.Tensor,
        log_scale: torch.Tensor,
        log_shape: torch.Tensor,
        targets: torch.Tensor,
        noises: torch.Tensor,
        query: torch.Tensor,
        rows: torch.Tensor,
        ids: torch.Tensor,
        kernel: Kernel,
        engine: str,
    ) -> Any:
        problem = _problem(log_lengths, log_scale, log_shape, targets, noises, query, rows, ids)
        all_neighbours = np.array([ids.shape[1]])
        ctx.problem, ctx.result = run_engine(
            fused, batched, kernel, problem, engine, all_neighbours, any(ctx.needs_input_grad)
        )
        ctx.kernel, ctx.shapes = kernel, (log_scale.shape, targets.shape, noises.shape)
        ctx.set_materialize_grads(False)  # training has no gradient by quad, which is the dearest
        flat = targets.dim() == 2
        moments = (x.reshape(len(x)) if flat else x.reshape(x.shape[::2]) for x in ctx.result[:3])
        return (*(tensor(x) for x in moments), ctx.result.jittered)

    @staticmethod
    def backward(ctx: Any, *incoming: Any) -> Any:
        given = zip(incoming[:3], ctx.result[:3], strict=True)
        by: batched.Gradient | fused.Gradient
        if isinstance(ctx.result, batched.BatchedResult):
            tensors = ((torch.zeros_like(x) if g is None else g).reshape(x.shape[::2]) for g, x in given)
            by = batched.gradient(ctx.kernel, ctx.problem, ctx.result, tuple(tensors))
        else:
            arrays = (
                np.zeros(x.shape[::2], x.dtype) if g is None else np.ascontiguousarray(g.numpy()).reshape(x.shape[::2])
                for g, x in given
            )
            by = fused.gradient(ctx.problem, ctx.result, tuple(arrays), with_quad=incoming[2] is not None)
        d, (scale_shape, targets_shape, noises_shape) = len(ctx.problem.lengths), ctx.shapes
        gradients = (
            by.kernel[:d],
            by.log_scale.reshape(scale_shape) if scale_shape.numel() == len(by.log_scale) else by.log_scale.sum(),
            by.kernel[d:],
            by.targets.reshape(targets_shape),
            by.noises.reshape(noises_shape),
        )
        return *(tensor(x) for x in gradients), *(None,) * 5
