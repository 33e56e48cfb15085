"""scikit-learn estimators: the public surface."""

from __future__ import annotations

from nearfield.estimators._base import TrainingRowsWarning
from nearfield.estimators._class_predictions import LeftOutClasses
from nearfield.estimators._explain import Explanation
from nearfield.estimators._gradients import PredictionGradient
from nearfield.estimators._noise import MissingNoiseWarning
from nearfield.estimators._numbers import LeftOutPredictions
from nearfield.estimators.classifier import GPClassifier
from nearfield.estimators.count_regressor import GPCountRegressor
from nearfield.estimators.regressor import GPRegressor

ESTIMATORS = {cls.__name__: cls for cls in (GPRegressor, GPClassifier, GPCountRegressor)}

__all__ = [
    "ESTIMATORS",
    "Explanation",
    "GPClassifier",
    "GPCountRegressor",
    "GPRegressor",
    "LeftOutClasses",
    "LeftOutPredictions",
    "MissingNoiseWarning",
    "PredictionGradient",
    "TrainingRowsWarning",
]
