"""The whole fit, from validated arrays to a predictor: standardise, train, choose k and calibrate on left-out rows."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from nearfield._threads import one_blas_thread
from nearfield.approximate import EXACT, Approximation, approximated
from nearfield.calibration import EXACT_ROWS, Calibrated, all_rows, calibrate, constant_scores
from nearfield.checkpoint import Checkpoint
from nearfield.continuity import calibrate_either, first_taper
from nearfield.coordinates import Chart, ChartedScaling
from nearfield.copied import CopiesWarning
from nearfield.covariances import Covariance, Mixed, PerLatent, Shared
from nearfield.descent import Descent
from nearfield.families import Family, Observed
from nearfield.folds import apart_moments, outer_moments
from nearfield.kernels import find_kernel
from nearfield.leaving import ALONE, LeftOut
from nearfield.means import find_mean
from nearfield.model import Model
from nearfield.neighbours.copies import copied_share
from nearfield.numbering import numbers
from nearfield.objectives import OBJECTIVES, ranks
from nearfield.prediction import Predictor
from nearfield.progress import Bars
from nearfield.rotation import learned_axes
from nearfield.rows import Joined, Rows, value_keys
from nearfield.scaling import Scaling
from nearfield.storage import Make
from nearfield.summary import Summary
from nearfield.sweep import MOST_WHOLE, Sweeper
from nearfield.training import Advancing, Progress, Race, Run, Schedule, Stage, train
from nearfield.warps import Warps

_ROWS_A_COLUMN = 20  # fewer: a warning
_FOLDED_ROWS = 40  # a column; fewer: folds that the model has not seen set the error bars
_FOLDED_APART = 300  # rows, or balls of the buffer, where each row sees others: fewer: the same
IGNORED = 1e300  # scale of a column that was constant in training: whatever it holds later counts as the same
_COPIED_ROWS = 1000  # rows looked at for near copies
_MOST_COPIED = 0.5  # share of them that is suspicious
_MOST_ALIKE = 0.2  # share of them that is suspicious if copies have the same target
_FEWEST_TRAINED = 10  # rows; with fewer, leaving rows out teaches the noise of these rows
_LEFT_OUT_ROWS = 4000  # rows left out to choose k and to calibrate
_TRAINED = (64, 128, 256)  # neighbours in the three stages of training
_BLOCKS = (256, 384, 384)  # numbers of them that a matrix of several outputs may have
_OWN_FACTORS = 128  # neighbours at most, where each of several latent functions has a factorisation of its own
_FEWEST_MIXED = 8  # neighbours, however many outputs there are
_FEWEST_STEPS = 25  # of several outputs, between two searches
_WEIGHED_ROWS = 1500  # left-out rows that tell which of several models is the best
_SETTLING_K = 64  # neighbours from which the site state of all rows is found
_SAMPLES = (250, 500, 1000)  # rows of the samples with which training begins
_SAMPLE_STEPS = 15  # of L-BFGS on samples of a large table but for the first
_HASHED_ROWS = 2**16  # at a time
_TRAINING = {"run": "training"} | {
    name: f"training, {number} of 3" for number, name in enumerate(("shared", "mixed", "own"), start=1)
}
_RACE = 2  # refreshes after which the first start and that of a sample are compared


METRICS = ("learned", "plain")


@dataclass(frozen=True)
class Settings:
    """What a user can set of a fit; the defaults of the package."""

    kernel: str = "auto"
    warp: bool | tuple[int, ...] = True  # which columns may be bent: all, none, or those with these numbers
    metric: str = "learned"  # or "plain", the paper's: Matern 5/2 for kernel "auto", no warps, no prior on lengths
    k: int | str = "auto"
    predictive: str = "calibrated"  # or "plain", as the trained model says
    mean: str = "constant"
    structure: str = "shared"  # one kernel for all latent functions; "own": one for each; "mixed": mixtures of some
    mixed_latents: int = 0  # latent functions that outputs are mixtures of
    objective: str = "loo"
    ordering: str = "random"  # of the rows, for Vecchia's objective
    max_steps: int = 600
    learning_rate: float = 0.03
    batch_size: int = 128
    refresh_every: int = 50
    drift: tuple[int, ...] | None = None  # numbers of the columns on which a linear mean depends; None: on all
    continuous: bool | str = "auto"  # whether predictions may not jump where neighbours change
    search: str = "exact"  # or "approximate": predictions from most of the nearest neighbours, see `approximate.py`


@dataclass(frozen=True, eq=False)
class Fit:
    """A predictor in standardised units, with what leads there and back."""

    predictor: Predictor
    inputs: Scaling
    summary: Summary

    def extended(self, rows: Joined, n_rows: int) -> Fit:
        """The fit with more rows, n_rows of them as they were given; nothing is learned from these.

        They have times where the rows of the fit have some, and may have groups where those have.
        """
        hiding = rows.groups, rows.times
        more = Rows.of(self.predictor.model.family, self.inputs.apply(rows.inputs), rows.observed, *hiding)
        s = self.summary
        summary = replace(s, rows=s.rows + n_rows, appended=s.appended + n_rows)
        return Fit(self.predictor.extended(more), self.inputs, summary)

    def reduced(self, weights: np.ndarray, k: int | str, rows: int, appended: int) -> Fit:
        """The fit with observations that count as often as weights (u,) say; nothing is learned.

        k: as asked for. rows, appended: how many rows are left as they were given, and of those that came later.
        """
        s, left = self.summary, int(np.unique(self.predictor.rows.observations.row[weights > 0]).size)
        predictor = self.predictor.reduced(weights, _settling_k(left, k))
        summary = replace(s, rows=rows, appended=appended, forgotten=s.forgotten + s.rows - rows)
        return Fit(predictor, self.inputs, summary)


@dataclass(frozen=True)
class Watch:
    """How a fit is watched over: the seed that was asked for, one that was drawn, a checkpoint, a progress bar.

    near_copies: whether to look for them, and to say it if there are many.
    """

    asked_seed: int | None = None
    drawn_seed: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    verbose: bool | None = None  # None: on terminals
    near_copies: bool = True


def fit(
    X: np.ndarray,
    observed: Observed,
    family: Family,
    settings: Settings,
    watch: Watch,
    *,
    unit: float | np.ndarray = 1.0,
    left_out: LeftOut = ALONE,
    n_rows: int | None = None,
    doubted: np.ndarray | None = None,
    chart: Chart | None = None,
    make: Make = np.empty,
) -> Fit:
    """Fit X (n, d) and what was observed there, all finite; `unit` is what one of the target's is to users, of several
    outputs (P,). left_out: what rows are left out with. `n_rows` is how many rows the user gave, where equal ones were
    joined. Rows that are `doubted` (n,) are learned from, but left-out scores are those of the others. chart: of the
    columns that are coordinates. make: where large arrays come from.
    """
    began = time.perf_counter()
    if settings.metric == "plain":
        settings = replace(settings, kernel="matern52" if settings.kernel == "auto" else settings.kernel, warp=False)
    family.check(observed)
    inputs = _standardisation(X, family.weight(observed), chart)
    rows = left_out.rows(family, X, observed, inputs, make)
    left_out.refuse_blind(rows)
    if isinstance(inputs, ChartedScaling):
        with one_blas_thread():
            inputs = _turned(inputs, X, rows, family, settings)
        rows = left_out.rows(family, X, observed, inputs)
    n = len(rows) if n_rows is None else n_rows
    _warn_of_few_rows(n, int((inputs.scale != IGNORED).sum()))
    with one_blas_thread():
        on_globe = chart is not None and chart.one_scale
        learner = _Learner(rows, settings, watch, np.asarray(unit), doubted, on_globe)
        learned = learner.learn(family)
        predictor, approximation = learner.searching(learned)
    choice, progress = learned.calibrated.choice, learned.progress
    summary = Summary(
        rows=n,
        columns=X.shape[1],
        kernel=settings.kernel,
        likelihood=family.name,
        predictive=settings.predictive,
        steps=progress.steps,
        most_steps=learned.most_steps,
        seconds=time.perf_counter() - began,
        k=choice.k,
        k_reason=choice.reason,
        left_out_rows=learned.scored,
        left_out=learned.calibrated.scores,
        jittered=progress.jittered,
        rejected=progress.rejected,
        mean=settings.mean,
        leaving=left_out.described(),
        neighbourhoods="" if learned.calibrated.taper is None else "continuous",
        search=settings.search,
        leaves=approximation.leaves or 0,
        recall=approximation.recall,
        approximate_nll=approximation.nll,
        exact_nll=approximation.exact_nll,
        constant=constant_scores(family, rows, *learner.sample, learner.unit),
        refreshes={str(i): score for i, score in enumerate(progress.scores, start=1) if math.isfinite(score)},
    )
    return Fit(predictor, inputs, summary)


def _standardisation(X: np.ndarray, weights: np.ndarray, chart: Chart | None) -> Scaling:
    """Of inputs (n, d) that count so much (n,), with their coordinates as they are on the ground."""
    if chart is None:
        return Scaling.of(X, weights, if_constant=IGNORED)
    return ChartedScaling.charted(chart.located(X, weights), X, weights, IGNORED)


def _turned(inputs: ChartedScaling, X: np.ndarray, rows: Rows, family: Family, settings: Settings) -> ChartedScaling:
    """The standardisation with coordinates turned as left-out rows prefer."""
    apart = family.apart() if settings.structure == "mixed" else family
    chart, warps = inputs.chart, _warps(rows, settings.warp)
    covariance = Shared(
        find_kernel(settings.kernel), apart.latents, warps, apart.kernel_scales, settings.metric == "learned"
    )
    model = Model.initial(
        apart, covariance, find_mean(settings.mean, settings.drift), apart.initial_mean(rows.observed)
    )
    axes = learned_axes(model, rows, chart.turned, inputs.scale[list(chart.turned)])
    if axes.rotation is None:
        return inputs
    return ChartedScaling.charted(chart.with_rotation(axes.rotation), X, family.weight(rows.observed), IGNORED)


class _Trained(NamedTuple):
    """A trained model, its rows with their index, and what it took."""

    model: Model
    sweeper: Sweeper
    progress: Progress
    most_steps: int


@dataclass(frozen=True)
class _Learned:
    """A trained model and its rows, its k and head with their scores on left-out rows, and what it took."""

    model: Model
    rows: Rows
    calibrated: Calibrated
    progress: Progress
    most_steps: int
    scored: int  # left-out observations


class _Learner:
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
        self.warps, self.shrinks = _warps(rows, settings.warp), settings.metric == "learned"

    def learn(self, family: Family) -> _Learned:
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

    def searching(self, learned: _Learned) -> tuple[Predictor, Approximation]:
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

    def _mixed(self, family: Family) -> _Learned:
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

    def _one(self, family: Family, covariance: Covariance) -> _Learned:
        """One model, trained and calibrated."""
        trained = self._train(self._initial(family, covariance), "run")
        return self._learned(trained, self._calibrated(trained, *self.sample), [trained])

    def _best(self, trained: dict[str, _Trained]) -> _Learned:
        """The model that predicts left-out rows best, of those with a name for the summary. Some rows tell which."""
        sample, counted = self.sample
        few = slice(None, None, -(-len(sample) // _WEIGHED_ROWS))
        weighed = {name: self._calibrated(one, sample[few], counted[few]) for name, one in trained.items()}
        name = min(weighed, key=lambda name: weighed[name].scores["nll"])
        found = weighed[name] if few.step == 1 else self._calibrated(trained[name], sample, counted)
        reason = f"{found.choice.reason}. As left-out rows prefer, {name}"
        found = replace(found, choice=replace(found.choice, reason=reason))
        return self._learned(trained[name], found, list(trained.values()))

    def _learned(self, kept: _Trained, found: Calibrated, every: list[_Trained]) -> _Learned:
        """The model that is kept, and what all that were trained took."""
        progress = replace(kept.progress)
        for one in every:
            if one is not kept:
                progress.steps += one.progress.steps
                progress.jittered += one.progress.jittered
                progress.rejected += one.progress.rejected
        progress.jittered += found.jittered
        most = sum(one.most_steps for one in every)
        return _Learned(kept.model, kept.sweeper.rows, found, progress, most, len(self.sample[0]))

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
            settings, n, family.patient, matrix_rows, family.own_factors, _exactly(model, self.rows, settings)
        )
        model, rows, progress = self._trained(model, schedule, name)
        sweeper = Sweeper(model, rows)
        if self.near_copies and bool(model.noise.any()):
            self.near_copies = False  # said once
            _warn_of_copies(sweeper)
        with self.bars.bar("weighing rows", 1.0) as bar:
            state, _ = sweeper.settled(_settling_k(n, settings.k), done=bar.add)
        return _Trained(model, sweeper.with_state(state), progress, schedule.most_steps)

    def _calibrated(self, trained: _Trained, sample: np.ndarray, counted: np.ndarray) -> Calibrated:
        settings, outer, sweeper = self.settings, None, trained.sweeper
        calibrated, choose, rows = settings.predictive == "calibrated", settings.continuous == "auto", sweeper.rows
        sweeper = sweeper.tapered(first_taper(settings.continuous, _varying(rows) - self.on_globe))
        exact = _exactly(sweeper.model, rows, settings) == "all" and trained.progress.steps > 0
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


def _settling_k(n: int, k: int | str) -> int:
    """Neighbours from which the site state of n rows is found, where k are asked for."""
    few = n if n <= EXACT_ROWS else _SETTLING_K
    return min(few, k) if isinstance(k, int) else few


def _warps(rows: Rows, warp: bool | tuple[int, ...]) -> Warps:
    """The map of the inputs, of all columns, none, or those with these numbers."""
    allowed = np.full(rows.inputs.shape[1], warp is True)
    if not isinstance(warp, bool):
        allowed[list(warp)] = True
    own = rows.observations
    alone = own.row is numbers(len(rows))  # one a row, in their order
    weights = own.weights if alone else np.bincount(own.row, own.weights, len(rows))
    return Warps.of(rows.inputs, weights, allowed)


def _exactly(model: Model, rows: Rows, settings: Settings) -> str:
    """Whether all rows are factorised together: "all", of a "sample" to begin with, or "" of none.

    Where rows see different others, that is for their joint density alone, see `descent.joint_share`; groups have none.
    """
    if model.family.state_learned or model.covariance.matrix_rows > 1 or settings.objective != "loo":
        return ""
    n, few = len(rows), "sample" if model.family.exact_sites else ""
    if n <= EXACT_ROWS and (not isinstance(settings.k, int) or settings.k >= n - 1):
        return "all" if rows.in_blocks or (few and rows.groups is None) else few
    return few


def schedule_for(
    settings: Settings,
    n: int,
    patient: bool = False,
    matrix_rows: int = 1,
    own_factors: bool = False,
    exact: str = "",
) -> Schedule:
    """L-BFGS on all rows of a small table, or first on samples of a large one: see `_exactly`.

    Then three stages, each with a fifth of the step size of the one before and, up to k, more neighbours.
    patient: a stage ends early only if the score has clearly become worse. matrix_rows: that each neighbour adds to a
    matrix. own_factors: whether each latent function has a factorisation of its own, which makes neighbours dear.
    """
    whole = all_rows(matrix_rows)
    most = settings.k if isinstance(settings.k, int) else whole
    tops = [min(top, max(_FEWEST_MIXED, block // matrix_rows)) for top, block in zip(_TRAINED, _BLOCKS, strict=True)]
    tops = [min(top, _OWN_FACTORS) for top in tops] if own_factors else tops
    ks = [whole] * 3 if most == whole >= n - 1 else [min(most, top) for top in tops]
    every = min(settings.refresh_every, settings.max_steps)
    refreshes = settings.max_steps // every
    shares = (refreshes - refreshes // 2, refreshes // 2 - refreshes // 5, refreshes // 5)
    rates = (settings.learning_rate / 5**i for i in range(3))
    batches = tuple(Stage(*stage) for stage in zip(rates, ks, shares, strict=True) if stage[2] > 0)
    stages: tuple[Advancing, ...] = batches
    if exact:
        descents = _descents(n, settings.max_steps, exact == "all")
        first = (batches[0],) if n <= MOST_WHOLE else _raced(batches[0])
        stages = descents if exact == "all" else (*descents, *first, *batches[1:])
    return Schedule(stages, settings.batch_size, every, patience=2.0 if patient else 0.0)


def _descents(n: int, most: int, to_the_end: bool) -> tuple[Descent, ...]:
    """L-BFGS on samples and, to the end, on all n rows, each from where the one before ended; `most` iterations each.

    The first sample tells where to begin; where all rows are not to follow, the others need not be exact.
    """
    samples = [size for size in _SAMPLES if size <= n / 2 and (size < _SAMPLES[-1] or EXACT_ROWS < n <= MOST_WHOLE)]
    few = most if to_the_end else min(most, _SAMPLE_STEPS)
    raced = not to_the_end and n > MOST_WHOLE
    found = [Descent(size, few if i else most, i == 0, raced and i > 0) for i, size in enumerate(samples)]
    return (*found, Descent(n, most, start=not samples)) if to_the_end else tuple(found)


def _raced(stage: Stage) -> tuple[Advancing, ...]:
    """A stage that begins with a race between two starts."""
    race = Race(replace(stage, refreshes=min(stage.refreshes, _RACE)))
    rest = stage.refreshes - _RACE
    return (race, replace(stage, refreshes=rest)) if rest > 0 else (race,)


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


def _warn_of_few_rows(n: int, columns: int) -> None:
    """Say it if there are so few rows for each column that varies that length scales follow chance."""
    if n < _ROWS_A_COLUMN * columns:
        many = f"{columns:,} column{'s' if columns > 1 else ''}"
        warnings.warn(
            f"{n:,} rows are few for {many}: length scales may follow chance, and predictions and error bars suffer. "
            f"Leave out columns that cannot matter, or have {_ROWS_A_COLUMN} rows a column.",
            stacklevel=4,
        )


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
