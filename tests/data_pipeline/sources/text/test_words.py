import pytest

from data_pipeline.sources.text.words import rules_hash, token_spans, words_of


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
    monkeypatch.setattr("data_pipeline.sources.text.words.STOP_WORDS", frozenset(["of"]))
    assert rules_hash() != before
