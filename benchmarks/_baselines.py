"""Alternatives that nearfield is compared with, each written the way its own users would.

Packages are imported when a baseline is called: install them with `pip install 'nearfield[benchmarks]'`.
Shapes: b rows in a mini-batch, k neighbours, d inputs, n training rows, m test rows.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from _timing import peak_rss_mb


@dataclass(frozen=True)
class Fitted:
    """What a fit-and-predict baseline returns: predictive mean and standard deviation (m,) with noise, and seconds."""

    mean: np.ndarray
    std: np.ndarray
    fit_seconds: float
    predict_seconds: float


@dataclass(frozen=True)
class Isolated:
    """Outcome of `run_isolated`: "finished", "did not finish" (time limit) or "failed: ..."; NaN where unknown."""

    outcome: str
    result: Any = None
    seconds: float = float("nan")
    peak_mb: float = float("nan")


def natural_step(query, neighbours, targets, y, log_lengthscales, log_variance, log_noise):
    """One LOO-k mini-batch in plain PyTorch autograd: the mean negative log density of `y`, after `.backward()`.

    query (b, d), neighbours (b, k, d), targets (b, k), y (b,); log_lengthscales (d,), log_variance () of the Matern 5/2
    kernel and log_noise () of the noise variance are leaves with requires_grad, and their .grad is added to.
    """
    import torch

    lengthscales, variance, noise = log_lengthscales.exp(), log_variance.exp(), log_noise.exp()
    z = (neighbours - query.unsqueeze(1)) / lengthscales
    K = variance * _matern52(_squared_distances(z))
    K = K + noise * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    c = variance * _matern52(z.square().sum(-1))
    L = torch.linalg.cholesky(K)
    a, b = torch.linalg.solve_triangular(L, torch.stack([targets, c], dim=-1), upper=False).unbind(-1)
    mean = (a * b).sum(-1)
    var = variance + noise - b.square().sum(-1)
    loss = -torch.distributions.Normal(mean, var.sqrt()).log_prob(y).mean()
    loss.backward()
    return loss.detach()


def _squared_distances(z):
    """All pairs within each row's neighbourhood, (b, k, d) -> (b, k, k), by one batched matrix product."""
    norms = z.square().sum(-1)
    return norms.unsqueeze(-1) + norms.unsqueeze(-2) - 2 * z @ z.mT


def _matern52(squared):
    """Matern 5/2 of squared scaled distances; the clamp keeps the slope of the root finite where rows coincide."""
    r = 5**0.5 * squared.clamp_min(1e-20).sqrt()
    return (1 + r + r.square() / 3) * (-r).exp()


def svgp_step_factory(X, y, n_inducing=1024, batch=256, learning_rate=0.01, dtype="float32", seed=0) -> SvgpSteps:
    """GPyTorch's sparse variational GP on X (n, d), y (n,): call the result for one training step.

    "float32" is GPyTorch's default; "float64" compares at equal precision.
    """
    return SvgpSteps(X, y, n_inducing, batch, learning_rate, dtype, seed)


class SvgpSteps:
    """Calling it makes one Adam step on the next mini-batch and returns the loss; `predict` works at any time."""

    def __init__(self, X, y, n_inducing, batch, learning_rate, dtype, seed):
        import gpytorch
        import torch

        self.torch, self.gpytorch = torch, gpytorch
        self.dtype = getattr(torch, dtype)
        self.generator = torch.Generator().manual_seed(seed)
        self.X, self.y = torch.as_tensor(X, dtype=self.dtype), torch.as_tensor(y, dtype=self.dtype)
        self.batch, self.order = batch, torch.empty(0, dtype=torch.long)
        inducing = self.X[torch.randperm(len(self.X), generator=self.generator)[:n_inducing]].clone()
        self.model = _svgp(inducing).to(self.dtype)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().to(self.dtype)
        self.objective = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=len(self.X))
        parameters = [*self.model.parameters(), *self.likelihood.parameters()]
        self.optimiser = torch.optim.Adam(parameters, lr=learning_rate)

    def __call__(self) -> float:
        self.model.train()
        self.likelihood.train()
        if len(self.order) < self.batch:
            self.order = self.torch.randperm(len(self.X), generator=self.generator)
        rows, self.order = self.order[: self.batch], self.order[self.batch :]
        self.optimiser.zero_grad()
        loss = -self.objective(self.model(self.X[rows]), self.y[rows])
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def predict(self, X_test, block=4096) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (m,) of new observations at X_test (m, d)."""
        self.model.eval()
        self.likelihood.eval()
        X_test = self.torch.as_tensor(X_test, dtype=self.dtype)
        with self.torch.no_grad():
            parts = [self.likelihood(self.model(x)) for x in X_test.split(block)]
            mean = self.torch.cat([p.mean for p in parts]).double().numpy()
            std = self.torch.cat([p.stddev for p in parts]).double().numpy()
        return mean, std


def _svgp(inducing):
    """The model of GPyTorch's SVGP tutorial with a Matern 5/2 ARD kernel; inducing (n_inducing, d)."""
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.means import ConstantMean
    from gpytorch.models import ApproximateGP
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Svgp(ApproximateGP):
        def __init__(self):
            distribution = CholeskyVariationalDistribution(len(inducing))
            super().__init__(VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True))
            self.mean_module = ConstantMean()
            self.covar_module = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=inducing.shape[1]))

        def forward(self, x):
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Svgp()


def gpboost_vecchia(X, y, X_test, num_neighbors=20, threads=None, seed=0) -> Fitted:
    """GPBoost's Vecchia approximation, Matern 5/2 ARD: X (n, d), y (n,), X_test (m, d)."""
    import gpboost

    def fit():
        model = gpboost.GPModel(
            gp_coords=X,
            cov_function="matern_ard",
            cov_fct_shape=2.5,
            likelihood="gaussian",
            gp_approx="vecchia",
            num_neighbors=num_neighbors,
            num_parallel_threads=threads,
            seed=seed,
        )
        return model.fit(y=y)

    model, fit_seconds = _timed(fit)
    found, predict_seconds = _timed(model.predict, gp_coords_pred=X_test, predict_var=True, predict_response=True)
    return Fitted(np.asarray(found["mu"]), np.sqrt(found["var"]), fit_seconds, predict_seconds)


def muygps(
    X, y, X_test, nn_count=50, batch_count=500, anisotropic=False, max_iterations=100, block=1000, seed=0
) -> Fitted:
    """MuyGPyS as in its regression tutorial, Matern 5/2: X (n, d), y (n,), X_test (m, d).

    Length scales and noise are learned from the leave-one-out loss of `batch_count` rows; neighbours are those of the
    unscaled inputs. Its gradients are finite differences, d + 2 evaluations each when anisotropic, and the last digits
    of the loss can take most of the time: `max_iterations` of L-BFGS spare it that.
    """
    from MuyGPyS.neighbors import NN_Wrapper

    np.random.seed(seed)  # noqa: NPY002 - MuyGPyS draws its batch from the global generator
    model = _muygps_model(X.shape[1], anisotropic)
    lookup, search_seconds = _timed(NN_Wrapper, X, nn_count, nn_method="exact", algorithm="auto")
    model, learn_seconds = _timed(_muygps_learn, model, lookup, X, y, batch_count, max_iterations)
    (mean, variance), predict_seconds = _timed(_muygps_predict, model, lookup, X, y, X_test, block)
    return Fitted(mean, np.sqrt(variance), search_seconds + learn_seconds, predict_seconds)


def _muygps_model(d, anisotropic):
    from MuyGPyS.gp import MuyGPS
    from MuyGPyS.gp.deformation import Anisotropy, Isotropy, l2
    from MuyGPyS.gp.hyperparameter import AnalyticScale, Parameter, VectorParameter
    from MuyGPyS.gp.kernels import Matern
    from MuyGPyS.gp.noise import HomoscedasticNoise

    bounds, start = (1e-1, 1e2), float(np.sqrt(d))
    if anisotropic:
        deformation = Anisotropy(l2, VectorParameter(*(Parameter(start, bounds) for _ in range(d))))
    else:
        deformation = Isotropy(l2, Parameter(start, bounds))
    kernel = Matern(smoothness=Parameter(2.5), deformation=deformation)
    return MuyGPS(kernel=kernel, noise=HomoscedasticNoise(1e-2, (1e-6, 1.0)), scale=AnalyticScale())


def _muygps_learn(model, lookup, X, y, batch_count, max_iterations):
    from MuyGPyS.optimize import L_BFGS_B_optimize
    from MuyGPyS.optimize.batch import sample_batch
    from MuyGPyS.optimize.loss import lool_fn

    rows, nn_rows = sample_batch(lookup, batch_count, len(X))
    crosswise, pairwise, targets, nn_targets = model.make_train_tensors(rows, nn_rows, X, y)
    options = {"maxiter": max_iterations}
    model = L_BFGS_B_optimize(model, targets, nn_targets, crosswise, pairwise, loss_fn=lool_fn, options=options)
    return model.optimize_scale(pairwise, nn_targets)


def _muygps_predict(model, lookup, X, y, X_test, block):
    """Mean and variance (m,), in blocks: the differences of a block take block x k x k x d numbers."""
    means, variances = [], []
    for start in range(0, len(X_test), block):
        x = X_test[start : start + block]
        nn_rows, _ = lookup.get_nns(x)
        crosswise, pairwise, nn_targets = model.make_predict_tensors(np.arange(len(x)), nn_rows, x, X, y)
        Kin, Kcross = model.kernel(pairwise), model.kernel(crosswise)
        means.append(model.posterior_mean(Kin, Kcross, nn_targets))
        # The posterior variance is that of the noise-free value.
        variances.append(model.posterior_variance(Kin, Kcross) + model.scale() * model.noise())
    return np.concatenate(means).ravel(), np.concatenate(variances).ravel()


def run_isolated(func: Callable[..., Any], args: Sequence[Any] = (), timeout: float = 600.0) -> Isolated:
    """Run `func(*args)` in a fresh process: its result, wall seconds (without start-up) and peak memory.

    The peak counts the whole process, libraries and arguments included. `func` must be importable; the calling script
    needs the usual `if __name__ == "__main__":`.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # Not a daemon: joblib gives daemons one job only, which would slow down the baselines that use it.
    process = context.Process(target=_child, args=(sender, func, tuple(args)))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(timeout) else Isolated("did not finish", seconds=timeout)
    except EOFError:
        process.join()
        return Isolated(f"failed: the process ended with exit code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()


def _child(sender: Connection, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        result, seconds = _timed(func, *args)
        sender.send(Isolated("finished", result, seconds, peak_rss_mb()))
    except Exception as error:
        traceback.print_exc()
        sender.send(Isolated(f"failed: {type(error).__name__}: {error}", peak_mb=peak_rss_mb()))


def _timed(func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = func(*args, **kwargs)
    return result, time.perf_counter() - start
