"""Columns of a table in memory: of arrays, and of data frames of pandas and polars.

Columns of files, in which everything is text at first, are those of `arrow_columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from nearfield.column_values import Coded, Column, TableError, column_of, meant_as_numbers, read_as
from nearfield.elsewhere import TableElsewhere
from nearfield.validation import check_choice, column_numbers

_MEDIAN_ROWS = 2**17  # from which medians are taken
_CHECKED = 2**16  # rows that are looked at at once


class Columns(ABC):
    """The columns of a table by name. first_row: the number of its first row in messages."""

    names: list[str]
    first_row: int = 0
    tally: Any = None
    """who counts what had to be filled in, over several tables; None: a warning for this one"""
    make: Any = np.empty
    """where large arrays of a fit of this table come from"""
    encoder: Any = None
    """what has made features (n, m) of the table already, if anything has"""
    features: Any = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def kind(self, name: str) -> str:
        """What the column is."""

    @abstractmethod
    def read(self, name: str, kind: str, form: str = "") -> Any:
        """Its values (n,) as that kind: float64, or `Coded`. form: how its cells were written in training."""

    def matrix(self) -> np.ndarray | None:
        """All columns at once, (n, d), where they are one array of numbers."""
        return None

    def form(self, name: str) -> str:
        """How cells of the column are written, where that is to be remembered."""
        return ""

    def kept(self, rule: Any, values: Any) -> tuple[Any, Any]:
        """What was learned of a column, and its values for `encode`, where these are not encoded elsewhere."""
        return rule, values

    def encoded(self, encoder: Any) -> Any:
        """The features (n, m) where the rows are held elsewhere, and are encoded there; else None."""
        return None


class SomeRows(Columns):
    """Some rows of a table: those of the mask `which` (n,)."""

    def __init__(self, whole: Columns, which: np.ndarray) -> None:
        self._whole, self._which = whole, which
        self.names, self.first_row = whole.names, whole.first_row

    def __len__(self) -> int:
        return int(self._which.sum())

    def kind(self, name: str) -> str:
        return self._whole.kind(name)

    def form(self, name: str) -> str:
        return self._whole.form(name)

    def read(self, name: str, kind: str, form: str = "") -> Any:
        values = self._whole.read(name, kind, form)
        return Coded(values.codes[self._which], values.levels) if kind == "text" else values[self._which]

    def matrix(self) -> np.ndarray | None:
        whole: Any = self._whole.matrix()
        if isinstance(whole, TableElsewhere):
            return whole.some(self._which)  # type: ignore[return-value]
        return None if whole is None else whole[self._which]

    def kept(self, rule: Any, values: Any) -> tuple[Any, Any]:
        return self._whole.kept(rule, values)

    def encoded(self, encoder: Any) -> Any:
        whole = self._whole.encoded(encoder)
        return None if whole is None else whole.some(self._which)


class ArrayColumns(Columns):
    """A numpy array (n, d) of any type; `names` or x0, x1, .."""

    def __init__(self, values: np.ndarray, names: Sequence[str] | None = None) -> None:
        self._values = values
        self.names = [f"x{i}" for i in range(values.shape[1])] if names is None else list(names)
        self._places = {name: place for place, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self._values)

    def matrix(self) -> np.ndarray | None:
        return self._values if self._values.dtype.kind in "fiu" else None

    def _column(self, name: str) -> Column:
        return meant_as_numbers(_named(name, self._values[:, self._places[name]]))

    def kind(self, name: str) -> str:
        return self._column(name).kind

    def read(self, name: str, kind: str, form: str = "") -> Any:
        return read_as(kind, self._column(name), f"column {name!r}", self.first_row)


class FrameColumns(Columns):
    """A data frame of pandas or polars; `names` where those of the frame are numbers."""

    def __init__(self, frame: Any, names: Sequence[str] | None = None) -> None:
        self._frame, own = frame, list(frame.columns)
        self.names = [f"x{i}" for i in range(len(own))] if names is None else list(names)
        self._places = {name: place for place, name in enumerate(self.names)}
        self._read: dict[str, Column] = {}

    def __len__(self) -> int:
        return len(self._frame)

    def _column(self, name: str) -> Column:
        if name not in self._read:
            place = self._places[name]
            series = self._frame.iloc[:, place] if hasattr(self._frame, "iloc") else self._frame.to_series(place)
            self._read[name] = _named(name, series)
        return self._read[name]

    def kind(self, name: str) -> str:
        return self._column(name).kind

    def read(self, name: str, kind: str, form: str = "") -> Any:
        return read_as(kind, self._column(name), f"column {name!r}", self.first_row)


class Features:
    """Rows (n, m) as the encoder of the estimator gives them, which need no encoding any more."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


def is_frame(X: Any) -> bool:
    """Whether it is a data frame that is read column by column."""
    return type(X).__module__.split(".")[0] in ("pandas", "polars") and hasattr(X, "columns") and hasattr(X, "shape")


def is_arrow(X: Any) -> bool:
    """Whether it is a table of pyarrow."""
    return type(X).__module__.split(".")[0] == "pyarrow" and hasattr(X, "schema")


def check_names(names: Iterable[Any]) -> None:
    """Raise TableError for column names that are missing or stand there twice."""
    every = list(names)
    for place, name in enumerate(every):
        if name is None or name == "" or (isinstance(name, float) and name != name):
            raise TableError(f"column {place} (counted from 0) has no name: give it one, or drop it.")
    twice = [name for name, times in Counter(map(_hashable, every)).items() if times > 1]
    if twice:
        raise TableError(f"{len(twice)} column names stand there more than once, such as {twice[0]!r}: rename them.")


def _hashable(name: Any) -> Hashable:
    return name if isinstance(name, Hashable) else str(name)


def _named(name: str, values: Any) -> Column:
    """The column of that name; what is wrong with it is said with the name."""
    try:
        return column_of(values)
    except (TableError, TypeError) as error:
        raise type(error)(f"column {name!r}: {error}") from error


def complete_matrix(columns: Columns, single: bool = False) -> np.ndarray | None:
    """The columns as float64 (n, d), where they are one array of numbers without a gap; or as float32 if they are."""
    matrix: Any = columns.matrix()
    if matrix is None:
        return None
    if isinstance(matrix, TableElsewhere):
        return matrix if matrix.complete(columns.names) else None  # type: ignore[return-value]
    for start in range(0, len(matrix), _CHECKED):
        if np.isnan(matrix[start : start + _CHECKED]).any():
            return None
    found = matrix if single and matrix.dtype == np.float32 else matrix.astype(np.float64, copy=False)
    for start in range(0, len(found), _CHECKED):
        infinite = np.isinf(found[start : start + _CHECKED])
        if infinite.any():
            row, column = (int(part[0]) for part in np.nonzero(infinite))
            raise TableError(
                f"Input contains infinity (inf): column {columns.names[column]!r} has {found[start + row, column]} in "
                f"row {start + row + columns.first_row}. Mend it, or make it a gap (NaN)."
            )
    return np.ascontiguousarray(found)


def evenly_spread(values: np.ndarray) -> np.ndarray:
    """Rows, evenly spread, from which medians are taken: all, or more than a hundred thousand."""
    return values[:: -(-len(values) // _MEDIAN_ROWS)]


def columns_of_levels(categorical: Any, names: Sequence[str]) -> set[str]:
    """Names of the columns whose values are levels, beside those of text."""
    if isinstance(categorical, str):
        check_choice("categorical_features", categorical, ("from_dtype",))
        return set()
    if categorical is None:
        return set()
    return {names[number] for number in column_numbers("categorical_features", categorical, names)}
