"""ALC: the greedy choice against brute force, the likelihood against scipy, the predictive against dense algebra."""

import time

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import multivariate_t

from experiments.methods import METHODS, Settings, alc, alc_compiled

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3))
Y = np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=50)
NEW = RNG.normal(size=(9, 3))
THETA, G = np.array([0.8, 2.0, 5.0]), 0.05
SEPARABLE = np.arange(3)


def dense(a, b, theta=THETA):
    return np.exp(-(((a[:, None] - b[None]) ** 2) / theta).sum(-1))


def log_likelihood(phi, rate, groups):
    gradient = np.empty(len(phi))
    return alc_compiled.log_likelihood(phi, rate, X, Y, groups, gradient), gradient


def brute_force_choice(x, k, start):
    """Rows of X by the variance at x after each possible addition, each from a new solve."""
    chosen = list(np.argsort(((X - x) ** 2).sum(1))[:start])
    while len(chosen) < k:
        rest = [j for j in range(len(X)) if j not in chosen]
        variances = []
        for j in rest:
            rows = X[[*chosen, j]]
            c = dense(x[None], rows)[0]
            variances.append(1 - c @ np.linalg.solve(dense(rows, rows) + G * np.eye(len(rows)), c))
        chosen.append(rest[int(np.argmin(variances))])
    return chosen


@pytest.mark.parametrize("x", NEW)
def test_greedy_choice_equals_brute_force(x):
    near = np.argsort(((X - x) ** 2).sum(1))
    found = near[alc_compiled.select(x, X, near, THETA, G, 20, 4)]
    np.testing.assert_array_equal(found, brute_force_choice(x, 20, 4))


def test_predictive_equals_dense_algebra():
    K, c = dense(X, X) + G * np.eye(50), dense(NEW, X)
    psi = Y @ np.linalg.solve(K, Y)
    mean, left = c @ np.linalg.solve(K, Y), 1 + G - np.sum(c * np.linalg.solve(K, c.T).T, 1)
    found = np.array([alc_compiled.predictive(x, X, Y, THETA, G) for x in NEW])
    np.testing.assert_allclose(found, np.c_[mean, np.sqrt(psi / 50 * left)], rtol=1e-8)


@pytest.mark.parametrize("groups", [SEPARABLE, np.zeros(3, dtype=np.int64)])
def test_gradient_of_the_local_likelihood_equals_finite_differences(groups):
    phi = np.r_[np.log([0.8, 2.0, 5.0])[: groups.max() + 1], np.log(G)]
    rate = np.full(len(phi), 0.3)
    expected = approx_fprime(phi, lambda p: log_likelihood(p, rate, groups)[0], 1e-6)
    np.testing.assert_allclose(log_likelihood(phi, rate, groups)[1], expected, rtol=1e-4, atol=1e-4)


def test_local_likelihood_is_the_density_with_the_scale_integrated_out():
    """A Student-t of few degrees of freedom, in which the scale's prior is proper, tends to it up to a constant."""

    def likelihood(log_g):
        phi = np.r_[np.log(THETA), log_g]
        return log_likelihood(phi, np.zeros(4), SEPARABLE)[0] - 0.5 * phi.sum()

    def student(log_g):
        shape = dense(X, X) + np.exp(log_g) * np.eye(50)
        return multivariate_t(np.zeros(50), shape * 1e-7, df=1e-7).logpdf(Y)

    difference = likelihood(-3.0) - likelihood(-1.0)
    np.testing.assert_allclose(difference, student(-3.0) - student(-1.0), rtol=1e-4)


@pytest.mark.parametrize("groups", [SEPARABLE, np.zeros(3, dtype=np.int64)])
def test_optimum_equals_that_of_scipy(groups):
    p = groups.max() + 2
    low, high, rate = np.full(p, -6.0), np.full(p, 5.0), np.full(p, 0.3)
    found = alc_compiled.optimise(np.zeros(p), low, high, rate, X, Y, groups, 200)
    best = minimize(
        lambda phi: -log_likelihood(phi, rate, groups)[0],
        found,
        method="L-BFGS-B",
        bounds=list(zip(low, high, strict=True)),
    )
    assert -best.fun - log_likelihood(found, rate, groups)[0] < 1e-3


def test_a_prediction_depends_neither_on_its_neighbours_nor_on_threads():
    alone, together = (alc.ALC(alc.QUICK, threads) for threads in (1, 3))
    for gp in (alone, together):
        gp.fit(X, Y, X[:5], Y[:5])
    expected = together.predict(np.tile(NEW, (10, 1)))
    np.testing.assert_array_equal(alone.predict(NEW[:1]).mean, expected.mean[:1])
    np.testing.assert_array_equal(alone.predict(NEW[:1]).dist.std(), expected.dist.std()[:1])


def test_a_passed_deadline_is_an_error_of_predict_too():
    gp = METHODS["alc"].build(Settings(quick=True, threads=1))
    gp.fit(X, Y, X[:5], Y[:5])
    with pytest.raises(TimeoutError):
        gp.predict(NEW, deadline=time.monotonic() - 1)
