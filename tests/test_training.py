"""Training and the sweep: limits, determinism, resuming, recovery."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from nearfield import training
from nearfield.fitting import Settings, schedule_for
from nearfield.kernels import find_kernel
from nearfield.likelihoods.gaussian import Gaussian
from nearfield.model import Model, Rows
from nearfield.objectives import loo_objective
from nearfield.sweep import Sweeper
from nearfield.training import Schedule, Stage


def make_rows(n=400, d=3, noise=0.1, seed=0, weights=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + noise * rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    return Rows.of(Gaussian(), X, np.stack([y, weights, np.zeros(n)], axis=1))


def new_model(d=3, kernel="matern52"):
    return Model.initial(find_kernel(kernel), d, Gaussian())


def trained(rows, schedule, seed=0):
    run = training.start(new_model(rows.inputs.shape[1]), rows, np.random.default_rng(seed))
    training.train(run, schedule)
    return run


SHORT = Schedule((Stage(0.03, 16, 3), Stage(0.006, 16, 1)), batch_size=32, refresh_every=10)


def test_scores_are_the_normal_log_density():
    rows = make_rows(50)
    model = new_model(kernel="rbf")
    which = np.arange(20)
    sweeper = Sweeper(model, rows)
    ids = torch.from_numpy(sweeper.left_out_ids(which, 10))
    left_out = rows.observations.take(torch.arange(20))
    m = model.latent(rows, rows.inputs[:20], ids, left_out)
    scores = model.likelihood.log_predictive(m.mean, m.variance, left_out.stats, model.noise_model).detach().numpy()
    std = np.sqrt((m.variance + model.noise_model["log_noise"].exp()).detach().numpy())
    np.testing.assert_allclose(scores, scipy.stats.norm(m.mean.detach(), std).logpdf(rows.stats[:20, 0]), atol=1e-12)
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
    model = new_model()
    X, y = rows.inputs.numpy() / model.lengths, rows.stats.numpy()[:, 0]
    q = math.sqrt(5) * np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1))
    K = (1 + q + q * q / 3) * np.exp(-q) + float(model.noise.detach()) * np.eye(40)
    inverse = np.linalg.inv(K)
    std = 1 / np.sqrt(np.diag(inverse))
    exact = scipy.stats.norm(y - inverse @ y * std**2, std).logpdf(y).mean()
    assert run.progress.scores[0] == pytest.approx(exact, abs=1e-7)  # but for the floor of the noise


def hyper(run):
    return {name: p.detach().numpy().copy() for name, p in run.model.hyperparameters().items()}


def test_same_seed_same_bits_for_any_number_of_threads(monkeypatch):
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(hyper(trained(make_rows(), SHORT)))
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])
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

    run = training.start(new_model(), rows, np.random.default_rng(0))
    with pytest.raises(Crash):
        training.train(run, SHORT, crash)
    resumed = training.start(new_model(), rows, np.random.default_rng(99))
    training.restore(resumed, *saved[-1])
    training.train(resumed, SHORT)
    whole = trained(rows, SHORT)
    assert all(np.array_equal(hyper(resumed)[name], hyper(whole)[name]) for name in hyper(whole))
    assert resumed.progress == whole.progress


def test_a_stage_ends_when_the_score_is_flat():
    long = Schedule((Stage(1e-9, 16, 50),), batch_size=32, refresh_every=5)
    run = trained(make_rows(), long)
    assert run.progress.steps == 2 * 5  # two refreshes are needed to see that nothing improves


def test_steps_that_are_not_finite_are_rejected_and_counted():
    rows = make_rows()
    rows.stats[:3, 0] = 1e300
    rows.observations.stats[:3, 0] = 1e300  # squares overflow
    run = training.start(new_model(), rows, np.random.default_rng(0))
    before = hyper(run)
    with pytest.raises(FloatingPointError, match="not finite in 21 steps in a row"):
        training.train(run, Schedule((Stage(0.03, 16, 1),), batch_size=400))
    assert run.progress.rejected == 21
    assert all(np.array_equal(before[name], hyper(run)[name]) for name in before)


def test_hyper_parameters_stay_inside_their_bounds():
    model = new_model(kernel="rational_quadratic")
    with torch.no_grad():
        for p in model.hyperparameters().values():
            p.fill_(1e9)
    model.project()
    for name, (_, high) in model.bounds().items():
        assert (model.hyperparameters()[name] == high).all()


def test_a_row_that_counts_twice_equals_the_row_twice():
    """Left-out moments and `used` with weights equal those of repeated rows, all neighbours in use."""
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 4, 12)
    rows = make_rows(12, weights=counts)
    stats = rows.stats.numpy()
    stats[:, 2] = np.linspace(0, 0.5, 12)
    again = np.repeat(np.arange(12), counts)
    single = np.stack([stats[again, 0], np.ones(len(again)), stats[again, 2]], axis=1)
    repeated = Rows.of(Gaussian(), rows.inputs.numpy()[again], single)
    model = new_model()
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
