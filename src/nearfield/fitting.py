"""The whole fit, from validated arrays to a predictor: standardise, train, choose k and calibrate on left-out rows."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from nearfield._threads import torch_alone
from nearfield.calibration import Choice, LeftOutRows, Method, all_rows, candidate_ks, choose_k
from nearfield.calibration.classes import ClassLeftOut, ClassMethod
from nearfield.calibration.counts import CountLeftOut, CountMethod
from nearfield.calibration.outputs import OutputHeads, OutputsLeftOut, OutputsMethod
from nearfield.calibration.regression import SMALLEST_DF, Head, LeftOut, RegressionMethod, target_floor
from nearfield.kernels import find_kernel
from nearfield.likelihoods import Likelihood
from nearfield.likelihoods.classes import Classes
from nearfield.likelihoods.counts import LogisticCounts
from nearfield.likelihoods.outputs import GaussianOutputs
from nearfield.mixing import initial_mixing
from nearfield.model import Model, Rows
from nearfield.neighbours.twins import copied_share
from nearfield.objectives import ordering
from nearfield.persistence import read_file, write_file
from nearfield.prediction import Predictor
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper, Swept
from nearfield.training import Progress, Run, Schedule, Stage, restore, start, state, train

_ROWS_A_COLUMN = 20  # fewer: a warning
_IGNORED = 1e300  # scale of a column that was constant in training: whatever it holds later counts as the same
_COPIED_ROWS = 1000  # rows looked at for near copies
_MOST_COPIED = 0.5  # share of them that is suspicious
_FEWEST_TRAINED = 10  # rows; with fewer, leaving rows out teaches the noise of these rows
_LEFT_OUT_ROWS = 4000  # rows left out to choose k and to calibrate
_COUPLED_ROWS = 1000  # of them, to learn how far the correlations between outputs can be trusted
_TRAINED = (64, 128, 256)  # neighbours in the three stages of training
_BLOCKS = (256, 384, 512)  # numbers of them that a matrix of several outputs may have
_FEWEST_MIXED = 8  # neighbours, however many outputs there are
_SETTLING_K = 64  # neighbours from which the auxiliaries of all rows are found


@dataclass(frozen=True)
class Settings:
    """What a user can set of a fit; the defaults of the package."""

    kernel: str = "matern52"
    k: int | str = "auto"
    predictive: str = "calibrated"  # or the likelihood's own
    own_kernels: bool = False  # for each latent function
    objective: str = "loo"
    ordering: str = "random"  # of the rows, for Vecchia's objective
    latents: int = 0  # of a linear model of coregionalisation; 0 for none
    max_steps: int = 600
    learning_rate: float = 0.03
    batch_size: int = 128
    refresh_every: int = 50
    engine: str = "fused"


@dataclass(frozen=True)
class Summary:
    """What a fit did and how well it predicts rows left out, in the units of the target."""

    rows: int
    columns: int
    kernel: str
    likelihood: str
    predictive: str
    steps: int
    most_steps: int
    seconds: float
    k: int
    k_reason: str
    left_out_rows: int
    left_out: dict[str, float]
    jittered: int
    rejected: int

    def as_dict(self) -> dict[str, object]:
        """Plain numbers and strings."""
        return asdict(self)

    def __str__(self) -> str:
        stopped = "early, the score had settled" if self.steps < self.most_steps else "at max_steps"
        stopped = stopped if self.steps else "before it began: too few rows, or a constant target"
        recoveries = f"{self.jittered} factorisations with extra jitter, {self.rejected} steps rejected"
        scores = ", ".join(f"{label} {self.left_out[name]:.4g}" for name, label in _LABELS if name in self.left_out)
        covered = [f"{100 * self.left_out[name]:.1f}" for name in _COVERAGES if name in self.left_out]
        lines = [
            f"{self.rows:,} rows, {self.columns} columns, kernel {self.kernel}, "
            f"{self.likelihood.replace('_', ' ')} likelihood, {self.predictive} predictive",
            f"trained {self.steps} steps in {self.seconds:.1f} s (stopped {stopped}); recoveries: {recoveries}",
            f"k = {self.k}: {self.k_reason}",
            f"{self.left_out_rows:,} rows left out: {scores}",
        ]
        if covered:
            lines.append(f"intervals of 50 / 90 / 95 % cover {' / '.join(covered)} % of them")
        return "\n".join(lines)


_LABELS = (
    ("rmse", "RMSE"),
    ("nll", "NLL"),
    ("crps", "CRPS"),
    ("error", "error"),
    ("brier", "Brier score"),
    ("calibration_error", "calibration error"),
)
_COVERAGES = ("coverage_50", "coverage_90", "coverage_95")


@dataclass(frozen=True, eq=False)
class Fit:
    """A predictor in standardised units, with what leads there and back."""

    predictor: Predictor
    inputs: Scaling
    summary: Summary


def fit(
    X: np.ndarray,
    stats: np.ndarray,
    likelihood: Likelihood,
    settings: Settings,
    rng: np.random.Generator,
    *,
    unit: float | np.ndarray = 1.0,
    groups: np.ndarray | None = None,
    n_rows: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
) -> Fit:
    """Fit X (n, d) and the likelihood's statistics (n, S), all finite; `unit` is what one of the target's is to users,
    of several outputs (P,).

    `n_rows` is how many rows the user gave, where equal ones were joined; `verbose` None shows progress on terminals.
    """
    began = time.perf_counter()
    likelihood.check(stats)
    counts = likelihood.counts(torch.from_numpy(stats)).numpy()
    inputs = Scaling.of(X, counts, if_constant=_IGNORED)
    rows = Rows.of(likelihood, inputs.apply(X), stats, groups)
    _warn_of_few_rows(len(rows), int((inputs.scale != _IGNORED).sum()))
    sample = _sample(rng, len(rows.observations))
    with threadpool_limits(1, "blas"), torch_alone() if settings.engine == "fused" else nullcontext():
        learned = _learn(likelihood, rows, settings, rng, sample, unit, checkpoint, verbose)
    choice, progress = learned.choice, learned.progress
    summary = Summary(
        rows=len(rows) if n_rows is None else n_rows,
        columns=X.shape[1],
        kernel=settings.kernel,
        likelihood=likelihood.name,
        predictive=settings.predictive,
        steps=progress.steps,
        most_steps=learned.most_steps,
        seconds=time.perf_counter() - began,
        k=choice.k,
        k_reason=choice.reason,
        left_out_rows=len(sample),
        left_out=learned.left_out,
        jittered=progress.jittered,
        rejected=progress.rejected,
    )
    return Fit(Predictor(learned.model, rows, choice.k, choice.head), inputs, summary)


@dataclass(frozen=True)
class _Learned:
    """A trained model with its k and head, their scores on left-out rows, and what it took."""

    model: Model
    choice: Choice
    left_out: dict[str, float]
    progress: Progress
    most_steps: int


def _learn(
    likelihood: Likelihood,
    rows: Rows,
    settings: Settings,
    rng: np.random.Generator,
    sample: np.ndarray,
    unit: float | np.ndarray,
    checkpoint: str | os.PathLike[str] | None,
    verbose: bool | None,
) -> _Learned:
    """Train and calibrate. A mixture of latent functions must be better than outputs apart that share a kernel."""

    def learn(model: Model, schedule: Schedule, checkpoint: str | os.PathLike[str] | None) -> _Learned:
        progress = _train(model, rows, schedule, settings, rng, checkpoint, verbose)
        choice, left_out, jittered = _calibrate(model, rows, settings, sample, unit)
        progress.jittered += jittered
        return _Learned(model, choice, left_out, progress, schedule.most_steps)

    stats = rows.stats.numpy()
    noisy = not likelihood.name.startswith("gaussian")

    def begin(likelihood: Likelihood, mixing: np.ndarray | None = None) -> Model:
        kernel, d = find_kernel(settings.kernel), rows.inputs.shape[1]
        own, mean = settings.own_kernels and likelihood.latents != (), likelihood.initial_mean(stats)
        return Model.initial(kernel, d, likelihood, mean, engine=settings.engine, own_kernels=own, mixing=mixing)

    schedule = schedule_for(settings, len(rows), noisy)
    if not settings.latents:
        return learn(begin(likelihood), schedule, checkpoint)
    outputs = likelihood.latents[0]
    apart = learn(begin(GaussianOutputs(outputs, alike=True)), schedule, None)
    mixture = begin(likelihood, initial_mixing(likelihood, stats, settings.latents))
    return _better(learn(mixture, schedule_for(settings, len(rows), noisy, outputs), checkpoint), apart)


def _better(mixed: _Learned, apart: _Learned) -> _Learned:
    """The mixture, unless left-out rows are predicted better by outputs apart."""
    accuracy = {name: learned.choice.curve[learned.choice.k] for name, learned in (("mixed", mixed), ("apart", apart))}
    kept = mixed if accuracy["mixed"] >= accuracy["apart"] else apart
    both = replace(mixed.progress, steps=mixed.progress.steps + apart.progress.steps)
    both.jittered += apart.progress.jittered
    both.rejected += apart.progress.rejected
    why = "mixed outputs" if kept is mixed else "outputs apart, which left-out rows prefer to mixed ones"
    choice = replace(kept.choice, reason=f"{why}; {kept.choice.reason}")
    return replace(kept, choice=choice, progress=both, most_steps=mixed.most_steps + apart.most_steps)


def schedule_for(settings: Settings, n: int, noisy: bool = False, outputs: int = 1) -> Schedule:
    """Three stages, each with a fifth of the step size of the one before and, up to k, more neighbours.

    noisy: whether scores vary so much between observations, as those of labels do, that progress drowns in the noise; a
    stage then ends early only if the score has clearly become worse. outputs: that each neighbour adds to a matrix.
    """
    whole = all_rows(outputs)
    most = settings.k if isinstance(settings.k, int) else whole
    tops = [min(top, max(_FEWEST_MIXED, block // outputs)) for top, block in zip(_TRAINED, _BLOCKS, strict=True)]
    ks = [whole] * 3 if most == whole >= n - 1 else [min(most, top) for top in tops]
    every = min(settings.refresh_every, settings.max_steps)
    refreshes = settings.max_steps // every
    shares = (refreshes - refreshes // 2, refreshes // 2 - refreshes // 5, refreshes // 5)
    rates = (settings.learning_rate / 5**i for i in range(3))
    stages = tuple(Stage(*stage) for stage in zip(rates, ks, shares, strict=True) if stage[2] > 0)
    return Schedule(stages, settings.batch_size, every, margin=-1.0 if noisy else 1.0)


def _train(
    model: Model,
    rows: Rows,
    schedule: Schedule,
    settings: Settings,
    rng: np.random.Generator,
    checkpoint: str | os.PathLike[str] | None,
    verbose: bool | None,
) -> Progress:
    """Train in place, with a progress bar and, if asked for, a checkpoint that is removed at the end."""
    seen = rows.observations
    if bool((seen.stats == seen.stats[0]).all()) or float(seen.weights.sum()) < _FEWEST_TRAINED:
        return Progress()  # nothing to learn from: the starting values stay
    rank = ordering(settings.ordering, rows.inputs.numpy(), rng) if settings.objective == "vecchia" else None
    run = start(model, rows, rng, settings.objective, rank)
    fingerprint = "" if checkpoint is None else _fingerprint(model, rows, settings)
    if checkpoint is not None and os.path.exists(checkpoint):
        header, arrays = read_file(checkpoint)
        if header.get("checkpoint") != fingerprint:
            raise ValueError(
                f"the checkpoint {os.fspath(checkpoint)!r} belongs to other data or settings; "
                "delete it, or pass another path."
            )
        restore(run, header, arrays)
    hidden = None if verbose is None else not verbose
    with tqdm(
        total=schedule.most_steps, initial=run.progress.steps, desc="training", unit="step", disable=hidden
    ) as bar:

        def after_refresh(run: Run) -> None:
            bar.update(run.progress.steps - bar.n)
            bar.set_postfix(left_out_log_density=f"{run.progress.scores[-1]:.3f}")
            if checkpoint is not None:
                header, arrays = state(run)
                write_file(checkpoint, {**header, "checkpoint": fingerprint}, arrays)

        progress = train(run, schedule, after_refresh)
    rows.auxiliary.requires_grad_(False)
    if checkpoint is not None:
        with suppress(FileNotFoundError):
            os.remove(checkpoint)
    return progress


def _fingerprint(model: Model, rows: Rows, settings: Settings) -> str:
    """Of everything that training depends on."""
    described = {**asdict(settings), "likelihood": model.likelihood.name, "auxiliaries": model.likelihood.auxiliaries}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for part in (rows.inputs, rows.stats, *([] if rows.groups is None else [rows.groups])):
        digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()


def _sample(rng: np.random.Generator, n: int) -> np.ndarray:
    """Row numbers left out for calibration, ascending: all, or a random few thousand."""
    return np.arange(n) if n <= _LEFT_OUT_ROWS else np.sort(rng.choice(n, _LEFT_OUT_ROWS, replace=False))


def _calibrate(
    model: Model, rows: Rows, settings: Settings, sample: np.ndarray, unit: float | np.ndarray
) -> tuple[Choice, dict[str, float], int]:
    """The number of neighbours and the head, from left-out observations, and how well these are predicted."""
    sweeper, n_others = Sweeper(model, rows), len(rows) - 1
    if rows.groups is None and model.likelihood.noise(model.noise_model, model.scales) is not None:
        _warn_of_copies(sweeper)
    sweeper.settle(min(_SETTLING_K, settings.k) if isinstance(settings.k, int) else _SETTLING_K)
    calibrated = settings.predictive == "calibrated"
    method = _method(model, rows, calibrated, unit)

    def choose(ks: np.ndarray) -> tuple[Choice, dict[str, float], int]:
        swept = sweeper.left_out(sample, ks)
        left_out = _left_out(model, rows, sample, ks, swept)
        choice = choose_k(left_out, method, model.outputs)
        return choice, method.scores(left_out.at(choice.k), choice.head), swept.jittered

    choice, scores, jittered = _choose(model, settings, n_others, choose)
    if model.mixing is not None and calibrated:
        choice = replace(choice, head=_coupled(sweeper, sample[:: -(-len(sample) // _COUPLED_ROWS)], choice))
    return choice, scores, jittered


def _warn_of_few_rows(n: int, columns: int) -> None:
    """Say it if there are so few rows for each column that varies that length scales follow chance."""
    if n < _ROWS_A_COLUMN * columns:
        many = f"{columns:,} column{'s' if columns > 1 else ''}"
        warnings.warn(
            f"{n:,} rows are few for {many}: length scales may follow chance, left-out scores then look too good and "
            f"error bars are too narrow. Leave out columns that cannot matter, or have {_ROWS_A_COLUMN} rows a column.",
            stacklevel=4,
        )


def _warn_of_copies(sweeper: Sweeper) -> None:
    """Say it if most rows have near copies, from which they are predicted when left out."""
    rows = sweeper.rows
    which = np.arange(0, len(rows), -(-len(rows) // _COPIED_ROWS))
    share = copied_share(sweeper.index, rows.inputs.numpy() / sweeper.model.lengths, which)
    if share > _MOST_COPIED:
        warnings.warn(
            f"{share:.0%} of the rows have a near copy, much nearer than any other row. Left out alone, they are "
            'predicted from it, and the fit suffers. If these are replicates, pass groups="auto" to fit, or labels '
            "(on the command line --groups).",
            stacklevel=5,
        )


def _coupled(sweeper: Sweeper, sample: np.ndarray, choice: Choice) -> OutputHeads:
    """The heads of mixed outputs with the share of the model's correlations that suits left-out rows."""
    ks = np.array([choice.k])
    left_out = _left_out(sweeper.model, sweeper.rows, sample, ks, sweeper.left_out(sample, ks)).at(choice.k)
    noise = left_out.noise[:, :, None] * np.eye(left_out.noise.shape[1])
    heads: OutputHeads = choice.head.coupled(left_out, sweeper.left_out_covariance(sample, choice.k) + noise)
    return heads


def _choose(
    model: Model,
    settings: Settings,
    n_others: int,
    choose: Callable[[np.ndarray], tuple[Choice, dict[str, float], int]],
) -> tuple[Choice, dict[str, float], int]:
    """The choice among the k that are worth trying, in one or two rounds.

    A sweep with few neighbours is cheap; the dear one with all that may be used follows only where the largest of these
    were the best.
    """
    whole = all_rows(model.outputs)
    if isinstance(settings.k, int) or n_others <= whole:
        k = settings.k if isinstance(settings.k, int) else max(n_others, 1)
        choice, scores, jittered = choose(np.array([k]))
        return replace(choice, reason="as asked for" if k == settings.k else "all other rows"), scores, jittered
    every = candidate_ks(n_others, model.outputs)
    cheap = every[every <= whole]
    choice, scores, jittered = choose(cheap)
    if choice.k not in cheap[-2:]:
        return choice, scores, jittered
    choice, scores, more = choose(every)
    return choice, scores, jittered + more


def _method(model: Model, rows: Rows, calibrated: bool, unit: float | np.ndarray) -> Method:
    """How the head of this likelihood is fitted and judged."""
    likelihood, seen = model.likelihood, rows.observations
    if isinstance(likelihood, Classes):
        shares = seen.weights.numpy() @ seen.stats.numpy()
        return ClassMethod(likelihood, shares / shares.sum(), calibrated)
    if isinstance(likelihood, LogisticCounts):
        log_dispersion = model.noise_model.get("log_dispersion")
        dispersion = None if log_dispersion is None else float(log_dispersion.detach().exp())
        return CountMethod(likelihood, dispersion, calibrated)
    if isinstance(likelihood, GaussianOutputs):
        y, there = (part.numpy() for part in (likelihood.split(rows.stats)[0], likelihood.present(rows.stats)))
        units = np.broadcast_to(unit, likelihood.latents)
        floors = [target_floor(y[there[:, p], p]) for p in range(likelihood.outputs)]
        return OutputsMethod(
            tuple(RegressionMethod(Head(), calibrated, *each) for each in zip(floors, units.tolist(), strict=True))
        )
    heavy = "log_df" in model.noise_model
    plain = Head(df=max(SMALLEST_DF, float(model.noise_model["log_df"].detach().exp()))) if heavy else Head()
    return RegressionMethod(plain, calibrated, target_floor(rows.stats.numpy()[:, 0]), float(unit), robust=heavy)


def _left_out(model: Model, rows: Rows, sample: np.ndarray, ks: np.ndarray, swept: Swept) -> LeftOutRows:
    """The left-out observations with their moments, as the head's method wants them."""
    stats, weights = rows.observations.stats.numpy()[sample], rows.observations.weights.numpy()[sample]
    if isinstance(model.likelihood, Classes):
        return ClassLeftOut(ks, swept, stats.argmax(axis=1), weights)
    if isinstance(model.likelihood, LogisticCounts):
        return CountLeftOut(ks, swept, stats, weights)
    assert model.noise is not None
    left_out = rows.observations.take(torch.from_numpy(sample))
    noise = (model.noise.detach() + model.likelihood.known_noise(left_out.stats)).numpy()
    if isinstance(model.likelihood, GaussianOutputs):
        y, _, _ = model.likelihood.split(left_out.stats)
        return OutputsLeftOut(ks, swept, y.numpy(), noise, model.likelihood.present(left_out.stats).numpy(), weights)
    return LeftOut(ks, swept, stats[:, 0], noise, weights)
