"""`--noise-variance`: known noise of rows on the command line, against the estimator."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pytest
from cli_runs import failed, runner, short_training, write

from nearfield import GPRegressor


@pytest.fixture
def run(capsys):
    return runner(capsys)


def table(n: int = 80, seed: int = 0) -> pa.Table:
    """Two targets whose noise varies from row to row; some rows have no target."""
    rng = np.random.default_rng(seed)
    x, v, w = rng.uniform(-2, 2, n), rng.uniform(0.01, 0.3, n), rng.uniform(0.01, 0.1, n)
    y = np.sin(2 * x) + np.sqrt(v) * rng.standard_normal(n)
    z = x + np.sqrt(w) * rng.standard_normal(n)
    gaps = [None if i % 5 == 0 else value for i, value in enumerate(y)]
    return pa.table({"x": x, "y": gaps, "v": v, "z": z, "w": w, "label": np.where(y > 0, "up", "down")})


def rows_of(result):
    return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(result.out))]


@pytest.fixture
def rows(tmp_path):
    return write(tmp_path / "rows.csv", table())


def fitted(run, rows, *options):
    model = rows.parent / "model"
    with short_training():
        result = run("fit", rows, "--out", model, "--quiet", "--drop", "label", *options)
    assert result.code == 0, result.err
    return model


def test_a_column_is_known_noise_and_no_feature(run, rows):
    model = fitted(run, rows, "--target", "y", "--noise-variance", "v", "--drop", "z", "--drop", "w")
    own, loaded = table(), GPRegressor.load(model)
    assert loaded.encoder_.needed == ["x"]
    there = np.arange(80) % 5 > 0
    known = loaded._fit.predictor.rows.observed["known_noise"] * loaded.target_std_**2
    np.testing.assert_allclose(np.sort(known), np.sort(own["v"].to_numpy()[there]), rtol=1e-6)
    result = run("predict", model, rows, "--noise-variance", "v", "--block-rows", 30)
    assert result.code == 0
    assert result.err == ""
    wanted = loaded.predict_dist(own.select(["x"]).to_pandas(), noise_variance=own["v"].to_numpy())
    np.testing.assert_allclose([row["std"] for row in rows_of(result)], wanted.std(), rtol=1e-9)
    found = json.loads(run("evaluate", model, rows, "--noise-variance", "v", "--json").out)
    y = np.array(own["y"].to_pylist(), dtype=float)
    np.testing.assert_allclose(found["model"]["nll"], -wanted.logpdf(y)[there].mean(), rtol=1e-9)


def test_a_number_is_that_of_all_rows(run, rows):
    model = fitted(run, rows, "--target", "y", "--noise-variance", "0.2", "--drop", "z")
    wide, narrow = (
        np.array([row["std"] for row in rows_of(run("predict", model, rows, "--noise-variance", value))])
        for value in ("0.5", "0")
    )
    assert (wide > narrow + 0.1).all()
    wanted = GPRegressor.load(model).predict_dist(table().select(["x", "v", "w"]).to_pandas(), noise_variance=0.5)
    np.testing.assert_allclose(wide, wanted.std(), rtol=1e-9)


def test_noise_that_is_missing_is_told_once(run, rows):
    model = fitted(run, rows, "--target", "y", "--noise-variance", "v")
    without = run("predict", model, rows, "--block-rows", 20)
    assert without.code == 0
    assert without.err.count("nearfield: warning: ") == 1
    assert "fitted with --noise-variance, and this command comes without" in without.err
    assert rows_of(without) == rows_of(run("predict", model, rows, "--noise-variance", "0"))
    assert run("evaluate", model, rows, "--json").err.count("comes without") == 1
    plain = fitted(run, rows, "--target", "y", "--drop", "v")
    assert run("predict", plain, rows).err == ""


@pytest.mark.parametrize("outputs", ["lmc", "shared"])
def test_several_targets_have_noise_each(run, rows, outputs):
    targets = ["--target", "y", "--target", "z"]
    noise = ["--noise-variance", "v", "--noise-variance", "w"]
    model = fitted(run, rows, *targets, *noise, "--outputs", outputs)
    own, loaded = table(), GPRegressor.load(model)
    given = np.stack([own["v"], own["w"]], axis=1)
    result = run("predict", model, rows, *noise)
    wanted = loaded.predict_dist(own.select(["x"]).to_pandas(), noise_variance=given)
    found = [[row["y_std"], row["z_std"]] for row in rows_of(result)]
    np.testing.assert_allclose(found, wanted.std(), rtol=1e-9)
    scores = json.loads(run("evaluate", model, rows, *noise, "--json").out)
    y = np.stack([np.array(own["y"].to_pylist(), dtype=float), own["z"].to_numpy()], axis=1)
    wanted_joint = -loaded.log_score(own.select(["x"]).to_pandas(), y, joint=True, noise_variance=given)
    np.testing.assert_allclose(scores["joint_nll"], wanted_joint, rtol=1e-9)
    assert run("predict", model, rows, "--noise-variance", "0.1").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--noise-variance", "q"], "--noise-variance is 'q', which is no column of the table and no number"),
        (["--noise-variance", "-1"], "--noise-variance is -1; a number of at least 0 is expected"),
        (["--noise-variance", "nan"], "--noise-variance is nan; a number of at least 0 is expected"),
        (["--noise-variance", "y"], "--noise-variance is 'y', which is a target"),
        (["--noise-variance", "x"], "The noise variance 'x' is -"),
        (["--noise-variance", "label"], "The noise variance 'label'"),
        (["--noise-variance", "v", "--noise-variance", "w"], "given 2 times for 1 targets"),
        (["--target", "z", "--noise-variance", "v"], "is the column 'v' for 2 targets: give one for each"),
    ],
)
def test_mistakes_are_named(run, rows, tmp_path, options, message):
    failed(run("fit", rows, "--target", "y", "--out", tmp_path / "none", *options), message)
    assert not (tmp_path / "none").exists()


def test_classes_and_counts_have_none(run, rows, tmp_path):
    result = run("fit", rows, "--target", "label", "--out", tmp_path / "none", "--noise-variance", "v")
    failed(result, "--noise-variance is for targets that are numbers, and this one is a label")
    model = tmp_path / "model"
    with short_training():
        assert run("fit", rows, "--target", "label", "--drop", "y", "--out", model, "--quiet").code == 0
    failed(run("predict", model, rows, "--noise-variance", "1"), "is for targets that are numbers")


def test_rows_without_a_target_need_no_variance(run, tmp_path):
    own = table()
    v = [None if y is None else value for y, value in zip(own["y"].to_pylist(), own["v"].to_pylist(), strict=True)]
    holes = own.set_column(2, "v", pa.array(v))
    rows = write(tmp_path / "rows.csv", holes)
    model = fitted(run, rows, "--target", "y", "--noise-variance", "v")
    assert run("evaluate", model, rows, "--noise-variance", "v").code == 0
    failed_row = run("predict", model, rows, "--noise-variance", "v")
    assert failed_row.code == 2
    assert "The noise variance 'v' is missing in row 1" in failed_row.err
    several = fitted(run, rows, "--target", "y", "--target", "z", "--noise-variance", "v", "--noise-variance", "w")
    assert run("evaluate", several, rows, "--noise-variance", "v", "--noise-variance", "w").code == 0
