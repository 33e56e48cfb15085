"""The head of a classification: temperatures, an offset for each class, their coupling, and a share of surprises.

    z_c = (a mean_c + b_c) / sqrt(1 + pi/8 a^2 g variance_c)     q_c = sigmoid(z_c)
    log p_c = t (log q_c - l log(1 - q_c)), normalised     p' = (1 - e) p + e s

q_c is close to the expectation of sigmoid(a f_c + b_c) when f_c has g times the variance, and cheap; s are the shares
of the classes. a and t undo over- or under-confidence, g says how far the variance can be trusted, b_c corrects the
balance of the classes, l says how they exclude each other (for two classes there is nothing to couple), and e bounds
the loss from a label that the model finds impossible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import torch
from torch.nn.functional import logsigmoid

from nearfield._threads import torch_alone
from nearfield.likelihoods.classes import Classes
from nearfield.metrics import ClassScores
from nearfield.sweep import Swept


class Probabilities(NamedTuple):
    """Probabilities (b, K) of the classes."""

    p: np.ndarray


@dataclass(frozen=True, eq=False)
class ClassHead:
    """The scalars. Without `fitted` they are not used: the probabilities are those of the trained model."""

    likelihood: Classes
    shares: np.ndarray  # (K,) s
    fitted: bool = False
    log_slope: float = 0.0  # log a
    log_spread: float = 0.0  # log g
    log_power: float = 0.0  # log t
    coupling: float = 0.0  # l
    surprise: float = 0.0  # e
    offsets: np.ndarray | float = 0.0  # latents, b

    def predicted(self, swept: Swept, noise: np.ndarray | float = 0.0) -> Probabilities:
        """Probabilities (b, K), which sum to one, from the moments of rows."""
        with torch_alone(), torch.no_grad():
            mean, variance = torch.from_numpy(swept.mean), torch.from_numpy(swept.variance)
            if self.fitted:
                log_p = _log_probabilities(self.likelihood, mean, variance, torch.from_numpy(self.theta()))
            else:
                log_p = self.likelihood.log_probabilities(mean, variance)
            p = log_p.exp().numpy()
        p = (1 - self.surprise) * p + self.surprise * self.shares
        return Probabilities(p / p.sum(axis=1, keepdims=True))

    def theta(self) -> np.ndarray:
        """(log a, log g, log t, l, b_c ..)."""
        offsets = np.broadcast_to(self.offsets, self.likelihood.latents).ravel()
        return np.array([self.log_slope, self.log_spread, self.log_power, self.coupling, *offsets], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ClassLeftOut:
    """Left-out labels: moments for several k, classes (b,) and how often each was seen (b,)."""

    ks: np.ndarray
    swept: Swept
    labels: np.ndarray
    weights: np.ndarray

    def at(self, k: int) -> ClassLeftOut:
        """The same labels with the moments of a single k."""
        return replace(self, ks=np.array([k]), swept=self.swept.at(int(np.searchsorted(self.ks, k))))

    def nll(self, head: ClassHead) -> float:
        """Mean negative log probability of the labels, for a single k."""
        p = head.predicted(self.swept).p[np.arange(len(self.labels)), self.labels]
        return float(np.average(-np.log(np.maximum(p, 1e-300)), weights=self.weights))


@dataclass(frozen=True, eq=False)
class ClassMethod:
    """How heads of a classification are fitted and judged; see `calibration.Method`."""

    likelihood: Classes
    shares: np.ndarray
    calibrated: bool
    slack: float = 0.01

    def fit(self, rows: ClassLeftOut) -> ClassHead:
        """The head with the highest likelihood of the left-out labels, or the plain one if that is as good."""
        plain = ClassHead(self.likelihood, self.shares)
        if not self.calibrated:
            return plain
        head = _maximise(rows, plain)
        return head if rows.nll(head) < rows.nll(plain) else plain

    def accuracy(self, rows: ClassLeftOut, head: ClassHead) -> float:
        """Minus the logarithm of the NLL: relative gains, as for a regression."""
        return -float(np.log(max(rows.nll(head), 1e-12)))

    def describe(self, rows: ClassLeftOut, head: ClassHead) -> str:
        return f"NLL {rows.nll(head):.4f}"

    def scores(self, rows: ClassLeftOut, head: ClassHead) -> dict[str, float]:
        scores = ClassScores.of(rows.labels, head.predicted(rows.swept).p, rows.weights).as_dict()
        return {name: scores[name] for name in ("nll", "error", "brier", "calibration_error")}


def _log_probabilities(
    likelihood: Classes, mean: torch.Tensor, variance: torch.Tensor, theta: torch.Tensor
) -> torch.Tensor:
    """log p (b, K) for theta = (log a, log g, log t, l, b_c ..)."""
    slope, offsets = theta[0].exp(), theta[4:].reshape(likelihood.latents)
    z = (slope * mean + offsets) / (1 + math.pi / 8 * (2 * theta[0] + theta[1]).exp() * variance).sqrt()
    return torch.log_softmax(theta[2].exp() * likelihood.combined(logsigmoid(z), logsigmoid(-z), theta[3]), -1)


_SURPRISE = 1e-3  # where e starts, and the centre of its prior


def _maximise(rows: ClassLeftOut, plain: ClassHead) -> ClassHead:
    """Maximum likelihood with a weak prior around the plain head, by L-BFGS.

    theta = (log a, log g, log t, l, b_c .., log e).
    """
    mean, variance = torch.from_numpy(rows.swept.mean), torch.from_numpy(rows.swept.variance)
    labels, weights = torch.from_numpy(rows.labels)[:, None], torch.from_numpy(rows.weights)
    log_shares = torch.from_numpy(np.log(np.maximum(plain.shares, 1e-12))[rows.labels])
    total = float(weights.sum())

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.tensor(values, requires_grad=True)
        log_p = _log_probabilities(plain.likelihood, mean, variance, theta[:-1]).gather(1, labels)[:, 0]
        log_p = torch.logaddexp(torch.log1p(-theta[-1].exp()) + log_p, theta[-1] + log_shares)
        prior = 0.5 * (theta[:-1].square().sum() + (theta[-1] - np.log(_SURPRISE)).square() / 4)
        loss = (prior - torch.dot(weights, log_p)) / total
        (gradient,) = torch.autograd.grad(loss, theta)
        return float(loss.detach()), gradient.numpy()

    size = math.prod(plain.likelihood.latents)
    start = np.concatenate([np.zeros(4 + size), [np.log(_SURPRISE)]])
    limits: list[Any] = [(-3, 3), (-5, 5), (-2, 2), (0, 1.5), *([(-5, 5)] * size), (np.log(1e-7), np.log(0.3))]
    with torch_alone():
        best = scipy.optimize.minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 100}
        )
    a, g, t, coupling, *offsets, log_e = best.x.tolist()
    shaped = np.array(offsets).reshape(plain.likelihood.latents)
    return replace(
        plain, fitted=True, log_slope=a, log_spread=g, log_power=t, coupling=coupling, surprise=math.exp(log_e),
        offsets=shaped,
    )  # fmt: skip
