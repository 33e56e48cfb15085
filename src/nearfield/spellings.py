"""Ways to write numbers and dates, and reading a column of text in one of them.

A way is told by an example, which is also what a model file remembers of it:

    numbers   1234.5   1234,5   1,234.5   1.234,5   1 234.5   1 234,5   1'234.5   1'234,5
              with a currency in front or one unit behind: $1,234.5   1234,5 kg   1234.5 %
    dates     31.12.2024   31/12/2024   12/31/2024   2024/12/31 and so on, a time of day may follow

Each reads cells (n,) as numbers, NaN where a cell is written otherwise. Dates are days since 1970-01-01.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.cells import NUMBER, Floats, as_floats

_BLANKS = " \u00a0\u202f\u2009"
_MINUS = "\u2212"  # which typesetters use
_CURRENCY = r"(?:[$€£¥₹]|USD|EUR|GBP|CHF|JPY)"
_UNIT = r"[^\W\d_][^\s\d.,'\"]{0,11}\d?|[%‰°$€£¥₹′″Ω][^\s\d.,'\"]{0,11}\d?"

_STYLES = {
    "1234.5": ("", "."),
    "1'234.5": ("'’", "."),
    "1 234.5": (_BLANKS, "."),
    "1,234.5": (",", "."),
    "1234,5": ("", ","),
    "1.234,5": (".", ","),
    "1 234,5": (_BLANKS, ","),
    "1'234,5": ("'’", ","),
}
"""What may be between thousands, and the decimal sign; where cells fit several, the first is meant."""

_DATES = {"31{0}12{0}2024": "dmy", "12{0}31{0}2024": "mdy", "2024{0}12{0}31": "ymd"}
_DATE_SIGNS = "./-"
_TIME = r"(?:[ T]+(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2}(?:\.\d+)?))?\s*(?P<half>[AaPp]\.?[Mm]\.?)?)?"


@dataclass(frozen=True)
class NumberSpelling:
    """Numbers with a style, and a currency in front or a unit behind."""

    style: str = "1234.5"
    prefix: str = ""
    suffix: str = ""

    @property
    def example(self) -> str:
        return f"{self.prefix}{self.style}{' ' if self.suffix else ''}{self.suffix}"

    @property
    def described(self) -> str:
        """In words."""
        thousands, decimal = _STYLES[self.style]
        unit = self.prefix or self.suffix
        what = "percentages" if unit == "%" else f"numbers in {unit}" if unit else "numbers"
        signs = {",": "commas", ".": "points", "": ""}.get(thousands, "apostrophes" if "'" in thousands else "blanks")
        parts = ["a decimal comma"] if decimal == "," else []
        parts += [f"{signs} between thousands"] if signs else []
        return what + (f" with {' and '.join(parts)}" if parts else "")

    def read(self, cells: pa.ChunkedArray, lenient: bool = True) -> Floats:
        """(n,); `lenient` also takes a decimal point for a comma, unless it may stand between thousands."""
        thousands, decimal = _STYLES[self.style]
        cells = pc.replace_substring(cells, _MINUS, "-")
        plain = pc.replace_substring_regex(cells, self._pattern, r"\1\2\3")
        if thousands:
            plain = pc.replace_substring_regex(plain, f"[{re.escape(thousands)}]", "")
        plain = pc.replace_substring(plain, ",", ".") if decimal == "," else plain
        fits = pc.match_substring_regex(cells, self._pattern)
        if lenient and decimal == "," and not (self.prefix or self.suffix):
            other = pc.and_not(pc.match_substring_regex(cells, NUMBER), pc.match_substring_regex(cells, _GROUPED))
            fits, plain = pc.or_(fits, other), pc.if_else(fits, plain, cells)
        return as_floats(pc.if_else(fits, plain, None))

    @property
    def _pattern(self) -> str:
        """With the sign in group 1 or 2 and the digits in group 3."""
        thousands, decimal = _STYLES[self.style]
        d = re.escape(decimal)
        whole = rf"\d+|[1-9]\d{{0,2}}(?:[{re.escape(thousands)}]\d{{3}})+" if thousands else r"\d+"
        digits = rf"(?:(?:{whole})(?:{d}\d*)?|{d}\d+)(?:[eE][+-]?\d+)?"
        prefix, blank = re.escape(self.prefix), f"[{_BLANKS}]*"
        sign = rf"(?:([+-]?){prefix}{blank}|{prefix}{blank}([+-]?))" if prefix else "([+-]?)()"
        return rf"^{sign}({digits}){blank}{re.escape(self.suffix)}$"


_GROUPED = r"^[+-]?\d{1,3}(\.\d{3})+$"
_NUMBERISH = re.compile(
    rf"(?:[+{_MINUS}-]?(?P<prefix>{_CURRENCY}))?[{_BLANKS}]*[+{_MINUS}-]?[\d.,][\d.,'’{_BLANKS}]*?(?:[eE][+-]?\d+)?"
    rf"[{_BLANKS}]*(?P<suffix>{_UNIT})?"
)


@dataclass(frozen=True)
class DateSpelling:
    """Dates of day, month and year in some order, with a sign between them."""

    order: str
    sign: str

    @property
    def example(self) -> str:
        return next(example for example, order in _DATES.items() if order == self.order).format(self.sign)

    @property
    def described(self) -> str:
        """In words."""
        return f"dates like {self.example}"

    def read(self, cells: pa.ChunkedArray, lenient: bool = True) -> Floats:
        """(n,) days since 1970-01-01; there is nothing to be lenient about."""
        field = {"d": r"(?P<d>\d{1,2})", "m": r"(?P<m>\d{1,2})", "y": r"(?P<y>\d{4})"}
        date = re.escape(self.sign).join(field[letter] for letter in self.order)
        found = pc.extract_regex(cells, rf"^{date}{_TIME}$")
        parts = {name: _numbers(pc.struct_field(found, name)) for name in ("y", "m", "d", "h", "min", "s")}
        half = pc.utf8_lower(pc.utf8_slice_codeunits(pc.struct_field(found, "half"), 0, 1))
        afternoon = pc.fill_null(half, "").to_numpy(zero_copy_only=False)
        return _days(parts, afternoon)


Spelling = NumberSpelling | DateSpelling


def _numbers(text: pa.ChunkedArray) -> Floats:
    """(n,), 0 for what is left out, NaN where the cell is no date."""
    return as_floats(pc.if_else(pc.equal(text, ""), "0", text))


def _days(parts: dict[str, Floats], half: np.ndarray) -> Floats:
    """Days since 1970-01-01 (n,) of dates on the calendar and times on the clock, NaN for others."""
    hour = np.where(half == "", parts["h"], parts["h"] % 12 + 12 * (half == "p"))
    clock = (half == "") | ((parts["h"] >= 1) & (parts["h"] <= 12))
    good = (parts["m"] >= 1) & (parts["m"] <= 12) & (parts["d"] >= 1) & (parts["y"] >= 1)
    good &= clock & (hour < 24) & (parts["min"] < 60) & (parts["s"] < 60)
    year, month = (np.where(good, parts[name], 1).astype(np.int64) for name in ("y", "m"))
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first, after = (m.astype("datetime64[D]").astype(np.int64) for m in (months, months + 1))
    good &= parts["d"] <= after - first
    time = (hour + (parts["min"] + parts["s"] / 60) / 60) / 24
    return np.where(good, first + parts["d"] - 1 + time, np.nan)


# ----------------------------------------------------------------------------------------------------- by example


def spelling_of(kind: str, example: str) -> Spelling | None:
    """The way of writing that an example tells; None if it tells none."""
    if kind == "date":
        dates = (DateSpelling(order, sign) for order in _DATES.values() for sign in _DATE_SIGNS)
        return next((spelling for spelling in dates if spelling.example == example), None)
    for style in _STYLES if kind == "number" else ():
        prefix, found, suffix = example.partition(style)
        spelling = NumberSpelling(style, prefix, suffix.removeprefix(" "))
        if found and spelling.example == example:
            return spelling
    return None


def likely_spellings(sample: Sequence[str]) -> Iterator[Spelling]:
    """Ways in which cells like these may be written: none if less than half look like numbers or dates."""
    yield from _likely_dates(sample)
    found = [match for match in map(_NUMBERISH.fullmatch, sample) if match]
    if 2 * len(found) <= len(sample):
        return
    units = Counter((match["prefix"] or "", match["suffix"] or "") for match in found)
    prefix, suffix = units.most_common(1)[0][0]
    yield from (NumberSpelling(style, prefix, suffix) for style in _STYLES)


def _likely_dates(sample: Sequence[str]) -> Iterator[DateSpelling]:
    pattern = re.compile(rf"\d{{1,4}}([{re.escape(_DATE_SIGNS)}])\d{{1,2}}\1\d{{1,4}}(?:[ T].*)?")
    found = [match for match in map(pattern.fullmatch, sample) if match]
    if 2 * len(found) > len(sample):
        sign = Counter(match[1] for match in found).most_common(1)[0][0]
        yield from (DateSpelling(order, sign) for order in _DATES.values())
