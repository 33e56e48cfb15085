"""Joint samples of britain_magnetic: time over that of `predict`, peak memory, and their variogram beside the model's.

    python benchmarks/samples.py [--rows 100000] [--points 100000] [--samples 100]

Time: `predict` with error bars and `sample_y` at the same points, in turn. Variogram: pairs of places at each of some
lags, all of them sampled jointly, and half the mean squared difference of samples, over what `variogram` says of the
model: far out in the Atlantic, where samples know nothing but the model (of the plain predictive,
which is the model's own), and amid the data, which samples agree with whatever the model says; there beside the same of
measurements.
"""

from __future__ import annotations

import argparse

import numpy as np
from _data import load
from _timing import interleaved, peak_rss_mb
from scipy.spatial import cKDTree

from nearfield import GPRegressor

LAGS = np.array([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])  # degrees of a great circle
SEAWARDS = np.array([-15.0, -10.0, 0.0])  # far from the data, and still about where their axes are
_PAIRS = 3000  # of each lag


def apart(places: np.ndarray, lag: float, rng: np.random.Generator) -> np.ndarray:
    """Places (n, 3) so many degrees away in random directions, at the same altitude; lags are short."""
    angle = rng.uniform(0, 2 * np.pi, len(places))
    moved = places.copy()
    moved[:, 0] += lag * np.cos(angle) / np.cos(np.radians(places[:, 1]))
    moved[:, 1] += lag * np.sin(angle)
    return moved


def of_samples(model: GPRegressor, places: np.ndarray) -> np.ndarray:
    """Semivariances (l,) of joint samples at places (n, 3) and others at each lag from them."""
    rng = np.random.default_rng(1)
    every = np.concatenate([places, *(apart(places, lag, rng) for lag in LAGS)])
    z = model.sample_y(every, 40, random_state=1).reshape(len(LAGS) + 1, len(places), -1)
    return 0.5 * ((z[1:] - z[:1]) ** 2).mean(axis=(1, 2))


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
    )
    median, best = (getattr(times["sample_y"], how) / getattr(times["predict"], how) for how in ("median", "best"))
    print(f"{len(new):,} points x {asked.samples} samples over predict: {median:.2f} (median), {best:.2f} (best)")
    print(f"peak memory {peak_rss_mb():.0f} MB", flush=True)
    places = new[np.random.default_rng(3).choice(len(new), min(_PAIRS, len(new)), replace=False)]
    plain = GPRegressor(coordinates={"lonlat": [0, 1]}, predictive="plain", random_state=0, verbose=False)
    plain.fit(X[rows], y[rows])
    far = of_samples(plain, places + SEAWARDS) / plain.variogram(LAGS)
    own, data = model.variogram(LAGS), of_data(X[rows].astype(np.float64), y[rows])
    print(
        "semivariances of samples over the model's far away; model, and samples and measurements over it, amid the data"
    )
    print(f"{'lag':>8}{'far':>8}{'model':>12}{'samples':>10}{'data':>10}")
    for lag, away, gamma, near, measured in zip(LAGS, far, own, of_samples(model, places), data, strict=True):
        print(f"{lag:>8g}{away:>8.3f}{gamma:>12.4g}{near / gamma:>10.2f}{measured / gamma:>10.2f}")


if __name__ == "__main__":
    main()
