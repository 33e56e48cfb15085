"""Numba's njit with a cache on disk, where there is a place for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function at its first call, without the interpreter's lock, and keep the code for the next process.

    On a machine where neither the package's folder nor the user's cache may be written, each process compiles anew.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(nogil=True, cache=True, **flags)(function)
        except RuntimeError:  # "cannot cache function: no locator available"
            return njit(nogil=True, **flags)(function)

    return decorate
