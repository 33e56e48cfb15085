"""The target of a table, a column or several: which task it asks for, its values, and what it is counted against.

    task             the target is                        beside it            estimator
    ---------------  -----------------------------------  -------------------  ----------------
    regression       a number                                                  GPRegressor
    classification   text, true / false, a whole number                        GPClassifier
    counts           a whole number, 0 or more            an exposure, or not  GPCountRegressor
    binomial         a whole number, 0 to the trials      the trials           GPCountRegressor

"auto" takes text, true / false and categories as classes and everything else as a number. Text of which more than half
are numbers is meant as numbers: what else is in it is pointed at instead of becoming a class.

Several targets are numbers, one regression of all. Some may be missing in a row, which then tells about the others.
`Target` and `Targets` have the same methods, so that only what is made of their values depends on which it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.cells import Floats, flags, is_empty, is_number, is_text, mostly_numbers, numbers, trimmed
from nearfield.families import FAMILIES, Family, tasks
from nearfield.table import TableError, require_columns

MAX_CLASSES = 64
"""Text with more labels than this is taken as classes only when asked for: it may be names or free text."""

_FEW_VALUES = 10
_EXACT = 2.0**53  # the last whole number known to float64
_LABEL_TYPES: dict[str, Any] = {"text": object, "flag": np.bool_, "whole": np.int64}


@dataclass(frozen=True)
class Target:
    """What a model remembers of the column it predicts."""

    name: str
    task: str = "regression"
    kind: str = "number"
    """number; of classes text, flag or whole"""
    exposure: str | None = None
    trials: str | None = None
    constant: dict[str, float] = field(default_factory=dict)
    """what a constant prediction is made of: mean and std, rate and dispersion, or share; classes have none"""

    def learned(self, table: pa.Table) -> tuple[Target, np.ndarray, dict[str, Floats]]:
        """The same with what the training table says: its column checked, and what it is, where the task is "auto".

        Also its values, as `values` gives them, and what is `given`: a table is read once.
        """
        values, name = table.column(self.name), self.name
        task = _choose(values, name) if self.task == "auto" else self.task
        labels = replace(self, task=task).family.kind == "label"
        target = replace(self, task=task, kind=_kind_of_labels(values, name) if labels else "number")
        y = target.values(table)
        _refuse_missing(target.known(y), name)
        if labels:
            _check_labels(y, name)
            return target, y, {}
        given = target.given(table)
        target.check(y, given, np.arange(1, y.size + 1))
        return replace(target, constant=target.family.baseline(y, given)), y, given

    @property
    def names(self) -> list[str]:
        """The columns to predict."""
        return [self.name]

    @property
    def columns(self) -> list[str]:
        """The columns that predictions need beside the features."""
        return [column for column in (self.exposure, self.trials) if column is not None]

    @property
    def family(self) -> type[Family]:
        """The family that stands for the task: its first."""
        return tasks()[self.task][0]

    @property
    def estimator(self) -> str:
        """Name of the estimator of the task."""
        return self.family.estimator

    def require_values(self, names: Collection[str]) -> None:
        """Raise TableError unless the target is among `names`."""
        require_columns(self.names, names, "The target")

    def require(self, names: Collection[str]) -> None:
        """Raise TableError unless `columns` are among `names`."""
        for what, column in (("exposure", self.exposure), ("trials", self.trials)):
            if column is not None:
                require_columns([column], names, f"The column of the {what}")

    def values(self, table: pa.Table, first_row: int = 1) -> np.ndarray:
        """The target (n,): numbers, NaN where missing; or labels as objects, None where missing."""
        column, label = _plain(table.column(self.name)), f"The target {self.name!r}"
        if self.family.kind == "label":
            return _labels(column, self.kind, label, first_row)
        if not (is_number(column.type) or is_text(column.type)):
            raise TableError(f"{label} has type {column.type}; numbers are expected.")
        return numbers(column, label, first_row)

    def known(self, y: np.ndarray) -> np.ndarray:
        """Whether each of `y` (n,), which `values` gave, is there."""
        return np.array([label is not None for label in y]) if y.dtype == object else ~np.isnan(y)

    def as_labels(self, y: np.ndarray) -> np.ndarray:
        """Labels without gaps (n,), in the type that they have in Python; numbers as they are."""
        return y.astype(_LABEL_TYPES[self.kind]) if self.family.kind == "label" else y

    def given(self, table: pa.Table, first_row: int = 1, needed: np.ndarray | None = None) -> dict[str, Floats]:
        """exposure or trials (n,), by name, where the model has them; only `needed` rows (n,) are checked."""
        found = {}
        for what, column in (("exposure", self.exposure), ("trials", self.trials)):
            if column is None:
                continue
            label = f"The {what} {column!r}"
            values = _numeric(table.column(column), label, first_row)
            bad = ~(values > 0) if what == "exposure" else ~((values >= 1) & (values == np.floor(values)))
            bad = bad if needed is None else bad & needed
            expected = "a number above 0" if what == "exposure" else "a whole number of at least 1"
            _refuse_first(bad, values, np.arange(first_row, first_row + values.size), label, expected)
            found[what] = values
        return found

    def check(self, y: Floats, given: dict[str, Floats], row: np.ndarray) -> None:
        """Raise TableError unless the numbers `y` (n,), of the rows `row` (n,), are possible for the task."""
        if self.family.kind != "count":
            return
        label = f"The target {self.name!r}"
        _refuse_first((y < 0) | (y != np.floor(y)), y, row, label, "a count, a whole number of at least 0,")
        if "trials" in given:
            _refuse_first(y > given["trials"], y, row, label, f"at most the trials {self.trials!r}")

    def remark(self, y: np.ndarray) -> str | None:
        """Which task was taken, and how to choose another, where the values y (n,) leave a doubt."""
        if self.columns:
            option = "--trials" if self.trials else "--exposure"
            return f"{option} is given, so the target {self.name!r} is taken as --task {self.task}."
        if self.family.kind != "number":
            return None
        different = np.unique(y)
        if different.size < 2 or different.size > _FEW_VALUES or (different != np.floor(different)).any():
            return None
        counts = ", or --task counts if they are counts" if different[0] >= 0 else ""
        return (
            f"the target {self.name!r} has {different.size} different values, all whole, and is taken as "
            f"--task regression; give --task classification if they are classes{counts}."
        )

    def renamed(self, names: Sequence[str]) -> Target:
        """The same under another name."""
        return replace(self, name=names[0])

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description, for the model file."""
        described = asdict(self)
        return {"target": described.pop("name"), **described}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Target:
        """The inverse of `to_json`, whatever else is in `data`; ValueError if it is damaged."""
        name, task, kind = data.get("target"), data.get("task", "regression"), data.get("kind", "number")
        exposure, trials, constant = data.get("exposure"), data.get("trials"), data.get("constant", {})
        sound = (
            isinstance(name, str)
            and isinstance(task, str)
            and task in tasks()
            and _sound(tasks()[task][0], kind, {"exposure": exposure, "trials": trials}, constant)
            and all(isinstance(value, int | float) and math.isfinite(value) for value in constant.values())
        )
        if not sound:
            raise ValueError("The model's description of its target is damaged.")
        return cls(str(name), task, kind, exposure, trials, constant)


def _sound(family: type[Family], kind: Any, given: dict[str, Any], constant: Any) -> bool:
    """Whether what a file says of a target goes with the family of its task."""
    kinds = list(_LABEL_TYPES) if family.kind == "label" else ["number"]
    columns = all(
        column is None or (isinstance(column, str) and name in family.given) for name, column in given.items()
    )
    needed = family.kind != "count" or "trials" not in family.given or given["trials"] is not None
    return (
        kind in kinds
        and columns
        and needed
        and isinstance(constant, dict)
        and (set(constant) == set(family.baseline_names) or (family.kind == "number" and not constant))
    )


@dataclass(frozen=True)
class Targets:
    """Two or more columns of numbers that one model predicts: `Target`, for values (n, P) with NaN where missing."""

    parts: tuple[Target, ...]

    def __post_init__(self) -> None:
        numbers = all(part.task in ("auto", "regression") and not part.columns for part in self.parts)
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
        return "regression"

    @property
    def family(self) -> type[Family]:
        """The family of several targets."""
        return next(family for family in FAMILIES.values() if family.kind == "numbers")

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

    def given(self, table: pa.Table, first_row: int = 1, needed: np.ndarray | None = None) -> dict[str, Floats]:
        """Nothing: there is no exposure and there are no trials."""
        return {}

    def check(self, y: Floats, given: dict[str, Floats], row: np.ndarray) -> None:
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
                if all(part.constant for part in parts):
                    return cls(parts)
        raise ValueError("The model's description of its targets is damaged.")


def target_of(
    names: Sequence[str], task: str = "regression", exposure: str | None = None, trials: str | None = None
) -> Target | Targets:
    """What is asked for, before the table was looked at."""
    parts = tuple(Target(name, task, exposure=exposure, trials=trials) for name in names)
    return parts[0] if len(parts) == 1 else Targets(parts)


def target_from_json(data: dict[str, Any]) -> Target | Targets:
    """The target, or the targets, of a model file; ValueError if the description is damaged."""
    return Targets.from_json(data) if "targets" in data else Target.from_json(data)


def target_of_arrays(sections: dict[str, Any]) -> Target | Targets:
    """The target of a model that was fitted to arrays, from the sections of its file; ValueError if it has none."""
    own, described = sections.get("target"), sections.get("family")
    name = described.get("name") if isinstance(described, dict) else None
    if name not in FAMILIES or not isinstance(own, dict) or not isinstance(described, dict):
        raise ValueError("The model's description of its target is damaged.")
    family = FAMILIES[name]
    names, given = own.get("names"), own.get("given", [])
    if family.kind == "numbers":
        count = described.get("outputs", 0)
        names = names if isinstance(names, list) and len(names) == count else [f"y{p}" for p in range(count)]
        return Targets(tuple(Target(str(one)) for one in names))
    label = str(names[0]) if isinstance(names, list) and names else "y"
    columns = {what: what for what in family.given if what == "trials" or what in given}
    kind = "number"
    if family.kind == "label":
        kind = {"O": "text", "b": "flag", "i": "whole", "u": "whole"}.get(np.dtype(str(own.get("kind"))).kind, "")
        if not kind:
            raise ValueError("The model's classes are neither text, true/false nor whole numbers: use it from Python.")
    return Target(label, family.task, kind, columns.get("exposure"), columns.get("trials"))


# --------------------------------------------------------------------------------------------------- learning


def _choose(values: pa.ChunkedArray, name: str) -> str:
    """The task of a column when nothing else is said."""
    if not _seem_classes(values):
        return "regression"
    n = len(pc.unique(trimmed(values)[0])) if is_text(values.type) else 0
    if n > MAX_CLASSES:
        raise TableError(
            f"The target {name!r} is text with {n} different values; if each of them is a class, give "
            "--task classification."
        )
    return "classification"


def _seem_classes(values: pa.ChunkedArray) -> bool:
    """Whether a column is true/false, categories, or text that is not mostly numbers."""
    if is_text(values.type):
        return not mostly_numbers(values)
    return pa.types.is_boolean(values.type) or pa.types.is_dictionary(values.type)


def _learned_beside_others(target: Target, table: pa.Table) -> tuple[Target, Floats]:
    """One of several targets, with what the training table says of it, and its values (n,)."""
    values = table.column(target.name)
    if is_empty(values):
        raise TableError(f"The target {target.name!r} has no values: leave it out.")
    if target.task == "auto" and _seem_classes(values):
        raise TableError(
            f"The target {target.name!r} has type {values.type}, which is predicted as a class; several targets are "
            "predicted together only if all are numbers. Fit a model of its own to it."
        )
    target = replace(target, task="regression")
    y = target.values(table)
    return replace(target, constant=target.family.baseline(y[target.known(y)], {})), y


def _kind_of_labels(values: pa.ChunkedArray, name: str) -> str:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if is_text(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "flag"
    if is_number(kind):
        return "whole"
    raise TableError(f"The target {name!r} has type {kind}; classes are text, true/false or whole numbers.")


def _check_labels(y: np.ndarray, name: str) -> None:
    """Raise TableError unless the labels y (n,) are two or more, and whole where they are numbers."""
    different = set(y.tolist())
    fractions = [row for row, label in enumerate(y.tolist(), 1) if isinstance(label, float)]
    if fractions:
        raise TableError(
            f"The target {name!r} has {y[fractions[0] - 1]:g} in row {fractions[0]}; classes are text, true/false or "
            "whole numbers. To predict a number give --task regression."
        )
    if len(different) < 2:
        raise TableError(f"The target {name!r} is {different.pop()!r} in every row; at least two classes are needed.")


def _refuse_missing(known: np.ndarray, name: str) -> None:
    missing = np.flatnonzero(~known)
    if missing.size:
        raise TableError(
            f"The target {name!r} is missing in {missing.size} of {known.size} rows, first in row {missing[0] + 1}; "
            "remove those rows before fitting."
        )


# ---------------------------------------------------------------------------------------------------- reading


def _labels(values: pa.ChunkedArray, kind: str, label: str, first_row: int) -> np.ndarray:
    """(n,) objects, None where missing: str, bool, or int (float where a number is not whole)."""
    if kind == "text":
        try:
            text, missing = trimmed(values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TableError(f"{label} has type {values.type}; text is expected, as in training.") from error
        return np.array(pc.if_else(missing, None, text).to_numpy(zero_copy_only=False), dtype=object)
    found = (flags if kind == "flag" else numbers)(values, label, first_row)
    bad = np.abs(found - 0.5) != 0.5 if kind == "flag" else np.abs(found) >= _EXACT
    expected = "true or false" if kind == "flag" else "a whole number below 2^53, or text,"
    _refuse_first(bad & ~np.isnan(found), found, np.arange(first_row, first_row + found.size), label, expected)
    as_label = bool if kind == "flag" else _as_whole
    return np.array([None if math.isnan(value) else as_label(value) for value in found.tolist()], dtype=object)


def _as_whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _numbers_or_nothing(target: Target, table: pa.Table, first_row: int) -> Floats:
    """The values (n,) of one of several targets, which may be missing in all rows."""
    if pa.types.is_null(table.column(target.name).type):
        return np.full(table.num_rows, np.nan)
    return target.values(table, first_row)


def _numeric(values: pa.ChunkedArray, label: str, first_row: int) -> Floats:
    values = _plain(values)
    if not (is_number(values.type) or is_text(values.type)):
        raise TableError(f"{label} has type {values.type}; numbers are expected.")
    return numbers(values, label, first_row)


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without a dictionary."""
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _refuse_first(bad: np.ndarray, values: Floats, row: np.ndarray, label: str, expected: str) -> None:
    """Raise TableError for the first of the `bad` values (n,), if there is one."""
    places = np.flatnonzero(bad)
    if places.size:
        value = values[places[0]]
        has = "is missing" if math.isnan(value) else f"is {value:g}"
        more = f" (and {places.size - 1} more are like it)" if places.size > 1 else ""
        raise TableError(f"{label} {has} in row {row[places[0]]}{more}; {expected} is expected.")
