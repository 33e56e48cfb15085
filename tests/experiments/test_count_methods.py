"""The usual models of counts: their optima where these are known, and against the truth of simulated counts."""

import numpy as np
import pytest
from scipy import stats

from experiments.methods.counts import Counted, beta_binomial, boosting, glm, negative_binomial, nll


def simulated(n=2000, seed=0):
    """Three parts with counts of a log-linear mean and dispersion 3."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    mean = np.exp(1 + 0.7 * X[:, 0] - 0.4 * X[:, 1])
    y = rng.negative_binomial(3, 3 / (3 + mean)).astype(float)
    cuts = [n // 2, 3 * n // 4]
    return [Counted(*part) for part in zip(np.split(X, cuts), np.split(y, cuts), strict=True)], mean[cuts[1] :]


def test_negative_binomial_has_the_mean_and_variance_that_it_says():
    dist = negative_binomial(np.array([0.5, 20.0]), 4.0)
    np.testing.assert_allclose(dist.mean(), [0.5, 20.0])
    np.testing.assert_allclose(dist.var(), [0.5 + 0.25 / 4, 20.0 + 400 / 4])


def test_glm_finds_the_truth():
    three, truth = simulated()
    found = glm(*three, seed=0)
    assert np.abs(np.log(found.mean() / truth)).mean() < 0.15
    assert nll(found, three[2].y) < nll(negative_binomial(truth, 3.0), three[2].y) + 0.02


def test_glm_without_inputs_predicts_the_mean_and_the_best_dispersion():
    """With a log link and an intercept alone, the maximum-likelihood mean of a negative binomial is the sample's."""
    y = np.random.default_rng(1).negative_binomial(2, 0.2, size=500).astype(float)
    part = Counted(np.zeros((500, 1)), y)
    found = glm(part, part, part, seed=0)
    np.testing.assert_allclose(found.mean(), y.mean(), rtol=1e-3)
    grid = min(nll(negative_binomial(np.full(500, y.mean()), r), y) for r in np.geomspace(0.5, 10, 400))
    assert nll(found, y) == pytest.approx(grid, abs=1e-4)


def test_boosting_learns_mean_and_dispersion():
    three, truth = simulated(2000)
    found = boosting(*three, seed=0)
    best = nll(negative_binomial(truth, 3.0), three[2].y)
    constant = nll(negative_binomial(np.full(len(truth), three[0].y.mean()), 1.0), three[2].y)
    assert nll(found, three[2].y) < best + 0.4 * (constant - best)


def test_beta_binomial_finds_share_and_dispersion():
    rng = np.random.default_rng(0)
    X, trials = rng.normal(size=(3000, 1)), rng.integers(5, 40, 3000).astype(float)
    p = 1 / (1 + np.exp(-0.5 - X[:, 0]))
    y = stats.betabinom(trials.astype(int), 8 * p, 8 * (1 - p)).rvs(random_state=rng).astype(float)
    train, test = Counted(X[:2000], y[:2000], trials[:2000]), Counted(X[2000:], y[2000:], trials[2000:])
    found = beta_binomial(train, train, test, seed=0)
    truth = stats.betabinom(test.trials, 8 * p[2000:], 8 * (1 - p[2000:]))
    assert nll(found, test.y) < nll(truth, test.y) + 0.01
