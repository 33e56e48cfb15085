"""Left-out scores for each number of neighbours, each with a head of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.calibration import candidate_ks
from nearfield.diagnostics.predicted import affordable

_MOST_ROWS = 500
_FEWEST_ROWS = 150
_MOST_K = 512
_WORK = 6e10


def scores_by_k(model: Any, most_rows: int | None = None, seed: int = 0) -> dict[int, dict[str, float]]:
    """Scores, in the units of the target, of left-out rows predicted from k neighbours: by k, that of the model too.

    Up to twice the k of the model, if that is no more than 512. Of few rows, the scores are good to a few per cent.
    """
    fit, family = model._fit, model._family
    predictor, own = fit.predictor, fit.predictor.model
    rows, matrix_rows = predictor.rows, own.covariance.matrix_rows
    n = len(rows)
    top = max(min(2 * predictor.k, _MOST_K), predictor.k, 32)
    ks = np.unique(np.append(candidate_ks(n - 1, matrix_rows, family.own_factors), min(predictor.k, n - 1)))
    ks = ks[(ks <= top) & (ks >= 1)]
    if not ks.size:
        return {}
    most = affordable(model, _MOST_ROWS, _FEWEST_ROWS, _WORK) if most_rows is None else most_rows
    which = np.arange(len(rows.observations))
    if len(which) > most:
        which = np.sort(np.random.default_rng(seed).choice(which, most, replace=False))
    which = which[rows.seeing(which)]
    some = rows.observations.take(which)
    moments = predictor.sweeper.left_out(which, ks, covariance=matrix_rows > 1)
    noise = own.noise + family.known_noise(some.observed)
    unit = np.asarray(1.0) if model._target is None else np.asarray(model._target.scale)
    calibrator = family.calibrator(rows.observed, own.parameters, model.summary_.predictive == "calibrated", unit)
    left_out, found = family.left_out(ks, moments, some, noise), {}
    for k in ks.tolist():
        tried = left_out.at(k)
        scores = calibrator.scores(tried, calibrator.fit(tried))
        found[int(k)] = {name: float(np.mean(value)) for name, value in scores.items()}
    return found
