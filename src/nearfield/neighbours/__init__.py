"""Exact nearest neighbours in float64: sorted by (squared distance, row id), self removed by row id.

    rows = SearchedRows(inputs, find_equal_rows(inputs))   # inputs (n, d), put into boxes once
    index = rows.index(metric)                             # of bent columns over length scales
    table = index.query(metric.apply(queries), k, exclude=ids)     # table.ids, table.sqdist: (b, k)

The squared distance is the float64 sum of (q - x)^2 in the order of the dimensions. Three ways to find it, with the
same answer to the last bit, whatever the batch, the number of threads or the order of the queries:

    boxes     a k-d tree of boxes of rows, which serves every metric; alone where times or a buffer hide rows
    product   brute force by matrix products in float32, proved and settled in float64
    direct    brute force in float64
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from nearfield.elsewhere import InputsElsewhere
from nearfield.neighbours._equal_rows import (
    EqualRows,
    Float64,
    InGroups,
    Int64,
    all_differ,
    equal_in_columns,
    equal_rows_hold,
    find_equal_rows,
    order_key,
)
from nearfield.neighbours._index import Index, NeighbourIndex, NeighbourTable, check_overflow
from nearfield.neighbours._joined import JoinedIndex, parts_of
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
    "all_differ",
    "as_they_are",
    "build_index",
    "equal_in_columns",
    "find_equal_rows",
    "neighbour_table",
    "order_key",
]

Kind = Literal["auto", "boxes", "product", "direct"]


# Which search is faster: processor time of one thread in microseconds a query, k = 64, on a busy machine with AVX-512,
# many queries to an index, and how many points the search of boxes looks at. "scaled" is normal with each column 0.6
# times the one before, as length scales do; "curved" a surface of three dimensions with noise of 0.05.
#
#  rows            n    d   looked at    boxes  product
#  normal       1,000    8         996        5       13
#  normal       1,000   30       1,000        8       15
#  normal      10,000    3         432        5       17
#  normal      10,000    5       1,519        7       17
#  normal      10,000    8       4,595       12       17
#  normal      10,000   30      10,000       45       19
#  normal     100,000    3         513        4       31
#  normal     100,000    5       2,204        9       33
#  normal     100,000    8      11,074       24       36
#  normal     100,000   30      99,999      282       57
#  normal     100,000  100     100,000    1,822      120
#  normal   1,000,000    4       1,230        9       98
#  normal   1,000,000    8      20,139       63      136
#  scaled       1,000   20         399        3       14
#  scaled      10,000   20         936        7       18
#  scaled     100,000   20       2,236       13       47
#  scaled   1,000,000   20       4,442       35      238
#  curved      10,000   60       1,997       26       23
#  curved     100,000   60       1,290       36       83
#
# Neither the number of columns nor the dimension that the rows fill tells the rows of this table apart; how many points
# have to be looked at does, and a few queries tell that. These are the costs in nanoseconds.
_BOX_QUERY, _BOX_POINT, _BOX_NUMBER = 4_000.0, 0.8, 0.15  # a query; a point that is looked at; a coordinate of it
_PRODUCT_QUERY, _PRODUCT_POINT, _PRODUCT_NUMBER = 14_000.0, 0.09, 0.0092
_FEW_COLUMNS = 2  # up to so many, or points, boxes serve well without a look at the rows
_FEW_POINTS = 1000
_ASKED, _ASKED_K = 8, 64  # queries that tell, and neighbours
_GIVEN_UP = 4.0  # times as many points as would be worth looking at


_FEW_RECENT = 512  # rows up to which those that came last are looked at one by one
_MERGED = 8  # a part is put into boxes together with the one before it from this share of its size on


@dataclass(eq=False)
class _Part:
    """Rows first .. last, put into boxes when these are first needed."""

    first: int
    last: int
    equal: EqualRows | None = None
    boxes: Boxes | None = None
    in_groups: InGroups | None = None

    def __len__(self) -> int:
        return self.last - self.first


class SearchedRows:
    """Rows (n, d), put into boxes once, which are cut anew only where columns have been stretched a lot since.

    Rows that follow later are parts of their own, each with boxes of its own: those of a part that has grown large
    enough beside the one before it are cut anew with it, so that there are few parts, and each row is moved a few times
    however many come one by one. The last few rows are in no box. Rows that are held in boxes alone stay there.
    """

    def __init__(
        self,
        inputs: Float64 | BoxedInputs | InputsElsewhere,
        equal: EqualRows | None = None,
        parts: tuple[_Part, ...] | None = None,
    ) -> None:
        """equal: which of them are equal, if it is known."""
        self._inputs = inputs
        self._held = inputs.boxed if isinstance(inputs, BoxedInputs) else 0  # the first rows, that are in boxes alone
        self._parts = (_Part(0, self._held or len(inputs), equal),) if parts is None else parts

    def followed_by(self, inputs: Float64 | BoxedInputs | InputsElsewhere) -> SearchedRows:
        """The same rows and more behind them: inputs (n, d) of all."""
        return SearchedRows(inputs, None, self._parts)

    def boxes(self, lengths: Float64) -> Boxes:
        """The rows in boxes that are in good shape under these length scales (d,), if all are one part."""
        return self._boxes(self._parts[0], lengths)

    def is_dearer(self, most: int, metric: Metric) -> bool:
        """Whether to look into so many leaves takes longer than brute force."""
        boxes, d = self.boxes(metric.lengths), self._inputs.shape[1]
        points = most * len(boxes) / len(boxes.panels)
        return points * (_BOX_POINT + d * _BOX_NUMBER) > _worth(len(boxes), d)

    def _boxes(self, part: _Part, lengths: Float64) -> Boxes:
        if isinstance(self._inputs, BoxedInputs) and part.first == 0 and part.last == self._held:
            return self._inputs.boxes(lengths)
        assert not isinstance(self._inputs, InputsElsewhere)
        found = part.boxes
        if found is None or not found.fit(lengths):
            found = part.boxes = Boxes(self._inputs[part.first : part.last], self._equal(part), lengths)
        return found

    def _equal(self, part: _Part) -> EqualRows:
        """Which rows of a part are equal."""
        if part.equal is None:
            part.equal = find_equal_rows(np.asarray(self._inputs[part.first : part.last]))
        return part.equal

    def _in_groups(self, part: _Part, groups: Int64) -> InGroups:
        """The points of a part in the order of the groups (n,) of its rows."""
        if part.in_groups is None or part.in_groups.groups is not groups:
            part.in_groups = InGroups.of(self._equal(part), groups)
        return part.in_groups

    def index(
        self,
        metric: Metric,
        hidden: Hidden | None = None,
        kind: Kind = "auto",
        most: int | None = None,
        earlier: Index | None = None,
    ) -> Index:
        """Finds neighbours under a metric, among the rows that are not hidden.

        most: leaves of each part that a query visits at most, for an approximate search. earlier: what found them,
        under the same metric, among the first of the rows.
        """
        if isinstance(self._inputs, InputsElsewhere):
            if hidden is not None:
                raise NotImplementedError("rows that are held elsewhere cannot be hidden from each other.")
            found_there: Index = self._inputs.index(metric)
            return found_there
        parts = self._parts = self._tidy(at_once=hidden is not None)
        known = {} if earlier is None or hidden is not None else parts_of(earlier)
        found: list[tuple[int, Index]] = []
        for part in parts:
            index = known.get((part.first, part.last))
            found.append((part.first, index or self._indexed(part, metric, hidden, kind, most)))
        boxed = parts[-1].last
        if boxed < len(self._inputs):
            found.append((boxed, self._indexed(_Part(boxed, len(self._inputs)), metric, None, "direct", None)))
        return found[0][1] if len(found) == 1 else JoinedIndex(found)

    def _tidy(self, at_once: bool) -> tuple[_Part, ...]:
        """The parts, with the rows behind them as another one unless they are few, and those joined that are due."""
        n, ends = len(self._inputs), [0, *(part.last for part in self._parts)]
        if at_once:
            ends = [0, n]
        elif n - ends[-1] > _FEW_RECENT:
            ends.append(n)
        while len(ends) > 2 and ends[-2] != self._held and (ends[-1] - ends[-2]) * _MERGED >= ends[-2] - ends[-3]:
            del ends[-2]
        known = {(part.first, part.last): part for part in self._parts}
        return tuple(known.get(own) or _Part(*own) for own in pairwise(ends))

    def _indexed(self, part: _Part, metric: Metric, hidden: Hidden | None, kind: Kind, most: int | None) -> Index:
        """Finds neighbours among the rows of a part, which are numbered from 0."""
        by_groups = hidden is None or hidden.by_groups
        if kind in ("auto", "boxes"):
            boxes = self._boxes(part, metric.lengths)
            found = BoxIndex(boxes, metric, hidden, most)
            exact = by_groups and most is None
            if kind == "boxes" or not exact or not self._product_is_faster(found, part, len(boxes), metric):
                return found
        if not by_groups:
            raise ValueError(f"kind is {kind!r}: rows that are hidden by times or a buffer are searched in boxes.")
        groups = None if hidden is None else hidden.groups
        in_groups = None if groups is None else self._in_groups(part, groups)
        equal = self._equal(part) if in_groups is None else in_groups.equal
        inputs = np.asarray(self._inputs[part.first : part.last])
        points = metric.apply(inputs if in_groups is None and len(equal) == len(inputs) else inputs[equal.first])
        box = np.stack([points.min(axis=0), points.max(axis=0)])
        check_overflow(box[:1], box)
        source = None if kind == "direct" else ProductCandidates(points, box)
        return NeighbourIndex(points, box, equal, source, "direct" if source is None else "product", in_groups)

    def _product_is_faster(self, index: BoxIndex, part: _Part, m: int, metric: Metric) -> bool:
        """Whether brute force over the m points of a part takes less time than boxes do for a few of its rows.

        The answers do not depend on it.
        """
        d = self._inputs.shape[1]
        if d <= _FEW_COLUMNS or m <= _FEW_POINTS:
            return False
        worth = _worth(m, d) / (_BOX_POINT + d * _BOX_NUMBER)
        some = np.linspace(0, len(part) - 1, _ASKED).astype(np.int64)
        points = metric.apply(self._inputs[part.first + some])
        return index.looked_at(points, min(_ASKED_K, m - 1), some, _GIVEN_UP * worth) > worth


def _worth(m: int, d: int) -> float:
    """Nanoseconds that boxes may take to look at points, where brute force has to look at m of them."""
    return max(_PRODUCT_QUERY + m * (_PRODUCT_POINT + d * _PRODUCT_NUMBER) - _BOX_QUERY, 0.0)


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
