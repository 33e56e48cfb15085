"""Stationary kernels with one length scale per column, as value and slope in the squared scaled distance.

A kernel of scale one is k(x, z) = value(r2), with r2 = sum_d (x_d - z_d)^2 / length_d^2. The closed form needs only
value(r2) and slope(r2) = d value / d r2, and, for kernels with shape parameters, d value / d log shape.

A new kernel is one scalar function, one branch in `evaluate_profile` and one line in `KERNELS`; the tests hold each
against formulas of their own in torch and scipy.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield._simd import exp_nonpositive

_FAR = 87.0  # beyond it the exponential stays at 1.6e-38, and no polynomial may grow before it
_TINY = 1e-30  # keeps the slope of the Matern 1/2 kernel finite at distance zero, where it is multiplied by zero


@dataclass(frozen=True)
class Kernel:
    """A stationary kernel: `code` names its branch in compiled code, `shapes` its shape parameters and their starts."""

    code: int
    shapes: Mapping[str, float] = field(default_factory=dict, hash=False)


KERNELS: dict[str, Kernel] = {
    "rbf": Kernel(0),
    "matern12": Kernel(1),
    "matern32": Kernel(2),
    "matern52": Kernel(3),
    "rational_quadratic": Kernel(4, {"alpha": 1.0}),
}


def find_kernel(name: Any) -> Kernel:
    """The kernel of that name, or an error that shows the nearest names."""
    if name in KERNELS:
        return KERNELS[name]
    close = difflib.get_close_matches(str(name).lower(), KERNELS, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown kernel {name!r}.{hint} Known kernels: {', '.join(KERNELS)}.")


def log_shapes(kernel: Kernel) -> np.ndarray:
    """Starting values of the log shape parameters (len(shapes),)."""
    return np.log(np.array(list(kernel.shapes.values()), dtype=np.float64))


class Profile(NamedTuple):
    """A kernel at squared distances r2, each of the shape of r2."""

    value: np.ndarray
    slope: np.ndarray
    shape_slope: np.ndarray | None  # d value / d log shape


def profile(kernel: Kernel, r2: np.ndarray, log_shape: np.ndarray) -> Profile:
    """Value and slopes at squared scaled distances r2 (b, ..), for log shape parameters (len(shapes),).

    What is found for r2[i] does not depend on the other entries.
    """
    r2 = np.ascontiguousarray(r2, dtype=np.float64)
    flat = r2.reshape(len(r2), math.prod(r2.shape[1:]))
    found = [np.empty_like(flat) for _ in range(3)]
    _profiles(kernel.code, np.exp(log_shape), flat, *found)
    value, slope, shape_slope = (x.reshape(r2.shape) for x in found)
    return Profile(value, slope, shape_slope if kernel.shapes else None)


# --- compiled: one number at a time, vectorised by the compiler -----------------------------------------------------


@njit(inline="always")
def _rbf(r2):
    """exp(-r2 / 2)."""
    e = exp_nonpositive(-0.5 * r2)
    return e, -0.5 * e


@njit(inline="always")
def _matern12(r2):
    """exp(-r)."""
    r = math.sqrt(r2)
    e = exp_nonpositive(-r)
    return e, -0.5 * e / max(r, _TINY)


@njit(inline="always")
def _matern32(r2):
    """(1 + q) exp(-q) with q = sqrt(3) r."""
    q = min(math.sqrt(3 * r2), _FAR)
    e = exp_nonpositive(-q)
    return (1 + q) * e, -1.5 * e


@njit(inline="always")
def _matern52(r2):
    """(1 + q + q^2 / 3) exp(-q) with q = sqrt(5) r."""
    q = min(math.sqrt(5 * r2), _FAR)
    e = exp_nonpositive(-q)
    p = 1 + q
    return (p + q * q * (1 / 3)) * e, (-5 / 6) * p * e


@njit(inline="always")
def _rational_quadratic(r2, alpha):
    """(1 + r2 / (2 alpha))^-alpha: a mixture of RBF kernels of many length scales, the RBF as alpha -> infinity."""
    u = r2 / (2 * alpha)
    log_base = math.log1p(u)
    value = math.exp(-alpha * log_base)
    return value, -0.5 * value / (1 + u), alpha * value * (u / (1 + u) - log_base)


@njit(nogil=True, fastmath={"contract", "nnan", "ninf", "nsz"}, error_model="numpy")
def evaluate_profile(code, shape, r2, n, value, slope, shape_slope):
    """Write value and slope (and shape_slope, for kernels that have it) of r2[:n] for the kernel with that code."""
    if code == 0:
        for i in range(n):
            value[i], slope[i] = _rbf(r2[i])
    elif code == 1:
        for i in range(n):
            value[i], slope[i] = _matern12(r2[i])
    elif code == 2:
        for i in range(n):
            value[i], slope[i] = _matern32(r2[i])
    elif code == 3:
        for i in range(n):
            value[i], slope[i] = _matern52(r2[i])
    else:
        alpha = shape[0]
        for i in range(n):
            value[i], slope[i], shape_slope[i] = _rational_quadratic(r2[i], alpha)


@compiled(error_model="numpy")
def _profiles(code, shape, r2, value, slope, shape_slope):
    for i in range(len(r2)):
        evaluate_profile(code, shape, r2[i], r2.shape[1], value[i], slope[i], shape_slope[i])
