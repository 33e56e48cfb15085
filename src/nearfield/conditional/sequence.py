"""Rows drawn one after the other: the weights of each on those drawn before it, given data, and the draws themselves.

A row x is drawn given the data at its neighbours N, with noises v, and given the latent values at rows E that were
drawn before. With N before E, and the P outputs of a row next to each other (P = 1 but for mixed outputs),

    K = k([X_N, X_E], [X_N, X_E]) + diag(v) = L L'     c = k([X_N, X_E], x)     b = L^-1 c     L = [L_NN 0; L_EN L_EE]

and with both given,

    f_x - mean = w' (f_E - mean_E) + r     w = L_EE^-T b_E     Var r = k(x, x) - b' b = F F'

so that deviations from the means need no data but for w and F, which serve every sample.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield._simd import LANES, PANEL
from nearfield._threads import in_threads
from nearfield.conditional._checks import SMALLEST_CHUNK, check_shapes, numbers, refuse_ids, whole_numbers
from nearfield.conditional._cholesky import FLAGS, factorise
from nearfield.conditional._fused import JITTER, MOST_JITTER
from nearfield.conditional._slopes import (
    aligned,
    column_length,
    coordinates,
    correlations,
    count_neighbours,
    cross_correlations,
    gather,
    rounded,
)
from nearfield.kernels import Kernel

_COLUMNS = 64  # samples that a thread takes through all rows at a time


class Links(NamedTuple):
    """How rows are drawn from those before: weights (b, P, e, P) on their outputs, the factor (b, P, P) of the rest.

    Both of deviations from the mean. variance: (b, P) given the data alone.
    """

    weights: np.ndarray
    factor: np.ndarray
    variance: np.ndarray


def link(
    kernel: Kernel,
    log_lengths: np.ndarray,
    log_shape: np.ndarray,
    mixing: np.ndarray,
    points: np.ndarray,
    noises: np.ndarray,
    query: np.ndarray,
    ids: np.ndarray,
    data: int,
) -> Links:
    """Links of the rows query (b, d), whose neighbours ids (b, data + e) among the points (n, d) are first of all data.

    log_lengths: (Q, d); mixing: (P, Q); noises: (n, P) of the points, in the unit of mixing mixing'. -1 stands behind
    the last neighbour.
    """
    check_shapes(kernel, log_shape)
    points, noises, query, ids = numbers(points), numbers(noises), numbers(query), whole_numbers(ids)
    mixing, outputs = numbers(mixing), len(mixing)
    shapes = (points.shape[1], noises.shape, query.shape[1], np.shape(log_lengths))
    expected = (query.shape[1], (len(points), outputs), points.shape[1], (mixing.shape[1], query.shape[1]))
    if shapes != expected or len(ids) != len(query) or not 0 <= data <= ids.shape[1]:
        raise ValueError(f"points, noises, query and length scales have {shapes}: expected {expected}.")
    found = Links(
        np.zeros((len(query), outputs, ids.shape[1] - data, outputs)),
        np.zeros((len(query), outputs, outputs)),
        np.zeros((len(query), outputs)),
    )
    constants = kernel.code, np.exp(log_shape), numbers(np.exp(-log_lengths)), mixing

    def part(start: int, stop: int) -> None:
        status = _link(*constants, points, noises, query, ids, data, *found, start, stop)
        if status:
            refuse_ids(status, ids, points)

    in_threads(part, len(query), SMALLEST_CHUNK)
    return found


def draw(order: np.ndarray, ids: np.ndarray, weights: np.ndarray, factor: np.ndarray, z: np.ndarray) -> None:
    """Turn independent standard normals z (n, P, s) into samples, in place: rows in that order (b,), given ids (n, e).

    Those that are not in the order are drawn already.

    Threads share the samples out: a sample needs nothing of another, so the answer is the same for any number.
    """
    order, ids = whole_numbers(order), whole_numbers(ids)
    in_threads(lambda start, stop: _draw(order, ids, weights, factor, z, start, stop), z.shape[2], 1, _COLUMNS)


# --- compiled -------------------------------------------------------------------------------------------------------


@njit(**FLAGS)
def _complete(cross, noises, ids, extra, a, ld, n, m, below):
    """The same of one output, whose correlations are in their place already."""
    for j in range(n):
        column = j * ld
        a[column + n : column + m + below] = 0
        a[column + j] = 1 + noises[ids[j], 0] + extra
        a[column + m] = cross[j]
    for c in range(n, m):
        a[c * ld + c // LANES * LANES : c * ld + m + below] = 0
        a[c * ld + c] = 1


@njit(**FLAGS)
def _fill(values, cross, near, mixing, noises, ids, extra, a, ld, n, m, below):
    """K, the covariances with the outputs of the row in the rows below, and the identity in the padding."""
    outputs, latents = mixing.shape
    for j in range(n):
        for p in range(outputs):
            column = (j * outputs + p) * ld
            for i in range(j, n):
                for s in range(outputs):
                    total = 0.0
                    for q in range(latents):
                        total += mixing[p, q] * mixing[s, q] * (values[q, j * near + i] if i > j else 1.0)
                    a[column + i * outputs + s] = total
            a[column + j * outputs + p] += noises[ids[j], p] + extra
            a[column + n * outputs : column + m + below] = 0
            for s in range(outputs):
                total = 0.0
                for q in range(latents):
                    total += mixing[p, q] * mixing[s, q] * cross[q, j]
                a[column + m + s] = total
    for c in range(n * outputs, m):
        a[c * ld + c // LANES * LANES : c * ld + m + below] = 0
        a[c * ld + c] = 1


@njit(**FLAGS)
def _solve(a, ld, first, last, row, out):
    """out = L_EE^-T times row `row` of the columns first .. last."""
    for j in range(last - 1, first - 1, -1):
        pivot = a[j * ld + j]
        total = a[j * ld + row]
        for i in range(j + 1, last):
            total -= a[j * ld + i] * out[i - first]
        out[j - first] = total / pivot


@njit(**FLAGS)
def _rest(a, ld, last, m, prior, factor):
    """Lower factor (P, P) of the outputs' covariance given everything."""
    outputs = len(prior)
    for p in range(outputs):
        for s in range(p + 1):
            total = prior[p, s]
            for c in range(last):
                total -= a[c * ld + m + p] * a[c * ld + m + s]
            for t in range(s):
                total -= factor[p, t] * factor[s, t]
            if s == p:
                factor[p, p] = math.sqrt(max(total, 0.0))
            else:
                factor[p, s] = total / factor[s, s] if factor[s, s] > 1e-8 else 0.0


@compiled(**FLAGS)
def _link(
    code, shape, inverse_lengths, mixing, points, noises, query, ids, data, weights, factor, variance, start, stop,
):  # fmt: skip
    """`Links` of the rows start .. stop; zero, or what `count_neighbours` says."""
    outputs, latents = mixing.shape
    k, d = ids.shape[1], query.shape[1]
    kp, below = rounded(k * outputs, LANES), rounded(outputs, LANES)
    ld = column_length(kp + below)
    alone = outputs * latents == 1  # then there is nothing to mix
    near = ld if alone else column_length(k + LANES)
    mixed = 0 if alone else rounded(k, LANES) * near
    a, inverse = aligned(kp * ld), aligned(PANEL)
    x = coordinates(d, near)
    values = aligned(latents * mixed).reshape(latents, mixed)
    cross = aligned(latents * near).reshape(latents, near)
    slope, shape_slope = aligned(near), aligned(near)
    solved = np.empty(k * outputs)
    prior = mixing @ mixing.T
    top = 0.0
    for p in range(outputs):
        top = max(top, prior[p, p])
    for r in range(start, stop):
        n = count_neighbours(ids[r], len(points))
        if n < 0:
            return n
        mi, m = rounded(n, LANES), rounded(n * outputs, LANES)
        for q in range(latents):
            gather(points, query[r], inverse_lengths[q], ids[r], n, mi, near, x)
            if not alone:
                correlations(code, shape, x, near, d, mi, values[q], slope, shape_slope, 0)
            cross_correlations(code, shape, x, near, d, mi, cross[q], slope, shape_slope)
        extra, done = 0.0, False
        while not done and extra < MOST_JITTER:
            if alone:
                correlations(code, shape, x, ld, d, mi, a, slope, shape_slope, 0)
                _complete(cross[0], noises, ids[r], extra, a, ld, n, m, below)
            else:
                _fill(values, cross, near, mixing, noises, ids[r], extra * top, a, ld, n, m, below)
            done = factorise(a, ld, m, below, inverse)
            if not done:
                extra = max(JITTER, extra * 10)
        if not done:  # the matrix was not finite
            a[:] = np.nan
        first, last = min(data, n) * outputs, n * outputs
        _rest(a, ld, last, m, prior, factor[r])
        for p in range(outputs):
            known = prior[p, p]
            for c in range(first):
                known -= a[c * ld + m + p] * a[c * ld + m + p]
            variance[r, p] = max(known, 0.0)
            _solve(a, ld, first, last, m + p, solved)
            for j in range(last - first):
                weights[r, p, j // outputs, j % outputs] = solved[j]
    return 0


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def _draw(order, ids, weights, factor, z, start, stop):
    """Columns start .. stop of z (n, P, s), row after row."""
    outputs, e = weights.shape[1], ids.shape[1]
    for r in order:
        for p in range(outputs - 1, -1, -1):  # those before are still as they came
            own = z[r, p, start:stop]
            scale = factor[r, p, p]
            for s in range(own.size):
                own[s] *= scale
            for t in range(p):
                share, other = factor[r, p, t], z[r, t, start:stop]
                for s in range(own.size):
                    own[s] += share * other[s]
            for j in range(e):
                if ids[r, j] < 0:
                    break
                for t in range(outputs):
                    share, other = weights[r, p, j, t], z[ids[r, j], t, start:stop]
                    for s in range(own.size):
                        own[s] += share * other[s]
    return 0
