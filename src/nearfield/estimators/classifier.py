"""Classification: two or more classes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from nearfield.columns import Columns
from nearfield.encoding import columns_of
from nearfield.estimators._base import DEFAULTS, DEPRECATED, Self, names_of
from nearfield.estimators._class_predictions import ClassPredictions
from nearfield.estimators._class_weights import class_weights
from nearfield.estimators._support import Supported
from nearfield.estimators._targets import target_labels
from nearfield.families import FAMILIES, Family, names_for
from nearfield.validation import check_choice, those


class GPClassifier(ClassifierMixin, ClassPredictions, Supported):
    """Gaussian-process classification from the k nearest neighbours, trained by leaving rows out.

    Labels may be of any type that numpy can sort. Rows with equal inputs are kept as one, with a count for each class.

    Parameters
    ----------
    kernel : {"auto", "matern52", "matern32", "matern12", "rbf", "rational_quadratic"}, default="auto"
        The kernel, with one length scale for each column. The smoothness of "auto" is learned, between Matern 1/2 and
        5/2.
    k : int or "auto", default="auto"
        Number of neighbours to predict from. "auto" takes all rows of small tables; of others it is chosen on left-out
        training rows, up to 1,024.
    likelihood : {"auto", "bernoulli", "one_against_all"}, default="auto"
        "auto" is "bernoulli" for two classes and "one_against_all" for more; the second may be asked for with two
        classes, too.
    auxiliary : {"tied", "conjugate", "lognormal"}, default="tied"
        How labels become Gaussian sites. "tied": one weight for all rows, learned; all classes share one factorisation.
        "conjugate": a weight for each row and class, from its own moments. "lognormal": the paper's, learned by
        stochastic gradients.
    class_kernels : {"shared", "own"}, default="shared"
        With more than two classes: one kernel for all of them, or one for each, which is slower.
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
    class_weight : dict, "balanced" or None, default=None
        "balanced": all classes count alike, however many rows they have. A mapping has labels and weights above zero, 1
        for those that are not in it. Weights count as rows, and error bars follow their number: they are scaled so that
        all rows together count as often as before. They multiply `sample_weight`, and probabilities are those of a
        world with classes in that proportion.
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
    classes_ : ndarray of shape (K,)
        Labels, sorted; the columns of `predict_proba`.
    class_counts_ : ndarray of shape (K,)
        How often each class was seen.
    class_shares_ : ndarray of shape (K,)
        In which share of the rows each class was seen.
    class_weight_ : ndarray of shape (K,)
        How often a row of each class counts.
    k_ : int
        Number of neighbours in use. Where it is n - 1, predictions use all n rows.
    n_rows_ : int
        Number of training rows, with those that were appended and without those that were forgotten.
    continuous_ : bool
        Whether neighbourhoods are continuous.
    loo_ : LeftOutClasses
        Left-out `probability` (n, K) and `log_score` (n,) of the training rows, computed when first asked for. A row of
        weight zero is no training row.
    summary_ : Summary
        What the fit did and how well it predicts left-out rows; `print(model.summary_)`.
    feature_importances_ : ndarray of shape (d,)
        What up to 1,000 left-out rows lose in mean log probability when a column is shuffled among them, at least 0;
        computed when first asked for.
    feature_relevance_ : dict of str to float
        1 / length scale of each column in standardised units, by column name; 0 if it was constant.
    length_scales_ : ndarray of shape (d,) or (K, d)
        Length scales in the units of the columns; with `class_kernels="own"` a row for each class.
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
    GPCountRegressor : How often something happened.
    nearfield.dask.GPClassifier : The same for Dask collections.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from nearfield import GPClassifier
    >>> X, y = make_moons(300, noise=0.25, random_state=0)
    >>> model = GPClassifier(random_state=0).fit(X[:200], y[:200])
    >>> model.predict_proba(X[200:]).shape
    (100, 2)
    """

    def __init__(
        self,
        kernel: str = DEFAULTS.kernel,
        k: int | str = DEFAULTS.k,
        *,
        likelihood: str = "auto",
        auxiliary: str = "tied",
        class_kernels: str = "shared",
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
        class_weight: Any = None,
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
        self.class_kernels = class_kernels
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
        self.class_weight = class_weight
        self.coordinates = coordinates
        self.drift = drift
        self.leave_out = leave_out
        self.buffer = buffer
        self.continuous = continuous
        self.search = search

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(self: Self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, times: Any = None) -> Self:
        """Fit the model to inputs and labels.

        Parameters
        ----------
        X : array-like, data frame or path
            Inputs (n, d): numbers, text, categories, dates and gaps; or the path of a Parquet file, or of a folder of
            them.
        y : array-like of shape (n,) or str
            Labels; where X is a path, the name of the target's column.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, relative to the others: a constant factor changes nothing. Where all are whole
            multiples of the least, they are counts: a row of weight 2 beside rows of weight 1 is that row twice.
            Otherwise they are scaled to a mean of 1. A row of weight 0 is left out.
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
        check_choice("likelihood", self.likelihood, ("auto", *names_for("GPClassifier", ("label",))))
        check_choice("class_kernels", self.class_kernels, ("shared", "own"))
        settings = self._settings(structure=self.class_kernels)
        X, y = self._read_files(X, y)
        self._target_names = names_of(y)
        columns, y, weights, kept = self._validated_rows(X, y, sample_weight, reset=True)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"only one class is present ({self.classes_[0]!r}): at least two are needed to tell them apart."
            )
        family = self._made(self._chosen(len(self.classes_)), len(self.classes_))
        self.class_weight_: np.ndarray = class_weights(self.class_weight, self.classes_, labels, weights)
        observed = family.observe(labels, weights * self.class_weight_[labels])
        self._learn(self._table(columns, kept, family, observed, settings, groups, times), family, settings)
        return self

    def _chosen(self, classes: int) -> type[Family]:
        """The family that was asked for, or the first that is for so many classes."""
        names = names_for("GPClassifier", ("label",)) if self.likelihood == "auto" else (self.likelihood,)
        suited = [FAMILIES[name] for name in names if FAMILIES[name].suits(classes)]
        if not suited:
            raise ValueError(f"likelihood is {self.likelihood!r}, which is not for {classes} classes: use 'auto'.")
        return suited[0]

    def update(self: Self, X: Any, y: Any, sample_weight: Any = None, *, times: Any = None, groups: Any = None) -> Self:
        """Append rows without training again.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            New rows, with the columns of the training table.
        y : array-like of shape (n,)
            Their labels, which must be among `classes_`.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, in the unit of the weights of `fit`; once without them.
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
        columns, y, weights, kept = self._validated_rows(X, y, sample_weight, reset=False)
        labels = self._labels(y)
        observed = self._family.observe(labels, weights * self.class_weight_[labels])
        at = self._more_times(times, columns)
        self._append(self.encoder_.encode(columns)[kept], observed, kept, at, groups)
        return self

    def partial_fit(
        self: Self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        times: Any = None,
        groups: Any = None,
    ) -> Self:
        """Do `fit` the first time and `update` from then on: hyper-parameters and classes are those of the first rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Inputs.
        y : array-like of shape (n,)
            Their labels.
        classes : array-like, default=None
            Labels to come, as scikit-learn passes them; all of them must be among the first rows.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts, as in `fit` or `update`.
        times : array-like of shape (n,), str or int, default=None
            As in `fit` or `update`.
        groups : array-like of shape (n,), default=None
            As in `fit` or `update`.

        Returns
        -------
        self
            The fitted estimator.
        """
        known = np.ravel(self.classes_ if self.__sklearn_is_fitted__() else target_labels(y)).tolist()
        absent = [label for label in np.asarray([] if classes is None else classes).tolist() if label not in known]
        if absent:
            raise ValueError(
                f"classes has {', '.join(map(repr, absent[:10]))}, which no row of the first batch has: classes are "
                "learned from the first rows. Begin with a batch that has rows of every class."
            )
        learn = self.update if self.__sklearn_is_fitted__() else self.fit
        return learn(X, y, sample_weight, times=times, groups=groups)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score the labels of `predict` by the share of them that is right.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        y : array-like of shape (n,)
            Observed labels.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts.

        Returns
        -------
        float
            Accuracy, between 0 and 1.
        """
        return float(super().score(X, y, sample_weight))

    def _validated_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Columns, np.ndarray, np.ndarray, np.ndarray]:
        """Columns of X, labels (m,) and weights (m,) of those rows that count, and which (n,) these are."""
        columns, y = columns_of(self, X, y=target_labels(y), reset=reset)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        weights, kept = self._weights(sample_weight, y, reset)
        return columns, those(y, kept), those(weights, kept), kept
