"""The one protocol behind which every method stands: fit, predict -> Prediction.

The harness standardises: every column of X, and y of a regression, have mean 0 and scale 1. Labels are whole numbers, 0
to K - 1, whether K is two or more. A multivariate task is a regression of y (n, p) by one model of all outputs; a
method that does not do it is fitted to each output by itself. A method chooses its tuning parameters on the validation
rows that `fit` receives, as the paper does, and says in `chosen` what it chose.

Letters: n training rows, d inputs, m rows to predict, K classes, p outputs.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

TASKS = frozenset({"regression", "multivariate", "binary", "multiclass"})


class TooLarge(ValueError):
    """More rows than a method can take; the harness records it like a fit that did not finish."""


class OutOfTime(TimeoutError):
    """The deadline of a fit has passed."""


class MissingPackage(ImportError):
    """A method's package is not installed."""


@dataclass(frozen=True)
class Settings:
    """What the harness asks of a method.

    `classes` is K, which the training rows alone do not tell: a rare class may be in the test rows only. `outputs` is
    p. `quick` asks for a fit of a minute or so, for a look at all experiments. `options` replaces fields of the
    method's own configuration by name, such as {"inducing": 512}.
    """

    task: str = "regression"
    classes: int = 2
    quick: bool = False
    threads: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"task is {self.task!r}; expected one of {sorted(TASKS)}")
        if self.task == "binary" and self.classes != 2:
            raise ValueError(f"a binary task has 2 classes, not {self.classes}")
        if (self.task == "multivariate") != (self.outputs > 1):
            raise ValueError(f"outputs is {self.outputs}: a multivariate task has 2 or more, any other task has 1")

    def thread_count(self) -> int:
        """Threads to use: as asked for, else as many as this process may run on."""
        return self.threads or len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Prediction:
    """What is predicted for m rows: of a regression `mean` (m,) and `dist`, of classes `probabilities` (m, K).

    `dist` is a frozen `scipy.stats.norm` or `scipy.stats.t` of new observations, with one entry a row: it has logpdf,
    cdf, ppf and interval, and is what `nearfield.metrics` takes. Of several outputs, `mean` is (m, p) and `dist` has
    the marginal distribution of each, (m, p).
    """

    mean: Array | None = None
    dist: Any = None
    probabilities: Array | None = None

    @classmethod
    def normal(cls, mean: Array, std: Array) -> Prediction:
        return cls(mean=mean, dist=stats.norm(loc=mean, scale=std))

    @classmethod
    def student_t(cls, df: Array, mean: Array, scale: Array) -> Prediction:
        return cls(mean=mean, dist=stats.t(df=df, loc=mean, scale=scale))

    @classmethod
    def classes(cls, probabilities: Array) -> Prediction:
        return cls(probabilities=probabilities / probabilities.sum(1, keepdims=True))

    def output(self, j: int) -> Prediction:
        """Of several outputs, the prediction of output j by itself, (m,)."""
        if self.mean is None or self.mean.ndim != 2:
            raise ValueError("only a prediction of several outputs, with means (m, p), has parts")
        mean = self.mean

        def column(parameter: Any) -> Array:
            return np.broadcast_to(parameter, mean.shape)[:, j]

        args = [column(value) for value in self.dist.args]
        keywords = {name: column(value) for name, value in self.dist.kwds.items()}
        return Prediction(mean=mean[:, j], dist=self.dist.dist(*args, **keywords))

    def nll(self, y: NDArray) -> float:
        """Mean negative log density or probability of y, (m,) or (m, p): by it methods choose on validation rows."""
        if self.probabilities is None:
            return float(-np.mean(self.dist.logpdf(y)))
        return float(-np.mean(np.log(np.maximum(self.probabilities[np.arange(len(y)), y], 1e-15))))


class Fittable(Protocol):
    """An unfitted method, built for one task.

    `deadline` is a value of `time.monotonic()`; once it has passed, OutOfTime is raised at the next occasion, which
    a package that does not call back has only before and after its work.
    """

    chosen: dict[str, Any]

    def fit(
        self,
        X: Array,
        y: NDArray,
        X_val: Array,
        y_val: NDArray,
        *,
        seed: int = 0,
        deadline: float | None = None,
    ) -> None: ...

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction: ...


@dataclass(frozen=True)
class Method:
    """A line of the registry: `kind` holds the tasks the method can do, `build` makes it for one of them.

    `about` is what the report says of it.
    """

    name: str
    kind: frozenset[str]
    build: Callable[[Settings], Fittable]
    about: str = ""


def check_deadline(deadline: float | None) -> None:
    """Raise OutOfTime if `deadline` has passed."""
    if deadline is not None and time.monotonic() > deadline:
        raise OutOfTime("the deadline of the fit has passed")


def package(name: str, install: str | None = None) -> Any:
    """The imported package, or an error that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        install = install or name
        message = f"this method needs the package {install}: pip install -c constraints.txt {install}"
        raise MissingPackage(message) from error
