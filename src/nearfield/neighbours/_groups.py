"""Rows that are equal, found once.

Real tables repeat rows (KEGG: 48,827 rows, 15,811 distinct). A search over the distinct rows is smaller, its trees are
well balanced, and ties between copies are settled by construction: copies are listed by ascending row id.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfield._compiled import compiled

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Groups:
    """A partition of n rows into m groups of equal rows, groups ordered by their lowest row id.

    Dividing the columns by length scales keeps equal rows equal, so the groups of the unscaled rows serve for every
    later refresh. Rows that are equal but sit in different groups cost time only: every answer stays right.
    """

    first: Int64  # (m,) lowest row id of each group
    starts: Int64  # (m + 1,) group g holds members[starts[g]:starts[g + 1]]
    members: Int64  # (n,) row ids, ascending inside each group

    def __len__(self) -> int:
        return int(self.first.size)


def find_groups(rows: Float64) -> Groups:
    """Group the equal rows of `rows` (n, d)."""
    n = rows.shape[0]
    hashes = _hash_rows(rows)
    representative = _representatives(rows, hashes, np.argsort(hashes, kind="stable"))
    everyone = np.arange(n, dtype=np.int64)
    first = np.flatnonzero(representative == everyone).astype(np.int64)
    if first.size == n:
        return Groups(everyone, np.arange(n + 1, dtype=np.int64), everyone)
    labels = np.searchsorted(first, representative)
    starts = np.zeros(first.size + 1, dtype=np.int64)
    np.cumsum(np.bincount(labels, minlength=first.size), out=starts[1:])
    return Groups(first, starts, np.argsort(labels, kind="stable").astype(np.int64))


@compiled()
def groups_hold(rows, first, starts, members):
    """Whether all members of each group are equal rows (NaN equals nothing)."""
    for g in range(first.size):
        if starts[g + 1] - starts[g] > 1:
            for position in range(starts[g], starts[g + 1]):
                for j in range(rows.shape[1]):
                    if rows[members[position], j] != rows[first[g], j]:
                        return False
    return True


@compiled()
def _hash_rows(rows):
    """One 64-bit hash per row, (n,) uint64; 0.0 and -0.0 hash alike because they compare equal."""
    n, d = rows.shape
    hashes = np.empty(n, dtype=np.uint64)
    value = np.empty(1, dtype=np.float64)
    bits = value.view(np.uint64)
    for i in range(n):
        h = np.uint64(0x9E3779B97F4A7C15)
        for j in range(d):
            value[0] = rows[i, j] + 0.0
            h = (h ^ bits[0]) * np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(29)
        hashes[i] = h
    return hashes


@compiled()
def _representatives(rows, hashes, order):
    """The lowest id of the rows equal to each row, (n,); `order` sorts the hashes stably, so ids ascend inside a run.

    Two different rows with one hash may split a group in two, which is allowed; they are never merged, because contents
    are compared.
    """
    representative = np.empty(order.size, dtype=np.int64)
    for position in range(order.size):
        i = order[position]
        representative[i] = i
        if position > 0:
            previous = order[position - 1]
            equal = hashes[i] == hashes[previous]
            for j in range(rows.shape[1]):
                equal = equal and rows[i, j] == rows[previous, j]
            if equal:
                representative[i] = representative[previous]
    return representative
