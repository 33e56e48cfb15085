"""python -m experiments: run the paper's experiments, list them, build the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    """Show the experiments with their methods and data sets."""
    for experiment in EXPERIMENTS.values():
        typer.echo(f"{experiment.name}: {experiment.title}, {experiment.splits} split(s)")
        typer.echo(f"  methods   {', '.join(entry.name for entry in experiment.entries)}")
        typer.echo(f"  data      {', '.join(experiment.data)}")


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


def _several(text: str | None) -> list[str] | None:
    return None if text is None else [part for part in text.split(",") if part]


def _folder(out: Path | None, quick: bool) -> Path:
    return out or (QUICK_RESULTS if quick else RESULTS)


if __name__ == "__main__":
    app(prog_name="python -m experiments")
