"""The choice of k and the head of a regression; standardisation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.optimize

from nearfield import GPRegressor, calibration, learner
from nearfield.calibration import (
    ALL_ROWS,
    FREE,
    MOST_NEIGHBOURS,
    all_rows,
    candidate_ks,
    choose_k,
    most_neighbours,
    trials,
)
from nearfield.heads.regression import (
    LeftOutNumbers,
    RegressionCalibrator,
    RegressionHead,
    fit_head,
    target_floor,
)
from nearfield.heads.regression import _negative_log_posterior as negative_log_posterior
from nearfield.metrics import LEVELS, coverage, crps
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper


def left_out_rows(n=2000, seed=0, kind="rough", k=32):
    """Left-out rows whose scale follows `quad` with exponent one ("rough"), is constant, or has heavy tails."""
    rng = np.random.default_rng(seed)
    rough = np.exp(rng.normal(0, 1, n)) if kind == "rough" else np.ones(n)
    quad = k * rough * rng.chisquare(k, n) / k
    scale = np.sqrt(0.05 * rough)
    draws = rng.standard_t(3, n) if kind == "heavy" else rng.standard_normal(n)
    near = 16 * rough * rng.chisquare(16, n) / 16
    moments = Moments(rng.standard_normal(n), np.full(n, 0.02), quad, np.full(n, float(k)), near, np.full(n, 16.0))
    return LeftOutNumbers(np.array([k]), moments, moments.mean + scale * draws, np.full(n, 0.03), np.ones(n))


def test_head_gradient_equals_finite_differences():
    rows = left_out_rows(300)
    for theta in np.random.default_rng(0).normal(0, 0.5, (5, 8)):
        exact = scipy.optimize.approx_fprime(theta, lambda t: negative_log_posterior(t, rows, 0.01)[0], 1e-7)
        np.testing.assert_allclose(negative_log_posterior(theta, rows, 0.01)[1], exact, atol=1e-5)


def test_head_finds_varying_scale_and_heavy_tails():
    rough = fit_head(left_out_rows(kind="rough"), 1e-4)
    assert rough.roughness + rough.near_roughness == pytest.approx(1.0, abs=0.25)
    heavy = fit_head(left_out_rows(kind="heavy"), 1e-4)
    assert 2.1 < heavy.df < 6
    plain = fit_head(left_out_rows(kind="plain"), 1e-4)
    assert plain.df > 15


@pytest.mark.parametrize("kind", ["rough", "plain", "heavy"])
@pytest.mark.parametrize("n", [40, 60, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_head_never_harms_the_rows_it_was_fitted_on(kind, n, seed):
    rows = left_out_rows(n, seed, kind)
    head, gaussian = rows.predict(fit_head(rows, 1e-4)), rows.predict(RegressionHead())
    assert crps(rows.y, head) <= crps(rows.y, gaussian) + 1e-15
    aims = {level: level * (n + 1) / n for level in LEVELS}  # of these rows, to cover that share of fresh ones
    assert abs(coverage(rows.y, head, 0.9) - aims[0.9]) <= abs(coverage(rows.y, gaussian, 0.9) - aims[0.9]) + 1e-12
    misses = [np.mean([abs(coverage(rows.y, d, level) - aims[level]) for level in LEVELS]) for d in (head, gaussian)]
    assert misses[0] <= misses[1] + 1e-12


@pytest.mark.parametrize("kind", ["rough", "plain", "heavy"])
@pytest.mark.parametrize("n", [1, 2, 5, 9, 20, 30])
@pytest.mark.parametrize("seed", range(4))
def test_the_head_of_few_rows_covers_as_many_as_fresh_ones_ask_for(kind, n, seed):
    rows = left_out_rows(n, seed, kind)
    head = rows.predict(fit_head(rows, 1e-4))
    assert coverage(rows.y, head, 0.9) * n >= min(np.floor(0.9 * (n + 1)), n) - 1e-9


def test_gaussian_head_is_the_limit_of_the_student_t():
    rows = left_out_rows(200)
    near = RegressionHead(df=1e7)
    np.testing.assert_allclose(
        rows.predict(near).logpdf(rows.y), rows.predict(RegressionHead()).logpdf(rows.y), atol=1e-5
    )


def test_floor_keeps_discrete_targets_from_infinite_density():
    y = np.random.default_rng(0).integers(0, 5, 3000).astype(float)
    n = len(y)
    tiny, many = np.full(n, 1e-9), np.full(n, 32.0)
    moments = Moments(y.copy(), np.full(n, 1e-12), tiny, many, tiny, many)  # every row predicted exactly
    rows = LeftOutNumbers(np.array([32]), moments, y, np.full(n, 1e-12), np.ones(n))
    head = fit_head(rows, target_floor(y))
    scale, _ = head.scales(moments, rows.noise)
    assert target_floor(y) == pytest.approx(0.02)
    if head.df < math.inf:
        assert (scale >= 0.02 - 1e-12).all()
    assert np.isfinite(rows.log_score(head))


def test_choice_of_k_weighs_accuracy_against_cost():
    rng = np.random.default_rng(0)
    ks, n = candidate_ks(5000), 1000
    assert ks[-1] == 1024
    y = rng.standard_normal(n)

    def rows_with(errors):
        mean = y[:, None] + np.asarray(errors) * rng.standard_normal(n)[:, None]
        variance = np.tile(np.square(errors), (n, 1))
        counts = np.tile(ks, (n, 1)).astype(float)
        return LeftOutNumbers(ks, Moments(mean, variance, *[counts] * 4), y, np.full(n, 1e-6), np.ones(n))

    plain, fitted = (RegressionCalibrator(RegressionHead(), calibrated, 1e-4, 1.0) for calibrated in (False, True))

    def choose(errors, calibrator=plain):
        return choose_k(trials(rows_with(errors), ks, calibrator), calibrator)

    assert choose(np.full(len(ks), 0.3)).k <= FREE
    assert choose(np.where(ks < 256, 0.3, 0.298)).k == 256  # costs nothing
    assert choose(np.where(ks < 1024, 0.3, 0.298)).k <= FREE  # hardly worth it
    assert choose(3.0 / ks).k == 1024
    worth_it_to_64 = np.where(ks < 64, 0.6, 0.3)
    assert choose(worth_it_to_64).k == 64
    assert choose(worth_it_to_64, fitted).k == 64


def test_noise_does_not_hide_how_much_better_a_latent_function_is():
    """Errors of .1 and .3 beside noise of 3 differ by half a percent in RMSE: the same rows show it, and it counts."""
    rng = np.random.default_rng(0)
    n, ks = 4000, np.array([512, 1024])
    f, noise = rng.standard_normal(n), 3 * rng.standard_normal(n)
    mean = f[:, None] + np.array([0.3, 0.1]) * rng.standard_normal((n, 2))
    variance, size = np.tile([0.09, 0.01], (n, 1)), np.tile(ks.astype(float), (n, 1))
    rows = LeftOutNumbers(ks, Moments(mean, variance, *[size] * 4), f + noise, np.full(n, 9.0), np.ones(n))
    calibrator = RegressionCalibrator(RegressionHead(), True, 1e-4, 1.0)
    tried = trials(rows, ks, calibrator)
    assert abs(tried[1024].accuracy - tried[512].accuracy) < 0.02
    assert choose_k(tried, calibrator).k == 1024


def test_dear_numbers_of_neighbours_are_tried_only_while_more_are_better(monkeypatch):
    """A first sweep of few neighbours; a second, where the most of them were the best, with these once more."""
    monkeypatch.setattr("nearfield.sweep.MOST_WHOLE", 100)
    sweeps, heads = [], []
    sweep, fit = Sweeper.left_out, RegressionCalibrator.fit

    def counting_sweep(self, which, ks, *given):
        sweeps.append(ks.tolist())
        return sweep(self, which, ks, *given)

    def counting_fit(self, rows):
        heads.append(int(rows.ks[0]))
        return fit(self, rows)

    monkeypatch.setattr(Sweeper, "left_out", counting_sweep)
    monkeypatch.setattr(RegressionCalibrator, "fit", counting_fit)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (700, 2))
    smooth, rough = np.sin(X[:, 0]) + X[:, 1], rng.standard_normal(700) * (X[:, 0] > 0)
    for y in (smooth, rough):
        sweeps.clear()
        heads.clear()
        model = GPRegressor(max_steps=20, refresh_every=10, random_state=0, continuous=False).fit(X, y)
        assert heads == [k for ks in sweeps for k in ks]
        assert model.k_ in sweeps[-1]
        assert max(sweeps[0]) == ALL_ROWS
        assert (len(sweeps) == 2) == (max(heads) > ALL_ROWS)
        assert all(min(more) > ALL_ROWS / 4 for more in sweeps[1:])


def test_candidates_end_at_the_rows_there_are():
    assert candidate_ks(200)[-1] == 200
    assert (np.diff(candidate_ks(200)) > 0).all()
    assert candidate_ks(1).tolist() == [1]


def test_more_outputs_have_fewer_neighbours_at_most():
    assert most_neighbours() == MOST_NEIGHBOURS
    assert all_rows() == ALL_ROWS
    tops = [most_neighbours(outputs) for outputs in (1, 2, 3, 10, 1000)]
    assert tops == sorted(tops, reverse=True)
    assert min(tops) >= 16
    assert candidate_ks(5000, 10)[-1] == most_neighbours(10)


@pytest.mark.parametrize("kind", ["rough", "plain", "heavy"])
def test_a_head_comes_back_from_its_scalars(kind):
    head = fit_head(left_out_rows(200, kind=kind), 1e-4)
    stored, arrays = head.packed()
    assert RegressionHead.unpacked(json.loads(json.dumps(stored))) == head
    assert not arrays
    assert RegressionHead.unpacked({}) == RegressionHead()  # what a file lacks has its default
    for wrong in ({"df": 1.0}, {"noise_factor": 0.0}, {"floor": -1.0}, {"df": "many"}):
        with pytest.raises(ModelFileError):
            RegressionHead.unpacked({**stored, **wrong})


# --- scaling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e200, 1e-3])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scaling_standardises_huge_and_tiny_numbers(unit, offset):
    values = (np.random.default_rng(0).standard_normal((500, 3)) + offset) * unit
    values[:, 2] = 7.0 * unit
    scaling = Scaling.of(values, np.ones(500))
    z = scaling.apply(values)
    np.testing.assert_allclose(z[:, :2].mean(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose(z[:, :2].std(axis=0), 1, atol=1e-8)
    assert (z[:, 2] == 0).all()
    np.testing.assert_allclose(scaling.undo(z), values, rtol=1e-10)


def test_scaling_with_weights_equals_repeated_rows():
    rng = np.random.default_rng(0)
    values, counts = rng.standard_normal((20, 2)), rng.integers(1, 5, 20)
    ours, theirs = Scaling.of(values, counts), Scaling.of(np.repeat(values, counts, axis=0), np.ones(counts.sum()))
    np.testing.assert_allclose(ours.centre, theirs.centre, atol=1e-12)
    np.testing.assert_allclose(ours.scale, theirs.scale, atol=1e-12)


def test_a_summary_says_where_the_plain_predictive_was_kept():
    rows = left_out_rows(kind="rough")
    asked, not_asked = (RegressionCalibrator(RegressionHead(), calibrated, 1e-4, 1.0) for calibrated in (True, False))
    assert "those of the trained model" in asked.remark(RegressionHead())
    assert asked.remark(asked.fit(rows)) == ""
    assert not_asked.remark(not_asked.fit(rows)) == ""


def test_robust_scaling_does_not_move_for_outliers():
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal(501), rng.integers(1, 4, 501)
    spoilt = np.where(np.arange(501) % 10 == 0, 1e6, values)
    plain, moved = Scaling.robust(values, weights), Scaling.robust(spoilt, weights)
    assert plain.centre == pytest.approx(np.median(np.repeat(values, weights)), abs=1e-12)
    assert plain.scale == pytest.approx(1.0, abs=0.15)
    assert moved.centre == pytest.approx(plain.centre, abs=0.3)
    assert moved.scale == pytest.approx(plain.scale, rel=0.3)
    mostly = np.where(np.arange(501) < 300, 5.0, values)
    assert Scaling.robust(mostly, np.ones(501)).scale == Scaling.of(mostly, np.ones(501)).scale


# --- the rows that are left out -------------------------------------------------------------------------------------


def test_observations_are_left_out_as_often_as_they_were_made(monkeypatch):
    """Of rows with weights a sample has about the same distribution as one of their copies."""
    monkeypatch.setattr(learner, "_LEFT_OUT_ROWS", 500)
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(3000) < 0.02, 200.0, 1.0)
    sample, counted = learner._sample(np.random.default_rng(1), weights)
    assert (np.diff(sample) > 0).all()
    assert counted.sum() == 500
    heavy = weights[sample] > 1
    share = weights[weights > 1].sum() / weights.sum()
    assert counted[heavy].sum() / 500 == pytest.approx(share, abs=0.02)
    assert heavy.sum() == (weights > 1).sum()  # each stands for more than a five-hundredth of all


def test_few_observations_are_all_left_out_and_equal_ones_are_drawn_once():
    weights = np.arange(1.0, 50.0)
    sample, counted = learner._sample(np.random.default_rng(0), weights)
    np.testing.assert_array_equal(sample, np.arange(49))
    np.testing.assert_array_equal(counted, weights)
    sample, counted = learner._sample(np.random.default_rng(0), np.full(9000, 3.0))
    assert len(sample) == len(np.unique(sample)) == 4000
    assert (counted == 3).all()


def test_many_outputs_have_no_larger_k_to_try(monkeypatch):
    """Where a matrix of all outputs is full with the k of the first sweep, there is no second one."""
    monkeypatch.setattr(calibration, "_LARGEST_BLOCK", 40)
    monkeypatch.setattr(calibration, "_FEWEST_MOST", 10)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    Y = np.stack([np.sin(X[:, 0]) + 0.1 * p * X[:, 1] for p in range(4)], axis=1) + 0.01 * rng.standard_normal((120, 4))
    model = GPRegressor(max_steps=20, refresh_every=10, random_state=0).fit(X, Y)
    assert np.isfinite(model.predict(X)).all()


def test_some_rows_tell_which_model_of_several_outputs_is_kept_and_all_calibrate_it(monkeypatch):
    monkeypatch.setattr(learner, "_WEIGHED_ROWS", 40)
    calls, calibrate = [], learner.calibrate_either

    def recording(sweeper, sample, counted, *rest):
        found = calibrate(sweeper, sample, counted, *rest)
        calls.append((type(sweeper.model.covariance), sample.tolist(), found.scores))
        return found

    monkeypatch.setattr(learner, "calibrate_either", recording)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (90, 2))
    Y = np.stack([np.sin(X[:, 0]), np.cos(X[:, 1])], axis=1) + 0.1 * rng.standard_normal((90, 2))
    model = GPRegressor(max_steps=20, refresh_every=10, random_state=0).fit(X, Y)
    (*weighed, final) = calls
    assert len(weighed) == len({kind for kind, _, _ in weighed}) == 3
    assert all(sample == list(range(0, 90, 3)) for _, sample, _ in weighed)
    best = min(weighed, key=lambda one: one[2]["nll"])
    assert final[0] is best[0] is type(model._fit.predictor.model.covariance)
    assert final[1] == list(range(90))
    assert model.summary_.left_out == final[2]
