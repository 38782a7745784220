"""What benchmarks ask of vectors: those of an encoder, features, unit length."""

import numpy as np
import pytest

from coder_jax.encoding.rows import unit
from coder_jax.evaluation.vectors.vectors import EncodedTerms, known_features, terms_only
from data_pipeline.process.errors import BadInput


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
