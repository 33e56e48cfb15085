"""A file from which an interrupted fit goes on, with the same bits as if nothing had happened."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np

from nearfield.persistence import read_file, write_file
from nearfield.training import Run, restore, snapshot


class Checkpoint:
    """Snapshots of the runs of one fit by name: the finished ones and the one that is under way.

    fingerprint: of everything that the fit depends on, but for the seed.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._headers: dict[str, Any] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def seed(self, asked: int | None, drawn: int) -> int:
        """The seed to go on with: the one asked for, else that of the file if there is one, else the one drawn."""
        if not os.path.exists(self.path):
            self._seed = drawn if asked is None else asked
            return self._seed
        _, header, arrays = read_file(self.path)
        if header.get("checkpoint") != self.fingerprint:
            raise ValueError(self._foreign("other data or settings"))
        self._seed = int(header["seed"])
        if asked is not None and asked != self._seed:
            raise ValueError(self._foreign("another random_state"))
        self._headers, self._arrays = header["runs"], arrays
        return self._seed

    def _foreign(self, whose: str) -> str:
        return (
            f"the checkpoint {os.fspath(self.path)!r} belongs to a fit with {whose}; "
            "delete it, or pass another path."
        )  # fmt: skip

    def resume(self, name: str, run: Run) -> None:
        """Put the run where its last snapshot was taken, if there is one."""
        if name in self._headers:
            prefix = f"{name}."
            own = {key.removeprefix(prefix): value for key, value in self._arrays.items() if key.startswith(prefix)}
            restore(run, self._headers[name], own)

    def save(self, name: str, run: Run) -> None:
        """Write the file anew, with the run as it stands."""
        self._headers[name], arrays = snapshot(run)
        self._arrays |= {f"{name}.{key}": value for key, value in arrays.items()}
        header = {"checkpoint": self.fingerprint, "seed": self._seed, "runs": self._headers}
        write_file(self.path, header, self._arrays)

    def remove(self) -> None:
        """At the end of the fit. A link stays, as it does when the file is written."""
        with suppress(FileNotFoundError):
            os.remove(os.path.realpath(self.path))
