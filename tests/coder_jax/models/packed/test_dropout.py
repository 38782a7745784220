"""Hash dropout: follows the term and not its place, right rate, sites and features independent."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_bert import TINY

from coder_jax.models.bits import mix_bits
from coder_jax.models.hf_weights import random_bert
from coder_jax.models.packed.dropout import hash_dropout
from data_pipeline.batches.packing import pack_rows


@partial(jax.jit, static_argnums=(4, 5))
def encode(bert, tokens, positions, segments, num_terms, pooling, ids=None):
    return bert.term_vectors(tokens, positions, segments, num_terms, pooling, ids)


ONE_LAYER = dataclasses.replace(TINY, num_layers=1)
LENGTHS = np.array([3, 9, 5, 20, 4])


def token_ids(packed: dict[str, np.ndarray], number_of_term: np.ndarray) -> np.ndarray:
    """One id per token of (term, position), whatever the place in the pack."""
    numbers = np.concatenate([[999], number_of_term])[packed["segments"]]
    return (numbers * 100 + packed["positions"]).astype(np.uint32)


def test_the_mask_follows_the_term_wherever_it_is_packed():
    bert = random_bert(ONE_LAYER, seed=1)
    start = np.concatenate([[0], np.cumsum(LENGTHS)])
    tokens = np.random.default_rng(0).integers(5, TINY.vocab_size, start[-1]).astype(np.int32)
    order = np.array([3, 0, 4, 2, 1])
    shuffled = np.concatenate([tokens[start[i] : start[i + 1]] for i in order])
    shuffled_start = np.concatenate([[0], np.cumsum(LENGTHS[order])])
    first = pack_rows(tokens, start, 32)
    second = pack_rows(shuffled, shuffled_start, 48)  # the terms lie elsewhere
    vectors = encode(bert, *first.values(), 5, "mean", token_ids(first, np.arange(5)))
    moved = encode(bert, *second.values(), 5, "mean", token_ids(second, order))
    np.testing.assert_allclose(vectors[order], moved, rtol=0, atol=1e-5)
    plain = encode(bert, *first.values(), 5, "mean")
    assert (np.abs(vectors - plain).max(axis=1) > 1e-2).all()
    other = encode(bert, *first.values(), 5, "mean", token_ids(first, 7 + np.arange(5)))
    assert (np.abs(vectors - other).max(axis=1) > 1e-2).all()


def test_without_a_rate_the_ids_change_nothing():
    bert = random_bert(
        dataclasses.replace(ONE_LAYER, hidden_dropout=0.0, attention_dropout=0.0), seed=1
    )
    packed = pack_rows(np.arange(10, dtype=np.int32), np.array([0, 10]), 16)
    ids = token_ids(packed, np.arange(1))
    plain = encode(bert, *packed.values(), 1, "mean")
    np.testing.assert_array_equal(encode(bert, *packed.values(), 1, "mean", ids), plain)


def kept(ids: np.ndarray, site: int, features: int, rate: float) -> np.ndarray:
    ones = jnp.ones((len(ids), features))
    feature = jnp.arange(features, dtype=jnp.uint32)[None]
    return np.asarray(hash_dropout(ones, jnp.asarray(ids)[:, None], site, feature, rate))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.003])
def test_rate_and_scale(rate):
    out = kept(np.arange(4096, dtype=np.uint32), 3, 768, rate)
    sigma = (rate * (1 - rate) / out.size) ** 0.5
    assert abs((out == 0).mean() - rate) < 4 * sigma
    np.testing.assert_allclose(out[out != 0], 1 / (1 - rate), rtol=1e-6)
    # Each token and each feature on its own: 4.9 sigma for some thousands of looks.
    for axis in (0, 1):
        looks = (out == 0).mean(axis=axis)
        sigma = (rate * (1 - rate) / out.shape[axis]) ** 0.5
        assert np.abs(looks - rate).max() < max(4.9 * sigma, 8 / out.shape[axis])


def test_sites_tokens_and_features_are_independent():
    rate, shape = 0.3, (2048, 256)
    ids = np.asarray(mix_bits(jnp.arange(shape[0], dtype=jnp.uint32)))
    masks = [kept(ids, site, shape[1], rate) == 0 for site in (0, 1, 2, 3)]
    masks.append(kept(ids + np.uint32(1), 0, shape[1], rate) == 0)
    masks += [np.roll(masks[0], 1, axis=axis) for axis in (0, 1)]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
            assert abs(correlation) < 5 / (shape[0] * shape[1]) ** 0.5
