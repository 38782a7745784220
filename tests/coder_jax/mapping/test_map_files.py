"""Coded lists for Usagi, source_to_concept_map, SSSOM and FHIR, and decisions that come back."""

import csv
import io
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from coder_jax.mapping.coded_list import (
    Answer,
    Candidate,
    Decision,
    Status,
    decided,
    read_decisions,
)
from coder_jax.mapping.map_files import FORMS, check_concepts, local_terms, write_map
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary
from data_pipeline.process import BadInput

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ABOUT = {
    "312327": AboutConcept("Acute myocardial infarction", (("SNOMED", "57054005"),)),
    "1112807": AboutConcept("aspirin", (("RxNorm", "1191"),)),
    "437663": AboutConcept("Fever", (("SNOMED", "386661006"),)),
}
DICTIONARY = Dictionary(
    ["Acute myocardial infarction", "aspirin", "Fever"], list(ABOUT), "athena", about_concepts=ABOUT
)
MENTIONS = ["fever", "heart attak", 'ASS 100 "N3"', "chair, with 5 legs", "fever", "Aspirin | AMI"]
MENTIONS.append("cold or fever")
COLUMNS = {
    "lab": ["0012", "A1", "B2", "C3", "0012", "D4", "E5"],
    "sourceFrequency": ["7", "", "20", "x", "5", "1", "2"],
    "ward": ["icu", "er", "er", "", "icu", "er", "er"],
    "conceptId": ["9"] * 7,
}
DECISIONS = {
    ("A1", "heart attak"): Decision(("312327",), "by phone", "Anna", "2026-02-27"),
    ("C3", "chair, with 5 legs"): Decision((), "no term"),
    ("E5", "cold or fever"): Decision(("437663", "312327"), "", "Ben", "2026-02-28"),
}
SAID = [DECISIONS.get(one) for one in zip(COLUMNS["lab"], MENTIONS, strict=True)]


def near(mention: str, *concepts: str, **more) -> Answer:
    candidates = [Candidate(one, DICTIONARY.about(one).preferred, 0.75) for one in concepts]
    return Answer(mention, Status.NEAR, candidates, confidence=0.5, **more)


@pytest.fixture
def answers() -> list[Answer]:
    fever = Answer("fever", Status.EXACT, [Candidate("437663", "Fever", 1.0)])
    found = [
        fever,
        near("heart attak", "437663", "312327"),
        near(MENTIONS[2], "1112807"),
        near(MENTIONS[3], "1112807"),
        fever,
        near(MENTIONS[5], "1112807", "312327", count=2),
        near(MENTIONS[6], "1112807", "312327"),
    ]
    return decided(found, SAID, DICTIONARY)


@pytest.fixture
def written(answers, tmp_path):
    terms = local_terms("lab_list", MENTIONS, COLUMNS, "lab", "sourceFrequency")

    def write(form: str) -> str:
        write_map(form, tmp_path / form, answers, DICTIONARY, terms, SAID, NOW)
        return (tmp_path / form).read_text(encoding="utf-8")

    return write


def test_usagi_has_its_columns_and_what_people_decided(written):
    text = written("usagi")
    assert text.partition("\n")[0] == (
        "sourceCode,sourceName,sourceFrequency,sourceAutoAssignedConceptIds,ADD_INFO:ward,"
        "matchScore,mappingStatus,equivalence,statusSetBy,statusSetOn,conceptId,conceptName,"
        "domainId,mappingType,comment,createdBy,createdOn,assignedReviewer"
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    shown = ("sourceCode", "sourceName", "sourceFrequency", "mappingStatus", "conceptId")
    assert [tuple(row[name] for name in shown) for row in rows] == [
        ("0012", "fever", "12", "UNCHECKED", "437663"),
        ("A1", "heart attak", "1", "APPROVED", "312327"),
        ("B2", 'ASS 100 "N3"', "20", "UNCHECKED", "1112807"),
        ("C3", "chair, with 5 legs", "1", "APPROVED", "0"),
        ("D4", "Aspirin | AMI", "1", "UNCHECKED", "1112807"),
        ("D4", "Aspirin | AMI", "1", "UNCHECKED", "312327"),
        ("E5", "cold or fever", "2", "APPROVED", "437663"),
        ("E5", "cold or fever", "2", "APPROVED", "312327"),
    ]
    heart, chair = rows[1], rows[3]
    assert (heart["matchScore"], heart["comment"]) == ("0.7500", "by phone")
    set_by = [(row["statusSetBy"], row["statusSetOn"]) for row in (heart, chair, rows[0])]
    assert set_by == [("Anna", "1772150400000"), ("coder_jax", "1772366400000"), ("", "0")]
    assert (chair["equivalence"], chair["conceptName"]) == ("UNMATCHED", "Unmapped")
    assert chair["comment"] == "no term" and heart["ADD_INFO:ward"] == "er"


def test_source_to_concept_map(written):
    rows = list(csv.DictReader(io.StringIO(written("stcm"))))
    assert list(rows[0].values()) == [
        *("0012", "0", "lab_list", "fever", "437663", "SNOMED", "1970-01-01", "2099-12-31", ""),
    ]
    targets = [(row["target_concept_id"], row["target_vocabulary_id"]) for row in rows]
    assert targets[2:4] == [("1112807", "RxNorm"), ("0", "None")]


def test_what_the_table_has_no_room_for_is_said(tmp_path, capsys):
    mentions = ["a" * 50, "b" * 51, "b" * 51, "c" * 256]
    answers = [Answer(one, Status.NO_ANSWER, []) for one in mentions]
    terms, said = local_terms("v" * 21, mentions, {}), [None] * len(mentions)
    write_map("stcm", tmp_path / "x.csv", answers, DICTIONARY, terms, said)
    lines = capsys.readouterr().err.splitlines()
    assert [re.findall(r": (\d+) of (\w+) have more than the (\d+)", one) for one in lines] == [
        [("2", "source_code", "50")],
        [("1", "source_vocabulary_id", "20")],
        [("1", "source_code_description", "255")],
    ]
    assert "first 'bbbb" in lines[0] and "give short codes with --code-column, or" in lines[0]


@pytest.mark.parametrize("reason", ["", "context: negated"])
@pytest.mark.parametrize("status", ["tied", "doubtful", "differs", "broader", "in context"])
def test_what_is_to_be_checked_is_not_mapped_in_a_table(tmp_path, status, reason):
    fever = [Candidate("437663", "Fever", 0.9)]
    answer = Answer("no fever", Status(status), fever, reason=reason, context=("negated",))
    terms = local_terms("list", ["no fever"], {}, None)
    for form in FORMS:
        write_map(form, tmp_path / form, [answer], DICTIONARY, terms, [None])
    (row,) = csv.DictReader(io.StringIO((tmp_path / "stcm").read_text()))
    assert (row["target_concept_id"], row["target_vocabulary_id"]) == ("0", "None")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "usagi").read_text()))
    assert (row["mappingStatus"], row["conceptId"]) == ("UNCHECKED", "437663")
    assert row["comment"] == (reason or "negated")
    match, wider = ("broad", "wider") if status == "broader" else ("related", "relatedto")
    assert f"\tskos:{match}Match\tconcept:437663\t" in (tmp_path / "sssom").read_text()
    assert f'"equivalence": "{wider}"' in (tmp_path / "fhir").read_text()


def test_sssom_says_how_each_pair_was_found(written):
    lines = written("sssom").splitlines()
    head = [line for line in lines if line.startswith("#")]
    assert head[:2] == ["#curie_map:", '#  concept: "urn:concept:"']
    assert '#mapping_date: "2026-03-01"' in head
    rows = list(csv.DictReader(lines[len(head) :], delimiter="\t"))
    shown = ("subject_id", "predicate_id", "object_id", "mapping_justification", "confidence")
    assert [tuple(row[name] for name in shown) for row in rows[:4]] == [
        ("lab_list:0012", "skos:exactMatch", "concept:437663", "semapv:LexicalMatching", ""),
        ("lab_list:A1", "skos:exactMatch", "concept:312327", "semapv:ManualMappingCuration", ""),
        (
            *("lab_list:B2", "skos:closeMatch", "concept:1112807"),
            *("semapv:SemanticSimilarityThresholdMatching", "0.5000"),
        ),
        (
            *("lab_list:C3", "skos:exactMatch", "sssom:NoTermFound"),
            *("semapv:ManualMappingCuration", "0.5000"),
        ),
    ]


def test_fhir_has_a_group_for_each_vocabulary(written):
    resource = json.loads(written("fhir"))
    assert (resource["resourceType"], resource["status"]) == ("ConceptMap", "draft")
    groups = {one.get("target"): one["element"] for one in resource["group"]}
    snomed = groups["http://snomed.info/sct"]
    assert [(one["code"], one["target"][0]["code"]) for one in snomed] == [
        *(("0012", "386661006"), ("A1", "57054005"), ("D4", "57054005"), ("E5", "386661006")),
    ]
    assert [one["target"][0]["equivalence"] for one in snomed] == [
        *("equal", "equivalent", "relatedto", "equivalent"),
    ]
    assert snomed[1]["target"][0]["comment"] == "by phone; decided by Anna on 2026-02-27"
    assert [one["code"] for one in snomed[3]["target"]] == ["386661006", "57054005"]
    (chair,) = groups[None]
    assert chair["target"] == [{"equivalence": "unmatched", "comment": "no term"}]


@pytest.mark.parametrize("form", ["usagi", "sssom"])
def test_what_was_decided_comes_back(written, tmp_path, form):
    written(form)
    assert read_decisions(tmp_path / form).of == DECISIONS


@pytest.mark.parametrize("form", ["usagi", "sssom"])
def test_of_a_list_without_codes_the_text_counts(answers, tmp_path, form):
    terms = local_terms("lab_list", MENTIONS, {}, None)
    write_map(form, tmp_path / form, answers, DICTIONARY, terms, SAID, NOW)
    found = read_decisions(tmp_path / form).of
    assert found == {("", mention): decision for (_, mention), decision in DECISIONS.items()}


def test_terms_of_one_code_and_of_none(tmp_path):
    mentions, codes = ["AP", "AP lab", "fever", "no  cough"], ["1", "1", "", " "]
    said = [Decision((one,)) for one in ("437663", "312327", "437663", "312327")]
    answers = decided([near(one, "1112807") for one in mentions], said, DICTIONARY)
    terms = local_terms("my list (ä)", mentions, {"id": codes}, "id")
    for form in FORMS:
        write_map(form, tmp_path / form, answers, DICTIONARY, terms, said, NOW)
    (group,) = json.loads((tmp_path / "fhir").read_text())["group"]
    assert group["source"] == "urn:my%20list%20%28%C3%A4%29"
    shown = [(one["code"], one["display"], len(one["target"])) for one in group["element"]]
    assert shown == [
        *(("1", "AP", 1), ("1", "AP lab", 1), ("fever", "fever", 1), ("no cough", "no  cough", 1)),
    ]
    assert "\nmy_list__ä_:fever\tfever\t" in (tmp_path / "sssom").read_text()
    for form in ("usagi", "sssom"):
        found = read_decisions(tmp_path / form)
        local = list(zip(mentions, codes, strict=True))
        assert [found.on(*one).concepts for one in local] == [one.concepts for one in said]
        assert [name for name, _ in found.names(local)] == mentions


def test_notes_come_back_and_what_was_found_is_no_note(tmp_path):
    said = [Decision((), "ask", is_open=True), Decision(()), None, Decision(("437663",))]
    mentions = ["'=fever", "stool", "cold", "no fever"]
    more = [{}, {}, {"reason": "lost: side"}, {"context": ("negated",)}]
    found = [near(one, "437663", **two) for one, two in zip(mentions, more, strict=True)]
    terms = local_terms("list", mentions, {})
    answers = decided(found, said, DICTIONARY)
    for form in ("usagi", "sssom"):
        write_map(form, tmp_path / form, answers, DICTIONARY, terms, said, NOW)
    (first, second, third, _) = csv.DictReader(io.StringIO((tmp_path / "usagi").read_text()))
    shown = [(row["mappingStatus"], row["comment"]) for row in (first, second, third)]
    assert shown == [("FLAGGED", "ask"), ("APPROVED", ""), ("UNCHECKED", "lost: side")]
    made = {("", "stool"): Decision(()), ("", "no fever"): Decision(("437663",))}
    assert read_decisions(tmp_path / "usagi").of == {("", "'=fever"): said[0], **made}
    assert read_decisions(tmp_path / "sssom").of == made


def test_a_pair_that_is_denied_in_sssom_is_open(tmp_path):
    path = tmp_path / "map.sssom.tsv"
    head = "subject_label\tpredicate_modifier\tpredicate_id\tobject_id\tmapping_justification\n"
    rest = "skos:exactMatch\tC1\tsemapv:ManualMappingCuration\n"
    path.write_text(f"{head}fever\tNot\t{rest}cough\t\t{rest}")
    assert read_decisions(path).of == {("", "cough"): Decision(("C1",))}


def test_what_a_person_approved_in_usagi_is_a_decision(tmp_path):
    path = tmp_path / "usagi.csv"
    path.write_text(
        "sourceCode,sourceName,mappingStatus,conceptId,comment\n"
        "1,Fieber,APPROVED,437663,\n2,Stuhl,APPROVED,0,a chair?\n3,Herz,FLAGGED,312327,ask\n"
    )
    assert read_decisions(path).of == {
        ("1", "Fieber"): Decision(("437663",)),
        ("2", "Stuhl"): Decision((), "a chair?"),
        ("3", "Herz"): Decision((), "ask", is_open=True),
    }
    text = path.read_text()
    path.write_text(f"{text}2,Stuhl,APPROVED,312327,\n")
    with pytest.raises(BadInput, match="usagi.csv:5: found 312327 accepted for 'Stuhl' of .*2, an"):
        read_decisions(path)
    path.write_text(
        "sourceCode,sourceName,mappingStatus,conceptId,mappingType\n"
        "1,pain 7 of 10,APPROVED,4329041,MAPS_TO\n1,pain 7 of 10,APPROVED,45877393,MAPS_TO_VALUE\n"
    )
    assert read_decisions(path).of == {("1", "pain 7 of 10"): Decision(("4329041",))}, "no value"


def test_codes_may_stand_in_a_column_that_usagi_fills_in():
    terms = local_terms(
        "list", ["Fieber"], {"conceptId": ["F1"], "comment": ["3"]}, "conceptId", "comment"
    )
    assert (terms.codes, terms.counts, dict(terms.others)) == (["F1"], [3], {})


@pytest.mark.parametrize("form", ["usagi", "stcm"])
def test_omop_knows_numbers_alone(tmp_path, form):
    dictionary = Dictionary(["Fever"], ["HP:0001945"], "hp.obo")
    answer = Answer("fever", Status.EXACT, [Candidate("HP:0001945", "Fever", 1.0)])
    terms = local_terms("list", ["fever"], {}, None)
    with pytest.raises(BadInput, match="found the concept HP:0001945; expected OMOP's concept_id"):
        write_map(form, tmp_path / "x.csv", [answer], dictionary, terms, [None])
    assert not (tmp_path / "x.csv").exists()
    for other in FORMS.keys() - {"usagi", "stcm"}:
        write_map(other, tmp_path / other, [answer], dictionary, terms, [None])
    assert "\tHP:0001945\t" in (tmp_path / "sssom").read_text()
    write_map("sssom", tmp_path / "sssom", [answer], dictionary, replace(terms, name="HP"), [None])
    text = (tmp_path / "sssom").read_text()
    assert "\nHP_list:fever\t" in text and "\tHP:0001945\t" in text
    assert '#  HP_list: "urn:HP_list:"' in text
    plain = Dictionary(["Fever"], ["C0015967"], "terms.tsv")
    answer = Answer("fever", Status.EXACT, [Candidate("C0015967", "Fever", 1.0)])
    write_map("fhir", tmp_path / "plain", [answer], plain, terms, [None])
    (group,) = json.loads((tmp_path / "plain").read_text())["group"]
    assert "target" not in group, "nothing says which vocabulary it is"
    (group,) = json.loads((tmp_path / "fhir").read_text())["group"]
    assert group["target"] == "http://human-phenotype-ontology.org"
    assert group["element"][0] == {
        "code": "fever",
        "display": "fever",
        "target": [{"code": "HP:0001945", "display": "Fever", "equivalence": "equal"}],
    }


@pytest.mark.parametrize(
    "concepts, vocabulary, message",
    [
        (["437663", "312327"], "SNOMED", ""),
        (["437663", "10357054005"], "SNOMED", "found the concept 10357054005; expected OMOP's"),
        (["437663", "HP:0001945"], "HP", "found the concept HP:0001945; expected OMOP's"),
        (["386661006", "57054005"], "SNOMEDCT", "found the concept 386661006, .* code in SNOMEDCT"),
    ],
)
def test_numbers_of_other_vocabularies_are_refused(capsys, concepts, vocabulary, message):
    about = {
        one: AboutConcept("x", ((vocabulary, code),))
        for one, code in zip(concepts, ("386661006", "57054005"), strict=True)
    }
    dictionary = Dictionary(["a", "b"], concepts, "mine", about_concepts=about)
    check_concepts(("sssom", "fhir"), dictionary)
    with pytest.raises(BadInput, match=message) if message else nullcontext():
        check_concepts(("usagi",), dictionary)
    assert not capsys.readouterr().err
    if not message:
        check_concepts(("stcm",), Dictionary(["a"], ["437663"], "mine"))
        assert "warning: mine has no codes, so nothing says" in capsys.readouterr().err


@pytest.mark.parametrize(
    "codes_of, vocabulary, code",
    [
        ((), "AOD", "1"),
        (("SNOMED",), "SNOMED", "3"),
        (("SNOMED", "ICD10"), "SNOMED", "3"),
        (("LNC",), "AOD", "1"),
    ],
)
def test_codes_of_the_vocabularies_that_are_asked_for(tmp_path, codes_of, vocabulary, code):
    codes = (("AOD", "1"), ("ICD10", "2"), ("SNOMED", "3"))
    dictionary = Dictionary(["x"], ["7"], "mine", about_concepts={"7": AboutConcept("x", codes)})
    answer, terms = Answer("x", Status.EXACT, [Candidate("7", "x", 1.0)]), local_terms("l", "x", {})
    for form in ("stcm", "fhir"):
        write_map(form, tmp_path / form, [answer], dictionary, terms, [None], codes_of=codes_of)
    (row,) = csv.DictReader(io.StringIO((tmp_path / "stcm").read_text()))
    assert row["target_vocabulary_id"] == vocabulary
    (group,) = json.loads((tmp_path / "fhir").read_text())["group"]
    assert group["element"][0]["target"][0]["code"] == code


def test_a_learnt_name_is_no_string_of_the_vocabulary(tmp_path):
    answer = Answer("Fieber", Status.LEARNT, [Candidate("437663", "fieber", 1.0)], reason="learnt")
    terms = local_terms("list", ["Fieber"], {})
    for form in FORMS:
        write_map(form, tmp_path / form, [answer], DICTIONARY, terms, [None])
    row = "\tFieber\tskos:closeMatch\tconcept:437663\tFever\tsemapv:LexicalMatching\t"
    assert row in (tmp_path / "sssom").read_text()
    (row,) = csv.DictReader(io.StringIO((tmp_path / "stcm").read_text()))
    assert row["target_concept_id"] == "437663", "a person said what it means"
    (row,) = csv.DictReader(io.StringIO((tmp_path / "usagi").read_text()))
    assert (row["mappingStatus"], row["comment"]) == ("UNCHECKED", "learnt")
