"""What the README and the pages show: code that runs as it stands, commands, options and versions that exist."""

from __future__ import annotations

import json
import re
import shlex
import warnings
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
DOCS = ROOT / "docs"
PAGE = (DOCS / "reference" / "command-line.md").read_text()


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


def run(path, session):
    """The blocks of a page in order, as somebody who copies them into one session. Pages have no code that warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("error", FutureWarning)
        for block in python_blocks(path.read_text(), str(path.relative_to(ROOT))):
            exec(block, session)
    return session


@pytest.mark.usefixtures("brief_training")
def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """Training alone is cut short, here as in the pages."""
    monkeypatch.chdir(tmp_path)
    session = {}
    (block,) = python_blocks(README)
    with pytest.warns(TrainingRowsWarning):
        exec(block, session)
    assert (session["low"] < session["mean"]).all()
    assert (session["mean"] < session["high"]).all()
    assert capsys.readouterr().out.splitlines()[-1] == "True"


def ordered(session):
    return (session["low"] < session["high"]).all()


# What holds after the last block of a page, whatever the processor.
HOLDS = {
    "index.md": ordered,
    "start/first-fit.md": lambda s: ordered(s) and s["inside"].mean() > 0.7 and Path("arm.nearfield").exists(),
    "guide/numbers.md": lambda s: s["quantiles"].shape == (100, 3) and ordered(s) and s["weighted"].n_rows_ == 300,
    "guide/classes.md": lambda s: list(s["model"].classes_) == ["lower", "upper"] and s["inside"].any(axis=1).all(),
    "guide/counts.md": lambda s: (s["low"] % 1 == 0).all() and (s["high"] % 1 == 0).all(),
    "guide/outputs.md": lambda s: s["covariance"].shape == (100, 3, 3) and s["samples"].shape == (3, 3, 200),
    "guide/tables.md": lambda s: (
        s["model"].encoder_.feature_names[:4] == ["rooms", "rooms_missing", "town=Bonn", "town=Trier"]
        and len(s["model"].feature_importances_) == 3
    ),
    "guide/groups-and-time.md": lambda s: (
        s["as_patients"].summary_.left_out["rmse"] > s["as_rows"].summary_.left_out["rmse"]
    ),
    "guide/seasons.md": lambda s: "date_year_sin" in s["dated"].encoder_.feature_names,
    "guide/settings.md": lambda s: s["fast"].k_ == 32,
    "guide/rows.md": lambda s: s["model"].n_rows_ == 498,
    "guide/files.md": lambda s: (s["same"].predict(s["X"]) == s["model"].predict(s["X"])).all(),
    "guide/error-bars.md": lambda s: ordered(s) and (s["std"] > 0).all(),
    "guide/maps.md": lambda s: np.all(s["std"] > 0),
    "guide/scale.md": lambda s: (s["std"] > 0).all(),
    "guide/report.md": lambda s: Path("report.html").exists() and s["data"],
    "guide/scikit-learn.md": lambda s: (
        s["odds"].shape == (100,)
        and s["model"].n_rows_ == 400
        and (s["scores"] > 0).all()
        and all((low < high).all() for low, high in s["ends"])
    ),
    "guide/dask.md": lambda s: "GPRegressor" in s,  # a cluster of processes is for tests/test_dask.py
    "comparison.md": lambda s: (s["std"] > 0).all(),
}
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "```python" in path.read_text()]


@pytest.mark.usefixtures("brief_training")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_the_code_of_a_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert HOLDS[str(path.relative_to(DOCS))](run(path, {}))


def test_links_of_pages_lead_somewhere():
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(((?!http)[^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


# --- examples -------------------------------------------------------------------------------------------------------

EXAMPLES = sorted((DOCS / "examples").glob("plot_*.py"))


@pytest.mark.usefixtures("brief_training")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, monkeypatch, recwarn):
    """With training cut short; `make docs` runs them as they are."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()) or plt.close("all"))
    session = {}
    exec(compile(path.read_text(), str(path), "exec"), session)
    assert shown, "an example has a picture"
    assert re.match(r"\n(.+)\n=+\n\nYou learn", session["__doc__"]), "title, and what one learns"
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)]


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
    pd.DataFrame({"a": a, "b": b, "height": f}).to_parquet(folder / "heights.parquet")


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
    "heights": ("regression", "gaussian"),
}


def stopped_at_once(page):
    """In place of serving a page until Ctrl-C."""
    raise KeyboardInterrupt


def shown_commands():
    """Commands of the README, then of each page, which may want the first model; those of a cluster are left out."""
    first, *_ = of_readme = commands(section(README, "From the command line"))
    of_pages = [commands(page.read_text()) for page in sorted(DOCS.rglob("*.md")) if page.read_text() != PAGE]
    found = [*of_readme, *(command for page in of_pages if page for command in [first, *page])]
    return [command for command in found if "--dask" not in command]


@pytest.mark.usefixtures("brief_training")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_commands_of_the_readme_and_the_pages_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nearfield.explore.server.Page.serve_forever", stopped_at_once)
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    made_tables(tmp_path)
    run, fitted = runner(capsys), set()
    for command in shown_commands():
        done = run(*command)
        assert done.code == 0, (command, done.err)
        if command[0] == "fit":
            name = Path(command[1]).stem
            fitted.add(name)
            described = json.loads(run("info", command[command.index("--out") + 1], "--json").out)
            assert (described["task"], described["summary"]["likelihood"]) == PROMISED[name]
            features = {feature["name"] for feature in described["features"]}
            assert features >= {"a", "b"}
            assert features == {"a", "b"} or name in ("sales", "wells")
    assert fitted == set(PROMISED)
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
