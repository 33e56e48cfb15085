"""Rows that were predicted without being seen: left-out training rows, or test rows, with what was observed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield import metrics
from nearfield.columns import Features
from nearfield.counts import CountPredictive
from nearfield.encoding import columns_of
from nearfield.rules import unit_of, with_unit
from nearfield.validation import refuse_missing_target

LEVEL = 0.9
"""Probability of the intervals that are shown."""

_MOST_LEFT_OUT = 4000
_LEAST_LEFT_OUT = 400
_WORK = 4e10  # operations that leaving rows out may take: some seconds
_DIGITS = 12  # of features, of the largest in a column
_MOST_TEST_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class Predicted:
    """Rows (b,) of one target, a number or a count, with their predictive distributions.

    below, up_to: P(Y < y) and P(Y <= y) of what was observed, the same but for counts. lower, upper: the central 90 %
    interval. units: what rows share their fate with, see `Rows.units`; None: nothing.
    """

    y: np.ndarray
    dist: Any
    weights: np.ndarray
    units: np.ndarray | None = None

    @classmethod
    def of(cls, y: Any, dist: Any, weights: Any = None, units: np.ndarray | None = None) -> Predicted:
        """From targets y (b,) and one frozen `scipy.stats` distribution over them, `norm` or `t`, or counts'."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim != 1 or y.size == 0:
            raise ValueError(f"y has shape {y.shape}: expected (n,) with at least one row, of one target.")
        refuse_missing_target(y)
        if not (hasattr(dist, "cdf") and hasattr(dist, "interval")):
            raise ValueError(
                f"the predictions are a {type(dist).__name__}: expected what `predict_dist` gives, a frozen "
                "scipy.stats distribution with one entry a row."
            )
        if np.shape(dist.mean()) not in ((), y.shape):
            raise ValueError(f"y has shape {y.shape}, the predictions {np.shape(dist.mean())}: expected the same.")
        counted = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
        if counted.shape != y.shape or not (np.isfinite(counted) & (counted >= 0)).all() or not counted.any():
            raise ValueError(f"weights has shape {counted.shape}: expected {y.shape}, numbers of at least 0.")
        return cls(y, dist, counted, units)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def counts(self) -> bool:
        """Whether the target is a count."""
        return isinstance(self.dist, CountPredictive)

    @cached_property
    def mean(self) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.dist.mean(), dtype=np.float64), self.y.shape)

    @cached_property
    def std(self) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.dist.std(), dtype=np.float64), self.y.shape)

    @cached_property
    def residual(self) -> np.ndarray:
        """Observed less predicted."""
        return self.y - self.mean

    @cached_property
    def up_to(self) -> np.ndarray:
        return np.asarray(self.dist.cdf(self.y), dtype=np.float64)

    @cached_property
    def below(self) -> np.ndarray:
        return np.asarray(self.dist.cdf(self.y - 1), dtype=np.float64) if self.counts else self.up_to

    @cached_property
    def pit(self) -> np.ndarray:
        """P(Y < y) + P(Y = y) / 2 (b,)."""
        return (self.below + self.up_to) / 2

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends (b,) of the central 90 % interval."""
        lower, upper = self.dist.interval(LEVEL)
        return np.broadcast_to(lower, self.y.shape), np.broadcast_to(upper, self.y.shape)

    @property
    def width(self) -> np.ndarray:
        """Widths (b,) of these."""
        return self.ends[1] - self.ends[0]

    @cached_property
    def nll(self) -> np.ndarray:
        return -np.asarray(self.dist.logpmf(self.y) if self.counts else self.dist.logpdf(self.y))

    @cached_property
    def crps(self) -> np.ndarray:
        return self.dist.crps_rows(self.y) if self.counts else metrics.crps_rows(self.y, self.dist)

    def scores(self) -> dict[str, float]:
        """rmse, nll, crps and coverage of 50, 90 and 95 %, rows counted by their weights."""

        def average(values: np.ndarray) -> float:
            return float(np.average(values, weights=self.weights))

        # y >= ppf(q) if and only if cdf(y) >= q, and y <= ppf(q) if and only if P(Y < y) <= q
        inside = {level: (self.up_to >= (1 - level) / 2) & (self.below <= (1 + level) / 2) for level in metrics.LEVELS}
        return {
            "rmse": float(np.sqrt(average(self.residual**2))),
            "nll": average(self.nll),
            "crps": average(self.crps),
            **{f"coverage_{100 * level:.0f}": average(rows) for level, rows in inside.items()},
        }


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows (b,) with the numbers of their classes and predicted probabilities (b, K)."""

    labels: np.ndarray
    p: np.ndarray
    weights: np.ndarray
    units: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def of_label(self) -> np.ndarray:
        """Probabilities (b,) of the classes that were observed."""
        found: np.ndarray = self.p[np.arange(len(self.labels)), self.labels]
        return found

    @cached_property
    def right(self) -> np.ndarray:
        """Whether the most probable class is the one observed (b,)."""
        return np.asarray(self.p.argmax(axis=1) == self.labels)

    def scores(self) -> dict[str, float]:
        """nll, error, brier and calibration_error."""
        found = metrics.ClassScores.of(self.labels, self.p, self.weights).as_dict()
        return {name: float(value) for name, value in found.items() if name != "n"}


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Rows (b,) with features (b, m), numbers of the rows as users gave them, and predictions.

    rows: what they are, "left-out rows" or "test rows", `total` in all before some were drawn. targets: by name, with
    the places (b,) of the rows where the target is known. constant: what ignores the inputs, the same by name.
    joint: of several outputs, predicted together.
    """

    rows: str
    total: int
    features: np.ndarray
    numbers: np.ndarray
    targets: dict[str, Predicted]
    places: dict[str, np.ndarray]
    constant: dict[str, Predicted]
    labelled: Labelled | None = None
    constant_labelled: Labelled | None = None
    observations: np.ndarray | None = None  # of left-out rows their numbers in the fit
    unseen: int = 0  # test rows of classes that training did not have, left out here
    beside: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.features)


def target_names(model: Any) -> list[str]:
    """Names of the targets: those of training, or y, y0, y1, .."""
    given = model.__dict__.get("_described", {})  # as `target.Target` and `Targets` write it
    told = given.get("targets") or ([given] if "target" in given else [])
    names = [str(one["target"]) for one in told]
    outputs = model._family.latents if model._family.kind == "numbers" else 1
    if len(names) != outputs:
        names = list(model._target_names or [])
    if len(names) != outputs:
        names = ["y"] if outputs == 1 else [f"y{p}" for p in range(outputs)]
    return names


def target_units(model: Any) -> list[str]:
    """Units of the targets, as the cells of the table that a command read had them; empty where there are none."""
    given, names = model.__dict__.get("_described", {}), target_names(model)
    told = given.get("targets") or [given]
    units = [unit_of(str(one.get("pattern", ""))) if isinstance(one, dict) else "" for one in told]
    return units if len(units) == len(names) else [""] * len(names)


def target_labels(model: Any) -> list[str]:
    """Names of the targets for the axes of figures."""
    return [with_unit(name, unit) for name, unit in zip(target_names(model), target_units(model), strict=True)]


def affordable(model: Any, most: int = _MOST_LEFT_OUT, least: int = _LEAST_LEFT_OUT, work: float = _WORK) -> int:
    """So many predictions take some seconds at most, whatever k."""
    predictor = model._fit.predictor
    own = predictor.model
    if predictor.sweeper.whole(predictor.k):  # one factorisation serves all
        return most
    size = model.k_ * own.covariance.matrix_rows
    factors = own.family.latents if own.family.own_factors else 1
    return int(np.clip(work / (size**3 / 3 * factors + 1), least, most))


def user_features(model: Any, inputs: np.ndarray) -> np.ndarray:
    """Features (b, m) in the user's units of standardised inputs (b, d), without last digits, which are rounding."""
    found = np.asarray(model._fit.inputs.undo(inputs))
    for e in range(found.shape[1]):
        most = float(np.abs(found[:, e]).max(initial=0.0))
        if 0 < most < np.inf:
            found[:, e] = np.round(found[:, e], int(np.clip(_DIGITS - np.ceil(np.log10(most)), -300, 300))) + 0.0
    return found


def left_out(model: Any, most: int | None = None, seed: int = 0) -> Evaluated:
    """Up to so many training rows, drawn at random, each predicted from the others.

    Rows that see next to nothing of the others, such as the first in time, do not count.
    """
    check_is_fitted(model)
    fit, family = model._fit, model._family
    rows = fit.predictor.rows
    which = _drawn(np.arange(len(rows.observations)), affordable(model) if most is None else most, seed)
    which = which[rows.seeing(which)]
    if not which.size:
        raise ValueError("no training row sees enough of the others to be predicted from them: pass X and y.")
    some = rows.observations.take(which)
    predicted, units = fit.predictor.left_out(which), rows.units(which)
    features = user_features(model, rows.inputs[some.row])
    numbers = _first_rows(model, len(rows.observations))[which]
    found = {"rows": "left-out rows", "total": len(rows.observations), "observations": which}
    if family.kind == "label":
        labels = np.asarray(family.values(some.observed))
        return Evaluated(**found, **_of_labels(model, features, numbers, labels, predicted.p, some.weights, units))
    given = family.given_of(some.observed) if family.kind == "count" else {}
    if family.kind == "count":
        y, dist = np.asarray(family.values(some.observed)), model._distribution(predicted, some.observed)
    else:
        target = model._target
        y = target.undo(family.values(some.observed))
        dist = fit.predictor.head.distribution(target.undo(predicted.loc), predicted.scale * target.scale)
    return Evaluated(**found, **_of_numbers(model, features, numbers, y, dist, given, some.weights, units))


def predicted_rows(model: Any, X: Any, y: Any, most: int = _MOST_TEST_ROWS, seed: int = 0, **given: Any) -> Evaluated:
    """Test rows X with targets y, up to so many drawn at random. given: exposure or trials, where the fit had them."""
    check_is_fitted(model)
    features = X.values if isinstance(X, Features) else model.encoder_.encode(columns_of(model, X, reset=False))
    y = np.asarray(y) if not hasattr(y, "to_numpy") else y.to_numpy()
    if len(y) != len(features):
        raise ValueError(f"X has {len(features)} rows and y {len(y)}: expected a target for each row.")
    if len(y) == 0:
        raise ValueError("X has no rows: at least one is needed.")
    family, total = model._family, len(y)
    which, unseen, labels = np.arange(total), 0, np.zeros(0, dtype=np.int64)
    if family.kind == "label":
        labels = _label_places(model, y)
        unseen, which = int((labels < 0).sum()), np.flatnonzero(labels >= 0)
    else:
        y = np.asarray(y, dtype=np.float64).reshape(total, -1) if family.kind == "numbers" else _column(y)
        known = np.isfinite(y) if y.ndim == 1 else np.isfinite(y).any(axis=1)
        which = np.flatnonzero(known)
    if not which.size:
        raise ValueError(f"none of the {total:,} rows has a target that the model can be compared with.")
    which = _drawn(which, affordable(model, most), seed)
    some = Features(features[which])
    found: dict[str, Any] = {"rows": "test rows", "total": total, "unseen": unseen}
    if family.kind == "label":
        p = model.predict_proba(some)
        ones = np.ones(len(which))
        return Evaluated(**found, **_of_labels(model, some.values, which, labels[which], p, ones, None))
    own = {name: _one_a_row(name, value, total)[which] for name, value in given.items() if value is not None}
    dist = model.predict_dist(some, **own)
    if family.kind == "number" and np.ndim(dist.mean()) == 2:  # fitted to y (n, 1)
        dist = _part(dist, (len(which), 1), np.ones(len(which), dtype=np.bool_), 0)
    filled = family.given_arrays(len(which), **own) if family.kind == "count" else {}
    beside = family.given_of(filled) if filled else {}
    return Evaluated(
        **found, **_of_numbers(model, some.values, which, y[which], dist, beside, np.ones(len(which)), None)
    )


def _of_numbers(
    model: Any, features: np.ndarray, numbers: np.ndarray, y: np.ndarray, dist: Any, given: Mapping[str, Any],
    weights: np.ndarray, units: np.ndarray | None,
) -> dict[str, Any]:  # fmt: skip
    """Fields of `Evaluated`: each target where it is known, beside what ignores the inputs."""
    constant = model._family.baseline_distribution(model._baseline(), len(y), given)
    targets, constants, places = {}, {}, {}
    for p, name in enumerate(target_names(model)):
        several = y.ndim == 2
        own = y[:, p] if several else y
        there = np.isfinite(own)
        if not there.any():
            continue
        parts = [_part(d, y.shape, there, p) if several else d for d in (dist, constant)]
        beside = (weights[there], None if units is None else units[there])
        targets[name], constants[name] = (Predicted.of(own[there], part, *beside) for part in parts)
        places[name] = np.flatnonzero(there)
    return {
        "features": features, "numbers": numbers, "targets": targets, "places": places, "constant": constants,
        "beside": dict(given),
    }  # fmt: skip


def _of_labels(
    model: Any, features: np.ndarray, numbers: np.ndarray, labels: np.ndarray, p: np.ndarray, weights: np.ndarray,
    units: np.ndarray | None,
) -> dict[str, Any]:  # fmt: skip
    constant = np.asarray(model._family.baseline_distribution(model._baseline(), len(labels), {}))
    return {
        "features": features, "numbers": numbers, "targets": {}, "places": {}, "constant": {},
        "labelled": Labelled(labels, np.asarray(p), weights, units),
        "constant_labelled": Labelled(labels, constant, weights, units),
    }  # fmt: skip


def _part(dist: Any, shape: tuple[int, ...], there: np.ndarray, p: int) -> Any:
    """The distributions of output p where it is known, from those of all (b, P)."""
    return dist.dist(*(np.broadcast_to(values, shape)[there, p] for values in dist.args))


def _drawn(which: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Up to `most` of them, ascending."""
    if len(which) <= most:
        return which
    return np.sort(np.random.default_rng(seed).choice(which, most, replace=False))


def _first_rows(model: Any, n: int) -> np.ndarray:
    """Numbers (n,) of the first given row that each observation stands for."""
    found = np.zeros(n, dtype=np.int64)
    found[model._places[::-1]] = model._row_numbers()[0][::-1]
    return found


def _column(y: np.ndarray) -> np.ndarray:
    """Targets (n,) as numbers, also where they came as (n, 1)."""
    found = np.asarray(y, dtype=np.float64)
    if found.ndim > 2 or (found.ndim == 2 and found.shape[1] != 1):
        raise ValueError(f"y has shape {found.shape}: expected (n,), the model has one output.")
    return found.reshape(len(found))


def _label_places(model: Any, y: np.ndarray) -> np.ndarray:
    """Numbers (n,) of the classes of labels; -1 for those that training did not have."""
    own = {label: place for place, label in enumerate(model.classes_.tolist())}
    return np.array([own.get(label, -1) for label in np.ravel(y).tolist()], dtype=np.int64)


def _one_a_row(name: str, value: Any, n: int) -> np.ndarray:
    found = np.asarray(value, dtype=np.float64)
    if found.shape not in ((), (n,)):
        raise ValueError(f"{name} has shape {found.shape}: expected ({n},), one number for each row, or one for all.")
    return np.broadcast_to(found, (n,))
