"""scikit-learn estimators: the public surface."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from nearfield import fitting
from nearfield.conditional import ENGINES
from nearfield.fitting import Fit, Settings, Summary
from nearfield.kernels import find_kernel
from nearfield.model_file import pack, unpack
from nearfield.persistence import ModelFileError, naming_file, read_file, require, write_file
from nearfield.prediction import Predicted
from nearfield.scaling import Scaling
from nearfield.validation import check_choice, is_int, refuse_missing_target, refuse_not_finite, refuse_text

Self = TypeVar("Self", bound="GPRegressor")
_DEFAULTS = Settings()


class TrainingRowsWarning(UserWarning):
    """The file that was saved contains the training rows."""


class LeftOut(NamedTuple):
    """Predictions of the training rows from the others, (n,) each, in the units of the target."""

    mean: np.ndarray
    std: np.ndarray
    residual: np.ndarray


class GPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression from the k nearest neighbours, trained by leaving rows out.

    Parameters
    ----------
    kernel : "matern52", "matern32", "matern12", "rbf" or "rational_quadratic"; one length scale per column.
    k : number of neighbours to predict from, or "auto": chosen on left-out training rows, up to 512.
    predictive : "calibrated", a Student-t whose scale follows the roughness of the neighbourhood, fitted on left-out
        rows; or "gaussian", with one noise level for all rows.
    max_steps : training steps at most, in whole refreshes; training stops earlier when the left-out score has settled.
    learning_rate, batch_size, refresh_every : of the training loop; the neighbours are searched anew every
        `refresh_every` steps.
    engine : "fused" (compiled) or "batched" (plain torch; slower, the reference).
    checkpoint : path of a file to resume training from after a crash; removed when training has ended.
    verbose : progress bar; None shows it on terminals only.
    random_state : int, RandomState instance or None. The same int gives the same bits.

    Attributes
    ----------
    k_ : number of neighbours in use. Where it is n - 1, predictions use all n rows.
    loo_ : left-out `mean`, `std` and `residual` of the training rows, computed when first asked for. A row of weight
        zero is no training row.
    feature_relevance_ : 1 / length scale of each column in standardised units, by column name.
    length_scales_, kernel_scale_, noise_std_ : hyper-parameters in the units of the data.
    summary_ : what the fit did; `print(model.summary_)`.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    """

    def __init__(
        self,
        kernel: str = _DEFAULTS.kernel,
        k: int | str = _DEFAULTS.k,
        predictive: str = _DEFAULTS.predictive,
        *,
        max_steps: int = _DEFAULTS.max_steps,
        learning_rate: float = _DEFAULTS.learning_rate,
        batch_size: int = _DEFAULTS.batch_size,
        refresh_every: int = _DEFAULTS.refresh_every,
        engine: str = _DEFAULTS.engine,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.k = k
        self.predictive = predictive
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.refresh_every = refresh_every
        self.engine = engine
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(self: Self, X: Any, y: Any, sample_weight: Any = None, noise_variance: Any = None) -> Self:
        """Fit inputs X (n, d) and targets y (n,).

        sample_weight : (n,) how often each row counts: a row of weight 2 is that row twice, of weight 0 is left out.
        noise_variance : (n,) known noise variances in squared units of y, added to the learned noise of the rows.
        """
        settings = self._settings()
        X, y, weights, noise = self._validated_rows(X, y, sample_weight, noise_variance, reset=True)
        settings = _clamp_k(settings, len(y))
        if y.min() == y.max():
            warnings.warn(f"the target is constant ({y[0]:g}): every prediction will be that value.", stacklevel=2)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        self._adopt(fitting.fit(X, y, weights, noise, settings, rng, checkpoint=self.checkpoint, verbose=self.verbose))
        self.extra_: dict[str, Any] = {}
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fit")

    def update(self: Self, X: Any, y: Any, sample_weight: Any = None, noise_variance: Any = None) -> Self:
        """Append rows without training again: the predictions of a model of all rows with these hyper-parameters."""
        check_is_fitted(self)
        X, y, weights, noise = self._validated_rows(X, y, sample_weight, noise_variance, reset=False)
        old = self._fit
        more = fitting.standardise(X, y, weights, noise, old.inputs, old.target)
        self._adopt(Fit(old.predictor.extended(more), old.inputs, old.target, old.summary))
        return self

    def _settings(self) -> Settings:
        """The arguments, checked."""
        find_kernel(self.kernel)
        check_choice("predictive", self.predictive, ("calibrated", "gaussian"))
        check_choice("engine", self.engine, ENGINES)
        if self.k != "auto" and not (is_int(self.k) and int(self.k) >= 1):
            raise ValueError(f"k is {self.k!r}: expected 'auto' or a whole number of at least 1.")
        for name in ("max_steps", "batch_size", "refresh_every"):
            if not (is_int(getattr(self, name)) and getattr(self, name) >= 1):
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected a whole number of at least 1.")
        if not 0 < self.learning_rate <= 1:
            raise ValueError(f"learning_rate is {self.learning_rate!r}: expected a number above 0, at most 1.")
        return Settings(**{f.name: _plain(getattr(self, f.name)) for f in fields(Settings)})

    def _validated_rows(
        self, X: Any, y: Any, sample_weight: Any, noise_variance: Any, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """X (n, d), y, weights and known noise variances (n,) as finite float64, rows of weight zero left out."""
        refuse_text(X)
        refuse_missing_target(y)
        X, y = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite=False, reset=reset, ensure_min_samples=1
        )
        names = getattr(self, "feature_names_in_", None)
        refuse_not_finite(X, names)
        y = np.asarray(y, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is zero for every row: at least one row must count.")
        noise = np.zeros(len(y)) if noise_variance is None else np.asarray(noise_variance, dtype=np.float64)
        if noise.shape != y.shape:
            raise ValueError(f"noise_variance has shape {noise.shape}: expected {y.shape}, one number for each row.")
        if not (np.isfinite(noise).all() and (noise >= 0).all()):
            raise ValueError("noise_variance has values that are negative or not finite: variances are at least zero.")
        kept = weights > 1e-100 * weights.max()
        return X[kept], y[kept], weights[kept], noise[kept]

    def _adopt(self, fit: Fit) -> None:
        """Take over a fit: set everything that depends on it."""
        self._fit = fit
        self.__dict__.pop("_loo", None)
        self.k_: int = fit.predictor.k
        self.summary_: Summary = fit.summary
        self.n_rows_: int = len(fit.predictor.rows)
        self.target_mean_, self.target_std_ = float(fit.target.centre), float(fit.target.scale)
        model = fit.predictor.model
        for parameter in model.hyperparameters().values():
            parameter.requires_grad_(False)
        self.length_scales_: np.ndarray = model.lengths * fit.inputs.scale
        self.kernel_scale_ = float(model.log_scale.exp()) * self.target_std_
        self.noise_std_ = float(model.noise.sqrt()) * self.target_std_
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(len(model.lengths))])
        self.feature_relevance_: dict[str, float] = dict(
            zip((str(name) for name in names), (1 / model.lengths).tolist(), strict=True)
        )

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, uncertainty: str = "observation") -> Any:
        """Means (n,), with `return_std` also standard deviations (n,).

        uncertainty : "observation", of a new measurement, noise included; or "latent", of the noise-free function.
        """
        if not return_std:
            check_choice("uncertainty", uncertainty, ("observation", "latent"))
            return self._fit_target().undo(self._predicted(X).loc)
        loc, scale, df = self._parameters(X, uncertainty)
        return loc, scale * _std_of_unit(df)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, uncertainty: str = "observation"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends (n,) of the central interval that holds the given share of the probability."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is {coverage!r}: expected a number between 0 and 1, for example 0.9.")
        quantiles = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2], uncertainty)
        return quantiles[:, 0], quantiles[:, 1]

    def predict_quantiles(self, X: Any, q: Any, uncertainty: str = "observation") -> np.ndarray:
        """Quantiles (n, len(q)) at the probabilities q; (n,) for a single number."""
        probabilities = np.asarray(q, dtype=np.float64)
        if probabilities.ndim > 1 or not ((probabilities > 0) & (probabilities < 1)).all():
            raise ValueError(f"q is {q!r}: expected probabilities between 0 and 1, for example [0.05, 0.5, 0.95].")
        loc, scale, df = self._parameters(X, uncertainty)
        z = scipy.stats.norm.ppf(probabilities) if np.isinf(df) else scipy.stats.t.ppf(probabilities, df)
        return loc + scale * z if probabilities.ndim == 0 else loc[:, None] + scale[:, None] * z

    def predict_dist(self, X: Any, uncertainty: str = "observation") -> Any:
        """The predictive distributions, as one frozen scipy.stats distribution over rows: `t` or `norm`."""
        loc, scale, df = self._parameters(X, uncertainty)
        return _distribution(loc, scale, df)

    def log_score(self, X: Any, y: Any) -> float:
        """Mean log predictive density of the observations y (n,), in the units of y."""
        dist = self.predict_dist(X)
        y = np.asarray(y, dtype=np.float64)
        if y.shape != dist.mean().shape:
            raise ValueError(f"y has shape {y.shape}: expected {dist.mean().shape}, one observation for each row of X.")
        refuse_missing_target(y)
        return float(np.mean(dist.logpdf(y)))

    @property
    def loo_(self) -> LeftOut:
        """Left-out mean, std and residual of each training row, in the units of the target."""
        check_is_fitted(self)
        if "_loo" not in self.__dict__:
            target, predictor = self._fit.target, self._fit.predictor
            predicted = predictor.left_out()
            mean, y = target.undo(predicted.loc), target.undo(predictor.rows.targets.numpy())
            self._loo = LeftOut(mean, predicted.scale * target.scale * _std_of_unit(predictor.head.df), y - mean)
        return self._loo

    def _fit_target(self) -> Scaling:
        check_is_fitted(self)
        return self._fit.target

    def _predicted(self, X: Any) -> Predicted:
        """Standardised predictions for inputs in the user's units."""
        check_is_fitted(self)
        refuse_text(X)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
        refuse_not_finite(X, getattr(self, "feature_names_in_", None))
        return self._fit.predictor.predict(X, self._fit.inputs)

    def _parameters(self, X: Any, uncertainty: str) -> tuple[np.ndarray, np.ndarray, float]:
        """Centre and scale (n,) and degrees of freedom of the predictive distributions, in the units of the target."""
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        predicted = self._predicted(X)
        target = self._fit.target
        scale = predicted.scale if uncertainty == "observation" else np.maximum(predicted.latent_scale, 1e-12)
        return target.undo(predicted.loc), scale * target.scale, self._fit.predictor.head.df

    # --- one safe file ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, which contains the training rows. `extra` is plain JSON kept with it."""
        check_is_fitted(self)
        header, arrays = pack(self._fit)
        names = getattr(self, "feature_names_in_", None)
        header |= {
            "estimator": type(self).__name__,
            "parameters": {name: _plain(value) for name, value in self.get_params().items() if name in _SAVED},
            "columns": None if names is None else [str(name) for name in names],
            "extra": self.extra_ if extra is None else extra,
        }
        write_file(path, header, arrays)
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


_SAVED = tuple(f.name for f in fields(Settings))


def _restore(cls: type[Self], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
    """The estimator from a file's header and arrays."""
    if header.get("estimator") != cls.__name__:
        raise ModelFileError(f"it holds a {header.get('estimator')!r}, not a {cls.__name__}")
    parameters = require(header, "parameters", dict)
    if set(parameters) != set(_SAVED):
        raise ModelFileError(f"its parameters are {sorted(parameters)}; expected {sorted(_SAVED)}")
    model = cls(**parameters)
    fit = unpack(header, arrays)
    d, columns = len(fit.inputs.scale), header.get("columns")
    model.n_features_in_ = d
    if columns is not None:
        if not (isinstance(columns, list) and len(columns) == d and all(isinstance(c, str) for c in columns)):
            raise ModelFileError(f"its column names do not fit its {d} columns")
        model.feature_names_in_ = np.array(columns, dtype=object)
    model._adopt(fit)
    model.extra_ = require(header, "extra", dict)
    return model


def _plain(value: Any) -> Any:
    """Without numpy's types, which JSON does not know."""
    return value.item() if isinstance(value, np.generic) else value


def _clamp_k(settings: Settings, n: int) -> Settings:
    """k no larger than the number of other rows, said aloud."""
    if isinstance(settings.k, int) and settings.k > max(n - 1, 1):
        warnings.warn(f"k = {settings.k} is more than the {n - 1} other rows: using {max(n - 1, 1)}.", stacklevel=3)
        return Settings(**{**asdict(settings), "k": max(n - 1, 1)})
    return settings


def _std_of_unit(df: float) -> float:
    """Standard deviation of a Student-t of scale one; scipy's own squares the scale, which may overflow."""
    return 1.0 if np.isinf(df) else float(np.sqrt(df / (df - 2)))


def _distribution(loc: np.ndarray, scale: np.ndarray, df: float) -> Any:
    return scipy.stats.norm(loc, scale) if np.isinf(df) else scipy.stats.t(df, loc, scale)
