"""Coordinates that are sums of features: against the sums themselves, torch autograd and finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from test_conditional import NAMES, assert_close, assert_same_bits, exactness, incoming, parts, some
from test_joint import densities_by_torch

from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.conditional.coregional import condition_outputs
from nearfield.conditional.joint import joint_log_density
from nearfield.conditional.whole import Whole
from nearfield.kernels import KERNELS, find_kernel, log_shapes

OWNERS = {1: [0], 3: [1, 1, 0], 9: [8, 0, 3, 3, 8], 21: list(range(20, -1, -1)) * 2}
"""By the number of coordinates: some have one feature, some two, some three."""

COORDINATES = pytest.mark.parametrize("d", OWNERS)
LATENTS = pytest.mark.parametrize(
    ("latents", "factors"), [(1, 1), (3, 1), (3, 3), (9, 1)], ids=["one", "shared noise", "own noises", "nine"]
)


def made(d: int, b: int = 6, k: int = 13, latents: int = 1, factors: int = 1) -> tuple[np.ndarray, Neighbourhood]:
    """Log lengths (F,) and neighbourhoods: one with five neighbours missing, one with none."""
    rng = np.random.default_rng(0)
    owners = np.array(OWNERS[d])
    n, count = b + k + 9, d + len(owners)
    X = rng.standard_normal((n, count))
    ids = np.stack([rng.permutation(np.arange(b, n))[:k] for _ in range(b)])
    ids[1, k - 5 :] = -1
    ids[2] = -1
    targets, noises = rng.standard_normal((b, k, latents)), rng.uniform(0.05, 0.2, (b, k, factors))
    log_lengths = rng.normal(0.5 * np.log(count), 0.3, count)
    return log_lengths, Neighbourhood(X[:b], X, ids, targets, noises, owners)


def added_up(log_lengths: np.ndarray, owners: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Scaled coordinates (.., d) of features (.., d + w), by hand."""
    scaled, d = features / np.exp(log_lengths), features.shape[-1] - len(owners)
    found = scaled[..., :d].copy()
    for i, e in enumerate(owners):
        found[..., e] += scaled[..., d + i]
    return found


def summed(log_lengths: np.ndarray, n: Neighbourhood) -> Neighbourhood:
    """The same neighbourhood with its coordinates, for length scales of one."""
    query, rows = (added_up(log_lengths, n.owners, x) for x in (n.query, n.rows))
    return Neighbourhood(query, rows, n.ids, n.targets, n.noises)


def differences(function, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Slopes of a function of x, by central differences."""
    found = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        off = np.zeros(x.shape)
        off[place] = step
        found[place] = (function(x + off) - function(x - off)) / (2 * step)
    return found


# --- latent functions apart -----------------------------------------------------------------------------------------


@NAMES
@COORDINATES
@LATENTS
def test_moments_are_those_of_added_features(name, d, latents, factors):
    log_lengths, n = made(d, latents=latents, factors=factors)
    kernel = find_kernel(name)
    shape = log_shapes(kernel)
    by_hand = summed(log_lengths, n)
    ks = np.array([0, 3, 8, 13])
    for asked in (None, ks):
        found, expected = (
            parts(condition(kernel, lengths, shape, near, asked))
            for lengths, near in ((log_lengths, n), (np.zeros(d), by_hand))
        )
        assert_close(found, expected, 1e-12)


@NAMES
@COORDINATES
@LATENTS
@pytest.mark.parametrize("with_quad", [False, True])
def test_slopes_equal_torch_autograd(name, d, latents, factors, with_quad):
    log_lengths, n = made(d, latents=latents, factors=factors)
    kernel = find_kernel(name)
    shape, weights = log_shapes(kernel) + 0.2, incoming(n, with_quad)
    m = condition(kernel, log_lengths, shape, n, differentiate=True)
    by = m.slopes(*weights)
    assert by.log_lengths.shape == log_lengths.shape
    expected = oracle.moments_and_slopes(name, log_lengths, shape, n, *weights)
    assert_close([*parts(m), *by], [*expected[0], *expected[1]], 1e-10)


@NAMES
@LATENTS
@pytest.mark.parametrize("k", [1, 7, 8, 40])
def test_slopes_equal_torch_autograd_for_any_number_of_neighbours(name, latents, factors, k):
    log_lengths, n = made(9, k=max(k, 5), latents=latents, factors=factors)
    n = replace(n, ids=n.ids[:, :k], targets=n.targets[:, :k], noises=n.noises[:, :k])
    kernel = find_kernel(name)
    shape, weights = log_shapes(kernel), incoming(n, False)
    m = condition(kernel, log_lengths, shape, n, differentiate=True)
    expected = oracle.moments_and_slopes(name, log_lengths, shape, n, *weights)
    assert_close([*parts(m), *m.slopes(*weights)], [*expected[0], *expected[1]], 1e-10)


@NAMES
@LATENTS
@pytest.mark.parametrize("with_quad", [False, True])
def test_slopes_equal_torch_autograd_where_rows_are_equal(name, latents, factors, with_quad):
    """Neighbours at the same place, and one at the place of the query."""
    log_lengths, n = made(3, latents=latents, factors=factors)
    n.rows[n.ids[0, 3]] = n.rows[n.ids[0, 7]]
    n.rows[n.ids[3, 0]] = n.query[3]
    kernel = find_kernel(name)
    shape, weights = log_shapes(kernel), incoming(n, with_quad)
    m = condition(kernel, log_lengths, shape, n, differentiate=True)
    expected = oracle.moments_and_slopes(name, log_lengths, shape, n, *weights)
    assert_close([*parts(m), *m.slopes(*weights)], [*expected[0], *expected[1]], exactness(name))


@NAMES
def test_slopes_equal_finite_differences(name):
    log_lengths, n = made(3, b=4, k=9)
    kernel = find_kernel(name)
    shape, weights = log_shapes(kernel), incoming(n)

    def value(lengths):
        m = condition(kernel, lengths, shape, n)
        return sum((x[:, 0] * w).sum() for x, w in zip(parts(m), weights, strict=True))

    by = condition(kernel, log_lengths, shape, n, differentiate=True).slopes(*weights)
    np.testing.assert_allclose(by.log_lengths, differences(value, log_lengths), rtol=1e-6, atol=1e-6)


def test_a_feature_that_does_not_vary_changes_nothing():
    log_lengths, n = made(3)
    kernel, weights = find_kernel("matern52"), incoming(n)
    for x in (n.query, n.rows):
        x[:, 3:] = 4.0
    plain = Neighbourhood(n.query[:, :3], n.rows[:, :3], n.ids, n.targets, n.noises)
    found = condition(kernel, log_lengths, np.zeros(0), n, differentiate=True)
    expected = condition(kernel, log_lengths[:3], np.zeros(0), plain, differentiate=True)
    assert_close(parts(found), parts(expected), 1e-12)
    by = found.slopes(*weights).log_lengths
    assert_close([by[:3]], [expected.slopes(*weights).log_lengths], 1e-11)
    np.testing.assert_allclose(by[3:], 0, atol=1e-12)


@LATENTS
@pytest.mark.parametrize("d", [3, 9])
def test_the_same_bits_for_any_number_of_threads_and_any_split(monkeypatch, d, latents, factors):
    log_lengths, n = made(d, b=70, k=21, latents=latents, factors=factors)
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        m = condition(find_kernel("auto"), log_lengths, np.array([1.0]), n, differentiate=True)
        results.append([*parts(m), *m.slopes(*incoming(n, False)), *m.slopes(*incoming(n))])
    for other in results[1:]:
        assert_same_bits(other, results[0])
    piece = condition(find_kernel("auto"), log_lengths, np.array([1.0]), some(n, slice(11, 40)))
    assert_same_bits(parts(piece), [x[11:40] for x in results[0][:3]])


# --- mixed outputs --------------------------------------------------------------------------------------------------


@NAMES
@COORDINATES
@pytest.mark.parametrize(("P", "Q"), [(1, 2), (3, 2), (4, 5)])
def test_mixed_outputs_equal_torch_autograd_and_added_features(name, d, P, Q):
    rng = np.random.default_rng(3)
    lengths, n = made(d, k=7, latents=P, factors=P)
    lengths, mixing = lengths + 0.2 * rng.standard_normal((Q, len(lengths))), rng.standard_normal((P, Q))
    kernel = find_kernel(name)
    shape = log_shapes(kernel) - 0.3
    by_mean, by_covariance = rng.standard_normal((len(n.query), P)), rng.standard_normal((len(n.query), P, P))
    m = condition_outputs(kernel, lengths, shape, mixing, n, differentiate=True)
    by = m.slopes(by_mean, by_covariance)
    assert by.log_lengths.shape == lengths.shape
    expected = oracle.output_moments_and_slopes(name, lengths, shape, mixing, n, by_mean, by_covariance)
    assert_close([m.mean, m.covariance, m.quad, *by], [*expected[0], *expected[1]], 1e-10)
    one = condition_outputs(kernel, lengths[:1], shape, mixing[:, :1], n)
    by_hand = condition_outputs(kernel, np.zeros((1, d)), shape, mixing[:, :1], summed(lengths[0], n))
    assert_close([one.mean, one.covariance, one.quad], [by_hand.mean, by_hand.covariance, by_hand.quad], 1e-11)


def test_mixed_outputs_have_the_same_bits_for_any_number_of_threads(monkeypatch):
    lengths, n = made(9, b=50, k=7, latents=3, factors=3)
    rng = np.random.default_rng(3)
    lengths, mixing = lengths + 0.2 * rng.standard_normal((2, len(lengths))), rng.standard_normal((3, 2))
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        m = condition_outputs(find_kernel("auto"), lengths, np.array([1.0]), mixing, n, differentiate=True)
        results.append([m.mean, m.covariance, m.quad, *m.slopes(np.ones((50, 3)), np.ones((50, 3, 3)))])
    for other in results[1:]:
        assert_same_bits(other, results[0])


# --- all rows at once -----------------------------------------------------------------------------------------------


def all_rows(d: int, factors: int, n: int = 30):
    """Log lengths, features, targets, noises and owners; with noises of their own, two targets are missing."""
    rng = np.random.default_rng(1)
    owners = np.array(OWNERS[d])
    X, t = rng.standard_normal((n, d + len(owners))), rng.standard_normal((n, 2))
    v = rng.uniform(0.05, 0.3, (n, factors))
    if factors > 1:
        v[3, 0] = v[7, 1] = np.inf
    return rng.normal(0.5 * np.log(X.shape[1]), 0.3, X.shape[1]), X, t, v, owners


@NAMES
@COORDINATES
@pytest.mark.parametrize("factors", [1, 2], ids=["shared noise", "own noises"])
def test_all_rows_at_once_are_each_given_all_others(name, d, factors):
    log_lengths, X, t, v, owners = all_rows(d, factors)
    kernel, n = find_kernel(name), len(X)
    shape, rng = log_shapes(kernel), np.random.default_rng(2)
    whole = Whole(kernel, log_lengths, shape, X, t, v, owners, differentiate=True)
    ids = np.array([np.delete(np.arange(n), i) for i in range(n)])
    m = condition(kernel, log_lengths, shape, Neighbourhood(X, X, ids, t[ids], v[ids], owners), differentiate=True)
    found = whole.left_out()
    assert_close(list(found), [x[:, 0] for x in parts(m)], 1e-10)
    by_mean = rng.standard_normal(t.shape) * np.isfinite(np.broadcast_to(v, t.shape))
    by_variance = rng.standard_normal(v.shape) * np.isfinite(v)
    ours, theirs = whole.slopes(by_mean, by_variance), m.slopes(by_mean, by_variance)
    assert_close([ours.log_lengths, ours.log_shape], [theirs.log_lengths, theirs.log_shape], 1e-9)
    query = rng.standard_normal((11, X.shape[1]))
    points, new = added_up(log_lengths, owners, X), added_up(log_lengths, owners, query)
    by_hand = Whole(kernel, np.zeros(d), shape, points, t, v)
    assert_close(list(whole.predict(query)), list(by_hand.predict(new)), 1e-10)
    assert_close([whole.quad, whole.log_det], [by_hand.quad, by_hand.log_det], 1e-10)


@NAMES
def test_slopes_of_the_joint_density_of_all_rows_equal_finite_differences(name):
    log_lengths, X, t, v, owners = all_rows(3, 1)
    kernel = find_kernel(name)
    shape = log_shapes(kernel)

    def value(lengths):
        whole = Whole(kernel, lengths, shape, X, t, v, owners)
        return 0.3 * whole.log_det[0] + whole.quad @ [1.0, 2.0]

    whole = Whole(kernel, log_lengths, shape, X, t, v, owners, differentiate=True)
    by = whole.slopes(np.zeros(t.shape), np.zeros(v.shape), np.array([0.3]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(by.log_lengths, differences(value, log_lengths), rtol=1e-6, atol=1e-6)


def test_all_rows_at_once_have_the_same_bits_for_any_number_of_threads(monkeypatch):
    log_lengths, X, t, v, owners = all_rows(9, 1, n=150)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        whole = Whole(KERNELS["auto"], log_lengths, np.array([1.0]), X, t, v, owners, differentiate=True)
        left_out = whole.left_out()
        found.append([*left_out, *whole.slopes(left_out.mean, left_out.variance), *whole.predict(X + 0.1)])
    for other in found[1:]:
        assert_same_bits(other, found[0])


# --- the joint density ----------------------------------------------------------------------------------------------


@NAMES
@COORDINATES
def test_joint_densities_equal_torch_autograd_and_added_features(name, d):
    log_lengths, n = made(d)
    kernel, log_scale = find_kernel(name), 0.2
    shape, targets, noises = log_shapes(kernel), n.targets[..., 0].copy(), n.noises[..., 0].copy()
    noises[3, 1] = np.inf
    given = (log_lengths, log_scale, shape)
    density, slopes = joint_log_density(kernel, *given, n.rows, n.ids, targets, noises, n.owners)
    by_hand, _ = joint_log_density(
        kernel, np.zeros(d), log_scale, shape, summed(log_lengths, n).rows, n.ids, targets, noises
    )  # fmt: skip
    assert_close([density], [by_hand], 1e-11)
    weights = np.random.default_rng(2).standard_normal(len(n.ids))
    leaves = oracle.leaves(*given, targets, noises)
    expected = densities_by_torch(name, leaves, n.rows, n.ids, n.owners)
    assert_close([density], [expected.detach().numpy()], 1e-10)
    by = torch.autograd.grad(expected @ torch.from_numpy(weights), leaves, allow_unused=True, materialize_grads=True)
    found = [weights @ slopes.log_lengths, np.asarray(weights @ slopes.log_scale), weights @ slopes.log_shape]
    found += [weights[:, None] * slopes.targets, weights[:, None] * slopes.noises]
    assert_close(found, [x.numpy() for x in by], 1e-10)


# --- what does not fit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [[0, 3, 1], [0, -1, 1], [10**9, 0, 0]])
def test_owners_that_are_no_coordinates_are_refused(wrong):
    log_lengths, n = made(3)
    kernel, none, owners = find_kernel("rbf"), np.zeros(0), np.array(wrong)
    one = n.targets[..., 0], n.noises[..., 0]
    _, X, t, v, _ = all_rows(3, 1)
    for call in (
        lambda: condition(kernel, log_lengths, none, replace(n, owners=owners)),
        lambda: condition_outputs(kernel, log_lengths[None], none, np.ones((1, 1)), replace(n, owners=owners)),
        lambda: Whole(kernel, log_lengths, none, X, t, v, owners),
        lambda: joint_log_density(kernel, log_lengths, 0.0, none, n.rows, n.ids, *one, owners),
    ):
        with pytest.raises(ValueError, match="are no coordinates: there are 3"):
            call()


def test_more_owners_than_features_are_refused():
    log_lengths, n = made(3)
    with pytest.raises(ValueError, match="are no coordinates"):
        condition(find_kernel("rbf"), log_lengths, np.zeros(0), replace(n, owners=np.zeros(6, dtype=np.int64)))
