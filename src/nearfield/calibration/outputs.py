"""The head of several outputs: a head of a regression for each, and how the outputs of a row go together.

k is the same for all outputs of a row. Each output has error bars of its own, fitted on the left-out rows where it was
observed. What links the outputs is the model's covariance, of which the correlations are kept (`joint_scores`), made
smaller by a common factor if that suits the left-out rows better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from scipy.special import ndtri

from nearfield.calibration.regression import Head, LeftOut, Predicted, RegressionMethod
from nearfield.sweep import Swept

_COUPLINGS = tuple((np.arange(11) / 10).tolist())
_LARGEST_Z = 37.0  # beyond it the normal distribution function is 0 or 1


@dataclass(frozen=True)
class OutputHeads:
    """A head for each of P outputs, and the share of the model's correlations between them that is believed."""

    heads: tuple[Head, ...]
    coupling: float = 1.0

    def predicted(self, swept: Swept, noise: np.ndarray | float) -> Predicted:
        """Predictions (b, P) from the moments of rows and their noise variances, (P,) or (b, P)."""
        noises = np.broadcast_to(noise, swept.mean.shape)
        parts = [head.predicted(swept.output(p), noises[:, p]) for p, head in enumerate(self.heads)]
        return Predicted(*(np.stack(columns, axis=1) for columns in zip(*parts, strict=True)))

    def correlation(self, covariance: np.ndarray) -> np.ndarray:
        """Correlations (b, P, P) between the outputs, from the model's covariances (b, P, P)."""
        deviation = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1e-300))
        found = np.clip(covariance / deviation[:, :, None] / deviation[:, None, :], -1.0, 1.0)
        return np.where(np.eye(len(self.heads), dtype=bool), 1.0, self.coupling * found)

    def coupled(self, rows: OutputsLeftOut, covariance: np.ndarray) -> OutputHeads:
        """The same with the coupling that suits the left-out rows, of a single k, with covariances (b, P, P) best."""
        predicted = self.predicted(rows.swept, rows.noise)
        dist = scipy.stats.t(self.df, predicted.loc, predicted.scale)
        y = np.where(rows.present, rows.y, np.nan)
        options = [replace(self, coupling=share) for share in _COUPLINGS]
        scores = [np.average(joint_scores(y, dist, h.correlation(covariance)), weights=rows.weights) for h in options]
        return options[int(np.argmax(scores))]

    @property
    def df(self) -> np.ndarray:
        """Degrees of freedom (P,) of the predictive distributions."""
        return np.array([head.df for head in self.heads])


@dataclass(frozen=True)
class OutputsLeftOut:
    """Left-out rows: moments for several k, targets, noise variances and what is there (b, P), weights (b,)."""

    ks: np.ndarray
    swept: Swept
    y: np.ndarray
    noise: np.ndarray
    present: np.ndarray
    weights: np.ndarray

    def at(self, k: int) -> OutputsLeftOut:
        """The same rows with the moments of a single k."""
        return replace(self, ks=np.array([k]), swept=self.swept.at(int(np.searchsorted(self.ks, k))))

    def output(self, p: int) -> LeftOut:
        """The rows, of a single k, in which output p was observed."""
        there = self.present[:, p]
        swept = self.swept.output(p).rows(there)
        return LeftOut(self.ks, swept, self.y[there, p], self.noise[there, p], self.weights[there])


@dataclass(frozen=True)
class OutputsMethod:
    """How the heads of several outputs are fitted and judged: as one each, and by their mean."""

    methods: tuple[RegressionMethod, ...]
    slack: float = 0.0

    def fit(self, rows: OutputsLeftOut) -> OutputHeads:
        return OutputHeads(
            tuple(
                method.fit(rows.output(p)) if rows.present[:, p].any() else method.plain
                for p, method in enumerate(self.methods)
            )
        )

    def accuracy(self, rows: OutputsLeftOut, heads: OutputHeads) -> float:
        return self._mean(rows, heads, lambda method, part, head: method.accuracy(part, head))

    def describe(self, rows: OutputsLeftOut, heads: OutputHeads) -> str:
        rmse = self._mean(rows, heads, lambda method, part, head: part.rmse())
        crps = self._mean(rows, heads, lambda method, part, head: part.crps(head))
        plain = sum(method.kept_plain(head) for method, head in zip(self.methods, heads.heads, strict=True))
        kept = (
            f" (the plain predictive for {plain} of {len(self.methods)}: none was better calibrated)" if plain else ""
        )
        return f"RMSE {rmse:.2%} and CRPS {crps:.2%} of a standard deviation, averaged over outputs{kept}"

    def scores(self, rows: OutputsLeftOut, heads: OutputHeads) -> dict[str, float]:
        """Averages over outputs, each in its own units."""
        present = [p for p in range(len(self.methods)) if rows.present[:, p].any()]
        each = [self.methods[p].scores(rows.output(p), heads.heads[p]) for p in present]
        return {name: float(np.mean([scores[name] for scores in each])) for name in each[0]}

    def _mean(
        self, rows: OutputsLeftOut, heads: OutputHeads, score: Callable[[RegressionMethod, LeftOut, Head], float]
    ) -> float:
        """Over the outputs that were observed."""
        parts = [
            score(method, rows.output(p), head)
            for p, (method, head) in enumerate(zip(self.methods, heads.heads, strict=True))
            if rows.present[:, p].any()
        ]
        return float(np.mean(parts))


def joint_scores(y: np.ndarray, dist: Any, correlation: np.ndarray) -> np.ndarray:
    """Joint log densities (n,) of rows y (n, P), NaN where missing, with marginals `dist` (n, P).

    The marginals keep their shape and are joined by a Gaussian copula of that correlation (n, P, P): with normal
    marginals the joint distribution is the multivariate normal.
    """
    there = ~np.isnan(y)
    filled = np.where(there, y, dist.mean())
    z = np.where(there, np.clip(ndtri(dist.cdf(filled)), -_LARGEST_Z, _LARGEST_Z), 0.0)
    apart = ~np.eye(y.shape[1], dtype=bool)
    linked = there[:, :, None] & there[:, None, :] & apart
    correlation = np.where(linked, (1 - 1e-9) * correlation, ~apart)  # a missing output is linked to none
    factor = np.linalg.cholesky(correlation)
    whitened = np.linalg.solve(factor, z[..., None])[..., 0]
    log_det = 2 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    copula = 0.5 * (z**2 - whitened**2).sum(axis=1) - 0.5 * log_det
    return np.asarray(copula + np.where(there, dist.logpdf(filled), 0.0).sum(axis=1))
