"""Columns that are places: longitude and latitude, planar coordinates, and what goes wrong with them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cli_runs import runner

from nearfield import GPClassifier, GPCountRegressor, GPRegressor
from nearfield.coordinates import ChartedScaling, LonLat, Plane, chart_from_json
from nearfield.persistence import ModelFileError, read_file, write_file

ONES = np.ones(50)


def globe(n: int, seed: int = 0) -> np.ndarray:
    """Longitudes and latitudes (n, 2), even on the sphere."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))])


def arcs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Great-circle distances in degrees, by the haversine formula."""
    (lon, lat), (lon2, lat2) = np.radians(a).T, np.radians(b).T
    h = np.sin((lat2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat2) * np.sin((lon2 - lon) / 2) ** 2
    return np.degrees(2 * np.arcsin(np.sqrt(np.clip(h, 0, 1))))


def smooth(X: np.ndarray) -> np.ndarray:
    """A function on the sphere."""
    lon, lat = np.radians(X[:, :2]).T
    return 2 * np.cos(lat) * np.cos(lon - 3) + np.sin(2 * lat)


def turn(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, s], [-s, c]])


def charts() -> list:
    rng = np.random.default_rng(3)
    orthogonal = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    lonlat = LonLat.of(3, 2, 0)
    return [
        lonlat,
        replace(lonlat, origin=(-170.0, 62.0), rotation=turn(0.4)),
        Plane.of(3, (0, 2)).with_rotation(turn(1.1)),
        Plane.of(3, (1, 2, 0)).with_rotation(orthogonal),
    ]


def places(n: int, seed: int = 0) -> np.ndarray:
    """Rows (n, 3) that every chart of `charts` can take: latitude, something else, longitude."""
    where = globe(n, seed)
    return np.column_stack([where[:, 1], np.random.default_rng(9).standard_normal(n), where[:, 0]])


# --- charts ---------------------------------------------------------------------------------------------------------


def test_distances_are_chords_of_great_circles():
    a, b = globe(50), globe(50, seed=1)
    chart = LonLat.of(2, 0, 1).located(a, ONES).with_rotation(turn(0.7))
    apart = np.linalg.norm(chart.apply(a) - chart.apply(b), axis=1)
    np.testing.assert_allclose(apart, 2 * np.sin(np.radians(arcs(a, b)) / 2) * 180 / np.pi, rtol=1e-12)


@pytest.mark.parametrize("chart", charts())
def test_there_and_back(chart):
    X = places(40)
    np.testing.assert_allclose(chart.undo(chart.apply(X)), X, rtol=1e-9, atol=1e-9)
    again = chart_from_json(json.loads(json.dumps(chart.to_json())))
    assert np.array_equal(again.apply(X), chart.apply(X))
    alone = np.concatenate([chart.apply(X[i : i + 1]) for i in range(len(X))])
    assert np.array_equal(alone, chart.apply(X))  # to the last bit


@pytest.mark.parametrize("chart", charts())
def test_slopes_are_those_of_differences(chart):
    X = places(20)
    scaling = ChartedScaling.charted(chart, X, np.ones(20), 1e300)
    factors = np.linspace(-1, 2, len(scaling.scale))

    def value(at: np.ndarray) -> np.ndarray:
        return np.sin(scaling.apply(at)) @ factors

    found = scaling.slopes(X, np.cos(scaling.apply(X)) * factors)
    for e in range(3):
        step = np.zeros(3)
        step[e] = 1e-5
        np.testing.assert_allclose(found[:, e], (value(X + step) - value(X - step)) / 2e-5, atol=1e-7)


def test_a_small_region_has_east_and_north_in_degrees():
    X = np.array([[10.0, 50.0], [10.1, 50.0], [10.0, 50.1], [9.9, 50.0], [10.0, 49.9]])
    found = LonLat.of(2, 0, 1).located(X, np.ones(5)).apply(X)
    np.testing.assert_allclose(found[1] - found[0], [0.1 * np.cos(np.radians(50)), 0, 0], atol=1e-4)
    np.testing.assert_allclose(found[2] - found[0], [0, 0.1, 0], atol=1e-4)


def test_seams_and_poles_are_none_to_the_last_bit():
    chart = LonLat.of(2, 0, 1).located(globe(50) * [0.1, 0.1] + [170, 70], ONES)
    same = [([0, 10], [360, 10]), ([-180, -3], [180, -3]), ([13, 90], [-77, 90]), ([13, -90], [200, -90])]
    for a, b in same:
        assert np.array_equal(chart.apply(np.array([a], float)), chart.apply(np.array([b], float)))


def test_names_of_axes_are_different_ones():
    turned = Plane.of(3, (0, 1)).with_rotation(turn(0.3))
    assert turned.names(["x", "y", "axis_1"]) == ["axis_1_2", "axis_2", "axis_1"]
    assert Plane.of(3, (0, 1)).names(["x", "y", "z"]) == ["x", "y", "z"]
    assert LonLat.of(3, 2, 0).names(["lat", "up", "lon"]) == ["north", "up", "east", "up_2"]


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> GPRegressor:
    X = globe(250)
    y = smooth(X) + 0.05 * np.random.default_rng(1).standard_normal(250)
    return GPRegressor(coordinates="lonlat", random_state=0, verbose=False).fit(X, y)


def test_a_model_of_the_globe_has_no_seam(world):
    pairs = [[0, 10], [360, 10], [-180, 10], [180, 10], [0, 90], [77, 90], [12, -90], [-100, -90]]
    mean, std = world.predict(np.array(pairs, float), return_std=True)
    assert np.array_equal(mean[::2], mean[1::2])
    assert np.array_equal(std[::2], std[1::2])
    new = globe(200, seed=5)
    assert np.sqrt(np.mean((world.predict(new) - smooth(new)) ** 2)) < 0.05
    assert list(world.feature_relevance_) == ["east", "north", "up"]
    assert world.length_scales_.shape == (3,)
    assert world.bends_.shape == (3, 3)
    assert (world.bends_[:, 0] == 1).all()
    assert (world.feature_importances_ > 0.1).all()
    assert world.feature_importances_.shape == (2,)


def test_a_model_with_coordinates_is_saved_and_grows(world, tmp_path):
    path, new = tmp_path / "world.nearfield", globe(30, seed=7)
    with pytest.warns(UserWarning, match="training rows"):
        world.save(path)
    again = GPRegressor.load(path)
    assert np.array_equal(again.predict(new), world.predict(new))
    assert again.coordinates == "lonlat"
    assert np.array_equal(again.rotation_, world.rotation_)
    more = globe(20, seed=8)
    again.update(more, smooth(more))
    assert again.n_rows_ == 270
    with pytest.raises(ValueError, match=r"latitude 'x1' is 91"):
        again.update([[0.0, 91.0]], [1.0])


def test_a_damaged_description_of_coordinates_is_refused(world, tmp_path):
    path = tmp_path / "world.nearfield"
    with pytest.warns(UserWarning, match="training rows"):
        world.save(path)
    _, header, arrays = read_file(path)
    own = header["sections"]["model"]["coordinates"]
    wrong = [
        {"name": "moon"}, {"columns": [0, 5]}, {"columns": [0, 0]}, {"columns": [0, 1.5]}, {"origin": [0, 99]},
        {"rotation": [[1, 0], [1, 1]]}, {"rotation": [[1]]}, {"features": 3}, {"origin": None}, {"features": "two"},
    ]  # fmt: skip
    for change in wrong:
        header["sections"]["model"]["coordinates"] = {**own, **change}
        write_file(path, header, arrays)
        with pytest.raises(ModelFileError, match="coordinates"):
            GPRegressor.load(path)


def isotropic(X: np.ndarray, y: np.ndarray) -> GPRegressor:
    """A model with fixed hyper-parameters, the same length along all axes."""
    model = GPRegressor("matern32", coordinates="lonlat", predictive="plain", max_steps=1, verbose=False).fit(X, y)
    predictor = model._fit.predictor
    values = {name: np.zeros_like(value) for name, value in predictor.model.parameters.items()}
    values["log_noise"] = np.full_like(values["log_noise"], -4.0)
    model._fit = replace(model._fit, predictor=replace(predictor, model=predictor.model.with_parameters(values)))
    return model


@pytest.mark.filterwarnings("ignore:.*few for")
def test_a_turned_globe_gives_the_same_predictions():
    X, new = globe(60), globe(30, seed=2)
    y = smooth(X)
    sphere = LonLat.of(2, 0, 1)
    orthogonal = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]

    def turned(where: np.ndarray) -> np.ndarray:
        return sphere.round(sphere.flat(where) @ orthogonal.T)

    for narrow in (1.0, 0.05):  # all around, and a region
        a, b = isotropic(X * narrow, y), isotropic(turned(X * narrow), y)
        for one, other in zip(a.predict(new * narrow, True), b.predict(turned(new * narrow), True), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_columns_are_found_by_their_names():
    X = globe(60)
    frame = pd.DataFrame({"height": np.arange(60.0), "Latitude": X[:, 1], "LNG": X[:, 0]})
    y = smooth(X)
    settings = {"max_steps": 2, "verbose": False, "random_state": 0}
    found = GPRegressor(coordinates="lonlat", **settings).fit(frame, y)
    named = GPRegressor(coordinates={"lonlat": ["LNG", "Latitude"]}, **settings).fit(frame, y)
    numbered = GPRegressor(coordinates={"lonlat": (2, np.int64(1))}, **settings).fit(frame.to_numpy(), y)
    assert np.array_equal(found.predict(frame), named.predict(frame))
    assert np.array_equal(found.predict(frame), numbered.predict(frame.to_numpy()))
    assert list(found.feature_relevance_) == ["height", "north", "east", "up"]
    assert found.feature_importances_.shape == (3,)


@pytest.mark.parametrize("kind", [GPClassifier, GPCountRegressor])
def test_labels_and_counts_have_coordinates_too(kind):
    X = globe(80)
    y = (smooth(X) > 0).astype(int)
    model = kind(coordinates="lonlat", max_steps=3, verbose=False, random_state=0).fit(X, y)
    predict = getattr(model, "predict_proba", model.predict)
    assert np.array_equal(predict(np.array([[-180.0, 3.0]])), predict(np.array([[180.0, 3.0]])))
    assert model.feature_importances_.shape == (2,)


def test_the_same_place_everywhere_is_ignored():
    X = np.column_stack([np.full(30, 8.0), np.full(30, 50.0), np.linspace(0, 1, 30)])
    model = GPRegressor(coordinates={"lonlat": [0, 1]}, max_steps=3, verbose=False).fit(X, np.sin(6 * X[:, 2]))
    assert [model.feature_relevance_[name] for name in ("east", "north", "up")] == [0, 0, 0]
    assert np.isfinite(model.predict(X + np.array([1.0, 1.0, 0.0]))).all()


# --- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        ("lonlat", r"no column called lon .* among 'a', 'b', 'c'"),
        ("utm", r"coordinates is 'utm': expected None, \"lonlat\""),
        (3, r"coordinates is 3: expected None"),
        ({"lat": ["a", "b"]}, r"expected None, \"lonlat\", \{\"lonlat\""),
        ({"lonlat": ["a"]}, r"1 columns.*expected 2 different"),
        ({"lonlat": ["a", "b", "c"]}, r"3 columns.*expected 2 different"),
        (["a"], r"1 columns.*expected 2 or 3 different"),
        (["a", "a"], r"expected 2 or 3 different"),
        (["a", "x"], r"a column 'x' that is not there"),
        ([0, 9], r"the column 9: expected a name, or a number from 0 to 3"),
        (["a", "t"], r"Column 't' is a coordinate, but has text values"),
        (["a", "g"], r"names a column 'g'"),
    ],
)
def test_coordinates_that_are_none(coordinates, message):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((30, 3)), columns=list("abc")).assign(t=["p", "q", "r"] * 10)
    with pytest.raises(ValueError, match=message):
        GPRegressor(coordinates=coordinates, max_steps=1, verbose=False).fit(frame, rng.standard_normal(30))


def test_places_that_are_not_on_the_globe():
    X, y = globe(40), np.arange(40.0)
    model = GPRegressor(coordinates="lonlat", max_steps=1, verbose=False)
    with pytest.raises(ValueError, match=r"latitude 'x1' is .*-90 to 90 is expected. Are longitude and latitude swapp"):
        model.fit(X[:, ::-1], y)
    with pytest.raises(ValueError, match=r"longitude 'x0' is 9000 in 1 of 40 rows"):
        model.fit(np.where(np.arange(40)[:, None] == 3, [9000.0, 0.0], X), y)
    frame = pd.DataFrame({"lon": X[:, 0], "Long": X[:, 0], "lat": X[:, 1]})
    with pytest.raises(ValueError, match=r"'lon' and 'Long' may both be the longitude"):
        model.fit(frame, y)
    gap = X.copy()
    gap[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"'x0' is a coordinate, but has missing values"):
        model.fit(gap, y)
    model.fit(X, y)
    with pytest.raises(ValueError, match=r"'x0' has 1 missing values, but the model was fitted to complete columns"):
        model.predict(gap)
    with pytest.raises(ValueError, match=r"latitude 'x1' is 95"):
        model.predict([[0.0, 95.0]])


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("brief_training")
def test_the_command_line_knows_coordinates(tmp_path, capsys):
    run, X = runner(capsys), globe(60)
    table, model, out = tmp_path / "t.csv", tmp_path / "m.nearfield", tmp_path / "p.csv"
    pd.DataFrame({"lon": X[:, 0], "b": X[:, 1], "y": smooth(X)}).to_csv(table, index=False)
    fit = ("fit", table, "--target", "y", "--out", model)
    assert run(*fit, "--coordinates", "lonlat:lon,b").code == 0
    described = json.loads(run("info", model, "--json").out)
    assert {feature["name"] for feature in described["features"]} == {"east", "north", "up"}
    pd.DataFrame({"lon": [-180, 180], "b": [5, 5]}).to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", model, tmp_path / "new.csv", "--out", out).code == 0
    assert pd.read_csv(out)["mean"].nunique() == 1
    assert run("evaluate", model, table).code == 0
    assert run(*fit, "--coordinates", "lon,b").code == 0
    for wrong in ("lon", "lon,,b", "lonlat:lon"):
        done = run(*fit, "--coordinates", wrong)
        assert done.code == 2
        assert "lonlat:LON,LAT" in done.err
    done = run(*fit, "--coordinates", "lonlat")
    assert done.code == 2
    assert "no column called" in done.err
    pd.DataFrame({"lon": [0, 1], "b": [5, None]}).to_csv(tmp_path / "new.csv", index=False)
    assert run(*fit, "--coordinates", "lonlat:lon,b").code == 0
    done = run("predict", model, tmp_path / "new.csv", "--out", out)
    assert done.code == 2
    assert "'b' has 1 missing" in done.err


@pytest.mark.parametrize("outputs", [1, 2])
def test_slopes_by_longitude_and_latitude_are_those_of_differences(outputs):
    rng = np.random.default_rng(4)
    X = np.stack([rng.uniform(-30, 30, 150), rng.uniform(40, 70, 150)], axis=1)
    y = np.sin(X[:, 0] / 10) + np.cos(X[:, 1] / 7) + 0.05 * rng.standard_normal(150)
    y = y if outputs == 1 else np.stack([y, y**2], axis=1)
    options = {"kernel": "matern52", "max_steps": 20, "random_state": 0, "outputs": "shared"}
    model = GPRegressor(coordinates="lonlat", **options).fit(X, y)
    query, step = X[:10] + 0.3, 1e-4
    found = model.predict_gradient(query)
    for column in range(2):
        off = step * np.eye(2)[column]
        above, below = (model.predict(query + sign * off, return_std=True) for sign in (1, -1))
        for part, high, low in zip(found, above, below, strict=True):
            np.testing.assert_allclose(part[..., column], (high - low) / (2 * step), atol=1e-5)
