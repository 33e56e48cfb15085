"""A few of many rows, numbered anew: neighbours of a block of rows are looked up in a small table of their own."""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np

from nearfield._compiled import compiled


def numbers(n: int) -> np.ndarray:
    """0 to n - 1: the same array for everybody who needs it at a time. Nobody writes to it.

    Those of n + 1 take no memory beside those of n, which are a part of them.
    """
    found = _numbers.get(n)
    if found is None:
        longer = getattr(_numbers.get(n - 1), "base", None)
        found = _numbers[n] = np.arange(n + 1)[:n] if longer is None else longer
    return found


_numbers: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()


class Numbering:
    """The rows that occur among ids, of any shape, in the order in which they first occur; -1 is none.

    Takes memory for these rows alone, however many there are in all.
    """

    def __init__(self, ids: np.ndarray) -> None:
        slots = 16
        while slots < 2 * ids.size:
            slots *= 2
        self._keys = np.full(slots, -1, dtype=np.int64)
        self._numbers = np.empty(slots, dtype=np.int64)
        rows = np.empty(ids.size, dtype=np.int64)
        count = _number(np.ascontiguousarray(ids).reshape(-1), self._keys, self._numbers, rows)
        self.rows = rows[:count].copy()

    def __len__(self) -> int:
        return len(self.rows)

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Where each of ids is among `rows`; all of them, or -1, have occurred."""
        found = np.empty(ids.shape, dtype=np.int64)
        _look_up(np.ascontiguousarray(ids).reshape(-1), self._keys, self._numbers, found.reshape(-1))
        return found


@compiled()
def _slot(row, keys):
    """Where the row is among the keys, or where there is room for it."""
    mask = np.uint64(keys.size - 1)
    place = ((np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while keys[place] != row and keys[place] >= 0:
        place = (place + np.uint64(1)) & mask
    return place


@compiled()
def _number(ids, keys, numbers, rows):
    count = 0
    for row in ids:
        if row < 0:
            continue
        place = _slot(row, keys)
        if keys[place] < 0:
            keys[place], numbers[place], rows[count] = row, count, row
            count += 1
    return count


@compiled()
def _look_up(ids, keys, numbers, found):
    for i in range(ids.size):
        found[i] = -1 if ids[i] < 0 else numbers[_slot(ids[i], keys)]
