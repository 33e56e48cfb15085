"""The predictor: model, rows, index, k and head; what is kept of a fit, and predicts in blocks. Standardised units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from nearfield.calibration import Head
from nearfield.model import Model, Rows
from nearfield.sweep import Sweeper, Swept


class Predicted(NamedTuple):
    """Predictions (b,): centre, scale of an observation and scale of the latent function."""

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

    def predict(self, query: np.ndarray) -> Predicted:
        """Predictions for new inputs (b, d)."""
        return self._predicted(self._sweeper.new(query, self.k), self._noise)

    def left_out(self) -> Predicted:
        """Predictions for every training row from the others."""
        which = np.arange(len(self.rows))
        swept = self._sweeper.left_out(which, np.array([self.k])).at(0)
        return self._predicted(swept, self._noise + self.rows.known_noise.numpy())

    def extended(self, more: Rows) -> Predictor:
        """The same hyper-parameters with more rows."""
        names = ("inputs", "targets", "weights", "known_noise")
        rows = Rows(*(torch.cat([getattr(self.rows, name), getattr(more, name)]) for name in names))
        return Predictor(self.model, rows, self.k, self.head)

    def _predicted(self, swept: Swept, noise: np.ndarray | float) -> Predicted:
        return Predicted(swept.mean, *self.head.scales(swept, noise))
