"""An encoder that remembers: the same vectors as the one it is made of, and each term once."""

import numpy as np
import pytest
from tiny_bert import TERMS, write_tokenizer

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.remembered import RememberingEncoder
from coder_jax.models.hf_weights import random_bert
from data_pipeline.dataset.tokenize_terms import load_tokenizer


@pytest.fixture
def encoder(tmp_path):
    from tiny_bert import TINY

    write_tokenizer(tmp_path)
    return TermEncoder(random_bert(TINY, seed=0), load_tokenizer(tmp_path))


def test_the_same_vectors_and_each_term_once(encoder, monkeypatch):
    asked = []
    encode = TermEncoder.encode
    encode_list = TermEncoder.encode_list

    def counted(self, terms, **options):
        asked.append(list(terms))
        return encode_list(self, terms, **options)

    monkeypatch.setattr(TermEncoder, "encode_list", counted)
    remembering = RememberingEncoder(encoder)
    assert remembering.settings is encoder.settings and remembering.bert is encoder.bert
    first = remembering.encode(TERMS[:4])
    again = remembering.encode([TERMS[5], TERMS[2], TERMS[5], TERMS[0]])
    assert asked == [TERMS[:4], [TERMS[5]]]
    np.testing.assert_array_equal(first, encode(encoder, TERMS[:4]))
    np.testing.assert_array_equal(again[[1, 3]], first[[2, 0]])
    np.testing.assert_allclose(again[[0, 2]], encode(encoder, [TERMS[5]] * 2), atol=1e-6)
    assert again.dtype == np.float32 and again.shape == (4, 32)
    asked.clear()
    np.testing.assert_array_equal(remembering.encode(iter(TERMS[:3])), first[:3])
    np.testing.assert_array_equal(remembering.encode(TERMS[2]), first[2])
    assert not asked, "all are known"


def test_no_terms_and_other_lengths(encoder):
    remembering = RememberingEncoder(encoder)
    assert remembering.encode([]).shape == (0, 32)
    raw = remembering.encode(["pain"], unit=False)
    assert np.linalg.norm(raw) != pytest.approx(1, abs=1e-3) and remembering.held == {}
    assert np.linalg.norm(remembering.encode(["pain"])) == pytest.approx(1, abs=1e-5)
