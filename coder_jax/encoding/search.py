"""Exact search of nearest vectors by dot product, on accelerators and CPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from coder_jax.encoding.vector_files import Rows
from data_pipeline import process
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The search on one CPU: XLA multiplies and NumPy selects, in the same memory.
#
# After the first blocks hardly a key is among the best k. NumPy finds the few without sorting,
# where XLA with its static shapes would sort as if there were many, and it does so while XLA
# compares the next block.

_GROUP = 32  # neighbouring keys per group; a power of two, and blocks are powers of two


def _search_on_host(
    queries: np.ndarray,
    keys: Rows,
    k: int,
    query_rows: int,
    key_rows: int,
    device: jax.Device,
) -> tuple[np.ndarray, np.ndarray]:
    """`search` on one CPU, in blocks of this many rows; XLA and NumPy share the memory."""
    starts = range(0, len(queries), query_rows)
    query_blocks = [
        jax.device_put(np.ascontiguousarray(rows_from(queries, start, query_rows).T), device)
        for start in starts
    ]
    best = np.full((len(queries), k), _NOTHING)

    def choose(
        here: np.ndarray, block_start: int, new: slice, compared: tuple[jax.Array, jax.Array]
    ) -> None:
        _keep_best(here, block_start, new, *map(np.asarray, compared))

    under_way: tuple | None = None
    for first_key in range(0, len(keys), key_rows):
        process.poll()
        # The last block overlaps the one before: padding would copy it, and the product of a
        # smaller block is rounded differently, so that equal keys would not tie.
        block_start = max(0, min(first_key, len(keys) - key_rows))
        keys_ND = jax.device_put(rows_from(keys, block_start, key_rows), device)
        new = slice(first_key - block_start, min(key_rows, len(keys) - block_start))
        for start, queries_DQ in zip(starts, query_blocks, strict=True):
            compared = _similarities(keys_ND, queries_DQ)
            if under_way is not None:  # chosen from while the next block is compared
                choose(*under_way)
            under_way = best[start : start + query_rows], block_start, new, compared
    assert under_way is not None  # neither queries nor keys are empty
    choose(*under_way)
    similarity, index = _unpack(best)
    _check_finite(similarity)  # minus infinity leaves places empty: there are k keys or more
    return similarity, index


def rows_from(array: Rows, start: int, rows: int) -> np.ndarray:
    """`rows` float32 rows from `start` on, zeros after the end."""
    part = np.asarray(array[start : start + rows], np.float32)
    return np.pad(part, ((0, rows - len(part)), (0, 0))) if len(part) < rows else part


@jax.jit
def _similarities(keys_ND, queries_DQ) -> tuple[jax.Array, jax.Array]:
    """All dot products [N, Q], and the largest in each group of neighbouring keys [Q, G]."""
    similarity_NQ = dot_products(keys_ND, queries_DQ)
    keys, queries = similarity_NQ.shape
    grouped_GgQ = similarity_NQ.reshape(-1, min(_GROUP, keys), queries)
    return similarity_NQ, grouped_GgQ.max(axis=1).T


def dot_products(keys_ND, queries_DQ) -> jax.Array:
    """[N, Q]: in this order, and no factor transposed, or Eigen takes three times as long."""
    return jnp.einsum("nd,dq->nq", keys_ND, queries_DQ, precision=jax.lax.Precision.HIGHEST)


def _keep_best(
    best_Qk: np.ndarray,
    start: int,
    new: slice,
    similarity_NQ: np.ndarray,
    largest_QG: np.ndarray,
) -> None:
    """Merges the keys of a block that are among the best k into `best_Qk`, in place.

    Only groups are looked at whose largest key is among the best k: k of them are enough, as
    `search._top_k` says; a key that was chosen from already stands for itself in that count. What
    is in `best_Qk` already has lower indices, so keys must be larger.

    Args:
      best_Qk: int64, from `_pack`, best first; the block may have more queries, of padding.
      start: the index of the block's first key.
      new: the keys of the block that count; before them are some that were chosen from already,
        after them padding.
      similarity_NQ, largest_QG: from `_similarities`.

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
    _check_finite(largest_QG.max())
    least_Q, _ = _unpack(best_Qk[:, -1])
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
    _merge_rows(best_Qk, query_P[pair_F], _pack(values_Pg[pair_F, place_F], start + key_F))


def _check_finite(similarity: np.ndarray) -> None:
    """Raise BadInput for values that are infinite or NaN."""
    if not np.isfinite(similarity).all():
        raise BadInput(
            "a similarity is infinite or not a number; expected finite queries and keys whose "
            "products float32 can hold: if vectors come from a file, encode them again"
        )


def _merge_rows(best_Qk: np.ndarray, query_F: np.ndarray, found_F: np.ndarray) -> None:
    """Merges found keys, ordered by query, into the best k of their queries, in place."""
    k, count_Q = best_Qk.shape[1], np.bincount(query_F, minlength=len(best_Qk))
    rows_A = np.flatnonzero(count_Q)
    row_F = (np.cumsum(count_Q > 0) - 1)[query_F]
    column_F = k + np.arange(len(query_F)) - (np.cumsum(count_Q) - count_Q)[query_F]
    both = np.full((len(rows_A), k + count_Q.max(initial=0)), _NOTHING)
    both[:, :k] = best_Qk[rows_A]
    both[row_F, column_F] = found_F
    both.sort(axis=1)
    best_Qk[rows_A] = both[:, :k]


def _pack(similarity: np.ndarray, index: np.ndarray) -> np.ndarray:
    """int64 that sort by falling similarity (float32), then by rising index (below 2**32)."""
    bits = (0.0 - similarity).view(np.int32)  # 0.0, never -0.0, which would not tie with it
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # of negative floats the larger has smaller bits
    return (ordered.astype(np.int64) << 32) | index


def _unpack(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Similarity float32 and index int64, from `_pack`."""
    ordered = (packed >> 32).astype(np.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return 0.0 - bits.view(np.float32), packed & 0xFFFFFFFF


# Sorts after all keys.
_NOTHING = _pack(np.full(1, -np.inf, np.float32), np.full(1, 0xFFFFFFFF, np.int64))[0]


# -------------------------------------------------------------------------------------------------
# Exact search: the k largest dot products of each query with all keys, and their indices.
#
# Blocked over queries and keys, so that memory does not grow with their number, and the blocks of
# keys are spread over the devices; float32 in full precision. All blocks have one shape, so that
# equal keys have equal similarities; these are ordered by index, and the answer does not depend on
# the number of devices. Another size of the blocks may change a similarity's last bits.
#
# If asked, products of each block are of bfloat16, which accelerators multiply much faster, and
# only its best keys by these are compared in float32: almost exact (`_CANDIDATES`).

_BLOCK_QUERIES = 512
_BLOCK_KEYS = 65536
# 8 MB of similarities, which a CPU's allocator reuses; more and less were slower.
_BLOCK_KEYS_CPU, _SIMILARITIES_CPU = 16384, 1 << 21
_MOST_KEYS = 1 << 30  # indices on the devices are int32
_SPREAD, _SAME = PartitionSpec("keys"), PartitionSpec()
Products = Literal["exact", "bfloat16"]
_BlocksOfKeys = tuple[jax.Array, jax.Array]
# By bfloat16 so many times k keys of a block are compared in float32. A product of unit vectors of
# width D is off by some 0.002 / sqrt(D), so that few of the nearest are not among them:
# tests/coder_jax/encoding/test_search.py and benchmarks/refresh.py measure how few.
_CANDIDATES = 2


class KeptRows:
    """Rows that are searched more than once, of which accelerators keep a copy.

    An accelerator keeps blocks while half of its memory is free; the other blocks are copied at
    each search. A CPU needs no copy.

    Args:
      rows: float [n, D]; they must not change.
    """

    def __init__(self, rows: Rows):
        self._rows, self.shape = rows, rows.shape
        self._kept: dict[tuple[int, ...], _BlocksOfKeys] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        return self._rows[rows]

    def blocks(self, place: tuple[int, ...], copy: Callable[[], _BlocksOfKeys]) -> _BlocksOfKeys:
        """The blocks at a place, copied if they were not kept."""
        if place not in self._kept:
            copied = copy()
            if not all(map(_is_half_free, copied[0].devices())):
                return copied
            self._kept[place] = copied
        return self._kept[place]


def _is_half_free(device: jax.Device) -> bool:
    """Whether half of an accelerator's memory is free."""
    memory = device.memory_stats() or {}
    return 2 * memory.get("bytes_in_use", 0) < memory.get("bytes_limit", 0)


def search(
    queries: np.ndarray,
    keys: Rows,
    k: int,
    *,
    block_queries: int = _BLOCK_QUERIES,
    block_keys: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    products: Products = "exact",
) -> tuple[np.ndarray, np.ndarray]:
    """The k keys with the largest dot product for each query, best first; exact.

    With vectors of unit length the dot product is the cosine.

    Args:
      queries: float [q, D].
      keys: float [n, D], also float16 or rows of a file (`RowsOfFile`): a device has two blocks at
        most (of `KeptRows` more). One CPU uses float32 as they are if they are aligned
        (`files.whole`), else a copy.
      k: 1 <= k <= n.
      block_queries: queries compared at a time, rounded up to a power of two.
      block_keys: keys that a device compares at a time, likewise; chosen for the machine if None.
      devices: where to search; all devices of this host if None.
      products: "bfloat16" to find candidates by such products and rank them in float32.

    Returns:
      (similarity float32 [q, k], index int64 [q, k]); of equal ones the lower index first.

    Raises:
      ValueError: widths differ, k is not in 1..n, or there are more than 2**30 keys.
      BadInput: a similarity among the k largest is infinite or not a number.
      Stopped: a signal asked for it.
    """
    _check_shapes(queries, keys, k)
    if not len(queries):
        return np.zeros((0, k), np.float32), np.zeros((0, k), np.int64)
    devices = list(devices or jax.local_devices())
    query_rows = block_size(len(queries), block_queries)
    if block_keys is None:
        on_cpu = devices[0].platform == "cpu"
        block_keys = (
            min(_BLOCK_KEYS_CPU, _SIMILARITIES_CPU // query_rows) if on_cpu else _BLOCK_KEYS
        )
    key_rows = block_size(len(keys), max(block_keys, k))
    blocks = -(-len(keys) // key_rows)
    chosen = devices[:blocks]
    if products == "exact" and len(chosen) == 1 and chosen[0].platform == "cpu":
        return _search_on_host(queries, keys, k, query_rows, key_rows, chosen[0])
    return _search_on_devices(queries, keys, k, query_rows, key_rows, chosen, products)


def nearest_others(
    vectors: Rows, k: int, rows: np.ndarray | None = None, products: Products = "exact"
) -> tuple[np.ndarray, np.ndarray]:
    """`search` for the k vectors nearest to each of some vectors, itself left out.

    Fewer than k where there are not so many others.

    Args:
      vectors: float [n, D].
      k: at least 1.
      rows: int [q], those whose neighbours are wanted; all if None.
      products: as for `search`.

    Returns:
      (similarity float32 [q, k], index int64 [q, k]), as of `search`.
    """
    queries = np.asarray(vectors) if rows is None else vectors[rows]
    rows = np.arange(len(vectors)) if rows is None else rows
    k = min(k, len(vectors) - 1)
    similarity, index = search(queries, vectors, k + 1, products=products)
    is_self = index == rows[:, None]
    # If k + 1 others are as near as the vector itself, it may be missing, and the last one is
    # dropped.
    is_self[~is_self.any(axis=1), -1] = True
    return tuple(found[~is_self].reshape(len(rows), k) for found in (similarity, index))


def _search_on_devices(
    queries: np.ndarray,
    keys: Rows,
    k: int,
    query_rows: int,
    key_rows: int,
    chosen: Sequence[jax.Device],
    products: Products,
) -> tuple[np.ndarray, np.ndarray]:
    """`search` on several devices, in blocks of this many rows."""
    mesh = Mesh(np.array(chosen), ("keys",), axis_types=(AxisType.Auto,))
    query_blocks = [
        jax.device_put(rows_from(queries, start, query_rows), NamedSharding(mesh, _SAME))
        for start in range(0, len(queries), query_rows)
    ]
    shape = (len(chosen), query_rows, k)
    nothing = np.full(shape, -np.inf, np.float32), np.zeros(shape, np.int32)
    best = [jax.device_put(nothing, NamedSharding(mesh, _SPREAD)) for _ in query_blocks]
    # Neighbouring blocks go to one device, so that the first of equal keys is on the first device.
    rounds = -(-len(keys) // (key_rows * len(chosen)))
    for turn in range(rounds):
        process.poll()
        starts = key_rows * (turn + rounds * np.arange(len(chosen)))
        copy = partial(_spread_blocks, keys, starts, key_rows, mesh)
        place = turn, key_rows, *(device.id for device in chosen)
        blocks_of_keys = keys.blocks(place, copy) if isinstance(keys, KeptRows) else copy()
        before = best
        best = [
            _merge_blocks(queries_QD, *blocks_of_keys, *found, k=k, mesh=mesh, products=products)
            for queries_QD, found in zip(query_blocks, best, strict=True)
        ]
        jax.block_until_ready(before)  # or keys would pile up in front of busy devices
    found = jax.device_get(best)
    for similarity, _ in found:
        _check_finite(similarity.max())  # merging puts last what is not a number
    merged = [_best_of_devices(*pair) for pair in found]
    similarity, index = (np.concatenate(part)[: len(queries)] for part in zip(*merged, strict=True))
    _check_finite(similarity)
    return similarity, index.astype(np.int64)


def _check_shapes(queries: np.ndarray, keys: Rows, k: int) -> None:
    """Raise ValueError for shapes that cannot be searched."""
    if queries.ndim != 2 or len(keys.shape) != 2 or queries.shape[1] != keys.shape[1]:
        raise ValueError(
            f"queries have shape {queries.shape}, keys {keys.shape}; expected [q, D] and [n, D]"
        )
    if not 1 <= k <= len(keys):
        raise ValueError(f"k is {k}; expected 1 to {len(keys)}, the number of keys")
    if len(keys) > _MOST_KEYS:
        raise ValueError(f"there are {len(keys)} keys; expected at most {_MOST_KEYS}")


def block_size(needed: int, most: int) -> int:
    """The power of two that holds `needed` rows, at most `most` rounded up: few shapes compile."""
    return 1 << max(0, min(needed, most) - 1).bit_length()


def _spread_blocks(keys: Rows, starts: np.ndarray, rows: int, mesh: Mesh) -> _BlocksOfKeys:
    """The arguments `keys` and `bounds` of `_merge_blocks`: one block of keys on each device."""
    blocks = [
        jax.device_put(rows_from(keys, int(start), rows), device)
        for start, device in zip(starts, mesh.devices, strict=True)
    ]
    shape, spread = (len(starts) * rows, keys.shape[1]), NamedSharding(mesh, _SPREAD)
    bounds = np.stack([starts, np.full_like(starts, len(keys))], axis=1).astype(np.int32)
    return (
        jax.make_array_from_single_device_arrays(shape, spread, blocks),
        jax.device_put(bounds, spread),
    )


def _best_of_devices(best: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best k of those that each device found ([devices, Q, k]), equal ones by index."""
    k = best.shape[-1]
    best, index = np.concatenate(list(best), axis=1), np.concatenate(list(index), axis=1)
    order = np.argsort(-best, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(best, order, axis=1), np.take_along_axis(index, order, axis=1)


@partial(jax.jit, static_argnames=("k", "mesh", "products"))
def _merge_blocks(
    queries_QD, keys, bounds, best, index, *, k: int, mesh: Mesh, products: Products = "exact"
):
    """On each device, the best k of those found so far and of its block of keys.

    Args:
      queries_QD: the same on each device.
      keys: [devices * N, D].
      bounds: int32 [devices, 2], the index of the block's first key and the number of all keys.
      best, index: [devices, Q, k], what each device found so far.
      products: as for `search`.
    """

    as_on_host = mesh.devices.flat[0].platform == "cpu"

    def on_one_device(queries_QD, keys_ND, bounds, best_1Qk, index_1Qk):
        so_far = best_1Qk[0], index_1Qk[0]
        found = _merge_block(queries_QD, keys_ND, bounds[0], *so_far, k, as_on_host, products)
        return found[0][None], found[1][None]

    spread = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(_SAME, *[_SPREAD] * 4), out_specs=(_SPREAD, _SPREAD)
    )
    return spread(queries_QD, keys, bounds, best, index)


def _merge_block(
    queries_QD,
    keys_ND,
    bounds,
    best_Qk,
    index_Qk,
    k: int,
    as_on_host: bool = False,
    products: Products = "exact",
):
    """The best k of those found so far and of one block of keys.

    Args:
      bounds: int32 [2], the index of the block's first key and the number of all keys.
      as_on_host: multiply as `_search_on_host` does, to the bit: for CPUs, where one device takes
        that way and several take this one.
      products: as for `search`.
    """
    start, count = bounds
    padding_N = start + jnp.arange(keys_ND.shape[0]) >= count
    if products == "exact":
        # Without barriers XLA may swap the factors, and CPUs then round differently. A GPU or TPU
        # does not have to match, so its compiler is left free.
        fixed = jax.lax.optimization_barrier if as_on_host else lambda array: array
        similarity_QN = fixed(dot_products(keys_ND, fixed(queries_QD.T))).T
        similarity_QN = jnp.where(padding_N[None], -jnp.inf, similarity_QN)
        block_best_Qk, block_index_Qk = _top_k(similarity_QN, k)
    else:
        block_best_Qk, block_index_Qk = _ranked_candidates(queries_QD, keys_ND, padding_N, k)
    # What was found before has lower indices and stands first, and _top_k keeps the first of
    # equals.
    both = jnp.concatenate([best_Qk, block_best_Qk], axis=1)
    both_index = jnp.concatenate([index_Qk, start + block_index_Qk], axis=1)
    best_Qk, place = jax.lax.top_k(both, k)
    return best_Qk, jnp.take_along_axis(both_index, place, axis=1)


def _ranked_candidates(queries_QD, keys_ND, padding_N, k: int) -> tuple[jax.Array, jax.Array]:
    """float32 products and indices of the keys of a block that are best by bfloat16 products.

    `_CANDIDATES` times k of them, or all keys, in the order of their indices; padding has -inf.
    """
    rough_QN = jnp.einsum(
        "qd,nd->qn",
        queries_QD.astype(jnp.bfloat16),
        keys_ND.astype(jnp.bfloat16),
        preferred_element_type=jnp.float32,
    )
    rough_QN = jnp.where(padding_N[None], -jnp.inf, rough_QN)
    _, index_Qc = _top_k(rough_QN, min(_CANDIDATES * k, len(keys_ND)))
    index_Qc = jnp.sort(index_Qc, axis=1)
    similarity_Qc = jnp.einsum(
        "qd,qcd->qc", queries_QD, keys_ND[index_Qc], precision=jax.lax.Precision.HIGHEST
    )
    return jnp.where(padding_N[index_Qc], -jnp.inf, similarity_Qc), index_Qc


def _top_k(similarity_QN: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """As jax.lax.top_k, but it sorts group maxima first and then the k best groups only.

    Exact: a key in no group among the k best (by maximum, then by index) has k keys before it,
    one in each of those groups. Groups are runs of neighbours, so equal values keep their order.
    """
    queries, keys = similarity_QN.shape
    groups = keys // _GROUP
    if keys % _GROUP or groups <= k:
        return jax.lax.top_k(similarity_QN, k)
    grouped_QGg = similarity_QN.reshape(queries, groups, _GROUP)
    _, group_Qk = jax.lax.top_k(grouped_QGg.max(axis=-1), k)
    group_Qk = jnp.sort(group_Qk, axis=-1)
    candidates = jnp.take_along_axis(grouped_QGg, group_Qk[:, :, None], axis=1)
    best_Qk, place = jax.lax.top_k(candidates.reshape(queries, k * _GROUP), k)
    group = jnp.take_along_axis(group_Qk, place // _GROUP, axis=1)
    return best_Qk, group * _GROUP + place % _GROUP
