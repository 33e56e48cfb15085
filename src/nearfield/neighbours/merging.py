"""Neighbours found in several sets of rows become those among all of them."""

from __future__ import annotations

import numpy as np

from nearfield._compiled import compiled
from nearfield.neighbours._equal_rows import Int64
from nearfield.neighbours._index import NeighbourTable


def merge_into(table: NeighbourTable, which: Int64, other: NeighbourTable) -> None:
    """Keep the nearest k of what a table has for the queries `which` (c,) and of another table (c, k) for these.

    Both are sorted by (squared distance, row id), -1 last, and have no row in common.
    """
    _merge(table.ids, table.sqdist, np.ascontiguousarray(which), other.ids, other.sqdist)


@compiled()
def _merge(ids, sqdist, which, other_ids, other_sqdist):
    k = ids.shape[1]
    new_ids, new_sqdist = np.empty(k, dtype=np.int64), np.empty(k)
    for c in range(which.size):
        q, a, b = which[c], 0, 0
        for place in range(k):
            own, theirs = sqdist[q, a], other_sqdist[c, b]
            first = own < theirs or (own == theirs and (other_ids[c, b] < 0 or 0 <= ids[q, a] < other_ids[c, b]))
            if first:
                new_ids[place], new_sqdist[place] = ids[q, a], own
                a += 1
            else:
                new_ids[place], new_sqdist[place] = other_ids[c, b], theirs
                b += 1
        ids[q], sqdist[q] = new_ids, new_sqdist
