"""Intervals with a guarantee, against the definition by brute force, and their coverage on exchangeable data."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from estimator_data import quick, quick_counts, small

from nearfield.conformal import Errors, jackknife_plus, minmax
from nearfield.prediction import Predictor
from nearfield.rows import Rows


@pytest.fixture(scope="module")
def model():
    X, y = small(200, 2)
    return quick().fit(X, y)


def with_rows(model, X, y, k):
    """The same hyper-parameters, which never saw these rows."""
    other, fit = copy.copy(model), model._fit
    family = fit.predictor.model.family
    observed = family.standardised(family.observe(y, np.ones(len(y))), model._target)
    rows = Rows.of(family, fit.inputs.apply(X), observed)
    other._places = np.arange(len(y))
    other._adopt(replace(fit, predictor=Predictor(fit.predictor.model, rows, k, fit.predictor.head)))
    return other


def by_definition(mean, moved, R, coverage):
    """Ends of both intervals from predictions without each of n observations (n,) and their errors (n,)."""
    n = len(R)
    rank = int(np.ceil(round(coverage * (n + 1), 9)))
    up, down = np.sort(mean + moved + R), np.sort(mean + moved - R)
    if rank > n:
        return [(-np.inf, np.inf)] * 2
    q = np.sort(R)[rank - 1]
    return [(down[n + 1 - rank - 1], up[rank - 1]), ((mean + moved).min() - q, (mean + moved).max() + q)]


@pytest.mark.parametrize(("n", "m"), [(30, 7), (30, 30), (5, 2), (1, 1), (40, 1)])
@pytest.mark.parametrize("coverage", [0.01, 0.5, 0.8, 0.9, 0.95])
def test_order_statistics_with_some_moved(n, m, coverage):
    rng = np.random.default_rng(n + m)
    weights = rng.integers(1, 4, n).astype(float)
    R = np.round(np.abs(rng.standard_normal(n)), 1)  # with ties
    which = np.stack([rng.permutation(n)[:m] for _ in range(20)])
    moved, mean = np.round(rng.standard_normal((20, m)), 1), rng.standard_normal(20)
    errors = Errors.of(R, weights)
    found = [jackknife_plus(errors, coverage, mean, which, moved), minmax(errors, coverage, mean, which, moved)]
    times = weights.astype(int)
    for r in range(20):
        every = np.zeros(n)
        every[which[r]] = moved[r]
        expected = by_definition(mean[r], np.repeat(every, times), np.repeat(R, times), coverage)
        for own, right in zip(found, expected, strict=True):
            np.testing.assert_allclose([own[0][r], own[1][r]], right, rtol=0, atol=1e-12)


def test_weights_that_are_no_counts_are_shares():
    R = np.arange(1.0, 21.0)
    assert Errors.of(R, np.full(20, 0.05)).quantile(0.8) == Errors.of(R, np.ones(20)).quantile(0.8) == 17
    assert Errors.of(R, np.full(20, 0.05)).total == pytest.approx(20)


@pytest.mark.parametrize("k", [8, 59])
def test_estimator_against_deleting_every_row(model, k):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((60, 2)), rng.standard_normal(60)
    query = rng.standard_normal((4, 2))
    own = with_rows(model, X, y, k)
    without = [with_rows(model, np.delete(X, i, 0), np.delete(y, i), k) for i in range(60)]
    R = np.array([abs(y[i] - without[i].predict(X[i : i + 1])[0]) for i in range(60)])
    mean, moved = own.predict(query), np.stack([part.predict(query) for part in without]) - own.predict(query)
    for r in range(4):
        expected = by_definition(mean[r], moved[:, r], R, 0.8)
        for method, right in zip(("jackknife+", "minmax"), expected, strict=True):
            lower, upper = own.predict_interval(query, 0.8, method=method)
            np.testing.assert_allclose([lower[r], upper[r]], right, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("k", "tables"), [(12, 500), (59, 500)])
def test_coverage_on_exchangeable_data(model, k, tables):
    """Data sets of 60 rows, noise with heavy tails that grows with the input: nothing that the model knows of."""
    alpha, inside = 0.2, {"jackknife+": [], "minmax": []}
    for seed in range(tables):
        rng = np.random.default_rng([seed, k])
        X = rng.standard_normal((64, 2))
        y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * np.exp(X[:, 0]) * rng.standard_t(2, 64)
        own = with_rows(model, X[:60], y[:60], k)
        for method, found in inside.items():
            lower, upper = own.predict_interval(X[60:], 1 - alpha, method=method)
            found.append(((lower <= y[60:]) & (y[60:] <= upper)).mean())
    errors = {method: 3 * np.std(found) / np.sqrt(tables) for method, found in inside.items()}
    shares = {method: np.mean(found) for method, found in inside.items()}
    assert shares["jackknife+"] >= 1 - 2 * alpha - errors["jackknife+"]
    assert shares["jackknife+"] >= 1 - alpha - 0.03  # what it covers in practice
    assert shares["minmax"] >= 1 - alpha - errors["minmax"]
    assert shares["minmax"] >= shares["jackknife+"]


def test_weights_as_rows_given_twice():
    X, y = small(60, 2)
    times = np.random.default_rng(0).integers(1, 4, 60)
    weighted = quick(k=10).fit(X, y, sample_weight=times)
    repeated = quick(k=10).fit(np.repeat(X, times, 0), np.repeat(y, times))
    for method in ("jackknife+", "minmax"):
        np.testing.assert_array_equal(
            weighted.predict_interval(X + 0.1, method=method), repeated.predict_interval(X + 0.1, method=method)
        )


def test_few_rows_give_infinite_ends():
    X, y = small(8, 2)
    with pytest.warns(UserWarning, match="few"):
        own = quick().fit(X, y)
    for method in ("jackknife+", "minmax"):
        lower, upper = own.predict_interval(X, 0.9, method=method)
        assert (lower == -np.inf).all()
        assert (upper == np.inf).all()
        assert np.isfinite(own.predict_interval(X, 0.8, method=method)).all()


def test_shapes_units_and_updates(model, tmp_path):
    X, y = small(80, 2)
    column = quick().fit(X, y[:, None])
    lower, upper = column.predict_interval(X[:5], method="jackknife+")
    assert lower.shape == upper.shape == (5, 1)
    assert (lower < upper).all()
    large = quick().fit(X, 1e6 * y + 1e8)
    np.testing.assert_allclose(
        (np.array(large.predict_interval(X[:5], method="jackknife+")) - 1e8) / 1e6, np.array([lower, upper])[..., 0],
        rtol=1e-3, atol=1e-3,
    )  # fmt: skip
    own = quick().fit(X[:60], y[:60])
    before = own.predict_interval(X[:5], method="minmax")
    own.update(X[60:], y[60:])
    assert not np.array_equal(own.predict_interval(X[:5], method="minmax"), before)
    with pytest.warns(UserWarning, match="training rows"):
        own.save(tmp_path / "model")
    loaded = type(own).load(tmp_path / "model")
    for method in ("predictive", "jackknife+", "minmax"):
        ends = own.predict_interval(X[:5], 0.7, method=method)
        np.testing.assert_array_equal(loaded.predict_interval(X[:5], 0.7, method=method), ends)


def test_outliers_are_doubted_the_same():
    X, y = small(80, 2)
    y[::20] += 5
    own = quick(likelihood="student_t").fit(X, y)
    lower, upper = own.predict_interval(X, 0.8, method="jackknife+")
    assert 0.6 < ((lower <= y) & (y <= upper)).mean() <= 1


def test_mistakes(model):
    X, y = small(60, 2)
    for coverage in (0, 1, -0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match=r"coverage is .*: expected a number between 0 and 1"):
            model.predict_interval(X, coverage, method="jackknife+")
    with pytest.raises(ValueError, match=r"method is 'jackknife'.*predictive.*jackknife\+.*minmax"):
        model.predict_interval(X, method="jackknife")
    with pytest.raises(ValueError, match="guarantee is for observations"):
        model.predict_interval(X, uncertainty="latent", method="minmax")
    with pytest.raises(ValueError, match="3 features"):
        model.predict_interval(np.zeros((4, 3)), method="minmax")
    several = quick(outputs="shared").fit(X, np.stack([y, -y], axis=1))
    with pytest.raises(ValueError, match="for one output, and the model has 2"):
        several.predict_interval(X, method="jackknife+")
    grouped = quick().fit(X, y, groups=np.arange(60) // 3)
    with pytest.raises(ValueError, match="fitted with groups="):
        grouped.predict_interval(X, method="jackknife+")
    counts = quick_counts().fit(X, np.random.default_rng(0).poisson(3, 60))
    with pytest.raises(ValueError, match="real targets"):
        counts.predict_interval(X, method="jackknife+")
