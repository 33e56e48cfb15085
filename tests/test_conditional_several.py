"""Several latent functions that share neighbours and length scales: against dense inverses and one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_conditional import ENGINE_CASES, KERNEL_CASES, covariance, make, tensor
from torch.autograd import gradcheck

from nearfield._types import KernelParameters, Moments, Neighbourhood
from nearfield.conditional import ENGINES, condition, condition_nested
from nearfield.kernels import KERNELS, Kernel, find_kernel

SHARED_OR_OWN = pytest.mark.parametrize("own", [False, True], ids=["shared noise", "own noises"])


def several(kernel: Kernel, latents: int, own: bool, dtype=torch.float64, **sizes):
    """As `make`, with targets (b, k, C), noises (b, k, R) and kernel scales (R,)."""
    parameters, n = make(kernel, dtype=dtype, **sizes)
    factors = latents if own else 1
    rng = np.random.default_rng(3)
    targets = tensor(rng.standard_normal((*n.ids.shape, latents))).to(dtype)
    noises = tensor(rng.uniform(0.05, 0.2, (*n.ids.shape, factors))).to(dtype)
    scales = tensor(rng.normal(0, 0.2, factors)).to(dtype)
    return replace(parameters, log_scale=scales), replace(n, targets=targets, noises=noises)


def parts(m: Moments) -> list[np.ndarray]:
    return [x.detach().numpy() for x in (m.mean, m.variance, m.quad)]


def latent(parameters: KernelParameters, n: Neighbourhood, c: int) -> tuple[KernelParameters, Neighbourhood]:
    """Latent function c alone."""
    f = c if n.noises.shape[-1] > 1 else 0
    one = replace(n, targets=n.targets[..., c], noises=n.noises[..., f])
    return replace(parameters, log_scale=parameters.log_scale[f]), one


def by_inverse(name: str, p: KernelParameters, n: Neighbourhood) -> list[np.ndarray]:
    """Mean (b, C), variance (b, R) and quad (b, C) with the inverse of every matrix."""
    (b, _, latents), factors = n.targets.shape, n.noises.shape[-1]
    mean, variance, quad = np.empty((b, latents)), np.empty((b, factors)), np.empty((b, latents))
    X = n.rows.numpy()
    for r in range(b):
        keep = n.ids[r].numpy() >= 0
        near = X[n.ids[r].numpy()[keep]]
        for c in range(latents):
            f = c % factors
            one = replace(p, log_scale=p.log_scale[f])
            inverse = np.linalg.inv(covariance(name, near, near, one) + np.diag(n.noises[r, :, f].numpy()[keep]))
            cross, t = covariance(name, n.query[r : r + 1].numpy(), near, one)[0], n.targets[r, :, c].numpy()[keep]
            mean[r, c], quad[r, c] = cross @ inverse @ t, t @ inverse @ t
            variance[r, f] = np.exp(2 * p.log_scale[f].item()) - cross @ inverse @ cross
    return [mean, variance, quad]


@ENGINE_CASES
@SHARED_OR_OWN
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("latents", "k"), [(1, 8), (3, 11), (7, 16), (8, 9), (9, 17), (26, 12)])
def test_moments_equal_dense_inverses(engine, own, name, latents, k):
    parameters, n = several(find_kernel(name), latents, own, k=k)
    m = condition(find_kernel(name), parameters, n, engine)
    for found, expected in zip(parts(m), by_inverse(name, parameters, n), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


def value_and_gradients(kernel, parameters, n, engine, with_quad=True):
    """Moments, and the gradients of a sum that weighs every one of them differently."""
    leaves = [
        x.clone().requires_grad_()
        for x in (parameters.log_lengths, parameters.log_scale, parameters.log_shape, n.targets, n.noises)
    ]
    m = condition(kernel, KernelParameters(*leaves[:3]), replace(n, targets=leaves[3], noises=leaves[4]), engine)
    loss = sum(
        (x * torch.linspace(0.5, 2, x.numel(), dtype=x.dtype).reshape(x.shape)).sum() for x in (m.mean, m.variance)
    )
    if with_quad:
        loss = loss + (0.1 * m.quad * m.quad.detach().cos()).sum()
    loss.backward()
    return [*parts(m), *(leaf.grad.numpy() for leaf in leaves)]


@KERNEL_CASES
@SHARED_OR_OWN
@pytest.mark.parametrize("with_quad", [False, True])
@pytest.mark.parametrize(
    ("latents", "k", "d"), [(1, 20, 6), (2, 5, 1), (3, 33, 8), (7, 64, 5), (9, 24, 13), (26, 16, 3)]
)
def test_engines_agree(kernel, own, with_quad, latents, k, d):
    parameters, n = several(kernel, latents, own, n=200, b=12, k=k, d=d)
    pair = [value_and_gradients(kernel, parameters, n, engine, with_quad) for engine in ENGINES]
    for fused, batched in zip(*pair, strict=True):
        scale = max(1.0, np.abs(batched).max(initial=0.0))
        np.testing.assert_allclose(fused / scale, batched / scale, rtol=0, atol=1e-10)


@ENGINE_CASES
@KERNEL_CASES
@SHARED_OR_OWN
def test_gradients_equal_finite_differences(engine, kernel, own):
    parameters, n = several(kernel, 3, own, b=4, k=9, d=2)
    leaves = [
        x.clone().requires_grad_()
        for x in (parameters.log_lengths, parameters.log_scale, parameters.log_shape, n.targets, n.noises)
    ]

    def moments(log_lengths, log_scale, log_shape, targets, noises):
        p = KernelParameters(log_lengths, log_scale, log_shape)
        m = condition(kernel, p, replace(n, targets=targets, noises=noises), engine)
        return m.mean, m.variance, m.quad

    assert gradcheck(moments, leaves)


@ENGINE_CASES
@SHARED_OR_OWN
def test_each_latent_function_is_what_it_is_alone(engine, own):
    kernel = find_kernel("matern32")
    parameters, n = several(kernel, 9, own, k=20)
    mean, variance, quad = parts(condition(kernel, parameters, n, engine))
    for c in range(9):
        alone = parts(condition(kernel, *latent(parameters, n, c), engine))
        for together, single in zip((mean[:, c], variance[:, c if own else 0], quad[:, c]), alone, strict=True):
            np.testing.assert_allclose(together, single, rtol=0, atol=1e-12)


@ENGINE_CASES
@KERNEL_CASES
def test_one_latent_function_may_have_an_axis_or_not(engine, kernel):
    parameters, n = make(kernel)
    flat = value_and_gradients(kernel, parameters, n, engine)
    deep = replace(n, targets=n.targets[..., None], noises=n.noises[..., None])
    for with_axis, without in zip(value_and_gradients(kernel, parameters, deep, engine), flat, strict=True):
        np.testing.assert_array_equal(with_axis.reshape(without.shape), without)


@ENGINE_CASES
def test_one_kernel_scale_and_flat_noises_serve_all(engine):
    kernel = find_kernel("rbf")
    parameters, n = several(kernel, 3, True)
    common = replace(parameters, log_scale=tensor(0.3))
    repeated = replace(parameters, log_scale=tensor([0.3, 0.3, 0.3]))
    *one, by_scale, _, by_targets, by_noises = value_and_gradients(kernel, common, n, engine)
    *each, by_scales, _, by_targets_too, by_noises_too = value_and_gradients(kernel, repeated, n, engine)
    assert by_scale.shape == ()
    np.testing.assert_allclose(by_scale, by_scales.sum(), rtol=1e-12)
    for a, b in zip([*one, by_targets, by_noises], [*each, by_targets_too, by_noises_too], strict=True):
        np.testing.assert_array_equal(a, b)
    flat = replace(n, noises=n.noises[..., 0])
    shared = value_and_gradients(kernel, common, replace(n, noises=n.noises[..., :1]), engine)
    for a, b in zip(value_and_gradients(kernel, common, flat, engine), shared, strict=True):
        np.testing.assert_array_equal(a.reshape(b.shape), b)


@ENGINE_CASES
def test_gradients_by_some_of_the_moments_alone(engine):
    kernel = find_kernel("matern52")
    parameters, n = several(kernel, 3, False)
    for name in ("mean", "variance", "quad"):
        leaf = parameters.log_lengths.clone().requires_grad_()
        getattr(condition(kernel, replace(parameters, log_lengths=leaf), n, engine), name).sum().backward()
        step = 1e-6 * torch.eye(len(leaf), dtype=torch.float64)
        sums = [
            [getattr(condition(kernel, replace(parameters, log_lengths=x), n), name).sum().item() for x in ends]
            for ends in zip(parameters.log_lengths + step, parameters.log_lengths - step, strict=True)
        ]
        np.testing.assert_allclose(leaf.grad, np.subtract(*np.transpose(sums)) / 2e-6, rtol=1e-6, atol=1e-7)


@ENGINE_CASES
@SHARED_OR_OWN
@pytest.mark.parametrize("latents", [1, 3, 9])
def test_nested_moments_equal_conditioning_on_fewer_neighbours(engine, own, latents):
    kernel = find_kernel("matern52")
    parameters, n = several(kernel, latents, own, k=19)
    ks = np.array([1, 2, 2, 7, 8, 15, 19, 30])
    nested = parts(condition_nested(kernel, parameters, n, engine, ks=ks))
    factors = latents if own else 1
    assert [x.shape for x in nested] == [(5, 8, latents), (5, 8, factors), (5, 8, latents)]
    for i, k in enumerate(ks):
        fewer = replace(n, ids=n.ids[:, :k], targets=n.targets[:, :k], noises=n.noises[:, :k])
        for found, expected in zip(nested, parts(condition(kernel, parameters, fewer, engine)), strict=True):
            np.testing.assert_allclose(found[:, i], expected, rtol=0, atol=1e-11)


@ENGINE_CASES
def test_nested_moments_for_some_k_are_those_for_every_k(engine):
    kernel = find_kernel("rbf")
    parameters, n = make(kernel, k=12)
    every = parts(condition_nested(kernel, parameters, n, engine))
    for some, all_ in zip(
        parts(condition_nested(kernel, parameters, n, engine, ks=np.array([3, 12]))), every, strict=True
    ):
        np.testing.assert_array_equal(some, all_[:, [2, 11]])
    nothing = condition_nested(kernel, parameters, n, engine, ks=np.array([0]))
    assert (nothing.mean == 0).all()
    np.testing.assert_allclose(nothing.variance, np.exp(2 * parameters.log_scale.item()))
    with pytest.raises(ValueError, match="ascending order"):
        condition_nested(kernel, parameters, n, engine, ks=np.array([3, 2]))


@KERNEL_CASES
@SHARED_OR_OWN
def test_float32_follows_float64(kernel, own):
    single = value_and_gradients(kernel, *several(kernel, 3, own, dtype=torch.float32), "fused")
    double = value_and_gradients(kernel, *several(kernel, 3, own), "fused")
    for a, b in zip(single, double, strict=True):
        assert a.dtype == np.float32
        scale = max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=1e-3)


@ENGINE_CASES
@SHARED_OR_OWN
def test_jitter_is_counted_by_rows(engine, own):
    X = torch.zeros(12, 2, dtype=torch.float64)  # all rows equal and no noise: a matrix of ones
    n = Neighbourhood(X[:2], X, torch.arange(1, 12).expand(2, 11), torch.ones(2, 11, 3, dtype=torch.float64),
                      torch.zeros(2, 11, 3 if own else 1, dtype=torch.float64))  # fmt: skip
    n.noises[1] = 0.1
    if own:
        n.noises[0, :, 1] = 0.1  # this latent function needs none
    p = KernelParameters(tensor([0.0, 0.0]), tensor(0.0), tensor([]))
    m = condition(find_kernel("rbf"), p, n, engine)
    assert m.jittered == 1
    np.testing.assert_allclose(m.mean[0, [0, 2]], 1, atol=1e-4)
    if own:
        assert m.mean[0, 1].item() == pytest.approx(11 / 11.1, abs=1e-12)


@SHARED_OR_OWN
def test_same_bits_for_any_number_of_threads(monkeypatch, own):
    kernel = find_kernel("matern52")
    parameters, n = several(kernel, 4, own, n=400, k=33, d=5, b=150)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(value_and_gradients(kernel, parameters, n, "fused"))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@ENGINE_CASES
def test_shapes_that_do_not_fit_are_refused(engine):
    kernel = find_kernel("rbf")
    parameters, n = several(kernel, 3, True)
    with pytest.raises(ValueError, match=r"noises \(5, 11, 2\) .* expected \(b, k\) or \(b, k, C\)"):
        condition(kernel, parameters, replace(n, noises=n.noises[..., :2]), engine)
    with pytest.raises(ValueError, match=r"log kernel scale \(2,\) do not fit"):
        condition(kernel, replace(parameters, log_scale=parameters.log_scale[:2]), n, engine)
    with pytest.raises(ValueError, match=r"targets \(5, 10, 3\)"):
        condition_nested(kernel, parameters, replace(n, targets=n.targets[:, :10]), engine)
