"""After training: how many neighbours to predict with, and the predictive distribution, both from left-out rows.

A head turns the moments of the latent function at a row into the predictive distribution of an observation there, with
a handful of scalars fitted by the scores of a few thousand left-out observations: `regression.py`, `outputs.py`,
`classes.py` and `counts.py` hold one each. How to fit, judge and describe a head is a `Method`; the choice of k is the
same for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

MOST_NEIGHBOURS = 512
_LARGEST_BLOCK = 1024  # numbers of them that a matrix of several outputs may have
_FEWEST_MOST = 16  # neighbours, however many outputs there are
ALL_ROWS = 128  # up to so many other rows, all are neighbours and nothing needs choosing
_LADDER = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_PRICE = 0.02  # accuracy that 256 neighbours must earn over ALL_ROWS neighbours, whose cost is not counted


class LeftOutRows(Protocol):
    """Left-out observations with their moments for several k."""

    @property
    def ks(self) -> np.ndarray: ...

    def at(self, k: int) -> Any:
        """The same observations with the moments of a single k."""
        ...


class Method(Protocol):
    """How to fit, judge and describe the head of a kind of target. Rows are left out, of a single k.

    slack: accuracy that is too little to tell two k apart; the smallest of equals is chosen.
    """

    @property
    def slack(self) -> float: ...

    def fit(self, rows: Any) -> Any:
        """The head that suits the rows best."""
        ...

    def accuracy(self, rows: Any, head: Any) -> float:
        """What the choice of k maximises. A gain of 0.02 is worth twice the work or so."""
        ...

    def describe(self, rows: Any, head: Any) -> str:
        """The accuracy in words."""
        ...

    def scores(self, rows: Any, head: Any) -> dict[str, float]:
        """Scores by name, in the units of the target."""
        ...


@dataclass(frozen=True)
class Choice:
    """The number of neighbours, the head that goes with it, and why."""

    k: int
    head: Any
    reason: str
    curve: dict[int, float]  # left-out accuracy of each k that was tried


def most_neighbours(outputs: int = 1) -> int:
    """As many as are worth their cost, where each adds that many outputs to a matrix."""
    return MOST_NEIGHBOURS if outputs == 1 else min(MOST_NEIGHBOURS, max(_LARGEST_BLOCK // outputs, _FEWEST_MOST))


def all_rows(outputs: int = 1) -> int:
    """Up to so many other rows, all are neighbours and nothing needs choosing."""
    return min(ALL_ROWS, most_neighbours(outputs))


def candidate_ks(n_others: int, outputs: int = 1) -> np.ndarray:
    """Numbers of neighbours worth trying where n_others other rows are to be had."""
    top = min(n_others, most_neighbours(outputs))
    return np.array([k for k in _LADDER if k < top] + [top])


def choose_k(rows: LeftOutRows, method: Method, outputs: int = 1) -> Choice:
    """The k with the best accuracy on left-out rows, less a price for its cost.

    outputs: that each neighbour adds to a matrix; as many predictions then share the cost.
    """
    heads = {int(k): method.fit(rows.at(k)) for k in rows.ks}
    curve = {k: method.accuracy(rows.at(k), head) for k, head in heads.items()}
    best = max(curve, key=lambda k: curve[k])
    worth = {k: accuracy - _price(k, outputs) for k, accuracy in curve.items()}
    k = min(k for k in curve if worth[k] >= max(worth.values()) - method.slack)
    reason = "left-out " + method.describe(rows.at(k), heads[k])
    if k != best:
        cost = _work(best * outputs) / _work(k * outputs)
        reason += f"; {best} would give {method.describe(rows.at(best), heads[best])} at {cost:.1f} times the cost"
    return Choice(k, heads[k], reason, curve)


def _price(k: int, outputs: int) -> float:
    """Up to ALL_ROWS neighbours a prediction takes well under a tenth of a millisecond and costs nothing."""
    return _PRICE * max(0.0, _work(k * outputs) / outputs - _work(ALL_ROWS)) / (_work(256) - _work(ALL_ROWS))


def _work(k: int) -> float:
    """Operations to predict a row from k neighbours: the factorisation and the kernel."""
    return k**3 / 3 + 40 * k**2
