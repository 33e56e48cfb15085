"""Pages about a model: `report`, `report_data`, and what notebooks show."""

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

        See docs/guide/report.md.

        X, y : test rows and their targets. Without them, and beside them, left-out training rows are evaluated.
        compare : what to score beside the model: ["boosting"], scikit-learn's boosted trees.
        name : title of the page, by default that of the target. given : `exposure` or `trials` of the test rows.

        The page holds values of some training rows: share it with those who may see them.
        """
        check_is_fitted(self)
        check_destination(path)
        write_report(path, report_data(self, X, y, compare=compare, name=name, **given))

    def report_data(
        self, X: Any = None, y: Any = None, *, compare: Sequence[str] = (), name: str = "", **given: Any
    ) -> dict[str, Any]:
        """What `report` tells, as a dict of plain numbers and text."""
        return report_data(self, X, y, compare=compare, name=name, **given)

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
