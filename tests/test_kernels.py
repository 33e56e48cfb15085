"""Kernels in compiled code, value and slopes: against torch autograd and limits."""

from __future__ import annotations

import pickle

import numpy as np
import oracle
import pytest
import torch
from numba import njit

from nearfield._simd import power_below_one
from nearfield.kernels import KERNELS, find_kernel, log_shapes, mixture, profile

R2 = np.concatenate([[0.0, 1e-300, 1e-12], np.linspace(1e-4, 30, 300), [100.0, 1000.0]])
NAMES = pytest.mark.parametrize("name", KERNELS)


@NAMES
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_values_and_slopes_equal_torch_autograd(name, shift):
    log_shape = log_shapes(KERNELS[name]) + shift
    found = profile(KERNELS[name], R2, log_shape)
    r2, shape = oracle.leaves(R2, log_shape)
    value = oracle.kernel_value(name, r2, shape)
    np.testing.assert_allclose(found.value, value.detach(), atol=1e-14)
    far = R2 > 1e-6  # the slope of Matern 1/2 is infinite at zero
    (slope,) = torch.autograd.grad(value.sum(), r2)
    np.testing.assert_allclose(found.slope[far], slope[far], atol=3e-13, rtol=1e-13)
    assert np.isfinite(found.slope).all()
    assert (found.shape_slope is None) == (not KERNELS[name].shapes)
    if found.shape_slope is not None:
        jacobian = torch.autograd.functional.jacobian(lambda s: oracle.kernel_value(name, r2.detach(), s), shape)
        np.testing.assert_allclose(found.shape_slope, jacobian[:, 0], atol=1e-13)


@NAMES
def test_value_is_one_at_zero_and_falls(name):
    value = profile(KERNELS[name], R2, log_shapes(KERNELS[name])).value
    assert value[0] == 1
    assert (np.diff(value) <= 1e-15).all()


@NAMES
def test_values_do_not_depend_on_the_rows_beside_them(name):
    r2 = np.random.default_rng(0).exponential(size=(7, 13, 3))
    whole = profile(KERNELS[name], r2, log_shapes(KERNELS[name]))
    for part in (slice(0, 1), slice(3, 6)):
        piece = profile(KERNELS[name], r2[part], log_shapes(KERNELS[name]))
        np.testing.assert_array_equal(piece.value, whole.value[part])
        np.testing.assert_array_equal(piece.slope, whole.slope[part])


def test_rational_quadratic_tends_to_rbf():
    r2 = np.linspace(0, 9, 40)
    wide = profile(KERNELS["rational_quadratic"], r2, np.array([np.log(1e7)]))
    np.testing.assert_allclose(wide.value, profile(KERNELS["rbf"], r2, np.empty(0)).value, atol=1e-6)


@pytest.mark.parametrize("log_shape", [-4.0, 0.0, 2.0, 13.0])
def test_the_mixture_is_one_of_matern_kernels(log_shape):
    """Shares of Matern 1/2, 3/2 and 5/2 with length scales such that all have the same exponential."""
    shape = np.array([log_shape])
    shares = mixture(shape)
    assert sum(shares) == pytest.approx(1, rel=1e-12)
    rough = 1 / (1 + np.exp(log_shape))
    assert shares == pytest.approx((rough**2, 2 * rough * (1 - rough), (1 - rough) ** 2), rel=1e-12)
    found = profile(KERNELS["auto"], R2, shape)
    parts = [
        profile(KERNELS[name], R2 * scale, np.empty(0)).value
        for name, scale in (("matern12", 5), ("matern32", 5 / 3), ("matern52", 1))
    ]
    np.testing.assert_allclose(found.value, np.tensordot(shares, parts, 1), atol=1e-14)


def test_the_mixture_tends_to_matern_kernels():
    low, high = np.log(KERNELS["auto"].bounds)
    smooth, rough = (profile(KERNELS["auto"], R2, np.array([end])) for end in (high, low - 20))
    np.testing.assert_allclose(smooth.value, profile(KERNELS["matern52"], R2, np.empty(0)).value, atol=1e-5)
    np.testing.assert_allclose(rough.value, profile(KERNELS["matern12"], 5 * R2, np.empty(0)).value, atol=1e-9)


def test_a_kernel_goes_through_a_pickle():
    for kernel in KERNELS.values():
        assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert len({find_kernel(name) for name in KERNELS}) == len(KERNELS)


def test_powers_are_right_to_the_last_places():
    @njit
    def evaluate(y, out):
        for i in range(y.size):
            out[i] = power_below_one(y[i])

    y = np.concatenate([[0.0], np.geomspace(1e-12, 126, 20_000), np.linspace(0, 126, 20_000), np.arange(0, 126, 0.5)])
    out = np.empty_like(y)
    evaluate(y, out)
    exact = np.exp2(-y.astype(np.longdouble))
    assert (np.abs(out - exact) <= 2 * np.spacing(exact.astype(np.float64))).all()
    evaluate(np.array([127.0, 1e4, 1e300, np.inf]), low := np.empty(4))
    assert (low == 2.0**-126).all()
