"""Stationary kernels with one length scale per column, as value and slope in the squared scaled distance.

A kernel is k(x, z) = scale^2 * value(r2), with r2 = sum_d (x_d - z_d)^2 / length_d^2. The closed form needs only
value(r2) and slope(r2) = d value / d r2, and, for kernels with shape parameters, d value / d log shape.

Every kernel is written twice: for torch (`profile`, any device) and for compiled code (`_..._scalar`, joined in
`evaluate_profile`); the tests hold one against the other and against scipy. A new kernel is one class, one scalar
function, one branch in `evaluate_profile` and one line in `KERNELS`.
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numba import njit

from nearfield._simd import exp_nonpositive

_FAR = 87.0  # beyond it the exponential stays at 1.6e-38, and no polynomial may grow before it
_TINY = 1e-150  # keeps the slope of the Matern 1/2 kernel finite at distance zero, where it is multiplied by zero


class Profile(NamedTuple):
    """A kernel of scale one at squared distances r2, each of the shape of r2."""

    value: torch.Tensor
    slope: torch.Tensor
    shape_slope: torch.Tensor | None  # d value / d log shape


class Kernel(ABC):
    """A stationary kernel: `code` names its branch in compiled code, `shapes` its shape parameters and their starts."""

    code: ClassVar[int]
    shapes: ClassVar[dict[str, float]] = {}

    @abstractmethod
    def profile(self, r2: torch.Tensor, log_shape: torch.Tensor) -> Profile:
        """Value and slopes at squared scaled distances r2, for log shape parameters (len(shapes),)."""


class RBF(Kernel):
    """exp(-r2 / 2)."""

    code = 0

    def profile(self, r2: torch.Tensor, log_shape: torch.Tensor) -> Profile:
        e = torch.exp(-0.5 * r2)
        return Profile(e, -0.5 * e, None)


class Matern12(Kernel):
    """exp(-r)."""

    code = 1

    def profile(self, r2: torch.Tensor, log_shape: torch.Tensor) -> Profile:
        r = torch.sqrt(r2)
        e = torch.exp(-r)
        return Profile(e, -0.5 * e / r.clamp_min(_TINY if r2.dtype == torch.float64 else 1e-30), None)


class Matern32(Kernel):
    """(1 + q) exp(-q) with q = sqrt(3) r."""

    code = 2

    def profile(self, r2: torch.Tensor, log_shape: torch.Tensor) -> Profile:
        q = torch.sqrt(3 * r2)
        e = torch.exp(-q)
        return Profile((1 + q) * e, -1.5 * e, None)


class Matern52(Kernel):
    """(1 + q + q^2 / 3) exp(-q) with q = sqrt(5) r."""

    code = 3

    def profile(self, r2: torch.Tensor, log_shape: torch.Tensor) -> Profile:
        q = torch.sqrt(5 * r2)
        e = torch.exp(-q)
        return Profile((1 + q + q * q / 3) * e, (-5 / 6) * (1 + q) * e, None)


class RationalQuadratic(Kernel):
    """(1 + r2 / (2 alpha))^-alpha: a mixture of RBF kernels of many length scales, the RBF as alpha -> infinity."""

    code = 4
    shapes: ClassVar[dict[str, float]] = {"alpha": 1.0}

    def profile(self, r2: torch.Tensor, log_shape: torch.Tensor) -> Profile:
        alpha = torch.exp(log_shape[0])
        u = r2 / (2 * alpha)
        log_base = torch.log1p(u)
        value = torch.exp(-alpha * log_base)
        return Profile(value, -0.5 * value / (1 + u), alpha * value * (u / (1 + u) - log_base))


KERNELS: dict[str, Kernel] = {
    "rbf": RBF(),
    "matern12": Matern12(),
    "matern32": Matern32(),
    "matern52": Matern52(),
    "rational_quadratic": RationalQuadratic(),
}


def find_kernel(name: Any) -> Kernel:
    """The kernel of that name, or an error that shows the nearest names."""
    if name in KERNELS:
        return KERNELS[name]
    close = difflib.get_close_matches(str(name).lower(), KERNELS, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown kernel {name!r}.{hint} Known kernels: {', '.join(KERNELS)}.")


# --- the same in compiled code: one number at a time, vectorised by the compiler ------------------------------------


@njit(inline="always")
def _rbf_scalar(r2, dtype):
    e = exp_nonpositive(dtype(-0.5) * r2, dtype)
    return e, dtype(-0.5) * e


@njit(inline="always")
def _matern12_scalar(r2, dtype):
    r = math.sqrt(r2)
    e = exp_nonpositive(-r, dtype)
    return e, dtype(-0.5) * e / max(r, dtype(1e-30))


@njit(inline="always")
def _matern32_scalar(r2, dtype):
    q = min(math.sqrt(dtype(3) * r2), dtype(_FAR))
    e = exp_nonpositive(-q, dtype)
    return (dtype(1) + q) * e, dtype(-1.5) * e


@njit(inline="always")
def _matern52_scalar(r2, dtype):
    q = min(math.sqrt(dtype(5) * r2), dtype(_FAR))
    e = exp_nonpositive(-q, dtype)
    p = dtype(1) + q
    return (p + q * q * dtype(1 / 3)) * e, dtype(-5 / 6) * p * e


@njit(inline="always")
def _rational_quadratic_scalar(r2, alpha, dtype):
    u = r2 / (dtype(2) * alpha)
    log_base = math.log1p(u)
    value = math.exp(-alpha * log_base)
    return value, dtype(-0.5) * value / (dtype(1) + u), alpha * value * (u / (dtype(1) + u) - log_base)


@njit(nogil=True, fastmath={"contract", "nnan", "ninf", "nsz"}, error_model="numpy")
def evaluate_profile(code, shape, r2, n, value, slope, shape_slope):
    """Write value and slope (and shape_slope, for kernels that have it) of r2[:n] for the kernel with that code."""
    dtype = r2.dtype.type
    if code == 0:
        for i in range(n):
            value[i], slope[i] = _rbf_scalar(r2[i], dtype)
    elif code == 1:
        for i in range(n):
            value[i], slope[i] = _matern12_scalar(r2[i], dtype)
    elif code == 2:
        for i in range(n):
            value[i], slope[i] = _matern32_scalar(r2[i], dtype)
    elif code == 3:
        for i in range(n):
            value[i], slope[i] = _matern52_scalar(r2[i], dtype)
    else:
        alpha = shape[0]
        for i in range(n):
            value[i], slope[i], shape_slope[i] = _rational_quadratic_scalar(r2[i], alpha, dtype)


def log_shapes(kernel: Kernel) -> np.ndarray:
    """Starting values of the log shape parameters (len(shapes),)."""
    return np.log(np.array(list(kernel.shapes.values()), dtype=np.float64))
