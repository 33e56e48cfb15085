"""The command line: `nearfield fit`, `predict`, `evaluate`, `forget`, `info`, `report`, `explore`, on CSV and Parquet.

Every default of the model lives in its estimator; an option that is not given is not passed on. Mistakes in the input
are one line on standard error and exit code 2; anything unexpected is one line and exit code 1. Files appear whole or
not at all. The model is imported when a command needs it, so that help and most errors come at once.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearfield import __version__
from nearfield import cli_fit_options as options
from nearfield.cli_arguments import (
    UserError,
    bent_columns,
    check_apart,
    check_between,
    check_leave_out,
    check_meaning,
    check_targets,
    likelihoods,
    parse_buffer,
    parse_coordinates,
    parse_k,
    parse_quantiles,
    parse_rows,
    parse_task,
    user_errors,
)
from nearfield.cli_cluster import fitting_on
from nearfield.cli_explore import explore
from nearfield.cli_large import fit_files, is_large
from nearfield.cli_noise import NoiseVariance, noise_of, none_known
from nearfield.cli_options import TABLES, Dates, Decimal, Encoding, ModelFile, Na, OddCells, Sep, TableFile, dialect_of
from nearfield.cli_page import report
from nearfield.cli_saved import SavedModel, blocks, collect_cycles

if TYPE_CHECKING:
    import pyarrow as pa

    from nearfield.target import Target, Targets

BAD_INPUT, UNEXPECTED, INTERRUPTED, BROKEN_PIPE = 2, 1, 130, 141

app = typer.Typer(name="nearfield", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

BlockRows = Annotated[
    int | None,
    typer.Option(
        help="Rows held in memory at once, 16,384 if omitted; the result does not depend on it.", metavar="INT"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, that of the process if None, and return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = [argument for argument in given if argument != "--debug"]  # allowed at any place
    debug = arguments != given or os.environ.get("NEARFIELD_DEBUG", "") not in ("", "0")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            _run(arguments or ["--help"])
            sys.stdout.flush()
            return 0
        except typer.Exit as done:
            return done.exit_code
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                traceback.print_exc()
            return _report(error)


def _run(arguments: list[str]) -> None:
    """Without `app()`, which turns interrupts and closed pipes into exit codes of its own."""
    command: Any = typer.main.get_command(app)
    if arguments[0] == "fit":
        _list_choices(command.commands["fit"])
    with command.make_context("nearfield", arguments) as context:
        command.invoke(context)


def _list_choices(fit: Any) -> None:
    """Name the tasks, likelihoods and so on that there are in the help of `fit`, which loads the families anyhow."""
    from nearfield.families import tasks
    from nearfield.families.outputs import OUTPUTS
    from nearfield.means import MEANS

    choices = {"task": ["auto", *tasks()], "likelihood": likelihoods(), "outputs": OUTPUTS, "mean": MEANS}
    for parameter in fit.params:
        if parameter.name in choices:
            parameter.help += f" One of {', '.join(choices[parameter.name])}."


def _print_version(asked: bool) -> None:
    if asked:
        print(f"nearfield {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Calibrated prediction with nearest-neighbour Gaussian processes."""


@app.command()
def fit(
    table: TableFile,
    target: options.Target,
    out: options.Out,
    task: options.Task = "auto",
    likelihood: options.Likelihood = None,
    exposure: options.Exposure = None,
    trials: options.Trials = None,
    outputs: options.Outputs = None,
    groups: options.Groups = None,
    leave_out: options.LeaveOut = None,
    time: options.Time = None,
    buffer: options.BufferDistance = None,
    noise_variance: NoiseVariance = None,
    drop: options.Drop = None,
    kernel: options.Kernel = None,
    metric: options.Metric = None,
    warp: options.Warp = None,
    straight: options.Straight = None,
    mean: options.Mean = None,
    drift: options.Drift = None,
    coordinates: options.Coordinates = None,
    k: options.Neighbours = None,
    continuous: options.Continuous = None,
    search: options.Search = None,
    predictive: options.Predictive = None,
    seed: options.Seed = 0,
    checkpoint: options.Checkpoint = None,
    cache: options.Cache = None,
    dask: options.Dask = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    na: Na = None,
    dates: Dates = None,
    odd_cells: OddCells = "error",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors and warnings only.")] = False,
) -> None:
    """Fit a model to a table and write it to one file. The file contains the training rows."""
    import numpy as np

    from nearfield.progress import Bars
    from nearfield.reading import group_labels, time_values, training_table
    from nearfield.table import check_writable, located, read_table, require_columns
    from nearfield.target_cells import with_target

    dialect = dialect_of(sep, decimal, encoding, na)
    check_meaning(dates, odd_cells)
    neighbours, on_map, apart = parse_k(k), parse_coordinates(coordinates), parse_buffer(buffer)
    beside = {"exposure": exposure, "trials": trials}
    given = {what: column for what, column in beside.items() if column is not None}
    check_targets(target, outputs, task, likelihood, given)
    if groups in target:
        raise UserError(f"--groups is {groups!r}, which is a target; a column of labels, or auto, is expected.")
    check_leave_out(leave_out, time, target)
    asked, family = parse_task(task, likelihood, given)
    for path in (out, checkpoint):
        if path is not None:
            check_apart(path, table)
            check_writable(path, tabular=False)
    shared: dict[str, Any] = {
        "kernel": kernel,
        "metric": metric,
        "warp": bent_columns(warp, straight),
        "mean": mean,
        "drift": drift or None,
        "coordinates": on_map,
        "leave_out": leave_out,
        "buffer": apart,
        "k": neighbours,
        "continuous": continuous,
        "search": search,
        "random_state": seed,
        "checkpoint": checkpoint,
        "verbose": False if quiet else None,
    }
    if is_large(table, cache):
        others: dict[str, Any] = {"--exposure": exposure, "--trials": trials, "--outputs": outputs, "--groups": groups}
        others |= {"--time": time, "--noise-variance": noise_variance, "--drop": drop, "--sep": sep}
        others |= {"--decimal": decimal, "--encoding": encoding, "--na": na, "--dates": dates}
        settings = {**shared, "predictive": predictive, "cache": cache}
        fit_files(table, target, out, task, likelihood, settings, others, quiet, dask)
        return
    rows = read_table(table, dialect, Bars(shared["verbose"]))
    total, places = rows.num_rows, None
    noise = noise_of(noise_variance, rows.column_names, target)
    if len(target) == 1:  # of several, rows that have some of them are of use
        require_columns(target, rows.column_names, "The target")
        rows, places = with_target(rows, target[0])
    unused = [*(drop or ()), *noise.columns, *([groups] if groups not in (None, "auto") else [])]
    with located(table, dialect, places):
        together: dict[str, Any] = {} if groups is None else {"groups": group_labels(rows, groups)}
        if time is not None:
            require_columns([time], rows.column_names, "The column of --time")
            together["times"] = time_values(rows, time, dates, odd_cells) if time in unused else time
        parts = training_table(
            rows, target, unused, task=asked, likelihood=family, given=given, dates=dates, odd=odd_cells
        )
        noise.check_predicts(parts.target.predicts)
        known = noise.beside(rows, 1, ~np.isnan(parts.y)) if noise.parts else {}
    own = parts.target
    y, n = own.as_labels(parts.y), int(own.known(parts.y).sum())
    settings = _settings(own, predictive, outputs)
    remarks = [own.remark(y)] if task == "auto" and likelihood is None else []
    if n < total:
        which = "no target" if len(target) == 1 else "none of the targets"
        remarks.append(f"{total - n:,} of {total:,} rows have {which} and are left out.")
    estimator = _estimator(
        own.estimator,
        **shared,
        **settings,
    )
    collect_cycles()
    with user_errors(), located(table, dialect, places), fitting_on(dask) as fitted:
        fitted(estimator, parts.columns, y, **parts.beside, **known, **together)
    estimator._described = own.to_json()
    if places is not None:
        estimator._renumber(places - 1, total)
    remarks += [f"{n:,} odd cells of column {name!r} are taken as missing." for name, n in parts.columns.odd.items()]
    for remark in filter(None, [] if quiet else remarks):
        print(f"nearfield: note: {remark}", file=sys.stderr)
    from nearfield import TrainingRowsWarning  # here, not above: mistakes in the table need not wait for the model
    from nearfield.cli_table_report import column_lines, ending

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingRowsWarning)  # said below
        estimator.save(out)
    if not quiet:
        encoder = estimator.encoder_
        size = f"{n:,} rows, {len(encoder.needed)} columns as {len(encoder.feature_names)} features"
        classes = f" of {len(estimator.classes_)} classes" if hasattr(estimator, "classes_") else ""
        print(f"{size}, target{'s' if len(target) > 1 else ''} {', '.join(map(repr, target))}{classes}")
        print("\n".join(f"  {line}" for line in column_lines(encoder)))
        print(estimator.summary_)
        print(ending(out, table))


@app.command()
def predict(
    model: ModelFile,
    table: TableFile,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"Where to write predictions: {TABLES}; CSV to standard output if omitted or '-'.", metavar="FILE"
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Probability of the interval from lower to upper, 0.9 if omitted. Not for classes.", metavar="P"
        ),
    ] = None,
    quantiles: Annotated[
        str | None,
        typer.Option(help="Further quantiles, such as 0.05,0.5,0.95. Not for classes.", metavar="P,P,.."),
    ] = None,
    explain: Annotated[
        int | None,
        typer.Option(
            help="So many training rows that matter most to each prediction, with weight and change.",
            min=1,
            metavar="INT",
        ),
    ] = None,
    noise_variance: NoiseVariance = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to copy to the output, such as an identifier; may be repeated. Those of a CSV file are "
            "copied as text.",
            metavar="COLUMN",
        ),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    na: Na = None,
    block_rows: BlockRows = None,
) -> None:
    """Predict every row of a table, in the order of the rows: mean, std, lower and upper; or class probabilities.

    Of several targets, the columns of each begin with its name.
    """
    from nearfield.cli_report import explanations
    from nearfield.table import check_writable, column_names, located, require_columns, write_blocks

    levels = parse_quantiles(quantiles)
    check_between(coverage, "--coverage")
    kept = list(dict.fromkeys(keep or ()))
    dialect = dialect_of(sep, decimal, encoding, na)
    names = column_names(table, dialect)
    require_columns(kept, names, "A column to keep")
    destination = None if out is None or str(out) == "-" else out
    if destination is not None:
        check_apart(destination, table, model)
        check_writable(destination)
    shown = destination is not None or not sys.stdout.isatty()
    with SavedModel(model) as saved:
        encoder, report = saved.encoder, None
        encoder.check_columns(names)
        noise = noise_of(noise_variance, names, encoder.target.names)
        noise.check_predicts(encoder.target.predicts)
        if encoder.target.predicts == "label" and (coverage is not None or levels):
            option = "--quantiles" if coverage is None else "--coverage"
            raise UserError(f"{option} is for numbers, but {model} predicts classes: leave it out.")
        if explain is not None and len(encoder.target.names) > 1:
            raise UserError(f"--explain is for one target, but {model} predicts several: leave it out.")
        with write_blocks(destination) as write:
            further = [*kept, *noise.columns]
            for block, x, first_row in blocks(table, dialect, encoder, block_rows, further, progress=shown):
                with located(table, dialect):
                    beside = encoder.target.beside(block, first_row)
                    known = noise.beside(block, first_row)
                if report is None:
                    report = saved.report()
                    missing = {} if noise.parts else none_known(report.model)
                with user_errors():
                    columns = report.predictions(x, {**beside, **missing, **known}, coverage, levels)
                    columns |= {} if explain is None else explanations(report.model, x, beside, explain)
                write(_joined(block.select(kept), columns))


@app.command()
def evaluate(
    model: ModelFile,
    table: TableFile,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="The column with the target, where it is not called as in training; repeated for several.",
            metavar="COLUMN",
        ),
    ] = None,
    noise_variance: NoiseVariance = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    na: Na = None,
    block_rows: BlockRows = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on a table with the target, beside a constant prediction.

    Numbers and counts: RMSE, NLL, CRPS and coverage. Classes: NLL, error, Brier score and calibration error. Several
    targets: each, their average, and the NLL of all together.
    """
    import numpy as np

    from nearfield.cli_report import score_table
    from nearfield.cli_table_report import SeenRows
    from nearfield.table import column_names, located

    dialect = dialect_of(sep, decimal, encoding, na)
    names = column_names(table, dialect)
    with SavedModel(model) as saved:
        saved.encoder = encoder = saved.encoder.with_targets(target or [])
        encoder.check_columns(names, target=True)
        noise = noise_of(noise_variance, names, encoder.target.names)
        noise.check_predicts(encoder.target.predicts)
        report = saved.report()
    own, skipped, seen = encoder.target, 0, SeenRows(report.model)
    missing = {} if noise.parts else none_known(report.model)
    for block, x, first_row in blocks(
        table, dialect, encoder, block_rows, [*own.names, *noise.columns], what="evaluating"
    ):
        with located(table, dialect):
            y = encoder.target_values(block, first_row)
            known = own.known(y)
            beside = {what: values[known] for what, values in own.beside(block, first_row, known).items()}
            own.check(y[known], beside, first_row + np.flatnonzero(known))
            noisy = noise.beside(block, first_row, ~np.isnan(y)) if noise.parts else {}
            noisy = {**missing, **{what: values[known] for what, values in noisy.items()}}
        skipped += int((~known).sum())
        if known.any():
            seen.count(x[known])
            with user_errors():
                report.score(x[known], y[known], {**beside, **noisy})
    result = {"skipped": skipped, **report.result()}
    if "rows" not in result and "unseen" in result:
        raise UserError(f"No label of the target {own.names[0]!r} in {table} was among the classes of {model}.")
    if "rows" not in result:
        which = "The target" if len(own.names) == 1 else "Each of the targets"
        raise UserError(f"{which} {', '.join(map(repr, own.names))} is missing in all {skipped} rows of {table}.")
    if seen.remark() is not None:
        print(f"nearfield: note: {seen.remark()}", file=sys.stderr)
    print(json.dumps(result, indent=2) if as_json else score_table(result))


@app.command()
def forget(
    model: ModelFile,
    ids: Annotated[
        Path | None,
        typer.Argument(
            help="A file with the number of a row in each line.", metavar="[IDS]", exists=True, dir_okay=False
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="Rows of the training table, counted from 1, instead of a file.", metavar="INT,INT,.."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the model without them; required.", metavar="FILE")
    ] = None,
) -> None:
    """Remove training rows from a model, for good and without training: numbers as `predict --explain` tells them.

    The rows that are left are numbered anew, from 1.
    """
    from nearfield import TrainingRowsWarning
    from nearfield.estimators import ESTIMATORS
    from nearfield.table import check_writable

    numbers = parse_rows(rows, ids)
    if out is None:
        raise UserError("--out is missing: where to write the model without the rows.")
    check_writable(out, tabular=False)
    with SavedModel(model) as saved:
        name = saved.name
    if name not in ESTIMATORS:
        raise UserError(f"{model} holds a {name!r}; expected one of {', '.join(ESTIMATORS)}.")
    with user_errors():
        estimator = ESTIMATORS[name].load(model)
        before, came = estimator.n_rows_, estimator._row_numbers()[1]
        if max(numbers) > came:
            raise UserError(f"Row {max(numbers)} is none of {model}: its training table had {came:,} rows.")
        estimator.forget([number - 1 for number in numbers])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingRowsWarning)  # said below
        estimator.save(out)
    gone, same = before - estimator.n_rows_, model.exists() and os.path.samefile(model, out)
    print(f"Wrote {out} with {estimator.n_rows_:,} training rows, without {gone:,} that were forgotten.")
    if not same:
        print(f"{model} still contains them: delete it, and copies of it.")


@app.command()
def info(model: ModelFile, as_json: AsJson = False) -> None:
    """Describe a model: its task, kernel, neighbours, noise or classes, and how much each feature matters."""
    from nearfield.cli_report import describe, description_table

    with SavedModel(model) as saved:
        estimator = saved.load()
    described = {"file": str(model), "file_version": saved.version, **describe(estimator, saved.encoder)}
    print(json.dumps(described, indent=2) if as_json else description_table(described, estimator))


app.command()(report)
app.command()(explore)


# ------------------------------------------------------------------------------------------------------ model


def _estimator(name: str, **settings: Any) -> Any:
    """An estimator with the settings that were given, its own defaults for those that are None."""
    from nearfield.estimators import ESTIMATORS

    with user_errors():
        return ESTIMATORS[name](**{name: value for name, value in settings.items() if value is not None})


def _settings(target: Target | Targets, predictive: str | None, outputs: str | None) -> dict[str, Any]:
    """The settings that are not the same for all estimators; None for the estimator's default."""
    if predictive is not None and predictive != "calibrated":
        if predictive not in ("plain", target.family.name):
            raise UserError(f"--predictive is {predictive!r}; calibrated or plain is expected.")
        if predictive != "plain":
            warnings.warn(f"--predictive {predictive} is deprecated: write --predictive plain.", stacklevel=2)
        predictive = "plain"
    return {"predictive": predictive, "likelihood": target.likelihood, "outputs": outputs}


def _joined(kept: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """The kept columns, then those of the predictions."""
    import pyarrow as pa

    twice = sorted(columns.keys() & set(kept.column_names))
    if twice:
        raise UserError(f"The kept column {twice[0]!r} has the name of a column of the predictions: rename it.")
    return pa.table({name: kept.column(name) for name in kept.column_names} | columns)


# ----------------------------------------------------------------------------------------------------- errors


def _report(error: BaseException) -> int:
    """Print one line for `error` and return the exit code."""
    from nearfield.column_values import TableError
    from nearfield.storage import CacheError

    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return BROKEN_PIPE
    if isinstance(error, UserError | TableError | CacheError | FileNotFoundError | PermissionError | IsADirectoryError):
        return _fail(str(error), BAD_INPUT)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # a usage error of click, vendored or not
        told = error.format_message()
        end = "" if told.endswith((".", "?")) else "."
        path = getattr(getattr(error, "ctx", None), "command_path", "").split()
        return _fail(f"{told}{end} Try {' '.join(['nearfield', *path[1:], '--help'])}.", BAD_INPUT)
    return _fail(f"{type(error).__name__}: {error} (--debug shows where)", UNEXPECTED)


def _fail(message: str, code: int) -> int:
    print(f"nearfield: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"nearfield: warning: {' '.join(str(message).split())}", file=sys.stderr)
