"""Large tables with defaults, beside GPyTorch's SVGP and CatBoost: time, memory and accuracy.

    python benchmarks/large_tables.py [--data britain_magnetic flights3m hapt_ar] [--methods ...] [--limit 3600]

Each fit is a process of its own: 15:3:2 of the rows to train on, to choose on and to test (some of the test rows where
there are more than `--test`). We do not look at the rows to choose on; CatBoost chooses its depth and number of trees
there. SVGP has 512 inducing points and as many steps as `--steps`, each on 1,024 rows. "CPU s" is the time of the
processor, of fit and predictions together, on all threads, which other work on the machine changes less than the
seconds; memory is the peak of the process, libraries and the standardised table (in double precision) included.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from _data import load, split
from _timing import peak_rss_mb

from experiments.process import DONE, run_limited
from experiments.scoring import fit_and_score
from experiments.task import Entry, Task

OURS, SVGP, CATBOOST = "loo-k-calibrated", "svgp", "catboost"


def run(argument: tuple[str, str, int, int, float]) -> dict[str, Any]:
    """One fit: rows, seconds, metrics, and the peak of memory with and without it."""
    name, method, steps, test, limit = argument
    options = {"betas": (1.0,), "steps": steps, "batch": 1024} if method == SVGP else {}
    parts = split(*load(name), 0)
    parts = replace(parts, X_test=parts.X_test[:test], y_test=parts.y_test[:test])
    before = peak_rss_mb()
    task = Task("large-tables", Entry(method, method, options=options), name, 0, limit=limit)
    return {**fit_and_score(task, parts), "before": before, "peak": peak_rss_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["britain_magnetic", "flights3m", "hapt_ar"])
    parser.add_argument("--methods", nargs="+", default=[OURS, SVGP, CATBOOST])
    parser.add_argument("--steps", type=int, default=3000, help="of SVGP")
    parser.add_argument("--test", type=int, default=50_000, help="test rows at most")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of a fit")
    args = parser.parse_args()
    print("| table | method | rows | fit, s | predict, s | CPU s | peak, MB | before, MB | RMSE | NLL | CRPS | 90 % |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in args.data:
        for method in args.methods:
            r = run_limited(run, (name, method, args.steps, args.test, args.limit), args.limit + 300)
            if r["status"] != DONE:
                print(f"| {name} | {method} | {r['status']} {r.get('message', '')} |", flush=True)
                continue
            seconds, m = r["seconds"], r["metrics"]
            cells = [name, method, f"{r['rows']['train']:,} x {r['rows']['columns']}"]
            cells += [f"{seconds[what]:.0f}" for what in ("fit", "predict", "cpu")]
            cells += [f"{r['peak']:,.0f}", f"{r['before']:,.0f}"]
            cells += [f"{m['rmse']:.4f}", f"{m['nll']:.4f}", f"{m['crps']:.4f}", f"{m['coverage_90']:.3f}"]
            print("| " + " | ".join(cells) + " |", flush=True)
            print(f"  chosen: {r['chosen']}", flush=True)


if __name__ == "__main__":
    main()
