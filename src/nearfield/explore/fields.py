"""Columns as a page asks for them: what may be put in, how that is read, and how values of rows are written.

    the column is        the page sends
    -------------------  -----------------------------------------------------
    a number             a number, also as text: "3.5"
    a duration           the same, in days
    true or false        true, false
    a date               text: "2024-12-31" or "2024-12-31T23:59"
    text                 text

null, or nothing at all, is a missing value.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfield.column_values import DAY, MISSING, Coded, TableError
from nearfield.columns import Columns
from nearfield.diagnostics.slices import column_values, level_name, short, shown, used_columns
from nearfield.encoding import TableEncoder
from nearfield.rules import Rule, Tally
from nearfield.validation import nearest_name

_RANGE = (0.01, 0.99)  # quantiles between which a slider goes
_STEPS = 500  # of a slider, at least
_DIGITS = 4  # of a value that is written, at least
_MOST_SUGGESTED = 1000  # levels that are suggested


class Refused(Exception):
    """What the page sent cannot be used; the message says why, `column` where."""

    def __init__(self, message: str, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True)
class Field:
    """One column that is in use: what is remembered of it, its number, and what a slider goes over.

    digits: behind the point, of numbers; clock: whether dates have a time of day. extremes: lowest and highest training
    value, where they are known.
    """

    rule: Rule
    column: int
    low: float = math.nan
    high: float = math.nan
    digits: int = 0
    clock: bool = False
    extremes: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def levelled(self) -> bool:
        """Whether it is text."""
        return self.rule.kind in ("text", "means")

    def described(self) -> dict[str, Any]:
        """As the page is told."""
        rule = self.rule
        found: dict[str, Any] = {
            "name": rule.name,
            "kind": "text" if self.levelled else rule.kind,
            "missing": MISSING in rule.levels if self.levelled else rule.indicator,
            "hint": f"like {rule.form} in the table" if rule.form and not self.levelled else "",
        }
        if self.levelled:
            known = [level for level in rule.levels if level != MISSING]
            return {**found, "levels": known[:_MOST_SUGGESTED], "free": len(known) > _MOST_SUGGESTED}
        if rule.kind == "date":
            return {**found, "clock": self.clock}
        if rule.kind != "flag":
            found |= {"low": self.low, "high": self.high, "step": 10.0**-self.digits}
        return found

    # --- from the page ----------------------------------------------------------------------------------------------

    def read(self, given: Any) -> float | str | None:
        """A value as columns have it: a number with NaN where missing, or text with None; Refused for anything else."""
        if given is None or (isinstance(given, str) and not given.strip()):
            return None if self.levelled else math.nan
        if self.levelled:
            if not isinstance(given, str):
                raise Refused(f"Column {self.name!r} has {given!r}; text is expected.", self.name)
            return None if given == MISSING else given.strip()
        reader = {"flag": self._flag, "date": self._date}.get(self.rule.kind, self._number)
        return reader(given)

    def _number(self, given: Any) -> float:
        what = "a number of days, like 2.5," if self.rule.kind == "duration" else "a number, like 3.5,"
        return number(given, f"Column {self.name!r}", what, self.name)

    def _flag(self, given: Any) -> float:
        told = str(given).lower()
        if told not in ("true", "false"):
            raise Refused(f"Column {self.name!r} has {given!r}; true or false is expected.", self.name)
        return float(told == "true")

    def _date(self, given: Any) -> float:
        try:
            time = datetime.datetime.fromisoformat(str(given).strip().removesuffix("Z"))
            if time.tzinfo is not None:
                time = time.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        except (ValueError, OverflowError):
            expected = "a date like 2024-12-31 or 2024-12-31 23:59 is expected"
            raise Refused(f"Column {self.name!r} has {given!r}; {expected}.", self.name) from None
        return float(np.datetime64(time, "us").astype(np.int64)) / DAY

    def remark(self, value: float | str | None) -> str:
        """What is to be said of a value that no training row has, if anything."""
        rule = self.rule
        if isinstance(value, str):
            if value in rule.levels:
                return ""
            then = "it is taken as none of them" if rule.kind == "text" else "the mean of all rows is taken"
            return f"{self.name}: {value!r} is none of the {len(rule.levels):,} levels of the training rows; {then}."
        if value is None:
            return "" if MISSING in rule.levels else f"{self.name}: no training row lacks it."
        if math.isnan(value):
            filled = f"{self.name}: no training row lacks it; their median, {self.shown(rule.median)}, is taken."
            return "" if rule.indicator else filled
        low, high = self.extremes or (-math.inf, math.inf)
        if low <= value <= high or rule.kind == "flag":
            return ""
        where = f"which go from {self.shown(low)} to {self.shown(high)}"
        return f"{self.name}: {self.shown(value)} is beyond the training rows, {where}."

    # --- to the page ------------------------------------------------------------------------------------------------

    def written(self, value: float) -> Any:
        """A value of a row, of text the number of its level, as the page sends it."""
        if self.levelled:
            level = self.rule.levels[int(value)] if value >= 0 else MISSING
            return None if level == MISSING else level
        if math.isnan(value):
            return None
        if self.rule.kind == "flag":
            return bool(value > 0.5)
        if self.rule.kind == "date":
            return _iso(value, self.clock)
        if value == 0:
            return 0.0
        digits = max(self.digits, _DIGITS - 1 - math.floor(math.log10(abs(value))))
        return round(value, min(digits, 300))

    def shown(self, value: float) -> str:
        """The same for people to read."""
        if self.levelled:
            return level_name(self.rule, int(value))
        if math.isnan(value):
            return "missing"
        if self.rule.kind == "date":
            return _iso(value, self.clock).replace("T", " ")
        if self.rule.kind == "number" and float(value).is_integer() and abs(value) < 1e15:
            return short(value) if abs(value) < 1e4 else f"{value:,.0f}".replace("-", "−")
        return shown(self.rule, value)

    def values(self, encoder: TableEncoder, features: np.ndarray) -> np.ndarray:
        """Values (b,) of rows with features (b, m): NaN where missing, of text numbers of levels.

        Of text with many levels, of which a training row has the mean over other rows, the level that is nearest in
        mean and count.
        """
        found, missing = column_values(encoder, self.column, features)
        if self.rule.kind == "means":
            own = features[:, np.flatnonzero(encoder.owners == self.column)]
            table = np.column_stack([np.array(self.rule.means)[:-1], self.rule.log_counts])
            weights = np.append(1 / np.maximum(table[:, :-1].std(axis=0), 1e-300), 1e6)  # the count is the same
            gaps = np.abs(own[:, None, :] - table[None]) * weights
            return np.asarray(gaps.sum(axis=2).argmin(axis=1).astype(np.float64))
        return np.where(missing, np.nan, found)


def fields_of(encoder: TableEncoder, features: np.ndarray, extremes: np.ndarray | None) -> list[Field]:
    """All columns that are in use, with the ranges of rows with features (b, m).

    extremes: lowest and highest features (2, m) of all training rows, where they are known.
    """
    found = []
    for column in used_columns(encoder):
        rule = encoder.rules_[column]
        field = Field(rule, column)
        if not field.levelled:
            values = field.values(encoder, features)
            known = values[~np.isnan(values)]
            first = int(np.flatnonzero(encoder.owners == column)[0])
            most = None if extremes is None else (float(extremes[0, first]), float(extremes[1, first]))
            field = Field(rule, column, *_extent(known if known.size else np.array([rule.median])), most)
        found.append(field)
    return found


def _extent(known: np.ndarray) -> tuple[float, float, int, bool]:
    """Ends of a slider over values (b,), digits behind the point, and whether there are times of day."""
    low, high = (float(end) for end in np.quantile(known, _RANGE))
    clock = bool((known % 1.0 != 0).any())
    if not clock:
        return math.floor(low), math.ceil(high), 0, clock
    span = high - low or max(abs(high), 1e-300)
    digits = int(np.clip(math.ceil(math.log10(_STEPS / span)), 0, 300))
    unit = 10.0**-digits
    return round(math.floor(low / unit) * unit, digits), round(math.ceil(high / unit) * unit, digits), digits, clock


def _iso(days: float, clock: bool) -> str:
    """A date as browsers write it."""
    time = np.datetime64(round(days * DAY), "us")
    return str(time.astype("datetime64[m]" if clock else "datetime64[D]"))


def number(given: Any, what: str, expected: str, column: str | None = None) -> float:
    """A finite number, also from text; Refused for anything else."""
    try:
        found = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise Refused(f"{what} has {given!r}; {expected} is expected.", column)
    return found


class Typed(Columns):
    """One row, as it was put in: values by column, numbers or text."""

    def __init__(self, encoder: TableEncoder, values: Mapping[str, float | str | None]) -> None:
        self.names, self._values, self.tally = [rule.name for rule in encoder.rules_], values, Tally()

    def __len__(self) -> int:
        return 1

    def kind(self, name: str) -> str:
        return "text" if isinstance(self._values[name], str | None) else "number"

    def read(self, name: str, kind: str, form: str = "") -> Any:
        value = self._values[name]
        if kind != "text":
            return np.array([value], dtype=np.float64)
        return Coded(np.array([-1 if value is None else 0]), [] if value is None else [str(value)])


def read_row(encoder: TableEncoder, fields: list[Field], given: Any) -> tuple[np.ndarray, list[str]]:
    """The features (1, m) of a row that the page sent by column, and what is to be said of its values."""
    if not isinstance(given, Mapping):
        raise Refused('"values" is missing: an object with a value for each column is expected.')
    names = [field.name for field in fields]
    for name in given:
        if name not in names:
            raise Refused(f"The model has no column {name!r}.{nearest_name(name, names)}")
    for name in names:
        if name not in given:
            raise Refused(f"Column {name!r} is not there: each column needs a value, null where it is missing.", name)
    values = {field.name: field.read(given[field.name]) for field in fields}
    try:
        features = encoder.encode(Typed(encoder, values))
    except TableError as error:  # a gap where the model knows nothing to fill in
        lacking = next((name for name in names if given[name] in (None, "")), None)
        raise Refused(f"Column {lacking!r} has no value: the model was fitted to complete columns.", lacking) from error
    return features, list(filter(None, (field.remark(values[field.name]) for field in fields)))
