"""Rows that are appended one by one: the same bits as a model that had them from the start, and nobody's rows mixed."""

from __future__ import annotations

import copy
import pickle
from threading import Thread

import numpy as np
import pytest
from estimator_data import on_rows, quick, quick_classifier, small

from nearfield.growing import Growing, followed_by
from nearfield.neighbours import SearchedRows, build_index, find_equal_rows
from nearfield.warps import Metric

N, MORE = 700, 600


def observed(model, y):
    return {"y": model._target.apply(y), "weight": np.ones(len(y)), "known_noise": np.zeros(len(y))}


def predictions(model, X):
    return np.stack(model.predict(X, return_std=True))


# --- arrays ---------------------------------------------------------------------------------------------------------


def test_what_is_appended_moves_nothing_and_what_branches_off_is_apart():
    first = Growing(np.arange(5.0))
    then = first.followed_by(np.array([5.0]))
    longer = then.followed_by(np.array([6.0, 7.0]))
    assert np.shares_memory(then.values, longer.values)
    branch = then.followed_by(np.array([60.0]))
    assert not np.shares_memory(branch.values, longer.values)
    np.testing.assert_array_equal(first.values, np.arange(5.0))
    np.testing.assert_array_equal(then.values, np.arange(6.0))
    np.testing.assert_array_equal(longer.values, np.arange(8.0))
    np.testing.assert_array_equal(branch.values, [0, 1, 2, 3, 4, 5, 60])
    np.testing.assert_array_equal(longer.followed_by(np.zeros(0)).values, longer.values)


def test_room_doubles_so_that_rows_are_copied_a_few_times_only():
    grown, moved = Growing(np.zeros((1, 2))), 0
    for i in range(1, 5000):
        before = grown.values
        grown = grown.followed_by(np.full((1, 2), float(i)))
        moved += len(before) * (not np.shares_memory(before, grown.values))
    np.testing.assert_array_equal(grown.values[:, 1], np.arange(5000))
    assert moved < 4 * 5000


def test_a_room_that_is_of_other_rows_is_not_used():
    values = np.arange(4)
    rooms = {"x": Growing(np.arange(3)).followed_by(np.array([3]))}
    found = followed_by(rooms, "x", values, np.array([9]))
    np.testing.assert_array_equal(found.values, [0, 1, 2, 3, 9])
    assert followed_by({}, "x", values, np.array([0.5])).values.dtype == np.float64


def test_copies_have_no_room_in_which_others_write():
    grown = Growing(np.arange(3)).followed_by(np.array([3]))
    for other in (copy.deepcopy(grown), pickle.loads(pickle.dumps(grown))):
        np.testing.assert_array_equal(other.followed_by(np.array([7])).values, [0, 1, 2, 3, 7])
    assert len(pickle.dumps(Growing(np.arange(3)).followed_by(np.zeros(1, int)))) < 500
    np.testing.assert_array_equal(grown.followed_by(np.array([4])).values, np.arange(5))


# --- neighbours -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 6, 30])
def test_neighbours_among_rows_that_came_in_parts_are_those_of_all(d):
    """Also of rows that are equal, or equally far, whichever part they came with."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (6000, d)).astype(float) if d == 2 else rng.standard_normal((6000, d))
    rows[4000:4100] = rows[:100]
    metric = Metric.of(np.exp(rng.normal(0, 1, d)))
    searched, index = SearchedRows(rows[:3000], find_equal_rows(rows[:3000])), None
    for n in (3000, 3001, 3400, 3900, 4500, 4600, 5990, 6000):
        searched = searched.followed_by(rows[:n])
        index = searched.index(metric, earlier=index)
        expected = build_index(metric.apply(rows[:n]), "direct")
        which = np.append(np.arange(0, n, 211), n - 1)
        for k in (1, 20, 700):
            for left_out in (None, which):
                found = index.query(metric.apply(rows[which]), k, left_out)
                wanted = expected.query(metric.apply(rows[which]), k, left_out)
                np.testing.assert_array_equal(found.ids, wanted.ids)
                np.testing.assert_array_equal(found.sqdist, wanted.sqdist)
    assert index.n_rows == 6000
    few = searched.index(metric).query(metric.apply(rows[:3]), 6010)
    assert (few.ids[:, 6000:] == -1).all()
    assert np.isinf(few.sqdist[:, 6000:]).all()


def test_parts_are_few_however_many_rows_come():
    rows = np.random.default_rng(0).standard_normal((30_000, 2))
    metric, index = Metric.of(np.ones(2)), None
    searched, cut, before = SearchedRows(rows[:2000], find_equal_rows(rows[:2000])), 0, set()
    for n in range(2100, 30_001, 100):
        searched = searched.followed_by(rows[:n])
        index = searched.index(metric, earlier=index)
        parts = {(part.first, part.last) for part in searched._parts}
        cut, before = cut + sum(last - first for first, last in parts - before), parts
    assert len(searched._parts) <= 4
    assert cut < 40 * 30_000
    wanted = build_index(rows, "direct").query(rows[::500], 30)
    np.testing.assert_array_equal(index.query(rows[::500], 30).ids, wanted.ids)


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["never", "in between"])
@pytest.mark.parametrize("continuous", [True, False])
def test_one_by_one_equals_all_at_once(asked, continuous):
    """To the last bit, with many rows at the same places and ties."""
    X, y = small(N + MORE)
    X[::3] = np.round(X[::3], 1)
    model = quick(k=20, continuous=continuous).fit(X[:N], y[:N])
    X_new = np.concatenate([small(40, seed=3)[0], X[N : N + 20], X[:20]])
    grown = copy.deepcopy(model)
    for i in range(N, N + MORE):
        grown.update(X[i : i + 1], y[i : i + 1])
        if asked == "in between" and i % 37 == 0:
            now = on_rows(model, X[: i + 1], observed(model, y[: i + 1]))
            np.testing.assert_array_equal(predictions(grown, X_new), predictions(now, X_new))
    whole = on_rows(model, X, observed(model, y))
    np.testing.assert_array_equal(predictions(grown, X_new), predictions(whole, X_new))
    np.testing.assert_array_equal(grown.loo_.mean, whole.loo_.mean)
    assert (grown.n_rows_, grown.summary_.rows, grown.summary_.appended) == (N + MORE, N + MORE, MORE)
    np.testing.assert_array_equal(grown.explain(X_new[:5], 3).neighbours, whole.explain(X_new[:5], 3).neighbours)


def test_copies_that_are_updated_apart_have_their_own_rows():
    X, y = small(400)
    model = quick(k=10).fit(X[:300], y[:300]).update(X[300:301], y[300:301])
    model.predict(X)
    copies = [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)]
    before = predictions(model, X)
    for place, other in enumerate(copies):
        for i in range(301, 311):
            other.update(X[i : i + 1] + place, y[i : i + 1] - place)
        rows = np.concatenate([X[:301], X[301:311] + place])
        whole = on_rows(model, rows, observed(model, np.append(y[:301], y[301:311] - place)))
        np.testing.assert_array_equal(predictions(other, X), predictions(whole, X))
        assert len(other.loo_.mean) == 311
    np.testing.assert_array_equal(predictions(model, X), before)
    assert model.n_rows_ == 301


def test_predictions_in_other_threads_are_those_of_some_moment():
    X, y = small(900)
    model = quick(k=10).fit(X[:300], y[:300])
    X_new, found = X[:7], []
    moments = {predictions(model, X_new).tobytes()}

    def ask():
        while model.n_rows_ < 900:
            found.append(predictions(model, X_new))

    thread = Thread(target=ask)
    thread.start()
    for i in range(300, 900, 60):
        model.update(X[i : i + 60], y[i : i + 60])
    thread.join()
    for stop in range(300, 901, 60):
        moments.add(predictions(on_rows(model, X[:stop], observed(model, y[:stop])), X_new).tobytes())
    assert {one.tobytes() for one in found} <= moments


def test_an_update_that_fails_leaves_no_trace(monkeypatch):
    X, y = small(400)
    model = quick(k=10, likelihood="student_t").fit(X[:300], y[:300]).update(X[300:302], y[300:302])
    before = predictions(model, X)
    from nearfield.sweep import Sweeper

    def fails(*_, **__):
        raise FloatingPointError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Sweeper, "settled", fails)
        with pytest.raises(FloatingPointError, match="no"):
            model.update(X[302:310] + 5, y[302:310])
    np.testing.assert_array_equal(predictions(model, X), before)
    again = copy.deepcopy(model).update(X[302:], y[302:])
    np.testing.assert_array_equal(predictions(model.update(X[302:], y[302:]), X), predictions(again, X))
    assert model.n_rows_ == len(model.loo_.mean) == 400


def test_updates_through_a_file(tmp_path):
    X, y = small(330)
    model = quick(k=10).fit(X[:300], y[:300], sample_weight=np.where(np.arange(300) < 2, 0.0, 1.0))
    for i in range(300, 320):
        model.update(X[i : i + 1], y[i : i + 1])
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    for one in (model, loaded):
        for i in range(320, 330):
            one.update(X[i : i + 1], y[i : i + 1], sample_weight=[2.0])
    np.testing.assert_array_equal(predictions(model, X), predictions(loaded, X))
    numbers, came = loaded._row_numbers()
    assert came == 330
    np.testing.assert_array_equal(numbers, np.arange(2, 330))
    np.testing.assert_array_equal(loaded._shares[-10:], 2)


def test_groups_of_appended_rows_are_their_own():
    X, y = small(200)
    model = quick(k=10).fit(X[:150], y[:150], groups=np.arange(150) // 5)
    for i in range(150, 200):
        model.update(X[i : i + 1], y[i : i + 1])
    rows = model._fit.predictor.rows
    np.testing.assert_array_equal(rows.groups[150:], np.arange(30, 80))
    at_once = quick(k=10).fit(X[:150], y[:150], groups=np.arange(150) // 5).update(X[150:], y[150:])
    np.testing.assert_array_equal(model.loo_.mean, at_once.loo_.mean)


def test_classes_count_what_was_appended():
    X, y = small(200)
    labels = np.where(y > 0, "up", "down")
    model = quick_classifier(k=10).fit(X[:100], labels[:100])
    for i in range(100, 200):
        model.update(X[i : i + 1], labels[i : i + 1])
    np.testing.assert_array_equal(model.class_counts_, [np.sum(labels == name) for name in model.classes_])
    at_once = quick_classifier(k=10).fit(X[:100], labels[:100]).update(X[100:], labels[100:])
    np.testing.assert_array_equal(model.predict_proba(X), at_once.predict_proba(X))
    np.testing.assert_array_equal(model.loo_[0], at_once.loo_[0])
