"""Continuous neighbourhoods: neighbours lose their weight towards the edge, so that none comes or goes with a jump.

With r_j the distance of neighbour j under the length scales of the search, R that of the (k + 1)-th row, and q the
distance of the neighbour up to which the nearest share of them lies, neighbour j has the extra noise, relative to the
prior variance,

    noise u^2 / (1 - u^2)     u = (r_j - q) / (R - q), no less than zero

(Rivoirard & Romary 2011): none inside, ever more towards R. There it is infinite, as if the row were not there, just
where another takes its place. Distances sorted by size are continuous, and so is everything that depends on them. The
share of a neighbour that is left, 1 - u^2, says how much of it counts as an observation.

In two dimensions q is about R / 2 for a share of a quarter. In many dimensions, where all neighbours are about equally
far, a share keeps some of them whole, which a fixed part of R does not. Where so many rows are equally far away that q
is R, as those of one place are, there is no edge, and nothing is added: there predictions jump. So do those from a
single neighbour, k = 1, which is always whole.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_TIED = 1e-9  # relative difference of distances that may be rounding, as on a grid


class Around(NamedTuple):
    """Neighbours of b rows, in the order of their numbers, with the noises that are added.

    ids: (b, k), -1 behind the last; places: (b, k) where they are among those sorted by distance;
    noises: (b, k) extra ones, relative to the prior variance, which may be infinite; shares: (b, k) that are left.
    """

    ids: np.ndarray
    places: np.ndarray
    noises: np.ndarray
    shares: np.ndarray


class Taper(NamedTuple):
    """How neighbours lose their weight: those beyond the nearest `whole` of them, by extra noises of size `noise`."""

    whole: float = 0.25
    noise: float = 0.1

    def inner(self, k: int) -> int:
        """The place, from 0, of the last neighbour that is sure to be whole, of k."""
        return max(math.ceil(self.whole * k) - 1, 0)

    def around(self, ids: np.ndarray, sqdist: np.ndarray, k: int) -> Around:
        """The nearest k of the rows ids (b, m), by ascending squared distance (b, m); the next, if any, is the edge.

        They are put in an order that does not depend on distances: what outputs that are mixed say of their roughness
        depends on the order, and would jump with it.
        """
        u = self.depth(sqdist, k)
        near = np.where(ids[:, :k] < 0, np.iinfo(np.int64).max, ids[:, :k])
        places = np.argsort(near, axis=1, kind="stable")
        shares = 1 - np.take_along_axis(u, places, axis=1) ** 2
        with np.errstate(divide="ignore"):
            noises = self.noise * (1 - shares) / shares
        return Around(np.take_along_axis(ids[:, :k], places, axis=1), places, noises, shares)

    def depth(self, sqdist: np.ndarray, k: int) -> np.ndarray:
        """u (b, k), from 0 inside to 1 at the edge; 0 where there is none."""
        r, inner, edge = self._distances(sqdist, k)
        sharp = np.isfinite(edge) & (edge > (1 + _TIED) * inner)
        r, inner, width = np.where(sharp[:, None], r, 0.0), np.where(sharp, inner, 0.0), np.where(sharp, edge, 1.0)
        off, width = r - inner[:, None], width - inner
        return np.clip(off / width[:, None], 0.0, 1.0)

    def depth_slopes(self, sqdist: np.ndarray, k: int, by: np.ndarray) -> np.ndarray:
        """What slopes by u (b, C, k) become by the squared distances (b, C, m), with m = k + 1 or k where no edge is.

        Where u is 0 or 1 and stays so, slopes by it do not count; at an edge that is shared by several rows neither.
        """
        _, inner, edge = self._distances(sqdist, k)
        u = self.depth(sqdist, k)
        within = (u > 0) & (u < 1)
        some = within.any(axis=1)
        width = np.where(some, edge, 1.0) - np.where(some, inner, 0.0)
        slope = np.where(within[:, None], by, 0.0) / width[:, None, None]
        found = np.zeros((*by.shape[:2], sqdist.shape[1]))
        found[..., :k] = slope
        if sqdist.shape[1] > k:
            found[..., k] = -(slope * u[:, None]).sum(axis=-1)
        found[..., self.inner(k)] -= (slope * (1 - u[:, None])).sum(axis=-1)
        far = np.sqrt(sqdist[:, : found.shape[2]])
        return found / (2 * np.where((far > 0) & np.isfinite(far), far, 1.0))[:, None]

    def _distances(self, sqdist: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the neighbours (b, k), of the last one inside (b,) and of the edge (b,), infinite where there is none."""
        r = np.sqrt(sqdist[:, :k])
        edge = np.sqrt(sqdist[:, k]) if sqdist.shape[1] > k else np.full(len(r), np.inf)
        return r, r[:, min(self.inner(k), r.shape[1] - 1)], edge
