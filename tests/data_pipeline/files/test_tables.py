"""Tables as hospitals keep them: what is read, what is refused with its line, what is written."""

import bz2
import datetime
import gzip
import io
import lzma
import re
import zipfile

import openpyxl
import polars as pl
import pytest
from openpyxl.styles import Font

from coder_jax.commands.normalize import _read_mentions
from coder_jax.encoding.vector_files import TermLines
from coder_jax.evaluation.mantra import _files_in
from coder_jax.evaluation.vectors import _read_vector_file
from data_pipeline.files.tables import (
    _ALWAYS_FINE,
    _FORMULA,
    LONGEST_LINE,
    STDOUT,
    Dialect,
    _check_lines,
    bounded_lines,
    check_room,
    check_table_name,
    check_unpacked,
    content_hash,
    distinct_rows,
    double_piped,
    is_double_piped,
    read_rows,
    read_table,
    split_concepts,
    tab_separated,
    two_columns,
    unguarded,
    write_table,
)
from data_pipeline.process import BadInput
from data_pipeline.sources.obo import read_obo
from data_pipeline.sources.release_files import unpack_release
from data_pipeline.sources.term_tables import term_table

HEADER = ["id", "local term"]
ROWS = [("1", "Diabetes, type 2"), ("02", "Fièvre"), ("3", "")]


def rows_of(table):
    return table.frame.rows()


@pytest.mark.parametrize(
    "text, separator",
    [
        ('id,local term\n1,"Diabetes, type 2"\n02,Fièvre\n3,\n', ","),
        ("id;local term\r\n1;Diabetes, type 2\r\n\r\n02;Fièvre\r\n3;\r\n", ";"),
        ("id\tlocal term\n1\tDiabetes, type 2\n02\tFièvre\n3\t\n\n\n", "\t"),
        ('id\tlocal term\n1\t"Diabetes, type 2"\n02\tFièvre\n3\t', "\t"),
        ("\nid;local term;;\n1;Diabetes, type 2;;\n02;Fièvre;;\n3;;;\n;;;\n", ";"),
    ],
)
def test_the_separator_is_found_from_header_and_rows(write, text, separator):
    table = read_table(write("list.csv", text))
    assert table.dialect.separator == separator
    assert table.frame.columns == HEADER and rows_of(table) == ROWS


def test_a_separator_can_be_given(write):
    table = read_table(write("list.txt", "a|b,c\n1|2,5\n"), separator="|")
    assert table.frame.to_dict(as_series=False) == {"a": ["1"], "b,c": ["2,5"]}
    for separator in ("::", "¦"):  # of the latter no table could be written
        with pytest.raises(BadInput, match=f"--separator: found '{separator}'; expected one char"):
            read_table(table.path, separator=separator)


@pytest.mark.parametrize(
    "text, terms",
    [
        ("term\nDiabetes, type 2\nangina\n\nn/a\n\n", ["Diabetes, type 2", "angina", "", "n/a"]),
        ('term\n"Diabetes, type 2"\nangina\n', ["Diabetes, type 2", "angina"]),
        ("term\nangina; unstable\n5, or 6\n7\n", ["angina; unstable", "5, or 6", "7"]),
        ("Term, local\nangina\nn/a\n", ["angina", "n/a"]),
    ],
)
def test_one_column_may_have_separators_in_its_text(write, text, terms):
    table = read_table(write("list.csv", text))
    assert table.frame.width == 1 and table.frame.to_series().to_list() == terms


def test_quoted_fields_have_line_breaks_and_rows_keep_their_line_numbers(write):
    table = read_table(write("a.csv", 'id,term\n1,"a\nb"\n2,"say ""ah"""\n\n3,"c\r\nd"\n'))
    assert rows_of(table) == [("1", "a\nb"), ("2", 'say "ah"'), ("3", "c\r\nd")]
    assert table.lines == [2, 4, 6]


@pytest.mark.parametrize("term", ['"Foo" syndrome', '5" needle', '"open', 'shut"'])
def test_quotes_in_tab_separated_text_may_be_ordinary_characters(write, tmp_path, term):
    text = f'id\tterm\n1\t{term}\n2\tb"\n3\tc\n'
    table = read_table(write("a.tsv", text))
    assert rows_of(table) == [("1", term), ("2", 'b"'), ("3", "c")]
    write_table(tmp_path / "b.tsv", table.frame, table.dialect)
    again = read_table(tmp_path / "b.tsv")
    assert again.frame.equals(table.frame)
    write_table(tmp_path / "b.csv", table.frame, table.dialect)
    assert read_table(tmp_path / "b.csv").frame.equals(table.frame)


def test_a_stray_quote_swallows_no_rows(write):
    table = read_table(write("a.tsv", 'term\tid\n"aspirin\t1\nb\t2\ntablets"\t3\n'))
    assert rows_of(table) == [('"aspirin', "1"), ("b", "2"), ('tablets"', "3")]
    table = read_table(write("a.tsv", 'term\tid\n"aspirin\t1\nb\t2\t\ntablets"\t3\n'))
    assert rows_of(table)[1] == ("b", "2"), "whatever is empty at the end of a row"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_table_is_written_as_it_was_read(tmp_path, separator, bom, line_end):
    content = bom + line_end.join(
        [separator.join(HEADER), separator.join(["1", '"a ""b"""']), f"02{separator}é", ""]
    ).encode("utf-8")
    name = "list.tsv" if separator == "\t" else "list.csv"
    path, copy = tmp_path / name, tmp_path / f"copy_{name}"
    path.write_bytes(content)
    table = read_table(path)
    assert rows_of(table) == [("1", 'a "b"'), ("02", "é")]
    write_table(copy, table.frame, table.dialect)
    assert copy.read_bytes() == content


def test_other_encodings(tmp_path, write):
    path = tmp_path / "latin.csv"
    path.write_bytes("id;term\n1;a\n2;Fièvre\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"latin.csv:3: .*0xe8, .* UTF-8; give --encoding cp1252"):
        read_table(path)
    table = read_table(path, encoding="Latin-1")
    assert rows_of(table)[1] == ("2", "Fièvre")
    assert table.dialect.bom, "what is written is UTF-8: Excel must be told"
    with pytest.raises(BadInput, match="--encoding: found 'latin-99'; expected one that Python"):
        read_table(path, encoding="latin-99")
    with pytest.raises(BadInput, match="latin.csv:3: found byte 0xe8, which is not ascii; give an"):
        read_table(path, encoding="ascii")
    path.write_bytes("id;term\n1;5 € – 6 €\n".encode("cp1252"))
    assert rows_of(read_table(path, encoding="latin-1")) == [("1", "5 € – 6 €")]
    path.write_bytes("id\tterm\n1\tFièvre\n".encode("utf-16"))
    assert rows_of(read_table(path)) == [("1", "Fièvre")], "Excel's Unicode text"
    path.write_bytes("id\tterm\n1\tFievre\n".encode("utf-16-le"))
    with pytest.raises(BadInput, match="latin.csv:1: found a zero byte; .*--encoding"):
        read_table(path)


def test_packed_text(tmp_path):
    path = tmp_path / "list.csv.gz"
    path.write_bytes(gzip.compress(b"id,term\n1,a\n"))
    assert rows_of(read_table(path)) == [("1", "a")]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadInput, match="list.csv.gz is damaged or cut off"):
        read_table(path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "a.csv: found no rows"),
        ("\n ,\n", "a.csv: found no rows"),
        ("a,b\n\n,\n", "a.csv: found a header and no rows"),
        ("a,b\n1,2\n\n1,2,3\n1,2\n", r"a.csv:4: found 3 columns; expected the 2 .*\(a, b\): mend"),
        ("a,b,c\n1,2,3\n1,2\n", "a.csv:3: found 2 columns; expected the 3"),
        ("a,b,a\n1,2,3\n", "more than one column 'a'"),
        ("a,,,b\n1,2,3,4\n", r"more than one column '\(no name\)'"),
        ('a,b\n1,2\n"3"x,4\n', "a.csv:3: the row that begins here cannot be read .*inside doubled"),
        ('a,b\n1,2\n1,"2\n3,4\n', "a.csv:3: the row that begins here cannot be read"),
        (
            'a,b\n1,"' + "long " * 40_000 + '"\n',
            "a.csv:2: found a field of more than 131,072 characters .* quote that is never closed",
        ),
        ("a,b\n1," + "x" * (3 << 20), "a.csv:2: found a line of more than 1,048,576 bytes"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(write, text, message):
    with pytest.raises(BadInput, match=message):
        read_table(write("a.csv", text))


def test_files_that_are_something_else(tmp_path):
    with pytest.raises(BadInput, match="none.csv: cannot be read"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(BadInput, match=r"old.xls: found .xls; expected .xlsx, .csv or .tsv"):
        read_table(tmp_path / "old.xls")
    openpyxl.Workbook().save(tmp_path / "book.csv")
    with pytest.raises(BadInput, match="book.csv: found --sheet x; expected a workbook"):
        read_table(tmp_path / "book.csv", sheet="x")
    with pytest.raises(BadInput, match="book.csv: found a zip archive.* name it .xlsx"):
        read_table(tmp_path / "book.csv")
    for pack, name in ((gzip, "gzip"), (lzma, "xz"), (bz2, "bzip2")):
        (tmp_path / "packed.csv").write_bytes(pack.compress(b"id,term\n1,a\n"))
        for read in (read_table, tab_separated):
            with pytest.raises(BadInput, match=f"packed.csv: found what {name} has packed.* unpac"):
                read(tmp_path / "packed.csv")


def test_a_column_is_found_by_name_case_and_blanks_aside(write):
    table = read_table(write("a.csv", "Local Term,id,ID,,b\n1,2,3,4,5\n"))
    for name in ("Local Term", "local term", "LOCAL_TERM", " localterm "):
        assert table.find_column(name, "--column") == "Local Term"
    assert table.find_column("ID", "--column") == "ID"
    with pytest.raises(BadInput, match="--column Id: could be 'id' or 'ID'"):
        table.find_column("Id", "--column")
    message = (
        r"--column local_trm: no column has that name; .*a.csv has the columns Local Term, id, ID, "
        r"\(no name\), b; did you mean Local Term\?"
    )
    with pytest.raises(BadInput, match=message):
        table.find_column("local_trm", "--column")


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt", "xlsx"])
def test_any_strings_come_back_from_any_file(tmp_path, ending):
    strings = ["=1+1", "#N/A", "0123", "1e5", "TRUE", " a ", "a,b;c\td", 'a "b"', '"', "_x0041_"]
    strings += ["a\nb", "a\r\nb", "a\rb", "😀 é", "", "a\x07b", "a\ufeffb", "a\u2028b", "\x85"]
    frame = pl.DataFrame({"a b": strings, "=x,": [f"{place}" for place in range(len(strings))]})
    path = tmp_path / f"list.{ending}"
    write_table(path, frame, Dialect(";"))
    again = read_table(path).frame.to_dict(as_series=False)
    if ending == "csv":  # where a spreadsheet would compute the first
        again = {unguarded(name): list(map(unguarded, texts)) for name, texts in again.items()}
    assert again == frame.to_dict(as_series=False)


def test_nothing_in_a_csv_file_is_computed(tmp_path):
    computed = ["=1+1", "@SUM(1)", "-5-3", "+1+cmd|x", "\t=1", "-x", "-3 mg", "＝1", "'=1", "'-5"]
    plain = ["-5", "-5.2", "-1,5", "+3e-5", "-12%", "-", "+++", "a=1", "'tis", " =1", "", "5"]
    frame = pl.DataFrame({"=a": computed + plain})
    write_table(tmp_path / "a.csv", frame)
    header, *rows = (line for _, line in read_rows(tmp_path / "a.csv")[1])
    assert header == ["'=a"]
    found = [fields[0] if fields else "" for fields in rows]
    assert found == [f"'{text}" for text in computed] + plain
    assert [unguarded(text) for text in found] == computed + plain
    write_table(tmp_path / "a.tsv", frame)
    assert (tmp_path / "a.tsv").read_text().startswith("=a\n=1+1\n"), "for programs"


def test_numbers_and_nulls_are_written_as_strings(tmp_path):
    frame = pl.DataFrame({"similarity": [0.5, None], "rank": [1, 2]})
    write_table(tmp_path / "a.csv", frame)
    assert (tmp_path / "a.csv").read_text() == "similarity,rank\n0.5,1\n,2\n"
    one = pl.DataFrame({"term": ["a", "", "b"]})
    write_table(tmp_path / "a.csv", one)
    assert rows_of(read_table(tmp_path / "a.csv")) == [("a",), ("",), ("b",)]


def test_the_ending_says_what_is_written(tmp_path):
    frame = pl.DataFrame({"a": ["1;2", '"3'], "b": ["x", "y"]})
    written = {}
    for name in ("a.csv", "a.tsv", "a.txt"):
        for dialect in (Dialect(";"), Dialect("\t", quoted=False)):
            write_table(tmp_path / name, frame, dialect)
            written[name, dialect.separator] = (tmp_path / name).read_text()
    quoted = 'a\tb\n1;2\tx\n"""3"\ty\n'
    assert written == {
        ("a.csv", ";"): 'a;b\n"1;2";x\n"""3";y\n',
        ("a.csv", "\t"): 'a,b\n1;2,x\n"""3",y\n',
        ("a.tsv", ";"): quoted,
        ("a.txt", ";"): quoted,
        ("a.tsv", "\t"): 'a\tb\n1;2\tx\n"3\ty\n',
        ("a.txt", "\t"): 'a\tb\n1;2\tx\n"3\ty\n',
    }
    breaks = pl.DataFrame({"a": ["1\t2"], "b": ["x\ny"]})
    write_table(tmp_path / "a.tsv", breaks, Dialect("\t", quoted=False))
    assert read_table(tmp_path / "a.tsv").frame.equals(breaks), "quoted where nothing else will do"


def test_what_fails_midway_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    def half(path, frame, dialect):
        path.write_text("a,b\n1")
        raise OSError("disk full")

    write_table(tmp_path / "a.csv", pl.DataFrame({"a": ["1"]}))
    monkeypatch.setattr("data_pipeline.files.tables._write_delimited", half)
    with pytest.raises(OSError, match="disk full"):
        write_table(tmp_path / "a.csv", pl.DataFrame({"a": ["2"]}))
    assert (tmp_path / "a.csv").read_text() == "a\n1\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.csv"]


def test_what_excel_has_no_room_for_is_refused(tmp_path, monkeypatch, capsys):
    path = tmp_path / "list.xlsx"
    write_table(path, pl.DataFrame({"a": ["1"]}))
    before = path.read_bytes()
    with pytest.raises(BadInput, match="row 3: 'xxx.* has 32,768 characters; .*32,767: write .csv"):
        write_table(path, pl.DataFrame({"a": ["1", "x" * 32768]}))
    monkeypatch.setattr("data_pipeline.files.tables._MOST_ROWS", 3)
    with pytest.raises(BadInput, match="3 rows; an Excel sheet has room for 2 and their header"):
        write_table(path, pl.DataFrame({"a": ["1", "2", "3"]}))
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    check_room(pl.DataFrame({"a": ["1", ""], "b": ["", ""]}), 1)
    assert not capsys.readouterr().err
    check_room(pl.DataFrame({"a": ["1", ""]}), 2)
    assert "warning: 2 rows, each up to 2 times, may be more than the 2" in capsys.readouterr().err
    with pytest.raises(
        BadInput, match="--out: found .*coded.json; expected .* .csv, .tsv, .txt or"
    ):
        check_table_name(tmp_path / "coded.json", "--out")


def test_what_is_printed_is_tab_separated(capfd):
    write_table(STDOUT, pl.DataFrame({"a": ["1,5"], "b": ['5" x']}), Dialect(";", False, True))
    assert capfd.readouterr().out == 'a\tb\n1,5\t5" x\n'


# -------------------------------------------------------------------------------------------------
# Excel workbooks: cells as they are shown, and what is no workbook.


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
        ((12, "00-0"), "01-2"),
        ((7, '"E"00'), "E07"),
        ((3.2, "000.00"), "003.20"),
        ((123456789, "000-00-0000"), "123-45-6789"),
        ((12345, "00-0"), "1234-5"),
        ((7.6, "0"), "8"),
        *(((123, form), "0123") for form in ("0000_ ", "[$-407]0000", "0000;-0000", "0000;@")),
        *(((123, form), "0123") for form in ("#0000", "* 0000", "[Red]0000_);(0000)")),
        ((-12, "0000;-0000"), "-0012"),
        ((12.5, "#0.00_ "), "12.50"),
        ((1234567, "#,##0"), "1234567"),
        ((5, "#"), "5"),
        ((datetime.timedelta(hours=30), "[h]:mm"), "30:00:00"),
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


def test_a_hidden_sheet_is_never_the_first(book, capsys):
    path = book(["a"], ["1"], more=[["b"], ["2"]])
    workbook = openpyxl.load_workbook(path)
    workbook["terms"].sheet_state = "hidden"
    workbook.active = 1
    workbook.save(path)
    assert read_table(path).frame.columns == ["b"]
    told = capsys.readouterr().err
    assert "reading the sheet 'more', the first of more (terms hidden); `normalize` reads" in told
    assert read_table(path, sheet="terms").frame.columns == ["a"]


def test_each_row_of_a_merged_cell_has_its_value(book):
    path = book(["term", "side"], ["kidney stone", "left"], [None, "right"], ["fever", None])
    workbook = openpyxl.load_workbook(path)
    workbook["terms"].merge_cells("A2:A3")
    workbook.save(path)
    assert read_table(path).frame.rows() == [
        ("kidney stone", "left"), ("kidney stone", "right"), ("fever", ""),
    ]  # fmt: skip


def test_a_sheet_of_strict_open_xml_is_read(book):
    path = book(["id", "term"], ["1", "fever"])
    known, strict = b"http://schemas.openxmlformats.org/", b"http://purl.oclc.org/ooxml/"
    pairs = [
        (known + b"spreadsheetml/2006/main", strict + b"spreadsheetml/main"),
        (known + b"officeDocument/2006/", strict + b"officeDocument/"),
    ]
    content = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(content, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            for one, other in pairs:
                text = text.replace(one, other)
            new.writestr(name, text)
    path.write_bytes(content.getvalue())
    assert read_table(path).frame.rows() == [("1", "fever")]


def test_the_header_is_the_row_that_has_the_column(book, write, capsys):
    path = book(["Terms of our hospital"], [], ["id", "local term"], [1, "fever"])
    table = read_table(path, column="Local_Term")
    assert (table.frame.rows(), table.header, table.lines) == ([("1", "fever")], 3, [4])
    assert "the header is row 3, which has 'Local_Term'" in capsys.readouterr().err
    assert read_table(path, header_row=3).frame.columns == ["id", "local term"]
    with pytest.raises(BadInput, match="found nothing in row 2; expected the header there"):
        read_table(path, header_row=2)
    text = "Terms of our hospital, 2024\n\nid;local term\n1;fever\n2;chill\n"
    table = read_table(write("list.csv", text), column="local term")
    assert table.dialect.separator == ";" and table.lines == [4, 5]
    assert table.frame.rows() == [("1", "fever"), ("2", "chill")]
    assert read_table(write("list.csv", text), header_row=3).frame.rows() == table.frame.rows()


def test_cells_beside_the_table_are_left_aside_and_named(book, capsys):
    path = book(["id", "term", None], [1, "fever", None, "ask Ann"], [2, "chill", "?"])
    assert read_table(path).frame.rows() == [("1", "fever"), ("2", "chill")]
    assert "cell D2 and 1 more: the column has no name in the header" in capsys.readouterr().err


def test_formulas_that_nobody_computed_are_said(book, capsys):
    read_table(book(["a", "b"], ["=1+1", "x"], ["y", "=A1"]))
    assert "2 formulas were never computed, the first in A2" in capsys.readouterr().err
    told = b'<c r="B2" t="str"><f>IF(A2="b","x","")</f><v></v></c>'  # as Excel writes it
    assert _FORMULA.findall(told) == [] != _FORMULA.findall(told.replace(b' t="str"', b""))


def test_codes_that_became_dates_are_said(book, capsys):
    path = book(["code", "name", "on"], *(2 * [[datetime.date(2024, 2, 1)] * 3]))
    table = read_table(path)
    table.tell_of_dates("code", "name")
    told = capsys.readouterr().err
    assert "list.xlsx:2: the column code has 2024-02-01 (2 such dates); if it was a code" in told
    assert "column name" in told and "column on" not in told
    term_table(path, *read_rows(path))
    assert capsys.readouterr().err.count("such dates") == 2, "in the columns of codes and terms"


@pytest.mark.parametrize(
    "text, rows",
    [
        ("sep=;\nid;term\n1;a, b\n", [("1", "a, b")]),
        ("sep=,\r\nid,term\r\n1,a\r\n", [("1", "a")]),
        ('#map:\n#  a: "x"\nid\tterm\n1\ta\n', [("1", "a")]),
        ("id,term\r1,a\r2,b", [("1", "a"), ("2", "b")]),
        ("id,term\n1,a\0\n", [("1", "a")]),
    ],
)
def test_lines_that_other_programs_add_are_no_rows(write, text, rows):
    table = read_table(write("list.csv", text))
    assert table.frame.columns == ["id", "term"] and table.frame.rows() == rows


def test_a_header_may_begin_as_a_comment_does(write):
    table = read_table(write("list.tsv", "# made today\n#id\tterm\n1\ta\n"))
    assert table.frame.columns == ["#id", "term"]


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


# -------------------------------------------------------------------------------------------------
# Rows of text files: what is a header, what is refused, and hashes of many rows.

EXPECTED = "term<TAB>CUI"


def test_two_columns_line_by_line(write):
    path = write("a.tsv", "\ufeff\n  \nTerm\tCUI\r\n pain \t C1\r\n\na\u2028b\tC1\nterm\tCUI")
    rows = two_columns(path, EXPECTED)
    assert rows == [("pain", "C1"), ("a\u2028b", "C1"), ("term", "CUI")], "a header comes first"
    assert rows[0][1] is rows[1][1], "equal concepts are one object"


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "a.tsv: found no lines; expected tab-separated rows"),
        (" \n\n", "a.tsv: found no lines"),
        ("term\tcui\n\n", "a.tsv: found a header and no rows; expected term<TAB>CUI"),
        ("a\tC1\n\nb\n", "a.tsv:3: found 1 columns; expected 2: term<TAB>CUI"),
        ("a\tC1\n\t\t\nb\tC1\tx\n", "a.tsv:3: found 3 columns"),
        ("term\tcui\nb\t \n", "a.tsv:2: found 1 columns|a.tsv:2: found an empty column"),
    ],
)
def test_broken_rows_are_named(write, content, message):
    with pytest.raises(BadInput, match=message):
        two_columns(write("a.tsv", content), EXPECTED)


def test_the_hash_of_distinct_rows_is_that_of_their_set():
    rows = [("b", "C1"), ("a", "C2"), ("b", "C1"), ("ä", "C3"), ("b", "C0")]
    assert distinct_rows(rows) == (content_hash(set(rows)), 4)
    assert distinct_rows(reversed(rows)) == distinct_rows(rows)
    assert distinct_rows([]) == (content_hash([]), 0)


def test_concepts_of_a_field():
    assert split_concepts("C1") == ["C1"] and split_concepts("C2|C1") == ["C2", "C1"]


# -------------------------------------------------------------------------------------------------
# What a file may ask for: lines of some length, archives that unpack to some times their size.

LONG = bytes(3 * LONGEST_LINE)
TOO_LONG = "found a line of more than 1,048,576 bytes; expected text with line ends"


def test_lines():
    text = b"a\nb\r\n" + b"c" * (LONGEST_LINE - 1) + b"\nd"
    assert b"".join(bounded_lines(io.BytesIO(text), "x")) == text
    assert len(list(bounded_lines(io.BytesIO(text), "x"))) == 4
    _check_lines(text, "x")
    with pytest.raises(BadInput, match=f"x:3: {TOO_LONG}"):
        list(bounded_lines(io.BytesIO(b"a\nb\n" + LONG), "x"))
    with pytest.raises(BadInput, match=f"x:3: {TOO_LONG}"):
        _check_lines(b"a\nb\n" + LONG, "x")


def test_no_reader_takes_a_line_without_an_end(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"heart attack\tC1\n" + LONG)
    vectors = tmp_path / "v.txt"
    vectors.write_bytes(b"a 1 2 3\n" + LONG)
    (tmp_path / "x.obo").write_bytes(b"format-version: 1.2\n" + LONG)
    piped = tmp_path / "piped.txt"
    piped.write_bytes(LONG)
    with piped.open("rb") as file:
        for read in (
            lambda: tab_separated(path),
            lambda: TermLines(io.BytesIO(LONG), "x", 100),
            lambda: list(_read_mentions(io.BytesIO(LONG), "x")),
            lambda: list(_read_mentions(file, "x")),
            lambda: _read_vector_file(vectors, {"a"}),
            lambda: read_obo(tmp_path / "x.obo"),
            lambda: is_double_piped(piped),
        ):
            with pytest.raises(BadInput, match=TOO_LONG):
                read()


def test_what_unpacks_to_far_more_is_refused(tmp_path):
    check_unpacked("x", 1, _ALWAYS_FINE)
    check_unpacked("x", _ALWAYS_FINE, 200 * _ALWAYS_FINE)
    with pytest.raises(BadInput, match="x unpacks to 67 MB or more, from 0.0 MB; expected at most"):
        check_unpacked("x", 1000, _ALWAYS_FINE + 1)
    zeros = bytes(_ALWAYS_FINE + (16 << 20))
    packed = gzip.compress(zeros, 9)
    (tmp_path / "x.obo.gz").write_bytes(packed)
    (tmp_path / "META").mkdir()
    (tmp_path / "META" / "MRCONSO.RRF.gz").write_bytes(packed)
    for name, member in (("r.zip", "META/MRCONSO.RRF"), ("m.zip", "Medline_GSC_fr_man.xml")):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            file.writestr(member, zeros)
    for read in (
        lambda: read_obo(tmp_path / "x.obo.gz"),
        lambda: unpack_release(tmp_path / "META", tmp_path / "scratch"),
        lambda: unpack_release(tmp_path / "r.zip", tmp_path / "scratch"),
        lambda: list(_files_in(tmp_path / "m.zip")),
    ):
        with pytest.raises(BadInput, match="unpacks to .* MB or more, from 0.1 MB; expected at mo"):
            read()


def test_utf8_is_not_read_as_another_encoding_by_mistake(write, capsys):
    path = write("l.csv", "id,term\n1,Ménière\n")
    assert read_table(path, encoding="cp1252").frame["term"].to_list() == ["Ménière"]
    assert "is UTF-8, so it is read as such, not as cp1252" in capsys.readouterr().err
    path.write_bytes("id,term\n1,Ménière\n".encode("cp1252"))
    assert read_table(path, encoding="cp1252").frame["term"].to_list() == ["Ménière"]


@pytest.mark.parametrize("text", ["a\tb\rc\td\r", "# ours\na\tb\nc\td\n"])
def test_two_columns_of_old_programs_and_below_a_comment(write, text):
    assert two_columns(write("d.tsv", text), "term<TAB>CUI") == [("a", "b"), ("c", "d")]


def test_two_columns_in_utf16(tmp_path):
    path = tmp_path / "d.tsv"
    path.write_bytes("é\tb\r\nc\td\r\n".encode("utf-16"))
    assert two_columns(path, "term<TAB>CUI") == [("é", "b"), ("c", "d")]
    assert not is_double_piped(path)


def test_lines_of_cui_and_name_of_old_programs(write):
    path = write("d.txt", "A||one\rB||two\r")
    assert is_double_piped(path) and double_piped(path, "CUI||name") == [("A", "one"), ("B", "two")]


@pytest.mark.parametrize(
    "text", ["id|term\n1|a\n", "# ours\nid,term\n1,a\n", "id,term\r\n1,a\r\n\x1a"]
)
def test_pipes_comments_and_the_end_of_dos(write, text):
    assert read_table(write("l.csv", text)).frame.rows() == [("1", "a")]


def test_a_header_that_begins_with_a_hash_is_no_comment(write):
    table = read_table(write("l.csv", "#term\nfever, high\npain, low\n"))
    assert (table.frame.columns, table.frame.height) == (["#term"], 2)


def test_a_quote_that_takes_rows_is_told(write, capsys):
    rows = read_table(write("l.csv", 'id,term\n1,"a\n2,b\n3,c"\n4,d\n')).frame.height
    assert rows == 2
    assert "l.csv:2: a field in double quotes takes 2 further lines" in capsys.readouterr().err
    rows = read_table(write("l.tsv", 'id\tterm\tx\n1\t"a\n2\tb"\tx\n')).frame.height
    assert rows == 1
    assert "l.tsv:2: a field in double quotes takes 1 further" in capsys.readouterr().err
    read_table(write("m.csv", 'id,term\n1,"a\nand b"\n4,d\n'))
    assert "double quotes" not in capsys.readouterr().err
