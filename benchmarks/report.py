"""Time of `nearfield report`, without the fit: a process of its own for each, and in which part of the page it goes.

    python benchmarks/report.py [--data kin40k covtype] [--models FOLDER] [--rows N]

Models are fitted with defaults, to at most N rows, and kept in the folder, from where another run takes them; without
one they are gone at the end. Seconds are those of the whole command, which loads the modules and opens the model; the
processor's are beside them, since others on the machine do not count in these. The first run of all may compile.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _data import load

from nearfield import GPClassifier, GPRegressor, TrainingRowsWarning
from nearfield.cli_saved import SavedModel
from nearfield.report import data
from nearfield.report.html import html

RUNS = 2
PARTS = ("left_out", "importance", "evaluation", "effects", "training", "table", "maps")
COMMAND = "import sys; from nearfield.cli import main; sys.exit(main(sys.argv[1:]))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["kin40k", "covtype"])
    parser.add_argument("--models", type=Path)
    parser.add_argument("--rows", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.models or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.data:
            path = model_of(name, args.rows, folder)
            report(name, path, Path(temporary) / "page.html")


def model_of(name: str, rows: int | None, folder: Path) -> Path:
    """The file of a model, which is fitted where there is none."""
    path = folder / f"{name}{'' if rows is None else f'-{rows}'}.nearfield"
    if path.exists():
        return path
    X, y = load(name)
    which = np.random.default_rng(0).permutation(len(X))[:rows]
    kind = GPClassifier if np.issubdtype(y.dtype, np.integer) else GPRegressor
    began = time.perf_counter()
    model = kind(random_state=0).fit(X[which], y[which])
    print(f"{name}: fitted to {len(which):,} rows in {time.perf_counter() - began:.0f} s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingRowsWarning)
        model.save(path)
    return path


def report(name: str, path: Path, page: Path) -> None:
    for run in range(RUNS):
        seconds, processor = process(
            [sys.executable, "-c", COMMAND, "report", str(path), "--out", str(page), "--quiet"]
        )
        print(f"{name}: run {run + 1}, {seconds:.1f} s, of the processor {processor:.1f} s; page {size(page)}")
    spent: dict[str, float] = defaultdict(float)
    whole, _ = clocked(lambda: told(path, page, spent))
    for part, own in sorted(spent.items(), key=lambda entry: -entry[1]):
        print(f"    {part:<12}{own:6.2f} s of the processor")
    print(f"    {'the rest':<12}{whole - sum(spent.values()):6.2f}")


def told(path: Path, page: Path, spent: dict[str, float]) -> None:
    """What the command does, in this process, with the time of each part."""
    with timed_parts(spent):
        spent["opening"], model = clocked(lambda: opened(path))
        found = data.report_data(model)
        spent["page"], text = clocked(lambda: html(found))
    page.write_text(text)


def opened(path: Path) -> Any:
    with SavedModel(path) as saved:
        return saved.load()


@contextmanager
def timed_parts(spent: dict[str, float]) -> Iterator[None]:
    """Parts of the dict that is behind a page take the time."""
    whole = {name: getattr(data, name) for name in PARTS}
    for name, function in whole.items():
        setattr(data, name, timed(name, function, spent))
    try:
        yield
    finally:
        for name, function in whole.items():
            setattr(data, name, function)


def timed(name: str, function: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        seconds, found = clocked(lambda: function(*args, **kwargs))
        spent[name] += seconds
        return found

    return wrapped


def clocked(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, and the answer."""
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


def process(command: list[str]) -> tuple[float, float]:
    """Seconds by the clock and of the processor that a process takes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size(page: Path) -> str:
    return f"{page.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
