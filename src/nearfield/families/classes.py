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
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearfield.families._base import (
    Calibrator,
    Family,
    Observations,
    Observed,
    Parameters,
    Score,
    Sites,
    SiteSlopes,
)
from nearfield.families._label_sites import SITES
from nearfield.heads.classes import ClassCalibrator, ClassHead, LeftOutLabels, log_sum_exp
from nearfield.metrics import ClassScores
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require
from nearfield.polya_gamma import sigmoid_moments


class Classes(Family):
    """What two and more classes have in common: `_pulls` and `score` are what differs."""

    task = "classification"
    estimator = "GPClassifier"
    kind = "label"
    repeats = True
    auxiliaries = tuple(SITES)
    scores = ClassScores
    patient = losses_vanish = True
    initial_scale = 3.0  # log odds between -6 and 6
    additive = ("counts",)

    def __init__(self, classes: int, auxiliary: str, latents: int) -> None:
        self.classes, self.auxiliary = classes, auxiliary
        self.label_sites = SITES[auxiliary](latents)
        self.latents = self.kernel_scales = latents
        self.shared_noise = latents == 1 or not self.label_sites.own_noise
        self.state_size, self.state_learned = self.label_sites.state_size, self.label_sites.state_learned
        self.parameters = dict(self.label_sites.parameters)
        self.arrays = {"counts": (classes,)}

    @classmethod
    def of_target(cls, auxiliary: str = "", classes: int = 0) -> Family:
        made: Family = cls(classes, auxiliary)  # type: ignore[call-arg]
        return made

    def observe(self, y: np.ndarray, weight: np.ndarray, **given: Any) -> dict[str, np.ndarray]:
        counts = np.zeros((len(y), self.classes))
        counts[np.arange(len(y)), y] = weight
        return {"counts": counts}

    def values(self, observed: Observed) -> np.ndarray:
        return observed["counts"].argmax(axis=-1)

    def check(self, observed: Observed) -> None:
        counts = observed["counts"]
        if counts.ndim != 2 or counts.shape[1] != self.classes or not (counts >= 0).all():
            raise ValueError(f"counts of {self.classes} classes are expected, got an array of shape {counts.shape}.")

    def weight(self, observed: Observed) -> np.ndarray:
        return observed["counts"].sum(axis=-1)

    def level_target(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        """Shares of the classes, of two the second alone."""
        total = self.weight(observed)[:, None]
        shares = (observed["counts"] / total)[:, 1 if self.classes == 2 else 0 :]
        return shares, np.broadcast_to(total, shares.shape)

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
        return number[row * self.classes + self.values(observed)]

    def constant(self, observed: Observed) -> bool:
        return bool(((observed["counts"] > 0).sum(axis=0) > 0).sum() < 2)

    def initial_state(self, observed: Observed) -> np.ndarray:
        return self.label_sites.initial_state(len(observed["counts"]))

    def updated_state(
        self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters
    ) -> np.ndarray:
        return np.sqrt(mean**2 + variance)

    def sampling(self, rng: np.random.Generator) -> Family:
        sampled = self.label_sites.sampling(rng)
        if sampled is self.label_sites:
            return self
        family = copy.copy(self)
        family.label_sites = sampled
        return family

    def penalty(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        return self.label_sites.penalty(state)

    def _pulls(self, counts: np.ndarray, trials: np.ndarray) -> np.ndarray:
        """How often the event of each latent function was seen (..., C), less half of the trials (..., 1)."""
        raise NotImplementedError

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        trials = observed["counts"].sum(axis=-1, keepdims=True)
        return self.label_sites.sites(self._pulls(observed["counts"], trials), trials, state, parameters, scale2)

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
        return self.label_sites.slopes(pulls, trials, state, parameters, scale2, by_targets, by_noises)

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        """The share of each class, from the numbers (n,) of those that were seen."""
        seen = np.bincount(y.astype(np.int64), weight, self.classes)
        return {"shares": (seen / seen.sum()).tolist()}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        """Probabilities (n, K)."""
        return np.tile(numbers["shares"], (n, 1))

    def calibrator(self, observed: Observed, parameters: Parameters, calibrated: bool, unit: np.ndarray) -> Calibrator:
        return ClassCalibrator(self.plain_head(observed, parameters), calibrated)

    def plain_head(self, observed: Observed, parameters: Parameters) -> ClassHead:
        seen = observed["counts"].sum(axis=0)
        return ClassHead(seen / seen.sum(), offsets=np.zeros(self.latents))

    def left_out(self, ks: np.ndarray, moments: Moments, observations: Observations, noise: np.ndarray) -> Any:
        return LeftOutLabels(ks, moments, self.values(observations.observed), observations.weights)

    def unpacked_head(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
        return ClassHead.unpacked(fields, arrays, self.classes, self.latents)

    def described(self) -> dict[str, Any]:
        return {"classes": self.classes, "auxiliary": self.auxiliary}

    @classmethod
    def from_description(cls, fields: Mapping[str, Any]) -> Family:
        classes, auxiliary = require(fields, "classes", int), require(fields, "auxiliary", str)
        if auxiliary not in SITES or not cls.suits(classes):
            raise ModelFileError(f"its family {cls.name!r} has {classes} classes and auxiliary {auxiliary!r}")
        return cls.of_target(auxiliary, classes)


class Bernoulli(Classes):
    """Two classes and one latent function, positive where the second class is likely."""

    name = "bernoulli"

    def __init__(self, classes: int = 2, auxiliary: str = "tied") -> None:
        super().__init__(classes, auxiliary, 1)

    @classmethod
    def suits(cls, classes: int) -> bool:
        return classes == 2

    def initial_mean(self, observed: Observed) -> np.ndarray:
        return _half_logit(observed["counts"])[1:]

    def _pulls(self, counts: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return counts[..., 1:] - trials / 2

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

    def __init__(self, classes: int, auxiliary: str = "tied") -> None:
        super().__init__(classes, auxiliary, classes)

    @classmethod
    def suits(cls, classes: int) -> bool:
        return classes >= 2

    def initial_mean(self, observed: Observed) -> np.ndarray:
        return _half_logit(observed["counts"])

    def _pulls(self, counts: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return counts - trials / 2

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
