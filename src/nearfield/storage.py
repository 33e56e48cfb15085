"""Large arrays as files of a cache folder that are mapped into memory: the system keeps in memory what is in use.

Files have no name: they vanish with the last use, also when the process is killed. In a folder that the user names the
table itself has one, so that reading it goes on where it was interrupted. Space is taken before
anything is written: a disk that is full is an error then, and not a crash later.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

try:
    import fcntl
except ImportError:  # on Windows, where nobody is kept out
    fcntl = None  # type: ignore[assignment]

Make = Callable[[tuple[int, ...], Any], np.ndarray]
"""Where large arrays come from: of a shape and a type, with anything in it. `numpy.empty` takes them from memory."""


class CacheError(OSError):
    """The cache folder cannot be used."""

    def __str__(self) -> str:
        return f"{self.strerror}: {self.filename!r}"


class Storage:
    """Arrays of a shape and a type, as files of a folder; the folder itself is made if it is not there."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        """folder: None for that of temporary files, in which nothing gets a name."""
        self.temporary = folder is None
        self.folder = tempfile.gettempdir() if folder is None else os.fspath(folder)
        try:
            os.makedirs(self.folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise CacheError(
                error.errno, f"the cache folder cannot be written to ({error.strerror}): name another", self.folder
            ) from error

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array without a name, whose file is gone when it is no longer used."""
        with tempfile.TemporaryFile(dir=self.folder) as file:
            return self._mapped(file, shape, np.dtype(dtype), fresh=True)

    def named(self, name: str, shape: tuple[int, ...], dtype: Any, fresh: bool) -> np.ndarray:
        """The array of that name; fresh: a new one, in place of what was there."""
        if self.temporary:
            return self(shape, dtype)
        if fresh:
            self.drop(name)  # whoever has the old one keeps it, as one without a name
        try:
            with open(self._path(name), "wb+" if fresh else "rb+") as file:
                return self._mapped(file, shape, np.dtype(dtype), fresh)
        except OSError:
            if fresh:  # such as for lack of room
                self.drop(name)
            raise

    def holds(self, name: str, shape: tuple[int, ...], dtype: Any) -> bool:
        """Whether there is a file of that name, with as many bytes as such an array has."""
        try:
            return os.stat(self._path(name)).st_size == int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        except OSError:
            return False

    def drop(self, *names: str) -> None:
        """Remove the arrays of these names, if they are there."""
        for name in () if self.temporary else names:
            with suppress(FileNotFoundError):
                os.remove(self._path(name))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Write named arrays while no other process does; a CacheError where one is about it."""
        if self.temporary or fcntl is None:
            yield
            return
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CacheError(
                    error.errno,
                    "another process is reading a table into the cache folder: wait for it, or name another folder",
                    self.folder,
                ) from error
            except OSError:  # file systems that know no locks
                pass
            yield
        finally:
            os.close(folder)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def require(self, size: int) -> None:
        """Raise CacheError if fewer bytes are free."""
        free = shutil.disk_usage(self.folder).free
        if free < size:
            raise CacheError(
                errno.ENOSPC,
                f"the cache folder has {_told(free)} free and about {_told(size)} are needed: make room, or name a "
                "folder on another disk",
                self.folder,
            )

    def _mapped(self, file: Any, shape: tuple[int, ...], dtype: np.dtype, fresh: bool) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        if fresh:
            self._take(file, size)
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape).view(np.ndarray)

    def _take(self, file: Any, size: int) -> None:
        """Make room for so many bytes on the disk."""
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self.require(size)
            raise CacheError(
                error.errno, f"the cache folder has no room for {_told(size)} ({error.strerror})", self.folder
            ) from error

    def __reduce__(self) -> Any:
        return _in_memory, ()  # a model that is sent elsewhere has its arrays in memory there


def written_out(*arrays: np.ndarray) -> None:
    """Wait until what arrays that are mapped from files hold is on the disk, where a power cut leaves it."""
    for array in arrays:
        found = _file_of(array)
        if found is not None:
            found.flush()


def moved(arrays: Mapping[str, np.ndarray], make: Make) -> Mapping[str, np.ndarray]:
    """The same arrays as files, if that is where large arrays come from; but for those that are one number for all."""
    if not isinstance(make, Storage):
        return arrays
    found = dict(arrays)
    for name, values in arrays.items():
        if 0 not in values.strides:
            found[name] = make(values.shape, values.dtype)
            found[name][...] = values
    return found


def beside(array: np.ndarray) -> Make:
    """Where large arrays that go with this one come from: files if it is mapped from one, else memory."""
    return np.empty if _file_of(array) is None else _in_files


def _file_of(array: np.ndarray) -> mmap.mmap | None:
    """The file that an array is mapped from; None for one in memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _in_files(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return Storage()(shape, dtype)


def _in_memory() -> Make:
    return np.empty


def _told(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
