"""Folders of skip-grams as vectors of terms and concepts."""

import json

import numpy as np
import pytest
from evaluating import records_in, run, write_toy

from coder_jax.evaluation.vectors.tables import open_table
from coder_jax.evaluation.vectors.words_and_concepts import vector_file_protocol
from data_pipeline.process.errors import BadInput
from data_pipeline.skip_gram.store import VectorTable, write_skip_grams
from data_pipeline.sources.text.words import rules_hash

TERMS = ["Heart attack", "attack of the non-heart", "(stroke)", "unknown"]


def table(**vectors):
    rows = np.array(list(vectors.values()), np.float32).reshape(len(vectors), 2)
    names = [one.replace("_", " ") for one in vectors]
    return VectorTable(names, np.full(len(names), 3), rows)


def about(variant):
    return {"variant": variant, "word_rules": rules_hash()}


@pytest.fixture
def folder(tmp_path):
    tables = {"words": table(heart=[1, 0], attack=[0, 2], stroke=[3, 3])}
    tables |= {"names": table(heart_attack=[5, 5], stroke=[7, 7]), "concepts": table(C1=[9, 9])}
    return write_skip_grams(tmp_path / "sgsc", tables, about("names_concepts")).folder


def test_terms_by_the_words_that_the_text_was_divided_into(folder):
    words = open_table(folder, "words", TERMS)
    expected = [[0.5, 1], [0.5, 1], [3, 3], [0, 0]]
    np.testing.assert_array_equal(words.encode(TERMS), expected)
    assert words.known(TERMS).tolist() == [True, True, True, False]
    assert words.partly_known(TERMS) == 1  # "non"
    about = vector_file_protocol(words)
    content = json.loads((folder / "manifest.json").read_text())["content_hash"]
    assert (about.keyed_by, about.vectors, about.used) == ("words", 3, 3)
    assert about.weights_hash == content


def test_names_stand_for_themselves_and_others_for_their_words(folder):
    names = open_table(folder, "names", TERMS)
    expected = [[5, 5], [0.5, 1], [7, 7], [0, 0]]
    np.testing.assert_array_equal(names.encode(TERMS), expected)
    assert names.partly_known(TERMS) == 1
    about = vector_file_protocol(names)
    assert (about.keyed_by, about.pooling) == ("names", "own, or mean of words")
    assert (about.vectors, about.used) == (5, 5)


def test_concepts_by_their_identifiers(folder):
    concepts = open_table(folder, "concepts", ["C1", "C2"])
    np.testing.assert_array_equal(concepts.encode(["C1", "C2"]), [[9, 9], [0, 0]])
    assert vector_file_protocol(concepts).keyed_by == "concepts"


def test_folders_that_cannot_be_used(folder, tmp_path):
    with pytest.raises(BadInput, match="found 3 vectors, none for what .*such as 'asthma'"):
        open_table(folder, "words", ["asthma"])
    some = {"words": table(heart=[1, 0]), "names": table(), "concepts": table()}
    write_skip_grams(tmp_path / "sgw", some, about("words"))
    with pytest.raises(BadInput, match="sgw: found vectors of words, none of names; expected"):
        open_table(tmp_path / "sgw", "names", TERMS)


def test_words_of_other_rules_are_not_looked_up(folder):
    changed = json.loads((folder / "manifest.json").read_text()) | {"word_rules": 64 * "0"}
    (folder / "manifest.json").write_text(json.dumps(changed))
    with pytest.raises(BadInput, match="divided into words by other rules"):
        open_table(folder, "words", TERMS)


def test_evaluate_takes_a_folder(folder, tmp_path):
    files, out = write_toy(tmp_path), tmp_path / "out.json"
    asked = ("--model", folder, "--benchmark", f"toy={files / 'heldout'}", "--json", out)
    run(*asked, "--vectors-of", "names")
    (record,) = records_in(out)
    assert record.encoder["keyed_by"] == "names"
    assert record.scores["acc@1"] > 0
    with pytest.raises(BadInput, match="found the skip-grams .*sgsc; expected a model folder"):
        run(*asked)
    with pytest.raises(BadInput, match="expected a folder of skip-grams for --vectors-of names"):
        run(*asked[:1], files / "pairs.tsv", *asked[2:], "--vectors-of", "names")
