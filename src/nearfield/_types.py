"""The nouns that the parts of the package hand to each other. Letters are defined in docs/notation.md."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The rows to be predicted, each with its neighbours, nearest first; all float64 but for the int64 ids.

    query: (b, d) inputs of the rows to be predicted; rows: (n, d) inputs of the rows that may be neighbours;
    ids: (b, k) row numbers of the neighbours, -1 behind the last one where there are fewer than k;
    targets: (b, k, C) the neighbours' targets for C latent functions, less the mean;
    noises: (b, k, R) their noise variances, R = 1 for all latent functions together, or R = C, each with its own.
    Infinity: not observed, as if that neighbour were not there for that latent function, whatever its target.

    Noise variances are relative to the kernel's variance. Targets and noises do not count where ids is -1.

    Where there are owners (w,), inputs are features: the first d - w are one of each coordinate, and feature d - w + i
    is added to coordinate owners[i]. Each feature has a length scale of its own.
    """

    query: np.ndarray
    rows: np.ndarray
    ids: np.ndarray
    targets: np.ndarray
    noises: np.ndarray
    owners: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
