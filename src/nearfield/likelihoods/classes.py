"""Classes: Bernoulli for two, one-against-all for more, by Polya-Gamma augmentation (Sec. 3.3 and 3.4 of the paper).

A label seen `a` times in `n` trials has the likelihood sigmoid(f)^a sigmoid(-f)^(n - a). With a Polya-Gamma variable of
mean weight w per trial it is a Gaussian site of precision n w and target (a - n/2) / (n w). Three ways to get w:

    tied        one w for all rows, relative to the kernel's variance: learned with the hyper-parameters. No label leaks
                into the weights of its neighbours. All classes share it, hence one factorisation; to make up for that,
                the size of each one's targets is learned too.
    conjugate   w = E[omega] of the best PG(1, c) for each row and class, c^2 = E[f^2] given all rows.
    lognormal   the paper's: a log-normal q(omega) for each row and class, learned by stochastic gradients.

The statistics of a row are how often each class was seen at its input (K numbers): equal inputs are one row.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch

from nearfield.likelihoods._base import Hyper, Likelihood, Observations, Parameter, Sites
from nearfield.polya_gamma import (
    lognormal_kl_quadrature,
    lognormal_mean,
    lognormal_sample,
    mean_weight,
    sigmoid_moments,
)

AUXILIARY = ("tied", "conjugate", "lognormal")
_START = (math.log(0.25) - 0.5, math.log(0.5))  # location and log scale of the log-normal: mean about that of PG(1, 0)


class Classes(Likelihood):
    """What two and more classes have in common."""

    additive = ()
    initial_scale = 3.0  # log odds between -6 and 6

    def __init__(self, classes: int, auxiliary: str = "tied") -> None:
        self.classes, self.auxiliary, self.width = classes, auxiliary, classes
        width = math.prod(self.latents)
        self.auxiliaries = {"tied": 0, "conjugate": width, "lognormal": 2 * width}[auxiliary]
        self.learned_auxiliary = auxiliary == "lognormal"
        if auxiliary == "tied":
            self.parameters = {"log_ridge": Parameter(math.log(0.5), math.log(1e-4), math.log(1e2))}

    def check(self, stats: np.ndarray) -> None:
        if stats.ndim != 2 or stats.shape[1] != self.classes or not (stats >= 0).all():
            raise ValueError(f"counts of {self.classes} classes are expected, got an array of shape {stats.shape}.")
        if (stats.sum(axis=0) > 0).sum() < 2:
            raise ValueError("only one class has rows: at least two are needed to tell them apart.")

    def counts(self, stats: torch.Tensor) -> torch.Tensor:
        return stats.sum(-1)

    def observations(self, stats: torch.Tensor) -> Observations:
        row, label = (torch.from_numpy(part) for part in np.nonzero(stats.numpy()))
        one_hot = torch.zeros(len(row), self.classes, dtype=stats.dtype)
        one_hot.scatter_(1, label[:, None], 1.0)
        return Observations(row, one_hot, torch.from_numpy(stats.numpy()[row.numpy(), label.numpy()]))

    def initial_auxiliary(self, stats: torch.Tensor) -> torch.Tensor:
        start = torch.zeros(len(stats), self.auxiliaries, dtype=stats.dtype)
        if self.auxiliary == "lognormal":
            half = self.auxiliaries // 2
            start[:, :half], start[:, half:] = _START
        return start

    def refreshed(self, stats: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        return (mean.square() + variance).sqrt().reshape(len(stats), -1)

    @abstractmethod
    def combined(self, positive: torch.Tensor, negative: torch.Tensor, coupling: torch.Tensor | float) -> torch.Tensor:
        """What the classes' probabilities (b, K) are proportional to, as logarithms.

        positive, negative: log p and log(1 - p) of each latent function's event.
        """

    def log_probabilities(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """log p (b, K) of the classes, Eq. (13), eqn:postpredyn, and eqn:postpredynknorm."""
        return torch.log_softmax(self.combined(*sigmoid_moments(mean, variance), 0.0), -1)

    def log_predictive(
        self, mean: torch.Tensor, variance: torch.Tensor, stats: torch.Tensor, hyper: Hyper
    ) -> torch.Tensor:
        return (self.log_probabilities(mean, variance) * stats).sum(-1)

    def penalty(self, auxiliary: torch.Tensor) -> torch.Tensor | None:
        """The Kullback-Leibler divergence of a row's q(omega) from PG(1, 0); Eq. (12), eqn:loobin, with KL / N."""
        if self.auxiliary != "lognormal":
            return None
        location, log_scale = auxiliary.chunk(2, -1)
        return lognormal_kl_quadrature(location, log_scale).sum(-1)

    def _weights(self, trials: torch.Tensor, auxiliary: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        """Mean weights of the trials (b, k) of a row, (b, k, C); while training with the log-normal, sampled ones.

        The mean of n samples is sampled as one log-normal of the same mean and an n-th of the variance.
        """
        if self.auxiliary == "conjugate":
            return mean_weight(auxiliary)
        location, log_scale = auxiliary.chunk(2, -1)
        if rng is None:
            return lognormal_mean(location, log_scale)
        noise = torch.from_numpy(rng.standard_normal(tuple(location.shape))).to(location.dtype)
        variance = torch.exp(2 * log_scale)
        narrow = torch.log1p(torch.expm1(variance) / trials[..., None].clamp_min(1.0))
        return lognormal_sample(location + 0.5 * (variance - narrow), 0.5 * torch.log(narrow), noise)


class Bernoulli(Classes):
    """Two classes and one latent function, positive where the second class is likely."""

    name = "bernoulli"

    def __init__(self, classes: int = 2, auxiliary: str = "tied") -> None:
        super().__init__(classes, auxiliary)

    def initial_mean(self, stats: np.ndarray) -> np.ndarray:
        return _half_logit(stats)[1]

    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        trials = stats.sum(-1)
        pull = stats[..., 1] - trials / 2
        if self.auxiliary == "tied":
            noises = hyper["log_ridge"].exp() * scale2 / trials
        else:
            noises = 1 / (trials * self._weights(trials, auxiliary, rng)[..., 0])
        return Sites(pull * noises, noises)

    def combined(self, positive: torch.Tensor, negative: torch.Tensor, coupling: torch.Tensor | float) -> torch.Tensor:
        """The probabilities themselves: with two classes there is nothing to couple."""
        return torch.stack([negative, positive], -1)


class OneAgainstAll(Classes):
    """K classes with a latent function each; the K probabilities are normalised jointly."""

    name = "one_against_all"
    length_spread = 0.3

    def __init__(self, classes: int, auxiliary: str = "tied") -> None:
        self.latents = (classes,)
        super().__init__(classes, auxiliary)
        if auxiliary == "tied":
            amplitude = Parameter(math.log(4.5), math.log(1e-2), math.log(1e3), each=True)  # ridge times scale^2
            self.parameters = {**self.parameters, "log_amplitude": amplitude}

    def initial_mean(self, stats: np.ndarray) -> np.ndarray:
        return _half_logit(stats)

    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        trials = stats.sum(-1, keepdim=True)
        pull = stats - trials / 2
        if self.auxiliary == "tied":
            ridge = hyper["log_ridge"].exp() / trials  # shared by all classes
            return Sites(pull / trials * hyper["log_amplitude"].exp(), ridge)
        noises = 1 / (trials * self._weights(trials[..., 0], auxiliary, rng))
        return Sites(pull * noises, noises)

    def combined(self, positive: torch.Tensor, negative: torch.Tensor, coupling: torch.Tensor | float) -> torch.Tensor:
        """log p_c - coupling log(1 - p_c).

        The paper normalises the probabilities themselves, eqn:postpredynknorm: coupling 0. To know that exactly one of
        K independent events has happened would mean to normalise their odds: coupling 1.
        """
        return positive - coupling * negative


def _half_logit(stats: np.ndarray) -> np.ndarray:
    """Half the log odds (K,) of each class against the others, with one more row on either side."""
    seen, total = stats.sum(axis=0), stats.sum()
    return 0.5 * np.log((seen + 1) / (total - seen + 1))
