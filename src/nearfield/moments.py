"""Moments of the latent functions at many rows: what a sweep gives, and what heads make predictions of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

NEAR = 16  # neighbours that tell about the closest surroundings of a row
_LEAST_PRIOR = 0.01  # of the most: a function that varies less than by a tenth of the target's spread is known anyway
_OUTSIDE = (0.25, 1.0)  # ranges of a column beyond all rows: up to there as among them, from there on far away


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of C latent functions at b rows, each (b, C); (b, q, C) where asked for q numbers of neighbours.

    size: how many observations each row was predicted from, its neighbours, each as often as it counts; (b, 1) where it
    is the same for all latent functions. near_quad and near_size are quad and size of the nearest NEAR neighbours.
    covariance: (b, C, C) or (b, q, C, C), between the latent functions, where it was asked for.
    prior: (S,) variances of the latent functions where nothing is known, one for each or one for all; () of one alone.
    outside: (b, 1) how far new rows are beyond all training rows, see `outside_of`; None: not at all.
    jittered: rows whose matrix was factorised again with a larger diagonal.
    """

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    size: np.ndarray
    near_quad: np.ndarray
    near_size: np.ndarray
    covariance: np.ndarray | None = None
    jittered: int = 0
    prior: np.ndarray | None = None
    outside: np.ndarray | None = None

    def at(self, place: int) -> Moments:
        """The moments for one of the numbers of neighbours asked for."""
        covariance = None if self.covariance is None else self.covariance[:, place]
        return replace(self._mapped(lambda part: part[:, place]), covariance=covariance)

    def latent(self, c: int) -> Moments:
        """The moments of one latent function alone: (b,), or (b, q) for several k."""
        own = self._mapped(lambda part: part[..., min(c, part.shape[-1] - 1)])
        outside = None if self.outside is None else self.outside[:, 0]
        return replace(own, covariance=None, prior=_one(self.prior, c), outside=outside)

    def rows(self, which: np.ndarray) -> Moments:
        """The moments of some of the rows."""
        covariance = None if self.covariance is None else self.covariance[which]
        outside = None if self.outside is None else self.outside[which]
        return replace(self._mapped(lambda part: part[which]), covariance=covariance, outside=outside)

    def _mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> Moments:
        arrays: dict[str, Any] = {name: change(getattr(self, name)) for name in _ARRAYS}
        return replace(self, **arrays)


def _one(prior: np.ndarray | None, c: int) -> np.ndarray | None:
    return None if prior is None else prior[min(c, len(prior) - 1)]


def outside_of(low: np.ndarray, high: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """How far (b, 1) inputs (b, d) are beyond the lowest and highest (d,) of all rows, in the column where it is most.

    In ranges of that column, highest less lowest. Neither length scales nor bends count: what was learned of a column
    where rows are, says nothing about where none ever was.
    """
    return np.maximum(_beyond(low, high, inputs).max(axis=1, initial=0.0), 0.0)[:, None]


def _beyond(low: np.ndarray, high: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """By how many ranges each input (b, d) is beyond the bounds (d,); a column without a range has one of 1."""
    return np.maximum(low - inputs, inputs - high) / np.where(high > low, high - low, 1.0)


def outside_slopes(low: np.ndarray, high: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Slopes (b, 1, d) of `outside_of` by the inputs."""
    beyond = _beyond(low, high, inputs)
    which = (np.arange(len(inputs)), beyond.argmax(axis=1))
    by = np.sign(inputs - (low + high) / 2) / np.where(high > low, high - low, 1.0)
    found = np.zeros(inputs.shape)
    found[which] = np.where(beyond[which] > 0, by[which], 0.0)
    return found[:, None]


def far_away(outside: np.ndarray) -> np.ndarray:
    """From 0, among the rows, to 1, so far beyond them that nothing is known; with a slope everywhere."""
    first, last = _OUTSIDE
    share = np.clip((outside - first) / (last - first), 0.0, 1.0)
    return share * share * (3 - 2 * share)


def unknown_variance(moments: Moments, most: float) -> np.ndarray:
    """The variance of a latent function, (S,) or (), at which nothing is known of it: its prior one within limits.

    most: the variance of the target, or infinite. Kernels of smooth functions have priors far beyond it, those of a
    flat one hardly any.
    """
    if moments.prior is None:
        return np.asarray(most)
    return np.clip(moments.prior, _LEAST_PRIOR * most if np.isfinite(most) else 0.0, most)


def support(moments: Moments, most: float = np.inf) -> np.ndarray:
    """How much (b, C) is known of the latent functions, from 0 to 1, by moments with a prior.

    1 - variance / prior, the share of the prior variance that the rows have taken away; see `unknown_variance`. Far
    beyond all rows it is 0, whatever the kernel says.
    """
    known = np.clip(1 - moments.variance / unknown_variance(moments, most), 0.0, 1.0)
    return known if moments.outside is None else known * (1 - far_away(moments.outside))


_ARRAYS = ("mean", "variance", "quad", "size", "near_quad", "near_size")


def joined(parts: Sequence[Moments]) -> Moments:
    """Blocks of rows, one after the other."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    given = [part.covariance for part in parts if part.covariance is not None]
    covariance = np.concatenate(given) if len(given) == len(parts) else None
    given = [part.outside for part in parts if part.outside is not None]
    outside = np.concatenate(given) if len(given) == len(parts) else None
    jittered = sum(part.jittered for part in parts)
    return Moments(**arrays, covariance=covariance, jittered=jittered, prior=parts[0].prior, outside=outside)


def in_order(parts: Sequence[Moments], order: np.ndarray) -> Moments:
    """Blocks of rows (b, C) one after the other, then in that order (u,): (u, 1, C), as for a single k."""
    whole = joined(parts).rows(order)
    return replace(whole, **{name: getattr(whole, name)[:, None] for name in _ARRAYS}, covariance=None)


def beside(few: Moments, more: Moments) -> Moments:
    """The moments of the same rows for some numbers of neighbours, (b, q, C), and for further ones."""
    arrays = {name: np.concatenate([getattr(few, name), getattr(more, name)], axis=1) for name in _ARRAYS}
    covariance = None
    if few.covariance is not None and more.covariance is not None:
        covariance = np.concatenate([few.covariance, more.covariance], axis=1)
    return Moments(**arrays, covariance=covariance, jittered=few.jittered + more.jittered, prior=more.prior)
