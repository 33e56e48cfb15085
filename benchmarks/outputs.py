"""Accuracy with several outputs: RMSE, NLL, CRPS and coverage on test rows, each averaged over outputs.

    python benchmarks/outputs.py [--datasets fw_baxter,fw_kuka] [--outputs lmc,independent,shared] [--seeds 0,1,2]
    python benchmarks/outputs.py --datasets fw_kuka --by traj

15:3:2 splits of shuffled rows, inputs and each output standardised on the training rows, so that the zero prediction
has an RMSE of one; no fit uses the validation rows. Prints means over the seeds (and their standard errors), beside the
best of the four methods in the paper's multivariate table. --by traj takes whole trajectories, eight to train and two
to test: what a robot meets that moves in a new way. --rows validation scores the validation rows instead, on which
choices between variants are made.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import scipy.stats
from _data import folder, split_rows, standardised

from nearfield import GPRegressor
from nearfield.metrics import Scores

DATASETS = ("fw_baxter", "fw_kuka", "baxter_rand", "coads", "sarcos_test")
PAPER = {"fw_baxter": (0.035, -1.961), "fw_kuka": (0.089, -1.892)}  # best RMSE and best NLL of the table's methods


def parts(name: str, seed: int, scored: str, by: str | None) -> list[np.ndarray]:
    """Inputs and outputs of the training rows and of those that are scored, standardised."""
    with np.load(folder() / f"{name}.npz") as arrays:
        X, Y = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
        groups = None if by is None else arrays[by]
    train, validation, test = split_rows(len(X), seed)
    if groups is not None:
        order = np.random.default_rng(seed).permutation(np.unique(groups))
        train, validation, test = (np.flatnonzero(np.isin(groups, g)) for g in (order[:-2], order[-2:-1], order[-2:]))
    rows = test if scored == "test" else validation
    return [*standardised(X[train], X[rows]), *standardised(Y[train], Y[rows])]


def run(name: str, seed: int, scored: str, by: str | None, **settings: object) -> dict[str, float]:
    """Scores of one fit, averaged over outputs."""
    X, X_scored, Y, Y_scored = parts(name, seed, scored, by)
    began = time.perf_counter()
    model = GPRegressor(random_state=seed, **settings).fit(X, Y)
    fitted = time.perf_counter()
    dist = model.predict_dist(X_scored)
    seconds = {"fit": fitted - began, "predict": time.perf_counter() - fitted}
    df = np.broadcast_to(dist.args[0] if dist.dist.name == "t" else np.inf, Y.shape[1])
    loc, scale = dist.args[-2:]
    each = [
        Scores.of(Y_scored[:, p], scipy.stats.t(df[p], loc[:, p], scale[:, p])).as_dict() for p in range(Y.shape[1])
    ]
    joint = -model.log_score(X_scored, Y_scored, joint=True) / Y.shape[1]
    means = {key: float(np.mean([scores[key] for scores in each])) for key in each[0]}
    return {**means, **seconds, "joint": joint, "k": model.k_, "steps": model.summary_.steps}


def row(name: str, seeds: list[int], scored: str, by: str | None, **settings: object) -> str:
    results = [run(name, seed, scored, by, **settings) for seed in seeds]

    def cell(key: str, digits: int = 4) -> str:
        values = np.array([r[key] for r in results])
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        return f"{values.mean():.{digits}f} ± {error:.{digits}f}"

    rmse, nll = (f"{value:.3f}" for value in PAPER[name]) if name in PAPER and by is None else ("", "")
    return (
        f"| {name} | {settings['outputs']} | {cell('rmse')} | {rmse} | {cell('nll', 3)} | {nll} | {cell('joint', 3)} "
        f"| {cell('crps')} | {cell('coverage_90', 3)} | {', '.join(str(r['k']) for r in results)} "
        f"| {', '.join(str(r['steps']) for r in results)} | {cell('fit', 0)} | {cell('predict', 0)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--outputs", default="lmc,independent,shared")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rows", default="test", choices=("test", "validation"))
    parser.add_argument("--by", help="array of the data set whose values are kept together in a split")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    settings = {name: json.loads(value) for name, value in (pair.split("=") for pair in args.set)}
    heads = ["data set", "outputs", "RMSE", "paper", "NLL", "paper", "joint NLL / P", "CRPS", "90 %", "k", "steps"]
    heads += ["fit, s", "predict, s"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for name in args.datasets.split(","):
        for outputs in args.outputs.split(","):
            seeds = [int(s) for s in args.seeds.split(",")]
            print(row(name, seeds, args.rows, args.by, outputs=outputs, **settings), flush=True)


if __name__ == "__main__":
    main()
