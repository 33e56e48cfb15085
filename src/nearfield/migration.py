"""Model files of earlier versions as if they had been written today. Nothing here is checked: reading does that after.

The section "model" had version 1 until the least noise, which no file tells, became smaller, and version 2 until
columns could be bent: files of version 2 have no warps, and are read as they are. Version 4 has coordinates or a
drift, version 5 continuous neighbourhoods, version 6 rows in boxes; a model without these is still written as version
5, 4 or 3.

The section "table" had version 1 until there were families with other columns beside the target than an exposure or
trials: it had a field for each, and the numbers of a constant prediction, which the training rows tell as well. Version
2 was that of models of the command line alone, without cycles of dates or means of levels: it is read as it is.

Version 2 had no sections: one flat header, statistics of rows as columns (y, weight and what else was given; of several
outputs y, weight and known noise, with 1e30 for what was missing; of classes a count each), and scalars where there is
one latent function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.persistence import ModelFileError, require, require_array, section

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]

NOISE_FLOOR = 1e-12  # that of `families`, relative to the kernel's variance
_FLOOR_OF_1, _FLOORED = 1e-8, ("gaussian", "gaussian_outputs")
_MISSING = 1e30  # known noise variance of an output that was not observed
_COLUMNS = {
    "gaussian": ("y", "weight", "known_noise"),
    "student_t": ("y", "weight", "known_noise"),
    "binomial": ("count", "weight", "trials"),
    "negative_binomial": ("count", "weight", "log_exposure"),
}


NEWEST = {"estimator": 1, "family": 1, "model": 6, "head": 1, "summary": 1, "target": 1, "table": 3, "extra": 1}
"""The sections that are known, with the versions in which they are written."""

PLAIN_MODEL = 3
"""The version of the section "model" without coordinates and drift, of which earlier versions know nothing."""


HARD_MODEL = 4
"""The version of the section "model" without continuous neighbourhoods."""


CONTINUOUS_MODEL = 5
"""The version of the section "model" whose rows are not in boxes."""


def migrated(version: int, header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Header and arrays of a file of that version, as the newest version has them."""
    if version == 2:
        header, arrays = _from_2(header, arrays)
    header, arrays = _with_newest_model(header, arrays)
    return _with_newest_table(header), arrays


def migrated_sections(version: int, header: Header) -> dict[str, Header]:
    """The sections alone, for those who want to know about the table and the estimator only.

    Raises:
        ModelFileError: a section is missing, or newer than those that are known.
    """
    header, _ = _with_newest_model({"sections": _sections_of_2(header)} if version == 2 else header, {})
    header = _with_newest_table(header)
    there = [name for name in NEWEST if name != "table" or name in require(header, "sections", dict)]
    return {name: section(header, name, NEWEST[name])[1] for name in there}


def _with_newest_model(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """The section "model" of version 1 had a larger least noise beside the learned one, which takes over the rest."""
    sections = header.get("sections")
    model = sections.get("model") if isinstance(sections, dict) else None
    if not isinstance(sections, dict) or not isinstance(model, dict) or model.get("version") not in (1, 2):
        return header, arrays
    newest = {**header, "sections": {**sections, "model": {**model, "version": NEWEST["model"]}}}
    if model["version"] == 2:
        return newest, arrays
    family, noise = sections.get("family"), arrays.get("parameter.log_noise")
    if isinstance(family, dict) and family.get("name") in _FLOORED and noise is not None:
        if "parameter.mixing" in arrays:
            scale2 = np.sum(arrays["parameter.mixing"] ** 2, axis=1)
        else:
            scale2 = np.exp(2 * arrays.get("parameter.log_scale", np.zeros(1)))
        rest = (_FLOOR_OF_1 - NOISE_FLOOR) * (scale2 if np.ndim(noise) else scale2[0])
        arrays = {**arrays, "parameter.log_noise": np.log(np.exp(noise) + rest)}
    return newest, arrays


def _with_newest_table(header: Header) -> Header:
    sections = header.get("sections")
    table = sections.get("table") if isinstance(sections, dict) else None
    if not isinstance(sections, dict) or not isinstance(table, dict) or table.get("version") not in (1, 2):
        return header
    if table["version"] == 1 and isinstance(table.get("targets"), list):
        table = {**table, "targets": list(map(_target_of_1, table["targets"]))}
    elif table["version"] == 1:
        table = {**_target_of_1(table), "likelihood": require(sections, "family", dict).get("name")}
    return {**header, "sections": {**sections, "table": {**table, "version": NEWEST["table"]}}}


def _target_of_1(fields: Any) -> Any:
    """A target of the section "table" of version 1, or the whole section of a single one, in version 2."""
    if not isinstance(fields, dict):
        return fields
    given = {what: fields[what] for what in ("exposure", "trials") if fields.get(what) is not None}
    kept = {name: value for name, value in fields.items() if name not in ("exposure", "trials", "constant")}
    return {**kept, "given": given}


def _from_2(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    sections = _sections_of_2(header)
    family = sections["family"]
    found = {name: values for name, values in arrays.items() if name.split(".")[0] in ("head", "inputs", "target")}
    found |= {"rows.inputs": require_array(arrays, "rows.inputs", "float64", 2)}
    found |= {"rows.state": require_array(arrays, "rows.auxiliary", "float64", 2)}
    found |= {"rows.groups": arrays["rows.groups"]} if "rows.groups" in arrays else {}
    observed = _observed_of_2(family, require_array(arrays, "rows.stats", "float64", 2))
    found |= {f"observed.{name}": values for name, values in observed.items()}
    mixed = "hyper.mixing" in arrays
    for name, values in arrays.items():
        if name.startswith("hyper."):
            found[f"parameter.{name.removeprefix('hyper.')}"] = values
    for name in ("log_scale", "mean", *(("log_noise",) if family["name"] == "gaussian_outputs" else ())):
        if f"parameter.{name}" in found:
            found[f"parameter.{name}"] = np.atleast_1d(found[f"parameter.{name}"])
    if "head.offsets" in found:
        found["head.offsets"] = np.atleast_1d(found["head.offsets"])
    if family["name"] == "gaussian_outputs":
        whole = bool(observed["present"].all()) and not observed["known_noise"].any()
        family["complete"] = whole
    several = np.ndim(arrays.get("hyper.log_lengths", ())) == 2
    sections["model"]["covariance"] = "mixed" if mixed else "own" if several else "shared"
    if "target.places" not in found:
        found["target.places"] = np.arange(len(found["rows.inputs"]), dtype=np.int64)
    return {"sections": sections}, found


def _sections_of_2(header: Header) -> Header:
    likelihood, summary = dict(require(header, "likelihood", dict)), dict(require(header, "summary", dict))
    if "alike" in likelihood:
        likelihood["one_scale"] = likelihood.pop("alike")
    parameters = dict(require(header, "parameters", dict))
    parameters.pop("engine", None)
    calibrated = parameters.pop("calibrated", parameters.get("predictive") == "calibrated")
    parameters["predictive"] = summary["predictive"] = "calibrated" if calibrated else "plain"
    extra = dict(require(header, "extra", dict))
    table = extra.pop("table", None)
    sections = {
        "estimator": {
            "name": require(header, "estimator", str),
            "parameters": parameters,
            "columns": header.get("columns"),
        },
        "family": likelihood,
        "model": {
            "kernel": require(summary, "kernel", str),
            "covariance": "shared",
            "mean": "constant",
            "k": require(header, "k", int),
        },
        "head": require(header, "head", dict),
        "summary": summary,
        "target": require(header, "target", dict),
        "extra": {"kept": extra},
    } | ({} if table is None else {"table": table})
    return {name: {**own, "version": 1} for name, own in sections.items()}


def _observed_of_2(family: Header, stats: np.ndarray) -> Arrays:
    name = require(family, "name", str)
    if name in _COLUMNS:
        if stats.shape[1] != 3:
            raise ModelFileError(f"its array 'rows.stats' has {stats.shape[1]} columns; expected 3")
        return {column: np.ascontiguousarray(stats[:, i]) for i, column in enumerate(_COLUMNS[name])}
    if name != "gaussian_outputs":
        return {"counts": stats}
    p = require(family, "outputs", int)
    if stats.shape[1] != 2 * p + 1:
        raise ModelFileError(f"its array 'rows.stats' has {stats.shape[1]} columns; expected {2 * p + 1}")
    y, known = np.ascontiguousarray(stats[:, :p]), np.ascontiguousarray(stats[:, p + 1 :])
    there = known < _MISSING / 2
    weight = np.ascontiguousarray(stats[:, p])
    return {"y": y, "present": there, "weight": weight, "known_noise": np.where(there, known, 0.0)}
