"""Mixed tables as data frames: adult, bank and titanic in their original columns, and two that are made here.

The files NAME.npz of the experiments have one-hot columns "column=level". Their blocks become text columns again, and a
row without any level of a block has a gap. Where there is no file, OpenML is asked if the user said so.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from _data import ROOT, available, load  # noqa: F401 - puts the experiments on the path

from experiments import openml
from experiments.data import load_array

STORED = ("adult", "bank", "titanic")
_OTHERS = {"yes": "no", "Male": "Female"}  # of columns with one level: what its absence means
_TITANIC = ("class", "age", "sex")  # codes without names


def frame(name: str, ask_openml: bool = False) -> tuple[pd.DataFrame, np.ndarray]:
    """A table and its labels (n,) from 0."""
    if name in MADE:
        return MADE[name]()
    if ask_openml and not available(name):
        return _of_openml(name)
    X, y = load(name)
    if name == "titanic":
        return coded(X, _TITANIC), y
    return undone(X, json.loads(str(load_array(name, "meta")))["columns"]), y


def undone(X: np.ndarray, names: list[str]) -> pd.DataFrame:
    """Columns from one-hot columns (n, d) whose names are "column=level", and from numbers, which have plain names."""
    blocks: dict[str, list[int]] = {}
    for e, name in enumerate(names):
        blocks.setdefault(name.strip('\ufeff"').partition("=")[0], []).append(e)
    return pd.DataFrame({column: _column(X, places, names) for column, places in blocks.items()})


def _column(X: np.ndarray, places: list[int], names: list[str]) -> np.ndarray:
    """Numbers, or texts with None where no level is set."""
    if "=" not in names[places[0]]:
        return X[:, places[0]]
    levels: list[str | None] = [names[e].partition("=")[2] for e in places]
    absent = _OTHERS[str(levels[0])] if len(levels) == 1 else None
    which = np.where(X[:, places].any(axis=1), X[:, places].argmax(axis=1), len(levels))
    return np.array([*levels, absent], dtype=object)[which]


def coded(X: np.ndarray, names: tuple[str, ...]) -> pd.DataFrame:
    """Text columns from codes (n, d) whose meaning is not known: levels by number."""
    places = [np.unique(column, return_inverse=True)[1] for column in X.T]
    return pd.DataFrame(
        {name: [f"level {i}" for i in place] for name, place in zip(names, places, strict=True)}, dtype=object
    )


def _of_openml(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """The table as OpenML has it; categories as text."""
    from sklearn.datasets import fetch_openml

    number, rows, _ = openml.SOURCES[name]
    found = fetch_openml(data_id=number, as_frame=True, parser="auto")
    if len(found.data) != rows:
        raise ValueError(f"OpenML's data set {number} has {len(found.data)} rows, {name} should have {rows}.")
    table = found.data.copy()
    for column in table.columns[table.dtypes == "category"]:
        table[column] = table[column].astype(object).where(table[column].notna(), None)
    return table, np.unique(found.target.astype(str), return_inverse=True)[1]


def _drawn(rng: np.random.Generator, logit: np.ndarray) -> np.ndarray:
    return (rng.random(len(logit)) < 1 / (1 + np.exp(-logit))).astype(np.int64)


def orders(n: int = 8000) -> tuple[pd.DataFrame, np.ndarray]:
    """Orders of 300 shops, most of them rare: dates, skewed prices, gaps, one kind of which tells something."""
    rng = np.random.default_rng(1)
    shop = np.minimum(rng.zipf(1.4, n) - 1, 299)
    shop = np.where(rng.random(n) < 0.5, rng.integers(0, 300, n), shop)
    day = rng.integers(0, 3 * 365, n)
    price, weight = rng.lognormal(3, 1.2, n), rng.gamma(2.0, 1.5, n)
    rating = np.clip(np.round(rng.normal(3.8, 0.9, n), 1), 1, 5)
    unrated = rng.random(n) < 0.25
    logit = (
        rng.normal(0, 1.0, 300)[shop] + 1.2 * np.cos(2 * np.pi * day / 365.25) + 0.5 * (day % 7 >= 5)
        - 0.8 * (np.log(price) - 3) + 0.9 * np.where(unrated, -1.0, rating - 3.8) - 0.3
    )  # fmt: skip
    table = pd.DataFrame(
        {
            "shop": np.array([f"shop {i:03d}" for i in range(300)], dtype=object)[shop],
            "ordered": pd.Timestamp("2021-01-01") + pd.to_timedelta(day, unit="D"),
            "price": price,
            "weight": np.where(rng.random(n) < 0.1, np.nan, weight),
            "rating": np.where(unrated, np.nan, rating),
            "express": np.array(["no", "yes", None], dtype=object)[rng.choice(3, n, p=(0.6, 0.3, 0.1))],
        }
    )
    return table, _drawn(rng, logit)


def trials(n: int = 6000) -> tuple[pd.DataFrame, np.ndarray]:
    """What a dose does depends on the treatment, and on the site how the age matters: categories times numbers."""
    rng = np.random.default_rng(2)
    treatment, site, sex = rng.integers(0, 5, n), rng.integers(0, 12, n), rng.integers(0, 2, n)
    dose, age, marker = rng.uniform(0, 10, n), rng.normal(50, 15, n), rng.normal(size=n)
    slope, best = np.array([0.0, 1.5, -1.5, 2.5, 0.7])[treatment], np.array([5.0, 2.0, 8.0, 5.0, 9.0])[treatment]
    logit = (
        slope * (1 - (dose - best) ** 2 / 8) + rng.normal(0, 0.6, 12)[site] * (age - 50) / 15
        + np.where(sex == 0, 0.8, -0.8) * marker
    )  # fmt: skip
    table = pd.DataFrame(
        {
            "treatment": np.array(list("ABCDE"), dtype=object)[treatment],
            "site": np.array([f"site {i}" for i in range(12)], dtype=object)[site],
            "sex": np.array(["f", "m"], dtype=object)[sex],
            "dose": dose,
            "age": np.where(rng.random(n) < 0.05, np.nan, age),
            "marker": marker,
        }
    )
    return table, _drawn(rng, logit)


MADE = {"orders": orders, "trials": trials}
