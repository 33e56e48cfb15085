"""Maps: the variogram of the rows beside that of the model, and predictions or residuals in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.colours import BLUE, DIVERGING, GREY, SEQUENTIAL, SPREAD
from nearfield.diagnostics import left_out
from nearfield.diagnostics.places import Grid, Variogram, ground_aspect, map_columns, map_grid, map_labels, variogram
from nearfield.diagnostics.predicted import target_labels, target_names
from nearfield.plots._common import axes
from nearfield.validation import check_choice

WHAT = ("mean", "std", "residual")
_TIMES = 2.5  # the largest semivariance of rows that is drawn of the model
_FAR = 0.02  # support below which a map is empty


class VariogramDisplay:
    """Half of the mean squared difference of training rows by their distance, beside the model's semivariogram.

    That of the model is for rows that differ in their place alone; where other columns matter, rows lie above it.

    Parameters
    ----------
    variogram : Variogram
        Lags, semivariances and numbers of pairs of the rows, and the curve of the model.
    unit : str, default=""
        Unit of distances.
    target : str, default="y"
        Name of the target, whose squared units the semivariance has.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of these axes.
    points_ : matplotlib PathCollection
        Semivariances of the rows, larger where there are more pairs.
    line_ : matplotlib Line2D
        The semivariogram of the model.
    """

    def __init__(self, *, variogram: Variogram, unit: str = "", target: str = "y") -> None:
        self.variogram = variogram
        self.unit = unit
        self.target = target

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, bins: int = 15, max_lag: float | None = None, ax: Any = None
    ) -> VariogramDisplay:
        """Draw it of a regression of one target with `coordinates`.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        bins : int, default=15
            Number of distances at which rows are averaged.
        max_lag : float, default=None
            The largest distance; None is a third of the largest between training rows.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        VariogramDisplay
            The display, drawn.
        """
        check_is_fitted(estimator)
        found = variogram(estimator, bins, max_lag)
        unit = "degrees of a great circle" if estimator._chart.one_scale else "units of the coordinates"
        return cls(variogram=found, unit=unit, target=target_names(estimator)[0]).plot(ax=ax)

    def plot(self, ax: Any = None, **kwargs: Any) -> VariogramDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        **kwargs : dict
            For matplotlib's `plot`, of the model's line.

        Returns
        -------
        VariogramDisplay
            The display itself.
        """
        ax, own = axes(ax), self.variogram
        sizes = 12 + 60 * np.sqrt(own.pairs / own.pairs.max())
        self.points_ = ax.scatter(own.lags, own.empirical, s=sizes, color=GREY, alpha=0.8, label="training rows")
        (self.line_,) = ax.plot(own.model_lags, own.model, **{"color": BLUE, "label": "model", **kwargs})
        ax.set(xlabel=f"distance ({self.unit})" if self.unit else "distance", ylabel=f"semivariance of {self.target}")
        ax.set_xlim(left=0)
        top = _TIMES * float(own.empirical.max())
        ax.set_ylim(0, top if top < own.model.max() else None)  # a sill beyond the reach of the rows would hide them
        ax.legend(frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class MapDisplay:
    """A map of predictions, of their standard deviations, or of residuals.

    Parameters
    ----------
    what : {"mean", "std", "residual"}
        What is shown; standard deviations are those of the noise-free function.
    columns : tuple of str
        Names of the two columns.
    target : str
        Name of the target.
    grid : Grid, default=None
        Predictions on a grid; None where there are points.
    points : ndarray of shape (n, 2), default=None
        Places of rows; None where there is a grid.
    values : ndarray of shape (n,), default=None
        What is shown of these.
    aspect : float, default=None
        How long a unit of the second column is drawn, relative to the first; None is as it fits.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of these axes.
    image_ : matplotlib QuadMesh or PathCollection
        The mesh, or the points.
    colorbar_ : matplotlib Colorbar
        What its colours mean.
    """

    def __init__(
        self, *, what: str, columns: tuple[str, str], target: str, grid: Grid | None = None,
        points: np.ndarray | None = None, values: np.ndarray | None = None, aspect: float | None = None,
    ) -> None:  # fmt: skip
        self.what = what
        self.columns = columns
        self.target = target
        self.grid = grid
        self.points = points
        self.values = values
        self.aspect = aspect

    @classmethod
    def from_estimator(
        cls, estimator: Any, what: str = "mean", *, size: int | None = None, output: int | None = None, ax: Any = None
    ) -> MapDisplay:
        """Draw it of a model with `coordinates`, or with two columns of numbers alone; others are at their medians.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        what : {"mean", "std", "residual"}, default="mean"
            The prediction, of classes the probability of one; its standard deviation; or residuals of left-out rows, of
            numbers and counts.
        size : int, default=None
            Cells along each side.
        output : int, default=None
            Number of the class, by default the last.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        MapDisplay
            The display, drawn.
        """
        check_is_fitted(estimator)
        check_choice("what", what, WHAT)
        name, own = target_names(estimator)[0], target_labels(estimator)[0]
        if what != "residual":
            grid, classes = map_grid(estimator, size, output), getattr(estimator, "classes_", None)
            label = own if classes is None else f"P({classes[-1 if output is None else output]})"
            return cls(
                what=what, columns=map_labels(estimator), target=label, grid=grid, aspect=_aspect(estimator)
            ).plot(ax=ax)
        columns = map_columns(estimator)
        evaluated = left_out(estimator)
        if columns is None or list(evaluated.targets) != [name]:
            raise ValueError("a map of residuals is that of one number or count at places: fit with coordinates=.")
        return cls(
            what=what, columns=map_labels(estimator), target=f"{own}, left out",
            points=evaluated.features[:, list(columns)], values=evaluated.targets[name].residual,
            aspect=_aspect(estimator),
        ).plot(ax=ax)  # fmt: skip

    @classmethod
    def from_predictions(
        cls, places: Any, values: Any, what: str = "mean", *, columns: tuple[str, str] = ("x", "y"), target: str = "y",
        aspect: float | None = None, ax: Any = None,
    ) -> MapDisplay:  # fmt: skip
        """Draw it of places of your own, with what was predicted there or what is left of the observations.

        Parameters
        ----------
        places : array-like of shape (n, 2)
            The places.
        values : array-like of shape (n,)
            What is shown of them: predictions, standard deviations, or observations less predictions.
        what : {"mean", "std", "residual"}, default="mean"
            Which of these.
        columns : tuple of str, default=("x", "y")
            Names of the two columns.
        target : str, default="y"
            Name of the target.
        aspect : float, default=None
            How long a unit of the second column is drawn, relative to the first; None is as it fits.
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.

        Returns
        -------
        MapDisplay
            The display, drawn.
        """
        check_choice("what", what, WHAT)
        at, shown = (np.asarray(given, dtype=np.float64) for given in (places, values))
        if at.ndim != 2 or at.shape[1] != 2 or shown.shape != at.shape[:1] or not len(at):
            raise ValueError(
                f"places has shape {at.shape} and values {shown.shape}: expected (n, 2) and (n,), with a row at least."
            )
        if not (np.isfinite(at).all() and np.isfinite(shown).all()):
            raise ValueError("places or values are missing or infinite in some rows: leave these out.")
        return cls(what=what, columns=columns, target=target, points=at, values=shown, aspect=aspect).plot(ax=ax)

    def plot(self, ax: Any = None, **kwargs: Any) -> MapDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes new axes.
        **kwargs : dict
            For matplotlib's `pcolormesh`, of points for `scatter`.

        Returns
        -------
        MapDisplay
            The display itself.
        """
        ax = axes(ax)
        if self.grid is not None:
            values = self.grid.mean if self.what == "mean" else self.grid.std
            shown = np.ma.masked_where(self.grid.support < _FAR, values)
            style = {**self._colours(shown.compressed() if shown.count() else values), "shading": "nearest", **kwargs}
            self.image_ = ax.pcolormesh(self.grid.x, self.grid.y, shown, **style)
        else:
            assert self.points is not None
            assert self.values is not None
            style = {**self._colours(self.values), "s": 8, "linewidths": 0, **kwargs}
            order = np.argsort(np.abs(self.values), kind="stable")  # the largest on top
            self.image_ = ax.scatter(*self.points[order].T, c=self.values[order], **style)
        label = {"mean": self.target, "std": f"std of {self.target}", "residual": f"residual of {self.target}"}
        self.colorbar_ = ax.figure.colorbar(self.image_, ax=ax, extend="both", label=label[self.what])
        ax.set(xlabel=self.columns[0], ylabel=self.columns[1])
        if self.aspect is not None:
            ax.set_aspect(self.aspect)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _colours(self, values: np.ndarray) -> dict[str, Any]:
        """Of all but the most extreme of these values; residuals have the middle of the colours at zero."""
        if self.what == "residual":
            most = float(np.quantile(np.abs(values), 0.98)) or 1.0
            return {"cmap": DIVERGING, "vmin": -most, "vmax": most}
        low, high = np.quantile(values, [0.01, 0.99])
        return {"cmap": SEQUENTIAL if self.what == "mean" else SPREAD, "vmin": low, "vmax": high}


def _aspect(model: Any) -> float | None:
    """As it is on the ground; columns that are no places have units of their own."""
    return None if model._chart is None else ground_aspect(model)
