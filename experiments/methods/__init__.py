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
    "Prediction",
    "Settings",
    "TooLarge",
    "check_deadline",
]


def _method(name: str, kind: str, where: str) -> Method:
    """`kind`: tasks between blanks. `where`: "module:builder", imported when the method is first built."""
    module, builder = where.split(":")

    def build(settings: Settings) -> Fittable:
        if settings.task not in kind.split():
            raise ValueError(f"{name} does {kind}, not {settings.task}")
        make: Callable[[Settings], Fittable] = getattr(import_module(f"experiments.methods.{module}"), builder)
        return make(settings)

    return Method(name, frozenset(kind.split()), build)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _method("exact-mll", "regression", "exact:build_mll"),
        _method("exact-loo", "regression", "exact:build_loo"),
        _method("svgp", "regression multivariate binary multiclass", "svgp:build_svgp"),
        _method("ppgpr", "regression multivariate", "svgp:build_ppgpr"),
        _method("swsgp", "regression", "swsgp:build"),
        _method("alc", "regression", "alc:build"),
        _method("pgvi", "binary", "pgvi:build"),
        _method("gpboost", "regression binary", "others:build_gpboost"),
        _method("muygps", "regression", "others:build_muygps"),
        _method("catboost", "regression binary multiclass", "others:build_catboost"),
        _method("ngboost", "regression", "others:build_ngboost"),
        _method("hist-boosting", "binary multiclass", "others:build_hist_boosting"),
    )
}
