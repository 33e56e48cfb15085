"""`make cluster-demo`: four workers on this machine, a fit, one worker killed in the middle of it, the same bits."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import nearfield
from nearfield.dask import GPRegressor

_ROWS, _NEW, _COLUMNS = 150_000, 4000, 3
_SETTINGS: dict[str, Any] = {"random_state": 0, "k": 64, "max_steps": 200}
_AFTER = 0.5  # seconds between the first boxes and the kill


def main() -> None:
    """Fit in this process and on a cluster, and compare."""
    X, y = _table(_ROWS, seed=0)
    new, _ = _table(_NEW, seed=1)
    began = time.perf_counter()
    local = nearfield.GPRegressor(**_SETTINGS).fit(X, y)
    expected = local.predict(new, return_std=True)
    _say(f"{_ROWS:,} rows of {_COLUMNS} columns. A fit and {_NEW:,} predictions in this process", began)
    print("(the first time on a machine most of it is compiling).\n")
    # Of workers that are lost, which is what they are here for, the workers' own and Dask's loggers tell at length.
    os.environ["DASK_LOGGING__DISTRIBUTED"] = "critical"
    own: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=4, threads_per_worker=1, **own) as cluster, Client(cluster) as client:
        began = time.perf_counter()
        killed: list[str] = []
        killer = threading.Thread(target=_kill_one, args=(client, killed), daemon=True)
        killer.start()
        remote = da.from_array(X, chunks=(_ROWS // 12, _COLUMNS)), da.from_array(y, chunks=_ROWS // 12)
        model = GPRegressor(**_SETTINGS).fit(*remote)
        in_time = bool(killed)
        _say("The same fit on four workers", began)
        killer.join(60)
        began = time.perf_counter()
        lazy = model.predict(da.from_array(new, chunks=(1000, _COLUMNS)), return_std=True)
        found = [part.compute() for part in lazy]
        _say("The same predictions", began)
        print(f"\n{model.summary_}\n")
    same = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    print("Means and standard deviations are the same, to the last bit." if same else "THE BITS DIFFER.")
    if not in_time:
        print("NO WORKER WAS KILLED DURING THE FIT.")
    raise SystemExit(0 if same and in_time else 1)


def _say(what: str, began: float) -> None:
    print(f"{what}: {time.perf_counter() - began:.0f} s", flush=True)


def _kill_one(client: Client, killed: list[str]) -> None:
    """Kill a worker that has rows in boxes, once there is one, and name it."""
    for _ in range(600):
        held: dict[Any, Any] = {
            worker: [key for key in keys if "build_box" in str(key)] for worker, keys in client.has_what().items()
        }
        with_boxes = [worker for worker, keys in held.items() if keys]
        if len(with_boxes) >= 2:
            time.sleep(_AFTER)
            victim = with_boxes[0]
            pid = client.run(os.getpid, workers=[victim])[victim]
            os.kill(pid, signal.SIGKILL)
            killed.append(victim)
            print(f"  killed the worker {victim}, which held {len(held[victim])} of the boxes", flush=True)
            return
        time.sleep(0.1)


def _table(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, _COLUMNS))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(n)


if __name__ == "__main__":
    main()
