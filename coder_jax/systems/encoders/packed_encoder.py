"""The vectors of a pass: one for each term of its packed rows, with dropout that no cut changes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from coder_jax.devices.mesh import constrain
from coder_jax.models.bert import Bert
from coder_jax.models.bits import mix_bits
from coder_jax.models.packed.dropout import hash_dropout
from coder_jax.training.system import Batch, Tick

PACKED = ("tokens", "positions", "segments")
VECTORS = PartitionSpec("groups", None, "within")  # [B, G, N, D]


def term_vectors(
    bert: Bert, batch: Batch, tick: Tick, mesh: Mesh, pooling: str, seed: int | None
) -> jax.Array:
    """float32 [B, G, N, D]: the vector of each term of a pass.

    Args:
        bert: the encoder.
        batch: packed rows [B, R, L], and `concepts` [B, G, N].
        tick: where in the run.
        mesh: the devices.
        pooling: one of `POOLINGS`.
        seed: of the dropout; None for none.
    """

    def encode(rows: list[jax.Array], ids_RL: jax.Array | None, terms: int) -> jax.Array:
        tokens_RL, positions_RL, segments_RL = rows
        return bert.term_vectors(tokens_RL, positions_RL, segments_RL, terms, pooling, ids_RL)

    return read_terms(encode, batch, tick, mesh, seed)


def read_terms(
    read: Callable[[list[jax.Array], jax.Array | None, int], Any],
    batch: Batch,
    tick: Tick,
    mesh: Mesh,
    seed: int | None,
    beside: tuple[str, ...] = (),
) -> Any:
    """What `read` makes of the packed rows of each block, each array as [B, G, N, ...].

    Args:
        read: of ([tokens, positions, segments, and what is beside] [R, L] each, dropout ids [R, L]
            or None, the number of terms), one array or several, [terms, ...] each.
        batch, tick, mesh, seed: as for `term_vectors`.
        beside: names of further packed arrays.
    """
    blocks, groups, terms = batch["concepts"].shape
    rows = [batch[name] for name in (*PACKED, *beside)]
    ids = None if seed is None else token_ids(batch, tick, seed)

    def encode(rows: list[jax.Array], ids_RL: jax.Array | None) -> Any:
        return read(rows, ids_RL, groups * terms)

    # A batch dimension of one costs a CPU transposes in the gradient of every dense layer.
    encode_blocks = jax.vmap(encode) if blocks > 1 else single(encode)

    def by_group(array: jax.Array) -> jax.Array:
        return constrain(mesh, array.reshape(blocks, groups, terms, -1), VECTORS)

    return jax.tree.map(by_group, encode_blocks(rows, ids))


def token_ids(batch: Batch, tick: Tick, seed: int) -> jax.Array:
    """`dropout_ids` of a pass.

    Args:
        batch: as for `term_vectors`.
        tick: where in the run.
        seed: of the run.
    """
    blocks, groups, terms = batch["concepts"].shape
    first_term_B = (tick.number * blocks + jnp.arange(blocks)) * groups * terms
    return dropout_ids(seed, tick.step, first_term_B, batch["segments"], batch["positions"])


def dropout_ids(
    seed: int,
    step: jax.Array,
    first_term_B: jax.Array,
    segments_BRL: jax.Array,
    positions_BRL: jax.Array,
) -> jax.Array:
    """uint32 [B, R, L]: a number for each token, a function of seed, step, term and position.

    The term counts within the step, not within its block, the first of which is `first_term_B`:
    dropout does not depend on how the step is cut or packed.
    """
    term_BRL = (first_term_B[:, None, None] + segments_BRL).astype(jnp.uint32)
    of_step = mix_bits(mix_bits(jnp.uint32(seed % 2**32)) ^ step.astype(jnp.uint32))
    return mix_bits(mix_bits(of_step ^ term_BRL) ^ positions_BRL.astype(jnp.uint32))


def drop_vectors(vector_ND: jax.Array, seed: int, tick: Tick, site: int, rate: float) -> jax.Array:
    """Vectors with dropout, which depends on seed, step and the term's place in it alone.

    Args:
        vector_ND: float32, one for each term of a pass.
        seed: of the dropout.
        tick: where in the run.
        site: a number that no other dropout of the model has; those of a BERT are small.
        rate: the part of the numbers that become 0.
    """
    terms = vector_ND.shape[0]
    of_step = mix_bits(mix_bits(jnp.uint32(seed % 2**32)) ^ tick.step.astype(jnp.uint32))
    place_N = (tick.number * terms + jnp.arange(terms)).astype(jnp.uint32)
    features_D = jnp.arange(vector_ND.shape[1], dtype=jnp.uint32)
    ids_N1 = mix_bits(of_step ^ place_N)[:, None]
    return hash_dropout(vector_ND, ids_N1, site, features_D[None], rate)


def single(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jax.vmap` of a function, for arrays whose first dimension is one."""

    def mapped(*arguments: Any) -> Any:
        made = function(*jax.tree.map(lambda array: array[0], arguments))
        return jax.tree.map(lambda array: array[None], made)

    return mapped


def unit(vector_ND: jax.Array) -> jax.Array:
    """Vectors at length 1; zeros stay zeros."""
    return vector_ND / jnp.maximum(jnp.linalg.norm(vector_ND, axis=-1, keepdims=True), 1e-12)
