"""What columns do to predictions, and what the number of neighbours does to left-out scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.colours import BLUE, GREY, ORANGE
from nearfield.columns import Features
from nearfield.diagnostics import left_out
from nearfield.diagnostics.effects import Effect, effect
from nearfield.diagnostics.neighbours import scores_by_k
from nearfield.diagnostics.predicted import target_labels
from nearfield.diagnostics.slices import used_columns
from nearfield.encoding import columns_of
from nearfield.plots._common import axes, dated
from nearfield.validation import column_numbers, is_int

_ROWS = 50
SCORES = {"rmse": "RMSE", "nll": "NLL", "crps": "CRPS", "error": "error", "brier": "Brier score"}


class PartialEffectDisplay:
    """What is predicted on average over some rows when a column is set to each of some values, with error bars.

    Parameters
    ----------
    effect : Effect
        Values of the column, means, and error bars, which are those of the noise-free function.
    output : int, default=0
        Which of several outputs or classes is shown.
    y_label : str, default="prediction"
        What is predicted.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of these axes.
    line_ : matplotlib Line2D or ErrorbarContainer
        Means; of levels with their bars.
    band_ : matplotlib artist or None
        Error bars; None of levels.
    """

    def __init__(self, *, effect: Effect, output: int = 0, y_label: str = "prediction") -> None:
        self.effect = effect
        self.output = output
        self.y_label = y_label

    @classmethod
    def from_estimator(
        cls, estimator: Any, column: Any, X: Any = None, *, output: int | None = None, n_rows: int = _ROWS,
        points: int = 17, ax: Any = None,
    ) -> PartialEffectDisplay:  # fmt: skip
        """Draw it of a column, over rows of X or of the training table.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        column : str or int
            Name or number of the column.
        X : array-like or data frame of shape (n, d), default=None
            Rows over which predictions are averaged; None takes training rows.
        output : int, default=None
            Which of several outputs, by default the first, or of the classes, by default the last.
        n_rows : int, default=50
            So many rows at most.
        points : int, default=17
            Values of a column of numbers.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        PartialEffectDisplay
            The display, drawn.
        """
        check_is_fitted(estimator)
        encoder = estimator.encoder_
        number = column_numbers("column", [column], [rule.name for rule in encoder.rules_])[0]
        if number not in used_columns(encoder):
            raise ValueError(f"column is {column!r}, which is not in use: it had no values in training.")
        for name, value, least in (("n_rows", n_rows, 1), ("points", points, 2)):
            if not (is_int(value) and value >= least):
                raise ValueError(f"{name} is {value!r}: expected a whole number of at least {least}.")
        if X is None:
            features = left_out(estimator, n_rows).features
        else:
            features = X.values if isinstance(X, Features) else encoder.encode(columns_of(estimator, X, reset=False))
        some = features[np.random.default_rng(0).permutation(len(features))[:n_rows]]
        found = effect(estimator, number, some, points, among=features)
        classes = getattr(estimator, "classes_", None)
        most = found.mean.shape[1]
        chosen = (most - 1 if classes is not None else 0) if output is None else output
        if not (is_int(chosen) and 0 <= chosen < most):
            raise ValueError(f"output is {output!r}: expected a whole number from 0 to {most - 1}.")
        label = target_labels(estimator)[chosen] if classes is None else f"P({classes[chosen]})"
        return cls(effect=found, output=int(chosen), y_label=label).plot(ax=ax)

    def plot(self, ax: Any = None, **kwargs: Any) -> PartialEffectDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        **kwargs : dict
            For matplotlib's `plot`, of levels for `errorbar`.

        Returns
        -------
        PartialEffectDisplay
            The display itself.
        """
        ax, own = axes(ax), self.effect
        mean, low, high = (part[:, self.output] for part in (own.mean, own.low, own.high))
        if own.ordered:
            self.band_ = ax.fill_between(own.values, low, high, color=BLUE, alpha=0.2, linewidth=0)
            (self.line_,) = ax.plot(own.values, mean, **{"color": BLUE, **kwargs})
            if own.date:
                dated(ax)
        else:
            self.band_ = None
            style = {"fmt": "o", "color": BLUE, "capsize": 3, **kwargs}
            self.line_ = ax.errorbar(own.values, mean, np.stack([mean - low, high - mean]), **style)
            ax.set_xticks(own.values, own.labels, rotation=30, ha="right")
        ax.set(xlabel=own.label, ylabel=self.y_label)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class KCurveDisplay:
    """A left-out score for each number of neighbours, each with calibration of its own, and the number in use.

    Parameters
    ----------
    ks : ndarray of shape (q,)
        Numbers of neighbours.
    scores : ndarray of shape (q,)
        The score with each.
    k : int
        That of the model.
    score : str, default="crps"
        Name of the score; less is better.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of these axes.
    line_ : matplotlib Line2D
        The scores.
    chosen_ : matplotlib Line2D
        The line at the number in use.
    """

    def __init__(self, *, ks: np.ndarray, scores: np.ndarray, k: int, score: str = "crps") -> None:
        self.ks = ks
        self.scores = scores
        self.k = k
        self.score = score

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, score: str | None = None, n_rows: int | None = None, ax: Any = None
    ) -> KCurveDisplay:
        """Draw it of left-out training rows.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        score : str, default=None
            "rmse", "nll" or "crps" of numbers and counts, by default the last; "nll", "error" or "brier" of classes, by
            default the first.
        n_rows : int, default=None
            How many rows are left out; None takes a few hundred.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        KCurveDisplay
            The display, drawn.
        """
        check_is_fitted(estimator)
        found = scores_by_k(estimator, n_rows)
        if not found:
            raise ValueError("the model has a single training row: there are no neighbours to choose.")
        there = [name for name in SCORES if name in next(iter(found.values()))]
        chosen = ("crps" if "crps" in there else "nll") if score is None else score
        if chosen not in there:
            raise ValueError(f"score is {score!r}: expected one of {', '.join(map(repr, there))}.")
        values = np.array([scores[chosen] for scores in found.values()])
        used = min(estimator.k_, max(found))
        return cls(ks=np.array(list(found)), scores=values, k=used, score=chosen).plot(ax=ax)

    def plot(self, ax: Any = None, **kwargs: Any) -> KCurveDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        **kwargs : dict
            For matplotlib's `plot`.

        Returns
        -------
        KCurveDisplay
            The display itself.
        """
        ax = axes(ax)
        (self.line_,) = ax.plot(self.ks, self.scores, **{"color": BLUE, "marker": "o", "markersize": 4, **kwargs})
        self.chosen_ = ax.axvline(self.k, color=ORANGE, linestyle="--", linewidth=1, label=f"in use: {self.k}")
        ax.set_xscale("log", base=2)
        ax.set_xticks(self.ks[:: max(1, len(self.ks) // 8)], [str(k) for k in self.ks[:: max(1, len(self.ks) // 8)]])
        ax.minorticks_off()
        ax.set(xlabel="neighbours k", ylabel=f"left-out {SCORES.get(self.score, self.score)}")
        ax.legend(frameon=False)
        ax.grid(axis="y", color=GREY, alpha=0.2)
        self.ax_, self.figure_ = ax, ax.figure
        return self
