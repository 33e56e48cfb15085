"""python -m experiments: run the paper's experiments, list them, build the report; print the tables of docs/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.accuracy import TABLES, find
from experiments.catalogue import EXPERIMENTS

RESULTS, QUICK_RESULTS = Path("experiments/results"), Path("experiments/results-quick")

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)
Out = Annotated[
    Path | None, typer.Option(help=f"Folder of the results; {RESULTS}, or {QUICK_RESULTS} with --quick, if not given.")
]


@app.command("list")
def list_all() -> None:
    """Show the experiments with their methods and data sets, and the tables."""
    for experiment in EXPERIMENTS.values():
        typer.echo(f"{experiment.name}: {experiment.title}, {experiment.splits} split(s)")
        typer.echo(f"  methods   {', '.join(entry.name for entry in experiment.entries)}")
        typer.echo(f"  data      {', '.join(experiment.data)}")
    typer.echo(f"tables of docs/results: {', '.join(TABLES)}")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="An experiment, several between commas, or all.")],
    splits: Annotated[int | None, typer.Option(min=1, help="How many splits.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few rows, one split, few steps.")] = False,
    methods: Annotated[str | None, typer.Option(help="Methods, between commas.")] = None,
    data: Annotated[str | None, typer.Option(help="Data sets, between commas.")] = None,
    timeout: Annotated[float | None, typer.Option(min=1, help="Seconds after which a fit is ended.")] = None,
    out: Out = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Fits at the same time, sharing the cores; 1, with --quick one a core.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what failed or did not finish.")] = False,
    openml: Annotated[bool, typer.Option("--openml", help="Fetch from OpenML what is not in the data folder.")] = False,
) -> None:
    """Run an experiment. What has a result file already is not run again."""
    from experiments import runner

    jobs = jobs or (runner.cores() if quick else 1)
    names = list(EXPERIMENTS) if name == "all" else name.split(",")
    wish = runner.Wish(
        names, splits, quick, _several(methods), _several(data), timeout, openml, runner.limit_threads(jobs)
    )
    try:
        tasks, left_out = runner.plan(wish)
        for note in left_out:
            typer.echo(f"left out: {note}")
        ended = runner.run(tasks, _folder(out, quick), jobs, retry, typer.echo)
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(", ".join(f"{count} {status}" for status, count in ended.items()))


@app.command()
def report(
    out: Out = None,
    quick: Annotated[bool, typer.Option("--quick", help="Of the quick results.")] = False,
) -> None:
    """Write report.html and report.md beside the results."""
    from experiments.report import build

    folder = _folder(out, quick)
    try:
        written = build(folder)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for path in written:
        typer.echo(path)


@app.command()
def table(
    name: Annotated[str, typer.Argument(help=f"A table of docs/results: {', '.join(TABLES)}.")],
    data: Annotated[str | None, typer.Option("--data", "--datasets", help="Data sets, between commas.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds of the splits and fits, between commas.")] = None,
    rows: Annotated[
        str | None, typer.Option(help="Rows to score: test, or validation, on which choices between variants are made.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Array of the data set whose values are kept together in a split.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Further argument of the estimator.")
    ] = None,
    openml: Annotated[bool, typer.Option("--openml", help="Fetch from OpenML what is not in the data folder.")] = False,
) -> None:
    """Print one of the tables of accuracy of docs/results. Nothing is kept."""
    from experiments.accuracy.table import Wanted

    try:
        wanted = Wanted(_several(data), _numbers(seeds), rows, by, dict(map(_setting, settings or ())), openml)
        for line in find(name).markdown(wanted):
            typer.echo(line)
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error


def _several(text: str | None) -> list[str] | None:
    return None if text is None else [part for part in text.split(",") if part]


def _numbers(text: str | None) -> list[int] | None:
    return None if text is None else [int(part) for part in text.split(",")]


def _setting(pair: str) -> tuple[str, Any]:
    """Name and value; what is not JSON is text."""
    name, equals, value = pair.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, not {pair!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _folder(out: Path | None, quick: bool) -> Path:
    return out or (QUICK_RESULTS if quick else RESULTS)


if __name__ == "__main__":
    app(prog_name="python -m experiments")
