"""A whole default fit and prediction of kin40k, against steps of GPyTorch's SVGP in the same process.

    python benchmarks/fit.py [--others] [--timeout 900]

Prints the time of our fit, calibration included, over that of 300 SVGP steps (1024 inducing points, batch 256), and the
time to predict the 4,000 test rows in such steps. With --others, fits GPBoost (Vecchia) and MuyGPyS too, each method in
a process of its own, with time, peak memory and test scores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from _data import Split, load, split
from _timing import peak_rss_mb

from experiments.methods import Settings
from experiments.methods.svgp import Config, Training
from experiments.process import DONE, run_limited
from experiments.scoring import fit_and_score
from experiments.task import Entry, Payload, Task
from nearfield import GPRegressor
from nearfield.datasets import robot_arm

OURS = Entry("nearfield, defaults", "loo-k-calibrated")
OTHERS = (
    Entry("GPBoost, Vecchia, 20 neighbours", "gpboost", options={"neighbours": (20,)}),
    Entry(
        "MuyGPyS, one length scale for all columns",
        "muygps",
        options={"kernels": ("isotropic",), "iterations": 100},
    ),
    Entry(
        "MuyGPyS, one length scale per column, 100 iterations",
        "muygps",
        options={"kernels": ("anisotropic",), "iterations": 100},
    ),
)


def measured(task: Task) -> Payload:
    """Seconds, scores and what was chosen, and the peak memory of this process."""
    if task.entry.method == OURS.method:
        GPRegressor(max_steps=1).fit(*robot_arm(500))  # compiles, or reads the compiled code from its cache
    return {**fit_and_score(task, split(*load(task.data), task.split)), "peak": peak_rss_mb()}


def svgp_step(parts: Split, dtype: str) -> Callable[[], None]:
    """One training step of GPyTorch's SVGP as in its tutorial: Adam moves everything."""
    config = Config(inducing=1024, betas=(1.0,), steps=10**6, batch=256, rate=0.01, dtype=dtype, natural=False)
    Z = np.random.default_rng(0).permutation(parts.X)[: config.inducing]
    return Training("svgp", Settings(), config, 1.0, Z, parts.X, parts.y, seed=0).step


def line(name: str, found: Payload) -> str:
    """One line of the table."""
    if found["status"] != DONE:
        return f"| {name} | {found['status']}: {found.get('message', 'limit of time')} | | | | | |"
    scores, seconds = found["metrics"], found["seconds"]
    return (
        f"| {name} | {seconds['fit']:.1f} | {seconds['predict']:.1f} | {found['peak']:.0f} | {scores['rmse']:.4f} "
        f"| {scores['nll']:.3f} | {scores['crps']:.4f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="kin40k")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--others", action="store_true", help="also GPBoost and MuyGPyS")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each of these")
    args = parser.parse_args()
    parts = split(*load(args.dataset), args.seed)
    for dtype in ("float32", "float64"):
        step = svgp_step(parts, dtype)
        for _ in range(3):
            step()
        before = [_seconds(step) for _ in range(15)]
        us = measured(Task("", OURS, args.dataset, args.seed))
        svgp = float(np.median(before + [_seconds(step) for _ in range(15)]))
        steps, to_predict = us["seconds"]["fit"] / svgp, us["seconds"]["predict"] / svgp
        print(f"SVGP step, {dtype}: {1e3 * svgp:.0f} ms")
        print(f"  our fit {us['seconds']['fit']:.1f} s = {steps:.0f} SVGP steps, {steps / 300:.2f} of 300 steps")
        print(f"  our prediction {us['seconds']['predict']:.2f} s = {to_predict:.1f} SVGP steps", flush=True)
    rows = f"{args.dataset}, {len(parts.y):,} rows to fit, {len(parts.y_test):,} to predict"
    print(
        f"\n| {rows} | fit, s | predict, s | peak memory, MB | RMSE | NLL | CRPS |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for entry in (OURS, *(OTHERS if args.others else ())):
        task = Task("", entry, args.dataset, args.seed, limit=args.timeout)
        found = run_limited(measured, task, args.timeout)
        k = f" (k = {found['chosen']['k']})" if entry is OURS and found["status"] == DONE else ""
        print(line(entry.name + k, found), flush=True)


def _seconds(func: Callable[[], object]) -> float:
    began = time.perf_counter()
    func()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
