"""Labels of groups: numbers for the fit, and what is remembered of them, so that later rows can join a group."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from nearfield.leaving import GroupLabels
from nearfield.persistence import ModelFileError

_KINDS = ("number", "text", "date")


def group_numbers(groups: Any, kept: np.ndarray) -> tuple[np.ndarray, GroupLabels]:
    """Numbers (m,) of the groups of the rows `kept` (n,) among those that came, in the order of labels."""
    kind, labels = _labels(groups, kept)
    different, numbers = np.unique(labels, return_inverse=True)
    if numbers.size > 1 and len(different) == 1:
        raise ValueError("groups has one label for all rows: no row would be left to predict another from.")
    return numbers.reshape(-1).astype(np.int64), GroupLabels(kind, _hashes(different), np.arange(len(different)))


def labels_left(known: GroupLabels | None, taken: np.ndarray | None) -> GroupLabels | None:
    """Those of the labels whose groups still have rows; taken: numbers (n,) of the groups of these."""
    if known is None or taken is None:
        return known
    left = np.isin(known.numbers, taken)
    return GroupLabels(known.kind, known.keys[left], known.numbers[left])


def more_group_numbers(
    groups: Any, kept: np.ndarray, known: GroupLabels | None, taken: np.ndarray | None
) -> tuple[np.ndarray | None, GroupLabels | None]:
    """Numbers (m,) of the groups of rows that are appended, and the labels that are known from then on.

    known: labels so far; taken: numbers (n,) of the groups of the rows of the fit, if they have some. None for rows
    that are a group of their own each.
    """
    if groups is None:
        return None, known
    if taken is None:
        raise ValueError(
            "groups were given, but the model was fitted without: leave them out, or fit again with groups=."
        )
    if known is None:
        raise ValueError(
            "groups were given, but the model knows no labels of its groups: it found near copies by itself "
            "(groups='auto'), or was saved by an earlier version. Leave groups out: each new row is a group of its own."
        )
    kind, labels = _labels(groups, kept)
    if kind != known.kind:
        raise ValueError(f"groups are of the kind {kind}; those of the fit are of the kind {known.kind}.")
    different, own = np.unique(labels, return_inverse=True)
    place = dict(zip(known.keys.tolist(), known.numbers.tolist(), strict=True))
    fresh = int(max(taken.max(), known.numbers.max())) + 1
    hashes = _hashes(different).tolist()
    for key in hashes:
        if key not in place:
            place[key], fresh = fresh, fresh + 1
    numbers = np.array([place[key] for key in hashes], dtype=np.int64)
    keys, every = np.array(list(place)), np.array(list(place.values()))
    return numbers[own.reshape(-1)], GroupLabels(kind, keys, every)


def packed_labels(labels: GroupLabels | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a file keeps of labels, as JSON and arrays."""
    if labels is None:
        return {}, {}
    return {"groups": labels.kind}, {"target.groups": np.column_stack([labels.keys, labels.numbers]).astype(np.int64)}


def unpacked_labels(
    fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], groups: np.ndarray | None
) -> GroupLabels | None:
    """The inverse, or a ModelFileError; groups: numbers (n,) of those of the rows."""
    kind, stored = fields.get("groups"), arrays.get("target.groups")
    if kind is None or groups is None:
        return None
    sound = stored is not None and stored.dtype == np.int64 and stored.ndim == 2 and stored.shape[1] == 2
    if kind not in _KINDS or stored is None or not (sound and len(stored) and stored[:, 1].min() >= 0):
        raise ModelFileError("its array 'target.groups' does not tell the labels of its groups")
    return GroupLabels(str(kind), stored[:, 0].copy(), stored[:, 1].copy())


def _labels(groups: Any, kept: np.ndarray) -> tuple[str, np.ndarray]:
    """The kind of labels, and those (m,) of the rows `kept` (n,): numbers or text."""
    labels = np.asarray(groups)
    if labels.shape != kept.shape:
        raise ValueError(f"groups has shape {labels.shape}: expected {kept.shape}, a label for each row, or 'auto'.")
    labels = labels[kept]
    missing = np.flatnonzero(labels != labels if labels.dtype != object else [_is_missing(one) for one in labels])
    if missing.size:
        raise ValueError(
            f"groups has {missing.size:,} missing labels, the first in row {np.flatnonzero(kept)[missing[0]]}: give "
            "each of these rows a label, one of its own if it is alone."
        )
    if labels.dtype.kind == "M":
        return "date", labels.astype("datetime64[us]").astype(np.int64)
    if labels.dtype == object:
        numeric = all(isinstance(one, int | float | np.number | np.bool_) for one in labels)
        labels = labels.astype(np.float64) if numeric else np.array([str(one) for one in labels], dtype=object)
    return ("text" if labels.dtype.kind in "OUS" else "number"), labels


def _is_missing(label: Any) -> bool:
    return label is None or bool(label != label)


def _hashes(labels: np.ndarray) -> np.ndarray:
    """64 bits (G,) of each label: a file does not tell what groups, such as patients, are called.

    Numbers are the same of any type.
    """
    whole = [int(one) if isinstance(one, float) and one.is_integer() else one for one in labels.tolist()]
    digests = b"".join(blake2b(str(one).encode(), digest_size=8).digest() for one in whole)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)
