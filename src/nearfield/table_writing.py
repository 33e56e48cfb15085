"""Tables to files: CSV and Parquet, in blocks, so that a failure leaves nothing behind."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv

from nearfield.atomic import check_replaceable, replacing
from nearfield.column_values import TableError
from nearfield.text_lines import Path

Write = Callable[[pa.Table], None]


@dataclass(frozen=True)
class _Layout:
    """How a file is to be written, from its suffix; the delimiter is None for Parquet."""

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


def check_writable(path: Path, *, tabular: bool = True) -> None:
    """Raise TableError unless `path`, of a table or of a model, can be written; the message says why not."""
    if tabular:
        _layout(path)
    try:
        check_replaceable(path, "table" if tabular else "model")
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}.") from error


@contextmanager
def write_blocks(path: Path | None) -> Iterator[Write]:
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
    import pyarrow.parquet  # where it is needed: it takes a while

    writer: Any = None

    def write(table: pa.Table) -> None:
        nonlocal writer
        if writer is None:
            writer = stack.enter_context(pyarrow.parquet.ParquetWriter(file, table.schema))
        writer.write_table(table)

    return write


def _flush_stdout() -> None:
    sys.stdout.buffer.flush()


def _layout(path: Path) -> _Layout:
    name = os.fspath(path).lower()
    for suffix, layout in _LAYOUTS.items():
        if name.endswith(suffix):
            return layout
    raise TableError(f"{path} is of an unknown kind; the name of a table ends in {', '.join(_LAYOUTS)}.")
