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
from typing import Any

import numpy as np
import torch

from nearfield._types import Moments
from nearfield.likelihoods import Observations
from nearfield.model import Model, Rows, take
from nearfield.neighbours import Groups, find_groups
from nearfield.objectives import length_prior, loo_objective
from nearfield.sweep import Sweeper

_AUXILIARY_FACTOR = 10.0  # of the step size, for learned auxiliaries: each row is visited seldom
_MOST_REJECTIONS = 20  # in a row; then something is wrong that smaller steps do not mend


@dataclass(frozen=True)
class Stage:
    """One stage of the schedule: Adam's step size, how many neighbours, and how many refreshes at most."""

    learning_rate: float
    k: int
    refreshes: int


@dataclass(frozen=True)
class Schedule:
    """How to train: the stages, the mini-batch size and the number of steps between two searches for neighbours.

    A stage ends early when the score of a refresh exceeds that of the one before by less than `margin` standard errors.
    """

    stages: tuple[Stage, ...]
    batch_size: int = 128
    refresh_every: int = 50
    margin: float = 1.0

    @property
    def most_steps(self) -> int:
        """Steps if no stage ends early."""
        return self.refresh_every * sum(stage.refreshes for stage in self.stages)


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


@dataclass
class Run:
    """All that training changes: what a checkpoint must hold to go on as if nothing had happened."""

    model: Model
    rows: Rows  # their auxiliaries change
    optimiser: torch.optim.Adam
    rng: np.random.Generator
    progress: Progress
    objective: str = "loo"
    rank: np.ndarray | None = None  # (n,) of the rows in the order of Vecchia's objective


def start(
    model: Model, rows: Rows, rng: np.random.Generator, objective: str = "loo", rank: np.ndarray | None = None
) -> Run:
    """A run at its beginning."""
    groups: list[dict[str, Any]] = [{"params": list(model.hyperparameters().values()), "factor": 1.0}]
    if model.likelihood.learned_auxiliary:
        groups.append({"params": [_learned(model, rows)["auxiliary"]], "factor": _AUXILIARY_FACTOR})
    return Run(model, rows, torch.optim.Adam(groups), rng, Progress(), objective, rank)


def _learned(model: Model, rows: Rows) -> dict[str, torch.Tensor]:
    """All tensors that Adam changes, by name."""
    if not model.likelihood.learned_auxiliary:
        return model.hyperparameters()
    return model.hyperparameters() | {"auxiliary": rows.auxiliary.requires_grad_()}


def train(run: Run, schedule: Schedule, after_refresh: Callable[[Run], None] = lambda run: None) -> Progress:
    """Learn the model's hyper-parameters in place, from where the run stands; calls `after_refresh` after each."""
    groups = find_groups(run.rows.inputs.numpy())
    progress = run.progress
    while progress.stage < len(schedule.stages):
        stage = schedule.stages[progress.stage]
        _refresh(run, groups, stage, schedule)
        progress.refresh += 1
        if progress.refresh >= stage.refreshes or _flat(progress, schedule.margin):
            progress.stage, progress.refresh = progress.stage + 1, 0
        after_refresh(run)
    return progress


def _flat(progress: Progress, margin: float) -> bool:
    """Whether the last refresh of this stage has not improved on the one before by `margin` times the noise of both."""
    if progress.refresh < 2:
        return False
    (before, after), errors = progress.scores[-2:], progress.errors[-2:]
    return after - before < margin * math.hypot(*errors)


def _refresh(run: Run, groups: Groups, stage: Stage, schedule: Schedule) -> None:
    """Search the neighbours of the coming mini-batches under the current length scales, then take the steps."""
    weights = run.rows.observations.weights.numpy()
    batches = _draw_batches(run.rng, len(weights), schedule)
    visited, places = np.unique(batches, return_inverse=True)
    ids = _neighbours(run, Sweeper(run.model, run.rows, groups), visited, stage.k)
    for group in run.optimiser.param_groups:
        group["lr"] = stage.learning_rate * group["factor"]
    scores, trusted, rejections = [], [], 0
    for batch, place in zip(batches, places.reshape(batches.shape), strict=True):
        taken, batch_scores, batch_weights = _step(run, torch.from_numpy(batch), torch.from_numpy(ids[place]))
        rejections = 0 if taken else rejections + 1
        if rejections > _MOST_REJECTIONS:
            raise FloatingPointError(
                f"training stopped: the objective was not finite in {rejections} steps in a row. "
                "Check the table for extreme values, or pass a smaller learning_rate."
            )
        scores.append(batch_scores)
        trusted.append(batch_weights)
    _record(run.progress, np.concatenate(scores), np.concatenate(trusted), float(weights.sum()))


def _neighbours(run: Run, sweeper: Sweeper, visited: np.ndarray, k: int) -> np.ndarray:
    """Neighbours (b, k) of the observations `visited` (b,), as the objective wants them."""
    if run.objective == "mll":
        return sweeper.own_ids(visited, k)
    if run.objective == "vecchia":
        assert run.rank is not None
        return sweeper.earlier_ids(visited, k, run.rank)
    return sweeper.left_out_ids(visited, k)


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


def _draw_batches(rng: np.random.Generator, n: int, schedule: Schedule) -> np.ndarray:
    """Numbers (steps, batch) of the observations to come. Few are all visited in each step, in their order."""
    steps, size = schedule.refresh_every, schedule.batch_size
    if n <= 2 * size:
        return np.tile(np.arange(n), (steps, 1))
    if n >= steps * size:
        return rng.choice(n, (steps, size), replace=False)
    passes = -(-steps * size // n)
    return np.concatenate([rng.permutation(n) for _ in range(passes)])[: steps * size].reshape(steps, size)


def _step(run: Run, batch: torch.Tensor, ids: torch.Tensor) -> tuple[bool, np.ndarray, np.ndarray]:
    """One Adam step on the observations `batch` (b,) with neighbours ids (b, k).

    Returns whether it was taken, their scores (b,) and how much these count (b,), nothing where they are not trusted.
    Where a row has auxiliaries, those of the rows just visited are refreshed.
    """
    model, rows, optimiser = run.model, run.rows, run.optimiser
    likelihood, left_out = model.likelihood, rows.observations.take(batch)
    optimiser.zero_grad()
    moments = None
    if run.objective == "mll":
        scores = model.joint(rows, ids) / ids.shape[1]
    else:
        moments = model.latent(rows, take(rows.inputs, left_out.row), ids, left_out, run.rng)
        scores = likelihood.log_predictive(moments.mean, moments.variance, left_out.stats, model.noise_model)
    auxiliary = take(rows.auxiliary, left_out.row)
    penalty, trust = likelihood.penalty(auxiliary), likelihood.trust(auxiliary, model.noise_model)
    weights = left_out.weights if trust is None else left_out.weights * trust
    loss = loo_objective(scores if penalty is None else scores - penalty, weights)
    if likelihood.length_spread is not None:
        total = float(rows.observations.weights.sum())
        loss = loss + length_prior(model.log_lengths, likelihood.length_spread) / total
    loss.backward()
    finite = bool(torch.isfinite(loss)) and all(
        p.grad is None or bool(torch.isfinite(p.grad).all()) for p in _learned(model, rows).values()
    )
    if finite:
        optimiser.step()
        model.project()
        if moments is not None:
            _refresh_auxiliaries(model, rows, left_out, moments)
    run.progress.steps += 1
    run.progress.jittered += 0 if moments is None else moments.jittered
    run.progress.rejected += not finite
    return finite, scores.detach().numpy(), weights.numpy()


def _refresh_auxiliaries(model: Model, rows: Rows, left_out: Observations, moments: Moments) -> None:
    """The auxiliaries of the rows that observations belong to, from their left-out moments and their own sites."""
    if model.likelihood.auxiliaries == 0 or model.likelihood.learned_auxiliary:
        return
    with torch.no_grad():
        m = model.posterior(moments, rows, left_out)
        fresh = model.likelihood.refreshed(take(rows.stats, left_out.row), m.mean, m.variance, model.noise_model)
        rows.auxiliary.numpy()[left_out.row.numpy()] = fresh.numpy()


def state(run: Run) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The run as a JSON-able header and arrays, for a checkpoint."""
    learned = _learned(run.model, run.rows)
    arrays = {f"parameter.{name}": p.detach().numpy().copy() for name, p in learned.items()}
    arrays["auxiliary"] = run.rows.auxiliary.detach().numpy().copy()
    adam = run.optimiser.state_dict()["state"]
    for index, name in enumerate(learned):
        for key, value in adam.get(index, {}).items():
            arrays[f"adam.{name}.{key}"] = value.numpy().copy()
    return {"progress": vars(copy.deepcopy(run.progress)), "rng": run.rng.bit_generator.state}, arrays


def restore(run: Run, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Put the run where `state` was taken."""
    run.progress = Progress(**header["progress"])
    run.rng.bit_generator.state = header["rng"]
    learned = _learned(run.model, run.rows)
    adam: dict[int, dict[str, torch.Tensor]] = {}
    with torch.no_grad():
        run.rows.auxiliary.copy_(torch.from_numpy(arrays["auxiliary"]))
        for name, p in learned.items():
            p.copy_(torch.from_numpy(arrays[f"parameter.{name}"]))
    for key, value in arrays.items():
        kind, _, rest = key.partition(".")
        if kind == "adam":
            name, _, quantity = rest.partition(".")
            adam.setdefault(list(learned).index(name), {})[quantity] = torch.from_numpy(value)
    groups = run.optimiser.state_dict()["param_groups"]
    run.optimiser.load_state_dict({"state": adam, "param_groups": groups})
