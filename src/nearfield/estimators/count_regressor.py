"""Counts: how often something happens, or how often out of so many trials."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from nearfield.columns import Columns
from nearfield.counts import CountPredictive
from nearfield.encoding import columns_of
from nearfield.estimators._base import DEFAULTS, DEPRECATED, Self, names_of
from nearfield.estimators._explain import ExplainedPredictions, Explanation
from nearfield.estimators._guarantee import INTERVALS
from nearfield.estimators._joint import JointCounts
from nearfield.estimators._support import Supported
from nearfield.estimators._targets import refuse_no_counts, target_numbers
from nearfield.estimators.regressor import LeftOutPredictions
from nearfield.families import FAMILIES, Family, Observations, Observed, names_for
from nearfield.fitting import Fit
from nearfield.moments import Moments
from nearfield.progress import Bars
from nearfield.validation import check_choice, refuse_missing_target, those


class GPCountRegressor(RegressorMixin, JointCounts, ExplainedPredictions, Supported):
    """Gaussian-process regression of counts from the k nearest neighbours, trained by leaving rows out.

    Parameters
    ----------
    kernel : "auto", whose smoothness is learned, between Matern 1/2 and 5/2; or "matern52", "matern32", "matern12",
        "rbf" or "rational_quadratic". One length scale per column.
    k : number of neighbours to predict from, or "auto": all rows of small tables; of others
        chosen on left-out training rows, up to 1,024.
    likelihood : "negative_binomial", counts without an upper limit, with a learned dispersion and an optional exposure;
        or "binomial", successes out of so many trials.
    auxiliary : how counts become Gaussian sites: "curvature", by the second derivative of the likelihood; or
        "conjugate", by the Polya-Gamma augmentation, for counts that are not much larger than the dispersion.
    predictive : "calibrated", corrected by what left-out rows tell; or "plain", as the trained model says.
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
    continuous_ : whether neighbourhoods are continuous.
    k_ : number of neighbours in use.
    dispersion_ : of the negative binomial: the variance of a count is mu + mu^2 / dispersion. None for the binomial.
    loo_ : left-out `mean`, `std` and `residual` of the training rows, computed when first asked for.
    feature_relevance_ : 1 / length scale of each column in standardised units, by column name; 0 if it was constant.
    feature_importances_ : (d,) what up to 1,000 left-out rows lose in mean log probability when a column is shuffled
        among them, at least 0; computed when first asked for.
    length_scales_ : hyper-parameters in the units of the data.
    smoothness_ : shares of Matern 1/2, 3/2 and 5/2 in the kernel "auto", by name; None for other kernels.
    bends_ : (d, 3) shares of each column as it is, of its normal score and of its uniform score.
    summary_ : what the fit did; `print(model.summary_)`.
    n_features_in_, feature_names_in_ : as in scikit-learn.
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
        """Fit inputs X (n, d) and counts y (n,); or the path of Parquet files and the name of the target's column.

        sample_weight : (n,) how much each row counts, relative to the others: a constant factor changes nothing.
            Where all are whole multiples of the least, they are counts: a row of weight 2 beside rows of weight 1 is
            that row twice. Otherwise they are scaled to a mean of 1. A row of weight 0 is left out.
        exposure : (n,) negative binomial: expected counts are proportional to it (time, area, people); 1 by default.
        trials : (n,) binomial: how many trials the successes y are out of.
        groups : (n,) labels; a row is left out together with all rows of its label. "auto" groups rows with their near
            copies. For rows that are not independent: replicates, the same thing measured again, trajectories.
        times : (n,) numbers or dates, or the name or number of the column of X that holds them, for leave_out="past".
            Such a column is a feature too. Rows of equal time are simultaneous.
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

        times : as in `fit`, where that had some that are no column of X.
        groups : labels (n,) as in `fit`, where that had some: rows join the group of their label, or begin a new one.
            Without them each new row is a group of its own. They matter for what is left out, not for predictions.
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
        """`fit` the first time, `update` from then on: hyper-parameters are those of the first rows."""
        learn = self.update if self.__sklearn_is_fitted__() else self.fit
        return learn(X, y, sample_weight, exposure=exposure, trials=trials, times=times, groups=groups)

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
        observed = family.observe(y, weights, **_given(family, exposure, trials))
        return columns, {name: those(values, kept) for name, values in observed.items()}, kept

    def _given_again(self, exposure: Any, trials: Any) -> dict[str, Any]:
        """What the family takes of them, by name; a ValueError where the fit was given one that is not there now."""
        given = _given(self._family, exposure, trials)
        for name in self._given_names:
            if given.get(name) is None:
                raise ValueError(
                    f"the model was fitted with {name}=, so expected counts depend on it: pass {name}= here too, one "
                    f"number for each row or one for all ({name}=1 gives counts per unit)."
                )
        return given

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

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None, trials: Any = None) -> Any:
        """Expected counts (n,), with `return_std` also standard deviations (n,)."""
        dist = self.predict_dist(X, exposure=exposure, trials=trials)
        return (dist.mean(), dist.std()) if return_std else dist.mean()

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, exposure: Any = None, trials: Any = None, method: str = "predictive"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper counts (n,) of the central interval that holds at least that share of the probability.

        method : "predictive", of the predictive distribution; those of `GPRegressor` that have a guarantee are for real
            targets.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is {coverage!r}: expected a number between 0 and 1, for example 0.9.")
        check_choice("method", method, INTERVALS)
        if method != "predictive":
            raise ValueError(
                f"method is {method!r}: residuals of counts grow with what is expected, so such intervals would be of "
                "no use. It is for real targets, in GPRegressor; use method='predictive' here."
            )
        return self.predict_dist(X, exposure=exposure, trials=trials).interval(coverage)

    def predict_quantiles(self, X: Any, q: Any, *, exposure: Any = None, trials: Any = None) -> np.ndarray:
        """Quantiles (n, len(q)) at the probabilities q; (n,) for a single number."""
        probabilities = np.asarray(q, dtype=np.float64)
        if probabilities.ndim > 1 or not ((probabilities > 0) & (probabilities < 1)).all():
            raise ValueError(f"q is {q!r}: expected probabilities between 0 and 1, for example [0.05, 0.5, 0.95].")
        dist = self.predict_dist(X, exposure=exposure, trials=trials)
        if probabilities.ndim == 0:
            return dist.ppf(float(probabilities))
        return np.stack([dist.ppf(float(p)) for p in probabilities], axis=1)

    def predict_dist(self, X: Any, *, exposure: Any = None, trials: Any = None) -> CountPredictive:
        """The predictive distributions over counts, as one object over rows with scipy.stats' methods."""
        check_is_fitted(self)
        told = self._given_again(exposure, trials)
        X = self._inputs(X)
        given = self._family.given_arrays(len(X), **told)
        predicted, _ = self._fit.predictor.predict(X, self._fit.inputs, bars=Bars(self.verbose))
        return self._distribution(predicted, given)

    def explain(self, X: Any, n_neighbours: int = 5, *, exposure: Any = None, trials: Any = None) -> Explanation:
        """The training rows that matter most to the expected count of each row of X (n, d): see `Explanation`.

        n_neighbours : how many. Weights are those of the latent function, a log rate or log odds.
        """
        check_is_fitted(self)
        told = self._given_again(exposure, trials)
        X = self._inputs(X)
        given, predictor = self._family.given_arrays(len(X), **told), self._fit.predictor

        def expected(moments: Moments, rows: np.ndarray) -> np.ndarray:
            predicted = predictor.head.predicted(moments, predictor.model.noise)
            own = {name: values[rows] for name, values in given.items()}
            return np.asarray(self._distribution(predicted, own).mean())[:, None]

        return self._explained(X, n_neighbours, expected)

    def _distribution(self, predicted: Any, observed: Observed) -> CountPredictive:
        predictor = self._fit.predictor
        found: CountPredictive = self._family.distribution(
            predicted, predictor.head, observed, predictor.model.parameters
        )
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None) -> float:
        """R^2 of the expected counts, as scikit-learn's `r2_score`."""
        expected = self.predict(X, exposure=exposure, trials=trials)
        return float(r2_score(y, expected, sample_weight=sample_weight))

    def log_score(self, X: Any, y: Any, *, exposure: Any = None, trials: Any = None) -> float:
        """Mean log probability of the counts y (n,)."""
        dist = self.predict_dist(X, exposure=exposure, trials=trials)
        y = np.asarray(y, dtype=np.float64)
        if y.shape != (len(dist),):
            raise ValueError(f"y has shape {y.shape}: expected {(len(dist),)}, one count for each row of X.")
        refuse_missing_target(y)
        return float(np.mean(dist.logpmf(y)))

    @property
    def loo_(self) -> LeftOutPredictions:
        """Left-out mean, std and residual of each training row."""
        check_is_fitted(self)
        found: LeftOutPredictions = self._left_out(self._compute_loo)
        return found

    def _compute_loo(self) -> LeftOutPredictions:
        predictor = self._fit.predictor
        observed = predictor.rows.observations.observed
        dist = self._distribution(predictor.left_out(), observed)
        found = (dist.mean(), dist.std(), self._family.values(observed) - dist.mean())
        return LeftOutPredictions(*(part[self._places] for part in found))

    def _log_scores(self, predicted: Any, left_out: Observations) -> np.ndarray:
        return self._distribution(predicted, left_out.observed).logpmf(self._family.values(left_out.observed))


def _given(family: Family, exposure: Any, trials: Any) -> dict[str, Any]:
    """What the family takes of them, by name; a ValueError where it takes none."""
    given = {"exposure": exposure, "trials": trials}
    for name, value in given.items():
        if value is not None and name not in family.given:
            takes = " and ".join(family.given) or "neither"
            raise ValueError(f"{name} was given, but the likelihood is {family.name!r}: it takes {takes}.")
    return {name: given[name] for name in family.given if name in given}
