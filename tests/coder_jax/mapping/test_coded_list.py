"""The file of decisions: what it may be, what is refused, and answers with decisions kept."""

import math

import pytest

from coder_jax.mapping.coded_list import (
    REJECTED_IN_REVIEW,
    Answer,
    Candidate,
    Decision,
    Status,
    check_decisions,
    decided,
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
    assert read_decisions(path) == {
        "heart atack": Decision("C1"),
        "n/a": Decision(None, "not a\r\nterm, is it"),
    }


def test_as_a_spreadsheet_may_save_it(write):
    """Semicolons, other columns, another order, empty lines, capitals; and no notes."""
    text = "Decision;preferred_name;Mention;concept\n\nACCEPTED;Cold, common; cold ;C2\n;;;\n"
    assert read_decisions(write("d.csv", text)) == {" cold ": Decision("C2")}
    tabs = "mention\tconcept\tdecision\ncold\tC2\taccepted\n"
    assert read_decisions(write("d.tsv", tabs)) == {"cold": Decision("C2")}


def test_a_file_in_which_nothing_is_decided(write):
    assert read_decisions(write("d.csv", HEADER)) == {}


@pytest.mark.parametrize(
    "field, text",
    [("'=1+1", "=1+1"), ("''=1", "'=1"), ("'-5 mg", "-5 mg"), ("=1+1", "=1+1"), ("'t is", "'t is")],
)
def test_what_is_guarded_from_spreadsheets_is_as_it_was(write, field, text):
    rows = f"{field},C1,accepted,{field}\n"
    assert read_decisions(write("d.csv", HEADER + rows)) == {text: Decision("C1", text)}


def test_the_same_decision_twice_is_one(write):
    rows = "a,C1,accepted,\na,C1,accepted,seen\na,C1,accepted,again\n"
    assert read_decisions(write("d.csv", HEADER + rows)) == {"a": Decision("C1", "seen")}


@pytest.mark.parametrize(
    "rows, message",
    [
        ("a,C1,accepted,\nb,C1\n", r"d.csv:3: found 2 columns; expected 4"),
        ("a,C1,acepted,\n", r"d.csv:2: found the decision 'acepted'.*did you mean accepted\?"),
        ("a,,accepted,\n", r"d.csv:2: found no concept; expected one for accepted"),
        ("a,C1,rejected,\n", r"d.csv:2: found the concept C1; expected none for rejected"),
        (" ,C1,accepted,\n", r"d.csv:2: found no mention"),
        ("a,C1,accepted,\na,C2,accepted,\n", r":3: found C2 accepted for 'a', and in line 2 C1"),
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


def test_concepts_that_the_dictionary_does_not_have(tmp_path):
    decisions = {f"m{i}": Decision(f"X{i}") for i in range(7)} | {
        "a": Decision("C1"),
        "b": Decision(None),
    }
    with pytest.raises(BadInput) as error:
        check_decisions(decisions, DICTIONARY, tmp_path / "d.csv")
    assert "found X0 for 'm0', X1 for 'm1'," in str(error.value)
    assert "X4 for 'm4' and 2 more, which terms.tsv does not have" in str(error.value)
    check_decisions({"a": Decision("C1"), "b": Decision(None)}, DICTIONARY, tmp_path / "d.csv")


def test_answers_with_decisions_kept():
    near = [Candidate("C2", "cold", 0.7), Candidate("C1", "mi", 0.6)]
    answers = [
        Answer("heart atack", Status.TIED, near, 1),
        Answer("n/a", Status.TIED, near, 1),
        Answer("open", Status.NEAR, near),
        Answer("?", Status.NO_ANSWER, [], reason="a placeholder", context=("possible",)),
    ]
    decisions = {
        "heart atack": Decision("C1"),
        "n/a": Decision(None),
        "?": Decision("C1", "really"),
    }
    first, second, third, fourth = decided(answers, decisions, DICTIONARY)
    assert first == Answer("heart atack", Status.DECIDED, [near[1], near[0]])
    assert second == Answer("n/a", Status.NO_ANSWER, near, reason=REJECTED_IN_REVIEW)
    assert second.concept is None and REJECTED_IN_REVIEW == "rejected in review"
    assert third is answers[2]
    assert fourth.status == Status.DECIDED and fourth.reason == ""
    assert fourth.context == ("possible",)  # what the mention says stays
    (chosen,) = fourth.candidates
    assert chosen[:2] == ("C1", "Myocardial infarction") and math.isnan(chosen.similarity)
