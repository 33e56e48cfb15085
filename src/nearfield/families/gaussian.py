"""Gaussian noise, of the same level for all rows plus what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from nearfield import marginals
from nearfield.families._base import (
    NOISE_FLOOR,
    Calibrator,
    Family,
    Observations,
    Observed,
    Parameters,
    Score,
    Sites,
    SiteSlopes,
)
from nearfield.families.outputs import LOG_NOISE, GaussianOutputs
from nearfield.heads.regression import LeftOutNumbers, RegressionCalibrator, RegressionHead, target_floor
from nearfield.moments import Moments
from nearfield.scaling import Scaling


class Noisy(Family):
    """A real target with noise of a learned level, `log_noise` (of a variance, or of the squared scale of heavy tails).

    Observed: the target y, how often the row counts and what is known of its noise variance, (n,) each.
    """

    arrays = MappingProxyType({"y": (), "weight": (), "known_noise": ()})

    most_unknown = 1.0  # the variance of the target

    floor: float = NOISE_FLOOR
    """least noise variance, relative to that of the kernel"""

    def check(self, observed: Observed) -> None:
        y, weight, known = (observed[name] for name in self.arrays)
        if not (np.isfinite(y).all() and (weight > 0).all() and np.isfinite(known).all() and (known >= 0).all()):
            raise ValueError("finite targets, positive weights and known noise variances of at least 0 are expected.")

    def noise(self, parameters: Parameters, scale2: np.ndarray) -> np.ndarray:
        return np.exp(parameters["log_noise"]) + self.floor * scale2

    def known_noise(self, observed: Observed) -> np.ndarray:
        return observed["known_noise"][..., None]

    def observe(self, y: np.ndarray, weight: np.ndarray, **given: Any) -> dict[str, np.ndarray]:
        known = given.get("noise_variance")
        return {"y": y, "weight": weight, "known_noise": np.zeros(y.shape) if known is None else known}

    def values(self, observed: Observed) -> np.ndarray:
        return observed["y"]

    def target_scaling(self, observed: Observed) -> Scaling | None:
        return Scaling.of(observed["y"], observed["weight"])

    def standardised(self, observed: Observed, scaling: Scaling | None) -> Observed:
        assert scaling is not None
        known = observed["known_noise"]
        if known.strides != (0,) or known[0]:  # one zero for all rows stays one
            known = known / scaling.scale / scaling.scale
        return {**observed, "y": scaling.apply(observed["y"]), "known_noise": known}

    def plain_head(self, observed: Observed, parameters: Parameters) -> RegressionHead:
        return RegressionHead()

    def learned_values(
        self, parameters: Parameters, scale2: np.ndarray, head: Any, unit: np.ndarray
    ) -> dict[str, float | np.ndarray]:
        noise, scale = np.sqrt(self.noise(parameters, scale2)) * unit, np.sqrt(scale2) * unit
        return {"noise_std": float(noise[0]), "kernel_scale": float(scale[0])}

    robust: bool = False
    """whether outliers are no errors of ours when heads are judged"""

    def calibrator(self, observed: Observed, parameters: Parameters, calibrated: bool, unit: np.ndarray) -> Calibrator:
        plain, floor = self.plain_head(observed, parameters), target_floor(observed["y"])
        return RegressionCalibrator(plain, calibrated, floor, float(unit), self.robust, noise_floor=self.floor)

    def left_out(self, ks: np.ndarray, moments: Moments, observations: Observations, noise: np.ndarray) -> Any:
        y = observations.observed["y"]
        return LeftOutNumbers(ks, moments.latent(0), y, np.broadcast_to(noise[..., 0], y.shape), observations.weights)

    def unpacked_head(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
        return RegressionHead.unpacked(fields)


class Gaussian(Noisy):
    """y = f + noise. The sites are the observations themselves."""

    name = "gaussian"
    exact_sites = True
    parameters = MappingProxyType({"log_noise": LOG_NOISE})

    @classmethod
    def of_outputs(cls, outputs: int, one_scale: bool) -> Family:
        return GaussianOutputs(outputs, one_scale, complete=True)

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        noise = (np.exp(parameters["log_noise"]) + observed["known_noise"]) / scale2 + NOISE_FLOOR
        return Sites(observed["y"][..., None], (noise / observed["weight"])[..., None])

    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        by_variance = by_noises[..., 0] / (observed["weight"] * scale2)
        noise = np.exp(parameters["log_noise"])
        by_noise = noise * by_variance.sum()
        by_known = np.sum(by_variance * observed["known_noise"])
        return SiteSlopes({"log_noise": np.asarray(by_noise)}, np.array([-2 * (by_noise + by_known)]))

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        """The terms of Eq. (9), eqn:cvk."""
        noise = np.exp(parameters["log_noise"])
        total = variance[:, 0] + noise + observed["known_noise"]
        value, by_residual, by_total = marginals.normal(observed["y"] - mean[:, 0], total)
        return Score(value, -by_residual[:, None], by_total[:, None], {"log_noise": noise * by_total})
