"""PGVI with an inducing point at each of ten rows: its fixed point against an optimiser, its bound and probabilities
against the true evidence and posterior by sampling."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp

from experiments.methods import METHODS, Settings, pgvi
from experiments.methods.common import matern52

RNG = np.random.default_rng(0)
X = RNG.normal(size=(10, 2))
SIGN = np.where(X[:, 0] + 0.5 * RNG.normal(size=10) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(4, 2))


def settled(beta=1.0, scale=4.0):
    """q(v) after full-batch steps to its fixed point, the kernel as it is."""
    gp = pgvi.SparsePolyaGamma(X, beta)
    gp.log_scale.data.fill_(np.log(scale))
    y, x = torch.as_tensor(SIGN), torch.as_tensor(X)
    with torch.no_grad():
        for _ in range(200):
            gp.natural_step(*gp.latent(x), y, len(x), rate=1.0)
        _, mean, variance = gp.latent(x)
        return gp, float(gp.fit_term(mean, variance, y).sum() - beta * gp.kl())


def kernel(gp, a, b):
    with torch.no_grad():
        return matern52(torch.as_tensor(a), torch.as_tensor(b), gp.log_lengths, gp.log_scale).numpy()


def posterior_samples(gp):
    """f at X from the prior, log likelihoods as log weights, and the log evidence of the labels."""
    K = kernel(gp, X, X) + 1e-6 * np.eye(10)
    L = np.linalg.cholesky(K)
    v = RNG.normal(size=(400_000, 10))
    log_weights = log_expit(SIGN * (v @ L.T)).sum(1)
    return v @ L.T, log_weights, logsumexp(log_weights) - np.log(len(v))


def test_bound_is_below_the_evidence_and_reaches_it_as_the_kernel_vanishes():
    gaps = []
    for scale in (4.0, 1.0, 0.1):
        gp, bound = settled(scale=scale)
        gaps.append(posterior_samples(gp)[2] - bound)
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < gaps[1] / 20  # it falls with the square of the variance


def test_fixed_point_is_the_maximum_of_the_bound_over_the_local_parameters():
    """Jaakkola and Jordan's bound: the same in c alone, with f integrated out in closed form."""
    gp, bound = settled()
    K = kernel(gp, X, X) + 1e-6 * gp.log_scale.exp().item() * np.eye(10)

    def negative(log_c):
        c = np.exp(log_c)
        w = np.tanh(c / 2) / (2 * c)
        A = np.linalg.inv(K) + np.diag(w)
        log_gauss = SIGN @ np.linalg.solve(A, SIGN) / 8 - np.linalg.slogdet(A)[1] / 2 - np.linalg.slogdet(K)[1] / 2
        return -(log_gauss + np.sum(w * c**2 / 2 - np.log(2 * np.cosh(c / 2))))

    best = minimize(negative, np.zeros(10))
    np.testing.assert_allclose(bound, -best.fun, rtol=1e-6)


def test_probabilities_are_near_those_of_the_true_posterior():
    gp, _ = settled()
    f, log_weights, evidence = posterior_samples(gp)
    weights = np.exp(log_weights - evidence) / len(f)
    K, c = kernel(gp, X, X) + 1e-6 * np.eye(10), kernel(gp, X, NEW)
    B = np.linalg.solve(K, c)
    std = np.sqrt(np.maximum(gp.log_scale.exp().item() - (c * B).sum(0), 0))
    f_new = f @ B + std * RNG.normal(size=(len(f), len(NEW)))
    found = pgvi.predict(gp, NEW, None).probabilities[:, 1]
    np.testing.assert_allclose(found, weights @ expit(f_new), atol=0.04)


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_natural_gradient_vanishes_where_the_gradient_does(beta):
    """At the fixed point the bound with the weight beta has no slope in the mean of q(v)."""
    gp, _ = settled(beta)
    gp.mean = gp.mean.clone().requires_grad_()
    _, mean, variance = gp.latent(torch.as_tensor(X))
    (gp.fit_term(mean, variance, torch.as_tensor(SIGN)).sum() - beta * gp.kl()).backward()
    assert gp.mean.grad.abs().max() < 1e-6


def test_fit_separates_two_moons():
    from sklearn.datasets import make_moons

    X, y = make_moons(600, noise=0.2, random_state=0)
    X = (X - X.mean(0)) / X.std(0)
    gp = METHODS["pgvi"].build(Settings("binary", options={"inducing": 30, "betas": (0.5,), "steps": 150}))
    gp.fit(X[:400], y[:400], X[:0], y[:0])
    p = gp.predict(X[400:])
    assert np.mean(p.probabilities.argmax(1) != y[400:]) < 0.06
    assert p.nll(y[400:]) < 0.25


def test_training_goes_on_from_a_start_which_stays_as_it_is():
    config = pgvi.Config(inducing=10, steps=3, more_steps=2, batch=10)
    labels = (SIGN > 0).astype(int)
    first = pgvi.train(config, 1.0, X, X, labels, 0, None)
    before = first.log_lengths.detach().clone(), first.precision.clone(), first.beta
    second = pgvi.train(config, 0.1, X, X, labels, 0, None, first)
    assert torch.equal(first.log_lengths, before[0])
    assert torch.equal(first.precision, before[1])
    assert (first.beta, second.beta) == (1.0, 0.1)
    moved = (second.log_lengths - first.log_lengths).abs().max()
    assert 0 < moved < 2.5 * 2 * pgvi.LEARNING_RATE / 5  # two of Adam's smaller steps from where the first ended
