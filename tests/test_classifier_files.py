"""GPClassifier with tables, pipelines and files."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_data import (
    assert_probabilities,
    crash_after_checkpoint,
    labelled,
    load_forged,
    quick_classifier,
    through_file,
)
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfield import ModelFileError
from nearfield.families.classes import SITES as AUXILIARY

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

NAMES = np.array(["ant", "bee", "ü"])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_and_column_names(frame, tmp_path):
    X, y = labelled()
    table = frame({"depth": X[:, 0], "speed": X[:, 1]})
    model = quick_classifier().fit(table, y)
    assert list(model.feature_names_in_) == list(model.feature_relevance_) == ["depth", "speed"]
    np.testing.assert_array_equal(model.predict_proba(table), quick_classifier().fit(X, y).predict_proba(X))
    loaded = through_file(model, tmp_path)
    for fitted in (model, loaded):
        with pytest.raises(ValueError, match=r"(?s)unseen at fit time:\n- sped\n.*yet now missing:\n- speed"):
            fitted.predict(frame({"depth": X[:, 0], "sped": X[:, 1]}))


def test_pickle_clone_and_grid_search():
    X, y = labelled(100, classes=3)
    names = NAMES[y]
    model = quick_classifier(auxiliary="conjugate").fit(X, names)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "classes_")
    pipeline = make_pipeline(StandardScaler(), quick_classifier())
    search = GridSearchCV(pipeline, {"gpclassifier__k": [5, 20]}, cv=2, scoring="neg_log_loss").fit(X, names)
    assert -1.2 < search.best_score_ < 0


@pytest.mark.parametrize("auxiliary", AUXILIARY)
@pytest.mark.parametrize("class_kernels", ["shared", "own"])
@pytest.mark.parametrize("predictive", ["calibrated", "plain"])
def test_a_loaded_model_is_the_saved_one(auxiliary, class_kernels, predictive, tmp_path):
    X, y = labelled(60, classes=3)
    arguments = {"auxiliary": auxiliary, "class_kernels": class_kernels, "predictive": predictive, "k": 10}
    model = quick_classifier(**arguments).fit(X, y)
    loaded = through_file(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.loo_.probability, model.loo_.probability)
    np.testing.assert_array_equal(loaded.length_scales_, model.length_scales_)
    assert loaded.get_params() == {**model.get_params(), "random_state": None}
    assert loaded.summary_ == model.summary_


def test_weighted_and_equal_rows_survive_the_file(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (80, 2)).astype(float), rng.integers(0, 3, 80)
    model = quick_classifier().fit(X, y, sample_weight=rng.integers(0, 3, 80) + 0.25)
    loaded = through_file(model, tmp_path)
    np.testing.assert_array_equal(loaded.loo_.probability, model.loo_.probability)
    np.testing.assert_array_equal(loaded.loo_.log_score, model.loo_.log_score)


def classes_of(*labels):
    return lambda header, arrays: header["target"].update(classes=list(labels))


def kind_of(kind):
    return lambda header, arrays: header["target"].update(kind=kind)


def place(number):
    return lambda header, arrays: arrays["target.places"].__setitem__(3, number)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (classes_of("a", "b"), "labels"),
        (classes_of("a", "b", "c", "d"), "labels"),
        (classes_of("a", "b", ["c"]), "labels"),
        (classes_of("a", "b", None), "labels"),
        (classes_of("a", "b", {}), "labels"),
        (classes_of("a", "c", "b"), "labels"),
        (classes_of("a", "a", "b"), "labels"),
        (classes_of("a", "b", 3), "labels"),
        (lambda h, a: h["target"].update(classes="abc"), "classes"),
        (lambda h, a: h["target"].pop("classes"), "classes"),
        (kind_of("<i8"), "labels"),
        (kind_of("nonsense"), "labels"),
        (kind_of("V8"), "labels"),
        (kind_of("M8[s]"), "labels"),
        (kind_of("i4,i4"), "labels"),
        (kind_of("U999999999"), "labels"),
        (kind_of(7), "kind"),
        (lambda h, a: h["target"].update(classes=[1, 2, 2**70], kind="<i8"), "labels"),
        (lambda h, a: h["target"].update(classes=[0.1, 0.2, 0.3], kind="<i8"), "labels"),
        (lambda h, a: h["target"].update(classes=[1, 2, 300], kind="|u1"), "labels"),
        (lambda h, a: h["target"].update(classes=[0, 1, 2], kind="|b1"), "labels"),
        (place(-1), "target.places"),
        (place(60), "target.places"),
        (lambda h, a: a.pop("target.places"), "target.places"),
        (lambda h, a: a.update({"target.places": a["target.places"].astype(float)}), "target.places"),
        (lambda h, a: a.update({"target.places": a["target.places"][:, None]}), "target.places"),
        (lambda h, a: h.update(target=[]), "target"),
        (lambda h, a: h["family"].update(name="poisson"), "its family is 'poisson'"),
        (lambda h, a: h["family"].update(name="bernoulli"), "classes"),
        (lambda h, a: h["family"].update(name="gaussian"), "rows.state"),
        (lambda h, a: h["family"].update(name="binomial", auxiliary="conjugate"), "rows.state"),
        (lambda h, a: h["family"].update(classes=2), "rows.state|classes"),
        (lambda h, a: h["family"].update(classes=-3), "classes"),
        (lambda h, a: h["family"].update(classes=10**12), "rows.state|counts|classes"),
        (lambda h, a: h["family"].update(auxiliary="gibbs"), "gibbs"),
        (lambda h, a: h["family"].update(auxiliary="tied"), "rows.state"),
        (lambda h, a: h["family"].update(auxiliary="lognormal"), "rows.state"),
        (lambda h, a: a.update({"rows.state": a["rows.state"][:, :2]}), "rows.state"),
        (lambda h, a: a.update({"rows.state": a["rows.state"][:-1]}), "rows.state"),
        (lambda h, a: a["rows.state"].__setitem__((0, 0), np.inf), "rows.state"),
        (lambda h, a: a["observed.counts"].__setitem__((0, slice(None)), 0.0), "do not count"),
        (lambda h, a: a["observed.counts"].__setitem__((0, 0), -1.0), "counts of 3 classes"),
        (lambda h, a: a["observed.counts"].__setitem__((slice(None), slice(1, 3)), 0.0), "do not count"),
        (lambda h, a: a["head.shares"].__setitem__(0, -0.5), "its head"),
        (lambda h, a: a["head.shares"].__setitem__(slice(None), 0.0), "head"),
        (lambda h, a: a.update({"head.offsets": np.zeros(2)}), "its head has shares"),
        (lambda h, a: h["head"].update(log_slope=None), "log_slope"),
        (lambda h, a: a.update({"parameter.log_lengths": np.zeros((2, 2))}), "parameter.log_lengths"),
        (lambda h, a: a["parameter.mean"].__setitem__(0, 1e9), "parameter.mean"),
        (lambda h, a: h["estimator"].update(name="GPRegressor"), "holds a 'GPRegressor'"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, change, message, forgeable):
    with pytest.raises(ModelFileError, match=message) as caught:
        load_forged(forgeable, tmp_path, change)
    assert "bad.nearfield" in str(caught.value)


@pytest.fixture(scope="module")
def forgeable():
    X, y = labelled(60, classes=3)
    return quick_classifier(auxiliary="conjugate", k=10).fit(X, NAMES[y])


@pytest.mark.parametrize("name", ["log_slope", "log_spread", "log_power", "coupling", "offsets"])
@pytest.mark.parametrize("value", [1e308, -1e308, 20.0, -20.0])
def test_a_forged_head_is_refused_or_gives_probabilities(tmp_path, name, value, forgeable):
    def change(header, arrays):
        if name == "offsets":
            arrays["head.offsets"][0] = value
        else:
            header["head"][name] = value

    if abs(value) > 1e300:
        with pytest.raises(ModelFileError, match="out of range"):
            load_forged(forgeable, tmp_path, change)
    else:
        assert_probabilities(load_forged(forgeable, tmp_path, change).predict_proba(labelled(60)[0]), 60, 3)


@pytest.mark.parametrize("auxiliary", AUXILIARY)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_crashed_fit_resumes_from_its_checkpoint(auxiliary, classes, tmp_path, monkeypatch):
    X, y = labelled(400, classes)
    path = tmp_path / "fit.checkpoint"
    arguments = {"auxiliary": auxiliary, "max_steps": 40, "refresh_every": 10, "k": 10, "checkpoint": path}
    whole = quick_classifier(**arguments).fit(X, y)
    assert not path.exists()
    crash_after_checkpoint(monkeypatch, lambda: quick_classifier(**arguments).fit(X, y))
    assert path.exists()
    with pytest.raises(ValueError, match="other data or settings"):
        quick_classifier(**arguments).fit(X, 1 - (y > 0))
    other = next(name for name in AUXILIARY if name != auxiliary)
    with pytest.raises(ValueError, match="other data or settings"):
        quick_classifier(**{**arguments, "auxiliary": other}).fit(X, y)
    resumed = quick_classifier(**arguments).fit(X, y)
    assert not path.exists()
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(resumed.loo_.probability, whole.loo_.probability)
