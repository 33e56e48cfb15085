"""Tables become numbers: what an encoder remembers of its training table, so that every later one becomes the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _check_y, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from nearfield._threads import in_threads
from nearfield.column_values import MISSING, Coded, TableError
from nearfield.columns import (
    ArrayColumns,
    Columns,
    FrameColumns,
    check_names,
    columns_of_levels,
    complete_matrix,
    evenly_spread,
    is_arrow,
    is_frame,
)
from nearfield.progress import HIDDEN, Bars
from nearfield.rules import Rule, Tally, cycles_of, means_of, warn_of_unused
from nearfield.validation import check_choice, nearest_name

MAX_LEVELS = 64
"""Text columns with more levels than this become means of the target, unless told otherwise."""

_ID_LIKE = 0.9  # levels over rows of a column that names its rows
_PORTION = 2**12  # rows that are written at once
_FORMATS = (1, 2)  # of the JSON form; it is written in the last
TARGET_TYPES = ("auto", "number", "class")


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn tables with text, categories, dates and gaps into numbers.

    ===========================================  ======================================================================
    in the training table                        in the model
    ===========================================  ======================================================================
    numbers                                      one feature
    true / false                                 one feature, 1 / 0
    dates and times                              days since 1970-01-01 (UTC where a zone is given), and sine and cosine
                                                 of the hour, the weekday and the day of the year where the training
                                                 rows span them
    durations                                    one feature, days
    missing in any of those                      the median of the training rows, and one more feature
                                                 `<column>_missing`, 1 / 0
    text, categories                             up to 64 levels: one feature `<column>=<level>` for each, 1 / 0;
                                                 `(missing)` is one; more: mean of the target at the level and
                                                 logarithm of how often it was seen
    nearly as many levels as rows, or no value   left out, with a warning
    ===========================================  ======================================================================

    Parameters
    ----------
    categorical_features : "from_dtype", list or mask, default="from_dtype"
        Which columns hold levels: those of text and categories; or names, numbers or a mask (d,) of the columns whose
        values are levels, numbers too.
    target_type : {"auto", "number", "class"}, default="auto"
        What y is, for text with many levels.
    max_levels : int, default=64
        Text with more levels becomes means of the target.

    Attributes
    ----------
    rules_ : tuple of Rule
        What is remembered of each column.
    feature_names : list of str
        Names of the features: of the columns of the array that `transform` gives.
    owners : ndarray of shape (m,)
        The number of the column that each feature comes from.
    needed : list of str
        Names of the columns that are used.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns; only where all of them are text.

    Notes
    -----
    The mean of the target at a level is drawn towards that of all rows, the more the fewer rows have the level. A
    training row gets the mean of rows in other folds, so that its own target has no part in it: `fit_transform` and
    `transform` then differ.

    Later tables may have further columns, and a level that training did not see is all zeros, or the mean of all rows.
    A missing value in a column that had none is the median. Both are counted in one warning.

    Examples
    --------
    >>> import pandas as pd
    >>> from nearfield import TableEncoder
    >>> table = pd.DataFrame({"rooms": [1, 3, None], "town": ["Bonn", "Trier", "Bonn"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.feature_names
    ['rooms', 'rooms_missing', 'town=Bonn', 'town=Trier']
    """

    rules_: tuple[Rule, ...]

    def __init__(
        self, categorical_features: Any = "from_dtype", target_type: str = "auto", max_levels: int = MAX_LEVELS
    ) -> None:
        self.categorical_features = categorical_features
        self.target_type = target_type
        self.max_levels = max_levels

    # --- scikit-learn's surface -------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn from a table what its columns become.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            The training table.
        y : array-like of shape (n,) or (n, P), default=None
            The target, which is needed for text with many levels.

        Returns
        -------
        self
            The fitted encoder.
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Learn from a table, and turn it into features.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            The training table.
        y : array-like of shape (n,) or (n, P), default=None
            The target, which is needed for text with many levels.
        **fit_params : dict
            Taken and not used, as scikit-learn's pipelines may pass some.

        Returns
        -------
        ndarray of shape (n, m)
            The features of the training rows.
        """
        check_choice("target_type", self.target_type, TARGET_TYPES)
        columns = columns_of(self, X, reset=True)
        if y is not None:
            check_consistent_length(columns, y)
        return self.learn(columns, None if y is None else _target(y, self.target_type))

    def transform(self, X: Any) -> np.ndarray:
        """Turn a table with the same columns into features.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d)
            The table.

        Returns
        -------
        ndarray of shape (n, m)
            Its features.
        """
        check_is_fitted(self)
        return self.encode(columns_of(self, X, reset=False))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """List the names of the features.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns, which must be those of the fit.

        Returns
        -------
        ndarray of str of shape (m,)
            Names of the features.
        """
        check_is_fitted(self)
        own = getattr(self, "feature_names_in_", np.array([rule.name for rule in self.rules_], dtype=object))
        if input_features is not None and list(input_features) != list(own):
            raise ValueError(f"input_features is not equal to feature_names_in_, or not of length {len(own)}.")
        return np.array(self.feature_names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags

    # --- for estimators and the command line ------------------------------------------------------------------------

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of the array that `transform` gives; one that a column has already gets a number."""
        times: Counter[str] = Counter()
        names = []
        for feature in (feature for rule in self.rules_ for feature in rule.features):
            times[feature] += 1
            names.append(feature if times[feature] == 1 else f"{feature}_{times[feature]}")
        return names

    @property
    def owners(self) -> np.ndarray:
        """The number of the column (m,) that each feature comes from."""
        return np.repeat(np.arange(len(self.rules_)), [len(rule.features) for rule in self.rules_])

    @property
    def needed(self) -> list[str]:
        """Names of the columns that are used."""
        return [rule.name for rule in self.rules_ if rule.kind != "unused"]

    def learn(
        self,
        columns: Columns,
        target: np.ndarray | None = None,
        counted: np.ndarray | None = None,
        bars: Bars = HIDDEN,
    ) -> np.ndarray:
        """Learn from columns, for estimators and the command line.

        Parameters
        ----------
        columns : Columns
            The columns of a table.
        target : ndarray of shape (n, P), default=None
            What means of levels are taken of.
        counted : ndarray of shape (n, P), default=None
            How much each entry of the target counts.
        bars : Bars, default=HIDDEN
            Where progress is shown.

        Returns
        -------
        ndarray of shape (n, m)
            The features that the columns become.
        """
        chosen = columns_of_levels(self.categorical_features, columns.names)
        matrix = None if chosen else complete_matrix(columns, single=True)
        self.n_features_in_ = len(columns.names)
        if matrix is not None:
            some = evenly_spread(matrix)
            self.rules_ = tuple(Rule(n, "number", float(np.median(some[:, e]))) for e, n in enumerate(columns.names))
            return matrix
        if target is None:
            target = np.zeros((len(columns), 0))
        counted = np.ones(target.shape) if counted is None else counted
        found = [
            columns.kept(*self._learned(columns, name, name in chosen, target, counted))
            for name in bars.each("encoding", columns.names)
        ]
        self.rules_ = tuple(rule for rule, _ in found)
        warn_of_unused([rule.name for rule, values in found if rule.kind == "unused" and values is None], "no value")
        warn_of_unused(
            [rule.name for rule, values in found if rule.kind == "unused" and values is not None],
            "as many different values as rows, or nearly so (they seem to name the rows)",
        )
        if not self.feature_names:
            raise TableError("The table has no columns to predict from.")
        encoded = columns.encoded(self)
        return self._features([values for _, values in found], len(columns), Tally()) if encoded is None else encoded

    def _learned(
        self, columns: Columns, name: str, levels: bool, target: np.ndarray, counted: np.ndarray
    ) -> tuple[Rule, Any]:
        """What is remembered of a column, and its values: None where there are none."""
        kind = "text" if levels else columns.kind(name)
        form = columns.form(name)
        values = columns.read(name, kind, form)
        if kind == "text":
            return self._learned_text(name, form, values, target, counted)
        missing = np.isnan(values)
        if missing.all():
            return Rule(name, "unused"), None
        cycles = cycles_of(values) if kind == "date" else ()
        median = float(np.median(evenly_spread(values[~missing])))
        return Rule(name, kind, median, bool(missing.any()), cycles=cycles, form=form), values

    def _learned_text(
        self, name: str, form: str, text: Coded, target: np.ndarray, counted: np.ndarray
    ) -> tuple[Rule, Any]:
        seen = np.bincount(text.codes + 1, minlength=len(text.levels) + 1)  # the first: missing
        present = [level for number, level in enumerate(text.levels) if seen[number + 1]]
        if not present:
            return Rule(name, "unused"), None
        if len(present) > MAX_LEVELS and len(present) >= _ID_LIKE * seen[1:].sum():
            return Rule(name, "unused"), text
        levels = tuple(sorted({*present, *([MISSING] if seen[0] else [])}))
        if len(present) <= self.max_levels:
            return Rule(name, "text", levels=levels, form=form), text
        return means_of(name, form, levels, text, target, counted)

    def encode(self, columns: Columns) -> np.ndarray:
        """Turn columns into features, for estimators and the command line.

        What had to be filled in is counted, or told.

        Parameters
        ----------
        columns : Columns
            The columns of a table.

        Returns
        -------
        ndarray of shape (n, m)
            Their features.
        """
        matrix = columns.matrix()
        if matrix is not None and matrix.shape[1] == len(self.rules_) and all(rule.plain for rule in self.rules_):
            complete = complete_matrix(columns)
            if complete is not None:
                return complete
        tally = Tally() if columns.tally is None else columns.tally
        values = [
            None if rule.kind == "unused" else columns.read(rule.name, rule.read_as, rule.form) for rule in self.rules_
        ]
        out = self._features(values, len(columns), tally)
        if columns.tally is None:
            tally.warn()
        return out

    def _features(self, values: Sequence[Any], n: int, tally: Tally) -> np.ndarray:
        """The features (n, m) of values of all columns. Rows are written in portions, which stay in the cache."""
        out = np.zeros((n, len(self.feature_names)))
        ends = np.cumsum([len(rule.features) for rule in self.rules_]).tolist()
        parts = []
        for rule, own, stop in zip(self.rules_, values, ends, strict=True):
            if rule.features:
                prepared, unseen, imputed = rule.prepared(own)
                tally.unseen[rule.name] += unseen
                tally.imputed[rule.name] += imputed
                parts.append((rule, prepared, slice(stop - len(rule.features), stop)))

        def write(start: int, stop: int) -> None:
            for rule, prepared, place in parts:
                rule.write(prepared[start:stop], out[start:stop, place])

        in_threads(write, n, _PORTION)
        return out

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> TableEncoder:
        """Make an encoder of complete arrays whose medians nobody knows.

        Parameters
        ----------
        names : sequence of str
            Names of the columns.

        Returns
        -------
        TableEncoder
            The encoder, fitted.
        """
        encoder = cls()
        encoder.rules_ = tuple(Rule(str(name), "number", float("nan")) for name in names)
        encoder.n_features_in_ = len(encoder.rules_)
        return encoder

    def to_json(self) -> dict[str, Any]:
        """Describe the fitted encoder, for the model file.

        Returns
        -------
        dict
            Plain JSON.
        """
        return {"format": _FORMATS[-1], "columns": [rule.to_json() for rule in self.rules_]}

    @classmethod
    def from_json(cls, data: Any) -> TableEncoder:
        """Make the encoder that `to_json` described.

        Parameters
        ----------
        data : dict
            The description, and whatever else; a ValueError is raised where it is anything else.

        Returns
        -------
        TableEncoder
            The encoder, fitted.
        """
        if not isinstance(data, dict) or data.get("format") not in _FORMATS:
            raise ValueError(f"The model's description of its table is not of format {_FORMATS[-1]}.")
        columns = data.get("columns")
        if not isinstance(columns, list) or not columns:
            raise ValueError("The model's description of its table lacks the columns.")
        encoder = cls()
        encoder.rules_ = tuple(map(Rule.from_json, columns))
        encoder.n_features_in_ = len(encoder.rules_)
        if len({rule.name for rule in encoder.rules_}) < len(columns):
            raise ValueError("The model's description of its table names a column twice.")
        return encoder


def columns_of(estimator: Any, X: Any, *, reset: bool, y: Any = "no_validation", **checks: Any) -> Any:
    """The columns of a table, checked as scikit-learn checks inputs of an estimator; with y, both.

    Frames keep their types; anything else is an array.
    """
    if isinstance(X, Columns):
        if reset:
            estimator.n_features_in_ = len(X.names)
            estimator.feature_names_in_ = np.array(X.names, dtype=object)
        return X if isinstance(y, str) else (X, _check_y(y, estimator=estimator, **checks))
    given = {} if isinstance(y, str) and y == "no_validation" else {"y": y}
    if is_frame(X) or is_arrow(X):
        return _columns_of_frame(estimator, X, reset, given, checks)
    found = validate_data(
        estimator, X, reset=reset, dtype=None, ensure_all_finite=False, ensure_min_samples=1, **given, **checks
    )
    array, *rest = found if given else (found,)
    if array.dtype.kind not in "fiubOUSMm":
        raise ValueError(f"X has type {array.dtype}: numbers, text, flags or dates are expected.")
    columns = ArrayColumns(array, names=getattr(estimator, "feature_names_in_", None))
    return (columns, *rest) if given else columns


def _columns_of_frame(estimator: Any, X: Any, reset: bool, given: dict[str, Any], checks: dict[str, Any]) -> Any:
    names = list(X.schema.names) if is_arrow(X) else list(X.columns)
    check_names(names)
    if len(X) == 0 or not names:
        what = "sample(s)" if len(X) == 0 else "feature(s)"
        raise TableError(f"Found array with 0 {what} (shape={X.shape}) while a minimum of 1 is required.")
    if is_arrow(X):
        if reset:
            estimator.feature_names_in_, estimator.n_features_in_ = np.array(names, dtype=object), len(names)
        lacking = [name for name in getattr(estimator, "feature_names_in_", ()) if name not in names]
        if lacking:
            raise TableError(f"The table lacks the column {lacking[0]!r}.{nearest_name(lacking[0], names)}")
        from nearfield.arrow_columns import ArrowColumns

        columns: Columns = ArrowColumns(X, first_row=0)
    else:
        validate_data(estimator, X, reset=reset, skip_check_array=True, **given)
        columns = FrameColumns(X, getattr(estimator, "feature_names_in_", None))
    if not given:
        return columns
    y = _check_y(given["y"], estimator=estimator, **checks)
    check_consistent_length(columns, y)
    return columns, y


def _target(y: Any, target_type: str) -> np.ndarray:
    """What means of levels are taken of (n, P): numbers, or for each class but the first of two whether it is that."""
    values = np.asarray(y)
    if target_type == "auto":
        target_type = "number" if type_of_target(values).startswith("continuous") else "class"
    if target_type == "number":
        return np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    labels = np.unique(column_or_1d(values), return_inverse=True)[1]
    shares = np.eye(int(labels.max()) + 1)[labels]
    return shares[:, 1:] if shares.shape[1] == 2 else shares
