"""The relation table: one bilinear matrix per relation, [R, D, D].

(head vector, relation) in, query vector out: the query is compared with tails as a term vector
would be. With the identity as matrix the query is the head itself, so that S is the special case of
S^rel with M = I (CODER, section 3.3).
"""

import jax
import jax.numpy as jnp


def init_relations(relations: int, width: int, *, noise: float, seed: int) -> jax.Array:
    """float32 [R, D, D]: the identity plus normal noise of standard deviation `noise`.

    Under `jax.jit` with a sharded output each device makes its own part, of the same values.
    """
    normal_RDD = jax.random.normal(jax.random.key(seed), (relations, width, width))
    return jnp.eye(width)[None] + noise * normal_RDD


def relation_queries(table_RDD: jax.Array, relation_U: jax.Array, head_UmD: jax.Array) -> jax.Array:
    r"""The query :math:`M_r^\top e` of each head.

    Gathers the U matrices of the distinct triplets, not one for each of their k = U * m repeats.
    Any dimensions may stand before U, the same in `relation_U` and `head_UmD`.

    Args:
        table_RDD: float32 [R, D, D].
        relation_U: int32 [..., U]; a negative id stands for no relation and gives the head itself.
        head_UmD: float32 [..., U, m, D], the m terms of each triplet's head.

    Returns:
        float32 [..., U, m, D].
    """
    matrix_UDD = table_RDD[jnp.maximum(relation_U, 0)]
    query_UmD = jnp.einsum(
        "...umd,...ude->...ume", head_UmD, matrix_UDD, precision=jax.lax.Precision.HIGHEST
    )
    return jnp.where((relation_U >= 0)[..., None, None], query_UmD, head_UmD)
