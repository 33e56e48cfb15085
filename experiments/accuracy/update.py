"""What appending rows costs: a classifier of two thirds of the rows, the same with the rest appended, a fit to all.

`update` finds the weights of the appended labels and leaves those of their neighbours and all hyper-parameters as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.accuracy.table import Table, Wanted
from experiments.data import load, split
from nearfield import GPClassifier

DATA = ("spambase", "bank", "page_blocks")


def lines(wanted: Wanted) -> Iterator[Sequence[str]]:
    for name in wanted.data or ():
        X, y = load(name, wanted.openml)
        for seed in wanted.seeds or ():
            p = split(X, y, seed)
            cut = len(p.y) * 2 // 3
            known = np.isin(p.y_test, p.y[:cut])
            later = np.isin(p.y[cut:], p.y[:cut])  # `update` refuses a class that the fit did not have
            for auxiliary in ("tied", "conjugate"):
                model = GPClassifier(auxiliary=auxiliary, random_state=seed).fit(p.X[:cut], p.y[:cut])
                before = model.log_score(p.X_test[known], p.y_test[known])
                model.update(p.X[cut:][later], p.y[cut:][later])
                after = model.log_score(p.X_test[known], p.y_test[known])
                whole = GPClassifier(auxiliary=auxiliary, random_state=seed).fit(p.X, p.y)
                again = whole.log_score(p.X_test[known], p.y_test[known])
                yield name, str(seed), auxiliary, *(f"{-score:.4f}" for score in (before, after, again))


TABLE = Table(
    "update",
    "NLL of test rows before and after `update`, and of a fit to all rows",
    ("data set", "seed", "auxiliary", "two thirds of the rows", "the rest appended", "a fit to all rows"),
    lines,
    DATA,
    seeds=(0,),
)
