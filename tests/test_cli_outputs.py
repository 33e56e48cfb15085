"""The command line for several targets: the same as from Python, and one line for every mistake."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from cli_runs import Run, failed, runner, short_training, write
from scipy import stats
from table_reading import description, fitted, from_description, reader_of

from nearfield import GPRegressor, cli
from nearfield.families import names_for, tasks
from nearfield.families.outputs import OUTPUTS
from nearfield.means import MEANS
from nearfield.metrics import Scores
from nearfield.table import read_table
from nearfield.target import Target, Targets

TRAIN, TEST = 120, 40
GAPS = {"train": 11, "test": 6}
"""Rows in which both targets are missing; as many more lack one of them, for each."""


def make_table(kind: str) -> pa.Table:
    """Two targets of x1 in different units, with gaps; x2 has gaps too, and `id` names the rows."""
    n, gaps = (TRAIN, GAPS["train"]) if kind == "train" else (TEST, GAPS["test"])
    rng = np.random.default_rng(n)
    x1, x2 = rng.uniform(-2, 2, (2, n))
    low = np.sin(2 * x1) + rng.normal(0, 0.1, n)
    high = 100 + 10 * np.sin(2 * x1) + 5 * x2 + rng.normal(0, 1, n)
    row = np.arange(n)
    return pa.table(
        {
            "id": [f"{i:05d}" for i in row],
            "x1": x1,
            "x2": pa.array(x2, mask=rng.random(n) < 0.1),
            "low": pa.array(low, mask=row < 2 * gaps),
            "colour": np.array(["red", "blue"])[rng.integers(0, 2, n)],
            "high": pa.array(high, mask=(row < gaps) | ((row >= 2 * gaps) & (row < 3 * gaps))),
        }
    )


def targets_of(table: pa.Table) -> np.ndarray:
    """(n, 2), NaN where missing."""
    return np.column_stack([table.column(name).to_numpy(zero_copy_only=False) for name in ("low", "high")])


def fit_command(train: Path, out: Path, *options: object) -> list[str]:
    command = ["fit", train, "--target", "low", "--target", "high", "--out", out, "--drop", "id", "--k", 8, *options]
    return [str(part) for part in command]


@pytest.fixture(autouse=True, scope="module")
def _few_steps() -> Iterator[None]:
    with short_training():
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    kinds = {"train": "train.csv", "train_parquet": "train.parquet", "test": "test.csv", "test_parquet": "test.parquet"}
    return {name: write(folder / file, make_table(name.split("_")[0])) for name, file in kinds.items()}


@pytest.fixture(scope="module")
def models(tables: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    options = {"default": [], **{name: ["--outputs", name] for name in OUTPUTS[1:]}}
    for name, given in options.items():
        train = tables["train_parquet" if name == "shared" else "train"]
        assert cli.main(fit_command(train, folder / name, "--quiet", *given)) == 0
    return {name: folder / name for name in options}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def of_python(path: Path, table: pa.Table) -> tuple[GPRegressor, np.ndarray]:
    """The model as Python loads it, with the features of a table."""
    model = GPRegressor.load(path)
    return model, model.encoder_.transform(table)


KINDS = ["default", "independent", "shared"]


# --------------------------------------------------------------------------------------------------- end to end


def test_fit_says_what_it_did(tables: dict[str, Path], models: dict[str, Path], run: Run, tmp_path: Path) -> None:
    result = run(*fit_command(tables["train_parquet"], tmp_path / "m"))
    assert result.code == 0
    assert "109 rows, 3 columns as 5 features, targets 'low', 'high'\n" in result.out
    notes = [line for line in result.err.splitlines() if line.startswith("nearfield: ")]
    assert notes == ["nearfield: note: 11 of 120 rows have none of the targets and are left out."]
    texts = [run("predict", model, tables["test"]).out for model in (tmp_path / "m", models["default"])]
    assert texts[0] == texts[1]  # CSV or Parquet, quiet or not


@pytest.mark.parametrize("name", KINDS)
def test_the_model_is_that_of_python(name: str, models: dict[str, Path], tables: dict[str, Path]) -> None:
    table = make_table("train")
    model, x = of_python(models[name], table)
    assert model.outputs == ("lmc" if name == "default" else name)
    assert (model.n_outputs_, model.n_rows_) == (2, TRAIN - GAPS["train"])
    same = GPRegressor(k=8, outputs=model.outputs, max_steps=8, random_state=0, verbose=False)
    y = targets_of(table)
    known = ~np.isnan(y).all(axis=1)
    np.testing.assert_array_equal(same.fit(x[known], y[known]).predict(x), model.predict(x))


@pytest.mark.parametrize("name", KINDS)
def test_predict_writes_the_columns_of_each_target(
    name: str, models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    columns = [f"{t}_{c}" for t in ("low", "high") for c in ("mean", "std", "lower", "upper", "q0.05", "q0.5")]
    options = ["--keep", "id", "--coverage", 0.8, "--quantiles", "0.05,0.5", "--block-rows", 17]
    model, x = of_python(models[name], make_table("test"))
    dist = model.predict_dist(x)
    expected = [dist.mean(), dist.std(), *dist.interval(0.8), dist.ppf(0.05), dist.ppf(0.5)]
    for source, out in [("test", "p.csv"), ("test_parquet", "p.parquet")]:
        assert run("predict", models[name], tables[source], "--out", tmp_path / out, *options) == (0, "", "")
        written = read_table(tmp_path / out)
        assert written.column_names == ["id", *columns]
        found = np.column_stack([written.column(column).to_numpy() for column in columns])
        np.testing.assert_allclose(found, np.stack(expected, -1).reshape(TEST, -1), rtol=1e-10)


def test_predictions_need_no_targets_and_do_not_depend_on_the_blocks(
    models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    without = write(tmp_path / "t.csv", make_table("test").drop_columns(["low", "high"]))
    texts = [run("predict", models["default"], tables["test"], "--block-rows", rows).out for rows in (1, 7, 1000)]
    assert len(texts[0].splitlines()) == TEST + 1
    assert {*texts, run("predict", models["default"], without).out} == {texts[0]}


@pytest.mark.parametrize("name", KINDS)
def test_evaluate_agrees_with_the_metrics(
    name: str, models: dict[str, Path], tables: dict[str, Path], run: Run
) -> None:
    result = run("evaluate", models[name], tables["test"], "--json", "--block-rows", 9)
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert set(found) == {"skipped", "rows", "targets", "average", "joint_nll", "constant_joint_nll"}
    assert (found["rows"], found["skipped"]) == (TEST - GAPS["test"], GAPS["test"])
    assert list(found["targets"]) == ["low", "high"]
    model, x = of_python(models[name], make_table("test"))
    y, seen = targets_of(make_table("test")), targets_of(make_table("train"))
    dist = model.predict_dist(x)
    joint = 0.0
    for p, part in enumerate(found["targets"].values()):
        there = ~np.isnan(y[:, p])
        assert part["rows"] == there.sum() == TEST - 2 * GAPS["test"]
        marginal = dist.dist(*(np.broadcast_to(values, y.shape)[there, p] for values in dist.args))
        constant = stats.norm(np.nanmean(seen[:, p]), np.nanstd(seen[:, p]))
        assert part["model"] == pytest.approx(Scores.of(y[there, p], marginal).as_dict(), rel=1e-9)
        assert part["constant"] == pytest.approx(Scores.of(y[there, p], constant).as_dict(), rel=1e-9)
        joint -= constant.logpdf(y[there, p]).sum()
    known = ~np.isnan(y).all(axis=1)
    assert found["joint_nll"] == pytest.approx(-model.log_score(x[known], y[known], joint=True), rel=1e-9)
    assert found["constant_joint_nll"] == pytest.approx(joint / known.sum(), rel=1e-9)
    assert found["joint_nll"] < found["constant_joint_nll"]


def test_the_average_is_that_over_targets(models: dict[str, Path], tables: dict[str, Path], run: Run) -> None:
    found = json.loads(run("evaluate", models["default"], tables["test"], "--json").out)
    for which in ("model", "constant"):
        each = [part[which] for part in found["targets"].values()]
        names = ["rmse", "nll", "crps", "coverage_50", "coverage_90", "coverage_95"]
        assert found["average"][which] == pytest.approx({name: (each[0][name] + each[1][name]) / 2 for name in names})
    text = run("evaluate", models["default"], tables["test"]).out
    assert "34 rows (6 more without a target were skipped)" in text
    assert "target 'low': 28 rows" in text
    average, joint = found["average"]["model"]["crps"], found["joint_nll"]
    for part in ("average over targets", "joint NLL", f"{average:.5g}", f"{joint:.5g}"):
        assert part in text


def test_scores_do_not_depend_on_the_blocks_or_the_kind_of_file(
    models: dict[str, Path], tables: dict[str, Path], run: Run
) -> None:
    def flat(scores: dict[str, Any], at: str = "") -> dict[str, float]:
        pairs = [flat(v, f"{at}.{k}") if isinstance(v, dict) else {f"{at}.{k}": v} for k, v in scores.items()]
        return {k: v for pair in pairs for k, v in pair.items()}

    runs = [("test", 1), ("test", 13), ("test", 1000), ("test_parquet", 13)]
    found = [
        flat(json.loads(run("evaluate", models["default"], tables[table], "--json", "--block-rows", rows).out))
        for table, rows in runs
    ]
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-9)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_target_that_a_table_does_not_have_values_of(
    suffix: str, models: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    table = make_table("test")
    place = table.column_names.index("high")
    empty = table.set_column(place, "high", pa.nulls(TEST))
    path = write(tmp_path / f"t.{suffix}", empty)
    found = json.loads(run("evaluate", models["default"], path, "--json").out)
    assert found["targets"]["high"] == {"rows": 0, "model": None, "constant": None}
    low = found["targets"]["low"]
    assert found["rows"] == low["rows"] == 28
    assert low["model"] == pytest.approx({"n": 28, **found["average"]["model"]})
    assert found["joint_nll"] == pytest.approx(low["model"]["nll"])
    assert "target 'high': 0 rows\n\naverage" in run("evaluate", models["default"], path).out
    nothing = write(tmp_path / f"n.{suffix}", empty.set_column(3, "low", pa.nulls(TEST)))
    failed(run("evaluate", models["default"], nothing), "Each of the targets 'low', 'high' is missing in all 40 rows")


@pytest.mark.parametrize("name", KINDS)
def test_info_describes_each_target(name: str, models: dict[str, Path], run: Run) -> None:
    found, text = json.loads(run("info", models[name], "--json").out), run("info", models[name]).out
    model = GPRegressor.load(models[name])
    assert (found["task"], found["estimator"], found["outputs"]) == ("regression", "GPRegressor", model.outputs)
    assert (found["rows"], found["k"]) == (TRAIN - GAPS["train"], 8)
    assert "target" not in found
    y = targets_of(make_table("train"))
    for p, target in enumerate(found["targets"]):
        expected = {
            "name": ("low", "high")[p],
            "noise_std": model.noise_std_[p],
            "kernel_scale": model.kernel_scale_[p],
            "mean": pytest.approx(np.nanmean(y[:, p])),
            "std": pytest.approx(np.nanstd(y[:, p])),
        }
        assert target == expected
        assert f"{target['noise_std']:.4g}" in text
    features = {feature["name"]: feature for feature in found["features"]}
    relevances = [feature["relevance"] for feature in found["features"]]
    assert relevances == sorted(relevances, reverse=True)
    for place, feature in enumerate(["x1", "x2", "x2_missing", "colour=blue", "colour=red"]):
        assert features[feature]["relevance"] == list(model.feature_relevance_.values())[place]
        lengths = model.length_scales_[..., place].tolist()
        assert features[feature]["length_scale" if name == "shared" else "length_scales"] == lengths
        assert feature in text
    assert ("length scale" in text) == (name == "shared")


def test_text_that_is_numbers_is_a_target_too(run: Run, tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(30.0), "a": [str(i / 3) for i in range(29)] + ["NA"], "b": np.arange(30) % 7})
    path, out = write(tmp_path / "t.parquet", table), tmp_path / "m"
    result = run("fit", path, "--target", "a", "--target", "b", "--out", out, "--k", 8, "--outputs", "shared")
    assert (result.code, "note" in result.err) == (0, False)  # several whole numbers leave no doubt about the task
    assert "30 rows" in result.out


def test_one_target_is_as_ever(tables: dict[str, Path], run: Run, tmp_path: Path) -> None:
    train = write(tmp_path / "t.csv", make_table("train").slice(3 * GAPS["train"]).drop_columns(["high"]))
    out = tmp_path / "m"
    result = run("fit", train, "--target", "low", "--out", out, "--drop", "id", "--k", 8)
    assert result.code == 0
    assert "87 rows, 3 columns as 5 features, target 'low'\n" in result.out
    assert set(GPRegressor.load(out)._described) == {"target", "task", "kind", "likelihood", "given"}
    assert run("predict", out, tables["test"]).out.startswith("mean,std,lower,upper\n")
    assert set(json.loads(run("evaluate", out, train, "--json").out)) == {"skipped", "rows", "model", "constant"}
    info = json.loads(run("info", out, "--json").out)
    assert info["target"] == "low"
    assert "targets" not in info
    assert "outputs" not in info


# ------------------------------------------------------------------------------------------------------ mistakes


NUMBERS = "x,a,b,c,n\n1,2,0,red,1\n2,3,1,blue,2\n3,4,2,red,3\n"
BOTH = ["--target", "a", "--target", "b"]

MISTAKES = [
    (NUMBERS, ["--target", "a", "--target", "a"], ["--target 'a' is given more than once"]),
    (NUMBERS, ["--target", "a", "--target", "z"], ["A target is not in the table: 'z'"]),
    ("temp,a,x\n1,2,3\n", ["--target", "a", "--target", "tmp"], ["'tmp' (nearest: 'temp')"]),
    (NUMBERS, ["--target", "a", "--target", "c"], ["The target 'c' has type string", "a class", "all are numbers"]),
    ("x,a,b\n1,2,true\n2,3,false\n", BOTH, ["The target 'b' has type bool", "a class", "a model of its own"]),
    (NUMBERS, ["--target", "a", "--target", "c", "--task", "regression"], ["'c' has 'red' in row 1", "a number"]),
    ("x,a,b\n1,2,1\n2,3,2\n3,4,5\n4,4,abc\n", BOTH, ["The target 'b' has 'abc' in row 4; a number is expected"]),
    ("x,a,b\n1,2,1\n2,3,inf\n", BOTH, ["The target 'b' has 1 infinite values, first in row 2"]),
    ("x,a,b\n1,2,\n2,3,\n", BOTH, ["The target 'b' has no values: leave it out"]),
    ("x,a,b\n1,2,2020-01-01\n2,3,2020-01-02\n", BOTH, ["The target 'b' has type date32", "numbers are expected"]),
    ("a,b\n1,2\n", BOTH, ["no columns to predict 'a', 'b' from"]),
    (NUMBERS, [*BOTH, "--drop", "b"], ["'b' is one of the targets; it cannot be dropped"]),
    (NUMBERS, [*BOTH, "--task", "classification"], ["--task classification goes with one target, but 2", "gaussian"]),
    (NUMBERS, [*BOTH, "--task", "counts"], ["--task counts goes with one target", "gaussian regression"]),
    (NUMBERS, [*BOTH, "--task", "binomial"], ["--task binomial goes with one target", "gaussian regression"]),
    (NUMBERS, [*BOTH, "--task", "guess"], ["--task is 'guess'"]),
    (NUMBERS, [*BOTH, "--exposure", "n"], ["--exposure goes with one target", "gaussian regression"]),
    (NUMBERS, [*BOTH, "--trials", "n"], ["--trials goes with one target", "gaussian regression"]),
    (NUMBERS, [*BOTH, "--likelihood", "student_t"], ["--likelihood student_t goes with one target", "a model to each"]),
    (NUMBERS, [*BOTH, "--likelihood", "cauchy"], ["--likelihood is 'cauchy'"]),
    (NUMBERS, [*BOTH, "--outputs", "none"], ["--outputs is 'none'; one of lmc, independent, shared"]),
    (NUMBERS, ["--target", "a", "--outputs", "lmc"], ["--outputs is for several targets, but one is given"]),
]


@pytest.mark.parametrize(("text", "options", "parts"), MISTAKES)
def test_fit_mistakes_are_found_before_torch_is_needed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: list[str], parts: list[str]
) -> None:
    table = tmp_path / "train.csv"
    table.write_text(text)
    monkeypatch.setitem(sys.modules, "nearfield.estimators", None)  # importing it would fail
    failed(run("fit", table, "--out", tmp_path / "m", *options), *parts)
    assert list(tmp_path.iterdir()) == [table]


def test_help_lists_the_choices_that_there_are(run: Run) -> None:
    shown = " ".join(run("fit", "--help").out.split())
    for choices in (OUTPUTS, MEANS, ["auto", *tasks()], names_for("GPRegressor", ("number",))):
        assert ", ".join(choices) in shown


def test_later_tables(models: dict[str, Path], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table("test")
    taken = write(tmp_path / "k.csv", table.append_column("high_std", pa.array(range(TEST))))
    failed(run("predict", models["default"], taken, "--keep", "high_std"), "'high_std'", "rename")
    assert run("predict", models["default"], taken, "--keep", "high", "--keep", "low").code == 0
    text = table.set_column(5, "high", pa.array(["1"] * 20 + ["much"] * 20))
    path = write(tmp_path / "t.csv", text)
    failed(run("evaluate", models["default"], path, "--block-rows", 8), "The target 'high' has 'much' in row 21")
    monkeypatch.setitem(sys.modules, "nearfield.estimators", None)
    lacking = write(tmp_path / "l.csv", table.rename_columns(["id", "x1", "x2", "low", "colour", "hihg"]))
    failed(run("evaluate", models["default"], lacking), "A target is not in the table: 'high' (nearest: 'hihg')")


# --------------------------------------------------------------------------------------------------- the model file


def test_json_gives_the_same_targets(models: dict[str, Path]) -> None:
    encoder = fitted(make_table("train"), ["low", "high"], ["id"])
    assert isinstance(encoder.target, Targets)
    assert encoder.target.names == ["low", "high"]
    again = from_description(json.loads(json.dumps(description(encoder), allow_nan=False)))
    assert description(again) == description(encoder)
    assert reader_of(models["default"]).target.names == ["low", "high"]


def changed(part: int, **change: object) -> dict[str, Any]:
    """The description of the targets with one of them changed."""
    targets = [Target(name).to_json() for name in ("low", "high")]
    targets[part] |= change
    return {"targets": targets}


@pytest.mark.parametrize(
    "change",
    [
        {"targets": None},
        {"targets": []},
        {"targets": {}},
        {"targets": ["low", "high"]},
        {"targets": changed(0)["targets"][:1]},
        {"target": "low"},
        changed(0, target="high"),
        changed(0, target=1),
        changed(0, target="x1"),  # a feature
        changed(1, task="classification", kind="text"),
        changed(1, task="counts"),
        changed(1, task="auto"),
        changed(1, kind="text"),
        changed(1, given={"trials": "n"}),
        changed(1, likelihood="binomial"),
    ],
)
def test_a_damaged_description_is_refused(change: dict[str, Any]) -> None:
    good = description(fitted(make_table("train"), ["low", "high"], ["id"]))
    assert from_description(good | changed(0)).target.names == ["low", "high"]
    with pytest.raises(ValueError, match="description of"):
        from_description(good | change)


@pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")
def test_a_description_of_other_targets_than_the_model_has(
    models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    model, out = GPRegressor.load(models["default"]), tmp_path / "m"
    model._described = model._described["targets"][0]
    model.save(out)
    for command in (["info", out], ["predict", out, tables["test"]], ["evaluate", out, tables["test"]]):
        failed(run(*command), "it predicts 2 targets, but its table has 1", "damaged")
