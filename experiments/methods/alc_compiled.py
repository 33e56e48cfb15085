# mypy: disable-error-code=no-untyped-def
"""The compiled part of ALC: the greedy choice, the local likelihood and its optimum. See `alc.py` for the formulas.

d inputs, c candidates, k rows in the design, p parameters phi: log theta by group of inputs, then log g. Plain loops:
they compile faster than array expressions, and sums run along rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SHAPE = 1.5
"""Of the gamma priors, laGP's."""


@njit(nogil=True, cache=True)
def predict_rows(X_new, X, y, near, k, start, groups, p_start, p_low, p_high, p_rate, iterations, out):
    """Mean and scale, out (b, 2), of rows X_new (b, d) with candidates `near` (b, c), sorted by distance.

    p_start, p_low, p_high, p_rate (2,): of theta and of the nugget.
    """
    d = X.shape[1]
    p = groups[-1] + 2
    first, low, high, rate = np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    for m in range(p):
        which = 1 if m == p - 1 else 0
        first[m], low[m], high[m] = np.log(p_start[which]), np.log(p_low[which]), np.log(p_high[which])
        rate[m] = p_rate[which]
    theta, design, target = np.empty(d), np.empty((k, d)), np.empty(k)
    for i in range(len(X_new)):
        theta[:] = p_start[0]
        chosen = select(X_new[i], X, near[i], theta, p_start[1], k, start)
        for n in range(k):
            row = near[i, chosen[n]]
            target[n] = y[row]
            for m in range(d):
                design[n, m] = X[row, m]
        phi = optimise(first, low, high, rate, design, target, groups, iterations)
        for m in range(d):
            theta[m] = np.exp(phi[groups[m]])
        out[i, 0], out[i, 1] = predictive(X_new[i], design, target, theta, np.exp(phi[p - 1]))


@njit(nogil=True, cache=True, fastmath=True)
def correlation(a, b, theta):
    total = 0.0
    for m in range(len(theta)):
        total += (a[m] - b[m]) ** 2 / theta[m]
    return np.exp(-total)


@njit(nogil=True, cache=True, fastmath=True)
def select(x, X, near, theta, g, k, start):
    """Places (k,) in `near` (c,) of the rows of X (n, d) in the design for x (d,), in the order of selection."""
    c = len(near)
    factor = np.zeros((c, k))  # row j: L^-1 k(design, candidate j)
    variance, covariance, free = np.empty(c), np.empty(c), np.ones(c, dtype=np.bool_)
    for j in range(c):
        variance[j], covariance[j] = 1 + g, correlation(x, X[near[j]], theta)
    chosen = np.empty(k, dtype=np.int64)
    for n in range(k):
        best, best_gain = -1, -1.0
        for j in range(c):
            if free[j]:
                gain = covariance[j] ** 2 / variance[j]
                if best < 0 or (n >= start and gain > best_gain):  # the first ones are the nearest
                    best, best_gain = j, gain
        chosen[n], free[best] = best, False
        pivot = np.sqrt(variance[best])
        at_x = covariance[best] / pivot
        for j in range(c):
            if free[j]:
                w = 0.0
                for m in range(n):
                    w += factor[best, m] * factor[j, m]
                w = (correlation(X[near[best]], X[near[j]], theta) - w) / pivot
                factor[j, n] = w
                variance[j] = max(variance[j] - w * w, 1e-12)
                covariance[j] -= w * at_x
    return chosen


@njit(nogil=True, cache=True, fastmath=True)
def matrix(design, theta, g):
    """K (k, k)."""
    K = np.empty((len(design), len(design)))
    for i in range(len(design)):
        K[i, i] = 1 + g
        for j in range(i):
            K[i, j] = K[j, i] = correlation(design[i], design[j], theta)
    return K


@njit(nogil=True, cache=True, fastmath=True)
def inverse_factor(K):
    """L^-1 (k, k) with K = L L', and log det L."""
    k = len(K)
    L, inverse, log_det = np.zeros((k, k)), np.zeros((k, k)), 0.0
    for i in range(k):
        for j in range(i + 1):
            total = 0.0
            for m in range(j):
                total += L[i, m] * L[j, m]
            total = K[i, j] - total
            L[i, j] = total / L[j, j] if j < i else np.sqrt(max(total, 1e-12))
        log_det += np.log(L[i, i])
        for m in range(i):
            for j in range(m + 1):
                inverse[i, j] -= L[i, m] * inverse[m, j]
        for j in range(i):
            inverse[i, j] /= L[i, i]
        inverse[i, i] = 1 / L[i, i]
    return inverse, log_det


@njit(nogil=True, cache=True, fastmath=True)
def log_likelihood(phi, rate, design, y, groups, gradient):
    """Log posterior of phi (p,), without constants; its gradient (p,) is written to `gradient`."""
    k, d, p = design.shape[0], design.shape[1], len(phi)
    theta, g = np.empty(d), np.exp(phi[p - 1])
    for m in range(d):
        theta[m] = np.exp(phi[groups[m]])
    K = matrix(design, theta, g)
    inverse, log_det = inverse_factor(K)
    P, alpha, psi = np.zeros((k, k)), np.zeros(k), 1e-300
    for m in range(k):
        a = 0.0
        for i in range(m + 1):
            a += inverse[m, i] * y[i]
        psi += a * a
        for i in range(m + 1):
            alpha[i] += inverse[m, i] * a
            for j in range(i + 1):
                P[i, j] += inverse[m, i] * inverse[m, j]
    for m in range(p):
        gradient[m] = 0.0
    for i in range(k):
        gradient[p - 1] -= (P[i, i] - k * alpha[i] ** 2 / psi) / 2 * g
        for j in range(i):
            w = (P[i, j] - k * alpha[i] * alpha[j] / psi) * K[i, j]  # both halves of the symmetric sum
            for m in range(d):
                gradient[groups[m]] -= w * (design[i, m] - design[j, m]) ** 2 / theta[m]
    value = -k / 2 * np.log(psi) - log_det
    for m in range(p):  # gamma densities, in theta as in laGP
        value += (SHAPE - 1) * phi[m] - rate[m] * np.exp(phi[m])
        gradient[m] += (SHAPE - 1) - rate[m] * np.exp(phi[m])
    return value


@njit(nogil=True, cache=True)
def optimise(first, low, high, rate, design, y, groups, iterations):
    """phi (p,) within its bounds after some BFGS steps from `first`, with halved steps where one leads down."""
    p = len(first)
    phi, trial = first.copy(), np.empty(p)
    gradient, trial_gradient, direction = np.empty(p), np.empty(p), np.empty(p)
    s, t, Ht = np.empty(p), np.empty(p), np.empty(p)
    for m in range(p):
        phi[m] = min(max(phi[m], low[m]), high[m])
    value = log_likelihood(phi, rate, design, y, groups, gradient)
    H = np.eye(p) / max(1.0, np.abs(gradient).max())
    for _ in range(iterations):
        rise, longest = 0.0, 0.0
        for m in range(p):
            direction[m] = 0.0
            if not held(phi[m], gradient[m], low[m], high[m]):
                for j in range(p):
                    if not held(phi[j], gradient[j], low[j], high[j]):
                        direction[m] += H[m, j] * gradient[j]
                rise += direction[m] * gradient[m]
                longest = max(longest, abs(direction[m]))
        if rise < 1e-4:
            break
        step, found = min(1.0, 2.0 / longest), False
        for _ in range(12):
            for m in range(p):
                trial[m] = min(max(phi[m] + step * direction[m], low[m]), high[m])
            trial_value = log_likelihood(trial, rate, design, y, groups, trial_gradient)
            if trial_value >= value + 1e-4 * step * rise:
                found = True
                break
            step /= 2
        if not found:
            break
        for m in range(p):
            s[m], t[m] = trial[m] - phi[m], gradient[m] - trial_gradient[m]
            phi[m], gradient[m] = trial[m], trial_gradient[m]
        value = trial_value
        bfgs_update(H, s, t, Ht)
    return phi


@njit(nogil=True, cache=True)
def held(phi, slope, low, high):
    return (phi <= low and slope < 0) or (phi >= high and slope > 0)


@njit(nogil=True, cache=True)
def bfgs_update(H, s, t, Ht):
    """H (p, p), the inverse of the negative Hessian, after a step s in which the gradient fell by t; Ht is scratch."""
    p, st, tHt = len(s), 0.0, 0.0
    for m in range(p):
        Ht[m] = 0.0
        for j in range(p):
            Ht[m] += H[m, j] * t[j]
        st += s[m] * t[m]
        tHt += t[m] * Ht[m]
    if st > 1e-10:
        for m in range(p):
            for j in range(p):
                H[m, j] += s[m] * s[j] * (st + tHt) / st**2 - (Ht[m] * s[j] + s[m] * Ht[j]) / st


@njit(nogil=True, cache=True, fastmath=True)
def predictive(x, design, y, theta, g):
    """Mean and scale of the Student-t at x (d,)."""
    k = len(y)
    c = np.empty(k)
    for i in range(k):
        c[i] = correlation(x, design[i], theta)
    inverse, _ = inverse_factor(matrix(design, theta, g))
    mean, left, psi = 0.0, 1 + g, 0.0
    for i in range(k):
        a, b = 0.0, 0.0
        for j in range(i + 1):
            a += inverse[i, j] * y[j]
            b += inverse[i, j] * c[j]
        mean, left, psi = mean + a * b, left - b * b, psi + a * a
    return mean, np.sqrt(psi / k * max(left, 0.0))
