"""Objectives beside LOO-k: MLL-k and Vecchia against dense algebra; groups of rows that are left out together."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from estimator_data import load_forged, quick, small, through_file

from nearfield import ModelFileError
from nearfield._types import KernelParameters
from nearfield.kernels import find_kernel
from nearfield.likelihoods.gaussian import Gaussian
from nearfield.model import Model, Rows
from nearfield.objectives import ordering
from nearfield.sweep import Sweeper

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


def dense(kernel, parameters, x, noise):
    x = x / parameters.log_lengths.detach().exp()
    r2 = (x[:, None] - x[None]).square().sum(-1)
    value = kernel.profile(r2, parameters.log_shape.detach()).value
    return (torch.exp(2 * parameters.log_scale.detach()) * value + torch.diag(noise.detach())).numpy()


def test_mll_of_all_rows_is_the_exact_marginal_likelihood():
    X, y = small(30)
    model, rows = univariate(X, y)
    ids = Sweeper(model, rows).own_ids(np.arange(30), 30)
    assert (np.sort(ids, axis=1) == np.arange(30)).all()
    K = dense_of(model, X)
    exact = scipy.stats.multivariate_normal(np.zeros(30), K).logpdf(y)
    np.testing.assert_allclose(model.joint(rows, torch.from_numpy(ids)).detach(), exact, atol=1e-8)


def univariate(X, y):
    likelihood = Gaussian()
    rows = Rows.of(likelihood, X, np.stack([y, np.ones(len(y)), np.zeros(len(y))], axis=1))
    return Model.initial(find_kernel("matern52"), X.shape[1], likelihood), rows


def dense_of(model, X):
    parameters = KernelParameters(model.log_lengths, model.log_scale, model.log_shape)
    return dense(model.kernel, parameters, torch.from_numpy(X), model.noise.expand(len(X)))


@pytest.mark.parametrize("name", ["random", "pca"])
def test_vecchia_with_all_rows_before_is_the_exact_marginal_likelihood(name):
    X, y = small(30)
    model, rows = univariate(X, y)
    rank = ordering(name, X, np.random.default_rng(0))
    ids = Sweeper(model, rows).earlier_ids(np.arange(30), 29, rank)
    with torch.no_grad():
        m = model.latent(rows, rows.inputs, torch.from_numpy(ids))
        scores = model.likelihood.log_predictive(m.mean, m.variance, rows.stats, model.noise_model)
    exact = scipy.stats.multivariate_normal(np.zeros(30), dense_of(model, X)).logpdf(y)
    assert float(scores.sum()) == pytest.approx(exact, abs=1e-5)  # but for the floor of the noise


def test_the_paper_orders_along_the_first_principal_component():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3)) * [1, 5, 1]
    rank = ordering("pca", X, rng)
    assert abs(scipy.stats.spearmanr(rank, X[:, 1]).statistic) > 0.95
    np.testing.assert_array_equal(np.sort(ordering("random", X, rng)), np.arange(50))


@pytest.mark.parametrize("objective", ["mll", "vecchia"])
def test_whole_fits_learn(objective):
    X, y = small(400)
    model = quick(objective=objective, max_steps=60, k=16).fit(X[:300], y[:300])
    assert np.sqrt(np.mean((model.predict(X[300:]) - y[300:]) ** 2)) < 0.25
    for arguments, target in (({"likelihood": "student_t"}, y), ({}, np.stack([y, y], axis=1))):
        with pytest.raises(ValueError, match="one output with Gaussian noise"):
            quick(objective=objective, **arguments).fit(X, target)


# --- groups ---------------------------------------------------------------------------------------------------------


def replicated(n=150, copies=2, noise=0.01, seed=0):
    X, y = small(n, seed=seed)
    rng = np.random.default_rng(seed + 1)
    again = np.tile(np.arange(n), copies)
    return (
        X[again] + noise * rng.standard_normal((n * copies, 3)),
        y[again] + noise * rng.standard_normal(n * copies),
        again,
    )


def test_a_row_is_left_out_with_its_group():
    X, y, labels = replicated(20)
    model = quick(predictive="gaussian").fit(X, y, groups=labels)
    inner, rows = model._fit.predictor.model, model._fit.predictor.rows
    Z, t = rows.inputs.numpy(), rows.stats.numpy()[:, 0]
    K, mean = dense_of(inner, Z), float(inner.mean)
    noise = float(inner.noise)
    for i in (0, 11):
        others = np.flatnonzero(labels != labels[i])
        expected = mean + (K[i, others]) @ np.linalg.solve(K[np.ix_(others, others)], t[others] - mean)
        assert model.loo_.mean[i] == pytest.approx(model._target.undo(expected), abs=1e-8)
    assert noise > 0


def test_groups_save_a_fit_of_replicates(tmp_path):
    """Replicates make rows look sure of themselves; left out together, they are as good as the rows alone."""
    X, y, labels = replicated(200)
    X_new, y_new = small(400, seed=5)
    score = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, groups in (("none", None), ("auto", "auto"), ("given", labels)):
            model = quick(max_steps=60).fit(X, y, groups=groups)
            score[name] = model.log_score(X_new, y_new)
        score["alone"] = quick(max_steps=60).fit(X[:200], y[:200]).log_score(X_new, y_new)
    assert score["auto"] == pytest.approx(score["given"], abs=0.02)
    assert score["given"] > score["alone"] - 0.1
    assert score["given"] > score["none"] + 0.1
    again = through_file(model, tmp_path)
    np.testing.assert_array_equal(again.loo_.mean, model.loo_.mean)
    before = model.loo_.mean
    model.update(X_new[:3], y_new[:3])
    assert len(model.loo_.mean) == len(before) + 3
    with pytest.raises(ModelFileError, match=r"'rows\.groups'"):
        load_forged(again, tmp_path, lambda header, arrays: arrays.update({"rows.groups": np.zeros(3, np.int64)}))


def test_replicates_are_reported():
    X, y, _ = replicated(200)
    with pytest.warns(UserWarning, match='pass groups="auto"'):
        quick().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().fit(X, y, groups="auto")
        quick().fit(*small(200))


def test_mistakes_are_named():
    X, y = small(30)
    with pytest.raises(ValueError, match=r"groups has shape \(3,\)"):
        quick().fit(X, y, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="one label for all rows"):
        quick().fit(X, y, groups=np.zeros(30))
    with pytest.raises(ValueError, match="groups is 'twins'"):
        quick().fit(X, y, groups="twins")
    with pytest.raises(ValueError, match="objective is 'elbo'"):
        quick(objective="elbo").fit(X, y)
    with pytest.raises(ValueError, match="ordering is 'alphabet'"):
        quick(objective="vecchia", ordering="alphabet").fit(X, y)
