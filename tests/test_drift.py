"""A linear mean of some columns: what geostatistics calls a drift."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from cli_runs import runner

from nearfield import GPClassifier, GPCountRegressor, GPRegressor
from nearfield.means import Linear
from nearfield.persistence import ModelFileError, read_file, write_file

SETTINGS = {"random_state": 0, "verbose": False}


def rows(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, 3 * X[:, 1] + np.sin(4 * X[:, 0]) + 0.05 * rng.standard_normal(n)


def test_a_linear_mean_of_some_columns():
    rng = np.random.default_rng(1)
    X, by = rng.standard_normal((2, 5, 4))[0], rng.standard_normal((5, 2))
    own, whole = Linear((2, 0)), Linear()
    assert own.parameters(2, 4)["mean_slopes"].shape == (2, 2)
    p = {"mean": rng.standard_normal(2), "mean_slopes": rng.standard_normal((2, 2))}
    every = {**p, "mean_slopes": own.slopes_of_all(p, 4)}
    assert np.array_equal(every["mean_slopes"][:, [2, 0]], p["mean_slopes"])
    assert not every["mean_slopes"][:, [1, 3]].any()
    np.testing.assert_allclose(own.at(X, p), whole.at(X, every), rtol=1e-14)
    found = own.slopes(X, by)["mean_slopes"]
    np.testing.assert_allclose(found, whole.slopes(X, by)["mean_slopes"][:, [2, 0]], rtol=1e-12)
    assert own.penalty(p)[0] == pytest.approx(whole.penalty(every)[0])


def test_the_trend_goes_on_along_the_drift_alone(tmp_path):
    X, y = rows()
    model = GPRegressor(drift=[1], **SETTINGS).fit(X, y)
    assert model.mean_slopes_[1] == pytest.approx(3, rel=0.1)
    assert model.mean_slopes_[[0, 2]].tolist() == [0, 0]
    far = np.array([[0.0, 20.0, 0.0], [0.0, 40.0, 0.0]])
    assert np.diff(model.predict(far))[0] == pytest.approx(60, rel=0.1)
    with pytest.warns(UserWarning, match="training rows"):
        model.save(tmp_path / "model")
    again = GPRegressor.load(tmp_path / "model")
    assert np.array_equal(again.predict(far), model.predict(far))
    assert again.drift == [1]
    assert "linear mean" in str(again.summary_)
    _, header, arrays = read_file(tmp_path / "model")
    for wrong in ([], [7], [0, 0], "x", [True], 3, [0, 1]):
        header["sections"]["model"]["drift"] = wrong
        write_file(tmp_path / "model", header, arrays)
        with pytest.raises(ModelFileError):
            GPRegressor.load(tmp_path / "model")


def test_all_columns_are_the_linear_mean():
    X, y = rows(80)
    new = X + 1
    a = GPRegressor(drift=[0, 1, 2], **SETTINGS).fit(X, y)
    b = GPRegressor(mean="linear", **SETTINGS).fit(X, y)
    np.testing.assert_allclose(a.predict(new), b.predict(new), rtol=1e-5)
    np.testing.assert_allclose(a.mean_slopes_, b.mean_slopes_, rtol=1e-5, atol=1e-7)


def test_a_drift_in_space_is_one_of_all_coordinates():
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(9, 11, 120), rng.uniform(49, 51, 120), rng.standard_normal(120)])
    model = GPRegressor(coordinates={"lonlat": [0, 1]}, drift=[1], **SETTINGS)
    model.fit(X, 5 * X[:, 1] + 0.1 * rng.standard_normal(120))
    assert model._fit.predictor.model.mean == Linear((0, 1, 3))
    assert model.mean_slopes_[:3] == pytest.approx([0, 5, 0], abs=0.5)


@pytest.mark.parametrize("kind", [GPClassifier, GPCountRegressor])
def test_labels_and_counts_drift_too(kind):
    X, y = rows(60)
    model = kind(drift=[1], max_steps=2, **SETTINGS).fit(X, (y > 0).astype(int))
    assert model._fit.predictor.model.mean == Linear((1,))


def test_columns_that_cannot_drift():
    X, y = rows(30)
    for drift, message in (("x1", "expected names"), (["x9"], "not there"), ([], "no columns in use"), ([3], "0 to 2")):
        with pytest.raises(ValueError, match=message):
            GPRegressor(drift=drift, max_steps=1, **SETTINGS).fit(X, y)


@pytest.mark.usefixtures("brief_training")
def test_the_command_line_drifts(tmp_path, capsys):
    (X, y), run = rows(60), runner(capsys)
    table, model = tmp_path / "t.csv", tmp_path / "m.nearfield"
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_csv(table, index=False)
    assert run("fit", table, "--target", "y", "--out", model, "--drift", "b", "--drift", "c").code == 0
    assert json.loads(run("info", model, "--json").out)["summary"]["mean"] == "linear"
    assert GPRegressor.load(model).drift == ["b", "c"]
    done = run("fit", table, "--target", "y", "--out", model, "--drift", "q")
    assert done.code == 2
    assert "'q' that is not there" in done.err
