"""Data sets: where they are found, how they are split, what of them is scaled. The benchmarks use this module too.

A data set is a file NAME.npz with arrays X (n, d) and y (n,) or (n, p), in the folder that the environment variable
NEARFIELD_DATA names, or else in ../shared/data beside the repository. Where there is none, OpenML is asked, but only if
the user said so. Rows are shuffled and split in proportion 15:3:2, and standardised on the training rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import openml

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"

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

    def scored_on(self, rows: str) -> Split:
        """The same with the validation rows in the place of the test rows, or as it is: "validation" or "test"."""
        if rows not in ("test", "validation"):
            raise ValueError(f'rows to score are "test" or "validation", not {rows!r}.')
        return self if rows == "test" else replace(self, X_test=self.X_val, y_test=self.y_val)


def folder() -> Path:
    """Where the data sets lie."""
    found = Path(os.environ.get("NEARFIELD_DATA", BESIDE))
    if not found.is_dir():
        raise FileNotFoundError(f"No data folder at {found}: set NEARFIELD_DATA to the folder with the .npz files.")
    return found


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
    if ask_openml and not available(source):
        X, y = openml.fetch(source)
    else:
        X, y = load_array(source, "X").astype(np.float64), load_array(source, "y")
        y = y.astype(np.int64 if np.issubdtype(y.dtype, np.integer) else np.float64)
    return X, np.isin(y, positive).astype(np.int64) if positive else y


def load_array(name: str, array: str) -> NDArray:
    """One array of a file, such as the trajectory of each row; its first axis has the n rows of X."""
    if not available(name):
        raise FileNotFoundError(
            f"No {name}.npz: set NEARFIELD_DATA to a folder that has it, or add --openml to fetch it."
        )
    with np.load(folder() / f"{name}.npz") as arrays:
        if array not in arrays:
            raise ValueError(f"{name}.npz has no array {array}; there are {', '.join(arrays)}.")
        return arrays[array]


def split(X: Array, y: NDArray, seed: int, most: int | None = None, groups: NDArray | None = None) -> Split:
    """15:3:2 of the rows, or of `most` of them; inputs standardised, and targets unless they are labels.

    With `groups` (n,), whole groups are kept together; see `split_groups`.
    """
    rows = split_rows(len(X), seed, most) if groups is None else split_groups(groups, seed)
    labels = np.issubdtype(y.dtype, np.integer)
    X_train, X_val, X_test = standardised(*(X[r] for r in rows))
    targets = [y[r] for r in rows]
    y_train, y_val, y_test = targets if labels else standardised(*targets)
    return Split(X_train, y_train, X_val, y_val, X_test, y_test, int(y.max()) + 1 if labels else 0)


def split_rows(n: int, seed: int, most: int | None = None) -> list[Rows]:
    """Numbers of the training, validation and test rows, in proportion 15:3:2, of n shuffled rows or `most` of them."""
    order = np.random.default_rng(seed).permutation(n)[:most]
    n = len(order)
    return np.split(order, [n * 15 // 20, n * 18 // 20])


def split_groups(groups: NDArray, seed: int) -> list[Rows]:
    """Numbers of the training, validation and test rows: two groups test, the first of them validates, the rest train.

    With few groups there are none to spare, so what was chosen on the validation rows has seen a part of the test rows.
    """
    order = np.random.default_rng(seed).permutation(np.unique(groups))
    return [np.flatnonzero(np.isin(groups, part)) for part in (order[:-2], order[-2:-1], order[-2:])]


def standardised(train: Array, *others: Array) -> list[Array]:
    """Columns with mean zero and variance one on the training rows; constant columns are only centred."""
    mean, std = train.mean(axis=0), train.std(axis=0)
    scale = np.where(np.ptp(train, axis=0) == 0, 1.0, std)
    return [(part - mean) / scale for part in (train, *others)]
