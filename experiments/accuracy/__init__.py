"""The README's tables of accuracy: our estimators as they come, scored on rows they have not seen, with the paper's
figures and other methods beside them. `python -m experiments table NAME` prints one.

`run` and `report` are for comparisons of many methods, whose results are kept; these tables are printed and forgotten.
A new table is one module with a TABLE, and its name in TABLES.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the names of the tables need not load what makes them
    from experiments.accuracy.table import Table

TABLES = ("univariate", "outputs", "classes", "counts", "outliers", "few-rows", "update")
"""Names; the module of a table, with _ for -, is imported when it is asked for."""


def find(name: str) -> Table:
    """The table of that name."""
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; there are {', '.join(TABLES)}.")
    table: Table = import_module(f"experiments.accuracy.{name.replace('-', '_')}").TABLE
    return table
