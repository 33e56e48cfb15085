"""Result files: one JSON file for each task, OUT/EXPERIMENT/ENTRY/DATA-SPLIT.json, written whole or not at all."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from experiments.task import Task
from nearfield.atomic import replacing

_PACKAGES = (
    "nearfield", "numpy", "scipy", "scikit-learn", "torch", "numba", "gpytorch", "gpboost", "MuyGPyS",
    "catboost", "ngboost",
)  # fmt: skip


class MixedResults(ValueError):
    """Quick and full results in one folder."""


def path_of(out: Path, task: Task) -> Path:
    """Where the result of a task lies."""
    return out / task.experiment / task.entry.name / f"{task.data}-{task.split}.json"


def described(task: Task) -> dict[str, Any]:
    """What a result file says of its task."""
    return {
        "experiment": task.experiment,
        "entry": task.entry.name,
        "method": task.entry.method,
        "options": dict(task.entry.options),
        "data": task.data,
        "split": task.split,
        "quick": task.quick,
        "threads": task.threads,
        "limit": task.limit,
    }


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result: a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "result") as file:
        file.write(f"{json.dumps(_plain(result), indent=1, allow_nan=False)}\n".encode())


def read(path: Path) -> dict[str, Any]:
    """One result."""
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not a result file ({error}): delete it, and run its experiment again.") from error
    return result


def read_all(out: Path) -> list[dict[str, Any]]:
    """All results of a folder, in the order of their paths."""
    return [read(path) for path in sorted(out.glob("*/*/*.json"))]


def is_there(out: Path, task: Task, retry: bool = False) -> bool:
    """Whether the task needs no run. With `retry`, one that did not finish or failed needs another."""
    path = path_of(out, task)
    if not path.exists():
        return False
    result = read(path)
    if result["quick"] != task.quick:
        kinds = ("a quick run", "a full run") if result["quick"] else ("a full run", "a quick run")
        raise MixedResults(f"{path} is of {kinds[0]} and this is {kinds[1]}: pass another folder with --out.")
    return result["status"] == "done" or not retry


def versions() -> dict[str, str]:
    """Of Python and of the packages that are installed."""
    return {"python": platform.python_version(), **dict(_installed())}


def _installed() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _plain(value: Any) -> Any:
    """Plain Python for JSON: numpy's numbers and arrays become numbers and lists; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
