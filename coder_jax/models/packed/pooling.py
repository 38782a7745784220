"""From the tokens of packed rows to terms: where each begins, and one vector for each.

Shapes: R rows, L tokens per row, N terms, D hidden width.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def first_tokens(segments_RL: jax.Array, num_terms: int) -> jax.Array:
    """int32 [N]: where the first token of each term lies among the R * L; R * L if nowhere.

    The first token of a term is where its segment begins, whatever positions its tokens have.
    """
    before_RL = jnp.pad(segments_RL, ((0, 0), (1, 0)))[:, :-1]
    is_first = ((segments_RL != before_RL) & (segments_RL > 0)).reshape(-1)
    segments = segments_RL.reshape(-1)
    term = jnp.where(is_first, segments - 1, num_terms)
    place = jnp.arange(segments.size, dtype=jnp.int32)
    return jnp.full(num_terms, segments.size, jnp.int32).at[term].set(place, mode="drop")


def inner_segments(segments_RL: jax.Array) -> jax.Array:
    """int32 [R, L]: the segments without the first and the last token of each, [CLS] and [SEP]."""
    before_RL = jnp.pad(segments_RL, ((0, 0), (1, 0)))[:, :-1]
    after_RL = jnp.pad(segments_RL, ((0, 0), (0, 1)))[:, 1:]
    return jnp.where((segments_RL == before_RL) & (segments_RL == after_RL), segments_RL, 0)


def mean_by_term(hidden_RLD: jax.Array, segments_RL: jax.Array, num_terms: int) -> jax.Array:
    """float32 [N, D]: the mean over the tokens of each term, [CLS] and [SEP] too (CODER's e_avg).

    With the segments of `inner_segments`, the mean over its word pieces alone.

    Args:
      hidden_RLD: hidden states.
      segments_RL: 1 + number of the term of each token, 0 = padding.
      num_terms: N; a number that no token carries gets a zero vector.
    """
    segments = segments_RL.reshape(-1)

    def sum_by_term(values):
        return jax.ops.segment_sum(values, segments, num_terms + 1)[1:]

    lengths_N = sum_by_term(jnp.ones(segments.shape, jnp.float32))
    total_ND = sum_by_term(hidden_RLD.reshape(-1, hidden_RLD.shape[-1]).astype(jnp.float32))
    return total_ND / jnp.maximum(lengths_N, 1.0)[:, None]
