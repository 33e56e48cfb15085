"""Whether probabilities of classes hold, and how well they tell classes apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from nearfield.diagnostics.chance import holm, independent, share_p
from nearfield.diagnostics.predicted import Labelled

_BINS = 10
_POINTS = 60  # of a curve, in pages


def reliability(rows: Labelled, label: int | None = None, bins: int = _BINS) -> list[dict[str, Any]]:
    """Mean predicted probability and observed share in bins of it: of a class, or of the most probable one.

    Bins have equal width; p values are for all of them together.
    """
    stated = rows.p.max(axis=1) if label is None else rows.p[:, label]
    happened = rows.right if label is None else rows.labels == label
    place = np.minimum((stated * bins).astype(np.int64), bins - 1)
    found: list[dict[str, Any]] = []
    for number in np.unique(place).tolist():
        part = place == number
        weights = rows.weights[part]
        predicted, observed = (float(np.average(v[part], weights=weights)) for v in (stated, happened))
        n = independent(weights, None if rows.units is None else rows.units[part])
        p = share_p(observed, min(max(predicted, 0.0), 1.0), n)
        found.append(
            {"low": number / bins, "high": (number + 1) / bins, "predicted": predicted, "observed": observed,
             "rows": int(part.sum()), "independent": n, "p": p}
        )  # fmt: skip
    for entry, p in zip(found, holm([entry["p"] for entry in found]), strict=True):
        entry["p"] = p
    return found


def confusion(rows: Labelled) -> np.ndarray:
    """How many rows of each class (K, ..) are predicted to be of each (.., K), by weight."""
    K = rows.p.shape[1]
    pairs = rows.labels * K + rows.p.argmax(axis=1)
    return np.bincount(pairs, rows.weights, K * K).reshape(K, K)


class Curves(NamedTuple):
    """ROC and precision-recall of one class against the others."""

    false_positive: np.ndarray
    true_positive: np.ndarray
    auc: float
    recall: np.ndarray
    precision: np.ndarray
    average_precision: float


def curves(rows: Labelled, label: int, points: int = _POINTS) -> Curves | None:
    """The curves of a class, thinned out; None where it was not observed, or nothing else was."""
    positive, p = rows.labels == label, rows.p[:, label]
    if positive.all() or not positive.any():
        return None
    own: dict[str, Any] = {"sample_weight": rows.weights}
    false, true, _ = roc_curve(positive, p, **own)
    precision, recall, _ = precision_recall_curve(positive, p, **own)
    recall, precision = recall[::-1], precision[::-1]  # from the most probable rows on
    some, others = _thinned(false, true, points), _thinned(recall, precision, points)
    return Curves(
        false[some], true[some], float(roc_auc_score(positive, p, **own)),
        recall[others], precision[others], float(average_precision_score(positive, p, **own)),
    )  # fmt: skip


def _thinned(x: np.ndarray, y: np.ndarray, points: int) -> np.ndarray:
    """Places of points evenly spread along a curve, both ends among them."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    return np.unique(np.searchsorted(along, np.linspace(0, along[-1], points)).clip(0, len(x) - 1))
