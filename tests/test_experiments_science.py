"""The data that the experiments make, and what they compute, against formulas, dense algebra and limits."""

from __future__ import annotations

from dataclasses import replace

import experiment_tasks as fakes
import numpy as np
import pytest
from scipy.stats import chi2, multivariate_normal, norm

from experiments import curves, k_dependence, synthetic, tables
from experiments.catalogue import EXPERIMENTS
from experiments.data import Split
from experiments.methods import Method, Prediction, Settings
from experiments.methods.exact import objective
from experiments.nested import Kernel, moments, neighbours
from experiments.ours import ALL_METHODS, OURS
from experiments.runtime import rows_of, table
from experiments.scoring import fit_and_score_outputs, score
from experiments.task import Entry, Task


@pytest.mark.parametrize(
    ("name", "gamma", "x", "expected"),
    [
        ("stretched-below", 2.0, [-1.0, -0.5, 0.0, 0.7], [-3.0, -1.5, 0.0, 0.7]),  # (1 + gamma) x below zero
        ("bent-above", 2.0, [-1.0, 0.0, 0.5, 1.0], [-1.0, 0.0, 0.125, 1.0]),  # x^(1 + gamma) above zero
        ("cubic", 2.0, [-1.0, -0.5, 0.5, 1.0], [-3.0, -0.75, 0.75, 3.0]),  # x + gamma x^3
    ],
)
def test_warpings_are_those_of_the_paper(name, gamma, x, expected):
    np.testing.assert_allclose(synthetic.WARPINGS[name](np.array(x), gamma), expected, rtol=1e-15)


@pytest.mark.parametrize("name", synthetic.WARPINGS)
def test_warpings_keep_order_and_are_the_identity_at_zero(name):
    x = np.linspace(-1, 1, 101)
    np.testing.assert_array_equal(synthetic.WARPINGS[name](x, 0.0), x)
    assert (np.diff(synthetic.WARPINGS[name](x, 1.5)) > 0).all()


def test_prior_draws_have_the_covariance_of_the_prior():
    """Whitened by the covariance of the prior, draws are standard normal: the sum of their squares is chi-squared."""
    n, seeds, total = 50, 40, 0.0
    for seed in range(seeds):
        X, y = synthetic.prior_draw(n, seed)
        assert X.shape == (n, 4)
        assert (np.abs(X) <= 1).all()
        squared = np.sum((X[:, None] - X) ** 2, axis=-1)
        K = np.exp(-2 * squared) + 0.01 * np.eye(n)  # length scale 1/2, noise 0.1
        total += y @ np.linalg.solve(K, y)
    assert chi2(n * seeds).cdf(total) == pytest.approx(0.5, abs=0.4995)


def test_twins_are_the_rows_with_a_little_noise():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 3)), rng.normal(size=2000)
    X2, y2 = synthetic.with_twins(X, y, seed=0)
    assert (len(X2), len(y2)) == (4000, 4000)
    np.testing.assert_array_equal(X2[:2000], X)
    np.testing.assert_array_equal(y2[:2000], y)
    assert np.var(X2[2000:] - X) == pytest.approx(1e-4, rel=0.1)
    assert np.var(y2[2000:] - y) == pytest.approx(1e-4, rel=0.1)
    assert not np.array_equal(synthetic.with_twins(X, y, seed=1)[1], y2)


def test_enlarged_tables_have_each_row_before_any_repeat():
    X, y = np.arange(10.0)[:, None], np.arange(10.0)
    X2, y2 = synthetic.enlarged(X, y, 25, seed=0, std=1e-6)
    assert sorted(X2[:10, 0]) == list(range(10))
    np.testing.assert_allclose(X2[:, 0], y2, atol=1e-4)
    assert len(synthetic.enlarged(X, y, 4, seed=0)[0]) == 4


def test_runtime_tables_are_generated_where_slice_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    X, y, source = table(rows_of("rows-50"), 0, False)
    assert (X.shape, y.shape, source) == ((50, 25), (50,), "generated")


@pytest.fixture(scope="module")
def smooth():
    """Inputs, targets and a kernel that suits them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=60) + 1.0
    return X, y, Kernel(np.array([0.7, 1.1]), 0.8, 0.2, 0.5)


def test_nested_moments_equal_a_dense_solve_for_every_k(smooth):
    X, y, kernel = smooth
    queries = X[:5] + 0.05
    ids = neighbours(X, kernel.lengths, 20, queries)
    mean, variance = moments(kernel, X, y, ids, queries)
    for row, x in enumerate(queries):
        order = np.argsort(np.sum(((X - x) / kernel.lengths) ** 2, axis=1))
        for k in (1, 2, 7, 20):
            near = order[:k]
            K = kernel.scale**2 * curves.correlation(X[near], X[near], kernel.lengths) + kernel.noise**2 * np.eye(k)
            c = kernel.scale**2 * curves.correlation(X[near], x[None], kernel.lengths)[:, 0]
            expected = kernel.mean + c @ np.linalg.solve(K, y[near] - kernel.mean)
            assert mean[row, k - 1] == pytest.approx(expected, rel=1e-9)
            expected = kernel.scale**2 - c @ np.linalg.solve(K, c) + kernel.noise**2
            assert variance[row, k - 1] == pytest.approx(expected, rel=1e-9)


def test_objectives_equal_dense_ones(smooth):
    X, y, kernel = smooth
    found = curves.objectives(X, y, kernel, seed=0)
    theta = np.r_[np.log(kernel.lengths), 2 * np.log(0.9), 2 * np.log(0.3), kernel.mean]
    assert found["MLL"](0.9, 0.3) == pytest.approx(objective("mll", theta, X, y)[0], rel=1e-6)
    assert found["LOO-inf"](0.9, 0.3) == pytest.approx(objective("loo", theta, X, y)[0], rel=1e-6)
    K = 0.81 * curves.correlation(X, X, kernel.lengths) + 0.09 * np.eye(60)
    expected = multivariate_normal(np.full(60, kernel.mean), K).logpdf(y) / 60
    assert found["MLL"](0.9, 0.3) == pytest.approx(expected, rel=1e-6)


def test_loo_k_with_all_neighbours_is_exact_loo(smooth):
    X, y, kernel = smooth
    found = curves.objectives(X, y, kernel, seed=0)  # 60 rows, so that 128 neighbours are all of them
    assert found["LOO-128"](0.9, 0.3) == pytest.approx(found["LOO-inf"](0.9, 0.3), rel=1e-6)


def test_svgp_is_the_mll_with_all_rows_as_inducing_points_and_below_it_with_fewer(smooth):
    X, y, kernel = smooth
    mll = curves.objectives(X, y, kernel, seed=0)["MLL"](0.9, 0.3)

    def bound(rows):
        K_mm, K_nm = (
            curves.correlation(X[rows], X[rows], kernel.lengths),
            curves.correlation(X, X[rows], kernel.lengths),
        )
        return curves.collapsed_bound(0.81 * K_mm, 0.81 * K_nm, 0.81, 0.09, y - kernel.mean)

    assert bound(np.arange(60)) == pytest.approx(mll, abs=1e-5)
    assert bound(np.arange(10)) < bound(np.arange(30)) < mll


def test_maximum_of_a_curve_is_found_between_its_points():
    found = curves.curve(lambda v: -((np.log(v) - 0.3) ** 2), np.geomspace(0.1, 10, 9))
    assert found.largest_at == pytest.approx(np.exp(0.3), rel=1e-2)
    assert curves.curve(np.log, np.geomspace(0.1, 10, 9)).largest_at == 10.0  # the end of what was looked at


def test_classes_that_training_never_saw_count_as_errors_only():
    p = np.array([[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]])
    scores = score(Prediction.classes(p), np.array([0, 0, 2]), np.array([0, 1, 1]))
    assert scores["nll"] == pytest.approx(-np.log([0.8, 0.3]).mean())
    assert scores["error"] == pytest.approx(2 / 3)


def test_scores_of_numbers():
    y = np.array([0.0, 1.0, 5.0])
    scores = score(Prediction.normal(np.zeros(3), np.ones(3)), y, y)
    assert scores["rmse"] == pytest.approx(np.sqrt(26 / 3))
    assert scores["nll"] == pytest.approx(-norm.logpdf(y).mean())
    assert scores["coverage_90"] == pytest.approx(2 / 3)


def test_our_regression_agrees_with_nested_factors_at_its_own_k(smooth):
    """The public attributes are enough to predict for every k."""
    X, y, _ = smooth
    method = OURS["loo-k"].build(Settings(options={"k": 12, "max_steps": 50}))
    method.fit(X, y, X[:0], y[:0], seed=0)
    mean, variance = k_dependence.predict_every_k(method, X, y, X[:7] + 0.03, 20)
    dist = method.predict(X[:7] + 0.03).dist
    np.testing.assert_allclose(mean[:, 11], dist.mean(), rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(variance[:, 11]), dist.std(), rtol=1e-5)


class Mean:
    """Predicts the mean of the targets, with their standard deviation."""

    def __init__(self):
        self.chosen = {}

    def fit(self, X, y, X_val, y_val, *, seed=0, deadline=None):
        self.mean, self.std = y.mean(0), y.std(0)
        self.chosen = {"shape": y.shape}

    def predict(self, X, *, deadline=None):
        return Prediction.normal(*(np.broadcast_to(part, (len(X), *part.shape)) for part in (self.mean, self.std)))


@pytest.fixture
def means(monkeypatch):
    """Two methods of the registry that predict the mean: one fits all outputs together, the other does not."""
    asked = []

    def build(settings):
        asked.append((settings.task, settings.outputs))
        return Mean()

    for name, kind in (("together", {"regression", "multivariate"}), ("apart", {"regression"})):
        monkeypatch.setitem(ALL_METHODS, name, Method(name, frozenset(kind), build))
    return asked


def test_outputs_are_fitted_together_or_one_by_one_and_their_scores_averaged(means):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2)), rng.normal(size=(50, 3)) * [1, 2, 3]
    split = Split(X, y, X[:0], y[:0], X, y)
    together, apart = (fit_and_score_outputs(fakes.task(name), split) for name in ("together", "apart"))
    assert means == [("multivariate", 3)] + 3 * [("regression", 1)]
    assert together["chosen"] == {"shape": (50, 3)}
    assert apart["chosen"] == {"outputs": 3 * [{"shape": (50,)}]}
    for payload in (together, apart):
        assert payload["metrics"]["rmse"] == pytest.approx(y.std(0).mean())
        assert payload["rows"]["outputs"] == 3
    expected = np.mean([-norm.logpdf(y[:, j], y[:, j].mean(), y[:, j].std()).mean() for j in range(3)])
    assert together["metrics"]["nll"] == pytest.approx(expected)
    assert together["metrics"] == pytest.approx(apart["metrics"])


def test_a_single_column_of_targets_is_plain_regression(means):
    X, y = np.zeros((20, 2)), np.arange(20.0)[:, None]
    payload = fit_and_score_outputs(fakes.task("together"), Split(X, y, X, y, X, y))
    assert means == [("regression", 1)]
    assert payload["chosen"] == {"outputs": [{"shape": (20,)}]}


def test_a_quick_run_has_a_few_of_the_outputs(means, monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "robot.npz", X=rng.normal(size=(40, 2)), y=rng.normal(size=(40, 5)))
    for quick, outputs in ((True, tables.QUICK_OUTPUTS), (False, 5)):
        payload = tables.run_outputs(fakes.task("together", "robot", experiment="multivariate", quick=quick))
        assert payload["rows"] == {"train": 30, "validation": 6, "test": 4, "columns": 2, "outputs": outputs}


@pytest.mark.parametrize("name", ["loo-k", "loo-k-calibrated", "loo-k-independent"])
def test_our_methods_fit_all_outputs_with_one_model(smooth, name):
    X, y, _ = smooth
    Y = np.stack([y, 2 * y + X[:, 0]], axis=1)
    options = {"k": 12, "max_steps": 50}
    method = OURS[name].build(Settings("multivariate", options=options, outputs=2))
    method.fit(X, Y, X[:0], Y[:0], seed=0)
    assert method.model.outputs == ("independent" if name == "loo-k-independent" else "lmc")
    assert (method.model.mixing_ is not None) == method.chosen["mixed"]
    assert method.chosen["left_out"]["nll"] == method.model.summary_.left_out["nll"]
    assert (method.model.predictive == "plain") == (name == "loo-k")
    X_new, Y_new = X + 0.03, Y + 0.1
    prediction = method.predict(X_new)
    assert prediction.mean.shape == (60, 2)
    scores = score(prediction, Y_new, Y)
    assert scores["nll"] == pytest.approx(-method.model.log_score(X_new, Y_new))
    error = Y_new - method.model.predict(X_new)
    assert scores["rmse"] == pytest.approx(np.sqrt((error**2).mean(0)).mean())
    low, high = method.model.predict_interval(X_new, 0.9)
    assert scores["coverage_90"] == pytest.approx(((low <= Y_new) & (Y_new <= high)).mean())


def test_what_stands_beside_the_papers_multivariate_columns_models_all_outputs():
    entries = EXPERIMENTS["multivariate"].entries
    assert {entry.paper for entry in entries} == {"LOO-k", "SVGP", "PPGPR", ""}
    for entry in entries:
        assert ("multivariate" in ALL_METHODS[entry.method].kind) == bool(entry.paper)


def test_misspecified_and_degenerate_data_reach_the_method(monkeypatch, tmp_path):
    seen = {}

    def remember(task, split):
        seen[task.data] = split
        return {}

    monkeypatch.setattr(tables, "fit_and_score", remember)
    monkeypatch.setattr(tables, "QUICK_PRIOR_ROWS", 40)
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "bike.npz", X=rng.normal(size=(100, 2)), y=rng.normal(size=100))
    entry = Entry("loo-k", "loo-k")
    for name in ("cubic-0", "cubic-4"):
        tables.run_misspecification(Task("misspecification", entry, name, 0, quick=True))
    for name in ("bike", "bike-twins"):
        tables.run_degenerate(Task("degenerate", entry, name, 0))
    assert seen["cubic-0"].rows() == {"train": 20, "validation": 0, "test": 20, "columns": 4}
    np.testing.assert_array_equal(seen["cubic-0"].y, seen["cubic-4"].y)
    assert not np.allclose(seen["cubic-0"].X, seen["cubic-4"].X)
    assert (len(seen["bike"].y), len(seen["bike-twins"].y)) == (75, 150)
    np.testing.assert_array_equal(seen["bike"].X_test, seen["bike-twins"].X_test)


@pytest.fixture
def tables_of_two(tmp_path, monkeypatch):
    """A data folder with a table that stands for Bike: 17 columns, the last two of which give the target away."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 17))
    np.savez(tmp_path / "bike.npz", X=X, y=X[:, 15] + X[:, 16] + np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=120))
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))


def quick_task(experiment, entry, data, **options):
    known = EXPERIMENTS[experiment].entry(entry)
    return Task(experiment, replace(known, options={**known.options, **options}), data, 0, quick=True, threads=1)


def test_curves_of_one_data_set(tables_of_two, monkeypatch):
    monkeypatch.setattr(curves, "SCALES", np.geomspace(1e-2, 1e2, 9))
    monkeypatch.setattr(curves, "NOISES", np.geomspace(1e-4, 1e1, 11))
    whole, leakless = (
        EXPERIMENTS["curves"].run(quick_task("curves", "objectives", name, evaluations=10))
        for name in ("bike", "bike-leakless")
    )
    assert (whole["rows"]["columns"], leakless["rows"]["columns"]) == (17, 15)
    assert list(whole["curves"]) == ["LOO-inf", "LOO-128", "MLL", "SVGP"]
    assert leakless["chosen"]["noise_std"] > whole["chosen"]["noise_std"]
    for payload in (whole, leakless):
        curve = payload["curves"]["MLL"]["noise_std"]
        assert curve["values"][0] < curve["largest_at"] < curve["values"][-1]
        assert curve["largest_at"] == pytest.approx(payload["chosen"]["noise_std"], rel=0.3)  # the MLL was trained


def test_data_of_another_kind_are_refused(tables_of_two):
    with pytest.raises(ValueError, match="bike has numbers: its file is not for binary"):
        EXPERIMENTS["binary"].run(quick_task("binary", "hist-boosting", "bike"))


def test_scores_for_each_k_from_one_fit(tables_of_two):
    payload = EXPERIMENTS["k_dependence"].run(quick_task("k_dependence", "loo-k", "bike", max_steps=50))
    assert list(payload["by_k"]) == [k for k in k_dependence.KS if k <= 90]
    assert payload["rows"]["test"] == 12
    assert payload["by_k"][64]["rmse"] < 1.0


def test_seconds_per_step_are_those_of_the_fit(monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    payload = EXPERIMENTS["runtime"].run(quick_task("runtime", "loo-32", "rows-300", max_steps=50))
    steps = payload["chosen"]["steps"]
    assert payload["metrics"]["seconds_per_step"] == pytest.approx(payload["seconds"]["fit"] / steps)
    assert payload["rows"] == {"train": 300, "columns": 25}
