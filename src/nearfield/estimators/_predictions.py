"""What a regression predicts: means, intervals, quantiles, distributions and their scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.estimators._blocks import BlockAverages
from nearfield.estimators._guarantee import INTERVALS, GuaranteedIntervals
from nearfield.heads.outputs import joint_scores
from nearfield.progress import Bars
from nearfield.validation import check_choice, refuse_missing_target


class NumberPredictions(BlockAverages, GuaranteedIntervals):
    """Predictions of one real target, or of several."""

    _column: bool  # whether y was (n, 1)

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        uncertainty: str = "observation",
        noise_variance: Any = None,
    ) -> Any:
        """Predict means, and standard deviations or covariances where they are asked for.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        return_std : bool, default=False
            Whether standard deviations are returned, too.
        return_cov : bool, default=False
            Whether covariances are returned, instead of standard deviations: of one output those between rows, for up
            to 5,000 of them; of several outputs those between the outputs of each row.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" is of a new measurement, noise included; "latent" of the noise-free function.
        noise_variance : float or array-like, default=None
            Where the model was fitted with some, known noise variances of these rows in squared units of the target: a
            number for all of them, (n,), or of several outputs (n, P). They are added to the noise that was learned.
            Without them no known noise is assumed, with a warning; 0 says so on purpose.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, P)
            Means.
        std : ndarray of shape (n,) or (n, P)
            Standard deviations, with `return_std`.
        covariance : ndarray of shape (n, n) or (n, P, P)
            Covariances, with `return_cov`.
        """
        check_is_fitted(self)
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True: the covariances hold the standard deviations.")
        if return_cov and not self._several_outputs:
            return self._joint_covariance(X, uncertainty, noise_variance)
        if not (return_std or return_cov):  # no noise is asked for, but what was given is checked
            return self._shaped(self._located(X, uncertainty, 0.0 if noise_variance is None else noise_variance)[0])
        loc, scale, between = self._located(X, uncertainty, noise_variance, joint=return_cov)
        std = scale * self._head_of(uncertainty).unit_std
        if not return_cov:
            return self._shaped(loc), self._shaped(std)
        assert between is not None
        return loc, between * std[:, :, None] * std[:, None, :]

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        uncertainty: str = "observation",
        method: str = "predictive",
        noise_variance: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict intervals that hold the target with a wanted probability.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        coverage : float, default=0.9
            That probability.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" is of a new measurement, noise included; "latent" of the noise-free function.
        method : {"predictive", "jackknife+", "minmax"}, default="predictive"
            "predictive": the central interval of the predictive distribution, whose width follows the rows around. The
            others, for one output, have a guarantee (Barber et al. 2021) instead of a distribution: if training and new
            rows are exchangeable, a new target is inside with a probability of at least 1 - 2 (1 - coverage), or with
            "minmax" at least `coverage`, whatever the data and however wrong the model. "jackknife+" covers about
            `coverage` in practice; "minmax" is wider. Both are about as wide everywhere.
        noise_variance : float or array-like, default=None
            Known noise variances of these rows, as for `predict`; for the method "predictive".

        Returns
        -------
        lower : ndarray of shape (n,) or (n, P)
            Lower ends.
        upper : ndarray of shape (n,) or (n, P)
            Upper ends.

        Notes
        -----
        The guarantee is for hyper-parameters that did not see the training rows, as after `update`. Where they were
        learned on these rows it is approximate: few numbers learned on many rows change little without one of them. It
        holds on average over training sets and new rows, not at each input. It takes 1 / (1 - coverage) - 1 training
        rows; with fewer, ends are infinite. A row of weight two counts as two. Absolute residuals are ranked, not those
        relative to a scale of their own. Both methods have hard neighbourhoods, whatever `continuous_` says.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is {coverage!r}: expected a number between 0 and 1, for example 0.9.")
        check_choice("method", method, INTERVALS)
        if method == "predictive":
            probabilities = [(1 - coverage) / 2, (1 + coverage) / 2]
            quantiles = self.predict_quantiles(X, probabilities, uncertainty, noise_variance)
            return quantiles[..., 0], quantiles[..., 1]
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        if uncertainty == "latent":
            raise ValueError(
                f"method is {method!r} and uncertainty 'latent': the guarantee is for observations, which can be left "
                "out, not for the noise-free function. Use uncertainty='observation', or method='predictive'."
            )
        if noise_variance is not None:
            raise ValueError(
                f"method is {method!r} and noise_variance is given: the guarantee is for rows like the training rows, "
                "whose errors are ranked with the noise that they have. Use method='predictive', or leave it out."
            )
        lower, upper = self._guaranteed(X, coverage, method)
        return self._shaped(lower), self._shaped(upper)

    def predict_quantiles(
        self, X: Any, q: Any, uncertainty: str = "observation", noise_variance: Any = None
    ) -> np.ndarray:
        """Predict quantiles.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        q : float or array-like of shape (m,)
            Probabilities between 0 and 1.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" is of a new measurement, noise included; "latent" of the noise-free function.
        noise_variance : float or array-like, default=None
            Known noise variances of these rows, as for `predict`.

        Returns
        -------
        quantiles : ndarray of shape (n, m) or (n, P, m)
            Quantiles; (n,) or (n, P) for a single probability.
        """
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        probabilities = np.asarray(q, dtype=np.float64)
        if probabilities.ndim > 1 or not ((probabilities > 0) & (probabilities < 1)).all():
            raise ValueError(f"q is {q!r}: expected probabilities between 0 and 1, for example [0.05, 0.5, 0.95].")
        loc, scale, _ = self._located(X, uncertainty, noise_variance)
        unit = self._head_of(uncertainty).distribution(np.zeros(loc.shape[1:]), np.ones(loc.shape[1:]))
        z = np.stack([unit.ppf(p) for p in np.atleast_1d(probabilities)], axis=-1)  # (q,) or (P, q)
        found = self._shaped(loc[..., None] + scale[..., None] * z)
        return found[..., 0] if probabilities.ndim == 0 else found

    def predict_dist(self, X: Any, uncertainty: str = "observation", noise_variance: Any = None) -> Any:
        """Predict whole distributions.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" is of a new measurement, noise included; "latent" of the noise-free function.
        noise_variance : float or array-like, default=None
            Known noise variances of these rows, as for `predict`.

        Returns
        -------
        dist : frozen distribution of scipy.stats, `t` or `norm`
            One entry for each row, (n,), and output, (n, P); with `mean`, `std`, `pdf`, `cdf`, `ppf`, `rvs` and so on.
        """
        check_choice("uncertainty", uncertainty, ("observation", "latent"))
        loc, scale, _ = self._located(X, uncertainty, noise_variance)
        return self._head_of(uncertainty).distribution(self._shaped(loc), self._shaped(scale))

    def log_score(self, X: Any, y: Any, joint: bool = False, noise_variance: Any = None) -> float:
        """Score the predictive distributions by the mean log density of what was observed.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        y : array-like of shape (n,) or (n, P)
            Observed targets; of several outputs NaN where missing, which are left out.
        joint : bool, default=False
            Of several outputs, whether to take the density of all outputs of a row together instead of the mean over
            them. The marginals are then joined by a Gaussian copula with the model's correlations.
        noise_variance : float or array-like, default=None
            Known noise variances of these rows, as for `predict`.

        Returns
        -------
        float
            Mean log density, in the units of y; higher is better.
        """
        check_is_fitted(self)
        joint = joint and self._several_outputs
        between: Any = None
        if joint:
            dist, between = self._joint(X, noise_variance)
        else:
            dist = self.predict_dist(X, noise_variance=noise_variance)
        y = np.asarray(y, dtype=np.float64)
        if y.shape != dist.mean().shape:
            raise ValueError(f"y has shape {y.shape}: expected {dist.mean().shape}, one observation for each row of X.")
        if y.ndim == 1 or y.shape[1] == 1:
            refuse_missing_target(y)
            return float(np.mean(dist.logpdf(y)))
        if np.isinf(y).any() or np.isnan(y).all():
            raise ValueError("y has infinite values, or none at all: finite numbers are expected, NaN where missing.")
        return float(np.mean(joint_scores(y, dist, between)) if joint else np.nanmean(dist.logpdf(y)))

    def _joint(self, X: Any, noise_variance: Any = None) -> tuple[Any, np.ndarray]:
        """The predictive distributions (n, P) and the correlations (n, P, P) between outputs, from one sweep."""
        loc, scale, between = self._located(X, "observation", noise_variance, joint=True)
        assert between is not None
        return self._head.distribution(loc, scale), between

    def _located(
        self, X: Any, uncertainty: str, noise_variance: Any, joint: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Centre and scale, (n,) or (n, P), of the predictions in the units of the target.

        joint: also the correlations (n, P, P) between the outputs, of observations or of the latent functions.
        """
        X = self._inputs(X)
        predictor, target = self._fit.predictor, self._target
        known = self._known_noise(noise_variance, len(X), uncertainty)
        predicted, covariance = predictor.predict(
            X, self._fit.inputs, covariance=joint, known=known, bars=Bars(self.verbose)
        )
        noisy = uncertainty == "observation"
        scale = predicted.scale if noisy else np.maximum(predicted.latent_scale, 1e-12)
        between = None
        if covariance is not None:
            own = np.broadcast_to(predictor.noise(known) if noisy else 0.0, covariance.shape[:2])
            between = self._head.correlation(covariance + own[:, :, None] * np.eye(covariance.shape[-1]))
        return target.undo(predicted.loc), scale * target.scale, between

    @property
    def _head(self) -> Any:
        return self._fit.predictor.head

    def _head_of(self, uncertainty: str) -> Any:
        """The head whose distributions those of observations or of the latent function are."""
        return self._head if uncertainty == "observation" else self._head.of_function

    @property
    def _several_outputs(self) -> bool:
        return bool(self._target.scale.ndim == 1)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """(n, 1, ...) instead of (n, ...) where y was (n, 1)."""
        return values[:, None] if self._column else values
