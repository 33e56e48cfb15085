"""The closed form of all rows at once: each left out, or a new row predicted, by one factorisation of an n x n matrix.

With P = K^-1 and alpha = P t of all n rows (the letters are those of `conditional/__init__.py`), the latent function at
the rows G that are left out together, by itself or with its group, given all others, is

    A = (P_GG)^-1     mean = t_G - A alpha_G     covariance = A - diag(v_G)

which is the closed form with k = n - 1 neighbours for every row, at the price of one. With incoming gradients by mean
and variance (g_m, g_v), by log |K| and by quad = t' K^-1 t, and with h = A g_m and r = A alpha_G, the gradient is

    B_GG = (h r' + r h')/2 - A diag(g_v) A      w_G = -h
    dK = -(P B P + (P w alpha' + alpha w' P)/2) + g_log_det P - g_quad alpha alpha'
    dt = g_m + P w + 2 g_quad alpha     dv = diag(dK) - g_v

Several latent functions share the correlations; those that share the noises (R = 1) share P too. A target with an
infinite noise was not observed: its row is not in the matrix of that latent function, and predicted from the others.

Lines of matrices are shared out among threads in fixed portions, and BLAS runs on one thread within each, so that the
answers have the same bits for any number of threads. A new row's have the same whichever others come with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from nearfield._threads import in_threads
from nearfield.conditional import Slopes
from nearfield.conditional._checks import check_owners, check_shapes, numbers, whole_numbers
from nearfield.conditional._fused import JITTER, MOST_JITTER
from nearfield.conditional._lines import LANES, contract, correlate, mirror, predict
from nearfield.conditional.deletions import Influences
from nearfield.kernels import Kernel

_PORTION = 64  # lines of a matrix in one portion of work


class Given(NamedTuple):
    """Moments of rows given others: mean and quad (b, C), variance (b, R), for a kernel of scale one."""

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray


class Whole:
    """All rows (n, d) with targets (n, C) and noises (n, R), R = 1 or C, factorised together.

    quad (C,): t' K^-1 t; log_det (R,): of K; jittered: factorisations that needed a larger diagonal.
    owners: of features, see `Neighbourhood`. differentiate: keep what `slopes` needs.
    earlier: the first of these rows, with the same kernel, as they were
    factorised before: theirs is then extended, to the same bits as if it had not been there.
    """

    def __init__(
        self,
        kernel: Kernel,
        log_lengths: np.ndarray,
        log_shape: np.ndarray,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        owners: np.ndarray | None = None,
        *,
        differentiate: bool = False,
        earlier: Whole | None = None,
    ) -> None:
        check_shapes(kernel, np.asarray(log_shape))
        if len(targets) != len(inputs) or noises.shape not in (targets.shape, (len(targets), 1)):
            raise ValueError(
                f"targets {targets.shape} and noises {noises.shape} do not fit {len(inputs)} rows: "
                "expected (n, C) and (n, R) with R = 1 or C."
            )
        n, self.latents, factors = len(inputs), targets.shape[1], noises.shape[1]
        self._inputs, self._inverse_lengths = inputs, np.exp(-np.asarray(log_lengths))
        self._owners = np.zeros(0, dtype=np.int64) if owners is None else whole_numbers(owners)
        check_owners(self._owners, inputs.shape[1])
        points = self._points(inputs)
        self._kernel = (kernel.code, np.exp(log_shape), numbers(points.T))
        kept = n if differentiate else 1
        self._slopes = np.empty((kept, n)), np.empty((kept if kernel.shapes else 1, n))
        self._shapes, self._differentiate = len(kernel.shapes), differentiate
        count, known = self.latents // factors, 0
        if earlier is not None and not differentiate and earlier._extends_to(targets, noises):
            known = len(earlier) // _PORTION * _PORTION  # whole portions: what is behind them depends on the end
        correlations = self._correlated(points, known)
        self._parts: list[_Factor] = []
        for f in range(factors):
            own = targets[:, f * count : (f + 1) * count], noises[:, f]
            before = earlier._parts[f].factor if earlier is not None and known else None
            part = _Factor(correlations, *own, f + 1 == factors, not differentiate, before, known)
            if part.failed and known:  # what was left out of the matrix is needed after all
                part = _Factor(self._correlated(points, 0), *own, True, True)
            self._parts.append(part)
        self.quad = np.concatenate([part.quad for part in self._parts])
        self.log_det = np.array([part.log_det for part in self._parts])
        self.jittered = sum(part.jittered for part in self._parts)

    def __len__(self) -> int:
        return len(self._inputs)

    def _points(self, inputs: np.ndarray) -> np.ndarray:
        """Scaled coordinates of inputs, which may be features."""
        scaled = inputs * self._inverse_lengths
        d = scaled.shape[1] - self._owners.size
        points = numbers(scaled[:, :d])
        for f, e in enumerate(self._owners.tolist(), d):
            points[:, e] += scaled[:, f]
        return points

    def _correlated(self, points: np.ndarray, known: int) -> np.ndarray:
        """Correlations (n, n) of all rows; those of the first `known` among each other are not filled in."""
        n = len(points)
        found, lines = np.empty((n, n)), numbers(points[known:])
        own = found[known:]
        in_threads(lambda *part: correlate(*self._kernel, lines, own, *self._slopes, *part), n - known, _PORTION)
        found[:known, known:] = own[:, :known].T
        return found

    def _extends_to(self, targets: np.ndarray, noises: np.ndarray) -> bool:
        """Whether more rows can simply follow: as many factors, nothing missing, no jitter."""
        alike = len(self._parts) == noises.shape[1] and self.latents == targets.shape[1] and len(self) <= len(targets)
        usual = all(part.there is None and part.extra == 0 and not part.failed for part in self._parts)
        return alike and usual and not self._differentiate and bool(np.isfinite(noises).all())

    def left_out(self, groups: np.ndarray | None = None) -> Given:
        """Every row given all others, or where there are groups (n,), given the rows of other groups."""
        mean, variance, quad = zip(*(part.left_out(_members(groups)) for part in self._parts), strict=True)
        return Given(np.concatenate(mean, axis=1), np.stack(variance, axis=1), np.concatenate(quad, axis=1))

    def slopes(
        self,
        by_mean: np.ndarray,
        by_variance: np.ndarray,
        by_log_det: np.ndarray | None = None,
        by_quad: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Slopes:
        """Gradients from those by the moments (n, C) and (n, R) of rows left out, by log_det (R,) and by quad (C,).

        Slopes by targets and noises are (1, n, C) and (1, n, R): all rows are neighbours, once.
        """
        if not self._differentiate:
            raise RuntimeError("slopes need Whole(.., differentiate=True).")
        columns = self._kernel[2]
        d, n = columns.shape
        total = np.zeros((n, n))
        by_targets, by_noises = np.zeros((n, self.latents)), np.zeros((n, len(self._parts)))
        count = self.latents // len(self._parts)
        for f, part in enumerate(self._parts):
            own = slice(f * count, (f + 1) * count)
            of_det = 0.0 if by_log_det is None else float(by_log_det[f])
            of_quad = np.zeros(count) if by_quad is None else by_quad[own]
            by_targets[:, own], by_noises[:, f] = part.slopes(
                by_mean[:, own], by_variance[:, f], of_det, of_quad, _members(groups), total
            )
        more = numbers((self._inputs[:, d:] * self._inverse_lengths[d:]).T)
        lengths = d + len(more)
        by_kernel = np.empty((n, lengths + self._shapes))

        def lines(start: int, stop: int) -> None:
            contract(columns, more, self._owners, total, *self._slopes, self._shapes > 0, by_kernel, start, stop)

        in_threads(lines, n, _PORTION)
        summed = by_kernel.sum(axis=0)
        return Slopes(summed[:lengths], summed[lengths:], by_targets[None], by_noises[None])

    def predict(self, query: np.ndarray) -> Given:
        """Moments of new rows, query (b, d), given all rows: one solve each."""
        return self._predicted(query, False)[0]

    def influences(self, query: np.ndarray) -> Influences:
        """The same, and what each of the n rows has to do with it: two solves each, and K^-1 when first asked for."""
        (mean, variance, quad), beta = self._predicted(query, True)
        alpha, precision = np.zeros((1, self.latents, len(self))), np.zeros((1, self.latents, len(self)))
        count = self.latents // len(self._parts)
        for f, part in enumerate(self._parts):
            own, there = slice(f * count, (f + 1) * count), slice(None) if part.there is None else part.there
            alpha[0, own][:, there], precision[0, own][:, there] = part.alpha.T, np.diagonal(part.inverse)
        variance, beta = (np.repeat(values, self.latents // values.shape[1], axis=1) for values in (variance, beta))
        return Influences(mean, variance, quad, alpha, beta, precision)

    def _predicted(self, query: np.ndarray, each: bool) -> tuple[Given, np.ndarray]:
        """Moments of new rows (b, d) given all rows; each: and beta (b, R, n)."""
        query = self._points(query)
        mean, variance = np.empty((len(query), self.latents)), np.empty((len(query), len(self._parts)))
        beta = np.zeros((len(query) if each else 0, len(self._parts), len(self)))
        for f, part in enumerate(self._parts):
            own_mean, own_variance = np.empty((len(query), part.alpha.shape[1])), np.empty(len(query))
            code, shape, columns = self._kernel
            columns = columns if part.there is None else numbers(columns[:, part.there])
            own_beta = np.empty((len(beta), columns.shape[1]))
            given = (code, shape, columns, part.factor, part.alpha, query, own_mean, own_variance, own_beta)
            in_threads(partial(predict, *given), -(-len(query) // LANES), 1)
            count = own_mean.shape[1]
            mean[:, f * count : (f + 1) * count], variance[:, f] = own_mean, own_variance
            beta[:, f, slice(None) if part.there is None else part.there] = own_beta
        return Given(mean, variance, np.broadcast_to(self.quad, mean.shape)), beta

    def weights(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """alpha (C, n) of all rows and beta (b, R, n) of new rows, query (b, d); zero where nothing was observed."""
        code, shape, columns = self._kernel
        n, count = len(self), self.latents // len(self._parts)
        cross, spare = np.empty((len(query), n)), (np.empty((1, n)), np.empty((1, n)))
        correlate(code, shape, columns, self._points(query), cross, *spare, 0, len(query))
        alpha, beta = np.zeros((self.latents, n)), np.zeros((len(query), len(self._parts), n))
        for f, part in enumerate(self._parts):
            there = slice(None) if part.there is None else part.there
            alpha[f * count : (f + 1) * count, there] = part.alpha.T
            beta[:, f, there] = _solved(part.factor, cross[:, there].T).T
        return alpha, beta


class _Factor:
    """One matrix K with the targets (n, c) that share its noises (n,); rows of infinite noise are not `there`.

    factor: line j is column j of the Cholesky factor L, from its diagonal on; alpha: K^-1 t.
    """

    def __init__(
        self,
        correlations: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        last: bool,
        by_portions: bool,
        before: np.ndarray | None = None,
        known: int = 0,
    ) -> None:
        """last: whether the correlations may be written over. by_portions: so that more rows can follow; before: the
        factor of the first rows, of which `known` stay."""
        there = np.isfinite(noises)
        self.there = None if there.all() else np.flatnonzero(there)
        self.size = len(noises)
        if self.there is not None:
            targets, noises = targets[there], noises[there]
            self._cross = correlations[np.ix_(~there, there)]
        self.noises, self.targets = noises, numbers(targets)
        extra, self.jittered = 0.0, 0
        while True:
            own = correlations if self.there is None else correlations[np.ix_(self.there, self.there)]
            own = own if last and self.there is None and extra == 0 else own.copy()
            own.flat[:: len(own) + 1] = 1 + noises + extra
            if before is not None:
                own[:known, :known] = before[:known, :known]
            self.failed = not (_in_portions(own, known) if by_portions else _at_once(own))
            if not self.failed or extra >= MOST_JITTER or known or not np.isfinite(noises).all():
                break
            if own is correlations:  # half of it is spoiled
                mirror_upper(correlations)
            extra, self.jittered = max(JITTER, extra * 10), self.jittered + 1
        self.factor = own
        if self.failed:
            self.factor.fill(np.nan)
        self.extra = extra
        self.alpha = _solved(self.factor, self.targets)
        self.quad = np.einsum("ic,ic->c", self.targets, self.alpha)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.log_det = 2 * float(np.log(np.diagonal(self.factor)).sum())
        self._inverse: np.ndarray | None = None

    @property
    def inverse(self) -> np.ndarray:
        """P = K^-1 (n, n)."""
        if self._inverse is None:
            found, _ = lapack.dpotri(self.factor.T, lower=1, overwrite_c=0)
            self._inverse = found.T
            own = self._inverse
            in_threads(lambda *part: mirror(own, *part), len(own), _PORTION)
        return self._inverse

    def left_out(self, members: list[np.ndarray] | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean (n, c), variance (n,) and quad (n, c) of every row without itself, or without its group."""
        mean, variance, lost = np.empty_like(self.targets), np.empty(len(self.targets)), np.empty_like(self.targets)
        alone, blocks = self._blocks(members)
        width = 1 / np.diagonal(self.inverse)[alone]
        mean[alone] = self.targets[alone] - width[:, None] * self.alpha[alone]
        variance[alone], lost[alone] = width, width[:, None] * self.alpha[alone] ** 2
        for rows, wide in blocks:
            mean[rows] = self.targets[rows] - wide @ self.alpha[rows]
            variance[rows], lost[rows] = np.diagonal(wide), np.sum(self.alpha[rows] * (wide @ self.alpha[rows]), axis=0)
        variance = np.maximum(variance - self.noises - self.extra, 0.0)
        if self.there is None:
            return mean, variance, self.quad - lost
        whole_mean, whole_variance = np.empty((self.size, self.targets.shape[1])), np.empty(self.size)
        whole_mean[self.there], whole_variance[self.there] = mean, variance
        quad = np.empty(whole_mean.shape)
        quad[self.there] = self.quad - lost
        missing = np.setdiff1d(np.arange(self.size), self.there)
        for row, cross in zip(missing.tolist(), self._cross, strict=True):
            group = self._beside(row, members)
            whole_mean[row], whole_variance[row] = self._unseen(cross, group)
            quad[row] = self.quad - (lost[group[:1]].sum(axis=0) if len(group) else 0.0)
        return whole_mean, whole_variance, quad

    def _unseen(self, cross: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, float]:
        """Mean (c,) and variance of a row that is not there, given all rows that are but for its group."""
        cross = cross.copy()
        cross[group] = 0.0
        beta = self.inverse @ cross
        if len(group):
            beta -= self.inverse[:, group] @ np.linalg.solve(self.inverse[np.ix_(group, group)], beta[group])
            beta[group] = 0.0
        return beta @ self.targets, max(1 - float(beta @ cross), 0.0)

    def _beside(self, row: int, members: list[np.ndarray] | None) -> np.ndarray:
        """Places of the rows that are there and of the group of one that is not."""
        if members is None or self.there is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(np.isin(self.there, next(rows for rows in members if row in rows)))

    def slopes(
        self,
        by_mean: np.ndarray,
        by_variance: np.ndarray,
        of_det: float,
        of_quad: np.ndarray,
        members: list[np.ndarray] | None,
        total: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Slopes by targets (n, c) and noises (n,); those by the correlations are added to `total` (n, n).

        Rows that are not there have no observation whose score could depend on them.
        """
        there = self.there
        if there is not None:
            by_mean, by_variance = by_mean[there], by_variance[there]
        inverse, alpha = self.inverse, self.alpha
        alone, blocks = self._blocks(members)
        h, bent = np.empty(by_mean.shape), np.empty(inverse.shape)  # bent: B P
        width = 1 / np.diagonal(inverse)[alone]
        h[alone] = width[:, None] * by_mean[alone]
        residual = width[:, None] * alpha[alone]
        bent[alone] = ((h[alone] * residual).sum(axis=1) - width**2 * by_variance[alone])[:, None] * inverse[alone]
        for rows, wide in blocks:
            h[rows] = wide @ by_mean[rows]
            pull = h[rows] @ (wide @ alpha[rows]).T
            bent[rows] = ((pull + pull.T) / 2 - (wide * by_variance[rows]) @ wide) @ inverse[rows]
        moved = -inverse @ h  # P w
        side = np.concatenate([-moved, -of_quad * alpha], axis=1), np.concatenate([alpha, alpha], axis=1)
        change = np.empty(inverse.shape)

        def lines(start: int, stop: int) -> None:  # the upper triangle, in portions that no number of threads changes
            for first in range(start * _PORTION, min(stop * _PORTION, len(change)), _PORTION):
                own, after = slice(first, min(first + _PORTION, len(change))), slice(first, None)
                part = change[own, after]
                np.matmul(inverse[own], bent[:, after], out=part)
                np.negative(part, out=part)
                part += side[0][own] @ side[1][after].T / 2 + side[1][own] @ side[0][after].T / 2
                part += of_det * inverse[own, after]

        # symmetric: -(P w) alpha' - alpha (P w)' with half each; quad's alpha alpha' twice with half each
        in_threads(lines, -(-len(change) // _PORTION), 1)
        in_threads(lambda *part: mirror(change, *part), len(change), _PORTION)
        by_targets, by_noises = by_mean + moved + 2 * of_quad * alpha, np.diagonal(change) - by_variance
        if there is None:
            total += change
            return by_targets, by_noises
        total[np.ix_(there, there)] += change
        whole_targets, whole_noises = np.zeros((self.size, by_targets.shape[1])), np.zeros(self.size)
        whole_targets[there], whole_noises[there] = by_targets, by_noises
        return whole_targets, whole_noises

    def _blocks(self, members: list[np.ndarray] | None) -> tuple[Any, list[tuple[np.ndarray, np.ndarray]]]:
        """Which rows are left out alone, and groups of others with their A = (P_GG)^-1."""
        if members is None:
            return slice(None), []
        return self._grouped(members)

    def _grouped(self, members: list[np.ndarray]) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        alone, blocks = [], []
        for rows in self._places(members):
            if len(rows) == 1:
                alone.append(rows[0])
            elif len(rows):
                blocks.append((rows, np.linalg.inv(self.inverse[np.ix_(rows, rows)])))
        return np.array(alone, dtype=np.int64), blocks

    def _places(self, members: list[np.ndarray]) -> Iterator[np.ndarray]:
        """Groups as places among the rows that are there."""
        if self.there is None:
            yield from members
            return
        place = np.full(self.size, -1)
        place[self.there] = np.arange(len(self.there))
        for rows in members:
            own = place[rows]
            yield own[own >= 0]


def _at_once(a: np.ndarray) -> bool:
    """The Cholesky factor L of a symmetric matrix in its place, line j being column j of L; False if there is none."""
    factor, info = lapack.dpotrf(a.T, lower=1, clean=0, overwrite_a=1)
    if factor.base is not a and not np.shares_memory(factor, a):
        a[...] = factor.T
    return bool(info == 0)


def _in_portions(a: np.ndarray, known: int) -> bool:
    """The same, some lines at a time from line `known` on: what a portion becomes does not depend on later ones."""
    for start in range(known, len(a), _PORTION):
        own = slice(start, min(start + _PORTION, len(a)))
        for first in range(0, start, _PORTION):
            rows = slice(first, first + _PORTION)
            rest = a[rows, own] - a[:first, rows].T @ a[:first, own]
            a[rows, own] = _lower_solved(a[rows, rows], rest)
        corner = a[own, own] - a[:start, own].T @ a[:start, own]
        factor, info = lapack.dpotrf(corner, lower=1, clean=1)
        if info != 0:
            return False
        upper = np.triu_indices(len(corner))  # what is below stays, for another try with jitter
        a[own, own][upper] = factor.T[upper]
    return True


def _lower_solved(factor: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """L^-1 of the sides, with line j of `factor` being column j of L."""
    found, _ = lapack.dtrtrs(np.asfortranarray(factor.T), sides, lower=1)
    return np.asarray(found)


def _members(groups: np.ndarray | None) -> list[np.ndarray] | None:
    """The rows of each group."""
    if groups is None:
        return None
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)


def _solved(factor: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """K^-1 t (n, c), c-contiguous."""
    found, _ = lapack.dpotrs(factor.T, np.asfortranarray(targets), lower=1)
    return np.ascontiguousarray(found)


def mirror_upper(a: np.ndarray) -> None:
    """The lower triangle becomes the upper one, too: a factorisation spoils the latter alone."""
    turned = a.T
    upper = np.triu_indices(len(a), 1)
    a[upper] = turned[upper]
