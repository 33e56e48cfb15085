"""The closed form on the CPU: each neighbourhood is built, factorised and differentiated inside the cache.

For one row, the k x k matrix K lies in the columns of a workspace with two more rows below it, the targets t and the
cross-covariances c. Factorising the columns of K then turns these two rows into a' = (L^-1 t)' and b' = (L^-1 c)' on
the way. Rows are padded with the identity to a multiple of LANES, which changes nothing; so are missing neighbours.

The length scales' gradient is linear in the incoming gradients (g_mean, g_variance, g_quad), so the forward pass writes
the Jacobian of the three moments, (3, d) numbers a row, while the neighbourhood is still in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield._simd import (
    LANES,
    PANEL,
    contract_1,
    contract_4,
    eliminate_1,
    eliminate_2,
    eliminate_3,
    pair_weights,
    panel_dots,
    squares_1,
    squares_4,
    update_1,
)
from nearfield._threads import in_threads
from nearfield._types import Problem
from nearfield.kernels import Kernel, evaluate_profile

_FLAGS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
_MOST_JITTER = 1e3  # relative to the kernel's variance: enough for any finite matrix
_TOGETHER = 4  # columns whose weights are kept at a time while the gradient is summed; divides LANES


@njit(**_FLAGS)
def _factorise_diagonal(a, ld, j0, inverse):
    """Cholesky of the PANEL x PANEL block at (j0, j0), in place; False if it is not positive definite."""
    for j in range(j0, j0 + PANEL):
        pivot = a[j * ld + j]
        for p in range(j0, j):
            pivot -= a[p * ld + j] * a[p * ld + j]
        if not pivot > 0:
            return False
        root = np.sqrt(pivot)
        a[j * ld + j] = root
        inverse[j - j0] = 1 / root
        for i in range(j + 1, j0 + PANEL):
            rest = a[j * ld + i]
            for p in range(j0, j):
                rest -= a[p * ld + i] * a[p * ld + j]
            a[j * ld + i] = rest * inverse[j - j0]
    return True


@njit(**_FLAGS)
def _factorise(a, ld, m, inverse):
    """Cholesky of the m x m matrix in `a`, with the LANES rows below it; False if it is not positive definite."""
    for j in range(0, m, PANEL):
        update_1(a, ld, j, j, inverse)
        if not _factorise_diagonal(a, ld, j, inverse):
            return False
        i = j + PANEL
        while i + 3 * LANES <= m + LANES:
            eliminate_3(a, ld, i, j, inverse)
            i += 3 * LANES
        if i + 2 * LANES <= m + LANES:
            eliminate_2(a, ld, i, j, inverse)
        elif i + LANES <= m + LANES:
            eliminate_1(a, ld, i, j, inverse)
    return True


@njit(**_FLAGS)
def _squared_distances(x, ld, d, j, start, stop, r2):
    """r2[i] = sum_e (x[e, i] - x[e, j])^2 for i in start .. stop, both multiples of LANES."""
    i = start
    while i + 4 * LANES <= stop:
        squares_4(x, ld, d, j, i, r2)
        i += 4 * LANES
    while i < stop:
        squares_1(x, ld, d, j, i, r2)
        i += LANES


@njit(**_FLAGS)
def _gather(rows, query, inverse_lengths, ids, n, m, ld, x):
    """x[e, i] = scaled coordinate e of neighbour i < n relative to the query; zero beyond, so at m, the query."""
    d = query.shape[0]
    for i in range(n):
        row = np.uint64(ids[i])  # unsigned, or Numba looks at every index for a negative one
        for e in range(d):
            x[np.uint64(e * ld + i)] = (rows[row, np.uint64(e)] - query[e]) * inverse_lengths[e]
    for e in range(d):
        for i in range(n, m + LANES):
            x[np.uint64(e * ld + i)] = 0


@njit(**_FLAGS)
def _build(code, shape, x, ld, d, n, m, targets, ridge, a, slope, shape_slope, r2):
    """Fill the lower triangle of K / scale^2 and the rows t, c below it; slopes are zero on and above the diagonal.

    `ridge` is noise / scale^2 for each neighbour; row m of column j holds the target, row m + 1 the cross-covariance.
    The cross-covariances' slopes go to column m of `slope`.
    """
    for j in range(n):
        start, place = (j // LANES) * LANES, j * ld
        first, last = place + start, place + m
        _squared_distances(x, ld, d, j, start, m, r2)
        evaluate_profile(code, shape, r2[start:], m - start, a[first:last], slope[first:last], shape_slope[first:])
        for i in range(n, m):
            a[place + i] = 0
            slope[place + i] = 0
        for i in range(start, j + 1):
            slope[place + i] = 0
        for i in range(LANES):
            a[last + i] = 0
        a[place + j] = 1 + ridge[j]
        a[last] = targets[j]
    for j in range(n, m):
        for i in range((j // LANES) * LANES, m + LANES):
            a[j * ld + i] = 0
        a[j * ld + j] = 1
    _squared_distances(x, ld, d, m, 0, m, r2)
    cross, cross_slope = r2[ld : 2 * ld], slope[m * ld : m * ld + ld]
    evaluate_profile(code, shape, r2, m, cross, cross_slope, shape_slope[m * ld :])
    for j in range(n):
        a[j * ld + m + 1] = cross[j]
    for j in range(n, m):
        cross_slope[j] = 0


@njit(**_FLAGS)
def _solve_back(a, ld, m, alpha, beta, dots):
    """alpha = L^-T a and beta = L^-T b from the rows m and m + 1, panel by panel from the last; zero in the padding."""
    for j0 in range(m - PANEL, -1, -PANEL):
        panel_dots(a, ld, j0, j0 + PANEL, m, alpha, beta, dots)
        for j in range(j0 + PANEL - 1, j0 - 1, -1):
            u, v = a[j * ld + m], a[j * ld + m + 1]
            place = (j - j0) * 2 * LANES
            for lane in range(LANES):
                u -= dots[place + lane]
                v -= dots[place + LANES + lane]
            for i in range(j + 1, j0 + PANEL):
                u -= a[j * ld + i] * alpha[i]
                v -= a[j * ld + i] * beta[i]
            alpha[j] = u / a[j * ld + j]
            beta[j] = v / a[j * ld + j]


@njit(**_FLAGS)
def _cross_weights(cross_slope, alpha, beta, m, ld, weights):
    """The same weights for the squared distances to the query."""
    for i in range(m):
        weights[i] = -cross_slope[i] * alpha[i]
        weights[ld + i] = -cross_slope[i] * beta[i]
        weights[2 * ld + i] = 0


@njit(**_FLAGS)
def _contract_all(x, ld, d, j, columns, start, m, weights, sums):
    e = 0
    while e + 4 <= d:
        contract_4(x, ld, e, j, columns, start, m, weights, sums)
        e += 4
    while e < d:
        contract_1(x, ld, e, j, columns, start, m, weights, sums)
        e += 1


@njit(**_FLAGS)
def _jacobian(x, ld, d, n, m, slope, alpha, beta, scale2, weights, sums, out):
    """out[w, e] = d (mean, variance, quad)[w] / d log length[e], from d r2 / d log length = -2 (difference)^2."""
    sums[: d * 3 * LANES] = 0
    for j in range(0, n, _TOGETHER):
        start = (j // LANES) * LANES
        columns = min(_TOGETHER, n - j)
        for c in range(columns):
            pair_weights(slope, (j + c) * ld, ld, j + c, start, m, alpha, beta, weights, c * 3 * ld)
        _contract_all(x, ld, d, j, columns, start, m, weights, sums)
    _cross_weights(slope[m * ld : m * ld + ld], alpha, beta, m, ld, weights)
    _contract_all(x, ld, d, m, 1, 0, m, weights, sums)
    for e in range(d):
        for w in range(3):
            total = sums.dtype.type(0)
            for lane in range(LANES):
                total += sums[(e * 3 + w) * LANES + lane]
            out[w, e] = total * 2 if w == 0 else (total * -4 * scale2 if w == 1 else total * 4 / scale2)


@njit(**_FLAGS)
def _shape_jacobian(ld, n, m, shape_slope, alpha, beta, scale2, out):
    """out[w] = d (mean, variance, quad)[w] / d log shape."""
    t0, t1, t2 = 0.0, 0.0, 0.0
    for j in range(n):
        for i in range(j + 1, n):
            h = shape_slope[j * ld + i]
            t0 -= h * (alpha[i] * beta[j] + beta[i] * alpha[j])
            t1 += 2 * h * beta[i] * beta[j]
            t2 -= 2 * h * alpha[i] * alpha[j]
        h = shape_slope[m * ld + j]
        t0 += h * alpha[j]
        t1 -= 2 * h * beta[j]
    out[0], out[1], out[2] = t0, t1 * scale2, t2 / scale2


@njit(**_FLAGS)
def _sum_up(a, ld, n, m, scale2, mean, variance, quad):
    """Moments from running sums of a * b, b * b, a * a: given the first 1, 2, .. k neighbours, or all (one number)."""
    ab, bb, aa = 0.0, 0.0, 0.0
    last = mean.size - 1
    for j in range(max(n, mean.size)):
        if j < n:
            u, v = a[j * ld + m], a[j * ld + m + 1]
            ab += u * v
            bb += v * v
            aa += u * u
        place = min(j, last)
        mean[place], variance[place], quad[place] = ab, scale2 * max(1 - bb, 0.0), aa / scale2


@compiled(**_FLAGS)
def _rows(
    code,
    shape,
    query,
    rows,
    inverse_lengths,
    scale2,
    ids,
    targets,
    noises,
    jitter,
    differentiate,
    mean,
    variance,
    quad,
    alpha,
    beta,
    jacobian,
    jittered,
):
    """The closed form for a range of rows; see `FusedResult` for the outputs."""
    b, k = ids.shape
    d = query.shape[1]
    dtype = query.dtype
    kp = (k + LANES - 1) // LANES * LANES
    ld = kp + LANES
    a = np.empty(kp * ld, dtype)
    slope = np.empty((kp + 1) * ld, dtype)
    shape_slope = np.empty((kp + 1) * ld if shape.size else 0, dtype)
    x = np.empty(d * ld, dtype)
    r2 = np.empty(2 * ld, dtype)
    weights = np.empty(_TOGETHER * 3 * ld, dtype)
    sums = np.empty(d * 3 * LANES, dtype)
    inverse = np.empty(PANEL, dtype)
    dots = np.empty(PANEL * 2 * LANES, dtype)
    ridge = np.empty(kp, dtype)
    full_alpha, full_beta = np.empty(kp, dtype), np.empty(kp, dtype)
    for r in range(b):
        n = 0
        while n < k and ids[r, n] >= 0:
            n += 1
        m = (n + LANES - 1) // LANES * LANES
        _gather(rows, query[r], inverse_lengths, ids[r], n, m, ld, x)
        extra, done = dtype.type(0), False
        while not done and extra < _MOST_JITTER:
            for i in range(n):
                ridge[i] = noises[r, i] / scale2 + extra
            _build(code, shape, x, ld, d, n, m, targets[r], ridge, a, slope, shape_slope, r2)
            done = _factorise(a, ld, m, inverse)
            if not done:
                extra = max(jitter, extra * 10)
                jittered[r] += 1
        if not done:  # the matrix was not finite
            a[:] = np.nan
        _sum_up(a, ld, n, m, scale2, mean[r], variance[r], quad[r])
        if differentiate:
            _solve_back(a, ld, m, full_alpha, full_beta, dots)
            _jacobian(x, ld, d, n, m, slope, full_alpha, full_beta, scale2, weights, sums, jacobian[r])
            if shape.size:
                _shape_jacobian(ld, n, m, shape_slope, full_alpha, full_beta, scale2, jacobian[r, :, d])
            for i in range(k):
                alpha[r, i] = full_alpha[i] / scale2 if i < n else 0
                beta[r, i] = full_beta[i] if i < n else 0


@compiled(**_FLAGS)
def _backward(g_mean, g_variance, g_quad, alpha, beta, jacobian, variance, quad, noises, d_targets, d_noises, d_kernel):
    """Write the gradients of `gradient`; returns that by the log kernel scale. Sums run in the order of the rows."""
    b, k = alpha.shape
    d_kernel[:] = 0
    d_log_scale = 0.0
    for r in range(b):
        gm, gv, gq = g_mean[r], g_variance[r], g_quad[r]
        # scaling kernel and noises together scales variance by s and quad by 1/s; undo the noises' share
        share = gv * variance[r] - gq * quad[r]
        for i in range(k):
            u, v = alpha[r, i], beta[r, i]
            d_targets[r, i] = gm * v + 2 * gq * u
            d_noises[r, i] = -gm * u * v + gv * v * v - gq * u * u
            share -= d_noises[r, i] * noises[r, i]
        d_log_scale += 2 * share
        for e in range(d_kernel.size):
            d_kernel[e] += gm * jacobian[r, 0, e] + gv * jacobian[r, 1, e] + gq * jacobian[r, 2, e]
    return d_log_scale


class Gradient(NamedTuple):
    """By log length scales and log shapes (d + p,), log kernel scale (), targets (b, k) and noises (b, k)."""

    kernel: np.ndarray
    log_scale: float
    targets: np.ndarray
    noises: np.ndarray


class FusedResult(NamedTuple):
    """Moments (b,) or (b, k) when nested; with `differentiate`, what the backward pass needs: O(b (k + d)) numbers."""

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    alpha: np.ndarray  # (b, k) K^-1 t
    beta: np.ndarray  # (b, k) K^-1 c
    jacobian: np.ndarray  # (b, 3, d + p): of the three moments by log length scales and log shapes
    jittered: int


_JITTER = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-5}  # first retry, relative to the kernel's variance
_SMALLEST_CHUNK = 16  # rows: below it, starting a thread costs more than it saves


def run(kernel: Kernel, problem: Problem, *, differentiate: bool = False, nested: bool = False) -> FusedResult:
    """The closed form for (b, k) neighbours, in the precision of the query, its rows shared out among threads.

    Each row's numbers depend on that row alone, so the answer has the same bits for any number of threads. The compiled
    code runs without the interpreter's lock on threads of our own: Numba's threading layers are not safe to enter from
    several Python threads at once.
    """
    query, ids = problem.query, problem.ids
    (b, k), dtype = ids.shape, query.dtype
    if ids.size and int(ids.max()) >= len(problem.rows):  # compiled code would read foreign memory
        raise IndexError(f"neighbour {int(ids.max())} does not exist: there are {len(problem.rows)} rows.")
    if problem.targets.shape != (b, k) or problem.noises.shape != (b, k):
        raise ValueError(f"targets {problem.targets.shape} and noises {problem.noises.shape} must be {(b, k)}.")
    shape = np.exp(problem.log_shape).astype(dtype)
    kept = b if differentiate else 0
    alpha, beta = np.empty((kept, k), dtype), np.empty((kept, k), dtype)
    jacobian = np.empty((kept, 3, query.shape[1] + shape.size), dtype)
    mean, variance, quad = (np.empty((b, k if nested else 1), dtype) for _ in range(3))
    jittered = np.zeros(b, np.int64)
    constants = (problem.rows, (1 / problem.lengths).astype(dtype), dtype.type(problem.scale.item() ** 2))

    def part(start: int, stop: int) -> None:
        piece = slice(start, stop)
        _rows(
            kernel.code, shape, query[piece], *constants, ids[piece], problem.targets[piece], problem.noises[piece],
            dtype.type(_JITTER[dtype]), differentiate, mean[piece], variance[piece], quad[piece],
            alpha[piece], beta[piece], jacobian[piece], jittered[piece],
        )  # fmt: skip

    in_threads(part, b, _SMALLEST_CHUNK)
    if not nested:
        mean, variance, quad = mean[:, 0], variance[:, 0], quad[:, 0]
    return FusedResult(mean, variance, quad, alpha, beta, jacobian, int(np.count_nonzero(jittered)))


def gradient(
    result: FusedResult, noises: np.ndarray, g_mean: np.ndarray, g_variance: np.ndarray, g_quad: np.ndarray
) -> Gradient:
    """Gradients from those by the moments, (b,) each, and what the forward pass kept."""
    by_targets, by_noises = np.empty_like(result.alpha), np.empty_like(result.alpha)
    by_kernel = np.empty(result.jacobian.shape[-1], result.alpha.dtype)
    by_log_scale = _backward(
        g_mean, g_variance, g_quad, result.alpha, result.beta, result.jacobian, result.variance, result.quad, noises,
        by_targets, by_noises, by_kernel,
    )  # fmt: skip
    return Gradient(by_kernel, by_log_scale, by_targets, by_noises)
