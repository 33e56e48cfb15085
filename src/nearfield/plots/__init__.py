"""Plots of fitted models, in the manner of scikit-learn's Displays.

They need matplotlib: `pip install 'nearfield[plots]'`.

Each has `from_estimator`, some `from_predictions`, and `plot(ax=...)`; what was drawn is kept in attributes, such as
`ax_` and `figure_`, and so are the numbers behind it. Where no X and y are given, training rows are predicted from the
others.

    >>> from nearfield.plots import CoverageDisplay  # doctest: +SKIP
    >>> CoverageDisplay.from_estimator(model, X_test, y_test)  # doctest: +SKIP
"""

from __future__ import annotations

from nearfield.plots._calibration import CoverageDisplay, PITDisplay
from nearfield.plots._effects import KCurveDisplay, PartialEffectDisplay
from nearfield.plots._places import MapDisplay, VariogramDisplay
from nearfield.plots._residuals import LeftOutResidualDisplay

__all__ = [
    "CoverageDisplay",
    "KCurveDisplay",
    "LeftOutResidualDisplay",
    "MapDisplay",
    "PITDisplay",
    "PartialEffectDisplay",
    "VariogramDisplay",
]
