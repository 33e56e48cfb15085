"""Regression: one real target, with Gaussian or heavy-tailed noise."""

from __future__ import annotations

import os
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfield.calibration.regression import Predicted
from nearfield.estimators._base import DEFAULTS, GPEstimator, Self
from nearfield.fitting import Fit
from nearfield.likelihoods import LIKELIHOODS
from nearfield.model import Rows
from nearfield.model_file import pack_scaling, unpack_scaling
from nearfield.persistence import ModelFileError
from nearfield.scaling import Scaling
from nearfield.validation import check_choice, refuse_missing_target, refuse_not_finite, refuse_text


class LeftOut(NamedTuple):
    """Predictions of the training rows from the others, (n,) each, in the units of the target."""

    mean: np.ndarray
    std: np.ndarray
    residual: np.ndarray


class GPRegressor(RegressorMixin, GPEstimator):
    """Gaussian-process regression from the k nearest neighbours, trained by leaving rows out.

    Parameters
    ----------
    kernel : "matern52", "matern32", "matern12", "rbf" or "rational_quadratic"; one length scale per column.
    k : number of neighbours to predict from, or "auto": chosen on left-out training rows, up to 512.
    predictive : "calibrated", a Student-t whose scale follows the roughness of the neighbourhood, fitted on left-out
        rows; or the likelihood's name, with one noise level for all rows.
    likelihood : "gaussian", or "student_t" for targets with outliers: they are recognised and do not bend the fit.
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
    length_scales_, kernel_scale_, noise_std_ : hyper-parameters in the units of the data; of Student-t noise the scale.
    df_ : degrees of freedom of the noise; infinite for Gaussian noise.
    summary_ : what the fit did; `print(model.summary_)`.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    """

    def __init__(
        self,
        kernel: str = DEFAULTS.kernel,
        k: int | str = DEFAULTS.k,
        predictive: str = DEFAULTS.predictive,
        *,
        likelihood: str = "gaussian",
        max_steps: int = DEFAULTS.max_steps,
        learning_rate: float = DEFAULTS.learning_rate,
        batch_size: int = DEFAULTS.batch_size,
        refresh_every: int = DEFAULTS.refresh_every,
        engine: str = DEFAULTS.engine,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.k = k
        self.predictive = predictive
        self.likelihood = likelihood
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
        check_choice("likelihood", self.likelihood, ("gaussian", "student_t"))
        check_choice("predictive", self.predictive, ("calibrated", self.likelihood))
        settings = self._settings(self.predictive)
        X, y, weights, noise = self._validated_rows(X, y, sample_weight, noise_variance, reset=True)
        if y.min() == y.max():
            warnings.warn(f"the target is constant ({y[0]:g}): every prediction will be that value.", stacklevel=2)
        heavy = self.likelihood == "student_t"
        self._target = Scaling.robust(y, weights) if heavy else Scaling.of(y, weights)
        stats = _statistics(y, weights, noise, self._target)
        self._start(X, stats, LIKELIHOODS[self.likelihood](), settings, float(self._target.scale))
        return self

    def update(self: Self, X: Any, y: Any, sample_weight: Any = None, noise_variance: Any = None) -> Self:
        """Append rows without training again: the predictions of a model of all rows with these hyper-parameters."""
        check_is_fitted(self)
        X, y, weights, noise = self._validated_rows(X, y, sample_weight, noise_variance, reset=False)
        old, stats = self._fit, _statistics(y, weights, noise, self._target)
        more = Rows.of(old.predictor.model.likelihood, old.inputs.apply(X), stats)
        self._adopt(Fit(old.predictor.extended(more), old.inputs, old.summary))
        return self

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
        weights, kept = self._weights(sample_weight, X)
        noise = np.zeros(len(y)) if noise_variance is None else np.asarray(noise_variance, dtype=np.float64)
        if noise.shape != y.shape:
            raise ValueError(f"noise_variance has shape {noise.shape}: expected {y.shape}, one number for each row.")
        if not (np.isfinite(noise).all() and (noise >= 0).all()):
            raise ValueError("noise_variance has values that are negative or not finite: variances are at least zero.")
        return X[kept], y[kept], weights[kept], noise[kept]

    def _adopt(self, fit: Fit) -> None:
        super()._adopt(fit)
        model, target = fit.predictor.model, self._target
        self.target_mean_, self.target_std_ = float(target.centre), float(target.scale)
        self.kernel_scale_ = float(model.log_scale.exp()) * self.target_std_
        self.noise_std_ = float(model.noise.sqrt()) * self.target_std_
        log_df = model.noise_model.get("log_df")
        self.df_ = np.inf if log_df is None else float(log_df.exp())

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, pack_scaling("target", self._target)

    def _unpack_target(self, header: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        if fit.predictor.model.likelihood.name != self.likelihood:
            raise ModelFileError(f"its likelihood is not the {self.likelihood!r} of its parameters")
        self._target = unpack_scaling(arrays, "target", ())

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, uncertainty: str = "observation") -> Any:
        """Means (n,), with `return_std` also standard deviations (n,).

        uncertainty : "observation", of a new measurement, noise included; or "latent", of the noise-free function.
        """
        if not return_std:
            check_choice("uncertainty", uncertainty, ("observation", "latent"))
            loc = self._predicted(X).loc
            return self._target.undo(loc)
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
            target, predictor = self._target, self._fit.predictor
            predicted = predictor.left_out()
            mean, y = target.undo(predicted.loc), target.undo(predictor.rows.stats.numpy()[:, 0])
            self._loo = LeftOut(mean, predicted.scale * target.scale * _std_of_unit(predictor.head.df), y - mean)
        return self._loo

    def _predicted(self, X: Any) -> Predicted:
        """Standardised predictions for inputs in the user's units."""
        X = self._inputs(X)
        predicted: Predicted = self._fit.predictor.predict(X, self._fit.inputs)
        return predicted

    def _parameters(self, X: Any, uncertainty: str) -> tuple[np.ndarray, np.ndarray, float]:
        """Centre and scale (n,) and degrees of freedom of the predictive distributions, in the units of the target."""
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        predicted = self._predicted(X)
        target = self._target
        scale = predicted.scale if uncertainty == "observation" else np.maximum(predicted.latent_scale, 1e-12)
        return target.undo(predicted.loc), scale * target.scale, self._fit.predictor.head.df


def _statistics(y: np.ndarray, weights: np.ndarray, noise: np.ndarray, target: Scaling) -> np.ndarray:
    """Standardised targets, weights and noise variances (n, 3)."""
    return np.stack([target.apply(y), weights, noise / target.scale / target.scale], axis=1)


def _std_of_unit(df: float) -> float:
    """Standard deviation of a Student-t of scale one; scipy's own squares the scale, which may overflow."""
    return 1.0 if np.isinf(df) else float(np.sqrt(df / (df - 2)))


def _distribution(loc: np.ndarray, scale: np.ndarray, df: float) -> Any:
    return scipy.stats.norm(loc, scale) if np.isinf(df) else scipy.stats.t(df, loc, scale)
