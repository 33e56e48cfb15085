"""One lock for each model, so that threads that change it or copy it wait for each other."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakKeyDictionary

_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_locks_lock = threading.Lock()


def lock_of(model: Any) -> threading.RLock:
    """One lock for each model, kept apart from it: locks cannot be pickled."""
    with _locks_lock:
        return _locks.setdefault(model, threading.RLock())


def _forget_locks() -> None:
    """After a fork: a lock that another thread of the parent held would stay held for ever."""
    global _locks_lock
    _locks_lock = threading.Lock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
