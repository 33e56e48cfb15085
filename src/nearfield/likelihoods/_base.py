"""What a likelihood is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import numpy as np
import torch

Hyper = dict[str, torch.Tensor]

NOISE_FLOOR = 1e-8  # least noise variance, relative to the kernel's variance: keeps every matrix positive definite


class Parameter(NamedTuple):
    """A learned number of a likelihood: where it starts, its bounds, and whether each latent function has its own."""

    initial: float
    low: float
    high: float
    each: bool = False


class Sites(NamedTuple):
    """Pseudo-targets (b, k) + latents and pseudo-noises of the same shape.

    Where the noises' last dimension is 1 and there are more latents, all share one noise, which is then relative to the
    kernel's variance: one factorisation serves them all.
    """

    targets: torch.Tensor
    noises: torch.Tensor


@dataclass(frozen=True, eq=False)
class Observations:
    """What can be left out: the row (u,) it belongs to, its statistics (u, S) and how often it was made (u,)."""

    row: torch.Tensor
    stats: torch.Tensor
    weights: torch.Tensor

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: torch.Tensor) -> Observations:
        """The observations `which` (b,)."""
        return Observations(*(part.index_select(0, which) for part in (self.row, self.stats, self.weights)))


class Likelihood(ABC):
    """One way in which observations depend on the latent function."""

    name: ClassVar[str]
    parameters: Mapping[str, Parameter] = MappingProxyType({})
    additive: tuple[int, ...]  # statistics that an observation takes with it when it is left out; () for all
    learned_auxiliary: bool = False  # by gradients, together with the hyper-parameters
    latents: tuple[int, ...] = ()
    width: int = 3  # numbers that the statistics of a row have
    initial_scale: float = 1.0  # of the latent functions
    length_spread: float | None = None  # of the prior on log length scales, see `objectives.length_prior`
    auxiliaries: int = 0  # numbers that each row has

    @abstractmethod
    def check(self, stats: np.ndarray) -> None:
        """Raise a ValueError that helps if the statistics (n, S) lie outside of the domain."""

    @abstractmethod
    def observations(self, stats: torch.Tensor) -> Observations:
        """What can be left out of rows with the statistics (n, S)."""

    @abstractmethod
    def counts(self, stats: torch.Tensor) -> torch.Tensor:
        """How many observations rows with the statistics (..., S) stand for, (...)."""

    def seen(self, stats: torch.Tensor) -> torch.Tensor:
        """The same for each of several outputs, (..., P), where some may be missing."""
        return self.counts(stats)

    def noise(self, hyper: Hyper, scale2: torch.Tensor) -> torch.Tensor | None:
        """Noise variance of one observation, with its floor, where the likelihood has one; scale2: as in `sites`."""
        return None

    def known_noise(self, stats: torch.Tensor) -> torch.Tensor:
        """What is known of the noise variances of rows with the statistics (..., S): (...), or (..., P)."""
        return torch.zeros(stats.shape[:-1], dtype=stats.dtype)

    @property
    def scales(self) -> tuple[int, ...]:
        """Shape of the kernel scales: one for each latent function."""
        return self.latents

    def initial_mean(self, stats: np.ndarray) -> np.ndarray:
        """Where the mean of the latent functions starts."""
        return np.zeros(self.latents)

    def initial_auxiliary(self, stats: torch.Tensor) -> torch.Tensor:
        """Auxiliaries (n, A) before anything is known."""
        return torch.zeros(len(stats), self.auxiliaries, dtype=stats.dtype)

    @abstractmethod
    def sites(
        self,
        stats: torch.Tensor,
        auxiliary: torch.Tensor,
        hyper: Hyper,
        scale2: torch.Tensor,
        rng: np.random.Generator | None = None,
    ) -> Sites:
        """Sites of rows with statistics (b, k, S) and auxiliaries (b, k, A); scale2 is the kernel's variance.

        rng is given while training, for likelihoods that sample.
        """

    def refreshed(self, stats: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """Auxiliaries (b, A) of rows with statistics (b, S), from the moments of the latent function given all rows."""
        return torch.zeros(len(stats), 0, dtype=stats.dtype)

    @abstractmethod
    def log_predictive(
        self, mean: torch.Tensor, variance: torch.Tensor, stats: torch.Tensor, hyper: Hyper
    ) -> torch.Tensor:
        """log p (b,) of observations with statistics (b, S), the latent function having these moments."""

    def trust(self, auxiliary: torch.Tensor, hyper: Hyper) -> torch.Tensor | None:
        """How much the scores of observations count in training, (b,), given the auxiliaries (b, A) of their rows."""
        return None

    def penalty(self, auxiliary: torch.Tensor) -> torch.Tensor | None:
        """What each observation's score loses for the auxiliaries (b, A) of its row; None for nothing."""
        return None


TARGET, WEIGHT, GIVEN = 0, 1, 2


class Weighted(Likelihood):
    """Rows with one target each, which may count several times."""

    additive = (WEIGHT,)

    def counts(self, stats: torch.Tensor) -> torch.Tensor:
        return stats[..., WEIGHT]

    def observations(self, stats: torch.Tensor) -> Observations:
        single = stats.clone()
        single[:, WEIGHT] = 1
        return Observations(torch.arange(len(stats)), single, stats[:, WEIGHT])
