"""Excel workbooks: cells as they are shown, and what is no workbook."""

import datetime
import io
import re
import zipfile

import openpyxl
import polars as pl
import pytest
from openpyxl.styles import Font

from data_pipeline.files.tables.table import read_table, write_table
from data_pipeline.process.errors import BadInput


@pytest.fixture
def book(tmp_path):
    """Writes rows of values into a workbook: a value, or (value, number format)."""

    def write(*rows, name="list.xlsx", **sheets):
        workbook = openpyxl.Workbook()
        for title, content in {"terms": rows, **sheets}.items():
            sheet = workbook.create_sheet(title)
            for number, row in enumerate(content, start=1):
                for column, value in enumerate(row, start=1):
                    cell = sheet.cell(number, column)
                    if isinstance(value, tuple):
                        cell.value, cell.number_format = value
                    else:
                        cell.value = value
        workbook.remove(workbook.worksheets[0])
        workbook.save(tmp_path / name)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    "value, shown",
    [
        ("0123", "0123"),
        (123, "123"),
        (123.0, "123"),
        ((123, "00000"), "00123"),
        ((250, "000.00"), "250.00"),
        ((-5, "000"), "-005"),
        ((7.6, "0"), "8"),
        ((0.25, "0%"), "0.25"),
        (0.1 + 0.2, "0.3"),
        (1e20, "100000000000000000000"),
        (None, ""),
        (True, "TRUE"),
        (datetime.date(2024, 1, 31), "2024-01-31"),
        (datetime.datetime(2024, 1, 31, 10, 5), "2024-01-31 10:05:00"),
        (datetime.time(10, 5), "10:05:00"),
        ("a\nb", "a\nb"),
        (" a ", " a "),
    ],
)
def test_cells_are_read_as_they_are_shown(book, value, shown):
    table = read_table(book(["code", "x"], [value, "x"]))
    assert table.frame["code"].to_list() == [shown]


def test_rows_have_their_numbers_and_empty_ones_are_left_out(book):
    path = book(["id", "term", None], [], [1, "a"], [None, None], [2, None], [(None, "0.00")])
    table = read_table(path)
    assert table.frame.columns == ["id", "term"]
    assert table.frame.rows() == [("1", "a"), ("2", "")] and table.lines == [3, 5]


def edit(path, part, change):
    """Changes the bytes of one part of a workbook."""
    content = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(content, "w") as new:
        for name in old.namelist():
            before = old.read(name)
            after = change(before) if name == part else before
            assert name != part or before != after
            new.writestr(name, after)
    path.write_bytes(content.getvalue())


def test_what_a_sheet_says_of_its_size_is_not_believed(book):
    path = book(["id"], ["1"])
    edit(path, "xl/worksheets/sheet1.xml", lambda text: text.replace(b'"A1:A2"', b'"A1:A1"'))
    assert read_table(path).frame.rows() == [("1",)]


def test_what_other_programs_leave_out_of_styles_warns_nobody(book):
    path = book(["id"], ["1"])
    edit(path, "xl/styles.xml", lambda text: re.sub(b"<cellStyles.*</cellStyles>", b"", text))
    assert read_table(path).frame.rows() == [("1",)]


def test_the_first_sheet_is_read_or_one_by_name(book, capsys):
    path = book(["a"], ["1"], more=[["b"], ["2"]])
    assert read_table(path).frame.columns == ["a"]
    assert "reading the sheet 'terms', the first of terms, more" in capsys.readouterr().err
    assert read_table(path, sheet="more").frame.columns == ["b"]
    assert not capsys.readouterr().err
    with pytest.raises(BadInput, match="there is no sheet 'moer'; it has terms, more"):
        read_table(path, sheet="moer")


def test_numbers_whose_last_digits_are_lost_are_said(book, capsys):
    path = book(["sctid"], [73211009], [900000000000207008], [900000000000207008])
    assert read_table(path).frame["sctid"][0] == "73211009"
    told = capsys.readouterr().err
    assert told.count("list.xlsx:3: a number of more than 15 digits") == told.count("\n") == 1


def test_a_formula_is_what_was_computed_and_none_is_written(book, tmp_path):
    path = book(["a", "b"], ["=1+1", "x"])
    assert read_table(path).frame.rows() == [("", "x")], "nobody has computed it yet"
    table = read_table(book(["a"], ["x"]))
    write_table(tmp_path / "out.xlsx", table.frame.with_columns(b=pl.lit("=1")))
    cell = openpyxl.load_workbook(tmp_path / "out.xlsx").worksheets[0]["B2"]
    assert (cell.value, cell.data_type) == ("=1", "s")


def test_rich_text_and_styles_are_only_their_text(book):
    path = book(["a"], ["x"])
    workbook = openpyxl.load_workbook(path)
    workbook.worksheets[0]["A2"].font = Font(bold=True)
    workbook.save(path)
    assert read_table(path).frame.rows() == [("x",)]


def damaged(content):
    return content[: len(content) // 2]


def no_sheet(content):
    """A zip archive without the parts of a workbook."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("a.txt", "a")
    return held.getvalue()


def a_bomb(content):
    held = io.BytesIO(content)
    with zipfile.ZipFile(held, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/bomb.xml", b"\0" * (65 << 20))
    return held.getvalue()


@pytest.mark.parametrize(
    "spoil, message",
    [
        (damaged, r"list.xlsx: cannot be read as an Excel workbook \(BadZipFile: .*save it again"),
        (no_sheet, r"list.xlsx: cannot be read as an Excel workbook \(KeyError"),
        (lambda _: b"id,term\n1,a\n", "list.xlsx: cannot be read as an Excel workbook"),
        (a_bomb, "xl/bomb.xml in .*list.xlsx unpacks to 68 MB or more"),
    ],
)
def test_what_is_no_workbook_is_said(book, spoil, message):
    path = book(["a"], ["x"])
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BadInput, match=message):
        read_table(path)
    with pytest.raises(BadInput, match="none.xlsx: cannot be read"):
        read_table(path.with_name("none.xlsx"))
