"""What gensim is given, by hand."""

import pytest

from data_pipeline.skip_gram.mentions import Mention, Sentence
from data_pipeline.skip_gram.sequences import (
    concept_token,
    kind_and_string,
    name_token,
    sequences,
)

TOKENS = "all the l1 , attack of heart ( r1 r2 ) mi . r3".split()
MENTIONS = [Mention(4, 7, "C1"), Mention(11, 12, "HP:2")]


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("words", ["all l1 attack heart r1 r2 mi r3"]),
        ("names", ["all l1 name:attack_heart r1 r2 name:mi r3"]),
        (
            "names_concepts",
            [
                "all l1 name:attack_heart concept:C1 attack heart r1 r2 name:mi concept:HP:2 mi r3",
                "all l1 attack heart name:attack_heart concept:C1 r1 r2 mi name:mi concept:HP:2 r3",
            ],
        ),
    ],
)
def test_the_sequences_of_a_sentence_with_two_names(variant, expected):
    made = sequences(Sentence(TOKENS, MENTIONS), variant)
    assert [" ".join(one) for one in made] == expected


@pytest.mark.parametrize("variant", ["words", "names", "names_concepts"])
def test_a_sentence_without_names_has_its_words_once(variant):
    assert sequences(Sentence("l1 of r1".split(), []), variant) == [["l1", "r1"]]


def test_a_name_without_a_concept_stands_alone():
    sentence = Sentence(["l1", "mi"], [Mention(1, 2, "")])
    assert sequences(sentence, "names_concepts") == [
        ["l1", "name:mi", "mi"],
        ["l1", "mi", "name:mi"],
    ]


def test_tokens_lead_back_to_what_they_stand_for():
    assert kind_and_string("heart") == ("words", "heart")
    assert kind_and_string(name_token(["1,25-oh", "'s", "d3"])) == ("names", "1,25-oh 's d3")
    for concept in ("C1", "HP:2", "my own/concept_1", "\u75c5"):
        token = concept_token(concept)
        assert len(token.split()) == 1 and kind_and_string(token) == ("concepts", concept)
