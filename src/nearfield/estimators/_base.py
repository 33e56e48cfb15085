"""What the estimators share: their arguments, the inputs, what is known after a fit, and one safe file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from nearfield import fitting
from nearfield.approximate import SEARCHES
from nearfield.column_values import TableWarning
from nearfield.columns import Columns, Features, SomeRows
from nearfield.coordinates import Chart
from nearfield.encoding import TableEncoder, columns_of
from nearfield.encoding_race import best_encoding, few_levels_apart
from nearfield.estimators._changing import ChangingRows
from nearfield.estimators._copies import CountedCopies, TrainingTable
from nearfield.estimators._files import packed, restored
from nearfield.estimators._forgetting import shares
from nearfield.estimators._from_files import FromFiles
from nearfield.estimators._locks import lock_of
from nearfield.estimators._maps import Maps
from nearfield.estimators._report import Reporting
from nearfield.families import FAMILIES, Family, Observations, Observed
from nearfield.fitting import IGNORED, Fit
from nearfield.importance import shuffled_losses
from nearfield.kernels import find_kernel
from nearfield.leaving import ALONE, LeftOut
from nearfield.means import MEANS
from nearfield.persistence import naming_file, read_file, write_file
from nearfield.prediction import Predictor
from nearfield.progress import Bars
from nearfield.rows import join_equal
from nearfield.settings import METRICS, Settings, Watch
from nearfield.storage import moved
from nearfield.summary import Summary, bent_line, smoothness_line
from nearfield.validation import check_choice, checked_warp, is_int, plain, those
from nearfield.weighting import Weighting, counting, warn_of_weights
from nearfield.wild import Given, disbelieved, tame_rows

DEFAULTS = Settings()
DEPRECATED = "deprecated"
"""Default of arguments that are on their way out: whoever passes something else is told."""

Self = TypeVar("Self", bound="GPEstimator")

_FOUND_LATER = ("_loo", "_importances", "_left_out_errors", "_summary", "_class_counts")
"""Attributes that depend on all rows, which are found when they are asked for."""


class TrainingRowsWarning(UserWarning):
    """The file that was saved contains the training rows."""


class GPEstimator(FromFiles, Maps, CountedCopies, ChangingRows, Reporting, BaseEstimator):
    """Common ground of the estimators; not an estimator itself. Their arguments are listed in each, as scikit-learn
    wants it."""

    kernel: str
    warp: Any
    categorical_features: Any
    metric: str
    k: int | str
    likelihood: str
    mean: str
    predictive: str
    max_steps: int
    learning_rate: float
    batch_size: int
    refresh_every: int
    continuous: bool | str
    search: str
    engine: str
    checkpoint: str | os.PathLike[str] | None
    cache: str | os.PathLike[str] | None
    verbose: bool | None
    random_state: int | np.random.RandomState | None
    _fit: Fit
    _target: Any  # Scaling of a target that is standardised, else None
    _target_names: list[str] | None = None  # of the columns of y, where it had names
    _first_row: int = 0  # number of the first row in messages
    _weighting: Weighting = Weighting()  # what sample_weight is relative to
    _learned: dict[str, Any]  # what the family learned, by name, as `nearfield info` tells it
    _encoder: TableEncoder
    _sender: Callable[[np.ndarray], Any] | None = None  # takes the inputs elsewhere, see `elsewhere.py`, for a fit
    _described: dict[str, Any]  # what the command line knows of its target, where it fitted the model

    # --- fitting ----------------------------------------------------------------------------------------------------

    def _settings(self, **further: Any) -> Settings:
        """The arguments that all estimators have, checked, and what else the estimator sets."""
        find_kernel(self.kernel)
        check_choice("metric", self.metric, METRICS)
        check_choice("mean", self.mean, tuple(MEANS))
        check_choice("search", self.search, SEARCHES)
        if self.engine != DEPRECATED:
            warnings.warn(
                "engine is deprecated and has no effect: there is one engine. It will be removed in version 0.4.",
                FutureWarning,
                stacklevel=3,
            )
        if self.k != "auto" and not (is_int(self.k) and int(self.k) >= 1):
            raise ValueError(f"k is {self.k!r}: expected 'auto' or a whole number of at least 1.")
        for name in ("max_steps", "batch_size", "refresh_every"):
            if not (is_int(getattr(self, name)) and getattr(self, name) >= 1):
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected a whole number of at least 1.")
        if not 0 < self.learning_rate <= 1:
            raise ValueError(f"learning_rate is {self.learning_rate!r}: expected a number above 0, at most 1.")
        if self.continuous != "auto" and not isinstance(self.continuous, bool | np.bool_):
            raise ValueError(f"continuous is {self.continuous!r}: expected True, False or 'auto'.")
        shared = {f.name: plain(getattr(self, f.name)) for f in fields(Settings) if hasattr(self, f.name)}
        return Settings(**{**shared, "predictive": self._predictive(), "drift": None, **further})

    def _predictive(self) -> str:
        """calibrated or plain, from whichever spelling was used."""
        calibrated = getattr(self, "calibrated", DEPRECATED)
        if calibrated != DEPRECATED:
            spelling = "calibrated" if calibrated else "plain"
            _warn_of_spelling(f"calibrated={calibrated!r}", spelling)
            return spelling
        if self.predictive in ("calibrated", "plain"):
            return self.predictive
        if self.predictive in FAMILIES and self.predictive == self.likelihood:
            _warn_of_spelling(f"predictive={self.predictive!r}", "plain")
            return "plain"
        check_choice("predictive", self.predictive, ("calibrated", "plain"))
        raise AssertionError

    def _learn(self, table: TrainingTable, family: Family, settings: Settings) -> None:
        """Fit validated training rows, in the user's units, and take the fit over.

        Equal rows are joined before anything is computed, and wild values are tamed.
        """
        X, observed, kept = table.X, table.observed, table.kept
        chart = self._chart_of(X, hasattr(self, "feature_names_in_"))
        drawn = int(check_random_state(self.random_state).randint(2**31))
        asked, left_out = drawn if is_int(self.random_state) else None, table.left_out
        watch = Watch(asked, drawn, self._checkpoint(table.make), self.verbose, not (table.auto or table.told))
        rows = join_equal(family, X, observed, left_out.groups, left_out.times, ordered=table.auto)
        settings = replace(_clamp_k(settings, len(rows.inputs)), warp=self._bendable(chart))
        settings = replace(settings, **self._drifting(chart))
        given = Given(self.encoder_.feature_names, self._target_names, table.own, self._first_row)
        inputs, target, doubted = tame_rows(family, rows, X, observed, given)
        self._target = family.target_scaling(target)
        unit = 1.0 if self._target is None else self._target.scale
        own = moved(disbelieved(family.standardised(target, self._target), doubted), table.make)
        family = family.with_rows(own)
        inputs = inputs if self._sender is None else self._sender(inputs)
        fit = fitting.fit(
            inputs, own, family, settings, watch,
            unit=unit, left_out=self._leaving(rows, chart), n_rows=len(X), doubted=doubted, chart=chart,
            make=table.make,
        )  # fmt: skip
        self._places = family.places(rows.row, observed, rows.observed)
        self._clock, self._group_labels = left_out.clock, left_out.labels
        if table.distinct is not None:
            self._places = self._places[table.distinct.own]
            fit = replace(fit, summary=replace(fit.summary, rows=len(self._places)))
        counts, copied = family.weight(observed), table.distinct is not None
        weights = fit.predictor.rows.observations.weights
        self._shares = shares(self._places, counts, weights, table.auto, copied)
        self._rooms = {}
        self._numbers, self._came = (None, 0) if kept.all() else (np.flatnonzero(kept), len(kept))
        self._adopt(fit)
        self.__dict__.pop("_described", None)
        self.extra_: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: never a model in the middle of an update."""
        with lock_of(self):
            state: dict[str, Any] = dict(super().__getstate__())
            state.pop("_rooms", None)
            return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        given = self.__dict__.pop("_given", None)  # of a model that was pickled by an earlier version
        if given is not None:
            self._numbers, self._came = given[:-1], int(given[-1])

    def _left_out(self, compute: Callable[[], Any], name: str = "_loo") -> Any:
        """What `compute` makes of the left-out rows, kept under a name, once for each fit; `update` waits for it."""
        with lock_of(self):
            if name not in self.__dict__:
                self.__dict__[name] = compute()
            return self.__dict__[name]

    @property
    def feature_importances_(self) -> np.ndarray:
        """What left-out rows lose in mean log score when a column is shuffled among them: (d,)."""
        check_is_fitted(self)
        found: np.ndarray = self._left_out(
            lambda: shuffled_losses(self._fit.predictor, self._log_scores, self._shuffled_together(), self._fit.inputs),
            "_importances",
        )
        return found

    def _shuffled_together(self) -> list[list[int]]:
        """Numbers of the features that each column of X became."""
        owners = self.encoder_.owners
        return [np.flatnonzero(owners == column).tolist() for column in range(self.n_features_in_)]

    def _log_scores(self, predicted: Any, left_out: Observations) -> np.ndarray:
        """Log densities or probabilities (b,) of observations, from what the head predicted of them."""
        raise NotImplementedError

    @property
    def _family(self) -> Family:
        """That of the fit, whatever the arguments have become since."""
        return self._fit.predictor.model.family

    def _made(self, family: type[Family], classes: int = 0) -> Family:
        """The family of one target with the argument `auxiliary`, checked where it has an effect."""
        auxiliary = getattr(self, "auxiliary", "")
        if family.auxiliaries:
            check_choice("auxiliary", auxiliary, family.auxiliaries)
        return family.of_target(auxiliary, classes)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fit")

    def _weights(self, sample_weight: Any, X: np.ndarray, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Weights (n,) as the fit uses them, and which rows (n,) count at all.

        reset: a fit, which sets what weights are relative to; rows that are appended later have the same unit, and
        those without weights count once.
        """
        if sample_weight is None:
            self._weighting = Weighting() if reset else self._weighting
            return np.broadcast_to(1.0, len(X)), np.ones(len(X), dtype=np.bool_)
        given = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not given.any():
            raise ValueError("sample_weight is zero for every row: at least one row must count.")
        if reset:
            self._weighting = Weighting.of(given)
            warn_of_weights(given, self._weighting)
        return self._weighting.applied(given), counting(given)

    def _encoded(
        self,
        columns: Columns,
        kept: np.ndarray,
        family: Family,
        observed: Observed,
        settings: Settings,
        left_out: LeftOut = ALONE,
    ) -> np.ndarray:
        """Features (n, m) of those training rows that are kept, which were observed; the encoder is learned."""
        if columns.encoder is not None:  # learned, and applied, when the files were read
            self._encoder, self._first_row = columns.encoder, columns.first_row
            return those(columns.features, kept)
        some = columns if kept.all() else SomeRows(columns, kept)
        target, self._first_row, bars = family.level_target(observed), columns.first_row, Bars(self.verbose)
        encoders = [TableEncoder(self.categorical_features)]
        features = [encoders[0].learn(some, *target, bars)]
        if few_levels_apart(encoders[0], len(some), settings):
            encoders.append(TableEncoder(self.categorical_features, max_levels=2))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TableWarning)  # said already
                features.append(encoders[1].learn(some, *target, bars))
        best = best_encoding(features, family, observed, settings, left_out, bars) if len(features) > 1 else 0
        self._encoder = encoders[best]
        return features[best]

    def _inputs(self, X: Any) -> np.ndarray:
        """Features (n, m) of new inputs, as finite float64."""
        check_is_fitted(self)
        if isinstance(X, Features):
            return self._checked_places(X.values)
        own = self.encoder_
        if "_described" in self.__dict__ and isinstance(X, np.ndarray) and X.shape[1:] != (self.n_features_in_,):
            found = check_array(X, dtype=np.float64)  # what the encoder of a model of the command line gave
            if found.shape[1] == len(own.feature_names):
                return self._checked_places(np.asarray(found))
        return self._checked_places(own.encode(columns_of(self, X, reset=False)))

    def _bendable(self, chart: Chart | None = None) -> bool | tuple[int, ...]:
        """The argument `warp`, as numbers of features; coordinates stay straight."""
        own = self.encoder_
        found = checked_warp(self.warp, [rule.name for rule in own.rules_], own.feature_names, own.owners)
        if chart is None or found is False:
            return found
        bent = range(len(own.feature_names)) if found is True else found
        return tuple(e for e in bent if e not in chart.columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _adopt(self, fit: Fit) -> None:
        """Take over a fit: set what depends on it, but for what takes time for each row and is found when asked for."""
        before = self.__dict__.get("_fit", fit)
        self._fit = fit
        for name in _FOUND_LATER:
            self.__dict__.pop(name, None)
        self.k_: int = fit.predictor.k
        self.n_rows_: int = len(self._places)
        model = fit.predictor.model
        if before is not fit and _same_but_for_rows(before.predictor, fit.predictor):
            return
        self.continuous_: bool = fit.predictor.taper is not None
        self.length_scales_: np.ndarray = np.exp(model.parameters["log_lengths"]) * fit.inputs.scale
        lengths = model.search_lengths
        self.smoothness_: dict[str, float] | None = model.covariance.smoothness(model.parameters)
        self.bends_: np.ndarray = model.covariance.shares(model.parameters)
        relevance = np.where(fit.inputs.scale == IGNORED, 0.0, 1 / lengths)
        self.feature_relevance_: dict[str, float] = dict(zip(self._mapped_names(), relevance.tolist(), strict=True))
        self._adopt_learned(fit)

    @property
    def summary_(self) -> Summary:
        """What the fit did and how well it predicts rows left out."""
        check_is_fitted(self)
        found: Summary = self._left_out(self._summarised, "_summary")
        return found

    def _summarised(self) -> Summary:
        return replace(
            self._fit.summary,
            smoothness=smoothness_line(self.smoothness_),
            bent=bent_line(self.bends_, self._mapped_names()),
            axes=self._axes_line(),
            sill=self._sill_line(),
        )

    def _adopt_learned(self, fit: Fit) -> None:
        """What the family learned, as attributes: those of an earlier fit go, those that all families have stay."""
        model = fit.predictor.model
        unit = np.asarray(1.0) if self._target is None else self._target.scale
        before = {f"{name}_" for name in self.__dict__.get("_learned", {})}
        self._learned = model.family.learned_values(model.parameters, model.scale2, fit.predictor.head, unit)
        now = {**self._always_learned(fit), **{f"{name}_": value for name, value in self._learned.items()}}
        self.__dict__.update(now)
        for name in before - now.keys():
            self.__dict__.pop(name, None)

    def _always_learned(self, fit: Fit) -> dict[str, Any]:
        """Attributes that the estimator has whatever the family learns."""
        return {}

    # --- one safe file ----------------------------------------------------------------------------------------------

    def _pack_target(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What is known of the target beyond the fit, as JSON and arrays."""
        return {}, {}

    def _unpack_target(self, fields: dict[str, Any], arrays: dict[str, np.ndarray], fit: Fit) -> None:
        """Take over what `_pack_target` wrote, or raise a ModelFileError."""

    def save(self, path: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, which contains the training rows.

        The file appears whole or not at all. A `TrainingRowsWarning` says what is in it.

        Parameters
        ----------
        path : path
            Where to write it, under any name.
        extra : dict, default=None
            Plain JSON to keep with the model, which has it as `extra_` when it is loaded; None keeps what there is.
        """
        check_is_fitted(self)
        with lock_of(self):
            header, arrays, n_rows = *self._packed(extra), self.n_rows_
        write_file(path, header, arrays)
        warnings.warn(
            f"{os.fspath(path)!r} contains the {n_rows:,} training rows: share it only with those who may see them.",
            TrainingRowsWarning,
            stacklevel=2,
        )

    def _packed(self, extra: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The header and the arrays of the file."""
        return packed(self, extra)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str], mapped: bool | None = None) -> Self:
        """Read a model that `save` or `nearfield fit` wrote, also with an earlier version.

        Runs no code from the file.

        Parameters
        ----------
        path : path
            The file.
        mapped : bool, default=None
            Whether the rows stay in the file and are read where they are needed, so that a model larger than memory
            predicts; the file must stay. None: where it has a gigabyte or more.

        Returns
        -------
        estimator
            The fitted model.

        Raises
        ------
        ModelFileError
            Where anything is wrong with the file.
        """
        version, header, arrays = read_file(path, mapped)
        with naming_file(path):
            return restored(cls, version, header, arrays)

    @property
    def encoder_(self) -> TableEncoder:
        """How columns become features."""
        if "_encoder" not in self.__dict__:  # of a model that was pickled by an earlier version
            check_is_fitted(self)
            names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self._fit.inputs.given)])
            self._encoder = TableEncoder.of_numbers(names)
        return self._encoder


def _same_but_for_rows(one: Predictor, other: Predictor) -> bool:
    return one.model is other.model and one.head is other.head and one.taper is other.taper


def names_of(y: Any) -> list[str] | None:
    """Names of a target, or targets, that come as a column or a table of a data frame."""
    if hasattr(y, "columns"):
        return [str(name) for name in y.columns]
    name = getattr(y, "name", None)
    return [str(name)] if isinstance(name, str) and name else None


def _warn_of_spelling(old: str, new: str) -> None:
    warnings.warn(
        f'{old} is deprecated: write predictive="{new}" instead. It will be an error in version 0.4.',
        FutureWarning,
        stacklevel=5,
    )


def _clamp_k(settings: Settings, n: int) -> Settings:
    """k no larger than the number of other rows, said aloud."""
    if isinstance(settings.k, int) and settings.k > max(n - 1, 1):
        warnings.warn(f"k = {settings.k} is more than the {n - 1} other rows: using {max(n - 1, 1)}.", stacklevel=4)
        return Settings(**{**asdict(settings), "k": max(n - 1, 1)})
    return settings
