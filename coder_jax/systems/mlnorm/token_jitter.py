"""Token jitter: in training, word pieces change places with their neighbours and some are left out.

Not in the paper; the first released code has it (`compute_mask_and_shuffle` in
deep_multilingual_normalization/model.py, with noise 0.5, drop 0.1, two pieces kept). Of each term,
between [CLS] and [SEP]:

- each piece has its place, 0, 1, ..., plus normal noise; the pieces are sorted by this sum. With a
  noise of 0.5 a piece comes before the one before it with p = P(N(0, 1) > sqrt 2) = 0.08;
- each piece has a uniform draw; it is left out if the draw is less than the rate, unless the draw
  is one of the two lowest of its term. So of two pieces none goes, and one of n goes only where
  three draws or more are low: rarely, and never all.

The places that are left out become padding behind [SEP].

Shapes: B blocks of R rows, L tokens of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from coder_jax.models.bits import GOLDEN_RATIO, mix_bits
from coder_jax.models.packed.pooling import inner_segments
from coder_jax.systems.encoders.packed_encoder import PACKED
from coder_jax.training.system import Batch

NOISE_SITE, DROP_SITE = 1_000_001, 1_000_002  # of random numbers: no other use has these
ALWAYS_KEPT = 2  # pieces of a term
LAST = jnp.finfo(jnp.float32).max  # of [SEP]: behind all pieces but those that are left out


def draws(ids_BRL: jax.Array, site: int) -> jax.Array:
    """float32 in (0, 1), uniform on a grid of 2^-23: one for each token, another one at each site.

    Args:
        ids_BRL: uint32, `token_ids`: seed, step, term and place decide, however terms are packed.
        site: a number for what is drawn.
    """
    bits = mix_bits(ids_BRL + jnp.uint32(GOLDEN_RATIO * (site + 1) & 0xFFFFFFFF))
    return ((bits >> 9).astype(jnp.float32) + 0.5) * 2.0**-23


def normal(uniform: jax.Array) -> jax.Array:
    """Draws in (0, 1) as those of a normal distribution of deviation 1."""
    return 2**0.5 * jax.lax.erf_inv(2 * uniform - 1)


def jitter(
    tokens_RL: jax.Array,
    positions_RL: jax.Array,
    segments_RL: jax.Array,
    normal_RL: jax.Array,
    uniform_RL: jax.Array,
    *,
    noise: float,
    drop: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The packed rows with their word pieces moved and left out: tokens, positions, segments.

    Args:
        tokens_RL, positions_RL, segments_RL: int32, packed rows (`data_pipeline.batches.packing`).
        normal_RL: float32, of deviation 1, for each token.
        uniform_RL: float32 in (0, 1), for each token.
        noise: standard deviation of the noise of a place, in places.
        drop: the draw below which a piece is left out.
    """
    is_piece = inner_segments(segments_RL) > 0
    begins = segments_RL != jnp.pad(segments_RL, ((0, 0), (1, 0)))[:, :-1]
    slots = jnp.broadcast_to(jnp.arange(tokens_RL.shape[1])[None, :], tokens_RL.shape)
    term = jax.lax.cummax(jnp.where(begins, slots, 0), axis=1)  # the slot where it begins
    lower_RLL = is_piece[:, None, :] & (uniform_RL[:, None, :] < uniform_RL[:, :, None])
    lower_RLL &= segments_RL[:, None, :] == segments_RL[:, :, None]
    dropped = is_piece & (uniform_RL < drop) & (lower_RLL.sum(-1) >= ALWAYS_KEPT)
    key = jnp.where(dropped, jnp.inf, positions_RL + noise * normal_RL)
    key = jnp.where(is_piece, key, jnp.where(begins, -jnp.inf, LAST))
    key = jnp.where(segments_RL > 0, key, 0.0)  # padding stays where it is
    _, _, tokens_RL, dropped = jax.lax.sort(
        (term, key, tokens_RL, dropped), dimension=1, is_stable=True, num_keys=2
    )
    tokens, positions, segments = (
        jnp.where(dropped, 0, array) for array in (tokens_RL, positions_RL, segments_RL)
    )
    return tokens, positions, segments


def jittered(batch: Batch, ids_BRL: jax.Array, *, noise: float, drop: float) -> Batch:
    """The arrays of a pass with the rows of its B blocks jittered.

    Args:
        batch: with `tokens`, `positions` and `segments` [B, R, L].
        ids_BRL: uint32, `token_ids` of the batch.
        noise, drop: of `jitter`.
    """
    drawn = normal(draws(ids_BRL, NOISE_SITE)), draws(ids_BRL, DROP_SITE)
    of_block: Callable[..., tuple[jax.Array, ...]] = jax.vmap(
        partial(jitter, noise=noise, drop=drop)
    )
    rows = of_block(*(batch[name] for name in PACKED), *drawn)
    return {**batch, **dict(zip(PACKED, rows, strict=True))}
