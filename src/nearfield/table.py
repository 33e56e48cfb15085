"""Tables in files: CSV and Parquet, read whole or in blocks, written so that a failure leaves nothing behind.

    .csv  .csv.gz     comma-separated, with a header line, UTF-8
    .tsv  .tsv.gz     the same with tabs
    .parquet  .pq     Parquet

Rows are counted from 1, the first row below the header. A table read whole (for training) has the types that pyarrow
infers from *all* rows. A CSV file read in blocks has text in every column: types inferred from the first block break
on a later one, so what a cell means is left to `nearfield.encoding`, which knows the types of the training table.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv

from nearfield.atomic import check_replaceable, replacing
from nearfield.columns import TableError

NULL_VALUES: tuple[str, ...] = (*pa.csv.ConvertOptions().null_values, "None", "<NA>")
"""Cells that mean "no value": the empty cell, NA, NaN, null and their usual spellings."""

BLOCK_ROWS = 16_384
"""Rows in a block unless told otherwise."""

_CSV_BYTES = 1 << 23  # a single row must fit into this, so it is larger than pyarrow's 1 MB

Write = Callable[[pa.Table], None]


@dataclass(frozen=True)
class _Layout:
    """How a file is stored, from its suffix; the delimiter is None for Parquet."""

    delimiter: str | None
    gzipped: bool = False


_LAYOUTS = {
    ".csv": _Layout(","),
    ".csv.gz": _Layout(",", gzipped=True),
    ".tsv": _Layout("\t"),
    ".tsv.gz": _Layout("\t", gzipped=True),
    ".parquet": _Layout(None),
    ".pq": _Layout(None),
}


def read_table(path: str | os.PathLike[str]) -> pa.Table:
    """The whole table, with the column types that all of its rows allow."""
    layout = _layout(path)
    column_names(path)
    with _reading(path):
        if layout.delimiter is None:
            table = _parquet().ParquetFile(path).read()
        else:
            table = pa.csv.read_csv(os.fspath(path), **_csv_options(layout.delimiter))
    if table.num_rows == 0:
        raise TableError(f"{path} has a header but no rows.")
    return table


def read_blocks(
    path: str | os.PathLike[str], rows: int = BLOCK_ROWS, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Tables of `rows` rows each (the last may be shorter), in order, in constant memory.

    Only `columns` are read, all of them if None. The columns of a CSV file are text, as they stand in the file.
    """
    if rows < 1:
        raise TableError(f"Blocks of {rows} rows were asked for; at least 1 is expected.")
    layout = _layout(path)
    names = column_names(path) if columns is None else list(columns)
    with _reading(path):
        seen = 0
        for block in _of_length(rows, _batches(path, layout, rows, names)):
            seen += block.num_rows
            yield block
    if seen == 0:
        raise TableError(f"{path} has a header but no rows.")


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Names of the columns, in the order of the file; a name that occurs twice is an error."""
    layout = _layout(path)
    with _reading(path):
        if layout.delimiter is None:
            names = list(_parquet().read_schema(path).names)
        else:
            _check_separator(path, layout.delimiter, layout.gzipped)
            names = list(pa.csv.open_csv(os.fspath(path), **_csv_options(layout.delimiter)).schema.names)
    _check_names(path, names)
    return names


def count_rows(path: str | os.PathLike[str]) -> int | None:
    """Number of rows where the file states it (Parquet), else None."""
    if _layout(path).delimiter is not None:
        return None
    with _reading(path):
        return int(_parquet().read_metadata(path).num_rows)


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


# ---------------------------------------------------------------------------------------------------- writing


def check_writable(path: str | os.PathLike[str], *, tabular: bool = True) -> None:
    """Raise TableError unless `path`, of a table or of a model, can be written; the message says why not."""
    if tabular:
        _layout(path)
    try:
        check_replaceable(path, "table" if tabular else "model")
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}.") from error


@contextmanager
def write_blocks(path: str | os.PathLike[str] | None) -> Iterator[Write]:
    """A function that appends tables of one schema to `path`, or as CSV to standard output if None.

    The rows take the place of `path` when the block ends without an error; after an error the old file is still there
    and nothing else (`nearfield.atomic`).
    """
    with ExitStack() as stack:
        if path is None:
            stack.callback(_flush_stdout)
            yield _csv_writer(sys.stdout.buffer, ",")
            return
        layout = _layout(path)
        raw = stack.enter_context(replacing(path, "table"))
        if layout.delimiter is None:
            yield _parquet_writer(raw, stack)
            return
        if layout.gzipped:  # neither a name nor a time, so that equal tables give equal bytes
            packed = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
            yield _csv_writer(cast(BinaryIO, packed), layout.delimiter)
            return
        yield _csv_writer(raw, layout.delimiter)


def _csv_writer(file: BinaryIO, delimiter: str) -> Write:
    header_due = True

    def write(table: pa.Table) -> None:
        nonlocal header_due
        if header_due:
            file.write(_header(table.column_names, delimiter))
            header_due = False
        sink = pa.BufferOutputStream()
        pa.csv.write_csv(table, sink, pa.csv.WriteOptions(include_header=False, delimiter=delimiter))
        file.write(sink.getvalue())

    return write


def _header(names: Sequence[str], delimiter: str) -> bytes:
    """The header line; pyarrow would put quotes around every name."""
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(names)
    return line.getvalue().encode()


def _parquet_writer(file: BinaryIO, stack: ExitStack) -> Write:
    writer: Any = None

    def write(table: pa.Table) -> None:
        nonlocal writer
        if writer is None:
            writer = stack.enter_context(_parquet().ParquetWriter(file, table.schema))
        writer.write_table(table)

    return write


def _flush_stdout() -> None:
    sys.stdout.buffer.flush()


# ---------------------------------------------------------------------------------------------------- reading


def _layout(path: str | os.PathLike[str]) -> _Layout:
    name = os.fspath(path).lower()
    for suffix, layout in _LAYOUTS.items():
        if name.endswith(suffix):
            return layout
    raise TableError(f"{path} is of an unknown kind; the name of a table ends in {', '.join(_LAYOUTS)}.")


def _parquet() -> Any:
    """pyarrow's module, loaded where there is a Parquet file."""
    import pyarrow.parquet

    return pyarrow.parquet


def _csv_options(delimiter: str, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Options of pyarrow's CSV readers: inferred types for all columns, or text for `columns` alone."""
    text = {} if columns is None else dict.fromkeys(columns, pa.string())
    return {
        "read_options": pa.csv.ReadOptions(block_size=_CSV_BYTES),
        "parse_options": pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": pa.csv.ConvertOptions(
            column_types=text, include_columns=list(text), null_values=list(NULL_VALUES), strings_can_be_null=False
        ),
    }


def _batches(path: str | os.PathLike[str], layout: _Layout, rows: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    if layout.delimiter is None:
        yield from _parquet().ParquetFile(path).iter_batches(batch_size=rows, columns=names)
    else:
        yield from pa.csv.open_csv(os.fspath(path), **_csv_options(layout.delimiter, names))


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


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns the errors of pyarrow into one line that names the file."""
    if not os.path.exists(path):
        raise TableError(f"{path} does not exist.")
    if os.path.isdir(path):
        raise TableError(f"{path} is a folder; a file is expected.")
    try:
        yield
    except TableError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        if "UTF8" in reason or isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8 text; convert it, for example with iconv -f latin1 -t utf8"
        raise TableError(f"{path} cannot be read: {reason}.") from error


def _check_separator(path: str | os.PathLike[str], delimiter: str, gzipped: bool) -> None:
    """Raise TableError if the header has no separator but another one; its rows may then not even parse."""
    with gzip.open(path) if gzipped else open(path, "rb") as file:
        header = file.readline(_CSV_BYTES).decode(errors="replace")
    for other in {",", ";", "\t"} - {delimiter}:
        if other in header and delimiter not in header:
            raise TableError(
                f"{path} seems to be separated by {other!r}; commas are expected in .csv and tabs in .tsv files, and "
                "points in decimal numbers: save it so."
            )


def _check_names(path: str | os.PathLike[str], names: list[str]) -> None:
    twice = [name for name, times in Counter(names).items() if name and times > 1]
    if twice:
        listed = ", ".join(map(repr, twice[:5]))
        raise TableError(f"{path} has {len(twice)} column names more than once: {listed}. Rename them.")
    if not names:
        raise TableError(f"{path} has no columns.")
