"""Count distributions against scipy without latent spread, and against brute-force integrals and sums with it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import betainc, expit, log_expit

from nearfield.counts import LARGEST_COUNT, CountDistribution
from nearfield.marginals import posterior_mode

negative_binomial, binomial = CountDistribution.negative_binomial, CountDistribution.binomial

DISTS = {
    "nb_few": negative_binomial([0.3], [0.4], 1.5),
    "nb_sharp_likelihood": negative_binomial([-2.0], [1.0], 100.0),
    "nb_sparse": negative_binomial([2.0], [0.2], 0.05),
    "nb_long": negative_binomial([6.0], [0.09], 3.0),
    "nb_nearly_poisson": negative_binomial([np.log(200 / 1e6)], [0.25], 1e6),
    "nb_surely_narrow": negative_binomial([4.0], [1e-6], 50.0),
    "binomial_few": binomial([0.5], [2.0], 7),
    "binomial_many": binomial([-1.0], [0.3], 2000),
    "binomial_both_ends": binomial([0.0], [25.0], 3000),
    "binomial_narrow": binomial([2.0], [1e-4], 900),
}
each_dist = pytest.mark.parametrize("dist", DISTS.values(), ids=DISTS.keys())


def cdf_by_quadrature(dist, x):
    """P(count <= x) of a distribution of one row, by a fine grid over the latent value."""
    mean, std = dist.latent_mean[0], dist.latent_std[0]
    f = np.linspace(mean - 9 * std, mean + 9 * std, 40_001)
    failures = dist.family.failures(np.array([x]))[0]
    if failures == 0:  # x is all there can be; older versions of SciPy know no betainc(0, ...)
        return 1.0
    return np.sum(stats.norm.pdf(f, mean, std) * betainc(failures, x + 1, expit(-f))) * (f[1] - f[0])


def crps_by_definition(dist, y):
    x = np.arange(max(dist.ppf(1 - 1e-8)[0], y) + 1)
    return np.sum((dist.cdf(x[:, None])[:, 0] - (x >= y)) ** 2)


@pytest.mark.parametrize("variance", [0.0, 1e-12])
def test_without_spread_they_are_those_of_scipy(variance):
    f, q = np.linspace(-6, 4, 41), np.array([[0.01], [0.3], [0.5], [0.977]])
    x = np.array([[0.0], [1.0], [7.0], [40.0], [1000.0], [2.5], [-1.0]])
    pairs = [(negative_binomial(f, variance, r), stats.nbinom(r, expit(-f))) for r in (0.3, 2.0, 80.0)]
    pairs += [(binomial(f, variance, n), stats.binom(n, expit(f))) for n in (0, 1, 12, 3000)]
    for found, expected in pairs:
        np.testing.assert_allclose(found.cdf(x), expected.cdf(x), atol=1e-6)
        np.testing.assert_allclose(found.pmf(x), expected.pmf(x), rtol=1e-4, atol=1e-12)
        assert np.mean(found.ppf(q) == expected.ppf(q)) > 0.99  # ties are for rounding to decide
        np.testing.assert_allclose(found.mean(), expected.mean(), rtol=1e-6)
        np.testing.assert_allclose(found.std(), expected.std(), rtol=1e-5)


def test_impossible_counts_have_no_probability():
    for dist in (negative_binomial([0.0], [1.0], 2.0), binomial([0.0], [1.0], 4)):
        assert np.all(dist.logpmf([[-1.0], [0.5], [np.inf]]) == -np.inf)
        assert np.all(dist.cdf([[-1.0], [-0.5]]) == 0)
    assert dist.logpmf(5) == -np.inf
    assert dist.cdf(4) == 1


def test_large_dispersion_is_poisson():
    rate = np.array([0.1, 3.0, 50.0])
    dist, x = negative_binomial(np.log(rate / 1e9), 0.0, 1e9), np.arange(80.0)[:, None]
    np.testing.assert_allclose(dist.pmf(x), stats.poisson(rate).pmf(x), rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(dist.cdf(x), stats.poisson(rate).cdf(x), atol=1e-6)


def test_one_trial_is_bernoulli():
    mean, variance = np.array([-3.0, 0.0, 0.7, 5.0]), np.array([0.1, 1.0, 9.0, 4.0])
    p = [integrate.quad(lambda z, m=m, v=v: expit(m + np.sqrt(v) * z) * stats.norm.pdf(z), -9, 9)[0]
         for m, v in zip(mean, variance, strict=True)]  # fmt: skip
    dist, p = binomial(mean, variance, 1), np.array(p)
    np.testing.assert_allclose(dist.pmf(1), p, rtol=1e-6)
    np.testing.assert_allclose(dist.pmf(0), 1 - p, rtol=1e-6)
    np.testing.assert_allclose(dist.mean(), p, rtol=1e-6)
    np.testing.assert_allclose(dist.var(), p * (1 - p), rtol=1e-6)
    np.testing.assert_allclose(dist.crps_rows(np.ones(4)), (1 - p) ** 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("mean", "variance", "r", "y"),
    [(0.0, 4.0, 100.0, 3), (0.0, 4.0, 100.0, 4000), (10.0, 1.0, 50.0, 10**6), (1.0, 0.2, 0.1, 0), (-2.0, 25.0, 2.0, 0)],
)
def test_log_probability_is_the_integral_over_the_latent(mean, variance, r, y):
    std, coefficient = np.sqrt(variance), stats.nbinom(r, 0.5).logpmf(y) - (y + r) * np.log(0.5)
    mode = posterior_mode(float(y), r, mean, std)

    def log_integrand(z):
        return y * log_expit(mean + std * z) + r * log_expit(-mean - std * z) + stats.norm.logpdf(z)

    peak = log_integrand(mode)
    value = sum(
        integrate.quad(
            lambda z: np.exp(log_integrand(z) - peak), *ends, limit=500, epsabs=1e-12, epsrel=1e-9, points=inner
        )[0]
        for ends, inner in (((mode - 9, mode), [mode - 0.05]), ((mode, mode + 9), [mode + 0.05]))
    )
    expected = coefficient + peak + np.log(value)
    assert negative_binomial([mean], [variance], r).logpmf(y)[0] == pytest.approx(expected, abs=2e-6)


@each_dist
def test_cdf_is_the_integral_over_the_latent(dist):
    for q in (0.001, 0.2, 0.5, 0.9, 0.999):
        x = dist.ppf(q)[0]
        assert dist.cdf(x)[0] == pytest.approx(min(cdf_by_quadrature(dist, x), 1.0), abs=1e-6)


@each_dist
def test_probabilities_add_up_to_the_cdf_and_give_the_moments(dist):
    x = np.arange(dist.ppf(1 - 1e-8)[0] + 1)
    p = dist.pmf(x[:, None])[:, 0]
    np.testing.assert_allclose(np.cumsum(p), dist.cdf(x[:, None])[:, 0], atol=1e-5)
    assert p.sum() == pytest.approx(1, abs=1e-5)
    assert dist.mean()[0] == pytest.approx(p @ x, rel=1e-4)
    assert dist.std()[0] == pytest.approx(np.sqrt(p @ (x - p @ x) ** 2), rel=3e-3)  # the sum lacks the last 1e-8


@settings(max_examples=60, deadline=None)
@given(
    mean=st.floats(-8, 8),
    variance=st.floats(0, 9),
    r=st.floats(0.01, 1e4),
    trials=st.integers(0, 10**6),
    q=st.floats(1e-6, 1 - 1e-6),
)
def test_the_quantile_is_the_first_count_that_reaches_the_probability(mean, variance, r, trials, q):
    for dist in (negative_binomial([mean], [variance], r), binomial([mean], [variance], trials)):
        x = dist.ppf(q)
        assert dist.cdf(x)[0] >= q
        assert x[0] == 0 or x[0] == LARGEST_COUNT or dist.cdf(x - 1)[0] < q


@each_dist
def test_crps_is_the_sum_of_its_definition(dist):
    for q in (0.01, 0.5, 0.9, 0.9999):
        y = dist.ppf(q)
        assert dist.crps_rows(y)[0] == pytest.approx(crps_by_definition(dist, y[0]), rel=2e-3)
    far = 3 * dist.ppf(0.9999) + 5
    if far[0] < dist.family.supremum[0]:
        assert dist.crps_rows(far)[0] == pytest.approx(crps_by_definition(dist, far[0]), rel=2e-3)


def test_crps_of_a_million_is_that_of_the_rate():
    dist = negative_binomial([10.0], [0.5], 50.0)
    y, (draws, others) = 1_000_000.0, dist.rvs((400_000, 1), random_state=0).reshape(2, -1)
    gains = np.abs(draws - y) - np.abs(draws - others) / 2
    assert dist.crps_rows([y])[0] == pytest.approx(gains.mean(), abs=4 * gains.std() / np.sqrt(gains.size))


@each_dist
def test_draws_follow_the_distribution(dist):
    draws = dist.rvs((20_000, 1), random_state=1)[:, 0]
    x = dist.ppf([[0.1], [0.5], [0.9]])
    assert np.mean(draws <= x, axis=1) == pytest.approx(dist.cdf(x)[:, 0], abs=0.015)


def test_shapes_are_those_of_scipy():
    dist = negative_binomial(np.zeros(3), 1.0, 2.0)
    assert dist.ppf(0.5).shape == dist.median().shape == dist.mean().shape == dist.rvs(random_state=0).shape == (3,)
    assert dist.ppf([[0.1], [0.9]]).shape == dist.cdf([[0], [1]]).shape == (2, 3)
    assert dist.ppf([0.1, 0.5, 0.9]).tolist() == [dist.ppf(q)[0] for q in (0.1, 0.5, 0.9)]
    assert [end.tolist() for end in dist.interval(0.8)] == dist.ppf([[0.1], [0.9]]).tolist()
    assert dist.ppf([[0], [1]]).tolist() == [[-1] * 3, [np.inf] * 3]
    assert binomial([0.0], [1.0], 5).ppf([[0], [1]]).tolist() == [[-1], [5]]


def moments_of_all_sizes(rows, seed):
    """Latent means and variances from nothing to far beyond sense, dispersions and trials alike."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=rows) * 10 ** rng.uniform(-1, 1.7, rows)
    variance = np.where(rng.random(rows) < 0.1, 0.0, 10 ** rng.uniform(-12, 2.5, rows))
    return mean, variance, 10 ** rng.uniform(-3, 6, rows), np.floor(10 ** rng.uniform(0, 6, rows)) - 1


def everything_of(dist, y):
    """Every figure of each row, (12, n)."""
    figures = [dist.logpmf(y), dist.cdf(y), *dist.ppf([[0.01], [0.5], [0.999]]), dist.crps_rows(y)]
    return np.array([*figures, *dist.interval(0.8), dist.mean(), dist.std(), dist.var(), dist.pmf(y + 1)])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", ["negative_binomial", "binomial"])
def test_bits_of_a_row_do_not_depend_on_its_company(kind, seed, monkeypatch):
    mean, variance, dispersion, trials = moments_of_all_sizes(60, seed)
    size = dispersion if kind == "negative_binomial" else trials

    def figures(rows, y):
        return everything_of(getattr(CountDistribution, kind)(mean[rows], variance[rows], size[rows]), y[rows])

    rows = np.arange(60)
    y = np.minimum(getattr(CountDistribution, kind)(mean, variance, size).rvs(random_state=seed), LARGEST_COUNT)
    together = figures(rows, y)
    assert np.isfinite(together[2:]).all()
    np.testing.assert_array_equal(figures(rows[::-1], y)[:, ::-1], together)
    np.testing.assert_array_equal(figures(rows[7:], y), together[:, 7:])
    np.testing.assert_array_equal(np.hstack([figures(rows[i : i + 1], y) for i in rows]), together)
    for block in (1, 7, 64):
        monkeypatch.setattr("nearfield.count_kinds._BLOCK", block)
        np.testing.assert_array_equal(figures(rows, y), together)


@pytest.mark.filterwarnings("error")
def test_extremes_are_numbers():
    extremes = itertools.product((-50.0, 0.0, 50.0), (0.0, 1e-12, 1.0, 100.0))
    mean, variance = np.array(list(extremes)).T
    dists = [negative_binomial(mean, variance, r) for r in (1e-3, 1.0, 1e6)]
    dists += [binomial(mean, variance, n) for n in (0, 1, 10**6)]
    for dist in dists:
        for y in (0, 1, 10**6):
            assert not np.isnan(dist.logpmf(y)).any()
            assert ((dist.cdf(y) >= 0) & (dist.cdf(y) <= 1)).all()
            if (y <= dist.family.supremum).all():
                assert np.isfinite(dist.crps_rows(np.full(mean.size, y))).all()
        for values in (dist.mean(), dist.std(), dist.var(), *dist.interval(0.999), dist.rvs(random_state=0)):
            assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: negative_binomial(np.zeros((2, 1)), 1.0, 1.0), r"\(2, 1\) and \(\); both \(n,\)"),
        (lambda: negative_binomial([0.0], [1.0, 2.0], 1.0), r"\(1,\) and \(2,\)"),
        (lambda: negative_binomial([0.0], [-1.0], 1.0), "variance >= 0"),
        (lambda: negative_binomial([np.nan], [1.0], 1.0), "finite mean"),
        (lambda: negative_binomial([0.0], [1.0], 0.0), "dispersion is 0.0"),
        (lambda: binomial([0.0], [1.0], 2.5), "trials is 2.5"),
        (lambda: binomial([0.0], [1.0], [2, 3]), r"trials is of shape \(2,\), from 2.0 to 3.0"),
        (lambda: binomial([0.0], [1.0], 2).ppf(90), "q is 90.0"),
        (lambda: binomial([0.0], [1.0], 2).crps_rows([3]), "impossible counts"),
        (lambda: binomial([0.0], [1.0], 2).crps_rows([1, 1]), r"y has shape \(2,\)"),
        (lambda: binomial([0.0], [1.0], 2).cdf([0, 1]), "last axis should be the 1 rows"),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
