"""What a model remembers of its training table, so that every later table becomes the same numbers.

    in the training table            in the model
    -------------------------------  --------------------------------------------------------------------------
    integers, floats, decimals       one feature
    true / false                     one feature, 1 / 0
    dates and timestamps             one feature, days since 1970-01-01 (UTC where a zone is given)
    missing in any of those          the median of the training rows, and one more feature "<column>_missing", 1 / 0
    text, categories                 one feature "<column>=<level>" for each level, 1 / 0; "(missing)" is a level
    no name, or not one value        left out, with a warning (a row index that pandas wrote has no name)

Later tables may have their columns in any order and further ones besides. A level that training did not see is all
zeros, and a missing value in a column that had none is the median; both are counted in one warning.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.cells import (
    MISSING,
    READERS,
    Cells,
    Floats,
    Text,
    is_empty,
    is_number,
    is_text,
    odd_among_numbers,
    opened,
    refuse,
    texts,
)
from nearfield.table import TableError, TableWarning, require_columns
from nearfield.target import NUMBER, Target, Targets, target_from_json, target_of, target_of_arrays

MAX_LEVELS = 64
"""Text columns with more levels than this are refused: they are names or free text rather than categories."""

_FORMAT = 1  # of the JSON form
_UNNAMED = ("", "__index_level_0__")  # a row index that pandas wrote to CSV, to Parquet


@dataclass
class Tally:
    """What had to be filled in, by column; one warning for all blocks of a table."""

    unseen: Counter[str] = field(default_factory=Counter)
    imputed: Counter[str] = field(default_factory=Counter)

    def warn(self) -> None:
        """Emit one TableWarning if anything was counted."""
        unseen = "{} values of column {!r} are levels not seen in training (taken as none)"
        imputed = "{} values of column {!r}, complete in training, are missing (median taken)"
        pairs = [(unseen, self.unseen), (imputed, self.imputed)]
        said = [phrase.format(n, column) for phrase, counts in pairs for column, n in counts.items() if n]
        if said:
            warnings.warn("; ".join(said) + ".", TableWarning, stacklevel=3)


@dataclass(frozen=True)
class Column:
    """One column of the training table."""

    name: str
    kind: str
    """number, flag, date or text"""
    median: float = 0.0
    indicator: bool = False
    """whether missing values have a feature of their own"""
    levels: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """Names of the features it becomes."""
        if self.kind == "text":
            return [f"{self.name}={level}" for level in self.levels]
        return [self.name, f"{self.name}_missing"] if self.indicator else [self.name]

    def encode(self, cells: Any, out: Floats, tally: Tally) -> None:
        """Fill `out` (n, len(features)), which is zero, with what the parsed cells (n) become."""
        if self.kind == "text":
            index = pc.index_in(cells, value_set=pa.array(self.levels, pa.large_string()))
            level = pc.fill_null(index, -1).to_numpy()
            known = np.flatnonzero(level >= 0)
            out[known, level[known]] = 1.0
            tally.unseen[self.name] += len(level) - len(known)
            return
        missing = np.isnan(cells)
        if missing.any() and math.isnan(self.median):
            raise TableError(
                f"Column {self.name!r} has {int(missing.sum())} missing values, but the model was fitted to complete "
                "arrays: fill them in."
            )
        out[:, 0] = np.where(missing, self.median, cells)
        if self.indicator:
            out[:, 1] = missing
        else:
            tally.imputed[self.name] += int(missing.sum())


def parsed(kind: str, name: str, values: Cells, first_row: int = 1) -> Any:
    """The cells (n) of a column of that kind: text without nulls, or numbers with NaN where missing."""
    label = f"Column {name!r}"
    return texts(values, label) if kind == "text" else READERS[kind](values, label, first_row)


def group_labels(table: pa.Table, groups: str) -> str | np.ndarray:
    """What `GPRegressor.fit` takes as groups: the word auto, or a number (n,) for each label in the column `groups`."""
    if groups == "auto":
        return groups
    require_columns([groups], table.column_names, "The column of --groups")
    label = f"Column {groups!r}, of groups,"
    labels = texts(table.column(groups), label)
    refuse(labels, pc.equal(labels, MISSING), label, 1, "a label")
    return np.asarray(labels.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class TableEncoder:
    """Turns tables into arrays, the way it was learned on the training table."""

    target: Target | Targets
    columns: tuple[Column, ...]

    @classmethod
    def fit(
        cls,
        table: pa.Table,
        target: str | Sequence[str],
        drop: Collection[str] = (),
        *,
        task: str = NUMBER,
        likelihood: str | None = None,
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> TableEncoder:
        """Decide for each column of `table`, but the target or targets and those in `drop`, which features it becomes.

        The task is one that a family names, or "auto", the likelihood a family of it, by default the first; `given` are
        columns that the target is counted against, such as an exposure, which are no features.
        """
        return cls.fit_transform(table, target, drop, task=task, likelihood=likelihood, given=given)[0]

    @classmethod
    def fit_transform(
        cls,
        table: pa.Table,
        target: str | Sequence[str],
        drop: Collection[str] = (),
        *,
        task: str = NUMBER,
        likelihood: str | None = None,
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[TableEncoder, Floats, np.ndarray, dict[str, Floats]]:
        """The same, and what the table becomes: features (n, d), the target's values, and what is given beside it.

        Every cell is parsed once.
        """
        if table.num_rows == 0:
            raise TableError("The table has no rows.")
        targets = [target] if isinstance(target, str) else list(target)
        asked = target_of(targets, task, likelihood, given)
        asked.require_values(table.column_names)
        asked.require(table.column_names)
        require_columns(drop, table.column_names, "A column to drop")
        apart = dict.fromkeys(targets, "the target" if len(targets) == 1 else "one of the targets")
        for what, name in given.items():
            if name in apart:
                raise TableError(f"Column {name!r} is {apart[name]}; it cannot be the {what} as well.")
            apart[name] = f"the {what}"
        for name, what in apart.items():
            if name in drop:
                raise TableError(f"Column {name!r} is {what}; it cannot be dropped.")
        columns = {name: table.column(name) for name in table.column_names if name not in apart and name not in drop}
        usable = _usable(columns)
        if not usable:
            raise TableError(f"The table has no columns to predict {', '.join(map(repr, targets))} from.")
        learned, y, beside = asked.learned(table)
        kinds = {name: _kind(name, values.type) for name, values in usable.items()}
        cells = {name: parsed(kind, name, usable[name]) for name, kind in kinds.items()}
        encoder = cls(learned, tuple(_learn(name, kind, usable[name], cells[name]) for name, kind in kinds.items()))
        return encoder, encoder._encoded(cells, table.num_rows, Tally()), y, beside

    @classmethod
    def of_arrays(cls, sections: dict[str, Any]) -> TableEncoder:
        """For a model that was fitted to arrays in Python, from the sections of its file: its columns, all of numbers.

        Columns without names are called x0, x1, ..; a target without one y, or y0, y1, ..
        """
        names, d = sections["estimator"].get("columns"), sections.get("summary", {}).get("columns")
        if names is None and isinstance(d, int):
            names = [f"x{i}" for i in range(d)]
        if not isinstance(names, list) or len(set(map(str, names))) < len(names):
            raise ValueError("The model's description of its columns is damaged, or names one twice.")
        columns = tuple(Column(str(name), "number", median=math.nan) for name in names)
        return cls(target_of_arrays(sections), columns)

    def with_targets(self, names: Sequence[str]) -> TableEncoder:
        """The same with other names of the columns that hold the target or targets."""
        if not names:
            return self
        if len(names) != len(self.target.names):
            raise TableError(f"{len(names)} targets are named; the model has {len(self.target.names)}.")
        return TableEncoder(self.target.renamed(names), self.columns)

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of the array that `transform` gives."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def column_names(self) -> list[str]:
        """Names of the table's columns that are used, without the target."""
        return [column.name for column in self.columns]

    def check_columns(self, names: Collection[str], *, target: bool = False) -> None:
        """Raise TableError unless all columns needed, and with `target` the target too, are among `names`."""
        if target:
            self.target.require_values(names)
        self.target.require(names)
        self._check_features(names)

    def _check_features(self, names: Collection[str]) -> None:
        require_columns(self.column_names, names, "A column of the training table")

    def transform(self, table: pa.Table | pa.RecordBatch, first_row: int = 1, tally: Tally | None = None) -> Floats:
        """The features of `table`, (n, d).

        For one block of many, `first_row` is the number of its first row and `tally` counts over all of them; the
        caller then calls `tally.warn()` at the end.
        """
        self._check_features(table.schema.names)
        table = _as_table(table)
        own = Tally() if tally is None else tally
        cells = {c.name: parsed(c.kind, c.name, opened(table.column(c.name)), first_row) for c in self.columns}
        out = self._encoded(cells, table.num_rows, own)
        if tally is None:
            own.warn()
        return out

    def _encoded(self, cells: dict[str, Any], n: int, tally: Tally) -> Floats:
        """The features (n, d) of parsed cells."""
        out = np.zeros((n, len(self.feature_names)))
        start = 0
        for column in self.columns:
            stop = start + len(column.features)
            column.encode(cells[column.name], out[:, start:stop], tally)
            start = stop
        return out

    def target_values(self, table: pa.Table | pa.RecordBatch, first_row: int = 1) -> np.ndarray:
        """The target (n,): numbers, NaN where missing; or labels as objects, None where missing; targets (n, P)."""
        self.target.require_values(table.schema.names)
        return self.target.values(_as_table(table), first_row)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description, for the model file."""
        columns = [
            {"name": c.name, "kind": c.kind, "median": c.median, "indicator": c.indicator, "levels": list(c.levels)}
            for c in self.columns
        ]
        return {"format": _FORMAT, **self.target.to_json(), "columns": columns}

    @classmethod
    def from_json(cls, data: Any) -> TableEncoder:
        """The inverse of `to_json`; ValueError if `data` is anything else."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ValueError(f"The model's description of its table is not of format {_FORMAT}.")
        columns = data.get("columns")
        targets = "targets" in data or isinstance(data.get("target"), str)
        if not targets or not isinstance(columns, list) or not columns:
            raise ValueError("The model's description of its table lacks the target or the columns.")
        encoder = cls(target_from_json(data), tuple(map(_column_from_json, columns)))
        apart = [*encoder.target.names, *encoder.target.columns]
        if len({*apart, *encoder.column_names}) < len(apart) + len(columns):
            raise ValueError("The model's description of its table names a column twice.")
        return encoder


# --------------------------------------------------------------------------------------------------- learning


def _usable(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, Cells]:
    """Those columns that have a name and values, ready to be read; a warning tells about the others."""
    if not set(_UNNAMED).isdisjoint(columns):
        _warn("A column without a name, as pandas writes its row index, is left out.")
    named = {name: opened(values) for name, values in columns.items() if name not in _UNNAMED}
    empty = [name for name, values in named.items() if is_empty(values)]
    if empty:
        _warn(f"Columns without a single value are left out: {', '.join(map(repr, empty))}.")
    return {name: values for name, values in named.items() if name not in empty}


def _learn(name: str, kind: str, values: Cells, cells: Any) -> Column:
    """What is remembered of a column, from its values and the parsed cells."""
    if kind == "text":
        return Column(name, kind, levels=_levels(name, values, cells))
    return Column(name, kind, median=float(np.nanmedian(cells)), indicator=bool(np.isnan(cells).any()))


def _kind(name: str, kind: pa.DataType) -> str:
    if is_text(kind) or pa.types.is_dictionary(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "flag"
    if is_number(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    binary = pa.types.is_binary(kind)
    what = "is not UTF-8 text" if binary else f"has type {kind}, which cannot be used"
    hint = "convert the file, for example with iconv -f latin1 -t utf8" if binary else "convert it to numbers or text"
    raise TableError(f"Column {name!r} {what}: {hint}, or leave it out (--drop {name}).")


def _levels(name: str, values: Cells, cells: pa.ChunkedArray) -> tuple[str, ...]:
    levels = sorted(pc.unique(cells).to_pylist())
    odd = odd_among_numbers(values) if isinstance(values, Text) else None
    if len(levels) > MAX_LEVELS:
        reason = odd or f"is text with {len(levels)} levels; at most {MAX_LEVELS} are one-hot encoded"
        raise TableError(f"Column {name!r} {reason}: correct or encode it, or leave it out (--drop {name}).")
    if odd:
        _warn(f"Column {name!r} {odd}: it is taken as text with {len(levels)} levels.")
    return tuple(levels)


# -------------------------------------------------------------------------------------------------- small things


def _column_from_json(data: Any) -> Column:
    try:
        column = Column(data["name"], data["kind"], data["median"], data["indicator"], tuple(data["levels"]))
    except (TypeError, KeyError) as error:
        raise ValueError("The model's description of a column is incomplete.") from error
    numeric = column.kind in READERS
    sound = (
        isinstance(column.name, str)
        and (numeric or column.kind == "text")
        and isinstance(column.median, int | float)
        and math.isfinite(column.median)
        and isinstance(column.indicator, bool)
        and all(isinstance(level, str) for level in column.levels)
        and len(set(column.levels)) == len(column.levels)
        and numeric == (not column.levels)
    )
    if not sound:
        raise ValueError(f"The model's description of column {column.name!r} is damaged.")
    return column


def _as_table(table: pa.Table | pa.RecordBatch) -> pa.Table:
    return table if isinstance(table, pa.Table) else pa.Table.from_batches([table])


def _warn(message: str) -> None:
    warnings.warn(message, TableWarning, stacklevel=4)
