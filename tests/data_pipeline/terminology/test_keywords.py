import numpy as np
import pytest
from mention_files import chip
from tokenizers import Tokenizer

from data_pipeline import derive_keywords as command
from data_pipeline.process import BadInput
from data_pipeline.terminology.keywords import (
    KeywordVocabulary,
    _units,
    derive_keywords,
    keyword_lines,
    read_keywords,
)

ORGANS = {"01": "神经", "02": "甲状腺", "03": "膀胱"}
DEEDS = ["切除术", "修补术", "切开引流术"]


def chinese():
    rows = [
        (f"{side}{organ}{deed}", {chapter})
        for chapter, organ in ORGANS.items()
        for deed in DEEDS
        for side in ("", "左侧", "右侧")
    ]
    return [name for name, _ in rows], [branch for _, branch in rows]


def test_endings_are_types_and_parts_of_one_branch_sites():
    names, branches = chinese()
    found = derive_keywords(names, branches, ending_names=9, part_names=5)
    assert set(found["type"]) == {"切除术", "修补术", "开引流术"}
    # "侧" and what goes over an edge is in several chapters; "甲状" is in no name without 甲状腺.
    assert {"神经", "甲状腺", "膀胱"} <= set(found["site"])
    assert not {"甲状", "状腺", "左侧", "引流"} & set(found["site"])
    assert not any(site.endswith(tuple(found["type"])) for site in found["site"])


def test_fewest_names_and_purity_are_kept():
    names, branches = chinese()
    assert derive_keywords(names, branches, ending_names=10, part_names=99) == {
        "site": [],
        "type": [],
    }
    loose = derive_keywords(names, branches, ending_names=9, part_names=5, purity=0.3)
    assert "左侧" in loose["site"]


def test_words_are_counted_in_whole_and_function_words_are_none():
    names = [f"{kind} {organ} syndrome" for kind in "abcde" for organ in ("renal", "hepatic")]
    names += [f"failure of the kidney type {kind}" for kind in "abcde"]
    branches = [{"x"} if "renal" in name else {"y"} for name in names]
    found = derive_keywords(names, branches, ending_names=5, part_names=5)
    assert found["type"] == ["syndrome"]
    assert "failure of the kidney" not in found["site"]  # four words
    assert {"renal", "hepatic"} <= set(found["site"])
    assert not any({"the", "of"} & {site.split()[0], site.split()[-1]} for site in found["site"])


def test_without_a_tree_all_frequent_parts_count(capsys):
    names, _ = chinese()
    alone = [{name} for name in names]
    found = derive_keywords(names, alone, ending_names=9, part_names=5)
    assert "左侧" in found["site"]
    assert "has no tree" in capsys.readouterr().err


def test_the_command_writes_words_and_says_what_they_cover(tmp_path, capsys):
    names, branches = chinese()
    rows = zip(names, branches, strict=True)
    lines = [f"{min(branch)}.{place}\t{name}" for place, (name, branch) in enumerate(rows)]
    (tmp_path / "code.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "train.csv").write_text(
        "原始词\t标准词\n左神经\t神经切除术\nx\t膀胱修补术\n", "utf-8"
    )
    words = ["--dictionary", str(tmp_path / "code.txt"), "--out", str(tmp_path / "words.tsv")]
    more = ["--ending-names", "9", "--mentions", str(tmp_path / "train.csv"), "--quiet"]
    assert command.main(words + more) == 0
    said = capsys.readouterr().out
    assert "names with a type: 100.0% of 27" in said
    assert "mentions with a site: 50.0% of 2" in said
    assert read_keywords(tmp_path / "words.tsv").kinds == ["site", "type"]
    assert command.main([*words, "--ending-names", "99", "--part-names", "99"]) == 2
    assert "give smaller --ending-names" in capsys.readouterr().err


@pytest.mark.slow
def test_keywords_of_chip_2019_are_in_most_of_what_was_not_looked_at(chip_path):
    corpus = chip(chip_path)
    found = derive_keywords(corpus.dictionary.names, corpus.dictionary.branches)
    keywords = KeywordVocabulary(found)
    kinds = [
        {match.kind for match in keywords.matches(one)} for one in corpus.mentions("dev", "test")
    ]
    for kind in (0, 1):
        assert sum(kind in one for one in kinds) / len(kinds) > 0.7


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
    assert [text[slice(*span)] for span in _units(text)] == ["脑", "CT", "2", "型", "left", "sided"]


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
