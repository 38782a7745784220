"""Dictionaries in all their forms; saved and loaded for the same encoder, and for no other."""

import json
import os
from pathlib import Path

import numpy as np
import pandas
import polars as pl
import pytest
from tiny_bert import write_model

from coder_jax import TermEncoder
from coder_jax.encoding.encoded_dictionary import EncodedDictionary, terms_and_concepts
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput

PAIRS = [("heart attack", "C1"), ("pain in limb", "C2"), ("a\nb\t\"c'", "C2|C3")]
TERMS, CONCEPTS = map(list, zip(*PAIRS, strict=True))


@pytest.fixture(scope="module")
def encoder(tiny_folder):
    return TermEncoder.from_pretrained(tiny_folder)


def test_every_form_is_the_same_dictionary(tmp_path):
    for given in (
        dict(PAIRS),
        PAIRS,
        [list(pair) for pair in PAIRS],
        tuple(PAIRS),
        zip(TERMS, CONCEPTS, strict=True),
        dict(PAIRS).items(),
        (TERMS, CONCEPTS),
        [TERMS, CONCEPTS],
        (np.array(TERMS), pandas.Series(CONCEPTS)),
        Dictionary(TERMS, CONCEPTS, "here"),
        EncodedDictionary(TERMS, CONCEPTS, np.eye(3)),
        pandas.DataFrame({"CUI": CONCEPTS, "other": 1, "Term": TERMS}),
        pl.DataFrame({"name": TERMS, "concept": CONCEPTS}),
    ):
        assert terms_and_concepts(given) == (TERMS, CONCEPTS), type(given)
    (tmp_path / "d.tsv").write_text("heart attack\tC1\npain in limb\tC2\n")
    for path in (tmp_path / "d.tsv", str(tmp_path / "d.tsv")):
        assert terms_and_concepts(path) == (TERMS[:2], CONCEPTS[:2])


def test_two_by_two_strings():
    two = (TERMS[:2], CONCEPTS[:2])
    assert terms_and_concepts((TERMS[:2], CONCEPTS[:2])) == two, "a tuple of lists: columns"
    assert terms_and_concepts(PAIRS[:2]) == two, "a list of tuples: pairs"
    assert terms_and_concepts(iter(PAIRS[:2])) == two
    for either in (tuple(PAIRS[:2]), [TERMS[:2], CONCEPTS[:2]]):
        with pytest.raises(BadInput, match="may be two columns or two pairs; give a dict of term"):
            terms_and_concepts(either)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "the dictionary is a int; expected the path of a dictionary, a dict of term"),
        ({("pain", "C1")}, "the dictionary is a set; expected"),
        (["pain", "limb", "x"], "the dictionary has the row 'pain'; expected the path"),
        (["pain", "limb"], "the dictionary has the row 'pain'; expected the path"),
        (("pain", "C1"), "the dictionary has the row 'pain'"),
        ([("pain", "C1"), ("limb",), ("x", "C")], r"the dictionary has the row \"\('limb',\)\""),
        ({"C1": ["pain", "limb"]}, "found list .* at place 0 .*; expected a dictionary: the path"),
        ({"pain": 5}, "found int '5' at place 0"),
        (pandas.DataFrame({"a": ["pain"], "cui": ["C1"]}), "has the columns a, cui; expected one"),
        (
            pandas.DataFrame({"term": ["pain"], "name": ["pain"], "cui": ["C1"]}),
            "has the columns term, name, cui; expected one of terms among them",
        ),
        ([], "0 terms and 0 concepts"),
        ({}, "0 terms and 0 concepts"),
        ((["pain"], ["C1", "C2"]), "1 terms and 2 concepts"),
    ],
)
def test_what_is_no_dictionary(given, message):
    with pytest.raises(BadInput, match=message):
        terms_and_concepts(given)


def test_saved_and_loaded(encoder, tmp_path):
    folder = tmp_path / "saved"
    encoded = encoder.encode_dictionary(PAIRS)
    encoded.save(folder)
    loaded = EncodedDictionary.load(folder, encoder)
    assert (loaded.terms, loaded.concepts) == (TERMS, CONCEPTS)
    np.testing.assert_array_equal(loaded.vectors, encoded.vectors)
    assert encoder.normalize(TERMS, loaded, 3) == encoder.normalize(TERMS, encoded, 3)
    loaded.save(str(folder))  # over the file that it reads from
    again = EncodedDictionary.load(str(folder), encoder)
    np.testing.assert_array_equal(again.vectors, encoded.vectors)
    assert sorted(os.listdir(tmp_path)) == ["saved"]
    assert sorted(os.listdir(folder)) == ["terms.parquet", "vectors.npy", "vectors.npy.json"]
    about = json.loads((folder / "vectors.npy.json").read_text())
    assert about["format"] == "coder_jax vectors 1" and about["terms"]["count"] == 3


def test_not_loaded_for_another_encoder(encoder, tiny_folder, tmp_path):
    encoder.encode_dictionary(PAIRS).save(tmp_path / "saved")
    other = tmp_path / "other"
    write_model(other, seed=1)
    for one, difference in (
        (TermEncoder.from_pretrained(tiny_folder, "mean"), "encoder.pooling: 'cls' there, 'mean'"),
        (TermEncoder.from_pretrained(other), "encoder.weights_hash: .* there, .* here"),
        (TermEncoder(encoder.bert, encoder.tokenizer), "encoder.weights_hash: .* there, 'None'"),
    ):
        with pytest.raises(
            BadInput,
            match=rf"vectors.npy: was made of something else \({difference}.*\); encode the dict.* "
            "with this encoder and save it again",
        ):
            EncodedDictionary.load(tmp_path / "saved", one)


def test_what_cannot_be_saved(encoder, tmp_path):
    in_memory = TermEncoder(encoder.bert, encoder.tokenizer)
    for dictionary in (
        in_memory.encode_dictionary(PAIRS),
        EncodedDictionary(TERMS, CONCEPTS, np.eye(3)),
    ):
        with pytest.raises(BadInput, match="made by an encoder in memory.*; export it, and encode"):
            dictionary.save(tmp_path / "saved")
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(BadInput, match="exists and is no saved dictionary; give a new or empt"):
            encoder.encode_dictionary(PAIRS).save(place)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_save_that_fails_leaves_the_old_one(encoder, tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    encoder.encode_dictionary(PAIRS).save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_, **__):
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(np.lib.format, "write_array_header_1_0", full)
        encoder.encode_dictionary(PAIRS[:1]).save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert os.listdir(tmp_path) == ["saved"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "terms.parquet").unlink(), "found no dictionary that .*save wr"),
        (lambda folder: os.truncate(folder / "terms.parquet", 200), "or a damaged one .*; encode"),
        (lambda folder: os.truncate(folder / "vectors.npy", 200), "vectors.npy cannot be read"),
        (lambda folder: (folder / "vectors.npy").unlink(), "vectors.npy: there is no such file"),
        (
            lambda folder: pl.DataFrame({"term": ["x"], "concept": ["C"]}).write_parquet(
                folder / "terms.parquet"
            ),
            "made of something else .*terms.count: 3 there, 1 here",
        ),
    ],
)
def test_damaged_folders(encoder, tmp_path, damage, message):
    folder = Path(tmp_path / "saved")
    encoder.encode_dictionary(PAIRS).save(folder)
    damage(folder)
    with pytest.raises(BadInput, match=message):
        EncodedDictionary.load(folder, encoder)


def test_no_folder(encoder, tmp_path):
    with pytest.raises(BadInput, match="absent: found no dictionary that EncodedDictionary.save"):
        EncodedDictionary.load(tmp_path / "absent", encoder)
