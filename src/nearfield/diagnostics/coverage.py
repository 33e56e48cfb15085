"""Whether predictive distributions hold: PIT histogram, coverage over nominal coverage, by slices, in the worst slab.

A row is P(Y < y) to P(Y <= y), below and up to what was observed. For numbers these are the same, the probability
integral transform, and uniform where predictions are calibrated. For counts the row is spread evenly between the two
(Czado, Gneiting and Held, 2009), so that the histogram is flat and coverage is nominal there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfield.diagnostics.chance import holm, independent, mean_p, share_p
from nearfield.diagnostics.predicted import LEVEL, Predicted
from nearfield.diagnostics.slices import Slice

LEVELS = (*(round(0.05 * i, 2) for i in range(1, 20)), 0.99)
"""Nominal coverages of the curve."""

_FEWEST = 30  # independent rows of a slice
_SLAB = 0.2  # share of the rows that a slab has at least
_BINS = 20  # of a direction, of which a slab has some in a row
_DIRECTIONS = 100


def up_to_edges(rows: Predicted, edges: np.ndarray) -> np.ndarray:
    """Share (b, e) of each row that lies below each edge."""
    spread = (rows.up_to - rows.below)[:, None]
    along = edges[None, :] - rows.below[:, None]
    inside = np.clip(along / np.where(spread > 0, spread, 1.0), 0.0, 1.0)
    whole = (along > 0) | (edges[None, :] >= 1.0)
    return np.where(spread > 0, inside, whole.astype(np.float64))


def pit_histogram(rows: Predicted, bins: int = 20) -> np.ndarray:
    """Share (bins,) of the rows in each of so many equal parts of 0 to 1: 1 / bins each, where they are calibrated."""
    below = up_to_edges(rows, np.linspace(0.0, 1.0, bins + 1))
    below[:, 0] = 0.0  # what is impossible counts in the first
    return np.diff(np.average(below, axis=0, weights=rows.weights))


def held(rows: Predicted, level: float) -> np.ndarray:
    """Share (b,) of each row inside the central interval of probability `level`: 0 or 1, of counts also between."""
    spread = rows.up_to - rows.below
    low, high = (1 - level) / 2, (1 + level) / 2
    overlap = np.clip(np.minimum(rows.up_to, high) - np.maximum(rows.below, low), 0.0, None)
    single = (rows.up_to >= low) & (rows.below <= high)
    return np.where(spread > 0, overlap / np.where(spread > 0, spread, 1.0), single.astype(np.float64))


def coverage(rows: Predicted, levels: Sequence[float] = LEVELS) -> np.ndarray:
    """Share of the rows inside of their central intervals, for each nominal coverage."""
    return np.array([np.average(held(rows, level), weights=rows.weights) for level in levels])


def needed_factor(rows: Predicted, level: float = LEVEL) -> float:
    """How many times as wide 90 % intervals would have to be, to hold 90 % of the rows: of numbers alone."""
    lower, upper = rows.ends
    middle = (lower + upper) / 2
    needed = np.abs(rows.y - middle) / np.maximum((upper - lower) / 2, np.finfo(float).tiny)
    order = np.argsort(needed, kind="stable")
    share = np.cumsum(rows.weights[order]) / rows.weights.sum()
    return float(needed[order[min(int(np.searchsorted(share, level)), len(order) - 1)]])


def verdict(rows: Predicted) -> dict[str, Any]:
    """Two tests of the PIT: its mean, 1/2 unless predictions are biased, and its variance, 1/12 if widths are right."""
    u = rows.pit
    bias, _, bias_p = mean_p(u - 0.5, rows.weights, rows.units)
    spread = (u - 0.5) ** 2
    if rows.counts:  # variance of a uniform between below and up_to
        spread = spread + (rows.up_to - rows.below) ** 2 / 12
    wide, _, wide_p = mean_p(spread - 1 / 12, rows.weights, rows.units)
    return {"bias": bias, "bias_p": bias_p, "spread": 12 * wide, "spread_p": wide_p}


def by_slices(rows: Predicted, slices: Sequence[Slice], level: float = LEVEL) -> list[dict[str, Any]]:
    """Coverage of intervals in each slice of the rows, with p values for all slices together.

    p: against the level; apart: against the coverage of all rows.
    """
    inside = held(rows, level)
    whole = float(np.average(inside, weights=rows.weights))
    found: list[dict[str, Any]] = []
    for part in slices:
        weights, units = rows.weights[part.rows], None if rows.units is None else rows.units[part.rows]
        n = independent(weights, units)
        if n < _FEWEST:
            continue
        share = float(np.average(inside[part.rows], weights=weights))
        found.append(
            {
                "column": part.column, "slice": part.label, "rows": int(part.rows.sum()), "coverage": share,
                "p": share_p(share, level, n), "apart": share_p(share, whole, n), "independent": n,
            }
        )  # fmt: skip
    for key in ("p", "apart"):
        for entry, p in zip(found, holm([entry[key] for entry in found]), strict=True):
            entry[key] = p
    return found


@dataclass(frozen=True)
class Slab:
    """Rows between two bounds of a direction in standardised features (m,), found on half of them.

    coverage and rows are those of the other half, which did not choose it.
    """

    direction: np.ndarray
    low: float
    high: float
    coverage: float
    rows: int
    p: float  # against the level
    apart: float  # against the coverage of all rows


def worst_slab(rows: Predicted, features: np.ndarray, level: float = LEVEL, seed: int = 0) -> Slab | None:
    """The slab with the least coverage of those that have a fifth of the rows or more (Cauchois et al., 2021).

    features: (b, m). Directions are the columns and some at random; None for too few rows.
    """
    scale = features.std(axis=0)
    z = (features - features.mean(axis=0))[:, scale > 0] / scale[scale > 0]
    n, m = z.shape
    if n < 10 * _FEWEST or m == 0:
        return None
    rng = np.random.default_rng(seed)
    random = rng.standard_normal((_DIRECTIONS, m))
    directions = np.concatenate([np.eye(m)[: 2 * _DIRECTIONS], random / np.linalg.norm(random, axis=1, keepdims=True)])
    chooses = rng.permutation(n) < n // 2
    inside = held(rows, level)
    own, weights = inside[chooses], rows.weights[chooses]
    best = (np.inf, directions[0], 0.0, 0.0)
    for direction in directions:
        along = z[chooses] @ direction
        least, low, high = _lowest(along, own, weights)
        if least < best[0]:
            best = (least, direction, low, high)
    _, direction, low, high = best
    along = z[~chooses] @ direction
    part = (along >= low) & (along <= high)
    n_part = independent(rows.weights[~chooses][part], None if rows.units is None else rows.units[~chooses][part])
    if n_part < _FEWEST:
        return None
    share = float(np.average(inside[~chooses][part], weights=rows.weights[~chooses][part]))
    whole = np.zeros(features.shape[1])
    whole[scale > 0] = direction
    everywhere = float(np.average(inside, weights=rows.weights))
    tests = share_p(share, level, n_part), share_p(share, everywhere, n_part)
    return Slab(whole, low, high, share, int(part.sum()), *tests)


def _lowest(along: np.ndarray, inside: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """The least mean of `inside` over neighbouring bins with a share `_SLAB` of the rows or more, and its bounds."""
    order = np.argsort(along, kind="stable")
    values, n = along[order], len(order)
    starts = values[np.linspace(0, n, _BINS + 1).astype(np.int64)[:-1]]
    ends = np.append(np.unique(np.searchsorted(values, starts)), n)  # equal values stay together
    total = np.concatenate([[0.0], np.cumsum(weights[order])])[ends]
    hits = np.concatenate([[0.0], np.cumsum((weights * inside)[order])])[ends]
    first, last = np.triu_indices(len(ends), 1)
    size = total[last] - total[first]
    enough = size >= (_SLAB - 1e-9) * total[-1]
    mean = np.where(enough, (hits[last] - hits[first]) / np.maximum(size, np.finfo(float).tiny), np.inf)
    place = int(mean.argmin())
    low, high = values[ends[first[place]]], values[ends[last[place]] - 1]
    low = -np.inf if first[place] == 0 else float(low)
    return float(mean[place]), low, np.inf if ends[last[place]] == n else float(high)
