"""The command `normalize` on tables: columns, files, review and decisions, no answer."""

import argparse
import csv
import io

import pytest
from openpyxl import Workbook, load_workbook

from coder_jax.commands import normalize
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.mapping.coded import COLUMNS
from coder_jax.mapping.cutoffs import ALL, Cutoffs, CutoffTable, MeasuredRule
from data_pipeline.process.errors import BadInput

DICTIONARY = """\
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
    (tmp_path / "terms.csv").write_text(DICTIONARY)
    (tmp_path / "list.csv").write_text(LIST)
    return tmp_path


@pytest.fixture
def run(files, minilm_path, monkeypatch):
    """Runs the command on the list and returns the rows of coded.csv."""

    def run(*arguments, out="coded.csv", given="list.csv"):
        parser = argparse.ArgumentParser()
        normalize.add_arguments(parser)
        common = ["--model", minilm_path, "--dictionary", "terms.csv", "--out", out]
        words = [str(word) for word in (*common, *arguments, given)]
        assert normalize.run(parser.parse_args(words)) == 0
        if out.endswith(".csv"):
            content = io.StringIO((files / out).read_bytes().decode(), newline="")
            return list(csv.DictReader(content, delimiter=";"))
        return out

    monkeypatch.chdir(files)
    return run


def test_a_list_in_the_same_list_coded(run, files, capsys):
    rows = run("--column", "Local_Term")
    assert list(rows[0]) == ["id", "local term", "ward", *COLUMNS]
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


def test_codes_of_some_vocabularies_and_more_concepts(run):
    rows = run("--column", "local term", "--codes-of", "LOCAL,X", "-k", "2", "--prefix", "my_")
    assert [(row["id"], row["my_rank"]) for row in rows[:4]] == [
        ("1", "1"), ("1", "2"), ("2", "1"), ("2", "2"),
    ]  # fmt: skip
    assert (rows[0]["my_code"], rows[2]["my_code"]) == ("12", "")
    assert rows[1]["my_concept"] == "LEFT"


def test_some_concepts_of_the_dictionary(run):
    rows = run("--column", "local term", "--semantic-types", "Symptom")
    assert {row["concept"] for row in rows} == {"", "HA"}


def test_a_workbook_in_and_out(run, files):
    book = Workbook()
    for row in csv.reader(LIST.splitlines(), delimiter=";"):
        book.active.append(row)
    book.save(files / "list.xlsx")
    run("--column", "local term", out="coded.xlsx", given="list.xlsx")
    rows = list(load_workbook(files / "coded.xlsx").active.values)
    assert rows[0] == ("id", "local term", "ward", *COLUMNS)
    assert [row[3] for row in rows[1:]] == ["RIGHT", "DM2", None, "MI", "MI", None, "RIGHT"]


def test_no_answer_below_a_similarity(run):
    rows = run("--column", "local term", "--min-similarity", "0.99")
    assert rows[3]["status"] == "no answer" and rows[3]["concept"] == ""
    assert rows[3]["matched_term"] == "Myocardial infarction (disorder)"
    assert rows[3]["reason"] == f"similarity {float(rows[3]['similarity']):.3f} is below 0.990"
    assert rows[4]["status"] == "exact", "a string of the dictionary needs no cut-off"


def measured(files, sure, dictionary=8):
    """cutoffs.json by which a similarity of 0.5 has the confidence 0.5."""
    table = CutoffTable(100, [0.2, sure], [100, 40], [50, 38])
    rule = MeasuredRule(3.0, -5.0, 10.0, 0.0)
    described = {"candidates": "both", "dictionary": {"source": "terms.tsv", "terms": dictionary}}
    tables, rules = {ALL: table, "GER": table}, {ALL: rule, "GER": rule}
    Cutoffs(tables, described, rules).write(files / "cutoffs.json")


def test_as_precise_as_asked_for(run, files, capsys):
    measured(files, 0.5)
    common = ("--column", "local term", "--cutoffs", "cutoffs.json")
    rows = run(*common, "--precision", "0.9", "--language", "GER")
    said = capsys.readouterr().err
    assert "answers from confidence 0.500 on: on 100 terms of GER" in said
    assert "warning" not in said
    assert rows[3]["status"] == "near" and float(rows[3]["confidence"]) > 0.5
    measured(files, 0.999)
    rows = run(*common, "--precision", "0.9")
    assert rows[3]["status"] == "no answer" and "is below 0.999" in rows[3]["reason"]
    rows = run(*common)
    assert rows[3]["status"] == "near" and rows[3]["confidence"], "told, if not asked for"
    measured(files, 0.5, dictionary=30_000)
    capsys.readouterr()
    run(*common)
    said = " ".join(capsys.readouterr().err.split())
    assert "confidence was measured with a dictionary of 30,000 terms (terms.tsv), this one" in said
    with pytest.raises(BadInput, match=r"no cut-off of all.*the best is 0.95"):
        run(*common, "--precision", "0.99")
    with pytest.raises(BadInput, match="was measured with both; leave it out, or measure anew"):
        run(*common, "--precision", "0.9", "--candidates", "vectors")


def test_a_review_and_what_was_decided(run, files, capsys):
    run("--column", "local term", "--review", "review.html")
    assert "to decide: open review.html in a browser" in capsys.readouterr().err
    page = (files / "review.html").read_text()
    assert "<title>" in page and "list.csv" in page
    (files / "decisions.csv").write_text(
        "mention,concept,decision,note\nHemiplegia (right),,rejected,no\nn/a,HA,accepted,sure\n"
    )
    rows = run("--column", "local term", "--decided", "decisions.csv")
    assert [row["status"] for row in rows[::6]] == ["no answer", "no answer"]
    assert rows[0]["reason"] == "rejected in review"
    assert (rows[2]["status"], rows[2]["concept"], rows[2]["similarity"]) == ("decided", "HA", "")
    assert rows[1]["status"] == "exact", "what is open is mapped anew"
    (files / "decisions.csv").write_text("mention,concept,decision\nn/a,X,accepted\n")
    with pytest.raises(BadInput, match="found X for 'n/a'"):
        run("--column", "local term", "--decided", "decisions.csv")


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
    ],
)
def test_all_is_checked_before_anything_is_encoded(run, files, monkeypatch, arguments, message):
    def never(*_, **__):
        pytest.fail("the encoder was loaded")

    monkeypatch.setattr(TermEncoder, "from_pretrained", never)
    with pytest.raises(BadInput, match=message):
        run(*arguments)
    assert not (files / "coded.csv").exists()


def test_a_coded_list_is_not_coded_over(run, files):
    run("--column", "local term")
    with pytest.raises(BadInput, match=r"has a column 'concept' already.*--prefix"):
        run("--column", "local term", given="coded.csv", out="again.csv")
    rows = run("--column", "local term", "--prefix", "new_", given="coded.csv", out="again.csv")
    assert rows[0]["concept"] == rows[0]["new_concept"] == "RIGHT"


def test_stdin_is_no_table(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(LIST))
    with pytest.raises(BadInput, match="found stdin as the list; expected a file"):
        run("--column", "local term", given="-")
