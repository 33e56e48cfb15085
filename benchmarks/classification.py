"""Accuracy on the paper's classification data sets: NLL, error, Brier score and calibration error on test rows.

    python benchmarks/classification.py [--datasets titanic,bank] [--seeds 0,1,2] [--auxiliary tied,conjugate]

15:3:2 splits of shuffled rows, inputs standardised on the training rows; no fit uses the validation rows. Prints means
over the seeds (and their standard errors), beside the paper's LOO-k and the best of its methods. --set passes further
arguments to GPClassifier, such as --set class_kernels=own. --rows validation scores the validation rows instead, on
which choices between variants are made.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from _classes import BINARY, MULTI, load, paper, split

from nearfield import GPClassifier
from nearfield.metrics import ClassScores


def run(name: str, seed: int, scored: str, **settings: object) -> dict[str, float]:
    """Test scores of one fit."""
    X, y, X_test, y_test = split(*load(name), seed, scored)
    began = time.perf_counter()
    model = GPClassifier(random_state=seed, **settings).fit(X, y)
    fitted = time.perf_counter()
    p = model.predict_proba(X_test)
    known = np.isin(y_test, model.classes_)  # a class with two rows may have none to learn from: it counts as missed
    labels = np.searchsorted(model.classes_, y_test).clip(max=len(model.classes_) - 1)
    scores = ClassScores.of(labels[known], p[known]).as_dict()
    scores["error"] += float((1 - scores["error"]) * (~known).mean())
    left_out = model.summary_.left_out["nll"]
    seconds = {"fit": fitted - began, "predict": time.perf_counter() - fitted}
    return {**scores, **seconds, "k": model.k_, "left_out": left_out, "steps": model.summary_.steps}


def row(name: str, seeds: list[int], scored: str, **settings: object) -> str:
    results = [run(name, seed, scored, **settings) for seed in seeds]

    def cell(key: str, digits: int = 4) -> str:
        values = np.array([r[key] for r in results])
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        return f"{values.mean():.{digits}f} ± {error:.{digits}f}"

    figures = paper(name)
    value, error = figures.nll["LOO-k"]
    return (
        f"| {name} | {cell('nll')} | {value:.3f} ± {error:.3f} / {figures.best_nll:.3f} | {cell('error')} "
        f"| {figures.error['LOO-k']:.3f} / {figures.best_error:.3f} | {cell('brier')} | {cell('calibration_error')} "
        f"| {cell('left_out')} | {', '.join(str(r['k']) for r in results)} "
        f"| {', '.join(str(r['steps']) for r in results)} | {cell('fit', 0)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join([*BINARY, *MULTI]))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--auxiliary", default="tied")
    parser.add_argument("--rows", default="test", choices=("test", "validation"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    seeds = [int(s) for s in args.seeds.split(",")]
    settings = {name: _parsed(value) for name, value in (pair.split("=") for pair in args.set)}
    heads = ["data set", "NLL", "paper LOO-k / best", "error", "paper", "Brier", "calibration error", "left-out NLL"]
    heads += ["k", "steps", "fit, s"]
    for auxiliary in args.auxiliary.split(","):
        print(f"\n{auxiliary} {settings or ''}\n\n| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
        for name in args.datasets.split(","):
            print(row(name, seeds, args.rows, auxiliary=auxiliary, **settings), flush=True)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    main()
