"""Maps against exact kriging: dense algebra on coordinates in the user's units, with what the model says it learned."""

from __future__ import annotations

import numpy as np
import pytest

from nearfield import GPClassifier, GPRegressor

SETTINGS = {"random_state": 0, "verbose": False, "predictive": "plain"}
N = 500


def matern32(apart: np.ndarray) -> np.ndarray:
    r = np.sqrt(3) * np.sqrt((apart**2).sum(axis=-1))
    return (1 + r) * np.exp(-r)


def kriging(model: GPRegressor, A: np.ndarray, y: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of new observations at B (m, p) from all y (n,) at A (n, p): a trend, then simple
    kriging of what is left. A and B are along the axes of the model, in the units of the coordinates."""
    level = model.target_mean_ + model.target_std_ * float(model._fit.predictor.model.parameters["mean"][0])
    slopes = np.zeros(A.shape[1]) if model.mean_slopes_ is None else model.mean_slopes_
    centre = model._fit.inputs.centre
    sill, nugget = model.kernel_scale_**2, model.noise_std_**2
    between = sill * matern32((A[:, None] - A[None]) / model.length_scales_) + nugget * np.eye(len(A))
    across = sill * matern32((A[:, None] - B[None]) / model.length_scales_)
    weights = np.linalg.solve(between, across)
    mean = level + (B - centre) @ slopes + weights.T @ (y - level - (A - centre) @ slopes)
    return mean, np.sqrt(sill + nugget - (across * weights).sum(axis=0))


def with_k(model: GPRegressor, k: int) -> GPRegressor:
    """The same hyper-parameters, predicting from so many neighbours, all of them whole."""
    from copy import copy
    from dataclasses import replace

    other = copy(model)
    other._fit = replace(model._fit, predictor=replace(model._fit.predictor, k=k, taper=None))
    return other


def check_against(model: GPRegressor, place, X: np.ndarray, y: np.ndarray, new: np.ndarray) -> None:
    """Exact from all rows, and nearer and nearer as k grows."""
    exact = kriging(model, place(X), y, place(new))
    spread = exact[1].mean()
    assert model.k_ == N - 1
    for one, other in zip(model.predict(new, return_std=True), exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * spread)
    off = []
    for k in (20, 80, 320):
        mean, std = with_k(model, k).predict(new, return_std=True)
        off.append([np.abs(mean - exact[0]).mean() / spread, np.abs(std / exact[1] - 1).mean()])
    far, near, nearer = np.array(off)
    assert (nearer <= near).all()
    assert (near <= far).all()
    assert (nearer < 0.02).all()


def scattered(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 10, (n, 2))


def surface(X: np.ndarray, noise: float = 0.1) -> np.ndarray:
    along, across = X @ [0.8, 0.6] / 4, X @ [-0.6, 0.8]
    return 50 + 10 * (np.sin(along + 1) * np.cos(across) + noise * np.random.default_rng(3).standard_normal(len(X)))


@pytest.fixture(scope="module")
def plane() -> tuple[GPRegressor, np.ndarray, np.ndarray]:
    X = scattered(N, 0)
    y = surface(X) + 20 * X[:, 0]
    return GPRegressor("matern32", coordinates=[0, 1], drift=[0], **SETTINGS).fit(X, y), X, y


def test_a_plane_with_a_drift_is_kriged_exactly(plane):
    model, X, y = plane
    assert not np.array_equal(model.rotation_, np.eye(2))
    check_against(model, lambda where: where @ model.rotation_.T, X, y, scattered(60, 1))


def test_the_globe_is_kriged_exactly_with_chords():
    rng = np.random.default_rng(0)

    def places(n: int) -> np.ndarray:
        return np.column_stack([rng.uniform(150, 210, n), rng.uniform(40, 90, n)])  # across the seam, to the pole

    X, new = places(N), places(60)
    lon, lat = np.radians(X).T
    y = np.cos(3 * lon) * np.cos(lat) + np.sin(8 * lat) + 0.1 * rng.standard_normal(N)
    model = GPRegressor("matern32", coordinates="lonlat", **SETTINGS).fit(X, y)
    lon0, lat0 = np.radians(model._chart.origin)

    def seen(where: np.ndarray) -> np.ndarray:
        lon, lat = np.radians(where).T
        east, cosine = np.cos(lat) * np.sin(lon - lon0), np.cos(lat) * np.cos(lon - lon0)
        north = np.cos(lat0) * np.sin(lat) - np.sin(lat0) * cosine
        up = np.sin(lat0) * np.sin(lat) + np.cos(lat0) * cosine
        return np.degrees(np.column_stack([np.column_stack([east, north]) @ model.rotation_.T, up]))

    moved = np.where(rng.random((N, 1)) < 0.5, X, X - np.array([360.0, 0.0]))
    assert np.array_equal(model.predict(moved), model.predict(X))
    check_against(model, seen, X, y, new)


# --- sill, nugget and variogram -------------------------------------------------------------------------------------


def test_the_variogram_is_that_of_the_model(plane):
    model = plane[0]
    lags = np.array([0.0, 0.5, 1.0, 3.0])
    for angle in (0.0, 50.0, 90.0):
        unit = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
        apart = lags[:, None] * (model.rotation_ @ unit) / model.length_scales_
        expected = model.noise_std_**2 + model.kernel_scale_**2 * (1 - matern32(apart))
        expected[0] = 0
        np.testing.assert_allclose(model.variogram(lags, angle), expected, rtol=1e-8)
        np.testing.assert_allclose(model.variogram(lags, 7 * unit), expected, rtol=1e-8)
    mean = np.mean([model.variogram(lags, angle) for angle in np.linspace(0, 180, 90, endpoint=False)], axis=0)
    np.testing.assert_allclose(model.variogram(lags), mean, rtol=1e-4)
    assert model.variogram([1e9])[0] == pytest.approx(model.noise_std_**2 + model.kernel_scale_**2)


def test_nugget_and_sill_are_those_of_the_field():
    rng = np.random.default_rng(4)
    X = scattered(N, 5)
    apart = (X[:, None] - X[None]) / 0.7
    f = 3 * np.linalg.cholesky(matern32(apart) + 1e-9 * np.eye(N)) @ rng.standard_normal(N)
    model = GPRegressor("matern32", coordinates=[0, 1], **SETTINGS).fit(X, f + rng.standard_normal(N))
    assert model.noise_std_ == pytest.approx(1, rel=0.25)
    assert model.kernel_scale_ == pytest.approx(3, rel=0.25)
    assert np.asarray(model.length_scales_) == pytest.approx([0.7, 0.7], rel=0.5)
    assert model.summary_.sill == ""


def test_a_sill_that_means_nothing_is_told():
    X = scattered(200, 6)
    model = GPRegressor(coordinates=[0, 1], **SETTINGS).fit(X, np.sin(X[:, 0] / 8) + (X[:, 1] / 10) ** 2)
    assert model.kernel_scale_**2 > 4 * model.target_std_**2
    assert "times the variance of the target" in str(model.summary_)
    assert "read the variogram at lags within them instead (at the largest lag, " in model.summary_.sill


def test_what_has_no_variogram(plane):
    model, X, y = plane
    for lags in (1.0, [[1.0]], [-1.0], [np.nan]):
        with pytest.raises(ValueError, match=r"lags is .*none below zero"):
            model.variogram(lags)
    for direction in ([0, 0], [1, 2, 3], [np.inf, 1]):
        with pytest.raises(ValueError, match="expected None, an angle in degrees, or 2 numbers"):
            model.variogram([1.0], direction)
    short = {"max_steps": 1, "verbose": False}
    with pytest.raises(ValueError, match="fit with coordinates="):
        GPRegressor(**short).fit(X[:60], y[:60]).variogram([1.0])
    with pytest.raises(ValueError, match="one real target"):
        GPClassifier(coordinates=[0, 1], **short).fit(X[:60], y[:60] > y.mean()).variogram([1.0])
    globe = GPRegressor(coordinates="lonlat", **short).fit(X[:60], y[:60])
    with pytest.raises(ValueError, match="at most 180 degrees"):
        globe.variogram([181.0])
