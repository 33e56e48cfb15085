"""What stands in for a fit in the tests of the experiments: importable by the processes that they spawn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

_root = str(Path(__file__).parents[1])  # `experiments` lies beside `src`
if _root not in sys.path:
    sys.path.append(_root)

from experiments.task import Entry, Task  # noqa: E402


def task(entry: str = "loo-k", data: str = "bike", split: int = 0, experiment: str = "univariate", **more) -> Task:
    return Task(experiment, Entry(entry, entry), data, split, **{"limit": 60.0, **more})


def result(task: Task) -> dict:
    return {"rows": {"train": 15, "columns": 2}, "metrics": {"nll": float(task.split), "rmse": 0.5}, "chosen": {"k": 8}}


def failing(task: Task) -> dict:
    raise ValueError("no such luck")


def too_large(task: Task) -> dict:
    from experiments.methods import TooLarge

    raise TooLarge("more than 10 rows")


def too_late(task: Task) -> dict:
    from experiments.methods import check_deadline

    check_deadline(time.monotonic() - 1)
    raise AssertionError("the deadline has passed")


def no_answer(task: Task) -> dict:
    raise TimeoutError("a server did not answer")


def told(task: Task) -> dict:
    return {"deadline": task.deadline}


def crashing(task: Task) -> dict:
    os._exit(3)


def endless(task: Task) -> dict:
    """Starts a process of its own, notes both numbers in the file that `data` names, and never ends."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(task.data).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
    return {}
