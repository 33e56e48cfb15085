"""What the README and the pages show: code that runs as it stands, commands, options and versions that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from cli_runs import runner

from nearfield import TrainingRowsWarning, cli
from nearfield.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "reference" / "command-line.md").read_text()


def python_blocks(text, page="README.md"):
    """Code of the blocks with their lines numbered as in the page, so that a traceback points at them."""
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
        before = text[: block.start(1)].count("\n")
        yield compile("\n" * before + block.group(1), page, "exec")


def commands(text):
    return [shlex.split(line)[1:] for line in re.findall(r"^    (nearfield [a-z].*)$", text, re.M)]


def section(text, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.M | re.S).group(1)


# --- Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("brief_training")
def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """All blocks in order, as somebody who copies them into one session; training alone is cut short."""
    monkeypatch.chdir(tmp_path)
    number, robust, several, table, classes, count = python_blocks(README)
    session = {}
    with pytest.warns(TrainingRowsWarning):
        exec(number, session)
    assert session["X"].shape == (3000, 8)
    assert (session["low"] < session["mean"]).all()
    assert (session["mean"] < session["high"]).all()
    assert capsys.readouterr().out.splitlines()[-1] == "True"
    exec(robust, session)
    exec(several, session)
    assert session["mean"].shape == session["std"].shape == (200, 3)
    assert session["covariance"].shape == (200, 3, 3)
    exec(table, session)
    assert session["model"].encoder_.feature_names[:4] == ["rooms", "rooms_missing", "town=Bonn", "town=Trier"]
    assert len(session["model"].feature_importances_) == 3
    exec(classes, session)
    assert list(session["model"].classes_) == ["lower", "upper"]
    assert session["model"].n_rows_ == 1200
    exec(count, session)
    assert (session["low"] % 1 == 0).all()
    assert (session["high"] % 1 == 0).all()
    assert session["dist"].pmf(0).shape == (200,)


@pytest.mark.usefixtures("brief_training")
@pytest.mark.parametrize("page", ["maps.md", "error-bars.md", "scale.md"])
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = {}
    for block in python_blocks((ROOT / "docs" / "guide" / page).read_text(), f"docs/guide/{page}"):
        exec(block, session)
    assert np.all(session["std"] > 0)


def test_figures_of_pages_are_there():
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(((?!http)[^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.usefixtures("brief_training")
def test_the_code_of_the_page_on_scikit_learn_runs():
    session = {}
    for block in python_blocks((ROOT / "docs" / "guide" / "scikit-learn.md").read_text(), "docs/guide/scikit-learn.md"):
        exec(block, session)
    assert (session["low"] < session["mean"]).all()
    assert (session["mean"] < session["high"]).all()
    assert session["odds"].shape == (100,)
    assert session["model"].n_rows_ == 400
    assert (session["scores"] > 0).all()
    assert all((low < high).all() for low, high in session["ends"])


# --- the command line -----------------------------------------------------------------------------------------------


def made_tables(folder, n=60):
    """Tables with the names and the columns of the examples."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n))
    f = np.sin(a) + b
    targets = {
        "train": {"y": f},
        "new": {},
        "test": {"y": f},
        "water": {"nitrate": f, "oxygen": a - b},
        "flowers": {"species": np.where(f > 0, "iris", "rose")},
        "grades": {"grade": np.digitize(f, [-1, 1])},
        "calls": {"calls": rng.poisson(np.exp(f)), "hours": rng.uniform(1, 8, n)},
        "seeds": {"germinated": rng.binomial(9, 1 / (1 + np.exp(-f))), "sown": np.full(n, 9)},
        "sensor": {"y": f},
        "robot": {"torque1": f, "torque2": a - b},
        "plates": {"y": f, "plate": np.arange(n) // 3},
        "sales": {"sold": f, "date": pd.date_range("2024-01-01", periods=n).astype(str)},
        "wells": {"depth": f, "lon": 10 * a, "lat": 10 * b},
    }
    for name, columns in targets.items():
        pd.DataFrame({"a": a, "b": b, **columns}).to_csv(folder / f"{name}.csv", index=False)


# The task and the likelihood of each example of `fit`, by its table.
PROMISED = {
    "train": ("regression", "gaussian"),
    "flowers": ("classification", "bernoulli"),
    "grades": ("classification", "one_against_all"),
    "calls": ("counts", "negative_binomial"),
    "seeds": ("binomial", "binomial"),
    "sensor": ("regression", "student_t"),
    "robot": ("regression", "gaussian_outputs"),
    "plates": ("regression", "gaussian"),
    "sales": ("regression", "gaussian"),
    "wells": ("regression", "gaussian"),
}


@pytest.mark.usefixtures("brief_training")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made_tables(tmp_path)
    run, fitted = runner(capsys), []
    for command in commands(section(README, "From the command line")):
        done = run(*command)
        assert done.code == 0, (command, done.err)
        if command[0] == "fit":
            name = Path(command[1]).stem
            fitted.append(name)
            described = json.loads(run("info", "model.nearfield", "--json").out)
            assert (described["task"], described["summary"]["likelihood"]) == PROMISED[name]
            features = {feature["name"] for feature in described["features"]}
            assert features >= {"a", "b"}
            assert features == {"a", "b"} or name in ("sales", "wells")
    assert sorted(fitted) == sorted(PROMISED)
    assert len(pd.read_csv("predictions.csv")) == len(pd.read_csv("new.csv"))


@pytest.mark.usefixtures("brief_training")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_tables(tmp_path)
    Path("water.csv").replace("train.csv")
    (example,) = [command for command in commands(PAGE) if command[1] == "train.csv"]
    assert main(example) == 0


def test_the_page_lists_every_command_and_option(monkeypatch):
    """Its tables are made from the commands when the site is built; here as they will be."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    import command_tables

    app = typer.main.get_command(cli.app)
    assert [command[0] for command in commands(PAGE.split("\n## ")[0])] == list(app.commands)
    assert re.findall(r"^```{command-options} (\w+)$", PAGE, re.M) == list(app.commands)
    for name, command in app.commands.items():
        assert f"```{{command-options}} {name}\n" in section(PAGE, name)
        listed = command_tables.rows(name, "option")
        options = {option for p in command.params for option in p.opts if option.startswith("--")}
        assert {re.match(r"--[a-z-]+", how)[0] for how, _ in listed} == options
        for how, what in (*listed, *command_tables.rows(name, "argument")):
            assert re.match(r"[A-Z].*\.( \[.*\])?$", what), (name, how, what)  # a sentence, and what click says of it


# --- versions -------------------------------------------------------------------------------------------------------


def test_the_lowest_versions_to_try_are_those_promised():
    promised = (ROOT / "pyproject.toml").read_text().split("dev = [")[0]
    tried = section((ROOT / "CONTRIBUTING.md").read_text(), "The lowest versions")
    assert set(re.findall(r"'([\w-]+)==([\d.]+)\.\*'", tried)) == set(re.findall(r'"([\w-]+)>=([\d.]+)"', promised))
    (oldest,) = re.findall(r'requires-python = ">=([\d.]+)"', promised)
    assert f"python{oldest} -m venv" in tried
