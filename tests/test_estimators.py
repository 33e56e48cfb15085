"""GPRegressor as its users meet it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from threading import Thread

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_data import counted, dense_moments, labelled, on_rows, quick, quick_classifier, quick_counts, small
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfield import GPRegressor
from nearfield.datasets import robot_arm
from nearfield.estimators import _files
from nearfield.kernels import KERNELS
from nearfield.metrics import Scores
from nearfield.prediction import Predictor

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


@parametrize_with_checks([GPRegressor()])
def test_scikit_learn_conventions(estimator, check, request):
    if "weight_equivalence" not in str(check):  # that one is trained to the end, where rounding would show
        request.getfixturevalue("brief_training")
    check(estimator)


@pytest.fixture(scope="module")
def arm():
    X, y = robot_arm(2000, random_state=0)
    return X[:1500], y[:1500], X[1500:], y[1500:]


@pytest.fixture(scope="module")
def model(arm):
    return GPRegressor(random_state=0).fit(*arm[:2])


# --- predictions ----------------------------------------------------------------------------------------------------


def test_defaults_predict_well_and_are_calibrated(arm, model):
    _, y, X_new, y_new = arm
    scores = Scores.of(y_new, model.predict_dist(X_new)).as_dict()
    assert scores["rmse"] < 0.2 * y.std()
    assert 0.84 < scores["coverage_90"] < 0.96


def test_the_calibrated_predictive_is_better_than_the_plain_one_of_the_same_model(arm):
    """The noise of the arm varies, which one noise level cannot tell; the mean is the same."""
    X, y, X_new, y_new = arm
    calibrated, plain = (
        GPRegressor(k=32, max_steps=100, predictive=name, random_state=0).fit(X, y) for name in ("calibrated", "plain")
    )
    np.testing.assert_array_equal(calibrated.predict(X_new), plain.predict(X_new))
    assert calibrated.log_score(X_new, y_new) > plain.log_score(X_new, y_new)
    assert plain.predict_dist(X_new).dist.name == "norm"


def test_the_ways_to_predict_agree(arm, model):
    X_new, y_new = arm[2], arm[3]
    mean, std = model.predict(X_new, return_std=True)
    dist = model.predict_dist(X_new)
    np.testing.assert_array_equal(mean, model.predict(X_new))
    np.testing.assert_allclose(std, dist.std())
    low, high = model.predict_interval(X_new, coverage=0.8)
    np.testing.assert_allclose(low, dist.ppf(0.1))
    np.testing.assert_allclose(high, dist.ppf(0.9))
    quantiles = model.predict_quantiles(X_new, [0.1, 0.5, 0.9])
    assert quantiles.shape == (len(X_new), 3)
    np.testing.assert_allclose(quantiles[:, 1], mean)
    np.testing.assert_allclose(model.predict_quantiles(X_new, 0.1), low)
    assert model.log_score(X_new, y_new) == pytest.approx(dist.logpdf(y_new).mean())
    assert 0.95 < model.score(X_new, y_new) < 1


def test_latent_uncertainty_leaves_the_noise_out(arm, model):
    _, observed = model.predict(arm[2], return_std=True)
    _, latent = model.predict(arm[2], return_std=True, uncertainty="latent")
    assert (latent < observed).all()
    assert (latent > 0).all()
    with pytest.raises(ValueError, match="uncertainty is 'epistemic': expected one of 'observation', 'latent'"):
        model.predict(arm[2], uncertainty="epistemic")


def test_predictions_do_not_depend_on_the_other_rows_or_on_threads(arm, model, monkeypatch):
    X_new = arm[2][:200]
    whole = np.stack(model.predict(X_new, return_std=True))
    monkeypatch.setenv("NEARFIELD_THREADS", "1")
    np.testing.assert_array_equal(np.stack(model.predict(X_new, return_std=True)), whole)
    np.testing.assert_array_equal(np.stack(model.predict(X_new[::-1], return_std=True))[:, ::-1], whole)
    one_by_one = [model.predict(row[None])[0] for row in X_new[:20]]
    np.testing.assert_array_equal(one_by_one, whole[0, :20])


@pytest.mark.parametrize("scale", [1e-100, 1e-3, 1e5, 1e100])
def test_units_do_not_matter(scale):
    X, y = small()
    base = quick(k=16).fit(X, y).predict(X, return_std=True)
    scaled = quick(k=16).fit(X * scale, y * scale).predict(X * scale, return_std=True)
    np.testing.assert_allclose(np.stack(scaled) / scale, np.stack(base), rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_fits_and_survives_the_file(kernel, tmp_path):
    X, y = small()
    model = quick(kernel=kernel, k=16).fit(X, y)
    assert model.score(X, y) > 0.5
    model.save(tmp_path / "m.nearfield")
    np.testing.assert_array_equal(GPRegressor.load(tmp_path / "m.nearfield").predict(X), model.predict(X))


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_few_rows_are_an_exact_gaussian_process(mean):
    """N <= 129: every row is used, and the prediction is the textbook one at the learned hyper-parameters."""
    X, y = small(60, 2)
    y = y + 3 * X[:, 1]
    model = GPRegressor(predictive="plain", mean=mean, random_state=0).fit(X, y)
    assert model.k_ == 59
    X_new = np.random.default_rng(1).standard_normal((25, 2))
    latent, variance = dense_moments(model, X_new)
    found, std = model.predict(X_new, return_std=True)
    np.testing.assert_allclose(found, y.mean() + y.std() * latent[:, 0], atol=1e-7)
    np.testing.assert_allclose(std, np.hypot(y.std() * np.sqrt(variance[:, 0]), model.noise_std_), rtol=1e-6)
    np.testing.assert_allclose(y.std() * np.sqrt(model._fit.predictor.model.scale2[0]), model.kernel_scale_)


def observed(model, y):
    """What was observed at rows of weight one, in the units of the model."""
    return {"y": model._target.apply(y), "weight": np.ones(len(y)), "known_noise": np.zeros(len(y))}


def test_left_out_predictions_are_those_of_a_model_without_the_row():
    X, y = small(80, 2)
    model = quick(k=10).fit(X, y)
    loo = model.loo_
    assert loo.mean.shape == loo.std.shape == loo.residual.shape == (80,)
    np.testing.assert_allclose(loo.residual, y - loo.mean)
    for i in (0, 17, 79):
        keep = np.arange(80) != i
        mean, std = on_rows(model, X[keep], observed(model, y[keep])).predict(X[i : i + 1], return_std=True)
        assert loo.mean[i] == pytest.approx(mean[0], abs=1e-10)
        assert loo.std[i] == pytest.approx(std[0], abs=1e-10)


# --- k --------------------------------------------------------------------------------------------------------------


def test_k_is_chosen_said_and_within_reach(arm, model):
    assert model.k_ == len(arm[0]) - 1
    assert f"from all other rows (k = {model.k_})" in str(model.summary_)
    assert model.summary_.as_dict()["k"] == model.k_
    fixed = quick(k=7).fit(*arm[:2])
    assert fixed.k_ == 7
    assert "the 7 rows most like it (k = 7): as asked for" in str(fixed.summary_)


def test_k_beyond_the_rows_is_clamped_and_said():
    X, y = small(20)
    with pytest.warns(UserWarning, match="k = 500 is more than the 19 other rows: using 19"):
        model = quick(k=500).fit(X, y)
    assert model.k_ == 19


# --- weights and noise ----------------------------------------------------------------------------------------------


def test_zero_weight_is_no_row_and_integer_weight_is_repetition():
    X, y = small(40)
    weights = np.random.default_rng(0).integers(0, 4, 40)
    weighted = quick().fit(X, y, sample_weight=weights)
    X_new = small(20, seed=5)[0]
    rng = np.random.default_rng(1)
    for order in (np.arange(weights.sum()), rng.permutation(weights.sum())):
        again = np.repeat(np.arange(40), weights)[order]
        repeated = quick().fit(X[again], y[again])
        np.testing.assert_array_equal(weighted.predict(X_new), repeated.predict(X_new))
        assert repeated.n_rows_ == len(repeated.loo_.mean) == weights.sum()
        place = np.cumsum(weights > 0) - 1
        np.testing.assert_array_equal(weighted.loo_.mean[place[again]], repeated.loo_.mean)
        np.testing.assert_allclose(repeated.loo_.residual, y[again] - repeated.loo_.mean, atol=1e-12)
    assert weighted.n_rows_ == (weights > 0).sum()


def test_known_noise_makes_a_row_count_less():
    X, y = small(400)
    bad = np.arange(400) % 4 == 0
    y_bad = y + np.where(bad, 5 * np.random.default_rng(1).standard_normal(400), 0)
    X_new = small(200, seed=9)[0]
    truth = np.sin(X_new[:, 0])
    settings = {"k": 32, "max_steps": 100, "random_state": 0}
    told = GPRegressor(**settings).fit(X, y_bad, noise_variance=np.where(bad, 25.0, 0.0))
    untold = GPRegressor(**settings).fit(X, y_bad)
    assert np.mean((told.predict(X_new) - truth) ** 2) < 0.3 * np.mean((untold.predict(X_new) - truth) ** 2)
    with pytest.raises(ValueError, match=r"noise_variance has shape \(3,\): expected \(400,\)"):
        quick().fit(X, y, noise_variance=np.ones(3))


# --- appending rows -------------------------------------------------------------------------------------------------


def test_update_equals_a_model_built_with_all_rows():
    X, y = small(500)
    model = quick(k=20).fit(X[:400], y[:400])
    before = model.predict(X[400:])
    grown = pickle.loads(pickle.dumps(model)).update(X[400:450], y[400:450]).update(X[450:], y[450:])
    assert grown.n_rows_ == 500
    assert len(grown.loo_.mean) == 500
    X_new = small(50, seed=3)[0]
    whole = on_rows(model, X, observed(model, y))
    np.testing.assert_array_equal(
        np.stack(grown.predict(X_new, return_std=True)), np.stack(whole.predict(X_new, return_std=True))
    )
    assert np.mean((grown.predict(X[400:]) - y[400:]) ** 2) < np.mean((before - y[400:]) ** 2)
    with pytest.raises(ValueError, match="4 features"):
        grown.update(np.ones((2, 4)), np.ones(2))


def test_the_summary_tells_of_appended_rows():
    X, y = small(120)
    model = quick().fit(X[:100], y[:100])
    assert (model.summary_.rows, model.summary_.appended) == (100, 0)
    model.update(X[100:], y[100:]).update(X[:2], y[:2])
    assert (model.summary_.rows, model.summary_.appended, model.n_rows_) == (122, 22, 122)
    assert "122 rows (22 of them appended later), 3 columns" in str(model.summary_)


def of_one_kind(kind):
    """A fitted model, further rows as arguments of `update`, and a function that predicts with a model."""
    if kind in ("number", "robust", "outputs", "gaps"):
        X, y = small(500)
        if kind in ("outputs", "gaps"):
            y = np.stack([y, y**2], axis=1)
        if kind == "gaps":
            y[np.arange(500) % 5 == 0, 0] = np.nan
        model = quick(k=12, likelihood="student_t" if kind == "robust" else "gaussian").fit(X[:100], y[:100])
        return model, X[100:], (y[100:],), lambda m: m.predict(X, return_std=True)
    if kind == "classes":
        X, y = labelled(500, classes=3)
        return quick_classifier(k=12).fit(X[:100], y[:100]), X[100:], (y[100:],), lambda m: m.predict_proba(X)
    X, y, _ = counted(500)
    return quick_counts(k=12).fit(X[:100], y[:100]), X[100:], (y[100:],), lambda m: m.predict(X, return_std=True)


@pytest.mark.parametrize("kind", ["number", "robust", "outputs", "gaps", "classes", "counts"])
def test_threads_that_update_at_once_lose_no_row(kind):
    """Predictions are those of one update with all rows, up to what the order of rows and of settling does."""
    model, X, observed, predicted = of_one_kind(kind)
    whole = pickle.loads(pickle.dumps(model)).update(X, *observed)

    def append(which):
        for part in np.array_split(which, 5):
            model.update(X[part], *(values[part] for values in observed))

    threads = [Thread(target=append, args=(which,)) for which in np.array_split(np.arange(400), 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.n_rows_ == model.summary_.rows == whole.n_rows_ == 500
    assert model.summary_.appended == 400
    inputs = [np.sort(m._fit.predictor.rows.inputs, axis=0) for m in (model, whole)]
    np.testing.assert_array_equal(*inputs)
    # site state settles part by part, and sees the rows appended before it only
    settles = kind in ("robust", "counts")
    np.testing.assert_allclose(predicted(model), predicted(whole), rtol=0.15 if settles else 1e-9, atol=0.05 * settles)
    assert len(model.loo_[0]) == 500


class Meanwhile:
    """A function that goes on in another thread while this one waits a moment for it, in vain if it is locked out."""

    def __init__(self, function):
        self.thread = Thread(target=function)

    def __call__(self):
        self.thread.start()
        self.thread.join(1)


@pytest.mark.parametrize("kind", ["number", "classes", "counts"])
def test_a_model_saved_in_the_middle_of_an_update_is_whole(kind, tmp_path, monkeypatch):
    model, X, observed, _ = of_one_kind(kind)
    update, pack = Meanwhile(lambda: model.update(X, *observed)), _files.pack

    def pack_then_update(fit):
        packed = pack(fit)
        update()
        return packed

    monkeypatch.setattr(_files, "pack", pack_then_update)
    model.save(tmp_path / "model")
    update.thread.join()
    loaded = type(model).load(tmp_path / "model")
    assert (model.n_rows_, loaded.n_rows_, len(loaded.loo_[0])) == (500, 100, 100)


def test_a_model_copied_in_the_middle_of_an_update_is_whole(monkeypatch):
    model, X, observed, _ = of_one_kind("number")
    copies, adopt = [], GPRegressor._adopt
    copy = Meanwhile(lambda: copies.append(pickle.loads(pickle.dumps(model))))

    def copy_then_adopt(self, fit):
        if self is model:
            copy()
        adopt(self, fit)

    monkeypatch.setattr(GPRegressor, "_adopt", copy_then_adopt)
    model.update(X, *observed)
    copy.thread.join()
    assert len(copies[0].loo_.mean) == copies[0].n_rows_ == len(copies[0]._fit.predictor.rows.observations)


def test_left_out_predictions_asked_for_in_the_middle_of_an_update_are_forgotten(monkeypatch):
    model, X, observed, _ = of_one_kind("number")
    left_out, update = Predictor.left_out, Meanwhile(lambda: model.update(X, *observed))

    def left_out_then_update(predictor):
        found = left_out(predictor)
        if update.thread.ident is None:
            update()
        return found

    monkeypatch.setattr(Predictor, "left_out", left_out_then_update)
    assert len(model.loo_.mean) == 100
    update.thread.join()
    assert len(model.loo_.mean) == model.n_rows_ == 500


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_and_column_names(frame):
    X, y = small()
    table = frame({"depth": X[:, 0], "speed": X[:, 1], "angle": X[:, 2]})
    model = quick(k=16).fit(table, y)
    assert list(model.feature_names_in_) == ["depth", "speed", "angle"]
    assert list(model.feature_relevance_) == ["depth", "speed", "angle"]
    assert max(model.feature_relevance_, key=model.feature_relevance_.get) == "depth"
    np.testing.assert_array_equal(model.predict(table), quick(k=16).fit(X, y).predict(X))
    renamed = frame({"depth": X[:, 0], "sped": X[:, 1], "angle": X[:, 2]})
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time:\n- sped\n.*yet now missing:\n- speed"):
        model.predict(renamed)
    reordered = frame({"speed": X[:, 1], "depth": X[:, 0], "angle": X[:, 2]})
    with pytest.raises(ValueError, match="same order"):
        model.predict(reordered)


def test_nullable_and_boolean_columns_of_pandas_are_numbers():
    X, y = small()
    table = pd.DataFrame({"a": X[:, 0], "n": pd.array(np.arange(300) % 5, dtype="Int64"), "b": X[:, 1] > 0})
    plain = np.column_stack([X[:, 0], np.arange(300) % 5, X[:, 1] > 0]).astype(float)
    np.testing.assert_array_equal(quick(k=16).fit(table, y).predict(table), quick(k=16).fit(plain, y).predict(plain))


# --- scikit-learn ---------------------------------------------------------------------------------------------------


def test_pipeline_grid_search_and_clone():
    X, y = small(200)
    pipeline = make_pipeline(StandardScaler(), quick())
    search = GridSearchCV(pipeline, {"gpregressor__kernel": ["rbf", "matern52"]}, cv=2, n_jobs=2).fit(X, y)
    assert search.best_score_ > 0.5
    copy = clone(search.best_estimator_[-1])
    assert copy.get_params() == search.best_estimator_[-1].get_params()
    assert not hasattr(copy, "k_")


def test_a_pickled_model_predicts_the_same():
    X, y = small()
    model = quick().fit(X, y)
    expected = model.predict(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), expected)


def test_same_seed_same_bits_with_any_number_of_threads(monkeypatch):
    X, y = small()
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        model = quick().fit(X, y)
        found.append(np.stack([*model.predict(X, return_std=True), model.loo_.mean]))
    np.testing.assert_array_equal(found[0], found[1])
    other = quick(k=16, random_state=1).fit(X, y).predict(X)
    assert np.abs(other - quick(k=16).fit(X, y).predict(X)).max() > 1e-9  # the seed draws the batches


def test_real_data_of_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    model = GPRegressor(random_state=0, max_steps=100).fit(X[:350], y[:350])
    assert model.score(X[350:], y[350:]) > 0.35
    low, high = model.predict_interval(X[350:])
    assert 0.8 < np.mean((low <= y[350:]) & (y[350:] <= high)) < 1


def test_bad_requests_are_named(model, arm):
    with pytest.raises(ValueError, match="coverage is 90: expected a number between 0 and 1"):
        model.predict_interval(arm[2], coverage=90)
    with pytest.raises(ValueError, match="expected probabilities between 0 and 1"):
        model.predict_quantiles(arm[2], [0.5, 1.5])
    with pytest.raises(ValueError, match="X has 3 features, but GPRegressor is expecting 8"):
        model.predict(arm[2][:, :3])
    with pytest.raises(ValueError, match=r"y has shape \(3,\): expected \(500,\)"):
        model.log_score(arm[2], arm[3][:3])
    with pytest.raises(ValueError, match="the target y has 500 missing"):
        model.log_score(arm[2], np.full(500, np.nan))


def test_summary_tells_what_happened(model):
    text, scores = str(model.summary_), model.summary_.left_out
    told = ("1,500 rows, 8 columns", "How the target changes", "rows were left out", f"RMSE of {scores['rmse']:.4g}")
    for part in (*told, f"NLL {scores['nll']:.4g}", f"{100 * scores['coverage_90']:.1f} % hold what was observed"):
        assert part in text
    assert all(line[0].isupper() or line[0].isdigit() for line in text.splitlines())


def test_a_summary_tells_no_zeros_and_no_defaults(model):
    """What is unusual is told, and only that."""
    own = replace(model.summary_, jittered=0, rejected=0, kernel="auto", mean="constant", predictive="calibrated")
    plain = str(own)
    for word in ("kernel", "mean ", "likelihood", "predictive", "noise was added", "not taken", "limit"):
        assert word not in plain.replace("always predicting the mean ", "")
    odd = replace(own, jittered=1, rejected=12, kernel="rbf", mean="linear", predictive="plain", most_steps=own.steps)
    told = ("Not the defaults: kernel rbf, linear mean, plain predictive", "Once rows were so alike", "12 times a step")
    for part in (*told, f"limit of {own.steps:,} steps"):
        assert part in str(odd)


def test_a_summary_compares_with_a_constant_prediction(arm, model):
    """All rows are left out, so that the constant's RMSE is their standard deviation."""
    assert model.summary_.constant["rmse"] == pytest.approx(arm[1].std(), rel=1e-6)
    assert str(model.summary_).splitlines()[-1] == (
        f"Left-out rows are predicted with an RMSE of {model.summary_.left_out['rmse']:.4g}; always predicting the "
        f"mean would give {arm[1].std():.4g}."
    )
    before = replace(model.summary_, constant={})  # of an earlier version
    assert str(before).endswith(f"with an RMSE of {model.summary_.left_out['rmse']:.4g}.")
