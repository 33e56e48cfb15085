"""Checks of what users pass: messages that say what came, what was expected and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: expected one of {', '.join(map(repr, choices))}.")


def refuse_text(X: Any) -> None:
    """Name the columns of a data frame that are not numbers, before numpy fails without a name."""
    columns = getattr(X, "columns", None)
    if columns is None or not hasattr(X, "__getitem__"):
        return
    for name in columns:
        try:
            values = X[name].to_numpy()
        except (AttributeError, TypeError, ValueError, KeyError):
            return  # not a data frame we know; scikit-learn will judge it
        example = _text_in(values)
        if example is not None:
            raise ValueError(
                f"column {name!r} is not numeric (for example {example!r}): encode it, for example with "
                "sklearn.preprocessing.OneHotEncoder, or drop it. (The command line encodes text columns by itself.)"
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
