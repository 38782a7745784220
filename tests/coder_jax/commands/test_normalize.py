"""The command `normalize`: TSV out, mentions from file or stdin, messages, pipes, stops."""

import base64
import contextlib
import csv
import gzip
import io
import json
import re
import signal
import subprocess
import sys
import threading
import types

import pytest
from openpyxl import Workbook, load_workbook
from tiny_bert import write_model

from coder_jax import TermEncoder
from coder_jax.__main__ import main
from coder_jax.commands import encode, normalize
from coder_jax.encoding.encoder import EncodedDictionary
from coder_jax.mapping.coded_list import CODED_COLUMNS, DECIDED_COLUMNS, read_decisions
from coder_jax.mapping.confidence import ALL, Cutoffs, CutoffTable, MeasuredRule
from data_pipeline.flags import parsed
from data_pipeline.process import TRY_AGAIN, BadInput, Stopped

DICTIONARY = "term\tCUI\nheart attack\tC1\nmyocardial infarction\tC1\nrenal failure\tC2\npain\tC3\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder


@pytest.fixture
def dictionary(tmp_path):
    (tmp_path / "terms.tsv").write_text(DICTIONARY)
    return tmp_path / "terms.tsv"


def test_stopped_it_says_that_a_new_start_begins_anew(monkeypatch, capsys):
    def stop(_: object) -> int:
        raise Stopped

    monkeypatch.setattr(normalize, "run", stop)
    assert main(["normalize", "--model", "bert", "--dictionary", "terms.tsv"]) == TRY_AGAIN
    assert capsys.readouterr().err.startswith("stopped; the same command starts over")


def run(model, dictionary, *arguments: object) -> int:
    common = ["--model", model, "--dictionary", dictionary]
    words = [str(a) for a in (*common, *arguments)]
    return normalize.run(parsed(normalize.OPTIONS, words)[0])


def table_of(text: str) -> list[dict[str, str]]:
    """The rows of a tab-separated table."""
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def test_the_concept_of_each_line(model, dictionary, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(normalize, "_MENTIONS_AT_A_TIME", 2)
    (tmp_path / "mentions.txt").write_text("pain\nRenal failure\n\nheart attacks", encoding="utf-8")
    assert run(model, dictionary, tmp_path / "mentions.txt") == 0
    rows = table_of(capsys.readouterr().out)
    assert list(rows[0]) == ["mention", *CODED_COLUMNS]
    assert [row["mention"] for row in rows] == ["pain", "Renal failure", "", "heart attacks"]
    assert [row["concept"] for row in rows] == ["C3", "C2", "", "C1"]
    assert [row["status"] for row in rows] == ["exact", "exact", "no answer", "misspelt"]
    assert [row["matched_term"] for row in rows] == ["pain", "renal failure", "", "heart attack"]
    assert (rows[1]["similarity"], rows[2]["reason"]) == ("1.0000", "empty")
    assert rows[3]["preferred_name"] == "heart attack"


def test_k_concepts_with_ranks_from_stdin(model, dictionary, capsys, monkeypatch):
    stdin = types.SimpleNamespace(buffer=io.BytesIO(b"acute pain\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    run(model, dictionary, "-", "-k", "5", "--pooling", "mean", "--candidates", "vectors")
    rows = table_of(capsys.readouterr().out)
    matches = TermEncoder.from_pretrained(model, "mean").normalize(["acute pain"], dictionary, 5)
    assert len(matches[0]) == 3  # the dictionary has no more concepts
    assert [
        (row["mention"], row["concept"], row["matched_term"], row["similarity"], row["rank"])
        for row in rows
    ] == [
        ("acute pain", match.concept, match.term, f"{match.similarity:.4f}", str(rank))
        for rank, match in enumerate(matches[0], start=1)
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pain\tC1\nlimb\n", r"terms.tsv:2: found 1 columns; expected 2: term<TAB>CUI"),
        ("pain\tC1\nlimb\tC2\tx\n", r"terms.tsv:2: found 3 columns"),
        ("pain\tC1\n\tC2\n", r"terms.tsv:2: found an empty column"),
        ("", r"terms.tsv: found no lines"),
        ("term\tCUI\n", r"terms.tsv: found a header and no rows"),
    ],
)
def test_malformed_dictionaries_name_file_and_line(model, tmp_path, content, message):
    (tmp_path / "terms.tsv").write_text(content)
    with pytest.raises(BadInput, match=message):
        run(model, tmp_path / "terms.tsv")


def test_mentions_that_cannot_be_used(model, dictionary, tmp_path):
    mentions = tmp_path / "mentions.txt"
    mentions.write_text("pain\nlimb\tC1\n")
    with pytest.raises(BadInput, match="mentions.txt:2: found a tab; expected one mention per"):
        run(model, dictionary, mentions)
    mentions.write_bytes(b"caf\xe9\n")
    with pytest.raises(BadInput, match="mentions.txt:1: found byte 0xe9, which is not UTF-8"):
        run(model, dictionary, mentions)
    with pytest.raises(BadInput, match="absent cannot be read"):
        run(model, dictionary, tmp_path / "absent")
    with pytest.raises(BadInput, match="-k is 0; expected 1 to 1,000 concepts"):
        run(model, dictionary, mentions, "-k", "0")


def start(model, dictionary, repo, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "coder_jax", "normalize", "--model", model]
    return subprocess.Popen(
        [*map(str, (*command, "--dictionary", dictionary, *arguments))],
        cwd=repo,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_vectors_that_were_encoded_before(model, dictionary, tmp_path, capsys, monkeypatch):
    mentions, vectors = tmp_path / "mentions.txt", tmp_path / "vectors.npy"
    mentions.write_text("acute pain\nheart\n")
    run(model, dictionary, mentions, "-k", "3")
    expected = capsys.readouterr().out
    command = ["--model", model, "--dictionary", dictionary, "--out", vectors]
    encode.run(parsed(encode.OPTIONS, [str(word) for word in command])[0])

    def as_it_is(encoder, dictionary, *, progress):
        assert isinstance(dictionary, EncodedDictionary), "it is encoded again"
        return dictionary

    monkeypatch.setattr(TermEncoder, "encode_dictionary", as_it_is)
    capsys.readouterr()
    run(model, dictionary, mentions, "-k", "3", "--dictionary-vectors", vectors)
    assert capsys.readouterr().out == expected
    with pytest.raises(
        BadInput, match="encoder.pooling: 'cls' there, 'mean' here.*--dictionary DICT"
    ):
        run(model, dictionary, mentions, "--dictionary-vectors", vectors, "--pooling", "mean")
    dictionary.write_text(DICTIONARY.replace("pain", "pains"))
    with pytest.raises(BadInput, match=r"vectors.npy: was made of something else \(terms.hash"):
        run(model, dictionary, mentions, "--dictionary-vectors", vectors)


def test_retired_concepts_go_by_their_new_name(model, dictionary, tmp_path, capsys):
    (tmp_path / "mentions.txt").write_text("pain\n")
    (tmp_path / "MRCUI.RRF").write_text("C3|2019AA|SY|||C9|Y|\n")
    run(model, dictionary, tmp_path / "mentions.txt", "--retired-cuis", tmp_path / "MRCUI.RRF")
    assert capsys.readouterr().out.splitlines()[1].split("\t")[1] == "C9"


def test_lines_and_pauses(tmp_path):
    (tmp_path / "mentions.txt").write_bytes("\ufeffa\r\n\n\u2028b\nlast".encode())
    for stream in ((tmp_path / "mentions.txt").open("rb"), None):
        stream = stream or io.BytesIO((tmp_path / "mentions.txt").read_bytes())
        with stream:
            read = list(normalize._read_mentions(stream, "mentions.txt"))
        assert read == [["a", "", "\u2028b", "last"]]


@pytest.mark.slow
def test_a_pause_is_answered_and_sigterm_ends_it(model, dictionary, repo):
    process = start(model, dictionary, repo)
    too_long = threading.Timer(120, process.kill)
    too_long.start()
    process.stdin.write("pain\nheart attack\n")
    process.stdin.flush()  # and stays open
    rows = [process.stdout.readline().split("\t")[:2] for _ in range(3)]
    assert rows == [["mention", "concept"], ["pain", "C3"], ["heart attack", "C1"]]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    too_long.cancel()
    _, errors = process.communicate()
    assert "SIGTERM: stopping after the rows that are printed" in errors


@pytest.mark.slow
def test_a_reader_that_stops_is_no_error(model, dictionary, repo):
    """As `normalize ... | head -1` does: the pipe is closed while rows are still to come."""
    process = start(model, dictionary, repo, "-k", "3")
    process.stdout.close()
    _, errors = process.communicate("pain\n" * 5000)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and "BrokenPipe" not in errors


# -------------------------------------------------------------------------------------------------
# The command `normalize` on tables: columns, files, review and decisions, no answer.

DICTIONARY_NORMALIZE_TABLES = """\
code;concept;preferred;description;vocabulary;semantic_type
10;LEFT;1;Hemiplegia (left);ICD;Disease
11;RIGHT;1;Hemiplegia (right);ICD;Disease
12;RIGHT;0;Right-sided hemiplegia;LOCAL;Disease
13;DM1;1;Diabetes mellitus (type 1);ICD;Disease
14;DM2;1;Diabetes mellitus (type 2);ICD;Disease
15;MI;1;Myocardial infarction (disorder);SNOMEDCT_US;Disease
16;HA;1;Headache;ICD;Symptom
"""
LIST = """\
id;local term;ward
1;Hemiplegia (right);A
2;diabetes  mellitus (TYPE 2);B
3;n/a;B
4;"myocardial; infarct";C
5;Myocardial infarction;C
6;see attached letter;D
7;Hemiplegia (right);D
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "terms.csv").write_text(DICTIONARY_NORMALIZE_TABLES)
    (tmp_path / "list.csv").write_text(LIST)
    return tmp_path


@pytest.fixture
def run_of_normalize_tables(files, minilm_path, monkeypatch):
    """Runs the command on the list and returns the rows of coded.csv."""

    def run(*arguments, out="coded.csv", given="list.csv"):
        common = ["--model", minilm_path, "--dictionary", "terms.csv", "--out", out]
        words = [str(word) for word in (*common, *arguments, given)]
        assert normalize.run(parsed(normalize.OPTIONS, words)[0]) == 0
        if out.endswith(".csv"):
            content = io.StringIO((files / out).read_bytes().decode(), newline="")
            return list(csv.DictReader(content, delimiter=";"))
        return out

    monkeypatch.chdir(files)
    return run


def test_a_list_in_the_same_list_coded(run_of_normalize_tables, files, capsys):
    rows = run_of_normalize_tables("--column", "Local_Term")
    assert list(rows[0]) == ["id", "local term", "ward", *CODED_COLUMNS]
    assert [row["id"] for row in rows] == list("1234567")
    assert [row["concept"] for row in rows] == ["RIGHT", "DM2", "", "MI", "MI", "", "RIGHT"]
    statuses = ["exact", "exact", "no answer", "near", "exact", "no answer", "exact"]
    assert [row["status"] for row in rows] == statuses
    assert rows[0]["preferred_name"] == "Hemiplegia (right)"
    assert (rows[0]["code"], rows[0]["vocabulary"]) == ("11|12", "ICD|LOCAL")
    assert rows[4]["matched_term"] == "Myocardial infarction (disorder)"
    assert rows[4]["semantic_type"] == "Disease"
    assert rows[2]["reason"] == rows[5]["reason"] == "a placeholder"
    assert (files / "coded.csv").read_text().splitlines()[4].startswith('4;"myocardial; infarct";C')
    assert "7 rows: 4 exact, 1 near, 2 no answer; written to coded.csv" in capsys.readouterr().err


def test_codes_of_some_vocabularies_and_more_concepts(run_of_normalize_tables):
    rows = run_of_normalize_tables(
        "--column", "local term", "--codes-of", "LOCAL", "-k", "2", "--prefix", "my_"
    )
    assert [(row["id"], row["my_rank"]) for row in rows[:4]] == [
        ("1", "1"), ("1", "2"), ("2", "1"), ("2", "2"),
    ]  # fmt: skip
    assert (rows[0]["my_code"], rows[2]["my_code"]) == ("12", "")
    assert rows[1]["my_concept"] == "LEFT"
    assert [row["my_status"] for row in rows[:2]] == ["exact", "near"]


def test_some_concepts_of_the_dictionary(run_of_normalize_tables):
    rows = run_of_normalize_tables("--column", "local term", "--semantic-types", "Symptom")
    assert {row["concept"] for row in rows} == {"", "HA"}


def test_a_workbook_in_and_out(run_of_normalize_tables, files):
    book = Workbook()
    for row in csv.reader(LIST.splitlines(), delimiter=";"):
        book.active.append(row)
    book.save(files / "list.xlsx")
    run_of_normalize_tables("--column", "local term", out="coded.xlsx", given="list.xlsx")
    rows = list(load_workbook(files / "coded.xlsx").active.values)
    assert rows[0] == ("id", "local term", "ward", *CODED_COLUMNS)
    assert [row[3] for row in rows[1:]] == ["RIGHT", "DM2", None, "MI", "MI", None, "RIGHT"]


def a_workbook(path):
    """A hospital's workbook: a cover, and a list under a title, with numbers in their formats."""
    book = Workbook()
    book.active.title = "cover"
    book.active["A1"] = "City Hospital"
    sheet = book.create_sheet("local terms")
    for row in (["Terms of 2024"], [], ["id", "local term", "count"], [7, "Headache", 1250.5]):
        sheet.append(row)
    sheet.append([8, "Hemiplegia (left)", "=1+1"])
    sheet["A4"].number_format, sheet["C4"].number_format = "000", "#,##0.00"
    sheet["A7"] = "end of the list"
    book.save(path)


def test_a_workbook_made_of_a_workbook_keeps_all_that_it_had(
    run_of_normalize_tables, files, capsys
):
    a_workbook(files / "list.xlsx")
    arguments = ("--sheet", "local terms", "--column", "local term")
    run_of_normalize_tables(*arguments, out="coded.xlsx", given="list.xlsx")
    assert "the header is row 3, which has 'local term'" in capsys.readouterr().err
    book = load_workbook(files / "coded.xlsx")
    assert book.sheetnames == ["cover", "local terms"]
    assert book["cover"]["A1"].value == "City Hospital"
    sheet = book["local terms"]
    assert sheet["A1"].value == "Terms of 2024" and sheet["A7"].value == "end of the list"
    assert [cell.value for cell in sheet[3]] == ["id", "local term", "count", *CODED_COLUMNS]
    assert (sheet["A4"].value, sheet["A4"].number_format) == (7, "000")
    assert (sheet["C4"].value, sheet["C4"].number_format) == (1250.5, "#,##0.00")
    assert [sheet[f"D{row}"].value for row in range(4, 8)] == ["HA", "LEFT", None, None]
    of_similarity = sheet.cell(4, 4 + list(CODED_COLUMNS).index("similarity"))
    assert (of_similarity.value, of_similarity.data_type) == (1, "n")


def test_a_heading_across_the_sheet_makes_room_for_the_new_columns(run_of_normalize_tables, files):
    a_workbook(files / "list.xlsx")
    book = load_workbook(files / "list.xlsx")
    book["local terms"]["A5"] = "Discharge"
    book["local terms"]["B5"] = None
    book["local terms"].merge_cells("A5:Z5")
    book.save(files / "list.xlsx")
    arguments = ("--sheet", "local terms", "--column", "local term")
    run_of_normalize_tables(*arguments, out="coded.xlsx", given="list.xlsx")
    sheet = load_workbook(files / "coded.xlsx")["local terms"]
    statuses = 4 + list(CODED_COLUMNS).index("status")
    assert [sheet.cell(row, statuses).value for row in (4, 5)] == ["exact", "no answer"]


def test_a_workbook_with_more_rows_than_its_list(run_of_normalize_tables, files):
    a_workbook(files / "list.xlsx")
    book = load_workbook(files / "list.xlsx")
    book["local terms"]["A5"] = "=8"
    book["local terms"]["A5"].data_type = "s"
    book["local terms"]["B5"].hyperlink = "https://example.org"
    book["local terms"].row_dimensions[5].hidden = True
    book["cover"]["A2"] = "='local terms'!B5"
    book.save(files / "list.xlsx")
    arguments = ("--sheet", "local terms", "--column", "local term", "-k", "2", "--header-row", "3")
    run_of_normalize_tables(*arguments, out="coded.xlsx", given="list.xlsx")
    made = load_workbook(files / "coded.xlsx")
    for name in book.sheetnames:
        assert list(made[name].values) == list(book[name].values)
    assert made["local terms"]["B5"].hyperlink and made["local terms"].row_dimensions[5].hidden
    assert made.sheetnames[0] == made.active.title == "coded"
    assert [one.sheet_view.tabSelected for one in made.worksheets] == [True, False, False]
    sheet = made.active
    shown = [[sheet.cell(row, column).value for column in (1, 2, 4)] for row in range(2, 8)]
    assert [row[:2] for row in shown] == [
        [7, "Headache"], [7, "Headache"], ["=8", "Hemiplegia (left)"], ["=8", "Hemiplegia (left)"],
        ["end of the list", None], [None, None],
    ]  # fmt: skip
    assert [shown[0][2], shown[2][2], shown[3][2]] == ["HA", "LEFT", "RIGHT"]
    assert [cell.value for cell in sheet[1]] == ["id", "local term", "count", *CODED_COLUMNS]
    assert sheet["A3"].number_format == "000" and sheet["C4"].value is None, "never computed"
    assert sheet["A4"].data_type == sheet["A5"].data_type == "s", "no formula"


@pytest.mark.slow
def test_text_made_of_a_workbook_is_what_excel_opens(run_of_normalize_tables, files):
    a_workbook(files / "list.xlsx")
    arguments = ("--sheet", "local terms", "--column", "local term")
    run_of_normalize_tables(*arguments, given="list.xlsx")
    content = (files / "coded.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbfid,local term,count,concept,")
    assert content.splitlines(keepends=True)[1].startswith(b"007,Headache,1250.5,HA,")
    assert content.count(b"\r\n") == content.count(b"\n") == 4
    run_of_normalize_tables(*arguments, "--separator", ";", given="list.xlsx")
    assert (files / "coded.csv").read_bytes().startswith(b"\xef\xbb\xbfid;local term;count;")


@pytest.mark.parametrize(
    ("out", "what"),
    [
        ("list.csv", "the list"),
        ("./../{folder}/list.csv", "the list"),
        ("link.csv", "the list"),
        ("hard.csv", "the list"),
        ("terms.csv", "--dictionary"),
        ("own.tsv", "--abbreviations"),
    ],
)
def test_what_is_read_is_never_written_over(run_of_normalize_tables, files, out, what):
    (files / "link.csv").symlink_to("list.csv")
    (files / "hard.csv").hardlink_to(files / "list.csv")
    (files / "own.tsv").write_text("HA\theadache\n")
    before = {name: (files / name).read_bytes() for name in ("list.csv", "terms.csv", "own.tsv")}
    for option in ("--out", "--review"):
        name = out.format(folder=files.name)
        with pytest.raises(
            BadInput, match=f"{option}: found .*, which is read as {what}; expected"
        ):
            run_of_normalize_tables(
                "--column", "local term", "--abbreviations", "own.tsv", option, name
            )
    assert before == {name: (files / name).read_bytes() for name in before}


def test_no_answer_below_a_similarity(run_of_normalize_tables):
    rows = run_of_normalize_tables("--column", "local term", "--min-similarity", "0.99")
    assert rows[3]["status"] == "no answer" and rows[3]["concept"] == ""
    assert rows[3]["matched_term"] == "Myocardial infarction (disorder)"
    assert rows[3]["reason"] == f"similarity {float(rows[3]['similarity']):.3f} is below 0.990"
    assert rows[4]["status"] == "exact", "a string of the dictionary needs no cut-off"


def measured(files, sure, dictionary=7):
    """cutoffs.json by which a similarity of 0.5 has the confidence 0.5."""
    table = CutoffTable(100, [0.2, sure], [100, 40], [50, 38])
    rule = MeasuredRule(3.0, -5.0, 10.0, 0.0)
    described = {"candidates": "both", "dictionary": {"source": "terms.tsv", "terms": dictionary}}
    tables, rules = {ALL: table, "GER": table}, {ALL: rule, "GER": rule}
    Cutoffs(tables, described, rules).write(files / "cutoffs.json")


@pytest.mark.slow
def test_as_precise_as_asked_for(run_of_normalize_tables, files, capsys):
    run_of_normalize_tables("--column", "local term")
    assert "was not measured for this model, so confidence stays" in capsys.readouterr().err
    measured(files, 0.5)
    common = ("--column", "local term", "--cutoffs", "cutoffs.json")
    rows = run_of_normalize_tables(*common, "--precision", "0.9", "--language", "GER")
    said = capsys.readouterr().err
    assert "answers from confidence 0.500 on: on 100 terms of GER" in said
    assert "warning" not in said
    assert rows[3]["status"] == "near" and float(rows[3]["confidence"]) > 0.5
    measured(files, 0.999)
    rows = run_of_normalize_tables(*common, "--precision", "0.9")
    assert rows[3]["status"] == "no answer" and "is below 0.999" in rows[3]["reason"]
    rows = run_of_normalize_tables(*common)
    assert rows[3]["status"] == "near" and rows[3]["confidence"], "told, if not asked for"
    measured(files, 0.5, dictionary=30_000)
    capsys.readouterr()
    run_of_normalize_tables(*common)
    said = " ".join(capsys.readouterr().err.split())
    assert "confidence was measured with a dictionary of 30,000 terms (terms.tsv), this one" in said
    with pytest.raises(BadInput, match=r"no cut-off of all.*the best is 0.95"):
        run_of_normalize_tables(*common, "--precision", "0.99")
    with pytest.raises(BadInput, match="was measured with both; leave it out, or measure anew"):
        run_of_normalize_tables(*common, "--precision", "0.9", "--candidates", "vectors")


@pytest.mark.slow
def test_the_mapping_for_other_programs(run_of_normalize_tables, files, capsys):
    common = ("--column", "local term", "--code-column", "id")
    (files / "decisions.csv").write_text("mention,concept,decision,note\nn/a,HA,accepted,sure\n")
    maps = ("--map-file", "sssom=map.sssom.tsv", "--map-file", "fhir=map.json")
    rows = run_of_normalize_tables(*common, "--decided", "decisions.csv", *maps)
    assert "sssom: written to map.sssom.tsv\nfhir: written to map.json\n" in capsys.readouterr().err
    assert len(rows) == 7, "coded.csv as ever"
    lines = (files / "map.sssom.tsv").read_text().splitlines()
    assert "list:3\tn/a\tskos:exactMatch\tconcept:HA\tHeadache" in lines[-5]
    assert '"code": "16"' in (files / "map.json").read_text(), "the dictionary's code of Headache"
    again = run_of_normalize_tables("--column", "local term", "--decided", "map.sssom.tsv")
    assert [row["status"] for row in again] == [row["status"] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--map-file", "usagi=u.csv"), "found the concept LEFT; expected OMOP's concept_id"),
        (("--map-file", "ussagi=u.csv"), "found 'ussagi=u.csv'; expected FORMAT=FILE.*usagi"),
        (("--map-file", "fhir=a.json", "--map-file", "fhir=b.json"), "each format once"),
        (("--map-file", "fhir=list.csv"), "--map-file.*list.csv"),
        (("--map-file", "fhir=coded.csv"), "coded.csv, which --out writes, too"),
        (("--map-file", "fhir=a", "--map-file", "sssom=a"), "a, which --map-file writes, too"),
        (("--code-column", "id"), "--code-column: found no --review, --decided or --map-file"),
        (("--map-file", "fhir=a", "--code-column", "local term"), "found the column of the terms"),
        (("--map-file", "fhir=a.json", "--code-column", "code"), "no column has that name"),
    ],
)
def test_maps_that_cannot_be_written(run_of_normalize_tables, files, arguments, message):
    before = (files / "list.csv").read_bytes()
    with pytest.raises(BadInput, match=message):
        run_of_normalize_tables("--column", "local term", *arguments)
    assert (files / "list.csv").read_bytes() == before
    assert {one.name for one in files.iterdir()} <= {"list.csv", "terms.csv", "coded.csv"}


def test_a_review_and_what_was_decided(run_of_normalize_tables, files, capsys):
    run_of_normalize_tables("--column", "local term", "--review", "review.html")
    assert "to decide: open review.html in a browser" in capsys.readouterr().err
    page = (files / "review.html").read_text()
    assert "<title>" in page and "list.csv" in page
    (files / "decisions.csv").write_text(
        "mention,concept,decision,note\nHemiplegia (right),,rejected,no\nn/a,HA,accepted,sure\n"
    )
    rows = run_of_normalize_tables("--column", "local term", "--decided", "decisions.csv")
    assert [row["status"] for row in rows[::6]] == ["no answer", "no answer"]
    assert rows[0]["reason"] == "rejected in review"
    assert (rows[2]["status"], rows[2]["concept"], rows[2]["similarity"]) == ("decided", "HA", "")
    assert rows[1]["status"] == "exact", "what is open is mapped anew"
    (files / "decisions.csv").write_text("mention,concept,decision\nn/a,X,accepted\n")
    with pytest.raises(BadInput, match="found X for 'n/a'"):
        run_of_normalize_tables("--column", "local term", "--decided", "decisions.csv")


@pytest.mark.slow
def test_who_decided_and_when_goes_with_the_list(run_of_normalize_tables, files):
    """And nothing in it is computed, and it is itself a file of decisions."""
    (files / "list.csv").write_text("id;local term\n1;=1+1\n2;n/a\n3;Hemiplegia\n4;-5\n5;\n")
    (files / "decisions.csv").write_text(
        "mention,concept,decision,note,reviewer,date\n'=1+1,HA|MI,accepted,sure,Anna,2026-03-01\n"
        "n/a,,rejected,,Ben,2026-03-02\nHemiplegia,,open,@ask,,\n"
    )
    common = ("--column", "local term", "--review", "review.html", "--decided")
    rows = run_of_normalize_tables(*common, "decisions.csv")
    assert list(rows[0]) == ["id", "local term", *CODED_COLUMNS, *DECIDED_COLUMNS]
    shown = ("local term", "concept", *DECIDED_COLUMNS)
    assert [tuple(row[name] for name in shown) for row in rows] == [
        ("'=1+1", "HA", "Anna", "2026-03-01", "sure"),
        ("'=1+1", "MI", "Anna", "2026-03-01", "sure"),
        ("n/a", "", "Ben", "2026-03-02", ""),
        ("Hemiplegia", rows[3]["concept"], "", "", "'@ask"),
        ("-5", "", "", "", ""),
        ("", "", "", "", ""),
    ]
    page = re.search(r'id="contents"[^>]*>([^<]+)<', (files / "review.html").read_text())
    contents = json.loads(gzip.decompress(base64.b64decode(page[1])))
    assert [2, [], "@ask", "", "", True] in contents["decided"]
    again = run_of_normalize_tables(*common, "coded.csv", out="again.csv")
    assert again == rows, "the coded list says the same"
    run_of_normalize_tables(*common, "decisions.csv", "--prefix", "x_", out="coded.xlsx")
    rows = run_of_normalize_tables(*common, "coded.xlsx", "--prefix", "x_")
    assert [row["x_decision_note"] for row in rows] == ["sure", "sure", "", "'@ask", "", ""]
    with pytest.raises(BadInput, match=r"--prefix"):
        run_of_normalize_tables("--column", "local term", given="again.csv")


@pytest.mark.slow
def test_the_same_text_is_decided_for_each_code(run_of_normalize_tables, files, capsys):
    (files / "list.csv").write_text("id;local term\nL1;AP\nD2;AP\nD3;AP\n03;Headache\n")
    (files / "decisions.csv").write_text(
        "mention,code,concept,decision,note,reviewer,date\nAP,L1,MI,accepted,,Anna,2026-03-01\n"
        "AP,D2,HA|DM1,accepted,,Anna,2026-03-01\nHeadache,3,MI,accepted,,,\n"
    )
    common = ("--column", "local term", "--decided", "decisions.csv", "--code-column", "id")
    rows = run_of_normalize_tables(*common, "--map-file", "sssom=map.tsv", "--review", "r.html")
    found = [(row["id"], row["concept"], row["status"]) for row in rows]
    assert found[:3] == [("L1", "MI", "decided"), ("D2", "HA", "decided"), ("D2", "DM1", "decided")]
    assert found[3][2] != "decided" and found[4] == ("03", "HA", "exact")
    said = capsys.readouterr().err
    assert "1 of 3 decisions are on codes and mentions that the list does not have" in said
    assert "'Headache' of the code 3" in said and "4 mentions)" in said
    again = run_of_normalize_tables(*common[:3], "map.tsv", *common[4:], "--review", "again.html")
    assert again == rows, "an SSSOM file says the same"
    with pytest.raises(BadInput, match="MI accepted for 'AP' of the code L1.*give --code-column"):
        run_of_normalize_tables(*common[:4])


@pytest.mark.slow
def test_what_was_decided_is_learnt(run_of_normalize_tables, files, capsys):
    mentions = ["Kopfweh", "KOPFWEH ", "Kopfwehh", "Kopfweh stark", "n/a", "Headache", "zucker"]
    lines = [f"{number};{mention}\n" for number, mention in enumerate(mentions)]
    (files / "list.csv").write_text("id;local term\n" + "".join(lines))
    (files / "decisions.csv").write_text(
        "mention,code,concept,decision\nKopfweh,,HA,accepted\nheadache,,HA,accepted\n"
        "zucker,1,DM1,accepted\nzucker,2,DM2,accepted\nfever,,,rejected\nboth,,HA|MI,accepted\n"
    )
    before = (files / "terms.csv").read_bytes()
    common = ("--column", "local term", "--decided", "d.csv")
    (files / "d.csv").write_text("mention,concept,decision\nKopfweh,HA,accepted\n")
    plain = run_of_normalize_tables(*common)
    assert [row["status"] for row in plain[:2]] == ["decided", "near"]
    rows = run_of_normalize_tables(*common, "--learn")
    found = [(row["concept"], row["status"], row["reason"]) for row in rows]
    assert found[:3] == [("HA", "decided", ""), *[("HA", "learnt", "learnt")] * 2]
    assert (found[3][0], found[3][1]) == ("HA", "near") and found[3][2].startswith("learnt")
    assert found[4][1] == "no answer" and found[5] == ("HA", "exact", "")
    assert rows[1]["matched_term"] == "Kopfweh" and rows[1]["preferred_name"] == "Headache"
    assert "learnt 1 names of --decided that" in capsys.readouterr().err
    assert (files / "terms.csv").read_bytes() == before
    names = read_decisions(files / "decisions.csv").names()
    assert names == [("Kopfweh", "HA"), ("headache", "HA")], "one concept, and always that"
    coded = "mention,code,concept,decision\nAP,L1,MI,accepted\n"
    (files / "decisions.csv").write_text(coded)
    decisions = read_decisions(files / "decisions.csv")
    assert decisions.names([("AP", "L1"), ("ap", "L2")]) == [("AP", "MI")]
    assert decisions.names([("AP", "L1"), ("AP", "D7")]) == [], "nobody said what D7's AP is"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--learn: found no --decided; expected the decisions to learn from"),
        (("--decided", "d.csv", "--by", "classes"), "--learn is for terms of a dictionary"),
    ],
)
def test_nothing_to_learn_from(run_of_normalize_tables, arguments, message):
    with pytest.raises(BadInput, match=message):
        run_of_normalize_tables("--column", "local term", "--learn", *arguments)


def test_the_most_frequent_terms_come_first(run_of_normalize_tables, files, capsys):
    (files / "list.csv").write_text("Anzahl;local term\n5;Headache\n1.250;fever\nx;cough\n")
    common = ("--column", "local term", "--review", "r.html", "--map-file", "sssom=map.tsv")
    run_of_normalize_tables(*common)
    assert "the column 'Anzahl' says how often a term is used" in capsys.readouterr().err
    packed = re.search(r'id="contents">([^<]+)<', (files / "r.html").read_text())[1]
    contents = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert [(row[0], row[-1]) for row in contents["rows"]] == [
        *(("Headache", 5), ("fever", 1250), ("cough", 1)),
    ]
    assert contents["columns"] == []
    with pytest.raises(BadInput, match="--frequency-column local term: found the column of the t"):
        run_of_normalize_tables(*common, "--frequency-column", "local term")
    with pytest.raises(BadInput, match="--frequency-column: found no --review or --map-file"):
        run_of_normalize_tables(*common[:2], "--frequency-column", "Anzahl")


def test_a_text_without_columns_says_unused_decisions_too(files, minilm_path, capsys):
    (files / "list.txt").write_text("Headache\n")
    (files / "decisions.csv").write_text("mention,concept,decision\nMI,MI,accepted\n")
    run(minilm_path, files / "terms.csv", "--decided", files / "decisions.csv", files / "list.txt")
    assert "1 of 1 decisions are on mentions that the list does not have" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "list.csv has the columns id, local term, ward; say with --column which"),
        (("--column", "locl term"), "--column locl term: no column has that name; .*did you mean"),
        (("--column", "ward", "--out", "coded.doc"), "--out: found coded.doc; expected a name"),
        (("--column", "ward", "-k", "0"), "-k is 0; expected 1 to 1,000"),
        (
            ("--column", "ward", "--min-similarity", "2"),
            "--min-similarity is 2.0; expected -1 to 1",
        ),
        (("--column", "ward", "--precision", "1"), "--precision is 1.0; expected a share"),
        (("--column", "ward", "--precision", "0.9"), "found no .*cutoffs.json; .*--cutoffs"),
        (("--column", "ward", "--decided", "absent.csv"), "absent.csv"),
        (("--column", "ward", "--abbreviations", "absent.tsv"), "absent.tsv"),
        (("--column", "ward", "--dictionary-sources", "X"), "--dictionary-sources X: no term"),
        (("--column", "ward", "--encoding", "klingon"), "--encoding: found 'klingon'"),
        (
            ("--column", "ward", "--codes-of", "LOCAL,SNOMEDCT"),
            "--codes-of SNOMEDCT: terms.csv has no code of it; it has ICD, LOCAL, SNOMEDCT_US; "
            r"did you mean SNOMEDCT_US\?",
        ),
        (("--column", "ward", "--term-column", "x"), "--term-column x: no column has that name"),
        (("--column", "ward", "--header-row", "9"), "found nothing in row 9"),
        (("--column", "ward", "--out", "coded.xlsx"), "7 rows; an Excel sheet has room for 2 and"),
    ],
)
def test_all_is_checked_before_anything_is_encoded(
    run_of_normalize_tables, files, monkeypatch, arguments, message
):
    def never(*_, **__):
        pytest.fail("the encoder was loaded")

    monkeypatch.setattr(TermEncoder, "from_pretrained", never)
    monkeypatch.setattr("data_pipeline.files.tables._MOST_ROWS", 3)
    with pytest.raises(BadInput, match=message):
        run_of_normalize_tables(*arguments)
    assert not (files / "coded.csv").exists()


def test_a_list_with_a_column_of_its_own_called_code(run_of_normalize_tables, files, capsys):
    (files / "list.csv").write_text("Code;local term\n1;Hemiplegia (right)\n", encoding="utf-8")
    (files / "own.csv").write_text("mention,concept,decision\nHemiplegia (right),MI,accepted\n")
    rows = run_of_normalize_tables("--column", "local term", "--decided", "own.csv")
    assert (rows[0]["Code"], rows[0]["coded_concept"], "concept" in rows[0]) == ("1", "MI", False)
    told = capsys.readouterr().err
    assert "has a column 'Code' itself, so the added ones are called coded_concept" in told
    again = run_of_normalize_tables("--column", "local term", "--decided", "coded.csv", out="b.csv")
    assert again == rows, "the coded list is a file of decisions for the same list"


@pytest.mark.slow
def test_a_coded_list_is_not_coded_over(run_of_normalize_tables, files):
    run_of_normalize_tables("--column", "local term")
    with pytest.raises(BadInput, match=r"has a column 'concept' already.*--prefix"):
        run_of_normalize_tables("--column", "local term", given="coded.csv", out="again.csv")
    rows = run_of_normalize_tables(
        "--column", "local term", "--prefix", "new_", given="coded.csv", out="again.csv"
    )
    assert rows[0]["concept"] == rows[0]["new_concept"] == "RIGHT"


@pytest.mark.parametrize(
    "arguments", [(), ("--precision", "0.9"), ("--review", "r.html"), ("--candidates", "both")]
)
def test_a_forgotten_dictionary_is_said(files, minilm_path, monkeypatch, arguments):
    monkeypatch.chdir(files)
    words = ["--model", str(minilm_path), "--column", "local term", *arguments, "list.csv"]
    with pytest.raises(
        BadInput, match="^--dictionary is missing, and .* has no classes; expected .*Athena"
    ):
        normalize.run(parsed(normalize.OPTIONS, words)[0])


def test_decisions_on_what_the_list_does_not_have_are_said(run_of_normalize_tables, files, capsys):
    (files / "decisions.csv").write_text(
        "mention,concept,decision\nn/a,HA,accepted\nHeadache ,HA,accepted\nMI,MI,accepted\n"
    )
    run_of_normalize_tables("--column", "local term", "--decided", "decisions.csv")
    said = capsys.readouterr().err
    assert "2 of 3 decisions are on mentions that the list does not have" in said
    assert "'Headache ', 'MI'" in said


@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        ("douleur\rMénière\r".encode(), ()),
        ("douleur\nMénière\n".encode("latin-1"), ("--encoding", "latin-1")),
        ("douleur\r\nMénière\r\n".encode("utf-16"), ()),
        ("douleur\nMénière\n".encode("utf-16-le"), ("--encoding", "utf-16-le")),
        (gzip.compress("douleur\nMénière\n".encode(), mtime=0), ()),
    ],
)
def test_text_of_other_programs(files, content, arguments):
    path = files / ("list.txt.gz" if content.startswith(b"\x1f") else "list.txt")
    path.write_bytes(content)
    words = ["--model", "x", "--dictionary", "y", *arguments, str(path)]
    options = parsed(normalize.OPTIONS, words)[0]
    with contextlib.ExitStack() as held:
        assert list(normalize._read_text(options, held)) == [["douleur", "Ménière"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("list.ods", b"PK\x03\x04\0\0", "list.ods: found .ods; expected .xlsx, .csv or .tsv"),
        ("list.XLS", b"\xd0\xcf\x11\xe0", "list.XLS: found .XLS; expected .xlsx"),
        (
            "list.csv.gz",
            gzip.compress(b"a,b\n1,2\n", mtime=0),
            "has the columns a, b; say with --column",
        ),
        ("list.txt", b"PK\x03\x04\n", "list.txt: found a zip archive"),
        ("list.txt", "pain\n".encode("utf-16-le"), "list.txt:1: found a zero byte"),
    ],
)
def test_lists_that_are_no_text(files, name, content, message):
    (files / name).write_bytes(content)
    words = ["--model", "x", "--dictionary", "y", str(files / name)]
    options = parsed(normalize.OPTIONS, words)[0]
    with contextlib.ExitStack() as held, pytest.raises(BadInput, match=message):
        assert normalize._read_list(options)[0] is None
        list(normalize._read_text(options, held))


@pytest.mark.parametrize("option", ["--separator=;", "--sheet=x", "--header-row=2"])
def test_options_of_tables_are_not_for_text(files, option):
    (files / "list.txt").write_text("pain\n")
    words = ["--model", "x", "--dictionary", "y", option, str(files / "list.txt")]
    with pytest.raises(BadInput, match=f"{option.split('=')[0]}: found a list without columns"):
        normalize._read_list(parsed(normalize.OPTIONS, words)[0])


@pytest.mark.parametrize(("first", "said"), [("Fieber", True), ("Term", False)])
def test_a_list_whose_header_may_be_a_term(files, capsys, first, said):
    (files / "list.csv").write_text(f"{first}\nHusten\n")
    words = ["--model", "x", "--dictionary", "y", str(files / "list.csv")]
    assert normalize._read_list(parsed(normalize.OPTIONS, words)[0])[1] == first
    told = "the first row, 'Fieber', is taken for the header; if it is a term"
    assert (told in capsys.readouterr().err) is said


def test_stdin_is_no_table(run_of_normalize_tables, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(LIST))
    with pytest.raises(BadInput, match="found stdin as the list; expected a file"):
        run_of_normalize_tables("--column", "local term", given="-")


# -------------------------------------------------------------------------------------------------
# What a mention says beside the name, and what may not differ, with a real encoder.


@pytest.fixture
def rows_of(minilm_path, tmp_path, capsys):
    """Maps mentions to terms of their own concepts; returns the rows."""

    def rows_of(terms, mentions, *arguments):
        lines = [f"{term}\t{concept}" for concept, term in terms.items()]
        (tmp_path / "own.tsv").write_text("\n".join(["term\tconcept", *lines]) + "\n")
        (tmp_path / "list.txt").write_text("\n".join(mentions) + "\n", encoding="utf-8")
        common = [tmp_path / "own.tsv", "--pooling", "mean", "--no-cache", *arguments]
        run(minilm_path, *common, tmp_path / "list.txt")
        return table_of(capsys.readouterr().out)

    return rows_of


ILLS = {"FEVER": "Fever", "CP": "Chest pain", "PNEU": "Pneumonia", "BC": "Breast cancer"}
SAID = {
    "no fever": "negated",
    "denies chest pain": "negated",
    "rule out pneumonia": "possible",
    "mother had breast cancer": "family",
    "s/p pneumonia": "history",
    "Fever": "",
}


def test_what_is_denied_suspected_or_of_others_is_no_answer(rows_of):
    rows = rows_of(ILLS, SAID)
    assert [row["context"] for row in rows] == list(SAID.values())
    assert [row["concept"] for row in rows] == ["", "", "", "", "", "FEVER"]
    assert [row["status"] for row in rows] == ["no answer"] * 5 + ["exact"]
    assert rows[3]["reason"] == "context: family" and rows[3]["matched_term"] == "Breast cancer"


def test_context_code_and_a_rule_of_ones_own(rows_of, tmp_path):
    (tmp_path / "rules.tsv").write_text("cave\tpossible\tbefore\n")
    coded = ["--context", "code", "--context-rules", tmp_path / "rules.tsv"]
    rows = rows_of(ILLS, [*SAID, "cave pneumonia"], *coded)
    concepts = ["FEVER", "CP", "PNEU", "BC", "PNEU", "FEVER", "PNEU"]
    assert [row["concept"] for row in rows] == concepts
    assert [row["status"] for row in rows] == ["in context"] * 5 + ["exact", "in context"]
    assert rows[6]["context"] == "possible"


def test_a_strength_is_compared_after_conversion(rows_of):
    strengths = {"L025": "0.025", "L05": "0.05", "L25": "0.25", "L5": "0.5"}
    tablets = {
        concept: f"Levothyroxine Sodium {strength} MG Oral Tablet"
        for concept, strength in strengths.items()
    }
    mentions = {
        "levothyroxine 25 mcg tablet": "L025",
        "levothyroxine 25 micrograms tablet": "L025",
        "levothyroxine 0,025 mg tab": "L025",
        "levothyroxine 50 mcg": "L05",
        "levothyroxin 0,25 mg": "L25",
    }
    rows = rows_of(tablets, [*mentions, "levothyroxine 75 mcg tablet"])
    assert [row["concept"] for row in rows[:5]] == list(mentions.values())
    assert {row["reason"] for row in rows[:5]} == {""}
    assert (rows[5]["status"], rows[5]["reason"]) == ("differs", "differs: strength")


def test_a_side_is_kept_or_said_to_be_lost(rows_of):
    terms = {
        "FLH": "Fracture of left hand",
        "FRH": "Fracture of right hand",
        "FH": "Fracture of hand",
        "RLN": "right leg numbness",
        "LLN": "left leg numbness",
        "A": "alpha-Thalassemia",
        "B": "beta-Thalassemia",
        "KNEE": "Knee pain",
    }
    mentions = {
        "R Leg numbness": "RLN",
        "ß-thalassaemia": "B",
        "knee pain rt": "KNEE",
        "fracture hand (R)": "FRH",
        "fracture hand L": "FLH",
    }
    rows = rows_of(terms, mentions)
    assert [row["concept"] for row in rows] == list(mentions.values())
    assert [row["reason"] for row in rows] == ["", "", "lost: side", "", ""]


def test_with_a_list_of_abbreviations_the_side_is_found(rows_of, tmp_path):
    terms = {"FLH": "Fracture of left hand", "FRH": "Fracture of right hand", "FH": "Hand fracture"}
    (tmp_path / "short.tsv").write_text("R\tright\nL\tleft\nfx\tfracture\n")
    mentions = {"fracture hand (R)": "FRH", "fracture hand L": "FLH", "fx L hand": "FLH"}
    rows = rows_of(terms, mentions, "--abbreviations", tmp_path / "short.tsv")
    assert [row["concept"] for row in rows] == list(mentions.values())
    assert {row["reason"] for row in rows} == {""}
