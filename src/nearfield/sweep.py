"""Moments of many rows, block by block, so that memory does not grow with them: left-out training rows or new rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from nearfield.model import Model, Rows
from nearfield.neighbours import Groups, NeighbourIndex, build_index

_BLOCK_NUMBERS = 2**18  # neighbours held at a time, over all rows of a block


NEAR = 16  # neighbours that tell about the closest surroundings of a row


@dataclass(frozen=True)
class Swept:
    """Latent moments of b rows, each (b,), or (b, len(ks)) where asked for several k.

    `used` is how many observations each row was predicted from: its neighbours, each as often as it counts. `near_quad`
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
        """Neighbours (b, k) of the training rows `which` (b,), each left out.

        A row that counts w > 1 times loses one copy only: it stays among its neighbours for the w - 1 others.
        """
        exclude = np.where(self.rows.weights.numpy()[which] > 1, -1, which)
        return self.index.query(self.rows.inputs.numpy()[which] / self.model.lengths, self._reach(k), exclude).ids

    def left_out(self, which: np.ndarray, ks: np.ndarray) -> Swept:
        """Moments (b, len(ks)) of the training rows `which` (b,), each left out, for each k in ks."""
        parts = []
        for block in _blocks(len(which), int(ks[-1])):
            own = which[block]
            ids = torch.from_numpy(self.left_out_ids(own, int(ks[-1])))
            query = torch.from_numpy(self.rows.inputs.numpy()[own])
            parts.append(self._nested(query, ids, ks, torch.from_numpy(own)))
        return _join(parts)

    def new(self, query: np.ndarray, k: int) -> Swept:
        """Moments (b,) of new rows, inputs (b, d), from their k nearest training rows."""
        parts = []
        for block in _blocks(len(query), k):
            ids = torch.from_numpy(self.index.query(query[block] / self.model.lengths, self._reach(k)).ids)
            parts.append(self._nested(torch.from_numpy(query[block]), ids, np.array([k]), None))
        return _join(parts).at(0)

    def _nested(self, query: torch.Tensor, ids: torch.Tensor, ks: np.ndarray, own: torch.Tensor | None) -> Swept:
        counts = self._counts(ids, own)
        m = self.model.latent_nested(self.rows, query, ids, counts)
        last = np.array([self._reach(int(k)) for k in ks]) - 1
        near = np.minimum(last, NEAR - 1)
        mean, variance, quad = (x.numpy() for x in (m.mean, m.variance, m.quad))
        if not np.isfinite(mean[:, last]).all():
            raise FloatingPointError(
                "a prediction is not finite: the rows or the hyper-parameters hold values that overflow. "
                "Check the table for extreme values."
            )
        used = np.cumsum(counts, axis=-1)
        return Swept(
            mean[:, last], variance[:, last], quad[:, last], used[:, last], quad[:, near], used[:, near], m.jittered
        )

    def _counts(self, ids: torch.Tensor, own: torch.Tensor | None) -> np.ndarray:
        """How often each neighbour counts (b, k), zero where there is none."""
        counts = np.where(ids.numpy() >= 0, self.rows.weights.numpy()[np.maximum(ids.numpy(), 0)], 0.0)
        return counts if own is None else counts - (ids.numpy() == own.numpy()[:, None])


def _blocks(n: int, k: int) -> list[slice]:
    size = max(1, _BLOCK_NUMBERS // max(k, 1))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _join(parts: list[Swept]) -> Swept:
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _MOMENTS}
    return replace(parts[0], **joined, jittered=sum(part.jittered for part in parts))
