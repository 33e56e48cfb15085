"""GPClassifier as its users meet it."""

from __future__ import annotations

import pickle
import string

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_data import (
    assert_probabilities,
    dense_moments,
    labelled,
    log_odds,
    on_rows,
    quick_classifier,
    through_file,
)
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfield import GPClassifier
from nearfield.families.classes import SITES as AUXILIARY

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

LABELS = {  # a label for each of the classes 0, 1, 2, ascending
    "strings": np.array(["ant", "bee", "ü"]),
    "objects": np.array(["ant", "bee", "ü"], dtype=object),
    "gaps": np.array([-7, 3, 1000]),
    "bytes": np.array([2, 5, 200], dtype=np.uint8),
    "floats": np.array([-1.0, 0.0, 4.0]),
    "bools": np.array([False, True]),
    "dates": np.array(["1969-07-20", "1990-10-03", "2024-02-29"], dtype="M8[D]"),
    "times": np.array(["1969-07-20T20:17", "1990-10-03T00:00", "2024-02-29T12:30"], dtype="M8[ns]"),
    "durations": np.array([-3, 0, 90], dtype="m8[s]"),
}


@parametrize_with_checks([GPClassifier()])
def test_scikit_learn_conventions(estimator, check, request):
    if "weight_equivalence" not in str(check):  # that one is trained to the end, where rounding would show
        request.getfixturevalue("brief_training")
    check(estimator)


# --- labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind(kind, tmp_path):
    """The names of the classes change nothing but the names, and survive the file with predictions and updates."""
    names = LABELS[kind]
    X, y = labelled(classes=len(names))
    model, plain = quick_classifier(k=20).fit(X[:90], names[y[:90]]), quick_classifier(k=20).fit(X[:90], y[:90])
    np.testing.assert_array_equal(model.classes_, names)
    p = model.predict_proba(X)
    assert_probabilities(p, len(X), len(names))
    np.testing.assert_array_equal(p, plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), names[p.argmax(axis=1)])
    assert model.predict(X).dtype == names.dtype
    assert model.score(X, names[y]) == plain.score(X, y)
    assert model.log_score(X, names[y]) == pytest.approx(np.log(p[np.arange(len(X)), y]).mean(), abs=1e-12)

    loaded = through_file(model, tmp_path)
    np.testing.assert_array_equal(loaded.classes_, names)
    for method in ("predict", "predict_proba", "predict_log_proba"):
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X))
    for ours, theirs in zip(loaded.loo_, model.loo_, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    model.update(X[90:], names[y[90:]])
    np.testing.assert_array_equal(loaded.update(X[90:], names[y[90:]]).predict_proba(X), model.predict_proba(X))
    assert len(loaded.loo_.log_score) == len(X)


def test_labels_of_data_frames():
    X, y = labelled(60)
    names = np.array(["no", "yes"])[y]
    expected = quick_classifier().fit(X, names).predict(X)
    for column in (pd.Series(names), pd.Series(names, dtype="category"), pl.Series(names), names.tolist()):
        model = quick_classifier().fit(X, column)
        np.testing.assert_array_equal(model.classes_, ["no", "yes"])
        np.testing.assert_array_equal(model.predict(X), expected)


def test_as_many_classes_as_letters():
    """Each class has a cluster of its own, so every one of them can be told."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(26), 8)
    X = np.column_stack([y % 6, y // 6]) + 0.1 * rng.standard_normal((len(y), 2))
    letters = np.array(list(string.ascii_lowercase))
    model = quick_classifier(k=16).fit(X, letters[y])
    assert_probabilities(model.predict_proba(X), len(X), 26)
    assert model.score(X, letters[y]) > 0.9
    assert_probabilities(model.loo_.probability, len(X), 26)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(20), "only one class is present"),
        (np.array(["a"] * 20), "only one class is present"),
        (np.linspace(0, 1, 20), "Unknown label type: continuous"),
        (np.array([0, 1, np.nan] * 6 + [0, 1]), "NaN"),
        (np.zeros((20, 2)), "1d array"),
        (np.array([0, 1] * 9), "inconsistent numbers of samples"),
    ],
)
def test_bad_labels_are_named(y, message):
    model = quick_classifier()
    with pytest.raises(ValueError, match=message):
        model.fit(labelled(20)[0], y)
    with pytest.raises(NotFittedError):
        model.predict(labelled(20)[0])


def test_a_class_that_weights_leave_out_is_no_class():
    X, y = labelled(classes=3)
    assert quick_classifier().fit(X, y, sample_weight=(y != 1).astype(float)).classes_.tolist() == [0, 2]
    with pytest.raises(ValueError, match="only one class is present"):
        quick_classifier().fit(X, y, sample_weight=(y == 1).astype(float))


@pytest.mark.parametrize("names", [LABELS["strings"], LABELS["objects"], LABELS["gaps"], LABELS["bools"]])
@pytest.mark.parametrize("unknown", ["zebra", "aardvark", 4, 5000, 0.5, None])
def test_an_unknown_label_is_named(names, unknown):
    X, y = labelled(30, classes=len(names))
    model = quick_classifier().fit(X, names[y])
    before = model.predict_proba(X)
    for call in (model.update, model.log_score):
        with pytest.raises(ValueError):
            call(X[:1], np.array([unknown], dtype=None if isinstance(unknown, str) else object))
        with pytest.raises(ValueError):
            call(X[:1], [unknown])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.n_rows_ == 30


def test_the_message_about_an_unknown_label_says_what_to_do():
    X, y = labelled(30)
    model = quick_classifier().fit(X, np.array(["no", "yes"])[y])
    with pytest.raises(ValueError, match=r"label .*'maybe'.* was not among .*'no', 'yes'.*: fit again"):
        model.update(X[:2], ["yes", "maybe"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"auxiliary": "gibbs"}, "auxiliary is 'gibbs': expected one of 'tied', 'conjugate', 'lognormal'"),
        ({"class_kernels": "mine"}, "class_kernels is 'mine': expected one of 'shared', 'own'"),
        ({"kernel": "matern"}, "unknown kernel 'matern'"),
        ({"k": 0}, "k is 0"),
        ({"predictive": "gaussian"}, "predictive is 'gaussian': expected one of 'calibrated', 'plain'"),
        ({"mean": "none"}, "mean is 'none': expected one of 'constant', 'linear'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GPClassifier(**arguments).fit(*labelled(20))


# --- what is learned ------------------------------------------------------------------------------------------------


def exclusive_or(n, rng):
    X = rng.uniform(-1, 1, (n, 2))
    return X, (X[:, 0] > 0) ^ (X[:, 1] > 0)


def rings(n, rng):
    X = rng.uniform(-1.5, 1.5, (n, 2))
    return X, np.digitize(np.hypot(X[:, 0], X[:, 1]), [0.5, 1.0])


@pytest.mark.parametrize("data", [exclusive_or, rings])
@pytest.mark.parametrize("auxiliary", AUXILIARY)
def test_borders_that_are_no_lines_are_learned(data, auxiliary):
    rng = np.random.default_rng(0)
    (X, y), (X_new, y_new) = data(400, rng), data(400, rng)
    model = GPClassifier(auxiliary=auxiliary, k=24, max_steps=60, refresh_every=20, random_state=0).fit(X, y)
    assert model.score(X_new, y_new) > 0.9


@pytest.mark.parametrize("auxiliary", AUXILIARY)
def test_probabilities_are_those_behind_the_labels(auxiliary):
    X, y = labelled(600)
    X_new, y_new = labelled(600, seed=1)
    truth = expit(log_odds(X_new))
    model = GPClassifier(auxiliary=auxiliary, max_steps=100, refresh_every=20, random_state=0).fit(X, y)
    p = model.predict_proba(X_new)[:, 1]
    assert np.abs(p - truth).mean() < 0.1
    assert abs(p.mean() - truth.mean()) < 0.05
    for part in np.array_split(np.argsort(p), 4):
        assert abs(p[part].mean() - truth[part].mean()) < 0.1
    constant = np.log(np.where(y_new == 1, y.mean(), 1 - y.mean())).mean()
    assert model.log_score(X_new, y_new) > constant + 0.1
    assert model.loo_.log_score.mean() == pytest.approx(model.log_score(X_new, y_new), abs=0.1)
    assert model.summary_.left_out["nll"] == pytest.approx(-model.loo_.log_score.mean(), abs=1e-9)


def test_own_kernels_find_the_columns_that_matter_to_each_class():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.where(np.sin(3 * X[:, 0]) > 0.5, 0, np.where(np.sin(3 * X[:, 1]) > 0, 1, 2))
    model = GPClassifier(class_kernels="own", max_steps=60, refresh_every=20, k=20, random_state=0).fit(X, y)
    assert model.length_scales_.shape == (3, 2)
    assert model.length_scales_[0, 0] < model.length_scales_[0, 1]
    assert len(model.feature_relevance_) == 2
    assert model.score(X, y) > 0.9
    two = quick_classifier(class_kernels="own").fit(X, y > 0)
    assert two.length_scales_.shape == (2,)


def test_without_calibration_the_head_is_plain():
    X, y = labelled(classes=3)
    model = quick_classifier(predictive="plain", k=10).fit(X, y)
    assert not model._fit.predictor.head.fitted
    assert_probabilities(model.predict_proba(X), len(X), 3)


# --- few rows of a class --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predictive", ["calibrated", "plain"])
def test_two_positives_in_two_thousand_rows(predictive):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 2)), np.zeros(2000, dtype=int)
    y[:2] = 1
    model = quick_classifier(k=32, predictive=predictive).fit(X, y)
    p = model.predict_proba(rng.standard_normal((500, 2)))
    assert_probabilities(p, 500, 2)
    assert (p[:, 0] > 0.5).all()
    assert (p[:, 1] > 0).all()
    assert p[:, 1].mean() < (0.01 if predictive == "calibrated" else 0.1)
    assert np.isfinite(model.loo_.log_score).all()
    assert np.isfinite(model.summary_.left_out["nll"])


def test_a_class_that_no_neighbour_has_is_unlikely_and_possible():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    X = 10 * np.array([[0, 0], [1, 0], [0, 1]])[y] + rng.standard_normal((120, 2))
    model = quick_classifier(k=3).fit(X, y)
    p = model.predict_proba(X)
    assert_probabilities(p, 120, 3)
    assert (p > 0).all()
    assert model.score(X, y) > 0.95
    far = model.predict_proba(np.array([[1e3, 1e3], [1e20, -1e20], [1e100, 0.0]]))
    assert_probabilities(far, 3, 3)


@pytest.mark.parametrize("auxiliary", AUXILIARY)
@pytest.mark.parametrize("n", [2, 3, 9])
def test_a_handful_of_rows(n, auxiliary):
    X, y = labelled(n)
    model = quick_classifier(auxiliary=auxiliary).fit(X, y)
    assert_probabilities(model.predict_proba(X), n, 2)
    assert_probabilities(model.loo_.probability, n, 2)
    assert np.isfinite(model.loo_.log_score).all()


# --- equal inputs and weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("auxiliary", AUXILIARY)
@pytest.mark.parametrize("classes", [2, 3])
def test_weights_are_repetitions_and_zero_is_no_row(auxiliary, classes):
    """Equal inputs are kept as one, so the two fits see the same numbers."""
    X, y = labelled(60, classes)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    weights[:classes] = 1
    arguments = {"auxiliary": auxiliary, "k": 12}
    weighted = quick_classifier(**arguments).fit(X, y, sample_weight=weights)
    repeated = quick_classifier(**arguments).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.n_rows_ == (weights > 0).sum()
    X_new = labelled(50, seed=5)[0]
    np.testing.assert_array_equal(weighted.predict_proba(X_new), repeated.predict_proba(X_new))
    kept = weights[weights > 0]
    np.testing.assert_array_equal(np.repeat(weighted.loo_.log_score, kept), repeated.loo_.log_score)


def test_fractional_weights_and_their_unit_are_fine():
    X, y = labelled(60)
    rng = np.random.default_rng(0)
    model = quick_classifier().fit(X, y, sample_weight=rng.uniform(1e-3, 1.5, 60))
    assert_probabilities(model.predict_proba(X), 60, 2)
    assert np.isfinite(model.loo_.log_score).all()
    whole, near = (quick_classifier().fit(X, y, sample_weight=np.full(60, w)) for w in (1.0, 1 + 1e-9))
    np.testing.assert_allclose(whole.predict_proba(X), near.predict_proba(X), atol=1e-3)  # the order of rows differs


@pytest.mark.parametrize("auxiliary", AUXILIARY)
def test_conflicting_labels_at_equal_inputs_give_their_share(auxiliary):
    """Fourteen distinct inputs, as in tables of categories: the probability is the share seen at the input."""
    rng = np.random.default_rng(0)
    cells = np.array([[a, b, c] for a in range(4) for b in range(2) for c in range(2)][:14], dtype=float)
    share = expit(rng.normal(0, 1.5, 14))
    cell = rng.integers(0, 14, 2200)
    y = (rng.random(2200) < share[cell]).astype(int)
    model = GPClassifier(auxiliary=auxiliary, max_steps=100, refresh_every=20, random_state=0).fit(cells[cell], y)
    assert len(model._fit.predictor.rows) == 14
    seen = np.array([y[cell == c].mean() for c in range(14)])
    np.testing.assert_allclose(model.predict_proba(cells)[:, 1], seen, atol=0.1)
    assert model.loo_.probability.shape == (2200, 2)
    left_out = np.array([model.loo_.probability[cell == c, 1].mean() for c in range(14)])
    np.testing.assert_allclose(left_out, seen, atol=0.1)
    assert np.abs(left_out - seen).mean() < 0.04


def test_left_out_labels_at_equal_inputs_lose_one_label_only():
    """Two labels of the same class at one input have the same left-out prediction; it is the model without one."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((30, 2)), 3, axis=0)
    y = rng.integers(0, 2, 90)
    model = quick_classifier(k=8).fit(X, y)
    for i in (0, 31, 89):
        counts = np.stack([np.bincount(labels, minlength=2) for labels in y.reshape(30, 3)]).astype(float)
        counts[i // 3, y[i]] -= 1
        p = on_rows(model, X[::3], {"counts": counts}).predict_proba(X[i : i + 1])[0]
        np.testing.assert_allclose(model.loo_.probability[i], p, atol=1e-10)
        assert model.loo_.log_score[i] == pytest.approx(np.log(p[y[i]]), abs=1e-9)


# --- oracles --------------------------------------------------------------------------------------------------------

# Left out, the neighbours' own auxiliaries have still seen the row's label, and in an update those of the old rows have
# not yet seen the new ones: probabilities differ by 0.03 at most. The tied weights depend on no label,
# so there is nothing to forget or to learn.
SLACK = {"tied": 1e-10, "conjugate": 0.06}


@pytest.mark.parametrize("auxiliary", SLACK)
@pytest.mark.parametrize("classes", [2, 3])
def test_left_out_predictions_are_those_of_a_model_without_the_row(auxiliary, classes):
    X, y = labelled(80, classes)
    model = quick_classifier(k=10, auxiliary=auxiliary).fit(X, y)
    assert model.loo_.probability.shape == (80, classes)
    for i in (0, 17, 79):
        keep = np.arange(80) != i
        p = on_rows(model, X[keep], {"counts": np.eye(classes)[y[keep]]}, settle_k=10).predict_proba(X[i : i + 1])[0]
        np.testing.assert_allclose(model.loo_.probability[i], p, atol=SLACK[auxiliary])
        assert model.loo_.log_score[i] == pytest.approx(np.log(model.loo_.probability[i, y[i]]), abs=1e-12)


@pytest.mark.parametrize("auxiliary", SLACK)
@pytest.mark.parametrize("classes", [2, 3])
def test_update_equals_a_model_built_with_all_rows(auxiliary, classes):
    X, y = labelled(500, classes)
    model = quick_classifier(k=20, auxiliary=auxiliary).fit(X[:400], y[:400])
    grown = pickle.loads(pickle.dumps(model)).update(X[400:450], y[400:450]).update(X[450:], y[450:])
    assert grown.n_rows_ == len(grown.loo_.log_score) == 500
    X_new = labelled(100, seed=3)[0]
    whole = on_rows(model, X, {"counts": np.eye(classes)[y]}, settle_k=20).predict_proba(X_new)
    np.testing.assert_allclose(grown.predict_proba(X_new), whole, atol=SLACK[auxiliary])
    assert np.abs(model.predict_proba(X_new) - whole).max() > SLACK[auxiliary]


def test_update_makes_certain_what_it_shows():
    X, y = labelled(100)
    model = quick_classifier(k=20).fit(X, y)
    spot = np.array([[0.1, 0.2]])
    up, down = (
        pickle.loads(pickle.dumps(model)).update(np.repeat(spot, 30, axis=0), np.full(30, label)).predict_proba(spot)
        for label in (1, 0)
    )
    assert up[0, 1] > model.predict_proba(spot)[0, 1] > down[0, 1]
    heavy = pickle.loads(pickle.dumps(model)).update(spot, [1], sample_weight=[30.0])
    np.testing.assert_array_equal(heavy.predict_proba(spot), up)
    with pytest.raises(ValueError, match="4 features"):
        model.update(np.ones((2, 4)), [0, 1])


@pytest.mark.parametrize("auxiliary", AUXILIARY)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("class_kernels", ["shared", "own"])
@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_the_latent_functions_are_those_of_dense_algebra(auxiliary, classes, class_kernels, mean):
    """With all rows as neighbours, at the learned hyper-parameters and weights."""
    X, y = labelled(40, classes)
    arguments = {"auxiliary": auxiliary, "class_kernels": class_kernels, "max_steps": 4, "refresh_every": 2}
    model = quick_classifier(mean=mean, **arguments).fit(X, y)
    X_new = labelled(15, seed=4)[0]
    moments = model._fit.predictor._sweeper.new(model._fit.inputs.apply(X_new), model.k_)
    expected = dense_moments(model, X_new)
    np.testing.assert_allclose(moments.mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(moments.variance, expected[1], atol=1e-9)


@pytest.mark.parametrize("auxiliary", AUXILIARY)
@pytest.mark.parametrize("classes", [2, 3])
def test_same_seed_same_bits_with_any_number_of_threads(auxiliary, classes, monkeypatch):
    X, y = labelled(400, classes)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        model = quick_classifier(auxiliary=auxiliary, k=16).fit(X, y)
        found.append((model.k_, model.predict_proba(X), model.loo_.probability))
    assert found[0][0] == found[1][0]
    for one, two in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(one, two)
    one_by_one = [model.predict_proba(row[None])[0] for row in X[:10]]
    np.testing.assert_array_equal(one_by_one, found[0][1][:10])
