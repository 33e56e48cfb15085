"""Levels of text as columns of their own, or as means of the target: short fits of some rows tell which is better.

One-hot levels leave everything to the length scales; means of the target put levels that are alike side by side, with
one column instead of many. Which is better depends on the table, and left-out rows know.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nearfield import fitting
from nearfield.encoding import TableEncoder
from nearfield.families import Family, Observed
from nearfield.leaving import ALONE, LeftOut
from nearfield.progress import HIDDEN, Bars
from nearfield.rows import join_equal
from nearfield.settings import Settings, Watch

_FEWEST_ROWS = 500  # with fewer, means of levels are mostly noise
_ROWS = 4000  # in the race
_STEPS = 200
_NEIGHBOURS = 64
_FEWEST_LEVELS = 3


def few_levels_apart(encoder: TableEncoder, n: int, settings: Settings) -> bool:
    """Whether there is something to choose: text with some levels that are columns of their own, and enough rows."""
    some = any(rule.kind == "text" and len(rule.levels) >= _FEWEST_LEVELS for rule in encoder.rules_)
    return some and n >= _FEWEST_ROWS and settings.structure != "mixed" and settings.objective == "loo"


def best_encoding(
    candidates: Sequence[np.ndarray],
    family: Family,
    observed: Observed,
    settings: Settings,
    left_out: LeftOut = ALONE,
    bars: Bars = HIDDEN,
) -> int:
    """The number of the features (n, ..) from which left-out rows are predicted best.

    left_out: their groups and times; a buffer is in terms of the features, and not looked at.
    """
    n = len(candidates[0])
    some = np.sort(np.random.default_rng(0).permutation(n)[:_ROWS])
    own = {name: values[some] for name, values in observed.items()}
    labels = [None if part is None else part[some] for part in (left_out.groups, left_out.times)]
    tried = bars.each("encoding text in two ways", candidates)
    return int(np.argmin([_loss(features[some], family, own, settings, *labels) for features in tried]))


def _loss(
    inputs: np.ndarray,
    family: Family,
    observed: Observed,
    settings: Settings,
    groups: np.ndarray | None,
    times: np.ndarray | None,
) -> float:
    """Mean negative log score of left-out rows after a short fit."""
    rows = join_equal(family, inputs, observed, groups, times)
    own = family.standardised(rows.observed, family.target_scaling(rows.observed))
    family = family.with_rows(own)
    if family.constant(own):
        return 0.0
    k = min(_NEIGHBOURS, max(len(rows.inputs) - 1, 1))
    short = replace(settings, k=k, max_steps=min(_STEPS, settings.max_steps), warp=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left_out = LeftOut(rows.groups, rows.times)
        fit = fitting.fit(rows.inputs, own, family, short, Watch(0, 0, None, False), left_out=left_out)
    return float(fit.summary.left_out["nll"])
