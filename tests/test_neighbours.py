"""Neighbour search against float64 brute force written another way: every comparison is bitwise."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nearfield.neighbours import EqualRows, build_index, find_equal_rows, neighbour_table, order_key
from nearfield.neighbours.copies import copied_share, near_copies
from nearfield.neighbours.product import ProductCandidates, _keep_smallest, _key, _search_dense, _search_sparse, _sum_of

KINDS = ["boxes", "product", "direct", "auto"]


def brute_force(rows, queries, k, exclude=None):
    """ids, sqdist (b, k) by lexsort on (squared distance, row id)."""
    b = len(queries)
    ids, sqdist = np.full((b, k), -1), np.full((b, k), np.inf)
    for i in range(b):
        distance = np.zeros(len(rows))
        for j in range(rows.shape[1]):
            distance += (queries[i, j] - rows[:, j]) ** 2
        keep = np.arange(len(rows))
        if exclude is not None:
            keep = keep[keep != exclude[i]]
        order = keep[np.lexsort((keep, distance[keep]))][:k]
        ids[i, : order.size], sqdist[i, : order.size] = order, distance[order]
    return ids, sqdist


def check(rows, queries, k, exclude=None, kinds=KINDS):
    ids, sqdist = brute_force(rows, queries, k, exclude)
    for kind in kinds:
        table = build_index(rows, kind=kind).query(queries, k, exclude)
        np.testing.assert_array_equal(table.ids, ids, err_msg=kind)
        np.testing.assert_array_equal(table.sqdist, sqdist, err_msg=kind)


def lattice(side, d):
    axes = np.meshgrid(*[np.arange(side, dtype=float)] * d, indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


def make_duplicates(rng):
    rows = rng.normal(size=(900, 5))
    return np.concatenate([rows, rows[rng.integers(0, 60, size=2100)]])[rng.permutation(3000)]


def make_clusters(rng):
    return rng.normal(size=(2000, 3)) * 1e-3 + 1e6 * rng.integers(0, 2, size=(2000, 1))


def make_map(rng):
    return np.array([5e5, 5e6]) + np.round(rng.uniform(0, 200, size=(2000, 2)), 1)


def make_constant_columns(rng):
    rows = rng.normal(size=(1500, 6))
    rows[:, [0, 3]] = [1e8, -2.5]
    return rows


def make_outlier(rng):
    rows = rng.normal(size=(1500, 4))
    rows[700] = 1e7
    return rows


def make_binary(rng):
    return rng.integers(0, 2, size=(3000, 14)).astype(float)


def make_indicators(rng):
    """Twelve categories of five values each, and two columns of numbers: most coordinates are zero."""
    values = np.minimum(rng.integers(0, 9, size=(2500, 12)), 4)
    return np.concatenate([np.eye(5)[values].reshape(2500, 60), rng.normal(size=(2500, 2))], axis=1)


def make_scaled_indicators(rng):
    rows = make_indicators(rng)
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def make_sorted_clusters(rng):
    """Near rows lie together in the table, so that a few tiles tell little about the others."""
    return np.repeat(rng.normal(size=(40, 6)), 80, axis=0) + 1e-3 * rng.normal(size=(3200, 6))


TABLES = {
    "duplicates": make_duplicates,
    "all rows equal": lambda rng: np.ones((1500, 3)),
    "lattice 1-D": lambda rng: lattice(1500, 1)[rng.permutation(1500)],
    "lattice 2-D": lambda rng: lattice(40, 2)[rng.permutation(1600)],
    "lattice 3-D": lambda rng: lattice(13, 3)[rng.permutation(13**3)],
    "scaled lattice": lambda rng: lattice(13, 3)[rng.permutation(13**3)] / [0.3, 0.7, 1.1],
    "map coordinates": make_map,
    "two far tight clusters": make_clusters,
    "constant columns": make_constant_columns,
    "one far outlier": make_outlier,
    "binary": make_binary,
    "indicators": make_indicators,
    "scaled indicators": make_scaled_indicators,
    "sorted clusters": make_sorted_clusters,
    "tiny": lambda rng: rng.normal(size=(1500, 3)) * 1e-170,
    "denormal squares": lambda rng: rng.normal(size=(1500, 3)) * 1e-160,
    "huge": lambda rng: rng.normal(size=(1500, 3)) * 1e150,
}


@pytest.mark.parametrize("k", [1, 10, 64])
@pytest.mark.parametrize("name", TABLES)
def test_equals_brute_force_with_self_left_out(name, k):
    rng = np.random.default_rng(1)
    rows = TABLES[name](rng)
    exclude = rng.integers(0, len(rows), size=60)
    check(rows, rows[exclude], k, exclude)


@pytest.mark.parametrize("name", TABLES)
def test_equals_brute_force_on_new_queries(name):
    rng = np.random.default_rng(2)
    rows = TABLES[name](rng)
    queries = (rows[rng.integers(0, len(rows), 40)] + rows[rng.integers(0, len(rows), 40)]) / 2.0
    check(rows, queries, 12)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 16, 30, 100])
def test_equals_brute_force_in_every_dimension(d):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(2500, d))
    exclude = rng.integers(0, 2500, size=50)
    check(rows, rows[exclude], 32, exclude)
    check(rows, rng.normal(size=(50, d)) * 3.0, 32)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 5), (2, 2), (7, 20), (300, 299), (300, 300), (300, 500)])
def test_more_neighbours_than_rows(n, k):
    rows = np.random.default_rng(3).normal(size=(n, 2))
    check(rows, rows, k, np.arange(n))
    check(rows, rows + 0.1, k)


def test_places_without_a_row_are_marked():
    table = neighbour_table(np.zeros((1, 2)), np.zeros((1, 2)), 2, exclude=np.array([0]))
    assert table.ids.tolist() == [[-1, -1]]
    assert np.isinf(table.sqdist).all()


@pytest.mark.parametrize("kind", KINDS)
def test_lowest_ids_among_many_duplicates(kind):
    rows = np.concatenate([np.random.default_rng(4).normal(size=(500, 3)), np.zeros((1000, 3))])
    table = build_index(rows, kind=kind).query(np.zeros((2, 3)), 10, exclude=np.array([503, -1]))
    assert table.ids[0].tolist() == [500, 501, 502, *range(504, 511)]
    assert table.ids[1].tolist() == list(range(500, 510))


@pytest.mark.parametrize("kind", KINDS)
def test_far_queries(kind):
    rng = np.random.default_rng(5)
    check(
        rng.normal(size=(1500, 4)),
        rng.normal(size=(30, 4)) * 10.0 ** rng.integers(0, 60, size=(30, 1)),
        9,
        kinds=[kind],
    )


@pytest.mark.parametrize("name", ["duplicates", "lattice 3-D", "two far tight clusters", "binary", "indicators"])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_size_and_order_do_not_matter(name, kind):
    rng = np.random.default_rng(6)
    rows = TABLES[name](rng)
    index = build_index(rows, kind=kind)
    exclude = rng.integers(0, len(rows), size=700)
    whole = index.query(rows[exclude], 20, exclude)
    for i in range(0, 700, 7):
        single = index.query(rows[exclude[i : i + 1]], 20, exclude[i : i + 1])
        assert np.array_equal(single.ids[0], whole.ids[i])
        assert np.array_equal(single.sqdist[0], whole.sqdist[i])
    order = rng.permutation(700)
    mixed = index.query(rows[exclude[order]], 20, exclude[order])
    assert np.array_equal(mixed.ids, whole.ids[order])
    assert np.array_equal(mixed.sqdist, whole.sqdist[order])


@pytest.mark.parametrize("kind", KINDS)
def test_small_blocks_change_nothing(kind, monkeypatch):
    rows = make_binary(np.random.default_rng(7))
    index = build_index(rows, kind=kind)
    whole = index.query(rows[:300], 20, np.arange(300))
    monkeypatch.setattr("nearfield.neighbours._index.BLOCK_NUMBERS", 1500)
    blocks = index.query(rows[:300], 20, np.arange(300))
    assert np.array_equal(blocks.ids, whole.ids)
    assert np.array_equal(blocks.sqdist, whole.sqdist)


@settings(max_examples=60, deadline=None)
@given(
    rows=arrays(np.int64, st.tuples(st.integers(1, 120), st.integers(1, 3)), elements=st.integers(-3, 3)),
    k=st.integers(1, 12),
    shift=st.sampled_from([0.0, 0.5, 1e7]),
)
def test_equals_brute_force_on_small_integers(rows, k, shift):
    rows = rows + shift
    exclude = np.arange(len(rows))
    check(rows, rows, k, exclude, kinds=["boxes", "product"])


@pytest.mark.parametrize("kind", ["boxes", "product", "direct"])
def test_answers_do_not_depend_on_the_number_of_threads(kind, monkeypatch):
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 6, size=(2000, 4)).astype(float)  # many ties
    tables = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        tables.append(build_index(rows, kind=kind).query(rows[:700], 20, np.arange(700)))
    for table in tables[1:]:
        np.testing.assert_array_equal(table.ids, tables[0].ids)
        np.testing.assert_array_equal(table.sqdist, tables[0].sqdist)


@pytest.mark.parametrize("kind", ["boxes", "product", "direct"])
def test_calls_from_several_threads(kind):
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(4000, 6))
    index = build_index(rows, kind=kind)
    expected = index.query(rows[:800], 16, np.arange(800))
    with ThreadPoolExecutor(6) as pool:
        tables = list(pool.map(lambda _: index.query(rows[:800], 16, np.arange(800)), range(12)))
    assert all(np.array_equal(table.ids, expected.ids) for table in tables)


def query_in_a_child(index, rows, expected):
    table = index.query(rows, 16, np.arange(len(rows)))
    assert np.array_equal(table.ids, expected.ids)
    again = build_index(rows, kind=index.kind).query(rows, 16, np.arange(len(rows)))
    assert np.array_equal(again.ids, expected.ids)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.parametrize("kind", ["boxes", "product", "direct"])
def test_a_forked_process_searches_too(kind, monkeypatch):
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    rows = np.random.default_rng(16).normal(size=(1500, 6))
    index = build_index(rows, kind=kind)
    expected = index.query(rows, 16, np.arange(1500))  # the parent's threads have run
    child = multiprocessing.get_context("fork").Process(target=query_in_a_child, args=(index, rows, expected))
    child.start()
    child.join(60)
    code = child.exitcode
    if code is None:
        child.kill()
    assert code == 0


# --- candidates -----------------------------------------------------------------------------------------------------


def product(rows):
    return ProductCandidates(rows, np.stack([rows.min(axis=0), rows.max(axis=0)]))


@pytest.mark.parametrize("name", TABLES)
def test_no_unnamed_point_lies_within_the_reach(name):
    rng = np.random.default_rng(9)
    rows = np.unique(TABLES[name](rng), axis=0)
    rows = rows[rng.permutation(len(rows))]
    queries = np.concatenate([rows[rng.integers(0, len(rows), size=40)], rows[:10] * 1.3])
    candidates, reach = product(rows).nearest(queries, min(15, len(rows)))
    for i, query in enumerate(queries):
        assert np.unique(candidates[i]).size == candidates.shape[1]
        others = np.delete(rows, candidates[i], axis=0)
        assert (((others - query) ** 2).sum(axis=1) >= reach[i] * (1.0 - 1e-14)).all()


def test_ordinary_rows_are_settled_at_the_first_attempt():
    rng = np.random.default_rng(10)
    for rows in (rng.normal(size=(3000, 8)), make_scaled_indicators(rng)):
        _, reach = product(rows).nearest(rows[:200], 73)
        _, sqdist = brute_force(rows, rows[:200], 64)
        assert (sqdist[:, -1] < reach).mean() > 0.95


def test_what_float32_cannot_tell_is_left_to_brute_force():
    rows = make_clusters(np.random.default_rng(18))
    _, reach = product(rows).nearest(rows[:100], 30)
    assert (reach <= 0.0).all()
    check(rows, rows[:100], 20, np.arange(100), kinds=["product"])


@pytest.mark.parametrize(
    ("name", "search"),
    [("indicators", _search_sparse), ("scaled indicators", _search_sparse), ("outlier", _search_dense)],
)
def test_columns_that_are_mostly_equal_are_passed_over(name, search):
    rng = np.random.default_rng(19)
    rows = make_outlier(rng) if name == "outlier" else TABLES[name](rng)
    assert product(rows)._search is search
    # Queries without any such column are answered as well.
    check(rows, rng.normal(size=(40, rows.shape[1])), 12, kinds=["product"])


def test_a_wrong_guess_of_the_limit_is_found_out():
    rows = make_sorted_clusters(np.random.default_rng(20))
    source, guesses = product(rows), []
    search = source._search

    def spy(*arguments):
        guesses.append(arguments[-1])
        search(*arguments)

    source._search = spy
    candidates, _ = source.nearest(rows[::7], 60)
    assert guesses.count(False) > 0
    for query, ids in zip(rows[::7], candidates, strict=True):
        assert set(ids[:40]) <= set(np.argsort(((rows - query) ** 2).sum(axis=1))[:80])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 300), data=st.data())
def test_the_smallest_keys_are_kept(seed, size, data):
    keys = np.random.default_rng(seed).permutation(np.arange(size, dtype=np.int64) - size // 2)
    count = data.draw(st.integers(1, size))
    _keep_smallest(keys, size, count)
    assert sorted(keys) == list(range(-(size // 2), size - size // 2))
    assert keys[count - 1] == keys[:count].max() == count - 1 - size // 2


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_keys_are_ordered_as_the_sums_are(numbers):
    sums = np.array(numbers, dtype=np.float32)
    keys = [_key(bits, point) for point, bits in enumerate(sums.view(np.int32))]
    assert [_sum_of(key) for key in keys] == list(sums)
    in_order = sums[np.argsort(keys)]
    assert (in_order[:-1] <= in_order[1:]).all()


# --- equal rows -----------------------------------------------------------------------------------------------------


def test_equal_rows_are_found():
    rows = np.array([[1.0, 2.0], [0.0, 3.0], [1.0, 2.0], [-0.0, 3.0], [5.0, 5.0], [1.0, 2.0]])
    equal = find_equal_rows(rows)
    assert equal.first.tolist() == [0, 1, 4]
    assert [part.tolist() for part in np.split(equal.members, equal.starts[1:-1])] == [[0, 2, 5], [1, 3], [4]]


def test_equal_rows_have_equal_keys_wherever_they_stand():
    rng = np.random.default_rng(21)
    rows = make_duplicates(rng)
    keys, order = order_key(rows), rng.permutation(len(rows))
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(order_key(rows[order]), keys[order])
    np.testing.assert_array_equal(order_key(np.asfortranarray(rows)), keys)
    assert np.unique(keys).size == len(find_equal_rows(rows))
    assert order_key(np.array([[0.0]])) == order_key(np.array([[-0.0]]))


def test_equal_rows_of_the_unscaled_table_serve_after_scaling():
    rng = np.random.default_rng(11)
    rows = make_duplicates(rng)
    equal, scaled = find_equal_rows(rows), rows / rng.uniform(0.1, 3.0, size=5)
    assert len(equal) < 1000
    table = build_index(scaled, equal_rows=equal).query(scaled[:50], 20, np.arange(50))
    ids, sqdist = brute_force(scaled, scaled[:50], 20, np.arange(50))
    assert np.array_equal(table.ids, ids)
    assert np.array_equal(table.sqdist, sqdist)


def test_equal_rows_that_count_as_different_change_nothing():
    rows = np.repeat(np.random.default_rng(12).normal(size=(400, 2)), 3, axis=0)
    one_each = EqualRows(np.arange(1200), np.arange(1201), np.arange(1200))
    for kind in ("boxes", "product", "direct"):
        split = build_index(rows, kind=kind, equal_rows=one_each).query(rows[:99], 10, np.arange(99))
        assert np.array_equal(split.ids, build_index(rows, kind=kind).query(rows[:99], 10, np.arange(99)).ids)


# --- the choice -----------------------------------------------------------------------------------------------------


def test_the_choice_follows_the_rows_not_their_columns():
    rng = np.random.default_rng(13)
    rows = rng.normal(size=(5000, 20))
    surface = np.sin(rng.uniform(-1.0, 1.0, size=(5000, 2)) @ rng.normal(size=(2, 40)) * 3.0)
    assert build_index(rows).kind == "product"
    assert build_index(rows * ([1.0] * 2 + [1e-4] * 18)).kind == "boxes"
    noise = rng.normal(size=surface.shape)
    assert build_index(surface + 0.05 * noise).kind == "boxes"
    assert build_index(surface + 1.0 * noise).kind == "product"
    assert build_index(rows[:, :3]).kind == "boxes"


@pytest.mark.parametrize("kind", KINDS)
def test_overflow_is_refused(kind):
    rows = np.random.default_rng(14).normal(size=(2000, 6))
    with pytest.raises(ValueError, match="overflow"):
        build_index(rows * 1e160, kind=kind)
    with pytest.raises(ValueError, match="overflow"):
        build_index(rows, kind=kind).query(np.full((1, 6), 1e160), 3)
    with pytest.raises(ValueError, match="overflow"):
        build_index(rows, kind=kind).query(np.full((1, 6), np.nan), 3)


def test_wrong_arguments_are_named():
    rows = np.random.default_rng(15).normal(size=(50, 2))
    index = build_index(rows)
    with pytest.raises(ValueError, match=r"\(b, 2\)"):
        index.query(np.zeros((3, 4)), 2)
    with pytest.raises(ValueError, match="one row id per query"):
        index.query(rows, 2, exclude=np.arange(3))
    with pytest.raises(ValueError, match="0 to 49"):
        index.query(rows[:1], 2, exclude=np.array([50]))
    with pytest.raises(ValueError, match="k is 0"):
        index.query(rows, 0)
    with pytest.raises(ValueError, match="at least one row"):
        build_index(np.empty((0, 3)))
    with pytest.raises(ValueError, match="expected one of"):
        build_index(rows, kind="ball")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="equal_rows do not fit"):
        build_index(rows, equal_rows=find_equal_rows(np.zeros((50, 2))))
    with pytest.raises(ValueError, match="equal_rows do not fit"):
        build_index(rows, equal_rows=find_equal_rows(rows[:49]))


def test_no_queries():
    table = build_index(np.zeros((4, 2))).query(np.empty((0, 2)), 3)
    assert table.ids.shape == table.sqdist.shape == (0, 3)


# --- near copies ----------------------------------------------------------------------------------------------------


def replicated(copies, n=150, noise=0.01):
    """Rows (n * copies, 3), each `copies` times with a little noise, and their labels."""
    rng = np.random.default_rng(0)
    again = np.tile(np.arange(n), copies)
    return rng.uniform(-2.0, 2.0, size=(n, 3))[again] + noise * rng.standard_normal((n * copies, 3)), again


@pytest.mark.parametrize("copies", [2, 3])
def test_near_copies_are_found(copies):
    rows, labels = replicated(copies)
    found = near_copies(build_index(rows), rows).labels
    same = found[:, None] == found[None]
    assert (same == (labels[:, None] == labels[None])).mean() > 0.999
    assert copied_share(build_index(rows), rows[::3], np.arange(0, len(rows), 3))[0] > 0.9


def test_rows_at_random_and_equal_rows_are_no_copies():
    rng = np.random.default_rng(0)
    for rows in (rng.random((300, 1)), rng.random((300, 5)), np.repeat(rng.random((50, 3)), 6, axis=0)):
        assert copied_share(build_index(rows), rows, np.arange(len(rows)))[0] < 0.4
    assert (np.bincount(near_copies(build_index(rows), rows).labels) == 1).all()
    for n in (1, 2, 3):
        assert len(near_copies(build_index(rows[:n]), rows[:n]).labels) == n
