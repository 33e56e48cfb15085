"""Our methods behind the protocol of `experiments.methods`, through the public API only.

`loo-k` is the paper's: the plain, Gaussian predictive and metric. `loo-k-calibrated` is the default of GPRegressor, and
`loo-k-learned` the same with the plain predictive: warps and smoothness are learned. `mll-k` and `vecchia` differ from
`loo-k` in what is maximised alone; `vecchia-random` has a better order of the rows than the
paper's. Of classes, `tied` is the default of GPClassifier, `conjugate` has a weight for each row, `lognormal` is the
paper's. Of several outputs, `loo-k` and `loo-k-calibrated` make a linear model of coregionalisation, the default of
GPRegressor; `loo-k-independent` is calibrated too, with a kernel for each output. None of them uses the validation
rows: k is chosen on training rows that are left out, or set by the option "k".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.methods import METHODS, Fittable, Method, Prediction, Settings
from experiments.methods.protocol import Array

QUICK_STEPS = 150


def _arguments(settings: Settings, own: Mapping[str, Any]) -> dict[str, Any]:
    quick = {"max_steps": QUICK_STEPS} if settings.quick else {}
    return {**own, **quick, **settings.options, "verbose": False}


def _chosen(model: Any) -> dict[str, Any]:
    """Of any of our estimators: k, steps, and scores of left-out training rows."""
    return {"k": int(model.k_), "steps": model.summary_.steps, "left_out": dict(model.summary_.left_out)}


class Regression:
    """GPRegressor with the given arguments, those of `fit` apart; `model` is the estimator once fitted."""

    def __init__(self, groups: str | None = None, **arguments: Any) -> None:
        self.groups, self.arguments = groups, arguments
        self.chosen: dict[str, Any] = {}

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        from nearfield import GPRegressor

        self.model = GPRegressor(random_state=seed, **self.arguments).fit(X, y, groups=self.groups)
        self.chosen = _chosen(self.model) | {"noise": self.model.noise_std_}
        if y.ndim == 2:  # left-out rows may have refused to mix the outputs
            self.chosen["mixed"] = self.model.mixing_ is not None

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        dist = self.model.predict_dist(X)
        return Prediction(mean=dist.mean(), dist=dist)


class Classification:
    """GPClassifier with the given arguments. Classes that training did not have are given no probability."""

    def __init__(self, classes: int, **arguments: Any) -> None:
        self.classes, self.arguments = classes, arguments
        self.chosen: dict[str, Any] = {}

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        from nearfield import GPClassifier

        self.model = GPClassifier(random_state=seed, **self.arguments).fit(X, y)
        self.chosen = _chosen(self.model)

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        probabilities = np.zeros((len(X), self.classes))
        probabilities[:, self.model.classes_] = self.model.predict_proba(X)
        return Prediction.classes(probabilities)


def _regression(name: str, about: str, kind: str = "regression", **own: Any) -> Method:
    """`kind`: tasks between blanks."""

    def build(settings: Settings) -> Fittable:
        return Regression(**_arguments(settings, own))

    return Method(name, frozenset(kind.split()), build, about)


def _classification(name: str, about: str, **own: Any) -> Method:
    def build(settings: Settings) -> Fittable:
        return Classification(settings.classes, **_arguments(settings, own))

    return Method(name, frozenset({"binary", "multiclass"}), build, about)


_OUTPUTS = "regression multivariate"

OURS: dict[str, Method] = {
    method.name: method
    for method in (
        _regression(
            "loo-k", "LOO-k as in the paper, Gaussian predictive", _OUTPUTS, predictive="plain", metric="plain"
        ),
        _regression("loo-k-learned", "the same with a metric that is learned", _OUTPUTS, predictive="plain"),
        _regression(
            "loo-k-calibrated",
            "LOO-k with calibrated Student-t predictive, the default of GPRegressor",
            _OUTPUTS,
            predictive="calibrated",
        ),
        _regression(
            "loo-k-independent",
            "the same with a kernel for each output",
            _OUTPUTS,
            predictive="calibrated",
            outputs="independent",
        ),
        _regression(
            "mll-k", "likelihood of each row with its k neighbours", predictive="plain", metric="plain", objective="mll"
        ),
        _regression(
            "vecchia",
            "Vecchia's likelihood, rows in the order of the first principal component, as in the paper",
            predictive="plain",
            metric="plain",
            objective="vecchia",
            ordering="pca",
        ),
        _regression(
            "vecchia-random",
            "Vecchia's likelihood, rows in random order",
            predictive="plain",
            metric="plain",
            objective="vecchia",
            ordering="random",
        ),
        _classification(
            "loo-k-tied", "LOO-k, one weight for all labels, the default of GPClassifier", auxiliary="tied"
        ),
        _classification("loo-k-conjugate", "LOO-k, a weight for each row by conjugate updates", auxiliary="conjugate"),
        _classification(
            "loo-k-lognormal",
            "LOO-k with learned log-normal Polya-Gamma variables, as in the paper",
            auxiliary="lognormal",
            metric="plain",
        ),
    )
}

ALL_METHODS: dict[str, Method] = OURS | METHODS
