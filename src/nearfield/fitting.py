"""The whole fit, from validated arrays to a predictor: standardise, train, choose k and calibrate on left-out rows."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from tqdm import tqdm

from nearfield.calibration import ALL_ROWS, Choice, Head, LeftOut, candidate_ks, choose_k, target_floor
from nearfield.kernels import find_kernel
from nearfield.metrics import LEVELS, covered
from nearfield.model import Model, Rows
from nearfield.persistence import read_file, write_file
from nearfield.prediction import Predictor
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper
from nearfield.training import Progress, Run, Schedule, Stage, restore, start, state, train

_IGNORED = 1e300  # scale of a column that was constant in training: whatever it holds later counts as the same
_FEWEST_TRAINED = 10  # rows; with fewer, leaving rows out teaches the noise of these rows
_LEFT_OUT_ROWS = 4000  # rows left out to choose k and to calibrate


@dataclass(frozen=True)
class Settings:
    """What a user can set of a fit; the defaults of the package."""

    kernel: str = "matern52"
    k: int | str = "auto"
    predictive: str = "calibrated"
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
    predictive: str
    steps: int
    most_steps: int
    seconds: float
    k: int
    k_reason: str
    noise_std: float
    left_out_rows: int
    left_out: dict[str, float]
    jittered: int
    rejected: int

    def as_dict(self) -> dict[str, object]:
        """Plain numbers and strings."""
        return asdict(self)

    def __str__(self) -> str:
        s = self.left_out
        stopped = "early, the score had settled" if self.steps < self.most_steps else "at max_steps"
        stopped = stopped if self.steps else "before it began: too few rows, or a constant target"
        recoveries = f"{self.jittered} factorisations with extra jitter, {self.rejected} steps rejected"
        return "\n".join(
            [
                f"{self.rows:,} rows, {self.columns} columns, kernel {self.kernel}, {self.predictive} predictive",
                f"trained {self.steps} steps in {self.seconds:.1f} s (stopped {stopped}); recoveries: {recoveries}",
                f"k = {self.k}: {self.k_reason}",
                f"{self.left_out_rows:,} rows left out: RMSE {s['rmse']:.4g}, NLL {s['nll']:.4g}, CRPS {s['crps']:.4g}",
                "intervals of 50 / 90 / 95 % cover "
                + " / ".join(f"{100 * s[f'coverage_{level}']:.1f}" for level in (50, 90, 95))
                + " % of them",
            ]
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """A predictor in standardised units, with what leads there and back."""

    predictor: Predictor
    inputs: Scaling
    target: Scaling
    summary: Summary


def standardise(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray, known_noise: np.ndarray, inputs: Scaling, target: Scaling
) -> Rows:
    """Rows in standardised units from X (n, d), y (n,), weights (n,) and noise variances (n,) in the user's."""
    arrays = (inputs.apply(X), target.apply(y), weights, known_noise / target.scale / target.scale)
    return Rows(*(torch.from_numpy(np.ascontiguousarray(a, dtype=np.float64)) for a in arrays))


def fit(
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    known_noise: np.ndarray,
    settings: Settings,
    rng: np.random.Generator,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
) -> Fit:
    """Fit X (n, d), y (n,); all values finite, weights positive. `verbose` None shows progress on terminals only."""
    began = time.perf_counter()
    inputs, target = Scaling.of(X, weights, if_constant=_IGNORED), Scaling.of(y, weights)
    rows = standardise(X, y, weights, known_noise, inputs, target)
    model = Model.initial(find_kernel(settings.kernel), X.shape[1], engine=settings.engine)
    sample = _sample(rng, len(rows))
    progress = _train(model, rows, settings, rng, checkpoint, verbose)
    choice, left_out, jittered = _calibrate(model, rows, settings, sample)
    summary = Summary(
        rows=len(rows),
        columns=X.shape[1],
        kernel=settings.kernel,
        predictive=settings.predictive,
        steps=progress.steps,
        most_steps=schedule_for(settings, len(rows)).most_steps,
        seconds=time.perf_counter() - began,
        k=choice.k,
        k_reason=choice.reason,
        noise_std=float(model.noise.detach().sqrt()) * float(target.scale),
        left_out_rows=len(left_out.y),
        left_out=_scores(left_out, choice.head, float(target.scale)),
        jittered=progress.jittered + jittered,
        rejected=progress.rejected,
    )
    return Fit(Predictor(model, rows, choice.k, choice.head), inputs, target, summary)


def schedule_for(settings: Settings, n: int) -> Schedule:
    """Three stages, each with a fifth of the step size of the one before and, up to k, more neighbours."""
    most = settings.k if isinstance(settings.k, int) else ALL_ROWS
    ks = [ALL_ROWS] * 3 if most == ALL_ROWS >= n - 1 else [min(most, top) for top in (64, 128, 256)]
    every = min(settings.refresh_every, settings.max_steps)
    refreshes = settings.max_steps // every
    shares = (refreshes - refreshes // 2, refreshes // 2 - refreshes // 5, refreshes // 5)
    rates = (settings.learning_rate / 5**i for i in range(3))
    stages = tuple(Stage(*stage) for stage in zip(rates, ks, shares, strict=True) if stage[2] > 0)
    return Schedule(stages, settings.batch_size, every)


def _scores(rows: LeftOut, head: Head, unit: float) -> dict[str, float]:
    """Weighted scores of left-out rows in units of the target, of which `unit` is one standard deviation."""
    dist = rows.predict(head)
    shares = {
        f"coverage_{100 * level:.0f}": float(np.average(covered(rows.y, dist, level), weights=rows.weights))
        for level in LEVELS
    }
    nll = math.log(unit) - rows.log_score(head)
    return {"rmse": rows.rmse() * unit, "nll": nll, "crps": rows.crps(head) * unit, **shares}


def _train(
    model: Model,
    rows: Rows,
    settings: Settings,
    rng: np.random.Generator,
    checkpoint: str | os.PathLike[str] | None,
    verbose: bool | None,
) -> Progress:
    """Train in place, with a progress bar and, if asked for, a checkpoint that is removed at the end."""
    if float(rows.targets.min()) == float(rows.targets.max()) or float(rows.weights.sum()) < _FEWEST_TRAINED:
        return Progress()  # nothing to learn from: the starting values stay
    schedule = schedule_for(settings, len(rows))
    run = start(model, rng)
    fingerprint = "" if checkpoint is None else _fingerprint(rows, settings)
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

        progress = train(run, rows, schedule, after_refresh)
    if checkpoint is not None:
        with suppress(FileNotFoundError):
            os.remove(checkpoint)
    return progress


def _fingerprint(rows: Rows, settings: Settings) -> str:
    """Of everything that training depends on."""
    digest = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode())
    for part in (rows.inputs, rows.targets, rows.weights, rows.known_noise):
        digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()


def _sample(rng: np.random.Generator, n: int) -> np.ndarray:
    """Row numbers left out for calibration, ascending: all, or a random few thousand."""
    return np.arange(n) if n <= _LEFT_OUT_ROWS else np.sort(rng.choice(n, _LEFT_OUT_ROWS, replace=False))


def _calibrate(model: Model, rows: Rows, settings: Settings, sample: np.ndarray) -> tuple[Choice, LeftOut, int]:
    """The number of neighbours and the head, from left-out rows.

    A sweep with up to ALL_ROWS neighbours is cheap; the dear one with all that may be used follows only where the
    largest of these were the best.
    """
    sweeper, n_others = Sweeper(model, rows), len(rows) - 1
    noise = float(model.noise.detach()) + rows.known_noise.numpy()[sample]
    floor = target_floor(rows.targets.numpy())

    def choose(ks: np.ndarray) -> tuple[Choice, LeftOut, int]:
        swept = sweeper.left_out(sample, ks)
        left_out = LeftOut(ks, swept, rows.targets.numpy()[sample], noise, rows.weights.numpy()[sample])
        choice = choose_k(left_out, floor, settings.predictive == "calibrated")
        return choice, left_out.at(choice.k), swept.jittered

    if isinstance(settings.k, int) or n_others <= ALL_ROWS:
        k = settings.k if isinstance(settings.k, int) else max(n_others, 1)
        choice, left_out, jittered = choose(np.array([k]))
        return replace(choice, reason="as asked for" if k == settings.k else "all other rows"), left_out, jittered
    every = candidate_ks(n_others)
    cheap = every[every <= ALL_ROWS]
    choice, left_out, jittered = choose(cheap)
    if choice.k not in cheap[-2:]:
        return choice, left_out, jittered
    choice, left_out, more = choose(every)
    return choice, left_out, jittered + more
