"""Residuals of left-out or test rows, over the prediction or a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats

from nearfield.colours import BLUE, GREY, ORANGE
from nearfield.diagnostics import Predicted
from nearfield.diagnostics.residuals import Off, by_slices, by_values
from nearfield.diagnostics.slices import Slice, column_values, level_name, used_columns
from nearfield.plots._common import axes, dated, one_target, shown_rows
from nearfield.validation import column_numbers

_MOST_POINTS = 3000


class LeftOutResidualDisplay:
    """Residuals, observed less predicted, with their mean in bins: along zero where nothing is left to learn.

    Parameters
    ----------
    x : ndarray of shape (n,)
        What they are drawn over.
    residual : ndarray of shape (n,)
        The residuals, in the units of the target.
    bins : list of dict
        Centre, mean residual and its standard error in each bin.
    x_label : str, default="prediction"
        What x is.
    name : str, default=None
        What the rows are.
    ticks : dict of int to str, default=None
        Where x numbers the levels of a column, their names.
    dates : bool, default=False
        Whether x are days since 1970, to be shown as dates.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of these axes.
    points_ : matplotlib PathCollection
        The residuals.
    means_ : matplotlib ErrorbarContainer
        Their means with 95 % bars.
    zero_ : matplotlib Line2D
        The line at zero.
    """

    def __init__(
        self, *, x: np.ndarray, residual: np.ndarray, bins: list[dict[str, Any]], x_label: str = "prediction",
        name: str | None = None, ticks: dict[int, str] | None = None, dates: bool = False,
    ) -> None:  # fmt: skip
        self.x = x
        self.residual = residual
        self.bins = bins
        self.x_label = x_label
        self.name = name
        self.ticks = ticks
        self.dates = dates

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, y: Any = None, *, column: Any = None, target: int | str = 0,
        name: str | None = None, ax: Any = None, **given: Any,
    ) -> LeftOutResidualDisplay:  # fmt: skip
        """Draw it of left-out training rows, or of test rows.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        X : array-like or data frame of shape (n, d), default=None
            Test rows; without them left-out training rows are shown.
        y : array-like, default=None
            Targets of the test rows.
        column : str or int, default=None
            Name or number of the column over which residuals are drawn; None draws them over the prediction.
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
        LeftOutResidualDisplay
            The display, drawn.
        """
        evaluated = shown_rows(estimator, X, y, given)
        told, rows = one_target(evaluated, target, "LeftOutResidualDisplay")
        name = evaluated.rows if name is None else name
        if column is None:
            return cls._of(rows, rows.mean, "prediction", name, None, ax)
        encoder = estimator.encoder_
        number = column_numbers("column", [column], [rule.name for rule in encoder.rules_])[0]
        if number not in used_columns(encoder):
            raise ValueError(f"column is {column!r}, which is not in use: it had no values in training.")
        values, missing = column_values(encoder, number, evaluated.features[evaluated.places[told]])
        rule, ticks = encoder.rules_[number], None
        if rule.kind == "text":
            ticks = {level: level_name(rule, level) for level in np.unique(values).astype(int).tolist()}
        over = np.where(missing, np.nan, values)
        label = f"mean of the target by {rule.label}" if rule.kind == "means" else rule.label
        return cls._of(rows, over, label, name, ticks, ax, rule.kind == "date")

    @classmethod
    def from_predictions(
        cls, y_true: Any, dist: Any, *, x: Any = None, x_label: str | None = None, sample_weight: Any = None,
        name: str | None = None, ax: Any = None,
    ) -> LeftOutResidualDisplay:  # fmt: skip
        """Draw it of targets and what `predict_dist` gave for them.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            Observed targets.
        dist : distribution
            What `predict_dist` gave for these rows.
        x : array-like of shape (n,), default=None
            What residuals are drawn over; None is the prediction.
        x_label : str, default=None
            What x is.
        sample_weight : array-like of shape (n,), default=None
            How much each row counts.
        name : str, default=None
            What the rows are, for the legend; None says it by itself.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        LeftOutResidualDisplay
            The display, drawn.
        """
        rows = Predicted.of(y_true, dist, sample_weight)
        over = rows.mean if x is None else np.asarray(x, dtype=np.float64)
        if over.shape != rows.y.shape:
            raise ValueError(f"x has shape {over.shape}: expected {rows.y.shape}, one number for each row.")
        label = ("prediction" if x is None else "x") if x_label is None else x_label
        return cls._of(rows, over, label, name, None, ax)

    @classmethod
    def _of(
        cls, rows: Predicted, x: np.ndarray, x_label: str, name: str | None, ticks: dict[int, str] | None, ax: Any,
        dates: bool = False,
    ) -> LeftOutResidualDisplay:  # fmt: skip
        known = np.isfinite(x)
        if not known.any():
            raise ValueError(f"{x_label} is missing in all rows: nothing to draw over.")
        units = None if rows.units is None else rows.units[known]
        some = Off(rows.residual[known], rows.std[known], rows.weights[known], units)
        bins = by_values(some, x[known]) if ticks is None else _by_levels(some, x[known])
        made = cls(x=x[known], residual=some.residual, bins=bins, x_label=x_label, name=name, ticks=ticks, dates=dates)
        return made.plot(ax=ax)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> LeftOutResidualDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        name : str, default=None
            What the rows are, for the legend; None takes that of the display.
        **kwargs : dict
            For matplotlib's `scatter`.

        Returns
        -------
        LeftOutResidualDisplay
            The display itself.
        """
        ax, label = axes(ax), self.name if name is None else name
        some = slice(None, None, -(-len(self.x) // _MOST_POINTS))
        style = {"s": 6, "alpha": 0.35, "color": BLUE, "linewidths": 0, **kwargs}
        self.points_ = ax.scatter(self.x[some], self.residual[some], label=label, **style)
        self.zero_ = ax.axhline(0.0, color=GREY, linestyle="--", linewidth=1)
        centres, means, errors = (
            np.array([part[key] for part in self.bins]) for key in ("centre", "residual", "error")
        )
        sure = np.where(np.isfinite(errors), errors, 0.0) * scipy.stats.norm.ppf(0.975)
        mark = "o-" if self.ticks is None else "o"
        self.means_ = ax.errorbar(centres, means, sure, color=ORANGE, fmt=mark, ms=4, lw=1.2, label="mean, 95 % bars")
        ax.set(xlabel=self.x_label, ylabel="residual (observed − predicted)")
        if self.ticks is not None:
            ax.set_xticks(list(self.ticks), list(self.ticks.values()), rotation=30, ha="right")
        if self.dates:
            dated(ax)
        ax.legend(loc="best", frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _by_levels(rows: Off, x: np.ndarray) -> list[dict[str, Any]]:
    """Mean residuals of each level, whose numbers are x (b,)."""
    levels = np.unique(x).tolist()
    found = by_slices(rows, [Slice("", "", x == level) for level in levels])
    return [{**part, "centre": level} for part, level in zip(found, levels, strict=True)]
