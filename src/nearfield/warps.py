"""The input map: columns of numbers, each bent on its way to the kernel as left-out rows prefer.

A bent column is a convex mixture of three increasing functions of the standardised value z: z itself, the normal score
q of its rank and its uniform score u, both standardised. So a column of a skewed or crowded distribution can be spread
evenly, and one whose differences matter as they are stays. The mixture has two numbers a column, `bends` (w, 2): the
shares of z, q and u are the softmax of (0, bend, bend).

The scores are kept as a table of at most KNOTS points a column and are linear in between. Beyond the first and last
training value they go on with their mean slope over the training range, so that distances keep growing.

To the kernel the three are features that add up to one coordinate, each over a length scale of its own: that of the
column over the share. Features do not depend on what is learned (`Warps.features`); coordinates (`Warps.coordinates`),
in which neighbours are searched, do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

from nearfield._compiled import compiled
from nearfield._threads import in_threads

KNOTS = 256
_INNER = KNOTS - 2  # at training values; one more at each end leads on
_FEWEST_VALUES = 3  # of two values every increasing map says the same
_LEAST = 1e-12  # rank, where a row hardly counts
_RANKED = 2**17  # rows from which ranks are taken
_PORTION = 4096  # rows in one portion of work
TOGETHER = 32  # values of a column that are bent together


@dataclass(frozen=True, eq=False)
class Warps:
    """Which columns (w,) of d may bend, knots (w, m) in their standardised values, and q and u there (w, 2, m)."""

    d: int
    columns: np.ndarray
    knots: np.ndarray
    scores: np.ndarray

    @classmethod
    def none(cls, d: int) -> Warps:
        """The identity."""
        return cls(d, np.zeros(0, dtype=np.int64), np.zeros((0, KNOTS)), np.zeros((0, 2, KNOTS)))

    @classmethod
    def of(cls, inputs: Any, weights: np.ndarray, allowed: np.ndarray) -> Warps:
        """For standardised inputs (n, d) that count so much (n,); of the columns `allowed` (d,), those of numbers.

        A column of two values, such as a flag or a level of text, cannot be bent.
        """
        d = inputs.shape[1]
        if len(inputs) > _RANKED:
            some = np.unique(np.random.default_rng(0).integers(0, len(inputs), _RANKED))
            inputs, weights = inputs[some], weights[some]
        inputs = np.asarray(inputs)
        found = {}
        for e in np.flatnonzero(allowed).tolist():
            table = _table(inputs[:, e], weights)
            if table is not None:
                found[e] = table
        if not found:
            return cls.none(d)
        knots, scores = (np.stack(part) for part in zip(*found.values(), strict=True))
        return cls(d, np.array(list(found), dtype=np.int64), knots, scores)

    def without(self, gone: np.ndarray, left: np.ndarray) -> Warps:
        """The same maps without knots at values of the rows `gone` (m, d) that none of those `left` (n, d) has.

        Between the knots beside them they become linear; without any such knot, these warps themselves.
        """
        knots, scores = self.knots.copy(), self.scores.copy()
        for i, e in enumerate(self.columns.tolist()):
            hit = np.flatnonzero(np.isin(knots[i], gone[:, e]))
            hit = hit[~np.isin(knots[i, hit], left[:, e])]
            if hit.size:
                knots[i], scores[i] = _without_knots(knots[i], scores[i], hit)
        return self if np.array_equal(knots, self.knots) else Warps(self.d, self.columns, knots, scores)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def owners(self) -> np.ndarray:
        """The columns (2 w,) of the features behind the first d."""
        return np.concatenate([self.columns, self.columns])

    def features(self, inputs: np.ndarray) -> np.ndarray:
        """Standardised inputs (n, d) and, behind them, the scores q (w) and u (w) of those that bend."""
        if not len(self):
            return inputs
        found = np.empty((len(inputs), self.d + 2 * len(self)))
        found[:, : self.d] = inputs
        unit = np.zeros((len(self), 3, 2))  # (w, function, place)
        unit[:, 1, 0] = unit[:, 2, 1] = 1
        self._write(inputs, unit, found, self.d + np.arange(2 * len(self)).reshape(2, -1).T.copy())
        return found

    def coordinates(self, inputs: np.ndarray, bends: np.ndarray) -> np.ndarray:
        """Inputs (n, d) with the columns bent; the inputs themselves where none is."""
        if not len(self):
            return inputs
        found = np.array(inputs, dtype=np.float64, order="C")
        self._write(inputs, np.exp(log_shares(bends))[:, :, None].copy(), found, self.columns[:, None].copy())
        return found

    def slopes(self, inputs: np.ndarray, bends: np.ndarray) -> np.ndarray:
        """Slopes (n, d) of the coordinates by the inputs (n, d); at a knot that of the piece behind it."""
        found, shares = np.ones(inputs.shape), np.exp(log_shares(bends))
        for i, e in enumerate(self.columns.tolist()):
            rates = np.diff(self.scores[i]) / np.diff(self.knots[i])  # (2, m - 1)
            piece = np.searchsorted(self.knots[i], inputs[:, e], side="right") - 1
            piece = np.clip(piece, 0, rates.shape[1] - 1)  # the ends lead on
            found[:, e] = shares[i, 0] + shares[i, 1] * rates[0, piece] + shares[i, 2] * rates[1, piece]
        return found

    def _write(self, inputs: np.ndarray, factors: np.ndarray, out: np.ndarray, places: np.ndarray) -> None:
        """out[:, places[i, p]] = sum over z, q and u of column i times factors[i, :, p]."""

        def part(start: int, stop: int) -> None:
            _bend(inputs, self.columns, self.knots, self.scores, factors, out, places, start, stop)

        in_threads(part, len(inputs), _PORTION)


def log_shares(bends: np.ndarray) -> np.ndarray:
    """Logarithms (w, 3) of the shares of z, q and u."""
    whole = np.zeros((len(bends), 3))
    whole[:, 1:] = bends
    whole -= whole.max(axis=1, keepdims=True)
    return whole - np.log(np.exp(whole).sum(axis=1, keepdims=True))


def feature_lengths(warps: Warps, log_lengths: np.ndarray, bends: np.ndarray) -> np.ndarray:
    """Log length scales (.., d + 2 w) of features from those of columns (.., d)."""
    shares = log_shares(bends)
    found = np.concatenate([log_lengths, log_lengths[..., warps.owners]], axis=-1)
    found[..., warps.columns] -= shares[:, 0]
    found[..., warps.d :] -= shares[:, 1:].T.ravel()
    return found


def bend_slopes(warps: Warps, bends: np.ndarray, by: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes by the log length scales of columns (.., d) and by bends (w, 2) from those of features (.., d + 2 w)."""
    w, d = len(warps), warps.d
    by_lengths = by[..., :d].copy()
    by_lengths[..., warps.columns] += by[..., d : d + w] + by[..., d + w :]
    total = by.reshape(-1, by.shape[-1]).sum(axis=0)
    scores = total[d:].reshape(2, w).T
    whole = total[warps.columns] + scores.sum(axis=1)
    return by_lengths, np.exp(log_shares(bends))[:, 1:] * whole[:, None] - scores


def _table(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Knots (m,) and scores (2, m) of a column, from values (n,) of it; None where it cannot be bent."""
    values, place = np.unique(column, return_inverse=True)
    if len(values) < _FEWEST_VALUES:
        return None
    counts = np.bincount(place, weights)
    share = counts / counts.sum()
    rank = np.clip(np.cumsum(share) - share / 2, _LEAST, 1 - _LEAST)  # the middle of those that are equal
    both = np.stack([scipy.special.ndtri(rank), rank])
    mean = (both * share).sum(axis=1, keepdims=True)
    both = (both - mean) / np.sqrt(((both - mean) ** 2 * share).sum(axis=1, keepdims=True))
    if len(values) > _INNER:
        which = _spread(rank, _INNER)
        values, both = values[which], both[:, which]
    return _led_on(values, both)


def _led_on(values: np.ndarray, both: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Knots (KNOTS,) and scores (2, KNOTS) of values (m,) with scores (2, m); beyond them, the mean slope leads on."""
    slope = (both[:, -1] - both[:, 0]) / (values[-1] - values[0])
    ends = values[0] - 1.0, values[-1] + np.arange(1.0, KNOTS - len(values))  # the rest of the table leads on
    knots = np.concatenate([[ends[0]], values, ends[1]])
    before, after = (both[:, i, None] + slope[:, None] * (end - values[i]) for i, end in ((0, ends[0]), (-1, ends[1])))
    return knots, np.concatenate([before, both, after], axis=1)


def _without_knots(knots: np.ndarray, scores: np.ndarray, hit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A table of knots (KNOTS,) and scores (2, KNOTS) without those at the places `hit`."""
    count = next(m for m in range(1, KNOTS) if np.array_equal(knots[m + 1 :], knots[m] + np.arange(1.0, KNOTS - m)))
    inner = np.setdiff1d(np.arange(1, count + 1), hit)
    if len(inner) >= 2:
        return _led_on(knots[inner], scores[:, inner])
    values = np.array([-1.0, 1.0])
    return _led_on(values, np.stack([np.interp(values, knots, own) for own in scores]))


def _spread(rank: np.ndarray, most: int) -> np.ndarray:
    """Places, `most` at most, in ascending ranks: evenly spread in them and in their normal scores, with both ends."""
    half = most // 2
    scores = scipy.special.ndtri(rank)
    even = np.searchsorted(rank, np.linspace(rank[0], rank[-1], half))
    tails = np.searchsorted(scores, np.linspace(scores[0], scores[-1], most - half))
    return np.unique(np.minimum(np.concatenate([even, tails]), len(rank) - 1))


@compiled(error_model="numpy")
def _find_knots(z, i, knots, low):  # type: ignore[no-untyped-def]
    """Fill low (c,) with the last knot of the i-th column at or before each of the values z (c,), one behind it.

    The ends lead on. All values go down together, which vectorises: one by one each step would wait for the one before.
    """
    size = knots.shape[1] - 1
    low[:] = 0
    while size > 1:
        half = size // 2
        for c in range(z.size):
            at = low[c]
            low[c] = at + half if knots[i, at + half] <= z[c] else at
        size -= half


@compiled(error_model="numpy")
def _bend(inputs, columns, knots, scores, factors, out, places, start, stop):  # type: ignore[no-untyped-def]
    """Lines start .. stop of what `Warps._write` says."""
    values, lows = np.empty(TOGETHER), np.empty(TOGETHER, dtype=np.int64)
    for i in range(len(columns)):
        for first in range(start, stop, TOGETHER):
            count = min(TOGETHER, stop - first)
            for c in range(count):
                values[c] = inputs[first + c, columns[i]]
            _find_knots(values[:count], i, knots, lows)
            for c in range(count):
                z, low = values[c], lows[c]
                along = (z - knots[i, low]) / (knots[i, low + 1] - knots[i, low])
                q = scores[i, 0, low] + along * (scores[i, 0, low + 1] - scores[i, 0, low])
                u = scores[i, 1, low] + along * (scores[i, 1, low + 1] - scores[i, 1, low])
                for p in range(places.shape[1]):
                    out[first + c, places[i, p]] = factors[i, 0, p] * z + factors[i, 1, p] * q + factors[i, 2, p] * u


@dataclass(frozen=True, eq=False)
class Metric:
    """Where neighbours are searched: columns bent, if bent (d,) is not -1 but the number of a warp, over lengths (d,).

    knots (w, m), scores (w, 2, m) and shares (w, 3) are those of the warps.
    """

    lengths: np.ndarray
    bent: np.ndarray
    knots: np.ndarray
    scores: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, lengths: np.ndarray, warps: Warps | None = None, bends: np.ndarray | None = None) -> Metric:
        """Of columns over their length scales (d,), bent by warps, if there are some, as far as bends (w, 2) say."""
        d = len(lengths)
        warps = Warps.none(d) if warps is None else warps
        bent = np.full(d, -1)
        bent[warps.columns] = np.arange(len(warps))
        shares = np.exp(log_shares(bends)) if len(warps) and bends is not None else np.zeros((0, 3))
        return cls(np.ascontiguousarray(lengths, dtype=np.float64), bent, warps.knots, warps.scores, shares)

    def apply(self, inputs: np.ndarray) -> np.ndarray:
        """Inputs (n, d) where they are searched."""
        inputs = np.ascontiguousarray(inputs, dtype=np.float64)
        found = np.empty(inputs.shape)
        in_threads(lambda start, stop: _place(inputs, self.packed, found, start, stop), len(inputs), _PORTION)
        return found

    @property
    def packed(self) -> tuple[np.ndarray, ...]:
        """What compiled functions take."""
        return self.lengths, self.bent, self.knots, self.scores, self.shares


@compiled(error_model="numpy")
def place_values(z, j, metric, lows, out):  # type: ignore[no-untyped-def]
    """Fill out (c,) with where a metric puts the values z (c,) of column j. lows: room for c numbers."""
    lengths, bent, knots, scores, shares = metric
    i = bent[j]
    if i < 0:
        for c in range(z.size):
            out[c] = z[c] / lengths[j]
        return
    _find_knots(z, i, knots, lows)
    for c in range(z.size):
        low = lows[c]
        along = (z[c] - knots[i, low]) / (knots[i, low + 1] - knots[i, low])
        q = scores[i, 0, low] + along * (scores[i, 0, low + 1] - scores[i, 0, low])
        u = scores[i, 1, low] + along * (scores[i, 1, low + 1] - scores[i, 1, low])
        out[c] = (shares[i, 0] * z[c] + shares[i, 1] * q + shares[i, 2] * u) / lengths[j]


@compiled(error_model="numpy")
def _place(inputs, metric, out, start, stop):  # type: ignore[no-untyped-def]
    values, found, lows = np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER, dtype=np.int64)
    for first in range(start, stop, TOGETHER):
        count = min(TOGETHER, stop - first)
        for j in range(inputs.shape[1]):
            for c in range(count):
                values[c] = inputs[first + c, j]
            place_values(values[:count], j, metric, lows, found)
            for c in range(count):
                out[first + c, j] = found[c]
