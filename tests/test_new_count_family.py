"""A second family that the package does not have, in this one file: counts with zeros in excess.

p(y | f) = z 1[y = 0] + (1 - z) NB(y | f): with probability z nothing could be counted, else the count is negative
binomial. A row with a count above zero has the site of the negative binomial. Of a zero nobody knows which it is: given
f it is a count with probability w = (1 - z) NB(0 | f) / p(0 | f), so its site has a precision of w times that of a
count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import scipy.stats
from cli_runs import runner, short_training
from estimator_data import quick_counts, through_file
from scipy.special import expit

from nearfield import GPCountRegressor, ModelFileError
from nearfield.counts import CountDistribution, CountPredictive
from nearfield.families import FAMILIES, Observed, Parameter, Parameters, Score, Sites, SiteSlopes, register
from nearfield.families.counts import NegativeBinomial
from nearfield.metrics import CountScores

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")

_WIDEST = 1e6  # factor of a site's noise


class ZeroInflated(NegativeBinomial):
    """Counts of which a learned share cannot be but zero."""

    name = "zero_inflated"
    task = "zero-inflated"
    auxiliaries = ("curvature",)
    parameters = MappingProxyType({**NegativeBinomial.parameters, "logit_zeros": Parameter(-2.0, -8.0, 6.0)})

    def _widening(
        self, observed: Observed, state: np.ndarray, parameters: Parameters
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """1 / w (...), and its slopes by the log dispersion and by the log odds of z."""
        r = np.exp(parameters["log_dispersion"])
        psi = state[..., 0] + observed["log_exposure"] - parameters["log_dispersion"]
        more = np.exp(np.minimum(parameters["logit_zeros"] + r * np.logaddexp(0, psi), math.log(_WIDEST)))
        more = np.where(observed["count"] == 0, more, 0.0)
        free = more < 0.999 * _WIDEST
        return 1 + more, free * more * r * (np.logaddexp(0, psi) - expit(psi)), free * more

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        counted = super().sites(observed, state, parameters, scale2)
        return Sites(counted.targets, counted.noises * self._widening(observed, state, parameters)[0][..., None])

    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        factor, by_dispersion, by_zeros = (part[..., None] for part in self._widening(observed, state, parameters))
        found = super().site_slopes(observed, state, parameters, scale2, by_targets, by_noises * factor)
        by_factor = by_noises * super().sites(observed, state, parameters, scale2).noises
        own = {
            "log_dispersion": found.parameters["log_dispersion"] + np.sum(by_factor * by_dispersion),
            "logit_zeros": np.asarray(np.sum(by_factor * by_zeros)),
        }
        return SiteSlopes(own, found.log_scale)

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        dispersion = float(np.exp(parameters["log_dispersion"]))
        value, *slopes = self.log_mass(mean[:, 0], variance[:, 0], observed, dispersion, parameters)
        by_mean, by_variance, by_dispersion, by_zeros = slopes
        return Score(
            value, by_mean[:, None], by_variance[:, None], {"log_dispersion": by_dispersion, "logit_zeros": by_zeros}
        )

    def log_mass(
        self,
        mean: np.ndarray,
        variance: np.ndarray,
        observed: Observed,
        dispersion: float | None,
        parameters: Parameters,
    ) -> tuple[np.ndarray, ...]:
        """As of counts, and the slope by the log odds of z behind the others."""
        log_p, *slopes = super().log_mass(mean, variance, observed, dispersion, parameters)
        zeros = expit(parameters["logit_zeros"])
        counted = np.log1p(-zeros) + log_p
        value = np.where(observed["count"] == 0, np.logaddexp(np.log(zeros), counted), counted)
        share = np.exp(counted - value)  # w, but with f integrated out
        return value, *(share * slope for slope in slopes), 1 - share - zeros

    def distribution(self, predicted: Any, head: Any, observed: Observed, parameters: Parameters) -> ZeroInflatedCounts:
        counted = super().distribution(predicted, head, observed, parameters)
        return ZeroInflatedCounts(counted, float(expit(parameters["logit_zeros"])))

    def learned_values(
        self, parameters: Parameters, scale2: np.ndarray, head: Any, unit: np.ndarray
    ) -> dict[str, float | np.ndarray]:
        return {
            **super().learned_values(parameters, scale2, head, unit),
            "zeros": float(expit(parameters["logit_zeros"])),
        }

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        """That of the zeros which the counts above zero do not explain."""
        some = y > 0
        counted = super().baseline(y[some], {name: values[some] for name, values in given.items()}, weight[some])
        explained = np.exp(super().baseline_distribution(counted, y.size, given).logpmf(np.zeros(y.size))).mean()
        return {**counted, "zeros": float(np.clip(((~some).mean() - explained) / (1 - explained), 0.001, 0.999))}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        return ZeroInflatedCounts(super().baseline_distribution(numbers, n, given), numbers["zeros"])


class ZeroInflatedCounts:
    """Predictive distributions: zero with probability z, else those of counts (n,)."""

    def __init__(self, counted: CountDistribution, zeros: float) -> None:
        self.counted, self.zeros = counted, zeros

    def __len__(self) -> int:
        return len(self.counted)

    def logpmf(self, y):
        log_p = np.log1p(-self.zeros) + self.counted.logpmf(y)
        return np.where(np.asarray(y) == 0, np.logaddexp(np.log(self.zeros), log_p), log_p)

    def cdf(self, x):
        return np.where(np.asarray(x) >= 0, self.zeros + (1 - self.zeros) * self.counted.cdf(x), 0.0)

    def ppf(self, q):
        left = np.clip((np.asarray(q) - self.zeros) / (1 - self.zeros), 0.0, 1.0)
        return np.maximum(self.counted.ppf(left), 0.0)

    def interval(self, confidence):
        return self.ppf((1 - confidence) / 2), self.ppf((1 + confidence) / 2)

    def mean(self):
        return (1 - self.zeros) * self.counted.mean()

    def std(self):
        mean = self.counted.mean()
        return np.sqrt((1 - self.zeros) * (self.counted.std() ** 2 + self.zeros * mean**2))

    def crps_rows(self, y):
        """The sum over x of (F - 1[x >= y])^2, with F = z + (1 - z) G: only below y does z enter beside G."""
        y, z = np.asarray(y, dtype=np.float64), self.zeros
        below = sum(np.where(x < y, self.counted.cdf(x), 0.0) for x in range(int(y.max())))
        return (1 - z) ** 2 * self.counted.crps_rows(y) + z * z * y + 2 * z * (1 - z) * below


class SecondOfCounts(ZeroInflated):
    """The same as another likelihood of the task that negative binomial counts have."""

    name = "second_of_counts"
    task = NegativeBinomial.task


@pytest.fixture(autouse=True)
def _registered():
    register(ZeroInflated)
    yield
    del FAMILIES[ZeroInflated.name]


def counted(n, seed=0, exposure=1.0):
    """Inputs (n, 2), counts (n,) of which three tenths are zero whatever the rate, and the expected counts (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    rate = np.exp(1.5 + np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]) * exposure
    y = rng.negative_binomial(5, 5 / (5 + rate)) * (rng.random(n) < 0.7)
    return X, y.astype(float), 0.7 * rate


@pytest.fixture(scope="module")
def fitted():
    register(ZeroInflated)
    X, y, _ = counted(500)
    model = GPCountRegressor(likelihood="zero_inflated", max_steps=150, random_state=0).fit(X, y)
    del FAMILIES[ZeroInflated.name]
    return model


# --- its own formulas -----------------------------------------------------------------------------------------------

P = {"log_dispersion": np.array(0.7), "logit_zeros": np.array(-0.6)}


def observed_at(count):
    rng = np.random.default_rng(1)
    count = np.asarray(count, dtype=float)
    return {
        "count": count,
        "weight": np.ones(count.shape),
        "log_exposure": 0.3 * rng.standard_normal(count.shape),
    }


def test_the_score_equals_a_mixture_integrated_by_brute_force():
    observed, r, z = observed_at([0, 0, 1, 4, 30]), math.exp(0.7), 1 / (1 + math.exp(0.6))
    mean, variance = np.array([-1.0, 2.0, 0.5, 1.0, 3.0]), np.array([0.5, 2.0, 1e-3, 0.3, 1.0])
    found = ZeroInflated().score(observed, mean[:, None], variance[:, None], P).value
    for row in range(5):
        std, y = math.sqrt(variance[row]), observed["count"][row]
        f = np.linspace(mean[row] - 12 * std, mean[row] + 12 * std, 200_001)
        mu = np.exp(f + observed["log_exposure"][row])
        mass = z * (y == 0) + (1 - z) * scipy.stats.nbinom(r, r / (r + mu)).pmf(y)
        expected = math.log(np.trapezoid(mass * scipy.stats.norm(mean[row], std).pdf(f), f))
        assert found[row] == pytest.approx(expected, abs=1e-8)


def test_slopes_equal_finite_differences():
    family, rng, h = ZeroInflated(), np.random.default_rng(0), 1e-5
    observed = observed_at([0, 0, 0, 1, 5, 20])
    mean, variance = rng.standard_normal((6, 1)), rng.uniform(0.05, 2, (6, 1))
    found = family.score(observed, mean, variance, P)

    def slope(function):
        return (function(h) - function(-h)) / (2 * h)

    def moved(name, by):
        return {**P, name: P[name] + by}

    numeric = slope(lambda by: family.score(observed, mean + by, variance, P).value)
    np.testing.assert_allclose(found.by_mean[:, 0], numeric, atol=1e-7)
    numeric = slope(lambda by: family.score(observed, mean, variance + by, P).value)
    np.testing.assert_allclose(found.by_variance[:, 0], numeric, atol=1e-7)
    for name in P:
        numeric = slope(lambda by, name=name: family.score(observed, mean, variance, moved(name, by)).value)
        np.testing.assert_allclose(found.by_parameters[name], numeric, atol=1e-7)

    near = {name: values[:, None] for name, values in observed.items()}
    state, scale2 = rng.standard_normal((6, 1, 1)), np.array([1.3])
    by_targets, by_noises = rng.standard_normal((2, 6, 1, 1))

    def total(parameters=P, factor=1.0):
        sites = family.sites(near, state, parameters, scale2 * factor)
        return float(np.sum(by_targets * sites.targets) + np.sum(by_noises * sites.noises))

    ours = family.site_slopes(near, state, P, scale2, by_targets, by_noises)
    for name in P:
        numeric = slope(lambda by, name=name: total(moved(name, by)))
        assert float(ours.parameters[name]) == pytest.approx(numeric, rel=1e-6, abs=1e-7)
    assert ours.log_scale[0] == pytest.approx(slope(lambda by: total(factor=math.exp(2 * by))), rel=1e-6)


def test_its_predictive_equals_sums_over_its_probabilities():
    dist = ZeroInflatedCounts(CountDistribution.negative_binomial([-0.5, 0.4, 1.0], [0.1, 0.5, 0.0], 2.0), 0.3)
    assert isinstance(dist, CountPredictive)
    x = np.arange(3000.0)
    p = np.exp(dist.logpmf(x[:, None]))
    np.testing.assert_allclose(p.sum(axis=0), 1, atol=1e-8)
    np.testing.assert_allclose(x @ p, dist.mean(), rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(x**2 @ p - (x @ p) ** 2), dist.std(), rtol=1e-5)
    cdf = p.cumsum(axis=0)
    np.testing.assert_allclose(dist.cdf(x[:50, None]), cdf[:50], atol=1e-9)
    for q in (0.05, 0.5, 0.9):
        np.testing.assert_array_equal(dist.ppf(q), (cdf >= q).argmax(axis=0))
    y = np.array([0.0, 3.0, 7.0])
    np.testing.assert_allclose(dist.crps_rows(y), ((cdf - (x[:, None] >= y)) ** 2).sum(axis=0), rtol=1e-4)


def test_without_zeros_in_excess_it_is_negative_binomial():
    observed, few = observed_at([0, 2, 9]), {**P, "logit_zeros": np.array(-40.0)}
    mean, variance = np.array([[0.1], [0.5], [2.0]]), np.full((3, 1), 0.4)
    for a, b in zip(
        ZeroInflated().score(observed, mean, variance, few)[:3],
        NegativeBinomial().score(observed, mean, variance, P)[:3],
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=1e-12)
    state, scale2 = mean.copy(), np.ones(1)
    ours, theirs = (f().sites(observed, state, few, scale2) for f in (ZeroInflated, NegativeBinomial))
    np.testing.assert_allclose(ours.noises, theirs.noises, rtol=1e-12)


# --- through the whole package --------------------------------------------------------------------------------------


def test_it_is_trained_and_calibrated(fitted):
    X_new, y_new, mean = counted(500, seed=1)
    assert fitted.zeros_ == pytest.approx(0.3, abs=0.1)
    assert fitted.dispersion_ > 1
    assert np.mean(np.abs(np.log(fitted.predict(X_new) / mean))) < 0.3
    low, high = fitted.predict_interval(X_new)
    assert np.mean((low <= y_new) & (y_new <= high)) > 0.86
    assert "zero inflated likelihood" in str(fitted.summary_)
    scores = CountScores.of(y_new, fitted.predict_dist(X_new)).as_dict()
    assert scores["nll"] == pytest.approx(-fitted.log_score(X_new, y_new), abs=1e-9)
    assert fitted.summary_.left_out["nll"] == pytest.approx(scores["nll"], abs=0.2)
    X, y, _ = counted(500)
    plain = GPCountRegressor(max_steps=150, random_state=0).fit(X, y)
    assert scores["nll"] < -plain.log_score(X_new, y_new)  # its data have zeros in excess
    with pytest.raises(ValueError, match="auxiliary is 'conjugate': expected one of 'curvature'"):
        quick_counts(likelihood="zero_inflated", auxiliary="conjugate").fit(X, y)


def test_it_is_saved_loaded_and_updated(fitted, tmp_path):
    X_new, y_new, _ = counted(40, seed=1)
    again = through_file(fitted, tmp_path)
    assert again.likelihood == "zero_inflated"
    assert again.zeros_ == fitted.zeros_
    for a, b in zip(fitted.predict(X_new, return_std=True), again.predict(X_new, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(fitted.loo_.residual, again.loo_.residual)
    np.testing.assert_array_equal(
        fitted.predict_quantiles(X_new, [0.1, 0.9]), again.predict_quantiles(X_new, [0.1, 0.9])
    )
    again.update(X_new, y_new, exposure=np.full(40, 2.0))
    assert again.n_rows_ == 540
    assert np.isfinite(again.loo_.residual).all()
    del FAMILIES["zero_inflated"]
    with pytest.raises(ModelFileError, match="Register it before loading"):
        GPCountRegressor.load(tmp_path / "model.nearfield")
    register(ZeroInflated)


def test_it_takes_weights_an_exposure_a_linear_mean_and_a_checkpoint(tmp_path):
    exposure = np.random.default_rng(2).uniform(0.5, 2, 120)
    X, y, _ = counted(120, exposure=exposure)
    own = {"likelihood": "zero_inflated", "mean": "linear", "checkpoint": tmp_path / "checkpoint"}
    model = quick_counts(**own).fit(X, y, sample_weight=np.arange(120) % 3, exposure=exposure)
    assert model.n_rows_ == 80
    twice = model.predict(X[:9], exposure=2.0)
    np.testing.assert_allclose(twice, 2 * model.predict(X[:9], exposure=1.0), rtol=1e-9)
    assert not (tmp_path / "checkpoint").exists()
    plain = quick_counts(likelihood="zero_inflated", predictive="plain").fit(X, y)
    assert plain.dispersion_ == pytest.approx(float(np.exp(plain._fit.predictor.model.parameters["log_dispersion"])))


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    X, y, _ = counted(150)
    lines = [f"{a!r},{b!r},{int(count)}" for (a, b), count in zip(X.tolist(), y, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["a,b,y", *lines]) + "\n")
    return path


@pytest.mark.parametrize("asked", [["--task", "zero-inflated"], ["--likelihood", "zero_inflated"]])
def test_the_command_line_knows_it_by_its_task_and_by_its_name(asked, table, tmp_path, capsys):
    run, path, out = runner(capsys), tmp_path / "model.nearfield", tmp_path / "predictions.csv"
    with short_training():
        done = run("fit", table, "--target", "y", *asked, "--out", path)
    assert done.code == 0, done
    loaded = GPCountRegressor.load(path)
    described = json.loads(run("info", path, "--json").out)
    assert described["task"] == "zero-inflated"
    assert described["likelihood"] == "zero_inflated"
    assert described["zeros"] == loaded.zeros_
    assert f"{loaded.zeros_:.6g}" in run("info", path).out
    assert run("predict", path, table, "--out", out).code == 0
    X, y, _ = counted(150)
    predicted = np.genfromtxt(out, delimiter=",", names=True)
    np.testing.assert_allclose(predicted["mean"], loaded.predict(X), rtol=1e-9)
    np.testing.assert_array_equal(predicted["upper"], loaded.predict_interval(X)[1])
    scored = json.loads(run("evaluate", path, table, "--json").out)
    expected = CountScores.of(y, loaded.predict_dist(X)).as_dict()
    assert scored["model"]["nll"] == pytest.approx(expected["nll"], rel=1e-6)
    constant = ZeroInflated().baseline_distribution(ZeroInflated().baseline(y, {}, np.ones(150)), 150, {})
    assert scored["constant"]["nll"] == pytest.approx(CountScores.of(y, constant).as_dict()["nll"], rel=1e-6)
    assert scored["model"]["nll"] < scored["constant"]["nll"]


def test_a_model_from_python_is_described_predicted_and_evaluated(table, tmp_path, capsys):
    run, path = runner(capsys), tmp_path / "model.nearfield"
    X, y, _ = counted(150)
    model = quick_counts(likelihood="zero_inflated").fit(X, y)
    model.save(path)
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(table.read_text().replace("a,b,y", "x0,x1,y", 1))
    assert json.loads(run("info", path, "--json").out)["zeros"] == model.zeros_
    assert run("predict", path, renamed, "--out", tmp_path / "out.csv").code == 0
    scored = json.loads(run("evaluate", path, renamed, "--json").out)
    assert scored["model"]["nll"] == pytest.approx(-model.log_score(X, y), rel=1e-6)


def test_a_second_likelihood_of_a_task_is_fitted_by_name(table, tmp_path, capsys):
    run, path = runner(capsys), tmp_path / "model.nearfield"
    register(SecondOfCounts)
    try:
        with short_training():
            done = run("fit", table, "--target", "y", "--likelihood", "second_of_counts", "--out", path)
            assert done.code == 0, done
            assert json.loads(run("info", path, "--json").out)["zeros"] > 0
            scored = json.loads(run("evaluate", path, table, "--json").out)
            assert scored["model"]["nll"] < scored["constant"]["nll"]
            done = run("fit", table, "--target", "y", "--task", "counts", "--out", path)
            assert done.code == 0, done
            assert json.loads(run("info", path, "--json").out)["likelihood"] == "negative_binomial"
    finally:
        del FAMILIES[SecondOfCounts.name]
