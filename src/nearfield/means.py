"""Means of the latent functions: what a prediction reverts to far from all rows. One class and one line in `MEANS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nearfield.families import Parameter, Parameters

_LEVEL = Parameter(0.0, -30.0, 30.0)  # in units of the target's standard deviation, or of log odds
_SLOPE = Parameter(0.0, -30.0, 30.0)
_SPREAD = 1.0  # of the prior on slopes: one standard deviation of the target for one of the column


class Mean(ABC):
    """A mean of C latent functions over standardised inputs, with the parameters it learns."""

    @abstractmethod
    def parameters(self, latents: int, d: int) -> dict[str, Parameter]:
        """What is learned for C latent functions and d columns."""

    @abstractmethod
    def at(self, inputs: np.ndarray, parameters: Parameters) -> np.ndarray:
        """Means (..., C) at inputs (..., d), or what broadcasts to them."""

    @abstractmethod
    def slopes(self, inputs: np.ndarray, by: np.ndarray) -> dict[str, np.ndarray]:
        """Slopes by the parameters from those by the means (..., C) at inputs (..., d), summed."""

    @abstractmethod
    def input_slopes(self, inputs: np.ndarray, parameters: Parameters) -> np.ndarray:
        """Slopes (b, C, d) of the means by the inputs (b, d), or what broadcasts to them."""

    def penalty(self, parameters: Parameters) -> tuple[float, dict[str, np.ndarray]]:
        """Minus the log density of the prior, one term for the whole data set, and its slopes by the parameters."""
        return 0.0, {}

    needs_inputs: ClassVar[bool] = True
    """whether the mean differs between rows"""

    def slopes_of_all(self, parameters: Parameters, d: int) -> np.ndarray | None:
        """Slopes (C, d) by all d columns; None where the mean has none."""
        return None


class Constant(Mean):
    """The same everywhere: `mean` (C,)."""

    needs_inputs = False

    def parameters(self, latents: int, d: int) -> dict[str, Parameter]:
        return {"mean": _LEVEL._replace(shape=(latents,))}

    def at(self, inputs: np.ndarray, parameters: Parameters) -> np.ndarray:
        return parameters["mean"]

    def slopes(self, inputs: np.ndarray, by: np.ndarray) -> dict[str, np.ndarray]:
        return {"mean": by.reshape(-1, by.shape[-1]).sum(axis=0)}

    def input_slopes(self, inputs: np.ndarray, parameters: Parameters) -> np.ndarray:
        return np.zeros(inputs.shape[-1])


@dataclass(frozen=True)
class Linear(Mean):
    """A level (C,) and a slope for each column, `mean_slopes` (C, d), drawn towards zero: trends go on beyond the rows.

    The prior on slopes is normal. It is one term for the whole data set, and so matters where rows are few.
    columns: those (p,) that have a slope, `mean_slopes` (C, p), what geostatistics calls a drift; None: all.
    """

    columns: tuple[int, ...] | None = None

    def parameters(self, latents: int, d: int) -> dict[str, Parameter]:
        p = d if self.columns is None else len(self.columns)
        return {"mean": _LEVEL._replace(shape=(latents,)), "mean_slopes": _SLOPE._replace(shape=(latents, p))}

    def _own(self, inputs: np.ndarray) -> np.ndarray:
        """Inputs (..., p) of the columns that have a slope."""
        return inputs if self.columns is None else inputs[..., list(self.columns)]

    def slopes_of_all(self, parameters: Parameters, d: int) -> np.ndarray:
        """Slopes (C, d) by all d columns."""
        slopes = parameters["mean_slopes"]
        if self.columns is None:
            return slopes
        found = np.zeros((len(slopes), d))
        found[:, list(self.columns)] = slopes
        return found

    def at(self, inputs: np.ndarray, parameters: Parameters) -> np.ndarray:
        slopes = parameters["mean_slopes"]
        total = np.broadcast_to(parameters["mean"], (*inputs.shape[:-1], len(slopes))).copy()
        inputs = self._own(inputs)
        for e in range(inputs.shape[-1]):  # column by column: the same bits for rows alone or together
            total += inputs[..., e, None] * slopes[:, e]
        return total

    def slopes(self, inputs: np.ndarray, by: np.ndarray) -> dict[str, np.ndarray]:
        flat = by.reshape(-1, by.shape[-1])
        return {"mean": flat.sum(axis=0), "mean_slopes": flat.T @ self._own(inputs).reshape(len(flat), -1)}

    def input_slopes(self, inputs: np.ndarray, parameters: Parameters) -> np.ndarray:
        return parameters["mean_slopes"]

    def penalty(self, parameters: Parameters) -> tuple[float, dict[str, np.ndarray]]:
        slopes = parameters["mean_slopes"] / _SPREAD**2
        return 0.5 * float(np.sum(parameters["mean_slopes"] * slopes)), {"mean_slopes": slopes}


MEANS: dict[str, Mean] = {"constant": Constant(), "linear": Linear()}


def find_mean(name: str, drift: Sequence[int] | None) -> Mean:
    """The mean of that name, or a linear one of some columns alone."""
    return MEANS[name] if drift is None else Linear(tuple(drift))
