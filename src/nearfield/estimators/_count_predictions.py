"""What a regression of counts predicts: means, intervals, quantiles, distributions and their scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.counts import CountPredictive
from nearfield.estimators._explain import ExplainedPredictions, Explanation
from nearfield.estimators._guarantee import INTERVALS
from nearfield.estimators._joint import JointCounts
from nearfield.estimators._numbers import LeftOutPredictions
from nearfield.families import Family, Observations, Observed
from nearfield.moments import Moments
from nearfield.validation import check_choice, refuse_missing_target


class CountPredictions(JointCounts, ExplainedPredictions):
    """Predictions of counts."""

    _given_names: list[str]  # what the fit was given beside the counts

    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None, trials: Any = None) -> Any:
        """Predict expected counts.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        return_std : bool, default=False
            Whether standard deviations are returned, too.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        mean : ndarray of shape (n,)
            Expected counts.
        std : ndarray of shape (n,)
            Standard deviations of the counts, with `return_std`.
        """
        dist = self.predict_dist(X, exposure=exposure, trials=trials)
        return (dist.mean(), dist.std()) if return_std else dist.mean()

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, exposure: Any = None, trials: Any = None, method: str = "predictive"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict central intervals of whole numbers that hold at least a wanted share of the probability.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        coverage : float, default=0.9
            That share.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.
        method : {"predictive"}, default="predictive"
            Of the predictive distribution; the methods of `GPRegressor` that have a guarantee are for real targets.

        Returns
        -------
        lower : ndarray of shape (n,)
            Lower counts, inside of the interval.
        upper : ndarray of shape (n,)
            Upper counts, inside of the interval.
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
        """Predict quantiles, which are whole numbers.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        q : float or array-like of shape (m,)
            Probabilities between 0 and 1.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        quantiles : ndarray of shape (n, m)
            Quantiles; (n,) for a single probability.
        """
        probabilities = np.asarray(q, dtype=np.float64)
        if probabilities.ndim > 1 or not ((probabilities > 0) & (probabilities < 1)).all():
            raise ValueError(f"q is {q!r}: expected probabilities between 0 and 1, for example [0.05, 0.5, 0.95].")
        dist = self.predict_dist(X, exposure=exposure, trials=trials)
        if probabilities.ndim == 0:
            return dist.ppf(float(probabilities))
        return np.stack([dist.ppf(float(p)) for p in probabilities], axis=1)

    def predict_dist(self, X: Any, *, exposure: Any = None, trials: Any = None) -> CountPredictive:
        """Predict whole distributions over counts.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        CountDistribution
            One object over rows, with the methods of a distribution of `scipy.stats`; a family of another package may
            have its own.
        """
        check_is_fitted(self)
        told = self._given_again(exposure, trials)
        X = self._inputs(X)
        given = self._family.given_arrays(len(X), **told)
        predicted, _ = self._fit.predictor.predict(X, self._fit.inputs)
        return self._distribution(predicted, given)

    def explain(self, X: Any, n_neighbours: int = 5, *, exposure: Any = None, trials: Any = None) -> Explanation:
        """Explain expected counts by the training rows that matter most to them.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        n_neighbours : int, default=5
            How many training rows for each. Weights are those of the latent function, a log rate or log odds.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        Explanation
            Which rows these are, their weights, and what expected counts would be without each.
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

    def log_score(self, X: Any, y: Any, *, exposure: Any = None, trials: Any = None) -> float:
        """Score the predictive distributions by the mean log probability of what was observed.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        y : array-like of shape (n,)
            Observed counts.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        float
            Mean log probability; higher is better.
        """
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

    def _given_again(self, exposure: Any, trials: Any) -> dict[str, Any]:
        """What the family takes of them, by name; a ValueError where the fit was given one that is not there now."""
        given = given_of(self._family, exposure, trials)
        for name in self._given_names:
            if given.get(name) is None:
                raise ValueError(
                    f"the model was fitted with {name}=, so expected counts depend on it: pass {name}= here too, one "
                    f"number for each row or one for all ({name}=1 gives counts per unit)."
                )
        return given


def given_of(family: Family, exposure: Any, trials: Any) -> dict[str, Any]:
    """What the family takes of them, by name; a ValueError where it takes none."""
    given = {"exposure": exposure, "trials": trials}
    for name, value in given.items():
        if value is not None and name not in family.given:
            takes = " and ".join(family.given) or "neither"
            raise ValueError(f"{name} was given, but the likelihood is {family.name!r}: it takes {takes}.")
    return {name: given[name] for name in family.given if name in given}
