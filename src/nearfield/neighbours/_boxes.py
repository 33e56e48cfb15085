"""Nearest rows among those a query may see: brute force that skips boxes of rows too far away, or of none to be seen.

Rows lie in the order of the leaves of a balanced k-d tree, whose nodes know the box around their rows. Node i has the
children 2i + 1 and 2i + 2. A few queries that lie near each other go down the tree together, nearer boxes first, and
leave out those that are farther than the k-th neighbour found so far. In a leaf, distances are computed as brute force
does it, six queries at a time; whether a row may be seen is asked only where it is near enough.

Rounding never turns an order around: if x lies beyond the side of a box, the rounded distance to x is at least that to
the side, column by column and in every sum. So what is skipped could not have been found, to the last bit.
"""

from __future__ import annotations

import numpy as np

from nearfield._compiled import compiled
from nearfield.neighbours._panels import PANEL64, QUERIES, lowest_bit, squares
from nearfield.neighbours._select import NOBODY, sift_down, sort_heap

_SOME = 64  # rows of a node that tell which column is the widest
_BLOCKS = 3  # of QUERIES queries that go down the tree together
_TOGETHER = _BLOCKS * QUERIES


@compiled()
def leaf_order(rows, depth):
    """The rows (n, d) in the order of 2**depth leaves (n,): those of leaf l from n l >> depth to n (l + 1) >> depth."""
    n = rows.shape[0]
    order = np.arange(n)
    for level in range(depth):
        nodes = 1 << level
        for node in range(nodes):
            start, stop = (n * node) >> level, (n * (node + 1)) >> level
            middle = (n * (2 * node + 1)) >> (level + 1)
            if start < middle < stop:
                _part(rows, order, start, stop, middle, _widest(rows, order, start, stop))
    return order


@compiled()
def _widest(rows, order, start, stop):
    """The column in which some of the rows order[start:stop] differ most."""
    step = max(1, (stop - start) // _SOME)
    best, width = 0, -1.0
    for j in range(rows.shape[1]):
        low, high = np.inf, -np.inf
        for i in range(start, stop, step):
            low, high = min(low, rows[order[i], j]), max(high, rows[order[i], j])
        if high - low > width:
            best, width = j, high - low
    return best


@compiled()
def _part(rows, order, start, stop, middle, column):
    """Put order[start:stop] so that none before `middle` is higher in the column than one behind it: quickselect."""
    low, high = start, stop - 1
    while low < high:
        pivot = rows[order[(low + high) // 2], column]
        i, j = low, high
        while i <= j:
            while rows[order[i], column] < pivot:
                i += 1
            while rows[order[j], column] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@compiled()
def fill_boxes(rows, order, depth, groups, times, panels, first, low, high, labels, earliest):
    """Fill the panels (.., d, PANEL64) of all leaves, first[l] being the first of leaf l, and what nodes know.

    low, high (m, d): the box; labels (m, 2): lowest and highest group; earliest (m,): of the times. Without groups
    (size 0) or times these stay empty, too.
    """
    n, d = rows.shape
    leaves = 1 << depth
    low[:] = np.inf
    high[:] = -np.inf
    for leaf in range(leaves):
        node = leaves - 1 + leaf
        start, stop = (n * leaf) >> depth, (n * (leaf + 1)) >> depth
        for i in range(start, stop):
            row = order[i]
            panel, c = first[leaf] + (i - start) // PANEL64, (i - start) % PANEL64
            for j in range(d):
                value = rows[row, j]
                panels[panel, j, c] = value
                low[node, j], high[node, j] = min(low[node, j], value), max(high[node, j], value)
            if groups.size:
                labels[node, 0], labels[node, 1] = min(labels[node, 0], groups[row]), max(labels[node, 1], groups[row])
            if times.size:
                earliest[node] = min(earliest[node], times[row])
    for node in range(leaves - 2, -1, -1):
        for child in (2 * node + 1, 2 * node + 2):
            for j in range(d):
                low[node, j], high[node, j] = min(low[node, j], low[child, j]), max(high[node, j], high[child, j])
            if groups.size:
                labels[node, 0] = min(labels[node, 0], labels[child, 0])
                labels[node, 1] = max(labels[node, 1], labels[child, 1])
            if times.size:
                earliest[node] = min(earliest[node], earliest[child])


@compiled()
def _to_box(query, low, high):
    """Squared distance from the query (d,) to a box, summed in the order of the columns."""
    total = 0.0
    for j in range(query.size):
        off = max(max(low[j] - query[j], query[j] - high[j]), 0.0)
        total += off * off
    return total


@compiled()
def leaves_of(queries, low, high, depth, found):
    """Fill found (b,) with the leaf near each query: the one behind the nearer boxes, from the root down."""
    inner = (1 << depth) - 1
    for i in range(queries.shape[0]):
        node = 0
        while node < inner:
            left = 2 * node + 1
            nearer = _to_box(queries[i], low[left], high[left]) <= _to_box(queries[i], low[left + 1], high[left + 1])
            node = left if nearer else left + 1
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
def search(
    queries, asking, order, depth, panels, zeros, first, low, high, groups, times, spots, labels, earliest, ids, sqdist
):
    """Fill ids, sqdist (b, k) with the nearest rows of queries (b, d) that the rows `asking` (b,) may see.

    Queries that follow each other should lie near each other. spots (n, p): where rows are in units of the buffer;
    zeros (rows of all panels,).
    """
    b, d = queries.shape
    n, leaves = order.size, 1 << depth
    ids[:] = NOBODY
    sqdist[:] = np.inf
    widest = 0
    for leaf in range(leaves):
        widest = max(widest, first[leaf + 1] - first[leaf])
    packed = np.zeros((_BLOCKS, d, QUERIES))
    limits = np.empty(QUERIES)
    distance, hits = np.empty(QUERIES * widest * PANEL64), np.empty(QUERIES * widest, dtype=np.uint64)
    flat, flat_queries, no_columns = panels.reshape(-1), packed.reshape(-1), np.empty(0, dtype=np.int64)
    stack, to_box = np.empty(depth + 2, dtype=np.int64), np.empty((depth + 2, _TOGETHER))
    for begin in range(0, b, _TOGETHER):
        own = min(_TOGETHER, b - begin)
        for q in range(own):
            packed[q // QUERIES, :, q % QUERIES] = queries[begin + q]
        stack[0], to_box[0], size = 0, 0.0, 1
        while size:
            size -= 1
            node, far = stack[size], to_box[size]
            wanted = False
            for q in range(own):
                wanted = wanted or far[q] <= sqdist[begin + q, 0]
            if not wanted:
                continue
            if node < leaves - 1:
                size = _open(queries, asking, begin, own, node, low, high, groups, times, labels, earliest, sqdist,
                             stack, to_box, size)  # fmt: skip
                continue
            leaf = node - (leaves - 1)
            start, count = (n * leaf) >> depth, first[leaf + 1] - first[leaf]
            for block in range(-(-own // QUERIES)):
                here = min(QUERIES, own - block * QUERIES)
                needed = False
                limits[:] = -np.inf
                for q in range(here):
                    i = begin + block * QUERIES + q
                    if far[block * QUERIES + q] <= sqdist[i, 0]:
                        limits[q], needed = sqdist[i, 0], True
                if not needed:
                    continue
                squares(flat, zeros, flat_queries, no_columns, limits, distance, hits, first[leaf], count, d,
                        0, block * d * QUERIES, d)  # fmt: skip
                for q in range(here):
                    i = begin + block * QUERIES + q
                    for t in range(count):
                        mask = hits[q * count + t]
                        while mask != 0:
                            c = lowest_bit(mask)
                            mask &= mask - np.uint64(1)
                            row = order[start + t * PANEL64 + c]
                            near = distance[(q * count + t) * PANEL64 + c]
                            last = sqdist[i, 0]
                            if near > last or (near == last and row > ids[i, 0]):
                                continue
                            if not _hidden(asking[i], row, groups, times, spots):
                                sqdist[i, 0], ids[i, 0] = near, row
                                sift_down(sqdist[i], ids[i], ids.shape[1])
    for i in range(b):
        sort_heap(sqdist[i], ids[i])


@compiled()
def _open(queries, asking, begin, own, node, low, high, groups, times, labels, earliest, sqdist, stack, to_box, size):
    """Put both children of a node on the stack, the nearer one on top; the new size of the stack."""
    left, total = 2 * node + 1, np.zeros(2)
    for side in range(2):
        child, place = left + side, size + side
        stack[place] = child
        for q in range(own):
            i = begin + q
            far = _to_box(queries[i], low[child], high[child])
            total[side] += far
            if _nobody_there(asking[i], child, groups, times, labels, earliest):
                far = np.nan  # is never wanted, whatever the limit
            to_box[place, q] = far
    if total[0] < total[1]:
        stack[size], stack[size + 1] = stack[size + 1], stack[size]
        for q in range(own):
            to_box[size, q], to_box[size + 1, q] = to_box[size + 1, q], to_box[size, q]
    return size + 2
