"""The semivariogram of a model: half of the mean squared difference between two observations so far apart.

    gamma(h) = noise variance + scale^2 (1 - rho(h)),   gamma(0) = 0

What geostatistics calls the nugget is the noise variance, and the sill is what gamma tends to: nugget + scale^2. Where
length scales are beyond the reach of the rows, only their beginning matters, and scale^2 is whatever goes with them:
gamma at lags within the rows is then all that they tell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.coordinates import Chart, ChartedScaling
from nearfield.kernels import profile
from nearfield.model import Model

FAR_SILL = 4.0
"""Prior variance over the variance of the target from which the sill is told to mean nothing."""

_DIRECTIONS = 180


def directions_of(direction: Any, chart: Chart) -> np.ndarray:
    """Unit vectors (m, p) in the coordinates, over which the semivariogram is averaged."""
    p = len(chart.rotation)
    if direction is None:
        return _all_around(p)
    vector = np.asarray(direction, dtype=np.float64)
    if vector.ndim == 0 and p == 2:
        vector = np.array([np.cos(np.radians(vector)), np.sin(np.radians(vector))])
    if vector.shape != (p,) or not np.isfinite(vector).all() or not vector.any():
        angle = "an angle in degrees, " if p == 2 else ""
        raise ValueError(f"direction is {direction!r}: expected None, {angle}or {p} numbers that are not all zero.")
    return np.asarray(vector[None] / np.linalg.norm(vector))


def _all_around(p: int) -> np.ndarray:
    """Unit vectors that point everywhere: even on the half circle, nearly so on the half sphere."""
    place = (np.arange(_DIRECTIONS) + 0.5) / _DIRECTIONS
    if p == 2:
        return np.column_stack([np.cos(np.pi * place), np.sin(np.pi * place)])
    golden, across = np.pi * (1 + np.sqrt(5)) * (np.arange(_DIRECTIONS) + 0.5), np.sqrt(1 - place**2)
    return np.column_stack([across * np.cos(golden), across * np.sin(golden), place])


def semivariogram(model: Model, inputs: ChartedScaling, lags: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """gamma (l,) at lags (l,) in the units of the coordinates, mean over directions (m, p), of a standardised target.

    Everything but the coordinates is the same at both places.
    """
    places = list(inputs.chart.places)
    lengths = model.search_lengths[places] * inputs.scale[places]
    rough = np.zeros(len(lags))
    for direction in directions:
        apart = inputs.chart.away(direction, lags) / lengths
        r2 = (apart**2).sum(axis=1)
        rough += 1 - profile(model.covariance.kernel, r2, model.parameters["log_shape"]).value
    gamma = model.noise[0] + model.scale2[0] * rough / len(directions)
    return np.asarray(np.where(lags > 0, gamma, 0.0))


def largest_lag(inputs: ChartedScaling, rows: np.ndarray) -> float:
    """The diagonal of the box around the coordinates of standardised rows (n, m), in their units."""
    turned = list(inputs.chart.turned)
    sides = np.ptp(rows[:, turned], axis=0) * inputs.scale[turned]
    return min(float(np.linalg.norm(sides)), inputs.chart.most_lag)
