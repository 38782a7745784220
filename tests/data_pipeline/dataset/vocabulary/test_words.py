"""Words of terms and how a vocabulary covers them: as tokenizing the terms themselves tells it."""

from collections import Counter

import pytest
import tiny_bert
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import WhitespaceSplit

from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.dataset.vocabulary.word_piece import WordPieceVocabulary
from data_pipeline.dataset.vocabulary.words import (
    changes,
    count_words,
    coverage,
    lengths,
    total,
)

TERMS = {
    "CHI": ["心肌 pain", "心"],
    "ENG": ["Heart attack, acute", "heart  attacks", "pain (acute)", "µ-pain", "acute", "\x07"],
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_bert.write_tokenizer(folder)
    return load_tokenizer(folder)


def test_words_are_counted_by_language(tokenizer):
    words = count_words(tokenizer, TERMS)
    english = words.languages["ENG"]
    counted = dict(zip((words.words[one] for one in english.places), english.counts, strict=True))
    assert counted == {
        **{"heart": 2, "attack": 1, "attacks": 1, ",": 1, "acute": 3, "pain": 2},
        **{"(": 1, ")": 1, "µ": 1, "-": 1},
    }
    assert words.counts()[words.words.index("pain")] == 3
    assert [one.terms for one in words.languages.values()] == [2, 6]


@pytest.mark.parametrize("at_blanks", [True, False])
def test_coverage_is_that_of_the_terms_tokenized_whole(tokenizer, at_blanks):
    if not at_blanks:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.pre_tokenizer = WhitespaceSplit()
    vocabulary = WordPieceVocabulary.of(tokenizer, "tiny")
    found = coverage(count_words(tokenizer, TERMS), vocabulary)
    for language, terms in TERMS.items():
        tokens = [tokenizer.encode(term, add_special_tokens=False).tokens for term in terms]
        kinds = Counter(token for one in tokens for token in one)
        assert found[language].tokens == kinds.total()
        assert found[language].unknown == kinds["[UNK]"] > 0
        assert found[language].terms == len(terms)
    both = total(found.values())
    assert both.tokens == sum(one.tokens for one in found.values())
    assert found["CHI"].in_cells() == ["75.00%", "1.00", "2.00"]


def test_no_words_at_all(tokenizer):
    words = count_words(tokenizer, {"UND": ["\x07"]})
    vocabulary = WordPieceVocabulary.of(tokenizer, "tiny")
    assert words.words == []
    assert coverage(words, vocabulary)["UND"].in_cells() == ["0.00%", "0.00", "0.00"]


def test_what_becomes_of_words(tokenizer):
    words = count_words(tokenizer, {"UND": ["heart attacks", "attacks 心", "hearten pains"]})
    before = WordPieceVocabulary.of(tokenizer, "tiny")
    after = before.with_pieces(["attacks", "心", "hearte"])
    assert dict(zip(words.words, lengths(words, before), strict=True)) == {
        **{"heart": 1, "attacks": 2, "心": 2, "hearten": 3, "pains": 2}
    }, "an unknown word counts one more than its characters"
    changed = changes(words, before, after)
    assert (changed.shorter, changed.longer) == (3, 0)
    assert changed.examples("UND", 1) == [("attacks", ["attack", "##s"], ["attacks"])]
    assert {word for word, _, _ in changed.examples("UND", 9)} == {"attacks", "心", "hearten"}


def test_a_longer_first_piece_can_make_a_word_longer(tokenizer):
    words = count_words(tokenizer, {"UND": ["heartattack"]})
    before = WordPieceVocabulary.of(tokenizer, "tiny").with_pieces(["##attack"])
    worse = changes(words, before, before.with_pieces(["hearta"]))
    assert worse.saved.tolist() == [-4] and (worse.shorter, worse.longer) == (0, 1)
    assert worse.examples("UND", 9) == []
