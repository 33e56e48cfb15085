"""Models saved in Python, on the command line: the same predictions, and a constant prediction of the training rows."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_runs import Run, failed, runner, short_training
from model_files import forge
from scipy import stats

from nearfield import GPClassifier, GPCountRegressor, GPRegressor
from nearfield.cli import main
from nearfield.metrics import ClassScores, CountScores, Scores
from nearfield.migration import NEWEST

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning", "ignore:.*rows are few")

N = 120
DAYS = np.array(["2024-02-29", "2023-01-01", "2025-12-31"], dtype="datetime64[D]")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def data(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Inputs (n, 2), a smooth function (n,) of the first, and what draws the rest."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]), rng


def write(folder: Path, X: np.ndarray, columns: list[str], **further: Any) -> Path:
    """A table of inputs and further columns, in another order than the model's."""
    frame = pd.DataFrame(X, columns=columns).assign(**further)
    frame[frame.columns[::-1]].to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def saved(model: Any, folder: Path) -> Path:
    model.save(folder / "m.nearfield")
    return folder / "m.nearfield"


def predicted(run: Run, model: Path, table: Path, *options: object) -> pd.DataFrame:
    result = run("predict", model, table, *options)
    assert result.code == 0, result
    return pd.read_csv(io.StringIO(result.out))


def evaluated(run: Run, model: Path, table: Path, *options: object) -> dict[str, Any]:
    result = run("evaluate", model, table, "--json", *options)
    assert result.code == 0, result
    found: dict[str, Any] = json.loads(result.out)
    return found


def described(run: Run, model: Path) -> dict[str, Any]:
    result = run("info", model, "--json")
    assert result.code == 0, result
    assert run("info", model).code == 0
    found: dict[str, Any] = json.loads(result.out)
    return found


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
@pytest.mark.parametrize("column", [False, True])
def test_numbers(run: Run, tmp_path: Path, named: bool, likelihood: str, column: bool) -> None:
    """Also of y (n, 1), with weights, equal rows and outliers: the constant prediction is a normal of all rows."""
    X, f, rng = data()
    X[60:70] = X[50:60]
    y, weight = f + 0.1 * rng.standard_t(2, N), 1.0 + np.arange(N) % 3
    columns, target = (["width", "height"], "mass") if named else (["x0", "x1"], "y")
    model = GPRegressor(max_steps=8, random_state=0, likelihood=likelihood)
    inputs: Any = pd.DataFrame(X, columns=columns) if named else X
    if column:
        targets: Any = pd.DataFrame({target: y}) if named else y[:, None]
    else:
        targets = pd.Series(y, name=target) if named else y
    path = saved(model.fit(inputs, targets, sample_weight=weight), tmp_path)
    table = write(tmp_path, X, columns, **{target: y})
    found, (mean, std) = predicted(run, path, table, "--quantiles", "0.2"), model.predict(inputs, return_std=True)
    np.testing.assert_allclose(found["mean"], mean.ravel())
    np.testing.assert_allclose(found["std"], std.ravel())
    np.testing.assert_allclose(found["q0.2"], model.predict_quantiles(inputs, 0.2).ravel())
    scored = evaluated(run, path, table)
    dist = model.predict_dist(inputs)
    marginal = dist.dist(*(np.broadcast_to(values, mean.shape).ravel() for values in dist.args))
    assert scored["model"] == pytest.approx(Scores.of(y, marginal).as_dict(), rel=1e-6)
    every = np.repeat(y, weight.astype(int))
    assert scored["constant"] == pytest.approx(Scores.of(y, stats.norm(every.mean(), every.std())).as_dict(), rel=1e-6)
    told = described(run, path)
    assert (told["target"], told["likelihood"]) == (target, likelihood)
    assert (told["target_mean"], told["target_std"]) == pytest.approx((every.mean(), every.std()))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("outputs", ["shared", "lmc"])
def test_several_outputs(run: Run, tmp_path: Path, named: bool, outputs: str) -> None:
    X, f, rng = data()
    Y = np.column_stack([f, 3 - f]) + 0.1 * rng.standard_normal((N, 2))
    Y[:20, 1] = np.nan
    columns, targets = (["width", "height"], ["low", "high"]) if named else (["x0", "x1"], ["y0", "y1"])
    inputs: Any = pd.DataFrame(X, columns=columns) if named else X
    weight = 1.0 + np.arange(N) % 2
    model = GPRegressor(max_steps=8, random_state=0, outputs=outputs, k=16)
    model.fit(inputs, pd.DataFrame(Y, columns=targets) if named else Y, sample_weight=weight)
    path = saved(model, tmp_path)
    table = write(tmp_path, X, columns, **dict(zip(targets, Y.T, strict=True)))
    found, (mean, std) = predicted(run, path, table), model.predict(inputs, return_std=True)
    scored, told = evaluated(run, path, table), described(run, path)
    for p, name in enumerate(targets):
        np.testing.assert_allclose(found[f"{name}_mean"], mean[:, p])
        np.testing.assert_allclose(found[f"{name}_std"], std[:, p])
        there = ~np.isnan(Y[:, p])
        every = np.repeat(Y[there, p], weight[there].astype(int))
        constant = Scores.of(Y[there, p], stats.norm(every.mean(), every.std()))
        assert scored["targets"][name]["constant"] == pytest.approx(constant.as_dict(), rel=1e-6)
        assert told["targets"][p]["name"] == name
        assert told["targets"][p]["mean"] == pytest.approx(every.mean())


@pytest.mark.parametrize("likelihood", ["negative_binomial", "binomial"])
@pytest.mark.parametrize("alone", [False, True])
def test_counts(run: Run, tmp_path: Path, likelihood: str, alone: bool) -> None:
    """Weighted rows, equal ones joined: the constant is that of the rows repeated as often."""
    X, f, rng = data()
    if not alone:
        X[60:90] = X[30:60]
    base, weight = rng.integers(1, 9, N).astype(float), 1.0 + np.arange(N) % 3
    base[60:90] = base[30:60]
    name = "trials" if likelihood == "binomial" else "exposure"
    y = (
        rng.binomial(base.astype(int), 0.3)
        if name == "trials"
        else rng.negative_binomial(3, 3 / (3 + base * np.exp(f)))
    )
    y[60:90] = y[30:60]  # so that whole rows are equal, and joined
    model = GPCountRegressor(max_steps=8, random_state=0, likelihood=likelihood, k=16)
    path = saved(model.fit(X, y, sample_weight=weight, **{name: base}), tmp_path)
    table = write(tmp_path, X, ["x0", "x1"], y=y, **{name: base})
    dist = model.predict_dist(X, **{name: base})
    found = predicted(run, path, table)
    np.testing.assert_allclose(found["mean"], dist.mean())
    np.testing.assert_array_equal(found["upper"], dist.interval(0.9)[1])
    scored = evaluated(run, path, table)
    assert scored["model"] == pytest.approx(CountScores.of(y, dist).as_dict(), rel=1e-6)
    often = weight.astype(int)
    seen, against = np.repeat(y, often), np.repeat(base, often)
    if name == "trials":
        share = (seen.sum() + 0.5) / (against.sum() + 1)
        nll = -stats.binom.logpmf(y, base, share).mean()
    else:
        rate = (seen.sum() + 0.5) / against.sum()
        r = np.sum((rate * against) ** 2) / np.sum((seen - rate * against) ** 2 - rate * against)
        nll = -stats.nbinom.logpmf(y, r, r / (r + rate * base)).mean()
    assert scored["constant"]["nll"] == pytest.approx(nll, rel=1e-6)
    assert described(run, path)[name] == name
    failed(run("predict", path, write(tmp_path, X, ["x0", "x1"])), f"The column of the {name}")


def test_counts_without_an_exposure_need_none(run: Run, tmp_path: Path) -> None:
    X, f, rng = data()
    y = rng.poisson(np.exp(f))
    model = GPCountRegressor(max_steps=8, random_state=0, k=16).fit(X, y)
    path = saved(model, tmp_path)
    np.testing.assert_allclose(predicted(run, path, write(tmp_path, X, ["x0", "x1"]))["mean"], model.predict(X))
    assert "exposure" not in described(run, path)


LABELS = {
    "text": np.array(["b", "a", "c"]),
    "whole floats": np.array([2.0, 0.0, 1.0]),
    "whole": np.array([2, 0, 1]),
    "dates": DAYS,
    "times": DAYS.astype("datetime64[ns]") + np.timedelta64(90, "m"),
}


@pytest.mark.parametrize("which", LABELS)
@pytest.mark.parametrize("named", [False, True])
def test_classes(run: Run, tmp_path: Path, which: str, named: bool) -> None:
    X, f, _ = data()
    place = np.digitize(f, [-0.5, 0.5])
    y = LABELS[which][place]
    columns, target = (["width", "height"], "sort") if named else (["x0", "x1"], "y")
    inputs: Any = pd.DataFrame(X, columns=columns) if named else X
    weight = 1.0 + np.arange(N) % 2
    model = GPClassifier(max_steps=8, random_state=0, k=16)
    model.fit(inputs, pd.Series(y, name=target) if named else y, sample_weight=weight)
    path, table = saved(model, tmp_path), write(tmp_path, X, columns, **{target: y})
    told = described(run, path)
    counts = [weight[y == label].sum() for label in model.classes_]
    assert [c["count"] for c in told["classes"]] == counts
    unit = {"times": "s", "dates": "D"}.get(which)  # pandas knows seconds only
    shown = [str(np.datetime64(label, unit) if unit else label) for label in model.classes_]
    shown = [label.removesuffix(".0") for label in shown]
    assert [str(c["label"]) for c in told["classes"]] == shown
    found, p = predicted(run, path, table), model.predict_proba(inputs)
    np.testing.assert_allclose(found[[f"p_{label}" for label in shown]], p)
    assert found["prediction"].astype(str).tolist() == [shown[best] for best in p.argmax(axis=1)]
    scored = evaluated(run, path, table)
    numbers = np.searchsorted(model.classes_, y)
    assert (scored["rows"], scored["unseen"]) == (N, 0)
    assert scored["model"] == pytest.approx(ClassScores.of(numbers, p).as_dict(), rel=1e-9)
    constant = np.tile(np.array(counts) / weight.sum(), (N, 1))
    assert scored["constant"] == pytest.approx(ClassScores.of(numbers, constant).as_dict(), rel=1e-9)


def test_labels_that_no_table_holds_are_described_and_predicted(run: Run, tmp_path: Path) -> None:
    X, f, _ = data()
    y = np.where(f > 0, np.timedelta64(1, "D"), np.timedelta64(2, "D"))
    path = saved(GPClassifier(max_steps=8, random_state=0, k=16).fit(X, y), tmp_path)
    table = write(tmp_path, X, ["x0", "x1"], y=1)
    assert [c["label"] for c in described(run, path)["classes"]] == ["1 day, 0:00:00", "2 days, 0:00:00"]
    assert set(predicted(run, path, table)["prediction"]) <= {"1 day, 0:00:00", "2 days, 0:00:00"}
    failed(run("evaluate", path, table), "'y' cannot be read as the model's classes")


@pytest.mark.parametrize("name", ["true", "false"])
def test_flags_from_python(run: Run, tmp_path: Path, name: str) -> None:
    X, f, _ = data()
    model = GPClassifier(max_steps=8, random_state=0, k=16).fit(X, f > 0)
    path, table = saved(model, tmp_path), write(tmp_path, X, ["x0", "x1"], y=f > 0)
    assert evaluated(run, path, table)["unseen"] == 0
    place = ["false", "true"].index(name)
    np.testing.assert_allclose(predicted(run, path, table)[f"p_{name}"], model.predict_proba(X)[:, place])


# ------------------------------------------------------------------------------------------------- newer versions


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A table, and what the command line makes of it."""
    X, f, _ = data(40)
    folder = tmp_path_factory.mktemp("newer")
    table, path = write(folder, X, ["x0", "x1"], y=f), folder / "m.nearfield"
    with short_training():
        assert main(["fit", str(table), "--target", "y", "--out", str(path), "--k", "8", "--quiet"]) == 0
    return table, path.read_bytes()


@pytest.mark.parametrize("command", ["info", "predict", "evaluate"])
@pytest.mark.parametrize("section", NEWEST)
def test_a_newer_section_is_one_clear_error(
    run: Run, tmp_path: Path, made: tuple[Path, bytes], command: str, section: str
) -> None:
    table, written = made
    path = tmp_path / "m.nearfield"
    later = NEWEST[section] + 1

    def change(_: Any, record: dict[str, Any]) -> None:
        """As a later version might write it: what is in the section now means something else."""
        record["header"]["sections"][section] = {"version": later, "name": "new", "target": 3, "columns": {}}

    path.write_bytes(forge(written, change))
    tables = [] if command == "info" else [table]
    expected = f"section '{section}' has version {later}", "upgrade nearfield", "m.nearfield"
    failed(run(command, path, *tables), *expected)
    if section == "table":
        with pytest.raises(ValueError, match="upgrade nearfield"):
            GPRegressor.load(path)
