"""Rows that may be neighbours, what can be left out of them, and what is left when it is: the only home of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nearfield.elsewhere import InputsElsewhere, TableElsewhere
from nearfield.families import Family, Observations, Observed, taken
from nearfield.growing import Growing, followed_by
from nearfield.moments import NEAR
from nearfield.neighbours import (
    BoxedInputs,
    Boxes,
    Hidden,
    SearchedRows,
    all_differ,
    as_they_are,
    equal_in_columns,
    find_equal_rows,
    order_key,
)
from nearfield.numbering import Numbering, numbers
from nearfield.scaling import Scaling
from nearfield.storage import Make
from nearfield.warps import Warps

BOXED_ROWS = 2**18
"""From so many rows on, inputs are held in boxes alone."""
_BLOCK = 2**16  # rows at a time
_FETCHED = 2**14  # rows that are fetched from elsewhere though not all of them are needed


class Features(NamedTuple):
    """Features (u, F) of some rows, see `warps.py`, and which rows these are; None: all of them, in their order."""

    values: np.ndarray
    numbering: Numbering | None

    def ids(self, ids: np.ndarray) -> np.ndarray:
        """Numbers of features from those of rows, -1 for none."""
        return ids if self.numbering is None else self.numbering.places(ids)


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs (n, d), what was observed there by name, and the family's site state (n, A).

    `observations` are what can be left out. Rows of the same group (n,), where there are groups, are left out together;
    where there are times (n,), a row is left out together with all that are not earlier; and where there is a buffer
    (p, d), with all that are no farther away than 1 once it has been applied to inputs. `features` are those of the
    rows that are about to be neighbours in training.
    """

    inputs: np.ndarray | BoxedInputs | InputsElsewhere
    observed: Observed
    state: np.ndarray
    observations: Observations
    groups: np.ndarray | None = None
    features: Features | None = None
    times: np.ndarray | None = None
    buffer: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        family: Family,
        inputs: np.ndarray | BoxedInputs | InputsElsewhere,
        observed: Observed,
        groups: np.ndarray | None = None,
        times: np.ndarray | None = None,
        buffer: np.ndarray | None = None,
    ) -> Rows:
        """Rows about which nothing is known yet."""
        if not isinstance(inputs, BoxedInputs | InputsElsewhere):
            inputs = np.ascontiguousarray(inputs, dtype=np.float64)
        state, observations = family.initial_state(observed), family.observations(observed)
        return cls(inputs, observed, state, observations, groups, times=times, buffer=buffer)

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def searched(self) -> SearchedRows:
        """The inputs in boxes, among which neighbours are found."""
        return SearchedRows(self.inputs)

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest inputs (d,)."""
        if isinstance(self.inputs, BoxedInputs | InputsElsewhere):
            return self.inputs.bounds
        return self.inputs.min(axis=0), self.inputs.max(axis=0)

    @cached_property
    def hidden(self) -> Hidden | None:
        """What left-out rows may not be predicted from; None: nothing but themselves."""
        if self.groups is None and self.in_blocks:
            return None
        return Hidden(
            self.groups, self.times, None if self.buffer is None else _spots(np.asarray(self.inputs), self.buffer)
        )

    @property
    def in_blocks(self) -> bool:
        """Whether rows are left out alone or in groups that share nothing, so that one factorisation serves all."""
        return self.times is None and self.buffer is None

    def seeing(self, which: np.ndarray) -> np.ndarray:
        """Which of the observations `which` (b,) see enough to tell how well others are predicted, (b,).

        The first rows in time, or rows with nearly nothing beyond the buffer, are predicted as if nothing were known.
        Those that see less than half as much as is usual, of the nearest NEAR rows, do not count; nor do those that see
        nothing.
        """
        if self.in_blocks or self.hidden is None:
            return np.ones(len(which), dtype=np.bool_)
        row = self.observations.row[which]
        seen = self.seen_as_they_are(row, NEAR) >= 0
        return enough(seen.sum(axis=1))

    def seen_as_they_are(self, which: np.ndarray, k: int) -> np.ndarray:
        """The k nearest (b, k), in standardised inputs, of those that the rows `which` (b,) may see; -1 for none."""
        index = self.searched.index(as_they_are(self.inputs.shape[1]), self.hidden)
        return index.query(self.inputs[which], k, which).ids

    def units(self, which: np.ndarray) -> np.ndarray | None:
        """Numbers (b,) of what the observations `which` (b,) are part of and may share their fate with; None: nothing.

        Their groups; within a buffer, balls as large as it is; else rows of the same time.
        """
        hidden, row = self.hidden, self.observations.row[which]
        if hidden is None:
            return None
        if hidden.groups is not None:
            return hidden.groups[row]
        if hidden.spots is not None:
            return _packed(hidden.spots[row])
        return None if hidden.times is None else np.unique(hidden.times[row], return_inverse=True)[1]

    def with_state(self, state: np.ndarray) -> Rows:
        """The same rows with another site state."""
        return self._as_found(replace(self, state=state))

    def _as_found(self, other: Rows) -> Rows:
        """Other rows, whose inputs are the same, with what has been found of these, and in the same boxes."""
        _ = self.searched  # which are cut when they are first needed, for both
        vars(other).update({name: vars(self)[name] for name in _FOUND if name in vars(self)})
        return other

    def featured(self, warps: Warps, ids: np.ndarray) -> Rows:
        """The same rows with the features of those that are about to be neighbours, ids (b, k), or of all.

        Of few rows all are kept: they will be needed again.
        """
        if not len(warps) or (self.features is not None and self.features.numbering is None):
            return self
        if len(self) <= (_FETCHED if isinstance(self.inputs, InputsElsewhere) else 2 * ids.size):
            return self._as_found(replace(self, features=Features(warps.features(np.asarray(self.inputs)), None)))
        numbering = Numbering(ids)
        features = Features(warps.features(self.inputs[numbering.rows]), numbering)
        return self._as_found(replace(self, features=features))

    def __getstate__(self) -> dict[str, object]:
        kept = {name: value for name, value in vars(self).items() if name not in _FOUND}  # they are found again
        return {**kept, "features": None}

    def sample(self, which: np.ndarray, family: Family) -> Rows:
        """The rows `which` (b,) alone, ascending; all of them are these rows themselves."""
        if len(which) == len(self):
            return self
        observed = taken(self.observed, which)
        groups, times = (None if part is None else part[which] for part in (self.groups, self.times))
        return Rows(
            self.inputs[which], observed, self.state[which], family.observations(observed), groups,
            times=times, buffer=self.buffer,
        )  # fmt: skip

    def reduced(self, weights: np.ndarray, family: Family) -> Rows:
        """The rows of which something is left once the observations count as often as weights (u,) say, in new arrays.

        Their site state has to settle anew, unless it was learned.
        """
        own, n = self.observations, len(self)
        which = np.flatnonzero(np.bincount(own.row[weights > 0], minlength=n))
        less = np.zeros(n, dtype=np.bool_)
        less[own.row[weights != own.weights]] = True
        some = np.flatnonzero(less[own.row])
        observed: dict[str, np.ndarray] = dict(self.observed)
        for name in family.additive if some.size else ():
            values, single = observed[name].copy(), own.observed[name][some]
            values[less] = 0
            np.add.at(values, own.row[some], single * weights[some].reshape(-1, *(1,) * (single.ndim - 1)))
            observed[name] = values
        observed = taken(observed, which)
        state = self.state[which] if family.state_learned else family.initial_state(observed)
        groups, times = (None if part is None else part[which] for part in (self.groups, self.times))
        return Rows(
            self.inputs[which], observed, state, family.observations(observed), groups,
            times=times, buffer=self.buffer,
        )  # fmt: skip

    def followed_by(self, more: Rows) -> Rows:
        """These rows and then more; where there are groups, those have some too, or are one each.

        Where there are times, those have some, too. Takes as long as `more` has rows, but for now and then: what these
        rows have stays where it is, and so do the boxes in which they are searched.
        """
        old, new, rooms = self._parts(), more._parts(), vars(self).get("_rooms", {})
        new["left_out.row"] = new["left_out.row"] + len(self)
        if self.groups is not None:
            first = vars(self).get("_next_group", None) or int(self.groups.max()) + 1
            new["groups"] = first + np.arange(len(more)) if more.groups is None else more.groups
        longer: dict[str, Growing] = {}
        one: dict[tuple[int, int], str] = {}  # what is one array under two names stays one
        for name, values in old.items():
            if name in new:
                known = one.setdefault((id(values), id(new[name])), name)
                longer[name] = longer[known] if known in longer else followed_by(rooms, name, values, new[name])
        found = {name: grown.values for name, grown in longer.items()}
        observations = Observations(
            found["left_out.row"], _named(found, "left_out.observed."), found["left_out.weights"],
            found["left_out.alone"],
        )  # fmt: skip
        inputs = self.inputs.followed_by(found["inputs"]) if isinstance(self.inputs, BoxedInputs) else found["inputs"]
        rows = Rows(
            inputs, _named(found, "observed."), found["state"], observations, found.get("groups"),
            times=found.get("times"), buffer=self.buffer,
        )  # fmt: skip
        vars(rows)["_rooms"] = longer
        if rows.groups is not None:
            vars(rows)["_next_group"] = max(first, int(new["groups"].max()) + 1)
        if "searched" in vars(self):
            vars(rows)["searched"] = self.searched.followed_by(rows.inputs)
        return rows

    def _parts(self) -> dict[str, np.ndarray]:
        """All arrays that grow with the rows, by name."""
        own = self.observations
        found = {"inputs": self.inputs.more if isinstance(self.inputs, BoxedInputs) else np.asarray(self.inputs)}
        found["state"] = self.state
        found |= {f"observed.{name}": values for name, values in self.observed.items()}
        found |= {"left_out.row": own.row, "left_out.weights": own.weights, "left_out.alone": own.alone}
        found |= {f"left_out.observed.{name}": values for name, values in own.observed.items()}
        labels = {"groups": self.groups, "times": self.times}
        return found | {name: values for name, values in labels.items() if values is not None}


def held(
    X: np.ndarray | TableElsewhere, scaling: Scaling, make: Make = np.empty
) -> np.ndarray | BoxedInputs | InputsElsewhere:
    """Standardised inputs of rows X (n, d): of many rows in boxes alone, in single precision where nothing is lost.

    make: where large arrays come from.
    """
    if isinstance(X, TableElsewhere):
        return X.held(scaling)
    if len(X) < BOXED_ROWS or type(scaling) is not Scaling or not scaling.is_linear(X):
        return scaling.apply(X)
    blocks = (X[start : start + _BLOCK] for start in range(0, len(X), _BLOCK))
    single = X.dtype == np.float32 or all(np.array_equal(block.astype(np.float32), block) for block in blocks)
    dtype = np.float32 if single else np.float64
    ones = np.ones(X.shape[1])
    return BoxedInputs(Boxes(X, find_equal_rows(X), ones, scaling.centre, scaling.scale, dtype, make))


def _named(arrays: dict[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, without the beginning."""
    return {name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)}


_FOUND = ("searched", "bounds", "hidden", "_rooms", "_next_group")


def enough(seen: np.ndarray) -> np.ndarray:
    """Whether rows (b,) that see so many of the nearest NEAR others (b,) see enough; see `Rows.seeing`."""
    return np.asarray(seen >= max(1.0, np.ceil(np.median(seen) / 2))) if len(seen) else np.zeros(0, dtype=np.bool_)


def _spots(inputs: np.ndarray, buffer: np.ndarray) -> np.ndarray:
    """Inputs (n, d) where the buffer (p, d) sees them, (n, p); summed term by term, the same bits for any rows."""
    found = np.zeros((len(inputs), len(buffer)))
    for axis, weights in enumerate(buffer):
        for column in np.flatnonzero(weights).tolist():
            found[:, axis] += weights[column] * inputs[:, column]
    return found


def _packed(spots: np.ndarray) -> np.ndarray:
    """Numbers (b,) of balls of radius 1 that hold all spots (b, p), each around the first that is in none before."""
    number = np.full(len(spots), -1)
    for count in range(len(spots)):
        rest = np.flatnonzero(number < 0)
        if not rest.size:
            break
        off = spots[rest] - spots[rest[0]]
        number[rest[(off * off).sum(axis=1) <= 1]] = count
    return number


def without(observed: Observed, ids: np.ndarray, left_out: Observations, additive: tuple[str, ...]) -> Observed:
    """What is left of the neighbours ids (b, k) of observations (b,), each without the one that is left out.

    A row of several observations is among the neighbours of each of them. It loses the one left out, or the part of it
    that counts, in the arrays that are `additive`.
    """
    own = (ids == left_out.row[:, None]) * np.minimum(left_out.weights, 1.0)[:, None]
    row, place = np.nonzero(own)
    if not row.size:
        return observed
    rest = dict(observed)
    for name in additive:
        values = observed[name].copy()
        lost = left_out.observed[name][row]
        share = own[row, place].reshape(-1, *(1,) * (lost.ndim - 1))
        values[row, place] = np.maximum(values[row, place] - share * lost, 0.0)
        rest[name] = values
    return rest


def seen_by(rows: Rows, family: Family, ids: np.ndarray, left_out: Observations | None) -> tuple[Observed, np.ndarray]:
    """What was observed at the neighbours ids (b, k), -1 for none, and their site state (b, k, A)."""
    places = np.maximum(ids, 0)
    observed: Observed = taken(rows.observed, places)
    if left_out is not None:
        observed = without(observed, ids, left_out, family.additive)
    return observed, rows.state[places]


class Joined(NamedTuple):
    """Rows of which no two are equal, and where the given ones went: given row i is part of row[i]."""

    inputs: np.ndarray
    observed: dict[str, np.ndarray]
    groups: np.ndarray | None
    row: np.ndarray
    times: np.ndarray | None = None


def values_of(family: Family, observed: Observed) -> np.ndarray:
    """What tells observations (n,) at the same inputs apart, as numbers (n, e): all but what is additive."""
    n = len(family.weight(observed))
    parts = [values.reshape(n, -1) for name, values in observed.items() if name not in family.additive]
    parts = [np.asarray(part, dtype=np.float64) for part in parts] or [np.zeros((n, 1))]
    return np.concatenate(parts, axis=1)


def value_keys(family: Family, observed: Observed) -> np.ndarray:
    """A 64-bit number (n,) for each of the observations, by `values_of`; block by block."""
    n = len(family.weight(observed))
    found = np.empty(n, dtype=np.uint64)
    for block in (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)):
        found[block] = order_key(values_of(family, {name: values[block] for name, values in observed.items()}))
    return found


class Equal(NamedTuple):
    """The first row (m,) of each kind, in their order, and the number (n,) of each row's kind."""

    first: np.ndarray
    labels: np.ndarray


def equal_rows(inputs: np.ndarray, parts: Sequence[np.ndarray]) -> Equal:
    """Which rows have the same inputs (n, d) and the same key, of which there are parts (n, ..).

    Inputs and key are put together only if some have.
    """
    n = len(inputs)
    if all_differ(_hashes(inputs, parts)):
        return Equal(numbers(n), numbers(n))
    key = _key(parts, slice(None))
    if isinstance(inputs, TableElsewhere):
        columns = (part[:, e] for part in (inputs, key) for e in range(part.shape[1]))
        found = equal_in_columns(_hashes(inputs, parts), columns)
    else:
        found = find_equal_rows(np.concatenate([inputs, key], axis=1))
    labels = np.empty(n, dtype=np.int64)
    labels[found.members] = np.repeat(np.arange(len(found)), np.diff(found.starts))
    return Equal(found.first, labels)


def _hashes(inputs: np.ndarray, parts: Sequence[np.ndarray]) -> np.ndarray:
    """A 64-bit number (n,) for the inputs (n, d) and the key of each row."""
    n = len(inputs)
    hashes = np.empty(n, dtype=np.uint64)
    own = order_key(inputs) if isinstance(inputs, TableElsewhere) else None
    for block in (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)):
        pair = order_key(inputs[block]) if own is None else own[block], order_key(_key(parts, block))
        hashes[block] = order_key(np.stack([_number(part) for part in pair], axis=1))
    return hashes


def _key(parts: Sequence[np.ndarray], block: slice) -> np.ndarray:
    """Parts (n, ..) of a block side by side, as numbers (b, e)."""
    some = [np.asarray(part[block], dtype=np.float64) for part in parts]
    return np.concatenate([part.reshape(len(part), -1) for part in some], axis=1)


def join_equal(
    family: Family,
    inputs: np.ndarray,
    observed: Observed,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
    ordered: bool = False,
) -> Joined:
    """Equal rows as one that counts as often: equal inputs (n, d), group, time and observed arrays, but for additive
    ones.

    A row of weight two and the same row given twice are then the same to the last bit, and so is every fit of them: in
    a table that has either, rows are put in an order that depends on what they hold alone. Others stay as they are,
    unless they are to be ordered too.
    """
    told = [values for name, values in observed.items() if name not in family.additive]
    told = told or [np.broadcast_to(0.0, len(inputs))]
    key = [*told, *(labels for labels in (groups, times) if labels is not None)]
    first, row = equal_rows(inputs, key)
    if len(first) == len(inputs) and not ordered and (family.weight(observed) == 1).all():
        return Joined(inputs, _compact(observed), groups, row, times)
    summed = {name: values[first] for name, values in observed.items()}
    if len(first) < len(inputs):
        for name in family.additive:
            summed[name] = np.zeros_like(summed[name])
            np.add.at(summed[name], row, observed[name])
    labels, times = (None if part is None else part[first] for part in (groups, times))
    if not ordered and (family.weight(summed) == 1).all():
        return Joined(_some(inputs, first), _compact(summed), labels, row, times)
    order = np.argsort(_hashes(inputs, key)[first], kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    turned = {name: values[order] for name, values in summed.items()}
    labels, times = (None if part is None else part[order] for part in (labels, times))
    return Joined(_some(inputs, first[order]), _compact(turned), labels, place[row], times)


def _compact(observed: Observed) -> dict[str, np.ndarray]:
    """The same arrays; those of many rows in which all entries are the same take no memory.

    However they came, so that the same numbers give the same bits: sums may depend on how numbers lie in memory.
    """
    found = {}
    for name, values in observed.items():
        uniform = len(values) >= BOXED_ROWS and values.ndim == 1 and bool((values == values[0]).all())
        found[name] = np.broadcast_to(values[0], values.shape) if uniform else np.ascontiguousarray(values)
    return found


def _some(inputs: Any, which: np.ndarray) -> Any:
    """The rows with these numbers (b,), of inputs (n, d) that are here or elsewhere."""
    return inputs.some(which) if isinstance(inputs, TableElsewhere) else inputs[which]


def _number(hashes: np.ndarray) -> np.ndarray:
    """64 bits as a number that `order_key` can take up again; no two differ in the last bits alone."""
    return (hashes >> np.uint64(12)).astype(np.float64)
