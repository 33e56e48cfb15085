"""Every method of the registry, on every kind of task that it claims, small."""

import time

import numpy as np
import pytest
from scipy.stats import norm, t

from experiments.methods import METHODS, MissingPackage, Prediction, Settings
from experiments.methods.common import best_on_validation, inducing_points, logistic_normal, minibatches
from experiments.methods.protocol import TASKS

SMALL = {
    "svgp": {"inducing": 20, "steps": 120, "batch": 64},
    "ppgpr": {"inducing": 20, "steps": 120, "batch": 64},
    "swsgp": {"inducing": 40, "nearest": (8,), "steps": 150, "batch": 32},
    "pgvi": {"inducing": 20, "steps": 80},
    "hist-boosting": {"trees": 50},
    "muygps": {"neighbours": 20, "batch": 60, "iterations": 15},
    "alc": {"k": 20, "candidates": 60, "lengths": ("isotropic",)},
}
NUMBERS = ("regression", "multivariate")
CASES = [(name, task) for name, method in METHODS.items() for task in sorted(method.kind)]


def data(task, n=360):
    """Standardised rows, as the harness passes them, of a function of the first of two inputs; or of two functions."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    f = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=n)
    if task == "multivariate":
        f = np.stack([f, f + np.cos(X[:, 1]) + 0.2 * rng.normal(size=n)], axis=1)
    if task in NUMBERS:
        return X, (f - f.mean(0)) / f.std(0)
    return X, np.digitize(f, [0.0] if task == "binary" else [-0.5, 0.5]).astype(np.int64)


def settings(task, **more):
    return Settings(task, 3 if task == "multiclass" else 2, outputs=2 if task == "multivariate" else 1, **more)


def build(name, task):
    try:
        return METHODS[name].build(settings(task, quick=True, threads=1, options=SMALL.get(name, {})))
    except MissingPackage as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(("name", "task"), CASES)
def test_each_method_beats_the_trivial_prediction(name, task):
    X, y = data(task)
    method = build(name, task)
    method.fit(X[:240], y[:240], X[240:300], y[240:300], seed=1)
    found = method.predict(X[300:])
    shares = np.bincount(y[:240]) / 240 if task not in NUMBERS else None
    shape = y[300:].shape
    trivial = (
        Prediction.normal(np.zeros(shape), np.ones(shape))
        if shares is None
        else Prediction.classes(np.tile(shares, (60, 1)))
    )
    assert found.nll(y[300:]) < trivial.nll(y[300:]) - 0.2
    if task in NUMBERS:
        assert found.mean.shape == shape
        assert (found.dist.ppf(0.9) > found.mean).all()
        np.testing.assert_allclose(found.dist.cdf(found.mean), 0.5)
        assert (np.sqrt(np.mean((found.mean - y[300:]) ** 2, axis=0)) < 0.75).all()
    else:
        assert found.probabilities.shape == (60, len(shares))
        np.testing.assert_allclose(found.probabilities.sum(1), 1)
        assert (found.probabilities >= 0).all()


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_passed_deadline_is_a_timeout(name, task):
    X, y = data(task)
    with pytest.raises(TimeoutError):
        build(name, task).fit(X, y, X, y, deadline=time.monotonic() - 1)


@pytest.mark.parametrize("name", METHODS)
def test_a_task_that_a_method_cannot_do_and_an_option_it_does_not_have_are_errors(name):
    other = next((task for task in sorted(TASKS) if task not in METHODS[name].kind), None)
    if other:
        with pytest.raises(ValueError, match=f"{name} does .*, not {other}"):
            METHODS[name].build(settings(other))
    with pytest.raises(TypeError, match="no_such_option"):
        METHODS[name].build(settings(min(METHODS[name].kind), options={"no_such_option": 1}))


def test_settings_are_checked():
    with pytest.raises(ValueError, match="task is 'ranking'"):
        Settings("ranking")
    with pytest.raises(ValueError, match="binary task has 2 classes, not 3"):
        Settings("binary", classes=3)
    with pytest.raises(ValueError, match="outputs is 1: a multivariate task has 2 or more"):
        Settings("multivariate")
    with pytest.raises(ValueError, match=r"outputs is 2: .* any other task has 1"):
        Settings("regression", outputs=2)


def test_the_candidate_with_the_lowest_validation_nll_is_chosen():
    def fit(mean):
        return lambda x: Prediction.normal(np.full(len(x), mean), np.ones(len(x)))

    best, predict = best_on_validation((5.0, 1.1, -3.0), fit, np.zeros((4, 1)), np.ones(4), None)
    assert best == 1.1
    assert predict(np.zeros((1, 1))).mean == [1.1]


def test_nll_of_numbers_and_of_classes():
    y = np.array([0.3, -1.0])
    assert Prediction.normal(np.zeros(2), np.ones(2)).nll(y) == pytest.approx(-norm.logpdf(y).mean())
    assert Prediction.classes(np.array([[1.0, 3.0], [1.0, 1.0]])).nll(np.array([1, 0])) == pytest.approx(
        -np.log([0.75, 0.5]).mean()
    )


@pytest.mark.parametrize("make", [norm, lambda *a: t([3.0, 30.0], *a)], ids=["normal", "t with a df for each output"])
def test_each_output_of_a_prediction_has_its_own_distribution(make):
    rng = np.random.default_rng(0)
    mean, scale, y = rng.normal(size=(5, 2)), rng.uniform(0.5, 2, size=(5, 2)), rng.normal(size=(5, 2))
    both = Prediction(mean=mean, dist=make(mean, scale))
    for j in range(2):
        one = both.output(j)
        np.testing.assert_array_equal(one.mean, mean[:, j])
        np.testing.assert_allclose(one.dist.logpdf(y[:, j]), both.dist.logpdf(y)[:, j])
    assert both.nll(y) == pytest.approx(np.mean([both.output(j).nll(y[:, j]) for j in range(2)]))
    with pytest.raises(ValueError, match="only a prediction of several outputs"):
        both.output(0).output(0)


def test_logistic_of_a_normal_equals_sampling():
    f = np.random.default_rng(0).normal(0.7, 1.5, size=400_000)
    expected = np.mean(1 / (1 + np.exp(-f)))
    np.testing.assert_allclose(logistic_normal(np.array([0.7]), np.array([1.5**2])), expected, atol=2e-3)


def test_inducing_points_are_distinct_even_if_rows_are_not():
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 5, axis=0)
    assert len(np.unique(inducing_points(X, 10, 0), axis=0)) == 10
    assert len(inducing_points(X, 100, 0)) == 30


def test_minibatches_visit_every_row_once_before_any_twice():
    seen = np.concatenate([rows.numpy() for rows in minibatches(12, 4, 6, seed=0)])
    np.testing.assert_array_equal(np.sort(seen[:12]), np.arange(12))
    np.testing.assert_array_equal(np.sort(seen[12:]), np.arange(12))
