"""The command line: `nearfield fit`, `predict`, `evaluate` and `info`, on CSV and Parquet files.

Every default of the model lives in `GPRegressor`; an option that is not given is not passed on. Mistakes in the input
are one line on standard error and exit code 2; anything unexpected is one line and exit code 1. Files appear whole or
not at all. torch is imported when a command needs the model, so that help and most errors come at once.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearfield import __version__

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from nearfield import GPRegressor
    from nearfield.encoding import TableEncoder

BAD_INPUT, UNEXPECTED, INTERRUPTED, BROKEN_PIPE = 2, 1, 130, 141

app = typer.Typer(name="nearfield", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_TABLES = "a .csv, .tsv (also .gz) or .parquet file"
ModelFile = Annotated[Path, typer.Argument(help="A model that `nearfield fit` wrote.", metavar="MODEL")]
TableFile = Annotated[Path, typer.Argument(help=f"The table: {_TABLES}.", metavar="TABLE")]
BlockRows = Annotated[int | None, typer.Option(help="Rows held in memory at once; the result does not depend on it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class UserError(Exception):
    """The input or an argument is wrong; the message says which and what to do."""


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
    with command.make_context("nearfield", arguments) as context:
        command.invoke(context)


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
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[Path, typer.Option(help="Where to write the model.")],
    drop: Annotated[list[str] | None, typer.Option(help="A column not to use; may be repeated.")] = None,
    kernel: Annotated[str | None, typer.Option(help="Kernel, as in GPRegressor.")] = None,
    k: Annotated[str | None, typer.Option(help="Number of neighbours, or auto.", metavar="auto|INT")] = None,
    predictive: Annotated[str | None, typer.Option(help="Predictive distribution, as in GPRegressor.")] = None,
    seed: Annotated[int, typer.Option(help="Seed; the same seed gives the same model.", min=0)] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="File to save training to and resume it from.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors and warnings only.")] = False,
) -> None:
    """Fit a model to a table and write it to one file. The file contains the training rows."""
    from nearfield.encoding import TableEncoder
    from nearfield.table import check_writable, read_table

    neighbours = _parse_k(k)
    for path in (out, checkpoint):
        if path is not None:
            _check_apart(path, table)
            check_writable(path, tabular=False)
    rows = read_table(table)
    encoder = TableEncoder.fit(rows, target, drop or ())
    x, y = encoder.transform(rows), encoder.target_values(rows)
    regressor = _regressor(
        kernel=kernel,
        k=neighbours,
        predictive=predictive,
        random_state=seed,
        checkpoint=checkpoint,
        verbose=False if quiet else None,
    )
    with _user_errors():
        regressor.fit(x, y)
    from nearfield import TrainingRowsWarning  # here, not above: mistakes in the table need not wait for torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingRowsWarning)  # said below
        regressor.save(out, extra={"table": encoder.to_json()})
    if not quiet:
        print(f"{len(y):,} rows, {len(encoder.columns)} columns as {x.shape[1]} features, target {target!r}")
        print(regressor.summary_)
        print(f"Wrote {out}. It contains the training rows: share it as you would share {table}.")


@app.command()
def predict(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path | None, typer.Option(help=f"{_TABLES}; CSV to standard output if omitted or '-'.")] = None,
    coverage: Annotated[float | None, typer.Option(help="Probability of the interval from lower to upper.")] = None,
    quantiles: Annotated[str | None, typer.Option(help="Further quantiles, such as 0.05,0.5,0.95.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column to copy to the output; may be repeated.")] = None,
    block_rows: BlockRows = None,
) -> None:
    """Predict every row of a table: the columns mean, std, lower and upper, in the order of the rows."""
    from nearfield.table import check_writable, column_names, require_columns, write_blocks

    levels = _parse_quantiles(quantiles)
    _check_between(coverage, "--coverage")
    kept = list(dict.fromkeys(keep or ()))
    names = column_names(table)
    require_columns(kept, names, "A column to keep")
    destination = None if out is None or str(out) == "-" else out
    if destination is not None:
        _check_apart(destination, table, model)
        check_writable(destination)
    encoder = _encoder_of(model)
    encoder.check_columns(names)
    shown = destination is not None or not sys.stdout.isatty()
    regressor = None
    with write_blocks(destination) as write:
        for block, x, _ in _blocks(table, encoder, block_rows, kept, progress=shown):
            regressor = regressor or _regressor_of(model)
            with _user_errors():
                predictions = _predictions(regressor, x, coverage, levels, block.select(kept))
            write(predictions)


@app.command()
def evaluate(model: ModelFile, table: TableFile, block_rows: BlockRows = None, as_json: AsJson = False) -> None:
    """Score a model on a table with the target: RMSE, NLL, CRPS and coverage, beside a constant prediction."""
    import numpy as np
    from scipy import stats

    from nearfield.metrics import Scores
    from nearfield.table import column_names

    names = column_names(table)
    encoder = _encoder_of(model)
    encoder.check_columns(names, target=True)
    regressor = _regressor_of(model)
    constant = stats.norm(regressor.target_mean_, regressor.target_std_)
    scores, baseline, skipped = Scores(), Scores(), 0
    for block, x, first_row in _blocks(table, encoder, block_rows, [encoder.target]):
        y = encoder.target_values(block, first_row)
        known = ~np.isnan(y)
        skipped += int((~known).sum())
        if known.any():
            with _user_errors():
                scores += Scores.of(y[known], regressor.predict_dist(x[known]))
            baseline += Scores.of(y[known], constant)
    if scores.n == 0:
        raise UserError(f"The target {encoder.target!r} is missing in all {skipped} rows of {table}.")
    result = {"rows": scores.n, "skipped": skipped, "model": scores.as_dict(), "constant": baseline.as_dict()}
    print(json.dumps(result, indent=2) if as_json else _score_table(result))


@app.command()
def info(model: ModelFile, as_json: AsJson = False) -> None:
    """Describe a model: kernel, neighbours, noise, and how much each feature matters."""
    encoder = _encoder_of(model)
    regressor = _regressor_of(model)
    described = _description(model, regressor, encoder)
    print(json.dumps(described, indent=2) if as_json else _description_table(described, regressor))


# ------------------------------------------------------------------------------------------------------ model


def _regressor(**settings: Any) -> GPRegressor:
    """A GPRegressor with the settings that were given, its own defaults for those that are None."""
    from nearfield import GPRegressor

    with _user_errors():
        return GPRegressor(**{name: value for name, value in settings.items() if value is not None})


def _encoder_of(path: Path) -> TableEncoder:
    """How the model's table was encoded, from the header alone: mistakes are found before torch has to be loaded."""
    if not path.is_file():
        raise UserError(f"The model {path} {'is not a file' if path.exists() else 'does not exist'}.")
    from nearfield.encoding import TableEncoder
    from nearfield.persistence import read_header

    with _user_errors():
        extra = read_header(path).get("extra")
        description = extra.get("table") if isinstance(extra, dict) else None
        if description is None:
            raise UserError(f"{path} was fitted to arrays, not by `nearfield fit`: use it from Python.")
        return TableEncoder.from_json(description)


def _regressor_of(path: Path) -> GPRegressor:
    from nearfield import GPRegressor

    with _user_errors():
        return GPRegressor.load(path)


def _blocks(
    path: Path, encoder: TableEncoder, rows: int | None, further: list[str], progress: bool = True
) -> Iterator[tuple[pa.Table, np.ndarray, int]]:
    """Blocks of a table, their features (n, d) and the number of their first row; one warning at the end."""
    from tqdm import tqdm

    from nearfield.encoding import Tally
    from nearfield.table import BLOCK_ROWS, count_rows, read_blocks

    tally = Tally()
    first_row = 1
    columns = list(dict.fromkeys([*encoder.column_names, *further]))
    # disable=None: only on terminals
    with tqdm(total=count_rows(path), unit=" rows", disable=None if progress else True, leave=False) as bar:
        for block in read_blocks(path, BLOCK_ROWS if rows is None else rows, columns):
            yield block, encoder.transform(block, first_row, tally), first_row
            first_row += block.num_rows
            bar.update(block.num_rows)
    tally.warn()


def _predictions(
    regressor: GPRegressor, x: np.ndarray, coverage: float | None, levels: Sequence[float], kept: pa.Table
) -> pa.Table:
    """The kept columns, then mean, std, lower, upper and one column for each quantile, one row for each of x (n, d)."""
    import pyarrow as pa

    if coverage is None:
        coverage = inspect.signature(regressor.predict_interval).parameters["coverage"].default
    dist = regressor.predict_dist(x)  # once: the neighbours are most of the work
    lower, upper = dist.interval(coverage)
    columns = {"mean": dist.mean(), "std": dist.std(), "lower": lower, "upper": upper}
    columns |= {f"q{level:g}": dist.ppf(level) for level in levels}
    twice = sorted(columns.keys() & set(kept.column_names))
    if twice:
        raise UserError(f"The kept column {twice[0]!r} has the name of a column of the predictions: rename it.")
    return pa.table({name: kept.column(name) for name in kept.column_names} | columns)


# ------------------------------------------------------------------------------------------------------- text


def _score_table(result: dict[str, Any]) -> str:
    skipped = f" ({result['skipped']:,} more without a target were skipped)" if result["skipped"] else ""
    lines = [f"{result['rows']:,} rows{skipped}", f"{'':<14}{'model':>12}{'constant':>12}"]
    labels = {"rmse": "RMSE", "nll": "NLL", "crps": "CRPS"}
    labels |= {name: f"inside {name[9:]} %" for name in result["model"] if name.startswith("coverage_")}
    for name, label in labels.items():
        model, constant = result["model"][name], result["constant"][name]
        spec = ".3f" if name.startswith("coverage_") else ".5g"
        lines.append(f"{label:<14}{model:>12{spec}}{constant:>12{spec}}")
    return "\n".join(lines)


def _description(path: Path, regressor: GPRegressor, encoder: TableEncoder) -> dict[str, Any]:
    from nearfield.persistence import FORMAT_VERSION

    relevances = regressor.feature_relevance_.values()  # in the order of the features, whatever they are called
    features = [
        {"name": name, "relevance": float(relevance), "length_scale": float(length)}
        for name, relevance, length in zip(encoder.feature_names, relevances, regressor.length_scales_, strict=True)
    ]
    return {
        "file": str(path),
        "file_version": FORMAT_VERSION,
        "kernel": regressor.kernel,
        "k": regressor.k_,
        "predictive": regressor.predictive,
        "noise_std": regressor.noise_std_,
        "kernel_scale": regressor.kernel_scale_,
        "rows": regressor.n_rows_,
        "target": encoder.target,
        "target_mean": regressor.target_mean_,
        "target_std": regressor.target_std_,
        "features": sorted(features, key=lambda feature: -feature["relevance"]),
        "summary": regressor.summary_.as_dict(),
    }


def _description_table(described: dict[str, Any], regressor: GPRegressor) -> str:
    plain = {name: value for name, value in described.items() if name not in ("features", "summary")}
    shown = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in plain.items()}
    lines = [f"{name.replace('_', ' '):<14}{value}" for name, value in shown.items()]
    width = max(7, *(len(feature["name"]) for feature in described["features"]))
    lines += ["", str(regressor.summary_), "", f"{'feature':<{width}}   relevance   length scale"]
    lines += [
        f"{f['name']:<{width}}  {f['relevance']:>10.4g}  {f['length_scale']:>13.4g}" for f in described["features"]
    ]
    return "\n".join(lines)


# -------------------------------------------------------------------------------------------------- arguments


def _parse_k(text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--k is {text!r}; auto or a whole number of at least 1 is expected.")
    return int(text)


def _parse_quantiles(text: str | None) -> list[float]:
    try:
        levels = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--quantiles is {text!r}; numbers with commas, such as 0.05,0.5,0.95, are expected.") from None
    for level in levels:
        _check_between(level, "--quantiles")
    return levels


def _check_between(value: float | None, option: str) -> None:
    if value is not None and not 0.0 < value < 1.0:
        raise UserError(f"{option} is {value:g}; a probability between 0 and 1 is expected.")


def _check_apart(out: Path, *inputs: Path) -> None:
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise UserError(f"{out} is also an input, which would be overwritten; choose another name.")


# ----------------------------------------------------------------------------------------------------- errors


@contextmanager
def _user_errors() -> Iterator[None]:
    """What the estimator rejects is a mistake in the input; elsewhere a ValueError would be one of ours."""
    try:
        yield
    except (ValueError, FloatingPointError) as error:
        raise UserError(str(error)) from error


def _report(error: BaseException) -> int:
    """Print one line for `error` and return the exit code."""
    from nearfield.table import TableError

    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return BROKEN_PIPE
    if isinstance(error, UserError | TableError | FileNotFoundError | PermissionError | IsADirectoryError):
        return _fail(str(error), BAD_INPUT)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # a usage error of click, vendored or not
        return _fail(f"{error.format_message()} Try nearfield --help.", BAD_INPUT)
    return _fail(f"{type(error).__name__}: {error} (--debug shows where)", UNEXPECTED)


def _fail(message: str, code: int) -> int:
    print(f"nearfield: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"nearfield: warning: {' '.join(str(message).split())}", file=sys.stderr)
