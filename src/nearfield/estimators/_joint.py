"""Joint prediction: samples over all rows at once, covariances between rows, averages over blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfield.copula import refuse_too_large, to_marginals, with_noise
from nearfield.estimators._base import GPEstimator
from nearfield.estimators._noise import KnownNoise
from nearfield.validation import check_choice, is_int

MOST_ROWS = 5000  # of a covariance matrix between rows
_UNCERTAINTIES = ("observation", "latent")


class _Sampling(GPEstimator):
    """What the estimators' samples have in common; the estimators inherit from the classes below."""

    def _normals(
        self, X: np.ndarray, n_samples: Any, random_state: Any, copies: int = 2
    ) -> tuple[Any, np.ndarray, np.random.Generator]:
        """Moments at features X (n, m), standard normals (n, C, s) that vary as the latent functions do, and a stream
        of random numbers for what comes after."""
        if not (is_int(n_samples) and n_samples >= 1):
            raise ValueError(f"n_samples is {n_samples!r}: expected a whole number of at least 1.")
        predictor = self._fit.predictor
        refuse_too_large((len(X), predictor.model.family.latents, int(n_samples)), "samples", copies)
        seed = int(check_random_state(random_state).randint(2**31))
        latent, rest = (np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(2))
        moments = predictor.moments(X, self._fit.inputs)
        z = predictor.jointly(X, self._fit.inputs, moments).sample(int(n_samples), latent)
        coupling = float(getattr(predictor.head, "coupling", 1.0))
        if coupling < 1:  # outputs depend on each other less than the model says: see `OutputHeads`
            z = self._decoupled(X, moments, z, coupling, latent)
        return moments, z, rest

    def _decoupled(
        self, X: np.ndarray, moments: Any, z: np.ndarray, coupling: float, rng: np.random.Generator
    ) -> np.ndarray:
        """The same with that share of the correlations between outputs, by samples of which each gives one output."""
        joint = self._fit.predictor.jointly(X, self._fit.inputs, moments)
        z *= math.sqrt(coupling)
        for p in range(z.shape[1]):
            z[:, p] += math.sqrt(1 - coupling) * joint.sample(z.shape[2], rng)[:, p]
        return z


class JointRegression(KnownNoise, _Sampling):
    """Samples, covariances and averages of numbers."""

    @property
    def _head(self) -> Any:
        raise NotImplementedError

    @property
    def _several_outputs(self) -> bool:
        raise NotImplementedError

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        uncertainty: str = "observation",
        noise_variance: Any = None,
    ) -> Any:
        """Draw samples over all rows jointly: conditional simulation.

        Each is one way that all rows may turn out together: nearby rows are alike, as the model expects, and where
        there are data nearby the sample agrees with them. For one row alone, samples follow `predict_dist`; rows are
        joined by a Gaussian copula with the correlations of the latent function given the data.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        n_samples : int, default=1
            How many.
        random_state : int, RandomState instance or None, default=0
            Seed of the samples. The same int gives the same bits.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" has independent noise at each row; "latent" is of the noise-free function.
        noise_variance : float or array-like, default=None
            Known noise variances of these rows, as for `predict`.

        Returns
        -------
        ndarray of shape (n, n_samples) or (n, P, n_samples)
            The samples.
        """
        check_is_fitted(self)
        check_choice("uncertainty", uncertainty, _UNCERTAINTIES)
        X = self._inputs(X)
        known = self._known_noise(noise_variance, len(X), uncertainty)
        moments, z, rng = self._normals(X, n_samples, random_state)
        predictor, head = self._fit.predictor, self._head_of(uncertainty)
        loc, scale, share = self._marginals(self._head.predicted(moments, predictor.noise(known)), uncertainty)
        heads = getattr(head, "heads", (head,))
        for p, own in enumerate(heads):
            one = np.ascontiguousarray(z[:, p])
            if uncertainty == "observation":
                with_noise(one, share[:, p], rng)
            to_marginals(one, own.df, loc[:, p], scale[:, p])
            z[:, p] = one
        return z if self._several_outputs else self._shaped(z[:, 0])

    def _marginals(self, predicted: Any, uncertainty: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Centre and scale (n, P) in the units of the target, and the share (n, P) of the variance that is noise."""
        latent = np.maximum(predicted.latent_scale, 1e-12)
        noisy = uncertainty == "observation"
        scale = predicted.scale if noisy else latent
        alike = self._head.of_function.unit_std / self._head.unit_std
        share = 1 - np.minimum(predicted.latent_scale / scale * alike, 1.0) ** 2 if noisy else np.zeros(scale.shape)
        found = self._target.undo(predicted.loc), scale * self._target.scale, share
        loc, scale, share = (part.reshape(len(part), -1) for part in found)
        return loc, scale, share

    def _between_rows(
        self, X: np.ndarray, uncertainty: str, known: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means (n,) and covariances (n, n) of one output at features X (n, m), in the units of the target.

        known: noise variances (n, 1) of the rows in standardised units.
        """
        predictor = self._fit.predictor
        moments = predictor.moments(X, self._fit.inputs)
        loc, scale, share = (
            part[:, 0] for part in self._marginals(self._head.predicted(moments, predictor.noise(known)), uncertainty)
        )
        std = scale * self._head_of(uncertainty).unit_std
        found = predictor.jointly(X, self._fit.inputs, moments).correlation()
        latent = std * np.sqrt(1 - share)
        found *= latent[:, None] * latent
        np.fill_diagonal(found, std**2)
        return loc, found

    def _joint_covariance(self, X: Any, uncertainty: str, noise_variance: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Means and covariances (n, n) between rows, for `predict`."""
        X = self._inputs(X)
        if len(X) > MOST_ROWS:
            raise ValueError(
                f"return_cov with {len(X):,} rows is a matrix of {len(X):,} x {len(X):,} numbers: at most "
                f"{MOST_ROWS:,} rows are possible. Use sample_y, whose samples have these covariances."
            )
        known = self._known_noise(noise_variance, len(X), uncertainty)
        loc, covariance = self._between_rows(X, uncertainty, known)
        return self._shaped(loc), covariance


class JointClasses(_Sampling):
    """Samples of labels and of the latent functions of classes."""

    classes_: np.ndarray

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, uncertainty: str = "observation") -> Any:
        """Draw samples of the labels of all rows jointly: nearby rows turn out alike.

        For one row alone, labels have the probabilities of `predict_proba`.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        n_samples : int, default=1
            How many.
        random_state : int, RandomState instance or None, default=0
            Seed of the samples. The same int gives the same bits.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation": labels. "latent": samples of the latent functions as the trained model has them, of the
            second of two classes, or of each of more.

        Returns
        -------
        ndarray of shape (n, n_samples) or (n, K, n_samples)
            The samples; the second only of latent functions of more than two classes.
        """
        check_is_fitted(self)
        check_choice("uncertainty", uncertainty, _UNCERTAINTIES)
        X = self._inputs(X)
        moments, z, rng = self._normals(X, n_samples, random_state, 3)
        if uncertainty == "latent":
            z *= np.sqrt(moments.variance)[:, :, None]
            z += moments.mean[:, :, None]
            return z[:, 0] if z.shape[1] == 1 else z
        predictor = self._fit.predictor
        p = predictor.head.predicted(moments, predictor.model.noise).p
        return self.classes_[_labels(p, z, self._noise_shares(moments.variance), rng)]

    def _noise_shares(self, variance: np.ndarray) -> np.ndarray:
        """Share (n, C) of chance, and not of the latent functions with variances (n, C), in what label comes out.

        The logistic distribution is taken for a normal one of variance 8 / pi, as in the head.
        """
        head = self._fit.predictor.head
        spread = math.exp(2 * getattr(head, "log_slope", 0.0) + getattr(head, "log_spread", 0.0))
        return 1 / (1 + math.pi / 8 * spread * variance)


class JointCounts(_Sampling):
    """Samples of counts."""

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        uncertainty: str = "observation",
        *,
        exposure: Any = None,
        trials: Any = None,
    ) -> Any:
        """Draw samples of the counts of all rows jointly: nearby rows turn out alike.

        For one row alone, counts follow `predict_dist`.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        n_samples : int, default=1
            How many.
        random_state : int, RandomState instance or None, default=0
            Seed of the samples. The same int gives the same bits.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation": counts. "latent": the logarithm of the expected count per unit of exposure, of the binomial
            likelihood the log odds.
        exposure : float or array-like of shape (n,), default=None
            Of the negative binomial: what expected counts are proportional to, such as time, area or people.
        trials : int or array-like of shape (n,), default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        ndarray of shape (n, n_samples)
            The samples.
        """
        check_is_fitted(self)
        check_choice("uncertainty", uncertainty, _UNCERTAINTIES)
        told = self._given_again(exposure, trials)
        X = self._inputs(X)
        given = self._family.given_arrays(len(X), **told)
        moments, z, rng = self._normals(X, n_samples, random_state, 5)
        predictor = self._fit.predictor
        predicted = predictor.head.predicted(moments, predictor.model.noise)
        if uncertainty == "latent":
            return predicted.mean[:, None] + np.sqrt(predicted.variance)[:, None] * z[:, 0]
        dist = self._distribution(predicted, given)
        if hasattr(dist, "given_normals"):
            return np.ascontiguousarray(dist.given_normals(z[:, 0].T, rng).T)
        return np.stack([dist.ppf(ndtr(one)) for one in z[:, 0].T], axis=1)  # a family's own distribution

    def _given_again(self, exposure: Any, trials: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _distribution(self, predicted: Any, observed: Any) -> Any:
        raise NotImplementedError


def _labels(p: np.ndarray, z: np.ndarray, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Classes (n, s) of probabilities p (n, K), given standard normals z (n, C, s), of which a share (n, C) is noise.

    Class after class is taken or not, with its probability among those that are left: so each has the probability that
    it should have, and latent functions that do not depend on each other decide.
    """
    classes = p.shape[1]
    order = [1, 0] if z.shape[1] == 1 else list(range(classes))  # of two, the latent function is that of the second
    found = np.full((len(p), z.shape[2]), order[-1], dtype=np.int64)
    pending, left = np.ones(found.shape, dtype=bool), np.ones(len(p))
    for place, c in enumerate(order[:-1]):
        own = np.ascontiguousarray(z[:, place])
        with_noise(own, noise[:, place], rng)
        chance = np.clip(p[:, c] / np.maximum(left, 1e-300), 0.0, 1.0)
        taken = pending & (own > -ndtri(chance)[:, None])
        found[taken] = c
        pending &= ~taken
        left = left - p[:, c]
    return found
