"""Calibrated prediction with nearest-neighbour Gaussian processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearfield.copied import CopiesWarning
    from nearfield.encoding import TableEncoder
    from nearfield.estimators import (
        GPClassifier,
        GPCountRegressor,
        GPRegressor,
        MissingNoiseWarning,
        TrainingRowsWarning,
    )
    from nearfield.persistence import ModelFileError
    from nearfield.wild import WildValuesWarning

__version__ = "0.1.0"
__all__ = [
    "CopiesWarning",
    "GPClassifier",
    "GPCountRegressor",
    "GPRegressor",
    "MissingNoiseWarning",
    "ModelFileError",
    "TableEncoder",
    "TrainingRowsWarning",
    "WildValuesWarning",
    "__version__",
]

_HOMES = {
    "CopiesWarning": "nearfield.copied",
    "GPClassifier": "nearfield.estimators",
    "GPCountRegressor": "nearfield.estimators",
    "GPRegressor": "nearfield.estimators",
    "MissingNoiseWarning": "nearfield.estimators",
    "TrainingRowsWarning": "nearfield.estimators",
    "ModelFileError": "nearfield.persistence",
    "TableEncoder": "nearfield.encoding",
    "WildValuesWarning": "nearfield.wild",
}


def __getattr__(name: str) -> Any:
    """Load the estimators when first asked for: they need Numba, which `nearfield --help` should not wait for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nearfield' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
