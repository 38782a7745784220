"""Exact nearest vectors: queries and keys in, the k largest dot products and their indices out.

Blocked over queries and keys, so that memory does not grow with their number; float32 in full
precision; equal similarities are ordered by index, so the answer does not depend on the blocks.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

BLOCK_QUERIES = 512
BLOCK_KEYS = 65536
GROUP = 32  # keys per group; a power of two, and blocks are powers of two


def search(
    queries: np.ndarray,
    keys: np.ndarray,
    k: int,
    *,
    block_queries: int = BLOCK_QUERIES,
    block_keys: int = BLOCK_KEYS,
) -> tuple[np.ndarray, np.ndarray]:
    """The k keys with the largest dot product for each query, best first; exact.

    With vectors of unit length the dot product is the cosine.

    Args:
      queries: float32 [q, D].
      keys: float32 [n, D]; stays on the host but for one block at a time.
      k: 1 <= k <= n.
      block_queries: queries compared at a time, rounded up to a power of two.
      block_keys: keys compared at a time, likewise.

    Returns:
      (similarity float32 [q, k], index int64 [q, k]); of equal similarities the lower index
      comes first.

    Raises:
      ValueError: widths differ, or k is not in 1..n.
    """
    if queries.ndim != 2 or keys.ndim != 2 or queries.shape[1] != keys.shape[1]:
        raise ValueError(
            f"queries have shape {queries.shape}, keys {keys.shape}; expected [q, D] and [n, D]"
        )
    if not 1 <= k <= len(keys):
        raise ValueError(f"k is {k}; expected 1 to {len(keys)}, the number of keys")
    if not len(queries):
        return np.zeros((0, k), np.float32), np.zeros((0, k), np.int64)
    query_rows = block_size(len(queries), block_queries)
    key_rows = block_size(max(len(keys), k), max(block_keys, k))
    starts = range(0, len(queries), query_rows)
    blocks = [jax.device_put(rows_from(queries, start, query_rows)) for start in starts]
    nothing = (
        np.full((query_rows, k), -np.inf, np.float32),
        np.zeros((query_rows, k), np.int32),
    )
    best = [jax.device_put(nothing) for _ in blocks]
    for start in range(0, len(keys), key_rows):
        keys_ND = jax.device_put(rows_from(keys, start, key_rows))
        bounds = jax.device_put(np.array([start, len(keys)], np.int32))
        best = [
            merge_block(queries_QD, keys_ND, bounds, *found, k)
            for queries_QD, found in zip(blocks, best, strict=True)
        ]
    similarity, index = (np.concatenate(part) for part in zip(*jax.device_get(best), strict=True))
    return similarity[: len(queries)], index[: len(queries)].astype(np.int64)


def block_size(needed: int, most: int) -> int:
    """The power of two that holds `needed` rows, at most `most` rounded up: few shapes compile."""
    return 1 << max(0, min(needed, most) - 1).bit_length()


def rows_from(array: np.ndarray, start: int, rows: int) -> np.ndarray:
    """`rows` float32 rows from `start` on, zeros after the end."""
    part = np.asarray(array[start : start + rows], np.float32)
    return np.pad(part, ((0, rows - len(part)), (0, 0))) if len(part) < rows else part


@partial(jax.jit, static_argnames="k")
def merge_block(queries_QD, keys_ND, bounds, best_Qk, index_Qk, k: int):
    """The best k of those found so far and of one block of keys.

    Args:
      bounds: int32 [2], the index of the block's first key and the number of all keys.
    """
    start, count = bounds
    similarity_QN = jnp.einsum(
        "qd,nd->qn", queries_QD, keys_ND, precision=jax.lax.Precision.HIGHEST
    )
    padding_N = start + jnp.arange(keys_ND.shape[0]) >= count
    similarity_QN = jnp.where(padding_N[None], -jnp.inf, similarity_QN)
    block_best_Qk, block_index_Qk = top_k(similarity_QN, min(k, keys_ND.shape[0]))
    # What was found before has lower indices and stands first, and top_k keeps the first of equals.
    both = jnp.concatenate([best_Qk, block_best_Qk], axis=1)
    both_index = jnp.concatenate([index_Qk, start + block_index_Qk], axis=1)
    best_Qk, place = jax.lax.top_k(both, k)
    return best_Qk, jnp.take_along_axis(both_index, place, axis=1)


def top_k(similarity_QN: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """As jax.lax.top_k, but it sorts group maxima first and then the k best groups only.

    Exact: a key in no group among the k best (by maximum, then by index) has k keys before it,
    one in each of those groups. Groups are runs of neighbours, so equal values keep their order.
    """
    queries, keys = similarity_QN.shape
    groups = keys // GROUP
    if keys % GROUP or groups <= k:
        return jax.lax.top_k(similarity_QN, k)
    grouped_QGg = similarity_QN.reshape(queries, groups, GROUP)
    _, group_Qk = jax.lax.top_k(grouped_QGg.max(axis=-1), k)
    group_Qk = jnp.sort(group_Qk, axis=-1)
    candidates = jnp.take_along_axis(grouped_QGg, group_Qk[:, :, None], axis=1)
    best_Qk, place = jax.lax.top_k(candidates.reshape(queries, k * GROUP), k)
    group = jnp.take_along_axis(group_Qk, place // GROUP, axis=1)
    return best_Qk, group * GROUP + place % GROUP
