"""Objectives: slopes by finite differences, MLL-k and Vecchia's against dense algebra; groups left out together."""

from __future__ import annotations

import warnings

import dense
import numpy as np
import pytest
import scipy.stats
from estimator_data import load_forged, quick, small, through_file
from family_examples import CASES, case, covariances, model_of

from nearfield import ModelFileError
from nearfield.covariances import Shared
from nearfield.families.classes import Bernoulli
from nearfield.families.gaussian import Gaussian
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.neighbours import build_index
from nearfield.neighbours.copies import copied_share, near_copies
from nearfield.objectives import (
    OBJECTIVES,
    beside_prior,
    conditional_score,
    joint_score,
    prior,
    prior_weight,
    pulled_together,
    ranks,
)
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.training import _state_slopes
from nearfield.warps import Warps

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


# --- slopes ---------------------------------------------------------------------------------------------------------

STRUCTURES = [
    (which, word, kernel, mean)
    for which in CASES
    for word in covariances(case(which, 12))
    for kernel, mean in (("matern52", "linear"), ("rational_quadratic", "constant"))
]


def assert_slopes_equal_finite_differences(score, model, rows, left_out, ids):
    """Of the weighted sum of the scores, by every parameter and, where it is learned, by the site state."""
    rng = np.random.default_rng(1)
    weights = rng.random(len(left_out))

    def scored(parameters, rows=rows):
        drawn = model.family.sampling(np.random.default_rng(5))  # the same draws each time
        return score(Model(drawn, model.covariance, model.mean, parameters), rows, left_out, ids)

    def total(parameters, rows=rows):
        return weights @ scored(parameters, rows).values

    slopes, by_neighbours = scored(model.parameters).slopes(weights)
    assert set(slopes) >= set(model.parameters)
    for name, value in model.parameters.items():
        numeric = np.zeros(value.shape)
        for place in np.ndindex(value.shape):
            off = np.zeros(value.shape)
            off[place] = 1e-5
            up, down = ({**model.parameters, name: value + sign * off} for sign in (1, -1))
            numeric[place] = (total(up) - total(down)) / 2e-5
        assert np.shape(slopes[name]) == value.shape
        np.testing.assert_allclose(
            slopes[name], numeric, rtol=1e-6, atol=1e-6 * (1e-2 + np.abs(numeric).max(initial=0))
        )
    if model.family.state_learned:
        by_state = _state_slopes(rows, left_out, by_neighbours, np.zeros((len(left_out), rows.state.shape[1])))
        for _ in range(5):
            place = tuple(rng.integers(rows.state.shape))
            off = np.zeros(rows.state.shape)
            off[place] = 1e-5
            up, down = (total(model.parameters, rows.with_state(rows.state + sign * off)) for sign in (1, -1))
            assert by_state[place] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(("which", "covariance", "kernel", "mean"), STRUCTURES)
def test_slopes_of_leaving_out_equal_finite_differences(which, covariance, kernel, mean):
    given = case(which, 30, weighted=True)
    model, rows = model_of(given, covariance, kernel, mean)
    every = np.arange(len(rows.observations))
    ids = Sweeper(model, rows).left_out_ids(every, 8)
    assert_slopes_equal_finite_differences(conditional_score, model, rows, rows.observations, ids)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("mean", MEANS)
def test_slopes_of_every_objective_equal_finite_differences(objective, mean):
    model, rows = model_of(case("gaussian:", 30, weighted=True), "shared", "rational_quadratic", mean)
    own = OBJECTIVES[objective](lambda: ranks("random", rows.inputs, np.random.default_rng(0)))
    ids = own.table(Sweeper(model, rows), np.arange(30), 8)
    assert_slopes_equal_finite_differences(own.score, model, rows, rows.observations, ids)


BENT = [
    ("gaussian:", "shared", "loo"),
    ("gaussian:", "shared", "mll"),
    ("gaussian:", "shared", "vecchia"),
    *((which, word, "loo") for which in CASES for word in covariances(case(which, 12)) if word != "shared"),
]


@pytest.mark.parametrize(("which", "covariance", "objective"), BENT)
def test_slopes_of_bent_columns_equal_finite_differences(which, covariance, objective):
    """Of one column that is bent beside one that is not, with a kernel whose smoothness is learned."""
    model, rows = bent_model(case(which, 30, weighted=True), covariance)
    own = OBJECTIVES[objective](lambda: ranks("random", rows.inputs, np.random.default_rng(0)))
    ids = own.table(Sweeper(model, rows), np.arange(len(rows.observations)), 8)
    assert_slopes_equal_finite_differences(own.score, model, rows, rows.observations, ids)


def bent_model(given, word="shared"):
    """As `model_of`, but the first column is bent."""
    plain, rows = model_of(given, word, "auto", "linear")
    own, rng = plain.covariance, np.random.default_rng(2)
    warps = Warps.of(rows.inputs, np.ones(len(rows)), np.array([True, False]))
    last = own.start if word == "mixed" else own.scales
    covariance = type(own)(own.kernel, own.latents, warps, last)
    parameters = {**plain.parameters, "bends": rng.standard_normal((1, 2))}
    return Model(plain.family, covariance, plain.mean, parameters), rows


@pytest.mark.parametrize(("which", "covariance", "objective"), BENT)
def test_scores_of_bent_columns_are_those_of_bent_inputs(which, covariance, objective):
    model, rows = bent_model(case(which, 30, weighted=True), covariance)
    inputs = dense.bent(model, rows.inputs)
    assert not np.array_equal(inputs[:, 0], rows.inputs[:, 0])
    straight = type(model.covariance)(
        model.covariance.kernel, model.covariance.latents, Warps.none(2), getattr(model.covariance, "start", 1)
    )
    parameters = {name: value for name, value in model.parameters.items() if name != "bends"}
    parameters["mean_slopes"] = np.zeros_like(parameters["mean_slopes"])  # the mean does not see what is bent
    model = model.with_parameters({**model.parameters, "mean_slopes": parameters["mean_slopes"]})
    own = OBJECTIVES[objective](lambda: ranks("random", rows.inputs, np.random.default_rng(0)))
    ids = own.table(Sweeper(model, rows), np.arange(len(rows.observations)), 8)
    by_hand = Rows(inputs, rows.observed, rows.state, rows.observations)
    draws = [model.family.sampling(np.random.default_rng(5)) for _ in range(2)]
    found = own.score(Model(draws[0], model.covariance, model.mean, model.parameters), rows, rows.observations, ids)
    expected = own.score(Model(draws[1], straight, model.mean, parameters), by_hand, rows.observations, ids)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-9)


# --- priors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (3, 5), (1,)])
def test_the_slope_of_what_pulls_together_equals_finite_differences(shape):
    values, spread = np.random.default_rng(0).standard_normal(shape), 0.3
    _, by = pulled_together(values, spread)
    for place in np.ndindex(shape):
        ends = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * 1e-6
            ends.append(pulled_together(moved, spread)[0])
        assert by[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-6)


def test_what_pulls_together_is_normal_near_the_mean_and_bounded_far_from_it():
    near = np.array([-1e-4, 1e-4])
    value, _ = pulled_together(near, 0.3)
    assert pulled_together(2 * near, 0.3)[0] == pytest.approx(4 * value, rel=1e-5)
    assert pulled_together(near, 0.6)[0] == pytest.approx(value / 4, rel=1e-5)
    most, slope = pulled_together(np.array([-1e8, 1e8]), 0.3)
    further, _ = pulled_together(np.array([-1e9, 1e9]), 0.3)
    assert further == pytest.approx(most, rel=1e-9)
    assert np.abs(slope).max() < 1e-9
    assert pulled_together(np.full((2, 4), 7.0), 0.3)[0] == 0
    alone = [pulled_together(row, 0.3)[0] for row in np.arange(6.0).reshape(2, 3) ** 2]
    assert pulled_together(np.arange(6.0).reshape(2, 3) ** 2, 0.3)[0] == pytest.approx(sum(alone), rel=1e-12)


@pytest.mark.parametrize("which", ["gaussian:", "bernoulli:conjugate"])
def test_priors_pull_length_scales_and_bends_together_where_they_shall(which):
    given = case(which, 30)
    model, rows = bent_model(given)
    both = Warps.of(rows.inputs, np.ones(len(rows)), np.ones(2, dtype=bool))
    own, scales = model.covariance, model.covariance.scales
    bends = np.array([[0.5, -1.0], [-2.0, 0.3]])
    found = {}
    for shrinks in (True, False):
        covariance = Shared(own.kernel, own.latents, both, scales, shrinks)
        found[shrinks] = prior(Model(model.family, covariance, model.mean, {**model.parameters, "bends": bends}))
    (value, slopes), (less, others) = found[True], found[False]
    assert value > less
    assert {"log_lengths", "bends"} <= set(slopes)
    assert not {"log_lengths", "bends"} & set(others)
    assert slopes["log_lengths"].shape == model.parameters["log_lengths"].shape
    off = bends - bends.mean(axis=0)
    assert (np.sign(slopes["bends"]) == np.sign(off)).all()


# --- marginal likelihoods -------------------------------------------------------------------------------------------


def univariate(X, y):
    rows = Rows.of(Gaussian(), X, Gaussian().observe(y, np.ones(len(y))))
    covariance = Shared(find_kernel("matern52"), 1, Warps.none(X.shape[1]), 1)
    return Model.initial(Gaussian(), covariance, MEANS["constant"]), rows


def dense_of(model, X):
    return dense.prior(model, X, X)[:, 0, :, 0] + model.noise * np.eye(len(X))


def test_mll_of_all_rows_is_the_exact_marginal_likelihood():
    X, y = small(30)
    model, rows = univariate(X, y)
    ids = Sweeper(model, rows).own_ids(np.arange(30), 30)
    assert (np.sort(ids, axis=1) == np.arange(30)).all()
    exact = scipy.stats.multivariate_normal(np.zeros(30), dense_of(model, X)).logpdf(y)
    np.testing.assert_allclose(30 * joint_score(model, rows, rows.observations, ids).values, exact, atol=1e-8)


@pytest.mark.parametrize("name", ["random", "pca"])
def test_vecchia_with_all_rows_before_is_the_exact_marginal_likelihood(name):
    X, y = small(30)
    model, rows = univariate(X, y)
    rank = ranks(name, X, np.random.default_rng(0))
    ids = Sweeper(model, rows).earlier_ids(np.arange(30), 29, rank)
    scores = conditional_score(model, rows, rows.observations, ids).values
    exact = scipy.stats.multivariate_normal(np.zeros(30), dense_of(model, X)).logpdf(y)
    assert scores.sum() == pytest.approx(exact, abs=1e-5)  # but for the floor of the noise


def test_the_paper_orders_along_the_first_principal_component():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3)) * [1, 5, 1]
    rank = ranks("pca", X, rng)
    assert abs(scipy.stats.spearmanr(rank, X[:, 1]).statistic) > 0.95
    np.testing.assert_array_equal(np.sort(ranks("random", X, rng)), np.arange(50))


@pytest.mark.parametrize("objective", ["mll", "vecchia"])
def test_whole_fits_learn(objective):
    X, y = small(400)
    model = quick(objective=objective, max_steps=60, k=16).fit(X[:300], y[:300])
    assert np.sqrt(np.mean((model.predict(X[300:]) - y[300:]) ** 2)) < 0.25
    for arguments, target in (({"likelihood": "student_t"}, y), ({}, np.stack([y, y], axis=1))):
        with pytest.raises(ValueError, match="one output with Gaussian noise"):
            quick(objective=objective, **arguments).fit(X, target)


# --- groups ---------------------------------------------------------------------------------------------------------


def replicated(n=150, copies=2, noise=0.01, seed=0):
    X, y = small(n, seed=seed)
    rng = np.random.default_rng(seed + 1)
    again = np.tile(np.arange(n), copies)
    return (
        X[again] + noise * rng.standard_normal((n * copies, 3)),
        y[again] + noise * rng.standard_normal(n * copies),
        again,
    )


@pytest.mark.parametrize("copies", [2, 3])
def test_near_copies_are_found(copies):
    X, _, labels = replicated(copies=copies)
    found = near_copies(build_index(X), X).labels
    same = found[:, None] == found[None]
    assert (same == (labels[:, None] == labels[None])).mean() > 0.999
    assert copied_share(build_index(X), X[::3], np.arange(0, len(X), 3))[0] > 0.9


def test_rows_at_random_and_equal_rows_are_no_copies():
    rng = np.random.default_rng(0)
    for X in (rng.random((300, 1)), rng.random((300, 5)), np.repeat(rng.random((50, 3)), 6, axis=0)):
        assert copied_share(build_index(X), X, np.arange(len(X)))[0] < 0.4
    assert (np.bincount(near_copies(build_index(X), X).labels) == 1).all()
    for n in (1, 2, 3):
        assert len(near_copies(build_index(X[:n]), X[:n]).labels) == n


def test_a_row_is_left_out_with_its_group():
    X, y, labels = replicated(30)
    model = quick(predictive="plain").fit(X, y, groups=labels)
    inner, rows = model._fit.predictor.model, model._fit.predictor.rows
    targets, noises = dense.sites_of(inner, rows.observed, rows.state)
    assert (noises > 0).all()
    for i in (0, 11):
        others = labels != labels[i]
        mean, _ = dense.posterior(inner, rows.inputs[others], targets[others], noises[others], rows.inputs[i : i + 1])
        assert model.loo_.mean[i] == pytest.approx(float(model._target.undo(mean[0, 0])), abs=1e-8)


def test_groups_save_a_fit_of_replicates(tmp_path):
    """Replicates make rows look sure of themselves; left out together, they are as good as the rows alone."""
    X, y, labels = replicated(200)
    X_new, y_new = small(400, seed=5)
    score = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, groups in (("none", None), ("auto", "auto"), ("given", labels)):
            model = quick(max_steps=60).fit(X, y, groups=groups)
            score[name] = model.log_score(X_new, y_new)
        score["alone"] = quick(max_steps=60).fit(X[:200], y[:200]).log_score(X_new, y_new)
    assert score["auto"] == pytest.approx(score["given"], abs=0.02)
    assert score["given"] > score["alone"] - 0.1
    assert score["given"] > score["none"] + 0.1
    again = through_file(model, tmp_path)
    np.testing.assert_array_equal(again.loo_.mean, model.loo_.mean)
    before = model.loo_.mean
    model.update(X_new[:3], y_new[:3])
    assert len(model.loo_.mean) == len(before) + 3
    with pytest.raises(ModelFileError, match=r"'rows\.groups'"):
        load_forged(again, tmp_path, lambda sections, arrays: arrays.update({"rows.groups": np.zeros(3, np.int64)}))


def test_replicates_are_reported():
    X, y, _ = replicated(200)
    with pytest.warns(UserWarning, match='pass groups="auto"'):
        quick().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().fit(X, y, groups="auto")
        quick().fit(*small(200))


def test_mistakes_are_named():
    X, y = small(30)
    with pytest.raises(ValueError, match=r"groups has shape \(3,\)"):
        quick().fit(X, y, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="one label for all rows"):
        quick().fit(X, y, groups=np.zeros(30))
    with pytest.raises(ValueError, match="groups is 'twins'"):
        quick().fit(X, y, groups="twins")
    with pytest.raises(ValueError, match="objective is 'elbo'"):
        quick(objective="elbo").fit(X, y)
    with pytest.raises(ValueError, match="ordering is 'alphabet'"):
        quick(objective="vecchia", ordering="alphabet").fit(X, y)


def test_priors_do_not_outweigh_losses_that_vanish():
    X = np.zeros((1, 4))
    for family in (Bernoulli(), Gaussian()):
        model = Model.initial(family, Shared(find_kernel("auto"), 1, Warps.none(X.shape[1]), 1), MEANS["constant"])
        weights = [prior_weight(model, loss, 1000.0) for loss in (0.0, 1e-3, 2e-3, 4e-3, 1.0)]
        expected = [1e-3, 0.25, 0.5, 1.0, 1.0] if family.losses_vanish else [1.0] * 5
        np.testing.assert_allclose(weights, expected)
        for loss in (1e-3, 3e-3, 3.999e-3, 5e-3, 1.0):
            ends = [beside_prior(model, loss * (1 + off), 1000.0)[0] for off in (1e-5, -1e-5)]
            slope = beside_prior(model, loss, 1000.0)[1]
            assert (ends[0] - ends[1]) / (2e-5 * loss) == pytest.approx(slope, rel=1e-6)
            assert slope == pytest.approx(1 / prior_weight(model, loss, 1000.0))
