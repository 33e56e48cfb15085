"""Every likelihood against dense algebra, brute force and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

from nearfield.kernels import find_kernel
from nearfield.likelihoods import LIKELIHOODS
from nearfield.likelihoods.classes import AUXILIARY, Bernoulli, OneAgainstAll
from nearfield.likelihoods.counts import Binomial, NegativeBinomial
from nearfield.likelihoods.gaussian import Gaussian
from nearfield.likelihoods.outputs import GaussianOutputs, statistics
from nearfield.likelihoods.student_t import StudentT
from nearfield.model import Model, Rows
from nearfield.sweep import Sweeper


def weighted(y, given):
    return np.stack([y, np.ones(len(y)), np.broadcast_to(given, len(y))], axis=1).astype(float)


def one_hot(labels, classes):
    return np.eye(classes)[labels]


def example(name, n=40, seed=0, auxiliary="conjugate"):
    """A likelihood with inputs (n, 2) and statistics (n, S) drawn for it."""
    if name in ("binomial", "negative_binomial") and auxiliary != "conjugate":
        auxiliary = "curvature"
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    f = 1.5 * np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    p = scipy.special.expit(f)
    if name == "gaussian":
        return Gaussian(), X, weighted(f + 0.3 * rng.standard_normal(n), 0.0)
    if name == "student_t":
        return StudentT(), X, weighted(f + 0.3 * rng.standard_t(3, n), 0.0)
    if name == "gaussian_outputs":
        Y = np.stack([f, f**2], axis=1) + 0.3 * rng.standard_normal((n, 2))
        Y[rng.random((n, 2)) < 0.2] = np.nan
        return GaussianOutputs(2), X, statistics(Y, np.ones(n), np.zeros((n, 2)))
    if name == "bernoulli":
        return Bernoulli(2, auxiliary), X, one_hot((rng.random(n) < p).astype(int), 2)
    if name == "one_against_all":
        return OneAgainstAll(3, auxiliary), X, one_hot(np.digitize(f + rng.logistic(size=n), [-1, 1]), 3)
    if name == "binomial":
        return Binomial(auxiliary), X, weighted(rng.binomial(7, p), 7)
    return NegativeBinomial(auxiliary), X, weighted(rng.negative_binomial(3, 1 / (1 + np.exp(f) / 3)), 0.0)


def model_of(likelihood, X, stats):
    rows = Rows.of(likelihood, X, stats)
    return Model.initial(find_kernel("rbf"), X.shape[1], likelihood, likelihood.initial_mean(stats)), rows


def dense_kernel(model, X, c=None):
    scale2 = (2 * model.log_scale.detach()).exp().numpy()
    Z = X / model.lengths
    return (scale2 if c is None else scale2[c]) * np.exp(-0.5 * ((Z[:, None] - Z[None]) ** 2).sum(-1))


def sites_of(model, rows):
    """Sites of all rows, (n, C) each, noises in the units of the targets."""
    with torch.no_grad():
        scale2 = (2 * model.log_scale).exp()
        sites = model.likelihood.sites(rows.stats[None], rows.auxiliary[None], model.noise_model, scale2)
    targets, noises = sites.targets[0].numpy(), sites.noises[0].numpy()
    if targets.ndim == 2 and noises.shape[-1] == 1:
        noises = noises * scale2.numpy()
    return (t.reshape(len(rows), -1) for t in (targets, noises))


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("auxiliary", AUXILIARY)
def test_left_out_moments_equal_dense_algebra_with_the_sites(name, auxiliary):
    likelihood, X, stats = example(name, auxiliary=auxiliary)
    model, rows = model_of(likelihood, X, stats)
    sweeper = Sweeper(model, rows)
    sweeper.settle(39)
    n, mean = len(rows), np.atleast_1d(model.mean.detach().numpy())
    swept = sweeper.left_out(np.arange(n), np.array([39])).at(0)
    targets, noises = sites_of(model, rows)
    for c in range(targets.shape[1]):
        K = dense_kernel(model, X, c if likelihood.latents else None)
        for i in (0, 7, 39):
            others = np.delete(np.arange(n), i)
            A = np.linalg.inv(K[np.ix_(others, others)] + np.diag(noises[others, c]))
            m = mean[c] + K[i, others] @ A @ (targets[others, c] - mean[c])
            v = K[i, i] - K[i, others] @ A @ K[others, i]
            assert swept.mean.reshape(n, -1)[i, c] == pytest.approx(m, abs=1e-8)
            assert swept.variance.reshape(n, -1)[i, c] == pytest.approx(v, abs=1e-8)


@pytest.mark.parametrize("name", [name for name in LIKELIHOODS if not name.startswith("gaussian")])
def test_settled_auxiliaries_are_the_fixed_point_of_the_augmented_posterior(name):
    """Coordinate ascent on the dense augmented posterior, written down on its own, ends at the same sites."""
    likelihood, X, stats = example(name)
    model, rows = model_of(likelihood, X, stats)
    assert Sweeper(model, rows).settle(40) < 20
    targets, noises = sites_of(model, rows)
    mean = np.atleast_1d(model.mean.detach().numpy())
    for c in range(targets.shape[1]):
        K = dense_kernel(model, X, c if likelihood.latents else None)
        t, v = targets[:, c].copy(), noises[:, c].copy()
        for _ in range(100):
            A = np.linalg.inv(K + np.diag(v))
            m, S = mean[c] + K @ A @ (t - mean[c]), np.diag(K - K @ A @ K)
            t, v = dense_sites(name, stats, m, S, c, model)
        np.testing.assert_allclose(targets[:, c], t, rtol=0.02, atol=0.02)
        np.testing.assert_allclose(noises[:, c], v, rtol=0.05)  # settled to a thousandth on average


def dense_sites(name, stats, m, S, c, model):
    """Sites from the posterior moments of all rows, from the formulas of Polson et al. and of a Gamma mixture."""
    if name == "student_t":
        df, s2 = (float(model.noise_model[p].detach().exp()) for p in ("log_df", "log_noise"))
        weight = (df + 1) / (df + ((stats[:, 0] - m) ** 2 + S) / s2)
        return stats[:, 0], s2 / weight
    offset = 0.0
    if name == "bernoulli":
        a, b = stats[:, 1], stats.sum(axis=1)
    elif name == "one_against_all":
        a, b = stats[:, c], stats.sum(axis=1)
    elif name == "binomial":
        a, b = stats[:, 0], stats[:, 2]
    else:
        r = float(model.noise_model["log_dispersion"].detach().exp())
        a, b, offset = stats[:, 0], stats[:, 0] + r, -math.log(r)
    psi = np.sqrt((m + offset) ** 2 + S)
    omega = b * np.tanh(psi / 2) / (2 * psi)
    return (a - b / 2) / omega - offset, 1 / omega


@pytest.mark.parametrize("name", ["binomial", "negative_binomial"])
def test_settled_curvature_sites_are_the_laplace_approximation(name):
    """The mode of the dense posterior, by Newton's method written down on its own, and its curvature."""
    likelihood, X, stats = example(name, auxiliary="curvature")
    model, rows = model_of(likelihood, X, stats)
    assert Sweeper(model, rows).settle(40) < 20
    K, mean = dense_kernel(model, X), float(model.mean.detach())
    a, b, offset = stats[:, 0], stats[:, 2], 0.0
    if name == "negative_binomial":
        r = float(model.noise_model["log_dispersion"].detach().exp())
        a, b, offset = stats[:, 0], stats[:, 0] + r, -math.log(r)
    f = np.full(len(X), mean)
    for _ in range(50):
        s = scipy.special.expit(f + offset)
        W = b * s * (1 - s)
        t = f + (a - b * s) / W
        f = mean + K @ np.linalg.solve(K + np.diag(1 / W), t - mean)
    np.testing.assert_allclose(rows.auxiliary[:, 0], f, atol=5e-3)
    targets, noises = sites_of(model, rows)
    np.testing.assert_allclose(noises[:, 0], 1 / W, rtol=0.02)
    np.testing.assert_allclose(targets[:, 0], t, atol=0.02)


# --- predictive densities -------------------------------------------------------------------------------------------


def integrated(log_likelihood, m, v):
    """log of the integral of exp(log_likelihood(f)) N(f; m, v), on a fine grid around its peak."""
    wide = np.linspace(m - 40 * math.sqrt(v), m + 40 * math.sqrt(v), 400_001)
    values = log_likelihood(wide) + scipy.stats.norm(m, math.sqrt(v)).logpdf(wide)
    near = wide[values > values.max() - 60]
    grid = np.linspace(near[0] - 1e-3 * math.sqrt(v), near[-1] + 1e-3 * math.sqrt(v), 400_001)
    values = log_likelihood(grid) + scipy.stats.norm(m, math.sqrt(v)).logpdf(grid)
    top = values.max()
    return top + math.log(np.trapezoid(np.exp(values - top), grid))


def log_predictive(likelihood, m, v, stats, hyper=None):
    hyper = hyper or {name: torch.tensor(p.initial, dtype=torch.float64) for name, p in likelihood.parameters.items()}
    m, v = (torch.tensor(np.atleast_1d(x), dtype=torch.float64) for x in (m, v))
    return likelihood.log_predictive(m, v, torch.tensor(np.atleast_2d(stats), dtype=torch.float64), hyper)


@pytest.mark.parametrize(("m", "v"), [(0.3, 0.5), (-4.0, 9.0), (6.0, 0.5), (2.0, 100.0)])
@pytest.mark.parametrize(("y", "n"), [(0, 1), (1, 1), (3, 7), (990, 1000), (0, 10**6)])
def test_binomial_predictive_equals_quadrature(m, v, y, n):
    exact = integrated(lambda f: scipy.stats.binom(n, scipy.special.expit(f)).logpmf(y), m, v)
    assert float(log_predictive(Binomial(), m, v, [y, 1, n])) == pytest.approx(exact, abs=1e-4, rel=1e-5)


@pytest.mark.parametrize(("m", "v"), [(0.3, 0.5), (4.0, 0.1), (2.0, 4.0), (12.0, 0.2)])
@pytest.mark.parametrize("y", [0, 1, 55, 10**6])
@pytest.mark.parametrize("r", [0.5, 5.0, 300.0])
def test_negative_binomial_predictive_equals_quadrature(m, v, y, r):
    def log_likelihood(f):
        mu = 2.5 * np.exp(f)
        return scipy.stats.nbinom(r, r / (r + mu)).logpmf(y)

    exact = integrated(log_likelihood, m, v)
    hyper = {"log_dispersion": torch.tensor(math.log(r), dtype=torch.float64)}
    ours = float(log_predictive(NegativeBinomial(), m, v, [y, 1, math.log(2.5)], hyper))
    assert ours == pytest.approx(exact, abs=1e-4, rel=1e-5)


@pytest.mark.parametrize("residual", [1e2, 1e4, 1e8])
def test_student_t_predictive_has_heavy_tails(residual):
    hyper = {"log_noise": torch.zeros((), dtype=torch.float64), "log_df": torch.tensor(math.log(4.0)).double()}
    ours = float(log_predictive(StudentT(), 0.0, 1e-10, [residual, 1, 0.0], hyper))
    assert ours == pytest.approx(scipy.stats.t(4).logpdf(residual), abs=1e-6)


@pytest.mark.parametrize(("m", "v"), [(0.3, 0.5), (4.0, 1e-4), (-2.0, 30.0)])
@pytest.mark.parametrize("df", [1.0, 2.5, 30.0, 1e5])
def test_student_t_predictive_equals_quadrature(m, v, df):
    likelihood, s2 = StudentT(), 0.2
    hyper = {
        "log_noise": torch.tensor(math.log(s2), dtype=torch.float64),
        "log_df": torch.tensor(math.log(df), dtype=torch.float64),
    }
    exact = integrated(lambda f: scipy.stats.t(df, f, math.sqrt(s2)).logpdf(1.0), m, v)
    assert float(log_predictive(likelihood, m, v, [1.0, 1, 0.0], hyper)) == pytest.approx(exact, abs=2e-3)


def test_class_probabilities_sum_to_one_and_are_the_left_out_predictive():
    m, v = torch.randn(50, 4, dtype=torch.float64), torch.rand(50, 4, dtype=torch.float64) * 9
    log_p = OneAgainstAll(4).log_probabilities(m, v)
    np.testing.assert_allclose(log_p.exp().sum(-1), 1, atol=1e-12)
    each = np.array([[math.exp(integrated(lambda f: scipy.special.log_expit(f), float(a), float(b)))
                      for a, b in zip(m[i], v[i], strict=True)] for i in range(3)])  # fmt: skip
    np.testing.assert_allclose(log_p.exp()[:3], each / each.sum(axis=1, keepdims=True), atol=1e-4)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_of_the_predictive_equal_finite_differences(name):
    likelihood, _, stats = example(name, n=6)
    hyper = {
        key: torch.full(likelihood.latents if p.each else (), p.initial + 0.1, dtype=torch.float64, requires_grad=True)
        for key, p in likelihood.parameters.items()
    }
    m = torch.randn(6, *likelihood.latents, dtype=torch.float64, requires_grad=True)
    v = (torch.rand(6, *likelihood.latents, dtype=torch.float64) + 0.1).requires_grad_()
    used = [p for key, p in hyper.items() if key not in ("log_ridge", "log_amplitude")]

    def total(m, v, *rest):
        given = {**hyper, **dict(zip([k for k in hyper if k not in ("log_ridge", "log_amplitude")], rest, strict=True))}
        return likelihood.log_predictive(m, v, torch.from_numpy(stats), given)

    # nodes and grids are held fixed, so both sides agree to the accuracy of the quadrature only
    assert torch.autograd.gradcheck(total, (m, v, *used), eps=1e-5, atol=2e-3, rtol=2e-3)


# --- limits ---------------------------------------------------------------------------------------------------------


def settled_moments(likelihood, X, stats):
    model, rows = model_of(likelihood, X, stats)
    sweeper = Sweeper(model, rows)
    sweeper.settle(len(rows))
    return sweeper.left_out(np.arange(len(rows)), np.array([len(rows)])).at(0)


def test_one_trial_of_a_binomial_is_bernoulli():
    _, X, stats = example("bernoulli")
    binomial, bernoulli = Binomial("conjugate"), Bernoulli(2, "conjugate")
    binomial.initial_scale = bernoulli.initial_scale
    as_counts = weighted(stats[:, 1], 1)
    a, rows_a = model_of(binomial, X, as_counts)
    b, rows_b = model_of(bernoulli, X, stats)
    with torch.no_grad():
        a.mean.copy_(b.mean)
        rows_a.auxiliary.copy_(rows_b.auxiliary)
    for model, rows in ((a, rows_a), (b, rows_b)):
        Sweeper(model, rows).settle(40)
    np.testing.assert_allclose(rows_a.auxiliary, rows_b.auxiliary, atol=1e-10)
    ours, theirs = (Sweeper(*pair).left_out(np.arange(40), np.array([40])).at(0) for pair in ((a, rows_a), (b, rows_b)))
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-10)
    m, v = torch.from_numpy(ours.mean), torch.from_numpy(ours.variance)
    np.testing.assert_allclose(
        binomial.log_predictive(m, v, torch.from_numpy(as_counts), {}),
        bernoulli.log_predictive(m, v, torch.from_numpy(stats), {}),
        atol=1e-3,
    )


@pytest.mark.parametrize("auxiliary", ["tied", "conjugate"])
def test_two_classes_one_against_all_mirror_bernoulli(auxiliary):
    """Each of the two latent functions is the other's mirror image, and so are the probabilities before normalising."""
    _, X, stats = example("bernoulli")
    one, two = Bernoulli(2, auxiliary), OneAgainstAll(2, auxiliary)
    single, both = settled_moments(one, X, stats), settled_moments(two, X, stats)
    np.testing.assert_allclose(both.mean[:, 1], single.mean, atol=1e-8)
    np.testing.assert_allclose(both.mean[:, 0], -single.mean, atol=1e-8)
    np.testing.assert_allclose(both.variance[:, 0], single.variance, atol=1e-8)
    p, q = (
        likelihood.log_probabilities(torch.from_numpy(s.mean), torch.from_numpy(s.variance)).exp().numpy()
        for likelihood, s in ((one, single), (two, both))
    )
    np.testing.assert_allclose(p, q, atol=1e-3)  # p / (p + (1 - p)) = p


def test_student_t_with_many_degrees_of_freedom_is_gaussian():
    _, X, stats = example("gaussian")
    heavy, rows = model_of(StudentT(), X, stats)
    plain, _ = model_of(Gaussian(), X, stats)
    with torch.no_grad():
        heavy.noise_model["log_df"].fill_(math.log(1e6))
        heavy.noise_model["log_noise"].copy_(plain.noise_model["log_noise"])
        sweeper = Sweeper(heavy, rows)
        sweeper.settle(40)
        ours = sweeper.left_out(np.arange(40), np.array([40])).at(0)
        theirs = Sweeper(plain, Rows.of(Gaussian(), X, stats)).left_out(np.arange(40), np.array([40])).at(0)
        np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-3)
        m, v, s = torch.from_numpy(ours.mean), torch.from_numpy(ours.variance), torch.from_numpy(stats)
        t = heavy.likelihood.log_predictive(m, v, s, heavy.noise_model)
        g = plain.likelihood.log_predictive(m, v, s, plain.noise_model)
    np.testing.assert_allclose(t, g, atol=1e-3)


def test_negative_binomial_with_large_dispersion_is_poisson():
    hyper = {"log_dispersion": torch.tensor(math.log(1e7), dtype=torch.float64)}
    for y, m in ((0, 0.5), (4, 1.0), (200, 5.0)):
        ours = float(log_predictive(NegativeBinomial(), m, 0.2, [y, 1, 0.0], hyper))
        exact = integrated(lambda f, y=y: scipy.stats.poisson(np.exp(f)).logpmf(y), m, 0.2)
        assert ours == pytest.approx(exact, abs=2e-3)


def test_probabilities_against_the_exact_posterior_on_ten_points():
    """The posterior of ten latent values by importance sampling from the prior, for a brute-force predictive."""
    rng = np.random.default_rng(1)
    X = np.linspace(-2, 2, 10)[:, None]
    labels = np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 1])
    likelihood = Bernoulli(2, "conjugate")
    model, rows = model_of(likelihood, X, one_hot(labels, 2))
    sweeper = Sweeper(model, rows)
    sweeper.settle(10)
    new = np.array([[-1.5], [0.1], [1.7]])
    swept = sweeper.new(new, 10)
    p = likelihood.log_probabilities(torch.from_numpy(swept.mean), torch.from_numpy(swept.variance)).exp()[:, 1]
    K = dense_kernel(model, np.concatenate([X, new]))
    L = np.linalg.cholesky(K + 1e-9 * np.eye(13))
    f = float(model.mean.detach()) + rng.standard_normal((2_000_000, 13)) @ L.T
    log_weight = scipy.special.log_expit(np.where(labels == 1, f[:, :10], -f[:, :10])).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    exact = (weight @ scipy.special.expit(f[:, 10:])) / weight.sum()
    np.testing.assert_allclose(p, exact, atol=0.03)  # the error of the mean-field approximation itself


# --- domains --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "stats", "message"),
    [
        (Binomial(), weighted(np.array([3.0]), 2), "more successes than"),
        (Binomial(), weighted(np.array([0.5]), 2), "no counts"),
        (NegativeBinomial(), weighted(np.array([-1.0]), 0.0), "no counts"),
        (Bernoulli(), np.array([[1.0, 0.0]]), "only one class"),
        (OneAgainstAll(3), np.ones((4, 2)), "3 classes"),
        (Gaussian(), weighted(np.array([np.nan]), 0.0), "finite targets"),
    ],
)
def test_values_outside_of_the_domain_are_refused(likelihood, stats, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check(stats)
