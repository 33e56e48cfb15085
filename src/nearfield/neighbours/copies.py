"""Rows that come in near copies: replicates with a little noise, the same thing measured again.

Left out alone, such a row is predicted from its copy, and training takes the copy's likeness for the smoothness of the
whole function. Equal rows are no such copies: they carry independent noise, which the model knows about.

Copies are known by a gap, they are much nearer than what comes behind them; and by what was observed, a value each that
few others have. Gaps that are no more than rows at random have say nothing. Neighbours with such a value are copies
where most rows that share one are neighbours. Where values were rounded, and rows far apart share them too, they say
nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfield.neighbours import Index
from nearfield.neighbours._equal_rows import Float64, Int64

_REACH = 8  # neighbours among which a gap is looked for
_GAP = 0.2  # of distances: copies are so much nearer than what comes behind them
_CHANCES = 2.0  # gaps of rows at random; if there are no more, they say nothing
_FEW = 4 * _REACH  # rows that may have a value which says that they are copies
_BLOCK = 2**16  # rows at a time
_MOSTLY = 0.5  # share of the rows with the same value that are neighbours, if it says so


class NearCopies(NamedTuple):
    """A label (n,) for each row, the same for rows that are near copies of each other, and of how many rows (n,) with
    its label each has the value, where that says something; else 1."""

    labels: Int64
    alike: Int64


def near_copies(index: Index, points: Float64, values: NDArray[np.uint64] | None = None) -> NearCopies:
    """Those of the indexed rows (n, d). values (n,): of what was observed at each, the same where that is the same.

    A row's nearest neighbours are its copies if they are much nearer than the next one, and it is theirs; or if they
    have the same value, where that says something. Labels of rows without copies occur once.
    """
    n = len(points)
    every = np.arange(n, dtype=np.int64)
    ids, copied = _copies(index, points, every)
    same = _same(ids, every, values)
    gaps = _graph(ids, copied)
    gaps = gaps.minimum(gaps.T)
    if np.mean(np.diff(gaps.tocsr().indptr) > 0) <= _CHANCES * _chance(points):
        gaps = _graph(ids, np.zeros_like(copied))
    graph = gaps + _graph(ids, same)
    labels = np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)
    if values is None or not same.any():
        return NearCopies(labels, np.ones(n, dtype=np.int64))
    pairs = np.stack([labels.astype(np.uint64), values], axis=1)
    _, kind, times = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return NearCopies(labels, times[kind.reshape(-1)])


def copied_share(
    index: Index, points: Float64, which: Int64, values: NDArray[np.uint64] | None = None
) -> tuple[float, float]:
    """Share of the rows `which` (b,) at these points (b, d) that have near copies, and that have any with their value
    of (n,)."""
    ids, copied = _copies(index, points, which)
    same = _same(ids, which, values)
    return float(copied.any(axis=1).mean()), float((copied & same).any(axis=1).mean())


def _chance(points: Float64) -> float:
    """Share of rows (n, d) at random that have a gap behind some of their neighbours.

    In d columns (r_j / r_(j+1))^d of the distances of rows at random is uniform to the power 1 / j.
    """
    one = _GAP ** max(int((points != points[:1]).any(axis=0).sum()), 1)
    return one / (1 - one)


def _graph(ids: Int64, linked: NDArray[np.bool_]) -> Any:
    """Rows (n, n) that are linked to some of their neighbours ids (n, m)."""
    row, place = np.nonzero(linked)
    return coo_array((np.ones(row.size), (row, ids[row, place])), shape=(len(ids), len(ids))).tocsr()


def _same(ids: Int64, which: Int64, values: NDArray[np.uint64] | None) -> NDArray[np.bool_]:
    """Which of the neighbours ids (b, m) of the rows `which` (b,) have the same value (n,), where that says that they
    are copies."""
    if values is None:
        return np.zeros(ids.shape, dtype=bool)
    own = values[which]
    others = _count(values, own) - 1
    same = (values[ids] == own[:, None]) & ((others > 0) & (others < _FEW))[:, None]
    expected = np.where(others < _FEW, np.minimum(others, ids.shape[1]), 0).sum()
    return same if same.sum() > _MOSTLY * expected else np.zeros_like(same)


def _count(values: NDArray[np.uint64], own: NDArray[np.uint64]) -> Int64:
    """How many of values (n,) are as each of `own` (b,) is; block by block, without a second array of n."""
    keys, place = np.unique(own, return_inverse=True)
    found = np.zeros(len(keys), dtype=np.int64)
    for start in range(0, len(values), _BLOCK):
        some = values[start : start + _BLOCK]
        at = np.minimum(np.searchsorted(keys, some), len(keys) - 1)
        found += np.bincount(at[keys[at] == some], minlength=len(keys))
    return found[place]


def _copies(index: Index, points: Float64, which: Int64) -> tuple[Int64, np.ndarray]:
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
