"""Cells of a column as numbers, flags, dates or text, whatever the column is stored as.

The columns of a CSV file that is read in blocks are text; those of a Parquet file have types. Both mean the same here.
Rows are counted from 1 below the header; what cannot be read is an error that names the column and the row.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearfield.column_values import MISSING, TableError
from nearfield.table import NULL_VALUES

NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"
"""A number as Python and pyarrow read it."""

_DAY = 86_400e6  # microseconds
TRUE, FALSE = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")

Floats = NDArray[np.float64]


class Text:
    """A column of text: its cells without blanks around them, null as "", and what is known of each, found out once."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self.values = values
        """as they stand in the table"""
        self.type = values.type
        self.cells = pc.fill_null(pc.utf8_trim_whitespace(values.cast(pa.large_string())), "")

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def missing(self) -> pa.ChunkedArray:
        """Which cells mean "no value"."""
        return pc.is_in(self.cells, value_set=pa.array(NULL_VALUES, pa.large_string()))

    @cached_property
    def has_signs(self) -> bool:
        """Whether there is a lone plus among the cells, so that a lone minus is a value and not a gap."""
        return bool(pc.any(pc.equal(self.cells, "+")).as_py())

    @cached_property
    def odd(self) -> pa.ChunkedArray:
        """Which have a value that is no number."""
        return pc.and_not(pc.invert(pc.match_substring_regex(self.cells, NUMBER)), self.missing)

    @cached_property
    def n_odd(self) -> int:
        """How many."""
        return int(pc.sum(self.odd).as_py() or 0)


Cells: TypeAlias = pa.ChunkedArray | Text
"""A column to be read, as `opened` gives it."""


def opened(values: pa.ChunkedArray) -> Cells:
    """A column, ready to be read in one or more of the ways below: text is trimmed here, once for all of them."""
    return Text(values) if is_text(values.type) else values


def without_dictionary(values: Cells) -> Cells:
    """A column of categories as what they are; any other as it is."""
    if isinstance(values, Text) or not pa.types.is_dictionary(values.type):
        return values
    return opened(values.cast(values.type.value_type))


def numbers(values: Cells, label: str, first_row: int) -> Floats:
    """(n,), NaN where missing, from numbers or text; infinite values are an error."""
    values = without_dictionary(values)
    if isinstance(values, Text):
        if values.n_odd:
            refuse(values.cells, values.odd, label, first_row, "a number")
        values = pc.if_else(values.missing, None, values.cells)
    elif not (is_number(values.type) or pa.types.is_boolean(values.type) or pa.types.is_null(values.type)):
        refuse_type(values, label, "numbers")
    return finite(as_floats(values), label, first_row)


def finite(found: Floats, label: str, first_row: int) -> Floats:
    """The same; infinite values are an error."""
    infinite = np.flatnonzero(np.isinf(found))
    if infinite.size:
        row = int(infinite[0]) + first_row
        raise TableError(f"{label} has {infinite.size} infinite values, first in row {row}.", row)
    return found


def flags(values: Cells, label: str, first_row: int) -> Floats:
    """(n,) of 1, 0 and NaN, from true and false, numbers or text."""
    if not isinstance(values, Text):
        return numbers(values, label, first_row)
    cells, missing = values.cells, values.missing
    true, false = (pc.is_in(cells, value_set=pa.array(words, pa.large_string())) for words in (TRUE, FALSE))
    refuse(cells, pc.invert(pc.or_(pc.or_(true, false), missing)), label, first_row, "true or false")
    return as_floats(pc.if_else(missing, None, true))


def days(values: Cells, label: str, first_row: int) -> Floats:
    """(n,) days since 1970-01-01, NaN where missing, from dates, timestamps or ISO 8601 text."""
    if isinstance(values, Text):
        values = _parse_dates(values, label, first_row)
    if pa.types.is_null(values.type):
        return as_floats(values)
    if not (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
        refuse_type(values, label, "dates")
    zone = getattr(values.type, "tz", None)
    return as_floats(values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())) / _DAY


def _parse_dates(values: Text, label: str, first_row: int) -> pa.ChunkedArray:
    cells = values.cells
    cut = pc.replace_substring_regex(cells, r"(\.\d{6})\d+", r"\1")  # microseconds hold six digits
    text = pc.if_else(values.missing, None, cut)
    dates = as_dates(text)
    if dates is None:
        bad = [as_dates(pa.chunked_array([[cell]], text.type)) is None for cell in text]
        refuse(cells, pa.chunked_array([bad]), label, first_row, "a date like 2024-12-31 or 2024-12-31 23:59:59")
        raise TableError(f"{label} mixes times with and without a zone; write them all alike.")
    return dates


def as_dates(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Timestamps, all without a zone or all with one; None if there is anything else."""
    for zone in (None, "UTC"):
        with suppress(pa.ArrowInvalid):
            return text.cast(pa.timestamp("us", zone))
    return None


def texts(values: Cells, label: str, missing: str | None = MISSING, signs: bool = False) -> pa.ChunkedArray:
    """Levels as text, with `missing` instead of those that mean "no value"; among `signs`, a lone minus is a value."""
    try:
        text = values if isinstance(values, Text) else Text(values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"{label} has type {values.type}; text is expected, as in training.") from error
    gap = pc.and_not(text.missing, pc.equal(text.cells, "-")) if signs else text.missing
    return pc.if_else(gap, missing, text.cells)


def refuse(values: pa.ChunkedArray, bad: pa.ChunkedArray, label: str, first_row: int, expected: str) -> None:
    """Raise TableError for the first of the `bad` values, if there is one."""
    first = pc.index(bad, True).as_py()
    if first >= 0:
        n = pc.sum(bad).as_py()
        more = f" (and {n - 1} more below it)" if n > 1 else ""
        row = first + first_row
        raise TableError(f"{label} has {values[first].as_py()!r} in row {row}{more}; {expected} is expected.", row)


def as_floats(values: pa.ChunkedArray) -> Floats:
    """float64 with NaN for null, always a copy; integers beyond 2^53 are rounded."""
    return np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


READERS: dict[str, Callable[[Cells, str, int], Floats]] = {"number": numbers, "flag": flags, "date": days}


def refuse_type(values: Cells, label: str, expected: str) -> NoReturn:
    """Raise TableError: the column is stored as something else than what the training table had."""
    raise TableError(f"{label} has type {values.type}; {expected} are expected, as in the training table.")


def is_empty(values: Cells) -> bool:
    """Whether there is no value at all: null, or NaN among floats, or only cells like NA in text."""
    if isinstance(values, Text):
        return bool(pc.all(values.missing).as_py())
    return bool(pc.all(pc.is_null(values, nan_is_null=True)).as_py())


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"
