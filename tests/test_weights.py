"""sample_weight: only ratios matter, whole ones are counts, and error bars hold whatever the factor."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small

from nearfield import GPRegressor
from nearfield.persistence import ModelFileError
from nearfield.weighting import MOST_COUNTED, Weighting, WeightsWarning


def used(given):
    given = np.asarray(given, dtype=float)
    return Weighting.of(given).applied(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 1, 1], [1, 1, 1]),
        ([1, 2, 3], [1, 2, 3]),
        ([10, 20, 30], [1, 2, 3]),
        ([0.1, 0.2, 0.3], [1, 2, 3]),
        ([1e-320, 2e-320, 3e-320], [1, 2, 3]),
        ([1e308, 1e308, 1e308], [1, 1, 1]),
        ([0, 2, 4], [0, 1, 2]),
        ([2, 3, 7], [0.5, 0.75, 1.75]),
        ([0, 0.2, 0.3], [0, 0.8, 1.2]),
        ([0.01, 0.5, 0.99], [0.02, 1.0, 1.98]),  # 50 on average: rounded weights rather than counts
        ([1e308, 1.5e308, 1.25e308], [0.8, 1.2, 1.0]),
    ],
)
def test_weights_are_counts_where_ratios_are_whole_and_of_mean_one_otherwise(given, expected):
    np.testing.assert_allclose(used(given), expected, rtol=1e-12)


def test_counts_are_whole_to_the_bit_whatever_the_factor():
    counts = np.random.default_rng(0).integers(1, 5, 500).astype(float)
    for factor in (1 / counts.sum(), 1 / 3, 0.1, 7.0, 1e-300, 1e300):
        np.testing.assert_array_equal(used(counts * factor), counts)
    assert counts.mean() < MOST_COUNTED


KINDS = {
    "number": lambda n: (quick(k=10), *small(n)),
    "label": lambda n: (quick_classifier(k=10), *labelled(n, 3)),
    "balanced label": lambda n: (quick_classifier(k=10, class_weight="balanced"), *labelled(n, 3)),
    "count": lambda n: (quick_counts(k=10), *counted(n)[:2]),
}


def answers(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else np.stack(model.predict(X, return_std=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["counts", "fractions", "equal"])
def test_a_constant_factor_changes_nothing_but_the_warning(kind, weights):
    model, X, y = KINDS[kind](60)
    rng = np.random.default_rng(1)
    given = {"counts": np.arange(60) % 3 + 1.0, "fractions": rng.uniform(0.5, 1.5, 60), "equal": np.ones(60)}[weights]
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeightsWarning)
        expected = answers(model.fit(X, y, sample_weight=given / (given.mean() if weights == "fractions" else 1)), X)
    for factor in (2.0**-10, 2.0**5):
        with pytest.warns(WeightsWarning, match="a constant factor on them changes nothing"):
            found = answers(model.fit(X, y, sample_weight=given * factor), X)
        if weights == "fractions":  # the mean rounds
            np.testing.assert_allclose(found, expected, rtol=1e-4)
        else:
            np.testing.assert_array_equal(found, expected)


def test_intervals_cover_whatever_the_factor():
    shares = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (600, 2))
        y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=600)
        with pytest.warns(WeightsWarning):
            model = GPRegressor(random_state=0).fit(
                X[:200], y[:200], sample_weight=np.full(200, (0.005, 10.0)[seed % 2])
            )
        low, high = model.predict_interval(X[200:])
        shares.append(np.mean((low <= y[200:]) & (y[200:] <= high)))
    assert 0.86 <= np.mean(shares) <= 0.94


def test_warnings_say_what_was_done():
    X, y = small(40)
    with pytest.warns(WeightsWarning, match="is 10 for every row, which is the same as 1"):
        quick(k=5).fit(X, y, sample_weight=np.full(40, 10))
    with pytest.warns(WeightsWarning, match="divided by its least value, 10: a row of weight 30 counts 3 times"):
        quick(k=5).fit(X, y, sample_weight=10 * (np.arange(40) % 3 + 1))
    weights = np.linspace(1, np.pi, 40)
    with pytest.warns(WeightsWarning, match="sums to 1 and was scaled to sum to 40"):
        quick(k=5).fit(X, y, sample_weight=weights / weights.sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_updates_have_the_unit_of_the_fit_also_from_a_file(kind, tmp_path):
    model, X, y = KINDS[kind](60)
    other = KINDS[kind](60)[0]
    model.fit(X[:40], y[:40], sample_weight=np.arange(40) % 2 + 1.0)
    other.fit(X[:40], y[:40], sample_weight=8 * (np.arange(40) % 2 + 1.0))
    other.save(tmp_path / "m.nf")
    loaded = type(other).load(tmp_path / "m.nf")
    expected = answers(model.update(X[40:], y[40:], sample_weight=np.full(20, 2.0)), X)
    for one in (other, loaded):
        np.testing.assert_array_equal(answers(one.update(X[40:], y[40:], sample_weight=np.full(20, 16.0)), X), expected)


@pytest.mark.filterwarnings("ignore")
def test_rows_appended_without_weights_count_once():
    X, y = small(60)
    plain, scaled = quick(k=10).fit(X[:40], y[:40]), quick(k=10).fit(X[:40], y[:40], sample_weight=np.full(40, 0.025))
    np.testing.assert_array_equal(plain.update(X[40:], y[40:]).predict(X), scaled.update(X[40:], y[40:]).predict(X))


@pytest.mark.parametrize("wrong", [3, [1.0], [0.0, True], [-1.0, True], ["a", True], [True, True], [1.0, 2]])
def test_a_file_with_a_wrong_unit_is_refused(wrong):
    from nearfield.estimators._files import _unpacked_weighting

    with pytest.raises(ModelFileError, match="weight"):
        _unpacked_weighting(wrong)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_wrong_weights_are_refused(bad):
    X, y = small(20)
    with pytest.raises(ValueError):
        quick(k=5).fit(X, y, sample_weight=np.r_[bad, np.ones(19)])
    with pytest.raises(ValueError, match=r"non-zero|zero for every row"):
        quick(k=5).fit(X, y, sample_weight=np.zeros(20))
