"""The k best rows by (squared distance, row id), in float64, from candidates or from all points.

From candidates, the output is kept sorted; from all points, it is a max-heap on (squared distance, row id) while it is
filled, and is sorted at the end. Squared distances are sums of (q - x)^2 in the order of the dimensions, so the same
pair gives the same bits wherever it is computed. All functions release the GIL.
"""

from __future__ import annotations

import numpy as np

from nearfield._compiled import compiled
from nearfield._threads import in_threads
from nearfield.neighbours._panels import EIGHT, PANEL64, QUERIES, add_squares, lowest_bit, squares

NOBODY = np.iinfo(np.int64).max  # id of an empty place while the heap is filled: loses against every row
TILE_NUMBERS = 2**14  # coordinates of points that all queries of a chunk meet while they lie in the cache
TILE_POINTS = 256  # at most, so that the distances of six queries stay in the fastest cache
CHUNK = 40 * QUERIES  # queries that share one pass over the tiles; fewer would feel the copying of the tiles


def select_from_candidates(queries, points, equal_rows, candidates, exclude, ids, sqdist):
    """Fill ids, sqdist (b, k) with the best rows at the candidate points (b, c); candidates below 0 are skipped."""

    def run(start: int, stop: int) -> None:
        part = slice(start, stop)
        _select(
            queries[part],
            points,
            equal_rows.starts,
            equal_rows.members,
            candidates[part],
            exclude[part],
            ids[part],
            sqdist[part],
        )

    in_threads(run, queries.shape[0], smallest=16, largest=512)


def select_from_all(queries, points, equal_rows, exclude, hidden, ids, sqdist):
    """Fill ids, sqdist (b, k) by brute force over all points (m, d): slow, exact, with no condition attached.

    Those from hidden[i, 0] on, up to hidden[i, 1], are passed over for query i, (b, 2).
    """

    def run(start: int, stop: int) -> None:
        part = slice(start, stop)
        _select_all(
            queries[part],
            points,
            equal_rows.starts,
            equal_rows.members,
            exclude[part],
            hidden[part],
            ids[part],
            sqdist[part],
        )

    in_threads(run, queries.shape[0], smallest=16, largest=CHUNK)


@compiled()
def sift_down(sqdist, ids, size):
    """Restore the heap sqdist, ids (size,) after its top was replaced."""
    distance, row = sqdist[0], ids[0]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            sqdist[right] > sqdist[child] or (sqdist[right] == sqdist[child] and ids[right] > ids[child])
        ):
            child = right
        if sqdist[child] < distance or (sqdist[child] == distance and ids[child] <= row):
            break
        sqdist[hole], ids[hole] = sqdist[child], ids[child]
        hole = child
    sqdist[hole], ids[hole] = distance, row


@compiled()
def _offer(sqdist, ids, distance, start, stop, members, excluded):
    """Offer the rows members[start:stop], all at one distance, to the heap sqdist, ids (k,)."""
    for position in range(start, stop):
        row = members[position]
        if row == excluded:
            continue
        if distance > sqdist[0] or (distance == sqdist[0] and row > ids[0]):
            break  # ids ascend: the rest cannot enter either
        sqdist[0], ids[0] = distance, row
        sift_down(sqdist, ids, sqdist.size)


@compiled()
def sort_heap(sqdist, ids):
    """Turn the heap into ascending order, and mark empty places with -1."""
    for last in range(sqdist.size - 1, 0, -1):
        sqdist[0], sqdist[last] = sqdist[last], sqdist[0]
        ids[0], ids[last] = ids[last], ids[0]
        sift_down(sqdist, ids, last)
    for place in range(ids.size):
        if ids[place] == NOBODY:
            ids[place] = -1


@compiled()
def _square_distances(query, points, candidates, distance):
    """Fill distance (c,) from the query (d,) to points[candidates] (c,), c a multiple of EIGHT."""
    d = query.size
    distance[:] = 0.0
    for c in range(0, candidates.size, EIGHT):
        add_squares(query, points.reshape(-1), candidates, c, d - d % 4, d, distance)
    for j in range(d - d % 4, d):
        for c in range(candidates.size):
            difference = query[j] - points[candidates[c], j]
            distance[c] += difference * difference


@compiled()
def _insert(sqdist, ids, filled, distance, start, stop, members, excluded):
    """Insert the rows members[start:stop], all at one distance, into the sorted sqdist, ids (k,).

    Returns how many are filled then. Candidates come about sorted, so that there is little to move.
    """
    k = sqdist.size
    for position in range(start, stop):
        row = members[position]
        if row == excluded:
            continue
        place = filled
        if filled == k:
            if distance > sqdist[k - 1] or (distance == sqdist[k - 1] and row > ids[k - 1]):
                break  # ids ascend: the rest cannot enter either
            place = k - 1
        else:
            filled += 1
        while place > 0 and (sqdist[place - 1] > distance or (sqdist[place - 1] == distance and ids[place - 1] > row)):
            sqdist[place], ids[place] = sqdist[place - 1], ids[place - 1]
            place -= 1
        sqdist[place], ids[place] = distance, row
    return filled


@compiled()
def _select(queries, points, starts, members, candidates, exclude, ids, sqdist):
    count = candidates.shape[1]
    found = np.empty(-(-count // EIGHT) * EIGHT, dtype=np.int64)
    distance = np.empty(found.size)
    for i in range(queries.shape[0]):
        size = 0
        for c in range(count):
            if candidates[i, c] >= 0:
                found[size] = candidates[i, c]
                size += 1
        found[size:] = 0
        _square_distances(queries[i], points, found, distance)
        filled = 0
        for c in range(size):
            begin, end = starts[found[c]], starts[found[c] + 1]
            filled = _insert(sqdist[i], ids[i], filled, distance[c], begin, end, members, exclude[i])
        sqdist[i, filled:] = np.inf
        ids[i, filled:] = -1


@compiled()
def _fill_tile(points, tile):
    """Copy the points (m, d) into the tile (panels, d, PANEL64), with NaN behind the last one: closer than nothing."""
    for p in range(-(-points.shape[0] // PANEL64)):
        for c in range(PANEL64):
            i = p * PANEL64 + c
            for j in range(points.shape[1]):
                tile[p, j, c] = points[i, j] if i < points.shape[0] else np.nan


@compiled()
def all_hidden(hidden, begin, end):
    """Whether the points begin .. end are hidden from all queries, each from hidden[i, 0] on, up to hidden[i, 1]."""
    for i in range(hidden.shape[0]):
        if hidden[i, 0] > begin or hidden[i, 1] < end:
            return False
    return hidden.shape[0] > 0


@compiled()
def not_hidden(mask, hidden, begin, width):
    """The bits of the mask (uint64) of so many points, from `begin` on, that are not in hidden[0] .. hidden[1]."""
    first, stop = max(hidden[0] - begin, 0), min(hidden[1] - begin, width)
    if first >= stop:
        return mask
    from_first = ~np.uint64(0) << np.uint64(first)  # a shift by all bits would be none
    up_to_stop = ~np.uint64(0) >> np.uint64(64 - stop)
    return mask & ~(from_first & up_to_stop)


@compiled()
def _select_all(queries, points, starts, members, exclude, hidden, ids, sqdist):
    b, d = queries.shape
    m = points.shape[0]
    ids[:] = NOBODY
    sqdist[:] = np.inf
    blocks = -(-b // QUERIES)
    packed = np.zeros((blocks, d, QUERIES))
    for i in range(b):
        packed[i // QUERIES, :, i % QUERIES] = queries[i]
    limits = np.full(blocks * QUERIES, -np.inf)
    panels = max(1, min(TILE_NUMBERS // (d * PANEL64), TILE_POINTS // PANEL64))
    tile, zeros = np.empty((panels, d, PANEL64)), np.zeros(panels * PANEL64)
    distance = np.empty(QUERIES * panels * PANEL64)
    hits = np.empty(QUERIES * panels, dtype=np.uint64)
    flat_tile, flat_queries, no_columns = tile.reshape(-1), packed.reshape(-1), np.empty(0, dtype=np.int64)
    for begin in range(0, m, panels * PANEL64):
        stop = min(begin + panels * PANEL64, m)
        _fill_tile(points[begin:stop], tile)
        size = -(-(stop - begin) // PANEL64)
        for block in range(blocks):
            own = min(QUERIES, b - block * QUERIES)
            query = block * QUERIES
            if all_hidden(hidden[query : query + own], begin, stop):
                continue
            limits[query : query + own] = sqdist[query : query + own, 0]
            squares(flat_tile, zeros, flat_queries, no_columns, limits, distance, hits, 0, size, d, query, query * d, d)
            for q in range(own):
                i = query + q
                for t in range(size):
                    mask = not_hidden(hits[q * size + t], hidden[i], begin + t * PANEL64, PANEL64)
                    while mask != 0:
                        c = lowest_bit(mask)
                        mask &= mask - np.uint64(1)
                        p = begin + t * PANEL64 + c
                        near = distance[(q * size + t) * PANEL64 + c]
                        _offer(sqdist[i], ids[i], near, starts[p], starts[p + 1], members, exclude[i])
    for i in range(b):
        sort_heap(sqdist[i], ids[i])
