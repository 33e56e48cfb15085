"""Nearest rows by boxes: brute force that skips boxes of rows too far away, or of none that may be seen.

Points lie in the order of the leaves of a balanced k-d tree, whose nodes know the box around their points. Node i has
the children 2i + 1 and 2i + 2. A query goes down the tree, nearer boxes first, and leaves out those that are farther
than the k-th neighbour found so far. In a leaf, distances are computed as brute force does it.

Boxes are those of the inputs. A metric bends and stretches columns, one by one and never backwards, so that what was in
a box is in the box of the bent and stretched corners. A leaf is bent and stretched when a query first comes to it, or
all leaves at once where most will be visited.

Rounding never turns an order around: if x lies beyond the side of a box, the rounded distance to x is at least that to
the side, column by column and in every sum. So what is skipped could not have been found, to the last bit.
"""

from __future__ import annotations

import numpy as np

from nearfield._compiled import compiled
from nearfield.neighbours._panels import BLOCK, CODES, LEAF64, fetch, lowest_bit, near_boxes, near_codes, single_squares
from nearfield.neighbours._select import NOBODY
from nearfield.warps import placed

_SOME = 64  # points of a node that tell which column is the widest
BLOCK_DEPTH = 4  # levels of nodes from a block to its leaves
assert BLOCK == 1 << BLOCK_DEPTH
_ENOUGH = 48  # neighbours more than are wanted that are collected before the nearest are sorted out
_RANKED = 128  # up to so many neighbours are sorted by counting the smaller ones of each, which vectorises
_KEPT = 2**17  # coordinates of bent leaves that a portion of queries keeps, 1 MB
_LINE = 64  # bytes of a cache line
_ROUNDED = 2.0**-22  # of float32, for what becomes of a coordinate
_OFF = 0.5 + CODES * 2 * _ROUNDED  # steps by which what a code says may be off
_TINY = 1e-30  # a squared distance above what float32 loses below its range
_SLACK = 1e-13  # of bent columns, whose pieces may overlap by rounding where they meet


@compiled()
def split(points, order, lengths, level, depth, begin, end):
    """Put points (m, d) and their numbers (m,) in the order of 2**depth leaves, below nodes begin .. end of `level`.

    Those of leaf l are from m l >> depth to m (l + 1) >> depth. The widest column, over the lengths (d,), is halved.
    """
    m = points.shape[0]
    for top in range(begin, end):
        for below in range(level, depth):
            each = 1 << (below - level)
            for node in range(top * each, (top + 1) * each):
                start, stop = (m * node) >> below, (m * (node + 1)) >> below
                middle = (m * (2 * node + 1)) >> (below + 1)
                if start < middle < stop:
                    _part(points, order, start, stop, middle, _widest(points, lengths, start, stop))


@compiled()
def _widest(points, lengths, start, stop):
    """The column in which some of the points start .. stop differ most."""
    step = max(1, (stop - start) // _SOME)
    best, width = 0, -1.0
    for j in range(points.shape[1]):
        low, high = np.inf, -np.inf
        for i in range(start, stop, step):
            low, high = min(low, points[i, j]), max(high, points[i, j])
        if (high - low) / lengths[j] > width:
            best, width = j, (high - low) / lengths[j]
    return best


@compiled()
def _part(points, order, start, stop, middle, column):
    """Sort start .. stop so far that none before `middle` is higher in the column than one behind it: quickselect."""
    low, high = start, stop - 1
    while low < high:
        pivot = points[(low + high) // 2, column]
        i, j = low, high
        while i <= j:
            while points[i, column] < pivot:
                i += 1
            while points[j, column] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                for e in range(points.shape[1]):
                    points[i, e], points[j, e] = points[j, e], points[i, e]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@compiled()
def fill_leaves(points, depth, panels, begin, end):
    """Fill the panels (leaves, d, LEAF64) of the leaves begin .. end; NaN behind the last point of a leaf.

    points (m, d) in the order of the 2**depth leaves.
    """
    m, d = points.shape
    for leaf in range(begin, end):
        start, stop = (m * leaf) >> depth, (m * (leaf + 1)) >> depth
        panels[leaf] = np.nan
        for j in range(d):
            for i in range(start, stop):
                panels[leaf, j, i - start] = points[i, j]


@compiled()
def bound_leaves(m, panels, depth, centre, scale, low, high, leaf_low, leaf_high, begin, end):
    """Fill leaf_low, leaf_high (blocks, d, BLOCK) and low, high of the blocks begin .. end from the panels.

    Whether all numbers that should be there are finite.
    """
    right = True
    for block in range(begin, end):
        node = (1 << depth) - 1 + block
        low[node], high[node] = np.inf, -np.inf
        for place in range(BLOCK):
            leaf = block * BLOCK + place
            count = ((m * (leaf + 1)) >> (depth + BLOCK_DEPTH)) - ((m * leaf) >> (depth + BLOCK_DEPTH))
            for j in range(panels.shape[1]):
                least, most = np.inf, -np.inf
                for c in range(LEAF64):
                    x = panels[leaf, j, c]
                    right &= np.isfinite(x) if c < count else np.isnan(x)
                    if c < count:
                        least, most = min(least, x), max(most, x)
                least, most = (least - centre[j]) / scale[j], (most - centre[j]) / scale[j]
                leaf_low[block, j, place], leaf_high[block, j, place] = least, most
                low[node, j], high[node, j] = min(low[node, j], least), max(high[node, j], most)
    return right


@compiled()
def join_boxes(low, high):
    """Fill the boxes (nodes, d) of the inner nodes from those of the blocks."""
    for node in range(low.shape[0] // 2 - 1, -1, -1):
        left = 2 * node + 1
        for j in range(low.shape[1]):
            low[node, j] = min(low[left, j], low[left + 1, j])
            high[node, j] = max(high[left, j], high[left + 1, j])


@compiled()
def label_boxes(m, depth, starts, members, groups, times, labels, earliest):
    """Fill what nodes know of who may be seen: labels (nodes, 2), lowest and highest group; earliest (nodes,) time."""
    blocks = 1 << depth
    for block in range(blocks):
        node = blocks - 1 + block
        begin, end = (m * block) >> depth, (m * (block + 1)) >> depth
        if starts.size:
            begin, end = starts[begin], starts[end]
        for place in range(begin, end):
            row = members[place]
            if groups.size:
                labels[node, 0] = min(labels[node, 0], groups[row])
                labels[node, 1] = max(labels[node, 1], groups[row])
            if times.size:
                earliest[node] = min(earliest[node], times[row])
    for node in range(blocks - 2, -1, -1):
        for child in (2 * node + 1, 2 * node + 2):
            if groups.size:
                labels[node, 0] = min(labels[node, 0], labels[child, 0])
                labels[node, 1] = max(labels[node, 1], labels[child, 1])
            if times.size:
                earliest[node] = min(earliest[node], earliest[child])


@compiled()
def place_boxes(low, high, metric, placed_low, placed_high, begin, end):
    """Fill the boxes begin .. end, (.., d, c) each, where the metric puts them."""
    lengths, bent, knots, scores, shares = metric
    for j in range(low.shape[1]):
        own = 0.0 if bent[j] < 0 else np.abs(scores[bent[j]]).max()
        for node in range(begin, end):
            for c in range(low.shape[2]):
                x, y = low[node, j, c], high[node, j, c]
                a = placed(x, j, lengths, bent, knots, scores, shares)
                b = placed(y, j, lengths, bent, knots, scores, shares)
                if bent[j] >= 0:
                    reach = _SLACK * (abs(x) + abs(y) + own) / lengths[j] + _SLACK * (abs(a) + abs(b))
                    a, b = a - reach, b + reach
                placed_low[node, j, c], placed_high[node, j, c] = a, b


@compiled()
def place_leaves(panels, centre, scale, metric, out, begin, end, shift):
    """Fill out[leaf + shift] with the panels of the leaves begin .. end, standardised, where the metric puts them."""
    lengths, bent, knots, scores, shares = metric
    for leaf in range(begin, end):
        for j in range(panels.shape[1]):
            if bent[j] < 0:
                for c in range(LEAF64):
                    out[leaf + shift, j, c] = (panels[leaf, j, c] - centre[j]) / scale[j] / lengths[j]
            else:
                for c in range(LEAF64):
                    z = (panels[leaf, j, c] - centre[j]) / scale[j]
                    out[leaf + shift, j, c] = placed(z, j, lengths, bent, knots, scores, shares)


@compiled()
def encode_leaves(placed, low, high, codes, begin, end):
    """Fill the codes (leaves, d, LEAF64) of the leaves begin .. end: where, in a byte, between the sides of its box.

    placed (leaves, d, LEAF64) are the points; low, high (blocks, d, BLOCK) the sides.
    """
    for leaf in range(begin, end):
        block, place = leaf // BLOCK, leaf % BLOCK
        for j in range(placed.shape[1]):
            side = low[block, j, place]
            width = high[block, j, place] - side
            factor = CODES / width if width > 0.0 else 0.0
            for c in range(LEAF64):
                code = (placed[leaf, j, c] - side) * factor + 0.5
                codes[leaf, j, c] = np.uint8(min(code, CODES + 0.5)) if code >= 0.0 else np.uint8(0)


@compiled()
def fill_spots(m, depth, starts, members, spots):
    """Fill spots (n,) with where each row is: the number of its leaf times LEAF64, and its place there."""
    for leaf in range(1 << depth):
        begin = (m * leaf) >> depth
        for point in range(begin, (m * (leaf + 1)) >> depth):
            first, end = (starts[point], starts[point + 1]) if starts.size else (point, point + 1)
            for member in range(first, end):
                spots[members[member]] = leaf * LEAF64 + point - begin


@compiled()
def gather(panels, spots, centre, scale, ids, out):
    """Fill out (b, d) with the rows ids (b,), standardised."""
    for i in range(ids.size):
        leaf, c = spots[ids[i]] // LEAF64, spots[ids[i]] % LEAF64
        for j in range(out.shape[1]):
            out[i, j] = (panels[leaf, j, c] - centre[j]) / scale[j]


@compiled()
def unpack(m, panels, depth, points, begin, end):
    """Fill points (m, d), in the order of the leaves, with those of the leaves begin .. end."""
    for leaf in range(begin, end):
        first, stop = (m * leaf) >> depth, (m * (leaf + 1)) >> depth
        for i in range(first, stop):
            for j in range(points.shape[1]):
                points[i, j] = panels[leaf, j, i - first]


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
def _nobody_there(row, node, groups, times, labels, earliest):
    """Whether the row may see none of the node's rows."""
    if groups.size and labels[node, 0] == groups[row] and labels[node, 1] == groups[row]:
        return True
    return times.size > 0 and earliest[node] >= times[row]


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
    the metric puts them, with their codes and how far these may be off, or none. within (b,): squared distances beyond
    which nothing is looked for. `most` leaves are visited, visited (b,) says how many were. Queries that follow each
    other should lie near each other.
    """
    m, starts, members, panels, low, high, leaf_low, leaf_high, depth, centre, scale = tree
    leaves_placed, codes = placed
    groups, times, spots, labels, earliest = hidden
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
    last, summed = np.empty(1), 1.0 + (d + 8) * 2.0**-23
    for i in range(b):
        query, row = queries[i], asking[i]
        hiding, restricted = row >= 0 and told, row >= 0 and (told or spots.shape[1] > 0)
        last[0], last_row, size, looked = within[i], NOBODY, 0, 0
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
                    if _nobody_there(row, left, groups, times, labels, earliest):
                        a = np.inf
                    if _nobody_there(row, right, groups, times, labels, earliest):
                        c = np.inf
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
            coded = ready and last[0] < np.inf
            if coded:
                nearby, mask, root = mask, np.uint64(0), np.sqrt(last[0]) * (1.0 + _ROUNDED)
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
                    limit = (root + _OFF * np.sqrt(across[place])) ** 2 * summed + _TINY
                    if near_codes(flat_codes, begin + place, d, offsets, steps, place, np.float32(limit)) != 0:
                        mask |= np.uint64(1) << np.uint64(place)
                        corner = (begin + place) * d * LEAF64
                        for line in range(corner, corner + d * LEAF64, _LINE // 8):
                            fetch(flat, line)
                        first = (m * (begin + place)) >> (depth + BLOCK_DEPTH)
                        for line in range(first, first + LEAF64, _LINE // 8):
                            fetch(members, line)
            while mask != 0 and (coded or looked < most):
                place = lowest_bit(mask) if coded else _nearest(mask, far)
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
