"""Fits of tables in files, which need not fit into memory."""

from __future__ import annotations

import os
from typing import Any

from nearfield.storage import Storage


class FromFiles:
    """Mixin: `fit` takes the path of a Parquet file, or of a folder of them, and the name of the target's column."""

    cache: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None
    categorical_features: Any
    verbose: bool | None

    def _read_files(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X and y as they are; of a path what is there, mapped from a cache folder."""
        if not isinstance(X, str | os.PathLike):
            return X, y
        try:
            from nearfield.streaming import streamed  # reads with pyarrow, which arrays do not need
        except ImportError as error:
            raise ImportError(
                "To fit a table in files, install pyarrow: pip install 'nearfield[cli]'. Or pass arrays."
            ) from error
        read = streamed(X, y, self.cache, self.categorical_features, self.verbose)
        return read.columns, read.y

    def _checkpoint(self, make: Any) -> str | os.PathLike[str] | None:
        """The file from which interrupted training goes on: as asked for, or one beside the table in a named cache."""
        if self.checkpoint is None and isinstance(make, Storage) and not make.temporary:
            return os.path.join(make.folder, "training")
        return self.checkpoint
