"""A fit as the header and arrays of a file, and back: every field of a file is checked before it is believed."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch

from nearfield.calibration import SMALLEST_DF, Head
from nearfield.conditional import ENGINES
from nearfield.fitting import Fit, Summary
from nearfield.kernels import find_kernel
from nearfield.model import BOUNDS, Model, Rows
from nearfield.persistence import ModelFileError, require, require_array
from nearfield.prediction import Predictor
from nearfield.scaling import Scaling

_POSITIVE = ("latent_factor", "noise_factor", "prior_strength")
_SCORES = ("rmse", "nll", "crps", "coverage_50", "coverage_90", "coverage_95")


def pack(fit: Fit) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays; the arrays are the training rows, the hyper-parameters and the scaling."""
    predictor, model = fit.predictor, fit.predictor.model
    df = predictor.head.df
    header = {
        "engine": model.engine,
        "k": predictor.k,
        "head": {**asdict(predictor.head), "df": None if math.isinf(df) else df},
        "summary": fit.summary.as_dict(),
    }
    arrays = {f"rows.{f.name}": getattr(predictor.rows, f.name).numpy() for f in fields(Rows)}
    arrays |= {f"hyper.{name}": value.detach().numpy() for name, value in model.hyperparameters().items()}
    for name, scaling in (("inputs", fit.inputs), ("target", fit.target)):
        arrays |= {f"{name}.centre": scaling.centre, f"{name}.scale": scaling.scale}
    return header, {name: np.asarray(value) for name, value in arrays.items()}


def unpack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Fit:
    """The fit that `pack` took apart, or a ModelFileError that says which field makes no sense."""
    summary = _summary(require(header, "summary", dict))
    inputs = _array(arrays, "rows.inputs", None)
    if inputs.ndim != 2 or 0 in inputs.shape:
        raise ModelFileError(f"its rows have shape {inputs.shape}; at least one row and one column are needed")
    n, d = inputs.shape
    rows = Rows(
        torch.from_numpy(inputs),
        torch.from_numpy(_array(arrays, "rows.targets", (n,))),
        torch.from_numpy(_array(arrays, "rows.weights", (n,), above=0.0)),
        torch.from_numpy(_array(arrays, "rows.known_noise", (n,), above=-1e-300)),
    )
    k, engine = require(header, "k", int), require(header, "engine", str)
    if k < 1 or engine not in ENGINES:
        raise ModelFileError(f"its k is {k} and its engine {engine!r}; expected at least 1, and one of {ENGINES}")
    model = _model(summary.kernel, engine, arrays, d)
    predictor = Predictor(model, rows, k, _head(require(header, "head", dict)))
    return Fit(predictor, _scaling(arrays, "inputs", (d,)), _scaling(arrays, "target", ()), summary)


def _model(kernel_name: str, engine: str, arrays: dict[str, np.ndarray], d: int) -> Model:
    try:
        kernel = find_kernel(kernel_name)
    except ValueError as error:
        raise ModelFileError(f"its header does not make sense ({error})") from error
    shapes = {"log_lengths": (d,), "log_shape": (len(kernel.shapes),)}
    values = {}
    for name, (low, high) in BOUNDS.items():
        value = _array(arrays, f"hyper.{name}", shapes.get(name, ()))
        if value.size and not (low - 1e-9 <= value.min() and value.max() <= high + 1e-9):
            raise ModelFileError(f"its array 'hyper.{name}' lies outside of {low:g} to {high:g}")
        values[name] = torch.from_numpy(value)
    return Model(kernel, **values, engine=engine)


def _head(stored: dict[str, Any]) -> Head:
    names = {f.name for f in fields(Head)}
    if set(stored) != names:
        raise ModelFileError(f"its head has the fields {sorted(stored)}; expected {sorted(names)}")
    values = {name: require(stored, name, float) for name in names - {"df"}}
    values["df"] = math.inf if stored["df"] is None else require(stored, "df", float)
    if not all(values[name] > 0 for name in _POSITIVE) or values["floor"] < 0 or values["df"] < SMALLEST_DF:
        raise ModelFileError(f"its head has scalars that are out of range: {stored}")
    return Head(**{name: float(value) for name, value in values.items()})


def _summary(stored: dict[str, Any]) -> Summary:
    kinds = {"int": int, "float": float, "str": str, "dict[str, float]": dict}
    wanted = {f.name: kinds[str(f.type)] for f in fields(Summary)}
    if set(stored) != set(wanted):
        raise ModelFileError(f"its summary has the fields {sorted(stored)}; expected {sorted(wanted)}")
    for name, kind in wanted.items():
        require(stored, name, kind)
    for name in _SCORES:
        require(stored["left_out"], name, float)
    return Summary(**stored)


def _scaling(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> Scaling:
    return Scaling(_array(arrays, f"{name}.centre", shape), _array(arrays, f"{name}.scale", shape, above=0.0))


def _array(
    arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...] | None, above: float = -math.inf
) -> np.ndarray:
    """A finite float64 array of the file, of that shape, with all values above that number."""
    array = require_array(arrays, name, "float64", 2 if shape is None else len(shape))
    if shape is not None and array.shape != shape:
        raise ModelFileError(f"its array {name!r} has shape {array.shape}; expected {shape}")
    if not (np.isfinite(array).all() and (array > above).all()):
        raise ModelFileError(f"its array {name!r} has values that are not finite, or out of range")
    return array
