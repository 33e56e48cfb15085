"""The numbers behind plots and reports: rows predicted unseen, and what they tell about a model.

Nothing here draws. `predicted` makes the rows, left-out training rows or test rows; the others compute from them:

    chance        which deviations are beyond chance
    coverage      PIT, coverage, slices, the worst slab
    residuals     residuals by bins, surprising rows
    slices        rows by the values of a column
    effects       partial effects with error bars
    neighbours    left-out scores for each number of neighbours
    places        empirical variogram, maps
    labels        reliability, confusion, ROC, precision and recall
    frequencies   the rootogram of counts
"""

from __future__ import annotations

from nearfield.diagnostics.predicted import Evaluated, Labelled, Predicted, left_out, predicted_rows

__all__ = ["Evaluated", "Labelled", "Predicted", "left_out", "predicted_rows"]
