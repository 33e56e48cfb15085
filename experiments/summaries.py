"""Means, standard errors, ranks and winners of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from experiments.process import DONE

Result = Mapping[str, Any]
Key = tuple[str, str]
"""Data set and entry."""

NOT_RUN = "not run"

NOMINAL = {"coverage_90": 0.9}
"""Metrics that should equal a number; all others should be low."""


@dataclass(frozen=True)
class Summary:
    """A metric over the splits that have it. `missing` says of each of the others why it has none."""

    values: tuple[float, ...]
    missing: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.values)) if self.values else None

    @property
    def standard_error(self) -> float | None:
        """Of the mean; unknown with one split."""
        n = len(self.values)
        return float(np.std(self.values, ddof=1) / np.sqrt(n)) if n > 1 else None


def value_of(result: Result, metric: str) -> float | None:
    """None where the fit did not end, or where the metric is not finite."""
    found: float | None = result.get("metrics", {}).get(metric) if result["status"] == DONE else None
    return found


def summarise(results: Iterable[Result], metric: str) -> dict[Key, Summary]:
    """One summary for each data set and entry; it misses the splits that another entry has of the same data."""
    results = list(results)
    splits: dict[str, set[int]] = {}
    for result in results:
        splits.setdefault(result["data"], set()).add(result["split"])
    cells: dict[Key, tuple[list[float], list[str]]] = {}
    for result in results:
        values, missing = cells.setdefault((result["data"], result["entry"]), ([], []))
        value = value_of(result, metric)
        if value is None:
            missing.append(result["status"] if result["status"] != DONE else "not finite")
        else:
            values.append(value)
    for (data, _), (values, missing) in cells.items():
        missing += [NOT_RUN] * (len(splits[data]) - len(values) - len(missing))
    return {key: Summary(tuple(values), tuple(missing)) for key, (values, missing) in cells.items()}


def loss(value: float, metric: str) -> float:
    """What should be low: the metric, or its distance from where it should be."""
    return abs(value - NOMINAL[metric]) if metric in NOMINAL else value


def winners(row: Mapping[str, Summary], metric: str) -> set[str]:
    """The entry with the lowest mean, and those whose interval of one standard error overlaps with its own.

    This is how the paper's tables are set in bold. Entries that miss a split cannot win.
    """
    whole = {name: cell for name, cell in row.items() if cell.values and not cell.missing}
    if not whole:
        return set()
    means = {name: loss(float(np.mean(cell.values)), metric) for name, cell in whole.items()}
    errors = {name: cell.standard_error or 0.0 for name, cell in whole.items()}
    best = min(means, key=lambda name: means[name])
    top = means[best] + errors[best]
    overlapping = {name for name in whole if errors[name] > 0 and means[name] - errors[name] <= top}
    return overlapping | {name for name in whole if means[name] == means[best]}


def mean_ranks(results: Iterable[Result], metric: str, entries: Sequence[str]) -> tuple[dict[str, float], int]:
    """Mean rank of each entry over all (data set, split), as in the paper, and how many of these there are.

    Equal values share their ranks. A fit without a value is last, as ALC must be in the paper's table, whose ranks add
    up to the sum of all. Only (data set, split) count that every entry was run on.
    """
    table: dict[tuple[str, int], dict[str, float]] = {}
    for result in results:
        value = value_of(result, metric)
        row = table.setdefault((result["data"], result["split"]), {})
        row[result["entry"]] = np.inf if value is None else loss(value, metric)
    rows = [[row[name] for name in entries] for row in table.values() if set(entries) <= set(row)]
    rows = [row for row in rows if np.isfinite(row).any()]
    if not rows:
        return {}, 0
    ranks = rankdata(np.array(rows), axis=1).mean(axis=0)
    return dict(zip(entries, ranks.tolist(), strict=True)), len(rows)
