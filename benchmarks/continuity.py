"""Continuous neighbourhoods beside hard ones: jumps along lines, and accuracy; many columns stay as they are.

    python benchmarks/continuity.py [--rows 40000] [--lines 1000] [--k 64] [britain_magnetic etopo5 ..]
    python benchmarks/continuity.py --unchanged [--rows 10000] [kin40k protein ..]

A line is a segment from a test row in a random direction, as long as its tenth nearest training row is far, in 100
steps. On each line the three steps with the largest change of the mean, and those with the largest of the std, are
halved 24 times, each time the half with the larger change: what is left of a change is a jump, if there is one. Jumps
are told over the predictive std at that place.

Without --k, it is chosen for either, and left-out rows choose between both for "auto"; with it, the other is
`continuous=True`. With --unchanged: whether predictions are the same to the last bit as with `continuous=False`.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from _data import Split, load, split
from scipy.spatial import cKDTree

from nearfield import GPRegressor

STEPS, FOLLOWED, HALVINGS = 100, 3, 24


def lines(s: Split, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends (n, d) of lines."""
    rng = np.random.default_rng(seed)
    start = s.X_test[rng.integers(0, len(s.X_test), n)]
    towards = rng.standard_normal(start.shape)
    length = cKDTree(s.X).query(start, 10)[0][:, -1:]
    return start, start + length * towards / np.linalg.norm(towards, axis=1, keepdims=True)


def told(model: GPRegressor, X: np.ndarray) -> np.ndarray:
    """Mean and std (.., 2) at X (.., d)."""
    found = model.predict(X.reshape(-1, X.shape[-1]), return_std=True)
    return np.stack(found, axis=-1).reshape(*X.shape[:-1], 2)


def jumps(model: GPRegressor, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The largest jump of mean and std on each line, over the std there: (n, 2)."""
    along = np.linspace(0, 1, STEPS + 1)
    values = told(model, start[:, None] + along[:, None] * (stop - start)[:, None])
    changes = np.abs(np.diff(values, axis=1))
    found = np.empty((len(start), 2))
    for which in range(2):
        step = np.argsort(-changes[..., which], axis=1)[:, :FOLLOWED]
        low, high = along[step], along[step + 1]
        lines_of = np.broadcast_to(np.arange(len(start))[:, None], step.shape)
        at_low, at_high = values[lines_of, step], values[lines_of, step + 1]
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            at = told(model, start[:, None] + middle[..., None] * (stop - start)[:, None])
            first = np.abs(at - at_low)[..., which] >= np.abs(at_high - at)[..., which]
            low, high = np.where(first, low, middle), np.where(first, middle, high)
            at_low, at_high = np.where(first[..., None], at_low, at), np.where(first[..., None], at, at_high)
        found[:, which] = (np.abs(at_high - at_low)[..., which] / at_low[..., 1]).max(axis=1)
    return found


def scored(model: GPRegressor, s: Split) -> tuple[float, float]:
    """RMSE and NLL on the test rows."""
    error = model.predict(s.X_test) - s.y_test
    return float(np.sqrt(np.mean(error**2))), -float(np.mean(model.log_score(s.X_test, s.y_test)))


def fitted(s: Split, continuous: bool | str, k: int | str = "auto") -> GPRegressor:
    return GPRegressor(continuous=continuous, k=k, random_state=0, verbose=False).fit(s.X, s.y)


def compare(name: str, rows: int, n_lines: int, k: int | str) -> list[str]:
    """Lines of the table: hard neighbourhoods, and continuous ones or those that "auto" chose."""
    s = split(*load(name), seed=0, most=rows)
    start, stop = lines(s, n_lines)
    found = []
    for continuous in (False, "auto" if k == "auto" else True):
        model = fitted(s, continuous, k)
        rmse, nll = scored(model, s)
        mean, std = jumps(model, start, stop).T
        word = "continuous" if model.continuous_ else "hard"
        found.append(
            f"| {name}, {len(s.X):,} rows | {word}, k = {model.k_} | {rmse:.4f} | {nll:.4f} | "
            f"{mean.max():.1e} | {std.max():.1e} | {np.mean(np.maximum(mean, std) > 0.01):.1%} |"
        )
    return found


def unchanged(name: str, rows: int) -> str:
    """Whether "auto" predicts as hard neighbourhoods do."""
    s = split(*load(name), seed=0, most=rows)
    hard, auto = (fitted(s, continuous) for continuous in (False, "auto"))
    same = all(
        np.array_equal(*both)
        for both in zip(*(m.predict(s.X_test, return_std=True) for m in (hard, auto)), strict=True)
    )
    found = "the same bits" if same else "other predictions"
    return f"{name}, {len(s.X):,} rows: continuous_ is {auto.continuous_}; {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--k", type=int)
    parser.add_argument("--unchanged", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.unchanged:
        for name in given.names or ("kin40k", "protein"):
            print(unchanged(name, given.rows or 10_000), flush=True)
        return
    print("| data | neighbourhoods | RMSE | NLL | largest jump of mean | of std | lines with one above 1 % |")
    print("|---|---|---|---|---|---|---|")
    for name in given.names or ("britain_magnetic", "etopo5"):
        for line in compare(name, given.rows or 40_000, given.lines, given.k or "auto"):
            print(line, flush=True)


if __name__ == "__main__":
    main()
