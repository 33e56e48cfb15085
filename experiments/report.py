"""The report: one HTML page and one Markdown file from the result files of a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import figures, markdown, page, paper_tables
from experiments.catalogue import EXPERIMENTS
from experiments.content import Cell, Figure, Report, Section, Table
from experiments.ours import ALL_METHODS
from experiments.process import DONE
from experiments.report_tables import k_tables, maxima_table, rank_tables, score_table
from experiments.store import read_all
from experiments.task import Experiment

Result = dict[str, Any]


def build(folder: Path) -> list[Path]:
    """Write report.html, report.md and the figures into the folder; their paths."""
    report, drawings = compose(read_all(folder), str(folder))
    written = [folder / "report.html", folder / "report.md"]
    written[0].write_text(page.rendered(report))
    written[1].write_text(markdown.rendered(report))
    for figure in drawings:
        written.append(folder / "figures" / f"{figure.name}.svg")
        written[-1].parent.mkdir(exist_ok=True)
        written[-1].write_text(figure.svg)
    return written


def compose(results: Sequence[Result], where: str = "") -> tuple[Report, list[Figure]]:
    """The report of all results, and its figures."""
    if not results:
        raise FileNotFoundError(f"no results in {where or 'this folder'}: first `python -m experiments run NAME`.")
    sections = []
    for experiment in EXPERIMENTS.values():
        own = [result for result in results if result["experiment"] == experiment.name]
        if own:
            sections.append(section(experiment, own))
    quick = any(result["quick"] for result in results)
    about = [
        "What `python -m experiments` found, beside the figures of Jankowiak and Pleiss, Scalable Cross Validation "
        "Losses for Gaussian Process Models (2022).",
        "A figure is a mean over splits with its standard error, or that of a single split, without one; (2 of 3) says "
        "that a method has not all splits that others have. Bold: the best of a row, and what overlaps it within one "
        "standard error; a method that misses a split is never bold. Below, where the paper has the figure: the "
        "paper's, and how far ours is from it, better, worse, or the same within the errors; without that word where "
        "an error is not known or the data may be others. Lower is better, except for coverage, which should be 0.9.",
        "Splits are 15:3:2, here the training, validation and test rows; the paper tests on the three parts and "
        "chooses on the two. Why the experiments are run as they are, and what of the paper was not found: "
        "docs/decisions/011-experiments.md.",
    ]
    if quick:
        about.append(
            "This is a quick run: few rows, few steps. It shows that everything works; its figures say little about "
            "the methods and are not comparable with the paper's."
        )
    return Report("The paper's experiments", about, _overview(results), sections), [
        figure for part in sections for figure in part.figures
    ]


def section(experiment: Experiment, results: Sequence[Result]) -> Section:
    """One experiment: its tables, figures, and what must be known to read them."""
    paper = paper_tables.load(experiment.paper)
    entries = _entries(experiment, results)
    done = [result for result in results if result["status"] == DONE]
    tables, drawn = [], None
    if experiment.name == "curves":
        drawn = figures.curves(done, paper.content["maxima"])
        tables = [maxima_table(done, paper)] if done else []
    else:
        for metric in experiment.metrics:
            tables.append(score_table(experiment, results, entries, metric, paper))
        if experiment.paper and experiment.name != "degenerate":
            tables += rank_tables(experiment, results, entries, paper)
    if experiment.name == "misspecification":
        drawn = figures.misspecification(done)
    elif experiment.name == "k_dependence":
        drawn, tables = figures.k_dependence(done), k_tables(done)
    elif experiment.name == "runtime":
        drawn = figures.runtime(done)
    notes = _settings(done) + _caveats(experiment, results)
    return Section(
        experiment.name, experiment.title, experiment.about, _facts(results), tables, [drawn] if drawn else [], notes
    )


def _entries(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    """Names of the columns: those of the catalogue in its order, then others."""
    there = {result["entry"] for result in results}
    order = [entry.name for entry in experiment.entries if entry.name in there]
    return order + sorted(there - set(order))


def _facts(results: Sequence[Result]) -> list[str]:
    """Which N, how many splits, what did not end, quick or not."""
    sizes = sorted({result["rows"]["train"] for result in results if "rows" in result})
    splits = sorted({result["split"] for result in results})
    status = Counter(result["status"] for result in results)
    facts = [
        f"{len(splits)} split{'s' if len(splits) > 1 else ''}",
        "training rows " + (f"{sizes[0]:,}" if len(sizes) < 2 else f"{sizes[0]:,} to {sizes[-1]:,}") if sizes else "",
        ", ".join(f"{count} {name}" for name, count in status.most_common()),
        "quick run" if any(result["quick"] for result in results) else "full run",
    ]
    limits = sorted({result["limit"] for result in results if result["status"] == "did not finish"})
    if limits:
        facts.append("time limit of a fit " + ", ".join(f"{limit:g} s" for limit in limits))
    return [fact for fact in facts if fact]


def _settings(results: Sequence[Result]) -> list[str]:
    """Of each method, what it is, and its settings: what was the same in all of its fits, or from where to where."""
    by_entry: dict[str, list[dict[str, Any]]] = {}
    methods = {result["entry"]: result["method"] for result in results}
    for result in results:
        by_entry.setdefault(result["entry"], []).append(result.get("chosen", {}))
    notes = []
    for entry, chosen in by_entry.items():
        names = [name for name in chosen[0] if all(isinstance(each.get(name), (int, float, str)) for each in chosen)]
        told = [f"{name.replace('_', ' ')} {_range([each[name] for each in chosen])}" for name in names]
        about = ALL_METHODS[methods[entry]].about if methods[entry] in ALL_METHODS else ""
        if told or about:
            notes.append(f"{entry}: {'; '.join(part for part in (about, ', '.join(told)) if part)}.")
    return notes


def _range(values: Sequence[Any]) -> str:
    values = [("no", "yes")[value] if isinstance(value, bool) else value for value in values]
    if any(isinstance(value, str) for value in values):
        return " or ".join(sorted(set(map(str, values))))
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _caveats(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    there = sorted({result["data"] for result in results})
    notes = [
        f"{name}: {paper_tables.CAVEATS[name]}." for name in there if experiment.paper and name in paper_tables.CAVEATS
    ]
    messages: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result["status"] not in (DONE, "did not finish"):
            messages.setdefault((result["entry"], result["status"]), []).append(result.get("message", ""))
    for (entry, status), told in messages.items():
        times = f"{len(told)} times, such as" if len(told) > 1 else "1 time"
        notes.append(f"{entry} {status}, {times}: {told[0].splitlines()[0][:200]}")
    sources = sorted({result["source"] for result in results if "source" in result})
    return notes + ([f"Data: {', '.join(sources)}."] if sources else [])


def _overview(results: Sequence[Result]) -> Table:
    """One line for each experiment."""
    rows = []
    for experiment in EXPERIMENTS.values():
        own = [result for result in results if result["experiment"] == experiment.name]
        status = Counter(result["status"] for result in own)
        hours = sum(result["elapsed"] for result in own) / 3600
        rows.append(
            [
                Cell(experiment.title, small=f"({experiment.name})", faint=not own),
                Cell(str(len({result["data"] for result in own})) if own else "not run", faint=not own),
                Cell(str(len({result["entry"] for result in own})) if own else ""),
                Cell(str(len({result["split"] for result in own})) if own else ""),
                Cell(str(status[DONE]) if own else ""),
                Cell(str(status["did not finish"] + status["too large"]) if own else ""),
                Cell(str(status["failed"]) if own else ""),
                Cell(f"{hours:.2f}" if own else ""),
            ]
        )
    head = ["experiment", "data sets", "methods", "splits", "done", "did not end", "failed", "hours"]
    return Table("Overview", head, rows)
