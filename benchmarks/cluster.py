"""A Dask cluster on one machine beside one process: time of a fit and of predictions, as ratios in one run.

    python benchmarks/cluster.py --rows 10000000 --new 1000000

The fit of rows of three columns in this process with two threads, and on two workers of one thread each; then the same
predictions with two workers and with one, of the model that was fitted so. 512 neighbours are chosen for 10^7 rows,
with which a million predictions take a quarter of an hour: `--k 64` is for these. Bits are compared; 1, 2 and 4
workers and 8 and 64 partitions on a smaller table at the end (`--small`). "sent" is what went over the loopback
interface, by whomever: between workers, scheduler and trainer.
"""

from __future__ import annotations

import argparse
import time
from contextlib import contextmanager

import dask.array as da
import numpy as np
import psutil
from distributed import Client, LocalCluster

import nearfield
from nearfield.dask import GPRegressor


def table(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 3)).astype(np.float32)
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(n)


@contextmanager
def workers(count: int):
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        yield client


def timed(what: str, task):
    before, began = sent(), time.perf_counter()
    found = task()
    took = time.perf_counter() - began
    print(f"{what}: {took:.1f} s, {(sent() - before) / 2**20:,.0f} MB sent", flush=True)
    return found, took


def sent() -> int:
    """Bytes over the loopback interface since the machine was started."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def remote(X: np.ndarray, parts: int):
    return da.from_array(X, chunks=(-(-len(X) // parts), *X.shape[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--new", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--k", type=int, help="neighbours of the large fit; by default they are chosen")
    given = parser.parse_args()
    settings = {"random_state": 0} if given.k is None else {"random_state": 0, "k": given.k}
    X, y = table(given.rows, 0)
    new, _ = table(given.new, 1)
    warm = table(5000, 2)
    nearfield.GPRegressor(random_state=0, max_steps=50).fit(*warm).predict(new[:100])  # compiled before it is timed
    local, alone = timed("fit in this process", lambda: nearfield.GPRegressor(**settings).fit(X, y))
    expected = local.predict(new[:20_000])
    times = {}
    for count in (2, 1):
        with workers(count):
            GPRegressor(random_state=0, max_steps=50).fit(remote(warm[0], 4), remote(warm[1], 4)).predict(
                remote(new[:1000], 4)
            ).compute()
            inputs = remote(X, given.partitions), remote(y, given.partitions)
            model, took = timed(f"fit with {count} workers", lambda i=inputs: GPRegressor(**settings).fit(*i))
            found, took_new = timed(
                f"{given.new:,} predictions with {count} workers",
                lambda m=model: m.predict(remote(new, given.partitions)).compute(),
            )
            assert np.array_equal(found[:20_000], expected), "the bits differ"
            times[count] = took, took_new
            del model
    print(f"fit, two workers over this process: {times[2][0] / alone:.2f} (at most 1.5)")
    print(f"predictions, one worker over two: {times[1][1] / times[2][1]:.2f} (at least 1.6)")
    X, y = X[: given.small], y[: given.small]
    expected = nearfield.GPRegressor(random_state=0).fit(X, y).predict(new[:5000])
    for count in (1, 2, 4):
        with workers(count):
            for parts in (8, 64):
                model = GPRegressor(random_state=0).fit(remote(X, parts), remote(y, parts))
                found = model.predict(remote(new[:5000], parts)).compute()
                print(f"{count} workers, {parts} partitions: same bits {np.array_equal(found, expected)}", flush=True)


if __name__ == "__main__":
    main()
