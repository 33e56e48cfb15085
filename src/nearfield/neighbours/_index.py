"""The exact index: candidates from a fast search, settled in float64, and proved complete or searched again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfield.neighbours._equal_rows import EqualRows, InGroups
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

    def nearest(self, queries: Float64, count: int, hidden: Int64) -> tuple[Int64, Float64]:
        """Points (b, count), -1 for none, and a bound (b,): no point left unnamed has a smaller squared distance.

        hidden (b, 2): the points from one number on, up to another one, do not count.
        """
        ...


class _Asking(NamedTuple):
    """Of b queries the row that asks, or -1, and the points from which number on, up to which, are hidden from it."""

    exclude: Int64  # (b,)
    hidden: Int64  # (b, 2)

    def part(self, which: slice | Int64) -> _Asking:
        return _Asking(self.exclude[which], self.hidden[which])


class NeighbourIndex:
    """Exact k nearest rows in float64, ties broken by row id.

    `points` (m, d) are the distinct rows, inside the box low, high (2, d); `equal_rows` says which rows (n) they stand
    for; without a `source` every query is brute force. Where the points come `in_groups`, a query does not find those
    of the group of the row that asks. The points may not be changed while the index is in use. Several threads may
    query at once.
    """

    def __init__(
        self,
        points: Float64,
        box: Float64,
        equal_rows: EqualRows,
        source: CandidateSource | None,
        kind: str,
        in_groups: InGroups | None = None,
    ) -> None:
        self.kind = kind
        self._points = points
        self.box = box
        self._equal = equal_rows
        self._source = source
        self._in_groups = in_groups

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
        if self._in_groups is None:
            self._fill(queries, _Asking(left_out, np.zeros((len(queries), 2), dtype=np.int64)), table)
            return table
        hidden = self._in_groups.hidden_from(left_out)
        order = np.argsort(hidden[:, 0], kind="stable")  # what a group does not see is passed over for all of them
        found = NeighbourTable(np.empty_like(table.ids), np.empty_like(table.sqdist))
        self._fill(queries[order], _Asking(left_out[order], hidden[order]), found)
        table.ids[order], table.sqdist[order] = found.ids, found.sqdist
        return table

    def _fill(self, queries: Float64, asking: _Asking, table: NeighbourTable) -> None:
        """Fill a table (b, k): search; where not proved search wider; where still not, brute force."""
        each = self._block(self._count(table.ids.shape[1]))
        for start in range(0, len(queries), each):
            part = slice(start, start + each)
            check_overflow(queries[part], self.box)
            self._fill_block(queries[part], asking.part(part), table.ids[part], table.sqdist[part])

    def _fill_block(self, queries: Float64, asking: _Asking, ids: Int64, sqdist: Float64) -> None:
        count = self._count(ids.shape[1])
        hopeless, pending = self._attempt(queries, count, asking, ids, sqdist)
        for rows in np.array_split(pending, -(-pending.size // self._block(WIDEN * count))) if pending.size else []:
            again_ids, again_sqdist = ids[rows], sqdist[rows]
            failed = np.concatenate(
                self._attempt(queries[rows], WIDEN * count, asking.part(rows), again_ids, again_sqdist)
            )
            ids[rows], sqdist[rows] = again_ids, again_sqdist
            hopeless = np.concatenate([hopeless, rows[failed]])
        if hopeless.size:
            last_ids, last_sqdist, last = ids[hopeless], sqdist[hopeless], asking.part(hopeless)
            select_from_all(
                queries[hopeless], self._points, self._equal, last.exclude, last.hidden, last_ids, last_sqdist
            )
            ids[hopeless], sqdist[hopeless] = last_ids, last_sqdist

    def _attempt(
        self, queries: Float64, count: int, asking: _Asking, ids: Int64, sqdist: Float64
    ) -> tuple[Int64, Int64]:
        """Fill ids, sqdist (b, k) from `count` candidates; return the rows where more cannot help, and may."""
        enough = 2 * count < len(self._points) - (asking.hidden[:, 1] - asking.hidden[:, 0])
        if self._source is None or not enough.any():
            return np.arange(len(queries)), np.empty(0, dtype=np.int64)
        if not enough.all():
            some = np.flatnonzero(enough)
            own_ids, own_sqdist = ids[some], sqdist[some]
            hopeless, pending = self._attempt(queries[some], count, asking.part(some), own_ids, own_sqdist)
            ids[some], sqdist[some] = own_ids, own_sqdist
            return np.concatenate([np.flatnonzero(~enough), some[hopeless]]), some[pending]
        candidates, reach = self._source.nearest(queries, count, asking.hidden)
        select_from_candidates(queries, self._points, self._equal, candidates, asking.exclude, ids, sqdist)
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
