"""Training on all rows of a small table, or on a sample of a large one: L-BFGS, each row left out by one factorisation.

The score is that of LOO-k with k = n - 1, exact and without chance, so that a quasi-Newton method goes all the way to
its optimum. Where rows are few, many length scales can be fitted to the left-out residuals by chance. So where the
sites are the observations themselves (`Family.exact_sites`) the joint density of the rows has a share in the score,
1 / (1 + (n / RARE)^2), which fades as rows grow: it does not overfit, and leaving out is what bears a
model which is wrong (docs/decisions/014).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from nearfield.families import Parameters
from nearfield.model import AllRows, Model, bounded
from nearfield.objectives import beside_prior, left_out_score, prior
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.training import Run, Schedule

RARE = 500.0  # rows at which the joint density and leaving out have equal shares
_SMALL_GAIN = 3e-3  # of the log density of all rows together, in one iteration: then the optimum is found
_ROUNDS = 4  # of site state and parameters, in turns
_PROMISING = -1.15  # score of a sample: a quarter better than that of a constant prediction, -(1 + log 2 pi) / 2
_LEAST_NOISE = 1e-4  # a sample in which there seems to be none says little about the noise of others
_WIDEST = 30.0  # longest over shortest length scale: the same of columns that do not matter

Shift = Mapping[str, float]
"""What is added to starting values, by name."""

STARTS: tuple[Shift, ...] = tuple(
    MappingProxyType({name: math.log(by) for name, by in start.items()})
    for start in (
        {"log_noise": 0.1},
        {"log_lengths": 4.0, "log_scale": 4.0, "log_noise": 3.0},
        {"log_lengths": 6.0, "log_scale": 5.0, "log_noise": 0.01},
    )
)
"""Where training begins: rough and precise, smooth and noisy, smooth and precise. Each of them passes by valleys in
which others end: without noise, or with nothing but noise."""


@dataclass(frozen=True)
class Descent:
    """A stage of training: L-BFGS on a sample of so many rows, or on all where there are no more.

    iterations: at most. start: whether it tries all of `STARTS`, or goes on from where the run is. doubtful: whether to
    go back to the beginning if the sample before this one explained little: a larger one will not lead far either.
    """

    rows: int
    iterations: int
    start: bool = False
    doubtful: bool = False

    def steps(self, schedule: Schedule) -> int:
        """Steps at most."""
        return self.iterations

    def advance(self, run: Run, schedule: Schedule) -> bool:
        """Go to the optimum; True: the stage has ended."""
        if self.doubtful and run.progress.scores[-1] < _PROMISING:
            run.model = run.first
            return True
        which = np.arange(len(run.began))
        if self.rows < len(which):
            which = np.sort(run.rng.choice(len(which), self.rows, replace=False))
        rows = run.rows.sample(which, run.model.family)
        starts = STARTS if self.start else ({},)
        found = [
            descend(run.model, rows, self.iterations, shift, lambda: run.moved(1 / len(starts))) for shift in starts
        ]
        best = min(found, key=lambda one: one.loss)
        if not math.isfinite(best.loss):
            raise FloatingPointError("training stopped: no row has a finite score. Check the table for extreme values.")
        run.model, run.state[which] = best.model, best.rows.state
        if len(rows) < len(run.began):
            run.model = _shifted(run.model, {})
        progress = run.progress
        progress.steps += best.iterations
        progress.jittered += best.jittered
        progress.scores.append(-best.loss)
        progress.errors.append(0.0)
        return True


class Found(NamedTuple):
    """An optimum: the model, the rows with their site state there, and what it took."""

    model: Model
    rows: Rows
    loss: float
    iterations: int
    jittered: int


def _shifted(model: Model, shift: Shift) -> Model:
    """The model moved to a start; one that comes from a sample, with what that sample was too sure of loosened."""
    p = dict(model.parameters)
    for name, by in shift.items():
        if name in p:
            p[name] = p[name] + by
    return model.with_parameters(bounded(loosened(p), model.described()))


def loosened(parameters: Parameters) -> dict[str, np.ndarray]:
    """Parameters learned from a sample, from where more rows may lead anywhere.

    A column without influence has no slope any more, nor has a noise near zero: both would stay for ever.
    """
    p = dict(parameters)
    shortest = p["log_lengths"].min(axis=-1, keepdims=True)
    p["log_lengths"] = np.minimum(p["log_lengths"], shortest + math.log(_WIDEST))
    if "log_noise" in p:
        p["log_noise"] = np.maximum(p["log_noise"], math.log(_LEAST_NOISE))
    return p


def descend(
    model: Model,
    rows: Rows,
    iterations: int,
    shift: Shift = MappingProxyType({}),
    moved: Callable[[], None] = lambda: None,
) -> Found:
    """From the model, moved to a start, to the optimum for these rows; `moved` is called after each iteration.

    Where there is a site state, it and the parameters take turns until a round gains little.
    """
    family, model = model.family, _shifted(model, shift)
    loss, taken, jittered = math.inf, 0, 0
    for _ in range(_ROUNDS if family.state_size else 1):
        rows = rows.with_state(Sweeper(model, rows).settled(len(rows))[0])
        before = loss
        model, loss, steps, extra = _minimise(model, rows, iterations - taken, moved)
        taken, jittered = taken + steps, jittered + extra
        if taken >= iterations or not before - loss > _SMALL_GAIN:
            break
    return Found(model, rows, loss, taken, jittered)


def joint_share(model: Model, rows: Rows) -> float:
    """The share of the joint density in the score. Rows of a group are not independent: their density says nothing.

    Where there are times, nothing else counts: the densities of rows given those before them are the joint density. Nor
    does anything else where there is a buffer, which one factorisation knows nothing of.
    """
    if not model.family.exact_sites or rows.groups is not None:
        return 0.0
    return 1 / (1 + (len(rows) / RARE) ** 2) if rows.in_blocks else 1.0


def loss_of(model: Model, rows: Rows) -> tuple[float, dict[str, np.ndarray], int]:
    """What is minimised, its slopes by the parameters, and how many factorisations needed jitter."""
    observations, share = rows.observations, joint_share(model, rows)
    together = AllRows(model, rows, differentiate=True)
    scored = left_out_score(together, -share / len(rows))
    believed = model.family.believed(rows.state[observations.row], model.parameters)
    weights = observations.weights if believed is None else observations.weights * believed
    total = float(observations.weights.sum())
    pull = -(1 - share) * weights / weights.sum()
    slopes, _ = scored.slopes(pull)
    value, by_prior = prior(model)
    loss = float(pull @ scored.values)
    if share:
        loss -= share * together.found.log_density() / len(rows)
    own, slope = beside_prior(model, loss, total)
    return (
        own + value / total,
        {name: slope * by + np.asarray(by_prior.get(name, 0.0)) / total for name, by in slopes.items()},
        scored.jittered,
    )


class Packing:
    """All parameters of a model as one vector, and back."""

    def __init__(self, model: Model) -> None:
        self._model, self._described = model, model.described()
        sizes = [math.prod(p.shape) for p in self._described.values()]
        self._ends = np.cumsum(sizes)
        owners = [p for p, size in zip(self._described.values(), sizes, strict=True) for _ in range(size)]
        self.bounds = [(p.low, p.high) for p in owners]

    def unpacked(self, vector: np.ndarray) -> Model:
        parts = zip(self._described.items(), np.split(vector, self._ends[:-1]), strict=True)
        return self._model.with_parameters({name: part.reshape(p.shape) for (name, p), part in parts})

    def packed(self, values: Mapping[str, Any]) -> np.ndarray:
        return np.concatenate([np.broadcast_to(values[name], p.shape).ravel() for name, p in self._described.items()])


def _minimise(model: Model, rows: Rows, iterations: int, moved: Callable[[], None]) -> tuple[Model, float, int, int]:
    """L-BFGS within the bounds: the model, its loss, iterations taken, factorisations with jitter."""
    packing, jittered = Packing(model), 0

    def function(vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal jittered
        with np.errstate(all="ignore"):  # what is not finite is refused
            loss, slopes, extra = loss_of(packing.unpacked(vector), rows)
        jittered += extra
        gradient = packing.packed(slopes)
        if not (math.isfinite(loss) and np.isfinite(gradient).all()):
            return _REFUSED, np.zeros(len(vector))
        return loss, gradient

    small = _SMALL_GAIN / float(rows.observations.weights.sum())
    best = scipy.optimize.minimize(
        function, packing.packed(model.parameters), jac=True, method="L-BFGS-B", bounds=packing.bounds,
        callback=lambda _: moved(), options={"maxiter": iterations, "maxcor": 20, "ftol": small, "gtol": 1e-6},
    )  # fmt: skip
    loss = float(best.fun)
    return packing.unpacked(best.x), math.inf if loss >= _REFUSED else loss, int(best.nit), jittered


_REFUSED = 1e10
