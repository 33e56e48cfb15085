"""Marginal densities against adaptive quadrature, many digits, limits and finite differences of the exact integrals."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit, gammaln, log_expit, logsumexp

from nearfield.marginals import logistic, normal, student_t


def single(function, *arguments):
    """Value and slopes of one row, as numbers."""
    return type(function(*arguments))(*(found[0] for found in function(*arguments)))


def t_of(residual, variance, log_noise, log_df):
    return single(student_t, np.array([residual]), np.array([variance]), log_noise, log_df)


def logistic_of(*arguments):
    return single(logistic, *(np.array([float(argument)]) for argument in arguments))


# --- normal -----------------------------------------------------------------------------------------------------------


def test_normal_equals_scipy_and_torch():
    rng = np.random.default_rng(0)
    residual, total = rng.normal(size=40) * 3, rng.exponential(size=40)
    found = normal(residual, total)
    np.testing.assert_allclose(found.value, stats.norm.logpdf(residual, 0, np.sqrt(total)), rtol=1e-12)
    r, t = (torch.tensor(x, requires_grad=True) for x in (residual, total))
    torch.distributions.Normal(0, t.sqrt()).log_prob(r).sum().backward()
    np.testing.assert_allclose(found.by_residual, r.grad, rtol=1e-12)
    np.testing.assert_allclose(found.by_total, t.grad, rtol=1e-11)


# --- Student-t --------------------------------------------------------------------------------------------------------


def t_exactly(residual, variance, log_noise, log_df):
    """The integral by 60,000 equal steps of log lambda, over all that can matter; its error is that of rounding."""
    half, noise = 0.5 * math.exp(log_df), math.exp(log_noise)
    u = np.linspace(-60 - 2 * math.log1p(abs(residual)), 6, 60_001)
    total = variance + noise * np.exp(-u)
    log_prior = half * math.log(half) - gammaln(half) + half * (u - np.exp(u))
    return logsumexp(log_prior + stats.norm.logpdf(residual, 0, np.sqrt(total))) + math.log(u[1] - u[0])


T_CASES = [
    (0.3, 0.5, math.log(0.2), math.log(4.0)),
    (0.0, 1e-9, math.log(0.05), math.log(6.0)),
    (8.0, 0.1, math.log(0.05), math.log(4.0)),
    (-300.0, 2.0, math.log(1e-3), math.log(5.0)),  # an outlier of the noise
    (5.0, 1.0, math.log(0.05), math.log(4.0)),  # two modes of much the same height
    (25.0, 1.0, math.log(1e-4), math.log(10.0)),  # two modes far apart
    (-1.2, 3.0, math.log(2.0), math.log(1e4)),
    (40.0, 1.0, math.log(0.01), math.log(300.0)),
]
each_t = pytest.mark.parametrize("case", T_CASES)


@each_t
def test_t_equals_the_integral(case):
    assert t_of(*case).value == pytest.approx(t_exactly(*case), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    deviations=st.floats(-40, 40),
    log_ratio=st.floats(-12, 14),
    log_noise=st.floats(math.log(1e-9), math.log(10)),
    log_df=st.floats(math.log(4), math.log(200)),
)
def test_t_equals_the_integral_anywhere(deviations, log_ratio, log_noise, log_df):
    variance = math.exp(log_ratio + log_noise)
    case = deviations * math.sqrt(variance + math.exp(log_noise)), variance, log_noise, log_df
    assert t_of(*case).value == pytest.approx(t_exactly(*case), abs=1e-8)


def test_t_equals_adaptive_quadrature_in_many_digits():
    """Over lambda itself, far out: an outlier of 2000 scales."""
    residual, variance, noise, df = 100.0, 0.4, 0.0025, 4.0
    with mpmath.workdps(30):

        def integrand(x):
            total = variance + noise / x
            prior = mpmath.mpf(df / 2) ** (df / 2) / mpmath.gamma(df / 2) * x ** (df / 2 - 1) * mpmath.exp(-df / 2 * x)
            return prior * mpmath.exp(-(residual**2) / (2 * total)) / mpmath.sqrt(2 * mpmath.pi * total)

        ends = [0, *(mpmath.mpf(10) ** k for k in range(-9, 1)), 3, 10, 40]
        exact = float(mpmath.log(mpmath.quad(integrand, ends)))
    found = t_of(residual, variance, math.log(noise), math.log(df))
    assert found.value == pytest.approx(exact, abs=1e-9)


def test_without_latent_variance_it_is_the_t_of_scipy():
    residual = np.array([0.0, 0.1, -2.0, 50.0, 1e6])
    for df in (4.0, 7.5, 1e3):
        found = student_t(residual, np.zeros(5), math.log(0.3), math.log(df))
        np.testing.assert_allclose(found.value, stats.t(df, 0, math.sqrt(0.3)).logpdf(residual), rtol=1e-9, atol=1e-9)


def test_many_degrees_of_freedom_are_normal():
    rng = np.random.default_rng(1)
    residual, variance = rng.normal(size=30), rng.exponential(size=30)
    found, limit = student_t(residual, variance, math.log(0.2), math.log(1e6)), normal(residual, variance + 0.2)
    scaled = limit.value, limit.by_residual, limit.by_total, 0.2 * limit.by_total
    for value, expected in zip(found[:4], scaled, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.by_log_df, 0, atol=1e-3)


@each_t
def test_slopes_of_the_t_are_those_of_the_exact_integral(case):
    found = t_of(*case)
    for i, slope in enumerate(found[1:]):
        step = 1e-5 * max(abs(case[i]), 1e-3) if i < 2 else 1e-5
        above, below = ([*case[:i], case[i] + sign * step, *case[i + 1 :]] for sign in (1, -1))
        if min(below[1], above[1]) < 0:
            continue  # the slope by a variance of nearly nothing is taken by the other cases
        expected = (t_exactly(*above) - t_exactly(*below)) / (2 * step)
        assert slope == pytest.approx(expected, rel=1e-4, abs=1e-5)


@each_t
def test_slopes_of_the_t_equal_automatic_ones(case):
    """The sum over many fixed nodes, differentiated by torch."""
    residual, variance, log_noise, log_df = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in case)
    half = log_df.exp() / 2
    u = torch.linspace(-60, 6, 20_001, dtype=torch.float64)
    total = variance + log_noise.exp() * torch.exp(-u)
    log_prior = half * half.log() - torch.lgamma(half) + half * (u - u.exp())
    value = torch.logsumexp(log_prior - 0.5 * (torch.log(2 * math.pi * total) + residual**2 / total), -1)
    value.backward()
    expected = [x.grad.item() for x in (residual, variance, log_noise, log_df)]
    np.testing.assert_allclose(t_of(*case)[1:], expected, rtol=1e-7, atol=1e-9)


def test_t_is_finite_at_extremes():
    residual = np.array([0.0, 1e-12, 1.0, 1e6, -1e30])
    for variance in (0.0, 1e-12, 1.0, 1e9):
        for log_noise in (math.log(1e-9), math.log(10)):
            for log_df in (math.log(4), math.log(1e6)):
                found = student_t(residual, np.full(5, variance), log_noise, log_df)
                assert all(np.isfinite(values).all() for values in found)


# --- logistic ---------------------------------------------------------------------------------------------------------


def logistic_exactly(mean, variance, a, b):
    """The integral by equal steps that end where the integrand is exp(-45) of its largest value."""

    def height(f):
        return a * f + b * log_expit(-f) - 0.5 * ((f - mean) ** 2 / variance + math.log(2 * math.pi * variance))

    std = math.sqrt(variance)
    f = np.linspace(mean - 1e3 - 40 * std, mean + 1e3 + 40 * std, 4001)
    for _ in range(6):  # zoom in
        inside = np.flatnonzero(height(f) > height(f).max() - 45)
        f = np.linspace(f[max(inside[0] - 1, 0)], f[min(inside[-1] + 1, f.size - 1)], 4001)
    return logsumexp(height(f)) + math.log(f[1] - f[0])


LOGISTIC_CASES = [
    (0.3, 0.5, 2, 7),
    (-1.0, 2.0, 0, 1),
    (1.5, 4.0, 12, 12),
    (-4.0, 1.0, 3, 103),
    (2.0, 0.01, 40, 42.5),
    (5.0, 9.0, 4000, 4100),
    (8.0, 0.3, 1e6, 1e6 + 2),
    (0.0, 1e-7, 5, 9),
    (-6.0, 3.0, 0, 0.02),
]
each_logistic = pytest.mark.parametrize("case", LOGISTIC_CASES)


@each_logistic
def test_logistic_equals_the_integral(case):
    assert logistic_of(*case).value == pytest.approx(logistic_exactly(*case), rel=1e-10, abs=2e-6)


@each_logistic
def test_slopes_of_the_logistic_are_those_of_the_exact_integral(case):
    found = logistic_of(*case)
    for i, slope in ((0, found.by_mean), (1, found.by_variance), (3, found.by_b)):
        step = 1e-4 * (case[1] if i == 1 else 1)
        if i == 3:
            step *= min(case[3], 1)
        above, below = (logistic_exactly(*case[:i], case[i] + sign * step, *case[i + 1 :]) for sign in (1, -1))
        accuracy = 1e-11 * max(1, abs(above)) / step  # of the difference
        assert slope == pytest.approx((above - below) / (2 * step), rel=2e-5, abs=1e-5 + accuracy)


@each_logistic
def test_slopes_of_the_logistic_equal_automatic_ones(case):
    """The sum over many fixed nodes, differentiated by torch."""
    mean, variance, a, b = (torch.tensor(float(x), dtype=torch.float64, requires_grad=True) for x in case)
    nodes = np.linspace(-1, 1, 40_001)
    centre, width = expected_mode(*case)
    psi = torch.from_numpy(centre + 14 * width * nodes)
    if case[2] == 0 or case[2] == case[3]:  # a tail that is none of a normal
        psi = torch.from_numpy(centre + 12 * math.sqrt(case[1]) * nodes)
    log_prior = -0.5 * ((psi - mean).square() / variance + torch.log(2 * math.pi * variance))
    value = torch.logsumexp(log_prior + a * psi - b * torch.nn.functional.softplus(psi), -1)
    value.backward()
    found = logistic_of(*case)
    expected = [mean.grad.item(), variance.grad.item(), b.grad.item()]
    np.testing.assert_allclose([found.by_mean, found.by_variance, found.by_b], expected, rtol=2e-5, atol=1e-5)


def expected_mode(mean, variance, a, b):
    """The mode of the integrand over f by bisection, and its width there."""
    low, high = mean - variance * b - 1, mean + variance * b + 1
    for _ in range(200):
        f = 0.5 * (low + high)
        low, high = (f, high) if (a - b * expit(f)) - (f - mean) / variance > 0 else (low, f)
    return f, 1 / math.sqrt(b * expit(f) * expit(-f) + 1 / variance)


@pytest.mark.parametrize(("mean", "variance"), [(0.7, 0.3), (-3.0, 4.0), (2.0, 9.0)])
def test_one_trial_equals_adaptive_quadrature(mean, variance):
    std = math.sqrt(variance)
    exact = integrate.quad(lambda z: expit(mean + std * z) * stats.norm.pdf(z), -12, 12, epsabs=1e-12)[0]
    assert logistic_of(mean, variance, 1, 1).value == pytest.approx(math.log(exact), abs=1e-6)
    assert logistic_of(mean, variance, 0, 1).value == pytest.approx(math.log1p(-exact), abs=1e-6)


def test_without_variance_it_is_the_likelihood_and_its_slopes():
    """by_variance is half of (likelihood)'' / likelihood, however small the variance."""
    mean, a, b = np.array([-3.0, 0.2, 5.0]), np.array([0.0, 4.0, 17.0]), np.array([2.5, 9.0, 17.0])
    p = expit(mean)
    for variance in (0.0, 1e-30, 1e-14):
        found = logistic(mean, np.full(3, variance), a, b)
        np.testing.assert_allclose(found.value, a * mean + b * log_expit(-mean), rtol=1e-8)
        np.testing.assert_allclose(found.by_mean, a - b * p, rtol=1e-6)
        np.testing.assert_allclose(found.by_variance, ((a - b * p) ** 2 - b * p * (1 - p)) / 2, rtol=1e-6)
        np.testing.assert_allclose(found.by_b, log_expit(-mean), rtol=1e-6)


@pytest.mark.parametrize("count", [1e6, 1e10, 1e14])
def test_large_counts_lose_no_digits(count):
    """For a large count e^(a f) / (1 + e^f)^(a + c) is e^(-c f) exp(-a e^-f): Gumbel's tail, written in f - log a."""
    mean, variance, c = math.log(count), 1.0, 2.0
    x = np.linspace(-12, 12, 200_001)  # f - log a
    log_integrand = -c * (x + mean) - (count + c) * np.log1p(np.exp(-x) / count) + stats.norm.logpdf(x)
    exact = logsumexp(log_integrand) + math.log(x[1] - x[0])
    assert logistic_of(mean, variance, count, count + c).value == pytest.approx(exact, rel=1e-8)


def test_no_observation_says_nothing():
    found = logistic(np.array([-2.0, 3.0]), np.array([0.5, 100.0]), np.zeros(2), np.zeros(2))
    np.testing.assert_allclose([found.value, found.by_mean, found.by_variance], 0, atol=1e-7)


def test_logistic_is_finite_at_extremes():
    mean = np.array([-500.0, -20.0, 0.0, 20.0, 500.0])
    for variance in (0.0, 1e-12, 1.0, 1e4):
        for a, b in ((0, 1e-3), (0, 1e6), (10**6, 10**6), (1e15, 1e15 + 1), (1, 2)):
            found = logistic(mean, np.full(5, variance), np.full(5, float(a)), np.full(5, float(b)))
            assert all(np.isfinite(values).all() for values in found)


# --- both -------------------------------------------------------------------------------------------------------------


def test_bits_do_not_depend_on_the_company():
    rng = np.random.default_rng(4)
    residual, variance = rng.normal(size=50) * 10 ** rng.uniform(-2, 3, 50), 10 ** rng.uniform(-6, 3, 50)
    dispersion = 10 ** rng.uniform(-2, 4, 50)
    a = rng.poisson(50, 50).astype(float)
    for function in (
        lambda rows: student_t(residual[rows], variance[rows], math.log(0.1), math.log(5.0)),
        lambda rows: logistic(residual[rows], variance[rows], a[rows], (a + dispersion)[rows]),
        lambda rows: normal(residual[rows], variance[rows]),
    ):
        together = np.array(function(np.arange(50)))
        np.testing.assert_array_equal(np.array(function(np.arange(50)[::-1]))[:, ::-1], together)
        np.testing.assert_array_equal(np.hstack([function(np.array([i])) for i in range(50)]), together)


def test_what_is_no_number_stays_none():
    for residual, variance in ((np.nan, 1.0), (1.0, np.nan)):
        assert np.isnan(t_of(residual, variance, 0.0, 2.0).value)
        assert np.isnan(logistic_of(residual, variance, 1, 2).value)
