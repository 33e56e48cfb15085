"""A report as Markdown: sentences and tables, without pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nearfield.report.page import Section, sections

_MOST_ROWS = 30


def markdown(data: dict[str, Any]) -> str:
    """The text of the file."""
    lines = [f"# {_plain(data['name'])}", "", *_list(data["says"])]
    for section in sections(data):
        lines += ["", f"## {_plain(section.title)}", *_section(section)]
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> list[str]:
    lines: list[str] = []
    for part in section.parts:
        if part.title:
            lines += ["", f"### {_plain(part.title)}"]
        lines += ["", *_list(part.says)] if part.says else []
        for told in part.tables:
            lines += ["", *([f"**{_plain(told.title)}**", ""] if told.title else []), *_table(told.columns, told.rows)]
        for figure in part.figures:
            said = [*figure.says, *([figure.note] if figure.note else [])]
            lines += ["", f"**{_plain(figure.title)}**", "", *([*_list(said), ""] if said else [])]
            lines += _table(figure.table.columns, figure.table.rows)
    return lines


def _list(says: Sequence[str]) -> list[str]:
    return [f"- {_plain(text)}" for text in says]


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = ["| " + " | ".join(map(_cell, columns)) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines += ["", f"{len(rows) - _MOST_ROWS:,} more rows are left out here."]
    return lines


def _plain(text: Any) -> str:
    """One line in which nothing is taken for markup."""
    found = " ".join(str(text).split())
    for sign in "\\`*_<>#[]":
        found = found.replace(sign, "\\" + sign)
    return found


def _cell(text: Any) -> str:
    return _plain(text).replace("|", "\\|")
