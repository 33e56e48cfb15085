"""The target of a table, a column or several: which task it asks for, its values, and what it is counted against.

    family predicts  the target is                        beside it
    ---------------  -----------------------------------  ----------------------------------------------------
    number           a number
    label            text, true / false, a whole number
    count            a whole number, 0 or more            what the family is `given`: an exposure, trials

The task is that of a family, so that a family that is registered brings its own. "auto" takes text, true / false and
categories as classes and everything else as a number. Text of which more than half
are numbers is meant as numbers: what else is in it is pointed at instead of becoming a class.

Several targets are numbers, one regression of all. Some may be missing in a row, which then tells about the others.
`Target` and `Targets` have the same methods, so that only what is made of their values depends on which it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from nearfield.cells import Cells, Floats, is_empty, opened, without_dictionary
from nearfield.column_values import TableError
from nearfield.families import FAMILIES, Family, family_named, tasks, usual
from nearfield.forms import Form
from nearfield.table import require_columns
from nearfield.target_cells import (
    LABEL_TYPES,
    as_whole,
    check_labels,
    choose,
    form_of_numbers,
    kind_of_labels,
    labels,
    numeric,
    refuse_first,
    refuse_missing,
    seem_classes,
)
from nearfield.target_cells import (
    NUMBER as NUMBER,
)

_FEW_VALUES = 10
_KINDS = {"O": "text", "b": "flag", "i": "whole", "u": "whole", "f": "whole", "M": "date"}  # of labels in Python


@dataclass(frozen=True)
class Target:
    """What a model remembers of the column it predicts."""

    name: str
    task: str = NUMBER
    kind: str = "number"
    """number; of classes text, sign, flag or whole; of those of models from Python also date or other"""
    likelihood: str | None = None
    """the family, by name; None for the first of the task"""
    given: Mapping[str, str] = field(default_factory=dict)
    """the columns of what the family is given, by the names that it has for them: exposure, trials"""
    pattern: str = ""
    """how numbers are written where that is not as usual, as in a `Form`"""

    def learned(self, table: pa.Table) -> tuple[Target, np.ndarray, dict[str, Floats]]:
        """The same with what the training table says: its column checked, and what it is, where the task is "auto".

        Also its values, as `values` gives them, and what is `beside` them: a table is read once.
        """
        values, name = opened(table.column(self.name)), self.name
        target = replace(self, task=choose(values, name)) if self.task == "auto" else self
        classes = target.predicts == "label"
        target = target._written_as(values) if not classes else replace(target, kind=kind_of_labels(values, name))
        y = target._read(values, 1)
        refuse_missing(target.known(y), name)
        if classes:
            check_labels(y, name)
            return target, y, {}
        beside = target.beside(table)
        target.check(y, beside, np.arange(1, y.size + 1))
        return target, y, beside

    @property
    def names(self) -> list[str]:
        """The columns to predict."""
        return [self.name]

    @property
    def columns(self) -> list[str]:
        """The columns that predictions need beside the features."""
        return list(self.given.values())

    @property
    def family(self) -> type[Family]:
        """The family: that of the likelihood, else the first of the task."""
        return tasks()[self.task][0] if self.likelihood is None else FAMILIES[self.likelihood]

    @property
    def predicts(self) -> str:
        """What is predicted: number, count or label."""
        return self.family.kind

    @property
    def estimator(self) -> str:
        """Name of the estimator of the task."""
        return self.family.estimator

    def require_values(self, names: Collection[str]) -> None:
        """Raise TableError unless the target is among `names`."""
        require_columns(self.names, names, "The target")

    def require(self, names: Collection[str]) -> None:
        """Raise TableError unless `columns` are among `names`."""
        for what, column in self.given.items():
            require_columns([column], names, f"The column of the {what}")

    def values(self, table: pa.Table, first_row: int = 1) -> np.ndarray:
        """The target (n,): numbers, NaN where missing; or labels as objects, None where missing."""
        return self._read(opened(table.column(self.name)), first_row)

    def _written_as(self, values: Cells) -> Target:
        """The same for numbers that are written as those of the training table."""
        form = form_of_numbers(without_dictionary(values), f"The target {self.name!r}")
        return replace(self, kind="number", pattern=form.pattern)

    def _read(self, column: Cells, first_row: int) -> np.ndarray:
        column, label = without_dictionary(column), f"The target {self.name!r}"
        if self.predicts == "label":
            return labels(column, self.kind, label, first_row)
        return numeric(column, label, first_row, self.pattern)

    def known(self, y: np.ndarray) -> np.ndarray:
        """Whether each of `y` (n,), which `values` gave, is there."""
        return np.array([label is not None for label in y]) if y.dtype == object else ~np.isnan(y)

    def as_labels(self, y: np.ndarray) -> np.ndarray:
        """Labels without gaps (n,), in the type that they have in Python; numbers as they are."""
        return y.astype(LABEL_TYPES[self.kind]) if self.predicts == "label" else y

    def beside(self, table: pa.Table, first_row: int = 1, needed: np.ndarray | None = None) -> dict[str, Floats]:
        """What the family is given (n,), by name, where the model has it; only `needed` rows (n,) are checked."""
        found = {}
        for what, column in self.given.items():
            label, own = f"The {what} {column!r}", self.family.given[what]
            values = numeric(without_dictionary(opened(table.column(column))), label, first_row)
            bad = ~own.right(values) if needed is None else ~own.right(values) & needed
            refuse_first(bad, values, np.arange(first_row, first_row + values.size), label, own.expected)
            found[what] = values
        return found

    def check(self, y: Floats, beside: Mapping[str, Floats], row: np.ndarray) -> None:
        """Raise TableError unless the numbers `y` (n,), of the rows `row` (n,), are possible for the family."""
        if self.predicts != "count":
            return
        label = f"The target {self.name!r}"
        refuse_first((y < 0) | (y != np.floor(y)), y, row, label, "a count, a whole number of at least 0,")
        for what, values in beside.items():
            if self.family.given[what].limits:
                refuse_first(y > values, y, row, label, f"at most the {what} {self.given[what]!r}")

    def remark(self, y: np.ndarray) -> str | None:
        """Which task was taken, and how to choose another, where the values y (n,) leave a doubt."""
        if self.given:
            options = " and ".join(f"--{what}" for what in self.given)
            return f"{options} is given, so the target {self.name!r} is taken as --task {self.task}."
        if self.predicts != "number":
            return None
        different = np.unique(y)
        if different.size < 2 or different.size > _FEW_VALUES or (different != np.floor(different)).any():
            return None
        counts = f", or --task {usual('count').task} if they are counts" if different[0] >= 0 else ""
        return (
            f"the target {self.name!r} has {different.size} different values, all whole, and is taken as "
            f"--task {self.task}; give --task {usual('label').task} if they are classes{counts}."
        )

    def renamed(self, names: Sequence[str]) -> Target:
        """The same under another name."""
        return replace(self, name=names[0])

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description, for the model file."""
        own = {"task": self.task, "kind": self.kind, "likelihood": self.likelihood, "given": dict(self.given)}
        return {"target": self.name, **own, **({"pattern": self.pattern} if self.pattern else {})}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Target:
        """The inverse of `to_json`, whatever else is in `data`; ValueError if it is damaged."""
        name, task, kind = data.get("target"), data.get("task", NUMBER), data.get("kind", "number")
        likelihood, given, pattern = data.get("likelihood"), data.get("given", {}), data.get("pattern", "")
        if isinstance(likelihood, str):
            family_named(likelihood)  # an error of its own
        sound = (
            isinstance(name, str)
            and isinstance(task, str)
            and task in tasks()
            and (likelihood is None or FAMILIES.get(likelihood) in tasks()[task])
            and isinstance(given, dict)
            and Form("number", pattern).sound
            and _sound(cls(name, task, likelihood=likelihood).family, kind, given)
        )
        if not sound:
            raise ValueError("The model's description of its target is damaged.")
        return cls(str(name), task, kind, likelihood, given, pattern)


def _sound(family: type[Family], kind: Any, given: Mapping[str, Any]) -> bool:
    """Whether what a file says of a target goes with its family."""
    kinds = list(LABEL_TYPES) if family.kind == "label" else ["number"]
    columns = all(isinstance(column, str) and what in family.given for what, column in given.items())
    return kind in kinds and columns and all(what in given for what, own in family.given.items() if own.needed)


@dataclass(frozen=True)
class Targets:
    """Two or more columns of numbers that one model predicts: `Target`, for values (n, P) with NaN where missing."""

    parts: tuple[Target, ...]

    def __post_init__(self) -> None:
        numbers = all(part.task in ("auto", NUMBER) and not part.given for part in self.parts)
        if len(self.parts) < 2 or len(set(self.names)) < len(self.parts) or not numbers:
            raise TableError(f"The targets are {self.names}; two or more different columns of numbers are expected.")

    def learned(self, table: pa.Table) -> tuple[Targets, Floats, dict[str, Floats]]:
        """The same with what the training table says: each column must hold numbers, one at least. And its values."""
        each = [_learned_beside_others(part, table) for part in self.parts]
        return Targets(tuple(part for part, _ in each)), np.column_stack([y for _, y in each]), {}

    @property
    def names(self) -> list[str]:
        """The columns to predict."""
        return [part.name for part in self.parts]

    @property
    def columns(self) -> list[str]:
        """The columns that predictions need beside the features: none."""
        return []

    @property
    def task(self) -> str:
        """The only one."""
        return self.parts[0].task

    @property
    def likelihood(self) -> str | None:
        """That of all of them."""
        return self.parts[0].likelihood

    @property
    def family(self) -> type[Family]:
        """The family of each of them."""
        return self.parts[0].family

    @property
    def predicts(self) -> str:
        """What is predicted."""
        return "numbers"

    @property
    def estimator(self) -> str:
        """Name of the estimator of the task."""
        return self.family.estimator

    def require_values(self, names: Collection[str]) -> None:
        """Raise TableError unless all targets are among `names`."""
        require_columns(self.names, names, "A target")

    def require(self, names: Collection[str]) -> None:
        """Nothing but features is needed."""

    def values(self, table: pa.Table, first_row: int = 1) -> Floats:
        """The targets (n, P), NaN where missing."""
        return np.column_stack([_numbers_or_nothing(part, table, first_row) for part in self.parts])

    def known(self, y: Floats) -> np.ndarray:
        """Whether each row of `y` (n, P) has any of the targets."""
        return np.asarray((~np.isnan(y)).any(axis=1))

    def as_labels(self, y: Floats) -> Floats:
        """Numbers as they are."""
        return y

    def beside(self, table: pa.Table, first_row: int = 1, needed: np.ndarray | None = None) -> dict[str, Floats]:
        """Nothing."""
        return {}

    def check(self, y: Floats, beside: Mapping[str, Floats], row: np.ndarray) -> None:
        """Any number is possible."""

    def remark(self, y: Floats) -> str | None:
        """There is no other task."""
        return None

    def renamed(self, names: Sequence[str]) -> Targets:
        """The same under other names."""
        return Targets(tuple(replace(part, name=name) for part, name in zip(self.parts, names, strict=True)))

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description, for the model file."""
        return {"targets": [part.to_json() for part in self.parts]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Targets:
        """The inverse of `to_json`, whatever else is in `data`; ValueError if it is damaged."""
        listed = data.get("targets")
        if isinstance(listed, list) and all(isinstance(part, dict) for part in listed) and "target" not in data:
            parts = tuple(Target.from_json(part) for part in listed)
            with suppress(TableError):
                return cls(parts)
        raise ValueError("The model's description of its targets is damaged.")


def target_of(
    names: Sequence[str], task: str = NUMBER, likelihood: str | None = None, given: Mapping[str, str] | None = None
) -> Target | Targets:
    """What is asked for, before the table was looked at."""
    parts = tuple(Target(name, task, likelihood=likelihood, given=dict(given or {})) for name in names)
    return parts[0] if len(parts) == 1 else Targets(parts)


def target_from_json(data: dict[str, Any]) -> Target | Targets:
    """The target, or the targets, of a model file; ValueError if the description is damaged."""
    return Targets.from_json(data) if "targets" in data else Target.from_json(data)


def target_of_arrays(sections: dict[str, Any]) -> Target | Targets:
    """The target of a model that was fitted to arrays, from the sections of its file; ValueError if it has none."""
    own, described = sections.get("target"), sections.get("family")
    if not isinstance(own, dict) or not isinstance(described, dict):
        raise ValueError("The model's description of its target is damaged.")
    family = family_named(described.get("name"))
    names, given = own.get("names"), own.get("given", [])
    if family.kind == "numbers":
        count = described.get("outputs", 0)
        names = names if isinstance(names, list) and len(names) == count else [f"y{p}" for p in range(count)]
        return Targets(tuple(Target(str(one)) for one in names))
    label = str(names[0]) if isinstance(names, list) and names else "y"
    columns = {what: what for what, beside in family.given.items() if beside.needed or what in given}
    kind = "number"
    if family.kind == "label":
        kind = _KINDS.get(np.dtype(str(own.get("kind"))).kind, "other")
    return Target(label, family.task, kind, family.name, columns)


def shown_labels(classes: np.ndarray) -> tuple[list[Any], list[Any]]:
    """Classes (K,) of a model, as `Target.values` gives them and as they are written: dates in ISO 8601."""
    if classes.dtype.kind == "M":
        found = classes.astype("datetime64[us]").tolist()
        midnight = bool((classes == classes.astype("datetime64[D]")).all())
        return found, [str((one.date() if midnight else one).isoformat()) for one in found]
    labels = [as_whole(label) if isinstance(label, float) else label for label in classes.tolist()]
    return labels, [label if isinstance(label, str | bool | int | float) else str(label) for label in labels]


# --------------------------------------------------------------------------------------------------- learning


def _learned_beside_others(target: Target, table: pa.Table) -> tuple[Target, Floats]:
    """One of several targets, with what the training table says of it, and its values (n,)."""
    values = opened(table.column(target.name))
    if is_empty(values):
        raise TableError(f"The target {target.name!r} has no values: leave it out.")
    if target.task == "auto" and seem_classes(values):
        raise TableError(
            f"The target {target.name!r} has type {values.type}, which is predicted as a class; several targets are "
            "predicted together only if all are numbers. Fit a model of its own to it."
        )
    target = replace(target, task=NUMBER)._written_as(values)
    return target, target._read(values, 1)


# ---------------------------------------------------------------------------------------------------- reading


def _numbers_or_nothing(target: Target, table: pa.Table, first_row: int) -> Floats:
    """The values (n,) of one of several targets, which may be missing in all rows."""
    if pa.types.is_null(table.column(target.name).type):
        return np.full(table.num_rows, np.nan)
    return target.values(table, first_row)
