"""The command line for classes, counts and heavy tails: the same as from Python, and one line for every mistake."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from cli_runs import Run, failed, runner, short_training, write
from scipy import stats
from table_reading import description, fitted, from_description, reader_of

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, cli
from nearfield.cli_report import probability_names
from nearfield.metrics import ClassScores, CountScores, Scores
from nearfield.table import read_table

TRAIN, TEST = 150, 60
SPECIES = np.array(["tree frog", "newt", "toad, common"])


def make_table(n: int, seed: int) -> pa.Table:
    """One target of each kind, all of x1; they share a table, and a fit drops the others."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-2, 2, (2, n))
    third = np.digitize(x1 + rng.normal(0, 0.2, n), [-0.7, 0.7])
    hours, tries = rng.uniform(1, 10, n), rng.integers(1, 20, n)
    return pa.table(
        {
            "x1": x1,
            "x2": x2,
            "group": np.array(["a", "b"])[rng.integers(0, 2, n)],
            "species": SPECIES[third],
            "alive": third > 1,
            "grade": third - 1,
            "eggs": rng.negative_binomial(5, 5 / (5 + hours * np.exp(x1))),
            "hours": hours,
            "hits": rng.binomial(tries, 1 / (1 + np.exp(-2 * x1))),
            "tries": tries,
            "weight": np.sin(x1) + 0.1 * rng.standard_t(2, n),
        }
    )


TARGETS = {"species", "alive", "grade", "eggs", "hours", "hits", "tries", "weight"}


class Kind(NamedTuple):
    target: str
    options: list[str]
    estimator: Any
    task: str


KINDS = {
    "text": Kind("species", [], GPClassifier, "classification"),
    "flag": Kind("alive", [], GPClassifier, "classification"),
    "whole": Kind("grade", ["--task", "classification"], GPClassifier, "classification"),
    "exposure": Kind("eggs", ["--exposure", "hours"], GPCountRegressor, "counts"),
    "counts": Kind("eggs", ["--task", "counts", "--predictive", "plain"], GPCountRegressor, "counts"),
    "trials": Kind("hits", ["--trials", "tries"], GPCountRegressor, "binomial"),
    "heavy": Kind("weight", ["--likelihood", "student_t"], GPRegressor, "regression"),
}
CLASSES = ["text", "flag", "whole"]
COUNTS = ["exposure", "counts", "trials"]


def fit_command(train: Path, out: Path, target: str, *options: str) -> list[str]:
    drop = [part for name in sorted(TARGETS - {target, *options}) for part in ("--drop", name)]
    return ["fit", str(train), "--target", target, "--out", str(out), "--k", "16", *options, *drop]


@pytest.fixture(autouse=True, scope="module")
def _few_steps() -> Iterator[None]:
    with short_training():
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    return {name: write(folder / f"{name}.csv", make_table(n, n)) for name, n in (("train", TRAIN), ("test", TEST))}


@pytest.fixture(scope="module")
def models(tables: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for name, kind in KINDS.items():
        command = fit_command(tables["train"], folder / name, kind.target, *kind.options)
        assert cli.main([*command, "--quiet"]) == 0
    return {name: folder / name for name in KINDS}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def of_python(path: Path, kind: Kind, table: pa.Table) -> tuple[Any, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """The model as Python loads it, with the features, the target and what it is counted against."""
    model = kind.estimator.load(path)
    encoder = model.encoder_
    given = {option[2:]: table.column(name).to_numpy().astype(float) for option, name in pairs(kind.options)}
    return model, encoder.transform(table), table.column(kind.target).to_numpy(zero_copy_only=False), given


def pairs(options: list[str]) -> list[tuple[str, str]]:
    found = zip(options[::2], options[1::2], strict=True)
    return [(option, value) for option, value in found if option in ("--exposure", "--trials")]


# --------------------------------------------------------------------------------------------------- end to end


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_predicted_as_in_python(
    name: str, models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    kind = KINDS[name]
    model, x, y, _ = of_python(models[name], kind, make_table(TEST, TEST))
    trained = make_table(TRAIN, TRAIN).column(kind.target).to_pylist()
    assert model.classes_.tolist() == sorted(set(trained))
    for suffix in ("csv", "parquet"):
        out = tmp_path / f"p.{suffix}"
        result = run("predict", models[name], tables["test"], "--out", out, "--block-rows", 17, "--keep", "x1")
        assert result == (0, "", "")
        written = read_table(out)
        assert written.column("prediction").to_pylist() == model.predict(x).tolist()
        p = np.column_stack([column.to_numpy() for column in written.columns[2:]])
        np.testing.assert_allclose(p, model.predict_proba(x), rtol=1e-10, atol=1e-14)
    assert np.mean(model.predict(x) == y) > 0.7
    columns = {"text": ["newt", "toad_common", "tree_frog"], "flag": ["false", "true"], "whole": ["-1", "0", "1"]}
    assert written.column_names == ["x1", "prediction", *(f"p_{label}" for label in columns[name])]


@pytest.mark.parametrize("name", [*COUNTS, "heavy"])
def test_numbers_are_predicted_as_in_python(
    name: str, models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "p.csv"
    options = ["--quantiles", "0.1,0.5", "--coverage", "0.8", "--block-rows", 25]
    assert run("predict", models[name], tables["test"], "--out", out, *options) == (0, "", "")
    written = read_table(out)
    assert written.column_names == ["mean", "std", "lower", "upper", "q0.1", "q0.5"]
    model, x, _, given = of_python(models[name], KINDS[name], make_table(TEST, TEST))
    assert bool(given) == (name in ("exposure", "trials"))
    dist = model.predict_dist(x, **given)
    expected = [dist.mean(), dist.std(), *dist.interval(0.8), dist.ppf(0.1), dist.ppf(0.5)]
    for column, values in zip(written.columns, expected, strict=True):
        np.testing.assert_allclose(column.to_numpy(), values, rtol=1e-9, atol=1e-12)
    assert [str(column.type) for column in written.columns[2:]] == (["int64"] * 4 if name in COUNTS else ["double"] * 4)


@pytest.mark.parametrize("name", CLASSES)
def test_evaluate_scores_classes(
    name: str, models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    found = json.loads(run("evaluate", models[name], tables["test"], "--json", "--block-rows", 17).out)
    model, x, y, _ = of_python(models[name], KINDS[name], make_table(TEST, TEST))
    place = np.searchsorted(model.classes_, y)
    shares = np.bincount(
        np.searchsorted(model.classes_, make_table(TRAIN, TRAIN).column(KINDS[name].target).to_pylist())
    )
    constant = np.tile(shares / TRAIN, (TEST, 1))
    assert (found["rows"], found["skipped"], found["unseen"]) == (TEST, 0, 0)
    assert found["model"] == pytest.approx(ClassScores.of(place, model.predict_proba(x)).as_dict(), rel=1e-9)
    assert found["constant"] == pytest.approx(ClassScores.of(place, constant).as_dict(), rel=1e-9)
    text = run("evaluate", models[name], tables["test"]).out
    for label in ("NLL", "error", "Brier score", "calibration error", f"{found['model']['brier']:.5g}"):
        assert label in text


def test_labels_that_training_did_not_have_are_errors(models: dict[str, Path], run: Run, tmp_path: Path) -> None:
    table = make_table(TEST, TEST)
    model, x, y, _ = of_python(models["text"], KINDS["text"], table)
    seen = np.arange(TEST) % 6 != 0
    missing = np.arange(TEST) % 6 == 3
    labels = pa.array(np.where(seen, y, "olm"), mask=missing)
    path = write(tmp_path / "t.csv", table.set_column(table.column_names.index("species"), "species", labels))
    found = json.loads(run("evaluate", models["text"], path, "--json", "--block-rows", 7).out)
    assert (found["rows"], found["skipped"], found["unseen"]) == (50, 10, 10)
    scored = seen & ~missing
    scores = ClassScores.of(np.searchsorted(model.classes_, y[scored]), model.predict_proba(x[scored]))
    assert found["model"]["nll"] == pytest.approx(scores.as_dict()["nll"], rel=1e-9)
    assert found["model"]["error"] == pytest.approx((scores.wrong + 10) / 50)
    text = run("evaluate", models["text"], path).out
    assert "50 rows (10 more without a target were skipped)" in text
    assert "10 of them have labels that training did not have: they count as errors" in text
    strange = table.set_column(table.column_names.index("species"), "species", pa.array(["olm"] * TEST))
    failed(run("evaluate", models["text"], write(tmp_path / "s.csv", strange)), "No label of the target 'species'")


@pytest.mark.parametrize("name", COUNTS)
def test_evaluate_scores_counts(
    name: str, models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    found = json.loads(run("evaluate", models[name], tables["test"], "--json", "--block-rows", 17).out)
    model, x, y, given = of_python(models[name], KINDS[name], make_table(TEST, TEST))
    assert found["model"] == pytest.approx(CountScores.of(y, model.predict_dist(x, **given)).as_dict(), rel=1e-6)
    train = make_table(TRAIN, TRAIN)
    seen, base = train.column(KINDS[name].target).to_numpy(), np.ones(TRAIN)
    if given:
        base = train.column(pairs(KINDS[name].options)[0][1]).to_numpy()
    rate = (seen.sum() + 0.5) / (base.sum() + (1 if name == "trials" else 0))
    mean = rate * next(iter(given.values()), np.ones(TEST))
    assert found["constant"]["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-6)
    if name == "trials":
        nll = -stats.binom.logpmf(y, given["trials"], rate).mean()
    else:
        r = 1 / (np.sum((seen - rate * base) ** 2 - rate * base) / np.sum((rate * base) ** 2))
        nll = -stats.nbinom.logpmf(y, r, r / (r + mean)).mean()
    assert found["constant"]["nll"] == pytest.approx(nll, rel=1e-6)
    assert found["model"]["nll"] < found["constant"]["nll"]
    assert "inside 90 %" in run("evaluate", models[name], tables["test"]).out


def test_the_constant_beside_heavy_tails_is_a_normal_of_all_rows(
    models: dict[str, Path], tables: dict[str, Path], run: Run
) -> None:
    found = json.loads(run("evaluate", models["heavy"], tables["test"], "--json").out)
    seen = make_table(TRAIN, TRAIN).column("weight").to_numpy()
    constant = stats.norm(seen.mean(), seen.std())
    expected = Scores.of(make_table(TEST, TEST).column("weight").to_numpy(), constant)
    assert found["constant"] == pytest.approx(expected.as_dict(), rel=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_info_describes_each_kind(name: str, models: dict[str, Path], run: Run) -> None:
    found, text = json.loads(run("info", models[name], "--json").out), run("info", models[name]).out
    kind = KINDS[name]
    model = kind.estimator.load(models[name])
    assert (found["task"], found["estimator"]) == (kind.task, kind.estimator.__name__)
    assert (found["rows"], found["target"], found["k"]) == (TRAIN, kind.target, 16)
    assert {feature["name"] for feature in found["features"]} == {"x1", "x2", "group=a", "group=b"}
    assert "noise_std" not in found
    assert found["predictive"] == ("plain" if name == "counts" else "calibrated")
    if name in CLASSES:
        labels = make_table(TRAIN, TRAIN).column(kind.target).to_pylist()
        counts = {label: labels.count(label) for label in model.classes_.tolist()}
        assert {c["label"]: c["count"] for c in found["classes"]} == counts
        assert [c["share"] for c in found["classes"]] == pytest.approx([n / TRAIN for n in counts.values()])
        assert all(str(label) in text for label in counts)
    else:
        assert found["likelihood"] == model.likelihood
    if name in COUNTS:
        assert found.get("dispersion") == model.dispersion_
        assert (found.get("exposure"), found.get("trials")) == (
            "hours" if name == "exposure" else None,
            "tries" if name == "trials" else None,
        )
    if name == "heavy":
        assert found["noise_scale"] == model.noise_std_


@pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")
def test_info_of_a_kernel_for_each_class(models: dict[str, Path], run: Run, tmp_path: Path) -> None:
    train = make_table(TRAIN, TRAIN)
    shared, x, y, _ = of_python(models["text"], KINDS["text"], train)
    model = GPClassifier(class_kernels="own", k=16, max_steps=20, random_state=0).fit(x, y)
    model._encoder, model._described = shared.encoder_, shared._described
    model._adopt(model._fit)  # names of features
    model.save(tmp_path / "m")
    assert model.length_scales_.shape == (3, 4)
    found, text = json.loads(run("info", tmp_path / "m", "--json").out), run("info", tmp_path / "m").out
    features = {feature["name"]: feature for feature in found["features"]}
    for place, name in enumerate(["x1", "x2", "group=a", "group=b"]):
        lengths, relevance = model.length_scales_[:, place].tolist(), model.feature_relevance_[name]
        bent = dict(zip(("as_it_is", "normal_score", "uniform_score"), model.bends_[place].tolist(), strict=True))
        assert features[name] == {"name": name, "relevance": relevance, "length_scales": lengths, "bent": bent}
    assert "relevance" in text
    assert "length scale" not in text


# ------------------------------------------------------------------------------------------------ choosing the task


def test_categories_are_classes(run: Run, tmp_path: Path) -> None:
    labels = pa.array(["a", "b"] * 20).dictionary_encode()
    path, out = write(tmp_path / "t.parquet", pa.table({"x": np.arange(40.0), "y": labels})), tmp_path / "m"
    assert run("fit", path, "--target", "y", "--out", out, "--quiet") == (0, "", "")
    assert GPClassifier.load(out).classes_.tolist() == ["a", "b"]
    assert json.loads(run("evaluate", out, path, "--json").out)["unseen"] == 0
    of_numbers = pa.table({"x": [1.0, 2.0], "y": pa.array([3, 4]).dictionary_encode()})
    encoder = fitted(of_numbers, "y", task="auto")
    assert (encoder.target.task, encoder.target.kind) == ("classification", "whole")
    assert encoder.target_values(of_numbers).tolist() == [3, 4]


def test_a_task_that_may_be_another_is_said(tables: dict[str, Path], run: Run, tmp_path: Path) -> None:
    def notes(target: str, *options: str) -> str:
        result = run(*fit_command(tables["train"], tmp_path / "m", target, *options))
        assert result.code == 0
        return result.err

    said = notes("grade")
    assert len(said.splitlines()) == 1
    assert said.startswith("nearfield: note: the target 'grade' has 3 different values, all whole")
    assert "--task regression" in said
    assert "--task classification" in said
    assert json.loads(run("info", tmp_path / "m", "--json").out)["task"] == "regression"
    assert notes("grade", "--quiet") == notes("grade", "--task", "regression") == notes("weight") == ""
    assert "'eggs' is taken as --task counts" in notes("eggs", "--exposure", "hours")
    result = run(*fit_command(tables["train"], tmp_path / "m", "species"))
    assert (result.code, result.err) == (0, "")
    assert "target 'species' of 3 classes" in result.out


def test_text_that_is_mostly_numbers_is_meant_as_numbers(run: Run, tmp_path: Path) -> None:
    cells = [str(i / 3) for i in range(30)]
    path, out = tmp_path / "t.csv", tmp_path / "m"
    path.write_text("x,y\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate([*cells, "abc"])))
    failed(run("fit", path, "--target", "y", "--out", out), "The target 'y' has 'abc' in row 31; a number is expected")
    numbers = write(tmp_path / "t.parquet", pa.table({"x": np.arange(30.0), "y": cells}))
    assert run("fit", numbers, "--target", "y", "--out", out, "--quiet").code == 0
    assert json.loads(run("info", out, "--json").out)["task"] == "regression"


def test_names_of_probabilities_are_clean_and_unique() -> None:
    assert probability_names(["a b", "a_b", "a,b", "a_b_2", "", " ", "c++", "-1"]) == [
        "p_a_b",
        "p_a_b_2",
        "p_a_b_3",
        "p_a_b_2_2",
        "p_class",
        "p_class_2",
        "p_c++",
        "p_-1",
    ]
    assert probability_names([False, True]) == ["p_false", "p_true"]


# ------------------------------------------------------------------------------------------------------ mistakes


NUMBERS = "x,n,y\n1,2,0\n2,3,1\n3,4,2\n"

MISTAKES = [
    ("x,y\n1,red\n2,blue\n", ["--task", "regression"], ["The target 'y' has 'red' in row 1", "a number"]),
    ("x,y\n1,true\n2,false\n", ["--task", "regression"], ["'y' has type bool; numbers"]),
    ("x,y\n1,red\n2,\n3,red\n", [], ["'y' is 'red' in every row"]),
    ("x,y\n1,red\n2,red\n", [], ["'y' is 'red' in every row; at least two classes"]),
    ("x,y\n1,1\n2,2.5\n", ["--task", "classification"], ["'y' has 2.5 in row 2", "whole numbers"]),
    ("x,y\n" + "".join(f"{i},name {i}\n" for i in range(70)), [], ["'y' is text with 70 different", "--task"]),
    ("x,y\n1,2020-01-01\n2,2020-01-02\n", ["--task", "classification"], ["'y' has type date32"]),
    ("x,y\n1,3\n2,-1\n3,-2\n", ["--task", "counts"], ["'y' is -1 in row 2 (and 1 more are like it)", "a count"]),
    ("x,y\n1,3\n2,0.5\n", ["--task", "counts"], ["'y' is 0.5 in row 2; a count"]),
    ("x,y\n1,red\n2,blue\n", ["--task", "counts"], ["'y' has 'red' in row 1"]),
    (NUMBERS, ["--exposure", "m"], ["The column of the exposure is not in the table: 'm'"]),
    (NUMBERS, ["--exposure", "y"], ["'y' is the target; it cannot be the exposure"]),
    (NUMBERS, ["--exposure", "n", "--drop", "n"], ["'n' is the exposure; it cannot be dropped"]),
    ("x,n,y\n1,1,2\n2,0,2\n", ["--exposure", "n"], ["The exposure 'n' is 0 in row 2; a number above 0"]),
    ("x,n,y\n1,1,2\n2,,2\n", ["--exposure", "n"], ["The exposure 'n' is missing in row 2"]),
    ("x,n,y\n1,a,2\n2,b,2\n", ["--exposure", "n"], ["The exposure 'n' has 'a' in row 1", "a number"]),
    ("x,n,y\n1,2,2\n2,2.5,2\n", ["--trials", "n"], ["The trials 'n' is 2.5 in row 2; a whole number of at least 1"]),
    ("x,n,y\n1,2,2\n2,2,3\n", ["--trials", "n"], ["'y' is 3 in row 2; at most the trials 'n'"]),
    (NUMBERS, ["--task", "binomial"], ["--task binomial needs --trials"]),
    (NUMBERS, ["--exposure", "n", "--trials", "n"], ["--trials goes with --task binomial, not with counts"]),
    (NUMBERS, ["--task", "regression", "--exposure", "n"], ["--exposure goes with --task counts, not with regression"]),
    (NUMBERS, ["--task", "clasification"], ["--task is 'clasification'", "classification"]),
    (NUMBERS, ["--likelihood", "cauchy"], ["--likelihood is 'cauchy'", "student_t"]),
    (
        NUMBERS,
        ["--task", "counts", "--likelihood", "student_t"],
        ["--likelihood student_t goes with --task regression"],
    ),
    (NUMBERS, ["--task", "counts", "--predictive", "gaussian"], ["--predictive is 'gaussian'; calibrated or plain"]),
]


@pytest.mark.parametrize(("text", "options", "parts"), MISTAKES)
def test_fit_mistakes_are_found_before_torch_is_needed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: list[str], parts: list[str]
) -> None:
    table = tmp_path / "train.csv"
    table.write_text(text)
    monkeypatch.setitem(sys.modules, "nearfield.estimators", None)  # importing it would fail
    failed(run("fit", table, "--target", "y", "--out", tmp_path / "m", *options), *parts)
    assert list(tmp_path.iterdir()) == [table]


def test_later_tables_need_the_exposure_and_the_trials(
    models: dict[str, Path], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(TEST, TEST)
    place = table.column_names.index("hours")
    without = write(tmp_path / "w.csv", table.drop_columns(["hours", "tries"]))
    gap = write(tmp_path / "g.csv", table.set_column(place, "hours", pa.array([1.0, None] * (TEST // 2))))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "nearfield.estimators", None)
        failed(run("predict", models["exposure"], without), "The column of the exposure", "'hours'")
        failed(run("evaluate", models["exposure"], without), "The column of the exposure", "'hours'")
        failed(run("predict", models["trials"], without), "The column of the trials", "'tries'")
        failed(run("predict", models["exposure"], gap), "The exposure 'hours' is missing in row 2")
    assert run("predict", models["counts"], without).code == 0
    # rows that are not scored need no exposure
    eggs = pa.array(table.column("eggs").to_numpy(), mask=np.arange(TEST) % 2 == 1)
    both = pa.csv.read_csv(gap).set_column(table.column_names.index("eggs"), "eggs", eggs)
    result = run("evaluate", models["exposure"], write(tmp_path / "b.csv", both), "--json")
    assert json.loads(result.out)["skipped"] == TEST // 2


def test_impossible_counts_are_pointed_at_in_evaluate(models: dict[str, Path], run: Run, tmp_path: Path) -> None:
    table = make_table(TEST, TEST)
    eggs = pa.array([None, *[2] * 30, -2, *[1] * (TEST - 32)])
    path = write(tmp_path / "t.csv", table.set_column(table.column_names.index("eggs"), "eggs", eggs))
    failed(run("evaluate", models["counts"], path, "--block-rows", 10), "'eggs' is -2 in row 32; a count")


def test_intervals_are_not_for_classes(
    models: dict[str, Path], tables: dict[str, Path], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = write(tmp_path / "k.csv", make_table(TEST, TEST).append_column("p_newt", pa.array(range(TEST))))
    failed(run("predict", models["text"], kept, "--keep", "p_newt"), "'p_newt'", "rename")
    monkeypatch.setitem(sys.modules, "nearfield.estimators", None)
    failed(run("predict", models["text"], tables["test"], "--coverage", 0.8), "--coverage is for numbers")
    failed(run("predict", models["text"], tables["test"], "--quantiles", 0.8), "--quantiles is for numbers")


@pytest.mark.parametrize(
    "change",
    [
        {"task": "guess"},
        {"task": 3},
        {"task": "binomial"},
        {"kind": "text"},
        {"given": {"trials": "n"}},
        {"given": {"exposure": 1}},
        {"given": ["exposure"]},
        {"task": "binomial", "likelihood": "binomial"},
        {"likelihood": "gaussian"},
        {"likelihood": 1},
    ],
)
def test_a_damaged_description_of_the_target_is_refused(models: dict[str, Path], change: dict[str, Any]) -> None:
    good = description(reader_of(models["exposure"]))
    assert from_description(good).target.given == {"exposure": "hours"}
    with pytest.raises(ValueError, match="description of its target is damaged"):
        from_description(good | change)
