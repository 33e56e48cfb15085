"""The head of a classification: temperatures, an offset for each class, their coupling, and a share of surprises.

    z_c = (a m_c + b_c) / sqrt(1 + pi/8 a^2 g variance_c)     m_c = sinh(r mean_c) / r, r^2 = c     q_c = sigmoid(z_c)
    log p_c = t (log q_c - l log(1 - q_c)), normalised     p' = (1 - e) p + e s

q_c is close to the expectation of sigmoid(a f_c + b_c) when f_c has g times the variance, and cheap; s are the shares
of the classes. a and t undo over- or under-confidence. So does c where many rows with other labels are averaged: the
mean then follows the share of a label, and not its log odds, which grow faster towards certainty. g says how far the
variance can be trusted, b_c corrects the balance of the classes, l says how they exclude each other, and e bounds the
loss from a label that the model finds impossible. Two classes have one latent function, of the second; there is nothing
to couple.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from scipy.special import expit, log_expit

from nearfield.heads._scalars import scalars
from nearfield.metrics import ClassScores
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require_array
from nearfield.polya_gamma import sigmoid_moments

_SCALARS = {
    "log_slope": 0.0,
    "log_spread": 0.0,
    "log_power": 0.0,
    "coupling": 0.0,
    "curve": 0.0,
    "surprise": 0.0,
    "fitted": 0.0,
}
_LARGEST = 20.0  # of scalars and offsets in a file, most of them logarithms: far beyond what a fit can give
_CURVED = 64.0  # square of what the curve of means ends at
_SURPRISE = 1e-3  # where e starts, and the centre of its prior


class Probabilities(NamedTuple):
    """Probabilities (b, K) of the classes."""

    p: np.ndarray


@dataclass(frozen=True, eq=False)
class ClassHead:
    """The scalars. Without `fitted` they are not used: the probabilities are those of the trained model."""

    shares: np.ndarray  # (K,) s
    fitted: bool = False
    log_slope: float = 0.0  # log a
    log_spread: float = 0.0  # log g
    log_power: float = 0.0  # log t
    coupling: float = 0.0  # l
    curve: float = 0.0  # c
    surprise: float = 0.0  # e
    offsets: np.ndarray = field(default_factory=lambda: np.zeros(1))  # (C,) b

    def predicted(self, moments: Moments, noise: np.ndarray | None = None) -> Probabilities:
        """Probabilities (b, K), which sum to one, from the moments (b, C) of rows."""
        if self.fitted:
            log_p = _Corrected(moments.mean, moments.variance, self.theta()).log_p
        else:
            log_p = log_probabilities(moments.mean, moments.variance)
        p = (1 - self.surprise) * np.exp(log_p) + self.surprise * self.shares
        return Probabilities(p / p.sum(axis=1, keepdims=True))

    def theta(self) -> np.ndarray:
        """(log a, log g, log t, l, c, b_c ..)."""
        return np.array([self.log_slope, self.log_spread, self.log_power, self.coupling, self.curve, *self.offsets])

    def packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The scalars and arrays, for a file."""
        fields = {name: float(getattr(self, name)) for name in _SCALARS}
        return fields, {"offsets": np.asarray(self.offsets, dtype=np.float64), "shares": self.shares}

    @classmethod
    def unpacked(
        cls, stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray], classes: int, latents: int
    ) -> ClassHead:
        """The head that `packed` took apart, or a ModelFileError."""
        values = scalars(stored, _SCALARS)
        fitted = values.pop("fitted") > 0
        shares, offsets = (require_array(arrays, name, "float64", 1) for name in ("shares", "offsets"))
        if shares.shape != (classes,) or offsets.shape != (latents,):
            raise ModelFileError(f"its head has shares {shares.shape}, offsets {offsets.shape} for {classes} classes")
        largest = max(abs(value) for value in (*values.values(), *offsets.tolist()))
        sound = np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0 and np.isfinite(offsets).all()
        if not (sound and 0 <= values["surprise"] < 1 and largest <= _LARGEST):
            raise ModelFileError(f"its head has scalars that are out of range: {dict(stored)}")
        return cls(shares / shares.sum(), fitted, offsets=offsets, **values)


def log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log p (b, K) of the classes from latent moments (b, C), Eq. (13), eqn:postpredyn, and eqn:postpredynknorm."""
    found = sigmoid_moments(mean, variance)
    if mean.shape[1] == 1:
        return np.concatenate([found.negative, found.positive], axis=1)
    return found.positive - log_sum_exp(found.positive)


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    """log of the sum of exp(x) over the last axis, which is kept: (b, 1)."""
    top = x.max(axis=-1, keepdims=True)
    return np.asarray(top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True)))


class _Corrected:
    """log p (b, K) for theta = (log a, log g, log t, l, c, b_c ..), and its slopes."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray, theta: np.ndarray) -> None:
        self.slope, self.power, self.coupling = math.exp(theta[0]), math.exp(theta[2]), float(theta[3])
        self.two = mean.shape[1] == 1
        factor, by_square = _curved(float(theta[4]) * mean**2)
        self.mean, self.by_curve = mean * factor, mean**3 * by_square
        self.spread = math.pi / 8 * math.exp(2 * theta[0] + theta[1]) * variance
        self.root = np.sqrt(1 + self.spread)
        self.z = (self.slope * self.mean + theta[5:]) / self.root
        positive, self.negative = log_expit(self.z), log_expit(-self.z)
        if self.two:  # the probabilities themselves: there is nothing to couple
            together = np.concatenate([self.negative, positive], axis=1)
        else:  # the paper normalises probabilities, coupling 0; exactly one of K events has happened: odds, coupling 1
            together = positive - self.coupling * self.negative
        self.scaled = self.power * together
        self.log_p = self.scaled - log_sum_exp(self.scaled)

    def slopes(self, labels: np.ndarray) -> np.ndarray:
        """d log p of the labels (b,) by theta: (b, 5 + C)."""
        excess = -np.exp(self.log_p)  # by the scaled logarithms before they are normalised
        excess[np.arange(len(labels)), labels] += 1
        if self.two:
            by_z = self.power * (excess[:, 1:] * expit(-self.z) - excess[:, :1] * expit(self.z))
            by_coupling = np.zeros(len(labels))
        else:
            by_z = self.power * excess * (expit(-self.z) + self.coupling * expit(self.z))
            by_coupling = -self.power * (excess * self.negative).sum(axis=1)
        shrunk = self.z * self.spread / (1 + self.spread)
        by_slope = (by_z * (self.slope * self.mean / self.root - shrunk)).sum(axis=1)
        by_spread = (by_z * -0.5 * shrunk).sum(axis=1)
        by_power = (excess * self.scaled).sum(axis=1)
        by_curve = (by_z * self.slope * self.by_curve / self.root).sum(axis=1)
        scalars = np.stack([by_slope, by_spread, by_power, by_coupling, by_curve], axis=1)
        return np.concatenate([scalars, by_z / self.root], axis=1)


def _curved(square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sinh(x) / x and its slope by x^2, from x^2; constant beyond x = 8."""
    inside = np.minimum(square, _CURVED)
    x = np.sqrt(np.maximum(inside, 1e-2))
    small = inside < 1e-2
    factor = np.where(small, 1 + inside / 6 + inside**2 / 120, np.sinh(x) / x)
    slope = np.where(small, 1 / 6 + inside / 60, (np.cosh(x) - np.sinh(x) / x) / (2 * x**2))
    return factor, np.where(square < _CURVED, slope, 0.0)


@dataclass(frozen=True, eq=False)
class LeftOutLabels:
    """Left-out labels: moments for several k, classes (b,) and how often each was seen (b,)."""

    ks: np.ndarray
    moments: Moments
    labels: np.ndarray
    weights: np.ndarray

    def at(self, k: int) -> LeftOutLabels:
        """The same labels with the moments of a single k."""
        return replace(self, ks=np.array([k]), moments=self.moments.at(int(np.searchsorted(self.ks, k))))

    def nll(self, head: ClassHead) -> float:
        """Mean negative log probability of the labels, for a single k."""
        p = head.predicted(self.moments).p[np.arange(len(self.labels)), self.labels]
        return float(np.average(-np.log(np.maximum(p, 1e-300)), weights=self.weights))


@dataclass(frozen=True, eq=False)
class ClassCalibrator:
    """How heads of a classification are fitted and judged; see `families.Calibrator`."""

    plain: ClassHead
    calibrated: bool
    slack: float = 0.01

    def fit(self, rows: LeftOutLabels) -> ClassHead:
        """The head with the highest likelihood of the left-out labels, or the plain one if that is as good."""
        if not self.calibrated:
            return self.plain
        head = _maximise(rows, self.plain)
        return head if rows.nll(head) < rows.nll(self.plain) else self.plain

    def accuracy(self, rows: LeftOutLabels, head: ClassHead) -> float:
        """Minus the logarithm of the NLL: relative gains, as for a regression."""
        return -float(np.log(max(rows.nll(head), 1e-12)))

    def beyond_noise(self, rows: Any, head: Any) -> None:
        """Nobody asks for it."""

    def describe(self, rows: LeftOutLabels, head: ClassHead) -> str:
        return f"NLL {rows.nll(head):.4f}"

    def remark(self, head: ClassHead) -> str:
        """Nobody asks for it."""
        return ""

    def scores(self, rows: LeftOutLabels, head: ClassHead) -> dict[str, float]:
        scores = ClassScores.of(rows.labels, head.predicted(rows.moments).p, rows.weights).as_dict()
        return {name: scores[name] for name in ("nll", "error", "brier", "calibration_error")}

    def covering(self, rows: LeftOutLabels, head: ClassHead, units: np.ndarray) -> ClassHead:
        """Probabilities have no width."""
        return head

    def finish(self, rows: LeftOutLabels, head: ClassHead) -> ClassHead:
        """Nothing is left to do."""
        return head


def _maximise(rows: LeftOutLabels, plain: ClassHead) -> ClassHead:
    """Maximum likelihood with a weak prior around the plain head, by L-BFGS.

    theta = (log a, log g, log t, l, c, b_c .., log e).
    """
    size = len(plain.offsets)
    start = np.concatenate([np.zeros(5 + size), [np.log(_SURPRISE)]])
    limits: list[Any] = [(-3, 3), (-5, 5), (-2, 2), (0, 1.5), (0, 2), *([(-5, 5)] * size), (np.log(1e-7), np.log(0.3))]
    best = scipy.optimize.minimize(
        negative_log_posterior,
        start,
        args=(rows, plain.shares),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": 100},
    )
    a, g, t, coupling, curve, *offsets, log_e = best.x.tolist()
    return replace(
        plain, fitted=True, log_slope=a, log_spread=g, log_power=t, coupling=coupling, curve=curve,
        surprise=math.exp(log_e), offsets=np.array(offsets),
    )  # fmt: skip


def negative_log_posterior(theta: np.ndarray, rows: LeftOutLabels, shares: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean negative log probability of the labels plus the prior, and its gradient by theta (see `_maximise`)."""
    corrected = _Corrected(rows.moments.mean, rows.moments.variance, theta[:-1])
    log_p = corrected.log_p[np.arange(len(rows.labels)), rows.labels]
    e = math.exp(theta[-1])
    expected = math.log1p(-e) + log_p
    log_total = np.logaddexp(expected, theta[-1] + np.log(np.maximum(shares, 1e-12))[rows.labels])
    believed = np.exp(expected - log_total)  # share of the probability that is not due to surprises
    by_theta = corrected.slopes(rows.labels) * believed[:, None]
    by_surprise = 1 - believed - believed * e / (1 - e)
    gradient = -np.concatenate([by_theta, by_surprise[:, None]], axis=1).T @ rows.weights
    off = theta[-1] - math.log(_SURPRISE)
    prior = 0.5 * (np.sum(theta[:-1] ** 2) + off**2 / 4)
    total = rows.weights.sum()
    value = (prior - rows.weights @ log_total) / total
    return float(value), (np.concatenate([theta[:-1], [off / 4]]) + gradient) / total
