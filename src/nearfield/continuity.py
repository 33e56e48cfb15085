"""Hard or continuous neighbourhoods: what was asked for, or what left-out rows prefer.

Training has hard neighbourhoods, which cost less. In few dimensions predictions have continuous ones unless left-out
rows are predicted clearly worse with them; in more dimensions, where all neighbours are about equally far, hard ones
unless they are clearly better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nearfield.calibration import Calibrated, calibrate, candidate_ks, trials
from nearfield.moments import Moments
from nearfield.progress import HIDDEN, Bars
from nearfield.sweep import Sweeper
from nearfield.taper import Taper

FEW_COLUMNS = 3  # that vary; longitude and latitude are two
_COMPARED = ((512, 1000), (1024, 250))  # left-out rows that tell which is better, for up to so many neighbours
_WORSE, _BETTER = 0.01, 0.02  # accuracy that continuous ones may lose in few dimensions, and must gain in more


def first_taper(continuous: bool | str, columns: int) -> Taper | None:
    """As asked for; "auto": as the number of columns that vary has it."""
    if continuous == "auto":
        continuous = columns <= FEW_COLUMNS
    return Taper() if continuous else None


def calibrate_either(
    sweeper: Sweeper,
    sample: np.ndarray,
    counted: np.ndarray,
    k: int | str,
    calibrated: bool,
    unit: np.ndarray,
    outer: tuple[Moments, np.ndarray] | None,
    choose: bool,
    bars: Bars = HIDDEN,
) -> Calibrated:
    """What `calibrate` finds for the sweeper; if it may `choose`, or for one with the other neighbourhoods.

    Where all rows are neighbours both predict the same but for the roughness of the nearest few, and nothing is chosen.
    """
    given = (sample, counted, k, calibrated, unit)
    found = calibrate(sweeper, *given, outer, bars)
    if not choose or outer is not None or found.choice.k >= len(sweeper.rows) - 1:
        return found
    other = sweeper.tapered(Taper() if sweeper.taper is None else None)
    with bars.bar("comparing neighbourhoods", 1.0) as bar:
        gain = _gain(sweeper, other, *given[:2], found.choice.k, isinstance(k, int), calibrated, unit, bar.add)
    if sweeper.taper is not None:
        return calibrate(other, *given, bars=bars) if gain > _WORSE else found
    if gain <= _BETTER:
        return found
    return calibrate(other, *given, bars=bars)


def _gain(
    sweeper: Sweeper,
    other: Sweeper,
    sample: np.ndarray,
    counted: np.ndarray,
    k: int,
    fixed: bool,
    calibrated: bool,
    unit: np.ndarray,
    done: Callable[[float], None],
) -> float:
    """Accuracy that other neighbourhoods gain on the same left-out rows.

    k is the choice for the sweeper; hard neighbourhoods may also be smaller, which costs nothing, unless k is fixed.
    done: told of each share more that is done.
    """
    model, rows = sweeper.model, sweeper.rows
    calibrator = model.family.calibrator(rows.observed, model.parameters, calibrated, unit)
    most = next((number for top, number in _COMPARED if k * model.covariance.matrix_rows <= top), _COMPARED[-1][1])
    some = slice(None, None, -(-len(sample) // most))
    observations = replace(rows.observations.take(sample[some]), weights=counted[some])
    noise = model.noise + model.family.known_noise(observations.observed)
    every = candidate_ks(len(rows) - 1, model.covariance.matrix_rows, model.family.own_factors)
    fewer = np.array([k]) if fixed or other.taper is not None else np.append(every[(every >= k / 4) & (every < k)], k)

    def best(own: Sweeper, ks: np.ndarray) -> float:
        several = model.covariance.matrix_rows > 1
        moments = own.left_out(sample[some], ks, several, lambda more: done(more / (2 * len(observations))))
        left_out = model.family.left_out(ks, moments, observations, noise)
        return max(trial.accuracy for trial in trials(left_out, ks, calibrator).values())

    return best(other, fewer) - best(sweeper, np.array([k]))
