"""One kernel for all latent functions."""

from __future__ import annotations

import math
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


class Shared(Covariance):
    """One kernel for all latent functions, with S = 1 or C scales."""

    def parameters(self) -> dict[str, Parameter]:
        return {**self._shared(()), "log_scale": SCALE._replace(shape=(self.scales,))}

    def initial(self, scale: float) -> dict[str, np.ndarray]:
        lengths, scales = np.full(self.d, 0.5 * math.log(self.d)), np.full(self.scales, math.log(scale))
        return {"log_lengths": lengths, **self._start(), "log_scale": scales}

    def after(self, shared: Parameters) -> dict[str, np.ndarray]:
        return {name: shared[name] for name in self.parameters()}

    def kernels(self, parameters: Parameters) -> list[Kernels]:
        return [Kernels(0, self.latents, parameters["log_lengths"][None], np.ones((1, 1)))]

    def condition(
        self, parameters: Parameters, neighbourhood: Neighbourhood, ks: np.ndarray | None, differentiate: bool
    ) -> Centred:
        return _SharedCentred(self, parameters, neighbourhood, ks, differentiate)

    def together(
        self,
        parameters: Parameters,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: np.ndarray,
        differentiate: bool,
        earlier: Together | None = None,
    ) -> Together:
        before = None if earlier is None else earlier.parts[0]
        lengths = parameters["log_lengths"]
        whole = self._whole(parameters, lengths, inputs, targets, noises, differentiate, before)
        return Together(self, parameters, [whole])


class _SharedCentred(Centred):
    def __init__(self, own: Shared, parameters: Parameters, near: Neighbourhood, ks: Any, differentiate: bool) -> None:
        lengths = own.lengths(parameters, bool(near.owners.size))
        found = condition(own.kernel, lengths, parameters["log_shape"], near, ks, differentiate=differentiate)
        self.own, self.values = own, parameters
        self.scale2, self.found = own.scale2(parameters), found
        self.mean, self.jittered = found.mean, found.jittered
        self.variance = np.broadcast_to(found.variance * self.scale2, found.mean.shape)
        self.quad = found.quad / self.scale2

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> CovarianceSlopes:
        shared = self.found.variance.shape[-1] == 1
        by_unit = by_variance * self.scale2  # by the variance of a kernel of scale one
        by = self.found.slopes(by_mean, by_unit.sum(axis=1, keepdims=True) if shared else by_unit)
        by_scale = summed(2 * (by_variance * self.variance[:, 0]).sum(axis=0), len(self.scale2))
        lengths = self.own.length_slopes(self.values, by.log_lengths)
        parameters = {**lengths, "log_shape": by.log_shape, "log_scale": by_scale}
        return CovarianceSlopes(parameters, by.targets, by.noises)

    def kernel_weights(self) -> list[KernelWeights]:
        alpha, beta = self.found.weights
        return [KernelWeights(self.values["log_lengths"], slice(None), alpha, -2 * beta * self.scale2[:, None])]

    def noise_weights(self) -> NoiseWeights:
        return noise_weights(*self.found.weights, self.scale2)
