"""Columns of a pyarrow table: of files, in which cells are text at first, and of tables passed in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.cells import READERS, Cells, Text, is_number, is_text, opened, texts
from nearfield.columns import DAY, Coded, Columns, TableError

_UNNAMED = ("", "__index_level_0__")  # a row index that pandas wrote to CSV, to Parquet


class ArrowColumns(Columns):
    """Columns of a table or a block of one, of those `names`; each is opened once."""

    def __init__(self, table: pa.Table | pa.RecordBatch, first_row: int = 1, tally: Any = None) -> None:
        self._table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        self.names = list(self._table.column_names)
        self.first_row, self.tally = first_row, tally
        self._opened: dict[str, Cells] = {}

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _cells(self, name: str) -> Cells:
        if name not in self._opened:
            self._opened[name] = opened(self._table.column(name))
        return self._opened[name]

    def kind(self, name: str) -> str:
        return _kind(name, self._cells(name).type)

    def read(self, name: str, kind: str, form: str = "") -> Any:
        label, cells = f"Column {name!r}", self._cells(name)
        if kind == "duration":
            return _durations(cells, label)
        if kind != "text":
            return READERS[kind](cells, label, self.first_row)
        found = texts(cells, label, missing=None).combine_chunks().dictionary_encode()
        codes = pc.fill_null(found.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return Coded(codes, found.dictionary.to_pylist())


def _durations(cells: Cells, label: str) -> np.ndarray:
    """Days (n,), NaN where missing."""
    if isinstance(cells, Text) or not (pa.types.is_duration(cells.type) or pa.types.is_null(cells.type)):
        raise TableError(f"{label} has type {cells.type}; durations are expected, as in the training table.")
    times = cells.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
    return np.array(times.to_numpy(zero_copy_only=False), dtype=np.float64) / DAY


def named(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Names of columns that have one, and of those that have none."""
    every = list(names)
    return [name for name in every if name not in _UNNAMED], [name for name in every if name in _UNNAMED]


def _kind(name: str, kind: pa.DataType) -> str:
    if is_text(kind) or pa.types.is_dictionary(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "flag"
    if is_number(kind) or pa.types.is_null(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if pa.types.is_duration(kind):
        return "duration"
    binary = pa.types.is_binary(kind)
    what = "is not UTF-8 text" if binary else f"has type {kind}, which cannot be used"
    hint = "convert the file, for example with iconv -f latin1 -t utf8" if binary else "convert it to numbers or text"
    raise TableError(f"Column {name!r} {what}: {hint}, or leave it out (--drop {name}).")
