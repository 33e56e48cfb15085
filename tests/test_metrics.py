"""Scores against their definitions: numerical integration, simulation, and the limits they must reach."""

import numpy as np
import pytest
from scipy import integrate, stats

from nearfield.metrics import LEVELS, Scores, coverage, crps, nll, rmse

DISTS = {
    "normal": stats.norm(0.3, 1.7),
    "t_2.05": stats.t(2.05, 0.3, 1.7),
    "t_4": stats.t(4.0, -2.0, 0.2),
    "t_50": stats.t(50.0, 0.0, 3.0),
    "t_1e6": stats.t(1e6, 0.3, 1.7),
}


def crps_by_definition(y, dist):
    """Integral of (F(x) - 1[x >= y])^2 dx; by reflection each side is an integral of a squared tail."""
    below = integrate.quad(lambda x: dist.cdf(x) ** 2, -np.inf, y, epsabs=1e-12, epsrel=1e-10, limit=500)[0]
    above = integrate.quad(lambda x: dist.sf(x) ** 2, y, np.inf, epsabs=1e-12, epsrel=1e-10, limit=500)[0]
    return below + above


def some_rows(n=400, seed=0):
    """Observed values with a t prediction of different centre, scale and df for each row."""
    rng = np.random.default_rng(seed)
    dist = stats.t(rng.uniform(2.05, 30, n), rng.normal(size=n), rng.uniform(0.1, 3, n))
    return dist.rvs(random_state=rng), dist


@pytest.mark.parametrize("dist", DISTS.values(), ids=DISTS.keys())
@pytest.mark.parametrize("quantile", [0.001, 0.3, 0.5, 0.99])
def test_crps_is_the_integral_of_its_definition(dist, quantile):
    y = dist.ppf(quantile)
    assert crps([y], dist) == pytest.approx(crps_by_definition(y, dist), rel=1e-7)


@pytest.mark.parametrize("dist", DISTS.values(), ids=DISTS.keys())
def test_crps_is_the_energy_form_of_a_simulation(dist):
    y = dist.ppf(0.8)
    draws, others = dist.rvs((2, 200_000), random_state=1)
    gains = np.abs(draws - y) - np.abs(draws - others) / 2
    error = gains.std() / np.sqrt(gains.size)
    assert crps([y], dist) == pytest.approx(gains.mean(), abs=4 * error)


def test_nll_of_a_normal_is_the_textbook_formula():
    y, loc, scale = np.array([0.0, 1.0, -3.0]), np.array([0.1, 0.9, 2.0]), np.array([0.5, 1.0, 4.0])
    expected = np.mean(0.5 * np.log(2 * np.pi * scale**2) + (y - loc) ** 2 / (2 * scale**2))
    assert nll(y, stats.norm(loc, scale)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("score", [nll, crps])
def test_t_tends_to_the_normal(score):
    rng = np.random.default_rng(3)
    y, loc, scale = rng.normal(size=50), rng.normal(size=50), rng.uniform(0.5, 2, 50)
    gaps = [abs(score(y, stats.t(df, loc, scale)) - score(y, stats.norm(loc, scale))) for df in (1e2, 1e4, 1e6, np.inf)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-5
    assert gaps[3] < 1e-12


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dist", DISTS.values(), ids=DISTS.keys())
def test_coverage_counts_rows_between_the_quantiles(level, dist):
    y = dist.rvs(5000, random_state=4)
    low, high = dist.interval(level)
    assert coverage(y, dist, level) == np.mean((low <= y) & (y <= high))
    assert coverage(y, dist, level) == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 5000))


def test_rmse_is_that_of_the_centre():
    assert rmse([1.0, 2.0, 6.0], [1.0, 0.0, 2.0]) == pytest.approx(np.sqrt(20 / 3))
    y, dist = some_rows()
    assert Scores.of(y, dist).as_dict()["rmse"] == pytest.approx(rmse(y, dist.args[1]), rel=1e-14)


def test_scores_are_the_functions_under_their_names():
    y, dist = some_rows()
    found = Scores.of(y, dist).as_dict()
    assert list(found) == ["n", "rmse", "nll", "crps", "coverage_50", "coverage_90", "coverage_95"]
    assert found["n"] == y.size
    assert found["nll"] == pytest.approx(nll(y, dist), rel=1e-13)
    assert found["crps"] == pytest.approx(crps(y, dist), rel=1e-13)
    assert [found[f"coverage_{c}"] for c in (50, 90, 95)] == [coverage(y, dist, level) for level in LEVELS]


def test_blocks_add_up_to_the_whole():
    y, dist = some_rows()
    cuts = np.split(np.arange(y.size), [1, 40, 333])
    blocks = (Scores.of(y[i], stats.t(*(p[i] for p in dist.args))) for i in cuts)
    assert sum(blocks, start=Scores()).as_dict() == pytest.approx(Scores.of(y, dist).as_dict(), rel=1e-12)


def test_parameters_may_be_given_by_name_or_shared_by_rows():
    y = np.array([0.2, -1.0, 3.0])
    by_name = stats.t(loc=np.zeros(3), scale=2.0, df=np.full(3, 4.0))
    assert Scores.of(y, by_name) == Scores.of(y, stats.t(4.0, 0.0, 2.0))
    assert Scores.of(y, stats.norm()) == Scores.of(y, stats.norm(np.zeros(3), np.ones(3)))


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_proper_scores_prefer_the_true_spread(factor):
    y = stats.norm(0.0, 1.0).rvs(20_000, random_state=5)
    assert nll(y, stats.norm(0.0, 1.0)) < nll(y, stats.norm(0.0, factor))
    assert crps(y, stats.norm(0.0, 1.0)) < crps(y, stats.norm(0.0, factor))


@pytest.mark.parametrize(
    ("y", "dist", "message"),
    [
        (np.zeros(3), stats.norm(np.zeros(4), 1.0), r"shape \(3,\), the prediction \(4,\)"),
        (np.zeros(3), stats.norm(np.zeros((3, 1)), 1.0), r"the prediction \(3, 1\)"),
        (np.zeros((3, 1)), stats.norm(np.zeros((3, 1)), 1.0), "one dimension"),
        (np.zeros(0), stats.norm(np.zeros(0), 1.0), "at least one row"),
        (np.array([0.0, np.nan]), stats.norm(), "1 missing or infinite values of 2"),
        (np.zeros(2), stats.norm(0.0, np.array([1.0, 0.0])), "scale > 0"),
        (np.zeros(2), stats.norm(np.array([0.0, np.nan]), 1.0), "finite loc"),
        (np.zeros(2), stats.t(0.9), "df > 1"),
        (np.zeros(2), stats.laplace(), "'laplace'"),
        (np.zeros(2), np.zeros(2), "'ndarray'"),
    ],
)
def test_misuse_is_named(y, dist, message):
    for score in (nll, crps, Scores.of, lambda y, dist: coverage(y, dist, 0.9)):
        with pytest.raises(ValueError, match=message):
            score(y, dist)


def test_rmse_coverage_and_empty_scores_refuse_nonsense():
    with pytest.raises(ValueError, match=r"the prediction \(3,\)"):
        rmse(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="level is 90"):
        coverage(np.zeros(2), stats.norm(), 90)
    with pytest.raises(ValueError, match="No rows"):
        Scores().as_dict()
