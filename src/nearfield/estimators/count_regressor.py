"""Counts: how often something happens, or how often out of so many trials."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from nearfield.columns import Columns
from nearfield.encoding import columns_of
from nearfield.estimators._base import DEFAULTS, DEPRECATED, Self, names_of
from nearfield.estimators._count_predictions import CountPredictions, given_of
from nearfield.estimators._support import Supported
from nearfield.estimators._targets import refuse_no_counts, target_numbers
from nearfield.families import FAMILIES, Family, names_for
from nearfield.fitting import Fit
from nearfield.validation import check_choice, refuse_missing_target, those


class GPCountRegressor(RegressorMixin, CountPredictions, Supported):
    """Gaussian-process regression of counts from the k nearest neighbours, trained by leaving rows out.

    Of counts without an upper limit, relative to an exposure or not, or of successes out of so many trials.

    Parameters
    ----------
    kernel : {"auto", "matern52", "matern32", "matern12", "rbf", "rational_quadratic"}, default="auto"
        The kernel, with one length scale for each column. The smoothness of "auto" is learned, between Matern 1/2 and
        5/2.
    k : int or "auto", default="auto"
        Number of neighbours to predict from. "auto" takes all rows of small tables; of others it is chosen on left-out
        training rows, up to 1,024.
    likelihood : {"negative_binomial", "binomial"}, default="negative_binomial"
        "negative_binomial": counts without an upper limit, with a learned dispersion and an optional exposure;
        "binomial": successes out of so many trials.
    auxiliary : {"curvature", "conjugate"}, default="curvature"
        How counts become Gaussian sites: by the second derivative of the likelihood; or by the Polya-Gamma
        augmentation, for counts that are not much larger than the dispersion.
    predictive : {"calibrated", "plain"}, default="calibrated"
        "calibrated" is corrected by what left-out rows tell; "plain" is as the trained model says.
    mean : {"constant", "linear"}, default="constant"
        A linear mean has a learned slope for each column, drawn towards zero, so that trends go on beyond the training
        rows.
    max_steps : int, default=600
        Training steps at most, in whole refreshes; a stage ends earlier if the left-out score has clearly become worse.
    learning_rate : float, default=0.03
        Step size of the training loop, at most 1; later stages have smaller ones.
    batch_size : int, default=128
        Rows of a training step.
    refresh_every : int, default=50
        Steps after which the neighbours are searched anew.
    calibrated : bool, default="deprecated"
        Deprecated: True is `predictive="calibrated"`, False is `predictive="plain"`.
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
    dispersion_ : float or None
        Of the negative binomial: the variance of a count is mu + mu^2 / dispersion. None for the binomial.
    k_ : int
        Number of neighbours in use. Where it is n - 1, predictions use all n rows.
    n_rows_ : int
        Number of training rows, with those that were appended and without those that were forgotten.
    continuous_ : bool
        Whether neighbourhoods are continuous.
    loo_ : LeftOutPredictions
        Left-out `mean`, `std` and `residual` of the training rows, computed when first asked for. A row of weight zero
        is no training row.
    summary_ : Summary
        What the fit did and how well it predicts left-out rows; `print(model.summary_)`.
    feature_importances_ : ndarray of shape (d,)
        What up to 1,000 left-out rows lose in mean log probability when a column is shuffled among them, at least 0;
        computed when first asked for.
    feature_relevance_ : dict of str to float
        1 / length scale of each column in standardised units, by column name; 0 if it was constant.
    length_scales_ : ndarray of shape (d,)
        Length scales in the units of the columns.
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
    GPRegressor : Numbers.
    GPClassifier : One of two or more classes.
    nearfield.dask.GPCountRegressor : The same for Dask collections.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfield import GPCountRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, hours = rng.uniform(-2, 2, (300, 2)), rng.uniform(1, 8, 300)
    >>> calls = rng.poisson(hours * np.exp(1 + np.sin(2 * X[:, 0])))
    >>> model = GPCountRegressor(random_state=0).fit(X[:200], calls[:200], exposure=hours[:200])
    >>> model.predict(X[200:], exposure=hours[200:]).shape
    (100,)
    """

    dispersion_: float | None

    def __init__(
        self,
        kernel: str = DEFAULTS.kernel,
        k: int | str = DEFAULTS.k,
        *,
        likelihood: str = "negative_binomial",
        auxiliary: str = "curvature",
        predictive: str = DEFAULTS.predictive,
        mean: str = DEFAULTS.mean,
        max_steps: int = DEFAULTS.max_steps,
        learning_rate: float = DEFAULTS.learning_rate,
        batch_size: int = DEFAULTS.batch_size,
        refresh_every: int = DEFAULTS.refresh_every,
        calibrated: bool | str = DEPRECATED,
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
        self.likelihood = likelihood
        self.auxiliary = auxiliary
        self.predictive = predictive
        self.mean = mean
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.refresh_every = refresh_every
        self.calibrated = calibrated
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
        *,
        exposure: Any = None,
        trials: Any = None,
        groups: Any = None,
        times: Any = None,
    ) -> Self:
        """Fit the model to inputs and counts.

        Parameters
        ----------
        X : array-like, data frame or path
            Inputs (n, d): numbers, text, categories, dates and gaps; or the path of a Parquet file, or of a folder of
            them.
        y : array-like of shape (n,) or str
            Counts; where X is a path, the name of the target's column.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, relative to the others: a constant factor changes nothing. Where all are whole
            multiples of the least, they are counts: a row of weight 2 beside rows of weight 1 is that row twice.
            Otherwise they are scaled to a mean of 1. A row of weight 0 is left out.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: expected counts are proportional to it (time, area, people); None is 1 for all
            rows.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes y are out of.
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
        """
        check_choice("likelihood", self.likelihood, names_for("GPCountRegressor", ("count",)))
        family = self._made(FAMILIES[self.likelihood])
        settings = self._settings()
        X, y = self._read_files(X, y)
        self._target_names = names_of(y)
        self._given_names = [name for name, value in (("exposure", exposure), ("trials", trials)) if value is not None]
        columns, observed, kept = self._validated_rows(family, X, y, sample_weight, exposure, trials, reset=True)
        self._learn(self._table(columns, kept, family, observed, settings, groups, times), family, settings)
        return self

    def update(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        trials: Any = None,
        times: Any = None,
        groups: Any = None,
    ) -> Self:
        """Append rows without training again.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            New rows, with the columns of the training table.
        y : array-like of shape (n,)
            Their counts.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, in the unit of the weights of `fit`; once without them.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.
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
        self._given_again(exposure, trials)
        columns, observed, kept = self._validated_rows(self._family, X, y, sample_weight, exposure, trials, reset=False)
        at = self._more_times(times, columns)
        self._append(self.encoder_.encode(columns)[kept], observed, kept, at, groups)
        return self

    def partial_fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        trials: Any = None,
        times: Any = None,
        groups: Any = None,
    ) -> Self:
        """Do `fit` the first time and `update` from then on: hyper-parameters are those of the first rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Inputs.
        y : array-like of shape (n,)
            Their counts.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, as in `fit` or `update`.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.
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
        return learn(X, y, sample_weight, exposure=exposure, trials=trials, times=times, groups=groups)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None) -> float:
        """Score the expected counts by R^2, the share of the variance that they explain.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        y : array-like of shape (n,)
            Observed counts.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        float
            R^2 as of scikit-learn's `r2_score`: 1 at best, 0 for a constant prediction.
        """
        expected = self.predict(X, exposure=exposure, trials=trials)
        return float(r2_score(y, expected, sample_weight=sample_weight))

    def _validated_rows(
        self, family: Family, X: Any, y: Any, sample_weight: Any, exposure: Any, trials: Any, reset: bool
    ) -> tuple[Columns, dict[str, np.ndarray], np.ndarray]:
        """Columns of X, what was observed at those rows that count, and which (n,) these are."""
        y = target_numbers(y, type(self).__name__)
        refuse_missing_target(y)
        columns, y = columns_of(self, X, y=y, reset=reset, y_numeric=True)
        weights, kept = self._weights(sample_weight, y, reset)
        y = np.asarray(y, dtype=np.float64)
        refuse_no_counts(y, kept)
        observed = family.observe(y, weights, **given_of(family, exposure, trials))
        return columns, {name: those(values, kept) for name, values in observed.items()}, kept

    def _always_learned(self, fit: Fit) -> dict[str, Any]:
        return {"dispersion_": None}

    def _baseline(self) -> dict[str, Any]:
        """What a prediction that ignores the inputs is made of, from the training rows."""
        observed = self._fit.predictor.rows.observed
        family = self._family
        return family.baseline(observed["count"], family.given_of(observed), family.weight(observed))

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"given": self._given_names}, {}

    def _unpack_target(self, fields: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        given = fields.get("given", [])
        self._given_names = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
        self._target = None
