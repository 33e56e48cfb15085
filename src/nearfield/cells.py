"""Cells of a column as numbers, flags, dates or text, whatever the column is stored as.

The columns of a CSV file that is read in blocks are text; those of a Parquet file have types. Both mean the same here.
Rows are counted from 1 below the header; what cannot be read is an error that names the column and the row.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearfield.table import NULL_VALUES, TableError

MISSING = "(missing)"
"""The level of a text cell without a value."""

_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"
_DAY = 86_400e6  # microseconds
_TRUE, _FALSE = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")

Floats = NDArray[np.float64]


def numbers(values: pa.ChunkedArray, label: str, first_row: int) -> Floats:
    """(n,), NaN where missing, from numbers or text; infinite values are an error."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if is_text(values.type):
        values, missing = trimmed(values)
        good = pc.or_(missing, pc.match_substring_regex(values, _NUMBER))
        refuse(values, pc.invert(good), label, first_row, "a number")
        values = pc.if_else(missing, None, values)
    elif not (is_number(values.type) or pa.types.is_boolean(values.type) or pa.types.is_null(values.type)):
        raise TableError(f"{label} has type {values.type}; numbers are expected, as in the training table.")
    found = _floats(values)
    infinite = np.flatnonzero(np.isinf(found))
    if infinite.size:
        raise TableError(f"{label} has {infinite.size} infinite values, first in row {infinite[0] + first_row}.")
    return found


def flags(values: pa.ChunkedArray, label: str, first_row: int) -> Floats:
    """(n,) of 1, 0 and NaN, from true and false, numbers or text."""
    if not is_text(values.type):
        return numbers(values, label, first_row)
    values, missing = trimmed(values)
    true, false = (pc.is_in(values, value_set=pa.array(words, pa.large_string())) for words in (_TRUE, _FALSE))
    refuse(values, pc.invert(pc.or_(pc.or_(true, false), missing)), label, first_row, "true or false")
    return _floats(pc.if_else(missing, None, true))


def days(values: pa.ChunkedArray, label: str, first_row: int) -> Floats:
    """(n,) days since 1970-01-01, NaN where missing, from dates, timestamps or ISO 8601 text."""
    if is_text(values.type):
        values = _parse_dates(values, label, first_row)
    if pa.types.is_null(values.type):
        return _floats(values)
    if not (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
        raise TableError(f"{label} has type {values.type}; dates are expected, as in the training table.")
    zone = getattr(values.type, "tz", None)
    return _floats(values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())) / _DAY


def _parse_dates(values: pa.ChunkedArray, label: str, first_row: int) -> pa.ChunkedArray:
    cells, missing = trimmed(values)
    cut = pc.replace_substring_regex(cells, r"(\.\d{6})\d+", r"\1")  # microseconds hold six digits
    text = pc.if_else(missing, None, cut)
    dates = _as_dates(text)
    if dates is None:
        bad = [_as_dates(pa.chunked_array([[cell]], text.type)) is None for cell in text]
        refuse(cells, pa.chunked_array([bad]), label, first_row, "a date like 2024-12-31 or 2024-12-31 23:59:59")
        raise TableError(f"{label} mixes times with and without a zone; write them all alike.")
    return dates


def _as_dates(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Timestamps, all without a zone or all with one; None if there is anything else."""
    for zone in (None, "UTC"):
        with suppress(pa.ArrowInvalid):
            return text.cast(pa.timestamp("us", zone))
    return None


def texts(values: pa.ChunkedArray, label: str) -> pa.ChunkedArray:
    """Levels as text, without nulls."""
    try:
        text = values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"{label} has type {values.type}; text is expected, as in training.") from error
    text = pc.utf8_trim_whitespace(text)
    absent = pc.is_in(text, value_set=pa.array(NULL_VALUES, pa.large_string()))
    return pc.if_else(pc.or_(absent, pc.is_null(text)), MISSING, text)


def refuse(values: pa.ChunkedArray, bad: pa.ChunkedArray, label: str, first_row: int, expected: str) -> None:
    """Raise TableError for the first of the `bad` values, if there is one."""
    first = pc.index(bad, True).as_py()
    if first >= 0:
        n = pc.sum(bad).as_py()
        more = f" (and {n - 1} more below it)" if n > 1 else ""
        raise TableError(
            f"{label} has {values[first].as_py()!r} in row {first + first_row}{more}; {expected} is expected."
        )


def trimmed(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Text without blanks around it, null replaced by "", and whether each cell means "no value"."""
    text = pc.fill_null(pc.utf8_trim_whitespace(values.cast(pa.large_string())), "")
    return text, pc.is_in(text, value_set=pa.array(NULL_VALUES, pa.large_string()))


def _floats(values: pa.ChunkedArray) -> Floats:
    """float64 with NaN for null, always a copy; integers beyond 2^53 are rounded."""
    return np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


READERS: dict[str, Callable[[pa.ChunkedArray, str, int], Floats]] = {"number": numbers, "flag": flags, "date": days}


def odd_among_numbers(values: pa.ChunkedArray) -> str | None:
    """Describes the text in a column whose values are mostly numbers; None for any other column."""
    text = _not_numbers(values)
    n_text = pc.sum(text).as_py()
    if not n_text or not mostly_numbers(values):
        return None
    first = pc.index(text, True).as_py()
    return f"looks numeric but has {n_text} text values, first {values[first].as_py()!r} in row {first + 1}"


def mostly_numbers(values: pa.ChunkedArray) -> bool:
    """Whether more than half of the cells of a text column that have a value are numbers."""
    present = len(values) - pc.sum(trimmed(values)[1]).as_py()
    return bool(pc.sum(_not_numbers(values)).as_py() < present / 2)


def _not_numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    text, missing = trimmed(values)
    return pc.and_not(pc.invert(pc.match_substring_regex(text, _NUMBER)), missing)


def is_empty(values: pa.ChunkedArray) -> bool:
    """Whether there is no value at all: null, or NaN among floats, or only cells like NA in text."""
    if is_text(values.type):
        return bool(pc.all(trimmed(values)[1]).as_py())
    return bool(pc.all(pc.is_null(values, nan_is_null=True)).as_py())


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"
