"""Rows shared out among threads: for compiled functions that run without the interpreter's lock.

The threads are our own, a plain pool, because Numba's threading layers are not safe to enter from several Python
threads at once. Every task writes to rows of its own, so results do not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_pool: tuple[int, ThreadPoolExecutor] | None = None


def thread_count() -> int:
    """Threads to use: NEARFIELD_THREADS, or as many as this process may run on."""
    asked = os.environ.get("NEARFIELD_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(task: Callable[[int, int], None], rows: int, smallest: int, largest: int | None = None) -> None:
    """Call task(start, stop) over chunks of range(rows), of at least `smallest` and at most `largest` rows."""
    threads = thread_count()
    size = max(smallest, -(-rows // threads))
    size = size if largest is None else min(size, largest)
    starts = range(0, rows, max(size, 1))
    if threads == 1 or len(starts) <= 1:
        for start in starts:
            task(start, min(start + size, rows))
    else:
        list(_executor(threads).map(task, starts, [min(start + size, rows) for start in starts]))


def _executor(threads: int) -> ThreadPoolExecutor:
    """This process's threads. Made anew after a fork, whose child has none of the parent's threads."""
    global _pool
    if _pool is None or _pool[0] != os.getpid() or _pool[1]._max_workers < threads:
        _pool = (os.getpid(), ThreadPoolExecutor(threads, thread_name_prefix="nearfield"))
    return _pool[1]
