"""What a fit did and how well it predicts rows left out, as users read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from nearfield.calibration import EVERY_ROW
from nearfield.families import FAMILIES, usual

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
    constant: dict[str, float] = field(default_factory=dict)
    """scores of the same left-out rows by a prediction that ignores the columns; files of earlier versions have none"""

    def as_dict(self) -> dict[str, object]:
        """List all of it as plain numbers and text.

        Returns
        -------
        dict
            The attributes by their names.
        """
        return asdict(self)

    def __str__(self) -> str:
        """Sentences that need no glossary; nothing is told that is zero or as usual."""
        told = [
            self._rows(),
            self._unusual(),
            self._training(),
            self._recoveries(),
            self._neighbours(),
            "those that are least like it count less, so that predictions do not jump"
            * (bool(self.neighbourhoods) and not self.k_reason.startswith(EVERY_ROW)),
            self.smoothness if self.steps else "",
            self.bent if self.steps else "",
            self.axes,
            self.sill,
            self._searching(),
            f"To judge it, {self.left_out_rows:,} rows were left out and predicted as if they were new",
            self.leaving,
            self._intervals(),
            self._scores(),
            self.verdict(),
        ]
        return "\n".join(_sentence(line) for line in told if line)

    def _rows(self) -> str:
        appended = f" ({self.appended:,} of them appended later)" if self.appended else ""
        appended += f" ({self.forgotten:,} others were forgotten)" if self.forgotten else ""
        return f"{self.rows:,} rows{appended}, {self.columns} columns, learned in {self.seconds:.1f} s"

    def _unusual(self) -> str:
        family = FAMILIES.get(self.likelihood)
        likely = family is None or family.kind in ("numbers", "label") or family is usual(family.kind)
        found = [
            "" if self.kernel == "auto" else f"kernel {self.kernel}",
            "" if self.mean == "constant" else f"{self.mean} mean",
            "" if likely else f"{self.likelihood.replace('_', ' ')} likelihood",
            "" if self.predictive == "calibrated" else f"{self.predictive} predictive",
        ]
        found = [what for what in found if what]
        return f"not the defaults: {', '.join(found)}" if found else ""

    def _training(self) -> str:
        """Nothing where it ended by itself."""
        if not self.steps:
            return "nothing was trained, as there are too few rows or the target is constant: starting values stay"
        if self.steps < self.most_steps:
            return ""
        return f"training ended at its limit of {self.steps:,} steps (max_steps), before its score had settled"

    def _recoveries(self) -> str:
        """What they mean, where there were any."""
        found = []
        if self.jittered:
            found.append(f"{_times(self.jittered)} rows were so alike that a little noise was added to solve for them")
        if self.rejected:
            found.append(f"{_times(self.rejected)} a step of training gave no finite score and was not taken")
        return f"{'; '.join(found)}: harmless if seldom" if found else ""

    def _neighbours(self) -> str:
        said = f"each prediction comes from the {self.k:,} rows most like it (k = {self.k}): {self.k_reason}"
        if self.k_reason.startswith(EVERY_ROW):  # files of earlier versions have it, too
            said = f"each prediction comes from all other rows (k = {self.k}){self.k_reason.removeprefix(EVERY_ROW)}"
        return said

    def _searching(self) -> str:
        """What an approximate search misses; nothing where none was asked for."""
        if self.search == "exact":
            return ""
        if not self.leaves:
            return "approximate search was asked for, but would not be faster here: search is exact"
        return (
            f"search is approximate: it looks into {self.leaves:,} boxes of rows and finds {self.recall:.1%} of those "
            f"most like a left-out row; NLL is {self.approximate_nll:.4f} with these, {self.exact_nll:.4f} with all"
        )

    def _intervals(self) -> str:
        covered = {
            level: f"{100 * self.left_out[name]:.1f} %" for level, name in _COVERAGES.items() if name in self.left_out
        }
        if 90 not in covered:
            return ""
        others = ", ".join(f"{share} of {level} % intervals" for level, share in covered.items() if level != 90)
        return f"of their 90 % intervals {covered[90]} hold what was observed" + (f" ({others})" if others else "")

    def _scores(self) -> str:
        """Scores to compare models by."""
        own = self.left_out
        found = [f"{name} {own[key]:.4g} ({meaning})" for key, (name, meaning) in _SCORES.items() if key in own]
        return f"scores to compare models by, the lower the better: {', '.join(found)}" if found else ""

    def verdict(self) -> str:
        """How well left-out rows are predicted, beside a prediction that ignores the columns."""
        own, constant = self.left_out, self.constant
        if "error" in own:
            said = f"Of left-out rows {100 * own['error']:.3g} % get the wrong class"
            if "error" in constant:
                said += f"; always predicting the most frequent one would get {100 * constant['error']:.3g} % wrong"
            return said
        if "rmse" not in own:
            return ""
        family = FAMILIES.get(self.likelihood)
        several = family is not None and family.kind == "numbers"
        said = f"Left-out rows are predicted with an RMSE of {own['rmse']:.4g}{', averaged over targets' * several}"
        if "rmse" in constant:
            without = "always predicting the same rate" if family is not None and family.kind == "count" else _MEAN
            said += f"; {without} would give {constant['rmse']:.4g}"
        return said


def _sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}".rstrip(".") + "."


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n:,} times"


def smoothness_line(shares: Mapping[str, float] | None) -> str:
    """Which smoothness was learned, of shares from rough to smooth; nothing where it was not."""
    if shares is None:
        return ""
    told = [f"{share:.0%} {how}" for how, share in zip(_SMOOTHNESS, shares.values(), strict=True) if share >= 0.005]
    return f"how the target changes with the columns: {', '.join(told[::-1])}".replace("%", " %")


def bent_line(shares: np.ndarray, names: Sequence[object]) -> str:
    """Which columns were bent, from shares (d, 3) of them as they are, of normal and of uniform scores."""
    bent = np.flatnonzero(shares[:, 0] < 1 - _BENT)
    if not bent.size:
        return ""
    most = bent[np.argsort(shares[bent, 0], kind="stable")]
    said = [str(names[e]) for e in most[:_NAMED].tolist()]
    rest = f" and {len(most) - _NAMED} more" if len(most) > _NAMED else ""
    return f"of these columns the order of the values counts more than the values themselves: {', '.join(said)}{rest}"


_SCORES = {
    "nll": ("NLL", "log loss"),
    "crps": ("CRPS", "error with error bars counted"),
    "brier": ("Brier score", "squared error of probabilities"),
    "calibration_error": ("calibration error", "probabilities against frequencies"),
}
_SMOOTHNESS = ("abruptly", "in between", "smoothly")
_COVERAGES = {50: "coverage_50", 90: "coverage_90", 95: "coverage_95"}
_MEAN = "always predicting the mean"
