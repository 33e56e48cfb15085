"""A fit as the sections and arrays of a model file, and back, every field checked: files may be damaged or forged.

    section     fields
    ---------   ----------------------------------------------------------------------------------------------------
    estimator   name, parameters of the constructor, columns; written by the estimators, see `estimators/_base.py`
    family      name, and what the family says of itself
    model       kernel, covariance (shared, own or mixed), mean, k; which columns are bent, and how, are arrays;
                coordinates and drift, where there are any; taper, where neighbourhoods are continuous
    head        the family's head
    summary     what the fit did
    target      what the estimator knows of the target
    table       how the command line read the table, where it did
    extra       whatever the user keeps with the model

Each section has a version of its own, which grows when the meaning of a field changes; a field that a file lacks has
its default. What earlier versions wrote is turned into these by `migration.py`, which has the versions, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from nearfield.coordinates import ChartedScaling, chart_from_json
from nearfield.covariances import Covariance, Mixed, PerLatent, Shared
from nearfield.families import Family, checked, family_named
from nearfield.fitting import Fit
from nearfield.kernels import find_kernel
from nearfield.means import MEANS, Linear, Mean, find_mean
from nearfield.migration import CONTINUOUS_MODEL, HARD_MODEL, NEWEST, PLAIN_MODEL
from nearfield.model import Model
from nearfield.neighbours import BoxedInputs, Boxes
from nearfield.persistence import ModelFileError, require, require_array, section
from nearfield.prediction import Predictor
from nearfield.rows import Rows
from nearfield.scaling import Scaling
from nearfield.summary import Summary
from nearfield.taper import Taper
from nearfield.warps import KNOTS, Warps

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]

_COVARIANCES: dict[str, type[Covariance]] = {"shared": Shared, "own": PerLatent, "mixed": Mixed}


def pack(fit: Fit) -> tuple[Header, Arrays]:
    """Sections by name, without their versions, and arrays: the training rows, the parameters and the scaling."""
    predictor, model, rows = fit.predictor, fit.predictor.model, fit.predictor.rows
    head, head_arrays = predictor.head.packed()
    covariance = next(name for name, kind in _COVARIANCES.items() if type(model.covariance) is kind)
    mean = next(name for name, kind in MEANS.items() if type(model.mean) is type(kind))
    drift = {} if (own := getattr(model.mean, "columns", None)) is None else {"drift": list(own)}
    chart = {"coordinates": fit.inputs.chart.to_json()} if isinstance(fit.inputs, ChartedScaling) else {}
    taper = {} if predictor.taper is None else {"taper": predictor.taper._asdict()}
    described = {
        "kernel": fit.summary.kernel,
        "covariance": covariance,
        "mean": mean,
        "k": predictor.k,
        **chart,
        **drift,
        **taper,
        **({} if predictor.leaves is None else {"leaves": predictor.leaves}),
    }
    boxed = isinstance(rows.inputs, BoxedInputs) and not len(rows.inputs.more)
    if not boxed:  # each version is read by all that know of what there is
        described["version"] = CONTINUOUS_MODEL if taper else HARD_MODEL if chart or drift else PLAIN_MODEL
    sections = {
        "family": {"name": model.family.name, **model.family.described()},
        "model": described,
        "head": head,
        "summary": fit.summary.as_dict(),
    }
    held = rows.inputs.packed() if isinstance(rows.inputs, BoxedInputs) and boxed else {"inputs": rows.inputs}
    arrays = {f"{'boxes' if boxed else 'rows'}.{name}": np.asarray(values) for name, values in held.items()}
    arrays["rows.state"] = rows.state
    arrays |= {f"observed.{name}": values for name, values in rows.observed.items()}
    hiding = {"groups": rows.groups, "times": rows.times, "buffer": rows.buffer}
    arrays |= {f"rows.{name}": values for name, values in hiding.items() if values is not None}
    arrays |= {f"parameter.{name}": value for name, value in model.parameters.items()}
    warps = model.covariance.warps
    if len(warps):
        arrays |= {"warps.columns": warps.columns, "warps.knots": warps.knots, "warps.scores": warps.scores}
    arrays |= {f"head.{name}": value for name, value in head_arrays.items()} | pack_scaling("inputs", fit.inputs)
    return sections, {name: np.asarray(value) for name, value in arrays.items()}


def unpack(header: Header, arrays: Arrays) -> Fit:
    """The fit that `pack` took apart, or a ModelFileError that says which field makes no sense."""
    own = {name: section(header, name, NEWEST[name])[1] for name in ("family", "model", "head", "summary")}
    summary = _summary(own["summary"])
    family = _family(own["family"])
    rows = _rows(arrays, family)
    model = _model(own["model"], family, arrays, rows.inputs.shape[1])
    k = require(own["model"], "k", int)
    if k < 1:
        raise ModelFileError(f"its k is {k}; expected at least 1")
    head = family.unpacked_head(own["head"], _named(arrays, "head"))
    leaves = require(own["model"], "leaves", int) if "leaves" in own["model"] else None
    if leaves is not None and leaves < 1:
        raise ModelFileError(f"its search looks into {leaves} boxes; expected at least 1")
    predictor = Predictor(model, rows, k, head, _taper(own["model"].get("taper")), leaves)
    return Fit(predictor, _inputs(own["model"], arrays, rows.inputs.shape[1]), summary)


def _taper(fields: Any) -> Taper | None:
    """How neighbours lose their weight, where they do."""
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise ModelFileError("its taper is no pair of numbers")
    whole, noise = (require(fields, name, float) for name in Taper._fields)
    if not (0 < whole < 1 and 0 < noise < math.inf):
        raise ModelFileError(f"its taper is {fields!r}; expected a share of whole neighbours and a noise above zero")
    return Taper(whole, noise)


def _inputs(fields: Header, arrays: Arrays, m: int) -> Scaling:
    """The standardisation of inputs that become m columns."""
    scaling = unpack_scaling(arrays, "inputs", (m,))
    if "coordinates" not in fields:
        return scaling
    try:
        chart = chart_from_json(fields["coordinates"])
    except ValueError as error:
        raise ModelFileError(str(error)) from error
    if m != max(chart.d, *(place + 1 for place in chart.places)):
        raise ModelFileError(f"its coordinates do not fit its {m} columns")
    return ChartedScaling(scaling.centre, scaling.scale, chart)


def pack_scaling(name: str, scaling: Scaling) -> Arrays:
    """A scaling as two arrays."""
    return {f"{name}.centre": np.asarray(scaling.centre), f"{name}.scale": np.asarray(scaling.scale)}


def unpack_scaling(arrays: Arrays, name: str, shape: tuple[int, ...]) -> Scaling:
    """The scaling that `pack_scaling` took apart, of that shape."""
    return Scaling(_array(arrays, f"{name}.centre", shape), _array(arrays, f"{name}.scale", shape, above=0.0))


def _named(arrays: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    """The arrays whose names begin so, without the beginning."""
    start = f"{prefix}."
    return {name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)}


def _family(fields: Header) -> Family:
    return family_named(require(fields, "name", str)).from_description(fields)


def _rows(arrays: Arrays, family: Family) -> Rows:
    inputs, state = _held(arrays), _array(arrays, "rows.state", None)
    if 0 in inputs.shape:
        raise ModelFileError(f"its rows have shape {inputs.shape}; at least one row and one column are needed")
    n = len(inputs)
    if state.shape != (n, family.state_size):
        raise ModelFileError(f"its array 'rows.state' has shape {state.shape}; expected {(n, family.state_size)}")
    observed = checked(_named(arrays, "observed"), family, n)
    try:
        family.check_state(state)
    except ValueError as error:
        raise ModelFileError(f"its array 'rows.state' does not make sense ({error})") from error
    times = _array(arrays, "rows.times", (n,)) if "rows.times" in arrays else None
    return Rows(
        inputs, observed, state, family.observations(observed), _groups(arrays, n),
        times=times, buffer=_buffer(arrays, inputs.shape[1]),
    )  # fmt: skip


def _held(arrays: Arrays) -> np.ndarray | BoxedInputs:
    """Standardised inputs (n, d): an array, or boxes of rows as they came."""
    if "boxes.panels" not in arrays:
        return _array(arrays, "rows.inputs", None)
    own = _named(arrays, "boxes")
    dtype = "float32" if own["panels"].dtype == np.float32 else "float64"
    parts = {"panels": (dtype, 3), "members": ("int64", 1), "starts": ("int64", 1), "lengths": ("float64", 1)}
    found = {name: require_array(arrays, f"boxes.{name}", *kind) for name, kind in parts.items()}
    scaling = unpack_scaling(arrays, "inputs", found["panels"].shape[1:2])
    try:
        return BoxedInputs(Boxes.unpacked(found, scaling.centre, scaling.scale))
    except ValueError as error:
        raise ModelFileError(f"its {error}") from error


def _groups(arrays: Arrays, n: int) -> np.ndarray | None:
    if "rows.groups" not in arrays:
        return None
    groups = require_array(arrays, "rows.groups", "int64", 1)
    if groups.shape != (n,) or groups.min() < 0:
        raise ModelFileError(f"its array 'rows.groups' has shape {groups.shape}; expected {(n,)}, none below zero")
    return groups


def _buffer(arrays: Arrays, d: int) -> np.ndarray | None:
    if "rows.buffer" not in arrays:
        return None
    buffer = _array(arrays, "rows.buffer", None)
    if buffer.shape[1] != d or not len(buffer):
        raise ModelFileError(f"its array 'rows.buffer' has shape {buffer.shape}; expected some rows of {d} columns")
    return buffer


def _model(fields: Header, family: Family, arrays: Arrays, d: int) -> Model:
    name, mean = require(fields, "covariance", str), require(fields, "mean", str)
    if name not in _COVARIANCES or mean not in MEANS:
        raise ModelFileError(
            f"its covariance is {name!r} and its mean {mean!r}, which are not known: upgrade nearfield"
        )
    try:
        kernel = find_kernel(require(fields, "kernel", str))
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"its kernel does not make sense ({error})") from error
    covariance: Covariance
    warps = _warps(arrays, d)
    if name == "mixed":
        mixing = _array(arrays, "parameter.mixing", None)
        covariance = Mixed(kernel, family.latents, warps, np.zeros((family.latents, mixing.shape[1])))
    else:
        covariance = _COVARIANCES[name](kernel, family.latents, warps, family.kernel_scales)
    model = Model.initial(family, covariance, _mean(mean, fields.get("drift"), d))
    values: dict[str, np.ndarray] = {}
    for parameter, p in model.described().items():
        value = values[parameter] = _array(arrays, f"parameter.{parameter}", p.shape)
        if value.size and not (p.low - 1e-9 <= value.min() and value.max() <= p.high + 1e-9):
            raise ModelFileError(f"its array 'parameter.{parameter}' lies outside of {p.low:g} to {p.high:g}")
    return model.with_parameters(values)


def _mean(name: str, drift: Any, d: int) -> Mean:
    """The mean of that name; drift: numbers of the columns that it depends on, where they are some of the d."""
    if drift is None:
        return MEANS[name]
    numbers = drift if isinstance(drift, list) and all(type(e) is int for e in drift) else []
    if not numbers or not set(numbers) <= set(range(d)) or len(set(numbers)) < len(numbers):
        raise ModelFileError(f"its drift does not name some of its {d} columns")
    if type(MEANS[name]) is not Linear:
        raise ModelFileError(f"its mean is {name!r}, but it has a drift")
    return find_mean(name, numbers)


def _warps(arrays: Arrays, d: int) -> Warps:
    if "warps.columns" not in arrays:
        return Warps.none(d)
    columns = require_array(arrays, "warps.columns", "int64", 1)
    w = len(columns)
    if not (0 < w <= d and columns[0] >= 0 and columns[-1] < d and (np.diff(columns) > 0).all()):
        raise ModelFileError(f"its array 'warps.columns' does not name some of its {d} columns in their order")
    knots = _array(arrays, "warps.knots", (w, KNOTS))
    scores = _array(arrays, "warps.scores", (w, 2, KNOTS))
    if not ((np.diff(knots) > 0).all() and (np.diff(scores) >= 0).all()):
        raise ModelFileError("its warps do not increase")
    return Warps(d, columns, knots, scores)


def _summary(stored: Header) -> Summary:
    kinds = {"int": int, "float": float, "str": str, "dict[str, float]": dict}
    values: dict[str, Any] = {}
    for f in fields(Summary):
        if f.name in stored or (f.default is MISSING and f.default_factory is MISSING):
            values[f.name] = require(stored, f.name, kinds[str(f.type)])
    for name in {"nll", *values["left_out"]}:
        require(values["left_out"], name, float)
    for name in values.get("refreshes", {}):
        require(values["refreshes"], name, float)
    return Summary(**values)


def _array(arrays: Arrays, name: str, shape: tuple[int, ...] | None, above: float = -math.inf) -> np.ndarray:
    """A finite float64 array of the file, of that shape (None: any with two dimensions), all values above `above`."""
    array = require_array(arrays, name, "float64", 2 if shape is None else len(shape))
    if shape is not None and array.shape != shape:
        raise ModelFileError(f"its array {name!r} has shape {array.shape}; expected {shape}")
    if not (np.isfinite(array).all() and (array > above).all()):
        raise ModelFileError(f"its array {name!r} has values that are not finite, or out of range")
    return array
