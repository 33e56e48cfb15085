"""Counts: binomial and negative binomial (app. "Other likelihoods" of the paper).

Both have the form e^(a psi) / (1 + e^psi)^b up to a constant, with psi = f + offset:

    binomial             a = successes    b = trials               psi = f
    negative binomial    a = count        b = count + dispersion   psi = f + log exposure - log dispersion

so that exp(f) is the expected count per unit of exposure. Two kinds of Gaussian sites for f:

    curvature    precision W = b s (1 - s), target m + (a - b s) / W, with s = sigmoid(psi) at the mean m of f given all
                 rows: the second derivative of the log likelihood there.
    conjugate    the paper's Polya-Gamma augmentation: precision b E[omega], omega ~ PG(1, c), c^2 = E[psi^2], target
                 (a - b/2) / (b E[omega]) - offset. Its precision is a bound that is far too large where s is near 0 or
                 1, as it is for counts much larger than the dispersion (10^4 times for counts of 10^6): such sites only
                 repeat what they were before, and noise is taken for signal.

The site state of a row is m, or c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, expit, gammaln

from nearfield import marginals
from nearfield.counts import CountDistribution
from nearfield.families._base import (
    Calibrator,
    Family,
    Given,
    Observations,
    Observed,
    Parameter,
    Parameters,
    Score,
    Sites,
    SiteSlopes,
)
from nearfield.heads.counts import CountCalibrator, CountHead, Latent, LeftOutCounts
from nearfield.metrics import CountScores
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require
from nearfield.polya_gamma import mean_weight

SITES = ("curvature", "conjugate")
_LEAST_PRECISION = 1e-6  # of a site
_LONGEST_STEP = 4.0  # of a precise target from the mean: Newton's may go astray far from the mode
_LEAST_VARIANCE = 1e-12  # of the latent function, when it is integrated out


class _Shape(NamedTuple):
    """a, b and the offset of each row, and what b gains when the log dispersion grows (the offset then loses one)."""

    a: np.ndarray
    b: np.ndarray
    offset: np.ndarray
    b_slope: float


class Counts(Family):
    """What both counts have in common; `_shape` and the constant of the density are all that differs."""

    estimator = "GPCountRegressor"
    kind = "count"
    repeats = True
    auxiliaries = SITES
    patient = True
    scale_spread = 2.0  # far from all rows the expected count is exp(scale^2 / 2) times the usual one
    state_size = 1
    scores = CountScores
    dispersed = False
    """whether it has a dispersion"""

    def __init__(self, auxiliary: str = "curvature") -> None:
        self.auxiliary = auxiliary

    def _shape(self, observed: Observed, dispersion: float | None) -> _Shape:
        raise NotImplementedError

    def _constant(self, observed: Observed, dispersion: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Logarithm of the constant of the density, and its slope by the log dispersion."""
        raise NotImplementedError

    def dispersion(self, parameters: Parameters) -> float | None:
        """The dispersion, where the family has one."""
        return float(np.exp(parameters["log_dispersion"])) if self.dispersed else None

    def initial_state(self, observed: Observed) -> np.ndarray:
        """From each row alone: its own log odds, half a count on either side."""
        a, b, offset, _ = self._shape(observed, 1.0 if self.dispersed else None)
        psi = np.log((a + 0.5) / (b - a + 0.5))
        return np.asarray(psi - offset if self.auxiliary == "curvature" else np.abs(psi))[:, None]

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        targets, noises, _, _ = self._sites(observed, state[..., 0], parameters)
        return Sites(targets[..., None], (noises / observed["weight"] / scale2)[..., None])

    def _sites(
        self, observed: Observed, state: np.ndarray, parameters: Parameters
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Targets and noise variances of one copy of each row, and their slopes by the log dispersion, (...) each."""
        a, b, offset, gain = self._shape(observed, self.dispersion(parameters))
        if self.auxiliary == "conjugate":
            noises = 1 / (b * mean_weight(state))
            by_noises = -noises * gain / b
            slope = (a - b / 2) * by_noises - gain / 2 * noises + (1.0 if self.dispersed else 0.0)
            return (a - b / 2) * noises - offset, noises, slope, by_noises
        share = expit(state + offset)
        spread = share * (1 - share)
        share_slope = -spread if self.dispersed else 0.0 * spread  # psi loses one
        precision, excess = b * spread, a - b * share
        noises = 1 / np.maximum(precision, _LEAST_PRECISION)
        precision_slope = gain * spread + b * (1 - 2 * share) * share_slope
        by_noises = np.where(precision > _LEAST_PRECISION, -(noises**2) * precision_slope, 0.0)
        longest, step = _LONGEST_STEP + noises, excess * noises
        by_step = (-gain * share - b * share_slope) * noises + excess * by_noises
        cut = np.abs(step) > longest
        by_step = np.where(cut, np.sign(step) * by_noises, by_step)
        return state + np.clip(step, -longest, longest), noises, by_step, by_noises

    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        _, noises, target_slope, noise_slope = self._sites(observed, state[..., 0], parameters)
        by_variance = by_noises[..., 0] / (observed["weight"] * scale2)
        by_scale = np.array([-2 * np.sum(by_variance * noises)])
        if not self.dispersed:
            return SiteSlopes({}, by_scale)
        by_dispersion = np.sum(by_targets[..., 0] * target_slope) + np.sum(by_variance * noise_slope)
        return SiteSlopes({"log_dispersion": np.asarray(by_dispersion)}, by_scale)

    def updated_state(
        self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters
    ) -> np.ndarray:
        if self.auxiliary == "curvature":
            return mean
        psi = mean + self._shape(observed, self.dispersion(parameters)).offset[:, None]
        return np.sqrt(psi**2 + variance)

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        dispersion = self.dispersion(parameters)
        value, by_mean, by_variance, by_dispersion = self.log_mass(
            mean[:, 0], variance[:, 0], observed, dispersion, parameters
        )
        slopes = {"log_dispersion": by_dispersion} if self.dispersed else {}
        return Score(value, by_mean[:, None], by_variance[:, None], slopes)

    def log_mass(
        self,
        mean: np.ndarray,
        variance: np.ndarray,
        observed: Observed,
        dispersion: float | None,
        parameters: Parameters,
    ) -> tuple[np.ndarray, ...]:
        """log p (b,) of counts, and its slopes by the latent mean and variance (b,) and by the log dispersion.

        The dispersion is that of a head, which may have refitted it.
        """
        a, b, offset, gain = self._shape(observed, dispersion)
        wide = np.maximum(variance, _LEAST_VARIANCE)
        m = marginals.logistic(mean + offset, wide, a, b)
        constant, constant_slope = self._constant(observed, dispersion)
        by_dispersion = m.by_b * gain - m.by_mean + constant_slope if self.dispersed else np.zeros_like(mean)
        by_variance = np.where(variance > _LEAST_VARIANCE, m.by_variance, 0.0)
        return m.value + constant, m.by_mean, by_variance, by_dispersion

    def calibrator(self, observed: Observed, parameters: Parameters, calibrated: bool, unit: np.ndarray) -> Calibrator:
        return CountCalibrator(self, parameters, self.plain_head(observed, parameters), calibrated, self.scores)

    def plain_head(self, observed: Observed, parameters: Parameters) -> CountHead:
        return CountHead(self.dispersion(parameters))

    def left_out(self, ks: np.ndarray, moments: Moments, observations: Observations, noise: np.ndarray) -> Any:
        return LeftOutCounts(ks, moments, observations.observed, observations.weights)

    def unpacked_head(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
        return CountHead.unpacked(fields, self.dispersed)

    @classmethod
    def of_target(cls, auxiliary: str = "", classes: int = 0) -> Family:
        return cls(auxiliary)

    def observe(self, y: np.ndarray, weight: np.ndarray, **given: Any) -> dict[str, np.ndarray]:
        return {"count": y, "weight": weight, **self.given_arrays(len(y), **given)}

    def values(self, observed: Observed) -> np.ndarray:
        return observed["count"]

    def level_target(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        """Counts over what they are out of, or per exposure."""
        size = np.ones(len(observed["count"]))
        for values in self.given_of(observed).values():
            size = size * values
        return (observed["count"] / size)[:, None], (observed["weight"] * size)[:, None]

    def described(self) -> dict[str, Any]:
        return {"auxiliary": self.auxiliary}

    @classmethod
    def from_description(cls, fields: Mapping[str, Any]) -> Family:
        auxiliary = require(fields, "auxiliary", str)
        if auxiliary not in SITES:
            raise ModelFileError(f"its family {cls.name!r} has auxiliary {auxiliary!r}")
        return cls(auxiliary)


class Binomial(Counts):
    """Successes out of so many trials, with probability sigmoid(f). Observed: count, trials and weight (n,)."""

    name = "binomial"
    task = "binomial"
    given = MappingProxyType(
        {"trials": Given("the number of trials of each row", needed=True, whole=True, limits=True)}
    )
    arrays = MappingProxyType({"count": (), "trials": (), "weight": ()})

    def check(self, observed: Observed) -> None:
        count, trials = observed["count"], observed["trials"]
        _check_counts(count, "the number of successes")
        _check_counts(trials, "the number of trials")
        wrong = (trials < 1) | (count > trials)
        if wrong.any():
            raise ValueError(
                f"{int(wrong.sum())} rows have no trials or more successes than trials: pass trials= with at least "
                "one, and at least as many as successes, for each row."
            )

    def initial_mean(self, observed: Observed) -> np.ndarray:
        weight = observed["weight"]
        successes, trials = weight @ observed["count"] + 0.5, weight @ observed["trials"] + 1
        return np.array([math.log(successes / (trials - successes))])

    def _shape(self, observed: Observed, dispersion: float | None) -> _Shape:
        return _Shape(observed["count"], observed["trials"], np.zeros(observed["count"].shape), 0.0)

    def _constant(self, observed: Observed, dispersion: float | None) -> tuple[np.ndarray, np.ndarray]:
        y, n = observed["count"], observed["trials"]
        return gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1), np.zeros(y.shape)

    def distribution(self, predicted: Latent, head: CountHead, observed: Observed, parameters: Parameters) -> Any:
        return CountDistribution.binomial(predicted.mean, predicted.variance, observed["trials"])

    def given_arrays(self, n: int, **given: Any) -> dict[str, np.ndarray]:
        if given.get("trials") is None:
            raise ValueError("trials is missing: the binomial likelihood needs the number of trials of each row.")
        return {"trials": _positive("trials", given["trials"], n)}

    def given_of(self, observed: Observed) -> dict[str, np.ndarray]:
        return {"trials": observed["trials"]}

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        """Half a success and half a failure more, so that neither is impossible."""
        return {"share": float((weight @ y + 0.5) / (weight @ given["trials"] + 1))}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        log_odds = np.log(numbers["share"]) - np.log1p(-numbers["share"])
        return CountDistribution.binomial(np.full(n, log_odds), 0.0, given["trials"])


class NegativeBinomial(Counts):
    """Counts of expectation exp(f) times the exposure, variance mu + mu^2 / dispersion.

    Observed: count, log_exposure and weight (n,).
    """

    name = "negative_binomial"
    task = "counts"
    given = MappingProxyType({"exposure": Given("what expected counts are proportional to")})
    dispersed = True
    arrays = MappingProxyType({"count": (), "log_exposure": (), "weight": ()})
    parameters = MappingProxyType({"log_dispersion": Parameter(0.0, math.log(1e-3), math.log(1e4))})

    def check(self, observed: Observed) -> None:
        _check_counts(observed["count"], "the target")
        if not np.isfinite(observed["log_exposure"]).all():
            raise ValueError("exposure must be finite and above zero for each row.")

    def initial_mean(self, observed: Observed) -> np.ndarray:
        weight, log_exposure = observed["weight"], observed["log_exposure"]
        top = log_exposure.max()
        rate = (weight @ observed["count"] + 0.5) / (weight @ np.exp(log_exposure - top))
        return np.array([math.log(rate) - top])

    def _shape(self, observed: Observed, dispersion: float | None) -> _Shape:
        assert dispersion is not None
        y = observed["count"]
        return _Shape(y, y + dispersion, observed["log_exposure"] - math.log(dispersion), dispersion)

    def _constant(self, observed: Observed, dispersion: float | None) -> tuple[np.ndarray, np.ndarray]:
        assert dispersion is not None
        y, r = observed["count"], dispersion
        return gammaln(y + r) - gammaln(r) - gammaln(y + 1), r * (digamma(y + r) - digamma(r))

    def distribution(self, predicted: Latent, head: CountHead, observed: Observed, parameters: Parameters) -> Any:
        assert head.dispersion is not None
        log_odds = predicted.mean + observed["log_exposure"] - math.log(head.dispersion)
        return CountDistribution.negative_binomial(log_odds, predicted.variance, head.dispersion)

    def learned_values(
        self, parameters: Parameters, scale2: np.ndarray, head: Any, unit: np.ndarray
    ) -> dict[str, float | np.ndarray]:
        return {"dispersion": head.dispersion}

    def given_arrays(self, n: int, **given: Any) -> dict[str, np.ndarray]:
        exposure = given.get("exposure")
        return {"log_exposure": np.log(_positive("exposure", 1.0 if exposure is None else exposure, n))}

    def given_of(self, observed: Observed) -> dict[str, np.ndarray]:
        return {"exposure": np.exp(observed["log_exposure"])}

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        """By the method of moments: Var y = mean + mean^2 / dispersion."""
        exposure = given.get("exposure", np.ones(y.size))
        rate = (weight @ y + 0.5) / (weight @ exposure)
        mean = rate * exposure
        excess = float(weight @ ((y - mean) ** 2 - mean) / (weight @ mean**2))
        return {"rate": float(rate), "dispersion": 1 / max(excess, 1e-6)}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        mean = numbers["rate"] * given.get("exposure", np.ones(n))
        return CountDistribution.negative_binomial(np.log(mean / numbers["dispersion"]), 0.0, numbers["dispersion"])


def _check_counts(values: np.ndarray, what: str) -> None:
    wrong = ~(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))
    if wrong.any():
        raise ValueError(
            f"{what} has {int(wrong.sum())} values that are no counts (for example {values[wrong][0]:g}): whole "
            "numbers of at least zero are expected."
        )


def _positive(name: str, given: Any, n: int) -> np.ndarray:
    """One number for all rows, or (n,), finite and above zero."""
    values = np.asarray(given, dtype=np.float64)
    values = np.full(n, values) if values.ndim == 0 else values
    if values.shape != (n,):
        raise ValueError(f"{name} has shape {values.shape}: expected {(n,)}, one number for each row.")
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"{name} has values that are not finite or not above zero.")
    return values
