"""Approximate search: how many boxes a query looks into, what it misses, and what that costs on left-out rows.

Asked for only (`search="approximate"`). Training, the choice of k and calibration search exactly. Then the budget of
boxes doubles, from twice as many as hold k rows, until left-out rows find RECALL of their nearest neighbours on
average. Boxes are visited nearer ones first, as in an exact search, which then stops. If so many boxes take longer than
brute force does, the search stays exact: nothing could be gained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nearfield.families import Calibrator
from nearfield.prediction import Predictor
from nearfield.sweep import Sweeper

SEARCHES = ("exact", "approximate")
RECALL = 0.95
_ASKED = 500  # left-out rows


class Approximation(NamedTuple):
    """Boxes that a query looks into, the share of the neighbours of left-out rows that are found in them, and the mean
    negative log density of these rows given the neighbours found, and given the nearest. No boxes: exact."""

    leaves: int | None
    recall: float
    nll: float
    exact_nll: float


EXACT = Approximation(None, 1.0, 0.0, 0.0)


def approximated(predictor: Predictor, calibrator: Calibrator, sample: np.ndarray) -> Approximation:
    """What the observations `sample` (b,), each left out, say of an approximate search."""
    exact, k = predictor.sweeper, predictor.k
    if exact.whole(k) or k >= len(exact.rows) - 1:
        return EXACT  # all rows are neighbours
    which = sample[:: -(-len(sample) // _ASKED)]
    wanted, searched = exact.left_out_ids(which, k), exact.rows.searched
    boxes = searched.boxes(exact.lengths)
    leaves = max(1, -(-2 * k * len(boxes.panels) // len(boxes)))
    while leaves < len(boxes.panels) and not searched.is_dearer(leaves, exact.metric):
        other = Sweeper(exact.model, exact.rows, taper=exact.taper, leaves=leaves)
        recall = _recall(other.left_out_ids(which, k), wanted)
        if recall >= RECALL:
            return Approximation(leaves, recall, *(_nll(own, predictor, calibrator, which) for own in (other, exact)))
        leaves *= 2
    return EXACT


def _recall(found: np.ndarray, wanted: np.ndarray) -> float:
    """The share of the ids that were wanted (b, k), -1 for none, that were found (b, k), on average over rows."""
    shares = [np.isin(row[row >= 0], own).mean() for row, own in zip(wanted, found, strict=True) if (row >= 0).any()]
    return float(np.mean(shares)) if shares else 1.0


def _nll(sweeper: Sweeper, predictor: Predictor, calibrator: Calibrator, which: np.ndarray) -> float:
    """Of the observations `which` (b,), each left out, with the head of the predictor."""
    model, ks = predictor.model, np.array([predictor.k])
    observations = sweeper.rows.observations.take(which)
    observations = replace(observations, weights=np.ones(len(which)))
    moments = sweeper.left_out(which, ks, covariance=model.covariance.matrix_rows > 1)
    noise = model.noise + model.family.known_noise(observations.observed)
    left_out = model.family.left_out(ks, moments, observations, noise).at(predictor.k)
    return calibrator.scores(left_out, predictor.head)["nll"]
