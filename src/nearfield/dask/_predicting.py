"""Predictions of Dask collections, lazily: queries go to the boxes, the rows found come back, and workers predict.

For each block of a partition the graph has a task that turns it into queries, one for each box that searches those that
lie nearest to it, one that says which other boxes are within the radius, one for each box that searches these, and one
that puts together what was found and calls the ordinary estimator with these rows alone. So no worker needs all rows,
and what a lost worker had is computed again.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import dask.array
import numpy as np
from dask.delayed import delayed

from nearfield.columns import Features
from nearfield.dask._boxes import Box, Corners, RemoteInputs
from nearfield.dask._cluster import Cluster, itself, large_tasks, on_worker
from nearfield.families import Observed
from nearfield.neighbours import NeighbourTable
from nearfield.neighbours.merging import merge_into
from nearfield.numbering import Numbering
from nearfield.prediction import Predictor
from nearfield.rows import Rows
from nearfield.warps import Metric

_NUMBERS = 2**20  # neighbours of one block
_MOST_ROWS = 2**14  # of one block
_BLOCKS = 8  # of a partition whose length is not known


@dataclass(frozen=True, eq=False)
class Shell:
    """A fitted estimator without its rows, and what is known of all of them."""

    estimator: Any
    corners: Corners
    metric: Metric
    bounds: tuple[np.ndarray, np.ndarray]
    prior: np.ndarray
    reach: int  # neighbours that predictions come from
    wide: int  # neighbours that are searched

    @classmethod
    def of(cls, estimator: Any, inputs: RemoteInputs) -> Shell:
        """That of an estimator whose rows are on a cluster."""
        fit = estimator._fit
        sweeper = fit.predictor.sweeper
        empty = copy.copy(estimator)
        empty._places, empty._numbers = np.zeros(0, dtype=np.int64), None
        for name in ("_loo", "_importances", "_left_out_errors"):
            vars(empty).pop(name, None)
        empty._fit = replace(fit, predictor=replace(fit.predictor, rows=None))
        k = fit.predictor.k
        return cls(
            empty, Corners(inputs.low, inputs.high, sweeper.metric), sweeper.metric, sweeper.bounds, sweeper.prior,
            sweeper._reach(k), sweeper._wide(k),
        )  # fmt: skip


class Equipped(NamedTuple):
    """A box, and what was observed at its rows, with their site state."""

    box: Box
    observed: Observed
    state: np.ndarray


class Asked(NamedTuple):
    """A block of a table with what is given beside its rows, and its queries (b, d) with the box nearest to each."""

    block: Any
    given: dict[str, Any]
    queries: np.ndarray
    home: np.ndarray


class Further(NamedTuple):
    """The radius (b,) around each query, and the boxes within it other than its own: (b, B)."""

    radius: np.ndarray
    boxes: np.ndarray


class Found(NamedTuple):
    """Neighbours that a box has for the queries `which` (c,), and the rows (u,) that these are."""

    which: np.ndarray
    table: NeighbourTable
    ids: np.ndarray
    inputs: np.ndarray
    observed: Observed
    state: np.ndarray


# --- tasks ----------------------------------------------------------------------------------------------------------


def equip_box(box: Box, observed: Mapping[str, np.ndarray], state: np.ndarray) -> Equipped:
    """A box with what was observed at its rows; where that is the same for all, it comes as one."""
    n = len(box.ids)
    return Equipped(box, {name: _for_all(values, n) for name, values in observed.items()}, _for_all(state, n))


def ask(shell: Shell, part: Any, given: Mapping[str, Any], start: float, stop: float) -> Asked:
    """Rows from start to stop of a partition, as shares of it, as queries."""
    on_worker()
    n = len(part)
    rows = slice(round(start * n), round(stop * n))
    block = part.iloc[rows] if hasattr(part, "iloc") else np.asarray(part)[rows]
    own = {name: np.asarray(values)[rows] if np.ndim(values) else values for name, values in given.items()}
    d = shell.corners.low.shape[1]
    if not len(block):
        return Asked(block, own, np.zeros((0, d)), np.zeros(0, dtype=np.int64))
    estimator = shell.estimator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        queries = shell.metric.apply(estimator._fit.inputs.apply(estimator._inputs(block)))
    return Asked(block, own, queries, shell.corners.to(queries).argmin(axis=1))


def search_home(shell: Shell, equipped: Equipped, asked: Asked, box: int) -> Found | None:
    """Neighbours in a box of the queries that are nearest to it; None where there are none."""
    return _searched(shell, equipped, asked, np.flatnonzero(asked.home == box), None)


def look_further(shell: Shell, asked: Asked, home: Sequence[Found | None]) -> Further:
    """Which other boxes may have nearer neighbours."""
    radius = np.full(len(asked.queries), np.inf)
    for found in home:
        if found is not None:
            radius[found.which] = found.table.sqdist[:, -1]
    boxes = shell.corners.to(asked.queries) <= radius[:, None]
    boxes[np.arange(len(radius)), asked.home] = False
    return Further(radius, boxes)


def search_further(shell: Shell, equipped: Equipped, asked: Asked, further: Further, box: int) -> Found | None:
    """Neighbours in a box of queries whose own box is another."""
    return _searched(shell, equipped, asked, np.flatnonzero(further.boxes[:, box]), further.radius)


def _searched(
    shell: Shell, equipped: Equipped, asked: Asked, which: np.ndarray, radius: np.ndarray | None
) -> Found | None:
    on_worker()
    if not len(which):
        return None
    box, within = equipped.box, None if radius is None else radius[which]
    table = box.search(shell.metric, asked.queries[which], shell.wide, None, within)
    if within is not None:
        there = table.sqdist <= within[:, None]
        table = NeighbourTable(np.where(there, table.ids, -1), np.where(there, table.sqdist, np.inf))
        some = there.any(axis=1)
        which, table = which[some], NeighbourTable(table.ids[some], table.sqdist[some])
    ids = Numbering(table.ids).rows
    places = box.places(ids)
    observed = {name: values[places] for name, values in equipped.observed.items()}
    return Found(which, table, ids, box.inputs[places], observed, equipped.state[places])


def predict_block(
    shell: Shell,
    asked: Asked,
    home: Sequence[Found | None],
    further: Sequence[Found | None],
    method: str,
    arguments: Mapping[str, Any],
    like: Sequence[np.ndarray],
) -> tuple[np.ndarray, ...]:
    """What a method of the estimator says of a block, from the rows that were found; like: of one row."""
    on_worker()
    if not len(asked.queries):
        return tuple(part[:0] for part in like)
    b = len(asked.queries)
    table = NeighbourTable(np.full((b, shell.wide), -1, dtype=np.int64), np.full((b, shell.wide), np.inf))
    for found in home:
        if found is not None:
            table.ids[found.which], table.sqdist[found.which] = found.table.ids, found.table.sqdist
    for found in further:
        if found is not None:
            merge_into(table, found.which, found.table)
    estimator = _with_rows(shell, asked, table, [found for found in (*home, *further) if found is not None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = getattr(estimator, method)(asked.block, **arguments, **asked.given)
    return answer if isinstance(answer, tuple) else (answer,)


def join_blocks(blocks: Sequence[tuple[np.ndarray, ...]], place: int) -> np.ndarray:
    """One of the answers for all blocks of a partition."""
    return np.concatenate([block[place] for block in blocks])


def predict_part(
    estimator: Any, part: Any, given: Mapping[str, Any], method: str, arguments: Mapping[str, Any], like: Any
) -> tuple[np.ndarray, ...]:
    """What a method of an ordinary estimator, with all of its rows, says of a partition."""
    on_worker()
    if not len(part):
        return tuple(one[:0] for one in like)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = getattr(estimator, method)(part, **arguments, **given)
    return answer if isinstance(answer, tuple) else (answer,)


# --- an estimator that has only the rows that were found ------------------------------------------------------------


class _Answers:
    """A `neighbours.Index` that was asked before: queries come again in the same order, in blocks."""

    kind = "asked"

    def __init__(self, queries: np.ndarray, table: NeighbourTable, n_rows: int) -> None:
        self._queries, self._table, self.n_rows, self._next = queries, table, n_rows, 0

    def query(self, queries: np.ndarray, k: int, exclude: np.ndarray | None = None) -> NeighbourTable:
        start = self._next if self._next < len(self._queries) else 0
        part = slice(start, start + len(queries))
        if k > self._table.ids.shape[1] or not np.array_equal(queries, self._queries[part]):
            raise AssertionError("a block of predictions asks for other neighbours than were searched.")
        self._next = part.stop
        return NeighbourTable(self._table.ids[part, :k], self._table.sqdist[part, :k])


def _with_rows(shell: Shell, asked: Asked, table: NeighbourTable, found: Sequence[Found]) -> Any:
    """The estimator with the rows that were found, numbered anew, and no others."""
    ids = np.concatenate([one.ids for one in found])
    numbering = Numbering(ids)  # a box may have found a row for queries of its own and for others
    rank = np.full(len(numbering) + 1, -1)  # numbers ascend as those among all rows: neighbours are put in their order
    rank[np.argsort(numbering.rows)] = np.arange(len(numbering))
    take = np.zeros(max(len(numbering), shell.wide + 3), dtype=np.int64)  # more than k: nobody asks for the last
    take[rank[numbering.places(ids)]] = np.arange(len(ids))
    inputs = np.concatenate([one.inputs for one in found])[take]
    observed = {name: np.concatenate([one.observed[name] for one in found])[take] for name in found[0].observed}
    state = np.concatenate([one.state for one in found])[take]
    predictor = shell.estimator._fit.predictor
    rows = replace(Rows.of(predictor.model.family, inputs, observed), state=state)
    vars(rows)["bounds"] = shell.bounds
    filled = Predictor(predictor.model, rows, shell.reach, predictor.head, predictor.taper)
    places = NeighbourTable(rank[numbering.places(table.ids)], table.sqdist)
    known = {"index": _Answers(asked.queries, places, len(rows)), "prior": shell.prior}
    vars(filled.sweeper).update(known)
    estimator = copy.copy(shell.estimator)
    estimator._fit = replace(estimator._fit, predictor=filled)
    return estimator


def _for_all(values: np.ndarray, n: int) -> np.ndarray:
    """Values of n rows that may have come as one."""
    return np.broadcast_to(values, (n, *values.shape[1:])) if len(values) == 1 else values


def _as_one(values: np.ndarray) -> np.ndarray:
    """The first of the values (n, ..) where all are the same; else all."""
    return values[:1] if bool((values == values[:1]).all()) else values


# --- on the client --------------------------------------------------------------------------------------------------


class Placed:
    """A fitted estimator on the workers of a cluster: in boxes, or as a whole where its rows are few."""

    def __init__(self, cluster: Cluster, estimator: Any, to_local: Any) -> None:
        """to_local: makes an ordinary estimator of it."""
        self._estimator, self._columns = estimator, estimator.n_features_in_
        predictor = estimator._fit.predictor
        inputs = predictor.rows.inputs
        self._in_boxes = isinstance(inputs, RemoteInputs) and not predictor.sweeper.whole(predictor.k)
        with large_tasks():
            if not self._in_boxes:
                self._model = cluster.submit(itself, to_local())
                return
            self._model = cluster.submit(itself, Shell.of(estimator, inputs))
            self._wide = predictor.sweeper._wide(predictor.k)
            observed = {name: _as_one(values) for name, values in predictor.rows.observed.items()}
            state = _as_one(predictor.rows.state)
            self._boxes = []
            for number, box in enumerate(inputs.boxes):
                own = inputs.members(number)
                parts = [{n: v if len(v) == 1 else v[own] for n, v in observed.items()}]
                parts.append(state if len(state) == 1 else state[own])  # type: ignore[arg-type]
                self._boxes.append(cluster.submit(equip_box, box, *parts))

    def predict(
        self, parts: Sequence[Any], sizes: Sequence[int | None], given: Sequence[dict[str, Any]], method: str,
        arguments: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """Dask arrays of what a method says of partitions, of so many rows each, None where that is not known."""
        alone = {name: value[0] if isinstance(value, list) else value for name, value in arguments.items()}
        like = self._like(method, {**alone, **{name: 1.0 for name in given[0]}} if given else alone)
        found: list[list[Any]] = [[] for _ in like]
        for part, size, own in zip(parts, sizes, given, strict=True):
            answers = self._answers(part, size, own, method, arguments, like)
            rows = np.nan if size is None else size
            for place, one in enumerate(like):
                joined = answers(place)
                found[place].append(dask.array.from_delayed(joined, (rows, *one.shape[1:]), dtype=one.dtype))
        whole = tuple(dask.array.concatenate(pieces, allow_unknown_chunksizes=True) for pieces in found)
        return whole if self._several else whole[0]

    def _like(self, method: str, arguments: Mapping[str, Any]) -> list[np.ndarray]:
        """What the method says of one row, in the middle of the rows: arguments are checked, shapes are known."""
        middle = Features(self._estimator._fit.inputs.centre[None].astype(np.float64))
        answer = getattr(self._estimator, method)(middle, **arguments)
        self._several = isinstance(answer, tuple)
        return [np.asarray(part) for part in (answer if self._several else (answer,))]

    def _answers(
        self, part: Any, size: int | None, given: dict[str, Any], method: str, arguments: Mapping[str, Any], like: Any
    ) -> Any:
        """A function that gives the answers, by their number, for a partition, as delayed objects."""
        if not self._in_boxes:
            whole = _delayed(predict_part)(self._model, part, given, method, arguments, like)
            return lambda place: _delayed(join_blocks)([whole], place)
        blocks, many = [], self._block_count(size)
        for i in range(many):
            asked = _delayed(ask)(self._model, part, given, i / many, (i + 1) / many)
            boxes = list(enumerate(self._boxes))
            home = [_delayed(search_home)(self._model, box, asked, b) for b, box in boxes]
            radii = _delayed(look_further)(self._model, asked, home)
            further = [_delayed(search_further)(self._model, box, asked, radii, b) for b, box in boxes]
            blocks.append(_delayed(predict_block)(self._model, asked, home, further, method, arguments, like))
        return lambda place: _delayed(join_blocks)(blocks, place)

    def _block_count(self, size: int | None) -> int:
        if size is None:
            return _BLOCKS
        return max(1, -(-size // max(1, min(_MOST_ROWS, _NUMBERS // self._wide))))


def _delayed(task: Any) -> Any:
    return delayed(task, pure=False, traverse=True)
