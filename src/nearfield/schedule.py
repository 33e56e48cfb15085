"""How long a fit trains: on how many rows at a time, with how many neighbours and which step size."""

from __future__ import annotations

from dataclasses import replace

from nearfield.calibration import EXACT_ROWS, all_rows
from nearfield.descent import Descent
from nearfield.model import Model
from nearfield.rows import Rows
from nearfield.settings import Settings
from nearfield.sweep import MOST_WHOLE
from nearfield.training import Advancing, Race, Schedule, Stage

_TRAINED = (64, 128, 256)  # neighbours in the three stages of training
_BLOCKS = (256, 384, 384)  # numbers of them that a matrix of several outputs may have
_OWN_FACTORS = 128  # neighbours at most, where each of several latent functions has a factorisation of its own
_FEWEST_MIXED = 8  # neighbours, however many outputs there are
_SETTLING_K = 64  # neighbours from which the site state of all rows is found
_SAMPLES = (250, 500, 1000)  # rows of the samples with which training begins
_SAMPLE_STEPS = 15  # of L-BFGS on samples of a large table but for the first
_RACE = 2  # refreshes after which the first start and that of a sample are compared


def exactly(model: Model, rows: Rows, settings: Settings) -> str:
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
    """L-BFGS on all rows of a small table, or first on samples of a large one: see `exactly`.

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


def settling_k(n: int, k: int | str) -> int:
    """Neighbours from which the site state of n rows is found, where k are asked for."""
    few = n if n <= EXACT_ROWS else _SETTLING_K
    return min(few, k) if isinstance(k, int) else few
