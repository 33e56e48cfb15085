"""What a report consists of, whatever it is written in: sections with tables and figures."""

from __future__ import annotations

from dataclasses import dataclass, field

BETTER, WORSE, SAME, DIFFERENT = "better", "worse", "same", "different"


@dataclass(frozen=True)
class Cell:
    """A figure of ours; with the paper's beside it and the difference, which is better, worse or within the errors."""

    text: str
    small: str = ""  # the standard error, or how many rows
    bold: bool = False
    paper: str = ""
    difference: str = ""
    tone: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it."""

    title: str
    head: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """An SVG drawing."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Section:
    """One experiment."""

    name: str
    title: str
    about: str
    facts: list[str]
    tables: list[Table]
    figures: list[Figure]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """The whole page."""

    title: str
    about: list[str]
    overview: Table
    sections: list[Section]
