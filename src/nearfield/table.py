"""Tables in files: CSV, Parquet and Excel, read whole or in blocks, written so that a failure leaves nothing behind.

    .csv  .csv.gz     text with a header line, written as `nearfield.dialect` finds out
    .tsv  .tsv.gz     the same; what is written has commas in .csv and tabs in .tsv files
    .parquet  .pq     Parquet
    .xlsx             the first sheet of a workbook; only read

A file that is read is what its first bytes say: names of text files are hints, and Parquet needs no name.

Rows are counted from 1, the first row below the header. A table read whole (for training) has the types that pyarrow
infers from *all* rows. A CSV file read in blocks has text in every column: types inferred from the first block break
on a later one, so what a cell means is left to `nearfield.forms`, which knows what it meant in the training table. In
files with a decimal comma, numbers that are text have a point instead.

Rows of nothing but separators at the end, and columns without a name or a value, are what programs that export sheets
leave behind. They are not part of the table.
"""

from __future__ import annotations

import difflib
import os
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from tqdm.utils import CallbackIOWrapper

from nearfield import workbook
from nearfield.column_values import TableError, TableWarning
from nearfield.dialect import AS_FOUND, HEAD_BYTES, Dialect, checked, sniffed
from nearfield.progress import HIDDEN, Bar, Bars
from nearfield.table_writing import check_writable, write_blocks
from nearfield.text_lines import Path, blank_rows, line_of_row, opened_bytes

__all__ = [
    "BLOCK_ROWS",
    "NULL_VALUES",
    "Dialect",
    "TableError",
    "TableWarning",
    "check_writable",
    "column_names",
    "count_rows",
    "located",
    "nearest",
    "read_blocks",
    "read_table",
    "require_columns",
    "write_blocks",
]

NULL_VALUES: tuple[str, ...] = (
    *pa.csv.ConvertOptions().null_values,
    *("None", "none", "<NA>", "-", "--", "?", "."),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"),
)
"""Cells that mean "no value": the empty cell, NA, NaN, null and their usual spellings, errors of spreadsheets, lone
signs, and the point that SAS writes."""

BLOCK_ROWS = 16_384
"""Rows in a block unless told otherwise."""

_CSV_BYTES = 1 << 23  # a single row must fit into this, so it is larger than pyarrow's 1 MB


@dataclass(frozen=True)
class _Source:
    """A file to be read, and what its first bytes say of it."""

    path: Path
    kind: str
    """text, parquet or excel"""
    dialect: Dialect
    """of text all that is to be known, of others the gaps"""
    gzipped: bool = False


def read_table(path: Path, dialect: Dialect = AS_FOUND, bars: Bars = HIDDEN) -> pa.Table:
    """The whole table, with the column types that all of its rows allow."""
    source = _source(path, dialect)
    _names(source)
    with _reading(path):
        table = _cleaned(_whole(source, bars), source)
    if (
        dialect.encoding is None
        and source.dialect.encoding == "utf-8"
        and any(map(pa.types.is_binary, table.schema.types))
    ):
        return read_table(path, replace(dialect, encoding="cp1252"), bars)  # what is not UTF-8 came late
    if table.num_rows == 0:
        raise TableError(f"{path} has a header but no rows.")
    return table


def read_blocks(
    path: Path, rows: int = BLOCK_ROWS, columns: Sequence[str] | None = None, dialect: Dialect = AS_FOUND
) -> Iterator[pa.Table]:
    """Tables of `rows` rows each (the last may be shorter), in order, in constant memory.

    Only `columns` are read, all of them if None. The columns of a CSV file are text, as they stand in the file.
    """
    if rows < 1:
        raise TableError(f"Blocks of {rows} rows were asked for; at least 1 is expected.")
    source = _source(path, dialect)
    names = _names(source) if columns is None else list(columns)
    with _reading(path):
        seen = 0
        for block in _of_length(rows, _batches(source, rows, names)):
            seen += block.num_rows
            yield _cleaned(block, source)
    if seen == 0:
        raise TableError(f"{path} has a header but no rows.")


def column_names(path: Path, dialect: Dialect = AS_FOUND) -> list[str]:
    """Names of the columns, in the order of the file; a name that occurs twice is an error."""
    return _names(_source(path, dialect))


def count_rows(path: Path) -> int | None:
    """Number of rows where the file states it (Parquet), else None."""
    with _reading(path):
        return int(_parquet().read_metadata(path).num_rows) if _kind(path) == "parquet" else None


@contextmanager
def located(path: Path, dialect: Dialect = AS_FOUND, rows: np.ndarray | None = None) -> Iterator[None]:
    """An error inside that points at a row also says where it is in the file: on which line, or in which sheet row.

    `rows` (n,) are the numbers of the rows below the header where some were left out of the table at hand.
    """
    try:
        yield
    except TableError as error:
        if error.row is None:
            raise
        row = error.row if rows is None else int(rows[error.row - 1])
        message = str(error).replace(f"row {error.row}", f"row {row}", 1)
        raise TableError(message + _place(path, dialect, row)) from error


def _place(path: Path, dialect: Dialect, row: int) -> str:
    source = _source(path, dialect)
    if source.kind == "excel":
        return f" (Row {row} is row {row + 1} of the sheet.)"
    line = line_of_row(path, source.dialect, source.gzipped, row) if source.kind == "text" else None
    return "" if line is None else f" (Row {row} is line {line} of the file.)"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` most like `name`, whatever the case, or None if nothing is like it."""
    by_folded = {other.casefold(): other for other in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[found[0]] if found else None


def require_columns(wanted: Collection[str], present: Collection[str], what: str) -> None:
    """Raise TableError if any of `wanted` is not among `present`, with the nearest that is."""
    known = set(present)
    lacking = [name for name in wanted if name not in known]
    if not lacking:
        return
    described = []
    for name in lacking[:5]:
        near = nearest(name, known.difference(wanted))
        described.append(f"{name!r} (nearest: {near!r})" if near else repr(name))
    more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    has = ", ".join(map(repr, list(present)[:8])) + (", ..." if len(present) > 8 else "")
    raise TableError(f"{what} is not in the table: {', '.join(described)}{more}. Its {len(present)} columns are {has}.")


# ---------------------------------------------------------------------------------------------------- reading


def _kind(path: Path) -> str:
    """text, gzip, parquet or excel, from the first bytes; an error if the name of the file says otherwise."""
    with open(path, "rb") as file:
        first = file.read(4)
    known = {b"PAR1": "parquet", b"PK\3\4": "excel"}
    kind = "gzip" if first[:2] == b"\x1f\x8b" else known.get(first, "text")
    named = {".parquet": "parquet", ".pq": "parquet", ".xlsx": "excel", ".gz": "gzip"}
    expected = named.get(os.path.splitext(os.fspath(path))[1].lower())
    if kind == "text" and expected is not None:
        what = {"parquet": "a Parquet file", "excel": "an Excel workbook", "gzip": "packed by gzip"}[expected]
        raise TableError(f"{path} cannot be read: it is not {what}, as its name says.")
    return kind


def _source(path: Path, dialect: Dialect) -> _Source:
    dialect = checked(dialect)
    with _reading(path):
        kind = _kind(path)
        if kind in ("parquet", "excel"):
            return _Source(path, kind, dialect)
        with opened_bytes(path, kind == "gzip") as file:
            head = file.read(HEAD_BYTES)
        likely = "\t" if ".tsv" in os.path.basename(os.fspath(path)).lower() else ","
        try:
            found = sniffed(head, dialect, likely, len(head) < HEAD_BYTES)
        except TableError as error:
            raise TableError(f"{path} cannot be read: {error}.") from error
        return _Source(path, "text", found, kind == "gzip")


def _names(source: _Source) -> list[str]:
    with _reading(source.path):
        if source.kind == "parquet":
            names = list(_parquet().read_schema(source.path).names)
        elif source.kind == "excel":
            names = workbook.column_names(source.path)
        else:
            with _stream(source) as stream:
                names = list(pa.csv.open_csv(stream, **_csv_options(source.dialect)).schema.names)
    while names and not names[-1]:
        names.pop()
    _check_names(source.path, names)
    return names


def _parquet() -> Any:
    """pyarrow's module, loaded where there is a Parquet file."""
    import pyarrow.parquet

    return pyarrow.parquet


def _stream(source: _Source, bar: Bar | None = None) -> Any:
    """The bytes of a text file, unpacked; a bar shows how many of those of the file were read."""
    file = pa.OSFile(os.fspath(source.path))
    if bar is not None:
        file = pa.PythonFile(CallbackIOWrapper(bar.add, file, "read"), mode="r")
    return pa.CompressedInputStream(file, "gzip") if source.gzipped else file


def _csv_options(dialect: Dialect, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Options of pyarrow's CSV readers: inferred types for all columns, or text for `columns` alone."""
    text = {} if columns is None else dict.fromkeys(columns, pa.string())
    return {
        "read_options": pa.csv.ReadOptions(block_size=_CSV_BYTES, encoding=dialect.encoding),
        "parse_options": pa.csv.ParseOptions(delimiter=dialect.sep, newlines_in_values=True),
        "convert_options": pa.csv.ConvertOptions(
            column_types=text,
            include_columns=list(text),
            null_values=[*NULL_VALUES, *(dialect.na or ())],
            strings_can_be_null=False,
            decimal_point=dialect.decimal,
        ),
    }


def _whole(source: _Source, bars: Bars) -> pa.Table:
    if source.kind == "parquet":
        return _parquet().ParquetFile(source.path).read()
    if source.kind == "excel":
        return _named(workbook.read_sheet(source.path, NULL_VALUES))
    with bars.bar("reading", os.path.getsize(source.path), "B") as bar, _stream(source, bar) as stream:
        table = pa.csv.read_csv(stream, **_csv_options(source.dialect))
    blank = blank_rows(source.path, source.dialect, source.gzipped)
    return _named(table.slice(0, max(0, table.num_rows - blank)))


def _named(table: pa.Table) -> pa.Table:
    """Without columns that have neither a name nor a value; of others without a name the first is left, to be told."""
    unnamed = [i for i, name in enumerate(table.column_names) if not name]
    valued = [i for i in unnamed if table.column(i).null_count < table.num_rows]
    return table.select([i for i in range(table.num_columns) if i not in unnamed or i in valued[:1]])


def _batches(source: _Source, rows: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    if source.kind == "parquet":
        yield from _parquet().ParquetFile(source.path).iter_batches(batch_size=rows, columns=names)
    elif source.kind == "excel":
        yield from workbook.batches(source.path, rows, names)
    else:
        with _stream(source) as stream:
            reader = pa.csv.open_csv(stream, **_csv_options(source.dialect, names))
            yield from _without_last(reader, blank_rows(source.path, source.dialect, source.gzipped))


def _without_last(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """All but the last `rows` rows."""
    if rows == 0:
        yield from batches
        return
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        while sum(other.num_rows for other in waiting[1:]) >= rows:
            yield waiting.pop(0)
    kept = sum(batch.num_rows for batch in waiting) - rows
    for batch in waiting:
        if kept > 0:
            yield batch.slice(0, kept)
        kept -= batch.num_rows


def _of_length(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Joins and cuts batches of any length to tables of `rows` rows and a rest."""
    waiting: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        waiting.append(batch)
        n += batch.num_rows
        if n < rows:
            continue
        joined = pa.Table.from_batches(waiting)
        whole = n - n % rows
        for start in range(0, whole, rows):
            yield joined.slice(start, rows)
        waiting = joined.slice(whole).to_batches()
        n -= whole
    if n:
        yield pa.Table.from_batches(waiting)


# ---------------------------------------------------------------------------------------------------- cleaning


def _cleaned(table: pa.Table, source: _Source) -> pa.Table:
    """The same with null for the gaps that were named, and points in numbers that are text; TableError if damaged."""
    if source.kind == "parquet":
        _check_text(table, source.path)
    na, comma = source.dialect.na or (), source.dialect.decimal == "," and source.kind == "text"
    if not na and not comma:
        return table
    columns = [_with_points(column) if comma else column for column in table.columns]
    columns = [_without(column, na) for column in columns] if na else columns
    return pa.table(columns, names=table.column_names)


def _check_text(table: pa.Table, path: Path) -> None:
    """Raise TableError if text of a Parquet file, which says that it is UTF-8, is not."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=not pa.types.is_primitive(column.type))
        except pa.ArrowInvalid as error:
            raise TableError(f"{path} cannot be read: column {name!r} is damaged, it is not UTF-8 text.") from error


def _with_points(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text in which 1.234,5 is 1234.5; what has three digits gets a fourth, lest 1,234 be read as a thousand later."""
    if not pa.types.is_string(column.type):
        return column
    number = r"^\s*[+-]?((\d+|\d{1,3}(\.\d{3})+)(,\d*)?|,\d+)([eE][+-]?\d+)?\s*$"
    is_number = pc.and_(pc.match_substring_regex(column, number), pc.match_substring_regex(column, r"[.,]"))
    plain = pc.replace_substring(pc.replace_substring(column, ".", ""), ",", ".")
    plain = pc.replace_substring_regex(plain, r"^(\s*[+-]?\d{1,3}\.\d{3})(\s*)$", r"\10\2")
    return pc.if_else(is_number, plain, column)


def _without(column: pa.ChunkedArray, na: Sequence[str]) -> pa.ChunkedArray:
    """The column with null for cells of text that are among `na`, and for numbers that one of them means."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        gap = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(na, kind))
        return pc.if_else(gap, pa.scalar(None, kind), column)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = pa.array([value for value in map(_number, na) if value is not None], pa.float64())
        gap = pc.is_in(column.cast(pa.float64(), safe=False), value_set=values)
        return pc.if_else(gap, pa.scalar(None, kind), column)
    return column


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


# ------------------------------------------------------------------------------------------------------ errors


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns the errors of pyarrow into one line that names the file."""
    if not os.path.exists(path):
        raise TableError(f"{path} does not exist.")
    if os.path.isdir(path):
        raise TableError(f"{path} is a folder; a file is expected.")
    try:
        yield
    except TableError:
        raise
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        if "UTF8" in reason or isinstance(error, UnicodeError):
            reason = "further down it is not text of the encoding that it begins with; name it: --encoding latin-1"
        raise TableError(f"{path} cannot be read: {reason}.") from error


def _check_names(path: Path, names: list[str]) -> None:
    twice = [name for name, times in Counter(names).items() if name and times > 1]
    if twice:
        listed = ", ".join(map(repr, twice[:5]))
        raise TableError(f"{path} has {len(twice)} column names more than once: {listed}. Rename them.")
    if not names:
        raise TableError(f"{path} has no columns.")
