"""Classification: two or more classes."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from nearfield.columns import Columns
from nearfield.encoding import columns_of
from nearfield.estimators._base import DEFAULTS, DEPRECATED, Self, names_of
from nearfield.estimators._class_weights import class_weights, is_weight, packed_weights, unpacked_weights
from nearfield.estimators._explain import ExplainedPredictions
from nearfield.estimators._joint import JointClasses
from nearfield.estimators._sets import PredictionSets
from nearfield.estimators._support import Supported
from nearfield.estimators._targets import target_labels
from nearfield.families import FAMILIES, Family, Observations, names_for
from nearfield.fitting import Fit
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError, require
from nearfield.progress import Bars
from nearfield.validation import check_choice, those

_LEAST = 1e-300  # probability, before its logarithm is taken


class LeftOutClasses(NamedTuple):
    """Predictions of the training rows from the others: probabilities (n, K), log probability of the label (n,)."""

    probability: np.ndarray
    log_score: np.ndarray


class GPClassifier(ClassifierMixin, JointClasses, PredictionSets, ExplainedPredictions, Supported):
    """Gaussian-process classification from the k nearest neighbours, trained by leaving rows out.

    Labels may be of any type that numpy can sort. Rows with equal inputs are kept as one, with a count for each class.

    Parameters
    ----------
    kernel : "auto", whose smoothness is learned, between Matern 1/2 and 5/2; or "matern52", "matern32", "matern12",
        "rbf" or "rational_quadratic". One length scale per column.
    k : number of neighbours to predict from, or "auto": all rows of small tables; of others
        chosen on left-out training rows, up to 1,024.
    likelihood : "auto", "bernoulli" for two classes and "one_against_all" for more; or one of them by name, the second
        also for two classes.
    auxiliary : how labels become Gaussian sites. "tied": one weight for all rows, learned; all classes share one
        factorisation. "conjugate": a weight for each row and class, from its own moments. "lognormal": the paper's,
        learned by stochastic gradients.
    class_kernels : "shared", one kernel for all classes, or "own", one for each (slower); with more than two classes.
    predictive : "calibrated", corrected by what left-out rows tell; or "plain", as the trained model says.
    class_weight : None; "balanced", all classes count alike, however many rows they have; or a mapping of labels to
        weights above zero, 1 for those that are not in it. Weights count as rows, and error bars follow their number:
        they are scaled so that all rows together count as often as before. They multiply `sample_weight`, and
        probabilities are those of a world with classes in that proportion.
    mean : "constant", or "linear": a learned slope for each column, drawn towards zero.
    max_steps : training steps, in whole refreshes; a stage ends earlier if the left-out score has clearly become worse.
    learning_rate, batch_size, refresh_every : of the training loop; the neighbours are searched anew every
        `refresh_every` steps.
    calibrated : deprecated: True is predictive="calibrated", False is "plain".
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
    classes_ : labels, sorted; the columns of `predict_proba`.
    class_counts_, class_shares_ : how often each was seen, and in which share of the rows.
    class_weight_ : (K,) how often a row of each class counts.
    continuous_ : whether neighbourhoods are continuous.
    k_ : number of neighbours in use.
    loo_ : left-out `probability` (n, K) and `log_score` (n,) of the training rows, computed when first asked for. A row
        of weight zero is no training row.
    feature_relevance_ : 1 / length scale of each column in standardised units, by column name; 0 if it was constant.
    feature_importances_ : (d,) what up to 1,000 left-out rows lose in mean log probability when a column is shuffled
        among them, at least 0; computed when first asked for.
    length_scales_ : hyper-parameters in the units of the data.
    smoothness_ : shares of Matern 1/2, 3/2 and 5/2 in the kernel "auto", by name; None for other kernels.
    bends_ : (d, 3) shares of each column as it is, of its normal score and of its uniform score.
    summary_ : what the fit did; `print(model.summary_)`.
    n_features_in_, feature_names_in_ : as in scikit-learn.
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
        """Fit inputs X (n, d) and labels y (n,); or the path of Parquet files and the name of the target's column.

        sample_weight : (n,) how much each row counts, relative to the others: a constant factor changes nothing.
            Where all are whole multiples of the least, they are counts: a row of weight 2 beside rows of weight 1 is
            that row twice. Otherwise they are scaled to a mean of 1. A row of weight 0 is left out.
        groups : (n,) labels; a row is left out together with all rows of its label. "auto" groups rows with their near
            copies. For rows that are not independent: replicates, the same thing measured again, trajectories.
        times : (n,) numbers or dates, or the name or number of the column of X that holds them, for leave_out="past".
            Such a column is a feature too. Rows of equal time are simultaneous.
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
        """Append rows without training again; their labels must be among `classes_`.

        times : as in `fit`, where that had some that are no column of X.
        groups : labels (n,) as in `fit`, where that had some: rows join the group of their label, or begin a new one.
            Without them each new row is a group of its own. They matter for what is left out, not for predictions.
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
        """`fit` the first time, `update` from then on: hyper-parameters and classes are those of the first rows.

        classes : labels to come, as scikit-learn passes them; all of them must be among the first rows.
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

    def _validated_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Columns, np.ndarray, np.ndarray, np.ndarray]:
        """Columns of X, labels (m,) and weights (m,) of those rows that count, and which (n,) these are."""
        columns, y = columns_of(self, X, y=target_labels(y), reset=reset)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        weights, kept = self._weights(sample_weight, y, reset)
        return columns, those(y, kept), those(weights, kept), kept

    def _labels(self, y: Any) -> np.ndarray:
        """Positions (n,) in `classes_` of labels y (n,)."""
        y = column_or_1d(target_labels(y))
        known = {label: place for place, label in enumerate(self.classes_.tolist())}
        places = np.array([known.get(label, -1) for label in y.tolist()], dtype=np.int64)
        if (places < 0).any():
            raise ValueError(
                f"the label {y[places < 0].tolist()[0]!r} was not among the classes of the fit "
                f"({', '.join(map(repr, self.classes_.tolist()[:10]))}): fit again to learn new classes."
            )
        return places

    @property
    def class_counts_(self) -> np.ndarray:
        """How often each class was seen, (K,)."""
        check_is_fitted(self)
        found: np.ndarray = self._left_out(self._counted_classes, "_class_counts")
        return found

    @property
    def class_shares_(self) -> np.ndarray:
        """In which share of the rows, (K,)."""
        counts = self.class_counts_
        return counts / counts.sum()

    def _counted_classes(self) -> np.ndarray:
        seen = self._fit.predictor.rows.observations
        labels = self._family.values(seen.observed)
        counted = np.bincount(labels, seen.weights, minlength=self._family.classes)
        return np.asarray(counted / self.class_weight_)

    def _baseline(self) -> dict[str, Any]:
        """What a prediction that ignores the inputs is made of, from the training rows."""
        predictor = self._fit.predictor
        seen = predictor.rows.observations
        return predictor.model.family.baseline(seen.observed["counts"].argmax(axis=1), {}, seen.weights)

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, K) of the classes, in the order of `classes_`; rows sum to one."""
        X = self._inputs(X)
        predicted, _ = self._fit.predictor.predict(X, self._fit.inputs, bars=Bars(self.verbose))
        return np.asarray(predicted.p)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms (n, K)."""
        return np.log(np.maximum(self.predict_proba(X), _LEAST))

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of the second of two classes (n,); of more classes, those of each against the others (n, K)."""
        p = self.predict_proba(X)
        if p.shape[1] == 2:
            low, high = np.log(np.maximum(p, _LEAST)).T
            return np.asarray(high - low)
        return np.log(np.maximum(p, _LEAST)) - np.log(np.maximum(1 - p, np.finfo(float).eps / 2))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable labels (n,)."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def log_score(self, X: Any, y: Any) -> float:
        """Mean log probability of the labels y (n,)."""
        log_p = self.predict_log_proba(X)
        labels = self._labels(y)
        if len(labels) != len(log_p):
            raise ValueError(f"y has {len(labels)} labels: expected {len(log_p)}, one for each row of X.")
        return float(log_p[np.arange(len(labels)), labels].mean())

    @property
    def loo_(self) -> LeftOutClasses:
        """Left-out probabilities of each training row, and the log probability of its label."""
        check_is_fitted(self)
        found: LeftOutClasses = self._left_out(self._compute_loo)
        return found

    def _compute_loo(self) -> LeftOutClasses:
        predictor = self._fit.predictor
        predicted = predictor.left_out()
        scores = self._log_scores(predicted, predictor.rows.observations)
        return LeftOutClasses(predicted.p[self._places], scores[self._places])

    def _values(self, moments: Moments, rows: np.ndarray) -> np.ndarray:
        predictor = self._fit.predictor
        return np.asarray(predictor.head.predicted(moments, predictor.model.noise).p)

    def _log_scores(self, predicted: Any, left_out: Observations) -> np.ndarray:
        seen = predicted.p[np.arange(len(predicted.p)), self._family.values(left_out.observed)]
        return np.log(np.maximum(seen, _LEAST))

    # --- one safe file ----------------------------------------------------------------------------------------------

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        kind = "O" if self.classes_.dtype.kind in "OUS" else self.classes_.dtype.str
        plain = self.classes_.astype("int64") if self.classes_.dtype.kind in "Mm" else self.classes_
        labels = [label.decode() if isinstance(label, bytes) else label for label in plain.tolist()]
        return {"classes": labels, "kind": kind, "weights": self.class_weight_.tolist()}, {}

    def _packed(self, extra: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        header, arrays = super()._packed(extra)
        header["sections"]["estimator"]["parameters"]["class_weight"] = packed_weights(self.class_weight)
        return header, arrays

    def _unpack_target(self, fields: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        labels, kind = require(fields, "classes", list), require(fields, "kind", str)
        if len(labels) != fit.predictor.model.family.classes or not all(
            isinstance(label, str | int | float | bool) for label in labels
        ):
            raise ModelFileError(f"its {len(labels)} labels do not fit its classes")
        self.classes_ = _classes(labels, kind)
        self.class_weight = unpacked_weights(self.class_weight)
        weights = fields.get("weights", [1.0] * len(labels))
        if not (isinstance(weights, list) and len(weights) == len(labels) and all(map(is_weight, weights))):
            raise ModelFileError(f"its weights of classes are not {len(labels)} numbers above zero")
        self.class_weight_ = np.array(weights, dtype=np.float64)
        self._target = None


def _classes(labels: list[Any], kind: str) -> np.ndarray:
    """Labels (K,) of a file as an array of that kind, ascending; dates and times are numbers in the file."""
    try:
        dtype = np.dtype(kind)
        if dtype.kind in "Mm":
            classes = np.array(labels, dtype=np.int64).astype(dtype)
            sound = classes.astype(np.int64).tolist() == labels
        else:
            classes = np.array(labels, dtype=dtype) if dtype.kind in "Obiuf" else np.array([])
            sound = classes.tolist() == labels
        sound = sound and bool((classes[:-1] < classes[1:]).all())
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise ModelFileError(f"its labels are not of the kind {kind!r}, or not in ascending order")
    return classes
