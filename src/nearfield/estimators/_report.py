"""Pages about a model: `report`, `report_data`, `explore`, and what notebooks show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from typing import Any

from sklearn.utils.validation import check_is_fitted

from nearfield.report import check_destination, report_data, write_report


class Reporting:
    """Mixin: reports, and the summary beside scikit-learn's diagram in notebooks."""

    summary_: Any

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        compare: Sequence[str] = (),
        name: str = "",
        **given: Any,
    ) -> None:
        """Write one page about the fitted model: HTML, Markdown or JSON, by the ending of `path`.

        The page holds values of some training rows: share it with those who may see them.

        Parameters
        ----------
        path : path
            Where to write the page; its ending is .html, .md or .json.
        X : array-like or data frame of shape (n, d), default=None
            Test rows. Without them, and beside them, left-out training rows are evaluated.
        y : array-like, default=None
            Targets of the test rows.
        compare : sequence of str, default=()
            What to score beside the model: `["boosting"]`, scikit-learn's boosted trees.
        name : str, default=""
            Title of the page, by default the name of the target.
        **given : array-like
            `exposure` or `trials` of the test rows.
        """
        check_is_fitted(self)
        check_destination(path)
        write_report(path, report_data(self, X, y, compare=compare, name=name, **given))

    def report_data(
        self, X: Any = None, y: Any = None, *, compare: Sequence[str] = (), name: str = "", **given: Any
    ) -> dict[str, Any]:
        """Collect what `report` tells, as plain numbers and text.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), default=None
            Test rows.
        y : array-like, default=None
            Targets of the test rows.
        compare : sequence of str, default=()
            What to score beside the model, as in `report`.
        name : str, default=""
            Title of the page, by default the name of the target.
        **given : array-like
            `exposure` or `trials` of the test rows.

        Returns
        -------
        dict
            The numbers behind the page, as JSON has them.
        """
        return report_data(self, X, y, compare=compare, name=name, **given)

    def explore(self, *, port: int = 0, browser: bool = True, name: str = "") -> None:
        """Open a page on this computer to play with the fitted model, until interrupted (Ctrl-C).

        The page shows training rows; only this computer can reach it. See docs/guide/explore.md.

        Parameters
        ----------
        port : int, default=0
            Port of 127.0.0.1, where the page is; 0 takes any that is free.
        browser : bool, default=True
            Whether to open the page in a browser.
        name : str, default=""
            Title of the page, by default the name of the target.
        """
        from nearfield.explore import Explorer, Page, serve  # with a server, which few need

        serve(Page(Explorer(self, name), port), browser)

    # --- notebooks --------------------------------------------------------------------------------------------------

    def _with_summary(self, diagram: str) -> str:
        """Scikit-learn's diagram, and below it what the fit did, where there was one."""
        if not hasattr(self, "summary_"):
            return diagram
        said = "".join(f"<li>{escape(line)}</li>" for line in str(self.summary_).splitlines())
        return (
            f"{diagram}<details open><summary>What the fit did</summary>"
            f'<ul style="margin:.3em 0;padding-left:1.3em;max-width:48em">{said}</ul></details>'
        )

    def _repr_html_inner(self) -> str:
        return self._with_summary(super()._repr_html_inner())  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        found: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in found:
            found["text/html"] = self._with_summary(found["text/html"])
        return found
