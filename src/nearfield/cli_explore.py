"""`nearfield explore`: a page to play with a model."""

from __future__ import annotations

from typing import Annotated

import typer

from nearfield.cli_arguments import UserError, user_errors
from nearfield.cli_options import ModelFile
from nearfield.cli_saved import SavedModel

_LAST_PORT = 65_535


def explore(
    model: ModelFile,
    port: Annotated[
        int, typer.Option(help="Port of the page on this computer; 0: any that is free.", metavar="INT")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page in a browser.")
    ] = True,
) -> None:
    """Open a page on this computer to play with a model: predictions as columns vary, and the rows behind them.

    It shows training rows, and only this computer can reach it.
    """
    if not 0 <= port <= _LAST_PORT:
        raise UserError(f"--port is {port}; a number from 0, for any that is free, to {_LAST_PORT} is expected.")
    from nearfield.explore import ADDRESS, Explorer, Page, serve

    with SavedModel(model) as saved:
        estimator = saved.load()
        with user_errors():
            explorer = Explorer(estimator, model.stem)
        try:
            page = Page(explorer, port)
        except OSError as error:
            hint = "choose another with --port, or leave it out"
            raise UserError(f"Port {port} of {ADDRESS} cannot be used ({error.strerror}): {hint}.") from error
        serve(page, browser)
