"""What the estimators share: their arguments, the inputs, what is known after a fit, and one safe file."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, fields
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from nearfield import fitting
from nearfield.conditional import ENGINES
from nearfield.fitting import Fit, Settings, Summary
from nearfield.kernels import find_kernel
from nearfield.likelihoods import Likelihood
from nearfield.model_file import pack, unpack
from nearfield.persistence import ModelFileError, naming_file, read_file, require, write_file
from nearfield.validation import check_choice, is_int, refuse_not_finite, refuse_text

DEFAULTS = Settings()
Self = TypeVar("Self", bound="GPEstimator")


class TrainingRowsWarning(UserWarning):
    """The file that was saved contains the training rows."""


class GPEstimator(BaseEstimator):
    """Common ground of the estimators; not an estimator itself. Their arguments are listed in each, as scikit-learn
    wants it."""

    kernel: str
    k: int | str
    max_steps: int
    learning_rate: float
    batch_size: int
    refresh_every: int
    engine: str
    checkpoint: str | os.PathLike[str] | None
    verbose: bool | None
    random_state: int | np.random.RandomState | None
    _fit: Fit

    # --- fitting ----------------------------------------------------------------------------------------------------

    def _settings(self, predictive: str, own_kernels: bool = False) -> Settings:
        """The arguments that all estimators have, checked."""
        find_kernel(self.kernel)
        check_choice("engine", self.engine, ENGINES)
        if self.k != "auto" and not (is_int(self.k) and int(self.k) >= 1):
            raise ValueError(f"k is {self.k!r}: expected 'auto' or a whole number of at least 1.")
        for name in ("max_steps", "batch_size", "refresh_every"):
            if not (is_int(getattr(self, name)) and getattr(self, name) >= 1):
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected a whole number of at least 1.")
        if not 0 < self.learning_rate <= 1:
            raise ValueError(f"learning_rate is {self.learning_rate!r}: expected a number above 0, at most 1.")
        shared = {f.name: plain(getattr(self, f.name)) for f in fields(Settings) if hasattr(self, f.name)}
        return Settings(**{**shared, "predictive": predictive, "own_kernels": own_kernels})

    def _start(
        self,
        X: np.ndarray,
        stats: np.ndarray,
        likelihood: Likelihood,
        settings: Settings,
        unit: float | np.ndarray = 1.0,
        n_rows: int | None = None,
        groups: np.ndarray | None = None,
    ) -> None:
        """Fit validated inputs X (n, d) and statistics (n, S), and take the fit over."""
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        settings = _clamp_k(settings, len(X))
        shown: dict[str, Any] = {"checkpoint": self.checkpoint, "verbose": self.verbose}
        fit = fitting.fit(X, stats, likelihood, settings, rng, unit=unit, groups=groups, n_rows=n_rows, **shown)
        self._adopt(fit)
        self.extra_: dict[str, Any] = {}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fit")

    def _weights(self, sample_weight: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (n,) and which rows (n,) count at all."""
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is zero for every row: at least one row must count.")
        return weights, weights > 1e-100 * weights.max()

    def _inputs(self, X: Any) -> np.ndarray:
        """New inputs (n, d) as finite float64."""
        check_is_fitted(self)
        refuse_text(X)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
        refuse_not_finite(X, getattr(self, "feature_names_in_", None))
        return np.asarray(X)

    def _adopt(self, fit: Fit) -> None:
        """Take over a fit: set everything that depends on it."""
        self._fit = fit
        self.__dict__.pop("_loo", None)
        self.k_: int = fit.predictor.k
        self.summary_: Summary = fit.summary
        self.n_rows_: int = len(fit.predictor.rows)
        model = fit.predictor.model
        for parameter in model.hyperparameters().values():
            parameter.requires_grad_(False)
        self.length_scales_: np.ndarray = model.log_lengths.exp().numpy() * fit.inputs.scale
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(len(model.lengths))])
        self.feature_relevance_: dict[str, float] = dict(
            zip((str(name) for name in names), (1 / model.lengths).tolist(), strict=True)
        )

    # --- one safe file ----------------------------------------------------------------------------------------------

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What is known of the target beyond the fit, as JSON and arrays."""
        return {}, {}

    def _unpack_target(self, header: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        """Take over what `_pack_target` wrote, or raise a ModelFileError."""

    def save(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, which contains the training rows. `extra` is plain JSON kept with it."""
        check_is_fitted(self)
        header, arrays = pack(self._fit)
        target, target_arrays = self._pack_target()
        names = getattr(self, "feature_names_in_", None)
        header |= {
            "estimator": type(self).__name__,
            "parameters": {name: plain(value) for name, value in self.get_params().items() if name not in _NOT_SAVED},
            "columns": None if names is None else [str(name) for name in names],
            "target": target,
            "extra": self.extra_ if extra is None else extra,
        }
        write_file(path, header, arrays | target_arrays)
        warnings.warn(
            f"{os.fspath(path)!r} contains the {self.n_rows_:,} training rows: "
            "share it only with those who may see them.",
            TrainingRowsWarning,
            stacklevel=2,
        )

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. Runs no code from the file; anything wrong with it gives a ModelFileError."""
        header, arrays = read_file(path)
        with naming_file(path):
            return _restore(cls, header, arrays)


_NOT_SAVED = ("checkpoint", "verbose", "random_state")


def _restore(cls: type[Self], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
    """The estimator from a file's header and arrays."""
    if header.get("estimator") != cls.__name__:
        raise ModelFileError(f"it holds a {header.get('estimator')!r}, not a {cls.__name__}")
    parameters = require(header, "parameters", dict)
    expected = set(cls().get_params()) - set(_NOT_SAVED)
    if set(parameters) != expected:
        raise ModelFileError(f"its parameters are {sorted(parameters)}; expected {sorted(expected)}")
    model = cls(**parameters)
    fit = unpack(header, arrays)
    d, columns = len(fit.inputs.scale), header.get("columns")
    model.n_features_in_ = d
    if columns is not None:
        if not (isinstance(columns, list) and len(columns) == d and all(isinstance(c, str) for c in columns)):
            raise ModelFileError(f"its column names do not fit its {d} columns")
        model.feature_names_in_ = np.array(columns, dtype=object)
    model._unpack_target(require(header, "target", dict), arrays, fit)
    model._adopt(fit)
    model.extra_ = require(header, "extra", dict)
    return model


def plain(value: Any) -> Any:
    """Without numpy's types, which JSON does not know."""
    return value.item() if isinstance(value, np.generic) else value


def _clamp_k(settings: Settings, n: int) -> Settings:
    """k no larger than the number of other rows, said aloud."""
    if isinstance(settings.k, int) and settings.k > max(n - 1, 1):
        warnings.warn(f"k = {settings.k} is more than the {n - 1} other rows: using {max(n - 1, 1)}.", stacklevel=4)
        return Settings(**{**asdict(settings), "k": max(n - 1, 1)})
    return settings
