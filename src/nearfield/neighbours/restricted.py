"""Nearest neighbours among the rows that a query may see: not of its own group, or earlier in an order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearfield.neighbours._equal_rows import Float64, Int64
from nearfield.neighbours._index import NeighbourIndex

_WIDEN = 4  # a further search asks for so many times more candidates
_BLOCK_NUMBERS = 2**21  # candidates held at a time
_SAMPLE = 32  # queries that tell how many candidates the others need


def query_where(
    index: NeighbourIndex, queries: Float64, k: int, allowed: Callable[[Int64, Int64], np.ndarray], spare: int = 8
) -> Int64:
    """The k nearest rows (b, k) of each query (b, d) among those allowed, -1 where there are fewer.

    allowed(places (c,), ids (c, m)) tells which rows ids the queries at these places may see. Candidates are searched k
    and some `spare` ones at first, then ever more for the queries that lack some. Where there are many queries, a few
    of them go first, and the others begin with as many candidates as nine tenths of those have needed.
    """
    found = np.full((len(queries), k), -1, dtype=np.int64)
    places = np.arange(len(queries))
    if len(queries) < 8 * _SAMPLE:
        _search_where(index, queries, places, allowed, k + spare, found)
        return found
    sample = np.linspace(0, len(queries) - 1, _SAMPLE).astype(np.int64)
    needed = _search_where(index, queries, sample, allowed, k + spare, found)
    width = max(k + spare, int(np.quantile(needed, 0.9)) + spare)
    _search_where(index, queries, np.setdiff1d(places, sample), allowed, width, found)
    return found


def _search_where(
    index: NeighbourIndex,
    queries: Float64,
    places: Int64,
    allowed: Callable[[Int64, Int64], np.ndarray],
    width: int,
    found: Int64,
) -> Int64:
    """Fill found (b, k) at these places (c,), from `width` candidates at first; return how many each needed (c,)."""
    k = found.shape[1]
    needed = np.full(len(places), index.n_rows, dtype=np.int64)
    pending = np.arange(len(places))
    while pending.size:
        width = min(width, index.n_rows)
        short = []
        for part in np.array_split(pending, -(-pending.size * width // _BLOCK_NUMBERS)):
            own = places[part]
            ids = index.query(queries[own], width).ids
            seen = (ids >= 0) & allowed(own, np.maximum(ids, 0))
            first = np.argsort(~seen, axis=1, kind="stable")[:, :k]
            chosen = np.where(np.take_along_axis(seen, first, 1), np.take_along_axis(ids, first, 1), -1)
            found[own, : chosen.shape[1]] = chosen
            enough = seen.sum(axis=1) >= k
            needed[part[enough]] = first[enough, -1] + 1
            short.append(part[~enough])
        pending = np.concatenate(short) if width < index.n_rows else pending[:0]
        width *= _WIDEN
    return needed


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
