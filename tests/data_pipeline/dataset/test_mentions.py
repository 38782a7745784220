import dataclasses
import json
import shutil

import numpy as np
import pytest
from spoiled_files import readings, spoiled_text
from tiny_mentions import mentions_with_hierarchy, tiny_mentions
from tokenizers import Tokenizer

from data_pipeline.dataset.mentions import (
    MentionDataset,
    StoredStrings,
    TokenTable,
    open_mentions,
    token_table,
    write_mentions,
)
from data_pipeline.dataset.store import open_dataset
from data_pipeline.dataset.tokenizer import tokenize
from data_pipeline.process import BadInput
from data_pipeline.terminology.keywords import KeywordVocabulary


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> MentionDataset:
    return tiny_mentions(tmp_path_factory.mktemp("mentions"))


@pytest.fixture
def folder(built, tmp_path):
    return shutil.copytree(built.folder, tmp_path / "copy")


def in_memory(dataset: MentionDataset) -> MentionDataset:
    def table(one: TokenTable) -> TokenTable:
        arrays = (np.array(one.tokens), np.array(one.start), np.array(one.kinds))
        return TokenTable(list(one.strings), *arrays)

    splits = {
        name: dataclasses.replace(split, mentions=table(split.mentions))
        for name, split in dataset.splits.items()
    }
    return dataclasses.replace(dataset, names=table(dataset.names), splits=splits)


def test_a_dictionary_and_mentions_come_back_as_they_were_given(built):
    assert list(built.concepts)[:3] == ["heart disease", "heart attack", "acute heart attack"]
    assert built.names.strings[5:7] == ["renal failure", "acute renal failure"]
    assert built.name_concepts.tolist() == list(range(10))
    assert built.codes_of(5) == ["02.1", "02.1x1"]
    assert built.branches.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    train = built.splits["train"]
    assert train.mentions.strings[-1] == "pain, infarction"
    assert train.gold_sets()[1] == {3, 6}
    assert train.gold_sets()[-1] == {8, 9, -1}
    assert train.numbers().tolist() == [1, 2, 1, 1, 1, 1, 3]
    mentions, concepts = train.pairs()
    assert mentions.tolist() == [0, 1, 1, 2, 3, 4, 6, 6]
    assert concepts.tolist() == [1, 6, 3, 8, 0, 7, 8, 9]
    assert {name: len(split.mentions) for name, split in built.splits.items()} == {
        "train": 7,
        "dev": 2,
        "test": 2,
    }


def test_tokens_are_those_of_the_tokenizer_alone(built):
    tokenizer = Tokenizer.from_file(str(built.folder / "tokenizer" / "tokenizer.json"))
    tokens, start = tokenize(tokenizer, built.names.strings[:], 64)
    np.testing.assert_array_equal(built.names.tokens, tokens)
    np.testing.assert_array_equal(built.names.start, start)
    assert built.names.of(1).tolist() == tokenizer.encode("heart attack").ids


def test_kinds_stand_at_their_tokens_and_nowhere_else(built):
    heart_failure = "acute renal and heart failure"
    row = built.splits["train"].mentions.strings[:].index(heart_failure)
    table = built.splits["train"].mentions
    kinds = table.kinds[table.start[row] : table.start[row + 1]].tolist()
    # [CLS] acute renal a ##n ##d heart failure [SEP]; site is bit 0, "heart failure" a type, bit 1.
    assert kinds == [0, 0, 1, 0, 0, 0, 3, 2, 0]


def test_long_strings_are_cut_with_their_kinds(built):
    tokenizer = Tokenizer.from_file(str(built.folder / "tokenizer" / "tokenizer.json"))
    keywords = KeywordVocabulary({"site": ("heart", "limb")})
    strings = ["acute pain heart limb", "limb"]
    table, cut = token_table(tokenizer, strings, cleaning="none", max_length=5, keywords=keywords)
    assert cut == 1
    assert table.start.tolist() == [0, 5, 8]
    assert table.kinds.tolist() == [0, 0, 0, 1, 0, 0, 1, 0]
    assert table.tokens[4] == table.tokens[7] == tokenizer.token_to_id("[SEP]")


def test_arrays_are_mapped_and_equal_content_has_equal_hashes(built, tmp_path):
    assert isinstance(built.names.tokens, np.memmap)
    again = write_mentions(tmp_path / "again", in_memory(built), built.folder / "tokenizer")
    assert again.manifest.content_hash == built.manifest.content_hash
    assert again.words == built.words
    gold = np.array(built.splits["dev"].gold)
    gold[0] += 1
    other = dataclasses.replace(built.splits["dev"], gold=gold)
    changed = dataclasses.replace(in_memory(built), splits={**built.splits, "dev": other})
    written = write_mentions(tmp_path / "other", changed, built.folder / "tokenizer")
    assert written.manifest.content_hash != built.manifest.content_hash


def test_strings_of_any_characters_come_back():
    strings = ["", "耳鼻喉", "a\nb\tc", "naïve 𝛽"]
    stored = StoredStrings.of(strings)
    assert list(stored) == stored[:] == strings
    assert stored[-1] == "naïve 𝛽"
    with pytest.raises(IndexError):
        stored[4]


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("names.tokens.npy", lambda path: np.save(path, np.zeros(3, np.int32)), "is damaged"),
        ("name_concepts.npy", lambda path: np.save(path, np.zeros(3, np.int32)), "is damaged"),
        ("names.kinds.npy", lambda path: np.save(path, np.zeros(46, np.int64)), "is damaged"),
        ("names.kinds.npy", lambda path: path.unlink(), "cannot be read"),
        ("train.gold.npy", lambda path: path.write_bytes(b"no array"), "cannot be read"),
        ("words.tsv", lambda path: path.write_text("heart\torgan\n"), "is damaged"),
        ("manifest.json", lambda path: path.unlink(), "expected a folder of mentions"),
    ],
)
def test_a_damaged_folder_is_said(folder, file, change, said):
    change(folder / file)
    with pytest.raises(BadInput, match=said):
        open_mentions(folder)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("names.tokens", -1, "found -1 to .*, expected 0 to"),
        ("train.tokens", 10**6, "found .* to 1,000,000, expected 0 to"),
        ("dev.gold", 10, "to 10, expected -1 to 9"),
        ("dev.gold", -2, "found -2 to"),
        ("name_concepts", 5, "does not rise"),
        ("names.kinds", 255, "to 255, expected 0 to"),
        ("branches", 3, "its arrays are not those of manifest.json"),
        ("concepts.text", 65, "its arrays are not those of manifest.json"),
    ],
)
def test_arrays_that_were_changed_are_said(folder, name, value, said):
    array = np.load(folder / f"{name}.npy")
    array[0] = value
    np.save(folder / f"{name}.npy", array)
    with pytest.raises(BadInput, match=f"damaged: .*{said}.*; make the folder again with"):
        open_mentions(folder)


def everything(folder):
    data = open_mentions(folder)
    tables = [data.names, *(split.mentions for split in data.splits.values())]
    of_tables = [[*table.strings, table.tokens.tolist(), table.kinds.tolist()] for table in tables]
    gold = [split.gold_sets() for split in data.splits.values()]
    above = [data.broader([concept]) for concept in range(len(data.concepts))]
    known = [[*data.concepts], [*data.codes], data.branches, data.words]
    return repr([of_tables, gold, above, known])


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 1000])
def test_spoiled_folders(built, folder, count):
    for file in sorted(folder.glob("*.npy")):
        readings(
            file, lambda: everything(folder), seed=39, count=count, as_bytes=True, checked=True
        )
    readings(folder / "manifest.json", lambda: everything(folder), seed=39, count=count)
    words = folder / "words.tsv"
    readings(words, lambda: everything(folder), seed=39, count=count, spoil=spoiled_text)


@pytest.mark.parametrize("count", [5, pytest.param(1000, marks=pytest.mark.slow)])
def test_spoiled_hierarchies(tmp_path, count):
    folder = mentions_with_hierarchy(tmp_path).folder
    for file in (folder / "parents.npy", folder / "parent_start.npy"):
        readings(
            file, lambda: everything(folder), seed=39, count=count, as_bytes=True, checked=True
        )
    manifest = (folder / "manifest.json").read_text()
    for name in ("parents", "parent_start"):
        (folder / "manifest.json").write_text(manifest.replace(f'"{name}"', '"another"'))
        with pytest.raises(BadInput, match=f"does not speak of the array {name}"):
            open_mentions(folder)
    (folder / "manifest.json").write_text(manifest)
    parents = np.load(folder / "parents.npy")
    parents[0] = 9
    np.save(folder / "parents.npy", parents)
    with pytest.raises(BadInput, match="to 9, expected 0 to 4"):
        open_mentions(folder)


@pytest.mark.parametrize("name", ["names.start", "dev.gold_start", "code_start", "branch_start"])
def test_starts_that_divide_something_else_are_said(folder, name):
    start = np.load(folder / f"{name}.npy")
    start[-1] += 1
    np.save(folder / f"{name}.npy", start)
    with pytest.raises(BadInput, match="does not divide"):
        open_mentions(folder)


def test_other_folders_are_said(folder, tmp_path):
    with pytest.raises(BadInput, match="python -m data_pipeline.build_mentions"):
        open_dataset(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": "coder_jax triplets 3"}))
    with pytest.raises(BadInput, match="python -m data_pipeline.build"):
        open_mentions(folder)


def test_the_manifest_says_what_a_run_asks_of_a_dataset(built):
    from data_pipeline.batches.packing import identity_of

    identity = identity_of(built.manifest)
    assert identity["dataset"]["content_hash"] == built.manifest.content_hash
    assert identity["tokenizer"]["max_length"] == 64
