"""One safe file for a fitted model: a JSON header and named arrays, in the safetensors format.

Any safetensors reader can open the file::

    8 bytes      length of the text that follows, little-endian
    JSON text    {"__metadata__": {"nearfield": record}, name: {"dtype", "shape", "data_offsets"}, ...}
    bytes        the arrays, C order, little-endian, back to back

``record`` is itself JSON: ``{"format", "version", "header", "tensors", "checksum"}``. ``tensors`` has the dtype, shape
and SHA-256 of every array, ``checksum`` is the SHA-256 of the rest of the record, and the table of arrays outside of it
must be the one that follows from ``tensors``: every byte of the file is accounted for. The checksums find damage, not
forgery, since whoever writes a file can also write its checksums. A hostile file is harmless because loading only
parses JSON and copies numbers.

Files are written in version 3 of the record; versions 2 and 3 are read, and differ in what the header means only, which
is for the reader of the header to know. A header of version 3 has ``sections``, each with a version of its own, so that
one part of a model can change without the others (:func:`section`).

The format is read and written here and not by the safetensors package. Its reader maps every file into memory, where
one that shrinks meanwhile kills the process (SIGBUS): here only files too large to be read whole are mapped, after all
of their checksums were found right, and the writer never changes a file in place. Its writer, depending on the version,
renames a file of mode 0600 over whatever has the name, devices included, and loses the error number. The tests compare
the two.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from reprlib import repr as short  # what a hostile file holds may be long
from typing import Any, TypeVar

import numpy as np

from nearfield.atomic import explained, replacing

__all__ = [
    "FORMAT_VERSION",
    "READABLE",
    "ModelFileError",
    "ModelReader",
    "naming_file",
    "read_file",
    "require",
    "require_array",
    "section",
    "write_file",
]

FORMAT_VERSION = 3
READABLE = (2, 3)
MAX_HEADER_BYTES = 16_000_000  # parsed JSON takes many times its length in memory
MAX_DIMENSIONS = 64  # numpy allows no more
MAPPED_BYTES = 2**30  # of arrays: from so many on, large ones stay in the file
_HOLLOW = 64  # times as many bytes as are on the disk
_LEAST_MAPPED, _HASHED = 2**20, 2**24  # bytes of an array that stays there; bytes at a time

_CODES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}
_METADATA, _FORMAT = "__metadata__", "nearfield"
_RECORD_KEYS = {"format", "version", "header", "tensors", "checksum"}

Path = str | os.PathLike[str]
T = TypeVar("T")


class ModelFileError(ValueError):
    """Something is wrong with a model file; ``str`` names the file, what was found and what to do."""

    def __init__(self, reason: str, path: str | None = None) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        where = "the model" if self.path is None else repr(self.path)
        return f"cannot load {where}: {self.reason}"


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Put the file's name into a :class:`ModelFileError` raised inside, unless it has one."""
    try:
        yield
    except ModelFileError as error:
        if error.path is not None:
            raise
        raise ModelFileError(error.reason, os.fsdecode(path)) from error.__cause__


def write_file(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Save header and arrays as one file of the newest version, all or nothing.

    A crash at any moment leaves the old file or the new one (:mod:`nearfield.atomic`). A symbolic link stays and the
    file it points to is replaced. An existing file keeps its mode, a new one follows the umask.

    Args:
        header: plain JSON: dicts with string keys, lists, strings, booleans, finite numbers, None.
        arrays: any shapes, of dtype float64, float32, int64, int32, uint8 or bool.

    Raises:
        OSError: the file could not be written; the message says why.
        TypeError, ValueError: ``header`` or ``arrays`` hold something that the file cannot.
    """
    with replacing(path, "model") as file:
        stored = {key: _storable(key, array) for key, array in arrays.items()}
        for block in _blocks(header, stored):
            file.write(block)


class ModelReader:
    """An open model file: what :func:`write_file` saved, in this version or an earlier one of :data:`READABLE`.

    ``version`` says what ``header`` means. Both are read at once, which is quick for files of any size, and everything
    but the arrays themselves is checked; those wait until they are asked for. Closes itself as a context manager.

    Raises:
        ModelFileError: the file is damaged, is no model, or was saved by a newer nearfield.
        OSError: the file does not exist or may not be read.
    """

    version: int
    header: dict[str, Any]

    def __init__(self, path: Path) -> None:
        self.path = os.fsdecode(path)
        with ExitStack() as until_checked, self._explained():
            self._file = until_checked.enter_context(_open_regular(self.path))
            size = os.fstat(self._file.fileno()).st_size
            table, data_start = _read_table(self._file, size)
            record = _checked_record(table.pop(_METADATA, None))
            self._tensors = record["tensors"]
            for key, tensor in self._tensors.items():
                _check_tensor(key, tensor)
            places, data_size = _layout(self._tensors)
            if table != places:
                raise _damaged(f"the arrays it holds ({short(sorted(table))}) are not those it lists")
            if data_start + data_size != size:
                raise _damaged(f"it should have {data_start + data_size} bytes and has {size}")
            self._data_start, self._data_size = data_start, data_size
            self.version, self.header = record["version"], record["header"]
            until_checked.pop_all()

    def arrays(self, mapped: bool | None = None) -> dict[str, np.ndarray]:
        """The arrays by name: ordinary, writable and independent of the file.

        mapped: whether those of a megabyte or more stay in the file, which is read where they are used; what is written
        to them is not written to it. None: in files of a gigabyte or more.
        """
        large = self._data_size >= MAPPED_BYTES and not self._hollow() if mapped is None else mapped
        with self._explained():
            self._file.seek(self._data_start)
            # The arrays follow each other in the order of their places, so this reads the file from front to back.
            return {key: _read_array(self._file, key, self._tensors[key], large) for key in _layout(self._tensors)[0]}

    def _hollow(self) -> bool:
        """Whether the file is nearly all holes, as none is that was written: it may claim to be of any size."""
        status = os.fstat(self._file.fileno())
        return 512 * _HOLLOW * getattr(status, "st_blocks", status.st_size) < status.st_size

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with naming_file(self.path), explained(self.path, "could not read the model"):
            yield

    def __enter__(self) -> ModelReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_file(path: Path, mapped: bool | None = None) -> tuple[int, dict[str, Any], dict[str, np.ndarray]]:
    """Version, header and arrays of a file; see :class:`ModelReader`."""
    with ModelReader(path) as file:
        return file.version, file.header, file.arrays(mapped)


def require(header: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """``header[key]``, or :class:`ModelFileError` if it is missing or of another kind (an int will do for a float)."""
    if key not in header:
        raise _damaged(f"the field {key!r} is missing")
    value = header[key]
    if kind is float and type(value) is int:
        with suppress(OverflowError):
            value = float(value)
    if type(value) is not kind:  # isinstance would take True for the integer 1
        raise _damaged(f"the field {key!r} should be {kind.__name__} and is {type(value).__name__}")
    return value


def require_array(arrays: Mapping[str, np.ndarray], key: str, dtype: Any, ndim: int) -> np.ndarray:
    """``arrays[key]``, or :class:`ModelFileError` if it is missing or of another dtype or number of dimensions."""
    if key not in arrays:
        raise _damaged(f"the array {key!r} is missing")
    array = arrays[key]
    if array.dtype != np.dtype(dtype) or array.ndim != ndim:
        wanted = f"{np.dtype(dtype)} with {ndim} dimensions"
        raise _damaged(f"the array {key!r} should be {wanted} and is {array.dtype} with shape {array.shape}")
    return array


def section(header: Mapping[str, Any], name: str, newest: int) -> tuple[int, dict[str, Any]]:
    """Version and fields of a part of the header, stored as ``header["sections"][name] = {"version": int, **fields}``.

    Raises:
        ModelFileError: there is no such section, or its version is above ``newest``, the last that the caller knows.
    """
    fields = dict(require(require(header, "sections", dict), name, dict))
    version = require(fields, "version", int)
    if version < 1:
        raise _damaged(f"its section {name!r} has version {short(version)}")
    if version > newest:
        readable = f"this nearfield reads versions up to {newest}"
        raise ModelFileError(f"its section {name!r} has version {short(version)} and {readable}; upgrade nearfield")
    del fields["version"]
    return version, fields


def _damaged(found: str) -> ModelFileError:
    return ModelFileError(f"the file is damaged, {found}; copy it again from its source or save the model again")


def _no_model(found: str) -> ModelFileError:
    return ModelFileError(f"this is not a nearfield model, {found}; give a file that was written by save")


def _flat_bytes(array: np.ndarray) -> memoryview:
    """The memory of a C-ordered array, not copied; memoryview.cast alone does not allow empty arrays."""
    return array.reshape(-1).view(np.uint8).data


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(value: Any) -> str:
    """The one JSON text of a value, in ASCII, so that its checksum is well defined."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _record_checksum(record: Mapping[str, Any]) -> str:
    return _sha256(_canonical({key: record[key] for key in _RECORD_KEYS - {"checksum"}}).encode("ascii"))


def _layout(tensors: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], int]:
    """The safetensors table of these arrays, back to back, in the order of their places; and their bytes together."""
    places = {}
    end = 0
    # Wide dtypes first, so that every array is aligned for readers that map the file.
    for key in sorted(tensors, key=lambda key: (-np.dtype(tensors[key]["dtype"]).itemsize, key)):
        dtype, shape = tensors[key]["dtype"], tensors[key]["shape"]
        start, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        places[key] = {"dtype": _CODES[dtype], "shape": shape, "data_offsets": [start, end]}
    return places, end


def _storable(key: str, array: np.ndarray) -> np.ndarray:
    """The array in C order and little-endian, copied only if it is not so already."""
    if not (isinstance(key, str) and key.isascii() and key.replace(".", "_").isidentifier()) or key == _METADATA:
        raise TypeError(f"array names are letters, digits, '_' and '.', found {key!r}")
    if not isinstance(array, np.ndarray) or array.dtype.name not in _CODES:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"the array {key!r} should have a dtype of {', '.join(_CODES)} and is {found}")
    # Not ascontiguousarray, which turns zero dimensions into one.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _blocks(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    """The whole file, in pieces; the arrays are not copied."""
    tensors = {
        key: {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": _sha256(_flat_bytes(array))}
        for key, array in arrays.items()
    }
    record = {"format": _FORMAT, "version": FORMAT_VERSION, "header": _checked_header(header), "tensors": tensors}
    record["checksum"] = _record_checksum(record)
    places, _ = _layout(tensors)
    text = json.dumps({_METADATA: {_FORMAT: _canonical(record)}, **places}, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)  # the alignment that safetensors itself writes
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(f"the header has {len(text)} bytes and may have {MAX_HEADER_BYTES}: put more into arrays")
    return [len(text).to_bytes(8, "little"), text, *(_flat_bytes(arrays[key]) for key in places)]


def _checked_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header, if it comes back from JSON as it went in; tuples and integer keys would not."""
    try:
        loaded = json.loads(_canonical(dict(header)))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the header must be plain JSON: {error}") from error
    if loaded != header:
        raise TypeError("the header must be plain JSON: use string keys and lists, not tuples")
    return loaded


def _open_regular(name: str) -> BufferedReader:
    """Open a file for reading, without ever waiting for a pipe or waking a device."""
    _check_regular(os.stat(name))
    # Checked again after opening, which does not wait, in case something else got the name in between.
    nonblocking = getattr(os, "O_NONBLOCK", 0)
    file = open(name, "rb", opener=lambda path, flags: os.open(path, flags | nonblocking))  # noqa: SIM115
    try:
        _check_regular(os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _no_model("it is a folder" if stat.S_ISDIR(status.st_mode) else "it is a device, pipe or socket")


def _read_table(file: BufferedReader, size: int) -> tuple[dict[str, Any], int]:
    """The safetensors table and the position behind it; no memory is taken before its length is checked."""
    if size == 0:
        raise _no_model("the file is empty")
    prefix = file.read(8)
    if file.peek(1)[:1] != b"{":
        raise _no_model("it does not start like one")
    length = int.from_bytes(prefix, "little")
    if length > min(size - 8, MAX_HEADER_BYTES):
        raise _damaged(f"its header claims {length} bytes, {size - 8} are there and {MAX_HEADER_BYTES} are allowed")
    # Bytes that are not text become U+FFFD, which fails a later check: we write ASCII only.
    return _parse_object(file.read(length).decode("utf-8", errors="replace")), 8 + length


def _parse_object(text: str) -> dict[str, Any]:
    """JSON with an object at the top and no key twice; NaN is left to the checksum."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _damaged("its header is not valid JSON") from error
    if type(value) is not dict:
        raise _damaged("its header is no JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(result := dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _checked_record(metadata: Any) -> dict[str, Any]:
    """Our own record out of the safetensors metadata: its format, version, fields and checksum are right."""
    if type(metadata) is not dict or set(metadata) != {_FORMAT} or type(metadata[_FORMAT]) is not str:
        raise _no_model("its metadata are not ours")
    record = _parse_object(metadata[_FORMAT])
    version = record.get("version")
    if record.get("format") != _FORMAT or type(version) is not int:
        raise _no_model("it does not name our format and a version")
    if version not in READABLE:  # before the rest, which may differ between versions
        newer = version > FORMAT_VERSION
        advice = "upgrade nearfield" if newer else "fit the model again, or load it with the nearfield that saved it"
        readable = f"this nearfield reads versions {' and '.join(map(str, READABLE))}"
        raise ModelFileError(f"it has format version {short(version)} and {readable}; {advice}")
    if set(record) != _RECORD_KEYS or type(record["header"]) is not dict or type(record["tensors"]) is not dict:
        raise _damaged("its record does not have the right fields")
    try:
        checksum = _record_checksum(record)
    except (ValueError, RecursionError) as error:  # NaN, or 1e999, which is valid JSON and infinite
        raise _damaged("its header holds a number that is not finite") from error
    if record["checksum"] != checksum:
        raise _damaged("its header does not match its checksum")
    return record


def _check_tensor(key: str, tensor: Any) -> None:
    """One array's dtype and shape make sense, and its size can be computed and compared with the file's."""
    wrong = _damaged(f"the description of its array {short(key)} is not valid")
    if type(tensor) is not dict or set(tensor) != {"dtype", "shape", "sha256"} or tensor["dtype"] not in list(_CODES):
        raise wrong
    shape = tensor["shape"]
    if type(shape) is not list or len(shape) > MAX_DIMENSIONS:
        raise wrong
    if not all(type(length) is int and 0 <= length < 2**63 for length in shape):
        raise wrong


def _mapped_array(file: BufferedReader, key: str, tensor: Mapping[str, Any]) -> np.ndarray:
    """The same without memory for it, but for what is in use: the file is mapped, once its checksum is found right."""
    start, digest = file.tell(), hashlib.sha256()
    left = math.prod(tensor["shape"]) * np.dtype(tensor["dtype"]).itemsize
    while left > 0:
        piece = file.read(min(left, _HASHED))
        if not piece:
            raise _damaged(f"it ends within its array {short(key)}")
        digest.update(piece)
        left -= len(piece)
    if digest.hexdigest() != tensor["sha256"]:
        raise _damaged(f"its array {short(key)} does not match its checksum")
    end, shape = file.tell(), tuple(tensor["shape"])
    found = np.memmap(file, dtype=tensor["dtype"], mode="c", offset=start, shape=shape).view(np.ndarray)
    file.seek(end)
    if found.dtype == np.bool_ and found.view(np.uint8).max(initial=0) > 1:
        raise _damaged(f"its array {short(key)} has entries that are not booleans")
    return found


def _read_array(file: BufferedReader, key: str, tensor: Mapping[str, Any], mapped: bool) -> np.ndarray:
    """The array at the file's position, in the byte order of this machine; the file was found to be large enough."""
    dtype = np.dtype(tensor["dtype"])
    if mapped and sys.byteorder == "little" and math.prod(tensor["shape"]) * dtype.itemsize >= _LEAST_MAPPED:
        return _mapped_array(file, key, tensor)
    try:
        array = np.empty(tensor["shape"], dtype.newbyteorder("<"))
    except (MemoryError, ValueError) as error:  # numpy also limits the shape of empty arrays
        raise ModelFileError(f"its array {short(key)} is too large ({error}); use a larger machine") from error
    data = _flat_bytes(array)
    if file.readinto(data) != len(data):
        raise _damaged(f"it ends within its array {short(key)}")
    if _sha256(data) != tensor["sha256"]:
        raise _damaged(f"its array {short(key)} does not match its checksum")
    if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:  # neither true nor false to numpy
        raise _damaged(f"its array {short(key)} has entries that are not booleans")
    return array.astype(dtype, copy=False)
