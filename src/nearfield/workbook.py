"""Excel workbooks: the first sheet as a table, its header in the first row.

A table read whole has the types that its cells have, dates as timestamps. In blocks its columns are text, as those of a
CSV file are, so that later tables mean the same wherever they come from. Blank rows at the end are not rows.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from itertools import islice
from typing import Any

import pyarrow as pa

from nearfield.column_values import TableError

Path = str | os.PathLike[str]
Row = tuple[Any, ...]


def column_names(path: Path) -> list[str]:
    """The cells of the first row as text, "" where there is none; none of those at its end."""
    with _understood(path), closing(_rows(path)) as rows:
        return _header(next(rows, ()))


def read_sheet(path: Path, null_values: Sequence[str]) -> pa.Table:
    """All rows, each column of the type that all of its cells have, or text; `null_values` are no cells."""
    with _understood(path), closing(_rows(path)) as rows:
        names = _header(next(rows, ()))
        body = list(rows)
        names += [""] * (max(map(len, body), default=0) - len(names))
        columns = [[_cell(row, place) for row in body] for place in range(len(names))]
        return pa.table([_typed(cells, frozenset(null_values)) for cells in columns], names=names)


def batches(path: Path, n: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The `columns`, as text, `n` rows at a time."""
    with _understood(path), closing(_rows(path)) as rows:
        names = _header(next(rows, ()))
        lacking = [name for name in columns if name not in names]
        if lacking:
            raise TableError(f"{path} has no column {lacking[0]!r}.")
        places = [names.index(name) for name in columns]
        while block := list(islice(rows, n)):
            cells = [pa.array([_as_text(_cell(row, place)) for row in block], pa.string()) for place in places]
            yield pa.RecordBatch.from_arrays(cells, names=list(columns))


# -------------------------------------------------------------------------------------------------------- rows


def _rows(path: Path) -> Generator[Row, None, None]:
    """The rows of the first sheet; blank ones only where others follow."""
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    with closing(book):
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # which programs state wrongly
        waiting: list[Row] = []
        for row in sheet.iter_rows(values_only=True):
            if all(_is_blank(cell) for cell in row):
                waiting.append(row)
                continue
            yield from waiting
            waiting.clear()
            yield tuple(row)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Whatever openpyxl makes of a damaged workbook, from zip, XML or itself, is one line that names the file."""
    if find_spec("openpyxl") is None:
        raise TableError(f"{path} is an Excel workbook, which needs openpyxl: pip install 'nearfield[excel]'.")
    try:
        yield
    except (TableError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise TableError(f"{path} cannot be read as an Excel workbook: {reason}.") from error


def _header(row: Row) -> list[str]:
    names = ["" if _is_blank(cell) else str(_as_text(cell)) for cell in row]
    while names and not names[-1]:
        names.pop()
    return names


# ------------------------------------------------------------------------------------------------------- cells


def _cell(row: Row, place: int) -> Any:
    return row[place] if place < len(row) else None


def _is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _typed(cells: list[Any], null_values: frozenset[str]) -> pa.Array:
    """One column, as numbers, true/false or timestamps if all cells are, else as text."""
    values = [None if isinstance(cell, str) and cell.strip() in null_values else cell for cell in cells]
    kinds = {_kind(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(cells))
    if kinds == {"number"}:
        whole = all(isinstance(value, int) and abs(value) < 1 << 63 for value in values if value is not None)
        return pa.array([v if v is None or whole else float(v) for v in values], pa.int64() if whole else pa.float64())
    if kinds == {"flag"}:
        return pa.array(values, pa.bool_())
    if kinds == {"date"}:
        return pa.array([_timestamp(value) for value in values], pa.timestamp("us"))
    return pa.array([_as_text(cell) for cell in cells], pa.string())


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "date" if isinstance(value, datetime.date) else "text"  # a datetime is a date


def _timestamp(value: datetime.date | None) -> datetime.datetime | None:
    if value is None or isinstance(value, datetime.datetime):
        return value
    return datetime.datetime(value.year, value.month, value.day)


def _as_text(cell: Any) -> str | None:
    """As the cell would stand in a CSV file."""
    if cell is None:
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, datetime.date):
        return cell.isoformat() if type(cell) is datetime.date else cell.isoformat(sep=" ")  # type: ignore[call-arg]
    return str(cell)
