"""After training: how many neighbours to predict with, and the head that goes with them, both from left-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from nearfield.families import Calibrator
from nearfield.sweep import Sweeper

MOST_NEIGHBOURS = 512
_LARGEST_BLOCK = 512  # numbers of them that a matrix of several outputs may have
_FEWEST_MOST = 16  # neighbours, however many outputs there are
ALL_ROWS = 128  # up to so many other rows, all are neighbours and nothing needs choosing
_LADDER = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_PRICE = 0.02  # accuracy that 256 neighbours must earn over ALL_ROWS neighbours, whose cost is not counted
_FINISHED_ROWS = 1000  # left-out rows with covariances, to learn how far correlations between outputs can be trusted


class LeftOutRows(Protocol):
    """Left-out observations with their moments for several k."""

    @property
    def ks(self) -> np.ndarray: ...

    def at(self, k: int) -> Any:
        """The same observations with the moments of a single k."""
        ...


@dataclass(frozen=True)
class Choice:
    """The number of neighbours, the head that goes with it, and why."""

    k: int
    head: Any
    reason: str
    curve: dict[int, float]  # left-out accuracy of each k that was tried


@dataclass(frozen=True)
class Calibrated:
    """A choice, its scores on left-out rows in the units of the target, and how many rows needed extra jitter."""

    choice: Choice
    scores: dict[str, float]
    jittered: int


def most_neighbours(outputs: int = 1, several: bool = False) -> int:
    """As many as are worth their cost, where each adds that many outputs to a matrix.

    several: whether each of several latent functions has a factorisation of its own.
    """
    most = MOST_NEIGHBOURS // 2 if several else MOST_NEIGHBOURS
    return most if outputs == 1 else min(most, max(_LARGEST_BLOCK // outputs, _FEWEST_MOST))


def all_rows(outputs: int = 1) -> int:
    """Up to so many other rows, all are neighbours and nothing needs choosing."""
    return min(ALL_ROWS, most_neighbours(outputs))


def candidate_ks(n_others: int, outputs: int = 1, several: bool = False) -> np.ndarray:
    """Numbers of neighbours worth trying where n_others other rows are to be had."""
    top = min(n_others, most_neighbours(outputs, several))
    return np.array([k for k in _LADDER if k < top] + [top])


def calibrate(sweeper: Sweeper, sample: np.ndarray, k: int | str, calibrated: bool, unit: np.ndarray) -> Calibrated:
    """The number of neighbours, where k is "auto", and the head, from the left-out observations `sample` (b,)."""
    model, rows = sweeper.model, sweeper.rows
    calibrator = model.family.calibrator(rows.observed, model.parameters, calibrated, unit)
    observations = rows.observations.take(sample)
    noise = model.noise + model.family.known_noise(observations.observed)

    def choose(ks: np.ndarray) -> Calibrated:
        moments = sweeper.left_out(sample, ks)
        left_out = model.family.left_out(ks, moments, observations, noise)
        choice = choose_k(left_out, calibrator, model.covariance.matrix_rows)
        return Calibrated(choice, calibrator.scores(left_out.at(choice.k), choice.head), moments.jittered)

    several = model.family.latents > 1 and not model.family.shared_noise
    found = _choose(choose, k, len(rows) - 1, model.covariance.matrix_rows, several)
    if model.covariance.matrix_rows == 1:
        return found
    few = slice(None, None, -(-len(sample) // _FINISHED_ROWS))
    ks = np.array([found.choice.k])
    moments = sweeper.left_out(sample[few], ks, covariance=True)
    left_out = model.family.left_out(ks, moments, rows.observations.take(sample[few]), noise[few])
    head = calibrator.finish(left_out.at(found.choice.k), found.choice.head)
    return replace(found, choice=replace(found.choice, head=head))


def _choose(
    choose: Callable[[np.ndarray], Calibrated], k: int | str, n_others: int, outputs: int, several: bool
) -> Calibrated:
    """The choice among the k that are worth trying, in one or two rounds.

    A sweep with few neighbours is cheap; the dear one with all that may be used follows only where the largest of these
    were the best.
    """
    whole = all_rows(outputs)
    if isinstance(k, int) or n_others <= whole:
        found = choose(np.array([k if isinstance(k, int) else max(n_others, 1)]))
        reason = "as asked for" if isinstance(k, int) else "all other rows"
        return replace(found, choice=replace(found.choice, reason=reason))
    every = candidate_ks(n_others, outputs, several)
    cheap = every[every <= whole]
    found = choose(cheap)
    if found.choice.k not in cheap[-2:]:
        return found
    further = choose(every)
    return replace(further, jittered=found.jittered + further.jittered)


def choose_k(rows: LeftOutRows, calibrator: Calibrator, outputs: int = 1) -> Choice:
    """The k with the best accuracy on left-out rows, less a price for its cost.

    outputs: that each neighbour adds to a matrix; as many predictions then share the cost.
    """
    heads = {int(k): calibrator.trial(rows.at(k)) for k in rows.ks}
    curve = {k: calibrator.accuracy(rows.at(k), head) for k, head in heads.items()}
    best = max(curve, key=lambda k: curve[k])
    worth = {k: accuracy - _price(k, outputs) for k, accuracy in curve.items()}
    k = min(k for k in curve if worth[k] >= max(worth.values()) - calibrator.slack)
    reason = "left-out " + calibrator.describe(rows.at(k), heads[k])
    if k != best:
        cost = _work(best * outputs) / _work(k * outputs)
        reason += f"; {best} would give {calibrator.describe(rows.at(best), heads[best])} at {cost:.1f} times the cost"
    return Choice(k, calibrator.fit(rows.at(k)), reason, curve)


def _price(k: int, outputs: int) -> float:
    """Up to ALL_ROWS neighbours a prediction takes well under a tenth of a millisecond and costs nothing."""
    return _PRICE * max(0.0, _work(k * outputs) / outputs - _work(ALL_ROWS)) / (_work(256) - _work(ALL_ROWS))


def _work(k: int) -> float:
    """Operations to predict a row from k neighbours: the factorisation and the kernel."""
    return k**3 / 3 + 40 * k**2
