"""`make cluster-demo`: four workers on this machine, a fit, one worker killed in the middle of it, the same bits."""

from __future__ import annotations

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
_STEPS = 200


def main() -> None:
    """Fit on a cluster and in this process, and compare."""
    X, y = _table(_ROWS, seed=0)
    new, _ = _table(_NEW, seed=1)
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        print(f"{_ROWS:,} rows of {_COLUMNS} columns, on four workers of this machine:")
        killer = threading.Thread(target=_kill_one, args=(client,), daemon=True)
        killer.start()
        began = time.perf_counter()
        remote = da.from_array(X, chunks=(_ROWS // 12, _COLUMNS)), da.from_array(y, chunks=_ROWS // 12)
        model = GPRegressor(random_state=0, max_steps=_STEPS).fit(*remote)
        print(f"fitted in {time.perf_counter() - began:.0f} s\n{model.summary_}\n")
        killer.join(60)
        began = time.perf_counter()
        found = [part.compute() for part in model.predict(da.from_array(new, chunks=(1000, _COLUMNS)), return_std=True)]
        print(f"{_NEW:,} predictions in {time.perf_counter() - began:.0f} s")
    began = time.perf_counter()
    local = nearfield.GPRegressor(random_state=0, max_steps=_STEPS).fit(X, y)
    print(f"the same fit in this process took {time.perf_counter() - began:.0f} s")
    same = all(np.array_equal(a, b) for a, b in zip(found, local.predict(new, return_std=True), strict=True))
    print("means and standard deviations are the same, to the last bit" if same else "THE BITS DIFFER")
    raise SystemExit(0 if same else 1)


def _kill_one(client: Client) -> None:
    """Kill a worker that has rows in boxes, once there is one."""
    for _ in range(600):
        held: dict[Any, Any] = {
            worker: [key for key in keys if "build_box" in str(key)] for worker, keys in client.has_what().items()
        }
        with_boxes = [worker for worker, keys in held.items() if keys]
        if len(with_boxes) >= 2:
            time.sleep(2.0)
            victim = with_boxes[0]
            pid = client.run(os.getpid, workers=[victim])[victim]
            print(f"killing the worker {victim}, which has {len(held[victim])} boxes")
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.5)


def _table(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, _COLUMNS))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(n)


if __name__ == "__main__":
    main()
