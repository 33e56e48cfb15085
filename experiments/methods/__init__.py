"""The methods of the experiments, by name. See `protocol.py` for what each of them must do.

A new method is one class and one line in METHODS; `tests/experiments/test_methods.py` then runs it on every kind of
task that the line claims.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from experiments.methods.protocol import (
    Fittable,
    Method,
    MissingPackage,
    OutOfTime,
    Prediction,
    Settings,
    TooLarge,
    check_deadline,
)

__all__ = [
    "METHODS",
    "Fittable",
    "Method",
    "MissingPackage",
    "OutOfTime",
    "Prediction",
    "Settings",
    "TooLarge",
    "check_deadline",
]


def _method(name: str, kind: str, where: str, about: str) -> Method:
    """`kind`: tasks between blanks. `where`: "module:builder", imported when the method is first built."""
    module, builder = where.split(":")

    def build(settings: Settings) -> Fittable:
        if settings.task not in kind.split():
            raise ValueError(f"{name} does {kind}, not {settings.task}")
        make: Callable[[Settings], Fittable] = getattr(import_module(f"experiments.methods.{module}"), builder)
        return make(settings)

    return Method(name, frozenset(kind.split()), build, about)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _method("exact-mll", "regression", "exact:build_mll", "exact GP trained by its marginal likelihood"),
        _method("exact-loo", "regression", "exact:build_loo", "exact GP trained by leaving each row out"),
        _method(
            "svgp",
            "regression multivariate binary multiclass",
            "svgp:build_svgp",
            "variational inducing points, GPyTorch",
        ),
        _method(
            "ppgpr",
            "regression multivariate",
            "svgp:build_ppgpr",
            "inducing points trained by the predictive likelihood, GPyTorch",
        ),
        _method("swsgp", "regression", "swsgp:build", "variational inducing points, the nearest ones for each row"),
        _method(
            "alc", "regression", "alc:build", "a GP for each test row, on rows chosen one by one to reduce its variance"
        ),
        _method("pgvi", "binary", "pgvi:build", "inducing points with Polya-Gamma variables"),
        _method("gpboost", "regression binary", "others:build_gpboost", "GPBoost, Vecchia's approximation"),
        _method("muygps", "regression", "others:build_muygps", "MuyGPyS"),
        _method(
            "catboost",
            "regression binary multiclass",
            "others:build_catboost",
            "CatBoost, for numbers with RMSEWithUncertainty",
        ),
        _method("ngboost", "regression", "others:build_ngboost", "NGBoost with a normal predictive"),
        _method(
            "hist-boosting",
            "binary multiclass",
            "others:build_hist_boosting",
            "scikit-learn's HistGradientBoostingClassifier",
        ),
    )
}
