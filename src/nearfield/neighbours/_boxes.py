"""Rows in boxes: cut, bounded, put where a metric has them, and taken out again; `_box_search.py` searches them.

Points lie in the order of the leaves of a balanced k-d tree, whose nodes know the box around their points. Node i has
the children 2i + 1 and 2i + 2.

Boxes are those of the inputs. A metric bends and stretches columns, one by one and never backwards, so that what was in
a box is in the box of the bent and stretched corners. A leaf is bent and stretched when a query first comes to it, or
all leaves at once where most will be visited.
"""

from __future__ import annotations

import numpy as np

from nearfield._compiled import compiled
from nearfield.neighbours._panels import BLOCK, CODES, LEAF64
from nearfield.warps import place_values

_SOME = 64  # points of a node that tell which column is the widest
BLOCK_DEPTH = 4  # levels of nodes from a block to its leaves
assert BLOCK == 1 << BLOCK_DEPTH
SEVERAL = np.iinfo(np.int64).min  # the label of what is of several groups: no group has it
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
def _joined_labels(labels):
    """The label that all have, or SEVERAL."""
    found = labels[0]
    for i in range(1, labels.size):
        found = found if labels[i] == found else SEVERAL
    return found


@compiled()
def label_groups(m, depth, starts, members, groups, nodes, leaves, points):
    """Fill nodes, leaves (.. * BLOCK,) and points (leaves * LEAF64,) with the group of all their rows, or SEVERAL.

    groups (n,) are those of the rows. Points that are not there have a label that counts for nothing.
    """
    for leaf in range(leaves.size):
        first, stop = (m * leaf) >> (depth + BLOCK_DEPTH), (m * (leaf + 1)) >> (depth + BLOCK_DEPTH)
        own = points[leaf * LEAF64 : leaf * LEAF64 + max(stop - first, 1)]
        own[:] = SEVERAL
        for point in range(first, stop):
            begin, end = (starts[point], starts[point + 1]) if starts.size else (point, point + 1)
            label = groups[members[begin]]
            for place in range(begin + 1, end):
                label = label if groups[members[place]] == label else SEVERAL
            own[point - first] = label
        leaves[leaf] = _joined_labels(own)
    blocks = 1 << depth
    for node in range(2 * blocks - 2, -1, -1):
        if node >= blocks - 1:
            first = (node - (blocks - 1)) * BLOCK
            nodes[node] = _joined_labels(leaves[first : first + BLOCK])
        else:
            nodes[node] = _joined_labels(nodes[2 * node + 1 : 2 * node + 3])


@compiled()
def label_times(m, depth, starts, members, times, nodes, leaves, points):
    """The same with the earliest time of their rows, whose times (n,) are."""
    for leaf in range(leaves.size):
        first, stop = (m * leaf) >> (depth + BLOCK_DEPTH), (m * (leaf + 1)) >> (depth + BLOCK_DEPTH)
        leaves[leaf] = np.inf
        for point in range(first, stop):
            begin, end = (starts[point], starts[point + 1]) if starts.size else (point, point + 1)
            label = times[members[begin]]
            for place in range(begin + 1, end):
                label = min(label, times[members[place]])
            points[leaf * LEAF64 + point - first] = label
            leaves[leaf] = min(leaves[leaf], label)
    blocks = 1 << depth
    for node in range(2 * blocks - 2, -1, -1):
        if node >= blocks - 1:
            first = (node - (blocks - 1)) * BLOCK
            nodes[node] = leaves[first : first + BLOCK].min()
        else:
            nodes[node] = min(nodes[2 * node + 1], nodes[2 * node + 2])


@compiled()
def place_boxes(low, high, metric, placed_low, placed_high, begin, end):
    """Fill the boxes begin .. end, (.., d, c) each, where the metric puts them."""
    lengths, bent, _, scores, _ = metric
    lows = np.empty(low.shape[2], dtype=np.int64)
    for j in range(low.shape[1]):
        own = 0.0 if bent[j] < 0 else np.abs(scores[bent[j]]).max()
        for node in range(begin, end):
            place_values(low[node, j], j, metric, lows, placed_low[node, j])
            place_values(high[node, j], j, metric, lows, placed_high[node, j])
            for c in range(low.shape[2] if bent[j] >= 0 else 0):
                x, y, a, b = low[node, j, c], high[node, j, c], placed_low[node, j, c], placed_high[node, j, c]
                reach = _SLACK * (abs(x) + abs(y) + own) / lengths[j] + _SLACK * (abs(a) + abs(b))
                placed_low[node, j, c], placed_high[node, j, c] = a - reach, b + reach


@compiled()
def place_leaves(panels, centre, scale, metric, out, begin, end, shift):
    """Fill out[leaf + shift] with the panels of the leaves begin .. end, standardised, where the metric puts them."""
    values, lows = np.empty(LEAF64), np.empty(LEAF64, dtype=np.int64)
    for leaf in range(begin, end):
        for j in range(panels.shape[1]):
            for c in range(LEAF64):
                values[c] = (panels[leaf, j, c] - centre[j]) / scale[j]
            place_values(values, j, metric, lows, out[leaf + shift, j])


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
