"""From standardised rows to a trained and calibrated model: one, or the best of several of the same rows."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from nearfield.approximate import EXACT, Approximation, approximated
from nearfield.calibration import Calibrated, calibrate
from nearfield.checkpoint import Checkpoint
from nearfield.continuity import calibrate_either, first_taper
from nearfield.copied import CopiesWarning
from nearfield.covariances import Covariance, Mixed, PerLatent, Shared
from nearfield.families import Family
from nearfield.folds import apart_moments, outer_moments
from nearfield.kernels import find_kernel
from nearfield.means import find_mean
from nearfield.model import Model
from nearfield.neighbours.copies import copied_share
from nearfield.numbering import numbers
from nearfield.objectives import OBJECTIVES, ranks
from nearfield.prediction import Predictor
from nearfield.progress import Bars
from nearfield.rows import Rows, value_keys
from nearfield.schedule import exactly, schedule_for, settling_k
from nearfield.settings import Settings, Watch
from nearfield.sweep import Sweeper
from nearfield.training import Progress, Run, Schedule, train
from nearfield.warps import Warps

_FOLDED_ROWS = 40  # a column; fewer: folds that the model has not seen set the error bars
_FOLDED_APART = 300  # rows, or balls of the buffer, where each row sees others: fewer: the same
_COPIED_ROWS = 1000  # rows looked at for near copies
_MOST_COPIED = 0.5  # share of them that is suspicious
_MOST_ALIKE = 0.2  # share of them that is suspicious if copies have the same target
_FEWEST_TRAINED = 10  # rows; with fewer, leaving rows out teaches the noise of these rows
_LEFT_OUT_ROWS = 4000  # rows left out to choose k and to calibrate
_FEWEST_STEPS = 25  # of several outputs, between two searches
_WEIGHED_ROWS = 1500  # left-out rows that tell which of several models is the best
_HASHED_ROWS = 2**16  # at a time
_TRAINING = {"run": "training"} | {
    name: f"training, {number} of 3" for number, name in enumerate(("shared", "mixed", "own"), start=1)
}


class _Trained(NamedTuple):
    """A trained model, its rows with their index, and what it took."""

    model: Model
    sweeper: Sweeper
    progress: Progress
    most_steps: int


@dataclass(frozen=True)
class Learned:
    """A trained model and its rows, its k and head with their scores on left-out rows, and what it took."""

    model: Model
    rows: Rows
    calibrated: Calibrated
    progress: Progress
    most_steps: int
    scored: int  # left-out observations


class Learner:
    """Trains and calibrates models of the same rows: one, or several of which the best is kept.

    on_globe: whether three of the columns are points of a sphere, as longitude and latitude say.
    """

    def __init__(
        self,
        rows: Rows,
        settings: Settings,
        watch: Watch,
        unit: np.ndarray,
        doubted: np.ndarray | None = None,
        on_globe: bool = False,
    ) -> None:
        self.rows, self.settings, self.watch, self.unit, self.on_globe = rows, settings, watch, unit, on_globe
        self.sound, self.all_sound = numbers(len(rows.observations)), doubted is None or bool(doubted.all())
        if doubted is not None and not self.all_sound:
            self.sound = np.flatnonzero(~doubted[rows.observations.row])
        self.bars = Bars(watch.verbose)
        self.checkpoint: Checkpoint | None = None
        self.near_copies = watch.near_copies and rows.hidden is None
        self.seed = watch.drawn_seed if watch.asked_seed is None else watch.asked_seed
        self.warps, self.shrinks = starting_warps(rows, settings.warp), settings.metric == "learned"

    def learn(self, family: Family) -> Learned:
        """The model that the settings ask for. Mixed outputs must be better than outputs apart."""
        if self.watch.checkpoint is not None:
            self.checkpoint = Checkpoint(self.watch.checkpoint, _fingerprint(family, self.rows, self.settings))
            self.seed = self.checkpoint.seed(self.watch.asked_seed, self.watch.drawn_seed)
        self.rng = np.random.default_rng(self.seed)
        weights = self.rows.observations.weights
        sample, counted = _sample(self.rng, weights if self.all_sound else weights[self.sound])
        seeing = self.rows.seeing(self.sound[sample])
        self.sample = self.sound[sample[seeing]], counted[seeing]
        learned = self._mixed(family) if self.settings.structure == "mixed" else self._one(family, self._alone(family))
        if self.checkpoint is not None:
            self.checkpoint.remove()
        return learned

    def searching(self, learned: Learned) -> tuple[Predictor, Approximation]:
        """What predicts, with an approximate search where that was asked for and is of use."""
        choice, model = learned.calibrated.choice, learned.model
        found = Predictor(model, learned.rows, choice.k, choice.head, learned.calibrated.taper)
        if self.settings.search == "exact":
            return found, EXACT
        found = replace(found, rows=replace(learned.rows, features=None))  # in boxes as a loaded model has them
        calibrated = self.settings.predictive == "calibrated"
        calibrator = model.family.calibrator(learned.rows.observed, model.parameters, calibrated, self.unit)
        approximation = approximated(found, calibrator, self.sample[0])
        return replace(found, leaves=approximation.leaves), approximation

    def _alone(self, family: Family) -> Covariance:
        kind = PerLatent if self.settings.structure == "own" and family.latents > 1 else Shared
        return kind(find_kernel(self.settings.kernel), family.latents, self.warps, family.kernel_scales, self.shrinks)

    def _mixed(self, family: Family) -> Learned:
        """Outputs that mix latent functions, with a kernel each, or with the same: what left-out rows prefer.

        Outputs that share a kernel are learned first, and the others start from there; those with a kernel each, which
        are dear, take half of the steps. Each row of a mini-batch has several observations, so that half as many rows
        will do; and of few rows none needs to be visited twice between two searches.
        """
        given = self.settings
        batch, once = -(-given.batch_size // 2), max(_FEWEST_STEPS, -(-2 * len(self.rows) // given.batch_size))
        every = min(given.refresh_every, once)
        most = given.max_steps // given.refresh_every * every or given.max_steps
        self.settings = replace(given, batch_size=batch, refresh_every=every, max_steps=most)
        half = min(most, -(-most // (2 * every)) * every)
        kernel, warps = find_kernel(given.kernel), self.warps
        mixing = family.initial_mixing(self.rows.observed, given.mixed_latents)
        apart = family.apart()
        shared = self._train(self._initial(apart, Shared(kernel, family.latents, warps, 1, self.shrinks)), "shared")
        mixtures = Mixed(kernel, family.latents, warps, mixing, self.shrinks)
        mixed = self._train(Model.after(shared.model, family, mixtures), "mixed")
        kernels = PerLatent(kernel, family.latents, warps, family.kernel_scales, self.shrinks)
        own = self._train(Model.after(shared.model, family, kernels), "own", half)
        return self._best(
            {
                "the targets help to predict each other": mixed,
                "each target is predicted by itself": own,
                "each target is predicted by itself, from the same rows": shared,
            }
        )

    def _one(self, family: Family, covariance: Covariance) -> Learned:
        """One model, trained and calibrated."""
        trained = self._train(self._initial(family, covariance), "run")
        return self._learned(trained, self._calibrated(trained, *self.sample), [trained])

    def _best(self, trained: dict[str, _Trained]) -> Learned:
        """The model that predicts left-out rows best, of those with a name for the summary. Some rows tell which."""
        sample, counted = self.sample
        few = slice(None, None, -(-len(sample) // _WEIGHED_ROWS))
        weighed = {name: self._calibrated(one, sample[few], counted[few]) for name, one in trained.items()}
        name = min(weighed, key=lambda name: weighed[name].scores["nll"])
        found = weighed[name] if few.step == 1 else self._calibrated(trained[name], sample, counted)
        reason = f"{found.choice.reason}. As left-out rows prefer, {name}"
        found = replace(found, choice=replace(found.choice, reason=reason))
        return self._learned(trained[name], found, list(trained.values()))

    def _learned(self, kept: _Trained, found: Calibrated, every: list[_Trained]) -> Learned:
        """The model that is kept, and what all that were trained took."""
        progress = replace(kept.progress)
        for one in every:
            if one is not kept:
                progress.steps += one.progress.steps
                progress.jittered += one.progress.jittered
                progress.rejected += one.progress.rejected
        progress.jittered += found.jittered
        most = sum(one.most_steps for one in every)
        return Learned(kept.model, kept.sweeper.rows, found, progress, most, len(self.sample[0]))

    def _initial(self, family: Family, covariance: Covariance) -> Model:
        level = family.initial_mean(self.rows.observed)
        return Model.initial(family, covariance, find_mean(self.settings.mean, self.settings.drift), level)

    def _train(self, model: Model, name: str, most_steps: int | None = None) -> _Trained:
        """A model, trained from where it stands, with the site state of all rows settled."""
        settings, family = self.settings, model.family
        if most_steps is not None:
            settings = replace(settings, max_steps=most_steps)
        matrix_rows, n = model.covariance.matrix_rows, len(self.rows)
        schedule = schedule_for(
            settings, n, family.patient, matrix_rows, family.own_factors, exactly(model, self.rows, settings)
        )
        model, rows, progress = self._trained(model, schedule, name)
        sweeper = Sweeper(model, rows)
        if self.near_copies and bool(model.noise.any()):
            self.near_copies = False  # said once
            _warn_of_copies(sweeper)
        with self.bars.bar("weighing rows", 1.0) as bar:
            state, _ = sweeper.settled(settling_k(n, settings.k), done=bar.add)
        return _Trained(model, sweeper.with_state(state), progress, schedule.most_steps)

    def _calibrated(self, trained: _Trained, sample: np.ndarray, counted: np.ndarray) -> Calibrated:
        settings, outer, sweeper = self.settings, None, trained.sweeper
        calibrated, choose, rows = settings.predictive == "calibrated", settings.continuous == "auto", sweeper.rows
        sweeper = sweeper.tapered(first_taper(settings.continuous, _varying(rows) - self.on_globe))
        exact = exactly(sweeper.model, rows, settings) == "all" and trained.progress.steps > 0
        few = _FOLDED_ROWS * _varying(rows)
        if calibrated and exact and rows.in_blocks and _independent(rows, sample) < few:
            outer = outer_moments(sweeper.model, rows, self.rng, sweeper.taper, self.bars)
        found = calibrate_either(sweeper, sample, counted, settings.k, calibrated, self.unit, outer, choose, self.bars)
        if not (calibrated and exact) or rows.in_blocks or _independent(rows, sample) >= max(few, _FOLDED_APART):
            return found
        sweeper = sweeper.tapered(found.taper)
        outer = apart_moments(sweeper.model, rows, found.choice.k, self.rng, sweeper.taper, self.bars)
        if outer is None:
            return found
        again = calibrate(sweeper, sample, counted, found.choice.k, calibrated, self.unit, outer, self.bars)
        return replace(again, choice=replace(again.choice, reason=found.choice.reason))

    def _trained(self, model: Model, schedule: Schedule, name: str) -> tuple[Model, Rows, Progress]:
        """The model and the rows, with their site state, after training; with a progress bar and checkpoints."""
        rows = self.rows.with_state(model.family.initial_state(self.rows.observed))
        if model.family.constant(rows.observed) or float(rows.observations.weights.sum()) < _FEWEST_TRAINED:
            return model, rows, Progress()  # nothing to learn from: the starting values stay
        objective = OBJECTIVES[self.settings.objective](
            lambda: ranks(self.settings.ordering, np.asarray(rows.inputs), self.rng)
        )
        run = Run(model, rows, objective, self.rng)
        if self.checkpoint is not None:
            self.checkpoint.resume(name, run)
        with self.bars.bar(_TRAINING[name], 1.0) as bar:

            def after_refresh(run: Run) -> None:
                bar.note(f"left-out score {run.progress.scores[-1]:.3f}")
                if self.checkpoint is not None:
                    self.checkpoint.save(name, run)

            progress = train(run, schedule, after_refresh, bar.reach)
        return run.model, run.rows, progress


def starting_warps(rows: Rows, warp: bool | tuple[int, ...]) -> Warps:
    """The map of the inputs, of all columns, none, or those with these numbers."""
    allowed = np.full(rows.inputs.shape[1], warp is True)
    if not isinstance(warp, bool):
        allowed[list(warp)] = True
    own = rows.observations
    alone = own.row is numbers(len(rows))  # one a row, in their order
    weights = own.weights if alone else np.bincount(own.row, own.weights, len(rows))
    return Warps.of(rows.inputs, weights, allowed)


def _fingerprint(family: Family, rows: Rows, settings: Settings) -> str:
    """Of everything that a fit depends on, but for the seed."""
    described = {**asdict(settings), "family": family.name, **family.described()}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    hiding = {"groups": rows.groups, "times": rows.times, "buffer": rows.buffer}
    for start in range(0, len(rows), _HASHED_ROWS):
        digest.update(np.ascontiguousarray(rows.inputs[start : start + _HASHED_ROWS]).data)
    parts = {**rows.observed, **{name: of for name, of in hiding.items() if of is not None}}
    for name, part in sorted(parts.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _sample(rng: np.random.Generator, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the observations left out for calibration, ascending, and how often each counts.

    All, or a random few thousand. Those that were made more often (n,) are drawn more often, as if copies were rows.
    """
    n = len(weights)
    if n <= _LEFT_OUT_ROWS:
        return np.arange(n), weights
    if (weights == weights[0]).all():
        sample = np.sort(rng.choice(n, _LEFT_OUT_ROWS, replace=False))
        return sample, weights[sample]
    ends = np.cumsum(weights)
    drawn = (rng.random() + np.arange(_LEFT_OUT_ROWS)) * (ends[-1] / _LEFT_OUT_ROWS)
    sample, times = np.unique(np.minimum(np.searchsorted(ends, drawn, side="right"), n - 1), return_counts=True)
    return sample, times.astype(np.float64)


def _independent(rows: Rows, sample: np.ndarray) -> float:
    """How many observations there are, those of a unit being one; sample: all of them, or enough of many."""
    total, units = float(rows.observations.weights.sum()), rows.units(sample)
    return total if units is None else min(total, float(np.unique(units).size))


def _varying(rows: Rows) -> int:
    """How many columns of the inputs are not constant."""
    low, high = rows.bounds
    return int((low != high).sum())


def _warn_of_copies(sweeper: Sweeper) -> None:
    """Say it if most rows have near copies, from which they are predicted when left out."""
    rows = sweeper.rows
    which = np.arange(0, len(rows), -(-len(rows) // _COPIED_ROWS))
    values = value_keys(sweeper.model.family, rows.observed)
    share, alike = copied_share(sweeper.index, sweeper.scaled(which), which, values)
    if share > _MOST_COPIED or alike > _MOST_ALIKE:
        warnings.warn(
            f"{share:.0%} of the rows have a near copy, much nearer than any other row. Left out alone, they are "
            'predicted from it, and the fit suffers. If these are replicates, pass groups="auto" to fit, or labels '
            "(on the command line --groups).",
            CopiesWarning,
            stacklevel=6,
        )
