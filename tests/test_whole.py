"""All rows at once: the closed form with k = n - 1 neighbours of every row, by one factorisation."""

from __future__ import annotations

import numpy as np
import pytest
from family_examples import CASES, case, covariances, model_of
from scipy.stats import multivariate_normal

from nearfield import GPRegressor
from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.conditional.whole import Whole
from nearfield.kernels import KERNELS, log_shapes
from nearfield.model import AllRows
from nearfield.objectives import LEAVE_ONE_OUT, left_out_score
from nearfield.sweep import Sweeper

GROUPS = np.arange(40)
GROUPS[[5, 9, 30]] = 5
GROUPS[20] = 21


def others(n, groups):
    """Neighbours (n, n - 1) of each row, all that are not of its group; -1 behind the last."""
    groups = np.arange(n) if groups is None else groups
    ids = np.full((n, n - 1), -1)
    for i in range(n):
        allowed = np.flatnonzero(groups != groups[i])
        ids[i, : len(allowed)] = allowed
    return ids


def example(kernel, several, seed=0):
    """Inputs, targets and noises of 40 rows; with noises of their own, some targets of latent functions are missing."""
    rng = np.random.default_rng(seed)
    X, t = rng.standard_normal((40, 3)), rng.standard_normal((40, 2))
    v = np.exp(rng.standard_normal((40, 2 if several else 1)) - 2)
    if several:
        v[[3, 9], 0] = v[7, 1] = np.inf
    lengths = 0.3 * rng.standard_normal(3)
    return (KERNELS[kernel], lengths, log_shapes(KERNELS[kernel])), X, t, v


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["alone", "groups"])
@pytest.mark.parametrize("several", [False, True], ids=["shared-noise", "own-noise"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_left_out_equal_the_closed_form_of_each_alone(kernel, several, groups):
    constants, X, t, v = example(kernel, several)
    whole = Whole(*constants, X, t, v, differentiate=True)
    ids = others(40, groups)
    one_by_one = condition(
        *constants, Neighbourhood(X, X, ids, t[np.maximum(ids, 0)], v[np.maximum(ids, 0)]), differentiate=True
    )
    found = whole.left_out(groups)
    np.testing.assert_allclose(found.mean, one_by_one.mean[:, 0], atol=1e-10)
    np.testing.assert_allclose(found.variance, one_by_one.variance[:, 0], atol=1e-10)
    np.testing.assert_allclose(found.quad, one_by_one.quad[:, 0], rtol=1e-9)
    rng = np.random.default_rng(1)
    seen = np.isfinite(np.broadcast_to(v, t.shape))
    by_mean, by_variance = rng.standard_normal(t.shape) * seen, rng.standard_normal(v.shape) * np.isfinite(v)
    ours, theirs = whole.slopes(by_mean, by_variance, groups=groups), one_by_one.slopes(by_mean, by_variance)
    np.testing.assert_allclose(ours.log_lengths, theirs.log_lengths, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.log_shape, theirs.log_shape, rtol=1e-8, atol=1e-9)
    for name in ("targets", "noises"):  # each row is a neighbour of many
        summed = np.zeros(getattr(ours, name)[0].shape)
        np.add.at(summed, ids[ids >= 0], getattr(theirs, name)[ids >= 0])
        np.testing.assert_allclose(getattr(ours, name)[0], summed, rtol=1e-8, atol=1e-9)


def test_the_joint_density_is_that_of_scipy_with_slopes_of_finite_differences():
    constants, X, t, v = example("rational_quadratic", several=False)
    kernel, lengths, shape = constants

    def value(lengths, shape, t, v):
        whole = Whole(kernel, lengths, shape, X, t, v)
        return 0.3 * whole.log_det[0] + whole.quad @ [1.0, 2.0]

    whole = Whole(*constants, X, t, v, differentiate=True)
    r2 = (((X[:, None] - X) / np.exp(lengths)) ** 2).sum(axis=-1)
    K = 1 / (1 + r2 / 2) + np.diag(v[:, 0])
    expected = multivariate_normal(np.zeros(40), K).logpdf(t[:, 0])
    assert -0.5 * (whole.quad[0] + whole.log_det[0] + 40 * np.log(2 * np.pi)) == pytest.approx(expected, rel=1e-10)
    zero = np.zeros((40, 2)), np.zeros((40, 1))
    by = whole.slopes(*zero, np.array([0.3]), np.array([1.0, 2.0]))
    step = 1e-5
    for e in np.eye(3):
        off = step * e
        slope = (value(lengths + off, shape, t, v) - value(lengths - off, shape, t, v)) / (2 * step)
        assert by.log_lengths @ e == pytest.approx(slope, rel=1e-6)
    slope = (value(lengths, shape + step, t, v) - value(lengths, shape - step, t, v)) / (2 * step)
    assert by.log_shape[0] == pytest.approx(slope, rel=1e-6)
    off = np.zeros(t.shape)
    off[4, 1] = step
    slope = (value(lengths, shape, t + off, v) - value(lengths, shape, t - off, v)) / (2 * step)
    assert by.targets[0, 4, 1] == pytest.approx(slope, rel=1e-6)
    off = off[:, 1:]
    slope = (value(lengths, shape, t, v + off) - value(lengths, shape, t, v - off)) / (2 * step)
    assert by.noises[0, 4, 0] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("several", [False, True], ids=["shared-noise", "own-noise"])
def test_new_rows_equal_the_closed_form_with_all_rows_and_do_not_depend_on_each_other(several):
    constants, X, t, v = example("matern32", several)
    query = np.random.default_rng(2).standard_normal((37, 3))
    whole = Whole(*constants, X, t, v)
    ids = np.tile(np.arange(40), (37, 1))
    expected = condition(*constants, Neighbourhood(query, X, ids, t[ids], v[ids]))
    found = whole.predict(query)
    np.testing.assert_allclose(found.mean, expected.mean[:, 0], atol=1e-10)
    np.testing.assert_allclose(found.variance, expected.variance[:, 0], atol=1e-10)
    np.testing.assert_allclose(found.quad, expected.quad[:, 0], rtol=1e-9)
    for part in (slice(0, 1), slice(5, 25), slice(36, 37)):
        alone = whole.predict(query[part])
        assert np.array_equal(alone.mean, found.mean[part])
        assert np.array_equal(alone.variance, found.variance[part])


def test_the_same_bits_for_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    X, t, v = rng.standard_normal((300, 3)), rng.standard_normal((300, 2)), np.full((300, 1), 0.1)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        whole = Whole(KERNELS["matern52"], np.zeros(3), np.zeros(0), X, t, v, differentiate=True)
        left_out = whole.left_out()
        by = whole.slopes(left_out.mean, left_out.variance, np.ones(1), np.ones(2))
        found.append([*left_out, *by, *whole.predict(X + 0.1)])
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_equal_rows_without_noise_are_factorised_with_jitter_and_counted():
    X = np.zeros((6, 1))
    t, v = np.arange(6.0)[:, None], np.zeros((6, 1))
    whole = Whole(KERNELS["rbf"], np.zeros(1), np.zeros(0), X, t, v, differentiate=True)
    assert whole.jittered > 0
    assert np.isfinite(whole.left_out().mean).all()
    assert np.isfinite(whole.predict(X).mean).all()


EXACT = [which for which in CASES if not case(which, 5).family.state_learned]


@pytest.mark.parametrize("mean", ["constant", "linear"])
@pytest.mark.parametrize("groups", [False, True], ids=["alone", "groups"])
@pytest.mark.parametrize("which", EXACT)
def test_the_objective_is_that_of_all_other_rows_as_neighbours(which, groups, mean):
    """Values and slopes of LOO-k with k = n - 1, also where rows count more than once."""
    given = case(which, 40, weighted=True)
    for word in covariances(given):
        if word == "mixed":
            continue
        model, rows = model_of(given, word, mean=mean)
        rows = rows if not groups else type(rows)(
            rows.inputs, rows.observed, rows.state, rows.observations, GROUPS
        )  # fmt: skip
        ids = Sweeper(model, rows).left_out_ids(np.arange(len(rows.observations)), len(rows))
        theirs = LEAVE_ONE_OUT.score(model, rows, rows.observations, ids)
        ours = left_out_score(AllRows(model, rows, differentiate=True))
        np.testing.assert_allclose(ours.values, theirs.values, atol=1e-10)
        weights = np.random.default_rng(0).random(len(ours.values))
        (by, _), (expected, _) = ours.slopes(weights), theirs.slopes(weights)
        assert by.keys() == expected.keys()
        for name in by:
            np.testing.assert_allclose(by[name], expected[name], rtol=1e-7, atol=1e-8, err_msg=f"{word}, {name}")


@pytest.mark.parametrize("several", [False, True], ids=["shared-noise", "own-noise"])
@pytest.mark.parametrize("n", [3, 64, 100, 150, 192])
def test_a_factor_that_was_extended_has_the_bits_of_a_new_one(n, several):
    rng = np.random.default_rng(0)
    X, t = rng.standard_normal((200, 3)), rng.standard_normal((200, 2))
    v = rng.uniform(0.05, 0.2, (200, 2 if several else 1))
    constants = (KERNELS["matern52"], np.zeros(3), np.zeros(0))
    new, query = Whole(*constants, X, t, v), rng.standard_normal((9, 3))
    short = Whole(*constants, X[:n], t[:n], v[:n])
    longer = Whole(*constants, X, t, v, earlier=short)
    for one, other in zip(new.predict(query), longer.predict(query), strict=True):
        assert np.array_equal(one, other)
    for one, other in zip(new.left_out(), longer.left_out(), strict=True):
        assert np.array_equal(one, other)
    reference = Whole(*constants, X, t, v, differentiate=True).left_out()  # factorised at once
    np.testing.assert_allclose(longer.left_out().mean, reference.mean, atol=1e-10)


def test_a_factor_that_cannot_be_extended_is_made_anew():
    X, v = np.random.default_rng(0).standard_normal((130, 2)), np.full((130, 1), 0.1)
    v[129] = -0.95  # not positive definite any more
    t = np.sin(X[:, :1])
    constants = (KERNELS["matern32"], np.zeros(2), np.zeros(0))
    longer = Whole(*constants, X, t, v, earlier=Whole(*constants, X[:100], t[:100], v[:100]))
    new = Whole(*constants, X, t, v)
    assert longer.jittered > 0
    assert np.array_equal(longer.predict(X).mean, new.predict(X).mean)
    at_once = Whole(*constants, X, t, v, differentiate=True)  # with as much jitter, of the same matrix
    assert at_once.jittered == new.jittered
    np.testing.assert_allclose(new.predict(X).mean, at_once.predict(X).mean, atol=1e-8)
    np.testing.assert_allclose(new.left_out().variance, at_once.left_out().variance, atol=1e-8)


def test_an_updated_model_predicts_as_the_loaded_one(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300)
    model = GPRegressor(max_steps=20, random_state=0).fit(X[:200], y[:200])
    model.predict(X)  # the factor is there
    model.update(X[200:290], y[200:290])
    model.predict(X)
    model.update(X[290:], y[290:])
    assert model.k_ == 299
    with pytest.warns(UserWarning, match="training rows"):
        model.save(tmp_path / "model.nearfield")
    loaded = GPRegressor.load(tmp_path / "model.nearfield")
    assert np.array_equal(model.predict(X), loaded.predict(X))
    assert np.array_equal(model.loo_.mean, loaded.loo_.mean)
