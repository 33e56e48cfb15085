"""What is done to all rows of a large table takes little memory: its result, or one array where it sorts."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from nearfield.families import FAMILIES
from nearfield.heads.regression import target_floor
from nearfield.neighbours import find_equal_rows
from nearfield.neighbours.copies import _count
from nearfield.numbering import numbers
from nearfield.rows import equal_rows, value_keys
from nearfield.scaling import Scaling
from nearfield.storage import Storage, moved
from nearfield.wild import tame

N = 2**19
RNG = np.random.default_rng(0)
X, Y, ONES = RNG.standard_normal((N, 2)).astype(np.float32), RNG.standard_normal(N), np.broadcast_to(1.0, N)
OBSERVED = {"y": Y, "weight": ONES, "known_noise": np.broadcast_to(0.0, N)}


def arrays_at_most(task):
    """The most memory that a task takes at a time, in arrays of one number a row."""
    task()  # compiled before it is looked at
    tracemalloc.start()
    try:
        found = task()
        return tracemalloc.get_traced_memory()[1] / Y.nbytes, found
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("task", "most"),
    [
        (lambda: find_equal_rows(X), 2.0),  # hashes, then numbers of rows
        (lambda: equal_rows(X, [Y]), 2.0),
        (lambda: tame(X, ONES), 1.0),  # a column
        (lambda: tame(Y[:, None], ONES), 1.0),
        (lambda: target_floor(Y), 1.0),
        (lambda: Scaling.of(X, ONES), 1.0),
        (lambda: Scaling.of(Y, ONES).apply(Y), 1.0),
        (lambda: value_keys(FAMILIES["gaussian"](), OBSERVED), 1.0),
    ],
    ids=["equal rows", "equal rows and targets", "columns", "target", "gaps", "scale", "standardised", "keys"],
)
def test_no_second_array_is_made(task, most):
    blocks, masks = 0.5, 0.3  # of 2^16 rows, and of flags
    assert arrays_at_most(task)[0] < most + blocks + masks


def test_targets_that_are_moved_take_no_memory(tmp_path):
    most, found = arrays_at_most(lambda: moved(OBSERVED, Storage(tmp_path)))
    assert most < 0.1
    np.testing.assert_array_equal(found["y"], Y)
    assert found["weight"] is ONES
    assert moved(OBSERVED, np.empty) is OBSERVED


def test_numbers_of_one_more_row_are_the_same_array():
    few, more = numbers(1000), numbers(1001)
    np.testing.assert_array_equal(few, np.arange(1000))
    np.testing.assert_array_equal(more, np.arange(1001))
    assert np.shares_memory(few, more)
    assert numbers(1000) is few
    np.testing.assert_array_equal(numbers(1002), np.arange(1002))


@pytest.mark.parametrize("values", [Y[:90_000], np.round(Y[:90_000], 1), np.zeros(5), np.zeros(0)])
def test_gaps_and_counts_are_those_of_sorted_values(values):
    gaps = np.diff(np.unique(values))
    assert target_floor(values) == (max(1e-4, 0.02 * float(np.median(gaps))) if gaps.size else 1e-4)
    keys = np.round(values * 10).astype(np.int64).astype(np.uint64)
    np.testing.assert_array_equal(_count(keys, keys[:50]), [(keys == key).sum() for key in keys[:50]])
