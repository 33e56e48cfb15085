"""What both closed forms, of latent functions apart and of mixed outputs, ask of what they are given."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfield._types import Neighbourhood
from nearfield.conditional._slopes import GAP
from nearfield.kernels import Kernel

SMALLEST_CHUNK = 16  # rows: below it, starting a thread costs more than it saves


def numbers(x: np.ndarray) -> np.ndarray:
    """As compiled code wants it: float64, one row after the other in memory."""
    return np.ascontiguousarray(x, dtype=np.float64)


def whole_numbers(x: np.ndarray) -> np.ndarray:
    """The same of whole numbers."""
    return np.ascontiguousarray(x, dtype=np.int64)


class Arrays(NamedTuple):
    """A `Neighbourhood` as compiled code wants it."""

    query: np.ndarray
    rows: np.ndarray
    ids: np.ndarray
    targets: np.ndarray
    noises: np.ndarray
    owners: np.ndarray


def arrays(n: Neighbourhood) -> Arrays:
    """The neighbourhood's own arrays, or copies of those that do not lie as they should."""
    ids = whole_numbers(n.ids)
    return Arrays(
        numbers(n.query), numbers(n.rows), ids, numbers(n.targets), numbers(n.noises), whole_numbers(n.owners)
    )


def ascending(ks: np.ndarray | None, k: int) -> np.ndarray:
    """Numbers of neighbours (q,), all k alone if none are given."""
    if ks is None:
        return np.array([k], dtype=np.int64)
    ks = np.ascontiguousarray(ks, dtype=np.int64)
    if ks.ndim != 1 or ks.size == 0 or (np.diff(ks, prepend=0) < 0).any():
        raise ValueError(f"ks must be numbers of neighbours in ascending order, got {ks}.")
    return ks


def check_inputs(n: Arrays, d: int) -> None:
    """Queries (b, d) and rows (n, d) that fit the neighbours and d length scales."""
    if n.ids.ndim != 2 or n.query.shape != (len(n.ids), d) or n.rows.ndim != 2 or n.rows.shape[1] != d:
        raise ValueError(
            f"query {n.query.shape}, rows {n.rows.shape} and neighbours {n.ids.shape} do not fit {d} length scales: "
            "expected (b, d), (n, d) and (b, k)."
        )
    check_owners(n.owners, d)


def check_owners(owners: np.ndarray, d: int) -> None:
    """Coordinates that d features belong to, of those behind the first of each."""
    coordinates = d - owners.size
    if owners.ndim != 1 or (owners.size and not (owners.min() >= 0 and owners.max() < coordinates)):
        raise ValueError(f"owners {owners} are no coordinates: there are {coordinates}.")


def check_shapes(kernel: Kernel, log_shape: np.ndarray) -> None:
    if log_shape.shape != (len(kernel.shapes),):
        raise ValueError(f"log shapes {log_shape.shape} for a kernel that has {len(kernel.shapes)}.")


def refuse_ids(status: int, ids: np.ndarray, rows: np.ndarray) -> None:
    """Raise what `count_neighbours` found wrong with the ids."""
    if status == GAP:
        gaps = (ids[:, 1:] >= 0) & (ids[:, :-1] < 0)
        row = int(np.argmax(gaps.any(axis=1)))
        raise ValueError(
            f"the neighbours of row {row} have a -1 before the last of them: expected -1 only behind the last one."
        )
    raise IndexError(f"neighbour {int(ids.max())} does not exist: there are {len(rows)} rows.")
