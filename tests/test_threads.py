"""Threads of our own, those of BLAS, forks, and compilation with and without a cache."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from estimator_data import quick, small
from threadpoolctl import threadpool_info, threadpool_limits

from nearfield import _compiled
from nearfield._threads import in_threads, one_blas_thread, thread_count


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


# --- BLAS -----------------------------------------------------------------------------------------------------------


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def two_blas_threads():
    """As many as that on any machine, set by this thread."""
    with threadpool_limits(2, "blas"):
        assert set(blas_threads()) == {2}
        yield


@pytest.fixture
def meetings():
    """Threads that stay alive, each with an event to wait for inside and one that tells that it is there."""
    pool, inside, leave = ThreadPoolExecutor(3), *([threading.Event() for _ in range(3)] for _ in range(2))
    yield pool, inside, leave
    for event in leave:
        event.set()
    pool.shutdown()


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_the_last_of_several_threads_gives_blas_its_threads_back(order, two_blas_threads, meetings):
    pool, inside, leave = meetings

    def hold(n):
        with one_blas_thread():
            inside[n].set()
            assert leave[n].wait(20)

    holding = []
    for n in range(3):
        holding.append(pool.submit(hold, n))
        assert inside[n].wait(20)
        assert set(blas_threads()) == {1}
    for n in order:
        assert set(blas_threads()) == {1}
        leave[n].set()
        holding[n].result(20)
    assert set(blas_threads()) == {2}


def test_an_error_gives_blas_its_threads_back(two_blas_threads):
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert set(blas_threads()) == {2}


def test_blas_is_limited_in_every_thread_that_comes(two_blas_threads):
    def limited():
        with one_blas_thread():
            return set(blas_threads())

    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as other:
        for _ in range(2):
            assert limited() == pool.submit(limited).result(20) == other.submit(limited).result(20) == {1}
            assert set(blas_threads()) == {2}


def test_fits_at_the_same_time_equal_fits_in_turn_and_leave_blas_as_it_was(monkeypatch, two_blas_threads):
    monkeypatch.setenv("NEARFIELD_THREADS", "2")
    data = [small(150, seed=seed) for seed in range(4)]
    expected = [quick(k=8).fit(X, y).predict(X) for X, y in data]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda rows: quick(k=8).fit(*rows).predict(rows[0]), data))
        assert set(blas_threads()) == {2}
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


# --- forks ----------------------------------------------------------------------------------------------------------

FITS_IN_PARENT_AND_CHILD = """
import multiprocessing
import sys
import warnings

import numpy as np

from nearfield import GPClassifier, GPRegressor

warnings.simplefilter("ignore")
short = {"k": 8, "max_steps": 4, "refresh_every": 2, "random_state": 0}


def wide():
    X = rng_of(0).standard_normal((1100, 130))
    return GPRegressor(**short).fit(X, X[:, 0]).predict(X[:50])


def classes():
    X = rng_of(1).standard_normal((1100, 120))
    return GPClassifier(**short).fit(X, np.digitize(X[:, 0], [-0.5, 0.5])).predict_proba(X[:50])


def outputs():
    X = rng_of(2).standard_normal((150, 3))
    return GPRegressor(**short).fit(X, X @ rng_of(3).standard_normal((3, 14))).predict(X[:50])


def rng_of(seed):
    return np.random.default_rng(seed)


def child(make, expected, sender):
    sender.send(bool(np.array_equal(make(), expected)))


for make in (wide, classes, outputs):
    expected = make()  # threads and BLAS have been used
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(make, expected, sender))
    process.start()
    answer = receiver.recv() if receiver.poll(100) else "hangs"
    if answer == "hangs":
        process.kill()
    process.join()
    print(make.__name__, answer)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_child_fits_as_its_parent_did():
    """Many columns, many classes' columns and many outputs, where matrix products are large enough for BLAS threads."""
    done = subprocess.run(
        [sys.executable, "-c", FITS_IN_PARENT_AND_CHILD],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "NEARFIELD_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["wide", "True", "classes", "True", "outputs", "True"]


FORKED_IN_AN_UPDATE = """
import multiprocessing
import threading

import numpy as np

from nearfield import GPRegressor, fitting

X = np.random.default_rng(0).standard_normal((60, 2))
model = GPRegressor(k=8, max_steps=20, refresh_every=10, random_state=0).fit(X, X[:, 0])
extended, inside, leave = fitting.Fit.extended, threading.Event(), threading.Event()


def slow(*rest):
    inside.set()
    leave.wait(300)
    return extended(*rest)


def child(sender):
    fitting.Fit.extended = extended
    sender.send(model.update(X[:5], X[:5, 0]).n_rows_)


fitting.Fit.extended = slow
thread = threading.Thread(target=lambda: model.update(X[:3], X[:3, 0]))
thread.start()
inside.wait()
context = multiprocessing.get_context("fork")
receiver, sender = context.Pipe(duplex=False)
process = context.Process(target=child, args=(sender,))
process.start()
answer = receiver.recv() if receiver.poll(60) else "hangs"
if answer == "hangs":
    process.kill()
process.join()
leave.set()
thread.join()
print(answer, model.n_rows_)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_child_forked_while_a_thread_updates_can_update_too():
    done = subprocess.run([sys.executable, "-c", FORKED_IN_AN_UPDATE], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["65", "63"]
