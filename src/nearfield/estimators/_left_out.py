"""What the estimators know about leaving rows out: groups, times and a buffer, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearfield.column_values import Column, TableError, column_of, read_as
from nearfield.columns import Columns
from nearfield.coordinates import Chart
from nearfield.encoding import TableEncoder
from nearfield.estimators._groups import group_numbers
from nearfield.leaving import ALONE, Buffer, Clock, GroupLabels, LeftOut
from nearfield.persistence import ModelFileError
from nearfield.rows import Joined
from nearfield.validation import check_choice, column_numbers, is_int

WAYS = ("one", "past")
"""What the argument `leave_out` may be."""

_TIMES = "numbers or dates (n,), or the name or number of the column of X that holds them"
_KINDS = ("number", "date", "duration")


class Leaving:
    """Mixin: rows that are left out together."""

    leave_out: str = "one"
    buffer: Any = None
    _clock: Clock | None = None
    _group_labels: GroupLabels | None = None
    _fit: Any

    @property
    def encoder_(self) -> TableEncoder:
        """How columns become features."""
        raise NotImplementedError

    def _labelled(self, groups: Any, times: Any, columns: Columns, kept: np.ndarray) -> LeftOut:
        """Groups and times of those rows that are kept (n,), but for groups that are to be found; both checked."""
        check_choice("leave_out", self.leave_out, WAYS)
        checked_buffer(self.buffer)
        if self.leave_out == "past" and times is None:
            raise ValueError(f"leave_out is 'past', but fit got no times: pass times=, {_TIMES}.")
        if self.leave_out != "past" and times is not None:
            raise ValueError(
                f"times were given, but leave_out is {self.leave_out!r}: write leave_out='past' to predict rows from "
                "earlier ones, or leave times out."
            )
        objective = getattr(self, "objective", "loo")
        if objective != "loo" and (times is not None or self.buffer is not None):
            raise ValueError(f"objective is {objective!r}: leave_out='past' and buffer= go with 'loo'.")
        at, clock = None, None
        if times is not None:
            at, clock = _read_times(times, columns, len(kept))
            at = at[kept]
            if len(at) > 1 and at.min() == at.max():
                raise ValueError(
                    "times are the same for all rows: no row would be earlier than another. Rows of the same time are "
                    "simultaneous and do not see each other."
                )
        if isinstance(groups, str):
            check_choice("groups", groups, ("auto",))
        together, labels = (None, None) if groups is None or isinstance(groups, str) else group_numbers(groups, kept)
        return LeftOut(together, at, clock=clock, labels=labels)

    def _leaving(self, rows: Joined, chart: Chart | None) -> LeftOut:
        """What the joined rows are left out with."""
        if self.buffer is None:
            return LeftOut(rows.groups, rows.times) if rows.groups is not None or rows.times is not None else ALONE
        buffer = _buffer(self.buffer, self.encoder_, chart)
        return LeftOut(rows.groups, rows.times, buffer, buffer.described(self.encoder_.feature_names))

    def _more_times(self, times: Any, columns: Columns) -> np.ndarray | None:
        """Times (n,) of rows that are appended, where those of the fit have some."""
        if self._fit.predictor.rows.times is None:
            if times is not None:
                raise ValueError("times were given, but the model was fitted without leave_out='past': leave them out.")
            return None
        clock = self._clock
        assert clock is not None
        if times is None:
            times = clock.column
        if times is None:
            raise ValueError("the model was fitted with leave_out='past': pass times= here too, as fit had them.")
        found, own = _read_times(times, columns, len(columns))
        if own.kind != clock.kind:
            raise ValueError(f"times are of the kind {own.kind}; those of the fit are of the kind {clock.kind}.")
        return found

    def _packed_clock(self) -> dict[str, Any]:
        return {} if self._clock is None else {"times": {"column": self._clock.column, "kind": self._clock.kind}}

    def _unpack_clock(self, fields: Mapping[str, Any], fit: Any) -> None:
        """Where times came from, or a ModelFileError; a file without it has none."""
        self._clock = None
        if fit.predictor.rows.times is None:
            return
        stored = fields.get("times")
        column, kind = (stored.get("column"), stored.get("kind")) if isinstance(stored, dict) else (None, None)
        if kind not in _KINDS or not (column is None or isinstance(column, str)):
            raise ModelFileError("its rows have times, but it does not tell where they came from")
        self._clock = Clock(column, str(kind))


def _read_times(times: Any, columns: Columns, n: int) -> tuple[np.ndarray, Clock]:
    """Times (n,) as numbers, days of dates, and where they came from."""
    name: str | None = None
    if isinstance(times, str) or is_int(times):
        name = columns.names[column_numbers("times", [times], columns.names)[0]]
        label, kind = f"column {name!r}, of times,", columns.kind(name)
        values = columns.read(name, kind, columns.form(name))
        column, first = Column(kind, values), columns.first_row
    else:
        label, first = "times", 0
        column = _column(times)
    kind = "date" if column.kind == "text" else column.kind
    if kind not in _KINDS:
        raise ValueError(f"{label} holds {column.kind} values: numbers or dates are expected.")
    found = np.asarray(read_as(kind, column, label, first), dtype=np.float64)
    if found.shape != (n,):
        raise ValueError(f"times has shape {found.shape}: expected {(n,)}, a time for each row; or {_TIMES}.")
    missing = np.flatnonzero(np.isnan(found))
    if missing.size:
        raise ValueError(
            f"{label} has {missing.size:,} missing values in {n:,} rows, first in row {missing[0] + first}: a row "
            "without a time is neither earlier nor later. Fill them in, or leave these rows out."
        )
    return found, Clock(name, kind)


def _column(times: Any) -> Column:
    """An array or a series of times as a column."""
    own = times if hasattr(times, "dtype") or hasattr(times, "to_numpy") else np.asarray(times)
    shape = getattr(own, "shape", (0,))
    if len(shape) != 1:
        raise ValueError(f"times has shape {shape}: expected (n,), a time for each row; or {_TIMES}.")
    try:
        return column_of(own)
    except (TableError, TypeError) as error:
        raise ValueError(f"times cannot be read: {error} Expected are {_TIMES}.") from error


# --------------------------------------------------------------------------------------------------- buffer


def checked_buffer(buffer: Any) -> None:
    """Raise ValueError unless it is None, a distance, or a mapping of columns to distances."""
    if buffer is None:
        return
    distances = list(buffer.values()) if isinstance(buffer, Mapping) else [buffer]
    if not distances or not all(_is_distance(distance) for distance in distances):
        raise ValueError(
            f"buffer is {buffer!r}: expected a distance above zero in the units of the coordinates, or of all columns "
            "that are numbers where there are none; or a mapping such as {'depth': 5.0} of columns to distances."
        )


def _is_distance(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and bool(0 < value < np.inf)


def listed_buffer(buffer: Any) -> Any:
    """The argument as JSON knows it: a mapping as pairs, because there keys are text."""
    return [list(map(_plain, pair)) for pair in buffer.items()] if isinstance(buffer, Mapping) else _plain(buffer)


def unlisted_buffer(stored: Any) -> Any:
    """The inverse of `listed_buffer`, or a ModelFileError."""
    try:
        found = {key: distance for key, distance in stored} if isinstance(stored, list) else stored
        checked_buffer(found)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"its buffer does not make sense ({error})") from error
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _buffer(asked: Any, encoder: TableEncoder, chart: Chart | None) -> Buffer:
    """The buffer that the argument asks for, in terms of features."""
    names = [rule.name for rule in encoder.rules_]
    if not isinstance(asked, Mapping):
        if chart is not None:
            if asked >= chart.most_lag:
                raise ValueError(f"buffer is {asked:g}: no place is {chart.most_lag:g} degrees or more from another.")
            return Buffer(float(asked))
        own = [number for number, rule in enumerate(encoder.rules_) if rule.kind == "number"]
        if not own:
            raise ValueError(f"buffer is {asked:g}, but no column holds numbers: pass a mapping of columns.")
        return Buffer(columns={_feature(encoder, number): float(asked) for number in own})
    found: dict[int, float] = {}
    for key, distance in asked.items():
        number = column_numbers("buffer", [key], names)[0]
        feature = _feature(encoder, number)
        if chart is not None and chart.one_scale and feature in chart.columns:
            raise ValueError(
                f"buffer has the column {names[number]!r}, which is a longitude or latitude: distances on the globe "
                "need both. Pass a number of degrees, the same in all directions."
            )
        found[feature] = float(distance)
    return Buffer(columns=found)


def _feature(encoder: TableEncoder, number: int) -> int:
    """The number of the feature that a column of numbers, dates or durations became."""
    rule = encoder.rules_[number]
    if rule.kind not in _KINDS:
        what = {"unused": "no values", "means": "text"}.get(rule.kind, f"{rule.kind} values")
        raise ValueError(f"buffer is a distance in column {rule.name!r}, which has {what}: numbers are expected.")
    if rule.indicator:
        raise ValueError(
            f"buffer is a distance in column {rule.name!r}, which has missing values: such rows are nowhere. Fill them "
            "in, or name other columns, as in buffer={'x': 1.0}."
        )
    return int(np.flatnonzero(encoder.owners == number)[0])
