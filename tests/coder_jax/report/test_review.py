"""What the review page holds: rows, their candidates, and the part of a dictionary to search."""

import base64
import gzip
import json
import math
import re
from dataclasses import replace

import pytest
from toy_review import HOSTILE, toy_answers, toy_columns, toy_dictionary

from coder_jax.mapping.coded_list import Answer, Candidate, Decision, Status
from coder_jax.report.review import _review_contents, write_review
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary
from data_pipeline.process import BadInput

DICTIONARY = Dictionary(
    ["mi", "heart attack", "cold", "flu", "grippe", "gout"],
    ["C1", "C1", "C2", "C3|C4", "C3", "C5"],
    "terms.tsv",
    about_concepts={"C3": AboutConcept("Influenza", (("MSH", "D1"), ("MSH", "D2")), ("T047 D",))},
)
NEAR = [
    Answer("gouty", Status.NEAR, [Candidate("C5", "gout", 0.71239), Candidate("C2", "cold", 0.1)])
]


def test_rows_and_concepts_are_places_in_lists():
    contents = _review_contents(NEAR, DICTIONARY, {"ward": ["4B"]}, [None])
    status = contents["statuses"].index("near")
    assert contents["rows"] == [
        ["gouty", status, 0, "", [[0, "gout", 0.7124], [1, "cold", 0.1]], ["4B"], 1, "", None, None]
    ]
    concepts = contents["concepts"]
    assert concepts["ids"] == ["C5", "C2", "C1", "C3", "C4"], "candidates come first"
    assert concepts["names"] == ["gout", "cold", "mi", "Influenza", "flu"]
    assert concepts["terms"] == [[], [], ["heart attack"], ["flu", "grippe"], []]
    assert concepts["codes"][3] == [0, "D1", 0, "D2"] and concepts["vocabularies"] == ["MSH"]
    assert concepts["types"] == [[], [], [], [0], []] and concepts["typeNames"] == ["T047 D"]
    assert contents["dictionary"] == {"concepts": 5, "hasAllTerms": True}


def test_a_mention_is_one_row_and_blanks_are_none():
    answers = [*NEAR, Answer(" ", Status.NO_ANSWER, []), *NEAR]
    contents = _review_contents(answers, DICTIONARY, {"ward": ["a", "b", "c"]}, [None] * 3)
    (row,) = contents["rows"]
    assert row[5:8] == [["a"], 2, ""] and contents["blank"] == 1


def test_the_same_text_of_two_codes_is_two_rows():
    decisions = [None, Decision(("C2",)), None]
    sure = [replace(NEAR[0], confidence=0.87654)]
    codes, used = ["L1", "D2", "L1"], [5, 7, 1]
    contents = _review_contents(sure * 3, DICTIONARY, {}, decisions, codes, used)
    assert [[row[0], *row[6:]] for row in contents["rows"]] == [
        ["gouty", 2, "L1", 0.8765, 6],
        ["gouty", 1, "D2", 0.8765, 7],
    ]
    assert contents["decided"] == [[1, ["C2"], "", "", "", False]] and contents["hasCodes"] is True


def test_what_is_decided_already():
    unknown = Answer("x", Status.DECIDED, [Candidate("C1", "mi", math.nan)])
    noted = replace(NEAR[0], mention="noted")
    decisions = [Decision((), "no"), Decision(("C4", "C1"), "", "Anna", "2026-03-01")]
    decisions.append(Decision((), "ask", is_open=True))
    contents = _review_contents([*NEAR, unknown, noted], DICTIONARY, {}, decisions)
    assert contents["decided"] == [
        [0, [], "no", "", "", False],
        [1, ["C4", "C1"], "", "Anna", "2026-03-01", False],
        [2, [], "ask", "", "", True],
    ]
    assert contents["hasCodes"] is False
    assert contents["rows"][1][4] == [[2, "mi", None]], "not a number is not there"
    assert contents["concepts"]["ids"][:4] == ["C5", "C2", "C1", "C4"]


@pytest.mark.parametrize(
    "most, ids, terms, has_all",
    [
        (0, "C5 C2", 0, False),
        (3, "C5 C2 C1", 0, False),
        (5, "C5 C2 C1 C3 C4", 0, False),
        (7, "C5 C2 C1 C3 C4", 2, False),
        (8, "C5 C2 C1 C3 C4", 3, True),
    ],
)
def test_of_a_large_dictionary_a_part(most, ids, terms, has_all):
    contents = _review_contents(NEAR, DICTIONARY, {}, [None], None, None, most)
    assert contents["concepts"]["ids"] == ids.split()
    assert sum(map(len, contents["concepts"]["terms"])) == terms
    assert contents["dictionary"] == {"concepts": 5, "hasAllTerms": has_all}


def written(path, **more):
    size, mentions = write_review(
        path, toy_answers(), toy_dictionary(), title="A <b>list</b>", encoder_line="an & b", **more
    )
    html = path.read_text()
    assert size == len(html.encode()) and mentions == len(toy_answers())
    return html


def test_strings_are_data_and_never_markup(tmp_path):
    html = written(tmp_path / "r.html", columns=toy_columns())
    assert html == written(tmp_path / "r.html", columns=toy_columns()), "the same gives the same"
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", html)
    assert "url(" not in html and "@import" not in html and "fetch(" not in html
    assert html.count("<script") == 2 and html.count("</script") == 2
    assert "<h1>A &lt;b&gt;list&lt;/b&gt;</h1>" in html and "an &amp; b" in html
    packed = re.search(r'id="contents">([A-Za-z0-9+/=]+)</script>', html)[1]
    content = base64.b64decode(packed)
    assert content[4:8] == bytes(4), "no time of writing"
    contents = json.loads(gzip.decompress(content))
    assert [row[0] for row in contents["rows"][: len(HOSTILE)]] == HOSTILE
    assert len(html) < 250_000, "6,000 terms and 2,000 mentions"


def test_each_list_is_kept_under_a_name_of_its_own(tmp_path):
    keys = {
        re.search(r'data-key="(\w+)"', written(tmp_path / "r.html", **more))[1]
        for more in ({}, {"columns": toy_columns()}, {"decisions": [Decision(())] * 2000})
    }
    assert len(keys) == 3


def test_a_page_that_cannot_be_written(tmp_path):
    with pytest.raises(BadInput, match="absent/r.html: cannot be written .* give another --review"):
        written(tmp_path / "absent" / "r.html")
