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
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nearfield._compiled import compiled
from nearfield._simd import FAR, power_below_one

_NEAR = 1e-7  # keeps slopes of rough kernels finite at distance zero; what is nearer adds next to nothing to a gradient


@dataclass(frozen=True)
class Kernel:
    """A stationary kernel: `code` names its branch in compiled code, `shapes` its shape parameters and their starts.

    bounds: least and greatest shape.
    """

    code: int
    shapes: Mapping[str, float] = field(default_factory=dict, hash=False)
    bounds: tuple[float, float] = (1e-2, 1e3)


KERNELS: dict[str, Kernel] = {
    "rbf": Kernel(0),
    "matern12": Kernel(1),
    "matern32": Kernel(2),
    "matern52": Kernel(3),
    "rational_quadratic": Kernel(4, {"alpha": 1.0}),
    "auto": Kernel(5, {"smoothness": 8.0}, (1e-2, 1e6)),
}


def mixture(log_shape: np.ndarray) -> tuple[float, float, float]:
    """Shares of Matern 1/2, 3/2 and 5/2 in the kernel "auto" with that log smoothness (1,)."""
    rough = 1 / (1 + math.exp(float(log_shape[0])))
    return rough**2, 2 * rough * (1 - rough), (1 - rough) ** 2


STEEP = 1  # the code of the kernel whose slope grows without bound as the distance goes to zero, Matern 1/2


def find_kernel(name: Any) -> Kernel:
    """The kernel of that name, or an error that shows the nearest names."""
    if not isinstance(name, str):
        raise TypeError(
            f"kernel is {name!r}, a {type(name).__name__}: expected a name, one of {', '.join(map(repr, KERNELS))}. "
            f"The nearest is {_nearest(name)!r}; length scales, scale and noise are learned and need no objects."
        )
    if name in KERNELS:
        return KERNELS[name]
    close = difflib.get_close_matches(str(name).lower(), KERNELS, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown kernel {name!r}.{hint} Known kernels: {', '.join(KERNELS)}.")


def _nearest(other: Any) -> str:
    """The name of the kernel that an object of another library is most like, by how it shows itself."""
    shown = repr(other)
    smoothness = re.search(r"Matern\(.*?nu=([\d.]+|inf)", shown)
    if smoothness is not None:
        nu = float(smoothness.group(1))
        return "matern12" if nu < 1 else "matern32" if nu < 2 else "matern52" if nu < 10 else "rbf"
    return "rational_quadratic" if "RationalQuadratic" in shown else "rbf" if "RBF" in shown else "auto"


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
    value = np.array(r2, dtype=np.float64, order="C")
    slope, shape_slope = np.empty_like(value), np.empty_like(value)
    flat = (x.reshape(len(x), math.prod(x.shape[1:])) for x in (value, slope, shape_slope))
    _profiles(kernel.code, np.exp(log_shape), *flat)
    return Profile(value, slope, shape_slope if kernel.shapes else None)


# --- compiled: one number at a time, vectorised by the compiler -----------------------------------------------------
# With y = -log2 of an exponential, so that it is 2^-y; ln 2 and log2 e = 1 / ln 2 are part of the other constants.

_LN2 = math.log(2)


@njit(inline="always")
def _rbf(r2):
    """exp(-r2 / 2)."""
    e = power_below_one(r2 * (0.5 / _LN2))
    return e, -0.5 * e


@njit(inline="always")
def _matern12(r2):
    """exp(-r)."""
    r = math.sqrt(r2)
    e = power_below_one(r * (1 / _LN2))
    return e, -0.5 * e / max(r, _NEAR)


@njit(inline="always")
def _matern32(r2):
    """(1 + q) exp(-q) with q = sqrt(3) r."""
    y = min(math.sqrt(r2 * (3 / _LN2**2)), FAR)  # the polynomial may not grow when the exponential falls no more
    e = power_below_one(y)
    return (1 + _LN2 * y) * e, -1.5 * e


@njit(inline="always")
def _matern52(r2):
    """(1 + q + q^2 / 3) exp(-q) with q = sqrt(5) r."""
    y = min(math.sqrt(r2 * (5 / _LN2**2)), FAR)
    e = power_below_one(y)
    p = 1 + _LN2 * y
    return (p + y * y * (_LN2**2 / 3)) * e, (-5 / 6) * p * e


@njit(inline="always")
def _rational_quadratic(r2, alpha):
    """(1 + r2 / (2 alpha))^-alpha: a mixture of RBF kernels of many length scales, the RBF as alpha -> infinity."""
    u = r2 / (2 * alpha)
    log_base = math.log1p(u)
    value = math.exp(-alpha * log_base)
    return value, -0.5 * value / (1 + u), alpha * value * (u / (1 + u) - log_base)


@njit(inline="always")
def _mixture(r2, rough):
    """(1 + a q + b q^2 / 3) exp(-q) with q = sqrt(5) r, a = 1 - rough^2 and b = (1 - rough)^2.

    A mixture of Matern 1/2, 3/2 and 5/2 with shares rough^2, 2 rough (1 - rough) and (1 - rough)^2, whose length scales
    are such that all fall with the same exponential: one is enough. log smoothness is -logit(rough).
    """
    y = min(math.sqrt(r2 * (5 / _LN2**2)), FAR)
    e = power_below_one(y)
    q, smooth, edge = _LN2 * y, 1 - rough, rough * rough
    b = smooth * smooth * (1 / 3)
    value = (1 + q * (1 - edge + b * q)) * e
    slope = 2.5 * e * (2 * b - 1 + edge - b * q - edge / max(q, _NEAR))
    return value, slope, (2 * rough * smooth) * q * (rough + smooth * (1 / 3) * q) * e


_FAST: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nnan", "ninf", "nsz"}}


def _over_columns(scalar):
    """Make `evaluate`, see `evaluate_profile`, of a kernel without shape parameters."""

    @njit(**_FAST)
    def evaluate(values, ld, m, columns, slopes, keep):
        for j in range(columns):
            start = j // 4 * 4
            # unsigned, or Numba looks at every index for a negative one, and nothing is vectorised
            first, place = np.uint64(j * ld + start), np.uint64(j * keep + start)
            for i in range(np.uint64(m - start)):
                values[first + i], slopes[place + i] = scalar(values[first + i])

    return evaluate


_evaluate_rbf = _over_columns(_rbf)
_evaluate_matern12 = _over_columns(_matern12)
_evaluate_matern32 = _over_columns(_matern32)
_evaluate_matern52 = _over_columns(_matern52)


@njit(**_FAST)
def _evaluate_rational_quadratic(shape, values, ld, m, columns, slopes, keep, shape_slopes):
    for j in range(columns):
        start = j // 4 * 4
        first, place = np.uint64(j * ld + start), np.uint64(j * keep + start)
        for i in range(np.uint64(m - start)):
            values[first + i], slopes[place + i], shape_slopes[place + i] = _rational_quadratic(
                values[first + i], shape[0]
            )


@njit(**_FAST)
def _evaluate_mixture(shape, values, ld, m, columns, slopes, keep, shape_slopes):
    rough = 1 / (1 + shape[0])
    for j in range(columns):
        start = j // 4 * 4
        first, place = np.uint64(j * ld + start), np.uint64(j * keep + start)
        for i in range(np.uint64(m - start)):
            values[first + i], slopes[place + i], shape_slopes[place + i] = _mixture(values[first + i], rough)


@njit(**_FAST)
def evaluate_profile(code, shape, values, ld, m, columns, slopes, keep, shape_slopes):
    """Write the kernel with that code over squared distances: the lower triangle of the first columns of a matrix.

    These are values[j * ld + i] from row j, or up to three before it, to row m, a multiple of four. The slopes go to
    slopes[j * keep + i] and, for kernels that have a shape parameter, to shape_slopes[j * keep + i].
    """
    if code == 0:
        _evaluate_rbf(values, ld, m, columns, slopes, keep)
    elif code == 1:
        _evaluate_matern12(values, ld, m, columns, slopes, keep)
    elif code == 2:
        _evaluate_matern32(values, ld, m, columns, slopes, keep)
    elif code == 3:
        _evaluate_matern52(values, ld, m, columns, slopes, keep)
    elif code == 5:
        _evaluate_mixture(shape, values, ld, m, columns, slopes, keep, shape_slopes)
    else:
        _evaluate_rational_quadratic(shape, values, ld, m, columns, slopes, keep, shape_slopes)


@compiled(error_model="numpy")
def _profiles(code, shape, values, slopes, shape_slopes):
    for i in range(len(values)):
        evaluate_profile(code, shape, values[i], 0, values.shape[1], 1, slopes[i], 0, shape_slopes[i])
