"""The closed form: mean, variance and quad of each row given its neighbours, and their gradient.

For one row x with neighbours S, targets t and noise variances v (docs/notation.md):

    K = k(X_S, X_S) + diag(v) = L L'     c = k(X_S, x)     a = L^-1 t     b = L^-1 c
    mean = a.b     variance = k(x, x) - b.b     quad = a.a

With alpha = L^-T a, beta = L^-T b and incoming gradients (g_m, g_v, g_q) the gradient is of rank three:

    dK = -g_m (alpha beta' + beta alpha')/2 + g_v beta beta' - g_q alpha alpha'
    dc = g_m alpha - 2 g_v beta     dt = g_m beta + 2 g_q alpha     dv = diag(dK)     d k(x, x) = g_v

so nothing of size k x k is kept between forward and backward, and nothing is factorised twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nearfield._types import KernelParameters, Moments, Neighbourhood, Problem
from nearfield.conditional import batched, fused
from nearfield.kernels import Kernel

ENGINES = ("fused", "batched")


def condition(
    kernel: Kernel, parameters: KernelParameters, neighbourhood: Neighbourhood, engine: str = "fused"
) -> Moments:
    """Moments (b,) of each row given its neighbours, differentiable by the parameters, targets and noises."""
    n = neighbourhood
    mean, variance, quad, jittered = _Condition.apply(
        parameters.log_lengths, parameters.log_scale, parameters.log_shape, n.targets, n.noises,
        n.query, n.rows, n.ids, kernel, _check_engine(engine, n),
    )  # fmt: skip
    return Moments(mean, variance, quad, int(jittered))


def condition_nested(
    kernel: Kernel, parameters: KernelParameters, neighbourhood: Neighbourhood, engine: str = "fused"
) -> Moments:
    """Moments (b, k): entry k' - 1 is given the first k' neighbours. One factorisation serves all; no gradient."""
    n = neighbourhood
    with torch.no_grad():
        lengths, scale = parameters.log_lengths.exp(), parameters.log_scale.exp()
        problem = Problem(n.query, n.rows, lengths, scale, parameters.log_shape, n.ids, n.targets, n.noises)
        if _check_engine(engine, n) == "batched":
            r = batched.run(kernel, problem, nested=True)
            return Moments(r.mean, r.variance, r.quad, r.jittered)
        f = fused.run(kernel, _in_numpy(problem), nested=True)
        return Moments(torch.from_numpy(f.mean), torch.from_numpy(f.variance), torch.from_numpy(f.quad), f.jittered)


def _check_engine(engine: str, n: Neighbourhood) -> str:
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: expected one of {', '.join(ENGINES)}.")
    return engine if n.query.device.type == "cpu" else "batched"


def _in_numpy(problem: Problem) -> Problem:
    return Problem(*(np.ascontiguousarray(t.detach().numpy()) for t in problem))


class _Condition(torch.autograd.Function):
    """Joins the engines to torch. Forward keeps alpha, beta and the fused engine's Jacobian: O(b (k + d)) numbers."""

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
        problem = Problem(query, rows, log_lengths.exp(), log_scale.exp(), log_shape, ids, targets, noises)
        ctx.kernel, ctx.problem = kernel, problem
        if engine == "batched":
            ctx.result = batched.run(kernel, problem)
            moments = ctx.result[:3]
        else:
            ctx.problem = _in_numpy(problem)
            ctx.result = fused.run(kernel, ctx.problem, differentiate=any(ctx.needs_input_grad))
            moments = (torch.from_numpy(x) for x in ctx.result[:3])
        return (*moments, ctx.result.jittered)

    @staticmethod
    def backward(ctx: Any, *incoming: Any) -> Any:
        grads = incoming[:3]
        if isinstance(ctx.result, batched.BatchedResult):
            by_kernel, by_log_scale, by_targets, by_noises = batched.gradient(
                ctx.kernel, ctx.problem, ctx.result, grads
            )
        else:
            g = fused.gradient(ctx.result, ctx.problem.noises, *(np.ascontiguousarray(x.numpy()) for x in grads))
            by_kernel, by_targets, by_noises = (torch.from_numpy(x) for x in (g.kernel, g.targets, g.noises))
            by_log_scale = torch.as_tensor(g.log_scale, dtype=by_kernel.dtype)
        d = len(ctx.problem.lengths)
        return by_kernel[:d], by_log_scale, by_kernel[d:], by_targets, by_noises, None, None, None, None, None
