"""Several outputs that mix latent functions: against dense algebra, finite differences and `condition`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from test_conditional import ENGINE_CASES, KERNEL_CASES, covariance, tensor
from torch.autograd import gradcheck

from nearfield._types import KernelParameters, Neighbourhood
from nearfield.conditional import ENGINES, condition
from nearfield.conditional.coregional import MISSING, OutputMoments, condition_outputs, condition_outputs_nested
from nearfield.kernels import KERNELS, Kernel, find_kernel, log_shapes


class Case(NamedTuple):
    log_lengths: torch.Tensor  # (Q, d)
    mixing: torch.Tensor  # (P, Q)
    log_shape: torch.Tensor
    neighbourhood: Neighbourhood


def make(kernel: Kernel, P: int, Q: int, k: int, d: int, b: int = 5, dtype=torch.float64) -> Case:
    """One row has half of its neighbours, one has none, and one has a neighbour at its own place."""
    rng = np.random.default_rng(0)
    n = b + k + 5
    X = rng.standard_normal((n, d))
    ids = np.stack([rng.permutation(np.arange(b, n))[:k] for _ in range(b)])
    ids[1, k // 2 :] = -1
    ids[2] = -1
    X[ids[0, 0]] = X[0]
    arrays = (
        rng.normal(0, 0.3, (Q, d)),
        rng.standard_normal((P, Q)),
        log_shapes(kernel),
        X,
        rng.standard_normal((b, k, P)),
        rng.uniform(0.05, 0.3, (b, k, P)),
    )
    lengths, mixing, shape, rows, targets, noises = (tensor(x).to(dtype) for x in arrays)
    return Case(lengths, mixing, shape, Neighbourhood(rows[:b], rows, torch.from_numpy(ids), targets, noises))


def parts(m: OutputMoments) -> list[np.ndarray]:
    return [x.detach().numpy() for x in (m.mean, m.covariance, m.quad)]


def part(n: Neighbourhood, rows: slice) -> Neighbourhood:
    return replace(n, query=n.query[rows], ids=n.ids[rows], targets=n.targets[rows], noises=n.noises[rows])


def latent(case: Case, q: int) -> KernelParameters:
    return KernelParameters(case.log_lengths[q], tensor(0.0), case.log_shape)


def dense(name: str, case: Case, observed: np.ndarray | None = None) -> list[np.ndarray]:
    """Mean, covariance and quad by dense solves; quad from what each neighbour adds to those before it.

    observed: (b, k, P) flags of the observations that are used; the others are deleted.
    """
    n, W = case.neighbourhood, case.mixing.numpy()
    X, outputs = n.rows.numpy(), len(W)
    found: list[list[np.ndarray]] = [[], [], []]
    for r, (query, ids) in enumerate(zip(n.query.numpy(), n.ids.numpy(), strict=True)):
        near = ids[ids >= 0]
        where = np.concatenate([X[near], query[None]])
        joint = sum(
            np.kron(covariance(name, where, where, latent(case, q)), np.outer(W[:, q], W[:, q]))
            for q in range(W.shape[1])
        )
        prior, count = joint[-outputs:, -outputs:], len(near) * outputs
        K = joint[:count, :count] + np.diag(n.noises[r, : len(near)].numpy().ravel())
        cross, t = joint[:count, count:], n.targets[r, : len(near)].numpy().ravel()
        used = np.ones(count, bool) if observed is None else observed[r, : len(near)].ravel()

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
    return [np.array(x) for x in found]


def value_and_gradients(kernel: Kernel, case: Case, engine: str = "fused") -> list[np.ndarray]:
    """Moments, and the gradients of a sum that weighs every mean and covariance differently."""
    n = case.neighbourhood
    leaves = [x.clone().requires_grad_() for x in (*case[:3], n.targets, n.noises)]
    m = condition_outputs(kernel, *leaves[:3], replace(n, targets=leaves[3], noises=leaves[4]), engine)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (m.mean, m.covariance)]
    sum((x * w.to(x.dtype)).sum() for x, w in zip((m.mean, m.covariance), weights, strict=True)).backward()
    return [*parts(m), *(leaf.grad.numpy() for leaf in leaves)]


def assert_close(found, expected, atol):
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        scale = max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=atol)


SIZES = pytest.mark.parametrize(
    ("P", "Q", "k", "d"),
    [
        (1, 1, 6, 2),
        (1, 3, 20, 1),
        (2, 2, 33, 4),
        (3, 1, 5, 3),
        (4, 5, 8, 2),
        (7, 7, 16, 5),
        (8, 2, 9, 3),
        (17, 3, 4, 9),
    ],
)


@SIZES
@pytest.mark.parametrize("name", KERNELS)
def test_moments_equal_dense_solves(name, P, Q, k, d):
    case = make(find_kernel(name), P, Q, k, d)
    assert_close(parts(condition_outputs(find_kernel(name), *case, "batched")), dense(name, case), 1e-8)


@SIZES
@KERNEL_CASES
def test_engines_agree(kernel, P, Q, k, d):
    case = make(kernel, P, Q, k, d)
    assert_close(*(value_and_gradients(kernel, case, engine) for engine in ENGINES), 1e-10)


@ENGINE_CASES
@KERNEL_CASES
def test_gradients_equal_finite_differences(engine, kernel):
    case = make(kernel, 2, 3, 4, 2, b=3)
    n = case.neighbourhood
    leaves = [x.clone().requires_grad_() for x in (*case[:3], n.targets, n.noises)]

    def moments(lengths, mixing, shape, targets, noises):
        m = condition_outputs(kernel, lengths, mixing, shape, replace(n, targets=targets, noises=noises), engine)
        return m.mean, m.covariance

    assert gradcheck(moments, leaves)


@ENGINE_CASES
def test_gradients_by_one_of_the_moments_alone(engine):
    kernel = find_kernel("matern52")
    case = make(kernel, 3, 2, 6, 2)
    both = []
    for names in (("mean",), ("covariance",), ("mean", "covariance")):
        leaf = case.mixing.clone().requires_grad_()
        m = condition_outputs(kernel, case.log_lengths, leaf, case.log_shape, case.neighbourhood, engine)
        assert not m.quad.requires_grad
        sum(getattr(m, name).sum() for name in names).backward()
        both.append(leaf.grad)
    np.testing.assert_allclose(both[0] + both[1], both[2], rtol=1e-11)


@ENGINE_CASES
@KERNEL_CASES
def test_diagonal_mixing_is_independent_models(engine, kernel):
    case = make(kernel, 3, 3, 12, 2)
    scales = torch.tensor([0.7, 1.3, 2.0], dtype=torch.float64)
    n = case.neighbourhood
    mean, covariance, quad = parts(condition_outputs(kernel, *case._replace(mixing=scales.diag()), engine))
    for p in range(3):
        parameters = KernelParameters(case.log_lengths[p], scales[p].log(), case.log_shape)
        one = condition(kernel, parameters, replace(n, targets=n.targets[..., p], noises=n.noises[..., p]), engine)
        np.testing.assert_allclose(mean[:, p], one.mean, rtol=0, atol=1e-11)
        np.testing.assert_allclose(covariance[:, p, p], one.variance, rtol=0, atol=1e-11)
        np.testing.assert_allclose(quad[:, p], one.quad, rtol=1e-11)
        np.testing.assert_allclose(np.delete(covariance[:, p], p, axis=1), 0, atol=1e-12)


@ENGINE_CASES
def test_one_output_and_one_latent_function_is_condition(engine):
    kernel = find_kernel("rational_quadratic")
    case = make(kernel, 1, 1, 11, 3)
    n = case.neighbourhood
    scale = case.mixing[0, 0].abs().log()
    leaves = [x.clone().requires_grad_() for x in (case.log_lengths[0], scale, case.log_shape)]
    one = condition(kernel, KernelParameters(*leaves), replace(n, targets=n.targets[..., 0], noises=n.noises[..., 0]))
    (one.mean + 2 * one.variance).sum().backward()
    others = [x.clone().requires_grad_() for x in case[:3]]
    m = condition_outputs(kernel, *others, n, engine)
    (m.mean[:, 0] + 2 * m.covariance[:, 0, 0]).sum().backward()
    assert_close([x[..., 0] for x in parts(m)][::2], [one.mean.detach().numpy(), one.quad.detach().numpy()], 1e-12)
    np.testing.assert_allclose(m.covariance[:, 0, 0].detach(), one.variance.detach(), rtol=0, atol=1e-12)
    by_log_scale = others[1].grad * case.mixing
    for found, expected in zip((others[0].grad, by_log_scale, others[2].grad), leaves, strict=True):
        np.testing.assert_allclose(found.reshape(expected.shape), expected.grad, rtol=1e-10)


@ENGINE_CASES
@pytest.mark.parametrize("name", ["matern52", "rbf"])
def test_missing_outputs_are_as_if_deleted(engine, name):
    kernel = find_kernel(name)
    case = make(kernel, 3, 2, 7, 2)
    n = case.neighbourhood
    observed = np.random.default_rng(4).random(n.targets.shape) < 0.6
    observed[3, 2] = False  # nothing of this neighbour
    observed[4, :, 1] = False  # nothing of this output
    gone = torch.from_numpy(~observed)
    n = replace(n, targets=n.targets.masked_fill(gone, 0), noises=n.noises.masked_fill(gone, MISSING))
    *moments, by_lengths, by_mixing, _, by_targets, by_noises = value_and_gradients(
        kernel, case._replace(neighbourhood=n), engine
    )
    assert_close(moments, dense(name, case, observed), 1e-12)
    assert np.abs(by_targets[~observed]).max() < 1e-25
    assert np.abs(by_noises[~observed]).max() < 1e-25
    more = replace(n, noises=n.noises.masked_fill(gone, 1e3 * MISSING))
    again = value_and_gradients(kernel, case._replace(neighbourhood=more), engine)
    assert_close([by_lengths, by_mixing], again[3:5], 1e-12)
    single = replace(
        n, **{x: getattr(n, x).to(torch.float32) for x in ("query", "rows", "targets", "noises")}
    )  # parameters stay in float64
    assert_close(
        value_and_gradients(kernel, case._replace(neighbourhood=single), engine)[:5],
        [*moments, by_lengths, by_mixing],
        1e-3,
    )


@ENGINE_CASES
def test_permuted_outputs_have_permuted_moments(engine):
    kernel = find_kernel("matern32")
    case = make(kernel, 5, 3, 9, 2)
    n, order = case.neighbourhood, torch.tensor([3, 0, 4, 1, 2])
    permuted = case._replace(
        mixing=case.mixing[order],
        neighbourhood=replace(n, targets=n.targets[..., order], noises=n.noises[..., order]),
    )
    mean, covariance, quad = parts(condition_outputs(kernel, *case, engine))
    expected = [mean[:, order], covariance[:, order][:, :, order], quad[:, order]]
    assert_close(parts(condition_outputs(kernel, *permuted, engine)), expected, 1e-11)
    reordered = case._replace(mixing=case.mixing[:, [2, 0, 1]], log_lengths=case.log_lengths[[2, 0, 1]])
    assert_close(parts(condition_outputs(kernel, *reordered, engine)), [mean, covariance, quad], 1e-11)


@ENGINE_CASES
@pytest.mark.parametrize("P", [1, 3, 9])
def test_nested_moments_equal_conditioning_on_fewer_neighbours(engine, P):
    kernel = find_kernel("matern52")
    case = make(kernel, P, 2, 11, 3)
    n, ks = case.neighbourhood, np.array([0, 1, 2, 2, 7, 8, 11, 30])
    nested = parts(condition_outputs_nested(kernel, *case, engine, ks=ks))
    assert [x.shape for x in nested] == [(5, 8, P), (5, 8, P, P), (5, 8, P)]
    for i, k in enumerate(ks):
        fewer = replace(n, ids=n.ids[:, :k], targets=n.targets[:, :k], noises=n.noises[:, :k])
        expected = parts(condition_outputs(kernel, *case._replace(neighbourhood=fewer), engine))
        assert_close([x[:, i] for x in nested], expected, 1e-12)
    with pytest.raises(ValueError, match="ascending order"):
        condition_outputs_nested(kernel, *case, engine, ks=np.array([3, 2]))


@ENGINE_CASES
def test_without_neighbours_the_prior_is_left(engine):
    kernel = find_kernel("rbf")
    case = make(kernel, 3, 2, 6, 2)
    mean, covariance, quad = parts(condition_outputs(kernel, *case, engine))  # row 2 has none
    assert not mean[2].any()
    assert not quad[2].any()
    np.testing.assert_allclose(covariance[2], case.mixing @ case.mixing.T, rtol=1e-14)
    alone = case._replace(neighbourhood=part(case.neighbourhood, slice(2, 3)))
    by_mixing, *rest = value_and_gradients(kernel, alone, engine)[4:]
    assert by_mixing.any()
    assert not any(x.any() for x in rest)


def test_same_bits_for_any_number_of_threads_and_any_split(monkeypatch):
    kernel = find_kernel("matern52")
    case = make(kernel, 3, 4, 13, 5, b=70)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NEARFIELD_THREADS", threads)
        results.append(value_and_gradients(kernel, case))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    for rows in (slice(0, 1), slice(23, 61)):
        piece = part(case.neighbourhood, rows)
        for found, whole in zip(parts(condition_outputs(kernel, *case[:3], piece)), results[0], strict=False):
            np.testing.assert_array_equal(found, whole[rows])


@pytest.mark.parametrize("name", KERNELS)
def test_float32_follows_float64(name):
    kernel = find_kernel(name)
    single, double = (
        value_and_gradients(kernel, make(kernel, 3, 2, 9, 2, dtype=t)) for t in (torch.float32, torch.float64)
    )
    assert all(x.dtype == np.float32 for x in single)
    assert_close(single, double, 2e-3)


@ENGINE_CASES
def test_jitter_is_counted_by_rows(engine):
    X = torch.zeros(12, 2, dtype=torch.float64)  # all rows equal and next to no noise: a matrix of rank two
    noises = torch.full((2, 11, 3), 1e-30, dtype=torch.float64)
    noises[1] = 0.1
    n = Neighbourhood(X[:2], X, torch.arange(1, 12).expand(2, 11), torch.ones_like(noises), noises)
    case = Case(tensor(np.zeros((2, 2))), tensor([[1.0, 2.0], [0.5, -1.0], [30.0, 3.0]]), tensor([]), n)
    m = condition_outputs(find_kernel("rbf"), *case, engine)
    assert m.jittered == 1
    found = value_and_gradients(find_kernel("rbf"), case, engine)
    assert all(np.isfinite(x).all() for x in found)
    assert found[1].diagonal(axis1=1, axis2=2)[0].max() < 1e-4


@ENGINE_CASES
def test_a_row_that_is_not_finite_leaves_the_others_alone(engine):
    kernel = find_kernel("matern32")
    case = make(kernel, 3, 2, 9, 2)
    expected = value_and_gradients(kernel, case, engine)
    case.neighbourhood.noises[0, 0, 0] = np.nan
    found = value_and_gradients(kernel, case, engine)
    assert np.isnan(found[0][0]).any()
    for i in (0, 1, 2, 6, 7):  # moments, and gradients by targets and noises
        np.testing.assert_allclose(found[i][1:], expected[i][1:], rtol=0, atol=1e-12)


def test_what_is_kept_for_the_gradient_is_linear_in_k():
    case = make(find_kernel("matern52"), 4, 2, 10, 3)
    m = condition_outputs(
        find_kernel("matern52"), case.log_lengths.requires_grad_(), case.mixing, case.log_shape, case.neighbourhood
    )
    result = m.mean.grad_fn.result
    assert result.alpha.size + result.beta.size == 5 * 10 * 4 * (4 + 1)


@ENGINE_CASES
def test_what_does_not_fit_is_refused(engine):
    kernel = find_kernel("rbf")
    case = make(kernel, 3, 2, 6, 2)
    n = case.neighbourhood
    with pytest.raises(ValueError, match=r"targets \(5, 6, 2\) and noises \(5, 6, 3\) do not fit neighbours \(5, 6\)"):
        condition_outputs(kernel, *case._replace(neighbourhood=replace(n, targets=n.targets[..., :2])), engine)
    with pytest.raises(ValueError, match=r"log length scales \(1, 2\), .* expected \(Q, d\)"):
        condition_outputs(kernel, *case._replace(log_lengths=case.log_lengths[:1]), engine)
    with pytest.raises(ValueError, match="unknown engine 'gpu': expected one of fused, batched"):
        condition_outputs(kernel, *case, "gpu")
    n.ids[0, 0] = 16
    with pytest.raises(IndexError, match="16"):
        condition_outputs(kernel, *case, engine)
