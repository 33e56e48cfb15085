"""The cells of a target column: which task they ask for, and their values as labels or numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.cells import Cells, Floats, Text, days, flags, is_number, is_text, numbers, opened, texts
from nearfield.column_values import TableError
from nearfield.families import usual
from nearfield.forms import Form, form_of, read_as

MAX_CLASSES = 64
"""Text with more labels than this is taken as classes only when asked for: it may be names or free text."""

LABEL_TYPES: dict[str, Any] = {
    "text": object,
    "sign": object,
    "flag": np.bool_,
    "whole": np.int64,
}  # that a table can have
_EXACT = 2.0**53  # the last whole number known to float64

NUMBER = usual("number").task
"""The task of a target that is a number, where nothing else is said."""


# --------------------------------------------------------------------------------------------------- learning


def with_target(table: pa.Table, name: str) -> tuple[pa.Table, np.ndarray]:
    """The rows that have a target, and their numbers in the table, from 1; TableError if none has."""
    values = opened(table.column(name))
    if isinstance(values, Text):
        gap = pc.and_not(values.missing, pc.equal(values.cells, "-")) if values.has_signs else values.missing
    else:
        gap = pc.is_null(values, nan_is_null=True)
    known = ~np.asarray(gap.to_numpy(), dtype=bool)
    if not known.any():
        raise TableError(f"The target {name!r} is missing in all {known.size} rows.")
    return table if known.all() else table.filter(pa.array(known)), np.flatnonzero(known) + 1


def form_of_numbers(values: Cells, label: str) -> Form:
    """How the numbers of a target are written, the usual way where they are none: reading them then says so."""
    form = form_of(values, label, dates="dmy", odd="missing") if isinstance(values, Text) else Form("number")
    return form if form.kind == "number" else Form("number")


def choose(values: Cells, name: str) -> str:
    """The task of a column when nothing else is said."""
    if not seem_classes(values):
        return NUMBER
    task, n = usual("label").task, len(pc.unique(values.cells)) if isinstance(values, Text) else 0
    if n > MAX_CLASSES:
        raise TableError(
            f"The target {name!r} is text with {n} different values; if each of them is a class, give --task {task}."
        )
    return task


def seem_classes(values: Cells) -> bool:
    """Whether a column is true/false, categories, or text that is not mostly numbers."""
    if isinstance(values, Text):
        return form_of(values, "", dates="dmy", odd="missing").kind != "number"
    return pa.types.is_boolean(values.type) or pa.types.is_dictionary(values.type)


def kind_of_labels(values: Cells, name: str) -> str:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if is_text(kind):
        return "sign" if isinstance(values, Text) and values.has_signs else "text"
    if pa.types.is_boolean(kind):
        return "flag"
    if is_number(kind):
        return "whole"
    raise TableError(f"The target {name!r} has type {kind}; classes are text, true/false or whole numbers.")


def check_labels(y: np.ndarray, name: str) -> None:
    """Raise TableError unless the labels y (n,) are two or more, and whole where they are numbers."""
    different = set(y.tolist())
    fractions = [row for row, label in enumerate(y.tolist(), 1) if isinstance(label, float)]
    if fractions:
        raise TableError(
            f"The target {name!r} has {y[fractions[0] - 1]:g} in row {fractions[0]}; classes are text, true/false or "
            f"whole numbers. To predict a number give --task {NUMBER}."
        )
    if len(different) < 2:
        raise TableError(f"The target {name!r} is {different.pop()!r} in every row; at least two classes are needed.")


def refuse_missing(known: np.ndarray, name: str) -> None:
    missing = np.flatnonzero(~known)
    if missing.size:
        raise TableError(
            f"The target {name!r} is missing in {missing.size} of {known.size} rows, first in row {missing[0] + 1}; "
            "remove those rows before fitting."
        )


# ---------------------------------------------------------------------------------------------------- reading


def labels(values: Cells, kind: str, label: str, first_row: int) -> np.ndarray:
    """(n,) objects, None where missing: str, bool, datetime, or int (float where a number is not whole)."""
    if kind in ("text", "sign"):  # among signs, a minus is a label
        return np.array(
            texts(values, label, missing=None, signs=kind == "sign").to_numpy(zero_copy_only=False), dtype=object
        )
    if kind == "date":
        found = days(values, label, first_row)
        times = np.round(np.nan_to_num(found) * 86_400e6).astype(np.int64).astype("datetime64[us]").tolist()
        return np.array([None if math.isnan(day) else t for day, t in zip(found, times, strict=True)], dtype=object)
    if kind not in LABEL_TYPES:
        raise TableError(f"{label} cannot be read as the model's classes, which are of another kind: use Python.")
    found = (flags if kind == "flag" else numbers)(values, label, first_row)
    bad = np.abs(found - 0.5) != 0.5 if kind == "flag" else np.abs(found) >= _EXACT
    expected = "true or false" if kind == "flag" else "a whole number below 2^53, or text,"
    refuse_first(bad & ~np.isnan(found), found, np.arange(first_row, first_row + found.size), label, expected)
    as_label = bool if kind == "flag" else as_whole
    return np.array([None if math.isnan(value) else as_label(value) for value in found.tolist()], dtype=object)


def as_whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def numeric(values: Cells, label: str, first_row: int, pattern: str = "") -> Floats:
    """Numbers (n,), NaN where missing, written as the pattern of a `Form` says."""
    if not (is_number(values.type) or is_text(values.type)):
        raise TableError(f"{label} has type {values.type}; numbers are expected.")
    return np.asarray(read_as(Form("number", pattern), values, label, first_row))


def refuse_first(bad: np.ndarray, values: Floats, row: np.ndarray, label: str, expected: str) -> None:
    """Raise TableError for the first of the `bad` values (n,), if there is one."""
    places = np.flatnonzero(bad)
    if places.size:
        value = values[places[0]]
        has = "is missing" if math.isnan(value) else f"is {value:g}"
        more = f" (and {places.size - 1} more are like it)" if places.size > 1 else ""
        raise TableError(f"{label} {has} in row {row[places[0]]}{more}; {expected} is expected.", int(row[places[0]]))
