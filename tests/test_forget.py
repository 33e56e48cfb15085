"""Rows that are forgotten: the same bits as a model of the others, nothing left in memory or in a file, errors."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cli_runs import failed, runner, short_training, write
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small

from nearfield import GPRegressor, neighbours
from nearfield import rows as rows_module
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.warps import Warps

GONE = np.array([3, 17, 40, 41, 99])


@pytest.fixture
def run(capsys):
    return runner(capsys)


def data(kind, n):
    """Inputs (n, 2) and targets (n, ..) of that kind."""
    if kind in ("classes", "two"):
        return labelled(n, classes=3 if kind == "classes" else 2)
    if kind in ("counts", "conjugate"):
        return counted(n)[:2]
    X, y = small(n, 2)
    if kind in ("outputs", "gaps"):
        y = np.stack([y, y**2], axis=1)
    if kind == "gaps":
        y[np.arange(n) % 5 == 0, 0] = np.nan
    return X, y


def fitted(kind, n=150, **more):
    """A model of n rows, and a function that predicts with it."""
    X_new, (X, y) = np.random.default_rng(9).standard_normal((20, 2)), data(kind, n)
    if kind in ("classes", "two"):
        return quick_classifier(k=12, **more).fit(X, y), lambda m: m.predict_proba(X_new)
    if kind in ("counts", "conjugate"):
        auxiliary = "conjugate" if kind == "conjugate" else "curvature"
        return quick_counts(k=12, auxiliary=auxiliary, **more).fit(X, y), lambda m: np.stack(m.predict(X_new, True))
    own = {"robust": {"likelihood": "student_t"}, "all": {"k": "auto"}, "continuous": {"continuous": True}}
    model = quick(**{"k": 12, "continuous": False, **own.get(kind, {}), **more}).fit(X, y)
    return model, lambda m: np.stack(m.predict(X_new, return_std=True))


def remade(model, kept, settling_k=12):
    """The model on the rows `kept` (n,) alone, from scratch: its own parameters, and their site state."""
    other, old = pickle.loads(pickle.dumps(model)), model._fit
    predictor = old.predictor
    family, rows = predictor.model.family, predictor.rows
    observed = {name: values[kept] for name, values in rows.observed.items()}
    fresh = Rows.of(family, rows.inputs[kept], observed)
    if family.state_learned:
        fresh = fresh.with_state(rows.state[kept])
    fresh = fresh.with_state(Sweeper(predictor.model, fresh).settled(settling_k)[0])
    k = len(kept) - 1 if predictor.k >= len(rows) - 1 else predictor.k
    other._places = np.arange(len(fresh.observations))
    other._adopt(replace(old, predictor=replace(predictor, rows=fresh, k=k)))
    return other


@pytest.mark.parametrize(
    "kind", ["number", "continuous", "all", "robust", "outputs", "gaps", "classes", "two", "counts", "conjugate"]
)
def test_predictions_are_those_of_a_model_of_the_others(kind):
    model, predicted = fitted(kind, warp=False)
    kept = np.setdiff1d(np.arange(150), GONE)
    expected = remade(model, kept)
    before = predicted(model)
    assert model.forget(GONE[::-1]) is model
    assert not np.array_equal(predicted(model), before)
    np.testing.assert_array_equal(predicted(model), predicted(expected))
    assert model.n_rows_ == len(model.loo_[0]) == 145
    for own, whole in zip(model.loo_, expected.loo_, strict=True):
        np.testing.assert_array_equal(own, whole)
    assert (model.summary_.rows, model.summary_.forgotten) == (145, 5)
    assert "145 rows (5 others were forgotten)" in str(model.summary_)


def test_a_mask_is_the_same_and_a_number_counts_once():
    model, predicted = fitted("number")
    mask = np.isin(np.arange(150), GONE)
    found = [predicted(copy.deepcopy(model).forget(ids)) for ids in (GONE, mask, [*GONE, *GONE], list(map(int, GONE)))]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    np.testing.assert_array_equal(predicted(copy.deepcopy(model).forget([])), predicted(model))
    np.testing.assert_array_equal(predicted(copy.deepcopy(model).forget(np.zeros(150, bool))), predicted(model))


def test_rows_close_ranks():
    X, y = small(60, 2)
    weights = np.ones(60)
    weights[[5, 6]] = 0  # no training rows, but numbered
    model = quick(k=8, warp=False).fit(X, y, sample_weight=weights)
    model.update(X[:3] + 0.5, y[:3])
    table = pd.DataFrame({"i": np.arange(63)})
    model.forget([0, 5, 30, 61])
    left = table.drop(index=[0, 5, 30, 61]).i.to_numpy()
    numbers, came = model._row_numbers()
    assert came == 59
    np.testing.assert_array_equal(left[numbers], np.setdiff1d(left, [6]))
    assert (model.n_rows_, model.summary_.appended) == (58, 2)
    every, rows = np.concatenate([X, X[:3] + 0.5]), model._fit.predictor.rows
    where = rows.inputs[rows.observations.row[model._places]]
    np.testing.assert_array_equal(where, model._fit.inputs.apply(every[left[numbers]]))
    assert set(model.explain(X, 5).neighbours.ravel()) <= set(numbers)
    model.forget([4])  # row 6 of the table, of weight zero
    assert model._row_numbers()[1] == model.n_rows_ == 58
    assert model._numbers is None


def test_what_was_asked_again_and_again_equals_asking_at_once(tmp_path):
    for kind in ("number", "robust", "classes"):
        model, predicted = fitted(kind)
        at_once = copy.deepcopy(model).forget([3, 4, 5, 50])
        model.forget([3]).forget([3])
        predicted(model)
        model.save(tmp_path / "model")
        loaded = type(model).load(tmp_path / "model").forget([3, 48])
        np.testing.assert_allclose(predicted(loaded), predicted(at_once), rtol=1e-6)


def test_equal_rows_lose_a_count():
    """Rows that were joined are three, with weights; those that are left are what was given to a model with these."""
    X, y = small(40, 2)
    twice = np.concatenate([X, X[:2], X[:1]]), np.concatenate([y, y[:2], y[:1]])
    weights = np.ones(43)
    weights[[0, 40]] = 2, 3
    model = quick(k=8, warp=False).fit(*twice, sample_weight=weights)
    place = model._places[0]
    assert model._fit.predictor.rows.observed["weight"][place] == 6
    model.forget([40])
    assert model._fit.predictor.rows.observed["weight"][place] == 3
    assert model.n_rows_ == 42
    assert len(model._fit.predictor.rows) == 40
    model.forget([0, 41])
    assert len(model._fit.predictor.rows) == 39
    np.testing.assert_array_equal(np.sort(model._fit.predictor.rows.observed["weight"]), [1] * 38 + [2])


def test_labels_seen_at_one_input():
    X, y = labelled(60)
    X[1], y[:2], X[2], y[2] = X[0], (0, 1), X[0], 1
    model = quick_classifier(k=8, warp=False).fit(X, y)
    place = model._fit.predictor.rows.observations.row[model._places[0]]
    np.testing.assert_array_equal(model._fit.predictor.rows.observed["counts"][place], [1, 2])
    model.forget([1])
    np.testing.assert_array_equal(model._fit.predictor.rows.observed["counts"][place], [1, 1])
    model.forget([0])
    place = model._fit.predictor.rows.observations.row[model._places[0]]
    np.testing.assert_array_equal(model._fit.predictor.rows.observed["counts"][place], [0, 1])
    assert len(model.loo_[0]) == model.n_rows_ == 58
    np.testing.assert_array_equal(model.class_counts_, np.bincount(y[2:]))


def test_copies_of_a_table_that_was_taken_once():
    X, y = small(50, 2)
    with pytest.warns(UserWarning, match="3 times"):
        model = quick(k=8, warp=False).fit(np.concatenate([X] * 3), np.concatenate([y] * 3))
    weight = model.forget([7, 57])._fit.predictor.rows.observed["weight"]
    assert np.sort(weight)[0] == pytest.approx(1 / 3)
    assert len(model.forget([105])._fit.predictor.rows) == 49  # the last copy of row 7
    auto = quick(k=8, warp=False).fit(np.concatenate([X] * 3), np.concatenate([y] * 3), groups="auto")
    assert auto.forget([7, 57])._fit.predictor.rows.observed["weight"].min() == 1
    assert len(auto.forget([105])._fit.predictor.rows) == 49


def test_groups_times_and_buffers_go_with_their_rows():
    X, y = small(80, 2)
    kept = np.setdiff1d(np.arange(80), [2, 9])
    for given, own in (({}, {"groups": np.arange(80) // 4}), ({"leave_out": "past"}, {"times": np.arange(80) % 20})):
        model = quick(k=8, warp=False, **given).fit(X, y, **own)
        model.forget([2, 9])
        rows = model._fit.predictor.rows
        order = np.argsort(model._places)
        labels = (rows.groups if "groups" in own else rows.times)[model._places]
        np.testing.assert_array_equal(labels, own["groups" if "groups" in own else "times"][kept])
        assert len(order) == len(model.loo_.mean) == 78
    model = quick(k=8, warp=False, buffer=0.3).fit(X, y).forget([2, 9])
    assert len(model.loo_.mean) == 78


def test_then_rows_are_appended():
    model, predicted = fitted("number", warp=False)
    X, y = small(30, 2, seed=5)
    model.forget(GONE).update(X, y)
    other, _ = fitted("number", warp=False)
    other.update(X, y).forget(GONE)
    np.testing.assert_array_equal(predicted(model), predicted(other))
    assert (other.summary_.appended, model.summary_.appended) == (30, 30)
    other.forget([150, 151])
    assert other.summary_.appended == 28


def from_scratch(model):
    """The model with the same rows in new arrays, put into boxes at once."""
    other, old = pickle.loads(pickle.dumps(model)), model._fit
    rows = old.predictor.rows
    observed = {name: np.array(values) for name, values in rows.observed.items()}
    fresh = Rows.of(old.predictor.model.family, np.array(rows.inputs), observed).with_state(rows.state.copy())
    other._adopt(replace(old, predictor=replace(old.predictor, rows=fresh)))
    return other


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("kind", ["number", "weighted", "outputs", "classes", "counts"])
def test_rows_come_and_go_in_any_order(kind, boxed, monkeypatch):
    """Rows that are there already, or were, among them; predictions of a model of the rows that are left, each time."""
    monkeypatch.setattr(rows_module, "BOXED_ROWS", 1 if boxed else 10**9)
    monkeypatch.setattr(neighbours, "_FEW_RECENT", 3)
    model, predicted = fitted("number" if kind == "weighted" else kind, 60, warp=False)
    rng, table = np.random.default_rng(len(kind)), [(i, 1.0) for i in range(60)]  # numbers of rows of the fit, weights
    inputs, targets = data(kind, 60)
    for _ in range(12):
        if rng.random() < 0.6:
            some = rng.integers(0, 60, rng.choice([1, 2, 9]))
            weights = rng.integers(1, 3, len(some)).astype(float) if kind == "weighted" else np.ones(len(some))
            model.update(inputs[some], targets[some], **({"sample_weight": weights} if kind == "weighted" else {}))
            table += zip(some.tolist(), weights.tolist(), strict=True)
        else:
            gone = rng.choice(len(table), rng.choice([1, 2, 9]), replace=False)
            model.forget(gone)
            table = [row for number, row in enumerate(table) if number not in gone]
        rows = model._fit.predictor.rows
        at = model._fit.inputs.apply(inputs[[i for i, _ in table]])
        np.testing.assert_array_equal(np.asarray(rows.inputs)[rows.observations.row[model._places]], at)
        total = model._fit.predictor.model.family.weight(rows.observed).sum()
        assert total == sum(weight for _, weight in table)
        assert model.n_rows_ == len(table)
        np.testing.assert_array_equal(predicted(model), predicted(from_scratch(model)))


# --- gone -----------------------------------------------------------------------------------------------------------


def test_nothing_of_a_row_is_left_in_a_file(tmp_path):
    """Neither its values nor their standardised ones, such as the knots of bends have them."""
    model, _ = fitted("number")
    model.update(*small(30, 2, seed=5))
    predictor, gone = model._fit.predictor, [3, 17, 155]
    values = np.concatenate([predictor.rows.inputs[gone].ravel(), predictor.rows.observed["y"][gone]])
    X, y = (np.concatenate(both) for both in zip(small(150, 2), small(30, 2, seed=5), strict=True))
    values = [value.tobytes() for value in np.concatenate([values, X[gone].ravel(), y[gone]])]
    found = []
    for path in ("before", "after"):
        model.save(tmp_path / path)
        content = (tmp_path / path).read_bytes()
        found.append(sum(value in content for value in values))
        model.forget(gone)
        gone = []
    assert found[0] >= 9
    assert found[1] == 0


def test_nothing_of_a_row_is_left_in_memory():
    model, predicted = fitted("robust")
    model.update(*small(30, 2, seed=5))
    assert len(model.loo_.mean) == model.summary_.rows == len(predicted(model)[0]) + 160
    rows = model._fit.predictor.rows
    held = [weakref.ref(part) for part in (rows, rows.inputs.base, rows.observed["y"].base, rows.searched)]
    secret = rows.inputs[155, 0]
    del rows
    model.forget([155])
    gc.collect()
    assert [part() for part in held] == [None] * 4
    assert not any(secret in part for part in gc.get_objects() if type(part) is np.ndarray and part.dtype == float)


def test_bends_without_a_corner_stay_what_they_were_elsewhere():
    values = np.sort(np.random.default_rng(0).standard_normal((100, 1)), axis=0)
    warps = Warps.of(values, np.ones(100), np.array([True]))
    bends = np.array([[0.5, 1.0]])
    for gone in ([30, 60], [0, 99], list(range(0, 98))):
        left = np.setdiff1d(np.arange(100), gone)
        other = warps.without(values[gone], values[left])
        assert not np.isin(values[gone], other.knots).any()
        assert (np.diff(other.knots) > 0).all()
        assert (np.diff(other.scores) >= 0).all()
        np.testing.assert_allclose(
            other.coordinates(values[left], bends), warps.coordinates(values[left], bends), atol=1e-12
        )
    assert warps.without(values[:0], values) is warps
    assert warps.without(values[:3], values) is warps  # others have the same values
    last = warps.without(values[:99], values[99:])
    assert not np.isin(values[:99], last.knots).any()


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.arange(150), "all 150 training rows"),
        (np.ones(150, dtype=bool), "all 150 training rows"),
        ([150], "ids has 150, which is no row: 150 rows were given and are numbered from 0 to 149"),
        ([3, -1], "ids has -1"),
        (np.ones(149, dtype=bool), r"a mask of shape \(149,\)"),
        ([1.5], "expected whole numbers"),
        (["a"], "expected whole numbers"),
        ([[1, 2]], "expected whole numbers"),
    ],
)
def test_mistakes_change_nothing(ids, message):
    model, predicted = fitted("number")
    before, state = predicted(model), dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.forget(ids)
    np.testing.assert_array_equal(predicted(model), before)
    assert all(vars(model)[name] is value for name, value in state.items())


def test_a_failure_changes_nothing(monkeypatch):
    model, predicted = fitted("robust")
    before = predicted(model)

    def fails(*_, **__):
        raise FloatingPointError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Sweeper, "settled", fails)
        with pytest.raises(FloatingPointError, match="no"):
            model.forget([3])
    np.testing.assert_array_equal(predicted(model), before)
    assert len(model.loo_.mean) == model.n_rows_ == 150


def test_an_older_file_does_not_tell_how_much_equal_rows_counted():
    X, y = small(40, 2)
    model = quick(k=8).fit(np.concatenate([X, X[:1]]), np.concatenate([y, y[:1]]), np.r_[2.0, np.ones(40)])
    model._shares = None
    with pytest.raises(ValueError, match="earlier version"):
        copy.deepcopy(model).forget([40])
    assert len(model.forget([0, 40])._fit.predictor.rows) == 39


# --- the command line -----------------------------------------------------------------------------------------------


def test_on_the_command_line(run, tmp_path):
    import pyarrow as pa

    X, y = small(60, 2)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": [None if i == 4 else value for i, value in enumerate(y)]})
    rows, model, out = write(tmp_path / "rows.csv", table), tmp_path / "model", tmp_path / "less"
    with short_training():
        assert run("fit", rows, "--target", "y", "--out", model, "--quiet").code == 0
    result = run("forget", model, "--rows", "3, 17,5", "--out", out)
    assert result.code == 0, result.err
    assert "57 training rows, without 2 that were forgotten" in result.out
    assert "still contains them" in result.out
    left = GPRegressor.load(out)
    expected = GPRegressor.load(model).forget([2, 16, 4])
    np.testing.assert_array_equal(left.predict(X), expected.predict(X))
    (tmp_path / "ids.csv").write_text("row\n3\n17\n5\n")
    assert run("forget", model, tmp_path / "ids.csv", "--out", model).out.count("\n") == 1  # in its place
    assert model.read_bytes() == out.read_bytes()
    assert run("predict", model, rows).code == 0
    failed(run("forget", model, "--rows", "58", "--out", out), "Row 58 is none of", "57 rows")
    failed(run("forget", model, "--rows", "0", "--out", out), "--rows has '0'")
    failed(run("forget", model, "--out", out), "Name the rows")
    failed(run("forget", model, "--rows", ",".join(map(str, range(1, 58))), "--out", out), "all 57 training rows")
