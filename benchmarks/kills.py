"""Workers that are killed at random times: every fit and prediction has the same bits or ends with an error in time.

    python benchmarks/kills.py --kills 50

A cluster of three workers on this machine, the same from the first round to the last; each round fits and predicts
while a random worker is killed once, at a random time, be the one killed before back or not; or several at once
(`--at-once 3` are all). Printed are how many rounds had the bits of the fit in memory, how many ended with an error,
the longest time from a kill to the end of its round, and how many workers there are at the end. A round that takes five
minutes is a hang: the script ends there and says where everybody waits.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import os
import random
import signal
import threading
import time

import dask
import dask.array as da
import numpy as np
from distributed import Client, KilledWorker, LocalCluster

import nearfield
from nearfield.dask import ClusterError, GPRegressor, _boxes


def table(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 3))
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(n)


_WORKERS = 3
_HANG = 300.0  # seconds of a round that are too many
_BACK = 60.0  # seconds in which all workers must be back at the end


class Killer(threading.Thread):
    """Kills some random workers after a random time."""

    def __init__(self, client: Client, within: float, count: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.client, self.wait, self.rng, self.at = client, rng.uniform(0, within), rng, None
        self.count = count

    def run(self) -> None:
        time.sleep(self.wait)
        for _ in range(20):
            try:
                pids = list(self.client.run(os.getpid, on_error="ignore").values())
                for pid in self.rng.sample(pids, min(self.count, max(1, len(pids)))):
                    os.kill(pid, signal.SIGKILL)
                self.at = time.perf_counter()
                return
            except (OSError, ValueError):
                time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=1, help="workers that are killed in each round")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    _boxes.FEW = 0  # small tables as if they were large: nothing is kept by the trainer
    X, y = table(given.rows, 0)
    new, _ = table(2000, 1)
    settings = {"random_state": 0, "k": 32, "max_steps": given.steps}
    local = nearfield.GPRegressor(**settings).fit(X, y)
    expected, rng, outcomes, longest = local.predict(new), random.Random(given.seed), collections.Counter(), 0.0
    parts = da.from_array(X, chunks=(given.rows // 8, 3)), da.from_array(y, chunks=given.rows // 8)
    # LocalCluster gives a worker up for good that is away 15 s after it was lost, even if it had been back before: of
    # one that is killed twice, 15 s apart, the second time. See docs/guide/dask.md.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})
    with (
        LocalCluster(n_workers=_WORKERS, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as own,
        Client(own) as client,
    ):
        round_of(settings, parts, new)  # everything is compiled and loaded
        began = time.perf_counter()
        assert np.array_equal(round_of(settings, parts, new), expected), "without a kill the bits differ"
        took = time.perf_counter() - began
        print(f"a round without a kill takes {took:.1f} s", flush=True)
        for number in range(given.kills):
            killer, before = Killer(client, 0.8 * took, given.at_once, rng), len(client.nthreads())
            killer.start()
            faulthandler.dump_traceback_later(_HANG, exit=True)
            outcome = tried(settings, parts, new, expected)
            faulthandler.cancel_dump_traceback_later()
            after = 0.0 if killer.at is None else time.perf_counter() - killer.at
            killer.join()
            longest = max(longest, after)
            outcomes[outcome] += 1
            when = f"{given.at_once} killed after {killer.wait:.1f} s"
            print(f"{number + 1}: {before} workers, {when}: {outcome}, {after:.1f} s later", flush=True)
        client.wait_for_workers(_WORKERS, timeout=_BACK)
        print(f"all {len(client.nthreads())} workers are there")
    print(dict(outcomes), f"the longest round ended {longest:.1f} s after its kill; without one it takes {took:.1f} s")


def tried(settings: dict, parts: tuple, new: np.ndarray, expected: np.ndarray) -> str:
    """What becomes of a round."""
    try:
        return "the same bits" if np.array_equal(round_of(settings, parts, new), expected) else "OTHER BITS"
    except (ClusterError, KilledWorker) as error:  # the second where Dask computes predictions
        print(f"  {type(error).__name__}: {error}")
        return "an error"


def round_of(settings: dict, parts: tuple, new: np.ndarray) -> np.ndarray:
    model = GPRegressor(**settings).fit(*parts)
    return model.predict(da.from_array(new, chunks=(500, 3))).compute()


if __name__ == "__main__":
    main()
