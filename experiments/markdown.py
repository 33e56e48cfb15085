"""The report as Markdown."""

from __future__ import annotations

from experiments.content import Cell, Report, Section, Table


def rendered(report: Report) -> str:
    """The whole file."""
    parts = [f"# {report.title}", *report.about, table(report.overview)]
    parts += [section(part) for part in report.sections]
    return "\n\n".join(parts) + "\n"


def section(part: Section) -> str:
    parts = [f"## {part.title}", part.about, "; ".join(part.facts) + "."]
    parts += [f"![{figure.title}](figures/{figure.name}.svg)\n\n{figure.title}." for figure in part.figures]
    parts += [f"### {one.title}\n\n{table(one)}" for one in part.tables]
    parts += ["\n".join(f"* {note}" for note in part.notes)] if part.notes else []
    return "\n\n".join(parts)


def table(one: Table) -> str:
    lines = [f"| {' | '.join(one.head)} |", "|---" * len(one.head) + "|"]
    lines += [f"| {' | '.join(cell(c) for c in row)} |" for row in one.rows]
    return "\n".join([*lines, *(f"\n{note}" for note in one.notes)])


def cell(one: Cell) -> str:
    text = f"{one.text} {one.small}".strip()
    text = f"**{text}**" if one.bold and text else text
    if one.paper:
        text += f"<br>paper {one.paper}" + (f", {one.difference} {one.tone}".rstrip() if one.difference else "")
    return text.replace("|", "\\|")
