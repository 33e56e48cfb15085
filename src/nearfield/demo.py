"""`make demo`: from nothing to a fitted model, scores and predictions, on data that ship with the package."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from sklearn.datasets import load_diabetes

from nearfield.datasets import JOINT_NAMES, robot_arm
from nearfield.demo_pictures import draw, intervals
from nearfield.estimators import GPRegressor, TrainingRowsWarning
from nearfield.metrics import Scores

_SHOWN = 64  # new rows in the terminal


def main() -> None:
    """Two data sets, a default fit of each, beside a constant prediction."""
    began = time.perf_counter()
    X, y = robot_arm(6000, random_state=0)
    print(
        "A robot arm with 8 joints: predict a distance of its hand, measured with noise that varies over the workspace."
    )
    model = _show("robot arm", X, y, n_test=1000)
    print("\nWhich joints matter most, by how short a turn changes the distance:")
    relevance = dict(zip(JOINT_NAMES, model.feature_relevance_.values(), strict=True))
    for name, value in sorted(relevance.items(), key=lambda item: -item[1]):
        print(f"  {name:8} {value:6.3f}  {'#' * round(40 * value / max(relevance.values()))}")
    _show_predictions(model, X[-1000:], y[-1000:])
    _show_file(model, X[-5:])
    print("\nThe diabetes study that scikit-learn ships: 442 patients, 10 measurements.")
    X, y = load_diabetes(return_X_y=True)
    _show("diabetes", X, y, n_test=92)
    print(f"\nAll of it in {time.perf_counter() - began:.0f} s.")


def _show(name: str, X: np.ndarray, y: np.ndarray, n_test: int) -> GPRegressor:
    """Fit all but the last rows, print the summary and the scores on these."""
    order = np.random.default_rng(0).permutation(len(y)) if name == "diabetes" else np.arange(len(y))
    train, test = order[:-n_test], order[-n_test:]
    model = GPRegressor(random_state=0).fit(X[train], y[train])
    print(model.summary_)
    constant = scipy.stats.norm(np.full(n_test, y[train].mean()), y[train].std())
    print(f"\n{n_test} new rows             RMSE      NLL     CRPS   intervals of 50/90/95 % cover")
    for label, dist in (("nearfield", model.predict_dist(X[test])), ("constant prediction", constant)):
        print(f"  {label:20}{_line(y[test], dist)}")
    return model


def _line(y: np.ndarray, dist: Any) -> str:
    s = Scores.of(y, dist).as_dict()
    covered = " / ".join(f"{100 * s[f'coverage_{level}']:.0f}" for level in (50, 90, 95))
    return f"{s['rmse']:8.4g} {s['nll']:8.4g} {s['crps']:8.4g}   {covered} %"


def _show_predictions(model: GPRegressor, X: np.ndarray, y: np.ndarray) -> None:
    mean, std = model.predict(X[:_SHOWN], return_std=True)
    low, high = model.predict_interval(X[:_SHOWN], coverage=0.9)
    print("\nFive new positions of the arm:\n    mean      std    90 % interval       observed")
    for row in list(zip(mean, std, low, high, y, strict=False))[:5]:
        print("  {:6.3f}   {:6.3f}   {:6.3f} to {:6.3f}   {:6.3f}".format(*row))
    order = np.argsort(mean)
    print(f"\nThe distances of {_SHOWN} new positions, metres, in the order of their predictions:")
    print(intervals(y[:_SHOWN][order], low[order], high[order], sys.stdout.encoding))
    print(draw(model, X, y, Path.cwd()))


def _show_file(model: GPRegressor, X: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingRowsWarning)
        path = os.path.join(folder, "arm.nearfield")
        model.save(path)
        same = np.array_equal(GPRegressor.load(path).predict(X), model.predict(X))
        size = os.path.getsize(path) / 2**20
    print(f"\nSaved to one file of {size:.1f} MB (it contains the training rows); loaded, it predicts ", end="")
    print("the same bits." if same else "SOMETHING ELSE.")


if __name__ == "__main__":
    main()
