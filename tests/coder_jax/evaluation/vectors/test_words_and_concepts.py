"""Vectors of terms by their words, and of concepts."""

import struct

import numpy as np
import pytest

from coder_jax.evaluation.vectors.word2vec_files import read_vector_file
from coder_jax.evaluation.vectors.words_and_concepts import (
    ConceptVectors,
    WordVectors,
    vector_file_protocol,
)

WORDS = {"heart": [1, 0, 0.5], "attack": [0, 2, -1.25], "Crohn": [3, 3, 3], "é": [7, 8, 9]}


def binary(words, count=None, between=b"\n"):
    rows = [k.encode() + b" " + struct.pack("<3f", *v) + between for k, v in words.items()]
    return f"{count or len(words)} 3\n".encode() + b"".join(rows)


@pytest.fixture
def words(tmp_path):
    (tmp_path / "w.bin").write_bytes(binary(WORDS))
    keys = WordVectors.keys_of(["Heart attack (acute)", "Crohn", "crohn", "heart, heart"])
    return WordVectors(read_vector_file(tmp_path / "w.bin", keys))


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
    wanted = ConceptVectors.keys_of(["C1", "C9"])
    vectors = ConceptVectors(read_vector_file(tmp_path / "c.txt", wanted))
    assert vectors.known(["C9", "C1", "C2"]).tolist() == [False, True, False]
    np.testing.assert_allclose(vectors.encode(["C9", "C1"]), [[0, 0], [1, 2]])
    protocol = vector_file_protocol(vectors)
    assert (protocol.keyed_by, protocol.pooling) == ("concepts", "concept")
    assert protocol.look_up == "as they stand"
    assert (protocol.width, protocol.vectors, protocol.used) == (2, 2, 1)
