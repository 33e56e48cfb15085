"""Nearest rows by boxes: brute force that skips boxes of rows too far away, or of none that may be seen.

A query goes down the tree of boxes, nearer ones first, and leaves out those that are farther than the k-th neighbour
found so far. In a leaf, distances are computed as brute force does it. Where a query may see what the one before it
saw, its neighbours are no farther than those of that one and the way there: so much is known before any is found.

Rounding never turns an order around: if x lies beyond the side of a box, the rounded distance to x is at least that to
the side, column by column and in every sum. So what is skipped could not have been found, to the last bit.

Most leaves whose boxes are near enough hold no neighbour, in eight columns four of five. So where all leaves have been
placed, their codes are looked at first: a byte a coordinate, the nearest of 256 places between the sides of the leaf's
box, an eighth of the memory. With a coordinate q of the query and x of a point, w the width of the box and s = w / 255
a step, the code says where x is to s / 2; and the offset of q, the step, and one fused operation in float32 are each
right to 2^-24 of their size, which is at most |q - x| + 2w. So what stands for q - x is off by no more than

    s / 2 + 2^-22 (|q - x| + w)

and its norm over the columns no farther than (1 + 2^-22) |q - x| + (1/2 + 255 2^-22) |s| from zero, by the triangle
inequality. Squares are summed in float32 to (d + 1) 2^-24 of the sum, the distance by which the limit was found to
(d + 2) 2^-53; `limit_of_codes` allows for twice as much and more. What is below the range of float32 is less than
_TINY; what is above is infinite on both sides or not a number, and then counts as near. Only leaves with a point within
the limit are looked at in float64, so that the answers stay those of brute force.
"""

from __future__ import annotations

import numpy as np

from nearfield._compiled import compiled
from nearfield.neighbours._boxes import BLOCK_DEPTH, place_leaves
from nearfield.neighbours._panels import (
    BLOCK,
    CODES,
    LEAF64,
    earlier_leaves,
    earlier_points,
    fetch,
    lowest_bit,
    near_boxes,
    near_codes,
    other_leaves,
    other_points,
    single_squares,
)
from nearfield.neighbours._select import NOBODY

_ENOUGH = 48  # neighbours more than are wanted that are collected before the nearest are sorted out
_RANKED = 128  # up to so many neighbours are sorted by counting the smaller ones of each, which vectorises
_KEPT = 2**17  # coordinates of bent leaves that a portion of queries keeps, 1 MB
_LINE = 64  # bytes that memory gives at a time
_ROUNDED = 2.0**-22  # by which float32 may be off, relatively, for a coordinate
_OFF = 0.5 + CODES * _ROUNDED  # steps by which a code may be off
_TINY = 1e-30  # above what float32 loses below its range
_SLACK, _LEAST = 1e-9, 1e-290  # above what float64 loses: relatively, and below its range
_ALL = np.iinfo(np.int64).max


@compiled()
def _to_both(query, low, high, node):
    """Squared distances from the query (d,) to the boxes of a node and the next, summed in the order of the columns."""
    first, second = 0.0, 0.0
    for j in range(query.size):
        off = max(max(low[node, j] - query[j], query[j] - high[node, j]), 0.0)
        other = max(max(low[node + 1, j] - query[j], query[j] - high[node + 1, j]), 0.0)
        first += off * off
        second += other * other
    return first, second


@compiled()
def leaves_of(queries, low, high, depth, found):
    """Fill found (b,) with the leaf near each query: the one behind the nearer boxes, from the root down."""
    inner = (1 << depth) - 1
    for i in range(queries.shape[0]):
        node = 0
        while node < inner:
            a, c = _to_both(queries[i], low, high, 2 * node + 1)
            node = 2 * node + 1 if a <= c else 2 * node + 2
        found[i] = node - inner


@compiled()
def _hidden(row, seen, groups, times, spots):
    """Whether the row `row` may not be predicted from the row `seen`."""
    if groups.size and groups[row] == groups[seen]:
        return True
    if times.size and times[seen] >= times[row]:
        return True
    if spots.shape[1]:
        off = 0.0
        for j in range(spots.shape[1]):
            off += (spots[row, j] - spots[seen, j]) ** 2
        return off <= 1.0
    return False


@compiled()
def _somebody_there(node, group, time, labels, earliest):
    """Whether a row of that group and time may see some of the node's rows."""
    return (labels.size == 0 or labels[node] != group) and (earliest.size == 0 or earliest[node] < time)


@compiled()
def _less(distance, row, other, other_row):
    return (distance < other) | ((distance == other) & (row < other_row))


@compiled()
def _keep_nearest(distance, rows, size, k, values):
    """Move the k nearest of so many, all different by (distance, row), to the front; the largest distance, and its row.

    values: room for as many distances.
    """
    low, high = 0, size - 1
    for i in range(size):
        values[i] = distance[i]
    while low < high:
        middle = (low + high) // 2
        if values[middle] < values[low]:
            values[middle], values[low] = values[low], values[middle]
        if values[high] < values[low]:
            values[high], values[low] = values[low], values[high]
        if values[middle] < values[high]:
            values[middle], values[high] = values[high], values[middle]
        pivot = values[high]  # the median of three
        store = low
        for i in range(low, high):  # without a branch that could be foretold wrongly
            own = values[i]
            values[i] = values[store]
            values[store] = own
            store += own < pivot
        values[high], values[store] = values[store], values[high]
        if store == k - 1:
            break
        if store < k - 1:
            low = store + 1
        else:
            high = store - 1
    last, nearer, equal, last_row = values[k - 1], 0, 0, np.int64(-1)
    for i in range(size):
        nearer += distance[i] < last
        equal += distance[i] == last
    if nearer + equal > k:  # of equal distances, the lowest rows
        tied = np.sort(rows[:size][distance[:size] == last])
        last_row = tied[k - nearer - 1]
    else:
        for i in range(size):
            last_row = max(last_row, rows[i] if distance[i] == last else last_row)
    kept = 0
    for i in range(size):
        own, row = distance[i], rows[i]
        distance[kept], rows[kept] = own, row
        kept += (own < last) | ((own == last) & (row <= last_row))
    return last, last_row


@compiled()
def _sorted_into(distance, rows, size, sqdist, ids):
    """Fill sqdist, ids (k,) with so many, sorted by (distance, row); -1 and inf behind them."""
    for i in range(size, ids.size):
        sqdist[i], ids[i] = np.inf, -1
    if size <= _RANKED:
        for i in range(size):
            ids[i] = -1
        for i in range(size):
            rank, own = 0, distance[i]
            for j in range(size):
                rank += distance[j] < own
            while ids[rank] >= 0:  # taken by one that is as far
                rank += 1
            sqdist[rank], ids[rank] = own, rows[i]
    else:
        order = np.argsort(distance[:size])
        for i in range(size):
            sqdist[i], ids[i] = distance[order[i]], rows[order[i]]
    for i in range(1, size):
        own, row, place = sqdist[i], ids[i], i
        while place > 0 and sqdist[place - 1] == own and ids[place - 1] > row:
            sqdist[place], ids[place] = sqdist[place - 1], ids[place - 1]
            place -= 1
        sqdist[place], ids[place] = own, row


@compiled()
def limit_of_codes(last, across, d):
    """A float32 that `near_codes` does not exceed for a point whose squared distance, in float64, is at most `last`.

    across: the squared steps of the leaf's codes, summed over the d columns. The doc string of the module says why.
    """
    reach = np.sqrt(last) * (1.0 + _ROUNDED) + _OFF * np.sqrt(across)
    return np.float32(reach * reach * (1.0 + (d + 8) * _ROUNDED) + _TINY)


@compiled()
def _bound(query, other, farthest):
    """A squared distance from the query (d,) within which all rows lie that are no farther from another one than that.

    By the triangle inequality, and larger than that by more than what is lost to rounding and below the range.
    """
    apart = 0.0
    for j in range(query.size):
        apart += (query[j] - other[j]) ** 2
    reach = np.sqrt(apart) + np.sqrt(farthest)
    return reach * reach * (1.0 + _SLACK) + _LEAST


@compiled()
def _sees_as_much(row, other, groups, times):
    """Whether the row `row` may see all that the row `other` may, -1: everything, and is none of that itself."""
    if row < 0 or other < 0:
        return row == other
    if groups.size == 0 and times.size == 0:
        return False
    return (groups.size == 0 or groups[row] == groups[other]) and (times.size == 0 or times[row] >= times[other])


@compiled()
def _nearest(mask, far):
    """Which of the boxes in the mask, at least one, is the nearest."""
    best = lowest_bit(mask)
    mask &= mask - np.uint64(1)
    while mask != 0:
        place = lowest_bit(mask)
        mask &= mask - np.uint64(1)
        best = place if far[place] < far[best] else best
    return best


@compiled()
def search(queries, asking, tree, placed, metric, hidden, most, within, ids, sqdist, visited):
    """Fill ids, sqdist (b, k) with the nearest rows of queries (b, d) that the rows `asking` (b,), -1: none, may see.

    tree: of m points; members (n,) are the rows in the order of the leaves, of point p those from starts[p] on, where
    points have several; then what `boxes.Boxes` says, its boxes where the metric puts them. placed: all panels where
    the metric puts them, and their codes, or none. hidden: see `boxes.Boxes.labelled`. within (b,): squared distances
    beyond which nothing is looked for. `most` leaves are visited, visited (b,) says how many were. Queries that follow
    each other should lie near each other.
    """
    m, starts, members, panels, low, high, leaf_low, leaf_high, depth, centre, scale = tree
    leaves_placed, codes = placed
    groups, times, spots, labels, leaf_labels, point_labels, earliest, leaf_earliest, point_earliest = hidden
    joined, told = starts.size > 0, groups.size > 0 or times.size > 0
    b, d = queries.shape
    k, blocks = ids.shape[1], 1 << depth
    ready = leaves_placed.shape[0] > 0
    slots = 1
    while not ready and slots < panels.shape[0] and 2 * slots * d * LEAF64 <= _KEPT:
        slots *= 2
    tags = np.full(slots, -1)
    scratch = np.empty((0 if ready else slots, d, LEAF64))
    flat = leaves_placed.reshape(-1) if ready else scratch.reshape(-1)
    flat_codes, flat_low, flat_high = codes.reshape(-1), leaf_low.reshape(-1), leaf_high.reshape(-1)
    offsets, steps = np.empty(d * BLOCK, dtype=np.float32), np.empty(d * BLOCK, dtype=np.float32)
    distance, hits = np.empty(LEAF64), np.empty(1, dtype=np.uint64)
    no_columns, far, across = np.empty(0, dtype=np.int64), np.empty(BLOCK), np.empty(BLOCK)
    stack, to_box = np.empty(depth + 2, dtype=np.int64), np.empty(depth + 2)
    room = k + _ENOUGH
    near_rows, near, values = np.empty(room, dtype=np.int64), np.empty(room), np.empty(room)
    last = np.empty(1)
    for i in range(b):
        query, row = queries[i], asking[i]
        hiding, restricted = row >= 0 and told, row >= 0 and ((told and joined) or spots.shape[1] > 0)
        group = groups[row] if hiding and groups.size else np.int64(0)
        time = times[row] if hiding and times.size else 0.0
        last[0], last_row, size, looked = within[i], NOBODY, 0, 0
        if i > 0 and most == _ALL and not spots.shape[1] and _sees_as_much(row, asking[i - 1], groups, times):
            last[0] = min(last[0], _bound(query, queries[i - 1], sqdist[i - 1, k - 1]))
        stack[0], to_box[0], waiting = 0, 0.0, 1
        while waiting and looked < most:
            waiting -= 1
            node = stack[waiting]
            if to_box[waiting] > last[0]:
                continue
            if node < blocks - 1:
                left, right = 2 * node + 1, 2 * node + 2
                a, c = _to_both(query, low, high, left)
                if hiding:
                    a = a if _somebody_there(left, group, time, labels, earliest) else np.inf
                    c = c if _somebody_there(right, group, time, labels, earliest) else np.inf
                if a > c:
                    left, right, a, c = right, left, c, a
                if left >= blocks - 1:
                    for line in range((right - blocks + 1) * d * BLOCK, (right - blocks + 2) * d * BLOCK, _LINE // 8):
                        fetch(flat_low, line)
                        fetch(flat_high, line)
                if c <= last[0] and c < np.inf:
                    stack[waiting], to_box[waiting] = right, c
                    waiting += 1
                if a <= last[0] and a < np.inf:
                    stack[waiting], to_box[waiting] = left, a
                    waiting += 1
                continue
            begin = (node - (blocks - 1)) * BLOCK
            mask = near_boxes(query, flat_low, flat_high, begin // BLOCK, d, last[0], far, across, offsets, steps)
            if hiding and groups.size:
                mask &= other_leaves(leaf_labels, begin // BLOCK, group)
            if hiding and times.size:
                mask &= earlier_leaves(leaf_earliest, begin // BLOCK, time)
            begun = last[0] < np.inf
            coded = ready and begun
            if coded:
                nearby, mask = mask, np.uint64(0)
                rest = nearby
                while rest != 0:
                    corner = (begin + lowest_bit(rest)) * d * LEAF64
                    rest &= rest - np.uint64(1)
                    for line in range(corner, corner + d * LEAF64, _LINE):
                        fetch(flat_codes, line)
                while nearby != 0 and looked < most:
                    place = lowest_bit(nearby)
                    nearby &= nearby - np.uint64(1)
                    looked += 1
                    limit = limit_of_codes(last[0], across[place], d)
                    near_there = near_codes(flat_codes, begin + place, d, offsets, steps, place, limit)
                    if hiding and groups.size:
                        near_there &= other_points(point_labels, begin + place, group)
                    if hiding and times.size:
                        near_there &= earlier_points(point_earliest, begin + place, time)
                    if near_there != 0:
                        mask |= np.uint64(1) << np.uint64(place)
                        corner = (begin + place) * d * LEAF64
                        for line in range(corner, corner + d * LEAF64, _LINE // 8):
                            fetch(flat, line)
                        first = (m * (begin + place)) >> (depth + BLOCK_DEPTH)
                        for line in range(first, first + LEAF64, _LINE // 8):
                            fetch(members, line)
            while mask != 0 and (coded or looked < most):
                place = lowest_bit(mask) if begun else _nearest(mask, far)
                mask &= ~(np.uint64(1) << np.uint64(place))
                if far[place] > last[0]:
                    continue
                leaf = begin + place
                slot = leaf
                if not coded:
                    looked += 1
                if not ready:
                    slot = leaf & (slots - 1)
                    if tags[slot] != leaf:
                        place_leaves(panels, centre, scale, metric, scratch, leaf, leaf + 1, slot - leaf)
                        tags[slot] = leaf
                single_squares(flat, distance, query, no_columns, last, distance, hits, slot, 1, d, 0, 0, d)
                hit, first = hits[0], (m * leaf) >> (depth + BLOCK_DEPTH)
                if hiding and groups.size:
                    hit &= other_points(point_labels, leaf, group)
                if hiding and times.size:
                    hit &= earlier_points(point_earliest, leaf, time)
                while hit != 0:  # written out here: what is not counts references, which takes as long as the rest
                    c = lowest_bit(hit)
                    hit &= hit - np.uint64(1)
                    own, start, end = distance[c], first + c, first + c + 1
                    if joined:
                        start, end = starts[start], starts[end]
                    for member in range(start, end):
                        seen = members[member]
                        if own > last[0] or (own == last[0] and seen > last_row):
                            break  # ids ascend: the rest cannot enter either
                        if seen == row or (restricted and _hidden(row, seen, groups, times, spots)):
                            continue
                        near[size], near_rows[size] = own, seen
                        size += 1
                        if size == room:
                            last[0], last_row = _keep_nearest(near, near_rows, size, k, values)
                            size = k
        if size > k:
            _keep_nearest(near, near_rows, size, k, values)
        _sorted_into(near, near_rows, min(size, k), sqdist[i], ids[i])
        visited[i] = looked
