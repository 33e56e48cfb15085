"""One column, wherever it comes from: what kind it is of, and its values as that kind or another.

    kind        is read as
    ----------  -----------------------------------------------------------
    number      float64, NaN where missing
    flag        1 and 0
    date        days since 1970-01-01, UTC where there is a zone
    duration    days
    text        `Coded`: the number of its level for each row, and the levels

A column is of one kind, and can be read as another where that makes sense: text that holds numbers as numbers, numbers
as levels. What cannot be read is an error that names the column, the row and the cell.
"""

from __future__ import annotations

import datetime
import numbers as abstract
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

DAY = 86_400e6  # microseconds
_TRUE, _FALSE = ("1", "true"), ("0", "false")  # whatever their case
_UNKNOWN = {"NAType", "NaTType"}  # of pandas


class TableError(ValueError):
    """A table cannot be used; the message names the file or the column and says what to do."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        """the row that the message points at, as "row <number>", if it does"""


class TableWarning(UserWarning):
    """A table can be used, but something in it was filled in or left out."""


MISSING = "(missing)"
"""The level of a text cell without a value."""


class Coded(NamedTuple):
    """Text: numbers (n,) of the levels, -1 where missing."""

    codes: np.ndarray
    levels: list[str]


# ------------------------------------------------------------------------------------------- what a column holds


class Column(NamedTuple):
    """A column of some kind: float64 (n,), or `Coded` text."""

    kind: str
    values: Any


def column_of(values: Any) -> Column:
    """A column of numpy, pandas or polars."""
    home = type(values).__module__.split(".")[0]
    if home == "pandas":
        return _of_pandas(values)
    if home == "polars":
        return _of_polars(values)
    return _of_array(np.asarray(values))


def _of_array(values: np.ndarray) -> Column:
    kind = values.dtype.kind
    if kind in "fiu":
        return Column("number", values.astype(np.float64, copy=False))
    if kind == "b":
        return Column("flag", values.astype(np.float64))
    if kind in "Mm":
        return Column("date" if kind == "M" else "duration", _days(values))
    if kind in "US":
        return Column("text", coded(values.astype(str).tolist()))
    if kind == "O":
        return _of_objects(values.tolist())
    raise TableError(f"a column of type {values.dtype} cannot be used: numbers, text, dates or flags are expected.")


def _of_pandas(series: Any) -> Column:
    import pandas as pd
    from pandas.api import types

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return Column("text", _merged(series.cat.codes.to_numpy(), map(as_level, series.cat.categories.tolist())))
    if isinstance(dtype, pd.PeriodDtype):
        return _of_pandas(series.dt.to_timestamp())
    if types.is_bool_dtype(dtype) or (types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)):
        kind = "flag" if types.is_bool_dtype(dtype) else "number"
        return Column(kind, series.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(dtype):
        if getattr(dtype, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return Column("date", _days(series.to_numpy(dtype="datetime64[us]")))
    if types.is_timedelta64_dtype(dtype):
        return Column("duration", _days(series.to_numpy(dtype="timedelta64[us]")))
    if isinstance(dtype, pd.StringDtype):
        codes, levels = pd.factorize(series)
        return Column("text", _merged(codes, levels.tolist()))
    if types.is_object_dtype(dtype):
        return _of_objects(series.tolist())
    return _of_objects(series.astype(object).tolist())


def _of_polars(series: Any) -> Column:
    import polars as pl

    dtype = series.dtype
    if dtype == pl.Boolean:
        return Column("flag", series.cast(pl.Float64).to_numpy())
    if dtype.is_numeric() or dtype == pl.Null:
        return Column("number", series.cast(pl.Float64).to_numpy().astype(np.float64))
    if dtype in (pl.Date, pl.Datetime):
        times = series.cast(pl.Datetime("us")) if dtype == pl.Date else series.dt.cast_time_unit("us")
        return Column("date", times.to_physical().cast(pl.Float64).to_numpy() / DAY)
    if dtype == pl.Duration:
        return Column("duration", series.dt.cast_time_unit("us").to_physical().cast(pl.Float64).to_numpy() / DAY)
    if dtype == pl.Time:  # nanoseconds since midnight
        return Column("duration", series.to_physical().cast(pl.Float64).to_numpy() / (1e3 * DAY))
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        text = series.cast(pl.String)
        levels = text.drop_nulls().unique(maintain_order=True)
        numbers = pl.Series(range(len(levels)), dtype=pl.Int64)
        codes = text.replace_strict(levels, numbers, default=None, return_dtype=pl.Int64).fill_null(-1)
        return Column("text", _merged(codes.to_numpy(), levels.to_list()))
    return _of_objects(series.to_list())


def _days(times: np.ndarray) -> np.ndarray:
    """Days (n,) of times or durations, NaN where there is none."""
    unit = "datetime64[us]" if times.dtype.kind == "M" else "timedelta64[us]"
    return np.where(np.isnat(times), np.nan, times.astype(unit).astype(np.int64) / DAY)


_SORTS: tuple[tuple[str, Any], ...] = (  # of single cells; a date is no number, and True is one
    ("flag", (bool, np.bool_)),
    ("text", (str, bytes)),
    ("number", (abstract.Real, Decimal)),
    ("date", (datetime.date, np.datetime64)),
    ("duration", (datetime.timedelta, np.timedelta64)),
)


def _of_objects(values: list[Any]) -> Column:
    """A column of Python's objects: all of one sort, with gaps."""
    sorts = {t: _sort(t) for t in set(map(type, values))}
    gaps = [_is_missing(value) for value in values]
    present = Counter(sorts[type(value)] for value, gap in zip(values, gaps, strict=True) if not gap)
    if not present:
        return Column("number", np.full(len(values), np.nan))
    if "" in present:
        row = next(i for i, v in enumerate(values) if not gaps[i] and sorts[type(v)] == "")
        raise TypeError(
            f"row {row} has a {type(values[row]).__name__}, {str(values[row])[:40]!r}: argument must be a string, a "
            "real number, a flag or a date."
        )
    if set(present) == {"flag", "number"}:
        present = Counter(number=1)
    if len(present) > 1:
        usual = present.most_common(1)[0][0]
        row = next(i for i, v in enumerate(values) if not gaps[i] and sorts[type(v)] != usual)
        raise TableError(f"row {row} has {values[row]!r} among cells that are of the kind {usual}: make them alike.")
    kind = next(iter(present))
    if kind == "text":
        texts = [None if gap else v if isinstance(v, str) else _decoded(v) for v, gap in zip(values, gaps, strict=True)]
        return Column("text", coded(texts))
    filled = [None if gap else value for value, gap in zip(values, gaps, strict=True)]
    if kind in ("date", "duration"):
        return Column(kind, _days(_as_times(filled, kind)))
    return Column(kind, np.array([np.nan if value is None else float(value) for value in filled]))


def _as_times(values: list[Any], kind: str) -> np.ndarray:
    unit = "datetime64[us]" if kind == "date" else "timedelta64[us]"
    plain = [_without_zone(v) if isinstance(v, datetime.datetime) else v for v in values]
    return np.array([np.array("NaT" if v is None else v, dtype=unit) for v in plain], dtype=unit)


def _without_zone(time: datetime.datetime) -> datetime.datetime:
    if time.tzinfo is None:
        return time.replace(tzinfo=None)
    return time.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def _decoded(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _sort(kind: type) -> str:
    return next((name for name, types in _SORTS if issubclass(kind, types)), "")


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in _UNKNOWN:
        return True
    if isinstance(value, float | np.floating | Decimal):
        return bool(value != value)
    return isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))


def coded(cells: Sequence[str | None]) -> Coded:
    """Cells of text as levels, in the order in which they come."""
    found: dict[str | None, int] = {None: -1}
    codes = np.fromiter((found.setdefault(cell, len(found) - 1) for cell in cells), np.int64, len(cells))
    del found[None]
    return _merged(codes, map(str, found))


def _merged(codes: np.ndarray, levels: Iterable[str]) -> Coded:
    """Levels without blanks around them, so that some may be one; nothing else in a cell is a gap."""
    trimmed = [level.strip() for level in levels]
    kept = {level: number for number, level in enumerate(dict.fromkeys(level for level in trimmed if level))}
    moved = np.array([kept.get(level, -1) for level in trimmed] + [-1], dtype=np.int64)  # the last: -1
    return Coded(moved[codes], list(kept))


def as_level(value: Any) -> str:
    """A number, flag or anything else as the text of a level: whole numbers without a point."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


# ------------------------------------------------------------------------------------------- as another kind


def read_as(kind: str, column: Column, label: str, first_row: int) -> Any:
    """The values of a column as that kind, or a TableError that names the first cell that is not."""
    if column.kind == kind:
        found = column.values
    elif (column.kind, kind) in _CONVERTED:
        found = _CONVERTED[column.kind, kind](column.values, label, first_row)
    elif kind != "text" and column.kind != "text" and np.isnan(column.values).all():
        found = column.values  # nothing but gaps
    elif kind != "text" and column.kind == "text" and not column.values.levels:
        found = np.full(len(column.values.codes), np.nan)
    else:
        raise TableError(f"{label} holds {_MANY[column.kind]}; {_MANY[kind]} are expected, as in training.")
    if kind != "text":
        infinite = np.flatnonzero(np.isinf(found))
        if infinite.size:
            raise TableError(
                f"Input contains infinity (inf): {label} has {infinite.size} infinite values, first in row "
                f"{infinite[0] + first_row}. Mend them, or make them gaps (NaN)."
            )
    return found


_MANY = {"number": "numbers", "flag": "flags", "date": "dates", "duration": "durations", "text": "text"}


def _by_level(convert: Callable[[str], float], expected: str) -> Callable[[Coded, str, int], np.ndarray]:
    """Text as numbers: each level is converted once."""

    def converted(text: Coded, label: str, first_row: int) -> np.ndarray:
        found = np.full(len(text.levels) + 1, np.nan)
        for number, level in enumerate(text.levels):
            try:
                found[number] = convert(level)
            except ValueError:
                row = int(np.flatnonzero(text.codes == number)[0]) + first_row
                raise TableError(f"{label} has {level!r} in row {row}; {expected} is expected.") from None
        return found[text.codes]

    return converted


def _as_flag(level: str) -> float:
    folded = level.casefold()
    if folded not in _TRUE + _FALSE:
        raise ValueError
    return float(folded in _TRUE)


def _as_day(level: str) -> float:
    time = datetime.datetime.fromisoformat(level.replace("Z", "+00:00"))
    return float(np.datetime64(_without_zone(time), "us").astype(np.int64)) / DAY


def _levels_of(values: np.ndarray, label: str, first_row: int) -> Coded:
    """Numbers (n,) as levels."""
    different, codes = np.unique(values, return_inverse=True)
    missing = np.isnan(different)
    return Coded(np.where(missing[codes], -1, codes), [as_level(value) for value in different[~missing].tolist()])


def _flags_as_levels(values: np.ndarray, label: str, first_row: int) -> Coded:
    return Coded(np.where(np.isnan(values), -1, np.nan_to_num(values)).astype(np.int64), ["False", "True"])


def _days_as_levels(values: np.ndarray, label: str, first_row: int) -> Coded:
    days = _levels_of(values, label, first_row)
    times = [np.datetime64(round(float(day) * DAY), "us").item().isoformat(" ") for day in days.levels]
    return Coded(days.codes, [time.removesuffix(" 00:00:00") for time in times])


def _zeros_and_ones(values: np.ndarray, label: str, first_row: int) -> np.ndarray:
    bad = np.flatnonzero(~np.isnan(values) & (values != 0) & (values != 1))
    if bad.size:
        raise TableError(f"{label} has {values[bad[0]]:g} in row {bad[0] + first_row}; true or false is expected.")
    return values


_CONVERTED: dict[tuple[str, str], Callable[[Any, str, int], Any]] = {
    ("text", "number"): _by_level(float, "a number"),
    ("text", "flag"): _by_level(_as_flag, "true or false"),
    ("text", "date"): _by_level(_as_day, "a date like 2024-12-31 or 2024-12-31 23:59:59"),
    ("flag", "number"): lambda values, label, first_row: values,
    ("number", "flag"): _zeros_and_ones,
    ("number", "text"): _levels_of,
    ("flag", "text"): _flags_as_levels,
    ("date", "text"): _days_as_levels,
    ("duration", "text"): _levels_of,
}


def meant_as_numbers(column: Column) -> Column:
    """Text of an array that holds nothing but numbers, as those: an array has one type for all columns."""
    if column.kind == "text" and column.values.levels:
        try:
            return Column("number", _CONVERTED["text", "number"](column.values, "", 0))
        except TableError:
            return column
    return column
