"""Approximate search beside the exact one: boxes that a query looks into, neighbours found, processor time.

    python benchmarks/approximate.py

Budgets are those of `search="approximate"`, found for each table as a fit does; "dearer" is where a fit stays exact.
"""

from __future__ import annotations

import time

import numpy as np

from nearfield.approximate import RECALL
from nearfield.neighbours import Index, SearchedRows, find_equal_rows
from nearfield.warps import Metric

TABLES = (("normal", 10**5, 8, 64), ("normal", 10**5, 15, 64), ("normal", 10**5, 30, 64), ("uniform", 10**6, 8, 128))
_ASKED = 1000  # rows that look for their neighbours


def main() -> None:
    print("| rows | exact search | us | boxes of the budget | recall | us | |")
    print("|---|---|---:|---:|---:|---:|---|")
    for name, n, d, k in TABLES:
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((n, d)) if name == "normal" else rng.uniform(-1, 1, (n, d))
        searched, metric, which = (
            SearchedRows(rows, find_equal_rows(rows)),
            Metric.of(np.ones(d)),
            rng.choice(n, _ASKED),
        )
        index = searched.index(metric)
        wanted, exact = _timed(index, rows, which, k)
        boxes = searched.boxes(metric.lengths)
        leaves, recall, spent = max(1, -(-2 * k * len(boxes.panels) // len(boxes))), 0.0, 0.0
        while recall < RECALL:
            found, spent = _timed(searched.index(metric, most=leaves), rows, which, k)
            recall = float(np.mean([np.isin(one, own).mean() for one, own in zip(wanted, found, strict=True)]))
            leaves *= 1 if recall >= RECALL else 2
        print(
            f"| {name}, {n:,} x {d}, k = {k} | {index.kind} | {exact:.0f} | {leaves:,} of {len(boxes.panels):,} | "
            f"{recall:.1%} | {spent:.0f} | {'dearer' if searched.is_dearer(leaves, metric) else ''} |", flush=True,
        )  # fmt: skip


def _timed(index: Index, rows: np.ndarray, which: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Neighbours (b, k) of the rows `which`, and microseconds a query, once everything is in its place."""
    index.query(rows[which], k, which)
    began = time.process_time()
    found = index.query(rows[which], k, which).ids
    return found, 1e6 * (time.process_time() - began) / len(which)


if __name__ == "__main__":
    main()
