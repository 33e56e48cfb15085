"""After training: how many neighbours to predict with, and the head that goes with them, both from left-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from nearfield.families import Calibrator, Family
from nearfield.moments import Moments
from nearfield.progress import HIDDEN, Bars
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.taper import Taper

MOST_NEIGHBOURS = 1024
_LARGEST_BLOCK = 512  # numbers of them that a matrix of several outputs may have
_FEWEST_MOST = 16  # neighbours, however many outputs there are
ALL_ROWS = 128  # up to so many other rows, all are neighbours and nothing needs choosing
_LADDER = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_ROUNDS = ((512, 2000), (MOST_NEIGHBOURS, 250))  # dearer sweeps: neighbours at most, and left-out rows that will do
_KEPT_ROWS = 2000  # left-out rows of the dearest sweep, once it is known to pay
FREE = 512  # neighbours with which 10^5 predictions take a minute or so: their cost is not counted
EXACT_ROWS = 1500  # up to so many rows, training leaves all of them out by one factorisation
_CLEAR = 0.02  # accuracy by which fewer neighbours must be better than all rows
EVERY_ROW = "all other rows"  # how a reason begins where there was nothing to choose
_SWEEP = 0.8  # of the time of a round goes into moments, or so; the rest into heads
_PRICE = 0.04  # accuracy that more must earn for each time the work doubles


@dataclass(frozen=True)
class Choice:
    """The number of neighbours, the head that goes with it, and why."""

    k: int
    head: Any
    reason: str
    curve: dict[int, float]  # left-out accuracy of each k that was tried


@dataclass(frozen=True)
class Calibrated:
    """A choice, its scores on left-out rows in the units of the target, how many rows needed extra jitter, and how
    neighbourhoods taper off, if they do."""

    choice: Choice
    scores: dict[str, float]
    jittered: int
    taper: Taper | None = None


def most_neighbours(matrix_rows: int = 1, own_factors: bool = False) -> int:
    """As many as are worth their cost, where each adds that many rows to a matrix.

    own_factors: whether each of several latent functions has a factorisation of its own.
    """
    most = MOST_NEIGHBOURS // 4 if own_factors else MOST_NEIGHBOURS
    return most if matrix_rows == 1 else min(most, max(_LARGEST_BLOCK // matrix_rows, _FEWEST_MOST))


def all_rows(matrix_rows: int = 1) -> int:
    """Up to so many other rows, all are neighbours and nothing needs choosing."""
    return min(ALL_ROWS, most_neighbours(matrix_rows))


def candidate_ks(n_others: int, matrix_rows: int = 1, own_factors: bool = False) -> np.ndarray:
    """Numbers of neighbours worth trying where n_others other rows are to be had."""
    top = min(n_others, most_neighbours(matrix_rows, own_factors))
    return np.array([k for k in _LADDER if k < top] + [top])


def calibrate(
    sweeper: Sweeper,
    sample: np.ndarray,
    counted: np.ndarray,
    k: int | str,
    calibrated: bool,
    unit: np.ndarray,
    outer: tuple[Moments, np.ndarray] | None = None,
    bars: Bars = HIDDEN,
) -> Calibrated:
    """The number of neighbours, where k is "auto", and the head, from the left-out observations `sample` (b,).

    counted: how often each of these counts (b,). outer: of all observations, where k is settled, moments and noise
    variances of models that have not seen them; the head is then judged by these.
    """
    model, rows = sweeper.model, sweeper.rows
    calibrator = model.family.calibrator(rows.observed, model.parameters, calibrated, unit)
    matrix_rows, jittered = model.covariance.matrix_rows, 0

    def tried(ks: np.ndarray, some: slice = slice(None)) -> dict[int, Trial]:
        nonlocal jittered
        observations = replace(rows.observations.take(sample[some]), weights=counted[some])
        what, n = "calibrating" if len(ks) == 1 else f"choosing k, up to {ks[-1]:,}", len(observations)
        with bars.bar(what, 1.0) as bar:
            if outer is None:
                moments = sweeper.left_out(sample[some], ks, matrix_rows > 1, lambda more: bar.add(_SWEEP * more / n))
                noise = model.noise + model.family.known_noise(observations.observed)
            else:
                moments, noise = replace(outer[0].rows(sample), prior=sweeper.prior), outer[1][sample]
            jittered += moments.jittered
            left_out = model.family.left_out(ks, moments, observations, noise)
            bar.reach(_SWEEP)
            return trials(left_out, ks, calibrator, lambda: bar.add((1 - _SWEEP) / len(ks)))

    found, first, reason = _tried(tried, k, sweeper, calibrator, len(sample))
    choice = choose_k(found, calibrator, matrix_rows)
    kept = first.get(choice.k, found[choice.k])  # of all left-out rows, where these were tried with it
    left_out = kept.rows
    head = calibrator.finish(left_out, kept.head)
    units = rows.units(sample)
    if units is not None and len(units) == len(left_out.weights):
        head = calibrator.covering(left_out, head, units)
    remark = calibrator.remark(kept.head)
    choice = replace(choice, head=head, reason=(reason or choice.reason) + (f"; {remark}" if remark else ""))
    return Calibrated(choice, calibrator.scores(left_out, head), jittered, sweeper.taper)


def constant_scores(
    family: Family, rows: Rows, sample: np.ndarray, counted: np.ndarray, unit: np.ndarray
) -> dict[str, float]:
    """Scores of the same left-out observations by the prediction that ignores the inputs; of numbers the RMSE alone."""
    every, some = rows.observations, rows.observations.take(sample)
    numbers = family.baseline(family.values(every.observed), family.given_of(every.observed), every.weights)
    y, given = family.values(some.observed), family.given_of(some.observed)
    constant = family.baseline_distribution(numbers, len(y), given)
    if family.kind in ("number", "numbers"):
        off = np.ma.masked_invalid(y - constant.mean()) ** 2
        errors = np.ma.sqrt(np.ma.average(off, axis=0, weights=counted)) * unit
        return {"rmse": float(np.ma.mean(errors))}
    sums: Any = family.scores
    scores: dict[str, float] = sums.of(y, constant, counted).as_dict()
    return {name: value for name, value in scores.items() if name != "n"}


class Trial(NamedTuple):
    """A number of neighbours that was tried: left-out rows with its moments, a head for them and its accuracy."""

    rows: Any
    head: Any
    accuracy: float


def trials(
    left_out: Any, ks: np.ndarray, calibrator: Calibrator, done: Callable[[], None] = lambda: None
) -> dict[int, Trial]:
    """A trial for each of ks (q,) from left-out rows with the moments of all of them; `done` is called after each."""
    found = {}
    for k in ks.tolist():
        rows = left_out.at(k)
        head = calibrator.fit(rows)
        found[k] = Trial(rows, head, calibrator.accuracy(rows, head))
        done()
    return found


def _tried(
    tried: Callable[..., dict[int, Trial]], k: int | str, sweeper: Sweeper, calibrator: Calibrator, n_sample: int
) -> tuple[dict[int, Trial], dict[int, Trial], str]:
    """The numbers of neighbours to choose from, those of the first round, and why there was no choice, if so.

    A sweep with few neighbours is cheap; a dearer one with some of the rows follows only where the largest of these
    were the best, and where the last step up the ladder makes it likely to pay. It tries the better ones of before
    again, so that the same rows judge them. All rows, where they can be factorised together, are chosen unless fewer
    are clearly better; tables that were trained with all rows need not ask.
    """
    n_others, model = len(sweeper.rows) - 1, sweeper.model
    matrix_rows = model.covariance.matrix_rows
    if isinstance(k, int):
        return tried(np.array([k])), {}, "as asked for"
    every, top = candidate_ks(n_others, matrix_rows, model.family.own_factors), all_rows(matrix_rows)
    together = sweeper.whole(n_others) and sweeper.rows.in_blocks
    if n_others <= top or (together and n_others < EXACT_ROWS):
        return tried(np.array([max(n_others, 1)])), {}, EVERY_ROW
    if together:
        found = tried(np.append(every[every <= top], n_others))
        curve = choose_k(found, calibrator, matrix_rows).curve
        if curve[n_others] > max(curve.values()) - _CLEAR:
            return {n_others: found[n_others]}, {}, f"{EVERY_ROW}: fewer would not be clearly better"
        return found, {}, ""
    found = first = tried(every[every <= top])
    for high, n_rows in _ROUNDS:
        ks = every[(every > top / 4) & (every <= high)]
        if ks[-1] <= top or not _may_pay(found, int(ks[-1]), calibrator, matrix_rows):
            break
        further = tried(ks, slice(None, None, -(-n_sample // n_rows)))
        if n_rows < _KEPT_ROWS:
            if choose_k(further, calibrator, matrix_rows).k <= top:
                break
            further = tried(ks, slice(None, None, -(-n_sample // _KEPT_ROWS)))
        found, top = further, high
    return found, first, ""


def _may_pay(found: Mapping[int, Trial], k: int, calibrator: Calibrator, matrix_rows: int) -> bool:
    """Whether k neighbours, more than were tried, can be worth their price, if they gain as the last doubling did."""
    choice = choose_k(found, calibrator, matrix_rows)
    *_, before, last = sorted(found)
    if choice.k not in (before, last):
        return False
    half = max((k for k in found if k <= last / 2), default=before)
    doublings = float(np.log2(k / last))
    dearer = _price(k, matrix_rows) - _price(last, matrix_rows)
    return dearer == 0 or doublings * (choice.curve[last] - choice.curve[half]) > dearer


def choose_k(tried: Mapping[int, Trial], calibrator: Calibrator, matrix_rows: int = 1) -> Choice:
    """The k with the best accuracy on left-out rows, less a price for its cost.

    matrix_rows: that each neighbour adds to a matrix; as many predictions then share the cost.
    """
    curve = _curve(tried, calibrator)
    best = max(curve, key=lambda k: curve[k])
    worth = {k: accuracy - _price(k, matrix_rows) for k, accuracy in curve.items()}
    k = min(k for k in curve if worth[k] >= max(worth.values()) - calibrator.slack)
    reason = "with so many, left-out rows are predicted best"
    if k != best:
        cost = _work(best * matrix_rows) / _work(k * matrix_rows)
        own, then = (calibrator.describe(tried[number].rows, tried[number].head) for number in (k, best))
        reason = f"left-out rows then have {own}; {best} would give {then}, for {cost:.1f} times the work"
    return Choice(k, tried[k].head, reason, curve)


def _curve(tried: Mapping[int, Trial], calibrator: Calibrator) -> dict[int, float]:
    """Accuracy of each k, less what its latent function is worse than that of the best beyond what noisy rows show.

    The noise of rows hides errors that are small beside it, but is the same for every k: differences of squared errors
    show them, once they are clear.
    """
    curve = {k: trial.accuracy for k, trial in tried.items()}
    best = max(curve, key=lambda k: curve[k])
    beyond = {k: calibrator.beyond_noise(trial.rows, trial.head) for k, trial in tried.items()}
    least = beyond[best]
    if least is None:
        return curve
    squares, expected = least
    for k, own in beyond.items():
        assert own is not None
        more = own[0] - squares
        clear = max(float(more.mean() - more.std() / np.sqrt(len(more))), 0.0)
        latent, noisy = np.log1p(clear / max(expected, 1e-12)), np.log1p(clear / max(float(squares.mean()), 1e-12))
        curve[k] -= 0.25 * max(float(latent - noisy), 0.0)  # half of a logarithm of a root
    return curve


def _price(k: int, matrix_rows: int) -> float:
    """What k neighbours must earn over those that cost nothing."""
    work = _work(k * matrix_rows) / matrix_rows
    if k > MOST_NEIGHBOURS:
        return 0.0  # all rows: one solve
    return _PRICE * max(0.0, float(np.log2(work / _work(FREE))))


def _work(k: int) -> float:
    """Operations to predict a row from k neighbours: the factorisation and the kernel. Of all rows, a solve."""
    if k > MOST_NEIGHBOURS:
        return 2.0 * k**2
    return k**3 / 3 + 40 * k**2
