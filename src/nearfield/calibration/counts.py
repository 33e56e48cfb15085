"""The head of counts: a shift and a factor for the latent function's moments, and the dispersion, refitted.

f ~ N(mean + b, g variance)     dispersion r' = r e^c (negative binomial only)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.optimize
import torch

from nearfield._threads import torch_alone
from nearfield.counts import CountDistribution
from nearfield.likelihoods import Likelihood
from nearfield.metrics import CountScores
from nearfield.sweep import Swept


class Latent(NamedTuple):
    """Mean and variance (b,) of the latent function."""

    mean: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True)
class CountHead:
    """The scalars. The dispersion is that of a negative binomial; None for a binomial."""

    dispersion: float | None
    shift: float = 0.0  # b
    log_spread: float = 0.0  # log g

    def predicted(self, swept: Swept, noise: np.ndarray | float = 0.0) -> Latent:
        """Moments (b,) of the latent function, corrected."""
        return Latent(swept.mean + self.shift, np.exp(self.log_spread) * swept.variance)

    def distribution(self, latent: Latent, given: np.ndarray) -> CountDistribution:
        """Over counts; `given` (b,) are the trials, or the logarithm of the exposure."""
        if self.dispersion is None:
            return CountDistribution.binomial(latent.mean, latent.variance, given)
        log_odds = latent.mean + given - np.log(self.dispersion)
        return CountDistribution.negative_binomial(log_odds, latent.variance, self.dispersion)


@dataclass(frozen=True, eq=False)
class CountLeftOut:
    """Left-out counts: moments for several k, the likelihood's statistics (b, S), how often each counts (b,)."""

    ks: np.ndarray
    swept: Swept
    stats: np.ndarray
    weights: np.ndarray

    def at(self, k: int) -> CountLeftOut:
        """The same counts with the moments of a single k."""
        return replace(self, ks=np.array([k]), swept=self.swept.at(int(np.searchsorted(self.ks, k))))

    def predict(self, head: CountHead) -> CountDistribution:
        """The head's predictive distributions, for a single k."""
        return head.distribution(head.predicted(self.swept), self.stats[:, 2])

    def nll(self, head: CountHead) -> float:
        """Mean negative log probability, for a single k."""
        return float(np.average(-self.predict(head).logpmf(self.stats[:, 0]), weights=self.weights))


@dataclass(frozen=True, eq=False)
class CountMethod:
    """How heads of counts are fitted and judged; see `calibration.Method`."""

    likelihood: Likelihood
    dispersion: float | None
    calibrated: bool
    slack: float = 0.001

    def fit(self, rows: CountLeftOut) -> CountHead:
        """The head with the highest likelihood of the left-out counts, or the plain one if that is as good."""
        plain = CountHead(self.dispersion)
        if not self.calibrated:
            return plain
        head = self._maximise(rows)
        return head if rows.nll(head) < rows.nll(plain) else plain

    def accuracy(self, rows: CountLeftOut, head: CountHead) -> float:
        """The log probability."""
        return -rows.nll(head)

    def describe(self, rows: CountLeftOut, head: CountHead) -> str:
        return f"NLL {rows.nll(head):.4f}"

    def scores(self, rows: CountLeftOut, head: CountHead) -> dict[str, float]:
        scores = CountScores.of(rows.stats[:, 0], rows.predict(head), rows.weights).as_dict()
        return {name: value for name, value in scores.items() if name != "n"}

    def _maximise(self, rows: CountLeftOut) -> CountHead:
        """Maximum likelihood with a weak prior around the plain head, by L-BFGS; theta = (b, log g[, c])."""
        mean, variance = torch.from_numpy(rows.swept.mean), torch.from_numpy(rows.swept.variance)
        stats, weights = torch.from_numpy(rows.stats), torch.from_numpy(rows.weights)
        free = 2 if self.dispersion is None else 3
        log_dispersion = 0.0 if self.dispersion is None else float(np.log(self.dispersion))

        def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
            theta = torch.tensor(values, requires_grad=True)
            hyper = {"log_dispersion": log_dispersion + theta[2]} if free == 3 else {}
            log_p = self.likelihood.log_predictive(mean + theta[0], theta[1].exp() * variance, stats, hyper)
            loss = (0.5 * theta.square().sum() - torch.dot(weights, log_p)) / float(weights.sum())
            (gradient,) = torch.autograd.grad(loss, theta)
            return float(loss.detach()), gradient.numpy()

        with torch_alone():
            limits = [(-2.0, 2.0), (-5.0, 5.0), (-4.0, 4.0)][:free]
            best = scipy.optimize.minimize(objective, np.zeros(free), jac=True, method="L-BFGS-B", bounds=limits)
        dispersion = None if free == 2 else float(np.exp(log_dispersion + best.x[2]))
        return CountHead(dispersion, float(best.x[0]), float(best.x[1]))
