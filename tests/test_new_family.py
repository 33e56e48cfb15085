"""The house is open: a family that the package does not have, in this one file, goes through everything.

Laplace noise, p(y | f) = exp(-|y - f| / b) / (2 b), a scale mixture of normals. Since |r| <= r^2 / (2 e) + e / 2, with
equality at e = |r|, the best Gaussian site for a row whose latent function is known up to its moments has the variance
b e with e^2 = E (y - f)^2: the site state is e. `log_noise` is of the variance of the noise, 2 b^2.
"""

from __future__ import annotations

import json
import math
from types import MappingProxyType

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from cli_runs import runner, short_training
from estimator_data import quick, through_file
from scipy.special import erfcx, log_ndtr

from nearfield import GPRegressor, ModelFileError
from nearfield.families import (
    FAMILIES,
    NOISE_FLOOR,
    Observed,
    Parameter,
    Parameters,
    Score,
    Sites,
    SiteSlopes,
    register,
)
from nearfield.families.gaussian import Noisy
from nearfield.metrics import Scores

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

_LEAST = 1e-6  # of the site state


class Laplace(Noisy):
    """y = f + Laplace noise of learned variance. Noise that is known beside it is Gaussian."""

    name = "laplace"
    patient = True
    state_size = 1
    parameters = MappingProxyType({"log_noise": Parameter(math.log(0.1), math.log(1e-6), math.log(10.0))})

    def initial_state(self, observed: Observed) -> np.ndarray:
        """As if f were zero everywhere."""
        return np.maximum(np.abs(observed["y"]), _LEAST)[:, None]

    def check_state(self, state: np.ndarray) -> None:
        if not (state > 0).all():
            raise ValueError("expected sizes of residuals, which are above zero")

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        wide = _scale(parameters) * state[..., 0] + observed["known_noise"]
        return Sites(observed["y"][..., None], ((wide / scale2 + NOISE_FLOOR) / observed["weight"])[..., None])

    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        by_variance = by_noises[..., 0] / (observed["weight"] * scale2)
        wide = _scale(parameters) * state[..., 0]
        by_scale = -2 * np.sum(by_variance * (wide + observed["known_noise"]))
        return SiteSlopes({"log_noise": np.asarray(0.5 * np.sum(by_variance * wide))}, np.array([by_scale]))

    def updated_state(
        self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters
    ) -> np.ndarray:
        return np.maximum(np.sqrt((observed["y"][:, None] - mean) ** 2 + variance), _LEAST)

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        """log of the Laplace density convolved with N(0, v), p = (E+ + E-) / (2 b), where with z = r / sqrt(v)

            E+- = exp(v / (2 b^2) -+ r / b) Phi(+- z - sqrt(v) / b)

        Since b^2 L'' = L - delta for the density L, b^2 p'' = p - N(r; 0, v), and dp/dv = p'' / 2 by the heat equation.
        """
        r, b = observed["y"] - mean[:, 0], _scale(parameters)
        v = np.maximum(variance[:, 0] + observed["known_noise"], 1e-12)
        left, right = _log_part(r, v, b), _log_part(-r, v, b)
        together = np.logaddexp(left, right)
        pull = np.exp(left - together) - np.exp(right - together)  # between -1 and 1
        value = together - math.log(2) - np.log(b)
        excess = 1 - np.exp(-0.5 * (r * r / v + np.log(2 * math.pi * v)) - value)  # 1 - N(r; 0, v) / p
        by_variance = excess / (2 * b * b)
        by_log_scale = -1 - 2 * v * by_variance + r / b * pull
        slopes = {"log_noise": 0.5 * by_log_scale}
        return Score(value, (pull / b)[:, None], by_variance[:, None], slopes)


def _scale(parameters: Parameters) -> np.ndarray:
    """b."""
    return np.exp(0.5 * parameters["log_noise"]) / math.sqrt(2)


def _log_part(r: np.ndarray, v: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log E+, such that neither large variances nor large residuals cancel."""
    a = (v / b - r) / np.sqrt(2 * v)
    near = -0.5 * r * r / v + np.log(0.5 * erfcx(np.maximum(a, 0.0)))
    far = 0.5 * v / (b * b) - r / b + log_ndtr(-math.sqrt(2) * a)
    return np.where(a > 0, near, far)


@pytest.fixture(autouse=True)
def _registered():
    register(Laplace)
    yield
    del FAMILIES[Laplace.name]


def noisy(n, seed=0):
    """Inputs (n, 2), targets (n,) with Laplace noise of standard deviation 0.42, and the function behind them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    return X, f + rng.laplace(0, 0.3, n), f


@pytest.fixture(scope="module")
def fitted():
    register(Laplace)
    X, y, _ = noisy(400)
    model = GPRegressor(likelihood="laplace", max_steps=100, random_state=0).fit(X, y)
    del FAMILIES[Laplace.name]
    return model


# --- its own formulas -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [0.0, 0.1, -0.7, 3.0, -30.0])
@pytest.mark.parametrize("variance", [1e-4, 0.3, 40.0])
def test_the_score_equals_quadrature(residual, variance):
    p, known = {"log_noise": np.array(math.log(0.08))}, 0.02
    observed = {"y": np.array([1.0 + residual]), "weight": np.ones(1), "known_noise": np.array([known])}
    ours = Laplace().score(observed, np.array([[1.0]]), np.array([[variance]]), p).value[0]
    std, scale = math.sqrt(variance + known), float(_scale(p))
    top = max(-abs(residual) / scale, -0.5 * (residual / std) ** 2)

    def integrand(z):
        return math.exp(scipy.stats.laplace.logpdf(residual, std * z, scale) - z * z / 2 - top)

    marks = sorted({0.0, residual / std, residual / std - std / scale, residual / std + std / scale})
    inner = [mark for mark in marks if abs(mark) < 40]
    total, _ = scipy.integrate.quad(integrand, -40, 40, points=inner, limit=500)
    assert ours == pytest.approx(math.log(total) + top - 0.5 * math.log(2 * math.pi), abs=1e-6)


def test_slopes_equal_finite_differences():
    rng = np.random.default_rng(0)
    p = {"log_noise": np.array(-2.0)}
    observed = Laplace().observe(rng.standard_normal(9), np.ones(9), noise_variance=np.full(9, 0.01))
    mean, variance = rng.standard_normal((9, 1)), rng.uniform(0.05, 2, (9, 1))
    state, scale2, h = rng.uniform(0.1, 2, (9, 1, 1)), np.array([1.3]), 1e-5
    found = Laplace().score(observed, mean, variance, p)

    def value(mean=mean, variance=variance, log_noise=-2.0):
        return Laplace().score(observed, mean, variance, {"log_noise": np.array(log_noise)}).value

    numeric = (value(mean=mean + h) - value(mean=mean - h)) / (2 * h)
    np.testing.assert_allclose(found.by_mean[:, 0], numeric, atol=1e-7)
    numeric = (value(variance=variance + h) - value(variance=variance - h)) / (2 * h)
    np.testing.assert_allclose(found.by_variance[:, 0], numeric, atol=1e-7)
    numeric = (value(log_noise=-2 + h) - value(log_noise=-2 - h)) / (2 * h)
    np.testing.assert_allclose(found.by_parameters["log_noise"], numeric, atol=1e-7)

    near = {name: values[:, None] for name, values in observed.items()}
    by = rng.standard_normal((9, 1, 1))

    def total(log_noise=-2.0, factor=1.0):
        sites = Laplace().sites(near, state, {"log_noise": np.array(log_noise)}, scale2 * factor)
        return float(np.sum(by * sites.noises))

    ours = Laplace().site_slopes(near, state, p, scale2, np.zeros_like(by), by)
    numeric = (total(log_noise=-2 + h) - total(log_noise=-2 - h)) / (2 * h)
    assert float(ours.parameters["log_noise"]) == pytest.approx(numeric, abs=1e-8)
    numeric = (total(factor=math.exp(2 * h)) - total(factor=math.exp(-2 * h))) / (2 * h)
    assert ours.log_scale[0] == pytest.approx(numeric, abs=1e-8)


# --- through the whole package --------------------------------------------------------------------------------------


def test_it_is_trained_and_calibrated(fitted):
    X_new, y_new, f_new = noisy(500, seed=1)
    assert np.sqrt(np.mean((fitted.predict(X_new) - f_new) ** 2)) < 0.2
    assert fitted.noise_std_ == pytest.approx(0.3 * math.sqrt(2), rel=0.3)
    low, high = fitted.predict_interval(X_new)
    assert np.mean((low <= y_new) & (y_new <= high)) == pytest.approx(0.9, abs=0.05)
    assert "laplace likelihood" in str(fitted.summary_)
    scores = Scores.of(y_new, fitted.predict_dist(X_new)).as_dict()
    assert scores["nll"] == pytest.approx(-fitted.log_score(X_new, y_new), abs=1e-9)
    assert fitted.summary_.left_out["nll"] == pytest.approx(scores["nll"], abs=0.15)


def test_it_is_no_worse_than_gaussian_noise_on_data_with_laplace_noise(fitted):
    X, y, _ = noisy(400)
    gaussian = GPRegressor(max_steps=100, random_state=0).fit(X, y)  # 0.484, and Laplace 0.444
    assert fitted.summary_.left_out["nll"] < gaussian.summary_.left_out["nll"] + 0.03


def test_it_is_saved_and_loaded_and_needs_to_be_known(fitted, tmp_path):
    X_new, _, _ = noisy(20, seed=1)
    again = through_file(fitted, tmp_path)
    assert again.likelihood == "laplace"
    for a, b in zip(fitted.predict(X_new, return_std=True), again.predict(X_new, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(fitted.loo_.residual, again.loo_.residual)
    del FAMILIES["laplace"]
    with pytest.raises(ModelFileError, match="Register it before loading"):
        GPRegressor.load(tmp_path / "model.nearfield")
    with pytest.raises(ValueError, match="likelihood is 'laplace'"):
        quick(likelihood="laplace").fit(X_new, X_new[:, 0])
    register(Laplace)


def test_it_takes_more_rows_weights_known_noise_and_a_checkpoint(tmp_path):
    X, y, _ = noisy(150)
    model = quick(likelihood="laplace").fit(
        X[:100], y[:100], sample_weight=np.arange(100) % 3, noise_variance=np.full(100, 0.01)
    )
    assert model.n_rows_ == 66
    before = model._fit.predictor.rows.state.copy()
    model.update(X[100:], y[100:])
    state = model._fit.predictor.rows.state
    np.testing.assert_array_equal(state[: len(before)], before)
    assert len(state) == len(before) + 50
    assert model.n_rows_ == 116
    assert np.isfinite(model.loo_.residual).all()
    linear = quick(likelihood="laplace", mean="linear", checkpoint=tmp_path / "checkpoint").fit(X, y)
    assert linear.mean_slopes_.shape == (2,)
    assert not (tmp_path / "checkpoint").exists()


def test_the_command_line_knows_it(tmp_path, capsys):
    run = runner(capsys)
    X, y, _ = noisy(150)
    table, model, out = tmp_path / "rows.csv", tmp_path / "model.nearfield", tmp_path / "predictions.csv"
    lines = [",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    table.write_text("\n".join(["a,b,y", *lines]) + "\n")
    with short_training():
        done = run("fit", table, "--target", "y", "--likelihood", "laplace", "--out", model)
    assert done.code == 0, done
    described = json.loads(run("info", model, "--json").out)
    assert described["likelihood"] == "laplace"
    assert described["noise_std"] > 0
    assert "laplace" in run("info", model).out
    assert run("predict", model, table, "--out", out).code == 0
    loaded = GPRegressor.load(model)
    predicted = np.genfromtxt(out, delimiter=",", names=True)
    np.testing.assert_allclose(predicted["mean"], loaded.predict(X), rtol=1e-9)
    scored = json.loads(run("evaluate", model, table, "--json").out)
    expected = Scores.of(y, loaded.predict_dist(X)).as_dict()
    assert scored["model"]["nll"] == pytest.approx(expected["nll"], rel=1e-6)
    assert scored["model"]["nll"] < scored["constant"]["nll"]
