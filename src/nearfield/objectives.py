"""Training objectives: each is a table of neighbours and a score of the rows that these predict.

    loo        each observation given its nearest neighbours (LOO-k), Eq. (9), eqn:cvk
    vecchia    each row given its nearest neighbours among those before it in an order
    mll        a row and its nearest neighbours jointly (MLL-k)

Training maximises the weighted mean of the scores. The first two differ in the table alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from nearfield.conditional.joint import joint_log_density
from nearfield.families import Observations, Score
from nearfield.model import AllRows, Model, added
from nearfield.rows import Rows, seen_by


class Search(Protocol):
    """What finds neighbours, see `sweep.Sweeper`; each answer is (b, k), -1 behind the last."""

    def left_out_ids(self, which: np.ndarray, k: int) -> np.ndarray: ...

    def earlier_ids(self, which: np.ndarray, k: int, rank: np.ndarray) -> np.ndarray: ...

    def own_ids(self, which: np.ndarray, k: int) -> np.ndarray: ...


Slopes = tuple[dict[str, np.ndarray], "tuple[np.ndarray, np.ndarray] | None"]
"""By the parameters, and by the site state (b, k, A) of the neighbours (b, k) where it is learned."""


class Scored(NamedTuple):
    """Scores (b,) of observations; slopes(weights (b,)): of their weighted sum.

    Mean and variance (b, C) of the latent functions, where the objective has them; jittered: rows with extra jitter.
    """

    values: np.ndarray
    slopes: Callable[[np.ndarray], Slopes]
    moments: tuple[np.ndarray, np.ndarray] | None
    jittered: int


@dataclass(frozen=True)
class Objective:
    """Which neighbours (b, k) observations (b,) have, and how well they are predicted."""

    table: Callable[[Search, np.ndarray, int], np.ndarray]
    score: Callable[[Model, Rows, Observations, np.ndarray], Scored]


def conditional_score(model: Model, rows: Rows, left_out: Observations, ids: np.ndarray) -> Scored:
    """log p of each observation given its neighbours, the latent functions integrated out."""
    latent = model.latent(rows, rows.inputs[left_out.row], ids, left_out, differentiate=True)
    mean, variance = latent.mean[:, 0], np.ascontiguousarray(latent.found.variance[:, 0])
    score = model.family.score(left_out.observed, mean, variance, model.parameters)

    def slopes(weights: np.ndarray) -> Slopes:
        column = weights[:, None]
        by_parameters, by_state = latent.slopes(column * score.by_mean, column * score.by_variance)
        return added(by_parameters, _direct(score, weights)), None if by_state is None else (ids, by_state)

    return Scored(score.value, slopes, (mean, variance), latent.found.jittered)


def left_out_score(together: AllRows, share: float = 0.0) -> Scored:
    """log p of every observation given all others, by one factorisation: LOO-k with k = n - 1.

    share: the slopes also have so many times those of the joint log density of the rows.
    """
    model, observations = together.model, together.rows.observations
    mean, variance, _ = together.left_out()
    score = model.family.score(observations.observed, mean, variance, model.parameters)

    def slopes(weights: np.ndarray) -> Slopes:
        column = weights[:, None]
        by_parameters = together.slopes(column * score.by_mean, column * score.by_variance, share)
        return added(by_parameters, _direct(score, weights)), None

    return Scored(score.value, slopes, (mean, variance), together.found.jittered)


def _direct(score: Score, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Slopes of the weighted sum of scores by the family's parameters, other than through the moments."""
    return {name: np.tensordot(weights, by, 1) for name, by in score.by_parameters.items()}


def joint_score(model: Model, rows: Rows, left_out: Observations, ids: np.ndarray) -> Scored:
    """log density of a row and its neighbours together, a k-th of it; for one output with Gaussian noise."""
    observed, state = seen_by(rows, model.family, ids, None)
    scale2, p = model.scale2, model.parameters
    sites = model.family.sites(observed, state, p, scale2)
    near = rows.inputs[np.maximum(ids, 0)]
    targets = sites.targets - model.mean.at(near, p)
    own, warps = model.covariance, model.covariance.warps
    features = rows.features or rows.featured(warps, ids).features
    points, places = model.near(rows, ids) if features is None else (features.values, features.ids(ids))
    value, by = joint_log_density(
        own.kernel, own.lengths(p, len(warps) > 0), p["log_scale"][0], p["log_shape"], points, places,
        targets[..., 0], sites.noises[..., 0], warps.owners,
    )  # fmt: skip
    k = ids.shape[1]

    def slopes(weights: np.ndarray) -> Slopes:
        w = weights[:, None] / k
        by_targets, by_noises = (w * by.targets)[..., None], (w * by.noises)[..., None]
        of_sites = model.family.site_slopes(observed, state, p, scale2, by_targets, by_noises)
        of_kernel = {
            **own.length_slopes(p, (w * by.log_lengths).sum(axis=0)),
            "log_scale": np.array([np.sum(w[:, 0] * by.log_scale)]) + of_sites.log_scale,
            "log_shape": (w * by.log_shape).sum(axis=0),
        }
        return added(of_kernel, of_sites.parameters, model.mean.slopes(near, -by_targets)), None

    return Scored(value / k, slopes, None, 0)


LEAVE_ONE_OUT = Objective(lambda search, which, k: search.left_out_ids(which, k), conditional_score)
"""LOO-k."""

JOINT = Objective(lambda search, which, k: search.own_ids(which, k), joint_score)
"""MLL-k."""


def vecchia(rank: np.ndarray) -> Objective:
    """Vecchia's, for rows with that rank (n,) in an order."""
    return Objective(lambda search, which, k: search.earlier_ids(which, k, rank), conditional_score)


OBJECTIVES: dict[str, Callable[[Callable[[], np.ndarray]], Objective]] = {
    "loo": lambda ranked: LEAVE_ONE_OUT,
    "mll": lambda ranked: JOINT,
    "vecchia": lambda ranked: vecchia(ranked()),
}
"""By name, from what ranks the rows where they need an order."""

ORDERINGS = ("random", "pca")


def ranks(name: str, inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rank (n,) of each row of inputs (n, d) in the order that Vecchia's objective follows.

    A random order lets every row have near neighbours at all distances; the paper goes along the first principal
    component.
    """
    if name == "random":
        order = rng.permutation(len(inputs))
    else:
        centred = inputs - inputs.mean(axis=0)
        direction = np.linalg.svd(centred.T @ centred)[0][:, 0]
        order = np.argsort(centred @ direction, kind="stable")
    rank = np.empty(len(inputs), dtype=np.int64)
    rank[order] = np.arange(len(inputs))
    return rank


_LENGTHS, _BENDS = 0.3, 0.5  # spreads of log length scales, and of bends, around their means
_LEAST = 1e-3  # weight of the priors
_MOST = 2.0  # what a column that goes its own way costs, in nats


def pulled_together(values: np.ndarray, spread: float) -> tuple[float, np.ndarray]:
    """Minus the log density of a prior that pulls values (.., m) to their mean, and its slope.

    Near the mean it is the square of the distance in spreads; far from it, it costs no more than _MOST a value. So
    columns that the data do not tell apart share one length scale, and those that matter more or not at all go their
    own way. One term for the whole data set: divided by the number of observations it goes with the mean of the scores.
    """
    off = (values - values.mean(axis=-1, keepdims=True)) / spread
    x = off**2 / _MOST
    slope = 2 * off / (1 + x) ** 2 / spread
    return float((_MOST * x / (1 + x)).sum()), slope - slope.mean(axis=-1, keepdims=True)


def scale_prior(log_scale: np.ndarray, spread: float) -> tuple[float, np.ndarray]:
    """Minus the log density of a half-normal prior of that spread on kernel scales, by their logarithms (S,).

    Smooth functions can be had with any scale that goes with long enough length scales, but what is predicted far from
    all rows depends on it: where that matters, the smallest that will do is right.
    """
    squares = np.exp(2 * log_scale) / spread**2
    return 0.5 * float(squares.sum()), squares


def prior(model: Model) -> tuple[float, dict[str, Any]]:
    """Minus the log density of all priors, one term for the whole data set, and its slopes by the parameters."""
    p, parts = model.parameters, [model.mean.penalty(model.parameters)]
    if model.covariance.shrinks:
        value, slope = pulled_together(p["log_lengths"], _LENGTHS)
        parts.append((value, {"log_lengths": slope}))
        if "bends" in p:
            value, slope = pulled_together(p["bends"].T, _BENDS)
            parts.append((value, {"bends": slope.T}))
    if model.family.scale_spread is not None:
        value, slope = scale_prior(p["log_scale"], model.family.scale_spread)
        parts.append((value, {"log_scale": slope}))
    return sum(value for value, _ in parts), added(*(slopes for _, slopes in parts))


def prior_weight(model: Model, loss: float, total: float) -> float:
    """How much the priors count at that mean loss of observations that count so much in all.

    Losses of labels vanish as labels become certain. Priors, which cost up to a few nats a column, may then not
    outweigh them: they count as many times as there are nats of loss a column, once at most.
    """
    return min(1.0, max(loss * total / model.covariance.d, _LEAST)) if model.family.losses_vanish else 1.0


def beside_prior(model: Model, loss: float, total: float) -> tuple[float, float]:
    """A function of the mean loss, and its slope: the integral of 1 / `prior_weight`.

    Together with the priors as they are, it has its optimum where the loss has it with the priors weighed.
    """
    weight = prior_weight(model, loss, total)
    return loss if weight == 1 else model.covariance.d / total * (1 + math.log(weight)), 1 / weight
