"""Training and the sweep: limits, determinism, resuming, recovery."""

from __future__ import annotations

import json
from dataclasses import replace

import dense
import numpy as np
import pytest
import scipy.stats
import torch
from family_examples import CASES, case, model_of

from nearfield.covariances import Shared
from nearfield.families.gaussian import Gaussian
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model, bounded
from nearfield.objectives import LEAVE_ONE_OUT, conditional_score
from nearfield.rows import Rows
from nearfield.schedule import schedule_for
from nearfield.settings import Settings
from nearfield.sweep import Sweeper
from nearfield.training import (
    Adam,
    Progress,
    Race,
    Run,
    Schedule,
    Stage,
    _draw_batches,
    _record,
    restore,
    snapshot,
    train,
)
from nearfield.warps import Warps

torch.set_num_threads(1)


def make_rows(n=400, d=3, noise=0.1, seed=0, weights=None, known=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + noise * rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    return Rows.of(Gaussian(), X, Gaussian().observe(y, weights, noise_variance=np.broadcast_to(known, n)))


def new_model(d=3, kernel="matern52"):
    return Model.initial(Gaussian(), Shared(find_kernel(kernel), 1, Warps.none(d), 1), MEANS["constant"])


def new_run(rows, model=None, seed=0):
    rng = np.random.default_rng(seed)
    model = model or new_model(rows.inputs.shape[1])
    return Run(model, rows, LEAVE_ONE_OUT, rng)


def trained(rows, schedule, seed=0, model=None):
    run = new_run(rows, model, seed)
    train(run, schedule)
    return run


SHORT = Schedule((Stage(0.03, 16, 3), Stage(0.006, 16, 1)), batch_size=32, refresh_every=10)


def assert_same(one, other):
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


# --- what is climbed ------------------------------------------------------------------------------------------------


def test_scores_are_the_normal_log_density():
    rows = make_rows(50)
    model = new_model(kernel="rbf")
    which = np.arange(20)
    left_out = rows.observations.take(which)
    scored = conditional_score(model, rows, left_out, Sweeper(model, rows).left_out_ids(which, 10))
    assert scored.moments is not None
    mean, variance = (part[:, 0] for part in scored.moments)
    std = np.sqrt(variance + np.exp(model.parameters["log_noise"]))
    np.testing.assert_allclose(scored.values, scipy.stats.norm(mean, std).logpdf(rows.observed["y"][:20]), atol=1e-12)


def test_training_finds_what_matters():
    rows = make_rows(1500, d=4)
    run = trained(rows, Schedule((Stage(0.05, 32, 6), Stage(0.01, 32, 3))))
    lengths = run.model.search_lengths
    assert lengths[:2].max() < lengths[2:].min()  # the last two columns are noise
    assert run.model.noise[0] == pytest.approx(0.1**2 / 0.76, rel=0.5)
    assert run.progress.scores[-1] > run.progress.scores[0] + 0.1


def test_training_with_all_neighbours_climbs_the_exact_leave_one_out_score():
    """Few rows, k = N - 1: the score that training reports is the exact one, by the inverse."""
    rows = make_rows(40)
    run = trained(rows, Schedule((Stage(0.03, 39, 2),), refresh_every=1))
    model = new_model()
    y = rows.observed["y"]
    K = dense.prior(model, rows.inputs, rows.inputs)[:, 0, :, 0] + model.noise * np.eye(40)
    inverse = np.linalg.inv(K)
    std = 1 / np.sqrt(np.diag(inverse))
    exact = scipy.stats.norm(y - inverse @ y * std**2, std).logpdf(y).mean()
    assert run.progress.scores[0] == pytest.approx(exact, abs=1e-7)  # but for the floor of the noise
    assert run.progress.scores[1] > run.progress.scores[0]


def test_a_step_of_training_follows_the_slope_of_the_weighted_mean():
    """Adam's first step has the size of the rate and the sign of the slope, by differences of the exact score."""
    rows = make_rows(40, weights=np.arange(40) % 3 + 1)
    run = trained(rows, Schedule((Stage(1e-3, 39, 1),), refresh_every=1))
    model, every = new_model(), rows.observations
    ids = Sweeper(model, rows).left_out_ids(np.arange(40), 39)

    def mean_score(parameters):
        return np.average(
            conditional_score(model.with_parameters(parameters), rows, every, ids).values, weights=every.weights
        )

    for name, value in model.parameters.items():
        for place in np.ndindex(value.shape):
            off = np.zeros(value.shape)
            off[place] = 1e-5
            up, down = ({**model.parameters, name: value + sign * off} for sign in (1, -1))
            slope = (mean_score(up) - mean_score(down)) / 2e-5
            moved = (run.model.parameters[name] - value)[place]
            assert moved == pytest.approx(1e-3 * np.sign(slope), rel=1e-3)


# --- Adam -----------------------------------------------------------------------------------------------------------


def test_adam_is_that_of_torch():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((4, 4)), rng.standard_normal(4)
    values = {"x": rng.standard_normal(4), "y": np.array(0.7)}
    x, y = (torch.tensor(values[name], requires_grad=True) for name in values)
    rates = {"x": 0.03, "y": 0.3}
    theirs = torch.optim.Adam([{"params": [x], "lr": 0.03}, {"params": [y], "lr": 0.3}], betas=(0.9, 0.999), eps=1e-8)
    ours = Adam()
    for _ in range(200):
        theirs.zero_grad()
        loss = (torch.tensor(A) @ x - torch.tensor(b)).square().sum() + torch.cos(3 * y) * x[0]
        loss.backward()
        theirs.step()
        residual = A @ values["x"] - b
        slopes = {"x": 2 * A.T @ residual, "y": -3 * np.sin(3 * values["y"]) * values["x"][0]}
        slopes["x"][0] += np.cos(3 * values["y"])
        values = ours.step(values, slopes, lambda name: rates[name])
        np.testing.assert_allclose(values["x"], x.detach().numpy(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(values["y"], y.detach().numpy(), rtol=1e-12, atol=1e-12)


# --- same bits ------------------------------------------------------------------------------------------------------


def test_same_seed_same_bits_for_any_number_of_threads(monkeypatch):
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(trained(make_rows(), SHORT).model.parameters)
    assert_same(*results)
    other = trained(make_rows(), SHORT, seed=1).model.parameters
    assert not np.array_equal(results[0]["log_lengths"], other["log_lengths"])


class Crash(Exception):
    pass


@pytest.mark.parametrize("stop_after", [1, 2, 3])
@pytest.mark.parametrize("which", ["gaussian:", "student_t:", "bernoulli:lognormal", "one_against_all:conjugate"])
def test_a_resumed_run_ends_with_the_same_bits(which, stop_after):
    """Through JSON, as in a file: parameters, site state, Adam's averages, the random numbers and the schedule."""
    given = case(which, 100)
    model, rows = model_of(given)
    saved = []

    def crash(run):
        saved.append(snapshot(run))
        if len(saved) == stop_after:
            raise Crash

    with pytest.raises(Crash):
        train(new_run(rows, model), SHORT, crash)
    header, arrays = saved[-1]
    resumed = new_run(rows, model, seed=99)
    restore(resumed, json.loads(json.dumps(header)), arrays)
    train(resumed, SHORT)
    whole = trained(rows, SHORT, model=model)
    assert_same(resumed.model.parameters, whole.model.parameters)
    np.testing.assert_array_equal(resumed.rows.state, whole.rows.state)
    assert resumed.progress == whole.progress


def test_a_snapshot_does_not_change_when_training_goes_on():
    run = new_run(make_rows())
    saved = []
    train(run, SHORT, lambda run: saved.append((snapshot(run), json.dumps(snapshot(run)[0]))))
    (header, arrays), text = saved[0]
    assert json.dumps(header) == text
    assert not np.array_equal(arrays["parameter.log_lengths"], run.model.parameters["log_lengths"])


# --- what is not changed --------------------------------------------------------------------------------------------


def arrays_of(rows):
    """Those that a row is made of."""
    return [rows.inputs, rows.state, *rows.observed.values(), *rows.observations.observed.values()]


@pytest.mark.parametrize("which", CASES)
def test_training_and_settling_do_not_change_the_rows_they_were_given(which):
    model, rows = model_of(case(which, 60))
    before = [array.copy() for array in arrays_of(rows)]
    parameters = {name: value.copy() for name, value in model.parameters.items()}
    run = trained(rows, replace(SHORT, stages=SHORT.stages[:1]), model=model)
    Sweeper(model, rows).settled(10)
    for array, copy in zip(arrays_of(rows), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert_same(model.parameters, parameters)
    assert (run.rows.state != before[1]).any() == (model.family.state_size > 0)
    assert any((run.model.parameters[name] != value).any() for name, value in parameters.items())


# --- the loop -------------------------------------------------------------------------------------------------------


def test_a_stage_ends_when_the_same_rows_are_predicted_no_better():
    long = Schedule((Stage(1e-9, 16, 50),), batch_size=32, refresh_every=5)
    run = trained(make_rows(), long)
    assert run.progress.steps == 2 * 5  # two refreshes are needed to see that nothing improves
    patient = trained(make_rows(), replace(long, patience=100.0))
    assert patient.progress.steps == long.most_steps


def test_slow_progress_is_not_called_settled():
    """Steps so small that the scores of different rows hide what they gain: those of the same rows show it."""
    slow = Schedule((Stage(1e-3, 16, 8),), batch_size=32, refresh_every=10)
    run = trained(make_rows(), slow)
    differences = np.diff(run.progress.scores)
    assert (differences < np.hypot(run.progress.errors[1:], run.progress.errors[:-1])).any()
    assert run.progress.steps == slow.most_steps


def test_of_two_starts_the_one_that_left_out_rows_prefer_goes_on():
    rows = make_rows()
    start = new_model()
    far = start.with_parameters({**start.parameters, "log_noise": np.asarray(np.log(9.0))})
    near = trained(rows, Schedule((Stage(0.05, 16, 6),), batch_size=64)).model
    short = Schedule((Race(Stage(1e-6, 16, 2)),), batch_size=32, refresh_every=2)
    for first, sample, expected in ((far, near, near), (near, far, near)):
        run = new_run(rows)
        run.first, run.model = first, sample
        train(run, short)
        assert run.progress.steps == short.most_steps == 6
        assert float(run.model.parameters["log_noise"]) == pytest.approx(
            float(expected.parameters["log_noise"]), abs=1e-3
        )


def test_steps_that_are_not_finite_are_rejected_and_counted():
    rows = make_rows()
    rows.observed["y"][:3] = 1e300
    rows = Rows.of(Gaussian(), rows.inputs, rows.observed)  # squares overflow
    run = new_run(rows)
    before = dict(run.model.parameters)
    with (
        pytest.raises(FloatingPointError, match="not finite in 21 steps in a row"),
        np.errstate(over="ignore", invalid="ignore"),
    ):
        train(run, Schedule((Stage(0.03, 16, 1),), batch_size=400))
    assert run.progress.rejected == 21
    assert_same(before, run.model.parameters)


def test_hyper_parameters_stay_inside_their_bounds():
    model = new_model(kernel="rational_quadratic")
    described = model.described()
    assert set(described) == set(model.parameters)
    for end, far in (("low", -1e9), ("high", 1e9)):
        kept = bounded({name: np.full(p.shape, far) for name, p in described.items()}, described)
        assert all((kept[name] == getattr(p, end)).all() for name, p in described.items())
        assert all(kept[name].shape == p.shape for name, p in described.items())
    fast = trained(make_rows(60), Schedule((Stage(1.0, 8, 6),), refresh_every=10, patience=1e9))
    for name, p in fast.model.described().items():
        assert ((p.low <= fast.model.parameters[name]) & (fast.model.parameters[name] <= p.high)).all()


def test_the_score_of_a_refresh_is_a_weighted_mean_with_its_error():
    progress, scores, weights = Progress(), np.array([1.0, 3.0, np.nan, 7.0]), np.array([1.0, 2.0, 1.0, 0.0])
    _record(progress, scores, weights, total=100.0)
    assert progress.scores == [pytest.approx(7 / 3)]
    assert progress.errors == [pytest.approx(np.std([1.0, 3.0, 3.0]) / np.sqrt(3))]
    _record(progress, scores, weights, total=1.0)  # rows that were visited again add nothing
    assert progress.errors[1] == pytest.approx(np.std([1.0, 3.0, 3.0]))
    with pytest.raises(FloatingPointError, match="no row has a finite score"):
        _record(progress, scores[2:], weights[2:], total=1.0)


def test_a_row_that_counts_twice_equals_the_row_twice():
    """Left-out moments and `size` with weights equal those of repeated rows, all neighbours in use."""
    counts = np.random.default_rng(3).integers(1, 4, 12)
    rows = make_rows(12, weights=counts, known=np.linspace(0, 0.5, 12))
    again = np.repeat(np.arange(12), counts)
    y, known = (rows.observed[name][again] for name in ("y", "known_noise"))
    single = Gaussian().observe(y, np.ones(len(again)), noise_variance=known)
    repeated = Rows.of(Gaussian(), rows.inputs[again], single)
    model = new_model()
    ours = Sweeper(model, rows).left_out(np.arange(12), np.array([12])).at(0)
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    theirs = Sweeper(model, repeated).left_out(firsts, np.array([len(again)])).at(0)
    for name in ("mean", "variance", "quad", "size"):
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
    assert schedule_for(Settings(), 10_000, patient=True).patience > 0


def test_small_tables_are_trained_on_all_rows_and_large_ones_begin_with_samples():
    small = schedule_for(Settings(), 1200, exact="all").stages
    assert [stage.rows for stage in small] == [250, 500, 1200]
    assert [stage.start for stage in small] == [True, False, False]
    (tiny,) = schedule_for(Settings(max_steps=7), 80, exact="all").stages
    assert (tiny.rows, tiny.iterations, tiny.start) == (80, 7, True)
    middle = [type(stage).__name__ for stage in schedule_for(Settings(), 2400, exact="sample").stages]
    assert middle == ["Descent"] * 3 + ["Stage"] * 3  # a sample of so many tells enough: nothing races
    large = schedule_for(Settings(), 10_000, exact="sample")
    kinds = [type(stage).__name__ for stage in large.stages]
    assert kinds == ["Descent", "Descent", "Race", "Stage", "Stage", "Stage"]
    assert sum(stage.refreshes for stage in large.stages[3:]) == 12 - large.stages[2].stage.refreshes


# --- the sweep ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_moments_do_not_depend_on_the_block_nor_on_the_other_k(which, monkeypatch):
    model, rows = model_of(case(which, weighted=True))
    every, ks = np.arange(len(rows.observations)), np.array([3, 9, 20])
    whole = Sweeper(model, rows).left_out(every, ks)
    monkeypatch.setattr("nearfield.sweep._BLOCK_NUMBERS", 7 * 20)
    blocks = Sweeper(model, rows).left_out(every, ks)
    for name in ("mean", "variance", "quad", "size", "near_quad", "near_size"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(blocks, name))
        for place, k in enumerate(ks):
            alone = Sweeper(model, rows).left_out(every, np.array([k]))
            np.testing.assert_allclose(
                getattr(whole.at(place), name), getattr(alone.at(0), name), rtol=1e-9, atol=1e-11
            )  # fmt: skip


def test_predictions_that_overflow_are_refused():
    rows = make_rows(30)
    rows.observed["y"][:] = np.where(np.arange(30) % 2, 1e308, -1e308)
    with (
        pytest.raises(FloatingPointError, match="a prediction is not finite"),
        np.errstate(over="ignore", invalid="ignore"),
    ):
        Sweeper(new_model(), rows).new(rows.inputs + 0.01, 20)


def test_rows_that_count_more_are_drawn_more_often_and_then_count_once():
    weights = np.where(np.arange(2000) % 50 == 0, 100.0, 1.0)
    batches, by_weight = _draw_batches(np.random.default_rng(0), weights, Schedule((), batch_size=64, refresh_every=50))
    assert by_weight
    assert batches.shape == (50, 64)
    share = weights[weights > 1].sum() / weights.sum()
    assert np.mean(weights[batches] > 1) == pytest.approx(share, abs=0.04)
    equal, by_weight = _draw_batches(np.random.default_rng(0), np.full(2000, 3.0), Schedule((), 64, 20))
    assert not by_weight
    assert len(np.unique(equal)) == equal.size
