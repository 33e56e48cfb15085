"""Tables as the command line reads them, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nearfield.cli_saved import SavedModel
from nearfield.encoding import TableEncoder
from nearfield.reading import TableReader, training_table


def fitted(table: pa.Table, target: Any, drop: Any = (), **arguments: Any) -> TableReader:
    """What `nearfield fit` learns of a table, without the model."""
    parts = training_table(table, target, drop, **arguments)
    encoder = TableEncoder()
    y = parts.y if parts.y.dtype.kind == "f" else np.unique(parts.y.astype(str), return_inverse=True)[1]
    encoder.learn(parts.columns, np.asarray(y, dtype=np.float64).reshape(len(y), -1))
    return TableReader(parts.target, encoder)


def reader_of(path: str | Path) -> TableReader:
    """That of a model file."""
    with SavedModel(Path(path)) as saved:
        return saved.encoder


def description(reader: TableReader) -> dict[str, Any]:
    """Its section of a model file."""
    return {**reader.encoder.to_json(), **reader.target.to_json()}


def from_description(section: Any) -> TableReader:
    """The other way round."""
    return TableReader.of_sections({"table": section})
