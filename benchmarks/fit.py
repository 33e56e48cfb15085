"""A whole default fit and prediction of kin40k, against steps of GPyTorch's SVGP in the same process.

    python benchmarks/fit.py [--others] [--timeout 900]

Prints the time of our fit, calibration included, over that of 300 SVGP steps (1024 inducing points, batch 256), and the
time to predict the 4,000 test rows over that of 15 such steps. With --others, fits GPBoost (Vecchia) and MuyGPyS too,
each in a process of its own, with time, peak memory and test scores.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.stats
from _baselines import gpboost_vecchia, muygps, run_isolated, svgp_step_factory
from _data import load, split
from _timing import peak_rss_mb

from nearfield import GPRegressor
from nearfield.datasets import robot_arm
from nearfield.metrics import Scores


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> str:
    s = Scores.of(y, scipy.stats.norm(mean, std)).as_dict()
    return f"RMSE {s['rmse']:.4f}, NLL {s['nll']:.3f}, CRPS {s['crps']:.4f}, 90 % covers {s['coverage_90']:.1%}"


def ours(dataset: str, seed: int):
    """Fit and predict in this process: seconds of both, the model and its distributions."""
    parts = split(*load(dataset), seed)
    GPRegressor(max_steps=1).fit(*robot_arm(500))  # compiles, or reads the compiled code from its cache
    began = time.perf_counter()
    model = GPRegressor(random_state=seed).fit(parts.X_train, parts.y_train)
    fitted = time.perf_counter()
    dist = model.predict_dist(parts.X_test)
    done = time.perf_counter()
    result = Scores.of(parts.y_test, dist).as_dict()
    return {**result, "fit": fitted - began, "predict": done - fitted, "k": model.k_, "peak": peak_rss_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="kin40k")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--others", action="store_true", help="also GPBoost and MuyGPyS")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each of these")
    args = parser.parse_args()
    parts = split(*load(args.dataset), args.seed)

    for dtype in ("float32", "float64"):
        step = svgp_step_factory(parts.X_train, parts.y_train, dtype=dtype)
        for _ in range(3):
            step()
        before = [_seconds(step) for _ in range(15)]
        us = ours(args.dataset, args.seed)
        after = [_seconds(step) for _ in range(15)]
        svgp = float(np.median(before + after))
        print(f"SVGP step, {dtype}: {1e3 * svgp:.0f} ms")
        steps = us["fit"] / svgp
        print(f"  our fit {us['fit']:.1f} s = {steps:.0f} SVGP steps, {steps / 300:.2f} of 300 steps")
        print(f"  our prediction {us['predict']:.2f} s = {us['predict'] / svgp:.1f} SVGP steps")
    print(
        f"ours: k = {us['k']}, RMSE {us['rmse']:.4f}, NLL {us['nll']:.3f}, CRPS {us['crps']:.4f}, "
        f"90 % covers {us['coverage_90']:.1%}"
    )
    if args.others:
        alone = run_isolated(ours, (args.dataset, args.seed))
        print(f"ours alone: fit {alone.result['fit']:.1f} s, peak {alone.peak_mb:.0f} MB")
        for name, func, extra in (
            ("GPBoost, Vecchia, 20 neighbours", gpboost_vecchia, ()),
            ("MuyGPyS, isotropic", muygps, ()),
            ("MuyGPyS, one length scale per column", muygps, (50, 500, True)),
        ):
            r = run_isolated(func, (parts.X_train, parts.y_train, parts.X_test, *extra), args.timeout)
            if r.result is None:
                print(f"{name}: {r.outcome} ({r.seconds:.0f} s)", flush=True)
            else:
                f = r.result
                print(
                    f"{name}: fit {f.fit_seconds:.1f} s, predict {f.predict_seconds:.1f} s, peak {r.peak_mb:.0f} MB, "
                    f"{scores(parts.y_test, f.mean, f.std)}",
                    flush=True,
                )


def _seconds(func) -> float:
    began = time.perf_counter()
    func()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
