"""Blocks, over which a function of two or three coordinates is averaged: cells around places, and polygons.

A block becomes points, evenly spread over it, with weights that add up to one. Where cells and polygons are given in
longitude and latitude, a point counts by the ground that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

_FINEST = 12  # times that the points of a polygon are put closer together at most
_GEOMETRIES = 'a polygon: (m, 2) corners, or an object with a __geo_interface__ of type "Polygon" or "MultiPolygon"'


class Block(NamedTuple):
    """Points (q, p) and their weights (q,), which add up to one."""

    points: np.ndarray
    weights: np.ndarray


def cell_offsets(size: np.ndarray, n_points: int) -> np.ndarray:
    """Points (q, p) of a cell with sides `size` (p,) around the origin: the middles of about n_points equal parts."""
    side = max(2, round(n_points ** (1 / len(size))))
    steps = (np.arange(side) + 0.5) / side - 0.5
    grid = np.meshgrid(*(steps * length for length in size), indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1)


def polygon_block(rings: Sequence[np.ndarray], n_points: int) -> Block:
    """At least n_points points inside of rings (m, 2), of which inner ones are holes."""
    corners = np.concatenate(rings)
    low, high = corners.min(axis=0), corners.max(axis=0)
    area = float(np.prod(high - low))
    if not area > 0:
        raise ValueError("a polygon has no area: its corners lie on a line.")
    step = np.sqrt(area / n_points)
    for _ in range(_FINEST):
        counts = np.maximum(np.ceil((high - low) / step), 1).astype(int)
        axes = [low[e] + (np.arange(counts[e]) + 0.5) / counts[e] * (high - low)[e] for e in (0, 1)]
        points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        points = points[inside(points, rings)]
        if len(points) >= n_points:
            return Block(points, np.full(len(points), 1 / len(points)))
        step /= np.sqrt(min(max(1.3 * n_points / max(len(points), 1), 1.5), 16))
    raise ValueError("a polygon is so thin that no points inside of it were found: give it some width.")


def inside(points: np.ndarray, rings: Sequence[np.ndarray]) -> np.ndarray:
    """Whether points (q, 2) are inside of an odd number of rings (m, 2): the even-odd rule."""
    found = np.zeros(len(points), dtype=bool)
    x, y = points.T
    for ring in rings:
        for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            crosses = (y0 > y) != (y1 > y)
            if crosses.any():
                found[crosses] ^= x[crosses] < x0 + (y[crosses] - y0) * (x1 - x0) / (y1 - y0)
    return found


def polygons_of(given: Any) -> tuple[list[list[np.ndarray]], bool]:
    """The rings of each polygon, and whether several were given: a polygon or a list of them."""
    if isinstance(given, str | bytes):
        raise ValueError(f"blocks are {given!r}: expected {_GEOMETRIES}, or a list of them.")
    if hasattr(given, "__geo_interface__") or _is_ring(given):
        return [_rings(given)], False
    if not isinstance(given, Iterable):
        raise ValueError(f"blocks are {given!r}: expected {_GEOMETRIES}, or a list of them.")
    found = [_rings(one) for one in given]
    if not found:
        raise ValueError("there are no blocks: expected at least one polygon.")
    return found, True


def _is_ring(given: Any) -> bool:
    try:
        corners = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return corners.ndim == 2 and corners.shape[1] == 2


def _rings(given: Any) -> list[np.ndarray]:
    """Rings (m, 2) of one polygon, checked."""
    if hasattr(given, "__geo_interface__"):
        geometry = given.__geo_interface__
        kind, parts = geometry.get("type"), geometry.get("coordinates", [])
        if kind not in ("Polygon", "MultiPolygon"):
            raise ValueError(f"a block is a {kind!r}: expected {_GEOMETRIES}.")
        rings = list(parts) if kind == "Polygon" else [ring for part in parts for ring in part]
    elif _is_ring(given):
        rings = [given]
    else:
        raise ValueError(f"a block is {given!r}: expected {_GEOMETRIES}.")
    found = [np.asarray(ring, dtype=np.float64)[:, :2] for ring in rings]
    for ring in found:
        if len(ring) < 3 or not np.isfinite(ring).all():
            raise ValueError(f"a polygon has a ring of {len(ring)} corners: at least three are expected, all finite.")
    return found
