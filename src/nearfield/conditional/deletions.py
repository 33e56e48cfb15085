"""The closed form without single neighbours: all of them from one factorisation.

With the letters of `conditional/__init__.py`, and P = K^-1, alpha = P t, beta = P c: where neighbour j has a noise that
is larger by e and a target that is larger by u,

    mean_j = mean + beta_j (u - e alpha_j) / (1 + e P_jj)     variance_j = variance + beta_j^2 e / (1 + e P_jj)

An infinite e is a neighbour that is not there at all: mean - beta_j alpha_j / P_jj and variance + beta_j^2 / P_jj. So
only the diagonal of P is needed. beta are the kriging weights: mean = beta . t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfield._threads import in_threads
from nearfield._types import Neighbourhood
from nearfield.conditional import _influences
from nearfield.conditional._checks import SMALLEST_CHUNK, arrays, check_inputs, check_shapes, refuse_ids
from nearfield.kernels import Kernel

__all__ = ["Influences", "Without", "influences", "without_each"]


class Influences(NamedTuple):
    """Moments given some neighbours, and what each of them has to do with it, for a kernel of scale one.

    mean, quad (b, C), variance (b, C); alpha, beta and the diagonal of K^-1, precision: (b, C, k), or (1, C, k) where
    all rows have the same neighbours. What belongs to a neighbour that is not there is zero.
    """

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    precision: np.ndarray


class Without(NamedTuple):
    """Mean, variance and quad (b, C, k) as they are without each neighbour."""

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray


def influences(
    kernel: Kernel, log_lengths: np.ndarray, log_shape: np.ndarray, neighbourhood: Neighbourhood, first: int
) -> tuple[Influences, Influences]:
    """Of the first neighbours of each row alone, and of all k; log_lengths (d,), log_shape (p,).

    The neighbourhood has coordinates, no features. One factorisation serves both.
    """
    n = arrays(neighbourhood)
    check_inputs(n, np.asarray(log_lengths).size)
    check_shapes(kernel, np.asarray(log_shape))
    (b, k, latents), factors = n.targets.shape, n.noises.shape[2]
    moments = np.empty((b, 2, latents)), np.empty((b, 2, factors)), np.empty((b, 2, latents))
    each = np.zeros((b, 2, latents, k)), np.zeros((b, 2, factors, k)), np.zeros((b, 2, factors, k))
    ks, jittered = np.array([min(first, k), k], dtype=np.int64), np.zeros(b, np.int64)
    constants = (kernel.code, np.exp(log_shape), n.rows, np.exp(-np.asarray(log_lengths)))

    def part(start: int, stop: int) -> None:
        status = _influences.influences(
            *constants, n.query, n.ids, n.targets, n.noises, ks, *moments, *each, jittered, start, stop
        )
        if status:
            refuse_ids(status, n.ids, n.rows)

    in_threads(part, b, SMALLEST_CHUNK)
    shape = (b, 2, latents)
    mean, variance, quad = (np.broadcast_to(part, shape) for part in moments)
    alpha, beta, precision = (np.broadcast_to(part, (*shape, k)) for part in each)
    few, every = (
        Influences(mean[:, i], variance[:, i], quad[:, i], alpha[:, i], beta[:, i], precision[:, i]) for i in (0, 1)
    )
    return few, every


def without_each(given: Influences, noisier: np.ndarray, further: np.ndarray) -> Without:
    """Without each neighbour, or with what is left of it: noises larger by `noisier`, targets by `further`, (b, C, k).

    Infinitely noisier: not there at all. A neighbour that was not observed at all (precision zero) changes nothing.
    """
    alpha, beta, precision = given.alpha, given.beta, given.precision
    there, gone = precision > 0, np.isinf(noisier)
    own = np.where(there, precision, 1.0)
    finite = np.where(gone, 0.0, noisier)
    gain = np.where(there, np.where(gone, 1 / own, finite / (1 + finite * own)), 0.0)
    moved = np.where(gone | ~there, 0.0, further)  # of what is not there the target does not count
    pulled = alpha + moved * own  # line j of P times the new targets
    mean = given.mean[..., None] + beta * (moved - gain * pulled)
    variance = given.variance[..., None] + gain * beta**2
    quad = given.quad[..., None] + moved * (alpha + pulled) - gain * pulled**2
    return Without(mean, variance, np.maximum(quad, 0.0))
