"""What a table of accuracy is, what may be asked of it, and the cells that several tables have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.data import available, load, load_array, split
from experiments.scoring import fit_and_score, fit_and_score_outputs
from experiments.summaries import Summary
from experiments.task import Entry, Payload, Task

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Wanted:
    """What the user asked for; None is the table's own choice.

    `rows` are "test", or "validation", on which choices between variants are made. `by` names an array of the file
    whose values are kept together in a split. `settings` are further arguments of the estimator.
    """

    data: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    rows: str | None = None
    by: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    openml: bool = False


Lines = Callable[[Wanted], Iterator[Sequence[str]]]
"""Cells of one line after the other, as soon as they are known; `data` and `seeds` are filled in."""


@dataclass(frozen=True)
class Table:
    """A table of docs/results. `takes` are the names of what may be asked of it, beside data sets and seeds."""

    name: str
    about: str
    head: Sequence[str]
    lines: Lines
    data: Sequence[str] = ()  # none: it makes its own
    seeds: Sequence[int] = SEEDS
    takes: frozenset[str] = frozenset()

    def markdown(self, wanted: Wanted) -> Iterator[str]:
        """Head and lines. Data sets that are not there are left out, unless they were asked for."""
        self._check(wanted)
        data = wanted.data or [name for name in self.data if available(name, wanted.openml)]
        if self.data and not data:
            raise FileNotFoundError(f"None of {', '.join(self.data)} is there: set NEARFIELD_DATA to their folder.")
        yield row(self.head)
        yield "|---" * len(self.head) + "|"
        for cells in self.lines(replace(wanted, data=data, seeds=wanted.seeds or self.seeds)):
            yield row(cells)

    def _check(self, wanted: Wanted) -> None:
        asked = {"rows": wanted.rows, "by": wanted.by, "set": wanted.settings}
        refused = [name for name, value in asked.items() if value and name not in self.takes]
        refused += ["data"] if wanted.data and not self.data else []
        if refused:
            raise ValueError(f"{self.name} takes no {', '.join(f'--{name}' for name in refused)}.")


def row(cells: Iterable[str]) -> str:
    """One line of Markdown."""
    return f"| {' | '.join(cells)} |"


def cell(values: Iterable[float], digits: int = 4) -> str:
    """The mean of the seeds, and its standard error where there are several."""
    summary = Summary(tuple(values))
    error = summary.standard_error
    return f"{summary.mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def metric(fits: Sequence[Payload], name: str, digits: int = 4) -> str:
    """A cell of a metric."""
    return cell((fit["metrics"][name] for fit in fits), digits)


def chosen(fits: Sequence[Payload], name: str) -> str:
    """What each fit chose."""
    return ", ".join(str(fit["chosen"][name]) for fit in fits)


def seconds(fits: Sequence[Payload]) -> str:
    """A cell of the seconds of the fits."""
    return cell((fit["seconds"]["fit"] for fit in fits), 0)


def fitted(method: str, data: str, wanted: Wanted, **options: Any) -> list[Payload]:
    """One fit and its scores for each seed, by a method of the registry with these options."""
    X, y = load(data, wanted.openml)
    groups = load_array(data, wanted.by) if wanted.by else None
    entry = Entry(method, method, options={**options, **wanted.settings})
    score = fit_and_score if y.ndim == 1 else fit_and_score_outputs
    return [
        score(Task("", entry, data, seed), split(X, y, seed, groups=groups).scored_on(wanted.rows or "test"))
        for seed in wanted.seeds or SEEDS
    ]
