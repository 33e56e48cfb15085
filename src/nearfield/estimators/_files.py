"""Estimators as files: what `save` writes of one, and the estimator that a file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearfield.encoding import TableEncoder
from nearfield.estimators._groups import packed_labels, unpacked_labels
from nearfield.estimators._left_out import listed_buffer, unlisted_buffer
from nearfield.migration import NEWEST, migrated
from nearfield.model_file import pack, unpack
from nearfield.persistence import ModelFileError, require, require_array, section
from nearfield.validation import plain
from nearfield.weighting import Weighting

_NOT_SAVED = ("checkpoint", "cache", "verbose", "random_state", "engine", "calibrated")


def packed(model: Any, extra: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of the file of a fitted estimator."""
    sections, arrays = pack(model._fit)
    target, target_arrays = model._pack_target()
    names = getattr(model, "feature_names_in_", None)
    parameters = {name: plain(value) for name, value in model.get_params().items() if name not in _NOT_SAVED}
    bent, features = model._bendable(), model.encoder_.feature_names
    parameters["warp"] = bent if isinstance(bent, bool) else [features[e] for e in bent]
    parameters["categorical_features"] = _listed(model.categorical_features)
    parameters["coordinates"], parameters["drift"] = _listed(model.coordinates), _listed(model.drift)
    parameters["buffer"] = listed_buffer(model.buffer)
    groups, group_arrays = packed_labels(model._group_labels)
    likelihood = model.likelihood if model.likelihood == "auto" else model._family.likelihood  # that of the fit
    own = {
        "estimator": {
            "name": type(model).__name__,
            "parameters": {**parameters, "likelihood": likelihood, "predictive": model.summary_.predictive},
            "columns": None if names is None else [str(name) for name in names],
        },
        "target": {
            **target,
            "names": model._target_names,
            "weighting": list(model._weighting),
            **model._packed_clock(),
            **groups,
        },
        "table": {**model.encoder_.to_json(), **model.__dict__.get("_described", {})},
        "extra": {"kept": model.extra_ if extra is None else extra},
    }
    sections |= own
    versioned = {name: {"version": NEWEST[name], **fields} for name, fields in sections.items()}
    arrays |= {**target_arrays, **group_arrays, "target.places": model._places.astype(np.int64)}
    arrays |= {} if model._shares is None else {"target.shares": model._shares}
    if model._numbers is not None:
        arrays["target.given"] = np.append(model._numbers, model._came).astype(np.int64)
    return {"sections": versioned}, arrays


def restored(cls: type[Any], version: int, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The estimator from the version, header and arrays of a file."""
    header, arrays = migrated(version, header, arrays)
    _, own = section(header, "estimator", NEWEST["estimator"])
    if require(own, "name", str) != cls.__name__:
        raise ModelFileError(f"it holds a {own['name']!r}, not a {cls.__name__}")
    given = require(own, "parameters", dict)
    known = set(cls().get_params()) - set(_NOT_SAVED)
    model = cls(**{name: value for name, value in given.items() if name in known})
    fit = unpack(header, arrays)
    family = fit.predictor.model.family
    if family.estimator != cls.__name__ or model.likelihood not in ("auto", family.likelihood):
        raise ModelFileError(f"its likelihood is not the {model.likelihood!r} of its parameters")
    _restore_columns(model, header, own.get("columns"), fit.inputs.given)
    model._places = require_array(arrays, "target.places", "int64", 1)
    most = len(fit.predictor.rows.observations)
    if model._places.size and not (model._places.min() >= 0 and model._places.max() < most):
        raise ModelFileError("its array 'target.places' points outside of its rows")
    if "target.shares" in arrays:  # where rows do not count once each
        model._shares = require_array(arrays, "target.shares", "float64", 1)
        if model._shares.shape != model._places.shape or not (model._shares >= 0).all():
            raise ModelFileError("its array 'target.shares' does not say how much each row counts")
    if "target.given" in arrays:  # where some rows were left out
        numbers = require_array(arrays, "target.given", "int64", 1)
        if len(numbers) != len(model._places) + 1 or numbers[0] < 0 or (np.diff(numbers) <= 0).any():
            raise ModelFileError("its array 'target.given' does not number its rows")
        model._numbers, model._came = numbers[:-1], int(numbers[-1])
    _, target = section(header, "target", NEWEST["target"])
    names = target.get("names")
    model._target_names = list(map(str, names)) if isinstance(names, list) else None
    model._weighting = _unpacked_weighting(target.get("weighting", list(Weighting())))
    model._unpack_target(target, arrays, fit)
    model.buffer = unlisted_buffer(model.buffer)
    model._unpack_clock(target, fit)
    model._group_labels = unpacked_labels(target, arrays, fit.predictor.rows.groups)
    model._adopt(fit)
    _, extra = section(header, "extra", NEWEST["extra"])
    model.extra_ = require(extra, "kept", dict)
    return model


def _unpacked_weighting(packed: Any) -> Weighting:
    """What weights are relative to, or a ModelFileError."""
    if not (isinstance(packed, list) and len(packed) == 2 and isinstance(packed[1], bool)):
        raise ModelFileError(f"its weighting is {packed!r}")
    unit = packed[0]
    if isinstance(unit, bool) or not isinstance(unit, int | float) or not 0 < unit < np.inf:
        raise ModelFileError(f"its weights have the unit {unit!r}")
    return Weighting(float(unit), packed[1])


def _restore_columns(model: Any, header: dict[str, Any], names: Any, d: int) -> None:
    """The encoder of a file, and the names of its columns, where they had any: d features in all."""
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ModelFileError("its column names are no names")
    if "table" not in header["sections"]:
        model._encoder = TableEncoder.of_numbers([f"x{i}" for i in range(d)] if names is None else names)
    else:
        table = section(header, "table", NEWEST["table"])[1]
        try:
            model._encoder = TableEncoder.from_json(table)
        except ValueError as error:
            raise ModelFileError(str(error)) from error
        if "target" in table or "targets" in table:
            model._described = {name: value for name, value in table.items() if name not in ("format", "columns")}
            names = [rule.name for rule in model._encoder.rules_]
    if len(model._encoder.feature_names) != d or (names is not None and len(names) != len(model._encoder.rules_)):
        raise ModelFileError(f"its column names do not fit its {d} columns")
    model.n_features_in_ = len(model._encoder.rules_)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


def _listed(categorical: Any) -> Any:
    """An argument that names columns as JSON knows it."""
    if categorical is None or isinstance(categorical, str):
        return categorical
    if isinstance(categorical, Mapping):
        return {key: _listed(value) for key, value in categorical.items()}
    return [plain(key) for key in categorical]
