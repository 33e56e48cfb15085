"""GPRegressor with Student-t noise: outliers, and everything that must stay as with Gaussian noise."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.stats
from estimator_data import dense_moments, load_forged, on_rows, quick, small, through_file

from nearfield import GPRegressor, ModelFileError
from nearfield.covariances import Shared
from nearfield.families.student_t import StudentT
from nearfield.kernels import find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.objectives import LEAVE_ONE_OUT
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.training import Run, Schedule, Stage, train
from nearfield.warps import Warps

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

LIKELIHOODS = ("gaussian", "student_t")


def surface(n, seed):
    """Inputs (n, 2), the smooth function (n,) and observations with noise of a tenth of its spread."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    return X, f, f + 0.1 * rng.standard_normal(n)


def with_outliers(y, share=0.05, sigmas=20, seed=0):
    """Targets of which a share lies so many standard deviations of all targets away, to either side."""
    rng = np.random.default_rng(seed)
    bad = rng.permutation(len(y)) < share * len(y)
    return np.where(bad, y + sigmas * y.std() * rng.choice([-1, 1], len(y)), y), bad


def fit(likelihood, X, y, **arguments):
    return GPRegressor(likelihood=likelihood, **{"max_steps": 100, "random_state": 0, **arguments}).fit(X, y)


def rmse(model, X, f):
    return np.sqrt(np.mean((model.predict(X) - f) ** 2))


@pytest.fixture(scope="module")
def spoilt():
    """Fits of the same 400 rows: clean with Gaussian noise, and with outliers with either noise; and fresh rows."""
    X, _, y = surface(400, 0)
    bad, outliers = with_outliers(y)
    models = {name: fit(name, X, bad) for name in LIKELIHOODS}
    return X, bad, outliers, fit("gaussian", X, y), models, surface(400, 1)


# --- outliers -------------------------------------------------------------------------------------------------------


def test_outliers_do_not_bend_the_fit(spoilt):
    """Judged by clean fresh observations, as a user would."""
    *_, clean, models, (X_new, _, y_new) = spoilt
    best = rmse(clean, X_new, y_new)
    assert rmse(models["student_t"], X_new, y_new) < 1.1 * best
    assert rmse(models["gaussian"], X_new, y_new) > 2 * best


def test_noise_and_intervals_are_those_of_the_clean_rows(spoilt):
    *_, models, (X_new, _, y_new) = spoilt
    model = models["student_t"]
    assert 0.05 < model.noise_std_ < 0.2
    low, high = model.predict_interval(X_new)
    assert 0.85 <= np.mean((low <= y_new) & (y_new <= high)) <= 1
    assert np.median(high - low) < 5 * 2 * 1.645 * 0.1
    gaussian_low, gaussian_high = models["gaussian"].predict_interval(X_new)
    assert np.median(high - low) < 0.5 * np.median(gaussian_high - gaussian_low)
    assert model.log_score(X_new, y_new) > models["gaussian"].log_score(X_new, y_new) + 0.5


def test_outliers_are_told_by_their_residuals(spoilt):
    _, bad, outliers, _, models, _ = spoilt
    loo = models["student_t"].loo_
    np.testing.assert_allclose(loo.residual, bad - loo.mean)
    assert np.abs(loo.residual[outliers]).min() > np.abs(loo.residual[~outliers]).max()


def test_one_enormous_outlier():
    X, f, y = surface(200, 0)
    y[7] = 1e8
    assert rmse(fit("student_t", X, y), X, f) < 0.1


def student_rows(n=300):
    """Rows with outliers about which nothing is known yet, a model at its start, and which rows are outliers."""
    X, _, y = surface(n, 0)
    y, outliers = with_outliers(y)
    family = StudentT()
    observed = family.observe(y / 0.8, np.ones(n))
    model = Model.initial(family, Shared(find_kernel("matern52"), 1, Warps.none(2), 1), MEANS["constant"])
    return model, Rows.of(family, X, observed), outliers


def with_noise(model, noise):
    return model.with_parameters({**model.parameters, "log_noise": np.array(np.log(noise))})


def test_an_outlier_not_visited_stays_one_while_the_noise_falls():
    """Training visits each of many rows seldom: what is known of a row must not depend on the noise of that time."""
    model, rows, outliers = student_rows()
    pull = {}
    for noise in (0.05, 1e-4):
        p = with_noise(model, noise).parameters
        sites = model.family.sites(rows.observed, rows.state, p, np.ones(1))
        pull[noise] = (sites.targets / sites.noises)[outliers]
        assert not model.family.believed(rows.state, p)[outliers].any()
    assert model.family.believed(rows.state, model.parameters)[~outliers].all()
    np.testing.assert_allclose(pull[1e-4], pull[0.05], rtol=0.01)


def test_training_is_not_judged_by_outliers():
    """How badly outliers are predicted would end stages of training early, or late."""
    model, rows, _ = student_rows()
    rng = np.random.default_rng(0)
    run = Run(model, rows, LEAVE_ONE_OUT, rng)
    train(run, Schedule((Stage(0.03, 16, 2),), batch_size=300, refresh_every=5))
    assert min(run.progress.scores) > 0  # with the outliers about -1, and errors of 0.3
    assert max(run.progress.errors) < 0.1


def test_outliers_do_not_hide_that_other_rows_have_not_settled():
    model, rows, outliers = student_rows()
    model = with_noise(model, 0.02)
    settled, sweeps = Sweeper(model, rows).settled(32)
    assert 1 < sweeps < 20
    state = settled
    for _ in range(3):
        state, _ = Sweeper(model, rows.with_state(state)).settled(32)
    np.testing.assert_allclose(np.log(settled[~outliers]), np.log(state[~outliers]), atol=0.01)


def test_without_outliers_it_is_the_gaussian_fit(spoilt):
    *_, gaussian, _, (X_new, f_new, y_new) = spoilt
    X, _, y = surface(400, 0)
    heavy = fit("student_t", X, y)
    assert rmse(heavy, X_new, f_new) < 1.2 * rmse(gaussian, X_new, f_new)
    assert heavy.log_score(X_new, y_new) > gaussian.log_score(X_new, y_new) - 0.05
    low, high = heavy.predict_interval(X_new)
    assert 0.85 <= np.mean((low <= y_new) & (y_new <= high)) <= 0.95


# --- the predictive -------------------------------------------------------------------------------------------------


def test_the_plain_predictive_is_a_student_t():
    X, y = small()
    model = quick(likelihood="student_t", predictive="plain").fit(X, y)
    dist = model.predict_dist(X)
    assert dist.dist.name == "t"
    assert dist.args[0] == model.df_
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, dist.mean())
    np.testing.assert_allclose(std, dist.std())
    assert model.log_score(X, y) == pytest.approx(dist.logpdf(y).mean())
    low, high = model.predict_interval(X, coverage=0.8)
    np.testing.assert_allclose(low, dist.ppf(0.1))
    np.testing.assert_allclose(high, dist.ppf(0.9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.log_score(X, y + 1e6))


def test_the_calibrated_predictive_is_a_distribution_of_scipy(spoilt):
    *_, models, (X_new, _, y_new) = spoilt
    dist = models["student_t"].predict_dist(X_new)
    assert dist.dist.name == "t"
    assert models["student_t"].log_score(X_new, y_new) == pytest.approx(dist.logpdf(y_new).mean())


def test_the_old_spelling_of_the_plain_predictive_warns():
    X, y = small(40)
    with pytest.warns(FutureWarning, match="predictive='student_t' is deprecated: write predictive=.plain"):
        old = quick(likelihood="student_t", predictive="student_t").fit(X, y)
    new = quick(likelihood="student_t", predictive="plain").fit(X, y)
    np.testing.assert_array_equal(old.predict_interval(X), new.predict_interval(X))


@pytest.mark.parametrize(
    ("likelihood", "predictive", "message"),
    [
        ("student_t", "gaussian", "predictive is 'gaussian': expected one of 'calibrated', 'plain'"),
        ("cauchy", "calibrated", "likelihood is 'cauchy': expected one of 'gaussian', 'student_t'"),
    ],
)
def test_what_does_not_go_together_is_named(likelihood, predictive, message):
    with pytest.raises(ValueError, match=message):
        quick(likelihood=likelihood, predictive=predictive).fit(*small(20))


def test_tails_are_heavier_where_the_noise_has_them():
    rng = np.random.default_rng(0)
    X, f, _ = surface(500, 0)
    heavy, light = (
        fit("student_t", X, f + 0.2 * noise, predictive="plain", k=32)
        for noise in (rng.standard_t(2.5, 500), rng.standard_normal(500))
    )
    assert heavy.predict_dist(X[:1]).args[0] < 6 < light.predict_dist(X[:1]).args[0]


# --- strange targets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predictive", ["calibrated", "plain"])
def test_a_constant_target_works_with_a_warning(predictive):
    X, _ = small(50)
    with pytest.warns(UserWarning, match=r"the target is constant \(5\)"):
        model = quick(likelihood="student_t", predictive=predictive).fit(X, np.full(50, 5.0))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 5.0, atol=1e-6)
    assert np.isfinite(std).all()
    assert (std > 0).all()


def test_a_target_that_is_mostly_one_value():
    X, y = small()
    y = np.where(X[:, 0] < 0.5, 0.0, y)
    model = quick(likelihood="student_t").fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()


@pytest.mark.parametrize("unit", [1e-200, 1e-165, 1e160, 1e200])
def test_targets_of_extreme_size(unit, tmp_path):
    X, y = small()
    model = quick(likelihood="student_t", k=32).fit(X, y * unit)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.sqrt(np.mean((mean / unit - y) ** 2)) < 0.3
    assert np.isfinite(model.summary_.left_out["rmse"])
    np.testing.assert_array_equal(through_file(model, tmp_path).predict(X), mean)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_units_do_not_matter(scale):
    X, y = small()
    base, scaled = (quick(likelihood="student_t", k=16).fit(X * s, y * s) for s in (1.0, scale))
    np.testing.assert_allclose(
        np.stack(scaled.predict(X * scale, return_std=True)) / scale, np.stack(base.predict(X, True)), rtol=1e-5
    )
    assert scaled.noise_std_ == pytest.approx(base.noise_std_ * scale, rel=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_a_handful_of_rows(n):
    X, y = small(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = quick(likelihood="student_t").fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.isfinite(model.loo_.std).all()


# --- oracles --------------------------------------------------------------------------------------------------------


def observed(model, y):
    """What was observed at rows of weight one, in the units of the model."""
    return model._fit.predictor.model.family.observe(model._target.apply(y), np.ones(len(y)))


def test_weights_are_repetitions_and_zero_is_no_row():
    X, y = small(40)
    y, _ = with_outliers(y)
    weights = np.random.default_rng(0).integers(0, 4, 40)
    again = np.repeat(np.arange(40), weights)
    weighted = quick(likelihood="student_t").fit(X, y, sample_weight=weights)
    repeated = quick(likelihood="student_t").fit(X[again], y[again])
    assert (weighted.target_mean_, weighted.target_std_) == (repeated.target_mean_, repeated.target_std_)
    X_new = small(20, seed=5)[0]
    np.testing.assert_array_equal(np.stack(weighted.predict(X_new, True)), np.stack(repeated.predict(X_new, True)))
    place = np.cumsum(weights > 0) - 1
    np.testing.assert_array_equal(weighted.loo_.mean[place[again]], repeated.loo_.mean)
    assert (weighted.n_rows_, repeated.n_rows_) == ((weights > 0).sum(), weights.sum())


def test_known_noise_makes_a_row_count_less():
    X, y = small()
    bad = np.arange(300) % 3 == 0
    y_bad = y + np.where(bad, 3 * np.random.default_rng(1).standard_normal(300), 0)
    told = quick(likelihood="student_t").fit(X, y_bad, noise_variance=np.where(bad, 9.0, 0.0))
    untold = quick(likelihood="gaussian").fit(X, y_bad)
    truth = np.sin(X[:, 0])
    assert rmse(told, X, truth) < 0.5 * rmse(untold, X, truth)


# Left out, the neighbours' own weights have still seen the row's target, and in an update those of the old rows have
# not yet seen the new ones.
SLACK = 0.05


def test_left_out_predictions_are_those_of_a_model_without_the_row():
    X, y = small(80, 2)
    y, _ = with_outliers(y)
    model = quick(likelihood="student_t", k=10).fit(X, y)
    for i in (0, 17, 79):
        keep = np.arange(80) != i
        other = on_rows(model, X[keep], observed(model, y[keep]), settle_k=10)
        assert model.loo_.mean[i] == pytest.approx(other.predict(X[i : i + 1])[0], abs=SLACK * model.target_std_)


def test_update_equals_a_model_built_with_all_rows():
    X, y = small(500)
    y, bad = with_outliers(y)
    model = quick(likelihood="student_t", k=20).fit(X[:400], y[:400])
    grown = pickle.loads(pickle.dumps(model)).update(X[400:], y[400:])
    assert grown.n_rows_ == len(grown.loo_.mean) == 500
    whole = on_rows(model, X, observed(model, y), settle_k=20)
    X_new = small(50, seed=3)[0]
    np.testing.assert_allclose(grown.predict(X_new), whole.predict(X_new), atol=SLACK * model.target_std_)
    new = np.arange(500) >= 400
    for m in (grown, whole):
        assert np.abs(m.loo_.residual[new & bad]).min() > np.abs(m.loo_.residual[new & ~bad]).max()


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_predictions_from_all_rows_are_those_of_dense_algebra(mean):
    """At the learned hyper-parameters and sites; known noise, weights and outliers among them."""
    X, y = small(60, 2)
    y, _ = with_outliers(y)
    model = quick(likelihood="student_t", predictive="plain", mean=mean)
    model.fit(X, y, sample_weight=np.arange(60) % 3 + 0.5, noise_variance=np.linspace(0, 0.1, 60))
    assert model.k_ == 59
    X_new = small(25, 2, seed=1)[0]
    latent, variance = dense_moments(model, X_new)
    found, std = model.predict(X_new, return_std=True)
    np.testing.assert_allclose(found, model.target_mean_ + model.target_std_ * latent[:, 0], atol=1e-7)
    scale = np.hypot(model.target_std_ * np.sqrt(variance[:, 0]), model.noise_std_)
    np.testing.assert_allclose(std, scipy.stats.t(model.df_, 0, scale).std(), rtol=1e-6)


def test_same_seed_same_bits_with_any_number_of_threads(monkeypatch):
    X, y = small()
    y, _ = with_outliers(y)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        model = quick(likelihood="student_t", k=16).fit(X, y)
        found.append(np.stack([*model.predict(X, return_std=True), model.loo_.mean]))
    np.testing.assert_array_equal(found[0], found[1])


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predictive", ["calibrated", "plain"])
def test_a_loaded_model_is_the_saved_one(predictive, tmp_path):
    X, y = small(400)
    model = quick(likelihood="student_t", predictive=predictive, k=20).fit(X[:300], y[:300])
    loaded = through_file(model, tmp_path)
    assert loaded.get_params() == {**model.get_params(), "random_state": None}
    np.testing.assert_array_equal(np.stack(loaded.predict(X, True)), np.stack(model.predict(X, True)))
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    for ours, theirs in zip(loaded.loo_, model.loo_, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(loaded.update(X[300:], y[300:]).predict(X), model.update(X[300:], y[300:]).predict(X))


@pytest.mark.parametrize("size", [3.0, 20.0])
def test_outliers_do_not_widen_what_is_said_of_the_function(size):
    """Error bars of observations have to cover them; those of the function hold, and are as wide as it is uncertain."""
    covered, widths, errors = [], [], []
    for seed in range(4):
        X, f, y = surface(500, seed)
        bad, _ = with_outliers(y[:300], 0.1, size, seed)
        model = fit("student_t", X[:300], bad)
        mean, std = model.predict(X[300:], return_std=True, uncertainty="latent")
        low, high = model.predict_interval(X[300:], uncertainty="latent")
        covered.append(((low <= f[300:]) & (f[300:] <= high)).mean())
        widths.append(np.median(high - low))
        errors.append(np.sqrt(np.mean((mean - f[300:]) ** 2)))
        assert np.median(std) < 3 * errors[-1]
    right = 2 * scipy.stats.norm.ppf(0.95) * np.array(errors)
    assert 0.85 <= np.mean(covered) <= 0.99
    assert (widths < 3 * right).all()
    assert np.mean(widths / right) < 2


def test_every_answer_about_the_function_has_its_own_degrees_of_freedom(tmp_path):
    X, _, y = surface(300, 0)
    model = fit("student_t", X, with_outliers(y, 0.1)[0], warp=False)
    head, some = model._fit.predictor.head, X[np.abs(X).max(axis=1) < 1.5][:20]
    assert head.latent_only > 0
    assert head.latent_df != head.df
    std = model.predict(some, return_std=True, uncertainty="latent")[1]
    dist = model.predict_dist(some, uncertainty="latent")
    np.testing.assert_allclose(dist.std(), std, rtol=1e-12)
    np.testing.assert_allclose(dist.ppf(0.95), model.predict_interval(some, uncertainty="latent")[1], rtol=1e-9)
    between = model.predict(some, return_cov=True, uncertainty="latent")[1]
    np.testing.assert_allclose(np.diagonal(between), std**2, rtol=1e-9)
    noisy = model.predict(some, return_cov=True)[1]
    apart = ~np.eye(20, dtype=bool)
    np.testing.assert_allclose(noisy[apart], between[apart], rtol=1e-9)  # noise is of each row alone
    samples = model.sample_y(some, 4000, random_state=0, uncertainty="latent")
    quantiles = np.quantile(samples, [0.05, 0.95], axis=1)
    np.testing.assert_allclose(quantiles, model.predict_interval(some, uncertainty="latent"), atol=0.2 * std.max())
    gradient = model.predict_gradient(some, uncertainty="latent")
    step = 1e-5
    above, below = (
        model.predict(some + sign * step * np.eye(2)[0], return_std=True, uncertainty="latent")[1] for sign in (1, -1)
    )
    np.testing.assert_allclose(gradient.std[:, 0], (above - below) / (2 * step), atol=1e-3)
    loaded = through_file(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict(some, return_std=True, uncertainty="latent")[1], std)
    assert fit("gaussian", X, y)._fit.predictor.head.latent_only == 0


@pytest.fixture(scope="module")
def forgeable():
    return quick(likelihood="student_t").fit(*small(30))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, a: h["family"].update(name="gaussian"), "rows.state"),
        (
            lambda h, a: h["estimator"]["parameters"].update(likelihood="gaussian"),
            "its likelihood is not the 'gaussian'",
        ),
        (lambda h, a: a["rows.state"].__setitem__((0, 0), 0.0), "rows.state.*squared residuals"),
        (lambda h, a: a["rows.state"].__setitem__((0, 0), -1.0), "rows.state.*squared residuals"),
        (lambda h, a: a["rows.state"].__setitem__((0, 0), np.inf), "rows.state.*not finite"),
        (lambda h, a: a["parameter.log_df"].__setitem__((), -1.0), "parameter.log_df"),
        (lambda h, a: a.pop("parameter.log_df"), "parameter.log_df"),
        (lambda h, a: h["head"].update(df=1.0), "out of range"),
        (lambda h, a: h["head"].update(latent_only=1.0, latent_df=1.0), "out of range"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, change, message, forgeable):
    with pytest.raises(ModelFileError, match=message):
        load_forged(forgeable, tmp_path, change)
