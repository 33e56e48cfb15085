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

# Which search is fastest: seconds for 6,400 queries (extrapolated from 256 to 1,600), k = 64, two cores with AVX-512.
# The machine was shared and its load varied, most of all in the rows marked *: compare the three figures of one data
# set in one row, nothing else. "uniform" fills the cube, "curved" is a 3-D surface with noise of 0.05, "scaled" is
# normal with each column 0.6 times the one before, as length scales do.
#
#                            uniform                 curved                  scaled
#      n    d       tree direct   flat      tree direct   flat      tree direct   flat
#    1e3    2       0.04   0.09   0.08      0.07   0.16   0.11      0.07   0.12   0.21
#    1e3   30       0.14   0.10   0.16      0.15   0.18   0.10      0.12   0.16   0.18
#    1e4    3       0.06   0.21   0.21      0.09   0.50   0.31      0.10   0.27   0.38
#    1e4    8       0.19   0.25   0.34      0.14   0.40   0.36      0.16   0.42   0.41
#    1e4   10       0.42   0.25   0.31      0.20   0.43   0.49      0.19   0.46   0.39
#    1e4   20       0.75   0.30   0.32      0.25   0.54   0.53      0.23   0.47   0.49
#    1e5    1       0.06   0.53   2.52      0.18   1.01   4.23      0.09   1.21   4.38
#    1e5    3       0.11   0.64   1.53      0.17   1.00   2.88      0.12   1.48   1.95
#    1e5    8       0.80   1.36   2.26      0.59   1.30   2.45      0.62   1.31   2.00
#    1e5   10       1.92   1.31   1.67      0.46   1.94   3.24      0.30   1.44   2.50
#    1e5   15     103.38*  4.05*  8.04*     1.20   1.96   3.66      0.35   1.04   1.90
#    1e5   30     132.50*  4.13*  6.90*     3.02   2.78   3.85      1.07   1.58   4.12
#    1e5  100     346.97* 10.33* 17.84*
#
# The number of columns does not tell the rows of this table apart; the local dimension does (uniform 8: 7.1, 10: 8.1;
# curved 20: 6.6, 30: 7.4; scaled 30: 6.7). It costs 1 to 45 ms here. Beyond 100 columns direct and flat each won some
# runs (128 columns: flat with 2e4 rows, direct with 1e5 rows on one thread), so DIRECT_COLUMNS is a guess.
TREE_ALWAYS = 5  # up to so many columns, or TREE_ROWS rows, the tree serves well without a look at the rows
TREE_ROWS = 1000
TREE_DIMENSION = 7.5  # local dimension up to which the tree wins
DIRECT_COLUMNS = 100  # columns up to which float64 brute force is preferred to float32 with its proof


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
    chosen = _choose(points, box) if kind == "auto" else kind
    return NeighbourIndex(points, box, equal_rows, _source(points, box, chosen), chosen)


def neighbour_table(rows: Float64, queries: Float64, k: int, exclude: Int64 | None = None) -> NeighbourTable:
    """The k nearest of the rows (n, d) to each query (b, d), without row exclude[i] for query i; for a single use."""
    return build_index(rows).query(queries, k, exclude)


def _local_dimension(points: Float64, box: Float64, samples: int = 16, k: int = 64) -> float:
    """How many dimensions the distinct points (m, d) fill at the scale of their k-th neighbours.

    The maximum-likelihood estimate of Levina and Bickel (2004), 1 / mean log(r_k / r_j), over a few points spread
    evenly over the table. It is what a tree feels: scaled columns that hardly vary, or correlated ones, do not count.
    """
    everyone = np.arange(len(points) + 1, dtype=np.int64)
    ids = np.linspace(0, len(points) - 1, samples).astype(np.int64)
    index = NeighbourIndex(points, box, EqualRows(everyone[:-1], everyone, everyone[:-1]), None, "direct")
    sqdist = index.query(points[ids], k, exclude=ids).sqdist
    sqdist = sqdist[sqdist[:, 0] > 0.0]  # squares of tiny differences may vanish
    logs = np.log(sqdist)
    spread = float(np.sum(logs[:, -1:] - logs[:, :-1])) / 2.0
    return len(sqdist) * (k - 1) / spread if spread > 0.0 else float(points.shape[1])


def _choose(points: Float64, box: Float64) -> str:
    """tree or product for the points (m, d); the answers do not depend on it."""
    m, d = points.shape
    if d <= TREE_ALWAYS or m <= TREE_ROWS or _local_dimension(points, box) <= TREE_DIMENSION:
        return "tree"
    return "product"


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
