"""Exact copies: rows of a table with the same inputs, target, weight and group.

A copy brings no information. Where every row is there equally often, the distinct rows are the table. Where some are
there more often, nobody can tell copies from honest repetitions, such as the same input measured again with the same
coarse result, which test rows will have too: by default such rows count as often as they are there, and one warning
tells of them. Whoever asks for it, `groups="auto"`, has every copy count once.

Labels and counts are often the same where inputs are, so that equal rows are no sign of a copy. There they count as
copies only where no input was observed in two ways, and distinct rows are too many for that to be chance.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from nearfield.families import Family, Observed
from nearfield.neighbours import find_equal_rows
from nearfield.numbering import numbers
from nearfield.rows import equal_rows

TOLD = 0.03
"""Share of the rows that are copies of an earlier one, from which they are told: 2 % do no harm, 5 % do."""
_MANY = 20  # distinct rows; what all of them have in common is no chance


class CopiesWarning(UserWarning):
    """Rows of the table are exact copies of others."""


@dataclass(frozen=True, eq=False)
class Distinct:
    """Rows that stand for all n of a table: which (n,) they are, and the number (n,) among them of each row's own."""

    which: np.ndarray
    own: np.ndarray

    def kept(self, kept: np.ndarray) -> np.ndarray:
        """Which of all given rows (m,) they are, if those that are `kept` (m,) are the table."""
        found = kept.copy()
        found[kept] = self.which
        return found


@dataclass(frozen=True, eq=False)
class Copies:
    """The number (n,) of the distinct row that each row of a table is, and how often each of these is there."""

    row: np.ndarray
    times: np.ndarray

    @classmethod
    def of(cls, family: Family, inputs: np.ndarray, observed: Observed, *labels: np.ndarray | None) -> Copies:
        """Those among inputs (n, d) with what was observed there, and labels (n,) of groups and times, if any."""
        parts = [*observed.values(), *(part for part in labels if part is not None)]
        first, row = equal_rows(inputs, parts)
        alone = cls(numbers(len(row)), np.broadcast_to(1, len(row)))
        if len(first) == len(row):
            return alone
        found = cls(row, np.bincount(row))
        return found if not family.repeats or found._unlike(inputs) else alone

    def _unlike(self, inputs: np.ndarray) -> bool:
        """Whether no input was observed in two ways, though there are many."""
        distinct = len(self.times)
        if distinct == len(inputs):
            return True
        return distinct >= _MANY and len(find_equal_rows(inputs)) == distinct

    @property
    def common(self) -> int:
        """How often the table is there as a whole: the number of copies of every row.

        Where some are there more often, as in a table with copies of its own that was copied: their common divisor.
        """
        least = int(self.times.min())
        if len(self.times) < _MANY:
            return least if self.times.max() == least else 1
        return int(np.gcd.reduce(self.times))

    def distinct(self, once: bool) -> Distinct | None:
        """Each distinct row once, or so often that the table is there once; None where that is all rows.

        The first rows are kept, in the order in which they come.
        """
        if len(self.times) == len(self.row):
            return None
        times = np.ones_like(self.times) if once else self.times // self.common
        if (times == self.times).all():
            return None
        order = np.argsort(self.row, kind="stable")
        begin = np.cumsum(self.times) - self.times  # where each distinct row begins in that order
        which = np.zeros(len(self.row), dtype=bool)
        which[order[np.arange(len(order)) - np.repeat(begin, self.times) < np.repeat(times, self.times)]] = True
        return Distinct(which, (np.cumsum(which) - 1)[order[begin]][self.row])


def warn_of_copies(copies: Copies, common: int, remedy: str = "") -> bool:
    """Say it if the whole table is there several times, `common`, or if many rows are copies; whether it was said.

    remedy: what can be done, other than to drop copies.
    """
    rows = len(copies.row) // common
    further = rows - len(copies.times)
    if further >= TOLD * rows:
        said = f"{further / rows:.0%} of the rows ({further:,} of {rows:,}) are exact copies of another row, with the "
        said += "same inputs and the same target. Left out, they are predicted from their copies, and error bars are "
        said += f"too narrow for rows that are not copies. If these are the same rows again, {remedy}drop them from "
        said += "the table; if new rows will be copies as often, error bars are right."
    elif common > 1:
        times = f"{common} times" if copies.times.max() == common else f"at least {common} times"
        said = f"Every row is there {times}, with the same inputs and the same target: the fit is that of the table "
        said += f"taken once, {rows:,} rows."
    else:
        return False
    warnings.warn(said, CopiesWarning, stacklevel=4)
    return True
