"""Student-t noise: heavy tails, so that outliers do not bend the fit.

A Student-t is a mixture of Gaussians: y ~ N(f, s^2 / lambda), lambda ~ Gamma(nu/2, nu/2). Given the moments of f the
best Gamma for a row has E[lambda] = (nu + 1) / (nu + e / s^2), e = E[(y - f)^2], so an outlier gets a large
pseudo-noise. The site state of a row is e, not E[lambda]: while s^2 falls in training, rows that are not visited for
long would otherwise become ever more certain, outliers among them.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import numpy as np

from nearfield import marginals
from nearfield.families._base import Observed, Parameter, Parameters, Score, Sites, SiteSlopes
from nearfield.families.gaussian import Noisy
from nearfield.heads.regression import SMALLEST_DF, RegressionHead
from nearfield.scaling import Scaling

_OUTLIER = 0.05  # E[lambda] of a row ten scales off, with four degrees of freedom
_LEAST = 1e-12  # squared residual: the state is above zero


class StudentT(Noisy):
    """y = f + Student-t noise of learned scale and degrees of freedom. Noise that is known beside it is Gaussian."""

    name = "student_t"
    patient = True
    robust = True
    floor = 1e-8  # sites that nobody doubts would make outliers of all others
    state_size = 1
    parameters = MappingProxyType(
        {
            "log_noise": Parameter(math.log(0.05), math.log(1e-9), math.log(10.0)),  # of the squared scale
            "log_df": Parameter(math.log(6.0), math.log(4.0), math.log(1e6)),
        }
    )

    def target_scaling(self, observed: Observed) -> Scaling | None:
        """By medians, which outliers do not move."""
        return Scaling.robust(observed["y"], observed["weight"])

    def plain_head(self, observed: Observed, parameters: Parameters) -> RegressionHead:
        return RegressionHead(df=max(SMALLEST_DF, float(np.exp(parameters["log_df"]))))

    def learned_values(
        self, parameters: Parameters, scale2: np.ndarray, head: Any, unit: np.ndarray
    ) -> dict[str, float | np.ndarray]:
        found = super().learned_values(parameters, scale2, head, unit)
        df = float(np.exp(parameters["log_df"]))
        return {"noise_scale": found["noise_std"], "kernel_scale": found["kernel_scale"], "df": df}

    def initial_state(self, observed: Observed) -> np.ndarray:
        """As if f were zero everywhere: what is far out counts for little."""
        return np.maximum(observed["y"] ** 2, _LEAST)[:, None]

    def check_state(self, state: np.ndarray) -> None:
        if not (state > 0).all():
            raise ValueError("expected squared residuals, which are above zero")

    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        df, noise = np.exp(parameters["log_df"]), np.exp(parameters["log_noise"])
        widened = (df * noise + state[..., 0]) / (df + 1)  # s^2 / E[lambda]
        noises = ((widened + observed["known_noise"]) / scale2 + self.floor) / observed["weight"]
        return Sites(observed["y"][..., None], noises[..., None])

    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        df, noise, e = np.exp(parameters["log_df"]), np.exp(parameters["log_noise"]), state[..., 0]
        by_variance = by_noises[..., 0] / (observed["weight"] * scale2)
        by_noise = np.asarray(df * noise / (df + 1) * by_variance.sum())
        by_df = np.asarray(df / (df + 1) ** 2 * np.sum(by_variance * (noise - e)))
        widened = (df * noise + e) / (df + 1)
        by_scale = -2 * np.sum(by_variance * (widened + observed["known_noise"]))
        return SiteSlopes({"log_noise": by_noise, "log_df": by_df}, np.array([by_scale]))

    def updated_state(
        self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters
    ) -> np.ndarray:
        return np.maximum((observed["y"][:, None] - mean) ** 2 + variance, _LEAST)

    def believed(self, state: np.ndarray, parameters: Parameters) -> np.ndarray | None:
        """Nothing is learned from how badly an outlier is predicted: its score would only widen the noise."""
        df, noise = np.exp(parameters["log_df"]), np.exp(parameters["log_noise"])
        return ((df + 1) / (df + state[:, 0] / noise) > _OUTLIER).astype(np.float64)

    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        """log of the integral over lambda of Gamma(lambda; nu/2, nu/2) N(y; mean, variance + s^2 / lambda)."""
        s = marginals.student_t(
            observed["y"] - mean[:, 0],
            variance[:, 0] + observed["known_noise"],
            float(parameters["log_noise"]),
            float(parameters["log_df"]),
        )
        slopes = {"log_noise": s.by_log_noise, "log_df": s.by_log_df}
        return Score(s.value, -s.by_residual[:, None], s.by_variance[:, None], slopes)
