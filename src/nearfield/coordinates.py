"""Charts: columns that are places, as coordinates in which distances are those on the ground, and axes may be turned.

    LonLat   two columns in degrees become points on the sphere of circumference 360, seen from the middle of the rows:
             east, north and up. Distances are chords: there is no seam at 0 or 180 degrees, and the poles are points.
    Plane    two or three columns in the same unit, x and y, or x, y and z.

Both end with an orthogonal matrix, the rotation: its rows are the axes. What follows, the length scales first of all,
knows nothing of it. Other columns stay where they are; `up` is one more at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from nearfield.scaling import Scaling

DEGREE = np.pi / 180
_MOST_LON = 720.0  # degrees; beyond that the column is hardly a longitude
_MOST_LAT = 90.0
_SPREAD_OUT = 0.5  # length of the mean of points on the unit sphere; rows on one half have more
_ORTHOGONAL = 1e-9


@dataclass(frozen=True, eq=False)
class Chart(ABC):
    """Which of d features are coordinates, and the rotation (p, p) of those that may be turned."""

    d: int
    columns: tuple[int, ...]
    rotation: np.ndarray

    name: ClassVar[str]

    @property
    @abstractmethod
    def places(self) -> tuple[int, ...]:
        """Where the coordinates are among the features that come out."""

    @property
    def turned(self) -> tuple[int, ...]:
        """Those of them that the rotation mixes."""
        return self.places[: len(self.rotation)]

    most_lag: ClassVar[float] = np.inf
    """how far apart two places can be"""

    one_scale: ClassVar[bool] = False
    """whether the coordinates share one scale when they are standardised"""

    @abstractmethod
    def check(self, features: np.ndarray, names: Sequence[str]) -> None:
        """Raise ValueError for features (n, d) that cannot be coordinates."""

    def located(self, features: np.ndarray, weights: np.ndarray) -> Chart:
        """The chart that suits these training rows (n, d), which count so much (n,)."""
        return self

    @abstractmethod
    def flat(self, features: np.ndarray) -> np.ndarray:
        """Features (n, d) with the coordinates, before they are turned: (n, m)."""

    @abstractmethod
    def round(self, flat: np.ndarray) -> np.ndarray:
        """The inverse of `flat`."""

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Features (n, d) as what follows sees them, (n, m)."""
        return self._turned(self.flat(features), self.rotation)

    def undo(self, features: np.ndarray) -> np.ndarray:
        """The inverse of `apply`."""
        return self.round(self._turned(features, self.rotation.T))

    def _turned(self, features: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        found = np.array(features, dtype=np.float64)
        for axis, place in enumerate(self.turned):  # sums term by term: the same bits for rows alone or together
            total = np.zeros(len(features))
            for e, weight in zip(self.turned, rotation[axis].tolist(), strict=True):
                total += weight * features[:, e]
            found[:, place] = total
        return found

    @property
    def is_turned(self) -> bool:
        return not np.array_equal(self.rotation, np.eye(len(self.rotation)))

    def with_rotation(self, rotation: np.ndarray) -> Chart:
        return replace(self, rotation=rotation)

    def names(self, features: Sequence[str]) -> list[str]:
        """Names of the features that come out, from those of the features that go in."""
        found = self._names(list(features))
        if self.is_turned:
            for axis, place in enumerate(self.turned, start=1):
                found[place] = f"axis_{axis}"
        taken: set[str] = set()
        for place in self._others_first(len(found)):
            name, number = found[place], 1
            while (name if number == 1 else f"{name}_{number}") in taken:
                number += 1
            found[place] = name if number == 1 else f"{name}_{number}"
            taken.add(found[place])
        return found

    def _others_first(self, m: int) -> list[int]:
        """Places of other features, which keep their names, then those of coordinates."""
        return [e for e in range(m) if e not in self.places] + list(self.places)

    @abstractmethod
    def _names(self, features: list[str]) -> list[str]: ...

    @abstractmethod
    def away(self, direction: np.ndarray, lags: np.ndarray) -> np.ndarray:
        """Differences (l, p) between the coordinates of two places so far apart (l,) along a unit vector."""

    def ground(self, points: np.ndarray) -> np.ndarray:
        """How much ground (q,) points (q, p), evenly spread in the columns, stand for; zero where there is none."""
        return np.ones(len(points))

    def slopes(self, features: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Slopes (n, d) by features (n, d) from those by what they become, (n, m): the chain rule."""
        return self._round_slopes(features, self._turned(by, self.rotation.T))

    @abstractmethod
    def _round_slopes(self, features: np.ndarray, by: np.ndarray) -> np.ndarray: ...

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description."""
        own = {"name": self.name, "columns": list(self.columns), "features": self.d}
        return {**own, "rotation": self.rotation.tolist()}


@dataclass(frozen=True, eq=False)
class Plane(Chart):
    """Two or three columns in the same unit."""

    name: ClassVar[str] = "plane"

    @classmethod
    def of(cls, d: int, columns: Sequence[int]) -> Plane:
        return cls(d, tuple(columns), np.eye(len(columns)))

    @property
    def places(self) -> tuple[int, ...]:
        return self.columns

    def check(self, features: np.ndarray, names: Sequence[str]) -> None:
        for column in self.columns:
            _refuse(features[:, column], ~np.isfinite(features[:, column]), f"coordinate {names[column]!r}", "a number")

    def flat(self, features: np.ndarray) -> np.ndarray:
        return features

    def round(self, flat: np.ndarray) -> np.ndarray:
        return flat

    def _names(self, features: list[str]) -> list[str]:
        return features

    def away(self, direction: np.ndarray, lags: np.ndarray) -> np.ndarray:
        return np.asarray(lags[:, None] * (self.rotation @ direction))

    def _round_slopes(self, features: np.ndarray, by: np.ndarray) -> np.ndarray:
        return by

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plane:
        d, columns, rotation = _described(data, (2, 3))
        return cls(d, columns, rotation)


@dataclass(frozen=True, eq=False)
class LonLat(Chart):
    """Longitude and latitude in degrees: points on a sphere whose degrees have length one.

    origin: longitude and latitude from where east, north and up are seen: the middle of the training rows. Where they
    are all around the globe, (0, 0).
    """

    origin: tuple[float, float] = (0.0, 0.0)
    _axes: np.ndarray = field(init=False, repr=False)  # (3, 3) east, north and up in x, y, z

    name: ClassVar[str] = "lonlat"
    one_scale: ClassVar[bool] = True
    most_lag: ClassVar[float] = 180.0

    def __post_init__(self) -> None:
        lon, lat = (DEGREE * angle for angle in self.origin)
        axes = [
            [-np.sin(lon), np.cos(lon), 0.0],
            [-np.sin(lat) * np.cos(lon), -np.sin(lat) * np.sin(lon), np.cos(lat)],
            [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)],
        ]
        object.__setattr__(self, "_axes", np.array(axes))

    @classmethod
    def of(cls, d: int, lon: int, lat: int) -> LonLat:
        return cls(d, (lon, lat), np.eye(2))

    @property
    def places(self) -> tuple[int, ...]:
        return (*self.columns, self.d)

    def check(self, features: np.ndarray, names: Sequence[str]) -> None:
        lon, lat = (features[:, column] for column in self.columns)
        own_lon, own_lat = (names[column] for column in self.columns)
        outside, swapped = ~(np.abs(lat) <= _MOST_LAT), ""
        if outside.any() and (np.abs(lon) <= _MOST_LAT).all():
            swapped = " Are longitude and latitude swapped?"
        _refuse(lat, outside, f"latitude {own_lat!r}", "degrees from -90 to 90", swapped)
        far = ~(np.abs(lon) <= _MOST_LON)
        _refuse(lon, far, f"longitude {own_lon!r}", "degrees, such as -180 to 180 or 0 to 360")

    def located(self, features: np.ndarray, weights: np.ndarray) -> LonLat:
        x, y, z = np.average(self._points(features), axis=0, weights=weights).tolist()
        size = float(np.hypot(np.hypot(x, y), z))
        origin = (0.0, 0.0)
        if size >= _SPREAD_OUT:
            origin = (float(np.arctan2(y, x)) / DEGREE, float(np.arctan2(z, np.hypot(x, y))) / DEGREE)
        return replace(self, origin=origin)

    def ground(self, points: np.ndarray) -> np.ndarray:
        lat = points[:, 1]
        return np.where(np.abs(lat) < _MOST_LAT, np.cos(DEGREE * lat), 0.0)

    def _points(self, features: np.ndarray) -> np.ndarray:
        """Points (n, 3) on the unit sphere: x to (0, 0), y to (90, 0), z to the north pole.

        Longitudes are taken modulo 360 first, and cosines of latitudes as sines from the pole: 0 and 360 are then the
        same to the last bit, and so are all longitudes at a pole.
        """
        lon, lat = DEGREE * np.mod(features[:, self.columns[0]], 360.0), features[:, self.columns[1]]
        across = np.sin(DEGREE * (_MOST_LAT - np.abs(lat)))
        return np.stack([across * np.cos(lon), across * np.sin(lon), np.sin(DEGREE * lat)], axis=1)

    def flat(self, features: np.ndarray) -> np.ndarray:
        points = self._points(features)
        found = np.empty((len(features), self.d + 1))
        found[:, : self.d] = features
        for place, axis in zip(self.places, self._axes, strict=True):
            along = axis[0] * points[:, 0] + axis[1] * points[:, 1] + axis[2] * points[:, 2]
            found[:, place] = along / DEGREE
        return found

    def round(self, flat: np.ndarray) -> np.ndarray:
        x, y, z = (flat[:, self.places] @ self._axes).T
        found = flat[:, : self.d].copy()
        found[:, self.columns[0]] = np.arctan2(y, x) / DEGREE
        found[:, self.columns[1]] = np.arctan2(z, np.hypot(x, y)) / DEGREE
        return found

    def _names(self, features: list[str]) -> list[str]:
        found = [*features, ""]
        for place, name in zip(self.places, ("east", "north", "up"), strict=True):
            found[place] = name
        return found

    def away(self, direction: np.ndarray, lags: np.ndarray) -> np.ndarray:
        across = self.rotation @ direction
        arc = DEGREE * lags
        return np.column_stack([np.sin(arc)[:, None] * across, np.cos(arc) - 1]) / DEGREE

    def _round_slopes(self, features: np.ndarray, by: np.ndarray) -> np.ndarray:
        lon, lat = (DEGREE * features[:, column] for column in self.columns)
        by_points = by[:, self.places] @ self._axes  # by x, y and z; a degree is a unit long
        found = by[:, : self.d].copy()
        found[:, self.columns[0]] = np.cos(lat) * (by_points[:, 1] * np.cos(lon) - by_points[:, 0] * np.sin(lon))
        inward = by_points[:, 0] * np.cos(lon) + by_points[:, 1] * np.sin(lon)
        found[:, self.columns[1]] = by_points[:, 2] * np.cos(lat) - inward * np.sin(lat)
        return found

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "origin": list(self.origin)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LonLat:
        d, columns, rotation = _described(data, (2,))
        lon, lat = (float(value) for value in data["origin"])
        if not (abs(lon) <= 360 and abs(lat) <= 90):
            raise ValueError("its origin is not on the globe")
        return cls(d, columns, rotation, (lon, lat))


CHARTS: dict[str, type[Any]] = {chart.name: chart for chart in (Plane, LonLat)}


def chart_from_json(data: Any) -> Chart:
    """The inverse of `to_json`; ValueError if `data` is anything else."""
    try:
        found: Chart = CHARTS[data["name"]].from_json(data)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"The model's description of its coordinates is damaged ({error}).") from error
    return found


def _described(data: dict[str, Any], sizes: tuple[int, ...]) -> tuple[int, tuple[int, ...], np.ndarray]:
    """Number of features, columns and rotation of a description."""
    d, columns = data["features"], tuple(data["columns"])
    rotation = np.array(data["rotation"], dtype=np.float64)
    p = len(columns)
    if not (p in sizes and len(set(columns)) == p and all(type(e) is int and 0 <= e < d for e in columns)):
        raise ValueError("its columns are none of the table")
    if rotation.shape != (p, p) or not np.abs(rotation @ rotation.T - np.eye(p)).max() < _ORTHOGONAL:
        raise ValueError("its rotation is none")
    return d, columns, rotation


def _refuse(values: np.ndarray, wrong: np.ndarray, what: str, expected: str, hint: str = "") -> None:
    """Raise ValueError with an example if any of the values (n,) is wrong (n,)."""
    if wrong.any():
        example = values[wrong][0]
        raise ValueError(
            f"The {what} is {example:g} in {int(wrong.sum()):,} of {len(values):,} rows or like it: {expected} is "
            f"expected.{hint}"
        )


# ---------------------------------------------------------------------------------------------- standardisation


@dataclass(frozen=True, eq=False)
class ChartedScaling(Scaling):
    """Standardisation of what a chart makes of the features: centres and scales (m,) are those of coordinates."""

    chart: Chart

    @classmethod
    def charted(cls, chart: Chart, values: np.ndarray, weights: np.ndarray, if_constant: float) -> ChartedScaling:
        """Of training rows (n, d) that count so much (n,).

        Coordinates of one scale share the root of half of the sum of their variances: on a small part of a sphere, that
        of the two directions along it.
        """
        mapped = chart.apply(values)
        own = Scaling.of(mapped, weights, if_constant)
        scale = own.scale.copy()
        if chart.one_scale:
            places = list(chart.places)
            varying = [e for e in places if scale[e] != if_constant]
            if varying:
                scale[places] = np.sqrt((scale[varying] ** 2).sum() / 2)
        return cls(own.centre, scale, chart)

    @property
    def given(self) -> int:
        return self.chart.d

    def apply(self, values: np.ndarray) -> np.ndarray:
        return super().apply(self.chart.apply(values))

    def undo(self, values: np.ndarray) -> np.ndarray:
        return self.chart.undo(super().undo(values))

    def replaced(self, inputs: np.ndarray, others: np.ndarray, features: Sequence[int]) -> np.ndarray:
        if not set(features) & set(self.chart.columns):
            return super().replaced(inputs, others, features)
        found, columns = self.undo(inputs), list(features)
        found[:, columns] = self.undo(others)[:, columns]
        return self.apply(found)

    def slopes(self, values: np.ndarray, by: np.ndarray) -> np.ndarray:
        return self.chart.slopes(values, super().slopes(values, by))

    def names(self, features: Sequence[str]) -> list[str]:
        return self.chart.names(features)
