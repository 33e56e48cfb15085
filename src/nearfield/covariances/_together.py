"""Latent functions given all rows at once, where one factorisation serves all of them."""

from __future__ import annotations

import math

import numpy as np

from nearfield.conditional.whole import Given, Whole
from nearfield.covariances._base import Covariance, CovarianceSlopes, KernelWeights, summed
from nearfield.families import Parameters


class Together:
    """Latent functions less their means, given all rows at once: see `conditional/whole.py`.

    parts: what the latent functions, or each of them, is factorised with; in the order of the latent functions.
    """

    def __init__(self, own: Covariance, values: Parameters, parts: list[Whole]) -> None:
        self.own, self.values = own, values
        self.scale2, self.parts = own.scale2(values), parts
        self.jittered = sum(part.jittered for part in parts)
        self.quad = np.concatenate([part.quad for part in parts]) / self.scale2
        ends = np.cumsum([0, *(part.latents for part in parts)]).tolist()
        self._own = [slice(*ends[i : i + 2]) for i in range(len(parts))]

    def left_out(self, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and quad (n, C) at every row, left out alone or with its group (n,)."""
        return self._scaled([part.left_out(groups) for part in self.parts])

    def predict(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and quad (b, C) at new rows (b, d)."""
        points = self.own.coordinates(self.values, query)
        return self._scaled([part.predict(points) for part in self.parts])

    def _scaled(self, found: list[Given]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean, quad = (np.concatenate([getattr(one, name) for one in found], 1) for name in ("mean", "quad"))
        variances = [np.broadcast_to(one.variance, one.mean.shape) for one in found]
        return mean, np.concatenate(variances, 1) * self.scale2, quad / self.scale2

    def kernel_weights(self, query: np.ndarray) -> list[KernelWeights]:
        """Slopes of the moments at new rows (b, d) by their correlations with all rows, one entry a kernel."""
        points, found = self.own.coordinates(self.values, query), []
        for lengths, part, own in zip(np.atleast_2d(self.values["log_lengths"]), self.parts, self._own, strict=True):
            alpha, beta = part.weights(points)
            scale2 = self.scale2[own if len(self.scale2) > 1 else slice(None)]
            found.append(KernelWeights(lengths, own, alpha[None], -2 * beta * scale2[:, None]))
        return found

    def log_density(self) -> float:
        """Of all targets jointly; of one latent function."""
        (part,), n = self.parts, len(self.parts[0])
        return -0.5 * float(self.quad[0] + part.log_det[0] + n * math.log(2 * math.pi * self.scale2[0]))

    def slopes(
        self,
        by_mean: np.ndarray,
        by_variance: np.ndarray,
        variance: np.ndarray,
        by_density: float,
        groups: np.ndarray | None,
    ) -> CovarianceSlopes:
        """What slopes by mean and variance (n, C) of rows left out become, and that by the log density."""
        by_unit = by_variance * self.scale2
        found = []
        for part, own in zip(self.parts, self._own, strict=True):
            apart = by_unit[:, own] if len(part.log_det) == part.latents else by_unit[:, own].sum(1, keepdims=True)
            by_log_det = np.full(len(part.log_det), -0.5 * by_density)
            by_quad = np.full(part.latents, -0.5 * by_density) / self.scale2[own]
            found.append(part.slopes(by_mean[:, own], apart, by_log_det, by_quad, groups))
        by_scale = summed(2 * (by_variance * variance).sum(axis=0), len(self.scale2))
        if by_density:
            by_scale = by_scale + by_density * (self.quad - len(self.parts[0]))
        lengths = [by.log_lengths for by in found]
        stacked = np.stack(lengths) if self.values["log_lengths"].ndim == 2 else lengths[0]
        parameters = {
            **self.own.length_slopes(self.values, stacked),
            "log_shape": np.sum([by.log_shape for by in found], axis=0),
            "log_scale": by_scale,
        }
        targets, noises = (np.concatenate([getattr(by, name) for by in found], -1) for name in ("targets", "noises"))
        return CovarianceSlopes(parameters, targets, noises)
