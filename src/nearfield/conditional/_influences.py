"""Compiled part of `deletions`: a neighbourhood with the identity below it, so that factorising gives L^-1 as well.

Rows below the matrix become L^-1 of them on the way (see `_fused`): cross-covariances, targets, and here the identity.
Line i of L^-1 adds its part to alpha, beta and diag(K^-1), so sums over the first lines are those of fewer neighbours.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield._simd import LANES, PANEL
from nearfield.conditional._cholesky import FLAGS, factorise
from nearfield.conditional._fused import JITTER, MOST_JITTER, _complete, _sum_up
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


@njit(**FLAGS)
def _add_lines(a, ld, m, n, start, stop, count, alpha, beta, precision):
    """Lines start .. stop of L^-1 added up: alpha (count, k) = L^-T a, beta (k,) = L^-T b, precision (k,) = diag."""
    for i in range(start, stop):
        line = a[i * ld + m + 1 + count : i * ld + m + 1 + count + n]
        b = a[i * ld + m]
        for j in range(i + 1):
            beta[j] += line[j] * b
            precision[j] += line[j] * line[j]
        for t in range(count):
            own = a[i * ld + m + 1 + t]
            for j in range(i + 1):
                alpha[t, j] += line[j] * own


@compiled(**FLAGS)
def influences(
    code,
    shape,
    rows,
    inverse_lengths,
    query,
    ids,
    targets,
    noises,
    ks,
    mean,
    variance,
    quad,
    alpha,
    beta,
    precision,
    jittered,
    start,
    stop,
):
    """Moments, alpha = K^-1 t, beta = K^-1 c and diag(K^-1) of the rows start .. stop, given the first ks (2,).

    mean, quad (b, 2, C); variance (b, 2, R); alpha (b, 2, C, k), beta and precision (b, 2, R, k), zero at first.
    Returns zero, or what `count_neighbours` says of the first row of which the ids are wrong.
    """
    _, k, latents = targets.shape
    factors = noises.shape[2]
    count = latents // factors  # targets of one factorisation
    d = query.shape[1]
    kp = rounded(k, LANES)
    ld = column_length(kp + rounded(1 + count + k, LANES))
    a, x = aligned(kp * ld), coordinates(d, ld)
    slope, shape_slope = aligned(ld), aligned(ld)
    cross, inverse = aligned(ld), aligned(PANEL)
    for r in range(start, stop):
        n = count_neighbours(ids[r], len(rows))
        if n < 0:
            return n
        m, below = rounded(n, LANES), rounded(1 + count + n, LANES)
        gather(rows, query[r], inverse_lengths, ids[r], n, m, ld, x)
        cross_correlations(code, shape, x, ld, d, m, cross, slope, shape_slope)
        for f in range(factors):
            first = f * count
            extra, done = 0.0, False
            while not done and extra < MOST_JITTER:
                correlations(code, shape, x, ld, d, m, a, slope, shape_slope, 0)
                _complete(a, ld, n, m, below, noises[r], f, extra, cross, targets[r], first, count)
                for j in range(n):
                    a[j * ld + m + 1 + count + j] = 1
                done = factorise(a, ld, m, below, inverse)
                if not done:
                    extra = max(JITTER, extra * 10)
                    jittered[r] += 1
            if not done:  # the matrix was not finite
                a[:] = np.nan
            for t in range(count):
                c = first + t
                _sum_up(a, ld, n, m, m + 1 + t, ks, mean[r, :, c], variance[r, :, f], quad[r, :, c])
            few, own = min(ks[0], n), slice(first, first + count)
            _add_lines(a, ld, m, n, 0, few, count, alpha[r, 0, own], beta[r, 0, f], precision[r, 0, f])
            for j in range(n):  # a loop compiles sooner than an assignment of one slice to another
                beta[r, 1, f, j], precision[r, 1, f, j] = beta[r, 0, f, j], precision[r, 0, f, j]
                for c in range(first, first + count):
                    alpha[r, 1, c, j] = alpha[r, 0, c, j]
            _add_lines(a, ld, m, n, few, n, count, alpha[r, 1, own], beta[r, 1, f], precision[r, 1, f])
    return 0
