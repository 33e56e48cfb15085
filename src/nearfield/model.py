"""The model: a mean, a covariance and a family, with all learned parameters in one place.

Everything here is in standardised units: inputs have mean zero and variance one on the training rows, and so has a
target that is a number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nearfield._types import Neighbourhood
from nearfield.covariances import Centred, Covariance, Together
from nearfield.families import Family, Observations, Observed, Parameter, Parameters, Sites
from nearfield.means import Mean
from nearfield.numbering import Numbering
from nearfield.rows import Rows, seen_by
from nearfield.warps import Metric


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
    def metric(self) -> Metric:
        """Where neighbours are searched: inputs bent, over those length scales."""
        return self.covariance.metric(self.parameters)

    def coordinates(self, inputs: np.ndarray) -> np.ndarray:
        """Standardised inputs (n, d) as the kernel sees them, before the length scales."""
        return self.covariance.coordinates(self.parameters, inputs)

    @property
    def scale2(self) -> np.ndarray:
        """Prior variances (S,) of the latent functions."""
        return self.covariance.scale2(self.parameters)

    @property
    def noise(self) -> np.ndarray:
        """Noise variance of one observation, (1,) or (C,); of a Student-t its squared scale; zero if it has none."""
        return self.family.noise(self.parameters, self.scale2)

    def near(self, rows: Rows, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates (u, d) of the rows that are neighbours, and where among these each of ids (b, k) is."""
        if isinstance(rows.inputs, np.ndarray) and not len(self.covariance.warps):
            return rows.inputs, ids
        numbering = Numbering(ids)
        return self.coordinates(rows.inputs[numbering.rows]), numbering.places(ids)

    def latent(
        self,
        rows: Rows,
        query: np.ndarray,
        ids: np.ndarray,
        left_out: Observations | None = None,
        ks: np.ndarray | None = None,
        differentiate: bool = False,
        located: np.ndarray | None = None,
        extra: np.ndarray | None = None,
    ) -> Latent:
        """The latent functions at query (b, d), given the neighbours ids (b, k), or the first ks (q,) of them.

        left_out: the observations (b,) that the query stands for, which are then taken away from the neighbours.
        located: what `coordinates` says of all rows, where it is known.
        extra: noises (b, k) that the neighbours have beside their own, relative to the prior variances.
        """
        observed, state = seen_by(rows, self.family, ids, left_out)
        scale2 = self.scale2
        sites = self.family.sites(observed, state, self.parameters, scale2)
        noises = sites.noises if extra is None else sites.noises + extra[..., None]
        near = rows.inputs[np.maximum(ids, 0)] if self.mean.needs_inputs else query
        targets = sites.targets - self.mean.at(near, self.parameters)
        warps = self.covariance.warps
        if differentiate and len(warps):
            features = rows.features or rows.featured(warps, ids).features
            assert features is not None
            if left_out is not None and features.numbering is None:  # the query is rows that have their features
                at_query = features.values[left_out.row]
            else:
                at_query = warps.features(query)
            given, own = (at_query, features.values, features.ids(ids)), warps.owners
            neighbourhood = Neighbourhood(*given, targets, noises, own)
        else:
            located, places = self.near(rows, ids) if located is None else (located, ids)
            neighbourhood = Neighbourhood(self.coordinates(query), located, places, targets, noises)
        found = self.covariance.condition(self.parameters, neighbourhood, ks, differentiate)
        level = self.mean.at(query, self.parameters)
        level = level[:, None] if level.ndim == 2 else level
        return Latent(self, found, found.mean + level, query, near, observed, state)

    def posterior(self, mean: np.ndarray, variance: np.ndarray, rows: Rows, left_out: Observations) -> tuple[
        np.ndarray, np.ndarray
    ]:  # fmt: skip
        """Mean and variance (b, C) with the left-out observations put back: the product with their own sites."""
        sites = self.family.sites(left_out.observed, rows.state[left_out.row], self.parameters, self.scale2)
        return _put_back(mean, variance, sites.targets, sites.noises * self.scale2)


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


class AllRows:
    """The latent functions given all rows, by one factorisation: rows left out, new rows, and their slopes."""

    def __init__(self, model: Model, rows: Rows, differentiate: bool = False, earlier: AllRows | None = None) -> None:
        """earlier: the first of the rows, with the same site state and parameters, whose factorisation is extended."""
        self.model, self.rows, self._inputs = model, rows, np.asarray(rows.inputs)
        self._sites = model.family.sites(rows.observed, rows.state, model.parameters, model.scale2)
        targets = self._sites.targets - model.mean.at(self._inputs, model.parameters)
        self.found: Together = model.covariance.together(
            model.parameters, self._inputs, targets, self._sites.noises, differentiate,
            None if earlier is None else earlier.found,
        )  # fmt: skip

    @cached_property
    def _cavities(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and quad (n, C) at every row without anything that was observed there, or in its group."""
        mean, variance, quad = self.found.left_out(self.rows.groups)
        return mean + self.model.mean.at(self._inputs, self.model.parameters), variance, quad

    def new(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and quad (b, C) at new rows (b, d)."""
        mean, variance, quad = self.found.predict(query)
        return mean + self.model.mean.at(query, self.model.parameters), variance, quad

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (n, C) at the rows themselves, given everything."""
        mean, variance, _ = self.found.left_out(None)
        mean = mean + self.model.mean.at(self._inputs, self.model.parameters)
        return _put_back(mean, variance, self._sites.targets, self._sites.noises * self.model.scale2)

    def left_out(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, variance and quad (u, C) at the row of each observation without that one, which may leave others."""
        row, several = self.rows.observations.row, self._several
        mean, variance, quad = (part[row] for part in self._cavities)
        if several.size:
            targets, noises = self._rest.sites.targets[:, 0], self._rest.sites.noises[:, 0] * self.model.scale2
            off = np.where(np.isfinite(noises), targets - mean[several], 0.0)
            quad[several] += off**2 / (variance[several] + noises)
            mean[several], variance[several] = _put_back(mean[several], variance[several], targets, noises)
        return mean, variance, quad

    @cached_property
    def _several(self) -> np.ndarray:
        """Numbers of the observations of which something is left at their row."""
        alone = self.rows.observations.alone
        return np.flatnonzero(~alone) if self.rows.groups is None else np.zeros(0, dtype=np.int64)

    @cached_property
    def _rest(self) -> _Rest:
        """What is left at their rows, (v, 1, ..) each."""
        left_out = self.rows.observations.take(self._several)
        observed, state = seen_by(self.rows, self.model.family, left_out.row[:, None], left_out)
        return _Rest(
            observed, state, self.model.family.sites(observed, state, self.model.parameters, self.model.scale2)
        )

    def slopes(self, by_mean: np.ndarray, by_variance: np.ndarray, by_density: float = 0.0) -> dict[str, np.ndarray]:
        """Slopes by all parameters from those by the moments (u, C) of observations left out.

        by_density: also by the joint log density of the sites, where `Family.exact_sites`.
        """
        model, rows = self.model, self.rows
        by_mean, by_variance = by_mean.copy(), by_variance.copy()
        parts: list[Parameters] = []
        if self._several.size:
            parts = self._rest_slopes(by_mean, by_variance)
        means, variances = np.zeros((2, len(rows), by_mean.shape[1]))
        np.add.at(means, rows.observations.row, by_mean)
        np.add.at(variances, rows.observations.row, by_variance)
        by = self.found.slopes(means, variances, self._cavities[1], by_density, rows.groups)
        observed = {name: values[None] for name, values in rows.observed.items()}
        of_sites = model.family.site_slopes(
            observed, rows.state[None], model.parameters, model.scale2, by.targets, by.noises
        )
        parts += [
            by.parameters,
            of_sites.parameters,
            model.covariance.scale_slopes(model.parameters, of_sites.log_scale),
            model.mean.slopes(self._inputs, means),
            model.mean.slopes(self._inputs, -by.targets[0]),
        ]
        return added(*parts)

    def _rest_slopes(self, by_mean: np.ndarray, by_variance: np.ndarray) -> list[Parameters]:
        """Slopes by what is left at rows; those by moments are turned into slopes by moments without it, in place."""
        model, several, rest = self.model, self._several, self._rest
        row = self.rows.observations.row[several]
        mean, variance, _ = (part[row] for part in self._cavities)
        seen = np.isfinite(rest.sites.noises[:, 0])
        targets, noises = rest.sites.targets[:, 0], np.where(seen, rest.sites.noises[:, 0], 1.0) * model.scale2
        total = variance + noises
        gain, g_mean, g_variance = seen * variance / total, by_mean[several], by_variance[several]
        by_gain = g_mean * (targets - mean) + g_variance * noises
        by_mean[several] = g_mean * (1 - gain)
        by_variance[several] = np.where(seen, by_gain * noises / total**2, g_variance)
        by_noises = seen * (g_variance * gain - by_gain * variance / total**2)
        relative = by_noises * model.scale2
        by_relative = relative if rest.sites.noises.shape[-1] == relative.shape[-1] else relative.sum(1, keepdims=True)
        of_sites = model.family.site_slopes(
            rest.observed, rest.state, model.parameters, model.scale2, (g_mean * gain)[:, None], by_relative[:, None]
        )
        by_log_scale = 2 * (by_noises * noises).sum(axis=0)
        by_log_scale = by_log_scale if len(model.scale2) > 1 else by_log_scale.sum(keepdims=True)
        return [
            of_sites.parameters,
            model.covariance.scale_slopes(model.parameters, of_sites.log_scale + by_log_scale),
        ]


class _Rest(NamedTuple):
    observed: Observed
    state: np.ndarray
    sites: Sites


def _put_back(
    mean: np.ndarray, variance: np.ndarray, targets: np.ndarray, noises: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Moments with a site put back: the product with it, whose noise variances may be infinite."""
    gain = variance / (variance + noises)
    return mean + gain * np.where(gain > 0, targets - mean, 0.0), variance * (1 - gain)


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
