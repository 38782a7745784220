"""The command, from text to a folder of vectors."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_names import skip_gram_manifest

from data_pipeline.process import BadInput
from data_pipeline.skip_gram.__main__ import main
from data_pipeline.skip_gram.build import (
    _concept_token,
    _kind_and_string,
    _name_token,
    _sequences,
    _train,
    _write_corpus,
    build_skip_grams,
    skip_gram_report,
)
from data_pipeline.skip_gram.names import Mention, Sentence, read_names
from data_pipeline.skip_gram.options import Settings, SkipGramOptions
from data_pipeline.skip_gram.store import StringVectors, open_vectors, write_skip_grams

TEXT = "The heart attack came. Pain, mi and pain of heart attack!\n\nA mi or fever. Other.\n"
NAMES = "heart attack\tC1\nMi\tC1\npain\tC2\nstroke of luck\tC3\nheart pain\tC2\n"
SMALL = Settings(size=8, window=2, epochs=3, min_count=1, sample=0)


@pytest.fixture
def options(write, tmp_path):
    return SkipGramOptions(
        text=(write("text.txt", TEXT),),
        dictionary=write("names.tsv", NAMES),
        out=tmp_path / "out",
        variant="names_concepts",
        settings=SMALL,
    )


@pytest.mark.parametrize(
    ("variant", "lines"),
    [
        (
            "words",
            ["heart attack came", "pain mi pain heart attack", "a mi or fever"],
        ),
        (
            "names",
            [
                "name:heart_attack came",
                "name:pain name:mi name:pain name:heart_attack",
                "a name:mi or fever",
            ],
        ),
        (
            "names_concepts",
            [
                "name:heart_attack concept:C1 heart attack came",
                "heart attack name:heart_attack concept:C1 came",
                "name:pain concept:C2 pain name:mi concept:C1 mi name:pain concept:C2 pain"
                " name:heart_attack concept:C1 heart attack",
                "pain name:pain concept:C2 mi name:mi concept:C1 pain name:pain concept:C2"
                " heart attack name:heart_attack concept:C1",
                "a name:mi concept:C1 mi or fever",
                "a mi name:mi concept:C1 or fever",
            ],
        ),
    ],
)
def test_the_exact_lines_that_gensim_reads(options, tmp_path, variant, lines):
    options = dataclasses.replace(options, variant=variant)
    corpus = _write_corpus(options, read_names(options.dictionary), tmp_path / "corpus.txt")
    assert (tmp_path / "corpus.txt").read_text().splitlines() == lines
    assert corpus.counts["sentences"] == 3 and corpus.counts["documents"] == 2
    assert corpus.counts["sequences"] == len(lines) and corpus.counts["words"] == 12
    # However many sequences there are, counts are those of the text.
    assert corpus.tokens["came"] == 1
    assert corpus.tokens["pain"] == (0 if variant == "names" else 2)
    assert corpus.tokens["concept:C1"] == (4 if variant == "names_concepts" else 0)


def test_a_folder_has_all_that_was_seen_often_enough_and_its_counts(options):
    settings = dataclasses.replace(SMALL, min_count=2)
    grams = build_skip_grams(dataclasses.replace(options, settings=settings))
    assert (list(grams.words.strings), grams.words.counts.tolist()) == (
        ["attack", "heart", "mi", "pain"],
        [2, 2, 2, 2],
    )
    assert list(grams.names.strings) == ["heart attack", "mi", "pain"]
    assert (list(grams.concepts.strings), grams.concepts.counts.tolist()) == (["C1", "C2"], [4, 2])
    assert grams.names.vectors.shape == (3, 8) and grams.names.vectors.dtype == np.float32
    assert grams.manifest.coverage == {
        "distinct words in the text": 8,
        "distinct words with a vector": 4,
        "distinct names in the text": 3,
        "distinct names with a vector": 3,
        "distinct concepts in the text": 2,
        "distinct concepts with a vector": 2,
        "words of names of the dictionary": 8,
        "words of names with a vector": 6,
        "names of the dictionary": 5,
        "names all of whose words have a vector": 4,
        "names some of whose words have a vector": 4,
        "concepts of the dictionary": 3,
        "concepts with a name in the text": 2,
        "concepts with two names in the text": 1,
    }
    report = skip_gram_report(grams)
    assert "names all of whose words have a vector            4 (80.0%)" in report.replace(
        "  " * 20, ""
    )
    assert "heart attack (2), mi (2), pain (2)" in report


def test_the_same_command_gives_the_same_bytes_and_another_seed_does_not(options, tmp_path):
    one = build_skip_grams(options)
    two = build_skip_grams(dataclasses.replace(options, out=tmp_path / "two"))
    three = dataclasses.replace(SMALL, seed=1)
    other = build_skip_grams(dataclasses.replace(options, out=tmp_path / "three", settings=three))
    for name in (
        "words.tsv",
        "words.npy",
        "names.tsv",
        "names.npy",
        "concepts.tsv",
        "concepts.npy",
    ):
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()
    assert one.manifest.content_hash == two.manifest.content_hash
    assert one.manifest.content_hash != other.manifest.content_hash
    assert not np.array_equal(one.words.vectors, other.words.vectors)


def test_words_that_share_contexts_come_near_each_other(tmp_path):
    sides = [("cat", "dog"), ("bus", "car")]
    contexts = [["fur", "tail", "paw"], ["wheel", "road", "seat"]]
    lines = [
        f"{context} {word} {other}\n"
        for words, some in zip(sides, contexts, strict=True)
        for word in words
        for context in some
        for other in some
        if other != context
    ] * 20
    (tmp_path / "corpus.txt").write_text("".join(lines))
    counts = {word: 120 for words in (*sides, *contexts) for word in words}
    settings = dataclasses.replace(SMALL, epochs=20)
    tokens, vectors = _train(tmp_path / "corpus.txt", counts, settings)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cat, dog, bus, car = (unit[tokens.index(word)] for word in ("cat", "dog", "bus", "car"))
    assert cat @ dog > cat @ bus + 0.2 and bus @ car > dog @ car + 0.2


def test_the_manifest_says_what_it_was_made_of_and_odd_lines_are_named(options, write):
    text = write("a.jsonl", '{"text": "A heart attack."}\n{\n')
    grams = build_skip_grams(dataclasses.replace(options, text=(*options.text, text)))
    manifest = json.loads((grams.folder / "manifest.json").read_text())
    assert [one["file"] for one in manifest["text"]] == ["text.txt", "a.jsonl"]
    assert manifest["text"][1]["bytes"] == text.stat().st_size
    assert manifest["options"]["settings"]["window"] == 2
    assert manifest["dictionary"]["names"] == 5 and len(manifest["word_rules"]) == 64
    assert manifest["warnings"] == ["a.jsonl:2: a line that is no JSON"]
    odd = (grams.folder / "odd_lines.txt").read_text()
    assert odd == "a.jsonl:2: a line that is no JSON\n"


def test_stop_words_and_marks_of_the_text_are_kept_on_request(options, tmp_path):
    words = {}
    for keep in (False, True):
        changed = dataclasses.replace(options, keep_stop_words=keep, out=tmp_path / str(keep))
        grams = build_skip_grams(changed)
        assert grams.names.rows(["heart attack", "mi", "pain"]).min() >= 0
        assert grams.manifest.options["keep_stop_words"] == keep
        words[keep] = dict(zip(grams.words.strings, grams.words.counts.tolist(), strict=True))
        assert grams.manifest.counts["words"] == 12 + 7 * keep
    added = {"the": 1, "and": 1, "of": 1, ".": 2, ",": 1, "!": 1}
    assert words[True] == words[False] | added


def test_annotated_text_without_a_dictionary(options, write):
    text = write(
        "cdr.txt", "1|t|Colon cancer.\n1|a|Cup.\n1\t0\t12\tColon cancer\tSpecificDisease\tD3\n"
    )
    options = dataclasses.replace(options, text=(text,), dictionary=None)
    with pytest.raises(BadInput, match="Disease Chemical: .* expected some of SpecificDisease"):
        build_skip_grams(options)
    grams = build_skip_grams(dataclasses.replace(options, annotation_types=("SpecificDisease",)))
    assert list(grams.names.strings) == ["colon cancer"] and list(grams.concepts.strings) == ["D3"]


def test_the_command_and_its_examples(options, capsys):
    arguments = ["--text", str(options.text[0]), "--out", str(options.out), "--min-count", "2"]
    assert main([*arguments, "--variant", "words", "--size", "4", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("words, 4 numbers a vector: ") and not err
    grams = open_vectors(options.out)
    assert len(grams.words.strings) == 4 and not len(grams.names.strings)
    assert grams.manifest.options["settings"]["epochs"] == 5
    assert main([*arguments, "--variant", "words"]) == 2
    assert "already holds skip-grams; add --overwrite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": (Path("none.txt"),)}, "--text none.txt does not exist"),
        ({"out": Path("s3://bucket/sg")}, "--out: found s3:.*; expected a folder on this machine"),
        ({"stop_names": Path("none")}, "--stop-names none does not exist"),
        ({"settings": Settings(min_count=9)}, "no word so often, the most frequent 4 times"),
        ({"settings": Settings(window=0)}, "--window 0: expected 1 or more"),
        ({"settings": Settings(seed=-1)}, "--seed -1: expected 0 or more"),
        ({"settings": Settings(rate=0)}, "--rate 0: expected more than 0"),
        ({"settings": Settings(sample=1)}, "--sample 1: expected 0"),
        ({"dictionary": None}, "found 3 sentences and no annotated name; expected names: give"),
        (
            {"dictionary": None, "dictionary_languages": ("ENG",)},
            "choose names of a --dictionary: give one",
        ),
        ({"dictionary": None, "exclude_concepts": Path(__file__)}, "names of which --dictionary"),
    ],
)
def test_what_cannot_be_is_refused(options, changes, message):
    with pytest.raises(BadInput, match=message):
        build_skip_grams(dataclasses.replace(options, **changes))
    assert not options.out.exists()


def test_a_dictionary_none_of_whose_names_the_text_has(options, write):
    options = dataclasses.replace(options, dictionary=write("n.tsv", "gout\tC1\n"))
    with pytest.raises(BadInput, match=r"found 3 sentences and no name of .*n\.tsv in it"):
        build_skip_grams(options)
    twice = dataclasses.replace(options, text=options.text * 2)
    with pytest.raises(BadInput, match="found a file twice"):
        build_skip_grams(twice)


def test_another_folder_is_never_replaced(options):
    options.out.mkdir()
    (options.out / "mine.txt").write_text("mine")
    with pytest.raises(BadInput, match="exists and is no folder of skip-grams"):
        build_skip_grams(dataclasses.replace(options, overwrite=True))
    assert (options.out / "mine.txt").read_text() == "mine"


@pytest.fixture
def folder(tmp_path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    words = StringVectors(["b", "a", "c"], np.array([3, 2, 2]), vectors)
    none = StringVectors([], np.zeros(0, np.int64), np.zeros((0, 2), np.float32))
    tables = {"words": words, "names": none, "concepts": none}
    grams = write_skip_grams(tmp_path / "grams", tables, skip_gram_manifest("words", "0" * 64))
    assert sorted(path.name for path in grams.folder.iterdir()) == [
        "manifest.json",
        "words.npy",
        "words.tsv",
    ]
    assert np.array_equal(grams.words.vectors, vectors) and grams.words.counts.tolist() == [3, 2, 2]
    return grams.folder


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words.tsv", b"word\tcount\na\t1\n", "found 1 rows, or other .*; expected 3 of word<TAB>"),
        ("words.tsv", b"word\tcount\na\t1\nb\nc\t1\n", "or other than two columns"),
        ("words.npy", b"none", "words.npy cannot be read .*; make the folder again with"),
        ("manifest.json", b"{}", "has the format None, expected 'coder_jax skip_grams 1'"),
        ("manifest.json", None, "is missing"),
    ],
)
def test_a_damaged_folder_is_said(folder, name, content, message):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        open_vectors(folder)


def test_what_was_changed_is_refused(folder):
    vectors = np.load(folder / "words.npy")
    vectors[0, 0] += 1
    np.save(folder / "words.npy", vectors)
    with pytest.raises(BadInput, match="is damaged: it does not hold what manifest.json says; m"):
        open_vectors(folder)


def test_vectors_of_another_width_are_refused(folder):
    np.save(folder / "words.npy", np.zeros((3, 5), np.float32))
    with pytest.raises(BadInput, match=r"holds float32 \(3, 5\); expected float32 \(3, 2\)"):
        open_vectors(folder)
    shutil.rmtree(folder)
    with pytest.raises(BadInput, match="is missing"):
        open_vectors(folder)


# -------------------------------------------------------------------------------------------------
# What gensim is given, by hand.

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
    made = _sequences(Sentence(TOKENS, MENTIONS), variant)
    assert [" ".join(one) for one in made] == expected


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("words", ["all the l1 , attack of heart ( r1 r2 ) mi . r3"]),
        ("names", ["all the l1 , name:attack_heart ( r1 r2 ) name:mi . r3"]),
        (
            "names_concepts",
            [
                "all the l1 , name:attack_heart concept:C1 attack of heart ( r1 r2 )"
                " name:mi concept:HP:2 mi . r3",
                "all the l1 , attack of heart name:attack_heart concept:C1 ( r1 r2 )"
                " mi name:mi concept:HP:2 . r3",
            ],
        ),
    ],
)
def test_the_sequences_of_a_text_that_keeps_its_stop_words(variant, expected):
    """The token of a name has none: it is the one that is looked up."""
    made = _sequences(Sentence(TOKENS, MENTIONS), variant, list)
    assert [" ".join(one) for one in made] == expected


@pytest.mark.parametrize("variant", ["words", "names", "names_concepts"])
def test_a_sentence_without_names_has_its_words_once(variant):
    assert _sequences(Sentence("l1 of r1".split(), []), variant) == [["l1", "r1"]]


def test_a_name_without_a_concept_stands_alone():
    sentence = Sentence(["l1", "mi"], [Mention(1, 2, "")])
    assert _sequences(sentence, "names_concepts") == [
        ["l1", "name:mi", "mi"],
        ["l1", "mi", "name:mi"],
    ]


def test_tokens_lead_back_to_what_they_stand_for():
    assert _kind_and_string("heart") == ("words", "heart")
    assert _kind_and_string(_name_token(["1,25-oh", "'s", "d3"])) == ("names", "1,25-oh 's d3")
    for concept in ("C1", "HP:2", "my own/concept_1", "\u75c5"):
        token = _concept_token(concept)
        assert len(token.split()) == 1 and _kind_and_string(token) == ("concepts", concept)
