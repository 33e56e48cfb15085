"""What users say of leaving rows out: groups, times and a buffer; and what becomes of it in standardised units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nearfield.coordinates import DEGREE, ChartedScaling
from nearfield.families import Family, Observed
from nearfield.rows import Rows, held
from nearfield.scaling import Scaling
from nearfield.storage import Make

_ROUNDING = 1e-9  # of distances: rows that are exactly as far away as the buffer are hidden, too
_LOOKED_AT = 1000  # rows that tell whether rows see others


@dataclass(frozen=True, eq=False)
class Buffer:
    """Distances within which rows do not see each other, in the users' units.

    radius: between places, where there are coordinates; of longitude and latitude in degrees of a great circle. Else
    columns: numbers of features with a distance each, the radii of an ellipsoid.
    """

    radius: float | None = None
    columns: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    def matrix(self, inputs: Scaling) -> np.ndarray:
        """What standardised inputs (n, m) are multiplied with, (p, m): rows nearer than 1 are then hidden."""
        scale, found = inputs.scale, []
        chart = inputs.chart if isinstance(inputs, ChartedScaling) else None
        if self.radius is not None and chart is not None:
            chord = 2 * np.sin(DEGREE * self.radius / 2) / DEGREE if chart.one_scale else self.radius
            found += [np.eye(len(scale))[place] * scale[place] / chord for place in chart.places]
        for column, distance in self.columns.items():
            weights = np.zeros(len(scale))
            if chart is not None and column in chart.columns:  # as it was before the axes were turned
                turned = list(chart.turned)
                weights[turned] = chart.rotation[:, chart.columns.index(column)] * scale[turned] / distance
            else:
                weights[column] = scale[column] / distance
            found.append(weights)
        return np.array(found) / (1 + _ROUNDING)

    def described(self, names: list[str]) -> str:
        """In words."""
        if self.radius is not None:
            return f"{self.radius:g}"
        return ", ".join(f"{distance:g} of {names[column]}" for column, distance in self.columns.items())


class Clock(NamedTuple):
    """Where the times of the rows came from: a column of X, or None, and the kind of values."""

    column: str | None
    kind: str


class GroupLabels(NamedTuple):
    """What is remembered of the labels of groups: what kind they are, hashes (g,) of them, and their numbers (g,)."""

    kind: str
    keys: np.ndarray
    numbers: np.ndarray


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What rows are left out with: groups (n,), times (n,) and a buffer, each None where there is none.

    clock: where the times came from; labels: what the groups are called; told: the buffer in words.
    """

    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    buffer: Buffer | None = None
    told: str = ""
    clock: Clock | None = None
    labels: GroupLabels | None = None

    def some(self, which: np.ndarray) -> LeftOut:
        """The same of those rows."""
        groups, times = (None if part is None else part[which] for part in (self.groups, self.times))
        return replace(self, groups=groups, times=times)

    def rows(self, family: Family, X: np.ndarray, observed: Observed, inputs: Scaling, make: Make = np.empty) -> Rows:
        """Rows X (n, d) about which nothing is known yet, with that standardisation; make: of large arrays."""
        buffer = None if self.buffer is None else self.buffer.matrix(inputs)
        return Rows.of(family, held(X, inputs, make), observed, self.groups, self.times, buffer)

    def refuse_blind(self, rows: Rows) -> None:
        """Raise ValueError if no row sees any other. Groups and times have been looked at before."""
        if self.buffer is None or rows.hidden is None:
            return
        which = np.arange(0, len(rows), -(-len(rows) // _LOOKED_AT))
        if (rows.seen_as_they_are(which, 1) < 0).all():
            also = [name for name, of in (("groups", self.groups), ("times", self.times)) if of is not None]
            beside = f", together with the {' and the '.join(also)}," if also else ""
            raise ValueError(
                f"buffer is {self.told}: within that distance{beside} no row has another one left to be predicted "
                "from. Pass a smaller buffer, in the units of the columns."
            )

    def described(self) -> str:
        """How rows are left out, for the summary; nothing where it is one by one."""
        parts = []
        if self.groups is not None:
            parts.append(f"with their group, of {int(np.unique(self.groups).size):,}")
        if self.times is not None:
            parts.append(f"with all rows that are not earlier, of {int(np.unique(self.times).size):,} times")
        if self.buffer is not None:
            parts.append(f"with all rows within a buffer of {self.told}")
        return f"rows are left out {', and '.join(parts)}" if parts else ""


ALONE = LeftOut()
"""One by one."""
