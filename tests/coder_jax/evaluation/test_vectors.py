"""What benchmarks ask of vectors: those of an encoder, features, unit length."""

import gzip
import hashlib
import json
import struct

import numpy as np
import pytest
from evaluating import records_in, run, write_toy
from tiny_names import skip_gram_manifest

from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation import vectors as word2vec_files
from coder_jax.evaluation.vectors import (
    EncodedTerms,
    WordVectors,
    _ConceptVectors,
    _read_vector_file,
    known_features,
    open_table,
    terms_only,
    vector_file_protocol,
)
from data_pipeline.process import BadInput
from data_pipeline.skip_gram.store import StringVectors, write_skip_grams


def test_vectors_of_terms_that_are_encoded_already():
    class Encoder:
        def encode(self, keys, unit):
            assert not unit, "features have any length"
            return np.array([[len(key)] * 2 for key in keys], np.float32)

    vectors = EncodedTerms(Encoder(), ["a", "bc"], np.array([[1, 0], [0, 1]], np.float32))
    assert vectors.encode(["bc", "a", "bc"]).tolist() == [[0, 1], [1, 0], [0, 1]]
    assert vectors.known(["bc", "never seen"]).tolist() == [True, True]
    assert vectors.features(["never", "a"]).tolist() == [[5, 5], [1, 1]]
    assert vectors.relations is None
    known, features = known_features(vectors, ["a"], "p")
    assert known.tolist() == [True] and features.tolist() == [[1, 1]]


def test_features_of_what_has_a_vector():
    class Some:
        def known(self, keys):
            return np.array([key.isupper() for key in keys])

        def features(self, keys):
            return np.array([[ord(key)] for key in keys], np.float32)

    known, features = known_features(Some(), ["a", "B", "C"], "file.tsv")
    assert known.tolist() == [False, True, True] and features.tolist() == [[66], [67]]
    with pytest.raises(BadInput, match=r"file.tsv: found a vector for none of its 2 .*'a'"):
        known_features(Some(), ["a", "b"], "file.tsv")


def test_unit_length():
    rows = np.array([[3, 4], [0, 0], [1e-9, 0]])
    np.testing.assert_allclose(unit(rows), [[0.6, 0.8], [0, 0], [1, 0]], atol=1e-6)
    assert unit(rows).dtype == np.float32 and unit(rows, dtype=np.float64).dtype == np.float64
    for bad in (np.nan, np.inf):
        with pytest.raises(BadInput, match=r"found 1 terms of 2 with NaN .*first: row 1"):
            unit(np.array([[1, 0], [0, bad]]), "terms")


def test_terms_only():
    assert terms_only("terms", "p") is None
    with pytest.raises(BadInput, match="p.tsv: found terms to look up, and concept vectors"):
        terms_only("concepts", "p.tsv")


# -------------------------------------------------------------------------------------------------
# Folders of skip-grams as vectors of terms and concepts.

TERMS = ["Heart attack", "attack of the non-heart", "(stroke)", "unknown"]


def table(**vectors):
    rows = np.array(list(vectors.values()), np.float32).reshape(len(vectors), 2)
    names = [one.replace("_", " ") for one in vectors]
    return StringVectors(names, np.full(len(names), 3), rows)


@pytest.fixture
def folder(tmp_path):
    tables = {"words": table(heart=[1, 0], attack=[0, 2], stroke=[3, 3])}
    tables |= {"names": table(heart_attack=[5, 5], stroke=[7, 7]), "concepts": table(C1=[9, 9])}
    return write_skip_grams(tmp_path / "sgsc", tables, skip_gram_manifest("names_concepts")).folder


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
    write_skip_grams(tmp_path / "sgw", some, skip_gram_manifest("words"))
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


# -------------------------------------------------------------------------------------------------
# Files of word and concept vectors: formats, what is missing, and messages.

WORDS = {"heart": [1, 0, 0.5], "attack": [0, 2, -1.25], "Crohn": [3, 3, 3], "é": [7, 8, 9]}


def binary(words, count=None, between=b"\n"):
    rows = [k.encode() + b" " + struct.pack("<3f", *v) + between for k, v in words.items()]
    return f"{count or len(words)} 3\n".encode() + b"".join(rows)


def text(words, header=True):
    first = f"{len(words)} 3\n" if header else ""
    return first + "".join(f"{k} {' '.join(map(str, v))}\n" for k, v in words.items())


def csv(words):
    rows = [f'"{k}",{",".join(map(str, v))}\n' for k, v in words.items()]
    return '"","V1","V2","V3"\n' + "".join(rows)


def packed(content):
    """Gzipped without the time of day: tests are named by their content."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    "name, content",
    [
        ("w.bin", binary(WORDS)),
        ("w.bin", binary(WORDS, between=b"")),
        ("w.bin", binary(WORDS, between=b"") + b" \n\n"),
        ("w.bin.gz", packed(binary(WORDS))),
        ("w.txt", text(WORDS).encode()),
        ("w.txt", text(WORDS).encode() + b"\n \n"),
        ("w.txt", text(WORDS).replace("\n", "\n\n", 1).encode()),
        ("w.vec.gz", packed(text(WORDS).encode())),
        ("glove.txt", text(WORDS, header=False).encode()),
        ("glove.txt", text(WORDS, header=False).replace("\n", " \n").encode()),
        ("w.txt", text(WORDS).replace("\n", " \n").encode()),
        ("cui2vec.csv", csv(WORDS).encode()),
    ],
)
def test_formats(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    wanted = set(WORDS)
    table = _read_vector_file(path, wanted | {"absent"})
    assert table.in_file == 4 and table.file_hash == hashlib.sha256(content).hexdigest()
    assert set(table.row_of) == wanted
    for word, row in table.row_of.items():
        assert table.vectors[row].tolist() == WORDS[word]
    only = _read_vector_file(path, {"attack"})
    assert only.vectors.shape == (1, 3) and only.in_file == 4


def test_quotes_belong_to_a_word_but_not_to_a_field_of_csv(tmp_path):
    words = {'"': [1, 2, 3], '"heart"': [4, 5, 6]}
    (tmp_path / "w.txt").write_text(text(words, header=False))
    assert set(_read_vector_file(tmp_path / "w.txt", {*words, "heart"}).row_of) == set(words)


def test_large_binary_files_are_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(word2vec_files, "_READ_BYTES", 50)
    rng = np.random.default_rng(0)
    words = {f"w{i}": rng.normal(size=3).astype(np.float32).tolist() for i in range(500)}
    (tmp_path / "w.bin").write_bytes(binary(words))
    table = _read_vector_file(tmp_path / "w.bin", set(words))
    assert {w: table.vectors[r].tolist() for w, r in table.row_of.items()} == words


PACKED = packed(binary(WORDS))


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("w.bin", binary(WORDS)[:-9], r"w.bin: found 3 of 4 vectors of 3 values; it is cut off"),
        (
            "w.bin",
            binary(WORDS, count=9),
            r"w.bin: found 4 of 9 vectors of 3 values; it is cut off",
        ),
        *(
            (
                "w.bin",
                binary(WORDS, 3, between),
                r"w.bin: found more than the 3 vectors that the fi",
            )
            for between in (b"", b"\n")
        ),
        ("w.txt", b"1 3\na 1 2 3\n\nb 1 2 3\n", r"w.txt:4: found more than the 1 vectors that the"),
        ("w.txt", b"3 3\na 1 2 3\n\nb 1 2 3\n", r"w.txt: found 2 of 3 vectors; it is cut off"),
        ("w.txt", b"2 3\na 1 2 3\nb 1 2\n", r"w.txt:3: found 2 values; expected 3, as before"),
        ("w.txt", b"3 3\na 1 2 3\nb 1 2 3\n", r"w.txt: found 2 of 3 vectors; it is cut off"),
        ("w.txt", b"2 3\na 1 2 3\nb 1 x 3\n", r"w.txt:3: found a value that is no .*: mend the li"),
        (
            "w.txt",
            b"2 3\na 1 2 3\nb 1 nan 3\n",
            r"w.txt:3: found NaN or infinite .*: mend this vec",
        ),
        ("w.txt", b"a word list\nb\n", r"w.txt:1: found b'a word list.*; expected vectors: word2"),
        ("w.txt", b"1 2\nheart 1 2\n", r"w.txt: found 1 vectors, none of a word or concept of"),
        *(
            ("w.bin.gz", broken, r"w.bin.gz: cannot be read \(.*\); give an existing, whole")
            for broken in (PACKED[:-20], PACKED[:10] + b"\xff" * 20 + PACKED[30:])
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        _read_vector_file(tmp_path / name, {"a", "b", "é"})
    with pytest.raises(BadInput, match="absent.bin: cannot be read"):
        _read_vector_file(tmp_path / "absent.bin", {"a"})


# -------------------------------------------------------------------------------------------------
# Vectors of terms by their words, and of concepts.

WORDS_WORDS_AND_CONCEPTS = {
    "heart": [1, 0, 0.5],
    "attack": [0, 2, -1.25],
    "Crohn": [3, 3, 3],
    "é": [7, 8, 9],
}


def binary_of_words_and_concepts(words, count=None, between=b"\n"):
    rows = [k.encode() + b" " + struct.pack("<3f", *v) + between for k, v in words.items()]
    return f"{count or len(words)} 3\n".encode() + b"".join(rows)


@pytest.fixture
def words(tmp_path):
    (tmp_path / "w.bin").write_bytes(binary_of_words_and_concepts(WORDS_WORDS_AND_CONCEPTS))
    keys = WordVectors.keys_of(["Heart attack (acute)", "Crohn", "crohn", "heart, heart"])
    return WordVectors(_read_vector_file(tmp_path / "w.bin", keys))


def test_a_term_is_the_mean_of_its_words(words):
    terms = ["Heart attack (acute)", "heart, heart", "unknown words", "Crohn", ""]
    assert words.known(terms).tolist() == [True, True, False, True, False]
    expected = [[0.5, 1, -0.375], [1, 0, 0.5], [0, 0, 0], [3, 3, 3], [0, 0, 0]]
    np.testing.assert_allclose(words.encode(terms), expected)
    np.testing.assert_allclose(words.features(terms), expected)
    # Of the first, "(acute)" has no vector; the terms of the middle have all their words or none.
    assert words.partly_known([*terms, terms[0]]) == 1
    assert "small letters" in vector_file_protocol(words).look_up
    assert words.known(["crohn"]).tolist() == [False], "no other spelling than in small letters"


def test_concepts_have_their_own_vectors(tmp_path):
    (tmp_path / "c.txt").write_text("C1 1 2\nC2 3 4\n")
    wanted = _ConceptVectors.keys_of(["C1", "C9"])
    vectors = _ConceptVectors(_read_vector_file(tmp_path / "c.txt", wanted))
    assert vectors.known(["C9", "C1", "C2"]).tolist() == [False, True, False]
    np.testing.assert_allclose(vectors.encode(["C9", "C1"]), [[0, 0], [1, 2]])
    protocol = vector_file_protocol(vectors)
    assert (protocol.keyed_by, protocol.pooling) == ("concepts", "concept")
    assert protocol.look_up == "as they stand"
    assert (protocol.width, protocol.vectors, protocol.used) == (2, 2, 1)
