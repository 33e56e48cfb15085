"""How a table is written as text: its encoding, separator, decimal sign and gaps, found out from the start of the file.

    encoding    a byte order mark; else UTF-8 where the bytes allow it, else UTF-16 by its zeros, else Windows' Latin-1
    separator   , ; tab or |, whichever splits all rows like the header; the name of the file decides a draw
    decimal     a comma where numbers have one and no number has a point, not in files that commas separate
    gaps        `NULL_VALUES`, and those that were named

What is given is taken as it is; only what is None is looked for.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nearfield.column_values import TableError

HEAD_BYTES = 1 << 20
"""So much of a file is looked at."""

SEPARATORS = (",", ";", "\t", "|")

_HEAD_ROWS = 200
_SPELLED = {r"\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

_COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_GROUPED_BY_COMMA = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_GROUPED_BY_POINT = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


@dataclass(frozen=True)
class Dialect:
    """How a table is written as text; what is None is found out (`sniffed`)."""

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    na: tuple[str, ...] | None = None
    """cells that mean "no value", besides the usual ones"""


AS_FOUND = Dialect()
"""Nothing is given."""


def checked(dialect: Dialect) -> Dialect:
    """The same with names like tab as the characters they stand for; TableError if anything in it is impossible."""
    sep = dialect.sep if dialect.sep is None else _SPELLED.get(dialect.sep, dialect.sep)
    if sep is not None and (len(sep) != 1 or not sep.isascii() or sep.isalnum() or sep in '"\r\n.+-\0'):
        raise TableError(f"The separator is {sep!r} (--sep); one character such as , or ; or the word tab is expected.")
    if dialect.decimal not in (None, ".", ","):
        raise TableError(f"The decimal sign is {dialect.decimal!r} (--decimal); a point or a comma is expected.")
    if dialect.encoding is not None and not _is_encoding(dialect.encoding):
        raise TableError(f"The encoding {dialect.encoding!r} is not known (--encoding); utf-8 and latin-1 are usual.")
    return replace(dialect, sep=sep)


def sniffed(head: bytes, dialect: Dialect, likely: str, complete: bool) -> Dialect:
    """`dialect` with all fields, from the first bytes of a file, and whether they are all of it.

    `likely` is the separator that the name of the file suggests. TableError if the bytes are no text.
    """
    dialect = checked(dialect)
    encoding = dialect.encoding or _encoding(head)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head).removeprefix("\ufeff")
    except UnicodeError as error:
        hint = "leave out --encoding" if dialect.encoding else "name its encoding, for example --encoding latin-1"
        raise TableError(f"the text is not {encoding}: {hint}") from error
    sep = dialect.sep or _separator(text, likely, complete)
    decimal = dialect.decimal or _decimal(text, sep, complete)
    return Dialect(sep, decimal, encoding, dialect.na or ())


def pasted(option: str, value: str) -> str:
    """An option with a value, such as the name of a column, that can be pasted into a shell."""
    return f"{option} {shlex.quote(value)}"


# ------------------------------------------------------------------------------------------------------ encoding


def _is_encoding(name: str) -> bool:
    try:
        "a".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def _encoding(head: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    if b"\0" in head:
        return _utf16(head)
    if _decodes(head, "utf-8"):
        return "utf-8"
    return "cp1252" if _decodes(head, "cp1252") else "latin-1"


def _decodes(head: bytes, encoding: str) -> bool:
    """Whether the bytes, which may end within a character, are text of that encoding."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeError:
        return False
    return True


def _utf16(head: bytes) -> str:
    """UTF-16 without a mark: text of tables is mostly ASCII, so that every other byte is zero."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    for encoding, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if zeros > len(head) / 4 and others < len(head) / 100 and _decodes(head, encoding):
            return encoding
    raise TableError("it is neither text nor a Parquet file nor an Excel workbook")


# ----------------------------------------------------------------------------------------------------- separator


def _separator(text: str, likely: str, complete: bool) -> str:
    """The separator of the start of a table; `likely` where there is nothing to choose."""
    header = text[: text.find("\n") + 1 or None]
    there = [sep for sep in SEPARATORS if sep in header]
    if len(there) < 2:
        return there[0] if there else likely
    ranked = sorted(there, key=lambda sep: sep != likely)  # the first of equals wins
    return max(ranked, key=lambda sep: _agreement(_records(text, sep, complete), sep))


def _agreement(records: Sequence[Sequence[str]], sep: str) -> tuple[bool, float, float]:
    """How well a separator explains the rows: it splits the header, and all rows alike, and cells have no other."""
    if not records or len(records[0]) < 2:
        return False, 0.0, 0.0
    body = records[1:]
    alike = sum(len(row) == len(records[0]) for row in body) / max(1, len(body))
    cells = [cell.strip() for row in body or records for cell in row]
    others = [other for other in SEPARATORS if other != sep]
    clean = sum(not any(s in cell for s in others) or bool(_COMMA_NUMBER.fullmatch(cell)) for cell in cells)
    return True, alike, clean / max(1, len(cells))


def _records(text: str, sep: str, complete: bool) -> list[list[str]]:
    """The first rows as cells, header included, without one that the end of the text may have cut."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sep)
    try:
        rows = list(itertools.islice(reader, _HEAD_ROWS + 1))
    except csv.Error:
        return []
    if not complete and len(rows) <= _HEAD_ROWS:
        rows = rows[:-1]
    return [row for row in rows if row]


# ------------------------------------------------------------------------------------------------------- decimal


def _decimal(text: str, sep: str, complete: bool) -> str:
    """A comma if numbers have one and none has a point. Groups of three, as in 1,234, do not count but after ;, which
    programs write where the comma is taken."""
    if sep == "," or "," not in text:
        return "."
    cells = [cell.strip() for row in _records(text, sep, complete)[1:] for cell in row]
    commas = [cell for cell in cells if _COMMA_NUMBER.fullmatch(cell)]
    points = any(_POINT_NUMBER.fullmatch(cell) and not _GROUPED_BY_POINT.fullmatch(cell) for cell in cells)
    telling = [cell for cell in commas if sep == ";" or not _GROUPED_BY_COMMA.fullmatch(cell)]
    return "," if telling and not points else "."
