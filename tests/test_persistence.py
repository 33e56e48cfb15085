"""A model file comes back exactly as it was saved, or is refused with one clear error."""

import hashlib
import json
import os
import pickle
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from model_files import ARRAYS, DTYPES, HEADER, assert_same, forge, join, only_files, refused, split

from nearfield import persistence
from nearfield.persistence import (
    FORMAT_VERSION,
    READABLE,
    ModelFileError,
    ModelReader,
    read_file,
    section,
    write_file,
)

FILES = Path(__file__).parent / "files"

# Round trip


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,10}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
some_arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(), values, max_size=4), st.dictionaries(names, some_arrays, max_size=4))
def test_loaded_equals_saved(tmp_path, header, arrays):
    write_file(tmp_path / "m", header, arrays)
    assert_same(read_file(tmp_path / "m"), header, arrays)
    theirs = safetensors.numpy.load_file(tmp_path / "m")
    assert {key: (a.dtype, a.shape, a.tobytes()) for key, a in theirs.items()} == {
        key: (a.dtype, a.shape, a.tobytes()) for key, a in arrays.items()
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "change",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::2, ::-1],
        lambda a: np.asfortranarray(a),
        lambda a: a.astype(a.dtype.newbyteorder(">")),
        lambda a: a[1, 2],
        lambda a: a[1:1],
        lambda a: np.broadcast_to(a[0], a.shape),
    ],
)
def test_any_memory_layout_round_trips(tmp_path, dtype, change):
    array = np.asarray(change(np.arange(20).reshape(4, 5).astype(dtype)))
    write_file(tmp_path / "m", {}, {"a": array})
    assert_same(read_file(tmp_path / "m"), {}, {"a": array})


def test_special_floats_keep_their_bits(tmp_path):
    array = np.array([np.nan, -np.nan, np.inf, -0.0, 5e-324])
    write_file(tmp_path / "m", {}, {"a": array})
    assert read_file(tmp_path / "m")[2]["a"].tobytes() == array.tobytes()


def test_loaded_arrays_are_writable_and_outlive_the_file(model):
    arrays = read_file(model)[2]
    model.write_bytes(b"")
    model.unlink()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[key])
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.dtype.isnative
    arrays["rows"] += 1


def test_same_content_gives_the_same_bytes(model, tmp_path):
    write_file(tmp_path / "again", dict(reversed(HEADER.items())), dict(reversed(ARRAYS.items())))
    assert (tmp_path / "again").read_bytes() == model.read_bytes()


def test_arrays_are_aligned_in_the_file(model):
    content = model.read_bytes()
    table, _ = split(content)
    data_start = 8 + int.from_bytes(content[:8], "little")
    for key, array in ARRAYS.items():
        assert (data_start + table[key]["data_offsets"][0]) % array.dtype.itemsize == 0


def test_saving_and_loading_take_at_most_one_copy(tmp_path):
    script = f"""
import resource, numpy as np
from nearfield.persistence import read_file, write_file
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
array = np.ones((100, 2**17))  # 100 MiB
before = peak(); write_file({str(tmp_path / "m")!r}, {{}}, {{"a": array}}); saving = peak() - before
before = peak(); read_file({str(tmp_path / "m")!r}); print(saving, peak() - before)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    saving, loading = map(int, result.stdout.split())
    assert saving < 50
    assert loading < 150


@pytest.mark.parametrize(
    "header",
    [{"a": np.float32(1)}, {"a": (1, 2)}, {1: "a"}, {"a": float("nan")}, {"a": {1, 2}}, {"a": b"x"}, {"a": np.ones(2)}],
)
def test_a_header_that_json_would_change_is_refused(tmp_path, header):
    with pytest.raises(TypeError, match="plain JSON"):
        write_file(tmp_path / "m", header, {})
    only_files(tmp_path)


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.ones(2, complex), np.ones(2, "float16"), [1.0]]
)
def test_other_dtypes_are_refused(tmp_path, array):
    with pytest.raises(TypeError, match="float64"):
        write_file(tmp_path / "m", {}, {"a": array})
    only_files(tmp_path)


@pytest.mark.parametrize("name", ["__metadata__", "", "a b", "a\n", "ü", 3])
def test_odd_array_names_are_refused(tmp_path, name):
    with pytest.raises(TypeError, match="array names"):
        write_file(tmp_path / "m", {}, {name: np.ones(2)})


def test_a_header_too_large_to_load_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(persistence, "MAX_HEADER_BYTES", 1000)
    write_file(tmp_path / "m", {"a": "x" * 500}, {})
    assert read_file(tmp_path / "m")[1] == {"a": "x" * 500}
    with pytest.raises(ValueError, match="may have 1000"):
        write_file(tmp_path / "m", {"a": "x" * 1000}, {})
    assert read_file(tmp_path / "m")[1] == {"a": "x" * 500}


# Versions


@pytest.mark.parametrize("path", sorted(FILES.glob("v2/*.nearfield")), ids=lambda path: path.stem)
def test_files_of_version_2_are_read(path):
    """They have the arrays that another reader finds, and the version that says what their header means."""
    version, header, arrays = read_file(path)
    with ModelReader(path) as file:
        assert (version, header) == (file.version, file.header)
    assert version == 2
    assert "sections" not in header
    theirs = safetensors.numpy.load_file(path)
    assert {key: array.tobytes() for key, array in arrays.items()} == {
        key: array.tobytes() for key, array in theirs.items()
    }


def test_files_of_version_2_are_there():
    assert len(list(FILES.glob("v2/*.nearfield"))) > 30


@pytest.mark.parametrize("version", READABLE)
def test_every_readable_version_is_told(model, version):
    model.write_bytes(forge(model.read_bytes(), lambda table, record: record.update(version=version)))
    assert read_file(model)[:2] == (version, HEADER)


def test_what_is_written_has_the_newest_version(model):
    table, _ = split(model.read_bytes())
    assert json.loads(table["__metadata__"]["nearfield"])["version"] == FORMAT_VERSION == max(READABLE) == 3


def test_a_section_comes_back_with_its_version(tmp_path):
    header = {"sections": {"kernel": {"version": 2, "name": "matern"}, "empty": {"version": 1}}}
    write_file(tmp_path / "m", header, {})
    _, loaded, _ = read_file(tmp_path / "m")
    assert section(loaded, "kernel", 2) == (2, {"name": "matern"})
    assert section(loaded, "kernel", 7) == (2, {"name": "matern"})
    assert section(loaded, "empty", 1) == (1, {})
    assert loaded == header  # not changed by asking


def test_a_section_of_a_newer_version_asks_for_an_upgrade():
    header = {"sections": {"kernel": {"version": 3}}}
    with pytest.raises(ModelFileError, match=r"'kernel' has version 3 and .* up to 2; upgrade nearfield"):
        section(header, "kernel", 2)


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"sections": []},
        {"sections": {}},
        {"sections": {"kernel": []}},
        {"sections": {"kernel": {}}},
        {"sections": {"kernel": {"version": "1"}}},
        {"sections": {"kernel": {"version": True}}},
        {"sections": {"kernel": {"version": 0}}},
    ],
)
def test_a_section_that_is_missing_or_damaged_is_refused(header):
    with pytest.raises(ModelFileError, match="damaged"):
        section(header, "kernel", 2)


# Damage


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_every_flipped_byte_is_found(model, mask):
    content = model.read_bytes()
    header_end = 8 + int.from_bytes(content[:8], "little")
    padding = header_end - len(content[:header_end].rstrip(b" "))
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= mask
        model.write_bytes(damaged)
        try:
            loaded = read_file(model)
        except ModelFileError:
            continue
        # JSON allows this: the meaning of the text is the same, e.g. "\u00FC" and "\u00fc".
        assert position < header_end - padding
        assert json.loads(damaged[8:header_end].lower()) == json.loads(content[8:header_end].lower())
        assert_same(loaded, HEADER, ARRAYS)


def test_every_truncation_is_found(model):
    content = model.read_bytes()
    for length in range(len(content)):
        model.write_bytes(content[:length])
        refused(model)


@pytest.mark.parametrize("extra", [b"\0", b" ", b"x" * 1000])
def test_bytes_behind_the_end_are_found(model, extra):
    model.write_bytes(model.read_bytes() + extra)
    refused(model, "should have")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(tmp_path, content, as_header):
    path = tmp_path / "m"
    path.write_bytes(join(b"{" + content, b"") if as_header else content)
    refused(path)


def test_other_files_are_called_no_model(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"")
    refused(path, "empty")
    for content in (b"", b"a,b,c\n1,2,3\n4,5,6\n", b"\x80\x04\x95" + b"0" * 50, b"12345678", b'{"json": 1, "x": 2}'):
        path.write_bytes(content)
        refused(path, "not a nearfield model")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    refused(path, "not a nearfield model")
    for metadata in (None, {"format": "pt"}, {"nearfield": "{}"}):
        safetensors.numpy.save_file({"a": np.ones(3)}, path, metadata=metadata)
        refused(path, "not a nearfield model")


def test_a_pickle_is_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    (tmp_path / "m").write_bytes(pickle.dumps(Bomb()))
    refused(tmp_path / "m")
    only_files(tmp_path, "m")


# Hostile files: every checksum is right, so only the checks of meaning can find them


def test_forging_nothing_still_loads(model):
    """The forger's file is accepted, so the refusals below are due to the change and not to the forging."""
    model.write_bytes(forge(model.read_bytes(), lambda table, record: None))
    assert_same(read_file(model), HEADER, ARRAYS)


def set_tensor(key, **fields):
    return lambda table, record: record["tensors"][key].update(fields)


def set_both(key, **fields):
    def change(table, record):
        record["tensors"][key].update(fields)
        table[key].update(fields)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda table, record: table.pop("ids"),
        lambda table, record: record["tensors"].pop("ids"),
        lambda table, record: table.update(more=table["ids"]),
        lambda table, record: table["rows"].update(data_offsets=[0, 8]),
        lambda table, record: table["rows"].update(data_offsets=[-8, 88]),
        lambda table, record: table["rows"].update(data_offsets=[2**70, 2**70 + 96]),
        lambda table, record: table["ids"].update(data_offsets=table["rows"]["data_offsets"]),
        lambda table, record: table["ids"].update(shape=[1]),
        lambda table, record: table["rows"].update(dtype="I64"),
        lambda table, record: table.update(rows=None),
        lambda table, record: record["tensors"].update(rows=None),
        lambda table, record: record.update(header=[]),
        lambda table, record: record.update(tensors=[]),
        lambda table, record: record.update(more=1),
        lambda table, record: record.pop("header"),
        lambda table, record: record.update(format="farfield"),
        lambda table, record: record.update(version="1"),
        lambda table, record: record.update(version=True),
        lambda table, record: record["header"].update(k=float("nan")),
        lambda table, record: table["__metadata__"].update(more="x"),
        set_tensor("rows", dtype="float32"),
        set_tensor("rows", dtype="object"),
        set_tensor("rows", dtype=["float64"]),
        set_tensor("rows", sha256=None),
        set_tensor("rows", more=1),
        set_both("rows", shape=[3, 5]),
        set_both("rows", shape=[-4, -3]),
        set_both("rows", shape=[4, 3.0]),
        set_both("rows", shape=12),
        set_both("rows", shape=[2**40, 2**40]),
        set_both("rows", shape=[12] + [1] * 100),
        set_both("empty", shape=[0, 2**62, 2**62]),
        set_both("empty", shape=[0, 10**4000]),
        set_both("empty", shape=[0] * 100_000),
        set_both("scalar", shape=[True]),
    ],
)
def test_a_forged_header_is_refused(model, change):
    model.write_bytes(forge(model.read_bytes(), change))
    refused(model)


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 99, 10**30])
def test_a_newer_version_asks_for_an_upgrade(model, version):
    def change(table, record):
        record.clear()  # a later version may have other fields
        record.update(format="nearfield", version=version, body="?")

    model.write_bytes(forge(model.read_bytes(), change))
    message = refused(model, "upgrade nearfield")
    assert str(version)[:5] in message
    assert "reads versions 2 and 3" in message


@pytest.mark.parametrize("version", [1, 0, -1])
def test_a_version_too_old_asks_for_another_fit(model, version):
    model.write_bytes(forge(model.read_bytes(), lambda table, record: record.update(version=version)))
    assert "upgrade" not in refused(model, f"version {version} and .* fit the model again")


def test_a_boolean_must_be_zero_or_one(tmp_path):
    write_file(tmp_path / "m", {}, {"a": np.array([True])})
    content = (tmp_path / "m").read_bytes()[:-1] + b"\x02"
    checksum = hashlib.sha256(b"\x02").hexdigest()
    (tmp_path / "m").write_bytes(forge(content, set_tensor("a", sha256=checksum)))
    refused(tmp_path / "m", "not booleans")


@pytest.mark.parametrize("length", [0, 1, 2, 10**6, 2**31, 2**32, 2**63, 2**64 - 1])
def test_hostile_header_lengths(model, length):
    model.write_bytes(length.to_bytes(8, "little") + model.read_bytes()[8:])
    refused(model, "claims" if length >= 10**6 else "JSON")


def test_a_file_that_shrinks_while_it_is_read(model, monkeypatch):
    write_file(model, {}, {"a": np.ones(10**5)})
    layout = persistence._layout
    monkeypatch.setattr(persistence, "_layout", lambda tensors: (os.truncate(model, 10**5), layout(tensors))[1])
    refused(model, "ends within")


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("shape", [[-4, -3], [0, 2**63], [1] * 65, [2**62] * 300_000])
def test_hostile_shapes_are_refused_before_their_size_is_computed(model, shape):
    model.write_bytes(forge(model.read_bytes(), set_both("rows", shape=shape)))
    refused(model, "description")


def test_a_long_header_is_refused_unread(tmp_path):
    path = tmp_path / "m"
    with open(path, "wb") as file:
        file.write((2**40).to_bytes(8, "little") + b"{")
        file.truncate(2**41)  # takes no space on the disk
    refused(path, "allowed")


def test_an_array_larger_than_memory_is_refused(tmp_path):
    path = tmp_path / "m"
    write_file(path, {}, {"a": np.ones(1, "uint8")})
    size = 2**43  # 8 TiB
    table, _ = split(path.read_bytes())
    table["a"]["data_offsets"] = [0, size]
    path.write_bytes(content := forge(join(table, b""), set_both("a", shape=[size])))
    os.truncate(path, len(content) + size)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**42, limit[1]))  # whatever the machine's policy on overcommitment
    try:
        refused(path, "too large")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


@pytest.mark.parametrize(
    "text", [b'{"a":' * 100_000, b'{"a":' + b"[" * 100_000, b'{"a":NaN}', b'{"a":1e999}', b'{"a":' + b"9" * 9999 + b"}"]
)
def test_hostile_json(model, text):
    model.write_bytes(join(text, b""))
    refused(model)
    metadata = {"__metadata__": {"nearfield": text.decode()}}
    model.write_bytes(join(metadata, b""))
    refused(model)


def test_a_key_that_occurs_twice_is_refused(model):
    content = model.read_bytes()
    table, data = split(content)
    text = json.dumps(table).encode()
    model.write_bytes(join(text[:-1] + b', "ids": ' + json.dumps(table["ids"]).encode() + b"}", data))
    refused(model, "JSON")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(model, number):
    table, data = split(model.read_bytes())
    record = table["__metadata__"]["nearfield"]
    assert '"scale":0.1' in record
    table["__metadata__"]["nearfield"] = record.replace('"scale":0.1', f'"scale":{number}')
    model.write_bytes(join(table, data))
    refused(model, "not finite")
