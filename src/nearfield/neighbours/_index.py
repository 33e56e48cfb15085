"""The exact index: candidates from a fast search, settled in float64, and proved complete or searched again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nearfield.neighbours._equal_rows import EqualRows
from nearfield.neighbours._select import select_from_all, select_from_candidates

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

BLOCK_NUMBERS = 2**21  # candidates and coordinates held at a time, some 50 MB with all copies
WIDEN = 4  # a second search asks for so many times more candidates, before brute force


@dataclass(frozen=True)
class NeighbourTable:
    """The k nearest rows of b queries, by ascending (squared distance, row id).

    Where fewer than k rows are available the last ids are -1 and their squared distances inf.
    """

    ids: Int64  # (b, k)
    sqdist: Float64  # (b, k)


class Index(Protocol):
    """What finds neighbours: `NeighbourIndex` or `BoxIndex`. Several threads may query at once."""

    @property
    def kind(self) -> str: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def box(self) -> Float64:
        """Lowest and highest coordinates (2, d) of the rows, or of a box around them."""
        ...

    def query(self, queries: Float64, k: int, exclude: Int64 | None = None) -> NeighbourTable:
        """The k nearest rows of each query (b, d), without row exclude[i] for query i (b,); -1 excludes nothing.

        Where rows are hidden, without those that row exclude[i] may not see.
        """
        ...


class CandidateSource(Protocol):
    """A fast search that may err in rounding, but knows by how much."""

    def nearest(self, queries: Float64, count: int) -> tuple[Int64, Float64]:
        """Points (b, count), -1 for none, and a bound (b,): no point left unnamed has a smaller squared distance."""
        ...


class NeighbourIndex:
    """Exact k nearest rows in float64, ties broken by row id.

    `points` (m, d) are the distinct rows, inside the box low, high (2, d); `equal_rows` says which rows (n) they stand
    for; without a `source` every query is brute force. The points may not be changed while the index is in use. Several
    threads may query at once.
    """

    def __init__(
        self, points: Float64, box: Float64, equal_rows: EqualRows, source: CandidateSource | None, kind: str
    ) -> None:
        self.kind = kind
        self._points = points
        self.box = box
        self._equal = equal_rows
        self._source = source

    @property
    def n_rows(self) -> int:
        """Number of rows, duplicates counted."""
        return int(self._equal.members.size)

    def query(self, queries: Float64, k: int, exclude: Int64 | None = None) -> NeighbourTable:
        """The k nearest rows of each query (b, d), without row exclude[i] for query i (b,); -1 excludes nothing."""
        queries = check_queries(queries, self._points.shape[1])
        left_out = check_exclude(exclude, len(queries), self.n_rows)
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 neighbour must be asked for.")
        table = NeighbourTable(np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k)))
        for start in range(0, len(queries), self._block(self._count(k))):
            part = slice(start, start + self._block(self._count(k)))
            check_overflow(queries[part], self.box)
            self._fill(queries[part], left_out[part], table.ids[part], table.sqdist[part])
        return table

    def _fill(self, queries: Float64, exclude: Int64, ids: Int64, sqdist: Float64) -> None:
        """Fill ids, sqdist (b, k) of one block: search; where not proved search wider; where still not, brute force."""
        count = self._count(ids.shape[1])
        hopeless, pending = self._attempt(queries, count, exclude, ids, sqdist)
        for rows in np.array_split(pending, -(-pending.size // self._block(WIDEN * count))) if pending.size else []:
            again_ids, again_sqdist = ids[rows], sqdist[rows]
            failed = np.concatenate(self._attempt(queries[rows], WIDEN * count, exclude[rows], again_ids, again_sqdist))
            ids[rows], sqdist[rows] = again_ids, again_sqdist
            hopeless = np.concatenate([hopeless, rows[failed]])
        if hopeless.size:
            last_ids, last_sqdist = ids[hopeless], sqdist[hopeless]
            select_from_all(queries[hopeless], self._points, self._equal, exclude[hopeless], last_ids, last_sqdist)
            ids[hopeless], sqdist[hopeless] = last_ids, last_sqdist

    def _attempt(
        self, queries: Float64, count: int, exclude: Int64, ids: Int64, sqdist: Float64
    ) -> tuple[Int64, Int64]:
        """Fill ids, sqdist (b, k) from `count` candidates; return the rows where more cannot help, and may."""
        if self._source is None or 2 * count >= len(self._points):
            return np.arange(len(queries)), np.empty(0, dtype=np.int64)
        candidates, reach = self._source.nearest(queries, count)
        select_from_candidates(queries, self._points, self._equal, candidates, exclude, ids, sqdist)
        # Strictly below: a point at the distance of the k-th neighbour might have a lower row id.
        proved = sqdist[:, -1] < reach
        drowned = reach <= 0.0
        return np.flatnonzero(~proved & drowned), np.flatnonzero(~proved & ~drowned)

    def _count(self, k: int) -> int:
        """Candidates to ask for: the excluded row may be among them, and a margin settles most ties at the end."""
        return k + 1 + max(8, k // 8)

    def _block(self, count: int) -> int:
        """Queries per block, so that memory does not grow with their number."""
        return max(1, BLOCK_NUMBERS // (min(count, len(self._points)) + self._points.shape[1]))


def check_queries(queries: Float64, d: int) -> Float64:
    """Queries (b, d) as float64, refused if there are other columns."""
    if queries.ndim != 2 or queries.shape[1] != d:
        raise ValueError(f"Queries have shape {queries.shape}; expected (b, {d}), the columns of the indexed rows.")
    return np.ascontiguousarray(queries, dtype=np.float64)


def check_exclude(exclude: Int64 | None, b: int, n: int) -> Int64:
    """The row that each of b queries may not find, of n, or -1."""
    if exclude is None:
        return np.full(b, -1, dtype=np.int64)
    if exclude.shape != (b,):
        raise ValueError(f"exclude has shape {exclude.shape}; expected ({b},), one row id per query.")
    if b and not -1 <= int(exclude.min()) <= int(exclude.max()) < n:
        raise ValueError(f"exclude must hold row ids from 0 to {n - 1}, or -1 for none.")
    return np.ascontiguousarray(exclude, dtype=np.int64)


def check_overflow(queries: Float64, box: Float64) -> None:
    """Refuse queries (b, d) whose squared distance to the far corner of the box low, high (2, d) is not finite."""
    if not len(queries):
        return
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.maximum(queries.max(axis=0) - box[0], box[1] - queries.min(axis=0))
        if np.isfinite(reach @ reach):  # of all queries together: what is almost always seen
            return
        far = np.maximum(np.abs(queries - box[0]), np.abs(queries - box[1]))
        finite = np.isfinite(np.einsum("ij,ij->i", far, far)).all()
    if not finite:
        raise ValueError(
            "Squared distances overflow float64: coordinates differ by more than about 1e150 or are not finite. "
            "Standardise the columns, and check for NaN and infinity."
        )
