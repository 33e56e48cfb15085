"""Anisotropy that need not follow the columns: the axes of planar coordinates."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from nearfield import GPClassifier, GPRegressor
from nearfield.rotation import axes_of


def turn(degrees: float) -> np.ndarray:
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, s], [-s, c]])


def field(X: np.ndarray, axes: np.ndarray, ranges: list[float], seed: int = 0) -> np.ndarray:
    """A random function (n,) of rows (n, p), with these ranges along the axes: waves whose directions are random."""
    rng = np.random.default_rng(seed)
    waves = rng.standard_normal((300, X.shape[1])) / np.sqrt(rng.gamma(2.5, 1 / 2.5, (300, 1)))
    return np.sqrt(2 / 300) * np.cos(X @ axes.T / ranges @ waves.T + rng.uniform(0, 2 * np.pi, 300)).sum(axis=1)


def errors(coordinates: list, X: np.ndarray, f: np.ndarray, n: int, noise: float = 0.1) -> tuple[list, GPRegressor]:
    """Errors of the truth at rows from n on, without coordinates and with them, and the model with them."""
    y = f + noise * np.random.default_rng(5).standard_normal(len(f))
    made = [GPRegressor(coordinates=c, random_state=0, verbose=False).fit(X[:n], y[:n]) for c in (None, coordinates)]
    return [float(np.sqrt(np.mean((m.predict(X[n:]) - f[n:]) ** 2))) for m in made], made[1]


def angle_of(model: GPRegressor) -> float:
    return float(np.degrees(np.arctan2(*model.rotation_[0, ::-1])))


@pytest.mark.parametrize("degrees", [30, 45])
def test_a_direction_between_the_columns_is_found(degrees):
    X = np.random.default_rng(1).uniform(0, 10, (700, 2))
    (plain, turned), model = errors([0, 1], X, field(X, turn(degrees), [5.0, 1.0]), 300)
    assert turned < 0.8 * plain
    assert abs(angle_of(model) - degrees) < 6
    assert model.length_scales_[0] > 3 * model.length_scales_[1]  # the longest first
    assert list(model.feature_relevance_) == ["axis_1", "axis_2"]
    assert "Coordinates are turned" in str(model.summary_)


def test_units_and_columns_beside_do_not_matter():
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 10, (700, 3))
    f = field(X[:, [2, 0]], turn(60), [5.0, 1.0]) + np.sin(X[:, 1])
    far = X * np.array([1e6, 1.0, 1e6]) + np.array([5e8, 0, -3e8])
    (plain, turned), model = errors([2, 0], far, f, 400)
    assert turned < 0.85 * plain
    assert abs(angle_of(model) - 60) < 6
    assert list(model.feature_relevance_) == ["axis_2", "x1", "axis_1"]
    assert (model.feature_importances_ > 0.1).all()


def test_what_has_no_direction_is_not_turned():
    X = np.random.default_rng(3).uniform(0, 10, (700, 2))
    (plain, with_axes), model = errors([0, 1], X, field(X, np.eye(2), [1.5, 1.5]), 300)
    assert np.array_equal(model.rotation_, np.eye(2))
    assert with_axes < 1.03 * plain
    assert "not turned" in str(model.summary_)
    assert list(model.feature_relevance_) == ["x0", "x1"]


def test_three_coordinates_and_the_file(tmp_path):
    axes = np.linalg.qr(np.random.default_rng(7).standard_normal((3, 3)))[0]
    X = np.random.default_rng(4).uniform(0, 5, (900, 3))
    (plain, turned), model = errors([0, 1, 2], X, field(X, axes, [6.0, 4.0, 1.0]), 500)
    assert turned < 0.9 * plain
    assert abs(model.rotation_[-1] @ axes[-1]) > 0.97  # the direction of the shortest range
    np.testing.assert_allclose(model.rotation_ @ model.rotation_.T, np.eye(3), atol=1e-12)
    with pytest.warns(UserWarning, match="training rows"):
        model.save(tmp_path / "model")
    again = GPRegressor.load(tmp_path / "model")
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.coordinates == [0, 1, 2]
    assert np.array_equal(again.rotation_, model.rotation_)


def test_longitude_and_latitude_may_be_turned_too():
    near = np.random.default_rng(6).uniform(-1, 1, (700, 2))  # degrees about (20, 60)
    X = near / np.array([np.cos(np.radians(60)), 1.0]) + np.array([20, 60])
    f = field(near * 5, turn(45), [5.0, 1.0])
    (plain, turned), model = errors({"lonlat": [0, 1]}, X, f, 300)
    assert turned < 0.8 * plain
    assert abs(angle_of(model) - 45) < 6
    assert list(model.feature_relevance_) == ["axis_1", "axis_2", "up"]


@pytest.mark.filterwarnings("ignore:.*few for")
def test_other_families_and_few_rows():
    rng = np.random.default_rng(8)
    X = rng.uniform(0, 10, (300, 2))
    f = field(X, turn(40), [8.0, 1.5])
    model = GPClassifier(coordinates=[0, 1], random_state=0, verbose=False, max_steps=20).fit(X, f > 0)
    assert abs(angle_of(model) - 40) < 12
    several = GPRegressor(coordinates=[0, 1], random_state=0, verbose=False, max_steps=2)
    several.fit(X, np.column_stack([f, -f]) + 0.1 * rng.standard_normal((300, 2)))
    assert abs(angle_of(several) - 40) < 8
    for n in (1, 2, 20):
        few = GPRegressor(coordinates=[0, 1], max_steps=2, verbose=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few rows, a constant target
            few.fit(X[:n], f[:n])
        assert np.array_equal(few.rotation_, np.eye(2))
    line = np.column_stack([X[:, 0], np.ones(300)])
    flat = GPRegressor(coordinates=[0, 1], max_steps=2, verbose=False, random_state=0).fit(line, f)
    assert np.array_equal(flat.rotation_, np.eye(2))


def test_axes_of_a_metric_are_orthogonal_and_ordered():
    rng = np.random.default_rng(0)
    for p in (2, 3):
        w = rng.standard_normal((p, p))
        axes = axes_of(w)
        np.testing.assert_allclose(axes @ axes.T, np.eye(p), atol=1e-12)
        assert np.linalg.det(axes) == pytest.approx(1)
        sizes = np.linalg.norm(w @ axes.T, axis=0)
        assert (np.diff(sizes) > 0).all()
        inner = axes @ w.T @ w @ axes.T
        np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-12)
