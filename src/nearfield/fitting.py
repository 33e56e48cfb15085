"""The whole fit, from validated arrays to a predictor: standardise, train, choose k and calibrate on left-out rows."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace

import numpy as np

from nearfield._threads import one_blas_thread
from nearfield.calibration import constant_scores
from nearfield.coordinates import Chart, ChartedScaling
from nearfield.covariances import Shared
from nearfield.families import Family, Observed
from nearfield.kernels import find_kernel
from nearfield.learner import Learner, starting_warps
from nearfield.leaving import ALONE, LeftOut
from nearfield.means import find_mean
from nearfield.model import Model
from nearfield.prediction import Predictor
from nearfield.rotation import learned_axes
from nearfield.rows import Joined, Rows
from nearfield.scaling import Scaling
from nearfield.schedule import settling_k
from nearfield.settings import Settings, Watch
from nearfield.storage import Make
from nearfield.summary import Summary

_ROWS_A_COLUMN = 20  # fewer: a warning
IGNORED = 1e300  # scale of a column that was constant in training: whatever it holds later counts as the same


@dataclass(frozen=True, eq=False)
class Fit:
    """A predictor in standardised units, with what leads there and back."""

    predictor: Predictor
    inputs: Scaling
    summary: Summary

    def extended(self, rows: Joined, n_rows: int) -> Fit:
        """The fit with more rows, n_rows of them as they were given; nothing is learned from these.

        They have times where the rows of the fit have some, and may have groups where those have.
        """
        hiding = rows.groups, rows.times
        more = Rows.of(self.predictor.model.family, self.inputs.apply(rows.inputs), rows.observed, *hiding)
        s = self.summary
        summary = replace(s, rows=s.rows + n_rows, appended=s.appended + n_rows)
        return Fit(self.predictor.extended(more), self.inputs, summary)

    def reduced(self, weights: np.ndarray, k: int | str, rows: int, appended: int) -> Fit:
        """The fit with observations that count as often as weights (u,) say; nothing is learned.

        k: as asked for. rows, appended: how many rows are left as they were given, and of those that came later.
        """
        s, left = self.summary, int(np.unique(self.predictor.rows.observations.row[weights > 0]).size)
        predictor = self.predictor.reduced(weights, settling_k(left, k))
        summary = replace(s, rows=rows, appended=appended, forgotten=s.forgotten + s.rows - rows)
        return Fit(predictor, self.inputs, summary)


def fit(
    X: np.ndarray,
    observed: Observed,
    family: Family,
    settings: Settings,
    watch: Watch,
    *,
    unit: float | np.ndarray = 1.0,
    left_out: LeftOut = ALONE,
    n_rows: int | None = None,
    doubted: np.ndarray | None = None,
    chart: Chart | None = None,
    make: Make = np.empty,
) -> Fit:
    """Fit X (n, d) and what was observed there, all finite; `unit` is what one of the target's is to users, of several
    outputs (P,). left_out: what rows are left out with. `n_rows` is how many rows the user gave, where equal ones were
    joined. Rows that are `doubted` (n,) are learned from, but left-out scores are those of the others. chart: of the
    columns that are coordinates. make: where large arrays come from.
    """
    began = time.perf_counter()
    if settings.metric == "plain":
        settings = replace(settings, kernel="matern52" if settings.kernel == "auto" else settings.kernel, warp=False)
    family.check(observed)
    inputs = _standardisation(X, family.weight(observed), chart)
    rows = left_out.rows(family, X, observed, inputs, make)
    left_out.refuse_blind(rows)
    if isinstance(inputs, ChartedScaling):
        with one_blas_thread():
            inputs = _turned(inputs, X, rows, family, settings)
        rows = left_out.rows(family, X, observed, inputs)
    n = len(rows) if n_rows is None else n_rows
    _warn_of_few_rows(n, int((inputs.scale != IGNORED).sum()))
    with one_blas_thread():
        on_globe = chart is not None and chart.one_scale
        learner = Learner(rows, settings, watch, np.asarray(unit), doubted, on_globe)
        learned = learner.learn(family)
        predictor, approximation = learner.searching(learned)
    choice, progress = learned.calibrated.choice, learned.progress
    summary = Summary(
        rows=n,
        columns=X.shape[1],
        kernel=settings.kernel,
        likelihood=family.name,
        predictive=settings.predictive,
        steps=progress.steps,
        most_steps=learned.most_steps,
        seconds=time.perf_counter() - began,
        k=choice.k,
        k_reason=choice.reason,
        left_out_rows=learned.scored,
        left_out=learned.calibrated.scores,
        jittered=progress.jittered,
        rejected=progress.rejected,
        mean=settings.mean,
        leaving=left_out.described(),
        neighbourhoods="" if learned.calibrated.taper is None else "continuous",
        search=settings.search,
        leaves=approximation.leaves or 0,
        recall=approximation.recall,
        approximate_nll=approximation.nll,
        exact_nll=approximation.exact_nll,
        constant=constant_scores(family, rows, *learner.sample, learner.unit),
        refreshes={str(i): score for i, score in enumerate(progress.scores, start=1) if math.isfinite(score)},
    )
    return Fit(predictor, inputs, summary)


def _standardisation(X: np.ndarray, weights: np.ndarray, chart: Chart | None) -> Scaling:
    """Of inputs (n, d) that count so much (n,), with their coordinates as they are on the ground."""
    if chart is None:
        return Scaling.of(X, weights, if_constant=IGNORED)
    return ChartedScaling.charted(chart.located(X, weights), X, weights, IGNORED)


def _turned(inputs: ChartedScaling, X: np.ndarray, rows: Rows, family: Family, settings: Settings) -> ChartedScaling:
    """The standardisation with coordinates turned as left-out rows prefer."""
    apart = family.apart() if settings.structure == "mixed" else family
    chart, warps = inputs.chart, starting_warps(rows, settings.warp)
    covariance = Shared(
        find_kernel(settings.kernel), apart.latents, warps, apart.kernel_scales, settings.metric == "learned"
    )
    model = Model.initial(
        apart, covariance, find_mean(settings.mean, settings.drift), apart.initial_mean(rows.observed)
    )
    axes = learned_axes(model, rows, chart.turned, inputs.scale[list(chart.turned)])
    if axes.rotation is None:
        return inputs
    return ChartedScaling.charted(chart.with_rotation(axes.rotation), X, family.weight(rows.observed), IGNORED)


def _warn_of_few_rows(n: int, columns: int) -> None:
    """Say it if there are so few rows for each column that varies that length scales follow chance."""
    if n < _ROWS_A_COLUMN * columns:
        many = f"{columns:,} column{'s' if columns > 1 else ''}"
        warnings.warn(
            f"{n:,} rows are few for {many}: length scales may follow chance, and predictions and error bars suffer. "
            f"Leave out columns that cannot matter, or have {_ROWS_A_COLUMN} rows a column.",
            stacklevel=4,
        )
