"""GPRegressor with Student-t noise: outliers, and everything that must stay as with Gaussian noise."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from estimator_data import (
    crash_after_checkpoint,
    load_forged,
    on_rows,
    quick,
    small,
    through_file,
    with_engine,
)

from nearfield import GPRegressor, ModelFileError
from nearfield.kernels import find_kernel
from nearfield.likelihoods.student_t import StudentT
from nearfield.model import Model, Rows
from nearfield.sweep import Sweeper
from nearfield.training import Schedule, Stage, start, train

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
    likelihood = StudentT()
    stats = np.stack([y / 0.8, np.ones(n), np.zeros(n)], axis=1)
    return Model.initial(find_kernel("matern52"), 2, likelihood), Rows.of(likelihood, X, stats), outliers


def test_an_outlier_not_visited_stays_one_while_the_noise_falls():
    """Training visits each of many rows seldom: what is known of a row must not depend on the noise of that time."""
    model, rows, outliers = student_rows()
    pull = {}
    for noise in (0.05, 1e-4):
        hyper = model.noise_model | {"log_noise": torch.tensor(np.log(noise))}
        sites = model.likelihood.sites(rows.stats, rows.auxiliary, hyper, torch.ones(()))
        pull[noise] = (sites.targets / sites.noises).detach().numpy()[outliers]
        trust = model.likelihood.trust(rows.auxiliary, hyper)
        assert not trust[outliers].any()
    np.testing.assert_allclose(pull[1e-4], pull[0.05], rtol=0.01)


def test_training_is_not_judged_by_outliers():
    """How badly outliers are predicted would end stages of training early, or late."""
    model, rows, _ = student_rows()
    run = start(model, rows, np.random.default_rng(0))
    train(run, Schedule((Stage(0.03, 16, 2),), batch_size=300, refresh_every=5))
    assert min(run.progress.scores) > 0  # with the outliers about -1, and errors of 0.3
    assert max(run.progress.errors) < 0.1


def test_outliers_do_not_hide_that_other_rows_have_not_settled():
    model, rows, outliers = student_rows()
    with torch.no_grad():
        model.noise_model["log_noise"].fill_(np.log(0.02))
    Sweeper(model, rows).settle(32)
    settled = rows.auxiliary.clone()
    for _ in range(3):
        Sweeper(model, rows).settle(32)
    np.testing.assert_allclose(settled[~outliers].log(), rows.auxiliary[~outliers].log(), atol=0.01)


@pytest.mark.parametrize("df", [1.5, 4.0, 30.0])
@pytest.mark.parametrize("residual", [0.0, 1.0, 10.0, 100.0, 1e4, 1e8])
def test_the_density_of_an_outlier_is_that_of_a_student_t(df, residual):
    """With the latent function known, the integral over the noise's scale has a closed form."""
    hyper = {"log_df": torch.tensor(np.log(df)), "log_noise": torch.zeros((), dtype=torch.float64)}
    mean, variance = torch.zeros(1, dtype=torch.float64), torch.full((1,), 1e-12, dtype=torch.float64)
    stats = torch.tensor([[residual, 1.0, 0.0]], dtype=torch.float64)
    found = StudentT().log_predictive(mean, variance, stats, hyper)
    assert float(found) == pytest.approx(scipy.stats.t.logpdf(residual, df), abs=0.02)


def test_without_outliers_it_is_the_gaussian_fit():
    X, _, y = surface(400, 0)
    X_new, f_new, y_new = surface(400, 1)
    gaussian, heavy = (fit(name, X, y) for name in LIKELIHOODS)
    assert rmse(heavy, X_new, f_new) < 1.2 * rmse(gaussian, X_new, f_new)
    assert heavy.log_score(X_new, y_new) > gaussian.log_score(X_new, y_new) - 0.05
    low, high = heavy.predict_interval(X_new)
    assert 0.85 <= np.mean((low <= y_new) & (y_new <= high)) <= 0.95


# --- the predictive -------------------------------------------------------------------------------------------------


def test_the_plain_predictive_is_a_student_t():
    X, y = small()
    model = quick(likelihood="student_t", predictive="student_t").fit(X, y)
    dist = model.predict_dist(X)
    assert dist.dist.name == "t"
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


@pytest.mark.parametrize(
    ("likelihood", "predictive", "message"),
    [
        ("student_t", "gaussian", "predictive is 'gaussian': expected one of 'calibrated', 'student_t'"),
        ("gaussian", "student_t", "predictive is 'student_t': expected one of 'calibrated', 'gaussian'"),
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
        fit("student_t", X, f + 0.2 * noise, predictive="student_t", k=32)
        for noise in (rng.standard_t(2.5, 500), rng.standard_normal(500))
    )
    assert heavy.predict_dist(X[:1]).args[0] < 6 < light.predict_dist(X[:1]).args[0]


# --- strange targets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predictive", ["calibrated", "student_t"])
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


def statistics(model, y):
    return np.stack([model._target.apply(y), np.ones(len(y)), np.zeros(len(y))], axis=1)


def test_weights_are_repetitions_and_zero_is_no_row():
    X, y = small(40)
    weights = np.random.default_rng(0).integers(0, 4, 40)
    weighted = quick(likelihood="student_t").fit(X, y, sample_weight=weights)
    repeated = quick(likelihood="student_t").fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.target_std_ == pytest.approx(repeated.target_std_)
    X_new = small(20, seed=5)[0]
    np.testing.assert_allclose(weighted.predict(X_new), repeated.predict(X_new), atol=2e-3 * y.std())
    assert weighted.n_rows_ == (weights > 0).sum()


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
        other = on_rows(model, X[keep], statistics(model, y[keep]), settle_k=10)
        assert model.loo_.mean[i] == pytest.approx(other.predict(X[i : i + 1])[0], abs=SLACK * model.target_std_)


def test_update_equals_a_model_built_with_all_rows():
    X, y = small(500)
    y, bad = with_outliers(y)
    model = quick(likelihood="student_t", k=20).fit(X[:400], y[:400])
    grown = pickle.loads(pickle.dumps(model)).update(X[400:], y[400:])
    assert grown.n_rows_ == len(grown.loo_.mean) == 500
    whole = on_rows(model, X, statistics(model, y), settle_k=20)
    X_new = small(50, seed=3)[0]
    np.testing.assert_allclose(grown.predict(X_new), whole.predict(X_new), atol=SLACK * model.target_std_)
    new = np.arange(500) >= 400
    for m in (grown, whole):
        assert np.abs(m.loo_.residual[new & bad]).min() > np.abs(m.loo_.residual[new & ~bad]).max()


def test_engines_agree():
    X, y = small(40)
    arguments = {"likelihood": "student_t", "k": 8, "max_steps": 4, "refresh_every": 2}
    fused = quick(**arguments).fit(X, y)
    reference = with_engine(fused, "batched")
    np.testing.assert_allclose(fused.predict(X), reference.predict(X), atol=1e-8)
    np.testing.assert_allclose(fused.predict(X), quick(engine="batched", **arguments).fit(X, y).predict(X), atol=1e-6)


def test_same_seed_same_bits_with_any_number_of_threads(monkeypatch):
    X, y = small()
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        found.append(np.stack(quick(likelihood="student_t", k=16).fit(X, y).predict(X, return_std=True)))
    np.testing.assert_array_equal(found[0], found[1])


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predictive", ["calibrated", "student_t"])
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, a: h["likelihood"].update(name="gaussian"), "rows.auxiliary"),
        (lambda h, a: h["parameters"].update(likelihood="gaussian"), "likelihood"),
        (lambda h, a: a["rows.auxiliary"].__setitem__((0, 0), 0.0), "rows.auxiliary"),
        (lambda h, a: a["rows.auxiliary"].__setitem__((0, 0), -1.0), "rows.auxiliary"),
        (lambda h, a: a["rows.auxiliary"].__setitem__((0, 0), np.inf), "rows.auxiliary"),
        (lambda h, a: a["hyper.log_df"].__setitem__((), -1.0), "hyper.log_df"),
        (lambda h, a: a.pop("hyper.log_df"), "hyper.log_df"),
        (lambda h, a: h["head"].update(df=1.0), "out of range"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, change, message):
    with pytest.raises(ModelFileError, match=message):
        load_forged(quick(likelihood="student_t").fit(*small(30)), tmp_path, change)


def test_a_crashed_fit_resumes_from_its_checkpoint(tmp_path, monkeypatch):
    X, y = small(400)
    path = tmp_path / "fit.checkpoint"
    arguments = {"likelihood": "student_t", "max_steps": 40, "k": 10, "checkpoint": path}
    whole = quick(**arguments).fit(X, y).predict(X)
    crash_after_checkpoint(monkeypatch, lambda: quick(**arguments).fit(X, y))
    assert path.exists()
    with pytest.raises(ValueError, match="belongs to other data or settings"):
        quick(**{**arguments, "likelihood": "gaussian"}).fit(X, y)
    np.testing.assert_array_equal(quick(**arguments).fit(X, y).predict(X), whole)


def test_the_calibrated_predictive_is_a_distribution_of_scipy(spoilt):
    *_, models, (X_new, _, y_new) = spoilt
    dist = models["student_t"].predict_dist(X_new)
    assert dist.dist.name == "t"
    assert models["student_t"].log_score(X_new, y_new) == pytest.approx(dist.logpdf(y_new).mean())
