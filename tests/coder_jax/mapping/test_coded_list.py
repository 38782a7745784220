"""The file of decisions: what it may be, what is refused, and answers with decisions kept."""

import math

import pytest

from coder_jax.mapping.coded_list import (
    CODED_COLUMNS,
    REJECTED_IN_REVIEW,
    Answer,
    Candidate,
    Decision,
    Decisions,
    Status,
    check_decisions,
    coded_rows,
    decided,
    find_frequencies,
    frequency_of,
    read_decisions,
)
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary
from data_pipeline.process import BadInput

HEADER = "mention,concept,decision,note\n"
DICTIONARY = Dictionary(
    ["heart attack", "mi", "cold"],
    ["C1", "C1", "C2"],
    "terms.tsv",
    about_concepts={"C1": AboutConcept("Myocardial infarction")},
)


def test_what_a_review_page_saves(write):
    rows = 'heart atack,C1,accepted,\nn/a,,rejected,"not a\nterm, is it"\ncold?,,open,ask\n'
    path = write("d.csv", f"\ufeff{HEADER}{rows}".replace("\n", "\r\n"))
    assert read_decisions(path).of == {
        ("", "heart atack"): Decision(("C1",)),
        ("", "n/a"): Decision((), "not a\r\nterm, is it"),
        ("", "cold?"): Decision((), "ask", is_open=True),
    }


def test_as_a_spreadsheet_may_save_it(write):
    """Semicolons, other columns, another order, empty lines, capitals; and no notes."""
    text = "Decision;preferred_name;Mention;concept\n\nACCEPTED;Cold, common; cold ;C2\n;;;\n"
    assert read_decisions(write("d.csv", text)).of == {("", " cold "): Decision(("C2",))}
    tabs = "mention\tconcept\tdecision\ncold\tC2\taccepted\n"
    assert read_decisions(write("d.tsv", tabs)).of == {("", "cold"): Decision(("C2",))}


def test_a_file_in_which_nothing_is_decided(write):
    assert read_decisions(write("d.csv", HEADER)).of == {}


@pytest.mark.parametrize(
    "field, text",
    [("'=1+1", "=1+1"), ("''=1", "'=1"), ("'-5 mg", "-5 mg"), ("=1+1", "=1+1"), ("'t is", "'t is")],
)
def test_what_is_guarded_from_spreadsheets_is_as_it_was(write, field, text):
    rows = f"{field},C1,accepted,{field}\n"
    decisions = read_decisions(write("d.csv", HEADER + rows))
    assert decisions.of == {("", text): Decision(("C1",), text)}


def test_notes_on_what_is_open_are_no_decisions(write, capsys):
    rows = "a,,open,ask\na,C1,accepted,\nb,C1,accepted,\nb,,open,why\nc,,open,?\nd,,open,\n"
    decisions = read_decisions(write("d.csv", HEADER + rows))
    assert decisions.of == {
        ("", "a"): Decision(("C1",), "ask"),
        ("", "b"): Decision(("C1",), "why"),
        ("", "c"): Decision((), "?", is_open=True),
    }
    assert decisions.names([("c", None)]) == [("a", "C1"), ("b", "C1")]
    near = Answer("c", Status.NEAR, [Candidate("C2", "cold", 0.7)])
    assert decided([near], [decisions.on("c", None)], DICTIONARY) == [near]
    decisions.tell_unused([("b", None)])
    assert "1 of 2 decisions are on mentions" in capsys.readouterr().err
    codes = "AP,L1,C1,accepted,,,\nAP,D2,,open,ask,,\n"
    coded = read_decisions(write("e.csv", WHO + codes))
    assert coded.on("AP", None) == Decision(("C1",)) and coded.on("AP", "D2").is_open
    assert coded.names([("AP", "D2")]) == [], "of this code nothing is decided"


CODED = "local,concept,rank,status,reason,decided_by,decided_on,decision_note"
CODED_ROWS = """
'=a,C1,1,decided,,Anna,2026-03-01,sure
'=a,C2,2,decided,,Anna,2026-03-01,sure
'=a,C3,3,near,,,,
b,,1,no answer,rejected in review,Ben,2026-03-02,
c,C3,1,near,lost: side,,,ask
d,C4,1,exact,,,,
,,1,no answer,empty,,,
'=a,C1,1,decided,,Anna,2026-03-01,sure
'=a,C2,2,decided,,Anna,2026-03-01,sure
"""
OF_CODED = {
    ("", "=a"): Decision(("C1", "C2"), "sure", "Anna", "2026-03-01"),
    ("", "b"): Decision((), "", "Ben", "2026-03-02"),
    ("", "c"): Decision((), "ask", is_open=True),
}


def test_a_list_that_was_coded_with_decisions_is_one(write):
    path = write("coded.csv", CODED + CODED_ROWS)
    assert read_decisions(path, column="Local ").of == OF_CODED
    added = CODED.removeprefix("local").replace(",", ",x_")
    path = write("prefix.csv", "mention" + added + CODED_ROWS)
    assert read_decisions(path, prefix="x_").of == OF_CODED
    own = write("own.csv", "mention" + added.replace(",x_", ",coded_") + CODED_ROWS)
    assert read_decisions(own).of == OF_CODED  # as a list with a column `code` of its own is coded
    with pytest.raises(BadInput, match=r"or a coded list \(with the columns local, x_concept,"):
        read_decisions(path, column="local", prefix="x_")


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (3, 2, 0, 1)])
def test_a_coded_list_may_be_sorted(write, order):
    rows = ["ulna,C1,1,decided,,,,", "ulna,C2,2,decided,,,,", "asthma,C0,1,decided,,,,"]
    rows.append("ulna,C3,3,decided,,,,")
    path = write("coded.csv", "\n".join([CODED, *(rows[row] for row in order)]))
    assert read_decisions(path, column="local").of == {
        ("", "ulna"): Decision(("C1", "C2", "C3")),
        ("", "asthma"): Decision(("C0",)),
    }


@pytest.mark.parametrize("first", ["ulna,C1,1,near,,,,", "asthma,C1,1,decided,,,,"])
def test_a_further_concept_without_its_answer(write, first):
    path = write("coded.csv", f"{CODED}\n{first}\nulna,C2,2,decided,,,,\n")
    with pytest.raises(BadInput, match="coded.csv:3: found C2, decided for 'ulna', and no row of"):
        read_decisions(path, column="local")


def test_the_same_text_with_other_codes_in_a_coded_list(write):
    rows = "\nAP,C1,1,decided,,,,,L1\nAP,C2,1,decided,,,,,D2\n"
    path = write("coded.csv", f"{CODED},id{rows}")
    assert read_decisions(path, column="local", code_column="id").of == {
        ("L1", "AP"): Decision(("C1",)),
        ("D2", "AP"): Decision(("C2",)),
    }
    with pytest.raises(BadInput, match="coded.csv:3: found C2 accepted for 'AP', and in line 2 C1"):
        read_decisions(path, column="local")


def test_the_same_decision_twice_is_one(write):
    rows = "a,C1,accepted,\na,C1,accepted,seen\na,C1,accepted,again\n"
    decisions = read_decisions(write("d.csv", HEADER + rows))
    assert decisions.of == {("", "a"): Decision(("C1",), "seen")}


@pytest.mark.parametrize(
    "rows, message",
    [
        ("a,C1,accepted,\nb,C1\n", r"d.csv:3: found 2 columns; expected 4"),
        ("a,C1,acepted,\n", r"d.csv:2: found the decision 'acepted'.*did you mean accepted\?"),
        ("a,,accepted,\n", r"d.csv:2: found no concept; .* or write rejected if none fits"),
        (
            "a,C1,rejected,\n",
            r"d.csv:2: found the concept C1; expected none for rejected: leave it",
        ),
        (" ,C1,accepted,\n", r"d.csv:2: found no mention"),
        ("a,C1,accepted,\na,C2,accepted,\n", r":3: found C2 accepted for 'a', and in line 2 C1"),
        ("a,C1,accepted,\na,C1|C2,accepted,\n", r":3: found C1, C2 accepted .*with \| between"),
        ("a,|,accepted,\n", r"d.csv:2: found no concept; expected one for accepted"),
        ("a,C1,accepted,\na,,rejected,\n", r"d.csv:3: found rejected for 'a', and in line 2 C1"),
        ('"a\nb",C1,accepted,\nc,,x,\n', r"d.csv:4: found the decision 'x'"),
        ('a,"C1,accepted,\n', r"d.csv:2: the row that begins here cannot be read"),
    ],
)
def test_broken_rows(write, rows, message):
    with pytest.raises(BadInput, match=message):
        read_decisions(write("d.csv", HEADER + rows))


@pytest.mark.parametrize(
    "text", ["", "mention,concept,note\na,C1,\n", "mention,mention,concept,decision\n"]
)
def test_columns_that_are_missing_or_there_twice(write, text):
    with pytest.raises(BadInput, match="expected the columns mention, concept, decision, note"):
        read_decisions(write("d.csv", text))


def test_files_that_are_none(write, tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_decisions(tmp_path / "absent.csv")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_decisions(
            write("latin.csv", HEADER.encode() + "Müdigkeit,C1,accepted,\n".encode("latin-1"))
        )


def test_concepts_that_the_dictionary_does_not_have():
    known = {("", "a"): Decision(("C1",)), ("", "b"): Decision(())}
    unknown = {("", f"m{i}"): Decision(("C1", f"X{i}")) for i in range(7)}
    with pytest.raises(BadInput) as error:
        check_decisions(Decisions(unknown | known, "d.csv"), DICTIONARY)
    assert str(error.value).startswith("d.csv: found X0")
    assert "found X0 for 'm0', X1 for 'm1'," in str(error.value)
    assert "X4 for 'm4' and 2 more, which terms.tsv does not have" in str(error.value)
    check_decisions(Decisions(known, "d.csv"), DICTIONARY)


def test_answers_with_decisions_kept():
    near = [Candidate("C2", "cold", 0.7), Candidate("C1", "mi", 0.6)]
    answers = [
        Answer("heart atack", Status.TIED, near, 1),
        Answer("n/a", Status.TIED, near, 1),
        Answer("open", Status.NEAR, near),
        Answer("?", Status.NO_ANSWER, [], reason="a placeholder", context=("possible",)),
    ]
    decisions = [Decision(("C1",)), Decision(()), None, Decision(("C1",), "really")]
    first, second, third, fourth = decided(answers, decisions, DICTIONARY)
    assert first == Answer("heart atack", Status.DECIDED, [near[1], near[0]])
    assert second == Answer("n/a", Status.NO_ANSWER, near, reason=REJECTED_IN_REVIEW)
    assert second.concept is None and REJECTED_IN_REVIEW == "rejected in review"
    assert third is answers[2]
    assert fourth.status == Status.DECIDED and fourth.reason == ""
    assert fourth.context == ("possible",)  # what the mention says stays
    (chosen,) = fourth.candidates
    assert chosen[:2] == ("C1", "Myocardial infarction") and math.isnan(chosen.similarity)


def test_a_mention_of_two_concepts_has_a_row_for_each():
    near = [Candidate("C2", "cold", 0.7), Candidate("C3", "flu", 0.6)]
    answer = Answer("mi with a cold", Status.NEAR, near, 1)
    dictionary = Dictionary(["mi", "cold", "flu"], ["C1", "C2", "C3"], "terms.tsv")
    (both,) = decided([answer], [Decision(("C1", "C2"))], dictionary)
    assert (both.status, both.count, both.concept) == (Status.DECIDED, 2, "C1")
    for k, ranks in ((None, 2), (1, 2), (3, 3)):
        rows = coded_rows(both, dictionary, k)
        assert [row[0] for row in rows] == ["C1", "C2", "C3"][:ranks]
        statuses = [row[list(CODED_COLUMNS).index("status")] for row in rows]
        assert statuses == ["decided", "decided", "near"][:ranks]


WHO = "mention,code,concept,decision,note,reviewer,date\n"
AP = "AP,L1,C1,accepted,,Anna,2026-03-01\nAP,D2,C2,accepted,,Anna,01.03.2026\n"


def test_who_decided_and_when(write, capsys):
    rows = "mi,L9,C1|C2,accepted,,Ben,2026-03-02T10:00:00\ncold,,,rejected,,,3/4/26\n"
    assert read_decisions(write("d.csv", WHO + AP + rows)).of == {
        ("L1", "AP"): Decision(("C1",), "", "Anna", "2026-03-01"),
        ("D2", "AP"): Decision(("C2",), "", "Anna", "2026-03-01"),
        ("L9", "mi"): Decision(("C1", "C2"), "", "Ben", "2026-03-02"),
        ("", "cold"): Decision(()),
    }
    said = capsys.readouterr().err
    assert "dates left out: 1, such as '3/4/26'; expected 2026-03-01" in said


def test_the_same_text_of_two_codes_is_two_decisions(write):
    decisions = read_decisions(write("d.csv", f"{WHO}{AP}mi,,C1,accepted,,,\n"))
    assert [decisions.on("AP", code) for code in ("L1", "D2", "X", "")] == [
        Decision(("C1",), "", "Anna", "2026-03-01"),
        Decision(("C2",), "", "Anna", "2026-03-01"),
        None,
        None,
    ]
    assert decisions.on("mi", "") == decisions.on("mi", None) == Decision(("C1",))
    assert decisions.on("mi", "L1") is None, "of another code nothing was said"
    with pytest.raises(BadInput, match="C1 accepted for 'AP' of the code L1, and C2 .* --code-col"):
        decisions.on("AP", None)
    old = read_decisions(write("old.csv", f"{HEADER}AP,C1,accepted,\n"))
    assert old.on("AP", "L1") == old.on("AP", None) == Decision(("C1",)), "it has no codes"


def test_decisions_that_no_term_of_the_list_has_are_said(write, capsys):
    decisions = read_decisions(write("d.csv", f"{WHO}{AP}mi,,C1,accepted,,,\n"))
    decisions.tell_unused([("AP", "L1"), ("mi", "")])
    said = capsys.readouterr().err
    assert "1 of 3 decisions are on codes and mentions that the list does not have" in said
    assert said.endswith("'AP' of the code D2\n")
    decisions.tell_unused([("AP", None)])
    assert capsys.readouterr().err.endswith(
        "1 of 3 decisions are on codes and mentions that "
        "the list does not have, letter by letter: 'mi'\n"
    )
    decisions.tell_unused([("AP", None), ("mi", None)])
    Decisions({}).tell_unused([("AP", None)])
    assert capsys.readouterr().err == ""


def test_how_often_a_term_is_used():
    texts = {
        "12": 12,
        " 1.250 ": 1250,
        "1,250": 1250,
        "1\u202f250": 1250,
        "7.0": 7,
        "1.234.567": 1234567,
        "1,250.00": 1250,
        "1’250": 1250,
        "12.00": 12,
    }
    assert {text: frequency_of(text) for text in texts} == texts
    assert [frequency_of(text) for text in ("", "x", "1.5", "-3", "12 %", "0.125")] == [None] * 6


def test_the_column_that_says_it_is_found_by_its_name_and_its_numbers():
    columns = {"code": ["1", "2"], "n": ["yes", "no"], " Anzahl": ["5", ""], "count": ["1", "2"]}
    assert find_frequencies(columns) == " Anzahl"
    assert find_frequencies({"code": ["1"], "n": ["no"], "count": [""]}) is None


USAGI = "sourceCode,sourceName,mappingStatus,statusSetBy,statusSetOn,conceptId,comment\n"


def test_what_usagi_ignores_has_no_concept_and_a_flag_has_no_date(write, capsys):
    rows = "1,a,IGNORED,ann,1700000000000,7,\n2,b,FLAGGED,ann,1700000000000,7,look\n"
    decisions = read_decisions(write("u.csv", USAGI + rows))
    assert decisions.made == {("1", "a"): Decision((), "", "ann", "2023-11-14")}
    assert capsys.readouterr().err == ""


def test_a_file_without_decisions_is_told(write, capsys):
    header = "subject_label\tpredicate_id\tobject_id\tmapping_justification\n"
    row = "a\t{}\tC1\tsemapv:{}\n"
    path = write("m.tsv", header + row.format("skos:exactMatch", "LexicalMatching"))
    read_decisions(path).tell_unused([("a", None)])
    assert "m.tsv: found no decision; expected rows that are" in capsys.readouterr().err
    path = write("m.tsv", header + row.format("owl:equivalentClass", "ManualMappingCuration"))
    assert read_decisions(path).made == {("", "a"): Decision(("C1",))}


def test_a_concept_that_lost_its_zeros_is_told():
    dictionary = Dictionary(["a"], ["00321"], "terms.tsv")
    with pytest.raises(BadInput, match="it has 00321: a spreadsheet took the zeros"):
        check_decisions(Decisions({("", "a"): Decision(("321",))}, "d.csv"), dictionary)
