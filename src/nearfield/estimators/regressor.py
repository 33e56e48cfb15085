"""Regression: one real target with Gaussian or heavy-tailed noise, or several with Gaussian noise."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfield.calibration.outputs import joint_scores
from nearfield.calibration.regression import Predicted
from nearfield.estimators._base import DEFAULTS, GPEstimator, Self
from nearfield.fitting import Fit
from nearfield.likelihoods import LIKELIHOODS, Likelihood
from nearfield.likelihoods.outputs import GaussianOutputs, statistics
from nearfield.model import Rows
from nearfield.model_file import pack_scaling, unpack_scaling
from nearfield.neighbours import build_index
from nearfield.neighbours.twins import near_copies
from nearfield.objectives import OBJECTIVES, ORDERINGS
from nearfield.persistence import ModelFileError
from nearfield.scaling import Scaling
from nearfield.validation import check_choice, is_int, refuse_missing_target, refuse_not_finite, refuse_text

OUTPUTS = ("lmc", "independent", "shared")


class LeftOut(NamedTuple):
    """Predictions of the training rows from the others, (n,) or (n, P) each, in the units of the target.

    Where an output of a row is missing, there is no residual (NaN).
    """

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
    outputs : how several outputs, Y (n, P), depend on each other. "lmc": the linear model of coregionalisation, each a
        mixture of the same latent functions; "independent": not at all, each with a kernel of its own; "shared": not at
        all, but all with the same kernel and noise level, which is the fastest. Without effect for one output.
    n_latents : latent functions of the linear model of coregionalisation, as many as outputs by default.
    objective : what training maximises. "loo": each row given its nearest neighbours, the default; "mll": rows and
        neighbours jointly; "vecchia": each row given those before it in an order. The last two are there to compare
        with, for one output with Gaussian noise.
    ordering : "random" or "pca", along the first principal component; of the rows, for "vecchia".
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
        zero, or without any target, is no training row.
    feature_relevance_ : 1 / length scale of each column in standardised units, by column name.
    length_scales_, kernel_scale_, noise_std_ : hyper-parameters in the units of the data; of Student-t noise the scale.
        Of several outputs, length scales for each kernel, the others for each output.
    mixing_ : (P, n_latents) how much of each latent function is in each output, in its units; None but for "lmc".
    n_outputs_ : number of outputs, P.
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
        outputs: str = "lmc",
        n_latents: int | None = None,
        objective: str = DEFAULTS.objective,
        ordering: str = DEFAULTS.ordering,
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
        self.outputs = outputs
        self.n_latents = n_latents
        self.objective = objective
        self.ordering = ordering
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.refresh_every = refresh_every
        self.engine = engine
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(
        self: Self, X: Any, y: Any, sample_weight: Any = None, noise_variance: Any = None, groups: Any = None
    ) -> Self:
        """Fit inputs X (n, d) and targets y (n,) or (n, P); of several outputs some may be missing (NaN) in a row.

        sample_weight : (n,) how often each row counts: a row of weight 2 is that row twice, of weight 0 is left out.
        noise_variance : like y, known noise variances in its squared units, added to the learned noise of the rows.
        groups : (n,) labels; a row is left out together with all rows of its label. "auto" groups rows with their near
            copies. For rows that are not independent: replicates, the same thing measured again, trajectories.
        """
        check_choice("likelihood", self.likelihood, ("gaussian", "student_t"))
        check_choice("predictive", self.predictive, ("calibrated", self.likelihood))
        check_choice("outputs", self.outputs, OUTPUTS)
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("ordering", self.ordering, ORDERINGS)
        if self.n_latents is not None and not (is_int(self.n_latents) and self.n_latents >= 1):
            raise ValueError(f"n_latents is {self.n_latents!r}: expected None or a whole number of at least 1.")
        settings = self._settings(self.predictive)
        self._column = np.asarray(y).shape[1:] == (1,)
        X, y, weights, noise, kept = self._validated_rows(X, y, sample_weight, noise_variance, reset=True)
        if self.objective != "loo" and (y.ndim == 2 or self.likelihood != "gaussian"):
            raise ValueError(f"objective is {self.objective!r}: it takes one output with Gaussian noise. Use 'loo'.")
        together = _groups(groups, X, kept)
        self._target = self._scaling(y, weights)
        likelihood: Likelihood = LIKELIHOODS[self.likelihood]() if y.ndim == 1 else self._several(y.shape[1])
        if y.ndim == 2:
            lmc, latents = self.outputs == "lmc", self.n_latents or y.shape[1]
            settings = replace(settings, own_kernels=self.outputs == "independent", latents=lmc * int(latents))
        stats = _statistics(y, weights, noise, self._target)
        self._start(X, stats, likelihood, settings, self._target.scale, groups=together)
        return self

    def _several(self, outputs: int) -> GaussianOutputs:
        """The likelihood of several outputs."""
        if self.likelihood != "gaussian":
            raise ValueError(
                f"likelihood is {self.likelihood!r} and y has {outputs} outputs: only 'gaussian' takes several. "
                "Fit one model for each output, for example with sklearn.multioutput.MultiOutputRegressor."
            )
        return GaussianOutputs(outputs, alike=self.outputs == "shared")

    def _scaling(self, y: np.ndarray, weights: np.ndarray) -> Scaling:
        """How the targets (n,) or (n, P) are standardised, each by the values it has; constant ones are named."""
        columns = [y] if y.ndim == 1 else list(y.T)
        for p, column in enumerate(columns):
            if np.nanmin(column) == np.nanmax(column):
                which = "the target" if y.ndim == 1 else f"output {p}"
                then = "every prediction will be that value" if y.ndim == 1 else "there is nothing to learn about it"
                warnings.warn(f"{which} is constant ({np.nanmin(column):g}): {then}.", stacklevel=3)
        kind = Scaling.robust if self.likelihood == "student_t" else Scaling.of
        parts = [kind(column[~np.isnan(column)], weights[~np.isnan(column)]) for column in columns]
        if y.ndim == 1:
            return parts[0]
        return Scaling(np.stack([part.centre for part in parts]), np.stack([part.scale for part in parts]))

    def update(self: Self, X: Any, y: Any, sample_weight: Any = None, noise_variance: Any = None) -> Self:
        """Append rows without training again: the predictions of a model of all rows with these hyper-parameters."""
        check_is_fitted(self)
        X, y, weights, noise, _ = self._validated_rows(X, y, sample_weight, noise_variance, reset=False)
        old, stats = self._fit, _statistics(y, weights, noise, self._target)
        more = Rows.of(old.predictor.model.likelihood, old.inputs.apply(X), stats)
        self._adopt(Fit(old.predictor.extended(more), old.inputs, old.summary))
        return self

    def _validated_rows(
        self, X: Any, y: Any, sample_weight: Any, noise_variance: Any, reset: bool
    ) -> tuple[np.ndarray, ...]:
        """X (n, d), y (n,) or (n, P), weights (n,) and known noise variances like y, as float64, and which are kept.

        All are finite, but for missing targets (NaN) of several outputs. Rows that do not count are left out: those of
        weight zero and those without any target.
        """
        refuse_text(X)
        given = np.asarray(y)
        several = given.ndim == 2 and given.shape[1] > 1
        missing = np.zeros(given.shape, bool)
        if several:
            refuse_text(y)
            given = given.astype(np.float64)
            missing = np.isnan(given)
            y = np.where(missing, 0.0, given)
        refuse_missing_target(y)
        X, y = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite=False, reset=reset, ensure_min_samples=1,
            multi_output=True,
        )  # fmt: skip
        names = getattr(self, "feature_names_in_", None)
        refuse_not_finite(X, names)
        y = np.asarray(y, dtype=np.float64)
        y = np.where(missing, np.nan, y) if several else y.reshape(len(y))
        if not reset and y.shape[1:] != self._target.scale.shape:
            raise ValueError(f"y has shape {y.shape}: the model has {self.n_outputs_} outputs.")
        weights, kept = self._weights(sample_weight, X)
        if several:
            self._refuse_empty(y, weights)
            kept = kept & ~missing.all(axis=1)
        noise = np.zeros(y.shape) if noise_variance is None else np.asarray(noise_variance, dtype=np.float64)
        if noise.shape != y.shape:
            raise ValueError(f"noise_variance has shape {noise.shape}: expected {y.shape}, as y has.")
        if not (np.isfinite(noise).all() and (noise >= 0).all()):
            raise ValueError("noise_variance has values that are negative or not finite: variances are at least zero.")
        return X[kept], y[kept], weights[kept], noise[kept], kept

    def _refuse_empty(self, y: np.ndarray, weights: np.ndarray) -> None:
        """An output without a single value cannot be learned."""
        empty = np.flatnonzero(np.isnan(y[weights > 0]).all(axis=0))
        if empty.size and not hasattr(self, "_fit"):
            raise ValueError(f"output {empty[0]} of y is missing in every row: leave that column out.")

    def _adopt(self, fit: Fit) -> None:
        super()._adopt(fit)
        model, target = fit.predictor.model, self._target
        self.n_outputs_ = target.scale.size
        self.target_mean_, self.target_std_ = _plain(target.centre), _plain(target.scale)
        assert model.noise is not None
        self.kernel_scale_ = _plain(model.scales.numpy() * target.scale)
        self.noise_std_ = _plain(model.noise.sqrt().numpy() * target.scale)
        self.mixing_ = None if model.mixing is None else model.mixing.numpy() * target.scale[:, None]
        log_df = model.noise_model.get("log_df")
        self.df_ = np.inf if log_df is None else float(log_df.exp())

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        several = {"outputs": self.n_outputs_} if self._target.scale.ndim else {}
        return {**several, "column": self._column}, pack_scaling("target", self._target)

    def _unpack_target(self, header: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        likelihood, outputs = fit.predictor.model.likelihood, header.get("outputs")
        name = self.likelihood if outputs is None else f"{self.likelihood}_outputs"
        if likelihood.name != name or getattr(likelihood, "outputs", None) != outputs:
            raise ModelFileError(f"its likelihood is not the {self.likelihood!r} of its parameters")
        self._column = header.get("column") is True
        self._target = unpack_scaling(arrays, "target", likelihood.latents)

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, uncertainty: str = "observation"
    ) -> Any:
        """Means (n,), with `return_std` also standard deviations (n,); of several outputs (n, P).

        return_cov : also the covariances (n, P, P) between the outputs of each row, instead of standard deviations.
        uncertainty : "observation", of a new measurement, noise included; or "latent", of the noise-free function.
        """
        if not (return_std or return_cov):
            check_choice("uncertainty", uncertainty, ("observation", "latent"))
            loc = self._predicted(X).loc
            return self._shaped(self._target.undo(loc))
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True: the covariances hold the standard deviations.")
        loc, scale, df = self._parameters(X, uncertainty)
        std = scale * _std_of_unit(df)
        if not return_cov:
            return self._shaped(loc), self._shaped(std)
        if loc.ndim == 1:
            raise ValueError("return_cov is the covariance between outputs, but y had one: use return_std.")
        return loc, self._correlation(X, uncertainty) * std[:, :, None] * std[:, None, :]

    def predict_interval(
        self, X: Any, coverage: float = 0.9, uncertainty: str = "observation"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends, (n,) or (n, P), of the central interval that holds that share of the probability."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is {coverage!r}: expected a number between 0 and 1, for example 0.9.")
        quantiles = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2], uncertainty)
        return quantiles[..., 0], quantiles[..., 1]

    def predict_quantiles(self, X: Any, q: Any, uncertainty: str = "observation") -> np.ndarray:
        """Quantiles at the probabilities q: (n, len(q)), of outputs (n, P, len(q)); for a single q (n,) or (n, P)."""
        probabilities = np.asarray(q, dtype=np.float64)
        if probabilities.ndim > 1 or not ((probabilities > 0) & (probabilities < 1)).all():
            raise ValueError(f"q is {q!r}: expected probabilities between 0 and 1, for example [0.05, 0.5, 0.95].")
        loc, scale, df = self._parameters(X, uncertainty)
        single = probabilities.ndim == 0
        loc, scale, df = (self._shaped(part) if part.ndim else part for part in (loc, scale, np.asarray(df)))
        z = scipy.stats.t.ppf(probabilities, df if single else df[..., None])
        return loc + scale * z if single else loc[..., None] + scale[..., None] * z

    def predict_dist(self, X: Any, uncertainty: str = "observation") -> Any:
        """The predictive distributions, as one frozen scipy.stats distribution, `t` or `norm`: (n,) or (n, P)."""
        loc, scale, df = self._parameters(X, uncertainty)
        return _distribution(self._shaped(loc), self._shaped(scale), df)

    def log_score(self, X: Any, y: Any, joint: bool = False) -> float:
        """Mean log predictive density of the observations y (n,), in the units of y.

        Of several outputs (n, P), the mean over rows and outputs of the marginal log density, missing ones (NaN) left
        out. joint : instead, the mean over rows of the density of all outputs together, divided by nothing. The
        marginals are then joined by a Gaussian copula with the model's correlations.
        """
        dist = self.predict_dist(X)
        y = np.asarray(y, dtype=np.float64)
        if y.shape != dist.mean().shape:
            raise ValueError(f"y has shape {y.shape}: expected {dist.mean().shape}, one observation for each row of X.")
        if y.ndim == 1 or y.shape[1] == 1:
            refuse_missing_target(y)
            return float(np.mean(dist.logpdf(y)))
        if np.isinf(y).any() or np.isnan(y).all():
            raise ValueError("y has infinite values, or none at all: finite numbers are expected, NaN where missing.")
        if joint:
            return float(np.mean(joint_scores(y, dist, self._correlation(X, "observation"))))
        return float(np.nanmean(dist.logpdf(y)))

    @property
    def loo_(self) -> LeftOut:
        """Left-out mean, std and residual of each training row, in the units of the target."""
        check_is_fitted(self)
        if "_loo" not in self.__dict__:
            target, predictor = self._target, self._fit.predictor
            predicted = predictor.left_out()
            mean, y = target.undo(predicted.loc), target.undo(self._targets())
            std = predicted.scale * target.scale * _std_of_unit(predictor.head.df)
            self._loo = LeftOut(*(self._shaped(part) for part in (mean, std, y - mean)))
        return self._loo

    def _targets(self) -> np.ndarray:
        """Standardised targets (n,) or (n, P) of the training rows, NaN where missing."""
        likelihood, stats = self._fit.predictor.model.likelihood, self._fit.predictor.rows.stats
        if not isinstance(likelihood, GaussianOutputs):
            return np.asarray(stats.numpy()[:, 0])
        return np.where(likelihood.present(stats).numpy(), likelihood.split(stats)[0].numpy(), np.nan)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """(n, 1) instead of (n,) where y was."""
        return values[:, None] if self._column else values

    def _correlation(self, X: Any, uncertainty: str) -> np.ndarray:
        """Correlations (n, P, P) between the outputs."""
        noisy = uncertainty == "observation"
        return self._fit.predictor.correlation(self._inputs(X), self._fit.inputs, noisy)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _predicted(self, X: Any) -> Predicted:
        """Standardised predictions for inputs in the user's units."""
        X = self._inputs(X)
        predicted: Predicted = self._fit.predictor.predict(X, self._fit.inputs)
        return predicted

    def _parameters(self, X: Any, uncertainty: str) -> tuple[np.ndarray, np.ndarray, Any]:
        """Centre and scale, (n,) or (n, P), and degrees of freedom of the predictions, in the units of the target."""
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        predicted = self._predicted(X)
        target = self._target
        scale = predicted.scale if uncertainty == "observation" else np.maximum(predicted.latent_scale, 1e-12)
        return target.undo(predicted.loc), scale * target.scale, self._fit.predictor.head.df


def _statistics(y: np.ndarray, weights: np.ndarray, noise: np.ndarray, target: Scaling) -> np.ndarray:
    """Standardised targets, weights and noise variances: (n, 3), or (n, 2 P + 1)."""
    targets, noise = target.apply(y), noise / target.scale / target.scale
    return np.stack([targets, weights, noise], axis=1) if y.ndim == 1 else statistics(targets, weights, noise)


def _groups(groups: Any, X: np.ndarray, kept: np.ndarray) -> np.ndarray | None:
    """Numbers (n,) of the groups of the rows X (n, d), those of `kept` among the rows that came."""
    if groups is None:
        return None
    if isinstance(groups, str):
        check_choice("groups", groups, ("auto",))
        points = Scaling.of(X, np.ones(len(X))).apply(X)
        return near_copies(build_index(points), points)
    labels = np.asarray(groups)
    if labels.shape != kept.shape:
        raise ValueError(f"groups has shape {labels.shape}: expected {kept.shape}, a label for each row, or 'auto'.")
    numbers = np.unique(labels[kept], return_inverse=True)[1].reshape(-1)
    if numbers.size > 1 and numbers.max() == 0:
        raise ValueError("groups has one label for all rows: no row would be left to predict another from.")
    return np.asarray(numbers, dtype=np.int64)


def _plain(value: np.ndarray) -> Any:
    """A float, or the array where there are several outputs."""
    return float(value) if value.ndim == 0 else value


def _std_of_unit(df: Any) -> Any:
    """Standard deviation of a Student-t of scale one; scipy's own squares the scale, which may overflow."""
    return 1 / np.sqrt(1 - 2 / np.asarray(df))


def _distribution(loc: np.ndarray, scale: np.ndarray, df: Any) -> Any:
    return scipy.stats.norm(loc, scale) if np.isinf(df).all() else scipy.stats.t(df, loc, scale)
