"""Counts: GPCountRegressor against a generalised linear model and gradient boosting; and the share of casual riders
against a logistic regression with a beta-binomial dispersion. Ours uses no validation rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.accuracy.table import Table, Wanted
from experiments.data import load, load_array, split_rows, standardised
from experiments.methods.counts import Counted, Counter, beta_binomial, boosting, glm, nll
from nearfield import GPCountRegressor
from nearfield.metrics import CountScores

BIKES, SHARE = "bike_count", "casual riders"  # casual riders are counted out of all riders of an hour
DATA = (BIKES, "us_diseases")


def parts(name: str, seed: int) -> list[Counted]:
    """Training, validation and test rows, inputs standardised; the share has successes for counts, and trials."""
    X, counts = load(BIKES if name == SHARE else name)
    rows = split_rows(len(X), seed)
    inputs = standardised(*(X[r] for r in rows))
    if name != SHARE:
        return [Counted(x, counts[r]) for x, r in zip(inputs, rows, strict=True)]
    casual = load_array(BIKES, "casual").astype(float)
    return [Counted(x, casual[r], counts[r]) for x, r in zip(inputs, rows, strict=True)]


def lines(wanted: Wanted) -> Iterator[Sequence[str]]:
    data = wanted.data or ()
    for name in (*data, *([SHARE] if BIKES in data else [])):
        for seed in wanted.seeds or ():
            yield [name, str(seed), *_cells(*parts(name, seed), seed)]


def _cells(train: Counted, validation: Counted, test: Counted, seed: int) -> Iterator[str]:
    trials = train.trials is not None
    given: tuple[dict[str, Any], ...] = tuple({"trials": p.trials} if trials else {} for p in (train, test))
    began = time.perf_counter()
    kind = "binomial" if trials else "negative_binomial"
    model = GPCountRegressor(likelihood=kind, random_state=seed).fit(train.X, train.y, **given[0])
    seconds = time.perf_counter() - began
    scores = CountScores.of(test.y, model.predict_dist(test.X, **given[1])).as_dict()

    def peer(method: Counter) -> str:
        return f"{nll(method(train, validation, test, seed), test.y):.4f}"

    yield f"{scores['nll']:.4f}"
    yield peer(beta_binomial if trials else glm)
    yield "-" if trials else peer(boosting)
    yield f"{scores['crps']:.4g}"
    yield f"{scores['coverage_90']:.3f}"
    yield str(model.k_)
    yield "-" if trials else f"{model.dispersion_:.3g}"
    yield f"{seconds:.0f}"


TABLE = Table(
    "counts",
    "NLL beside other methods, CRPS and coverage",
    (
        "task", "seed", "ours, NLL", "GLM", "boosting", "ours, CRPS", "90 % interval covers", "k", "dispersion",
        "fit, s",
    ),
    lines,
    DATA,
)  # fmt: skip
