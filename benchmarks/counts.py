"""Counts: test NLL of ours against a negative-binomial GLM and gradient boosting with a fitted dispersion.

    python benchmarks/counts.py [--seeds 0,1,2]

bike_count (hourly rentals) and us_diseases (yearly cases by state and disease), 15:3:2 splits of shuffled rows. The GLM
gets standardised columns; boosting is scikit-learn's with Poisson loss and early stopping, its dispersion fitted on the
validation rows (for the GLM on the training rows). Ours uses neither validation rows nor flags. Also the binomial task:
casual riders out of all riders of an hour, against a logistic regression with a beta-binomial dispersion.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
from _data import folder, standardised
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from nearfield import GPCountRegressor
from nearfield.metrics import CountScores

DATASETS = ("bike_count", "us_diseases")


def parts(name: str, seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Standardised inputs, counts and casual riders (or None) of the training, validation and test rows."""
    with np.load(folder() / f"{name}.npz") as arrays:
        X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
        casual = arrays["casual"].astype(np.float64) if "casual" in arrays else None
    n = len(X)
    split = np.split(np.random.default_rng(seed).permutation(n), [n * 15 // 20, n * 18 // 20])
    inputs = standardised(*(X[rows] for rows in split))
    return [(x, y[rows], None if casual is None else casual[rows]) for x, rows in zip(inputs, split, strict=True)]


def nb_nll(y: np.ndarray, mu: np.ndarray, r: float) -> float:
    """Mean negative log probability of counts y (n,) with means mu (n,) and dispersion r."""
    return float(-scipy.stats.nbinom(r, r / (r + mu)).logpmf(y).mean())


def fitted_dispersion(y: np.ndarray, mu: np.ndarray) -> float:
    best = scipy.optimize.minimize_scalar(lambda t: nb_nll(y, mu, np.exp(t)), bounds=(-5, 9), method="bounded")
    return float(np.exp(best.x))


def glm(train: tuple, test: tuple) -> float:
    """Negative-binomial regression with a log link: coefficients and dispersion by maximum likelihood."""
    design, y = np.column_stack([np.ones(len(train[0])), train[0]]), train[1]

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        eta, r = np.clip(design @ theta[:-1], -30, 30), np.exp(theta[-1])
        mu = np.exp(eta)
        by_eta = (y - mu) * r / (r + mu)
        by_r = scipy.special.digamma(y + r) - scipy.special.digamma(r) + np.log(r / (r + mu)) + (mu - y) / (r + mu)
        gradient = -np.append(design.T @ by_eta, r * by_r.sum()) / len(y)
        return nb_nll(y, mu, r), gradient

    start = np.zeros(design.shape[1] + 1)
    start[0] = np.log(y.mean())
    best = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    mu = np.exp(np.clip(np.column_stack([np.ones(len(test[0])), test[0]]) @ best.x[:-1], -30, 30))
    return nb_nll(test[1], mu, float(np.exp(best.x[-1])))


def boosting(train: tuple, validation: tuple, test: tuple, seed: int) -> float:
    model = HistGradientBoostingRegressor(
        loss="poisson", max_iter=2000, learning_rate=0.05, early_stopping=True, random_state=seed
    ).fit(train[0], train[1])
    r = fitted_dispersion(validation[1], model.predict(validation[0]))
    return nb_nll(test[1], model.predict(test[0]), r)


def beta_binomial(train: tuple, test: tuple) -> float:
    """Logistic regression of the share, with a dispersion fitted on the training rows."""
    X, n, s = train
    model = LogisticRegression(max_iter=2000).fit(
        np.concatenate([X, X]), np.repeat([1, 0], len(X)), np.concatenate([s, n - s])
    )

    def nll(part: tuple, t: float) -> float:
        p = model.predict_proba(part[0])[:, 1]
        return float(-scipy.stats.betabinom(part[1], p * np.exp(t), (1 - p) * np.exp(t)).logpmf(part[2]).mean())

    best = scipy.optimize.minimize_scalar(lambda t: nll(train, t), bounds=(-3, 9), method="bounded")
    return nll(test, best.x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    args = parser.parse_args()
    seeds = [int(s) for s in args.seeds.split(",")]
    print("| task | seed | ours, NLL | GLM | boosting | ours, CRPS | 90 % intervals cover | k | dispersion | fit, s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in args.datasets.split(","):
        for seed in seeds:
            train, validation, test = parts(name, seed)
            began = time.perf_counter()
            model = GPCountRegressor(random_state=seed).fit(train[0], train[1])
            seconds = time.perf_counter() - began
            scores = CountScores.of(test[1], model.predict_dist(test[0])).as_dict()
            print(
                f"| {name} | {seed} | {scores['nll']:.4f} | {glm(train, test):.4f} "
                f"| {boosting(train, validation, test, seed):.4f} | {scores['crps']:.4g} | {scores['coverage_90']:.3f} "
                f"| {model.k_} | {model.dispersion_:.3g} | {seconds:.0f} |",
                flush=True,
            )
    for seed in seeds:
        (train, _, test) = parts("bike_count", seed)
        began = time.perf_counter()
        model = GPCountRegressor(likelihood="binomial", random_state=seed).fit(train[0], train[2], trials=train[1])
        seconds = time.perf_counter() - began
        scores = CountScores.of(test[2], model.predict_dist(test[0], trials=test[1])).as_dict()
        print(
            f"| casual riders | {seed} | {scores['nll']:.4f} | {beta_binomial(train, test):.4f} | - "
            f"| {scores['crps']:.4g} | {scores['coverage_90']:.3f} | {model.k_} | - | {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
