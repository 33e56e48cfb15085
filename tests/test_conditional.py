"""The closed form: against torch autograd, dense solves, finite differences and exact leave-one-out."""

from __future__ import annotations

import multiprocessing
import threading
from dataclasses import replace

import numpy as np
import oracle
import pytest
import scipy.special

from nearfield._types import Neighbourhood
from nearfield.conditional import Conditioned, condition
from nearfield.kernels import KERNELS, find_kernel, log_shapes
from nearfield.neighbours import neighbour_table

NAMES = pytest.mark.parametrize("name", KERNELS)


def make(n=40, d=3, b=5, k=11, latents=1, factors=1, seed=0) -> tuple[np.ndarray, Neighbourhood]:
    """Log lengths and neighbourhoods: one with five neighbours missing, one with none, one with a duplicated row."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[3] = X[7]
    ids = neighbour_table(X, X[:b], k, np.arange(b)).ids
    ids[1, k - 5 :] = -1
    ids[2] = -1
    targets, noises = rng.standard_normal((b, k, latents)), rng.uniform(0.05, 0.2, (b, k, factors))
    return rng.normal(0, 0.3, d), Neighbourhood(X[:b], X, ids, targets, noises)


def some(n: Neighbourhood, rows: slice) -> Neighbourhood:
    return replace(n, query=n.query[rows], ids=n.ids[rows], targets=n.targets[rows], noises=n.noises[rows])


def fewer(n: Neighbourhood, k: int) -> Neighbourhood:
    return replace(n, ids=n.ids[:, :k], targets=n.targets[:, :k], noises=n.noises[:, :k])


def parts(m: Conditioned) -> list[np.ndarray]:
    return [m.mean, m.variance, m.quad]


def incoming(n: Neighbourhood, with_quad=True, seed=1) -> list[np.ndarray | None]:
    """Gradients by mean, variance and quad, every one different."""
    rng = np.random.default_rng(seed)
    (b, _, latents), factors = n.targets.shape, n.noises.shape[2]
    by_mean, by_variance, by_quad = (rng.standard_normal((b, last)) for last in (latents, factors, latents))
    return [by_mean, by_variance, by_quad if with_quad else None]


def moments_and_slopes(name: str, log_lengths, n: Neighbourhood, with_quad=True) -> list[np.ndarray]:
    kernel = find_kernel(name)
    m = condition(kernel, log_lengths, log_shapes(kernel), n, differentiate=True)
    return [*parts(m), *m.slopes(*incoming(n, with_quad))]


def moments(name: str, log_lengths, n: Neighbourhood, ks=None) -> list[np.ndarray]:
    kernel = find_kernel(name)
    return parts(condition(kernel, log_lengths, log_shapes(kernel), n, ks))


def assert_close(found, expected, atol):
    """Relative to the largest number of each array, or to one."""
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        scale = max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=atol)


def exactness(name: str) -> float:
    """How close slopes are to those of torch where two neighbours are equal.

    There the slope of Matern 1/2, and of its share in "auto", is 1e7, and it may be contracted by products.
    """
    return 1e-7 if name in ("auto", "matern12") else 1e-10


def assert_same_bits(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def covariance(name: str, X: np.ndarray, Z: np.ndarray, log_lengths: np.ndarray) -> np.ndarray:
    """Independent of the package: from the textbook formulas, Matern by Bessel functions; shapes at their start."""
    r = np.sqrt((((X[:, None] - Z[None]) / np.exp(log_lengths)) ** 2).sum(-1))
    if name.startswith("matern"):
        return matern(float(name[6]) / 2, r)
    if name == "auto":  # lengths such that all have the exponential of Matern 5/2
        rough = 1 / (1 + KERNELS[name].shapes["smoothness"])
        shares = {1 / 2: rough**2, 3 / 2: 2 * rough * (1 - rough), 5 / 2: (1 - rough) ** 2}
        return sum(share * matern(nu, np.sqrt(5 / (2 * nu)) * r) for nu, share in shares.items())
    if name == "rbf":
        return np.exp(-(r**2) / 2)
    alpha = KERNELS[name].shapes["alpha"]
    return (1 + r**2 / (2 * alpha)) ** -alpha


def matern(nu: float, r: np.ndarray) -> np.ndarray:
    z = np.maximum(np.sqrt(2 * nu) * r, 1e-9)
    return 2 ** (1 - nu) / scipy.special.gamma(nu) * z**nu * scipy.special.kv(nu, z)


def dense(name: str, log_lengths: np.ndarray, n: Neighbourhood) -> list[np.ndarray]:
    """Mean (b, 1, C), variance (b, 1, R) and quad (b, 1, C) by one dense solve for each row and latent function.

    What was not observed, with an infinite noise, is deleted.
    """
    (b, _, latents), factors = n.targets.shape, n.noises.shape[2]
    mean, variance, quad = (np.empty((b, 1, last)) for last in (latents, factors, latents))
    for r in range(b):
        for c in range(latents):
            f = c % factors
            keep = (n.ids[r] >= 0) & np.isfinite(n.noises[r, :, f])
            near, t = n.rows[n.ids[r, keep]], n.targets[r, keep, c]
            K = covariance(name, near, near, log_lengths) + np.diag(n.noises[r, keep, f])
            cross = covariance(name, n.query[r : r + 1], near, log_lengths)[0]
            solved = np.linalg.solve(K, np.stack([t, cross], axis=1))
            mean[r, 0, c], quad[r, 0, c] = cross @ solved[:, 0], t @ solved[:, 0]
            variance[r, 0, f] = 1 - cross @ solved[:, 1]
    return [mean, variance, quad]


@NAMES
@pytest.mark.parametrize(("k", "d"), [(6, 1), (7, 2), (8, 3), (9, 4), (31, 5), (33, 9), (39, 1), (20, 53)])
def test_moments_equal_dense_solves(name, k, d):
    log_lengths, n = make(k=k, d=d)
    assert_close(moments(name, log_lengths, n), dense(name, log_lengths, n), 1e-7)


@NAMES
@pytest.mark.parametrize("with_quad", [False, True])
@pytest.mark.parametrize(
    ("k", "d"), [(5, 1), (16, 3), (64, 8), (100, 25), (130, 4), (17, 50), (40, 104), (33, 131), (70, 240)]
)
def test_moments_and_slopes_equal_torch_autograd(name, with_quad, k, d):
    log_lengths, n = make(n=400, k=k, d=d, b=20 if d < 60 else 5)
    log_lengths += 0.5 * np.log(d)
    expected = oracle.moments_and_slopes(name, log_lengths, log_shapes(KERNELS[name]), n, *incoming(n, with_quad))
    found = moments_and_slopes(name, log_lengths, n, with_quad)
    assert_close(found, [*expected[0], *expected[1]], exactness(name))


@pytest.mark.parametrize("log_shape", [-3.0, 0.0, 2.0, 10.0])
def test_slopes_of_the_mixture_are_exact_where_no_two_rows_are_equal(log_shape):
    log_lengths, n = make(n=200, k=37, d=5, b=20)
    rows = n.rows.copy()
    rows[3] += 0.5
    n, shape = replace(n, rows=rows, query=rows[: len(n.query)]), np.array([log_shape])
    expected = oracle.moments_and_slopes("auto", log_lengths, shape, n, *incoming(n))
    m = condition(find_kernel("auto"), log_lengths, shape, n, differentiate=True)
    assert_close([*parts(m), *m.slopes(*incoming(n))], [*expected[0], *expected[1]], 1e-10)


@NAMES
def test_slopes_equal_finite_differences(name):
    kernel = find_kernel(name)
    log_lengths, n = make(b=4, k=9, d=2)
    weights, step = incoming(n), 1e-5

    def value(log_lengths, log_shape, targets, noises):
        m = condition(kernel, log_lengths, log_shape, replace(n, targets=targets, noises=noises))
        return sum((x[:, 0] * w).sum() for x, w in zip(parts(m), weights, strict=True))

    given = [log_lengths, log_shapes(kernel) + 0.2, n.targets, n.noises]
    found = condition(kernel, *given[:2], n, differentiate=True).slopes(*weights)
    for i, (x, slope) in enumerate(zip(given, found, strict=True)):
        for at in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[at] += sign * step
                ends.append(value(*given[:i], moved, *given[i + 1 :]))
            assert slope[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-6)


@NAMES
def test_nested_moments_equal_conditioning_on_fewer_neighbours(name):
    log_lengths, n = make(k=19)
    nested = moments(name, log_lengths, n, np.arange(20))
    for k in range(20):
        assert_close([x[:, k : k + 1] for x in nested], moments(name, log_lengths, fewer(n, k)), 1e-11)
    assert not nested[0][:, 0].any()
    assert (nested[1][:, 0] == 1).all()


@NAMES
def test_all_neighbours_equal_exact_leave_one_out(name):
    """k = N - 1 equals the closed form by the inverse (Rasmussen and Williams, 5.12), and refitting N times."""
    rng = np.random.default_rng(1)
    N, noise = 30, 0.1
    X, y, log_lengths = rng.standard_normal((N, 2)), rng.standard_normal(N), np.array([0.1, -0.3])
    ids = neighbour_table(X, X, N - 1, np.arange(N)).ids
    n = Neighbourhood(X, X, ids, y[ids][..., None], np.full((N, N - 1, 1), noise))
    mean, variance, _ = (x[:, 0, 0] for x in moments(name, log_lengths, n))
    K = covariance(name, X, X, log_lengths) + noise * np.eye(N)
    inverse = np.linalg.inv(K)
    np.testing.assert_allclose(mean, y - (inverse @ y) / np.diag(inverse), atol=1e-7)
    np.testing.assert_allclose(variance + noise, 1 / np.diag(inverse), atol=1e-7)
    for i in range(N):
        others = np.arange(N) != i
        refitted = K[i, others] @ np.linalg.solve(K[np.ix_(others, others)], y[others])
        assert mean[i] == pytest.approx(refitted, abs=1e-7)


@NAMES
@pytest.mark.parametrize(("k", "d"), [(11, 3), (8, 1), (40, 60)])
def test_targets_not_observed_are_as_if_deleted(name, k, d):
    log_lengths, n = make(n=100, k=k, d=d)
    log_lengths += 0.5 * np.log(d)
    gone = np.random.default_rng(4).random(n.noises.shape) < 0.4
    gone[0, 0], gone[3] = True, True  # the nearest neighbour of one row, all of another
    masked = replace(n, targets=np.where(gone, np.nan, n.targets), noises=np.where(gone, np.inf, n.noises))
    shorter = replace(n, ids=n.ids.copy(), targets=np.zeros_like(n.targets), noises=np.zeros_like(n.noises))
    places = []
    for r in range(len(n.ids)):
        keep = np.flatnonzero(~gone[r, :, 0])
        for given, out in ((n.ids, shorter.ids), (n.targets, shorter.targets), (n.noises, shorter.noises)):
            out[r], out[r, : keep.size] = -1, given[r, keep]
        places.append(keep)
    for with_quad in (False, True):
        *found, by_targets, by_noises = moments_and_slopes(name, log_lengths, masked, with_quad)
        *expected, by_fewer, by_fewer_noises = moments_and_slopes(name, log_lengths, shorter, with_quad)
        assert_close(found, expected, 1e-12)
        for r, keep in enumerate(places):
            np.testing.assert_allclose(by_targets[r, keep], by_fewer[r, : keep.size], atol=1e-12, rtol=1e-10)
            np.testing.assert_allclose(by_noises[r, keep], by_fewer_noises[r, : keep.size], atol=1e-12, rtol=1e-10)
        assert not by_targets[gone].any()
        assert not by_noises[gone].any()


def test_a_large_noise_tends_to_no_observation():
    log_lengths, n = make()
    gone = np.zeros(n.noises.shape, bool)
    gone[0, 2], gone[4, 5] = True, True
    limit = moments_and_slopes("matern52", log_lengths, replace(n, noises=np.where(gone, np.inf, n.noises)))
    near = moments_and_slopes("matern52", log_lengths, replace(n, noises=np.where(gone, 1e12, n.noises)))
    assert_close(near, limit, 1e-10)
    with pytest.raises(AssertionError):
        assert_close(moments_and_slopes("matern52", log_lengths, n), limit, 1e-3)


def test_a_matrix_that_is_not_positive_definite_gets_jitter_that_is_counted():
    X = np.zeros((12, 2))  # all rows equal and no noise: a matrix of ones
    n = Neighbourhood(X[:1], X, np.arange(1, 12)[None], np.ones((1, 11, 1)), np.zeros((1, 11, 1)))
    m = condition(find_kernel("rbf"), np.zeros(2), np.zeros(0), n)
    assert m.jittered == 1
    assert m.mean.item() == pytest.approx(1, abs=1e-4)
    assert 0 <= m.variance.item() < 1e-4
    assert condition(find_kernel("rbf"), np.zeros(2), np.zeros(0), replace(n, noises=n.noises + 0.1)).jittered == 0


def test_a_row_that_is_not_finite_leaves_the_others_alone():
    log_lengths, n = make()
    expected = moments_and_slopes("matern32", log_lengths, n)
    noises = n.noises.copy()
    noises[0, 0] = np.nan
    found = moments_and_slopes("matern32", log_lengths, replace(n, noises=noises))
    assert np.isnan(found[0][0]).all()
    assert_same_bits([x[1:] for x in found[:3] + found[5:]], [x[1:] for x in expected[:3] + expected[5:]])


@pytest.mark.parametrize(("k", "d"), [(33, 5), (24, 70)])
def test_same_bits_for_any_number_of_threads_and_any_split(monkeypatch, k, d):
    log_lengths, n = make(n=400, k=k, d=d, b=150)
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(moments_and_slopes("matern52", log_lengths, n))
    for other in results[1:]:
        assert_same_bits(other, results[0])
    for rows in (slice(0, 1), slice(37, 99)):
        piece = moments("matern52", log_lengths, some(n, rows))
        assert_same_bits(piece, [x[rows] for x in results[0][:3]])


def test_several_python_threads_may_call_at_once(monkeypatch):
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    log_lengths, n = make(n=300, k=40, d=4, b=200)
    expected = moments("matern32", log_lengths, n)
    found = []

    def call():
        for _ in range(20):
            again = moments("matern32", log_lengths, n)
            found.append(all(np.array_equal(a, b) for a, b in zip(again, expected, strict=True)))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120
    assert all(found)


def _send_moments(sender, *given):
    sender.send(moments_and_slopes(*given))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_child_gets_threads_of_its_own(monkeypatch):
    monkeypatch.setenv("NEARFIELD_THREADS", "2")
    log_lengths, n = make(n=300, k=20, d=4, b=200)
    expected = moments_and_slopes("rbf", log_lengths, n)  # the parent's threads now exist
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_moments, args=(sender, "rbf", log_lengths, n))
    child.start()
    try:
        assert receiver.poll(60), "the child hangs"
        assert_same_bits(receiver.recv(), expected)
    finally:
        child.kill()
        child.join()


def test_what_is_kept_for_the_gradient_is_linear_in_k():
    b, k, d = 20, 64, 8
    log_lengths, n = make(n=300, k=k, d=d, b=b)
    m = condition(find_kernel("matern52"), log_lengths, np.zeros(0), n, differentiate=True)
    assert sum(x.size for x in m._kept) == b * (2 * k + 2 * d)
    assert condition(find_kernel("matern52"), log_lengths, np.zeros(0), n)._kept is None


@NAMES
@pytest.mark.parametrize("d", [3, 70])
def test_moments_equal_torch_however_far_the_query_is(name, d):
    log_lengths, n = make(d=d)
    shape = log_shapes(KERNELS[name])
    for far in (1e2, 1e18, 1e21, 1e60):
        moved = replace(n, query=n.query + far)
        given = oracle.leaves(log_lengths, shape, n.targets, n.noises)
        expected = oracle.moments(name, *given[:2], moved, *given[2:])
        assert_close(moments(name, log_lengths, moved), [x.detach().numpy() for x in expected], 1e-10)


def test_arrays_of_any_layout_give_the_same_bits():
    log_lengths, n = make(latents=3)
    expected = moments_and_slopes("rbf", log_lengths, n)
    odd = Neighbourhood(
        np.asfortranarray(n.query), np.asfortranarray(n.rows), n.ids.astype(np.int32), n.targets[::-1].copy()[::-1],
        np.asfortranarray(n.noises),
    )  # fmt: skip
    assert_same_bits(moments_and_slopes("rbf", log_lengths, odd), expected)


def test_neighbours_that_do_not_exist_are_refused():
    log_lengths, n = make()
    for threads_row in (0, 4):
        ids = n.ids.copy()
        ids[threads_row, 0] = 40
        with pytest.raises(IndexError, match="neighbour 40 does not exist: there are 40 rows"):
            moments("rbf", log_lengths, replace(n, ids=ids))


def test_a_gap_between_neighbours_is_refused():
    log_lengths, n = make()
    ids = n.ids.copy()
    ids[3, 4] = -1
    with pytest.raises(ValueError, match="the neighbours of row 3 have a -1 before the last of them"):
        moments("rbf", log_lengths, replace(n, ids=ids))


def test_ids_that_change_before_the_slopes_are_refused():
    log_lengths, n = make()
    m = condition(find_kernel("rbf"), log_lengths, np.zeros(0), n, differentiate=True)
    n.ids[0, 0] = 2**40
    with pytest.raises(IndexError, match="does not exist"):
        m.slopes(*incoming(n))


def test_slopes_need_to_be_asked_for():
    log_lengths, n = make()
    kernel, none = find_kernel("rbf"), np.zeros(0)
    weights = incoming(n)
    with pytest.raises(RuntimeError, match="differentiate=True"):
        condition(kernel, log_lengths, none, n).slopes(*weights)
    with pytest.raises(RuntimeError, match="a single number of neighbours"):
        condition(kernel, log_lengths, none, n, np.array([3, 11]), differentiate=True).slopes(*weights)
    m = condition(kernel, log_lengths, none, n, differentiate=True)
    with pytest.raises(ValueError, match=r"by mean \(5,\), .* do not fit: expected \(5, 1\)"):
        m.slopes(weights[0][:, 0], weights[1])


def test_slopes_given_fewer_neighbours_equal_torch():
    """A single number of neighbours below k: those behind it do not count."""
    log_lengths, n = make(k=11)
    kernel = find_kernel("matern52")
    m = condition(kernel, log_lengths, np.zeros(0), n, np.array([6]), differentiate=True)
    shorter = moments_and_slopes("matern52", log_lengths, fewer(n, 6))
    found = m.slopes(*incoming(n))
    assert_close([*parts(m), *found[:2]], shorter[:5], 1e-12)


def test_unknown_kernels_are_refused_with_names():
    with pytest.raises(ValueError, match=r"unknown kernel 'matern5'. Did you mean 'matern52'\?"):
        find_kernel("matern5")
