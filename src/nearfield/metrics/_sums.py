"""Scores as sums over rows, which blocks of rows add to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nearfield.counts import CountPredictive
from nearfield.metrics._rows import (
    BINS,
    LEAST_PROBABILITY,
    LEVELS,
    Predictive,
    check_shape,
    checked_probabilities,
    checked_values,
    checked_weights,
    crps_of,
    is_inside,
    parameters_of,
    total_of,
)

_Sum = TypeVar("_Sum", bound="_Sums")


@dataclass(frozen=True)
class _Sums:
    """Sums over rows, and how many there are; blocks of rows are joined with `+`, field by field."""

    n: float = 0

    def __add__(self: _Sum, other: _Sum) -> _Sum:
        added: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            a, b = getattr(self, name), getattr(other, name)
            added[name] = tuple(x + y for x, y in zip(a, b, strict=True)) if isinstance(a, tuple) else a + b
        return type(self)(**added)

    def _check(self) -> None:
        if self.n == 0:
            name = type(self).__name__
            raise ValueError(f"No rows were scored: add at least one block with {name}.of(y, prediction).")


@dataclass(frozen=True)
class _NumberSums(_Sums):
    """What the scores of real numbers and those of counts have in common."""

    squared_error: float = 0.0
    nll: float = 0.0
    crps: float = 0.0
    inside: tuple[float, ...] = (0,) * len(LEVELS)

    def as_dict(self) -> dict[str, float]:
        """Compute averages over the rows seen so far.

        Returns
        -------
        dict of str to float
            `n`, `rmse`, `nll`, `crps`, `coverage_50`, `coverage_90` and `coverage_95`.
        """
        self._check()
        covered = {f"coverage_{level * 100:.0f}": c / self.n for level, c in zip(LEVELS, self.inside, strict=True)}
        return {
            "n": self.n,
            "rmse": float(np.sqrt(self.squared_error / self.n)),
            "nll": self.nll / self.n,
            "crps": self.crps / self.n,
            **covered,
        }


@dataclass(frozen=True)
class Scores(_NumberSums):
    """Sums over rows from which all scores of real numbers follow; blocks of rows are joined with `+`.

    Parameters
    ----------
    n : float, default=0
        How many rows there are, as often as they count.
    squared_error : float, default=0.0
        Sum of squared errors.
    nll : float, default=0.0
        Sum of negative log densities, of counts of probabilities.
    crps : float, default=0.0
        Sum of continuous ranked probability scores.
    inside : tuple of float, default=(0, 0, 0)
        How many rows were inside of the central intervals of 50, 90 and 95 %.

    Examples
    --------
    >>> total = sum((Scores.of(y, dist) for y, dist in blocks), start=Scores())  # doctest: +SKIP
    >>> total.as_dict()  # doctest: +SKIP
    """

    @classmethod
    def of(cls, y: ArrayLike, dist: Predictive) -> Scores:
        """Score one block of rows.

        Parameters
        ----------
        y : array-like of shape (n,)
            Observed values.
        dist : frozen distribution of scipy.stats
            What `predict_dist` gave for these rows.

        Returns
        -------
        Scores
            Sums over them.
        """
        y = checked_values(y)
        parameters = parameters_of(y, dist)
        cdf, logpdf = dist.cdf(y), dist.logpdf(y)
        return cls(
            n=y.size,
            squared_error=float(np.sum((y - parameters.loc) ** 2)),
            nll=float(np.sum(-logpdf)),
            crps=float(np.sum(crps_of(y, parameters, cdf, logpdf))),
            inside=tuple(int(np.sum(is_inside(cdf, level))) for level in LEVELS),
        )


@dataclass(frozen=True)
class CountScores(_NumberSums):
    """Scores of counts, added up and named as `Scores` are.

    The central interval of probability q runs from the quantile (1 - q) / 2 to the quantile (1 + q) / 2, ends included.
    Counts being whole, it holds at least the probability q: coverage above q is no fault, coverage below q is.

    Parameters
    ----------
    n : float, default=0
        How many rows there are, as often as they count.
    squared_error : float, default=0.0
        Sum of squared errors.
    nll : float, default=0.0
        Sum of negative log densities, of counts of probabilities.
    crps : float, default=0.0
        Sum of continuous ranked probability scores.
    inside : tuple of float, default=(0, 0, 0)
        How many rows were inside of the central intervals of 50, 90 and 95 %.
    """

    @classmethod
    def of(cls, y: ArrayLike, dist: CountPredictive, weights: ArrayLike | None = None) -> CountScores:
        """Score one block of rows.

        Parameters
        ----------
        y : array-like of shape (n,)
            Observed counts.
        dist : CountDistribution
            What `predict_dist` gave for these rows.
        weights : array-like of shape (n,), default=None
            How often each row counts.

        Returns
        -------
        CountScores
            Sums over them.
        """
        y = checked_values(y)
        if not isinstance(dist, CountPredictive):
            raise ValueError(
                f"Got a prediction of kind {type(dist).__name__!r}; a CountDistribution is expected, or another with "
                "the methods of nearfield.counts.CountPredictive."
            )
        check_shape(y, (len(dist),))
        weights = checked_weights(y, weights)
        crps = dist.crps_rows(y)  # refuses what is no count
        below, up_to = dist.cdf(y - 1), dist.cdf(y)
        # y >= ppf(q) if and only if cdf(y) >= q, and y <= ppf(q) if and only if cdf(y - 1) < q
        inside = ((up_to >= (1 - level) / 2) & (below < (1 + level) / 2) for level in LEVELS)
        return cls(
            n=total_of(weights),
            squared_error=float(weights @ (y - dist.mean()) ** 2),
            nll=float(weights @ -dist.logpmf(y)),
            crps=float(weights @ crps),
            inside=tuple(float(weights @ rows) for rows in inside),
        )


@dataclass(frozen=True)
class ClassScores(_Sums):
    """Scores of predicted classes; blocks of rows are joined with `+`.

    Parameters
    ----------
    n : float, default=0
        How many rows there are, as often as they count.
    nll : float, default=0.0
        Sum of negative log probabilities.
    wrong : float, default=0.0
        How many labels were wrong.
    brier : float, default=0.0
        Sum of squared distances.
    gaps : tuple of float, default=15 zeros
        Sums of 1[right] - max p over the rows of each bin, from which the calibration error follows.
    """

    nll: float = 0.0
    wrong: float = 0.0
    brier: float = 0.0
    gaps: tuple[float, ...] = (0.0,) * BINS

    @classmethod
    def of(cls, y: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None) -> ClassScores:
        """Score one block of rows.

        Parameters
        ----------
        y : array-like of int of shape (n,)
            Numbers of the classes that were seen, from 0 to K - 1.
        probabilities : array-like of shape (n, K)
            What `predict_proba` gave for these rows.
        weights : array-like of shape (n,), default=None
            How often each row counts.

        Returns
        -------
        ClassScores
            Sums over them.
        """
        y = checked_values(y)
        p = checked_probabilities(y, probabilities)
        weights = checked_weights(y, weights)
        of_y = p[np.arange(y.size), y.astype(np.intp)]
        top, right = p.max(axis=1), p.argmax(axis=1) == y
        bins = np.minimum((top * BINS).astype(np.intp), BINS - 1)
        return cls(
            n=total_of(weights),
            nll=float(weights @ -np.log(np.maximum(of_y, LEAST_PROBABILITY))),
            wrong=float(weights @ ~right),
            # sum of (p_c - 1[c = y])^2 = sum of p_c^2 - 2 p_y + 1
            brier=float(weights @ (np.sum(p**2, axis=1) - 2 * of_y + 1)),
            gaps=tuple(np.bincount(bins, weights * (right - top), minlength=BINS).tolist()),
        )

    def as_dict(self) -> dict[str, float]:
        """Compute averages over the rows seen so far.

        Returns
        -------
        dict of str to float
            `n`, `nll`, `error`, `brier` and `calibration_error`.
        """
        self._check()
        return {
            "n": self.n,
            "nll": self.nll / self.n,
            "error": self.wrong / self.n,
            "brier": self.brier / self.n,
            "calibration_error": float(np.sum(np.abs(self.gaps))) / self.n,
        }
