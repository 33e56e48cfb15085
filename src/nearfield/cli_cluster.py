"""Fits of the command line on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nearfield.cli_arguments import UserError

_SECONDS = 30  # to reach a scheduler


@contextmanager
def fitting_on(address: str | None) -> Iterator[Callable[..., Any]]:
    """What fits an estimator to columns: the estimator itself, or with its rows on the cluster at an address."""
    if address is None:
        yield lambda estimator, *rows, **beside: estimator.fit(*rows, **beside)
        return
    try:
        from nearfield.dask import ClusterError, connected, fit_on_cluster
    except ModuleNotFoundError as error:
        raise UserError(f"--dask: {error}") from error
    try:
        with connected(address, _SECONDS) as client:
            yield lambda estimator, *rows, **beside: fit_on_cluster(estimator, client, *rows, **beside)
    except ClusterError as error:
        raise UserError(f"--dask {address}: {error}") from error
