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
    (-loss(model(x), y)).backward()
    svgp.natural_step(model, len(x), rate=1.0)  # of all rows, and the whole way: q(u) is at its optimum
    bound = loss(model(x), y)
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


@pytest.mark.parametrize("beta", [0.1, 1.0, 30.0])
def test_a_small_beta_makes_the_rows_count_more_in_a_natural_step(beta):
    """With beta before the KL divergence the best q(v) has precision 1 + A A' / (beta noise), u = L v."""
    x, y, Z = torch.as_tensor(X), torch.as_tensor(Y), torch.as_tensor(RNG.normal(size=(7, 2)))
    model, likelihood = svgp.make("svgp", Settings(), Z)
    (-svgp.objective("svgp", model, likelihood, 25, beta)(model(x), y)).backward()
    svgp.natural_step(model, 25 / beta, rate=1.0)
    L = torch.linalg.cholesky(kernel_of(model, Z, Z) + 1e-6 * torch.eye(7))
    A = torch.linalg.solve_triangular(L, kernel_of(model, Z, x), upper=False)
    precision = torch.eye(7) + A @ A.mT / (beta * likelihood.noise)
    found = -2 * model.variational_strategy._variational_distribution.natural_mat
    torch.testing.assert_close(found, precision.detach(), rtol=2e-3, atol=2e-3)


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


def several(name, W):
    """Model and likelihood of outputs W g at 7 inducing points, and models apart of the same latent functions g."""
    rng, p = np.random.default_rng(1), len(W)
    settings = Settings("multivariate", outputs=p)
    model, likelihood = svgp.make(name, settings, torch.as_tensor(RNG.normal(size=(7, 2))))
    model.variational_strategy.lmc_coefficients.data = torch.as_tensor(W.T).contiguous()
    model.variational_strategy.variational_params_initialized.fill_(1)
    for parameter in [*model.parameters(), *likelihood.parameters()]:
        if parameter is not model.variational_strategy.lmc_coefficients:
            change = 0.4 * torch.as_tensor(rng.normal(size=parameter.shape))
            matrix = parameter.shape == (p, 7, 7)  # of natural parameters: half of minus a precision
            parameter.data += -change @ change.mT if matrix else change
    apart = [svgp.make(name, Settings(), torch.zeros(7, 2, dtype=torch.float64)) for _ in range(p)]
    for j, (one, noise) in enumerate(apart):
        state = {key.replace("base_variational_strategy.", ""): value for key, value in model.state_dict().items()}
        state = {key: value for key, value in state.items() if key in one.state_dict()}
        one.load_state_dict({key: value[j] if value.shape[:1] == (p,) else value for key, value in state.items()})
        noise.noise = likelihood.task_noises[j].detach()
    return settings, model, likelihood, apart


def test_each_latent_function_has_its_own_kernel_mean_and_inducing_points_and_each_output_its_noise():
    Z = torch.as_tensor(X[:7])
    model, likelihood = svgp.make("svgp", Settings("multivariate", outputs=3), Z)
    points = model.variational_strategy.base_variational_strategy.inducing_points
    assert points.requires_grad
    torch.testing.assert_close(points.data, Z.expand(3, 7, 2))
    assert model.covar_module.base_kernel.raw_lengthscale.shape == (3, 1, 2)
    assert model.covar_module.raw_outputscale.shape == model.mean_module.raw_constant.shape == (3,)
    torch.testing.assert_close(likelihood.task_noises.data, torch.full((3,), 0.1, dtype=torch.float64))
    torch.testing.assert_close(model.variational_strategy.lmc_coefficients.data, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("name", ["svgp", "ppgpr"])
def test_both_take_the_same_settings_for_several_outputs(name):
    config = METHODS[name].build(Settings("multivariate", outputs=3)).config
    assert (config.inducing, config.betas) == (300, (0.1, 0.3, 0.5, 1.0))


@pytest.mark.parametrize("name", ["svgp", "ppgpr"])
def test_outputs_without_mixing_are_models_apart(name):
    settings, model, likelihood, apart = several(name, np.eye(3))
    x, y = torch.as_tensor(X), torch.as_tensor(RNG.normal(size=(25, 3)))
    found = svgp.objective(name, model, likelihood, 25, 0.3)(model(x), y)
    each = [svgp.objective(name, *one, 25, 0.3)(one[0](x), y[:, j]) for j, one in enumerate(apart)]
    torch.testing.assert_close(found, sum(each), rtol=1e-8, atol=1e-8)
    both = predicted(settings, model, likelihood)
    for j, one in enumerate(apart):
        alone = predicted(Settings(), *one)
        np.testing.assert_allclose(both.mean[:, j], alone.mean, atol=1e-8)
        np.testing.assert_allclose(both.dist.std()[:, j], alone.dist.std(), rtol=1e-8)


@pytest.mark.parametrize("name", ["svgp", "ppgpr"])
def test_mixed_outputs_have_the_moments_and_the_objective_of_the_formulas(name):
    W = np.array([[1.0, 0.5, -0.2], [0.0, 2.0, 0.3], [0.7, 0.0, -1.0]])
    settings, model, likelihood, apart = several(name, W)
    x, y, w = torch.as_tensor(X), torch.as_tensor(RNG.normal(size=(25, 3))), torch.as_tensor(W)
    value = svgp.objective(name, model, likelihood, 25, 0.3)(model(x), y)
    g = [one(x) for one, _ in apart]
    mean = torch.stack([each.mean for each in g], 1) @ w.T
    variance = torch.stack([each.variance for each in g], 1) @ w.T.square()
    noise = likelihood.task_noises
    if name == "svgp":
        fit = torch.distributions.Normal(mean, noise.sqrt()).log_prob(y) - variance / (2 * noise)
    else:
        fit = torch.distributions.Normal(mean, (variance + noise).sqrt()).log_prob(y)
    kl = sum(one.variational_strategy.kl_divergence() for one, _ in apart)
    torch.testing.assert_close(value, fit.sum() / 25 - 0.3 * kl / 25, rtol=1e-8, atol=1e-8)
    found = predicted(settings, model, likelihood)
    np.testing.assert_allclose(found.mean, mean.detach().numpy(), atol=1e-8)
    np.testing.assert_allclose(found.dist.var(), (variance + noise).detach().numpy(), rtol=1e-8)


def predicted(settings, model, likelihood):
    model.eval()
    return svgp.predict(model, likelihood, settings, X, None)


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


@pytest.mark.parametrize("natural", [True, False])
def test_steps_move_everything_and_raise_the_bound(natural):
    config = svgp.Config(inducing=7, betas=(1.0,), steps=40, batch=25, dtype="float64", natural=natural)
    training = svgp.Training("svgp", Settings(), config, 1.0, X[:7], X, Y, seed=0)
    x, y = torch.as_tensor(X), torch.as_tensor(Y)
    first = {name: value.detach().clone() for name, value in training.model.named_parameters()}
    assert any("natural" in name for name in first) == natural
    loss = svgp.objective("svgp", training.model, training.likelihood, 25, 1.0)
    before = loss(training.model(x), y).item()
    for _ in range(training.steps):
        training.step()
    assert loss(training.model(x), y).item() > before
    for name, value in training.model.named_parameters():
        assert not torch.equal(value, first[name]), name
