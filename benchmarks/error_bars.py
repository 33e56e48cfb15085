"""Error bars on data whose truth is known: how many fresh values lie inside of 90 % intervals, case by case.

    python benchmarks/error_bars.py [--topic latent known far few] [--seeds 10] [--kernel auto ..] [--rows 60 200]

Every case is made anew for each seed. Printed are the mean over the seeds, the least of one, and "no" where the mean is
not what is promised:

latent: values of the noise-free function inside of intervals of `uncertainty="latent"`, 85 to 99 %; beside them fresh
        observations inside of theirs
known:  fresh observations after `fit(noise_variance=)`, their own given to the prediction, 86 to 94 %; beside them
        those where it is forgotten, which a warning tells
far:    least scale of a prediction far from all rows over the target's, at least 1; beside it the largest support
        there and the median of it among the rows
few:    fresh observations after fits of six to twenty rows, 86 to 94 % over the functions of each number of rows
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

NEW_ROWS = 1000
Array = np.ndarray
Of = Callable[[Array], Array]


def waves(X: Array) -> Array:
    """A smooth function of one, two or four columns between 0 and 1."""
    found = np.sin(6 * X[:, 0]) + X[:, 0]
    if X.shape[1] > 1:
        found = found + np.cos(4 * X[:, 1]) * X[:, 0]
    if X.shape[1] > 2:
        found = found + (X[:, 2] - 0.5) ** 2 * 3 + 0.5 * X[:, 3] * X[:, 1]
    return found


def line(X: Array) -> Array:
    return 2 * X[:, 0]


def sine(X: Array) -> Array:
    return np.sin(6 * X[:, 0])


def flat(X: Array) -> Array:
    return np.zeros(len(X))


def level(std: float) -> Of:
    """Noise of the same standard deviation everywhere."""
    return lambda X: np.full(len(X), std)


def growing(X: Array) -> Array:
    """Noise that grows with the first column."""
    return 0.02 + 0.4 * X[:, 0] ** 2


NOISES: dict[str, Of] = {"noise-free": flat, "noisy": level(0.2), "heteroscedastic": growing}
FEW: dict[str, tuple[Of, Of]] = {
    "line": (line, level(0.3)), "sine": (sine, level(0.3)), "pure noise": (flat, level(1.0))
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Training rows, new inputs, their true values, observations there, and the noise variances of both."""

    X: Array
    y: Array
    X_new: Array
    truth: Array
    y_new: Array
    noise: Array
    noise_new: Array


def made(of: Of, noise: Of, n: int, d: int, seed: int) -> Data:
    """n rows of a function of d uniform columns with normal noise of a standard deviation that may vary."""
    rng = np.random.default_rng([seed, n, d])
    X, X_new = rng.random((n, d)), rng.random((NEW_ROWS, d))
    std, std_new, truth = noise(X), noise(X_new), of(X_new)
    y, y_new = of(X) + std * rng.standard_normal(n), truth + std_new * rng.standard_normal(NEW_ROWS)
    return Data(X, y, X_new, truth, y_new, std**2, std_new**2)


def fitted(data: Data, known: bool = False, **settings: Any) -> Any:
    """A model of the training rows."""
    from nearfield import GPRegressor

    given = {"noise_variance": data.noise} if known else {}
    return GPRegressor(random_state=0, **settings).fit(data.X, data.y, **given)


def covered(ends: tuple[Array, Array], values: Array) -> float:
    """Share of the values inside of intervals."""
    return float(np.mean((ends[0] <= values) & (values <= ends[1])))


def latent(data: Data, **settings: Any) -> tuple[float, float]:
    """Shares of true values and of fresh observations that are covered."""
    model = fitted(data, **settings)
    true = covered(model.predict_interval(data.X_new, uncertainty="latent"), data.truth)
    return true, covered(model.predict_interval(data.X_new), data.y_new)


def known(data: Data, **settings: Any) -> tuple[float, float]:
    """Shares of fresh observations that are covered, their noise given or forgotten."""
    model = fitted(data, known=True, **settings)
    told = covered(model.predict_interval(data.X_new, noise_variance=data.noise_new), data.y_new)
    return told, covered(model.predict_interval(data.X_new), data.y_new)


def far(data: Data, **settings: Any) -> tuple[float, float, float]:
    """Least scale over the target's and largest support, 10 to 10^6 standard deviations away; median of it nearby."""
    model = fitted(data, **settings)
    d = data.X.shape[1]
    ways = np.array([way for way in itertools.product((-1, 0, 1), repeat=d) if any(way)])
    places = np.concatenate(
        [data.X.mean(axis=0) + away * data.X.std(axis=0) * ways for away in 10.0 ** np.arange(1, 7)]
    )
    low, high = model.predict_interval(places, coverage=0.6827)  # one standard deviation of a normal to each side
    return float((high - low).min() / 2 / data.y.std()), float(model.support(places).max()), float(
        np.median(model.support(data.X_new))
    )  # fmt: skip


def few(data: Data, **settings: Any) -> tuple[float, float]:
    """Share of fresh observations that are covered, and the width of intervals over the target's spread."""
    low, high = fitted(data, **settings).predict_interval(data.X_new)
    return covered((low, high), data.y_new), float(np.mean(high - low) / data.y.std())


Case = tuple[str, Callable[..., tuple[float, ...]], Callable[[int], Data], dict[str, Any]]


def cases(topic: str, kernels: list[str], rows: list[int]) -> Iterator[Case]:
    """Names of the cases of a topic, what is measured, how data are made from a seed, and settings of the model."""

    def of(f: Of, noise: Of, n: int, d: int) -> Callable[[int], Data]:
        return lambda seed: made(f, noise, n, d, seed)

    for kernel in kernels:
        if topic == "latent":
            for (name, noise), d, n in itertools.product(NOISES.items(), (1, 2, 4), rows):
                yield f"{kernel}, {name}, {d} columns, {n} rows", latent, of(waves, noise, n, d), {"kernel": kernel}
        if topic == "known":
            for (name, noise), d, n in itertools.product(list(NOISES.items())[1:], (1, 2), rows):
                yield f"{kernel}, {name}, {d} columns, {n} rows", known, of(waves, noise, n, d), {"kernel": kernel}
        if topic == "far":
            for mean, (name, f), d in itertools.product(
                ("constant", "linear"), (("waves", waves), ("line", line)), (1, 2)
            ):
                yield (
                    f"{kernel}, {mean} mean, {name}, {d} columns", far, of(f, level(0.2), 100, d),
                    {"kernel": kernel, "mean": mean},
                )  # fmt: skip
        if topic == "few":
            for n, (name, (f, noise)), d in itertools.product((6, 8, 12, 20), FEW.items(), (1, 2, 3)):
                yield f"{kernel}, {n} rows, {name}, {d} columns", few, of(f, noise, n, d), {"kernel": kernel}


KEPT = {"latent": (0.85, 0.99), "known": (0.86, 0.94), "far": (1 - 1e-9, np.inf), "few": (0.86, 0.94)}
FURTHER = {"latent": "observations", "known": "forgotten", "far": "support there, among rows", "few": "width"}


def row(name: str, topic: str, found: Array) -> str:
    """A line of the table from figures (seeds, m) of a case, the first of which counts."""
    mean, (low, high) = found.mean(axis=0), KEPT[topic]
    further = ", ".join(f"{value:.3f}" for value in mean[1:])
    holds = "" if low <= (found[:, 0].min() if topic == "far" else mean[0]) <= high else "no"
    return f"| {name} | {mean[0]:.3f} | {found[:, 0].min():.3f} | {further} | {holds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topic", nargs="+", default=list(KEPT), choices=list(KEPT))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kernel", nargs="+", default=["auto"])
    parser.add_argument("--rows", type=int, nargs="+", default=[60, 200], help="of the topics latent and known")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of few rows, and of noise that is forgotten here on purpose
    for topic in options.topic:
        print(f"\n| {topic} | mean | least | {FURTHER[topic]} | holds |\n|---|---|---|---|---|", flush=True)
        sums: dict[str, list[Array]] = {}
        for name, measure, make, settings in cases(topic, options.kernel, options.rows):
            found = np.array([measure(make(seed), **settings) for seed in range(options.seeds)])
            print(row(name, topic, found), flush=True)
            sums.setdefault(name.split(", ")[1], []).append(found)
        if topic == "few":
            for n, parts in sums.items():
                print(row(f"{n}, all functions", topic, np.mean(parts, axis=0)), flush=True)


if __name__ == "__main__":
    main()
