"""SVGP (Hensman et al. 2013, 2015) and PPGPR (Jankowiak et al. 2020) with GPyTorch: inducing points Z (M, d), k-means
at the start and then learned, Matern-5/2 ARD.

    SVGP     sum_n E_q(f_n) log p(y_n | f_n) - beta KL(q(u) | p(u)),    q(u) Gaussian with full covariance
    PPGPR    sum_n log E_q(f_n) p(y_n | f_n) - beta KL(q(u) | p(u)),    q(u) Gaussian with diagonal covariance (MFD)

The mean is a learned constant for regression and zero for classes, as in the paper. Two classes have GPyTorch's
Bernoulli likelihood (probit), more a softmax of K latent functions, with kernel and inducing points in common: one
factorisation then serves all classes. Adam moves everything; but SVGP's q(u) follows the natural gradient where its
estimate is exact enough, which is not so for a softmax: each step goes a part of the way to the q(u) that is best for
its mini-batch, and a third of the steps suffices. beta is chosen on the validation rows; the largest is trained first,
for `steps`, and each smaller one starts from the last, for `more_steps` of smaller size.

Several outputs, y (n, p), are a linear model of coregionalisation: f = W g with p latent functions g, each with mean,
kernel and inducing points of its own, W (p, p) learned from the identity, and a noise variance for each output. PPGPR
then takes the marginal density of each output: log E_q(f_n) p(y_n | f_n) becomes a sum over the outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from experiments.methods.common import (
    adam,
    best_on_validation,
    blocks,
    configured,
    inducing_points,
    minibatches,
    natural_rate,
)
from experiments.methods.protocol import Array, Prediction, Settings, check_deadline, package

_SAMPLES = 512


@dataclass(frozen=True)
class Config:
    inducing: int
    betas: tuple[float, ...]
    steps: int
    more_steps: int = 80
    batch: int = 512
    rate: float = 0.1  # of Adam; the paper's 0.03 needs far more steps
    dtype: str = "float32"
    natural: bool = True  # whether q(u) follows the natural gradient where it can; else Adam moves everything


SVGP_BETAS, PPGPR_BETAS = (0.1, 0.3, 0.5, 1.0), (0.01, 0.05, 0.2, 1.0)  # paragraph "Univariate regression"
SEVERAL = Config(300, SVGP_BETAS, steps=500, batch=128)  # outputs: the same for SVGP and PPGPR
SEVERAL_QUICK = Config(128, (0.3,), steps=200, batch=128)
# The paper has 1000 inducing points for regression, 1024 for two classes, 512 for more, and 300 for several outputs.
SVGP = {
    "regression": Config(512, SVGP_BETAS, steps=500),
    "multivariate": SEVERAL,
    "binary": Config(512, SVGP_BETAS, steps=500),
    "multiclass": Config(256, SVGP_BETAS, steps=400, batch=256),
}
PPGPR = {"regression": Config(512, PPGPR_BETAS, steps=600, more_steps=120, batch=256), "multivariate": SEVERAL}
SVGP_QUICK, PPGPR_QUICK = Config(128, (0.3,), steps=200), Config(128, (0.05,), steps=300, batch=256)


def build_svgp(settings: Settings) -> InducingPointGP:
    quick = SEVERAL_QUICK if settings.task == "multivariate" else SVGP_QUICK
    return InducingPointGP("svgp", settings, configured(SVGP[settings.task], quick, settings))


def build_ppgpr(settings: Settings) -> InducingPointGP:
    quick = SEVERAL_QUICK if settings.task == "multivariate" else PPGPR_QUICK
    return InducingPointGP("ppgpr", settings, configured(PPGPR[settings.task], quick, settings))


class InducingPointGP:
    """See the module."""

    def __init__(self, name: str, settings: Settings, config: Config) -> None:
        package("gpytorch")
        self.name, self.settings, self.config = name, settings, config
        self.chosen: dict[str, Any] = {}
        self.model: Any
        self.likelihood: Any

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        Z = inducing_points(X, self.config.inducing, seed)
        models: dict[float, tuple[Any, Any]] = {}
        start = None

        def fit_one(beta: float) -> Callable[[Array], Prediction]:
            nonlocal start
            training = Training(self.name, self.settings, self.config, beta, Z, X, y, seed, start)
            start = train(training, deadline)
            models[beta] = model = copy.deepcopy(start)
            return lambda x: predict(*model, self.settings, x, deadline)

        beta, _ = best_on_validation(sorted(self.config.betas, reverse=True), fit_one, X_val, y_val, deadline)
        self.model, self.likelihood = models[beta]
        self.chosen = {"beta_reg": beta, "inducing": len(Z), "steps": self.config.steps}

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        return predict(self.model, self.likelihood, self.settings, X, deadline)


def make(name: str, settings: Settings, Z: torch.Tensor, apart: bool | None = None) -> tuple[Any, Any]:
    """Untrained model and likelihood, inducing points at Z (M, d).

    `apart`: whether q(u) will follow the natural gradient, apart from the rest; if not given, where it can.
    """
    import gpytorch
    from gpytorch import variational

    classes = settings.classes if settings.task == "multiclass" else 0
    outputs = settings.outputs if settings.task == "multivariate" else 0
    shape = torch.Size([classes or outputs] if classes or outputs else [])
    own = shape if outputs else torch.Size()  # of what each latent function has for itself
    apart = natural(name, settings) if apart is None else apart
    family = "MeanField" if name == "ppgpr" else "Natural" if apart else "Cholesky"

    class GP(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = getattr(variational, f"{family}VariationalDistribution")(len(Z), batch_shape=shape)
            points = Z.expand(*own, *Z.shape)
            strategy = variational.VariationalStrategy(self, points, q, learn_inducing_locations=True)
            if classes:
                strategy = variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=classes)
            if outputs:  # jitter is for covariances between rows, of which none are needed
                strategy = variational.LMCVariationalStrategy(strategy, outputs, outputs, jitter_val=0.0)
                strategy.lmc_coefficients.data = torch.eye(outputs)  # W transposed
            super().__init__(strategy)
            means, labels = gpytorch.means, settings.task in ("binary", "multiclass")
            self.mean_module = means.ZeroMean() if labels else means.ConstantMean(batch_shape=own)
            kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=Z.shape[-1], batch_shape=own)
            kernel.lengthscale = Z.shape[-1] ** 0.5  # typical distances of standardised rows
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=own)

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    least = gpytorch.constraints.GreaterThan(1e-6)
    if settings.task == "regression":
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=least)
        likelihood.noise = 0.1
    elif settings.task == "multivariate":
        kind = gpytorch.likelihoods.MultitaskGaussianLikelihood
        likelihood = kind(outputs, rank=0, noise_constraint=least, has_global_noise=False)
        likelihood.task_noises = torch.full((outputs,), 0.1)
    elif settings.task == "binary":
        likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    else:
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=classes, mixing_weights=False)
    return GP().to(Z.dtype), likelihood.to(Z.dtype)


def objective(name: str, model: Any, likelihood: Any, n: int, beta: float) -> Any:
    """GPyTorch's objective, per row: called with model(x) and y."""
    import gpytorch

    kind = gpytorch.mlls.PredictiveLogLikelihood if name == "ppgpr" else gpytorch.mlls.VariationalELBO
    return kind(likelihood, model, num_data=n, beta=beta)


class Training:
    """Model and likelihood at work: each `step` is one on the next mini-batch. `start` is trained on, if given."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        config: Config,
        beta: float,
        Z: Array,
        X: Array,
        y: NDArray,
        seed: int,
        start: tuple[Any, Any] | None = None,
    ) -> None:
        dtype = getattr(torch, config.dtype)
        self._x = torch.as_tensor(X, dtype=dtype)
        self._target = torch.as_tensor(y, dtype=torch.long if settings.task == "multiclass" else dtype)
        self._apart = config.natural and natural(name, settings)
        torch.manual_seed(seed)
        self.model, self.likelihood = start or make(name, settings, torch.as_tensor(Z, dtype=dtype), self._apart)
        self.model.train()
        self.likelihood.train()
        n = len(self._x)
        self._loss = objective(name, self.model, self.likelihood, n, beta)
        self.steps, rate = (config.more_steps, config.rate / 5) if start else (config.steps, config.rate)
        moved = [*self.model.hyperparameters()] if self._apart else [*self.model.parameters()]
        self._optimiser, self._schedule = adam([*moved, *self.likelihood.parameters()], self.steps, rate)
        self._batches = enumerate(minibatches(n, config.batch, self.steps, seed))
        self._weight = n / beta

    def step(self) -> None:
        """One of `steps`."""
        number, rows = next(self._batches)
        self.model.zero_grad()
        self._optimiser.zero_grad()
        (-self._loss(self.model(self._x[rows]), self._target[rows])).backward()
        if self._apart:
            natural_step(self.model, self._weight, natural_rate(number))
        self._optimiser.step()
        self._schedule.step()


def train(training: Training, deadline: float | None) -> tuple[Any, Any]:
    """All steps; the trained model and likelihood."""
    for _ in range(training.steps):
        check_deadline(deadline)
        training.step()
    training.model.eval()
    training.likelihood.eval()
    return training.model, training.likelihood


def natural(name: str, settings: Settings) -> bool:
    """Whether q(u) can follow the natural gradient."""
    return name == "svgp" and settings.task != "multiclass"


def natural_step(model: Any, weight: float, rate: float) -> None:
    """q(u) goes the part `rate` of the way to its optimum; the gradients of its parameters are the natural ones.

    `weight` times the objective per row is the objective with a factor of one before the KL divergence.
    """
    for parameter in model.variational_parameters():
        parameter.data.add_(parameter.grad, alpha=-rate * weight)


def predict(model: Any, likelihood: Any, settings: Settings, X: Array, deadline: float | None) -> Prediction:
    """Predictive distributions at X (m, d)."""
    found = []
    dtype = next(model.parameters()).dtype
    numbers = settings.task in ("regression", "multivariate")
    for rows in blocks(len(X), 2048 // settings.outputs):
        check_deadline(deadline)
        with torch.no_grad():
            f = model(torch.as_tensor(X[rows], dtype=dtype))
            mean, variance = f.mean.double().numpy(), f.variance.double().numpy()  # (m,), (m, K) or (m, p)
        if numbers:
            noise = likelihood.noise if settings.outputs == 1 else likelihood.task_noises
            found.append(np.stack([mean, variance + noise.detach().double().numpy()], axis=-1))
        elif settings.task == "binary":
            p = ndtr(mean / np.sqrt(1 + variance))
            found.append(np.c_[1 - p, p])
        else:
            found.append(_softmax_mean(mean, variance))
    table = np.concatenate(found)
    if numbers:
        return Prediction.normal(table[..., 0], np.sqrt(table[..., 1]))
    return Prediction.classes(table)


def _softmax_mean(mean: Array, variance: Array) -> Array:
    """Mean of the softmax over N(mean, variance), (m, K) each; the latent functions are independent under q.

    The same samples serve every row, so that a prediction does not depend on the rows beside it.
    """
    normal = np.random.default_rng(0).normal(size=(_SAMPLES, 1, mean.shape[1]))
    total = np.zeros_like(mean)
    for sample in normal:
        f = mean + np.sqrt(variance) * sample
        e = np.exp(f - f.max(1, keepdims=True))
        total += e / e.sum(1, keepdims=True)
    return total / _SAMPLES
