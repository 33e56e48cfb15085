"""Outputs that mix latent functions, each with a kernel of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from nearfield._types import Neighbourhood
from nearfield.conditional.coregional import condition_outputs
from nearfield.covariances._base import (
    MIXING,
    Centred,
    Covariance,
    CovarianceSlopes,
    Kernels,
    KernelWeights,
    NoiseWeights,
)
from nearfield.families import Parameter, Parameters
from nearfield.kernels import Kernel
from nearfield.warps import Warps


class Mixed(Covariance):
    """Latent functions f = W g that are mixtures of Q independent ones, each with a kernel of its own and scale one.

    The linear model of coregionalisation. The mixing matrix W (C, Q) takes the place of the kernel scales.
    """

    def __init__(self, kernel: Kernel, latents: int, warps: Warps, mixing: np.ndarray, shrinks: bool = True) -> None:
        super().__init__(kernel, latents, warps, latents, shrinks)
        self.start = mixing

    @property
    def matrix_rows(self) -> int:
        return self.latents

    def parameters(self) -> dict[str, Parameter]:
        return {**self._shared(self.start.shape[1:]), "mixing": MIXING._replace(shape=self.start.shape)}

    def initial(self, scale: float) -> dict[str, np.ndarray]:
        lengths = self._finer(np.full(self.d, 0.5 * math.log(self.d)))
        return {"log_lengths": lengths, **self._start(), "mixing": self.start.copy()}

    def after(self, shared: Parameters) -> dict[str, np.ndarray]:
        mixing = self.start * np.exp(shared["log_scale"])
        return {"log_lengths": self._finer(shared["log_lengths"]), **self._start(shared), "mixing": mixing}

    def _finer(self, log_lengths: np.ndarray) -> np.ndarray:
        """Length scales (Q, d) from one kernel's (d,): more latent functions than outputs are finer ones."""
        q = np.arange(self.start.shape[1])[:, None]
        return log_lengths - math.log(3) * (q // self.latents)

    def search_lengths(self, parameters: Parameters) -> np.ndarray:
        """1 / length^2 is the mean over kernels, each counting as much as it adds to the variance."""
        shares = np.sum(parameters["mixing"] ** 2, axis=0)
        return 1 / np.sqrt((shares @ np.exp(-2 * parameters["log_lengths"])) / shares.sum())

    def scale2(self, parameters: Parameters) -> np.ndarray:
        return np.sum(parameters["mixing"] ** 2, axis=1)

    def scale_slopes(self, parameters: Parameters, by_log_scale: np.ndarray) -> dict[str, np.ndarray]:
        w = parameters["mixing"]
        return {"mixing": (by_log_scale / self.scale2(parameters))[:, None] * w}

    def kernels(self, parameters: Parameters) -> list[Kernels]:
        return [Kernels(0, self.latents, parameters["log_lengths"], parameters["mixing"])]

    def condition(
        self, parameters: Parameters, neighbourhood: Neighbourhood, ks: np.ndarray | None, differentiate: bool
    ) -> Centred:
        return _MixedCentred(self, parameters, neighbourhood, ks, differentiate)


class _MixedCentred(Centred):
    def __init__(self, own: Mixed, parameters: Parameters, near: Neighbourhood, ks: Any, differentiate: bool) -> None:
        self.own, self.parameters, self.relative = own, parameters, near.noises
        self.scale2 = own.scale2(parameters)
        near = replace(near, noises=near.noises * self.scale2)
        lengths = own.lengths(parameters, bool(near.owners.size))
        self.found = condition_outputs(
            own.kernel, lengths, parameters["log_shape"], parameters["mixing"], near, ks, differentiate=differentiate
        )
        self.mean, self.quad, self.jittered = self.found.mean, self.found.quad, self.found.jittered
        self.covariance = self.found.covariance
        self.variance = np.diagonal(self.found.covariance, axis1=-2, axis2=-1)

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> CovarianceSlopes:
        by = self.found.slopes(by_mean, by_variance)
        observed = np.isfinite(self.relative)
        by_scale2 = np.sum(by.noises * np.where(observed, self.relative, 0.0), axis=(0, 1))
        more = self.own.scale_slopes(self.parameters, 2 * self.scale2 * by_scale2)
        lengths = self.own.length_slopes(self.parameters, by.log_lengths)
        parameters = {**lengths, "log_shape": by.log_shape, "mixing": by.mixing + more["mixing"]}
        return CovarianceSlopes(parameters, by.targets, by.noises * self.scale2)

    def kernel_weights(self) -> list[KernelWeights]:
        """By k_q: the outputs of all neighbours mixed as W has them, W_sq sum_p W_pq alpha_p and the same of beta_s."""
        (alpha, beta), mixing = self.found.weights, self.parameters["mixing"]
        found = []
        for q, lengths in enumerate(self.parameters["log_lengths"]):
            w = mixing[:, q]
            mean = w[:, None] * np.einsum("p,bpk->bk", w, alpha)[:, None]
            variance = -2 * w[:, None] * np.einsum("p,bpsk->bsk", w, beta)
            found.append(KernelWeights(lengths, slice(None), mean, variance))
        return found

    def noise_weights(self) -> NoiseWeights:
        alpha, beta = self.found.weights
        mean = -np.einsum("p,bpk,bpsk->bsk", self.scale2, alpha, beta)
        return NoiseWeights(mean, np.einsum("p,bpsk->bsk", self.scale2, beta**2), None)
