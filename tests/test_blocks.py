"""Averages over blocks, against exact block kriging by dense algebra."""

from __future__ import annotations

import numpy as np
import pytest

from nearfield import GPRegressor
from nearfield.blocks import cell_offsets, inside, polygon_block

SETTINGS = {"random_state": 0, "verbose": False, "predictive": "plain"}
SQUARE = np.array([[2.0, 3.0], [6.0, 3.0], [6.0, 5.0], [2.0, 5.0]])


def matern32(apart: np.ndarray) -> np.ndarray:
    r = np.sqrt(3) * np.sqrt((apart**2).sum(axis=-1))
    return (1 + r) * np.exp(-r)


def surface(X: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(3)
    return 50 + 10 * (np.sin(X[:, 0] / 2 + 1) * np.cos(X[:, 1]) + 0.3 * rng.standard_normal(len(X)))


@pytest.fixture(scope="module")
def plane() -> tuple[GPRegressor, np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(0, 10, (400, 2))
    y = surface(X)
    return GPRegressor("matern32", coordinates=[0, 1], **SETTINGS).fit(X, y), X, y


def block_kriging(model, A, y, points, weights):
    """Mean and std of a weighted average over points (q, 2), from all y (n,) at A (n, 2)."""
    level = model.target_mean_ + model.target_std_ * float(model._fit.predictor.model.parameters["mean"][0])
    A, points = A @ model.rotation_.T / model.length_scales_, points @ model.rotation_.T / model.length_scales_
    sill, nugget = model.kernel_scale_**2, model.noise_std_**2
    between = sill * matern32(A[:, None] - A) + nugget * np.eye(len(A))
    across = sill * matern32(A[:, None] - points) @ weights
    own = weights @ (sill * matern32(points[:, None] - points)) @ weights
    solved = np.linalg.solve(between, across)
    return level + solved @ (y - level), np.sqrt(own - across @ solved)


@pytest.mark.parametrize("size", [0.01, 1.0, [8.0, 3.0]])
def test_cells_are_kriged_exactly(plane, size):
    model, X, y = plane
    centres = np.array([[5.0, 5.0], [1.0, 9.0], [11.0, -1.0]])
    mean, std = model.predict_block(centres, size)
    offsets = cell_offsets(np.broadcast_to(np.asarray(size, dtype=float), (2,)), 100)
    for i, centre in enumerate(centres):
        wanted = block_kriging(model, X, y, centre + offsets, np.full(100, 0.01))
        np.testing.assert_allclose((mean[i], std[i]), wanted, rtol=1e-5)


def test_small_blocks_are_points_and_large_ones_better_known(plane):
    model, _, _ = plane
    centre = np.array([[5.0, 5.0]])
    mean, std = model.predict(centre, return_std=True, uncertainty="latent")
    tiny = model.predict_block(centre, 1e-6)
    np.testing.assert_allclose(np.ravel(tiny), np.ravel([mean, std]), rtol=1e-4)
    assert model.predict_block(centre, 6.0)[1] < 0.5 * std


def test_the_samples_of_a_block_have_its_average(plane):
    """The same by `sample_y`, which goes another way."""
    model, _, _ = plane
    points = np.array([5.0, 5.0]) + cell_offsets(np.array([3.0, 3.0]), 100)
    averages = model.sample_y(points, 4000, uncertainty="latent").mean(axis=0)
    mean, std = model.predict_block(np.array([[5.0, 5.0]]), 3.0)
    assert abs(averages.mean() - mean[0]) < 5 * std[0] / np.sqrt(4000)
    assert abs(averages.std() / std[0] - 1) < 0.06


def test_a_rectangle_is_a_cell(plane):
    model, _, _ = plane
    by_cell = np.ravel(model.predict_block(np.array([[4.0, 4.0]]), [4.0, 2.0], n_points=400))
    np.testing.assert_allclose(model.predict_block(SQUARE, n_points=400), by_cell, rtol=2e-3)
    mean, std = model.predict_block([SQUARE, SQUARE + 3.0])
    assert mean.shape == std.shape == (2,)
    np.testing.assert_array_equal([mean[0], std[0]], model.predict_block(SQUARE))


def test_polygons_are_filled_and_holes_are_not():
    star = np.array([[0, 0], [4, 1], [8, 0], [5, 3], [4, 9], [3, 3]], dtype=float)
    hole = np.array([[3.5, 1.5], [4.5, 1.5], [4.0, 2.5]])
    block = polygon_block([star, hole], 300)
    assert 300 <= len(block.points) < 1500
    assert abs(block.weights.sum() - 1) < 1e-12
    assert inside(block.points, [star]).all()
    assert not inside(block.points, [hole]).any()
    # against integrals of a known polygon: the triangle (0, 0), (1, 0), (0, 1) has its centre at a third
    triangle = polygon_block([np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])], 2000)
    np.testing.assert_allclose(triangle.weights @ triangle.points, [1 / 3, 1 / 3], atol=0.01)


class Shape:
    """As shapely has them."""

    def __init__(self, kind: str, coordinates: list) -> None:
        self.__geo_interface__ = {"type": kind, "coordinates": coordinates}


def test_objects_with_a_geo_interface(plane):
    model, _, _ = plane
    closed = np.concatenate([SQUARE, SQUARE[:1]]).tolist()
    np.testing.assert_allclose(model.predict_block(Shape("Polygon", [closed])), model.predict_block(SQUARE), rtol=1e-12)
    both = Shape("MultiPolygon", [[closed], [(np.array(closed) + 10.0).tolist()]])
    assert model.predict_block(both)[1] > 0
    with pytest.raises(ValueError, match="a block is a 'Point'"):
        model.predict_block(Shape("Point", [1, 2]))


def test_points_of_the_globe_count_by_their_ground():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(170, 190, 300), rng.uniform(50, 90, 300)])
    y = X[:, 1] + 0.1 * rng.standard_normal(300)
    model = GPRegressor("matern52", coordinates="lonlat", **SETTINGS).fit(X, y)
    mean, _ = model.predict_block(np.array([[180.0, 75.0]]), [10.0, 20.0], n_points=900)
    lat = np.radians(np.linspace(65, 85, 20001))
    assert abs(mean[0] - np.degrees(np.average(lat, weights=np.cos(lat)))) < 0.3  # 75 without the weights is 1.2 away
    beyond, _ = model.predict_block(np.array([[180.0, 89.0]]), [10.0, 4.0])  # half of it is beyond the pole
    assert 87 < beyond[0] < 89.5


def test_other_columns_hold():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(0, 10, (300, 2)), rng.uniform(0, 1, 300)])
    y = np.sin(X[:, 0]) + 5 * X[:, 2] + 0.05 * rng.standard_normal(300)
    model = GPRegressor(coordinates=[0, 1], **SETTINGS).fit(X, y)
    low, high = (model.predict_block(SQUARE, like=[[0, 0, level]])[0] for level in (0.2, 0.8))
    assert abs(high - low - 3) < 0.3
    cells = model.predict_block(np.array([[4.0, 4.0, 0.2], [4.0, 4.0, 0.8]]), [4.0, 2.0])[0]
    np.testing.assert_allclose(cells, [low, high], rtol=0.02)
    with pytest.raises(ValueError, match="other columns than coordinates: pass like="):
        model.predict_block(SQUARE)
    with pytest.raises(ValueError, match="like has 2 rows"):
        model.predict_block(SQUARE, like=X[:2])


def test_mistakes_are_named(plane):
    model, X, y = plane
    centre = X[:1]
    for wrong in (0.0, -1.0, np.nan, [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match=r"size is .*: expected a number above 0, or 2 of them"):
            model.predict_block(centre, wrong)
    for wrong in (0, 1.5, 10**6):
        with pytest.raises(ValueError, match=r"n_points is .*: expected a whole number from 1 to 2,000"):
            model.predict_block(centre, 1.0, n_points=wrong)
    for wrong in (3.0, "here", [[[1, 2, 3]]]):
        with pytest.raises(ValueError, match=r"expected a polygon: \(m, 2\) corners"):
            model.predict_block(wrong)
    with pytest.raises(ValueError, match="there are no blocks"):
        model.predict_block([])
    with pytest.raises(ValueError, match="ring of 2 corners"):
        model.predict_block(SQUARE[:2])
    with pytest.raises(ValueError, match="no area"):
        model.predict_block([[0, 0], [1, 0], [2, 0]])
    with pytest.raises(ValueError, match="like is for polygons"):
        model.predict_block(centre, 1.0, like=centre)
    with pytest.raises(ValueError, match="fit with coordinates="):
        GPRegressor(max_steps=1, **SETTINGS).fit(X[:40], y[:40]).predict_block(centre, 1.0)
