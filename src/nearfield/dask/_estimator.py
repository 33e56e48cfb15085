"""What the estimators for Dask collections share: an ordinary estimator that trains here, and rows on the workers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import distributed
import numpy as np
from dask.base import is_dask_collection
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from nearfield.dask._boxes import RemoteInputs
from nearfield.dask._cluster import Cluster
from nearfield.dask._predicting import Placed
from nearfield.dask._table import RemoteColumns, partitions_of
from nearfield.neighbours import BoxedInputs, Boxes, find_equal_rows
from nearfield.rows import BOXED_ROWS

Self = TypeVar("Self", bound="DaskEstimator")

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_CLIENT = """\
    client : distributed.Client, default=None
        The Dask client; None takes the current one.
"""
_UNSUPPORTED: Mapping[str, Any] = {
    "coordinates": lambda value: value is not None,
    "leave_out": lambda value: value != "one",
    "buffer": lambda value: value is not None,
    "objective": lambda value: value == "vecchia",
    "search": lambda value: value != "exact",
    "categorical_features": lambda value: value is not None and not isinstance(value, str),
}


class DaskEstimator(BaseEstimator):
    """An ordinary estimator whose rows are on a cluster. `client` is the Dask client; None takes the current one."""

    _local: ClassVar[type]
    _trainer: Any
    client: distributed.Client | None

    def __init__(self, *, client: distributed.Client | None = None, **parameters: Any) -> None:
        self.client = client
        self.__dict__.update(self._local(**parameters).get_params(deep=False))

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "_local" in vars(cls):
            own, *others = inspect.signature(cls._local).parameters.values()
            client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
            every = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (own, *others)]
            cls.__signature__ = inspect.Signature([client, *every])
            cls.__doc__ = _documented(cls.__doc__ or "", cls._local.__doc__ or "")

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(["client", *cls._local._get_param_names()])  # type: ignore[attr-defined]

    def __sklearn_clone__(self: Self) -> Self:
        """A client is shared, never copied."""
        parameters = self.get_params(deep=False)
        client = parameters.pop("client")
        return type(self)(client=client, **{name: clone(value, safe=False) for name, value in parameters.items()})

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: without the client, and with the rows, if there are any."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("_placed", "_cluster")}
        state["client"] = None
        if "_trainer" in state:
            state["_trainer"] = self.to_local()
        return state

    def __getattr__(self, name: str) -> Any:
        """What was learned, under the names of the ordinary estimator."""
        if name.endswith("_") and not name.startswith("_") and "_trainer" in self.__dict__:
            return getattr(self._trainer, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return "_trainer" in self.__dict__

    @property
    def client_(self) -> distributed.Client:
        """The Dask client in use."""
        return Cluster.of(self.client).client

    # --- fitting ----------------------------------------------------------------------------------------------------

    def _fitted(self: Self, X: Any, y: Any, beside: dict[str, Any], refused: Mapping[str, Any]) -> Self:
        """Fit, and keep the rows on the workers; after an error nothing is left there."""
        parameters = self.get_params(deep=False)
        refuse_unsupported(parameters, refused)
        _require_collection(X, "X", " Use nearfield's own estimators for data in memory.")
        if y is None:
            raise ValueError("y is None: the targets of the rows are expected.")
        cluster = Cluster.of(parameters.pop("client"))
        trainer = self._local(**parameters)
        cluster.require_workers()
        try:
            columns = RemoteColumns(cluster, X)
            given = {name: _here(cluster, value) for name, value in {"y": y, **beside}.items()}
            for name, value in given.items():
                if np.ndim(value) and len(value) != len(columns):
                    raise ValueError(f"{name} has {len(value):,} rows, and X has {len(columns):,}: expected as many.")
            trainer.fit(columns, given.pop("y"), **given)
        except BaseException:
            cluster.release()
            raise
        columns.release()
        if columns.is_array:
            trainer.__dict__.pop("feature_names_in_", None)
        self.__dict__.pop("_placed", None)
        self._trainer, self._cluster = trainer, cluster
        return self

    def to_local(self) -> Any:
        """Make the ordinary estimator, with all rows in this process: the same predictions to the last bit.

        Returns
        -------
        estimator
            That of `nearfield`, which can be saved.
        """
        self._require_fit()
        local = copy.copy(self._trainer)
        fit = local._fit
        rows = fit.predictor.rows
        if isinstance(rows.inputs, RemoteInputs):
            inputs: Any = np.array(rows.inputs)
            if len(inputs) >= BOXED_ROWS:
                inputs = BoxedInputs(Boxes(inputs, find_equal_rows(inputs), np.ones(inputs.shape[1])))
            predictor = replace(fit.predictor, rows=replace(rows, inputs=inputs))
            local._fit = replace(fit, predictor=predictor)
        return local

    # --- predicting -------------------------------------------------------------------------------------------------

    def _predicted(self, method: str, X: Any, given: Mapping[str, Any] = _NOTHING, **arguments: Any) -> Any:
        """Dask arrays of what a method of the ordinary estimator says; given: numbers for all rows, or one for each."""
        self._require_fit()
        _require_collection(X, "X", " Use to_local() for data in memory.")
        self._check_columns(X)
        if "_placed" not in self.__dict__:
            cluster = self.__dict__.get("_cluster") or Cluster.of(self.client)
            cluster.require_workers()
            self._placed = Placed(cluster, self._trainer, self.to_local)
        parts = partitions_of(X)
        sizes = _sizes(X, len(parts))
        alone = {name: value for name, value in given.items() if value is not None and not np.ndim(value)}
        along = {name: value for name, value in given.items() if value is not None and np.ndim(value)}
        split = {name: _split(name, value, X, sizes) for name, value in along.items()}
        own = [{name: values[i] for name, values in split.items()} for i in range(len(parts))]
        return self._placed.predict(parts, sizes, own, method, {**arguments, **alone})

    def support(self, X: Any) -> Any:
        """Say how much the training rows tell about each row, from 0, nothing, to 1.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
            Rows to predict, with the columns of the training table.

        Returns
        -------
        Dask array of shape (n,) or (n, P)
            The support.
        """
        return self._predicted("support", X)

    def _check_columns(self, X: Any) -> None:
        names = getattr(self._trainer, "feature_names_in_", None)
        if hasattr(X, "columns") and names is not None and [str(name) for name in X.columns] != list(names):
            raise ValueError(f"X has the columns {list(X.columns)}; those of the fit are expected: {list(names)}.")
        if X.shape[1] != self._trainer.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} columns; the {self._trainer.n_features_in_} of the fit are expected.")

    def _require_fit(self) -> None:
        if "_trainer" not in self.__dict__:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")


def _documented(own: str, local: str) -> str:
    """A class's doc string with the parameters and attributes of the ordinary estimator."""
    sections = local.split("\n    Parameters\n    ----------\n", 1)[1].split("\n    See Also\n", 1)[0]
    return f"{own.rstrip()}\n\n    Parameters\n    ----------\n{_CLIENT}{sections}"


def refuse_unsupported(parameters: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
    """Raise ValueError for what is not for clusters, before anything is sent."""
    asked = [name for name, is_set in _UNSUPPORTED.items() if name in parameters and is_set(parameters[name])]
    asked += [name for name, value in beside.items() if value is not None]
    if asked:
        said = ", ".join(f"{name}={parameters.get(name, beside.get(name))!r:.60}" for name in asked)
        raise ValueError(
            f"{said}: not supported with Dask, where rows cannot be hidden from each other, located or encoded as "
            "levels. Leave it out, or fit nearfield's own estimator to the data in memory."
        )


def _require_collection(X: Any, name: str, remedy: str) -> None:
    if not is_dask_collection(X) or not (hasattr(X, "rechunk") or hasattr(X, "columns")):
        raise TypeError(f"{name} is a {type(X).__name__}: a Dask array or data frame is expected.{remedy}")


def _here(cluster: Cluster, value: Any) -> Any:
    """A value for each row, brought to this process if it is a Dask collection."""
    return cluster.results(cluster.compute([value]))[0] if is_dask_collection(value) else value


def _sizes(X: Any, parts: int) -> list[int | None]:
    """Rows of the partitions of X, None where they are not known."""
    if not hasattr(X, "rechunk") or np.isnan(X.shape[0]):
        return [None] * parts
    return [int(size) for size in X.chunks[0]]


def _split(name: str, values: Any, X: Any, sizes: list[int | None]) -> list[Any]:
    """Values (n, ..) for the rows of X as its partitions are."""
    if is_dask_collection(values):
        parts = list(np.ravel(values.to_delayed())) if hasattr(values, "rechunk") else list(values.to_delayed())
        if len(parts) != len(sizes):
            raise ValueError(f"{name} has {len(parts)} partitions, and X has {len(sizes)}: expected the same.")
        return parts
    if None in sizes:
        raise ValueError(f"{name} is in memory, and X has partitions of unknown length: pass it as a Dask collection.")
    ends = np.cumsum(np.array(sizes, dtype=np.int64))
    if len(values) != ends[-1]:
        raise ValueError(f"{name} has {len(values)} rows, and X has {ends[-1]}: expected as many.")
    return list(np.split(np.asarray(values), ends[:-1]))
