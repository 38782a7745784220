"""Nearest vectors: queries and keys in, the k largest dot products and their indices out; exact.

Blocked over queries and keys, so that memory does not grow with their number, and the blocks of
keys are spread over the devices; float32 in full precision. All blocks have one shape, so that
equal keys have equal similarities; these are ordered by index, and the answer does not depend on
the number of devices. Another size of the blocks may change a similarity's last bits.

If asked, products of each block are of bfloat16, which accelerators multiply much faster, and only
its best keys by these are compared in float32: almost exact (`CANDIDATES`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from coder_jax.encoding.rows import Rows
from coder_jax.encoding.search_on_host import (
    GROUP,
    check_finite,
    dot_products,
    rows_from,
    search_on_host,
)
from data_pipeline.process import stopping

BLOCK_QUERIES = 512
BLOCK_KEYS = 65536
# On a CPU 8 MB of similarities, which the allocator keeps; more and fewer were slower.
BLOCK_KEYS_CPU, SIMILARITIES_CPU = 16384, 1 << 21
MOST_KEYS = 1 << 30  # indices on the devices are int32
SPREAD, SAME = PartitionSpec("keys"), PartitionSpec()
Products = Literal["exact", "bfloat16"]
# By bfloat16 so many times k keys of a block are compared in float32. A product of unit vectors of
# width D is off by some 0.002 / sqrt(D), so that few of the nearest are not among them:
# tests/coder_jax/encoding/test_search.py and benchmarks/refresh.py measure how few.
CANDIDATES = 2


def search(
    queries: np.ndarray,
    keys: Rows,
    k: int,
    *,
    block_queries: int = BLOCK_QUERIES,
    block_keys: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    products: Products = "exact",
) -> tuple[np.ndarray, np.ndarray]:
    """The k keys with the largest dot product for each query, best first; exact.

    With vectors of unit length the dot product is the cosine.

    Args:
      queries: float [q, D].
      keys: float [n, D], also float16 or rows of a file (`RowsOfFile`): a device has two blocks at
        most. One CPU uses float32 as they are if they are aligned (`dataset.aligned`), else a copy.
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
    check_shapes(queries, keys, k)
    if not len(queries):
        return np.zeros((0, k), np.float32), np.zeros((0, k), np.int64)
    devices = list(devices or jax.local_devices())
    query_rows = block_size(len(queries), block_queries)
    if block_keys is None:
        on_cpu = devices[0].platform == "cpu"
        block_keys = min(BLOCK_KEYS_CPU, SIMILARITIES_CPU // query_rows) if on_cpu else BLOCK_KEYS
    key_rows = block_size(len(keys), max(block_keys, k))
    blocks = -(-len(keys) // key_rows)
    chosen = devices[:blocks]
    if products == "exact" and len(chosen) == 1 and chosen[0].platform == "cpu":
        return search_on_host(queries, keys, k, query_rows, key_rows, chosen[0])
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
    # Where k + 1 others are as near as itself, it is not among them, and the last one goes.
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
    """`search` in blocks of so many rows, on so many devices."""
    mesh = Mesh(np.array(chosen), ("keys",), axis_types=(AxisType.Auto,))
    query_blocks = [
        jax.device_put(rows_from(queries, start, query_rows), NamedSharding(mesh, SAME))
        for start in range(0, len(queries), query_rows)
    ]
    shape = (len(chosen), query_rows, k)
    nothing = np.full(shape, -np.inf, np.float32), np.zeros(shape, np.int32)
    best = [jax.device_put(nothing, NamedSharding(mesh, SPREAD)) for _ in query_blocks]
    # Neighbouring blocks go to one device: the first of equal keys is on the first device.
    rounds = -(-len(keys) // (key_rows * len(chosen)))
    for turn in range(rounds):
        stopping.poll()
        starts = key_rows * (turn + rounds * np.arange(len(chosen)))
        blocks_of_keys = spread_blocks(keys, starts, key_rows, mesh)
        before = best
        best = [
            merge_blocks(queries_QD, *blocks_of_keys, *found, k=k, mesh=mesh, products=products)
            for queries_QD, found in zip(query_blocks, best, strict=True)
        ]
        jax.block_until_ready(before)  # or keys would pile up in front of busy devices
    found = jax.device_get(best)
    for similarity, _ in found:
        check_finite(similarity.max())  # merging puts last what is not a number
    merged = [best_of_devices(*pair) for pair in found]
    similarity, index = (np.concatenate(part)[: len(queries)] for part in zip(*merged, strict=True))
    check_finite(similarity)
    return similarity, index.astype(np.int64)


def check_shapes(queries: np.ndarray, keys: Rows, k: int) -> None:
    """ValueError for what cannot be searched."""
    if queries.ndim != 2 or len(keys.shape) != 2 or queries.shape[1] != keys.shape[1]:
        raise ValueError(
            f"queries have shape {queries.shape}, keys {keys.shape}; expected [q, D] and [n, D]"
        )
    if not 1 <= k <= len(keys):
        raise ValueError(f"k is {k}; expected 1 to {len(keys)}, the number of keys")
    if len(keys) > MOST_KEYS:
        raise ValueError(f"there are {len(keys)} keys; expected at most {MOST_KEYS}")


def block_size(needed: int, most: int) -> int:
    """The power of two that holds `needed` rows, at most `most` rounded up: few shapes compile."""
    return 1 << max(0, min(needed, most) - 1).bit_length()


def spread_blocks(
    keys: Rows, starts: np.ndarray, rows: int, mesh: Mesh
) -> tuple[jax.Array, jax.Array]:
    """`keys` and `bounds` of `merge_blocks`: one block of keys on each device."""
    blocks = [
        jax.device_put(rows_from(keys, int(start), rows), device)
        for start, device in zip(starts, mesh.devices, strict=True)
    ]
    shape, spread = (len(starts) * rows, keys.shape[1]), NamedSharding(mesh, SPREAD)
    bounds = np.stack([starts, np.full_like(starts, len(keys))], axis=1).astype(np.int32)
    return (
        jax.make_array_from_single_device_arrays(shape, spread, blocks),
        jax.device_put(bounds, spread),
    )


def best_of_devices(best: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best k of those that each device found ([devices, Q, k]), equal ones by index."""
    k = best.shape[-1]
    best, index = np.concatenate(list(best), axis=1), np.concatenate(list(index), axis=1)
    order = np.argsort(-best, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(best, order, axis=1), np.take_along_axis(index, order, axis=1)


@partial(jax.jit, static_argnames=("k", "mesh", "products"))
def merge_blocks(
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
        found = merge_block(queries_QD, keys_ND, bounds[0], *so_far, k, as_on_host, products)
        return found[0][None], found[1][None]

    spread = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(SAME, *[SPREAD] * 4), out_specs=(SPREAD, SPREAD)
    )
    return spread(queries_QD, keys, bounds, best, index)


def merge_block(
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
      as_on_host: multiply as `search_on_host` does, to the bit: for CPUs, where one device takes
        that way and several take this one.
      products: as for `search`.
    """
    start, count = bounds
    padding_N = start + jnp.arange(keys_ND.shape[0]) >= count
    if products == "exact":
        # Without barriers XLA takes the factors the other way round, and CPUs round differently. A
        # GPU or TPU has no other way to agree with, and its compiler is left free.
        fixed = jax.lax.optimization_barrier if as_on_host else lambda array: array
        similarity_QN = fixed(dot_products(keys_ND, fixed(queries_QD.T))).T
        similarity_QN = jnp.where(padding_N[None], -jnp.inf, similarity_QN)
        block_best_Qk, block_index_Qk = top_k(similarity_QN, k)
    else:
        block_best_Qk, block_index_Qk = ranked_candidates(queries_QD, keys_ND, padding_N, k)
    # What was found before has lower indices and stands first, and top_k keeps the first of equals.
    both = jnp.concatenate([best_Qk, block_best_Qk], axis=1)
    both_index = jnp.concatenate([index_Qk, start + block_index_Qk], axis=1)
    best_Qk, place = jax.lax.top_k(both, k)
    return best_Qk, jnp.take_along_axis(both_index, place, axis=1)


def ranked_candidates(queries_QD, keys_ND, padding_N, k: int) -> tuple[jax.Array, jax.Array]:
    """float32 products and indices of the keys of a block that are best by bfloat16 products.

    `CANDIDATES` times k of them, or all keys, in the order of their indices; padding has -inf.
    """
    rough_QN = jnp.einsum(
        "qd,nd->qn",
        queries_QD.astype(jnp.bfloat16),
        keys_ND.astype(jnp.bfloat16),
        preferred_element_type=jnp.float32,
    )
    rough_QN = jnp.where(padding_N[None], -jnp.inf, rough_QN)
    _, index_Qc = top_k(rough_QN, min(CANDIDATES * k, len(keys_ND)))
    index_Qc = jnp.sort(index_Qc, axis=1)
    similarity_Qc = jnp.einsum(
        "qd,qcd->qc", queries_QD, keys_ND[index_Qc], precision=jax.lax.Precision.HIGHEST
    )
    return jnp.where(padding_N[index_Qc], -jnp.inf, similarity_Qc), index_Qc


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
