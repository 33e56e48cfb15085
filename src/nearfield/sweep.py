"""Moments of many rows, block by block, so that memory does not grow with them: left-out observations or new rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nearfield._threads import one_blas_thread
from nearfield.families import Observations, taken
from nearfield.growing import Growing
from nearfield.model import AllRows, Latent, Model
from nearfield.moments import NEAR, Moments, beside, joined, outside_of
from nearfield.neighbours import Hidden, Index, NeighbourTable
from nearfield.rows import Rows
from nearfield.taper import Around, Taper

_BLOCK_NUMBERS = 2**18  # neighbours held at a time, over all rows of a block and all latent functions
MOST_WHOLE = 3000  # rows up to which all can be neighbours by one factorisation, 10^5 predictions in a minute or so
MOST_APART = 1024  # neighbours of a left-out row of these, where rows see different others
_TREND_ROWS = 2**16  # at a time
_MOST_LOCATED = 2**17  # rows that are bent once and kept
_MOST_SWEEPS, _SETTLED = 20, 1e-3  # for the site state; relative change of a sweep that is small enough


@dataclass(frozen=True, eq=False)
class Range:
    """Lowest and highest inputs (d,) of the first n rows."""

    n: int
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class Known:
    """What a sweeper of the first of the rows has found, None where it was not asked for."""

    index: Index | None = None
    located: Growing | None = None
    range: Range | None = None


class Sweeper:
    """A model, the rows that may be neighbours and the index that finds them under the model's length scales.

    Moments are those of hard neighbourhoods, or of continuous ones, where there is a `taper`.
    """

    def __init__(
        self,
        model: Model,
        rows: Rows,
        earlier: AllRows | None = None,
        taper: Taper | None = None,
        known: Known | None = None,
        leaves: int | None = None,
    ) -> None:
        """earlier: the first of the rows, factorised together before, if they were; known: what was known of them.

        leaves: how many boxes an approximate search looks into; None: it is exact.
        """
        self.model = model
        self.rows = rows
        self.taper = taper
        self._earlier = earlier
        self._known, self._leaves = known or Known(), leaves
        self.metric = model.metric

    @property
    def known(self) -> Known:
        """What serves a sweeper of these rows and more, with the same parameters."""
        own, before = vars(self), self._known
        return Known(own.get("index", before.index), own.get("_bent", before.located), own.get("_range", before.range))

    @property
    def located(self) -> np.ndarray:
        """The rows (n, d) as the kernel sees them, before the length scales."""
        return self._bent.values if len(self.model.covariance.warps) else np.asarray(self.rows.inputs)

    @cached_property
    def _bent(self) -> Growing:
        before, inputs = self._known.located, self.rows.inputs
        if before is None:
            return Growing(self.model.coordinates(np.asarray(inputs)))
        return before.followed_by(self.model.coordinates(inputs[len(before) :]))

    @property
    def lengths(self) -> np.ndarray:
        """Length scales (d,) under which neighbours are searched."""
        return self.metric.lengths

    @property
    def located_of_few(self) -> np.ndarray | None:
        """The same where rows are few; of many, only those that are needed are bent, whenever they are."""
        return self.located if len(self.rows) <= _MOST_LOCATED else None

    def scaled(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Rows, by their numbers (b,), or all of them, where they are searched (b, d)."""
        return self.metric.apply(self.rows.inputs[rows])

    @cached_property
    def index(self) -> Index:
        """Finds neighbours under the metric."""
        return self.rows.searched.index(self.metric, most=self._leaves, earlier=self._known.index)

    @cached_property
    def restricted(self) -> Index:
        """Finds those among the rows that a left-out row may see."""
        return self.rows.searched.index(self.metric, self.rows.hidden, most=self._leaves)

    @cached_property
    def together(self) -> AllRows:
        """All rows, factorised together."""
        with one_blas_thread():
            found = AllRows(self.model, self.rows, earlier=self._earlier)
        self._earlier = None
        return found

    @property
    def factorised(self) -> AllRows | None:
        """All rows, or the first of them, if they have been factorised together by now."""
        found: AllRows | None = vars(self).get("together", self._earlier)
        return found

    def with_state(self, state: np.ndarray) -> Sweeper:
        """The same index for the same rows with another site state (n, A)."""
        other = copy.copy(self)
        vars(other).pop("together", None)
        other.rows = self.rows.with_state(state)
        return other

    def tapered(self, taper: Taper | None) -> Sweeper:
        """The same rows with the same index and other neighbourhoods."""
        if taper == self.taper:
            return self
        _ = self.index  # is built once for both
        other = copy.copy(self)
        other.taper = taper
        return other

    @cached_property
    def prior(self) -> np.ndarray:
        """Variances (S,) or (C,) of the latent functions over the rows, before any is known: kernel and trend."""
        model = self.model
        if not model.mean.needs_inputs:
            return model.scale2
        blocks = range(0, len(self.rows), _TREND_ROWS)
        trend = [model.mean.at(self.rows.inputs[b : b + _TREND_ROWS], model.parameters) for b in blocks]
        return np.asarray(model.scale2 + np.concatenate(trend).var(axis=0))

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest standardised inputs (d,) of the rows."""
        return self._range.low, self._range.high

    @cached_property
    def _range(self) -> Range:
        before, inputs = self._known.range, self.rows.inputs
        if before is None:
            return Range(len(inputs), *self.rows.bounds)
        more = inputs[before.n :]
        low, high = more.min(axis=0, initial=np.inf), more.max(axis=0, initial=-np.inf)
        return Range(len(inputs), np.minimum(before.low, low), np.maximum(before.high, high))

    def whole(self, k: int) -> bool:
        """Whether k neighbours are all rows, and these few enough to be factorised together."""
        return self._reach(k) == len(self.rows) and can_be_whole(self.model, len(self.rows))

    # --- neighbours -------------------------------------------------------------------------------------------------

    def _reach(self, k: int) -> int:
        """Neighbours to ask for: k, or every row where k leaves out only one (a left-out row loses itself anyway)."""
        n = len(self.rows)
        return n if k >= n - 1 else k

    def new_ids(self, query: np.ndarray, k: int) -> np.ndarray:
        """Neighbours (b, k) of new rows, inputs (b, d)."""
        return self._of_new(query, self._reach(k)).ids

    def new_table(self, query: np.ndarray, k: int) -> NeighbourTable:
        """Neighbours of new rows, inputs (b, d): k, and where they taper off the next one."""
        return self._of_new(query, self._wide(k))

    def _of_new(self, query: np.ndarray, most: int) -> NeighbourTable:
        return self.index.query(self.metric.apply(query), most)

    def left_out_ids(self, which: np.ndarray, k: int) -> np.ndarray:
        """Neighbours (b, k) of the observations `which` (b,), each left out."""
        return self._of_left_out(which, self._reach(k)).ids

    def _of_left_out(self, which: np.ndarray, most: int, inputs: np.ndarray | None = None) -> NeighbourTable:
        """Neighbours of the observations `which` (b,), each left out, or of other inputs (b, d) without them.

        A row of several observations loses one only: it stays among its neighbours for the others.
        """
        observations = self.rows.observations
        row = observations.row[which]
        query = self.metric.apply(self.rows.inputs[row] if inputs is None else inputs)
        if self.rows.hidden is not None:
            return self.restricted.query(query, most, row)
        return self.index.query(query, most, np.where(observations.alone[which], row, -1))

    def _wide(self, k: int) -> int:
        """Neighbours to ask for where moments are wanted: the next one is the edge of those that taper off."""
        reach = self._reach(k)
        return reach if self.taper is None else min(reach + 1, len(self.rows))

    def earlier_ids(self, which: np.ndarray, k: int, rank: np.ndarray) -> np.ndarray:
        """Neighbours (b, k) of the rows `which` (b,) among those of a lower rank (n,)."""
        return self.rows.searched.index(self.metric, Hidden(times=rank)).query(self.scaled(which), k, which).ids

    def own_ids(self, which: np.ndarray, k: int) -> np.ndarray:
        """The rows `which` (b,) themselves and their nearest neighbours, k in all."""
        others = self.index.query(self.scaled(which), k, which).ids[:, : k - 1]
        return np.concatenate([which[:, None], others], axis=1)

    # --- moments ----------------------------------------------------------------------------------------------------

    def left_out(self, which: np.ndarray, ks: np.ndarray, covariance: bool = False) -> Moments:
        """Moments (b, q, C) of the observations `which` (b,), each left out, for each k in ks (q,).

        Where all rows are neighbours but each sees others, those are its nearest, MOST_APART at most.
        """
        if self.whole(int(ks[-1])) and not self.rows.in_blocks:
            ks = np.minimum(ks, MOST_APART)
        elif self.whole(int(ks[-1])):
            every = self._left_out_together(which, covariance)
            return every if len(ks) == 1 else beside(self.left_out(which, ks[:-1], covariance), every)
        parts = []
        for block in self._blocks(len(which), int(ks[-1])):
            left_out = self.rows.observations.take(which[block])
            table = self._of_left_out(which[block], self._wide(int(ks[-1])))
            parts.append(self._moments(self.rows.inputs[left_out.row], table, ks, left_out, covariance))
        return joined(parts)

    def elsewhere(self, which: np.ndarray, inputs: np.ndarray, k: int) -> Moments:
        """Moments (b, C) at inputs (b, d) from the k nearest rows, without the observations `which` (b,)."""
        ks, parts = np.array([k]), []
        for block in self._blocks(len(which), k):
            left_out = self.rows.observations.take(which[block])
            table = self._of_left_out(which[block], self._wide(k), inputs[block])
            parts.append(self._moments(inputs[block], table, ks, left_out, False))
        return joined(parts).at(0)

    def _left_out_together(self, which: np.ndarray, covariance: bool) -> Moments:
        """Moments (b, 1, C) of the observations `which` (b,), each left out of all rows."""
        family, rows = self.model.family, self.rows
        with one_blas_thread():
            mean, variance, quad = (part[which] for part in self.together.left_out())
        left_out = rows.observations.take(which)
        sizes, own = family.sizes(rows.observed), family.sizes(left_out.observed)
        lost = own * np.minimum(left_out.weights, 1.0)[:, None]
        if rows.groups is not None:
            of_group = np.zeros((int(rows.groups.max()) + 1, sizes.shape[1]))
            np.add.at(of_group, rows.groups, sizes)
            lost = of_group[rows.groups[left_out.row]]
        wide = self._wide(NEAR)
        near = self._near(rows.inputs[left_out.row], lambda block: self._of_left_out(which[block], wide), left_out)
        return self._whole(mean, variance, quad, sizes.sum(axis=0) - lost, near, covariance)

    def _near(
        self, query: np.ndarray, table: Callable[[slice], NeighbourTable], left_out: Observations | None
    ) -> Moments:
        """Moments (b, 1, C) given the nearest NEAR rows alone, which `table` finds block by block."""
        ks, parts = np.array([min(NEAR, len(self.rows))]), []
        for block in self._blocks(len(query), NEAR):
            own = None if left_out is None else left_out.take(np.arange(len(query))[block])
            parts.append(self._moments(query[block], table(block), ks, own, False))
        return joined(parts)

    def _whole(
        self,
        mean: np.ndarray,
        variance: np.ndarray,
        quad: np.ndarray,
        size: np.ndarray,
        near: Moments,
        covariance: bool,
    ) -> Moments:
        """Moments (b, 1, C) given all rows."""
        _refuse_not_finite(mean, variance)
        size = np.broadcast_to(size, (len(mean), size.shape[-1]))
        between = variance[:, None, :, None] * np.eye(variance.shape[-1]) if covariance else None
        return Moments(
            mean[:, None], variance[:, None], quad[:, None], size[:, None], near.quad, near.size, between,
            near.jittered + self.together.found.jittered, self.prior,
        )  # fmt: skip

    def new(self, query: np.ndarray, k: int, covariance: bool = False) -> Moments:
        """Moments (b, C) of new rows, inputs (b, d), from their k nearest training rows; one sweep gives everything."""
        outside = outside_of(*self.bounds, query)
        if self.whole(k):
            size = self.model.family.sizes(self.rows.observed).sum(axis=0)
            near = self._near(query, lambda block: self.new_table(query[block], NEAR), None)
            return replace(self._whole(*self.together.new(query), size, near, covariance).at(0), outside=outside)
        ks = np.array([k])
        parts = [
            self._moments(query[block], self.new_table(query[block], k), ks, None, covariance)
            for block in self._blocks(len(query), k)
        ]
        return replace(joined(parts).at(0), outside=outside)

    def settled(self, k: int, which: np.ndarray | None = None, in_place: bool = False) -> tuple[np.ndarray, int]:
        """The site state (n, A) after sweeps over the rows `which` (all by default) until it stands still; how many.

        A sweep sees the state of the one before, so the answer does not depend on the blocks. in_place: the state of
        these rows is written over, which nobody else may have seen.
        """
        family, rows = self.model.family, self.rows
        if family.state_size == 0 or family.state_learned:
            return rows.state, 0
        which = np.arange(len(rows)) if which is None else which
        query, whole = rows.inputs[which], self.whole(k)
        blocks = self._blocks(len(which), k)
        ids = [] if whole else [self.new_ids(query[block], k) for block in blocks]
        sweeps, change = 0, np.inf
        while sweeps < _MOST_SWEEPS and change > _SETTLED:
            sweeps += 1
            if whole:
                fresh = self._updated_together(rows, which)
            else:
                parts = zip(blocks, ids, strict=True)
                fresh = np.concatenate([self._updated(rows, which[b], query[b], own) for b, own in parts])
            old, state = rows.state[which], rows.state if in_place else rows.state.copy()
            state[which] = fresh
            rows = rows if in_place else rows.with_state(state)
            size = np.maximum(np.maximum(np.abs(fresh), np.abs(old)), np.finfo(float).tiny)
            change = float((np.abs(fresh - old) / size).mean())  # row by row: outliers have huge states
        return rows.state, sweeps

    def _updated(self, rows: Rows, which: np.ndarray, query: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Site state (b, A) of rows, each given all rows, itself among them."""
        latent = self.model.latent(rows, query, ids, located=self.located_of_few)
        observed = taken(rows.observed, which)
        mean, variance = latent.mean[:, 0], latent.found.variance[:, 0]
        return self.model.family.updated_state(observed, mean, variance, self.model.parameters)

    def _updated_together(self, rows: Rows, which: np.ndarray) -> np.ndarray:
        """The same by one factorisation."""
        with one_blas_thread():
            mean, variance = (part[which] for part in AllRows(self.model, rows).posterior())
        return self.model.family.updated_state(taken(rows.observed, which), mean, variance, self.model.parameters)

    def _moments(
        self, query: np.ndarray, table: NeighbourTable, ks: np.ndarray, left_out: Observations | None, covariance: bool
    ) -> Moments:
        last = np.array([self._reach(int(k)) for k in ks])
        near = np.minimum(last, NEAR)
        asked = np.union1d(last, near)
        found = (self._hard if self.taper is None else self._continuous)(query, table, asked, left_out)
        _refuse_not_finite(found.mean, found.variance)
        at, at_near = np.searchsorted(asked, last), np.searchsorted(asked, near)
        variance, between = found.variance[:, at], None
        if covariance:
            own = found.covariance
            between = variance[..., None] * np.eye(variance.shape[-1]) if own is None else own[:, at]
        return Moments(
            found.mean[:, at], variance, found.quad[:, at], found.size[:, at], found.quad[:, at_near],
            found.size[:, at_near], between, found.jittered, self.prior,
        )  # fmt: skip

    def _hard(
        self, query: np.ndarray, table: NeighbourTable, asked: np.ndarray, left_out: Observations | None
    ) -> _Given:
        """Given so many (q,) of the neighbours, all by one factorisation."""
        ids = table.ids
        latent = self.model.latent(self.rows, query, ids, left_out, asked, located=self.located_of_few)
        sizes = np.where(ids[..., None] >= 0, self.model.family.sizes(latent.observed), 0.0).cumsum(axis=1)
        found = latent.found
        return _Given(latent.mean, found.variance, found.quad, sizes[:, asked - 1], found.covariance, found.jittered)

    def _continuous(
        self, query: np.ndarray, table: NeighbourTable, asked: np.ndarray, left_out: Observations | None
    ) -> _Given:
        """The same with noises that depend on the number of neighbours, and a factorisation for each."""
        parts = []
        for k in asked.tolist():
            around, latent = self.around(query, table, k, left_out)
            there = np.where(around.ids >= 0, around.shares, 0.0)[..., None]
            size = (there * self.model.family.sizes(latent.observed)).sum(axis=1, keepdims=True)
            found = latent.found
            parts.append(_Given(latent.mean, found.variance, found.quad, size, found.covariance, found.jittered))
        mean, variance, quad, size = (
            np.concatenate(own, axis=1) for own in zip(*(part[:4] for part in parts), strict=True)
        )
        own = [part.covariance for part in parts if part.covariance is not None]
        between = np.concatenate(own, axis=1) if own else None
        return _Given(mean, variance, quad, size, between, sum(part.jittered for part in parts))

    def around(
        self,
        query: np.ndarray,
        table: NeighbourTable,
        k: int,
        left_out: Observations | None = None,
        differentiate: bool = False,
    ) -> tuple[Around, Latent]:
        """The nearest k of the rows of a table, tapering off, and the latent functions at query (b, d) given these."""
        assert self.taper is not None
        around = self.taper.around(table.ids, table.sqdist, k)
        latent = self.model.latent(
            self.rows, query, around.ids, left_out, None, differentiate, self.located_of_few, around.noises
        )
        return around, latent

    def _blocks(self, n: int, k: int) -> list[slice]:
        width = max(k, 1) * self.model.family.latents
        size = max(1, _BLOCK_NUMBERS // width)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


class _Given(NamedTuple):
    """Moments and sizes given several numbers of neighbours, (b, q, ..) each, and how many rows needed extra jitter."""

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    size: np.ndarray
    covariance: np.ndarray | None
    jittered: int


def can_be_whole(model: Model, n: int) -> bool:
    """Whether n rows are few enough to be factorised together, and the latent functions do not depend on each other."""
    return n <= MOST_WHOLE and model.covariance.matrix_rows == 1


def _refuse_not_finite(mean: np.ndarray, variance: np.ndarray) -> None:
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        raise FloatingPointError(
            "a prediction is not finite: the rows or the hyper-parameters hold values that overflow. "
            "Check the table for extreme values."
        )
