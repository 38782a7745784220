"""The relation table: one bilinear matrix per relation, [R, D, D], or one translation, [R, D].

(head vector, relation) in, query vector out: the query is compared with tails as a term vector
would be. With the identity as matrix the query is the head itself, so that S is the special case of
S^rel with M = I (CODER, section 3.3), or with the translation 0 (TransE; Bordes et al. 2013).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from coder_jax.devices.mesh import BLOCKS, EVERYWHERE, constrain, spread_axes


def table_shape(score: str, relations: int, width: int) -> tuple[int, ...]:
    """The shape of the table for a `score`, bilinear or translation."""
    return (relations, width, width) if score == "bilinear" else (relations, width)


def init_relations(shape: tuple[int, ...], *, noise: float, seed: int) -> jax.Array:
    """float32, of a `table_shape`: relations that leave heads as they are, but for normal noise.

    That is the identity for matrices, 0 for translations, plus noise of standard deviation `noise`.
    Under `jax.jit` with a sharded output each device makes its own part, of the same values.
    """
    normal = jax.random.normal(jax.random.key(seed), shape)
    return (jnp.eye(shape[-1])[None] if len(shape) == 3 else 0.0) + noise * normal


def relation_matrices(table_RDD: jax.Array, relation_U: jax.Array) -> jax.Array:
    """float32 [..., U, D, D]: the matrices of distinct triplets; any one for a negative id.

    U of them, not one for each of the k = U * m repeats of the triplets.
    """
    return table_RDD[jnp.maximum(relation_U, 0)]


def relation_queries(
    matrix_UDD: jax.Array, relation_U: jax.Array, head_UmD: jax.Array
) -> jax.Array:
    r"""The query :math:`M_r^\top e` of each head.

    Args:
        matrix_UDD: float32 [..., U, D, D], of `relation_matrices`.
        relation_U: int32 [..., U]; a negative id stands for no relation and gives the head itself.
        head_UmD: float32 [..., U, m, D], the m terms of each triplet's head.

    Returns:
        float32 [..., U, m, D].
    """
    query_UmD = jnp.einsum(
        "...umd,...ude->...ume", head_UmD, matrix_UDD, precision=jax.lax.Precision.HIGHEST
    )
    return jnp.where((relation_U >= 0)[..., None, None], query_UmD, head_UmD)


def translated(table_RD: jax.Array, relation_U: jax.Array, head_UmD: jax.Array) -> jax.Array:
    """The query e + r of each head; shapes as for `relation_queries`."""
    translation_UD = jnp.where((relation_U >= 0)[..., None], table_RD[relation_U], 0.0)
    return head_UmD + translation_UD[..., None, :]


def all_queries(
    mesh: Mesh, table: jax.Array, relation_BGU: jax.Array, head_BGkD: jax.Array
) -> jax.Array:
    """The queries of all groups, [B, G, k, D]: each device adds what its part of matrices gives.

    Args:
        mesh: the devices.
        table: float32 [R, D, D], matrices, or [R, D], translations.
        relation_BGU: int32, of the distinct triplets.
        head_BGkD: float32, the vectors of the heads.
    """
    put = partial(constrain, mesh)
    width = head_BGkD.shape[-1]
    head_BGUmD = head_BGkD.reshape(*relation_BGU.shape, -1, width)
    if table.ndim == 2:
        query_BGUmD = translated(table, relation_BGU, head_BGUmD)
        return put(query_BGUmD, BLOCKS).reshape(head_BGkD.shape)
    # A device that holds some rows of every matrix needs those features of every head: these are
    # small, so the heads travel and the matrices stay.
    axes = spread_axes(mesh, width)
    if axes is None:
        matrix_BGUDD = relation_matrices(table, relation_BGU)
        query_BGUmD = relation_queries(matrix_BGUDD, relation_BGU, head_BGUmD)
    else:
        relation_BGU = put(relation_BGU, EVERYWHERE)
        matrix_BGUDD = relation_matrices(table, relation_BGU)
        # The constraint holds for the gradient, too: it is made where the matrices lie.
        matrix_BGUDD = put(matrix_BGUDD, PartitionSpec(None, None, None, axes))
        if mesh.shape["within"] > 1:  # XLA knows no direct way between these places
            head_BGUmD = put(head_BGUmD, EVERYWHERE)
        head_BGUmD = put(head_BGUmD, PartitionSpec(None, None, None, None, axes))
        query_BGUmD = relation_queries(matrix_BGUDD, relation_BGU, head_BGUmD)
        if mesh.shape["within"] > 1:
            query_BGUmD = put(query_BGUmD, EVERYWHERE)
    return put(query_BGUmD, BLOCKS).reshape(head_BGkD.shape)
