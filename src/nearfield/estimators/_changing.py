"""Training rows that come and go after a fit, and their numbers as users gave them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.estimators._forgetting import asked_rows, weights_left
from nearfield.estimators._groups import labels_left, more_group_numbers
from nearfield.estimators._locks import lock_of
from nearfield.families import Observed
from nearfield.fitting import Fit
from nearfield.growing import Growing, followed_by
from nearfield.leaving import GroupLabels
from nearfield.rows import join_equal
from nearfield.validation import plain

Self = TypeVar("Self", bound="ChangingRows")


class ChangingRows:
    """Mixin: rows that are appended or forgotten."""

    k: int | str
    _fit: Fit
    _target: Any  # Scaling of a target that is standardised, else None
    _places: np.ndarray  # (n,) the observation that each training row became
    _numbers: np.ndarray | None = None  # (n,) numbers of these as the user gave rows; None: 0 to n - 1
    _came: int = 0  # how many rows the user gave, where they have numbers
    _shares: np.ndarray | None = None  # (n,) how much each counts in its observation; None: once
    _group_labels: GroupLabels | None  # of the groups of the fit
    _rooms: Mapping[str, Growing] = MappingProxyType({})  # for more of the arrays of training rows

    @abstractmethod
    def _checked_places(self, features: np.ndarray) -> np.ndarray:
        """Features (n, d) of new rows, whose coordinates are places."""

    @abstractmethod
    def _adopt(self, fit: Fit) -> None:
        """Take over a fit."""

    def _append(
        self, X: np.ndarray, observed: Observed, kept: np.ndarray, times: np.ndarray | None = None, groups: Any = None
    ) -> None:
        """Take validated rows, those `kept` of the rows that came, into the fit; threads wait for each other.

        times: of all rows that came, where those of the fit have some. groups: labels of them, as users give them.
        """
        with lock_of(self):
            old, X = self._fit, self._checked_places(X)
            family = old.predictor.model.family
            observed = family.standardised(observed, self._target)
            family.check(observed)
            known, taken = self._group_labels, old.predictor.rows.groups
            numbers, labels = more_group_numbers(groups, kept, known, taken)
            rows = join_equal(family, X, observed, numbers, None if times is None else times[kept])
            fit = old.extended(rows, len(X))
            places = family.places(rows.row, observed, rows.observed) + len(old.predictor.rows.observations)
            more, counts = {"_places": (self._places, places)}, family.weight(observed)
            if self._shares is not None or not (counts == 1).all():
                own = np.ones(len(self._places)) if self._shares is None else self._shares
                more["_shares"] = own, counts
            if self._numbers is not None or not kept.all():
                own, came = self._row_numbers()
                more["_numbers"], self._came = (own, came + np.flatnonzero(kept)), came + len(kept)
            rooms = {name: followed_by(self._rooms, name, *both) for name, both in more.items()}
            self.__dict__.update({name: grown.values for name, grown in rooms.items()}, _rooms=rooms)
            self._group_labels = labels
            self._adopt(fit)

    def forget(self: Self, ids: Any) -> Self:
        """Remove training rows for good, without training again.

        Parameters
        ----------
        ids : array-like of int, or of bool
            Numbers of rows in the order in which `fit` and `update` were given them, from 0, as `explain` has them and
            as `loo_` does where every row counted; or a mask of all rows that were given. A number that comes twice
            counts once. The rows that are left close ranks, as in a table from which rows were dropped.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            Where a number is none of the rows, or no row would be left.

        Notes
        -----
        Predictions are exactly those of a model of the remaining rows with these hyper-parameters: where observations
        have site state (labels, counts, Student-t noise), all of it settles anew. Equal rows that were counted together
        lose as much as the row counted. Neither the model nor a file that is saved from now on has the rows, and no
        bend has a corner at a value that only they had. What was learned from all rows stays: scaling, length scales,
        the head, medians, names of levels and their means; only a new fit forgets what these owe to single rows. Copies
        of the model and files of before keep the rows: delete them, too.
        """
        check_is_fitted(self)
        with lock_of(self):
            old, (numbers, came) = self._fit, self._row_numbers()
            gone = asked_rows(ids, came)
            kept = ~gone[numbers]
            if not kept.any():
                raise ValueError(
                    f"ids has all {len(kept):,} training rows: a model needs at least one. Nothing was forgotten; "
                    "delete the model instead."
                )
            observations, s = old.predictor.rows.observations, old.summary
            weights, fit = weights_left(self._places, self._shares, kept, observations.weights), old
            if not kept.all():
                later = int(kept[len(kept) - s.appended :].sum())
                fit = old.reduced(weights, plain(self.k), int(kept.sum()), later)
            numbers, came = (np.cumsum(~gone) - 1)[numbers[kept]], int((~gone).sum())
            self._places = (np.cumsum(weights > 0) - 1)[self._places[kept]]
            self._shares = None if self._shares is None else self._shares[kept]
            self._numbers, self._came = (None, 0) if len(numbers) == came else (numbers, came)
            self._rooms = {}
            self._group_labels = labels_left(self._group_labels, fit.predictor.rows.groups)
            self._adopt(fit)
        return self

    def _row_numbers(self) -> tuple[np.ndarray, int]:
        """Numbers (n,) of the training rows as the user gave rows, from 0, and how many came in all."""
        n = len(self._places)
        return (np.arange(n), n) if self._numbers is None else (self._numbers, self._came)

    def _renumber(self, numbers: np.ndarray, total: int) -> None:
        """Rows were given that are the ones with these numbers (m,) among `total`."""
        self._numbers, self._came = numbers[self._row_numbers()[0]], total
