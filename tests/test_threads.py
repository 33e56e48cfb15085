"""Threads of our own, and compilation with and without a cache."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from nearfield import _compiled
from nearfield._threads import in_threads, thread_count


@pytest.mark.parametrize("threads", ["1", "2", "7"])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 1000])
@pytest.mark.parametrize("largest", [None, 20])
def test_every_row_is_given_out_once(monkeypatch, threads, rows, largest):
    monkeypatch.setenv("NEARFIELD_THREADS", threads)
    seen, sizes = np.zeros(rows, dtype=int), []

    def task(start, stop):
        seen[start:stop] += 1
        sizes.append(stop - start)

    in_threads(task, rows, smallest=16, largest=largest)
    assert (seen == 1).all()
    assert all(size <= (largest or rows) for size in sizes)


def test_rows_are_worked_on_at_the_same_time(monkeypatch):
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    meeting = threading.Barrier(3, timeout=20)
    in_threads(lambda start, stop: meeting.wait(), 300, smallest=1)


@pytest.mark.parametrize("where", [0, 150, 299])
def test_an_error_in_any_chunk_reaches_the_caller_after_all_have_ended(monkeypatch, where):
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    ended = []

    def task(start, stop):
        ended.append(start)
        if start <= where < stop:
            raise ZeroDivisionError(f"row {where}")

    with pytest.raises(ZeroDivisionError, match=f"row {where}"):
        in_threads(task, 300, smallest=1)
    assert sorted(ended) == [0, 100, 200]


def test_the_number_of_threads_can_be_set(monkeypatch):
    monkeypatch.setenv("NEARFIELD_THREADS", "5")
    assert thread_count() == 5
    for nonsense in ("", "0", "-2", "many"):
        monkeypatch.setenv("NEARFIELD_THREADS", nonsense)
        assert thread_count() >= 1


def test_without_a_place_for_the_cache_functions_are_compiled_all_the_same(monkeypatch):
    njit = _compiled.njit

    def no_cache(**flags):
        if flags.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**flags)

    monkeypatch.setattr(_compiled, "njit", no_cache)
    assert _compiled.compiled()(lambda x: x + 1)(2) == 3
