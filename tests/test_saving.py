"""Saving a model file is all or nothing, and minds links, modes and things that are no files."""

import errno
import os
import pickle
import stat
import subprocess
import sys

import numpy as np
import pytest
from model_files import ARRAYS, HEADER, assert_same, only_files, refused

from nearfield import atomic
from nearfield.persistence import (
    ModelFileError,
    naming_file,
    read_file,
    require,
    require_array,
    write_file,
)

# Things that are no regular file


@pytest.fixture
def no_replacing(monkeypatch):
    """If a check is missing, the tests must not replace a device of the machine they run on."""

    def fail(*_):
        raise AssertionError("was about to replace it")

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(atomic, "_Temporary", fail)


@pytest.mark.usefixtures("in_time", "no_replacing")
def test_pipes_devices_and_folders_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.mkdir(tmp_path / "folder")
    os.symlink("pipe", tmp_path / "link")
    before = sorted(os.listdir(tmp_path))
    for path in (tmp_path / "pipe", tmp_path / "folder", tmp_path / "link", "/dev/null", "/dev/zero", "/dev"):
        refused(path, "not a nearfield model")
        with pytest.raises(OSError, match="cannot save a model here") as caught:
            write_file(path, HEADER, ARRAYS)
        assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path / "folder", HEADER, ARRAYS)
    only_files(tmp_path, *before)


@pytest.mark.usefixtures("in_time")
def test_a_pipe_that_takes_the_name_at_the_last_moment_does_not_hang(tmp_path, model, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    regular = os.stat(model)
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
    refused(tmp_path / "pipe", "pipe")


def test_a_missing_file_stays_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="could not read the model"):
        read_file(tmp_path / "missing")
    os.symlink("missing", tmp_path / "dangling")
    with pytest.raises(FileNotFoundError, match="dangling"):
        read_file(tmp_path / "dangling")


def test_an_unreadable_file_stays_a_permission_error(model, monkeypatch):
    def deny(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(PermissionError, match=r"could not read the model \(Permission denied\)"):
        read_file(model)


# Saving is all or nothing


def raiser(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    ("function", "existing"),  # the mode of a new file is not set
    [("replace", True), ("replace", False), ("fsync", True), ("fsync", False), ("fchmod", True)],
)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OSError("?"), KeyboardInterrupt()])
def test_a_failure_while_saving_changes_nothing(tmp_path, model, monkeypatch, function, error, existing):
    before = model.read_bytes()
    target = model if existing else tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(os, function, raiser(error))
        with pytest.raises(type(error)) as caught:
            write_file(target, {"other": 1}, {"a": np.ones(1000)})
    if isinstance(error, OSError):
        assert str(target) in str(caught.value)
        assert "could not save the model" in str(caught.value)
        assert caught.value.errno == (error.errno or errno.EIO)
    assert model.read_bytes() == before
    only_files(tmp_path, model.name)


def test_a_crash_while_saving_leaves_the_old_file(tmp_path, model):
    script = f"""
import os, numpy as np
from nearfield import persistence
os.replace = lambda *_: os._exit(9)
persistence.write_file({str(model)!r}, {{}}, {{"a": np.ones(10**5)}})
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 9
    assert_same(read_file(model), HEADER, ARRAYS)
    write_file(tmp_path / "next", HEADER, ARRAYS)
    only_files(tmp_path, model.name, "next")


def test_the_file_reaches_the_disk_before_its_name(tmp_path, model, monkeypatch):
    """fsync of the whole new file, then the renaming, then fsync of the folder."""
    steps = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor):
        status = os.fstat(descriptor)
        steps.append("folder" if stat.S_ISDIR(status.st_mode) else status.st_size)
        fsync(descriptor)

    def note_replace(*args):
        steps.append("replace")
        replace(*args)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_file(model, HEADER, ARRAYS)
    assert steps == [model.stat().st_size, "replace", "folder"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_folder_that_cannot_be_flushed(model, monkeypatch, code):
    fsync = os.fsync

    def fail_on_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_folders)
    if code == errno.EINVAL:
        write_file(model, {"new": 1}, {})
    else:
        with pytest.raises(OSError, match="is saved, but"):
            write_file(model, {"new": 1}, {})
    assert read_file(model)[1] == {"new": 1}


def test_a_full_disk(tmp_path, model):
    script = f"""
import resource, numpy as np
from nearfield.persistence import write_file
array = np.ones(10**5)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    write_file({str(model)!r}, {{}}, {{"a": array}})
except OSError as error:
    print(error.errno, error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"{errno.EFBIG} ")
    assert "could not save the model" in result.stdout
    assert str(model) in result.stdout
    assert_same(read_file(model), HEADER, ARRAYS)
    only_files(tmp_path, model.name)


def test_a_read_only_folder(tmp_path, model, monkeypatch):
    deny = raiser(PermissionError(errno.EACCES, "Permission denied"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", deny)
        with pytest.raises(PermissionError, match="could not save the model"):
            write_file(tmp_path / "new", {}, {})
    only_files(tmp_path, model.name)


def test_a_write_protected_file_is_not_replaced(model, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    with pytest.raises(PermissionError, match="write-protected"):
        write_file(model, {}, {})
    assert_same(read_file(model), HEADER, ARRAYS)


def test_a_missing_folder(tmp_path, model):
    with pytest.raises(FileNotFoundError, match="create it first"):
        write_file(tmp_path / "no" / "m", {}, {})
    with pytest.raises(NotADirectoryError, match="cannot save a model here"):
        write_file(model / "m", {}, {})
    with pytest.raises(IsADirectoryError, match="add a file name"):
        write_file(f"{tmp_path}/m/", {}, {})
    with pytest.raises(OSError, match="cannot save a model here") as caught:
        write_file(tmp_path / ("x" * 300), {}, {})
    assert caught.value.errno == errno.ENAMETOOLONG
    only_files(tmp_path, model.name)


def test_the_longest_file_name(tmp_path):
    write_file(tmp_path / ("x" * 255), HEADER, ARRAYS)
    assert_same(read_file(tmp_path / ("x" * 255)), HEADER, ARRAYS)


def test_a_path_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file("m", HEADER, ARRAYS)
    assert_same(read_file("m"), HEADER, ARRAYS)
    only_files(tmp_path, "m")


# Links and modes


def test_a_symbolic_link_stays(tmp_path, model):
    os.mkdir(tmp_path / "folder")
    os.symlink("../bike.nearfield", tmp_path / "folder" / "link")
    write_file(tmp_path / "folder" / "link", {"new": 1}, {})
    assert os.readlink(tmp_path / "folder" / "link") == "../bike.nearfield"
    assert not model.is_symlink()
    assert read_file(model)[1] == {"new": 1}
    only_files(tmp_path / "folder", "link")


def test_a_dangling_link_gets_its_target(tmp_path):
    os.mkdir(tmp_path / "folder")
    os.symlink("folder/target", tmp_path / "link")
    write_file(tmp_path / "link", HEADER, ARRAYS)
    assert (tmp_path / "link").is_symlink()
    assert not (tmp_path / "folder" / "target").is_symlink()
    assert_same(read_file(tmp_path / "link"), HEADER, ARRAYS)


def test_a_loop_of_links_is_refused(tmp_path):
    os.symlink("b", tmp_path / "a")
    os.symlink("a", tmp_path / "b")
    with pytest.raises(OSError, match="cannot save a model here"):
        write_file(tmp_path / "a", {}, {})
    with pytest.raises(OSError, match="could not read the model"):
        read_file(tmp_path / "a")
    only_files(tmp_path, "a", "b")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o666, 0o444])
def test_the_mode_is_kept(model, mode):
    os.chmod(model, mode)
    if not os.access(model, os.W_OK):
        pytest.skip("only root may write this")
    write_file(model, HEADER, ARRAYS)
    assert stat.S_IMODE(model.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_is_kept(model):
    os.chown(model, 1234, 2345)
    write_file(model, HEADER, ARRAYS)
    assert (model.stat().st_uid, model.stat().st_gid) == (1234, 2345)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0])
def test_a_new_file_follows_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_file(tmp_path / "m", HEADER, ARRAYS)
    finally:
        after = os.umask(before)
    assert after == umask
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o666 & ~umask


# Help for the callers


def test_require():
    header = {"k": 3, "yes": True, "name": "x", "huge": 10**400}
    assert require(header, "k", int) == 3
    assert require(header, "yes", bool) is True
    assert type(require(header, "k", float)) is float
    for key, kind in (("yes", int), ("yes", float), ("k", bool), ("name", int), ("huge", float), ("missing", int)):
        with pytest.raises(ModelFileError, match=f"the field '{key}'"):
            require(header, key, kind)


def test_require_array():
    assert require_array(ARRAYS, "rows", np.float64, 2) is ARRAYS["rows"]
    for key, dtype, ndim in (("rows", "float32", 2), ("rows", "float64", 1), ("missing", "float64", 2)):
        with pytest.raises(ModelFileError, match=f"the array '{key}'"):
            require_array(ARRAYS, key, dtype, ndim)


def test_naming_file_adds_the_name_once():
    with (
        pytest.raises(ModelFileError, match=r"^cannot load 'inner': ") as caught,
        naming_file("outer"),
        naming_file("inner"),
    ):
        require({}, "k", int)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path) == (str(caught.value), "inner")
