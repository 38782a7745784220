"""BRAT's files: mentions with their places and notes, folders and archives, and what is broken."""

import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import PurePosixPath

import openpyxl
import polars as pl
import pytest
from quaero_corpus import write_quaero

from coder_jax.evaluation.benchmarks import kind_of
from coder_jax.evaluation.normalization import Mentions
from coder_jax.evaluation.normalization import _read_mentions as read_fold
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import write_table
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import (
    BratMention,
    _documents,
    _names_in,
    _unquoted,
    contents,
    identifiers_of,
    is_pubtator,
    is_quaero,
    mention_rows,
    read_abstracts,
    read_gold,
    read_mentions,
    read_quaero,
    split_unknown,
    types_of,
)
from data_pipeline.terminology.heldout import mention_table

TEXT = " mal de tête ’ et de dos"
MENTION = "T1\tDISO 1 12\tmal de tête\n"
BACK = "T2\tDISO 1 4;18 24\tmal de dos\n"


def read(ann, text=TEXT):
    return read_mentions(
        ann, text, "a.ann", check_type=lambda kind, place: None, example="T1<TAB>DISO 0 3<TAB>mal"
    )


def test_mentions_with_their_notes():
    ann = f"#9\tAnnotatorNotes T1\tC1  C2 \n{MENTION}{BACK}#2\tAnnotatorNotes T2\t\r\n"
    head = BratMention("T1", "DISO", ((1, 12),), "mal de tête", 2, "C1  C2 ")
    assert read(ann) == [head, BratMention("T2", "DISO", ((1, 4), (18, 24)), "mal de dos", 3, "")]
    turned = "T7\tDISO 15 17;1 4\tet mal"
    assert read(turned) == [BratMention("T7", "DISO", ((15, 17), (1, 4)), "et mal", 1, None)]
    assert read("") == []


def test_other_lines_of_brat_are_left_aside():
    others = "R1\tIs Arg1:T1 Arg2:T1\nE1\tDISO:T1\nA1\tGone T1\n*\tSame T1 T2\n#3\tTodo T1\tx\n\n"
    others += "#4\tAnnotatorNotes R1\tunsure\n#5\tAnnotatorNotes A1\t\n#6\tAnnotatorNotes R1-1\tx\n"
    assert read(MENTION + others) == read(MENTION)


@pytest.mark.parametrize(
    "ann, message",
    [
        ("T1 DISO 1 12 mal de tête", r"a.ann:1: found 'T1 DISO .*; expected T1<TAB>DISO 0 3<TAB>"),
        ("T1\tDISO 1-12\tmal de tête", "a.ann:1: found .*; expected T1<TAB>DISO"),
        ("oops", "a.ann:1: found 'oops'; expected T1<TAB>DISO"),
        ("T1\tDISO 2 12\tmal de tête", "a.ann:1: found the mention .* text has 'al de tête'"),
        ("T1\tDISO 18 99\tde dos", "a.ann:1: found the mention 'de dos' where .*; expected the sa"),
        ("T1\tDISO 1 12;5 5\tmal de tête", "a.ann:1: found the mention"),
        (MENTION + "T1\tDISO 1 4\tmal", "a.ann:2: found T1 again, which line 1 has; expected each"),
        (MENTION + "#1\tAnnotatorNotes T3\tC1", "a.ann:2: found a note on T3, and no such mention"),
        (
            MENTION + "#1\tAnnotatorNotes T1\tC1\n#2\tAnnotatorNotes T1\tC2",
            "a.ann:3: found a second note on T1, after that of line 2; expected one",
        ),
        (
            MENTION + "#1 AnnotatorNotes T1 C1",
            "a.ann:2: found '#1 AnnotatorNotes T1 C1'; expected #1<TAB>AnnotatorNotes T1<TAB>note",
        ),
    ],
)
def test_lines_that_are_broken(ann, message):
    with pytest.raises(BadInput, match=message):
        read(ann)


@pytest.fixture
def packed(tmp_path):
    """One document as a folder, a .zip and a .tar.gz."""
    folder = tmp_path / "corpus"
    (folder / "x").mkdir(parents=True)
    (folder / "x" / "1.ann").write_text(MENTION)
    (folder / "x" / "1.txt").write_text(TEXT)
    (folder / "x" / "1.ann~").write_text("old")
    (folder / "x" / "._1.ann").write_bytes(b"\x00\xff")
    with zipfile.ZipFile(tmp_path / "corpus.zip", "w") as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, file.relative_to(folder))
        archive.writestr("__MACOSX/x/1.ann", b"\x00\xff")
    with tarfile.open(tmp_path / "corpus.tar.gz", "w:gz") as archive:
        archive.add(folder, ".")
    return folder, tmp_path / "corpus.zip", tmp_path / "corpus.tar.gz"


def test_folders_and_archives(packed):
    for path in packed:
        assert list(_documents(path)) == [(PurePosixPath("x/1.ann"), MENTION, TEXT)]
        assert PurePosixPath("x/1.txt") in _names_in(path)
    (packed[0] / "x" / "1.txt").unlink()
    with pytest.raises(BadInput, match="x/1.ann: found no 1.txt beside it; fetch it again"):
        list(_documents(packed[0]))


def test_archives_that_are_damaged(packed, tmp_path):
    def everything(name):
        return True

    for path, kind in zip(packed[1:], (".zip", ".tar.gz"), strict=True):
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(BadInput, match=f"cannot be read as a {kind} file"):
            contents(path, everything)
    assert _names_in(packed[1]) == _names_in(packed[2]) == []
    with pytest.raises(BadInput, match="cannot be read .*; give an existing file"):
        contents(tmp_path / "absent.zip", everything)
    bomb = tmp_path / "bomb.tar.gz"
    with tarfile.open(bomb, "w:gz") as archive:
        info = tarfile.TarInfo("1.ann")
        info.size = 65 << 20
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(BadInput, match="bomb.tar.gz unpacks to 68 MB or more"):
        contents(bomb, everything)


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
    assert _unquoted(field) == expected


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


# -------------------------------------------------------------------------------------------------
# Abstracts with mentions, as PubTator has them.

TEXT_PUBTATOR = (
    "7|t|Renal and hepatic failure (RF).\r\n7|a|RF | coma.\n"
    "7\t0\t25\tRenal and hepatic failure\tDisease\tD1|D2\trenal failure|hepatic failure\n"
    "7\t27\t29\tRF\tDisease\tD1\n7\tCID\tD9\tD1\n\n"
    "8|t|None.\n8|a|\n9|t|Coma.\n9\t0\t4\tComa\tDisease\t\n"
)


def test_abstracts_and_their_mentions(write):
    first, second, third = read_abstracts(write("a.txt", TEXT_PUBTATOR))
    assert first.text == "Renal and hepatic failure (RF).\nRF | coma."
    composite, short = first.mentions
    assert composite == (
        *("7", 0, 25, "Renal and hepatic failure", "Disease", "D1|D2"),
        ("renal failure", "hepatic failure"),
    )
    assert (short.text, short.identifiers, short.parts) == ("RF", "D1", ())
    assert second.mentions == [] and third.mentions[0].identifiers == ""


@pytest.mark.parametrize(
    "line, message",
    [
        ("7\t0\t5\tRenal\n", r"a.txt:10: found '7.*'; expected a line of PubTator: PMID"),
        ("7\t0\t0\t\tDisease\tD1\n", r"a.txt:10: found '7.*'; expected a line of PubTator: PMID"),
        ("7\t²\t5\tRenal\tDisease\tD1\n", r"a.txt:10: found '7.*'; expected a line of PubTator"),
        ("Abstracts\n", "a.txt:10: found 'Abstracts'; expected a line of PubTator"),
        ("3\t0\t5\tRenal\tDisease\tD1\n", "a.txt:10: found a mention in '3', of which no line ab"),
    ],
)
def test_broken_lines(write, line, message):
    lines = TEXT_PUBTATOR.splitlines(keepends=True)
    with pytest.raises(BadInput, match=message):
        read_abstracts(write("a.txt", "".join([*lines[:9], line])))


# -------------------------------------------------------------------------------------------------
# The QUAERO corpus: table 2 of the MLNorm paper on the real one, its odd cases on a small one.

# Mentions, distinct strings, distinct notes; documents with a mention, mentions of several CUIs and
# of several pieces, and without a note. Table 2 of the paper has the first three; it has 650 in
# place of 651.
TABLE_2 = {
    ("train", "EMEA"): (2695, 923, 651, 11, 11, 27, 0),
    ("train", "MEDLINE"): (2994, 2296, 1860, 791, 12, 13, 0),
    ("dev", "EMEA"): (2260, 756, 525, 12, 29, 15, 0),
    ("dev", "MEDLINE"): (2977, 2288, 1847, 792, 1, 21, 2),
    ("test", "EMEA"): (2204, 658, 474, 15, 0, 42, 1),
    ("test", "MEDLINE"): (3103, 2390, 1909, 804, 1, 23, 7),
}


# SHA-256 of what sha256sum prints of all .ann and .txt files under corpus/, sorted by name.
FILES = "151195c74aecd05261c2d389c3301cf9a74a6626cb9a973c8eb9326001293fca"


def row_of(mentions):
    notes = [one.note for one in mentions if one.note is not None]
    several = [one for one in mentions if len((one.note or "").replace(",", " ").split()) > 1]
    return (
        len(mentions),
        len({one.text for one in mentions}),
        len({note.partition("\t")[0] for note in notes}),
        len({one.document for one in mentions}),
        len(several),
        sum(len(one.spans) > 1 for one in mentions),
        len(mentions) - len(notes),
    )


@pytest.mark.slow
def test_table_2_of_the_paper(shared_data):
    packed = shared_data / "benchmarks" / "quaero" / "QUAERO_FrenchMed.tar.gz"
    found = read_quaero(packed)
    assert {one: row_of(mentions) for one, mentions in found.items()} == TABLE_2
    files = contents(
        packed, lambda name: name.suffix in (".ann", ".txt") and "corpus" in name.parts
    )
    assert len(files) == 2 * 2536
    lines = {
        f"./{name.relative_to('corpus')}": hashlib.sha256(content).hexdigest()
        for name, content in files.items()
    }
    listed = "".join(f"{lines[name]}  {name}\n" for name in sorted(lines))
    assert hashlib.sha256(listed.encode()).hexdigest() == FILES


def by_words(mentions):
    return {(one.group, one.text): one for one in mentions}


def test_the_odd_cases(tmp_path):
    root = write_quaero(tmp_path)
    found = read_quaero(root)
    sets = [("train", "EMEA"), ("train", "MEDLINE"), ("dev", "EMEA"), ("dev", "MEDLINE")]
    assert list(found) == sets
    assert [len(mentions) for mentions in found.values()] == [7, 7, 7, 7]
    leaflet = by_words(found["train", "EMEA"])
    whole, nested = leaflet["DISO", "métastases hépatiques"], leaflet["ANAT", "hépatiques"]
    assert whole.spans[0][0] < nested.spans[0][0] and whole.spans[0][1] == nested.spans[0][1]
    assert whole.document == "train/EMEA/318_2"
    back, chronic = leaflet["DISO", "douleurs du dos"], leaflet["DISO", "douleurs chroniques"]
    assert len(back.spans) == 2 and back.spans[0][0] == chronic.spans[0][0]
    sleepy, alike = leaflet["DISO", "somnolence"], leaflet["PHYS", "somnolence"]
    assert sleepy.spans == alike.spans
    assert (sleepy.cuis, alike.cuis) == (("C0013144", "C2830004"), ("C0013144",))
    title = by_words(found["dev", "MEDLINE"])
    turned = title["DISO", "sinus de la face Fractures"]
    assert turned.spans[0] > turned.spans[1] and turned.cuis == ("C0272460",)
    notes = {words: (one.note, one.cuis) for (_, words), one in title.items()}
    assert notes["Fractures"] == ("C001665", ("C001665",))
    assert notes["brûlures"] == ("C0006434,C0274287", ("C0006434,C0274287",))
    assert notes["sinus"] == (" C0030471", ("", "C0030471"))
    assert notes["face"] == ("C0015450\t  ", ("C0015450",))
    assert notes["sinus de la face"] == (None, ())
    assert notes["la face"] == ("", ("",))


def test_wherever_it_lies(tmp_path):
    root = write_quaero(tmp_path)
    with tarfile.open(tmp_path / "QUAERO_FrenchMed.tar.gz", "w:gz") as packed:
        packed.add(root, ".")
    shutil.make_archive(str(tmp_path / "QUAERO_FrenchMed_brat"), "zip", tmp_path, root.name)
    found = read_quaero(root)
    paths = [
        root / "corpus",
        *(tmp_path / f"QUAERO_FrenchMed{e}" for e in (".tar.gz", "_brat.zip")),
    ]
    for path in paths:
        assert is_quaero(path) and read_quaero(path) == found
    assert is_quaero(root) and not is_quaero(tmp_path) and not is_quaero(root / "corpus" / "dev")
    shutil.rmtree(root / "corpus" / "train")
    assert list(read_quaero(root)) == [("dev", "EMEA"), ("dev", "MEDLINE")]


def test_what_cannot_be_used(tmp_path):
    root = write_quaero(tmp_path)
    title = root / "corpus" / "dev" / "MEDLINE" / "1050806.ann"
    kept = title.read_text()
    title.write_text(kept.replace("ANAT", "ANATO", 1))
    message = r"MEDLINE/1050806.ann:\d+: found the semantic group 'ANATO'; did you mean ANAT\?; exp"
    with pytest.raises(BadInput, match=message):
        read_quaero(root)
    title.write_text(kept.replace("T1\tDISO 0 9", "T1\tDISO 0 8"))
    with pytest.raises(
        BadInput, match="1050806.ann:1: found the mention 'Fractures' where the tex"
    ):
        read_quaero(root)
    title.write_text(kept)
    shutil.copytree(root / "corpus", root / "copy")
    with pytest.raises(BadInput, match="found dev/EMEA both in co.*; expected one corpus: give"):
        read_quaero(root)
    shutil.rmtree(root / "copy")
    (root / "notes").mkdir()
    for suffix in ("ann", "txt"):
        (root / "notes" / f"1.{suffix}").write_text("")
    with pytest.raises(
        BadInput, match="found notes/1.ann; expected the folder QUAERO_FrenchMed or"
    ):
        read_quaero(root)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadInput, match="found no mentions of the QUAERO corpus; expected the fold"):
        read_quaero(empty)


# -------------------------------------------------------------------------------------------------
# Files of mentions: one reader, whatever header they have; the same rows for all who use them.

ROWS = [("x", "C1|C2"), ("y", "C3"), ("z z", "C4")]
FILES_MENTIONS = {
    "header": "mention\tCUI\nx\tC1|C2\ny\tC3\nz z\tC4\n",
    "none": "x\tC1|C2\ny\tC3\nz z\tC4\n",
    "blanks": "Term\tconcept_id\n x \tC1 | C2\ny\tC3|\n\nz z\t|C4\n",
    "more": "id\tCUI\tmention\n1\tC1|C2\tx\n2\tC3\ty\n3\tC4\tz z\n",
    "quoted": '"mention"\t"CUI"\n"x"\t"C1|C2"\n"y"\t"C3"\n"z z"\t"C4"\n',
    "turned": "CUI\tMention\nC1|C2\tx\nC3\ty\nC4\tz z\n",
}


@pytest.mark.parametrize("name", FILES_MENTIONS)
def test_the_rows(name, write):
    path = write("mentions.tsv", FILES_MENTIONS[name])
    assert mention_rows(path) == ROWS
    assert mention_table(path).rows() == [("x", "C1"), ("x", "C2"), ("y", "C3"), ("z z", "C4")]
    fold = read_fold(path, Dictionary(["a"], ["C1"], "toy"))
    assert list(zip(fold.mentions, fold.gold, strict=True)) == ROWS


@pytest.mark.parametrize("header", [["term", "concept"], []])
def test_the_rows_of_a_workbook(header, tmp_path):
    path, book = tmp_path / "mentions.xlsx", openpyxl.Workbook()
    for row in (header, ["x", "C1|C2"], [], ["y", "C3"], [" z z", "C4 "]):
        book.active.append(row)
    book.save(path)
    assert mention_rows(path) == ROWS
    assert kind_of(path) is Mentions
    book.active["A4"] = None
    book.save(path)
    with pytest.raises(BadInput, match=r"mentions.xlsx:4: found an empty column; expected mention"):
        mention_rows(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mentions.tsv: found no lines; expected tab-separated rows"),
        (b"mention\tCUI\n", "found a header and no rows; expected mention<TAB>CUI"),
        (b"mention\tCUI\nd\xe9j\xe0\tC1\n", "mentions.tsv:2: found byte 0xe9, which is not UTF-8"),
        (b"x\tC1\ny\n", "mentions.tsv:2: found 1 columns; expected 2: mention<TAB>CUI"),
        (b"term\tsynonym\tCUI\nx\ty\tC1\n", "mentions.tsv:1: found 3 columns; expected 2"),
        (b"id\tmention\tCUI\n", "found a header and no rows; expected mentions and their CUIs"),
        (b"id\tmention\tCUI\n1\tx\n", "mentions.tsv:2: found 2 columns; expected the 3 of its h"),
        (b"id\tmention\tCUI\n1\t\tC1\n", "the mention '' with the CUIs 'C1'; expected a mention"),
        (b"x\tC1\ny\t|\n", "found the mention 'y' with the CUIs '|'; expected .* mend or remove"),
        (b"x\tC1\ny\t\n", "mentions.tsv:2: found an empty column; expected mention<TAB>CUI"),
    ],
)
def test_files_that_are_refused(content, message, tmp_path):
    path = tmp_path / "mentions.tsv"
    with pytest.raises(BadInput, match="mentions.tsv: cannot be read .No such file"):
        mention_rows(path)
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message.replace("|", r"\|")):
        mention_rows(path)
