"""One page about a model: what it was fitted to, how good it is, where it is wrong, what matters.

`report_data` makes a dict of plain numbers and text from which all else follows: `page.sections` puts it in order, with
the figures of `figures` and `map_figures`, and `html` and `markdown` write files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from nearfield.atomic import check_replaceable, replacing
from nearfield.report.data import report_data
from nearfield.report.html import check_available, html
from nearfield.report.markdown import markdown

_WRITERS: dict[str, Callable[[dict[str, Any]], str]] = {
    ".html": html,
    ".htm": html,
    ".md": markdown,
    ".json": lambda data: json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
}
ENDINGS = ".html, .md or .json"


def check_destination(path: str | os.PathLike[str]) -> None:
    """Raise an error that helps unless a report can be written there, before anything is computed."""
    ending = _ending(path)
    if ending not in _WRITERS:
        raise ValueError(f"the report {os.fspath(path)!r} ends in {ending or 'nothing'}: expected {ENDINGS}.")
    if _WRITERS[ending] is html:
        check_available()
    check_replaceable(path, "report")


def write_report(path: str | os.PathLike[str], data: dict[str, Any]) -> None:
    """Write a report, HTML, Markdown or JSON by the ending of its name; whole or not at all."""
    text = _WRITERS[_ending(path)](data).encode()
    with replacing(path, "report") as file:
        file.write(text)


def _ending(path: str | os.PathLike[str]) -> str:
    return os.path.splitext(os.fspath(path))[1].lower()


__all__ = ["ENDINGS", "check_destination", "report_data", "write_report"]
