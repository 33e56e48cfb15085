"""A table of the command line: which columns are the target, which are given beside it, and which are features."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearfield.arrow_columns import ArrowColumns, named
from nearfield.cells import Floats, refuse, texts
from nearfield.column_values import DAY, MISSING, TableError, TableWarning
from nearfield.encoding import TableEncoder
from nearfield.forms import Form
from nearfield.rules import Tally
from nearfield.table import require_columns
from nearfield.target import NUMBER, Target, Targets, target_from_json, target_of, target_of_arrays


@dataclass(frozen=True)
class TrainingTable:
    """A table, taken apart: the target with what the table says of it, its values, and what is given beside it."""

    target: Target | Targets
    columns: ArrowColumns
    y: np.ndarray
    beside: dict[str, Floats]


def training_table(
    table: pa.Table,
    target: str | Sequence[str],
    drop: Collection[str] = (),
    *,
    task: str = NUMBER,
    likelihood: str | None = None,
    given: Mapping[str, str] = MappingProxyType({}),
    dates: str | None = None,
    odd: str = "error",
) -> TrainingTable:
    """Take a table apart; columns in `drop`, and those without a name, are no features.

    The task is one that a family names, or "auto", the likelihood a family of it, by default the first; `given` are
    columns that the target is counted against, such as an exposure, which are no features. `dates` and `odd` are those
    of `forms.form_of`.
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
    left, unnamed = named([name for name in table.column_names if name not in apart and name not in drop])
    if unnamed:
        warnings.warn(
            "A column without a name, as pandas writes its row index, is left out.", TableWarning, stacklevel=2
        )
    if not left:
        raise TableError(f"The table has no columns to predict {', '.join(map(repr, targets))} from.")
    learned, y, beside = asked.learned(table)
    return TrainingTable(learned, ArrowColumns(table.select(left), dates=dates, odd=odd), y, beside)


def group_labels(table: pa.Table, groups: str) -> str | np.ndarray:
    """What the estimators take as groups: the word auto, or the labels (n,) in the column `groups`, as text."""
    if groups == "auto":
        return groups
    require_columns([groups], table.column_names, "The column of --groups")
    label = f"Column {groups!r}, of groups,"
    labels = texts(table.column(groups), label)
    refuse(labels, pc.equal(labels, MISSING), label, 1, "a label")
    return np.asarray(labels.to_numpy(zero_copy_only=False), dtype=object)


def time_values(table: pa.Table, time: str, dates: str | None, odd: str) -> np.ndarray:
    """What the estimators take as times, of a column that is no feature: dates, or numbers (n,), NaN where missing."""
    require_columns([time], table.column_names, "The column of --time")
    columns = ArrowColumns(table.select([time]), dates=dates, odd=odd)
    kind = columns.kind(time)
    if kind == "text":
        raise TableError(f"Column {time!r}, of times, holds text: dates or numbers are expected.")
    values: np.ndarray = columns.read(time, kind, columns.form(time))
    if kind != "date":
        return values
    there = np.isfinite(values)
    found = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    found[there] = np.round(values[there] * DAY).astype(np.int64).astype("datetime64[us]")
    return found


@dataclass(frozen=True)
class TableReader:
    """What a model needs of later tables: its target, and the encoder of its features."""

    target: Target | Targets
    encoder: TableEncoder

    @classmethod
    def of_sections(cls, sections: dict[str, Any]) -> TableReader:
        """From the sections of a model file, of the command line or of Python.

        Columns without names are called x0, x1, ..; a target without one y, or y0, y1, ..
        """
        table = sections.get("table")
        described = isinstance(table, dict) and ("target" in table or "targets" in table)
        target = target_from_json(sections["table"]) if described else target_of_arrays(sections)
        encoder = _encoder_of_arrays(sections) if table is None else TableEncoder.from_json(table)
        for rule in encoder.rules_:
            if rule.form and not Form(rule.read_as, rule.form).sound:
                raise ValueError(f"The model's description of column {rule.name!r} is damaged.")
        reader = cls(target, encoder)
        apart = [*target.names, *target.columns]
        if described and len({*apart, *reader.column_names}) < len(apart) + len(reader.column_names):
            raise ValueError("The model's description of its table names a column twice.")
        return reader

    def with_targets(self, names: Sequence[str]) -> TableReader:
        """The same with other names of the columns that hold the target or targets."""
        if not names:
            return self
        if len(names) != len(self.target.names):
            raise TableError(f"{len(names)} targets are named; the model has {len(self.target.names)}.")
        return TableReader(self.target.renamed(names), self.encoder)

    @property
    def column_names(self) -> list[str]:
        """Names of the table's columns that are used, without the target."""
        return self.encoder.needed

    def check_columns(self, names: Collection[str], *, target: bool = False) -> None:
        """Raise TableError unless all columns needed, and with `target` the target too, are among `names`."""
        if target:
            self.target.require_values(names)
        self.target.require(names)
        require_columns(self.column_names, names, "A column of the training table")

    def transform(self, table: pa.Table | pa.RecordBatch, first_row: int = 1, tally: Tally | None = None) -> Floats:
        """The features (n, m) of a table.

        For one block of many, `first_row` is the number of its first row and `tally` counts over all of them; the
        caller then calls `tally.warn()` at the end.
        """
        require_columns(self.column_names, table.schema.names, "A column of the training table")
        return self.encoder.encode(ArrowColumns(table, first_row, tally))

    def target_values(self, table: pa.Table | pa.RecordBatch, first_row: int = 1) -> np.ndarray:
        """The target (n,): numbers, NaN where missing; or labels as objects, None where missing; targets (n, P)."""
        self.target.require_values(table.schema.names)
        whole = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        return self.target.values(whole, first_row)


def _encoder_of_arrays(sections: dict[str, Any]) -> TableEncoder:
    """For a model of complete arrays, of a version that kept no description of them."""
    names, d = sections["estimator"].get("columns"), sections.get("summary", {}).get("columns")
    if names is None and isinstance(d, int):
        names = [f"x{i}" for i in range(d)]
    if not isinstance(names, list) or len(set(map(str, names))) < len(names):
        raise ValueError("The model's description of its columns is damaged, or names one twice.")
    return TableEncoder.of_numbers(names)
