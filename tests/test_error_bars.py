"""Error bars that hold: of the noise-free function, with known noise, far from all rows, and of a handful of rows."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, MissingNoiseWarning
from nearfield.heads.regression import RegressionHead, fresh_level
from nearfield.kernels import KERNELS
from nearfield.moments import Moments, far_away, outside_of
from nearfield.prediction import Predictor

SEEDS = range(10)
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*rows are few:UserWarning", "ignore:.*near copy:UserWarning", "ignore:.*contains the:UserWarning"
)


def rows_of(f, noise, n, d, seed, fresh=400):
    """Training rows and fresh ones: X, y, X_new, truth, y_new and the noise variances of both."""
    rng = np.random.default_rng([seed, n, d])
    X, X_new = rng.random((n, d)), rng.random((fresh, d))
    std, std_new = noise(X), noise(X_new)
    y, truth = f(X) + std * rng.standard_normal(n), f(X_new)
    return X, y, X_new, truth, truth + std_new * rng.standard_normal(fresh), std**2, std_new**2


def sine(X):
    return np.sin(6 * X[:, 0]) + X[:, 0]


def level(std):
    return lambda X: np.full(len(X), std)


def growing(X):
    return 0.02 + 0.4 * X[:, 0] ** 2


def covered(ends, values):
    return np.mean((ends[0] <= values) & (values <= ends[1]))


# --- the noise-free function ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "noise"), [("rbf", level(0.0)), ("auto", level(0.0)), ("auto", level(0.2)), ("auto", growing)]
)
def test_the_function_is_inside_of_its_latent_intervals(kernel, noise):
    shares = []
    for seed in SEEDS:
        X, y, X_new, truth, *_ = rows_of(sine, noise, 50, 1, seed)
        model = GPRegressor(kernel, random_state=0).fit(X, y)
        shares.append(covered(model.predict_interval(X_new, uncertainty="latent"), truth))
        stds = [model.predict(X_new, return_std=True, uncertainty=u)[1] for u in ("latent", "observation")]
        assert (stds[0] <= stds[1]).all()
    assert 0.85 <= np.mean(shares) <= 0.99


def moments(b=50, seed=0, **further):
    rng = np.random.default_rng(seed)
    some, many = rng.uniform(5, 40, b), np.full(b, 20.0)
    return Moments(rng.standard_normal(b), rng.uniform(1e-6, 0.5, b), some, many, some, many, **further)


def test_noise_that_cannot_be_told_from_errors_is_of_the_function_and_other_noise_is_not():
    found = moments()
    head = RegressionHead(0.1, 0.1, roughness=0.5, floor=1e-5, unresolved=1e-6)
    scale, latent = head.scales(found, 1e-12)
    np.testing.assert_allclose(latent, scale, rtol=1e-6)
    quiet = replace(found, variance=np.full(50, 1e-4))
    scale, latent = head.scales(quiet, 1.0)
    np.testing.assert_allclose(
        latent**2, np.maximum(1e-4, replace(head, unresolved=0.0).scales(quiet, 1.0)[1] ** 2), rtol=1e-2
    )
    assert (latent < 0.1 * scale).all()


def test_scales_of_earlier_files_are_as_they_were():
    old = RegressionHead.unpacked(
        {"latent_factor": 0.3, "noise_factor": 0.5, "roughness": 0.4, "floor": 0.01, "df": 5.0}
    )
    far = moments(prior=np.asarray(2.0), outside=np.full(50, 9.0))
    factor = np.exp(0.4 * np.log((2 + far.quad) / (2 + far.size)))
    expected = [np.sqrt((0.3 * far.variance + 0.5 * 0.1) * factor + 0.01**2), np.sqrt(0.3 * far.variance * factor)]
    np.testing.assert_allclose(old.scales(far, 0.1), expected, rtol=1e-12)


# --- known noise ------------------------------------------------------------------------------------------------------


def test_intervals_with_known_noise_hold_and_forgetting_it_is_told():
    shares = []
    for seed in SEEDS:
        X, y, X_new, _, y_new, noise, noise_new = rows_of(sine, growing, 60, 1, seed)
        model = GPRegressor(random_state=0).fit(X, y, noise_variance=noise)
        shares.append(covered(model.predict_interval(X_new, noise_variance=noise_new), y_new))
        with pytest.warns(MissingNoiseWarning, match=r"Pass noise_variance=") as told:
            assert covered(model.predict_interval(X_new), y_new) < 0.8
        assert len(told) == 1
        assert told[0].filename == __file__
    assert 0.86 <= np.mean(shares) <= 0.94


@pytest.fixture(scope="module")
def known():
    X, y, X_new, _, y_new, noise, noise_new = rows_of(sine, growing, 50, 1, 0, fresh=30)
    return GPRegressor(random_state=0).fit(X, y, noise_variance=noise), X_new, y_new, noise_new


def test_the_variance_is_that_of_the_head_with_the_noise_of_the_row(known):
    model, X, y, noise = known
    predictor, unit = model._fit.predictor, model.target_std_
    total = predictor.model.noise + noise[:, None] / unit**2
    expected = predictor.head.predicted(predictor.moments(X, model._fit.inputs), total)
    dist = model.predict_dist(X, noise_variance=noise)
    np.testing.assert_allclose(dist.std(), expected.scale * unit * predictor.head.unit_std, rtol=1e-12)
    np.testing.assert_allclose(model.predict(X, return_std=True, noise_variance=noise)[1], dist.std(), rtol=1e-12)
    covariance = model.predict(X, return_cov=True, noise_variance=noise)[1]
    np.testing.assert_allclose(np.diag(covariance), dist.std() ** 2)
    np.testing.assert_allclose(model.predict_quantiles(X, 0.3, noise_variance=noise), dist.ppf(0.3))
    assert model.log_score(X, y, noise_variance=noise) == pytest.approx(np.mean(dist.logpdf(y)))
    samples = model.sample_y(X, 4000, noise_variance=noise)
    np.testing.assert_allclose(np.quantile(samples, 0.9, axis=1), dist.ppf(0.9), atol=0.12 * dist.std().max())
    gradient = model.predict_gradient(X, noise_variance=noise)
    up, down = (model.predict(X + s, return_std=True, noise_variance=noise)[1] for s in (1e-6, -1e-6))
    usual = np.abs(gradient.std[:, 0] - (up - down) / 2e-6) < 1e-4  # but at a kink of the head, or of a bent column
    assert usual.mean() > 0.8


def test_a_number_is_for_all_rows_and_zero_is_said_on_purpose(known):
    model, X, *_ = known
    each = model.predict(X, return_std=True, noise_variance=np.full(30, 0.3))[1]
    np.testing.assert_array_equal(model.predict(X, return_std=True, noise_variance=0.3)[1], each)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        none = model.predict(X, return_std=True, noise_variance=0)[1]
        model.predict(X)
        model.predict(X, return_std=True, uncertainty="latent")
        model.sample_y(X, uncertainty="latent")
    with pytest.warns(MissingNoiseWarning):
        np.testing.assert_array_equal(model.predict(X, return_std=True)[1], none)
    X, y = rows_of(sine, level(0.2), 30, 1, 0)[:2]
    fits = [GPRegressor(random_state=0).fit(X, y, noise_variance=v).predict(X) for v in (0.04, np.full(30, 0.04))]
    np.testing.assert_array_equal(*fits)


def test_every_way_to_predict_observations_tells_of_missing_noise(known, tmp_path):
    model, X, y, _ = known
    model.save(tmp_path / "known.nearfield")
    loaded = GPRegressor.load(tmp_path / "known.nearfield")
    for ask in (
        lambda: model.predict_quantiles(X, 0.5), lambda: model.predict_dist(X), lambda: model.log_score(X, y),
        lambda: model.sample_y(X), lambda: model.predict(X, return_cov=True), lambda: model.predict_gradient(X),
        lambda: loaded.predict(X, return_std=True),
    ):  # fmt: skip
        with pytest.warns(MissingNoiseWarning) as told:
            ask()
        assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf, np.full(30, -0.1), np.full(29, 0.1), np.full((30, 2), 0.1)])
def test_noise_that_cannot_be_is_refused(known, wrong):
    model, X, *_ = known
    with pytest.raises(ValueError, match="noise_variance has"):
        model.predict(X, noise_variance=wrong)
    with pytest.raises(ValueError, match="noise_variance has"):
        GPRegressor().fit(X, X[:, 0], noise_variance=wrong)


def test_the_guarantee_takes_no_known_noise(known):
    with pytest.raises(ValueError, match="method is 'jackknife\\+' and noise_variance is given"):
        known[0].predict_interval(known[1], method="jackknife+", noise_variance=0.1)


def test_rows_with_wild_values_are_no_known_noise():
    X, y = rows_of(sine, level(0.1), 60, 1, 0)[:2]
    y[3] = 1e12
    with pytest.warns(UserWarning, match="1e"):
        model = GPRegressor(random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X, return_std=True)


@pytest.mark.parametrize("outputs", ["shared", "lmc"])
def test_known_noise_of_several_outputs(outputs):
    X, y, X_new, _, _, noise, noise_new = rows_of(sine, growing, 50, 1, 1, fresh=20)
    Y, known = np.stack([y, -3 * y], axis=1), np.stack([noise, 9 * noise], axis=1)
    model = GPRegressor(outputs=outputs, random_state=0, max_steps=50).fit(X, Y, noise_variance=known)
    with pytest.warns(MissingNoiseWarning):
        without = model.predict(X_new, return_std=True)[1]
    each = np.stack([noise_new, 0 * noise_new], axis=1)
    std = model.predict(X_new, return_std=True, noise_variance=each)[1]
    assert (std[:, 0] > without[:, 0]).all()
    np.testing.assert_array_equal(std[:, 1], without[:, 1])
    covariance = model.predict(X_new, return_cov=True, noise_variance=each)[1]
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)), std)


# --- far away ---------------------------------------------------------------------------------------------------------

WAYS = np.array([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


@pytest.mark.parametrize("mean", ["constant", "linear"])
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_far_from_all_rows_intervals_are_as_wide_as_the_target_spreads(kernel, mean):
    X, y, X_new, *_ = rows_of(lambda X: 3 * X[:, 0], level(0.1), 40, 2, 0)
    model = GPRegressor(kernel, mean=mean, random_state=0).fit(X, y)
    for away in 10.0 ** np.arange(1, 7):
        places = X.mean(axis=0) + away * X.std(axis=0) * WAYS
        for uncertainty in ("observation", "latent"):
            assert (model.predict(places, return_std=True, uncertainty=uncertainty)[1] >= 0.95 * y.std()).all()
        assert (model.predict(places, return_std=True)[1] >= y.std() * (1 - 1e-9)).all()
        assert (model.support(places) == 0).all()
    assert (model.predict(X_new, return_std=True)[1] < 0.5 * y.std()).all()
    assert np.median(model.support(X_new)) > 0.9


def test_far_away_of_heavy_tails_and_of_several_outputs_one_of_which_is_constant():
    X, y = rows_of(sine, level(0.1), 40, 2, 0)[:2]
    places = X.mean(axis=0) + 20 * WAYS
    heavy = GPRegressor(likelihood="student_t", random_state=0).fit(X, y)
    assert (heavy.predict(places, return_std=True)[1] >= heavy.target_std_ * (1 - 1e-9)).all()
    with pytest.warns(UserWarning, match="output 1 is constant"):
        model = GPRegressor(outputs="shared", random_state=0).fit(X, np.stack([y, np.full(40, 7.0)], axis=1))
    std = model.predict(places, return_std=True)[1]
    assert (std[:, 0] >= y.std() * (1 - 1e-9)).all()
    assert model.support(places).shape == (4, 2)


def test_a_constant_column_is_never_far_and_a_bent_one_is():
    rng = np.random.default_rng(0)
    X = np.stack([np.exp(2 * rng.standard_normal(60)), np.full(60, 5.0)], axis=1)
    y = np.log(X[:, 0]) + 0.1 * rng.standard_normal(60)
    model = GPRegressor(random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.support(X), model.support(X * [1.0, 1e6]))
    assert model.support([[1e6 * X[:, 0].max(), 5.0]])[0] == 0
    assert model.predict([[1e6 * X[:, 0].max(), 5.0]], return_std=True)[1][0] >= y.std() * (1 - 1e-9)


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_support_falls_with_the_distance_from_a_single_row_without_jumps(kernel):
    X, y = rows_of(sine, level(0.1), 30, 1, 0)[:2]
    model = GPRegressor(kernel, random_state=0, warp=False).fit(X, y)
    own = model._fit.predictor
    alone = Predictor(own.model, own.rows.sample(np.array([0]), own.model.family), 1, own.head)
    away = np.linspace(0, 3, 2000)[:, None]
    found = alone.support(X[0] + away, model._fit.inputs)[:, 0]
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) <= 1e-12).all()
    assert found[0] > 0.5
    assert found[-1] == 0
    assert np.abs(np.diff(found)).max() < 0.1


def test_support_of_labels_and_counts():
    X = np.random.default_rng(0).random((60, 2))
    far = X.mean(axis=0) + 10 * WAYS
    models = [
        GPClassifier(random_state=0, max_steps=50).fit(X, np.digitize(X[:, 0], [0.3, 0.6])),
        GPCountRegressor(random_state=0, max_steps=50).fit(X, np.floor(20 * X[:, 0])),
    ]
    for model in models:
        assert (model.support(far) == 0).all()
        found = model.support(X)
        assert found.shape == (60,)
        assert ((found > 0) & (found <= 1)).all()


def test_how_far_outside_is_counted_in_ranges_of_the_column():
    low, high = np.array([0.0, -1.0]), np.array([2.0, -1.0])
    inputs = np.array([[1.0, -1.0], [3.0, -1.0], [-4.0, -1.0], [1.0, 1.0]])
    np.testing.assert_array_equal(outside_of(low, high, inputs), [[0.0], [0.5], [2.0], [2.0]])
    np.testing.assert_allclose(far_away(np.array([0.0, 0.25, 0.625, 1.0, 9.0])), [0, 0, 0.5, 1, 1])


def test_slopes_of_the_std_outside_of_all_rows_equal_differences():
    X, y = rows_of(sine, level(0.1), 40, 2, 0)[:2]
    model = GPRegressor(random_state=0, warp=False).fit(X, y)
    places = np.array([[1.5, 0.4], [-0.6, 1.2], [0.3, -0.7]])
    found = model.predict_gradient(places)
    for e, step in enumerate(1e-6 * np.eye(2)):
        up, down = (model.predict(places + s, return_std=True)[1] for s in (step, -step))
        np.testing.assert_allclose(found.std[:, e], (up - down) / 2e-6, rtol=1e-4, atol=1e-6)


# --- a handful of rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 12, 20])
def test_intervals_from_a_handful_of_rows_hold(n):
    shares = []
    for f, noise, d in ((lambda X: 2 * X[:, 0], 0.3, 1), (lambda X: 0 * X[:, 0], 1.0, 1)):
        for seed in SEEDS:
            X, y, X_new, _, y_new, *_ = rows_of(f, level(noise), n, d, seed)
            shares.append(covered(GPRegressor(random_state=0).fit(X, y).predict_interval(X_new), y_new))
    assert 0.84 <= np.mean(shares) <= 0.97


def test_the_level_for_fresh_rows():
    assert fresh_level(0.9, 9) == pytest.approx(1.0)
    assert fresh_level(0.9, 4) == 1.0
    assert fresh_level(0.9, 4000) == pytest.approx(0.9, abs=3e-4)
