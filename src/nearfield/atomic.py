"""Files that appear whole or not at all.

The bytes go to a temporary file in the folder of the target, which is flushed to the disk and then takes its place: a
crash at any moment leaves the old file or the new one, never half of one. What is written may be confidential, and the
folder may belong to somebody else, so

* the temporary file has no name while it is written, where the system can do that (`O_TMPFILE` of Linux), and vanishes
  with its writer. Elsewhere, and for the moment of the renaming, it is called `.nearfield-<16 hexadecimal digits>.tmp`;
* a writer keeps its temporary file locked, and the next writer in the folder removes those that nobody locks: they are
  of writers that were killed;
* owner and mode are set through the descriptor only. A name may meanwhile be a link to something else, and what the
  name of the temporary file stands for is compared with the descriptor before it is renamed;
* the mode is never wider than that of the old file, not even for a moment. That of a new file follows the umask.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["check_replaceable", "explained", "replacing"]

Path = str | os.PathLike[str]

_TEMPORARY = re.compile(r"\.nearfield-[0-9a-f]{16}\.tmp")
_ATTEMPTS = 100  # to create a named file; each fails only if another writer cleans up at that very moment
_COPIED = 1 << 20  # bytes at a time


@contextmanager
def replacing(path: Path, what: str = "file") -> Iterator[io.BufferedWriter]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    After an error the old file is still there, and nothing else. A symbolic link stays and the file it points to is
    replaced. An existing file keeps its mode and, as far as the writer may give files away, its owner and group.

    Args:
        what: what is saved, for the messages: "model", "table".

    Raises:
        OSError: the file could not be written; the message says why. Errors that are not of writing are left alone.
    """
    name = os.fsdecode(path)
    failing = f"could not save the {what}, what was there before is unchanged"
    target, old = _resolve(name, what)
    folder = os.path.dirname(target)
    _remove_leftovers(folder)
    with explained(name, failing):
        temporary = _Temporary(folder, old)
    file = _Writer(temporary.descriptor, name, failing)
    try:
        yield file
        file.close()
        with explained(name, failing):
            temporary.replace(target)
    finally:
        file.raw.close()  # or what it still holds would be written to whichever file gets the descriptor's number next
        temporary.discard()
    with explained(name, f"the {what} is saved, but might not survive a power cut"):
        _flush_folder(folder)


def check_replaceable(path: Path, what: str = "file") -> None:
    """Raise the OSError that :func:`replacing` would start with, by creating and removing a file beside `path`."""
    name = os.fsdecode(path)
    target, _ = _resolve(name, what)
    folder = os.path.dirname(target)
    with explained(name, f"cannot save a {what} here, no file can be created in the folder {folder!r}"):
        _Temporary(folder, None).discard()


@contextmanager
def explained(name: str, what: str) -> Iterator[None]:
    """Say what was being done to which file in an OSError; errno, and so the subclass, stays."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, f"{what} ({error.strerror or error})", name) from error


def _resolve(name: str, what: str) -> tuple[str, os.stat_result | None]:
    """The file that symbolic links lead to and its status, None if it is new; refuse what cannot be replaced."""

    def refusal(code: int, why: str) -> OSError:
        return OSError(code, f"cannot save a {what} here, {why}", name)

    target = os.path.realpath(name)
    try:
        with explained(name, f"cannot save a {what} here"):
            old = os.stat(target)
    except FileNotFoundError:
        if not os.path.isdir(folder := os.path.dirname(target)):
            raise refusal(errno.ENOENT, f"the folder {folder!r} does not exist: create it first") from None
        if name.endswith(("/", os.sep)):
            raise refusal(errno.EISDIR, "the path names a folder: add a file name") from None
        return target, None
    if stat.S_ISDIR(old.st_mode):
        raise refusal(errno.EISDIR, "this is a folder: add a file name")
    if not stat.S_ISREG(old.st_mode):
        raise refusal(errno.EINVAL, "this is a device, pipe or socket, not a regular file: give the name of a file")
    if not os.access(target, os.W_OK):  # the replacement would succeed, but whoever protects a file means it
        raise refusal(errno.EACCES, "the file is write-protected: choose another name or allow writing")
    return target, old


class _Writer(io.BufferedWriter):
    """A writer to a descriptor, which it leaves open; its errors say which file was to be saved."""

    def __init__(self, descriptor: int, saved_as: str, failing: str) -> None:
        super().__init__(io.FileIO(descriptor, "w", closefd=False))
        self._saved_as = saved_as
        self._failing = failing

    def write(self, data: ReadableBuffer, /) -> int:
        with explained(self._saved_as, self._failing):
            return super().write(data)

    def flush(self) -> None:  # also called by close
        with explained(self._saved_as, self._failing):
            super().flush()


class _Temporary:
    """A new, empty, locked file in `folder`, with owner and mode of the file `old` that it may replace.

    Attributes:
        descriptor: open for reading and writing.
        name: None while the file has none.
    """

    def __init__(self, folder: str, old: os.stat_result | None, *, nameless: bool = True) -> None:
        self.folder = folder
        self.old = old
        self.name: str | None = None
        # Until it has the group of the old file, for its owner only. To the mode of a new one the kernel applies the
        # umask: to ask the system for it is to change it, for all threads.
        mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o600
        found = _open_nameless(folder, mode, follow_umask=old is None) if nameless else None
        if found is None:
            self.name, found = _open_named(folder, mode)
        self.descriptor = found
        try:
            if old is not None:
                _inherit(self.descriptor, old)
        except BaseException:
            self.discard()
            raise

    def replace(self, target: str) -> None:
        """Flush the file to the disk and put it in the place of `target`."""
        os.fsync(self.descriptor)
        if self.name is None and not self._link():
            self._replace_by_copy(target)
            return
        if self.name is None or not _is_same(self.descriptor, self.name):
            raise OSError(errno.EBUSY, "something else took the name of the temporary file")
        if sys.platform == "win32":  # which does not rename files that are open
            self._close()
        os.replace(self.name, target)
        self.name = None

    def discard(self) -> None:
        """Close the file, and remove it unless it has taken the place of another."""
        self._close()
        if self.name is not None:
            with suppress(OSError):
                os.unlink(self.name)
            self.name = None

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _link(self) -> bool:
        """Give a nameless file its name, or False if the file system has no links to such files."""
        name = _fresh_name(self.folder)
        self.name = name  # already now, to be removed whenever we are interrupted
        try:
            # Without a folder for the source, even one that is not used, Python does not follow the link in /proc.
            os.link(_in_proc(self.descriptor), name, src_dir_fd=self.descriptor, follow_symlinks=True)
        except OSError:
            self.name = None
            return False
        return True

    def _replace_by_copy(self, target: str) -> None:
        copy = _Temporary(self.folder, self.old, nameless=False)
        try:
            position = 0
            while block := os.pread(self.descriptor, _COPIED, position):
                position += os.write(copy.descriptor, block)
            copy.replace(target)
        finally:
            copy.discard()


def _open_nameless(folder: str, mode: int, follow_umask: bool) -> int | None:
    """A locked descriptor of a new file without a name, or None where such files cannot be had or used."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, mode)
    except OSError:  # if it is not for the lack of nameless files, a file with a name will fail in the same way
        return None
    if os.path.exists(_in_proc(descriptor)) and (not follow_umask or _has_followed_umask(descriptor)):
        _lock(descriptor)
        return descriptor
    os.close(descriptor)
    return None


def _has_followed_umask(descriptor: int) -> bool:
    """Whether a nameless file has the mode that the umask demands.

    Not so under some older kernels, on file systems without access control lists; nor where a folder has such a list
    as the default for its files, which then replaces the umask. A file with a name is right in both cases.
    """
    with suppress(OSError, ValueError), open("/proc/self/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"Umask:"):
                return not os.fstat(descriptor).st_mode & int(line.split()[1], 8)
    return False


def _open_named(folder: str, mode: int) -> tuple[str, int]:
    """Name and locked descriptor of a new file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    for _ in range(_ATTEMPTS):
        name = _fresh_name(folder)
        descriptor = os.open(name, flags, mode)
        # Before it was locked, another writer may have taken it for a leftover.
        if _lock(descriptor) and _is_same(descriptor, name):
            return name, descriptor
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(name)
    raise OSError(errno.EBUSY, "another process removes all temporary files from the folder")


def _inherit(descriptor: int, old: os.stat_result) -> None:
    """Give a file the owner, group and mode of `old`; if it cannot have the group, nobody may do more than before."""
    if sys.platform == "win32":  # a file that may be replaced is writable there, and that is all of its mode
        return
    try:
        os.fchown(descriptor, old.st_uid, old.st_gid)
    except OSError:  # only root may give files away, but others may have several groups
        with suppress(OSError):
            os.fchown(descriptor, -1, old.st_gid)
    mode = stat.S_IMODE(old.st_mode) & 0o777
    if os.fstat(descriptor).st_gid != old.st_gid:
        shared = mode >> 3 & mode & 0o7  # what both the old group and all others could do
        mode = mode & 0o700 | shared << 3 | shared
    os.fchmod(descriptor, mode)


def _remove_leftovers(folder: str) -> None:
    """Remove the temporary files of killed writers, as far as we may."""
    if sys.platform == "win32":  # where an open file cannot be removed and no other one can be told from it
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_leftover(os.path.join(folder, entry.name))


def _remove_leftover(name: str) -> None:
    """Remove a regular file that nobody locks."""
    if not stat.S_ISREG(os.lstat(name).st_mode):
        return
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its writer lives, or locks are unknown here
        if _is_same(descriptor, name):
            os.unlink(name)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file as long as it is open; False if somebody else has done so, True also where there are no locks."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # nor can others lock it, who then do not remove it
        pass
    return True


def _is_same(descriptor: int, name: str) -> bool:
    """Whether `name` is that very file, and no link to it."""
    if sys.platform == "win32":  # the devices of the two kinds of status do not always agree there
        return True
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(name))
    except FileNotFoundError:
        return False


def _fresh_name(folder: str) -> str:
    # Not made from the target's name, which could become too long for the file system.
    return os.path.join(folder, f".nearfield-{secrets.token_hex(8)}.tmp")


def _in_proc(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _flush_folder(folder: str) -> None:
    """Make the renaming durable, where folders can be opened and flushed."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows, or a folder that may be written but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems do not know how
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
