"""Regression: one real target with Gaussian or heavy-tailed noise, or several with Gaussian noise."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from nearfield.encoding import columns_of
from nearfield.estimators._base import DEFAULTS, DEPRECATED, Self, names_of
from nearfield.estimators._explain import ExplainedPredictions
from nearfield.estimators._gradients import GradientMixin
from nearfield.estimators._noise import noise_variances
from nearfield.estimators._numbers import LearnedNumbers
from nearfield.estimators._support import Supported
from nearfield.estimators._targets import refuse_empty, target_numbers, warn_of_constants
from nearfield.families import FAMILIES, names_for
from nearfield.families.outputs import OUTPUTS
from nearfield.objectives import OBJECTIVES, ORDERINGS
from nearfield.validation import check_choice, is_int, refuse_missing_target, refuse_text, those


class GPRegressor(RegressorMixin, LearnedNumbers, GradientMixin, ExplainedPredictions, Supported):
    """Gaussian-process regression from the k nearest neighbours, trained by leaving rows out.

    Of one real target, or of several of which some may be missing.

    Parameters
    ----------
    kernel : {"auto", "matern52", "matern32", "matern12", "rbf", "rational_quadratic"}, default="auto"
        The kernel, with one length scale for each column. The smoothness of "auto" is learned, between Matern 1/2 and
        5/2.
    k : int or "auto", default="auto"
        Number of neighbours to predict from. "auto" takes all rows of small tables; of others it is chosen on left-out
        training rows, up to 1,024.
    predictive : {"calibrated", "plain"}, default="calibrated"
        "calibrated" is a Student-t whose scale follows the roughness of the neighbourhood, fitted on left-out rows;
        "plain" is as the trained model says, with one noise level for all rows.
    likelihood : {"gaussian", "student_t"}, default="gaussian"
        Noise of the target. "student_t" is for targets with outliers: they are recognised and do not bend the fit.
    outputs : {"lmc", "independent", "shared"}, default="lmc"
        How several outputs, Y (n, P), depend on each other. "lmc" is the linear model of coregionalisation, each a
        mixture of the same latent functions; "independent": not at all, each with a kernel of its own; "shared": not at
        all, but all with the same kernel and noise level, which is the fastest. Without effect for one output.
    n_latents : int, default=None
        Latent functions of the linear model of coregionalisation; None for as many as outputs.
    objective : {"loo", "mll", "vecchia"}, default="loo"
        What training maximises. "loo": each row given its nearest neighbours; "mll": rows and neighbours jointly;
        "vecchia": each row given those before it in an order. The last two are there to compare with, for one output
        with Gaussian noise.
    ordering : {"random", "pca"}, default="random"
        Order of the rows for the objective "vecchia"; "pca" is along the first principal component.
    max_steps : int, default=600
        Training steps at most, in whole refreshes; training stops earlier when the left-out score has settled.
    learning_rate : float, default=0.03
        Step size of the training loop, at most 1; later stages have smaller ones.
    batch_size : int, default=128
        Rows of a training step.
    refresh_every : int, default=50
        Steps after which the neighbours are searched anew.
    mean : {"constant", "linear"}, default="constant"
        A linear mean has a learned slope for each column, drawn towards zero, so that trends go on beyond the training
        rows.
    engine : str, default="deprecated"
        Deprecated and without effect.
    checkpoint : path, default=None
        File from which training is resumed after a crash; removed when training has ended.
    cache : path, default=None
        Folder in which a table in files is kept while it is fitted. One that is named stays, and an interrupted fit
        goes on from there; None: files without a name among temporary ones.
    verbose : bool, default=None
        Whether to show a progress bar; None shows it on terminals only.
    random_state : int, RandomState instance or None, default=None
        Seed of all that is random. The same int gives the same bits.
    warp : bool, list or dict, default=True
        Whether columns of numbers may be bent, each towards its ranks as left-out rows prefer; a list of the columns
        that may (names or numbers), or a mapping such as `{"age": False}` for those that differ.
    metric : {"learned", "plain"}, default="learned"
        "plain" is the paper's: Matern 5/2 where the kernel is "auto", nothing bent, length scales without a prior that
        pulls them together.
    categorical_features : "from_dtype", list or mask, default="from_dtype"
        Which columns hold levels: those of text and categories; or their names, numbers or a mask. See `TableEncoder`
        for what columns of text, dates and gaps become.
    coordinates : "lonlat", dict or list, default=None
        Columns that are places. "lonlat": longitude and latitude in degrees, found by their names, or `{"lonlat":
        [longitude, latitude]}` with names or numbers: distances are those on the globe. A list of two or three columns,
        names or numbers: planar coordinates in the same unit, whose axes may be turned.
    drift : list, default=None
        Columns (names or numbers) on which the mean depends, each with a learned slope: `mean="linear"` on these alone.
        A coordinate stands for all of them.
    leave_out : {"one", "past"}, default="one"
        What a left-out row is predicted from, in training, in the choice of k, in calibration and in `loo_`. "one": all
        other rows, or those of other groups; "past": earlier rows alone, by the `times` of `fit`, as in forecasts. Rows
        of the same time are simultaneous and do not see each other. The first rows, which see hardly any, are predicted
        from little or nothing, and do not count in training, in the choice of k and in calibration.
    buffer : float or dict, default=None
        Distance within which rows do not see each other when they are left out: for predictions that are made farther
        from the training rows than these are from each other. A number, in the units of `coordinates` (of longitude and
        latitude degrees of a great circle), or of all columns that are numbers where there are none; or a mapping of
        columns to distances, such as `{"x": 10, "y": 10, "date": 30}`, of dates in days: a row is hidden if it is
        inside of the ellipsoid with these radii. Rows with nearly nothing beyond it do not count, either.
    continuous : bool or "auto", default="auto"
        Whether predictions are continuous: neighbours then lose their weight towards the edge of a neighbourhood, so
        that nothing jumps where one takes the place of another. "auto": yes for up to three columns (longitude and
        latitude are two), unless left-out rows are predicted clearly worse; for more only where they are predicted
        clearly better.
    search : {"exact", "approximate"}, default="exact"
        With "approximate" a prediction looks into so many boxes of rows only that left-out rows find 95 % of their
        nearest neighbours on average. What that costs is in `summary_` (`recall`, `exact_nll` and `approximate_nll`).
        Training is exact, and so are predictions where brute force is faster than so many boxes.

    Attributes
    ----------
    k_ : int
        Number of neighbours in use. Where it is n - 1, predictions use all n rows.
    n_rows_ : int
        Number of training rows, with those that were appended and without those that were forgotten.
    continuous_ : bool
        Whether neighbourhoods are continuous.
    loo_ : LeftOutPredictions
        Left-out `mean`, `std` and `residual` of the training rows, computed when first asked for. A row of weight zero,
        or without any target, is no training row.
    summary_ : Summary
        What the fit did and how well it predicts left-out rows; `print(model.summary_)`.
    feature_importances_ : ndarray of shape (d,)
        What up to 1,000 left-out rows lose in mean log density when a column is shuffled among them, at least 0;
        computed when first asked for.
    feature_relevance_ : dict of str to float
        1 / length scale of each column in standardised units, by column name; 0 if it was constant.
    length_scales_ : ndarray of shape (d,) or (kernels, d)
        Length scales in the units of the columns; of several outputs a row for each kernel, where each has its own.
    kernel_scale_ : float or ndarray of shape (P,)
        Standard deviation of the latent function, in the units of the target; of several outputs one for each.
    noise_std_ : float or ndarray of shape (P,)
        Standard deviation of the noise, in the units of the target; of Student-t noise its scale.
    noise_scale_ : float
        The scale of the noise once more; only with Student-t noise.
    df_ : float
        Degrees of freedom of the noise; infinite for Gaussian noise.
    mixing_ : ndarray of shape (P, n_latents) or None
        How much of each latent function is in each output, in its units; None but for "lmc".
    mean_slopes_ : ndarray of shape (d,) or (P, d), or None
        Slopes of a linear mean in the units of the data; None for a constant one.
    n_outputs_ : int
        Number of outputs, P.
    target_mean_ : float or ndarray of shape (P,)
        Mean of the target, which is subtracted before training; with Student-t noise the median.
    target_std_ : float or ndarray of shape (P,)
        Standard deviation of the target, by which it is divided; with Student-t noise a robust one.
    smoothness_ : dict of str to float, or None
        Shares of Matern 1/2, 3/2 and 5/2 in the kernel "auto", by name; None for other kernels.
    bends_ : ndarray of shape (d, 3)
        Shares of each column as it is, of its normal score and of its uniform score.
    rotation_ : ndarray of shape (p, p) or None
        Axes along which coordinates are seen, a row each; None without coordinates.
    encoder_ : TableEncoder
        How columns become features.
    extra_ : dict
        What was passed to `save` as `extra`, where the model was loaded; else empty.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns; only where all of them are text.

    See Also
    --------
    GPClassifier : One of two or more classes.
    GPCountRegressor : How often something happened.
    nearfield.dask.GPRegressor : The same for Dask collections.

    Examples
    --------
    >>> from nearfield import GPRegressor
    >>> from nearfield.datasets import robot_arm
    >>> X, y = robot_arm(500)
    >>> model = GPRegressor(random_state=0).fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> low, high = model.predict_interval(X[400:], coverage=0.9)
    >>> mean.shape, bool((low < high).all())
    ((100,), True)
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
        """Fit the model to inputs and targets.

        A table that is larger than memory is given by the path of its files: it is read into files of the folder
        `cache` that are mapped into memory.

        Parameters
        ----------
        X : array-like, data frame or path
            Inputs (n, d): numbers, text, categories, dates and gaps; or the path of a Parquet file, or of a folder of
            them.
        y : array-like of shape (n,) or (n, P), or str
            Targets; of several outputs some may be missing (NaN) in a row. Where X is a path, the name of the target's
            column.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, relative to the others: a constant factor changes nothing. Where all are whole
            multiples of the least, they are counts: a row of weight 2 beside rows of weight 1 is that row twice.
            Otherwise they are scaled to a mean of 1. A row of weight 0 is left out.
        noise_variance : float or array-like, default=None
            Known noise variances, like y or a number for all rows, in its squared units. They are added to the learned
            noise of the rows; predictions of observations then want those of the new rows.
        groups : array-like of shape (n,) or "auto", default=None
            Labels: a row is left out together with all rows of its label. For rows that are not independent:
            replicates, the same thing measured again, trajectories. "auto": rows are left out with their near copies,
            and copies count once: exact ones, weights that are counts, and near ones with the same target together.
        times : array-like of shape (n,), str or int, default=None
            For `leave_out="past"`: numbers or dates, or the name or number of the column of X that holds them; such a
            column is a feature too. Rows of equal time are simultaneous.

        Returns
        -------
        self
            The fitted estimator.

        Notes
        -----
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
        warn_of_constants(y)
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
        """Append rows without training again.

        Predictions are then those of a model of all rows with these hyper-parameters.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            New rows, with the columns of the training table.
        y : array-like of shape (n,) or (n, P)
            Their targets.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, in the unit of the weights of `fit`; once without them.
        noise_variance : float or array-like, default=None
            Known noise variances, as in `fit`.
        times : array-like of shape (n,), str or int, default=None
            As in `fit`, where that had some that are no column of X.
        groups : array-like of shape (n,), default=None
            Labels as in `fit`, where that had some: rows join the group of their label, or begin a new one. Without
            them each new row is a group of its own. They matter for what is left out, not for predictions.

        Returns
        -------
        self
            The fitted estimator.
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
        """Do `fit` the first time and `update` from then on: hyper-parameters are those of the first rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Inputs.
        y : array-like of shape (n,) or (n, P)
            Their targets.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, as in `fit` or `update`.
        noise_variance : float or array-like, default=None
            Known noise variances, as in `fit`.
        times : array-like of shape (n,), str or int, default=None
            As in `fit` or `update`.
        groups : array-like of shape (n,), default=None
            As in `fit` or `update`.

        Returns
        -------
        self
            The fitted estimator.
        """
        learn = self.update if self.__sklearn_is_fitted__() else self.fit
        return learn(X, y, sample_weight=sample_weight, noise_variance=noise_variance, times=times, groups=groups)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score the means of `predict` by R^2, the share of the variance that they explain.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        y : array-like of shape (n,) or (n, P)
            Observed targets.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts.

        Returns
        -------
        float
            R^2 as of scikit-learn's `r2_score`: 1 at best, 0 for a constant prediction.
        """
        return float(super().score(X, y, sample_weight))

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
                refuse_empty(y, weights)
            kept = kept & ~missing.all(axis=1)
        noise = noise_variances(noise_variance, y.shape)
        y, weights, noise = (those(part, kept) for part in (y, weights, noise))
        return columns, y, weights, noise, kept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
