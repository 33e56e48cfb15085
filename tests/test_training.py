"""Training, the sweep and the head: limits, determinism, resuming, recovery."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from nearfield import training
from nearfield.calibration import Head, LeftOut, candidate_ks, choose_k, fit_head, target_floor
from nearfield.calibration import _negative_log_posterior as negative_log_posterior
from nearfield.fitting import Settings, schedule_for
from nearfield.kernels import find_kernel
from nearfield.metrics import LEVELS, coverage, crps
from nearfield.model import BOUNDS, Model, Rows
from nearfield.objectives import loo_objective, loo_scores
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper, Swept
from nearfield.training import Schedule, Stage


def make_rows(n=400, d=3, noise=0.1, seed=0, weights=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + noise * rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    weights = np.ones(n) if weights is None else weights
    return Rows(*(torch.from_numpy(a) for a in (X, y, np.asarray(weights, dtype=float), np.zeros(n))))


def trained(rows, schedule, seed=0):
    run = training.start(Model.initial(find_kernel("matern52"), rows.inputs.shape[1]), np.random.default_rng(seed))
    training.train(run, rows, schedule)
    return run


SHORT = Schedule((Stage(0.03, 16, 3), Stage(0.006, 16, 1)), batch_size=32, refresh_every=10)


def test_scores_are_the_normal_log_density():
    rows = make_rows(50)
    model = Model.initial(find_kernel("rbf"), 3)
    which = np.arange(20)
    sweeper = Sweeper(model, rows)
    ids = torch.from_numpy(sweeper.left_out_ids(which, 10))
    m = model.latent(rows, rows.inputs[:20], ids, own=torch.arange(20))
    scores = loo_scores(m, rows.targets[:20], model.noise).detach().numpy()
    std = np.sqrt((m.variance + model.noise).detach().numpy())
    np.testing.assert_allclose(scores, scipy.stats.norm(m.mean.detach(), std).logpdf(rows.targets[:20]), atol=1e-12)
    weights = torch.linspace(1, 3, 20, dtype=torch.float64)
    expected = -np.average(scores, weights=weights.numpy())
    assert loo_objective(torch.from_numpy(scores), weights).item() == pytest.approx(expected, abs=1e-12)


def test_training_finds_what_matters():
    rows = make_rows(1500, d=4)
    run = trained(rows, Schedule((Stage(0.05, 32, 6), Stage(0.01, 32, 3))))
    lengths = run.model.lengths
    assert lengths[:2].max() < lengths[2:].min()  # the last two columns are noise
    assert float(run.model.noise.detach()) == pytest.approx(0.1**2 / 0.76, rel=0.5)
    assert run.progress.scores[-1] > run.progress.scores[0] + 0.1


def test_training_with_all_neighbours_climbs_the_exact_leave_one_out_score():
    """Few rows, k = N - 1: the score that training reports is the exact one, by the inverse."""
    rows = make_rows(40)
    run = trained(rows, Schedule((Stage(0.03, 39, 2),), refresh_every=1))
    model = Model.initial(find_kernel("matern52"), 3)
    X, y = rows.inputs.numpy() / model.lengths, rows.targets.numpy()
    q = math.sqrt(5) * np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1))
    K = (1 + q + q * q / 3) * np.exp(-q) + float(model.noise.detach()) * np.eye(40)
    inverse = np.linalg.inv(K)
    std = 1 / np.sqrt(np.diag(inverse))
    exact = scipy.stats.norm(y - inverse @ y * std**2, std).logpdf(y).mean()
    assert run.progress.scores[0] == pytest.approx(exact, abs=1e-8)


def hyper(run):
    return {name: p.detach().numpy().copy() for name, p in run.model.hyperparameters().items()}


def test_same_seed_same_bits_for_any_number_of_threads(monkeypatch):
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(hyper(trained(make_rows(), SHORT)))
    assert all(np.array_equal(results[0][name], results[1][name]) for name in BOUNDS)
    other = hyper(trained(make_rows(), SHORT, seed=1))
    assert not np.array_equal(results[0]["log_lengths"], other["log_lengths"])


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_resumed_run_ends_with_the_same_bits(stop_after):
    rows, saved = make_rows(), []

    class Crash(Exception):
        pass

    def crash(run):
        saved.append(training.state(run))
        if len(saved) == stop_after:
            raise Crash

    run = training.start(Model.initial(find_kernel("matern52"), 3), np.random.default_rng(0))
    with pytest.raises(Crash):
        training.train(run, rows, SHORT, crash)
    resumed = training.start(Model.initial(find_kernel("matern52"), 3), np.random.default_rng(99))
    training.restore(resumed, *saved[-1])
    training.train(resumed, rows, SHORT)
    whole = trained(rows, SHORT)
    assert all(np.array_equal(hyper(resumed)[name], hyper(whole)[name]) for name in BOUNDS)
    assert resumed.progress == whole.progress


def test_a_stage_ends_when_the_score_is_flat():
    long = Schedule((Stage(1e-9, 16, 50),), batch_size=32, refresh_every=5)
    run = trained(make_rows(), long)
    assert run.progress.steps == 2 * 5  # two refreshes are needed to see that nothing improves


def test_steps_that_are_not_finite_are_rejected_and_counted():
    rows = make_rows()
    rows.targets[:3] = 1e300  # squares overflow
    run = training.start(Model.initial(find_kernel("matern52"), 3), np.random.default_rng(0))
    before = hyper(run)
    with pytest.raises(FloatingPointError, match="not finite in 21 steps in a row"):
        training.train(run, rows, Schedule((Stage(0.03, 16, 1),), batch_size=400))
    assert run.progress.rejected == 21
    assert all(np.array_equal(before[name], hyper(run)[name]) for name in BOUNDS)


def test_hyper_parameters_stay_inside_their_bounds():
    model = Model.initial(find_kernel("rational_quadratic"), 3)
    with torch.no_grad():
        for p in model.hyperparameters().values():
            p.fill_(1e9)
    model.project()
    for name, (_, high) in BOUNDS.items():
        assert (model.hyperparameters()[name] == high).all()


def test_a_row_that_counts_twice_equals_the_row_twice():
    """Left-out moments and `used` with weights equal those of repeated rows, all neighbours in use."""
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 4, 12)
    rows = make_rows(12, weights=counts)
    rows.known_noise[:] = torch.linspace(0, 0.5, 12)
    again = np.repeat(np.arange(12), counts)
    one = torch.ones(len(again), dtype=torch.float64)
    repeated = Rows(rows.inputs[again], rows.targets[again], one, rows.known_noise[again])
    model = Model.initial(find_kernel("matern52"), 3)
    ours = Sweeper(model, rows).left_out(np.arange(12), np.array([12])).at(0)
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    theirs = Sweeper(model, repeated).left_out(firsts, np.array([len(again)])).at(0)
    for name in ("mean", "variance", "quad", "used"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-9)


def test_schedule_ramps_k_and_lowers_the_step_size():
    stages = schedule_for(Settings(), 10_000).stages
    assert [s.k for s in stages] == [64, 128, 128]
    assert [s.learning_rate for s in stages] == pytest.approx([0.03, 0.006, 0.0012])
    assert schedule_for(Settings(), 10_000).most_steps == Settings().max_steps
    assert {s.k for s in schedule_for(Settings(k=20), 10_000).stages} == {20}
    assert {s.k for s in schedule_for(Settings(), 50).stages} == {128}
    for steps in (1, 3, 49, 50, 99, 100, 149, 610):
        assert steps - 50 < schedule_for(Settings(max_steps=steps), 10_000).most_steps <= steps


# --- calibration ----------------------------------------------------------------------------------------------------


def left_out_rows(n=2000, seed=0, kind="rough", k=32):
    """Left-out rows whose scale follows `quad` with exponent one ("rough"), is constant, or has heavy tails."""
    rng = np.random.default_rng(seed)
    rough = np.exp(rng.normal(0, 1, n)) if kind == "rough" else np.ones(n)
    quad = k * rough * rng.chisquare(k, n) / k
    scale = np.sqrt(0.05 * rough)
    draws = rng.standard_t(3, n) if kind == "heavy" else rng.standard_normal(n)
    near = 16 * rough * rng.chisquare(16, n) / 16
    swept = Swept(rng.standard_normal(n), np.full(n, 0.02), quad, np.full(n, float(k)), near, np.full(n, 16.0))
    return LeftOut(np.array([k]), swept, swept.mean + scale * draws, np.full(n, 0.03), np.ones(n))


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
@pytest.mark.parametrize("n", [1, 2, 5, 30, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_head_never_harms_the_rows_it_was_fitted_on(kind, n, seed):
    rows = left_out_rows(n, seed, kind)
    head, gaussian = rows.predict(fit_head(rows, 1e-4)), rows.predict(Head())
    assert crps(rows.y, head) <= crps(rows.y, gaussian) + 1e-15
    assert abs(coverage(rows.y, head, 0.9) - 0.9) <= abs(coverage(rows.y, gaussian, 0.9) - 0.9) + 1e-12
    misses = [np.mean([abs(coverage(rows.y, d, level) - level) for level in LEVELS]) for d in (head, gaussian)]
    assert misses[0] <= misses[1] + 1e-12


def test_gaussian_head_is_the_limit_of_the_student_t():
    rows = left_out_rows(200)
    near = Head(df=1e7)
    np.testing.assert_allclose(rows.predict(near).logpdf(rows.y), rows.predict(Head()).logpdf(rows.y), atol=1e-5)


def test_floor_keeps_discrete_targets_from_infinite_density():
    y = np.random.default_rng(0).integers(0, 5, 3000).astype(float)
    n = len(y)
    tiny, many = np.full(n, 1e-9), np.full(n, 32.0)
    swept = Swept(y.copy(), np.full(n, 1e-12), tiny, many, tiny, many)  # every row predicted exactly
    rows = LeftOut(np.array([32]), swept, y, np.full(n, 1e-12), np.ones(n))
    head = fit_head(rows, target_floor(y))
    scale, _ = head.scales(swept, rows.noise)
    assert target_floor(y) == pytest.approx(0.02)
    if head.df < math.inf:
        assert (scale >= 0.02 - 1e-12).all()
    assert np.isfinite(rows.log_score(head))


def test_choice_of_k_weighs_accuracy_against_cost():
    rng = np.random.default_rng(0)
    ks, n = candidate_ks(5000), 1000
    assert ks[-1] == 512
    y = rng.standard_normal(n)

    def rows_with(errors):
        mean = y[:, None] + np.asarray(errors) * rng.standard_normal(n)[:, None]
        variance = np.tile(np.square(errors), (n, 1))
        counts = np.tile(ks, (n, 1)).astype(float)
        return LeftOut(ks, Swept(mean, variance, *[counts] * 4), y, np.full(n, 1e-6), np.ones(n))

    flat = choose_k(rows_with(np.full(len(ks), 0.3)), 1e-4, calibrated=False)
    assert flat.k <= 128
    barely_worth_it = np.where(ks < 256, 0.3, 0.298)
    assert choose_k(rows_with(barely_worth_it), 1e-4, calibrated=False).k < 256
    steep = choose_k(rows_with(3.0 / ks), 1e-4, calibrated=False)
    assert steep.k == 512
    worth_it_to_64 = np.where(ks < 64, 0.6, 0.3)
    assert choose_k(rows_with(worth_it_to_64), 1e-4, calibrated=False).k == 64
    assert choose_k(rows_with(worth_it_to_64), 1e-4, calibrated=True).k == 64


def test_candidates_end_at_the_rows_there_are():
    assert candidate_ks(200)[-1] == 200
    assert (np.diff(candidate_ks(200)) > 0).all()
    assert candidate_ks(1).tolist() == [1]


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
