"""Moments of many rows, block by block, so that memory does not grow with them: left-out observations or new rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from nearfield._threads import torch_alone
from nearfield.likelihoods import Observations
from nearfield.model import Model, Rows
from nearfield.neighbours import Groups, NeighbourIndex, build_index
from nearfield.neighbours.restricted import earlier_neighbours, query_where

_BLOCK_NUMBERS = 2**18  # neighbours held at a time, over all rows of a block and all latent functions
_MOST_SWEEPS, _SETTLED = 20, 1e-3  # for the auxiliaries; relative change of a sweep that is small enough

NEAR = 16  # neighbours that tell about the closest surroundings of a row


@dataclass(frozen=True)
class Swept:
    """Latent moments of b rows, each (b,) + latents, or (b, len(ks)) + latents where asked for several k.

    `used` is how many observations each row was predicted from: its neighbours, each as often as it counts (and as it
    has each of several outputs). `near_quad`
    and `near_used` are the same as `quad` and `used` for the nearest NEAR neighbours.
    """

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    used: np.ndarray
    near_quad: np.ndarray
    near_used: np.ndarray
    jittered: int = 0

    def at(self, column: int) -> Swept:
        """The moments for one of the k asked for."""
        return replace(self, **{name: getattr(self, name)[:, column] for name in _MOMENTS})

    def output(self, p: int) -> Swept:
        """The moments of one of several outputs, for a single k."""
        return replace(self, **{name: getattr(self, name)[:, p] for name in _MOMENTS})

    def rows(self, which: np.ndarray) -> Swept:
        """The moments of some of the rows."""
        return replace(self, **{name: getattr(self, name)[which] for name in _MOMENTS})


_MOMENTS = ("mean", "variance", "quad", "used", "near_quad", "near_used")


class Sweeper:
    """A model, the rows that may be neighbours and the index that finds them under the model's length scales."""

    def __init__(self, model: Model, rows: Rows, groups: Groups | None = None) -> None:
        self.model = model
        self.rows = rows
        self.index: NeighbourIndex = build_index(rows.inputs.numpy() / model.lengths, groups=groups)

    def _reach(self, k: int) -> int:
        """Neighbours to ask for: k, or every row where k leaves out only one (a left-out row loses itself anyway)."""
        n = len(self.rows)
        return n if k >= n - 1 else k

    def left_out_ids(self, which: np.ndarray, k: int) -> np.ndarray:
        """Neighbours (b, k) of the observations `which` (b,), each left out.

        A row of several observations loses one only: it stays among its neighbours for the others.
        """
        observations = self.rows.observations
        row = observations.row.numpy()[which]
        total = self.model.likelihood.counts(self.rows.stats).numpy()[row]
        alone = total - np.minimum(observations.weights.numpy()[which], 1.0) <= 1e-12 * total
        query = self.rows.inputs.numpy()[row] / self.model.lengths
        if self.rows.groups is not None:
            return self._outside(query, row, self._reach(k))
        return self.index.query(query, self._reach(k), np.where(alone, row, -1)).ids

    def _outside(self, query: np.ndarray, row: np.ndarray, k: int) -> np.ndarray:
        """Neighbours (b, k) of the rows `row` (b,) among those of other groups."""
        assert self.rows.groups is not None
        labels = self.rows.groups.numpy()
        own = labels[row]
        return query_where(self.index, query, k, lambda places, ids: labels[ids] != own[places][:, None])

    def earlier_ids(self, which: np.ndarray, k: int, rank: np.ndarray) -> np.ndarray:
        """Neighbours (b, k) of the rows `which` (b,) among those of a lower rank (n,)."""
        return earlier_neighbours(self.index, self.rows.inputs.numpy() / self.model.lengths, which, k, rank)

    def own_ids(self, which: np.ndarray, k: int) -> np.ndarray:
        """The rows `which` (b,) themselves and their nearest neighbours, k in all."""
        query = self.rows.inputs.numpy()[which] / self.model.lengths
        others = self.index.query(query, k, which).ids[:, : k - 1]
        return np.concatenate([which[:, None], others], axis=1)

    def left_out(self, which: np.ndarray, ks: np.ndarray) -> Swept:
        """Moments (b, len(ks)) + latents of the observations `which` (b,), each left out, for each k in ks."""
        parts = []
        for block in self._blocks(len(which), int(ks[-1])):
            ids = torch.from_numpy(self.left_out_ids(which[block], int(ks[-1])))
            own = torch.from_numpy(which[block])
            query = self.rows.inputs.numpy()[self.rows.observations.row.numpy()[which[block]]]
            parts.append(self._nested(torch.from_numpy(query), ids, ks, own))
        return _join(parts)

    def new(self, query: np.ndarray, k: int) -> Swept:
        """Moments (b,) + latents of new rows, inputs (b, d), from their k nearest training rows."""
        parts = []
        for block in self._blocks(len(query), k):
            ids = torch.from_numpy(self.index.query(query[block] / self.model.lengths, self._reach(k)).ids)
            parts.append(self._nested(torch.from_numpy(query[block]), ids, np.array([k]), None))
        return _join(parts).at(0)

    def covariance(self, query: np.ndarray, k: int) -> np.ndarray:
        """Covariances (b, P, P) between the outputs of new rows, inputs (b, d), where the model links them."""
        parts = []
        for block in self._blocks(len(query), k):
            ids = self.index.query(query[block] / self.model.lengths, self._reach(k)).ids
            parts.append(self._covariance(query[block], ids, None))
        return np.concatenate(parts)

    def left_out_covariance(self, which: np.ndarray, k: int) -> np.ndarray:
        """The same of the observations `which` (b,), each left out."""
        parts = []
        for block in self._blocks(len(which), k):
            query = self.rows.inputs.numpy()[self.rows.observations.row.numpy()[which[block]]]
            parts.append(self._covariance(query, self.left_out_ids(which[block], k), torch.from_numpy(which[block])))
        return np.concatenate(parts)

    def _covariance(self, query: np.ndarray, ids: np.ndarray, own: torch.Tensor | None) -> np.ndarray:
        left_out = None if own is None else self.rows.observations.take(own)
        ks = np.array([ids.shape[1]])
        with torch_alone():
            m = self.model.latent_nested(self.rows, torch.from_numpy(query), torch.from_numpy(ids), ks, left_out)
        return (torch.diag_embed(m.variance) if m.covariance is None else m.covariance)[:, 0].numpy()

    def settle(self, k: int, which: np.ndarray | None = None) -> int:
        """Sweep over the rows `which` (all by default) until their auxiliaries have settled; returns the sweeps.

        A sweep sees the auxiliaries of the one before, so the answer does not depend on the blocks.
        """
        likelihood, rows = self.model.likelihood, self.rows
        if likelihood.auxiliaries == 0 or likelihood.learned_auxiliary:
            return 0
        which = np.arange(len(rows)) if which is None else which
        query = rows.inputs.numpy()[which]
        ids = np.empty((len(which), self._reach(k)), np.int32)
        for block in self._blocks(len(which), k):
            ids[block] = self.index.query(query[block] / self.model.lengths, self._reach(k)).ids
        sweeps, change = 0, math.inf
        while sweeps < _MOST_SWEEPS and change > _SETTLED:
            sweeps += 1
            fresh = np.concatenate([self._refreshed(which[b], query[b], ids[b]) for b in self._blocks(len(which), k)])
            old = rows.auxiliary.numpy()[which]
            rows.auxiliary.numpy()[which] = fresh
            size = np.maximum(np.maximum(np.abs(fresh), np.abs(old)), np.finfo(float).tiny)
            change = float((np.abs(fresh - old) / size).mean())  # row by row: outliers have huge auxiliaries
        return sweeps

    def _refreshed(self, which: np.ndarray, query: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Auxiliaries (b, A) of rows, each given all rows, itself among them."""
        with torch_alone(), torch.no_grad():
            places = torch.from_numpy(ids.astype(np.int64))
            m = self.model.latent_nested(self.rows, torch.from_numpy(query), places, np.array([places.shape[1]]))
            stats = torch.from_numpy(self.rows.stats.numpy()[which])
            return self.model.likelihood.refreshed(
                stats, m.mean[:, 0], m.variance[:, 0], self.model.noise_model
            ).numpy()  # fmt: skip

    def _nested(self, query: torch.Tensor, ids: torch.Tensor, ks: np.ndarray, own: torch.Tensor | None) -> Swept:
        last = np.array([self._reach(int(k)) for k in ks])
        near = np.minimum(last, NEAR)
        asked = np.union1d(last, near)
        with torch_alone():
            left_out = None if own is None else self.rows.observations.take(own)
            m = self.model.latent_nested(self.rows, query, ids, asked, left_out)
        mean, variance, quad = (x.numpy() for x in (m.mean, m.variance, m.quad))
        if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            raise FloatingPointError(
                "a prediction is not finite: the rows or the hyper-parameters hold values that overflow. "
                "Check the table for extreme values."
            )
        used = np.cumsum(self._counts(ids.numpy(), left_out), axis=1)
        at, at_near = np.searchsorted(asked, last), np.searchsorted(asked, near)
        return Swept(
            mean[:, at], variance[:, at], quad[:, at], used[:, last - 1], quad[:, at_near], used[:, near - 1],
            m.jittered,
        )  # fmt: skip

    def _counts(self, ids: np.ndarray, left_out: Observations | None) -> np.ndarray:
        """How many observations each neighbour stands for (b, k) or (b, k, P), zero where there is none."""
        seen = self.model.likelihood.seen(self.rows.stats).numpy()
        further = (1,) * (seen.ndim - 1)  # dimensions behind the neighbours
        counts = np.where((ids >= 0).reshape(*ids.shape, *further), seen[np.maximum(ids, 0)], 0.0)
        if left_out is None:
            return counts
        own = (ids == left_out.row.numpy()[:, None]) * np.minimum(left_out.weights.numpy(), 1.0)[:, None]
        return counts - own.reshape(*ids.shape, *further) * (counts > 0)

    def _blocks(self, n: int, k: int) -> list[slice]:
        width = max(k, 1) * math.prod(self.model.likelihood.latents)
        size = max(1, _BLOCK_NUMBERS // width)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _join(parts: list[Swept]) -> Swept:
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _MOMENTS}
    return replace(parts[0], **joined, jittered=sum(part.jittered for part in parts))
