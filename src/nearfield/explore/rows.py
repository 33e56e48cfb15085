"""Training rows as a page shows them: some of them drawn at random, and those that others ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.columns import Features
from nearfield.diagnostics.predicted import user_features
from nearfield.families import taken

_DRAWN = 4096


class TrainingRows:
    """Some training rows, drawn at random: features (b, m), targets, and what was given beside them, (b, ..) each.

    Of a model that is mapped from its file, no others are read.
    """

    def __init__(self, model: Any) -> None:
        self._model, most = model, _DRAWN
        n = model._fit.predictor.rows.observations.row.size
        drawn = np.arange(n) if n <= most else np.random.default_rng(0).choice(n, most, replace=False)
        self.observations = np.sort(drawn)
        self.inputs, self.features = self._inputs(self.observations)
        self.targets, self.given = self._observed(self.observations)
        self.all = n <= most
        """whether these are all"""

    def _inputs(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Standardised inputs (b, d), and features (b, m) in the user's units."""
        rows = self._model._fit.predictor.rows
        inputs = np.asarray(rows.inputs[rows.observations.row[observations]])
        return inputs, user_features(self._model, inputs)

    def _observed(self, observations: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Targets (b,) or (b, P), of classes their numbers; and an exposure, trials or known noise."""
        model, family = self._model, self._model._family
        own = taken(model._fit.predictor.rows.observations.observed, observations)
        targets = np.asarray(family.values(own))
        if model._target is not None:
            targets = model._target.undo(targets)
        given = family.given_of(own) if family.kind == "count" else {}
        return targets, {**given, "known_noise": family.known_noise(own)}

    @property
    def extremes(self) -> np.ndarray | None:
        """Lowest and highest features (2, m) of all training rows; None where finding them would take reading all."""
        if self._model._chart is None:
            bounds: np.ndarray = np.stack(self._model._fit.predictor.rows.bounds)
            return user_features(self._model, bounds)
        return np.stack([self.features.min(axis=0), self.features.max(axis=0)]) if self.all else None

    def typical(self) -> int:
        """The place of the row that is nearest to the medians of all columns."""
        return int(np.abs(self.inputs - np.median(self.inputs, axis=0)).mean(axis=1).argmin())

    def numbers(self, observations: np.ndarray) -> np.ndarray:
        """Numbers (b,) of the first given rows that these stand for, from 0."""
        places, given = self._model._places, self._model._row_numbers()[0]
        return np.array([int(given[int((places == one).argmax())]) for one in observations.tolist()], dtype=np.int64)

    def of_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """The other way round: observations (b,) of given rows."""
        given = self._model._row_numbers()[0]
        return np.asarray(self._model._places[np.searchsorted(given, numbers)])

    def nearest(self, X: Features, most: int) -> np.ndarray:
        """Observations (b,) of the rows that are nearest to one row, as the model sees distances."""
        fit = self._model._fit
        ids = fit.predictor.sweeper.new_ids(fit.inputs.apply(X.values), most)[0]
        row = fit.predictor.rows.observations.row
        return np.array([int((row == one).argmax()) for one in ids[:most].tolist() if one >= 0], dtype=np.int64)

    def at(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Features (b, m), targets, and what was given beside them."""
        return self._inputs(observations)[1], *self._observed(observations)
