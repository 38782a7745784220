"""The encoder of names: the released size, packed as alone, words without a vector, dropout."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coder_jax.models.names.name_encoder import (
    NameEncoderConfig,
    name_encoder_shapes,
    name_vectors,
    new_name_encoder,
)
from data_pipeline.batches.names.alphabet import Alphabet
from data_pipeline.batches.names.packing import Row, pack_names
from data_pipeline.batches.names.word_table import WordTable, numbered
from data_pipeline.skip_gram.store import VectorTable

NAMES = [
    ["heart", "attack"],
    ["attack"],
    ["zzqy", "heart", "pain", "of", "heart"],
    ["zzqx"],
    ["heart"],
]
ALPHABET = Alphabet.of(["heart", "attack", "pain", "xyzq"])
WIDTH = 6
CONFIG = NameEncoderConfig(alphabet=ALPHABET.size, width=WIDTH, character_width=4, hidden=5)
RNG = np.random.default_rng(0)
VECTORS = VectorTable(
    ["heart", "pain", "attack"], np.ones(3, int), RNG.normal(size=(3, WIDTH)).astype(np.float32)
)


def block_of(names, length=12):
    """Six rows, whatever is needed: one shape to compile."""
    words, tokens, start = numbered(names)
    table = WordTable.of(words, ALPHABET, VECTORS)
    return jax.tree.map(jnp.asarray, pack_names(table, tokens, start, Row(length, 2, 4), 6))


@partial(jax.jit, static_argnames=("config", "dropout"))
def encode(params, block, ids=None, *, config, dropout=0.0):
    return name_vectors(config, params, block, 10, dropout_ids_RL=ids, dropout=dropout)


@pytest.fixture(params=["plain", "coupled"])
def encoder(request):
    config = dataclasses.replace(CONFIG, cell=request.param)
    return config, new_name_encoder(config, jax.random.key(3))


def test_the_released_shape_has_its_number_of_parameters():
    """minhcp/BNE, models/BNE_SGw: 81 characters, 200 d; the other two are of the synonym loss."""
    config = NameEncoderConfig(alphabet=Alphabet("x" * 81).size, width=200, cell="coupled")
    sizes = [shape.size for shape in jax.tree.leaves(name_encoder_shapes(config))]
    assert sum(sizes) == 1_350_002 - 2


def test_a_new_encoder_has_the_shapes_that_are_told(encoder):
    config, params = encoder
    told = jax.tree.map(lambda shape: shape.shape, name_encoder_shapes(config))
    assert jax.tree.map(lambda array: array.shape, params) == told
    bias = np.asarray(params["name"]["forward"]["bias"])
    assert bias.sum() == (5 if config.cell == "plain" else 0)
    assert len({float(array.ravel()[0]) for array in jax.tree.leaves(params) if array.any()}) > 5


def test_a_name_is_packed_as_alone(encoder):
    config, params = encoder
    alone = [encode(params, block_of([name]), config=config)[0] for name in NAMES]
    for many, length in ((NAMES, 12), (NAMES[::-1] + NAMES, 12), (NAMES + NAMES, 16)):
        vectors = encode(params, block_of(many, length), config=config)[: len(many)]
        expected = [alone[NAMES.index(name)] for name in many]
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert np.ptp(vectors, axis=0).min() > 1e-3


def test_words_without_a_vector_keep_their_characters(encoder):
    config, params = encoder
    vectors = encode(params, block_of([["zzqy"], ["zzqx"], ["yyyy"]]), config=config)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-4


def test_all_parameters_that_are_read_learn_and_vectors_of_words_count(encoder):
    """Marks that no name has (</dsw>, », and as words <w> and </w>) do not."""
    config, params = encoder
    block = block_of(NAMES)

    def total(params, vectors):
        made = name_vectors(config, params, block | {"word_vectors": vectors}, len(NAMES))
        return (made**2).sum()

    of_params, of_vectors = jax.jit(jax.grad(total, (0, 1)))(params, block["word_vectors"])
    some = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.abs(np.asarray(gradient)) > 0
        for path, gradient in jax.tree_util.tree_leaves_with_path(of_params)
    }
    assert some.pop("marks").any(axis=1).tolist() == [False, False, True, True, False, True, False]
    assert (~some.pop("characters").any(axis=1)).nonzero()[0].tolist() == [4, 6]
    assert all(one.mean() > 0.9 for one in some.values()), some
    kinds = np.asarray(block["word_kinds"])
    assert (np.asarray(of_vectors).any(axis=-1) == (kinds == 1)).all()


def test_dropout_follows_the_ids_and_not_the_place(encoder):
    config, params = encoder

    def dropped(block, ids):
        return encode(params, block, ids, config=config, dropout=0.5)[:5]

    def ids_of(block):
        return (block["segments"] * 100 + block["positions"]).astype(jnp.uint32)

    one, other = block_of(NAMES), block_of(NAMES, length=16)
    vectors = dropped(one, ids_of(one))
    np.testing.assert_allclose(vectors, dropped(other, ids_of(other)), atol=1e-6)
    assert np.abs(vectors - dropped(one, ids_of(one) + 1)).max() > 1e-3
    whole = encode(params, one, config=config)[:5]
    assert np.abs(vectors - whole).max() > 1e-3


def test_tanh_is_of_the_linear_projection(encoder):
    config, params = encoder
    block = block_of(NAMES)
    linear = encode(params, block, config=config)
    squashed = encode(params, block, config=dataclasses.replace(config, projection="tanh"))
    np.testing.assert_allclose(squashed, np.tanh(linear), atol=1e-6)
