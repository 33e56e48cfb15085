"""SVGP and PPGPR: limits in which they equal the exact GP, and PPGPR's objective by hand."""

import numpy as np
import pytest
import torch

gpytorch = pytest.importorskip("gpytorch", reason="the package gpytorch is not installed")

from experiments.methods import METHODS, Settings, svgp  # noqa: E402
from experiments.methods.common import matern52  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(25, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=25)


def kernel_of(model, x, z):
    kernel = model.covar_module
    return matern52(x, z, kernel.base_kernel.lengthscale.log()[..., 0, :], kernel.outputscale.log())


def test_svgp_with_an_inducing_point_at_every_row_reaches_the_exact_posterior_and_its_bound_the_mll():
    x, y, x_new = torch.as_tensor(X), torch.as_tensor(Y), torch.as_tensor(RNG.normal(size=(6, 2)))
    model, likelihood = svgp.make("svgp", Settings(), x)
    loss = svgp.objective("svgp", model, likelihood, len(x), beta=1.0)
    model.variational_strategy.inducing_points.requires_grad_(False)
    for p in [*model.covar_module.parameters(), *model.mean_module.parameters(), *likelihood.parameters()]:
        p.requires_grad_(False)
    q = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.LBFGS(q, max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = -loss(model(x), y)
        value.backward()
        return value

    bound = -optimiser.step(closure)
    bound = -closure()
    model.eval()
    with torch.no_grad():
        K = kernel_of(model, x, x) + likelihood.noise * torch.eye(25)
        c = kernel_of(model, x, x_new)
        found = model(x_new)
        torch.testing.assert_close(found.mean, c.mT @ torch.linalg.solve(K, y), atol=1e-3, rtol=0)
        exact = model.covar_module.outputscale - (c * torch.linalg.solve(K, c)).sum(0)
        torch.testing.assert_close(found.variance, exact, atol=2e-3, rtol=0)
        evidence = torch.distributions.MultivariateNormal(torch.zeros(25), K).log_prob(y) / 25
    assert evidence - 1e-3 < bound <= evidence + 1e-5


def test_ppgpr_objective_equals_its_formula():
    x, y, Z = torch.as_tensor(X), torch.as_tensor(Y), torch.as_tensor(RNG.normal(size=(7, 2)))
    model, likelihood = svgp.make("ppgpr", Settings(), Z)
    model.variational_strategy.variational_params_initialized.fill_(1)
    q = model.variational_strategy._variational_distribution
    m, s = torch.as_tensor(RNG.normal(size=7)), torch.as_tensor(RNG.uniform(0.2, 1.2, size=7))
    q.variational_mean.data, q._variational_stddev.data = m, s
    model.mean_module.constant.data.fill_(0.3)
    found = svgp.objective("ppgpr", model, likelihood, 25, beta=0.2)(model(x), y)
    L = torch.linalg.cholesky(kernel_of(model, Z, Z) + 1e-6 * torch.eye(7))
    A = torch.linalg.solve_triangular(L, kernel_of(model, Z, x), upper=False)  # u = L v, q(v) = N(m, diag s^2)
    mean = 0.3 + m @ A
    variance = model.covar_module.outputscale + ((s.square() - 1)[:, None] * A.square()).sum(0) + likelihood.noise
    kl = (s.square() + m.square() - 1 - 2 * s.log()).sum() / 2
    fit = torch.distributions.Normal(mean, variance.sqrt()).log_prob(y).mean()
    torch.testing.assert_close(found, fit - 0.2 * kl / 25, atol=1e-4, rtol=1e-4)


def test_beta_is_chosen_on_validation_rows():
    y, bad = Y, RNG.normal(size=25)
    gp = METHODS["svgp"].build(Settings(options={"inducing": 10, "steps": 60, "more_steps": 60, "betas": (1e6, 0.5)}))
    gp.fit(X, y, X, y)
    assert gp.chosen["beta_reg"] == 0.5
    gp.fit(X, y, X, 5 * bad)  # all KL and no fit is the more careful of the two
    assert gp.chosen["beta_reg"] == 1e6


def test_mean_softmax_equals_quadrature_for_two_functions():
    from experiments.methods.common import logistic_normal

    mean, variance = np.array([[0.3, -0.5], [2.0, 1.0]]), np.array([[0.4, 0.2], [1.0, 2.0]])
    expected = logistic_normal(mean[:, 0] - mean[:, 1], variance.sum(1))
    np.testing.assert_allclose(svgp._softmax_mean(mean, variance)[:, 0], expected, atol=0.02)
