"""The vocabulary of a WordPiece tokenizer: the library's own pieces; new ones at its end."""

import numpy as np
import pytest
import tiny_bert
import tiny_roberta
from tokenizers import Tokenizer
from tokenizers.models import BPE

from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.dataset.vocabulary.word_piece import WordPieceVocabulary
from data_pipeline.process.errors import BadInput

WORDS = ["heart", "hearts", "attacks", "Ω", "a" * 101, "(", "renal2"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_bert.write_tokenizer(folder)
    return load_tokenizer(folder)


def test_words_have_the_tokenizer_s_own_pieces(tokenizer):
    vocabulary = WordPieceVocabulary.of(tokenizer, "tiny")
    assert vocabulary.size == len(tiny_bert.VOCABULARY)
    assert (vocabulary.unknown, vocabulary.prefix, vocabulary.longest_word) == ("[UNK]", "##", 100)
    ids, start = vocabulary.split(WORDS)
    own = [tokenizer.encode(word, add_special_tokens=False) for word in WORDS]
    assert [part.tolist() for part in np.split(ids, start[1:-1])] == [one.ids for one in own]
    assert vocabulary.pieces_of(WORDS) == [one.tokens for one in own]


def test_new_pieces_are_those_of_the_model_and_change_no_other_id(tokenizer):
    vocabulary = WordPieceVocabulary.of(tokenizer, "tiny").with_pieces(["hearts", "##acks", "Ω"])
    size = len(tiny_bert.VOCABULARY)
    extended = vocabulary.put_into(tokenizer)
    assert extended.encode("hearts backs sacks", add_special_tokens=False).tokens == [
        *("hearts", "b", "##acks", "s", "##acks")
    ], "within a word they match where a piece does, and not anywhere"
    assert [extended.token_to_id(piece) for piece in ("hearts", "##acks", "Ω")] == [
        *(size, size + 1, size + 2)
    ]
    assert vocabulary.size == size + 3
    old = tokenizer.get_vocab()
    assert {piece: extended.get_vocab()[piece] for piece in old} == old
    assert extended.get_added_tokens_decoder().keys() == tokenizer.get_added_tokens_decoder().keys()
    assert tokenizer.token_to_id("hearts") is None, "the tokenizer itself is as it was"


def test_new_pieces_stand_behind_tokens_that_were_added(tokenizer):
    longer = Tokenizer.from_str(tokenizer.to_str())
    longer.add_tokens(["<drug>"])
    vocabulary = WordPieceVocabulary.of(longer, "tiny")
    assert vocabulary.size == len(tiny_bert.VOCABULARY) + 1
    extended = vocabulary.with_pieces(["hearts"]).put_into(longer)
    assert extended.encode("<drug> hearts", add_special_tokens=False).ids == [
        *(vocabulary.size - 1, vocabulary.size)
    ]


def test_other_kinds_of_vocabulary_are_refused(tmp_path):
    tiny_roberta.write_tokenizer(tmp_path)
    with pytest.raises(BadInput, match=r"xlm: the vocabulary is .* SentencePiece .* WordPiece"):
        WordPieceVocabulary.of(load_tokenizer(tmp_path), "xlm")
    with pytest.raises(BadInput, match="BPE, as of RoBERTa and ModernBERT; expected WordPiece"):
        WordPieceVocabulary.of(Tokenizer(BPE()), "roberta")
