"""The numbers behind plots and reports, against brute force, known distributions and scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small
from sklearn import metrics as sk

from nearfield import GPRegressor
from nearfield.columns import Features
from nearfield.diagnostics import Labelled, Predicted, left_out, predicted_rows
from nearfield.diagnostics import coverage as cover
from nearfield.diagnostics import residuals as off
from nearfield.diagnostics.chance import holm, independent, mean_p, share_band, share_p
from nearfield.diagnostics.effects import effect
from nearfield.diagnostics.frequencies import rootogram
from nearfield.diagnostics.labels import confusion, curves, reliability
from nearfield.diagnostics.neighbours import scores_by_k
from nearfield.diagnostics.places import binned, map_grid, variogram
from nearfield.diagnostics.slices import Slice, column_slices
from nearfield.metrics import CountScores, Scores
from nearfield.prediction import Predictor


class Poisson:
    """Predictive distributions over counts, by scipy."""

    def __init__(self, rate):
        self.rate = np.asarray(rate, dtype=float)
        self._dist = scipy.stats.poisson(self.rate)

    def __len__(self):
        return len(self.rate)

    def __getattr__(self, name):
        return getattr(self._dist, name)

    def crps_rows(self, y):
        counts = np.arange(400)[:, None]
        return ((self._dist.cdf(counts) - (counts >= y)) ** 2).sum(axis=0)


# --- calibration ------------------------------------------------------------------------------------------------------


def test_the_pit_of_quantiles_is_flat():
    """Exactly: row i is the quantile (i + 1/2) / n of its own distribution."""
    n = 1000
    loc, scale = np.random.default_rng(0).uniform(1, 2, (2, n))
    dist = scipy.stats.t(5, loc, scale)
    rows = Predicted.of(dist.ppf((np.arange(n) + 0.5) / n), dist)
    np.testing.assert_allclose(cover.pit_histogram(rows, 20), 0.05, atol=1e-12)
    np.testing.assert_allclose(cover.coverage(rows, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=1.01 / n)
    assert cover.verdict(rows)["spread_p"] > 0.9
    assert cover.needed_factor(rows) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("rate", [0.3, 4.0, 60.0])
def test_the_pit_of_counts_is_flat_where_they_are_what_was_predicted(rate):
    """Exactly: every count, weighted by its probability."""
    y = np.arange(scipy.stats.poisson(rate).isf(1e-15) + 1)
    rows = Predicted.of(y, Poisson(np.full(len(y), rate)), scipy.stats.poisson(rate).pmf(y))
    np.testing.assert_allclose(cover.pit_histogram(rows, 16), 1 / 16, atol=1e-10)
    levels = [0.05, 0.5, 0.9, 0.99]
    np.testing.assert_allclose(cover.coverage(rows, levels), levels, atol=1e-10)
    found = cover.verdict(rows)
    assert abs(found["bias"]) < 1e-10
    assert abs(found["spread"]) < 1e-10


def test_the_pit_of_a_wrong_distribution_is_known():
    """Intervals half as wide as they should be hold P(|Z| < q / 2)."""
    n = 20_001
    y = scipy.stats.norm.ppf((np.arange(n) + 0.5) / n)
    rows = Predicted.of(y, scipy.stats.norm(np.zeros(n), 0.5))
    half = scipy.stats.norm.ppf(0.95) / 2
    assert cover.coverage(rows, [0.9])[0] == pytest.approx(2 * scipy.stats.norm.cdf(half) - 1, abs=1e-3)
    assert cover.needed_factor(rows) == pytest.approx(2, rel=1e-3)
    edges = np.linspace(0, 1, 11)
    np.testing.assert_allclose(
        cover.pit_histogram(rows, 10), np.diff(scipy.stats.norm.cdf(0.5 * scipy.stats.norm.ppf(edges))), atol=1e-3
    )
    assert cover.verdict(rows)["spread_p"] < 1e-6


def test_coverage_of_numbers_is_that_of_their_intervals():
    rng = np.random.default_rng(1)
    dist = scipy.stats.norm(rng.normal(size=200), rng.uniform(0.5, 2, 200))
    y, weights = rng.normal(size=200), rng.integers(1, 4, 200)
    rows, twice = Predicted.of(y, dist, weights), np.repeat(np.arange(200), weights)
    for level in (0.2, 0.9):
        low, high = dist.interval(level)
        inside = (low <= y) & (y <= high)
        assert cover.coverage(rows, [level])[0] == pytest.approx(inside[twice].mean())
    np.testing.assert_allclose(
        cover.pit_histogram(rows, 7), np.histogram(dist.cdf(y)[twice], np.linspace(0, 1, 8))[0] / len(twice)
    )


def test_scores_are_those_of_the_metrics():
    rng = np.random.default_rng(2)
    y, dist = rng.normal(size=50), scipy.stats.t(4, rng.normal(size=50), 1.3)
    expected = {name: value for name, value in Scores.of(y, dist).as_dict().items() if name != "n"}
    assert Predicted.of(y, dist).scores() == pytest.approx(expected)
    X, counts, _ = counted(80)
    dist = quick_counts().fit(X, counts).predict_dist(X)
    expected = {name: value for name, value in CountScores.of(counts, dist).as_dict().items() if name != "n"}
    assert Predicted.of(counts, dist).scores() == pytest.approx(expected)


def test_slices_are_judged_by_their_own_rows():
    rng = np.random.default_rng(3)
    n = 900
    table = pd.DataFrame({"district": rng.choice(["north", "south"], n), "x": rng.uniform(size=n)})
    model = quick().fit(table, np.sin(6 * table["x"]) + rng.normal(size=n))
    wide = np.where(table["district"] == "north", 0.4, 1.0)  # intervals of one slice are far too narrow
    rows = Predicted.of(rng.normal(size=n), scipy.stats.norm(np.zeros(n), wide))
    slices = column_slices(model.encoder_, left_out(model).features)
    assert {part.column for part in slices} == {"district", "x"}
    for part in slices:
        if part.column == "district":
            np.testing.assert_array_equal(part.rows, table["district"] == part.label)
    assert sum(part.rows.sum() for part in slices if part.column == "x") == n
    found = {(entry["column"], entry["slice"]): entry for entry in cover.by_slices(rows, slices)}
    narrow = found["district", "north"]
    low, high = rows.ends
    own = (table["district"] == "north").to_numpy()
    assert narrow["coverage"] == pytest.approx(np.mean(((low <= rows.y) & (rows.y <= high))[own]))
    assert narrow["p"] < 1e-6
    assert found["district", "south"]["p"] > 0.01


def test_the_worst_slab_is_found_and_no_other_is_made_up():
    rng = np.random.default_rng(4)
    features = rng.normal(size=(4000, 3))
    planted = features[:, 1] > 0.5
    rows = Predicted.of(rng.normal(size=4000), scipy.stats.norm(np.zeros(4000), np.where(planted, 0.5, 1.0)))
    slab = cover.worst_slab(rows, features)
    assert slab.coverage < 0.75
    assert slab.p < 1e-6
    assert abs(slab.direction[1]) > 0.8
    honest = cover.worst_slab(Predicted.of(rng.normal(size=4000), scipy.stats.norm(np.zeros(4000), 1.0)), features)
    assert honest.p > 1e-3
    assert cover.worst_slab(Predicted.of(np.zeros(10), scipy.stats.norm(np.zeros(10), 1.0)), features[:10]) is None


# --- chance -----------------------------------------------------------------------------------------------------------


def test_tests_are_those_of_scipy():
    rng = np.random.default_rng(5)
    values = rng.normal(0.1, 1, 60)
    mean, error, p = mean_p(values, np.ones(60))
    told = scipy.stats.ttest_1samp(values, 0.0)
    assert (mean, p) == pytest.approx((values.mean(), told.pvalue))
    assert error == pytest.approx(scipy.stats.sem(values))
    assert share_p(0.8, 0.9, 50) == scipy.stats.binomtest(40, 50, 0.9).pvalue
    low, high = share_band(np.array([0.9]), 100)
    assert (low[0], high[0]) == tuple(np.array(scipy.stats.binom.interval(0.95, 100, 0.9)) / 100)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_rows_that_share_their_fate_count_once():
    assert independent(np.ones(12)) == 12
    assert independent(np.ones(12), np.repeat(np.arange(3), 4)) == pytest.approx(3)
    assert independent(np.array([1.0, 1.0, 0.0])) == pytest.approx(2)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_left_out_rows_are_those_of_the_model():
    X, y = small(120, 2)
    model = quick().fit(X, 5 + 3 * y)
    found = left_out(model)
    rows = found.targets["y"]
    np.testing.assert_allclose(rows.mean, model.loo_.mean)
    np.testing.assert_allclose(rows.std, model.loo_.std)
    np.testing.assert_allclose(rows.residual, model.loo_.residual)
    np.testing.assert_allclose(found.features, X, atol=1e-12)
    np.testing.assert_array_equal(found.numbers, np.arange(120))
    some = left_out(model, 30)
    np.testing.assert_allclose(some.targets["y"].mean, model.loo_.mean[some.numbers])


def test_left_out_rows_of_counts_and_classes_are_those_of_the_model():
    X, y, _ = counted(80)
    model = quick_counts().fit(X, y)
    np.testing.assert_allclose(left_out(model).targets["y"].mean, model.loo_.mean)
    X, labels = labelled(80, 3)
    classes = quick_classifier().fit(X, labels)
    rows = left_out(classes).labelled
    np.testing.assert_allclose(rows.p, classes.loo_.probability)
    np.testing.assert_allclose(np.log(rows.of_label), classes.loo_.log_score)


def test_outputs_that_are_missing_are_left_out():
    X, y = small(80, 2)
    Y = np.stack([y, -y], axis=1)
    Y[:10, 1] = np.nan
    model = quick(outputs="shared").fit(X, Y)
    found = left_out(model)
    assert [len(rows) for rows in found.targets.values()] == [80, 70]
    np.testing.assert_allclose(found.targets["y1"].mean, model.loo_.mean[10:, 1])
    again = predicted_rows(model, X, Y)
    np.testing.assert_allclose(again.targets["y1"].mean, model.predict(X)[10:, 1])


def test_test_rows_of_unknown_classes_are_counted():
    X, labels = labelled(80, 3)
    model = quick_classifier().fit(X, labels)
    found = predicted_rows(model, X, np.where(np.arange(80) < 5, 99, labels))
    assert (found.unseen, len(found.labelled)) == (5, 75)
    with pytest.raises(ValueError, match="none of the 3 rows"):
        predicted_rows(model, X[:3], [99, 99, 99])
    with pytest.raises(ValueError, match="expected a target for each row"):
        predicted_rows(model, X[:3], labels[:2])


# --- residuals --------------------------------------------------------------------------------------------------------


def test_residuals_are_binned_as_by_hand():
    rng = np.random.default_rng(6)
    y = rng.normal(size=400)
    rows, x = Predicted.of(y, scipy.stats.norm(np.zeros(400), 2.0)), rng.uniform(size=400)
    found = off.by_values(rows, x, 4)
    assert sum(part["rows"] for part in found) == 400
    for i, part in enumerate(found):
        own = ((x >= part["low"]) if i == 0 else (x > part["low"])) & (x <= part["high"])
        assert part["residual"] == pytest.approx(y[own].mean())
        assert part["rmse"] == pytest.approx(np.sqrt((y[own] ** 2).mean()))
        assert part["stated"] == pytest.approx(2.0)
    lower, upper = rows.ends
    np.testing.assert_array_equal(off.surprise(rows) > 1, (y < lower) | (y > upper))


def test_the_nearest_rows_are_the_nearest_others():
    X, y = small(90, 2)
    model = quick(warp=False, kernel="matern52").fit(X, y)
    found, places = left_out(model), np.array([3, 50])
    numbers, values = off.neighbour_values(model, off.nearest_rows(model, found, places))
    for row, near in zip(places, numbers, strict=True):
        distance = np.linalg.norm((X - X[row]) / model.length_scales_, axis=1)
        np.testing.assert_array_equal(near, np.argsort(distance)[1:4])
    np.testing.assert_allclose(values, y[numbers])


# --- effects and neighbours -------------------------------------------------------------------------------------------


def test_effects_are_means_of_predictions_with_their_joint_errors():
    X, y = small(100, 3)
    model = quick().fit(X, 10 * y)
    found = effect(model, 1, X[:15], points=4)
    assert found.exact
    for place, value in enumerate(found.values):
        at = X[:15].copy()
        at[:, 1] = value
        mean, covariance = model.predict(at, return_cov=True, uncertainty="latent")
        assert found.mean[place, 0] == pytest.approx(mean.mean())
        std = np.sqrt(np.ones(15) @ covariance @ np.ones(15)) / 15
        assert found.high[place, 0] - found.mean[place, 0] == pytest.approx(2 * std)


def test_effects_of_levels_and_classes():
    rng = np.random.default_rng(7)
    table = pd.DataFrame({"colour": rng.choice(["blue", "red"], 90), "x": rng.normal(size=90)})
    labels = np.where((table["colour"] == "red") ^ (rng.random(90) < 0.1), "yes", "no")
    model = quick_classifier().fit(table, labels)
    found = effect(model, 0, left_out(model).features[:20])
    for place, level in enumerate(found.labels):
        at = table.iloc[:20].assign(colour=level)
        np.testing.assert_allclose(found.mean[place], model.predict_proba(at).mean(axis=0), atol=1e-12)
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()


def test_scores_by_k_are_those_of_models_with_that_k():
    X, y = small(150, 2)
    model = quick(k=20, predictive="plain", continuous=False).fit(X, 3 * y)
    found, fit = scores_by_k(model), model._fit
    assert 20 in found
    for k in (4, 16, 20):
        predictor = Predictor(fit.predictor.model, fit.predictor.rows, k, fit.predictor.head)
        residual = model._target.undo(predictor.left_out().loc) - 3 * y
        assert found[k]["rmse"] == pytest.approx(np.sqrt(np.mean(residual**2)))


# --- maps -------------------------------------------------------------------------------------------------------------


def test_the_empirical_variogram_is_that_of_all_pairs():
    X, y = small(80, 2)
    model = quick(coordinates=[0, 1]).fit(X, 2 * y)
    found = variogram(model, bins=6, max_lag=1.5)
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)
    square = (2 * y[:, None] - 2 * y[None]) ** 2
    i, j = np.triu_indices(80, 1)
    for place, number in enumerate(np.floor(found.lags / 0.25).astype(int)):
        own = np.floor(distance[i, j] / 0.25).astype(int) == number
        assert found.pairs[place] == own.sum()
        assert found.empirical[place] == pytest.approx(square[i, j][own].mean() / 2)
    np.testing.assert_allclose(found.model[1:], model.variogram(found.model_lags[1:]))


def test_distances_on_the_globe_are_great_circles():
    rng = np.random.default_rng(8)
    lonlat, y = np.stack([rng.uniform(-20, 40, 60), rng.uniform(40, 60, 60)], axis=1), rng.normal(size=60)
    model = GPRegressor(coordinates="lonlat", max_steps=5, refresh_every=5, random_state=0).fit(lonlat, y)
    found = variogram(model, bins=5, max_lag=20.0)
    lon, lat = np.radians(lonlat).T
    i, j = np.triu_indices(60, 1)
    cosine = np.sin(lat[i]) * np.sin(lat[j]) + np.cos(lat[i]) * np.cos(lat[j]) * np.cos(lon[i] - lon[j])
    expected = binned(np.degrees(np.arccos(np.clip(cosine, -1, 1))), (y[i] - y[j]) ** 2, 20.0, 5)
    for own, other in zip((found.lags, found.empirical, found.pairs), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)


def test_maps_are_predictions():
    X, y = small(80, 2)
    grid = map_grid(quick(coordinates=[0, 1]).fit(X, y), size=5)
    assert grid.mean.shape == (5, 5)
    X, labels = labelled(80, 2)
    model = quick_classifier().fit(X, labels)
    grid = map_grid(model, size=4)
    at = Features(np.array([[grid.x[2], grid.y[1]]]))
    assert grid.mean[1, 2] == pytest.approx(model.predict_proba(at)[0, 1])


# --- classes and counts -----------------------------------------------------------------------------------------------


def test_classes_are_judged_as_by_scikit_learn():
    rng = np.random.default_rng(9)
    p = rng.dirichlet(np.ones(3), 300)
    labels = np.array([rng.choice(3, p=row) for row in p])
    rows = Labelled(labels, p, np.ones(300))
    np.testing.assert_array_equal(confusion(rows), sk.confusion_matrix(labels, p.argmax(axis=1)))
    found = curves(rows, 1)
    assert found.auc == pytest.approx(sk.roc_auc_score(labels == 1, p[:, 1]))
    assert found.average_precision == pytest.approx(sk.average_precision_score(labels == 1, p[:, 1]))
    assert (found.false_positive[0], found.false_positive[-1]) == (0, 1)
    assert (np.diff(found.recall) >= 0).all()
    easy = curves(Labelled(labels, np.eye(3)[labels] * 0.7 + 0.1, np.ones(300)), 1)
    assert easy.precision[easy.recall < 1].min() == 1
    assert easy.precision[np.argmax(easy.recall == 1)] == 1  # up there before it falls
    bins = reliability(rows, label=2, bins=5)
    for part in bins:
        own = (p[:, 2] >= part["low"]) & (p[:, 2] < part["high"])
        assert part["rows"] == own.sum()
        assert part["observed"] == pytest.approx((labels == 2)[own].mean())
        assert part["predicted"] == pytest.approx(p[own, 2].mean())
    assert min(part["p"] for part in bins) > 1e-3
    assert curves(Labelled(np.zeros(4, dtype=int), p[:4], np.ones(4)), 0) is None


@pytest.mark.parametrize("rate", [2.0, 300.0])
def test_the_rootogram_counts_every_row(rate):
    rng = np.random.default_rng(10)
    y = rng.poisson(rate, 500).astype(float)
    found = rootogram(Predicted.of(y, Poisson(np.full(500, rate))))
    assert found.observed.sum() == pytest.approx(500)
    assert found.expected.sum() == pytest.approx(500)
    for low, high, seen, expected in zip(*found, strict=True):
        assert seen == ((y >= low) & (y <= high)).sum()
        if high < y.max():
            assert expected == pytest.approx(500 * scipy.stats.poisson(rate).pmf(np.arange(low, high + 1)).sum())


def test_a_slice_is_rows_of_a_column():
    part = Slice("a", "b", np.array([True, False]))
    rows = Predicted.of([0.0, 5.0], scipy.stats.norm([0.0, 0.0], 1.0))
    (told,) = off.by_slices(rows, [part])
    assert told["rows"] == 1
    assert told["residual"] == 0.0
