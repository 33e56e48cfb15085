"""Error bars on tables with copied rows: how many of fresh observations 90 % intervals cover, by kind of copy.

    python benchmarks/copies.py [--rows 200] [--seeds 10] [--kind NAME ..] [--function NAME ..]

Rows of a function with noise are copied in some way; new rows are fresh. Prints the mean coverage over seeds and
functions and the lowest of a function, of a default fit and of one with groups="auto", the RMSE to the truth over that
of the distinct rows, and whether the default fit warned.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

Array = np.ndarray
NEW_ROWS = 1000
JITTER = 1e-3  # of near copies, over the spread of a column


def waves(X: Array) -> Array:
    """Two columns."""
    return np.sin(2 * X[:, 0]) * X[:, 1]


def smooth(X: Array) -> Array:
    """Four columns of five matter."""
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * X[:, 3]


def line(X: Array) -> Array:
    """One column."""
    return np.sin(3 * X[:, 0])


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], int, float]] = {
    "line": (line, 1, 0.3),
    "waves": (waves, 2, 0.3),
    "smooth": (smooth, 5, 0.1),
}
"""What is true, in how many columns, and the standard deviation of the noise."""

Which = Callable[[int, np.random.Generator], Array]


def tiled(times: int, n: int, rng: np.random.Generator) -> Array:
    """Every row so many times."""
    return np.tile(np.arange(n), times)


def some_twice(share: float, n: int, rng: np.random.Generator) -> Array:
    """That share of the rows twice."""
    return np.concatenate([np.arange(n), rng.choice(n, round(share * n), replace=False)])


def bootstrap(n: int, rng: np.random.Generator) -> Array:
    """As many rows, drawn with replacement."""
    return rng.integers(0, n, n)


def some_often(n: int, rng: np.random.Generator) -> Array:
    """One to three times each."""
    return np.repeat(np.arange(n), rng.integers(1, 4, n))


KINDS: dict[str, tuple[Which, bool]] = {
    "distinct": (partial(tiled, 1), False),
    "twice": (partial(tiled, 2), False),
    "three times": (partial(tiled, 3), False),
    "ten times": (partial(tiled, 10), False),
    "bootstrap": (bootstrap, False),
    "a third twice": (partial(some_twice, 1 / 3), False),
    "10 % twice": (partial(some_twice, 0.1), False),
    "5 % twice": (partial(some_twice, 0.05), False),
    "2 % twice": (partial(some_twice, 0.02), False),
    "1 % twice": (partial(some_twice, 0.01), False),
    "near copies, each twice": (partial(tiled, 2), True),
    "near copies, one to three": (some_often, True),
    "near copies, a third twice": (partial(some_twice, 1 / 3), True),
    "near copies, bootstrap": (bootstrap, True),
}
"""Which rows are there, and whether copies have inputs that are a little off."""


def run(kind: str, function: str, n: int, seed: int) -> dict[str, float]:
    """Coverage with and without groups, errors over those of the distinct rows, how often a fit warned."""
    from nearfield import CopiesWarning, GPRegressor

    (of, columns, noise), (which, near) = FUNCTIONS[function], KINDS[kind]
    rng = np.random.default_rng([seed, n])
    X, X_new = rng.uniform(-2, 2, (n, columns)), rng.uniform(-2, 2, (NEW_ROWS, columns))
    y, truth = of(X) + noise * rng.standard_normal(n), of(X_new)
    y_new, again = truth + noise * rng.standard_normal(NEW_ROWS), which(n, rng)
    rows = X[again] + (JITTER * 4 / np.sqrt(12) * rng.standard_normal((len(again), columns)) if near else 0.0)
    alone = np.unique(again)
    found, errors = {}, {}
    for name, inputs, target, given in (
        ("alone", X[alone], y[alone], {}),
        ("default", rows, y[again], {}),
        ("auto", rows, y[again], {"groups": "auto"}),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = GPRegressor(random_state=0).fit(inputs, target, **given)
        low, high = model.predict_interval(X_new)
        found[name] = float(np.mean((low <= y_new) & (y_new <= high)))
        errors[name] = float(np.sqrt(np.mean((model.predict(X_new) - truth) ** 2)))
        found[f"{name} warned"] = sum(issubclass(one.category, CopiesWarning) for one in said)
    return found | {f"{name} error": errors[name] / errors["alone"] for name in errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--function", nargs="+", default=list(FUNCTIONS), choices=list(FUNCTIONS))
    args = parser.parse_args()
    print('| copies | distinct rows alone | default | groups="auto" | error: default | "auto" | default warned |')
    print("|---|---|---|---|---|---|---|", flush=True)
    for kind in args.kind:
        each = {f: [run(kind, f, args.rows, seed) for seed in range(args.seeds)] for f in args.function}

        def mean(name: str, each: dict[str, list[dict[str, float]]] = each) -> Array:
            return np.array([np.mean([one[name] for one in ones]) for ones in each.values()])

        shown = [
            f"{mean(n).mean():.3f} ({mean(n).min():.3f} to {mean(n).max():.3f})" for n in ("alone", "default", "auto")
        ]
        shown += [f"{mean(name).mean():.3f}" for name in ("default error", "auto error")]
        print(f"| {kind} | {' | '.join(shown)} | {mean('default warned').mean():.0%} |", flush=True)


if __name__ == "__main__":
    main()
