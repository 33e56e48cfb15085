"""GPRegressor on strange and bad input: few rows, duplicates, extreme numbers, mistakes."""

from __future__ import annotations

import math
import os
import signal
import warnings

import numpy as np
import pytest
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small
from sklearn.exceptions import NotFittedError

from nearfield import GPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


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
    model = GPRegressor(random_state=0, max_steps=100).fit(X, y)
    low, high = model.predict_interval(X)
    assert model.score(X, y) > 0.95
    assert 0.8 < np.mean((low <= y) & (y <= high)) < 0.98


def test_duplicated_rows_do_not_leak_their_targets():
    """Each row twice with independent noise: left-out residuals keep the noise."""
    X, _ = small(300, 1)
    X = np.repeat(X, 2, axis=0)
    y = np.sin(X[:, 0]) + 0.5 * np.random.default_rng(2).standard_normal(600)
    model = GPRegressor(random_state=0, k=32, max_steps=200).fit(X, y)
    assert model.noise_std_ == pytest.approx(0.5, rel=0.15)
    assert model.loo_.residual.std() == pytest.approx(0.5, rel=0.15)


@pytest.mark.parametrize("far", [1e3, 1e10, 1e18, 1e20, 1e36, 1e100])
def test_far_from_all_rows_the_prior_returns(far):
    X, y = small()
    model = quick(k=16, predictive="plain").fit(X, y)
    mean, std = model.predict(np.full((1, 3), far), return_std=True)
    assert abs(mean[0] - y.mean()) < y.std()
    assert std[0] == pytest.approx(np.hypot(model.kernel_scale_, model.noise_std_), rel=1e-6)


def test_a_column_that_was_constant_in_training_is_ignored():
    X, y = small()
    model = quick(k=16).fit(np.column_stack([X, np.full(300, 2024.0)]), y)
    now, later = (model.predict(np.column_stack([X, np.full(300, year)])) for year in (2024.0, 2034.0))
    np.testing.assert_array_equal(now, later)


@pytest.mark.parametrize("unit", [1e-200, 1e-165, 1e160, 1e200])
def test_targets_of_extreme_size(unit, tmp_path):
    X, y = small()
    model = quick(k=16).fit(X, y * unit)
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
    assert model.update(X[5:], y[5:]).k_ == 199
    X, y = small(3100)
    model = quick().fit(X[:200], y[:200])
    assert model.update(X[200:], y[200:]).k_ == 199  # too many to be factorised together


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
    """Threads and locks of the parent are not in the child."""
    X, y = small(600)
    settings = {"k": 16, "max_steps": 10}
    model = quick(**settings).fit(X, y)
    expected = model.predict(X)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        equal = np.array_equal(model.predict(X), expected) and np.array_equal(
            quick(**settings).fit(X, y).predict(X), expected
        )
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
        ({"predictive": "student"}, "predictive is 'student': expected one of 'calibrated', 'plain'"),
        ({"predictive": "student_t"}, "predictive is 'student_t': expected one of 'calibrated', 'plain'"),
        ({"mean": "cubic"}, "mean is 'cubic': expected one of 'constant', 'linear'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"batch_size": -3}, "batch_size is -3"),
        ({"learning_rate": 0}, "learning_rate is 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(**arguments).fit(*small(20))


@pytest.mark.parametrize(
    ("make", "data"),
    [(quick, small), (quick_classifier, labelled), (quick_counts, lambda n: counted(n)[:2])],
)
def test_old_spellings_work_and_warn(make, data):
    """predictive by the name of the likelihood, calibrated=, engine=: the same model as in the new spelling."""
    X, y = data(30)
    plain, default = make(predictive="plain").fit(X, y), make().fit(X, y)
    olds = [({"engine": "batched"}, default, "engine is deprecated and has no effect")]
    likelihood = make().likelihood
    if likelihood != "auto":  # classes never had that spelling
        olds.append(({"predictive": likelihood}, plain, f"predictive='{likelihood}' is deprecated: write .*plain"))
    if "calibrated" in make().get_params():
        olds.append(({"calibrated": False}, plain, "calibrated=False is deprecated: write predictive=.plain"))
        olds.append(({"calibrated": True}, default, "calibrated=True is deprecated: write predictive=.calibrated"))
    for arguments, same, message in olds:
        with pytest.warns(FutureWarning, match=message) as caught:
            model = make(**arguments).fit(X, y)
        assert [w.filename for w in caught if w.category is FutureWarning] == [__file__]
        predict = "predict_proba" if hasattr(model, "predict_proba") else "predict_interval"
        np.testing.assert_array_equal(getattr(model, predict)(X), getattr(same, predict)(X))
        assert model.summary_.predictive == same.summary_.predictive
        assert model.get_params() == {**same.get_params(), "predictive": "calibrated", **arguments}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        make(predictive="plain").fit(X, y)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.full((5, 2), np.nan), np.ones(5), "no columns to predict from"),
        (np.full((5, 2), np.inf), np.ones(5), r"infinity \(inf\): column 'x0'"),
        (np.ones((5, 2)), np.array([1, 2, np.nan, 4, 5]), "the target y has 1 missing"),
        (np.ones((0, 2)), np.ones(0), "0 sample"),
        (np.ones((5, 2)), np.ones(4), "inconsistent numbers of samples"),
        (np.ones((5, 2)), np.array(["a"] * 5), "the target y has values that are no numbers"),
        (np.ones(5), np.ones(5), "Expected 2D array"),
    ],
)
def test_bad_input_is_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor().fit(X, y)


def test_progress_bar_only_where_wanted(capfd, monkeypatch):
    monkeypatch.setattr("nearfield.progress._DELAY", 0.0)
    X, y = small()
    quick(k=8).fit(X, y)
    assert capfd.readouterr().err == ""
    quick(k=8, verbose=True).fit(X, y)
    assert "left-out score" in capfd.readouterr().err


def test_log_score_is_in_the_units_of_the_target():
    X, y = small()
    base, scaled = quick(k=16).fit(X, y), quick(k=16).fit(X, 1000 * y)
    assert scaled.log_score(X, 1000 * y) == pytest.approx(base.log_score(X, y) - math.log(1000), abs=1e-4)
    assert base.log_score(X, y) == pytest.approx(np.mean(base.predict_dist(X).logpdf(y)))


def test_few_rows_for_many_columns_are_warned_of():
    """Noise alone: length scales follow it, and yet rows that were left out promise little more than new ones keep."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((560, 40)), rng.standard_normal(560)
    X[:60, 7] = 1.0  # a column that does not vary is not counted
    with pytest.warns(UserWarning, match="60 rows are few for 39 columns"):
        model = GPRegressor(random_state=0, max_steps=100).fit(X[:60], y[:60])
    assert abs(model.summary_.left_out["nll"] + model.log_score(X[60:], y[60:])) < 0.5
    low, high = model.predict_interval(X[60:], coverage=0.9)
    assert np.mean((low <= y[60:]) & (y[60:] <= high)) > 0.75
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GPRegressor(random_state=0, max_steps=20).fit(X[:60, :3], y[:60])
