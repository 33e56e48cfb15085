"""How labels become Gaussian sites: three ways to get the weight of a trial, as told in `classes.py`.

Each starts from pulls (..., C), how often the event of each latent function was seen less half of the trials, and from
the trials (..., 1) of a row. A site has the precision trials * weight and the target pull / precision.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from nearfield.families._base import Parameter, Parameters, Sites, SiteSlopes
from nearfield.polya_gamma import (
    lognormal_kl_quadrature,
    lognormal_mean,
    lognormal_sample,
    lognormal_sample_slopes,
    mean_weight,
)

_START = (math.log(0.25) - 0.5, math.log(0.5))  # location and log scale of the log-normal: mean about that of PG(1, 0)


class LabelSites(ABC):
    """One way to get them, for that many latent functions."""

    parameters: Mapping[str, Parameter] = MappingProxyType({})
    """what is learned with the hyper-parameters"""
    own_noise: bool = True
    """whether each latent function has noises of its own"""
    state_size: int = 0
    """numbers of each row on which its sites depend"""
    state_learned: bool = False
    """whether they are learned by gradients; else they are the roots of E[f^2], given all rows"""

    def __init__(self, latents: int) -> None:
        self.latents = latents

    def initial_state(self, n: int) -> np.ndarray:
        """State (n, A) of rows about which nothing is known."""
        return np.zeros((n, self.state_size))

    @abstractmethod
    def sites(
        self, pulls: np.ndarray, trials: np.ndarray, state: np.ndarray, parameters: Parameters, scale2: np.ndarray
    ) -> Sites:
        """Sites (..., C) of rows with that state (..., A); scale2 (C,): prior variances."""

    @abstractmethod
    def slopes(
        self,
        pulls: np.ndarray,
        trials: np.ndarray,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        """What slopes by targets and noises (b, k, ..) of sites become."""

    def sampling(self, rng: np.random.Generator) -> LabelSites:
        """Those to train with."""
        return self

    def penalty(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """See `Family.penalty`."""
        return None


class Tied(LabelSites):
    """One weight for all rows, relative to the kernel's variance: the noise of one label is `ridge` times that.

    With one latent function the size of the targets follows: ridge times the kernel's variance. Several share the
    noises, and to make up for that the size of each one's targets is learned.
    """

    own_noise = False

    def __init__(self, latents: int) -> None:
        super().__init__(latents)
        self.parameters = {"log_ridge": Parameter(math.log(0.5), math.log(1e-4), math.log(1e2))}
        if latents > 1:  # log of ridge times scale^2
            self.parameters["log_amplitude"] = Parameter(math.log(4.5), math.log(1e-2), math.log(1e3), (latents,))

    def _targets(self, pulls: np.ndarray, trials: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> np.ndarray:
        if self.latents > 1:
            return pulls / trials * np.exp(parameters["log_amplitude"])
        return pulls / trials * (np.exp(parameters["log_ridge"]) * scale2)

    def sites(
        self, pulls: np.ndarray, trials: np.ndarray, state: np.ndarray, parameters: Parameters, scale2: np.ndarray
    ) -> Sites:
        noises = np.exp(parameters["log_ridge"]) / trials
        return Sites(self._targets(pulls, trials, parameters, scale2), noises)

    def slopes(
        self,
        pulls: np.ndarray,
        trials: np.ndarray,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        by_amplitude = (by_targets * self._targets(pulls, trials, parameters, scale2)).sum((0, 1))  # by its logarithm
        by_ridge = np.exp(parameters["log_ridge"]) * np.sum(by_noises / trials)
        if self.latents > 1:
            slopes = {"log_ridge": np.asarray(by_ridge), "log_amplitude": by_amplitude}
            return SiteSlopes(slopes, np.zeros(self.latents))
        return SiteSlopes({"log_ridge": np.asarray(by_amplitude[0] + by_ridge)}, 2 * by_amplitude)


class Conjugate(LabelSites):
    """For each row and latent function E[omega] of the best PG(1, c): the state is c."""

    def __init__(self, latents: int) -> None:
        super().__init__(latents)
        self.state_size = latents

    def sites(
        self, pulls: np.ndarray, trials: np.ndarray, state: np.ndarray, parameters: Parameters, scale2: np.ndarray
    ) -> Sites:
        noises = 1 / (trials * mean_weight(state))
        return Sites(pulls * noises, noises / scale2)

    def slopes(
        self,
        pulls: np.ndarray,
        trials: np.ndarray,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        noises = 1 / (trials * mean_weight(state) * scale2)
        return SiteSlopes({}, -2 * (by_noises * noises).sum((0, 1)))


class LogNormal(LabelSites):
    """The paper's: a log-normal q(omega) for each row and latent function, learned by stochastic gradients.

    The state is its location and the logarithm of its scale. Predictions take mean weights, training samples them.
    """

    state_learned = True

    def __init__(self, latents: int, rng: np.random.Generator | None = None) -> None:
        super().__init__(latents)
        self.state_size, self.rng = 2 * latents, rng

    def initial_state(self, n: int) -> np.ndarray:
        return np.tile(np.repeat(_START, self.latents), (n, 1))

    def sampling(self, rng: np.random.Generator) -> LabelSites:
        return LogNormal(self.latents, rng)

    def sites(
        self, pulls: np.ndarray, trials: np.ndarray, state: np.ndarray, parameters: Parameters, scale2: np.ndarray
    ) -> Sites:
        location, log_scale = state[..., : self.latents], state[..., self.latents :]
        if self.rng is None:
            weights = lognormal_mean(location, log_scale)
        else:
            self.drawn = self.rng.standard_normal(location.shape)  # kept for the slopes
            weights = self._sampled(trials, state)[0]
        noises = 1 / (trials * weights)
        return Sites(pulls * noises, noises / scale2)

    def slopes(
        self,
        pulls: np.ndarray,
        trials: np.ndarray,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        weights, *slopes = self._sampled(trials, state)
        noises = 1 / (trials * weights)
        by_weight = (by_targets * pulls + by_noises / scale2) * -noises / weights
        by_state = np.concatenate([by_weight * slope for slope in slopes], axis=-1)
        return SiteSlopes({}, -2 * (by_noises * noises / scale2).sum((0, 1)), by_state)

    def _sampled(self, trials: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights (..., C) as last drawn, and their slopes by location and by log scale.

        The mean of n samples is sampled as one log-normal of the same mean and an n-th of the variance.
        """
        location, log_scale = state[..., : self.latents], state[..., self.latents :]
        variance = np.exp(2 * log_scale)
        copies = np.maximum(trials, 1.0)
        narrow = np.log1p(np.expm1(variance) / copies)
        by_variance = np.exp(variance - narrow) / copies  # of `narrow`
        centre, spread = location + 0.5 * (variance - narrow), 0.5 * np.log(narrow)
        weights = lognormal_sample(centre, spread, self.drawn)
        by_centre, by_spread = lognormal_sample_slopes(centre, spread, self.drawn)
        by_log_scale = variance * (by_centre * (1 - by_variance) + by_spread * by_variance / narrow)
        return weights, by_centre, by_log_scale

    def penalty(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The Kullback-Leibler divergence of a row's q(omega) from PG(1, 0); Eq. (12), eqn:loobin, with KL / N."""
        value, by_location, by_log_scale = lognormal_kl_quadrature(state[:, : self.latents], state[:, self.latents :])
        return value.sum(axis=1), np.concatenate([by_location, by_log_scale], axis=1)


SITES: dict[str, type[LabelSites]] = {"tied": Tied, "conjugate": Conjugate, "lognormal": LogNormal}
