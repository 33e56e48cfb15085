"""Exact GP: the value against scipy and brute-force refits, the gradient against finite differences."""

import time

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from experiments.methods import METHODS, Settings, TooLarge
from experiments.methods.exact import objective

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), RNG.normal(size=40) + 0.5
THETA = np.r_[np.log([0.7, 1.5, 3.0]), np.log(1.3), np.log(0.2), 0.4]


def sklearn_kernel():
    return ConstantKernel(1.3) * Matern([0.7, 1.5, 3.0], nu=2.5) + WhiteKernel(0.2)


def test_mll_equals_scipy_and_scikit_learn():
    value, _ = objective("mll", THETA, X, Y)
    dense = multivariate_normal(np.full(40, 0.4), sklearn_kernel()(X)).logpdf(Y)
    regressor = GaussianProcessRegressor(sklearn_kernel(), optimizer=None).fit(X, Y - 0.4)
    np.testing.assert_allclose(40 * value, dense, rtol=1e-10)
    np.testing.assert_allclose(40 * value, regressor.log_marginal_likelihood(), rtol=1e-8)


def test_loo_equals_refits_without_each_row():
    value, _ = objective("loo", THETA, X, Y)
    scores = []
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        regressor = GaussianProcessRegressor(sklearn_kernel(), optimizer=None).fit(X[rest], Y[rest] - 0.4)
        mean, std = regressor.predict(X[[i]], return_std=True)
        scores.append(norm(mean + 0.4, std).logpdf(Y[i]))
    np.testing.assert_allclose(value, np.mean(scores), rtol=1e-8)


@pytest.mark.parametrize("name", ["mll", "loo"])
def test_gradient_equals_finite_differences(name):
    value_of, slope_of = (lambda t: objective(name, t, X, Y)[0]), (lambda t: objective(name, t, X, Y)[1])
    assert check_grad(value_of, slope_of, THETA, epsilon=1e-6) < 1e-6


@pytest.mark.parametrize("name", ["exact-mll", "exact-loo"])
def test_prediction_equals_scikit_learn_at_the_learned_parameters(name):
    y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40)
    gp = METHODS[name].build(Settings())
    gp.fit(X, y, X[:0], y[:0])
    *log_lengths, log_scale, log_noise, mean = gp.parameters
    kernel = ConstantKernel(np.exp(log_scale)) * Matern(np.exp(log_lengths), nu=2.5) + WhiteKernel(np.exp(log_noise))
    regressor = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y - mean)
    X_new = RNG.normal(size=(7, 3))
    expected, std = regressor.predict(X_new, return_std=True)
    found = gp.predict(X_new)
    np.testing.assert_allclose(found.mean, expected + mean, atol=1e-7)
    np.testing.assert_allclose(found.dist.std(), std, atol=1e-7)


def test_too_many_rows_and_a_passed_deadline_are_errors():
    gp = METHODS["exact-mll"].build(Settings())
    with pytest.raises(TooLarge, match="10001"):
        gp.fit(np.zeros((10_001, 1)), np.zeros(10_001), X, Y)
    with pytest.raises(TimeoutError):
        gp.fit(X, Y, X, Y, deadline=time.monotonic() - 1)
