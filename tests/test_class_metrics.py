"""Scores of classes and of counts against their definitions, in plain loops."""

import numpy as np
import pytest
from scipy import stats

from nearfield.counts import CountDistribution
from nearfield.metrics import BINS, LEVELS, ClassScores, CountScores, brier, calibration_error, class_nll, error


def some_classes(n=500, classes=4, seed=0):
    """Classes drawn from the probabilities predicted for them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 0.7), n)
    return np.array([rng.choice(classes, p=row) for row in p]), p


def some_counts(n=300, seed=0):
    rng = np.random.default_rng(seed)
    dist = CountDistribution.negative_binomial(rng.normal(1, 1, n), rng.uniform(0.01, 1, n), 2.0)
    return dist.rvs(random_state=rng), dist


def test_class_scores_are_their_definitions():
    y, p = some_classes()
    n = y.size
    top = [(max(row), int(np.argmax(row)) == c) for c, row in zip(y, p, strict=True)]
    gap = 0.0
    for b in range(BINS):
        inside = [(q, right) for q, right in top if b / BINS <= q < (b + 1) / BINS]
        if inside:
            confidence, accuracy = np.mean(inside, axis=0)
            gap += len(inside) / n * abs(confidence - accuracy)
    expected = {
        "n": n,
        "nll": -np.mean([np.log(row[c]) for c, row in zip(y, p, strict=True)]),
        "error": np.mean([not right for _, right in top]),
        "brier": np.mean([sum((q - (k == c)) ** 2 for k, q in enumerate(row)) for c, row in zip(y, p, strict=True)]),
        "calibration_error": gap,
    }
    found = ClassScores.of(y, p).as_dict()
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-12)
    functions = {"nll": class_nll, "error": error, "brier": brier, "calibration_error": calibration_error}
    assert {name: function(y, p) for name, function in functions.items()} == {name: found[name] for name in functions}


def test_sure_and_right_is_perfect_and_sure_and_wrong_is_finite():
    y, p = np.array([0, 1]), np.eye(2)
    assert ClassScores.of(y, p).as_dict() == {"n": 2, "nll": 0, "error": 0, "brier": 0, "calibration_error": 0}
    wrong = ClassScores.of(1 - y, p).as_dict()
    assert wrong == pytest.approx({"n": 2, "nll": -np.log(1e-15), "error": 1, "brier": 2, "calibration_error": 1})


def test_true_probabilities_are_calibrated_and_sharpened_ones_are_not():
    y, p = some_classes(20_000)
    sharp = p**3 / np.sum(p**3, axis=1, keepdims=True)
    assert calibration_error(y, p) < 0.02 < 0.1 < calibration_error(y, sharp)
    assert class_nll(y, p) < class_nll(y, sharp)
    assert brier(y, p) < brier(y, sharp)


def test_blocks_of_classes_add_up_to_the_whole():
    y, p = some_classes()
    blocks = (ClassScores.of(y[i], p[i]) for i in np.split(np.arange(y.size), [1, 40, 333]))
    assert sum(blocks, start=ClassScores()).as_dict() == pytest.approx(ClassScores.of(y, p).as_dict(), rel=1e-12)


def test_count_scores_are_their_definitions():
    y, dist = some_counts()
    found = CountScores.of(y, dist).as_dict()
    assert list(found) == ["n", "rmse", "nll", "crps", "coverage_50", "coverage_90", "coverage_95"]
    assert found["n"] == y.size
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((y - dist.mean()) ** 2)), rel=1e-12)
    assert found["nll"] == pytest.approx(-np.mean(dist.logpmf(y)), rel=1e-12)
    assert found["crps"] == pytest.approx(np.mean(dist.crps_rows(y)), rel=1e-12)
    for level in LEVELS:
        low, high = dist.interval(level)
        assert found[f"coverage_{level * 100:.0f}"] == pytest.approx(np.mean((low <= y) & (y <= high)), abs=1e-12)


def test_coverage_of_counts_is_at_least_the_level():
    y, dist = some_counts(4000)
    found = CountScores.of(y, dist).as_dict()
    for level in LEVELS:
        assert found[f"coverage_{level * 100:.0f}"] > level - 3 * np.sqrt(level * (1 - level) / y.size)


def test_blocks_of_counts_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    mean, variance, trials = rng.normal(size=200), rng.uniform(0.1, 1, 200), rng.integers(1, 300, 200)
    dist = CountDistribution.binomial(mean, variance, trials)
    y = dist.rvs(random_state=1)
    cuts = np.split(np.arange(200), [1, 40, 133])
    blocks = (CountScores.of(y[i], CountDistribution.binomial(mean[i], variance[i], trials[i])) for i in cuts)
    assert sum(blocks, start=CountScores()).as_dict() == pytest.approx(CountScores.of(y, dist).as_dict(), rel=1e-12)


def test_a_row_of_weight_two_is_that_row_twice():
    weights = np.random.default_rng(1).integers(0, 3, 60)
    twice = np.repeat(np.arange(60), weights)
    y, p = some_classes(60)
    assert ClassScores.of(y, p, weights).as_dict() == pytest.approx(ClassScores.of(y[twice], p[twice]).as_dict())
    mean, y = np.linspace(-1, 3, 60), np.arange(60)
    dist, repeated = (CountDistribution.negative_binomial(m, 0.3, 1.5) for m in (mean, mean[twice]))
    assert CountScores.of(y, dist, weights).as_dict() == pytest.approx(CountScores.of(y[twice], repeated).as_dict())


@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0, 1, 0], np.full((2, 2), 0.5), r"y has shape \(3,\), the probabilities \(2, 2\)"),
        ([0, 1], [0.3, 0.4], r"np.column_stack\(\[1 - p, p\]\)"),
        ([0, 1], np.ones((2, 1)), "two or more classes"),
        ([0, 1], np.full((2, 2), 0.4), "sum to 1"),
        ([0, 1], [[1.5, -0.5], [0.5, 0.5]], "0 or more"),
        ([0, 1], [[np.nan, 0.5], [0.5, 0.5]], "0 or more"),
        ([1, 2], np.full((2, 2), 0.5), "y runs from 1 to 2; the numbers of the columns, 0 to 1"),
        ([0.5, 1], np.full((2, 2), 0.5), "numbers of the columns"),
        ([np.nan, 1], np.full((2, 2), 0.5), "missing"),
        ([], np.zeros((0, 2)), "at least one row"),
    ],
)
def test_misuse_of_class_scores_is_named(y, p, message):
    for score in (ClassScores.of, class_nll, error, brier, calibration_error):
        with pytest.raises(ValueError, match=message):
            score(np.array(y), np.array(p))


def test_misuse_of_count_scores_is_named():
    dist = CountDistribution.binomial(np.zeros(3), 1.0, 5)
    with pytest.raises(ValueError, match=r"shape \(2,\), the prediction \(3,\)"):
        CountScores.of([1, 2], dist)
    for impossible in (6, -1, 0.5):
        with pytest.raises(ValueError, match="impossible counts"):
            CountScores.of([0, 1, impossible], dist)
    with pytest.raises(ValueError, match="'rv_discrete_frozen'"):
        CountScores.of([1, 2], stats.poisson([1.0, 2.0]))
    with pytest.raises(ValueError, match="weights has shape"):
        CountScores.of([0, 1, 2], dist, [1.0, 2.0])
    for scores in (CountScores, ClassScores):
        with pytest.raises(ValueError, match=f"No rows were scored.*{scores.__name__}"):
            scores().as_dict()
