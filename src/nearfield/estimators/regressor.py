"""Regression: one real target with Gaussian or heavy-tailed noise, or several with Gaussian noise."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from nearfield.encoding import columns_of
from nearfield.estimators._base import DEFAULTS, DEPRECATED, Self, names_of
from nearfield.estimators._explain import ExplainedPredictions
from nearfield.estimators._gradients import GradientMixin
from nearfield.estimators._noise import noise_variances
from nearfield.estimators._predictions import NumberPredictions
from nearfield.estimators._support import Supported
from nearfield.estimators._targets import target_numbers
from nearfield.families import FAMILIES, Observations, names_for
from nearfield.families.outputs import OUTPUTS
from nearfield.fitting import Fit
from nearfield.model_file import pack_scaling, unpack_scaling
from nearfield.moments import Moments
from nearfield.objectives import OBJECTIVES, ORDERINGS
from nearfield.scaling import Scaling
from nearfield.validation import check_choice, is_int, refuse_missing_target, refuse_text, those


class LeftOutPredictions(NamedTuple):
    """Predictions of the training rows from the others, (n,) or (n, P) each, in the units of the target.

    Where an output of a row is missing, there is no residual (NaN).
    """

    mean: np.ndarray
    std: np.ndarray
    residual: np.ndarray


class GPRegressor(RegressorMixin, NumberPredictions, GradientMixin, ExplainedPredictions, Supported):
    """Gaussian-process regression from the k nearest neighbours, trained by leaving rows out.

    Parameters
    ----------
    kernel : "auto", whose smoothness is learned, between Matern 1/2 and 5/2; or "matern52", "matern32", "matern12",
        "rbf" or "rational_quadratic". One length scale per column.
    k : number of neighbours to predict from, or "auto": all rows of small tables; of others
        chosen on left-out training rows, up to 1,024.
    predictive : "calibrated", a Student-t whose scale follows the roughness of the neighbourhood, fitted on left-out
        rows; or "plain", as the trained model says, with one noise level for all rows.
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
    mean : "constant", or "linear": a learned slope for each column, drawn towards zero, so that trends go on beyond
        the training rows.
    engine : deprecated, without effect.
    checkpoint : path of a file to resume training from after a crash; removed when training has ended.
    cache : folder in which a table in files is kept while it is fitted. One that is named stays, and an interrupted fit
        goes on from there; None: files without a name among temporary ones.
    verbose : progress bars of what takes longer than a moment; None shows them on terminals only.
    random_state : int, RandomState instance or None. The same int gives the same bits.
    warp : whether columns of numbers may be bent, each towards its ranks as left-out rows prefer: True, False, a list
        of the columns that may (names or numbers), or a mapping such as {"age": False} for those that differ.
    metric : "learned", or "plain", the paper's: Matern 5/2 where the kernel is "auto", nothing bent, length scales
        without a prior that pulls them together.
    categorical_features : which columns hold levels: "from_dtype", those of text and categories; or their names,
        numbers or a mask. See `TableEncoder` for what columns of text, dates and gaps become.
    coordinates : columns that are places. "lonlat": longitude and latitude in degrees, found by their names, or
        {"lonlat": [longitude, latitude]} with names or numbers: distances are those on the globe. A list of two or
        three columns, names or numbers: planar coordinates in the same unit, whose axes may be turned. See
        docs/guide/maps.md.
    drift : columns (names or numbers) on which the mean depends, each with a learned slope: `mean="linear"` on these
        alone. A coordinate stands for all of them.
    leave_out : what a left-out row is predicted from, in training, in the choice of k, in calibration and in `loo_`.
        "one": all other rows, or those of other groups; "past": earlier rows alone, by the `times` of `fit`, as in
        forecasts. Rows of the same time are simultaneous and do not see each other. The first rows, which see hardly
        any, are predicted from little or nothing, and do not count in training, in the choice of k and in calibration.
    buffer : distance within which rows do not see each other when they are left out: for predictions that are made
        farther from the training rows than these are from each other. A number, in the units of `coordinates` (of
        longitude and latitude degrees of a great circle), or of all columns that are numbers where there are none; or a
        mapping of columns to distances, such as {"x": 10, "y": 10, "date": 30}, of dates in days: a row is hidden if it
        is inside of the ellipsoid with these radii. Rows with nearly nothing beyond it do not count, either.
    continuous : whether predictions are continuous: neighbours then lose their weight towards the edge of a
        neighbourhood, so that nothing jumps where one takes the place of another. "auto": yes for up to three columns
        (longitude and latitude are two), unless left-out rows are predicted clearly worse; for more only where they are
        predicted clearly better.
    search : "exact", or "approximate": a prediction then looks into so many boxes of rows only that left-out rows find
        95 % of their nearest neighbours on average. What that costs is in `summary_` (`recall`, `exact_nll` and
        `approximate_nll`). Training is exact, and so are predictions where brute force is faster than so many boxes.

    Attributes
    ----------
    continuous_ : whether neighbourhoods are continuous.
    k_ : number of neighbours in use. Where it is n - 1, predictions use all n rows.
    loo_ : left-out `mean`, `std` and `residual` of the training rows, computed when first asked for. A row of weight
        zero, or without any target, is no training row.
    feature_relevance_ : 1 / length scale of each column in standardised units, by column name; 0 if it was constant.
    feature_importances_ : (d,) what up to 1,000 left-out rows lose in mean log density when a column is shuffled among
        them, at least 0; computed when first asked for.
    length_scales_, kernel_scale_, noise_std_ : hyper-parameters in the units of the data; of Student-t noise the scale.
        Of several outputs, length scales for each kernel, the others for each output.
    mixing_ : (P, n_latents) how much of each latent function is in each output, in its units; None but for "lmc".
    mean_slopes_ : slopes of a linear mean in the units of the data, (d,) or (P, d); None for a constant one.
    n_outputs_ : number of outputs, P.
    df_ : degrees of freedom of the noise; infinite for Gaussian noise.
    smoothness_ : shares of Matern 1/2, 3/2 and 5/2 in the kernel "auto", by name; None for other kernels.
    bends_ : (d, 3) shares of each column as it is, of its normal score and of its uniform score.
    summary_ : what the fit did; `print(model.summary_)`.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    """

    kernel_scale_: Any
    noise_std_: Any
    df_: float

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
        mean: str = DEFAULTS.mean,
        engine: str = DEPRECATED,
        checkpoint: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        verbose: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
        warp: Any = DEFAULTS.warp,
        metric: str = DEFAULTS.metric,
        categorical_features: Any = "from_dtype",
        coordinates: Any = None,
        drift: Any = None,
        leave_out: str = "one",
        buffer: Any = None,
        continuous: bool | str = DEFAULTS.continuous,
        search: str = DEFAULTS.search,
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
        self.mean = mean
        self.engine = engine
        self.checkpoint = checkpoint
        self.cache = cache
        self.verbose = verbose
        self.random_state = random_state
        self.warp = warp
        self.metric = metric
        self.categorical_features = categorical_features
        self.coordinates = coordinates
        self.drift = drift
        self.leave_out = leave_out
        self.buffer = buffer
        self.continuous = continuous
        self.search = search

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        noise_variance: Any = None,
        groups: Any = None,
        times: Any = None,
    ) -> Self:
        """Fit inputs X (n, d) and targets y (n,) or (n, P); of several outputs some may be missing (NaN) in a row.

        X may also be the path of a Parquet file, or of a folder of them, and y the name of the target's column: a table
        that is larger than memory is read into files of the folder `cache` that are mapped into memory.

        sample_weight : (n,) how much each row counts, relative to the others: a constant factor changes nothing.
            Where all are whole multiples of the least, they are counts: a row of weight 2 beside rows of weight 1 is
            that row twice. Otherwise they are scaled to a mean of 1. A row of weight 0 is left out.
        noise_variance : like y, or a number for all rows: known noise variances in its squared units, added to the
            learned noise of the rows. Predictions of observations then want those of the new rows.
        groups : (n,) labels; a row is left out together with all rows of its label. For rows that are not independent:
            replicates, the same thing measured again, trajectories. "auto": rows are left out with their near copies,
            and copies count once: exact ones, weights that are counts, and near ones with the same target together.
        times : (n,) numbers or dates, or the name or number of the column of X that holds them, for leave_out="past".
            Such a column is a feature too. Rows of equal time are simultaneous.

        Exact copies, rows with the same inputs and the same target, are counted. Where every row is there equally
        often, the fit is that of the distinct rows; where many are copies of others, a `CopiesWarning` tells of it.
        """
        check_choice("likelihood", self.likelihood, names_for("GPRegressor", ("number",)))
        check_choice("outputs", self.outputs, OUTPUTS)
        check_choice("objective", self.objective, tuple(OBJECTIVES))
        check_choice("ordering", self.ordering, ORDERINGS)
        if self.n_latents is not None and not (is_int(self.n_latents) and self.n_latents >= 1):
            raise ValueError(f"n_latents is {self.n_latents!r}: expected None or a whole number of at least 1.")
        settings = self._settings()
        X, y = self._read_files(X, y)
        self._target_names = names_of(y)
        self._column = np.asarray(y).shape[1:] == (1,)
        columns, y, weights, noise, kept = self._validated_rows(X, y, sample_weight, noise_variance, reset=True)
        made: Any = FAMILIES[self.likelihood]
        family = self._made(made) if y.ndim == 1 else made.of_outputs(y.shape[1], one_scale=self.outputs == "shared")
        if y.ndim == 2:
            structure = {"lmc": "mixed", "independent": "own", "shared": "shared"}[self.outputs]
            settings = replace(settings, structure=structure, mixed_latents=int(self.n_latents or y.shape[1]))
        if self.objective != "loo" and not family.exact_sites:
            raise ValueError(f"objective is {self.objective!r}: it takes one output with Gaussian noise. Use 'loo'.")
        _warn_of_constants(y)
        observed = family.observe(y, self._counted(weights, groups), noise_variance=noise)
        table = self._table(columns, kept, family, observed, settings, groups, times)
        self._learn(table, family.with_rows(observed), settings)
        return self

    def update(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        noise_variance: Any = None,
        times: Any = None,
        groups: Any = None,
    ) -> Self:
        """Append rows without training again: the predictions of a model of all rows with these hyper-parameters.

        times : as in `fit`, where that had some that are no column of X.
        groups : labels (n,) as in `fit`, where that had some: rows join the group of their label, or begin a new one.
            Without them each new row is a group of its own. They matter for what is left out, not for predictions.
        """
        check_is_fitted(self)
        columns, y, weights, noise, kept = self._validated_rows(X, y, sample_weight, noise_variance, reset=False)
        observed, at = self._family.observe(y, weights, noise_variance=noise), self._more_times(times, columns)
        self._append(self.encoder_.encode(columns)[kept], observed, kept, at, groups)
        return self

    def partial_fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        noise_variance: Any = None,
        times: Any = None,
        groups: Any = None,
    ) -> Self:
        """`fit` the first time, `update` from then on: hyper-parameters are those of the first rows."""
        learn = self.update if self.__sklearn_is_fitted__() else self.fit
        return learn(X, y, sample_weight=sample_weight, noise_variance=noise_variance, times=times, groups=groups)

    def _validated_rows(self, X: Any, y: Any, sample_weight: Any, noise_variance: Any, reset: bool) -> tuple[Any, ...]:
        """Columns of X, y (m,) or (m, P), weights (m,) and known noise variances like y of those kept of n rows (n,).

        All are finite, but for missing targets (NaN) of several outputs. Rows that do not count are left out: those of
        weight zero and those without any target.
        """
        y = target_numbers(y, type(self).__name__)
        given = np.asarray(y)
        several = given.ndim == 2 and given.shape[1] > 1
        missing = np.zeros(given.shape, bool)
        if several:
            refuse_text(y)
            given = given.astype(np.float64)
            missing = np.isnan(given)
            y = np.where(missing, 0.0, given)
        refuse_missing_target(y)
        columns, y = columns_of(self, X, y=y, reset=reset, y_numeric=True, multi_output=True)
        y = np.asarray(y, dtype=np.float64)
        y = np.where(missing, np.nan, y) if several else y.reshape(len(y))
        if not reset and y.shape[1:] != self._target.scale.shape:
            raise ValueError(f"y has shape {y.shape}: the model has {self.n_outputs_} outputs.")
        weights, kept = self._weights(sample_weight, y, reset)
        if several:
            if reset:
                _refuse_empty(y, weights)
            kept = kept & ~missing.all(axis=1)
        noise = noise_variances(noise_variance, y.shape)
        y, weights, noise = (those(part, kept) for part in (y, weights, noise))
        return columns, y, weights, noise, kept

    def _adopt(self, fit: Fit) -> None:
        super()._adopt(fit)
        p, target = fit.predictor.model.parameters, self._target
        self.n_outputs_ = target.scale.size
        self.target_mean_, self.target_std_ = _plain(target.centre), _plain(target.scale)
        self.mixing_ = p["mixing"] * target.scale[:, None] if "mixing" in p else None
        slopes = fit.predictor.model.mean.slopes_of_all(p, len(fit.inputs.scale))
        self.mean_slopes_ = None if slopes is None else self._slopes(slopes, fit.inputs)

    def _always_learned(self, fit: Fit) -> dict[str, Any]:
        model, unit = fit.predictor.model, self._target.scale
        scale, noise = np.sqrt(model.scale2) * unit, np.sqrt(model.noise) * unit
        scale, noise = (values if unit.ndim else float(values[0]) for values in (scale, noise))
        return {"kernel_scale_": scale, "noise_std_": noise, "df_": np.inf}

    def _slopes(self, slopes: np.ndarray, inputs: Scaling) -> np.ndarray:
        """Slopes of a linear mean in the units of the data: (d,), or (P, d)."""
        found = slopes * np.atleast_1d(self._target.scale)[:, None] / inputs.scale
        return found if self._target.scale.ndim else found[0]

    def _baseline(self) -> dict[str, Any]:
        """What a prediction that ignores the inputs is made of, from the training rows."""
        model, observed = self._fit.predictor.model, self._fit.predictor.rows.observed
        y = np.where(observed.get("present", True), self._target.undo(observed["y"]), np.nan)
        return model.family.baseline(y, {}, model.family.weight(observed))

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"column": self._column}, pack_scaling("target", self._target)

    def _unpack_target(self, fields: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        family = fit.predictor.model.family
        self._column = fields.get("column") is True
        self._target = unpack_scaling(arrays, "target", (family.latents,) if family.kind == "numbers" else ())

    # --- left-out rows ----------------------------------------------------------------------------------------------

    @property
    def loo_(self) -> LeftOutPredictions:
        """Left-out mean, std and residual of each training row, in the units of the target."""
        check_is_fitted(self)
        found: LeftOutPredictions = self._left_out(self._compute_loo)
        return found

    def _compute_loo(self) -> LeftOutPredictions:
        target, predictor = self._target, self._fit.predictor
        predicted, observed = predictor.left_out(), predictor.rows.observations.observed
        mean, y = target.undo(predicted.loc), target.undo(self._family.values(observed))
        std = predicted.scale * target.scale * predictor.head.unit_std
        return LeftOutPredictions(*(self._shaped(part[self._places]) for part in (mean, std, y - mean)))

    def _values(self, moments: Moments, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._target.undo(moments.mean))

    def _log_scores(self, predicted: Any, left_out: Observations) -> np.ndarray:
        """Of several outputs the mean over those that are there."""
        y = self._family.values(left_out.observed)
        there = np.isfinite(y)
        scores = self._head.distribution(predicted.loc, predicted.scale).logpdf(np.where(there, y, 0.0))
        if y.ndim == 1:
            return np.asarray(scores)
        return np.asarray(np.where(there, scores, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _refuse_empty(y: np.ndarray, weights: np.ndarray) -> None:
    """An output without a single value cannot be learned."""
    empty = np.flatnonzero(np.isnan(y[weights > 0]).all(axis=0))
    if empty.size:
        raise ValueError(f"output {empty[0]} of y is missing in every row: leave that column out.")


def _warn_of_constants(y: np.ndarray) -> None:
    """Name the targets (n,) or (n, P) that are constant."""
    for p, column in enumerate([y] if y.ndim == 1 else list(y.T)):
        if np.nanmin(column) == np.nanmax(column):
            which = "the target" if y.ndim == 1 else f"output {p}"
            then = "every prediction will be that value" if y.ndim == 1 else "there is nothing to learn about it"
            warnings.warn(f"{which} is constant ({np.nanmin(column):g}): {then}.", stacklevel=3)


def _plain(value: np.ndarray) -> Any:
    """A float, or the array where there are several outputs."""
    return float(value) if value.ndim == 0 else value
