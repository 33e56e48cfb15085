"""Nearest neighbours among the rows that a query may see: not of its own group, or earlier in an order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearfield.neighbours._equal_rows import Float64, Int64
from nearfield.neighbours._index import NeighbourIndex

_WIDEN = 4  # a further search asks for so many times more candidates
_BLOCK_NUMBERS = 2**21  # candidates held at a time


def query_where(
    index: NeighbourIndex, queries: Float64, k: int, allowed: Callable[[Int64, Int64], np.ndarray], spare: int = 8
) -> Int64:
    """The k nearest rows (b, k) of each query (b, d) among those allowed, -1 where there are fewer.

    allowed(places (c,), ids (c, m)) tells which rows ids the queries at these places may see. Candidates are searched k
    and some `spare` ones at first, then ever more for the queries that lack some.
    """
    found = np.full((len(queries), k), -1, dtype=np.int64)
    pending, width = np.arange(len(queries)), k + spare
    while pending.size:
        width = min(width, index.n_rows)
        short = []
        for places in np.array_split(pending, -(-pending.size * width // _BLOCK_NUMBERS)):
            ids = index.query(queries[places], width).ids
            seen = (ids >= 0) & allowed(places, np.maximum(ids, 0))
            first = np.argsort(~seen, axis=1, kind="stable")[:, :k]
            chosen = np.where(np.take_along_axis(seen, first, 1), np.take_along_axis(ids, first, 1), -1)
            found[places, : chosen.shape[1]] = chosen
            short.append(places[seen.sum(axis=1) < k])
        pending = np.concatenate(short) if width < index.n_rows else pending[:0]
        width *= _WIDEN
    return found


def earlier_neighbours(index: NeighbourIndex, rows: Float64, which: Int64, k: int, rank: Int64) -> Int64:
    """The k nearest rows (b, k) of each of the rows `which` (b,) among those of a lower rank (n,), -1 where fewer.

    rows: (n, d) as indexed. The rows of the lowest ranks are compared with all before them, the others searched.
    """
    found = np.full((len(which), k), -1, dtype=np.int64)
    order = np.argsort(rank, kind="stable")
    early = rank[which] < _WIDEN * k
    for place in np.flatnonzero(early):
        before = order[: rank[which[place]]]
        sqdist = ((rows[before] - rows[which[place]]) ** 2).sum(axis=1)
        nearest = before[np.lexsort((before, sqdist))[:k]]
        found[place, : nearest.size] = nearest
    late = np.flatnonzero(~early)
    if late.size:
        own = rank[which[late]]
        found[late] = query_where(index, rows[which[late]], k, lambda places, ids: rank[ids] < own[places][:, None], k)
    return found
