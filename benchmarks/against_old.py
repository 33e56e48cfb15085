"""This version against an older one: installation, import, command line and fits, in turns, in processes of their own.

    NEARFIELD_OLD=/path/to/old/checkout python benchmarks/against_old.py TASK [NAME ...] [--repeats 3]

    install        MB of the site-packages of a plain `pip install .` (--old: of the old version too)
    import         CPU time of `from nearfield import GPRegressor` over that of numba, sklearn.base and scipy.linalg
    cli            CPU time of `nearfield predict` of five rows with a small model
    outputs        default fits of the README's three outputs and of fw_baxter
    wide           default fits of adult and splice
    fit NAME ...   default fits of any data sets
    search         128 nearest neighbours in 10^6 uniform rows of three and eight columns, kin40k, and 10^5 of thirty

NEARFIELD_OLD is the checkout of the old version with its own virtual environment in .venv; without it, the new version
is measured alone. Fits are of training rows, NLL is that of test rows. Each figure is the best, in brackets the median,
of several turns after one that does not count; compiled code is read from a cache. What both versions run is the public
API, and of searches `neighbours.build_index`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = "import numba, sklearn.base, scipy.linalg"
PACKAGE = "from nearfield import GPRegressor"
COMMAND = """
try:
    from nearfield.entry import main
except ImportError:  # a version whose command is in another place
    from nearfield.cli import main
main()
"""
_QUERIES, _NEIGHBOURS = 2000, 128
Measured = dict[str, float]
Series = dict[str, list[float]]


@dataclass(frozen=True)
class Version:
    """A checkout, and the Python that has what it needs."""

    name: str
    root: Path
    python: str

    def run(self, *arguments: str) -> tuple[Measured, str]:
        """CPU and wall seconds of a Python process, and what it printed."""
        sources = b"".join(path.read_bytes() for path in sorted((self.root / "src").rglob("*.py")))
        state = hashlib.sha256(sources).hexdigest()[:16]  # Numba alone would miss changes of what a function calls
        cache = f"{tempfile.gettempdir()}/nearfield-numba-{os.getuid()}-{state}"
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "NUMBA_CACHE_DIR": cache}
        before, began = _children(), time.perf_counter()
        ended = subprocess.run([self.python, *arguments], env=environment, capture_output=True, text=True, check=False)
        wall, cpu = time.perf_counter() - began, _children() - before
        if ended.returncode:
            raise SystemExit(f"{self.name}: {' '.join(arguments)[:200]} failed:\n{ended.stderr}")
        return {"cpu": cpu, "wall": wall}, ended.stdout


def versions() -> list[Version]:
    """The new one, and the old one if there is any."""
    found = [Version("new", ROOT, sys.executable)]
    if "NEARFIELD_OLD" in os.environ:
        old = Path(os.environ["NEARFIELD_OLD"]).resolve()
        python = old / ".venv" / "bin" / "python"
        if not python.exists():
            raise SystemExit(f"No {python}: NEARFIELD_OLD must be a checkout with a virtual environment in .venv.")
        found.append(Version("old", old, str(python)))
    return found


def in_turns(contestants: dict[Any, Callable[[], Measured]], repeats: int) -> dict[Any, Series]:
    """What each measured in its turns, the first of which does not count; every other round runs backwards."""
    found: dict[Any, Series] = {name: {} for name in contestants}
    for turn in range(repeats + 1):
        for name in list(contestants)[:: 1 if turn % 2 else -1]:
            for measure, value in contestants[name]().items():
                if turn:
                    found[name].setdefault(measure, []).append(value)
    return found


def report(title: str, found: dict[str, Series], base: str) -> None:
    """A table with one line a contestant, and CPU and wall time of each over those of `base`."""
    measures = list(found[base])
    print(f"\n| {title} | {' | '.join(measures)} | CPU over {base} | wall over {base} |")
    print("|---" * (len(measures) + 3) + "|")
    for name, of in found.items():
        cells = [f"{best:.4g} ({median:.4g})" for best, median in (_both(of[m]) for m in measures)]
        for m in ("cpu", "wall"):
            (best, median), (base_best, base_median) = _both(of[m]), _both(found[base][m])
            cells.append(f"{best / base_best:.2f} ({median / base_median:.2f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def install(both: Sequence[Version]) -> None:
    for version in both:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
            python = Path(folder) / "bin" / "python"
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", str(version.root)]
            subprocess.run(pip, check=True)
            files = [p for p in Path(folder).glob("lib/python*/site-packages/**/*") if p.is_file()]
            print(f"{version.name}: {len(files):,} files, {sum(p.lstat().st_size for p in files) / 1e6:.0f} MB")


def imports(both: Sequence[Version], repeats: int) -> None:
    lines = {"libraries": LIBRARIES, "nearfield": PACKAGE}
    contestants = {(name, v): lambda c=c, v=v: v.run("-c", c)[0] for v in both for name, c in lines.items()}
    found = in_turns(contestants, repeats)
    for version in both:
        report(f"import, {version.name}", {name: found[name, version] for name in lines}, "libraries")


def cli(both: Sequence[Version], repeats: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((505, 4))
    table = np.column_stack([X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(505)])
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (("train", slice(500)), ("five", slice(500, None))):
            np.savetxt(f"{folder}/{name}.csv", table[rows], delimiter=",", header="a,b,c,d,y", comments="")

        def predict(version: Version) -> Measured:
            arguments = (f"{folder}/{version.name}.nearfield", f"{folder}/five.csv")
            return version.run("-c", COMMAND, "predict", *arguments, "--out", f"{folder}/{version.name}.csv")[0]

        for version in both:
            out = f"{folder}/{version.name}.nearfield"
            version.run("-c", COMMAND, "fit", f"{folder}/train.csv", "--target", "y", "--out", out)
        report("predict five rows", in_turns({v.name: lambda v=v: predict(v) for v in both}, repeats), both[-1].name)


def fits(both: Sequence[Version], names: Sequence[str], repeats: int) -> None:
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/rows.npz"
            np.savez(path, **(three_outputs() if name == "three_outputs" else of_catalogue(name)))

            def fit(version: Version, path: str = path) -> Measured:
                return json.loads(version.run(__file__, "--worker", path)[1].splitlines()[-1])

            found = in_turns({version.name: lambda v=version: fit(v) for version in both}, repeats)
            report(name, found, both[-1].name)


def searches(both: Sequence[Version], repeats: int) -> None:
    rng = np.random.default_rng(0)
    for name in ("uniform 1e6 x 3", "uniform 1e6 x 8", "kin40k", "uniform 1e5 x 30"):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/rows.npz"
            if name == "kin40k":
                parts = of_catalogue(name)
                X, queries = parts["X"] / parts["X"].std(axis=0), parts["X_test"] / parts["X"].std(axis=0)
            else:
                _, n, _, d = name.split()
                X, queries = rng.random((int(float(n)), int(d))), rng.random((_QUERIES, int(d)))
            np.savez(path, X=X, queries=queries[:_QUERIES])
            contestants = {(v.name, "auto"): v for v in both} | {("new", "product"): both[0]}

            def search(version: Version, kind: str, path: str = path) -> Measured:
                return json.loads(version.run(__file__, "--search-worker", path, kind)[1].splitlines()[-1])

            found = in_turns({f"{n}, {k}": lambda v=v, k=k: search(v, k) for (n, k), v in contestants.items()}, repeats)
            report(name, found, f"{both[-1].name}, auto")


def search_worker(path: str, kind: str) -> Measured:
    """Microseconds a query of many at once, and of single ones; the time is that of the many."""
    from nearfield.neighbours import build_index

    with np.load(path) as arrays:
        X, queries = arrays["X"], arrays["queries"]
    index = build_index(X, kind)
    index.query(queries[:64], _NEIGHBOURS)
    wall, single = time.perf_counter(), []
    for i in range(50):
        index.query(queries[i : i + 1], _NEIGHBOURS)
        single.append(time.perf_counter() - wall)
        wall = time.perf_counter()
    cpu, wall = time.process_time(), time.perf_counter()
    index.query(queries, _NEIGHBOURS)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "us a query": 1e6 * wall / len(queries), "us, single": 1e6 * np.median(single)}


def three_outputs() -> dict[str, np.ndarray]:
    """The README's example, its last 200 rows to test."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1200, 2))
    left, right = np.sin(2 * X[:, 0]) + X[:, 1], np.cos(3 * X[:, 1])
    Y = np.stack([left, left - right, 2 * right], axis=1) + 0.1 * rng.standard_normal((1200, 3))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    return {"X": X[:1000], "y": Y[:1000], "X_test": X[1000:], "y_test": Y[1000:]}


def of_catalogue(name: str) -> dict[str, np.ndarray]:
    """Training and test rows of the first split; a class that training does not have is not scored."""
    from _data import load, split

    parts = split(*load(name), seed=0)
    known = np.isin(parts.y_test, parts.y) if parts.classes else np.full(len(parts.y_test), True)
    return {"X": parts.X, "y": parts.y, "X_test": parts.X_test[known], "y_test": parts.y_test[known]}


def worker(path: str) -> Measured:
    """One default fit, its score and the memory it took; a short fit before it loads the compiled code."""
    from _timing import peak_rss_mb

    from nearfield import GPClassifier, GPRegressor

    with np.load(path) as arrays:
        X, y, X_test, y_test = (arrays[name] for name in ("X", "y", "X_test", "y_test"))
    kind = GPClassifier if np.issubdtype(y.dtype, np.integer) else GPRegressor
    some = np.random.default_rng(0).permutation(len(X))[:1000]
    kind(max_steps=50, random_state=0).fit(X[some], y[some])
    cpu, wall = time.process_time(), time.perf_counter()
    model = kind(random_state=0).fit(X, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "NLL": -float(model.log_score(X_test, y_test)), "peak MB": peak_rss_mb()}


def _both(values: list[float]) -> tuple[float, float]:
    return min(values), statistics.median(values)


def _children() -> float:
    """CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "task", choices=("install", "import", "cli", "outputs", "wide", "fit", "search"), metavar="TASK", nargs="?"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets, for the task fit")
    parser.add_argument("--repeats", type=int, help="turns; 3 of fits, 7 of the rest")
    parser.add_argument("--old", action="store_true", help="install the old version too")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--search-worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(worker(args.worker)))
        return
    if args.search_worker:
        print(json.dumps(search_worker(*args.search_worker)))
        return
    if args.task is None or bool(args.names) != (args.task == "fit"):
        parser.error("a TASK is needed, and names of data sets with the task fit alone.")
    both = versions()
    if args.task == "install":
        install(both if args.old else both[:1])
    elif args.task == "import":
        imports(both, args.repeats or 7)
    elif args.task == "cli":
        cli(both, args.repeats or 7)
    elif args.task == "search":
        searches(both, args.repeats or 3)
    else:
        names = {"outputs": ["three_outputs", "fw_baxter"], "wide": ["adult", "splice"]}.get(args.task, args.names)
        fits(both, names, args.repeats or 3)


if __name__ == "__main__":
    main()
