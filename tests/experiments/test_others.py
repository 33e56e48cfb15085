"""What packages do is theirs to test; here: their predictives are calibrated, their classes in the right place."""

import functools
import time

import numpy as np
import pytest

from experiments.methods import METHODS, MissingPackage, Settings, others
from experiments.methods.others import spread
from experiments.methods.protocol import package

PACKAGES = {"catboost": "catboost", "ngboost": "ngboost", "gpboost": "gpboost", "muygps": "MuyGPyS"}
SMALL = {"muygps": {"neighbours": 30, "batch": 100, "iterations": 15}, "hist-boosting": {"trees": 60}}


def noisy_line(n=900, seed=0):
    """Noise that grows with the first input, for those that can tell."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.7, 1.7, size=(n, 2))
    return X, X[:, 0] + 0.5 * X[:, 1] + np.exp(0.5 * X[:, 0] - 1) * rng.normal(size=n)


@functools.cache
def fitted(name):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name], reason=f"the package {PACKAGES[name]} is not installed")
    X, y = noisy_line()
    method = METHODS[name].build(Settings(quick=True, threads=1, options=SMALL.get(name, {})))
    method.fit(X[:500], y[:500], X[500:600], y[500:600])
    return method.predict(X[600:]), X[600:], y[600:]


@pytest.mark.parametrize("name", ["catboost", "ngboost", "gpboost", "muygps"])
def test_ninety_percent_intervals_cover_about_ninety_percent(name):
    found, _, y = fitted(name)
    low, high = found.dist.interval(0.9)
    assert 0.8 < np.mean((low < y) & (y < high)) < 0.97
    assert np.sqrt(np.mean((found.mean - y) ** 2)) < 0.65


def test_gpboost_bears_columns_that_are_constant_or_nearly():
    pytest.importorskip("gpboost", reason="the package gpboost is not installed")
    X, y = noisy_line(300)
    X = np.c_[X, np.zeros(300), np.arange(300) == 7]
    method = METHODS["gpboost"].build(Settings(quick=True, threads=1))
    method.fit(X[:200], y[:200], X[200:250], y[200:250])
    assert np.sqrt(np.mean((method.predict(X[250:]).mean - y[250:]) ** 2)) < 0.8


@pytest.mark.parametrize("name", ["catboost", "ngboost"])
def test_boosting_sees_where_the_noise_is(name):
    found, X, _ = fitted(name)
    std = found.dist.std()
    assert std[X[:, 0] > 1].mean() > 1.5 * std[X[:, 0] < -1].mean()


@pytest.mark.parametrize("name", ["catboost", "hist-boosting"])
def test_a_class_that_training_lacks_has_its_column_and_a_small_probability(name):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name], reason=f"the package {PACKAGES[name]} is not installed")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.array([0, 2, 3])[np.digitize(X[:, 0], [-0.5, 0.5])]  # no 1
    y_val = y[300:].copy()
    y_val[0] = 1
    method = METHODS[name].build(Settings("multiclass", classes=4, quick=True, threads=1, options=SMALL.get(name, {})))
    method.fit(X[:300], y[:300], X[300:], y_val)
    p = method.predict(X[300:]).probabilities
    assert p.shape == (100, 4)
    assert (p[:, 1] < 0.01).all()
    assert (p[:, 1] > 0).all()
    assert np.mean(p.argmax(1) == y[300:]) > 0.9


def test_hist_boosting_does_not_diverge_on_rare_classes():
    """Without a penalty the validation loss of such data grows again after a few trees: an NLL of 0.02 or more."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24000, 3))
    y = np.where(X[:, 0] > 0.9, 1, 0)
    y[np.argsort(X[:, 1])[-8:]] = 2
    options = {"candidates": (7,), "trees": 200}
    method = METHODS["hist-boosting"].build(Settings("multiclass", classes=3, threads=1, options=options))
    method.fit(X[:20000], y[:20000], X[20000:], y[20000:])
    assert method.predict(X[20000:]).nll(y[20000:]) < 0.01


def test_of_a_long_table_some_rows_choose_and_all_are_fitted(monkeypatch):
    monkeypatch.setattr(others, "MOST_TO_CHOOSE", 200)
    seen = []

    class Mean(others.Packaged):
        name = "shift"

        def _fit(self, candidate, X, y, X_val, y_val, seed, deadline):
            seen.append((candidate, len(X)))
            return lambda x: others.Prediction.normal(np.full(len(x), y.mean() + candidate), np.ones(len(x)))

    X, y = noisy_line()
    method = Mean(Settings(), (5.0, 0.0, -5.0))
    method.fit(X[:500], y[:500], X[500:], y[500:])
    assert seen == [(5.0, 200), (0.0, 200), (-5.0, 200), (0.0, 500)]
    assert method.chosen == {"rows_to_choose": 200, "shift": 0.0}
    np.testing.assert_allclose(method.predict(X[:1]).mean, y[:500].mean())


def test_spread_keeps_the_ratios_of_the_classes_seen():
    p = spread(np.array([[0.2, 0.8]]), np.array([2, 0]), 3, n=9)
    np.testing.assert_allclose(p, [[0.72, 0.1, 0.18]])


@pytest.mark.parametrize("name", ["catboost", "ngboost"])
def test_a_deadline_stops_boosting_between_trees(name):
    pytest.importorskip(PACKAGES[name], reason=f"the package {PACKAGES[name]} is not installed")
    X, y = noisy_line()
    method = METHODS[name].build(Settings(threads=1, options={"trees": 10**6, "patience": 10**6}))
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        method.fit(X, y, X, y, deadline=before + 0.3)
    assert time.monotonic() < before + 30


def test_a_missing_package_is_named():
    with pytest.raises(MissingPackage, match=r"pip install -c constraints\.txt no_such_package"):
        package("no_such_package")
