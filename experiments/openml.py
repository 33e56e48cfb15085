"""Data sets from OpenML, for those who do not have the files: fetched only when asked for, cached by scikit-learn.

Rows come in another order than in the files and categories are encoded anew, so splits, and figures with them, differ
a little. A data set whose number of rows is not the expected one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Name here: number on openml.org, rows, whether the target is a class.
SOURCES: dict[str, tuple[int, int, bool]] = {
    "pol": (201, 15000, False),
    "elevators": (216, 16599, False),
    "slice": (42973, 53500, False),
    "titanic": (40704, 2201, True),
    "bank": (1558, 4521, True),
    "spambase": (44, 4601, True),
    "adult": (1590, 48842, True),
    "splice": (46, 3190, True),
    "wine_white": (40498, 4898, True),
    "page_blocks": (30, 5473, True),
    "optdigits": (28, 5620, True),
    "pendigits": (32, 10992, True),
    "nursery": (26, 12960, True),
    "chess_krvskp": (3, 3196, True),
    "chess_krkopt": (1481, 28056, True),
    "shuttle": (40685, 58000, True),
    "covtype": (1596, 581012, True),
}


def fetch(name: str, fetcher: Callable[..., Any] | None = None) -> tuple[NDArray, NDArray]:
    """Inputs (n, d), categories one-hot and constant columns left out, and targets (n,) or labels (n,) from 0."""
    if name not in SOURCES:
        raise FileNotFoundError(f"{name} is not on OpenML, or not as one table: set NEARFIELD_DATA.")
    import pandas as pd
    from sklearn.datasets import fetch_openml

    number, rows, is_class = SOURCES[name]
    found = (fetcher or fetch_openml)(data_id=number, as_frame=True, parser="auto")
    if len(found.data) != rows:
        raise ValueError(f"OpenML's data set {number} has {len(found.data)} rows, {name} should have {rows}.")
    X = pd.get_dummies(found.data, dtype=np.float64).to_numpy(np.float64)
    if not np.isfinite(X).all():
        raise ValueError(f"OpenML's data set {number} has missing numbers.")
    X = X[:, np.ptp(X, axis=0) > 0]
    if is_class:
        return X, np.unique(found.target.astype(str), return_inverse=True)[1].astype(np.int64)
    return X, found.target.to_numpy(np.float64)
