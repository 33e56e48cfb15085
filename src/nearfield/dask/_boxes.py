"""Rows in boxes on the workers: shuffled there once, searched there, and taken out by their numbers.

The inputs of all rows are cut into some boxes for each worker; each is a task whose result holds its rows in a k-d tree
of its own, `Boxes`, with their numbers among all rows. A search asks the box nearest to a query, which gives a radius,
then every other box that is not beyond it, and merges what they found by (squared distance, row id). So the answers, to
the last bit, do not depend on the cuts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nearfield.dask._cluster import Cluster, on_worker
from nearfield.elsewhere import InputsElsewhere
from nearfield.neighbours import BoxedInputs, Boxes, Index, NeighbourTable, SearchedRows, find_equal_rows
from nearfield.neighbours import _boxes as compiled_boxes
from nearfield.neighbours._index import check_exclude, check_overflow, check_queries
from nearfield.neighbours.boxes import BoxIndex
from nearfield.neighbours.merging import merge_into
from nearfield.numbering import Numbering
from nearfield.scaling import Scaling
from nearfield.warps import Metric

BOXES_A_WORKER = 4
_SAMPLE = 2**14  # rows that say where to cut
_ROUNDING = 1e-12  # relative, of squared distances to boxes: more than they can be off
_AT_ONCE = 2**15  # queries of one round of tasks
_FETCHED = 2**18  # rows that are fetched at once
_KEPT = 2**17  # rows that are kept until others are asked for
FEW = 2**17
"""Rows up to which the trainer holds all inputs itself."""


class Cuts(NamedTuple):
    """A k-d tree of cuts, node after node, the children of i at 2 i + 1 and 2 i + 2: column and value of each."""

    columns: np.ndarray
    values: np.ndarray

    def boxes_of(self, inputs: np.ndarray) -> np.ndarray:
        """The number of the box (n,) of each of the inputs (n, d)."""
        node = np.zeros(len(inputs), dtype=np.int64)
        for _ in range(int(math.log2(len(self.columns) + 1))):
            right = inputs[np.arange(len(inputs)), self.columns[node]] >= self.values[node]
            node = 2 * node + 1 + right
        return node - len(self.columns)


def cut(sample: np.ndarray, boxes: int) -> Cuts:
    """Cuts into a power of two of boxes, at least as many as asked for, at medians of a sample (m, d)."""
    nodes = (1 << max(0, math.ceil(math.log2(max(boxes, 1))))) - 1
    columns, values = np.zeros(nodes, dtype=np.int64), np.zeros(nodes)
    parts = [np.arange(len(sample))]
    for node in range(nodes):
        own = sample[parts[node]]
        if len(own):
            low, high = np.quantile(own, [0.05, 0.95], axis=0)
            columns[node] = int(np.argmax(high - low))
            values[node] = np.median(own[:, columns[node]])
        right = own[:, columns[node]] >= values[node]
        parts += [parts[node][~right], parts[node][right]]
    return Cuts(columns, values)


class Box:
    """Some rows of a table, on a worker: their numbers (m,), ascending, and their inputs."""

    def __init__(self, ids: np.ndarray, rows: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> None:
        """rows (m, d), of which the standardised inputs are (rows - centre) / scale."""
        self.ids = ids
        boxes = Boxes(rows, find_equal_rows(rows), np.ones(rows.shape[1]), centre, scale, rows.dtype.type)
        self.inputs = BoxedInputs(boxes)
        self._size = rows.nbytes + 3 * ids.nbytes
        self._found: tuple[bytes, Index] | None = None

    def __sizeof__(self) -> int:
        return self._size

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_found": None}

    def _index(self, metric: Metric) -> Index:
        """Finds neighbours in the box, kept for one metric."""
        key = b"".join(np.ascontiguousarray(part).tobytes() for part in metric.packed)
        found = self._found
        if found is None or found[0] != key:
            found = self._found = key, SearchedRows(self.inputs).index(metric)
        return found[1]

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Where rows with these numbers are in the box."""
        return np.searchsorted(self.ids, ids)

    def search(
        self, metric: Metric, queries: np.ndarray, k: int, exclude: np.ndarray | None, within: np.ndarray | None
    ) -> NeighbourTable:
        """The nearest k rows of the box to queries (b, d), by their numbers; see `BoxIndex.query`."""
        asking = None if exclude is None else self._own(exclude)
        index = self._index(metric)
        if isinstance(index, BoxIndex):
            table = index.query(queries, k, asking, within)
        else:
            table = index.query(queries, k, asking)
        return NeighbourTable(np.where(table.ids >= 0, self.ids[table.ids], -1), table.sqdist)

    def _own(self, ids: np.ndarray) -> np.ndarray:
        """Places of rows in the box; -1 for those that are not there."""
        place = np.minimum(self.places(ids), len(self.ids) - 1)
        return np.where(self.ids[place] == ids, place, -1)


# --- tasks ----------------------------------------------------------------------------------------------------------


def build_box(parts: Sequence[tuple[np.ndarray, np.ndarray]], centre: np.ndarray, scale: np.ndarray) -> Box | None:
    """The box of rows that come in parts, numbers and values each; None where there are none."""
    on_worker()
    ids = np.concatenate([part[0] for part in parts])
    if not len(ids):
        return None
    rows = np.concatenate([part[1] for part in parts])
    if (np.diff(ids) < 0).any():
        order = np.argsort(ids)
        ids, rows = ids[order], rows[order]
    return Box(ids, rows, centre, scale)


def describe_box(box: Box | None) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Numbers of the rows of a box, and its lowest and highest inputs."""
    return None if box is None else (box.ids, *box.inputs.bounds)


def search_box(
    box: Box, metric: Metric, queries: np.ndarray, k: int, exclude: np.ndarray | None, within: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and squared distances of the nearest rows in a box."""
    on_worker()
    table = box.search(metric, queries, k, exclude, within)
    return table.ids, table.sqdist


def rows_of_box(box: Box, ids: np.ndarray) -> np.ndarray:
    """Standardised rows with these numbers."""
    on_worker()
    return box.inputs[box.places(ids)]


# --- on the trainer -------------------------------------------------------------------------------------------------


class Corners:
    """Where boxes are under a metric, (B, d) each."""

    def __init__(self, low: np.ndarray, high: np.ndarray, metric: Metric) -> None:
        low, high = low[:, :, None], high[:, :, None]
        found = np.empty_like(low), np.empty_like(high)
        compiled_boxes.place_boxes(low, high, metric.packed, *found, 0, len(low))
        self.low, self.high = found[0][:, :, 0], found[1][:, :, 0]

    def to(self, queries: np.ndarray) -> np.ndarray:
        """Squared distances (b, B) from queries (b, d) to the boxes; none is too large."""
        found = np.zeros((len(queries), len(self.low)))
        for j in range(queries.shape[1]):
            q = queries[:, j, None]
            off = np.maximum(np.maximum(self.low[:, j] - q, q - self.high[:, j]), 0.0)
            found += off * off
        return found * (1 - _ROUNDING)

    @property
    def around(self) -> np.ndarray:
        """The corners (2, d) of all boxes together."""
        return np.stack([self.low.min(axis=0), self.high.max(axis=0)])


class _Fetched(NamedTuple):
    """Numbers (u,) of rows, and these (u, d), None where they have not been fetched yet."""

    ids: np.ndarray
    rows: np.ndarray | None

    @classmethod
    def none(cls, d: int) -> _Fetched:
        """No rows of d columns."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, d)))

    def has(self, ids: np.ndarray) -> bool:
        """Whether all of ids (b,) are among them, whose numbers ascend."""
        if not len(self.ids):
            return False
        return bool((self.ids[np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)] == ids).all())

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Those with the numbers ids (b,)."""
        assert self.rows is not None
        return self.rows[np.searchsorted(self.ids, ids)]


class RemoteInputs(InputsElsewhere):
    """Standardised inputs (n, d) of rows in boxes on the workers of a cluster."""

    def __init__(self, cluster: Cluster, boxes: list[Any], described: Sequence[Any]) -> None:
        """boxes: their futures; described: what `describe_box` says of each."""
        there = [number for number, about in enumerate(described) if about is not None]
        self.cluster, self.boxes = cluster, [boxes[number] for number in there]
        n = sum(len(described[number][0]) for number in there)
        self.low, self.high = (np.stack([described[number][side] for number in there]) for side in (1, 2))
        self.shape = (n, self.low.shape[1])
        self.box_of = np.empty(n, dtype=np.uint16)
        for place, number in enumerate(there):
            self.box_of[described[number][0]] = place
        self._all: np.ndarray | None = None
        self._found = _Fetched.none(self.shape[1])
        self._last = _Fetched.none(self.shape[1])

    def foretell(self, ids: np.ndarray) -> None:
        """Rows with these numbers, -1 for none, were found, and some of them are likely to be asked for, often."""
        if len(self) > FEW:
            self._found = _Fetched(np.sort(Numbering(ids).rows), None)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return self.low.min(axis=0), self.high.max(axis=0)

    def index(self, metric: Metric) -> RemoteIndex:
        return RemoteIndex(self, metric)

    def members(self, box: int) -> np.ndarray:
        """Numbers of the rows of a box, ascending."""
        return np.flatnonzero(self.box_of == box)

    def __getitem__(self, which: Any) -> np.ndarray:
        n, d = self.shape
        if isinstance(which, slice):
            ids = np.arange(*which.indices(n))
        else:
            ids = np.asarray(which)
            ids = np.flatnonzero(ids) if ids.dtype == np.bool_ else ids
        flat = ids.reshape(-1).astype(np.int64)
        if flat.size and not -n <= int(flat.min()) <= int(flat.max()) < n:
            raise IndexError(f"row {int(flat.max())} was asked for; there are {n}.")
        return self._taken(np.where(flat < 0, flat + n, flat)).reshape(*ids.shape, d)

    def _taken(self, ids: np.ndarray) -> np.ndarray:
        if len(self) <= FEW:
            if self._all is None:
                self._all = self._fetched(np.arange(len(self)))
            return self._all[ids]
        if self._last.has(ids):  # mini-batches of rows that were queries
            return self._last.of(ids)
        if self._found.has(ids):
            if self._found.rows is None:
                self._found = _Fetched(self._found.ids, self._in_portions(self._found.ids))
            return self._found.of(ids)
        if len(ids) > _KEPT:
            return self._in_portions(ids)
        some = np.unique(ids)
        self._last = _Fetched(some, self._in_portions(some))
        return self._last.of(ids)

    def _in_portions(self, ids: np.ndarray) -> np.ndarray:
        found = np.empty((len(ids), self.shape[1]))
        for start in range(0, len(ids), _FETCHED):
            found[start : start + _FETCHED] = self._fetched(ids[start : start + _FETCHED])
        return found

    def _fetched(self, ids: np.ndarray) -> np.ndarray:
        """Rows (b, d) from the boxes that have them."""
        order = np.argsort(self.box_of[ids], kind="stable")
        ends = np.searchsorted(self.box_of[ids][order], np.arange(len(self.boxes) + 1))
        parts = [(b, order[ends[b] : ends[b + 1]]) for b in range(len(self.boxes)) if ends[b + 1] > ends[b]]
        futures = [self.cluster.submit(rows_of_box, self.boxes[b], ids[places]) for b, places in parts]
        found = np.empty((len(ids), self.shape[1]))
        for (_, places), rows in zip(parts, self.cluster.results(futures), strict=True):
            found[places] = rows
        return found


class RemoteIndex:
    """Exact nearest rows among those in boxes on the workers: a `neighbours.Index`."""

    kind = "dask"

    def __init__(self, inputs: RemoteInputs, metric: Metric) -> None:
        self._inputs, self._metric = inputs, metric
        self._corners = Corners(inputs.low, inputs.high, metric)
        check_overflow(self._corners.around[:1], self._corners.around)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._inputs)

    def query(self, queries: np.ndarray, k: int, exclude: np.ndarray | None = None) -> NeighbourTable:
        """The k nearest rows of each query (b, d), without row exclude[i] for query i (b,); -1 excludes nothing."""
        queries = check_queries(queries, self._inputs.shape[1])
        asking = check_exclude(exclude, len(queries), self.n_rows)
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 neighbour must be asked for.")
        check_overflow(queries, self._corners.around)
        table = NeighbourTable(np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k)))
        for start in range(0, len(queries), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            self._fill(NeighbourTable(table.ids[part], table.sqdist[part]), queries[part], asking[part])
        self._inputs.foretell(table.ids)
        return table

    def _fill(self, table: NeighbourTable, queries: np.ndarray, asking: np.ndarray) -> None:
        distance = self._corners.to(queries)
        home = distance.argmin(axis=1)
        first = [(b, np.flatnonzero(home == b)) for b in range(distance.shape[1])]
        for which, found in self._asked(first, table, queries, asking, None):
            table.ids[which], table.sqdist[which] = found.ids, found.sqdist
        radius = table.sqdist[:, -1].copy()
        further = distance <= radius[:, None]
        further[np.arange(len(home)), home] = False
        second = [(b, np.flatnonzero(further[:, b])) for b in range(distance.shape[1])]
        for which, found in self._asked(second, table, queries, asking, radius):
            merge_into(table, which, found)

    def _asked(
        self,
        parts: list[tuple[int, np.ndarray]],
        table: NeighbourTable,
        queries: np.ndarray,
        asking: np.ndarray,
        within: np.ndarray | None,
    ) -> list[tuple[np.ndarray, NeighbourTable]]:
        """What boxes find for the queries that each is asked for."""
        inputs, k = self._inputs, table.ids.shape[1]
        parts = [(b, which) for b, which in parts if len(which)]
        futures = [
            inputs.cluster.submit(
                search_box, inputs.boxes[b], self._metric, queries[which], k, asking[which],
                None if within is None else within[which],
            )
            for b, which in parts
        ]  # fmt: skip
        found = inputs.cluster.results(futures)
        return [(which, NeighbourTable(*own)) for (_, which), own in zip(parts, found, strict=True)]


def sample_of(n: int) -> np.ndarray:
    """Numbers of the rows, of n, that say where to cut."""
    return np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))


def standardising(scaling: Scaling, linear: bool) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale that boxes standardise with: none where rows come standardised."""
    d = len(scaling.scale)
    return (scaling.centre, scaling.scale) if linear else (np.zeros(d), np.ones(d))
