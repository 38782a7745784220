import gzip
import json
import logging
import os
import subprocess
import sys

import pytest

from data_pipeline.process import BadInput
from data_pipeline.sources.text import (
    Annotation,
    Document,
    TextReader,
    abbreviations_of,
    rules_hash,
    sentence_spans,
    token_spans,
    words_of,
)

PUBTATOR = """
1|t|Colon cancer.
1|a|A of colon cancer and cup.
1\t0\t12\tColon cancer\tDisease\tMESH:D003110|D1
1\t19\t31\tcolon cancer\tDisease\t-1
1\t36\t39\tcup\tChemical\tD2
1\t36\t39\tcap\tDisease\tD3
1\tCID\tD1\tD2
1\tx\ty
2|t|Second
2|a|
"""
OBO = """format-version: 1.4
ontology: toy

[Term]
id: T:1
name: heart attack
def: "Death of \\"heart\\" muscle." [PMID:1]

[Term]
id: T:2
name: no definition

[Term]
id: T:3
name: gone
def: "Not in use." []
is_obsolete: true
"""


def read(path, **options):
    reader = TextReader(**options)
    return list(reader.documents(path)), reader


def test_json_lines_with_what_they_are_about_and_odd_ones(write):
    lines = [
        json.dumps({"text": "One.", "cuis": ["C1"], "names": ["uno"], "id": 3}),
        "{",
        json.dumps({"abstract": "no text"}),
        "",
        json.dumps(["text"]),
        json.dumps({"text": "Two.", "cuis": "C1"}),
        json.dumps({"text": " "}),
        json.dumps({"text": "Three.", "cuis": None}),
    ]
    path = write("a.jsonl", "\n".join(lines).encode() + b'\n{"text": "\xff"}\n')
    found, reader = read(path)
    assert found == [
        Document("One.", (), ("C1",), ("uno",)),
        Document("Two."),
        Document("Three."),
    ]
    assert reader.odd == [
        "a.jsonl:2: a line that is no JSON",
        "a.jsonl:3: no text in the field 'text'",
        "a.jsonl:5: no text in the field 'text'",
        "a.jsonl:6: cuis or names that are no list of strings",
        "a.jsonl:7: no text in the field 'text'",
        "a.jsonl:9: a line that is not UTF-8",
    ]
    assert reader.counts["documents"] == 3
    assert reader.counts["odd: no text in the field 'text'"] == 3


def test_another_field_and_a_packed_file_whose_bytes_are_told(write):
    path = write("a.jsonl.gz", gzip.compress(b'{"abstract": "One."}\n{"abstract": "Two."}'))
    told = []
    found, _ = read(path, text_field="abstract", advance=told.append)
    assert [one.text for one in found] == ["One.", "Two."]
    assert sum(told) == path.stat().st_size


@pytest.mark.parametrize("name", ["a.txt", "a.PubTator", "pubtator3"])
def test_pubtator_by_its_content(write, name):
    found, reader = read(write(name, PUBTATOR))
    text = "Colon cancer. A of colon cancer and cup."
    assert found[0].text == text and found[1] == Document("Second ")
    assert found[0].annotations == (
        Annotation(0, 12, ("D003110", "D1")),
        Annotation(19, 31, ()),
        Annotation(36, 39, ("D2",)),
    )
    assert text[19:31] == "colon cancer"
    assert reader.odd == [
        f"{name}:7: an annotation that is not at its place in the text",
        f"{name}:9: no line of PubTator",
    ]
    assert reader.counts["annotations: Disease"] == 3


def test_annotations_of_some_types(write):
    found, _ = read(write("a.txt", PUBTATOR), types=["Chemical"])
    assert [one.concepts for one in found[0].annotations] == [("D2",)]


def test_definitions_stand_behind_the_name_that_they_define(write):
    found, _ = read(write("a.obo", OBO))
    assert found == [
        Document('heart attack: Death of "heart" muscle.', (Annotation(0, 12, ("T:1",)),))
    ]


def test_the_definitions_of_a_real_ontology(hpo_path, write):
    classes = hpo_path.read_text(encoding="utf-8").split("\n\n[Term]\n")[:500]
    found, reader = read(write("part.obo", "\n\n[Term]\n".join(classes) + "\n"))
    assert len(found) > 300 and not reader.odd
    for one in found:
        (name,) = one.annotations
        assert one.text[name.last] == ":" and name.concepts[0].startswith("HP:")


def test_plain_text_has_a_document_up_to_each_blank_line(write):
    found, _ = read(write("a.txt", "\ufeffone\ntwo\n\n\n  \nthree \n"))
    assert [one.text for one in found] == ["one\ntwo", "three"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\n \n", "a.txt: found no text; expected JSON lines"),
        ("a.jsonl", b"text\n", r"found no text \(a.jsonl:1: a line that is no JSON\); expected"),
        ("a.jsonl", b'{"body": "x"}', r"found no text \(a.jsonl:1: no text in the field 'text'\)"),
        ("a.jsonl.gz", b"text", "a.jsonl.gz is damaged or cut off"),
        ("a.txt.gz", gzip.compress(b"One. " * 99, mtime=0)[:-20], "is damaged or cut off"),
        ("a.pdf", b"%PDF", "found a file that ends in .pdf; expected JSON lines"),
        ("a.txt", b"x" * (1 << 21), "a.txt:1: found a line of more than"),
        ("a.obo", b"nothing", "a.obo: found no text; expected"),
        ("a.bin", b"\xff\xfe\x00", "ends in .bin; expected"),
    ],
)
def test_what_is_no_text_is_refused(write, name, content, message):
    with pytest.raises(BadInput, match=message):
        read(write(name, content))


def test_a_file_that_is_not_there(tmp_path):
    for name in ("a.txt", "a.obo"):
        with pytest.raises(BadInput, match=r"cannot be read|does not exist"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Non-Small Cell Lung Cancer", "non small cell lung cancer"),
        ("IL-2, 5-HT and COVID-19", "il-2 5-ht covid-19"),
        ("10-20 mg of 2.5 or 1,25-dihydroxy", "10 20 mg 2.5 or 1,25-dihydroxy"),
        ("Alzheimer's, Parkinson\u2019s; O'nyong's", "alzheimer 's parkinson 's o'nyong 's"),
        ("Pain, abdominal (NOS) [other]", "pain abdominal"),
        ("the heart of an infant on the left at 5/6", "heart infant left 5/6"),
        ("and/or U.S. CD4+ \u2265 50%", "or u s cd4 50"),
        ("Sj\u00f6gren cafe\u0301", "sj\u00f6gren cafe\u0301"),
        ("a_b", "a b"),
        ("type\u20112 \u2013 il\u20112", "type\u20112 il\u20112"),
        ("Of the", "of the"),  # nothing is left, so all of it stays
        ("+ -", "+ -"),
        ("  ", ""),
    ],
)  # fmt: skip
def test_the_words_of_a_name(name, words):
    assert words_of(name) == words.split()


def test_tokens_have_their_places_and_hyphens_that_divide_are_none():
    text = "Crohn's (non-small) X-1."
    spans = token_spans(text)
    assert [token for token, _, _ in spans] == "crohn 's ( non small ) x-1 .".split()
    assert all(text[first:last].lower() == token for token, first, last in spans)


def test_a_change_of_the_rules_changes_their_hash(monkeypatch):
    before = rules_hash()
    assert before == rules_hash() and len(before) == 64
    monkeypatch.setattr("data_pipeline.sources.text.STOP_WORDS", frozenset(["of"]))
    assert rules_hash() != before


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One here. Two (there). 3 mg!", ["One here.", "Two (there).", "3 mg!"]),
        ("E. coli, i.e. Foo et al. Bar, Fig. 2", ["E. coli, i.e. Foo et al. Bar, Fig. 2"]),
        ("Tokenized text . It goes on ( so ) .", ["Tokenized text .", "It goes on ( so ) ."]),
        ("a title\n\nan abstract of\ntwo lines", ["a title", "an abstract of\ntwo lines"]),
        ('He said "no." Then left', ['He said "no."', "Then left"]),
        ("p. values. are lower", ["p. values. are lower"]),
        ("  \n\n ", []),
        ("", []),
    ],
)
def test_where_sentences_end(text, sentences):
    assert [text[first:last].strip() for first, last in sentence_spans(text)] == sentences


def test_no_character_is_lost():
    text = "\n\nOne. Two? Three\n\nFour.  "
    assert "".join(text[first:last] for first, last in sentence_spans(text)) == text


# -------------------------------------------------------------------------------------------------
# Abbreviations that a text explains.

TEXT = (
    "Wilson disease (WD) in dogs.\n"
    "Copper toxicosis (CT) is like WD. Patients (n = 12) with ataxia-telangiectasia (AT) had none."
)


def test_what_stands_before_the_brackets():
    found = abbreviations_of(TEXT)
    assert found == {
        **{"WD": "Wilson disease", "CT": "Copper toxicosis"},
        "AT": "ataxia-telangiectasia",
    }
    assert {type(one) for pair in found.items() for one in pair} == {str}
    assert abbreviations_of("") == abbreviations_of("No brackets.") == {}


def in_a_new_process(repo, tmp_path, *options, after=""):
    code = (
        "from data_pipeline.sources.text import abbreviations_of;"
        f"abbreviations_of('a b (AB)');{after}"
    )
    nothing_compiled = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=repo, env=nothing_compiled, capture_output=True, text=True)


def test_the_library_does_not_set_up_logging(repo, tmp_path):
    after = "import logging; root = logging.getLogger(); print(root.handlers, root.level)"
    told = in_a_new_process(repo, tmp_path, after=after)
    assert told.stdout.split() == ["[]", str(logging.WARNING)]


def test_the_first_import_of_the_library_warns_of_nothing(repo, tmp_path):
    told = in_a_new_process(repo, tmp_path, "-W", "always")
    assert (told.returncode, told.stderr) == (0, "")
