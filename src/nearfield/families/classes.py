"""Classes: Bernoulli for two, one-against-all for more, by Polya-Gamma augmentation (Sec. 3.3 and 3.4 of the paper).

A label seen `a` times in `n` trials has the likelihood sigmoid(f)^a sigmoid(-f)^(n - a). With a Polya-Gamma variable of
mean weight w per trial it is a Gaussian site of precision n w and target (a - n/2) / (n w). Three ways to get w:

    tied        one w for all rows, relative to the kernel's variance: learned with the hyper-parameters. No label leaks
                into the weights of its neighbours. All classes share it, hence one factorisation; to make up for that,
                the size of each one's targets is learned too.
    conjugate   w = E[omega] of the best PG(1, c) for each row and class, c^2 = E[f^2] given all rows.
    lognormal   the paper's: a log-normal q(omega) for each row and class, learned by stochastic gradients.

Observed: how often each class was seen at an input, counts (n, K): equal inputs are one row.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearfield.families._base import (
    Calibrator,
    Family,
    Observations,
    Observed,
    Parameter,
    Parameters,
    Score,
    Sites,
    SiteSlopes,
)
from nearfield.heads.classes import ClassCalibrator, ClassHead, LeftOutLabels, log_sum_exp
from nearfield.metrics import ClassScores
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require
from nearfield.polya_gamma import (
    lognormal_kl_quadrature,
    lognormal_mean,
    lognormal_sample,
    lognormal_sample_slopes,
    mean_weight,
    sigmoid_moments,
)

SITES = ("tied", "conjugate", "lognormal")
_START = (math.log(0.25) - 0.5, math.log(0.5))  # location and log scale of the log-normal: mean about that of PG(1, 0)


class Classes(Family):
    """What two and more classes have in common: `_pulls` and `score` are what differs."""

    task = "classification"
    estimator = "GPClassifier"
    kind = "label"
    scores = ClassScores
    patient = True
    initial_scale = 3.0  # log odds between -6 and 6
    additive = ("counts",)

    def __init__(self, classes: int, how: str, latents: int) -> None:
        self.classes, self.how = classes, how
        self.latents = self.kernel_scales = latents
        self.shared_noise = how == "tied" or latents == 1
        self.state_size = {"tied": 0, "conjugate": latents, "lognormal": 2 * latents}[how]
        self.state_learned = how == "lognormal"
        self.arrays = {"counts": (classes,)}
        self.rng: np.random.Generator | None = None  # with one, log-normal weights are sampled
        if how == "tied":
            self.parameters = {"log_ridge": Parameter(math.log(0.5), math.log(1e-4), math.log(1e2))}

    def observe(self, labels: np.ndarray, weight: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays by name from the numbers of classes and weights, (n,) each."""
        counts = np.zeros((len(labels), self.classes))
        counts[np.arange(len(labels)), labels] = weight
        return {"counts": counts}

    def check(self, observed: Observed) -> None:
        counts = observed["counts"]
        if counts.ndim != 2 or counts.shape[1] != self.classes or not (counts >= 0).all():
            raise ValueError(f"counts of {self.classes} classes are expected, got an array of shape {counts.shape}.")

    def weight(self, observed: Observed) -> np.ndarray:
        return observed["counts"].sum(axis=-1)

    def observations(self, observed: Observed) -> Observations:
        """Each class that was seen at a row."""
        counts = observed["counts"]
        row, label = np.nonzero(counts)
        weights, total = counts[row, label], self.weight(observed)[row]
        alone = total - np.minimum(weights, 1.0) <= 1e-12 * total
        return Observations(row, {"counts": np.eye(self.classes)[label]}, weights, alone)

    def places(self, row: np.ndarray, observed: Observed, joined: Observed) -> np.ndarray:
        """Observations are the classes seen at the first row, then those at the second, and so on."""
        number = np.cumsum(joined["counts"].ravel() > 0) - 1
        return number[row * self.classes + observed["counts"].argmax(axis=1)]

    def constant(self, observed: Observed) -> bool:
        return bool(((observed["counts"] > 0).sum(axis=0) > 0).sum() < 2)

    def initial_state(self, observed: Observed) -> np.ndarray:
        start = super().initial_state(observed)
        if self.how == "lognormal":
            start[:, : self.latents], start[:, self.latents :] = _START
        return start

    def updated_state(
        self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters
    ) -> np.ndarray:
        return np.sqrt(mean**2 + variance)

    def sampling(self, rng: np.random.Generator) -> Family:
        if not self.state_learned:
            return self
        family = copy.copy(self)
        family.rng = rng
        return family

    def _pulls(self, counts: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """How often the event of each latent function was seen (..., C), less half of the trials (..., 1)."""
        raise NotImplementedError

    def _amplitude(self, parameters: Parameters, scale2: np.ndarray) -> np.ndarray:
        """Size (C,) of tied targets: what a pull of one trial is multiplied with."""
        raise NotImplementedError

    def _amplitude_slopes(self, by_log: np.ndarray) -> SiteSlopes:
        """Slopes from those by the logarithm of the amplitudes (C,)."""
        raise NotImplementedError

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        trials = observed["counts"].sum(axis=-1, keepdims=True)
        pulls = self._pulls(observed["counts"], trials)
        if self.how == "tied":
            targets = pulls / trials * self._amplitude(parameters, scale2)
            return Sites(targets, np.exp(parameters["log_ridge"]) / trials)
        noises = 1 / (trials * self._weights(trials, state))
        return Sites(pulls * noises, noises / scale2)

    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        trials = observed["counts"].sum(axis=-1, keepdims=True)
        pulls = self._pulls(observed["counts"], trials)
        if self.how == "tied":
            targets = pulls / trials * self._amplitude(parameters, scale2)
            found = self._amplitude_slopes((by_targets * targets).sum((0, 1)))
            by_ridge = np.exp(parameters["log_ridge"]) * np.sum(by_noises / trials)
            found.parameters["log_ridge"] = np.asarray(found.parameters.get("log_ridge", 0.0) + by_ridge)
            return found
        if self.how == "conjugate":
            noises = 1 / (trials * mean_weight(state) * scale2)
            return SiteSlopes({}, -2 * (by_noises * noises).sum((0, 1)))
        weights, *slopes = self._lognormal(trials, state)
        noises = 1 / (trials * weights)
        by_weight = (by_targets * pulls + by_noises / scale2) * -noises / weights
        by_state = np.concatenate([by_weight * slope for slope in slopes], axis=-1)
        return SiteSlopes({}, -2 * (by_noises * noises / scale2).sum((0, 1)), by_state)

    def _weights(self, trials: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Mean weights (..., C) of the trials (..., 1) of rows."""
        if self.how == "conjugate":
            return mean_weight(state)
        if self.rng is None:
            return lognormal_mean(state[..., : self.latents], state[..., self.latents :])
        self.noise_drawn = self.rng.standard_normal(state[..., : self.latents].shape)
        return self._lognormal(trials, state)[0]

    def _lognormal(self, trials: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log-normal weights (..., C) as last drawn, and their slopes by location and by log scale.

        The mean of n samples is sampled as one log-normal of the same mean and an n-th of the variance.
        """
        location, log_scale = state[..., : self.latents], state[..., self.latents :]
        variance = np.exp(2 * log_scale)
        copies = np.maximum(trials, 1.0)
        narrow = np.log1p(np.expm1(variance) / copies)
        by_variance = np.exp(variance - narrow) / copies  # of `narrow`
        centre, spread = location + 0.5 * (variance - narrow), 0.5 * np.log(narrow)
        weights = lognormal_sample(centre, spread, self.noise_drawn)
        by_centre, by_spread = lognormal_sample_slopes(centre, spread, self.noise_drawn)
        by_log_scale = variance * (by_centre * (1 - by_variance) + by_spread * by_variance / narrow)
        return weights, by_centre, by_log_scale

    def penalty(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The Kullback-Leibler divergence of a row's q(omega) from PG(1, 0); Eq. (12), eqn:loobin, with KL / N."""
        if self.how != "lognormal":
            return None
        value, by_location, by_log_scale = lognormal_kl_quadrature(state[:, : self.latents], state[:, self.latents :])
        return value.sum(axis=1), np.concatenate([by_location, by_log_scale], axis=1)

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        """The share of each class, from the numbers (n,) of those that were seen."""
        seen = np.bincount(y.astype(np.int64), weight, self.classes)
        return {"shares": (seen / seen.sum()).tolist()}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        """Probabilities (n, K)."""
        return np.tile(numbers["shares"], (n, 1))

    def calibrator(self, observed: Observed, parameters: Parameters, calibrated: bool, unit: np.ndarray) -> Calibrator:
        seen = observed["counts"].sum(axis=0)
        return ClassCalibrator(seen / seen.sum(), self.latents, calibrated)

    def left_out(self, ks: np.ndarray, moments: Moments, observations: Observations, noise: np.ndarray) -> Any:
        return LeftOutLabels(ks, moments, observations.observed["counts"].argmax(axis=1), observations.weights)

    def unpacked_head(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
        return ClassHead.unpacked(fields, arrays, self.classes, self.latents)

    def described(self) -> dict[str, Any]:
        return {"classes": self.classes, "sites": self.how}

    @classmethod
    def from_description(cls, fields: Mapping[str, Any]) -> Family:
        classes, how = require(fields, "classes", int), require(fields, "sites", str)
        if how not in SITES or not cls.suits(classes):
            raise ModelFileError(f"its family {cls.name!r} has {classes} classes and sites {how!r}")
        made: Family = cls(classes, how)  # type: ignore[call-arg]
        return made

    @classmethod
    def suits(cls, classes: int) -> bool:
        """Whether the family is for so many classes."""
        raise NotImplementedError


class Bernoulli(Classes):
    """Two classes and one latent function, positive where the second class is likely."""

    name = "bernoulli"

    def __init__(self, classes: int = 2, how: str = "tied") -> None:
        super().__init__(classes, how, 1)

    @classmethod
    def suits(cls, classes: int) -> bool:
        return classes == 2

    def initial_mean(self, observed: Observed) -> np.ndarray:
        return _half_logit(observed["counts"])[1:]

    def _pulls(self, counts: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return counts[..., 1:] - trials / 2

    def _amplitude(self, parameters: Parameters, scale2: np.ndarray) -> np.ndarray:
        return np.exp(parameters["log_ridge"]) * scale2

    def _amplitude_slopes(self, by_log: np.ndarray) -> SiteSlopes:
        return SiteSlopes({"log_ridge": by_log[0]}, 2 * by_log)

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        """Eq. (13), eqn:postpredyn."""
        f = sigmoid_moments(mean[:, 0], variance[:, 0])
        no, yes = observed["counts"].T
        by_mean = no * f.negative_by_mean + yes * f.positive_by_mean
        by_variance = no * f.negative_by_variance + yes * f.positive_by_variance
        return Score(no * f.negative + yes * f.positive, by_mean[:, None], by_variance[:, None], {})


class OneAgainstAll(Classes):
    """K classes with a latent function each; the K probabilities are normalised jointly."""

    name = "one_against_all"
    length_spread = 0.3

    def __init__(self, classes: int, how: str = "tied") -> None:
        super().__init__(classes, how, classes)
        if how == "tied":
            amplitude = Parameter(math.log(4.5), math.log(1e-2), math.log(1e3), (classes,))  # ridge times scale^2
            self.parameters = {**self.parameters, "log_amplitude": amplitude}

    @classmethod
    def suits(cls, classes: int) -> bool:
        return classes >= 2

    def initial_mean(self, observed: Observed) -> np.ndarray:
        return _half_logit(observed["counts"])

    def _pulls(self, counts: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return counts - trials / 2

    def _amplitude(self, parameters: Parameters, scale2: np.ndarray) -> np.ndarray:
        return np.exp(parameters["log_amplitude"])

    def _amplitude_slopes(self, by_log: np.ndarray) -> SiteSlopes:
        return SiteSlopes({"log_amplitude": by_log}, np.zeros(self.latents))

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        """The probabilities of Eq. (13), normalised: eqn:postpredynknorm."""
        f = sigmoid_moments(mean, variance)
        log_p = f.positive - log_sum_exp(f.positive)
        excess = observed["counts"] - observed["counts"].sum(axis=1, keepdims=True) * np.exp(log_p)
        value = (log_p * observed["counts"]).sum(axis=1)
        return Score(value, excess * f.positive_by_mean, excess * f.positive_by_variance, {})


def _half_logit(counts: np.ndarray) -> np.ndarray:
    """Half the log odds (K,) of each class against the others, with one more row on either side."""
    seen, total = counts.sum(axis=0), counts.sum()
    return 0.5 * np.log((seen + 1) / (total - seen + 1))
