"""What a fit did and how well it predicts rows left out, as users read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

_BENT = 0.5  # share of the scores of a column from which it counts as bent
_NAMED = 5  # bent columns that are named


@dataclass(frozen=True)
class Summary:
    """What a fit did and how well it predicts rows left out, in the units of the target; `print` shows it.

    Attributes
    ----------
    rows : int
        Training rows.
    columns : int
        Features.
    kernel : str
        The kernel, as asked for.
    likelihood : str
        What is assumed of observations.
    predictive : str
        "calibrated" or "plain".
    steps : int
        Training steps that were done.
    most_steps : int
        And those that might have been.
    seconds : float
        How long training took.
    k : int
        Number of neighbours in use.
    k_reason : str
        Why it is that.
    left_out_rows : int
        Training rows of which left-out predictions were scored.
    left_out : dict of str to float
        Their scores: `rmse`, `nll`, `crps`, `coverage_50`, `coverage_90` and `coverage_95`; of classes `nll`, `error`,
        `brier` and `calibration_error`.
    jittered : int
        Factorisations that needed something added to the diagonal.
    rejected : int
        Training steps that were refused.
    appended : int
        Rows that came by `update`.
    forgotten : int
        Rows that were there and are no more.
    mean : str
        "constant" or "linear".
    smoothness : str
        Which smoothness was learned, in words; empty where none was.
    bent : str
        Which columns were bent, in words.
    axes : str
        How coordinates are turned, in words.
    sill : str
        That the sill means nothing, where it does not.
    leaving : str
        How rows were left out, where not one by one.
    neighbourhoods : str
        "continuous", or nothing.
    search : str
        What was asked for, "exact" or "approximate".
    leaves : int
        Boxes that an approximate search looks into; 0 where it is exact.
    recall : float
        Share of their neighbours that left-out rows find.
    approximate_nll : float
        Of left-out rows given these neighbours.
    exact_nll : float
        And given the nearest.
    refreshes : dict of str to float
        Mean left-out log density, of a standardised target, in each refresh of training: by its number, from 1.
    """

    rows: int
    columns: int
    kernel: str
    likelihood: str
    predictive: str
    steps: int
    most_steps: int
    seconds: float
    k: int
    k_reason: str
    left_out_rows: int
    left_out: dict[str, float]
    jittered: int
    rejected: int
    appended: int = 0
    mean: str = "constant"
    smoothness: str = ""
    bent: str = ""
    axes: str = ""
    sill: str = ""
    leaving: str = ""
    neighbourhoods: str = ""  # "continuous", or nothing
    forgotten: int = 0  # rows that were there and are no more
    search: str = "exact"  # what was asked for
    leaves: int = 0  # boxes that an approximate search looks into; none: it is exact
    recall: float = 1.0  # share of their neighbours that left-out rows find
    approximate_nll: float = 0.0  # of left-out rows given these
    exact_nll: float = 0.0  # and given the nearest
    refreshes: dict[str, float] = field(default_factory=dict)
    """mean left-out log density, of a standardised target, in each refresh of training: by its number, from 1"""

    def as_dict(self) -> dict[str, object]:
        """List all of it as plain numbers and text.

        Returns
        -------
        dict
            The attributes by their names.
        """
        return asdict(self)

    def __str__(self) -> str:
        stopped = "early, the score had settled" if self.steps < self.most_steps else "at max_steps"
        stopped = stopped if self.steps else "before it began: too few rows, or a constant target"
        recoveries = f"{self.jittered} factorisations with extra jitter, {self.rejected} steps rejected"
        scores = ", ".join(f"{label} {self.left_out[name]:.4g}" for name, label in _LABELS if name in self.left_out)
        covered = [f"{100 * self.left_out[name]:.1f}" for name in _COVERAGES if name in self.left_out]
        appended = f" ({self.appended:,} of them appended later)" if self.appended else ""
        appended += f" ({self.forgotten:,} others were forgotten)" if self.forgotten else ""
        edges = f", {self.neighbourhoods} neighbourhoods" if self.neighbourhoods else ""
        lines = [
            f"{self.rows:,} rows{appended}, {self.columns} columns, kernel {self.kernel}, {self.mean} mean, "
            f"{self.likelihood.replace('_', ' ')} likelihood, {self.predictive} predictive",
            f"trained {self.steps} steps in {self.seconds:.1f} s (stopped {stopped}); recoveries: {recoveries}",
            f"k = {self.k}{edges}: {self.k_reason}",
            *filter(None, (self.smoothness, self.bent, self.axes, self.sill, self.leaving, self._searching())),
            f"{self.left_out_rows:,} rows left out: {scores}",
        ]
        if covered:
            lines.append(f"intervals of 50 / 90 / 95 % cover {' / '.join(covered)} % of them")
        return "\n".join(lines)

    def _searching(self) -> str:
        """What an approximate search misses; nothing where none was asked for."""
        if self.search == "exact":
            return ""
        if not self.leaves:
            return "approximate search was asked for, but would not be faster here: search is exact"
        return (
            f"approximate search: {self.leaves:,} boxes a query have {self.recall:.1%} of the neighbours of left-out "
            f"rows; their NLL is {self.approximate_nll:.4f}, with all neighbours {self.exact_nll:.4f}"
        )


def smoothness_line(shares: Mapping[str, float] | None) -> str:
    """Which smoothness was learned; nothing where it was not."""
    if shares is None:
        return ""
    rough, middle, smooth = (f"{share:.2%}" if 0 < share < 0.01 else f"{share:.0%}" for share in shares.values())
    return f"smoothness: {rough} Matern 1/2, {middle} Matern 3/2, {smooth} Matern 5/2"


def bent_line(shares: np.ndarray, names: Sequence[object]) -> str:
    """Which columns were bent, from shares (d, 3) of them as they are, of normal and of uniform scores."""
    bent = np.flatnonzero(shares[:, 0] < 1 - _BENT)
    if not bent.size:
        return ""
    most = bent[np.argsort(shares[bent, 0], kind="stable")]
    towards = np.where(shares[most, 1] > shares[most, 2], "normal", "uniform")
    said = [f"{names[e]} ({scores})" for e, scores in zip(most[:_NAMED].tolist(), towards.tolist(), strict=False)]
    rest = f" and {len(most) - _NAMED} more" if len(most) > _NAMED else ""
    return f"bent towards scores of their ranks: {', '.join(said)}{rest}"


_LABELS = (
    ("rmse", "RMSE"),
    ("nll", "NLL"),
    ("crps", "CRPS"),
    ("error", "error"),
    ("brier", "Brier score"),
    ("calibration_error", "calibration error"),
)
_COVERAGES = ("coverage_50", "coverage_90", "coverage_95")
