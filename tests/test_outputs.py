"""GPRegressor with several outputs: against dense algebra, with missing entries, and everything one output has."""

from __future__ import annotations

import dense
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from estimator_data import crash_after_checkpoint, load_forged, quick, through_file
from sklearn.model_selection import cross_val_score

from nearfield import GPRegressor, ModelFileError
from nearfield.covariances import Mixed, PerLatent, Shared
from nearfield.estimators.regressor import OUTPUTS
from nearfield.families.outputs import GaussianOutputs
from nearfield.heads.outputs import OutputHeads, joint_scores
from nearfield.heads.regression import RegressionHead
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.warps import Warps

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

UNITS = np.array([1.0, 0.01, 300.0])


def robots(n=200, missing=0.0, seed=0, units=UNITS):
    """Inputs (n, 2) and three outputs (n, 3) that mix two smooth functions, in different units."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    one, two = np.sin(2 * X[:, 0]) + X[:, 1], np.cos(3 * X[:, 1])
    Y = np.stack([one, one - two, 2 * two], axis=1) + 0.1 * rng.standard_normal((n, 3))
    Y[rng.random(Y.shape) < missing] = np.nan
    return X, Y * units


def exact(model, X, Y, X_new):
    """Mean (m, P) and latent covariance (m, P, P) of an exact Gaussian process with the model's hyper-parameters."""
    inner, inputs, target = model._fit.predictor.model, model._fit.inputs, model._target
    T, noises = target.apply(Y), np.where(np.isnan(Y), np.inf, inner.noise)
    T = np.where(np.isnan(Y), 0.0, T)
    mean, spread = dense.posterior(inner, inputs.apply(X), T, noises, inputs.apply(X_new))
    return target.undo(mean), spread * target.scale[:, None] * target.scale


def covariance_of(outputs, family, observed):
    """What the estimator makes of the argument `outputs`, for two inputs."""
    if outputs == "lmc":
        return Mixed(find_kernel("matern52"), 3, Warps.none(2), family.initial_mixing(observed, 3))
    kind = Shared if outputs == "shared" else PerLatent
    return kind(find_kernel("matern52"), 3, Warps.none(2), family.kernel_scales)


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_small_data_are_predicted_as_by_an_exact_process(outputs, missing):
    """A missing output is the same as an observation that was deleted. With noise: matrices are not near singular."""
    X, Y = robots(40, missing)
    Y = Y + 0.1 * UNITS * np.random.default_rng(9).standard_normal(Y.shape)
    X_new, _ = robots(7, seed=1)
    model = quick(outputs=outputs, predictive="plain").fit(X, Y)
    mean, covariance = model.predict(X_new, return_cov=True, uncertainty="latent")
    kept = ~np.isnan(Y).all(axis=1)
    expected, spread = exact(model, X[kept], Y[kept], X_new)
    np.testing.assert_allclose(mean / UNITS, expected / UNITS, atol=1e-5)
    np.testing.assert_allclose(covariance / UNITS / UNITS[:, None], spread / UNITS / UNITS[:, None], atol=1e-5)
    _, std = model.predict(X_new, return_std=True)
    noisy = np.diagonal(spread, axis1=1, axis2=2) + model.noise_std_**2
    np.testing.assert_allclose(std, np.sqrt(noisy), rtol=1e-6)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_left_out_rows_are_predicted_as_without_them(outputs):
    X, Y = robots(40, missing=0.2)
    Y[3] = [np.nan, 0.01, 100.0]
    model = quick(outputs=outputs, predictive="plain").fit(X, Y)
    kept = np.flatnonzero(~np.isnan(Y).all(axis=1))
    for place in (0, 5, 20):
        others = np.delete(kept, place)
        expected, _ = exact(model, X[others], Y[others], X[kept[place]][None])
        np.testing.assert_allclose(model.loo_.mean[place] / UNITS, expected[0] / UNITS, atol=1e-7)
    np.testing.assert_array_equal(np.isnan(model.loo_.residual), np.isnan(Y[kept]))


def test_one_output_in_a_column_is_the_univariate_path(tmp_path):
    X, Y = robots(150)
    flat, column = quick(k=12).fit(X, Y[:, 0]), quick(k=12).fit(X, Y[:, :1])
    for name, arguments in (("predict", {}), ("predict_interval", {}), ("predict_quantiles", {"q": [0.1, 0.9]})):
        a, b = (np.asarray(getattr(m, name)(X, **arguments)) for m in (flat, column))
        np.testing.assert_array_equal(a.ravel(), b.ravel())
    assert column.predict(X).shape == (150, 1)
    assert column.predict_quantiles(X, [0.1, 0.9]).shape == (150, 1, 2)
    assert flat.log_score(X, Y[:, 0]) == column.log_score(X, Y[:, :1])
    assert through_file(column, tmp_path).predict(X).shape == (150, 1)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_permuting_outputs_permutes_everything(outputs):
    X, Y = robots(150, missing=0.1)
    X_new, Y_new = robots(20, seed=1)
    order = [2, 0, 1]
    one, two = quick(outputs=outputs, k=12).fit(X, Y), quick(outputs=outputs, k=12).fit(X, Y[:, order])
    for a, b in zip(one.predict(X_new, return_std=True), two.predict(X_new, return_std=True), strict=True):
        np.testing.assert_allclose(a[:, order] / UNITS[order], b / UNITS[order], rtol=2e-4, atol=1e-5)
    assert one.log_score(X_new, Y_new) == pytest.approx(two.log_score(X_new, Y_new[:, order]), abs=1e-3)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_a_whole_fit_is_accurate_and_calibrated(outputs):
    X, Y = robots(500, missing=0.2)
    X_new, Y_new = robots(400, seed=1)
    model = GPRegressor(outputs=outputs, k=16, max_steps=100, random_state=0).fit(X, Y)
    rmse = np.sqrt(np.mean((model.predict(X_new) - Y_new) ** 2, axis=0)) / UNITS
    assert (rmse < 0.16).all()  # the noise is 0.1
    low, high = model.predict_interval(X_new)
    assert (np.abs(((low <= Y_new) & (Y_new <= high)).mean(axis=0) - 0.9) < 0.08).all()


def test_rare_output_gains_from_the_others():
    """An output that is nearly a copy of another, but seen in few rows: only a mixture can know it."""
    X, Y = robots(400, units=np.ones(3))
    rng = np.random.default_rng(5)
    Y[:, 2] = Y[:, 0] + 0.1 * rng.standard_normal(400)
    Y[rng.random(400) < 0.95, 2] = np.nan
    X_new, Y_new = robots(300, seed=1, units=np.ones(3))
    error = {}
    for outputs in ("lmc", "independent"):
        model = GPRegressor(outputs=outputs, k=20, max_steps=150, random_state=0).fit(X, Y)
        error[outputs] = np.sqrt(np.mean((model.predict(X_new)[:, 2] - Y_new[:, 0]) ** 2))
    assert error["lmc"] < 0.6 * error["independent"]


def test_joint_scores_of_normal_marginals_are_multivariate_normal():
    X, Y = robots(60)
    X_new, Y_new = robots(9, seed=1)
    Y_new[2, 1] = Y_new[4, 0] = Y_new[4, 2] = np.nan
    model = quick(predictive="plain").fit(X, Y)
    mean, covariance = model.predict(X_new, return_cov=True)
    expected = []
    for y, m, c in zip(Y_new, mean, covariance, strict=True):
        there = ~np.isnan(y)
        expected.append(scipy.stats.multivariate_normal(m[there], c[np.ix_(there, there)]).logpdf(y[there]))
    assert model.log_score(X_new, Y_new, joint=True) == pytest.approx(np.mean(expected), abs=1e-5)
    marginal = scipy.stats.norm(mean, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))).logpdf(Y_new)
    assert model.log_score(X_new, Y_new) == pytest.approx(np.nanmean(marginal), abs=1e-9)


def test_joint_scores_of_independent_outputs_add_up():
    rng = np.random.default_rng(0)
    y, loc, scale, df = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.uniform(1, 2, (5, 3)), np.array([3, 5, 9])
    dist = scipy.stats.t(df, loc, scale)
    apart = np.broadcast_to(np.eye(3), (5, 3, 3))
    np.testing.assert_allclose(joint_scores(y, dist, apart), dist.logpdf(y).sum(axis=1), atol=1e-6)
    far = joint_scores(y + 1e6, dist, np.full((5, 3, 3), 0.9) + 0.1 * np.eye(3))
    assert np.isfinite(far).all()


def test_quantiles_and_intervals_belong_to_the_distribution():
    X, Y = robots(150)
    model = quick(k=12).fit(X, Y)
    dist = model.predict_dist(X[:9])
    np.testing.assert_allclose(model.predict_quantiles(X[:9], [0.05, 0.5]), np.stack(dist.ppf([[[0.05]], [[0.5]]]), -1))
    np.testing.assert_allclose(model.predict_quantiles(X[:9], 0.5), dist.ppf(0.5))
    np.testing.assert_allclose(model.predict_interval(X[:9], 0.8), dist.interval(0.8))
    np.testing.assert_allclose(model.predict(X[:9], return_std=True), [dist.mean(), dist.std()])


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_a_row_of_weight_two_is_that_row_twice(outputs):
    X, Y = robots(30, units=np.ones(3))
    twice = np.r_[np.arange(30), 4, 9]
    weights = np.bincount(twice).astype(float)
    family = GaussianOutputs(3, one_scale=outputs == "shared", complete=True)
    found = []
    for which, w in ((np.arange(30), weights), (twice, np.ones(32))):
        observed = family.observe(Y[which], w)
        model = Model.initial(family, covariance_of(outputs, family, observed), MEANS["constant"])
        found.append(Sweeper(model, Rows.of(family, X[which], observed)).new(X[:5] + 0.1, 31))
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(found[0], name), getattr(found[1], name), atol=1e-7)
    np.testing.assert_array_equal(found[0].size, found[1].size)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_missing_entries_do_not_count(outputs):
    X, Y = robots(30, missing=0.4)
    family = GaussianOutputs(3, one_scale=outputs == "shared")
    observed = family.observe(Y, np.ones(30))
    model = Model.initial(family, covariance_of(outputs, family, observed), MEANS["constant"])
    swept = Sweeper(model, Rows.of(family, X, observed)).new(X[:2] + 0.01, 29)
    np.testing.assert_array_equal(swept.size, [(~np.isnan(Y)).sum(axis=0)] * 2)


def test_known_noise_of_each_entry_counts():
    X, Y = robots(80, units=np.ones(3))
    noise = np.zeros((80, 3))
    noise[::2, 0] = 1e8  # as good as missing
    gone = Y.copy()
    gone[::2, 0] = np.nan
    a = quick(predictive="plain").fit(X, Y, noise_variance=noise)
    expected, _ = exact(a, X, gone, X[:5])
    np.testing.assert_allclose(a.predict(X[:5]), expected, atol=1e-4)
    with pytest.raises(ValueError, match=r"noise_variance has shape \(80,\): expected \(80, 3\)"):
        quick().fit(X, Y, noise_variance=np.zeros(80))


def test_mixing_starts_at_the_correlations():
    _, Y = robots(500, missing=0.1, units=np.ones(3))
    family = GaussianOutputs(3)
    T = (Y - np.nanmean(Y, axis=0)) / np.nanstd(Y, axis=0)
    observed = family.observe(T, np.ones(500))
    W = family.initial_mixing(observed, 3)
    np.testing.assert_allclose(W @ W.T, pd.DataFrame(T).corr(), atol=0.03)
    np.testing.assert_allclose(W, W.T, atol=1e-12)
    two = family.initial_mixing(observed, 2)
    assert two.shape == (3, 2)
    np.testing.assert_allclose(two @ two.T, W @ W.T, atol=0.3)
    assert family.initial_mixing(observed, 5).shape == (3, 5)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_a_file_gives_back_the_same_bits(outputs, tmp_path):
    X, Y = robots(150, missing=0.1)
    model = quick(outputs=outputs, k=12).fit(X, Y)
    again = through_file(model, tmp_path)
    for a, b in zip(model.predict(X, return_cov=True), again.predict(X, return_cov=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(model.loo_.std, again.loo_.std)
    np.testing.assert_array_equal(model.noise_std_, again.noise_std_)
    assert (model.mixing_ is None) == (again.mixing_ is None)


@pytest.fixture(scope="module")
def mixed():
    """A model that mixes latent functions, which left-out rows prefer here."""
    model = quick(max_steps=100, k=12).fit(*robots(120))
    assert model.mixing_ is not None
    return model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sections, arrays: arrays.update({"parameter.mixing": np.ones((2, 3))}), "'parameter.mixing' has shape"),
        (lambda sections, arrays: arrays.pop("parameter.mixing"), "parameter.mixing"),
        (lambda sections, arrays: sections["head"]["outputs"].pop(), "heads for 2 outputs"),
        (lambda sections, arrays: sections["head"].update(coupling=1.5), "coupling of outputs is 1.5"),
        (lambda sections, arrays: sections["family"].update(outputs=1), "has 1 outputs"),
        (lambda sections, arrays: sections["family"].update(outputs=4), "has shape"),
        (lambda sections, arrays: sections["model"].update(covariance="tangled"), "covariance is 'tangled'"),
        (lambda sections, arrays: arrays.update({"target.scale": np.ones(2)}), "'target.scale' has shape"),
        (lambda sections, arrays: arrays.update({"observed.y": arrays["observed.y"][:, :2].copy()}), "has shape"),
        (lambda sections, arrays: arrays.pop("observed.present"), "its rows have the arrays"),
    ],
)
def test_forged_files_are_refused(change, message, mixed, tmp_path):
    with pytest.raises(ModelFileError, match=message):
        load_forged(mixed, tmp_path, change)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_update_is_a_model_of_all_rows(outputs):
    X, Y = robots(60, missing=0.2)
    model = quick(outputs=outputs, predictive="plain").fit(X[:40], Y[:40])
    model.update(X[40:], Y[40:])
    kept = ~np.isnan(Y).all(axis=1)
    expected, _ = exact(model, X[kept], Y[kept], X[:5] + 0.1)
    np.testing.assert_allclose(model.predict(X[:5] + 0.1) / UNITS, expected / UNITS, atol=1e-7)
    with pytest.raises(ValueError, match="the model has 3 outputs"):
        model.update(X, Y[:, :2])


def test_a_crash_is_resumed_with_the_same_bits(tmp_path, monkeypatch):
    X, Y = robots(150)
    arguments = {"max_steps": 40, "refresh_every": 10, "k": 8}
    whole = quick(**arguments).fit(X, Y)
    resumed = quick(**arguments, checkpoint=tmp_path / "checkpoint")
    crash_after_checkpoint(monkeypatch, lambda: resumed.fit(X, Y))
    np.testing.assert_array_equal(resumed.fit(X, Y).predict(X), whole.predict(X))


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_same_seed_same_bits_whatever_the_threads(outputs, monkeypatch):
    X, Y = robots(150)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        found.append(quick(outputs=outputs, k=12).fit(X, Y).predict(X, return_std=True))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_frames_go_in_and_scikit_learn_takes_part():
    X, Y = robots(90, units=np.ones(3))
    frame = pd.DataFrame(Y, columns=["left", "right", "torque"])
    np.testing.assert_array_equal(quick(k=8).fit(X, frame).predict(X), quick(k=8).fit(X, Y).predict(X))
    assert cross_val_score(quick(k=8), X, Y, cv=3).mean() > 0.5
    with pytest.raises(ValueError, match="column 'right' is not numeric"):
        quick().fit(X, frame.assign(right="a"))


@pytest.mark.filterwarnings("ignore:output . is constant", "ignore:. rows are few")
def test_odd_data():
    X, Y = robots(40, units=np.ones(3))
    with pytest.warns(UserWarning, match=r"output 1 is constant \(5\)"):
        model = quick().fit(X, np.where([False, True, False], 5.0, Y))
    np.testing.assert_allclose(model.predict(X)[:, 1], 5.0, atol=0.01)
    for n in (1, 2, 3):
        assert np.isfinite(quick().fit(X[:n], Y[:n] + np.eye(3)[:n]).predict(X)).all()
    copies = np.repeat(np.arange(10), 8)
    assert np.isfinite(quick().fit(X[copies], Y[copies]).predict(X, return_cov=True)[1]).all()
    huge = quick().fit(X * 1e100, Y * np.array([1e150, 1e-150, 1.0]))
    assert np.isfinite(huge.predict(X * 1e100)).all()


def test_mistakes_are_named():
    X, Y = robots(40)
    with pytest.raises(ValueError, match="outputs: it takes one"):
        quick(likelihood="student_t").fit(X, Y)
    with pytest.raises(ValueError, match="outputs is 'mixed': expected one of 'lmc'"):
        quick(outputs="mixed").fit(X, Y)
    with pytest.raises(ValueError, match="n_latents is 0"):
        quick(n_latents=0).fit(X, Y)
    with pytest.raises(ValueError, match="output 1 of y is missing in every row"):
        quick().fit(X, Y).fit(X, np.where([False, True, False], np.nan, Y))
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(X, np.where([False, True, False], np.inf, Y))
    model = quick().fit(X, Y)
    with pytest.raises(ValueError, match="both True"):
        model.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match=r"y has shape \(40, 2\)"):
        model.log_score(X, Y[:, :2])


def test_correlations_shrink_with_the_coupling():
    covariance = np.array([[[4.0, 1.0], [1.0, 1.0]]])
    for coupling in (0.0, 0.5, 1.0):
        heads = OutputHeads((RegressionHead(), RegressionHead()), coupling)
        np.testing.assert_allclose(heads.correlation(covariance)[0], [[1, coupling / 2], [coupling / 2, 1]])
