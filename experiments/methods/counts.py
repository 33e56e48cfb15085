"""Counts, the usual way: regressions by maximum likelihood, and gradient boosting with a fitted dispersion.

Not behind the protocol, which knows no trials: each function gives the predictive distributions of the test rows, as a
frozen discrete distribution of scipy. Boosting fits its dispersion on the validation rows, the regressions on the
training rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from experiments.methods.protocol import Array

_LARGEST = 30.0  # of the logarithm of a mean


@dataclass(frozen=True)
class Counted:
    """Inputs (n, d), counts (n,), and how many trials (n,) each of these is out of, if it is."""

    X: Array
    y: Array
    trials: Array | None = None


Counter = Callable[[Counted, Counted, Counted, int], Any]
"""Of training, validation and test rows and a seed."""


def negative_binomial(mean: Array, dispersion: float) -> Any:
    """With variance mean + mean^2 / dispersion; mean (n,)."""
    return scipy.stats.nbinom(dispersion, dispersion / (dispersion + mean))


def nll(dist: Any, y: Array) -> float:
    """Mean negative log probability of the counts y (n,)."""
    return float(-dist.logpmf(y).mean())


def glm(train: Counted, validation: Counted, test: Counted, seed: int) -> Any:
    """Negative-binomial regression with a log link: coefficients and dispersion by maximum likelihood."""
    y = train.y

    def objective(theta: Array) -> tuple[float, Array]:
        mean, r = _means(train.X, theta[:-1]), np.exp(theta[-1])
        by_eta = (y - mean) * r / (r + mean)
        by_r = (
            scipy.special.digamma(y + r) - scipy.special.digamma(r) + np.log(r / (r + mean)) + (mean - y) / (r + mean)
        )
        gradient = -np.append(_design(train.X).T @ by_eta, r * by_r.sum()) / len(y)
        return nll(negative_binomial(mean, r), y), gradient

    start = np.zeros(train.X.shape[1] + 2)
    start[0] = np.log(y.mean())
    theta = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x
    return negative_binomial(_means(test.X, theta[:-1]), float(np.exp(theta[-1])))


def boosting(train: Counted, validation: Counted, test: Counted, seed: int) -> Any:
    """scikit-learn's boosting with Poisson loss, stopped early."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        loss="poisson", max_iter=2000, learning_rate=0.05, early_stopping=True, random_state=seed
    ).fit(train.X, train.y)
    mean = model.predict(validation.X)
    r = _best_scale(lambda r: nll(negative_binomial(mean, r), validation.y), -5, 9)
    return negative_binomial(model.predict(test.X), r)


def beta_binomial(train: Counted, validation: Counted, test: Counted, seed: int) -> Any:
    """Logistic regression of the share of successes, with a dispersion."""
    from sklearn.linear_model import LogisticRegression

    assert train.trials is not None
    both = np.concatenate([train.X, train.X])
    model = LogisticRegression(max_iter=2000).fit(
        both, np.repeat([1, 0], len(train.X)), np.concatenate([train.y, train.trials - train.y])
    )

    def predictive(part: Counted, scale: float) -> Any:
        p = model.predict_proba(part.X)[:, 1]
        return scipy.stats.betabinom(part.trials, p * scale, (1 - p) * scale)

    return predictive(test, _best_scale(lambda scale: nll(predictive(train, scale), train.y), -3, 9))


def _design(X: Array) -> Array:
    return np.column_stack([np.ones(len(X)), X])


def _means(X: Array, coefficients: Array) -> Array:
    return np.exp(np.clip(_design(X) @ coefficients, -_LARGEST, _LARGEST))


def _best_scale(loss: Callable[[float], float], low: float, high: float) -> float:
    """The positive number with the lowest loss, its logarithm between `low` and `high`."""
    found = scipy.optimize.minimize_scalar(lambda t: loss(float(np.exp(t))), bounds=(low, high), method="bounded")
    return float(np.exp(found.x))
