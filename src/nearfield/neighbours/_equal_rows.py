"""Rows that are equal, found once.

Real tables repeat rows (KEGG: 48,827 rows, 15,811 distinct). A search over the distinct rows is smaller, its trees are
well balanced, and ties between equal rows are settled by construction: they are listed by ascending row id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfield._compiled import compiled
from nearfield.elsewhere import TableElsewhere
from nearfield.numbering import numbers

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class EqualRows:
    """A partition of n rows into m distinct points, mostly ordered by the lowest row id at each.

    Dividing the columns by length scales keeps equal rows equal, so what was found on the unscaled rows serves for
    every later refresh. Equal rows that count as several points cost time only: every answer stays right.
    """

    first: Int64  # (m,) lowest row id at each point
    starts: Int64  # (m + 1,) the rows at point p are members[starts[p]:starts[p + 1]]
    members: Int64  # (n,) row ids, ascending at each point

    def __len__(self) -> int:
        return int(self.first.size)


@dataclass(frozen=True, eq=False)
class InGroups:
    """The points of n rows in the order of the groups of these: equal rows of several groups are several points."""

    groups: Int64  # (n,) as they were given
    equal: EqualRows  # ordered by group, and then as they were
    _ends: Int64  # (g + 1,) the points of group g are from _ends[g] to _ends[g + 1]
    _group: Int64  # (n,) the group of each row, numbered from 0

    @classmethod
    def of(cls, equal: EqualRows, groups: Int64) -> InGroups:
        """From the points of all rows, and their groups (n,)."""
        labels, group = np.unique(groups, return_inverse=True)
        point = np.repeat(numbers(len(equal)), np.diff(equal.starts))
        order = np.argsort(group[equal.members], kind="stable")
        members, point = equal.members[order], point[order]
        own = group[members]
        begins = np.ones(len(members), dtype=np.bool_)
        begins[1:] = (own[1:] != own[:-1]) | (point[1:] != point[:-1])
        starts = np.append(np.flatnonzero(begins), len(members))
        first = members[starts[:-1]]
        return cls(
            groups, EqualRows(first, starts, members), np.searchsorted(group[first], numbers(len(labels) + 1)), group
        )

    def hidden_from(self, rows: Int64) -> Int64:
        """The points (b, 2), from .. to, of the group of each of the rows (b,); none of row -1."""
        group = self._group[rows]
        found = np.stack([self._ends[group], self._ends[group + 1]], axis=1)
        found[rows < 0] = 0
        return found


def find_equal_rows(rows: Float64 | TableElsewhere) -> EqualRows:
    """Which of the rows (n, d) are equal."""
    if isinstance(rows, TableElsewhere):
        return equal_in_columns(order_key(rows), (rows[:, e] for e in range(rows.shape[1])))
    if all_differ(order_key(rows)):
        return _each_alone(len(rows))
    hashes = order_key(rows)  # once more: those were sorted
    return _partition(_representatives(rows, hashes, np.argsort(hashes, kind="stable")))


def equal_in_columns(hashes: NDArray[np.uint64], columns: Iterable[NDArray[Any]]) -> EqualRows:
    """Which rows with hashes (n,) are equal in all columns (n,), which are looked at one by one, if there is need."""
    order = np.argsort(hashes, kind="stable")
    behind = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])  # places whose next has the same hash
    same = np.ones(len(behind), dtype=bool)
    for column in columns if len(behind) else ():
        same &= column[order[behind]] == column[order[behind + 1]]
    begins = np.ones(len(order), dtype=bool)
    begins[behind[same] + 1] = False
    representative = np.empty(len(order), dtype=np.int64)
    representative[order] = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    return _partition(representative)


def _partition(representative: Int64) -> EqualRows:
    """From the lowest id (n,) of the rows equal to each."""
    n = len(representative)
    everyone = numbers(n)
    first = np.flatnonzero(representative == everyone).astype(np.int64)
    if first.size == n:
        return _each_alone(n)
    labels = np.searchsorted(first, representative)
    starts = np.zeros(first.size + 1, dtype=np.int64)
    np.cumsum(np.bincount(labels, minlength=first.size), out=starts[1:])
    return EqualRows(first, starts, np.argsort(labels, kind="stable").astype(np.int64))


def _each_alone(n: int) -> EqualRows:
    return EqualRows(numbers(n), numbers(n + 1), numbers(n))


def all_differ(hashes: NDArray[np.uint64]) -> bool:
    """Whether no two of the hashes (n,) are the same. They are sorted in place: it takes no memory."""
    hashes.sort()
    return bool(_ascend(hashes))


def order_key(rows: Float64 | TableElsewhere) -> NDArray[np.uint64]:
    """A 64-bit number (n,) for each of the rows (n, d) that depends on its contents alone; equal rows have the same.

    0.0 and -0.0 compare equal and count alike. Sorted by it, rows come in an order as good as random that does not
    depend on the one they were given in.
    """
    if isinstance(rows, TableElsewhere):
        return rows.hashes()
    single = rows.dtype == np.float32  # the same numbers, and the same hash, as in double precision
    return _hash_rows(np.ascontiguousarray(rows, dtype=np.float32 if single else np.float64))


@compiled()
def _ascend(hashes):
    """Whether each is larger than the one before."""
    found = True
    for i in range(1, hashes.size):
        found &= hashes[i] > hashes[i - 1]
    return found


@compiled()
def equal_rows_hold(rows, first, starts, members):
    """Whether all rows at each point are equal (NaN equals nothing)."""
    for p in range(first.size):
        if starts[p + 1] - starts[p] > 1:
            for position in range(starts[p], starts[p + 1]):
                for j in range(rows.shape[1]):
                    if rows[members[position], j] != rows[first[p], j]:
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

    Two different rows with one hash may part rows that are equal, which is allowed; they are never merged, because
    contents are compared.
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
