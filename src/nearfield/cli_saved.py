"""Models and tables that commands read: a model file, opened once, and a table in blocks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfield.cli_arguments import UserError, user_errors

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from nearfield.cli_report import Report
    from nearfield.dialect import Dialect
    from nearfield.reading import TableReader


class SavedModel:
    """A model file, read once: how its table becomes features is known at once, so that mistakes are found before the
    model has to be loaded."""

    encoder: TableReader
    """what the model needs of a table"""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UserError(f"The model {path} {'is not a file' if path.exists() else 'does not exist'}.")
        from nearfield.migration import migrated_sections
        from nearfield.persistence import ModelReader, naming_file
        from nearfield.reading import TableReader

        self.path = path
        with user_errors(), ExitStack() as until_read, naming_file(path):
            self.file = until_read.enter_context(ModelReader(path))
            sections = migrated_sections(self.file.version, self.file.header)
            self.encoder = TableReader.of_sections(sections)
            self.name, self.version = sections["estimator"].get("name"), self.file.version
            until_read.pop_all()

    def __enter__(self) -> SavedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.__exit__()

    def load(self) -> Any:
        """The estimator."""
        from nearfield.estimators import ESTIMATORS
        from nearfield.estimators._files import restored
        from nearfield.persistence import naming_file

        if self.name not in ESTIMATORS:
            raise UserError(f"{self.path} holds a {self.name!r}; expected one of {', '.join(ESTIMATORS)}.")
        with user_errors(), naming_file(self.path):
            model: Any = restored(ESTIMATORS[self.name], self.version, self.file.header, self.file.arrays())
        described, outputs = len(self.encoder.target.names), getattr(model, "n_outputs_", 1)
        if described != outputs:
            raise UserError(
                f"{self.path} is damaged: it predicts {outputs} targets, but its table has {described}. Fit it again."
            )
        model._column = False  # a single target is a column of the table, also where it was (n, 1) in Python
        return model

    def report(self) -> Report:
        """What is written and printed of the model."""
        from nearfield.cli_report import report_on

        return report_on(self.load(), self.encoder.target)


def blocks(
    path: Path,
    dialect: Dialect,
    encoder: TableReader,
    rows: int | None,
    further: list[str],
    progress: bool = True,
) -> Iterator[tuple[pa.Table, np.ndarray, int]]:
    """Blocks of a table, their features (n, d) and the number of their first row; one warning at the end."""
    from tqdm import tqdm

    from nearfield.rules import Tally
    from nearfield.table import BLOCK_ROWS, count_rows, located, read_blocks

    tally = Tally()
    first_row = 1
    columns = list(dict.fromkeys([*encoder.column_names, *encoder.target.columns, *further]))
    # disable=None: only on terminals
    with tqdm(total=count_rows(path), unit=" rows", disable=None if progress else True, leave=False) as bar:
        for block in read_blocks(path, BLOCK_ROWS if rows is None else rows, columns, dialect):
            with located(path, dialect):
                x = encoder.transform(block, first_row, tally)
            yield block, x, first_row
            collect_cycles()
            first_row += block.num_rows
            bar.update(block.num_rows)
    tally.warn()


def collect_cycles() -> None:
    """Look for cycles again, which `entry` put off while modules were loaded, but not in these: they stay."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
