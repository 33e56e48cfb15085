"""What users of scikit-learn and of data frames expect: weights of classes, importances, labels, targets, tools."""

from __future__ import annotations

import datetime
import json

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from cli_runs import runner
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small, through_file
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import StackingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Matern, WhiteKernel
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from nearfield.estimators._class_weights import class_weights
from nearfield.importance import shuffled_losses

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


# --- weights of classes ---------------------------------------------------------------------------------------------


def unbalanced(n=150):
    """Inputs (n, 2) and labels (n,), few of which are "yes"."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 1.5, "yes", "no")


@pytest.mark.parametrize("asked", ["balanced", {"no": 1.0, "yes": 5.3}, {"yes": 2.5}])  # whole ratios would be counts
def test_class_weights_are_those_of_scikit_learn_at_the_same_total(asked, tmp_path):
    X, y = unbalanced()
    weights = compute_sample_weight(asked, y)
    weights *= len(y) / weights.sum()
    model = quick_classifier(class_weight=asked).fit(X, y)
    by_hand = quick_classifier().fit(X, y, weights)
    np.testing.assert_allclose(model.predict_proba(X), by_hand.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(model.class_counts_, [(y == "no").sum(), (y == "yes").sum()])
    assert model.class_counts_ @ model.class_weight_ == pytest.approx(len(y))
    loaded = through_file(model, tmp_path)
    assert loaded.class_weight == asked
    np.testing.assert_array_equal(loaded.class_weight_, model.class_weight_)
    more = X[:10] + 0.1
    np.testing.assert_array_equal(
        loaded.update(more, y[:10]).predict_proba(X), model.update(more, y[:10]).predict_proba(X)
    )
    np.testing.assert_allclose(model.class_counts_.sum(), len(y) + 10)


def test_balanced_weights_find_more_of_the_rare_class():
    X, y = unbalanced()
    plain, balanced = (quick_classifier(class_weight=w).fit(X, y).predict(X) for w in (None, "balanced"))
    assert (plain == "yes").sum() < (balanced == "yes").sum()


def test_a_row_of_weight_two_is_that_row_twice_for_balanced_weights():
    labels, weights = np.array([0, 0, 1]), np.array([1.0, 1.0, 2.0])
    np.testing.assert_allclose(class_weights("balanced", np.arange(2), labels, weights), [1, 1])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("equal", r"class_weight is 'equal': expected None, 'balanced' or a mapping"),
        ({"yes": 0.0}, r"gives 'yes' the weight 0.0: expected a number above 0"),
        ({"maybe": 2.0}, r"has the label 'maybe', which y does not have"),
    ],
)
def test_class_weights_that_cannot_be(asked, message):
    X, y = unbalanced(40)
    with pytest.raises(ValueError, match=message):
        quick_classifier(class_weight=asked).fit(X, y)


def test_class_weights_of_labels_that_are_numbers_come_back_from_a_file(tmp_path):
    X, y = labelled(60)
    model = quick_classifier(class_weight={0: 1, np.int64(1): 2.5}).fit(X, y)
    assert through_file(model, tmp_path).class_weight == {0: 1, 1: 2.5}


# --- decision function ----------------------------------------------------------------------------------------------


def test_the_decision_function_is_log_odds():
    X, y = labelled(100)
    model = quick_classifier().fit(X, y)
    p, found = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(found, np.log(p[:, 1] / p[:, 0]))
    assert roc_auc_score(y, found) == roc_auc_score(y, p[:, 1])
    X, y = labelled(100, classes=3)
    model = quick_classifier().fit(X, y)
    p, found = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(found, np.log(p / (1 - p)))
    np.testing.assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(X))


# --- partial fits ---------------------------------------------------------------------------------------------------


def test_partial_fit_is_fit_and_then_update():
    X, y = small(150)
    parts = quick(k=16).partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    whole = quick(k=16).fit(X[:100], y[:100]).update(X[100:], y[100:])
    np.testing.assert_array_equal(parts.predict(X), whole.predict(X))
    X, y, _ = counted(100)
    exposure = np.ones(100)
    parts = quick_counts(k=16).partial_fit(X[:80], y[:80], exposure=exposure[:80])
    parts.partial_fit(X[80:], y[80:], exposure=exposure[80:])
    assert parts.n_rows_ == 100


def test_partial_fit_of_classes():
    X, y = labelled(120, classes=3)
    model = quick_classifier(k=16).partial_fit(X[:80], y[:80], classes=[0, 1, 2])
    assert model.partial_fit(X[80:], y[80:]).n_rows_ == 120
    with pytest.raises(ValueError, match="classes has 7, which no row of the first batch has"):
        model.partial_fit(X, y, classes=[0, 1, 7])
    with pytest.raises(ValueError, match="classes has 2, which no row of the first batch has"):
        quick_classifier().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])


# --- importances ----------------------------------------------------------------------------------------------------


def with_columns(n=200, seed=0):
    """Inputs (n, 4): a strong column, a weak one, one of noise, a constant; and what depends on them (n,)."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((n, 3)), np.full(n, 7.0)])
    return X, 2 * np.sin(X[:, 0]) + 0.5 * X[:, 1]


def fitted_to_columns(kind, **settings):
    X, f = with_columns()
    rng = np.random.default_rng(1)
    if kind == "number":
        return quick(**settings).fit(X, f + 0.1 * rng.standard_normal(len(f)))
    if kind == "numbers":
        Y = np.column_stack([f, -f]) + 0.1 * rng.standard_normal((len(f), 2))
        Y[::7, 0] = np.nan
        return quick(**settings).fit(X, Y)
    if kind == "label":
        return quick_classifier(**settings).fit(X, f + 0.3 * rng.standard_normal(len(f)) > 0)
    return quick_counts(**settings).fit(X, rng.poisson(np.exp(1 + f)), exposure=np.ones(len(f)))


@pytest.mark.parametrize("kind", ["number", "numbers", "label", "count"])
def test_importances_tell_columns_apart(kind):
    model = fitted_to_columns(kind)
    found = model.feature_importances_
    assert found.shape == (4,)
    assert found[0] > 2 * found[1] > 0
    assert 0 <= found[2] < found[0] / 10
    assert found[3] == 0
    assert model.feature_importances_ is found  # once for each fit
    assert min(model.feature_relevance_, key=model.feature_relevance_.get) == "x3"
    assert model.feature_relevance_["x3"] == 0


def test_importances_of_columns_that_belong_together():
    model = fitted_to_columns("number", k=16)
    alone, groups = model.feature_importances_, [[0], [1, 2], [3], [0, 1, 2, 3]]
    found = shuffled_losses(model._fit.predictor, model._log_scores, groups)
    np.testing.assert_array_equal(found[[0, 2]], alone[[0, 3]])
    assert found[1] == pytest.approx(alone[1], rel=0.3)
    assert found[3] > alone[0]


def test_importances_are_found_anew_after_an_update_and_need_a_fit():
    with pytest.raises(NotFittedError):
        _ = quick().feature_importances_
    X, _ = with_columns()
    model = fitted_to_columns("number", k=16)
    before = model.feature_importances_
    model.update(X[:20] + 0.05, np.zeros(20))
    assert (model.feature_importances_ != before).any()


def test_a_shuffled_row_is_predicted_without_itself():
    """At its own place this is the left-out prediction, also where rows are joined, in groups or of several labels."""
    X, y = labelled(80)
    X, y = np.concatenate([X, X[:10]]), np.concatenate([y, 1 - y[:10]])
    many = quick_classifier(k=16).fit(X, y, np.repeat([1.0, 2.0], 45))
    X, y = small(80)
    for model in (many, quick(k=16).fit(X, y), quick(k=16).fit(X, y, groups=np.arange(80) // 4)):
        predictor = model._fit.predictor
        every = np.arange(len(predictor.rows.observations))
        inputs = predictor.rows.inputs[predictor.rows.observations.row]
        for own, other in zip(predictor.elsewhere(every, inputs, 16), predictor.left_out(), strict=True):
            np.testing.assert_array_equal(own, other)


def test_select_from_model_takes_the_importances():
    X, f = with_columns()
    chosen = SelectFromModel(quick(k=16), max_features=2).fit(X, f).get_support()
    assert chosen.tolist() == [True, True, False, False]


def test_info_ranks_a_constant_column_last(tmp_path, capsys):
    fitted_to_columns("number", k=16).save(tmp_path / "m.nearfield")
    described = json.loads(runner(capsys)("info", str(tmp_path / "m.nearfield"), "--json").out)
    assert [feature["name"] for feature in described["features"]][-1] == "x3"
    assert described["features"][-1]["relevance"] == 0


# --- counts with an exposure ----------------------------------------------------------------------------------------


def test_the_score_of_counts_takes_exposure_or_trials():
    exposure = np.random.default_rng(0).uniform(1, 9, 120)
    X, y, _ = counted(exposure=exposure)
    model = quick_counts(k=16).fit(X, y, exposure=exposure)
    weights = np.arange(120.0)
    expected = model.predict(X, exposure=exposure)
    assert model.score(X, y, exposure=exposure) == r2_score(y, expected)
    assert model.score(X, y, weights, exposure=exposure) == r2_score(y, expected, sample_weight=weights)
    trials = y + 3
    binomial = quick_counts(k=16, likelihood="binomial").fit(X, y, trials=trials)
    assert binomial.score(X, y, trials=trials) == r2_score(y, binomial.predict(X, trials=trials))


def test_an_exposure_of_the_fit_is_not_forgotten_afterwards(tmp_path):
    X, y, _ = counted(60)
    model = through_file(quick_counts(k=16).fit(X, y, exposure=np.full(60, 2.0)), tmp_path)
    asked = {
        "predict": (X,),
        "predict_interval": (X,),
        "predict_quantiles": (X, 0.5),
        "predict_dist": (X,),
        "score": (X, y),
        "log_score": (X, y),
        "update": (X, y),
    }
    for name, given in asked.items():
        with pytest.raises(ValueError, match=r"fitted with exposure=.*pass exposure= here too"):
            getattr(model, name)(*given)
    assert model.predict(X, exposure=1).shape == (60,)
    assert quick_counts(k=16).fit(X, y).predict(X).shape == (60,)


# --- labels and targets as they come --------------------------------------------------------------------------------

NUMBERS, FLAGS, TEXT = [0, 1], [False, True], ["a", "b"]
LABELS = {  # how the labels come, and the classes that they are
    "Int64": (lambda y: pd.Series(y, dtype="Int64"), NUMBERS),
    "boolean": (lambda y: pd.Series(y == 1, dtype="boolean"), FLAGS),
    "category": (lambda y: pd.Series(np.where(y == 1, "b", "a")).astype("category"), TEXT),
    "category of numbers": (lambda y: pd.Series(y).astype("category"), NUMBERS),
    "string": (lambda y: pd.Series(np.where(y == 1, "b", "a"), dtype="string"), TEXT),
    "polars numbers": (lambda y: pl.Series(y), NUMBERS),
    "polars flags": (lambda y: pl.Series(y == 1), FLAGS),
    "polars text": (lambda y: pl.Series(np.where(y == 1, "b", "a").tolist()), TEXT),
    "polars categories": (lambda y: pl.Series(np.where(y == 1, "b", "a").tolist(), dtype=pl.Categorical), TEXT),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_data_frames(kind, tmp_path):
    X, y = labelled(60)
    made, expected = LABELS[kind]
    labels = made(y)
    model = quick_classifier(k=8).fit(X, labels)
    assert model.classes_.tolist() == expected
    assert {type(label) for label in model.classes_.tolist()} == {type(label) for label in expected}
    assert model.log_score(X, labels) == quick_classifier(k=8).fit(X, y).log_score(X, y)
    assert through_file(model, tmp_path).classes_.tolist() == expected
    assert model.update(X[:5], labels[:5]).n_rows_ == 65


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: pd.Series(y, dtype="Int64").where(y < 1),
        lambda y: pd.Series(y == 1, dtype="boolean").where(y < 1),
        lambda y: pd.Series(np.where(y == 1, None, "a"), dtype="string"),
        lambda y: pd.Series(np.where(y == 1, None, "a")).astype("category"),
        lambda y: np.where(y == 1, np.nan, 0.0),
        lambda y: np.where(y == 1, None, "a"),
        lambda y: [None if label else "a" for label in y],
        lambda y: pl.Series([None if label else "a" for label in y]),
    ],
)
def test_missing_labels_are_counted(labels):
    X, y = labelled(40)
    message = f"{y.sum()} of 40 labels are missing, the first in row {y.argmax()}"
    with pytest.raises(ValueError, match=message):
        quick_classifier().fit(X, labels(y))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            pd.Series(pd.to_datetime(["2020-01-01"] * 40)),
            r"y has dates \(for example 2020.*timedelta64\(1, \"D\"",
        ),
        (np.array([datetime.date(2020, 1, 1)] * 40), r"y has dates \(for example 2020-01-01\)"),
        (pd.Series(pd.to_timedelta(range(40), unit="h")), r"y has durations .*timedelta64\(1, \"h\"\)"),
        (["1.5"] * 39 + ["low"], r"no numbers \(for example 'low'\), and GP.* predicts numbers: GPClassifier"),
        (pl.Series(["low"] * 40), r"no numbers \(for example 'low'\)"),
    ],
)
@pytest.mark.parametrize("estimator", [quick, quick_counts])
def test_targets_that_are_no_numbers(estimator, target, message):
    X, _ = small(40)
    with pytest.raises(ValueError, match=message):
        estimator().fit(X, target)


def test_numbers_of_data_frames_are_numbers():
    X, y = small(60)
    expected = quick(k=8).fit(X, y).predict(X)
    for target in (pd.Series(y, dtype="Float64"), pl.Series(y), pd.Series(y, dtype=object)):
        np.testing.assert_array_equal(quick(k=8).fit(X, target).predict(X), expected)
    with pytest.raises(ValueError, match="the target y has 1 missing or infinite values in 60 rows"):
        quick().fit(X, pd.Series([*y[:-1], None], dtype="Float64"))


@pytest.mark.parametrize(
    ("kernel", "nearest"),
    [(1.0 * RBF() + WhiteKernel(), "rbf"), (Matern(nu=1.5), "matern32"), (ExpSineSquared(), "auto"), (None, "auto")],
)
def test_a_kernel_of_scikit_learn_is_named_and_the_nearest_of_ours(kernel, nearest):
    X, y = small(40)
    with pytest.raises(TypeError, match=f"expected a name, one of 'rbf'.* The nearest is '{nearest}'"):
        quick(kernel=kernel).fit(X, y)


def test_the_first_row_without_a_count_is_named():
    X, y, _ = counted(40)
    y = y.astype(float)
    y[[3, 17, 20]] = -1.0, 0.5, -2.0
    weights = np.ones(40)
    weights[3] = 0
    with pytest.raises(ValueError, match=r"2 values that are no counts \(for example 0.5\).*The first is in row 17"):
        quick_counts().fit(X, y, weights)


# --- the tools of scikit-learn --------------------------------------------------------------------------------------


def test_a_pipeline_with_a_scaler_and_what_is_behind_it():
    X, y = small(100)
    pipe = make_pipeline(StandardScaler(), quick(k=16)).fit(X, y)
    mean, std = pipe.predict(X, return_std=True)
    low, high = pipe[-1].predict_interval(pipe[:-1].transform(X))
    assert ((low < mean) & (mean < high) & (std > 0)).all()


def test_a_pipeline_with_encoded_columns():
    X, y = small(100)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "site": np.where(X[:, 2] > 0, "north", "south")})
    encoder = ColumnTransformer(
        [("text", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["site"])], remainder="passthrough"
    )
    pipe = make_pipeline(encoder, quick(k=16)).fit(table, y)
    assert pipe.predict(table).shape == (100,)
    named = make_pipeline(encoder, quick(k=16)).set_output(transform="pandas").fit(table, y)
    assert "text__site_north" in named[-1].feature_relevance_


def test_a_grid_search_in_two_processes():
    X, y = labelled(80)
    search = GridSearchCV(
        quick_classifier(k=8), {"class_weight": [None, "balanced"], "kernel": ["auto", "rbf"]}, cv=2, n_jobs=2,
        scoring="roc_auc",
    ).fit(X, y)  # fmt: skip
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_calibrated_classifiers(classes):
    X, y = labelled(120, classes)
    p = CalibratedClassifierCV(quick_classifier(k=8), cv=2).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == y).mean() > 1 / classes


def test_stacked_regressors():
    X, y = small(100)
    stacked = StackingRegressor([("gp", quick(k=8)), ("line", Ridge())], cv=2).fit(X, y)
    assert stacked.score(X, y) > 0.5


def test_permutation_importance_and_partial_dependence():
    mpl.use("Agg")
    X, y = small(100)
    model = quick(k=16).fit(X, y)
    assert permutation_importance(model, X, y, n_repeats=2, random_state=0).importances_mean.argmax() == 0
    display = PartialDependenceDisplay.from_estimator(model, X, [0, (0, 1)], grid_resolution=5)
    assert len(display.pd_results) == 2
    X, y = labelled(80)
    display = PartialDependenceDisplay.from_estimator(quick_classifier(k=8).fit(X, y), X, [0], grid_resolution=5)
    assert np.isfinite(display.pd_results[0].average).all()
    mpl.pyplot.close("all")


def test_left_out_folds_of_probabilities():
    X, y = labelled(90, classes=3)
    p = cross_val_predict(quick_classifier(k=8), X, y, cv=3, method="predict_proba")
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert clone(quick_classifier(class_weight="balanced")).class_weight == "balanced"
