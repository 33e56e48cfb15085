"""Wild values: cells so far beyond all others of their column that they can hardly be what was measured.

One such cell, 1e15 among numbers about 1, would set the scale of its column alone, and all other rows would look the
same. Deviations are those from the median of the column. Some values are wild if

* they are few: a fiftieth of the rows at most, or one;
* they begin behind a gap: the smallest of their deviations is more than GAP times the largest of the others; and
* the tail of the others does not lead across it: the logarithm of the gap is more than TAIL times Hill's index of that
  tail, the mean of log(deviation / least) over the largest deviations. In a power tail, whatever its index, a gap is
  that long with a probability of about exp(-TAIL).

So neither skewed columns nor heavy tails have wild values, nor has a column of two values, of which nobody can tell
which is the wild one. Units do not matter.

Wild values are told, and count as the nearest of the others. Where the target is a real number their rows get so much
known noise that nothing is learned from them: an input that is not known says nothing of the target, and a target as it
is would bend a Gaussian process everywhere. Left-out scores are those of the other rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearfield.elsewhere import TableElsewhere
from nearfield.families import Family, Observed
from nearfield.rows import Joined

GAP = 1000.0  # between deviations
TAIL = 10.0  # indices of the tail
_SHARE = 0.02  # of the rows at most
_TAIL_SHARE = 0.1  # of the others that tell how long the tail is
_FEWEST_TAIL = 20  # of them, or half of all others
_FEWEST = 10  # others that differ from the median; of fewer nothing can be said
_DOUBT = 100.0  # noise variance of rows with wild values, over the variance of the target
_MANY = 2**17  # values of which a sample tells where the largest begin
_NAMED = 3  # columns, and rows of each, that a warning names


class WildValuesWarning(UserWarning):
    """Values are far beyond all others of their column."""


@dataclass(frozen=True, eq=False)
class Tamed:
    """Columns (n, d) whose wild values count as the nearest of the others, and which these are (n, d); None: none."""

    values: np.ndarray
    wild: np.ndarray | None

    def cells(self, rows: np.ndarray) -> np.ndarray:
        """Which cells (m, d) of the rows with these numbers (m,) are wild."""
        return np.zeros((len(rows), self.values.shape[1]), dtype=bool) if self.wild is None else self.wild[rows]


Names = Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Given:
    """How users know the rows: names of columns and of targets, which of theirs (n,) are kept, and where they begin to
    count."""

    columns: Names = None
    targets: Names = None
    kept: np.ndarray | None = None
    first_row: int = 0


def tame_rows(
    family: Family, joined: Joined, X: np.ndarray, observed: Observed, given: Given
) -> tuple[np.ndarray, Observed, np.ndarray | None]:
    """Inputs (n, d) of joined rows and what was observed there, without wild values, and which rows (n,) had any.

    One warning tells of them all, in terms of the rows that were given: X (m, d) and what was observed.
    """
    inputs = tame(joined.inputs, family.weight(joined.observed))
    tamed, targets = tame_target(family, joined.observed)
    if inputs.wild is None and targets.wild is None:
        return joined.inputs, joined.observed, None
    told = (
        Told.of_inputs(family, X, inputs.cells(joined.row), given.columns),
        Told.of_target(family, observed, targets.cells(joined.row), given.targets),
    )
    numbers = np.arange(len(X)) if given.kept is None else np.flatnonzero(given.kept)
    parts = filter(None, (one.sentences(numbers + given.first_row) for one in told))
    warnings.warn(f"{' '.join(parts)} Rows are counted from {given.first_row}.", WildValuesWarning, stacklevel=4)
    every = np.arange(len(joined.inputs))
    doubted = inputs.cells(every)
    if tamed is not joined.observed:
        doubted = np.concatenate([doubted, targets.cells(every)], axis=1)
    return inputs.values, tamed, np.asarray(doubted.any(axis=1))


def disbelieved(observed: Observed, doubted: np.ndarray | None) -> Observed:
    """What was observed, standardised, with so much known noise in doubted rows (n,) that they hardly say anything.

    Where noise cannot be known, as of labels and counts, they count like others.
    """
    if doubted is None or "known_noise" not in observed:
        return observed
    known = observed["known_noise"].copy()
    known[doubted] += _DOUBT
    return {**observed, "known_noise": known}


def told_noise(known: np.ndarray) -> np.ndarray:
    """Where known noise variances in standardised units, of any shape, are above zero and not those of doubt."""
    return (known > 0) & (known < _DOUBT)


def tame(values: np.ndarray, weights: np.ndarray) -> Tamed:
    """Columns (n, d), NaN where missing, of rows that count so much (n,), without wild values; the same if there are
    none."""
    found = {e: _edges(values[:, e], weights) for e in range(values.shape[1])}
    edges = {e: pair for e, pair in found.items() if pair is not None}
    if not edges:
        return Tamed(values, None)
    wild = np.zeros(values.shape, dtype=bool)
    for e, (low, high) in edges.items():
        column = values[:, e]
        wild[:, e] = (column < low) | (column > high)
    if isinstance(values, TableElsewhere):
        return Tamed(values.clipped(edges), wild)  # type: ignore[arg-type]
    tamed = values.copy()
    for e, (low, high) in edges.items():
        tamed[:, e] = np.clip(values[:, e], low, high)
    return Tamed(tamed, wild)


def _edges(column: np.ndarray, weights: np.ndarray) -> tuple[float, float] | None:
    """The least and the largest value of a column (n,) that are not wild; None where none is."""
    deviation = np.array(column, dtype=np.float64)
    there = ~np.isnan(deviation)
    if not there.all():
        column, weights, deviation = column[there], weights[there], deviation[there]
    del there
    n = len(deviation)
    if n <= _FEWEST:
        return None
    deviation /= 2  # halves: the difference of huge numbers may overflow
    centre = np.median(deviation, overwrite_input=True)  # in any order from now on: no second array is made
    deviation -= centre
    np.abs(deviation, out=deviation)
    largest = _largest(deviation, 1 + max(1, int(_SHARE * n)))
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.diff(np.log(largest))
    heaviest = max(_SHARE, 2 / n) * weights.sum()
    some = np.flatnonzero((gaps > math.log(GAP)) & (largest[:-1] > 0)).tolist()
    if some:
        column = np.asarray(column, dtype=np.float64)
        deviation = np.abs(column / 2 - centre)
    for i in some:
        usual = deviation <= largest[i]
        if gaps[i] > TAIL * _tail(deviation[usual]) and weights[~usual].sum() <= heaviest:
            return float(column[usual].min()), float(column[usual].max())
    return None


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """So many of the largest values (n,), ascending. Of many, only those are sorted that a sample says may be."""
    if len(values) > _MANY:
        likely = np.partition(values[:: len(values) // _MANY], -2 * max(1, count * _MANY // len(values)))
        some = values[values >= likely[-2 * max(1, count * _MANY // len(values))]]
        values = some if len(some) >= count else values
    first = len(values) - count
    return np.sort(np.partition(values, first)[first:])


def _tail(deviations: np.ndarray) -> float:
    """Hill's index of the tail of deviations (m,) from the median; infinity where too few differ from it."""
    some = deviations[deviations > 0]
    if len(some) < _FEWEST:
        return math.inf
    first = len(some) - min(len(some) // 2, max(_FEWEST_TAIL, int(_TAIL_SHARE * len(some))))
    logs = np.log(np.partition(some, first)[first:])
    return float(logs.mean() - logs.min())


def tame_target(family: Family, observed: Observed) -> tuple[Observed, Tamed]:
    """What was observed, without wild targets, and the targets (n, P).

    Labels cannot be wild. Counts, over their exposure or trials, are looked at and stay as they are.
    """
    weight, y = family.weight(observed), family.values(observed)
    if family.kind == "label":
        return observed, Tamed(weight[:, None], None)
    if family.kind == "count":
        for given in family.given_of(observed).values():
            y = y / given
        return observed, Tamed(y[:, None], tame(y[:, None], weight).wild)
    found = tame(y.reshape(len(y), -1), weight)
    if found.wild is None or "y" not in family.arrays:
        return observed, found
    tamed = found.values.reshape(y.shape)
    return {**observed, "y": np.where(np.isnan(tamed), observed["y"], tamed)}, found


# --- what users are told --------------------------------------------------------------------------------------------

_AT_THE_EDGE = "For the fit each counts as the nearest of the others"
_DOUBTED = (
    f"{_AT_THE_EDGE}, with so much noise that its row hardly counts, and left-out scores are those of other rows."
)
_TAMED = f"{_AT_THE_EDGE}, and left-out scores are those of the other rows."
_KEPT = "Counts stay as they are, and the fit suffers."


@dataclass(frozen=True, eq=False)
class Told:
    """Columns as they were given (n, d) with their names, which cells are wild, and what is to be said of these."""

    names: Sequence[str]
    values: np.ndarray
    wild: np.ndarray
    advice: str

    @classmethod
    def of_inputs(cls, family: Family, X: np.ndarray, wild: np.ndarray, names: Names) -> Told:
        """Of inputs (n, d)."""
        named = [f"column {e}" for e in range(X.shape[1])] if names is None else [f"column {name!r}" for name in names]
        done = _DOUBTED if "known_noise" in family.arrays else _TAMED
        return cls(named, X, wild, f"{done} Mend such inputs, or remove their rows.")

    @classmethod
    def of_target(cls, family: Family, observed: Observed, wild: np.ndarray, names: Names) -> Told:
        """Of targets; what can be done depends on the family."""
        y = family.values(observed)
        named = [f"the target {name!r}" for name in names or ()] or [f"output {p}" for p in range(wild.shape[1])]
        named = ["the target"] if wild.shape[1] == 1 and not names else named
        advice = f"{_KEPT if family.kind == 'count' else _DOUBTED} Mend such targets, or remove their rows"
        if family.kind == "number" and not getattr(family, "robust", False):
            advice += ', or use likelihood="student_t" (on the command line --likelihood student_t)'
        return cls(named, y.reshape(len(y), -1), wild, f"{advice}.")

    def sentences(self, numbers: np.ndarray) -> str:
        """How many there are, where the first of them are, what was done and what to do; "" if there are none."""
        columns, count = np.flatnonzero(self.wild.any(axis=0)).tolist(), int(self.wild.sum())
        if not count:
            return ""
        named = [self._cells(e, numbers) for e in columns[:_NAMED]]
        named += [f"and {len(columns) - _NAMED:,} more columns"] if len(columns) > _NAMED else []
        many = "1 value is" if count == 1 else f"{count:,} values are"
        return f"{many} far beyond all others: {'; '.join(named)}. {self.advice}"

    def _cells(self, e: int, numbers: np.ndarray) -> str:
        """A column, its first wild cells with their rows, and where the others lie."""
        rows, others = np.flatnonzero(self.wild[:, e]), self.values[~self.wild[:, e], e]
        cells = [f"{self.values[i, e]:g} in row {numbers[i]}" for i in rows[:_NAMED]]
        cells += [f"{len(rows) - _NAMED:,} more"] if len(rows) > _NAMED else []
        return f"{self.names[e]} has {', '.join(cells)}, and else {np.nanmin(others):g} to {np.nanmax(others):g}"
