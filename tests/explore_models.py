"""Models of all kinds, and what the page to play with them asks at first, for its tests."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small

from nearfield.explore import Explorer


def house_table(n=200):
    """Numbers with gaps, a flag, a date, text with gaps and text of many levels; and rents."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"area": rng.uniform(20, 150, n).round(1), "rooms": rng.integers(1, 7, n).astype(float)})
    table["town"] = rng.choice(["Bonn", "Trier", None], n)
    table["garden"] = rng.random(n) < 0.4
    table["street"] = [f"Street {number}" for number in rng.integers(0, 90, n)]
    table["sold"] = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 500, n), unit="D")
    rent = 6 * table["area"] + 40 * table["rooms"] + 50 * table["garden"] + rng.normal(0, 30, n)
    table.loc[::7, "rooms"] = None
    return table, rent.rename("rent")


@cache
def model_of(kind):
    X, y = small(150)
    if kind == "number":
        return quick(k=20).fit(X, y)
    if kind == "student_t":
        return quick(likelihood="student_t", k=20).fit(X, y[:, None])
    if kind == "outputs":
        Y = np.stack([y, -y + X[:, 1]], axis=1)
        Y[::5, 1] = np.nan
        return quick(k=20).fit(X, Y)
    if kind == "groups":  # and copies
        return quick(k=20).fit(np.append(X, X[:20], 0), np.append(y, y[:20]), groups=np.arange(170) % 150 // 3)
    if kind == "noise":
        return quick(k=20).fit(X, y, noise_variance=np.full(150, 0.01))
    if kind == "lonlat":
        places = pd.DataFrame({"lon": 10 + X[:, 0], "lat": 50 + X[:, 1]})
        return quick(k=20, coordinates="lonlat").fit(places, y)
    if kind == "table":
        return quick(k=20).fit(*house_table())
    if kind == "classes":
        inputs, labels = labelled(150, 3)
        return quick_classifier(k=20).fit(inputs, np.array(["red", "green", "blue"])[labels])
    if kind == "two classes":
        return quick_classifier(k=20).fit(*labelled(150))
    inputs, counts, _ = counted(150)
    if kind == "binomial":
        return quick_counts(likelihood="binomial", k=20).fit(inputs, np.minimum(counts, 9), trials=np.full(150, 9))
    return quick_counts(k=20).fit(inputs, counts, exposure=np.linspace(1, 4, 150))


@cache
def explorer_of(kind):
    return Explorer(model_of(kind))


def started(kind):
    """The explorer, what its page sends at first, and the same row as users pass it to the estimator."""
    explorer = explorer_of(kind)
    start = explorer.described()["start"]
    row = pd.DataFrame([start["values"]])
    if "sold" in row:
        row["sold"] = pd.to_datetime(row["sold"])
    X = row if hasattr(model_of(kind), "feature_names_in_") else row.to_numpy(dtype=float)
    return explorer, {"values": start["values"], "given": start["given"]}, X
