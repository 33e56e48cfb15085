"""`nearfield report`: a page from a model file, with and without a test table."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from cli_runs import failed, runner, short_training, write

pytest.importorskip("jinja2", reason="pages need Jinja2")


@pytest.fixture
def run(capsys):
    return runner(capsys)


def table(n: int = 150, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    y = np.sin(3 * x) + 0.2 * rng.standard_normal(n)
    gaps = [None if i % 10 == 0 else value for i, value in enumerate(y)]
    counts = rng.poisson(np.exp(y))
    return pa.table(
        {
            "x": x, "z": rng.standard_normal(n), "y": gaps, "label": np.where(y > 0, "up", "down"), "count": counts,
            "time": rng.uniform(1, 3, n),
        }
    )  # fmt: skip


def fitted(run, folder, *options):
    rows, model = write(folder / "rows.csv", table()), folder / "model.nearfield"
    with short_training():
        assert run("fit", rows, *options, "--out", model, "--quiet").code == 0
    return model


def test_a_page_and_its_numbers(run, tmp_path):
    model = fitted(run, tmp_path, "--target", "y", "--drop", "label", "--drop", "count", "--drop", "time")
    test = write(tmp_path / "test.csv", table(seed=1))
    result = run("report", model, test, "--out", tmp_path / "page.html")
    assert result.code == 0, result.err
    assert "test rows" in result.out
    assert "<h1>model</h1>" in (tmp_path / "page.html").read_text()
    assert run("report", model, "--out", tmp_path / "page.md", "--title", "Mine", "--quiet").out == ""
    assert (tmp_path / "page.md").read_text().startswith("# Mine\n")
    assert run("report", model, test, "--out", tmp_path / "page.json").code == 0
    found = json.loads((tmp_path / "page.json").read_text())
    scores = json.loads(run("evaluate", model, test, "--json").out)
    told = found["evaluations"][0]["targets"][0]
    assert told["n"] == scores["rows"] == 135
    for name, value in told["scores"]["model"].items():
        assert value == pytest.approx(scores["model"][name])
        assert told["scores"]["constant"][name] == pytest.approx(scores["constant"][name])
    worst = found["evaluations"][1]["targets"][0]["worst"][0]  # rows are counted from 1, those without a target too
    assert table()["y"].to_pylist()[worst["row"] - 1] == pytest.approx(worst["observed"])


def test_several_targets_have_their_names(run, tmp_path):
    model = fitted(run, tmp_path, "--target", "y", "--target", "time", "--drop", "label", "--drop", "count")
    result = run("report", model, "--out", tmp_path / "page.json")
    assert result.code == 0, result.err
    (told,) = json.loads((tmp_path / "page.json").read_text())["evaluations"]
    assert [one["name"] for one in told["targets"]] == ["y", "time"]


@pytest.mark.parametrize("target", ["label", "count"])
def test_classes_and_counts(run, tmp_path, target):
    options = ["--exposure", "time"] if target == "count" else ["--drop", "time"]
    others = [name for name in ("y", "label", "count") if name != target]
    model = fitted(run, tmp_path, "--target", target, *options, *(word for name in others for word in ("--drop", name)))
    test = write(tmp_path / "test.csv", table(seed=1))
    result = run("report", model, test, "--out", tmp_path / "page.json", "--compare", "boosting")
    assert result.code == 0, result.err
    told = json.loads((tmp_path / "page.json").read_text())["evaluations"][0]
    told = told["classes"] if target == "label" else told["targets"][0]
    scores = json.loads(run("evaluate", model, test, "--json").out)
    assert told["scores"]["model"]["nll"] == pytest.approx(scores["model"]["nll"])


def test_mistakes_are_named_and_nothing_is_written(run, tmp_path):
    model = fitted(run, tmp_path, "--target", "y", "--drop", "label", "--drop", "count", "--drop", "time")
    page, rows = tmp_path / "page.html", tmp_path / "rows.csv"
    short = write(tmp_path / "short.csv", table().drop_columns(["y"]))
    failed(run("report", model, short, "--out", page), "not in the table: 'y'")
    failed(run("report", rows, "--out", page), "not a nearfield model")
    failed(run("report", model, tmp_path / "none.csv", "--out", page), "does not exist")
    failed(run("report", model, "--out", tmp_path / "page.pdf"), "ends in .pdf")
    failed(run("report", model, "--out", model), "also an input")
    failed(run("report", model, "--out", page, "--target", "y"), "--target names a column")
    failed(run("report", model, "--out", page, "--compare", "forest"), "compare is")
    empty = write(tmp_path / "empty.csv", table().set_column(2, "y", pa.nulls(150, pa.float64())))
    failed(run("report", model, empty, "--out", page), "missing in all rows")
    assert not page.exists()


def test_figures_have_the_units_of_the_cells(run, tmp_path):
    rng = np.random.default_rng(0)
    load = rng.uniform(1, 9, 120)
    rows = pa.table(
        {
            "load": [f"{v:.2f} kg" for v in load],
            "cost": [f"{v:.2f} EUR" for v in 10 * np.sin(load) + rng.normal(0, 0.1, 120)],
        }
    )
    with short_training():
        made = run("fit", write(tmp_path / "t.csv", rows), "--target", "cost", "--out", tmp_path / "m", "--quiet")
    assert made.code == 0, made.err
    assert run("report", tmp_path / "m", "--out", tmp_path / "page.html", "--quiet").code == 0
    page = (tmp_path / "page.html").read_text()
    for label in ("load (kg)", "cost (EUR)", "observed − predicted (EUR)", "width (EUR)"):
        assert f">{label}</text>" in page
