"""Approximate search: what it finds is near, what it misses is told, and nobody has it who did not ask for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_runs import runner, short_training, write
from estimator_data import labelled, load_forged, quick, quick_classifier, quick_counts, small

from nearfield import GPRegressor
from nearfield.approximate import RECALL
from nearfield.neighbours import SearchedRows, build_index, find_equal_rows
from nearfield.persistence import ModelFileError
from nearfield.warps import Metric

D = 6


@pytest.fixture(scope="module")
def model():
    X, y = small(3000, D)
    return quick(k=20, search="approximate", metric="plain").fit(X, y)


def test_more_boxes_find_more_and_all_find_all():
    rows = small(5000, D)[0]
    metric, queries = Metric.of(np.ones(D)), small(50, D, seed=1)[0]
    exact = build_index(rows, "direct").query(queries, 30)
    searched, before = SearchedRows(rows, find_equal_rows(rows)), 0.0
    for most in (4, 16, 64, 10_000):
        found = searched.index(metric, most=most).query(queries, 30)
        assert (np.diff(found.sqdist) >= 0).all()
        assert (found.sqdist >= exact.sqdist).all()
        for i in range(50):  # what is found is where it is said to be
            off = rows[found.ids[i]] - queries[i]
            np.testing.assert_allclose((off * off).sum(axis=1), found.sqdist[i], rtol=1e-12)
        share = np.mean([np.isin(own, near).mean() for own, near in zip(exact.ids, found.ids, strict=True)])
        assert share >= before
        before = share
    assert before == 1
    np.testing.assert_array_equal(found.ids, exact.ids)


def test_the_summary_tells_what_is_missed(model):
    s, predictor = model.summary_, model._fit.predictor
    assert s.search == "approximate"
    assert s.leaves == predictor.leaves >= 1
    assert RECALL <= s.recall <= 1
    assert abs(s.approximate_nll - s.exact_nll) < 0.1
    told = f"Search is approximate: it looks into {s.leaves} boxes of rows and finds {s.recall:.1%} of those most like"
    assert told in str(s)
    exact = replace(predictor, leaves=None)
    which = np.arange(0, 3000, 10)
    wanted, found = (p.sweeper.left_out_ids(which, 20) for p in (exact, predictor))
    shares = [np.isin(own, near).mean() for own, near in zip(wanted, found, strict=True)]
    assert 0.9 < np.mean(shares) < 1


def test_predictions_are_near_those_of_an_exact_search(model):
    X_new = small(200, D, seed=1)[0]
    assert not model._fit.predictor.sweeper.whole(20)
    mean, std = model.predict(X_new, return_std=True)
    exact = quick(k=20, metric="plain").fit(*small(3000, D))
    assert (exact.summary_.search, exact.summary_.leaves, exact._fit.predictor.leaves) == ("exact", 0, None)
    assert "approximate" not in str(exact.summary_)
    wanted, _ = exact.predict(X_new, return_std=True)
    assert not np.array_equal(mean, wanted)
    assert np.sqrt(np.mean((mean - wanted) ** 2)) < 0.2 * std.mean()
    np.testing.assert_array_equal(model.predict(X_new[:5]), mean[:5])  # whatever else is asked


def test_through_a_file_updates_and_what_is_forgotten(model, tmp_path):
    X_new = small(50, D, seed=1)[0]
    model.save(tmp_path / "model")
    loaded = GPRegressor.load(tmp_path / "model")
    assert loaded.search == "approximate"
    assert loaded.summary_ == model.summary_
    np.testing.assert_array_equal(loaded.predict(X_new), model.predict(X_new))
    loaded.update(X_new[:10], np.zeros(10)).forget([5])
    assert loaded._fit.predictor.leaves == model._fit.predictor.leaves
    assert np.isfinite(loaded.predict(X_new)).all()
    for leaves in (0, 1.5, "many"):
        with pytest.raises(ModelFileError, match=r"boxes|leaves"):
            load_forged(model, tmp_path, lambda sections, arrays, n=leaves: sections["model"].update(leaves=n))


def test_where_all_rows_are_neighbours_it_has_no_effect():
    X, y = small(100)
    model = quick(search="approximate").fit(X, y)
    assert model._fit.predictor.leaves is None
    assert "would not be faster here" in str(model.summary_)
    np.testing.assert_array_equal(model.predict(X), quick().fit(X, y).predict(X))


def test_all_estimators_take_it():
    X, y = labelled(2000, classes=3)
    found = quick_classifier(k=8, search="approximate").fit(X, y)
    assert found.summary_.recall >= RECALL
    assert found.predict_proba(X[:9]).shape == (9, 3)
    found = quick_counts(k=8, search="approximate").fit(X, y, groups=np.arange(2000) // 4)
    assert found.summary_.recall >= RECALL
    assert np.isfinite(found.loo_.mean).all()
    with pytest.raises(ValueError, match="search is 'fast'"):
        quick(search="fast").fit(X, y)


def test_on_the_command_line(capsys, tmp_path):
    import pyarrow as pa

    X, y = small(1500)
    rows = write(tmp_path / "rows.csv", pa.table({**{f"x{i}": X[:, i] for i in range(3)}, "y": y}))
    out = tmp_path / "model"
    with short_training():
        result = runner(capsys)("fit", rows, "--target", "y", "--k", 12, "--search", "approximate", "--out", out)
    assert result.code == 0, result.err
    assert "Search is approximate" in result.out
    assert GPRegressor.load(out).search == "approximate"
