"""The closed form in compiled code: each neighbourhood is built, factorised and differentiated inside the cache.

For one row, the k x k matrix K lies in the columns of a workspace with further rows below it: the cross-covariances c,
and the targets t of every latent function that shares the noises. Factorising the columns of K then turns these rows
into b' = (L^-1 c)' and a' = (L^-1 t)' on the way. Rows are padded with the identity to a multiple of LANES, which
changes nothing; so are missing neighbours. Latent functions with noises of their own share the correlations alone.

A target that was not observed has an infinite noise: its pivot is infinite, and so its column of L, a and b are zero
there, as if it were not in the matrix.

The backward pass takes alpha and beta from the forward pass, builds the slopes of the correlations again, a few columns
at a time, and contracts them once with the weights of all latent functions together. For a single latent function this
costs more than it saves: there the forward pass writes the Jacobian of mean and variance, (2, d) numbers a row, while
the slopes are still in the cache, and only a gradient by quad, which training never asks for, needs the slopes again.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield._simd import COLUMNS, LANES, PANEL
from nearfield.conditional._cholesky import FLAGS, factorise, solve_back
from nearfield.conditional._slopes import (
    add_up,
    aligned,
    clear,
    column_length,
    contract_slopes,
    coordinates,
    correlations,
    count_neighbours,
    cross_correlations,
    features,
    gather,
    jacobian,
    pulls_room,
    rounded,
)

JITTER = 1e-10  # of the first retry, relative to the kernel's variance
MOST_JITTER = 1e3  # enough for any finite matrix


@njit(**FLAGS)
def _copy(base, ld, m, a):
    """The lower triangle, as `correlations` fills it."""
    for j in range(m):
        for i in range(j * ld + j // LANES * LANES, j * ld + m):
            a[i] = base[i]


@njit(**FLAGS)
def _complete(a, ld, n, m, below, noises, f, extra, cross, targets, first, count):
    """The diagonal, the identity in the padding, and the rows below.

    These are the cross-covariances in row m, `count` targets after it, then zeros. The noises are column f of (k, R),
    the targets the columns first .. first + count of (k, C).
    """
    for j in range(n):
        last = j * ld + m
        clear(a, j * ld + n, last + below)
        a[j * ld + j] = 1 + noises[j, f] + extra
        a[last] = cross[j]
        if noises[j, f] != np.inf:  # a target that was not observed may be anything, even not a number
            for t in range(count):
                a[last + 1 + t] = targets[j, first + t]
    for j in range(n, m):
        clear(a, j * ld + j // LANES * LANES, j * ld + m + below)
        a[j * ld + j] = 1


@njit(**FLAGS)
def _sum_up(a, ld, n, m, side, ks, mean, variance, quad):
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
        mean[i], variance[i], quad[i] = ab, max(1 - bb, 0.0), aa


@compiled(**FLAGS)
def forward(
    code,
    shape,
    rows,
    inverse_lengths,
    owners,
    query,
    ids,
    targets,
    noises,
    ks,
    differentiate,
    mean,
    variance,
    quad,
    alpha,
    beta,
    jacobians,
    jittered,
    start,
    stop,
):
    """The closed form for the rows start .. stop: moments, and for the gradient alpha, beta and Jacobians.

    mean, quad (b, q, C); variance (b, q, R); alpha (b, C, k) and beta (b, R, k) if `differentiate`; for C = 1 also
    jacobians (b, 2, d + p) of mean and variance by log length scales and log shapes. Returns zero, or what
    `count_neighbours` says of the first row of which the ids are wrong.
    """
    _, k, latents = targets.shape
    factors = noises.shape[2]
    count = latents // factors  # targets of one factorisation
    d = query.shape[1] - owners.size
    kp, below = rounded(k, LANES), rounded(count + 1, LANES)
    ld = column_length(kp + below)
    keep = ld if jacobians.size else 0
    a, base = aligned(kp * ld), aligned(kp * ld if factors > 1 else 0)
    x = coordinates(d, ld)
    parts = features(owners, d, ld, x)
    pulls = pulls_room(owners, d, ld)
    slopes = aligned(max(kp * keep, ld)), aligned(max(kp * keep if shape.size else 0, ld))
    cross, cross_slopes = aligned(ld), (aligned(ld), aligned(ld))
    inverse, lines, solved = aligned(PANEL), aligned(kp * LANES), aligned((count + 1) * ld)
    totals, near, half = aligned(ld), aligned(ld), aligned(ld)
    sums = aligned(rounded(d, COLUMNS) * LANES)
    most = ks[-1]  # those behind it do not count
    for r in range(start, stop):
        n = count_neighbours(ids[r], len(rows))
        if n < 0:
            return n
        n = min(n, most)
        m = rounded(n, LANES)
        gather(rows, query[r], inverse_lengths, ids[r], n, m, ld, parts)
        add_up(parts, owners, d, ld, m, x)
        cross_correlations(code, shape, x, ld, d, m, cross, cross_slopes[0], cross_slopes[1])
        if factors > 1:
            correlations(code, shape, x, ld, d, m, base, slopes[0], slopes[1], keep)
        for f in range(factors):
            first = f * count
            extra, done = 0.0, False
            while not done and extra < MOST_JITTER:
                if factors > 1:
                    _copy(base, ld, m, a)
                else:
                    correlations(code, shape, x, ld, d, m, a, slopes[0], slopes[1], keep)
                _complete(a, ld, n, m, below, noises[r], f, extra, cross, targets[r], first, count)
                done = factorise(a, ld, m, below, inverse)
                if not done:
                    extra = max(JITTER, extra * 10)
                    jittered[r] += 1
            if not done:  # the matrix was not finite
                a[:] = np.nan
            for t in range(count):
                c = first + t
                _sum_up(a, ld, n, m, m + 1 + t, ks, mean[r, :, c], variance[r, :, f], quad[r, :, c])
            if differentiate:
                solve_back(a, ld, m, count + 1, lines, solved)
                for i in range(k):
                    beta[r, f, i] = solved[i] if i < n else 0
                for t in range(count):
                    for i in range(k):
                        alpha[r, first + t, i] = solved[(t + 1) * ld + i] if i < n else 0
        if keep:
            jacobian(
                code, shape, x, parts, owners, ld, d, m, slopes, cross_slopes, solved[ld:], solved, a, totals, near,
                half, pulls, sums, jacobians[r],
            )  # fmt: skip
    return 0


@njit(**FLAGS)
def _without_kernel(n, ld, count, alpha, beta, gm, gv, gq, with_quad, u, dt, dv):
    """dt and dv, which need no kernel; u = g_v beta - g_m alpha on the way."""
    for f in range(len(beta)):
        b, w = beta[f], u[f * ld : (f + 1) * ld]
        for i in range(n):
            w[i] = gv[f] * b[i]
            dv[i, f] = 0
        for c in range(f * count, (f + 1) * count):
            a, g = alpha[c], gm[c]
            for i in range(n):
                w[i] -= g * a[i]
                dt[i, c] = g * b[i]
            if with_quad:
                q = gq[c]
                for i in range(n):
                    dt[i, c] += 2 * q * a[i]
                    dv[i, f] -= q * a[i] * a[i]
        for i in range(n):
            dv[i, f] += w[i] * b[i]
    for i in range(n, len(dt)):
        dt[i], dv[i] = 0, 0


@njit(**FLAGS)
def _by_correlations(n, m, ld, alpha, beta, gv, gq, pairs, u, v, dc):
    """dK = sum_p (u_p v_p' + v_p u_p') / 2 and dc, over the latent functions; u as `_without_kernel` leaves it."""
    factors = len(beta)
    clear(dc, 0, m)
    for p in range(pairs):
        for i in range(n):
            place = p * ld + i
            if p < factors:  # g_v beta beta' - g_m (alpha beta' + beta alpha') / 2
                dc[i] -= u[place] + gv[p] * beta[p, i]
                v[place] = beta[p, i]
            else:  # -g_q alpha alpha'
                a = alpha[p - factors, i]
                u[place], v[place] = -gq[p - factors] * a, a
        for i in range(p * ld + n, p * ld + m):
            u[i], v[i] = 0, 0


@compiled(**FLAGS)
def backward(
    code,
    shape,
    rows,
    inverse_lengths,
    owners,
    query,
    ids,
    most,
    alpha,
    beta,
    jacobians,
    g_mean,
    g_variance,
    g_quad,
    with_quad,
    d_targets,
    d_noises,
    d_kernel,
    start,
    stop,
):
    """The gradients of the rows start .. stop: d_targets (b, k, C), d_noises (b, k, R) and d_kernel (b, d + p).

    Returns zero, or what `count_neighbours` says of the first row of which the ids are wrong.
    """
    _, k, factors = d_noises.shape
    d = query.shape[1] - owners.size
    ld = column_length(rounded(k, LANES) + LANES)
    count = alpha.shape[1] // factors
    pairs = factors + (alpha.shape[1] if with_quad else 0)
    rebuild = with_quad or not jacobians.size
    size = rounded(k, LANES) * ld if rebuild else 0
    x = coordinates(d, ld)
    parts = features(owners, d, ld, x)
    pulls = pulls_room(owners, d, ld)
    values, slopes = aligned(size), (aligned(size), aligned(size if shape.size else ld))
    cross, cross_slopes = aligned(ld), (aligned(ld), aligned(ld))
    totals, near, sums = aligned(ld), aligned(ld), aligned(rounded(d, COLUMNS) * LANES)
    u, v, dc = aligned(pairs * ld), aligned(pairs * ld), aligned(ld)
    for r in range(start, stop):
        n = count_neighbours(ids[r], len(rows))
        if n < 0:
            return n
        n = min(n, most)
        m = rounded(n, LANES)
        _without_kernel(
            n, ld, count, alpha[r], beta[r], g_mean[r], g_variance[r], g_quad[r], with_quad,
            u, d_targets[r], d_noises[r],
        )  # fmt: skip
        if not rebuild:
            for e in range(d_kernel.shape[1]):
                d_kernel[r, e] = g_mean[r, 0] * jacobians[r, 0, e] + g_variance[r, 0] * jacobians[r, 1, e]
            continue
        _by_correlations(n, m, ld, alpha[r], beta[r], g_variance[r], g_quad[r], pairs, u, v, dc)
        gather(rows, query[r], inverse_lengths, ids[r], n, m, ld, parts)
        add_up(parts, owners, d, ld, m, x)
        cross_correlations(code, shape, x, ld, d, m, cross, cross_slopes[0], cross_slopes[1])
        correlations(code, shape, x, ld, d, m, values, slopes[0], slopes[1], ld)
        contract_slopes(
            code, shape, x, parts, owners, ld, d, m, u, v, pairs, dc, slopes, cross_slopes, totals, near, pulls, sums,
            d_kernel[r],
        )  # fmt: skip
    return 0
