"""Means of the latent functions: against dense algebra and finite differences, and what a trend is good for."""

from __future__ import annotations

import dense
import numpy as np
import pytest
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, through_file
from family_examples import case, model_of

from nearfield import GPRegressor
from nearfield.covariances import Shared
from nearfield.families.gaussian import Gaussian
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.objectives import prior
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.warps import Warps

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

NAMES = pytest.mark.parametrize("name", MEANS)


def parameters_of(name, latents=3, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return {key: rng.standard_normal(p.shape) for key, p in MEANS[name].parameters(latents, d).items()}


@NAMES
def test_slopes_equal_finite_differences(name):
    mean, p, rng = MEANS[name], parameters_of(name), np.random.default_rng(1)
    inputs, by = rng.standard_normal((4, 5, 2)), rng.standard_normal((4, 5, 3))
    ours = mean.slopes(inputs, by)
    _, by_penalty = mean.penalty(p)
    for key, value in p.items():
        numeric, penalty = np.zeros(value.shape), np.zeros(value.shape)
        for place in np.ndindex(value.shape):
            off = np.zeros(value.shape)
            off[place] = 1e-5
            up, down = {**p, key: value + off}, {**p, key: value - off}
            numeric[place] = np.sum(by * (mean.at(inputs, up) - mean.at(inputs, down))) / 2e-5
            penalty[place] = (mean.penalty(up)[0] - mean.penalty(down)[0]) / 2e-5
        np.testing.assert_allclose(ours[key], numeric, atol=1e-8)
        np.testing.assert_allclose(by_penalty.get(key, np.zeros(value.shape)), penalty, atol=1e-8)


@NAMES
def test_a_mean_is_a_level_and_slopes(name):
    p = parameters_of(name)
    X = np.random.default_rng(1).standard_normal((6, 2))
    expected = p["mean"] + (X @ p["mean_slopes"].T if "mean_slopes" in p else 0.0)
    found = np.broadcast_to(MEANS[name].at(X, p), (6, 3))
    np.testing.assert_allclose(found, np.broadcast_to(expected, (6, 3)), atol=1e-14)
    for i in range(6):
        alone = np.broadcast_to(MEANS[name].at(X[i : i + 1], p), (1, 3))
        np.testing.assert_array_equal(alone[0], found[i])


def test_slopes_are_drawn_to_zero_by_one_term_for_all_rows():
    model, _ = model_of(case("gaussian:"), mean="linear")
    without = model.with_parameters({**model.parameters, "mean_slopes": 0 * model.parameters["mean_slopes"]})
    value, slopes = prior(model)
    assert value - prior(without)[0] == pytest.approx(0.5 * np.sum(model.parameters["mean_slopes"] ** 2))
    np.testing.assert_allclose(slopes["mean_slopes"], model.parameters["mean_slopes"])


@pytest.mark.parametrize(
    "which", ["gaussian:", "gaussian_outputs:own-gaps", "one_against_all:tied", "binomial:curvature"]
)
def test_with_all_neighbours_it_is_an_exact_process_with_that_mean_function(which):
    given = case(which, 30)
    model, rows = model_of(given, mean="linear")
    new = np.random.default_rng(5).standard_normal((7, 2)) * 2
    swept = Sweeper(model, rows).new(new, 29)
    targets, noises = dense.sites_of(model, rows.observed, rows.state)
    mean, covariance = dense.posterior(model, given.X, targets, noises, new)
    np.testing.assert_allclose(swept.mean, mean, atol=1e-9)
    np.testing.assert_allclose(swept.variance, np.diagonal(covariance, axis1=1, axis2=2), atol=1e-9)


def test_a_constant_level_is_a_linear_mean_without_slopes():
    given = case("gaussian:")
    rows = Rows.of(given.family, given.X, given.observed)
    found = []
    for name in MEANS:
        model = Model.initial(Gaussian(), Shared(find_kernel("rbf"), 1, Warps.none(2), 1), MEANS[name], np.array([0.3]))
        found.append(Sweeper(model, rows).left_out(np.arange(40), np.array([10])).at(0))
    np.testing.assert_allclose(found[0].mean, found[1].mean, atol=1e-12)
    np.testing.assert_array_equal(found[0].variance, found[1].variance)


# --- whole fits -----------------------------------------------------------------------------------------------------


def trend(n=200, seed=0):
    """A trend in the first column, a wave in the second."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 1000 + 300 * X[:, 0] + 30 * np.sin(4 * X[:, 1]) + 10 * rng.standard_normal(n)


def test_a_trend_goes_on_beyond_the_rows_where_a_constant_level_does_not():
    X, y = trend()
    far = np.array([[8.0, 0.0], [-8.0, 0.5]])
    truth = 1000 + 300 * far[:, 0]
    linear, constant = (quick(mean=name, k=32, max_steps=100).fit(X, y) for name in ("linear", "constant"))
    np.testing.assert_allclose(linear.predict(far), truth, atol=600)
    assert (np.abs(constant.predict(far) - truth) > 1000).all()
    assert linear.mean_slopes_[0] == pytest.approx(300, rel=0.2)
    assert constant.mean_slopes_ is None
    assert "linear mean" in str(linear.summary_)


def test_slopes_shrink_to_nothing_for_noise_and_do_no_harm():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((300, 2)), rng.standard_normal(300)
    X_new, y_new = rng.standard_normal((1000, 2)), rng.standard_normal(1000)
    linear, constant = (
        GPRegressor(mean=name, metric="plain", k=32, max_steps=300, random_state=0).fit(X, y)
        for name in ("linear", "constant")
    )
    assert np.abs(linear.mean_slopes_).max() < 0.3  # of one in the trend above
    assert linear.log_score(X_new, y_new) > constant.log_score(X_new, y_new) - 0.05


def fits():
    X, y = trend(120)
    XL, labels = labelled(120, 3)
    XC, counts, _ = counted(120)
    Y = np.stack([y, -2 * y], axis=1)
    Y[::5, 1] = np.nan
    return {
        "number": (quick, {}, X, y),
        "robust": (quick, {"likelihood": "student_t"}, X, y),
        "lmc": (quick, {"outputs": "lmc"}, X, Y),
        "independent": (quick, {"outputs": "independent"}, X, Y),
        "shared": (quick, {"outputs": "shared"}, X, Y),
        "classes": (quick_classifier, {}, XL, labels),
        "own kernels": (quick_classifier, {"class_kernels": "own", "auxiliary": "conjugate"}, XL, labels),
        "two classes": (quick_classifier, {}, XL, labels > 0),
        "counts": (quick_counts, {}, XC, counts),
    }


@pytest.mark.parametrize("kind", fits())
def test_every_kind_of_fit_takes_it_same_bits_alone_or_together_and_from_a_file(kind, tmp_path):
    make, arguments, X, y = fits()[kind]
    model = make(mean="linear", k=12, **arguments).fit(X, y)
    inner = model._fit.predictor.model
    assert inner.parameters["mean_slopes"].shape == (inner.family.latents, 2)
    assert inner.parameters["mean_slopes"].any()
    predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    together = predict(X)
    np.testing.assert_array_equal(np.concatenate([predict(x[None]) for x in X[:20]]), together[:20])
    again = through_file(model, tmp_path)
    np.testing.assert_array_equal(getattr(again, predict.__name__)(X), together)
    assert again.get_params()["mean"] == "linear"
    if kind in ("lmc", "independent", "shared"):
        assert model.mean_slopes_.shape == (2, 2)
        np.testing.assert_array_equal(model.mean_slopes_, again.mean_slopes_)
        assert (model.mean_slopes_[:, 0] * [1, -1] > 0).all()


def test_slopes_are_in_the_units_of_the_data():
    X, y = trend(150)
    one = quick(mean="linear", k=12).fit(X, y)
    other = quick(mean="linear", k=12).fit(X * [10, 0.1], 5 * y - 3)
    np.testing.assert_allclose(other.mean_slopes_, one.mean_slopes_ * 5 / np.array([10, 0.1]), rtol=1e-5)


def test_an_unknown_mean_is_named():
    with pytest.raises(ValueError, match="mean is 'quadratic': expected one of 'constant', 'linear'"):
        quick(mean="quadratic").fit(*trend(20))
