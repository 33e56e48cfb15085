"""The predictor: model, rows, index, k and head; what is kept of a fit, and predicts in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from nearfield.calibration import ALL_ROWS, Head
from nearfield.model import Model, Rows
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper, Swept

_BLOCK_ROWS = 8192


class Predicted(NamedTuple):
    """Predictions (b,) in standardised units: centre, scale of an observation and scale of the latent function."""

    loc: np.ndarray
    scale: np.ndarray
    latent_scale: np.ndarray


@dataclass(frozen=True, eq=False)
class Predictor:
    """Predicts from the k nearest of the rows; from all of them where k leaves out no more than one."""

    model: Model
    rows: Rows
    k: int
    head: Head

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_sweeper"}  # the index is rebuilt

    @cached_property
    def _sweeper(self) -> Sweeper:
        return Sweeper(self.model, self.rows)

    @property
    def _noise(self) -> float:
        return float(self.model.noise.detach())

    def predict(self, X: np.ndarray, scaling: Scaling) -> Predicted:
        """Predictions for new inputs (n, d) in the user's units, block by block: memory grows with the answer alone."""
        answer = Predicted(*(np.empty(len(X)) for _ in Predicted._fields))
        for start in range(0, len(X), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            part = self._predicted(self._sweeper.new(scaling.apply(X[block]), self.k), self._noise)
            for whole, piece in zip(answer, part, strict=True):
                whole[block] = piece
        return answer

    def left_out(self) -> Predicted:
        """Predictions for every training row from the others."""
        which = np.arange(len(self.rows))
        swept = self._sweeper.left_out(which, np.array([self.k])).at(0)
        return self._predicted(swept, self._noise + self.rows.known_noise.numpy())

    def extended(self, more: Rows) -> Predictor:
        """The same hyper-parameters with more rows. Where all rows were neighbours, up to ALL_ROWS still are."""
        names = ("inputs", "targets", "weights", "known_noise")
        rows = Rows(*(torch.cat([getattr(self.rows, name), getattr(more, name)]) for name in names))
        k = self.k if self.k < len(self.rows) - 1 else min(max(self.k, ALL_ROWS), len(rows) - 1)
        return Predictor(self.model, rows, max(k, 1), self.head)

    def _predicted(self, swept: Swept, noise: np.ndarray | float) -> Predicted:
        return Predicted(swept.mean, *self.head.scales(swept, noise))
