"""From names to result files: which fits there are, and one after the other until all are done."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from experiments.catalogue import EXPERIMENTS
from experiments.data import available
from experiments.ours import ALL_METHODS
from experiments.process import DONE, NOT_FINISHED, Stopped, run_limited
from experiments.store import described, is_there, path_of, read, versions, write
from experiments.task import LEAKLESS, TWINS, Experiment, Payload, Task

FULL_LIMIT, QUICK_LIMIT = 3600.0, 60.0
"""Seconds of one fit, unless the user says otherwise."""

_TO_END = 1.0  # seconds that a fit has to end by itself

TIMED = frozenset({"runtime"})
"""Experiments whose fits are never run beside others."""

THREADS = ("NEARFIELD_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Wish:
    """What the user asked for; None means the default of the experiment."""

    names: Sequence[str]
    splits: int | None = None
    quick: bool = False
    methods: Sequence[str] | None = None
    data: Sequence[str] | None = None
    limit: float | None = None
    openml: bool = False
    threads: int | None = None


def plan(wish: Wish) -> tuple[list[Task], list[str]]:
    """The tasks, and what is left out because its data are not there."""
    experiments = [_find(name) for name in wish.names]
    _check_names(experiments, wish)
    tasks: list[Task] = []
    left_out: list[str] = []
    for experiment in experiments:
        for data in _data(experiment, wish):
            if experiment.from_files and not available(_file(experiment, data), wish.openml):
                left_out.append(f"{experiment.name}: no data for {data}")
            else:
                tasks += _tasks(experiment, data, wish)
    if not tasks:
        raise ValueError(_nothing(wish, left_out))
    return tasks, left_out


def _nothing(wish: Wish, left_out: Sequence[str]) -> str:
    """Why there is nothing to do."""
    where = "set NEARFIELD_DATA to a folder that has NAME.npz, or add --openml to fetch what OpenML has."
    if left_out:
        return f"nothing to run. {'; '.join(left_out)}: {where}"
    if wish.methods is not None:
        return f"none of {', '.join(wish.names)} has the methods {', '.join(wish.methods)}."
    return f"none of {', '.join(wish.names)} has the data {', '.join(wish.data or ())}."


def _find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)} and all.")
    return EXPERIMENTS[name]


def _check_names(experiments: Sequence[Experiment], wish: Wish) -> None:
    """What no experiment knows is a mistake; but one experiment takes any data."""
    there = {name for experiment in experiments for name in experiment.data}
    unknown = [name for name in wish.data or () if name not in there and len(experiments) > 1]
    if unknown:
        raise ValueError(f"none of {', '.join(wish.names)} has data {', '.join(unknown)}; see `experiments list`.")
    known = {entry.name: None for experiment in experiments for entry in experiment.entries} | dict.fromkeys(
        ALL_METHODS
    )
    for name in wish.methods or ():
        if name not in known:
            raise ValueError(f"no method {name!r}; there are {', '.join(known)}.")


def _data(experiment: Experiment, wish: Wish) -> Sequence[str]:
    if wish.data is None:
        return (wish.quick and experiment.quick_data) or experiment.data
    if len(wish.names) > 1:
        return [name for name in wish.data if name in experiment.data]
    unknown = [name for name in wish.data if name not in experiment.data]
    if unknown and not experiment.from_files:  # of files, others of the same kind are welcome
        raise ValueError(f"{experiment.name} has no data {', '.join(unknown)}; there are {', '.join(experiment.data)}.")
    return wish.data


def _file(experiment: Experiment, data: str) -> str:
    """The file of a data set: that of the original, for one that the experiment makes from it."""
    return data.removesuffix(TWINS).removesuffix(LEAKLESS) if data in experiment.data else data


def _tasks(experiment: Experiment, data: str, wish: Wish) -> Iterable[Task]:
    """Split by split, so that a run that is stopped early has all methods of the first."""
    default = [entry.name for entry in experiment.entries]
    limit = (QUICK_LIMIT if wish.quick else FULL_LIMIT) if wish.limit is None else wish.limit
    for split in range(wish.splits or (1 if wish.quick else experiment.splits)):
        for name in default if wish.methods is None else wish.methods:
            entry = experiment.entry(name)
            able = entry.method in ALL_METHODS and experiment.kind in ALL_METHODS[entry.method].kind
            if able and (name in default or experiment.takes_any):
                yield Task(experiment.name, entry, data, split, wish.quick, limit, wish.openml, wish.threads)


def run(
    tasks: Sequence[Task],
    out: Path,
    jobs: int = 1,
    retry: bool = False,
    say: Callable[[str], None] = print,
    do: Callable[[Task], Payload] | None = None,
) -> dict[str, int]:
    """Do all tasks that have no result file yet; how many ended in which way. `do` is for tests."""
    todo = [task for task in tasks if not is_there(out, task, retry)]
    ended: dict[str, int] = {"there already": len(tasks) - len(todo)}
    stop, lock = threading.Event(), threading.Lock()
    with tqdm(total=len(tasks), initial=len(tasks) - len(todo), unit="fit", disable=None) as bar:

        def one(task: Task) -> None:
            if stop.is_set():
                return
            try:
                result = perform(task, out, stop, do or execute)
            except Stopped:
                return
            with lock:
                ended[result["status"]] = ended.get(result["status"], 0) + 1
                bar.set_postfix_str(f"{task.experiment} {task.data} {task.entry.name}")
                bar.update()
                if bar.disable or result["status"] != DONE:
                    tqdm.write(_line(task, result)) if not bar.disable else say(_line(task, result))

        timed = [task for task in todo if task.experiment in TIMED]
        together = [task for task in todo if task.experiment not in TIMED]
        for at_once, part in ((jobs, together), (1, timed)):
            with ThreadPoolExecutor(at_once) as pool:
                try:
                    for future in [pool.submit(one, task) for task in part]:
                        future.result()
                except BaseException:
                    stop.set()
                    pool.shutdown(cancel_futures=True)
                    raise
    return ended


def perform(task: Task, out: Path, stop: threading.Event | None, do: Callable[[Task], Payload]) -> dict[str, Any]:
    """One task in a process of its own, and its result file.

    It is not tried where another split did not finish: splits have the same number of rows.
    """
    began = time.monotonic()
    timed = replace(task, deadline=began + task.limit - _TO_END)
    outcome = _hopeless(task, out) or run_limited(do, timed, task.limit, stop)
    result = {
        **described(task),
        **outcome,
        "elapsed": time.monotonic() - began,
        "cores": os.cpu_count(),
        "versions": versions(),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write(path_of(out, task), result)
    return result


def _hopeless(task: Task, out: Path) -> dict[str, Any] | None:
    """The outcome of a task whose like, with as much time, did not finish on an earlier split."""
    for split in range(task.split):
        path = path_of(out, replace(task, split=split))
        if path.exists():
            earlier = read(path)
            if earlier["status"] == NOT_FINISHED and earlier["limit"] >= task.limit:
                return {"status": NOT_FINISHED, "message": f"not tried: split {split} did not finish"}
    return None


def execute(task: Task) -> Payload:
    """In the child."""
    return EXPERIMENTS[task.experiment].run(task)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def limit_threads(jobs: int) -> int:
    """Share the cores out among the processes to be started; what the user has set in the environment stays."""
    threads = max(1, cores() // jobs)
    for name in THREADS:
        os.environ.setdefault(name, str(threads))
    return int(os.environ["OMP_NUM_THREADS"])


def _line(task: Task, result: dict[str, Any]) -> str:
    """One line for a log."""
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in result.get("metrics", {}).items() if value is not None)
    what = metrics or result.get("message") or (f"limit {task.limit:g} s" if result["status"] != DONE else "")
    where = f"{task.experiment} / {task.data} / split {task.split} / {task.entry.name}"
    return f"{where}: {result['status']} in {result['elapsed']:.1f} s; {what}"
