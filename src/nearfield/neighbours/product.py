"""Candidates from matrix products in float32, with a rigorous bound on what float32 may have missed.

|x - z|^2 = |x|^2 + 2 s with s = |z|^2 / 2 - x.z, summed by d fused multiply-adds in float32; the points of the smallest
s are the candidates. With u = 2^-24 and norms taken after centring, rounding the coordinates changes |x - z|^2 by at
most (2u + u^2)(|x| + |z|)^2, rounding |z|^2 / 2 changes it by u |z|^2, and the sum errs by d u (|z|^2 + 2 |x| |z|). So

    | float32 result - |x - z|^2 |  <=  (d + 8) u (|x| + |z|)^2

where 8 instead of 3 pays for the terms of second order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfield._compiled import compiled
from nearfield._threads import in_threads
from nearfield.neighbours._panels import PANEL32, QUERIES, WIDE32, listed_products, lowest_bit, products
from nearfield.neighbours._select import all_hidden, not_hidden

UNIT = 2.0**-24  # rounding unit of float32
UNDERFLOW = 1e-30  # far above what float32 loses below its smallest normal number, when the largest norm is about 1
FAR = 1e6  # queries this many times farther from the centre than any row: float32 cannot rank their neighbours

_SAMPLE = 65  # rows that tell which columns have a value that most rows share
_SPARSE = 0.4  # share of the coordinates other than zero up to which each query visits its own columns only
_TILE_NUMBERS, _WIDE_TILE_NUMBERS = 2**15, 2**13  # coordinates of points that a chunk of queries meets in the cache
_TILE_POINTS = 512  # at most, so that the sums of six queries stay in the fastest cache
_CHUNK = 40 * QUERIES  # queries that share one pass over the points
_KEPT_NUMBERS = 2**18  # keys kept for the queries of a chunk, 2 MB
_EVERY = 8  # a first look at every so many-th tile
_RANKED = 128  # up to so many keys are sorted by counting the smaller ones of each, which vectorises
_ROOM = 3  # times `count`: keys collected before the best `count` of them are sorted out


class ProductCandidates:
    """The points (m, d) of the box low, high (2, d); centred, scaled by a power of two to at most 1, in panels.

    A column in which most points share a value is centred there, so that most of its coordinates are zero, as those of
    indicators are; the others at their mean. The bound holds for any centre.
    """

    def __init__(self, points: NDArray[np.float64], box: NDArray[np.float64]) -> None:
        m, d = points.shape
        self._centre, filled = _centre(points, box)
        largest = float(np.abs(box - self._centre).max())
        self._scale = 2.0 ** min(-int(np.frexp(largest)[1]), 1000)  # 2^1000: still finite for denormal rows
        self._search = _search_sparse if filled <= _SPARSE else _search_dense
        width = WIDE32 if filled <= _SPARSE else PANEL32
        self._panels = np.empty((-(-m // width), d, width), dtype=np.float32)
        self._half = np.empty(len(self._panels) * width, dtype=np.float32)  # |z|^2 / 2

        def pack(start: int, stop: int) -> None:
            part = slice(start * width, stop * width)
            _pack_points(points[part], self._centre, self._scale, self._panels[start:stop], self._half[part])

        in_threads(pack, len(self._panels), smallest=4096 // width)
        self._radius = float(np.sqrt(2.0 * self._half[:m].max())) * (1.0 + 4.0 * UNIT)

    def nearest(
        self, queries: NDArray[np.float64], count: int, hidden: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Candidates (b, count), count <= m, and a bound (b,) below which no other point lies; <= 0 if unknown.

        hidden (b, 2): the points from one number on, up to another one, are none. At least `count` others are there.
        """
        b = len(queries)
        hidden = np.zeros((b, 2), dtype=np.int64) if hidden is None else hidden
        candidates, norm, largest = np.empty((b, count), dtype=np.int64), np.empty(b), np.empty(b)

        def search(start: int, stop: int) -> None:
            part = slice(start, stop)
            centred = np.empty((stop - start, queries.shape[1]), dtype=np.float32)
            _centred(queries[part], self._centre, self._scale, centred, norm[part])
            self._search(centred, self._panels, self._half, hidden[part], candidates[part], largest[part], True)
            short = start + np.flatnonzero(candidates[part, 0] < 0)
            if short.size:
                again, sums = candidates[short], largest[short]
                self._search(centred[short - start], self._panels, self._half, hidden[short], again, sums, False)
                candidates[short], largest[short] = again, sums

        in_threads(search, b, smallest=2 * QUERIES, largest=_chunk(count))
        reach = self._reach(norm, largest)
        reach[norm > FAR] = -np.inf
        return candidates, reach

    def _reach(self, norm: NDArray[np.float64], largest: NDArray[np.float64]) -> NDArray[np.float64]:
        """A lower bound (b,) for the squared distances of the points whose sums are no smaller than the largest (b,).

        A point z nearer than `last` has |z| <= |q| + sqrt(last), so one far outlier does not spoil the bound of all.
        """
        d = self._panels.shape[1]
        norm = np.minimum(norm, FAR)  # what is farther has no bound
        last = norm**2 + 2.0 * largest
        farthest = np.minimum(self._radius, norm + np.sqrt(np.maximum(last, 0.0)))
        error = (d + 8) * UNIT * (norm + farthest) ** 2 + UNDERFLOW
        # In two steps, since the square of the scale may overflow; denormal results are not to be trusted.
        return (last - error) / self._scale / self._scale - d * np.finfo(np.float64).tiny


def _chunk(count: int) -> int:
    """Queries per chunk: whole blocks."""
    return min(_CHUNK, max(1, _KEPT_NUMBERS // (_ROOM * count * QUERIES)) * QUERIES)


def _centre(points: NDArray[np.float64], box: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """A centre (d,) inside the box (2, d), and about which share of the coordinates differs from it."""
    sample = points[np.linspace(0, len(points) - 1, _SAMPLE).astype(np.int64)]
    median = np.sort(sample, axis=0)[_SAMPLE // 2]  # a value that more than half of the sample shares is its median
    share = (sample == median).mean(axis=0)
    common = share > 0.5
    centre = np.where(common, median, np.clip(points.mean(axis=0), box[0], box[1]))
    return centre, float(np.where(common, 1.0 - share, 1.0).mean())


@compiled()
def _centred(queries, centre, scale, centred, norm):
    """Fill centred (b, d), in float32, and norm (b,) of the queries (b, d); those too far away become zero."""
    b, d = queries.shape
    for i in range(b):
        total = 0.0
        for j in range(d):
            x = (queries[i, j] - centre[j]) * scale
            centred[i, j] = np.float32(x)
            total += x * x
        norm[i] = np.sqrt(total)
        if norm[i] > FAR:
            centred[i] = np.float32(0.0)


@compiled()
def _pack_points(points, centre, scale, panels, half):
    """Fill panels (p, d, width) and half (p * width,), |z|^2 / 2, with the points (m, d); inf where there is none."""
    m, d = points.shape
    width = panels.shape[2]
    panels[-1] = np.float32(0.0)
    half[:] = np.float32(np.inf)
    for i in range(m):
        panel, c = panels[i // width], i % width
        norm = 0.0
        for j in range(d):
            z = np.float32((points[i, j] - centre[j]) * scale)
            panel[j, c] = z
            norm += np.float64(z) * np.float64(z)
        half[i] = np.float32(0.5 * norm)


@compiled()
def _key(bits, point):
    """Sums, as the bits (int32) of a float32, and point numbers in one integer, ordered by the sum and the number."""
    ordered = bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return (np.int64(ordered) << np.int64(32)) | np.int64(point)


@compiled()
def _sum_of(key):
    """The sum (float32) in a key."""
    bits = np.empty(1, dtype=np.int32)
    ordered = np.int32(key >> np.int64(32))
    bits[0] = ordered ^ ((ordered >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return bits.view(np.float32)[0]


@compiled()
def _keep_smallest(keys, size, count):
    """Move the `count` smallest of keys[:size], all different, to the front, and the largest of them to count - 1."""
    low, high, wanted = 0, size - 1, count - 1
    while low < high:
        middle = (low + high) // 2  # the median of three is the pivot, at the end
        if keys[middle] < keys[low]:
            keys[middle], keys[low] = keys[low], keys[middle]
        if keys[high] < keys[low]:
            keys[high], keys[low] = keys[low], keys[high]
        if keys[middle] < keys[high]:
            keys[middle], keys[high] = keys[high], keys[middle]
        pivot = keys[high]
        store = low
        for i in range(low, high):  # without a branch that could be foretold wrongly
            key = keys[i]
            keys[i] = keys[store]
            keys[store] = key
            store += key < pivot
        keys[high], keys[store] = keys[store], keys[high]
        if store == wanted:
            return
        if store < wanted:
            low = store + 1
        else:
            high = store - 1


@compiled()
def _collect(keys, sizes, limits, i, mask, sums, bits, place, first, count):
    """Add to keys (b, room), of which sizes (b,) are filled, the points of one panel that hit query i, by the mask.

    They are numbered from `first` on, and their sums begin at sums[place]; `bits` are the same numbers as integers. Of
    _ROOM * count keys the best `count` are kept, and the limit of the query sinks.
    """
    if sizes[i] > _ROOM * count:
        _keep_smallest(keys[i], sizes[i], count)
        sizes[i], limits[i] = count, _sum_of(keys[i, count - 1])
    while mask != 0:
        c = lowest_bit(mask)
        mask &= mask - np.uint64(1)
        if sums[place + c] < limits[i]:  # which may have sunk since
            keys[i, sizes[i]] = _key(bits[place + c], first + c)
            sizes[i] += 1


@compiled()
def _guess_limits(keys, sizes, limits, few):
    """From the first tiles' keys, of which the best `few` are kept: the limit that they suggest for all."""
    for i in range(sizes.size):
        if sizes[i] >= few:
            _keep_smallest(keys[i], sizes[i], few)
            sizes[i] = few
            limits[i] = _sum_of(keys[i, few - 1] + (np.int64(1) << np.int64(32)))  # the next number: ties count too


@compiled()
def _rank(keys, key):
    """How many of the keys are smaller."""
    rank = 0
    for c in range(keys.size):
        rank += keys[c] < key
    return rank


@compiled()
def _finish(keys, sizes, candidates, largest):
    """Fill candidates (b, count) in the order of their sums, and largest (b,); -1 first where there are too few."""
    b, count = candidates.shape
    for i in range(b):
        if sizes[i] < count:
            candidates[i, 0] = -1
            continue
        _keep_smallest(keys[i], sizes[i], count)
        largest[i] = _sum_of(keys[i, count - 1])
        best = keys[i, :count]
        if count > _RANKED:
            best.sort()
        for c in range(count):
            candidates[i, c if count > _RANKED else _rank(best, best[c])] = best[c] & np.int64(0xFFFFFFFF)


@compiled()
def _few(count, share):
    """How many of the best `count` points fall into a random `share` of all, but for one query in thousands."""
    return min(count, int(count * share + 3.0 * np.sqrt(count * share) + 3.0))


@compiled()
def _search_dense(queries, panels, half, hidden, candidates, largest, guess):
    """Fill candidates (b, count) with the points of the smallest sums, and largest (b,) with the largest of these.

    Those from hidden[i, 0] on, up to hidden[i, 1], are none.

    With `guess`, the best of every _EVERY-th tile tell beforehand where the limit will be. Where that was too low there
    are fewer than `count` points below it, and the first candidate is -1.
    """
    b, d = queries.shape
    p, count = panels.shape[0], candidates.shape[1]
    blocks = -(-b // QUERIES)
    packed = np.zeros((blocks, d, QUERIES), dtype=np.float32)
    for i in range(b):
        for j in range(d):
            packed[i // QUERIES, j, i % QUERIES] = -queries[i, j]
    limits = np.full(blocks * QUERIES, -np.inf, dtype=np.float32)
    limits[:b] = np.inf
    keys = np.empty((b, _ROOM * count + WIDE32), dtype=np.int64)
    sizes = np.zeros(b, dtype=np.int64)
    tile = max(1, min(_TILE_NUMBERS // (d * PANEL32), _TILE_POINTS // PANEL32))
    sums = np.empty(QUERIES * tile * PANEL32, dtype=np.float32)
    bits = sums.view(np.int32)
    hits = np.empty(QUERIES * tile, dtype=np.uint64)
    flat_panels, flat_queries, no_columns = panels.reshape(-1), packed.reshape(-1), np.empty(0, dtype=np.int64)
    for turn in range(2):
        few = _few(count, 1.0 / _EVERY) if turn == 0 and guess else count
        for first in range(0, p, tile):
            if ((first // tile) % _EVERY == 0) != (turn == 0):
                continue
            size = min(tile, p - first)
            for own in range(0, blocks * QUERIES, QUERIES):
                if all_hidden(hidden[own : own + QUERIES], first * PANEL32, (first + size) * PANEL32):
                    continue
                products(
                    flat_panels, half, flat_queries, no_columns, limits, sums, hits, first, size, d, own, own * d, d
                )
                for q in range(min(QUERIES, b - own)):
                    for n in range(q * size, (q + 1) * size):
                        if hits[n] != 0:
                            begin = (first + n - q * size) * PANEL32
                            mask = not_hidden(hits[n], hidden[own + q], begin, PANEL32)
                            _collect(keys, sizes, limits, own + q, mask, sums, bits, n * PANEL32, begin, few)
        if turn == 0 and guess:
            _guess_limits(keys, sizes, limits, few)
    _finish(keys, sizes, candidates, largest)


@compiled()
def _search_sparse(queries, panels, half, hidden, candidates, largest, guess):
    """The same, for queries most of whose coordinates are zero."""
    b, d = queries.shape
    p, count = panels.shape[0], candidates.shape[1]
    values = np.empty(b * d, dtype=np.float32)
    columns = np.empty(b * d, dtype=np.int64)
    ends = np.zeros(b + 1, dtype=np.int64)
    for i in range(b):
        ends[i + 1] = ends[i]
        for j in range(d):
            if queries[i, j] != 0.0:
                values[ends[i + 1]], columns[ends[i + 1]] = -queries[i, j], j
                ends[i + 1] += 1
    limits = np.full(b, np.inf, dtype=np.float32)
    keys = np.empty((b, _ROOM * count + WIDE32), dtype=np.int64)
    sizes = np.zeros(b, dtype=np.int64)
    tile = max(1, min(_WIDE_TILE_NUMBERS // (d * WIDE32), _TILE_POINTS // WIDE32))
    sums = np.empty(tile * WIDE32, dtype=np.float32)
    bits = sums.view(np.int32)
    hits = np.empty(tile, dtype=np.uint64)
    flat_panels = panels.reshape(-1)
    for turn in range(2):
        few = _few(count, 1.0 / _EVERY) if turn == 0 and guess else count
        for first in range(0, p, tile):
            if ((first // tile) % _EVERY == 0) != (turn == 0):
                continue
            size = min(tile, p - first)
            for i in range(b):
                if all_hidden(hidden[i : i + 1], first * WIDE32, (first + size) * WIDE32):
                    continue
                begin, terms = ends[i], ends[i + 1] - ends[i]
                listed_products(flat_panels, half, values, columns, limits, sums, hits, first, size, d, i, begin, terms)
                for n in range(size):
                    if hits[n] != 0:
                        mask = not_hidden(hits[n], hidden[i], (first + n) * WIDE32, WIDE32)
                        _collect(keys, sizes, limits, i, mask, sums, bits, n * WIDE32, (first + n) * WIDE32, few)
        if turn == 0 and guess:
            _guess_limits(keys, sizes, limits, few)
    _finish(keys, sizes, candidates, largest)
