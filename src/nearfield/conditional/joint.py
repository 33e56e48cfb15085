"""The joint density of a row and its neighbours: what MLL-k maximises, against the conditional one of LOO-k.

With M = K / s^2 for a kernel scale s, that is, correlations and relative noises:

    log p(t) = -1/2 t' M^-1 t / s^2 - 1/2 log |M| - k log s - k/2 log 2 pi
    d log p / d M = (alpha alpha' / s^2 - M^-1) / 2     alpha = M^-1 t

Unlike the conditional, its gradient is of full rank: the inverse is needed. It serves as a baseline, in numpy, some
rows at a time; no row's numbers depend on the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nearfield.conditional._checks import check_owners, check_shapes, numbers, refuse_ids
from nearfield.conditional._fused import JITTER, MOST_JITTER
from nearfield.conditional._slopes import NOT_A_ROW
from nearfield.kernels import Kernel, profile

_CHUNK_NUMBERS = 2**20  # of a matrix (b, k, k) held at a time


class JointSlopes(NamedTuple):
    """Derivatives of each row's log density."""

    log_lengths: np.ndarray  # (b, d)
    log_scale: np.ndarray  # (b,)
    log_shape: np.ndarray  # (b, p)
    targets: np.ndarray  # (b, k)
    noises: np.ndarray  # (b, k)


def joint_log_density(
    kernel: Kernel,
    log_lengths: np.ndarray,
    log_scale: float | np.ndarray,
    log_shape: np.ndarray,
    rows: np.ndarray,
    ids: np.ndarray,
    targets: np.ndarray,
    noises: np.ndarray,
    owners: np.ndarray | None = None,
) -> tuple[np.ndarray, JointSlopes]:
    """Log density (b,) of the targets (b, k) of the rows ids (b, k), -1 for none, and its derivatives.

    log_lengths: (d,); log_scale: (); log_shape: (p,); rows: (n, d) inputs; noises: (b, k) variances relative to the
    kernel's variance, infinite for a target that was not observed; owners: of features, see `Neighbourhood`.
    """
    owners = np.zeros(0, dtype=np.int64) if owners is None else owners
    check_owners(owners, np.size(log_lengths))
    rows, targets, noises, ids = numbers(rows), numbers(targets), numbers(noises), np.asarray(ids)
    log_lengths, log_shape = numbers(log_lengths), numbers(log_shape)
    check_shapes(kernel, log_shape)
    if targets.shape != ids.shape or noises.shape != ids.shape or rows.shape[1:] != log_lengths.shape:
        raise ValueError(
            f"targets {targets.shape}, noises {noises.shape} and rows {rows.shape} do not fit neighbours {ids.shape} "
            f"and {log_lengths.size} length scales: expected (b, k), (b, k), (n, d) and (b, k)."
        )
    if ids.size and int(ids.max()) >= len(rows):
        refuse_ids(NOT_A_ROW, ids, rows)
    size = max(1, _CHUNK_NUMBERS // max(1, ids.shape[1] ** 2))
    lengths, scale2 = np.exp(log_lengths), math.exp(2 * float(log_scale))
    parts = []
    for start in range(0, max(1, len(ids)), size):
        piece = slice(start, start + size)
        given = (rows, owners, ids[piece], targets[piece], noises[piece])
        parts.append(_chunk(kernel, lengths, scale2, log_shape, *given))
    density, *slopes = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    return density, JointSlopes(*slopes)


def _chunk(
    kernel: Kernel,
    lengths: np.ndarray,
    scale2: float,
    log_shape: np.ndarray,
    rows: np.ndarray,
    owners: np.ndarray,
    ids: np.ndarray,
    targets: np.ndarray,
    noises: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Densities (b,) and what `JointSlopes` holds of some rows."""
    valid = (ids >= 0) & (noises != np.inf)
    both = valid[:, :, None] & valid[:, None, :]
    features = rows[np.maximum(ids, 0)] / lengths
    d = features.shape[2] - owners.size
    own = [*range(d), *owners.tolist()]  # the coordinate of each feature
    x = features[..., :d].copy()
    for f, e in enumerate(own[d:], d):
        x[..., e] += features[..., f]
    k = ids.shape[1]

    def differences(values: np.ndarray, e: int) -> np.ndarray:
        return values[:, :, None, e] - values[:, None, :, e]

    r2 = np.zeros(both.shape)
    for e in range(d):
        r2 += differences(x, e) ** 2
    value, slope, shape_slope = profile(kernel, r2, log_shape)
    matrix = np.where(both, value, 0.0)
    matrix[:, range(k), range(k)] = 1 + np.where(valid, noises, 0.0)  # the identity where there is no neighbour
    matrix = _with_jitter(matrix)
    inverse = np.linalg.inv(matrix)
    log_det = np.linalg.slogdet(matrix)[1]
    t = np.where(valid, targets, 0.0)
    alpha = np.matmul(inverse, t[..., None])[..., 0]
    count, quad = valid.sum(axis=1), (alpha * t).sum(axis=1) / scale2
    density = -0.5 * (quad + log_det + count * math.log(2 * math.pi * scale2))
    by_matrix = np.where(both, 0.5 * (alpha[:, :, None] * alpha[:, None, :] / scale2 - inverse), 0.0)
    weighted = -2 * by_matrix * slope
    by_lengths = np.stack(
        [(weighted * differences(x, e) * differences(features, f)).sum(axis=(1, 2)) for f, e in enumerate(own)], axis=-1
    )
    by_shape = np.empty((len(ids), 0))
    if shape_slope is not None:
        by_shape = (by_matrix * shape_slope).sum(axis=(1, 2))[:, None]
    return density, by_lengths, quad - count, by_shape, -alpha / scale2, by_matrix.diagonal(axis1=1, axis2=2)


def _with_jitter(matrices: np.ndarray) -> np.ndarray:
    """The matrices (b, k, k), those that are not positive definite with as much jitter as makes them so."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return np.stack([_jittered(matrix) for matrix in matrices])
    return matrices


def _jittered(matrix: np.ndarray) -> np.ndarray:
    tried, extra = matrix, 0.0
    while extra < MOST_JITTER:
        try:
            np.linalg.cholesky(tried)
        except np.linalg.LinAlgError:
            extra = max(JITTER, extra * 10)
            tried = matrix + extra * np.eye(len(matrix))
        else:
            return tried
    return np.full_like(matrix, np.nan)  # the matrix was not finite
