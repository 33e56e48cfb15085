"""What the cells of a column mean, decided once for all of its training rows, and reading later rows the same way.

    form                      cells
    ------------------------  ----------------------------------------------------------------------------
    number                    numbers, also as text; or all of them written in one other way (`spellings`)
    flag                      true and false
    date                      dates and timestamps, ISO 8601 text; or all of them written in one other way
    text                      anything else: levels

Text means numbers or dates only if all cells agree on the way they are written. If more than half do, the others are
odd: an error that points at the first, unless they are to be missing or the column is to be text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.cells import (
    FALSE,
    READERS,
    TRUE,
    Cells,
    Floats,
    Text,
    as_dates,
    finite,
    is_number,
    refuse,
    refuse_type,
    texts,
)
from nearfield.column_values import TableError
from nearfield.dialect import pasted
from nearfield.spellings import DateSpelling, Spelling, likely_spellings, spelling_of

ODD = ("error", "missing", "text")
"""What becomes of odd cells: an error, a gap, or their whole column text."""

DATE_ORDERS = ("dmy", "mdy")
"""What 03/04/2024 may be."""

SIGNS = "+-"
"""Pattern of text in which a lone minus is a value."""
_SAMPLE = 1000
_PLAIN = {"number": "numbers", "flag": "true/false", "date": "dates", "text": "text"}
_EXPECTED = {"number": "a number", "date": "a date like 2024-12-31 or 2024-12-31 23:59:59", "flag": "true or false"}


@dataclass(frozen=True)
class Form:
    """What the cells of a column mean, as two strings that a model file can hold."""

    kind: str
    """number, flag, date or text"""
    pattern: str = ""
    """an example of how numbers or dates are written, where that is not as usual; "+-" of text if a lone minus is a
    value"""

    @property
    def spelling(self) -> Spelling | None:
        """The way its cells are written, None for the usual one."""
        return spelling_of(self.kind, self.pattern) if self.pattern else None

    @property
    def sound(self) -> bool:
        """Whether there is such a form; what a damaged file says may be none."""
        if not isinstance(self.kind, str) or not isinstance(self.pattern, str) or self.kind not in _PLAIN:
            return False
        return not self.pattern or (self.kind, self.pattern) == ("text", SIGNS) or self.spelling is not None


def described(form: Form) -> str:
    """The form in words: numbers in kg, dates like 31.12.2024."""
    return form.spelling.described if form.spelling else _PLAIN[form.kind]


def form_of(values: Cells, label: str, dates: str | None = None, odd: str = "error", name: str = "") -> Form:
    """What a column of the training table means.

    `dates`, dmy or mdy, decides where it is not clear from the cells. Odd cells are an error if `odd` is "error". With
    the `name` of the column, hints can be pasted into a shell.
    """
    if not isinstance(values, Text):
        return Form(_kind_of_type(values.type, label, name))
    present = pc.invert(values.missing)
    n = int(pc.sum(present).as_py() or 0)
    if n == 0:
        return Form("text")
    if values.n_odd == 0:
        return Form("number")
    cells = values.cells.filter(present)
    sample = pc.unique(cells.slice(0, 20 * _SAMPLE)).slice(0, _SAMPLE).to_pylist()
    if {*TRUE, *FALSE}.issuperset(sample) and count_odd(Form("flag"), values) == 0:
        return Form("flag")
    if sample[0][:4].isdecimal() and "-" in sample[0] and as_dates(_microseconds(cells)) is not None:
        return Form("date")
    form, fits = _best(cells, sample, dates, label, name)
    if fits == n:
        return form
    if 2 * fits > n and odd != "text":
        if odd == "error":
            _refuse_odd(form, values, label, name)
        return form
    return Form("text", SIGNS if values.has_signs else "")


def read_as(form: Form, values: Cells, label: str, first_row: int, odd: str = "error") -> Floats | pa.ChunkedArray:
    """The cells (n,) of a column that has the form: numbers, days since 1970-01-01, or text without nulls.

    Numbers and days are NaN where missing, and where cells do not fit if `odd` is "missing"; else those are an error.
    """
    if form.kind == "text":
        return texts(values, label, signs=form.pattern == SIGNS)
    if isinstance(values, Text):
        bad = odd_cells(form, values) if odd == "missing" or form.spelling else None
        if odd == "missing" and bad is not None and bad.any():
            values = Text(pc.if_else(pa.chunked_array([bad]), None, values.cells))
        elif form.spelling and bad is not None:
            expected = f"a {form.kind} like {form.pattern}"
            refuse(values.cells, pa.chunked_array([bad]), label, first_row, expected)
        if form.spelling:
            return finite(form.spelling.read(pc.if_else(values.missing, None, values.cells)), label, first_row)
    elif form.spelling and form.kind == "number" and not pa.types.is_null(values.type) and _has_unit(form):
        refuse_type(values, label, described(form))
    return READERS[form.kind](values, label, first_row)


def odd_cells(form: Form, values: Cells) -> np.ndarray:
    """Which cells (n,) have a value that does not fit the form."""
    if form.kind == "text" or not isinstance(values, Text):
        return np.zeros(len(values), dtype=bool)
    present = ~_mask(values.missing)
    if form.spelling:
        return present & np.isnan(form.spelling.read(values.cells))
    if form.kind == "number":
        return _mask(values.odd)
    if form.kind == "flag":
        return present & ~_mask(pc.is_in(values.cells, value_set=pa.array([*TRUE, *FALSE], pa.large_string())))
    return present & _no_dates(pc.if_else(values.missing, None, values.cells))


def count_odd(form: Form, values: Cells) -> int:
    """How many cells have a value that does not fit the form."""
    return int(odd_cells(form, values).sum())


# ------------------------------------------------------------------------------------------------------ deciding


def _kind_of_type(kind: pa.DataType, label: str, name: str) -> str:
    """number, flag, date or text, from the type that the file gives."""
    if pa.types.is_dictionary(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "flag"
    if is_number(kind) or pa.types.is_null(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    what = "is not UTF-8 text" if binary else f"has type {kind}, which cannot be used"
    hint = "name the encoding of the file, as in --encoding latin-1" if binary else "convert it to numbers or text"
    raise TableError(f"{label} {what}: {hint}, or leave it out{_option('--drop', name)}.")


def _best(cells: pa.ChunkedArray, sample: list[str], dates: str | None, label: str, name: str) -> tuple[Form, int]:
    """The form that most cells fit, and how many do; text if there is none."""
    best, most, values = Form("text"), 0, np.empty(0)
    for spelling in likely_spellings(sample):
        found = spelling.read(cells, lenient=False)
        fits = int((~np.isnan(found)).sum())
        if fits and fits == most and isinstance(spelling, DateSpelling) and best.kind == "date":
            if dates is None and spelling.sign != "." and not np.array_equal(found, values, equal_nan=True):
                _ask_for_order(cells, label)
            if spelling.order != dates:
                continue
        elif fits <= most:
            continue
        best, most, values = _form(spelling), fits, found
        if fits == len(cells) and not isinstance(spelling, DateSpelling):
            break
    return best, most


def _form(spelling: Spelling) -> Form:
    kind = "date" if isinstance(spelling, DateSpelling) else "number"
    usual = {"date": "2024-12-31", "number": "1234.5"}[kind]
    return Form(kind, "" if spelling.example == usual else spelling.example)


def _ask_for_order(cells: pa.ChunkedArray, label: str) -> None:
    raise TableError(
        f"{label} has dates like {cells[0].as_py()!r}, of which none tells whether the day or the month comes first: "
        "give --dates dmy or --dates mdy."
    )


def _refuse_odd(form: Form, values: Text, label: str, name: str) -> None:
    expected = f"a {form.kind} like {form.pattern}" if form.pattern else _EXPECTED[form.kind]
    bad = odd_cells(form, values)
    try:
        refuse(values.values, pa.chunked_array([bad]), label, 1, expected)
    except TableError as error:
        hints = f"Correct it, leave the column out{_option('--drop', name)}, or give --odd-cells missing or text."
        raise TableError(f"{error} {hints}", error.row) from None


# -------------------------------------------------------------------------------------------------- small things


def _option(option: str, name: str) -> str:
    return f" ({pasted(option, name)})" if name else ""


def _has_unit(form: Form) -> bool:
    return bool(getattr(form.spelling, "prefix", "") or getattr(form.spelling, "suffix", ""))


def _mask(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(values.to_numpy(), dtype=bool)


def _microseconds(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """ISO 8601 text without more digits than pyarrow takes."""
    return pc.replace_substring_regex(cells, r"(\.\d{6})\d+", r"\1")


def _no_dates(cells: pa.ChunkedArray) -> np.ndarray:
    """Which cells (n,) are not null and no date in ISO 8601."""
    cells = _microseconds(cells)
    if as_dates(cells) is not None:
        return np.zeros(len(cells), dtype=bool)
    one_by_one: Iterable[bool] = (as_dates(pa.chunked_array([[cell]], cells.type)) is None for cell in cells)
    return np.fromiter(one_by_one, dtype=bool, count=len(cells))
