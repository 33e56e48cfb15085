"""The closed form: against dense solves, finite differences, exact leave-one-out, and engine against engine."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import scipy.special
import torch
from torch.autograd import gradcheck

from nearfield._types import KernelParameters, Moments, Neighbourhood
from nearfield.conditional import ENGINES, condition, condition_nested
from nearfield.kernels import KERNELS, Kernel, find_kernel, log_shapes
from nearfield.neighbours import neighbour_table

KERNEL_CASES = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
ENGINE_CASES = pytest.mark.parametrize("engine", ENGINES)


def tensor(x, grad=False):
    return torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=grad)


def make(kernel: Kernel, n=40, d=3, b=5, k=11, seed=0, dtype=torch.float64):
    """Parameters and neighbourhoods: one with five neighbours missing, one with none, one with a duplicated row."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[3] = X[7]
    ids = neighbour_table(X, X[:b], k, np.arange(b)).ids
    ids[1, k - 5 :] = -1
    ids[2] = -1
    parameters = KernelParameters(
        tensor(rng.normal(0, 0.3, d)).to(dtype), tensor(0.2).to(dtype), tensor(log_shapes(kernel)).to(dtype)
    )
    neighbourhood = Neighbourhood(
        tensor(X[:b]).to(dtype),
        tensor(X).to(dtype),
        torch.from_numpy(ids),
        tensor(rng.standard_normal((b, k))).to(dtype),
        tensor(rng.uniform(0.05, 0.2, (b, k))).to(dtype),
    )
    return parameters, neighbourhood


def as_arrays(m: Moments):
    return np.stack([m.mean.detach().numpy(), m.variance.detach().numpy(), m.quad.detach().numpy()])


def covariance(name: str, X: np.ndarray, Z: np.ndarray, p: KernelParameters) -> np.ndarray:
    """Independent of the package: from the textbook formulas, Matern by Bessel functions."""
    lengths, scale = np.exp(p.log_lengths.numpy()), np.exp(p.log_scale.item())
    r = np.sqrt((((X[:, None] - Z[None]) / lengths) ** 2).sum(-1))
    if name.startswith("matern"):
        nu = float(name[6]) / 2
        z = np.maximum(np.sqrt(2 * nu) * r, 1e-9)
        return scale**2 * 2 ** (1 - nu) / scipy.special.gamma(nu) * z**nu * scipy.special.kv(nu, z)
    if name == "rbf":
        return scale**2 * np.exp(-(r**2) / 2)
    alpha = np.exp(p.log_shape.item())
    return scale**2 * (1 + r**2 / (2 * alpha)) ** -alpha


def dense(name: str, p: KernelParameters, n: Neighbourhood, k: int | None = None) -> np.ndarray:
    """Moments (3, b) by one dense solve a row."""
    out = []
    X = n.rows.numpy()
    for q, ids, t, v in zip(n.query.numpy(), n.ids.numpy(), n.targets.numpy(), n.noises.numpy(), strict=True):
        keep = np.flatnonzero(ids >= 0)[:k]
        K = covariance(name, X[ids[keep]], X[ids[keep]], p) + np.diag(v[keep])
        c = covariance(name, q[None], X[ids[keep]], p)[0]
        solve = np.linalg.solve(K, np.stack([t[keep], c], axis=1)) if keep.size else np.zeros((0, 2))
        variance = np.exp(2 * p.log_scale.item()) - c @ solve[:, 1]
        out.append((c @ solve[:, 0], variance, t[keep] @ solve[:, 0]))
    return np.array(out).T


@ENGINE_CASES
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("k", "d"), [(1, 1), (7, 2), (8, 3), (9, 4), (31, 5), (33, 9), (39, 1)])
def test_moments_equal_dense_solves(engine, name, k, d):
    parameters, neighbourhood = make(find_kernel(name), k=max(k, 6), d=d)
    found = as_arrays(condition(find_kernel(name), parameters, neighbourhood, engine))
    np.testing.assert_allclose(found, dense(name, parameters, neighbourhood), rtol=1e-7, atol=1e-7)


@ENGINE_CASES
@KERNEL_CASES
def test_gradients_equal_finite_differences(engine, kernel):
    parameters, n = make(kernel)
    leaves = [
        x.clone().requires_grad_()
        for x in (parameters.log_lengths, parameters.log_scale, parameters.log_shape, n.targets, n.noises)
    ]

    def moments(log_lengths, log_scale, log_shape, targets, noises):
        m = condition(
            kernel,
            KernelParameters(log_lengths, log_scale, log_shape),
            Neighbourhood(n.query, n.rows, n.ids, targets, noises),
            engine,
        )
        return m.mean, m.variance, m.quad

    assert gradcheck(moments, leaves)


def value_and_gradients(kernel, engine, k, d, b=20):
    parameters, n = make(kernel, n=400, k=k, d=d, b=b)
    leaves = [
        x.clone().requires_grad_()
        for x in (parameters.log_lengths, parameters.log_scale, parameters.log_shape, n.targets, n.noises)
    ]
    m = condition(kernel, KernelParameters(*leaves[:3]), Neighbourhood(n.query, n.rows, n.ids, *leaves[3:]), engine)
    weights = torch.linspace(0.5, 2, b, dtype=torch.float64)
    (weights * (m.mean + 0.7 * m.variance + 0.1 * m.quad)).sum().backward()
    return [as_arrays(m), *(leaf.grad.numpy() for leaf in leaves)]


@KERNEL_CASES
@pytest.mark.parametrize(("k", "d"), [(5, 1), (16, 3), (64, 8), (100, 25), (130, 4)])
def test_engines_agree(kernel, k, d):
    pairs = zip(value_and_gradients(kernel, "fused", k, d), value_and_gradients(kernel, "batched", k, d), strict=True)
    for fused, batched in pairs:
        scale = max(1.0, np.abs(batched).max(initial=0.0))
        np.testing.assert_allclose(fused / scale, batched / scale, rtol=0, atol=1e-10)


@ENGINE_CASES
@KERNEL_CASES
def test_nested_moments_equal_conditioning_on_fewer_neighbours(engine, kernel):
    parameters, n = make(kernel, k=19)
    nested = as_arrays(condition_nested(kernel, parameters, n, engine))
    for k in range(1, 20):
        part = Neighbourhood(n.query, n.rows, n.ids[:, :k], n.targets[:, :k], n.noises[:, :k])
        np.testing.assert_allclose(
            nested[:, :, k - 1], as_arrays(condition(kernel, parameters, part, engine)), atol=1e-11
        )


@KERNEL_CASES
def test_float32_follows_float64(kernel):
    single = condition(kernel, *make(kernel, dtype=torch.float32))
    assert single.mean.dtype == torch.float32
    np.testing.assert_allclose(as_arrays(single), as_arrays(condition(kernel, *make(kernel))), rtol=2e-4, atol=2e-4)


def leave_one_out_by_inverse(K: np.ndarray, y: np.ndarray):
    """Rasmussen and Williams (5.12): exact left-out mean and variance from the inverse."""
    inverse = np.linalg.inv(K)
    variance = 1 / np.diag(inverse)
    return y - (inverse @ y) * variance, variance


@ENGINE_CASES
@pytest.mark.parametrize("name", KERNELS)
def test_all_neighbours_equal_exact_leave_one_out(engine, name):
    """k = N - 1 equals the closed form by the inverse, and refitting N times."""
    rng = np.random.default_rng(1)
    N, noise = 30, 0.1
    X, y = rng.standard_normal((N, 2)), rng.standard_normal(N)
    p = KernelParameters(tensor([0.1, -0.3]), tensor(0.3), tensor(log_shapes(find_kernel(name))))
    ids = torch.from_numpy(neighbour_table(X, X, N - 1, np.arange(N)).ids)
    n = Neighbourhood(tensor(X), tensor(X), ids, tensor(y)[ids], torch.full((N, N - 1), noise, dtype=torch.float64))
    m = condition(find_kernel(name), p, n, engine)
    K = covariance(name, X, X, p) + noise * np.eye(N)
    mean, variance = leave_one_out_by_inverse(K, y)
    np.testing.assert_allclose(m.mean, mean, atol=1e-8)
    np.testing.assert_allclose(m.variance + noise, variance, atol=1e-8)
    for i in range(N):
        others = np.arange(N) != i
        refitted = K[i, others] @ np.linalg.solve(K[np.ix_(others, others)], y[others])
        assert m.mean[i].item() == pytest.approx(refitted, abs=1e-8)


@ENGINE_CASES
def test_a_matrix_that_is_not_positive_definite_gets_jitter_that_is_counted(engine):
    X = torch.zeros(12, 2, dtype=torch.float64)  # all rows equal and no noise: a matrix of ones
    ids = torch.arange(1, 12)[None]
    n = Neighbourhood(X[:1], X, ids, torch.ones(1, 11, dtype=torch.float64), torch.zeros(1, 11, dtype=torch.float64))
    p = KernelParameters(tensor([0.0, 0.0]), tensor(0.0), tensor([]))
    m = condition(find_kernel("rbf"), p, n, engine)
    assert m.jittered >= 1
    assert m.mean.item() == pytest.approx(1, abs=1e-4)
    assert 0 <= m.variance.item() < 1e-4


def test_same_bits_for_any_number_of_threads_and_any_split(monkeypatch):
    kernel = find_kernel("matern52")
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(value_and_gradients(kernel, "fused", 33, 5, b=150))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    parameters, n = make(kernel, n=400, k=33, d=5, b=150)
    whole = as_arrays(condition(kernel, parameters, n))
    for part in (slice(0, 1), slice(37, 99)):
        piece = Neighbourhood(n.query[part], n.rows, n.ids[part], n.targets[part], n.noises[part])
        np.testing.assert_array_equal(as_arrays(condition(kernel, parameters, piece)), whole[:, part])


def test_several_python_threads_may_call_at_once(monkeypatch):
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    kernel = find_kernel("matern32")
    parameters, n = make(kernel, n=300, k=40, d=4, b=200)
    expected = as_arrays(condition(kernel, parameters, n))
    found = []

    def call():
        for _ in range(20):
            found.append(np.array_equal(as_arrays(condition(kernel, parameters, n)), expected))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120
    assert all(found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_threads_of_its_own(monkeypatch):
    monkeypatch.setenv("NEARFIELD_THREADS", "2")
    kernel = find_kernel("rbf")
    parameters, n = make(kernel, n=300, k=20, d=4, b=200)
    expected = as_arrays(condition_nested(kernel, parameters, n))  # the parent's threads now exist
    child = os.fork()
    if child == 0:
        equal = np.array_equal(as_arrays(condition_nested(kernel, parameters, n)), expected)
        os._exit(0 if equal else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_kept_for_the_gradient_is_linear_in_k():
    from nearfield.conditional import fused

    b, k, d = 20, 64, 8
    parameters, n = make(find_kernel("matern52"), n=300, k=k, d=d, b=b)
    leaf = parameters.log_lengths.clone().requires_grad_()
    m = condition(find_kernel("matern52"), KernelParameters(leaf, parameters.log_scale, parameters.log_shape), n)
    result = m.mean.grad_fn.result
    assert isinstance(result, fused.FusedResult)
    assert sum(x.size for x in result[:6]) == b * (2 * k + 2 * d + 3)


@KERNEL_CASES
def test_engines_agree_however_far_the_query_is(kernel):
    parameters, n = make(kernel)
    for far in (1e2, 1e18, 1e21, 1e60):
        moved = Neighbourhood(n.query + far, n.rows, n.ids, n.targets, n.noises)
        pair = [as_arrays(condition(kernel, parameters, moved, engine)) for engine in ENGINES]
        np.testing.assert_allclose(pair[0], pair[1], atol=1e-10)


def test_neighbours_that_do_not_exist_are_refused():
    parameters, n = make(find_kernel("rbf"))
    n.ids[0, 0] = 40
    with pytest.raises(IndexError, match="neighbour 40 does not exist: there are 40 rows"):
        condition(find_kernel("rbf"), parameters, n)


def test_unknown_engine_and_kernel_are_refused_with_names():
    with pytest.raises(ValueError, match="unknown engine 'gpu': expected one of fused, batched"):
        condition(find_kernel("rbf"), *make(find_kernel("rbf")), engine="gpu")
    with pytest.raises(ValueError, match=r"unknown kernel 'matern5'. Did you mean 'matern52'\?"):
        find_kernel("matern5")
