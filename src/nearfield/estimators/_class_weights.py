"""How often rows of each class count: the argument `class_weight` of GPClassifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearfield.persistence import ModelFileError
from nearfield.validation import plain


def class_weights(asked: Any, classes: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights (K,) of the classes, as scikit-learn has them, scaled so that the total weight stays what it is.

    asked: None, "balanced" or a mapping; labels (n,): numbers of the rows' classes; weights (n,): how often they count.
    Balanced are weights that are counted with those of the rows, so that a row of weight two is that row twice.
    """
    counted = np.bincount(labels, weights, minlength=len(classes))
    if asked is None:
        return np.ones(len(classes))
    if isinstance(asked, str) and asked == "balanced":
        own = 1 / counted
    elif isinstance(asked, Mapping):
        own = _looked_up(asked, classes)
    else:
        raise ValueError(f"class_weight is {asked!r}: expected None, 'balanced' or a mapping of labels to weights.")
    return np.asarray(own * (counted.sum() / (own @ counted)))


def _looked_up(asked: Mapping[Any, Any], classes: np.ndarray) -> np.ndarray:
    """The weights of the classes (K,), 1 for those that are not in the mapping."""
    for label, weight in asked.items():
        if not is_weight(weight):
            raise ValueError(
                f"class_weight gives {label!r} the weight {weight!r}: expected a number above 0. Leave rows that are "
                "not to count out, or give them the sample_weight 0."
            )
    known = classes.tolist()
    unknown = [label for label in asked if label not in known]
    if unknown and len(asked) - len(unknown) < len(known):  # all classes are in it: y may be a part that lacks some
        raise ValueError(
            f"class_weight has the label {unknown[0]!r}, which y does not have, and lacks some of those that it has "
            f"({', '.join(map(repr, known[:10]))})."
        )
    return np.array([float(asked.get(label, 1.0)) for label in known])


def is_weight(value: Any) -> bool:
    """Whether it is a finite number above zero."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0


def packed_weights(asked: Any) -> Any:
    """The argument as plain JSON: a mapping as a list of pairs, None where its labels are no text and no numbers."""
    if not isinstance(asked, Mapping):
        return asked
    pairs = [[plain(label), plain(weight)] for label, weight in asked.items()]
    return pairs if all(isinstance(label, str | int | float) for label, _ in pairs) else None


def unpacked_weights(packed: Any) -> Any:
    """The other way round, or a ModelFileError."""
    if packed is None or isinstance(packed, str):
        return packed
    if not (isinstance(packed, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in packed)):
        raise ModelFileError(f"its class_weight is {packed!r}")
    try:
        return dict(packed)
    except TypeError as error:
        raise ModelFileError(f"its class_weight is {packed!r}") from error
