"""Exact nearest neighbours in float64: sorted by (squared distance, row id), self removed by row id.

    rows = SearchedRows(inputs, find_equal_rows(inputs))   # inputs (n, d), put into boxes once
    index = rows.index(metric)                             # of bent columns over length scales
    table = index.query(metric.apply(queries), k, exclude=ids)     # table.ids, table.sqdist: (b, k)

The squared distance is the float64 sum of (q - x)^2 in the order of the dimensions. Three ways to find it, with the
same answer to the last bit, whatever the batch, the number of threads or the order of the queries:

    boxes     a k-d tree of boxes of rows, which serves every metric; alone where rows are hidden from each other
    product   brute force by matrix products in float32, proved and settled in float64
    direct    brute force in float64
"""

from __future__ import annotations

from typing import Literal, Protocol, get_args

import numpy as np

from nearfield.elsewhere import InputsElsewhere
from nearfield.neighbours._equal_rows import (
    EqualRows,
    Float64,
    Int64,
    equal_in_columns,
    equal_rows_hold,
    find_equal_rows,
    order_key,
)
from nearfield.neighbours._index import NeighbourIndex, NeighbourTable, check_overflow
from nearfield.neighbours.boxes import BoxedInputs, Boxes, BoxIndex, Hidden
from nearfield.neighbours.product import ProductCandidates
from nearfield.warps import Metric

__all__ = [
    "BoxedInputs",
    "Boxes",
    "EqualRows",
    "Hidden",
    "Index",
    "NeighbourTable",
    "SearchedRows",
    "as_they_are",
    "build_index",
    "equal_in_columns",
    "find_equal_rows",
    "neighbour_table",
    "order_key",
]

Kind = Literal["auto", "boxes", "product", "direct"]


class Index(Protocol):
    """What finds neighbours: `NeighbourIndex` or `BoxIndex`. Several threads may query at once."""

    @property
    def kind(self) -> str: ...

    @property
    def n_rows(self) -> int: ...

    def query(self, queries: Float64, k: int, exclude: Int64 | None = None) -> NeighbourTable:
        """The k nearest rows of each query (b, d), without row exclude[i] for query i (b,); -1 excludes nothing.

        Where rows are hidden, without those that row exclude[i] may not see.
        """
        ...


# Which search is faster: processor time of one thread in microseconds a query, k = 64, on a busy machine with AVX-512,
# and how many points the search of boxes looks at. "scaled" is normal with each column 0.6 times the one before, as
# length scales do; "curved" a surface of three dimensions with noise of 0.05.
#
#  rows            n    d   looked at    boxes  product
#  normal      1,000    8         984        8       12
#  normal      1,000   30       1,000       12       13
#  normal     10,000    3         468        9       12
#  normal     10,000    5       1,495       13       12
#  normal     10,000    8       4,895       25       14
#  normal     10,000   30      10,000       94       18
#  normal    100,000    3         584       10       26
#  normal    100,000    5       1,961       18       30
#  normal    100,000    8      11,803       57       38
#  normal    100,000   30     100,000    1,276       79
#  normal    100,000  100     100,000    4,244      229
#  normal  1,000,000    4       1,249       18      146
#  normal  1,000,000    8      20,353      170      225
#  scaled      1,000   20         467        7       12
#  scaled     10,000   20         963       15       16
#  scaled    100,000   20       2,107       31       61
#  scaled  1,000,000   20       4,095       61      438
#  curved     10,000   60       1,891       60       24
#  curved    100,000   60       1,120       64      135
#
# Neither the number of columns nor the dimension that the rows fill tells the rows of this table apart; how many points
# have to be looked at does, and a few queries tell that. These are the costs in nanoseconds.
_BOX_QUERY, _BOX_POINT, _BOX_NUMBER = 6_000.0, 1.0, 0.42  # a query; a point that is looked at; a coordinate of it
_PRODUCT_QUERY, _PRODUCT_POINT, _PRODUCT_NUMBER = 11_000.0, 0.09, 0.021
_FEW_COLUMNS = 2  # up to so many, or points, boxes serve well without a look at the rows
_FEW_POINTS = 1000
_ASKED, _ASKED_K = 8, 64  # queries that tell, and neighbours
_GIVEN_UP = 4.0  # times as many points as would be worth looking at


class SearchedRows:
    """Rows (n, d), put into boxes once, which are cut anew only where columns have been stretched a lot since."""

    def __init__(self, inputs: Float64 | BoxedInputs | InputsElsewhere, equal: EqualRows | None = None) -> None:
        """equal: which of them are equal, if it is known."""
        self._inputs, self._found = inputs, equal
        self._boxes: Boxes | None = None

    @property
    def equal(self) -> EqualRows:
        """Which rows are equal."""
        if self._found is None:
            self._found = find_equal_rows(np.asarray(self._inputs))
        return self._found

    def boxes(self, lengths: Float64) -> Boxes:
        """The rows in boxes that are in good shape under these length scales (d,)."""
        if isinstance(self._inputs, BoxedInputs):
            return self._inputs.boxes(lengths)
        found = self._boxes
        assert not isinstance(self._inputs, InputsElsewhere)
        if found is None or not found.fit(lengths):
            found = self._boxes = Boxes(self._inputs, self.equal, lengths)
        return found

    def index(self, metric: Metric, hidden: Hidden | None = None, kind: Kind = "auto") -> Index:
        """Finds neighbours under a metric, among the rows that are not hidden."""
        if isinstance(self._inputs, InputsElsewhere):
            if hidden is not None:
                raise NotImplementedError("rows that are held elsewhere cannot be hidden from each other.")
            found_there: Index = self._inputs.index(metric)
            return found_there
        if kind in ("auto", "boxes"):
            boxes = self.boxes(metric.lengths)
            found = BoxIndex(boxes, metric, hidden)
            if kind == "boxes" or hidden is not None or not self._product_is_faster(found, len(boxes), metric):
                return found
        distinct = len(self.equal) == len(self._inputs)
        points = metric.apply(np.asarray(self._inputs) if distinct else self._inputs[self.equal.first])
        box = np.stack([points.min(axis=0), points.max(axis=0)])
        check_overflow(box[:1], box)
        source = None if kind == "direct" else ProductCandidates(points, box)
        return NeighbourIndex(points, box, self.equal, source, "direct" if source is None else "product")

    def _product_is_faster(self, index: BoxIndex, m: int, metric: Metric) -> bool:
        """Whether brute force over m points takes less time than boxes do, for a few of the rows.

        The answers do not depend on it.
        """
        n, d = self._inputs.shape
        if d <= _FEW_COLUMNS or m <= _FEW_POINTS:
            return False
        product = _PRODUCT_QUERY + m * (_PRODUCT_POINT + d * _PRODUCT_NUMBER)
        worth = max(product - _BOX_QUERY, 0.0) / (_BOX_POINT + d * _BOX_NUMBER)
        some = np.linspace(0, n - 1, _ASKED).astype(np.int64)
        points = metric.apply(self._inputs[some])
        return index.looked_at(points, min(_ASKED_K, m - 1), some, _GIVEN_UP * worth) > worth


def build_index(
    rows: Float64, kind: Kind = "auto", equal_rows: EqualRows | None = None, hidden: Hidden | None = None
) -> Index:
    """Index rows (n, d) as they are; `equal_rows`, found by find_equal_rows, may be passed again after rescaling."""
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"Rows have shape {rows.shape}; expected (n, d) with at least one row and one column.")
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(get_args(Kind))}.")
    return SearchedRows(rows, _checked_equal_rows(rows, equal_rows)).index(as_they_are(rows.shape[1]), hidden, kind)


def as_they_are(d: int) -> Metric:
    """The metric of d columns that have been scaled already."""
    return Metric.of(np.ones(d))


def neighbour_table(rows: Float64, queries: Float64, k: int, exclude: Int64 | None = None) -> NeighbourTable:
    """The k nearest of the rows (n, d) to each query (b, d), without row exclude[i] for query i; for a single use."""
    return build_index(rows).query(queries, k, exclude)


def _checked_equal_rows(rows: Float64, equal_rows: EqualRows | None) -> EqualRows:
    """Which rows are equal, found if not given; if given compared with the rows, which is cheap."""
    if equal_rows is None:
        return find_equal_rows(rows)
    fits = equal_rows.members.size == len(rows)
    if not fits or not equal_rows_hold(rows, equal_rows.first, equal_rows.starts, equal_rows.members):
        raise ValueError("equal_rows do not fit these rows: use find_equal_rows on the same, unscaled rows.")
    return equal_rows
