"""What the tests of the estimators share: small data and fits that take a moment."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from dense import bent, correlation, rough_of
from scipy.special import expit

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, checkpoint
from nearfield.persistence import read_file, write_file
from nearfield.rows import Rows
from nearfield.sweep import Sweeper

_QUICK = {"max_steps": 8, "refresh_every": 4, "random_state": 0}


def quick(**arguments):
    return GPRegressor(**{**_QUICK, **arguments})


def quick_classifier(**arguments):
    return GPClassifier(**{**_QUICK, **arguments})


def quick_counts(**arguments):
    return GPCountRegressor(**{**_QUICK, **arguments})


def small(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def log_odds(X):
    return 2 * np.sin(2 * X[:, 0]) + X[:, 1]


def labelled(n=120, classes=2, seed=0):
    """Inputs (n, 2) and labels (n,) 0, 1, .. that depend on them, each of them present."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    if classes == 2:
        y = (rng.random(n) < expit(log_odds(X))).astype(int)
    else:
        y = np.digitize(log_odds(X) + rng.logistic(size=n), np.linspace(-1.5, 1.5, classes - 1))
    y[:classes] = np.arange(classes)
    return X, y


def counted(n=120, dispersion=3.0, seed=0, exposure=1.0):
    """Inputs (n, 2), negative binomial counts (n,) and the rates (n,) per unit of exposure behind them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    rate = np.exp(1.5 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1])
    mean = rate * exposure
    return X, rng.negative_binomial(dispersion, dispersion / (dispersion + mean)), rate


def assert_probabilities(p, rows, classes):
    assert p.shape == (rows, classes)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)


def on_rows(model, X, observed, settle_k=64):
    """A copy of the model with the same parameters and head on other rows, their site state found anew.

    observed: arrays by name, in the units of the model, for inputs X (n, d) in those of the user.
    """
    old, other = model._fit, pickle.loads(pickle.dumps(model))
    rows = Rows.of(old.predictor.model.family, old.inputs.apply(X), observed)
    rows = rows.with_state(Sweeper(old.predictor.model, rows).settled(settle_k)[0])
    other._places = np.arange(len(rows.observations))
    other._adopt(replace(old, predictor=replace(old.predictor, rows=rows)))
    return other


def dense_moments(model, X):
    """Mean and variance (n, C) of the latent functions at X (n, d) from all training rows, by plain linear algebra.

    For latent functions that do not depend on each other; what is learned and the sites are those of the model.
    """
    fit, own = model._fit, model._fit.predictor.model
    rows, p = fit.predictor.rows, own.parameters
    sites = own.family.sites(rows.observed, rows.state, p, own.scale2)
    n, C = len(rows), own.family.latents
    lengths = np.broadcast_to(np.exp(p["log_lengths"]), (C, X.shape[1]))
    noises, scale2 = np.broadcast_to(sites.noises, (n, C)), np.broadcast_to(own.scale2, C)
    near, far = own.mean.at(rows.inputs, p), own.mean.at(fit.inputs.apply(X), p)
    near, far = np.broadcast_to(near, (n, C)), np.broadcast_to(far, (len(X), C))
    mean, variance = np.empty((2, len(X), C))
    for c in range(C):
        a, b = bent(own, rows.inputs), bent(own, fit.inputs.apply(X))
        within, across = (correlation(a, other, np.log(lengths[c]), rough_of(own)) for other in (a, b))
        solved = np.linalg.solve(
            within + np.diag(noises[:, c]), np.column_stack([sites.targets[:, c] - near[:, c], across])
        )
        mean[:, c] = far[:, c] + across.T @ solved[:, 0]
        variance[:, c] = scale2[c] * (1 - np.sum(across * solved[:, 1:], axis=0))
    return mean, variance


def through_file(model, folder):
    """The model after a round trip through a file."""
    model.save(folder / "model.nearfield")
    return type(model).load(folder / "model.nearfield")


def load_forged(model, folder, change):
    """Load the model after `change(sections, arrays)` of its file."""
    model.save(folder / "model.nearfield")
    return type(model).load(forged(folder / "model.nearfield", folder / "bad.nearfield", change))


def forged(path, other, change):
    """The path of another file like that at `path` after `change(sections, arrays)`."""
    _, header, arrays = read_file(path)
    change(header["sections"], arrays)
    write_file(other, header, arrays)
    return other


def crash_after_checkpoint(monkeypatch, fit, which=2):
    """Call `fit`, interrupted right after it has written its checkpoint for the time `which`."""
    writes = []

    def write_then_crash(*args):
        write_file(*args)
        writes.append(args)
        if len(writes) == which:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_file", write_then_crash)
        with pytest.raises(KeyboardInterrupt):
            fit()
