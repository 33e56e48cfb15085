"""GPRegressor as its users meet it."""

from __future__ import annotations

import math
import os
import pickle
import signal
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_data import quick, small
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfield import GPRegressor
from nearfield.datasets import robot_arm
from nearfield.fitting import standardise
from nearfield.kernels import KERNELS
from nearfield.metrics import Scores

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


@parametrize_with_checks([GPRegressor()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def arm():
    X, y = robot_arm(2500, random_state=0)
    return X[:2000], y[:2000], X[2000:], y[2000:]


@pytest.fixture(scope="module")
def model(arm):
    return GPRegressor(random_state=0).fit(*arm[:2])


# --- predictions ----------------------------------------------------------------------------------------------------


def test_defaults_predict_well_and_are_calibrated(arm, model):
    X, y, X_new, y_new = arm
    scores = Scores.of(y_new, model.predict_dist(X_new)).as_dict()
    assert scores["rmse"] < 0.15 * y.std()
    assert 0.85 < scores["coverage_90"] < 0.95
    gaussian = GPRegressor(predictive="gaussian", random_state=0).fit(X, y)
    assert scores["nll"] < Scores.of(y_new, gaussian.predict_dist(X_new)).as_dict()["nll"]
    assert gaussian.predict_dist(X_new).dist.name == "norm"


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
    assert 0.97 < model.score(X_new, y_new) < 1


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
    base = quick().fit(X, y).predict(X, return_std=True)
    scaled = quick().fit(X * scale, y * scale).predict(X * scale, return_std=True)
    np.testing.assert_allclose(np.stack(scaled) / scale, np.stack(base), rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_fits_and_survives_the_file(kernel, tmp_path):
    X, y = small()
    model = quick(kernel=kernel).fit(X, y)
    assert model.score(X, y) > 0.5
    model.save(tmp_path / "m.nearfield")
    np.testing.assert_array_equal(GPRegressor.load(tmp_path / "m.nearfield").predict(X), model.predict(X))


def test_engines_give_the_same_model():
    X, y = small()
    fused, batched = (
        quick(engine=engine, k=16).fit(X, y).predict(X, return_std=True) for engine in ("fused", "batched")
    )
    np.testing.assert_allclose(np.stack(fused), np.stack(batched), rtol=1e-6)


def test_few_rows_are_an_exact_gaussian_process():
    """N <= 129: every row is used, and the prediction is the textbook one at the learned hyper-parameters."""
    X, y = small(60, 2)
    model = GPRegressor(predictive="gaussian", random_state=0).fit(X, y)
    assert model.k_ == 59
    X_new = np.random.default_rng(1).standard_normal((25, 2))

    def kernel(A, B):
        q = math.sqrt(5) * np.sqrt((((A[:, None] - B[None]) / model.length_scales_) ** 2).sum(-1))
        return model.kernel_scale_**2 * (1 + q + q * q / 3) * np.exp(-q)

    prior = float(model._fit.predictor.model.mean) * y.std() + y.mean()
    K = kernel(X, X) + model.noise_std_**2 * np.eye(60)
    mean = prior + kernel(X_new, X) @ np.linalg.solve(K, y - prior)
    variance = model.kernel_scale_**2 - np.sum(kernel(X_new, X) * np.linalg.solve(K, kernel(X, X_new)).T, axis=1)
    found, std = model.predict(X_new, return_std=True)
    np.testing.assert_allclose(found, mean, atol=1e-7)
    np.testing.assert_allclose(std, np.sqrt(variance + model.noise_std_**2), rtol=1e-6)


def test_left_out_predictions_are_those_of_a_model_without_the_row():
    X, y = small(80, 2)
    model = quick(k=10).fit(X, y)
    loo = model.loo_
    assert loo.mean.shape == loo.std.shape == loo.residual.shape == (80,)
    np.testing.assert_allclose(loo.residual, y - loo.mean)
    for i in (0, 17, 79):
        keep = np.arange(80) != i
        mean, std = with_rows(model, X[keep], y[keep]).predict(X[i : i + 1], return_std=True)
        assert loo.mean[i] == pytest.approx(mean[0], abs=1e-10)
        assert loo.std[i] == pytest.approx(std[0], abs=1e-10)


# --- k --------------------------------------------------------------------------------------------------------------


def test_k_is_chosen_said_and_within_reach(arm, model):
    assert 4 <= model.k_ <= 512
    assert f"k = {model.k_}: left-out RMSE" in str(model.summary_)
    assert model.summary_.as_dict()["k"] == model.k_
    fixed = quick(k=7).fit(*arm[:2])
    assert fixed.k_ == 7
    assert "k = 7: as asked for" in str(fixed.summary_)


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
    repeated = quick().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    X_new = small(20, seed=5)[0]
    np.testing.assert_allclose(weighted.predict(X_new), repeated.predict(X_new), rtol=1e-5)
    assert weighted.n_rows_ == (weights > 0).sum()


def test_known_noise_makes_a_row_count_less():
    X, y = small(400)
    bad = np.arange(400) % 4 == 0
    y_bad = y + np.where(bad, 5 * np.random.default_rng(1).standard_normal(400), 0)
    X_new = small(200, seed=9)[0]
    truth = np.sin(X_new[:, 0])
    told = GPRegressor(random_state=0).fit(X, y_bad, noise_variance=np.where(bad, 25.0, 0.0))
    untold = GPRegressor(random_state=0).fit(X, y_bad)
    assert np.mean((told.predict(X_new) - truth) ** 2) < 0.3 * np.mean((untold.predict(X_new) - truth) ** 2)
    with pytest.raises(ValueError, match=r"noise_variance has shape \(3,\): expected \(400,\)"):
        quick().fit(X, y, noise_variance=np.ones(3))


# --- appending rows -------------------------------------------------------------------------------------------------


def with_rows(model, X, y):
    """The model's hyper-parameters on other rows, built anew."""
    old = model._fit
    rows = standardise(X, y, np.ones(len(y)), np.zeros(len(y)), old.inputs, old.target)
    other = pickle.loads(pickle.dumps(model))
    other._adopt(replace(old, predictor=replace(old.predictor, rows=rows)))
    return other


def test_update_equals_a_model_built_with_all_rows():
    X, y = small(500)
    model = quick(k=20).fit(X[:400], y[:400])
    before = model.predict(X[400:])
    grown = pickle.loads(pickle.dumps(model)).update(X[400:450], y[400:450]).update(X[450:], y[450:])
    assert grown.n_rows_ == 500
    assert len(grown.loo_.mean) == 500
    X_new = small(50, seed=3)[0]
    whole = with_rows(model, X, y)
    np.testing.assert_array_equal(
        np.stack(grown.predict(X_new, return_std=True)), np.stack(whole.predict(X_new, return_std=True))
    )
    assert np.mean((grown.predict(X[400:]) - y[400:]) ** 2) < np.mean((before - y[400:]) ** 2)
    with pytest.raises(ValueError, match="4 features"):
        grown.update(np.ones((2, 4)), np.ones(2))


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_and_column_names(frame):
    X, y = small()
    table = frame({"depth": X[:, 0], "speed": X[:, 1], "angle": X[:, 2]})
    model = quick().fit(table, y)
    assert list(model.feature_names_in_) == ["depth", "speed", "angle"]
    assert list(model.feature_relevance_) == ["depth", "speed", "angle"]
    assert max(model.feature_relevance_, key=model.feature_relevance_.get) == "depth"
    np.testing.assert_array_equal(model.predict(table), quick().fit(X, y).predict(X))
    renamed = frame({"depth": X[:, 0], "sped": X[:, 1], "angle": X[:, 2]})
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time:\n- sped\n.*yet now missing:\n- speed"):
        model.predict(renamed)
    text = frame({"depth": X[:, 0], "speed": ["fast"] * len(X), "angle": X[:, 2]})
    with pytest.raises(ValueError, match=r"column 'speed' is not numeric .*'fast'"):
        quick().fit(text, y)
    gaps = frame({"depth": X[:, 0], "speed": np.where(np.arange(len(X)) < 3, np.nan, X[:, 1]), "angle": X[:, 2]})
    with pytest.raises(ValueError, match=r"NaN: column 'speed' has 3 missing or infinite values in 300 rows"):
        quick().fit(gaps, y)


def test_nullable_and_boolean_columns_of_pandas_are_numbers():
    X, y = small()
    table = pd.DataFrame({"a": X[:, 0], "n": pd.array(np.arange(300) % 5, dtype="Int64"), "b": X[:, 1] > 0})
    plain = np.column_stack([X[:, 0], np.arange(300) % 5, X[:, 1] > 0]).astype(float)
    np.testing.assert_array_equal(quick().fit(table, y).predict(table), quick().fit(plain, y).predict(plain))
    table.loc[3, "n"] = pd.NA
    with pytest.raises(ValueError, match="NaN: column 'n' has 1 missing"):
        quick().fit(table, y)
    dates = table.assign(n=pd.Timestamp("2020-01-01"))
    with pytest.raises(ValueError, match="column 'n' is not numeric"):
        quick().fit(dates, y)


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


def test_same_seed_same_bits(arm, model):
    again = GPRegressor(random_state=0).fit(*arm[:2])
    np.testing.assert_array_equal(np.stack(again.predict(arm[2], True)), np.stack(model.predict(arm[2], True)))


def test_real_data_of_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    model = GPRegressor(random_state=0).fit(X[:350], y[:350])
    assert model.score(X[350:], y[350:]) > 0.35
    low, high = model.predict_interval(X[350:])
    assert 0.8 < np.mean((low <= y[350:]) & (y[350:] <= high)) < 1


# --- strange and bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_a_handful_of_rows(n):
    X, y = small(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = quick().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.isfinite(model.loo_.std).all()


def test_duplicates_constant_columns_and_lattices():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 500), rng.integers(0, 4, 500), np.full(500, 3.0)]).astype(float)
    y = X[:, 0] + 0.1 * rng.standard_normal(500)
    model = GPRegressor(random_state=0).fit(X, y)
    low, high = model.predict_interval(X)
    assert model.score(X, y) > 0.95
    assert 0.8 < np.mean((low <= y) & (y <= high)) < 0.98


def test_duplicated_rows_do_not_leak_their_targets():
    """Each row twice with independent noise: left-out residuals keep the noise."""
    X, _ = small(300, 1)
    X = np.repeat(X, 2, axis=0)
    y = np.sin(X[:, 0]) + 0.5 * np.random.default_rng(2).standard_normal(600)
    model = GPRegressor(random_state=0).fit(X, y)
    assert model.noise_std_ == pytest.approx(0.5, rel=0.15)
    assert model.loo_.residual.std() == pytest.approx(0.5, rel=0.15)


@pytest.mark.parametrize("far", [1e3, 1e10, 1e18, 1e20, 1e36, 1e100])
def test_far_from_all_rows_the_prior_returns(far):
    X, y = small()
    model = quick(predictive="gaussian").fit(X, y)
    mean, std = model.predict(np.full((1, 3), far), return_std=True)
    assert abs(mean[0] - y.mean()) < y.std()
    assert std[0] == pytest.approx(np.hypot(model.kernel_scale_, model.noise_std_), rel=1e-6)


def test_a_column_that_was_constant_in_training_is_ignored():
    X, y = small()
    model = quick().fit(np.column_stack([X, np.full(300, 2024.0)]), y)
    now, later = (model.predict(np.column_stack([X, np.full(300, year)])) for year in (2024.0, 2034.0))
    np.testing.assert_array_equal(now, later)


@pytest.mark.parametrize("unit", [1e-200, 1e-165, 1e160, 1e200])
def test_targets_of_extreme_size(unit, tmp_path):
    X, y = small()
    model = quick().fit(X, y * unit)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.sqrt(np.mean((mean / unit - y) ** 2)) < 0.3
    assert np.isfinite(model.summary_.left_out["rmse"])
    model.save(tmp_path / "m.nearfield")


def test_a_handful_of_rows_has_wide_error_bars():
    """Six rows tell little: 90 % intervals cover some three quarters, and would cover far less if narrowed."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(30):
        X = rng.uniform(-2, 2, (206, 1))
        y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(206)
        low, high = GPRegressor(random_state=0).fit(X[:6], y[:6]).predict_interval(X[6:])
        inside.append(np.mean((low <= y[6:]) & (y[6:] <= high)))
    assert np.mean(inside) > 0.7


def test_numpy_numbers_as_settings():
    X, y = small(100)
    settings = {
        "max_steps": np.int64(20),
        "learning_rate": np.float32(0.03),
        "k": np.int32(10),
        "batch_size": np.int64(64),
    }
    assert GPRegressor(**settings).fit(X, y).k_ == 10


def test_update_after_a_fit_of_few_rows_uses_the_new_ones():
    X, y = small(200)
    model = quick().fit(X[:5], y[:5])
    assert model.k_ == 4
    assert model.update(X[5:], y[5:]).k_ == 128


def test_weights_next_to_zero_count_as_zero():
    X, y = small(100)
    weights = np.ones(100)
    weights[0] = 1e-310
    np.testing.assert_array_equal(
        quick().fit(X, y, weights).predict(X), quick().fit(X, y, (weights > 0.5).astype(float)).predict(X)
    )


def test_a_fit_that_failed_is_no_fit():
    X, y = small(50)
    model = quick()
    with pytest.raises(ValueError, match="noise_variance has values that are negative"):
        model.fit(X, y, noise_variance=np.full(50, -1.0))
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_predict_and_fit():
    """OpenMP, which torch and FAISS use, hangs in the child of a process that has used it."""
    X, y = small(1500)
    model = quick().fit(X, y)
    expected = model.predict(X)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        equal = np.array_equal(model.predict(X), expected) and np.array_equal(quick().fit(X, y).predict(X), expected)
        os._exit(0 if equal else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_constant_target_works_with_a_warning():
    X, _ = small(50)
    with pytest.warns(UserWarning, match=r"the target is constant \(5\)"):
        model = quick().fit(X, np.full(50, 5.0))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 5.0, atol=1e-6)
    assert np.isfinite(std).all()
    assert (std > 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "matern"}, "unknown kernel 'matern'. Did you mean 'matern"),
        ({"k": 0}, "k is 0: expected 'auto' or a whole number of at least 1"),
        ({"k": "many"}, "k is 'many'"),
        ({"k": 2.5}, "k is 2.5"),
        ({"predictive": "student"}, "predictive is 'student': expected one of 'calibrated', 'gaussian'"),
        ({"engine": "gpu"}, "engine is 'gpu': expected one of 'fused', 'batched'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"batch_size": -3}, "batch_size is -3"),
        ({"learning_rate": 0}, "learning_rate is 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(**arguments).fit(*small(20))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.full((5, 2), np.nan), np.ones(5), "NaN: column 0 has 5 missing or infinite values in 5 rows"),
        (np.full((5, 2), np.inf), np.ones(5), r"infinity \(inf\): column 0"),
        (np.ones((5, 2)), np.array([1, 2, np.nan, 4, 5]), "the target y has 1 missing"),
        (np.ones((0, 2)), np.ones(0), "0 sample"),
        (np.ones((5, 2)), np.ones(4), "inconsistent numbers of samples"),
        (np.ones((5, 2)), np.array(["a"] * 5), "could not convert string to float|Unable to convert"),
        (np.array([["a", "b"]] * 5), np.ones(5), "could not convert string to float|Unable to convert"),
        (np.ones(5), np.ones(5), "Expected 2D array"),
    ],
)
def test_bad_input_is_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor().fit(X, y)


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
    text = str(model.summary_)
    for part in ("2,000 rows, 8 columns", "kernel matern52", "recoveries: 0 factorisations", "left out: RMSE", "NLL"):
        assert part in text


def test_progress_bar_only_where_wanted(capfd):
    X, y = small()
    quick().fit(X, y)
    assert capfd.readouterr().err == ""
    quick(verbose=True).fit(X, y)
    assert "left_out_log_density" in capfd.readouterr().err


def test_log_score_is_in_the_units_of_the_target():
    X, y = small()
    base, scaled = quick().fit(X, y), quick().fit(X, 1000 * y)
    assert scaled.log_score(X, 1000 * y) == pytest.approx(base.log_score(X, y) - math.log(1000), abs=1e-4)
    assert base.log_score(X, y) == pytest.approx(np.mean(base.predict_dist(X).logpdf(y)))
