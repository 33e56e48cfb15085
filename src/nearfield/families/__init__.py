"""Families: all that is known about a kind of observation. One class and one `register` each.

Every family enters the closed form as Gaussian sites: each row has a pseudo-target t and a pseudo-noise v, so that the
latent functions given the neighbours are Gaussian. For all but the Gaussian ones the sites depend on a few numbers of
the row, its site state (Sec. 3.3 and 3.4 of the paper), which follow from the row's own moments in closed form.

An observation is what is left out at a time: one copy of a row, or one label of an input.
"""

from __future__ import annotations

from typing import Any

from nearfield.families._base import (
    NOISE_FLOOR,
    Calibrator,
    Family,
    Given,
    Observations,
    Observed,
    Parameter,
    Parameters,
    Score,
    Sites,
    SiteSlopes,
    checked,
    taken,
)
from nearfield.families.classes import Bernoulli, OneAgainstAll
from nearfield.families.counts import Binomial, NegativeBinomial
from nearfield.families.gaussian import Gaussian
from nearfield.families.outputs import GaussianOutputs
from nearfield.families.student_t import StudentT
from nearfield.persistence import ModelFileError

ENTRY_POINTS = "nearfield.families"
"""The group of entry points in which other packages name modules that register families, for the command line."""

FAMILIES: dict[str, type[Family]] = {}
"""By name; `register` adds to it."""


def register(family: type[Family]) -> type[Family]:
    """Make a family known: to the estimator that it names, to files and to the command line. A decorator, too.

    The same class may come again, also defined anew, as in a notebook; another one of the same name may not.
    """
    known = FAMILIES.get(family.name, family)
    if (known.__module__, known.__qualname__) != (family.__module__, family.__qualname__):
        raise ValueError(
            f"the name {family.name!r} is taken by {known.__module__}.{known.__qualname__}: choose another."
        )
    FAMILIES[family.name] = family
    return family


for _family in (Gaussian, GaussianOutputs, StudentT, Bernoulli, OneAgainstAll, Binomial, NegativeBinomial):
    register(_family)


def names_for(estimator: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the families that the estimator of that name fits and that predict one of these kinds."""
    return tuple(name for name, f in FAMILIES.items() if f.estimator == estimator and f.kind in kinds)


def family_named(name: Any) -> type[Family]:
    """The family that a file names, or a ModelFileError."""
    if name not in FAMILIES:
        raise ModelFileError(
            f"its family is {name!r}; known are {', '.join(FAMILIES)}. Register it before loading; the command line "
            f"imports what packages name as entry points of the group {ENTRY_POINTS!r}"
        )
    return FAMILIES[name]


def usual(kind: str) -> type[Family]:
    """The first family that predicts that kind and needs nothing but inputs."""
    return next(f for f in FAMILIES.values() if f.kind == kind and not any(own.needed for own in f.given.values()))


def tasks() -> dict[str, list[type[Family]]]:
    """What the command line calls a task, and the families of one target that it may mean; the first is the default."""
    found: dict[str, list[type[Family]]] = {}
    for family in FAMILIES.values():
        if family.kind != "numbers":
            found.setdefault(family.task, []).append(family)
    return found


__all__ = [
    "ENTRY_POINTS",
    "FAMILIES",
    "NOISE_FLOOR",
    "Calibrator",
    "Family",
    "Given",
    "Observations",
    "Observed",
    "Parameter",
    "Parameters",
    "Score",
    "SiteSlopes",
    "Sites",
    "checked",
    "family_named",
    "names_for",
    "register",
    "taken",
    "tasks",
    "usual",
]
