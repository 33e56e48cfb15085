"""The command line from end to end, and one line for every mistake."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_runs import Run, failed, runner, short_training, write
from scipy import stats
from table_reading import fitted, reader_of

from nearfield import GPRegressor, __version__, metrics, persistence
from nearfield import cli as cli_module
from nearfield import table as table_module
from nearfield.cli import main
from nearfield.table import read_table

TRAIN, TEST = 300, 120


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def make_table(n: int, seed: int) -> pa.Table:
    """A smooth target of two numbers, a text column and a flag; x2 and the text have gaps; id is a label."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-2, 2, (2, n))
    colour = rng.integers(0, 3, n)
    y = np.sin(2 * x1) + 0.5 * x2 + colour + rng.normal(0, 0.1, n)
    return pa.table(
        {
            "id": [f"{i:05d}" for i in range(n)],
            "x1": x1,
            "x2": pa.array(x2, mask=rng.random(n) < 0.1),
            "colour": pa.array(np.array(["red", "green", "blue"])[colour], mask=rng.random(n) < 0.05),
            "flag": rng.random(n) < 0.5,
            "y": y,
        }
    )


class Files(NamedTuple):
    folder: Path
    model: Path
    test: Path
    printed: str


def fit_files(folder: Path, suffix: str) -> Files:
    """A model fitted by the command line, and the tables."""
    train = write(folder / f"train.{suffix}", make_table(TRAIN, 0))
    test = write(folder / f"test.{suffix}", make_table(TEST, 1))
    model, printed = folder / "m.nearfield", io.StringIO()
    command = ["fit", train, "--target", "y", "--out", model, "--drop", "id"]
    with contextlib.redirect_stdout(printed):
        assert main([str(part) for part in command]) == 0
    return Files(folder, model, test, printed.getvalue())


@pytest.fixture(scope="module")
def all_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    return {suffix: fit_files(tmp_path_factory.mktemp(suffix), suffix) for suffix in ("csv", "parquet")}


@pytest.fixture(params=["csv", "parquet"])
def files(request: pytest.FixtureRequest, all_files: dict[str, Files]) -> Files:
    return all_files[request.param]


@pytest.fixture
def csv_files(all_files: dict[str, Files]) -> Files:
    return all_files["csv"]


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return write(tmp_path / "train.csv", make_table(TRAIN, 0))


# --------------------------------------------------------------------------------------------------- end to end


def test_fit_says_what_it_did(files: Files) -> None:
    assert "300 rows, 4 columns as 8 features, target 'y'" in files.printed
    assert str(GPRegressor.load(files.model).summary_) in files.printed
    assert "contains the training rows" in files.printed
    assert f"nearfield predict {files.model} new.csv --out predictions.csv" in files.printed
    assert "; always predicting the mean would give " in files.printed


def test_predict_writes_what_the_model_predicts(files: Files, run: Run, tmp_path: Path) -> None:
    for suffix in ("csv", "parquet"):
        out = tmp_path / f"p.{suffix}"
        result = run("predict", files.model, files.test, "--out", out, "--keep", "id", "--quantiles", "0.05,0.5")
        assert result == (0, "", "")
        written = read_table(out)
        assert written.column_names == ["id", "mean", "std", "lower", "upper", "q0.05", "q0.5"]
        model = GPRegressor.load(files.model)
        x = model.encoder_.transform(read_table(files.test))
        mean, std = model.predict(x, return_std=True)
        expected = [mean, std, *model.predict_interval(x), *np.transpose(model.predict_quantiles(x, [0.05, 0.5]))]
        for name, column in zip(written.column_names[1:], expected, strict=True):
            np.testing.assert_allclose(written.column(name).to_numpy(), column, rtol=1e-10, atol=1e-12, err_msg=name)
        truth = make_table(TEST, 1)
        assert np.corrcoef(mean, truth.column("y").to_numpy())[0, 1] > 0.9
    assert pa.csv.read_csv(tmp_path / "p.csv").column("id").to_pylist() == list(range(TEST))
    assert (tmp_path / "p.csv").read_text().split("\n")[8].startswith('"00007",')  # as it stands in the input


def test_predictions_do_not_depend_on_the_blocks_or_the_order_of_columns(
    files: Files, run: Run, tmp_path: Path
) -> None:
    table = make_table(TEST, 1)
    turned = write(tmp_path / "turned.csv", table.select(table.column_names[::-1]).drop_columns(["y"]))
    texts = []
    for source, rows in [(files.test, 1), (files.test, 7), (files.test, 50), (files.test, 10_000), (turned, 33)]:
        result = run("predict", files.model, source, "--block-rows", rows)
        assert result.code == 0
        texts.append(result.out)
    assert len(texts[0].splitlines()) == TEST + 1
    assert texts == texts[:1] * 5


def test_coverage_widens_the_interval(csv_files: Files, run: Run, tmp_path: Path) -> None:
    widths = []
    default = inspect.signature(GPRegressor.predict_interval).parameters["coverage"].default
    for options in ([], ["--coverage", default], ["--coverage", 0.99]):
        run("predict", csv_files.model, csv_files.test, "--out", tmp_path / "p.csv", *options)
        p = read_table(tmp_path / "p.csv")
        widths.append(np.mean(p.column("upper").to_numpy() - p.column("lower").to_numpy()))
    assert widths[0] == widths[1] < widths[2]


def test_evaluate_agrees_with_the_metrics(files: Files, run: Run, tmp_path: Path) -> None:
    table = make_table(TEST, 1)
    y = table.column("y").to_numpy().copy()
    gaps = pa.array(y, mask=np.arange(TEST) % 10 == 0)
    holed = write(tmp_path / "holed.csv", table.set_column(5, "y", gaps))
    result = run("evaluate", files.model, holed, "--json", "--block-rows", 17)
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    known = np.arange(TEST) % 10 != 0
    assert (found["rows"], found["skipped"]) == (known.sum(), TEST - known.sum())
    model = GPRegressor.load(files.model)
    x = model.encoder_.transform(table)[known]
    target = read_table(files.folder / files.test.name.replace("test", "train")).column("y").to_numpy()
    for name, dist in [
        ("model", model.predict_dist(x)),
        ("constant", stats.norm(np.mean(target), np.std(target))),
    ]:
        expected = metrics.Scores.of(y[known], dist).as_dict()
        assert found[name] == pytest.approx(expected, rel=1e-6), name
    assert found["model"]["rmse"] < found["constant"]["rmse"] / 2
    text = run("evaluate", files.model, holed).out
    assert f"{found['model']['rmse']:.5g}" in text
    assert "108 rows (12 more without a target were skipped)" in text


def test_info_names_the_columns(files: Files, run: Run) -> None:
    found = json.loads(run("info", files.model, "--json").out)
    assert (found["rows"], found["target"]) == (TRAIN, "y")
    features = {feature["name"]: feature["relevance"] for feature in found["features"]}
    assert list(features.values()) == sorted(features.values(), reverse=True)
    one_hot = ["colour=(missing)", "colour=blue", "colour=green", "colour=red"]
    model = GPRegressor.load(files.model)
    names = ["x1", "x2", "x2_missing", *one_hot, "flag"]  # the order of the columns in the table
    assert features == dict(zip(names, model.feature_relevance_.values(), strict=True))
    lengths = {feature["name"]: feature["length_scale"] for feature in found["features"]}
    assert lengths == dict(zip(names, model.length_scales_.tolist(), strict=True))
    assert found["noise_std"] == model.noise_std_
    assert (found["task"], found["likelihood"]) == ("regression", "gaussian")
    text = run("info", files.model).out
    for name in [*features, f"{found['k']}", "rows behind a prediction"]:
        assert name in text


def test_the_same_seed_gives_the_same_model(train: Path, run: Run, tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        result = run("fit", train, "--target", "y", "--out", tmp_path / name, "--drop", "id", "--k", "16", "--quiet")
        assert result == (0, "", "")
        texts.append(run("predict", tmp_path / name, train).out)
    assert texts[0] == texts[1]
    assert json.loads(run("info", tmp_path / "a", "--json").out)["k"] == 16


def test_what_was_filled_in_is_one_warning(files: Files, run: Run, tmp_path: Path) -> None:
    table = make_table(TEST, 1)
    table = table.set_column(1, "x1", pa.array([None] * 3 + [0.5] * (TEST - 3)))
    table = table.set_column(3, "colour", pa.array(["mauve"] * TEST))
    result = run("predict", files.model, write(tmp_path / "t.csv", table), "--block-rows", 10)
    assert result.code == 0
    assert result.err.startswith("nearfield: warning: ")
    assert len(result.err.splitlines()) == 1
    assert "3 values of column 'x1'" in result.err
    assert f"{TEST} values of column 'colour'" in result.err


# ------------------------------------------------------------------------------------------------------ mistakes


FIT_MISTAKES = [
    ("x,y\n1,2\n", ["--target", "z"], ["'z'"]),
    ("temp,y\n1,2\n", ["--target", "tmp"], ["'tmp'", "nearest: 'temp'"]),
    ("y\n1\n", ["--target", "y"], ["no columns to predict 'y' from"]),
    ("x,y\n1,red\n2,blue\n", ["--target", "y", "--task", "regression"], ["The target 'y' has 'red' in row 1"]),
    ("x,y\n1,\n2,NA\n", ["--target", "y"], ["'y' is missing in all 2 rows"]),
    ("x,y\n1,2\n2,inf\n", ["--target", "y"], ["'y' has 1 infinite values, first in row 2"]),
    ("x,y\n1,2\ninf,1\n", ["--target", "y"], ["'x' has 1 infinite values, first in row 2"]),
    ("x,x,y\n1,2,3\n", ["--target", "y"], ["more than once: 'x'"]),
    ("x,y\n", ["--target", "y"], ["no rows"]),
    ("", ["--target", "y"], ["train.csv"]),
    ("x,y\n1,2\n", ["--target", "y", "--drop", "w"], ["'w'"]),
    ("x,y\n1,2\n", ["--target", "y", "--groups", "w"], ["The column of --groups is not in the table: 'w'"]),
    ("x,y\n1,2\n", ["--target", "y", "--groups", "y"], ["--groups is 'y', which is a target"]),
    ("x,g,y\n1,a,2\n1,,3\n", ["--target", "y", "--groups", "g"], ["'g', of groups, has '(missing)' in row 2"]),
    ("x,y\n1,2\n", ["--target", "y", "--k", "many"], ["--k is 'many'"]),
    ("x,y\n1,2\n", ["--target", "y", "--k", "0"], ["--k is '0'"]),
    ("x,y\n1,2\n", [], ["--target"]),
    ("x,y\n1,2\n", ["--target", "y", "--colour", "red"], ["--colour"]),
]


@pytest.mark.parametrize(("text", "options", "parts"), FIT_MISTAKES)
def test_fit_mistakes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: list[str], parts: list[str]
) -> None:
    table, out = tmp_path / "train.csv", tmp_path / "m.nearfield"
    table.write_text(text)
    monkeypatch.setattr("nearfield.fitting.fit", lambda *_, **__: pytest.fail("mistakes are found before a fit"))
    failed(run("fit", table, "--out", out, *options), *parts)
    assert list(tmp_path.iterdir()) == [table]


def test_what_is_missing_on_a_line_is_named_with_where_to_look(run: Run) -> None:
    for line, message in [
        (["fit"], "Missing argument 'TABLE'. Try nearfield fit --help."),
        (["fut"], "No such command 'fut'. Did you mean 'fit'? Try nearfield --help."),
        (["predict", "model", "--nope"], "Try nearfield predict --help."),
    ]:
        done = run(*line)
        assert done.code == 2
        assert done.err.endswith(f"{message}\n")


@pytest.mark.parametrize("groups", ["plate", "auto"])
def test_rows_of_a_group_are_left_out_together(run: Run, tmp_path: Path, groups: str) -> None:
    """As from Python; the column of labels is no feature."""
    table = make_table(60, 0)
    plate = np.repeat(np.arange(60), 2)
    table = table.take(pa.array(plate)).append_column("plate", pa.array([f"plate {i}" for i in plate]))
    train, out = write(tmp_path / "train.csv", table), tmp_path / "m.nearfield"
    drop = ["id"] if groups == "plate" else ["id", "plate"]
    with short_training():
        options = [part for name in drop for part in ("--drop", name)]
        assert run("fit", train, "--target", "y", "--out", out, "--groups", groups, *options).code == 0
        rows = read_table(train)
        encoder = fitted(rows, "y", ["id", "plate"])
        x, y = encoder.transform(rows), encoder.target_values(rows)
        model = GPRegressor(random_state=0, max_steps=8).fit(x, y, groups=plate if groups == "plate" else groups)
    found = GPRegressor.load(out)
    np.testing.assert_array_equal(found.predict(x), model.predict(x))
    np.testing.assert_array_equal(found.loo_.mean, model.loo_.mean)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--kernel", "matern25"], ["matern25", "matern52"]),
        (["--predictive", "calibrate"], ["calibrate", "calibrated"]),
    ],
)
def test_fit_settings_the_estimator_rejects(
    run: Run, tmp_path: Path, train: Path, options: list[str], parts: list[str]
) -> None:
    failed(run("fit", train, "--target", "y", "--drop", "id", "--out", tmp_path / "m.nearfield", *options), *parts)
    assert list(tmp_path.iterdir()) == [train]


def test_a_linear_mean(run: Run, tmp_path: Path, train: Path) -> None:
    """As from Python; a mean that is not known is named."""
    out = tmp_path / "m.nearfield"
    with short_training():
        result = run("fit", train, "--target", "y", "--drop", "id", "--out", out, "--k", 16, "--mean", "linear")
    assert result.code == 0
    encoder = reader_of(out)
    x, y = encoder.transform(read_table(train)), encoder.target_values(read_table(train))
    model = GPRegressor(mean="linear", k=16, max_steps=8, random_state=0).fit(x, y)
    np.testing.assert_array_equal(GPRegressor.load(out).mean_slopes_, model.mean_slopes_)
    np.testing.assert_array_equal(GPRegressor.load(out).predict(x), model.predict(x))
    failed(run("fit", train, "--target", "y", "--drop", "id", "--out", out, "--mean", "cubic"), "cubic", "linear")


@pytest.mark.parametrize(("spelling", "options"), [("gaussian", []), ("student_t", ["--likelihood", "student_t"])])
def test_the_old_spelling_of_a_plain_predictive_warns(
    run: Run, tmp_path: Path, train: Path, spelling: str, options: list[str]
) -> None:
    out = tmp_path / "m.nearfield"
    common = ["fit", train, "--target", "y", "--drop", "id", "--out", out, "--k", 16, "--quiet", *options]
    with short_training():
        result = run(*common, "--predictive", spelling)
        expected = f"nearfield: warning: --predictive {spelling} is deprecated: write --predictive plain.\n"
        assert result == (0, "", expected)
        assert json.loads(run("info", out, "--json").out)["predictive"] == "plain"
        assert run(*common, "--predictive", "plain") == (0, "", "")
    other = {"gaussian": "student_t", "student_t": "gaussian"}[spelling]
    failed(run(*common, "--predictive", other), f"--predictive is '{other}'; calibrated or plain")


@pytest.mark.parametrize("command", ["predict", "evaluate", "info"])
def test_a_model_file_is_opened_and_verified_once(
    csv_files: Files, run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, verified = [], []
    whole, checked = persistence._open_regular, persistence._checked_record
    monkeypatch.setattr(persistence, "_open_regular", lambda name: opened.append(whole(name)) or opened[-1])
    monkeypatch.setattr(persistence, "_checked_record", lambda record: verified.append(1) or checked(record))
    tables = [] if command == "info" else [csv_files.test, "--block-rows", 50]
    assert run(command, csv_files.model, *tables).code == 0
    assert (len(opened), len(verified)) == (1, 1)
    assert opened[0].closed


def test_fit_checks_the_place_of_the_model_first(
    run: Run, tmp_path: Path, train: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = train.read_bytes()
    monkeypatch.setattr(table_module, "read_table", lambda _: pytest.fail("the table was read first"))
    failed(run("fit", train, "--target", "y", "--out", tmp_path / "none" / "m"), "does not exist", "none")
    failed(run("fit", train, "--target", "y", "--out", tmp_path), "is a folder")
    failed(run("fit", train, "--target", "y", "--out", train), "also an input")
    failed(run("fit", train, "--target", "y", "--out", "/dev/null"), "not a regular file")
    failed(run("fit", train, "--target", "y", "--out", tmp_path / "m", "--checkpoint", train), "also an input")
    assert train.read_bytes() == before
    (tmp_path / "shut").mkdir(mode=0o555)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("nearfield.atomic._Temporary", refuse)  # the superuser may write into any folder
    failed(run("fit", train, "--target", "y", "--out", tmp_path / "shut" / "m"), "Permission denied", "shut")


PREDICT_MISTAKES = [
    (lambda t: t.set_column(1, "x1", pa.array(["abc"] + ["1"] * (TEST - 1))), "'x1' has 'abc' in row 1; a number"),
    (lambda t: t.set_column(1, "x1", pa.array(["1"] * 99 + ["abc"] * 21)), "'x1' has 'abc' in row 100 (and 20 more"),
    (
        lambda t: t.set_column(1, "x1", pa.array([0.0] * 50 + [np.inf] * 70)),
        "'x1' has 10 infinite values, first in row 51",
    ),
    (lambda t: t.drop_columns(["x2"]), "'x2'"),
    (
        lambda t: t.rename_columns(["id", "X1", "x2", "color", "flag", "y"]),
        "'x1' (nearest: 'X1'), 'colour' (nearest: 'color')",
    ),
    (lambda t: t.slice(0, 0), "no rows"),
]


@pytest.mark.parametrize(("change", "message"), PREDICT_MISTAKES)
def test_predict_mistakes(files: Files, run: Run, tmp_path: Path, change: Callable, message: str) -> None:
    table = write(tmp_path / files.test.name, change(make_table(TEST, 1)))
    out = tmp_path / "p.csv"
    out.write_text("old")
    failed(run("predict", files.model, table, "--out", out, "--block-rows", 60), message)
    assert out.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == sorted([table, out])


def test_predict_arguments(csv_files: Files, run: Run, tmp_path: Path) -> None:
    def mistake(*options: object, parts: list[str]) -> None:
        failed(run("predict", csv_files.model, csv_files.test, *options), *parts)

    mistake("--coverage", "90", parts=["--coverage is 90", "between 0 and 1"])
    mistake("--quantiles", "0.1,x", parts=["--quantiles is '0.1,x'"])
    mistake("--quantiles", "0.1,1.5", parts=["--quantiles is 1.5"])
    mistake("--keep", "idd", parts=["'idd' (nearest: 'id')"])
    mistake("--block-rows", "0", parts=["0 rows"])
    mistake("--out", tmp_path / "p.xlsx", parts=["p.xlsx", ".parquet"])
    mistake("--out", tmp_path / "none" / "p.csv", parts=["does not exist", "none"])
    mistake("--out", csv_files.test, parts=["also an input"])
    table = write(tmp_path / "t.csv", make_table(TEST, 1).append_column("mean", pa.array(range(TEST))))
    failed(run("predict", csv_files.model, table, "--keep", "mean"), "'mean'", "rename")
    failed(run("predict", csv_files.model, tmp_path / "none.csv"), "none.csv does not exist")


@pytest.mark.parametrize("command", ["predict", "evaluate", "info"])
def test_a_file_that_is_no_model(csv_files: Files, run: Run, tmp_path: Path, command: str) -> None:
    tables = [] if command == "info" else [csv_files.test]
    bad = tmp_path / "bad.nearfield"
    failed(run(command, bad, *tables), "bad.nearfield does not exist")
    failed(run(command, tmp_path, *tables), "is not a file")
    for content in (b"", b"x1,y\n1,2\n", csv_files.model.read_bytes()[:-5]):
        bad.write_bytes(content)
        failed(run(command, bad, *tables), "bad.nearfield")


@pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")
@pytest.mark.parametrize("named", [False, True])
def test_a_model_from_python_is_read(run: Run, tmp_path: Path, named: bool) -> None:
    """Columns and target are called as in the data frame, else x0, x1, .. and y."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(120)
    columns, target = (["width", "height"], "weight") if named else (["x0", "x1"], "y")
    frame = pd.DataFrame(X, columns=columns)
    model = GPRegressor(max_steps=8, random_state=0)
    model.fit(frame if named else X, pd.Series(y, name=target) if named else y)
    model.save(tmp_path / "m.nearfield")
    frame.assign(**{target: y})[[target, *columns[::-1]]].to_csv(tmp_path / "t.csv", index=False)
    assert json.loads(run("info", tmp_path / "m.nearfield", "--json").out)["target"] == target
    written = run("predict", tmp_path / "m.nearfield", tmp_path / "t.csv").out
    mean, std = model.predict(frame if named else X, return_std=True)
    found = pd.read_csv(io.StringIO(written))
    np.testing.assert_allclose(found["mean"], mean)
    np.testing.assert_allclose(found["std"], std)
    scored = json.loads(run("evaluate", tmp_path / "m.nearfield", tmp_path / "t.csv", "--json").out)
    assert scored["model"]["rmse"] == pytest.approx(np.sqrt(np.mean((mean - y) ** 2)))
    assert scored["constant"]["rmse"] == pytest.approx(y.std())
    frame.assign(other=y).to_csv(tmp_path / "u.csv", index=False)
    failed(run("evaluate", tmp_path / "m.nearfield", tmp_path / "u.csv"), f"'{target}'")
    again = run("evaluate", tmp_path / "m.nearfield", tmp_path / "u.csv", "--target", "other", "--json").out
    assert json.loads(again)["model"] == scored["model"]
    frame.iloc[0, 0] = np.nan
    frame.to_csv(tmp_path / "gap.csv", index=False)
    filled = run("predict", tmp_path / "m.nearfield", tmp_path / "gap.csv")
    assert filled.code == 0
    assert f"1 values of column {columns[0]!r}, complete in training, are missing" in filled.err


def test_evaluate_needs_the_target(files: Files, run: Run, tmp_path: Path) -> None:
    table = make_table(TEST, 1)
    failed(run("evaluate", files.model, write(tmp_path / "a.csv", table.drop_columns(["y"]))), "target", "'y'")
    empty = table.set_column(5, "y", pa.array([None] * TEST, pa.float64()))
    failed(run("evaluate", files.model, write(tmp_path / "b.csv", empty)), "'y' is missing in all 120 rows")
    text = table.set_column(5, "y", pa.array(["high"] * TEST))
    failed(run("evaluate", files.model, write(tmp_path / "c.csv", text)), "The target 'y' has 'high' in row 1")


# -------------------------------------------------------------------------------------------------- the process


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, f"nearfield {__version__}\n", "")
    assert run("--help").out == run().out
    for command in ("fit", "predict", "evaluate", "info"):
        assert command in run("--help").out
        assert run(command, "--help").code == 0
    failed(run("foretell"), "foretell")


def test_unexpected_errors_interrupts_and_tracebacks(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop_with(error: BaseException) -> None:
        def stop(*_: object) -> None:
            raise error

        monkeypatch.setattr(table_module, "column_names", stop)

    command = ["predict", tmp_path / "m", tmp_path / "t.csv"]
    stop_with(RuntimeError("odd\nthing"))
    failed(run(*command), "RuntimeError: odd thing", code=1)
    assert "Traceback" in run(*command, "--debug").err
    assert run("--debug", *command).code == 1
    monkeypatch.setenv("NEARFIELD_DEBUG", "1")
    assert "Traceback" in run(*command).err
    monkeypatch.setenv("NEARFIELD_DEBUG", "0")
    stop_with(ValueError("one of ours"))
    failed(run(*command), "ValueError: one of ours", code=1)
    stop_with(KeyboardInterrupt())
    failed(run(*command), "interrupted", code=130)


def test_a_closed_pipe_ends_quietly(csv_files: Files, tmp_path: Path) -> None:
    table = write(tmp_path / "long.csv", make_table(5000, 2))
    code = "import sys; from nearfield.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "predict", csv_files.model, table, "--block-rows", "200", "--keep", "id"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"id,mean,std,lower,upper\n"
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (cli_module.BROKEN_PIPE, b"")


def test_help_does_not_load_torch() -> None:
    code = "import sys; from nearfield.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


# ------------------------------------------------------------------------------------------- what tables became


def test_fit_and_info_say_what_columns_became_and_evaluate_knows_training_rows(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "load": [f"{v:.1f} kg" for v in rng.uniform(1, 9, 90)],
            "day": [f"{d % 28 + 1:02d}.{d % 12 + 1:02d}.2023" for d in range(90)],
            "gap": np.where(np.arange(90) % 9 == 0, np.nan, rng.normal(size=90)),
            "town": rng.choice(["Bonn", "Trier"], 90),
            "name": [f"row {i}" for i in range(90)],
            "y": rng.normal(size=90),
        }
    )
    path, out = tmp_path / "t.csv", tmp_path / "m"
    frame.to_csv(path, index=False)
    lines = [
        "numbers in kg: load",
        "dates like 31.12.2024, also as weekday: day",
        "numbers, gaps filled with the median and marked: gap",
        "text, a feature for each level: town (2)",
        "left out: name",
    ]
    shown = run("fit", path, "--target", "y", "--out", out).out
    assert "\n".join(f"  {line}" for line in lines) in shown
    assert "\n".join(lines) in run("info", out).out
    assert json.loads(run("info", out, "--json").out)["columns"] == lines
    assert "90 of 90 rows are training rows" in run("evaluate", out, path).err
    frame.assign(gap=rng.normal(size=90)).to_csv(tmp_path / "new.csv", index=False)
    assert "training rows" not in run("evaluate", out, tmp_path / "new.csv").err
