"""Fitted models in files, and fits that go on after a crash."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator_data import quick, small

from nearfield import GPRegressor, ModelFileError, TrainingRowsWarning
from nearfield.persistence import read_file, write_file

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, a: h.update(estimator="GPClassifier"), "holds a 'GPClassifier'"),
        (lambda h, a: h["summary"].update(kernel="evil"), "unknown kernel 'evil'"),
        (lambda h, a: h.update(engine="gpu"), "its engine 'gpu'"),
        (lambda h, a: h["head"].update(noise_factor=-5.0), "out of range"),
        (lambda h, a: h["head"].update(df=-1.0), "out of range"),
        (lambda h, a: h["head"].update(latent_factor="x"), "latent_factor"),
        (lambda h, a: h["summary"].update(left_out={}), "nll"),
        (lambda h, a: h["summary"].update(rows="many"), "rows"),
        (lambda h, a: a["target.scale"].__setitem__((), -1.0), "target.scale"),
        (lambda h, a: a["rows.stats"].__setitem__((0, 1), 0.0), "rows.stats"),
        (lambda h, a: a["rows.stats"].__setitem__((0, 2), -0.5), "rows.stats"),
        (lambda h, a: a["hyper.log_lengths"].__setitem__(0, 1000.0), "outside of"),
        (lambda h, a: h["parameters"].pop("k"), "parameters are"),
        (lambda h, a: h.update(k=0), "its k is 0"),
        (lambda h, a: h.update(k="many"), "'k'"),
        (lambda h, a: h["head"].update(shift=1.0), "its head has the fields"),
        (lambda h, a: h.update(columns=["a"]), "column names do not fit"),
        (lambda h, a: a.pop("rows.stats"), "rows.stats"),
        (lambda h, a: a.update({"rows.stats": a["rows.stats"][:-1]}), "rows.stats"),
        (lambda h, a: a["rows.inputs"].__setitem__((0, 0), np.nan), "not finite"),
        (lambda h, a: a.update({"hyper.log_lengths": np.zeros(7)}), "hyper.log_lengths"),
        (lambda h, a: a.update({"inputs.scale": np.zeros((3, 3))}), "inputs.scale"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, change, message):
    X, y = small(30)
    quick().fit(X, y).save(tmp_path / "m.nearfield")
    header, arrays = read_file(tmp_path / "m.nearfield")
    change(header, arrays)
    write_file(tmp_path / "bad.nearfield", header, arrays)
    with pytest.raises(ModelFileError, match=message) as caught:
        GPRegressor.load(tmp_path / "bad.nearfield")
    assert "bad.nearfield" in str(caught.value)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_a_crashed_fit_resumes_from_its_checkpoint(tmp_path, monkeypatch):
    X, y = small(600)
    path = tmp_path / "fit.checkpoint"
    arguments = {"max_steps": 60, "refresh_every": 10, "random_state": 0, "checkpoint": path}
    whole = GPRegressor(**arguments).fit(X, y)
    assert not path.exists()
    from nearfield import fitting

    writes = []

    def write_then_crash(*args):
        write_file(*args)
        writes.append(args)
        if len(writes) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "write_file", write_then_crash)
        with pytest.raises(KeyboardInterrupt):
            GPRegressor(**arguments).fit(X, y)
    assert path.exists()
    with pytest.raises(ValueError, match="belongs to other data or settings"):
        GPRegressor(**arguments).fit(X + 1, y * 2 + X[:, 1])
    resumed = GPRegressor(**arguments).fit(X, y)
    assert not path.exists()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


def test_settings_changed_after_the_fit_do_not_change_the_file(tmp_path):
    X, y = small()
    model = quick().fit(X, y)
    model.set_params(kernel="rational_quadratic", k=3).save(tmp_path / "m.nearfield")
    loaded = GPRegressor.load(tmp_path / "m.nearfield")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.get_params()["kernel"] == "rational_quadratic"
