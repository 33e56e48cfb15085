"""Rows that are to be forgotten: which these are, and what is left of the observations that they were part of."""

from __future__ import annotations

from typing import Any

import numpy as np


def asked_rows(ids: Any, came: int) -> np.ndarray:
    """Which of the rows (came,) are meant by numbers from 0, in any order, or by a mask (came,)."""
    asked = np.asarray(ids)
    if asked.dtype == np.bool_:
        if asked.shape != (came,):
            raise ValueError(
                f"ids is a mask of shape {asked.shape}: expected ({came},), true or false for each of the {came:,} "
                "rows that were given."
            )
        return asked.copy()
    gone = np.zeros(came, dtype=np.bool_)
    if not asked.size:
        return gone
    if asked.ndim > 1 or asked.dtype.kind not in "iu":
        raise ValueError(
            f"ids is {_shown(ids)}: expected whole numbers of rows as they were given, from 0, or a mask ({came},)."
        )
    unknown = np.atleast_1d((asked < 0) | (asked >= came))
    if unknown.any():
        raise ValueError(
            f"ids has {np.atleast_1d(asked)[unknown][0]}, which is no row: {came:,} rows were given and are numbered "
            f"from 0 to {came - 1}. Nothing was forgotten."
        )
    gone[asked] = True
    return gone


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def shares(places: np.ndarray, counts: np.ndarray, weights: np.ndarray, once: bool, copied: bool) -> np.ndarray | None:
    """How much each of the rows (n,) counts in the observation at its place; None where each counts once.

    counts: (n,) as they were given. weights: (u,) of the observations. copied: copies were taken as a part of one each,
    or, if they count once, as nothing beside it: what is left of an observation then is all of it.
    """
    if copied:
        together = np.bincount(places, minlength=len(weights))
        counts = np.where(once & (together > 1), 0.0, weights / together)[places]
    return None if (counts == 1).all() else counts


def weights_left(places: np.ndarray, own: np.ndarray | None, kept: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How often the observations (u,) count, weights (u,) before, once only the rows `kept` (n,) are there.

    places: (n,) the observation that each row is part of; own: (n,) how much it counts there, as `shares` says.
    """
    u = len(weights)
    before, after = np.bincount(places, minlength=u), np.bincount(places[kept], minlength=u)
    left = np.where((after == 0) & (before > 0), 0.0, weights)
    some = (after > 0) & (after < before)
    if own is None and (weights[some] != before[some]).any():
        raise ValueError(
            "the model comes from an earlier version and does not tell how much each of several equal rows counted: "
            "forget all that are equal, or fit again. Nothing was forgotten."
        )
    counted = np.bincount(places[kept], None if own is None else own[kept], minlength=u).astype(np.float64)
    return np.where(some & (counted > 0), counted, left)
