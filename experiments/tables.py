"""The experiments whose results are tables: one fit, one line of scores."""

from __future__ import annotations

import numpy as np

from experiments.catalogue import EXPERIMENTS
from experiments.data import Split, load, split, standardised
from experiments.scoring import fit_and_score, fit_and_score_outputs
from experiments.synthetic import UNWARPED, WARPINGS, prior_draw, with_twins
from experiments.task import TWINS, Payload, Task

QUICK_ROWS = 2000
QUICK_OUTPUTS = 2
PRIOR_ROWS, QUICK_PRIOR_ROWS = 8096, 1200


def run(task: Task) -> Payload:
    """Regression with one output, or classes."""
    parts = _split(task, task.data)
    if (EXPERIMENTS[task.experiment].kind == "regression") == bool(parts.classes):
        held = "labels of classes" if parts.classes else "numbers"
        raise ValueError(f"{task.data} has {held}: its file is not for {task.experiment}.")
    return fit_and_score(task, parts)


def run_outputs(task: Task) -> Payload:
    """Regression with several outputs (n, p), a few of them in a quick run."""
    X, y = load(task.data, task.openml)
    most = (QUICK_ROWS, QUICK_OUTPUTS) if task.quick else (None, None)
    return fit_and_score_outputs(task, split(X, y[:, : most[1]], task.split, most[0]))


def run_degenerate(task: Task) -> Payload:
    """NAME-twins: every training row has a noisy replicate; NAME: the data as they are."""
    parts = _split(task, task.data.removesuffix(TWINS))
    if not task.data.endswith(TWINS):
        return fit_and_score(task, parts)
    X, y = with_twins(parts.X, parts.y, task.split)
    return fit_and_score(task, Split(X, y, parts.X_val, parts.y_val, parts.X_test, parts.y_test))


def run_misspecification(task: Task) -> Payload:
    """WARPING-GAMMA: half of the rows to train, half to test; the same rows for every warping and gamma."""
    X, y = prior_draw(QUICK_PRIOR_ROWS if task.quick else PRIOR_ROWS, task.split)
    half = len(X) // 2
    if task.data != UNWARPED:
        warping, gamma = task.data.rsplit("-", 1)
        X = WARPINGS[warping](X, float(gamma))
    X_train, X_test = standardised(*np.split(X, [half]))
    y_train, y_test = standardised(*np.split(y, [half]))
    return fit_and_score(task, Split(X_train, y_train, X_train[:0], y_train[:0], X_test, y_test))


def _split(task: Task, data: str) -> Split:
    X, y = load(data, task.openml)
    return split(X, y, task.split, QUICK_ROWS if task.quick else None)
