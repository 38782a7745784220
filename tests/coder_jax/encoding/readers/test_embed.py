"""Embedding of many terms: same vectors whatever the batches, few shapes, unit length, order."""

import jax
import numpy as np
import pytest
from flax import nnx
from tiny_bert import TERMS, TINY, write_tokenizer

from coder_jax.encoding import blocks
from coder_jax.encoding.readers import embed
from coder_jax.encoding.readers.embed import (
    block_vectors,
    embed_chunks,
    embed_terms,
    embed_tokens,
    place,
)
from coder_jax.models.hf_weights import random_bert
from data_pipeline.dataset.tokenize_terms import load_tokenizer, tokenize
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput


@pytest.fixture(scope="module")
def bert():
    return random_bert(TINY, seed=0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return load_tokenizer(folder)


def many_terms(n: int) -> list[str]:
    """Distinct terms of all lengths."""
    rng = np.random.default_rng(0)
    words = ["heart", "acute", "x", "limb", "µ", "chronic renal failure"]
    return [" ".join(rng.choice(words, rng.integers(0, 9))) + f" {number:x}" for number in range(n)]


def test_each_term_gets_the_vector_that_it_has_alone(bert, tokenizer):
    vectors = embed_terms(bert, tokenizer, TERMS, pooling="mean", max_length=32)
    for term, vector in zip(TERMS, vectors, strict=True):
        alone = embed_terms(bert, tokenizer, [term], pooling="mean", max_length=32)
        np.testing.assert_allclose(vector, alone[0], rtol=0, atol=1e-5)
    assert vectors.dtype == np.float32 and vectors.shape == (len(TERMS), TINY.hidden_size)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=1e-6)
    # Equal after lower-casing, and equal strings; the others differ.
    np.testing.assert_array_equal(vectors[0], vectors[6])
    np.testing.assert_array_equal(vectors[2], vectors[10])
    assert len(np.unique(vectors.round(3), axis=0)) == len(TERMS) - 2


def test_vectors_do_not_depend_on_rows_devices_or_chunks(bert, tokenizer, monkeypatch):
    terms = many_terms(700)
    arguments = {"pooling": "cls", "max_length": 32}
    expected = embed_terms(bert, tokenizer, terms, rows=64, **arguments)
    assert jax.local_device_count() == 8  # each gets blocks of its own
    small = embed_terms(bert, tokenizer, terms[::-1], rows=4, **arguments)[::-1]
    np.testing.assert_allclose(small, expected, rtol=0, atol=1e-5)
    monkeypatch.setattr(embed, "CHUNK_TERMS", 100)
    chunked = embed_terms(bert, tokenizer, terms * 2, rows=4, **arguments)
    np.testing.assert_allclose(chunked, np.tile(expected, (2, 1)), rtol=0, atol=1e-5)


def test_chunks_have_vectors_of_their_own(bert, tokenizer):
    terms = many_terms(90)
    chunks = [[*terms[:50], *terms[:9]], [], terms[40:]]
    arguments = {"pooling": "cls", "max_length": 32, "rows": 4}
    read = iter(chunks)
    together = list(embed_chunks(bert, tokenizer, read, **arguments))
    assert [len(vectors) for vectors in together] == [59, 0, 50]
    for chunk, vectors in zip(chunks, together, strict=True):
        (alone,) = embed_chunks(bert, tokenizer, [chunk], **arguments)
        np.testing.assert_array_equal(vectors, alone)
    np.testing.assert_array_equal(together[0][:9], together[0][50:])


@pytest.mark.parametrize("times", [1, 2])
def test_vectors_are_used_by_jax_as_they_are(bert, tokenizer, times):
    for number in (5, 8):  # or the memory might be aligned by chance
        terms = many_terms(number) * times
        vectors = embed_terms(bert, tokenizer, terms, pooling="cls", max_length=32)
        (on_device,) = jax.device_put([vectors], jax.devices()[0])
        assert on_device.unsafe_buffer_pointer() == vectors.ctypes.data


def test_it_stops_when_asked_between_batches(bert, tokenizer, monkeypatch):
    done = []

    def asked_after_two():
        done.append(1)
        if len(done) == 3:
            raise stopping.Stopped

    monkeypatch.setattr(stopping, "poll", asked_after_two)
    with pytest.raises(stopping.Stopped):
        embed_terms(bert, tokenizer, many_terms(3000), pooling="cls", max_length=32, rows=4)


def test_at_most_two_shapes_are_compiled_and_none_for_new_parameters(bert, tokenizer):
    block_vectors.clear_cache()
    terms = many_terms(600)
    graph, params = nnx.split(bert, nnx.Param)
    for scale, n in ((1, 600), (1, 150), (1, 5), (2, 1), (2, 333), (3, 600)):
        other = nnx.merge(graph, jax.tree.map(lambda x, scale=scale: x * scale, params))
        embed_terms(other, tokenizer, terms[:n], pooling="cls", max_length=32, rows=8)
    assert block_vectors._cache_size() == 2


def test_long_terms_among_many_short_ones_are_encoded_apart(bert, tokenizer, monkeypatch):
    monkeypatch.setattr(blocks, "WINDOW", 16)
    monkeypatch.setattr(blocks, "BATCHES_WORTH_A_SHAPE", 1)
    longer = "chronic renal failure of the heart and the limb with x and µ and acute heart failure"
    terms = [longer, *many_terms(2000), f"{longer} too"]
    arguments = {"pooling": "mean", "max_length": 64, "rows": 4}
    block_vectors.clear_cache()
    vectors = embed_terms(bert, tokenizer, terms, **arguments)
    assert block_vectors._cache_size() == 2
    monkeypatch.setattr(blocks, "BATCHES_WORTH_A_SHAPE", 1000)
    together = embed_terms(bert, tokenizer, terms, **arguments)
    np.testing.assert_allclose(vectors, together, rtol=0, atol=1e-5)


def test_nothing_to_encode(bert, tokenizer):
    vectors = embed_terms(bert, tokenizer, [], pooling="cls", max_length=32)
    assert vectors.shape == (0, TINY.hidden_size) and vectors.dtype == np.float32
    tokens, start = tokenize(tokenizer, [], 32)
    assert embed_tokens(place(bert), tokens, start, pooling="cls").shape == (0, TINY.hidden_size)


def test_a_length_beyond_the_positions_is_refused(bert, tokenizer):
    with pytest.raises(BadInput, match="max_length is 65, but the encoder has 64 positions"):
        embed_terms(bert, tokenizer, ["pain"], pooling="cls", max_length=65)


def test_the_progress_bar_counts_distinct_terms(bert, tokenizer, capsys):
    terms = ["pain", "limb", "pain"]
    embed_terms(bert, tokenizer, terms, pooling="cls", max_length=32, progress=True)
    assert "2/2" in capsys.readouterr().err
