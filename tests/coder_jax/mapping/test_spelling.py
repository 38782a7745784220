"""What counts as a typing error: one letter of a long word, and no other word."""

import pytest

from coder_jax.mapping.spelling import TypingErrors

TERMS = [
    "Hypertension",
    "Heart failure, right",
    "Peroneal palsy",
    "Perineal tear",
    "Type 1 diabetes mellitus",
    "Macrognathia",
    "Afferent neuropathy",
    "Asymptomatic carrier",
    "Sodium nitrite",
    "Heartburn",
    "NSTEMI",
    "Vitamin A deficiency",
    "Straßenbahn",
    "Kidney stone",
    *("Esotropia", "Thoracotomy", "Urethral stone", "Dysphagia"),
]


@pytest.fixture(scope="module")
def errors():
    return TypingErrors(TERMS)


@pytest.mark.parametrize(
    ("mention", "row"),
    [
        ("hypertenison", 0),  # swapped
        ("Hypertensin", 0),  # too few
        ("hyperrtension", 0),  # too many
        ("hypertensiom", 0),  # wrong
        ("hyeprtension", 0),  # swapped
        ("hyperetnsion", 0),  # swapped, at the middle
        ("yhpertension", 0),  # swapped, at the beginning
        ("heart failuer, right", 1),
        ("heart failure,right", None),  # no letter beside the blank
        ("type 1 diabetes melitus", 4),
        ("heart burn", 9),
        ("heart-burn", 9),
        ("strassenbahm", 12),
        ("kidny stone", 13),
    ],
)
def test_one_typing_error(errors, mention, row):
    assert errors.rows([mention]) == [[] if row is None else [row]]


@pytest.mark.parametrize(
    "mention",
    [
        "hypertension",  # none
        "hypertnesoin",  # two
        "perineal palsy",  # a word that the dictionary has
        "type 2 diabetes mellitus",  # a digit
        "micrognathia",
        "exotropia",
        "thoracostomy",
        "ureteral stone",
        "dysphasia",
        "efferent neuropathy",
        "symptomatic carrier",
        "sodium nitrate",
        "STEMI",
        "vitamin B deficiency",  # a short word
        "hypertension2",
        "",
        "x",
    ],
)
def test_no_typing_error(errors, mention):
    assert errors.rows([mention]) == [[]]


def test_many_at_once_and_none(errors):
    assert errors.rows(["hypertenison", "pain", "sodium nitrit"]) == [[0], [], [8]]
    assert errors.rows([]) == [] and TypingErrors([]).rows(["hypertension"]) == [[]]
