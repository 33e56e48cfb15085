"""Polya-Gamma formulas: against long series, adaptive quadrature, another package and finite differences."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polyagamma import polyagamma_pdf
from scipy import integrate
from scipy.special import erfcx, log_expit, logsumexp

from nearfield import polya_gamma
from nearfield.polya_gamma import (
    OMEGA_RANGE,
    log_density,
    lognormal_kl_quadrature,
    lognormal_mean,
    lognormal_mean_slopes,
    lognormal_sample,
    lognormal_sample_slopes,
    mean_weight,
    mean_weight_slope,
    sigmoid_moments,
)

OMEGAS = np.concatenate([np.geomspace(1e-4, 2.5, 60), 1 / (2 * np.pi) * np.array([1 - 1e-6, 1, 1 + 1e-6])])
WEIGHTS_AT = np.concatenate([[0.0, 1e-300, 1e-12, 1e-5], np.linspace(0.0999, 0.1001, 21), np.geomspace(0.2, 1e4, 60)])


def slope_of(function, at, step=1e-6):
    """Central difference; its error is of the order of step^2."""
    return (function(at + step) - function(at - step)) / (2 * step)


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
    np.testing.assert_allclose(mean_weight(WEIGHTS_AT), exact, rtol=2e-15)
    np.testing.assert_allclose(mean_weight(-WEIGHTS_AT), exact, rtol=2e-15)
    np.testing.assert_allclose(mean_weight(WEIGHTS_AT.astype(np.float32)), exact, rtol=3e-7)


def test_mean_weight_keeps_type_and_shape_and_ends():
    for function in (mean_weight, mean_weight_slope):
        assert function(np.zeros((2, 3), np.float32)).dtype == np.float32
        assert function(np.zeros((2, 3))).shape == (2, 3)
    assert (mean_weight(np.array([0.0, np.inf])) == [0.25, 0]).all()
    assert (mean_weight_slope(np.array([0.0, np.inf, 1e300])) == 0).all()


def test_slope_of_the_mean_weight():
    slope = mean_weight_slope(WEIGHTS_AT)
    with mpmath.workdps(60):
        exact = [float(mpmath.diff(lambda x: mpmath.tanh(x / 2) / (2 * x), mpmath.mpf(x))) for x in WEIGHTS_AT[3:]]
    np.testing.assert_allclose(slope[3:], exact, rtol=1e-11)
    assert (np.abs(slope[:3]) < 1e-12).all()
    np.testing.assert_array_equal(mean_weight_slope(-WEIGHTS_AT), -slope)


def test_mean_weight_falls():
    c = np.concatenate([np.linspace(0, 1, 2000), np.geomspace(1.001, 1e6, 500)])
    assert (np.diff(mean_weight(c)) < 0).all()


@pytest.mark.parametrize("c", [0.0, 0.05, 1.0, 6.0, 30.0])
def test_mean_weight_is_the_mean_of_the_tilted_density(c):
    def tilted(omega: float) -> float:
        return math.exp(log_density(np.array(omega)) - 0.5 * c * c * omega) * math.cosh(c / 2)

    def mean(omega: float) -> float:
        return omega * tilted(omega)

    total, first = (integrate.quad(g, 0, 8, points=[0.01, 0.1, 0.5, 2], epsabs=1e-10)[0] for g in (tilted, mean))
    assert total == pytest.approx(1, abs=1e-8)
    assert first == pytest.approx(mean_weight(np.array(c)), abs=1e-8)


@pytest.mark.parametrize("b", [1, 2, 5])
def test_mean_of_b_trials_is_b_times_the_mean_weight(b):
    mean = integrate.quad(lambda omega: omega * polyagamma_pdf(omega, b, 1.5), 0, 12, epsabs=1e-9)[0]
    assert mean == pytest.approx(b * mean_weight(np.array(1.5)), abs=1e-7)


# --- the density ------------------------------------------------------------------------------------------------------


def test_density_equals_two_hundred_terms():
    exact = [series(w, 200) for w in OMEGAS]
    np.testing.assert_allclose(log_density(OMEGAS), exact, rtol=1e-14, atol=1e-14)


def test_density_equals_the_seven_terms_of_the_paper_where_these_converge():
    below = OMEGAS[OMEGAS < 1.4]
    np.testing.assert_allclose(log_density(below), [series(w, 7) for w in below], rtol=2e-6, atol=2e-6)
    assert series(2.5, 7) - log_density(np.array(2.5)) == pytest.approx(0.52, abs=0.01)


def test_density_equals_the_polyagamma_package():
    np.testing.assert_allclose(log_density(OMEGAS), polyagamma_pdf(OMEGAS, 1, 0, return_log=True), atol=1e-10)


def test_mass_outside_the_range_of_samples():
    def density(omega: float) -> float:
        return math.exp(log_density(np.array(omega)))

    assert integrate.quad(density, 2.5, 12)[0] == pytest.approx(5.6e-6, rel=0.01)
    assert integrate.quad(density, 1e-9, OMEGA_RANGE[0])[0] < 1e-300


# --- the log-normal family --------------------------------------------------------------------------------------------


def test_samples_stay_in_their_range():
    location, log_scale, noise = np.array([-30.0, -1.5, 30.0]), np.array([0.0, -0.5, 0.0]), np.array([[0.5], [-0.5]])
    omega = lognormal_sample(location, log_scale, noise)
    assert omega.shape == (2, 3)
    assert omega[:, 1] == pytest.approx(np.exp(-1.5 + np.exp(-0.5) * noise[:, 0]))
    assert omega.min() == pytest.approx(OMEGA_RANGE[0])
    assert omega.max() == pytest.approx(OMEGA_RANGE[1])


@pytest.mark.parametrize("location", [-3.0, -1.5, -0.4])
def test_slopes_of_samples_and_means_inside_the_range(location):
    location, log_scale, noise = np.array([location]), np.array([-0.7]), np.array([[0.8], [-1.1]])
    by_location, by_log_scale = lognormal_sample_slopes(location, log_scale, noise)
    expected = slope_of(lambda x: lognormal_sample(x, log_scale, noise), location)
    np.testing.assert_allclose(by_location, expected, rtol=1e-8)
    expected = slope_of(lambda x: lognormal_sample(location, x, noise), log_scale)
    np.testing.assert_allclose(by_log_scale, expected, rtol=1e-8)
    by_location, by_log_scale = lognormal_mean_slopes(location, log_scale)
    np.testing.assert_allclose(by_location, slope_of(lambda x: lognormal_mean(x, log_scale), location), rtol=1e-8)
    np.testing.assert_allclose(by_log_scale, slope_of(lambda x: lognormal_mean(location, x), log_scale), rtol=1e-8)


def test_what_is_cut_keeps_the_slope_of_its_logarithm():
    """d log omega is that without the cut: 1 by location, scale * noise and scale^2 by log scale."""
    location, log_scale, noise = np.array([-30.0, 30.0]), np.array([0.3, 0.1]), np.array([0.5, -2.0])
    for value, (by_location, by_log_scale), expected in (
        (lognormal_sample(location, log_scale, noise), lognormal_sample_slopes(location, log_scale, noise), noise),
        (lognormal_mean(location, log_scale), lognormal_mean_slopes(location, log_scale), np.exp(log_scale)),
    ):
        np.testing.assert_allclose(value, OMEGA_RANGE)
        np.testing.assert_allclose(by_location / value, 1)
        np.testing.assert_allclose(by_log_scale / value, np.exp(log_scale) * expected)


def test_mean_of_the_family_is_the_mean_of_its_samples():
    noise = np.random.default_rng(0).standard_normal(200_000)
    sampled = lognormal_sample(np.array(-2.0), np.array(-1.0), noise).mean()
    assert lognormal_mean(np.array(-2.0), np.array(-1.0)) == pytest.approx(sampled, rel=5e-3)
    assert lognormal_mean(np.array(3.0), np.array(0.0)) == pytest.approx(2.5)


@pytest.mark.parametrize(("scale", "tolerance"), [(0.05, 1e-8), (0.3, 1e-8), (0.7, 2e-6), (1.0, 3e-5), (2.0, 3e-3)])
@pytest.mark.parametrize("location", [-4.0, -1.6, 0.0])
def test_divergence_equals_adaptive_quadrature(location, scale, tolerance):
    def integrand(z: float) -> float:
        log_q = -(location + scale * z) - math.log(scale) - 0.5 * z * z - 0.5 * math.log(2 * math.pi)
        log_p = log_density(np.array(math.exp(location + scale * z)))
        return (log_q - log_p) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    exact = integrate.quad(integrand, -14, 14, epsabs=1e-9, limit=200)[0]
    value = lognormal_kl_quadrature(np.array(location), np.array(math.log(scale)))[0]
    assert value == pytest.approx(exact, abs=tolerance)


def test_divergence_is_positive_and_broadcasts():
    kl, by_location, by_log_scale = lognormal_kl_quadrature(np.linspace(-5, 1, 40)[:, None], np.linspace(-3, 0.5, 30))
    assert kl.shape == by_location.shape == by_log_scale.shape == (40, 30)
    assert 0.01 < kl.min() < 0.05  # the family comes near, but PG(1, 0) is not log-normal


@settings(max_examples=50, deadline=None)
@given(location=st.floats(-9, 1), log_scale=st.floats(-4, 0.7))
def test_slopes_of_the_divergence(location, log_scale):
    location, log_scale = np.array(location), np.array(log_scale)
    _, by_location, by_log_scale = lognormal_kl_quadrature(location, log_scale)
    expected = slope_of(lambda x: lognormal_kl_quadrature(x, log_scale)[0], location, 1e-5)
    assert by_location == pytest.approx(expected, rel=1e-6, abs=1e-6)
    expected = slope_of(lambda x: lognormal_kl_quadrature(location, x)[0], log_scale, 1e-5)
    assert by_log_scale == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_slopes_of_the_divergence_are_finite_for_wide_families():
    for values in lognormal_kl_quadrature(np.array([-10.0, -20.0, -300.0]), np.array([1.6, 1.6, 0.0])):
        assert np.isfinite(values).all()


# --- class probabilities ----------------------------------------------------------------------------------------------


def probit_mixture_in_numpy(mean, variance):
    """log E[sigmoid(f)] and log E[sigmoid(-f)] of the same mixture, by scipy's functions; near zero only."""
    scales, weights = polya_gamma._probit_mixture()
    t = np.abs(mean)[..., None] / np.sqrt(2 * (scales**2 + variance[..., None]))
    minor = logsumexp(np.log(0.5 * weights * erfcx(t)) - t * t, axis=-1)
    major = np.log1p(-np.exp(minor))
    return np.where(mean > 0, major, minor), np.where(mean > 0, minor, major)


def test_erfcx_equals_scipy():
    x = np.concatenate([np.linspace(0, 30, 3001), np.geomspace(30, 1e100, 300)])
    np.testing.assert_allclose([polya_gamma.erfcx_positive(value) for value in x], erfcx(x), rtol=1e-13)


def test_class_probabilities_over_the_stated_range():
    means = np.linspace(-30, 30, 25)
    scales = np.concatenate([[1e-6, 0.1, 0.5], np.arange(1.0, 31)])
    exact = np.array([[log_expectation(mean, scale) for scale in scales] for mean in means])
    found = sigmoid_moments(means[:, None], scales**2)
    assert all(values.shape == exact.shape for values in found)
    assert np.abs(found.positive - exact).max() < 6e-5
    assert np.abs(found.negative - exact[::-1]).max() < 6e-5


def test_class_probabilities_are_those_of_the_mixture():
    rng = np.random.default_rng(2)
    mean, variance = rng.normal(size=(40, 7)) * 20, rng.exponential(size=(40, 7)) * 10 ** rng.uniform(-3, 3, (40, 7))
    found = sigmoid_moments(mean, variance)
    for value, exact in zip(found[:2], probit_mixture_in_numpy(mean, variance), strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("mean", "scale"), [(0.7, 0.3), (-3.0, 4.0), (12.0, 20.0)])
def test_class_probability_equals_adaptive_quadrature(mean, scale):
    def integrand(f: float) -> float:
        return math.exp(log_expit(f) - 0.5 * ((f - mean) / scale) ** 2) / (scale * math.sqrt(2 * math.pi))

    low, high = mean - 12 * scale, mean + 12 * scale
    exact = integrate.quad(integrand, low, high, points=[0, mean], limit=200)[0]
    assert sigmoid_moments(mean, scale**2).positive == pytest.approx(math.log(exact), abs=6e-5)


@pytest.mark.parametrize("scale", [0.001, 1.0, 5.0, 14.0, 29.0])
def test_class_probabilities_far_out(scale):
    means = np.array([-60.0, -99.0, -101.0, -130.0, -300.0, -1000.0])
    exact = [log_expectation(mean, scale) for mean in means]
    np.testing.assert_allclose(sigmoid_moments(means, scale**2).positive, exact, rtol=0, atol=2e-3)


def test_class_probabilities_sum_to_one_and_mirror():
    found = sigmoid_moments(np.linspace(-40, 40, 101)[:, None], np.array([0.0, 0.5, 9.0, 400.0]))
    np.testing.assert_allclose(np.exp(found.positive) + np.exp(found.negative), 1, atol=1e-15)
    np.testing.assert_allclose(found.positive, found.negative[::-1], rtol=1e-13)
    np.testing.assert_allclose(found.positive_by_mean, -found.negative_by_mean[::-1], rtol=1e-13)
    np.testing.assert_allclose(found.positive[50], math.log(0.5), rtol=1e-13)
    assert (np.diff(found.positive, axis=0) > 0).all()


def test_slopes_of_the_class_probabilities():
    mean, variance = np.array([[-20.0], [-3.0], [0.4], [8.0], [150.0]]), np.array([0.01, 1.0, 30.0, 500.0])
    found = sigmoid_moments(mean, variance)
    by_mean = slope_of(lambda x: np.array(sigmoid_moments(x, variance)[:2]), mean, 1e-5)
    by_variance = slope_of(lambda x: np.array(sigmoid_moments(mean, x)[:2]), variance, 1e-5)
    np.testing.assert_allclose([found.positive_by_mean, found.negative_by_mean], by_mean, rtol=1e-6, atol=1e-8)
    slopes = [found.positive_by_variance, found.negative_by_variance]
    np.testing.assert_allclose(slopes, by_variance, rtol=1e-6, atol=1e-8)


def test_slopes_are_those_of_the_exact_integral():
    """Of log E[sigmoid(f)], by differences of a quadrature that is exact; the mixture is right to 6e-5 and waves."""
    for mean, scale in ((-4.0, 1.0), (0.5, 2.0), (3.0, 6.0)):
        found = sigmoid_moments(mean, scale**2)
        by_mean = slope_of(lambda x, scale=scale: log_expectation(x, scale), mean, 1e-4)
        by_variance = slope_of(lambda x, mean=mean: log_expectation(mean, math.sqrt(x)), scale**2, 1e-4)
        assert found.positive_by_mean == pytest.approx(by_mean, abs=2e-4)
        assert found.positive_by_variance == pytest.approx(by_variance, abs=2e-4)


def test_slopes_at_zero_variance_and_zero_mean():
    """At variance zero, d log E / d mean = sigmoid(-mean) and d E / d variance = sigmoid''(mean) / 2."""
    mean = np.array([-5.0, -1.0, 0.0, 1.0, 5.0])
    found = sigmoid_moments(mean, np.zeros(5))
    p = 1 / (1 + np.exp(-mean))
    np.testing.assert_allclose(found.positive_by_mean, 1 - p, atol=1e-3)
    np.testing.assert_allclose(found.positive_by_variance, (1 - p) * (1 - 2 * p) / 2, atol=1e-3)


def test_a_negative_variance_is_none_and_teaches_nothing():
    mean = np.array([-3.0, 0.2, 4.0])
    found, none = sigmoid_moments(mean, -1e-3), sigmoid_moments(mean, 0.0)
    for name in ("positive", "negative", "positive_by_mean", "negative_by_mean"):
        np.testing.assert_array_equal(getattr(found, name), getattr(none, name))
    assert (found.positive_by_variance == 0).all()
    assert (found.negative_by_variance == 0).all()


def test_class_probabilities_stay_finite_at_extremes():
    mean = np.array([-1e10, -1e3, 0.0, 1e3, 1e10])[:, None]
    for values in sigmoid_moments(mean, np.array([-1e-9, 0.0, 1e-12, 1e6, 1e12])):
        assert np.isfinite(values).all()


def test_what_is_no_number_stays_none():
    for mean, variance in ((np.nan, 1.0), (1.0, np.nan)):
        assert all(np.isnan(values) for values in sigmoid_moments(mean, variance))


def test_bits_do_not_depend_on_the_company():
    rng = np.random.default_rng(3)
    mean, variance = rng.normal(size=(37, 9)) * 60, 10 ** rng.uniform(-3, 4, (37, 9))
    together = np.array(sigmoid_moments(mean, variance))
    np.testing.assert_array_equal(np.array(sigmoid_moments(mean[::-1], variance[::-1]))[:, ::-1], together)
    np.testing.assert_array_equal(np.array(sigmoid_moments(mean.T, variance.T)).swapaxes(1, 2), together)
    alone = [sigmoid_moments(m, v) for m, v in zip(mean.ravel(), variance.ravel(), strict=True)]
    np.testing.assert_array_equal(np.transpose(alone).reshape(together.shape), together)

    location, log_scale = rng.normal(size=(37, 9)) - 2, rng.normal(size=(37, 9)) - 1
    together = np.array(lognormal_kl_quadrature(location, log_scale))
    alone = [lognormal_kl_quadrature(m, s) for m, s in zip(location.ravel(), log_scale.ravel(), strict=True)]
    np.testing.assert_array_equal(np.transpose(alone).reshape(together.shape), together)
