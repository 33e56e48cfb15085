"""Cholesky factors of small matrices, with right-hand sides as further rows below them, and back substitution."""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

from typing import Any

from numba import njit

from nearfield._simd import COLUMNS, LANES, PANEL, eliminate, factorise_diagonal, solve_panel, update

FLAGS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}


@njit(**FLAGS)
def factorise(a, ld, m, below, inverse):
    """Cholesky of the m x m matrix in `a`, with `below` rows under it; False if it is not positive definite.

    An infinite number on the diagonal takes its row and column out of the matrix: L is zero below it.
    """
    for j in range(0, m, PANEL):
        for c in range(0, PANEL, COLUMNS):
            update(a, ld, j, j + c, inverse, j)
        if not factorise_diagonal(a, ld, j, inverse):
            return False
        for i in range(j + PANEL, m + below, LANES):
            for c in range(0, PANEL, COLUMNS):
                eliminate(a, ld, i, j + c, inverse, c)
    return True


@njit(**FLAGS)
def solve_back(a, ld, m, sides, lines, out):
    """out[s * ld + i], i < m: L^-T times row m + s below L, s < sides. `lines` holds LANES m numbers."""
    for first in range(0, sides, LANES):
        for j in range(m - PANEL, -1, -PANEL):
            solve_panel(a, ld, j, m, m + first, lines)
        for s in range(first, min(first + LANES, sides)):
            for i in range(m):
                out[s * ld + i] = lines[i * LANES + s - first]
