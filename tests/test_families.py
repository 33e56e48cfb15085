"""Every family against dense algebra, brute force and its limits; most tests run over the whole registry."""

from __future__ import annotations

import json
import math

import dense
import numpy as np
import pytest
import scipy.special
import scipy.stats
from estimator_data import quick
from family_examples import CASES, EXAMPLES, Case, case, copies, covariances, integrated, model_of

from nearfield.covariances import Shared
from nearfield.families import FAMILIES, names_for, taken, tasks
from nearfield.families.classes import Bernoulli, OneAgainstAll
from nearfield.families.counts import Binomial, NegativeBinomial
from nearfield.families.gaussian import Gaussian
from nearfield.families.outputs import GaussianOutputs
from nearfield.families.student_t import StudentT
from nearfield.heads.classes import log_probabilities
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.persistence import ModelFileError
from nearfield.rows import Rows, join_equal
from nearfield.sweep import Sweeper
from nearfield.warps import Warps

SETTLING = [which for which in CASES if case(which, 5).family.state_size and not case(which, 5).family.state_learned]


def test_every_family_has_an_example():
    for name in FAMILIES:
        assert name in EXAMPLES, f"add an example of the family {name!r} to EXAMPLES in tests/family_examples.py"


def settled(model, rows, k=None):
    """The rows with their settled site state."""
    state, sweeps = Sweeper(model, rows).settled(len(rows) if k is None else k)
    assert sweeps < 20
    return rows.with_state(state)


def parameters_of(family, shift=0.1):
    """Values off the initial ones, of the right shapes."""
    rng = np.random.default_rng(3)
    return {name: p.initial + shift * rng.standard_normal(p.shape) for name, p in family.parameters.items()}


def moments_for(family, n, seed=2):
    """Means and variances (n, C) of latent functions."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, family.latents)), rng.uniform(0.1, 2.0, (n, family.latents))


def slope(function, values, step=1e-5):
    """Central differences of a function of an array, of its shape."""
    found = np.zeros(np.shape(values))
    for place in np.ndindex(found.shape):
        off = np.zeros(found.shape)
        off[place] = step
        found[place] = (function(values + off) - function(values - off)) / (2 * step)
    return found


def assert_slopes(ours, theirs):
    theirs = np.asarray(theirs)
    assert np.shape(ours) == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * (1e-2 + np.abs(theirs).max(initial=0)))


# --- sites ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_left_out_moments_equal_dense_algebra_with_the_sites(which):
    """Every observation as a measurement of its own, one of them deleted; rows of weight two or three among them."""
    given = case(which, 25, weighted=True)
    row, every = copies(given.observed)
    for word in covariances(given):
        model, rows = model_of(given, word)
        targets, noises = dense.sites_of(model, every, rows.state[row])
        swept = Sweeper(model, rows).left_out(np.arange(len(rows.observations)), np.array([len(rows)])).at(0)
        for u in (0, 7, len(rows.observations) - 1):
            own = rows.observations.take(np.array([u]))
            same = [i for i in np.flatnonzero(row == own.row[0]) if _same(taken(every, i), taken(own.observed, 0))]
            kept = np.delete(np.arange(len(row)), same[0])
            mean, covariance = dense.posterior(model, given.X[row[kept]], targets[kept], noises[kept], given.X[own.row])
            np.testing.assert_allclose(swept.mean[u], mean[0], atol=1e-8)
            np.testing.assert_allclose(swept.variance[u], np.diag(covariance[0]), atol=1e-8)
            there = np.isfinite(noises[kept]).sum(axis=0)
            np.testing.assert_allclose(np.broadcast_to(swept.size[u], there.shape), there, atol=1e-12)


def _same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("which", CASES)
def test_slopes_of_sites_equal_finite_differences(which):
    given = case(which, 12, weighted=True)
    family, p, rng = given.family, parameters_of(given.family), np.random.default_rng(0)
    ids = rng.integers(0, 12, (5, 4))
    observed = taken(given.observed, ids)
    state = family.initial_state(given.observed)[ids] + 0.1 * rng.random((5, 4, family.state_size))
    half_log = 0.1 * rng.standard_normal(family.kernel_scales)
    noises = 1 if family.shared_noise else family.latents
    by_targets, by_noises = rng.standard_normal((5, 4, family.latents)), rng.standard_normal((5, 4, noises))

    def drawn():
        return family.sampling(np.random.default_rng(7))

    def total(p, half_log, state):
        sites = drawn().sites(observed, state, p, np.exp(2 * half_log))
        assert sites.noises.shape[-1] == noises
        return np.sum(by_targets * sites.targets) + np.sum((by_noises * sites.noises)[np.isfinite(sites.noises)])

    one = drawn()
    there = np.isfinite(one.sites(observed, state, p, np.exp(2 * half_log)).noises)
    ours = one.site_slopes(observed, state, p, np.exp(2 * half_log), by_targets, np.where(there, by_noises, 0.0))
    assert_slopes(ours.log_scale, slope(lambda s: total(p, s, state), half_log))
    for name, value in p.items():
        theirs = slope(lambda x, name=name: total({**p, name: x}, half_log, state), value)
        assert_slopes(ours.parameters.get(name, np.zeros(np.shape(value))), theirs)
    assert (ours.state is not None) == family.state_learned
    if family.state_learned:
        assert_slopes(ours.state, slope(lambda s: total(p, half_log, s), state))


@pytest.mark.parametrize("which", CASES)
def test_slopes_of_the_penalty_equal_finite_differences(which):
    family = case(which, 5).family
    state = family.initial_state(case(which, 5).observed) + 0.2
    found = family.penalty(state)
    assert (found is None) == (not family.state_learned)
    if found is not None:
        assert_slopes(found[1], slope(lambda s: family.penalty(s)[0].sum(), state))


@pytest.mark.parametrize("which", CASES)
def test_noise_is_that_of_a_site_of_weight_one(which):
    """In one unit everywhere: sites relative to the kernel's variance, `noise` and `known_noise` not."""
    given = case(which, 12)
    family, p = given.family, parameters_of(given.family)
    scale2 = np.exp(0.3 * np.random.default_rng(0).standard_normal(family.kernel_scales))
    noise = family.noise(p, scale2)
    known = family.known_noise(given.observed)
    assert known.shape[0] == 12
    if "log_noise" not in p:
        assert not noise.any()
        assert not known.any()
    elif not family.state_size:
        sites = family.sites(given.observed, np.zeros((12, 0)), p, scale2)
        expected = np.broadcast_to((noise + known) / scale2, (12, family.latents))
        found = np.broadcast_to(sites.noises, expected.shape)
        there = np.isfinite(found)
        np.testing.assert_allclose(found[there], expected[there], rtol=1e-12)


@pytest.mark.parametrize("which", SETTLING)
def test_settled_sites_are_the_fixed_point_of_the_augmented_posterior(which):
    """Coordinate ascent on the dense posterior, written down on its own, ends at the same sites."""
    given = case(which, 25)
    for word in covariances(given):
        model, rows = model_of(given, word)
        rows = settled(model, rows)
        targets, noises = dense.sites_of(model, rows.observed, rows.state)
        t, v = targets, noises
        for _ in range(40):
            mean, covariance = dense.posterior(model, given.X, t, v, given.X)
            t, v = dense_sites(which, given, mean, np.diagonal(covariance, axis1=1, axis2=2), model)
        np.testing.assert_allclose(targets, t, rtol=0.02, atol=0.02)
        np.testing.assert_allclose(noises, v, rtol=0.05)  # settled to a thousandth on average


def dense_sites(which, given, m, S, model):
    """Sites (n, C) from the posterior moments (n, C) of all rows: by the formulas of Polson et al., of a Gamma mixture
    and of Laplace's approximation."""
    o, p = given.observed, model.parameters
    name, _, how = which.partition(":")
    if name == "student_t":
        df, s2, y = np.exp(p["log_df"]), np.exp(p["log_noise"]), o["y"][:, None]
        weight = (df + 1) / (df + ((y - m) ** 2 + S) / s2)
        return y, s2 / weight + o["known_noise"][:, None] + 1e-8 * model.scale2
    offset = np.zeros((len(m), 1))
    if name == "bernoulli":
        a, b = o["counts"][:, 1:], o["counts"].sum(axis=1, keepdims=True)
    elif name == "one_against_all":
        a, b = o["counts"], o["counts"].sum(axis=1, keepdims=True)
    elif name == "binomial":
        a, b = o["count"][:, None], o["trials"][:, None]
    else:
        r = np.exp(p["log_dispersion"])
        a, b, offset = o["count"][:, None], o["count"][:, None] + r, o["log_exposure"][:, None] - np.log(r)
    if how == "curvature":
        s = scipy.special.expit(m + offset)
        W = b * s * (1 - s)
        return m + (a - b * s) / W, 1 / W
    psi = np.sqrt((m + offset) ** 2 + S)
    omega = b * np.tanh(psi / 2) / (2 * psi)
    return (a - b / 2) / omega - offset, 1 / omega


@pytest.mark.parametrize("which", SETTLING)
def test_settling_some_rows_leaves_the_others(which):
    given = case(which)
    model, rows = model_of(given)
    before = rows.state.copy()
    state, _ = Sweeper(model, rows).settled(10, np.arange(30, 40))
    np.testing.assert_array_equal(state[:30], before[:30])
    assert (state[30:] != before[30:]).any()
    np.testing.assert_array_equal(rows.state, before)


def test_binomial_and_negative_binomial_modes_are_those_of_newton():
    """Settled curvature sites: the mode of the dense posterior by Newton's method on the log density itself."""
    for which in ("binomial:curvature", "negative_binomial:curvature"):
        given = case(which)
        model, rows = model_of(given)
        rows = settled(model, rows)
        mean = float(model.parameters["mean"][0])
        K = dense.prior(model, given.X, given.X)[:, 0, :, 0]
        o, b, offset = given.observed, given.observed.get("trials"), 0.0
        if b is None:
            r = float(np.exp(model.parameters["log_dispersion"]))
            b, offset = o["count"] + r, o["log_exposure"] - math.log(r)
        f = np.full(len(K), mean)
        for _ in range(50):
            s = scipy.special.expit(f + offset)
            gradient = o["count"] - b * s - np.linalg.solve(K, f - mean)
            f = f + np.linalg.solve(np.diag(b * s * (1 - s)) + np.linalg.inv(K), gradient)
        np.testing.assert_allclose(rows.state[:, 0], f, atol=5e-3)


# --- scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_scores_equal_quadrature(which):
    given = case(which, 12, weighted=True)
    family, p = given.family, parameters_of(given.family)
    observations = family.observations(given.observed)
    few = observations.take(np.arange(0, len(observations), 3))
    mean, variance = moments_for(family, len(few))
    score = family.score(few.observed, mean, variance, p)
    exact = [
        EXAMPLES[family.name].score(taken(few.observed, i), mean[i], variance[i], p) for i in range(len(few))
    ]  # fmt: skip
    np.testing.assert_allclose(score.value, exact, atol=1e-5)


@pytest.mark.parametrize("which", CASES)
def test_slopes_of_scores_equal_finite_differences(which):
    given = case(which, 8)
    family, p = given.family, parameters_of(given.family)
    observed = family.observations(given.observed).observed
    mean, variance = moments_for(family, len(next(iter(observed.values()))))
    found = family.score(observed, mean, variance, p)

    def total(mean, variance, p):
        return family.score(observed, mean, variance, p).value.sum()

    assert_slopes(found.by_mean, slope(lambda m: total(m, variance, p), mean))
    assert_slopes(found.by_variance, slope(lambda v: total(mean, v, p), variance))
    for name, value in p.items():
        theirs = slope(lambda x, name=name: total(mean, variance, {**p, name: x}), value)
        assert_slopes(found.by_parameters.get(name, np.zeros((1, *np.shape(value)))).sum(axis=0), theirs)


@pytest.mark.parametrize("which", CASES)
def test_what_is_said_of_a_row_does_not_depend_on_the_rows_beside_it(which):
    """Scores and states, to the bit."""
    given = case(which, 12, weighted=True)
    family, p = given.family, parameters_of(given.family)
    mean, variance = moments_for(family, 12)
    some = np.array([3, 8])
    together, apart = (
        family.score(taken(given.observed, rows), mean[rows], variance[rows], p) for rows in (np.arange(12), some)
    )
    for a, b in zip(together[:3], apart[:3], strict=True):
        np.testing.assert_array_equal(a[some], b)
    whole = family.updated_state(given.observed, mean, variance, p)
    part = family.updated_state(taken(given.observed, some), mean[some], variance[some], p)
    np.testing.assert_array_equal(whole[some], part)


@pytest.mark.parametrize(("m", "v"), [(0.3, 0.5), (-4.0, 9.0), (6.0, 0.5), (2.0, 100.0)])
@pytest.mark.parametrize(("y", "n"), [(0, 1), (1, 1), (3, 7), (990, 1000), (0, 10**6)])
def test_binomial_score_equals_quadrature(m, v, y, n):
    exact = integrated(lambda f: scipy.stats.binom(n, scipy.special.expit(f)).logpmf(y), m, v)
    assert one_score(Binomial(), m, v, count=y, trials=n) == pytest.approx(exact, abs=1e-5, rel=1e-6)


@pytest.mark.parametrize(("m", "v"), [(0.3, 0.5), (4.0, 0.1), (2.0, 4.0), (12.0, 0.2)])
@pytest.mark.parametrize("y", [0, 1, 55, 10**6])
@pytest.mark.parametrize("r", [0.5, 5.0, 300.0])
def test_negative_binomial_score_equals_quadrature(m, v, y, r):
    def log_likelihood(f):
        mu = 2.5 * np.exp(f)
        return scipy.stats.nbinom(r, r / (r + mu)).logpmf(y)

    exact = integrated(log_likelihood, m, v)
    p = {"log_dispersion": np.array(math.log(r))}
    ours = one_score(NegativeBinomial(), m, v, p, count=y, log_exposure=math.log(2.5))
    assert ours == pytest.approx(exact, abs=1e-5, rel=1e-6)


def one_score(family, m, v, parameters=None, **observed):
    """log p of one observation."""
    named = {name: np.array([value], dtype=float) for name, value in {"weight": 1.0, **observed}.items()}
    return float(family.score(named, np.array([[m]]), np.array([[v]]), parameters or {}).value[0])


@pytest.mark.parametrize("residual", [1e2, 1e4, 1e8])
def test_student_t_score_has_heavy_tails(residual):
    p = {"log_noise": np.array(0.0), "log_df": np.array(math.log(4.0))}
    ours = one_score(StudentT(), 0.0, 1e-10, p, y=residual, known_noise=0.0)
    assert ours == pytest.approx(scipy.stats.t(4).logpdf(residual), abs=1e-6)


@pytest.mark.parametrize(("m", "v"), [(0.3, 0.5), (4.0, 1e-4), (-2.0, 30.0)])
@pytest.mark.parametrize("df", [1.0, 2.5, 30.0, 1e5])
def test_student_t_score_equals_quadrature(m, v, df):
    p = {"log_noise": np.array(math.log(0.2)), "log_df": np.array(math.log(df))}
    exact = integrated(lambda f: scipy.stats.t(df, f, math.sqrt(0.2)).logpdf(1.0), m, v)
    assert one_score(StudentT(), m, v, p, y=1.0, known_noise=0.0) == pytest.approx(exact, abs=1e-6)


def test_class_probabilities_sum_to_one_and_are_the_left_out_predictive():
    rng = np.random.default_rng(0)
    m, v = rng.standard_normal((50, 4)), 9 * rng.random((50, 4))
    p = np.exp(log_probabilities(m, v))
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    each = np.array([[math.exp(integrated(scipy.special.log_expit, a, b)) for a, b in zip(m[i], v[i], strict=True)]
                     for i in range(3)])  # fmt: skip
    np.testing.assert_allclose(p[:3], each / each.sum(axis=1, keepdims=True), atol=1e-6)
    for label in range(4):
        observed = {"counts": np.tile(np.eye(4)[label], (50, 1))}
        np.testing.assert_allclose(OneAgainstAll(4).score(observed, m, v, {}).value, np.log(p[:, label]), atol=1e-12)


# --- limits ---------------------------------------------------------------------------------------------------------


def initial(family, X, observed, level=None, **parameters):
    """A model at its initial parameters but for these, and the rows."""
    covariance = Shared(find_kernel("rbf"), family.latents, Warps.none(X.shape[1]), family.kernel_scales)
    model = Model.initial(family, covariance, MEANS["constant"], level)
    return model.with_parameters({**model.parameters, **parameters}), Rows.of(family, X, observed)


def left_out_moments(model, rows):
    rows = settled(model, rows)
    return Sweeper(model, rows).left_out(np.arange(len(rows)), np.array([len(rows)])).at(0)


def test_one_trial_of_a_binomial_is_bernoulli():
    given = case("bernoulli:conjugate")
    y, ones = given.observed["counts"][:, 1], np.ones(40)
    binomial = {"count": y, "trials": ones, "weight": ones}
    level, scale = np.array([0.2]), np.array([math.log(3.0)])
    one, rows = initial(Bernoulli(2, "conjugate"), given.X, given.observed, level, log_scale=scale)
    two, rows_two = initial(Binomial("conjugate"), given.X, binomial, level, log_scale=scale)
    rows_two = rows_two.with_state(rows.state)  # they start elsewhere, and stop when they hardly move
    ours, theirs = left_out_moments(two, rows_two), left_out_moments(one, rows)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-10)
    np.testing.assert_allclose(ours.variance, theirs.variance, atol=1e-10)
    scores = (
        family.score(observed, ours.mean, ours.variance, {}).value
        for family, observed in ((two.family, binomial), (one.family, given.observed))
    )
    np.testing.assert_allclose(*scores, atol=1e-4)  # one is a mixture of probits, the other a sum over nodes


@pytest.mark.parametrize("how", ["tied", "conjugate"])
def test_two_classes_one_against_all_mirror_bernoulli(how):
    """Each of the two latent functions is the other's mirror image, and so are the probabilities before normalising."""
    given = case(f"bernoulli:{how}")
    level = Bernoulli(2).initial_mean(given.observed)
    one = left_out_moments(*initial(Bernoulli(2, how), given.X, given.observed, level))
    both = left_out_moments(*initial(OneAgainstAll(2, how), given.X, given.observed, np.r_[-level, level]))
    np.testing.assert_allclose(both.mean[:, 1:], one.mean, atol=1e-8)
    np.testing.assert_allclose(both.mean[:, :1], -one.mean, atol=1e-8)
    np.testing.assert_allclose(both.variance[:, :1], one.variance, atol=1e-8)
    p, q = (np.exp(log_probabilities(s.mean, s.variance)) for s in (one, both))
    np.testing.assert_allclose(p, q, atol=1e-6)  # p / (p + (1 - p)) = p


def test_student_t_with_many_degrees_of_freedom_is_gaussian():
    given = case("gaussian:")
    noise = np.array(math.log(0.1))
    plain, rows = initial(Gaussian(), given.X, given.observed, log_noise=noise)
    heavy, heavy_rows = initial(
        StudentT(), given.X, given.observed, log_noise=noise, log_df=np.array(math.log(1e6))
    )  # fmt: skip
    ours = left_out_moments(heavy, heavy_rows)
    theirs = Sweeper(plain, rows).left_out(np.arange(40), np.array([40])).at(0)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-4)
    scores = [m.family.score(given.observed, ours.mean, ours.variance, m.parameters).value for m in (heavy, plain)]
    np.testing.assert_allclose(*scores, atol=1e-4)


def test_negative_binomial_with_large_dispersion_is_poisson():
    p = {"log_dispersion": np.array(math.log(1e7))}
    for y, m in ((0, 0.5), (4, 1.0), (200, 5.0)):
        ours = one_score(NegativeBinomial(), m, 0.2, p, count=y, log_exposure=0.0)
        exact = integrated(lambda f, y=y: scipy.stats.poisson(np.exp(f)).logpmf(y), m, 0.2)
        assert ours == pytest.approx(exact, abs=2e-3)


def test_one_output_with_all_the_same_noise_is_gaussian():
    given = case("gaussian:")
    o = given.observed
    two = GaussianOutputs(2, one_scale=True)
    known = np.stack([o["known_noise"]] * 2, axis=1)
    both = two.observe(np.stack([o["y"], -o["y"]], axis=1), o["weight"], noise_variance=known)
    one = left_out_moments(*initial(Gaussian(), given.X, o))
    pair = left_out_moments(*initial(two.with_rows(both), given.X, both))
    for p, sign in ((0, 1), (1, -1)):
        np.testing.assert_allclose(pair.mean[:, p], sign * one.mean[:, 0], atol=1e-10)
        np.testing.assert_allclose(pair.variance[:, p], one.variance[:, 0], atol=1e-10)
        np.testing.assert_allclose(pair.quad[:, p], one.quad[:, 0], rtol=1e-10)


def test_log_normal_weights_without_spread_are_conjugate_ones():
    """A log-normal of no variance at the mean weight is the same site as the conjugate one of that weight."""
    given = case("one_against_all:conjugate", weighted=True)
    state = np.random.default_rng(0).uniform(0.1, 3, (40, 3))
    weight = np.tanh(state / 2) / (2 * state)
    narrow = np.concatenate([np.log(weight), np.full((40, 3), -20.0)], axis=1)
    scale2 = np.array([1.0, 2.0, 3.0])
    ours = OneAgainstAll(3, "lognormal").sampling(np.random.default_rng(0)).sites(given.observed, narrow, {}, scale2)
    theirs = OneAgainstAll(3, "conjugate").sites(given.observed, state, {}, scale2)
    np.testing.assert_allclose(ours.targets, theirs.targets, rtol=1e-6)
    np.testing.assert_allclose(ours.noises, theirs.noises, rtol=1e-6)


def test_probabilities_against_the_exact_posterior_on_ten_points():
    """The posterior of ten latent values by importance sampling from the prior, for a brute-force predictive."""
    rng = np.random.default_rng(1)
    X = np.linspace(-2, 2, 10)[:, None]
    labels = np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 1])
    family = Bernoulli(2, "conjugate")
    observed = family.observe(labels, np.ones(10))
    model = Model.initial(
        family, Shared(find_kernel("matern52"), 1, Warps.none(1), 1), MEANS["constant"], family.initial_mean(observed)
    )  # fmt: skip
    rows = settled(model, Rows.of(family, X, observed))
    new = np.array([[-1.5], [0.1], [1.7]])
    swept = Sweeper(model, rows).new(new, 10)
    p = np.exp(log_probabilities(swept.mean, swept.variance))[:, 1]
    every = np.concatenate([X, new])
    L = np.linalg.cholesky(dense.prior(model, every, every)[:, 0, :, 0] + 1e-9 * np.eye(13))
    f = model.parameters["mean"] + rng.standard_normal((300_000, 13)) @ L.T
    log_weight = scipy.special.log_expit(np.where(labels == 1, f[:, :10], -f[:, :10])).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    exact = (weight @ scipy.special.expit(f[:, 10:])) / weight.sum()
    np.testing.assert_allclose(p, exact, atol=0.04)  # the error of the mean-field approximation itself


# --- what is observed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_arrays_are_those_that_the_family_names(which):
    given = case(which, 12, weighted=True)
    family = given.family
    assert {name: values.shape[1:] for name, values in given.observed.items()} == dict(family.arrays)
    assert set(family.additive) <= set(family.arrays)
    family.check(given.observed)
    assert family.initial_state(given.observed).shape == (12, family.state_size)
    assert family.initial_mean(given.observed).shape == (family.latents,)
    family.check_state(family.initial_state(given.observed))


@pytest.mark.parametrize("which", CASES)
def test_observations_are_all_there_is_to_leave_out(which):
    """Counted one by one: the copies of an observation, the copies of its row, and what is left without it."""
    given = case(which, 12, weighted=True)
    family = given.family
    row, every = copies(given.observed)
    observations = family.observations(given.observed)
    assert observations.weights.sum() == len(row)
    np.testing.assert_array_equal(family.weight(given.observed), np.bincount(row))
    for u in range(len(observations)):
        own = taken(observations.observed, u)
        same = [i for i in np.flatnonzero(row == observations.row[u]) if _same(taken(every, i), own)]
        assert len(same) == observations.weights[u]
        assert observations.alone[u] == (np.sum(row == observations.row[u]) == 1)
    sizes = np.broadcast_to(family.sizes(given.observed), (12, family.latents))
    there = every.get("present", np.ones((len(row), family.latents)))
    expected = np.zeros((12, family.latents))
    np.add.at(expected, row, there)
    np.testing.assert_array_equal(sizes, expected)


@pytest.mark.parametrize("which", CASES)
def test_places_lead_from_given_rows_to_observations(which):
    given = case(which, 15)
    again = np.random.default_rng(0).integers(0, 15, 40)
    X, observed = given.X[again], taken(given.observed, again)
    joined = join_equal(given.family, X, observed)
    observations = given.family.observations(joined.observed)
    place = given.family.places(joined.row, observed, joined.observed)
    np.testing.assert_array_equal(observations.row[place], joined.row)
    for name, values in observed.items():
        np.testing.assert_array_equal(observations.observed[name][place], values)
    counted = np.bincount(place, minlength=len(observations))
    np.testing.assert_array_equal(counted, observations.weights)


@pytest.mark.parametrize("which", CASES)
def test_rows_that_are_all_alike_are_constant(which):
    given = case(which, 12)
    assert not given.family.constant(given.observed)
    alike = taken(given.observed, np.zeros(12, dtype=int))
    assert given.family.constant(alike)
    for name in given.family.additive:
        alike[name] = alike[name] * np.arange(1, 13).reshape(-1, *(1,) * (alike[name].ndim - 1))
    assert given.family.constant(alike)  # how often rows count teaches nothing


def test_outputs_that_are_constant_where_they_are_there_are_constant():
    family = GaussianOutputs(2)
    y = np.array([[1.0, np.nan], [1.0, 2.0], [np.nan, 2.0]])
    assert family.constant(family.observe(y, np.ones(3)))
    y[0, 0] = 0.0
    assert not family.constant(family.observe(y, np.ones(3)))


@pytest.mark.parametrize("how", ["curvature", "conjugate"])
def test_means_of_counts_start_at_the_overall_rate(how):
    o = case(f"binomial:{how}", 200, weighted=True).observed
    share = o["weight"] @ o["count"] / (o["weight"] @ o["trials"])
    assert scipy.special.expit(Binomial(how).initial_mean(o)[0]) == pytest.approx(share, abs=0.01)
    o = case(f"negative_binomial:{how}", 200, weighted=True).observed
    rate = o["weight"] @ o["count"] / (o["weight"] @ np.exp(o["log_exposure"]))
    assert np.exp(NegativeBinomial(how).initial_mean(o)[0]) == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize("word", ["own-gaps", "one_scale-gaps"])
def test_a_missing_output_is_a_mask(word):
    """Whatever stands in its place: not a bit of sites, moments, scores or slopes depends on it."""
    given = case(f"gaussian_outputs:{word}", weighted=True)
    o = given.observed
    other = {**o, "y": np.where(o["present"], o["y"], 1e6)}
    other["known_noise"] = np.where(o["present"], o["known_noise"], 3.0)
    for covariance in covariances(given):
        found = []
        for observed in (o, other):
            model, rows = model_of(given._replace(observed=o), covariance)
            rows = Rows.of(given.family, given.X, observed)
            swept = Sweeper(model, rows).left_out(np.arange(40), np.array([9])).at(0)
            score = given.family.score(observed, swept.mean, swept.variance, model.parameters)
            latent = model.latent(rows, given.X, Sweeper(model, rows).new_ids(given.X, 9), differentiate=True)
            by, _ = latent.slopes(score.by_mean, score.by_variance)
            found.append([swept.mean, swept.variance, swept.quad, swept.size, *score[:3], *by.values()])
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("outputs", ["shared", "independent", "lmc"])
def test_what_is_shared_is_a_property_of_the_family_not_of_the_batch(outputs):
    """With gaps in some rows only: rows predicted alone, whose neighbours may have none, and together, same bits."""
    rng = np.random.default_rng(0)
    X = np.linspace(-1, 1, 120)[:, None]
    Y = np.stack([np.sin(3 * X[:, 0]), X[:, 0] ** 2], axis=1) + 0.1 * rng.standard_normal((120, 2))
    Y[100:, 1] = np.nan  # the neighbours of most rows are complete
    model = quick(outputs=outputs, k=6).fit(X, Y)
    assert not model._fit.predictor.model.family.shared_noise
    together = model.predict(X, return_std=True)
    alone = [model.predict(x[None], return_std=True) for x in X]
    for place in (0, 1):
        np.testing.assert_array_equal(np.concatenate([one[place] for one in alone]), together[place])
    complete = quick(outputs=outputs, k=6).fit(X[:100], Y[:100])
    if outputs != "lmc":  # which may be given up for outputs apart
        assert complete._fit.predictor.model.family.shared_noise == (outputs == "shared")
    complete.update(X[100:], Y[100:])
    assert not complete._fit.predictor.model.family.shared_noise


@pytest.mark.parametrize(
    ("family", "observed", "message"),
    [
        (Binomial(), {"count": [3.0], "trials": [2.0], "weight": [1.0]}, "more successes than"),
        (Binomial(), {"count": [0.5], "trials": [2.0], "weight": [1.0]}, "no counts"),
        (Binomial(), {"count": [0.0], "trials": [0.0], "weight": [1.0]}, "no trials"),
        (NegativeBinomial(), {"count": [-1.0], "log_exposure": [0.0], "weight": [1.0]}, "no counts"),
        (NegativeBinomial(), {"count": [1.0], "log_exposure": [np.inf], "weight": [1.0]}, "exposure must be finite"),
        (OneAgainstAll(3), {"counts": np.ones((4, 2))}, "3 classes"),
        (Bernoulli(), {"counts": [[1.0, -1.0]]}, "2 classes"),
        (Gaussian(), {"y": [np.nan], "weight": [1.0], "known_noise": [0.0]}, "finite targets"),
        (Gaussian(), {"y": [1.0], "weight": [0.0], "known_noise": [0.0]}, "positive weights"),
        (StudentT(), {"y": [1.0], "weight": [1.0], "known_noise": [-1.0]}, "at least 0"),
        (
            GaussianOutputs(2),
            {"y": np.zeros((1, 2)), "present": np.ones((1, 2)), "weight": [1.0], "known_noise": np.zeros((1, 2))},
            "true or false",
        ),
    ],
)
def test_values_outside_of_the_domain_are_refused(family, observed, message):
    with pytest.raises(ValueError, match=message):
        family.check({name: np.asarray(values) for name, values in observed.items()})


def test_a_single_class_is_nothing_to_learn_from():
    assert Bernoulli().constant({"counts": np.array([[1.0, 0.0], [2.0, 0.0]])})
    assert not Bernoulli().constant({"counts": np.array([[1.0, 0.0], [0.0, 1.0]])})


def test_an_impossible_site_state_is_refused():
    with pytest.raises(ValueError, match="above zero"):
        StudentT().check_state(np.array([[1.0], [0.0]]))


# --- the registry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_a_family_comes_back_from_its_description(which):
    family = case(which, 5).family
    stored = json.loads(json.dumps({"name": family.name, **family.described()}))
    again = FAMILIES[stored["name"]].from_description(stored)
    assert type(again) is type(family)
    assert again.described() == family.described()
    for name in ("latents", "kernel_scales", "shared_noise", "state_size", "state_learned"):
        assert getattr(again, name) == getattr(family, name)
    assert dict(again.parameters) == dict(family.parameters)
    assert dict(again.arrays) == dict(family.arrays)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("bernoulli", {"classes": 3, "auxiliary": "tied"}),
        ("bernoulli", {"classes": 2, "auxiliary": "tight"}),
        ("one_against_all", {"classes": 1, "auxiliary": "tied"}),
        ("one_against_all", {"classes": 3}),
        ("binomial", {"auxiliary": "tied"}),
        ("negative_binomial", {}),
        ("gaussian_outputs", {"outputs": 1, "one_scale": True, "complete": True}),
        ("gaussian_outputs", {"outputs": 2, "one_scale": 1, "complete": True}),
    ],
)
def test_descriptions_that_make_no_sense_are_refused(name, stored):
    with pytest.raises(ModelFileError):
        FAMILIES[name].from_description(stored)


def test_the_registry_tells_estimators_and_tasks_their_families():
    assert names_for("GPRegressor", ("number",)) == ("gaussian", "student_t")
    assert names_for("GPRegressor", ("numbers",)) == ("gaussian_outputs",)
    assert names_for("GPCountRegressor", ("count",)) == ("binomial", "negative_binomial")
    assert {task: families[0].name for task, families in tasks().items()} == {
        "regression": "gaussian",
        "classification": "bernoulli",
        "binomial": "binomial",
        "counts": "negative_binomial",
    }


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.kind in ("number", "count")])
def test_a_baseline_has_the_mean_of_what_it_was_made_of(name):
    """And it is the best constant of its kind, or nearly: no factor makes its log density much larger."""
    rng = np.random.default_rng(0)
    family, trials = FAMILIES[name](), rng.integers(1, 9, 500).astype(float)
    exposure = rng.uniform(0.5, 2, 500)
    y = {
        "number": 3 + 2 * rng.standard_normal(500),
        "binomial": rng.binomial(trials.astype(int), 0.3).astype(float),
        "negative_binomial": rng.negative_binomial(3, 3 / (3 + 4 * exposure)).astype(float),
    }["number" if family.kind == "number" else name]
    given = {what: {"trials": trials, "exposure": exposure}[what] for what in family.given}
    numbers = family.baseline(y, given, np.ones(500))
    dist = family.baseline_distribution(numbers, 500, given)
    assert np.sum(dist.mean()) == pytest.approx(y.sum(), rel=0.01)
    score = family.scores.of(y, dist).as_dict()
    assert score["coverage_90"] > 0.85
    first = next(iter(numbers))
    for factor in (0.7, 1.4):
        other = family.baseline_distribution({**numbers, first: factor * numbers[first]}, 500, given)
        assert family.scores.of(y, other).as_dict()["nll"] > score["nll"]


def test_what_cannot_be_mixed_says_so():
    for name in FAMILIES:
        if FAMILIES[name].kind != "numbers":
            family = next(case(which, 5).family for which in CASES if which.startswith(f"{name}:"))
            with pytest.raises(NotImplementedError, match="only several real outputs"):
                family.apart()
            with pytest.raises(NotImplementedError, match="only several real outputs"):
                family.initial_mixing({}, 2)


@pytest.mark.parametrize("which", CASES)
def test_what_was_observed_has_its_values_back(which):
    """`values` undoes `observe`, and `given_of` undoes `given_arrays`."""
    given = case(which, 20)
    family, rng = given.family, np.random.default_rng(1)
    beside = {"exposure": rng.uniform(0.5, 2, 20), "trials": rng.integers(5, 9, 20).astype(float)}
    beside = {name: beside[name] for name in family.given}
    y = {
        "number": rng.standard_normal(20),
        "numbers": np.where(rng.random((20, 3)) < 0.3, np.nan, rng.standard_normal((20, 3))),
        "count": rng.integers(0, 5, 20).astype(float),
        "label": rng.integers(0, max(family.classes, 1), 20),
    }[family.kind]
    observed = family.observe(y, rng.uniform(0.5, 2, 20), **beside)
    assert set(observed) == set(family.arrays)
    family.check(observed)
    np.testing.assert_array_equal(family.values(observed), y)
    alone = family.given_arrays(20, **beside)
    for name, values in alone.items():
        np.testing.assert_array_equal(values, observed[name])
    for name, values in family.given_of(observed).items():
        np.testing.assert_allclose(values, beside[name], rtol=1e-14)


def test_cases_are_of_their_families():
    for which in CASES:
        given = case(which, 5)
        assert isinstance(given, Case)
        assert given.family.name == which.partition(":")[0]
