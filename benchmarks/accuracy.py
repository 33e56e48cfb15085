"""Accuracy on the seven data sets of the paper's univariate table: RMSE, NLL, CRPS and coverage on test rows.

    python benchmarks/accuracy.py [--datasets pol,bike] [--seeds 0,1,2] [--predictive gaussian,calibrated]

15:3:2 splits of shuffled rows, inputs and target standardised on the training rows; the validation rows are not used.
Prints means over the seeds (and their standard errors), beside the paper's LOO-k and the best of its eight methods.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from _data import DATASETS, load, paper, paper_best, split

from nearfield import GPRegressor
from nearfield.metrics import Scores


def run(name: str, seed: int, predictive: str) -> dict[str, float]:
    """Test scores of one default fit."""
    parts = split(*load(name), seed)
    began = time.perf_counter()
    model = GPRegressor(predictive=predictive, random_state=seed).fit(parts.X_train, parts.y_train)
    seconds = time.perf_counter() - began
    scores = Scores.of(parts.y_test, model.predict_dist(parts.X_test)).as_dict()
    return {**scores, "k": model.k_, "seconds": seconds}


def table(name: str, predictive: str, seeds: list[int]) -> str:
    results = [run(name, seed, predictive) for seed in seeds]

    def cell(key: str, digits: int = 4) -> str:
        values = np.array([r[key] for r in results])
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        return f"{values.mean():.{digits}f} ± {error:.{digits}f}"

    def beside(metric: str) -> str:
        best, method = paper_best(metric, name)
        return f"{paper(metric, name, 'LOO-k'):.3f} / {best:.3f} ({method})"

    return (
        f"| {name} | {predictive} | {cell('rmse')} | {beside('rmse')} | {cell('nll', 3)} | {beside('nll')} "
        f"| {cell('crps')} | {beside('crps')} | {cell('coverage_50', 3)} | {cell('coverage_90', 3)} "
        f"| {cell('coverage_95', 3)} | {', '.join(str(r['k']) for r in results)} | {cell('seconds', 0)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--predictive", default="gaussian,calibrated")
    args = parser.parse_args()
    seeds = [int(s) for s in args.seeds.split(",")]
    heads = ["data set", "predictive", "RMSE", "paper LOO-k / best", "NLL", "paper", "CRPS", "paper"]
    heads += ["50 %", "90 %", "95 %", "k", "fit, s"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for name in args.datasets.split(","):
        for predictive in args.predictive.split(","):
            print(table(name, predictive, seeds), flush=True)


if __name__ == "__main__":
    main()
