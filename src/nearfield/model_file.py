"""A fit as the header and arrays of a model file, and back, every field checked: files may be damaged or forged."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch

from nearfield.calibration.classes import ClassHead
from nearfield.calibration.counts import CountHead
from nearfield.calibration.outputs import OutputHeads
from nearfield.calibration.regression import SMALLEST_DF, Head
from nearfield.conditional import ENGINES
from nearfield.fitting import Fit, Summary
from nearfield.kernels import find_kernel
from nearfield.likelihoods import LIKELIHOODS, Likelihood
from nearfield.likelihoods.classes import AUXILIARY, Bernoulli, Classes, OneAgainstAll
from nearfield.likelihoods.counts import AUXILIARY as COUNT_AUXILIARY
from nearfield.likelihoods.counts import Binomial, LogisticCounts, NegativeBinomial
from nearfield.likelihoods.outputs import GaussianOutputs
from nearfield.likelihoods.student_t import StudentT
from nearfield.model import Model, Rows
from nearfield.persistence import ModelFileError, require, require_array
from nearfield.prediction import Predictor
from nearfield.scaling import Scaling

_POSITIVE = ("latent_factor", "noise_factor", "prior_strength")
_ROWS = ("inputs", "stats", "auxiliary")


def pack(fit: Fit) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays; the arrays are the training rows, the hyper-parameters and the scaling."""
    predictor, model = fit.predictor, fit.predictor.model
    head, head_arrays = _pack_head(predictor.head)
    likelihood: dict[str, Any] = {"name": model.likelihood.name}
    if isinstance(model.likelihood, LogisticCounts):
        likelihood["auxiliary"] = model.likelihood.auxiliary
    if isinstance(model.likelihood, Classes):
        likelihood |= {"classes": model.likelihood.classes, "auxiliary": model.likelihood.auxiliary}
    if isinstance(model.likelihood, GaussianOutputs):
        likelihood |= {"outputs": model.likelihood.outputs, "alike": model.likelihood.alike}
    header = {
        "engine": model.engine,
        "k": predictor.k,
        "likelihood": likelihood,
        "head": head,
        "summary": fit.summary.as_dict(),
    }
    arrays = {f"rows.{name}": getattr(predictor.rows, name).numpy() for name in _ROWS}
    if predictor.rows.groups is not None:
        arrays["rows.groups"] = predictor.rows.groups.numpy()
    arrays |= {f"hyper.{name}": value.detach().numpy() for name, value in model.hyperparameters().items()}
    arrays |= head_arrays | pack_scaling("inputs", fit.inputs)
    return header, {name: np.asarray(value) for name, value in arrays.items()}


def unpack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Fit:
    """The fit that `pack` took apart, or a ModelFileError that says which field makes no sense."""
    summary = _summary(require(header, "summary", dict))
    likelihood = _likelihood(require(header, "likelihood", dict))
    rows = _rows(arrays, likelihood)
    k, engine = require(header, "k", int), require(header, "engine", str)
    if k < 1 or engine not in ENGINES:
        raise ModelFileError(f"its k is {k} and its engine {engine!r}; expected at least 1, and one of {ENGINES}")
    d = rows.inputs.shape[1]
    model = _model(summary.kernel, engine, likelihood, arrays, d)
    head = _head(require(header, "head", dict), arrays, likelihood)
    return Fit(Predictor(model, rows, k, head), unpack_scaling(arrays, "inputs", (d,)), summary)


def pack_scaling(name: str, scaling: Scaling) -> dict[str, np.ndarray]:
    """A scaling as two arrays."""
    return {f"{name}.centre": np.asarray(scaling.centre), f"{name}.scale": np.asarray(scaling.scale)}


def unpack_scaling(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> Scaling:
    """The scaling that `pack_scaling` took apart, of that shape."""
    return Scaling(_array(arrays, f"{name}.centre", shape), _array(arrays, f"{name}.scale", shape, above=0.0))


def _likelihood(stored: dict[str, Any]) -> Likelihood:
    name = require(stored, "name", str)
    if name not in LIKELIHOODS:
        raise ModelFileError(f"its likelihood is {name!r}; expected one of {', '.join(LIKELIHOODS)}")
    if name == GaussianOutputs.name:
        outputs = require(stored, "outputs", int)
        if outputs < 2:
            raise ModelFileError(f"its likelihood {name!r} has {outputs} outputs")
        return GaussianOutputs(outputs, require(stored, "alike", bool))
    if name in (Binomial.name, NegativeBinomial.name):
        auxiliary = require(stored, "auxiliary", str)
        if auxiliary not in COUNT_AUXILIARY:
            raise ModelFileError(f"its likelihood {name!r} has the auxiliaries {auxiliary!r}")
        return Binomial(auxiliary) if name == Binomial.name else NegativeBinomial(auxiliary)
    if name not in (Bernoulli.name, OneAgainstAll.name):
        return LIKELIHOODS[name]()
    classes, auxiliary = require(stored, "classes", int), require(stored, "auxiliary", str)
    if classes < 2 or auxiliary not in AUXILIARY or (name == Bernoulli.name and classes != 2):
        raise ModelFileError(f"its likelihood {name!r} has {classes} classes and the auxiliaries {auxiliary!r}")
    return Bernoulli(2, auxiliary) if name == Bernoulli.name else OneAgainstAll(classes, auxiliary)


def _rows(arrays: dict[str, np.ndarray], likelihood: Likelihood) -> Rows:
    inputs, stats, auxiliary = (_array(arrays, f"rows.{name}", None) for name in _ROWS)
    if 0 in inputs.shape:
        raise ModelFileError(f"its rows have shape {inputs.shape}; at least one row and one column are needed")
    n = len(inputs)
    wanted = (n, likelihood.width)
    if stats.shape != wanted:
        raise ModelFileError(f"its array 'rows.stats' has shape {stats.shape}; expected {wanted}")
    if auxiliary.shape != (n, likelihood.auxiliaries):
        raise ModelFileError(
            f"its array 'rows.auxiliary' has shape {auxiliary.shape}; expected {(n, likelihood.auxiliaries)}"
        )
    if isinstance(likelihood, StudentT) and not (auxiliary > 0).all():
        raise ModelFileError("its array 'rows.auxiliary' has values that are not above zero")
    try:
        likelihood.check(stats)
    except ValueError as error:
        raise ModelFileError(f"its array 'rows.stats' does not make sense ({error})") from error
    if not (likelihood.counts(torch.from_numpy(stats)) > 0).all():
        raise ModelFileError("its array 'rows.stats' has rows that do not count")
    x, s, a = (torch.from_numpy(part) for part in (inputs, stats, auxiliary))
    return Rows(x, s, a, likelihood.observations(s), _groups(arrays, n))


def _groups(arrays: dict[str, np.ndarray], n: int) -> torch.Tensor | None:
    if "rows.groups" not in arrays:
        return None
    groups = require_array(arrays, "rows.groups", "int64", 1)
    if groups.shape != (n,) or groups.min() < 0:
        raise ModelFileError(f"its array 'rows.groups' has shape {groups.shape}; expected {(n,)}, none below zero")
    return torch.from_numpy(groups)


def _model(kernel_name: str, engine: str, likelihood: Likelihood, arrays: dict[str, np.ndarray], d: int) -> Model:
    try:
        kernel = find_kernel(kernel_name)
    except ValueError as error:
        raise ModelFileError(f"its header does not make sense ({error})") from error
    several = np.ndim(arrays.get("hyper.log_lengths", ())) == 2 and likelihood.latents != ()
    mixing = None
    if several and "hyper.mixing" in arrays:
        shape = (*likelihood.latents, len(arrays["hyper.log_lengths"]))
        mixing = _array(arrays, "hyper.mixing", shape)
    model = Model.initial(kernel, d, likelihood, engine=engine, own_kernels=several and mixing is None, mixing=mixing)
    for name, value in model.hyperparameters().items():
        stored = _array(arrays, f"hyper.{name}", tuple(value.shape))
        low, high = model.bounds()[name]
        if stored.size and not (low - 1e-9 <= stored.min() and stored.max() <= high + 1e-9):
            raise ModelFileError(f"its array 'hyper.{name}' lies outside of {low:g} to {high:g}")
        value.requires_grad_(False).copy_(torch.from_numpy(stored))
    return model


def _pack_head(head: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The head's scalars, and its arrays."""
    if isinstance(head, ClassHead):
        scalars = {name: getattr(head, name) for name in _CLASS_SCALARS} | {"fitted": float(head.fitted)}
        offsets = np.broadcast_to(np.asarray(head.offsets, dtype=np.float64), head.likelihood.latents).copy()
        return scalars, {"head.offsets": offsets, "head.shares": head.shares}
    if isinstance(head, CountHead):
        return asdict(head), {}
    if isinstance(head, OutputHeads):
        return {"outputs": [_regression_scalars(one) for one in head.heads], "coupling": head.coupling}, {}
    return _regression_scalars(head), {}


def _regression_scalars(head: Head) -> dict[str, Any]:
    return {**asdict(head), "df": None if math.isinf(head.df) else head.df}


_CLASS_SCALARS = ("log_slope", "log_spread", "log_power", "coupling", "surprise")
_LARGEST = 20.0  # of a head's scalars and offsets, most of them logarithms: far beyond what a fit can give


def _head(stored: dict[str, Any], arrays: dict[str, np.ndarray], likelihood: Likelihood) -> Any:
    if isinstance(likelihood, Classes):
        values = _scalars(stored, (*_CLASS_SCALARS, "fitted"))
        fitted = values.pop("fitted") > 0
        shares = _array(arrays, "head.shares", (likelihood.classes,), above=-1e-300)
        offsets = _array(arrays, "head.offsets", likelihood.latents)
        largest = max(abs(value) for value in (*values.values(), *offsets.ravel().tolist()))
        if not (0 <= values["surprise"] < 1 and shares.sum() > 0 and largest <= _LARGEST):
            raise ModelFileError(f"its head has scalars that are out of range: {stored}")
        return ClassHead(likelihood, shares / shares.sum(), fitted, offsets=offsets, **values)
    if likelihood.name in ("binomial", "negative_binomial"):
        values = _scalars(stored, tuple(f.name for f in fields(CountHead)), optional="dispersion")
        dispersion = values.pop("dispersion")
        log_dispersion = 0.0 if math.isinf(dispersion) else math.log(max(dispersion, 1e-300))
        largest = max(abs(value) for value in (log_dispersion, *values.values()))
        if (likelihood.name == "binomial") != math.isinf(dispersion) or largest > _LARGEST:
            raise ModelFileError(f"its head has scalars that are out of range: {stored}")
        return CountHead(None if math.isinf(dispersion) else dispersion, **values)
    if isinstance(likelihood, GaussianOutputs):
        heads = require(stored, "outputs", list)
        if len(heads) != likelihood.outputs or not all(isinstance(one, dict) for one in heads):
            raise ModelFileError(f"it has heads for {len(heads)} outputs; expected {likelihood.outputs}")
        coupling = float(require(stored, "coupling", float))
        if not 0 <= coupling <= 1:
            raise ModelFileError(f"its coupling of outputs is {coupling}; expected 0 to 1")
        return OutputHeads(tuple(_regression_head(one) for one in heads), coupling)
    return _regression_head(stored)


def _regression_head(stored: dict[str, Any]) -> Head:
    values = _scalars(stored, tuple(f.name for f in fields(Head)), optional="df")
    if not all(values[name] > 0 for name in _POSITIVE) or values["floor"] < 0 or values["df"] < SMALLEST_DF:
        raise ModelFileError(f"its head has scalars that are out of range: {stored}")
    return Head(**values)


def _scalars(stored: dict[str, Any], names: tuple[str, ...], optional: str = "") -> dict[str, float]:
    """Finite numbers by name; the optional one is infinite where the file has null."""
    if set(stored) != set(names):
        raise ModelFileError(f"its head has the fields {sorted(stored)}; expected {sorted(names)}")
    missing = {optional: math.inf} if optional and stored[optional] is None else {}
    return {name: float(require(stored, name, float)) for name in names if name not in missing} | missing


def _summary(stored: dict[str, Any]) -> Summary:
    kinds = {"int": int, "float": float, "str": str, "dict[str, float]": dict}
    wanted = {f.name: kinds[str(f.type)] for f in fields(Summary)}
    if set(stored) != set(wanted):
        raise ModelFileError(f"its summary has the fields {sorted(stored)}; expected {sorted(wanted)}")
    for name, kind in wanted.items():
        require(stored, name, kind)
    for name in {"nll", *stored["left_out"]}:
        require(stored["left_out"], name, float)
    return Summary(**stored)


def _array(
    arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...] | None, above: float = -math.inf
) -> np.ndarray:
    """A finite float64 array of the file, of that shape (None: any with two dimensions), all values above `above`."""
    array = require_array(arrays, name, "float64", 2 if shape is None else len(shape))
    if shape is not None and array.shape != shape:
        raise ModelFileError(f"its array {name!r} has shape {array.shape}; expected {shape}")
    if not (np.isfinite(array).all() and (array > above).all()):
        raise ModelFileError(f"its array {name!r} has values that are not finite, or out of range")
    return array
