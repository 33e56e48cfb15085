"""Cholesky factors of small matrices, with right-hand sides as further rows below them, and back substitution."""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nearfield._simd import LANES, PANEL, eliminate_1, eliminate_2, eliminate_3, solve_panel, update_1

FLAGS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}


@njit(**FLAGS)
def _factorise_diagonal(a, ld, j0, inverse):
    """Cholesky of the PANEL x PANEL block at (j0, j0), in place; False if it is not positive definite."""
    for j in range(j0, j0 + PANEL):
        pivot = a[j * ld + j]
        for p in range(j0, j):
            pivot -= a[p * ld + j] * a[p * ld + j]
        if not pivot > 0:
            return False
        root = np.sqrt(pivot)
        a[j * ld + j] = root
        inverse[j - j0] = 1 / root
        for i in range(j + 1, j0 + PANEL):
            rest = a[j * ld + i]
            for p in range(j0, j):
                rest -= a[p * ld + i] * a[p * ld + j]
            a[j * ld + i] = rest * inverse[j - j0]
    return True


@njit(**FLAGS)
def factorise(a, ld, m, below, inverse):
    """Cholesky of the m x m matrix in `a`, with `below` rows under it; False if it is not positive definite."""
    for j in range(0, m, PANEL):
        update_1(a, ld, j, j, inverse)
        if not _factorise_diagonal(a, ld, j, inverse):
            return False
        i = j + PANEL
        while i + 3 * LANES <= m + below:
            eliminate_3(a, ld, i, j, inverse)
            i += 3 * LANES
        if i + 2 * LANES <= m + below:
            eliminate_2(a, ld, i, j, inverse)
        elif i + LANES <= m + below:
            eliminate_1(a, ld, i, j, inverse)
    return True


@njit(**FLAGS)
def solve_back(a, ld, m, sides, lines, out):
    """out[s] (m,) = L^-T times row m + s below L, s < sides; zero in the padding. `lines` holds LANES m numbers."""
    for first in range(0, sides, LANES):
        for j in range(m - PANEL, -1, -PANEL):
            solve_panel(a, ld, j, m, m + first, lines)
        for s in range(first, min(first + LANES, sides)):
            for i in range(m):
                out[s, i] = lines[i * LANES + s - first]
