"""`nearfield report`: one page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearfield.cli_arguments import UserError, check_apart, user_errors
from nearfield.cli_options import TABLES, Decimal, Encoding, ModelFile, Na, Sep, dialect_of, regular
from nearfield.cli_saved import SavedModel, blocks

if TYPE_CHECKING:
    from nearfield.dialect import Dialect

TestTable = Annotated[
    Path | None,
    typer.Argument(
        help=f"Test rows with the target: {TABLES}, an Excel workbook, or - for standard input.",
        metavar="TABLE",
        callback=regular,
        show_default=False,
    ),
]


def report(
    model: ModelFile,
    table: TestTable = None,
    out: Annotated[
        Path,
        typer.Option(
            help="The page: .html, which needs Jinja2, .md for Markdown, or .json for the numbers alone.",
            metavar="PAGE",
            show_default=False,
        ),
    ] = ...,  # type: ignore[assignment]
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="What to score beside the model: boosting, scikit-learn's boosted trees.", metavar="boosting"
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the page; the name of the model's file if omitted.", metavar="TEXT")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="The column with the target, where it is not called as in training; repeated for several.",
            metavar="COLUMN",
        ),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    na: Na = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print errors and warnings only, and not the first lines of the page.")
    ] = False,
) -> None:
    """Write one page about a model: how good it is, whether its error bars hold, where it is wrong, and what matters.

    From left-out training rows, and from test rows where a table is given. The page holds values of some of them.
    """
    from nearfield.report import check_destination, report_data, write_report

    dialect = dialect_of(sep, decimal, encoding, na)
    if table is None and target:
        raise UserError("--target names a column of the test table: give one, or leave --target out.")
    check_apart(out, *([model] if table is None else [model, table]))
    with user_errors():
        try:
            check_destination(out)
        except ImportError as error:
            raise UserError(str(error)) from error
    with SavedModel(model) as saved:
        saved.encoder = saved.encoder.with_targets(target or [])
        X, y, given = (None, None, {}) if table is None else _test_rows(table, dialect, saved)
        estimator = saved.load()
    with user_errors():
        found = report_data(estimator, X, y, compare=compare or (), name=title or model.stem, **given)
    write_report(out, found)
    if not quiet:
        print("\n".join(found["says"]))
        print(f"Wrote {out}. It holds values of some training rows: share it with those who may see them.")


def _test_rows(table: Path, dialect: Dialect, saved: SavedModel) -> tuple[Any, Any, dict[str, Any]]:
    """Features, targets, and an exposure or trials, of the rows of a table whose target is known."""
    import numpy as np

    from nearfield.columns import Features
    from nearfield.table import column_names, located

    encoder = saved.encoder
    own = encoder.target
    encoder.check_columns(column_names(table, dialect), target=True)
    features, targets, beside = [], [], []
    for block, x, first_row in blocks(table, dialect, encoder, None, list(own.names)):
        with located(table, dialect):
            y = encoder.target_values(block, first_row)
            known = own.known(y)
            told = {what: values[known] for what, values in own.beside(block, first_row, known).items()}
            own.check(y[known], told, first_row + np.flatnonzero(known))
        features.append(x[known])
        targets.append(own.as_labels(y[known]) if own.predicts == "label" else y[known])
        beside.append(told)
    if not sum(map(len, targets)):
        raise UserError(f"The target {', '.join(map(repr, own.names))} is missing in all rows of {table}.")
    given = {what: np.concatenate([told[what] for told in beside]) for what in beside[0]}
    return Features(np.concatenate(features)), np.concatenate(targets), given
