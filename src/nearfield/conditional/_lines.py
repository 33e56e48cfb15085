"""Compiled parts of the closed form of all rows at once: correlations line by line, their slopes, solves for new rows.

Each line, or new row, has numbers of its own, whichever others are computed beside it. New rows are solved for LANES at
a time, one in each lane of the vectors: what happens in a lane does not depend on the others.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield.conditional._cholesky import FLAGS
from nearfield.kernels import evaluate_profile

LANES = 16  # new rows that are solved for together
_SUMS = {**FLAGS, "fastmath": {"contract", "nsz", "reassoc"}}  # a sum in any order, the same one every time


@njit(**FLAGS)
def _line(code, shape, columns, point, values, slopes, shape_slopes):
    """The kernel between one scaled point (d,) and rows given by their scaled columns (d, n)."""
    values[:] = 0
    for e in range(len(columns)):
        column, x = columns[e], point[e]
        for j in range(len(values)):
            off = column[j] - x
            values[j] += off * off
    evaluate_profile(code, shape, values, 0, len(values), 1, slopes, 0, shape_slopes)


@compiled(**FLAGS)
def correlate(code, shape, columns, points, values, slopes, shape_slopes, start, stop):
    """Lines start .. stop of the correlations (b, n) of points (b, d) with rows, and of the slopes in r2.

    slopes and shape_slopes (b or 1, n): those of a single line are written over again and again.
    """
    for i in range(start, stop):
        s = i if len(slopes) > 1 else 0
        p = i if len(shape_slopes) > 1 else 0
        _line(code, shape, columns, points[i], values[i], slopes[s], shape_slopes[p])


@compiled(**_SUMS)
def contract(columns, more, owners, weights, slopes, shape_slopes, with_shape, by_lengths, start, stop):
    """Lines start .. stop: slopes (n, d + w + p) by log length scales and log shape, from those by correlations (n, n).

    By the log length scale of a feature p of column e: -2 sum_j weight_ij slope_ij (z_ie - z_je) (p_i - p_j). There is
    one of each column, and feature i of `more` (w, n) is one more of column owners[i] (w,).
    """
    d, n = columns.shape
    lengths = d + len(more)
    own = np.empty(n)
    for i in range(start, stop):
        for j in range(n):
            own[j] = weights[i, j] * slopes[i, j]
        for e in range(d):
            column, x = columns[e], columns[e, i]
            total = 0.0
            for j in range(n):
                off = column[j] - x
                total += own[j] * off * off
            by_lengths[i, e] = -2 * total
        for f in range(len(more)):
            e = owners[f]
            column, x, feature, p = columns[e], columns[e, i], more[f], more[f, i]
            total = 0.0
            for j in range(n):
                total += own[j] * (column[j] - x) * (feature[j] - p)
            by_lengths[i, d + f] = -2 * total
            by_lengths[i, e] += 2 * total  # what is left is that of the first feature
        if with_shape:
            total = 0.0
            for j in range(n):
                total += weights[i, j] * shape_slopes[i, j]
            by_lengths[i, lengths] = total


@compiled(**FLAGS)
def mirror(a, start, stop):
    """Columns start .. stop of a square matrix from its lines: the upper triangle becomes the lower one, too."""
    for i in range(start, stop):
        for j in range(i):
            a[i, j] = a[j, i]


@njit(**FLAGS)
def _solve(factor, lanes):
    """L^-1 c in the place of c (n, LANES), four columns of L at a time."""
    n = len(lanes)
    for j in range(0, n, 4):
        stop = min(j + 4, n)
        for c in range(j, stop):
            one = 1 / factor[c, c]
            for lane in range(LANES):
                lanes[c, lane] *= one
            for i in range(c + 1, stop):
                for lane in range(LANES):
                    lanes[i, lane] -= factor[c, i] * lanes[c, lane]
        for i in range(stop, n):  # only whole fours have rows behind them
            f0, f1, f2, f3 = factor[j, i], factor[j + 1, i], factor[j + 2, i], factor[j + 3, i]
            for lane in range(LANES):
                lanes[i, lane] -= (
                    f0 * lanes[j, lane] + f1 * lanes[j + 1, lane] + f2 * lanes[j + 2, lane] + f3 * lanes[j + 3, lane]
                )


@njit(**FLAGS)
def _solve_back(factor, lanes):
    """L^-T b in the place of b (n, LANES)."""
    n, sums = len(lanes), np.empty(LANES)
    for j in range(n - 1, -1, -1):
        for lane in range(LANES):  # compiles sooner than an assignment of one slice to another, by two seconds
            sums[lane] = lanes[j, lane]
        for i in range(j + 1, n):
            for lane in range(LANES):
                sums[lane] -= factor[j, i] * lanes[i, lane]
        one = 1 / factor[j, j]
        for lane in range(LANES):
            lanes[j, lane] = sums[lane] * one


@compiled(**FLAGS)
def predict(code, shape, columns, factor, alpha, points, mean, variance, beta, start, stop):
    """Moments of new rows, blocks start .. stop of LANES each: mean (b, c) and variance (b,); a kernel of scale one.

    factor (n, n): line j is column j of L, from its diagonal on. alpha (n, c): K^-1 t. beta (b, n): K^-1 c, or (0, n)
    where nobody asks for it.
    """
    n, count = alpha.shape
    lanes, line = np.empty((n, LANES)), np.empty(n)
    spare = np.empty(n), np.empty(n)
    sums = np.empty(LANES)
    for block in range(start, stop):
        first = block * LANES
        for lane in range(LANES):
            _line(code, shape, columns, points[min(first + lane, len(points) - 1)], line, spare[0], spare[1])
            for i in range(n):
                lanes[i, lane] = line[i]
        rows = min(LANES, len(points) - first)
        for c in range(count):
            sums[:] = 0
            for i in range(n):
                for lane in range(LANES):
                    sums[lane] += alpha[i, c] * lanes[i, lane]
            for lane in range(rows):
                mean[first + lane, c] = sums[lane]
        _solve(factor, lanes)
        sums[:] = 0
        for j in range(n):
            for lane in range(LANES):
                sums[lane] += lanes[j, lane] * lanes[j, lane]
        for lane in range(rows):
            variance[first + lane] = max(1 - sums[lane], 0.0)
        if len(beta):
            _solve_back(factor, lanes)
            for lane in range(rows):
                for i in range(n):
                    beta[first + lane, i] = lanes[i, lane]
