"""Continuous neighbourhoods: no jumps, the formula by dense algebra, limits, slopes, files, and what "auto" chooses."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from dense import posterior, sites_of
from estimator_data import load_forged, quick, quick_classifier, quick_counts, small, through_file
from family_examples import CASES, case, covariances, model_of
from test_gradients import assert_gradient, made, targets

from nearfield import GPRegressor, ModelFileError, _threads, continuity
from nearfield.covariances import Mixed, PerLatent, Shared
from nearfield.deletions import deletions
from nearfield.families.gaussian import Gaussian
from nearfield.families.outputs import GaussianOutputs
from nearfield.gradients import moment_slopes
from nearfield.kernels import KERNELS
from nearfield.moments import NEAR
from nearfield.prediction import Predictor
from nearfield.rows import Rows
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper
from nearfield.taper import Taper

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning", "ignore:.*rows are few for.*")

VARIANTS = [(which, word) for which in CASES for word in covariances(case(which))]
PARTS = ("mean", "variance", "quad", "size", "near_quad", "near_size")


def new_rows(n=6, seed=9):
    return 1.2 * np.random.default_rng(seed).standard_normal((n, 2))


def rows_like(kind, rng):
    """Inputs (n, 2): anywhere, on a grid, or on few places with several rows each."""
    if kind == "anywhere":
        return rng.standard_normal((120, 2))
    if kind == "grid":
        return np.stack(np.meshgrid(np.arange(11.0), np.arange(11.0)), axis=-1).reshape(-1, 2) / 4 - 1.25
    return np.repeat(rng.standard_normal((60, 2)), 2, axis=0)


# --- continuity -----------------------------------------------------------------------------------------------------


def largest_jump(sweeper, k, start, stop, halvings=26):
    """What is left of the largest change of each moment on the way from start to stop (2,) when steps are halved.

    Of many steps the one with the largest change is halved over and over: a jump stays, a slope does not.
    """
    along = np.linspace(0, 1, 201)
    moments = sweeper.new(start + along[:, None] * (stop - start), k)
    changes = [np.abs(np.diff(getattr(moments, name), axis=0)).max(axis=1) for name in PARTS]
    step = np.array([change.argmax() for change in changes])
    low, high = along[step], along[step + 1]
    for _ in range(halvings):
        middle = (low + high) / 2
        at = sweeper.new(start + np.concatenate([low, middle, high])[:, None] * (stop - start), k)
        for i, name in enumerate(PARTS):
            a, b, c = getattr(at, name)[i :: len(PARTS)]
            first = np.abs(b - a).max() >= np.abs(c - b).max()
            low[i], high[i] = (low[i], middle[i]) if first else (middle[i], high[i])
    ends = sweeper.new(start + np.concatenate([low, high])[:, None] * (stop - start), k)
    left = {}
    for i, name in enumerate(PARTS):
        a, c = getattr(ends, name)[i :: len(PARTS)]
        left[name] = np.abs(c - a).max() / np.abs(getattr(moments, name)).max()
    return left


@pytest.mark.parametrize("kind", ["anywhere", "grid", "places"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_nothing_jumps_along_lines(kind, outputs):
    rng = np.random.default_rng(0)
    X = rows_like(kind, rng)
    family = Gaussian() if outputs == 1 else GaussianOutputs(2)
    sweeper = made(family, targets(len(X), outputs), len(X), kind=Shared if outputs == 1 else Mixed, bent=False)
    sweeper = Sweeper(sweeper.model, Rows.of(family, X, sweeper.rows.observed))
    hard = []
    for _ in range(3):
        start, stop = rng.uniform(-1, 1, (2, 2))
        found = largest_jump(sweeper.tapered(Taper()), 20, start, stop)
        assert max(found.values()) < 1e-6, found
        hard.append(largest_jump(sweeper, 20, start, stop))
    assert min(max(line[name] for line in hard) for name in ("mean", "variance", "quad", "near_quad")) > 1e-5


def test_all_rows_at_one_place_are_predicted_from_as_they_are():
    """No edge can be found where all distances are the same: nothing is added, and nothing is NaN."""
    X = np.concatenate([np.zeros((30, 2)), np.ones((5, 2))])
    sweeper = made(Gaussian(), targets(35), 35, bent=False)
    sweeper = Sweeper(sweeper.model, Rows.of(Gaussian(), X, sweeper.rows.observed))
    query = np.array([[0.0, 0.0], [0.1, 0.0], [0.5, 0.5], [3.0, 3.0]])
    ours = sweeper.tapered(Taper()).new(query, 8)
    for name in PARTS:
        assert np.isfinite(getattr(ours, name)).all()
    hard = sweeper.new(query[:2], 8)
    np.testing.assert_allclose(ours.mean[:2], hard.mean, atol=1e-10)
    assert np.isfinite(moment_slopes(sweeper.tapered(Taper()), query, 8).mean).all()


# --- the formula ----------------------------------------------------------------------------------------------------


def noises_by_hand(distances, k, taper=Taper()):  # noqa: B008
    """Extra noises of all n rows at those distances (n,): infinite but for the nearest k."""
    order = np.argsort(distances, kind="stable")
    r = distances[order]
    extra = np.full(len(r), np.inf)
    inner, edge = r[int(np.ceil(taper.whole * k)) - 1], r[k]
    u = np.maximum((r[:k] - inner) / (edge - inner), 0)
    extra[order[:k]] = taper.noise * u**2 / (1 - u**2)
    shares = np.zeros(len(r))
    shares[order[:k]] = 1 - u**2
    return extra, shares


@pytest.mark.parametrize(("which", "covariance"), VARIANTS)
def test_moments_are_those_of_dense_algebra_with_the_noises_of_the_formula(which, covariance):
    model, rows = model_of(case(which, weighted=True), covariance)
    sweeper, k, query = Sweeper(model, rows, taper=Taper()), 12, new_rows(3)
    moments = sweeper.new(query, k)
    target, noise = sites_of(model, rows.observed, rows.state)
    sizes = model.family.sizes(rows.observed)
    for i, x in enumerate(query):
        extra, shares = noises_by_hand(np.linalg.norm((rows.inputs - x) / model.search_lengths, axis=1), k)
        expected = posterior(model, rows.inputs, target, noise + extra[:, None] * model.scale2, x[None])
        np.testing.assert_allclose(moments.mean[i], expected[0][0], atol=1e-9)
        np.testing.assert_allclose(moments.variance[i], np.diagonal(expected[1][0]), atol=1e-9)
        np.testing.assert_allclose(moments.size[i], shares @ sizes, rtol=1e-9)


def test_rows_left_out_are_those_of_a_table_without_them():
    model, rows = model_of(case("gaussian:"))
    sweeper, which, ks = Sweeper(model, rows, taper=Taper()), np.arange(0, 40, 6), np.array([5, 12, 20, 33, 39])
    found = sweeper.left_out(which, ks)
    for i, row in enumerate(which):
        kept = np.flatnonzero(np.arange(40) != row)
        alone = Sweeper(model, rows.sample(kept, model.family), taper=Taper())
        for place, k in enumerate(ks):
            one = alone.new(rows.inputs[[row]], int(k))
            for name in PARTS:
                np.testing.assert_allclose(getattr(found, name)[i, place], getattr(one, name)[0], atol=1e-9)


def test_limits():
    model, rows = model_of(case("gaussian:"))
    hard, query = Sweeper(model, rows), new_rows()
    every = hard.tapered(Taper()).new(query, 39)
    np.testing.assert_array_equal(every.mean, hard.new(query, 39).mean)  # all rows are neighbours
    beyond = hard.tapered(Taper(whole=1 - 1e-12)).new(query, 20)  # all neighbours are whole
    nothing = hard.tapered(Taper(noise=1e-15)).new(query, 20)
    for name in PARTS:
        np.testing.assert_allclose(getattr(beyond, name), getattr(hard.new(query, 20), name), atol=1e-10)
    np.testing.assert_allclose(nothing.mean, hard.new(query, 20).mean, atol=1e-9)
    assert np.abs(hard.tapered(Taper()).new(query, 20).mean - hard.new(query, 20).mean).max() > 1e-4


# --- slopes ---------------------------------------------------------------------------------------------------------


def assert_moment_slopes(sweeper, k):
    query = np.random.default_rng(4).uniform(-1.5, 1.5, (12, 2))
    ours = moment_slopes(sweeper, query, k)
    for e in range(2):
        off = 1e-6 * np.eye(2)[e]
        up, down = sweeper.new(query + off, k), sweeper.new(query - off, k)
        for name, slopes in ours._asdict().items():
            numeric = (getattr(up, name) - getattr(down, name)) / 2e-6
            np.testing.assert_allclose(slopes[..., e], numeric, atol=1e-6, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("k", [8, 24, 39])
def test_slopes_of_all_moments_equal_central_differences(kernel, k):
    assert_moment_slopes(made(Gaussian(), targets(40), 40, kernel).tapered(Taper()), k)


@pytest.mark.parametrize("kind", [Shared, PerLatent, Mixed])
@pytest.mark.parametrize("k", [8, NEAR + 4])
def test_slopes_of_several_outputs(kind, k):
    family = GaussianOutputs(2, one_scale=False, complete=False)
    assert_moment_slopes(made(family, targets(40, 2, 0.3), 40, kind=kind).tapered(Taper()), k)


@pytest.mark.parametrize("arguments", [{"k": 20}, {"k": 30, "kernel": "matern32", "mean": "linear"}, {}])
def test_what_users_are_told_equals_central_differences(arguments):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2)) * [1e4, 1e-3]
    y = 50 * np.sin(X[:, 0] / 1e4) * np.exp(X[:, 1] / 2e-3) + rng.standard_normal(300)
    model = quick(continuous=True, **arguments).fit(X, y)
    assert model.continuous_
    new = rng.uniform(-2, 2, (40, 2)) * [1e4, 1e-3]
    for uncertainty in ("observation", "latent"):
        assert_gradient(model, new, [1e4, 1e-3], 50, uncertainty=uncertainty)


# --- deletions and guarantees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["gaussian:", "one_against_all:conjugate"])
def test_explained_at_a_fixed_edge(which):
    """Without a neighbour the others keep their noises: brute force with the noises by hand."""
    model, rows = model_of(case(which))
    predictor, k, query = Predictor(model, rows, 12, None, Taper()), 12, new_rows(3)
    ((_, deleted),) = list(deletions(predictor, query, Scaling(np.zeros(2), np.ones(2)), True))
    np.testing.assert_allclose(deleted.mean, predictor.sweeper.new(query, k).mean, atol=1e-10)
    target, noise = sites_of(model, rows.observed, rows.state)
    for i, x in enumerate(query):
        extra, _ = noises_by_hand(np.linalg.norm((rows.inputs - x) / model.search_lengths, axis=1), k)
        for place, row in enumerate(deleted.ids[i]):
            without = np.where(np.arange(len(rows)) == row, np.inf, extra)[:, None] * model.scale2
            expected = posterior(model, rows.inputs, target, noise + without, x[None])
            np.testing.assert_allclose(deleted.without.mean[i, :, place], expected[0][0], atol=1e-9)
            np.testing.assert_allclose(deleted.without.variance[i, :, place], np.diagonal(expected[1][0]), atol=1e-9)


def test_guaranteed_intervals_are_those_of_hard_neighbourhoods():
    X, y = small(80, 2)
    model = quick(k=12, continuous=True).fit(X, y)
    hard = copy.copy(model)
    hard._adopt(replace(model._fit, predictor=model._fit.predictor.hard))
    assert not hard.continuous_
    assert np.abs(model.predict(new_rows()) - hard.predict(new_rows())).max() > 1e-6
    for method in ("jackknife+", "minmax"):
        for ours, theirs in zip(
            model.predict_interval(new_rows(), method=method),
            hard.predict_interval(new_rows(), method=method),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


# --- the estimators -------------------------------------------------------------------------------------------------


def fitted(name):
    X, y = small(150, 2)
    rng = np.random.default_rng(1)
    if name == "numbers":
        return quick(k=24, continuous=True).fit(X, y)
    if name == "student_t":
        return quick(k=24, continuous=True, likelihood="student_t").fit(X, y)
    if name == "outputs":
        return quick(k=12, continuous=True).fit(X, np.stack([y, y**2], axis=1))
    if name == "classes":
        return quick_classifier(k=24, continuous=True).fit(
            X, np.digitize(y + 0.3 * rng.standard_normal(150), [-0.5, 0.5])
        )
    return quick_counts(k=24, continuous=True).fit(X, rng.poisson(3 * np.exp(y)))


def told(model, X):
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)
    return model.predict(X, return_std=True)[1] if isinstance(model, GPRegressor) else model.predict(X)


@pytest.mark.parametrize("name", ["numbers", "student_t", "outputs", "classes", "counts"])
def test_every_estimator_is_continuous_in_files_and_after_update(name, tmp_path, monkeypatch):
    model, X = fitted(name), new_rows(40)
    assert model.continuous_
    assert "so that predictions do not jump" in str(model.summary_)
    expected = told(model, X)
    loaded = through_file(model, tmp_path)
    assert loaded.continuous_
    np.testing.assert_array_equal(told(loaded, X), expected)
    monkeypatch.setattr(_threads, "thread_count", lambda: 1)
    monkeypatch.setattr("nearfield.sweep._BLOCK_NUMBERS", 64)
    np.testing.assert_array_equal(told(loaded, X), expected)
    np.testing.assert_array_equal(told(loaded, X[::-1])[::-1], expected)
    start, stop = X[0], X[1]
    values = told(model, start + np.linspace(0, 1, 801)[:, None] * (stop - start))
    hard = copy.copy(model)
    hard._adopt(replace(model._fit, predictor=model._fit.predictor.hard))
    jumpy = told(hard, start + np.linspace(0, 1, 801)[:, None] * (stop - start))
    assert np.abs(np.diff(values, axis=0)).max() < 0.5 * np.abs(np.diff(jumpy, axis=0)).max()
    y = {"outputs": np.zeros((3, 2)), "counts": np.ones(3, int), "classes": np.zeros(3, int)}.get(name, np.zeros(3))
    model.update(X[:3] + 0.01, y)
    assert model.continuous_
    assert np.isfinite(told(model, X)).all()


def test_a_file_that_is_hard_or_forged(tmp_path):
    X, y = small(60, 2)
    model = quick(k=12, continuous=True).fit(X, y)

    def hard(sections, arrays):
        del sections["model"]["taper"]

    assert not load_forged(model, tmp_path, hard).continuous_
    for taper in (5, {"whole": 0.5}, {"whole": 0.0, "noise": 0.1}, {"whole": 0.5, "noise": -1.0}):
        with pytest.raises(ModelFileError):
            load_forged(model, tmp_path, lambda sections, arrays, own=taper: sections["model"].update(taper=own))


def test_what_is_no_choice():
    X, y = small(60, 2)
    for wrong in ("yes", 1, None):
        with pytest.raises(ValueError, match=r"continuous is .*expected True, False or 'auto'"):
            quick(continuous=wrong).fit(X, y)
    assert quick(k=12, continuous=False).fit(X, y).continuous_ is False


def test_auto_is_continuous_on_a_map_and_hard_in_many_columns(monkeypatch):
    monkeypatch.setattr("nearfield.sweep.MOST_WHOLE", 100)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (500, 2))
    y = np.cos(9 * X[:, 0]) * np.sign(X[:, 1] - np.sin(X[:, 0])) + 0.1 * rng.standard_normal(500)
    assert quick().fit(X, y).continuous_
    Z = rng.uniform(-2, 2, (500, 8))
    z = np.sin(Z[:, 0]) + 0.3 * Z[:, 1:].sum(axis=1)
    many, asked = quick(k=32).fit(Z, z), quick(k=32, continuous=False).fit(Z, z)
    assert not many.continuous_
    np.testing.assert_array_equal(many.predict(Z, return_std=True)[1], asked.predict(Z, return_std=True)[1])


def test_longitude_and_latitude_are_two_columns(monkeypatch):
    """Though they are three coordinates of points on a sphere."""
    monkeypatch.setattr(continuity, "_gain", lambda *given: 0.0)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 20, (60, 2)), rng.standard_normal((60, 2))])
    y = np.sin(X[:, 0]) + X[:, 2]
    for columns, continuous in ((3, True), (4, False)):
        model = quick(k=12, coordinates={"lonlat": [0, 1]}).fit(X[:, :columns], y)
        assert model.continuous_ is continuous


@pytest.mark.parametrize(("columns", "gain", "continuous"), [(2, 0.05, False), (2, 0.0, True), (5, 0.05, True)])
def test_left_out_rows_may_prefer_the_other(columns, gain, continuous, monkeypatch):
    """gain: what the neighbourhoods that are not the first choice are worth to left-out rows."""
    monkeypatch.setattr(continuity, "_gain", lambda *given: gain)
    X, y = small(60, columns)
    assert quick(k=12).fit(X, y).continuous_ is continuous
