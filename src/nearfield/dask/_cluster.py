"""Work for a Dask cluster: tasks that can be done again, and waiting that ends.

Tasks are plain futures. Dask remembers how each came about, so that what a lost worker had is computed again by others.
Whoever waits looks every few seconds whether there still is a cluster, and gives up within a minute where there is not.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dask
import distributed
from distributed.comm.core import CommClosedError

LONELY = 40.0
"""Seconds without any worker, or with none that is not paused, after which waiting ends."""
_LOOK = 5.0  # seconds between two looks at the cluster
_TRANSFER = 60.0  # seconds that results of one round may take on their way
_STALLED = 45.0  # seconds in which nothing was finished and nothing is worked on
_NAME = "nearfield"
_GIVEN_UP: tuple[type[Exception], ...] = tuple(
    getattr(distributed.scheduler, name)
    for name in ("KilledWorker", "NoValidWorkerError", "NoWorkerError")
    if hasattr(distributed.scheduler, name)
)  # what Dask raises for tasks that it does not try any more; which there are depends on its version

_training = False  # whether this process has had a client of ours: then it has the threads of a trainer


class ClusterError(RuntimeError):
    """The cluster cannot do, or finish, what was asked of it."""


class Cluster:
    """A client, and what we ask of it."""

    def __init__(self, client: distributed.Client) -> None:
        global _training
        _training = True
        self.client = client
        self._ours: weakref.WeakSet[Any] = weakref.WeakSet()

    @classmethod
    def of(cls, client: distributed.Client | None) -> Cluster:
        """That of a client, or of the current one."""
        if client is None:
            try:
                client = distributed.default_client()
            except ValueError:
                raise ClusterError(
                    "there is no Dask client: make one first, such as distributed.Client('tcp://scheduler:8786') or "
                    "distributed.Client() for workers on this machine, or pass client=."
                ) from None
        if getattr(client, "asynchronous", False):
            raise ClusterError("the Dask client is asynchronous: make a Client without asynchronous=True.")
        return cls(client)

    def workers(self) -> dict[str, Any]:
        """What is known of each worker, by address."""
        try:
            found: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        except TypeError:  # versions without the argument tell of all
            found = self.client.scheduler_info()["workers"]
        return dict(sorted(found.items()))

    def require_workers(self, seconds: float = LONELY) -> dict[str, Any]:
        """The workers, once there is one."""
        until = time.monotonic() + seconds
        while True:
            self._require_scheduler()
            found = self.workers()
            if found:
                return found
            if time.monotonic() > until:
                raise ClusterError(
                    f"the Dask cluster has had no workers for {seconds:.0f} seconds: start some, such as `dask worker "
                    "tcp://scheduler:8786`, and fit again."
                )
            time.sleep(min(0.2, seconds))

    def _require_scheduler(self) -> None:
        if self.client.status != "running":
            raise ClusterError(
                f"the Dask client is {self.client.status}: its scheduler cannot be reached. Connect a new client."
            )

    def submit(self, task: Callable[..., Any], *given: Any, workers: Sequence[str] | None = None) -> Any:
        """The future of task(*given). workers: who should do it, if they can."""
        placed = {} if not workers else {"workers": list(workers), "allow_other_workers": True}
        future = self.client.submit(task, *given, pure=False, key=self._key(task), **placed)
        self._ours.add(future)
        return future

    def compute(self, delayed: Sequence[Any]) -> list[Any]:
        """The futures of delayed objects and other collections."""
        futures = list(self.client.compute(list(delayed)))
        self._ours.update(futures)
        return futures

    def release(self) -> None:
        """Let go of everything that was submitted, so that nothing is left on the workers."""
        for future in list(self._ours):
            future.release()
        self._ours.clear()

    def each(self, task: Callable[..., Any], many: Iterable[Any], *given: Any) -> list[Any]:
        """The futures of task(one, *given) for one after the other."""
        return [self.submit(task, one, *given) for one in many]

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """What the futures become, in their order; a ClusterError where nobody will tell."""
        waiting = _Waiting(self)
        while futures:
            try:
                return self._gathered(futures)
            except (TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError):
                if any(future.status == "error" for future in futures):
                    raise  # of a task
                waiting.look(futures)
            except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
                self._require_scheduler()
                raise ClusterError(
                    "tasks were cancelled: the data they need are lost, or the cluster was restarted. Data that are "
                    "part of a graph, such as files read by Dask, can be loaded again; scattered ones cannot."
                ) from error
            except CommClosedError as error:
                raise ClusterError(
                    f"the scheduler of the Dask cluster was lost: {error}. Connect a new client."
                ) from error
            except _GIVEN_UP as error:
                raise ClusterError(
                    "Dask has given a task up, because it lost several workers one after the other, perhaps for lack "
                    "of memory, or because there was no worker for it: use larger or more workers. Dask says: "
                    f"{error}"
                ) from error
        return []

    def result(self, future: Any) -> Any:
        """What one future becomes."""
        return self.results([future])[0]

    def _gathered(self, futures: Sequence[Any]) -> list[Any]:
        async def gather() -> Any:
            return await self.client.gather(list(futures), asynchronous=True)

        seconds = _TRANSFER if all(future.done() for future in futures) else _LOOK
        found: list[Any] = self.client.sync(gather, callback_timeout=seconds)
        return found

    @staticmethod
    def _key(task: Callable[..., Any]) -> str:
        return f"{_NAME}-{task.__name__.strip('_')}-{os.urandom(12).hex()}"


class _Waiting:
    """What is seen of a cluster while somebody waits."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._done = cluster, -1
        self._met = self._moved = time.monotonic()

    def look(self, futures: Sequence[Any]) -> None:
        """Raise ClusterError if waiting any longer is in vain."""
        cluster, now = self._cluster, time.monotonic()
        cluster._require_scheduler()
        workers = cluster.workers()
        if any(about.get("status", "running") == "running" for about in workers.values()):
            self._met = now
        elif now - self._met > LONELY and workers:
            raise ClusterError(
                f"all {len(workers)} workers of the Dask cluster have been paused for {LONELY:.0f} seconds, which Dask "
                "does where their memory is nearly full: use larger ones, or more of them, and fit again."
            )
        elif now - self._met > LONELY:
            raise ClusterError(
                f"the Dask cluster has had no workers for {LONELY:.0f} seconds: all were lost, perhaps for lack of "
                "memory, which their logs tell. Start some, and fit again."
            )
        done = sum(future.done() for future in futures)
        if done != self._done or any(cluster.client.processing().values()):
            self._done, self._moved = done, now
        elif now - self._moved > _STALLED:
            raise ClusterError(
                f"the Dask cluster has worked on nothing for {_STALLED:.0f} seconds, though tasks are waiting: look at "
                "its dashboard and logs, and fit again."
            )


def itself(value: Any) -> Any:
    """A value that is sent to the workers with the task, so that it cannot be lost."""
    return value


@contextmanager
def large_tasks() -> Iterator[None]:
    """Tasks may carry numbers of many rows, so that they can be done again: Dask does not warn of them."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        yield


def on_worker() -> None:
    """Compiled code may use as many threads as the worker has, not all of the machine."""
    if _training or "NEARFIELD_THREADS" in os.environ:
        return
    try:
        worker = distributed.get_worker()
    except ValueError:
        return
    os.environ["NEARFIELD_THREADS"] = str(worker.state.nthreads)
