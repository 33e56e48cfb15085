"""A file appears whole or not at all, gives nothing away to others, and leaves nothing behind."""

import errno
import gc
import os
import random
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from model_files import only_files

from nearfield import atomic
from nearfield.atomic import check_replaceable, replacing
from nearfield.persistence import write_file
from nearfield.table import write_blocks

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
LEFTOVER = ".nearfield-0123456789abcdef.tmp"


def has_nameless_files(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
    except (OSError, AttributeError):
        return False
    return True


@pytest.fixture(params=["nameless", "named"])
def kind(request, tmp_path, monkeypatch):
    """Both kinds of temporary files, whatever the system prefers."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not has_nameless_files(tmp_path):
        pytest.skip("this file system has no nameless files")
    return request.param


@pytest.fixture
def named(monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)


@pytest.fixture
def umask(request):
    before = os.umask(getattr(request, "param", 0))
    yield
    os.umask(before)


@pytest.fixture
def victim(tmp_path_factory):
    """A private file elsewhere, which nothing here may touch."""
    path = tmp_path_factory.mktemp("elsewhere") / "secret"
    path.write_text("secret")
    path.chmod(0o600)
    before = path.stat()
    yield path
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert path.read_text() == "secret"


def write(path, content=b"new", **options):
    with replacing(path, **options) as file:
        file.write(content)


def raising(file, error):
    file.write(b"rows" * 1000)
    raise error


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def temporaries(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".nearfield-")]


# Whole or not at all


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("content", [b"", b"x", b"x" * 10**6])
@pytest.mark.parametrize("existing", [False, True])
def test_what_is_written_is_there(tmp_path, content, existing):
    path = tmp_path / "m"
    if existing:
        path.write_bytes(b"old" * 10**6)
    write(path, content)
    assert path.read_bytes() == content
    only_files(tmp_path, "m")


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("error", [RuntimeError("?"), KeyboardInterrupt(), OSError(errno.EIO, "of a source", "source")])
def test_an_error_in_the_block_is_left_alone_and_so_is_the_old_file(tmp_path, error):
    (tmp_path / "m").write_text("old")
    for name in ("m", "new"):
        with pytest.raises(type(error)) as caught, replacing(tmp_path / name) as file:
            raising(file, error)
        assert caught.value is error
    assert (tmp_path / "m").read_text() == "old"
    only_files(tmp_path, "m")


@pytest.mark.usefixtures("kind")
def test_the_old_file_is_there_until_the_end(tmp_path):
    path = tmp_path / "m"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"x" * 10**6)
        file.flush()
        assert path.read_text() == "old"
    assert path.read_bytes() == b"x" * 10**6


def test_a_nameless_file_is_seen_by_nobody(tmp_path):
    if not has_nameless_files(tmp_path):
        pytest.skip("this file system has no nameless files")
    with replacing(tmp_path / "m") as file:
        file.write(b"x" * 10**6)
        only_files(tmp_path)
    only_files(tmp_path, "m")


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("existing", [False, True])
def test_a_nameless_file_that_cannot_get_a_name_is_copied(tmp_path, monkeypatch, existing):
    def no_links(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "m"
    if existing:
        path.touch(0o640)
    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(atomic, "_COPIED", 1000)
    content = random.Random(0).randbytes(12_345)
    write(path, content)
    assert path.read_bytes() == content
    assert mode_of(path) == (0o640 if existing else 0o666)
    only_files(tmp_path, "m")


@pytest.mark.usefixtures("kind")
def test_a_writer_kept_after_a_failure_writes_to_no_other_file(tmp_path):
    """Its buffer is not empty, and the number of its descriptor is soon that of another file."""
    with pytest.raises(RuntimeError), replacing(tmp_path / "m") as file:
        raising(file, RuntimeError())
    with ExitStack() as others:
        for i in range(10):
            others.enter_context(open(tmp_path / str(i), "wb"))
        with pytest.raises(ValueError, match="closed"):
            file.write(b"more")
        del file
        gc.collect()
    assert all((tmp_path / str(i)).read_bytes() == b"" for i in range(10))


def test_checking_leaves_nothing(tmp_path):
    check_replaceable(tmp_path / "m")
    (tmp_path / "old").write_text("old")
    check_replaceable(tmp_path / "old")
    only_files(tmp_path, "old")
    assert (tmp_path / "old").read_text() == "old"


@pytest.mark.usefixtures("kind")
def test_checking_finds_a_folder_without_room_for_files(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=r"cannot save a table here, .* \(Read-only file system\)") as caught:
        check_replaceable(tmp_path / "m", "table")
    assert caught.value.errno == errno.EROFS


def test_a_system_without_owners_locks_and_nameless_files(tmp_path):
    """Windows, as far as it can be played on another system."""
    script = f"""
import os, sys
sys.platform = "win32"
sys.modules["fcntl"] = None
for name in ("O_TMPFILE", "O_NOFOLLOW", "O_NONBLOCK", "fchown", "fchmod", "link", "pread"):
    if hasattr(os, name):
        delattr(os, name)
from nearfield.atomic import check_replaceable, replacing
for content in (b"old", b"new"):
    check_replaceable({str(tmp_path / "m")!r})
    with replacing({str(tmp_path / "m")!r}) as file:
        file.write(content)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "m").read_bytes() == b"new"
    only_files(tmp_path, "m")


# Modes and owners


@pytest.fixture
def modes(monkeypatch):
    """The modes that regular files were seen to have: after each call that makes or changes one, and on the disk."""
    seen = []

    def watch(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            status = os.fstat(args[0] if isinstance(args[0], int) else result)
            if stat.S_ISREG(status.st_mode):
                seen.append(stat.S_IMODE(status.st_mode))
            return result

        return call

    for name in ("open", "fchown", "fchmod", "fsync"):
        monkeypatch.setattr(os, name, watch(getattr(os, name)))
    return seen


@pytest.mark.usefixtures("kind", "umask")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604, 0o666, 0o400, 0o755])
def test_the_mode_is_that_of_the_old_file_and_never_wider(tmp_path, modes, mode):
    path = tmp_path / "m"
    path.touch()
    path.chmod(mode)
    if not os.access(path, os.W_OK):
        pytest.skip("only root may write this")
    modes.clear()
    write(path)
    assert mode_of(path) == mode
    assert len(modes) >= 3
    assert all(seen & ~mode == 0 for seen in modes)


@pytest.mark.usefixtures("kind", "umask")
def test_a_private_table_is_private_while_it_is_written(tmp_path):
    path = tmp_path / "t.csv"
    path.touch(0o600)
    with write_blocks(path) as _:
        assert all(mode_of(temporary) == 0o600 for temporary in temporaries(tmp_path))
    assert mode_of(path) == 0o600


@pytest.mark.usefixtures("kind")
def test_bits_that_lend_rights_are_not_kept(tmp_path):
    path = tmp_path / "m"
    path.touch()
    path.chmod(0o6755)
    write(path)
    assert mode_of(path) == 0o755


@pytest.mark.usefixtures("kind", "umask")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0], indirect=True)
def test_a_new_file_follows_the_umask(tmp_path):
    write(tmp_path / "m")
    (tmp_path / "plain").touch()
    assert mode_of(tmp_path / "m") == mode_of(tmp_path / "plain")


@pytest.mark.parametrize("umask", [0o077], indirect=True)
@pytest.mark.usefixtures("umask")
def test_a_kernel_that_forgets_the_umask_of_nameless_files(tmp_path, monkeypatch):
    if not has_nameless_files(tmp_path):
        pytest.skip("this file system has no nameless files")
    plain_open = os.open

    def forgetful(path, flags, mode=0o777, **options):
        descriptor = plain_open(path, flags, mode, **options)
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            os.fchmod(descriptor, mode)
        return descriptor

    monkeypatch.setattr(os, "open", forgetful)
    write(tmp_path / "m")
    assert mode_of(tmp_path / "m") == 0o600


@only_root
@pytest.mark.usefixtures("kind")
def test_owner_and_group_are_kept(tmp_path):
    path = tmp_path / "m"
    path.touch(0o640)
    os.chown(path, 1234, 2345)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (1234, 2345, 0o640)


@only_root
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(
    ("mode", "without_group"), [(0o640, 0o600), (0o664, 0o644), (0o604, 0o600), (0o660, 0o600), (0o666, 0o666)]
)
@pytest.mark.parametrize("member", [True, False])
def test_those_who_may_not_give_files_away_open_them_to_nobody(tmp_path, monkeypatch, mode, without_group, member):
    """A file keeps a group of which its writer is a member; else nobody may do more than before."""
    path = tmp_path / "m"
    path.touch()
    os.chown(path, 1234, 2345)
    path.chmod(mode)
    fchown = os.fchown

    def as_a_user(descriptor, owner, group):
        if owner != -1 or not member:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        fchown(descriptor, owner, group)

    monkeypatch.setattr(os, "fchown", as_a_user)
    write(path)
    assert path.stat().st_uid == os.geteuid()
    assert (path.stat().st_gid == 2345) == member
    assert mode_of(path) == (mode if member else without_group)


# Others who own the folder


def swap(name, victim):
    """What the owner of a folder can do at any moment: take a file away and put a link in its place."""
    os.rename(name, f"{name}.taken")
    os.symlink(victim, name)


@pytest.mark.usefixtures("kind", "umask")
@pytest.mark.parametrize("existing", [False, True])
def test_a_link_in_place_of_the_fresh_temporary_is_not_followed(tmp_path, monkeypatch, victim, existing):
    """Right after a name appears, by creation or by linking, it leads elsewhere."""
    plain_open, plain_link = os.open, os.link

    def open_and_swap(path, flags, *args, **options):
        descriptor = plain_open(path, flags, *args, **options)
        if flags & os.O_EXCL:
            swap(path, victim)
        return descriptor

    def link_and_swap(source, name, **options):
        plain_link(source, name, **options)
        swap(name, victim)

    path = tmp_path / "m"
    if existing:
        path.write_text("old")
        path.chmod(0o666)
        if os.geteuid() == 0:
            os.chown(path, 1234, 2345)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_and_swap)
        patch.setattr(os, "link", link_and_swap)
        with pytest.raises(OSError, match="could not save the model") as caught:
            write_file(path, {}, {})
    assert caught.value.errno == errno.EBUSY
    assert not path.is_symlink()
    assert path.exists() == existing
    if existing:
        assert path.read_text() == "old"


@pytest.mark.usefixtures("named", "umask")
@pytest.mark.parametrize("write_to", [replacing, write_blocks], ids=["file", "table"])
def test_a_link_in_place_of_the_temporary_while_it_is_written(tmp_path, victim, write_to):
    path = tmp_path / "t.csv"
    path.write_text("old")
    path.chmod(0o666)
    with pytest.raises(OSError, match="something else took the name"), write_to(path):
        swap(*temporaries(tmp_path), victim)
    assert path.read_text() == "old"
    assert not path.is_symlink()
    assert [name.suffix for name in temporaries(tmp_path)] == [".taken"]


@pytest.mark.usefixtures("kind", "umask")
def test_a_link_at_the_very_last_moment_changes_nothing_elsewhere(tmp_path, monkeypatch, victim):
    """No check is so late, but all that can be renamed is what the owner of the folder has put there."""
    replace = os.replace
    path = tmp_path / "m"
    path.touch(0o666)
    monkeypatch.setattr(os, "replace", lambda source, target: (swap(source, victim), replace(source, target))[1])
    write(path)
    assert not temporaries(tmp_path)[0].is_symlink()


RACER = """
import os, sys
os.setgroups([]); os.setgid(1234); os.setuid(1234)
print("ready", flush=True)
while True:
    for name in os.listdir("."):
        if name.startswith(".nearfield-") and name.endswith(".tmp"):
            try:
                os.unlink(name)
                os.symlink(sys.argv[1], name)
            except OSError:
                pass
"""


@only_root
@pytest.mark.usefixtures("kind", "umask")
def test_a_racing_owner_of_the_folder_gets_nothing(tmp_path, victim):
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 1234, 1234)
    racer = subprocess.Popen(
        [sys.executable, "-c", RACER, str(victim)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert racer.stdout.readline() == b"ready\n"
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for path in (folder / "m", folder / "t.csv"):
                if path.is_symlink():  # renamed at the very last moment; the next save would rightly follow it
                    path.unlink()
                if not path.exists():
                    path.touch()
                    path.chmod(0o666)
                    os.chown(path, 1234, 1234)
            with suppress(OSError):  # a refusal
                write_file(folder / "m", {}, {})
            with suppress(OSError), write_blocks(folder / "t.csv"):
                time.sleep(0.001)
            assert (victim.stat().st_uid, mode_of(victim)) == (0, 0o600)
    finally:
        racer.kill()
        racer.communicate()


# Leftovers of killed writers


WRITER = """
import os, sys
from nearfield.atomic import replacing
if sys.argv[2] == "named" and hasattr(os, "O_TMPFILE"):
    del os.O_TMPFILE
while True:
    with replacing(sys.argv[1]) as file:
        for _ in range(20):
            file.write(b"row" * 100_000)
    print("saved", flush=True)
"""


def test_killed_writers_leave_nothing_to_the_next(tmp_path, kind):
    path = tmp_path / "m"
    moments = random.Random(0)
    left = 0
    for _ in range(30):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), kind], stdout=subprocess.PIPE)
        try:
            assert writer.stdout.readline() == b"saved\n"
            time.sleep(moments.uniform(0, 0.03))
        finally:
            writer.kill()
            writer.communicate()
        left = max(left, len(temporaries(tmp_path)))
        assert path.stat().st_size == 20 * 300_000
    assert left <= 1  # the writers clean up after each other
    write(path)
    only_files(tmp_path, "m")


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("save", [write, lambda path: write_file(path, {}, {}), lambda path: write_blocks(path)])
def test_leftovers_are_removed_by_any_writer(tmp_path, save):
    (tmp_path / LEFTOVER).write_text("rows")
    (tmp_path / LEFTOVER).chmod(0o600)
    context = save(tmp_path / "t.csv")
    if context is not None:
        with context:
            pass
    only_files(tmp_path, "t.csv")


@pytest.mark.usefixtures("in_time", "kind")
def test_what_is_no_leftover_stays(tmp_path, victim):
    names = {
        "link": ".nearfield-0000000000000000.tmp",
        "folder": ".nearfield-1111111111111111.tmp",
        "pipe": ".nearfield-2222222222222222.tmp",
        "notes": ".nearfield-notes.tmp",
        "longer": f"{LEFTOVER}.csv",
    }
    os.symlink(victim, tmp_path / names["link"])
    os.mkdir(tmp_path / names["folder"])
    os.mkfifo(tmp_path / names["pipe"])
    (tmp_path / names["notes"]).write_text("notes")
    (tmp_path / names["longer"]).write_text("table")
    write(tmp_path / "m")
    only_files(tmp_path, "m", *names.values())


@pytest.mark.usefixtures("named")
def test_the_file_of_a_living_writer_stays(tmp_path):
    with replacing(tmp_path / "slow") as slow:
        slow.write(b"slow")
        (temporary,) = temporaries(tmp_path)
        write(tmp_path / "quick")
        check_replaceable(tmp_path / "other")
        only_files(tmp_path, temporary.name, "quick")
    only_files(tmp_path, "slow", "quick")
    assert (tmp_path / "slow").read_bytes() == b"slow"


@pytest.mark.usefixtures("named")
def test_a_file_removed_before_it_was_locked_is_created_again(tmp_path, monkeypatch):
    """The moment between creation and lock, in which another writer takes the file for a leftover."""
    lock = atomic._lock
    cleaned = []

    def clean_then_lock(descriptor):
        if len(cleaned) < 3:
            cleaned.append(temporaries(tmp_path))
            atomic._remove_leftovers(str(tmp_path))
        return lock(descriptor)

    monkeypatch.setattr(atomic, "_lock", clean_then_lock)
    write(tmp_path / "m")
    assert [len(files) for files in cleaned] == [1, 1, 1]
    assert (tmp_path / "m").read_bytes() == b"new"
    only_files(tmp_path, "m")


@pytest.mark.usefixtures("named")
def test_a_file_that_a_cleaner_holds_is_created_again(tmp_path, monkeypatch):
    lock = atomic._lock
    monkeypatch.setattr(atomic, "_lock", lambda descriptor: (monkeypatch.setattr(atomic, "_lock", lock), False)[1])
    write(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"new"
    only_files(tmp_path, "m")


@pytest.mark.usefixtures("kind")
def test_many_writers_in_one_folder_do_not_disturb_each_other(tmp_path):
    failures = []

    def save_often(name):
        try:
            for i in range(50):
                write(tmp_path / name, b"%d" % i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=save_often, args=(name,)) for name in ("a", "b", "c", "same", "same")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert {(tmp_path / name).read_bytes() for name in ("a", "b", "c", "same")} == {b"49"}
    only_files(tmp_path, "a", "b", "c", "same")


def test_where_there_are_no_locks_nothing_is_removed(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", no_locks)
    (tmp_path / LEFTOVER).write_text("rows")
    write(tmp_path / "m")
    only_files(tmp_path, "m", LEFTOVER)
