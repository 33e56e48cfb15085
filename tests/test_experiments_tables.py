"""The README's tables of accuracy: what is fitted, to which rows, and what stands in their cells."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import experiment_tasks  # noqa: F401  # puts `experiments` on the path
import numpy as np
import pytest

from experiments import accuracy
from experiments.accuracy import classes, counts, few_rows, outliers, outputs, table, univariate, update
from experiments.accuracy.table import Wanted

ROOT = Path(accuracy.__file__).parents[2]
PUBLIC = {
    "nearfield",
    "nearfield.metrics",
    "nearfield.counts",
    "nearfield.datasets",
    "nearfield.atomic",
    "nearfield.dask",
}
STEPS = {
    "step",
    "lmc_step",
    "class_step",
    "warp_step",
    "search",
    "restricted",
    "approximate",
    "report",
    "scale",
    "against_old",
}  # these time what is inside


# --- what may be imported -------------------------------------------------------------------------------------------


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


SCRIPTS = [path for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in STEPS]


@pytest.mark.parametrize("path", sorted([*(ROOT / "experiments").rglob("*.py"), *SCRIPTS]), ids=str)
def test_only_the_public_api_is_used_and_experiments_stand_alone(path):
    names = set(imported(path))
    assert {name for name in names if name.split(".")[0] == "nearfield"} <= PUBLIC
    assert path.parent.name == "benchmarks" or not any(name.split(".")[0] == "benchmarks" for name in names)


# --- cells ----------------------------------------------------------------------------------------------------------


def test_cells_have_means_and_standard_errors():
    assert table.cell([1.0, 2.0, 3.0]) == f"2.0000 ± {1 / np.sqrt(3):.4f}"
    assert table.cell([12.3], 0) == "12"


@pytest.fixture
def fits(monkeypatch, tmp_path):
    """The tasks that a table asked for, each with its split; no fit takes place."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    for name in ("bike", "kin40k", "airfoil"):
        np.savez(tmp_path / name, X=X, y=X[:, 0])
    for name in ("bank", "splice", "moons"):
        np.savez(tmp_path / name, X=X, y=rng.integers(0, 2, 60))
    for name in ("fw_kuka", "sarcos_test"):
        np.savez(tmp_path / name, X=X, y=np.c_[X, X[:, :1]], traj=np.arange(60) // 12)
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    asked = []

    def fit(task, split):
        asked.append((task, split))
        value = float(task.split)
        return {
            "rows": {"outputs": 3},
            "seconds": {"fit": 10.0},
            "metrics": dict.fromkeys(("rmse", "nll", "crps", "coverage_90", "error", "brier"), value)
            | {"calibration_error": 0.5},
            "chosen": {"k": 8 + task.split, "steps": 600, "left_out": {"nll": 0.25}, "mixed": task.split > 0},
        }

    monkeypatch.setattr(table, "fit_and_score", fit)
    monkeypatch.setattr(table, "fit_and_score_outputs", fit)
    monkeypatch.setattr(outliers, "fit_and_score", fit)
    return asked


def cells(of, wanted):
    head, rule, *rows = of.TABLE.markdown(wanted)
    assert head.count("|") == rule.count("|") == rows[0].count("|")
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_univariate_has_both_predictives_beside_the_papers_figures(fits):
    bike, airfoil = cells(univariate, Wanted(["bike", "airfoil"], [0, 1]))
    assert [(task.entry.method, task.split) for task, _ in fits[:4]] == [
        ("loo-k", 0), ("loo-k", 1), ("loo-k-calibrated", 0), ("loo-k-calibrated", 1),
    ]  # fmt: skip
    assert bike == [
        "bike", "0.5000 ± 0.5000", "0.028 / 0.022 (MLL)", "0.500 ± 0.500", "-2.771", "0.500 ± 0.500", "-2.771 (LOO-k)",
        "0.5000 ± 0.5000", "0.008 (LOO-k)", "0.500 ± 0.500", "8, 9",
    ]  # fmt: skip
    assert airfoil[2] == airfoil[4] == airfoil[6] == ""  # the paper has no such data


def test_tables_are_of_the_data_that_are_there(fits):
    assert [row[0] for row in cells(univariate, Wanted(seeds=[0]))] == ["bike", "kin40k"]
    assert [row[0] for row in cells(classes, Wanted(seeds=[0]))] == ["bank", "splice"]
    assert "higgs_18k" not in classes.TABLE.data
    assert set(classes.TABLE.data) > {"titanic", "covtype_fir", "covtype", "chess_krkopt"}


def test_classes_stand_beside_the_papers_figures(fits):
    wanted = Wanted(["bank", "splice", "moons"], [1], rows="validation", settings={"auxiliary": "conjugate"})
    bank, splice, moons = cells(classes, wanted)
    task, split = fits[0]
    assert (task.entry.method, dict(task.entry.options)) == ("loo-k-tied", {"auxiliary": "conjugate"})
    np.testing.assert_array_equal(split.y_test, split.y_val)
    figures = ["0.234 ± 0.008 / 0.234", "0.101 / 0.098"]
    assert bank == ["bank", "1.0000", figures[0], "1.0000", figures[1], "1.0000", "0.5000", "0.2500", "9", "600", "10"]
    assert splice[2] == "0.025 ± 0.001 / 0.025"
    assert moons[2] == moons[4] == ""


def test_outputs_in_three_ways_and_what_left_out_rows_refused(fits):
    lmc, independent, shared, *_ = cells(outputs, Wanted(["fw_kuka"], [0, 1]))
    assert [task.entry.options["outputs"] for task, _ in fits[::2]] == ["lmc", "independent", "shared"]
    assert lmc[:2] == ["fw_kuka (3)", "lmc (default): outputs apart in 1 of 2 fits"]
    assert (lmc[3], lmc[5]) == ("0.089", "-1.892")
    assert independent[:2] == ["", "independent"]
    assert shared[3] == shared[5] == ""
    assert cells(outputs, Wanted(["fw_kuka"], [1]))[0][1] == "lmc (default)"
    assert cells(outputs, Wanted(["fw_kuka"], [0]))[0][1] == "lmc (default): outputs apart"


def test_outputs_of_other_rows_than_the_papers_have_no_figures_beside_them(fits):
    (row,) = cells(outputs, Wanted(["fw_kuka"], [0], by="traj", settings={"outputs": "shared"}))
    assert row[:2] == ["fw_kuka (3)", "shared"]
    assert row[3] == row[5] == ""
    _, split = fits[0]
    assert (len(split.y), len(split.y_test)) == (36, 24)  # three trajectories and two
    assert cells(outputs, Wanted(["sarcos_test"], [0]))[0][3] == ""


def test_outliers_are_those_of_the_first_results(fits):
    spoiled = outliers.spoiled(np.zeros(60), seed=1)
    assert {int(i): spoiled[i] for i in np.flatnonzero(spoiled)} == {27: 20.0, 30: -20.0, 45: 20.0}
    assert cells(outliers, Wanted(["kin40k"], [1])) == [["1", "1.0000", "1.0000", "1.0000", "1.000"]]
    first, plain, robust = fits
    assert [task.entry.options["likelihood"] for task, _ in fits] == ["gaussian", "gaussian", "student_t"]
    assert np.abs(first[1].y).max() < 10
    assert np.abs(plain[1].y).max() == np.abs(robust[1].y).max() == 20.0
    np.testing.assert_array_equal(plain[1].y_test, first[1].y_test)


def test_options_that_a_table_does_not_have_are_refused(fits):
    for of, wanted, message in (
        (few_rows, Wanted(["bike"]), "few-rows takes no --data"),
        (univariate, Wanted(by="traj"), "univariate takes no --by"),
        (counts, Wanted(rows="validation", settings={"k": 3}), "counts takes no --rows, --set"),
    ):
        with pytest.raises(ValueError, match=message):
            next(of.TABLE.markdown(wanted))
    with pytest.raises(ValueError, match="no table 'nope'; there are univariate, "):
        accuracy.find("nope")
    for name in accuracy.TABLES:
        assert accuracy.find(name).name == name


def test_a_folder_without_data_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="None of kin40k is there: set NEARFIELD_DATA"):
        next(outliers.TABLE.markdown(Wanted()))


# --- tables with fits of their own ----------------------------------------------------------------------------------


def test_counts_are_scored_beside_their_peers(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X, riders = rng.normal(size=(200, 2)), rng.poisson(20, 200)
    np.savez(tmp_path / "bike_count", X=X, y=riders.astype(np.float32), casual=(riders // 2).astype(np.float32))
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    train, _, test = counts.parts(counts.SHARE, 0)
    np.testing.assert_array_equal(train.y, train.trials // 2)
    assert counts.parts("bike_count", 0)[2].trials is None
    np.testing.assert_array_equal(counts.parts("bike_count", 0)[2].y, test.trials)
    made = []

    class Model:
        k_, dispersion_ = 16, 2.5

        def __init__(self, likelihood, random_state):
            made.append((likelihood, random_state))

        def fit(self, X, y, **given):
            made.append({name: len(value) for name, value in given.items()})
            return self

        def predict_dist(self, X, **given):
            from scipy.stats import poisson

            return poisson(np.full(len(X), 20.0))

    monkeypatch.setattr(counts, "GPCountRegressor", Model)
    monkeypatch.setattr(
        counts, "CountScores", type("S", (), {"of": lambda y, d: type("D", (), {"as_dict": lambda s: SCORES})()})
    )
    riders_row, share_row = cells(counts, Wanted(["bike_count"], [5]))
    assert made == [("negative_binomial", 5), {}, ("binomial", 5), {"trials": 150}]
    assert riders_row[:3] == ["bike_count", "5", "3.0000"]
    assert riders_row[5:9] == ["1.5", "0.900", "16", "2.5"]
    assert share_row[:3] == ["casual riders", "5", "3.0000"]
    assert (share_row[4], share_row[8]) == ("-", "-")
    assert 2.5 < float(riders_row[3]) < 4  # the GLM's; a Poisson of mean 20 has an entropy of 2.9


SCORES = {"nll": 3.0, "crps": 1.5, "coverage_90": 0.9}


def test_update_appends_the_last_third(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "bank", X=rng.normal(size=(80, 2)), y=np.r_[rng.integers(0, 2, 79), 2])
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    did = []

    class Model:
        def __init__(self, auxiliary, random_state):
            self.score = {"tied": 1.0, "conjugate": 2.0}[auxiliary]

        def fit(self, X, y):
            self.classes, self.score = set(y.tolist()), self.score + len(y) / 1000
            did.append(len(y))
            return self

        def update(self, X, y):
            assert len(X) == len(y)
            assert set(y.tolist()) <= self.classes
            self.score += len(y) / 100

        def log_score(self, X, y):
            assert set(y.tolist()) <= self.classes
            return -self.score

    monkeypatch.setattr(update, "GPClassifier", Model)
    tied, conjugate = cells(update, Wanted(["bank"]))
    assert did == [40, 60, 40, 60]
    assert tied[:4] == ["bank", "0", "tied", "1.0400"]
    assert tied[4] in ("1.2400", "1.2300")  # without the row of a class that the first 40 lack
    assert tied[5] == "1.0600"
    assert conjugate[2:4] == ["conjugate", "2.0400"]


def test_left_out_rows_and_new_rows_where_rows_are_few(monkeypatch):
    """A model that knows the function: its errors are the noise, of standard deviation one."""

    class Model:
        summary_ = type("Summary", (), {"left_out": {"rmse": 0.75}})()

        def __init__(self, random_state):
            pass

        def fit(self, X, y):
            assert X.shape == (80, 3)
            assert np.std(y - self.predict(X)) == pytest.approx(1.0, abs=0.3)
            return self

        def predict(self, X):
            return np.sin(2 * X[:, 0]) + X[:, 1]

        def predict_interval(self, X, coverage):
            assert coverage == 0.9
            return self.predict(X) - 1.0, self.predict(X) + 1.0

    monkeypatch.setattr(few_rows, "GPRegressor", Model)
    monkeypatch.setattr(few_rows, "SHAPES", ((80, 3),))
    ((rows, columns, left_out, new, covered),) = cells(few_rows, Wanted(seeds=[0, 1]))
    assert (rows, columns, left_out) == ("80", "3", "0.750")
    assert float(new) == pytest.approx(1.0, abs=0.1)
    assert float(covered) == pytest.approx(0.683, abs=0.06)  # within one standard deviation


def test_the_command_prints_a_table_of_fits(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from experiments.__main__ import app

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    np.savez(tmp_path / "moons.npz", X=X, y=(X[:, 0] + 0.3 * rng.normal(size=300) > 0).astype(np.int16))
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    words = [
        "table",
        "classes",
        "--datasets",
        "moons",
        "--seeds",
        "0,1",
        "--set",
        "k=8",
        "--set",
        "max_steps=50",
        "--set",
        "auxiliary=tied",
    ]
    shown = CliRunner().invoke(app, [*words, "--set", "auxiliary=tied"])
    assert shown.exit_code == 0, shown.output
    row = [cell.strip() for cell in shown.output.splitlines()[-1].strip("|").split("|")]
    assert (row[0], row[8]) == ("moons", "8, 8")
    assert float(row[1].split(" ± ")[0]) < 0.6  # of a coin: 0.69
    for wrong, message in (("--set k", "--set takes NAME=VALUE, not 'k'"), ("--seeds x", "invalid literal")):
        shown = CliRunner().invoke(app, ["table", "classes", *wrong.split()])
        assert shown.exit_code == 2
        assert message in shown.output


def test_wanted_is_filled_in_by_the_table(fits):
    seen = []
    one = replace(univariate.TABLE, lines=lambda wanted: iter(seen.append(wanted) or ()))
    list(one.markdown(Wanted()))
    assert seen[0].data == ["bike", "kin40k"]
    assert tuple(seen[0].seeds) == (0, 1, 2)
