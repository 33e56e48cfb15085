"""Data sets of the experiments: where they are found, how they are split, what of them is scaled.

A data set is a file NAME.npz with arrays X (n, d) and y (n,) or (n, p), in the folder that the environment variable
NEARFIELD_DATA names, or else in ../shared/data beside the repository. Where there is none, OpenML is asked, but only if
the user said so. Splits are those of the benchmarks: shuffled rows in proportion 15:3:2, standardised on the training
rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks._data import folder, split_rows, standardised
from experiments import openml

Array = NDArray[np.float64]

# A data set made from another one: its classes against the rest.
PARTS = {"covtype_fir": ("covtype", (0, 5)), "covtype_pine": ("covtype", (1, 2))}


@dataclass(frozen=True)
class Split:
    """Inputs (n, d) and targets (n,) or (n, p), or labels (n,) from 0 to `classes` - 1."""

    X: Array
    y: NDArray
    X_val: Array
    y_val: NDArray
    X_test: Array
    y_test: NDArray
    classes: int = 0

    def rows(self) -> dict[str, int]:
        """How many rows each part has, and how many columns."""
        parts = {"train": self.X, "validation": self.X_val, "test": self.X_test}
        return {name: len(part) for name, part in parts.items()} | {"columns": self.X.shape[1]}


def available(name: str, ask_openml: bool = False) -> bool:
    """Whether `load` would find the data set (on OpenML: would ask for it)."""
    source, _ = PARTS.get(name, (name, ()))
    try:
        found = (folder() / f"{source}.npz").is_file()
    except FileNotFoundError:
        found = False
    return found or (ask_openml and source in openml.SOURCES)


def load(name: str, ask_openml: bool = False) -> tuple[Array, NDArray]:
    """Inputs (n, d) as float64, and targets as float64 or labels as int64, as they are in the file."""
    source, positive = PARTS.get(name, (name, ()))
    if not available(source):
        if not ask_openml:
            raise FileNotFoundError(
                f"No {source}.npz: set NEARFIELD_DATA to a folder that has it, or add --openml to fetch it."
            )
        X, y = openml.fetch(source)
    else:
        with np.load(folder() / f"{source}.npz") as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"]
            y = y.astype(np.int64 if np.issubdtype(y.dtype, np.integer) else np.float64)
    return X, np.isin(y, positive).astype(np.int64) if positive else y


def split(X: Array, y: NDArray, seed: int, most: int | None = None) -> Split:
    """15:3:2 of the rows, or of `most` of them; inputs standardised, and targets unless they are labels."""
    rows = split_rows(len(X), seed, most)
    labels = np.issubdtype(y.dtype, np.integer)
    X_train, X_val, X_test = standardised(*(X[r] for r in rows))
    targets = [y[r] for r in rows]
    y_train, y_val, y_test = targets if labels else standardised(*targets)
    return Split(X_train, y_train, X_val, y_val, X_test, y_test, int(y.max()) + 1 if labels else 0)
