"""The predictor: model, rows, index, k and head; what is kept of a fit, and predicts in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from nearfield.calibration import all_rows
from nearfield.model import Model, Rows
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper, Swept

_BLOCK_ROWS = 8192


class PredictiveHead(Protocol):
    """From moments to predictions: a named tuple of arrays with one entry a row."""

    def predicted(self, swept: Swept, noise: np.ndarray | float) -> Any: ...


@dataclass(frozen=True, eq=False)
class Predictor:
    """Predicts from the k nearest of the rows; from all of them where k leaves out no more than one."""

    model: Model
    rows: Rows
    k: int
    head: Any  # a PredictiveHead

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_sweeper"}  # the index is rebuilt

    @cached_property
    def _sweeper(self) -> Sweeper:
        return Sweeper(self.model, self.rows)

    @property
    def noise(self) -> np.ndarray | float:
        """Noise variance of an observation, where the likelihood has one: () or (P,)."""
        noise = self.model.noise
        return 0.0 if noise is None else noise.detach().numpy()

    def predict(self, X: np.ndarray, scaling: Scaling) -> Any:
        """Predictions for new inputs (n, d) in the user's units, block by block: memory grows with the answer alone."""
        answer: Any = None
        for start in range(0, len(X), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            part = self.head.predicted(self._sweeper.new(scaling.apply(X[block]), self.k), self.noise)
            if answer is None:
                answer = type(part)(*(np.empty((len(X), *piece.shape[1:])) for piece in part))
            for whole, piece in zip(answer, part, strict=True):
                whole[block] = piece
        return answer

    def left_out(self) -> Any:
        """Predictions for every observation from the others."""
        observations = self.rows.observations
        swept = self._sweeper.left_out(np.arange(len(observations)), np.array([self.k])).at(0)
        return self.head.predicted(swept, self.noise + self.model.likelihood.known_noise(observations.stats).numpy())

    def correlation(self, X: np.ndarray, scaling: Scaling, noisy: bool = True) -> np.ndarray:
        """Correlations (n, P, P) between the outputs at new inputs (n, d) in the user's units.

        noisy: of observations, each with noise of its own; or of the latent functions.
        """
        parts = [
            self._sweeper.covariance(scaling.apply(X[start : start + _BLOCK_ROWS]), self.k)
            for start in range(0, len(X), _BLOCK_ROWS)
        ]
        own = np.diag(np.broadcast_to(self.noise, parts[0].shape[-1:])) if noisy else 0.0
        found: np.ndarray = self.head.correlation(np.concatenate(parts) + own)
        return found

    def extended(self, more: Rows) -> Predictor:
        """The same hyper-parameters with more rows, each a group of its own.

        Where all rows were neighbours, up to `all_rows` still are.

        The auxiliaries of the new rows settle; those of the old ones stay as they are.
        """
        likelihood = self.model.likelihood
        inputs, stats, auxiliary = (
            torch.cat([getattr(self.rows, name), getattr(more, name)]) for name in ("inputs", "stats", "auxiliary")
        )
        groups = self.rows.groups
        if groups is not None:
            groups = torch.cat([groups, groups.max() + 1 + torch.arange(len(more))])
        rows = Rows(inputs, stats, auxiliary, likelihood.observations(stats), groups)
        k = self.k if self.k < len(self.rows) - 1 else min(max(self.k, all_rows(self.model.outputs)), len(rows) - 1)
        longer = Predictor(self.model, rows, max(k, 1), self.head)
        longer._sweeper.settle(longer.k, np.arange(len(self.rows), len(rows)))
        return longer
