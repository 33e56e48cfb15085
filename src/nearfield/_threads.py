"""Rows shared out among threads: for compiled functions that run without the interpreter's lock.

The threads are our own because Numba's threading layers are not safe to enter from several Python threads at once. They
wait on plain queues, which costs a quarter of what a ThreadPoolExecutor does; a training step takes less than a
millisecond. Every task writes to rows of its own, so results do not depend on how many threads there are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any

import threadpoolctl

_Job = tuple[Callable[[int, int], None], tuple[int, int], "SimpleQueue[BaseException | None]"]
_lock = threading.Lock()
_pool: tuple[int, SimpleQueue[_Job]] | None = None  # how many threads, and their queue


def _forget() -> None:
    """After a fork: the child has none of the parent's threads, and a lock that was held stays held for ever."""
    global _lock, _pool, _holders
    _lock, _pool, _holders = threading.Lock(), None, 0
    _limits.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def thread_count() -> int:
    """Threads to use: NEARFIELD_THREADS, or as many as this process may run on."""
    asked = os.environ.get("NEARFIELD_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_limits: list[Any] = []  # what gives BLAS its threads back, and how many hold it to one
_holders = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS with a single thread, beside ours. Several Python threads may be inside: the last one out undoes it."""
    global _holders
    with _lock:
        _holders += 1
        if _holders == 1:
            _release_blas()
            _limits.append(_libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _release_blas()
                _limits.pop().restore_original_limits()
                _release_blas()


@cache
def _libraries() -> threadpoolctl.ThreadpoolController:
    """The libraries whose threads can be set, looked for once, which takes milliseconds; ours are loaded by now."""
    return threadpoolctl.ThreadpoolController()


def _release_blas() -> None:
    """Let whichever thread comes next set the threads of BLAS.

    Newer versions of threadpoolctl (3.8 does) listen only to the thread that did so first, as long as it lives, and
    pass over others without a word. Here one thread may limit BLAS and another, the last one out, give it back.
    """
    release = getattr(getattr(threadpoolctl, "OpenBLASController", None), "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


def in_threads(task: Callable[[int, int], None], rows: int, smallest: int, largest: int | None = None) -> None:
    """Call task(start, stop) over chunks of range(rows), of at least `smallest` and at most `largest` rows."""
    if rows == 0:
        return
    threads = thread_count()
    size = max(smallest, -(-rows // threads))
    size = size if largest is None else min(size, largest)
    first, *others = [(start, min(start + size, rows)) for start in range(0, rows, size)]
    if threads == 1:
        for chunk in (first, *others):
            task(*chunk)
        return
    done: SimpleQueue[BaseException | None] = SimpleQueue()
    jobs = _jobs(threads - 1) if others else None
    for chunk in others:
        assert jobs is not None
        jobs.put((task, chunk, done))
    failures = [_attempt(task, first)]  # the calling thread works too
    failures += [done.get() for _ in others]
    for failure in failures:
        if failure is not None:
            raise failure


def _attempt(task: Callable[[int, int], None], chunk: tuple[int, int]) -> BaseException | None:
    try:
        task(*chunk)
    except BaseException as error:
        return error
    return None


def _work(jobs: SimpleQueue[_Job]) -> None:
    while True:
        task, chunk, done = jobs.get()
        done.put(_attempt(task, chunk))
        del task, done  # what they hold should not wait for the next job


def _jobs(threads: int) -> SimpleQueue[_Job]:
    """The queue of this process's threads, of which there are now at least so many."""
    global _pool
    with _lock:
        running, jobs = _pool or (0, SimpleQueue())
        for n in range(running, threads):
            threading.Thread(target=_work, args=(jobs,), name=f"nearfield-{n}", daemon=True).start()
        _pool = (max(running, threads), jobs)
        return jobs
