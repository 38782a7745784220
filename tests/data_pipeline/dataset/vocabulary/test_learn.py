"""New pieces: the characters that are missing, and learnt ones that make words shorter."""

import pytest
import tiny_bert

from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.dataset.vocabulary.learn import (
    chosen_pieces,
    learnt_pieces,
    missing_characters,
    new_pieces,
)
from data_pipeline.dataset.vocabulary.word_piece import WordPieceVocabulary
from data_pipeline.dataset.vocabulary.words import count_words, coverage, lengths

GERMAN = [f"{a}{b}" for a in ("herz", "leber", "nieren") for b in ("entzündung", "kranke", "stein")]
CHINESE = ["心肌梗死", "心肌炎", "心脏病", "µ"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_bert.write_tokenizer(folder)
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    return WordPieceVocabulary.of(tokenizer, "tiny")


def words_of(tokenizer, terms):
    return count_words(tokenizer, {"UND": terms})


def test_characters_come_by_frequency_and_inside_words_where_they_may_be(tokenizer, vocabulary):
    words = words_of(tokenizer, [*CHINESE, "ЪЖ", "ъж", "pain", "é"])
    found = missing_characters(words, vocabulary, 1)
    assert found[:4] == ["心", "ж", "##ж", "ъ"] and found[4:6] == ["##ъ", "肌"]
    assert {*found[6:]} == {"炎", "梗", "死", "脏", "病", "µ"}, "normalized as the encoder does it"
    assert missing_characters(words, vocabulary, 3) == ["心"]
    assert missing_characters(words, vocabulary.with_pieces(found), 1) == []


def test_learnt_pieces_are_new_longer_than_a_character_and_the_same_each_time(
    tokenizer, vocabulary
):
    words = words_of(tokenizer, GERMAN)
    once, *more = (learnt_pieces(tokenizer, vocabulary, GERMAN, words, 30, 2) for _ in range(8))
    assert once and all(again == once for again in more)
    assert all(len(piece.removeprefix("##")) > 1 for piece in once)
    assert vocabulary.pieces.keys().isdisjoint(once) and len({*once}) == len(once)
    assert {"herz", "##stein"} <= {*once}
    knows_one = vocabulary.with_pieces(["herz"])
    assert "herz" not in learnt_pieces(tokenizer, knows_one, GERMAN, words, 30, 2)
    assert not learnt_pieces(tokenizer, vocabulary, GERMAN, words, 30, 100)


def test_with_its_new_pieces_terms_are_shorter(tokenizer, vocabulary):
    words = words_of(tokenizer, [*GERMAN, *CHINESE])
    found = new_pieces(tokenizer, vocabulary, [*GERMAN, *CHINESE], words, 20, 1)
    assert len(found) == 20 and len({*found}) == 20
    assert found[0] == "心", "characters first"
    before, after = (
        coverage(words, one)["UND"] for one in (vocabulary, vocabulary.with_pieces(found))
    )
    assert before.unknown == 11 and after.unknown == 0
    assert after.tokens < before.tokens
    is_longer = lengths(words, vocabulary) < lengths(words, vocabulary.with_pieces(found))
    assert not is_longer.any()


def test_characters_alone_or_as_many_as_were_asked_for(tokenizer, vocabulary):
    words = words_of(tokenizer, [*GERMAN, *CHINESE])
    every = missing_characters(words, vocabulary, 1)
    assert new_pieces(tokenizer, vocabulary, GERMAN, words, None, 1) == every
    assert new_pieces(tokenizer, vocabulary, GERMAN, words, 3, 1) == every[:3]


def test_a_piece_that_makes_words_longer_gives_its_place_to_the_next(tokenizer, vocabulary):
    """ "hearta" leaves "ttack", five letters; with "hearts" the word is one piece."""
    vocabulary = vocabulary.with_pieces(["##attack"])
    words = words_of(tokenizer, ["heartattack", "hearts"])
    assert vocabulary.pieces_of(words.words) == [["heart", "##attack"], ["heart", "##s"]]
    assert chosen_pieces(vocabulary, words, [], ["hearta", "hearts", "##zz"], 1) == ["hearts"]
    # What no word uses goes, too; a character stays, if only for words that are yet to come.
    assert chosen_pieces(vocabulary, words, ["##ж"], ["##zz", "hearts"], 2) == ["##ж", "hearts"]
    assert chosen_pieces(vocabulary, words, [], ["hearta", "##zz"], 2) == []
