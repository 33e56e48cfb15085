"""Tables in and out, and what a model remembers of its training table."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
from table_reading import description, fitted, from_description

from nearfield.column_values import TableError, TableWarning
from nearfield.encoding import MAX_LEVELS, TableEncoder
from nearfield.reading import TableReader, training_table
from nearfield.rules import Tally
from nearfield.table import (
    Dialect,
    check_writable,
    column_names,
    count_rows,
    read_blocks,
    read_table,
    write_blocks,
)


def save(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def some_rows(n: int = 1000) -> pa.Table:
    rng = np.random.default_rng(0)
    text = [None if i % 11 == 0 else "abc"[i % 3] for i in range(n)]
    x = pa.array([None if i % 7 == 0 else float(v) for i, v in enumerate(rng.normal(size=n))])
    day = pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(days=i % 50) for i in range(n)])
    columns = {"x": x, "flag": pa.array(rng.random(n) < 0.5), "text": pa.array(text), "day": day}
    return pa.table(columns | {"i": pa.array(range(n)), "y": pa.array(rng.normal(size=n))})


def write(path: Path, table: pa.Table) -> Path:
    with write_blocks(path) as append:
        append(table)
    return path


# ---------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".CSV"])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    table = some_rows()
    path = write(tmp_path / f"t{suffix}", table)
    back = read_table(path)
    assert column_names(path) == back.column_names == table.column_names
    encoder = fitted(table, "y")
    np.testing.assert_array_equal(encoder.transform(back), encoder.transform(table))
    np.testing.assert_array_equal(encoder.target_values(back), encoder.target_values(table))


@pytest.mark.parametrize("rows", [1, 7, 500, 10_000])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_blocks_equal_the_whole(tmp_path: Path, rows: int, suffix: str) -> None:
    table = some_rows()
    path = write(tmp_path / f"t{suffix}", table)
    blocks = list(read_blocks(path, rows))
    assert [b.num_rows for b in blocks[:-1]] == [rows] * (len(blocks) - 1)
    assert sum(b.num_rows for b in blocks) == 1000
    encoder = fitted(table, "y")
    np.testing.assert_array_equal(np.vstack([encoder.transform(b) for b in blocks]), encoder.transform(table))


def test_late_rows_do_not_break_a_stream(tmp_path: Path) -> None:
    """Beyond pyarrow's first block a column of whole numbers becomes fractions, and one of blanks becomes text."""
    n = 1_700_000
    path = save(tmp_path / "t.csv", "x,c,y\n" + "1,,2\n" * n + "1.5,red,2\n0.5,blue,2\n")
    assert path.stat().st_size > 1 << 23
    encoder = fitted(pa.table({"x": [1.0, 2.0], "c": ["red", "blue"], "y": [1.0, 2.0]}), "y")
    with pytest.warns(TableWarning):
        last = [encoder.transform(block) for block in read_blocks(path, 100_000)][-1]
    np.testing.assert_array_equal(last[-2:], [[1.5, 0, 1], [0.5, 1, 0]])


def test_a_stream_longer_than_the_parsers_block(tmp_path: Path) -> None:
    n = 60_000
    path = save(tmp_path / "t.csv", "a,b\n" + "".join(f"{i},{'z' * 200}\n" for i in range(n)))
    assert path.stat().st_size > 1 << 23
    blocks = list(read_blocks(path, 1000, ["a"]))
    assert blocks[0].column_names == ["a"]
    assert [v for b in blocks for v in b.column("a").to_pylist()] == [str(i) for i in range(n)]


def test_quoted_cells_with_commas_and_line_ends(tmp_path: Path) -> None:
    path = save(tmp_path / "t.csv", '\ufeffc,y\n"a,\nb",1\n"say ""x""",2\n')
    assert read_table(path).column("c").to_pylist() == ["a,\nb", 'say "x"']
    assert next(read_blocks(path)).column("c").to_pylist() == ["a,\nb", 'say "x"']


def test_row_count_is_known_for_parquet_only(tmp_path: Path) -> None:
    assert count_rows(write(tmp_path / "t.parquet", some_rows(20))) == 20
    assert count_rows(write(tmp_path / "t.csv", some_rows(20))) is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "t.csv cannot be read: Empty CSV file"),
        ("t.csv", "x,y\n", "t.csv has a header but no rows"),
        ("t.csv", "x,x,y\n1,2,3\n", "t.csv has 1 column names more than once: 'x'"),
        ("t.csv", "x,y\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
        ("t.parquet", "x,y\n1,2\n", "t.parquet cannot be read"),
        ("t.csv.gz", "x,y\n1,2\n", "t.csv.gz cannot be read"),
        ("t.xlsx", "x", "t.xlsx cannot be read: it is not an Excel workbook"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = save(tmp_path / name, text)
    with pytest.raises(TableError, match=message):
        read_table(path)
    with pytest.raises(TableError, match=message):
        list(read_blocks(path))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path / "d.csv")
    with pytest.raises(TableError, match="Blocks of 0 rows"):
        list(read_blocks(tmp_path / "none.csv", 0))


def test_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("c,y\ncaf\xe9,1\n".encode("latin-1"))
    assert read_table(path).column("c").to_pylist() == ["caf\xe9"]
    assert next(read_blocks(path)).column("c").to_pylist() == ["caf\xe9"]
    late = tmp_path / "late.csv"
    late.write_bytes(b"c,y\n" + b"cafe,1\n" * 200_000 + b"caf\xe9,1\n")
    assert read_table(late).column("c")[-1].as_py() == "caf\xe9"  # found out when all of it has been read
    with pytest.raises(TableError, match="--encoding latin-1"):
        list(read_blocks(late))
    assert sum(block.num_rows for block in read_blocks(late, dialect=Dialect(encoding="latin-1"))) == 200_001


# ---------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_blocks_are_appended_under_one_header(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    table = pa.table({"id": ["007", 'a "b", c'], "mean": [0.1 + 0.2, 1e-300]})
    with write_blocks(path) as append:
        append(table)
        append(table)
    back = pa.concat_tables(read_blocks(path))
    assert back.column("id").to_pylist() == ["007", 'a "b", c'] * 2
    assert [float(v) for v in back.column("mean").to_pylist()] == [0.1 + 0.2, 1e-300] * 2  # every digit
    if suffix == ".csv":
        assert path.read_text().startswith("id,mean\n")


def test_gzipped_output_is_gzip(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv.gz", pa.table({"a": [1]}))
    assert gzip.decompress(path.read_bytes()) == b"a\n1\n"


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_text("old")

    def fail_half_way() -> None:
        with write_blocks(path) as append:
            append(pa.table({"a": [1]}))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_and_the_mode_survive(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write(link, pa.table({"a": [1]}))
    assert link.is_symlink()
    assert real.read_text() == "a\n1\n"
    assert real.stat().st_mode & 0o777 == 0o640


def test_check_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "t.csv")
    check_writable(tmp_path / "m.nearfield", tabular=False)
    assert list(tmp_path.iterdir()) == []
    for path, message in [
        (tmp_path / "t.xls", "unknown kind"),
        (tmp_path / "none" / "t.csv", "none' does not exist: create it first"),
    ]:
        with pytest.raises(TableError, match=message):
            check_writable(path)
    with pytest.raises(TableError, match="is a folder"):
        check_writable(tmp_path, tabular=False)
    with pytest.raises(TableError, match="not a regular file"):
        check_writable("/dev/null", tabular=False)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # a read-only folder, also for the superuser
    with pytest.raises(TableError, match=r"t.csv: cannot save a table here, .* the folder .* \(Permission denied\)\."):
        check_writable(tmp_path / "t.csv")


def test_a_write_protected_table_is_refused_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "t.csv", "old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    with pytest.raises(TableError, match="write-protected"):
        check_writable(path)
    with pytest.raises(PermissionError, match="cannot save a table here"):
        write(path, pa.table({"a": [1]}))
    assert path.read_text() == "old"


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_a_full_disk_names_the_table(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"t{suffix}", "old")
    script = f"""
import os, resource, pyarrow as pa
from nearfield.table import write_blocks
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    with write_blocks({str(path)!r}) as append:
        for _ in range(4):
            append(pa.table({{"a": [os.urandom(100).hex() for _ in range(1000)]}}))
except OSError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "could not save the table, what was there before is unchanged (File too large)" in result.stdout
    assert result.stdout.count("could not save") == 1
    assert str(path) in result.stdout
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------------------------------------------ fitting


def encoded(column: pa.Array, later: pa.Array | None = None) -> np.ndarray:
    """What a column (or a later one) becomes in a model fitted to it."""
    encoder = fitted(pa.table({"c": column, "y": np.arange(float(len(column)))}), "y")
    return encoder.transform(pa.table({"c": column if later is None else later}))


def test_numbers_of_every_kind_are_kept() -> None:
    for column in [
        pa.array([1, 2, 4]),
        pa.array([1, 2, 4], pa.uint8()),
        pa.array([1, 2, 4], pa.float32()),
        pa.array([decimal.Decimal("1.00"), decimal.Decimal("2.00"), decimal.Decimal("4.00")]),
    ]:
        np.testing.assert_array_equal(encoded(column), [[1], [2], [4]])
    np.testing.assert_array_equal(encoded(pa.array([True, False, None])), [[1, 0], [0, 0], [0.5, 1]])


def test_missing_numbers_are_the_median_and_marked() -> None:
    column = pa.array([1.0, None, 3.0, float("nan"), 10.0])
    np.testing.assert_array_equal(encoded(column), [[1, 0], [3, 1], [3, 0], [3, 1], [10, 0]])
    encoder = fitted(pa.table({"c": column, "y": np.arange(5.0)}), "y")
    assert encoder.encoder.feature_names == ["c", "c_missing"]


def test_missing_only_later_is_the_median_and_warned_about() -> None:
    with pytest.warns(TableWarning, match="2 values of column 'c', complete in training, are missing"):
        out = encoded(pa.array([1.0, 2.0, 9.0]), pa.array(["", "5", "NA"]))
    np.testing.assert_array_equal(out, [[2], [5], [2]])


def test_text_is_one_hot_in_sorted_order() -> None:
    column = pa.array(["b", "a", None, "", "NA"])
    np.testing.assert_array_equal(encoded(column), [[0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]])
    encoder = fitted(pa.table({"c": column, "y": np.arange(5.0)}), "y")
    assert encoder.encoder.feature_names == ["c=(missing)", "c=a", "c=b"]
    np.testing.assert_array_equal(encoded(pa.array(["b", "a"]).dictionary_encode()), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(encoded(pa.array([2, 1]).dictionary_encode()), [[0, 1], [1, 0]])


def test_levels_not_seen_are_zeros_and_counted_once_for_all_blocks() -> None:
    encoder = fitted(pa.table({"c": ["a", "b"], "y": [1.0, 2.0]}), "y")
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            out = encoder.transform(pa.table({"c": ["a", "z", None]}), tally=tally)
    np.testing.assert_array_equal(out, [[1, 0], [0, 0], [0, 0]])
    with pytest.warns(TableWarning, match="6 values of column 'c' are levels not seen") as caught:
        tally.warn()
    assert len(caught) == 1


def test_dates_are_days() -> None:
    dates = [datetime.date(1970, 1, 2), datetime.date(1970, 1, 9)]
    np.testing.assert_array_equal(encoded(pa.array(dates)), [[1], [8]])
    noon = pa.array(["1970-01-02 12:00:00", "1970-01-03T06:00:00.000000001"])
    np.testing.assert_array_equal(encoded(pa.array(dates), noon), [[1.5], [2.25]])
    zoned = pa.array(["1970-01-02T12:00:00+12:00", "1970-01-03T06:00:00Z"])
    np.testing.assert_array_equal(encoded(pa.array(dates), zoned), [[1], [2.25]])
    stamps = pa.array([datetime.datetime(1970, 1, 2, 12), None], pa.timestamp("ns"))
    np.testing.assert_array_equal(encoded(stamps), [[1.5, 0], [1.5, 1]])
    with pytest.raises(TableError, match="Column 'c' has 'soon' in row 2; a date like"):
        encoded(pa.array(dates), pa.array(["2020-01-01", "soon"]))
    with pytest.raises(TableError, match="mixes times with and without a zone"):
        encoded(pa.array(dates), pa.array(["2020-01-01", "2020-01-01T00:00:00Z"]))


def test_many_levels_are_means_of_the_target_and_as_many_as_rows_are_left_out() -> None:
    names = pa.array([f"name {i % (MAX_LEVELS + 1)}" for i in range(4 * MAX_LEVELS)])
    assert encoded(names).shape == (4 * MAX_LEVELS, 2)
    assert encoded(names[:MAX_LEVELS]).shape == (64, 64)
    table = pa.table({"c": names[: MAX_LEVELS + 1], "x": np.arange(MAX_LEVELS + 1.0), "y": np.ones(MAX_LEVELS + 1)})
    with pytest.warns(TableWarning, match="as many different values as rows.*'c'"):
        assert fitted(table, "y").encoder.feature_names == ["x"]


def test_text_among_numbers_is_pointed_at() -> None:
    cells = [str(i / 7) for i in range(200)]
    cells[16], cells[90], cells[91] = "abc", "1;5", "- -"
    table = pa.table({"c": cells, "y": np.arange(200.0)})
    with pytest.raises(
        TableError, match=r"Column 'c' has 'abc' in row 17 \(and 2 more below it\); a number is expected"
    ):
        fitted(table, "y")
    parts = training_table(table, "y", odd="missing")
    assert TableEncoder().fit(parts.columns).feature_names == ["c", "c_missing"]
    assert parts.columns.odd == {"c": 3}


def test_columns_without_a_name_or_a_value_are_left_out(tmp_path: Path) -> None:
    table = read_table(save(tmp_path / "t.csv", ",x,void,blank,y\n0,1,,NA,2\n1,2,,,3\n"))
    with pytest.warns(TableWarning) as caught:
        encoder = fitted(table, "y")
    assert encoder.column_names == ["x"]
    said = " ".join(str(w.message) for w in caught)
    assert "without a name" in said
    assert "'void', 'blank'" in said


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ({"x": [1.0], "temp": [1.0]}, {"target": "tmp"}, "target is not in the table: 'tmp' .nearest: 'temp'"),
        ({"x": [1.0], "Y": [1.0]}, {"target": "y"}, "'y' .nearest: 'Y'"),
        ({"x": [1.0], "y": [1.0]}, {"target": "y", "drop": ["X"]}, "to drop is not in the table: 'X' .nearest: 'x'"),
        ({"x": [1.0], "y": [1.0]}, {"target": "y", "drop": ["y"]}, "'y' is the target; it cannot be dropped"),
        ({"y": [1.0]}, {"target": "y"}, "no columns to predict 'y' from"),
        ({"x": [1.0], "y": [1.0]}, {"target": "y", "drop": ["x"]}, "no columns to predict 'y' from"),
        ({"x": [1.0, 2.0], "y": ["red", "blue"]}, {"target": "y"}, "The target 'y' has 'red' in row 1 .and 1 more"),
        ({"x": [1.0, 2.0], "y": [True, False]}, {"target": "y"}, "The target 'y' has type bool; numbers"),
        ({"x": [1.0, 2.0, 3.0], "y": [1.0, None, None]}, {"target": "y"}, "missing in 2 of 3 rows, first in row 2"),
        (
            {"x": [1.0, 2.0], "y": [1.0, np.inf]},
            {"target": "y"},
            "The target 'y' has 1 infinite values, first in row 2",
        ),
        (
            {"x": [np.inf, -np.inf], "y": [1.0, 2.0]},
            {"target": "y"},
            "Column 'x' has 2 infinite values, first in row 1",
        ),
        ({"x": [datetime.time(1)], "y": [1.0]}, {"target": "y"}, "Column 'x' has type time64.*--drop x"),
        ({"x": [[1.0]], "y": [1.0]}, {"target": "y"}, "Column 'x' has type list"),
        ({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}, {"target": "y"}, "no rows"),
    ],
)
def test_bad_training_tables(columns: dict, arguments: dict, message: str) -> None:
    with pytest.raises(TableError, match=message):
        fitted(pa.table(columns), **arguments)


# ---------------------------------------------------------------------------------------------------- later tables


@pytest.fixture
def encoder() -> TableReader:
    return fitted(some_rows(), "y", drop=["i"])


def test_order_and_further_columns_do_not_matter(encoder: TableReader) -> None:
    table = some_rows(50)
    shuffled = table.select(["i", "y", "text", "day", "x", "flag"])
    np.testing.assert_array_equal(encoder.transform(shuffled), encoder.transform(table))
    batch = shuffled.combine_chunks().to_batches()[0]
    np.testing.assert_array_equal(encoder.transform(batch), encoder.transform(table))


def test_missing_columns_are_listed_with_the_nearest(encoder: TableReader) -> None:
    table = some_rows(5).rename_columns(["x", "flags", "t", "day", "i", "y"])
    with pytest.raises(TableError, match=r"not in the table: 'flag' \(nearest: 'flags'\), 'text'\. Its 6 columns"):
        encoder.transform(table)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("x", ["1", "abc", "d"], r"Column 'x' has 'abc' in row 102 \(and 1 more below it\); a number is expected"),
        ("x", ["1", "2", "inf"], "Column 'x' has 1 infinite values, first in row 103"),
        ("x", ["1", "2", "1e999"], "Column 'x' has 1 infinite values"),
        ("flag", ["true", "0", "maybe"], "Column 'flag' has 'maybe' in row 103; true or false"),
        ("x", [datetime.date(2020, 1, 1)] * 3, "Column 'x' has type date32"),
        ("day", [1.0, 2.0, 3.0], "Column 'day' has type double; dates are expected"),
        ("text", [[1], [2], [3]], "Column 'text' has type list.*text is expected"),
    ],
)
def test_bad_values_are_named_by_column_and_row(encoder: TableReader, name: str, values: list, message: str) -> None:
    table = some_rows(3)
    table = table.set_column(table.column_names.index(name), name, pa.array(values))
    with pytest.raises(TableError, match=message):
        encoder.transform(table, first_row=101)


def test_numbers_in_text_mean_what_they_mean_in_training(tmp_path: Path) -> None:
    """The inference of pyarrow at fit and our reading of text at predict must agree on every spelling."""
    cells = ["1", " 2 ", "-3.5", "+4", ".5", "6.", "7e3", "-8E-2", "", "NaN", "0.1", "123456789012345678"]
    path = save(tmp_path / "t.csv", "c,y\n" + "".join(f"{cell},1\n" for cell in cells))
    table = read_table(path)
    encoder = fitted(table, "y")
    assert encoder.encoder.rules_[0].kind == "number"
    streamed = np.vstack([encoder.transform(block) for block in read_blocks(path, 5)])
    np.testing.assert_array_equal(streamed, encoder.transform(table))


# ------------------------------------------------------------------------------------------------------------ JSON


def test_json_gives_the_same_encoder(encoder: TableReader) -> None:
    again = from_description(json.loads(json.dumps(description(encoder), allow_nan=False)))
    assert description(again) == description(encoder)
    np.testing.assert_array_equal(again.transform(some_rows(30)), encoder.transform(some_rows(30)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 3),
        ("kind", "code"),
        ("median", float("inf")),
        ("median", "1"),
        ("indicator", 1),
        ("levels", ["a"]),  # a number has none
        ("levels", None),
        ("form", "no such way"),
    ],
)
def test_a_damaged_column_is_refused(encoder: TableReader, key: str, value: object) -> None:
    data = description(encoder)
    data["columns"][0][key] = value
    with pytest.raises(ValueError, match="description of"):
        from_description(data)


def test_a_damaged_description_is_refused(encoder: TableReader) -> None:
    good = description(encoder)
    twice = [*good["columns"], good["columns"][0]]
    no_levels = [{**good["columns"][2], "levels": []}]
    for data in (
        None,
        [],
        {},
        good | {"format": 3},
        good | {"target": 1},
        good | {"columns": []},
        good | {"columns": [1]},
    ):
        with pytest.raises(ValueError, match="description of"):
            from_description(data)
    for columns in (twice, no_levels):
        with pytest.raises(ValueError, match="description of"):
            from_description(good | {"columns": columns})


def test_a_text_column_is_trimmed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features and target, whether they are text, numbers written as text, or a mixture."""
    calls: Counter[str] = Counter()
    for name in ("utf8_trim_whitespace", "match_substring_regex", "is_in"):
        own = getattr(pc, name)

        def counted(*args: object, _own: Callable = own, _name: str = name, **options: object) -> object:
            calls[_name] += 1
            return _own(*args, **options)

        monkeypatch.setattr(pc, name, counted)
    columns = {"text": ["a", " b", "NA"], "odd": ["1", "2", "x"], "empty": ["", "NA", None]}
    table = pa.table({**columns, "y": ["1", "2.5", " 3 "]})
    parts, encoder = training_table(table, "y", task="auto", odd="text"), TableEncoder()
    with pytest.warns(TableWarning):
        x = encoder.learn(parts.columns)
    y = parts.y
    assert encoder.feature_names == ["text=(missing)", "text=a", "text=b", "odd=1", "odd=2", "odd=x"]
    assert (x.sum(axis=1).tolist(), y.tolist()) == ([2.0, 2.0, 2.0], [1.0, 2.5, 3.0])
    assert calls["utf8_trim_whitespace"] == calls["is_in"] == 4
    calls.clear()
    labels = pa.table({"x": [1.0, 2.0, 3.0], "y": ["a", "b ", "a"]})
    assert training_table(labels, "y", task="auto").y.tolist() == ["a", "b", "a"]
    assert calls["utf8_trim_whitespace"] == calls["is_in"] == 1
