"""Rows by the values of a column of the user's table: levels of text, few values, or ranges of many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfield.encoding import TableEncoder
from nearfield.rules import Rule

_BINS = 5
_MOST_LEVELS = 12
_FEW_VALUES = 8


@dataclass(frozen=True, eq=False)
class Slice:
    """Some of the rows (b,): those with a value of a column, or in a range of it."""

    column: str
    label: str
    rows: np.ndarray


def own_features(encoder: TableEncoder, column: int) -> np.ndarray:
    """Numbers of the features that a column became."""
    return np.flatnonzero(encoder.owners == column)


def used_columns(encoder: TableEncoder) -> list[int]:
    """Numbers of the columns that became features."""
    return [number for number, rule in enumerate(encoder.rules_) if rule.features]


def column_values(encoder: TableEncoder, column: int, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (b,) of a column from features (b, m), and which are missing.

    Of text the number of the level, -1 for none of them; of text with many levels the mean of the target there.
    """
    rule, own = encoder.rules_[column], own_features(encoder, column)
    if rule.kind == "text":
        at = features[:, own]
        return np.where(at.max(axis=1) > 0.5, at.argmax(axis=1), -1).astype(np.float64), np.zeros(len(at), np.bool_)
    missing = features[:, own[1]] > 0.5 if rule.indicator else np.zeros(len(features), dtype=np.bool_)
    return features[:, own[0]], missing


def column_slices(encoder: TableEncoder, features: np.ndarray, bins: int = _BINS) -> list[Slice]:
    """Slices of rows with features (b, m), by each column that is in use."""
    return [part for column in used_columns(encoder) for part in slices_of(encoder, column, features, bins)]


def slices_of(encoder: TableEncoder, column: int, features: np.ndarray, bins: int = _BINS) -> list[Slice]:
    """Slices of rows with features (b, m) by one column; none where all are the same."""
    rule = encoder.rules_[column]
    values, missing = column_values(encoder, column, features)
    parts = list(_levels(rule, values) if rule.kind == "text" else _ranges(rule, values, ~missing, bins))
    found = [Slice(rule.name, label, rows) for label, rows in parts if rows.any()]
    found += [Slice(rule.name, "missing", missing)] if missing.any() else []
    return found if len(found) > 1 else []


def _levels(rule: Rule, values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    numbers, counts = np.unique(values, return_counts=True)
    for number in numbers[np.argsort(-counts, kind="stable")][:_MOST_LEVELS].astype(int).tolist():
        yield level_name(rule, number), values == number


def level_name(rule: Rule, number: int) -> str:
    """A level of text as it was in the table."""
    name = "not a level of training" if number < 0 else rule.levels[number]
    return name if name.strip() else "missing"


def _ranges(rule: Rule, values: np.ndarray, known: np.ndarray, bins: int) -> Iterator[tuple[str, np.ndarray]]:
    distinct = np.unique(values[known])
    if len(distinct) <= _FEW_VALUES:
        for value in distinct.tolist():
            yield shown(rule, value), known & (values == value)
        return
    of = "mean target " if rule.kind == "means" else ""
    edges = np.unique(np.quantile(values[known], np.linspace(0, 1, bins + 1), method="nearest"))
    for i, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        after = values >= low if i == 0 else values > low
        yield f"{of}{shown(rule, low)} to {shown(rule, high)}", known & after & (values <= high)


def shown(rule: Rule, value: float) -> str:
    """A value of a column as people write it."""
    if rule.kind == "date" and np.isfinite(value):
        return shown_day(value)
    if rule.kind == "flag" and value in (0.0, 1.0):
        return "true" if value else "false"
    return short(value)


def shown_day(value: float) -> str:
    """A day since 1970 as a date."""
    return str(np.datetime64(int(np.floor(value)), "D")) if abs(value) < 3e6 else short(value)


def short(value: Any) -> str:
    """A number with four digits."""
    number = float(value)
    if not np.isfinite(number):
        return "none" if np.isnan(number) else ("∞" if number > 0 else "−∞")
    if number == 0:
        return "0"
    text = f"{number:,.0f}" if 1e4 <= abs(number) < 1e7 else f"{number:.4g}"
    return text.replace("-", "−")
