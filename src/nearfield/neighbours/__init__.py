"""Exact nearest neighbours in float64: sorted by (squared distance, row id), self removed by row id.

    index = build_index(rows)                        # rows (n, d), divided by the length scales
    table = index.query(queries, k, exclude=ids)     # table.ids, table.sqdist: (b, k)

The squared distance is the float64 sum of (q - x)^2 in the order of the dimensions. Three ways to find it, with the
same answer to the last bit, whatever the batch, the number of threads or the order of the queries:

    tree      k-d tree (scipy)
    product   brute force by matrix products in float32, proved and settled in float64
    direct    brute force in float64
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from nearfield.neighbours._equal_rows import EqualRows, Float64, Int64, equal_rows_hold, find_equal_rows, order_key
from nearfield.neighbours._index import CandidateSource, NeighbourIndex, NeighbourTable, check_overflow
from nearfield.neighbours._select import count_in_cubes
from nearfield.neighbours.product import ProductCandidates
from nearfield.neighbours.tree import TreeCandidates

__all__ = [
    "EqualRows",
    "NeighbourIndex",
    "NeighbourTable",
    "build_index",
    "find_equal_rows",
    "neighbour_table",
    "order_key",
]

Kind = Literal["auto", "tree", "product", "direct"]

# Which search is fastest: processor time of one thread, in microseconds a query and milliseconds to build, k = 64, on a
# busy machine with AVX2: compare within a row. "scaled" is normal with each column 0.6 times the one before, as length
# scales do; "curved" a surface of three dimensions with noise of 0.05; adult and splice are tables of categories as
# columns of zeros and ones, scaled to unit variance. "cube" is what _cube_of_neighbours counts, "limit" the number up
# to which the tree is chosen.
#
#                                                      a query                     to build
#  rows            n    d     cube   limit       tree  product   direct       tree product direct
#  normal      1,000    3      117     152         20       28       30        0.8     0.6    0.2
#  normal      1,000    8      558     152         36       28       32        0.9     0.7    0.2
#  normal     10,000    3      122     175         26       28       51        5.3     1.6    1.1
#  normal     10,000    5      353     175         53       32       56        5.3     1.7    0.9
#  normal     10,000    8    1,426     175        156       32       58        6.1     1.7    0.9
#  normal     10,000   30    9,987     175        611       39       76        9.1     2.3    1.0
#  normal    100,000    3      116     400         38       73      139       63.4    10.7    7.7
#  normal    100,000    5      436     400         90       59      156       59.8    10.6    7.6
#  normal    100,000    8    2,997     400        430       58      148       63.3    10.9    7.3
#  normal    100,000   30   99,053     400     17,211      123      364      196.9    18.0    8.4
#  normal    100,000  100  100,000     400     35,895      265      944      498.0    37.0   14.2
#  normal  1,000,000    4      200   2,650         79      244      924      704.8   155.4   68.6
#  normal  1,000,000    8    3,536   2,650        909      352    1,081      759.8   104.5   71.5
#  scaled      1,000   20      187     152         21       24       28        0.7     0.7    0.2
#  scaled     10,000   20      341     175         50       34       64        6.2     1.9    1.0
#  scaled    100,000   20      590     400        141       92      249       78.1    13.2    7.6
#  scaled  1,000,000   20    1,099   2,650        292      578    2,067     1053.4   186.7   75.5
#  curved     10,000   60   10,000     175        779       38       88       10.0     2.5    1.1
#  curved    100,000   60    1,837     400      1,669      177      602      166.9    22.1   10.3
#  adult      48,842  104   10,206     272      5,588       65      512      388.4    25.6   16.0
#  splice      3,190  240    3,005     158        423       29       94        9.1     3.8    1.9
#
# Neither the number of columns nor the dimension that the rows fill (curved: 3 to 4) tells the rows of this table
# apart; the count does. It costs 1 to 40 ms here.
TREE_COLUMNS = 3  # up to so many columns, or TREE_ROWS distinct rows, the tree serves well without a look at the rows
TREE_ROWS = 200
TREE_CUBE, TREE_CUBE_SHARE = 150, 1 / 400  # so many rows, and this share of all, in a cube of neighbours: the tree wins


def build_index(rows: Float64, kind: Kind = "auto", equal_rows: EqualRows | None = None) -> NeighbourIndex:
    """Index the rows (n, d); `equal_rows`, once found by find_equal_rows, may be passed again after rescaling."""
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"Rows have shape {rows.shape}; expected (n, d) with at least one row and one column.")
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(get_args(Kind))}.")
    equal_rows = _checked_equal_rows(rows, equal_rows)
    points = rows if len(equal_rows) == len(rows) else rows[equal_rows.first]
    box = np.stack([points.min(axis=0), points.max(axis=0)])
    check_overflow(box[:1], box)
    source, chosen = _choose(points, box) if kind == "auto" else (_source(points, box, kind), kind)
    return NeighbourIndex(points, box, equal_rows, source, chosen)


def neighbour_table(rows: Float64, queries: Float64, k: int, exclude: Int64 | None = None) -> NeighbourTable:
    """The k nearest of the rows (n, d) to each query (b, d), without row exclude[i] for query i; for a single use."""
    return build_index(rows).query(queries, k, exclude)


def _choose(points: Float64, box: Float64) -> tuple[CandidateSource | None, str]:
    """tree or product for the distinct points (m, d) of the box (2, d); the answers do not depend on it."""
    m, d = points.shape
    if d <= TREE_COLUMNS or m <= TREE_ROWS:
        return _source(points, box, "tree"), "tree"
    source = _source(points, box, "product")  # is built in less time than a tree, by far
    if _cube_of_neighbours(points, box, source) > TREE_CUBE + TREE_CUBE_SHARE * m:
        return source, "product"
    return _source(points, box, "tree"), "tree"


def _cube_of_neighbours(points: Float64, box: Float64, source: CandidateSource | None) -> float:
    """How many of the points (m, d) lie in the cube around the ball of a point's 64 nearest, on average over a few.

    A tree has to look at about all of them: its cells are boxes along the axes. Their number grows with the dimension
    that the points fill near a point, but also where a surface of few dimensions lies askew to many axes; scaled
    columns that hardly vary do not count.
    """
    everyone = np.arange(len(points) + 1, dtype=np.int64)
    index = NeighbourIndex(points, box, EqualRows(everyone[:-1], everyone, everyone[:-1]), source, "sample")
    ids = np.linspace(0, len(points) - 1, 16).astype(np.int64)
    radius = np.sqrt(index.query(points[ids], 64, exclude=ids).sqdist[:, -1])
    return float(np.mean(count_in_cubes(points, points[ids], radius, step=-(-len(points) // 2**13))))


def _source(points: Float64, box: Float64, kind: str) -> CandidateSource | None:
    """The fast search behind an index of this kind, on distinct points (m, d)."""
    if kind == "direct":
        return None
    return TreeCandidates(points) if kind == "tree" else ProductCandidates(points, box)


def _checked_equal_rows(rows: Float64, equal_rows: EqualRows | None) -> EqualRows:
    """Which rows are equal, found if not given; if given compared with the rows, which is cheap."""
    if equal_rows is None:
        return find_equal_rows(rows)
    fits = equal_rows.members.size == len(rows)
    if not fits or not equal_rows_hold(rows, equal_rows.first, equal_rows.starts, equal_rows.members):
        raise ValueError("equal_rows do not fit these rows: use find_equal_rows on the same, unscaled rows.")
    return equal_rows
