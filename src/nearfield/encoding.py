"""What a model remembers of its training table, so that every later table becomes the same numbers.

    in the training table            in the model
    -------------------------------  --------------------------------------------------------------------------
    integers, floats, decimals       one feature
    true / false                     one feature, 1 / 0
    dates and timestamps             one feature, days since 1970-01-01 (UTC where a zone is given)
    missing in any of those          the median of the training rows, and one more feature "<column>_missing", 1 / 0
    text, categories                 one feature "<column>=<level>" for each level, 1 / 0; "(missing)" is a level
    no name, or not one value        left out, with a warning (a row index that pandas wrote has no name)

Later tables may have their columns in any order and further ones besides. A level that training did not see is all
zeros, and a missing value in a column that had none is the median; both are counted in one warning.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearfield.table import NULL_VALUES, TableError, TableWarning, require_columns

MAX_LEVELS = 64
"""Text columns with more levels than this are refused: they are names or free text rather than categories."""

MISSING = "(missing)"
"""The level of a text cell without a value."""

_FORMAT = 1  # of the JSON form
_UNNAMED = ("", "__index_level_0__")  # a row index that pandas wrote to CSV, to Parquet
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"
_DAY = 86_400e6  # microseconds
_TRUE, _FALSE = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")

Floats = NDArray[np.float64]


@dataclass
class Tally:
    """What had to be filled in, by column; one warning for all blocks of a table."""

    unseen: Counter[str] = field(default_factory=Counter)
    imputed: Counter[str] = field(default_factory=Counter)

    def warn(self) -> None:
        """Emit one TableWarning if anything was counted."""
        unseen = "{} values of column {!r} are levels not seen in training (taken as none)"
        imputed = "{} values of column {!r}, complete in training, are missing (median taken)"
        pairs = [(unseen, self.unseen), (imputed, self.imputed)]
        said = [phrase.format(n, column) for phrase, counts in pairs for column, n in counts.items() if n]
        if said:
            warnings.warn("; ".join(said) + ".", TableWarning, stacklevel=3)


@dataclass(frozen=True)
class Column:
    """One column of the training table."""

    name: str
    kind: str
    """number, flag, date or text"""
    median: float = 0.0
    indicator: bool = False
    """whether missing values have a feature of their own"""
    levels: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """Names of the features it becomes."""
        if self.kind == "text":
            return [f"{self.name}={level}" for level in self.levels]
        return [self.name, f"{self.name}_missing"] if self.indicator else [self.name]

    def encode(self, values: pa.ChunkedArray, out: Floats, first_row: int, tally: Tally) -> None:
        """Fill `out` (n, len(features)), which is zero, with what `values` (n) become."""
        label = f"Column {self.name!r}"
        if self.kind == "text":
            index = pc.index_in(_texts(values, label), value_set=pa.array(self.levels, pa.large_string()))
            level = pc.fill_null(index, -1).to_numpy()
            known = np.flatnonzero(level >= 0)
            out[known, level[known]] = 1.0
            tally.unseen[self.name] += len(level) - len(known)
            return
        numbers = _READERS[self.kind](values, label, first_row)
        missing = np.isnan(numbers)
        out[:, 0] = np.where(missing, self.median, numbers)
        if self.indicator:
            out[:, 1] = missing
        else:
            tally.imputed[self.name] += int(missing.sum())


@dataclass(frozen=True)
class TableEncoder:
    """Turns tables into arrays, the way it was learned on the training table."""

    target: str
    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, table: pa.Table, target: str, drop: Collection[str] = ()) -> TableEncoder:
        """Decide for each column of `table`, but the target and those in `drop`, which features it becomes."""
        if table.num_rows == 0:
            raise TableError("The table has no rows.")
        require_columns([target], table.column_names, "The target")
        require_columns(drop, table.column_names, "A column to drop")
        if target in drop:
            raise TableError(f"Column {target!r} is the target; it cannot be dropped.")
        names = _usable(table, [name for name in table.column_names if name != target and name not in drop])
        if not names:
            raise TableError(f"The table has no columns to predict {target!r} from.")
        encoder = cls(target, tuple(_learn(name, table.column(name)) for name in names))
        _check_target(encoder.target_values(table), target)
        return encoder

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of the array that `transform` gives."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def column_names(self) -> list[str]:
        """Names of the table's columns that are used, without the target."""
        return [column.name for column in self.columns]

    def check_columns(self, names: Collection[str], *, target: bool = False) -> None:
        """Raise TableError unless all columns needed, and with `target` the target too, are among `names`."""
        if target:
            require_columns([self.target], names, "The target")
        require_columns(self.column_names, names, "A column of the training table")

    def transform(self, table: pa.Table | pa.RecordBatch, first_row: int = 1, tally: Tally | None = None) -> Floats:
        """The features of `table`, (n, d).

        For one block of many, `first_row` is the number of its first row and `tally` counts over all of them; the
        caller then calls `tally.warn()` at the end.
        """
        self.check_columns(table.schema.names)
        table = _as_table(table)
        own = Tally() if tally is None else tally
        out = np.zeros((table.num_rows, len(self.feature_names)))
        start = 0
        for column in self.columns:
            stop = start + len(column.features)
            column.encode(table.column(column.name), out[:, start:stop], first_row, own)
            start = stop
        if tally is None:
            own.warn()
        return out

    def target_values(self, table: pa.Table | pa.RecordBatch, first_row: int = 1) -> Floats:
        """The target (n,), NaN where it is missing."""
        require_columns([self.target], table.schema.names, "The target")
        values = _as_table(table).column(self.target)
        if not (_is_number(values.type) or _is_text(values.type)):
            raise TableError(f"The target {self.target!r} has type {values.type}; numbers are expected.")
        return _numbers(values, f"The target {self.target!r}", first_row)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description, for the model file."""
        columns = [
            {"name": c.name, "kind": c.kind, "median": c.median, "indicator": c.indicator, "levels": list(c.levels)}
            for c in self.columns
        ]
        return {"format": _FORMAT, "target": self.target, "columns": columns}

    @classmethod
    def from_json(cls, data: Any) -> TableEncoder:
        """The inverse of `to_json`; ValueError if `data` is anything else."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ValueError(f"The model's description of its table is not of format {_FORMAT}.")
        target, columns = data.get("target"), data.get("columns")
        if not isinstance(target, str) or not isinstance(columns, list) or not columns:
            raise ValueError("The model's description of its table lacks the target or the columns.")
        encoder = cls(target, tuple(map(_column_from_json, columns)))
        if len(set(encoder.column_names)) < len(columns):
            raise ValueError("The model's description of its table names a column twice.")
        return encoder


# --------------------------------------------------------------------------------------------------- learning


def _usable(table: pa.Table, names: Iterable[str]) -> list[str]:
    """Those of `names` that have a name and values; a warning tells about the others."""
    if not set(_UNNAMED).isdisjoint(names):
        _warn("A column without a name, as pandas writes its row index, is left out.")
    named = [name for name in names if name not in _UNNAMED]
    empty = [name for name in named if _is_empty(table.column(name))]
    if empty:
        _warn(f"Columns without a single value are left out: {', '.join(map(repr, empty))}.")
    return [name for name in named if name not in empty]


def _learn(name: str, values: pa.ChunkedArray) -> Column:
    kind = _kind(name, values.type)
    if kind == "text":
        return Column(name, kind, levels=_levels(name, values))
    numbers = _READERS[kind](values, f"Column {name!r}", 1)
    return Column(name, kind, median=float(np.nanmedian(numbers)), indicator=bool(np.isnan(numbers).any()))


def _kind(name: str, kind: pa.DataType) -> str:
    if _is_text(kind) or pa.types.is_dictionary(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "flag"
    if _is_number(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    hint = "it is not UTF-8" if pa.types.is_binary(kind) else "convert it to numbers or text"
    raise TableError(f"Column {name!r} has type {kind}, which cannot be used: {hint}, or leave it out (--drop {name}).")


def _levels(name: str, values: pa.ChunkedArray) -> tuple[str, ...]:
    text = _texts(values, f"Column {name!r}")
    levels = sorted(pc.unique(text).to_pylist())
    odd = _odd_among_numbers(values) if _is_text(values.type) else None
    if len(levels) > MAX_LEVELS:
        reason = odd or f"is text with {len(levels)} levels; at most {MAX_LEVELS} are one-hot encoded"
        raise TableError(f"Column {name!r} {reason}: correct or encode it, or leave it out (--drop {name}).")
    if odd:
        _warn(f"Column {name!r} {odd}: it is taken as text with {len(levels)} levels.")
    return tuple(levels)


def _odd_among_numbers(values: pa.ChunkedArray) -> str | None:
    """Describes the text in a column whose values are mostly numbers; None for any other column."""
    trimmed, missing = _trimmed(values)
    text = pc.and_not(pc.invert(pc.match_substring_regex(trimmed, _NUMBER)), missing)
    n_text, n = pc.sum(text).as_py(), len(values) - pc.sum(missing).as_py()
    if not 0 < n_text < n / 2:
        return None
    first = pc.index(text, True).as_py()
    return f"looks numeric but has {n_text} text values, first {values[first].as_py()!r} in row {first + 1}"


def _check_target(y: Floats, target: str) -> None:
    missing = np.flatnonzero(np.isnan(y))
    if missing.size:
        raise TableError(
            f"The target {target!r} is missing in {missing.size} of {y.size} rows, first in row {missing[0] + 1}; "
            "remove those rows before fitting."
        )


# ---------------------------------------------------------------------------------------------------- reading


def _numbers(values: pa.ChunkedArray, label: str, first_row: int) -> Floats:
    """(n,), NaN where missing, from numbers or text; infinite values are an error."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if _is_text(values.type):
        values, missing = _trimmed(values)
        good = pc.or_(missing, pc.match_substring_regex(values, _NUMBER))
        _refuse(values, pc.invert(good), label, first_row, "a number")
        values = pc.if_else(missing, None, values)
    elif not (_is_number(values.type) or pa.types.is_boolean(values.type) or pa.types.is_null(values.type)):
        raise TableError(f"{label} has type {values.type}; numbers are expected, as in the training table.")
    numbers = _floats(values)
    infinite = np.flatnonzero(np.isinf(numbers))
    if infinite.size:
        raise TableError(f"{label} has {infinite.size} infinite values, first in row {infinite[0] + first_row}.")
    return numbers


def _flags(values: pa.ChunkedArray, label: str, first_row: int) -> Floats:
    """(n,) of 1, 0 and NaN, from true and false, numbers or text."""
    if not _is_text(values.type):
        return _numbers(values, label, first_row)
    values, missing = _trimmed(values)
    true, false = (pc.is_in(values, value_set=pa.array(words, pa.large_string())) for words in (_TRUE, _FALSE))
    _refuse(values, pc.invert(pc.or_(pc.or_(true, false), missing)), label, first_row, "true or false")
    return _floats(pc.if_else(missing, None, true))


def _days(values: pa.ChunkedArray, label: str, first_row: int) -> Floats:
    """(n,) days since 1970-01-01, NaN where missing, from dates, timestamps or ISO 8601 text."""
    if _is_text(values.type):
        values = _parse_dates(values, label, first_row)
    if pa.types.is_null(values.type):
        return _floats(values)
    if not (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
        raise TableError(f"{label} has type {values.type}; dates are expected, as in the training table.")
    zone = getattr(values.type, "tz", None)
    return _floats(values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())) / _DAY


def _parse_dates(values: pa.ChunkedArray, label: str, first_row: int) -> pa.ChunkedArray:
    trimmed, missing = _trimmed(values)
    cut = pc.replace_substring_regex(trimmed, r"(\.\d{6})\d+", r"\1")  # microseconds hold six digits
    text = pc.if_else(missing, None, cut)
    dates = _as_dates(text)
    if dates is None:
        bad = [_as_dates(pa.chunked_array([[cell]], text.type)) is None for cell in text]
        _refuse(trimmed, pa.chunked_array([bad]), label, first_row, "a date like 2024-12-31 or 2024-12-31 23:59:59")
        raise TableError(f"{label} mixes times with and without a zone; write them all alike.")
    return dates


def _as_dates(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Timestamps, all without a zone or all with one; None if there is anything else."""
    for zone in (None, "UTC"):
        with suppress(pa.ArrowInvalid):
            return text.cast(pa.timestamp("us", zone))
    return None


def _texts(values: pa.ChunkedArray, label: str) -> pa.ChunkedArray:
    """Levels as text, without nulls."""
    try:
        text = values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"{label} has type {values.type}; text is expected, as in training.") from error
    text = pc.utf8_trim_whitespace(text)
    absent = pc.is_in(text, value_set=pa.array(NULL_VALUES, pa.large_string()))
    return pc.if_else(pc.or_(absent, pc.is_null(text)), MISSING, text)


_READERS: dict[str, Callable[[pa.ChunkedArray, str, int], Floats]] = {"number": _numbers, "flag": _flags, "date": _days}


def _refuse(values: pa.ChunkedArray, bad: pa.ChunkedArray, label: str, first_row: int, expected: str) -> None:
    """Raise TableError for the first of the `bad` values, if there is one."""
    first = pc.index(bad, True).as_py()
    if first >= 0:
        n = pc.sum(bad).as_py()
        more = f" (and {n - 1} more below it)" if n > 1 else ""
        raise TableError(
            f"{label} has {values[first].as_py()!r} in row {first + first_row}{more}; {expected} is expected."
        )


def _trimmed(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Text without blanks around it, null replaced by "", and whether each cell means "no value"."""
    text = pc.fill_null(pc.utf8_trim_whitespace(values.cast(pa.large_string())), "")
    return text, pc.is_in(text, value_set=pa.array(NULL_VALUES, pa.large_string()))


def _floats(values: pa.ChunkedArray) -> Floats:
    """float64 with NaN for null, always a copy; integers beyond 2^53 are rounded."""
    return np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


# -------------------------------------------------------------------------------------------------- small things


def _column_from_json(data: Any) -> Column:
    try:
        column = Column(data["name"], data["kind"], data["median"], data["indicator"], tuple(data["levels"]))
    except (TypeError, KeyError) as error:
        raise ValueError("The model's description of a column is incomplete.") from error
    numeric = column.kind in _READERS
    sound = (
        isinstance(column.name, str)
        and (numeric or column.kind == "text")
        and isinstance(column.median, int | float)
        and math.isfinite(column.median)
        and isinstance(column.indicator, bool)
        and all(isinstance(level, str) for level in column.levels)
        and len(set(column.levels)) == len(column.levels)
        and numeric == (not column.levels)
    )
    if not sound:
        raise ValueError(f"The model's description of column {column.name!r} is damaged.")
    return column


def _as_table(table: pa.Table | pa.RecordBatch) -> pa.Table:
    return table if isinstance(table, pa.Table) else pa.Table.from_batches([table])


def _is_empty(values: pa.ChunkedArray) -> bool:
    """Whether there is no value at all: null, or NaN among floats, or only cells like NA in text."""
    if _is_text(values.type):
        return bool(pc.all(_trimmed(values)[1]).as_py())
    return bool(pc.all(pc.is_null(values, nan_is_null=True)).as_py())


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"


def _warn(message: str) -> None:
    warnings.warn(message, TableWarning, stacklevel=4)
