"""What a regression of counts predicts: means, intervals, quantiles, distributions and their scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import r2_score
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
        predicted, _ = self._fit.predictor.predict(X, self._fit.inputs)
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
