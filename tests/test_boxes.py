"""Boxes that were cut once serve every metric: the same bits as brute force in the bent and stretched columns."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from nearfield.neighbours import SearchedRows, as_they_are, build_index, find_equal_rows
from nearfield.neighbours._box_search import limit_of_codes
from nearfield.neighbours._panels import BLOCK, near_boxes, near_codes
from nearfield.neighbours.boxes import Boxes, BoxIndex
from nearfield.warps import Metric, Warps


def skewed(n, d, seed=0):
    """Columns that bend, one of flags, and some rows twice."""
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.standard_normal((n, d)))
    rows[:, -1] = rng.integers(0, 2, n)
    rows[: n // 10] = rows[n // 2 : n // 2 + n // 10]
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def metrics(rows):
    rng = np.random.default_rng(1)
    n, d = rows.shape
    warps = Warps.of(rows, np.ones(n), np.ones(d, dtype=bool))
    assert len(warps) == d - 1
    yield "plain", Metric.of(np.ones(d))
    yield "stretched", Metric.of(np.exp(rng.normal(0, 1, d)))
    yield "a column that hardly counts", Metric.of(np.where(np.arange(d) == 0, 1e6, 1.0))
    for name, size in (("bent", 0.5), ("bent all the way", 20.0)):
        yield name, Metric.of(np.exp(rng.normal(0, 1, d)), warps, np.full((d - 1, 2), size))


@pytest.mark.parametrize("d", [2, 4, 9])
def test_every_metric_is_searched_exactly(d):
    rows = skewed(3000, d)
    equal = find_equal_rows(rows)
    once = Boxes(rows, equal, np.ones(d))
    which = np.arange(0, 3000, 7)
    for name, metric in metrics(rows):
        at = metric.apply(rows)
        expected = build_index(at, "direct").query(at[which], 33, which)
        anew = SearchedRows(rows, equal)
        for index in (BoxIndex(once, metric), anew.index(metric), anew.index(metric, kind="product")):
            for part in (slice(None), slice(0, 5)):  # all boxes are bent at once, or some as they are visited
                found = index.query(at[which[part]], 33, which[part])
                np.testing.assert_array_equal(found.ids, expected.ids[part], err_msg=name)
                np.testing.assert_array_equal(found.sqdist, expected.sqdist[part], err_msg=name)


def test_a_metric_puts_rows_where_the_kernel_sees_them():
    rows = skewed(500, 3)
    warps = Warps.of(rows, np.ones(500), np.ones(3, dtype=bool))
    bends, lengths = np.array([[0.3, -1.0], [2.0, 0.5]]), np.array([0.5, 2.0, 3.0])
    found = Metric.of(lengths, warps, bends).apply(rows)
    np.testing.assert_array_equal(found, warps.coordinates(rows, bends) / lengths)


def test_boxes_are_cut_anew_only_where_columns_were_stretched_a_lot():
    rows = skewed(2000, 4)
    searched = SearchedRows(rows, find_equal_rows(rows))
    first = searched.boxes(np.ones(4))
    assert searched.boxes(np.array([1.0, 2.0, 1.5, 1.0])) is first
    assert searched.boxes(np.full(4, 1e3)) is first
    other = searched.boxes(np.array([1.0, 1.0, 1.0, 50.0]))
    assert other is not first
    assert searched.boxes(np.array([1.0, 1.0, 1.0, 60.0])) is other


def test_a_search_that_gives_up_finds_rows_that_are_there():
    """What it finds is no nearer than the nearest; looking at everything finds those."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((6000, 6))
    which = np.arange(0, 6000, 50)
    boxes, metric = Boxes(rows, find_equal_rows(rows), np.ones(6)), Metric.of(np.ones(6))
    exact = BoxIndex(boxes, metric).query(rows[which], 16, which)
    recalls = []
    for most in (4, 32, 10_000):
        found = BoxIndex(boxes, metric, most=most).query(rows[which], 16, which)
        assert (found.sqdist >= exact.sqdist).all()
        by_hand = ((rows[found.ids] - rows[which][:, None]) ** 2).sum(axis=2)
        np.testing.assert_allclose(found.sqdist, by_hand, rtol=1e-12)
        recalls.append(np.mean([np.isin(a, b).mean() for a, b in zip(exact.ids, found.ids, strict=True)]))
    assert recalls[0] < recalls[1] < recalls[2] == 1.0


def test_the_points_that_are_looked_at_are_counted():
    rows = np.random.default_rng(4).random((20_000, 2))
    index, some = build_index(rows, "boxes"), np.arange(8)
    looked = index.looked_at(rows[some], 64, some, 1e9)
    assert 64 <= looked < 2000
    everywhere = build_index(np.random.default_rng(5).standard_normal((5000, 40)), "boxes")
    assert everywhere.looked_at(np.zeros((3, 40)), 64, np.full(3, -1), 1e9) == pytest.approx(5000, rel=0.2)
    assert everywhere.looked_at(np.zeros((3, 40)), 64, np.full(3, -1), 500) < 700


def awkward(kind, n, d):
    """Rows that make trouble for what is told in bytes and float32."""
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((n, d))
    if kind == "ties":
        return rng.integers(0, 3, (n, d)).astype(np.float64)
    if kind == "huge":
        return 1e60 * rows
    if kind == "tiny":
        return 1e-25 * rows
    if kind == "hardly anything":
        return 1e-170 * rows  # squares vanish in float64
    if kind == "far from zero":
        return 1e7 + rows
    if kind == "wide and narrow":
        return rows * np.logspace(-12, 3, d)
    if kind == "wild":
        rows[:3] *= 1e15
    if kind == "a column of one value":
        rows[:, 0] = 0.1
    return rows


AWKWARD = ["normal", "ties", "huge", "tiny", "hardly anything", "far from zero", "wide and narrow", "wild"]
AWKWARD += ["a column of one value"]


@njit
def hits_of(query, low, high, codes, leaf, last):
    """The mask of what codes take for near."""
    d, far, across = query.size, np.empty(BLOCK), np.empty(BLOCK)
    offsets, steps = np.empty(d * BLOCK, dtype=np.float32), np.empty(d * BLOCK, dtype=np.float32)
    near_boxes(query, low.reshape(-1), high.reshape(-1), leaf // BLOCK, d, last, far, across, offsets, steps)
    limit = limit_of_codes(last, across[leaf % BLOCK], d)
    return near_codes(codes.reshape(-1), leaf, d, offsets, steps, leaf % BLOCK, limit)


@pytest.mark.parametrize("kind", AWKWARD)
def test_codes_pass_over_no_point_within_the_limit(kind):
    """Not even where the limit is the distance of the point itself."""
    for d in (1, 8, 33):
        rows = awkward(kind, 3000, d)
        index = BoxIndex(Boxes(rows, find_equal_rows(rows), np.ones(d)), as_they_are(d))
        index._prepare(10**9)
        (placed, codes), (low, high) = index._placed, index._tree[6:8]
        some, missed, passed = np.random.default_rng(7).integers(0, len(placed), 40), 0, 0
        for query in rows[::600]:
            for leaf in some:
                distance = np.zeros(placed.shape[2])
                for column, q in zip(placed[leaf], query, strict=True):
                    distance += (q - column) ** 2
                for last in distance[np.isfinite(distance)][::5]:
                    mask = int(hits_of(query, low, high, codes, leaf, last))
                    hits = np.array([mask >> c & 1 for c in range(len(distance))], dtype=bool)
                    missed += np.count_nonzero(~hits & (distance <= last))
                    passed += np.count_nonzero(~hits & (distance > last))
        assert missed == 0
        assert passed > 0 or kind not in ("normal", "far from zero")  # which is what they are there for


@pytest.mark.parametrize("kind", AWKWARD)
@pytest.mark.parametrize("d", [1, 8, 33])
def test_awkward_rows_are_searched_exactly(kind, d):
    rows = awkward(kind, 4000, d)
    rows[-300:] = rows[:300]
    which = np.arange(0, 4000, 17)
    for k in (1, 40, 150):
        expected = build_index(rows, "direct").query(rows[which], k, which)
        index = build_index(rows, "boxes")
        for size in (100, len(which)):  # the second time all leaves have codes
            found = index.query(rows[which[:size]], k, which[:size])
            np.testing.assert_array_equal(found.ids, expected.ids[:size])
            np.testing.assert_array_equal(found.sqdist, expected.sqdist[:size])
        assert len(index._placed[1]) > 0 or d == 1
