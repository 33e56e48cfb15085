"""Rows predicted jointly: how the latent functions at new rows vary together, given the data, and samples of them.

Everything here is about deviations from the predicted means over their standard deviations, z (n, C, s): normal, of
mean zero and variance one, with the correlations of the posterior. What a head makes of a row, its distribution, is put
on later.

Rows are drawn in an order as good as random that depends on what they hold alone: those first drawn are far apart, and
carry what rows have in common far away; later ones fill in, each given its nearest data and the nearest of the rows
drawn before it. The first are drawn together, given the union of their neighbours, where these are few, or else each
given as much data as a prediction is: what data far away say of a smooth function gets into the samples with them. Rows
that are equal are drawn once.

Later rows are given less data, so that their variance given the data alone is s and not the predicted v. With r the
variance that is left given the rows before too, the share 1 - r / s of theirs is handed on, and a row would have the
variance (1 - r / s) v + r; it is made v. What is left of the error is seen in samples, and taken away: in as many as it
takes to see it, which are few where it is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.linalg
from scipy.special import digamma, polygamma

from nearfield._threads import one_blas_thread
from nearfield.conditional.sequence import Links, draw, link
from nearfield.covariances import Kernels
from nearfield.kernels import profile
from nearfield.model import Model
from nearfield.neighbours import Hidden, build_index, find_equal_rows, order_key
from nearfield.sweep import Sweeper

DATA, DRAWN = 128, 32  # neighbours among the data and among the rows drawn before, at most
_FEW_DRAWN = 12  # among the rows drawn before; more, up to DRAWN, where predictions have more neighbours
HEAD = 1000  # rows that are drawn first: together, or given as much data as predictions are
MOST_GIVEN = 3000  # rows of data that rows are drawn together from
_BLOCK_ROWS = 8192
_LEVEL = 512  # rows of the first level in which rows before others are searched
_SLACK = 1e-6  # share of a drawn row's variance that is taken for noise: keeps weights on many close rows small
_LEAST = 1e-10  # of the prior variance: a row of less is known, and what it has in common with others is rounding
_JITTER = 1e-12  # of correlations, at first
_EXACT = 2000  # rows times outputs up to which variances of samples are computed
_PROBES, _MOST_PROBES = 32, 256  # samples that tell them of more rows, at a time and at most
_GROUP = 8  # probes whose mean squares tell how much all rows err together
_CLOSE = 0.02  # error of a standard deviation beyond which more samples are worth their time


class _Part(Protocol):
    """How some of the latent functions vary together over n rows."""

    def draw(self, z: np.ndarray) -> None:
        """Standard normals (n, c, s) into samples, in place."""
        ...


@dataclass(frozen=True, eq=False)
class Joint:
    """How the C latent functions at n rows vary together: parts, each of the latent functions first .. last."""

    row: np.ndarray  # (n,) the distinct row that each row is
    distinct: int
    parts: list[tuple[int, int, _Part]]

    @property
    def latents(self) -> int:
        return self.parts[-1][1]

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Samples z (n, C, n_samples)."""
        z = rng.standard_normal((self.distinct, self.latents, n_samples))
        for first, last, part in self.parts:
            part.draw(z[:, first:last])
        return z if self.distinct == len(self.row) else z[self.row]

    def correlation(self) -> np.ndarray:
        """Correlations (n, n) between rows, of a single latent function; positive semi-definite."""
        ((_, _, part),) = self.parts
        roots = np.eye(self.distinct)[:, None]
        part.draw(roots)
        with one_blas_thread():
            found = roots[:, 0] @ roots[:, 0].T
        size = np.sqrt(np.diagonal(found))
        found /= size[:, None] * size
        np.fill_diagonal(found, 1.0)
        return np.asarray(found[np.ix_(self.row, self.row)])


def joint(sweeper: Sweeper, k: int, inputs: np.ndarray, variance: np.ndarray) -> Joint:
    """How the latent functions at standardised inputs (n, d), with predicted variances (n, C), vary together.

    k: neighbours that the model predicts a row from.
    """
    equal = find_equal_rows(inputs)
    row = np.empty(len(inputs), dtype=np.int64)
    row[equal.members] = np.repeat(np.arange(len(equal)), np.diff(equal.starts))
    return Joint(row, len(equal), _Task(sweeper, k, inputs[equal.first], variance[equal.first]).parts())


@dataclass(frozen=True, eq=False)
class _Task:
    """Distinct rows inputs (n, d) with variances (n, C), to be drawn given the data of a sweeper."""

    sweeper: Sweeper
    k: int
    inputs: np.ndarray
    variance: np.ndarray

    @property
    def model(self) -> Model:
        return self.sweeper.model

    def _apart(self, noises: int) -> list[tuple[Kernels, list[int]]]:
        """Kernels, split where latent functions have noises of their own, and the columns of noises that belong."""
        found: list[tuple[Kernels, list[int]]] = []
        for own in self.model.covariance.kernels(self.model.parameters):
            mixed, alike = len(own.mixing) > 1, noises == 1
            if mixed:
                found.append((own, [min(c, noises - 1) for c in range(own.first, own.last)]))
            elif alike:
                found.append((own, [0]))
            else:
                found += [(own._replace(first=c, last=c + 1), [c]) for c in range(own.first, own.last)]
        return found

    def parts(self) -> list[tuple[int, int, _Part]]:
        """How each of the latent functions, or some of them together, are drawn."""
        order = np.argsort(order_key(self.inputs), kind="stable")
        width = self.model.covariance.matrix_rows
        first, later = order[: HEAD // width], order[HEAD // width :]
        given = self._given(first)
        ids = np.zeros((len(order), 0), dtype=np.int64)
        if later.size or given is None:
            most = min(max(self.k, _FEW_DRAWN), DRAWN)
            ids = _earlier(self._new / self.sweeper.lengths, order, max(8, most // width))
        found: list[tuple[int, int, _Part]] = []
        for own, columns in self._apart(self._all_noises.shape[1]):
            noises = self._all_noises[:, columns] * np.sum(own.mixing**2, axis=1)
            together = None if given is None else self._together(own, first, given, noises)
            one_by_one = order if given is None else later
            weights, factor = self._linked(own, noises, ids, first if given is None else first[:0], later)
            found.append((own.first, own.last, _Sequence(first, together, one_by_one, ids, weights, factor)))
        return found

    @cached_property
    def _new(self) -> np.ndarray:
        """The rows (n, d) as the kernel sees them, before the length scales."""
        return self.model.coordinates(self.inputs)

    @cached_property
    def _all_noises(self) -> np.ndarray:
        """Noise variances (n, R) of the sites of all training rows, relative to the prior variance."""
        model, rows = self.model, self.sweeper.rows
        return model.family.sites(rows.observed, rows.state, model.parameters, model.scale2).noises

    # --- the first rows ---------------------------------------------------------------------------------------------

    def _given(self, first: np.ndarray) -> np.ndarray | None:
        """The training rows that the rows `first` (h,) are predicted from, if they are few."""
        most = MOST_GIVEN // self.model.covariance.matrix_rows
        found = np.zeros(0, dtype=np.int64)
        if min(self.k, len(self.sweeper.rows)) > most:
            return None
        for start in range(0, len(first), 64):
            ids = self.sweeper.new_ids(self.inputs[first[start : start + 64]], self.k)
            found = np.union1d(found, ids[ids >= 0])
            if found.size > most:
                return None
        return found

    def _together(self, own: Kernels, first: np.ndarray, given: np.ndarray, noises: np.ndarray) -> np.ndarray:
        """Lower factor (hP, hP) of the correlations of the rows `first`, outputs of a row side by side."""
        data, new = self.sweeper.located[given], self._new[first]
        with one_blas_thread():
            return self._factorised(own, data, new, noises[given])

    def _factorised(self, own: Kernels, data: np.ndarray, new: np.ndarray, noises: np.ndarray) -> np.ndarray:
        """The correlations of the outputs of new rows, in the order (row, output), given the data."""
        noises = noises.ravel()
        seen = np.isfinite(noises)
        between = self._covariance(own, data, data)[np.ix_(seen, seen)]
        cross, prior = self._covariance(own, data, new)[seen], self._covariance(own, new, new)
        between[np.diag_indices_from(between)] += noises[seen]
        half = scipy.linalg.solve_triangular(_factor(between, 0.0), cross, lower=True)
        found = prior - half.T @ half
        least = _LEAST * np.diagonal(prior)
        known = np.diagonal(found) <= least
        found[known] = found[:, known] = 0.0
        size = np.sqrt(np.maximum(np.diagonal(found), least))
        found = found / size[:, None] / size
        np.fill_diagonal(found, 1.0)
        factor = _factor(found, _JITTER)
        return factor / np.sqrt(np.sum(factor**2, axis=1, keepdims=True))

    def _covariance(self, own: Kernels, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Prior covariances (bP, cP) between the outputs of two sets of rows, for kernels of scale one."""
        total = np.zeros((len(one), len(own.mixing), len(other), len(own.mixing)))
        for q, log_lengths in enumerate(own.log_lengths):
            lengths = np.exp(log_lengths)
            r2 = np.zeros((len(one), len(other)))
            for e in range(one.shape[1]):
                r2 += ((one[:, e, None] - other[:, e]) / lengths[e]) ** 2
            value = profile(self.model.covariance.kernel, r2, self.model.parameters["log_shape"]).value
            w = own.mixing[:, q]
            total += value[:, None, :, None] * (w[:, None] * w)[None, :, None, :]
        return total.reshape(len(one) * len(own.mixing), len(other) * len(own.mixing))

    # --- later rows -------------------------------------------------------------------------------------------------

    def _linked(
        self, own: Kernels, noises: np.ndarray, ids: np.ndarray, first: np.ndarray, later: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weights (n, P, e, P) and factors (n, P, P) of standardised deviations, given the rows before, ids (n, e).

        Rows that are neither `first` nor `later` have none.
        """
        outputs, prior = len(own.mixing), np.sum(own.mixing**2, axis=1)
        relative = (self.variance / self.model.scale2)[:, own.first : own.first + outputs]
        predicted = np.maximum(relative, _LEAST) * prior
        points = np.concatenate([self.sweeper.located, self._new])
        noises = np.concatenate([noises, _SLACK * predicted])
        size = np.sqrt(predicted)
        n, e = ids.shape
        weights, factor = np.zeros((n, outputs, e, outputs)), np.zeros((n, outputs, outputs))
        for which, most in ((first, self.k), (later, max(8, DATA // outputs))):
            data = min(self.k, most, len(self.sweeper.rows))
            which = np.sort(which)  # rows often come in an order in which one is near the next: searches are faster
            for start in range(0, len(which), _BLOCK_ROWS):
                rows = which[start : start + _BLOCK_ROWS]
                links = self._links(own, points, noises, rows, ids[rows], data)
                rest = np.minimum(np.sum(links.factor**2, axis=2), links.variance)
                handed = 1 - rest / np.maximum(links.variance, _LEAST * prior)
                gain = 1 / np.sqrt(np.maximum(handed * predicted[rows] + rest, _LEAST * prior))
                sizes = size[np.maximum(ids[rows], 0)]  # (b, e, P)
                weights[rows] = links.weights * sizes[:, None] * gain[:, :, None, None]
                factor[rows] = links.factor * gain[:, :, None]
        return weights, factor

    def _links(
        self, own: Kernels, points: np.ndarray, noises: np.ndarray, rows: np.ndarray, before: np.ndarray, data: int
    ) -> Links:
        """Links of the rows (b,) to so much data and to the rows before (b, e), which are the last of the points."""
        model, new = self.model, self._new[rows]
        near = self.sweeper.index.query(new / self.sweeper.lengths, data).ids
        ids = np.concatenate([near, np.where(before >= 0, before + len(self.sweeper.rows), -1)], axis=1)
        shape = model.parameters["log_shape"]
        return link(model.covariance.kernel, own.log_lengths, shape, own.mixing, points, noises, new, ids, data)


@dataclass(frozen=True, eq=False)
class _Sequence:
    """Some rows (h,) that are drawn together, by the factor (hP, hP) of their correlations, if there is one; and then

    others, in an order, given the rows ids (n, e) with those weights (n, P, e, P) and what is left, (n, P, P).
    """

    first: np.ndarray
    together: np.ndarray | None
    order: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    factor: np.ndarray

    def draw(self, z: np.ndarray) -> None:
        """Of one output, several latent functions are as good as several samples."""
        flat = np.ascontiguousarray(z).reshape(len(z), self.factor.shape[1], -1)
        self._draw(flat)
        if self.order.size:
            flat /= self._sizes[:, :, None]
        if not np.shares_memory(flat, z):
            z[...] = flat.reshape(z.shape)

    def _draw(self, z: np.ndarray) -> None:
        """The same of z (n, P, s), before their variances are made one."""
        if self.together is not None and self.first.size:
            with one_blas_thread():
                drawn = self.together @ z[self.first].reshape(len(self.together), z.shape[2])
            z[self.first] = drawn.reshape(len(self.first), *z.shape[1:])
        if self.order.size:
            draw(self.order, self.ids, self.weights, self.factor, z)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Standard deviations (n, P) of what `_draw` draws: near one, but the rows before tell of data that a row is
        not given. Of many rows they are estimated, and believed as far as they differ by more than chance."""
        n, outputs = self.factor.shape[:2]
        if n * outputs <= _EXACT:
            roots = np.eye(n * outputs).reshape(n, outputs, n * outputs)
            self._draw(roots)
            return np.sqrt(np.einsum("ips,ips->ip", roots, roots))
        rng, total, common = np.random.default_rng(0), np.zeros((n, outputs)), np.zeros(0)
        for drawn in range(_PROBES, _MOST_PROBES + 1, _PROBES):
            probes = rng.standard_normal((n, outputs, _PROBES))
            self._draw(probes)
            total += np.einsum("ips,ips->ip", probes, probes)
            groups = np.einsum("ipgs,ipgs->g", *(probes.reshape(n, outputs, -1, _GROUP),) * 2)
            common = np.concatenate([common, groups / groups.size])
            found, error = _believed(total, drawn)
            shared = 0.5 * common.std(ddof=1) / common.mean() / math.sqrt(len(common))  # rows near each other err alike
            if math.hypot(error, shared) < _CLOSE:
                break
        return found


def _believed(squares: np.ndarray, drawn: int) -> tuple[np.ndarray, float]:
    """Standard deviations, by the sums of squares of so many normal draws of each, and their error, relative to them.

    Logarithms of variances are drawn towards their mean, as far as they differ by no more than chance.
    """
    logs = np.log(squares / 2) - digamma(drawn / 2)  # of a mean of squares the logarithm has this mean
    centre, chance = logs.mean(), float(polygamma(1, drawn / 2))  # and this variance
    differ = max(float(logs.var()) - chance, 0.0)
    believed = differ / (differ + chance)
    return np.exp(0.5 * (centre + believed * (logs - centre))), 0.5 * math.sqrt(believed * chance)


def _earlier(points: np.ndarray, order: np.ndarray, most: int) -> np.ndarray:
    """Numbers (n, e) of the nearest rows before each of the points (n, d) in that order, -1 where there are fewer.

    Level by level, each as long as all before it: at least half of the rows that are searched may then be seen.
    """
    n, last = len(points), 0
    rank = np.empty(n)
    rank[order] = np.arange(n)
    found = np.full((n, min(most, max(n - 1, 1))), -1, dtype=np.int64)
    while last < n:
        first, last = last, min(n, max(2 * last, _LEVEL))
        among, asking = np.sort(order[:last]), np.sort(order[first:last])
        index = build_index(points[among], hidden=Hidden(times=rank[among]))
        ids = index.query(points[asking], found.shape[1], np.searchsorted(among, asking)).ids
        found[asking] = np.where(ids >= 0, among[np.maximum(ids, 0)], -1)
    return found


def _factor(matrix: np.ndarray, jitter: float) -> np.ndarray:
    """The lower Cholesky factor of a matrix with a diagonal of about one, made larger until there is one."""
    while True:
        try:
            jittered = matrix + jitter * np.eye(len(matrix)) if jitter else matrix
            return np.asarray(scipy.linalg.cholesky(jittered, lower=True))
        except np.linalg.LinAlgError:
            jitter = max(_JITTER, 10 * jitter)
            if jitter > 1:
                raise
