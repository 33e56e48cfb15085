"""What the command line says about tables: what their columns became, and whether rows are those of training."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from nearfield.encoding import TableEncoder
from nearfield.forms import Form, described
from nearfield.rules import Rule

_KNOWN_SHARE = 0.9  # of rows whose inputs the model has seen: then they are training rows
_DISTINCT_SHARE = 0.5  # of training rows that must differ for inputs to tell
_SHOWN = 12  # names of a line
_BLOCK_ROWS = 2**16  # that are looked at together


def column_lines(encoder: TableEncoder) -> list[str]:
    """One line for each kind of column, with the names of the columns of that kind."""
    kinds: dict[str, list[str]] = {}
    for rule in encoder.rules_:
        extent = f" ({len(rule.levels):,})" if rule.levels else ""
        kinds.setdefault(_phrase(rule), []).append(f"{rule.name}{extent}")
    return [f"{phrase}: {_listed(names)}" for phrase, names in kinds.items()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _phrase(rule: Rule) -> str:
    if rule.kind == "unused":
        return "left out"
    if rule.kind == "text":
        return "text, a feature for each level"
    if rule.kind == "means":
        return "text of many levels, the mean of the target and the count at each"
    what = "durations, in days" if rule.kind == "duration" else described(Form(rule.kind, rule.form))
    if rule.cycles:
        what += f", also as {', '.join(rule.cycles)}"
    return f"{what}, gaps filled with the median and marked" if rule.indicator else what


def ending(model: Path, table: Any) -> str:
    """The last lines of a fit: where the model is, and what to type next."""
    name = shlex.quote(str(model))
    return (
        f"Wrote {model}. It contains the training rows: share it as you would share {table}.\n"
        f"Next: nearfield predict {name} new.csv --out predictions.csv\n"
        f"      nearfield report {name} --out report.html"
    )


class SeenRows:
    """Counts rows whose inputs are those of a training row, by hashes of their features."""

    def __init__(self, model: Any) -> None:
        self._scaling, rows = model._fit.inputs, model._fit.predictor.rows
        kinds = [rule.kind for rule in model.encoder_.rules_ for _ in rule.features]
        self._columns = [e for e, kind in enumerate(kinds) if kind != "means"]  # those of training rows are others
        self._factors = np.random.default_rng(0).integers(1, 2**62, len(self._columns), dtype=np.int64) | 1
        blocks = range(0, len(rows), _BLOCK_ROWS)
        self._hashes = np.unique(np.concatenate([self._hashed(rows.inputs[b : b + _BLOCK_ROWS]) for b in blocks]))
        self._tells = bool(self._columns) and len(self._hashes) > _DISTINCT_SHARE * model.n_rows_
        self.rows = self.seen = 0

    def _hashed(self, inputs: np.ndarray) -> np.ndarray:
        bits = (np.ascontiguousarray(inputs[:, self._columns]) + 0.0).view(np.int64)  # -0.0 is 0.0
        with np.errstate(over="ignore"):
            return np.asarray(((bits ^ (bits >> 29)) * self._factors).sum(axis=1))

    def count(self, x: np.ndarray) -> None:
        """Look at rows of features (m, d)."""
        self.rows += len(x)
        self.seen += int(np.isin(self._hashed(self._scaling.apply(x)), self._hashes).sum())

    def remark(self) -> str | None:
        """What is to be said of them, if anything."""
        if not self._tells or self.seen < _KNOWN_SHARE * max(self.rows, 1):
            return None
        return (
            f"{self.seen:,} of {self.rows:,} rows are training rows, which the model has seen: their scores look "
            "better than those of new rows. What it says of rows left out is in nearfield info."
        )
