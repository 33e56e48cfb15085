"""Averages over blocks: cells around places, and polygons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.blocks import Block, cell_offsets, polygon_block, polygons_of
from nearfield.coordinates import Chart
from nearfield.estimators._joint import JointRegression
from nearfield.validation import is_int

_MOST_POINTS = 2000


class BlockAverages(JointRegression):
    """For an estimator of one real target at places."""

    def predict_block(self, X: Any, size: Any = None, like: Any = None, n_points: int = 100) -> tuple[Any, Any]:
        """Predict averages of the noise-free function over blocks, jointly; block kriging.

        The points of a block are predicted jointly: nearby ones err together, so that the average of a small block is
        hardly better known than a point, and that of a large one much better. Noise of measurements is not in it.

        Parameters
        ----------
        X : array-like, data frame, polygon or list of polygons
            With `size`, rows (n, d) as `predict` takes them, each the middle of a block. Without, a polygon in the two
            coordinates, (m, 2) corners or an object with a `__geo_interface__` such as those of shapely, holes
            included; or a list of polygons.
        size : float or array-like, default=None
            Sides of a block, one for each coordinate or one for all, in the units of these: degrees of longitude and
            latitude, where points count by the ground that they stand for. Across the seam, write longitudes such as
            179 to 181.
        like : array-like or data frame of one row, default=None
            For polygons, where the model has other columns: one row, as `predict` takes it, whose other columns hold
            for all blocks.
        n_points : int, default=100
            Points of a block, about so many.

        Returns
        -------
        mean : ndarray of shape (n,), or float
            Mean of the average over each block; a number for a single polygon.
        std : ndarray of shape (n,), or float
            Its standard deviation.
        """
        check_is_fitted(self)
        chart = self._chart
        if chart is None:
            raise ValueError("predict_block needs to know which columns are places: fit with coordinates=.")
        if self._several_outputs:
            raise ValueError(f"the model has {self.n_outputs_} outputs: averages are of one. Fit one model for each.")
        if not (is_int(n_points) and 1 <= n_points <= _MOST_POINTS):
            raise ValueError(f"n_points is {n_points!r}: expected a whole number from 1 to {_MOST_POINTS:,}.")
        if size is None:
            parts, several = polygons_of(X)
            blocks, n = self._polygons(chart, parts, like, int(n_points)), len(parts)
        else:
            if like is not None:
                raise ValueError("like is for polygons: with size=, the rows of X have all columns.")
            rows, several = self._inputs(X), True
            blocks, n = self._cells(chart, rows, size, int(n_points)), len(rows)
        mean, std = np.empty(n), np.empty(n)
        for i, (points, weights) in enumerate(blocks):
            each, between = self._between_rows(points, "latent")
            mean[i], std[i] = weights @ each, np.sqrt(max(weights @ between @ weights, 0.0))
        return (self._shaped(mean), self._shaped(std)) if several else (float(mean[0]), float(std[0]))

    n_outputs_: int

    def _cells(self, chart: Chart, rows: np.ndarray, size: Any, n_points: int) -> Iterator[Block]:
        """Features of the points of each cell."""
        columns = list(chart.columns)
        sides = np.asarray(size, dtype=np.float64)
        if sides.shape not in ((), (len(columns),)) or not (np.isfinite(sides) & (sides > 0)).all():
            raise ValueError(f"size is {size!r}: expected a number above 0, or {len(columns)} of them.")
        offsets = cell_offsets(np.broadcast_to(sides, (len(columns),)), n_points)
        for row in rows:
            yield self._on_the_ground(chart, row, row[columns] + offsets, np.full(len(offsets), 1 / len(offsets)))

    def _polygons(self, chart: Chart, parts: list[list[np.ndarray]], like: Any, n_points: int) -> Iterator[Block]:
        """Features of the points of each polygon."""
        columns = list(chart.columns)
        if len(columns) != 2:
            raise ValueError("polygons have two coordinates, and the model has three: use size=.")
        if like is None and chart.d > 2:
            raise ValueError("the model has other columns than coordinates: pass like=, a row that says what they are.")
        row = np.zeros(chart.d) if like is None else self._one_row(like)
        for rings in parts:
            yield self._on_the_ground(chart, row, *polygon_block(rings, n_points))

    def _one_row(self, like: Any) -> np.ndarray:
        found = self._inputs(like)
        if len(found) != 1:
            raise ValueError(f"like has {len(found)} rows: expected one.")
        return np.asarray(found[0])

    def _on_the_ground(self, chart: Chart, row: np.ndarray, points: np.ndarray, weights: np.ndarray) -> Block:
        """Rows of features like this one (d,) at the points (q, p) that exist, which count by their ground."""
        counted = weights * chart.ground(points)
        there = counted > 0
        rows = np.tile(row, (int(there.sum()), 1))
        rows[:, list(chart.columns)] = points[there]
        return Block(self._checked_places(rows), counted[there] / counted.sum())
