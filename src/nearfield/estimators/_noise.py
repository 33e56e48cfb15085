"""Noise that is known of new rows, as `noise_variance` of a fit says it of training rows."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from nearfield.estimators._base import GPEstimator
from nearfield.wild import told_noise


class MissingNoiseWarning(UserWarning):
    """The noise of training rows was known, and that of the rows to be predicted was not given."""


def noise_variances(given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Known noise variances of that shape, (n,) or (n, P), from a number for all, or one for each row and output."""
    found = np.asarray(0.0 if given is None else given, dtype=np.float64)
    if found.shape == (*shape, 1):
        found = found[..., 0]
    if found.ndim and found.shape != shape:
        raise ValueError(
            f"noise_variance has shape {found.shape}: expected {shape}, one for each row (and output), or a number "
            "for all of them."
        )
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ValueError("noise_variance has values that are negative or not finite: variances are at least zero.")
    return np.broadcast_to(found, shape)


class KnownNoise(GPEstimator):
    """For estimators of real targets."""

    def _known_noise(self, given: Any, n: int, uncertainty: str) -> np.ndarray | None:
        """Known noise variances (n, P) of new rows in standardised units; None for none.

        A prediction of observations without them is told, where those of the training rows were known.
        """
        if given is None:
            if uncertainty == "observation" and self._noise_was_known():
                warnings.warn(
                    "the model was fitted with noise_variance, and predictions of observations come without: no known "
                    "noise is assumed, only what was learned beside it. Pass noise_variance= (a number, or one for "
                    "each row; 0 if there is none), or uncertainty='latent' for the noise-free function.",
                    MissingNoiseWarning,
                    stacklevel=_users_level(),
                )
            return None
        unit = self._target.scale
        return (noise_variances(given, (n, *unit.shape)) / unit / unit).reshape(n, -1)

    def _noise_was_known(self) -> bool:
        predictor = self._fit.predictor
        return bool(told_noise(predictor.model.family.known_noise(predictor.rows.observed)).any())


def _users_level() -> int:
    """The `stacklevel` of the first caller outside of the package, for a warning of the calling function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("nearfield."):
        frame, level = frame.f_back, level + 1
    return level
