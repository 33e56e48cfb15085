"""Columns of a pyarrow table: of files, in which cells are text at first, and of tables passed in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.cells import Cells, Text, opened, texts
from nearfield.column_values import DAY, Coded, TableError
from nearfield.columns import Columns
from nearfield.forms import SIGNS, Form, count_odd, form_of, read_as

_UNNAMED = ("", "__index_level_0__")  # a row index that pandas wrote to CSV, to Parquet


class ArrowColumns(Columns):
    """Columns of a table or a block of one; each is opened once.

    dates, odd: what decides where it is not clear, in training, what cells mean, see `forms`.
    """

    def __init__(
        self,
        table: pa.Table | pa.RecordBatch,
        first_row: int = 1,
        tally: Any = None,
        dates: str | None = None,
        odd: str = "error",
    ) -> None:
        self._table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        self.names = list(self._table.column_names)
        self.first_row, self.tally = first_row, tally
        self._dates, self._odd = dates, odd
        self._opened: dict[str, Cells] = {}
        self._forms: dict[str, Form] = {}
        self.odd: dict[str, int] = {}
        """how many cells of columns were taken as missing because they were odd"""

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _cells(self, name: str) -> Cells:
        if name not in self._opened:
            self._opened[name] = opened(self._table.column(name))
        return self._opened[name]

    def _form(self, name: str) -> Form:
        if name not in self._forms:
            cells = self._cells(name)
            form = form_of(cells, f"Column {name!r}", self._dates, self._odd, name)
            n_odd = count_odd(form, cells) if self._odd == "missing" else 0
            if n_odd:
                self.odd[name] = n_odd
            self._forms[name] = form
        return self._forms[name]

    def kind(self, name: str) -> str:
        return "duration" if pa.types.is_duration(self._cells(name).type) else self._form(name).kind

    def form(self, name: str) -> str:
        return "" if pa.types.is_duration(self._cells(name).type) else self._form(name).pattern

    def read(self, name: str, kind: str, form: str = "") -> Any:
        label, cells = f"Column {name!r}", self._cells(name)
        if kind == "duration":
            return _durations(cells, label)
        if kind != "text":
            return read_as(Form(kind, form), cells, label, self.first_row, self._odd)
        found = texts(cells, label, missing=None, signs=form == SIGNS).combine_chunks().dictionary_encode()
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
