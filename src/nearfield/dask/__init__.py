"""The estimators for Dask arrays and data frames: the bits of the ordinary ones, with rows on the workers of a cluster.

    from distributed import Client
    from nearfield.dask import GPRegressor

    client = Client("tcp://scheduler:8786")
    model = GPRegressor(random_state=0).fit(X, y)          # X, y: Dask arrays, or data frame and series
    mean, std = model.predict(X_new, return_std=True)      # Dask arrays, computed when they are asked for
    model.to_local().save("model.nearfield")               # the ordinary estimator

Rows are shuffled once into boxes on the workers, which search them; this process trains, and holds what is one number a
row. Needs the extra `nearfield[dask]`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from nearfield.columns import Columns
from nearfield.estimators import GPClassifier as LocalClassifier
from nearfield.estimators import GPCountRegressor as LocalCountRegressor
from nearfield.estimators import GPRegressor as LocalRegressor

try:
    import distributed

    from nearfield.dask._cluster import Cluster, ClusterError
    from nearfield.dask._estimator import DaskEstimator, Self, refuse_unsupported
    from nearfield.dask._table import sent
except ModuleNotFoundError as error:
    if error.name not in ("dask", "distributed", "pandas"):
        raise
    raise ModuleNotFoundError(
        f"nearfield.dask needs {error.name}, which is not installed: pip install 'nearfield[dask]'.", name=error.name
    ) from None

__all__ = ["ClusterError", "GPClassifier", "GPCountRegressor", "GPRegressor"]


class GPRegressor(RegressorMixin, DaskEstimator):
    """`nearfield.GPRegressor` for Dask arrays and data frames.

    `coordinates`, `leave_out="past"`, `buffer`, `objective="vecchia"`, `search="approximate"` and lists of
    `categorical_features` are not supported.
    """

    _local = LocalRegressor

    def fit(
        self: Self, X: Any, y: Any, sample_weight: Any = None, noise_variance: Any = None, groups: Any = None,
        times: Any = None,
    ) -> Self:  # fmt: skip
        """Fit Dask arrays or data frames.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Training rows.
        y : Dask array, data frame or series of shape (n,) or (n, P)
            Their targets.
        sample_weight : array-like or Dask collection of shape (n,), default=None
            How much each row counts, as for the ordinary estimator.
        noise_variance : float, array-like or Dask collection, default=None
            Known noise variances, as for the ordinary estimator.
        groups : None, default=None
            Not supported with Dask.
        times : None, default=None
            Not supported with Dask.

        Returns
        -------
        self
            The fitted estimator, whose rows stay on the workers.
        """
        beside = {"sample_weight": sample_weight, "noise_variance": noise_variance}
        return self._fitted(X, y, beside, {"groups": groups, "times": times})

    def predict(
        self, X: Any, return_std: bool = False, uncertainty: str = "observation", noise_variance: Any = None
    ) -> Any:
        """Predict means, and standard deviations where they are asked for.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        return_std : bool, default=False
            Whether standard deviations are returned, too.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" is of a new measurement, noise included; "latent" of the noise-free function.
        noise_variance : float, array-like or Dask collection, default=None
            Known noise variances of these rows, as for the ordinary estimator.

        Returns
        -------
        mean : Dask array of shape (n,) or (n, P)
            Means.
        std : Dask array of shape (n,) or (n, P)
            Standard deviations, with `return_std`.
        """
        given = {"noise_variance": noise_variance}
        return self._predicted("predict", X, given, return_std=return_std, uncertainty=uncertainty)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, uncertainty: str = "observation", noise_variance: Any = None
    ) -> Any:
        """Predict intervals that hold the target with a wanted probability.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        coverage : float, default=0.9
            That probability.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" is of a new measurement, noise included; "latent" of the noise-free function.
        noise_variance : float, array-like or Dask collection, default=None
            Known noise variances of these rows, as for the ordinary estimator.

        Returns
        -------
        lower : Dask array of shape (n,) or (n, P)
            Lower ends.
        upper : Dask array of shape (n,) or (n, P)
            Upper ends.
        """
        given = {"noise_variance": noise_variance}
        return self._predicted("predict_interval", X, given, coverage=coverage, uncertainty=uncertainty)

    def predict_quantiles(self, X: Any, q: Any, uncertainty: str = "observation", noise_variance: Any = None) -> Any:
        """Predict quantiles.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        q : float or array-like of shape (m,)
            Probabilities between 0 and 1.
        uncertainty : {"observation", "latent"}, default="observation"
            "observation" is of a new measurement, noise included; "latent" of the noise-free function.
        noise_variance : float, array-like or Dask collection, default=None
            Known noise variances of these rows, as for the ordinary estimator.

        Returns
        -------
        quantiles : Dask array of shape (n, m) or (n, P, m)
            Quantiles; (n,) or (n, P) for a single probability.
        """
        given = {"noise_variance": noise_variance}
        return self._predicted("predict_quantiles", X, given, q=np.asarray(q), uncertainty=uncertainty)


class GPClassifier(ClassifierMixin, DaskEstimator):
    """`nearfield.GPClassifier` for Dask arrays and data frames.

    `coordinates`, `leave_out="past"`, `buffer`, `search="approximate"` and lists of `categorical_features` are not
    supported.
    """

    _local = LocalClassifier

    def fit(self: Self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, times: Any = None) -> Self:
        """Fit Dask arrays or data frames.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Training rows.
        y : Dask array or series of shape (n,)
            Their labels.
        sample_weight : array-like or Dask collection of shape (n,), default=None
            How much each row counts, as for the ordinary estimator.
        groups : None, default=None
            Not supported with Dask.
        times : None, default=None
            Not supported with Dask.

        Returns
        -------
        self
            The fitted estimator, whose rows stay on the workers.
        """
        return self._fitted(X, y, {"sample_weight": sample_weight}, {"groups": groups, "times": times})

    def predict(self, X: Any) -> Any:
        """Predict the most probable labels.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        Dask array of shape (n,)
            Labels.
        """
        return self._predicted("predict", X)

    def predict_proba(self, X: Any) -> Any:
        """Predict probabilities of the classes.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        Dask array of shape (n, K)
            Probabilities, in the order of `classes_`.
        """
        return self._predicted("predict_proba", X)

    def predict_log_proba(self, X: Any) -> Any:
        """Predict logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        Dask array of shape (n, K)
            Logarithms, in the order of `classes_`.
        """
        return self._predicted("predict_log_proba", X)

    def decision_function(self, X: Any) -> Any:
        """Predict log odds.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        Dask array of shape (n,) or (n, K)
            Those of the second of two classes; of more classes, those of each against the others.
        """
        return self._predicted("decision_function", X)


class GPCountRegressor(RegressorMixin, DaskEstimator):
    """`nearfield.GPCountRegressor` for Dask arrays and data frames.

    `coordinates`, `leave_out="past"`, `buffer`, `search="approximate"` and lists of `categorical_features` are not
    supported.
    """

    _local = LocalCountRegressor

    def fit(
        self: Self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None,
        groups: Any = None, times: Any = None,
    ) -> Self:  # fmt: skip
        """Fit Dask arrays or data frames.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Training rows.
        y : Dask array or series of shape (n,)
            Their counts.
        sample_weight : array-like or Dask collection of shape (n,), default=None
            How much each row counts, as for the ordinary estimator.
        exposure : float, array-like or Dask collection, default=None
            Of the negative binomial: what expected counts are proportional to.
        trials : int, array-like or Dask collection, default=None
            Of the binomial: how many trials the successes are out of.
        groups : None, default=None
            Not supported with Dask.
        times : None, default=None
            Not supported with Dask.

        Returns
        -------
        self
            The fitted estimator, whose rows stay on the workers.
        """
        beside = {"sample_weight": sample_weight, "exposure": exposure, "trials": trials}
        return self._fitted(X, y, beside, {"groups": groups, "times": times})

    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None, trials: Any = None) -> Any:
        """Predict expected counts.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        return_std : bool, default=False
            Whether standard deviations are returned, too.
        exposure : float, array-like or Dask collection, default=None
            Of the negative binomial: what expected counts are proportional to.
        trials : int, array-like or Dask collection, default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        mean : Dask array of shape (n,)
            Expected counts.
        std : Dask array of shape (n,)
            Standard deviations of the counts, with `return_std`.
        """
        return self._predicted("predict", X, {"exposure": exposure, "trials": trials}, return_std=return_std)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, exposure: Any = None, trials: Any = None) -> Any:
        """Predict central intervals of whole numbers that hold at least a wanted share of the probability.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        coverage : float, default=0.9
            That share.
        exposure : float, array-like or Dask collection, default=None
            Of the negative binomial: what expected counts are proportional to.
        trials : int, array-like or Dask collection, default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        lower : Dask array of shape (n,)
            Lower counts, inside of the interval.
        upper : Dask array of shape (n,)
            Upper counts, inside of the interval.
        """
        return self._predicted("predict_interval", X, {"exposure": exposure, "trials": trials}, coverage=coverage)

    def predict_quantiles(self, X: Any, q: Any, *, exposure: Any = None, trials: Any = None) -> Any:
        """Predict quantiles, which are whole numbers.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.
        q : float or array-like of shape (m,)
            Probabilities between 0 and 1.
        exposure : float, array-like or Dask collection, default=None
            Of the negative binomial: what expected counts are proportional to.
        trials : int, array-like or Dask collection, default=None
            Of the binomial: how many trials the successes are out of.

        Returns
        -------
        quantiles : Dask array of shape (n, m)
            Quantiles; (n,) for a single probability.
        """
        return self._predicted("predict_quantiles", X, {"exposure": exposure, "trials": trials}, q=np.asarray(q))


@contextmanager
def connected(address: str, seconds: float) -> Iterator[distributed.Client]:
    """A client of the scheduler at an address; a ClusterError where there is none."""
    try:
        client = distributed.Client(address, timeout=seconds, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(f"there is no Dask scheduler at {address!r} ({error or type(error).__name__}).") from error
    with client:
        yield client


def fit_on_cluster(estimator: Any, client: distributed.Client, columns: Columns, y: Any, **beside: Any) -> None:
    """Fit an ordinary estimator to columns of this process, with its rows on a cluster until it has been fitted."""
    refuse_unsupported(estimator.get_params(), {name: beside.get(name) for name in ("groups", "times")})
    cluster = Cluster.of(client)
    cluster.require_workers()
    estimator._sender = lambda X: sent(cluster, X)
    try:
        estimator.fit(columns, y, **beside)
        rows = estimator._fit.predictor.rows
        predictor = replace(estimator._fit.predictor, rows=replace(rows, inputs=np.array(rows.inputs)))
        estimator._adopt(replace(estimator._fit, predictor=predictor))
    finally:
        del estimator._sender
        cluster.release()


def fit_parquet(
    client: distributed.Client, estimator: str, settings: Mapping[str, Any], path: str | os.PathLike[str], target: str
) -> Any:
    """The ordinary estimator of that name, fitted to Parquet files, or a folder of them, that the workers read."""
    import dask.dataframe

    from nearfield.streaming import Files

    files = Files(os.path.abspath(path))
    files.check(target)
    there: dict[str, bool] = client.run(os.path.exists, files.path)
    blind = sorted(worker for worker, found in there.items() if not found)
    if blind:
        raise ClusterError(
            f"{len(blind)} of {len(there)} workers, such as {blind[0]}, do not have {files.path}: put it where all "
            "workers see it under the same path, such as a network disk."
        )
    frame = dask.dataframe.read_parquet(files.paths, index=False).dropna(subset=[target])
    own = {one.__name__: one for one in (GPRegressor, GPClassifier, GPCountRegressor)}[estimator]
    return own(client=client, **settings).fit(frame.drop(columns=[target]), frame[target]).to_local()
