"""A kernel for each latent function."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.covariances._base import (
    SCALE,
    Centred,
    Covariance,
    CovarianceSlopes,
    Kernels,
    KernelWeights,
    NoiseWeights,
    noise_weights,
    summed,
)
from nearfield.covariances._together import Together
from nearfield.families import Parameter, Parameters


class PerLatent(Covariance):
    """A kernel for each latent function."""

    def parameters(self) -> dict[str, Parameter]:
        return {**self._shared((self.latents,)), "log_scale": SCALE._replace(shape=(self.scales,))}

    def initial(self, scale: float) -> dict[str, np.ndarray]:
        lengths = np.full((self.latents, self.d), 0.5 * math.log(self.d))
        scales = np.full(self.scales, math.log(scale))
        return {"log_lengths": lengths, **self._start(), "log_scale": scales}

    def after(self, shared: Parameters) -> dict[str, np.ndarray]:
        lengths = np.tile(shared["log_lengths"], (self.latents, 1))
        scales = np.broadcast_to(shared["log_scale"], (self.scales,)).copy()
        return {"log_lengths": lengths, **self._start(shared), "log_scale": scales}

    def kernels(self, parameters: Parameters) -> list[Kernels]:
        each = enumerate(parameters["log_lengths"])
        return [Kernels(c, c + 1, lengths[None], np.ones((1, 1))) for c, lengths in each]

    def condition(
        self, parameters: Parameters, neighbourhood: Neighbourhood, ks: np.ndarray | None, differentiate: bool
    ) -> Centred:
        return _PerLatentCentred(self, parameters, neighbourhood, ks, differentiate)

    def together(
        self,
        parameters: Parameters,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        differentiate: bool,
        earlier: Together | None = None,
    ) -> Together:
        parts = []
        for c, lengths in enumerate(parameters["log_lengths"]):
            r = min(c, noises.shape[1] - 1)
            own = (targets[:, c : c + 1], noises[:, r : r + 1])
            before = None if earlier is None else earlier.parts[c]
            parts.append(self._whole(parameters, lengths, inputs, *own, differentiate, before))
        return Together(self, parameters, parts)


class _PerLatentCentred(Centred):
    def __init__(
        self, own: PerLatent, parameters: Parameters, near: Neighbourhood, ks: Any, differentiate: bool
    ) -> None:
        self.own, self.values = own, parameters
        self.scale2, self.noises = own.scale2(parameters), near.noises.shape[-1]
        parts, every = [], own.lengths(parameters, bool(near.owners.size))
        for c in range(own.latents):
            r = min(c, self.noises - 1)
            targets = np.ascontiguousarray(near.targets[..., c : c + 1])
            noises = np.ascontiguousarray(near.noises[..., r : r + 1])
            alone = replace(near, targets=targets, noises=noises)
            shape = parameters["log_shape"]
            parts.append(condition(own.kernel, every[c], shape, alone, ks, differentiate=differentiate))
        self.parts, self.jittered = parts, sum(part.jittered for part in parts)
        self.mean = np.concatenate([part.mean for part in parts], axis=-1)
        self.variance = np.concatenate([part.variance for part in parts], axis=-1) * self.scale2
        self.quad = np.concatenate([part.quad for part in parts], axis=-1) / self.scale2

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> CovarianceSlopes:
        by_unit = by_variance * self.scale2
        parts = [
            part.slopes(np.ascontiguousarray(by_mean[:, c : c + 1]), np.ascontiguousarray(by_unit[:, c : c + 1]))
            for c, part in enumerate(self.parts)
        ]
        by_scale = summed(2 * (by_variance * self.variance[:, 0]).sum(axis=0), len(self.scale2))
        parameters = {
            **self.own.length_slopes(self.values, np.stack([by.log_lengths for by in parts])),
            "log_shape": np.sum([by.log_shape for by in parts], axis=0),
            "log_scale": by_scale,
        }
        targets, noises = (np.concatenate([getattr(by, name) for by in parts], -1) for name in ("targets", "noises"))
        noises = noises if self.noises > 1 else noises.sum(axis=-1, keepdims=True)
        return CovarianceSlopes(parameters, targets, noises)

    def kernel_weights(self) -> list[KernelWeights]:
        found, scale2 = [], np.broadcast_to(self.scale2, len(self.parts))
        for c, (lengths, part) in enumerate(zip(self.values["log_lengths"], self.parts, strict=True)):
            alpha, beta = part.weights
            found.append(KernelWeights(lengths, slice(c, c + 1), alpha, -2 * beta * scale2[c]))
        return found

    def noise_weights(self) -> NoiseWeights:
        every = zip(*(part.weights for part in self.parts), strict=True)
        alpha, beta = (np.concatenate(parts, axis=1) for parts in every)
        return noise_weights(alpha, beta, self.scale2)
