"""What the displays share: matplotlib, when it is first needed, colours, and the rows that are shown."""

from __future__ import annotations

from typing import Any

from nearfield.diagnostics import Evaluated, Predicted, left_out, predicted_rows

INSTALL = "nearfield.plots needs matplotlib: pip install 'nearfield[plots]'"


def axes(ax: Any) -> Any:
    """Axes to draw on, new ones if None; an ImportError that says what to install."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != "matplotlib":
            raise
        raise ImportError(INSTALL) from error
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def dated(ax: Any) -> None:
    """Dates below the axes, where days since 1970 are drawn: they are matplotlib's own numbers."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    ax.xaxis_date()
    ax.xaxis.set_major_locator(AutoDateLocator())
    ax.xaxis.set_major_formatter(ConciseDateFormatter(ax.xaxis.get_major_locator()))


def shown_rows(model: Any, X: Any, y: Any, given: dict[str, Any]) -> Evaluated:
    """Left-out rows, or test rows where they are given."""
    if (X is None) != (y is None):
        missing = "y" if y is None else "X"
        raise ValueError(f"{missing} is missing: pass both, or neither of them for left-out training rows.")
    if X is None:
        return left_out(model)
    return predicted_rows(model, X, y, **given)


def one_target(evaluated: Evaluated, target: int | str, what: str) -> tuple[str, Predicted]:
    """The target to show, by its number or name; a ValueError for classes."""
    if evaluated.labelled is not None:
        raise ValueError(
            f"{what} is for numbers and counts, and the model predicts classes: use scikit-learn's CalibrationDisplay "
            "with model.predict_proba, or model.report."
        )
    names = list(evaluated.targets)
    if isinstance(target, str) and target in names:
        return target, evaluated.targets[target]
    if isinstance(target, int) and 0 <= target < len(names):
        return names[target], evaluated.targets[names[target]]
    raise ValueError(f"target is {target!r}: expected one of {', '.join(map(repr, names))}, or its number.")
