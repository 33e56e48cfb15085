"""Robust regression: kin40k with 5 % of the training targets replaced by outliers of 20 standard deviations.

    python benchmarks/robust.py [--seeds 0,1,2] [--share 0.05] [--sigmas 20]

Prints the test RMSE (clean test rows) of the clean Gaussian fit, of the Gaussian likelihood with the outliers and of
the Student-t likelihood with them.
"""

from __future__ import annotations

import argparse

import numpy as np
from _data import load, split

from nearfield import GPRegressor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--sigmas", type=float, default=20.0)
    args = parser.parse_args()
    print("| seed | clean, Gaussian | outliers, Gaussian | outliers, Student-t | ratio to clean | 90 % cover | k | s |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in (int(s) for s in args.seeds.split(",")):
        data = split(*load("kin40k"), seed)
        rng = np.random.default_rng(seed)
        y = data.y_train.copy()
        bad = rng.choice(len(y), int(args.share * len(y)), replace=False)
        y[bad] = args.sigmas * rng.choice([-1.0, 1.0], len(bad))

        def rmse(likelihood: str, y: np.ndarray, data=data, seed=seed) -> tuple[float, GPRegressor]:
            model = GPRegressor(likelihood=likelihood, random_state=seed).fit(data.X_train, y)
            return float(np.sqrt(np.mean((model.predict(data.X_test) - data.y_test) ** 2))), model

        clean, _ = rmse("gaussian", data.y_train)
        plain, _ = rmse("gaussian", y)
        ours, model = rmse("student_t", y)
        low, high = model.predict_interval(data.X_test)
        covered = float(np.mean((data.y_test >= low) & (data.y_test <= high)))
        print(
            f"| {seed} | {clean:.4f} | {plain:.4f} | {ours:.4f} | {ours / clean:.3f} | {covered:.3f} | {model.k_} "
            f"| {model.summary_.seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
