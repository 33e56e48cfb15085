"""Joint samples of britain_magnetic: time of the processor over that of `predict`, peak memory, and their variogram.

    python benchmarks/samples.py [--rows 100000] [--points 100000] [--samples 100]

Time: `predict` with error bars and `sample_y` at the same points, in turn. Variogram: pairs of places at each of some
lags, all of them sampled jointly, and half the mean squared difference of samples. Far out in the Atlantic, where
samples know nothing but the model, it is compared with what `variogram` says of the model. Amid the data samples agree
with these, whatever the model says of places that nothing is known of: there each pair is compared with what the model
says *given the data*, by dense algebra,

    E (f - f')^2 / 2 = ((m - m')^2 + v + v' - 2 c) / 2

with means, variances and covariance of the pair. These two are of the plain predictive, which is the model's own. Last,
to be seen, the samples of the default and the measurements over the model.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from _data import load
from _timing import interleaved, peak_rss_mb
from scipy.spatial import cKDTree

from nearfield import GPRegressor

LAGS = np.array([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])  # degrees of a great circle
SEAWARDS = np.array([-15.0, -10.0, 0.0])  # far from the data, and still about where their axes are
_PAIRS, _CHECKED, _TOGETHER = 3000, 400, 50  # of each lag; by dense algebra, and at a time


def pairs(places: np.ndarray) -> np.ndarray:
    """Places (n, 3), and others each lag away in random directions, at the same altitude: (1 + l, n, 3)."""
    angle = np.random.default_rng(1).uniform(0, 2 * np.pi, (len(places), len(LAGS))).T  # lags are short
    moved = np.tile(places, (len(LAGS), 1, 1))
    moved[..., 0] += LAGS[:, None] * np.cos(angle) / np.cos(np.radians(places[:, 1]))
    moved[..., 1] += LAGS[:, None] * np.sin(angle)
    return np.concatenate([places[None], moved])


def of_samples(model: GPRegressor, places: np.ndarray) -> np.ndarray:
    """Semivariances (l, n) of joint samples at places (n, 3) and others at each lag from them."""
    every = pairs(places)
    z = model.sample_y(every.reshape(-1, every.shape[2]), 40, random_state=1).reshape(*every.shape[:2], -1)
    return 0.5 * ((z[1:] - z[:1]) ** 2).mean(axis=2)


def given_data(model: GPRegressor, places: np.ndarray) -> np.ndarray:
    """Semivariances (l, n) that the model expects at the same pairs, given the data.

    So few places at a time that they are predicted jointly from all of their neighbours.
    """
    every, found = pairs(places), []
    for start in range(0, len(places), _TOGETHER):
        first, each = every[0, start : start + _TOGETHER], []
        for other in every[1:, start : start + _TOGETHER]:
            mean, between = model.predict(np.concatenate([first, other]), return_cov=True)
            m, own, across = mean.reshape(2, -1), np.diagonal(between).reshape(2, -1), np.diagonal(between, len(first))
            each.append(0.5 * ((m[0] - m[1]) ** 2 + own.sum(axis=0)) - across)
        found.append(each)
    return np.concatenate(found, axis=1)


def of_data(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Semivariances (l,) of measurements whose distance is within a tenth of each lag."""
    lon, lat = np.radians(X[:, :2]).T
    sphere = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1) * 180 / np.pi
    tree, which = cKDTree(sphere), np.random.default_rng(2).choice(len(X), 4000, replace=False)
    found = []
    for lag in LAGS:
        squares = []
        for i, near in zip(which, tree.query_ball_point(sphere[which], 1.1 * lag), strict=True):
            others = np.asarray(near)[:2000]
            distance = np.linalg.norm(sphere[others] - sphere[i], axis=1)
            squares.append((y[others[distance > 0.9 * lag]] - y[i]) ** 2)
        found.append(0.5 * np.concatenate(squares).mean())
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 100_000), ("points", 100_000), ("samples", 100), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    X, y = load("britain_magnetic")
    order = np.random.default_rng(0).permutation(len(X))
    rows, points = order[: asked.rows], order[asked.rows : asked.rows + asked.points]
    model = GPRegressor(coordinates={"lonlat": [0, 1]}, random_state=0, verbose=False).fit(X[rows], y[rows])
    print(f"{asked.rows:,} rows, k = {model.k_}, peak memory so far {peak_rss_mb():.0f} MB", flush=True)
    new = X[points].astype(np.float64)
    times = interleaved(
        {
            "predict": lambda: model.predict(new, return_std=True),
            "sample_y": lambda: model.sample_y(new, asked.samples, random_state=0),
        },
        asked.repeats,
        clock=time.process_time,
    )
    median, best = (getattr(times["sample_y"], how) / getattr(times["predict"], how) for how in ("median", "best"))
    print(f"{len(new):,} points x {asked.samples} samples over predict: {median:.2f} (median), {best:.2f} (best)")
    print(f"peak memory {peak_rss_mb():.0f} MB", flush=True)
    places = new[np.random.default_rng(3).choice(len(new), min(_PAIRS, len(new)), replace=False)]
    plain = GPRegressor(coordinates={"lonlat": [0, 1]}, predictive="plain", random_state=0, verbose=False)
    plain.fit(X[rows], y[rows])
    far = of_samples(plain, places + SEAWARDS).mean(axis=1) / plain.variogram(LAGS)
    given = (of_samples(plain, places)[:, :_CHECKED] / given_data(plain, places[:_CHECKED])).mean(axis=1)
    near = of_samples(model, places)
    own, data = model.variogram(LAGS), of_data(X[rows].astype(np.float64), y[rows])
    print("semivariances of samples over the model's: far from the data, and amid the data, given them;")
    print("then the model's of places that nothing is known of, and over it samples and measurements amid the data")
    print(f"{'lag':>8}{'far':>8}{'given':>8}{'model':>12}{'samples':>10}{'data':>10}")
    for lag, away, close, gamma, found, measured in zip(LAGS, far, given, own, near.mean(axis=1), data, strict=True):
        print(f"{lag:>8g}{away:>8.3f}{close:>8.3f}{gamma:>12.4g}{found / gamma:>10.2f}{measured / gamma:>10.2f}")


if __name__ == "__main__":
    main()
