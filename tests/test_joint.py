"""The joint density of a row and its neighbours: against scipy's multivariate normal, torch and finite differences."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import scipy.stats
import torch
from test_conditional import NAMES, assert_close, assert_same_bits, covariance

from nearfield.conditional import joint
from nearfield.conditional.joint import joint_log_density
from nearfield.kernels import find_kernel, log_shapes

LOG_SCALE = 0.2


def problem(name, n=12, d=2, b=4, k=5, seed=0):
    """One row has three neighbours, one has none, and one a target that was not observed."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(n)[:k] for _ in range(b)])
    ids[1, 3:] = -1
    ids[2] = -1
    targets, noises = rng.standard_normal((b, k)), rng.uniform(0.1, 0.5, (b, k))
    targets[3, 1], noises[3, 1] = np.nan, np.inf
    kernel = find_kernel(name)
    return (
        kernel,
        rng.normal(0, 0.3, d),
        LOG_SCALE,
        log_shapes(kernel),
        rng.standard_normal((n, d)),
        ids,
        targets,
        noises,
    )


@NAMES
def test_densities_are_multivariate_normal(name):
    kernel, lengths, log_scale, shape, rows, ids, targets, noises = problem(name)
    found, _ = joint_log_density(kernel, lengths, log_scale, shape, rows, ids, targets, noises)
    assert found[2] == 0
    for i in (0, 1, 3):
        used = np.flatnonzero((ids[i] >= 0) & np.isfinite(noises[i]))
        x = rows[ids[i, used]]
        K = np.exp(2 * log_scale) * (covariance(name, x, x, lengths) + np.diag(noises[i, used]))
        expected = scipy.stats.multivariate_normal(np.zeros(used.size), K).logpdf(targets[i, used])
        assert found[i] == pytest.approx(expected, abs=1e-7)


def densities_by_torch(name, given, rows, ids, owners=()):
    lengths, log_scale, shape, targets, noises = given
    pairs, _ = oracle.correlations(name, lengths, shape, np.zeros((len(ids), rows.shape[1])), rows, ids, owners)
    parts = []
    for i, row in enumerate(ids):
        used = np.flatnonzero((row >= 0) & np.isfinite(noises[i].detach().numpy()))
        M = pairs[i][used][:, used] + torch.diag(noises[i, used])
        normal = torch.distributions.MultivariateNormal(
            torch.zeros(len(used), dtype=M.dtype), (2 * log_scale).exp() * M
        )
        parts.append(normal.log_prob(targets[i, used]) if len(used) else M.sum())
    return torch.stack(parts)


@NAMES
def test_slopes_equal_torch_autograd(name):
    kernel, lengths, log_scale, shape, rows, ids, targets, noises = problem(name)
    weights = np.random.default_rng(2).standard_normal(len(ids))
    density, slopes = joint_log_density(kernel, lengths, log_scale, shape, rows, ids, targets, noises)
    given = oracle.leaves(lengths, log_scale, shape, np.where(np.isfinite(noises), targets, 0.0), noises)
    expected = densities_by_torch(name, given, rows, ids)
    assert_close([density], [expected.detach().numpy()], 1e-10)
    by = torch.autograd.grad(expected @ torch.from_numpy(weights), given, allow_unused=True, materialize_grads=True)
    found = [weights @ slopes.log_lengths, weights @ slopes.log_scale, weights @ slopes.log_shape]
    found += [weights[:, None] * slopes.targets, weights[:, None] * slopes.noises]
    assert_close([np.asarray(x) for x in found], [x.numpy() for x in by], 1e-10)
    assert not slopes.targets[3, 1].any()
    assert not slopes.noises[3, 1].any()


def test_rows_do_not_depend_on_how_they_are_blocked(monkeypatch):
    given = problem("matern52", n=60, b=40, k=9)
    density, slopes = joint_log_density(*given)
    monkeypatch.setattr(joint, "_CHUNK_NUMBERS", 7 * 81)
    again, again_slopes = joint_log_density(*given)
    assert_same_bits([again, *again_slopes], [density, *slopes])
    *head, ids, targets, noises = given
    alone, _ = joint_log_density(*head, ids[17:18], targets[17:18], noises[17:18])
    assert_same_bits([alone], [density[17:18]])


def test_equal_rows_without_noise_get_jitter():
    kernel, none = find_kernel("rbf"), np.zeros(0)
    rows, ids, zeros = np.zeros((6, 2)), np.tile(np.arange(5), (2, 1)), np.zeros((2, 5))
    noises = np.stack([np.zeros(5), np.full(5, 0.1)])
    density, slopes = joint_log_density(kernel, np.zeros(2), 0.0, none, rows, ids, zeros, noises)
    assert np.isfinite(density).all()
    assert all(np.isfinite(x).all() for x in slopes)
    alone, _ = joint_log_density(kernel, np.zeros(2), 0.0, none, rows, ids[1:], zeros[1:], noises[1:])
    assert_same_bits([alone], [density[1:]])


def test_no_rows_have_no_densities():
    given = problem("rational_quadratic")
    *head, ids, targets, noises = given
    density, slopes = joint_log_density(*head, ids[:0], targets[:0], noises[:0])
    assert density.shape == (0,)
    assert [x.shape for x in slopes] == [(0, 2), (0,), (0, 1), (0, 5), (0, 5)]


def test_what_does_not_fit_is_refused():
    *head, ids, targets, noises = problem("rbf")
    with pytest.raises(ValueError, match=r"targets \(4, 4\)"):
        joint_log_density(*head, ids, targets[:, :4], noises)
    ids[0, 0] = 12
    with pytest.raises(IndexError, match="neighbour 12 does not exist: there are 12 rows"):
        joint_log_density(*head, ids, targets, noises)
