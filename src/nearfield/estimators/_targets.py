"""Targets as users pass them, lists, arrays or columns of a data frame, as arrays of numbers or of labels.

Neither pandas nor polars is imported: values tell by themselves whether they are missing, dates or durations.
"""

from __future__ import annotations

import datetime
import warnings
from typing import Any

import numpy as np

_PLAIN = {bool: np.bool_, int: np.int64, float: np.float64}  # what all labels of an object array may be
_DURATIONS = (datetime.timedelta, np.timedelta64)
_DATES = (datetime.date, np.datetime64)


def target_numbers(y: Any, estimator: str) -> Any:
    """The target y, (n,) or (n, P), of `estimator` as numbers, NaN where missing; a ValueError for dates and text.

    What is no array at all, complex numbers and tables with text are left to scikit-learn and `refuse_text`.
    """
    values = _values(y)
    if values is None or values.dtype.kind in "cV":
        return y
    if values.dtype.kind in "biuf":
        return values if hasattr(y, "to_numpy") else y
    flat = [np.nan if _is_missing(value) else value for value in values.ravel()]
    wrong = next((value for value in flat if not _is_number(value)), None)
    if wrong is None:
        return np.array(flat, dtype=np.float64).reshape(values.shape)
    if values.shape[1:] > (1,) and hasattr(y, "columns"):
        return y
    raise ValueError(_advice(wrong, estimator))


def target_labels(y: Any) -> Any:
    """The labels y (n,) as an array without missing ones; whole numbers stay whole numbers, flags flags.

    What is no array at all is left to scikit-learn.
    """
    values = _values(y)
    if values is None or values.dtype.kind in "cV":
        return y
    flat = values.ravel()
    missing = np.flatnonzero(_missing(flat))
    if missing.size:
        raise ValueError(
            f"Input y contains NaN: {missing.size} of {flat.size} labels are missing, the first in row "
            f"{missing[0] * len(values) // flat.size}, counted from 0. Leave those rows out, or give them a label of "
            "their own."
        )
    kinds = {type(value) for value in flat} if values.dtype.kind == "O" else set()
    kind = _PLAIN.get(kinds.pop()) if len(kinds) == 1 else None
    return values if kind is None else values.astype(kind)


def refuse_no_counts(y: np.ndarray, kept: np.ndarray) -> None:
    """Name the first of the targets y (n,) that is no count; only those `kept` (n,) are looked at."""
    wrong = kept & ~(np.isfinite(y) & (y >= 0) & (y == np.floor(y)))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"the target has {int(wrong.sum())} values that are no counts (for example {y[first]:g}): whole numbers of "
            f"at least zero are expected. The first is in row {first}, counted from 0."
        )


def refuse_empty(y: np.ndarray, weights: np.ndarray) -> None:
    """An output without a single value cannot be learned."""
    empty = np.flatnonzero(np.isnan(y[weights > 0]).all(axis=0))
    if empty.size:
        raise ValueError(f"output {empty[0]} of y is missing in every row: leave that column out.")


def warn_of_constants(y: np.ndarray) -> None:
    """Name the targets (n,) or (n, P) that are constant."""
    for p, column in enumerate([y] if y.ndim == 1 else list(y.T)):
        if np.nanmin(column) == np.nanmax(column):
            which = "the target" if y.ndim == 1 else f"output {p}"
            then = "every prediction will be that value" if y.ndim == 1 else "there is nothing to learn about it"
            warnings.warn(f"{which} is constant ({np.nanmin(column):g}): {then}.", stacklevel=3)


def _values(y: Any) -> np.ndarray | None:
    """What is in a list, an array or a column of a data frame, (n,) or (n, P); None for everything else."""
    if y is None or isinstance(y, str | bytes) or hasattr(y, "toarray"):
        return None
    try:
        values = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    except (TypeError, ValueError):
        return None
    return values if isinstance(values, np.ndarray) and values.ndim in (1, 2) else None


def _missing(values: np.ndarray) -> np.ndarray:
    """Which of values (n,) are missing."""
    if values.dtype.kind == "O":
        return np.array([_is_missing(value) for value in values], dtype=np.bool_)
    if values.dtype.kind in "Mm":
        return np.isnat(values)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=np.bool_)


def _is_missing(value: Any) -> bool:
    """None, NaN, and what pandas and numpy have instead: NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _is_number(value: Any) -> bool:
    """Whether the value is a number, or text that says one."""
    if isinstance(value, _DURATIONS + _DATES):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _advice(example: Any, estimator: str) -> str:
    """What came, what was expected and what to do."""
    if isinstance(example, _DURATIONS):
        what, then = "durations", 'divide by a unit, for example y / numpy.timedelta64(1, "h")'
    elif isinstance(example, _DATES):
        what = "dates"
        then = 'take the time since the first in some unit, for example (y - y.min()) / numpy.timedelta64(1, "D")'
    else:
        what = "values that are no numbers"
        then = "GPClassifier predicts labels; pandas.to_numeric turns text into numbers where it can"
    shown = repr(str(example)) if isinstance(example, str) else str(example)
    return f"the target y has {what} (for example {shown}), and {estimator} predicts numbers: {then}."
