"""Clocks for noisy machines: best of several runs, and alternatives timed alternately in one process."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SETTLING = 0.05  # seconds of a turn that do not count


@dataclass(frozen=True)
class Timing:
    """Seconds a call."""

    best: float
    median: float


def best_of(func: Callable[[], object], repeats: int = 5, min_time: float = 0.2) -> float:
    """Best seconds a call of `func` after one warm-up: at least `repeats` runs, at least `min_time` seconds in all."""
    func()
    best, spent, runs = float("inf"), 0.0, 0
    while runs < repeats or spent < min_time:
        seconds = _clock(func)
        best, spent, runs = min(best, seconds), spent + seconds, runs + 1
    return best


def interleaved(
    funcs: dict[str, Callable[[], object]],
    repeats: int = 7,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Each of `funcs` timed in `repeats` turns of `calls`, so that all meet the same weather.

    clock: `time.process_time` for the time of the processor, where others keep the machine busy.

    Every turn begins with calls that do not count, for SETTLING seconds: the threads of whoever ran before may still be
    spinning, as those of OpenMP do after their work is done.
    """
    seconds: dict[str, list[float]] = {name: [] for name in funcs}
    for round_ in range(repeats):
        # Every other round runs backwards: nobody always follows the same neighbour.
        names = list(funcs) if round_ % 2 == 0 else list(funcs)[::-1]
        for name in names:
            best_of(funcs[name], repeats=1, min_time=SETTLING)
            seconds[name] += [_clock(funcs[name], clock) for _ in range(calls)]
    return {name: Timing(min(s), statistics.median(s)) for name, s in seconds.items()}


def gemm_rate(dtype: type = np.float64, n: int = 1024, repeats: int = 10) -> float:
    """The machine's matrix product rate in GF/s, the better of numpy and torch: the yardstick for kernels."""
    import torch

    a = np.random.default_rng(0).standard_normal((n, n)).astype(dtype)
    a_torch, out, out_torch = torch.from_numpy(a), np.empty_like(a), torch.from_numpy(np.empty_like(a))
    found = interleaved(
        {"numpy": lambda: np.matmul(a, a, out=out), "torch": lambda: torch.matmul(a_torch, a_torch, out=out_torch)},
        repeats,
    )
    return 2 * n**3 / min(t.best for t in found.values()) / 1e9


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far, MB of 2^20 bytes."""
    # On Linux ru_maxrss of a started program begins at its parent's size; VmHWM counts the program alone.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _clock(func: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    func()
    return clock() - start
