"""Checks of what users pass: messages that say what came, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: expected one of {', '.join(map(repr, choices))}.")


def refuse_text(y: Any) -> None:
    """Name the columns of a data frame of targets that are not numbers, before numpy fails without a name."""
    columns = getattr(y, "columns", None)
    if columns is None or not hasattr(y, "__getitem__"):
        return
    for name in columns:
        try:
            values = y[name].to_numpy()
        except (AttributeError, TypeError, ValueError, KeyError):
            return  # not a data frame we know; scikit-learn will judge it
        example = _text_in(values)
        if example is not None:
            raise ValueError(
                f"column {name!r} is not numeric (for example {example!r}): targets are numbers here. Convert it, or "
                "leave it out."
            )


def _text_in(values: np.ndarray) -> Any:
    """A value of the column (n,) that is text or a date, or None if all are numbers or missing."""
    if values.dtype.kind in "Mm" and values.size:
        return values[0]
    texts = (v for v in values if isinstance(v, str | bytes)) if values.dtype.kind in "OUS" else ()
    return next((v for v in texts if not _is_number(v)), None)


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def refuse_missing_target(y: Any) -> None:
    """Count the missing targets, which scikit-learn would not."""
    values = np.asarray(y)
    if values.ndim == 1 and values.dtype.kind == "f":  # scikit-learn judges everything else
        refuse_not_finite(values[:, None], None, "the target y")


def refuse_not_finite(values: np.ndarray, names: Any, label: str | None = None) -> None:
    """Name the columns that hold NaN or infinity, with counts. values: (n, d); names: (d,) or None."""
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    column = int(np.flatnonzero(bad.any(axis=0))[0])
    label = label or (f"column {column}" if names is None else f"column {names[column]!r}")
    kind = "NaN" if np.isnan(values[:, column]).any() else "infinity (inf)"
    count, columns = int(bad[:, column].sum()), int(bad.any(axis=0).sum())
    raise ValueError(
        f"Input contains {kind}: {label} has {count} missing or infinite values in {len(values)} rows"
        f" ({columns} such columns in all). Impute them or leave the rows out."
    )


def checked_warp(
    warp: Any, columns: Sequence[str], features: Sequence[str], owners: np.ndarray
) -> bool | tuple[int, ...]:
    """Which features may be bent, ascending numbers; True: all, False: none.

    warp: a flag, a list of columns that may, or a mapping of columns to flags for some. A column is named, or numbered
    from 0; it stands for all of its features, which have names of their own. owners: the column of each feature (m,).
    """
    if isinstance(warp, bool | np.bool_):
        return bool(warp)

    def of(key: Any) -> list[int]:
        if isinstance(key, str) and key not in columns and key in features:
            return [list(features).index(key)]
        found: list[int] = np.flatnonzero(owners == _column("warp", key, columns)).tolist()
        return found

    if isinstance(warp, Mapping):
        off = {e for key, bent in warp.items() for e in of(key) if not bent}
        return tuple(e for e in range(len(features)) if e not in off)
    if isinstance(warp, str) or not isinstance(warp, Iterable):
        raise ValueError(
            f"warp is {warp!r}: expected True, False, a list of the columns that may be bent, or a mapping of columns "
            "to True or False."
        )
    return tuple(sorted({e for key in warp for e in of(key)}))


def column_numbers(what: str, chosen: Any, columns: Sequence[str]) -> list[int]:
    """Numbers of columns that were chosen by name, by number or by a mask."""
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise ValueError(f"{what} is {chosen!r}: expected names, numbers or a mask of columns.")
    keys = list(chosen)
    if keys and all(isinstance(key, bool | np.bool_) for key in keys):
        if len(keys) != len(columns):
            raise ValueError(f"{what} is a mask of {len(keys)}: there are {len(columns)} columns.")
        return [number for number, key in enumerate(keys) if key]
    return [_column(what, key, columns) for key in keys]


def nearest_name(name: str, known: Iterable[str]) -> str:
    """A question whether the nearest of the known names was meant; nothing if there are none."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f" Did you mean {close[0]!r}?" if close else ""


def _column(what: str, key: Any, columns: Sequence[str]) -> int:
    """The number of a column by its name, or by its number from 0 on."""
    if isinstance(key, str):
        if key in columns:
            return list(columns).index(key)
        raise ValueError(f"{what} names a column {key!r} that is not there.{nearest_name(key, columns)}")
    if is_int(key) and 0 <= int(key) < len(columns):
        return int(key)
    raise ValueError(f"{what} has the column {key!r}: expected a name, or a number from 0 to {len(columns) - 1}.")


def those(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The rows (m, ..) of values (n, ..) that are kept (n,); the values themselves where all are."""
    return values if kept.all() else values[kept]


def plain(value: Any) -> Any:
    """Without numpy's types, which JSON does not know."""
    return value.item() if isinstance(value, np.generic) else value
