import polars as pl
import pytest

from data_pipeline.dataset.dictionaries.entries import read_entries
from data_pipeline.files.tables.table import write_table
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.mention_set import Entry

ENTRIES = [Entry(("00",), ("操作, (a) [b]/c",)), Entry(("00.1x001",), ('"x" 术',))]


def test_codes_and_names_in_any_order_of_columns(tmp_path):
    path = tmp_path / "code.txt"
    path.write_text("\n".join(f"{e.codes[0]}\t{e.names[0]}" for e in ENTRIES), encoding="utf-8")
    assert read_entries(path) == ENTRIES
    path.write_text("\n".join(f"{e.names[0]}\t{e.codes[0]}" for e in ENTRIES), encoding="utf-8")
    assert read_entries(path) == ENTRIES


def test_a_workbook_without_a_header(tmp_path):
    rows = [("A00", "霍乱"), ("A00.0", "霍乱,由于01群霍乱弧菌"), ("A00", "x")]
    write_table(tmp_path / "icd.xlsx", pl.DataFrame(rows[1:], schema=list(rows[0]), orient="row"))
    assert read_entries(tmp_path / "icd.xlsx") == [
        Entry(("A00",), ("霍乱", "x")),
        Entry(("A00.0",), ("霍乱,由于01群霍乱弧菌",)),
    ]


def test_a_table_with_a_header_has_the_preferred_name_first(tmp_path):
    path = tmp_path / "terms.csv"
    path.write_text("name,preferred,concept\nMI,,C1\nrenal failure,,C2\nheart attack,Y,C1\n")
    assert read_entries(path) == [
        Entry(("C1",), ("heart attack", "MI")),
        Entry(("C2",), ("renal failure",)),
    ]


def test_medic_has_other_identifiers_and_synonyms(tmp_path):
    path = tmp_path / "medic.txt"
    path.write_text("MESH:C5|OMIM:613097||Tooth Agenesis, Selective|STHAG6\nD2||Bluetongue\n")
    assert read_entries(path) == [
        Entry(("C5", "613097"), ("Tooth Agenesis, Selective", "STHAG6")),
        Entry(("D2",), ("Bluetongue",)),
    ]


def test_the_names_of_a_release_have_the_preferred_one_first(tmp_path):
    def atom(cui, status, preferred, name):
        return f"{cui}|ENG|{status}|L|PF|S|{preferred}|A||||MSH|PT|D|{name}|0|N||"

    rows = [
        atom("C1", "S", "N", "MI"),
        atom("C1", "P", "Y", "heart attack"),
        atom("C2", "P", "Y", "limb pain"),
    ]
    (tmp_path / "MRCONSO.RRF").write_text("\n".join(rows) + "\n")
    assert read_entries(tmp_path / "MRCONSO.RRF") == [
        Entry(("C1",), ("heart attack", "MI")),
        Entry(("C2",), ("limb pain",)),
    ]


@pytest.mark.parametrize("text", ["a\n", "a\tb\tc\n", "a\t\n"])
def test_a_broken_row_is_said(tmp_path, text):
    path = tmp_path / "code.txt"
    path.write_text(f"1\tx\n{text}")
    with pytest.raises(BadInput, match=":2: found"):
        read_entries(path)
