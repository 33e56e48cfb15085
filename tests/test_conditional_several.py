"""Several latent functions that share neighbours and length scales: against torch, dense solves and one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
import pytest
from test_conditional import (
    NAMES,
    assert_close,
    assert_same_bits,
    dense,
    exactness,
    fewer,
    incoming,
    make,
    moments,
    moments_and_slopes,
    parts,
    some,
)

from nearfield._types import Neighbourhood
from nearfield.conditional import condition
from nearfield.kernels import KERNELS, find_kernel, log_shapes

SHARED_OR_OWN = pytest.mark.parametrize("own", [False, True], ids=["shared noise", "own noises"])


def several(latents: int, own: bool, **sizes) -> tuple[np.ndarray, Neighbourhood]:
    return make(latents=latents, factors=latents if own else 1, **sizes)


def alone(n: Neighbourhood, c: int) -> Neighbourhood:
    """Latent function c without the others."""
    f = c if n.noises.shape[2] > 1 else 0
    return replace(n, targets=n.targets[..., c : c + 1], noises=n.noises[..., f : f + 1])


@SHARED_OR_OWN
@NAMES
@pytest.mark.parametrize(("latents", "k"), [(1, 8), (3, 11), (7, 16), (8, 9), (9, 17), (26, 12)])
def test_moments_equal_dense_solves(own, name, latents, k):
    log_lengths, n = several(latents, own, k=k)
    assert_close(moments(name, log_lengths, n), dense(name, log_lengths, n), 1e-7)


@NAMES
@SHARED_OR_OWN
@pytest.mark.parametrize("with_quad", [False, True])
@pytest.mark.parametrize(
    ("latents", "k", "d"),
    [(2, 5, 1), (3, 33, 8), (7, 64, 5), (9, 24, 13), (26, 16, 3), (3, 40, 104), (2, 17, 61)],
)
def test_moments_and_slopes_equal_torch_autograd(name, own, with_quad, latents, k, d):
    log_lengths, n = several(latents, own, n=200, b=12, k=k, d=d)
    log_lengths += 0.5 * np.log(d)
    expected = oracle.moments_and_slopes(name, log_lengths, log_shapes(KERNELS[name]), n, *incoming(n, with_quad))
    found = moments_and_slopes(name, log_lengths, n, with_quad)
    assert_close(found, [*expected[0], *expected[1]], exactness(name))


@SHARED_OR_OWN
def test_each_latent_function_is_what_it_is_alone(own):
    log_lengths, n = several(9, own, k=20)
    mean, variance, quad = moments("matern32", log_lengths, n)
    for c in range(9):
        f = c if own else 0
        found = [mean[..., c : c + 1], variance[..., f : f + 1], quad[..., c : c + 1]]
        assert_close(found, moments("matern32", log_lengths, alone(n, c)), 1e-12)


def test_equal_noises_may_be_shared_or_not():
    """Latent functions that share the noises, and the same with the noises repeated for each."""
    log_lengths, n = several(3, False)
    weights = incoming(n)
    kernel, shape = find_kernel("rational_quadratic"), np.array([0.3])
    repeated = replace(n, noises=np.repeat(n.noises, 3, axis=2))
    shared = condition(kernel, log_lengths, shape, n, differentiate=True)
    apart = condition(kernel, log_lengths, shape, repeated, differentiate=True)
    assert_close(
        [apart.mean, apart.variance, apart.quad], [shared.mean, shared.variance[..., [0] * 3], shared.quad], 1e-12
    )
    one = shared.slopes(*weights)
    each = apart.slopes(weights[0], np.repeat(weights[1] / 3, 3, axis=1), weights[2])
    assert_close(each[:3], one[:3], 1e-12)
    assert_close([each.noises.sum(axis=2, keepdims=True)], [one.noises], 1e-12)


@SHARED_OR_OWN
@pytest.mark.parametrize("latents", [3, 9])
def test_targets_not_observed_are_as_if_deleted(own, latents):
    """For a single latent function where each has noises of its own, or else for all."""
    log_lengths, n = several(latents, own, k=14)
    gone = np.random.default_rng(4).random(n.noises.shape) < 0.4
    gone[0, :, 0] = True  # nothing is known to this one
    of_targets = np.broadcast_to(gone, n.targets.shape)
    masked = replace(n, targets=np.where(of_targets, np.nan, n.targets), noises=np.where(gone, np.inf, n.noises))
    assert_close(moments("matern52", log_lengths, masked), dense("matern52", log_lengths, masked), 1e-7)
    for with_quad in (False, True):
        found = moments_and_slopes("matern52", log_lengths, masked, with_quad)
        weights, expected = incoming(n, with_quad), []
        if own:
            expected = [moments_and_slopes_of_one(log_lengths, alone(masked, c), weights, c) for c in range(latents)]
            assert_close([found[3]], [sum(x[3] for x in expected)], 1e-11)
            assert_close([found[5][..., c] for c in range(latents)], [x[5][..., 0] for x in expected], 1e-11)
        assert np.isfinite(np.concatenate([x.ravel() for x in found])).all()
        assert not found[5][of_targets].any()
        assert not found[6][gone].any()
        clean = replace(masked, targets=np.where(of_targets, 0.0, n.targets))
        moments_, slopes = oracle.moments_and_slopes("matern52", log_lengths, np.zeros(0), clean, *weights)
        assert_close(found, [*moments_, *slopes], 1e-10)


def moments_and_slopes_of_one(log_lengths, n: Neighbourhood, weights, c: int) -> list[np.ndarray]:
    m = condition(find_kernel("matern52"), log_lengths, np.zeros(0), n, differentiate=True)
    return [*parts(m), *m.slopes(*(None if w is None else w[:, c : c + 1] for w in weights))]


@SHARED_OR_OWN
@pytest.mark.parametrize("latents", [1, 3, 9])
def test_nested_moments_equal_conditioning_on_fewer_neighbours(own, latents):
    log_lengths, n = several(latents, own, k=19)
    ks = np.array([0, 1, 2, 2, 7, 8, 15, 19, 30])
    nested = moments("matern52", log_lengths, n, ks)
    factors = latents if own else 1
    assert [x.shape for x in nested] == [(5, 9, latents), (5, 9, factors), (5, 9, latents)]
    for i, k in enumerate(ks):
        assert_close([x[:, i : i + 1] for x in nested], moments("matern52", log_lengths, fewer(n, k)), 1e-11)


def test_nested_moments_for_some_k_are_those_for_every_k():
    log_lengths, n = make(k=12)
    every = moments("rbf", log_lengths, n, np.arange(13))
    assert_same_bits(moments("rbf", log_lengths, n, np.array([3, 12])), [x[:, [3, 12]] for x in every])
    assert_same_bits(moments("rbf", log_lengths, n), [x[:, [12]] for x in every])
    for wrong in ([3, 2], [-1, 2], []):
        with pytest.raises(ValueError, match="ascending order"):
            moments("rbf", log_lengths, n, np.array(wrong))


@SHARED_OR_OWN
def test_jitter_is_counted_by_rows(own):
    X = np.zeros((12, 2))  # all rows equal and no noise: a matrix of ones
    noises = np.zeros((2, 11, 3 if own else 1))
    noises[1] = 0.1
    if own:
        noises[0, :, 1] = 0.1  # this latent function needs none
    n = Neighbourhood(X[:2], X, np.tile(np.arange(1, 12), (2, 1)), np.ones((2, 11, 3)), noises)
    m = condition(find_kernel("rbf"), np.zeros(2), np.zeros(0), n)
    assert m.jittered == 1
    np.testing.assert_allclose(m.mean[0, 0, [0, 2]], 1, atol=1e-4)
    if own:
        assert m.mean[0, 0, 1] == pytest.approx(11 / 11.1, abs=1e-12)


@SHARED_OR_OWN
@pytest.mark.parametrize("d", [5, 70])
def test_same_bits_for_any_number_of_threads_and_any_split(monkeypatch, own, d):
    log_lengths, n = several(4, own, n=400, k=33, d=d, b=150)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(moments_and_slopes("matern52", log_lengths, n))
    for other in results[1:]:
        assert_same_bits(other, results[0])
    piece = moments("matern52", log_lengths, some(n, slice(31, 60)))
    assert_same_bits(piece, [x[31:60] for x in results[0][:3]])


def test_shapes_that_do_not_fit_are_refused():
    log_lengths, n = several(3, True)
    with pytest.raises(ValueError, match=r"noises \(5, 11, 2\) .* expected \(b, k, C\) and \(b, k, R\)"):
        moments("rbf", log_lengths, replace(n, noises=n.noises[..., :2]))
    with pytest.raises(ValueError, match=r"targets \(5, 10, 3\)"):
        moments("rbf", log_lengths, replace(n, targets=n.targets[:, :10]))
    with pytest.raises(ValueError, match=r"noises \(5, 11\)"):
        moments("rbf", log_lengths, replace(n, noises=n.noises[..., 0]))
    with pytest.raises(ValueError, match=r"do not fit 2 length scales"):
        moments("rbf", log_lengths[:2], n)
    with pytest.raises(ValueError, match=r"query \(4, 3\)"):
        moments("rbf", log_lengths, replace(n, query=n.query[:4]))
    with pytest.raises(ValueError, match=r"log shapes \(1,\) for a kernel that has 0"):
        condition(find_kernel("rbf"), log_lengths, np.zeros(1), n)
