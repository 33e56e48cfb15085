"""Time and memory of fits of more and more rows, in memory and out of core, and of predictions.

    python benchmarks/scale.py --rows 1e6 1e7 --columns 3 [--in-memory] [--folder /tmp/rows]
    python benchmarks/scale.py --rows 1e7 --columns 20

Rows are made by a known function, float32, a million to a Parquet file: uniform in three columns, else near a surface
of three dimensions. Each size is fitted in a process of its own. "without reading" is what comes after the table is
there, "boxes" the part of it in which rows are put into boxes, "training" that in which the model is trained, k chosen
and error bars set; the rest looks at all rows: wild values, equal rows, scales. "anonymous" is the peak of the memory
that is not the system's cache of files, beyond libraries and compiled code; "at most" is what docs/guide/scale.md says
of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

_FILE_ROWS = 1_000_000
_FIXED, _COLUMN = 150.0, 50.0  # MB of a fit of any size, and for each column


def made(first: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows X (n, d), a noisy target and its noise-free truth."""
    rng = np.random.default_rng(first)
    u = rng.random((n, 3))
    if d <= 3:
        X = u[:, :d]
    else:
        mix = np.random.default_rng(0).standard_normal((3, d))
        X = np.sin((2 * u - 1) @ mix) + 0.02 * rng.standard_normal((n, d))
    truth = np.sin(12 * u[:, 0]) * np.cos(9 * u[:, 1 % d]) + u[:, 2 % d] * np.sin(20 * u[:, 1 % d])
    return X.astype(np.float32), truth + 0.1 * rng.standard_normal(n), truth


def write(folder: Path, rows: int, d: int) -> None:
    """The table as a folder of Parquet files, if it is not there."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, rows, _FILE_ROWS):
        path = folder / f"{first:012d}.parquet"
        if not path.exists():
            X, y, _ = made(first, min(_FILE_ROWS, rows - first), d)
            parquet.write_table(pa.table({f"x{e}": X[:, e] for e in range(d)} | {"y": y}), path)


def anonymous() -> float:
    """MB of this process that are not pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")


class Peak:
    """The largest of what `anonymous` says, while it is looked at."""

    def __enter__(self) -> Peak:
        self.before = self.largest = anonymous()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.largest = max(self.largest, anonymous())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def added(self) -> float:
        return self.largest - self.before


def run(folder: str, rows: int, d: int, in_memory: bool, steps: int, predicted: int, answer: Any) -> None:
    from nearfield import GPRegressor
    from nearfield.learner import Learner
    from nearfield.neighbours import Boxes

    X, y, _ = made(0, 3000, d)
    GPRegressor(random_state=0, k=16, max_steps=20).fit(X, y).predict(X[:100])  # compiles
    told: dict[str, Any] = {"rows": rows, "columns": d}
    arrays: Any = (folder, "y")
    if in_memory:
        parts = [made(first, min(_FILE_ROWS, rows - first), d)[:2] for first in range(0, rows, _FILE_ROWS)]
        arrays = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        del parts
    boxing, learning = _timed(Boxes, "__init__", "cut_anew", "spots"), _timed(Learner, "learn")
    with Peak() as peak:
        began = time.perf_counter()
        model = GPRegressor(random_state=0, max_steps=steps).fit(*arrays)
        told["fit_s"] = time.perf_counter() - began
    ((start, stop),) = learning
    told["boxes_s"] = sum(b - a for a, b in boxing)
    told["training_s"] = stop - start - sum(b - a for a, b in boxing if start <= a < stop)
    told |= {"anonymous_mb": peak.added, "k": model.k_, "steps": model.summary_.steps}
    told["fitted_s"] = model.summary_.seconds
    new, _, truth = made(10**12, predicted, d)
    with Peak() as peak:
        began = time.perf_counter()
        mean, std = model.predict(new.astype(np.float64), return_std=True)
        told["predict_s"] = time.perf_counter() - began
    told["predict_mb"] = peak.added
    told["rmse_to_truth"] = float(np.sqrt(np.mean((mean - truth) ** 2)))
    noisy = truth + 0.1 * np.random.default_rng(1).standard_normal(len(truth))
    told["covered_90"] = float(np.mean(np.abs(mean - noisy) < 1.645 * std))
    answer.put(json.dumps(told))


def _timed(owner: type, *names: str) -> list[tuple[float, float]]:
    """When each call of some methods, or each first look at a cached property, will begin and end."""
    spent: list[tuple[float, float]] = []
    for name in names:
        plain = vars(owner)[name]
        cached = isinstance(plain, cached_property)

        def timed(*args: Any, inner: Any = plain.func if cached else plain) -> Any:
            began = time.perf_counter()
            try:
                return inner(*args)
            finally:
                spent.append((began, time.perf_counter()))

        replaced: Any = cached_property(timed) if cached else timed
        setattr(owner, name, replaced)
        if cached:
            replaced.__set_name__(owner, name)
    return spent


def formula(rows: int, d: int, in_memory: bool) -> float:
    """MB, as docs/guide/scale.md has it; in memory X and y themselves are not counted."""
    each = 75 + 12 * d if in_memory else 24 + 2 * d
    return _FIXED + _COLUMN * d + rows * each / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6])
    parser.add_argument("--columns", type=int, default=3)
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--steps", type=int, default=600, help="max_steps of the fit")
    parser.add_argument("--predict", type=float, default=1e6, help="rows to predict; with k = 512 a millisecond each")
    parser.add_argument("--folder", type=Path, help="where the Parquet files are, and stay")
    args = parser.parse_args()
    heads = ["rows", "columns", "fit, s", "without reading", "boxes, s", "training, s", "predict, s", "k"]
    heads += ["anonymous, MB", "at most", "RMSE", "90 %"]
    print(f"| {' | '.join(heads)} |\n|" + "---:|" * len(heads))
    context = multiprocessing.get_context("spawn")
    for rows in map(int, args.rows):
        folder = args.folder or Path(tempfile.mkdtemp())
        if not args.in_memory:
            write(folder / f"{rows}x{args.columns}", rows, args.columns)
        answer = context.Queue()
        given = (
            str(folder / f"{rows}x{args.columns}"),
            rows,
            args.columns,
            args.in_memory,
            args.steps,
            int(args.predict),
            answer,
        )
        child = context.Process(target=run, args=given)
        child.start()
        while child.is_alive() and answer.empty():
            child.join(1.0)
        if answer.empty():
            raise SystemExit(f"the fit of {rows:,} rows ended with exit code {child.exitcode}")
        t = json.loads(answer.get())
        child.join()
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
        cells = [f"{rows:,}", args.columns, f"{t['fit_s']:.0f}", f"{t['fitted_s']:.1f}", f"{t['boxes_s']:.1f}"]
        cells += [f"{t['training_s']:.1f}", f"{t['predict_s']:.0f}"]
        cells += [t["k"], f"{t['anonymous_mb']:,.0f}", f"{formula(rows, args.columns, args.in_memory):,.0f}"]
        cells += [f"{t['rmse_to_truth']:.4f}", f"{t['covered_90']:.3f}"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
