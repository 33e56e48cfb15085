"""Options of the command line that say how a table is written, and tables from standard input."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from nearfield.column_values import TableError
from nearfield.dialect import Dialect

TABLES = "a .csv, .tsv (also .gz) or .parquet file"


class Spooled(os.PathLike[str]):
    """A pipe, copied to a temporary file because tables are read more than once; in messages it has its own name."""

    def __init__(self, source: Path) -> None:
        self._name = "standard input" if str(source) == "-" else str(source)
        handle, self._path = tempfile.mkstemp(prefix="nearfield-table-")
        try:
            with os.fdopen(handle, "wb") as copy:
                if str(source) == "-":
                    shutil.copyfileobj(sys.stdin.buffer, copy, 1 << 20)
                else:
                    with open(source, "rb") as pipe:
                        shutil.copyfileobj(pipe, copy, 1 << 20)
        except BaseException:
            self.remove()
            raise

    def __fspath__(self) -> str:
        return self._path

    def __str__(self) -> str:
        return self._name

    def remove(self) -> None:
        """Remove the copy."""
        os.unlink(self._path)


def regular(context: typer.Context, table: Path | None) -> Path | Spooled | None:
    """The table, if it is a pipe as a file that is there until the command ends."""
    if table is None:
        return None
    if str(table) != "-" and not (table.exists() and stat.S_ISFIFO(table.stat().st_mode)):
        return table
    try:
        copy = Spooled(table)
    except OSError as error:
        raise TableError(f"{table} cannot be copied to a temporary file: {error}.") from error
    context.call_on_close(copy.remove)
    return copy


ModelFile = Annotated[Path, typer.Argument(help="A model, of `nearfield fit` or saved in Python.", metavar="MODEL")]
TableFile = Annotated[
    Path,
    typer.Argument(
        help=f"The table: {TABLES}, an Excel workbook, or - for standard input.", metavar="TABLE", callback=regular
    ),
]
Sep = Annotated[
    str | None, typer.Option("--sep", help="Separator of a text file; found out if omitted.", metavar="CHAR|tab")
]
Decimal = Annotated[
    str | None,
    typer.Option(
        "--decimal", help="Decimal sign of a text file, a point or a comma; found out if omitted.", metavar=".|,"
    ),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of a text file; found out if omitted.", metavar="NAME")
]
Na = Annotated[
    list[str] | None,
    typer.Option("--na", help="A cell that means no value, besides the usual ones; may be repeated.", metavar="TEXT"),
]
Dates = Annotated[
    str | None,
    typer.Option(
        "--dates",
        help="What 03/04/2024 is in columns where no row tells: dmy, the day first, or mdy.",
        metavar="dmy|mdy",
    ),
]
OddCells = Annotated[
    str,
    typer.Option(
        "--odd-cells",
        help="Text in a column of numbers or dates: an error, a gap (missing), or the whole column is taken as text.",
        metavar="error|missing|text",
    ),
]


def dialect_of(sep: str | None, decimal: str | None, encoding: str | None, na: list[str] | None) -> Dialect:
    """The dialect that options ask for, checked."""
    from nearfield.dialect import checked

    return checked(Dialect(sep, decimal, encoding, tuple(na or ()) or None))
