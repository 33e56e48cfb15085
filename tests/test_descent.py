"""Training on all rows at once, and folds where rows are few, against brute force and finite differences."""

from __future__ import annotations

import warnings
from dataclasses import replace

import dense
import numpy as np
import pytest
from family_examples import CASES, case, model_of
from scipy.stats import multivariate_normal, norm

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, descent, folds, training
from nearfield.descent import Descent, Found, descend, joint_share, loosened, loss_of
from nearfield.families import taken
from nearfield.objectives import LEAVE_ONE_OUT, prior
from nearfield.training import Run, Schedule, restore, snapshot, train

EXACT = [which for which in CASES if not case(which, 5).family.state_learned]


@pytest.mark.parametrize("which", EXACT)
def test_slopes_of_the_loss_equal_finite_differences(which):
    model, rows = model_of(case(which, 25, weighted=True), mean="linear")
    _, slopes, _ = loss_of(model, rows)
    for name, by in slopes.items():
        for place in np.ndindex(by.shape):
            off = np.zeros(by.shape)
            off[place] = 1e-5
            high, low = (
                loss_of(model.with_parameters({**model.parameters, name: model.parameters[name] + sign * off}), rows)[0]
                for sign in (1, -1)
            )
            assert by[place] == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-7), name


def test_the_loss_is_a_mixture_of_left_out_rows_and_their_joint_density():
    given = case("gaussian:", 30)
    model, rows = model_of(given)
    targets, noises = dense.sites_of(model, given.observed, rows.state)
    left_out = []
    for i in range(30):
        kept = np.delete(np.arange(30), i)
        mean, covariance = dense.posterior(model, given.X[kept], targets[kept], noises[kept], given.X[i : i + 1])
        total = covariance[0, 0, 0] + np.exp(model.parameters["log_noise"]) + given.observed["known_noise"][i]
        left_out.append(norm(mean[0, 0], np.sqrt(total)).logpdf(given.observed["y"][i]))
    r = np.sqrt(5 * ((((given.X[:, None] - given.X) / np.exp(model.parameters["log_lengths"])) ** 2).sum(axis=-1)))
    K = model.scale2[0] * ((1 + r + r**2 / 3) * np.exp(-r) + 0) + np.diag(noises[:, 0])
    joint = multivariate_normal(np.full(30, model.parameters["mean"][0]), K).logpdf(targets[:, 0])
    share = joint_share(model, rows)
    assert share == pytest.approx(1 / (1 + 0.06**2))
    expected = -(1 - share) * np.mean(left_out) - share * joint / 30 + prior(model)[0] / 30
    assert loss_of(model, rows)[0] == pytest.approx(expected, rel=1e-9)
    assert joint_share(model, replace(rows, groups=np.arange(30))) == 0  # rows of a group are not independent


@pytest.mark.parametrize("which", ["gaussian:", "bernoulli:tied", "student_t:", "negative_binomial:curvature"])
def test_at_the_end_there_is_nothing_left_to_gain(which):
    model, rows = model_of(case(which, 60))
    found = descend(model, rows, 500)
    assert found.loss < loss_of(model, rows)[0]
    described = model.described()
    _, slopes, _ = loss_of(found.model, found.rows)
    for name, by in slopes.items():
        value, p = found.model.parameters[name], described[name]
        inside = (value > p.low + 1e-6) & (value < p.high - 1e-6)
        assert np.abs(np.where(inside, by, 0.0)).max(initial=0) < 1e-2, name


def test_what_a_sample_was_too_sure_of_is_loosened():
    lengths = np.array([0.0, 1.0, 12.0])
    p = loosened({"log_lengths": lengths, "log_noise": np.asarray(-30.0), "log_scale": np.array([5.0])})
    np.testing.assert_allclose(p["log_lengths"], [0.0, 1.0, np.log(30)])
    assert float(p["log_noise"]) > -10
    assert p["log_scale"][0] == 5.0


def test_a_sample_that_explains_little_is_left_and_the_race_is_run_alone():
    model, rows = model_of(case("gaussian:", 90))
    y = np.random.default_rng(0).standard_normal(90)  # nothing but noise
    rows = type(rows).of(model.family, rows.inputs, {**rows.observed, "y": y})
    run = Run(model, rows, LEAVE_ONE_OUT, np.random.default_rng(0))
    race = training.Race(training.Stage(1e-9, 20, 2))
    schedule = Schedule((Descent(40, 20, True), Descent(60, 20, doubtful=True), race), batch_size=30, refresh_every=2)
    kept = []
    train(run, schedule, lambda run: kept.append(snapshot(run)))
    for name, value in model.parameters.items():  # steps of no length
        np.testing.assert_allclose(run.model.parameters[name], value, atol=1e-6)
    assert run.progress.steps <= 20 + 2 * 2
    again = Run(model, rows, LEAVE_ONE_OUT, np.random.default_rng(7))
    restore(again, *kept[1])
    train(again, schedule)
    for name, value in run.model.parameters.items():
        assert np.array_equal(again.model.parameters[name], value)


def test_an_interrupted_descent_goes_on_with_the_same_bits():
    model, rows = model_of(case("gaussian:", 90))
    schedule = Schedule((Descent(30, 20, start=True), Descent(60, 20), Descent(90, 20)))
    whole = Run(model, rows, LEAVE_ONE_OUT, np.random.default_rng(3))
    kept = []
    train(whole, schedule, lambda run: kept.append(snapshot(run)))
    assert len(kept) == 3
    for taken_ in kept[:2]:
        again = Run(model, rows, LEAVE_ONE_OUT, np.random.default_rng(99))
        restore(again, *taken_)
        train(again, schedule)
        for name, value in whole.model.parameters.items():
            assert np.array_equal(value, again.model.parameters[name])
    assert whole.progress.steps <= schedule.most_steps


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "groups"])
@pytest.mark.parametrize("which", ["gaussian:", "one_against_all:tied"])
def test_folds_are_predicted_by_models_of_the_other_rows(which, grouped, monkeypatch):
    """Without any training in between: dense algebra with the rows of the other folds."""
    given = case(which, 41)
    model, rows = model_of(given)
    rows = replace(rows, groups=np.arange(41) // 3) if grouped else rows
    monkeypatch.setattr(folds, "descend", lambda model, rows, iterations: Found(model, rows, 0.0, 0, 0))
    moments, noise = folds.outer_moments(model, rows, np.random.default_rng(0))
    deal = np.random.default_rng(0).permutation(14 if grouped else 41) % 5
    fold = deal[rows.groups] if grouped else deal
    assert noise.shape[0] == len(rows.observations)
    lengths = model.parameters["log_lengths"]  # half of what sets columns apart is forgotten
    model = model.with_parameters({**model.parameters, "log_lengths": (lengths + lengths.mean()) / 2})
    for u in (0, 11, 40):
        own = rows.observations.row[u]
        kept = np.flatnonzero(fold != fold[own])
        targets, noises = dense.sites_of(model, taken(given.observed, kept), rows.state[kept])
        mean, covariance = dense.posterior(model, given.X[kept], targets, noises, given.X[own : own + 1])
        np.testing.assert_allclose(moments.mean[u, 0], mean[0], atol=1e-8)
        np.testing.assert_allclose(moments.variance[u, 0], np.diag(covariance[0]), atol=1e-8)


def test_rows_of_one_kind_have_no_folds():
    given = case("gaussian:", 20)
    given.observed["y"][:] = np.arange(20) == 3  # without the fold of this row there is nothing to learn
    given.observed["known_noise"][:] = 0.0
    model, rows = model_of(given)
    assert folds.outer_moments(model, rows, np.random.default_rng(0)) is None


def _awkward():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.sin(X[:, 0]) + X[:, 1]
    return {
        "one row": (X[:1], y[:1]),
        "two rows": (X[:2], y[:2]),
        "nine rows": (X[:9], y[:9]),
        "all targets equal": (X, np.full(40, 3.0)),
        "more columns than rows": (rng.standard_normal((12, 30)), y[:12]),
        "exact copies": (np.repeat(X[:20], 2, axis=0), np.repeat(y[:20], 2)),
        "equal inputs, other targets": (np.repeat(X[:20], 2, axis=0), y),
        "noise-free": (np.linspace(0, 1, 40)[:, None], np.linspace(0, 1, 40)),
        "huge": (X * 1e150, y * 1e150),
        "tiny": (X * 1e-150, y * 1e-150),
        "a column that is constant": (np.c_[X, np.ones(40)], y),
    }


@pytest.mark.parametrize("name", _awkward())
def test_awkward_tables_get_finite_answers_without_a_library_complaining(name):
    X, y = _awkward()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for own in ("rows are few", "have a near copy", "is constant", "contains the", "Every row is there"):
            warnings.filterwarnings("ignore", f".*{own}")
        model = GPRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X, return_std=True)
        low, high = model.predict_interval(X + X.std() * 0.01, coverage=0.9, uncertainty="latent")
        labels, counts = (y > np.median(y)).astype(int), np.round(10 * (y > np.median(y))).astype(int)
        if len(np.unique(labels)) == 2 and np.abs(y).max() < 1e3:
            assert np.isfinite(GPClassifier(random_state=0).fit(X, labels).predict_proba(X)).all()
            assert np.isfinite(GPCountRegressor(random_state=0).fit(X, counts).predict(X)).all()
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert (low <= high).all()


def test_columns_that_do_not_matter_end_without_influence():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(400)
    model = GPRegressor(random_state=0).fit(X, y)
    moved = X.copy()
    moved[:, 2:] = rng.standard_normal((400, 4))
    assert np.abs(model.predict(moved) - model.predict(X)).max() < 0.15
    truth = np.sin(2 * X[:, 0]) + X[:, 1]
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.05


def test_progress_is_judged_by_the_same_observations():
    model, rows = model_of(case("gaussian:", 60))
    run = Run(model, rows, LEAVE_ONE_OUT, np.random.default_rng(0))
    first, second = (training._judged(run, 20).values for _ in range(2))
    assert np.array_equal(first, second)
    assert not training._settled(first, first + 0.01, patience=0.0)
    assert training._settled(first, first + 0.001, patience=0.0)
    assert descent.STARTS
