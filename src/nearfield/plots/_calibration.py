"""Whether predictive distributions hold: PIT histogram and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.colours import BLUE, GREY
from nearfield.diagnostics import Predicted
from nearfield.diagnostics.chance import independent, share_band
from nearfield.diagnostics.coverage import LEVELS, coverage, pit_histogram
from nearfield.plots._common import axes, one_target, shown_rows
from nearfield.validation import is_int


class PITDisplay:
    """Histogram of the probability integral transform: flat where predictive distributions are calibrated.

    High at both ends: intervals are too narrow. High in the middle: too wide. A slope: predictions are biased.

    Parameters
    ----------
    shares : (bins,) share of the rows in each of so many equal parts of 0 to 1.
    n : how many independent rows there are, for the band of chance.
    name : what the rows are.

    Attributes
    ----------
    ax_, figure_ : where it was drawn.
    bars_, line_, band_ : the histogram, what is expected, and where 95 % of bars are if that is true.
    """

    def __init__(self, *, shares: np.ndarray, n: float, name: str | None = None) -> None:
        self.shares = shares
        self.n = n
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, y: Any = None, *, bins: int = 20, target: int | str = 0,
        name: str | None = None, ax: Any = None, **given: Any,
    ) -> PITDisplay:  # fmt: skip
        """Of test rows X with targets y, or of left-out training rows.

        target : number or name of the output to show; given : `exposure` or `trials` of counts.
        """
        evaluated = shown_rows(estimator, X, y, given)
        _, rows = one_target(evaluated, target, "PITDisplay")
        return cls._of(rows, bins, evaluated.rows if name is None else name, ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        dist: Any,
        *,
        sample_weight: Any = None,
        bins: int = 20,
        name: str | None = None,
        ax: Any = None,
    ) -> PITDisplay:
        """Of targets y_true (n,) and what `predict_dist` gave for them."""
        return cls._of(Predicted.of(y_true, dist, sample_weight), bins, name, ax)

    @classmethod
    def _of(cls, rows: Predicted, bins: int, name: str | None, ax: Any) -> PITDisplay:
        if not (is_int(bins) and bins >= 2):
            raise ValueError(f"bins is {bins!r}: expected a whole number of at least 2.")
        made = cls(shares=pit_histogram(rows, bins), n=independent(rows.weights, rows.units), name=name)
        return made.plot(ax=ax)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> PITDisplay:
        """Draw on `ax`, new axes if None. kwargs : for matplotlib's `bar`."""
        ax = axes(ax)
        bins, label = len(self.shares), self.name if name is None else name
        edges = np.linspace(0, 1, bins + 1)
        style = {"color": BLUE, "edgecolor": "white", "linewidth": 0.5, "label": label, **kwargs}
        self.bars_ = ax.bar(edges[:-1], bins * self.shares, width=1 / bins, align="edge", **style)
        low, high = share_band(np.array([1 / bins]), self.n)
        self.band_ = ax.axhspan(bins * low[0], bins * high[0], color=GREY, alpha=0.25, label="95 % if calibrated")
        self.line_ = ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
        ax.set(xlim=(0, 1), xlabel="probability below what was observed (PIT)", ylabel="relative frequency")
        ax.set_ylim(0, 1.25 * max(bins * float(self.shares.max()), bins * float(high[0])))  # room for the legend
        ax.legend(loc="upper center", ncols=2, frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class CoverageDisplay:
    """Share of the rows inside of central intervals over the probability that these claim: the same if they hold.

    Parameters
    ----------
    levels, shares : (l,) nominal coverage, and what was covered.
    n : how many independent rows there are, for the band of chance.
    name : what the rows are.

    Attributes
    ----------
    ax_, figure_ : where it was drawn.
    line_, diagonal_, band_ : what was covered, what should be, and where 95 % of shares are.
    """

    def __init__(self, *, levels: np.ndarray, shares: np.ndarray, n: float, name: str | None = None) -> None:
        self.levels = levels
        self.shares = shares
        self.n = n
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, y: Any = None, *, levels: Any = LEVELS, target: int | str = 0,
        name: str | None = None, ax: Any = None, **given: Any,
    ) -> CoverageDisplay:  # fmt: skip
        """Of test rows X with targets y, or of left-out training rows.

        levels : nominal coverages; target : number or name of the output to show; given : `exposure` or `trials`.
        """
        evaluated = shown_rows(estimator, X, y, given)
        _, rows = one_target(evaluated, target, "CoverageDisplay")
        return cls._of(rows, levels, evaluated.rows if name is None else name, ax)

    @classmethod
    def from_predictions(
        cls, y_true: Any, dist: Any, *, sample_weight: Any = None, levels: Any = LEVELS, name: str | None = None,
        ax: Any = None,
    ) -> CoverageDisplay:  # fmt: skip
        """Of targets y_true (n,) and what `predict_dist` gave for them."""
        return cls._of(Predicted.of(y_true, dist, sample_weight), levels, name, ax)

    @classmethod
    def _of(cls, rows: Predicted, levels: Any, name: str | None, ax: Any) -> CoverageDisplay:
        nominal = np.asarray(levels, dtype=np.float64)
        if nominal.ndim != 1 or not nominal.size or not ((nominal > 0) & (nominal < 1)).all():
            raise ValueError(f"levels is {levels!r}: expected probabilities between 0 and 1, such as [0.5, 0.9].")
        shares = coverage(rows, nominal.tolist())
        return cls(levels=nominal, shares=shares, n=independent(rows.weights, rows.units), name=name).plot(ax=ax)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> CoverageDisplay:
        """Draw on `ax`, new axes if None. kwargs : for matplotlib's `plot`."""
        ax = axes(ax)
        low, high = share_band(self.levels, self.n)
        self.band_ = ax.fill_between(self.levels, low, high, color=GREY, alpha=0.25, label="95 % if calibrated")
        (self.diagonal_,) = ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
        style = {"color": BLUE, "marker": "o", "markersize": 3, "label": self.name if name is None else name, **kwargs}
        (self.line_,) = ax.plot(self.levels, self.shares, **style)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="nominal coverage", ylabel="share of rows inside")
        ax.legend(loc="upper left", frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self
