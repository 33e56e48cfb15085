"""Rows in boxes: put there once, searched under every later metric, exact, with rows hidden where they must be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from nearfield._threads import in_threads, thread_count
from nearfield.neighbours import _box_search, _boxes
from nearfield.neighbours._boxes import BLOCK_DEPTH
from nearfield.neighbours._equal_rows import EqualRows, Float64, Int64
from nearfield.neighbours._index import NeighbourTable, check_exclude, check_overflow, check_queries
from nearfield.neighbours._panels import BLOCK, LEAF64
from nearfield.numbering import numbers
from nearfield.storage import Make, beside
from nearfield.warps import Metric

_CHUNK = 480  # queries of a thread at a time
_SORTED = 64  # queries from which those near each other are searched together
_PORTION = 2**16  # rows that are taken at a time
_EXPECTED = 16  # leaves that a query visits, before there were any
_STRETCHED = 4.0  # columns, relative to each other, since the boxes were cut: they are cut anew
_ALL = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Hidden:
    """What each of n rows may not be predicted from; all three hold where they are given, and hide the row itself.

    groups (n,): rows of its own group. times (n,): those of its own time, and later ones. spots (n, p): those that are
    no farther than 1 from it.
    """

    groups: Int64 | None = None
    times: Float64 | None = None
    spots: Float64 | None = None

    @property
    def by_groups(self) -> bool:
        """Whether groups alone hide rows."""
        return self.times is None and self.spots is None


class Boxes:
    """The distinct ones of n rows in the leaves of a k-d tree, cut where columns are wide for their lengths (d,).

    Rows are held in the precision in which they come, float32 or float64, and are standardised, less the centre (d,)
    over the scale (d,), whenever they are used. Any metric that bends and stretches single columns can be searched with
    them; one that stretches them about as the lengths did finds the boxes in better shape.
    """

    def __init__(
        self,
        inputs: Any,
        equal: EqualRows,
        lengths: Float64,
        centre: Float64 | None = None,
        scale: Float64 | None = None,
        dtype: type = np.float64,
        make: Make = np.empty,
    ) -> None:
        """inputs (n, d): an array, or what gives rows by their numbers, exact in this dtype."""
        m, d = len(equal), inputs.shape[1]
        self.centre = np.zeros(d) if centre is None else np.ascontiguousarray(centre, dtype=np.float64)
        self.scale = np.ones(d) if scale is None else np.ascontiguousarray(scale, dtype=np.float64)
        points = make((m, d), dtype)

        def take(start: int, stop: int) -> None:
            points[start:stop] = inputs[equal.first[start:stop]]

        in_threads(take, m, smallest=1024, largest=_PORTION)
        self._cut(points, equal, lengths, make)

    def _cut(self, points: np.ndarray, equal: EqualRows, lengths: Float64, make: Make) -> None:
        """Put points (m, d), which are lost, into boxes; `equal` says which rows (n,) they are."""
        self.lengths, self.make = lengths, make
        m, d = points.shape
        self.depth = depth = _depth(m)
        order = make((m,), np.int64)
        order[:] = numbers(m)
        whole, widths = depth + BLOCK_DEPTH, lengths * self.scale
        level = min(whole, math.ceil(math.log2(4 * thread_count())))
        for above in range(level):  # the first cuts, of many rows each, one level at a time
            in_threads(partial(_boxes.split, points, order, widths, above, above + 1), 1 << above, 1)
        in_threads(partial(_boxes.split, points, order, widths, level, whole), 1 << level, 1, 1)
        self.panels = make((BLOCK << depth, d, LEAF64), points.dtype)
        in_threads(partial(_boxes.fill_leaves, points, whole, self.panels), len(self.panels), smallest=256)
        self.m, self.starts, n = m, np.zeros(0, dtype=np.int64), len(equal.members)
        self._bounded()
        if m == n:
            for start in range(0, m, _PORTION):
                order[start : start + _PORTION] = equal.first[order[start : start + _PORTION]]
            self.members = order
            return
        counts = np.diff(equal.starts)[order]
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        within = np.arange(n) - np.repeat(self.starts[:-1], counts)
        self.members = make((n,), np.int64)
        self.members[:] = equal.members[np.repeat(equal.starts[:-1][order], counts) + within]

    def packed(self) -> dict[str, np.ndarray]:
        """Arrays from which `unpacked` has the same boxes."""
        return {"panels": self.panels, "members": self.members, "starts": self.starts, "lengths": self.lengths}

    @classmethod
    def unpacked(cls, arrays: dict[str, np.ndarray], centre: Float64, scale: Float64) -> Boxes:
        """Boxes from what `packed` gave, or a ValueError that says what makes no sense."""
        panels, members, starts = arrays["panels"], arrays["members"], arrays["starts"]
        found = object.__new__(cls)
        found.centre, found.scale, found.lengths, found.make = centre, scale, arrays["lengths"], np.empty
        found.panels, found.members, found.starts = panels, members, starts
        n = len(members)
        found.m = m = len(starts) - 1 if starts.size else n
        d = len(centre)
        depth = found.depth = _depth(m) if m > 0 else 0
        if m < 1 or panels.shape != (BLOCK << depth, d, LEAF64) or found.lengths.shape != (d,):
            raise ValueError(f"boxes of shape {panels.shape} do not hold {m} points of {d} columns")
        if starts.size and (starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 1).any()):
            raise ValueError("boxes do not say which rows their points are")
        there = np.zeros(n, dtype=np.bool_)
        if members.min() < 0 or members.max() >= n:
            raise ValueError("boxes have rows that are not there")
        there[members] = True
        if not (there.all() and (found.lengths > 0).all() and np.isfinite(found.lengths).all()):
            raise ValueError("boxes lack rows, or length scales")
        if not found._bounded():
            raise ValueError("boxes have numbers that are not finite")
        return found

    def _bounded(self) -> bool:
        """Find the bounds of all boxes; whether all numbers are finite."""
        blocks, nodes, d = 1 << self.depth, (2 << self.depth) - 1, self.panels.shape[1]
        self.low, self.high = np.empty((nodes, d)), np.empty((nodes, d))
        self.leaf_low, self.leaf_high = (self.make((blocks, d, BLOCK), np.float64) for _ in range(2))
        right = np.zeros(blocks, dtype=np.bool_)

        def bound(start: int, stop: int) -> None:
            right[start:stop] = _boxes.bound_leaves(
                self.m, self.panels, self.depth, self.centre, self.scale, self.low, self.high, self.leaf_low,
                self.leaf_high, start, stop,
            )  # fmt: skip

        in_threads(bound, blocks, smallest=16)
        _boxes.join_boxes(self.low, self.high)
        return bool(right.all())

    def cut_anew(self, lengths: Float64) -> Boxes:
        """The same rows in boxes that are in good shape under other lengths (d,)."""
        points = self.make((self.m, self.columns), self.panels.dtype)
        leaves, deep = len(self.panels), self.depth + BLOCK_DEPTH
        in_threads(lambda a, b: _boxes.unpack(self.m, self.panels, deep, points, a, b), leaves, smallest=64)
        starts = self.starts if self.starts.size else np.zeros(1, dtype=np.int64)
        first = self.members[starts[:-1]] if self.starts.size else self.members
        found = object.__new__(Boxes)
        found.centre, found.scale = self.centre, self.scale
        found._cut(points, EqualRows(first, starts, self.members), lengths, self.make)
        return found

    @property
    def room(self) -> Make:
        """Where what is as large as the rows comes from: files where these are mapped from one."""
        return beside(self.panels) if self.make is np.empty else self.make

    @cached_property
    def spots(self) -> np.ndarray:
        """Where each row (n,) is among the panels."""
        small = self.panels.shape[0] * LEAF64 < 2**31
        found = self.make((len(self.members),), np.int32 if small else np.int64)
        _boxes.fill_spots(self.m, self.depth + BLOCK_DEPTH, self.starts, self.members, found)
        return found

    def rows(self, ids: Int64) -> Float64:
        """Standardised rows (b, d) with these numbers (b,)."""
        found = np.empty((len(ids), self.columns))
        spots = self.spots
        in_threads(
            lambda a, b: _boxes.gather(self.panels, spots, self.centre, self.scale, ids[a:b], found[a:b]),
            len(ids), smallest=2048,
        )  # fmt: skip
        return found

    def labelled(self, hidden: Hidden) -> tuple[np.ndarray, ...]:
        """What is hidden, and what nodes, leaves and points know of it, as arrays that are empty where it is nothing.

        That of the last one is kept: another metric hides the same rows.
        """
        kept, found = self.__dict__.get("_labels", (None, ()))
        if kept is not hidden:
            groups = np.zeros(0, dtype=np.int64) if hidden.groups is None else hidden.groups.astype(np.int64)
            times = np.zeros(0) if hidden.times is None else hidden.times.astype(np.float64)
            spots = np.zeros((len(self.members), 0)) if hidden.spots is None else np.ascontiguousarray(hidden.spots)
            found = (groups, times, spots, *self._labels_of(groups), *self._labels_of(times))
            self._labels = hidden, found
        return found

    def _labels_of(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """What nodes, leaves and points know of the groups or the times (n,) of their rows."""
        if not values.size:
            return (np.zeros(0, dtype=values.dtype),) * 3
        leaves = len(self.panels)
        nodes, every = np.empty(len(self.low), dtype=values.dtype), np.empty(leaves, dtype=values.dtype)
        points = self.room((leaves * LEAF64,), values.dtype)
        fill = _boxes.label_groups if values.dtype == np.int64 else _boxes.label_times
        fill(self.m, self.depth, self.starts, self.members, values, nodes, every, points)
        return nodes, every, points

    def __len__(self) -> int:
        return self.m

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.low.shape[1])

    def fit(self, lengths: Float64) -> bool:
        """Whether the boxes are in good shape for these lengths (d,)."""
        wide = self.high[0] > self.low[0]
        stretched = (lengths / self.lengths)[wide]
        return bool(stretched.size == 0 or stretched.max() <= _STRETCHED * stretched.min())


def _depth(m: int) -> int:
    """Levels of nodes above the blocks of m points."""
    return max(0, math.ceil(math.log2(m / (LEAF64 * BLOCK))))


class BoxIndex:
    """Exact k nearest rows in float64 under a metric, among those not hidden, ties broken by row id.

    Squared distances and answers are those of `NeighbourIndex` to the last bit, for any size of a box. Several threads
    may query at once. most: leaves that a query visits at most; beyond, the search is approximate.
    """

    kind = "boxes"

    def __init__(self, boxes: Boxes, metric: Metric, hidden: Hidden | None = None, most: int | None = None) -> None:
        self._boxes, self._metric, self._most = boxes, metric, _ALL if most is None else most
        low, high = self._put(boxes.low[:, :, None], boxes.high[:, :, None])
        low, high = low[:, :, 0], high[:, :, 0]
        self.box = np.stack([low[0], high[0]])
        check_overflow(self.box[:1], self.box)
        leaf_low, leaf_high = self._put(boxes.leaf_low, boxes.leaf_high)
        self._tree = (
            boxes.m, boxes.starts, boxes.members, boxes.panels, low, high, leaf_low, leaf_high, boxes.depth,
            boxes.centre, boxes.scale,
        )  # fmt: skip
        self._hidden = boxes.labelled(hidden or Hidden())
        nothing = (0, boxes.columns, LEAF64)
        # All leaves, and their codes.
        self._placed: tuple[np.ndarray, np.ndarray] = np.empty(nothing), np.empty(nothing, dtype=np.uint8)
        self._asked, self._seen = 0, 0  # queries so far, and the leaves that they visited

    @property
    def n_rows(self) -> int:
        """Number of rows, duplicates counted."""
        return int(self._boxes.members.size)

    def query(
        self, queries: Float64, k: int, exclude: Int64 | None = None, within: Float64 | None = None
    ) -> NeighbourTable:
        """The k nearest rows of each query (b, d), where the metric puts it, that row exclude[i] (b,) may see.

        -1 sees all rows. Where there are fewer than k, the last ids are -1. within (b,): squared distances beyond which
        none is looked for.
        """
        queries = check_queries(queries, self._boxes.columns)
        asking = check_exclude(exclude, len(queries), self.n_rows)
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 neighbour must be asked for.")
        check_overflow(queries, self.box)
        within = np.full(len(queries), np.inf) if within is None else within
        if len(queries) < _SORTED:
            self._prepare(len(queries))
            return self._search(queries, k, asking, self._most, within)
        order = self._near_each_other(queries)
        self._prepare(len(queries))
        found = self._search(queries[order], k, asking[order], self._most, within[order])
        table = NeighbourTable(np.empty_like(found.ids), np.empty_like(found.sqdist))
        table.ids[order], table.sqdist[order] = found.ids, found.sqdist
        return table

    def _search(self, queries: Float64, k: int, asking: Int64, most: int, within: Float64) -> NeighbourTable:
        """The same of queries that follow each other where they lie near each other."""
        b = len(queries)
        ids, sqdist, visited = np.empty((b, k), dtype=np.int64), np.empty((b, k)), np.empty(b, dtype=np.int64)

        def run(start: int, stop: int) -> None:
            part = slice(start, stop)
            _box_search.search(
                queries[part], asking[part], self._tree, self._placed, self._metric.packed, self._hidden, most,
                within[part], ids[part], sqdist[part], visited[part],
            )  # fmt: skip

        in_threads(run, b, smallest=16, largest=_CHUNK)
        self._asked, self._seen = self._asked + b, self._seen + int(visited.sum())
        return NeighbourTable(ids, sqdist)

    def looked_at(self, queries: Float64, k: int, asking: Int64, most: float) -> float:
        """How many points a search looks at for one of these queries (b, d), on average; it gives up beyond `most`."""
        each = len(self._boxes) / len(self._boxes.panels)
        before = self._seen
        anywhere = np.full(len(queries), np.inf)
        self._search(check_queries(queries, self._boxes.columns), k, asking, 1 + int(most / each), anywhere)
        return (self._seen - before) / len(queries) * each

    def _put(self, low: Float64, high: Float64) -> tuple[Float64, Float64]:
        """Boxes (.., d, c) where the metric puts them."""
        found = np.empty_like(low), np.empty_like(high)
        in_threads(lambda a, b: _boxes.place_boxes(low, high, self._metric.packed, *found, a, b), len(low), 256)
        return found

    def _near_each_other(self, queries: Float64) -> Int64:
        """An order (b,) in which queries that follow each other lie near each other."""
        low, high, depth = self._tree[4], self._tree[5], self._boxes.depth
        near = np.empty(len(queries), dtype=np.int64)
        in_threads(
            lambda a, b: _box_search.leaves_of(queries[a:b], low, high, depth, near[a:b]), len(queries), smallest=256
        )
        return np.argsort(near, kind="stable")

    def _prepare(self, b: int) -> None:
        """Put all leaves where the metric says if b queries are likely to visit about as many."""
        boxes = self._boxes
        each = self._seen / self._asked if self._asked else float(_EXPECTED)
        if len(self._placed[0]) or self._seen + b * each < len(boxes.panels):
            return
        try:
            placed, codes = (boxes.room(boxes.panels.shape, dtype) for dtype in (np.float64, np.uint8))
        except OSError:  # no room for them on the disk: a leaf is then put there whenever it is visited
            return
        metric, low, high = self._metric.packed, self._tree[6], self._tree[7]

        def place(start: int, stop: int) -> None:
            _boxes.place_leaves(boxes.panels, boxes.centre, boxes.scale, metric, placed, start, stop, 0)
            _boxes.encode_leaves(placed, low, high, codes, start, stop)

        in_threads(place, len(placed), smallest=1024)
        self._placed = placed, codes


class BoxedInputs:
    """Standardised inputs (n, d) of rows that are held in boxes alone: rows are taken out by their numbers.

    more (m, d): rows behind those, as they are.
    """

    dtype = np.dtype(np.float64)
    ndim = 2

    def __init__(self, boxes: Boxes, more: Float64 | None = None, held: list[Boxes] | None = None) -> None:
        self._held = [boxes] if held is None else held  # what is cut anew serves those with more rows behind, too
        self.boxed = len(boxes.members)
        self.more = np.empty((0, boxes.columns)) if more is None else more
        self.shape = (self.boxed + len(self.more), boxes.columns)

    def __len__(self) -> int:
        return self.shape[0]

    def followed_by(self, more: Float64) -> BoxedInputs:
        """The rows that are in boxes, and behind them those (m, d) instead of the ones that are there."""
        return BoxedInputs(self._held[0], more, self._held)

    def __getitem__(self, which: Any) -> Float64:
        """Rows (.., d): a slice, a mask (n,) or numbers of any shape."""
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if start >= self.boxed and step == 1:
                return self.more[start - self.boxed : max(start, stop) - self.boxed]
            ids = np.arange(start, stop, step)
        else:
            ids = np.asarray(which)
            ids = np.flatnonzero(ids) if ids.dtype == np.bool_ else ids
        flat = np.ascontiguousarray(ids, dtype=np.int64).reshape(-1)
        if flat.size and not -len(self) <= int(flat.min()) <= int(flat.max()) < len(self):
            raise IndexError(f"row {int(flat.max())} was asked for; there are {len(self)}.")
        flat = np.where(flat < 0, flat + len(self), flat)
        later = flat >= self.boxed
        if not later.any():
            return self._held[0].rows(flat).reshape(*ids.shape, self.shape[1])
        found = np.empty((flat.size, self.shape[1]))
        found[~later], found[later] = self._held[0].rows(flat[~later]), self.more[flat[later] - self.boxed]
        return found.reshape(*ids.shape, self.shape[1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(np.float64 if dtype is None else dtype, copy=False)

    def packed(self) -> dict[str, np.ndarray]:
        """Arrays of the boxes, see `Boxes.unpacked`."""
        return self._held[0].packed()

    @property
    def bounds(self) -> tuple[Float64, Float64]:
        """Lowest and highest values (d,)."""
        low, high = self._held[0].low[0], self._held[0].high[0]
        return np.vstack([low[None], self.more]).min(axis=0), np.vstack([high[None], self.more]).max(axis=0)

    def boxes(self, lengths: Float64) -> Boxes:
        """The boxes, cut anew if they are in bad shape for these lengths (d,)."""
        found = self._held[0]
        if not found.fit(lengths):
            found = self._held[0] = found.cut_anew(lengths)
        return found
