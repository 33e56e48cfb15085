"""What the tests of model files share: a header and arrays, forgery, and loading that must fail."""

import hashlib
import json
import os

import numpy as np
import pytest

from nearfield.persistence import FORMAT_VERSION, ModelFileError, read_file

DTYPES = ["float64", "float32", "int64", "int32", "uint8", "bool"]
HEADER = {
    "kind": "regressor",
    "k": 64,
    "scale": 0.1,
    "columns": ["a", "ü", "\ud800"],
    "nested": {"none": None, "yes": True},
}
ARRAYS = {
    "rows": np.arange(12.0).reshape(4, 3),
    "ids": np.array([3, 1, 2], dtype="int32"),
    "mask": np.array([True, False, True]),
    "scalar": np.array(2.5, dtype="float32"),
    "empty": np.zeros((0, 5)),
}


def assert_same(loaded, header, arrays):
    version, loaded_header, loaded_arrays = loaded
    assert version == FORMAT_VERSION
    assert loaded_header == header
    assert set(loaded_arrays) == set(arrays)
    for key, array in arrays.items():
        got = loaded_arrays[key]
        assert (got.dtype, got.shape) == (array.dtype.newbyteorder("="), array.shape)
        np.testing.assert_array_equal(got, array)


def split(content):
    """The table and the arrays' bytes of a file."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(table, data):
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


def sign(record):
    """A record with the checksum it needs, as a forger would write it."""
    rest = {key: value for key, value in record.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def forge(content, change):
    """The file after ``change(table, record)``, with all checksums of the header made right again."""
    table, data = split(content)
    record = json.loads(table["__metadata__"]["nearfield"])
    change(table, record)
    table["__metadata__"]["nearfield"] = json.dumps(sign(record))
    return join(table, data)


def refused(path, match=None):
    """The error of loading: one line that names the file."""
    with pytest.raises(ModelFileError, match=match) as caught:
        read_file(path)
    message = str(caught.value)
    assert repr(str(path)) in message
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))
    return message


def only_files(folder, *names):
    assert sorted(os.listdir(folder)) == sorted(names)
