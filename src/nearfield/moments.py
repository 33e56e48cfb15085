"""Moments of the latent functions at many rows: what a sweep gives, and what heads make predictions of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

NEAR = 16  # neighbours that tell about the closest surroundings of a row


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of C latent functions at b rows, each (b, C); (b, q, C) where asked for q numbers of neighbours.

    size: how many observations each row was predicted from, its neighbours, each as often as it counts; (b, 1) where it
    is the same for all latent functions. near_quad and near_size are quad and size of the nearest NEAR neighbours.
    covariance: (b, C, C) or (b, q, C, C), between the latent functions, where it was asked for.
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

    def at(self, place: int) -> Moments:
        """The moments for one of the numbers of neighbours asked for."""
        covariance = None if self.covariance is None else self.covariance[:, place]
        return replace(self._mapped(lambda part: part[:, place]), covariance=covariance)

    def latent(self, c: int) -> Moments:
        """The moments of one latent function alone: (b,), or (b, q) for several k."""
        return replace(self._mapped(lambda part: part[..., min(c, part.shape[-1] - 1)]), covariance=None)

    def rows(self, which: np.ndarray) -> Moments:
        """The moments of some of the rows."""
        covariance = None if self.covariance is None else self.covariance[which]
        return replace(self._mapped(lambda part: part[which]), covariance=covariance)

    def _mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> Moments:
        arrays: dict[str, Any] = {name: change(getattr(self, name)) for name in _ARRAYS}
        return replace(self, **arrays)


_ARRAYS = ("mean", "variance", "quad", "size", "near_quad", "near_size")


def joined(parts: Sequence[Moments]) -> Moments:
    """Blocks of rows, one after the other."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    given = [part.covariance for part in parts if part.covariance is not None]
    covariance = np.concatenate(given) if len(given) == len(parts) else None
    return Moments(**arrays, covariance=covariance, jittered=sum(part.jittered for part in parts))


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
    return Moments(**arrays, covariance=covariance, jittered=few.jittered + more.jittered)
