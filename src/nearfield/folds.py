"""Where rows are few for the columns: rows predicted by models that were trained without them.

Rows that are left out after training have had a part in it: length scales follow them by chance, and their errors look
too small. So the rows are dealt into a few folds, a model is trained without each of them, from where the model of all
rows stands, and predicts it. Small tables are trained in a moment. Half of what the model of all rows has learned of
its columns is forgotten before: what it learned by chance, it learned from the rows of the fold, too.
"""

from __future__ import annotations

import numpy as np

from nearfield.descent import descend
from nearfield.model import Model
from nearfield.moments import Moments, in_order
from nearfield.progress import HIDDEN, Bars
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.taper import Taper

_FOLDS = 5
_WORDS = "calibrating, without a part of the rows at a time"
_ITERATIONS = 25  # of L-BFGS, from the optimum of all rows


def outer_moments(
    model: Model, rows: Rows, rng: np.random.Generator, taper: Taper | None = None, bars: Bars = HIDDEN
) -> tuple[Moments, np.ndarray] | None:
    """Moments (u, 1, C) of all observations, and noise variances (u, 1) or (u, C), of models that have not seen them.

    Rows of a group stay together. None if a model would have nothing to learn from.
    """
    group = np.arange(len(rows)) if rows.groups is None else np.unique(rows.groups, return_inverse=True)[1]
    fold = (rng.permutation(int(group.max()) + 1) % _FOLDS)[group]
    row, parts, noises, places = rows.observations.row, [], [], []
    start = _forgetful(model)
    for number in bars.each(_WORDS, np.unique(fold).tolist()):
        own = rows.sample(np.flatnonzero(fold != number), model.family)
        if len(own) < 2 or model.family.constant(own.observed):
            return None
        found = descend(start, own, _ITERATIONS)
        held = np.flatnonzero(fold[row] == number)
        parts.append(Sweeper(found.model, found.rows, taper=taper).new(rows.inputs[row[held]], len(own)))
        known = model.family.known_noise(rows.observations.take(held).observed)
        noises.append(np.broadcast_to(found.model.noise, known.shape) + known)
        places.append(held)
    order = np.argsort(np.concatenate(places), kind="stable")
    return in_order(parts, order), np.concatenate(noises)[order]


def apart_moments(
    model: Model, rows: Rows, k: int, rng: np.random.Generator, taper: Taper | None = None, bars: Bars = HIDDEN
) -> tuple[Moments, np.ndarray] | None:
    """The same where rows see different others: all rows that one may see predict it, with k neighbours.

    What is learned of a model without a fold comes from all other rows, later ones too. Times make folds one after the
    other; else those that a buffer makes one are in one fold.
    """
    every = np.arange(len(rows.observations))
    units = rows.units(every)
    assert units is not None
    number = np.unique(units, return_inverse=True)[1].reshape(-1)
    count = int(number.max()) + 1
    if rows.times is not None:
        place = np.unique(rows.times[rows.observations.row], return_inverse=True)[1].reshape(-1)
        fold = place * _FOLDS // (int(place.max()) + 1)
    else:
        fold = (rng.permutation(count) % _FOLDS)[number]
    of_row = np.zeros(len(rows), dtype=np.int64)
    of_row[rows.observations.row] = fold
    parts, noises, places = [], [], []
    start = _forgetful(model)
    for one in bars.each(_WORDS, np.unique(fold).tolist()):
        own = rows.sample(np.flatnonzero(of_row != one), model.family)
        if len(own) < 2 or model.family.constant(own.observed):
            return None
        found, held = descend(start, own, _ITERATIONS).model, np.flatnonzero(fold == one)
        parts.append(Sweeper(found, rows, taper=taper).left_out(held, np.array([k])).at(0))
        known = model.family.known_noise(rows.observations.take(held).observed)
        noises.append(np.broadcast_to(found.noise, known.shape) + known)
        places.append(held)
    order = np.argsort(np.concatenate(places), kind="stable")
    return in_order(parts, order), np.concatenate(noises)[order]


def _forgetful(model: Model) -> Model:
    """The model with length scales and bends half-way back to what all columns share."""
    p = dict(model.parameters)
    for name, columns in (("log_lengths", -1), ("bends", 0)):
        if name in p:
            p[name] = (p[name] + p[name].mean(axis=columns, keepdims=True)) / 2
    return model.with_parameters(p)
