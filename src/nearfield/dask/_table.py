"""Dask arrays and data frames as tables of a fit: rows stay in their partitions, the trainer sees column after column.

Rows are numbered in the order of the collection. What a fit asks of them is computed partition by partition by the
functions that serve arrays, and put together in order: the same numbers in the same order as of one array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nearfield.column_values import TableError
from nearfield.columns import ArrayColumns, Columns, FrameColumns, check_names
from nearfield.dask._boxes import (
    BOXES_A_WORKER,
    Cuts,
    RemoteInputs,
    build_box,
    cut,
    describe_box,
    sample_of,
    standardising,
)
from nearfield.dask._cluster import Cluster, ClusterError, itself, large_tasks, on_worker
from nearfield.elsewhere import TableElsewhere
from nearfield.encoding import TableEncoder
from nearfield.neighbours import order_key
from nearfield.scaling import Scaling

_MEMORY = 0.8  # of a worker's memory that may be taken while its boxes are made; beyond, Dask pauses it
_ITSELF = 300 * 2**20  # bytes of a worker's process, with the libraries that it has loaded
_COPIES = 3.0  # of a box's rows that are there while it is made
_LEAST = 4  # bytes of a number, in whichever precision it will be held
_SENT = 2**23  # bytes of a table in one task that sends it
Edges = Mapping[int, tuple[float, float]]


class Partition(NamedTuple):
    """What is known of one partition: rows, names and kinds of columns, which have gaps, and what is wrong with it."""

    rows: int
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    gaps: tuple[bool, ...]
    trouble: str
    dtype: Any


# --- tasks ----------------------------------------------------------------------------------------------------------


def columns_of_part(part: Any) -> Columns:
    """The columns of a partition."""
    if hasattr(part, "columns"):
        return FrameColumns(part, [str(name) for name in part.columns])
    return ArrayColumns(np.asarray(part))


def describe_part(part: Any) -> Partition:
    """What is known of a partition."""
    on_worker()
    if not hasattr(part, "columns"):
        values = np.asarray(part)
        if values.ndim != 2:
            raise TableError(f"a partition of X has shape {values.shape}: rows and columns are expected.")
        if values.dtype.kind not in "fiu":
            raise TableError(
                f"X is a Dask array of type {values.dtype}: numbers are expected. Use a Dask data frame for columns of "
                "other kinds, or astype('float64')."
            )
    columns = columns_of_part(part)
    kinds, gaps, trouble = [], [], ""
    for name in columns.names:
        kinds.append(columns.kind(name))
        try:
            values = columns.read(name, kinds[-1]) if kinds[-1] != "text" else np.zeros(0)
            gaps.append(bool(np.isnan(values).any()))
        except TableError as error:  # such as infinite values
            gaps.append(False)
            trouble = trouble or str(error)
    dtype = None if hasattr(part, "columns") else np.asarray(part).dtype
    return Partition(len(part), tuple(columns.names), tuple(kinds), tuple(gaps), trouble, dtype)


def numbers_of_part(part: Any) -> np.ndarray:
    """A partition of an array without gaps as its own features (n, m)."""
    values = np.asarray(part)
    return np.ascontiguousarray(values, dtype=np.float32 if values.dtype == np.float32 else np.float64)


def features_of_part(part: Any, encoder: TableEncoder) -> np.ndarray:
    """The features (n, m) of a partition."""
    on_worker()
    if not len(part):
        return np.zeros((0, len(encoder.feature_names)))
    return encoder.encode(columns_of_part(part))


def column_of_part(part: Any, name: str, kind: str) -> np.ndarray:
    """Values (n,) of a column of a partition."""
    values: np.ndarray = columns_of_part(part).read(name, kind)
    return values


def column_of_features(features: np.ndarray, e: int) -> np.ndarray:
    """A column (n,) of features, as it is held."""
    return np.ascontiguousarray(features[:, e])


def rows_of_features(features: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Rows (b, m) of features, as they are held."""
    return features[places]


def hashes_of_features(features: np.ndarray, edges: Edges) -> np.ndarray:
    """What `order_key` says of rows of features."""
    on_worker()
    return order_key(clipped(features, edges))


def extent_of_features(features: np.ndarray, edges: Edges) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """Least and largest values (m,) of features, and whether all are exact in single precision; None without rows."""
    if not len(features):
        return None
    values = clipped(features, edges)
    with np.errstate(over="ignore"):
        single = values.dtype == np.float32 or bool(np.array_equal(values.astype(np.float32), values))
    return values.min(axis=0), values.max(axis=0), single


class Shuffle(NamedTuple):
    """How rows are put into boxes: values between edges, standardised to see where, and in which type they are held."""

    edges: Edges
    scaling: Scaling
    linear: bool
    cuts: Cuts
    dtype: Any


def split_features(
    features: np.ndarray, first: int, numbers: np.ndarray | None, how: Shuffle
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Numbers and values of the rows of a partition that belong to each box.

    first: the number of the first row, where all rows are numbered in their order; numbers (n,): else, -1 for rows that
    are left out.
    """
    on_worker()
    ids = np.arange(first, first + len(features)) if numbers is None else numbers
    values = clipped(features, how.edges)
    if numbers is not None:
        ids, values = ids[numbers >= 0], values[numbers >= 0]
    inputs = how.scaling.apply(values)
    box = how.cuts.boxes_of(inputs)
    values = (values if how.linear else inputs).astype(how.dtype, copy=False)
    order = np.argsort(box, kind="stable")
    ends = np.searchsorted(box[order], np.arange(len(how.cuts.columns) + 2))
    return [(ids[order[a:b]], values[order[a:b]]) for a, b in pairwise(ends.tolist())]


def clipped(features: np.ndarray, edges: Edges) -> np.ndarray:
    """Features (n, m) with some columns between two numbers each."""
    if not edges:
        return features
    found = features.astype(np.float64)
    for e, (low, high) in edges.items():
        found[:, e] = np.clip(found[:, e], low, high)
    return found


# --- on the trainer -------------------------------------------------------------------------------------------------


def partitions_of(X: Any) -> list[Any]:
    """The partitions of a Dask array or data frame, as delayed objects."""
    is_array = hasattr(X, "chunks") and hasattr(X, "rechunk")
    if X.ndim != 2:
        kind = "array" if is_array else "series"
        raise TableError(f"X is a Dask {kind} of {X.ndim} dimensions: rows and columns are expected.")
    if is_array:
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        return list(X.to_delayed()[:, 0])
    return list(X.to_delayed())


class RemoteColumns(Columns):
    """The columns of a Dask array or data frame."""

    def __init__(self, cluster: Cluster, X: Any) -> None:
        self._cluster, self.is_array = cluster, hasattr(X, "rechunk")
        parts = partitions_of(X)
        known = self.is_array and not np.isnan(X.shape[0])
        roomy_workers(cluster, X.shape if known else (0, X.shape[1]), _LEAST)  # before anything is loaded
        self._parts = cluster.compute(parts)
        found: list[Partition] = cluster.results(cluster.each(describe_part, self._parts))
        self.described = found
        some = next((about for about in found if about.rows), found[0])
        self.names = list(some.names)
        if not self.names:
            raise TableError("X has no columns: there is nothing to predict from.")
        check_names(self.names)
        self._kinds = dict(zip(some.names, some.kinds, strict=True))
        for number, about in enumerate(found):
            self._check(number, about, some)
        self.sizes = np.array([about.rows for about in found])
        if not self.sizes.sum():
            raise TableError("X has no rows in any of its partitions: at least one is needed.")
        roomy_workers(cluster, (len(self), len(self.names)), _LEAST)
        self._table: RemoteTable | None = None

    def _check(self, number: int, about: Partition, some: Partition) -> None:
        """Refuse partitions that are not like the first that has rows, and columns of text."""
        if about.names != some.names:
            lacking = [name for name in some.names if name not in about.names]
            what = f"lacks the column {lacking[0]!r}" if lacking else f"has the columns {list(about.names)}"
            raise TableError(
                f"partition {number} of X {what}; others have {list(some.names)}. All partitions need the same columns "
                "in the same order."
            )
        if not about.rows:
            return
        for name, kind, usual in zip(about.names, about.kinds, some.kinds, strict=True):
            if kind == "text":
                raise TableError(
                    f"column {name!r} of X holds text or categories, which a fit with Dask does not encode: make "
                    "columns of numbers of it, for example with dask.dataframe.get_dummies, or leave it out."
                )
            if kind != usual:
                raise TableError(
                    f"partition {number} of X has {kind} values in column {name!r}; others have {usual} values. Give "
                    "all partitions the same types, for example with astype."
                )
        if about.dtype != some.dtype:
            raise TableError(
                f"partition {number} of X is of type {about.dtype}; others are of type {some.dtype}. Use astype."
            )
        if about.trouble:
            raise TableError(f"partition {number} of X: {about.trouble}")

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def kind(self, name: str) -> str:
        return self._kinds[name]

    def read(self, name: str, kind: str, form: str = "") -> Any:
        if kind != self._kinds[name] and "text" in (kind, self._kinds[name]):
            raise TableError(f"column {name!r} of X is to be read as levels, which a fit with Dask does not do.")
        there = [part for part, size in zip(self._parts, self.sizes, strict=True) if size]
        return np.concatenate(self._cluster.results(self._cluster.each(column_of_part, there, name, kind)))

    def matrix(self) -> Any:
        if not self.is_array:
            return None
        if self._table is None:
            dtype = next(about.dtype for about in self.described if about.rows)
            parts = self._cluster.each(numbers_of_part, self._parts)
            shape = len(self), len(self.names)
            gaps = any(any(about.gaps) for about in self.described)
            source = Source(self._cluster, parts, self.sizes, self._parts)
            own = np.dtype(np.float32 if dtype == np.float32 else np.float64)
            self._table = RemoteTable(source, shape, own, gaps=gaps)
        return self._table

    def kept(self, rule: Any, values: Any) -> tuple[Any, Any]:
        return rule, None if values is None else ()

    def encoded(self, encoder: TableEncoder) -> Any:
        own = TableEncoder()
        own.rules_, own.n_features_in_ = encoder.rules_, encoder.n_features_in_
        parts = self._cluster.each(features_of_part, self._parts, own)
        shape = len(self), len(encoder.feature_names)
        return RemoteTable(Source(self._cluster, parts, self.sizes, self._parts), shape, np.dtype(np.float64))

    def release(self) -> None:
        """Forget the partitions; those that boxes were made of can be computed again."""
        self._parts.clear()
        self._table = None


@dataclass(eq=False)
class Source:
    """Features on the workers, the futures of some rows each, how many rows (p,) these are, and what they came from."""

    cluster: Cluster
    parts: list[Any]
    sizes: np.ndarray
    raw: list[Any] = field(default_factory=list)
    hashes: dict[Any, np.ndarray] = field(default_factory=dict)

    @property
    def begins(self) -> np.ndarray:
        """The number of the first row of each part, and of all rows."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def joined(self, task: Callable[..., Any], *given: Any) -> np.ndarray:
        """What a task makes of the parts, one behind the other."""
        return np.concatenate(self.cluster.results(self.cluster.each(task, self.parts, *given)))

    def rows(self, ids: np.ndarray, columns: int, dtype: np.dtype) -> np.ndarray:
        """Rows (b, m) with these numbers."""
        part = np.searchsorted(self.begins, ids, side="right") - 1
        order = np.argsort(part, kind="stable")
        numbers, begin = np.unique(part[order], return_index=True)
        places = np.split(order, begin[1:])
        futures = [
            self.cluster.submit(rows_of_features, self.parts[p], ids[own] - self.begins[p])
            for p, own in zip(numbers.tolist(), places, strict=True)
        ] if len(ids) else []  # fmt: skip
        found = np.empty((len(ids), columns), dtype=dtype)
        for own, rows in zip(places, self.cluster.results(futures), strict=False):
            found[own] = rows
        return found


@dataclass(eq=False)
class RemoteTable(TableElsewhere):
    """Features (n, m) on the workers: rows `which` (n,) of their source, or all, with some columns between edges."""

    source: Source
    shape: tuple[int, int]
    dtype: np.dtype
    which: np.ndarray | None = None
    edges: Edges = field(default_factory=dict)
    gaps: bool = False

    def some(self, which: np.ndarray) -> RemoteTable:
        ids = np.flatnonzero(which) if which.dtype == np.bool_ else which
        ids = ids if self.which is None else self.which[ids]
        return replace(self, shape=(len(ids), self.shape[1]), which=ids)

    def clipped(self, edges: Edges) -> RemoteTable:
        return replace(self, edges={**self.edges, **edges})

    def complete(self, names: Sequence[str]) -> bool:
        return not self.gaps

    def hashes(self) -> np.ndarray:
        key = tuple(sorted(self.edges.items()))
        if key not in self.source.hashes:
            self.source.hashes[key] = self.source.joined(hashes_of_features, self.edges)
        return self._viewed(self.source.hashes[key])

    def _viewed(self, values: np.ndarray) -> np.ndarray:
        return values if self.which is None else values[self.which]

    def __getitem__(self, which: Any) -> np.ndarray:
        if isinstance(which, tuple):
            rows, e = which
            column = self._viewed(self.source.joined(column_of_features, int(e)))
            return (np.clip(column, *self.edges[e]) if e in self.edges else column)[rows]
        ids = np.arange(len(self))[which]
        ids = ids if self.which is None else self.which[ids]
        return clipped(self.source.rows(ids, self.shape[1], self.dtype), self.edges)

    # --- into boxes -------------------------------------------------------------------------------------------------

    def held(self, scaling: Scaling) -> RemoteInputs:
        """The rows in boxes on the workers."""
        if type(scaling) is not Scaling:
            raise NotImplementedError("coordinates are not located on a cluster.")
        source, cluster = self.source, self.source.cluster
        extents = cluster.results(cluster.each(extent_of_features, source.parts, self.edges))
        low, high, singles = zip(*(extent for extent in extents if extent is not None), strict=True)
        linear = scaling.is_linear(np.stack([np.min(low, axis=0), np.max(high, axis=0)]).astype(np.float64))
        dtype = np.dtype(np.float32 if linear and all(singles) else np.float64)
        workers = roomy_workers(cluster, self.shape, dtype.itemsize)
        cuts = cut(scaling.apply(self[sample_of(len(self))]), BOXES_A_WORKER * len(workers))
        how = Shuffle(self.edges, scaling, linear, cuts, dtype)
        boxes = self._shuffled(how, workers)
        described = cluster.results(cluster.each(describe_box, boxes))
        source.parts.clear()  # Dask knows how to make them again, should a box be lost
        source.raw.clear()
        source.hashes.clear()
        return RemoteInputs(cluster, boxes, described)

    def _shuffled(self, how: Shuffle, workers: list[str]) -> list[Any]:
        """The futures of the boxes, shared out among workers."""
        source, cluster = self.source, self.source.cluster
        numbers = self._numbers()
        split = [
            cluster.submit(split_features, part, int(first), None if numbers is None else own, how)
            for part, first, own in zip(source.parts, source.begins[:-1], numbers or source.parts, strict=True)
        ]
        centre, scale = standardising(how.scaling, how.linear)
        boxes = []
        for box in range(len(how.cuts.columns) + 1):
            parts = [cluster.submit(operator.getitem, pieces, box) for pieces in split]
            boxes.append(cluster.submit(build_box, parts, centre, scale, workers=[workers[box % len(workers)]]))
        return boxes

    def _numbers(self) -> list[np.ndarray] | None:
        """The number of each row of each part, -1 where it is left out; None where these are in their order."""
        if self.which is None:
            return None
        numbers = np.full(int(self.source.sizes.sum()), -1, dtype=np.int64)
        numbers[self.which] = np.arange(len(self))
        return np.split(numbers, self.source.begins[1:-1])


def roomy_workers(cluster: Cluster, shape: tuple[int, int], itemsize: int) -> list[str]:
    """The workers, if all have room for their boxes of rows (n, m) with so many bytes a number; else a ClusterError.

    n is 0 where it is not known yet.
    """
    workers, (rows, columns) = cluster.require_workers(), shape
    needed = _COPIES * rows * (columns * itemsize + 24) / len(workers)
    beside = (
        f"{_ITSELF / 2**20:.0f} MiB of the process itself, and Dask pauses workers at {100 * _MEMORY:.0f} %: use more "
        "workers, or larger ones."
    )
    for name, about in workers.items():
        room = _MEMORY * (about.get("memory_limit") or np.inf)
        has = f"the worker {name} has {room / _MEMORY / 2**20:,.0f} MiB of memory"
        if room < _ITSELF:
            raise ClusterError(f"{has}, which is not enough for {beside}")
        if needed + _ITSELF > room:
            raise ClusterError(
                f"{has}, but its boxes of {rows:,} rows of {columns} columns, shared out among {len(workers)} workers, "
                f"take up to {needed / 2**20:,.0f} MiB while they are made, beside {beside}"
            )
    return list(workers)


def sent(cluster: Cluster, X: np.ndarray) -> RemoteTable:
    """Features (n, m) of this process, sent to the workers."""
    roomy_workers(cluster, (len(X), X.shape[1]), _LEAST)
    step = max(1, _SENT // max(1, X.itemsize * X.shape[1]))
    with large_tasks():
        parts = [cluster.submit(itself, X[start : start + step]) for start in range(0, len(X), step)]
    sizes = np.array([min(step, len(X) - start) for start in range(0, len(X), step)])
    return RemoteTable(Source(cluster, parts, sizes), X.shape, X.dtype)
