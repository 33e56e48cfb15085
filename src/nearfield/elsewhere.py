"""Tables whose rows are held elsewhere, such as on the workers of a cluster: what a fit asks of them.

A fit keeps what is one number a row, and asks for columns, one after the other, for a few rows by their numbers, and
for what is near queries. So the same functions see the same numbers in the same order, wherever the rows are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class TableElsewhere(ABC):
    """Features (n, m) of rows, not yet standardised.

    A slice of rows or numbers of rows give an array, [:, e] a column; a mask or numbers by `some` another table.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, which: Any) -> np.ndarray: ...

    @abstractmethod
    def some(self, which: np.ndarray) -> TableElsewhere:
        """The rows of a mask (n,), or with these numbers (b,), in that order."""

    @abstractmethod
    def complete(self, names: Sequence[str]) -> bool:
        """Whether no cell is missing; a `TableError` where one is infinite."""

    @abstractmethod
    def hashes(self) -> np.ndarray:
        """What `order_key` says of the rows, (n,)."""

    @abstractmethod
    def clipped(self, edges: Mapping[int, tuple[float, float]]) -> TableElsewhere:
        """The same with values of these columns between two numbers."""

    @abstractmethod
    def held(self, scaling: Any) -> InputsElsewhere:
        """The rows, to be standardised so, in boxes. The table may not be used any more."""


class InputsElsewhere(ABC):
    """Standardised inputs (n, d) of rows: these are taken out by their numbers."""

    shape: tuple[int, int]
    dtype = np.dtype(np.float64)
    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, which: Any) -> np.ndarray:
        """Rows (.., d): a slice, a mask (n,) or numbers of any shape."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest values (d,)."""

    @abstractmethod
    def index(self, metric: Any) -> Any:
        """Finds neighbours under a metric, a `neighbours.Index`."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(np.float64 if dtype is None else dtype, copy=False)
