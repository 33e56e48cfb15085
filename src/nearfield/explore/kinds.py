"""What a page shows of each kind of target: its predictions, how they change with a column, and targets of rows.

Everything that is predicted comes from the methods of the estimators that users have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfield.column_values import as_level
from nearfield.columns import Features
from nearfield.conformal import Errors
from nearfield.diagnostics import left_out
from nearfield.diagnostics.effects import bounded
from nearfield.diagnostics.predicted import affordable, target_names
from nearfield.diagnostics.slices import short
from nearfield.explore.fields import Refused, number
from nearfield.wild import told_noise

NARROW, WIDE = 0.5, 0.9
"""Probabilities of the intervals that are shown."""

_TAIL = 0.005  # beyond which training targets, and a density of which one sees more, are not drawn
_FAR_TAIL = 1e-4  # beyond which no density is
_CURVE = 141  # points of a density
_BINS = 30  # of the training targets
_BARS = 60  # of counts, at most
_LISTED_CLASSES = 30
_IN_ORDER = 12  # classes that keep their order; of more the most probable come first
_LEAST = 1e-15


_POSITIVE = float(np.nextafter(0, 1))


@dataclass(frozen=True)
class Beside:
    """A number that is asked for beside the columns: name, a usual value, the least one, and whether it is whole."""

    name: str
    label: str
    expected: str
    value: float
    least: float
    whole: bool = False

    def read(self, given: Any) -> float:
        """What the page sent of it."""
        found = number(given, self.label.capitalize(), self.expected, self.name)
        if found < self.least or (self.whole and not found.is_integer()):
            raise Refused(f"{self.label.capitalize()} is {found:g}; {self.expected} is expected.", self.name)
        return found


@dataclass(frozen=True)
class Curve:
    """Predictions (g,) at some points, with the ends of their error bars."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Kind:
    """One kind of target. names: what can be chosen to be looked at: outputs, or classes."""

    bars = f"{100 * WIDE:.0f} % intervals of a new observation"
    """what the error bars of effects are"""
    far = "the prediction is no more than the mean of the model, and the error bars are about as wide as they can be"
    """what predictions are far from all training rows"""

    def __init__(self, model: Any, targets: np.ndarray, given: Mapping[str, np.ndarray]) -> None:
        """targets: (b,) or (b, P) of some training rows; given: what these have beside the inputs, (b,) each."""
        self.model, self.names = model, target_names(model)
        self._targets, self._given = targets, given

    def described(self) -> dict[str, Any]:
        """What the page has to know of the target."""
        given = [{"name": one.name, "label": one.label, "value": one.value, "whole": one.whole} for one in self.asked()]
        title = ", ".join(self.names)
        return {"names": self.names, "title": title, "choice": 0, "given": given, "bars": self.bars}

    def asked(self) -> list[Beside]:
        """What is asked for beside the columns."""
        return []

    def read(self, given: Any) -> dict[str, float]:
        """What the page sent of that."""
        told = given if isinstance(given, Mapping) else {}
        return {one.name: one.read(told.get(one.name)) for one in self.asked()}

    def given_at(self, given: Mapping[str, np.ndarray], place: int) -> dict[str, float]:
        """What a training row had of that, of what several rows had (b,)."""
        return {one.name: one.value for one in self.asked()}

    def predicted(self, X: Features, given: Mapping[str, float], choice: int) -> dict[str, Any]:
        """The prediction of one row: `says`, and what is drawn."""
        raise NotImplementedError

    def curve(self, X: Features, given: Mapping[str, float], choice: int) -> Curve:
        """Predictions of rows with error bars."""
        raise NotImplementedError

    def centre(self, X: Features, given: Mapping[str, float]) -> np.ndarray:
        """What is predicted (b, V), each in a unit of its own, so that changes can be compared."""
        raise NotImplementedError

    def shown_target(self, target: Any) -> list[str]:
        """The target, or targets, of a training row for people to read."""
        return ["missing" if np.isnan(value) else short(value) for value in np.atleast_1d(target)]


class Numbers(Kind):
    """One number, or several."""

    def __init__(self, model: Any, targets: np.ndarray, given: Mapping[str, np.ndarray]) -> None:
        super().__init__(model, targets.reshape(len(targets), -1), given)
        known = told_noise(np.asarray(given.get("known_noise", 0.0)))
        self._noise_was_known = bool(known.any())

    def described(self) -> dict[str, Any]:
        return {**super().described(), "targets": [_histogram(column) for column in self._targets.T]}

    def asked(self) -> list[Beside]:
        label = "known noise variance of the new observation"
        one = Beside("noise_variance", label, "a number of at least 0", 0.0, 0.0)
        return [one] if self._noise_was_known else []

    def _distribution(self, X: Features, given: Mapping[str, float]) -> Any:
        return self.model.predict_dist(X, **given)

    def predicted(self, X: Features, given: Mapping[str, float], choice: int) -> dict[str, Any]:
        dist = self._distribution(X, given)
        mean, std, (low, high) = dist.mean(), dist.std(), dist.interval(WIDE)
        narrow = dist.interval(NARROW)
        parts = [np.ravel(part).tolist() for part in (mean, std, *narrow, low, high)]
        rows = [
            {"name": name, "mean": own[0], "std": own[1], "narrow": own[2:4], "wide": own[4:6]}
            for name, *own in zip(self.names, *parts, strict=True)
        ]
        one = rows[choice]
        says = (
            f"{one['name']}: {short(one['mean'])} on average, with {100 * WIDE:.0f} % probability between "
            f"{short(one['wide'][0])} and {short(one['wide'][1])}."
        )
        x, near = self._points(dist, choice)
        shape = (len(x), *(1,) * (np.ndim(mean)))
        density = np.asarray(dist.pdf(x.reshape(shape))).reshape(len(x), -1)[:, choice]
        return {"says": says, "targets": rows, "density": {"x": x, "y": density, "near": near}}

    def _points(self, dist: Any, choice: int) -> tuple[np.ndarray, tuple[float, float]]:
        """Where a density is drawn, and the ends of most of it."""
        tails = (_FAR_TAIL, _TAIL, 1 - _TAIL, 1 - _FAR_TAIL)
        a, low, high, b = (float(np.ravel(dist.ppf(q))[choice]) for q in tails)
        x = [np.linspace(a, low, _CURVE // 7), np.linspace(low, high, _CURVE), np.linspace(high, b, _CURVE // 7)]
        return np.unique(np.concatenate(x)), (low, high)

    def curve(self, X: Features, given: Mapping[str, float], choice: int) -> Curve:
        dist = self._distribution(X, given)
        parts = (np.asarray(part).reshape(len(X.values), -1)[:, choice] for part in (dist.mean(), *dist.interval(WIDE)))
        return Curve(*parts)

    def centre(self, X: Features, given: Mapping[str, float]) -> np.ndarray:
        mean = np.asarray(self.model.predict(X)).reshape(len(X.values), -1)
        return mean / np.maximum(np.nanstd(self._targets, axis=0), 1e-300)


class Counts(Kind):
    """A count, for so much exposure or out of so many trials."""

    def described(self) -> dict[str, Any]:
        return {**super().described(), "targets": [_histogram(self._targets)]}

    def asked(self) -> list[Beside]:
        found = []
        for name, told in self.model._family.given.items():
            if told.needed or name in self.model._given_names:
                usual = float(np.median(self._given[name]))
                whole = (name, name, "a whole number of at least 1", float(round(usual)), 1.0, True)
                share = (name, name, "a number above 0", float(f"{usual:.4g}"), _POSITIVE)
                found.append(Beside(*(whole if told.whole else share)))
        return found

    def given_at(self, given: Mapping[str, np.ndarray], place: int) -> dict[str, float]:
        own = {one: float(given[one.name][place]) for one in self.asked()}
        return {one.name: float(round(value)) if one.whole else float(f"{value:.6g}") for one, value in own.items()}

    def predicted(self, X: Features, given: Mapping[str, float], choice: int) -> dict[str, Any]:
        dist = self.model.predict_dist(X, **given)
        mean, std = float(dist.mean()[0]), float(dist.std()[0])
        narrow, wide = ([float(end[0]) for end in dist.interval(level)] for level in (NARROW, WIDE))
        beside = "".join(f" with {name} {value:g}" for name, value in given.items())
        says = (
            f"{self.names[0]}{beside}: {short(mean)} on average, with at least {100 * WIDE:.0f} % probability from "
            f"{short(wide[0])} to {short(wide[1])}."
        )
        row = {"name": self.names[0], "mean": mean, "std": std, "narrow": narrow, "wide": wide}
        return {"says": says, "targets": [row], "bars": _bars(dist)}

    def curve(self, X: Features, given: Mapping[str, float], choice: int) -> Curve:
        dist = self.model.predict_dist(X, **given)
        return Curve(dist.mean(), *dist.interval(WIDE))

    def centre(self, X: Features, given: Mapping[str, float]) -> np.ndarray:
        return np.log(np.maximum(self.model.predict(X, **given), 1e-300))[:, None]


class Classes(Kind):
    """One of two or more classes."""

    bars = "the probability with the latent function two standard deviations lower, and higher"
    far = "the probabilities are about the same everywhere there"

    def __init__(self, model: Any, targets: np.ndarray, given: Mapping[str, np.ndarray]) -> None:
        super().__init__(model, targets, given)
        self._title, self.names = self.names[0], [_label(label) for label in model.classes_.tolist()]
        self._errors: Errors | None = None
        if len(model._fit.predictor.rows.observations) > affordable(model):
            rows = left_out(model)  # as many as take some seconds
            assert rows.labelled is not None
            own = rows.labelled
            lost = -np.log(np.maximum(own.of_label, _LEAST))
            self._errors = Errors.of(lost, own.weights / model.class_weight_[own.labels])

    def described(self) -> dict[str, Any]:
        some = "" if self._errors is None else f", as {len(self._errors.values):,} left-out rows tell it"
        told = f"The set holds the right class with a probability of {100 * WIDE:.0f} %{some}."
        choice = 1 if len(self.names) == 2 else int(self.model.class_shares_.argmax())
        return {**super().described(), "title": self._title, "choice": choice, "set": told}

    def predicted(self, X: Features, given: Mapping[str, float], choice: int) -> dict[str, Any]:
        p, inside = self.model.predict_proba(X)[0], self._inside(X)
        best = int(p.argmax())
        members = [self.names[place] for place in np.flatnonzero(inside)[np.argsort(-p[inside], kind="stable")]]
        listed = ", ".join(members[:8]) + (f" and {len(members) - 8} more" if len(members) > 8 else "")
        likely = f"{self.names[best]} with probability {_share(p[best])}"
        says = f"{self._title}: {likely}. The {100 * WIDE:.0f} % set: {listed}."
        order = np.argsort(-p, kind="stable")[:_LISTED_CLASSES]
        order = np.sort(order) if len(p) <= _IN_ORDER else order
        rows = [{"name": self.names[c], "p": p[c], "inside": bool(inside[c]), "class": c} for c in order.tolist()]
        return {"says": says, "classes": rows, "best": best, "others": max(0.0, 1 - float(p[order].sum()))}

    def _inside(self, X: Features) -> np.ndarray:
        """Which classes (K,) are in the set of one row."""
        if self._errors is None:
            return np.asarray(self.model.predict_set(X, WIDE)[0])
        log_p = self.model.predict_log_proba(X)[0]
        inside = -log_p <= self._errors.quantile(WIDE)
        inside[log_p.argmax()] = True
        return np.asarray(inside)

    def curve(self, X: Features, given: Mapping[str, float], choice: int) -> Curve:
        return Curve(*(part[:, choice] for part in bounded(self.model, X.values, len(X.values), 1, [choice])))

    def centre(self, X: Features, given: Mapping[str, float]) -> np.ndarray:
        return np.asarray(self.model.predict_proba(X))

    def shown_target(self, target: Any) -> list[str]:
        return [self.names[int(target)]]


KINDS: dict[str, type[Kind]] = {"number": Numbers, "numbers": Numbers, "count": Counts, "label": Classes}
"""By what families predict."""


def _label(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else as_level(label)


def _share(p: float) -> str:
    """A probability that is not 0 or 1 unless it is."""
    if 0 < p < 5e-4:
        return "below 0.001"
    return "above 0.999" if 0.9995 < p < 1 else f"{p:.3f}"


def _histogram(values: np.ndarray) -> dict[str, Any]:
    """Where training targets (b,), NaN where missing, are: edges and counts; wild ones are left out."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [_TAIL, 1 - _TAIL])
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(known, _BINS, (low, high))
    return {"edges": edges, "counts": counts}


def _bars(dist: Any) -> list[dict[str, Any]]:
    """Probabilities of counts, or of ranges of them where there are many."""
    low, high = (float(dist.ppf(q)[0]) for q in (_TAIL / 5, 1 - _TAIL / 5))
    low = 0.0 if high < _BARS else low
    width = max(1.0, np.ceil((high - low + 1) / _BARS))
    first = np.arange(low, high + 1, width)
    last = first + width - 1
    p = dist.pmf(first[:, None]) if width == 1 else dist.cdf(last[:, None]) - dist.cdf(first[:, None] - 1)
    return [{"from": a, "to": b, "p": q} for a, b, q in zip(first, last, np.ravel(p), strict=True)]
