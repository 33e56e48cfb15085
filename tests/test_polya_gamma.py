"""Polya-Gamma formulas: against long series, adaptive quadrature, another package and finite differences."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from polyagamma import polyagamma_pdf
from scipy import integrate
from scipy.special import log_expit, logsumexp

from nearfield.polya_gamma import (
    OMEGA_RANGE,
    log_density,
    lognormal_kl,
    lognormal_kl_quadrature,
    lognormal_mean,
    lognormal_sample,
    mean_weight,
    mean_weight_array,
    sigmoid_moments,
)

OMEGAS = np.concatenate([np.geomspace(1e-4, 2.5, 60), 1 / (2 * np.pi) * np.array([1 - 1e-6, 1, 1 + 1e-6])])
WEIGHTS_AT = np.concatenate([[0.0, 1e-300, 1e-12, 1e-5], np.linspace(0.0999, 0.1001, 21), np.geomspace(0.2, 1e4, 60)])


def tensor(values, dtype=torch.float64, **options) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, **options)


def series(omega: float, terms: int) -> float:
    """The logarithm of the first terms of eqn:pgdensity, in 60 digits: they cancel."""
    with mpmath.workdps(60):
        w = mpmath.mpf(omega)
        total = mpmath.fsum((-1) ** n * (2 * n + 1) * mpmath.exp(-((2 * n + 1) ** 2) / (8 * w)) for n in range(terms))
        return float(mpmath.log(total / mpmath.sqrt(2 * mpmath.pi * w**3)))


def log_expectation(mean: float, scale: float) -> float:
    """log E[sigmoid(f)] by the trapezoidal rule, which converges exponentially here; the mode is at most scale away."""
    step = 0.01
    z = np.arange(-12, scale + 12, step)
    return logsumexp(log_expit(mean + scale * z) - 0.5 * z * z) + math.log(step / math.sqrt(2 * math.pi))


# --- the mean weight --------------------------------------------------------------------------------------------------


def test_mean_weight_equals_the_formula_in_many_digits():
    with mpmath.workdps(400):
        exact = [float(mpmath.tanh(mpmath.mpf(c) / 2) / (2 * mpmath.mpf(c))) if c else 0.25 for c in WEIGHTS_AT]
    np.testing.assert_allclose(mean_weight(tensor(WEIGHTS_AT)), exact, rtol=2e-15)
    np.testing.assert_allclose(mean_weight_array(WEIGHTS_AT), exact, rtol=2e-15)
    np.testing.assert_allclose(mean_weight(tensor(WEIGHTS_AT, torch.float32)), exact, rtol=3e-7)


def test_mean_weight_keeps_type_and_shape_and_ends():
    assert mean_weight_array(np.zeros((2, 3), np.float32)).dtype == np.float32
    assert mean_weight(torch.zeros(2, 3, dtype=torch.float32)).dtype == torch.float32
    assert mean_weight_array(np.zeros((2, 3))).shape == mean_weight(torch.zeros(2, 3)).shape == (2, 3)
    assert (mean_weight_array(np.array([0.0, np.inf])) == [0.25, 0]).all()
    assert mean_weight(tensor([0.0, np.inf])).tolist() == [0.25, 0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-3)])
def test_slope_of_the_mean_weight(dtype, tolerance):
    c = tensor(WEIGHTS_AT, dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(mean_weight(c).sum(), c)
    with mpmath.workdps(60):
        exact = [float(mpmath.diff(lambda x: mpmath.tanh(x / 2) / (2 * x), mpmath.mpf(x))) for x in WEIGHTS_AT[3:]]
    np.testing.assert_allclose(slope[3:], exact, rtol=tolerance)
    assert (slope[:3].abs() < 1e-12).all()


def test_mean_weight_falls():
    c = np.concatenate([np.linspace(0, 1, 2000), np.geomspace(1.001, 1e6, 500)])
    assert (np.diff(mean_weight_array(c)) < 0).all()
    assert (torch.diff(mean_weight(tensor(c))) < 0).all()


@pytest.mark.parametrize("c", [0.0, 0.05, 1.0, 6.0, 30.0])
def test_mean_weight_is_the_mean_of_the_tilted_density(c):
    def tilted(omega: float) -> float:
        return math.exp(log_density(tensor(omega)).item() - 0.5 * c * c * omega) * math.cosh(c / 2)

    def mean(omega: float) -> float:
        return omega * tilted(omega)

    total, first = (integrate.quad(g, 0, 8, points=[0.01, 0.1, 0.5, 2], epsabs=1e-10)[0] for g in (tilted, mean))
    assert total == pytest.approx(1, abs=1e-8)
    assert first == pytest.approx(mean_weight(tensor(c)).item(), abs=1e-8)


@pytest.mark.parametrize("b", [1, 2, 5])
def test_mean_of_b_trials_is_b_times_the_mean_weight(b):
    mean = integrate.quad(lambda omega: omega * polyagamma_pdf(omega, b, 1.5), 0, 12, epsabs=1e-9)[0]
    assert mean == pytest.approx(b * mean_weight(tensor(1.5)).item(), abs=1e-7)


# --- the density ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 2e-6)])
def test_density_equals_two_hundred_terms(dtype, tolerance):
    omega = tensor(OMEGAS, dtype, requires_grad=True)
    value = log_density(omega)
    exact = [series(w, 200) for w in omega.tolist()]
    np.testing.assert_allclose(value.detach(), exact, rtol=tolerance, atol=tolerance)
    (slope,) = torch.autograd.grad(value.sum(), omega)
    assert torch.isfinite(slope).all()


def test_density_equals_the_seven_terms_of_the_paper_where_these_converge():
    below = OMEGAS[OMEGAS < 1.4]
    np.testing.assert_allclose(log_density(tensor(below)), [series(w, 7) for w in below], rtol=2e-6, atol=2e-6)
    assert series(2.5, 7) - log_density(tensor(2.5)).item() == pytest.approx(0.52, abs=0.01)


def test_density_equals_the_polyagamma_package():
    np.testing.assert_allclose(log_density(tensor(OMEGAS)), polyagamma_pdf(OMEGAS, 1, 0, return_log=True), atol=1e-10)


def test_slope_of_the_density():
    assert torch.autograd.gradcheck(log_density, tensor([0.01, 0.1, 0.159, 0.16, 0.5, 2.4], requires_grad=True))


def test_mass_outside_the_range_of_samples():
    def density(omega: float) -> float:
        return math.exp(log_density(tensor(omega)).item())

    assert integrate.quad(density, 2.5, 12)[0] == pytest.approx(5.6e-6, rel=0.01)
    assert integrate.quad(density, 1e-9, OMEGA_RANGE[0])[0] < 1e-300


# --- the log-normal family --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_samples_stay_in_their_range_and_keep_a_gradient(dtype):
    location = tensor([-30.0, -1.5, 30.0], dtype, requires_grad=True)
    log_scale = tensor([0.0, -0.5, 0.0], dtype, requires_grad=True)
    noise = tensor([[0.5], [-0.5]], dtype)
    omega = lognormal_sample(location, log_scale, noise)
    assert omega.shape == (2, 3)
    assert omega.detach().numpy()[:, 1] == pytest.approx(np.exp(-1.5 + np.exp(-0.5) * noise.numpy()[:, 0]))
    assert omega.min().item() == pytest.approx(OMEGA_RANGE[0], rel=1e-5)
    assert omega.max().item() == pytest.approx(OMEGA_RANGE[1], rel=1e-5)
    kl = lognormal_kl(location, log_scale, omega)
    for gradient in torch.autograd.grad(kl.sum(), (location, log_scale)):
        assert torch.isfinite(gradient).all()
    by_location = torch.autograd.grad(lognormal_sample(location, log_scale, noise).sum(), location)[0]
    np.testing.assert_allclose(by_location, omega.detach().sum(0), rtol=1e-5)


def test_mean_of_the_family_is_the_mean_of_its_samples():
    noise = tensor(np.random.default_rng(0).standard_normal(200_000))
    sampled = lognormal_sample(tensor(-2.0), tensor(-1.0), noise).mean().item()
    assert lognormal_mean(tensor(-2.0), tensor(-1.0)).item() == pytest.approx(sampled, rel=5e-3)
    assert lognormal_mean(tensor(3.0), tensor(0.0)).item() == pytest.approx(2.5)


@pytest.mark.parametrize(("scale", "tolerance"), [(0.05, 1e-8), (0.3, 1e-8), (0.7, 2e-6), (1.0, 3e-5), (2.0, 3e-3)])
@pytest.mark.parametrize("location", [-4.0, -1.6, 0.0])
def test_divergence_equals_adaptive_quadrature(location, scale, tolerance):
    def integrand(z: float) -> float:
        log_q = -(location + scale * z) - math.log(scale) - 0.5 * z * z - 0.5 * math.log(2 * math.pi)
        log_p = log_density(tensor(math.exp(location + scale * z))).item()
        return (log_q - log_p) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    exact = integrate.quad(integrand, -14, 14, epsabs=1e-9, limit=200)[0]
    value = lognormal_kl_quadrature(tensor(location), tensor(math.log(scale))).item()
    assert value == pytest.approx(exact, abs=tolerance)


def test_divergence_is_positive_and_broadcasts():
    location, log_scale = torch.linspace(-5, 1, 40)[:, None], torch.linspace(-3, 0.5, 30)
    for dtype in (torch.float64, torch.float32):
        kl = lognormal_kl_quadrature(location.to(dtype), log_scale.to(dtype))
        assert kl.shape == (40, 30)
        assert 0.01 < kl.min() < 0.05  # the family comes near, but PG(1, 0) is not log-normal


def test_mean_of_the_sampled_divergence_is_the_quadrature():
    location, log_scale = tensor([-2.0, -1.5, -1.0]), tensor([-1.0, -0.5, -1.5])
    noise = tensor(np.random.default_rng(1).standard_normal((40_000, 3)))
    sampled = lognormal_kl(location, log_scale, lognormal_sample(location, log_scale, noise))
    error = sampled.mean(0) - lognormal_kl_quadrature(location, log_scale)
    assert (error.abs() < 4 * sampled.std(0) / math.sqrt(40_000)).all()


def test_slopes_of_the_divergence():
    location, log_scale = (tensor(v, requires_grad=True) for v in ([-4.0, -1.6, -0.5], [-2.0, -0.4, 0.0]))
    noise = tensor([0.3, -1.2, 0.8])
    assert torch.autograd.gradcheck(lognormal_kl_quadrature, (location, log_scale))
    assert torch.autograd.gradcheck(
        lambda m, s: lognormal_kl(m, s, lognormal_sample(m, s, noise)), (location, log_scale)
    )


def test_slopes_of_the_divergence_are_finite_for_wide_families():
    location = tensor([-10.0, -20.0], torch.float32, requires_grad=True)
    log_scale = tensor([1.6, 1.6], torch.float32, requires_grad=True)
    for gradient in torch.autograd.grad(lognormal_kl_quadrature(location, log_scale).sum(), (location, log_scale)):
        assert torch.isfinite(gradient).all()


# --- class probabilities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_class_probabilities_over_the_stated_range(dtype):
    means = np.linspace(-30, 30, 25)
    scales = np.concatenate([[1e-6, 0.1, 0.5], np.arange(1.0, 31)])
    exact = np.array([[log_expectation(mean, scale) for scale in scales] for mean in means])
    positive, negative = sigmoid_moments(tensor(means, dtype)[:, None], tensor(scales**2, dtype))
    assert positive.shape == negative.shape == exact.shape
    assert np.abs(positive.numpy() - exact).max() < 6e-5
    assert np.abs(negative.numpy() - exact[::-1]).max() < 6e-5


@pytest.mark.parametrize(("mean", "scale"), [(0.7, 0.3), (-3.0, 4.0), (12.0, 20.0)])
def test_class_probability_equals_adaptive_quadrature(mean, scale):
    def integrand(f: float) -> float:
        return math.exp(log_expit(f) - 0.5 * ((f - mean) / scale) ** 2) / (scale * math.sqrt(2 * math.pi))

    low, high = mean - 12 * scale, mean + 12 * scale
    exact = integrate.quad(integrand, low, high, points=[0, mean], limit=200)[0]
    assert sigmoid_moments(tensor(mean), tensor(scale**2))[0].item() == pytest.approx(math.log(exact), abs=6e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [0.001, 1.0, 5.0, 14.0, 29.0])
def test_class_probabilities_far_out(scale, dtype):
    for mean in (-60.0, -99.0, -101.0, -130.0, -300.0, -1000.0):
        value = sigmoid_moments(tensor(mean, dtype), tensor(scale**2, dtype))[0].item()
        assert value == pytest.approx(log_expectation(mean, scale), abs=2e-3)


def test_class_probabilities_sum_to_one_and_mirror():
    mean, variance = torch.linspace(-40, 40, 101, dtype=torch.float64)[:, None], tensor([0.0, 0.5, 9.0, 400.0])
    positive, negative = sigmoid_moments(mean, variance)
    np.testing.assert_allclose(positive.exp() + negative.exp(), 1, atol=1e-15)
    np.testing.assert_allclose(positive, negative.flip(0), rtol=1e-14)
    np.testing.assert_allclose(positive[50], math.log(0.5), rtol=1e-14)
    assert (torch.diff(positive, dim=0) > 0).all()


def test_slopes_of_the_class_probabilities():
    mean = tensor([[-20.0], [-3.0], [0.4], [8.0], [150.0]], requires_grad=True)
    variance = tensor([0.01, 1.0, 30.0, 500.0], requires_grad=True)
    assert torch.autograd.gradcheck(sigmoid_moments, (mean, variance))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_slopes_at_zero_variance_and_zero_mean(dtype):
    """At variance zero, d log E / d mean = sigmoid(-mean) and d E / d variance = sigmoid''(mean) / 2."""
    mean = tensor([-5.0, -1.0, 0.0, 1.0, 5.0], dtype, requires_grad=True)
    variance = torch.zeros(5, dtype=dtype, requires_grad=True)
    by_mean, by_variance = torch.autograd.grad(sigmoid_moments(mean, variance)[0].sum(), (mean, variance))
    p = torch.sigmoid(mean.detach())
    np.testing.assert_allclose(by_mean, 1 - p, atol=1e-3)
    np.testing.assert_allclose(by_variance, (1 - p) * (1 - 2 * p) / 2, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_class_probabilities_stay_finite_at_extremes(dtype):
    mean = tensor([-1e10, -1e3, 0.0, 1e3, 1e10], dtype)[:, None].requires_grad_()
    variance = tensor([-1e-9, 0.0, 1e-12, 1e6, 1e12], dtype, requires_grad=True)
    positive, negative = sigmoid_moments(mean, variance)
    assert torch.isfinite(positive).all()
    assert torch.isfinite(negative).all()
    for gradient in torch.autograd.grad((positive + negative).sum(), (mean, variance)):
        assert torch.isfinite(gradient).all()
