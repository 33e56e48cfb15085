"""The closed form of several outputs, compiled: neighbourhoods are built, factorised and differentiated in the cache.

As in `_fused`, the matrix K of one row lies in the columns of a workspace, with further rows below it: P of
cross-covariances, which the factorisation turns into B', and one of targets, which it turns into a'. Observations are
in the order (neighbour, output), so K has a P x P block sum_q W_q W_q' k_q(i, j) for each pair of neighbours.

The backward pass takes alpha and beta from the forward pass and builds the correlations again, with their slopes, for
one latent function after the other. To it, dK and dc are their projections W_q' (.) W_q, of rank 2P. Nearly all that is
not in `_fused` already are sums of vectors over neighbours or outputs, `_mix`.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from nearfield._compiled import compiled
from nearfield._simd import COLUMNS, LANES, PANEL, Vectors, data, sums
from nearfield.conditional._cholesky import FLAGS, factorise, solve_back
from nearfield.conditional._fused import JITTER, MOST_JITTER
from nearfield.conditional._slopes import (
    add_up,
    aligned,
    column_length,
    contract_slopes,
    coordinates,
    correlations,
    count_neighbours,
    cross_correlations,
    features,
    gather,
    pulls_room,
    rounded,
)

GROUP = 4  # sums that `_mix_4` makes at once


def _mix(group: int) -> Callable[..., Any]:
    """Make `mix(factors, stride, at, vectors, length, place, count, out, start, step)`: sums of `count` vectors.

    out[start + g * step + lane] = sum_c factors[c * stride + at + g] vectors[c * length + place + lane], g < group.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factors, vectors, out = (data(context, builder, signature, args, n) for n in (0, 3, 7))
        stride, at, length, place, count, start, step = (args[n] for n in (1, 2, 4, 5, 6, 8, 9))
        v = Vectors(builder)
        held = sums(builder, [v.zero] * group)
        with cgutils.for_range(builder, count) as loop:
            vector = v.load(vectors, builder.add(builder.mul(loop.index, length), place))
            first = builder.add(builder.mul(loop.index, stride), at)
            for g, total in enumerate(held):
                factor = v.load_splat(factors, builder.add(first, ir.Constant(at.type, g)))
                builder.store(v.fma(factor, vector, builder.load(total)), total)
        for g, total in enumerate(held):
            v.store(builder.load(total), out, builder.add(start, builder.mul(step, ir.Constant(step.type, g))))
        return context.get_dummy_value()

    @intrinsic
    def mix(
        typingctx: Any,
        factors: Any,
        stride: Any,
        at: Any,
        vectors: Any,
        length: Any,
        place: Any,
        count: Any,
        out: Any,
        start: Any,
        step: Any,
    ) -> Any:
        n = types.intp
        return types.void(factors, n, n, vectors, n, n, n, out, n, n), codegen

    return mix


_mix_1 = _mix(1)
_mix_4 = _mix(GROUP)


@njit(**FLAGS)
def _clear(x, value=0):
    for i in range(x.size):  # a loop compiles sooner than an assignment to a slice
        x[i] = value


@njit(**FLAGS)
def _scale(raw, inverse_lengths, ld, m, x):
    """Coordinates in the length scales of one latent function."""
    for e in range(inverse_lengths.size):
        factor, given, out = inverse_lengths[e], raw[e * ld : (e + 1) * ld], x[e * ld : (e + 1) * ld]
        for i in range(m + LANES):
            out[i] = given[i] * factor


@njit(**FLAGS)
def _fill(values, cross, near, tiles, targets, noises, extra, a, ld, n, m, below):
    """K, and below it the rows of cross-covariances and targets; the identity in the padding.

    Column p of a block is a sum over q of tiles[q, p] = W[p, q] W_q, with zeros up to a whole vector. These fall on
    what comes next, so what comes next is written later.
    """
    outputs, (latents, size) = targets.shape[1], tiles.shape
    wide, stride = size // outputs, values.shape[1]
    values, cross, tiles = values.reshape(-1), cross.reshape(-1), tiles.reshape(-1)
    for j in range(n):
        for p in range(outputs):
            column = (j * outputs + p) * ld
            i = max(n - rounded(n - j, GROUP), 0)  # from above the diagonal, if that makes whole groups
            while (n - i) % GROUP:
                for h in range(wide - LANES, -1, -LANES):
                    start = column + i * outputs + h
                    _mix_1(values, stride, j * near + i, tiles, size, p * wide + h, latents, a, start, 0)
                i += 1
            while i < n:
                for h in range(wide - LANES, -1, -LANES):
                    start = column + i * outputs + h
                    _mix_4(values, stride, j * near + i, tiles, size, p * wide + h, latents, a, start, outputs)
                i += GROUP
            a[column + j * outputs + p] += noises[j, p] + extra
            _clear(a[column + n * outputs : column + m])
            for h in range(0, wide, LANES):
                _mix_1(cross, near, j, tiles, size, p * wide + h, latents, a, column + m + h, 0)
            _clear(a[column + m + outputs : column + m + below])
            if noises[j, p] != np.inf:  # a target that was not observed may be anything, even not a number
                a[column + m + outputs] = targets[j, p]
    for c in range(n * outputs, m):
        _clear(a[c * ld + c // LANES * LANES : c * ld + m + below])
        a[c * ld + c] = 1


@njit(**FLAGS)
def _sum_up(a, ld, n, m, below, prior, ks, part, total, mean, covariance, quad):
    """Moments from running sums over the neighbours, given the first ks[0], ks[1], .. of them, or all n."""
    outputs = len(prior)
    _clear(total)
    j = 0
    for i in range(ks.size):
        stop = min(ks[i], n)
        for s in range(0, below, GROUP):  # products of the rows below: B' B, and B' a in column P
            for h in range(0, below, LANES):
                first = j * outputs * ld + m
                _mix_4(a, ld, first + s, a, ld, first + h, (stop - j) * outputs, part, s * below + h, below)
        for s in range(total.size):
            total[s] += part[s]
        for s in range(outputs):
            mean[i, s], quad[i, s] = total[s * below + outputs], quad[i - 1, s] if i else 0
            for t in range(outputs):
                covariance[i, s, t] = prior[s, t] - total[s * below + t]
            covariance[i, s, s] = max(covariance[i, s, s], 0.0)
        while j < stop:
            for p in range(outputs):  # e = L_jj a_j and the diagonal of L_jj L_jj'
                own = j * outputs + p
                if a[own * ld + own] == np.inf:  # not observed
                    continue
                e, variance = 0.0, 0.0
                for c in range(j * outputs, j * outputs + p + 1):
                    factor = a[c * ld + j * outputs + p]
                    e += factor * a[c * ld + m + outputs]
                    variance += factor * factor
                quad[i, p] += e * e / variance
            j += 1


@compiled(**FLAGS)
def forward(
    code,
    shape,
    rows,
    inverse_lengths,
    owners,
    tiles,
    prior,
    query,
    ids,
    targets,
    noises,
    ks,
    differentiate,
    mean,
    covariance,
    quad,
    alpha,
    beta,
    jittered,
    start,
    stop,
):
    """The closed form for the rows start .. stop: moments, and for the gradient alpha and beta.

    mean, quad (b, q, P); covariance (b, q, P, P); alpha (b, P, k) and beta (b, P, P, k) if `differentiate`. Returns
    zero, or what `count_neighbours` says of the first row of which the ids are wrong.
    """
    _, k, outputs = targets.shape
    latents, lengths = inverse_lengths.shape
    d = lengths - owners.size
    kp, below = rounded(k * outputs, LANES), rounded(outputs + 1, LANES)
    ld, near = column_length(kp + below), column_length(k + LANES)  # column lengths of K and of the correlations
    a = aligned(kp * ld)
    raw, x = coordinates(lengths, near), coordinates(d, near)
    parts = features(owners, d, near, x)
    values = aligned(latents * rounded(k, LANES) * near).reshape(latents, rounded(k, LANES) * near)
    cross = aligned(latents * near).reshape(latents, near)
    slope, shape_slope = aligned(near), aligned(near)
    inverse, lines, solved = aligned(PANEL), aligned(kp * LANES), aligned((outputs + 1) * ld)
    part, total = np.empty(below * below), np.empty(below * below)
    unit, top = np.ones(lengths), 0.0
    for p in range(outputs):
        top = max(top, prior[p, p])
    _clear(values.reshape(-1))  # what is above the diagonal is read, not used
    most = ks[-1]  # those behind it do not count
    for r in range(start, stop):
        n = count_neighbours(ids[r], len(rows))
        if n < 0:
            return n
        n = min(n, most)
        mi, m = rounded(n, LANES), rounded(n * outputs, LANES)
        gather(rows, query[r], unit, ids[r], n, mi, near, raw)
        for q in range(latents):
            _scale(raw, inverse_lengths[q], near, mi, parts)
            add_up(parts, owners, d, near, mi, x)
            correlations(code, shape, x, near, d, mi, values[q], slope, shape_slope, 0)
            cross_correlations(code, shape, x, near, d, mi, cross[q], slope, shape_slope)
            for j in range(n):
                values[q, j * near + j] = 1
        extra, done = 0.0, False
        while not done and extra < MOST_JITTER:
            _fill(values, cross, near, tiles, targets[r], noises[r], extra * top, a, ld, n, m, below)
            done = factorise(a, ld, m, below, inverse)
            if not done:
                extra = max(JITTER, extra * 10)
                jittered[r] += 1
        if not done:  # the matrix was not finite
            _clear(a, np.nan)
        _sum_up(a, ld, n, m, below, prior, ks, part, total, mean[r], covariance[r], quad[r])
        if differentiate:
            solve_back(a, ld, m, outputs + 1, lines, solved)
            for p in range(outputs):
                for i in range(k):
                    alpha[r, p, i] = solved[outputs * ld + i * outputs + p] if i < n else 0
                for s in range(outputs):
                    for i in range(k):
                        beta[r, p, s, i] = solved[s * ld + i * outputs + p] if i < n else 0
    return 0


# --- the gradient: the vectors u_s = beta_s, alpha and v_s lie in slots of ld numbers, in this order -----------------


@njit(**FLAGS)
def _without_kernel(n, m, ld, alpha, beta, g_mean, g_covariance, gains, slots, line, dt, dv):
    """dt and dv, which need no kernel; on the way, u_s, alpha and v_s of output p in slots[p], zero beyond n."""
    outputs = len(alpha)
    own = outputs + 1
    for s in range(outputs):  # v_s = sum_t G_st u_t - g_s alpha
        gains[outputs, s] = -g_mean[s]
        for t in range(outputs):
            gains[t, s] = g_covariance[s, t]
    stride, factors = gains.shape[1], gains.reshape(-1)
    _clear(dt[n:].reshape(-1))
    _clear(dv[n:].reshape(-1))
    for p in range(outputs):
        out = slots[p]
        _clear(out)
        for i in range(n):
            out[outputs * ld + i] = alpha[p, i]
            for s in range(outputs):
                out[s * ld + i] = beta[p, s, i]
        for s in range(0, outputs, GROUP):
            for i in range(0, m, LANES):
                _mix_4(factors, stride, s, out, ld, i, own, out, (own + s) * ld + i, ld)
        for i in range(0, m, LANES):
            _mix_1(g_mean, 1, 0, out, ld, i, outputs, line, i, 0)
        for i in range(n):
            dt[i, p] = line[i]
        _clear(line[:m])
        for s in range(outputs):
            u, v = out[s * ld : (s + 1) * ld], out[(own + s) * ld : (own + s + 1) * ld]
            for i in range(m):
                line[i] += u[i] * v[i]
        for i in range(n):
            dv[i, p] = line[i]


@njit(**FLAGS)
def _mirror(values, ld, n, m):
    """A whole symmetric matrix from its lower triangle, with ones on the diagonal and zeros in the padding."""
    for j in range(n):
        values[j * ld + j] = 1
        for i in range(j + 1, n):
            values[i * ld + j] = values[j * ld + i]
    for j in range(n, m):
        _clear(values[j * ld : j * ld + m])


@njit(**{**FLAGS, "fastmath": {"contract", "nsz", "reassoc"}})
def _dot(x, y):
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@njit(**FLAGS)
def _by_mixing(q, n, m, ld, mixing, g_mean, g_covariance, slots, side, values, cross, given, products, dc, out):
    """out[p, q]: by the mixing of latent function q, which is in K and c twice each, and in the prior covariance; dc.

    With u~, v~, alpha~ = W_q' (u, v, alpha) in the slots of `side`, it is the sum over s and neighbours of
    u_s[p] (K_q v~_s) + v_s[p] (K_q u~_s - 2 W_sq c_q) - alpha[p] c_q (W_q' g) - c_q (2 v~_p + g_p alpha~), and 2 G W_q.
    """
    outputs = len(mixing)
    own, count = outputs + 1, side.size // ld
    factors = given.reshape(-1)
    _clear(factors)
    last = given[m]  # after the factors of the columns of K_q those of c_q
    for s in range(outputs):
        last[own + s] = -2 * mixing[s, q]
        last[outputs] -= mixing[s, q] * g_mean[s]
        for j in range(n):
            given[j, s], given[j, own + s] = side[(own + s) * ld + j], side[s * ld + j]
    for i in range(m):
        values[m * ld + i] = cross[i]
    _clear(products)
    for i in range(0, m, LANES):
        for t in range(0, count, GROUP):
            _mix_4(factors, count, t, values, ld, i, m + 1, products, t * ld + i, ld)
        _mix_1(last, 1, 0, side, ld, i, count, dc, i, 0)  # dc = -sum_s W_sq (2 v~_s + g_s alpha~)
    near = cross[:m]
    level = _dot(near, side[outputs * ld : outputs * ld + m])
    for p in range(outputs):
        first = (own + p) * ld
        share = _dot(g_covariance[p], mixing[:, q]) - _dot(near, side[first : first + m])
        out[p, q] = _dot(slots[p], products) + share + share - g_mean[p] * level


@compiled(**FLAGS)
def backward(
    code,
    shape,
    rows,
    inverse_lengths,
    owners,
    mixing,
    query,
    ids,
    most,
    alpha,
    beta,
    g_mean,
    g_covariance,
    d_targets,
    d_noises,
    d_kernel,
    d_mixing,
    start,
    stop,
):
    """The gradients of the rows start .. stop, from those by mean (b, P) and covariance (b, P, P), symmetric.

    d_targets, d_noises (b, k, P); d_kernel (b, Q, d + p); d_mixing (b, P, Q). Returns zero, or what `count_neighbours`
    says of the first row of which the ids are wrong.
    """
    outputs, k = d_targets.shape[2], d_targets.shape[1]
    latents, lengths = inverse_lengths.shape
    d = lengths - owners.size
    ld, padded = column_length(k + LANES), mixing.shape[1]
    count = rounded(outputs + 1 + rounded(outputs, GROUP), GROUP)  # slots: u, alpha, and v in whole groups
    size = count * ld
    raw, x = coordinates(lengths, ld), coordinates(d, ld)
    parts, pulls = features(owners, d, ld, x), pulls_room(owners, d, ld)
    values, cross = aligned(ld * ld), aligned(ld)
    slopes, near_slopes = (aligned(ld * ld), aligned(ld * ld)), (aligned(ld), aligned(ld))
    totals, line, dc = aligned(ld), aligned(ld), aligned(ld)
    coordinate_sums = aligned(rounded(d, COLUMNS) * LANES)
    slots, sides = aligned(outputs * size), aligned(padded * size)
    products, given = aligned(size), aligned(size).reshape(ld, count)
    gains, unit = np.zeros((outputs + 1, rounded(outputs, GROUP))), np.ones(lengths)
    own, w = slots.reshape(outputs, size), mixing.reshape(-1)
    for r in range(start, stop):
        n = count_neighbours(ids[r], len(rows))
        if n < 0:
            return n
        n = min(n, most)
        m = rounded(n, LANES)
        gm, gc = g_mean[r], g_covariance[r]
        _without_kernel(n, m, ld, alpha[r], beta[r], gm, gc, gains, own, line, d_targets[r], d_noises[r])
        for q in range(0, padded, GROUP):  # projections W_q' (.) of all slots
            for t in range(0, size, ld):
                for i in range(t, t + m, LANES):
                    _mix_4(w, padded, q, slots, size, i, outputs, sides, q * size + i, size)
        gather(rows, query[r], unit, ids[r], n, m, ld, raw)
        for q in range(latents):
            _scale(raw, inverse_lengths[q], ld, m, parts)
            add_up(parts, owners, d, ld, m, x)
            correlations(code, shape, x, ld, d, m, values, slopes[0], slopes[1], ld)
            cross_correlations(code, shape, x, ld, d, m, cross, near_slopes[0], near_slopes[1])
            _mirror(values, ld, n, m)
            side = sides[q * size : (q + 1) * size]
            _by_mixing(q, n, m, ld, mixing, gm, gc, own, side, values, cross, given, products, dc, d_mixing[r])
            contract_slopes(
                code, shape, x, parts, owners, ld, d, m, side, side[(outputs + 1) * ld :], outputs, dc, slopes,
                near_slopes, totals, line, pulls, coordinate_sums, d_kernel[r, q],
            )  # fmt: skip
    return 0
