from collections import Counter

import pytest

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.gold import GoldMention, GoldMentions
from data_pipeline.terminology.mention_set import Entry, concept_names, gold_form, mention_set

CODED = [
    Entry(("D1", "100"), ("heart attack", "infarction")),
    Entry(("D2",), ("renal failure",)),
    Entry(("100",), ("another",)),
]
NAMED = [
    Entry(("01",), ("heart",)),
    Entry(("01.1",), ("heart attack",)),
    Entry(("01.1x1",), ("heart attack",)),
    Entry(("02.1",), ("heart attack",)),
]


def read(*gold: tuple[str, ...]) -> GoldMentions:
    rows = [GoldMention(f"m{place}", one, f"f:{place}") for place, one in enumerate(gold)]
    return GoldMentions(rows, Counter({"rows left out: no gold": 2}), ["f:9: left out: no gold"])


def test_where_gold_is_names_a_concept_is_a_distinct_name_with_all_its_codes():
    found = concept_names(NAMED, "names")
    assert found.concepts == found.names == ["heart", "heart attack"]
    assert found.codes == [("01",), ("01.1", "01.1x1", "02.1")]
    assert found.branches == [("01",), ("01", "02")]
    assert found.name_concepts.tolist() == [0, 1]


def test_where_gold_is_codes_every_name_stands_for_its_concept():
    found = concept_names(CODED, "codes")
    assert found.concepts == ["D1", "D2", "100"]
    assert found.names == ["heart attack", "infarction", "renal failure", "another"]
    assert found.name_concepts.tolist() == [0, 0, 1, 2]
    assert found.branches == [("D1", "100"), ("D2",), ("100",)]
    # "100" is another identifier of D1, but the main one of its own entry.
    assert found.number == {"D1": 0, "D2": 1, "100": 2}
    assert concept_names(CODED[::-1], "codes").number == {"100": 0, "D2": 1, "D1": 2}


def test_other_codes_of_an_entry_are_gold_of_its_concept():
    assert concept_names(CODED[:2], "codes").number == {"D1": 0, "D2": 1, "100": 0}


def test_names_of_an_entry_are_concepts_where_gold_is_names():
    found = concept_names(CODED, "names")
    assert found.concepts == ["heart attack", "infarction", "renal failure", "another"]
    assert found.codes[1] == ("D1", "100")


def test_how_gold_is_written_is_found_out():
    assert gold_form(CODED, read(("D1",), ("D2|100",), ("heart attack",)).rows) == "codes"
    assert gold_form(NAMED, read(("heart",), ("01", "heart attack")).rows) == "names"


def test_gold_is_a_set_of_concepts_and_what_the_dictionary_lacks_stays_in_it():
    names = concept_names(CODED[:2], "codes")
    found = mention_set(read(("D2", "D1"), ("D1|100",), ("D9", "D1", "D8"), ("D9",)), names)
    assert found.mentions == ["m0", "m1", "m2", "m3"]
    assert found.gold_start.tolist() == [0, 2, 3, 6, 7]
    assert found.gold.tolist() == [1, 0, 0, 0, -1, -1, -1]
    assert found.counts == {
        "rows left out: no gold": 2,
        "gold of the same concept, counted once": 1,
        "gold outside the dictionary": 3,
        "mentions with gold outside the dictionary": 2,
        "mentions": 4,
        "mentions of one concept": 2,
        "mentions of several": 2,
        "gold": 7,
    }
    assert found.odd == [
        "f:9: left out: no gold",
        "f:1: gold of the same concept: ['D1', '100']",
        "f:2: gold outside the dictionary: 'D9'",
        "f:2: gold outside the dictionary: 'D8'",
        "f:3: gold outside the dictionary: 'D9'",
    ]


def test_a_dictionary_without_names_is_said():
    with pytest.raises(BadInput, match="no names"):
        concept_names([], "names")
