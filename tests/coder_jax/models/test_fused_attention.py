"""The kernel of attention, interpreted on a CPU, beside the products that are written out."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from coder_jax.models.bert import MASKED, AttentionMask, attention
from coder_jax.models.bert_config import BertConfig
from coder_jax.models.fused_attention import fits, fused_attention

SITE = 7


def packed(rows, length, rng):
    """`segments` and `positions` of rows of short terms, with padding at their ends."""
    segments, positions = np.zeros((2, rows, length), np.int32)
    for row in range(rows):
        place, term = 0, 1
        while (size := int(rng.integers(2, 12))) + place < length:
            segments[row, place : place + size] = term
            positions[row, place : place + size] = np.arange(size)
            place, term = place + size, term + 1
    return jnp.asarray(segments), jnp.asarray(positions)


@pytest.mark.parametrize("with_dropout", (False, True))
@pytest.mark.parametrize(("length", "heads", "width"), ((128, 2, 64), (64, 3, 32), (32, 2, 16)))
def test_output_and_gradients_are_those_of_the_attention_written_out(
    length, heads, width, with_dropout
):
    rng = np.random.default_rng(0)
    config = BertConfig(
        vocab_size=1,
        hidden_size=heads * width,
        num_layers=1,
        num_heads=heads,
        intermediate_size=1,
        max_positions=512,
    )
    segments, positions = packed(3, length, rng)
    ids = jnp.asarray(rng.integers(0, 2**32, segments.shape, np.uint32)) if with_dropout else None
    qkv = jnp.asarray(rng.standard_normal((*segments.shape, 3, heads, width), np.float32))
    weights = jnp.asarray(rng.standard_normal((*segments.shape, heads * width), np.float32))
    seen = segments[:, :, None] == segments[:, None, :]
    mask = AttentionMask(jnp.where(seen, 0.0, MASKED)[:, None])

    def written_out(qkv):
        q, k, v = (qkv[:, :, i] for i in range(3))
        out = attention(config, q, k, v, mask, positions, ids, SITE)
        return (out * weights).sum(), out

    def fused(qkv):
        out = fused_attention(
            qkv,
            segments,
            positions,
            ids,
            rate=config.attention_dropout,
            site=SITE,
            max_positions=config.max_positions,
            interpret=True,
        ).reshape(weights.shape)
        return (out * weights).sum(), out

    expected_grad, expected = jax.grad(written_out, has_aux=True)(qkv)
    grad, out = jax.grad(fused, has_aux=True)(qkv)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    np.testing.assert_allclose(grad, expected_grad, atol=4e-6)
    if with_dropout:  # else the comparison would say nothing of it
        kept = fused_attention(
            qkv, segments, positions, None, rate=0.1, site=SITE, max_positions=512, interpret=True
        )
        assert np.abs(kept.reshape(out.shape) - out).max() > 0.1


def test_it_is_for_gpus_bfloat16_and_rows_that_fit(monkeypatch):
    assert not fits(128, 64, jnp.bfloat16)  # the CPU of the tests
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert fits(128, 64, jnp.bfloat16) and fits(32, 32, jnp.bfloat16)
    assert not fits(128, 64, jnp.float32)
    assert not fits(256, 64, jnp.bfloat16)
    assert not fits(96, 64, jnp.bfloat16) and not fits(128, 48, jnp.bfloat16)


@pytest.mark.parametrize("with_dropout", (False, True))
def test_each_device_computes_its_own_rows(with_dropout):
    """Blocks over one axis, their rows over another, as in a train step on 4 x 2 devices."""
    rng = np.random.default_rng(0)
    segments, positions = packed(4 * 6, 32, rng)
    ids = jnp.asarray(rng.integers(0, 2**32, segments.shape, np.uint32))
    qkv = jnp.asarray(rng.standard_normal((*segments.shape, 3, 2, 16), np.float32))

    def both(qkv, *of_tokens):
        def loss(qkv):
            given = {"rate": 0.1, "site": SITE, "max_positions": 512, "interpret": True}
            none = [] if with_dropout else [None]
            again = jax.checkpoint(lambda *block: fused_attention(*block, *none, **given))
            out = jax.vmap(again)(qkv, *of_tokens)
            return (out**2).sum(), out

        return jax.grad(loss, has_aux=True)(qkv)

    given = qkv, segments, positions, *[ids] * with_dropout
    arrays = [array.reshape(4, 6, *array.shape[1:]) for array in given]
    expected_grad, expected = both(*arrays)
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("groups", "within"))
    spread = NamedSharding(mesh, PartitionSpec("groups", "within"))
    placed = jax.device_put(arrays, spread)
    program = jax.jit(both).lower(*placed).compile()
    assert not re.findall(r"all-(?:gather|to-all)|collective-permute", program.as_text())
    grad, out = program(*placed)
    assert grad.sharding.is_equivalent_to(spread, grad.ndim)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(grad, expected_grad)


def test_it_becomes_two_kernels_for_an_nvidia_gpu():
    qkv = jax.ShapeDtypeStruct((4, 128, 3, 2, 64), jnp.bfloat16)
    of_tokens = jax.ShapeDtypeStruct((4, 128), jnp.int32)
    ids = jax.ShapeDtypeStruct((4, 128), jnp.uint32)

    def both(qkv, segments, positions, ids):
        def loss(qkv):
            given = {"rate": 0.1, "site": SITE, "max_positions": 512}
            out = fused_attention(qkv, segments, positions, ids, **given)
            return (out.astype(jnp.float32) ** 2).sum()

        return jax.value_and_grad(loss)(qkv)

    traced = jax.jit(both).trace(qkv, of_tokens, of_tokens, ids)
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("@__gpu$xla.gpu.triton") == 2, program
