"""The closed form of several outputs that share latent functions: the linear model of coregionalisation.

P outputs are mixtures of Q latent functions, f_p = sum_q W[p, q] g_q, each with a kernel k_q of scale one and length
scales of its own. The observations of one row x are those of its neighbours, in the order (neighbour, output):

    K = sum_q (W_q W_q') k_q(X_S, X_S) + diag(v) = L L'     c_s = cov(f_s(x), f(X_S))     C0 = W W'
    a = L^-1 t     B = L^-1 [c_1 .. c_P]     mean = B' a     covariance = C0 - B' B

With L_ii the diagonal block of neighbour i, e_i = L_ii a_i is what its outputs add to the neighbours before it, with
variances s_ip = (L_ii L_ii')_pp; quad_p = sum_i e_ip^2 / s_ip. Where W is diagonal, mean, variances and quad are those
of P models apart.

With alpha = K^-1 t, beta_s = K^-1 c_s and incoming gradients g (P,) and G (P, P), made symmetric, dK is of rank 2P:

    v_s = sum_t G_st beta_t - g_s alpha     dK = sum_s (beta_s v_s' + v_s beta_s') / 2     d C0 = G
    dc_s = g_s alpha - 2 sum_t G_st beta_t     dt = sum_s g_s beta_s     d noises = diag(dK)

Noises v are in the unit of K. An output that was not observed has an infinite one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearfield._simd import LANES
from nearfield._threads import in_threads
from nearfield._types import Neighbourhood
from nearfield.conditional import _blocks
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

__all__ = ["ConditionedOutputs", "OutputSlopes", "condition_outputs"]


class OutputSlopes(NamedTuple):
    """Gradients of a sum over rows by what the moments depend on."""

    log_lengths: np.ndarray  # (Q, d)
    log_shape: np.ndarray  # (p,)
    mixing: np.ndarray  # (P, Q)
    targets: np.ndarray  # (b, k, P)
    noises: np.ndarray  # (b, k, P)


class _Kept(NamedTuple):
    """What the gradient needs: O(b k P (P + 1)) numbers."""

    alpha: np.ndarray  # (b, P, k) K^-1 t
    beta: np.ndarray  # (b, P, P, k) K^-1 c_s, the second for the outputs s of the query


class ConditionedOutputs:
    """Moments of the outputs for each of q numbers of neighbours.

    mean, quad: (b, q, P); covariance: (b, q, P, P); jittered: how many rows needed extra jitter before their matrix
    could be factorised.
    """

    __slots__ = ("_constants", "_kept", "_mixing", "_most", "_neighbourhood", "covariance", "jittered", "mean", "quad")

    def __init__(
        self,
        moments: tuple[np.ndarray, np.ndarray, np.ndarray],
        jittered: int,
        constants: tuple[Any, ...],
        mixing: np.ndarray,
        neighbourhood: Arrays,
        most: int,
        kept: _Kept | None,
    ) -> None:
        self.mean, self.covariance, self.quad = moments
        self.jittered = jittered
        self._constants, self._mixing = constants, mixing
        self._neighbourhood, self._most, self._kept = neighbourhood, most, kept

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """alpha (b, P, k) and beta (b, P, P, k), the second P for the outputs of the query, where they were kept."""
        if self._kept is None:
            raise RuntimeError("weights need condition_outputs(.., differentiate=True).")
        return self._kept.alpha, self._kept.beta

    def slopes(self, by_mean: np.ndarray, by_covariance: np.ndarray) -> OutputSlopes:
        """Gradients from those by mean (b, P) and by covariance (b, P, P), or by the variances alone (b, P).

        Every row has gradients of its own, which are summed in the order of the rows: the same for any number of
        threads.
        """
        n, kept = self._neighbourhood, self._kept
        if kept is None or self.mean.shape[1] != 1:
            raise RuntimeError(
                "slopes need condition_outputs(.., differentiate=True) and a single number of neighbours."
            )
        g_mean, g_covariance = numbers(by_mean), numbers(by_covariance)
        (b, _, outputs), (latents, d) = n.targets.shape, self._constants[3].shape
        if g_mean.shape != (b, outputs) or g_covariance.shape not in ((b, outputs), (b, outputs, outputs)):
            raise ValueError(
                f"gradients by mean {g_mean.shape} and by covariance {g_covariance.shape} do not fit {outputs} outputs "
                f"of {b} rows: expected (b, P), and (b, P, P) or (b, P)."
            )
        if g_covariance.ndim == 2:
            g_covariance = g_covariance[:, :, None] * np.eye(outputs)
        else:
            g_covariance = (g_covariance + g_covariance.transpose(0, 2, 1)) / 2
        padded = np.pad(self._mixing, ((0, 0), (0, -latents % _blocks.GROUP)))
        by_targets, by_noises = np.empty(n.targets.shape), np.empty(n.noises.shape)
        by_kernel = np.empty((b, latents, d + self._constants[1].size))
        by_mixing = np.empty((b, outputs, latents))

        def part(start: int, stop: int) -> None:
            status = _blocks.backward(
                *self._constants, padded, n.query, n.ids, self._most, *kept, g_mean, g_covariance,
                by_targets, by_noises, by_kernel, by_mixing, start, stop,
            )  # fmt: skip
            if status:
                refuse_ids(status, n.ids, n.rows)

        in_threads(part, b, SMALLEST_CHUNK)
        total = by_kernel.sum(axis=0)
        return OutputSlopes(total[:, :d], total[:, d:].sum(axis=0), by_mixing.sum(axis=0), by_targets, by_noises)


def condition_outputs(
    kernel: Kernel,
    log_lengths: np.ndarray,
    log_shape: np.ndarray,
    mixing: np.ndarray,
    neighbourhood: Neighbourhood,
    ks: np.ndarray | None = None,
    *,
    differentiate: bool = False,
) -> ConditionedOutputs:
    """Moments of each row given its neighbours.

    log_lengths: (Q, d); log_shape: (p,); mixing: (P, Q); targets and noises of the neighbourhood (b, k, P);
    ks: (q,) ascending numbers of neighbours, all k alone if not given. Entry i of the moments is given the first ks[i]
    neighbours, or all of a row that has fewer; one factorisation serves all.
    differentiate: keep what `ConditionedOutputs.slopes` needs.
    """
    n = arrays(neighbourhood)
    ks = ascending(ks, n.ids.shape[-1])
    log_lengths, log_shape, w = np.asarray(log_lengths), np.asarray(log_shape), numbers(mixing)
    expected = (*n.ids.shape, len(w))
    if n.targets.shape != expected or n.noises.shape != expected:
        raise ValueError(
            f"targets {n.targets.shape} and noises {n.noises.shape} do not fit neighbours {n.ids.shape} "
            f"and mixing {w.shape}: expected (b, k, P), (b, k, P), (b, k) and (P, Q)."
        )
    if log_lengths.ndim != 2 or len(log_lengths) != w.shape[1]:
        raise ValueError(
            f"log length scales {log_lengths.shape} do not fit mixing {w.shape}: expected (Q, d) and (P, Q)."
        )
    check_inputs(n, log_lengths.shape[1])
    check_shapes(kernel, log_shape)
    b, k, outputs = expected
    held = b if differentiate else 0
    kept = _Kept(np.empty((held, outputs, k)), np.empty((held, outputs, outputs, k)))
    q = ks.size
    moments = np.empty((b, q, outputs)), np.empty((b, q, outputs, outputs)), np.empty((b, q, outputs))
    jittered = np.zeros(b, np.int64)
    constants = (kernel.code, np.exp(log_shape), n.rows, numbers(np.exp(-log_lengths)), n.owners)
    tiles = (np.pad(w, ((0, -outputs % LANES), (0, 0))) * w[:, None]).reshape(-1, w.shape[1]).T.copy()
    prior = (w[:, None] * w).sum(axis=-1)

    def part(start: int, stop: int) -> None:
        status = _blocks.forward(
            *constants, tiles, prior, n.query, n.ids, n.targets, n.noises, ks, differentiate, *moments, *kept,
            jittered, start, stop,
        )  # fmt: skip
        if status:
            refuse_ids(status, n.ids, n.rows)

    in_threads(part, b, SMALLEST_CHUNK)
    return ConditionedOutputs(
        moments, int(np.count_nonzero(jittered)), constants, w, n, int(ks[-1]), kept if differentiate else None
    )
