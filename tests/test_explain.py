"""Explained predictions, against fits' predictions without the rows; and sets of classes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from estimator_data import quick, quick_classifier, quick_counts, small

from nearfield.prediction import Predictor
from nearfield.rows import Rows


def without(model, i):
    """The model without row i of its fit; the same hyper-parameters, scaling, head and site state."""
    other, fit = copy.copy(model), model._fit
    family, rows = fit.predictor.model.family, fit.predictor.rows
    kept = np.arange(len(rows)) != i
    fewer = rows.sample(np.flatnonzero(kept), family)
    own = fit.predictor
    other._fit = replace(fit, predictor=Predictor(own.model, fewer, own.k, own.head, own.taper))
    return other


def labels_of(X, rng):
    score = np.stack([2 * np.sin(2 * X[:, 0]), X[:, 1], np.zeros(len(X))], axis=1)
    return (score + rng.gumbel(size=score.shape)).argmax(axis=1)


def case(name):
    X, y = small(70, 2)
    rng = np.random.default_rng(1)
    if name == "numbers":
        return quick(k=9, continuous=False).fit(X, 1e3 * y + 5e3), {}
    if name == "continuous":
        return quick(k=12, continuous=True).fit(X, y), {}
    if name == "continuous classes":
        return quick_classifier(k=12, continuous=True).fit(X, np.array(["a", "b", "c"])[labels_of(X, rng)]), {}
    if name == "all rows":
        return quick(mean="linear").fit(X, y), {}
    if name == "classes":
        return quick_classifier(k=9, continuous=False).fit(X, np.array(["a", "b", "c"])[labels_of(X, rng)]), {}
    if name == "two classes":
        return quick_classifier(auxiliary="conjugate").fit(X, y > 0), {}
    return quick_counts(k=9, continuous=False).fit(X, rng.poisson(3 * np.exp(y)), exposure=np.full(70, 3.0)), {
        "exposure": 2.0
    }


def predicted(model, X, which, beside):
    if hasattr(model, "classes_"):
        return model.predict_proba(X)[np.arange(len(X)), which]
    return model.predict(X, **beside)


CASES = ["numbers", "all rows", "classes", "two classes", "counts", "continuous", "continuous classes"]


@pytest.mark.parametrize("name", CASES)
def test_changes_are_those_of_a_model_without_the_row(name):
    model, beside = case(name)
    X = np.random.default_rng(2).standard_normal((4, 2))
    found = model.explain(X, 6, **beside)
    which = model.predict_proba(X).argmax(axis=1) if hasattr(model, "classes_") else None
    np.testing.assert_allclose(found.prediction, predicted(model, X, which, beside), rtol=1e-10)
    assert found.neighbours.shape == found.weights.shape == found.changes.shape == (4, 6)
    assert (np.diff(np.abs(found.changes), axis=1) <= 0).all()
    scale = np.abs(found.prediction).max()
    every = np.stack([predicted(without(model, i), X, which, beside) for i in range(70)], axis=1)
    every -= found.prediction[:, None]
    for r in range(4):
        np.testing.assert_allclose(found.changes[r], every[r, found.neighbours[r]], rtol=0, atol=1e-9 * scale)
        others = np.delete(every[r], found.neighbours[r])
        assert np.abs(others).max() <= np.abs(found.changes[r, -1]) + 1e-9 * scale


def test_weights_say_how_targets_count():
    X, y = small(60, 2)
    model = quick(k=8).fit(X, y)
    query = X[:5] + 0.05
    found = model.explain(query, 8)
    np.testing.assert_allclose(found.weights.sum(axis=1) + found.rest, 1, atol=1e-12)
    level = model._target.undo(model._fit.predictor.model.parameters["mean"])[0]
    added = (found.weights * y[found.neighbours]).sum(axis=1) + found.rest * level
    np.testing.assert_allclose(added, model.predict(query), atol=1e-10)
    padded = model.explain(query, 12)
    assert (padded.neighbours[:, 8:] == -1).all()
    assert np.isnan(padded.weights[:, 8:]).all()
    assert np.isnan(padded.changes[:, 8:]).all()
    np.testing.assert_array_equal(padded.changes[:, :8], found.changes)


def test_numbers_are_those_of_the_given_rows(tmp_path):
    """Rows of weight zero are left out, equal ones joined in another order, others appended later."""
    X, y = small(60, 2)
    X, y = np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]])
    weight = np.ones(80)
    weight[[3, 50, 55]] = 0
    model = quick(k=1).fit(X, y, sample_weight=weight)
    kept = [i for i in range(60) if weight[i] > 0]
    np.testing.assert_array_equal(model.explain(X[kept], 1).neighbours[:, 0], kept)
    assert model.explain(X[3:4], 1).neighbours[0, 0] == 63  # the copy that counts
    more = np.array([[4.0, 4.0], [5.0, 5.0], [-4.0, 4.0]])
    model.update(more, np.array([1.0, 2.0, 3.0]), sample_weight=[1, 0, 1])
    model.update(-more[:1], np.array([1.0]))
    np.testing.assert_array_equal(model.explain([[4, 4], [-4, 4], [-4, -4]], 1).neighbours[:, 0], [80, 82, 83])
    with pytest.warns(UserWarning, match="training rows"):
        model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    for own, again in zip(model.explain(X, 3), loaded.explain(X, 3), strict=True):
        np.testing.assert_array_equal(own, again)


def test_mistakes():
    X, y = small(60, 2)
    model = quick(k=5).fit(X, y)
    for wrong in (0, -1, 2.5, "all", True):
        with pytest.raises(ValueError, match=r"n_neighbours is .*expected a whole number"):
            model.explain(X, wrong)
    with pytest.raises(ValueError, match="3 features"):
        model.explain(np.zeros((2, 3)))
    several = quick(outputs="shared").fit(X, np.stack([y, -y], axis=1))
    with pytest.raises(ValueError, match="2 outputs"):
        several.explain(X)


# --- sets -----------------------------------------------------------------------------------------------------------


def with_rows(model, X, labels, k):
    """The same hyper-parameters, which never saw these rows."""
    other, fit = copy.copy(model), model._fit
    family = fit.predictor.model.family
    rows = Rows.of(family, fit.inputs.apply(X), family.observe(labels, np.ones(len(labels))))
    other._places = np.arange(len(labels))
    other._adopt(replace(fit, predictor=Predictor(fit.predictor.model, rows, k, fit.predictor.head)))
    return other


@pytest.fixture(scope="module")
def classifier():
    X, _ = small(200, 2)
    return quick_classifier().fit(X, labels_of(X, np.random.default_rng(0)))


def test_sets_by_definition(classifier):
    X, _ = small(50, 2, seed=5)
    p, left_out = classifier.predict_proba(X), np.exp(classifier.loo_.log_score)
    for coverage in (0.3, 0.6, 0.9, 0.95):
        rank = int(np.ceil(round(coverage * 201, 9)))
        least = 1 - np.sort(1 - left_out)[rank - 1]
        expected = (p >= least - 1e-12) | (p == p.max(axis=1, keepdims=True))
        found = classifier.predict_set(X, coverage)
        assert found.dtype == bool
        np.testing.assert_array_equal(found, expected)
        assert found.any(axis=1).all()
    assert classifier.predict_set(X, 0.999).all()  # too few rows to tell


@pytest.mark.parametrize("coverage", [0.7, 0.9])
def test_coverage_of_sets_on_exchangeable_data(classifier, coverage):
    """With probabilities that are off: the labels follow another rule than the model's rows did."""
    inside = []
    for seed in range(200):
        rng = np.random.default_rng([seed, 4])
        X = rng.standard_normal((64, 2))
        labels = labels_of(X[:, ::-1], rng)
        own = with_rows(classifier, X[:60], labels[:60], 20)
        inside.append(own.predict_set(X[60:], coverage)[np.arange(4), labels[60:]].mean())
    assert np.mean(inside) >= coverage - 3 * np.std(inside) / np.sqrt(200)


def test_sets_with_weights():
    X, _ = small(60, 2)
    labels, times = labels_of(X, np.random.default_rng(0)), np.random.default_rng(1).integers(1, 4, 60)
    weighted = quick_classifier(k=10).fit(X, labels, sample_weight=times)
    repeated = quick_classifier(k=10).fit(np.repeat(X, times, 0), np.repeat(labels, times))
    np.testing.assert_array_equal(weighted.predict_set(X, 0.8), repeated.predict_set(X, 0.8))
    assert weighted._left_out(weighted._surprises, "_left_out_errors").total == times.sum()
    costly = quick_classifier(k=10, class_weight={0: 2.0, 1: 0.5, 2: 1.0}).fit(X, labels)
    assert costly._left_out(costly._surprises, "_left_out_errors").total == 60


def test_mistakes_of_sets(classifier):
    for coverage in (0, 1, 2, np.nan):
        with pytest.raises(ValueError, match=r"coverage is .*expected a number between 0 and 1"):
            classifier.predict_set(np.zeros((2, 2)), coverage)
    with pytest.raises(ValueError, match="3 features"):
        classifier.predict_set(np.zeros((2, 3)))
