import numpy as np
import pytest
from tokenizers import Tokenizer

from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.keywords.vocabulary import (
    KeywordVocabulary,
    keyword_lines,
    read_keywords,
    units,
)

CHINESE = KeywordVocabulary(
    {"site": ("甲状腺", "甲状", "腺", "肾", "胃肠"), "type": ("切除术", "术", "病损切除术")}
)
ENGLISH = KeywordVocabulary({"site": ("heart", "ear", "left heart"), "type": ("heart failure",)})


def found(vocabulary, string):
    return [(match.word, match.first, match.kind) for match in vocabulary.matches(string)]


def test_the_longest_match_of_a_kind_drops_those_within_it():
    assert found(CHINESE, "甲状腺切除术") == [("甲状腺", 0, 0), ("切除术", 3, 1)]
    assert found(CHINESE, "肾病损切除术") == [("肾", 0, 0), ("病损切除术", 1, 1)]


def test_matches_of_two_kinds_may_overlap():
    assert found(ENGLISH, "left heart failure") == [("left heart", 0, 0), ("heart failure", 5, 1)]
    assert ENGLISH.kinds_of_characters("heart failure").tolist() == [3] * 5 + [2] * 8


def test_only_the_first_occurrence_counts():
    assert found(CHINESE, "肾与肾") == [("肾", 0, 0)]
    # The first is within a longer word and dropped with it; a later one is none.
    assert found(CHINESE, "甲状腺与腺") == [("甲状腺", 0, 0)]


def test_of_words_with_blanks_between_them_only_whole_ones_match():
    assert found(ENGLISH, "heartburn of the ear, hearts") == [("ear", 17, 0)]
    assert found(ENGLISH, "ear2 EAR") == [("ear", 5, 0)]
    assert found(KeywordVocabulary({"site": ("CT",)}), "胸部CT检查") == [("ct", 2, 0)]


def test_case_does_not_count_and_does_not_move_places():
    turkish = KeywordVocabulary({"site": ("Kalp",)})
    assert found(turkish, "İİ KALP") == [("kalp", 3, 0)]


def test_tokens_have_the_kinds_that_they_overlap(tmp_path):
    from tiny_bert import write_tokenizer
    from transformers import AutoTokenizer

    write_tokenizer(tmp_path)
    tokenizer: Tokenizer = AutoTokenizer.from_pretrained(tmp_path).backend_tokenizer
    words = KeywordVocabulary({"a": ("ear", "heart"), "b": ("failure",)})
    string = "  Ear of (HEART) failure"
    encoding = tokenizer.encode(string)
    kinds = words.kinds_of_tokens(string, encoding.offsets)
    assert kinds.dtype == np.uint8
    pieces = zip(encoding.tokens, kinds.tolist(), strict=True)
    assert [(piece, kind) for piece, kind in pieces if kind] == [
        ("e", 1),
        ("##a", 1),
        ("##r", 1),
        ("heart", 1),
        ("failure", 2),
    ]
    assert kinds[0] == kinds[-1] == 0
    assert not words.kinds_of_tokens("x", tokenizer.encode("x").offsets).any()


def test_units_are_words_or_characters():
    text = "脑CT 2型, left-sided"
    assert [text[slice(*span)] for span in units(text)] == ["脑", "CT", "2", "型", "left", "sided"]


def test_a_file_of_seven_kinds_is_read_and_written(tmp_path):
    path = tmp_path / "words.tsv"
    lines = "".join(f"word {i}\tkind {i % 7}\n" for i in range(20))
    path.write_text("word\tkind\n" + lines + "word 0\tkind 0\nword 0\tkind 1\n", encoding="utf-8")
    read = read_keywords(path)
    assert read.kinds == [f"kind {i}" for i in range(7)]
    assert read.words["kind 0"] == ("word 0", "word 7", "word 14")
    assert read.words["kind 1"] == ("word 1", "word 8", "word 15", "word 0")
    assert read.kinds_of_characters("word 6")[0] == 1 << 6
    (tmp_path / "again.tsv").write_text(keyword_lines(read.words), encoding="utf-8")
    assert read_keywords(tmp_path / "again.tsv") == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("heart\n", ":1: found 1 columns"),
        ("heart\tsite\n\tsite\n", ":2: found 2 columns or an empty one"),
        ("".join(f"w\tk{i}\n" for i in range(8)), "found 8 kinds"),
    ],
)
def test_a_broken_file_is_said(tmp_path, text, said):
    path = tmp_path / "words.tsv"
    path.write_text(text)
    with pytest.raises(BadInput, match=said):
        read_keywords(path)
