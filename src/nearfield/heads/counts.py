"""The head of counts: a shift and a factor for the latent function's moments, and the dispersion, refitted.

f ~ N(mean + b, g variance)     dispersion r' = r e^c, where the family has one
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.optimize

from nearfield.counts import CountPredictive
from nearfield.heads._scalars import scalars
from nearfield.metrics import CountScores
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError

_LARGEST = 20.0  # of the scalars in a file, as logarithms


class Latent(NamedTuple):
    """Mean and variance (b,) of the latent function."""

    mean: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True)
class CountHead:
    """The scalars. The dispersion is that of a negative binomial; None where there is none, as for a binomial."""

    dispersion: float | None
    shift: float = 0.0  # b
    log_spread: float = 0.0  # log g

    def predicted(self, moments: Moments, noise: np.ndarray | None = None) -> Latent:
        """Moments (b,) of the latent function, corrected, from those (b, 1) of rows."""
        return Latent(moments.mean[..., 0] + self.shift, np.exp(self.log_spread) * moments.variance[..., 0])

    def packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The scalars, for a file; no arrays."""
        return {"dispersion": self.dispersion, "shift": self.shift, "log_spread": self.log_spread}, {}

    @classmethod
    def unpacked(cls, stored: Mapping[str, Any], dispersed: bool) -> CountHead:
        """The head that `packed` took apart, or a ModelFileError."""
        values = scalars(stored, {"dispersion": None, "shift": 0.0, "log_spread": 0.0}, infinite="dispersion")
        dispersion = values.pop("dispersion")
        log_dispersion = 0.0 if math.isinf(dispersion) else math.log(max(dispersion, 1e-300))
        largest = max(abs(value) for value in (log_dispersion, *values.values()))
        if dispersed == math.isinf(dispersion) or largest > _LARGEST:
            raise ModelFileError(f"its head has scalars that are out of range: {dict(stored)}")
        return cls(dispersion if dispersed else None, **values)


Arrays = Mapping[str, np.ndarray]


class CountFamily(Protocol):
    """What the head of counts needs of a family."""

    def values(self, observed: Arrays) -> np.ndarray:
        """The counts (b,)."""
        ...

    def log_mass(
        self, mean: np.ndarray, variance: np.ndarray, observed: Arrays, dispersion: float | None, parameters: Arrays
    ) -> tuple[np.ndarray, ...]:
        """log p (b,) of counts, and its slopes by the latent mean and variance (b,) and by the log dispersion."""
        ...

    def distribution(self, predicted: Any, head: Any, observed: Arrays, parameters: Arrays) -> CountPredictive:
        """The predictive distributions of counts, from corrected moments, a head and what was observed beside them."""
        ...


@dataclass(frozen=True, eq=False)
class LeftOutCounts:
    """Left-out counts: moments for several k, what was observed by name, how often each counts (b,)."""

    ks: np.ndarray
    moments: Moments
    observed: Arrays
    weights: np.ndarray

    def at(self, k: int) -> LeftOutCounts:
        """The same counts with the moments of a single k."""
        return replace(self, ks=np.array([k]), moments=self.moments.at(int(np.searchsorted(self.ks, k))))


@dataclass(frozen=True, eq=False)
class CountCalibrator:
    """How heads of counts are fitted and judged; see `families.Calibrator`.

    plain: the head of the trained model itself, with its dispersion. sums: that score predictive distributions.
    """

    family: CountFamily
    parameters: Arrays
    plain: CountHead
    calibrated: bool
    sums: Any = CountScores
    slack: float = 0.001

    def fit(self, rows: LeftOutCounts) -> CountHead:
        """The head with the highest likelihood of the left-out counts, or the plain one if that is as good."""
        if not self.calibrated:
            return self.plain
        head = self._maximise(rows)
        return head if self.nll(rows, head) < self.nll(rows, self.plain) else self.plain

    def accuracy(self, rows: LeftOutCounts, head: CountHead) -> float:
        """The log probability."""
        return -self.nll(rows, head)

    def nll(self, rows: LeftOutCounts, head: CountHead) -> float:
        """Mean negative log probability, for a single k."""
        log_p = self._predict(rows, head).logpmf(self.family.values(rows.observed))
        return float(np.average(-log_p, weights=rows.weights))

    def beyond_noise(self, rows: Any, head: Any) -> None:
        """Nobody asks for it."""

    def describe(self, rows: LeftOutCounts, head: CountHead) -> str:
        return f"NLL {self.nll(rows, head):.4f}"

    def remark(self, head: CountHead) -> str:
        """Nobody asks for it."""
        return ""

    def scores(self, rows: LeftOutCounts, head: CountHead) -> dict[str, float]:
        y, dist = self.family.values(rows.observed), self._predict(rows, head)
        return {name: value for name, value in self.sums.of(y, dist, rows.weights).as_dict().items() if name != "n"}

    def covering(self, rows: LeftOutCounts, head: CountHead, units: np.ndarray) -> CountHead:
        """As it is: intervals of counts follow the likelihood."""
        return head

    def finish(self, rows: LeftOutCounts, head: CountHead) -> CountHead:
        """Nothing is left to do."""
        return head

    def _predict(self, rows: LeftOutCounts, head: CountHead) -> CountPredictive:
        return self.family.distribution(head.predicted(rows.moments), head, rows.observed, self.parameters)

    def _maximise(self, rows: LeftOutCounts) -> CountHead:
        """Maximum likelihood with a weak prior around the plain head, by L-BFGS; theta = (b, log g[, c])."""
        mean, variance = rows.moments.mean[:, 0], rows.moments.variance[:, 0]
        start = self.plain.dispersion
        free = 2 if start is None else 3
        total = rows.weights.sum()

        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            dispersion = None if start is None else start * math.exp(theta[2])
            wide = math.exp(theta[1]) * variance
            log_p, by_mean, by_variance, *others = self.family.log_mass(
                mean + theta[0], wide, rows.observed, dispersion, self.parameters
            )
            slopes = np.stack([by_mean, by_variance * wide, *others[: free - 2]])
            value = (0.5 * np.sum(theta**2) - rows.weights @ log_p) / total
            return float(value), (theta - slopes @ rows.weights) / total

        limits = [(-2.0, 2.0), (-5.0, 5.0), (-4.0, 4.0)][:free]
        best = scipy.optimize.minimize(objective, np.zeros(free), jac=True, method="L-BFGS-B", bounds=limits)
        dispersion = None if start is None else float(start * np.exp(best.x[2]))
        return CountHead(dispersion, float(best.x[0]), float(best.x[1]))
