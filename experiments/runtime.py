"""Time of training over the number of rows: Sec. "Runtime performance".

Seconds of a whole fit with a set number of steps, divided by the steps. With LOO-k that includes the neighbour searches
and the sweep over left-out rows at the end, with SVGP the k-means of its inducing points. The trainer of nearfield
starts with 64 neighbours and reaches 256 in the last fifth of its steps, as it does for users.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from experiments.data import Array, available, load, split
from experiments.scoring import build
from experiments.synthetic import enlarged, smooth_table
from experiments.task import Payload, Task

COLUMNS = 25
WARM_UP_ROWS, WARM_UP_STEPS = 500, 50
QUICK_STEPS = 100  # of SVGP; LOO-k needs all of its steps to reach its last stage


def rows_of(data: str) -> int:
    """Of a name such as "rows-1000"."""
    return int(data.removeprefix("rows-"))


def run(task: Task) -> Payload:
    """Seconds of one fit."""
    n = rows_of(task.data)
    task = _with_steps(task, QUICK_STEPS, ("steps",)) if task.quick else task
    X, y, source = table(n, task.split, task.openml)
    held = min(1000, n // 10)
    _warm_up(task, X[:WARM_UP_ROWS], y[:WARM_UP_ROWS])
    method = build(task, "regression")
    began = time.monotonic()
    method.fit(X, y, X[:held], y[:held], seed=task.split, deadline=task.ends())
    seconds = time.monotonic() - began
    steps = int(method.chosen["steps"])
    return {
        "rows": {"train": n, "columns": X.shape[1]},
        "seconds": {"fit": seconds},
        "metrics": {"seconds_per_step": seconds / steps},
        "chosen": method.chosen,
        "source": source,
    }


def _warm_up(task: Task, X: Array, y: Array) -> None:
    """A short fit, so that neither imports nor compilation are timed."""
    short = build(_with_steps(task, WARM_UP_STEPS, ("steps", "max_steps")), "regression")
    short.fit(X, y, X, y, seed=task.split, deadline=task.ends())


def _with_steps(task: Task, steps: int, options: tuple[str, ...]) -> Task:
    """The same with that many steps in those options that it has."""
    fewer = {name: steps for name in options if name in task.entry.options}
    return replace(task, entry=replace(task.entry, options={**task.entry.options, **fewer}))


def table(n: int, seed: int, ask_openml: bool) -> tuple[Array, Array, str]:
    """n rows of 25 columns: of Slice, enlarged by noisy repeats as in the paper, or generated where it is not there."""
    if not available("slice", ask_openml):
        return *smooth_table(n, COLUMNS, seed), "generated"
    parts = split(*load("slice", ask_openml), seed)
    X = parts.X[:, np.ptp(parts.X, axis=0) > 0]
    columns = np.random.default_rng(seed).permutation(X.shape[1])[:COLUMNS]
    return *enlarged(X[:, columns], parts.y, n, seed), "slice"
