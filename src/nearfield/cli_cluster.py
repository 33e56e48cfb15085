"""Fits of the command line on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nearfield.cli_arguments import UserError

_SECONDS = 30  # to reach a scheduler


@contextmanager
def fitting_on(address: str | None) -> Iterator[Callable[..., Any]]:
    """What fits an estimator to columns: the estimator itself, or with its rows on the cluster at an address."""
    if address is None:
        yield lambda estimator, *rows, **beside: estimator.fit(*rows, **beside)
        return
    with _cluster_at(address) as (dask, client):
        yield lambda estimator, *rows, **beside: dask.fit_on_cluster(estimator, client, *rows, **beside)


def fit_where_files_are(address: str, estimator: str, settings: Mapping[str, Any], table: Path, target: str) -> Any:
    """The estimator of that name, fitted on the cluster at an address, whose workers read the Parquet files."""
    with _cluster_at(address) as (dask, client):
        return dask.fit_parquet(client, estimator, settings, table, target)


@contextmanager
def _cluster_at(address: str) -> Iterator[tuple[Any, Any]]:
    """The module `nearfield.dask` and a client of that scheduler; what is wrong with them is a UserError."""
    try:
        from nearfield import dask
    except ModuleNotFoundError as error:
        raise UserError(f"--dask: {error}") from error
    try:
        with dask.connected(address, _SECONDS) as client:
            yield dask, client
    except dask.ClusterError as error:
        raise UserError(f"--dask {address}: {error}") from error
