"""Rows: equal ones are joined to the same bits as weights, and what is left out is taken away, against brute force."""

from __future__ import annotations

import dense
import numpy as np
import pytest
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small
from family_examples import CASES, case, copies, model_of

from nearfield import prediction, sweep
from nearfield.families import taken
from nearfield.families.classes import OneAgainstAll
from nearfield.families.gaussian import Gaussian
from nearfield.rows import Rows, join_equal, seen_by, without
from nearfield.sweep import Sweeper

# --- a row of weight two is that row twice --------------------------------------------------------------------------


def outputs(n=80):
    X, y = small(n)
    Y = np.stack([y, y**2, -y], axis=1)
    Y[np.random.default_rng(1).random(Y.shape) < 0.2] = np.nan
    Y[np.isnan(Y).all(axis=1), 0] = 0.0
    return X, Y


def fits():
    """Estimators, inputs, targets and what else goes into a fit row by row."""
    X, y = small(80)
    XL, labels = labelled(80, 3)
    XC, counts, _ = counted(80)
    trials = np.random.default_rng(0).integers(1, 9, 80)
    rough = np.round(XL)  # inputs that occur again, with other labels
    return {
        "number": (quick(k=10), X, y, {}),
        "all neighbours": (quick(), X, y, {}),
        "known noise": (quick(k=10), X, y, {"noise_variance": np.linspace(0, 0.2, 80)}),
        "groups": (quick(k=10), X, y, {"groups": np.arange(80) // 3}),
        "near copies": (quick(k=10), X, y, {"groups": "auto"}),
        "robust": (quick(k=10, likelihood="student_t"), X, y, {}),
        "vecchia": (quick(k=10, objective="vecchia"), X, y, {}),
        "mll": (quick(k=10, objective="mll"), X, y, {}),
        "lmc with gaps": (quick(k=10), *outputs(), {}),
        "shared with gaps": (quick(k=10, outputs="shared"), *outputs(), {"noise_variance": np.full((80, 3), 0.01)}),
        "independent with gaps": (quick(k=10, outputs="independent"), *outputs(), {}),
        "classes": (quick_classifier(k=10), XL, labels, {}),
        "classes, own kernels": (quick_classifier(k=10, class_kernels="own"), XL, labels, {}),
        "classes, log-normal": (quick_classifier(k=10, auxiliary="lognormal"), XL, labels, {}),
        "two classes, equal inputs": (quick_classifier(k=10, auxiliary="conjugate"), rough, labels > 0, {}),
        "counts": (quick_counts(k=10), XC, counts, {"exposure": np.linspace(1, 2, 80)}),
        "binomial": (quick_counts(k=10, likelihood="binomial"), XC, np.minimum(counts, trials), {"trials": trials}),
    }


def predicted(model, X, given):
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(X)]
    extra = {name: np.full(len(X), 5.0) for name in given if name in ("exposure", "trials")}
    return list(model.predict(X, return_std=True, **extra))


@pytest.mark.parametrize("kind", fits())
def test_a_weight_of_two_and_the_row_twice_give_the_same_bits(kind):
    model, X, y, given = fits()[kind]
    weights = 1 + (np.arange(80) % 4 == 0).astype(int)
    again = np.repeat(np.arange(80), weights)
    shuffled = np.random.default_rng(0).permutation(again)
    model.fit(X, y, sample_weight=weights, **given)
    expected, hyper = predicted(model, X[:20] + 0.01, given), model._fit.predictor.model.parameters
    left_out = model.loo_[0]
    for rows in (again, shuffled):
        model.fit(X[rows], y[rows], **{name: v if isinstance(v, str) else v[rows] for name, v in given.items()})
        for name, value in model._fit.predictor.model.parameters.items():
            np.testing.assert_array_equal(value, hyper[name])
        for a, b in zip(predicted(model, X[:20] + 0.01, given), expected, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(model.loo_[0], left_out[rows])
        assert model.n_rows_ == 100


def test_a_k_beyond_the_rows_is_the_same_for_a_weight_of_two_and_the_row_twice():
    X, y = small(30)
    with pytest.warns(UserWarning, match="k = 40 is more than the 29 other rows"):
        weighted = quick(k=40).fit(X, y, sample_weight=np.full(30, 2.0))
    with pytest.warns(UserWarning, match="k = 40 is more than the 29 other rows"):
        twice = quick(k=40).fit(np.concatenate([X, X]), np.concatenate([y, y]))
    assert weighted.k_ == twice.k_ == 29
    np.testing.assert_array_equal(weighted.predict(X), twice.predict(X))


@pytest.mark.parametrize("kind", fits())
def test_rows_predicted_alone_together_and_in_any_blocks_have_the_same_bits(kind, monkeypatch):
    model, X, y, given = fits()[kind]
    model.fit(X, y, **given)
    new = np.concatenate([X[:20] + 0.01, X[:5], 100 * X[:3]])
    expected, left_out = predicted(model, new, given), model.loo_
    alone = [predicted(model, row[None], given) for row in new]
    for whole, *each in zip(expected, *alone, strict=True):
        np.testing.assert_array_equal(np.concatenate(each), whole)
    for whole, turned in zip(expected, predicted(model, new[::-1], given), strict=True):
        np.testing.assert_array_equal(turned[::-1], whole)
    for numbers, rows in ((1, 8192), (350, 8192), (2**18, 9)):
        monkeypatch.setattr(sweep, "_BLOCK_NUMBERS", numbers)
        monkeypatch.setattr(prediction, "_BLOCK_ROWS", rows)
        for whole, blocks in zip(expected, predicted(model, new, given), strict=True):
            np.testing.assert_array_equal(blocks, whole)
        model._adopt(model._fit)  # forgets what was left out
        for whole, blocks in zip(left_out, model.loo_, strict=True):
            np.testing.assert_array_equal(blocks, whole)


def test_the_order_of_weighted_rows_does_not_matter_to_a_bit():
    X, y = small(80)
    weights, order = np.arange(80) % 3 + 0.5, np.random.default_rng(0).permutation(80)
    one, other = quick(k=10).fit(X, y, sample_weight=weights), quick(k=10)
    other.fit(X[order], y[order], sample_weight=weights[order])
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    np.testing.assert_array_equal(one.loo_.mean[order], other.loo_.mean)


def test_updates_join_too():
    X, y = small(80)
    model, other = quick(k=10).fit(X[:60], y[:60]), quick(k=10).fit(X[:60], y[:60])
    model.update(X[60:], y[60:], sample_weight=np.full(20, 2.0))
    other.update(*(np.concatenate([part[60:]] * 2) for part in (X, y)))
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    assert (model.n_rows_, other.n_rows_) == (80, 100)
    np.testing.assert_array_equal(other.loo_.mean[60:80], model.loo_.mean[60:])
    np.testing.assert_array_equal(other.loo_.mean[80:], model.loo_.mean[60:])


# --- joining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_tables_without_copies_and_weights_stay_as_they_are(which):
    given = case(which)
    joined = join_equal(given.family, given.X, given.observed, np.arange(40))
    np.testing.assert_array_equal(joined.inputs, given.X)
    np.testing.assert_array_equal(joined.row, np.arange(40))
    np.testing.assert_array_equal(joined.groups, np.arange(40))
    for name, values in given.observed.items():
        np.testing.assert_array_equal(joined.observed[name], values)


@pytest.mark.parametrize("which", CASES)
@pytest.mark.parametrize("grouped", [False, True])
def test_joined_rows_are_the_distinct_ones_with_their_sums(which, grouped):
    """Against a dictionary: equal inputs, group and observation once, with the sum of what is additive."""
    given = case(which, 12, weighted=True)
    again = np.random.default_rng(0).integers(0, 12, 50)
    X, observed = given.X[again], taken(given.observed, again)
    groups = np.arange(50) % 2 if grouped else None
    joined = join_equal(given.family, X, observed, groups)
    expected = {}
    for i in range(50):
        key = _key(given.family, X, observed, groups, i)
        before = expected.get(key, 0)
        expected[key] = before + np.array([observed[name][i] for name in given.family.additive])
    assert len(joined.inputs) == len(expected)
    for j in range(len(joined.inputs)):
        key = _key(given.family, joined.inputs, joined.observed, joined.groups, j)
        sums = np.array([joined.observed[name][j] for name in given.family.additive])
        np.testing.assert_allclose(sums, expected[key], rtol=1e-15)
    for i in range(50):
        here, there = (X, observed, groups, i), (joined.inputs, joined.observed, joined.groups, joined.row[i])
        assert _key(given.family, *here) == _key(given.family, *there)


def _key(family, X, observed, groups, i):
    same = [observed[name][i] for name in sorted(observed) if name not in family.additive]
    return (X[i].tobytes(), *(np.asarray(part).tobytes() for part in same), None if groups is None else int(groups[i]))


def test_what_differs_is_not_joined():
    X, ones = np.zeros((4, 2)), np.ones(4)
    y, known = np.array([1.0, 1.0, 2.0, 1.0]), np.array([0.0, 0.0, 0.0, 0.5])
    joined = join_equal(Gaussian(), X, Gaussian().observe(y, ones, noise_variance=known))
    assert sorted(joined.observed["weight"].tolist()) == [1, 1, 2]
    assert joined.row[0] == joined.row[1]
    assert len(set(joined.row.tolist())) == 3
    labels = OneAgainstAll(3)
    seen = join_equal(labels, X, labels.observe(np.array([0, 2, 2, 1]), ones))
    np.testing.assert_array_equal(seen.observed["counts"], [[1, 1, 2]])
    zeros = join_equal(
        Gaussian(), np.array([[0.0], [-0.0]]), Gaussian().observe(y[:2], ones[:2], noise_variance=known[:2])
    )
    assert len(zeros.inputs) == 1


# --- leaving out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
def test_without_equals_deleting_the_copy(which):
    """What is left of each neighbour, counted again from all copies but one."""
    given = case(which, 12, weighted=True)
    row, every = copies(given.observed)
    rows = Rows.of(given.family, given.X, given.observed)
    observations = rows.observations
    ids = np.tile(np.arange(12), (len(observations), 1))
    ids[:, 5] = -1
    rest = without(taken(given.observed, np.maximum(ids, 0)), ids, observations, given.family.additive)
    additive = given.family.additive[0]
    for u in range(len(observations)):
        own = taken(observations.observed, u)
        same = [i for i in np.flatnonzero(row == observations.row[u]) if _same(taken(every, i), own)]
        kept = np.delete(np.arange(len(row)), same[0])
        left = np.zeros_like(given.observed[additive])
        np.add.at(left, row[kept], every[additive][kept])
        there = ids[u] >= 0
        np.testing.assert_allclose(rest[additive][u][there], left[there], atol=1e-15)
        for name in set(given.observed) - {additive}:
            np.testing.assert_array_equal(rest[name][u][there], given.observed[name][there])


def _same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a)


def test_a_row_that_counts_less_than_once_is_left_out_whole():
    family = Gaussian()
    observed = family.observe(np.array([1.0, 2.0]), np.array([0.25, 1.5]))
    rows = Rows.of(family, np.zeros((2, 1)), observed)
    np.testing.assert_array_equal(rows.observations.alone, [True, False])
    ids = np.tile(np.arange(2), (2, 1))
    seen, _ = seen_by(rows, family, ids, rows.observations)
    np.testing.assert_allclose(seen["weight"], [[0.0, 1.5], [0.25, 0.5]], atol=1e-15)


def test_nothing_is_left_out_of_new_rows():
    given = case("gaussian:", 12, weighted=True)
    rows = Rows.of(given.family, given.X, given.observed)
    ids = np.array([[3, 4, -1]])
    seen, _ = seen_by(rows, given.family, ids, None)
    np.testing.assert_array_equal(seen["weight"][0, :2], given.observed["weight"][[3, 4]])


@pytest.mark.parametrize("which", ["gaussian:", "student_t:", "negative_binomial:curvature"])
def test_left_out_copies_of_heavy_rows_equal_dense_algebra(which):
    """Weights that are no whole numbers: a row of weight 1.5 keeps 0.5 when it is left out, one of 0.5 nothing."""
    given = case(which, 20)
    weight = np.random.default_rng(0).choice([0.5, 1.0, 1.5, 4.0], 20)
    given = given._replace(observed={**given.observed, "weight": weight})
    model, rows = model_of(given)
    swept = Sweeper(model, rows).left_out(np.arange(20), np.array([20])).at(0)
    for u in range(20):
        left = {**rows.observed, "weight": weight - np.minimum(weight, 1.0) * (np.arange(20) == u)}
        there = left["weight"] > 0
        targets, noises = dense.sites_of(model, taken(left, there), rows.state[there])
        mean, covariance = dense.posterior(model, given.X[there], targets, noises, given.X[u : u + 1])
        assert swept.mean[u, 0] == pytest.approx(mean[0, 0], abs=1e-8)
        assert swept.variance[u, 0] == pytest.approx(covariance[0, 0, 0], abs=1e-8)


@pytest.mark.parametrize("which", CASES)
def test_rows_follow_each_other(which):
    given = case(which, 30)
    first, then = (
        Rows.of(given.family, given.X[part], taken(given.observed, part), groups)
        for part, groups in ((np.arange(20), np.arange(20) // 2), (np.arange(20, 30), None))
    )
    both = first.followed_by(then)
    np.testing.assert_array_equal(both.inputs, given.X)
    for name, values in given.observed.items():
        np.testing.assert_array_equal(both.observed[name], values)
    assert len(both.observations) == len(first.observations) + len(then.observations)
    np.testing.assert_array_equal(both.groups[:20], np.arange(20) // 2)
    assert len(set(both.groups[20:].tolist()) - set(both.groups[:20].tolist())) == 10
