"""Fitted models in files, and fits that go on after a crash."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator_data import (
    crash_after_checkpoint,
    load_forged,
    quick,
    quick_classifier,
    quick_counts,
    small,
    through_file,
)

from nearfield import GPRegressor, ModelFileError, TrainingRowsWarning
from nearfield.migration import NEWEST
from nearfield.persistence import FORMAT_VERSION, read_file

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


def test_a_loaded_model_is_the_saved_one(tmp_path):
    X, y = small(500)
    model = quick(k=20).fit(X[:400], y[:400])
    path = tmp_path / "arm.nearfield"
    with pytest.warns(TrainingRowsWarning, match="contains the 400 training rows"):
        model.save(path, extra={"note": [1, "two"]})
    loaded = GPRegressor.load(path)
    for method in ("predict", "predict_interval"):
        np.testing.assert_array_equal(getattr(loaded, method)(X[400:]), getattr(model, method)(X[400:]))
    assert loaded.get_params() == {**model.get_params(), "random_state": None}
    assert loaded.extra_ == {"note": [1, "two"]}
    assert loaded.summary_ == model.summary_
    assert loaded.feature_relevance_ == model.feature_relevance_
    np.testing.assert_array_equal(
        loaded.update(X[400:], y[400:]).predict(X[:50]),
        pickle.loads(pickle.dumps(model)).update(X[400:], y[400:]).predict(X[:50]),
    )


def test_names_survive_the_file(tmp_path):
    X, y = small()
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    quick().fit(table, y).save(tmp_path / "m.nearfield")
    loaded = GPRegressor.load(tmp_path / "m.nearfield")
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(table[["b", "a", "c"]])


@pytest.fixture(scope="module")
def forgeable():
    return quick(k=8).fit(*small(60))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, a: h["estimator"].update(name="GPClassifier"), "holds a 'GPClassifier'"),
        (lambda h, a: h["estimator"].pop("name"), "'name' is missing"),
        (lambda h, a: h["estimator"].update(parameters=[]), "'parameters' should be dict"),
        (lambda h, a: h["estimator"].update(columns=["a"]), "column names do not fit"),
        (lambda h, a: h["estimator"].update(columns=[1, 2, 3]), "column names are no names"),
        (lambda h, a: h.pop("estimator"), "'estimator' is missing"),
        (lambda h, a: h.pop("summary"), "'summary' is missing"),
        (lambda h, a: h.update(target=[]), "'target' should be dict"),
        (lambda h, a: h["model"].update(kernel="evil"), "unknown kernel 'evil'"),
        (lambda h, a: h["model"].update(covariance="odd"), "upgrade"),
        (lambda h, a: h["model"].update(mean="quadratic"), "upgrade"),
        (lambda h, a: h["model"].update(mean="linear"), "parameter.mean_slopes"),
        (lambda h, a: h["model"].update(covariance="mixed"), "parameter.mixing"),
        (lambda h, a: h["model"].update(k=0), "its k is 0"),
        (lambda h, a: h["model"].update(k="many"), "'k'"),
        (lambda h, a: h["model"].update(k=True), "'k'"),
        (lambda h, a: h["family"].update(name="poisson"), "its family is 'poisson'; known are .*Register"),
        (lambda h, a: h["family"].update(name="student_t"), "rows.state"),
        (lambda h, a: h["head"].update(noise_factor=-5.0), "out of range"),
        (lambda h, a: h["head"].update(df=-1.0), "out of range"),
        (lambda h, a: h["head"].update(latent_factor="x"), "latent_factor"),
        (lambda h, a: h["summary"].update(left_out={}), "nll"),
        (lambda h, a: h["summary"].update(rows="many"), "rows"),
        (lambda h, a: h["summary"].update(version=0), "'summary' has version 0"),
        (lambda h, a: h["summary"].update(version="1"), "'version' should be int"),
        (lambda h, a: h["extra"].pop("kept"), "'kept' is missing"),
        (lambda h, a: a["target.scale"].__setitem__((), -1.0), "target.scale"),
        (lambda h, a: a["observed.weight"].__setitem__(0, 0.0), "positive weights"),
        (lambda h, a: a["observed.known_noise"].__setitem__(0, -0.5), "known noise variances"),
        (lambda h, a: a["observed.y"].__setitem__(0, np.inf), "'y' has values that are not finite"),
        (lambda h, a: a.pop("observed.y"), r"its rows have the arrays \['known_noise', 'weight'\]"),
        (lambda h, a: a.update({"observed.odd": np.ones(60)}), "its rows have the arrays"),
        (lambda h, a: a.update({"observed.y": a["observed.y"][:-1]}), "'y' has shape"),
        (lambda h, a: a.update({"rows.state": np.zeros((60, 1))}), "rows.state"),
        (lambda h, a: a["rows.inputs"].__setitem__((0, 0), np.nan), "not finite"),
        (lambda h, a: a.update({"rows.inputs": np.zeros((0, 3))}), "at least one row"),
        (lambda h, a: a["parameter.log_lengths"].__setitem__(0, 1000.0), "outside of"),
        (lambda h, a: a.update({"parameter.log_lengths": np.zeros(7)}), "parameter.log_lengths"),
        (lambda h, a: a.pop("parameter.log_noise"), "parameter.log_noise"),
        (lambda h, a: a.update({"inputs.scale": np.zeros((3, 3))}), "inputs.scale"),
        (lambda h, a: a["target.places"].__setitem__(3, 60), "target.places"),
        (lambda h, a: a["target.places"].__setitem__(3, -1), "target.places"),
        (lambda h, a: a.pop("target.places"), "target.places"),
        (lambda h, a: a.update({"rows.groups": np.zeros(3, np.int64)}), "rows.groups"),
        (lambda h, a: a.update({"rows.groups": np.full(60, -1)}), "rows.groups"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, change, message, forgeable):
    with pytest.raises(ModelFileError, match=message) as caught:
        load_forged(forgeable, tmp_path, change)
    assert "bad.nearfield" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# --- files live long ------------------------------------------------------------------------------------------------


def test_what_later_versions_add_is_passed_over(tmp_path, forgeable):
    """Further sections, fields, parameters of the constructor, head scalars and arrays."""

    def add(sections, arrays):
        sections["weather"] = {"version": 7, "sun": True}
        for name in sections:
            sections[name]["later"] = {"a": [1, None]}
        sections["estimator"]["parameters"]["later"] = 1
        arrays["weather.sun"] = np.ones(3)
        arrays["rows.later"] = np.ones((2, 2))

    X, _ = small(60)
    assert_same_predictions(load_forged(forgeable, tmp_path, add), forgeable, X)


ABSENT = {
    "estimator": ["columns"],
    "summary": ["appended", "mean"],
    "target": ["names", "column"],
}
"""Fields that a file may lack: those that came with a later version, or say nothing but a default."""


@pytest.mark.parametrize(("section", "field"), [(name, field) for name, fields in ABSENT.items() for field in fields])
def test_what_a_file_lacks_has_its_default(tmp_path, forgeable, section, field):
    X, _ = small(60)
    loaded = load_forged(forgeable, tmp_path, lambda sections, arrays: sections[section].pop(field))
    assert_same_predictions(loaded, forgeable, X)
    assert loaded.summary_ == forgeable.summary_


@pytest.mark.parametrize("name", [*quick().get_params(), None])
def test_a_parameter_that_a_file_lacks_has_its_default(tmp_path, forgeable, name):
    """None: all of them."""
    X, _ = small(60)

    def drop(sections, arrays):
        given = sections["estimator"]["parameters"]
        for own in list(given) if name is None else [name]:
            given.pop(own, None)

    loaded = load_forged(forgeable, tmp_path, drop)
    assert_same_predictions(loaded, forgeable, X)
    defaults = GPRegressor().get_params()
    for own in defaults if name is None else [name]:
        assert loaded.get_params()[own] == defaults[own]


def test_a_constructor_may_grow_an_argument(tmp_path, forgeable):
    """Files of before have its default, and files with it keep what was set."""

    class Grown(GPRegressor):
        def __init__(self, kernel="matern52", k="auto", predictive="calibrated", *, colour="blue",
                     likelihood="gaussian", outputs="lmc", n_latents=None, objective="loo", ordering="random",
                     max_steps=600, learning_rate=0.03, batch_size=128, refresh_every=50, mean="constant",
                     engine="deprecated", checkpoint=None, verbose=None, random_state=None):  # fmt: skip
            super().__init__(
                kernel, k, predictive, likelihood=likelihood, outputs=outputs, n_latents=n_latents, objective=objective,
                ordering=ordering, max_steps=max_steps, learning_rate=learning_rate, batch_size=batch_size,
                refresh_every=refresh_every, mean=mean, engine=engine, checkpoint=checkpoint, verbose=verbose,
                random_state=random_state,
            )  # fmt: skip
            self.colour = colour

    Grown.__name__ = "GPRegressor"
    X, _ = small(60)
    forgeable.save(tmp_path / "old.nearfield")
    loaded = Grown.load(tmp_path / "old.nearfield")
    assert loaded.colour == "blue"
    assert_same_predictions(loaded, forgeable, X)
    loaded.set_params(colour="red")
    assert through_file(loaded, tmp_path).colour == "red"
    assert_same_predictions(GPRegressor.load(tmp_path / "model.nearfield"), forgeable, X)  # and the way back


@pytest.mark.parametrize("name", [name for name in NEWEST if name != "table"])
def test_a_section_of_a_newer_version_asks_to_upgrade(tmp_path, forgeable, name):
    later = NEWEST[name] + 1
    with pytest.raises(ModelFileError, match=rf"section '{name}' has version {later} .*upgrade nearfield") as caught:
        load_forged(forgeable, tmp_path, lambda sections, arrays: sections[name].update(version=later))
    assert "bad.nearfield" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_of_a_newer_version_asks_to_upgrade(tmp_path, forgeable, monkeypatch):
    monkeypatch.setattr("nearfield.persistence.FORMAT_VERSION", FORMAT_VERSION + 1)
    forgeable.save(tmp_path / "later.nearfield")
    monkeypatch.undo()
    later = FORMAT_VERSION + 1
    with pytest.raises(ModelFileError, match=rf"format version {later} .*upgrade nearfield") as caught:
        GPRegressor.load(tmp_path / "later.nearfield")
    assert len(str(caught.value).splitlines()) == 1


def assert_same_predictions(model, other, X):
    np.testing.assert_array_equal(np.stack(model.predict(X, True)), np.stack(other.predict(X, True)))
    np.testing.assert_array_equal(model.predict_interval(X), other.predict_interval(X))
    np.testing.assert_array_equal(np.stack(model.loo_), np.stack(other.loo_))


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_saving_what_was_loaded_gives_the_same_file(tmp_path, mean):
    """To the last byte, so nothing is lost on the way; with groups, weights and rows that were appended."""
    X, y = small(80)
    model = quick(k=8, mean=mean).fit(X[:60], y[:60], sample_weight=np.arange(60) % 3 + 1.0, groups=np.arange(60) // 2)
    model.update(X[60:], y[60:])
    model.save(tmp_path / "a", extra={"note": 1})
    GPRegressor.load(tmp_path / "a").save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_no_seed_path_or_deprecated_argument_is_saved(tmp_path):
    """None of them changes what a model predicts."""
    model = quick(k=8, checkpoint=tmp_path / "c", verbose=False, random_state=3).fit(*small(60))
    model.save(tmp_path / "m")
    _, header, _ = read_file(tmp_path / "m")
    saved = header["sections"]["estimator"]["parameters"]
    assert set(model.get_params()) - set(saved) == {"cache", "checkpoint", "verbose", "random_state", "engine"}


# --- models that were not trained -----------------------------------------------------------------------------------


def untrained():
    """Fits whose training was skipped: a few rows, or a target that is constant."""
    X, y = small(40, 2)
    yield quick(), X[:1], y[:1]
    yield quick(), X[:6], y[:6]
    yield quick(likelihood="student_t"), X[:6], y[:6]
    yield quick(), X, np.full(40, 2.5)
    yield quick(outputs="shared"), X[:6], np.stack([y, -y], axis=1)[:6]
    yield quick_classifier(), X[:4], np.array([0, 1, 1, 0])
    yield quick_classifier(auxiliary="conjugate"), X[:4], np.array([0, 1, 2, 0])
    yield quick_classifier(auxiliary="lognormal"), X[:4], np.array([0, 1, 2, 0])
    yield quick_counts(), X, np.full(40, 3)
    yield quick_counts(), X, np.zeros(40)
    yield quick_counts(auxiliary="conjugate"), X[:5], np.arange(5)


@pytest.mark.filterwarnings("ignore:.*constant|.*few for")
@pytest.mark.parametrize(("model", "X", "y"), list(untrained()))
def test_models_that_were_not_trained_survive_the_file(model, X, y, tmp_path):
    model.fit(X, y)
    assert model.summary_.steps == 0
    assert "Nothing was trained" in str(model.summary_)
    loaded = through_file(model, tmp_path)
    assert loaded.summary_ == model.summary_
    predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    np.testing.assert_array_equal(getattr(loaded, predict)(X), getattr(model, predict)(X))
    for ours, theirs in zip(loaded.loo_, model.loo_, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    more = np.linspace(0, 1, 4).reshape(2, 2)
    updated = [getattr(m.update(more, y[:1].repeat(2, axis=0)), predict)(X) for m in (model, loaded)]
    np.testing.assert_array_equal(*updated)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_a_crashed_fit_resumes_from_its_checkpoint(tmp_path, monkeypatch):
    X, y = small(300)
    path = tmp_path / "fit.checkpoint"
    arguments = {"max_steps": 40, "refresh_every": 10, "k": 10, "random_state": 0, "checkpoint": path}
    whole = GPRegressor(**arguments).fit(X, y)
    assert not path.exists()
    crash_after_checkpoint(monkeypatch, lambda: GPRegressor(**arguments).fit(X, y))
    assert path.exists()
    with pytest.raises(ValueError, match="other data or settings"):
        GPRegressor(**arguments).fit(X + 1, y * 2 + X[:, 1])
    with pytest.raises(ValueError, match="belongs to a fit with another random_state"):
        GPRegressor(**{**arguments, "random_state": 1}).fit(X, y)
    resumed = GPRegressor(**{**arguments, "random_state": None}).fit(X, y)  # with the seed of the file
    assert not path.exists()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


def test_settings_changed_after_the_fit_do_not_change_the_file(tmp_path):
    X, y = small()
    model = quick(k=16).fit(X, y)
    model.set_params(kernel="rational_quadratic", k=3).save(tmp_path / "m.nearfield")
    loaded = GPRegressor.load(tmp_path / "m.nearfield")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.get_params()["kernel"] == "rational_quadratic"
