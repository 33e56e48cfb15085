"""How predictions depend on the number of neighbours: Sec. "Dependence on number of nearest neighbors k".

The paper trains once for each k. Here one fit gives the hyper-parameters, and nested factors the predictions of all k.
"""

from __future__ import annotations

import time

import numpy as np

from experiments.data import Array, load, split
from experiments.methods import Prediction
from experiments.nested import Kernel, moments, neighbours
from experiments.ours import Regression
from experiments.scoring import build, score
from experiments.task import Payload, Task

KS = (8, 16, 32, 64, 128, 256, 512)
TEST_ROWS = 2000  # at most; dense factors of 512 rows take their time
QUICK_ROWS = 3000
QUICK_TEST_ROWS = 300
_UNUSED = 1e100  # length scales beyond are those of constant columns


def run(task: Task) -> Payload:
    """Scores of the test rows for each k."""
    parts = split(*load(task.data, task.openml), task.split, QUICK_ROWS if task.quick else None)
    method = build(task, "regression")
    if not isinstance(method, Regression):
        raise ValueError(f"{task.entry.name} has no neighbours to count: only our own regressions do.")
    began = time.monotonic()
    method.fit(parts.X, parts.y, parts.X_val, parts.y_val, seed=task.split)
    fitted = time.monotonic()
    most = QUICK_TEST_ROWS if task.quick else TEST_ROWS
    X_test, y_test = parts.X_test[:most], parts.y_test[:most]
    mean, variance = predict_every_k(method, parts.X, parts.y, X_test, max(KS))
    by_k = {}
    for k in KS:
        if k <= mean.shape[1]:
            prediction = Prediction.normal(mean[:, k - 1], np.sqrt(variance[:, k - 1]))
            by_k[k] = score(prediction, y_test, parts.y)
    return {
        "rows": {**parts.rows(), "test": len(X_test)},
        "seconds": {"fit": fitted - began, "predict": time.monotonic() - fitted},
        "metrics": {},
        "chosen": method.chosen,
        "by_k": by_k,
    }


def predict_every_k(method: Regression, X: Array, y: Array, X_test: Array, most: int) -> tuple[Array, Array]:
    """Means and variances (m, most) of the Gaussian predictive from the first 1, 2, ... neighbours."""
    model = method.model
    lengths = np.asarray(model.length_scales_, dtype=np.float64)
    far = np.where(lengths < _UNUSED, 1e6 * lengths, 0.0)  # no row is near: what is predicted is the model's mean
    kernel = Kernel(lengths, model.kernel_scale_, model.noise_std_, float(model.predict(far[None])[0]))
    ids = neighbours(X, lengths, min(most, len(X)), X_test)
    return moments(kernel, X, y, ids, X_test)
