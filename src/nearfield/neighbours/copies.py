"""Rows that come in near copies: replicates with a little noise, the same thing measured again.

Left out alone, such a row is predicted from its copy, and training takes the copy's likeness for the smoothness of the
whole function. Equal rows are no such copies: they carry independent noise, which the model knows about.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfield.neighbours._equal_rows import Float64, Int64
from nearfield.neighbours._index import NeighbourIndex

_REACH = 8  # neighbours among which a gap is looked for
_GAP = 0.2  # of distances: copies are so much nearer than what comes behind them


def near_copies(index: NeighbourIndex, points: Float64) -> Int64:
    """A label (n,) for each of the indexed rows (n, d), the same for rows that are near copies of each other.

    A row's nearest neighbours are its copies if they are much nearer than the next one, and it is theirs. Labels of
    rows without copies occur once.
    """
    n = len(points)
    ids, copied = _copies(index, points, np.arange(n, dtype=np.int64))
    row, place = np.nonzero(copied)
    graph = coo_array((np.ones(row.size), (row, ids[row, place])), shape=(n, n)).tocsr()
    return np.asarray(connected_components(graph.minimum(graph.T), directed=False)[1], dtype=np.int64)


def copied_share(index: NeighbourIndex, points: Float64, which: Int64) -> float:
    """Share of the rows `which` (b,) of those indexed (n, d) that have near copies."""
    return float(_copies(index, points[which], which)[1].any(axis=1).mean())


def _copies(index: NeighbourIndex, points: Float64, which: Int64) -> tuple[Int64, np.ndarray]:
    """Neighbours (b, m) of the rows `which` (b,) at these points (b, d), and which of them are copies (b, m)."""
    reach = min(_REACH, index.n_rows - 1)
    if reach < 2:
        return np.zeros((len(which), 0), dtype=np.int64), np.zeros((len(which), 0), dtype=bool)
    table = index.query(points, reach, which)
    distance = np.sqrt(table.sqdist)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(distance[:, :-1] > 0, distance[:, :-1] / distance[:, 1:], np.inf)
    gap = ratio.argmin(axis=1)
    found = ratio[np.arange(len(which)), gap] < _GAP
    return table.ids, found[:, None] & (np.arange(reach) <= gap[:, None])
