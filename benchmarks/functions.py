"""Smooth functions with known truth, as people have who emulate simulators: against scikit-learn's exact GP.

    python benchmarks/functions.py [--rows 100 500 2000] [--noise 0 0.01 0.1] [--function NAME ..] [--seeds 1] [--alone]

Each function is sampled at random points of its domain; noise is a share of the spread of its values. Both models are
fitted in this process, one after the other. Prints the RMSE to the noise-free truth at new points as a ratio to that of
`GaussianProcessRegressor` (anisotropic Matern 5/2 and white noise), the time of the fit as such a ratio, and how many
of the new observations, and of the true values, lie inside of our 90 % intervals. scikit-learn is run up to 2,000 rows,
for which it takes minutes: above that, and with --alone everywhere, ours is run alone. With --old, ours is also run
with the package of another checkout, named by NEARFIELD_OLD as for `against_old.py`, in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

NEW_ROWS = 2000
MOST_EXACT = 2000  # rows: scikit-learn takes minutes for these
Array = np.ndarray


@dataclass(frozen=True)
class Function:
    """A function of d columns, each uniform between two bounds; of normal columns where there are none."""

    of: Callable[[Array], Array]
    low: tuple[float, ...]
    high: tuple[float, ...] = ()

    def draw(self, rng: np.random.Generator, n: int) -> Array:
        """Inputs (n, d)."""
        if not self.high:
            return rng.standard_normal((n, len(self.low)))
        low, high = np.array(self.low), np.array(self.high)
        return low + (high - low) * rng.random((n, len(low)))


def friedman(X: Array) -> Array:
    """Friedman 1: five columns of ten matter."""
    return 10 * np.sin(math.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def borehole(X: Array) -> Array:
    """Flow of water through a borehole between two aquifers."""
    rw, r, tu, hu, tl, hl, length, kw = X.T
    log = np.log(r / rw)
    return 2 * math.pi * tu * (hu - hl) / (log * (1 + 2 * length * tu / (log * rw**2 * kw) + tu / tl))


def circuit(X: Array) -> Array:
    """Midpoint voltage of an output transformerless push-pull circuit."""
    b1, b2, f, c1, c2, beta = X.T
    vb1, share = 12 * b2 / (b1 + b2), beta * (c2 + 9)
    return (vb1 + 0.74) * share / (share + f) + 11.35 * f / (share + f) + 0.74 * f * share / ((share + f) * c1)


def wing(X: Array) -> Array:
    """Weight of the wing of a light aircraft."""
    s, fuel, a, sweep, q, taper, tc, nz, dg, paint = X.T
    cos = np.cos(np.radians(sweep))
    size = 0.036 * s**0.758 * fuel**0.0035 * (a / cos**2) ** 0.6 * q**0.006 * taper**0.04
    return size * (100 * tc / cos) ** -0.3 * (nz * dg) ** 0.49 + s * paint


_PEAKS = np.array([[1, 1.2, 3, 3.2]]).T
_WIDTHS = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(X: Array) -> Array:
    """Hartmann 6: four bumps in six columns."""
    bumps = np.exp(-np.sum(_WIDTHS[:, None] * (X - _CENTRES[:, None]) ** 2, axis=-1))
    return -np.sum(_PEAKS * bumps, axis=0)


def smooth(X: Array) -> Array:
    """Four columns of eight matter."""
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * X[:, 3]


FUNCTIONS = {
    "friedman": Function(friedman, (0.0,) * 10, (1.0,) * 10),
    "borehole": Function(
        borehole,
        (0.05, 100, 63070, 990, 63.1, 700, 1120, 9855),
        (0.15, 50000, 115600, 1110, 116, 820, 1680, 12045),
    ),
    "circuit": Function(circuit, (50, 25, 0.5, 1.2, 0.25, 50), (150, 70, 3, 2.5, 1.2, 300)),
    "wing": Function(
        wing, (150, 220, 6, -10, 16, 0.5, 0.08, 2.5, 1700, 0.025), (200, 300, 10, 10, 45, 1, 0.18, 6, 2500, 0.08)
    ),
    "hartmann": Function(hartmann, (0.0,) * 6, (1.0,) * 6),
    "smooth": Function(smooth, (0.0,) * 8),
}


@dataclass(frozen=True)
class Data:
    """Training rows, new inputs, their true values and observations there."""

    X: Array
    y: Array
    X_new: Array
    truth: Array
    y_new: Array


def data(name: str, noise: float, n: int, seed: int) -> Data:
    """n rows of a function with noise of that share of its spread."""
    function, rng = FUNCTIONS[name], np.random.default_rng([seed, n])
    X, X_new = function.draw(rng, n), function.draw(rng, NEW_ROWS)
    f, truth = function.of(X), function.of(X_new)
    sigma = noise * float(np.std(function.of(function.draw(np.random.default_rng(0), 10_000))))
    return Data(X, f + sigma * rng.standard_normal(n), X_new, truth, truth + sigma * rng.standard_normal(NEW_ROWS))


def theirs(d: Data) -> dict[str, float]:
    """scikit-learn's GP; it wants standardised columns, as its documentation says."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(d.X)
    columns = d.X.shape[1]
    kernel = ConstantKernel(1.0, (1e-5, 1e7)) * Matern(np.ones(columns), (1e-3, 1e5), nu=2.5) + WhiteKernel(
        0.1, (1e-9, 10)
    )
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values close to a bound
        model.fit(scaler.transform(d.X), d.y)
    seconds = time.perf_counter() - began
    mean = model.predict(scaler.transform(d.X_new))
    return {"rmse": float(np.sqrt(np.mean((mean - d.truth) ** 2))), "seconds": seconds}


def ours(d: Data) -> dict[str, float]:
    """A default fit."""
    from nearfield import GPRegressor

    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few rows
        model = GPRegressor(random_state=0).fit(d.X, d.y)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    mean = model.predict(d.X_new)
    predict = time.perf_counter() - began
    found = {"rmse": float(np.sqrt(np.mean((mean - d.truth) ** 2))), "seconds": seconds, "predict": predict}
    for kind, values in (("observation", d.y_new), ("latent", d.truth)):
        low, high = model.predict_interval(d.X_new, coverage=0.9, uncertainty=kind)
        found[kind] = float(np.mean((low <= values) & (values <= high)))
    return found | {"k": model.k_, "steps": model.summary_.steps}


def old(cell: tuple[str, float, int, int]) -> dict[str, float]:
    """The same fit with the package of the older checkout."""
    checkout = os.environ["NEARFIELD_OLD"]
    code = f"import json, functions as f; print(json.dumps(f.ours(f.data(*{cell!r}))))"
    paths = os.pathsep.join([os.path.join(checkout, "src"), os.path.dirname(os.path.abspath(__file__))])
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": os.path.join(checkout, ".numba")},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 500, 2000])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.01, 0.1])
    parser.add_argument("--function", nargs="+", default=list(FUNCTIONS), choices=list(FUNCTIONS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="without scikit-learn")
    parser.add_argument("--old", action="store_true", help="with the package of NEARFIELD_OLD, too")
    args = parser.parse_args()
    for n in (60, 600, 4000):
        ours(data("smooth", 0.1, n, 0))  # compiles
    heading = (
        "rows",
        "noise",
        "function",
        "RMSE",
        "over theirs",
        "over old",
        "noisy covered",
        "true covered",
        "k",
        "s",
    )
    print("| " + " | ".join((*heading, "of theirs")) + " |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    ratios: dict[tuple[int, float], list[tuple[float, ...]]] = {}
    for n in args.rows:
        for noise in args.noise:
            for name in args.function:
                for seed in range(args.seeds):
                    d = data(name, noise, n, seed)
                    us, nan = ours(d), float("nan")
                    them = {"rmse": nan, "seconds": nan} if args.alone or n > MOST_EXACT else theirs(d)
                    before = old((name, noise, n, seed)) if args.old else {"rmse": nan}
                    own = (us["rmse"] / them["rmse"], us["rmse"] / before["rmse"], us["seconds"] / them["seconds"])
                    ratios.setdefault((n, noise), []).append((*own, us["observation"], us["latent"]))
                    print(
                        f"| {n} | {noise:g} | {name} | {us['rmse']:.4g} | {own[0]:.2f} | {own[1]:.2f} "
                        f"| {us['observation']:.3f} | {us['latent']:.3f} | {us['k']} | {us['seconds']:.2f} "
                        f"| {own[2]:.3f} |",
                        flush=True,
                    )
    print("\n| rows | noise | RMSE over theirs: mean, most | over old: mean, most | time of theirs | noisy | true |")
    print("|---|---|---|---|---|---|---|")
    for (n, noise), rows in ratios.items():
        table = np.array(rows)
        mean, most = table.mean(axis=0), table.max(axis=0)
        print(
            f"| {n} | {noise:g} | {mean[0]:.3f}, {most[0]:.2f} | {mean[1]:.3f}, {most[1]:.2f} | {mean[2]:.3f} "
            f"| {mean[3]:.3f} | {mean[4]:.3f} |"
        )


if __name__ == "__main__":
    main()
