"""Standardisation: inputs and target to mean zero and variance one on the training rows, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

FAR = 1e100
_BLOCK = 2**16  # rows at a time


@dataclass(frozen=True, eq=False)
class Scaling:
    """Centres and scales of the columns, (d,) each, or of the target, () each."""

    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray, if_constant: float = 1.0) -> Scaling:
        """Weighted means and standard deviations of values (n,) or (n, d); right for huge and tiny numbers too.

        Where all values are the same, the scale is `if_constant`. Columns are taken one by one, so that memory does not
        grow with their number.
        """
        if values.ndim == 2:
            parts = [cls.of(column_of(values, e), weights, if_constant) for e in range(values.shape[1])]
            return cls(np.array([part.centre for part in parts]), np.array([part.scale for part in parts]))
        low, high = values.min(axis=0), values.max(axis=0)
        span = high / 2 - low / 2  # halves first: the difference of two huge numbers may overflow
        constant = span == 0
        unit = np.where(constant, 1.0, span)
        mean = _mean(lambda some: values[some] / unit - low / unit, weights)
        deviation = np.sqrt(_mean(lambda some: (values[some] / unit - low / unit - mean) ** 2, weights))
        centre = np.where(constant, low, (mean + low / unit) * unit)
        return cls(
            np.asarray(centre),
            np.asarray(np.where(constant, if_constant, np.where(deviation > 0, deviation, 1.0) * unit)),
        )

    @classmethod
    def robust(cls, values: np.ndarray, weights: np.ndarray) -> Scaling:
        """Weighted median and scaled median deviation of values (n,), which outliers do not move.

        Where more than half of the values are the same, mean and standard deviation.
        """
        centre = _median(values, weights)
        scale = 1.4826 * _median(np.abs(values - centre), weights)
        usable = np.isfinite(scale) and scale > 0
        return cls(np.asarray(centre), np.asarray(scale)) if usable else cls.of(values, weights)

    def is_linear(self, values: np.ndarray) -> bool:
        """Whether these (n, d) are so near that `apply` subtracts and divides, and nothing else."""
        with np.errstate(over="ignore", invalid="ignore"):
            ends = (np.stack([values.min(axis=0), values.max(axis=0)]) - self.centre) / self.scale
        return bool((np.abs(ends) <= FAR).all())

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Standardised values; beyond FAR they grow with their logarithm, so that squared distances do not overflow."""
        if np.ndim(values) == 0 or len(values) <= _BLOCK:
            return self._applied(values)
        whole = np.empty_like(values, dtype=np.float64)  # block by block: of many rows no second array is made
        for start in range(0, len(values), _BLOCK):
            whole[start : start + _BLOCK] = self._applied(values[start : start + _BLOCK])
        return whole

    def _applied(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            found: np.ndarray = (values - self.centre) / self.scale
            return found if np.abs(found).max(initial=0.0) <= FAR else self._in_reach(values, found)

    def _in_reach(self, values: np.ndarray, found: np.ndarray) -> np.ndarray:
        """The same where the differences or quotients `found` may overflow."""
        found = np.where(np.isfinite(found), found, values / self.scale - self.centre / self.scale)
        size = np.minimum(np.abs(found), np.finfo(np.float64).max)
        return np.where(size > FAR, np.copysign(FAR * (1 + np.log(np.maximum(size, FAR) / FAR)), found), found)

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Values in their own units."""
        return values * self.scale + self.centre

    # --- of inputs, which may be more than scaled: see `coordinates.ChartedScaling` ----------------------------------

    @property
    def given(self) -> int:
        """Number of the features that it takes."""
        return len(self.scale)

    def names(self, features: Sequence[str]) -> list[str]:
        """Names of what comes out, from those of the features that go in."""
        return list(features)

    def replaced(self, inputs: np.ndarray, others: np.ndarray, features: Sequence[int]) -> np.ndarray:
        """Standardised inputs (n, m) with these features as others (n, m) have them."""
        found, columns = inputs.copy(), list(features)
        found[:, columns] = others[:, columns]
        return found

    def slopes(self, values: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Slopes by values (n, d) in their own units from those by standardised ones (n, m)."""
        return by / self.scale


def _mean(values: Callable[[slice], np.ndarray], weights: np.ndarray) -> float:
    """Weighted mean of what `values` says of rows (n,), block by block: no array of all rows is made."""
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(weights), _BLOCK)]
    totals = [(float((values(some) * weights[some]).sum()), float(weights[some].sum())) for some in blocks]
    return float(np.sum([total for total, _ in totals]) / np.sum([weight for _, weight in totals]))


def column_of(values: np.ndarray, e: int) -> np.ndarray:
    """A column (n,) of values (n, d), as float64."""
    return np.ascontiguousarray(values[:, e], dtype=np.float64)


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    """Weighted median of values (n,)."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(share, share[-1] / 2)]])
