"""What a family is: all that is known about one kind of observation.

A family says which arrays a row was observed with, how they become Gaussian sites of the closed form, how well the
latent functions predict them (with slopes, written by hand), which head is fitted to left-out rows, what of it stands
in a file, and how the command line calls it. Everyone else goes through `FAMILIES`.

Shapes: `...` is whatever comes before the arrays' own dimensions, (n,) rows, (b, k) neighbours or (u,) observations.
There are always C latent functions, the last dimension of sites and moments, also where C = 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from nearfield.metrics import ClassScores, CountScores, Scores
from nearfield.moments import Moments
from nearfield.numbering import numbers
from nearfield.persistence import ModelFileError
from nearfield.scaling import Scaling

Observed = Mapping[str, np.ndarray]
"""What rows were observed with: arrays by name, the first dimensions alike."""
Parameters = Mapping[str, np.ndarray]
"""Values of learned parameters by name."""

NOISE_FLOOR = (
    1e-12  # least noise variance, relative to that of the kernel: matrices of smooth functions are near singular
)


class Parameter(NamedTuple):
    """A learned array: where it starts, its shape, and the bounds that no value leaves."""

    initial: float
    low: float
    high: float
    shape: tuple[int, ...] = ()


class Sites(NamedTuple):
    """Observations as if the latent functions had been measured: targets (..., C) with noise variances (..., R).

    The noise variances are relative to the prior variance of the latent function, everywhere; infinity stands for what
    was not observed. R = 1 where the family's latent functions share them, else C.
    """

    targets: np.ndarray
    noises: np.ndarray


class SiteSlopes(NamedTuple):
    """What slopes by sites become: by the family's parameters, by the log kernel scales (S,), by the site state."""

    parameters: dict[str, np.ndarray]
    log_scale: np.ndarray
    state: np.ndarray | None = None


class Score(NamedTuple):
    """log p (b,) of observations, with slopes by the mean and variance (b, C) of the latent functions and by the
    family's parameters, (b,) + shape each."""

    value: np.ndarray
    by_mean: np.ndarray
    by_variance: np.ndarray
    by_parameters: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Observations:
    """What can be left out: the row (u,) it belongs to, what was observed (u, ...) and how often (u,).

    alone: whether nothing is left of the row without it, so that the row is no neighbour of itself (u,).
    """

    row: np.ndarray
    observed: Observed
    weights: np.ndarray
    alone: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: np.ndarray) -> Observations:
        """The observations `which` (b,)."""
        return Observations(
            self.row[which], taken(self.observed, which), self.weights[which], self.alone[which]
        )  # fmt: skip


def taken(observed: Observed, ids: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays at the rows ids, of any shape."""
    return {name: values[ids] for name, values in observed.items()}


@dataclass(frozen=True)
class Given:
    """A number above zero that rows have beside the inputs: an exposure, or trials.

    needed: whether nothing can be predicted without it. whole: whether it counts something. limits: whether the target
    is at most as much.
    """

    meaning: str
    """in words: the column with .."""
    needed: bool = False
    whole: bool = False
    limits: bool = False

    @property
    def expected(self) -> str:
        """What is right, in words."""
        return "a whole number of at least 1" if self.whole else "a number above 0"

    def right(self, values: np.ndarray) -> np.ndarray:
        """Which of values (n,) are."""
        return (values > 0) & ((values == np.floor(values)) | (not self.whole))


class Calibrator(Protocol):
    """How to fit, judge and describe the head of a family. Rows are left out, with moments of a single k.

    slack: accuracy that is too little to tell two k apart; the smallest of equals is chosen.
    """

    @property
    def slack(self) -> float: ...

    def fit(self, rows: Any) -> Any:
        """A head that suits the rows, good enough to tell two k apart."""
        ...

    def accuracy(self, rows: Any, head: Any) -> float:
        """What the choice of k maximises. A gain of 0.02 is worth twice the work or so."""
        ...

    def beyond_noise(self, rows: Any, head: Any) -> tuple[np.ndarray, float] | None:
        """Squared errors (b,) of the rows, and the part of their mean that is expected of the latent function.

        With them a k is also judged by how well it predicts what lies below the noise; None where nobody asks for that.
        """
        ...

    def describe(self, rows: Any, head: Any) -> str:
        """The accuracy in words."""
        ...

    def remark(self, head: Any) -> str:
        """What is to be said of a head that `fit` gave, where that is not what was asked for; else nothing."""
        ...

    def scores(self, rows: Any, head: Any) -> dict[str, float]:
        """Scores by name, in the units of the target."""
        ...

    def covering(self, rows: Any, head: Any, units: np.ndarray) -> Any:
        """The head for rows of new units, where left-out rows with the same number (b,) share their fate."""
        ...

    def finish(self, rows: Any, head: Any) -> Any:
        """The head to predict with, now that k is known: with what `fit` left to do, where that takes long."""
        ...


class Family(ABC):
    """One kind of observation. A subclass is final: what it does not say is as here."""

    # --- who it is --------------------------------------------------------------------------------------------------
    name: ClassVar[str]
    task: ClassVar[str] = "regression"
    """what the command line calls predicting it"""
    estimator: ClassVar[str] = "GPRegressor"
    """the estimator that fits it, whose argument `likelihood` takes the name"""
    kind: ClassVar[str] = "number"
    """what is predicted: number, count, numbers (several) or label"""
    given: ClassVar[Mapping[str, Given]] = MappingProxyType({})
    """what a row must or may have beside the inputs to be predicted, by the name of the estimator's argument"""

    @property
    def likelihood(self) -> str:
        """What the estimator's argument `likelihood` is: the name, of several targets that of the family of one."""
        return self.name

    @classmethod
    def of_target(cls, auxiliary: str = "", classes: int = 0) -> Family:
        """The family of one target. auxiliary: the argument of the estimator; classes: of labels, how many."""
        return cls()

    @classmethod
    def suits(cls, classes: int) -> bool:
        """Whether a family of labels is for so many classes."""
        return True

    @classmethod
    def of_outputs(cls, outputs: int, one_scale: bool) -> Family:
        """The family of several targets of this kind; one_scale: all with the same kernel scale and noise level."""
        raise ValueError(
            f"likelihood is {cls.name!r} and y has {outputs} outputs: it takes one. Fit one model for each output, for "
            "example with sklearn.multioutput.MultiOutputRegressor, or use likelihood='gaussian'."
        )

    auxiliaries: ClassVar[tuple[str, ...]] = ()
    """what the estimator's argument `auxiliary` may be; without any it has no effect"""

    # --- its structure ----------------------------------------------------------------------------------------------
    classes: int = 0
    """of labels: how many, K"""
    latents: int = 1
    """latent functions, C"""
    shared_noise: bool = True
    """whether one noise, relative to the kernel's variance, serves all latent functions: R = 1, else R = C"""
    kernel_scales: int = 1
    """kernel scales that are learned, S: one for each latent function, or one for all"""
    initial_scale: float = 1.0
    """where they start"""
    scale_spread: float | None = None
    """spread of the half-normal prior on kernel scales, see `objectives.scale_prior`; None for none"""
    losses_vanish: bool = False
    """whether losses, minus the scores, vanish as observations become certain, see `objectives.prior_weight`"""
    patient: bool = False
    """whether scores vary so much between observations that progress drowns in the noise; a stage of training then ends
    early only if the score has clearly become worse"""
    state_size: int = 0
    """numbers of each row on which its sites depend, A"""
    state_learned: bool = False
    """whether they are learned by gradients; else they follow from the row's own moments, `updated_state`"""
    exact_sites: bool = False
    """whether it has one latent function, and sites that are the observations themselves with Gaussian noise: only then
    is the joint density of sites that of the rows, which `objective="mll"` and `"vecchia"` maximise"""
    parameters: Mapping[str, Parameter] = MappingProxyType({})

    @property
    def own_factors(self) -> bool:
        """Whether each of several latent functions has a factorisation of its own, which makes neighbours dear."""
        return self.latents > 1 and not self.shared_noise

    # --- what is observed -------------------------------------------------------------------------------------------
    arrays: Mapping[str, tuple[int, ...]]
    """names of the observed arrays, and the dimensions that each has behind the rows'"""
    repeats: bool = False
    """whether an input that is observed again is often observed alike, as labels and counts are, so that equal rows are
    no sign of a copy"""
    additive: tuple[str, ...] = ("weight",)
    """those of which an observation takes its part away when it is left out"""

    @abstractmethod
    def observe(self, y: np.ndarray, weight: np.ndarray, **given: Any) -> dict[str, np.ndarray]:
        """Arrays by name from what the estimator was given: targets, how often the rows count (n,), and the rest.

        y: (n,), of several targets (n, P), NaN where missing; of labels the numbers of their classes. given: arguments
        of the estimator by name, those in `given`, and of real targets `noise_variance` like y; None or absent where
        the user gave none.
        """

    @abstractmethod
    def values(self, observed: Observed) -> np.ndarray:
        """The other way round: the targets y, NaN where missing; of labels the class of each observation."""

    def given_arrays(self, n: int, **given: Any) -> dict[str, np.ndarray]:
        """The part of `observe` that is known of n rows before they are predicted; a ValueError that helps."""
        return {}

    def given_of(self, observed: Observed) -> dict[str, np.ndarray]:
        """The other way round: what the user gave, by name."""
        return {}

    @abstractmethod
    def check(self, observed: Observed) -> None:
        """Raise a ValueError that helps if what was observed lies outside of the domain."""

    def weight(self, observed: Observed) -> np.ndarray:
        """How many observations rows stand for, (...)."""
        return observed["weight"]

    def level_target(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        """What the means of levels of text are taken of (n, P), and how much each entry counts (n, P)."""
        values = np.asarray(self.values(observed), dtype=np.float64).reshape(len(self.weight(observed)), -1)
        return values, np.broadcast_to(self.weight(observed)[:, None], values.shape)

    def sizes(self, observed: Observed) -> np.ndarray:
        """The same for each latent function: (..., 1), or (..., C) where some may not have been observed."""
        return self.weight(observed)[..., None]

    def observations(self, observed: Observed) -> Observations:
        """What can be left out of rows (n,): by default each row, or one of the copies that it stands for."""
        weights, n = self.weight(observed), len(self.weight(observed))
        single = {**observed, "weight": np.broadcast_to(1.0, n) if weights.strides == (0,) else np.ones(n)}
        return Observations(numbers(n), single, weights, weights <= 1 + 1e-12)

    def with_rows(self, observed: Observed) -> Family:
        """The family for rows like these beside those that it has: itself, unless its structure depends on the rows."""
        return self

    def places(self, row: np.ndarray, observed: Observed, joined: Observed) -> np.ndarray:
        """Numbers (n,) of the observations that given rows became: given row i is part of row[i] of `joined`."""
        return row

    def constant(self, observed: Observed) -> bool:
        """Whether all rows were observed alike, so that there is nothing to learn."""
        arrays = [values for name, values in observed.items() if name not in self.additive]
        return all(bool((values == values[:1]).all()) for values in arrays)

    def apart(self) -> Family:
        """The same outputs, all with one kernel scale and noise level and nothing to do with each other."""
        raise NotImplementedError(f"only several real outputs can be mixed, not a {self.name} family.")

    def initial_mixing(self, observed: Observed, latents: int) -> np.ndarray:
        """Where a mixing matrix (P, Q) of the outputs starts."""
        raise NotImplementedError(f"only several real outputs can be mixed, not a {self.name} family.")

    def target_scaling(self, observed: Observed) -> Scaling | None:
        """How the target of rows in the user's units is standardised; None where it is not."""
        return None

    def standardised(self, observed: Observed, scaling: Scaling | None) -> Observed:
        """What was observed, in the units of the model."""
        return observed

    # --- sites ------------------------------------------------------------------------------------------------------

    def initial_mean(self, observed: Observed) -> np.ndarray:
        """Where the means (C,) of the latent functions start."""
        return np.zeros(self.latents)

    def initial_state(self, observed: Observed) -> np.ndarray:
        """Site state (n, A) before anything is known."""
        return np.zeros((len(self.weight(observed)), self.state_size))

    @abstractmethod
    def sites(self, observed: Observed, state: np.ndarray, parameters: Parameters, scale2: np.ndarray) -> Sites:
        """Sites of rows with that site state (..., A); scale2 (S,) is the prior variance of the latent functions."""

    @abstractmethod
    def site_slopes(
        self,
        observed: Observed,
        state: np.ndarray,
        parameters: Parameters,
        scale2: np.ndarray,
        by_targets: np.ndarray,
        by_noises: np.ndarray,
    ) -> SiteSlopes:
        """Slopes by parameters, log kernel scales and site state, from those by the targets and noises of sites."""

    def updated_state(
        self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters
    ) -> np.ndarray:
        """Site state (b, A) of rows from the moments (b, C) of the latent functions given all rows."""
        return np.zeros((len(mean), 0))

    def check_state(self, state: np.ndarray) -> None:  # noqa: B027
        """Raise a ValueError if a file's site state (n, A) is impossible; most can be anything."""

    def sampling(self, rng: np.random.Generator) -> Family:
        """The family to train with: one that draws its sites from `rng`, where sites are sampled."""
        return self

    def noise(self, parameters: Parameters, scale2: np.ndarray) -> np.ndarray:
        """Noise variance of one observation, (1,) or (C,), with its floor; zero where the family has none."""
        return np.zeros(1)

    def known_noise(self, observed: Observed) -> np.ndarray:
        """What is known of the noise variances of rows, (..., 1) or (..., C)."""
        return np.zeros((*self.weight(observed).shape, 1))

    # --- score ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def score(self, observed: Observed, mean: np.ndarray, variance: np.ndarray, parameters: Parameters) -> Score:
        """log p of observations (b,), the latent functions having these moments (b, C); with slopes."""

    def believed(self, state: np.ndarray, parameters: Parameters) -> np.ndarray | None:
        """How much the scores of observations count in training, (b,), by the site state (b, A) of their rows."""
        return None

    def penalty(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """What a score loses for the site state (b, A) of its row, (b,), and the slope by it (b, A); None: nothing."""
        return None

    # --- head -------------------------------------------------------------------------------------------------------

    def plain_head(self, observed: Observed, parameters: Parameters) -> Any:
        """The head that the trained model itself implies, given the training rows."""
        raise NotImplementedError

    @abstractmethod
    def calibrator(self, observed: Observed, parameters: Parameters, calibrated: bool, unit: np.ndarray) -> Calibrator:
        """How the head is fitted and judged, given the training rows; unit: of the target, in the user's units."""

    @abstractmethod
    def left_out(self, ks: np.ndarray, moments: Moments, observations: Observations, noise: np.ndarray) -> Any:
        """Left-out observations with their moments (b, q, C) and noise variances, as the calibrator wants them."""

    def distribution(self, predicted: Any, head: Any, observed: Observed, parameters: Parameters) -> Any:
        """Of counts: the predictive distributions of rows, a `counts.CountPredictive`, from what the head predicted.

        observed: what `given_arrays` or `observe` said of the rows. Heads of numbers and labels do this themselves.
        """
        raise NotImplementedError

    @abstractmethod
    def unpacked_head(self, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
        """The head that its `packed` took apart, or a ModelFileError."""

    def learned_values(
        self, parameters: Parameters, scale2: np.ndarray, head: Any, unit: np.ndarray
    ) -> dict[str, float | np.ndarray]:
        """What was learned, by name, in the user's units: `nearfield info` tells it, and the estimator has it as
        attributes, with an underscore behind the names. A number each, of several targets an array (P,).

        scale2 (S,): the prior variance of the latent functions; unit: of the target, in the user's units.
        """
        return {}

    # --- file -------------------------------------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        """What `from_description` needs beside the name, as plain JSON."""
        return {}

    @classmethod
    def from_description(cls, fields: Mapping[str, Any]) -> Family:
        """The family that `described` itself so, or a ModelFileError."""
        return cls()

    # --- command line -----------------------------------------------------------------------------------------------

    def baseline(self, y: np.ndarray, given: Mapping[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
        """The best prediction of values y (n,) that ignores the inputs, as a few numbers by name.

        The values are in the user's units, given is what they are counted against, weight (n,) how often each counts.
        By default of numbers, mean and std.
        """
        scaling = Scaling.of(y, weight)
        return {"mean": float(scaling.centre), "std": float(scaling.scale)}

    def baseline_distribution(self, numbers: Mapping[str, Any], n: int, given: Mapping[str, np.ndarray]) -> Any:
        """Its predictions for n rows, of the kind that `scores` takes. By default a normal distribution."""
        import scipy.stats

        return scipy.stats.norm(np.full(n, numbers["mean"]), numbers["std"])

    most_unknown: ClassVar[float] = math.inf
    """variance of a latent function at which nothing is known of it, where its prior variance is not below"""

    scores: ClassVar[type[Scores] | type[CountScores] | type[ClassScores]] = Scores
    """the sums that score its predictive distributions"""


def checked(observed: Observed, family: Family, n: int) -> dict[str, np.ndarray]:
    """The observed arrays of a file, if they are those of the family and make sense; else a ModelFileError."""
    if set(observed) != set(family.arrays):
        raise ModelFileError(f"its rows have the arrays {sorted(observed)}; expected {sorted(family.arrays)}")
    for name, trailing in family.arrays.items():
        if observed[name].shape != (n, *trailing):
            raise ModelFileError(f"its array {name!r} has shape {observed[name].shape}; expected {(n, *trailing)}")
        if not np.isfinite(observed[name]).all():
            raise ModelFileError(f"its array {name!r} has values that are not finite")
    try:
        family.check(observed)
    except ValueError as error:
        raise ModelFileError(f"its rows do not make sense ({error})") from error
    if not (family.weight(observed) > 0).all():
        raise ModelFileError("it has rows that do not count")
    return dict(observed)
