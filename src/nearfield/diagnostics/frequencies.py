"""How often counts are expected to be seen, and how often they are: the rootogram (Kleiber and Zeileis, 2016)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfield.diagnostics.predicted import Predicted

_MOST_BINS = 25


class Rootogram(NamedTuple):
    """Numbers of rows with counts from low to high, ends included: observed and expected, (bins,) each."""

    low: np.ndarray
    high: np.ndarray
    observed: np.ndarray
    expected: np.ndarray


def rootogram(rows: Predicted, most_bins: int = _MOST_BINS) -> Rootogram:
    """Observed and expected numbers of rows, weights counted. Large counts are joined so that the rest is one bin."""
    if not rows.counts:
        raise ValueError("a rootogram is that of counts: fit a GPCountRegressor.")
    top = float(np.quantile(rows.y, 0.99))
    if top < most_bins:
        starts = np.arange(0, int(top) + 2, dtype=np.float64)
    else:
        starts = np.unique(np.round(np.linspace(0, top, most_bins)))
    up_to = np.stack([rows.dist.cdf(np.full(len(rows), start - 1)) for start in starts[1:]])  # P(Y < start)
    below = np.concatenate([np.zeros((1, len(rows))), up_to, np.ones((1, len(rows)))])
    expected = np.diff(below @ rows.weights)
    observed = np.bincount(np.searchsorted(starts, rows.y, side="right") - 1, rows.weights, len(starts))
    return Rootogram(starts, np.append(starts[1:] - 1, max(rows.y.max(), starts[-1])), observed, expected)
