"""`--noise-variance` of the command line: noise that is known of the rows of a table, beside what the model learns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearfield.cli_arguments import UserError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

NoiseVariance = Annotated[
    list[str] | None,
    typer.Option(
        "--noise-variance",
        help="Known noise variance of the rows, in the squared unit of the target: a number, or a column, which is no "
        "feature; of several targets one for each.",
        metavar="COLUMN|NUMBER",
    ),
]


@dataclass(frozen=True)
class Noise:
    """Columns or numbers, one for each target, or none."""

    parts: tuple[str | float, ...]

    @property
    def columns(self) -> list[str]:
        """Those of the table that are needed."""
        return [part for part in self.parts if isinstance(part, str)]

    def check_predicts(self, what: str) -> None:
        """Raise UserError if there is noise, but what is predicted is no number."""
        if self.parts and what not in ("number", "numbers"):
            raise UserError(
                f"--noise-variance is for targets that are numbers, and this one is a {what}: leave it out."
            )

    def beside(self, table: pa.Table, first_row: int = 1, needed: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """What the estimators take: noise variances (n,) or (n, P), if there are any.

        Only those `needed`, (n,) or (n, P), are checked; the others are zero.
        """
        import numpy as np

        if not self.parts:
            return {}
        n, found = table.num_rows, []
        for place, part in enumerate(self.parts):
            own = needed if needed is None or needed.ndim == 1 else needed[:, place]
            found.append(np.full(n, part) if isinstance(part, float) else _read(table, part, first_row, own))
        return {"noise_variance": found[0] if len(found) == 1 else np.column_stack(found)}


def noise_of(given: Sequence[str] | None, names: Collection[str], targets: Sequence[str]) -> Noise:
    """What the option says of a table with columns of those names: a column where there is one, or else a number."""
    texts = list(given or ())
    if len(texts) not in (0, 1, len(targets)):
        raise UserError(
            f"--noise-variance is given {len(texts)} times for {len(targets)} targets: give it once for each, in "
            "their order, or one number for all."
        )
    parts = tuple(_column_or_number(text, names, targets) for text in texts)
    if len(parts) < len(targets) and any(isinstance(part, str) for part in parts):
        raise UserError(
            f"--noise-variance is the column {texts[0]!r} for {len(targets)} targets: give one for each of them, in "
            "their order."
        )
    return Noise(parts * len(targets) if len(parts) == 1 else parts)


def none_known(model: Any) -> dict[str, Any]:
    """What is given to a model where the option is missing: nothing; no noise and a warning, where it learned of some.

    The estimator's own warning would come again for every block, and speaks of arguments.
    """
    if not getattr(model, "_noise_was_known", bool)():
        return {}
    warnings.warn(
        "the model was fitted with --noise-variance, and this command comes without: no known noise is assumed, only "
        "what was learned beside it. Give --noise-variance COLUMN or NUMBER; 0 if there is none.",
        stacklevel=2,
    )
    return {"noise_variance": 0.0}


def _column_or_number(text: str, names: Collection[str], targets: Sequence[str]) -> str | float:
    if text in targets:
        raise UserError(f"--noise-variance is {text!r}, which is a target; a column of variances is expected.")
    if text in names:
        return text
    try:
        number = float(text)
    except ValueError:
        raise UserError(
            f"--noise-variance is {text!r}, which is no column of the table and no number. It has: {', '.join(names)}."
        ) from None
    if not (math.isfinite(number) and number >= 0):
        raise UserError(f"--noise-variance is {text}; a number of at least 0 is expected, the variance of the noise.")
    return number


def _read(table: pa.Table, column: str, first_row: int, needed: np.ndarray | None) -> np.ndarray:
    """The variances (n,) in a column; TableError for the first that is needed and none."""
    import numpy as np

    from nearfield.cells import opened, without_dictionary
    from nearfield.target_cells import numeric, refuse_first

    label = f"The noise variance {column!r}"
    values = numeric(without_dictionary(opened(table.column(column))), label, first_row)
    right = np.isfinite(values) & (values >= 0)
    wrong = ~right if needed is None else ~right & needed
    refuse_first(wrong, values, np.arange(first_row, first_row + values.size), label, "a number of at least 0")
    return np.where(right, values, 0.0)
