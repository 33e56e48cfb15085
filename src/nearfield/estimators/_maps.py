"""What the estimators know about places: which columns are coordinates, and how they are turned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield.column_values import TableError
from nearfield.coordinates import Chart, ChartedScaling, LonLat, Plane
from nearfield.encoding import TableEncoder
from nearfield.validation import column_numbers
from nearfield.variogram import FAR_SILL, directions_of, largest_lag, semivariogram

LON, LAT = ("lon", "long", "longitude", "lng"), ("lat", "latitude")
"""Names of columns of longitude and latitude, in whatever case."""

_SPELLINGS = (
    'expected None, "lonlat", {"lonlat": [longitude, latitude]} or a list of two or three columns, names or numbers'
)


class Maps:
    """Mixin: columns that are coordinates."""

    coordinates: Any = None
    drift: Any = None
    _fit: Any
    _target: Any

    @property
    def encoder_(self) -> TableEncoder:
        """How columns become features."""
        raise NotImplementedError

    @property
    def rotation_(self) -> np.ndarray | None:
        """Axes along which coordinates are seen, a row each; None without coordinates.

        In terms of the coordinates, of longitude and latitude in terms of east and north: (p, p). The identity where
        left-out rows do not prefer another.
        """
        check_is_fitted(self)
        chart = self._chart
        return None if chart is None else chart.rotation.copy()

    def variogram(self, lags: Any, direction: Any = None) -> np.ndarray:
        """Compute the model's own semivariogram, which is zero at lag zero.

        Parameters
        ----------
        lags : array-like of shape (l,)
            Distances in the units of the coordinates; of longitude and latitude in degrees of a great circle, from the
            middle of the rows. All other columns are the same.
        direction : float or array-like, default=None
            None is the mean over all directions. An angle in degrees, from the first of two coordinates towards the
            second, or from east towards north; or a vector of the coordinates.

        Returns
        -------
        ndarray of shape (l,)
            The semivariance at each lag, in the squared units of the target.

        Raises
        ------
        ValueError
            Where the model was fitted without `coordinates`, or its target is not one real number.
        """
        check_is_fitted(self)
        chart, family = self._chart, self._fit.predictor.model.family
        if chart is None:
            raise ValueError("variogram needs to know which columns are places: fit with coordinates=.")
        if family.kind != "number":
            raise ValueError(f"variogram is that of one real target, not of a {family.name} family.")
        apart = np.asarray(lags, dtype=np.float64)
        if apart.ndim != 1 or not ((apart >= 0) & (apart <= chart.most_lag) & np.isfinite(apart)).all():
            most = f" of at most {chart.most_lag:g} degrees" if np.isfinite(chart.most_lag) else ""
            raise ValueError(f"lags is {lags!r}: expected a list of distances{most}, none below zero.")
        found = semivariogram(self._fit.predictor.model, self._fit.inputs, apart, directions_of(direction, chart))
        return np.asarray(found * float(self._target.scale) ** 2)

    def _sill_line(self) -> str:
        """That the sill means nothing, for the summary, where the kernel's variance is far above the target's."""
        model = self._fit.predictor.model
        if model.family.kind != "number" or not model.scale2[0] > FAR_SILL:
            return ""
        within = ""
        if self._chart is not None:
            lag = largest_lag(self._fit.inputs, self._fit.predictor.rows.inputs)
            within = f" (at the largest lag, {lag:.4g}, it is {self.variogram([lag])[0]:.4g})"
        return (
            f"the sill, kernel_scale_ squared, is {model.scale2[0]:.3g} times the variance of the target: length "
            f"scales are beyond the reach of the rows; read the variogram at lags within them instead{within}"
        )

    @property
    def _chart(self) -> Chart | None:
        """That of the fit."""
        inputs = self._fit.inputs
        return inputs.chart if isinstance(inputs, ChartedScaling) else None

    def _mapped_names(self) -> list[str]:
        """Names of the features as the kernel sees them: those of coordinates are axes."""
        names: list[str] = self._fit.inputs.names(self.encoder_.feature_names)
        return names

    def _axes_line(self) -> str:
        """How coordinates are turned, for the summary; nothing where there are none."""
        chart = self._chart
        if chart is None:
            return ""
        given = self.encoder_.feature_names
        own = ["east", "north"] if chart.one_scale else [given[e] for e in chart.columns]
        if not chart.is_turned:
            return f"coordinates: {', '.join(own)}, not turned, as left-out rows prefer"
        axes = (" ".join(f"{w:+.2f} {name}" for w, name in zip(axis, own, strict=True)) for axis in chart.rotation)
        return f"coordinates are turned, as left-out rows prefer: {', '.join(f'({axis})' for axis in axes)}"

    def _drifting(self, chart: Chart | None) -> dict[str, Any]:
        """Settings of a linear mean of some columns, where the argument asks for it.

        A column stands for all of its features, and a coordinate for all coordinates: these may be turned.
        """
        if self.drift is None:
            return {}
        own = self.encoder_
        chosen = column_numbers("drift", self.drift, [rule.name for rule in own.rules_])
        found = set(np.flatnonzero(np.isin(own.owners, chosen)).tolist())
        if not found:
            raise ValueError(f"drift is {self.drift!r}, which are no columns in use: name some, or leave it out.")
        if chart is not None and found & set(chart.columns):
            found |= set(chart.places)
        return {"mean": "linear", "drift": tuple(sorted(found))}

    def _checked_places(self, features: np.ndarray) -> np.ndarray:
        """Features (n, d) of new rows, whose coordinates are places."""
        if self._chart is not None:
            self._chart.check(features, self.encoder_.feature_names)
        return features

    def _chart_of(self, features: np.ndarray, named: bool) -> Chart | None:
        """The chart that the argument asks for, of training rows (n, d), checked; the encoder is told to fill no gaps.

        named: whether the columns have names of their own.
        """
        if self.coordinates is None:
            return None
        encoder = self.encoder_
        names = [rule.name for rule in encoder.rules_]
        kind, numbers = _asked(self.coordinates, names, named)
        _refuse_others(encoder, numbers)
        places = [int(np.flatnonzero(encoder.owners == number)[0]) for number in numbers]
        d = len(encoder.feature_names)
        chart: Chart = LonLat.of(d, *places) if kind == "lonlat" else Plane.of(d, places)
        chart.check(features, encoder.feature_names)
        encoder.rules_ = tuple(
            replace(rule, median=np.nan) if number in numbers else rule for number, rule in enumerate(encoder.rules_)
        )  # a place that is not known is nowhere, and not in the middle
        return chart


def _asked(coordinates: Any, names: Sequence[str], named: bool) -> tuple[str, list[int]]:
    """What kind of coordinates they are, and the numbers of their columns."""
    if isinstance(coordinates, str) and coordinates == "lonlat":
        return "lonlat", _lonlat(names, named)
    if isinstance(coordinates, Mapping) and list(coordinates) == ["lonlat"]:
        numbers, kind = column_numbers("coordinates", coordinates["lonlat"], names), "lonlat"
    elif isinstance(coordinates, str | Mapping) or not isinstance(coordinates, Iterable):
        raise ValueError(f"coordinates is {coordinates!r}: {_SPELLINGS}.")
    else:
        numbers, kind = column_numbers("coordinates", coordinates, names), "plane"
    sizes = {"lonlat": (2,), "plane": (2, 3)}[kind]
    if len(numbers) not in sizes or len(set(numbers)) < len(numbers):
        many = " or ".join(map(str, sizes))
        raise ValueError(f"coordinates has {len(numbers)} columns, {coordinates!r}: expected {many} different ones.")
    return kind, numbers


def _lonlat(names: Sequence[str], named: bool) -> list[int]:
    """Numbers of the columns of longitude and latitude, by their names; of an array of two columns these."""
    found = []
    for what, known in (("longitude", LON), ("latitude", LAT)):
        own = [number for number, name in enumerate(names) if name.lower().strip() in known]
        if len(own) > 1:
            which = " and ".join(repr(names[number]) for number in own)
            raise ValueError(
                f'coordinates is "lonlat", but {which} may both be the {what}: write coordinates={{"lonlat": '
                "[longitude, latitude]} with the names of the columns."
            )
        found += own
    if len(found) == 2:
        return found
    if not named and len(names) == 2:
        return [0, 1]
    there = ", ".join(map(repr, names[:8])) + (", .." if len(names) > 8 else "")
    raise ValueError(
        f'coordinates is "lonlat", but there is no column called {" or ".join(LON)} and one called {" or ".join(LAT)} '
        f'among {there}: write coordinates={{"lonlat": [longitude, latitude]}} with names or numbers of the columns.'
    )


def _refuse_others(encoder: TableEncoder, numbers: Sequence[int]) -> None:
    """Coordinates are columns of numbers without gaps."""
    for number in numbers:
        rule = encoder.rules_[number]
        if rule.kind != "number":
            what = {"unused": "no values"}.get(rule.kind, f"{rule.kind} values")
            raise TableError(f"Column {rule.name!r} is a coordinate, but has {what}: numbers are expected.")
        if rule.indicator:
            raise TableError(
                f"Column {rule.name!r} is a coordinate, but has missing values: a row without a place cannot be used. "
                "Leave such rows out, or fill them in."
            )
