"""Training rows as a fit takes them: encoded, in the groups that are left out together, copies counted."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfield.columns import Columns, SomeRows
from nearfield.copied import Copies, Distinct, warn_of_copies
from nearfield.encoding import TableEncoder
from nearfield.families import Family, Observed, taken
from nearfield.fitting import Settings
from nearfield.neighbours import build_index, order_key
from nearfield.neighbours.copies import near_copies
from nearfield.rows import join_equal, values_of
from nearfield.scaling import Scaling
from nearfield.validation import check_choice
from nearfield.weighting import Weighting

_AUTO = 'pass groups="auto" to fit (on the command line --groups auto), with which they count once, or '


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Features X (n, m) of rows, what was observed there, and their groups (n,), where there are any.

    kept: which of the rows that came are training rows; distinct: which of those these are, where copies were left out.
    auto: whether copies were looked for as groups; told: whether a warning told of copies.
    """

    X: np.ndarray
    observed: Observed
    groups: np.ndarray | None
    kept: np.ndarray
    distinct: Distinct | None
    auto: bool
    told: bool

    @property
    def own(self) -> np.ndarray:
        """Which of the rows that came these are."""
        return self.kept if self.distinct is None else self.distinct.kept(self.kept)


class CountedCopies:
    """Mixin: training rows whose copies are counted."""

    fit: Callable[..., Any]
    _weighting: Weighting

    @property
    def encoder_(self) -> TableEncoder:
        """How columns become features."""
        raise NotImplementedError

    def _encoded(
        self, columns: Columns, kept: np.ndarray, family: Family, observed: Observed, settings: Settings
    ) -> np.ndarray:
        """Features (n, m) of those training rows that are kept, which were observed; the encoder is learned."""
        raise NotImplementedError

    @property
    def _takes_groups(self) -> bool:
        return "groups" in inspect.signature(self.fit).parameters

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
    ) -> TrainingTable:
        """The rows that are kept, of those that came, with what was observed there; copies are counted and told.

        groups: as users give them. The encoder learns from the distinct rows alone, where the fit does: means of levels
        are taken of other rows, among which no copies may be.
        """
        auto, told = _is_auto(groups), False
        labels = None if groups is None or auto else _numbered(groups, kept)
        X = self._encoded(columns, kept, family, observed, settings)
        telling = self._telling(columns, kept, X)
        copies = Copies.of(family, telling, observed, labels)
        distinct = copies.distinct(once=auto)
        if not auto:
            alike = copies if labels is None else Copies.of(family, telling, observed)
            told = warn_of_copies(alike, copies.common, _AUTO if groups is None and self._takes_groups else "")
        if distinct is not None:
            observed = taken(observed, distinct.which)
            labels = None if labels is None else labels[distinct.which]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said already
                X = self._encoded(columns, distinct.kept(kept), family, observed, settings)
        if auto:
            labels, observed = _near(family, X, observed)
        return TrainingTable(X, observed, labels, kept, distinct, auto, told)

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
    if isinstance(groups, str):
        check_choice("groups", groups, ("auto",))
        return True
    return False


def _numbered(groups: Any, kept: np.ndarray) -> np.ndarray:
    """Numbers (n,) of the groups of those rows that are kept, from the labels of all that came."""
    labels = np.asarray(groups)
    if labels.shape != kept.shape:
        raise ValueError(f"groups has shape {labels.shape}: expected {kept.shape}, a label for each row, or 'auto'.")
    numbers = np.unique(labels[kept], return_inverse=True)[1].reshape(-1)
    if numbers.size > 1 and numbers.max() == 0:
        raise ValueError("groups has one label for all rows: no row would be left to predict another from.")
    return np.asarray(numbers, dtype=np.int64)


def _near(family: Family, X: np.ndarray, observed: Observed) -> tuple[np.ndarray | None, Observed]:
    """Numbers (n,) of groups of near copies among rows X (n, m), of which none is a copy; None where all are alone.

    And what was observed, of which near copies that were observed alike count as one together. Equal inputs are in one
    group: a row that counts twice is left out with its group as a whole.
    """
    rows = join_equal(family, X, observed, ordered=True)
    points = Scaling.of(rows.inputs, np.ones(len(rows.inputs))).apply(rows.inputs)
    values = order_key(values_of(family, rows.observed))
    labels, alike = near_copies(build_index(points), points, values)
    if len(np.unique(labels)) == len(labels) and (family.weight(rows.observed) <= 1).all():
        return None, observed
    own = alike[rows.row].astype(np.float64)
    shared = {name: (observed[name].T / own).T for name in family.additive}
    return labels[rows.row], {**observed, **shared}
