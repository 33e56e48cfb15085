"""scikit-learn estimators: the public surface."""

from __future__ import annotations

from nearfield.estimators._base import TrainingRowsWarning
from nearfield.estimators._noise import MissingNoiseWarning
from nearfield.estimators.classifier import GPClassifier
from nearfield.estimators.count_regressor import GPCountRegressor
from nearfield.estimators.regressor import GPRegressor

ESTIMATORS = {cls.__name__: cls for cls in (GPRegressor, GPClassifier, GPCountRegressor)}

__all__ = [
    "ESTIMATORS",
    "GPClassifier",
    "GPCountRegressor",
    "GPRegressor",
    "MissingNoiseWarning",
    "TrainingRowsWarning",
]
