"""The k best rows by (squared distance, row id), in float64, from candidates or from all points.

Each row of the output is a max-heap on (squared distance, row id) while it is filled, and is sorted at the end. Squared
distances are sums of (q - x)^2 in the order of the dimensions, so the same pair gives the same bits wherever it is
computed. All functions release the GIL.
"""

from __future__ import annotations

import numpy as np

from nearfield._compiled import compiled
from nearfield._threads import in_threads

NOBODY = np.iinfo(np.int64).max  # id of an empty place while the heap is filled: loses against every row
TILE = 256  # points whose distances to one query are computed together; a tile stays in the cache
STRIP = 16  # distances looked at together for one that may enter the heap; divides TILE
CHUNK = 256  # queries that share one pass over the tiles; fewer would feel the copying of the tiles


def select_from_candidates(queries, points, groups, candidates, exclude, ids, sqdist):
    """Fill ids, sqdist (b, k) with the best members of the candidate groups (b, c); candidates below 0 are skipped."""

    def run(start: int, stop: int) -> None:
        part = slice(start, stop)
        _select(
            queries[part],
            points,
            groups.starts,
            groups.members,
            candidates[part],
            exclude[part],
            ids[part],
            sqdist[part],
        )

    in_threads(run, queries.shape[0], smallest=16, largest=512)


def select_from_all(queries, points, groups, exclude, ids, sqdist):
    """Fill ids, sqdist (b, k) by brute force over all points (m, d): slow, exact, with no condition attached."""

    def run(start: int, stop: int) -> None:
        part = slice(start, stop)
        _select_all(queries[part], points, groups.starts, groups.members, exclude[part], ids[part], sqdist[part])

    in_threads(run, queries.shape[0], smallest=16, largest=CHUNK)


@compiled()
def _sift_down(sqdist, ids, size):
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
            break  # ids ascend: the rest of the group cannot enter either
        sqdist[0], ids[0] = distance, row
        _sift_down(sqdist, ids, sqdist.size)


@compiled()
def _sort_heap(sqdist, ids):
    """Turn the heap into ascending order, and mark empty places with -1."""
    for last in range(sqdist.size - 1, 0, -1):
        sqdist[0], sqdist[last] = sqdist[last], sqdist[0]
        ids[0], ids[last] = ids[last], ids[0]
        _sift_down(sqdist, ids, last)
    for place in range(ids.size):
        if ids[place] == NOBODY:
            ids[place] = -1


@compiled()
def _select(queries, points, starts, members, candidates, exclude, ids, sqdist):
    ids[:] = NOBODY
    sqdist[:] = np.inf
    for i in range(queries.shape[0]):
        for c in range(candidates.shape[1]):
            g = candidates[i, c]
            if g < 0:
                continue
            distance = 0.0
            for j in range(queries.shape[1]):
                difference = queries[i, j] - points[g, j]
                distance += difference * difference
            _offer(sqdist[i], ids[i], distance, starts[g], starts[g + 1], members, exclude[i])
        _sort_heap(sqdist[i], ids[i])


@compiled()
def _tile_distances(query, tile, distance):
    """Squared distances (TILE,) from the query (d,) to the columns of the tile (d, TILE).

    Dimensions outside, points inside: vectorised, yet summed in the order of the dimensions. Four at a time save memory
    traffic.
    """
    d = query.size
    distance[:] = 0.0
    for j in range(0, d - d % 4, 4):
        for c in range(TILE):
            s0 = query[j] - tile[j, c]
            s1 = query[j + 1] - tile[j + 1, c]
            s2 = query[j + 2] - tile[j + 2, c]
            s3 = query[j + 3] - tile[j + 3, c]
            distance[c] = (((distance[c] + s0 * s0) + s1 * s1) + s2 * s2) + s3 * s3
    for j in range(d - d % 4, d):
        for c in range(TILE):
            s0 = query[j] - tile[j, c]
            distance[c] += s0 * s0


@compiled()
def _any_within(strip, limit):
    """Whether one of strip (STRIP,) is at most `limit`; counting instead of branching lets it vectorise."""
    count = 0
    for c in range(STRIP):
        count += strip[c] <= limit
    return count > 0


@compiled()
def _select_all(queries, points, starts, members, exclude, ids, sqdist):
    m, d = points.shape
    ids[:] = NOBODY
    sqdist[:] = np.inf
    tile = np.zeros((d, TILE))
    distance = np.empty(TILE)
    for begin in range(0, m, TILE):
        size = min(TILE, m - begin)
        for c in range(size):
            for j in range(d):
                tile[j, c] = points[begin + c, j]
        for i in range(queries.shape[0]):
            _tile_distances(queries[i], tile, distance)
            distance[size:] = np.inf
            for strip in range(0, size, STRIP):
                if _any_within(distance[strip : strip + STRIP], sqdist[i, 0]):
                    for c in range(strip, min(strip + STRIP, size)):
                        g = begin + c
                        _offer(sqdist[i], ids[i], distance[c], starts[g], starts[g + 1], members, exclude[i])
    for i in range(queries.shape[0]):
        _sort_heap(sqdist[i], ids[i])
