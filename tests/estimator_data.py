"""What the tests of the estimators share: small data and fits that take a moment."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, fitting
from nearfield.model import Rows
from nearfield.persistence import read_file, write_file
from nearfield.sweep import Sweeper

_QUICK = {"max_steps": 20, "refresh_every": 10, "random_state": 0}


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


def on_rows(model, X, stats, settle_k=64):
    """A copy of the model with the same hyper-parameters and head on other rows, their auxiliaries found anew."""
    old, other = model._fit, pickle.loads(pickle.dumps(model))
    rows = Rows.of(old.predictor.model.likelihood, old.inputs.apply(X), stats)
    Sweeper(old.predictor.model, rows).settle(settle_k)
    other._adopt(replace(old, predictor=replace(old.predictor, rows=rows)))
    return other


def with_engine(model, engine):
    """A copy of the model that computes with another engine."""
    old, other = model._fit, pickle.loads(pickle.dumps(model))
    predictor = replace(old.predictor, model=replace(old.predictor.model, engine=engine))
    other._adopt(replace(old, predictor=predictor))
    return other


def through_file(model, folder):
    """The model after a round trip through a file."""
    model.save(folder / "model.nearfield")
    return type(model).load(folder / "model.nearfield")


def load_forged(model, folder, change):
    """Load the model after `change(header, arrays)` of its file."""
    model.save(folder / "model.nearfield")
    header, arrays = read_file(folder / "model.nearfield")
    change(header, arrays)
    write_file(folder / "bad.nearfield", header, arrays)
    return type(model).load(folder / "bad.nearfield")


def crash_after_checkpoint(monkeypatch, fit, which=2):
    """Call `fit`, interrupted right after it has written its checkpoint for the time `which`."""
    writes = []

    def write_then_crash(*args):
        write_file(*args)
        writes.append(args)
        if len(writes) == which:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "write_file", write_then_crash)
        with pytest.raises(KeyboardInterrupt):
            fit()
