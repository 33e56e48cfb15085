"""Plain sentences: what each part of a report tells. What may be chance is not told."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfield.calibration import EVERY_ROW
from nearfield.diagnostics.chance import SURE
from nearfield.diagnostics.slices import short

_FEW = 4  # statements of one kind


def percent(share: float, digits: int = 1) -> str:
    """A share as people write it."""
    return f"{100 * share:.{digits}f} %".replace("-", "−")


def of_target(found: dict[str, Any]) -> dict[str, list[str]]:
    """By part: scores, calibration, residuals, worst, rootogram."""
    said = {
        "scores": _of_scores(found),
        "calibration": _of_calibration(found),
        "residuals": _of_residuals(found["residuals"]),
        "worst": _of_worst(found["worst"]),
    }
    if found["rootogram"] is not None:
        said["rootogram"] = _of_zeros(found["rootogram"]["zeros"])
    return said


def _of_scores(found: dict[str, Any]) -> list[str]:
    own, constant, gain = found["scores"]["model"], found["scores"]["constant"], found["gain"]
    if gain["p"] > SURE or gain["crps"] <= 0:
        return [
            f"On {found['n']:,} {found['rows']} the model is not clearly better than a constant prediction: CRPS "
            f"{short(own['crps'])} against {short(constant['crps'])}."
        ]
    return [
        f"On {found['n']:,} {found['rows']} the root mean squared error is {short(own['rmse'])}; that of a constant "
        f"prediction is {short(constant['rmse'])}. {_explained(own['rmse'], constant['rmse'])}"
    ]


def _explained(rmse: float, constant: float) -> str:
    share = 1 - (rmse / constant) ** 2 if constant > 0 else 0.0
    if share <= 0:
        return "Squared errors are no smaller; the distributions are better."
    return f"So the columns explain {percent(share, 0 if share < 0.95 else 1)} of the variance."


def _of_calibration(found: dict[str, Any]) -> list[str]:
    told, level = found["calibration"], percent(found["calibration"]["level"], 0)
    share, said = percent(told["inside"]), []
    if told["inside_p"] > SURE:
        said.append(f"{level} intervals hold {share} of the rows: as many as they should, within chance.")
    else:
        narrow = told["inside"] < told["level"]
        by = _factor(told["factor"])
        way = "narrow" if narrow else "wide"
        said.append(f"{level} intervals hold {share} of the rows, beyond chance: they are too {way}{by}.")
    if told["bias_p"] < SURE / 2:
        side = "higher" if told["bias"] > 0 else "lower"
        said.append(
            f"What is observed tends to be {side} than the middle of its distribution: {percent(0.5 + told['bias'])} "
            "of the probability lies below it on average, not 50 %."
        )
    if told["spread_p"] < SURE / 2:
        shape = (
            "rows lie in the tails more often than distributions say: these are too narrow, or their tails too light"
            if told["spread"] > 0
            else "rows lie in the middle more often than distributions say: on the whole these are too wide"
        )
        said.append(f"In the histogram, {shape}.")
    if found["rootogram"] is not None:
        said.append(
            "Intervals of counts end at whole numbers. With both ends they hold "
            f"{percent(found['scores']['model']['coverage_90'])}; in this section an end counts as far as it is needed."
        )
    if found["rows"] == "left-out rows":
        said.append(
            "Error bars were set on left-out rows, so that overall coverage of such rows is close by construction; "
            "slices of them are not."
        )
    return [*said, *_of_slices(told), *_of_slab(told), _of_widths(told)]


def _factor(factor: float | None) -> str:
    """By how many per cent, where it is known and more than one."""
    if factor is None or abs(factor - 1) < 0.005:
        return ""
    by = factor - 1 if factor > 1 else 1 / factor - 1
    if factor >= 2:
        return f", and would have to be {factor:.1f} times as wide"
    return f", by {percent(by, 0)}" if by >= 0.01 else ""


def off_slices(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Slices that are off beyond chance: where all rows are, those that also differ from all."""
    everywhere = told["inside_p"] <= SURE
    return [e for e in told["slices"] if e["p"] < SURE and (e["apart"] < SURE or not everywhere)]


def _of_slices(told: dict[str, Any]) -> list[str]:
    off = off_slices(told)
    if not off:
        if not told["slices"] or told["inside_p"] <= SURE:
            return []
        return [f"In none of {len(told['slices'])} slices by the columns does coverage differ beyond chance."]
    said = []
    for entry in off[:_FEW]:
        way = "narrow" if entry["coverage"] < told["level"] else "wide"
        held = f"{percent(entry['coverage'])} of {entry['rows']:,} rows"
        which = f"{entry['column']} = {entry['slice']}"
        said.append(f"For {which} intervals hold {held}: they are too {way}{_factor(entry['factor'])}.")
    if len(off) > _FEW:
        said.append(f"So they do, one way or the other, in {len(off) - _FEW} more slices; see the table.")
    return said


def _of_slab(told: dict[str, Any]) -> list[str]:
    slab = told["slab"]
    if slab is None or slab["p"] > SURE or slab["coverage"] >= told["level"]:
        return []
    if told["inside_p"] <= SURE and slab["apart"] > SURE:  # no worse than all rows
        return []
    names = ", ".join(entry["feature"] for entry in slab["direction"])
    return [
        f"In the worst slab of the rows, between two planes across {names}, intervals hold {percent(slab['coverage'])} "
        f"of {slab['rows']:,} rows. It was found on one half of the rows and judged on the other."
    ]


def _of_widths(told: dict[str, Any]) -> str:
    widths = told["widths"]
    low, _, middle, _, high = np.asarray(widths["quantiles"]).tolist()
    return (
        f"Half of the {percent(told['level'], 0)} intervals are narrower than {short(middle)}, one in twenty than "
        f"{short(low)}, and one in twenty is wider than {short(high)}; that of a constant prediction is "
        f"{short(widths['constant'])}."
    )


def _of_residuals(told: dict[str, Any]) -> list[str]:
    parts = [("the prediction", told["prediction"]["bins"])]
    parts += [(entry["column"], entry["bins"]) for entry in told["columns"]]
    off = [(name, entry) for name, bins in parts for entry in bins if entry["p"] < SURE / len(parts)]
    off.sort(key=lambda pair: pair[1]["p"])
    if not off:
        return ["Nowhere along these is the mean residual beyond chance: no trend is left."]
    said = []
    for name, entry in off[:_FEW]:
        way = "low" if entry["residual"] > 0 else "high"
        said.append(
            f"Predictions are too {way} by {short(abs(entry['residual']))} ± {short(2 * entry['error'])} on average "
            f"where {name} is {where(entry)}."
        )
    return said


def where(entry: dict[str, Any]) -> str:
    """A bin, or a slice, in words."""
    if "slice" in entry:
        return str(entry["slice"])
    if "range" in entry:
        return str(entry["range"])
    return short(entry["low"]) if entry["low"] == entry["high"] else f"{short(entry['low'])} to {short(entry['high'])}"


def _of_worst(told: list[dict[str, Any]]) -> list[str]:
    if not told:
        return []
    worst = told[0]
    return [
        f"Row {worst['row']} surprises most: {short(worst['observed'])} was observed, {short(worst['predicted'])} "
        f"predicted, between {short(worst['lower'])} and {short(worst['upper'])} with 90 %. Rows like these are worth "
        "a look: a mistake in the table, or something that no column tells."
    ]


def _of_zeros(zeros: dict[str, Any]) -> list[str]:
    said = f"{short(zeros['observed'])} rows have the count 0; {short(zeros['expected'])} are expected"
    if zeros["p"] > SURE:
        return [f"{said}, which is within chance."]
    return [f"{said}: {'more' if zeros['observed'] > zeros['expected'] else 'fewer'} zeros than predicted."]


# --- classes ----------------------------------------------------------------------------------------------------------


def of_classes(found: dict[str, Any]) -> dict[str, list[str]]:
    """By part: scores, reliability, slices, confusion, curves, worst."""
    own, constant = found["scores"]["model"], found["scores"]["constant"]
    clear = found["gain"]["p"] < SURE and found["gain"]["nll"] > 0
    better = "" if clear else " Its probabilities are not clearly better than the shares of the classes."
    scores = [
        f"The most probable class is wrong in {percent(own['error'])} of {found['n']:,} {found['rows']}; always "
        f"naming the most frequent class, in {percent(constant['error'])}.{better}"
    ]
    if found["unseen"]:
        scores.append(f"{found['unseen']:,} more rows have labels that training did not have; they are left out here.")
    off = [entry for entry in found["reliability"] if entry["p"] < SURE]
    said = [
        f"Where the most probable class has a probability of {percent(entry['predicted'])} on average, it is right in "
        f"{percent(entry['observed'])} of {entry['rows']:,} rows: the model is too "
        f"{'sure' if entry['observed'] < entry['predicted'] else 'careful'} there."
        for entry in off[:_FEW]
    ]
    reliable = said or ["Probabilities hold what they say: no bin of them is off beyond chance."]
    slices = [
        f"For {entry['column']} = {entry['slice']}, {percent(entry['right'])} of {entry['rows']:,} rows are right, "
        f"where probabilities promise {percent(entry['stated'])}."
        for entry in found["slices"][:_FEW]
        if entry["p"] < SURE
    ]
    return {
        "scores": scores,
        "reliability": reliable,
        "slices": slices or ["In no slice by the columns is the share of right rows off beyond chance."],
        "confusion": _of_confusion(found["confusion"]),
        "curves": _of_curves(found["curves"]),
        "worst": _of_worst_label(found["worst"]),
    }


def _of_confusion(told: dict[str, Any]) -> list[str]:
    matrix, labels = np.array(told["rows"], dtype=np.float64), told["labels"]
    wrong = matrix - np.diag(np.diag(matrix))
    if not wrong.any():
        return ["No row is taken for another class."]
    a, b = np.unravel_index(int(wrong.argmax()), wrong.shape)
    return [
        f"The most frequent mistake: class {labels[a]} is taken for class {labels[b]}, {short(wrong[a, b])} times out "
        f"of {short(matrix[a].sum())}."
    ]


def _of_curves(told: list[dict[str, Any]]) -> list[str]:
    if not told:
        return []
    ranked = sorted(told, key=lambda entry: entry["auc"])
    low, high = ranked[0], ranked[-1]
    if len(ranked) > 1 and high["auc"] - low["auc"] < 5e-4:
        return [f"All classes are told apart equally well (area under the ROC curve {low['auc']:.3f})."]
    if len(ranked) == 1:
        return [
            f"A random row of class {low['label']} gets a higher probability of it than a random other row in "
            f"{percent(low['auc'])} of all pairs."
        ]
    return [
        f"Class {high['label']} is told apart best (area under the ROC curve {high['auc']:.3f}), class {low['label']} "
        f"worst ({low['auc']:.3f})."
    ]


def _of_worst_label(told: list[dict[str, Any]]) -> list[str]:
    if not told:
        return []
    worst = told[0]
    return [
        f"Row {worst['row']} surprises most: it is of class {worst['observed']}, which had a probability of "
        f"{short(worst['probability'])}."
    ]


# --- the model --------------------------------------------------------------------------------------------------------


def of_importance(found: dict[str, Any]) -> list[str]:
    told = [entry for entry in found["columns"] if entry["loss"] > 0]
    if not told:
        return ["No column matters: shuffling any of them makes left-out predictions no worse."]
    names = [f"{entry['column']} ({entry['loss']:.3g})" for entry in told[:3]]
    said = f"What matters most, by the log score that left-out rows lose when it is shuffled: {', '.join(names)}."
    none = len(found["columns"]) - len(told)
    rest = f" {none} of {len(found['columns'])} columns make{'s' if none == 1 else ''} no difference." if none else ""
    return [said + rest]


def of_effect(told: dict[str, Any]) -> list[str]:
    mean, low, high = (np.asarray(told[name], dtype=np.float64) for name in ("mean", "low", "high"))
    least, most = int(mean.argmin()), int(mean.argmax())
    if high[least] >= low[most]:
        return ["On average over the rows, no effect beyond the error bars."]
    return [
        f"{told['output']} is lowest on average, {short(mean[least])}, at {told['column']} = {told['labels'][least]}, "
        f"and highest, {short(mean[most])}, at {told['labels'][most]}."
    ]


def of_training(found: dict[str, Any], k_reason: str) -> list[str]:
    ended = (
        "before the limit, because the score had settled" if found["steps"] < found["most_steps"] else "at the limit"
    )
    said = [f"Training took {found['steps']:,} steps in {found['seconds']:.1f} s and ended {ended}."]
    if found["recoveries"]["jittered"] or found["recoveries"]["rejected"]:
        said.append(
            f"{found['recoveries']['jittered']:,} matrices needed a larger diagonal and "
            f"{found['recoveries']['rejected']:,} steps were not taken: both are harmless if few."
        )
    if k_reason.startswith(EVERY_ROW):
        said.append(f"Each prediction comes from all other rows{k_reason.removeprefix(EVERY_ROW)}.")
    else:
        said.append(f"Each prediction comes from the {found['k']:,} rows most like it: {k_reason}.")
    if found["smoothness"]:
        shares = ", ".join(f"{percent(share, 0)} {name}" for name, share in found["smoothness"].items())
        said.append(f"Smoothness of the kernel, from rough to smooth: {shares}.")
    bent = [entry["name"] for entry in found["features"] if entry["straight"] < 0.5 and entry["relevance"] > 0]
    if bent:
        more = f" and {len(bent) - 5} more" if len(bent) > 5 else ""
        said.append(f"Bent towards the scores of their ranks: {', '.join(bent[:5])}{more}.")
    return said


def of_map(found: dict[str, Any]) -> list[str]:
    said = []
    if found["others"]:
        held = ", ".join(f"{name} = {short(value)}" for name, value in list(found["others"].items())[:6])
        said.append(f"Other columns are held at their medians: {held}{', ..' if len(found['others']) > 6 else ''}.")
    told = found["variogram"]
    if told is not None:
        gamma, lags = np.asarray(told["model"]), np.asarray(told["model_lags"])
        nugget, half = float(gamma[0]), told["variance"] / 2
        share = nugget / told["variance"]
        said.append(
            f"What cannot be told from places at all, the nugget, is {percent(share)} of the target's variance."
        )
        beyond = np.flatnonzero(gamma >= half)
        if beyond.size and beyond[0] > 0:
            apart = f"{short(lags[beyond[0]])} {told['unit']}"
            said.append(f"By the model, rows {apart} apart differ by half of the target's variance.")
    return said


def of_outputs(found: dict[str, Any]) -> list[str]:
    names = found["names"]
    before, after = (np.array(found[key], dtype=np.float64) for key in ("targets", "residuals"))
    a, b = np.triu_indices(len(names), 1)
    most = int(np.nanargmax(np.abs(after[a, b]))) if np.isfinite(after[a, b]).any() else 0
    one, other = names[a[most]], names[b[most]]
    return [
        f"{one} and {other} are correlated by {short(before[a, b][most])}; what is left of them after prediction by "
        f"{short(after[a, b][most])}. What is left in common, predictions of one could still learn from the other."
    ]


def in_short(found: dict[str, Any]) -> list[str]:
    """The first lines of a page."""
    first = found["evaluations"][0]
    said: list[str] = []
    for entry in first["targets"][:3]:
        name = f"{entry['name']}: " if len(first["targets"]) > 1 else ""
        said += [name + text for text in (entry["says"]["scores"][0], entry["says"]["calibration"][0])]
        if off_slices(entry["calibration"]):
            said.append(name + _of_slices(entry["calibration"])[0])
    if "classes" in first:
        said += [first["classes"]["says"]["scores"][0], first["classes"]["says"]["reliability"][0]]
    return [*said, *found["importance"]["says"]]
