"""How much columns matter: against predictions of all rows, whether their value has changed or not."""

from __future__ import annotations

import numpy as np
import pytest
from estimator_data import quick

from nearfield import importance


def test_rows_that_keep_their_value_need_no_prediction(monkeypatch):
    """A rare flag, a column of no use and one that is constant: the losses are those of predicting every row anew."""
    rng = np.random.default_rng(0)
    n, shuffles = 200, 3
    X = np.column_stack([rng.standard_normal(n), rng.random(n) < 0.05, rng.standard_normal(n), np.ones(n)])
    y = np.sin(2 * X[:, 0]) + 2 * X[:, 1] + 0.05 * rng.standard_normal(n)
    model = quick(k=12).fit(X, y)
    predictor = model._fit.predictor
    which, left_out = np.arange(n), predictor.rows.observations
    inputs = np.asarray(predictor.rows.inputs)[left_out.row]

    def mean_score(at):
        return model._log_scores(predictor.elsewhere(which, at, importance._MOST_NEIGHBOURS), left_out).mean()

    rng = np.random.default_rng(importance._SEED)  # draws the same orders
    orders = [rng.permutation(n) for _ in range(shuffles)]
    expected = []
    for column in range(4):
        shuffled = []
        for order in orders:
            at = inputs.copy()
            at[:, column] = inputs[order, column]
            shuffled.append(mean_score(at))
        expected.append(max(mean_score(inputs) - np.mean(shuffled), 0.0))
    asked = []
    elsewhere = type(predictor).elsewhere

    def counting(self, which, at, k):
        asked.append(len(which))
        return elsewhere(self, which, at, k)

    monkeypatch.setattr(type(predictor), "elsewhere", counting)
    np.testing.assert_allclose(model.feature_importances_, expected, rtol=1e-9, atol=1e-12)
    assert expected[0] > expected[1] > 0
    assert model.feature_importances_[3] == 0
    assert asked[0] == n
    assert asked[2] < 0.3 * shuffles * n  # the flag
    assert sum(asked) == pytest.approx(n + 2 * shuffles * n + asked[2], rel=0.05)
