"""Mixed tables: data frames as they are, beside CatBoost with `cat_features` and beside one-hot columns made by hand.

    python benchmarks/tables.py [--tables adult,bank] [--methods one-hot,catboost] [--seeds 0] [--rows 5000] [--openml]
    python benchmarks/tables.py --encode [--rows 1000000]

NLL of the test rows over splits of 15:3:2, as in the experiments. All learn from the training rows; CatBoost chooses
depth and number of trees on the validation rows, too. --encode: time to encode 20 mixed columns over that of reading
them from a CSV file by pyarrow.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from _frames import MADE, STORED, frame
from _timing import best_of

from experiments.data import split_rows
from nearfield import GPClassifier, TableEncoder

Part = tuple[pd.DataFrame, np.ndarray]

_DEPTHS = (4, 6, 8)
_TREES = 1000
_PATIENCE = 50
_ENCODED_ROWS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join((*STORED, *MADE)))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rows", type=int, help="rows of each table at most")
    parser.add_argument("--openml", action="store_true", help="ask OpenML for tables that are not in NEARFIELD_DATA")
    parser.add_argument("--encode", action="store_true")
    args = parser.parse_args()
    if args.encode:
        encode(args.rows or _ENCODED_ROWS)
        return
    methods = args.methods.split(",")
    print(f"| table | split | {' | '.join(f'{name}, NLL | s' for name in methods)} | {' | '.join(RATIOS)} |")
    print(f"|---|---:{'|---:' * (2 * len(methods) + len(RATIOS))}|")
    for name in args.tables.split(","):
        table, y = frame(name, args.openml)
        found = []
        for seed in map(int, args.seeds.split(",")):
            parts = [(table.iloc[rows], y[rows]) for rows in split_rows(len(y), seed, args.rows)]
            found.append({method: scored(METHODS[method], parts, seed) for method in methods})
            print(line(name, str(seed), found[-1]), flush=True)
        print(line(name, "mean", averaged(found)), flush=True)


# --- the three methods: probabilities (n, K) of the test rows from three parts of a table ----------------------------


def as_it_is(parts: list[Part], seed: int) -> np.ndarray:
    """Text, dates and gaps go in as they are."""
    (train, y), _, (test, _) = parts
    return GPClassifier(random_state=seed).fit(train, y).predict_proba(test)


def one_hot(parts: list[Part], seed: int) -> np.ndarray:
    """Columns made by hand: an indicator of each level, dates as days, medians for gaps of numbers."""
    (train, y), _, (test, _) = parts
    X, X_test = indicators(train, test)
    return GPClassifier(random_state=seed).fit(X, y).predict_proba(X_test)


def indicators(train: pd.DataFrame, test: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Both as numbers, by what the training rows have; of a level that these lack all indicators are zero."""
    both = []
    for part in (train, test):
        days = {name: (part[name] - train[name].min()).dt.days for name in dates(train)}
        both.append(pd.get_dummies(part.assign(**days), columns=texts(train), dtype=np.float64))
    own = both[0].loc[:, both[0].nunique() > 1]
    filled = [part.reindex(columns=own.columns) for part in both]
    indicator = [name for name in own.columns if name not in train.columns]
    for part in filled:
        part[indicator] = part[indicator].fillna(0.0)
    return filled[0].fillna(own.median()).to_numpy(np.float64), filled[1].fillna(own.median()).to_numpy(np.float64)


def texts(table: pd.DataFrame) -> list[str]:
    """Columns of text or categories."""
    return [
        name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name]) and name not in dates(table)
    ]


def dates(table: pd.DataFrame) -> list[str]:
    """Columns of dates."""
    return list(table.select_dtypes("datetime").columns)


def catboost(parts: list[Part], seed: int) -> np.ndarray:
    """The best of three depths, each with as many trees as the validation rows want; text columns are categories."""
    from catboost import CatBoostClassifier

    categories = texts(parts[0][0])
    (train, y), (validation, y_val), (test, _) = [(_for_catboost(part, categories), own) for part, own in parts]
    best, least = None, np.inf
    for depth in _DEPTHS:
        model = CatBoostClassifier(
            iterations=_TREES, depth=depth, random_seed=seed, early_stopping_rounds=_PATIENCE,
            thread_count=int(os.environ.get("NEARFIELD_THREADS", -1)), allow_writing_files=False, verbose=False,
        )  # fmt: skip
        model.fit(train, y, cat_features=categories, eval_set=(validation, y_val))
        if nll(model.predict_proba(validation), y_val) < least:
            best, least = model, nll(model.predict_proba(validation), y_val)
    assert best is not None
    return np.asarray(best.predict_proba(test))


def _for_catboost(table: pd.DataFrame, categories: list[str]) -> pd.DataFrame:
    """Gaps of text as a level; dates as a number, the month and the weekday, as its users write them."""
    table = table.assign(**{name: table[name].fillna("missing").astype(str) for name in categories})
    for name in dates(table):
        own = table[name].dt
        table[f"{name} month"], table[f"{name} weekday"] = own.month, own.dayofweek
        table[f"{name} day of the year"] = own.dayofyear
        table[name] = (table[name] - pd.Timestamp("2000-01-01")).dt.days
    return table


METHODS: dict[str, Callable[[list[Part], int], np.ndarray]] = {
    "as it is": as_it_is,
    "one-hot": one_hot,
    "catboost": catboost,
}
RATIOS = {"as it is over catboost": ("as it is", "catboost"), "as it is over one-hot": ("as it is", "one-hot"),
          "one-hot over catboost": ("one-hot", "catboost")}  # fmt: skip

# --- figures --------------------------------------------------------------------------------------------------------

Figures = dict[str, tuple[float, float]]  # NLL and seconds of each method


def scored(method: Callable[[list[Part], int], np.ndarray], parts: list[Part], seed: int) -> tuple[float, float]:
    """NLL of the test rows, and seconds of everything."""
    began = time.perf_counter()
    probabilities = method(parts, seed)
    return nll(probabilities, parts[2][1]), time.perf_counter() - began


def nll(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log probability of the labels (n,)."""
    return float(-np.mean(np.log(np.maximum(probabilities[np.arange(len(y)), y], 1e-300))))


def averaged(found: list[Figures]) -> Figures:
    """Means over splits."""
    return {name: (np.mean([f[name][0] for f in found]), np.mean([f[name][1] for f in found])) for name in found[0]}


def line(table: str, split: str, figures: Figures) -> str:
    """A line of the table; a dash where a method was not asked for."""
    cells = [f"{score:.4f} | {seconds:.1f}" for score, seconds in figures.values()]
    ratios = [f"{figures[a][0] / figures[b][0]:.3f}" if {a, b} <= set(figures) else "-" for a, b in RATIOS.values()]
    return f"| {table} | {split} | {' | '.join(cells)} | {' | '.join(ratios)} |"


# --- encoding -------------------------------------------------------------------------------------------------------


def mixed(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of 20 columns: 10 of numbers, some with gaps, 8 of text with 2 to 1,000 levels, 2 of dates; and labels."""
    rng = np.random.default_rng(0)
    columns: dict[str, object] = {}
    for i in range(10):
        values = rng.normal(size=n) if i % 2 else rng.lognormal(0, 2, n)
        columns[f"number {i}"] = np.where(rng.random(n) < 0.05 * (i % 3), np.nan, values)
    for levels in (2, 3, 5, 10, 30, 100, 300, 1000):
        names = np.array([*(f"level {i}" for i in range(levels)), None], dtype=object)
        columns[f"text of {levels}"] = names[rng.integers(0, levels + (levels > 5), n)]
    for i in range(2):
        columns[f"date {i}"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), unit="D")
    return pd.DataFrame(columns), rng.integers(0, 2, n)


def encode(n: int) -> None:
    """Print seconds of reading and of encoding n rows, and their ratio; in one process."""
    import pyarrow as pa
    from pyarrow import csv

    table, y = mixed(n)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        csv.write_csv(pa.Table.from_pandas(table, preserve_index=False), path)
        reading = best_of(lambda: csv.read_csv(path), repeats=3)
    learning = best_of(lambda: TableEncoder().fit_transform(table, y), repeats=3)
    encoder = TableEncoder().fit(table, y)
    encoding = best_of(lambda: encoder.transform(table), repeats=3)
    print(f"{n:,} rows, {table.shape[1]} columns, best of 3\n\n| | s | over reading |\n|---|---:|---:|")
    for name, seconds in (("read by pyarrow", reading), ("fit_transform", learning), ("transform", encoding)):
        print(f"| {name} | {seconds:.2f} | {seconds / reading:.2f} |")


if __name__ == "__main__":
    main()
