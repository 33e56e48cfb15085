"""The report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from experiments.content import BETTER, WORSE, Cell, Figure, Report, Section, Table

_STYLE = (Path(__file__).parent / "page.css").read_text
_SIGNS = {BETTER: "▾", WORSE: "▴"}


def rendered(report: Report) -> str:
    """The whole page."""
    links = "".join(f'<a href="#{part.name}">{escape(part.title)}</a>' for part in report.sections)
    about = "".join(f"<p>{_text(line)}</p>" for line in report.about)
    body = "".join(section(part) for part in report.sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>\n{_STYLE()}</style></head>\n"
        f"<body><header><h1>{escape(report.title)}</h1>{about}{_legend()}</header>\n"
        f"<nav>{links}</nav>\n<main>{table(report.overview)}{body}</main></body></html>\n"
    )


def section(part: Section) -> str:
    """One experiment."""
    facts = "".join(f"<li>{_text(fact)}</li>" for fact in part.facts)
    notes = "".join(f"<li>{_text(note)}</li>" for note in part.notes)
    return (
        f'\n<section id="{part.name}"><h2>{escape(part.title)}</h2><p>{_text(part.about)}</p>'
        f'<ul class="facts">{facts}</ul>{"".join(figure(one) for one in part.figures)}'
        f"{''.join(table(one) for one in part.tables)}"
        + (f'<details class="notes" open><summary>Notes</summary><ul>{notes}</ul></details>' if notes else "")
        + "</section>"
    )


def figure(one: Figure) -> str:
    """The drawing with its title below."""
    svg = one.svg.replace("<svg ", f'<svg role="img" aria-label="{escape(one.title)}" ', 1)
    return f"<figure>{svg}<figcaption>{escape(one.title)}</figcaption></figure>"


def table(one: Table) -> str:
    """Scrolls inside of its frame where it is wider or longer than the window; the heads stay."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in one.head)
    rows = "".join(
        f'<tr><th scope="row">{_figures(row[0])}</th>{"".join(cell(c) for c in row[1:])}</tr>\n' for row in one.rows
    )
    notes = "".join(f"<p>{_text(note)}</p>" for note in one.notes)
    return (
        f'<h3>{escape(one.title)}</h3><div class="frame"><table><thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><div class="under">{notes}</div>'
    )


def cell(one: Cell) -> str:
    """Our figure, below it the paper's and the difference."""
    names = " ".join(name for name, on in (("best", one.bold), ("faint", one.faint)) if on)
    beside = ""
    if one.paper:
        sign = _SIGNS.get(one.tone, "")
        difference = f' <span class="{one.tone}" title="{one.tone}">{sign}{_minus(one.difference)}</span>'
        beside = f'<div class="paper"><span>{_minus(one.paper)}</span>{difference if one.difference else ""}</div>'
    return f'<td class="{names}">{_figures(one)}{beside}</td>'


def _figures(one: Cell) -> str:
    small = f' <span class="small">{escape(one.small)}</span>' if one.small else ""
    return f'<span class="value">{_minus(one.text)}</span>{small}'


def _minus(text: str) -> str:
    """Escaped, numbers with a real minus sign."""
    return escape(re.sub(r"^-(?=\d)", "−", text))


def _legend() -> str:
    return (
        '<p class="legend">In a cell: ours <span class="small">± standard error</span>, below it '
        '<span class="paper">the paper’s</span> and the difference: <span class="better">▾ better</span>, '
        '<span class="worse">▴ worse</span>, <span class="same">within the errors</span>.</p>'
    )


def _text(text: str) -> str:
    """Escaped, `code` marked up."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
