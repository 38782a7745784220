"""Word pieces: the ids of words put together are those of the whole terms."""

import numpy as np
import polars as pl
import pytest
import tiny_bert
from tokenizers import AddedToken, pre_tokenizers

from data_pipeline.dataset import word_pieces
from data_pipeline.dataset.tokenize_terms import load_tokenizer, tokenize_uncut
from data_pipeline.dataset.word_pieces import WordPieces
from data_pipeline.terminology.cleaning.rules import clean

TERMS = [
    *tiny_bert.TERMS,
    "",
    " ",
    "  pain  in  limb ",
    "acute (left) x-ray, 5 mg/ml",
    "日本 heart 痛み",
    "o\u0308dem \u0308dem \u0301",  # an accent of its own, behind a blank
    "a\u0000b \u0000 c",
    "pain\tin\u00a0limb\u3000heart",
    "a" * 300 + " heart",
    "[SEP] heart[CLS] [UNK] [unk]",
    "ΟΔΟΣ İris straße",
]


def check(pieces, terms):
    ids, start = pieces(terms)
    expected_ids, expected_start = tokenize_uncut(pieces.tokenizer, list(terms))
    assert ids.dtype == np.int32 and start.dtype == np.int64
    assert np.array_equal(start, expected_start) and np.array_equal(ids, expected_ids)


@pytest.fixture
def tokenizer(tmp_path):
    tiny_bert.write_tokenizer(tmp_path)
    return load_tokenizer(tmp_path)


def test_equal_to_whole_terms(tokenizer, minilm_path):
    for one in (tokenizer, load_tokenizer(minilm_path)):
        pieces = WordPieces(one)
        assert pieces.splits_at_blanks
        check(pieces, TERMS)
        check(pieces, TERMS[::-1])  # all words known
        check(pieces, pl.Series(["heart", "never seen"]))
        check(pieces, [])


def test_equal_on_random_characters(minilm_path):
    random = np.random.default_rng(0)
    points = np.concatenate([np.arange(1, 0x3100), np.arange(0xFE00, 0xFFFE)])
    points[random.random(len(points)) < 0.3] = ord(" ")
    texts = ["".join(map(chr, random.choice(points, 12))) for _ in range(5_000)]
    check(WordPieces(load_tokenizer(minilm_path)), texts)


def test_equal_on_real_terms_of_many_languages(shared_data, minilm_path):
    path = shared_data / "openmeta" / "MRCONSO.RRF.gz"
    table = pl.read_csv(path, has_header=False, separator="|", quote_char=None, infer_schema=False)
    terms = clean(table["column_15"][::40].fill_null(""), "paper")
    assert len(terms) > 20_000
    check(WordPieces(load_tokenizer(minilm_path)), terms)


def test_a_word_is_tokenized_once(tokenizer, monkeypatch):
    asked = []

    def listen(tokenizer, terms, **options):
        asked.extend(terms)
        return tokenize_uncut(tokenizer, terms, **options)

    monkeypatch.setattr(word_pieces, "tokenize_uncut", listen)
    pieces = WordPieces(tokenizer)
    pieces(["pain in limb", "limb pain"])
    pieces(["heart pain"])
    assert sorted(asked) == ["heart", "in", "limb", "pain"]


def test_too_many_words_are_forgotten(tokenizer, monkeypatch):
    monkeypatch.setattr(word_pieces, "WORDS_KEPT", 2)
    pieces = WordPieces(tokenizer)
    check(pieces, ["pain in limb"])
    check(pieces, ["heart pain"])
    assert sorted(pieces.known) == ["heart", "pain"]


def test_a_tokenizer_that_works_otherwise_gets_whole_terms(tokenizer):
    tokenizer.add_tokens([AddedToken("limb pain", normalized=False)])
    pieces = WordPieces(tokenizer)
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", "limb pain"])


@pytest.mark.parametrize("content", ["limb\tpain", "limb\u00a0pain"])
def test_white_space_in_an_added_token_becomes_a_blank(tokenizer, content):
    tokenizer.add_tokens([AddedToken(content, normalized=True)])
    pieces = WordPieces(tokenizer)
    assert len(tokenizer.encode("limb pain", add_special_tokens=False).ids) == 1
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", content])


@pytest.mark.parametrize("what", ["truncation", "padding"])
def test_a_tokenizer_that_cuts_or_fills_up_gets_whole_terms(tokenizer, what):
    if what == "truncation":
        tokenizer.enable_truncation(3)
    else:
        tokenizer.enable_padding()
    pieces = WordPieces(tokenizer)
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", "limb pain"])


def test_a_tokenizer_that_does_not_split_at_blanks_gets_whole_terms(tokenizer):
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces = WordPieces(tokenizer)
    assert not pieces.splits_at_blanks
    check(pieces, ["in limb pain", "limb pain"])


def test_a_special_token_that_takes_blanks_gets_whole_terms(tokenizer):
    tokenizer.add_special_tokens([AddedToken("[X]", lstrip=True)])
    assert not WordPieces(tokenizer).splits_at_blanks
