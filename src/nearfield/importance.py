"""How much each column matters: what left-out rows lose in score when it is shuffled among them.

Each left-out row is predicted from its nearest neighbours without itself, once where it is and once where one of the
columns has the value of another left-out row. Its neighbours keep theirs. The model is not trained again, so of two
columns that tell the same either may do the other's work, and both then seem to matter little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nearfield.families import Observations
from nearfield.prediction import Predictor
from nearfield.scaling import Scaling

_MOST_ROWS = 1000  # left-out rows: the mean score is then sure to a few hundredths of its spread
_MOST_NEIGHBOURS = 64  # enough to tell columns apart, and one sweep for each column and shuffle
_SHUFFLES = 3
_SEED = 0


def shuffled_losses(
    predictor: Predictor,
    score: Callable[[Any, Observations], np.ndarray],
    groups: Sequence[Sequence[int]] | None = None,
    scaling: Scaling | None = None,
) -> np.ndarray:
    """Mean score of left-out rows less that with the columns of a group shuffled, (number of groups,).

    score: log densities (b,) of observations from what the head predicted. groups: numbers of the columns that are
    shuffled together, as those that one column of a table became; by default each column is one. scaling: what
    standardised the inputs, where one column may be part of several coordinates. None is below zero: a
    column that is better shuffled tells nothing. One that is the same everywhere gets exactly zero.
    """
    rows = predictor.rows
    rng = np.random.default_rng(_SEED)
    n = len(rows.observations)
    which = np.arange(n) if n <= _MOST_ROWS else np.sort(rng.choice(n, _MOST_ROWS, replace=False))
    left_out = rows.observations.take(which)
    inputs = rows.inputs[left_out.row]
    orders = [rng.permutation(len(which)) for _ in range(_SHUFFLES)]
    replaced = (scaling or Scaling(np.zeros(inputs.shape[1]), np.ones(inputs.shape[1]))).replaced
    groups = [[column] for column in range(inputs.shape[1])] if groups is None else groups

    def scores(of: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Those of the left-out rows `of` (c,) where they are put, (c, d)."""
        return score(predictor.elsewhere(which[of], at, _MOST_NEIGHBOURS), left_out.take(of))

    every, weights, losses = np.arange(len(which)), left_out.weights, np.zeros(len(groups))
    whole = scores(every, inputs)
    for place, group in enumerate(groups):
        columns = list(group)
        if (inputs[:, columns] == inputs[:1, columns]).all():
            continue
        moved = np.concatenate([replaced(inputs, inputs[order], columns) for order in orders])
        of = np.tile(every, _SHUFFLES)
        stays = (moved == inputs[of]).all(axis=1)  # rare levels: most rows get the value that they have
        if stays.all():
            continue
        found = whole[of]
        found[~stays] = scores(of[~stays], moved[~stays])
        losses[place] = max(float(np.average(whole[of] - found, weights=weights[of])), 0.0)
    return losses
