"""The command line and families from outside of the package: their baseline, what they are given, who finds them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from cli_runs import Run, failed, runner, short_training
from model_files import forge
from scipy import stats
from table_reading import reader_of

from nearfield import GPCountRegressor, GPRegressor, entry
from nearfield.cli_arguments import UserError, parse_task
from nearfield.families import FAMILIES, Given, register
from nearfield.families.counts import Binomial, NegativeBinomial
from nearfield.families.gaussian import Gaussian
from nearfield.metrics import CountScores, Scores

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning", "ignore:.*rows are few")

N = 80


class Centred(Gaussian):
    """Gaussian noise, whose constant prediction is a normal around zero: its numbers have other names."""

    name = "centred"

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        return {"root": float(np.sqrt(np.average(y**2, weights=weight)))}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        return stats.norm(np.zeros(n), numbers["root"])


class Visits(NegativeBinomial):
    """Counts under a task of their own, with the exposure that other counts have."""

    name = "visits"
    task = "visits"


class Hits(Binomial):
    """A second family of the task of counts: at most as many as the trials, which it can do without."""

    name = "hits"
    task = "counts"
    given = MappingProxyType({"trials": Given("how many shots there were", whole=True, limits=True)})

    def given_arrays(self, n: int, **given: Any) -> dict[str, np.ndarray]:
        trials = given.get("trials")
        return super().given_arrays(n, trials=np.full(n, 99.0) if trials is None else trials)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    own = (Centred, Visits, Hits)
    for family in own:
        register(family)
    yield
    for family in own:
        FAMILIES.pop(family.name, None)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One input and a target of each kind."""
    rng = np.random.default_rng(0)
    x, hours = rng.uniform(-2, 2, N), rng.uniform(1, 5, N)
    columns = {"x": x, "y": 2 + np.sin(x) + rng.normal(0, 0.1, N), "hours": hours, "tries": rng.integers(1, 9, N)}
    columns["eggs"] = rng.poisson(hours * np.exp(x / 2))
    columns["hits"] = rng.binomial(columns["tries"].astype(int), 0.4)
    lines = [",".join(map(repr, row)) for row in np.column_stack(list(columns.values())).tolist()]
    path = tmp_path / "t.csv"
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")
    return path


def fitted(run: Run, table: Path, target: str, *options: object) -> Path:
    """A model of the target by x alone."""
    others = {"y", "hours", "tries", "eggs", "hits"} - {target, *map(str, options)}
    drop = [part for name in sorted(others) for part in ("--drop", name)]
    out = table.with_suffix(".nearfield")
    with short_training():
        done = run("fit", table, "--target", target, "--out", out, "--k", 8, "--quiet", *options, *drop)
    assert done.code == 0, done
    return out


def read(table: Path) -> dict[str, np.ndarray]:
    found = np.genfromtxt(table, delimiter=",", names=True)
    return {name: found[name] for name in found.dtype.names}


def test_a_second_family_of_a_task_has_its_own_baseline(run: Run, table: Path) -> None:
    model, y = fitted(run, table, "y", "--likelihood", "centred"), read(table)["y"]
    scored = json.loads(run("evaluate", model, table, "--json").out)
    expected = Scores.of(y, stats.norm(0, np.sqrt(np.mean(y**2)))).as_dict()
    assert scored["constant"] == pytest.approx(expected, rel=1e-6)
    told = json.loads(run("info", model, "--json").out)
    assert told["likelihood"] == "centred"
    assert told["target_root"] == pytest.approx(np.sqrt(np.mean(y**2)))
    assert reader_of(model).target.likelihood == "centred"


def test_a_family_with_a_task_of_its_own_does_not_take_the_options_of_others(run: Run, table: Path) -> None:
    told = json.loads(run("info", fitted(run, table, "eggs", "--exposure", "hours"), "--json").out)
    assert (told["task"], told["likelihood"], told["exposure"]) == ("counts", "negative_binomial", "hours")
    model = fitted(run, table, "eggs", "--exposure", "hours", "--task", "visits")
    told = json.loads(run("info", model, "--json").out)
    assert (told["task"], told["likelihood"], told["exposure"]) == ("visits", "visits", "hours")
    rows, loaded = read(table), GPCountRegressor.load(model)
    scored = json.loads(run("evaluate", model, table, "--json").out)
    dist = loaded.predict_dist(rows["x"][:, None], exposure=rows["hours"])
    assert scored["model"] == pytest.approx(CountScores.of(rows["eggs"], dist).as_dict(), rel=1e-6)


def test_what_is_given_is_checked_as_the_family_says(run: Run, table: Path, tmp_path: Path) -> None:
    model = fitted(run, table, "hits", "--likelihood", "hits", "--trials", "tries")
    assert json.loads(run("info", model, "--json").out)["trials"] == "tries"
    bad = tmp_path / "bad.csv"
    bad.write_text("x,tries,hits\n1,5,4\n1,2.5,1\n")
    failed(run("predict", model, bad), "The trials 'tries' is 2.5 in row 2; a whole number of at least 1 is expected")
    bad.write_text("x,tries,hits\n1,5,4\n1,2,3\n")
    failed(run("evaluate", model, bad), "'hits' is 3 in row 2; at most the trials 'tries' is expected")
    without = fitted(run, table, "hits", "--likelihood", "hits")
    assert run("predict", without, bad).code == 0


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("auto", None, {}), ("auto", None)),
        (("classification", None, {}), ("classification", None)),
        (("auto", "student_t", {}), ("regression", "student_t")),
        (("auto", None, {"exposure": "h"}), ("counts", "negative_binomial")),
        (("visits", None, {"exposure": "h"}), ("visits", "visits")),
        (("auto", "visits", {"exposure": "h"}), ("visits", "visits")),
        (("auto", None, {"trials": "n"}), ("binomial", "binomial")),
        (("counts", None, {"trials": "n"}), ("counts", "hits")),
        (("counts", None, {}), ("counts", "negative_binomial")),
    ],
)
def test_options_choose_the_first_family_that_goes_with_all_of_them(asked: Any, expected: Any) -> None:
    assert parse_task(*asked) == expected


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("regression", None, {"exposure": "h"}), "--exposure goes with --task counts or visits, not with regression"),
        (("counts", "student_t", {}), "--likelihood student_t goes with --task regression, not with counts"),
        (("auto", None, {"exposure": "h", "trials": "n"}), "--trials goes with --task binomial or counts, not with"),
        (("binomial", None, {}), "--task binomial needs --trials: the column with the number of trials of each row"),
        (("auto", "poisson", {}), "--likelihood is 'poisson'; one of gaussian"),
        (("sums", None, {}), "--task is 'sums'; one of auto, regression"),
    ],
)
def test_options_that_do_not_go_together(asked: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_task(*asked)


@pytest.mark.parametrize("from_python", [False, True])
def test_a_family_that_is_not_registered_is_named(run: Run, table: Path, from_python: bool) -> None:
    model, rows = table.with_suffix(".nearfield"), read(table)
    if from_python:
        GPRegressor(likelihood="centred", max_steps=20, k=8).fit(rows["x"][:, None], rows["y"]).save(model)
    else:
        fitted(run, table, "y", "--likelihood", "centred")
    del FAMILIES["centred"]
    for command in (("info", model), ("predict", model, table), ("evaluate", model, table)):
        failed(run(*command), "its family is 'centred'", "Register it before loading", "nearfield.families")


def test_tables_of_the_first_version_are_read(run: Run, table: Path) -> None:
    """They had a field each for exposure and trials, and the numbers of the constant prediction."""
    model = fitted(run, table, "eggs", "--exposure", "hours", "--likelihood", "negative_binomial")
    expected = run("evaluate", model, table).out, run("info", model).out, run("predict", model, table).out

    def change(_: Any, record: dict[str, Any]) -> None:
        own = record["header"]["sections"]["table"]
        assert (own.pop("version"), own.pop("likelihood")) == (3, "negative_binomial")
        given = own.pop("given")
        constant = {"rate": 1.0, "dispersion": 1.0}
        own.update(version=1, exposure=given["exposure"], trials=None, constant=constant)

    model.write_bytes(forge(model.read_bytes(), change))
    found = run("evaluate", model, table).out, run("info", model).out, run("predict", model, table).out
    assert found == expected
    assert reader_of(model).target.given == {"exposure": "hours"}


# ------------------------------------------------------------------------------------------------- the process


class Point:
    """An entry point of another package."""

    value = "other.families"

    def __init__(self, load: Any) -> None:
        self.load = load


def test_the_command_loads_the_families_of_other_packages(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FAMILIES.pop("centred")
    groups = []
    monkeypatch.setattr("gc.disable", lambda: None)  # this process goes on

    def points(group: str) -> list[Point]:
        groups.append(group)
        return [Point(lambda: register(Centred))]

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    monkeypatch.setattr(sys, "argv", ["nearfield", "fit", "--help"])
    assert entry.main() == 0
    assert "centred" in capsys.readouterr().out
    assert groups == ["nearfield.families"]

    def broken() -> None:
        raise ImportError("no such thing")

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point(broken)])
    monkeypatch.setattr(sys, "argv", ["nearfield", "--version"])
    assert entry.main() == 0
    assert capsys.readouterr().err == (
        "nearfield: warning: the families of other.families cannot be used: no such thing\n"
    )
