"""Lines of a table that is written as text: blank rows at its end, and the line on which a row begins.

Programs that export sheets end them with rows of nothing but separators. Those are not rows of the table. Which
they are is read off the last bytes of the file, because a block of a few columns does not show it.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from typing import BinaryIO

from nearfield.dialect import Dialect

_TAIL_BYTES = 1 << 16
_MOST_ROWS = 5_000_000  # a line is not looked for beyond them: it would take longer than the user cares

Path = str | os.PathLike[str]


def opened_bytes(path: Path, gzipped: bool) -> BinaryIO:
    """The bytes of a file, unpacked."""
    return gzip.open(path) if gzipped else open(path, "rb")  # type: ignore[return-value]


def blank_rows(path: Path, dialect: Dialect, gzipped: bool) -> int:
    """How many rows at the end of a file have separators only; empty lines, which are no rows, may be among them."""
    n_bytes = _TAIL_BYTES
    while True:
        tail, complete = _tail(path, n_bytes, gzipped)
        lines = tail.decode(str(dialect.encoding), errors="replace").splitlines()
        if not complete or len(lines) > 1:
            lines = lines[1:]  # the header, or cut
        found, reached = _count_blank(lines, str(dialect.sep))
        if complete or not reached:
            return found
        n_bytes *= 16


def _tail(path: Path, n_bytes: int, gzipped: bool) -> tuple[bytes, bool]:
    """The last bytes of a file, an even number of them, and whether they are all."""
    with opened_bytes(path, gzipped) as file:
        if not gzipped:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - n_bytes)
            file.seek(start + start % 2)
            return file.read(), start == 0
        tail, size = b"", 0
        while block := file.read(n_bytes):
            tail, size = (tail + block)[-n_bytes:], size + len(block)
        return tail[size % 2 if size > n_bytes else 0 :], size <= n_bytes


def _count_blank(lines: list[str], sep: str) -> tuple[int, bool]:
    """The blank rows among the last lines, and whether no other row ends them."""
    cell = r'[ \t\xa0]*(?:"")?[ \t\xa0]*' if sep != "\t" else r'[ \xa0]*(?:"")?[ \xa0]*'
    blank = re.compile(f"{cell}(?:{re.escape(sep)}{cell})+")
    found = 0
    for line in reversed(lines):
        if not line.strip("\ufeff"):
            continue
        if not blank.fullmatch(line):
            return found, False
        found += 1
    return found, True


def line_of_row(path: Path, dialect: Dialect, gzipped: bool, row: int) -> int | None:
    """The line, counted from 1, on which a row below the header begins; None if it is too far down to be looked for."""
    if row > _MOST_ROWS:
        return None
    with io.TextIOWrapper(opened_bytes(path, gzipped), str(dialect.encoding), errors="replace", newline="") as text:
        reader = csv.reader(text, delimiter=str(dialect.sep))
        rows_to_go, before = row + 1, 0  # the header is one of them
        try:
            for cells in reader:
                rows_to_go -= bool(cells)
                if rows_to_go == 0:
                    return before + 1
                before = reader.line_num
        except (csv.Error, OSError, EOFError):
            return None
    return None
