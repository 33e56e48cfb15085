"""Neighbours among the rows that a row may be predicted from, against brute force: every comparison is bitwise."""

from __future__ import annotations

import numpy as np
import pytest

from nearfield.neighbours import Hidden, build_index


def seen(hidden, row):
    """Which rows (n,) the row may see."""
    n = next(len(part) for part in (hidden.groups, hidden.times, hidden.spots) if part is not None)
    found = np.ones(n, dtype=bool)
    if hidden.groups is not None:
        found &= hidden.groups != hidden.groups[row]
    if hidden.times is not None:
        found &= hidden.times < hidden.times[row]
    if hidden.spots is not None:
        found &= ((hidden.spots - hidden.spots[row]) ** 2).sum(axis=1) > 1
    return found


def brute_force(rows, queries, k, hidden, asking):
    """ids, sqdist (b, k) by lexsort on (squared distance, row id)."""
    ids, sqdist = np.full((len(queries), k), -1), np.full((len(queries), k), np.inf)
    for i, row in enumerate(asking):
        distance = np.zeros(len(rows))
        for j in range(rows.shape[1]):
            distance += (queries[i, j] - rows[:, j]) ** 2
        allowed = np.flatnonzero(seen(hidden, row))
        nearest = allowed[np.lexsort((allowed, distance[allowed]))][:k]
        ids[i, : nearest.size], sqdist[i, : nearest.size] = nearest, distance[nearest]
    return ids, sqdist


def tables():
    rng = np.random.default_rng(0)
    yield "one row", rng.random((1, 1))
    yield "few rows", rng.random((5, 2))
    yield "ties", rng.integers(0, 6, (700, 2)).astype(float)
    yield "copies", np.repeat(rng.random((40, 3)), 20, axis=0)
    yield "all equal", np.ones((400, 2))
    yield "many columns", rng.standard_normal((600, 20))
    yield "constant column", np.column_stack([rng.random(500), np.zeros(500)])
    yield "huge and tiny", rng.standard_normal((500, 3)) * [1e140, 1.0, 1e-140]
    yield "a walk", rng.standard_normal((1500, 2)).cumsum(axis=0)


def restrictions(rows):
    rng = np.random.default_rng(1)
    n = len(rows)
    spread = rows.std(axis=0) + 1e-200
    spots = rows / spread * 3
    yield "groups", Hidden(groups=rng.integers(0, 5, n))
    yield "large groups", Hidden(groups=np.arange(n) // 300)
    yield "one group", Hidden(groups=np.zeros(n, dtype=np.int64))
    yield "a group of nearly all", Hidden(groups=np.where(rng.random(n) < 0.97, 7, np.arange(n)))
    yield "pairs", Hidden(groups=rng.permutation(n) // 2 - 3)
    yield "times", Hidden(times=rng.permutation(n).astype(float))
    yield "times that tie", Hidden(times=rng.integers(0, 4, n).astype(float))
    yield "buffer", Hidden(spots=spots)
    yield "all", Hidden(rng.integers(0, 3, n), rng.integers(0, 50, n).astype(float), spots[:, :1])


@pytest.mark.parametrize(("name", "rows"), list(tables()), ids=lambda part: part if isinstance(part, str) else "")
def test_restricted_search_equals_brute_force(name, rows):
    which = np.arange(0, len(rows), max(1, len(rows) // 60))
    for _, hidden in restrictions(rows):
        kinds = ("auto", "boxes", "product", "direct") if hidden.by_groups else ("auto",)
        for kind in kinds:
            index = build_index(rows, kind, hidden=hidden)
            assert kind in ("auto", index.kind)
            for k in (1, 6, 40):
                found = index.query(rows[which], k, which)
                ids, sqdist = brute_force(rows, rows[which], k, hidden, which)
                np.testing.assert_array_equal(found.ids, ids)
                np.testing.assert_array_equal(found.sqdist, sqdist)


@pytest.mark.parametrize(("name", "rows"), list(tables()), ids=lambda part: part if isinstance(part, str) else "")
def test_without_a_restriction_it_is_the_index(name, rows):
    """To the last bit; rows that are a group each are left out alone."""
    which = np.arange(len(rows))
    index = build_index(rows)
    for hidden, exclude in ((Hidden(), None), (Hidden(groups=which), which)):
        found = build_index(rows, hidden=hidden).query(rows, 9, exclude if hidden.groups is None else which)
        expected = index.query(rows, 9, exclude)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.sqdist, expected.sqdist)


@pytest.mark.parametrize("kind", ["boxes", "product", "direct"])
def test_queries_elsewhere_are_restricted_by_the_row_that_asks(kind):
    rng = np.random.default_rng(2)
    rows, groups, asking = rng.random((800, 3)), rng.integers(0, 3, 800), rng.integers(-1, 800, 90)
    queries = rng.random((90, 3)) * 1.5
    hidden = Hidden(groups=np.append(groups, -1))  # of nobody who asks: -1 sees all rows
    found = build_index(rows, kind, hidden=Hidden(groups=groups)).query(queries, 30, asking)
    padded = np.vstack([rows, np.full(3, 1e9)])
    np.testing.assert_array_equal(found.ids, brute_force(padded, queries, 30, hidden, asking)[0])


@pytest.mark.parametrize("kind", ["product", "direct"])
def test_groups_of_rows_most_of_whose_columns_are_zero(kind):
    """Where each query visits its own columns only, and groups begin and end amid panels."""
    rng = np.random.default_rng(4)
    rows = np.eye(6)[np.minimum(rng.integers(0, 9, (1500, 7)), 5)].reshape(1500, 42)
    rows[:, 0] += rng.standard_normal(1500)
    hidden, which = Hidden(groups=rng.integers(0, 9, 1500) ** 2), rng.permutation(1500)[:200]
    found = build_index(rows, kind, hidden=hidden).query(rows[which], 20, which)
    ids, sqdist = brute_force(rows, rows[which], 20, hidden, which)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.sqdist, sqdist)


def test_large_groups_are_searched_by_brute_force_where_that_is_faster():
    rng = np.random.default_rng(5)
    rows, which = rng.standard_normal((12_000, 30)), np.arange(0, 12_000, 400)
    hidden = Hidden(groups=np.arange(12_000) % 5)
    index = build_index(rows, hidden=hidden)
    assert index.kind == "product"
    found, boxes = (of.query(rows[which], 50, which) for of in (index, build_index(rows, "boxes", hidden=hidden)))
    np.testing.assert_array_equal(found.ids, boxes.ids)
    np.testing.assert_array_equal(found.sqdist, boxes.sqdist)


def test_times_and_buffers_are_left_to_boxes():
    rows = np.random.default_rng(6).random((50, 2))
    with pytest.raises(ValueError, match="searched in boxes"):
        build_index(rows, "product", hidden=Hidden(times=np.arange(50.0)))


@pytest.mark.parametrize("kind", ["boxes", "product"])
def test_threads_and_batches_change_nothing(kind, monkeypatch):
    rng = np.random.default_rng(3)
    rows = rng.random((2000, 2))
    index, which = build_index(rows, kind, hidden=Hidden(groups=np.arange(2000) // 200)), rng.permutation(2000)
    monkeypatch.setenv("NEARFIELD_THREADS", "1")
    alone = index.query(rows[which], 20, which)
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    np.testing.assert_array_equal(index.query(rows[which], 20, which).ids, alone.ids)
    parts = [index.query(rows[which[i : i + 7]], 20, which[i : i + 7]).ids for i in range(0, 70, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), alone.ids[:70])


def test_no_queries_and_coordinates_that_overflow():
    index = build_index(np.zeros((4, 2)), hidden=Hidden())
    none = np.empty(0, dtype=np.int64)
    assert index.query(np.empty((0, 2)), 3, none).ids.shape == (0, 3)
    with pytest.raises(ValueError, match="overflow"):
        index.query(np.full((1, 2), 1e200), 1, np.zeros(1, dtype=np.int64))
