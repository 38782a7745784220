import json

import polars as pl
import pytest

from data_pipeline.files.tables.table import write_table
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.gold import read_gold, split_unknown, unquoted
from data_pipeline.sources.corpora.pubtator import identifiers_of, is_pubtator, types_of

PUBTATOR = """
1|t|Ocular and auditory toxicity, and colon cancer.
1|a|A | t | b.
1\t0\t28\tOcular and auditory toxicity\tDisease\tD014786|D006311\tOcular toxicity|auditory toxicity
1\t34\t46\tcolon cancer\tSpecificDisease\tMESH:D003110+OMIM:114500
1\t50\t52\tcup\tChemical\tD1
1\t60\t62\tbad\tDisease\t-1
1\tCID\tD1\tD2
1\tx\ty
"""


def rows(path, types=()):
    return [(row.mention, row.gold) for row in read_gold(path, types).rows]


def test_chip_2019_as_it_is_distributed(tmp_path):
    path = tmp_path / "train.csv"
    text = '原始词\t标准词\n双侧"DJ"管拔除, 术\t输尿管双“J”管取出术\n甲+乙 (a)\t甲术##乙术\n'
    path.write_text(text, encoding="utf-8")
    expected = [('双侧"DJ"管拔除, 术', ("输尿管双“J”管取出术",)), ("甲+乙 (a)", ("甲术", "乙术"))]
    assert rows(path) == expected
    assert read_gold(path).rows[1].place == "train.csv:3"
    frame = pl.DataFrame(expected, schema=["原始词", "标准词"], orient="row", strict=False)
    workbook = tmp_path / "train.xlsx"
    write_table(workbook, frame.with_columns(pl.col("标准词").list.join("##")))
    assert rows(workbook) == expected


def test_a_table_without_a_header_keeps_its_first_row(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("heart attack\tD1|D2\n")
    assert rows(path) == [("heart attack", ("D1|D2",))]


def test_a_csv_file_with_commas_or_semicolons_has_quotes(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text('mention;code\n"pain; left ""leg""";D1##D2\n')
    assert rows(path) == [('pain; left "leg"', ("D1", "D2"))]


def test_odd_rows_are_left_out_counted_and_named(tmp_path):
    path = tmp_path / "odd.tsv"
    path.write_text("a\tx##y##x\n\nb\nc\td\te\n\tz\nf\t\n g \t h ## i##\n")
    read = read_gold(path)
    assert [(row.mention, row.gold) for row in read.rows] == [("a", ("x", "y")), ("g", ("h", "i"))]
    assert read.counts == {
        "repeated gold, counted once": 1,
        "rows left out: 1 columns in place of 2": 1,
        "rows left out: 3 columns in place of 2": 1,
        "rows left out: no mention": 1,
        "rows left out: no gold": 1,
    }
    assert [line.split(" ")[0] for line in read.odd] == [
        *("odd.tsv:1:", "odd.tsv:3:", "odd.tsv:4:", "odd.tsv:5:", "odd.tsv:6:")
    ]


def test_chip_cdn_without_the_quotes_of_csv(tmp_path):
    path = tmp_path / "cdn.json"
    content = [
        {"text": "左膝退变", "normalized_result": "膝骨关节病##膝关节游离体"},
        {"text": '"癌,炎"', "normalized_result": '"损伤,水平""未""特指##骨折"'},
        {"text": "x", "normalized_result": ""},
        {"text": "y"},
    ]
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    assert rows(path) == [
        ("左膝退变", ("膝骨关节病", "膝关节游离体")),
        ("癌,炎", ('损伤,水平"未"特指', "骨折")),
    ]
    assert read_gold(path).odd == [f"cdn.json: entry {n}: left out: no gold" for n in (3, 4)]
    path.write_text('[{"text": 1}]')
    with pytest.raises(BadInput, match="expected"):
        read_gold(path)


@pytest.mark.parametrize(
    ("field", "expected"),
    [('"a"', "a"), ('"a" b "c"', '"a" b "c"'), ('a "b"', 'a "b"'), ('""', ""), ("a", "a")],
)
def test_only_quotes_of_a_whole_field_are_taken_off(field, expected):
    assert unquoted(field) == expected


def test_pubtator(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(PUBTATOR)
    assert is_pubtator(path)
    assert rows(path, ["Disease", "SpecificDisease"]) == [
        ("Ocular and auditory toxicity", ("D014786", "D006311")),
        ("colon cancer", ("D003110", "114500")),
    ]
    assert ("cup", ("D1",)) in rows(path)
    read = read_gold(path, ["Disease"])
    assert read.odd == [
        "corpus.txt:7: left out: no gold",
        "corpus.txt:9: left out: no line of PubTator",
    ]
    assert rows(path, ["Disease", "Gene"]) == rows(path, ["Disease"])
    said = "mention of the type Gene or Organ; expected one of Chemical, Disease, SpecificDisease"
    with pytest.raises(BadInput, match=said):
        read_gold(path, ["Gene", "Organ"])
    assert types_of(path) == {"Chemical", "Disease", "SpecificDisease"}


def test_identifiers_are_without_the_names_of_their_vocabularies():
    assert identifiers_of("MESH:D1|omim:2") == ["D1", "2"]
    assert identifiers_of("-1") == []
    assert identifiers_of("D1|-1") == ["D1"]


def test_a_file_without_mentions_is_said(tmp_path):
    path = tmp_path / "empty.tsv"
    path.write_text("mention\tnames\n")
    with pytest.raises(BadInput, match="found no mention with gold"):
        read_gold(path)


def test_what_a_pipe_joins_is_divided_where_the_whole_is_unknown():
    assert split_unknown("D1| D2", {"D1"}) == ["D1", "D2"]
    assert split_unknown("a|b", {"a|b"}) == ["a|b"]
    assert split_unknown("a", {}) == ["a"]
