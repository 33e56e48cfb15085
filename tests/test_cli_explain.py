"""`nearfield predict --explain`: the rows of the training table that predictions come from."""

from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from cli_runs import failed, runner, short_training, write

from nearfield import GPRegressor


@pytest.fixture
def run(capsys):
    return runner(capsys)


def table(n: int = 40) -> pa.Table:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n)
    y = np.sin(3 * x)
    gaps = [None if i % 4 == 0 else value for i, value in enumerate(y)]
    return pa.table({"x": x, "z": rng.standard_normal(n), "y": gaps, "label": np.where(y > 0, "up", "down")})


def test_neighbours_are_rows_of_the_training_table(run, tmp_path):
    rows, model = write(tmp_path / "rows.csv", table()), tmp_path / "model"
    assert run("fit", rows, "--target", "y", "--drop", "label", "--out", model, "--quiet").code == 0
    result = run("predict", model, rows, "--explain", 3)
    assert result.code == 0, result.err
    found = list(csv.DictReader(io.StringIO(result.out)))
    assert [name for name in found[0] if name.startswith(("neighbour", "weight", "change"))] == [
        f"{name}_{place}" for place in (1, 2, 3) for name in ("neighbour", "weight", "change")
    ]
    numbers = np.array([[int(row[f"neighbour_{place}"]) - 1 for place in (1, 2, 3)] for row in found])
    assert (numbers % 4 > 0).all()  # rows without a target are no neighbours
    own = np.flatnonzero(np.arange(40) % 4)  # without noise, a row with a target is the neighbour that matters most
    assert np.mean(numbers[own, 0] == own) > 0.8
    estimator = GPRegressor.load(model)
    wanted = estimator.explain(table().select(["x", "z"]).to_pandas(), 3)
    np.testing.assert_allclose([float(row["weight_1"]) for row in found], wanted.weights[:, 0], rtol=1e-12)
    np.testing.assert_array_equal([int(row["neighbour_2"]) for row in found], wanted.neighbours[:, 1] + 1)
    np.testing.assert_allclose([float(row["change_3"]) for row in found], wanted.changes[:, 2], rtol=1e-12)


def test_few_rows_leave_cells_empty(run, tmp_path):
    rows, model = write(tmp_path / "rows.csv", table(12)), tmp_path / "model"
    assert run("fit", rows, "--target", "label", "--drop", "y", "--out", model, "--quiet").code == 0
    out = tmp_path / "out.parquet"
    assert run("predict", model, rows, "--explain", 13, "--out", out).code == 0
    import pyarrow.parquet

    found = pyarrow.parquet.read_table(out)
    assert found.column("neighbour_13").null_count == found.column("change_13").null_count == 12
    assert found.column("neighbour_12").null_count == 0


def test_mistakes_are_named(run, tmp_path):
    rows, model = write(tmp_path / "rows.csv", table().drop_columns(["label"])), tmp_path / "model"
    with short_training():
        assert run("fit", rows, "--target", "y", "--target", "z", "--out", model, "--quiet").code == 0
    failed(run("predict", model, rows, "--explain", 3), "--explain is for one target", "predicts several")
    failed(run("predict", model, rows, "--explain", 0), "--explain")
