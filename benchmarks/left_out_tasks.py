"""Coverage of 90 % intervals in tasks whose rows are not exchangeable: rows left out one by one, or as the task asks.

    python benchmarks/left_out_tasks.py [--only NAME ..] [--seeds 3] [--rows 60000] [--outputs shared]

    kuka, baxter   movements of robot arms, 14 outputs, 2 of 10 trajectories held out whole; groups
    lines          magnetic anomalies over Britain, every tenth flight line held out whole; groups
    effects        made: a smooth function, an effect of each group and noise; new groups; groups
    series         made: a random walk with a drift and noise, each row predicted from all before it; past
    ahead          the same, ten steps ahead; past, and a buffer of nine steps
    clusters       made: a rough random field, measured in clusters, predicted between them; buffer

kuka, baxter and lines need the data of the experiments; they are left out where these are not there.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from _data import available, load, load_array

from nearfield import GPRegressor

_JUMP, _TURN = 10.0, 90.0  # km and degrees from one row to the next that begin a new flight line
_KM = 111.2  # of a degree


@dataclass
class Task:
    """Training and test rows; what a model that knows of the task is made and fitted with.

    forecast: test rows are predicted one after the other, each from all rows that are at least so many steps before it.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    made: dict[str, Any] = field(default_factory=dict)
    fitted: dict[str, Any] = field(default_factory=dict)
    forecast: int = 0


# --- made data ------------------------------------------------------------------------------------------------------


def effects(seed: int, groups: int = 40, each: int = 10) -> Task:
    """y = f(x) + an effect of the group + noise; test rows are of new groups, which lie elsewhere."""
    rng = np.random.default_rng(seed)
    centre, effect = rng.random((2 * groups, 1, 2)), 0.5 * rng.standard_normal((2 * groups, 1))
    X = centre + 0.05 * rng.standard_normal((2 * groups, each, 2))
    y = np.sin(4 * X[..., 0]) + X[..., 1] + effect + 0.1 * rng.standard_normal((2 * groups, each))
    label, half = np.repeat(np.arange(2 * groups), each), groups * each
    X, y = X.reshape(-1, 2), y.reshape(-1)
    return Task(X[:half], y[:half], X[half:], y[half:], fitted={"groups": label[:half]})


def series(seed: int, n: int = 400, ahead: int = 1) -> Task:
    """A random walk with a drift, observed with noise, at times 0, 1, ..; the last fifth is predicted."""
    rng = np.random.default_rng(seed)
    y = np.cumsum(0.3 * rng.standard_normal(n) + 0.02) + 0.2 * rng.standard_normal(n)
    X, first = np.arange(n, dtype=np.float64)[:, None], n * 4 // 5
    made: dict[str, Any] = {"leave_out": "past"} | ({"buffer": {0: ahead - 1}} if ahead > 1 else {})
    return Task(X[:first], y[:first], X[first:], y[first:], made, {"times": 0}, ahead)


def clusters(seed: int, n_clusters: int = 60, each: int = 8, reach: float = 0.04) -> Task:
    """A field of a long and a short range, measured in clusters; test places are farther than `reach` from them."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n_clusters, 1, 2)) + 0.004 * rng.standard_normal((n_clusters, each, 2))).reshape(-1, 2)
    places = rng.random((2000, 2))
    apart = np.sqrt(((places[:, None] - X) ** 2).sum(axis=-1)).min(axis=1)
    places = places[apart > reach][:400]
    both, y = np.concatenate([X, places]), np.zeros(len(X) + len(places))
    for length, scale in ((0.3, 1.0), (0.05, 0.5)):
        frequencies = rng.standard_normal((2, 600)) / length / np.sqrt(rng.chisquare(3, 600) / 3)  # Matern 3/2
        waves = np.cos(both @ frequencies + rng.uniform(0, 2 * np.pi, 600))
        y += scale * np.sqrt(2 / 600) * waves @ rng.standard_normal(600)
    y += 0.05 * rng.standard_normal(len(y))
    return Task(X, y[: len(X)], places, y[len(X) :], made={"buffer": reach})


# --- measured data --------------------------------------------------------------------------------------------------


def trajectories(name: str, seed: int) -> Task:
    """Movements of a robot arm: two trajectories of ten are held out."""
    X, y = load(name)
    label = load_array(name, "traj")
    held = np.isin(label, np.random.default_rng(seed).permutation(np.unique(label))[-2:])
    return Task(X[~held], y[~held], X[held], y[held], fitted={"groups": label[~held]})


def flight_lines(X: np.ndarray) -> np.ndarray:
    """Numbers (n,) of the flight lines of rows (longitude, latitude, ..) in survey order.

    A new line begins where the next row is far away, or the course turns.
    """
    off = np.column_stack([np.diff(X[:, 0]) * np.cos(np.radians(X[1:, 1])), np.diff(X[:, 1])]) * _KM
    course = np.arctan2(off[:, 1], off[:, 0])
    begins = np.zeros(len(X), dtype=bool)
    begins[1:] = np.hypot(off[:, 0], off[:, 1]) > _JUMP
    begins[1:-1] |= np.abs(np.angle(np.exp(1j * np.diff(course)))) > np.radians(_TURN)
    return np.cumsum(begins)


def lines(seed: int, rows: int) -> Task:
    """Magnetic anomalies over Britain, in a band of latitudes with so many rows: every tenth line is held out."""
    X, y = load("britain_magnetic")
    label = flight_lines(X)
    south = np.quantile(X[:, 1], np.random.default_rng(seed).uniform(0, max(0.0, 1 - rows / len(X))))
    band = np.argsort(np.where(X[:, 1] >= south, X[:, 1], np.inf), kind="stable")[:rows]
    band.sort()
    X, y, label = X[band], y[band], label[band]
    held = label % 10 == seed % 10
    return Task(X[~held], y[~held], X[held], y[held], fitted={"groups": label[~held]})


# --- scores ---------------------------------------------------------------------------------------------------------


def predicted(model: Any, task: Task) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and lower and upper ends of 90 % intervals of the test rows."""
    if not task.forecast:
        return model.predict(task.X_test), *model.predict_interval(task.X_test)
    parts = []
    for i in range(task.forecast - 1, len(task.X_test)):
        parts.append((model.predict(task.X_test[i : i + 1]), *model.predict_interval(task.X_test[i : i + 1])))
        new = slice(i - task.forecast + 1, i - task.forecast + 2)
        model.update(task.X_test[new], task.y_test[new])
    mean, lower, upper = (np.concatenate(own) for own in zip(*parts, strict=True))
    return mean, lower, upper


def scored(task: Task, known: bool, outputs: str) -> tuple[float, float, int]:
    """Share of test values inside of 90 % intervals, RMSE over the standard deviation of the target, and k."""
    made, fitted = (task.made, task.fitted) if known else ({}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPRegressor(random_state=0, verbose=False, outputs=outputs, **made).fit(task.X, task.y, **fitted)
        k = model.k_
        mean, lower, upper = predicted(model, task)
    y = task.y_test[max(task.forecast - 1, 0) :]
    error = np.sqrt(np.mean((y - mean) ** 2, axis=0)) / task.y.std(axis=0)
    return float(((y >= lower) & (y <= upper)).mean()), float(np.mean(error)), k


def tasks(args: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[int], Task]]]:
    """Names, how rows are left out in words, and how the task of a seed is made."""
    made: list[tuple[str, str, Callable[[int], Task], str]] = [
        ("effects", "groups", effects, ""),
        ("series", "past", series, ""),
        ("ahead", "past, buffer", lambda seed: series(seed, ahead=10), ""),
        ("clusters", "buffer", clusters, ""),
        ("lines", "groups", lambda seed: lines(seed, args.rows), "britain_magnetic"),
        ("kuka", "groups", lambda seed: trajectories("fw_kuka", seed), "fw_kuka"),
        ("baxter", "groups", lambda seed: trajectories("fw_baxter", seed), "fw_baxter"),
    ]
    for name, how, make, needed in made:
        if (not args.only or name in args.only) and (not needed or available(needed)):
            yield name, how, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of tasks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000, help="of the flight lines")
    parser.add_argument("--outputs", default="shared", help="of the robot arms: as in GPRegressor")
    parser.add_argument("--no-plain", action="store_true", help="only as the task asks")
    args = parser.parse_args()
    print(
        "| task | left out | seed | training rows | one by one: covered, RMSE, k | as the task asks: covered, RMSE, k |"
    )
    print("|---|---|---:|---:|---|---|")
    for name, how, make in tasks(args):
        for seed in range(args.seeds):
            task = make(seed)
            ways = [True] if args.no_plain else [False, True]
            found = {known: scored(task, known, args.outputs) for known in ways}
            cells = [
                f"{100 * found[known][0]:.1f} %, {found[known][1]:.3f}, {found[known][2]}" if known in found else "-"
                for known in (False, True)
            ]
            print(f"| {name} | {how} | {seed} | {len(task.X):,} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
