"""Several real outputs with Gaussian noise, any of which may be missing in a row.

Observed: the targets y (n, P), which of them are there, present (n, P), how often the row counts (n,) and the known
noise variances (n, P). A target that is not there says nothing, whichever value stands in its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearfield import marginals
from nearfield.families._base import (
    NOISE_FLOOR,
    Calibrator,
    Family,
    Observations,
    Observed,
    Parameter,
    Parameters,
    Score,
    Sites,
    SiteSlopes,
)
from nearfield.heads.outputs import LeftOutOutputs, OutputHeads, OutputsCalibrator
from nearfield.heads.regression import RegressionCalibrator, RegressionHead, target_floor
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require
from nearfield.scaling import Scaling

LOG_NOISE = Parameter(math.log(0.1), math.log(1e-12), math.log(10.0))  # of the variance

OUTPUTS = ("lmc", "independent", "shared")
"""How several outputs may depend on each other, as users say it: mixed, with a kernel each, or with one for all."""


class GaussianOutputs(Family):
    """y_p = f_p + noise for P outputs.

    one_scale: whether all outputs have the same kernel scale and noise level. complete: whether no row lacks an output
    and no noise is known; outputs of one scale then share the noises, and one factorisation serves them all.
    """

    name = "gaussian_outputs"
    kind = "numbers"
    most_unknown = 1.0  # the variance of each target

    def __init__(self, outputs: int, one_scale: bool = False, complete: bool = False) -> None:
        self.outputs, self.one_scale, self.complete = outputs, one_scale, complete
        self.latents = outputs
        self.shared_noise = one_scale and complete
        self.kernel_scales = 1 if one_scale else outputs
        self.parameters = {"log_noise": LOG_NOISE._replace(shape=(self.kernel_scales,))}
        self.arrays = {"y": (outputs,), "present": (outputs,), "weight": (), "known_noise": (outputs,)}

    @property
    def likelihood(self) -> str:
        return "gaussian"

    def with_rows(self, observed: Observed) -> GaussianOutputs:
        """The family for rows like these beside those that it has."""
        whole = bool(observed["present"].all()) and not observed["known_noise"].any()
        return type(self)(self.outputs, self.one_scale, self.complete and whole)

    def apart(self) -> Family:
        return type(self)(self.outputs, one_scale=True, complete=self.complete)

    def observe(self, y: np.ndarray, weight: np.ndarray, **given: Any) -> dict[str, np.ndarray]:
        there, known = ~np.isnan(y), given.get("noise_variance")
        known = np.where(there, 0.0 if known is None else known, 0.0)
        return {"y": np.where(there, y, 0.0), "present": there, "weight": weight, "known_noise": known}

    def values(self, observed: Observed) -> np.ndarray:
        return np.where(observed["present"], observed["y"], np.nan)

    def target_scaling(self, observed: Observed) -> Scaling | None:
        """Each output by the values it has."""
        there, weight = observed["present"], observed["weight"]
        columns = [(observed["y"][there[:, p], p], weight[there[:, p]]) for p in range(self.outputs)]
        parts = [Scaling.of(values, weights) for values, weights in columns]
        return Scaling(np.stack([part.centre for part in parts]), np.stack([part.scale for part in parts]))

    def standardised(self, observed: Observed, scaling: Scaling | None) -> Observed:
        assert scaling is not None
        y = np.where(observed["present"], scaling.apply(observed["y"]), 0.0)
        return {**observed, "y": y, "known_noise": observed["known_noise"] / scaling.scale / scaling.scale}

    def check(self, observed: Observed) -> None:
        y, weight, known = (observed[name] for name in ("y", "weight", "known_noise"))
        if not (np.isfinite(y).all() and (weight > 0).all() and np.isfinite(known).all() and (known >= 0).all()):
            raise ValueError("finite targets, positive weights and known noise variances of at least 0 are expected.")
        if observed["present"].dtype != np.bool_:
            raise ValueError("which targets are present is expected as true or false.")

    def sizes(self, observed: Observed) -> np.ndarray:
        return observed["weight"][..., None] * observed["present"]

    def constant(self, observed: Observed) -> bool:
        """Whether every output has one value, wherever it is there."""
        y, there = observed["y"], observed["present"]
        low, high = np.where(there, y, np.inf).min(axis=0), np.where(there, y, -np.inf).max(axis=0)
        return bool((low >= high).all())

    def noise(self, parameters: Parameters, scale2: np.ndarray) -> np.ndarray:
        return np.exp(parameters["log_noise"]) + NOISE_FLOOR * scale2

    def known_noise(self, observed: Observed) -> np.ndarray:
        return np.where(observed["present"], observed["known_noise"], 0.0)

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        weight, noise = observed["weight"][..., None], np.exp(parameters["log_noise"])
        if self.shared_noise:
            return Sites(observed["y"], (noise / scale2 + NOISE_FLOOR) / weight)
        noises = ((noise + observed["known_noise"]) / scale2 + NOISE_FLOOR) / weight
        return Sites(observed["y"], np.where(observed["present"], noises, np.inf))

    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        by_variance = by_noises / (observed["weight"][..., None] * scale2)
        by_noise, by_known = by_variance.sum((0, 1)), np.zeros(1)
        if not self.shared_noise:
            by_known = np.sum(by_variance * observed["known_noise"], axis=(0, 1))
        if self.one_scale:
            by_noise, by_known = by_noise.sum(keepdims=True), by_known.sum(keepdims=True)
        by_noise = np.exp(parameters["log_noise"]) * by_noise
        return SiteSlopes({"log_noise": by_noise}, -2 * (by_noise + by_known))

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        """Mean over outputs of the marginal log densities; missing outputs add nothing."""
        noise = np.exp(parameters["log_noise"])
        total = variance + noise + observed["known_noise"]
        value, by_residual, by_total = marginals.normal(observed["y"] - mean, total)
        counted = observed["present"] / self.outputs
        by_total = by_total * counted
        by_noise = by_total.sum(axis=1, keepdims=True) if self.one_scale else by_total
        return Score((value * counted).sum(axis=1), -by_residual * counted, by_total, {"log_noise": noise * by_noise})

    def calibrator(self, observed: Observed, parameters: Parameters, calibrated: bool, unit: np.ndarray) -> Calibrator:
        y, there = observed["y"], observed["present"]
        units = np.broadcast_to(unit, (self.outputs,)).tolist()
        floors = [target_floor(y[there[:, p], p]) for p in range(self.outputs)]
        heads = self.plain_head(observed, parameters).heads
        each = zip(heads, [calibrated] * self.outputs, floors, units, strict=True)
        return OutputsCalibrator(tuple(RegressionCalibrator(*own, noise_floor=NOISE_FLOOR) for own in each))

    def plain_head(self, observed: Observed, parameters: Parameters) -> OutputHeads:
        return OutputHeads((RegressionHead(),) * self.outputs)

    def learned_values(
        self, parameters: Parameters, scale2: np.ndarray, head: Any, unit: np.ndarray
    ) -> dict[str, float | np.ndarray]:
        noise = np.sqrt(self.noise(parameters, scale2))
        return {"noise_std": noise * unit, "kernel_scale": np.sqrt(scale2) * unit}

    def left_out(self, ks: np.ndarray, moments: Moments, observations: Observations, noise: np.ndarray) -> Any:
        y, there = observations.observed["y"], observations.observed["present"]
        return LeftOutOutputs(ks, moments, y, np.broadcast_to(noise, y.shape), there, observations.weights)

    def unpacked_head(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
        return OutputHeads.unpacked(fields, self.outputs)

    def described(self) -> dict[str, Any]:
        return {"outputs": self.outputs, "one_scale": self.one_scale, "complete": self.complete}

    @classmethod
    def from_description(cls, fields: Mapping[str, Any]) -> Family:
        outputs = require(fields, "outputs", int)
        if outputs < 2:
            raise ModelFileError(f"its family {cls.name!r} has {outputs} outputs")
        return cls(outputs, require(fields, "one_scale", bool), require(fields, "complete", bool))

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        """Mean and std of each output, from y (n, P) with NaN where missing."""
        there = ~np.isnan(y)
        parts = [Scaling.of(y[own, p], weight[own]) for p, own in enumerate(there.T)]
        return {"mean": [float(s.centre) for s in parts], "std": [float(s.scale) for s in parts]}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        """Normal distributions, (n, P)."""
        import scipy.stats

        return scipy.stats.norm(np.tile(numbers["mean"], (n, 1)), numbers["std"])

    def initial_mixing(self, observed: Observed, latents: int) -> np.ndarray:
        """Where a mixing matrix (P, Q) starts: the directions in which the targets vary most.

        W W' is then the correlation matrix of the outputs, or the part of it that Q latent functions can have. With as
        many latent functions as outputs, W is its symmetric root, so that each output has a latent function much like
        itself; further ones begin as small copies of these.
        """
        there = observed["present"] * observed["weight"][:, None]
        targets = np.where(there > 0, observed["y"], 0.0)
        together = there.T @ (there > 0)
        moments = (targets * there).T @ targets / np.maximum(together, 1e-300)
        values, vectors = np.linalg.eigh((moments + moments.T) / 2)
        roots = np.sqrt(np.maximum(values, 1e-4))  # a constant output has none
        best = np.argsort(-values, kind="stable")[:latents]
        start = vectors[:, best] * roots[best]
        if latents >= self.outputs:
            start = (vectors * roots) @ vectors.T
        copies = math.ceil(latents / start.shape[1])
        return np.concatenate([start / 3**i for i in range(copies)], axis=1)[:, :latents]
