"""Log densities of an observation with the latent function integrated out, and their slopes.

The latent function at a row is normal with known moments. Three kinds of observations given it:

    normal       y = f + noise: closed
    student_t    y = f + s t, t of Student's distribution: a mixture of normals, summed over the mixing variable
    logistic     e^(a f) / (1 + e^f)^b, the form of binomial and negative binomial counts: summed over f

The sums run over nodes around the mode of each row's integrand, which may be far narrower than the prior. Slopes are
sums over the same nodes. Each row is computed from its own numbers alone: its bits do not depend on other rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, psi

from nearfield._compiled import compiled
from nearfield._simd import exp_nonpositive

Array = NDArray[np.float64]

TINY = 1e-300
LEAST_VARIANCE = 1e-30  # no likelihood can tell it from none
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

_T_DROP = 36.0  # the trapezoidal rule over log lambda ends where the integrand is exp(-36) of its largest value
_T_STEP = 0.3  # longest step: its error is about exp(-pi^2 / step), for however few degrees of freedom
_T_MOST = 4000
_DROP = 22.0  # an integrand ends where it is exp(-22) of its largest value
REACH = math.sqrt(2 * _DROP)  # the same for a normal, in standard deviations


def gauss_legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,) on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1) / 2, weights / 2


NODES, WEIGHTS = gauss_legendre(18)
_SIDES = NODES.size  # nodes on either side of the mode
_LOG1P = 1 / np.arange(35.0, 0.0, -2.0)  # of the series of atanh, highest first


def _flat(*arrays: Array) -> Iterator[Array]:
    """One after the other in memory, so that one compiled function serves all."""
    return (np.ascontiguousarray(array, dtype=np.float64) for array in arrays)


class NormalMarginal(NamedTuple):
    """Log density and its slopes, all (b,)."""

    value: Array
    by_residual: Array
    by_total: Array


def normal(residual: Array, total: Array) -> NormalMarginal:
    """log N(residual; 0, total), the variance of latent function and noise together being `total`; shapes broadcast."""
    precision = 1 / total
    pull = residual * precision
    value = -0.5 * (np.log(total) + residual * pull) - HALF_LOG_2PI
    return NormalMarginal(value, -pull, 0.5 * (pull * pull - precision))


class StudentTMarginal(NamedTuple):
    """Log density and its slopes, all (b,)."""

    value: Array
    by_residual: Array
    by_variance: Array
    by_log_noise: Array
    by_log_df: Array


def student_t(residual: Array, variance: Array, log_noise: float, log_df: float) -> StudentTMarginal:
    """log of the integral over lambda of Gamma(lambda; nu/2, nu/2) N(residual; 0, variance + s^2 / lambda).

    residual = y - mean and the latent variance, both (b,); log_noise = log s^2 and log_df = log nu are numbers.
    """
    half = 0.5 * math.exp(log_df)
    log_constant = half * math.log(half) - float(gammaln(half)) - HALF_LOG_2PI - 0.5 * log_noise
    by_half = math.log(half) + 1 - float(psi(half))
    found = np.empty((5, residual.size))
    _student_t(*_flat(residual, variance), math.exp(log_noise), half, log_constant, by_half, found)
    return StudentTMarginal(*found)


@compiled(error_model="numpy")
def _student_t(
    residual: Array, variance: Array, noise: float, half: float, log_constant: float, by_half: float, found: Array
) -> None:
    """`student_t` of each row into `found` (5, b), by the trapezoidal rule over u = log lambda."""
    lambdas, owns, shares = np.empty(_T_MOST), np.empty(_T_MOST), np.empty(_T_MOST)
    for i in range(residual.size):
        w, q = max(variance[i], 0.0) / noise, residual[i] * residual[i] / noise
        start, step, count, largest = _log_lambda_grid(half, w, q)
        x, growth = math.exp(start), math.exp(step)
        for k in range(count):
            lambdas[k] = x
            x *= growth
        # the smallest sqrt(own) below taken out, and a unit more for a mode that was not met: no power is above zero
        largest += 0.5 * math.log1p(w * lambdas[count - 1]) + 1.0
        for k in range(count):
            u, x = start + k * step, lambdas[k]
            owns[k] = 1.0 / (1.0 + w * x)  # share of the noise in the variance: N has the variance noise / (x own)
            power = half * (u - x) + 0.5 * (u - q * x * owns[k]) - largest
            shares[k] = math.sqrt(owns[k]) * exp_nonpositive(min(power, 0.0))
        mass = by_residual = by_variance = by_noise = by_half_nodes = 0.0
        for k in range(count):
            x, own, share = lambdas[k], owns[k], shares[k]
            by_log_total = 0.5 * share * (q * x * own - 1.0)
            mass += share
            by_residual -= share * x * own
            by_variance += by_log_total * x * own
            by_noise += by_log_total * own
            by_half_nodes += share * (start + k * step - x)
        found[0, i] = log_constant + largest + math.log(mass * step)
        found[1, i] = by_residual / mass * (residual[i] / noise)
        found[2, i] = by_variance / mass / noise
        found[3, i] = by_noise / mass
        found[4, i] = half * (by_half + by_half_nodes / mass)


@compiled(error_model="numpy")
def _log_lambda_grid(half: float, w: float, q: float) -> tuple[float, float, int, float]:
    """Equally spaced u = log lambda for one row's integrand: the first, their distance and number; the largest log.

    w and q are the variance and the squared residual in units of s^2. The integrand may have two modes: the residual
    is an outlier of the noise, lambda about 1 / q, or of the latent function, lambda about 1. The modes x solve

        half (1 - x) (1 + w x)^2 + (1 + (w - q) x) / 2 = 0

    One root by Newton's method, the other two by division; then the nodes run from the first mode that counts to the
    last, and on either side until the integrand has fallen by exp(-36).
    """
    x = _one_mode(half, w, q)
    first = last = x
    # the cubic divided by x - root: c2 x^2 + c1 x + c0, with the root's own product for c0
    c2, c1, c0 = -half * w * w, half * w * (w * (1.0 - x) - 2.0), -(half + 0.5) / x
    discriminant = c1 * c1 - 4.0 * c2 * c0
    if discriminant > 0 and c1 > 0:
        far = -0.5 * (c1 + math.sqrt(discriminant))
        first, last = min(x, c0 / far), max(x, far / c2)
    height_first = _log_lambda_height(math.log(first), half, w, q)
    height_last = _log_lambda_height(math.log(last), half, w, q)
    highest = max(height_first, height_last)
    if height_first < highest - _T_DROP:
        first = last
    if height_last < highest - _T_DROP:
        last = first

    width_first, width_last = _log_lambda_width(first, half, w, q), _log_lambda_width(last, half, w, q)
    left, right = 8.0 * width_first, 6.0 * width_last
    while _log_lambda_height(math.log(first) - left, half, w, q) > highest - _T_DROP:
        left *= 1.2
    while _log_lambda_height(math.log(last) + right, half, w, q) > highest - _T_DROP:
        right *= 1.2
    start, end = math.log(first) - left, math.log(last) + right
    steps = (end - start) / min(0.6 * min(width_first, width_last), _T_STEP)
    count = 2 + int(min(steps, _T_MOST - 2.0)) if steps > 0 else 2  # steps is no number if an argument is none
    return start, (end - start) / (count - 1), count, highest


@compiled(error_model="numpy")
def _one_mode(half: float, w: float, q: float) -> float:
    """A mode of the integrand over u = log lambda, or its minimum between two, as lambda.

    All roots of its slope lie between the first `low` and `high`. Newton steps inside, halving where one leads out.
    """
    low, high = -math.log1p(q / (2.0 * half)), math.log1p(0.5 / half)
    u = min(max(math.log((half + 0.5) / (half + 0.5 * q / (1.0 + w))), low), high)
    for _ in range(100):
        x = math.exp(u)
        own = 1.0 / (1.0 + w * x)  # share of the noise in the variance
        excess = q * x * own  # squared residual over the variance
        slope = half * (1.0 - x) + 0.5 * own * (1.0 - excess)
        bend = half * x + 0.5 * own * (1.0 - own) + 0.5 * own * excess * (2.0 * own - 1.0)
        if not abs(slope) > 1e-6 * math.sqrt(abs(bend)) or high - low < 1e-12:
            break
        if slope > 0:
            low = u
        else:
            high = u
        u += slope / bend
        if not low < u < high:
            u = 0.5 * (low + high)
    return math.exp(u)


@compiled(error_model="numpy")
def _log_lambda_height(u: float, half: float, w: float, q: float) -> float:
    """Log of the integrand over u = log lambda, up to a constant and in units of the noise."""
    x = math.exp(u)
    own = 1.0 / (1.0 + w * x)
    return half * (u - x) + 0.5 * (math.log(own) + u - q * x * own)


@compiled(error_model="numpy")
def _log_lambda_width(x: float, half: float, w: float, q: float) -> float:
    """Distance in log lambda over which the integrand may change: all parts of its bend at x added up."""
    own = 1.0 / (1.0 + w * x)
    return 1.0 / math.sqrt(half * x + 0.5 * own * (1.0 - own) + 0.5 * own * own * q * x * abs(2.0 * own - 1.0) + 1e-3)


class LogisticMarginal(NamedTuple):
    """Log of the integral and its slopes, all (b,)."""

    value: Array
    by_mean: Array
    by_variance: Array
    by_b: Array


def logistic(mean: Array, variance: Array, a: Array, b: Array) -> LogisticMarginal:
    """log of the integral over f of N(f; mean, variance) e^(a f) / (1 + e^f)^b for 0 <= a <= b; all (b,).

    With an offset, f + offset in place of f, the mean is that of the sum. A variance below 1e-30 counts as 1e-30.

    Let s = a - b sigmoid(f), the slope of the log likelihood, l = b sigmoid(f) sigmoid(-f) its bend, and E the mean
    under the integrand. Then for any weight t

        m = t (f - mean) / variance + (1 - t) s
        by_mean = E[m]      by_variance = (E[m^2] - t^2 / variance - (1 - t)^2 E[l]) / 2

    by integration by parts; t = 1 differentiates the prior alone, t = 0 the likelihood alone, and either loses all
    digits where the other is much the narrower. The t for which m is flat at the mode loses none.
    """
    found = np.empty((4, mean.size))
    _logistic(*_flat(mean, variance, a, b), found)
    return LogisticMarginal(*found)


@compiled(error_model="numpy")
def _logistic(mean: Array, variance: Array, a: Array, b: Array, found: Array) -> None:
    """`logistic` of each row into `found` (4, b), over z = (f - mean) / std."""
    zs, widths, powers = np.empty(2 * _SIDES), np.empty(2 * _SIDES), np.empty(2 * _SIDES)
    pulls, bends, softplus = np.empty(2 * _SIDES), np.empty(2 * _SIDES), np.empty(2 * _SIDES)
    for i in range(mean.size):
        m, ai, bi, ci = mean[i], a[i], b[i], b[i] - a[i]
        v = max(variance[i], LEAST_VARIANCE)
        std = math.sqrt(v)
        mode = posterior_mode(ai, ci, m, std)
        p, q = _shares(m + std * mode)
        # around its mode the integrand is that of a Beta(b p, b q) times a normal
        left, right = beta_reaches(max(bi * p, TINY), max(bi * q, TINY))
        left, right = min(left / std, REACH), min(right / std, REACH)
        for k in range(_SIDES):
            zs[k], widths[k] = mode - left * NODES[k], left * WEIGHTS[k]
            zs[_SIDES + k], widths[_SIDES + k] = mode + right * NODES[k], right * WEIGHTS[k]

        bend = bi * p * q
        flat = 1.0 / (1.0 + v * bend)  # 1 - t
        for k in range(2 * _SIDES):
            f = m + std * zs[k]
            e = exp_nonpositive(-abs(f))
            major = 1.0 / (1.0 + e)
            ratio = e / (2.0 + e)
            series = 0.0
            for j in range(_LOG1P.size):
                series = series * (ratio * ratio) + _LOG1P[j]
            rest = 2.0 * ratio * series  # log(1 + e) = 2 atanh(e / (2 + e))
            softplus[k] = max(f, 0.0) + rest
            # a f - b softplus and a - b sigmoid, such that no large numbers cancel where f > 0
            powers[k] = (-ci * f if f > 0 else ai * f) - bi * rest - 0.5 * zs[k] * zs[k]
            pull = bi * e * major - ci if f > 0 else ai - bi * e * major
            pulls[k] = flat * (bend * std * zs[k] + pull)
            bends[k] = bi * e * major * major
        largest = -np.inf
        for k in range(2 * _SIDES):
            largest = max(largest, powers[k])
        for k in range(2 * _SIDES):
            widths[k] *= exp_nonpositive(powers[k] - largest)
        mass = first = second = curvature = by_b = 0.0
        for k in range(2 * _SIDES):
            mass += widths[k]
            first += widths[k] * pulls[k]
            second += widths[k] * pulls[k] * pulls[k]
            curvature += widths[k] * bends[k]
            by_b -= widths[k] * softplus[k]
        found[0, i] = largest + math.log(mass) - HALF_LOG_2PI
        found[1, i] = first / mass
        found[2, i] = 0.5 * (second / mass - flat * (v * bend * flat * bend) - flat * flat * curvature / mass)
        found[3, i] = by_b / mass


@compiled(error_model="numpy")
def posterior_mode(y: float, c: float, mean: float, std: float) -> float:
    """z for which sigmoid(f)^y sigmoid(-f)^c exp(-z^2 / 2), f = mean + std z, is largest.

    Newton steps in the bracket between the mode of the normal and that of the likelihood, to 1e-3 of the width.
    """
    best = (math.log(max(y, TINY)) - math.log(max(c, TINY)) - mean) / std
    low, high = max(min(best, 0.0), -std * c), min(max(best, 0.0), std * y)
    z = best / (1.0 + 1.0 / (std * std * y * c / (y + c + TINY) + TINY))  # normal times normal
    z = min(max(z, low), high)
    for _ in range(60):
        p, q = _shares(mean + std * z)
        slope, bend = std * (y * q - c * p) - z, std * std * (y + c) * p * q + 1.0
        if not abs(slope) >= 1e-3 * math.sqrt(bend):
            break
        if slope > 0:
            low = z
        else:
            high = z
        z += slope / bend
        if not low <= z <= high:
            z = 0.5 * (low + high)
    return z


@compiled(error_model="numpy")
def beta_reaches(a: float, b: float) -> tuple[float, float]:
    """Distances below and above the mode of the logit of Beta(a, b) over which its density falls by exp(-22) at least.

    The distance d above solves (a + b) log(1 + a / (a + b) (e^d - 1)) = 22 + a d; after a bound comes one step of this
    fixed point, from above. Below, a and b change places.
    """
    wide = REACH * math.sqrt(1.0 / a + 1.0 / b)
    above, below = wide + _DROP / b, wide + _DROP / a
    above = min(above, math.log1p(math.expm1((_DROP + a * above) / (a + b)) * ((a + b) / a)))
    below = min(below, math.log1p(math.expm1((_DROP + b * below) / (a + b)) * ((a + b) / b)))
    return below, above


@compiled(error_model="numpy")
def _shares(f: float) -> tuple[float, float]:
    """sigmoid(f) and sigmoid(-f), both with all their digits."""
    e = math.exp(-abs(f))
    major = 1.0 / (1.0 + e)
    return (major, e * major) if f > 0 else (e * major, major)
