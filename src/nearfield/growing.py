"""Arrays to which rows are appended in amortised constant time, while whoever holds them sees nothing of it.

The rows lie at the front of a buffer with room behind them. What is appended goes into the room, and the longer array
is another view of the same buffer: a view that ends before the new rows stays what it was. Where the room was taken by
other rows before, because a shorter array is extended a second time, it is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_LEAST_ROOM = 64  # rows


class _Buffer:
    """Values (capacity, ..), and where the rows end that were appended so far."""

    def __init__(self, values: np.ndarray, end: int) -> None:
        self.values = values
        self._end = [end]  # a list: taking the number out of it is atomic, so that no two threads have it

    def taken(self, start: int, stop: int) -> bool:
        """Whether the rows start .. stop, which follow those that are there, belong to the caller from now on."""
        try:
            end = self._end.pop()
        except IndexError:  # another thread is right here
            return False
        free = end == start and stop <= len(self.values)
        self._end.append(stop if free else end)
        return free


class Growing:
    """Rows, `values` (n, ..), and room for more."""

    __slots__ = ("_buffer", "values")

    def __init__(self, values: np.ndarray, buffer: _Buffer | None = None) -> None:
        self.values, self._buffer = values, buffer

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        return Growing, (self.values,)  # without the room, where rows of others may be

    def followed_by(self, more: np.ndarray) -> Growing:
        """These rows and then more (m, ..)."""
        n, stop = len(self), len(self) + len(more)
        buffer, kind = self._buffer, np.result_type(self.values, more)
        if buffer is None or buffer.values.dtype != kind or not buffer.taken(n, stop):
            capacity = stop + max(n // 2, _LEAST_ROOM)
            buffer = _Buffer(np.empty((capacity, *self.values.shape[1:]), kind), stop)
            buffer.values[:n] = self.values
        buffer.values[n:stop] = more
        return Growing(buffer.values[:stop], buffer)


def followed_by(rooms: Mapping[str, Growing], name: str, values: np.ndarray, more: np.ndarray) -> Growing:
    """The rows `values` (n, ..) and then more (m, ..), in the room of that name if these rows are in it."""
    own = rooms.get(name)
    return (own if own is not None and own.values is values else Growing(values)).followed_by(more)
