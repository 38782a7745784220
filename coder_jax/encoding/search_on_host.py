"""The search of `search.py` on one CPU: XLA multiplies and NumPy chooses, in the same memory.

After the first blocks hardly a key is among the best k. NumPy finds the few without sorting, where
XLA with its static shapes would sort as if there were many, and it does so while XLA compares the
next block.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.encoding.rows import Rows
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

GROUP = 32  # neighbouring keys per group; a power of two, and blocks are powers of two


def search_on_host(
    queries: np.ndarray,
    keys: Rows,
    k: int,
    query_rows: int,
    key_rows: int,
    device: jax.Device,
) -> tuple[np.ndarray, np.ndarray]:
    """As `search`, in blocks of so many rows, on one CPU: its memory is NumPy's as well."""
    starts = range(0, len(queries), query_rows)
    query_blocks = [
        jax.device_put(np.ascontiguousarray(rows_from(queries, start, query_rows).T), device)
        for start in starts
    ]
    best = np.full((len(queries), k), NOTHING)

    def choose(
        here: np.ndarray, block_start: int, new: slice, compared: tuple[jax.Array, jax.Array]
    ) -> None:
        keep_best(here, block_start, new, *map(np.asarray, compared))

    under_way: tuple | None = None
    for first_key in range(0, len(keys), key_rows):
        stopping.poll()
        # The last block begins among the keys of the one before: to pad it would be to copy it, and
        # the product of a smaller one is rounded otherwise, so that equal keys would not tie.
        block_start = max(0, min(first_key, len(keys) - key_rows))
        keys_ND = jax.device_put(rows_from(keys, block_start, key_rows), device)
        new = slice(first_key - block_start, min(key_rows, len(keys) - block_start))
        for start, queries_DQ in zip(starts, query_blocks, strict=True):
            compared = similarities(keys_ND, queries_DQ)
            if under_way is not None:  # chosen from while the next block is compared
                choose(*under_way)
            under_way = best[start : start + query_rows], block_start, new, compared
    assert under_way is not None  # neither queries nor keys are empty
    choose(*under_way)
    similarity, index = unpack(best)
    check_finite(similarity)  # minus infinity leaves places empty: there are k keys or more
    return similarity, index


def rows_from(array: Rows, start: int, rows: int) -> np.ndarray:
    """`rows` float32 rows from `start` on, zeros after the end."""
    part = np.asarray(array[start : start + rows], np.float32)
    return np.pad(part, ((0, rows - len(part)), (0, 0))) if len(part) < rows else part


@jax.jit
def similarities(keys_ND, queries_DQ) -> tuple[jax.Array, jax.Array]:
    """All dot products [N, Q], and the largest in each group of neighbouring keys [Q, G]."""
    similarity_NQ = dot_products(keys_ND, queries_DQ)
    keys, queries = similarity_NQ.shape
    grouped_GgQ = similarity_NQ.reshape(-1, min(GROUP, keys), queries)
    return similarity_NQ, grouped_GgQ.max(axis=1).T


def dot_products(keys_ND, queries_DQ) -> jax.Array:
    """[N, Q]: in this order, and no factor transposed, or Eigen takes three times as long."""
    return jnp.einsum("nd,dq->nq", keys_ND, queries_DQ, precision=jax.lax.Precision.HIGHEST)


def keep_best(
    best_Qk: np.ndarray,
    start: int,
    new: slice,
    similarity_NQ: np.ndarray,
    largest_QG: np.ndarray,
) -> None:
    """Puts the keys of a block that are among the best k into `best_Qk`, in place.

    Only groups are looked at whose largest key is among the best k: k of them are enough, as
    `search.top_k` says; a key that was chosen from already stands for itself in that count. What is
    in `best_Qk` already has lower indices, so keys must be larger.

    Args:
      best_Qk: int64, from `pack`, best first; the block may have more queries, of padding.
      start: the index of the block's first key.
      new: the keys of the block that count; before them are some that were chosen from already,
        after them padding.
      similarity_NQ, largest_QG: from `similarities`.

    Raises:
      BadInput: a similarity is not a number, or infinite.
    """
    (queries, k), keys = best_Qk.shape, len(similarity_NQ)
    width = keys // largest_QG.shape[1]
    largest_QG = largest_QG[:queries]
    if new.stop < keys:
        largest_QG = largest_QG[:, : -(-new.stop // width)].copy()
        last_group = slice((new.stop - 1) // width * width, new.stop)
        largest_QG[:, -1] = similarity_NQ[last_group, :queries].max(axis=0)
    check_finite(largest_QG.max())
    least_Q, _ = unpack(best_Qk[:, -1])
    is_open_QG = largest_QG > least_Q[:, None]
    crowded_C = np.flatnonzero(np.count_nonzero(is_open_QG, axis=1) > k)
    if len(crowded_C):
        crowded_CG = largest_QG[crowded_C]
        kth_C = np.partition(crowded_CG, -k, axis=1)[:, -k]
        is_open_CG = crowded_CG >= kth_C[:, None]
        tied_T = np.flatnonzero(np.count_nonzero(is_open_CG, axis=1) > k)
        first_Tk = np.argsort(-crowded_CG[tied_T], axis=1, kind="stable")[:, :k]
        is_open_CG[tied_T] = False
        is_open_CG[tied_T[:, None], first_Tk] = True
        is_open_QG[crowded_C] = is_open_CG
        least_Q[crowded_C] = np.nextafter(kth_C, -np.float32(np.inf))  # the k-th itself may enter
    query_P, group_P = np.nonzero(is_open_QG)
    grouped_GgQ = similarity_NQ.reshape(keys // width, width, -1)
    values_Pg = grouped_GgQ[group_P, :, query_P]
    pair_F, place_F = np.nonzero(values_Pg > least_Q[query_P, None])
    key_F = group_P[pair_F] * width + place_F
    is_new_F = (new.start <= key_F) & (key_F < new.stop)
    pair_F, place_F, key_F = pair_F[is_new_F], place_F[is_new_F], key_F[is_new_F]
    merge_rows(best_Qk, query_P[pair_F], pack(values_Pg[pair_F, place_F], start + key_F))


def check_finite(similarity: np.ndarray) -> None:
    """BadInput if one is infinite or not a number."""
    if not np.isfinite(similarity).all():
        raise BadInput(
            "a similarity is infinite or not a number; expected finite queries and keys whose "
            "products float32 can hold: if vectors come from a file, encode them again"
        )


def merge_rows(best_Qk: np.ndarray, query_F: np.ndarray, found_F: np.ndarray) -> None:
    """Merges found keys, ordered by query, into the best k of their queries, in place."""
    k, count_Q = best_Qk.shape[1], np.bincount(query_F, minlength=len(best_Qk))
    rows_A = np.flatnonzero(count_Q)
    row_F = (np.cumsum(count_Q > 0) - 1)[query_F]
    column_F = k + np.arange(len(query_F)) - (np.cumsum(count_Q) - count_Q)[query_F]
    both = np.full((len(rows_A), k + count_Q.max(initial=0)), NOTHING)
    both[:, :k] = best_Qk[rows_A]
    both[row_F, column_F] = found_F
    both.sort(axis=1)
    best_Qk[rows_A] = both[:, :k]


def pack(similarity: np.ndarray, index: np.ndarray) -> np.ndarray:
    """int64 that sort by falling similarity (float32), then by rising index (below 2**32)."""
    bits = (0.0 - similarity).view(np.int32)  # 0.0, never -0.0, which would not tie with it
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # of negative floats the larger has smaller bits
    return (ordered.astype(np.int64) << 32) | index


def unpack(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Similarity float32 and index int64, from `pack`."""
    ordered = (packed >> 32).astype(np.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return 0.0 - bits.view(np.float32), packed & 0xFFFFFFFF


# Sorts behind all keys.
NOTHING = pack(np.full(1, -np.inf, np.float32), np.full(1, 0xFFFFFFFF, np.int64))[0]
