"""Checkpoints: an interrupted fit goes on where it was, to the same bits, and nobody else's file is touched."""

from __future__ import annotations

import numpy as np
import pytest
from estimator_data import counted, crash_after_checkpoint, labelled, quick, quick_classifier, quick_counts, small

from nearfield import ModelFileError, checkpoint, fitting, learner, training
from nearfield.covariances import Mixed, PerLatent, Shared
from nearfield.persistence import read_file
from nearfield.settings import Watch

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

STEPS = {"max_steps": 40, "refresh_every": 10, "k": 8}


def outputs():
    X, y = small(120)
    return X, np.stack([y, y**2], axis=1)


def fits():
    X, y = small(120)
    return {
        "number": (quick, {}, X, y),
        "robust": (quick, {"likelihood": "student_t"}, X, y),
        "trend": (quick, {"mean": "linear", "kernel": "rational_quadratic"}, X, y),
        "vecchia": (quick, {"objective": "vecchia"}, X, y),
        "mll": (quick, {"objective": "mll"}, X, y),
        "lmc": (quick, {}, *outputs()),
        "shared": (quick, {"outputs": "shared"}, *outputs()),
        "classes": (quick_classifier, {"auxiliary": "lognormal"}, *labelled(120, 3)),
        "counts": (quick_counts, {}, *counted(120)[:2]),
    }


def predicted(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def refreshed(monkeypatch):
    """The covariances of the models that were trained since, one for each refresh."""
    seen, refresh = [], training._refresh

    def counting(run, *rest):
        seen.append(type(run.model.covariance))
        refresh(run, *rest)

    monkeypatch.setattr(training, "_refresh", counting)
    return seen


@pytest.mark.parametrize("kind", fits())
def test_a_crashed_fit_goes_on_to_the_same_bits(kind, path, monkeypatch):
    make, arguments, X, y = fits()[kind]
    whole = make(**STEPS, **arguments).fit(X, y)
    again = make(**STEPS, **arguments, checkpoint=path)
    crash_after_checkpoint(monkeypatch, lambda: again.fit(X, y))
    assert path.exists()
    again.fit(X, y)
    assert not path.exists()
    np.testing.assert_array_equal(predicted(again, X), predicted(whole, X))
    inner, other = (model._fit.predictor for model in (again, whole))
    np.testing.assert_array_equal(inner.rows.state, other.rows.state)
    assert again.summary_.steps == whole.summary_.steps
    for name, value in other.model.parameters.items():
        np.testing.assert_array_equal(inner.model.parameters[name], value)


def test_another_seed_is_refused_and_none_takes_that_of_the_file(path, monkeypatch):
    X, y = small(200)
    arguments = {**STEPS, "batch_size": 32, "checkpoint": path}
    whole = quick(**{**arguments, "checkpoint": None}, random_state=7).fit(X, y)
    crash_after_checkpoint(monkeypatch, lambda: quick(**arguments, random_state=7).fit(X, y))
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"belongs to a fit with another random_state; delete it, or pass another path"
    ):
        quick(**arguments, random_state=8).fit(X, y)
    assert path.read_bytes() == before
    np.testing.assert_array_equal(quick(**arguments, random_state=None).fit(X, y).predict(X), whole.predict(X))
    assert not path.exists()


def test_a_fit_without_a_seed_is_resumed_with_the_one_it_drew(path, monkeypatch):
    X, y = small(200)
    model = quick(**STEPS, batch_size=32, checkpoint=path, random_state=None)
    crash_after_checkpoint(monkeypatch, lambda: model.fit(X, y))
    seed = read_file(path)[1]["seed"]
    resumed = model.fit(X, y).predict(X)
    family, scaling = model._fit.predictor.model.family, model._target
    observed = family.standardised(family.observe(y, np.ones(200)), scaling)
    again = fitting.fit(X, observed, family, model._settings(), Watch(asked_seed=seed), unit=scaling.scale)
    loc = again.predictor.predict(X, again.inputs)[0].loc
    np.testing.assert_array_equal(scaling.undo(loc), resumed)


CHANGES = {
    "kernel": (quick, {"kernel": "rbf"}, lambda X, y: (X, y, {})),
    "likelihood": (quick, {"likelihood": "student_t"}, lambda X, y: (X, y, {})),
    "mean": (quick, {"mean": "linear"}, lambda X, y: (X, y, {})),
    "rate": (quick, {"learning_rate": 0.01}, lambda X, y: (X, y, {})),
    "k": (quick, {"k": 9}, lambda X, y: (X, y, {})),
    "inputs": (quick, {}, lambda X, y: (X + 1e-9 * X**2, y, {})),
    "target": (quick, {}, lambda X, y: (X, np.where(np.arange(len(y)) == 3, 0.0, y), {})),
    "order": (quick, {}, lambda X, y: (X[::-1], y[::-1], {})),
    "weights": (quick, {}, lambda X, y: (X, y, {"sample_weight": np.arange(len(y)) % 2 + 1})),
    "groups": (quick, {}, lambda X, y: (X, y, {"groups": np.arange(len(y)) // 2})),
    "noise": (quick, {}, lambda X, y: (X, y, {"noise_variance": np.full(len(y), 0.1)})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_data_and_settings_are_told_apart(change, path, monkeypatch):
    X, y = small(120)
    crash_after_checkpoint(monkeypatch, lambda: quick(**STEPS, checkpoint=path).fit(X, y))
    make, arguments, changed = CHANGES[change]
    X, y, more = changed(X, y)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="belongs to a fit with other data or settings"):
        make(**{**STEPS, **arguments}, checkpoint=path).fit(X, y, **more)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("make", "one", "other", "data"),
    [
        (quick_counts, "curvature", "conjugate", counted(120)[:2]),
        (quick_classifier, "conjugate", "lognormal", labelled(120, 3)),
    ],
)
def test_sites_are_told_apart(make, one, other, data, path, monkeypatch):
    crash_after_checkpoint(monkeypatch, lambda: make(**STEPS, auxiliary=one, checkpoint=path).fit(*data))
    with pytest.raises(ValueError, match="other data or settings"):
        make(**STEPS, auxiliary=other, checkpoint=path).fit(*data)


def test_a_crash_in_the_calibration_does_not_train_again(path, monkeypatch, refreshed):
    X, y = small(120)
    whole = quick(**STEPS).fit(X, y)

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learner, "calibrate_either", crash)
        with pytest.raises(KeyboardInterrupt):
            quick(**STEPS, checkpoint=path).fit(X, y)
    assert path.exists()
    refreshed.clear()
    resumed = quick(**STEPS, checkpoint=path).fit(X, y)
    assert refreshed == []
    assert not path.exists()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


def test_a_crash_in_a_later_model_of_a_fit_does_not_train_those_before_again(path, monkeypatch, refreshed):
    """Several outputs: a model with one kernel, then one of mixtures, then one with a kernel for each."""
    X, Y = outputs()
    whole = quick(**STEPS).fit(X, Y)
    order = [Shared, Mixed, PerLatent]
    counts = [refreshed.count(kind) for kind in order]
    assert min(counts) >= 2
    assert refreshed == [kind for kind, count in zip(order, counts, strict=True) for _ in range(count)]
    for place, names in ((1, {"shared", "mixed"}), (2, {"shared", "mixed", "own"})):
        before = sum(counts[:place])
        crash_after_checkpoint(monkeypatch, lambda: quick(**STEPS, checkpoint=path).fit(X, Y), which=before + 1)
        assert set(read_file(path)[1]["runs"]) == names
        refreshed.clear()
        resumed = quick(**STEPS, checkpoint=path).fit(X, Y)
        assert refreshed == [kind for kind in order[place:] for _ in range(counts[order.index(kind)])][1:]
        assert not path.exists()
        np.testing.assert_array_equal(resumed.predict(X, return_cov=True)[1], whole.predict(X, return_cov=True)[1])
        assert resumed.summary_.left_out == whole.summary_.left_out
        assert resumed.summary_.steps == whole.summary_.steps


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_crash_while_models_are_weighed_trains_none_again(which, path, monkeypatch, refreshed):
    """In the calibration of the first, the second or the last of three models."""
    X, Y = outputs()
    whole = quick(**STEPS).fit(X, Y)
    calls, calibrate = [], learner.calibrate_either

    def crash(*rest):
        calls.append(rest)
        if len(calls) == which:
            raise KeyboardInterrupt
        return calibrate(*rest)

    with monkeypatch.context() as patch:
        patch.setattr(learner, "calibrate_either", crash)
        with pytest.raises(KeyboardInterrupt):
            quick(**STEPS, checkpoint=path).fit(X, Y)
    refreshed.clear()
    resumed = quick(**STEPS, checkpoint=path).fit(X, Y)
    assert refreshed == []
    assert not path.exists()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_to_a_checkpoint_stays_and_what_it_leads_to_goes(dangling, path, monkeypatch):
    X, y = small(120)
    link = path.with_name("link")
    link.symlink_to(path)
    crash_after_checkpoint(monkeypatch, lambda: quick(**STEPS, checkpoint=link).fit(X, y))
    assert path.is_file()
    if dangling:
        path.unlink()
    quick(**STEPS, checkpoint=link).fit(X, y)
    assert link.is_symlink()
    assert not path.exists()


def test_a_file_that_is_no_checkpoint_is_left_alone(path):
    X, y = small(120)
    quick(k=8).fit(X, y).save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="other data or settings"):
        quick(**STEPS, checkpoint=path).fit(X, y)
    assert path.read_bytes() == before
    path.write_bytes(before[:100])
    with pytest.raises(ModelFileError):
        quick(**STEPS, checkpoint=path).fit(X, y)
    assert path.read_bytes() == before[:100]


def test_nothing_is_left_of_a_fit_that_had_nothing_to_learn(path):
    X, _ = small(60)
    with pytest.warns(UserWarning, match="the target is constant"):
        quick(checkpoint=path).fit(X, np.full(60, 3.0))
    assert not path.exists()


def test_a_checkpoint_holds_finished_runs_and_the_one_under_way(path):
    """By itself: two runs of one fit, saved in turn, and read again."""
    X, y = small(60)
    inner = quick(k=8).fit(X, y)._fit.predictor
    runs = {}
    one = checkpoint.Checkpoint(path, "print")
    assert one.seed(None, 5) == 5
    for name, steps in (("first", 3), ("second", 4)):
        runs[name] = training.Run(inner.model, inner.rows, None, np.random.default_rng(steps))
        runs[name].progress.steps = steps
        one.save(name, runs[name])
    two = checkpoint.Checkpoint(path, "print")
    assert two.seed(None, 6) == two.seed(5, 6) == 5
    for name, run in runs.items():
        fresh = training.Run(inner.model, inner.rows, None, np.random.default_rng(0))
        two.resume(name, fresh)
        assert fresh.progress == run.progress
        assert fresh.rng.random() == np.random.default_rng(run.progress.steps).random()
    untouched = training.Run(inner.model, inner.rows, None, np.random.default_rng(0))
    two.resume("third", untouched)
    assert untouched.progress == training.Progress()
    two.remove()
    two.remove()  # nothing is there any more
    assert not path.exists()
