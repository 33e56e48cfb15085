"""Training rows as a fit takes them: encoded, in the groups that are left out together, copies counted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearfield.columns import Columns, SomeRows
from nearfield.copied import Copies, Distinct, warn_of_copies
from nearfield.estimators._left_out import Leaving
from nearfield.families import Family, Observed, taken
from nearfield.leaving import ALONE, LeftOut
from nearfield.neighbours import build_index
from nearfield.neighbours.copies import near_copies
from nearfield.rows import join_equal, value_keys
from nearfield.scaling import Scaling
from nearfield.settings import Settings
from nearfield.storage import Make
from nearfield.weighting import Weighting

_AUTO = 'pass groups="auto" to fit (on the command line --groups auto), with which they count once, or '


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Features X (n, m) of rows, what was observed there, and what they are left out with.

    kept: which of the rows that came are training rows; distinct: which of those these are, where copies were left out.
    auto: whether copies were looked for as groups; told: whether a warning told of copies. make: where large arrays
    come from.
    """

    X: np.ndarray
    observed: Observed
    left_out: LeftOut
    kept: np.ndarray
    distinct: Distinct | None
    auto: bool
    told: bool
    make: Make = np.empty

    @property
    def own(self) -> np.ndarray:
        """Which of the rows that came these are."""
        return self.kept if self.distinct is None else self.distinct.kept(self.kept)


class CountedCopies(Leaving):
    """Mixin: training rows whose copies are counted."""

    _weighting: Weighting

    def _encoded(
        self,
        columns: Columns,
        kept: np.ndarray,
        family: Family,
        observed: Observed,
        settings: Settings,
        left_out: LeftOut = ALONE,
    ) -> np.ndarray:
        """Features (n, m) of those training rows that are kept, which were observed; the encoder is learned."""
        raise NotImplementedError

    def _counted(self, weights: np.ndarray, groups: Any) -> np.ndarray:
        """Weights (n,) as they count: numbers of copies count once where copies do."""
        return np.ones_like(weights) if _is_auto(groups) and self._weighting.counts else weights

    def _table(
        self,
        columns: Columns,
        kept: np.ndarray,
        family: Family,
        observed: Observed,
        settings: Settings,
        groups: Any = None,
        times: Any = None,
    ) -> TrainingTable:
        """The rows that are kept, of those that came, with what was observed there; copies are counted and told.

        groups, times: as users give them. The encoder learns from the distinct rows alone, where the fit does: means of
        levels are taken of other rows, among which no copies may be.
        """
        auto, told, left_out = _is_auto(groups), False, self._labelled(groups, times, columns, kept)
        X = self._encoded(columns, kept, family, observed, settings, left_out)
        telling = self._telling(columns, kept, X)
        copies = Copies.of(family, telling, observed, left_out.groups, left_out.times)
        distinct = copies.distinct(once=auto)
        if not auto:
            labelled = left_out.groups is not None or left_out.times is not None
            alike = Copies.of(family, telling, observed) if labelled else copies
            told = warn_of_copies(alike, copies.common, _AUTO if groups is None else "")
        if distinct is not None:
            observed, left_out = taken(observed, distinct.which), left_out.some(distinct.which)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said already
                X = self._encoded(columns, distinct.kept(kept), family, observed, settings, left_out)
        if auto:
            labels, observed = _near(family, X, observed)
            left_out = replace(left_out, groups=labels)
        return TrainingTable(X, observed, left_out, kept, distinct, auto, told, columns.make)

    def _telling(self, columns: Columns, kept: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Features (n, m) by which equal rows are known: X, with numbers of levels instead of means of other rows."""
        encoder, found = self.encoder_, X
        for column, rule in enumerate(encoder.rules_):
            if rule.kind == "means":
                some = columns if kept.all() else SomeRows(columns, kept)
                own = np.flatnonzero(encoder.owners == column)
                found = X.copy() if found is X else found
                found[:, own] = 0.0
                found[:, own[0]] = some.read(rule.name, rule.read_as, rule.form).codes
        return found


def _is_auto(groups: Any) -> bool:
    return isinstance(groups, str)  # which others are refused with the labels


def _near(family: Family, X: np.ndarray, observed: Observed) -> tuple[np.ndarray | None, Observed]:
    """Numbers (n,) of groups of near copies among rows X (n, m), of which none is a copy; None where all are alone.

    And what was observed, of which near copies that were observed alike count as one together. Equal inputs are in one
    group: a row that counts twice is left out with its group as a whole.
    """
    rows = join_equal(family, X, observed, ordered=True)
    points = Scaling.of(rows.inputs, np.ones(len(rows.inputs))).apply(rows.inputs)
    values = value_keys(family, rows.observed)
    labels, alike = near_copies(build_index(points), points, values)
    if len(np.unique(labels)) == len(labels) and (family.weight(rows.observed) <= 1).all():
        return None, observed
    own = alike[rows.row].astype(np.float64)
    shared = {name: (observed[name].T / own).T for name in family.additive}
    return labels[rows.row], {**observed, **shared}
