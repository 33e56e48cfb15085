"""The closed form: mean, variance and quad of each row given its neighbours, and their gradient.

For one row x with neighbours S, targets t and noise variances v, and a kernel of scale one (docs/notation.md):

    K = k(X_S, X_S) + diag(v) = L L'     c = k(X_S, x)     a = L^-1 t     b = L^-1 c
    mean = a.b     variance = 1 - b.b     quad = a.a

A kernel of another scale s, with noises relative to its variance s^2, has the same mean, s^2 times this variance and
this quad / s^2, so the scale stays with the caller. A target that was not observed has an infinite noise.

With alpha = L^-T a, beta = L^-T b and incoming gradients (g_m, g_v, g_q) the gradient is of rank three:

    dK = -g_m (alpha beta' + beta alpha')/2 + g_v beta beta' - g_q alpha alpha'
    dc = g_m alpha - 2 g_v beta     dt = g_m beta + 2 g_q alpha     dv = diag(dK)

so nothing of size k x k is kept between forward and backward, and nothing is factorised twice.

C latent functions may share the neighbours and the length scales. Where they share the noises too (R = 1), L and beta
are the same for all, and g_m alpha and g_q alpha alpha' stand for sums over them. Where each has noises of its own
(R = C), each has its own L, and they share the correlations and their slopes.

A coordinate of the kernel may be a sum of several features of a row, each over a length scale of its own, as warped
columns are (`warps.py`): then the gradient is by the length scales of features, d of them.

Each row's numbers depend on that row alone, so the answers have the same bits for any number of threads. The compiled
code runs without the interpreter's lock on threads of our own: Numba's threading layers are not safe to enter from
several Python threads at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearfield._threads import in_threads
from nearfield._types import Neighbourhood
from nearfield.conditional import _fused
from nearfield.conditional._checks import (
    SMALLEST_CHUNK,
    Arrays,
    arrays,
    ascending,
    check_inputs,
    check_shapes,
    numbers,
    refuse_ids,
)
from nearfield.kernels import Kernel

__all__ = ["Conditioned", "Slopes", "condition"]


class Slopes(NamedTuple):
    """Gradients of a sum over rows by what the moments depend on."""

    log_lengths: np.ndarray  # (d,)
    log_shape: np.ndarray  # (p,)
    targets: np.ndarray  # (b, k, C)
    noises: np.ndarray  # (b, k, R)


class _Kept(NamedTuple):
    """What the gradient needs: O(b k (C + R)) numbers."""

    alpha: np.ndarray  # (b, C, k) K^-1 t
    beta: np.ndarray  # (b, R, k) K^-1 c
    jacobian: np.ndarray  # (b, 2, d + p): of mean and variance by log length scales and log shapes; for C = 1 only


class Conditioned:
    """Moments of the latent functions for each of q numbers of neighbours.

    mean, quad: (b, q, C); variance: (b, q, R), R = 1 where the latent functions share the noises, or else C;
    jittered: how many rows needed extra jitter before their matrix could be factorised.
    """

    __slots__ = ("_constants", "_kept", "_most", "_neighbourhood", "jittered", "mean", "quad", "variance")

    def __init__(
        self,
        moments: tuple[np.ndarray, np.ndarray, np.ndarray],
        jittered: int,
        constants: tuple[Any, ...],
        neighbourhood: Arrays,
        most: int,
        kept: _Kept | None,
    ) -> None:
        self.mean, self.variance, self.quad = moments
        self.jittered = jittered
        self._constants, self._neighbourhood, self._most, self._kept = constants, neighbourhood, most, kept

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """alpha (b, C, k) and beta (b, R, k), zero behind the last neighbour, where they were kept."""
        if self._kept is None:
            raise RuntimeError("weights need condition(.., differentiate=True).")
        return self._kept.alpha, self._kept.beta

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray, by_quad: np.ndarray | None = None) -> Slopes:
        """Gradients from those by mean (b, C), variance (b, R) and, where there is one, quad (b, C).

        Every row has gradients of its own, which are summed in the order of the rows: the same for any number of
        threads. Training has no gradient by quad, which is the dearest.
        """
        n, kept = self._neighbourhood, self._kept
        if kept is None or self.mean.shape[1] != 1:
            raise RuntimeError("slopes need condition(.., differentiate=True) and a single number of neighbours.")
        g_mean, g_variance = numbers(by_mean), numbers(by_variance)
        g_quad = g_mean if by_quad is None else numbers(by_quad)
        shape = self.mean.shape[::2]
        if g_mean.shape != shape or g_variance.shape != self.variance.shape[::2] or g_quad.shape != shape:
            raise ValueError(
                f"gradients by mean {g_mean.shape}, variance {g_variance.shape} and quad {g_quad.shape} do not fit: "
                f"expected {shape}, {self.variance.shape[::2]} and {shape}."
            )
        rows, d = n.query.shape
        by_targets, by_noises = np.empty(n.targets.shape), np.empty(n.noises.shape)
        by_kernel = np.empty((rows, d + self._constants[1].size))
        with_quad = by_quad is not None

        def part(start: int, stop: int) -> None:
            status = _fused.backward(
                *self._constants, n.query, n.ids, self._most, *kept, g_mean, g_variance, g_quad, with_quad,
                by_targets, by_noises, by_kernel, start, stop,
            )  # fmt: skip
            if status:
                refuse_ids(status, n.ids, n.rows)

        if kept.jacobian.size and not with_quad:  # takes less time than sharing it out
            part(0, rows)
        else:
            in_threads(part, rows, SMALLEST_CHUNK)
        total = by_kernel.sum(axis=0)
        return Slopes(total[:d], total[d:], by_targets, by_noises)


def condition(
    kernel: Kernel,
    log_lengths: np.ndarray,
    log_shape: np.ndarray,
    neighbourhood: Neighbourhood,
    ks: np.ndarray | None = None,
    *,
    differentiate: bool = False,
) -> Conditioned:
    """Moments of each row given its neighbours, for a kernel of scale one.

    log_lengths: (d,); log_shape: (p,); ks: (q,) ascending numbers of neighbours, all k alone if not given. Entry i of
    the moments is given the first ks[i] neighbours, or all of a row that has fewer; one factorisation serves all.
    differentiate: keep what `Conditioned.slopes` needs.
    """
    n = arrays(neighbourhood)
    ks = ascending(ks, n.ids.shape[-1])
    log_lengths, log_shape = np.asarray(log_lengths), np.asarray(log_shape)
    check_inputs(n, log_lengths.size)
    check_shapes(kernel, log_shape)
    if n.targets.shape[:-1] != n.ids.shape or n.noises.shape not in (n.targets.shape, (*n.ids.shape, 1)):
        raise ValueError(
            f"targets {n.targets.shape} and noises {n.noises.shape} do not fit neighbours {n.ids.shape}: "
            "expected (b, k, C) and (b, k, R) with R = 1 or C."
        )
    (b, k, latents), factors = n.targets.shape, n.noises.shape[2]
    held = b if differentiate else 0
    kept = _Kept(
        np.empty((held, latents, k)),
        np.empty((held, factors, k)),
        np.empty((held if latents == 1 else 0, 2, log_lengths.size + log_shape.size)),
    )
    moments = np.empty((b, ks.size, latents)), np.empty((b, ks.size, factors)), np.empty((b, ks.size, latents))
    jittered = np.zeros(b, np.int64)
    constants = (kernel.code, np.exp(log_shape), n.rows, np.exp(-log_lengths), n.owners)

    def part(start: int, stop: int) -> None:
        status = _fused.forward(
            *constants, n.query, n.ids, n.targets, n.noises, ks, differentiate, *moments, *kept, jittered, start, stop
        )
        if status:
            refuse_ids(status, n.ids, n.rows)

    in_threads(part, b, SMALLEST_CHUNK)
    return Conditioned(
        moments, int(np.count_nonzero(jittered)), constants, n, int(ks[-1]), kept if differentiate else None
    )
