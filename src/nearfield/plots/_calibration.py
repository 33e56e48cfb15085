"""Whether predictive distributions hold: PIT histogram and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.diagnostics import Predicted
from nearfield.diagnostics.chance import independent, share_band
from nearfield.diagnostics.coverage import LEVELS, coverage, pit_histogram
from nearfield.plots._common import BLUE, GREY, axes, one_target, shown_rows
from nearfield.validation import is_int


class PITDisplay:
    """Histogram of the probability integral transform: flat where predictive distributions are calibrated.

    High at both ends: intervals are too narrow. High in the middle: too wide. A slope: predictions are biased.

    Parameters
    ----------
    shares : ndarray of shape (bins,)
        Share of the rows in each of so many equal parts of 0 to 1.
    n : float
        How many independent rows there are, for the band of chance.
    name : str, default=None
        What the rows are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of these axes.
    bars_ : matplotlib BarContainer
        The histogram.
    line_ : matplotlib Line2D
        What is expected.
    band_ : matplotlib artist
        Where 95 % of bars are if that is true.

    See Also
    --------
    CoverageDisplay : The same of intervals.
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
        """Draw it of test rows, or of left-out training rows.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        X : array-like or data frame of shape (n, d), default=None
            Test rows; without them left-out training rows are shown.
        y : array-like, default=None
            Targets of the test rows.
        bins : int, default=20
            Number of bars.
        target : int or str, default=0
            Number or name of the output to show.
        name : str, default=None
            What the rows are, for the legend; None says it by itself.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        **given : array-like
            `exposure` or `trials` of the test rows, of counts.

        Returns
        -------
        PITDisplay
            The display, drawn.
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
        """Draw it of targets and what `predict_dist` gave for them.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Observed targets.
        dist : distribution
            What `predict_dist` gave for these rows.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts.
        bins : int, default=20
            Number of bars.
        name : str, default=None
            What the rows are, for the legend; None says it by itself.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        PITDisplay
            The display, drawn.
        """
        return cls._of(Predicted.of(y_true, dist, sample_weight), bins, name, ax)

    @classmethod
    def _of(cls, rows: Predicted, bins: int, name: str | None, ax: Any) -> PITDisplay:
        if not (is_int(bins) and bins >= 2):
            raise ValueError(f"bins is {bins!r}: expected a whole number of at least 2.")
        made = cls(shares=pit_histogram(rows, bins), n=independent(rows.weights, rows.units), name=name)
        return made.plot(ax=ax)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> PITDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        name : str, default=None
            What the rows are, for the legend; None takes that of the display.
        **kwargs : dict
            For matplotlib's `bar`.

        Returns
        -------
        PITDisplay
            The display itself.
        """
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
    levels : ndarray of shape (l,)
        Nominal coverage.
    shares : ndarray of shape (l,)
        What was covered.
    n : float
        How many independent rows there are, for the band of chance.
    name : str, default=None
        What the rows are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of these axes.
    line_ : matplotlib Line2D
        What was covered.
    diagonal_ : matplotlib Line2D
        What should be.
    band_ : matplotlib artist
        Where 95 % of shares are if the claims are true.

    See Also
    --------
    PITDisplay : The same of whole distributions.
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
        """Draw it of test rows, or of left-out training rows.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        X : array-like or data frame of shape (n, d), default=None
            Test rows; without them left-out training rows are shown.
        y : array-like, default=None
            Targets of the test rows.
        levels : array-like of shape (l,), default=0.05 to 0.95 in steps of 0.05, and 0.99
            Nominal coverages.
        target : int or str, default=0
            Number or name of the output to show.
        name : str, default=None
            What the rows are, for the legend; None says it by itself.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        **given : array-like
            `exposure` or `trials` of the test rows, of counts.

        Returns
        -------
        CoverageDisplay
            The display, drawn.
        """
        evaluated = shown_rows(estimator, X, y, given)
        _, rows = one_target(evaluated, target, "CoverageDisplay")
        return cls._of(rows, levels, evaluated.rows if name is None else name, ax)

    @classmethod
    def from_predictions(
        cls, y_true: Any, dist: Any, *, sample_weight: Any = None, levels: Any = LEVELS, name: str | None = None,
        ax: Any = None,
    ) -> CoverageDisplay:  # fmt: skip
        """Draw it of targets and what `predict_dist` gave for them.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Observed targets.
        dist : distribution
            What `predict_dist` gave for these rows.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts.
        levels : array-like of shape (l,), default=0.05 to 0.95 in steps of 0.05, and 0.99
            Nominal coverages.
        name : str, default=None
            What the rows are, for the legend; None says it by itself.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        CoverageDisplay
            The display, drawn.
        """
        return cls._of(Predicted.of(y_true, dist, sample_weight), levels, name, ax)

    @classmethod
    def _of(cls, rows: Predicted, levels: Any, name: str | None, ax: Any) -> CoverageDisplay:
        nominal = np.asarray(levels, dtype=np.float64)
        if nominal.ndim != 1 or not nominal.size or not ((nominal > 0) & (nominal < 1)).all():
            raise ValueError(f"levels is {levels!r}: expected probabilities between 0 and 1, such as [0.5, 0.9].")
        shares = coverage(rows, nominal.tolist())
        return cls(levels=nominal, shares=shares, n=independent(rows.weights, rows.units), name=name).plot(ax=ax)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> CoverageDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        name : str, default=None
            What the rows are, for the legend; None takes that of the display.
        **kwargs : dict
            For matplotlib's `plot`.

        Returns
        -------
        CoverageDisplay
            The display itself.
        """
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
