"""Tables as people have them: every dialect, every way to write numbers and dates, and files that were damaged."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import math
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from cli_runs import Run, failed, runner, short_training, write

from nearfield import workbook
from nearfield.cells import Cells, opened
from nearfield.dialect import pasted
from nearfield.forms import Form, count_odd, described, form_of, read_as
from nearfield.table import Dialect, TableError, column_names, count_rows, located, read_blocks, read_table
from nearfield.target import Target, target_from_json
from nearfield.target_cells import with_target


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def save(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def cells(*values: object) -> Cells:
    return opened(pa.chunked_array([pa.array(values)]))


def blocks(path: Path, rows: int = 2, **dialect: object) -> dict[str, list]:
    return pa.concat_tables(read_blocks(path, rows, dialect=Dialect(**dialect))).to_pydict()


# ---------------------------------------------------------------------------------------------------- dialects


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "t"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quoted", [False, True])
def test_the_content_decides_on_the_separator(tmp_path: Path, name: str, sep: str, quoted: bool) -> None:
    mark = '"' if quoted else ""
    rows = [["a", "b", "c"], ["1.5", "x", "2"], ["2.5", "y, z; or|so" if quoted else "y", "3"]]
    path = save(tmp_path / name, "".join(sep.join(f"{mark}{cell}{mark}" for cell in row) + "\n" for row in rows))
    assert read_table(path).to_pydict() == {"a": [1.5, 2.5], "b": ["x", rows[2][1]], "c": [2, 3]}
    assert blocks(path) == {"a": ["1.5", "2.5"], "b": ["x", rows[2][1]], "c": ["2", "3"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a;b\n1,5;2\n-,25;3\n", {"a": [1.5, -0.25], "b": [2, 3]}),
        ("a\tb\n1,5\t2\n", {"a": [1.5], "b": [2]}),
        ("a\tb\n1,234\t2\n", {"a": ["1,234"], "b": [2]}),  # may be a thousand: left to the form of the column
        ("a;b\n1,234;2\n", {"a": [1.234], "b": [2]}),
        ("a;b\n1,5;2.5\n", {"a": ["1,5"], "b": [2.5]}),
        ("price, EUR;weight, kg\n1,5;2,5\n", {"price, EUR": [1.5], "weight, kg": [2.5]}),
        ("a;b\n1.234,5;x\n12.345;y\n", {"a": ["1234.5", "12345"], "b": ["x", "y"]}),
        ("a;b\nL;x\n1,5;y\n", {"a": ["L", "1.5"], "b": ["x", "y"]}),
        ("a\n1\n2\n", {"a": [1, 2]}),
    ],
)
def test_decimal_commas(tmp_path: Path, text: str, expected: dict) -> None:
    path = save(tmp_path / "t.csv", text)
    assert read_table(path).to_pydict() == expected
    for name, column in expected.items():
        later = blocks(path)[name]
        assert (later if isinstance(column[0], str) else [float(cell) for cell in later]) == column


def test_what_is_given_is_not_found_out(tmp_path: Path) -> None:
    path = save(tmp_path / "t.csv", 'a,b\n"1,5",2;3\n')
    assert read_table(path, Dialect(decimal=",")).to_pydict() == {"a": [1.5], "b": ["2;3"]}
    with pytest.raises(TableError, match="Expected 1 columns, got 2"):
        column_names(path, Dialect(sep=";"))
    assert read_table(save(path, "a b\n1 2\n"), Dialect(sep=" ")).to_pydict() == {"a": [1], "b": [2]}
    assert read_table(save(path, "a;b\n1,5;2\n"), Dialect(decimal=".")).to_pydict() == {"a": ["1,5"], "b": [2]}
    for wrong, message in [
        (Dialect(sep="--"), "--sep"),
        (Dialect(decimal=";"), "--decimal"),
        (Dialect(encoding="klingon"), "--encoding"),
        (Dialect(encoding="utf-16"), "leave out --encoding"),
    ]:
        with pytest.raises(TableError, match=message):
            read_table(path, wrong)
    assert read_table(save(path, "a\tb\n1\t2\n"), Dialect(sep=r"\t")).column_names == ["a", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1"])
@pytest.mark.parametrize("packed", [False, True])
def test_encodings(tmp_path: Path, encoding: str, packed: bool) -> None:
    raw = "größe;stück\n1,5;é\n2,5;ü\n;\n".encode(encoding)
    path = save(tmp_path / ("t.csv.gz" if packed else "t.csv"), gzip.compress(raw) if packed else raw)
    assert read_table(path).to_pydict() == {"größe": [1.5, 2.5], "stück": ["é", "ü"]}
    assert blocks(path) == {"größe": ["1.5", "2.5"], "stück": ["é", "ü"]}


def test_gaps(tmp_path: Path) -> None:
    gaps = ["", "-", "?", ".", "n/a", "N/A", "#DIV/0!", "#N/A", "#VALUE!", "#REF!", "#NAME?", "null", "NULL", "None"]
    path = save(tmp_path / "t.csv", "a,b\n" + "".join(f"{gap},1\n" for gap in gaps) + "5,1\n")
    assert read_table(path).column("a").to_pylist() == [None] * len(gaps) + [5]
    column = opened(read_blocks(path).__next__().column("a"))
    assert np.isnan(read_as(Form("number"), column, "a", 1)).sum() == len(gaps)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_named_gaps(tmp_path: Path, suffix: str) -> None:
    path = write(
        tmp_path / f"t{suffix}", pa.table({"a": [1, -999, 3], "b": ["x", "nil", "z"], "c": [0.5, 1.5, -999.0]})
    )
    found = read_table(path, Dialect(na=("-999", "nil"))).to_pydict()
    assert found == {"a": [1, None, 3], "b": ["x", None, "z"], "c": [0.5, 1.5, None]}
    assert blocks(path, na=("-999", "nil"))["b"] == ["x", None, "z"]


def test_what_spreadsheets_leave_behind_vanishes(tmp_path: Path) -> None:
    path = save(tmp_path / "t.csv", "a;b;;\n1;2;;\n;;;\n3;4;;\n" + ";;;\n" * 30_000 + "\n\n")
    assert column_names(path) == ["a", "b"]
    assert read_table(path).to_pydict() == {"a": [1, None, 3], "b": [2, None, 4]}
    assert [block.num_rows for block in read_blocks(path, 2, ["b"])] == [2, 1]
    values = save(tmp_path / "u.csv", "a,,\n1,,7\n2,8,9\n")
    assert read_table(values).column_names == ["a", ""]  # the encoder tells that it is left out


# ------------------------------------------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("column", "pattern", "words", "values"),
    [
        (["12 %", "3%", "-"], "1234.5 %", "percentages", [12, 3, math.nan]),
        (["1'234.5", "2"], "1'234.5", "numbers with apostrophes between thousands", [1234.5, 2]),
        (["1,234.5", "999"], "1,234.5", "numbers with commas between thousands", [1234.5, 999]),
        (["1,234", "5,678"], "1,234.5", "numbers with commas between thousands", [1234, 5678]),
        (["1 234,5", "7"], "1 234,5", "numbers with a decimal comma and blanks between thousands", [1234.5, 7]),
        (["3.2 kg", "-4kg", ""], "1234.5 kg", "numbers in kg", [3.2, -4, math.nan]),
        (["$1,200", "-$5", "$-3.5"], "$1,234.5", "numbers in $ with commas between thousands", [1200, -5, -3.5]),
        (["1,5", "2,25"], "1234,5", "numbers with a decimal comma", [1.5, 2.25]),
        (["1.234", "5,5"], "1.234,5", "numbers with a decimal comma and points between thousands", [1234, 5.5]),
        (["−5,5", "1"], "1234,5", "numbers with a decimal comma", [-5.5, 1]),
        (["5 m/s", "6.5 m/s"], "1234.5 m/s", "numbers in m/s", [5, 6.5]),
        ([" 1 ", "2e3"], "", "numbers", [1, 2000]),
    ],
)
def test_numbers_that_are_written_otherwise(column: list[str], pattern: str, words: str, values: list) -> None:
    form = form_of(cells(*column), "Column 'c'")
    assert (form, described(form), form.sound) == (Form("number", pattern), words, True)
    np.testing.assert_array_equal(read_as(form, cells(*column), "Column 'c'", 1), values)
    assert Form(*json.loads(json.dumps([form.kind, form.pattern]))) == form


DAY = [20088, 19754]  # 2024-12-31, 2024-02-01


@pytest.mark.parametrize(
    ("column", "pattern"),
    [
        (["31.12.2024", "1.2.2024"], "31.12.2024"),
        (["12/31/2024", "02/01/2024"], "12/31/2024"),
        (["31/12/2024", "01/02/2024"], "31/12/2024"),
        (["31-12-2024", "01-02-2024"], "31-12-2024"),
        (["2024/12/31", "2024/2/1"], "2024/12/31"),
        (["2024-12-31", "2024-02-01"], ""),
    ],
)
def test_dates(column: list[str], pattern: str) -> None:
    form = form_of(cells(*column), "Column 'c'")
    assert form == Form("date", pattern)
    assert described(form) == (f"dates like {pattern}" if pattern else "dates")
    np.testing.assert_array_equal(read_as(form, cells(*column), "Column 'c'", 1), DAY)
    later = cells(datetime.date(2024, 12, 31), None)
    np.testing.assert_array_equal(read_as(form, later, "Column 'c'", 1), [DAY[0], math.nan])
    if "/" in pattern:
        timed = read_as(form, cells(f"{column[0]} 6:00", f"{column[1]} 06:00:00 PM"), "Column 'c'", 1)
        np.testing.assert_allclose(timed, [DAY[0] + 0.25, DAY[1] + 0.75])


def test_dates_that_may_be_either_are_asked_about() -> None:
    column = cells("03/04/2024", "01/02/2024")
    with pytest.raises(TableError, match=r"Column 'c' .*--dates dmy or --dates mdy"):
        form_of(column, "Column 'c'")
    assert form_of(column, "c", dates="dmy") == Form("date", "31/12/2024")
    assert form_of(column, "c", dates="mdy") == Form("date", "12/31/2024")
    assert form_of(cells("12/31/2024", "01/02/2024"), "c", dates="dmy") == Form("date", "12/31/2024")  # it tells
    assert form_of(cells("03.04.2024"), "c") == Form("date", "31.12.2024")  # points are never with the month first
    assert form_of(cells("03/03/2024"), "c").kind == "date"


@pytest.mark.parametrize(
    ("column", "form"),
    [
        (["room 1", "room 2"], Form("text")),
        (["3.2 kg", "5 g"], Form("text")),
        (["10:30", "11:30"], Form("text")),
        (["192.168.1.1", "10.0.0.1"], Form("text")),
        (["+", "-", "+"], Form("text", "+-")),
        (["a", "-"], Form("text")),
        (["true", "FALSE", ""], Form("flag")),
        ([True, None], Form("flag")),
        ([1.5], Form("number")),
        ([datetime.date(2024, 1, 1)], Form("date")),
        (["", "NA"], Form("text")),
    ],
)
def test_other_forms(column: list, form: Form) -> None:
    assert form_of(cells(*column), "c") == form
    assert form.sound
    assert len(read_as(form, cells(*column), "c", 1)) == len(column)


def test_a_minus_beside_a_plus_is_a_value() -> None:
    assert read_as(Form("text", "+-"), cells("-", "+", ""), "c", 1).to_pylist() == ["-", "+", "(missing)"]
    assert read_as(Form("text"), cells("-", "a"), "c", 1).to_pylist() == ["(missing)", "a"]
    table = pa.table({"y": ["+", "-", None]})
    assert with_target(table, "y")[1].tolist() == [1, 2]
    target, y, _ = Target("y", "auto").learned(table.slice(0, 2))
    assert (target.kind, y.tolist()) == ("sign", ["+", "-"])
    assert target_from_json(target.to_json()) == target
    assert target.values(pa.table({"y": ["-", ""]})).tolist() == ["-", None]


@pytest.mark.parametrize("form", [Form("nothing"), Form("number", "a"), Form("date", "31:12:2024"), Form("text", "x")])
def test_unsound_forms(form: Form) -> None:
    assert not form.sound


def test_one_odd_cell_is_pointed_at() -> None:
    column = cells("1", "2", "abc", "4")
    with pytest.raises(
        TableError, match=r"Column 'c' has 'abc' in row 3; a number .*--drop 'c d'.*--odd-cells"
    ) as told:
        form_of(column, "Column 'c'", name="c d")
    assert told.value.row == 3
    form = form_of(column, "c", odd="missing")
    np.testing.assert_array_equal(read_as(form, column, "c", 1, odd="missing"), [1, 2, math.nan, 4])
    assert count_odd(form, column) == 1
    assert form_of(column, "c", odd="text") == Form("text")
    for odd in (cells("1 kg", "2 kg", "three"), cells("31.12.2024", "1.2.2024", "30.2.2024"), cells("1,5", "2,5", "x")):
        with pytest.raises(TableError, match="in row 3"):
            form_of(odd, "Column 'c'")
        form = form_of(odd, "c", odd="missing")
        assert np.isnan(read_as(form, odd, "c", 1, odd="missing")).tolist() == [False, False, True]
    iso = cells("2024-12-31", "2024-02-01", "soon")
    np.testing.assert_array_equal(read_as(Form("date"), iso, "c", 1, odd="missing"), [*DAY, math.nan])


@pytest.mark.parametrize(
    ("form", "later", "message"),
    [
        (Form("number", "1234.5 kg"), ["3 kg", "4"], "Column 'c' has '4' in row 12; a number like 1234.5 kg"),
        (Form("number", "1234.5 kg"), [3.0], "numbers in kg are expected, as in the training table"),
        (Form("number", "1234,5"), ["1,5", "1.5", "1.234"], "'1.234' in row 13"),
        (Form("number", "1234,5"), ["1e999"], "infinite"),
        (Form("date", "31.12.2024"), ["31.12.2024", "12/31/2024"], "'12/31/2024' in row 12; a date like 31.12.2024"),
        (Form("date", "31.12.2024"), [1.0], "dates are expected"),
        (Form("number"), ["1,5"], "'1,5' in row 11"),
        (Form("flag"), ["yes"], "'yes' in row 11; true or false"),
    ],
)
def test_later_cells_that_do_not_fit(form: Form, later: list, message: str) -> None:
    with pytest.raises(TableError, match=message):
        read_as(form, cells(*later), "Column 'c'", 11)


# ---------------------------------------------------------------------------------------------------- the target


def test_a_target_may_be_written_otherwise() -> None:
    target, y, _ = Target("y", "auto").learned(pa.table({"y": ["1 %", "2,5 %", "3 %"]}))
    assert (target.task, target.pattern, y.tolist()) == ("regression", "1234,5 %", [1, 2.5, 3])
    again = target_from_json(json.loads(json.dumps(target.to_json())))
    assert again == target
    assert again.values(pa.table({"y": ["4,5 %"]})).tolist() == [4.5]
    with pytest.raises(ValueError, match="damaged"):
        target_from_json(target.to_json() | {"pattern": "odd"})


def test_rows_without_a_target(run: Run, tmp_path: Path) -> None:
    text = "x,y\n" + "".join(f"{i},{'' if i % 5 == 2 else i * i}\n" for i in range(40))
    table, out = save(tmp_path / "t.csv", text), tmp_path / "m.nearfield"
    with short_training():
        result = run("fit", table, "--target", "y", "--out", out)
    assert result.code == 0
    assert "note: 8 of 40 rows have no target and are left out." in result.err
    assert result.out.startswith("32 rows")
    odd = save(tmp_path / "odd.csv", text.replace("39,1521", '39,"inf"').replace("\n20,", "\n\n20,"))
    failed(run("fit", odd, "--target", "y", "--out", out), "first in row 40", "Row 40 is line 42 of the file")
    failed(run("fit", save(table, "x,y\n1,\n2,?\n"), "--target", "y", "--out", out), "missing in all 2 rows")


def test_hints_can_be_pasted() -> None:
    assert pasted("--drop", "a b") == "--drop 'a b'"


def test_rows_as_the_file_counts_them(tmp_path: Path) -> None:
    path = save(tmp_path / "t.csv", 'a,b\n"1\n\n",2\n\n3,4\n5,6\n')

    def point(at: Path) -> str:
        with pytest.raises(TableError) as told, located(at):
            raise TableError("Something in row 3.", 3)
        return str(told.value)

    assert point(path) == "Something in row 3. (Row 3 is line 7 of the file.)"
    assert point(write(tmp_path / "t.parquet", pa.table({"a": [1, 2, 3]}))) == "Something in row 3."
    with pytest.raises(TableError, match=r"in row 7\.") as told, located(path, rows=np.array([1, 2, 7])):
        raise TableError("Something in row 3.", 3)
    assert "line" not in str(told.value)


# ------------------------------------------------------------------------------------------------------ workbooks


def sheet(path: Path, rows: list[list[object]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.create_sheet("another").append(["nothing"])
    book.save(path)
    return path


def test_a_workbook_is_a_table(tmp_path: Path) -> None:
    day = datetime.datetime(2024, 12, 31, 6)
    rows = [["x", "day", "c", "ok", "n", None], [1.5, day, "a", True, 1, None], [None, None, "#DIV/0!", None, None]]
    path = sheet(tmp_path / "t.xlsx", [*rows, [2, day, "7", False, 3], ["", None], [None]])
    table = read_table(path)
    assert table.to_pydict() == {
        "x": [1.5, None, 2.0],
        "day": [day, None, day],
        "c": ["a", "#DIV/0!", "7"],
        "ok": [True, None, False],
        "n": [1, None, 3],
    }
    assert column_names(path) == table.column_names
    assert count_rows(path) is None
    later = pa.concat_tables(read_blocks(path, 2, ["n", "day", "ok"]))
    assert later.column_names == ["n", "day", "ok"]
    for name in later.column_names:
        form = form_of(opened(table.column(name)), name)
        np.testing.assert_array_equal(
            read_as(form, opened(later.column(name)), name, 1), read_as(form, opened(table.column(name)), name, 1)
        )
    with pytest.raises(TableError, match="Row 2 is row 3 of the sheet"), located(path):
        raise TableError("Odd in row 2.", 2)


def test_workbooks_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sheet(tmp_path / "t.xlsx", [["x"], [1]])
    whole = path.read_bytes()
    with pytest.raises(TableError, match="cannot be read as an Excel workbook"):
        read_table(save(tmp_path / "half.xlsx", whole[: len(whole) // 2]))
    with pytest.raises(TableError, match=r"no rows|no columns"):
        read_table(sheet(tmp_path / "empty.xlsx", []))
    monkeypatch.setattr(workbook, "find_spec", lambda _: None)
    with pytest.raises(TableError, match=r"needs openpyxl: pip install 'nearfield\[excel\]'"):
        read_table(path)


# -------------------------------------------------------------------------------------------------- standard input


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    raw = write(tmp_path / f"t{suffix}", pa.table({"x": np.arange(30.0), "y": np.arange(30.0) ** 2})).read_bytes()

    def piped(*arguments: object) -> object:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
        return run(*arguments)

    out = tmp_path / "m.nearfield"
    with short_training():
        assert piped("fit", "-", "--target", "y", "--out", out, "--quiet").code == 0
    result = piped("predict", out, "-")
    assert (result.code, len(result.out.splitlines())) == (0, 31)
    raw = b""
    failed(piped("predict", out, "-"), "standard input cannot be read: Empty")
    assert os.listdir(scratch) == []


# ------------------------------------------------------------------------------------------------- damaged files


def sound_files(folder: Path) -> list[bytes]:
    """A CSV file in three dialects, and a Parquet file."""
    day = datetime.date(2024, 1, 1)
    columns = {
        "x": [i / 7 for i in range(60)],
        "unit": [f"{i} kg" for i in range(60)],
        "day": [day + datetime.timedelta(i) for i in range(60)],
        "c": [f'{"äöü"[i % 3]} "q", {i % 4}' for i in range(60)],
        "y": list(range(60)),
    }
    table = pa.table(columns)
    text = write(folder / "sound.csv", table).read_bytes()
    packed = write(folder / "sound.parquet", table).read_bytes()
    return [text, text.decode().replace(",", ";").replace(".", ",").encode("utf-16"), gzip.compress(text), packed]


def damaged(raw: bytes, rng: np.random.Generator) -> bytes:
    """The same with bytes flipped, cut off, taken out or put in twice, or with other separators."""
    start, stop = sorted(rng.integers(0, len(raw), 2).tolist())
    match int(rng.integers(7)):
        case 0:
            flipped = bytearray(raw)
            for place in rng.integers(0, len(raw), int(rng.integers(1, 30))):
                flipped[place] ^= 1 << int(rng.integers(8))
            return bytes(flipped)
        case 1:
            return raw[:stop]
        case 2:
            return raw[:start] + raw[stop:]
        case 3:
            return raw[:stop] + raw[start:]
        case 4:
            return raw.replace(b",", [b";", b"\t", b"|", b",,", b"\n", b'"'][int(rng.integers(6))])
        case 5:
            return raw[:start] + rng.bytes(int(rng.integers(1, 50))) + raw[start:]
        case _:
            return raw[:4] + rng.bytes(int(rng.integers(0, 300)))


def use(path: Path) -> None:
    """All that is done to a table before a model sees it."""
    names = column_names(path)
    table = read_table(path)
    for place in range(table.num_columns):
        column = opened(table.column(place))
        form = form_of(column, "Column", odd="missing", dates="dmy")
        assert form.sound
        read_as(form, column, "Column", 1, odd="missing")
    for block in read_blocks(path, 7, names[:2]):
        assert 0 < block.num_rows <= 7


ODD_FILES = [b"", b"\n", b"\n\n\n", b"a", b"a,b", b"a,b\n", b",\n,\n", b'"', b'a,"b\n1,2', b"\xff\xfe", b"\xef\xbb\xbf"]
ODD_FILES += [b"PAR1", b"PK\3\4", b"\x1f\x8b", b"\0" * 100, b"a,b\n1,\xff\n", b"a,a\n1,2\n", b"a,b\n1\n", b"\r\r\r"]
ODD_FILES += [b";;;\n;;;", b"a;b\n;\n;\n"]


def test_damaged_files_are_errors_that_say_so(tmp_path: Path) -> None:
    """Nothing but TableError, within a moment, whatever is in the file."""
    rng = np.random.default_rng(0)
    sound = sound_files(tmp_path)
    many = [*ODD_FILES, *(damaged(sound[i % len(sound)], rng) for i in range(300))]
    messages = []
    start = time.perf_counter()
    for i, raw in enumerate(many):
        path = save(tmp_path / f"t{['.csv', '.tsv', '', '.parquet'][i % 4]}", raw)
        try:
            use(path)
        except TableError as error:
            messages.append(str(error))
    assert time.perf_counter() - start < 20
    assert 100 < len(messages) < len(many)
    assert not any("\n" in message.strip() for message in messages)


@pytest.mark.parametrize("number", range(6))
def test_damaged_files_on_the_command_line(run: Run, tmp_path: Path, number: int) -> None:
    raw = [b"", b"a,b\n", b"\0\1\2\3" * 50, b"PAR1" + b"\0" * 50, b"a,y\n1,2,3\n1,2\n", b"\x1f\x8b" + b"x" * 40][number]
    path = save(tmp_path / "t.csv", raw)
    result = run("fit", path, "--target", "y", "--out", tmp_path / "m.nearfield")
    failed(result, "t.csv")
    assert list(tmp_path.iterdir()) == [path]
