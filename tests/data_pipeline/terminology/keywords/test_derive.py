import pytest
from mention_files import chip

from data_pipeline import derive_keywords as command
from data_pipeline.terminology.keywords.derive import derive_keywords
from data_pipeline.terminology.keywords.vocabulary import KeywordVocabulary, read_keywords

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
