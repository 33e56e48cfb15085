"""Many rows are held in boxes alone: every fit and every prediction has the same bits as with rows held as they are."""

from __future__ import annotations

import numpy as np
import pytest

from nearfield import GPClassifier, GPRegressor
from nearfield import rows as rows_module
from nearfield.neighbours import BoxedInputs, Boxes, find_equal_rows
from nearfield.numbering import Numbering
from nearfield.rows import held
from nearfield.scaling import Scaling
from nearfield.warps import Metric


def table(n=900, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.exp(rng.standard_normal((n, d)))
    X[: n // 9] = X[n // 2 : n // 2 + n // 9]
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.fixture(params=["float64", "float32"])
def both(request, monkeypatch):
    """A fit with rows as they are, and one with rows in boxes, of a table of that type."""

    def fitted(estimator, X, y, **given):
        X = X.astype(request.param)
        found = []
        for most in (2**40, 1):
            monkeypatch.setattr(rows_module, "BOXED_ROWS", most)
            model = estimator().fit(X, y, **given)
            assert isinstance(model._fit.predictor.rows.inputs, BoxedInputs) == (most == 1)
            found.append(model)
        return found

    return fitted


@pytest.mark.parametrize(
    "arguments",
    [
        {"k": 16},
        {"k": 16, "likelihood": "student_t"},
        {"k": 16, "objective": "mll", "warp": False},
        {"k": 16, "mean": "linear", "continuous": False},
    ],
    ids=lambda arguments: "-".join(str(value) for value in arguments.values()),
)
def test_regression_has_the_same_bits(both, brief_training, arguments):
    X, y = table()
    plain, boxed = both(lambda: GPRegressor(random_state=0, **arguments), X, y)
    new = table(50, seed=1)[0]
    for of in (
        lambda model: model.predict(new, return_std=True),
        lambda model: (model.loo_.mean, model.loo_.std),
        lambda model: (model.predict_gradient(new[:5]).mean, model.support(new)),
        lambda model: (model.sample_y(new[:9], 3, random_state=1),),
    ):
        for a, b in zip(of(plain), of(boxed), strict=True):
            np.testing.assert_array_equal(a, b)


def test_classes_and_groups_have_the_same_bits(both, brief_training):
    X, y = table(400)
    labels = np.where(y > np.median(y), "high", "low")
    plain, boxed = both(lambda: GPClassifier(random_state=0, k=16), X, labels, groups=np.arange(400) // 4)
    new = table(50, seed=1)[0]
    np.testing.assert_array_equal(plain.predict_proba(new), boxed.predict_proba(new))


def test_rows_in_boxes_are_updated_and_saved(both, brief_training, tmp_path):
    X, y = table()
    more = table(40, seed=2)
    plain, boxed = both(lambda: GPRegressor(random_state=0, k=16), X, y)
    new = table(50, seed=1)[0]
    with pytest.warns(UserWarning, match="training rows"):
        boxed.save(tmp_path / "boxed.nearfield")
    for model in (boxed, GPRegressor.load(tmp_path / "boxed.nearfield")):
        np.testing.assert_array_equal(model.predict(new), plain.predict(new))
        np.testing.assert_array_equal(
            model.update(*more).predict(new), GPRegressor.load(tmp_path / "boxed.nearfield").update(*more).predict(new)
        )
    np.testing.assert_array_equal(boxed.predict(new), plain.update(*more).predict(new))


@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_holds_the_boxes_and_can_be_mapped(both, brief_training, tmp_path, monkeypatch, mapped):
    from nearfield import persistence

    X, y = table()
    monkeypatch.setattr(persistence, "_LEAST_MAPPED", 1)
    _, boxed = both(lambda: GPRegressor(random_state=0, k=16), X, y)
    with pytest.warns(UserWarning, match="training rows"):
        boxed.save(tmp_path / "boxed.nearfield")
    found = GPRegressor.load(tmp_path / "boxed.nearfield", mapped=mapped)
    panels = found._fit.predictor.rows.inputs.boxes(boxed._fit.predictor.model.search_lengths).panels
    assert (panels.base is not None and type(panels.base).__name__ == "memmap") == mapped
    new = table(50, seed=1)[0]
    np.testing.assert_array_equal(found.predict(new), boxed.predict(new))
    (tmp_path / "boxed.nearfield").unlink()
    np.testing.assert_array_equal(found.loo_.mean, boxed.loo_.mean)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("panels", lambda panels: panels[:-1], "boxes of shape"),
        ("panels", lambda panels: np.where(panels == panels[0, 0, 0], np.inf, panels), "not finite"),
        ("members", lambda members: np.zeros_like(members), "boxes lack rows"),
        ("members", lambda members: members + 1, "rows that are not there"),
        ("starts", lambda starts: starts[::-1].copy(), "boxes do not say"),
        ("lengths", lambda lengths: -lengths, "boxes lack rows, or length scales"),
    ],
)
def test_damaged_boxes_are_refused(name, change, match):
    X = table()[0]
    boxes = Boxes(X, find_equal_rows(X), np.ones(3))
    again = Boxes.unpacked(boxes.packed(), boxes.centre, boxes.scale)
    for part in ("low", "high", "leaf_low", "leaf_high"):
        np.testing.assert_array_equal(getattr(again, part), getattr(boxes, part))
    packed = {**boxes.packed(), name: change(boxes.packed()[name])}
    with pytest.raises(ValueError, match=match):
        Boxes.unpacked(packed, boxes.centre, boxes.scale)


def test_rows_are_taken_by_number_slice_and_mask():
    X = table()[0].astype(np.float32)
    scaling = Scaling.of(X, np.ones(len(X)))
    boxed = BoxedInputs(Boxes(X, find_equal_rows(X), np.ones(3), scaling.centre, scaling.scale, np.float32))
    expected = scaling.apply(X.astype(np.float64))
    assert boxed.boxes(np.ones(3)).panels.dtype == np.float32
    ids = np.random.default_rng(3).integers(-900, 900, (7, 4))
    for which in (ids, slice(None), slice(10, 700, 3), expected[:, 0] > 0, np.array([], dtype=int)):
        np.testing.assert_array_equal(boxed[which], expected[which])
    np.testing.assert_array_equal(np.asarray(boxed), expected)
    np.testing.assert_array_equal(boxed.bounds, [expected.min(axis=0), expected.max(axis=0)])
    boxed.boxes(np.array([1.0, 30.0, 0.1]))  # cut anew
    np.testing.assert_array_equal(boxed[ids], expected[ids])
    with pytest.raises(IndexError, match="there are 900"):
        boxed[np.array([900])]


def test_single_precision_is_kept_only_where_nothing_is_lost(monkeypatch):
    monkeypatch.setattr(rows_module, "BOXED_ROWS", 1)
    X = table()[0]
    for values, dtype in ((X, np.float64), (X.astype(np.float32).astype(np.float64), np.float32)):
        boxed = held(values, Scaling.of(values, np.ones(len(values))))
        assert boxed.boxes(np.ones(3)).panels.dtype == dtype


def test_values_that_standardisation_bends_are_held_as_they_are(monkeypatch):
    monkeypatch.setattr(rows_module, "BOXED_ROWS", 1)
    assert isinstance(held(np.array([[1.0], [1e300]]), Scaling(np.zeros(1), np.full(1, 1e-10))), np.ndarray)


def test_rows_are_numbered_in_the_order_in_which_they_occur():
    rng = np.random.default_rng(4)
    for size in (0, 1, 5000):
        ids = rng.integers(-1, 2**40, size)
        ids[size // 2 :] = ids[: size - size // 2]
        numbering = Numbering(ids.reshape(-1, 1))
        _, first = np.unique(ids, return_index=True)
        expected = ids[np.sort(first)]
        np.testing.assert_array_equal(numbering.rows, expected[expected >= 0])
        places = numbering.places(ids)
        np.testing.assert_array_equal(places < 0, ids < 0)
        np.testing.assert_array_equal(numbering.rows[places[ids >= 0]], ids[ids >= 0])


def test_a_metric_of_boxes_of_raw_rows_is_that_of_standardised_ones():
    X = table()[0]
    scaling = Scaling.of(X, np.ones(len(X)))
    plain, raw = scaling.apply(X), Boxes(X, find_equal_rows(X), np.ones(3), scaling.centre, scaling.scale)
    from nearfield.neighbours.boxes import BoxIndex

    metric, which = Metric.of(np.array([0.3, 1.0, 2.0])), np.arange(0, 900, 11)
    expected = BoxIndex(Boxes(plain, find_equal_rows(plain), np.ones(3)), metric).query(metric.apply(plain[which]), 9)
    found = BoxIndex(raw, metric).query(metric.apply(plain[which]), 9)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.sqdist, expected.sqdist)
