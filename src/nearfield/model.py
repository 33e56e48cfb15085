"""The model: a mean, a covariance and a family, with all learned parameters in one place.

Everything here is in standardised units: inputs have mean zero and variance one on the training rows, and so has a
target that is a number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nearfield._types import Neighbourhood
from nearfield.covariances import Centred, Covariance
from nearfield.families import Family, Observations, Observed, Parameter, Parameters
from nearfield.means import Mean
from nearfield.rows import Rows, seen_by


@dataclass(frozen=True, eq=False)
class Model:
    """Four nouns and the values of what they learn, by name."""

    family: Family
    covariance: Covariance
    mean: Mean
    parameters: Parameters

    @classmethod
    def initial(cls, family: Family, covariance: Covariance, mean: Mean, level: np.ndarray | None = None) -> Model:
        """Where training starts; level: of the mean (C,)."""
        described = _described(family, covariance, mean)
        values = {name: np.full(p.shape, p.initial) for name, p in described.items()}
        values |= covariance.initial(family.initial_scale)
        if level is not None:
            values["mean"] = np.asarray(level, dtype=np.float64)
        return cls(family, covariance, mean, bounded(values, described))

    @classmethod
    def after(cls, shared: Model, family: Family, covariance: Covariance) -> Model:
        """Where training starts once a model of the same latent functions that share a kernel has been learned."""
        described = _described(family, covariance, shared.mean)
        values = {**shared.parameters, **covariance.after(shared.parameters)}
        shaped = {name: np.broadcast_to(values[name], p.shape).copy() for name, p in described.items()}
        return cls(family, covariance, shared.mean, bounded(shaped, described))

    def described(self) -> dict[str, Parameter]:
        """All that is learned: shapes and bounds by name."""
        return _described(self.family, self.covariance, self.mean)

    def with_parameters(self, parameters: Parameters) -> Model:
        """The same with other values."""
        return replace(self, parameters=parameters)

    @property
    def search_lengths(self) -> np.ndarray:
        """Length scales (d,) under which neighbours are searched."""
        return self.covariance.search_lengths(self.parameters)

    @property
    def scale2(self) -> np.ndarray:
        """Prior variances (S,) of the latent functions."""
        return self.covariance.scale2(self.parameters)

    @property
    def noise(self) -> np.ndarray:
        """Noise variance of one observation, (1,) or (C,); of a Student-t its squared scale; zero if it has none."""
        return self.family.noise(self.parameters, self.scale2)

    def latent(
        self,
        rows: Rows,
        query: np.ndarray,
        ids: np.ndarray,
        left_out: Observations | None = None,
        ks: np.ndarray | None = None,
        differentiate: bool = False,
    ) -> Latent:
        """The latent functions at query (b, d), given the neighbours ids (b, k), or the first ks (q,) of them.

        left_out: the observations (b,) that the query stands for, which are then taken away from the neighbours.
        """
        observed, state = seen_by(rows, self.family, ids, left_out)
        scale2 = self.scale2
        sites = self.family.sites(observed, state, self.parameters, scale2)
        near = rows.inputs[np.maximum(ids, 0)] if self.mean.needs_inputs else query
        targets = sites.targets - self.mean.at(near, self.parameters)
        neighbourhood = Neighbourhood(query, rows.inputs, ids, targets, sites.noises)
        found = self.covariance.condition(self.parameters, neighbourhood, ks, differentiate)
        level = self.mean.at(query, self.parameters)
        level = level[:, None] if level.ndim == 2 else level
        return Latent(self, found, found.mean + level, query, near, observed, state)

    def posterior(self, mean: np.ndarray, variance: np.ndarray, rows: Rows, left_out: Observations) -> tuple[
        np.ndarray, np.ndarray
    ]:  # fmt: skip
        """Mean and variance (b, C) with the left-out observations put back: the product with their own sites."""
        sites = self.family.sites(left_out.observed, rows.state[left_out.row], self.parameters, self.scale2)
        gain = variance / (variance + sites.noises * self.scale2)
        return mean + gain * (sites.targets - mean), variance * (1 - gain)


@dataclass(frozen=True, eq=False)
class Latent:
    """Latent functions at some rows, and what their slopes become."""

    model: Model
    found: Centred
    mean: np.ndarray  # (b, q, C)
    query: np.ndarray  # (b, d)
    near: np.ndarray  # (b, k, d) inputs of the neighbours, where the mean needs them
    observed: Observed  # at the neighbours, less what was left out
    state: np.ndarray  # (b, k, A) of the neighbours

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Slopes by all parameters, and by the site state (b, k, A) where it is learned, from those by the moments."""
        model = self.model
        by = self.found.slopes(by_mean, by_variance)
        of_sites = model.family.site_slopes(
            self.observed, self.state, model.parameters, model.scale2, by.targets, by.noises
        )
        parts = [
            by.parameters,
            of_sites.parameters,
            model.covariance.scale_slopes(model.parameters, of_sites.log_scale),
            model.mean.slopes(self.query, by_mean),
            model.mean.slopes(self.near, -by.targets),
        ]
        return added(*parts), of_sites.state


def _described(family: Family, covariance: Covariance, mean: Mean) -> dict[str, Parameter]:
    return {
        **covariance.parameters(),
        **mean.parameters(family.latents, covariance.d),
        **family.parameters,
    }


def bounded(values: Parameters, described: dict[str, Parameter]) -> dict[str, np.ndarray]:
    """Every value back inside its bounds."""
    return {name: np.clip(values[name], p.low, p.high) for name, p in described.items()}


def added(*parts: Parameters) -> dict[str, np.ndarray]:
    """Sums by name."""
    total: dict[str, np.ndarray] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
