"""One index of several: rows that came one after the other, each part of them searched by an index of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearfield.neighbours._index import (
    Float64,
    Index,
    Int64,
    NeighbourTable,
    check_exclude,
    check_overflow,
    check_queries,
)


class JoinedIndex:
    """The k nearest of all rows, by (squared distance, row id), from those of each part.

    parts: the id of the first row of each, ascending, and what finds neighbours among its rows, numbered from 0.
    """

    def __init__(self, parts: Sequence[tuple[int, Index]]) -> None:
        self.parts = list(parts)
        boxes = np.stack([index.box for _, index in parts])
        self.box: Float64 = np.stack([boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)])
        check_overflow(self.box[:1], self.box)

    @property
    def kind(self) -> str:
        """That of the first part, which has most of the rows."""
        return self.parts[0][1].kind

    @property
    def n_rows(self) -> int:
        """Number of rows, duplicates counted."""
        first, last = self.parts[-1]
        return first + last.n_rows

    def query(self, queries: Float64, k: int, exclude: Int64 | None = None) -> NeighbourTable:
        """The k nearest rows of each query (b, d), without row exclude[i] for query i (b,); -1 excludes nothing."""
        queries = check_queries(queries, self.box.shape[1])
        left_out = check_exclude(exclude, len(queries), self.n_rows)
        check_overflow(queries, self.box)
        first, index = self.parts[0]
        found = index.query(queries, k, _within(left_out, first, index.n_rows))
        for first, index in self.parts[1:]:
            more = index.query(queries, min(k, index.n_rows), _within(left_out, first, index.n_rows))
            _take_nearer(found, more, first)
        return found


def _within(ids: Int64, first: int, n: int) -> Int64:
    """Ids (b,) as a part of n rows numbers them; -1 for those that are not among these."""
    return np.where((ids >= first) & (ids < first + n), ids - first, -1)


def _take_nearer(found: NeighbourTable, more: NeighbourTable, first: int) -> None:
    """Put those of a later part, (b, m), whose first row has that id, where they belong among those found (b, k)."""
    k = found.ids.shape[1]
    rows = np.flatnonzero(more.sqdist[:, 0] < found.sqdist[:, -1])  # of equal distances, the lower id was found before
    if not rows.size:
        return
    ids = np.where(more.ids[rows] >= 0, more.ids[rows] + first, -1)
    ids, sqdist = np.hstack([found.ids[rows], ids]), np.hstack([found.sqdist[rows], more.sqdist[rows]])
    order = np.argsort(sqdist, axis=1, kind="stable")[:, :k]
    found.ids[rows], found.sqdist[rows] = np.take_along_axis(ids, order, 1), np.take_along_axis(sqdist, order, 1)


def parts_of(index: Index) -> dict[tuple[int, int], Index]:
    """What finds neighbours among the rows first .. last, by these numbers."""
    parts = index.parts if isinstance(index, JoinedIndex) else [(0, index)]
    return {(first, first + own.n_rows): own for first, own in parts}
