"""What appending rows costs in time.

    python benchmarks/update.py [--datasets kin40k,spambase] [--seed 0]     # over a fit: one row, a hundred, a tenth
    python benchmarks/update.py --stream 1e4x3,1e6x3,1e6x8 [--updates 1000]    # one row after the other

The stream: processor time of `update` with one row, of a prediction that follows, and of the same prediction by a copy
of the model that has to put all rows into boxes first, as every update once did. In the end the copy must predict the
same to the last bit. What appended rows cost in accuracy: `python -m experiments table update`.
"""

from __future__ import annotations

import argparse
import copy
import pickle
import statistics
import time

import numpy as np
from _data import load, split

from nearfield import GPClassifier, GPRegressor

_ASKED = 1000  # new rows whose predictions are compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default="kin40k,spambase")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stream", help="made tables, ROWSxCOLUMNS, with commas")
    parser.add_argument("--updates", type=int, default=1000, help="single rows of a stream")
    args = parser.parse_args()
    if args.stream:
        stream([tuple(int(float(part)) for part in one.split("x")) for one in args.stream.split(",")], args)
        return
    print(f"best of {args.repeats}\n")
    print("| data set | fitted rows | fit, s | appended rows | update and a prediction, s | share |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in args.datasets.split(","):
        parts = split(*load(name), args.seed)
        cut = len(parts.y) * 9 // 10
        kind = GPClassifier if parts.classes else GPRegressor
        kind(max_steps=1).fit(parts.X[:1000], parts.y[:1000])  # compiles, or reads the compiled code from its cache
        began = time.perf_counter()
        model = kind(random_state=args.seed).fit(parts.X[:cut], parts.y[:cut])
        fitted = time.perf_counter() - began
        most = len(parts.y) - cut
        for count in (1, min(100, most), most):
            rows = slice(cut, cut + count)
            seconds = min(_update(model, parts.X[rows], parts.y[rows]) for _ in range(args.repeats))
            print(
                f"| {name} | {cut:,} | {fitted:.1f} | {count:,} | {seconds:.3f} | {seconds / fitted:.1%} |", flush=True
            )


def stream(tables: list[tuple[int, ...]], args: argparse.Namespace) -> None:
    """One row after the other."""
    print(f"processor time in ms, medians of {args.updates:,} updates of one row; a prediction after every tenth\n")
    print("| fitted rows | columns | first update | update | slowest | prediction | built anew | ratio | same bits |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    for n, d in tables:
        print(_streamed(n, d, args.updates, args.seed), flush=True)


def _streamed(n: int, d: int, count: int, seed: int) -> str:
    """A line of the table: n rows of d columns, and so many that come one by one."""
    X, y = _made(n + count + _ASKED, d, seed)
    model, X_new = GPRegressor(random_state=seed).fit(X[:n], y[:n]), X[n + count :]
    model.predict(X_new)
    updates, predictions = [], []
    for i in range(n, n + count):
        updates.append(_clock(model.update, X[i : i + 1], y[i : i + 1]))
        if i % 10 == 0:
            predictions.append(_clock(model.predict, X_new[i % _ASKED : i % _ASKED + 1]))
    anew = pickle.loads(pickle.dumps(model))
    built = _clock(anew.predict, X_new[:1])
    same = np.array_equal(model.predict(X_new, return_std=True), anew.predict(X_new, return_std=True))
    usual, asked = statistics.median(updates[1:]), statistics.median(predictions)
    return (
        f"| {n:,} | {d} | {updates[0]:.1f} | {usual:.2f} | {max(updates[1:]):.1f} | {asked:.2f} | {built:.0f} | "
        f"{built / (usual + asked):,.0f} | {'yes' if same else 'NO'} |"
    )


def _made(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) and a smooth target with noise (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, -1] + 0.1 * rng.standard_normal(n)


def _clock(task, *given) -> float:
    """Milliseconds of processor time, of all threads, for the task with what is given."""
    began = time.process_time()
    task(*given)
    return 1e3 * (time.process_time() - began)


def _update(model, X, y) -> float:
    """Seconds; the model stays as it is, with the index that it had."""
    model = copy.deepcopy(model)
    model.predict(X[:1])
    began = time.perf_counter()
    model.update(X, y)
    model.predict(X[:1])
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
