"""The nouns of a run: an experiment has entries (columns of its tables) and data sets; a task is one fit of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

TWINS = "-twins"
"""Ending of the names of data sets with noisy replicates."""

LEAKLESS = "-leakless"
"""Ending of the names of data sets without the columns that give their target away."""


@dataclass(frozen=True)
class Entry:
    """One column of a table: a method of the registry with options, and the column of the paper it stands beside.

    A variant is not the paper's method but one of ours made from it.
    """

    name: str
    method: str
    paper: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: bool = False


@dataclass(frozen=True)
class Task:
    """One fit: what is fitted, to which data, and how much of it.

    `limit` is in seconds. `deadline` is the `time.monotonic()` by which the fit should end by itself, shortly before
    its process is ended.
    """

    experiment: str
    entry: Entry
    data: str
    split: int
    quick: bool = False
    limit: float = 3600.0
    openml: bool = False
    threads: int | None = None
    deadline: float | None = None

    def ends(self) -> float:
        """The deadline; without one, the limit counts from now."""
        return time.monotonic() + self.limit if self.deadline is None else self.deadline


Payload = dict[str, Any]
"""What a run adds to the result file: rows, seconds, metrics, chosen, and what else its figures need."""


@dataclass(frozen=True)
class Experiment:
    """One section of the paper, with what is compared in it."""

    name: str
    title: str
    about: str
    where: str  # "module:function" that does one task
    entries: tuple[Entry, ...]
    data: tuple[str, ...]
    kind: str = "regression"
    splits: int = 3
    quick_data: tuple[str, ...] = ()  # fewer data sets for a quick look; all if empty
    metrics: tuple[str, ...] = ()
    paper: str = ""  # name of its file in paper/
    from_files: bool = True  # whether `data` are names of files, or are made by the experiment

    def run(self, task: Task) -> Payload:
        """Do one task; the module is imported only now, in the process of that task."""
        module, function = self.where.split(":")
        do: Callable[[Task], Payload] = getattr(import_module(f"experiments.{module}"), function)
        return do(task)

    @property
    def takes_any(self) -> bool:
        """Whether any method that can do the task may be a column, not only the entries."""
        return self.where.startswith("tables:")

    def entry(self, name: str) -> Entry:
        """The entry of that name, or a method of the registry without options."""
        return next((entry for entry in self.entries if entry.name == name), Entry(name, name))
