"""A report as one page of HTML that needs nothing else: styles and pictures are inside."""

from __future__ import annotations

from typing import Any

from nearfield.colours import style_sheet
from nearfield.report.page import sections
from nearfield.report.svg import drawn

INSTALL = "A report in HTML needs Jinja2: pip install 'nearfield[report]'. Reports in .md and .json do without."


def check_available() -> None:
    """An ImportError that says what to install, before anything takes time."""
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(INSTALL) from error


def html(data: dict[str, Any]) -> str:
    """The text of the page."""
    check_available()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("nearfield.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals["drawn"] = drawn
    return environment.get_template("report.html").render(data=data, sections=sections(data), roles=style_sheet())
