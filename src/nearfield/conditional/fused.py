"""The closed form on the CPU: each neighbourhood is built, factorised and differentiated inside the cache.

For one row, the k x k matrix K lies in the columns of a workspace with further rows below it: the cross-covariances c,
and the targets t of every latent function that shares the noises. Factorising the columns of K then turns these rows
into b' = (L^-1 c)' and a' = (L^-1 t)' on the way. Rows are padded with the identity to a multiple of LANES, which
changes nothing; so are missing neighbours. Latent functions with noises of their own share the correlations alone.

The backward pass takes alpha and beta from the forward pass, builds the slopes of the correlations again, a few columns
at a time, and contracts them once with the weights of all latent functions together. For a single latent function this
costs more than it saves: there the forward pass writes the Jacobian of mean and variance, (2, d) numbers a row, while
the slopes are still in the cache, and only a gradient by quad, which training never asks for, needs the slopes again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield._simd import COLUMNS, LANES, PANEL
from nearfield._threads import in_threads
from nearfield._types import Problem
from nearfield.conditional._cholesky import FLAGS, factorise, solve_back
from nearfield.conditional._slopes import (
    contract_slopes,
    correlations,
    count_neighbours,
    cross_correlations,
    gather,
    jacobian,
    shape_jacobian,
)
from nearfield.kernels import Kernel

_MOST_JITTER = 1e3  # relative to the kernel's variance: enough for any finite matrix


@njit(**FLAGS)
def _aligned(size, dtype):
    """An empty array that begins where a cache line does."""
    array = np.empty(size + 16, dtype)
    first = (64 - array.ctypes.data % 64) % 64 // array.itemsize
    return array[first : first + size]


@njit(**FLAGS)
def _copy(base, ld, n, m, a):
    """The lower triangle of the columns 0 .. n, as `correlations` fills it."""
    for j in range(n):
        for i in range(j * ld + (j // LANES) * LANES, j * ld + m):
            a[i] = base[i]


@njit(**FLAGS)
def _complete(a, ld, n, m, below, ridge, cross, targets, first, count):
    """The diagonal and the rows below: the cross-covariances in row m, `count` targets after it, then zeros.

    `ridge` is noise / scale^2 for each neighbour; the targets are the columns first .. first + count of (k, C).
    """
    for j in range(n):
        last = j * ld + m
        for i in range(below):
            a[last + i] = 0
        a[j * ld + j] = 1 + ridge[j]
        a[last] = cross[j]
        for t in range(count):
            a[last + 1 + t] = targets[j, first + t]
    for j in range(n, m):
        for i in range((j // LANES) * LANES, m + below):
            a[j * ld + i] = 0
        a[j * ld + j] = 1


@njit(**FLAGS)
def _sum_up(a, ld, n, m, side, scale2, ks, mean, variance, quad):
    """Moments from running sums of a * b, b * b, a * a, given the first ks[0], ks[1], .. neighbours, or all n."""
    ab, bb, aa = 0.0, 0.0, 0.0
    j = 0
    for i in range(ks.size):
        while j < min(ks[i], n):
            v, u = a[j * ld + m], a[j * ld + side]
            ab += u * v
            bb += v * v
            aa += u * u
            j += 1
        mean[i], variance[i], quad[i] = ab, scale2 * max(1 - bb, 0.0), aa / scale2


@compiled(**FLAGS)
def _forward(
    code,
    shape,
    rows,
    inverse_lengths,
    scale2,
    query,
    ids,
    targets,
    noises,
    ks,
    jitter,
    differentiate,
    mean,
    variance,
    quad,
    alpha,
    beta,
    jacobians,
    jittered,
):
    """The closed form for a range of rows; see `FusedResult` for the outputs."""
    b, k, latents = targets.shape
    factors = scale2.size
    count = latents // factors  # targets of one factorisation
    d = query.shape[1]
    dtype = query.dtype
    kp = (k + LANES - 1) // LANES * LANES
    below = (count + LANES) // LANES * LANES
    ld = kp + below
    keep = ld if jacobians.size else 0
    kept = max(kp * keep, ld)
    a = _aligned(kp * ld, dtype)
    base = _aligned(kp * ld if factors > 1 else 0, dtype)
    x = _aligned(d * ld, dtype)
    slope, shape_slope = _aligned(kept, dtype), _aligned(kept, dtype)
    cross, cross_slope, cross_shape_slope = _aligned(ld, dtype), _aligned(ld, dtype), _aligned(ld, dtype)
    r2, ridge = _aligned(ld, dtype), _aligned(kp, dtype)
    inverse = np.empty(PANEL, dtype)
    lines = _aligned(kp * LANES, dtype)
    solved = _aligned((count + 1) * kp, dtype).reshape(count + 1, kp)
    weights = _aligned((2 * COLUMNS + 1) * ld, dtype)
    sums = _aligned(d * 2 * LANES, dtype)
    for r in range(b):
        n = count_neighbours(ids[r])
        m = (n + LANES - 1) // LANES * LANES
        gather(rows, query[r], inverse_lengths, ids[r], n, m, ld, x)
        cross_correlations(code, shape, x, ld, d, m, cross, cross_slope, cross_shape_slope, r2)
        if factors > 1:
            correlations(code, shape, x, ld, d, n, m, base, slope, shape_slope, keep, r2)
        for f in range(factors):
            first = f * count
            extra, done = dtype.type(0), False
            while not done and extra < _MOST_JITTER:
                for i in range(n):
                    ridge[i] = noises[r, i, f] / scale2[f] + extra
                if factors > 1:
                    _copy(base, ld, n, m, a)
                else:
                    correlations(code, shape, x, ld, d, n, m, a, slope, shape_slope, keep, r2)
                _complete(a, ld, n, m, below, ridge, cross, targets[r], first, count)
                done = factorise(a, ld, m, below, inverse)
                if not done:
                    extra = max(jitter, extra * 10)
                    jittered[r] += 1
            if not done:  # the matrix was not finite
                a[:] = np.nan
            for t in range(count):
                c = first + t
                _sum_up(a, ld, n, m, m + 1 + t, scale2[f], ks, mean[r, :, c], variance[r, :, f], quad[r, :, c])
            if differentiate:
                solve_back(a, ld, m, count + 1, lines, solved)
                for i in range(k):
                    beta[r, f, i] = solved[0, i] if i < n else 0
                for t in range(count):
                    for i in range(k):
                        alpha[r, first + t, i] = solved[t + 1, i] / scale2[f] if i < n else 0
        if keep:
            full_beta, full_alpha, out = solved[0], solved[1], jacobians[r]
            jacobian(x, ld, d, n, m, slope, cross_slope, full_alpha, full_beta, scale2[0], weights, sums, out)
            if shape.size:
                shape_jacobian(ld, n, shape_slope, cross_shape_slope, full_alpha, full_beta, scale2[0], out[:, d])


@njit(**FLAGS)
def _without_kernel(n, ld, count, noises, alpha, beta, variance, quad, gm, gv, gq, u, dt, dv, by_log_scale):
    """dt, dv and the gradient by the log kernel scales, which need no kernel; u = g_v beta - g_m alpha on the way."""
    for f in range(by_log_scale.size):
        b, w = beta[f], u[f * ld : (f + 1) * ld]
        share = gv[f] * variance[f]
        for i in range(n):
            w[i] = gv[f] * b[i]
            dv[i, f] = 0
        for c in range(f * count, (f + 1) * count):
            a, g, q = alpha[c], gm[c], gq[c]
            share -= q * quad[c]
            for i in range(n):
                w[i] -= g * a[i]
                dt[i, c] = g * b[i] + 2 * q * a[i]
            if q != 0:
                for i in range(n):
                    dv[i, f] -= q * a[i] * a[i]
        for i in range(n):
            dv[i, f] += w[i] * b[i]
            share -= dv[i, f] * noises[i, f]
        # scaling kernel and noises together scales variance by s and quad by 1/s; the noises' share is undone
        by_log_scale[f] = 2 * share
    for i in range(n, len(dt)):
        dt[i], dv[i] = 0, 0


@njit(**FLAGS)
def _by_correlations(n, m, ld, count, scale2, alpha, beta, gv, gq, pairs, u, v, dc):
    """dK = sum_p u_p v_p' + v_p u_p' and dc, summed over the latent functions; u as `_without_kernel` leaves it."""
    dc[:m] = 0
    for p in range(pairs):
        f = p if p < scale2.size else (p - scale2.size) // count
        for i in range(n):
            place = p * ld + i
            if p < scale2.size:  # g_v beta beta' - g_m (alpha beta' + beta alpha') / 2
                dc[i] -= scale2[f] * (u[place] + gv[f] * beta[f, i])
                u[place], v[place] = scale2[f] * u[place] / 2, beta[f, i]
            else:  # -g_q alpha alpha'
                a = alpha[p - scale2.size, i]
                u[place], v[place] = -scale2[f] * gq[p - scale2.size] * a / 2, a
        for i in range(p * ld + n, p * ld + m):
            u[i], v[i] = 0, 0


@compiled(**FLAGS)
def _backward(
    code,
    shape,
    rows,
    inverse_lengths,
    scale2,
    query,
    ids,
    noises,
    variance,
    quad,
    alpha,
    beta,
    jacobians,
    g_mean,
    g_variance,
    g_quad,
    with_quad,
    d_targets,
    d_noises,
    d_parameters,
):
    """The gradients of a range of rows; see `gradient`."""
    b, k, factors = noises.shape
    d = query.shape[1]
    dtype = query.dtype
    ld = (k + LANES - 1) // LANES * LANES + LANES
    count = alpha.shape[1] // factors
    pairs = factors + (alpha.shape[1] if with_quad else 0)
    x = _aligned(d * ld, dtype)
    value, r2 = _aligned(ld, dtype), _aligned(ld, dtype)
    slope, shape_slope = _aligned(COLUMNS * ld, dtype), _aligned(COLUMNS * ld, dtype)
    sums = _aligned(d * LANES, dtype)
    u, v, dc = _aligned(pairs * ld, dtype), _aligned(pairs * ld, dtype), _aligned(ld, dtype)
    for r in range(b):
        n = count_neighbours(ids[r])
        m = (n + LANES - 1) // LANES * LANES
        d_kernel = d_parameters[r, factors:]
        _without_kernel(
            n, ld, count, noises[r], alpha[r], beta[r], variance[r], quad[r], g_mean[r], g_variance[r], g_quad[r],
            u, d_targets[r], d_noises[r], d_parameters[r, :factors],
        )  # fmt: skip
        if jacobians.size and not with_quad:
            for e in range(d_kernel.size):
                d_kernel[e] = g_mean[r, 0] * jacobians[r, 0, e] + g_variance[r, 0] * jacobians[r, 1, e]
        else:
            _by_correlations(
                n, m, ld, count, scale2, alpha[r], beta[r], g_variance[r], g_quad[r], pairs, u, v, dc
            )  # fmt: skip
            gather(rows, query[r], inverse_lengths, ids[r], n, m, ld, x)
            contract_slopes(
                code, shape, x, ld, d, n, m, u, v, pairs, dc, value, slope, shape_slope, r2, sums, d_kernel
            )  # fmt: skip


class Gradient(NamedTuple):
    """By log length scales and log shapes (d + p,), log kernel scales (R,), targets (b, k, C) and noises (b, k, R)."""

    kernel: np.ndarray
    log_scale: np.ndarray
    targets: np.ndarray
    noises: np.ndarray


class FusedResult(NamedTuple):
    """Moments for each of ks, and what the backward pass needs: O(b k (C + R)) numbers, none unless asked for."""

    mean: np.ndarray  # (b, q, C)
    variance: np.ndarray  # (b, q, R)
    quad: np.ndarray  # (b, q, C)
    alpha: np.ndarray  # (b, C, k) K^-1 t
    beta: np.ndarray  # (b, R, k) K^-1 c
    jacobian: np.ndarray  # (b, 2, d + p): of mean and variance by log length scales and log shapes; for C = 1 only
    jittered: int
    constants: tuple[Any, ...]  # the kernel's code, shapes (p,), all rows, 1 / length (d,) and kernel variances (R,)


_JITTER = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-5}  # first retry, relative to the kernel's variance
_SMALLEST_CHUNK = 16  # rows: below it, starting a thread costs more than it saves


def run(kernel: Kernel, problem: Problem, ks: np.ndarray, *, differentiate: bool = False) -> FusedResult:
    """The closed form given the first ks (q,) neighbours, in the precision of the query, its rows shared among threads.

    Each row's numbers depend on that row alone, so the answer has the same bits for any number of threads. The compiled
    code runs without the interpreter's lock on threads of our own: Numba's threading layers are not safe to enter from
    several Python threads at once.
    """
    query, ids, targets, noises = problem.query, problem.ids, problem.targets, problem.noises
    if ids.size and int(ids.max()) >= len(problem.rows):  # compiled code would read foreign memory
        raise IndexError(f"neighbour {int(ids.max())} does not exist: there are {len(problem.rows)} rows.")
    if problem.log_shape.size != len(kernel.shapes):
        raise ValueError(f"{problem.log_shape.size} log shapes for a kernel that has {len(kernel.shapes)}.")
    (b, k, latents), factors, dtype = targets.shape, noises.shape[-1], query.dtype
    kept = b if differentiate else 0
    alpha, beta = np.empty((kept, latents, k), dtype), np.empty((kept, factors, k), dtype)
    jacobians = np.empty((kept if latents == 1 else 0, 2, query.shape[1] + problem.log_shape.size), dtype)
    mean, variance, quad = (np.empty((b, len(ks), last), dtype) for last in (latents, factors, latents))
    jittered = np.zeros(b, np.int64)
    shape, inverse = np.exp(problem.log_shape).astype(dtype), (1 / problem.lengths).astype(dtype)
    constants = (kernel.code, shape, problem.rows, inverse, np.square(problem.scale).astype(dtype))
    ks = ks.astype(np.int64)

    def part(start: int, stop: int) -> None:
        piece = slice(start, stop)
        _forward(
            *constants, query[piece], ids[piece], targets[piece], noises[piece], ks, dtype.type(_JITTER[dtype]),
            differentiate, mean[piece], variance[piece], quad[piece], alpha[piece], beta[piece],
            jacobians[piece], jittered[piece],
        )  # fmt: skip

    in_threads(part, b, _SMALLEST_CHUNK)
    return FusedResult(mean, variance, quad, alpha, beta, jacobians, int(np.count_nonzero(jittered)), constants)


def gradient(problem: Problem, result: FusedResult, grads: tuple[np.ndarray, ...], with_quad: bool) -> Gradient:
    """Gradients from those by the moments, (b, C), (b, R) and (b, C), the last zero unless `with_quad`.

    Every row has gradients of its own, which are summed in the order of the rows: for any number of threads the same.
    """
    query, ids, noises = problem.query, problem.ids, problem.noises
    variance, quad = result.variance[:, 0], result.quad[:, 0]
    by_targets, by_noises = np.empty_like(problem.targets), np.empty_like(noises)
    factors, d = noises.shape[-1], query.shape[1]
    by_parameters = np.empty((len(query), factors + d + problem.log_shape.size), query.dtype)

    def part(start: int, stop: int) -> None:
        piece = slice(start, stop)
        _backward(
            *result.constants, query[piece], ids[piece], noises[piece], variance[piece], quad[piece],
            result.alpha[piece], result.beta[piece], result.jacobian[piece], *(g[piece] for g in grads), with_quad,
            by_targets[piece], by_noises[piece], by_parameters[piece],
        )  # fmt: skip

    if result.jacobian.size and not with_quad:  # takes less time than sharing it out
        part(0, len(query))
    else:
        in_threads(part, len(query), _SMALLEST_CHUNK)
    total = by_parameters.sum(0)
    return Gradient(total[factors:], total[:factors], by_targets, by_noises)
