"""The options of the command line, as the command line itself has them.

    ```{command-options} fit
    ```

writes how `nearfield fit` is called and tables of its arguments and options: what its help says, so that no page can be
out of date.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from docutils import nodes
from docutils.parsers.rst import Directive

from nearfield import cli

_BRACES = str.maketrans({"{": None, "}": None})
_CODE = re.compile(r"`([^`]+)`|(?<![\w-])(--[a-z][a-z-]*)")


def commands() -> dict[str, Any]:
    """The commands by their names, with the choices that `nearfield fit --help` lists."""
    found: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    cli._list_choices(found["fit"])
    return found


def usage(name: str) -> str:
    """How a command is called, in one line."""
    command = commands()[name]
    context = _context(name, command)
    return f"nearfield {name} " + " ".join(command.collect_usage_pieces(context)).translate(_BRACES)


def rows(name: str, kind: str) -> list[tuple[str, str]]:
    """Arguments or options of a command, by the `param_type_name` of click: how each is written, and what it means."""
    command = commands()[name]
    context = _context(name, command)
    own = [parameter for parameter in command.params if parameter.param_type_name == kind]
    records = [parameter.get_help_record(context) for parameter in own]
    return [(_plain(record[0]), " ".join(record[1].split())) for record in records if record is not None]


def _plain(how: str) -> str:
    """How something is written, without the type that follows the names of arguments."""
    return re.sub(r"(?<=\w) <\w+>$|(?<=\]) <\w+>$", "", how)


def _context(name: str, command: Any) -> Any:
    return command.make_context(f"nearfield {name}", [], resilient_parsing=True)


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class CommandOptions(Directive):
    """The usage of a command, and its tables."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        found: list[nodes.Node] = [nodes.literal_block(usage(name), usage(name), language="none")]
        for kind in ("argument", "option"):
            listed = rows(name, kind)
            found += [_table(kind, listed)] if listed else []
        return found


def _table(kind: str, listed: list[tuple[str, str]]) -> nodes.table:
    group = nodes.tgroup("", nodes.colspec(colwidth=35), nodes.colspec(colwidth=65), cols=2)
    group += nodes.thead("", _row([nodes.paragraph(text=kind)], [nodes.paragraph(text="meaning")]))
    group += nodes.tbody("", *(_row([_written(how)], [_said(what)]) for how, what in listed))
    return nodes.table("", group, classes=["command-options"])


def _row(*cells: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", *cell) for cell in cells))


def _written(how: str) -> nodes.paragraph:
    return nodes.paragraph("", "", nodes.literal(text=how))


def _said(what: str) -> nodes.paragraph:
    """A sentence, in which options and what is in backticks are code."""
    found, end = nodes.paragraph(), 0
    for code in _CODE.finditer(what):
        found += [nodes.Text(what[end : code.start()]), nodes.literal(text=code[1] or code[2])]
        end = code.end()
    found += nodes.Text(what[end:])
    return found
