"""The only training loop: Algorithm 1 of the paper, with stages that may end early.

Two departures from the paper. The neighbours are searched, at each refresh, only for the rows of the coming
mini-batches; and a stage of the step schedule ends as soon as the leave-one-out score has stopped improving beyond its
noise, so that easy data take seconds. The number of neighbours grows from stage to stage.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from nearfield.families import Observations, Parameter, Parameters, taken
from nearfield.model import Model, bounded
from nearfield.moments import NEAR
from nearfield.objectives import Objective, Scored, prior, prior_weight
from nearfield.rows import Rows, enough
from nearfield.sweep import Sweeper

_STATE = "state"  # name of the learned site state among the parameters that Adam changes
_FACTORS = {"bends": 3.0, _STATE: 10.0}  # of the step size; each row with learned site state is visited seldom
_MOST_REJECTIONS = 20  # in a row; then something is wrong that smaller steps do not mend
_JUDGED = 1000  # observations by which progress is judged
_SMALL_GAIN = 3e-3  # of their mean score, that a refresh must bring for the stage to go on
_CLEAR_GAIN = 0.05  # that the start of a sample must be better by
_CLEAR_SHARE = 0.25  # or of the variance of its latent function, that squared errors must be smaller by


@dataclass(frozen=True)
class Stage:
    """One stage of the schedule: Adam's step size, how many neighbours, and how many refreshes at most."""

    learning_rate: float
    k: int
    refreshes: int

    def steps(self, schedule: Schedule) -> int:
        """Steps at most."""
        return schedule.refresh_every * self.refreshes

    def advance(self, run: Run, schedule: Schedule) -> bool:
        """One refresh; whether the stage has ended."""
        _refresh(run, self, schedule)
        run.progress.refresh += 1
        if run.progress.refresh >= self.refreshes:
            return True
        before, run.scores = run.scores, _judged(run, self.k).values
        return run.progress.refresh >= 2 and _settled(before, run.scores, schedule.patience)


@dataclass(frozen=True)
class Race:
    """Refreshes of a stage from the first start, a single one from that of a sample; left-out rows tell which goes on.

    A sample of a rough function leads astray, so that its start has to be clearly better than what the first one has
    become meanwhile.
    """

    stage: Stage

    def steps(self, schedule: Schedule) -> int:
        """Steps at most."""
        return self.stage.steps(schedule) + schedule.refresh_every

    def advance(self, run: Run, schedule: Schedule) -> bool:
        """Both runs; True: the stage has ended. Without a start of a sample there is nothing to compare."""
        start = run.first.parameters
        if all(np.array_equal(value, start[name]) for name, value in run.model.parameters.items()):
            for _ in range(self.stage.refreshes):
                _refresh(run, self.stage, schedule)
            return True
        rivals, scores = [], []
        for model, refreshes in ((run.first, self.stage.refreshes), (run.model, 1)):
            rival = Run(model, run.began, run.objective, run.rng)
            rival.judged, rival.moved = run.judged, run.moved
            for _ in range(refreshes):
                _refresh(rival, self.stage, schedule)
            rivals.append(rival)
            scores.append(_judged(rival, self.stage.k))
            run.judged = rival.judged
            run.progress.take_over(rival.progress)
        best = rivals[_clearly_better(run, *scores)]
        run.model, run.adam, run.state = best.model, best.adam, best.state
        return True


class Advancing(Protocol):
    """What a stage is: `Stage`, `Race` or `descent.Descent`."""

    def steps(self, schedule: Schedule) -> int: ...

    def advance(self, run: Run, schedule: Schedule) -> bool: ...


@dataclass(frozen=True)
class Schedule:
    """How to train: the stages, the mini-batch size and the number of steps between two searches for neighbours.

    A stage ends early when a refresh has gained nearly nothing; with patience, only when it has lost that many standard
    errors of the gain.
    """

    stages: tuple[Advancing, ...]
    batch_size: int = 128
    refresh_every: int = 50
    patience: float = 0.0

    @property
    def most_steps(self) -> int:
        """Steps if no stage ends early."""
        return sum(stage.steps(self) for stage in self.stages)


@dataclass
class Progress:
    """Where training stands. `scores` and `errors` are the mean leave-one-out log density of the rows visited in each
    refresh, in standardised units, and its standard error."""

    stage: int = 0
    refresh: int = 0  # finished ones, within the stage
    steps: int = 0
    jittered: int = 0  # factorisations that needed more jitter
    rejected: int = 0  # steps not taken because the objective or its gradient was not finite
    scores: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def take_over(self, other: Progress) -> None:
        """Count what another run took, and note its scores."""
        self.steps += other.steps
        self.jittered += other.jittered
        self.rejected += other.rejected
        self.scores += other.scores
        self.errors += other.errors


class Adam:
    """Adam's moving averages of slopes and of their squares, by name; the usual decay rates."""

    def __init__(self) -> None:
        self.steps = 0
        self.first: dict[str, np.ndarray] = {}
        self.second: dict[str, np.ndarray] = {}

    def step(self, values: Parameters, slopes: Parameters, rates: Callable[[str], float]) -> dict[str, np.ndarray]:
        """The values after one step down the slopes."""
        self.steps += 1
        shrink, root = 1 - 0.9**self.steps, math.sqrt(1 - 0.999**self.steps)
        moved = {}
        for name, value in values.items():
            g = slopes[name]
            m = self.first[name] = 0.9 * self.first.get(name, 0.0) + 0.1 * g
            v = self.second[name] = 0.999 * self.second.get(name, 0.0) + 0.001 * g * g
            moved[name] = value - rates(name) / shrink * m / (np.sqrt(v) / root + 1e-8)
        return moved


@dataclass
class Run:
    """All that training changes: what a checkpoint must hold to go on as if nothing had happened.

    The rows stay as they came. Their site state (n, A) as training has it is the run's own, `state`.
    """

    model: Model
    began: Rows
    objective: Objective
    rng: np.random.Generator
    adam: Adam = field(default_factory=Adam)
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.first = self.model
        self.judged: np.ndarray | None = None  # numbers of the observations by which progress is judged
        self.scores = np.zeros(0)  # theirs, after the last refresh
        self.state = self.began.state.copy()
        self.described: dict[str, Parameter] = self.model.described()
        self.moved: Callable[[float], None] = lambda steps: None  # told of steps as they are taken

    @property
    def rows(self) -> Rows:
        """The rows with the site state as it is now."""
        return self.began.with_state(self.state)


def train(
    run: Run,
    schedule: Schedule,
    after_refresh: Callable[[Run], None] = lambda run: None,
    done: Callable[[float], None] = lambda share: None,
) -> Progress:
    """Learn the model's parameters, from where the run stands; calls `after_refresh` after each.

    done: told again and again how far training is, from 0 to 1. A stage that ends early counts as all of its steps.
    """
    progress, most = run.progress, max(schedule.most_steps, 1)
    ends = np.cumsum([0, *(stage.steps(schedule) for stage in schedule.stages)])
    taken = float(progress.refresh * schedule.refresh_every)  # in this stage

    def moved(steps: float) -> None:
        nonlocal taken
        taken += steps
        done(float(min(ends[progress.stage] + taken, ends[progress.stage + 1]) / most))

    run.moved = moved
    while progress.stage < len(schedule.stages):
        if schedule.stages[progress.stage].advance(run, schedule):
            progress.stage, progress.refresh, taken = progress.stage + 1, 0, 0.0
            done(float(ends[progress.stage] / most))
        after_refresh(run)
    return progress


def _judged(run: Run, k: int) -> Scored:
    """The observations by which progress is judged, scored with k neighbours under the model as it is."""
    if run.judged is None:
        n = len(run.began.observations)
        run.judged = np.sort(run.rng.choice(n, min(n, _JUDGED), replace=False))
    rows = run.rows
    ids = run.objective.table(Sweeper(run.model, rows), run.judged, k)
    rows = rows.featured(run.model.covariance.warps, ids)
    return run.objective.score(run.model, rows, rows.observations.take(run.judged), ids)


def _clearly_better(run: Run, first: Scored, second: Scored) -> bool:
    """Whether the second scores of the judged observations are clearly higher than the first, or, where noise hides
    what is gained, at least as high with a latent function that is clearly better."""
    gain, gain_error = _mean(second.values - first.values)
    if gain > max(_CLEAR_GAIN, gain_error):
        return True
    if first.moments is None or second.moments is None or gain < -gain_error or not run.model.family.exact_sites:
        return False
    y = run.model.family.values(run.began.observations.take(np.asarray(run.judged)).observed)
    less, error = _mean((y - first.moments[0][:, 0]) ** 2 - (y - second.moments[0][:, 0]) ** 2)
    return less > max(2 * error, _CLEAR_SHARE * float(second.moments[1].mean()))


def _mean(values: np.ndarray) -> tuple[float, float]:
    """The mean of values (b,) and its standard error."""
    return float(values.mean()), float(values.std()) / math.sqrt(len(values))


def _settled(before: np.ndarray, after: np.ndarray, patience: float) -> bool:
    """Whether the same observations were hardly predicted better after a refresh than before it.

    They are the same, so that even slow progress shows. Where there is patience, they must have become worse by so many
    standard errors.
    """
    gain, error = _mean(after - before)
    return gain < (-patience * error if patience else _SMALL_GAIN)


def _refresh(run: Run, stage: Stage, schedule: Schedule) -> None:
    """Search the neighbours of the coming mini-batches under the current length scales, then take the steps."""
    observations = run.began.observations
    weights = observations.weights
    batches, by_weight = _draw_batches(run.rng, weights, schedule)
    visited, places = np.unique(batches, return_inverse=True)
    ids = run.objective.table(Sweeper(run.model, run.rows), visited, stage.k)
    seeing = np.ones(len(ids)) if run.began.in_blocks else enough((ids[:, :NEAR] >= 0).sum(axis=1)).astype(np.float64)
    run.began = run.began.featured(run.model.covariance.warps, ids)
    scores, counted, rejections = [], [], 0
    total = float(weights.sum())
    for batch, place in zip(batches, places.reshape(batches.shape), strict=True):
        left_out = observations.take(batch)
        counts = (np.ones(len(batch)) if by_weight else left_out.weights) * seeing[place]
        taken_, batch_scores, batch_weights = _step(run, left_out, counts, ids[place], stage.learning_rate, total)
        rejections = 0 if taken_ else rejections + 1
        if rejections > _MOST_REJECTIONS:
            raise FloatingPointError(
                f"training stopped: the objective was not finite in {rejections} steps in a row. "
                "Check the table for extreme values, or pass a smaller learning_rate."
            )
        scores.append(batch_scores)
        counted.append(batch_weights)
    _record(run.progress, np.concatenate(scores), np.concatenate(counted), total)


def _record(progress: Progress, scores: np.ndarray, weights: np.ndarray, total: float) -> None:
    """Note the weighted mean of the scores and its standard error; rows that were visited again add nothing to it."""
    finite = np.isfinite(scores) & (weights > 0)
    if not finite.any():
        raise FloatingPointError("training stopped: no row has a finite score. Check the table for extreme values.")
    scores, weights = scores[finite], weights[finite]
    mean = np.average(scores, weights=weights)
    deviation = np.sqrt(np.average((scores - mean) ** 2, weights=weights))
    progress.scores.append(float(mean))
    progress.errors.append(float(deviation / np.sqrt(min(weights.sum(), total))))


def _draw_batches(rng: np.random.Generator, weights: np.ndarray, schedule: Schedule) -> tuple[np.ndarray, bool]:
    """Numbers (steps, batch) of the observations to come, and whether those that count more are drawn more often.

    Few are all visited in each step, in their order. Many that count differently are drawn as if they were copies: a
    mini-batch in which one row counts for hundreds would tell about that row alone.
    """
    steps, size, n = schedule.refresh_every, schedule.batch_size, len(weights)
    if n <= 2 * size:
        return np.tile(np.arange(n), (steps, 1)), False
    if not (weights == weights[0]).all():
        ends = np.cumsum(weights)
        return np.minimum(np.searchsorted(ends, rng.random((steps, size)) * ends[-1], side="right"), n - 1), True
    if n >= steps * size:
        return rng.choice(n, (steps, size), replace=False), False
    passes = -(-steps * size // n)
    return np.concatenate([rng.permutation(n) for _ in range(passes)])[: steps * size].reshape(steps, size), False


def _step(
    run: Run, left_out: Observations, counted: np.ndarray, ids: np.ndarray, rate: float, total: float
) -> tuple[bool, np.ndarray, np.ndarray]:
    """One Adam step on observations (b,) that count so much (b,), with neighbours ids (b, k); total: of all weights.

    Returns whether it was taken, their scores (b,) and how much these count (b,), nothing where they are not believed.
    Where sites depend on a state, that of the rows just visited is updated.
    """
    model, rows = run.model, run.rows
    drawing = model.family.sampling(run.rng)
    scored = run.objective.score(_with_family(model, drawing), rows, left_out, ids)
    own_state = rows.state[left_out.row]
    believed = model.family.believed(own_state, model.parameters)
    weights = counted if believed is None else counted * believed
    pull = -weights / max(weights.sum(), np.finfo(float).tiny)  # the loss is minus the weighted mean of the scores
    slopes, by_neighbours = scored.slopes(pull)
    value, by_prior = prior(model)
    share = prior_weight(model, -run.progress.scores[-1], total) / total if run.progress.scores else 1 / total
    for name, by in by_prior.items():
        slopes[name] = slopes[name] + by * share
    loss = float(pull @ scored.values) + value * share
    learned = dict(model.parameters)
    if model.family.state_learned:
        penalty, by_own = model.family.penalty(own_state) or (0.0, 0.0)
        loss -= float(np.sum(pull * penalty))
        learned[_STATE] = rows.state
        slopes[_STATE] = _state_slopes(rows, left_out, by_neighbours, -pull[:, None] * by_own)
    finite = math.isfinite(loss) and all(bool(np.isfinite(slopes[name]).all()) for name in learned)
    if finite:
        moved = run.adam.step(learned, slopes, lambda name: rate * _FACTORS.get(name, 1.0))
        if model.family.state_learned:
            run.state = moved.pop(_STATE)
        run.model = model.with_parameters(bounded(moved, run.described))
        if scored.moments is not None:
            _update_state(run, left_out, *scored.moments)
    run.progress.steps += 1
    run.moved(1)
    run.progress.jittered += scored.jittered
    run.progress.rejected += not finite
    return finite, scored.values, weights


def _with_family(model: Model, family: Any) -> Model:
    return model if family is model.family else Model(family, model.covariance, model.mean, model.parameters)


def _state_slopes(rows: Rows, left_out: Observations, by_neighbours: Any, by_own: np.ndarray) -> np.ndarray:
    """Slopes (n, A) by the site state of all rows: as neighbours, and by the penalty of those left out."""
    total = np.zeros_like(rows.state)
    ids, by_state = by_neighbours
    there = ids >= 0
    np.add.at(total, ids[there], by_state[there])
    np.add.at(total, left_out.row, by_own)
    return total


def _update_state(run: Run, left_out: Observations, mean: np.ndarray, variance: np.ndarray) -> None:
    """The site state of the rows that observations belong to, from their left-out moments and their own sites."""
    family = run.model.family
    if family.state_size == 0 or family.state_learned:
        return
    m, v = run.model.posterior(mean, variance, run.rows, left_out)
    observed = taken(run.began.observed, left_out.row)
    run.state[left_out.row] = family.updated_state(observed, m, v, run.model.parameters)


def snapshot(run: Run) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The run as a JSON-able header and arrays, for a checkpoint."""
    arrays = {f"parameter.{name}": value for name, value in run.model.parameters.items()}
    arrays |= {"state": run.state, "scores": run.scores}
    arrays |= {} if run.judged is None else {"judged": run.judged}
    for kind in ("first", "second"):
        arrays |= {f"adam.{kind}.{name}": value for name, value in getattr(run.adam, kind).items()}
    progress = vars(copy.deepcopy(run.progress))
    return {"progress": progress, "adam": run.adam.steps, "rng": run.rng.bit_generator.state}, {
        name: np.asarray(value).copy() for name, value in arrays.items()
    }


def restore(run: Run, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Put the run where `snapshot` was taken."""
    run.progress = Progress(**header["progress"])
    run.rng.bit_generator.state = header["rng"]
    run.adam.steps = header["adam"]
    parts: dict[str, dict[str, np.ndarray]] = {"parameter": {}, "first": {}, "second": {}}
    for key, value in arrays.items():
        kind, _, name = key.removeprefix("adam.").partition(".")
        if name:
            parts[kind][name] = value
    run.adam.first, run.adam.second = parts["first"], parts["second"]
    run.model = run.model.with_parameters({name: parts["parameter"][name] for name in run.model.parameters})
    run.state, run.scores, run.judged = arrays["state"].copy(), arrays["scores"], arrays.get("judged")
