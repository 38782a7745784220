"""Embedding of many terms: same vectors whatever the batches, few shapes, unit length, order."""

import jax
import numpy as np
import pytest
from flax import nnx
from host_pair import Pair
from tiny_bert import TERMS, TINY, write_tokenizer

from coder_jax.encoding import embed
from coder_jax.encoding.embed import (
    _TOKENS_PER_TERM,
    _batches_by_length,
    _batches_of_blocks,
    _pad_terms,
    embed_chunks,
    embed_on_all_hosts,
    embed_terms,
    embed_tokens,
    place,
)
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.models.hf_weights import random_bert
from data_pipeline import process
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenize
from data_pipeline.process import BadInput


@pytest.fixture(scope="module")
def placed():
    return place(random_bert(TINY, seed=0))


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


def test_each_term_gets_the_vector_that_it_has_alone(placed, tokenizer):
    vectors = embed_terms(placed, tokenizer, TERMS, pooling="mean", max_length=32)
    for term, vector in zip(TERMS, vectors, strict=True):
        alone = embed_terms(placed, tokenizer, [term], pooling="mean", max_length=32)
        np.testing.assert_allclose(vector, alone[0], rtol=0, atol=1e-5)
    assert vectors.dtype == np.float32 and vectors.shape == (len(TERMS), TINY.hidden_size)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=1e-6)
    # Equal after lower-casing, and equal strings; the others differ.
    np.testing.assert_array_equal(vectors[0], vectors[6])
    np.testing.assert_array_equal(vectors[2], vectors[10])
    assert len(np.unique(vectors.round(3), axis=0)) == len(TERMS) - 2


def test_vectors_do_not_depend_on_rows_devices_or_chunks(placed, tokenizer, monkeypatch):
    terms = many_terms(700)
    arguments = {"pooling": "cls", "max_length": 32}
    expected = embed_terms(placed, tokenizer, terms, **arguments)
    assert jax.local_device_count() == 8  # each gets blocks of its own
    monkeypatch.setattr(embed, "_ROWS_CPU", 4)
    small = embed_terms(placed, tokenizer, terms[::-1], **arguments)[::-1]
    np.testing.assert_allclose(small, expected, rtol=0, atol=1e-5)
    monkeypatch.setattr(embed, "_CHUNK_TERMS", 100)
    chunked = embed_terms(placed, tokenizer, terms * 2, **arguments)
    np.testing.assert_allclose(chunked, np.tile(expected, (2, 1)), rtol=0, atol=1e-5)


def test_chunks_have_vectors_of_their_own(placed, tokenizer, monkeypatch):
    monkeypatch.setattr(embed, "_ROWS_CPU", 4)
    terms = many_terms(90)
    chunks = [[*terms[:50], *terms[:9]], [], terms[40:]]
    arguments = {"pooling": "cls", "max_length": 32}
    read = iter(chunks)
    together = list(embed_chunks(placed, tokenizer, read, **arguments))
    assert [len(vectors) for vectors in together] == [59, 0, 50]
    for chunk, vectors in zip(chunks, together, strict=True):
        (alone,) = embed_chunks(placed, tokenizer, [chunk], **arguments)
        np.testing.assert_array_equal(vectors, alone)
    np.testing.assert_array_equal(together[0][:9], together[0][50:])


@pytest.mark.parametrize("times", [1, 2])
def test_vectors_are_used_by_jax_as_they_are(placed, tokenizer, times):
    for number in (5, 8):  # or the memory might be aligned by chance
        terms = many_terms(number) * times
        vectors = embed_terms(placed, tokenizer, terms, pooling="cls", max_length=32)
        (on_device,) = jax.device_put([vectors], jax.devices()[0])
        assert on_device.unsafe_buffer_pointer() == vectors.ctypes.data


def test_it_stops_when_asked_between_batches(placed, tokenizer, monkeypatch):
    done = []

    def asked_after_two():
        done.append(1)
        if len(done) == 3:
            raise process.Stopped

    monkeypatch.setattr(process, "poll", asked_after_two)
    monkeypatch.setattr(embed, "_ROWS_CPU", 4)
    with pytest.raises(process.Stopped):
        embed_terms(placed, tokenizer, many_terms(3000), pooling="cls", max_length=32)


def test_at_most_three_shapes_are_compiled_and_none_for_new_parameters(tokenizer, monkeypatch):
    monkeypatch.setattr(embed, "_ROWS_CPU", 8)
    terms = many_terms(600)
    structure, params = split_encoder(random_bert(TINY, seed=0))
    place(merge_encoder(structure, params)).vectors.clear_cache()
    for scale, n in ((1, 600), (1, 150), (1, 5), (2, 1), (2, 333), (3, 600)):
        scaled = jax.tree.map(lambda x, scale=scale: x * scale, params)
        other = place(merge_encoder(structure, scaled))
        embed_terms(other, tokenizer, terms[:n], pooling="cls", max_length=32)
    assert other.vectors._cache_size() == 3


def test_a_batch_does_not_look_at_the_structure_of_the_encoder(placed, tokenizer, monkeypatch):
    """Hashing and comparing it takes milliseconds."""

    def looks(*_):
        raise AssertionError

    for name in ("__hash__", "__eq__"):
        monkeypatch.setattr(nnx.GraphDef, name, looks)
    embed_tokens(placed, *tokenize(tokenizer, ["pain"], 32), pooling="cls")


def test_long_terms_among_many_short_ones_are_encoded_apart(placed, tokenizer, monkeypatch):
    monkeypatch.setattr(embed, "_WINDOW", 16)
    monkeypatch.setattr(embed, "_BATCHES_WORTH_A_SHAPE", 1)
    longer = "chronic renal failure of the heart and the limb with x and µ and acute heart failure"
    terms = [longer, *many_terms(2000), f"{longer} too"]
    monkeypatch.setattr(embed, "_ROWS_CPU", 4)
    arguments = {"pooling": "mean", "max_length": 64}
    placed.vectors.clear_cache()
    vectors = embed_terms(placed, tokenizer, terms, **arguments)
    assert placed.vectors._cache_size() == 2
    monkeypatch.setattr(embed, "_BATCHES_WORTH_A_SHAPE", 1000)
    together = embed_terms(placed, tokenizer, terms, **arguments)
    np.testing.assert_allclose(vectors, together, rtol=0, atol=1e-5)


def test_nothing_to_encode(placed, tokenizer):
    vectors = embed_terms(placed, tokenizer, [], pooling="cls", max_length=32)
    assert vectors.shape == (0, TINY.hidden_size) and vectors.dtype == np.float32
    tokens, start = tokenize(tokenizer, [], 32)
    assert embed_tokens(placed, tokens, start, pooling="cls").shape == (0, TINY.hidden_size)


def test_a_length_beyond_the_positions_is_refused(placed, tokenizer):
    with pytest.raises(BadInput, match="max-length. is 65, but the encoder has 64 positions"):
        embed_terms(placed, tokenizer, ["pain"], pooling="cls", max_length=65)


def test_the_progress_bar_counts_distinct_terms(placed, tokenizer, capsys):
    terms = ["pain", "limb", "pain"]
    embed_terms(placed, tokenizer, terms, pooling="cls", max_length=32, progress=True)
    assert "2/2" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------
# Blocks of packed rows: each term once and whole, few shapes, full rows, short windows.


def test_blocks_hold_each_term_once_whole_and_within_their_slots():
    rng = np.random.default_rng(0)
    # Mostly the shortest terms there are: a block has fewer slots than they would fill.
    lengths = np.where(rng.random(3400) < 0.99, 3, rng.integers(3, 33, 3400))
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(1, 9, start[-1]).astype(np.int32)
    seen = np.zeros(3400, int)
    for batch in _batches_of_blocks(tokens, start, 8, 4):
        assert len(batch) == 4
        for block in batch:
            assert block.tokens.shape == block.positions.shape == block.segments.shape == (8, 128)
            assert len(block.terms) <= 8 * 128 // _TOKENS_PER_TERM
            assert block.segments.max(initial=0) == len(block.terms)
            for slot, term in enumerate(block.terms, start=1):
                inside = block.segments == slot
                expected = tokens[start[term] : start[term + 1]]
                np.testing.assert_array_equal(block.tokens[inside], expected)
                np.testing.assert_array_equal(block.positions[inside], np.arange(len(expected)))
                assert inside.any(axis=1).sum() == 1
            seen[block.terms] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize(("longest", "devices"), [(3, 1), (29, 1), (29, 2)])
def test_a_term_or_two_are_one_short_row(longest, devices):
    tokens, start = np.ones(longest + 3, np.int32), np.array([0, longest, longest + 3])
    (batch,) = _batches_of_blocks(tokens, start, 16, devices)
    assert [block.tokens.shape for block in batch] == [(1, 32)] * devices
    assert sorted(term for block in batch for term in block.terms.tolist()) == [0, 1]
    assert {block.window for block in batch} == {32}


@pytest.mark.parametrize(("longest", "row_length"), [(30, 128), (128, 128), (129, 256), (300, 384)])
def test_rows_are_as_long_as_the_longest_term_needs(longest, row_length):
    tokens = np.ones(longest + 3, np.int32)
    ((block,),) = _batches_of_blocks(tokens, np.array([0, longest, longest + 3]), 4, 1)
    assert block.tokens.shape == (2, row_length)  # the small shape has two rows here


def test_rows_are_full():
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.gamma(4, 2.3, 20000).astype(int), 3, 32)
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.ones(start[-1], np.int32)
    blocks = [block for batch in _batches_of_blocks(tokens, start, 16, 1) for block in batch]
    places = len(blocks) * 16 * 128
    assert start[-1] / places > 0.97


def test_padding_terms_that_attend_to_it():
    tokens, start = _pad_terms(np.array([2, 7, 3, 2, 3], np.int32), np.array([0, 3, 5]), 4, 0)
    assert tokens.tolist() == [2, 7, 3, 0, 2, 3, 0, 0]
    assert start.tolist() == [0, 4, 8]


@pytest.mark.parametrize(("longest", "window"), [(64, 64), (65, 128), (129, 256)])
def test_no_term_crosses_a_window(longest, window):
    rng = np.random.default_rng(0)
    lengths = np.append(rng.integers(3, 20, 500), longest)
    start = np.concatenate([[0], np.cumsum(lengths)])
    for (block,) in _batches_of_blocks(np.ones(start[-1], np.int32), start, 8, 1):
        assert block.window == window and block.tokens.shape[1] % window == 0
        rows, columns = np.nonzero(block.segments)
        windows = rows * 1000 + columns // window
        for slot in range(1, len(block.terms) + 1):
            inside = block.segments[rows, columns] == slot
            assert len(np.unique(windows[inside])) == 1


def test_terms_longer_than_a_window_come_after_many_short_ones(monkeypatch):
    monkeypatch.setattr(embed, "_BATCHES_WORTH_A_SHAPE", 2)
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 20, 700)
    lengths[[5, 300]] = 70, 150
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(1, 9, start[-1]).astype(np.int32)
    shapes, seen = [], np.zeros(700, int)
    for batch in _batches_by_length(tokens, start, 8, 2):
        shapes.append({(block.window, block.tokens.shape) for block in batch})
        for block in batch:
            for slot, term in enumerate(block.terms, start=1):
                expected = tokens[start[term] : start[term + 1]]
                np.testing.assert_array_equal(block.tokens[block.segments == slot], expected)
            seen[block.terms] += 1
    assert (seen == 1).all()
    assert shapes[-1] == {(256, (2, 256))} and len(shapes) > 2
    assert all(shape == {(64, (8, 128))} for shape in shapes[:-1])
    # Too few to be worth another shape: all together.
    monkeypatch.setattr(embed, "_BATCHES_WORTH_A_SHAPE", 100)
    assert {
        block.window for batch in _batches_by_length(tokens, start, 8, 2) for block in batch
    } == {256}


# -------------------------------------------------------------------------------------------------
# The hosts of a run encode together.

ON_TWO = """
from coder_jax.encoding.embed import embed_on_all_hosts
seen = []
def encode(strings):
    seen.append(list(strings))
    if me == 1 and "stop" in strings:
        raise stopping.Stopped
    return np.array([[ord(one[0]), len(one)] for one in strings], np.float32)
strings = ["a", "bb", "ccc", "d", "ee"]
vectors = embed_on_all_hosts(encode, strings)
assert vectors.tolist() == [[97, 1], [98, 2], [99, 3], [100, 1], [101, 2]], vectors
assert embed_on_all_hosts(encode, ["f"]).tolist() == [[102, 1]]
print("seen", seen)
try:
    embed_on_all_hosts(encode, ["go", "stop"])
except stopping.Stopped:
    print("both stop")
"""


@pytest.mark.slow
def test_each_of_two_hosts_encodes_its_share_and_both_stop_together(repo, tmp_path):
    run = Pair(ON_TWO, repo, tmp_path)
    assert run.wait() == [0, 0], run.output
    assert "seen [['a', 'ccc', 'ee'], ['f']]" in run.output[0]
    assert "seen [['bb', 'd', 'ee'], ['f']]" in run.output[1]
    assert all("both stop" in text for text in run.output), run.output


def test_one_host_encodes_all_as_they_are():
    assert embed_on_all_hosts(lambda strings: np.ones((len(strings), 2)), ["a", "a"]).shape == (
        2,
        2,
    )
