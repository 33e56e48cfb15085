"""Nearest neighbours among the rows that a row may be predicted from: of other groups, earlier, or far enough away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearfield._threads import in_threads
from nearfield.neighbours import _boxes
from nearfield.neighbours._equal_rows import Float64, Int64
from nearfield.neighbours._index import NeighbourTable, check_overflow
from nearfield.neighbours._panels import PANEL64

_LEAF = 96  # rows of a leaf at most: a few panels, whose distances take about as long as those to the boxes above
_CHUNK = 480  # queries of a thread at a time


@dataclass(frozen=True, eq=False)
class Hidden:
    """What each of n rows may not be predicted from; all three hold where they are given, and hide the row itself.

    groups (n,): rows of its own group. times (n,): those of its own time, and later ones. spots (n, p): those that are
    no farther than 1 from it.
    """

    groups: Int64 | None = None
    times: Float64 | None = None
    spots: Float64 | None = None


class RestrictedIndex:
    """Exact k nearest rows in float64 among those that are not hidden, ties broken by row id.

    Squared distances are those of `NeighbourIndex` to the last bit. Several threads may query at once. In many
    dimensions no box is far enough away, and every query is brute force.
    """

    def __init__(self, rows: Float64, hidden: Hidden) -> None:
        self._rows = rows = np.ascontiguousarray(rows, dtype=np.float64)
        n, d = rows.shape
        self._depth = depth = max(0, int(np.ceil(np.log2(n / _LEAF))))
        self._order = _boxes.leaf_order(rows, depth)
        leaves, nodes = 1 << depth, (2 << depth) - 1
        sizes = np.diff((n * np.arange(leaves + 1)) >> depth)
        self._first = np.concatenate([[0], np.cumsum(-(-sizes // PANEL64))]).astype(np.int64)
        self._panels = np.full((int(self._first[-1]), d, PANEL64), np.nan)
        self._zeros = np.zeros(len(self._panels) * PANEL64)
        self._groups = np.zeros(0, dtype=np.int64) if hidden.groups is None else hidden.groups
        self._times = np.zeros(0) if hidden.times is None else hidden.times.astype(np.float64)
        self._spots = np.zeros((n, 0)) if hidden.spots is None else np.ascontiguousarray(hidden.spots)
        self._low, self._high = np.empty((nodes, d)), np.empty((nodes, d))
        grouped, timed = nodes if self._groups.size else 0, nodes if self._times.size else 0
        self._labels = np.tile(np.array([np.iinfo(np.int64).max, -1]), (grouped, 1))
        self._earliest = np.full(timed, np.inf)
        _boxes.fill_boxes(
            rows, self._order, depth, self._groups, self._times, self._panels, self._first, self._low, self._high,
            self._labels, self._earliest,
        )  # fmt: skip

    def query(self, queries: Float64, k: int, asking: Int64) -> NeighbourTable:
        """The k nearest rows of each query (b, d) that the row asking[i] may see; -1 and inf where there are fewer."""
        queries = np.ascontiguousarray(queries, dtype=np.float64)
        check_overflow(queries, np.stack([self._low[0], self._high[0]]))
        b = len(queries)
        near = np.empty(b, dtype=np.int64)
        in_threads(
            lambda start, stop: _boxes.leaves_of(
                queries[start:stop], self._low, self._high, self._depth, near[start:stop]
            ),
            b, smallest=256,
        )  # fmt: skip
        order = np.argsort(near, kind="stable")  # those near each other share the way down
        queries, asking = queries[order], np.ascontiguousarray(asking[order], dtype=np.int64)
        ids, sqdist = np.empty((b, k), dtype=np.int64), np.empty((b, k))

        def run(start: int, stop: int) -> None:
            part = slice(start, stop)
            _boxes.search(
                queries[part], asking[part], self._order, self._depth, self._panels, self._zeros, self._first,
                self._low, self._high, self._groups, self._times, self._spots, self._labels, self._earliest,
                ids[part], sqdist[part],
            )  # fmt: skip

        in_threads(run, b, smallest=48, largest=_CHUNK)
        table = NeighbourTable(np.empty_like(ids), np.empty_like(sqdist))
        table.ids[order], table.sqdist[order] = ids, sqdist
        return table
