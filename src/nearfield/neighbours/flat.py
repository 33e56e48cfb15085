"""Candidates from FAISS' exhaustive float32 search, with a rigorous bound on what float32 may have missed.

FAISS computes |x|^2 + |z|^2 - 2 x.z in float32. With u = 2^-24 and norms taken after centring, rounding the coordinates
changes |x - z|^2 by at most (2u + u^2)(|x| + |z|)^2, the two norms and the inner product err by d u (|x| + |z|)^2
together, the two last sums by 2u (|x| + |z|)^2. So

    | float32 result - |x - z|^2 |  <=  (d + 8) u (|x| + |z|)^2

where 8 instead of 4 pays for the terms of second order. Small batches take another path in FAISS (direct differences),
whose error is smaller.
"""

from __future__ import annotations

import os

import faiss
import numpy as np
from numpy.typing import NDArray

UNIT = 2.0**-24  # rounding unit of float32
UNDERFLOW = 1e-30  # far above what float32 loses below its smallest normal number, when the largest norm is about 1
FAR = 1e6  # queries this many times farther from the centre than any row: float32 cannot rank their neighbours

if hasattr(os, "register_at_fork"):  # a child of a process that has used OpenMP hangs if it uses more than one thread
    os.register_at_fork(after_in_child=lambda: faiss.omp_set_num_threads(1))


class FlatCandidates:
    """faiss.IndexFlatL2 on the points (m, d), centred, and scaled by a power of two to coordinates of at most 1."""

    def __init__(self, points: NDArray[np.float64]) -> None:
        self._centre = points.mean(axis=0)
        largest = float(np.abs(points - self._centre).max(initial=0.0))
        self._scale = 2.0 ** min(-int(np.frexp(largest)[1]), 1000)  # 2^1000: still finite for denormal rows
        centred = (points - self._centre) * self._scale
        self._radius = float(np.sqrt(np.einsum("ij,ij->i", centred, centred).max()))
        self._index = faiss.IndexFlatL2(points.shape[1])
        self._index.add(centred.astype(np.float32))

    def nearest(self, queries: NDArray[np.float64], count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Candidates (b, count) and the squared distance (b,) below which no other point lies; <= 0 if unknown."""
        with np.errstate(over="ignore"):
            centred = (queries - self._centre) * self._scale
            norm = np.sqrt(np.einsum("ij,ij->i", centred, centred))
        lost = norm > FAR
        norm[lost], centred[lost] = 0.0, 0.0
        distance, candidates = self._index.search(centred.astype(np.float32), count)
        reach = self._reach(norm, distance[:, -1].astype(np.float64))
        reach[lost | (candidates < 0).any(axis=1)] = -np.inf
        return candidates, reach

    def _reach(self, norm: NDArray[np.float64], last: NDArray[np.float64]) -> NDArray[np.float64]:
        """A lower bound (b,) for the squared distances of the points beyond the last candidate.

        A point z nearer than `last` has |z| <= |q| + sqrt(last), so one far outlier does not spoil the bound of all.
        """
        error = (self._index.d + 8) * UNIT * (norm + np.minimum(self._radius, norm + np.sqrt(last))) ** 2 + UNDERFLOW
        # In two steps, since the square of the scale may overflow; denormal results are not to be trusted.
        return (last - error) / self._scale / self._scale - self._index.d * np.finfo(np.float64).tiny
