"""One fit of one method, timed and scored."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from experiments.data import Array, Split
from experiments.methods import Fittable, Prediction, Settings
from experiments.ours import ALL_METHODS
from experiments.task import Payload, Task
from nearfield.metrics import ClassScores, Scores


def build(task: Task, kind: str, classes: int = 2, outputs: int = 1) -> Fittable:
    """The unfitted method of a task."""
    settings = Settings(kind, max(classes, 2), task.quick, task.threads, task.entry.options, outputs)
    return ALL_METHODS[task.entry.method].build(settings)


def fit_and_score(task: Task, split: Split) -> Payload:
    """Rows, seconds, metrics of the test rows, and what the method chose."""
    outputs = split.y.shape[1] if split.y.ndim == 2 else 1
    numbers = "multivariate" if outputs > 1 else "regression"
    kind = numbers if not split.classes else "binary" if split.classes == 2 else "multiclass"
    method = build(task, kind, split.classes, outputs)
    began, began_cpu, deadline = time.monotonic(), time.process_time(), task.ends()
    method.fit(split.X, split.y, split.X_val, split.y_val, seed=task.split, deadline=deadline)
    fitted = time.monotonic()
    prediction = method.predict(split.X_test, deadline=deadline)
    ended = time.monotonic()
    return {
        "rows": split.rows(),
        "seconds": {"fit": fitted - began, "predict": ended - fitted, "cpu": time.process_time() - began_cpu},
        "metrics": score(prediction, split.y_test, split.y),
        "chosen": method.chosen,
    }


def fit_and_score_outputs(task: Task, split: Split) -> Payload:
    """The same with targets (n, p): one fit of all outputs if the method can, else one of each, its time added up.

    Metrics are averages over the outputs.
    """
    outputs = split.y.shape[1]
    rows = {**split.rows(), "outputs": outputs}
    if outputs > 1 and "multivariate" in ALL_METHODS[task.entry.method].kind:
        return {**fit_and_score(task, split), "rows": rows}
    payloads = []
    for j in range(outputs):
        one = replace(split, y=split.y[:, j], y_val=split.y_val[:, j], y_test=split.y_test[:, j])
        payloads.append(fit_and_score(task, one))
    seconds = {name: sum(r["seconds"][name] for r in payloads) for name in payloads[0]["seconds"]}
    return {
        "rows": rows,
        "seconds": seconds,
        "metrics": _average([r["metrics"] for r in payloads]),
        "chosen": {"outputs": [r["chosen"] for r in payloads]},
    }


def score(prediction: Prediction, y: NDArray, y_train: NDArray) -> dict[str, float]:
    """RMSE, NLL, CRPS and coverage; or of classes NLL, error, Brier score and calibration error.

    Of several outputs, y (m, p), averages of the scores of each. A class that no training row had cannot be predicted:
    its rows count as errors, and nowhere else.
    """
    if y.ndim == 2:
        return _average([score(prediction.output(j), y[:, j], y_train[:, j]) for j in range(y.shape[1])])
    if prediction.probabilities is None:
        scores = Scores.of(y, prediction.dist).as_dict()
        scores["rmse"] = float(np.sqrt(np.mean((y - _means(prediction)) ** 2)))
        return {name: float(value) for name, value in scores.items() if name != "n"}
    known = np.isin(y, np.unique(y_train))
    scores = ClassScores.of(y[known], prediction.probabilities[known]).as_dict()
    scores["error"] += (1 - scores["error"]) * float(np.mean(~known))
    return {name: float(value) for name, value in scores.items() if name != "n"}


def _average(scores: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in scores])) for name in scores[0]}


def _means(prediction: Prediction) -> Array:
    if prediction.mean is None:
        raise ValueError("a prediction of numbers needs means")
    return prediction.mean
