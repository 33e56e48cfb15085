"""What both closed forms make of one neighbourhood: scaled coordinates, correlations, and their part of the gradient.

Coordinates are x[e * ld + i] for neighbour i, and at i = m, the number of neighbours rounded up to whole vectors, those
of the query. Matrices lie column by column, as in `_simd`, and only their lower triangles count. The gradient by
the log length scales rests on d r2 / d log length = -2 (difference)^2.

A coordinate may be the sum of several features, each with a length scale of its own: the first d features are one of
each coordinate, feature d + f is one more of coordinate owners[f]. They lie as coordinates do, in `parts`; without any
more of them, `parts` are the coordinates.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from nearfield._simd import (
    COLUMNS,
    LANES,
    clear_triangle,
    contract_differences,
    contract_products,
    lane_total,
    mirror_block,
    pair_weights,
    products,
    squares,
    squares_of_one,
    squares_of_one_4,
)
from nearfield.conditional._cholesky import FLAGS
from nearfield.kernels import STEEP, evaluate_profile

NOT_A_ROW, GAP = -1, -2  # what `count_neighbours` says of ids that are wrong


@njit(**FLAGS)
def rounded(n, unit):
    return (n + unit - 1) // unit * unit


@njit(**FLAGS)
def column_length(n):
    """Numbers from one column to the next for n numbers a column: whole vectors, an odd number of them.

    With an even number, columns would compete for the same few lines of the cache.
    """
    vectors = rounded(n, LANES) // LANES
    return (vectors + 1 - vectors % 2) * LANES


@njit(**FLAGS)
def aligned(size):
    """An empty array that begins where a cache line does."""
    array = np.empty(size + 8)
    first = (64 - array.ctypes.data % 64) % 64 // 8
    return array[first : first + size]


@njit(**FLAGS)
def clear(x, start, stop):
    for i in range(np.uint64(start), np.uint64(stop)):  # unsigned, or Numba looks at every index for a negative one
        x[i] = 0


@njit(**FLAGS)
def coordinates(d, ld):
    """Room for d coordinates, rounded up to whole tiles; those beyond d are zero and stay so."""
    x = aligned(rounded(d, COLUMNS) * ld)
    for i in range(d * ld, x.size):
        x[i] = 0
    return x


@njit(**FLAGS)
def features(owners, d, ld, x):
    """Room for d + len(owners) features, or the coordinates x where there are no more than these."""
    return coordinates(d + owners.size, ld) if owners.size else x


@njit(**FLAGS)
def pulls_room(owners, d, ld):
    """Room for what pulls at coordinates, where they have several features: `given` and `found` of the Jacobian."""
    return aligned(2 * rounded(2 * d + 2, COLUMNS) * ld if owners.size else 0)


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
    """x[e * ld + i] = scaled coordinate e of neighbour i < n, and of the query at i = m; else zero, to m + LANES.

    They are relative to one of the neighbours: then those of neighbours that are close together are small numbers,
    wherever the query is.
    """
    origin = query if n == 0 else rows[ids[n // 2]]
    whole = n // LANES * LANES
    for i in range(0, whole, LANES):
        r0, r1, r2, r3 = np.uint64(ids[i]), np.uint64(ids[i + 1]), np.uint64(ids[i + 2]), np.uint64(ids[i + 3])
        r4, r5, r6, r7 = np.uint64(ids[i + 4]), np.uint64(ids[i + 5]), np.uint64(ids[i + 6]), np.uint64(ids[i + 7])
        for e in range(np.uint64(query.size)):
            start, scale, at = origin[e], inverse_lengths[e], e * np.uint64(ld) + np.uint64(i)
            x[at] = (rows[r0, e] - start) * scale
            x[at + np.uint64(1)] = (rows[r1, e] - start) * scale
            x[at + np.uint64(2)] = (rows[r2, e] - start) * scale
            x[at + np.uint64(3)] = (rows[r3, e] - start) * scale
            x[at + np.uint64(4)] = (rows[r4, e] - start) * scale
            x[at + np.uint64(5)] = (rows[r5, e] - start) * scale
            x[at + np.uint64(6)] = (rows[r6, e] - start) * scale
            x[at + np.uint64(7)] = (rows[r7, e] - start) * scale
    for e in range(query.size):
        start, scale = origin[e], inverse_lengths[e]
        clear(x, e * ld + n, e * ld + m + LANES)
        for i in range(whole, n):
            x[e * ld + i] = (rows[ids[i], e] - start) * scale
        x[e * ld + m] = (query[e] - start) * scale


@njit(**FLAGS)
def add_up(parts, owners, d, ld, m, x):
    """Coordinates from features, to m + LANES."""
    if owners.size == 0:
        return
    for e in range(d):
        for i in range(np.uint64(e * ld), np.uint64(e * ld + m + LANES)):
            x[i] = parts[i]
    for f in range(owners.size):
        first, own = np.uint64((d + f) * ld), np.uint64(owners[f] * ld)
        for i in range(np.uint64(m + LANES)):
            x[own + i] += parts[first + i]


@njit(**FLAGS)
def correlations(code, shape, x, ld, d, m, a, slope, shape_slope, keep):
    """Fill the columns 0 .. m of the lower triangle with the kernel of scale one; what is beyond n has no meaning.

    The slopes of column j go to `slope[j * keep :]`: with keep = ld they make a matrix, zero on and above the diagonal,
    with keep = 0 each column overwrites the last.
    """
    for j in range(0, m, COLUMNS):
        for i in range(j // LANES * LANES, m, LANES):
            squares(x, ld, d, i, j, a, j * ld + i, ld)
    evaluate_profile(code, shape, a, ld, m, m, slope, keep, shape_slope)
    if keep:
        for j in range(0, m, LANES):
            clear_triangle(slope, j * keep + j, keep)
            if shape.size:
                clear_triangle(shape_slope, j * keep + j, keep)


@njit(**FLAGS)
def cross_correlations(code, shape, x, ld, d, m, cross, slope, shape_slope):
    """The same between the neighbours and the query."""
    i = 0
    while i + 4 * LANES <= m:
        squares_of_one_4(x, ld, d, i, m, cross, i, 0)
        i += 4 * LANES
    while i < m:
        squares_of_one(x, ld, d, i, m, cross, i, 0)
        i += LANES
    evaluate_profile(code, shape, cross, 0, m, 1, slope, 0, shape_slope)


@njit(**FLAGS)
def _total(values, n):
    total = 0.0
    for i in range(n):
        total += values[i]
    return total


@njit(**FLAGS)
def weigh(slope, ld, m, u, v, pairs, weights, totals):
    """weights = slope * sum_p (u_p v_p' + v_p u_p') below the diagonal; totals[i]: all of row i and column i."""
    clear(totals, 0, m)
    for j in range(0, m, 4):
        pair_weights(slope, ld, j, j // LANES * LANES, m, u, v, pairs, weights, totals)


@njit(**FLAGS)
def _contract_squares(code, x, ld, d, m, weights, totals, near, sums, out):
    """out[e] = sum_{i > j} weights_ij (x[e, i] - x[e, j])^2 + sum_i near_i (x[e, i] - x[e, m])^2.

    `totals` are those of `weigh`, and get `near` added. By products, which costs half of the differences:

        sum_i x_i ((totals_i + near_i) x_i - 2 sum_j weights_ij x_j - 2 near_i x_m) + x_m^2 sum_i near_i

    but not where a kernel's slope grows without bound as two neighbours approach: what is left of large numbers would
    be lost.
    """
    clear(sums, 0, rounded(d, COLUMNS) * LANES)
    if code == STEEP:
        for e in range(0, d, 4):
            contract_differences(near, 0, 0, 1, 0, m, x, ld, m, e, sums)
        for j in range(0, m, 4):
            for e in range(0, d, 4):
                contract_differences(weights, j * ld, ld, 4, j // LANES * LANES, m, x, ld, j, e, sums)
        for e in range(d):
            out[e] = lane_total(sums, e * LANES)
    else:
        whole = 0.0
        for i in range(m):
            totals[i] += near[i]
            whole += near[i]
        for i in range(0, m, LANES):
            for e in range(0, d, COLUMNS):
                contract_products(weights, ld, i, totals, near, x, ld, m, e, sums)
        for e in range(d):
            query = x[e * ld + m]
            out[e] = lane_total(sums, e * LANES) + query * query * whole


@njit(**FLAGS)
def _mirror(weights, ld, m):
    """The upper triangle from the lower one; the diagonal is zero."""
    for j in range(0, m, LANES):
        for i in range(j, m, LANES):
            mirror_block(weights, ld, i, j)


@njit(**{**FLAGS, "fastmath": {"contract", "nsz", "reassoc"}})
def _dot(x, y, first, second, n):
    total = 0.0
    for i in range(np.uint64(n)):
        total += x[np.uint64(first) + i] * y[np.uint64(second) + i]
    return total


@njit(**FLAGS)
def _by_features(x, parts, owners, ld, d, m, near, pulls, out):
    """out[f] = sum_i pull_i p_i over neighbours and query, for the features p of coordinates x.

    `pulls` has what the pairs of neighbours pull at each; here that between them and the query is added:

        pull_i += near_i (x_i - x_m)     pull_m = sum_i near_i (x_m - x_i)
    """
    whole = 0.0
    for i in range(m):
        whole += near[i]
    for e in range(d):
        first, query = np.uint64(e * ld), x[e * ld + m]
        for i in range(np.uint64(m)):
            pulls[first + i] += near[i] * (x[first + i] - query)
        pulls[e * ld + m] = query * whole - _dot(near, x, 0, e * ld, m)
    for f in range(d + owners.size):
        e = f if f < d else owners[f - d]
        out[f] = _dot(parts, pulls, f * ld, e * ld, m + 1)


@njit(**FLAGS)
def _contract_features(x, parts, owners, ld, d, m, weights, totals, near, pulls, out):
    """out[f] = sum_{i > j} weights_ij (x_i - x_j) (p_i - p_j) + sum_i near_i (x_i - x_m) (p_i - p_m), features p of x.

    With pull_i = totals_i x_i - sum_j weights_ij x_j; `totals` are those of `weigh`.
    """
    _mirror(weights, ld, m)
    for i in range(0, m, LANES):
        for e in range(0, d, COLUMNS):
            products(weights, ld, i, m, x, ld, e, pulls)
    for e in range(d):
        first = np.uint64(e * ld)
        for i in range(np.uint64(m)):
            pulls[first + i] = totals[i] * x[first + i] - pulls[first + i]
    _by_features(x, parts, owners, ld, d, m, near, pulls, out)


@njit(**FLAGS)
def _jacobian_of_features(x, parts, owners, ld, d, m, slope, cross_slope, alpha, beta, near, pulls, out):
    """What `_contract_features` says with weights slope_ij (alpha_i beta_j + beta_i alpha_j), for the mean, and
    slope_ij beta_i beta_j, for the variance.

    Both need the same products of the slopes, S (beta x) and S (alpha x), S beta and S alpha, which are made together:

        v_i = x_i (S beta)_i - (S beta x)_i     w_i = x_i (S alpha)_i - (S alpha x)_i
        pull_i = alpha_i v_i + beta_i w_i       pull_i = beta_i v_i
    """
    lines = rounded(2 * d + 2, COLUMNS)
    given, found = pulls[: lines * ld], pulls[lines * ld :]
    for e in range(d):
        first, second = np.uint64(e * ld), np.uint64((d + e) * ld)
        for i in range(np.uint64(m)):
            given[first + i], given[second + i] = beta[i] * x[first + i], alpha[i] * x[first + i]
    last = np.uint64(2 * d * ld)
    for i in range(np.uint64(m)):
        given[last + i], given[last + np.uint64(ld) + i] = beta[i], alpha[i]
    _mirror(slope, ld, m)
    for i in range(0, m, LANES):
        for e in range(0, lines, COLUMNS):
            products(slope, ld, i, m, given, ld, e, found)
    for e in range(d):
        first, second = np.uint64(e * ld), np.uint64((d + e) * ld)
        for i in range(np.uint64(m)):
            v = x[first + i] * found[last + i] - found[first + i]
            w = x[first + i] * found[last + np.uint64(ld) + i] - found[second + i]
            given[first + i], given[second + i] = alpha[i] * v + beta[i] * w, beta[i] * v
    for i in range(m):
        near[i] = -cross_slope[i] * alpha[i]
    _by_features(x, parts, owners, ld, d, m, near, given, out[0])
    for i in range(m):
        near[i] = -cross_slope[i] * beta[i]
    _by_features(x, parts, owners, ld, d, m, near, given[d * ld :], out[1])


@njit(**FLAGS)
def jacobian(
    code, shape, x, parts, owners, ld, d, m, slopes, cross_slopes, alpha, beta, weights, totals, near, half, pulls,
    sums, out,
):  # fmt: skip
    """out[w, f] = d (mean, variance)[w] / d log length f, and behind them by log shape.

    `slopes` and `cross_slopes` are by squared distance and by log shape, of the pairs and of the cross-correlations.
    `weights` is a matrix, `totals`, `near` and `half` are vectors; alpha and beta are zero in the padding.
    """
    for i in range(m):
        half[i] = beta[i] / 2
    if owners.size:
        _jacobian_of_features(x, parts, owners, ld, d, m, slopes[0], cross_slopes[0], alpha, beta, near, pulls, out)
    else:
        for i in range(m):
            near[i] = -cross_slopes[0][i] * alpha[i]
        weigh(slopes[0], ld, m, alpha, beta, 1, weights, totals)
        _contract_squares(code, x, ld, d, m, weights, totals, near, sums, out[0])
        for i in range(m):
            near[i] = -cross_slopes[0][i] * beta[i]
        weigh(slopes[0], ld, m, half, beta, 1, weights, totals)
        _contract_squares(code, x, ld, d, m, weights, totals, near, sums, out[1])
    lengths = d + owners.size
    for f in range(lengths):
        out[0, f] *= 2
        out[1, f] *= -4
    if shape.size:
        weigh(slopes[1], ld, m, half, beta, 1, weights, totals)
        by_variance = _total(totals, m)
        weigh(slopes[1], ld, m, alpha, beta, 1, weights, totals)
        by_mean = -_total(totals, m) / 2
        for i in range(m):
            by_mean += cross_slopes[1][i] * alpha[i]
            by_variance -= 2 * cross_slopes[1][i] * beta[i]
        out[0, lengths], out[1, lengths] = by_mean, by_variance


@njit(**FLAGS)
def contract_slopes(
    code, shape, x, parts, owners, ld, d, m, u, v, pairs, dc, slopes, cross_slopes, totals, near, pulls, sums, out
):  # fmt: skip
    """out[f] by log length f, and behind them by log shape, from dK = sum_p (u_p v_p' + v_p u_p') / 2 and dc.

    As in `jacobian`, but the slopes are lost; u[p * ld + i], v[p * ld + i] and dc[i] are zero in the padding.
    """
    for i in range(m):
        near[i] = dc[i] * cross_slopes[0][i]
    weigh(slopes[0], ld, m, u, v, pairs, slopes[0], totals)
    if owners.size:
        _contract_features(x, parts, owners, ld, d, m, slopes[0], totals, near, pulls, out)
    else:
        _contract_squares(code, x, ld, d, m, slopes[0], totals, near, sums, out)
    lengths = d + owners.size
    for f in range(lengths):
        out[f] *= -2
    if shape.size:
        weigh(slopes[1], ld, m, u, v, pairs, slopes[1], totals)
        by_shape = _total(totals, m) / 2
        for i in range(m):
            by_shape += dc[i] * cross_slopes[1][i]
        out[lengths] = by_shape
