"""The tables of the report: scores beside the paper's, mean ranks, maxima of the objectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.content import BETTER, DIFFERENT, SAME, WORSE, Cell, Table
from experiments.paper_tables import OTHER_DATA, Paper
from experiments.process import DONE
from experiments.summaries import NOMINAL, NOT_RUN, Summary, loss, mean_ranks, summarise, winners
from experiments.task import Experiment

Result = Mapping[str, Any]

TITLES = {
    "nll": "NLL", "rmse": "RMSE", "crps": "CRPS", "coverage_90": "Share inside the 90 % interval", "error": "Error",
    "brier": "Brier score", "seconds_per_step": "Seconds per step",
}  # fmt: skip
_PAPER_ROUNDING = 0.5e-3
_RANKED = ("nll", "rmse", "crps", "error")


def score_table(
    experiment: Experiment, results: Sequence[Result], entries: Sequence[str], metric: str, paper: Paper
) -> Table:
    """Rows are data sets, columns methods."""
    cells = summarise(results, metric)
    names = [name for name in experiment.data if any(data == name for data, _ in cells)]
    names += sorted({data for data, _ in cells} - set(names))
    has_best = any(paper.best(metric, name) for name in names)
    rows = []
    for name in names:
        row = {entry: cells[name, entry] for entry in entries if (name, entry) in cells}
        best = winners(row, metric)
        line = [Cell(name, small=_size(results, name))]
        for entry in entries:
            if entry in row:
                beside = paper.figure(metric, name, experiment.entry(entry).paper)
                line.append(_score(row[entry], metric, entry in best, beside, name not in OTHER_DATA))
            else:
                line.append(Cell("", faint=True))
        if has_best:
            found = paper.best(metric, name)
            line.append(Cell(f"{found[0]:.3f}", small=found[1]) if found else Cell(""))
        rows.append(line)
    head = ["data set", *entries, *(["paper's best"] if has_best else [])]
    notes = [basis(results)] + ([f"Paper: {paper.label}."] if has_best else [])
    return Table(TITLES.get(metric, metric), head, rows, [" ".join(notes)])


def basis(results: Sequence[Result]) -> str:
    """What a table rests on: how many splits, quick or not, what did not end. Its rows say how many rows were used."""
    splits = len({result["split"] for result in results})
    kind = "quick run" if any(result["quick"] for result in results) else "full run"
    missing: dict[str, list[str]] = {}
    for result in results:
        if result["status"] != DONE and result["data"] not in missing.setdefault(result["entry"], []):
            missing[result["entry"]].append(result["data"])
    ended = "; ".join(f"{entry} ({', '.join(data)})" for entry, data in missing.items())
    return f"{splits} split{'s' if splits > 1 else ''}, {kind}." + (f" Did not end: {ended}." if ended else "")


def _score(
    cell: Summary, metric: str, bold: bool, beside: tuple[float, float | None] | None = None, same_data: bool = True
) -> Cell:
    """One figure; beside the paper's, if there is one. Only where both errors are known is one called better."""
    if cell.mean is None:
        return Cell(_joined(cell.missing), faint=True, paper=f"{beside[0]:.3f}" if beside else "")
    error = "" if cell.standard_error is None else f"± {_number(cell.standard_error, metric)}"
    ended = len(cell.values)
    small = error if not cell.missing else f"{error} ({ended} of {ended + len(cell.missing)})".strip()
    text = _number(cell.mean, metric)
    if beside is None:
        return Cell(text, small, bold)
    value, paper_error = beside
    difference = loss(cell.mean, metric) - loss(value, metric)
    tone = ""
    if same_data and cell.standard_error is not None and paper_error is not None:
        within = _PAPER_ROUNDING + float(np.hypot(cell.standard_error, paper_error))
        tone = SAME if abs(difference) <= within else BETTER if difference < 0 else WORSE
    return Cell(text, small, bold, f"{value:.3f}", f"{difference:+.3f}", tone)


def rank_tables(experiment: Experiment, results: Sequence[Result], entries: Sequence[str], paper: Paper) -> list[Table]:
    """Mean ranks among the methods that were run on most data, and among the paper's own beside the paper's ranks.

    Most: nine tenths of the pairs of data set and split that at least half of the methods were run on. Ranks are
    over the pairs that all of these methods have.
    """
    ended = {result["entry"] for result in results if result["status"] == DONE}
    run_on = {entry: {(r["data"], r["split"]) for r in results if r["entry"] == entry} for entry in entries}
    times = Counter(pair for entry in entries if entry in ended for pair in run_on[entry])
    usual = {pair for pair, count in times.items() if 2 * count >= len(ended)}
    ranked = [entry for entry in entries if 10 * len(run_on[entry] & usual) >= 9 * len(usual) and entry in ended]
    pairs = usual.intersection(*(run_on[entry] for entry in ranked))
    never = [entry for entry in entries if entry not in ended]
    left_out = [entry for entry in entries if entry in ended and entry not in ranked]
    metrics = [metric for metric in experiment.metrics if metric in _RANKED]
    if len(ranked) < 2 or not pairs:
        return []
    results = [result for result in results if (result["data"], result["split"]) in pairs]
    tables = [_ranks("Mean ranks, all methods", metrics, results, ranked, {})]
    if left_out:
        tables[0].notes.append(f"Not ranked, because not run on nine tenths of these: {', '.join(left_out)}.")
    if never:
        tables[0].notes.append(f"Not ranked, because no fit ended: {', '.join(never)}.")
    own = {}
    for entry in ranked:
        known = experiment.entry(entry)
        if known.paper and not known.variant and any(paper.rank(metric, known.paper) for metric in metrics):
            own[entry] = {metric: paper.rank(metric, known.paper) for metric in metrics}
    if len(own) > 1:
        table = _ranks("Mean ranks, methods of the paper's rank table", metrics, results, list(own), own)
        label = paper.content["rank_table"]
        table.notes.append(f"Paper: {label}, among all of its methods; the data sets and splits are not all the same.")
        tables.append(table)
    return tables


def _ranks(
    title: str,
    metrics: Sequence[str],
    results: Sequence[Result],
    entries: Sequence[str],
    paper: Mapping[str, Mapping[str, float | None]],
) -> Table:
    rows, count = [], 0
    for metric in metrics:
        ranks, pairs = mean_ranks(results, metric, entries)
        if not ranks:
            continue
        count = max(count, pairs)
        best = min(ranks.values())
        line = [Cell(TITLES[metric])]
        for entry in entries:
            beside = paper.get(entry, {}).get(metric)
            shown = "" if beside is None else f"{beside:.2f}"
            line.append(Cell(f"{ranks[entry]:.2f}", bold=ranks[entry] == best, paper=shown))
        rows.append(line)
    own = [result for result in results if result["entry"] in entries]
    names = ", ".join(dict.fromkeys(result["data"] for result in own))
    notes = [f"Pairs of data set and split: {count}, of {names}. A fit that did not end is last. {basis(own)}"]
    return Table(title, ["metric", *entries], rows, notes)


def k_tables(results: Sequence[Result]) -> list[Table]:
    """Scores for each number of neighbours."""
    ks = sorted({int(k) for result in results for k in result["by_k"]})
    names = list(dict.fromkeys(result["data"] for result in results))
    tables = []
    for metric in ("nll", "rmse", "crps"):
        rows = []
        for name in names:
            own = [result["by_k"] for result in results if result["data"] == name]
            row = {str(k): _of_k(own, str(k), metric) for k in ks}
            best = winners(row, metric)
            cells = [_score(cell, metric, k in best) if cell.values else Cell("") for k, cell in row.items()]
            rows.append([Cell(name, small=_size(results, name)), *cells])
        tables.append(Table(TITLES[metric], ["data set", *(f"k = {k}" for k in ks)], rows, [basis(results)]))
    return tables


def _of_k(by_ks: Sequence[Mapping[str, Any]], k: str, metric: str) -> Summary:
    values = [by_k.get(k, {}).get(metric) for by_k in by_ks]
    there = tuple(value for value in values if value is not None)
    return Summary(there, (NOT_RUN,) * (len(values) - len(there)))


def maxima_table(results: Sequence[Result], paper: Paper) -> Table:
    """Where each objective is largest, and how far that is from where the paper's is."""
    labels = {"kernel_scale": "kernel scale σ_K", "noise_std": "noise σ_obs"}
    names = list(results[0]["curves"])
    rows = []
    for result in results:
        for parameter, label in labels.items():
            maxima = paper.content["maxima"][parameter]
            cells = [_maximum(result["curves"][name][parameter], maxima.get(name)) for name in names]
            rows.append([Cell(f"{result['data']}, {label}", small=f"{result['rows']['train']:,} rows"), *cells])
    notes = [f"{basis(results)} Paper: {paper.label}. Grey: within 10 %."]
    return Table("Where the objectives are largest", ["", *names], rows, notes)


def _maximum(curve: Mapping[str, Any], theirs: float | None) -> Cell:
    """Where a curve is largest; "≤" or "≥" where it still grows at the end of its values."""
    ours, values = curve["largest_at"], curve["values"]
    end = "≤ " if ours == values[0] else "≥ " if ours == values[-1] else ""
    paper = "" if theirs is None else f"{theirs:.2f}"
    if end or theirs is None:
        return Cell(f"{end}{ours:.3g}", paper=paper)
    off = ours / theirs - 1
    tone = SAME if abs(off) <= 0.1 else DIFFERENT
    return Cell(f"{ours:.3g}", paper=paper, difference=f"{100 * off:+.0f} %", tone=tone)


def _size(results: Sequence[Result], data: str) -> str:
    """Training rows of a data set."""
    sizes = sorted({r["rows"]["train"] for r in results if r["data"] == data and r["status"] == DONE})
    return " or ".join(f"{size:,}" for size in sizes) + " rows" if sizes else ""


def _number(value: float, metric: str) -> str:
    if metric == "seconds_per_step":
        return f"{value:.3g}"
    return f"{value:.{3 if metric in ('nll', *NOMINAL) else 4}f}"


def _joined(reasons: Sequence[str]) -> str:
    """Reasons, once each; that a split was not run is told only where nothing else is."""
    return ", ".join(sorted(set(reasons) - {NOT_RUN})) or NOT_RUN
