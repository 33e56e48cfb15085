"""Axes of coordinates: anisotropy that need not follow the columns, found on a sample before training.

A metric on two or three coordinates is a length scale for each, and a shear: each coordinate has some of those behind
it added. Shears are found with all other parameters by L-BFGS on a sample, each row left out by one factorisation, from
where the model without them ends. There they have a slope even if the model without shears sees no direction at all,
which angles have not.

The axes of that metric are orthogonal in the units of the coordinates. They are taken only if other rows, left out of a
sample of their own, clearly prefer them. What follows knows nothing of all this: training begins anew along the axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize

from nearfield.descent import STARTS, Packing, descend, loss_of
from nearfield.model import AllRows, Model
from nearfield.objectives import left_out_score
from nearfield.rows import Rows
from nearfield.sweep import Sweeper

_ROWS = 500  # of a sample
_PATCHED = 1000  # rows of a table from which half of a sample is patches
_PATCHES = 6
_THINNED = 4  # of the nearest rows of a patch, every so many is taken: it may lie on one line of measurements
_FEWEST = 50  # rows; with fewer, axes follow chance
_FEWEST_OTHERS = 150  # rows that judge; with fewer, the same rows do
_ITERATIONS = 60
_STEP = 1e-5  # of differences by a shear
_MOST_SHEAR = 10.0
_CLEAR, _CLEAR_SAME = 2.0, 3.0  # gain over its standard error: of other rows, and of the same


@dataclass(frozen=True, eq=False)
class Axes:
    """Orthogonal axes (p, p), a row each, the one of the longest range first; None: those of the columns stay.

    gain: what left-out rows gain in mean log score, and its standard error.
    """

    rotation: np.ndarray | None
    gain: float = 0.0
    error: float = 0.0


def learned_axes(model: Model, rows: Rows, places: tuple[int, ...], scale: np.ndarray) -> Axes:
    """Axes of the coordinates, which are the inputs `places` (p,) of standardised rows; scale (p,): their units.

    model: where training would begin. Nothing here depends on chance but for a sample with a seed of its own.
    """
    varying = (rows.inputs[:, places] != rows.inputs[:1, places]).any(axis=0)
    if len(rows) < _FEWEST or not varying.all() or model.family.state_learned or model.covariance.matrix_rows > 1:
        return Axes(None)
    rng, family = np.random.default_rng(0), model.family
    first = _sample(rows.inputs[:, places], np.arange(len(rows)), rng)
    rest = np.setdiff1d(np.arange(len(rows)), first)
    others = _sample(rows.inputs[:, places], rest, rng) if len(rest) >= _FEWEST_OTHERS else first
    own = rows.sample(first, family)
    if family.constant(own.observed):
        return Axes(None)
    found = min((descend(model, own, _ITERATIONS, shift) for shift in STARTS), key=lambda one: one.loss)
    if not math.isfinite(found.loss):
        return Axes(None)
    sheared, shears = _sheared_optimum(found.model, found.rows, places)
    judges = rows.sample(others, family)
    turned = sheared, _moved(judges, places, shears)
    better = _scores(*turned) - _scores(found.model, judges)
    weights = judges.observations.weights / judges.observations.weights.sum()
    gain = float(weights @ better)
    error = math.sqrt(float(weights**2 @ (better - gain) ** 2))
    clear = _CLEAR_SAME if others is first else _CLEAR
    if not (math.isfinite(gain) and gain > clear * error and gain > 0):
        return Axes(None, gain, error)
    lengths = np.exp(np.atleast_2d(sheared.parameters["log_lengths"]).mean(axis=0))[list(places)]
    return Axes(axes_of(_matrix(shears, len(places)) / lengths[:, None] / scale), gain, error)


def axes_of(whitening: np.ndarray) -> np.ndarray:
    """Orthogonal axes (p, p) of the metric |whitening x|^2, that of the longest range first; a right-handed system.

    Of each but the last the largest part is above zero.
    """
    _, _, found = np.linalg.svd(whitening)
    axes = found[::-1].copy()
    for axis in axes[:-1]:
        axis *= np.sign(axis[np.argmax(np.abs(axis))])
    axes[-1] *= np.sign(np.linalg.det(axes))
    return axes


def _sample(points: np.ndarray, which: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some of the rows `which`, ascending: drawn at random; of many rows half of them are patches of near ones.

    Predictions come from near rows, and a random few of many rows know nothing of short ranges.
    """
    if len(which) <= _ROWS:
        return which
    if len(which) < _PATCHED:
        return np.sort(rng.choice(which, _ROWS, replace=False))
    chosen = [rng.choice(which, _ROWS // 2, replace=False)]
    each = _ROWS // 2 // _PATCHES
    for centre in rng.choice(which, _PATCHES, replace=False):
        apart = ((points[which] - points[centre]) ** 2).sum(axis=1)
        chosen.append(which[np.argsort(apart, kind="stable")[: each * _THINNED : _THINNED]])
    return np.unique(np.concatenate(chosen))


def _matrix(shears: np.ndarray, p: int) -> np.ndarray:
    """The shears as a matrix (p, p) with ones on its diagonal and zeros below it."""
    found = np.eye(p)
    found[np.triu_indices(p, 1)] = shears
    return found


def _moved(rows: Rows, places: tuple[int, ...], shears: np.ndarray) -> Rows:
    """The rows with their coordinates sheared."""
    inputs = np.array(rows.inputs)
    inputs[:, places] = rows.inputs[:, places] @ _matrix(shears, len(places)).T
    return replace(rows, inputs=inputs, features=None)


def _sheared_optimum(model: Model, rows: Rows, places: tuple[int, ...]) -> tuple[Model, np.ndarray]:
    """From the optimum without shears to that with them: the model and the shears."""
    packing, p = Packing(model), len(places)
    count = p * (p - 1) // 2

    def function(vector: np.ndarray) -> tuple[float, np.ndarray]:
        own, shears = packing.unpacked(vector[:-count]), vector[-count:]
        with np.errstate(all="ignore"):  # what is not finite is refused
            loss, slopes, _ = loss_of(own, _moved(rows, places, shears))
            ahead = [loss_of(own, _moved(rows, places, shears + _STEP * unit))[0] for unit in np.eye(count)]
        gradient = np.append(packing.packed(slopes), (np.array(ahead) - loss) / _STEP)
        if not (math.isfinite(loss) and np.isfinite(gradient).all()):
            return 1e10, np.zeros(len(vector))
        return loss, gradient

    start = np.append(packing.packed(model.parameters), np.zeros(count))
    best = scipy.optimize.minimize(
        function, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS, "ftol": 1e-5},
        bounds=[*packing.bounds, *[(-_MOST_SHEAR, _MOST_SHEAR)] * count],
    )  # fmt: skip
    return packing.unpacked(best.x[:-count]), best.x[-count:]


def _scores(model: Model, rows: Rows) -> np.ndarray:
    """Log scores of all observations of the rows, each left out."""
    settled = rows.with_state(Sweeper(model, rows).settled(len(rows))[0])
    return left_out_score(AllRows(model, settled)).values
