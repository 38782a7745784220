"""From the tokens of packed rows to terms: where each begins, and one vector for each.

Shapes: R rows, L tokens per row, N terms, D hidden width.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def first_tokens(positions_RL: jax.Array, segments_RL: jax.Array, num_terms: int) -> jax.Array:
    """int32 [N]: where the first token of each term lies among the R * L; R * L if nowhere."""
    positions, segments = positions_RL.reshape(-1), segments_RL.reshape(-1)
    is_first = (positions == 0) & (segments > 0)
    term = jnp.where(is_first, segments - 1, num_terms)
    place = jnp.arange(positions.size, dtype=jnp.int32)
    return jnp.full(num_terms, positions.size, jnp.int32).at[term].set(place, mode="drop")


def pool(
    hidden_RLD: jax.Array,
    positions_RL: jax.Array,
    segments_RL: jax.Array,
    num_terms: int,
    pooling: str,
) -> jax.Array:
    """One float32 vector per term, [N, D], from the hidden states of packed rows.

    Args:
      hidden_RLD: hidden states.
      positions_RL: place of each token within its term.
      segments_RL: 1 + number of the term of each token, 0 = padding.
      num_terms: N; a number that no token carries gets a zero vector.
      pooling: 'cls' (state of the first token; e in CODER) or 'mean' (over all tokens of the
        term, [CLS] and [SEP] too; e_avg in CODER).

    Raises:
      ValueError: any other pooling.
    """
    if pooling not in ("cls", "mean"):
        raise ValueError(f"pooling is {pooling!r}; expected 'cls' or 'mean'")
    segments = segments_RL.reshape(-1)

    def sum_by_term(values):
        return jax.ops.segment_sum(values, segments, num_terms + 1)[1:]

    hidden = hidden_RLD.reshape(-1, hidden_RLD.shape[-1]).astype(jnp.float32)
    if pooling == "cls":
        first = (positions_RL.reshape(-1) == 0).astype(jnp.float32)
        return sum_by_term(hidden * first[:, None])
    lengths_N = sum_by_term(jnp.ones(segments.shape, jnp.float32))
    return sum_by_term(hidden) / jnp.maximum(lengths_N, 1.0)[:, None]
