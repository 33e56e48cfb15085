"""ALC: local approximate GP regression (Gramacy & Apley 2015), as in the R package laGP (Gramacy 2016), the paper's.

Nothing is trained. For each row x to predict, a design of k rows is grown among its nearest candidates: first a few
nearest, then again and again the candidate that lowers the variance at x most,

    cov(x, c | design)^2 / var(c | design)                                              # the ALC criterion

under length scales and a nugget common to all rows. Length scales and nugget are then fitted to the design alone, by
the likelihood with the scale integrated out and with laGP's gamma priors, and the prediction is a Student-t with k
degrees of freedom. The kernel is laGP's, the Gaussian, and the mean is zero:

    K_ij = exp(-sum_l (x_il - x_jl)^2 / theta_l) + g [i = j],    alpha = K^-1 y,    psi = y' alpha
    log L = -k/2 log psi - 1/2 log det K + log priors
    mean = c' alpha,    scale^2 = psi / k (1 + g - c' K^-1 c)

Adding a row to the design adds a column to each candidate's part of the Cholesky factor, so a whole selection costs
candidates x k^2 / 2. One theta (isotropic) or one for each input is chosen on validation rows: laGP has both, and the
paper needed the first for one of its data sets.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from scipy.stats import gamma
from sklearn.neighbors import NearestNeighbors

from experiments.methods.alc_compiled import SHAPE, predict_rows
from experiments.methods.common import best_on_validation, blocks, configured
from experiments.methods.protocol import Array, Prediction, Settings, check_deadline

_ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class Config:
    k: int = 64
    candidates: int = 1000
    start: int = 6
    lengths: tuple[str, ...] = ("separable", "isotropic")
    iterations: int = 30
    validation_rows: int = 300
    least_scale: float = 1e-6  # of the predictive, where neighbours agree exactly; y has scale 1


FULL = Config()
QUICK = Config(candidates=300, iterations=15, validation_rows=100)


@dataclass(frozen=True)
class Priors:
    """Starts, bounds and gamma rates of theta and of the nugget, from the data as laGP's darg and garg do."""

    start: Array
    low: Array
    high: Array
    rate: Array

    @classmethod
    def of(cls, X: Array, y: Array, seed: int) -> Priors:
        rows = np.random.default_rng(seed).permutation(len(X))[:1000]
        distances = pdist(X[rows], "sqeuclidean")
        distances = distances[distances > 0]
        squares = (y - y.mean()) ** 2
        start = np.array([np.quantile(distances, 0.1), max(np.quantile(squares, 0.025), 1e-6)])
        high = np.array([distances.max(), squares.max()])
        low = np.array([distances.min() / 2, np.sqrt(np.finfo(float).eps)])
        return cls(start, low, high, gamma.ppf(0.95, SHAPE) / high)


def build(settings: Settings) -> ALC:
    return ALC(configured(FULL, QUICK, settings), settings.thread_count())


class ALC:
    """See the module."""

    def __init__(self, config: Config, threads: int) -> None:
        self.config, self.threads = config, threads
        self.chosen: dict[str, Any] = {}

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        self._X, self._y = np.ascontiguousarray(X), np.ascontiguousarray(y, dtype=np.float64)
        self._priors = Priors.of(self._X, self._y, seed)
        self._search = NearestNeighbors(n_neighbors=min(self.config.candidates, len(X))).fit(self._X)
        few = slice(self.config.validation_rows)

        def with_lengths(lengths: str) -> Callable[[Array], Prediction]:
            return lambda x: self._predict(x, lengths, deadline)

        self._lengths, _ = best_on_validation(self.config.lengths, with_lengths, X_val[few], y_val[few], deadline)
        self.chosen = {"lengths": self._lengths, "k": min(self.config.k, len(X))}

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        return self._predict(X, self._lengths, deadline)

    def _predict(self, X: Array, lengths: str, deadline: float | None) -> Prediction:
        X = np.ascontiguousarray(X)
        k = min(self.config.k, len(self._X))
        moments = np.empty((len(X), 2))
        groups = np.arange(X.shape[1]) if lengths == "separable" else np.zeros(X.shape[1], dtype=np.int64)
        p = self._priors

        def work(rows: slice) -> None:
            check_deadline(deadline)
            near = self._search.kneighbors(X[rows], return_distance=False)
            predict_rows(
                X[rows], self._X, self._y, near, k, min(self.config.start, k), groups,
                p.start, p.low, p.high, p.rate, self.config.iterations, moments[rows],
            )  # fmt: skip

        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(work, rows) for rows in blocks(len(X), _ROWS_AT_ONCE)]
            try:
                for future in futures:
                    future.result()
            finally:
                pool.shutdown(cancel_futures=True)
        scale = np.maximum(moments[:, 1], self.config.least_scale)
        return Prediction.student_t(np.full(len(X), float(k)), moments[:, 0], scale)
