"""What an encoder remembers of one column, and the features that the column becomes."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nearfield.column_values import MISSING, Coded, TableError, TableWarning

_NUMERIC = ("number", "flag", "date", "duration")
_KINDS = (*_NUMERIC, "text", "means", "unused")
_PERIODS = {"hour": 1.0, "weekday": 7.0, "year": 365.2425}  # days
_FOLDS = 5
_PRIOR_ROWS = (0.5, 1e4)  # that the mean of all rows counts for at a level, at least and at most


@dataclass(frozen=True)
class Rule:
    """One column of the training table."""

    name: str
    kind: str
    """number, flag, date, duration, text, means (text with many levels) or unused"""
    median: float = 0.0
    indicator: bool = False
    """whether missing values have a feature of their own"""
    levels: tuple[str, ...] = ()
    cycles: tuple[str, ...] = ()
    """of dates: the periods that have a sine and a cosine"""
    form: str = ""
    """how cells are written, where they are text that means something else"""
    means: tuple[tuple[float, ...], ...] = ()
    """of each level (L, P), and those of all rows in the last"""
    log_counts: tuple[float, ...] = ()
    """how often each level was seen (L,)"""

    @property
    def read_as(self) -> str:
        """The kind that its cells are read as."""
        return "text" if self.kind == "means" else self.kind

    @property
    def plain(self) -> bool:
        """Whether a complete column of numbers is its own feature."""
        return self.kind == "number" and not self.indicator

    @cached_property
    def features(self) -> list[str]:
        """Names of the features it becomes."""
        if self.kind == "unused":
            return []
        if self.kind == "text":
            return [f"{self.name}={level}" for level in self.levels]
        if self.kind == "means":
            parts = len(self.means[-1])
            means = [f"{self.name}_mean"] if parts == 1 else [f"{self.name}_mean{p}" for p in range(parts)]
            return [*means, f"{self.name}_log_count"]
        waves = [f"{self.name}_{cycle}_{wave}" for cycle in self.cycles for wave in ("sin", "cos")]
        return [self.name, *([f"{self.name}_missing"] if self.indicator else []), *waves]

    def prepared(self, values: Any) -> tuple[np.ndarray, int, int]:
        """Values of a whole column as `write` takes them: numbers of levels (n,), or float64 (n,) with NaN.

        And how many were levels that training did not see, and how many were filled in for the first time.
        """
        if isinstance(values, Folded):
            return values.features, 0, 0
        if self.kind in ("text", "means"):
            level = self._places(values)
            return level, int((level < 0).sum()), 0
        n_missing = int(np.isnan(values).sum())
        if n_missing and math.isnan(self.median):
            raise TableError(
                f"Column {self.name!r} has {n_missing} missing values, but the model was fitted to complete "
                "columns and knows nothing to fill in: do so, or leave these rows out."
            )
        return values, 0, 0 if self.indicator else n_missing

    def write(self, values: np.ndarray, out: np.ndarray) -> None:
        """Fill `out` (n, len(features)), which is zero, with what prepared values of some rows become."""
        if values.ndim == 2:  # features that were found fold by fold
            out[:] = values
        elif self.kind == "text":
            known = np.flatnonzero(values >= 0)
            out[known, values[known]] = 1.0
        elif self.kind == "means":
            out[:, :-1] = self._mean_table[values]  # the last is that of all rows
            out[:, -1] = self._count_table[values]
        else:
            self._write_numbers(values, out)

    def _places(self, text: Coded) -> np.ndarray:
        """Numbers (n,) among the levels of training, -1 for others."""
        own = {level: number for number, level in enumerate(self.levels)}
        moved = [own.get(level, -1) for level in text.levels]
        return np.array([*moved, own.get(MISSING, -1)], dtype=np.int64)[text.codes]

    @cached_property
    def _mean_table(self) -> np.ndarray:
        return np.array(self.means, dtype=np.float64)

    @cached_property
    def _count_table(self) -> np.ndarray:
        return np.append(self.log_counts, 0.0)

    def _write_numbers(self, values: np.ndarray, out: np.ndarray) -> None:
        missing = np.isnan(values)
        out[:, 0] = np.where(missing, self.median, values)
        if self.indicator:
            out[:, 1] = missing
        for number, cycle in enumerate(self.cycles):
            angle = 2 * np.pi * _phase(values, cycle)
            start = 1 + self.indicator + 2 * number
            out[:, start], out[:, start + 1] = (np.where(missing, 0.0, wave(angle)) for wave in (np.sin, np.cos))

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description."""
        own = {"name": self.name, "kind": self.kind, "indicator": self.indicator, "levels": list(self.levels)}
        own["median"] = None if math.isnan(self.median) else self.median
        if self.cycles:
            own["cycles"] = list(self.cycles)
        if self.form:
            own["form"] = self.form
        if self.means:
            own |= {"means": [list(row) for row in self.means], "log_counts": list(self.log_counts)}
        return own

    @classmethod
    def from_json(cls, data: Any) -> Rule:
        """The inverse of `to_json`; ValueError if `data` is anything else."""
        try:
            median = data["median"]
            rule = cls(
                data["name"],
                data["kind"],
                math.nan if median is None else median,
                data["indicator"],
                tuple(data["levels"]),
                tuple(data.get("cycles", ())),
                data.get("form", ""),
                tuple(tuple(row) for row in data.get("means", ())),
                tuple(data.get("log_counts", ())),
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError("The model's description of a column is incomplete.") from error
        if not rule._sound():
            raise ValueError(f"The model's description of column {rule.name!r} is damaged.")
        return rule

    def _sound(self) -> bool:
        levelled = self.kind in ("text", "means")
        return (
            isinstance(self.name, str)
            and self.kind in _KINDS
            and isinstance(self.median, int | float)
            and not math.isinf(self.median)
            and isinstance(self.indicator, bool)
            and isinstance(self.form, str)
            and all(isinstance(level, str) for level in self.levels)
            and len(set(self.levels)) == len(self.levels)
            and levelled == bool(self.levels)
            and all(isinstance(cycle, str) and cycle in _PERIODS for cycle in self.cycles)
            and (not self.cycles or self.kind == "date")
            and self._sound_means()
        )

    def _sound_means(self) -> bool:
        if self.kind != "means":
            return not self.means and not self.log_counts
        if len(self.means) != len(self.levels) + 1 or len(self.log_counts) != len(self.levels):
            return False
        numbers = [value for row in self.means for value in row] + list(self.log_counts)
        finite = all(isinstance(value, int | float) and math.isfinite(value) for value in numbers)
        return finite and len({len(row) for row in self.means}) == 1


def cycles_of(days: np.ndarray) -> tuple[str, ...]:
    """The periods that dates (n,) span: a day if hours differ, two weeks, a year."""
    known = days[~np.isnan(days)]
    span, hours = known.max() - known.min(), known % 1.0
    spanned: Mapping[str, bool] = {
        "hour": span >= 1 and hours.max() - hours.min() >= 0.25,
        "weekday": span >= 14 and len(np.unique(np.floor(known[:100_000]) % 7)) > 1,
        "year": span >= 365,
    }
    return tuple(cycle for cycle, there in spanned.items() if there)


def _phase(days: np.ndarray, cycle: str) -> np.ndarray:
    """Where in the period dates are, 0 to 1; weekdays are whole days."""
    whole = np.floor(days) if cycle == "weekday" else days
    return whole / _PERIODS[cycle] % 1.0


@dataclass(frozen=True, eq=False)
class Folded:
    """Features (n, m) of training rows that were found fold by fold."""

    features: np.ndarray


def means_of(
    name: str, form: str, levels: tuple[str, ...], text: Coded, target: np.ndarray, counted: np.ndarray
) -> tuple[Rule, Folded]:
    """The rule of text with many levels, and the features of the training rows.

    target (n, P), NaN where there is none, and how much each entry counts (n, P). The mean of all rows counts as many
    rows as the variance within levels is times that between them (empirical Bayes).
    """
    level = Rule(name, "text", levels=levels)._places(text)
    n, parts, size = len(level), target.shape[1], len(levels)
    fold = np.random.default_rng(0).permutation(n) % _FOLDS
    cell = level * _FOLDS + fold
    seen = np.bincount(level, minlength=size)
    found, table = np.empty((n, parts + 1)), np.empty((size + 1, parts))
    for p in range(parts):
        there = ~np.isnan(target[:, p])
        y, w = np.where(there, target[:, p], 0.0), np.where(there, counted[:, p], 0.0)
        w = w * (there.sum() / max(w.sum(), 1e-300))  # counts of rows, whatever the unit of an exposure
        sums, totals = (np.bincount(cell, part, size * _FOLDS).reshape(size, _FOLDS) for part in (w * y, w))
        mean = sums.sum() / totals.sum()
        prior = _prior_rows(y, w, level, sums.sum(axis=1), totals.sum(axis=1), mean)
        table[:-1, p] = (sums.sum(axis=1) + prior * mean) / (totals.sum(axis=1) + prior)
        table[-1, p] = mean
        others = sums.sum(axis=1, keepdims=True) - sums, totals.sum(axis=1, keepdims=True) - totals
        found[:, p] = ((others[0] + prior * mean) / (others[1] + prior)).ravel()[cell]
    found[:, -1] = np.log1p(seen)[level]
    rule = Rule(
        name, "means", levels=levels, form=form, means=tuple(map(tuple, table.tolist())),
        log_counts=tuple(np.log1p(seen).tolist()),
    )  # fmt: skip
    return rule, Folded(found)


def _prior_rows(
    y: np.ndarray, w: np.ndarray, level: np.ndarray, sums: np.ndarray, totals: np.ndarray, mean: float
) -> float:
    """How many rows the mean of all counts for, by the method of moments."""
    means = sums / np.maximum(totals, 1e-300)
    total, filled = totals.sum(), int((totals > 0).sum())
    within = float(w @ (y - means[level]) ** 2) / max(total - filled, 1.0)
    between = float(totals @ (means - mean) ** 2) - (filled - 1) * within
    spread = between / max(total - float(totals @ totals) / total, 1e-300)
    return float(np.clip(within / spread if spread > 0 else np.inf, *_PRIOR_ROWS))


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
            warnings.warn("; ".join(said) + ".", TableWarning, stacklevel=4)


def warn_of_unused(names: Sequence[str], what: str) -> None:
    """Name the columns that are left out, and why."""
    if names:
        which = ", ".join(map(repr, names[:8])) + (", .." if len(names) > 8 else "")
        warnings.warn(f"Columns with {what} are left out: {which}.", TableWarning, stacklevel=5)
