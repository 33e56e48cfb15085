"""The head of several outputs: a head of a regression for each, and how the outputs of a row go together.

k is the same for all outputs of a row. Each output has error bars of its own, fitted on the left-out rows where it was
observed. What links the outputs is the model's covariance, of which the correlations are kept (`joint_scores`), made
smaller by a common factor if that suits the left-out rows better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from scipy.special import ndtri

from nearfield.heads.regression import KEPT_PLAIN, LeftOutNumbers, Predicted, RegressionCalibrator, RegressionHead
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require

_COUPLINGS = tuple((np.arange(11) / 10).tolist())
_TRIAL_ROWS = 500  # left-out rows that tell numbers of neighbours apart
_COUPLED_ROWS = 1000  # left-out rows that tell how far correlations between outputs can be trusted
_LARGEST_Z = 37.0  # beyond it the normal distribution function is 0 or 1


@dataclass(frozen=True)
class OutputHeads:
    """A head for each of P outputs, and the share of the model's correlations between them that is believed."""

    heads: tuple[RegressionHead, ...]
    coupling: float = 1.0

    def predicted(self, moments: Moments, noise: np.ndarray) -> Predicted:
        """Predictions (b, P) from the moments (b, P) of rows and their noise variances, (P,), (1,) or (b, P)."""
        noises = np.broadcast_to(noise, moments.mean.shape)
        parts = [head.of_latent(moments.latent(p), noises[:, p]) for p, head in enumerate(self.heads)]
        return Predicted(*(np.stack(columns, axis=1) for columns in zip(*parts, strict=True)))

    def correlation(self, covariance: np.ndarray) -> np.ndarray:
        """Correlations (b, P, P) between the outputs, from the model's covariances (b, P, P)."""
        deviation = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1e-300))
        found = np.clip(covariance / deviation[:, :, None] / deviation[:, None, :], -1.0, 1.0)
        return np.where(np.eye(len(self.heads), dtype=bool), 1.0, self.coupling * found)

    def coupled(self, rows: LeftOutOutputs, covariance: np.ndarray) -> OutputHeads:
        """The same with the coupling that suits the left-out rows, of a single k, with covariances (b, P, P) best."""
        predicted = self.predicted(rows.moments, rows.noise)
        dist = scipy.stats.t(self.df, predicted.loc, predicted.scale)
        y = np.where(rows.present, rows.y, np.nan)
        options = [replace(self, coupling=share) for share in _COUPLINGS]
        scores = [np.average(joint_scores(y, dist, h.correlation(covariance)), weights=rows.weights) for h in options]
        return options[int(np.argmax(scores))]

    def distribution(self, loc: np.ndarray, scale: np.ndarray) -> Any:
        """A frozen scipy.stats distribution over rows and outputs (b, P)."""
        return scipy.stats.norm(loc, scale) if np.isinf(self.df).all() else scipy.stats.t(self.df, loc, scale)

    @property
    def of_function(self) -> OutputHeads:
        """The heads whose distributions those of the latent functions are."""
        return replace(self, heads=tuple(head.of_function for head in self.heads))

    @property
    def unit_std(self) -> np.ndarray:
        """Standard deviations (P,) of predictions of scale one."""
        return np.array([head.unit_std for head in self.heads])

    def packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The scalars of all outputs, for a file; no arrays."""
        return {"outputs": [head.packed()[0] for head in self.heads], "coupling": self.coupling}, {}

    @classmethod
    def unpacked(cls, stored: Mapping[str, Any], outputs: int) -> OutputHeads:
        """The heads that `packed` took apart, or a ModelFileError."""
        heads, coupling = require(stored, "outputs", list), float(require(stored, "coupling", float))
        if len(heads) != outputs or not all(isinstance(one, dict) for one in heads):
            raise ModelFileError(f"it has heads for {len(heads)} outputs; expected {outputs}")
        if not 0 <= coupling <= 1:
            raise ModelFileError(f"its coupling of outputs is {coupling}; expected 0 to 1")
        return cls(tuple(RegressionHead.unpacked(one) for one in heads), coupling)

    @property
    def df(self) -> np.ndarray:
        """Degrees of freedom (P,) of the predictive distributions."""
        return np.array([head.df for head in self.heads])


@dataclass(frozen=True)
class LeftOutOutputs:
    """Left-out rows: moments for several k, targets, noise variances and what is there (b, P), weights (b,)."""

    ks: np.ndarray
    moments: Moments
    y: np.ndarray
    noise: np.ndarray
    present: np.ndarray
    weights: np.ndarray

    def at(self, k: int) -> LeftOutOutputs:
        """The same rows with the moments of a single k."""
        return replace(self, ks=np.array([k]), moments=self.moments.at(int(np.searchsorted(self.ks, k))))

    def thinned(self, step: int) -> LeftOutOutputs:
        """Every step-th row, of a single k."""
        which = np.arange(0, len(self.weights), step)
        arrays = {name: getattr(self, name)[which] for name in ("y", "noise", "present", "weights")}
        return replace(self, moments=self.moments.rows(which), **arrays)

    def output(self, p: int) -> LeftOutNumbers:
        """The rows, of a single k, in which output p was observed."""
        there = self.present[:, p]
        moments = self.moments.latent(p).rows(there)
        return LeftOutNumbers(self.ks, moments, self.y[there, p], self.noise[there, p], self.weights[there])


@dataclass(frozen=True)
class OutputsCalibrator:
    """How the heads of several outputs are fitted and judged: as one each, and by their mean."""

    each: tuple[RegressionCalibrator, ...]
    slack: float = 0.0

    def fit(self, rows: LeftOutOutputs) -> OutputHeads:
        """Heads of some of the rows: each output has its own to fit, for every k."""
        return self._whole(rows.thinned(self._step(rows)))

    def _step(self, rows: LeftOutOutputs) -> int:
        return max(1, min(len(self.each), round(len(rows.weights) / _TRIAL_ROWS)))

    def _whole(self, rows: LeftOutOutputs) -> OutputHeads:
        """Heads of all of the rows."""
        return OutputHeads(
            tuple(own.fit(rows.output(p)) if rows.present[:, p].any() else own.plain for p, own in enumerate(self.each))
        )

    def accuracy(self, rows: LeftOutOutputs, heads: OutputHeads) -> float:
        return self._mean(rows, heads, lambda own, part, head: own.accuracy(part, head))

    def beyond_noise(self, rows: Any, head: Any) -> None:
        """Nobody asks for it."""

    def describe(self, rows: LeftOutOutputs, heads: OutputHeads) -> str:
        rmse = self._mean(rows, heads, lambda own, part, head: part.rmse())
        crps = self._mean(rows, heads, lambda own, part, head: part.crps(head))
        return f"RMSE {rmse:.2%} and CRPS {crps:.2%} of a standard deviation, averaged over outputs"

    def remark(self, heads: OutputHeads) -> str:
        plain = sum(own.kept_plain(head) for own, head in zip(self.each, heads.heads, strict=True))
        return f"for {plain} of {len(self.each)} targets {KEPT_PLAIN}" if plain else ""

    def scores(self, rows: LeftOutOutputs, heads: OutputHeads) -> dict[str, float]:
        """Averages over outputs, each in its own units."""
        present = [p for p in range(len(self.each)) if rows.present[:, p].any()]
        scored = [self.each[p].scores(rows.output(p), heads.heads[p]) for p in present]
        return {name: float(np.mean([scores[name] for scores in scored])) for name in scored[0]}

    def finish(self, rows: LeftOutOutputs, heads: OutputHeads) -> OutputHeads:
        """Heads of all of the rows, and the coupling that suits some of them best."""
        heads = heads if self._step(rows) == 1 else self._whole(rows)
        heads = replace(
            heads,
            heads=tuple(
                own.finish(rows.output(p), head) if rows.present[:, p].any() else head
                for p, (own, head) in enumerate(zip(self.each, heads.heads, strict=True))
            ),
        )
        few = rows.thinned(-(-len(rows.weights) // _COUPLED_ROWS))
        if few.moments.covariance is None or not self.each[0].calibrated:
            return heads
        return heads.coupled(few, few.moments.covariance + few.noise[:, :, None] * np.eye(len(self.each)))

    def covering(self, rows: LeftOutOutputs, heads: OutputHeads, units: np.ndarray) -> OutputHeads:
        """Each output wider, as few units ask for."""
        each = zip(self.each, heads.heads, strict=True)
        found = (
            own.covering(rows.output(p), head, units[rows.present[:, p]]) if rows.present[:, p].any() else head
            for p, (own, head) in enumerate(each)
        )
        return replace(heads, heads=tuple(found))

    def _mean(
        self,
        rows: LeftOutOutputs,
        heads: OutputHeads,
        score: Callable[[RegressionCalibrator, LeftOutNumbers, RegressionHead], float],
    ) -> float:
        """Over the outputs that were observed."""
        parts = [
            score(own, rows.output(p), head)
            for p, (own, head) in enumerate(zip(self.each, heads.heads, strict=True))
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
