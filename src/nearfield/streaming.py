"""Parquet files that are larger than memory, read once, block by block, into arrays mapped from a cache folder.

    read = streamed("measurements/", "height")       # a file, or a folder of files of the same columns
    read.columns, read.y                             # what estimators fit, as if it were a table in memory

What becomes of each column is learned from a million rows, evenly spread. In a cache folder that the user names a
reading that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from nearfield.arrow_columns import ArrowColumns
from nearfield.atomic import replacing
from nearfield.column_values import TableError
from nearfield.columns import Columns, check_names
from nearfield.encoding import MAX_LEVELS, TableEncoder
from nearfield.progress import Bars
from nearfield.rules import Tally
from nearfield.storage import Storage, written_out
from nearfield.table import require_columns

_LEARNED_ROWS = 1_000_000  # that tell what becomes of columns
_BLOCK_ROWS = 2**17  # at a time
_NOTED = 64  # blocks after which it is noted how far the reading is
_WORK = 3  # times the table: it, its rows in boxes, and these once more while they are cut; and some numbers a row
_FEATURES, _TARGET, _PROGRESS = "features", "target", "progress.json"  # files in the cache folder


class StreamedColumns(Columns):
    """A table whose features (n, m) have been read already, and the encoder that made them."""

    def __init__(self, encoder: TableEncoder, features: np.ndarray, names: list[str], storage: Storage) -> None:
        self.encoder, self.features, self.names, self.make = encoder, features, names, storage

    def __len__(self) -> int:
        return len(self.features)

    def kind(self, name: str) -> str:
        raise TableError(f"Column {name!r} of a table in files cannot be used on its own: read the table into memory.")

    def read(self, name: str, kind: str, form: str = "") -> Any:
        raise TableError(f"Column {name!r} of a table in files cannot be used on its own: read the table into memory.")


@dataclass(frozen=True, eq=False)
class Streamed:
    """What was read: columns, and a target (n,) of numbers."""

    columns: StreamedColumns
    y: np.ndarray


def streamed(
    path: str | os.PathLike[str],
    target: Any,
    cache: str | os.PathLike[str] | None = None,
    categorical: Any = "from_dtype",
    verbose: bool | None = None,
) -> Streamed:
    """Read the file or folder. target: the name of its column. cache: a folder that is kept; None: one that is not."""
    files = Files(path)
    if not isinstance(target, str):
        raise TypeError(f"y is {target!r}: of a table in files the target is the name of its column.")
    files.check(target)
    return _Reading(files, target, Storage(cache), categorical, verbose).read()


def target_type(path: str | os.PathLike[str], target: str) -> Any:
    """The type of a column of numbers."""
    files = Files(path)
    files.check(target)
    return files.schema.field(target).type


class NamedTarget(np.ndarray):
    """A target (n,) that knows what it is called."""

    name: str | None = None


class Files:
    """Parquet files that are one table."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.paths = [self.path]
        if os.path.isdir(self.path):
            names = sorted(name for name in os.listdir(self.path) if name.endswith((".parquet", ".pq")))
            names = [name for name in names if not name.startswith((".", "_"))]  # which writers use for themselves
            self.paths = [os.path.join(self.path, name) for name in names]
            if not names:
                raise TableError(
                    f"{self.path} is a folder without .parquet files. Those in folders below it are not read."
                )
        elif not os.path.exists(self.path):
            raise FileNotFoundError(f"{self.path} does not exist: expected a Parquet file or a folder of them.")
        self.schema, self.rows = self._described()

    def _described(self) -> tuple[Any, int]:
        """The columns, which all files share, and how many rows there are."""
        schema, first, rows = None, "", 0
        every, self.paths = self.paths, []
        for path in every:
            try:
                found = parquet.ParquetFile(path)
            except Exception as error:
                raise TableError(f"{path} is not a Parquet file ({error}).") from error
            if found.metadata.num_rows == 0:  # whatever it says of its columns
                continue
            own, rows = found.schema_arrow, rows + found.metadata.num_rows
            if schema is None:
                check_names(own.names)
                schema, first = own, path
            self.paths.append(path)
            for name in dict.fromkeys([*schema.names, *own.names]):
                types = [some.field(name).type if name in some.names else "no such column" for some in (schema, own)]
                if types[0] != types[1]:
                    raise TableError(
                        f"The files of a folder must have the same columns: {name!r} is {types[0]} in {first} and "
                        f"{types[1]} in {path}."
                    )
        if rows == 0:
            raise TableError(f"{self.path} has no rows.")
        return schema, rows

    def check(self, target: str) -> None:
        """Raise TableError if there is no such column, or no other, or if it holds no numbers."""
        if target not in self.schema.names:
            require_columns([target], self.schema.names, "The target")
        if len(self.schema.names) < 2:
            raise TableError(f"{self.path} has no columns but the target.")
        own = self.schema.field(target).type
        if not (pa.types.is_integer(own) or pa.types.is_floating(own) or pa.types.is_boolean(own)):
            raise TableError(
                f"The target {target!r} is {own}: a table in files has a target of numbers. Number its classes."
            )

    def blocks(self, columns: list[str], start: int = 0) -> Iterator[Any]:
        """Tables of rows, in order, from the start-th on."""
        for path in self.paths:
            file = parquet.ParquetFile(path)
            if start >= file.metadata.num_rows:
                start -= file.metadata.num_rows
                continue
            for batch in _batches(file, path, columns):
                if start < batch.num_rows:
                    yield pa.Table.from_batches([batch.slice(start)]).select(columns)
                start = max(0, start - batch.num_rows)

    def sample(self, columns: list[str]) -> Any:
        """Some of the rows, all or evenly spread over the files."""
        step, first, parts = -(-self.rows // _LEARNED_ROWS), 0, []
        for block in self.blocks(columns):
            parts.append(block.take(np.arange(-first % step, block.num_rows, step)) if step > 1 else block)
            first += block.num_rows
        return pa.concat_tables(parts).combine_chunks()

    def fingerprint(self) -> str:
        """Of the files as they are now."""
        told = [[os.path.basename(path), os.stat(path).st_size, os.stat(path).st_mtime_ns] for path in self.paths]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _batches(file: Any, path: str, columns: list[str]) -> Iterator[Any]:
    """The rows of a Parquet file, some at a time."""
    try:
        yield from file.iter_batches(batch_size=_BLOCK_ROWS, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be read, it may be damaged ({error}).") from error


class _Reading:
    """A table on its way into the cache folder."""

    def __init__(self, files: Files, target: str, storage: Storage, categorical: Any, verbose: bool | None) -> None:
        self._files, self._target, self._storage = files, target, storage
        self._categorical, self._verbose = categorical, verbose
        self._names = [name for name in files.schema.names if name != target]
        self._tally = Tally()

    def read(self) -> Streamed:
        with self._storage.alone():
            encoder = self._encoder()
            try:
                return self._read(encoder)
            except TableError:  # what is there is of a table that has to be mended
                self._storage.drop(_FEATURES, _TARGET, _PROGRESS)
                raise

    def _read(self, encoder: TableEncoder) -> Streamed:
        n, m = self._files.rows, len(encoder.feature_names)
        whole = not pa.types.is_floating(self._files.schema.field(self._target).type)
        held = {
            _FEATURES: ((n, m), np.dtype(np.float32 if self._single(encoder) else np.float64)),
            _TARGET: ((n,), np.dtype(np.int64 if whole else np.float64)),
        }
        asked = [self._files.fingerprint(), self._target, encoder.to_json(), held[_FEATURES][1].name]
        done, kept = self._noted(json.loads(json.dumps(asked)))
        if done == 0 or not all(self._storage.holds(name, *of) for name, of in held.items()):
            done, kept = 0, 0
            self._storage.drop(*held, _PROGRESS)
            self._storage.require(n * (_WORK * m * held[_FEATURES][1].itemsize + m + 32))
        try:
            features, y = (self._storage.named(name, *of, fresh=done == 0) for name, of in held.items())
        except OSError:
            self._storage.drop(*held if done == 0 else ())
            raise
        with Bars(self._verbose).bar("reading", n, "rows", initial=done) as bar:
            for number, block in enumerate(self._files.blocks([*self._names, self._target], done), 1):
                kept += self._write(block, encoder, features[kept:], y[kept:], done)
                done += block.num_rows
                bar.add(block.num_rows)
                if number % _NOTED == 0 or done == n:
                    self._note(asked, done, kept, features, y)
        self._tally.warn()
        if kept == 0:
            raise TableError(f"The target {self._target!r} has no value in any row.")
        columns = StreamedColumns(encoder, features[:kept], self._names, self._storage)
        target = y[:kept].view(NamedTarget)
        target.name = self._target
        return Streamed(columns, target)

    def _encoder(self) -> TableEncoder:
        """What becomes of columns, learned from some of the rows."""
        sample = self._files.sample(self._names)
        encoder = TableEncoder(self._categorical)
        encoder.feature_names_in_ = np.array(self._names, dtype=object)
        encoder.learn(ArrowColumns(sample, first_row=0), np.zeros((sample.num_rows, 1)))
        for rule in encoder.rules_:
            if rule.kind == "means":
                raise TableError(
                    f"Column {rule.name!r} is text with {len(rule.levels):,} levels in {sample.num_rows:,} rows. Of a "
                    f"table in files, text may have {MAX_LEVELS}: make numbers of it, or leave it out."
                )
        return encoder

    def _single(self, encoder: TableEncoder) -> bool:
        """Whether single precision holds all features: of numbers that are no wider, and of levels and flags."""
        narrow = (pa.float32(), pa.float16(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.bool_())
        return all(
            rule.kind in ("text", "flag", "unused") or self._files.schema.field(rule.name).type in narrow
            for rule in encoder.rules_
        )

    def _write(self, block: Any, encoder: TableEncoder, features: np.ndarray, y: np.ndarray, first: int) -> int:
        """Write features and target of the rows that have one; how many these are."""
        target = block.column(self._target)
        own = target.cast("float64").to_numpy()  # NaN for none
        there = ~np.isnan(own)
        if np.isinf(own).any():
            row = first + int(np.flatnonzero(np.isinf(own))[0])
            raise TableError(f"The target {self._target!r} is infinite in row {row}. Mend it, or make it a gap.")
        count = int(there.sum())
        found = encoder.encode(ArrowColumns(block.select(self._names), first_row=first, tally=self._tally))
        features[:count], y[:count] = (found, own) if count == len(own) else (found[there], own[there])
        return count

    # --- how far it is ----------------------------------------------------------------------------------------------

    def _noted(self, asked: list[Any]) -> tuple[int, int]:
        """Rows that an earlier reading of the same files has read and written."""
        if self._storage.temporary:
            return 0, 0
        try:
            with open(os.path.join(self._storage.folder, _PROGRESS), encoding="utf-8") as file:
                noted = json.load(file)
            return (int(noted["read"]), int(noted["written"])) if noted["of"] == asked else (0, 0)
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0

    def _note(self, asked: list[Any], read: int, written: int, *arrays: np.ndarray) -> None:
        if not self._storage.temporary:
            written_out(*arrays)
            with replacing(os.path.join(self._storage.folder, _PROGRESS), "progress of reading") as file:
                file.write(json.dumps({"of": asked, "read": read, "written": written}).encode())
