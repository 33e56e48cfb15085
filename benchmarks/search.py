"""Nearest neighbours: our three searches, and FAISS where it is installed, taking turns in one process.

    python benchmarks/search.py                       # rows made up here
    python benchmarks/search.py adult.npz splice.npz  # the array X of each file, its columns scaled to unit variance

k = 64. Prints microseconds a query, how many times the time of `product` each other search takes (below 1: it is
faster), milliseconds to build, and what kind="auto" chooses. FAISS' IndexFlatL2 returns float32 distances without proof
or order among ties; ours are exact. Before anything is timed the answers of our searches are compared.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _timing import interleaved

from nearfield._threads import thread_count
from nearfield.neighbours import build_index, find_equal_rows

try:
    import faiss
except ImportError:
    faiss = None

K = 64
KINDS = ("product", "direct", "boxes")
SLOW = 5e-3  # seconds a query of a search above which it is timed on few of them


def normal(n: int, d: int, decay: float = 1.0) -> np.ndarray:
    """Normal rows (n, d), each column `decay` times as wide as the one before, as length scales do."""
    return np.random.default_rng(0).standard_normal((n, d)) * decay ** np.arange(d)


def curved(n: int, d: int) -> np.ndarray:
    """A surface of three dimensions in d, with noise of 0.05."""
    rng = np.random.default_rng(0)
    surface = np.sin(2.0 * rng.uniform(-1.0, 1.0, (n, 3)) @ rng.standard_normal((3, d)))
    return surface + 0.05 * rng.standard_normal((n, d))


def indicators(n: int, categories: int, values: int) -> np.ndarray:
    """Categories as columns of zeros and ones, scaled to unit variance, and four columns of numbers."""
    rng = np.random.default_rng(0)
    columns = np.eye(values)[rng.integers(0, values, (n, categories))].reshape(n, categories * values)
    return np.concatenate([columns / columns.std(axis=0), rng.standard_normal((n, 4))], axis=1)


MADE_UP: dict[str, Callable[[], np.ndarray]] = {
    "normal 10,000 x 3": partial(normal, 10_000, 3),
    "normal 10,000 x 8": partial(normal, 10_000, 8),
    "normal 10,000 x 30": partial(normal, 10_000, 30),
    "normal 10,000 x 240": partial(normal, 10_000, 240),
    "normal 100,000 x 3": partial(normal, 100_000, 3),
    "normal 100,000 x 8": partial(normal, 100_000, 8),
    "normal 100,000 x 30": partial(normal, 100_000, 30),
    "normal 100,000 x 100": partial(normal, 100_000, 100),
    "scaled by 0.6, 100,000 x 20": partial(normal, 100_000, 20, 0.6),
    "curved 100,000 x 20": partial(curved, 100_000, 20),
    "indicators 50,000 x 104": partial(indicators, 50_000, 10, 10),
    "indicators 3,000 x 244": partial(indicators, 3_000, 60, 4),
}


def loaded(path: str) -> np.ndarray:
    """The array X (n, d) of a file, its columns scaled to unit variance."""
    X = np.load(path, allow_pickle=False)["X"].astype(np.float64)
    spread = X.std(axis=0)
    return np.ascontiguousarray(X[:, spread > 0] / spread[spread > 0])


def contestants(
    X: np.ndarray, ids: np.ndarray
) -> tuple[dict[str, Callable[[], Any]], dict[str, int], dict[str, float]]:
    """For each search: a function that asks it, how many queries that are, and the seconds it took to build."""
    equal_rows = find_equal_rows(X)
    asks: dict[str, Callable[[], Any]] = {}
    sizes: dict[str, int] = {}
    builds: dict[str, float] = {}
    exact = build_index(X, "direct", equal_rows).query(X[ids[:20]], K, ids[:20]).ids
    for kind in KINDS:
        build_index(X[:300], kind).query(X[:30], 8)  # compiles
        start = time.perf_counter()
        index = build_index(X, kind, equal_rows)
        builds[kind] = time.perf_counter() - start
        start = time.perf_counter()
        assert np.array_equal(index.query(X[ids[:20]], K, ids[:20]).ids, exact)
        some = ids[:40] if time.perf_counter() - start > 20 * SLOW else ids
        asks[kind], sizes[kind] = partial(index.query, X[some], K, some), len(some)
    if faiss is not None:
        faiss.omp_set_num_threads(thread_count())
        start = time.perf_counter()
        flat = faiss.IndexFlatL2(X.shape[1])
        flat.add(X.astype(np.float32))
        builds["FAISS"] = time.perf_counter() - start
        asks["FAISS"], sizes["FAISS"] = partial(flat.search, X[ids].astype(np.float32), K + 1), len(ids)
    return asks, sizes, builds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help=".npz files with an array X")
    parser.add_argument("--queries", type=int, default=1600)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=thread_count())
    options = parser.parse_args()
    os.environ["NEARFIELD_THREADS"] = str(options.threads)
    tables = {Path(path).stem: partial(loaded, path) for path in options.files} or MADE_UP
    names = [*KINDS, "FAISS"] if faiss is not None else list(KINDS)
    print(f"{options.queries} queries on {options.threads} threads, best of {options.repeats} turns\n")
    heads = [f"{name}, us (times)" for name in names] + ["build, ms: " + " / ".join(names), "auto"]
    print("| rows | " + " | ".join(heads) + " |")
    print("|" + "---|" * (len(heads) + 1))
    for name, make in tables.items():
        X = make()
        ids = np.random.default_rng(1).permutation(len(X))[: options.queries].astype(np.int64)
        asks, sizes, builds = contestants(X, ids)
        times = interleaved(asks, options.repeats)
        each = {kind: times[kind].best / sizes[kind] for kind in asks}
        cells = [f"{1e6 * each[kind]:.0f} ({each[kind] / each['product']:.1f})" for kind in names]
        cells += [" / ".join(f"{1e3 * builds[kind]:.0f}" for kind in names), build_index(X).kind]
        print(f"| {name} {X.shape[0]:,} x {X.shape[1]} | " if options.files else f"| {name} | ", end="")
        print(" | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
