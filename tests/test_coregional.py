"""Several outputs that mix latent functions: against torch, dense solves, finite differences and `condition`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from test_conditional import NAMES, assert_close, assert_same_bits, covariance, exactness, fewer, some

from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.conditional.coregional import ConditionedOutputs, condition_outputs
from nearfield.kernels import KERNELS, find_kernel, log_shapes


class Case(NamedTuple):
    log_lengths: np.ndarray  # (Q, d)
    log_shape: np.ndarray  # (p,)
    mixing: np.ndarray  # (P, Q)
    neighbourhood: Neighbourhood


def make(name: str, P: int, Q: int, k: int, d: int, b: int = 5) -> Case:
    """One row has half of its neighbours, one has none, and one has a neighbour at its own place."""
    rng = np.random.default_rng(0)
    n = b + k + 5
    X = rng.standard_normal((n, d))
    ids = np.stack([rng.permutation(np.arange(b, n))[:k] for _ in range(b)])
    ids[1, k // 2 :] = -1
    ids[2] = -1
    X[ids[0, 0]] = X[0]
    lengths, mixing = rng.normal(0.5 * np.log(max(1, d / 3)), 0.3, (Q, d)), rng.standard_normal((P, Q))
    targets, noises = rng.standard_normal((b, k, P)), rng.uniform(0.05, 0.3, (b, k, P))
    return Case(lengths, log_shapes(KERNELS[name]), mixing, Neighbourhood(X[:b], X, ids, targets, noises))


def parts(m: ConditionedOutputs) -> list[np.ndarray]:
    return [m.mean, m.covariance, m.quad]


def moments(name: str, case: Case, ks=None) -> list[np.ndarray]:
    return parts(condition_outputs(find_kernel(name), *case, ks))


def incoming(n: Neighbourhood, variances: bool = False) -> list[np.ndarray]:
    """Gradients by mean and covariance, not symmetric, or by the variances alone; every one different."""
    rng = np.random.default_rng(1)
    b, _, P = n.targets.shape
    return [rng.standard_normal((b, P)), rng.standard_normal((b, P) if variances else (b, P, P))]


def moments_and_slopes(name: str, case: Case, variances: bool = False) -> list[np.ndarray]:
    m = condition_outputs(find_kernel(name), *case, differentiate=True)
    return [*parts(m), *m.slopes(*incoming(case.neighbourhood, variances))]


def by_torch(name: str, case: Case, variances: bool = False) -> list[np.ndarray]:
    by_mean, by_covariance = incoming(case.neighbourhood, variances)
    if variances:
        by_covariance = by_covariance[:, :, None] * np.eye(len(case.mixing))
    found = oracle.output_moments_and_slopes(name, *case, by_mean, by_covariance)
    return [*found[0], *found[1]]


def masked(case: Case, gone: np.ndarray, target: float = np.nan) -> Case:
    """Without the observations `gone` (b, k, P)."""
    n = case.neighbourhood
    n = replace(n, targets=np.where(gone, target, n.targets), noises=np.where(gone, np.inf, n.noises))
    return case._replace(neighbourhood=n)


def dense(name: str, case: Case) -> list[np.ndarray]:
    """Mean, covariance and quad by dense solves, unobserved ones deleted; quad from what each neighbour adds."""
    n, W = case.neighbourhood, case.mixing
    outputs = len(W)
    found: list[list[np.ndarray]] = [[], [], []]
    for r, (query, ids) in enumerate(zip(n.query, n.ids, strict=True)):
        near = ids[ids >= 0]
        where = np.concatenate([n.rows[near], query[None]])
        joint = sum(
            np.kron(covariance(name, where, where, case.log_lengths[q]), np.outer(W[:, q], W[:, q]))
            for q in range(W.shape[1])
        )
        prior, count = joint[-outputs:, -outputs:], len(near) * outputs
        noises = n.noises[r, : len(near)].ravel()
        used = np.isfinite(noises)
        K = joint[:count, :count] + np.diag(np.where(used, noises, 0.0))
        cross, t = joint[:count, count:], np.where(used, n.targets[r, : len(near)].ravel(), 0.0)

        def given(rows, right, used=used, K=K):
            """Solve with the observations before `rows`, deleted ones apart."""
            keep = np.flatnonzero(used[:rows])
            return keep, np.linalg.solve(K[np.ix_(keep, keep)], right[keep])

        keep, solved = given(count, np.column_stack([cross, t]))
        found[0].append(cross[keep].T @ solved[:, -1])
        found[1].append(prior - cross[keep].T @ solved[:, :-1])
        quad = np.zeros(outputs)
        for i in range(len(near)):
            own = slice(i * outputs, (i + 1) * outputs)
            keep, solved = given(own.start, np.column_stack([K[:, own], t]))
            e = t[own] - K[keep, own].T @ solved[:, -1]
            variance = np.diag(K[own, own] - K[keep, own].T @ solved[:, :-1])
            quad += np.where(used[own], e**2 / variance, 0)
        found[2].append(quad)
    return [np.array(x)[:, None] for x in found]


SIZES = pytest.mark.parametrize(
    ("P", "Q", "k", "d"),
    [
        (1, 1, 6, 2),
        (1, 3, 20, 1),
        (2, 2, 33, 4),
        (3, 1, 5, 3),
        (3, 3, 40, 6),
        (4, 5, 8, 2),
        (7, 7, 16, 5),
        (8, 2, 9, 3),
        (14, 14, 6, 21),
        (17, 3, 4, 9),
        (2, 2, 9, 70),
    ],
)


@SIZES
@NAMES
def test_moments_equal_dense_solves(name, P, Q, k, d):
    case = make(name, P, Q, k, d)
    assert_close(moments(name, case), dense(name, case), 1e-7)


@SIZES
@NAMES
@pytest.mark.parametrize("variances", [False, True], ids=["covariance", "variances"])
def test_moments_and_slopes_equal_torch_autograd(name, variances, P, Q, k, d):
    case = make(name, P, Q, k, d)
    assert_close(moments_and_slopes(name, case, variances), by_torch(name, case, variances), exactness(name))


@NAMES
def test_slopes_equal_finite_differences(name):
    case, step = make(name, 2, 3, 4, 2, b=3), 1e-5
    n, kernel = case.neighbourhood, find_kernel(name)
    weights = incoming(n)
    given = [*case[:3], n.targets, n.noises]

    def value(lengths, shape, mixing, targets, noises):
        m = condition_outputs(kernel, lengths, shape, mixing, replace(n, targets=targets, noises=noises))
        return (m.mean[:, 0] * weights[0]).sum() + (m.covariance[:, 0] * weights[1]).sum()

    found = condition_outputs(kernel, *case, differentiate=True).slopes(*weights)
    for i, (x, slope) in enumerate(zip(given, found, strict=True)):
        for at in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[at] += sign * step
                ends.append(value(*given[:i], moved, *given[i + 1 :]))
            assert slope[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-6)


def test_slopes_by_variances_alone_are_those_by_a_diagonal():
    case = make("rational_quadratic", 5, 3, 9, 2)
    by_mean, by_variance = incoming(case.neighbourhood, variances=True)
    m = condition_outputs(find_kernel("rational_quadratic"), *case, differentiate=True)
    assert_close(m.slopes(by_mean, by_variance), m.slopes(by_mean, by_variance[:, :, None] * np.eye(5)), 1e-12)


@NAMES
def test_diagonal_mixing_is_independent_models(name):
    case = make(name, 3, 3, 12, 2)
    scales = np.array([0.7, 1.3, 2.0])
    n = case.neighbourhood
    mean, covariance, quad = moments(name, case._replace(mixing=np.diag(scales)))
    for p, scale in enumerate(scales):
        one = replace(n, targets=n.targets[..., p : p + 1], noises=n.noises[..., p : p + 1] / scale**2)
        m = condition(find_kernel(name), case.log_lengths[p], case.log_shape, one)
        found = [mean[..., p : p + 1], covariance[..., p, p : p + 1], quad[..., p : p + 1]]
        assert_close(found, [m.mean, scale**2 * m.variance, m.quad / scale**2], 1e-11)
        np.testing.assert_allclose(np.delete(covariance[:, 0, p], p, axis=1), 0, atol=1e-12)


def test_one_output_and_one_latent_function_is_condition():
    name = "rational_quadratic"
    kernel = find_kernel(name)
    case = make(name, 1, 1, 11, 3)
    n, w = case.neighbourhood, case.mixing.item()
    by_mean, by_variance = incoming(n, variances=True)
    m = condition_outputs(kernel, *case, differentiate=True)
    one = condition(kernel, case.log_lengths[0], case.log_shape, replace(n, noises=n.noises / w**2), differentiate=True)
    assert_close([m.mean, m.covariance[..., 0], m.quad], [one.mean, w**2 * one.variance, one.quad / w**2], 1e-12)
    mixed, single = m.slopes(by_mean, by_variance), one.slopes(by_mean, w**2 * by_variance)
    expected = [single.log_lengths[None], single.log_shape, single.targets, single.noises / w**2]
    assert_close([mixed.log_lengths, mixed.log_shape, mixed.targets, mixed.noises], expected, 1e-12)
    # the mixing scales the variance, and divides the noises
    by_mixing = (2 / w) * ((by_variance * m.covariance[:, 0, 0]).sum() - (mixed.noises * n.noises).sum())
    assert mixed.mixing.item() == pytest.approx(by_mixing, rel=1e-10)


@NAMES
@pytest.mark.parametrize(("P", "Q", "k"), [(3, 2, 7), (1, 2, 12), (9, 4, 5)])
def test_targets_not_observed_are_as_if_deleted(name, P, Q, k):
    case = make(name, P, Q, k, 2)
    gone = np.random.default_rng(4).random(case.neighbourhood.targets.shape) < 0.4
    gone[3, 2] = True  # nothing of this neighbour
    gone[4, :, P // 2] = True  # nothing of this output
    gone[0] = True  # nothing at all
    case = masked(case, gone)
    assert_close(moments(name, case), dense(name, case), 1e-7)
    for variances in (False, True):
        found = moments_and_slopes(name, case, variances)
        assert_close(found, by_torch(name, masked(case, gone, 0.0), variances), exactness(name))
        assert not found[6][gone].any()
        assert not found[7][gone].any()


def test_permuted_outputs_have_permuted_moments():
    case = make("matern32", 5, 3, 9, 2)
    n, order = case.neighbourhood, [3, 0, 4, 1, 2]
    permuted = case._replace(
        mixing=case.mixing[order],
        neighbourhood=replace(n, targets=n.targets[..., order], noises=n.noises[..., order]),
    )
    mean, covariance, quad = moments("matern32", case)
    expected = [mean[..., order], covariance[..., order, :][..., order], quad[..., order]]
    assert_close(moments("matern32", permuted), expected, 1e-11)
    reordered = case._replace(mixing=case.mixing[:, [2, 0, 1]], log_lengths=case.log_lengths[[2, 0, 1]])
    assert_close(moments("matern32", reordered), [mean, covariance, quad], 1e-11)


@pytest.mark.parametrize("P", [1, 3, 9])
def test_nested_moments_equal_conditioning_on_fewer_neighbours(P):
    case = make("matern52", P, 2, 11, 3)
    ks = np.array([0, 1, 2, 2, 7, 8, 11, 30])
    nested = moments("matern52", case, ks)
    assert [x.shape for x in nested] == [(5, 8, P), (5, 8, P, P), (5, 8, P)]
    for i, k in enumerate(ks):
        shorter = case._replace(neighbourhood=fewer(case.neighbourhood, k))
        assert_close([x[:, i : i + 1] for x in nested], moments("matern52", shorter), 1e-12)
    with pytest.raises(ValueError, match="ascending order"):
        moments("matern52", case, np.array([3, 2]))


def test_without_neighbours_the_prior_is_left():
    case = make("rbf", 3, 2, 6, 2)
    mean, covariance, quad = moments("rbf", case)  # row 2 has none
    assert not mean[2].any()
    assert not quad[2].any()
    np.testing.assert_allclose(covariance[2, 0], case.mixing @ case.mixing.T, rtol=1e-14)
    alone = case._replace(neighbourhood=some(case.neighbourhood, slice(2, 3)))
    m = condition_outputs(find_kernel("rbf"), *alone, differentiate=True)
    slopes = m.slopes(*incoming(alone.neighbourhood))
    assert slopes.mixing.any()
    assert not any(x.any() for x in (slopes.log_lengths, slopes.targets, slopes.noises))


@pytest.mark.parametrize("variances", [False, True], ids=["covariance", "variances"])
def test_same_bits_for_any_number_of_threads_and_any_split(monkeypatch, variances):
    case = make("matern52", 3, 4, 13, 5, b=70)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(moments_and_slopes("matern52", case, variances))
    for other in results[1:]:
        assert_same_bits(other, results[0])
    for rows in (slice(0, 1), slice(23, 61)):
        piece = case._replace(neighbourhood=some(case.neighbourhood, rows))
        assert_same_bits(moments("matern52", piece), [x[rows] for x in results[0][:3]])


def test_jitter_is_counted_by_rows():
    X = np.zeros((12, 2))  # all rows equal and next to no noise: a matrix of rank two
    noises = np.full((2, 11, 3), 1e-30)
    noises[1] = 0.1
    n = Neighbourhood(X[:2], X, np.tile(np.arange(1, 12), (2, 1)), np.ones((2, 11, 3)), noises)
    case = Case(np.zeros((2, 2)), np.zeros(0), np.array([[1.0, 2.0], [0.5, -1.0], [30.0, 3.0]]), n)
    m = condition_outputs(find_kernel("rbf"), *case)
    assert m.jittered == 1
    found = moments_and_slopes("rbf", case)
    assert all(np.isfinite(x).all() for x in found)
    assert found[1][0, 0].diagonal().max() < 1e-4


def test_a_row_that_is_not_finite_leaves_the_others_alone():
    case = make("matern32", 3, 2, 9, 2)
    expected = moments_and_slopes("matern32", case)
    case.neighbourhood.noises[0, 0, 0] = np.nan
    found = moments_and_slopes("matern32", case)
    assert np.isnan(found[0][0]).any()
    rows = (0, 1, 2, 6, 7)  # moments, and gradients by targets and noises
    assert_same_bits([found[i][1:] for i in rows], [expected[i][1:] for i in rows])


def test_what_is_kept_for_the_gradient_is_linear_in_k():
    case = make("matern52", 4, 2, 10, 3)
    m = condition_outputs(find_kernel("matern52"), *case, differentiate=True)
    assert sum(x.size for x in m._kept) == 5 * 10 * 4 * (4 + 1)


def test_what_does_not_fit_is_refused():
    kernel = find_kernel("rbf")
    case = make("rbf", 3, 2, 6, 2)
    n = case.neighbourhood
    with pytest.raises(ValueError, match=r"targets \(5, 6, 2\) and noises \(5, 6, 3\) do not fit neighbours \(5, 6\)"):
        condition_outputs(kernel, *case._replace(neighbourhood=replace(n, targets=n.targets[..., :2])))
    with pytest.raises(ValueError, match=r"log length scales \(1, 2\) .* expected \(Q, d\)"):
        condition_outputs(kernel, *case._replace(log_lengths=case.log_lengths[:1]))
    with pytest.raises(ValueError, match=r"do not fit 1 length scales"):
        condition_outputs(kernel, *case._replace(log_lengths=case.log_lengths[:, :1]))
    m = condition_outputs(kernel, *case, differentiate=True)
    with pytest.raises(ValueError, match=r"by covariance \(5, 3, 2\) do not fit 3 outputs"):
        m.slopes(np.ones((5, 3)), np.ones((5, 3, 2)))
    with pytest.raises(RuntimeError, match="differentiate=True"):
        condition_outputs(kernel, *case).slopes(*incoming(n))
    n.ids[0, 3] = -1
    with pytest.raises(ValueError, match="the neighbours of row 0 have a -1 before the last of them"):
        condition_outputs(kernel, *case)
    n.ids[0, 3] = 16
    with pytest.raises(IndexError, match="neighbour 16 does not exist: there are 16 rows"):
        condition_outputs(kernel, *case)
    with pytest.raises(IndexError, match="neighbour 16"):
        m.slopes(*incoming(n))
