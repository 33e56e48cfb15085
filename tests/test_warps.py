"""Bent columns: increasing, standardised, linear beyond the training rows; features, coordinates and slopes agree."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from scipy.special import ndtri, softmax

from nearfield.warps import KNOTS, Warps, bend_slopes, feature_lengths, log_shares


def _columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    outlier = rng.standard_normal(1000)
    outlier[17] = 1e15
    crowded = np.r_[rng.normal(0, 1e-6, 500), rng.normal(5, 1, 500)]
    return {
        "normal": rng.standard_normal(1000),
        "few": rng.standard_normal(40),
        "skewed": rng.lognormal(0, 2, 1000),
        "heavy tails": rng.standard_cauchy(1000),
        "ties": np.round(rng.standard_normal(1000), 1),
        "mostly zero": np.where(rng.random(1000) < 0.9, 0.0, rng.standard_normal(1000)),
        "integers": rng.poisson(4, 1000).astype(float),
        "three values": rng.integers(0, 3, 1000).astype(float),
        "three rows": np.array([0.0, 1.0, 5.0]),
        "as many values as knots": rng.permutation(np.repeat(np.arange(KNOTS - 2.0), 3)),
        "one more": rng.permutation(np.repeat(np.arange(KNOTS - 1.0), 3)),
        "an outlier": outlier,
        "crowded": crowded,
    }


COLUMNS = _columns()
DATA = pytest.mark.parametrize("which", COLUMNS)
BENDS = np.array([[-2.0, -2.0], [0.0, 0.0], [8.0, -8.0], [-8.0, 8.0], [8.0, 8.0], [-8.0, -8.0]])


def standardised(column: np.ndarray) -> np.ndarray:
    return (column - column.mean()) / column.std()


def warps_of(*columns: np.ndarray, weights: np.ndarray | None = None) -> Warps:
    inputs = np.stack(columns, axis=1)
    return Warps.of(inputs, np.ones(len(inputs)) if weights is None else weights, np.ones(len(columns), dtype=bool))


def scores_by_hand(column: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Normal and uniform score (2, n) of every row, standardised; quadratic in the number of rows."""
    below = np.array([weights[column < value].sum() for value in column])
    equal = np.array([weights[column == value].sum() for value in column])
    rank = (below + equal / 2) / weights.sum()
    both = np.stack([ndtri(rank), rank])
    both -= np.average(both, axis=1, weights=weights)[:, None]
    return both / np.sqrt(np.average(both**2, axis=1, weights=weights))[:, None]


# --- the table ------------------------------------------------------------------------------------------------------


@DATA
@pytest.mark.parametrize("scaled", [True, False], ids=["standardised", "raw"])
def test_tables_increase(which, scaled):
    column = standardised(COLUMNS[which]) if scaled else COLUMNS[which]
    warps = warps_of(column)
    assert warps.knots.shape == (1, KNOTS)
    assert warps.scores.shape == (1, 2, KNOTS)
    assert np.isfinite(warps.knots).all()
    assert np.isfinite(warps.scores).all()
    assert (np.diff(warps.knots) > 0).all()
    assert (np.diff(warps.scores) >= 0).all()
    assert warps.knots[0, 0] < column.min()
    assert warps.knots[0, -1] > column.max()
    assert {column.min(), column.max()} <= set(warps.knots[0])


@DATA
def test_scores_at_training_rows_are_those_by_hand(which):
    column = standardised(COLUMNS[which])
    weights = np.random.default_rng(1).uniform(0.5, 3, len(column))
    features = warps_of(column, weights=weights).features(column[:, None])
    expected = scores_by_hand(column, weights)
    few = len(np.unique(column)) <= KNOTS - 2
    np.testing.assert_array_equal(features[:, 0], column)
    np.testing.assert_allclose(features[:, 1:].T, expected, atol=1e-9 if few else 0.05)
    mean, square = (np.average(x, axis=0, weights=weights) for x in (features[:, 1:], features[:, 1:] ** 2))
    np.testing.assert_allclose(mean, 0, atol=1e-9 if few else 0.01)
    np.testing.assert_allclose(square, 1, atol=1e-9 if few else 0.01)


def test_scores_of_many_values_are_close_to_those_by_hand_everywhere():
    """Knots are spread over ranks and over normal scores."""
    for which in ("normal", "skewed", "heavy tails"):
        column = standardised(COLUMNS[which])
        found = warps_of(column).features(column[:, None])[:, 1:].T
        off = np.abs(found - scores_by_hand(column, np.ones(len(column))))
        assert off.max() < 0.05
        assert off.mean() < 0.01


@DATA
def test_weights_are_repetitions(which):
    column = standardised(COLUMNS[which])
    times = np.random.default_rng(1).integers(1, 4, len(column))
    weighted, repeated = warps_of(column, weights=times.astype(float)), warps_of(np.repeat(column, times))
    np.testing.assert_array_equal(weighted.knots, repeated.knots)
    np.testing.assert_array_equal(weighted.scores, repeated.scores)


def test_the_order_of_rows_does_not_matter():
    column = standardised(COLUMNS["skewed"])
    one, other = warps_of(column), warps_of(np.random.default_rng(1).permutation(column))
    np.testing.assert_array_equal(one.knots, other.knots)
    np.testing.assert_array_equal(one.scores, other.scores)


@pytest.mark.parametrize("weight", [1e-3, 1e-20, 1e-300])
def test_a_row_that_counts_for_next_to_nothing_leaves_the_scores_finite(weight):
    for row in (0, 4, 16):
        weights = np.ones(17)  # the others are sixteen: their shares add up to one exactly
        weights[row] = weight
        warps = warps_of(np.arange(17.0), weights=weights)
        assert np.isfinite(warps.scores).all()
        assert (np.diff(warps.scores) >= 0).all()


def test_columns_of_two_values_and_those_not_allowed_are_not_bent():
    rng = np.random.default_rng(0)
    inputs = np.stack(
        [
            rng.standard_normal(50),
            np.arange(50) % 2,
            np.full(50, 3.0),
            rng.standard_normal(50),
            rng.standard_normal(50),
        ],
        axis=1,
    )
    warps = Warps.of(inputs, np.ones(50), np.array([True, True, True, False, True]))
    np.testing.assert_array_equal(warps.columns, [0, 4])
    np.testing.assert_array_equal(warps.owners, [0, 4, 0, 4])
    assert len(warps) == 2
    bent = warps.coordinates(inputs, np.ones((2, 2)))
    np.testing.assert_array_equal(bent[:, 1:4], inputs[:, 1:4])
    assert (bent[:, [0, 4]] != inputs[:, [0, 4]]).any(axis=0).all()


@pytest.mark.parametrize("allowed", [[False, False], [True, True]])
def test_without_columns_to_bend_there_are_no_features(allowed):
    inputs = np.stack([np.arange(20) % 2, np.zeros(20)], axis=1).astype(float)
    warps = Warps.of(inputs, np.ones(20), np.array(allowed))
    assert len(warps) == 0
    assert warps.d == 2
    np.testing.assert_array_equal(warps.features(inputs), inputs)
    np.testing.assert_array_equal(warps.coordinates(inputs, np.zeros((0, 2))), inputs)
    lengths, by = np.array([0.3, -0.2]), np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(feature_lengths(warps, lengths, np.zeros((0, 2))), lengths)
    by_lengths, by_bends = bend_slopes(warps, np.zeros((0, 2)), by)
    np.testing.assert_array_equal(by_lengths, by)
    assert by_bends.shape == (0, 2)


def test_more_rows_than_are_ranked():
    rng = np.random.default_rng(0)
    n = 2**17 + 3
    inputs = np.stack([rng.standard_normal(n), rng.lognormal(size=n), rng.integers(0, 2, n)], axis=1)
    warps = Warps.of(inputs, np.ones(n), np.ones(3, dtype=bool))
    np.testing.assert_array_equal(warps.columns, [0, 1])
    z = np.linspace(-2, 2, 41)
    found = warps.features(np.stack([z, np.exp(z), 0 * z], axis=1))
    np.testing.assert_allclose(found[:, 3], z, atol=0.05)  # the normal score of a normal column is the column
    np.testing.assert_allclose(found[:, 4], z, atol=0.05)
    uniform = (scipy.stats.norm.cdf(z) - 0.5) * np.sqrt(12)
    np.testing.assert_allclose(found[:, 5], uniform, atol=0.05)
    np.testing.assert_allclose(found[:, 6], uniform, atol=0.05)


# --- coordinates ----------------------------------------------------------------------------------------------------


@DATA
@pytest.mark.parametrize("bends", BENDS)
def test_coordinates_increase(which, bends):
    """Strictly over what is far enough apart for a difference to be seen, and nowhere do they fall."""
    column = standardised(COLUMNS[which])
    warps, low, high = warps_of(column), column.min(), column.max()
    width = high - low
    apart = np.linspace(low - width, high + width, 301)
    coordinates = warps.coordinates(apart[:, None], bends[None])[:, 0]
    assert (np.diff(coordinates) > 0).all()
    rows = np.unique(column)
    between = np.sort(np.r_[rows, (rows[1:] + rows[:-1]) / 2, apart])
    coordinates = warps.coordinates(between[:, None], bends[None])[:, 0]
    assert (np.diff(coordinates) >= -1e-12).all()


@DATA
def test_coordinates_are_features_weighted_by_their_shares(which):
    rng = np.random.default_rng(1)
    column = standardised(COLUMNS[which])
    inputs = np.stack([rng.standard_normal(len(column)), column, np.arange(len(column)) % 2], axis=1)
    warps = Warps.of(inputs, np.ones(len(inputs)), np.ones(3, dtype=bool))
    bends = rng.standard_normal((2, 2))
    query = np.concatenate([inputs, 3 * inputs, inputs + 0.01])
    features, found = warps.features(query), warps.coordinates(query, bends)
    assert features.shape == (len(query), 3 + 4)
    np.testing.assert_array_equal(found[:, 2], query[:, 2])
    for i, e in enumerate(warps.columns):
        shares = softmax([0.0, *bends[i]])
        np.testing.assert_allclose(found[:, e], features[:, [e, 3 + i, 5 + i]] @ shares, rtol=1e-12, atol=1e-12)


@DATA
def test_scores_are_linear_between_rows(which):
    column = standardised(COLUMNS[which])
    warps = warps_of(column)
    knots, width = warps.knots[0], np.diff(warps.knots[0])
    for share in (0.25, 0.5):
        z = knots[:-1] + share * width
        inside = (z > knots[:-1]) & (z < knots[1:])
        expected = [np.interp(z[inside], knots, own) for own in warps.scores[0]]
        np.testing.assert_allclose(warps.features(z[inside][:, None])[:, 1:].T, expected, atol=1e-9)


@pytest.mark.parametrize("which", [name for name in COLUMNS if name != "an outlier"])
def test_beyond_the_training_rows_distances_grow_with_the_mean_slope(which):
    column = standardised(COLUMNS[which])
    warps, low, high = warps_of(column), column.min(), column.max()
    ends = warps.features(np.array([[low], [high]]))
    slope = (ends[1] - ends[0]) / (high - low)
    assert (slope > 0).all()
    for far in (0.1, 1.0, 7.5, 300.0, 1e6):
        below, above = warps.features(np.array([[low - far], [high + far]]))
        np.testing.assert_allclose(above - ends[1], far * slope, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ends[0] - below, far * slope, rtol=1e-9, atol=1e-12)


def test_an_outlier_far_away_keeps_everything_finite():
    for column in (COLUMNS["an outlier"], -COLUMNS["an outlier"], standardised(COLUMNS["an outlier"])):
        warps = warps_of(column)
        query = np.r_[column, -1e18, 1e18, 2e15, 0.0][:, None]
        features = warps.features(query)
        assert np.isfinite(features).all()
        order = np.argsort(query[:, 0])
        assert (np.diff(features[order], axis=0) >= -1e-9 * np.maximum(1, np.abs(features[order][1:]))).all()
        usual = np.sort(np.delete(column, 17))
        assert np.ptp(warps.features(usual[:, None])[:, 1:], axis=0).min() > 2  # its neighbours are spread out


def test_the_same_bits_for_any_number_of_threads_and_any_rows(monkeypatch):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((10_000, 3))
    warps, bends = Warps.of(inputs, np.ones(10_000), np.ones(3, dtype=bool)), rng.standard_normal((3, 2))
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        found.append((warps.features(inputs), warps.coordinates(inputs, bends)))
    for features, coordinates in found[1:]:
        np.testing.assert_array_equal(features, found[0][0])
        np.testing.assert_array_equal(coordinates, found[0][1])
    for part in (slice(0, 1), slice(4000, 4200), slice(0, 0)):
        np.testing.assert_array_equal(warps.features(inputs[part]), found[0][0][part])
        np.testing.assert_array_equal(warps.coordinates(inputs[part], bends), found[0][1][part])
    turned = np.asfortranarray(inputs)
    np.testing.assert_array_equal(warps.features(turned), found[0][0])
    np.testing.assert_array_equal(warps.coordinates(turned, bends), found[0][1])


def test_inputs_stay_as_they_are():
    inputs = np.random.default_rng(0).standard_normal((30, 2))
    before = inputs.copy()
    warps = Warps.of(inputs, np.ones(30), np.ones(2, dtype=bool))
    warps.features(inputs)
    warps.coordinates(inputs, np.zeros((2, 2)))
    np.testing.assert_array_equal(inputs, before)


# --- shares and slopes ----------------------------------------------------------------------------------------------


def test_shares_are_a_softmax():
    np.testing.assert_allclose(np.exp(log_shares(BENDS)), [softmax([0.0, *bend]) for bend in BENDS], rtol=1e-12)
    assert np.isfinite(log_shares(np.array([[800.0, -800.0]]))).all()


def example() -> tuple[Warps, np.ndarray, np.ndarray]:
    """Four columns, of which the second and the last are bent; inputs and bends."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((60, 4))
    warps = Warps.of(inputs, np.ones(60), np.array([False, True, False, True]))
    return warps, inputs, rng.standard_normal((2, 2))


@pytest.mark.parametrize("kernels", [(), (3,)], ids=["one kernel", "three"])
def test_features_over_their_lengths_add_up_to_coordinates_over_theirs(kernels):
    warps, inputs, bends = example()
    log_lengths = np.random.default_rng(1).standard_normal((*kernels, 4))
    features, lengths = warps.features(inputs), feature_lengths(warps, log_lengths, bends)
    assert lengths.shape == (*kernels, 8)
    coordinates = warps.coordinates(inputs, bends)
    for own, of_features in zip(np.atleast_2d(log_lengths), np.atleast_2d(lengths), strict=True):
        scaled = features / np.exp(of_features)
        added = scaled[:, :4].copy()
        for i, e in enumerate(warps.owners):
            added[:, e] += scaled[:, 4 + i]
        np.testing.assert_allclose(added, coordinates / np.exp(own), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernels", [(), (3,)], ids=["one kernel", "three"])
def test_slopes_equal_finite_differences(kernels):
    warps, _, bends = example()
    rng, step = np.random.default_rng(1), 1e-5
    log_lengths, weights = rng.standard_normal((*kernels, 4)), rng.standard_normal((*kernels, 8))

    def value(log_lengths, bends):
        return np.sum(weights * np.sin(feature_lengths(warps, log_lengths, bends)))

    by = weights * np.cos(feature_lengths(warps, log_lengths, bends))
    given = [log_lengths, bends]
    before = by.copy()
    for i, found in enumerate(bend_slopes(warps, bends, by)):
        assert found.shape == given[i].shape
        for place in np.ndindex(found.shape):
            ends = []
            for sign in (1, -1):
                moved = [x.copy() for x in given]
                moved[i][place] += sign * step
                ends.append(value(*moved))
            assert found[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-7, abs=1e-8)
    np.testing.assert_array_equal(by, before)
