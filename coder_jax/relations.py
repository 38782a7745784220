"""The relation table: one bilinear matrix per relation, [R, D, D].

(head vector, relation) in, query vector out: the query is compared with tails as a term vector
would be. With the identity as matrix the query is the head itself, so that S is the special case of
S^rel with M = I (CODER, section 3.3).
"""

import jax
import jax.numpy as jnp
import numpy as np


def init_relations(relations: int, width: int, *, noise: float, seed: int) -> np.ndarray:
    """float32 [R, D, D]: the identity plus normal noise of standard deviation `noise`."""
    table_RDD = np.random.default_rng(seed).standard_normal(
        (relations, width, width), np.float32
    ) * np.float32(noise)
    table_RDD[:, np.arange(width), np.arange(width)] += 1
    return table_RDD


def relation_queries(table_RDD: jax.Array, relation_U: jax.Array, head_UmD: jax.Array) -> jax.Array:
    r"""The query :math:`M_r^\top e` of each head.

    Gathers the U matrices of a group's distinct triplets, not one for each of their k = U * m
    repeats.

    Args:
        table_RDD: float32 [R, D, D].
        relation_U: int32 [U]; a negative id stands for no relation and gives the head itself.
        head_UmD: float32 [U, m, D], the m terms of each triplet's head.

    Returns:
        float32 [U, m, D].
    """
    matrix_UDD = table_RDD[jnp.maximum(relation_U, 0)]
    query_UmD = jnp.einsum(
        "umd,ude->ume", head_UmD, matrix_UDD, precision=jax.lax.Precision.HIGHEST
    )
    return jnp.where((relation_U >= 0)[:, None, None], query_UmD, head_UmD)
