"""What the page asks for, answered: plain dicts, which JSON knows, from what the page sent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nearfield import __version__
from nearfield._threads import one_blas_thread
from nearfield.columns import Features
from nearfield.diagnostics.effects import grid
from nearfield.diagnostics.predicted import affordable
from nearfield.diagnostics.slices import level_name, own_features
from nearfield.explore.fields import Field, Refused, fields_of, read_row
from nearfield.explore.kinds import KINDS, Kind
from nearfield.explore.rows import TrainingRows
from nearfield.report.data import first_number, plain_values
from nearfield.validation import nearest_name

_NEIGHBOURS = 8
_EFFECTS = 6  # columns whose effect is shown at first
_MOST_EFFECTS = 24
_POINTS, _FEWEST_POINTS = 17, 7  # of an effect
_EFFECT_WORK = 4e9  # operations for all effects, see `affordable`
_RANKED = 5  # values of a column by which it is ranked
_RANK_WORK, _RANK_ROWS = 2e10, 4
_SUPPORT_ROWS = 64
_FAR = 0.05  # support that is next to nothing
_FEW = 0.02  # share of training rows with less support


class Explorer:
    """A fitted model that answers questions about single rows. name: what it is called."""

    def __init__(self, model: Any, name: str = "") -> None:
        check_is_fitted(model)
        self.model, self.rows = model, TrainingRows(model)
        self.encoder, self._features = model.encoder_, self.rows.features
        self.fields = fields_of(self.encoder, self._features, self.rows.extremes)
        self.start = self.rows.typical()
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.kind: Kind = KINDS[model._family.kind](model, self.rows.targets, self.rows.given)
            self._ranked = self._by_effect()
            self._usual_support = self._support_of_rows()
        self.name = name or self.kind.described()["title"]

    # --- questions --------------------------------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        """The model, its columns, and the row to begin with."""
        model = self.model
        likelihood = model._family.likelihood.replace("_", " ")
        found = {
            "version": __version__,
            "name": self.name,
            "model": f"{type(model).__name__}, {likelihood}, of {model.n_rows_:,} training rows, k = {model.k_}",
            "kind": model._family.kind,
            "columns": [field.described() for field in self.fields],
            "ranked": self._ranked,
            "effects": self._ranked[:_EFFECTS],
            "most_effects": _MOST_EFFECTS,
            "target": self.kind.described(),
            "start": self._row(self.start),
            "weights": model._family.kind != "numbers",
        }
        return self._plain(found)

    def random_row(self) -> dict[str, Any]:
        """A training row, drawn at random."""
        return self._plain(self._row(int(np.random.default_rng().integers(len(self._features)))))

    def predicted(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The predictive distribution of a row, and how much the training rows tell there."""
        X, given, choice, remarks = self._read(asked)
        found = self.kind.predicted(X, given, choice)
        support = float(np.ravel(self.model.support(X))[choice if self._several else 0])
        return self._plain({**found, "support": support, "rests": self._rests(support, choice), "remarks": remarks})

    def effects(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The prediction as one column varies and all others stay, for each column that is asked for."""
        X, given, choice, _ = self._read(asked)
        names = asked.get("columns", self._ranked[:_EFFECTS])
        if not isinstance(names, list) or len(names) > _MOST_EFFECTS:
            raise Refused(f'"columns" is no list of at most {_MOST_EFFECTS} names of columns.')
        fields = {field.name: field for field in self.fields}
        for name in names:
            if not isinstance(name, str) or name not in fields:
                raise Refused(f"The model has no column {name!r}.{nearest_name(str(name), fields)}")
        points = affordable(self.model, _POINTS * _EFFECTS, _FEWEST_POINTS * _EFFECTS, _EFFECT_WORK) // _EFFECTS
        grids = [self._grid(fields[name], X.values, points) for name in names]
        if not grids:
            return {"effects": []}
        curve = self.kind.curve(Features(np.concatenate([own.pop("features") for own in grids])), given, choice)
        start = 0
        for own in grids:
            part = slice(start, start := start + len(own["labels"]))
            own |= {"mean": curve.mean[part], "low": curve.low[part], "high": curve.high[part]}
        return self._plain({"effects": grids})

    def neighbours(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The training rows that matter most to the prediction of a row; of several outputs those that are nearest."""
        X, given, _, _ = self._read(asked)
        if self.model._family.kind == "numbers":
            which = self.rows.nearest(X, _NEIGHBOURS)
            told = [{"row": number} for number in self.rows.numbers(which).tolist()]
            rest = None
        else:
            counted = {name: value for name, value in given.items() if name in self.model._family.given}
            found = self.model.explain(X, _NEIGHBOURS, **counted)
            there = found.neighbours[0] >= 0
            parts = (part[0][there].tolist() for part in (found.neighbours, found.weights, found.changes))
            told = [dict(zip(("row", "weight", "change"), own, strict=True)) for own in zip(*parts, strict=True)]
            which, rest = self.rows.of_numbers(found.neighbours[0][there]), float(found.rest[0])
        features, targets, beside = self.rows.at(which)
        first = first_number(self.model)
        for place, own in enumerate(told):
            own["row"] += first
            own |= {"target": self.kind.shown_target(targets[place]), "given": self.kind.given_at(beside, place)}
            own |= self._values(features[place])
        return self._plain({"rows": told, "rest": rest})

    # --- rows -------------------------------------------------------------------------------------------------------

    def _read(self, asked: Any) -> tuple[Features, dict[str, float], int, list[str]]:
        """The features of the row that was sent, what was given beside it, what is looked at, and remarks."""
        if not isinstance(asked, Mapping):
            raise Refused('An object like {"values": {"column": 1.5}} is expected.')
        features, remarks = read_row(self.encoder, self.fields, asked.get("values"))
        choice, names = asked.get("choice", 0), self.kind.names
        if isinstance(choice, bool) or not isinstance(choice, int) or not 0 <= choice < len(names):
            raise Refused(f'"choice" is {choice!r}; a whole number from 0 to {len(names) - 1} is expected.')
        return Features(features), self.kind.read(asked.get("given")), choice, remarks

    def _row(self, place: int) -> dict[str, Any]:
        """A training row by its place among those that were drawn."""
        number = int(self.rows.numbers(self.rows.observations[place : place + 1])[0])
        own = self._values(self._features[place])
        return {"row": number + first_number(self.model), "given": self.kind.given_at(self.rows.given, place), **own}

    def _values(self, features: np.ndarray) -> dict[str, Any]:
        """Values of a row with features (m,): as the page sends them, and for people to read."""
        own = [(field, float(field.values(self.encoder, features[None])[0])) for field in self.fields]
        return {
            "values": {field.name: field.written(value) for field, value in own},
            "shown": {field.name: field.shown(value) for field, value in own},
        }

    # --- effects ----------------------------------------------------------------------------------------------------

    def _grid(self, field: Field, features: np.ndarray, points: int) -> dict[str, Any]:
        """Values of one column and the features (g, m) of a row (1, m) with each, its own value among them."""
        rule = self.encoder.rules_[field.column]
        own = own_features(self.encoder, field.column)
        values, labels, written = grid(self.encoder, field.column, self._features, points)
        now = features[0, own]
        if field.levelled:
            same = np.flatnonzero((written == now).all(axis=1))
            at = int(same[0]) if same.size else len(labels)
            if not same.size:
                unseen = rule.kind == "means" and now[-1] == 0
                label = level_name(rule, -1 if unseen else int(field.values(self.encoder, features)[0]))
                labels, written = [*labels, label], np.vstack([written, now])
            values = np.arange(len(labels), dtype=np.float64)
        else:
            current = float(field.values(self.encoder, features)[0])
            at = -1
            if not np.isnan(current):
                values = np.unique(np.append(values, current))
                at = int(np.searchsorted(values, current))
            written = np.zeros((len(values), len(own)))
            rule.write(values, written)
            labels = [field.shown(value) for value in values.tolist()]
        X = np.repeat(features, len(values), axis=0)
        X[:, own] = written
        ordered = not field.levelled and rule.kind != "flag"
        told = {"column": field.name, "values": values, "labels": labels, "at": at, "ordered": ordered}
        return {**told, "date": rule.kind == "date", "features": X}

    def _by_effect(self) -> list[str]:
        """Names of the columns, that which moves predictions of usual rows most first."""
        rows = affordable(self.model, 4000, 60, _RANK_WORK) // (_RANKED * len(self.fields))
        rows = int(np.clip(rows, 1, _RANK_ROWS))
        apart = np.random.default_rng(0).permutation(len(self._features))[: rows - 1]
        places = [self.start, *apart.tolist()]
        given = {one.name: one.value for one in self.kind.asked() if one.name in self.model._family.given}
        moved = np.zeros(len(self.fields))
        for place, field in enumerate(self.fields):
            for row in places:
                X = self._grid(field, self._features[row : row + 1], _RANKED)["features"][: 2 * _RANKED]
                moved[place] += np.ptp(self.kind.centre(Features(X), given), axis=0).max()
        return [self.fields[place].name for place in np.argsort(-moved, kind="stable").tolist()]

    # --- support ----------------------------------------------------------------------------------------------------

    @property
    def _several(self) -> bool:
        return bool(self.model._family.kind == "numbers")

    def _support_of_rows(self) -> np.ndarray:
        """Support (P,) that all but a few of the training rows have."""
        some = np.random.default_rng(0).permutation(len(self._features))[:_SUPPORT_ROWS]
        found = self.model.support(Features(self._features[some]))
        return np.atleast_1d(np.quantile(found, _FEW, axis=0))

    def _rests(self, support: float, choice: int) -> str:
        """How much the prediction rests on training rows, in words."""
        usual = float(self._usual_support[choice if self._several else 0])
        if support < min(_FAR, usual):
            return f"Far from all training rows: {self.kind.far}."
        if support < 0.5 * usual:
            return "Away from the training rows: far fewer are around than around nearly all of them."
        if support < usual:
            return "At the edge of the training rows: fewer are around than around nearly all of them."
        return "Amid the training rows."

    def _plain(self, found: dict[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = plain_values(found)
        return plain
