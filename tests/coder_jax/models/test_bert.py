"""BERT on packed rows: packed equals unpadded, neighbours do not leak, pooling, dtypes, errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_bert import TINY, single_row

from coder_jax.models import bert_layers
from coder_jax.models.architectures import abstract_bert, read_config
from coder_jax.models.bert import (
    POOLINGS,
    Bert,
    BertConfig,
    merge_encoder,
    split_encoder,
)
from coder_jax.models.hf_weights import random_bert
from coder_jax.models.packed.pooling import first_tokens, mean_by_term
from data_pipeline.batches.packing import pack_rows
from data_pipeline.process.errors import BadInput


@pytest.fixture(scope="module")
def bert() -> Bert:
    return random_bert(TINY, seed=0)


def random_terms(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(seed).integers(5, TINY.vocab_size, start[-1], np.int32)
    return tokens, start


LENGTHS = [2, 9, 30, 9, 30, 64, 9, 2, 30]


@partial(jax.jit, static_argnums=4)
def encode(bert, tokens, positions, segments, num_terms):
    """All poolings at once: [pooling, N, D]."""
    packed = tokens, positions, segments, num_terms
    return jnp.stack([bert.term_vectors(*packed, pooling) for pooling in POOLINGS])


def test_packed_vectors_equal_those_of_single_unpadded_terms(bert):
    tokens, start = random_terms(LENGTHS)
    packed = pack_rows(tokens, start, 64, rows=5)  # the last row is padding only
    assert (packed["segments"][-1] == 0).all()
    vectors = encode(bert, *packed.values(), len(LENGTHS))
    for i in range(len(LENGTHS)):
        row = single_row(tokens[start[i] : start[i + 1]].tolist())
        alone = encode(bert, *row, 1)[:, 0]
        np.testing.assert_allclose(vectors[:, i], alone, rtol=0, atol=1e-5)
    assert vectors.dtype == jnp.float32 and np.isfinite(vectors).all()


def test_a_term_does_not_feel_its_neighbours_in_the_row(bert):
    tokens, start = random_terms(LENGTHS)
    packed = pack_rows(tokens, start, 64)
    changed = dict(packed, tokens=np.where(packed["segments"] == 4, 5, packed["tokens"]))
    before = encode(bert, *packed.values(), len(LENGTHS))
    after = encode(bert, *changed.values(), len(LENGTHS))
    same = (np.asarray(before) == np.asarray(after)).all(axis=(0, 2))
    assert same.tolist() == [i != 3 for i in range(len(LENGTHS))]


def test_gradients_stay_finite_with_rows_of_padding(bert):
    tokens, start = random_terms([3, 5])
    packed = pack_rows(tokens, start, 16, rows=3)

    graph, params = nnx.split(bert, nnx.Param)

    @jax.jit
    def gradients(params):
        def loss(params):
            vectors = nnx.merge(graph, params).term_vectors(*packed.values(), 2, "cls")
            return (vectors * jnp.arange(32.0)[None]).sum()

        return jax.grad(loss)(params)

    gradient = np.asarray(gradients(params)["embeddings"]["word"]["embedding"][...])
    used = np.zeros(TINY.vocab_size, bool)
    used[tokens] = True
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient).sum(axis=1) > 0).tolist() == used.tolist()  # padding learns nothing


def test_the_mean_and_the_first_token_of_each_term_absent_ones_too():
    hidden = jnp.arange(2 * 4 * 3, dtype=jnp.bfloat16).reshape(2, 4, 3)
    segments = np.array([[2, 2, 1, 1], [4, 4, 4, 0]], np.int32)
    mean = mean_by_term(hidden, segments, 4)
    assert mean.dtype == jnp.float32
    np.testing.assert_array_equal(mean, [[7.5, 8.5, 9.5], [1.5, 2.5, 3.5], [0, 0, 0], [15, 16, 17]])
    np.testing.assert_array_equal(first_tokens(segments, 4), [2, 0, 8, 4])


def test_cls_is_the_last_layers_state_of_the_first_token_with_dropout_too(bert):
    """The last layer is computed for these tokens alone; an absent term has a zero vector."""
    graph, params = split_encoder(bert)  # with biases, or zeros would give zeros by themselves
    bert = merge_encoder(graph, jax.tree.map(lambda array: array + 0.1, params))
    tokens, start = random_terms([3, 5, 2, 7])
    packed = pack_rows(tokens, start, 8)
    ids = jnp.arange(packed["tokens"].size, dtype=jnp.uint32).reshape(packed["tokens"].shape)
    whole = np.asarray(bert(*packed.values(), ids)).reshape(ids.size, -1)
    vectors = np.asarray(bert.term_vectors(*packed.values(), 5, "cls", ids))
    for term in range(4):
        first = np.flatnonzero(
            (packed["segments"].ravel() == term + 1) & (packed["positions"].ravel() == 0)
        )
        np.testing.assert_allclose(vectors[term], whole[first[0]], atol=1e-5)
    assert not vectors[4].any()


def test_bfloat16_computes_in_bfloat16_and_gives_about_the_same_vectors(bert):
    tokens, start = random_terms(LENGTHS)
    packed = pack_rows(tokens, start, 64)
    half = bert.with_dtype(jnp.bfloat16)
    assert jax.eval_shape(half, *packed.values()).dtype == jnp.bfloat16
    assert half.embeddings.word.embedding[...].dtype == jnp.float32
    vectors = encode(half, *packed.values(), len(LENGTHS))
    exact = encode(bert, *packed.values(), len(LENGTHS))
    assert vectors.dtype == jnp.float32
    assert 1e-4 < np.abs(vectors - exact).max() < 0.1


def test_pooler_pooling_without_a_pooler_is_an_error():
    bert = abstract_bert(TINY, pooler=False)
    with pytest.raises(ValueError, match="pooler"):
        jax.eval_shape(lambda bert: bert.term_vectors(*single_row([2, 3]), 1, "pooler"), bert)
    with pytest.raises(ValueError, match="'max'"):
        jax.eval_shape(lambda bert: bert.term_vectors(*single_row([2, 3]), 1, "max"), bert)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "bart"},
            "model_type is 'bart'; expected one of bert, .*, modernbert",
        ),
        ({"hidden_act": "swish"}, "activation 'swish' is not known; expected one of gelu"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of 5 heads"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True; expected an encoder"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0; expected float < 1.0"),
    ],
)
def test_configs_that_this_encoder_does_not_compute_are_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        read_config(TINY.to_hf() | changes)


def test_config_from_hugging_face_and_back():
    assert BertConfig.from_hf(TINY.to_hf()) == TINY
    short = {k: v for k, v in TINY.to_hf().items() if k != "hidden_size"}
    with pytest.raises(BadInput, match="hidden_size missing"):
        BertConfig.from_hf(short)


def test_the_gradients_for_bfloat16_are_those_that_jax_derives():
    rng = np.random.default_rng(0)
    config = TINY
    norm = bert_layers.layer_norm(config, nnx.Rngs(0))
    x = jnp.asarray(3 * rng.standard_normal((50, config.hidden_size), np.float32) + 1)
    weights = jnp.asarray(rng.standard_normal(x.shape, np.float32))
    scale, bias = (jnp.asarray(rng.standard_normal(x.shape[1], np.float32)) for _ in range(2))

    def derived(x, scale, bias):
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred**2).mean(axis=1, keepdims=True)
        unit = centred / jnp.sqrt(variance + norm.epsilon)
        return ((unit * scale[None] + bias[None]) * weights).sum()

    def by_hand(x, scale, bias):
        return (bert_layers._norm_bfloat16(norm.epsilon, x, scale, bias) * weights).sum()

    for ours, expected in zip(
        jax.grad(by_hand, (0, 1, 2))(x, scale, bias),
        jax.grad(derived, (0, 1, 2))(x, scale, bias),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, atol=2e-5)
    gelu = jax.grad(lambda x: (bert_layers._gelu_bfloat16(x) * weights).sum())(x)
    expected = jax.grad(lambda x: (bert_layers.ACTIVATIONS["gelu"](x) * weights).sum())(x)
    np.testing.assert_allclose(gelu, expected, atol=1e-6)
