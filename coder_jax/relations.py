"""The relation table: one bilinear matrix per relation, [R, D, D].

(head vector, relation) in, query vector out: the query is compared with tails as a term vector
would be. With the identity as matrix the query is the head itself, so that S is the special case of
S^rel with M = I (CODER, section 3.3).
"""

from typing import Any

import jax
import jax.numpy as jnp


def init_relations(relations: int, width: int, *, noise: float, seed: int) -> jax.Array:
    """float32 [R, D, D]: the identity plus normal noise of standard deviation `noise`.

    Under `jax.jit` with a sharded output each device makes its own part, of the same values.
    """
    normal_RDD = jax.random.normal(jax.random.key(seed), (relations, width, width))
    return jnp.eye(width)[None] + noise * normal_RDD


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


def is_relations(path: tuple[Any, ...], leaf: Any) -> bool:
    """Whether the leaf of a `TrainState` at this path is the relation table or a moment of it."""
    return leaf.ndim == 3 and any(getattr(part, "key", None) == "relations" for part in path)
