"""SWSGP: with all inducing points near, it is SVGP with a mean-field q(u), here in dense algebra."""

import numpy as np
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from experiments.methods import swsgp
from experiments.methods.common import matern52

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=30)


def parameters(M=8):
    p = swsgp.Parameters(RNG.normal(size=(M, 2)))
    with torch.no_grad():
        p.m.copy_(torch.as_tensor(RNG.normal(size=M)))
        p.log_s.copy_(torch.as_tensor(RNG.normal(size=M) / 3))
        p.log_lengths.copy_(torch.as_tensor([0.3, -0.2]))
        p.log_scale.fill_(0.4)
        p.mean.fill_(0.7)
    return p


def dense(p, x, near):
    """Mean, variance and KL of one row x (d,) that sees the inducing points `near`, by matrices."""
    Z, m, S = p.Z[near], p.m[near], torch.diag((2 * p.log_s[near]).exp())
    scale = p.log_scale.exp()
    K = matern52(Z, Z, p.log_lengths, p.log_scale) + 1e-5 * scale * torch.eye(len(Z), dtype=torch.float64)
    c = matern52(Z, x[None], p.log_lengths, p.log_scale)[:, 0]
    b = torch.linalg.solve(K, c)
    prior = MultivariateNormal(p.mean.expand(len(Z)), K)
    kl = kl_divergence(MultivariateNormal(m, S), prior)
    return p.mean + b @ (m - p.mean), scale - c @ b + b @ S @ b, kl


def test_objective_with_all_points_near_equals_mean_field_svgp():
    p, x, y = parameters(), torch.as_tensor(X), torch.as_tensor(Y)
    rows = [dense(p, row, torch.arange(8)) for row in x]
    noise = p.noise()
    fit = sum(Normal(mean, noise.sqrt()).log_prob(t) - v / (2 * noise) for (mean, v, _), t in zip(rows, y, strict=True))
    torch.testing.assert_close(p.objective(x, y, 30, 8), (fit - rows[0][2]) / 30)


def test_a_row_sees_its_nearest_points_only():
    p, x = parameters(), torch.as_tensor(X)
    found = torch.stack(p.latent(x, 3), 1)
    for row, values in zip(x, found, strict=True):
        near = (((row - p.Z) / p.log_lengths.exp()) ** 2).sum(1).argsort()[:3]
        torch.testing.assert_close(torch.stack(dense(p, row, near)), values)


def test_gradients_written_out_equal_finite_differences():
    A = torch.as_tensor(RNG.normal(size=(2, 4, 6)))
    K = A @ A.mT + torch.eye(4)
    others = [torch.as_tensor(RNG.uniform(0.2, 1, size=(2, 4))) for _ in range(3)]

    def local(root, *rest):  # symmetric K, as the gradient is that of a symmetric matrix
        return swsgp._Local.apply((root + root.mT) / 2, *rest)

    assert torch.autograd.gradcheck(local, [t.requires_grad_() for t in (K, *others)])


def test_fit_learns_a_function():
    X = RNG.normal(size=(400, 2))
    y = np.sin(2 * X[:, 0])
    gp = swsgp.SWSGP(swsgp.Config(inducing=50, nearest=(16,), steps=200, batch=64))
    gp.fit(X[:300], y[:300], X[:0], y[:0])
    assert np.sqrt(np.mean((gp.predict(X[300:]).mean - y[300:]) ** 2)) < 0.15
