"""Predictions without single training rows: against taking the rows out of the table, one after the other."""

import numpy as np
import pytest
from family_examples import CASES, case, covariances, model_of

from nearfield.conditional.deletions import Influences, without_each
from nearfield.deletions import deletions, moves_edge, without_exactly
from nearfield.prediction import Predictor
from nearfield.rows import Rows
from nearfield.scaling import Scaling
from nearfield.taper import Taper

PLAIN = Scaling(np.zeros(2), np.ones(2))
VARIANTS = [(which, word) for which in CASES for word in covariances(case(which)) if word != "mixed"]


def new_rows(n=6):
    return 1.2 * np.random.default_rng(9).standard_normal((n, 2))


def found(predictor, query, entire=True):
    ((_, deleted),) = list(deletions(predictor, query, PLAIN, entire))
    return deleted


def moments_without(predictor, observed, state, kept, query):
    """From the rows `kept` of the table alone, in a predictor of its own."""
    family, rows = predictor.model.family, predictor.rows
    taken = {name: values[kept] for name, values in observed.items()}
    fewer = Rows(rows.inputs[kept], taken, state[kept], family.observations(taken))
    return Predictor(predictor.model, fewer, predictor.k, None, predictor.taper).sweeper.new(query, predictor.k)


def agree(deleted, i, moments, tolerance=1e-10):
    for r, ids in enumerate(deleted.ids):
        at = np.flatnonzero(ids == i)
        own = [part[r] for part in (deleted.mean, deleted.variance, deleted.quad)]
        mean, variance, quad = [part[r, :, at[0]] for part in deleted.without] if at.size else own
        np.testing.assert_allclose(mean, moments.mean[r], rtol=0, atol=tolerance)
        np.testing.assert_allclose(variance, moments.variance[r], rtol=0, atol=tolerance)
        np.testing.assert_allclose(quad, moments.quad[r], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("which", "covariance"), VARIANTS)
def test_rows_deleted_as_a_whole_as_if_they_were_not_in_the_table(which, covariance):
    model, rows = model_of(case(which, weighted=True), covariance)
    n, query = len(rows), new_rows(3)
    for k in (5, n - 1):
        predictor = Predictor(model, rows, k, None)
        deleted = found(predictor, query)
        assert deleted.ids.shape == (3, 6 if k == 5 else n)
        for i in range(0, n, 1 if k == 5 else 7):
            agree(deleted, i, moments_without(predictor, rows.observed, rows.state, np.arange(n) != i, query))


@pytest.mark.parametrize(("which", "covariance"), VARIANTS)
@pytest.mark.parametrize("k", [1, 5, -2])
def test_continuous_neighbourhoods_are_predicted_anew(which, covariance, k):
    """k = n - 2: without one row, all others are neighbours, and there is no edge."""
    model, rows = model_of(case(which, weighted=True), covariance)
    n, query = len(rows), new_rows(3)
    predictor = Predictor(model, rows, k % n, None, Taper())
    assert moves_edge(predictor)
    ids = np.stack([np.random.default_rng(r).permutation(n)[:9] for r in range(3)])
    ids[:, :6] = predictor.sweeper.new_ids(query, 6)
    without = without_exactly(predictor, query, PLAIN, ids)
    for r, c in np.ndindex(ids.shape):
        kept = np.arange(n) != ids[r, c]
        moments = moments_without(predictor, rows.observed, rows.state, kept, query)
        for found, wanted in zip(without, (moments.mean, moments.variance, moments.quad), strict=True):
            np.testing.assert_allclose(found[r, :, c], wanted[r], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("which", [name for name in CASES if name.split(":")[0] in ("gaussian", "student_t")])
@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_one_of_several_observations_goes(which, mean):
    model, rows = model_of(case(which, weighted=True), "shared", "auto", mean)
    n, query = len(rows), new_rows(3)
    for k in (5, n - 1):
        predictor = Predictor(model, rows, k, None)
        deleted = found(predictor, query, entire=False)
        assert (rows.observed["weight"] > 1).any()
        for i in range(n):
            left = rows.observed["weight"] - (np.arange(n) == i)
            agree(
                deleted, i, moments_without(predictor, {**rows.observed, "weight": left}, rows.state, left > 0, query)
            )


@pytest.mark.parametrize("k", [1, 6, 38, 39, 40])
def test_with_all_rows_they_are_the_predictions_and_weights_add_up(k):
    model, rows = model_of(case("gaussian:"), "shared")
    predictor = Predictor(model, rows, k, None)
    query = new_rows()
    deleted, moments = found(predictor, query), predictor.sweeper.new(query, k)
    np.testing.assert_allclose(deleted.mean, moments.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(deleted.variance, moments.variance, rtol=0, atol=1e-12)
    sites = rows.observed["y"] - model.parameters["mean"][0]
    added = (deleted.weights[:, 0] * sites[deleted.ids]).sum(axis=1) + model.parameters["mean"][0]
    np.testing.assert_allclose(added, deleted.mean[:, 0], rtol=0, atol=1e-12)


def test_few_rows():
    for n in (1, 2, 3):
        model, rows = model_of(case("gaussian:", n), "shared")
        predictor = Predictor(model, rows, max(n - 1, 1), None)
        deleted = found(predictor, new_rows())
        assert deleted.ids.shape == (6, n)
        assert np.isfinite(deleted.without.mean).all()
        if n == 1:  # without it there is nothing: the prior
            np.testing.assert_allclose(deleted.without.mean[..., 0], model.parameters["mean"][0])
            np.testing.assert_allclose(deleted.without.variance[..., 0], model.scale2[0])


@pytest.mark.parametrize("k", [5, 39])
def test_same_bits_for_any_threads_and_blocks(k, monkeypatch):
    model, rows = model_of(case("one_against_all:conjugate"), "own")
    predictor = Predictor(model, rows, k, None)
    query = new_rows(50)
    monkeypatch.setenv("NEARFIELD_THREADS", "1")
    one = found(predictor, query)
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    three = found(predictor, query)
    monkeypatch.setattr("nearfield.deletions._BLOCK_NUMBERS", 1)
    parts = [part for _, part in deletions(predictor, query, PLAIN, True)]
    assert len(parts) == 50
    for name in ("mean", "variance", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))
        np.testing.assert_array_equal(getattr(one, name), np.concatenate([getattr(part, name) for part in parts]))
    for i in range(3):
        np.testing.assert_array_equal(one.without[i], three.without[i])
        np.testing.assert_array_equal(one.without[i], np.concatenate([part.without[i] for part in parts]))


def test_what_was_not_observed_changes_nothing():
    """Against dense algebra, with a noise that grows, one that becomes infinite, and a row that was never there."""
    rng = np.random.default_rng(0)
    A, t, c = rng.standard_normal((5, 9)), rng.standard_normal(5), rng.standard_normal(5)
    K = A @ A.T
    P = np.linalg.inv(K)
    given = Influences(*(np.atleast_2d(part) for part in (t @ P @ c, 1 - c @ P @ c, t @ P @ t)), *(
        np.concatenate([part, [0.0]])[None, None] for part in (P @ t, P @ c, np.diagonal(P))
    ))  # fmt: skip
    noisier, further = np.array([0.3, np.inf, 2.0, 0.0, np.inf, np.inf]), np.array([0.5, 0.2, 0.0, -1.0, 0.0, 3.0])
    without = without_each(given, noisier[None, None], further[None, None])
    for j in range(6):
        kept = np.arange(5) != (j if np.isinf(noisier[j]) else -1)
        own, s = K.copy(), t.copy()
        if kept.all() and j < 5:
            own[j, j] += noisier[j]
            s[j] += further[j]
        Q = np.linalg.inv(own[np.ix_(kept, kept)])
        expected = s[kept] @ Q @ c[kept], 1 - c[kept] @ Q @ c[kept], s[kept] @ Q @ s[kept]
        np.testing.assert_allclose([part[0, 0, j] for part in without], expected, rtol=1e-9, atol=1e-9)


def test_mixed_outputs_are_refused():
    own = next(which for which in CASES if "mixed" in covariances(case(which)))
    model, rows = model_of(case(own), "mixed")
    with pytest.raises(NotImplementedError, match="depend on each other"):
        next(deletions(Predictor(model, rows, 5, None), new_rows(), PLAIN, True))
    model, rows = model_of(case("bernoulli:tied", weighted=True))
    with pytest.raises(NotImplementedError, match="more than once"):
        next(deletions(Predictor(model, rows, 5, None), new_rows(), PLAIN, False))
