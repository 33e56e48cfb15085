"""Kernels in torch and in compiled code, value and slopes: against each other and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit

from nearfield._simd import exp_nonpositive
from nearfield.kernels import KERNELS, evaluate_profile, log_shapes

R2 = np.concatenate([[0.0, 1e-300, 1e-12], np.linspace(1e-4, 30, 300), [100.0, 1000.0]])


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 3e-6)])
def test_compiled_profile_equals_torch(kernel, dtype, tolerance):
    r2 = R2.astype(dtype)
    value, slope, by_shape = (np.empty_like(r2) for _ in range(3))
    shape = np.exp(log_shapes(kernel)).astype(dtype)
    evaluate_profile(kernel.code, shape, r2, len(r2), value, slope, by_shape)
    profile = kernel.profile(torch.from_numpy(R2), torch.from_numpy(log_shapes(kernel)))
    np.testing.assert_allclose(value, profile.value, atol=tolerance)
    far = R2 > 1e-6  # the slope of Matern 1/2 is infinite at zero
    np.testing.assert_allclose(slope[far], profile.slope[far], atol=30 * tolerance, rtol=tolerance)
    assert np.isfinite(slope).all()
    if profile.shape_slope is not None:
        np.testing.assert_allclose(by_shape, profile.shape_slope, atol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_slopes_equal_finite_differences(kernel):
    r2 = torch.linspace(0.05, 20, 50, dtype=torch.float64, requires_grad=True)
    log_shape = torch.tensor(log_shapes(kernel) + 0.3, requires_grad=True)
    profile = kernel.profile(r2, log_shape)
    (by_r2,) = torch.autograd.grad(profile.value.sum(), r2, retain_graph=True)
    np.testing.assert_allclose(profile.slope.detach(), by_r2, atol=1e-12)
    if profile.shape_slope is not None:
        (by_shape,) = torch.autograd.grad(profile.value.sum(), log_shape)
        np.testing.assert_allclose(profile.shape_slope.sum().item(), by_shape.item(), atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_value_is_one_at_zero_and_falls(kernel):
    value = kernel.profile(torch.from_numpy(R2), torch.from_numpy(log_shapes(kernel))).value.numpy()
    assert value[0] == 1
    assert (np.diff(value) <= 1e-15).all()


def test_rational_quadratic_tends_to_rbf():
    r2 = torch.linspace(0, 9, 40, dtype=torch.float64)
    wide = KERNELS["rational_quadratic"].profile(r2, torch.tensor([np.log(1e7)]))
    np.testing.assert_allclose(wide.value, KERNELS["rbf"].profile(r2, torch.empty(0)).value, atol=1e-6)


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float64, 4), (np.float32, 4)])
def test_exponential_is_right_to_the_last_places(dtype, ulps):
    @njit
    def evaluate(x, out):
        for i in range(x.size):
            out[i] = exp_nonpositive(x[i], x.dtype.type)

    x = -np.concatenate([[0.0], np.geomspace(1e-12, 86, 20_000), np.linspace(0, 86, 20_000)]).astype(dtype)
    out = np.empty_like(x)
    evaluate(x, out)
    exact = np.exp(x.astype(np.longdouble))
    assert (np.abs(out - exact) <= ulps * np.spacing(exact.astype(dtype))).all()
    evaluate(np.array([-1e4, -np.inf], dtype), low := np.empty(2, dtype))
    assert (low < 2e-38).all()
