"""The kernel of one neighbourhood in compiled code: scaled coordinates, correlations, and their part of the gradient.

Coordinates are relative to the query, x[e * ld + i] for neighbour i, and zero at m, the number of neighbours rounded up
to whole vectors. Matrices lie column by column, as in `_simd`, and only their lower triangles count. The gradient by
the log length scales rests on d r2 / d log length = -2 (difference)^2.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from nearfield._simd import (
    COLUMNS,
    LANES,
    contract_1,
    contract_4,
    contract_both_1,
    contract_both_4,
    pair_weights,
    squares_1,
    squares_4,
)
from nearfield.conditional._cholesky import FLAGS
from nearfield.kernels import evaluate_profile

NOT_A_ROW, GAP = -1, -2  # what `count_neighbours` says of ids that are wrong


@njit(**FLAGS)
def count_neighbours(ids, rows):
    """Neighbours before the first -1. NOT_A_ROW if there is an id of `rows` or more, GAP if there is one behind a -1.

    All who read rows by these ids must ask first: compiled code would read foreign memory.
    """
    n, stopped, highest = 0, False, ids.dtype.type(-1)
    for i in range(ids.size):
        highest = max(highest, ids[i])
        if ids[i] < 0:
            stopped = True
        elif stopped:
            return GAP
        else:
            n += 1
    return NOT_A_ROW if highest >= rows else n


@njit(**FLAGS)
def gather(rows, query, inverse_lengths, ids, n, m, ld, x):
    """x[e, i] = scaled coordinate e of neighbour i < n relative to the query; zero beyond, so at m, the query."""
    d = query.shape[0]
    for i in range(n):
        row = np.uint64(ids[i])  # unsigned, or Numba looks at every index for a negative one
        for e in range(d):
            x[np.uint64(e * ld + i)] = (rows[row, np.uint64(e)] - query[e]) * inverse_lengths[e]
    for e in range(d):
        for i in range(n, m + LANES):
            x[np.uint64(e * ld + i)] = 0


@njit(**FLAGS)
def squared_distances(x, ld, d, j, start, stop, r2):
    """r2[i] = sum_e (x[e, i] - x[e, j])^2 for i in start .. stop, both multiples of LANES."""
    i = start
    while i + 4 * LANES <= stop:
        squares_4(x, ld, d, j, i, r2)
        i += 4 * LANES
    while i < stop:
        squares_1(x, ld, d, j, i, r2)
        i += LANES


@njit(**FLAGS)
def correlations(code, shape, x, ld, d, n, m, a, slope, shape_slope, keep, r2):
    """Fill the columns 0 .. n of the lower triangle with the kernel of scale one, but for the diagonal.

    The slopes of column j go to `slope[j * keep:]`: with keep = ld they make a matrix, zero on and above the diagonal
    and in the padding, with keep = 0 each column overwrites the last.
    """
    for j in range(n):
        start = (j // LANES) * LANES
        first, last, kept = j * ld + start, j * ld + m, j * keep
        squared_distances(x, ld, d, j, start, m, r2)
        evaluate_profile(
            code, shape, r2[start:], m - start, a[first:last], slope[kept + start :], shape_slope[kept + start :]
        )
        for i in range(j * ld + n, last):
            a[i] = 0
        for i in range(kept + start, kept + j + 1):
            slope[i] = 0
    if keep:
        for j in range(n, m):
            for i in range(j * keep + (j // LANES) * LANES, j * keep + m):
                slope[i] = 0


@njit(**FLAGS)
def cross_correlations(code, shape, x, ld, d, m, cross, slope, shape_slope, r2):
    """The same between the neighbours and the query."""
    squared_distances(x, ld, d, m, 0, m, r2)
    evaluate_profile(code, shape, r2, m, cross, slope, shape_slope)


@njit(**FLAGS)
def _total(values, start, stop):
    total = 0.0
    for i in range(start, stop):
        total += values[i]
    return total


@njit(**FLAGS)
def _contract(x, ld, d, j, columns, start, m, weights, sums):
    e = 0
    while e + 4 <= d:
        contract_4(x, ld, e, j, columns, start, m, weights, sums)
        e += 4
    while e < d:
        contract_1(x, ld, e, j, columns, start, m, weights, sums)
        e += 1


@njit(**FLAGS)
def _contract_both(x, ld, d, j, columns, start, m, weights, sums):
    e = 0
    while e + 4 <= d:
        contract_both_4(x, ld, e, j, columns, start, m, weights, sums)
        e += 4
    while e < d:
        contract_both_1(x, ld, e, j, columns, start, m, weights, sums)
        e += 1


@njit(**FLAGS)
def jacobian(x, ld, d, n, m, slope, cross_slope, alpha, beta, weights, sums, out):
    """out[w, e] = d (mean, variance)[w] / d log length[e], from slopes that were kept."""
    sums[:] = 0
    half = weights[2 * COLUMNS * ld :]
    for i in range(m):
        half[i] = beta[i] / 2
    for j in range(0, n, COLUMNS):  # alpha and beta are zero in the padding
        start = (j // LANES) * LANES
        pair_weights(slope, j * ld, ld, j, start, m, alpha, beta, 1, weights, 0)
        pair_weights(slope, j * ld, ld, j, start, m, half, beta, 1, weights, COLUMNS * ld)
        _contract_both(x, ld, d, j, COLUMNS, start, m, weights, sums)
    for i in range(m):
        weights[i], weights[COLUMNS * ld + i] = -cross_slope[i] * alpha[i], -cross_slope[i] * beta[i]
    _contract_both(x, ld, d, m, 1, 0, m, weights, sums)
    for e in range(d):
        first = e * 2 * LANES
        out[0, e] = 2 * _total(sums, first, first + LANES)
        out[1, e] = -4 * _total(sums, first + LANES, first + 2 * LANES)


@njit(**FLAGS)
def shape_jacobian(ld, n, shape_slope, cross_slope, alpha, beta, out):
    """out[w] = d (mean, variance)[w] / d log shape."""
    t0, t1 = 0.0, 0.0
    for j in range(n):
        for i in range(j + 1, n):
            h = shape_slope[j * ld + i]
            t0 -= h * (alpha[i] * beta[j] + beta[i] * alpha[j])
            t1 += 2 * h * beta[i] * beta[j]
        t0 += cross_slope[j] * alpha[j]
        t1 -= 2 * cross_slope[j] * beta[j]
    out[0], out[1] = t0, t1


@njit(**FLAGS)
def contract_slopes(code, shape, x, ld, d, n, m, u, v, pairs, dc, value, slope, shape_slope, r2, sums, out):
    """out[e] by log length e, and behind them by log shape, from dK = sum_p u_p v_p' + v_p u_p' and dc.

    The slopes are built anew, COLUMNS columns at a time, with u[p * ld + i] and v[p * ld + i], zero in the padding.
    """
    sums[:] = 0
    by_shape = 0.0
    for j in range(0, n, COLUMNS):
        start = (j // LANES) * LANES
        for c in range(COLUMNS):
            first = c * ld + start
            squared_distances(x, ld, d, j + c, start, m, r2)
            evaluate_profile(code, shape, r2[start:], m - start, value, slope[first:], shape_slope[first:])
            for i in range(first, c * ld + j + c + 1):
                slope[i] = 0  # each pair once
        pair_weights(slope, 0, ld, j, start, m, u, v, pairs, slope, 0)
        _contract(x, ld, d, j, COLUMNS, start, m, slope, sums)
        if shape.size:
            pair_weights(shape_slope, 0, ld, j, start, m, u, v, pairs, shape_slope, 0)
            for c in range(COLUMNS):
                by_shape += 2 * _total(shape_slope, c * ld + j + c + 1, c * ld + m)
    cross_correlations(code, shape, x, ld, d, m, value, slope, shape_slope, r2)
    for i in range(m):
        slope[i] *= dc[i] / 2  # each pair counts twice, the distances to the query once
    _contract(x, ld, d, m, 1, 0, m, slope, sums)
    for e in range(d):
        out[e] = -4 * _total(sums, e * LANES, (e + 1) * LANES)
    if shape.size:
        for i in range(n):
            by_shape += dc[i] * shape_slope[i]
        out[d] = by_shape


@njit(**FLAGS)
def contract_kept(shape, x, ld, d, n, m, u, v, pairs, dc, slopes, shape_slopes, weights, sums, out):
    """The same as `contract_slopes` from slopes that `correlations` kept, and dK = sum_p (u_p v_p' + v_p u_p') / 2.

    `slopes` and `shape_slopes` are those of the pairs, a matrix, and of the cross-correlations, a vector.
    """
    sums[:] = 0
    for j in range(0, n, COLUMNS):
        start = (j // LANES) * LANES
        pair_weights(slopes[0], j * ld, ld, j, start, m, u, v, pairs, weights, 0)
        _contract(x, ld, d, j, COLUMNS, start, m, weights, sums)
    for i in range(m):
        weights[i] = dc[i] * slopes[1][i]
    _contract(x, ld, d, m, 1, 0, m, weights, sums)
    for e in range(d):
        out[e] = -2 * _total(sums, e * LANES, (e + 1) * LANES)
    if shape.size:
        by_shape = 0.0
        for j in range(0, n, COLUMNS):
            pair_weights(shape_slopes[0], j * ld, ld, j, (j // LANES) * LANES, m, u, v, pairs, weights, 0)
            for c in range(min(COLUMNS, n - j)):
                by_shape += _total(weights, c * ld + j + c + 1, c * ld + n)
        for i in range(n):
            by_shape += dc[i] * shape_slopes[1][i]
        out[d] = by_shape
