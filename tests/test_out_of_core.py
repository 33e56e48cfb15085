"""Fits of Parquet files: those of the same table in memory, to the bit; interrupted reading goes on."""

from __future__ import annotations

import errno
import mmap
import os

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from nearfield import GPClassifier, GPRegressor, persistence, storage, streaming  # noqa: E402
from nearfield import rows as rows_module  # noqa: E402
from nearfield.column_values import TableError  # noqa: E402
from nearfield.neighbours.boxes import BoxIndex  # noqa: E402
from nearfield.storage import CacheError, Storage  # noqa: E402


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """Blocks and boxes of few rows, so that small tables are read and held as large ones are."""
    monkeypatch.setattr(rows_module, "BOXED_ROWS", 1)
    monkeypatch.setattr(streaming, "_BLOCK_ROWS", 100)
    monkeypatch.setattr(streaming, "_NOTED", 1)


def table(n=700, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)).astype(dtype)
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n)


def written(folder, X, y, parts=3):
    """A folder of Parquet files of a table."""
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(y)), parts)):
        columns = {f"x{e}": X[rows, e] for e in range(X.shape[1])} | {"height": y[rows]}
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet")
    return folder


def quick(kind=GPRegressor, **arguments):
    return kind(random_state=0, k=16, **arguments)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_folder_is_fitted_as_the_table_is(tmp_path, brief_training, dtype):
    X, y = table(dtype=dtype)
    folder, new = written(tmp_path / "parts", X, y), table(40, seed=1)[0]
    expected = quick().fit(X, y)
    for path in (folder, str(folder)):
        found = quick().fit(path, "height")
        assert found.feature_names_in_.tolist() == ["x0", "x1", "x2"]
        assert found.n_rows_ == len(y)
        for a, b in zip(found.predict(new, return_std=True), expected.predict(new, return_std=True), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found.loo_.mean, expected.loo_.mean)


def test_nothing_is_left_behind_without_a_cache(tmp_path, brief_training, monkeypatch):
    monkeypatch.setattr(storage.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    quick().fit(written(tmp_path / "parts", *table()), "height")
    assert os.listdir(tmp_path / "temporary") == []


def test_text_gaps_and_rows_without_a_target(tmp_path, brief_training):
    X, y = table()
    names = np.array(["calm", "windy", None], dtype=object)[np.arange(700) % 3]
    frame = pa.table({"x": X[:, 0], "weather": names, "height": pa.array(y, mask=np.arange(700) % 10 == 0)})
    pq.write_table(frame, tmp_path / "one.parquet")
    found = quick().fit(tmp_path / "one.parquet", "height")
    kept = np.arange(700) % 10 != 0
    assert found.n_rows_ == kept.sum()
    expected = quick().fit(frame.select(["x", "weather"]).filter(pa.array(kept)), y[kept])
    np.testing.assert_array_equal(found.predict(frame.slice(0, 9)), expected.predict(frame.slice(0, 9)))


def test_numbered_classes(tmp_path, brief_training):
    X, y = table()
    folder = written(tmp_path / "parts", X, (y > 0).astype(np.int64))
    found = quick(GPClassifier).fit(folder, "height")
    expected = quick(GPClassifier).fit(X, (y > 0).astype(float))
    np.testing.assert_array_equal(found.predict_proba(X[:20]), expected.predict_proba(X[:20]))


def test_an_interrupted_reading_goes_on(tmp_path, brief_training, monkeypatch):
    X, y = table()
    folder, cache = written(tmp_path / "parts", X, y), tmp_path / "cache"
    whole, seen = streaming._Reading._write, []

    def failing(self, block, *rest):
        seen.append(block.num_rows)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return whole(self, block, *rest)

    monkeypatch.setattr(streaming._Reading, "_write", failing)
    with pytest.raises(KeyboardInterrupt):
        quick(cache=cache).fit(folder, "height")
    read = sum(seen[:3])
    monkeypatch.setattr(streaming._Reading, "_write", lambda *rest: seen.append(rest[1].num_rows) or whole(*rest))
    del seen[:]
    found = quick(cache=cache).fit(folder, "height")
    assert sum(seen) == len(y) - read
    np.testing.assert_array_equal(found.predict(X[:30]), quick().fit(X, y).predict(X[:30]))
    del seen[:]
    quick(cache=cache).fit(folder, "height")
    assert not seen  # all is there
    written(tmp_path / "other", X + 1, y)
    quick(cache=cache).fit(tmp_path / "other", "height")
    assert sum(seen) == len(y)  # of other files nothing is there


def test_arrays_of_a_folder_can_be_sent(tmp_path, brief_training):
    import pickle

    model = quick(cache=tmp_path / "cache").fit(written(tmp_path / "parts", *table()), "height")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(table()[0]), model.predict(table()[0]))


def test_what_cannot_be_read_is_told_before_anything_is_written(tmp_path):
    X, y = table(30)
    cache = tmp_path / "cache"

    def refused(error, match, path, target="height", **arguments):
        with pytest.raises(error, match=match):
            quick(cache=cache, **arguments).fit(path, target)
        assert not cache.exists() or os.listdir(cache) == []

    folder = written(tmp_path / "parts", X, y)
    refused(TableError, "The target is not in the table: 'hight' .nearest: 'height'", folder, "hight")
    refused(TypeError, "name of its column", folder, y)
    refused(FileNotFoundError, "does not exist", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    refused(TableError, "without .parquet files", tmp_path / "empty")
    pq.write_table(pa.table({"x0": [1, 2], "height": [1.0, 2.0]}), folder / "part-9.parquet")
    refused(TableError, "'x0' is double in .*part-0.* and int64 in .*part-9|'x[12]' is double", folder)
    (folder / "part-9.parquet").write_text("no parquet")
    refused(TableError, "is not a Parquet file", folder)
    pq.write_table(pa.table({"x": [1.0, 2.0], "height": ["a", "b"]}), tmp_path / "text.parquet")
    refused(TableError, "has a target of numbers", tmp_path / "text.parquet")
    pq.write_table(pa.table({"x": [1.0], "height": [1.0]}).slice(0, 0), tmp_path / "none.parquet")
    refused(TableError, "has no rows", tmp_path / "none.parquet")
    twice = pa.Table.from_arrays([pa.array([1.0])] * 3, names=["x", "x", "height"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    refused(TableError, "column names stand there more than once, such as 'x'", tmp_path / "twice.parquet")
    pq.write_table(
        pa.table({"x": [f"level {i}" for i in range(90)] * 2, "height": np.arange(180.0)}), tmp_path / "levels.pq"
    )
    refused(TableError, "text with 90 levels", tmp_path / "levels.pq")


@pytest.mark.parametrize("column", ["x1", "height", "all of height", "a damaged file"])
def test_rows_that_cannot_be_used_leave_nothing_in_the_cache(tmp_path, monkeypatch, column):
    """Found in the middle of reading, behind the rows that tell what becomes of columns."""
    monkeypatch.setattr(streaming, "_LEARNED_ROWS", 2)
    X, y = table()
    message = {"x1": "'x1' has 1 infinite values, first in row 531", "height": "'height' is infinite in row 531"}
    if column == "x1":
        X[531, 1] = np.inf
    elif column == "height":
        y[531] = -np.inf
    elif column == "all of height":
        y[:] = np.nan
    folder, cache = written(tmp_path / "parts", X, y), tmp_path / "cache"
    if column == "a damaged file":
        whole = pq.ParquetFile.iter_batches

        def damaged(self, **asked):
            for number, batch in enumerate(whole(self, **asked)):
                if number == 1 and self.metadata.num_rows == 234:
                    raise OSError("Corrupt snappy compressed data.")
                yield batch

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", damaged)
    expected = message.get(column, "part-0.parquet cannot be read" if "damaged" in column else "no value in any row")
    with pytest.raises(TableError, match=expected):
        quick(cache=cache).fit(folder, "height")
    assert os.listdir(cache) == []


def test_files_that_writers_use_for_themselves_are_no_part_of_the_table(tmp_path, brief_training):
    X, y = table()
    folder = written(tmp_path / "parts", X, y)
    for name in ("_metadata.parquet", ".part-0.parquet"):
        pq.write_table(pa.table({"x": [1.0]}), folder / name)
    assert quick().fit(folder, "height").n_rows_ == len(y)


def test_a_cache_serves_one_reading_at_a_time(tmp_path, brief_training):
    folder, cache = written(tmp_path / "parts", *table()), tmp_path / "cache"
    with Storage(cache).alone(), pytest.raises(CacheError, match="another process is reading a table into the ca"):
        quick(cache=cache).fit(folder, "height")
    assert os.listdir(cache) == []
    quick(cache=cache).fit(folder, "height")


def test_who_has_an_array_of_the_cache_keeps_it(tmp_path):
    make = Storage(tmp_path)
    before = make.named("table", (5,), np.int64, fresh=True)
    before[:] = 7
    make.named("table", (2,), np.int64, fresh=True)[:] = 3
    np.testing.assert_array_equal(before, 7)


def test_a_cache_that_lacks_something_is_filled_anew(tmp_path, brief_training):
    X, y = table()
    folder, cache = written(tmp_path / "parts", X, y), tmp_path / "cache"
    expected = quick(cache=cache).fit(folder, "height").predict(X[:20])
    os.truncate(cache / "features", 1000)
    np.testing.assert_array_equal(quick(cache=cache).fit(folder, "height").predict(X[:20]), expected)
    (cache / "target").unlink()
    np.testing.assert_array_equal(quick(cache=cache).fit(folder, "height").predict(X[:20]), expected)


def test_a_cache_that_is_full_or_cannot_be_written_to(tmp_path, monkeypatch):
    folder = written(tmp_path / "parts", *table(30))
    (tmp_path / "a_file").write_text("")
    with pytest.raises(OSError, match="cache folder cannot be written to"):
        quick(cache=tmp_path / "a_file").fit(folder, "height")

    class Usage:
        free = 1000

    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(OSError, match=r"0\.0 MB free and about 0\.0 MB are needed") as caught:
        quick(cache=tmp_path / "cache").fit(folder, "height")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path / "cache") == []
    monkeypatch.undo()

    taken = []

    def full_later(descriptor, start, size):
        taken.append(size)
        if len(taken) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "posix_fallocate", full_later, raising=False)
    for failing in (1, 2):  # of the two files that have a name
        taken.clear()
        with pytest.raises(OSError, match="No space left") as caught:
            quick(cache=tmp_path / "cache").fit(folder, "height")
        assert len(taken) == failing
        assert os.listdir(tmp_path / "cache") == []

    def forbidden(*given, **named):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(storage.tempfile, "TemporaryFile", forbidden)
    with pytest.raises(OSError, match="cannot be written to") as caught:
        quick(cache=tmp_path / "cache").fit(folder, "height")
    assert caught.value.errno == errno.EACCES


def test_files_without_rows_and_other_orders_of_columns_are_no_matter(tmp_path, brief_training):
    X, y = table()
    folder = written(tmp_path / "parts", X, y)
    pq.write_table(pa.table({"x0": pa.array([], pa.string()), "other": pa.array([], pa.null())}), folder / "a.parquet")
    last = folder / "part-2.parquet"
    pq.write_table(pq.read_table(last).select(["height", "x2", "x0", "x1"]), last)
    expected = quick().fit(X, y).predict(X[:20])
    np.testing.assert_array_equal(quick().fit(folder, "height").predict(X[:20]), expected)


def test_arrays_have_the_room_that_they_ask_for(tmp_path):
    make = Storage(tmp_path)
    array = make((10, 3), np.float32)
    array[:] = 1
    assert type(array) is np.ndarray
    assert os.listdir(tmp_path) == []
    assert make((0, 3), np.int64).shape == (0, 3)
    make.named("table", (5,), np.int64, fresh=True)[:] = np.arange(5)
    np.testing.assert_array_equal(make.named("table", (5,), np.int64, fresh=False), np.arange(5))


# --- the command line -----------------------------------------------------------------------------------------------


def mapped_from_a_file(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def test_placed_leaves_lie_where_the_rows_do(tmp_path, brief_training, monkeypatch):
    """In a file where these are mapped from one; without room for them the answers are the same."""
    model = quick().fit(written(tmp_path / "parts", *table()), "height")
    new, indexes = table(300, seed=1)[0], []
    prepare = BoxIndex._prepare

    def noted(index, b):
        prepare(index, b)
        indexes.append(index)

    monkeypatch.setattr(BoxIndex, "_prepare", noted)
    expected = model.predict(new)
    assert mapped_from_a_file(indexes[-1]._placed[0])
    with pytest.warns(UserWarning, match="contains the 700 training rows"):
        model.save(tmp_path / "model")
    monkeypatch.setattr(persistence, "_LEAST_MAPPED", 1)
    opened = {mapped: GPRegressor.load(tmp_path / "model", mapped=mapped) for mapped in (True, False)}
    for mapped, model in opened.items():
        np.testing.assert_array_equal(model.predict(new), expected)
        assert len(indexes[-1]._placed[0])
        assert mapped_from_a_file(indexes[-1]._placed[0]) == mapped
    full = GPRegressor.load(tmp_path / "model", mapped=True)

    def no_room(*_, **__):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(storage.Storage, "_mapped", no_room)
    np.testing.assert_array_equal(full.predict(new), expected)
    assert not len(indexes[-1]._placed[0])


def test_the_command_fits_a_folder(tmp_path, brief_training, capsys):
    from nearfield.cli import main

    X, y = table()
    folder, out = written(tmp_path / "parts", X, y), tmp_path / "model.nearfield"
    assert main(["fit", str(folder), "--target", "height", "--out", str(out), "--k", "16", "--quiet"]) == 0
    found = GPRegressor.load(out)
    np.testing.assert_array_equal(found.predict(X[:20]), quick().fit(X, y).predict(X[:20]))
    part = folder / "part-0.parquet"
    again = tmp_path / "again.nearfield"
    command = ["fit", str(part), "--target", "height", "--out", str(again), "--cache", str(tmp_path / "cache")]
    assert main([*command, "--k", "16", "--task", "regression"]) == 0
    assert "234 rows, 3 columns as 3 features" in capsys.readouterr().out
    assert main(["evaluate", str(again), str(part)]) == 0
    assert "RMSE" in capsys.readouterr().out.upper()


def test_the_command_tells_of_a_cache_in_one_line(tmp_path, capsys):
    from nearfield.cli import main

    folder, cache = written(tmp_path / "parts", *table(30)), tmp_path / "a_file"
    cache.write_text("")
    asked = ["fit", str(folder), "--target", "height", "--out", str(tmp_path / "m.nearfield"), "--cache", str(cache)]
    assert main(asked) == 2
    assert "nearfield: error: the cache folder cannot be written to (File exists)" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["a_file", "parts"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--groups", "x0"], "--groups is for tables that are read into memory"),
        (["--target", "x1"], "--target is given 2 times"),
        (["--task", "counts", "--exposure", "x1"], "--exposure is for tables that are read into memory"),
    ],
)
def test_the_command_says_what_goes_only_with_memory(tmp_path, capsys, more, message):
    from nearfield.cli import main

    folder = written(tmp_path / "parts", *table(30))
    assert main(["fit", str(folder), "--target", "height", "--out", str(tmp_path / "m.nearfield"), *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "m.nearfield").exists()


def test_whole_numbers_need_a_task(tmp_path, capsys):
    from nearfield.cli import main

    X, y = table(60)
    folder = written(tmp_path / "parts", X, (y > 0).astype(np.int64))
    assert main(["fit", str(folder), "--target", "height", "--out", str(tmp_path / "m.nearfield")]) == 2
    assert "say what they are by --task" in capsys.readouterr().err
